//! The running machine: sysfs, procfs and `/dev/cpu/N/msr` of the kernel that this process runs on.

#![allow(unsafe_code, reason = "ioctl(2), syslog(2)")]

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{Mutex, OnceLock},
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, Mode, OFlags};

use flyball_text::Natural;

use crate::{Errno, Host, HostError, Kind, Op};

/// Attribute files of the running kernel.
#[derive(Debug)]
struct Tree {
    root: PathBuf,
    cpus: OnceLock<Option<OwnedFd>>,
    last: Mutex<LastFolder>,
}

/// The folder of the CPU or policy that was read last.
#[derive(Debug, Default)]
struct LastFolder {
    /// Path below the folder of the CPUs.
    path: String,
    /// Number of its files opened in a row.
    opened: usize,
    /// Opened with the third file.
    handle: Option<OwnedFd>,
}

/// The folder that contains most attributes. Opening them relative to it saves the kernel the path
/// lookup from the root, a third of the time of a read.
const CPUS: &str = "/sys/devices/system/cpu/";

impl Tree {
    fn new(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into(), cpus: OnceLock::new(), last: Mutex::default() }
    }

    /// Returns the path on this file system. Refuses `..`: no knob's path contains it, and a
    /// journal must not lead elsewhere with it.
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

    /// Returns a handle on the folder of the CPUs, if it exists.
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
            // Like `resolve`, but also refuses names that contain two dots, which no attribute
            // does.
            let climbs = memchr::memchr(b'.', below.as_bytes()).is_some() && below.contains("..");
            if climbs || below.is_empty() || below.starts_with('/') {
                return Err(HostError::new(Op::Read, path, Errno::INVAL));
            }
            return self.open_below_cpus(cpus, below, flags).map_err(fail);
        }
        let full = self.resolve(Op::Read, path)?;
        rustix::fs::open(&full, flags, Mode::empty()).map_err(fail)
    }

    /// Opens a file below the folder of the CPUs. A snapshot reads the files of a policy or CPU one
    /// after the other. From the third file on, they are opened relative to their own folder, which
    /// saves the kernel the lookup of one or two names. On 512 CPUs that is a sixth of the time
    /// that the files of `show` take. For two files a handle costs more than it saves.
    fn open_below_cpus(
        &self,
        cpus: BorrowedFd<'_>,
        below: &str,
        flags: OFlags,
    ) -> Result<OwnedFd, rustix::io::Errno> {
        let whole = || rustix::fs::openat(cpus, below, flags, Mode::empty());
        let Some((folder, name)) = split_folder(below) else { return whole() };
        // If another thread is reading, use the full path instead of waiting.
        let Ok(mut last) = self.last.try_lock() else { return whole() };
        if last.path != folder {
            last.path.clear();
            last.path.push_str(folder);
            last.handle = None;
            last.opened = 1;
            return whole();
        }
        last.opened += 1;
        if last.opened < 3 {
            return whole();
        }
        if last.handle.is_none() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            last.handle = rustix::fs::openat(cpus, folder, flags, Mode::empty()).ok();
        }
        let Some(handle) = &last.handle else { return whole() };
        match rustix::fs::openat(handle, name, flags, Mode::empty()) {
            // The folder may have been removed and recreated since it was opened: switching a
            // driver, or taking a CPU offline, removes its policy.
            Err(rustix::io::Errno::NOENT) => whole(),
            other => other,
        }
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let fail = |errno: rustix::io::Errno| HostError::new(Op::Read, path, errno);
        let file = self.open_to_read(path)?;
        buffer.clear();
        loop {
            // Most attributes are one short line. sysfs returns at most a page at once.
            let room = buffer.capacity() - buffer.len();
            if room < 64 {
                buffer.reserve(if buffer.is_empty() { 128 } else { 4 * buffer.capacity().min(1 << 18) });
            }
            let room = buffer.capacity() - buffer.len();
            match rustix::io::read(&file, rustix::buffer::spare_capacity(buffer)) {
                Ok(0) => return Ok(()),
                // A short read in sysfs is the end: another read would only return 0.
                Ok(count) if count < room.min(4096) && path.starts_with(CPUS) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let fail = |errno: rustix::io::Errno| HostError::new(Op::Write, path, errno);
        let full = self.resolve(Op::Write, path)?;
        // Neither O_CREAT nor O_TRUNC: it is an error if the attribute does not exist.
        let file = rustix::fs::open(&full, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
        // Use a single write(2): sysfs passes each write to the driver's store function as a whole.
        let count = loop {
            match rustix::io::write(&file, bytes) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.map_err(fail)?,
            }
        };
        // After a short write, the rest would count as a separate value. So that is an error, and
        // there is no retry.
        if count == bytes.len() { Ok(()) } else { Err(HostError::new(Op::Write, path, Errno::IO)) }
    }

    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        let full = self.resolve(Op::Write, path)?;
        rustix::fs::mkdir(&full, Mode::from_raw_mode(0o755))
            .map_err(|errno| HostError::new(Op::Write, path, errno))
    }

    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        let full = self.resolve(Op::Write, path)?;
        rustix::fs::rmdir(&full).map_err(|errno| HostError::new(Op::Write, path, errno))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
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
        // readdir(3) is unordered, but a machine and its recording must give the same list.
        names.sort_by(|a, b| Natural(a).cmp(&Natural(b)));
        Ok(names)
    }

    fn exists(&self, path: &str) -> bool {
        self.resolve(Op::Read, path).is_ok_and(|full| rustix::fs::stat(&full).is_ok())
    }

    fn writable(&self, path: &str) -> bool {
        self.resolve(Op::Read, path).is_ok_and(|full| {
            rustix::fs::statat(rustix::fs::CWD, &full, AtFlags::empty())
                .is_ok_and(|status| status.st_mode & 0o222 != 0)
        })
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        let full = self.resolve(Op::Link, path)?;
        let target =
            rustix::fs::readlink(&full, Vec::new()).map_err(|errno| HostError::new(Op::Link, path, errno))?;
        target.into_string().map_err(|_| HostError::new(Op::Link, path, Errno::ILSEQ))
    }
}

