//! A machine that was recorded earlier: a directory that holds `sys/`, `proc/` and perhaps `msr.txt`.
//!
//! [`Tree`] is the part that it shares with the live machine: files below a root.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::{Errno, Host, HostError, Kind, Op, msrfile::MsrFile};

/// Attribute files below a root directory.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    cpus: OnceLock<Option<OwnedFd>>,
}

/// The folder below which most attributes are. Opening them relative to it spares the kernel the walk down from the
/// root, a third of the time that a read takes.
const CPUS: &str = "/sys/devices/system/cpu/";

impl Tree {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into(), cpus: OnceLock::new() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path on this file system. `..` is refused so that a recorded machine cannot lead outside itself.
    fn resolve(&self, op: Op, path: &str) -> Result<CString, HostError> {
        let relative = path.strip_prefix('/').unwrap_or(path);
        if relative.split('/').any(|part| part == "..") {
            return Err(HostError::new(op, path, Errno::INVAL));
        }
        let mut bytes = self.root.as_os_str().as_encoded_bytes().to_vec();
        if bytes.last() != Some(&b'/') {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(relative.as_bytes());
        CString::new(bytes).map_err(|_| HostError::new(op, path, Errno::INVAL))
    }

    /// A handle on the folder of the CPUs, once it is there.
    fn cpus(&self) -> Option<BorrowedFd<'_>> {
        let open = || {
            let full = self.resolve(Op::List, CPUS).ok()?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&full, flags, Mode::empty()).ok()
        };
        self.cpus.get_or_init(open).as_ref().map(OwnedFd::as_fd)
    }

    fn open_to_read(&self, path: &str) -> Result<OwnedFd, HostError> {
        let fail = |errno: rustix::io::Errno| HostError::new(Op::Read, path, errno);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        if let (Some(below), Some(cpus)) = (path.strip_prefix(CPUS), self.cpus()) {
            // As `resolve` does; a name with two dots inside is refused too, and no attribute has one.
            let climbs = below.as_bytes().windows(2).any(|pair| pair == b"..");
            if climbs || below.is_empty() || below.starts_with('/') {
                return Err(HostError::new(Op::Read, path, Errno::INVAL));
            }
            return rustix::fs::openat(cpus, below, flags, Mode::empty()).map_err(fail);
        }
        let full = self.resolve(Op::Read, path)?;
        rustix::fs::open(&full, flags, Mode::empty()).map_err(fail)
    }

    pub(crate) fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let fail = |errno: rustix::io::Errno| HostError::new(Op::Read, path, errno);
        let file = self.open_to_read(path)?;
        buffer.clear();
        loop {
            // Most attributes are one short line; sysfs hands out no more than a page at once.
            let room = buffer.capacity() - buffer.len();
            if room < 64 {
                buffer.reserve(if buffer.is_empty() { 128 } else { 4 * buffer.capacity().min(1 << 18) });
            }
            let room = buffer.capacity() - buffer.len();
            match rustix::io::read(&file, rustix::buffer::spare_capacity(buffer)) {
                Ok(0) => return Ok(()),
                // A short read of sysfs is the end: the next read would only answer 0.
                Ok(count) if count < room.min(4096) && path.starts_with(CPUS) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let fail = |errno: rustix::io::Errno| HostError::new(Op::Write, path, errno);
        let full = self.resolve(Op::Write, path)?;
        let file = rustix::fs::open(&full, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
        // One write(2): sysfs hands each write to the driver's store function as a whole.
        let count = loop {
            match rustix::io::write(&file, bytes) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.map_err(fail)?,
            }
        };
        if count == bytes.len() { Ok(()) } else { Err(HostError::new(Op::Write, path, Errno::IO)) }
    }

    pub(crate) fn make_dir(&self, path: &str) -> Result<(), HostError> {
        let full = self.resolve(Op::Write, path)?;
        rustix::fs::mkdir(&full, Mode::from_raw_mode(0o755))
            .map_err(|errno| HostError::new(Op::Write, path, errno))
    }

    pub(crate) fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        let full = self.resolve(Op::Write, path)?;
        rustix::fs::rmdir(&full).map_err(|errno| HostError::new(Op::Write, path, errno))
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let fail = |errno: rustix::io::Errno| HostError::new(Op::List, path, errno);
        let full = self.resolve(Op::List, path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&full, flags, Mode::empty()).map_err(fail)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        names.sort_by(|a, b| natural_key(a).cmp(&natural_key(b)));
        Ok(names)
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.resolve(Op::Read, path).is_ok_and(|full| rustix::fs::stat(&full).is_ok())
    }

    pub(crate) fn writable(&self, path: &str) -> bool {
        self.resolve(Op::Read, path).is_ok_and(|full| {
            rustix::fs::statat(rustix::fs::CWD, &full, AtFlags::empty())
                .is_ok_and(|status| status.st_mode & 0o222 != 0)
        })
    }

    pub(crate) fn link(&self, path: &str) -> Result<String, HostError> {
        let full = self.resolve(Op::Link, path)?;
        let target =
            rustix::fs::readlink(&full, Vec::new()).map_err(|errno| HostError::new(Op::Link, path, errno))?;
        target.into_string().map_err(|_| HostError::new(Op::Link, path, Errno::ILSEQ))
    }
}

