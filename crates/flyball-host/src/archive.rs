//! A machine in one file: what `flyball record` writes and `-M ARCHIVE` opens.
//!
//! The file is a tar archive packed with zstd. It holds `sys/` and `proc/` as the machine's kernel presented them,
//! `msr.txt` (registers), `kernel.log` (the lines of the frequency drivers), `errors.txt` (files that answered with an
//! error, `errno|path` a line, so that the archive answers alike) and `flyball.json` (the format's number). Archives come
//! from strangers: nothing in one is ever unpacked to a disk, paths that climb are refused, links lead nowhere but
//! inside, and sizes are bounded before memory is taken.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead as _, Read, Write},
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    Errno, Host, HostError, Kind, Op,
    facts::{Fact, Facts, MAGIC},
    msrfile::MsrFile,
    recorded::natural_key,
};

/// The number of the format that this code writes, and the highest that it reads.
const FORMAT: u64 = 1;
/// How much an archive may hold when unpacked: ten times what a machine of 512 CPUs needs.
const MOST_BYTES: u64 = 512 << 20;
/// How large one file in it may be.
const MOST_FILE: u64 = 16 << 20;
/// How many files it may hold.
const MOST_FILES: usize = 2_000_000;
/// How long a chain of symbolic links may be, as in the kernel.
const MOST_LINKS: usize = 40;
/// How much history zstd may ask to keep in memory: 128 MiB.
const WINDOW_LOG: u32 = 27;

/// Something below the archive's root.
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
    /// By path without the leading slash.
    nodes: BTreeMap<String, Node>,
    /// The names in every folder, the root's under the empty name.
    folders: BTreeMap<String, BTreeSet<String>>,
    msrs: Option<MsrFile>,
    log: Option<String>,
    started: Instant,
}

/// Why a file is no archive of a machine.
#[derive(Debug)]
pub enum ArchiveError {
    /// The file cannot be read.
    Io(String, io::Error),
    /// The content is not what flyball writes, or more than it would.
    Content(String, String),
}

impl std::fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArchiveError::Io(name, error) => write!(f, "cannot read {name}: {error}"),
            ArchiveError::Content(name, why) => write!(f, "{name} is no recorded machine: {why}"),
        }
    }
}

impl std::error::Error for ArchiveError {}

/// The normal form of a path in an archive, without a leading slash; `None` where it climbs or is not text.
fn plain_path(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => parts.push(name.to_str()?),
            std::path::Component::CurDir => {}
            _ => return None,
        }
    }
    Some(parts.join("/"))
}

impl Archive {
    /// Reads the machine at `path`: an archive, or facts as text.
    ///
    /// # Errors
    /// Where it cannot be read, is damaged, hostile or too large, or is of a later format.
    pub fn open(path: &str) -> Result<Archive, ArchiveError> {
        let broken = |error: io::Error| ArchiveError::Io(path.to_owned(), error);
        let mut file = io::BufReader::new(std::fs::File::open(path).map_err(broken)?);
        if !file.fill_buf().map_err(broken)?.starts_with(MAGIC.as_bytes()) {
            return Archive::read(path, file);
        }
        let mut text = String::new();
        file.take(MOST_BYTES).read_to_string(&mut text).map_err(broken)?;
        let facts = Facts::parse(&text);
        let facts = facts.map_err(|error| ArchiveError::Content(path.to_owned(), error.to_string()))?;
        Ok(Archive::of_facts(path, facts))
    }

    /// A machine made of facts; `name` is for messages.
    pub fn of_facts(name: &str, facts: Facts) -> Archive {
        let mut machine = Archive::empty(name);
        for (path, fact) in facts.facts {
            match fact {
                Fact::File { bytes, writable } => machine.add(path, Node::File { bytes, writable }),
                Fact::Link(target) => machine.add(path, Node::Link(target)),
                Fact::Fails(errno) => machine.add(path, Node::Fails(errno)),
                Fact::Folder => machine.add_folder(&path),
            }
        }
        machine.msrs = (!facts.registers.is_empty()).then(|| MsrFile::of_values(facts.registers));
        machine.log = facts.log;
        machine
    }