/// Splits a path below the folder of the CPUs into the folder of the CPU or policy and the
/// remaining path.
fn split_folder(below: &str) -> Option<(&str, &str)> {
    let start = below.strip_prefix("cpufreq/").map_or(0, |rest| below.len() - rest.len());
    let length = below[start..].find('/')?;
    Some((&below[..start + length], &below[start + length + 1..]))
}

/// The machine that this process runs on.
#[derive(Debug)]
pub struct Live {
    tree: Tree,
    started: Instant,
}

impl Live {
    /// Name of a machine that is neither one of flyball's guests nor a simulated machine served to
    /// this process.
    pub const NAME: &str = "live";

    /// Creates a host for the running machine, with paths below `/`.
    pub fn new() -> Live {
        Live { tree: Tree::new("/"), started: Instant::now() }
    }
}

impl Default for Live {
    fn default() -> Live {
        Live::new()
    }
}

/// Returns the name in /proc/version if a simulated machine is served
/// (`flyball-sim/src/tree/procfs.rs`).
fn served(version: &str) -> Option<&str> {
    version.split_once("(flyball sim, simulated machine ")?.1.split_once(") #").map(|(name, _)| name)
}

/// Names an MSR in an error.
fn msr_name(cpu: u32, register: u32) -> String {
    format!("MSR {register:#x} of CPU {cpu}")
}

/// Returns `/dev/cpu/N/msr`, whose file offset is the register number (arch/x86/kernel/msr.c).
fn msr_device(cpu: u32) -> String {
    format!("/dev/cpu/{cpu}/msr")
}

impl Host for Live {
    fn kind(&self) -> Kind {
        Kind::Live
    }

    /// Returns the path that intel-speed-select uses.
    fn topology_cache(&self) -> Option<std::path::PathBuf> {
        Some("/var/run/isst_cpu_topology.dat".into())
    }

    /// Returns `live`. In the namespace of a served simulated machine it is `sim:NAME (served)`, so
    /// that their journals are not mixed up. In a guest it is the firmware's description, so that
    /// reports about the guest do not pass for reports about hardware.
    fn name(&self) -> String {
        if let Some(name) = self.read("/proc/version").ok().as_deref().and_then(served) {
            return format!("sim:{name} (served)");
        }
        crate::emulated(self).unwrap_or_else(|| Live::NAME.to_owned())
    }

