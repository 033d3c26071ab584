//! Builds an initramfs in memory: the `newc` cpio that the kernel unpacks (its buffer-format
//! document `driver-api/early-userspace/buffer-format`).
//!
//! The bytes depend only on the content: there are no times, inodes are numbered, and entries are
//! in the given order. This makes guests reproducible.

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const FILE: u32 = 0o100_000;
const DEVICE: u32 = 0o020_600;

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    made: BTreeSet<String>,
    inode: u32,
}

impl Cpio {
    /// An empty archive.
    pub(crate) fn new() -> Cpio {
        Cpio::default()
    }

    /// Adds a directory and its parents.
    pub(crate) fn dir(&mut self, path: &str) {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let dir = &path[..at];
            if !dir.is_empty() && self.made.insert(dir.to_owned()) {
                self.entry(dir, DIRECTORY, &[], (0, 0));
            }
        }
    }

    /// Adds a regular file with these permission bits.
    pub(crate) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.parent(path);
        self.entry(path.trim_matches('/'), FILE | permissions & 0o7777, content, (0, 0));
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.parent(path);
        self.entry(path.trim_matches('/'), LINK, target.as_bytes(), (0, 0));
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.parent(path);
        self.entry(path.trim_matches('/'), DEVICE, &[], (major, minor));
    }

    /// The finished archive, padded so that another can follow it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        // The kernel accepts zeros between archives (buffer-format).
        let padded = self.bytes.len().next_multiple_of(512);
        self.bytes.resize(padded, 0);
        self.bytes
    }

    fn parent(&mut self, path: &str) {
        if let Some((dir, _)) = path.trim_matches('/').rsplit_once('/') {
            self.dir(dir);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8], (major, minor): (u32, u32)) {
        self.inode += 1;
        let size = u32::try_from(content.len()).expect("a file of an initramfs has less than 4 GiB");
        // Inode, mode, owner, group, links, time, size, device, special device, length of the name
        // with its zero, checksum. The kernel treats several links to one inode as one file
        // (init/initramfs.c), so every entry has one link and its own number.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses an archive: name, mode, content.
    fn list(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |n: usize| {
                u32::from_str_radix(std::str::from_utf8(&bytes[6 + 8 * n..14 + 8 * n]).unwrap(), 16).unwrap()
            };
            let (mode, size, name) = (field(1), field(6) as usize, field(11) as usize);
            let text = String::from_utf8(bytes[110..110 + name - 1].to_vec()).unwrap();
            if text == "TRAILER!!!" {
                return found;
            }
            let start = (110 + name).next_multiple_of(4);
            found.push((text, mode, bytes[start..start + size].to_vec()));
            bytes = &bytes[(start + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn parents_come_first_and_once() {
        let mut cpio = Cpio::new();
        cpio.file("/lib/modules/6.1/a.ko", 0o644, b"abc");
        cpio.link("/lib/modules/x", "6.1");
        cpio.dir("lib");
        cpio.device("/dev/console", 5, 1);
        let bytes = cpio.finish();
        assert_eq!(bytes.len() % 512, 0);
        let names: Vec<_> = list(&bytes).into_iter().map(|(name, mode, _)| (name, mode >> 12)).collect();
        let expected = [
            ("lib", 4),
            ("lib/modules", 4),
            ("lib/modules/6.1", 4),
            ("lib/modules/6.1/a.ko", 8),
            ("lib/modules/x", 10),
            ("dev", 4),
            ("dev/console", 2),
        ];
        assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert_eq!(list(&bytes)[3].2, b"abc");
    }
}