/// Sorts the digits at a name's end as a number: `cpu2` before `cpu10`.
pub(crate) fn natural_key(name: &str) -> (&str, usize, &str) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    (stem, number.len(), number)
}

/// The methods of [`Host`] that read files below the root of `self.tree`.
macro_rules! read_from_tree {
    () => {
        fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
            self.tree.read_into(path, buffer)
        }

        fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
            self.tree.list(path)
        }

        fn exists(&self, path: &str) -> bool {
            self.tree.exists(path)
        }

        fn writable(&self, path: &str) -> bool {
            self.tree.writable(path)
        }

        fn link(&self, path: &str) -> Result<String, HostError> {
            self.tree.link(path)
        }
    };
}
pub(crate) use read_from_tree;

/// A recorded machine below a directory. Reading answers as the files say; every write is refused.
#[derive(Debug)]
pub struct Recorded {
    tree: Tree,
    msrs: OnceLock<Result<MsrFile, HostError>>,
    started: Instant,
}

impl Recorded {
    /// The machine recorded at `root`, which must hold `sys` (and may hold `proc` and `msr.txt`).
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` where `root/sys` is not a directory.
    pub fn open(root: impl Into<PathBuf>) -> Result<Recorded, HostError> {
        let tree = Tree::new(root);
        let sys = tree.root().join("sys");
        let status = std::fs::metadata(&sys)
            .map_err(|error| HostError::new(Op::List, sys.display().to_string(), Errno::from(&error)))?;
        if !status.is_dir() {
            return Err(HostError::new(Op::List, sys.display().to_string(), Errno::NOTDIR));
        }
        Ok(Recorded { tree, msrs: OnceLock::new(), started: Instant::now() })
    }

    fn msrs(&self) -> Result<&MsrFile, HostError> {
        self.msrs
            .get_or_init(|| {
                let path = self.tree.root().join("msr.txt");
                let bytes = std::fs::read(&path).map_err(|error| {
                    HostError::new(Op::ReadMsr, path.display().to_string(), Errno::from(&error))
                })?;
                MsrFile::parse(&bytes).map_err(|line| {
                    HostError::new(Op::ReadMsr, format!("{}:{line}", path.display()), Errno::INVAL)
                })
            })
            .as_ref()
            .map_err(Clone::clone)
    }
}

impl Host for Recorded {
    fn kind(&self) -> Kind {
        Kind::Recorded
    }

    fn name(&self) -> String {
        self.tree.root().display().to_string()
    }

    read_from_tree!();

    fn write(&self, path: &str, _bytes: &[u8]) -> Result<(), HostError> {
        Err(HostError::new(Op::Write, path, Errno::ROFS))
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        self.msrs()?.get(cpu, register).ok_or_else(|| {
            // As the kernel answers for a register that the CPU does not have: here, one that was not recorded.
            HostError::new(Op::ReadMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NODEV)
        })
    }

    fn write_msr(&self, cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::ROFS))
    }

    fn isst(&self, _number: u32, _argument: &mut [u8]) -> Result<i32, HostError> {
        Err(HostError::new(Op::Isst, crate::isst::NODE, Errno::NOENT))
    }

    fn kernel_log(&self) -> Result<String, HostError> {
        let path = self.tree.root().join("kernel.log");
        let bytes = std::fs::read(&path)
            .map_err(|error| HostError::new(Op::Read, path.display().to_string(), Errno::from(&error)))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, _time: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_number() {
        let mut names = vec!["cpu10", "cpu2", "cpufreq", "cpu1"];
        names.sort_by(|a, b| natural_key(a).cmp(&natural_key(b)));
        assert_eq!(names, ["cpu1", "cpu2", "cpu10", "cpufreq"]);
    }

    #[test]
    fn a_recorded_machine_reads_and_refuses_writes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys/devices/system/cpu")).unwrap();
        std::fs::write(folder.path().join("sys/devices/system/cpu/online"), "0-3\n").unwrap();
        std::fs::write(folder.path().join("msr.txt"), "774:0|80ff01 3|1\n").unwrap();
        let host = Recorded::open(folder.path()).unwrap();
        assert_eq!(host.read("/sys/devices/system/cpu/online").unwrap(), "0-3");
        assert_eq!(host.read_optional("/sys/devices/system/cpu/offline").unwrap(), None);
        assert_eq!(host.write("/sys/devices/system/cpu/online", b"0").unwrap_err().errno, Errno::ROFS);
        assert_eq!(host.msr(0, 0x774).unwrap(), 0x80_ff01);
        assert!(host.msr(1, 0x774).unwrap_err().is_absent());
        assert_eq!(host.read("/sys/../etc/passwd").unwrap_err().errno, Errno::INVAL);
    }
}