    crate::recorded::read_from_tree!(tree);

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        self.tree.write(path, bytes)
    }

    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        self.tree.make_dir(path)
    }

    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        self.tree.remove_dir(path)
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        let fail = |errno: Errno| HostError::new(Op::ReadMsr, msr_name(cpu, register), errno);
        // Open it for each read: after a CPU goes offline, a kept handle would return ENXIO or EIO.
        let file = std::fs::File::open(msr_device(cpu)).map_err(|error| fail(Errno::from(&error)))?;
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, u64::from(register))
            .map_err(|error| fail(Errno::from(&error)))?;
        Ok(u64::from_le_bytes(bytes))
    }

    #[cfg(target_arch = "x86_64")]
    fn cpuid(&self, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        use std::arch::x86_64::__cpuid_count;
        // Beyond the last leaf Intel's processors return another leaf's values (SDM 2A, CPUID).
        let last = __cpuid_count(leaf & 0x8000_0000, 0).eax;
        let answer = __cpuid_count(leaf, subleaf);
        (leaf <= last).then_some([answer.eax, answer.ebx, answer.ecx, answer.edx])
    }

    fn write_msr(&self, cpu: u32, register: u32, value: u64) -> Result<(), HostError> {
        let fail = |error: std::io::Error| {
            HostError::new(Op::WriteMsr, msr_name(cpu, register), Errno::from(&error))
        };
        let file = std::fs::File::options().write(true).open(msr_device(cpu)).map_err(fail)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &value.to_le_bytes(), u64::from(register))
            .map_err(fail)
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        use std::os::fd::AsRawFd;
        const NODE: &str = "/dev/isst_interface";
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(NODE)
            .map_err(|error| HostError::new(Op::Isst, NODE, Errno::from(&error)))?;
        // SAFETY: `argument` is a live, exclusively borrowed buffer. The driver (isst_if_common.c)
        // reads and writes only within the structure that `number` names, and the callers in `isst`
        // size the buffer by that structure, element counts included.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), number as libc::Ioctl, argument.as_mut_ptr()) };
        if answer < 0 {
            let error = std::io::Error::last_os_error();
            return Err(HostError::new(Op::Isst, format!("{NODE} ioctl {number:#x}"), Errno::from(&error)));
        }
        Ok(answer)
    }

    fn kernel_log(&self) -> Result<String, HostError> {
        // SYSLOG_ACTION_READ_ALL and SYSLOG_ACTION_SIZE_BUFFER of kernel/printk/printk.c.
        const READ_ALL: libc::c_int = 3;
        const SIZE_BUFFER: libc::c_int = 10;
        let fail = || {
            let error = std::io::Error::last_os_error();
            HostError::new(Op::Read, "the kernel log", Errno::from(&error))
        };
        // SAFETY: SIZE_BUFFER takes no buffer; a null pointer of length 0 is what the manual asks
        // for.
        let size = unsafe { libc::klogctl(SIZE_BUFFER, std::ptr::null_mut(), 0) };
        if size < 0 {
            return Err(fail());
        }
        let mut buffer = vec![0u8; size as usize];
        // SAFETY: the buffer is ours and `size` bytes long; the kernel writes at most that many.
        // READ_ALL leaves the lines where they are. READ would take them away from the system's
        // logger.
        let count = unsafe { libc::klogctl(READ_ALL, buffer.as_mut_ptr().cast(), size) };
        if count < 0 {
            return Err(fail());
        }
        buffer.truncate(count as usize);
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    fn event_counter(
        &self,
        kind: u32,
        config: u64,
        cpu: u32,
    ) -> Result<Box<dyn crate::EventCounter>, HostError> {
        Ok(Box::new(crate::perf_event::LiveCounter::open(kind, config, cpu)?))
    }

    fn event_group(&self, events: &[(u32, u64)], cpu: u32) -> Result<Box<dyn crate::EventGroup>, HostError> {
        Ok(Box::new(crate::perf_event::LiveGroup::open(events, cpu)?))
    }

    fn program_counters(&self, events: &[(u32, u64)]) -> Result<Box<dyn crate::ProgramCounters>, HostError> {
        Ok(Box::new(crate::perf_event::LivePrograms::open(events)?))
    }

    fn keep_open(&self, path: &str) -> Result<Option<Box<dyn crate::KeptFile>>, HostError> {
        let file = crate::kept::LiveFile::new(path, || self.tree.open_to_read(path))?;
        Ok(file.map(|file| Box::new(file) as Box<dyn crate::KeptFile>))
    }

    fn shared_readings(&self) -> Result<flyball_process::readings::Readings, HostError> {
        let socket = flyball_process::readings::SOCKET;
        flyball_process::readings::Readings::ask(socket.as_ref())
            .map_err(|error| HostError::new(Op::Read, socket, Errno::from(&error)))
    }

    fn tracefs(&self) -> Result<crate::tracefs::Tracefs, HostError> {
        Ok(crate::tracefs::Tracefs::new(crate::tracefs::LiveFiles::open()?))
    }

    fn spawn(&self, launch: crate::Launch) -> std::io::Result<Box<dyn crate::Process>> {
        Ok(Box::new(launch.start()?))
    }

    fn uname(&self) -> String {
        let name = rustix::system::uname();
        [name.sysname(), name.nodename(), name.release(), name.machine()]
            .map(std::ffi::CStr::to_string_lossy)
            .join(" ")
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
