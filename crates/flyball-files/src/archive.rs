//! Tar archives with limits on memory and time.
//!
//! The tar crate reads a long name or a pax header completely before its size can be checked. So
//! headers are read raw here, and no more of a name is read than a path may have.

use std::{
    cell::Cell,
    ffi::OsStr,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tar::EntryType;

use crate::{MAX_PATH, PathError, plain};

/// Limits on an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries, including those that the caller ignores.
    pub entries: usize,
    /// Bytes of one file.
    pub file: u64,
    /// Bytes of the unpacked archive: contents, headers and padding. [`unpack`](crate::unpack)
    /// writes at most as many again for hard links, which it converts to copies.
    pub total: u64,
    /// Time from the first byte to the last.
    pub time: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// In the normal form of [`plain`].
    pub path: PathBuf,
    pub kind: Kind,
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File {
        size: u64,
        /// Permission bits, without set-user-ID, set-group-ID and sticky.
        mode: u32,
    },
    Directory,
    /// A symbolic link, with its target unchanged.
    Link(PathBuf),
    /// Another name of an earlier file of the archive.
    HardLink(PathBuf),
    /// A device, a FIFO, or an entry of unknown type.
    Other,
}

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("damaged: {0}")]
    Damaged(io::Error),
    #[error("it holds the path '{path}', which {why}")]
    Path { path: String, why: PathError },
    #[error("it is too large (at {0})")]
    Large(String),
    #[error("it is too large when unpacked (over {} MiB)", .0 >> 20)]
    Total(u64),
    #[error("it has more than {0} entries")]
    Many(usize),
    #[error("it takes longer than {} s to unpack", .0.as_secs())]
    Slow(Duration),
    #[error("it has a header that is not understood at {0}")]
    Header(String),
}

/// Formats a path for a message: text of limited length, with control characters visible.
pub(crate) fn shown(path: &[u8]) -> String {
    const MAX: usize = 80;
    let text = String::from_utf8_lossy(&path[..path.len().min(MAX)]).escape_debug().to_string();
    if path.len() > MAX { text + "..." } else { text }
}

/// The limit that was reached while reading.
#[derive(Debug, Clone, Copy)]
enum BoundReached {
    Total,
    Time,
}

