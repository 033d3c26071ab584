//! Debian packages, unpacked without dpkg: an `ar` archive whose member `data.tar.*` holds the files.
//!
//! Only regular files, directories and links are made, all below the target, without owners. The format is that of
//! deb(5).

use std::{
    fs,
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use crate::{decompress, error::GuestError};

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
        rest = body.get(size + size % 2..).unwrap_or_default();
    }
    Ok(found)
}

/// `path` below `root`, or `None` where it would leave it.
fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut target = root.to_owned();
    for part in path.components() {
        match part {
            Component::Normal(name) => target.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(target)
}

/// Unpacks the files of the package `deb` for which `want` (given the path inside, without `./`) is true.
pub fn unpack_deb(deb: &Path, into: &Path, want: impl Fn(&Path) -> bool) -> Result<(), GuestError> {
    let bytes = fs::read(deb).map_err(|e| GuestError::file("read", deb, e))?;
    let members = members(&bytes).map_err(|why| GuestError::format(deb, why))?;
    let data = members.iter().find(|(name, _)| name.starts_with("data.tar"));
    let (_, data) = data.ok_or_else(|| GuestError::format(deb, "a Debian package without a data archive"))?;
    let reader = decompress::reader(data);
    unpack_tar(reader, into, want).map_err(|e| GuestError::file("unpack", deb, e))
}

fn unpack_tar(reader: impl Read, into: &Path, want: impl Fn(&Path) -> bool) -> io::Result<()> {
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let inside: PathBuf =
            entry.path()?.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        if inside.as_os_str().is_empty() || !want(&inside) {
            continue;
        }
        let Some(target) = below(into, &inside) else { continue };
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            make_dir(&target)?;
            continue;
        }
        if let Some(parent) = target.parent() {
            make_dir(parent)?;
        }
        if kind.is_hard_link() {
            let Some(source) = entry.link_name()?.and_then(|name| below(into, &name)) else { continue };
            fs::copy(source, &target)?;
        } else if kind.is_file() || kind.is_symlink() {
            entry.set_preserve_permissions(true);
            entry.unpack(&target)?;
        }
    }
    Ok(())
}

/// Directories are followed through links that earlier packages left (`lib64 -> usr/lib64`).
fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir_all(path) {
        Err(_) if path.is_dir() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
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

    fn package() -> Vec<u8> {
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
        unpack_deb(&deb, dir.path(), |p| p.starts_with("boot")).unwrap();
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
            let result = unpack_deb(&deb, &dir.path().join("out"), |_| true);
            assert!(result.is_err(), "cut at {cut} of {}", whole.len());
        }
    }

    #[test]
    fn nothing_leaves_the_target() {
        assert_eq!(below(Path::new("/a"), Path::new("../../etc/passwd")), None);
        assert_eq!(below(Path::new("/a"), Path::new("/etc/passwd")), None);
        assert_eq!(below(Path::new("/a"), Path::new("./b")), Some(PathBuf::from("/a/b")));
    }
}
