//! Reads a machine out of its file, within bounds.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use flyball_files::{Item, Kind, Limits, TarError, ZstdReader, archive, plain};

use super::{Archive, ArchiveError, FORMAT, Head, Node, Refused};
use crate::{Errno, msrfile::MsrFile, recorded::MAX_FILE};

/// Limits on unpacking: a machine of 512 CPUs has 61,500 files, of which six times as many are
/// allowed. The time is enough for a slow machine.
const LIMITS: Limits =
    Limits { entries: 400_000, file: MAX_FILE, total: 512 << 20, time: Duration::from_secs(60) };

/// Why reading stopped.
enum Stop {
    Tar(TarError),
    Content(String),
}

impl From<TarError> for Stop {
    fn from(error: TarError) -> Stop {
        Stop::Tar(error)
    }
}

impl From<Refused> for Stop {
    fn from(Refused(why): Refused) -> Stop {
        Stop::Content(why)
    }
}

impl Archive {
    /// Reads the archive at `path`.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, hostile or too large, or has a later format.
    pub fn open(path: &str) -> Result<Archive, ArchiveError> {
        let file = File::open(path).map_err(|error| ArchiveError::Io(path.to_owned(), error))?;
        Archive::read(path, io::BufReader::new(file))
    }

    /// Reads an archive from its bytes; `name` is for messages.
    pub fn read(name: &str, packed: impl io::BufRead) -> Result<Archive, ArchiveError> {
        let content = |why: String| ArchiveError::Content(name.to_owned(), why);
        let mut machine = Archive::empty(name);
        let mut has_head = false;
        let read = archive::read(ZstdReader::new(packed), LIMITS, &mut |item: Item, bytes: &mut dyn Read| {
            has_head |= item.path == Path::new("flyball.json");
            machine.take(item, bytes)
        });
        read.map_err(|stop| match stop {
            Stop::Tar(error) => ArchiveError::Tar(name.to_owned(), error),
            Stop::Content(why) => content(why),
        })?;
        if !has_head {
            return Err(content("it has no flyball.json".to_owned()));
        }
        if !machine.folders.contains_key("sys") {
            return Err(content("it has no sys/".to_owned()));
        }
        Ok(machine)
    }

    /// Adds one entry. Ignores entries that belong neither to the machine nor to flyball.
    fn take(&mut self, item: Item, content: &mut dyn Read) -> Result<(), Stop> {
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let path =
            text(&item.path).ok_or_else(|| Stop::Content("it holds a path that is not text".into()))?;
        let node = match item.kind {
            Kind::Directory => {
                if !path.is_empty() {
                    self.add_folder(&path)?;
                }
                return Ok(());
            }
            Kind::Link(target) => Node::Link(text(&target).unwrap_or_default()),
            // flyball record writes no devices or hard links, so the archive is not its own.
            Kind::HardLink(_) | Kind::Other => {
                let what = "it holds something that is neither file, folder nor link at";
                return Err(Stop::Content(format!("{what} {path}")));
            }
            Kind::File { size, mode } => {
                // `LIMITS.file` bounds the size that the header claims.
                let mut bytes = Vec::with_capacity(size as usize);
                content.read_to_end(&mut bytes).map_err(TarError::Damaged)?;
                Node::File { bytes, writable: mode & 0o222 != 0 }
            }
        };
        match (path.as_str(), &node) {
            ("flyball.json", Node::File { bytes, .. }) => {
                let head: Head = serde_json::from_slice(bytes)
                    .map_err(|error| Stop::Content(format!("flyball.json: {error}")))?;
                if head.format > FORMAT {
                    return Err(Stop::Content(format!(
                        "it is of format {}, made by a later flyball; this one reads up to {FORMAT}",
                        head.format
                    )));
                }
            }
            ("msr.txt", Node::File { bytes, .. }) => {
                let registers =
                    MsrFile::parse(bytes).map_err(|line| Stop::Content(format!("msr.txt, line {line}")))?;
                self.msrs = Some(registers);
            }
            ("kernel.log", Node::File { bytes, .. }) => {
                self.log = Some(String::from_utf8_lossy(bytes).into_owned());
            }
            ("errors.txt", Node::File { bytes, .. }) => self.add_errors(bytes)?,
            _ if path.starts_with("sys/") || path.starts_with("proc/") => self.add(path, node)?,
            _ => {}
        }
        Ok(())
    }

    fn add_errors(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let text = std::str::from_utf8(line).unwrap_or("?");
            if text.is_empty() {
                continue;
            }
            let (errno, path) = text
                .split_once("|/")
                .and_then(|(errno, path)| Some((errno.parse().ok()?, plain(Path::new(path)).ok()?)))
                .ok_or_else(|| Refused(format!("errors.txt, line {}", index + 1)))?;
            self.add(path.display().to_string(), Node::Fails(Errno(errno)))?;
        }
        Ok(())
    }
}
