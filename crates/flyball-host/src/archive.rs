//! A machine in one file: `flyball record` writes it and `-M ARCHIVE` opens it.
//!
//! The file is a tar archive packed with zstd. It contains `sys/` and `proc/` as the machine's
//! kernel presented them, `msr.txt` (registers), `kernel.log` (the lines of the frequency drivers),
//! `errors.txt` (files that could not be read, one `errno|path` per line, so that the archive
//! returns the same error) and `flyball.json` (the format's number). Archives come from strangers:
//! they are never unpacked to disk, paths that climb are refused, links cannot lead outside, and
//! sizes are checked before memory is allocated.

mod read;
mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};

use flyball_files::{MAX_LINKS, MAX_PATH, TarError};
use flyball_text::Natural;

pub(crate) use self::writer::Writer;
use crate::{Errno, Host, HostError, Kind, Op, msrfile::MsrFile};

/// The format number that this code writes, and the highest that it reads.
const FORMAT: u64 = 1;
/// Limit on the bytes of a machine in memory: contents and names, plus [`ENTRY`] for each of them.
const MAX_KEPT: usize = 384 << 20;
/// Overhead in bytes of a name or a file: its map entries and allocations.
const ENTRY: usize = 160;
/// Limit on the parts of a path, including all links that it follows.
const MAX_STEPS: usize = 256;

/// Content of `flyball.json`.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Head {
    format: u64,
    #[serde(default)]
    recorded_by: String,
    #[serde(default)]
    kernel: String,
}

/// An entry below the archive's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File { bytes: Vec<u8>, writable: bool },
    Link(String),
    Fails(Errno),
}

/// A recorded machine in memory.
#[derive(Debug)]
pub struct Archive {
    name: String,
    /// Entries by path, without the leading slash.
    nodes: BTreeMap<String, Node>,
    /// The names in every folder. The root's are under the empty name.
    folders: BTreeMap<String, BTreeSet<String>>,
    msrs: Option<MsrFile>,
    log: Option<String>,
    /// Bytes in memory, counted as for [`MAX_KEPT`].
    kept: usize,
    started: Instant,
}

/// The reason why a file is not an archive of a machine.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    Io(String, io::Error),
    /// The tar archive is damaged, hostile, or more than flyball would write.
    #[error("{} is not a recorded machine: {}", .0, tar_words(.1))]
    Tar(String, TarError),
    /// The content is not flyball's, or larger than flyball's would be.
    #[error("{0} is not a recorded machine: {1}")]
    Content(String, String),
}

fn tar_words(error: &TarError) -> String {
    match error {
        TarError::Damaged(_) => "damaged or not made by flyball record".to_owned(),
        other => other.to_string(),
    }
}