    /// What this machine holds, to be written as text.
    pub fn facts(self) -> Facts {
        let empty = self.folders.iter().filter(|(_, names)| names.is_empty());
        let folders: Vec<(String, Fact)> = empty.map(|(path, _)| (path.clone(), Fact::Folder)).collect();
        let nodes = self.nodes.into_iter().map(|(path, node)| match node {
            Node::File { bytes, writable } => (path, Fact::File { bytes, writable }),
            Node::Link(target) => (path, Fact::Link(target)),
            Node::Fails(errno) => (path, Fact::Fails(errno)),
        });
        Facts {
            head: Vec::new(),
            facts: nodes.chain(folders).collect(),
            registers: self.msrs.map(MsrFile::into_values).unwrap_or_default(),
            log: self.log,
        }
    }

    fn empty(name: &str) -> Archive {
        Archive {
            name: name.to_owned(),
            nodes: BTreeMap::new(),
            folders: BTreeMap::new(),
            msrs: None,
            log: None,
            started: Instant::now(),
        }
    }

    /// Reads an archive from its bytes; `name` is for messages.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn read(name: &str, packed: impl io::BufRead) -> Result<Archive, ArchiveError> {
        let content = |why: String| ArchiveError::Content(name.to_owned(), why);
        let broken = |error: io::Error| content(format!("damaged or not made by flyball record ({error})"));
        let mut decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(broken)?;
        decoder.window_log_max(WINDOW_LOG).map_err(broken)?;
        // One byte more than is allowed tells too much from just enough.
        let mut archive = tar::Archive::new(decoder.take(MOST_BYTES + 1));
        let mut machine = Archive::empty(name);
        let (mut total, mut format) = (0, None);
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let size = entry.size();
            total += size + 512;
            let raw = entry.path().map_err(broken)?.into_owned();
            let path = plain_path(&raw).ok_or_else(|| {
                content(format!("it holds the path '{}', which leads outside", raw.display()))
            })?;
            if size > MOST_FILE || total > MOST_BYTES || machine.nodes.len() >= MOST_FILES {
                return Err(content(format!("it is too large (at {path})")));
            }
            let kind = entry.header().entry_type();
            if kind.is_dir() {
                machine.add_folder(&path);
                continue;
            }
            let node = if kind.is_symlink() {
                let target = entry.link_name().map_err(broken)?;
                let target = target.as_deref().and_then(Path::to_str).unwrap_or_default().to_owned();
                Node::Link(target)
            } else if kind.is_file() {
                let writable = entry.header().mode().is_ok_and(|mode| mode & 0o222 != 0);
                let mut bytes = Vec::with_capacity(size as usize);
                entry.read_to_end(&mut bytes).map_err(broken)?;
                Node::File { bytes, writable }
            } else {
                return Err(content(format!(
                    "it holds something that is neither file, folder nor link at {path}"
                )));
            };
            match (path.as_str(), &node) {
                ("flyball.json", Node::File { bytes, .. }) => {
                    let head: Head = serde_json::from_slice(bytes)
                        .map_err(|error| content(format!("flyball.json: {error}")))?;
                    if head.format > FORMAT {
                        return Err(content(format!(
                            "it is of format {}, made by a later flyball; this one reads up to {FORMAT}",
                            head.format
                        )));
                    }
                    format = Some(head.format);
                }
                ("msr.txt", Node::File { bytes, .. }) => {
                    let registers =
                        MsrFile::parse(bytes).map_err(|line| content(format!("msr.txt, line {line}")))?;
                    machine.msrs = Some(registers);
                }
                ("kernel.log", Node::File { bytes, .. }) => {
                    machine.log = Some(String::from_utf8_lossy(bytes).into_owned());
                }
                ("errors.txt", Node::File { bytes, .. }) => machine.add_errors(bytes).map_err(content)?,
                _ if path.starts_with("sys/") || path.starts_with("proc/") => machine.add(path, node),
                _ => {}
            }
        }
        if format.is_none() {
            return Err(content("it has no flyball.json".to_owned()));
        }
        if !machine.folders.contains_key("sys") {
            return Err(content("it has no sys/".to_owned()));
        }
        Ok(machine)
    }

    fn add(&mut self, path: String, node: Node) {
        if let Some((folder, name)) = path.rsplit_once('/') {
            self.add_folder(folder);
            self.folders.entry(folder.to_owned()).or_default().insert(name.to_owned());
        }
        self.nodes.insert(path, node);
    }

    fn add_folder(&mut self, path: &str) {
        self.folders.entry(path.to_owned()).or_default();
        let mut rest = path;
        while !rest.is_empty() {
            let (above, name) = rest.rsplit_once('/').unwrap_or(("", rest));
            // A name that its folder knows already leads to folders that are known too.
            if !self.folders.entry(above.to_owned()).or_default().insert(name.to_owned()) {
                break;
            }
            rest = above;
        }
    }

    fn add_errors(&mut self, bytes: &[u8]) -> Result<(), String> {
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let text = std::str::from_utf8(line).unwrap_or("?");
            if text.is_empty() {
                continue;
            }
            let (errno, path) = text
                .split_once("|/")
                .and_then(|(errno, path)| Some((errno.parse().ok()?, plain_path(Path::new(path))?)))
                .ok_or_else(|| format!("errors.txt, line {}", index + 1))?;
            self.add(path, Node::Fails(Errno(errno)));
        }
        Ok(())
    }

    /// Follows links: the path, without a leading slash, of what `path` means.
    fn resolve(&self, op: Op, path: &str, follow_last: bool) -> Result<String, HostError> {
        let mut links = 0;
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut done: Vec<String> = Vec::new();
        while let Some(part) = todo.pop() {
            match part.as_str() {
                "" | "." => continue,
                // As at the root of a file system, there is nothing above.
                ".." => {
                    done.pop();
                    continue;
                }
                _ => done.push(part),
            }
            let here = done.join("/");
            if let Some(Node::Link(target)) = self.nodes.get(&here) {
                if todo.is_empty() && !follow_last {
                    break;
                }
                links += 1;
                if links > MOST_LINKS {
                    return Err(HostError::new(op, path, Errno::LOOP));
                }
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                todo.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        Ok(done.join("/"))
    }

    fn node(&self, op: Op, path: &str) -> Result<&Node, HostError> {
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
        names.sort_by(|a, b| natural_key(a).cmp(&natural_key(b)));
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

/// What `flyball.json` says.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Head {
    format: u64,
    #[serde(default)]
    recorded_by: String,
    #[serde(default)]
    kernel: String,
}

/// Writes an archive, entry by entry.
pub(crate) struct Writer<W: Write> {
    tar: tar::Builder<zstd::stream::write::Encoder<'static, W>>,
}

impl<W: Write> Writer<W> {
    /// Starts an archive of a machine that runs `kernel`.
    pub(crate) fn new(out: W, kernel: &str) -> io::Result<Writer<W>> {
        let encoder = zstd::stream::write::Encoder::new(out, 9)?;
        let mut writer = Writer { tar: tar::Builder::new(encoder) };
        let head = Head {
            format: FORMAT,
            recorded_by: format!("flyball {}", env!("CARGO_PKG_VERSION")),
            kernel: kernel.to_owned(),
        };
        let mut head = serde_json::to_vec_pretty(&head)?;
        head.push(b'\n');
        writer.file("flyball.json", &head, false)?;
        Ok(writer)
    }

    fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
        // No owner and no time: two recordings of one state are the same bytes.
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

    /// Adds a folder, so that an empty one is there too.
    pub(crate) fn folder(&mut self, path: &str) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, 0, 0o755);
        self.tar.append_data(&mut header, format!("{path}/"), io::empty())
    }

    pub(crate) fn finish(self) -> io::Result<W> {
        self.tar.into_inner()?.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        build(&mut tar);
        zstd::encode_all(tar.into_inner().unwrap().as_slice(), 3).unwrap()
    }

    fn add(tar: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        // Written by hand: the library refuses to make the paths that are tested here.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    }

    fn read(bytes: &[u8]) -> Result<Archive, String> {
        Archive::read("x.tar.zst", bytes).map_err(|error| error.to_string())
    }

    const HEAD: &[u8] = b"{\"format\": 1}";

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::new(Vec::new(), "6.12.0").unwrap();
        writer.file("sys/devices/system/cpu/online", b"0-1\n", false).unwrap();
        writer.file("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", b"powersave\n", true).unwrap();
        writer.folder("sys/devices/system/cpu/cpu0").unwrap();
        writer.link("sys/devices/system/cpu/cpu0/cpufreq", "../cpufreq/policy0").unwrap();
        writer.file("msr.txt", b"1b0:0|6\n", false).unwrap();
        writer
            .file("errors.txt", b"16|/sys/devices/system/cpu/cpufreq/policy1/scaling_governor\n", false)
            .unwrap();
        let machine = read(&writer.finish().unwrap()).unwrap();
        let cpu = "/sys/devices/system/cpu";
        assert_eq!(machine.read(&format!("{cpu}/online")).unwrap(), "0-1");
        let governor = format!("{cpu}/cpu0/cpufreq/scaling_governor");
        assert_eq!(machine.read(&governor).unwrap(), "powersave");
        assert!(machine.writable(&governor) && !machine.writable(&format!("{cpu}/online")));
        assert_eq!(machine.link(&format!("{cpu}/cpu0/cpufreq")).unwrap(), "../cpufreq/policy0");
        assert_eq!(machine.list(cpu).unwrap(), ["cpu0", "cpufreq", "online"]);
        let busy = machine.read(&format!("{cpu}/cpufreq/policy1/scaling_governor")).unwrap_err();
        assert_eq!(busy.errno, Errno::BUSY);
        assert_eq!(machine.write(&governor, b"x").unwrap_err().errno, Errno::ROFS);
        assert_eq!(machine.msr(0, 0x1b0).unwrap(), 6);
        assert_eq!(machine.read("/etc/passwd").unwrap_err().errno, Errno::NOENT);
        assert_eq!(machine.read(&format!("{cpu}/../../x")).unwrap_err().errno, Errno::INVAL);
        assert_eq!(machine.list(&format!("{cpu}/online")).unwrap_err().errno, Errno::NOTDIR);
    }

    #[test]
    fn hostile_archives_are_refused() {
        let climbing = packed(|tar| {
            add(tar, "flyball.json", HEAD);
            add(tar, "sys/../../etc/passwd", b"x");
        });
        assert!(read(&climbing).unwrap_err().contains("leads outside"));
        let absolute = packed(|tar| add(tar, "/etc/passwd", b"x"));
        assert!(read(&absolute).unwrap_err().contains("leads outside"));
        let later = packed(|tar| add(tar, "flyball.json", b"{\"format\": 2}"));
        assert!(read(&later).unwrap_err().contains("later flyball"));
        let empty = packed(|tar| add(tar, "flyball.json", HEAD));
        assert!(read(&empty).unwrap_err().contains("no sys/"));
        let other = packed(|tar| add(tar, "sys/devices/system/cpu/online", b"0\n"));
        assert!(read(&other).unwrap_err().contains("no flyball.json"));
        let device = packed(|tar| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Char);
            header.set_size(0);
            header.set_cksum();
            tar.append_data(&mut header, "sys/null", io::empty()).unwrap();
        });
        assert!(read(&device).unwrap_err().contains("neither file"));
        assert!(read(b"not zstd at all").unwrap_err().contains("damaged"));
        let whole = packed(|tar| {
            add(tar, "flyball.json", HEAD);
            add(tar, "sys/devices/system/cpu/online", b"0\n");
        });
        assert!(read(&whole).is_ok());
        for cut in [1, whole.len() / 2, whole.len() - 1] {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_bomb_does_not_fill_the_memory() {
        // A header that promises a gigabyte, and zeros that pack a thousandfold.
        let mut header = tar::Header::new_gnu();
        header.set_size(1 << 30);
        header.set_mode(0o444);
        header.set_path("sys/big").unwrap();
        header.set_cksum();
        let mut plain = header.as_bytes().to_vec();
        plain.resize(8 << 20, 0);
        let bomb = zstd::encode_all(plain.as_slice(), 3).unwrap();
        assert!(read(&bomb).unwrap_err().contains("too large"));
        // A long name of 600 MB: refused at the bound, whatever reads the name.
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_size(600 << 20);
        header.set_path("././@LongLink").unwrap();
        header.set_cksum();
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(header.as_bytes()).unwrap();
        let zeros = vec![b'a'; 1 << 20];
        for _ in 0..16 {
            encoder.write_all(&zeros).unwrap();
        }
        assert!(read(&encoder.finish().unwrap()).is_err());
    }

    #[test]
    fn links_in_a_circle_end() {
        let mut writer = Writer::new(Vec::new(), "").unwrap();
        writer.file("sys/x", b"1", false).unwrap();
        writer.link("sys/a", "b").unwrap();
        writer.link("sys/b", "a").unwrap();
        writer.link("sys/out", "../../../../../../sys/x").unwrap();
        let machine = read(&writer.finish().unwrap()).unwrap();
        assert_eq!(machine.read("/sys/a").unwrap_err().errno, Errno::LOOP);
        assert_eq!(machine.read("/sys/out").unwrap(), "1");
    }
}
