//! Unpacks Debian packages without dpkg. A package is an `ar` archive whose member `data.tar.*` has
//! the files.
//!
//! Only regular files, directories and links that stay inside are created, all below the target and
//! without owners. deb(5) describes the format.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use flyball_files::{Dir, Limits, UnpackError};

use crate::{decompress, error::GuestError};

/// Maximum size of a package. The kernel with the most drivers has 110 MB.
const MAX_PACKAGE: u64 = 512 << 20;
/// Limits of size and time for unpacking. An unpacked kernel has 6,000 entries and 600 MB.
const LIMITS: Limits =
    Limits { entries: 200_000, file: 1 << 30, total: 4 << 30, time: Duration::from_secs(600) };

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;

/// The members of an `ar` archive: name and content.
fn members(bytes: &[u8]) -> Result<Vec<(String, &[u8])>, &'static str> {
    let mut rest = bytes.strip_prefix(MAGIC).ok_or("not a Debian package")?;
    let mut found = Vec::new();
    while rest.len() >= HEADER {
        let (head, body) = rest.split_at(HEADER);
        if &head[58..] != b"`\n" {
            return Err("broken member header");
        }
        let name = String::from_utf8_lossy(&head[..16]).trim_end().trim_end_matches('/').to_owned();
        let size = std::str::from_utf8(&head[48..58]).ok().and_then(|s| s.trim().parse::<usize>().ok());
        let size = size.ok_or("member without a size")?;
        let content = body.get(..size).ok_or("truncated")?;
        found.push((name, content));
        // Members begin at even offsets; the last one's padding may be missing.
        rest = body.get(size + size % 2..).unwrap_or_default();
    }
    Ok(found)
}

/// A package in memory, so that the checked bytes are the unpacked ones, whatever happens to the
/// file.
#[derive(Debug)]
pub(crate) struct Package {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Package {
    pub(crate) fn read(path: &Path) -> Result<Package, GuestError> {
        let error = |e| GuestError::file("read", path, e);
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(GuestError::format(path, "not a file"));
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        // Follow the user's own link to a package, but the target must be a regular file.
        let bytes = match Dir::open(folder).and_then(|dir| dir.read(name, MAX_PACKAGE)) {
            Err(e) if e.kind() == std::io::ErrorKind::CrossesDevices => {
                let real = fs::canonicalize(path).map_err(error)?;
                return Package::read(&real);
            }
            other => other.map_err(error)?,
        };
        Ok(Package { path: path.to_owned(), bytes })
    }

    /// Its SHA-256, in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        crate::cache::sha256(&self.bytes)
    }

    /// Unpacks the files whose path in the package, without `./`, satisfies `want`.
    pub(crate) fn unpack(&self, into: &Path, want: impl Fn(&Path) -> bool) -> Result<(), GuestError> {
        let members = members(&self.bytes).map_err(|why| GuestError::format(&self.path, why))?;
        // The extension names the compression, but the bytes show it too.
        let data = members.iter().find(|(name, _)| name.starts_with("data.tar"));
        let (_, data) =
            data.ok_or_else(|| GuestError::format(&self.path, "a Debian package without a data archive"))?;
        let reader = decompress::reader(data).map_err(|e| GuestError::file("unpack", &self.path, e))?;
        fs::create_dir_all(into).map_err(|e| GuestError::file("make", into, e))?;
        let dir = Dir::open(into).map_err(|e| GuestError::file("open", into, e))?;
        match flyball_files::unpack(reader, &dir, LIMITS, &want) {
            Ok(_) => Ok(()),
            Err(UnpackError::File { path, source }) => Err(GuestError::file("make", into.join(path), source)),
            Err(error) => Err(GuestError::format(&self.path, error.to_string())),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn member(name: &str, content: &[u8]) -> Vec<u8> {
        let mut out =
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100_644, content.len()).into_bytes();
        out.extend_from_slice(content);
        if content.len() % 2 == 1 {
            out.push(b'\n');
        }
        out
    }

    pub(crate) fn package() -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, text) in [("./boot/vmlinuz-1", "kernel"), ("./usr/share/doc/x", "text")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            tar.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        let data = zstd::encode_all(&tar.into_inner().unwrap()[..], 1).unwrap();
        [MAGIC.to_vec(), member("debian-binary", b"2.0\n"), member("data.tar.zst", &data)].concat()
    }

    #[test]
    fn unpacks_what_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let deb = dir.path().join("a.deb");
        fs::write(&deb, package()).unwrap();
        Package::read(&deb).unwrap().unpack(dir.path(), |p| p.starts_with("boot")).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("boot/vmlinuz-1")).unwrap(), "kernel");
        assert!(!dir.path().join("usr").exists());
    }

    #[test]
    fn broken_packages_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let whole = package();
        let deb = dir.path().join("a.deb");
        for cut in (0..whole.len()).step_by(7) {
            fs::write(&deb, &whole[..cut]).unwrap();
            let result = Package::read(&deb).unwrap().unpack(&dir.path().join("out"), |_| true);
            assert!(result.is_err(), "cut at {cut} of {}", whole.len());
        }
    }

    /// A package with a link that leads outside, and a set-user-ID file behind it.
    #[test]
    fn nothing_leaves_the_target() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (victim, target) = (dir.path().join("victim"), dir.path().join("target"));
        fs::create_dir(&victim).unwrap();
        let link = format!("-> {}", victim.display());
        let tar = flyball_testing::tar(&[("boot/x", &link), ("boot/x/passwd", "root")], 0o4755);
        let data = zstd::encode_all(tar.as_slice(), 1).unwrap();
        let deb = dir.path().join("evil.deb");
        fs::write(&deb, [MAGIC.to_vec(), member("data.tar.zst", &data)].concat()).unwrap();
        Package::read(&deb).unwrap().unpack(&target, |_| true).unwrap();
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        let mode = fs::metadata(target.join("boot/x/passwd")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7000, 0);
    }
}
