//! The normal form of paths below a directory.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{MAX_NAME, MAX_PARTS, MAX_PATH};

/// Why a path is not below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("leads outside")]
    Outside,
    #[error("is longer than {MAX_PATH} bytes")]
    Long,
    #[error("has more than {MAX_PARTS} parts")]
    Deep,
    #[error("has a name of more than {MAX_NAME} bytes")]
    Name,
    #[error("has a zero byte")]
    Zero,
}

/// Returns `path` as names joined by slashes: relative, without `.` and empty parts. Refuses `..`
/// and a leading slash.
///
/// # Errors
/// The problem with the path. The length is checked first, so that a path of megabytes costs
/// nothing.
pub fn plain(path: &Path) -> Result<PathBuf, PathError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > MAX_PATH {
        return Err(PathError::Long);
    }
    if bytes.first() == Some(&b'/') {
        return Err(PathError::Outside);
    }
    // The kernel would end the path there, which would be a different file.
    if bytes.contains(&0) {
        return Err(PathError::Zero);
    }
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    let mut parts = 0;
    for part in bytes.split(|&byte| byte == b'/') {
        match part {
            // They change nothing. Dropping them gives each file only one name, so an archive
            // cannot contain it twice unnoticed.
            b"" | b"." => continue,
            b".." => return Err(PathError::Outside),
            name if name.len() > MAX_NAME => return Err(PathError::Name),
            name => {
                if !out.is_empty() {
                    out.push(b'/');
                }
                out.extend_from_slice(name);
            }
        }
        parts += 1;
        if parts > MAX_PARTS {
            return Err(PathError::Deep);
        }
    }
    Ok(OsStr::from_bytes(&out).into())
}

/// Returns whether a link in a real directory `depth` levels below the root stays inside, whatever
/// else is there.
///
/// `..` may only be at the beginning, and at most as often as the link is deep. After a name, it
/// could follow a link to a place that is less deep than the text says, and climb from there. If
/// each link of a tree obeys this rule, each leads to a place inside, so chains of links do too.
pub(crate) fn stays_inside(target: &Path, depth: usize) -> bool {
    let bytes = target.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() > MAX_PATH || bytes[0] == b'/' || bytes.contains(&0) {
        return false;
    }
    let (mut climbed, mut named, mut parts) = (0, false, 0);
    for part in bytes.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." if named => return false,
            b".." => climbed += 1,
            name if name.len() > MAX_NAME => return false,
            _ => named = true,
        }
        parts += 1;
    }
    climbed <= depth && parts <= MAX_PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_form() {
        assert_eq!(plain(Path::new("./a//b/./c/")).unwrap(), Path::new("a/b/c"));
        assert_eq!(plain(Path::new("")).unwrap(), Path::new(""));
        assert_eq!(plain(Path::new("/etc/passwd")), Err(PathError::Outside));
        assert_eq!(plain(Path::new("a/../b")), Err(PathError::Outside));
        assert_eq!(plain(Path::new(&"a/".repeat(60_000))), Err(PathError::Long));
        assert_eq!(plain(Path::new(&"a/".repeat(MAX_PARTS + 1))), Err(PathError::Deep));
        assert_eq!(plain(Path::new(&"a".repeat(MAX_NAME + 1))), Err(PathError::Name));
        assert_eq!(plain(Path::new("a\0b")), Err(PathError::Zero));
        assert!(plain(Path::new(&"a/".repeat(MAX_PARTS))).is_ok());
    }

    #[test]
    fn links_climb_no_higher_than_they_are_deep() {
        let inside = |target: &str, depth| stays_inside(Path::new(target), depth);
        assert!(inside("libx.so.1.2", 0) && inside("../lib/ld.so", 1) && inside("./a/b", 0));
        assert!(!inside("../x", 0) && !inside("../../x", 1) && !inside("/usr/lib", 5) && !inside("", 1));
        // `a` may be a link to the root.
        assert!(!inside("a/../..", 5));
    }
}