/// The reason why an entry cannot be added to a machine.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Archive {
    /// Returns the whole machine as text: a path with its value on each line.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (path, node) in &self.nodes {
            text.push_str(&match node {
                Node::File { bytes, .. } => {
                    let content = String::from_utf8_lossy(bytes);
                    let content = content.trim_end_matches('\n');
                    // A line inside a longer file must not look like a path.
                    let first = if content.contains('\n') { "\n    " } else { " " };
                    format!("/{path} ={first}{}\n", content.replace('\n', "\n    "))
                }
                Node::Link(target) => format!("/{path} -> {target}\n"),
                Node::Fails(errno) => format!("/{path} ! {errno}\n"),
            });
        }
        for ((register, cpu), value) in self.msrs.iter().flat_map(MsrFile::values) {
            text.push_str(&format!("MSR {register:#x} of CPU {cpu} = {value:#x}\n"));
        }
        for line in self.log.iter().flat_map(|log| log.lines()) {
            text.push_str(&format!("kernel log: {line}\n"));
        }
        text
    }

    fn empty(name: &str) -> Archive {
        Archive {
            name: name.to_owned(),
            nodes: BTreeMap::new(),
            folders: BTreeMap::new(),
            msrs: None,
            log: None,
            kept: 0,
            started: Instant::now(),
        }
    }

    fn keep(&mut self, bytes: usize) -> Result<(), Refused> {
        // Count before keeping: an archive of a few kilobytes can unpack to more names than fit
        // into memory.
        self.kept += bytes + ENTRY;
        if self.kept > MAX_KEPT { Err(Refused("it is larger than any machine".to_owned())) } else { Ok(()) }
    }

    fn add(&mut self, path: String, node: Node) -> Result<(), Refused> {
        let size = match &node {
            Node::File { bytes, .. } => bytes.len(),
            Node::Link(target) if target.len() > MAX_PATH => {
                return Err(Refused(format!(
                    "the target of the link {path} is longer than {MAX_PATH} bytes"
                )));
            }
            Node::Link(target) => target.len(),
            Node::Fails(_) => 0,
        };
        self.keep(path.len() + size)?;
        if let Some((folder, name)) = path.rsplit_once('/') {
            self.add_folder(folder)?;
            // The folder's list holds the name a second time.
            self.keep(name.len())?;
            self.folders.entry(folder.to_owned()).or_default().insert(name.to_owned());
        }
        self.nodes.insert(path, node);
        Ok(())
    }

    fn add_folder(&mut self, path: &str) -> Result<(), Refused> {
        let mut rest = path;
        if self.folders.contains_key(rest) {
            return Ok(());
        }
        self.keep(rest.len())?;
        self.folders.entry(rest.to_owned()).or_default();
        while !rest.is_empty() {
            let (above, name) = rest.rsplit_once('/').unwrap_or(("", rest));
            // If its folder knows the name already, the folders above are known too.
            if !self.folders.entry(above.to_owned()).or_default().insert(name.to_owned()) {
                break;
            }
            // Each folder above is stored with its full path, so a deep path costs its length
            // squared.
            self.keep(above.len() + name.len())?;
            rest = above;
        }
        Ok(())
    }

    /// Follows links and returns the path of their target, without a leading slash. Links are
    /// resolved in the maps, so they cannot lead outside.
    fn resolve(&self, op: Op, path: &str, follow_last: bool) -> Result<String, HostError> {
        let fail = |errno| HostError::new(op, path, errno);
        let (mut links, mut steps) = (0, 0);
        let mut todo: Vec<&str> = path.split('/').rev().collect();
        let mut here = String::new();
        while let Some(part) = todo.pop() {
            // The number of links is limited too, but 40 long ones in each of 100,000 reads would
            // take minutes.
            steps += 1;
            if steps > MAX_STEPS {
                return Err(fail(Errno::LOOP));
            }
            match part {
                "" | "." => continue,
                // As in a file system, nothing is above the root.
                ".." => {
                    here.truncate(here.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let above = here.len();
            if above > 0 {
                here.push('/');
            }
            here.push_str(part);
            if here.len() > MAX_PATH {
                return Err(fail(Errno::NAMETOOLONG));
            }
            if let Some(Node::Link(target)) = self.nodes.get(&here) {
                if todo.is_empty() && !follow_last {
                    break;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(fail(Errno::LOOP));
                }
                here.truncate(if target.starts_with('/') { 0 } else { above });
                todo.extend(target.split('/').rev());
            }
        }
        Ok(here)
    }

    fn node(&self, op: Op, path: &str) -> Result<&Node, HostError> {
        // Like Live: an archive must not accept a path that the machine would refuse.
        if path.split('/').any(|part| part == "..") {
            return Err(HostError::new(op, path, Errno::INVAL));
        }
        let full = self.resolve(op, path, true)?;
        match self.nodes.get(&full) {
            Some(node) => Ok(node),
            None if self.folders.contains_key(&full) => Err(HostError::new(op, path, Errno::ISDIR)),
            None => Err(HostError::new(op, path, Errno::NOENT)),
        }
    }
}

impl Host for Archive {
    fn kind(&self) -> Kind {
        Kind::Recorded
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        buffer.clear();
        match self.node(Op::Read, path)? {
            Node::File { bytes, .. } => {
                buffer.extend_from_slice(bytes);
                Ok(())
            }
            Node::Fails(errno) => Err(HostError::new(Op::Read, path, *errno)),
            // `resolve` follows links to their end, so a remaining link dangles.
            Node::Link(_) => Err(HostError::new(Op::Read, path, Errno::NOENT)),
        }
    }

    fn write(&self, path: &str, _bytes: &[u8]) -> Result<(), HostError> {
        Err(HostError::new(Op::Write, path, Errno::ROFS))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        if path.split('/').any(|part| part == "..") {
            return Err(HostError::new(Op::List, path, Errno::INVAL));
        }
        let full = self.resolve(Op::List, path, true)?;
        let Some(names) = self.folders.get(&full) else {
            let errno = if self.nodes.contains_key(&full) { Errno::NOTDIR } else { Errno::NOENT };
            return Err(HostError::new(Op::List, path, errno));
        };
        let mut names: Vec<String> = names.iter().cloned().collect();
        names.sort_by(|a, b| Natural(a).cmp(&Natural(b)));
        Ok(names)
    }

    fn exists(&self, path: &str) -> bool {
        match self.node(Op::Read, path) {
            Ok(_) => true,
            Err(error) => error.errno == Errno::ISDIR,
        }
    }

    fn writable(&self, path: &str) -> bool {
        matches!(self.node(Op::Read, path), Ok(Node::File { writable: true, .. }))
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        let full = self.resolve(Op::Link, path, false)?;
        match self.nodes.get(&full) {
            Some(Node::Link(target)) => Ok(target.clone()),
            Some(_) => Err(HostError::new(Op::Link, path, Errno::INVAL)),
            None if self.folders.contains_key(&full) => Err(HostError::new(Op::Link, path, Errno::INVAL)),
            None => Err(HostError::new(Op::Link, path, Errno::NOENT)),
        }
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        let fail = |errno| HostError::new(Op::ReadMsr, format!("MSR {register:#x} of CPU {cpu}"), errno);
        let registers = self.msrs.as_ref().ok_or_else(|| fail(Errno::NOENT))?;
        // ENOENT means that the machine has no msr driver, ENODEV that the register was not
        // recorded.
        registers.get(cpu, register).ok_or_else(|| fail(Errno::NODEV))
    }

    fn write_msr(&self, cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::ROFS))
    }

    fn isst(&self, _number: u32, _argument: &mut [u8]) -> Result<i32, HostError> {
        Err(HostError::new(Op::Isst, crate::isst::NODE, Errno::NOENT))
    }

    fn kernel_log(&self) -> Result<String, HostError> {
        self.log.clone().ok_or_else(|| HostError::new(Op::Read, "kernel.log", Errno::NOENT))
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, _time: Duration) {}
}

#[cfg(test)]
mod tests;