/// The archive's bytes, up to a limit and a deadline.
struct Bounded<'a, R> {
    from: R,
    left: u64,
    deadline: Instant,
    met: &'a Cell<Option<BoundReached>>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Check it at each read. This does not notice a source that never returns.
        if Instant::now() > self.deadline {
            self.met.set(Some(BoundReached::Time));
            return Err(io::ErrorKind::TimedOut.into());
        }
        let room = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if room == 0 && !buffer.is_empty() {
            // At the limit only the end of the input is allowed.
            if self.from.read(&mut [0])? == 0 {
                return Ok(0);
            }
            self.met.set(Some(BoundReached::Total));
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let count = self.from.read(&mut buffer[..room])?;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Limit on the bytes of a pax header: a few keys, two of which are paths.
const MAX_PAX: u64 = 16 << 10;

/// Properties of an entry from the headers before it.
#[derive(Default)]
struct PaxHeader {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
}

/// Reads an archive, entry by entry. `each` gets the entry and its content, which it need not read.
///
/// # Errors
/// The archive is damaged, hostile or over a limit, or `each` fails. Earlier entries have been
/// passed on.
pub fn read<E: From<TarError>>(
    tar: impl Read,
    limits: Limits,
    each: &mut dyn FnMut(Item, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let met = Cell::new(None);
    let deadline = Instant::now() + limits.time;
    let broken = |error: io::Error| match met.get() {
        Some(BoundReached::Total) => TarError::Total(limits.total),
        Some(BoundReached::Time) => TarError::Slow(limits.time),
        None => TarError::Damaged(error),
    };
    let mut archive = tar::Archive::new(Bounded { from: tar, left: limits.total, deadline, met: &met });
    let mut pax_header = PaxHeader::default();
    for (number, entry) in archive.entries().map_err(broken)?.raw(true).enumerate() {
        let mut entry = entry.map_err(broken)?;
        // Count headers that describe other entries too: an archive that contains nothing else must
        // end as well.
        if number >= limits.entries {
            return Err(TarError::Many(limits.entries).into());
        }
        let size = entry.size();
        let kind = entry.header().entry_type();
        let name = pax_header.path.clone().unwrap_or_else(|| entry.path_bytes().into_owned());
        match kind {
            EntryType::GNULongName | EntryType::GNULongLink => {
                let mut text = contents(&mut entry, size, MAX_PATH as u64 + 1, &name, broken)?;
                while text.last() == Some(&0) {
                    text.pop();
                }
                let slot = if kind == EntryType::GNULongName {
                    &mut pax_header.path
                } else {
                    &mut pax_header.target
                };
                *slot = Some(text);
                continue;
            }
            EntryType::XHeader => {
                let bytes = contents(&mut entry, size, MAX_PAX, &name, broken)?;
                pax(&bytes, &mut pax_header).ok_or_else(|| TarError::Header(shown(&name)))?;
                continue;
            }
            // Defaults for all entries, which include nothing that is read here.
            EntryType::XGlobalHeader => continue,
            _ => {}
        }
        // The headers apply only to this entry.
        let said = std::mem::take(&mut pax_header);
        let path = plain(Path::new(OsStr::from_bytes(&name)))
            .map_err(|why| TarError::Path { path: shown(&name), why })?;
        let target = || {
            let text = said.target.or_else(|| entry.link_name_bytes().map(std::borrow::Cow::into_owned));
            PathBuf::from(OsStr::from_bytes(&text.unwrap_or_default()))
        };
        let kind = match kind {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Link(target()),
            EntryType::Link => Kind::HardLink(target()),
            EntryType::Regular | EntryType::Continuous if size > limits.file => {
                return Err(TarError::Large(shown(&name)).into());
            }
            EntryType::Regular | EntryType::Continuous => {
                Kind::File { size, mode: entry.header().mode().unwrap_or(0o644) & 0o777 }
            }
            // A file with holes: its size is not that of its content.
            EntryType::GNUSparse => return Err(TarError::Header(shown(&name)).into()),
            _ => Kind::Other,
        };
        // The next iteration skips the content that `each` left unread, within the same limits.
        each(Item { path, kind }, &mut entry)?;
        // `each` may have mistaken a limit for the end.
        if let Some(met) = met.get() {
            return Err(match met {
                BoundReached::Total => TarError::Total(limits.total).into(),
                BoundReached::Time => TarError::Slow(limits.time).into(),
            });
        }
    }
    Ok(())
}

/// Returns the content of a header that describes the next entry.
fn contents(
    entry: &mut impl Read,
    size: u64,
    most: u64,
    name: &[u8],
    broken: impl Fn(io::Error) -> TarError,
) -> Result<Vec<u8>, TarError> {
    // Refuse it by its size, before reading it.
    if size > most {
        return Err(TarError::Path { path: shown(name), why: PathError::Long });
    }
    let mut bytes = Vec::new();
    entry.take(most).read_to_end(&mut bytes).map_err(broken)?;
    Ok(bytes)
}

/// Takes names from a pax header (pax(1), "pax Extended Header"). `None` if the header cannot be
/// read or needs unsupported features: a size other than the entry header's, or holes.
fn pax(bytes: &[u8], pax_header: &mut PaxHeader) -> Option<()> {
    for extension in tar::PaxExtensions::new(bytes) {
        let extension = extension.ok()?;
        match extension.key().ok()? {
            "path" => pax_header.path = Some(extension.value_bytes().to_vec()),
            "linkpath" => pax_header.target = Some(extension.value_bytes().to_vec()),
            "size" => return None,
            key if key.starts_with("GNU.sparse") => return None,
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
