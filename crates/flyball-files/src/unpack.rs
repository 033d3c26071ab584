//! Unpacks an archive below a directory.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::{
    Dir, Type,
    archive::{self, Item, Kind, Limits, TarError},
    path::plain,
};

/// Counts of an unpacked archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub files: usize,
    /// Links that were skipped because they could lead outside.
    pub links_left_out: usize,
}

/// Why an archive was not unpacked. Entries before the failure stay.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error(transparent)]
    Archive(#[from] TarError),
    #[error("cannot make '{}': {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Unpacks the entries that `take` accepts below `into`, which no other user may write.
///
/// Files get mode 0644, or 0755 if any user may execute them; directories get 0755. Owners and
/// set-user-ID bits are dropped. An existing file is replaced, because packages share some files
/// (`lib64` is `usr/lib64`). A link that could lead outside is skipped and counted, and paths
/// through it become ordinary directories. Devices and FIFOs are skipped.
///
/// # Errors
/// Fails like [`archive::read`], and if something cannot be created.
pub fn unpack(
    tar: impl Read,
    into: &Dir,
    limits: Limits,
    take: &dyn Fn(&Path) -> bool,
) -> Result<Unpacked, UnpackError> {
    let mut done = Unpacked::default();
    // Hard links become copies, and a small archive can repeat a large file many times.
    let mut copies = limits.total;
    archive::read(tar, limits, &mut |item: Item, content: &mut dyn Read| {
        // `./`, with which most packages begin, is the directory itself.
        if item.path.as_os_str().is_empty() || !take(&item.path) {
            return Ok(());
        }
        let path = item.path.clone();
        one(into, item, content, &mut done, &mut copies).map_err(|source| UnpackError::File { path, source })
    })?;
    Ok(done)
}

/// Unpacks one entry. `copies` is the number of bytes that hard links may still copy.
fn one(
    into: &Dir,
    item: Item,
    content: &mut dyn Read,
    done: &mut Unpacked,
    copies: &mut u64,
) -> io::Result<()> {
    let Item { path, kind } = item;
    let folder = path.parent().unwrap_or(Path::new(""));
    match kind {
        // The archives that flyball unpacks have no devices or FIFOs.
        Kind::Other => {}
        Kind::Directory => {
            into.make_dirs(&path, 0o755)?;
        }
        Kind::Link(target) => {
            into.make_dirs(folder, 0o755)?;
            match into.make_link(&path, &target) {
                Ok(true) => {}
                Ok(false) => done.links_left_out += 1,
                // Two packages have the same link, or another package has created a directory
                // there.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Kind::HardLink(first) => {
            let Ok(first) = plain(&first) else {
                done.links_left_out += 1;
                return Ok(());
            };
            // Copy the file: an archive's file must not become another name of a file that existed
            // before. If the first file was not taken, there is nothing to copy.
            let status = match into.status(&first) {
                Ok(status) if status.kind == Type::File => status,
                _ => return Ok(()),
            };
            *copies = copies.checked_sub(status.size).ok_or(io::ErrorKind::FileTooLarge)?;
            into.make_dirs(folder, 0o755)?;
            let mut from = into.file(&first)?;
            io::copy(&mut from, &mut into.replace(&path, status.mode)?)?;
            done.files += 1;
        }
        Kind::File { size, mode } => {
            into.make_dirs(folder, 0o755)?;
            let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
            let copied = io::copy(content, &mut into.replace(&path, mode)?)?;
            if copied != size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done.files += 1;
        }
    }
    Ok(())
}
