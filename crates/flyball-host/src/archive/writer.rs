//! Writes an archive of a machine.

use std::io::{self, Write};

use flyball_files::ZstdWriter;

use super::{FORMAT, Head};

/// Writes an archive, entry by entry.
pub(crate) struct Writer<W: Write> {
    tar: tar::Builder<ZstdWriter<W>>,
}

impl<W: Write> Writer<W> {
    /// Starts an archive of a machine that runs `kernel`.
    pub(crate) fn new(out: W, kernel: &str) -> io::Result<Writer<W>> {
        let mut writer = Writer { tar: tar::Builder::new(ZstdWriter::new(out)) };
        let head = Head {
            format: FORMAT,
            recorded_by: format!("flyball {}", env!("CARGO_PKG_VERSION")),
            kernel: kernel.to_owned(),
        };
        let mut head = serde_json::to_vec_pretty(&head)?;
        head.push(b'\n');
        // First, so that a later format is recognised before anything else is read.
        writer.file("flyball.json", &head, false)?;
        Ok(writer)
    }

    fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
        // Without owner and time, two recordings of one state are the same bytes.
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    pub(crate) fn file(&mut self, path: &str, bytes: &[u8], writable: bool) -> io::Result<()> {
        let mode = if writable { 0o644 } else { 0o444 };
        let mut header = Self::header(tar::EntryType::Regular, bytes.len() as u64, mode);
        self.tar.append_data(&mut header, path, bytes)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Symlink, 0, 0o777);
        self.tar.append_link(&mut header, path, target)
    }

    /// Adds a folder, so that an empty folder is recorded too.
    pub(crate) fn folder(&mut self, path: &str) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, 0, 0o755);
        self.tar.append_data(&mut header, format!("{path}/"), io::empty())
    }

    pub(crate) fn finish(self) -> io::Result<W> {
        self.tar.into_inner()?.finish()
    }
}
