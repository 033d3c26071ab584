//! A machine that was recorded earlier: a directory that holds `sys/`, `proc/` and perhaps
//! `msr.txt`.
//!
//! The directory may come from anybody. [`Folder`] reads it through flyball-files: a link that
//! leads outside, a device or a FIFO is an error for that file, and no file is read beyond a limit.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, Instant},
};

use flyball_files::{Dir, Type};
use flyball_text::Natural;

use crate::{Errno, Host, HostError, Kind, Op, msrfile::MsrFile};

/// Limit on the bytes of one file of a recorded machine. The largest is /proc/cpuinfo: 1 MB for 512
/// CPUs.
pub(crate) const MAX_FILE: u64 = 16 << 20;

/// Attribute files below a directory of unknown origin.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    dir: Dir,
}

impl Folder {
    /// Opens the directory at `root`, which must hold `sys`.
    pub(crate) fn open(root: impl Into<PathBuf>) -> Result<Folder, HostError> {
        let root = root.into();
        let sys = root.join("sys");
        let fail = |errno: Errno| HostError::new(Op::List, sys.display().to_string(), errno);
        let dir = Dir::open(&root).map_err(|error| fail(Errno::from(&error)))?;
        let status = dir.status("sys").map_err(|error| fail(Errno::from(&error)))?;
        if status.kind != Type::Directory {
            return Err(fail(Errno::NOTDIR));
        }
        Ok(Folder { root, dir })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    pub(crate) fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let read = self.dir.read_into(below(path), MAX_FILE, buffer);
        read.map_err(|error| HostError::new(Op::Read, path, Errno::from(&error)))
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let names = self.dir.list(below(path));
        let mut names = names.map_err(|error| HostError::new(Op::List, path, Errno::from(&error)))?;
        names.sort_by(|a, b| Natural(a).cmp(&Natural(b)));
        Ok(names)
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.dir.status(below(path)).is_ok()
    }

    pub(crate) fn writable(&self, path: &str) -> bool {
        self.dir.status(below(path)).is_ok_and(|status| status.mode & 0o222 != 0)
    }

    pub(crate) fn link(&self, path: &str) -> Result<String, HostError> {
        self.dir.link(below(path)).map_err(|error| HostError::new(Op::Link, path, Errno::from(&error)))
    }

    /// Reads a file that flyball has stored next to `sys`.
    fn extra(&self, op: Op, name: &str) -> Result<Vec<u8>, HostError> {
        let fail = |error: std::io::Error| {
            HostError::new(op, self.root.join(name).display().to_string(), Errno::from(&error))
        };
        self.dir.read(name, MAX_FILE).map_err(fail)
    }
}

/// Converts a path of the machine to one relative to the folder.
pub(crate) fn below(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// The file-reading methods of [`Host`], for a type with a field that holds the tree of files.
macro_rules! read_from_tree {
    ($($tree:ident).+) => {
        fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
            self.$($tree).+.read_into(path, buffer)
        }

        fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
            self.$($tree).+.list(path)
        }

        fn exists(&self, path: &str) -> bool {
            self.$($tree).+.exists(path)
        }

        fn writable(&self, path: &str) -> bool {
            self.$($tree).+.writable(path)
        }

        fn link(&self, path: &str) -> Result<String, HostError> {
            self.$($tree).+.link(path)
        }
    };
}
pub(crate) use read_from_tree;

/// A recorded machine below a directory. Reads return the recorded files; every write is refused.
#[derive(Debug)]
pub struct Recorded {
    pub(crate) tree: Folder,
    msrs: OnceLock<Result<MsrFile, HostError>>,
    started: Instant,
}

impl Recorded {
    /// Opens the machine recorded at `root`, which must hold `sys` (and may hold `proc` and
    /// `msr.txt`).
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` if `root/sys` is not a directory, `EXDEV` if it is a link that leads
    /// outside.
    pub fn open(root: impl Into<PathBuf>) -> Result<Recorded, HostError> {
        Ok(Recorded { tree: Folder::open(root)?, msrs: OnceLock::new(), started: Instant::now() })
    }

    fn msrs(&self) -> Result<&MsrFile, HostError> {
        self.msrs
            .get_or_init(|| {
                let bytes = self.tree.extra(Op::ReadMsr, "msr.txt")?;
                MsrFile::parse(&bytes).map_err(|line| {
                    let path = self.tree.root().join("msr.txt");
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

    read_from_tree!(tree);

    fn write(&self, path: &str, _bytes: &[u8]) -> Result<(), HostError> {
        // As on a file system that is mounted read-only.
        Err(HostError::new(Op::Write, path, Errno::ROFS))
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        self.msrs()?.get(cpu, register).ok_or_else(|| {
            // The register was not recorded. The kernel returns the same for a register that the
            // CPU lacks.
            HostError::new(Op::ReadMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NODEV)
        })
    }

    fn write_msr(&self, cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::ROFS))
    }

    fn isst(&self, _number: u32, _argument: &mut [u8]) -> Result<i32, HostError> {
        // Calls cannot be recorded, so the machine appears to have no driver.
        Err(HostError::new(Op::Isst, crate::isst::NODE, Errno::NOENT))
    }

    fn kernel_log(&self) -> Result<String, HostError> {
        let bytes = self.tree.extra(Op::Read, "kernel.log")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    // A recording does not change, so there is nothing to wait for.
    fn sleep(&self, _time: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_number() {
        let mut names = vec!["cpu10", "cpu2", "cpufreq", "cpu1"];
        names.sort_by(|a, b| Natural(a).cmp(&Natural(b)));
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

    /// A stranger's directory can contain links that lead outside, files that never end, and files
    /// that never answer.
    #[test]
    fn a_hostile_directory_is_read_no_further_than_itself() {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path().join("machine");
        let policy = machine.join("sys/devices/system/cpu/cpufreq/policy0");
        std::fs::create_dir_all(&policy).unwrap();
        std::fs::create_dir_all(machine.join("proc")).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        let link = |target: &str, at: PathBuf| std::os::unix::fs::symlink(target, at).unwrap();
        link(&folder.path().join("secret").display().to_string(), policy.join("scaling_governor"));
        link("../../../../../../../secret", policy.join("scaling_driver"));
        link("/dev/zero", machine.join("proc/cpuinfo"));
        link("/dev/zero", machine.join("msr.txt"));
        let fifo = policy.join("scaling_max_freq");
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::fs::File::create(policy.join("large")).unwrap().set_len(1 << 40).unwrap();
        let host = Recorded::open(&machine).unwrap();
        let errno = |path: &str| host.read(path).unwrap_err().errno;
        const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy0";
        assert_eq!(errno(&format!("{POLICY}/scaling_governor")), Errno::XDEV);
        assert_eq!(errno(&format!("{POLICY}/scaling_driver")), Errno::XDEV);
        assert_eq!(errno(&format!("{POLICY}/scaling_max_freq")), Errno::OPNOTSUPP);
        assert_eq!(errno(&format!("{POLICY}/large")), Errno::FBIG);
        assert_eq!(errno("/proc/cpuinfo"), Errno::XDEV);
        assert_eq!(host.msr(0, 0x774).unwrap_err().errno, Errno::XDEV);
        assert!(!host.exists(&format!("{POLICY}/scaling_governor")));
        let out = folder.path().join("out");
        std::fs::create_dir(&out).unwrap();
        link("/sys", out.join("sys"));
        assert_eq!(Recorded::open(&out).unwrap_err().errno, Errno::XDEV);
    }
}
