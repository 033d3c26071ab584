//! Directories that no other user can have prepared or can change.

use std::{
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Why a directory is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    #[error("{} belongs to user {owner}, neither to root nor to the user of this process", .path.display())]
    Foreign { path: PathBuf, owner: u32 },
    #[error("{} can be written by other users (mode {mode:03o})", .path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    #[error("{} is not an absolute path", .0.display())]
    Relative(PathBuf),
    #[error("cannot look at {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Creates `path` as a directory of this user alone (0700), along with missing parents, and checks
/// it like [`check_private`]. If this user already owns it and others may access it, removes their
/// rights.
///
/// # Errors
/// The problem, and the directory on the way that has it.
pub fn private(path: &Path) -> Result<(), Untrusted> {
    check_private(path)?;
    let io = |source| Untrusted::Io { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
    // Check again: another process may have created it in between.
    check_private(path)?;
    let status = std::fs::metadata(path).map_err(io)?;
    if status.uid() == rustix::process::geteuid().as_raw() && status.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(io)?;
    }
    Ok(())
}

/// Checks that only this user and root can have put something into `path`: it and every directory
/// on the way belong to them, and no other user may write there. A directory above may be writable
/// by all if it is sticky, like /tmp, because then no user can rename the files of others. Missing
/// directories are not checked.
///
/// # Errors
/// The problem, and the directory on the way that has it.
pub fn check_private(path: &Path) -> Result<(), Untrusted> {
    if !path.is_absolute() {
        return Err(Untrusted::Relative(path.to_owned()));
    }
    let me = rustix::process::geteuid().as_raw();
    // Start at the root, so that each directory is checked only after it is known that no other
    // user can replace it.
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    for dir in above {
        let io = |source| Untrusted::Io { path: dir.to_owned(), source };
        let link = match std::fs::symlink_metadata(dir) {
            Ok(status) => status,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io(error)),
        };
        // root can change everything anyway.
        let trusted = |owner: u32| owner == me || owner == 0;
        if !trusted(link.uid()) {
            return Err(Untrusted::Foreign { path: dir.to_owned(), owner: link.uid() });
        }
        // A link's own mode means nothing (lrwxrwxrwx). Its owner was checked above.
        let status = if link.is_symlink() {
            // The link's target has a different path, which must be private too.
            check_private(&std::fs::canonicalize(dir).map_err(io)?)?;
            std::fs::metadata(dir).map_err(io)?
        } else {
            link
        };
        if !status.is_dir() {
            return Err(Untrusted::NotDirectory(dir.to_owned()));
        }
        let mode = status.mode() & 0o7777;
        // Group rights matter only for the directory itself: above it they often belong to the
        // user's own group (umask 002).
        let others = if dir == path { 0o022 } else { 0o002 };
        let sticky = mode & 0o1000 != 0 && dir != path;
        if mode & others != 0 && !sticky {
            return Err(Untrusted::Open { path: dir.to_owned(), mode: mode & 0o777 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_directory_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        private(&path).unwrap();
        for made in [dir.path().join("a"), path.clone()] {
            assert_eq!(std::fs::metadata(&made).unwrap().mode() & 0o777, 0o700, "{}", made.display());
        }
        mode(&path, 0o755);
        private(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        private(&path).unwrap();
        for open in [0o722, 0o702, 0o1777] {
            mode(&path, open);
            assert!(matches!(private(&path), Err(Untrusted::Open { .. })), "{open:o}");
        }
        mode(&path, 0o700);
        mode(&dir.path().join("a"), 0o777);
        assert!(matches!(private(&path), Err(Untrusted::Open { .. })));
        assert!(matches!(private(&dir.path().join("a/new")), Err(Untrusted::Open { .. })));
        // Mode as for /tmp.
        mode(&dir.path().join("a"), 0o1777);
        private(&path).unwrap();
    }

    #[test]
    fn what_belongs_to_others_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped 1 test: only root can give a directory away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        private(&path).unwrap();
        for given in [dir.path().join("a"), path.clone()] {
            std::os::unix::fs::chown(&given, Some(65534), None).unwrap();
            assert!(matches!(check_private(&path), Err(Untrusted::Foreign { owner: 65534, .. })));
            std::os::unix::fs::chown(&given, Some(0), None).unwrap();
        }
        // A link of another user to one of our directories.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        check_private(&link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert!(matches!(check_private(&link), Err(Untrusted::Foreign { .. })));
        // One of our links, through a directory that others can write.
        mode(&dir.path().join("a"), 0o777);
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        assert!(matches!(check_private(&link), Err(Untrusted::Open { .. })));
    }

    #[test]
    fn a_file_or_a_relative_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "").unwrap();
        assert!(matches!(private(&dir.path().join("x")), Err(Untrusted::NotDirectory(_))));
        assert!(private(&dir.path().join("x/y")).is_err());
        assert!(matches!(check_private(Path::new("cache")), Err(Untrusted::Relative(_))));
    }
}
