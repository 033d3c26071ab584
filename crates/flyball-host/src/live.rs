//! The running machine: sysfs, procfs and `/dev/cpu/N/msr` of the kernel that this process runs on.

#![allow(unsafe_code, reason = "ioctl(2), syslog(2)")]

use std::time::{Duration, Instant};

use crate::{Errno, Host, HostError, Kind, Op, recorded::Tree};

/// The machine that this process runs on.
#[derive(Debug)]
pub struct Live {
    tree: Tree,
    started: Instant,
}

impl Live {
    /// The running machine, with paths below `/`.
    pub fn new() -> Live {
        Live { tree: Tree::new("/"), started: Instant::now() }
    }
}

impl Default for Live {
    fn default() -> Live {
        Live::new()
    }
}

/// Names an MSR in an error.
fn msr_name(cpu: u32, register: u32) -> String {
    format!("MSR {register:#x} of CPU {cpu}")
}

/// `/dev/cpu/N/msr`, where the register number is the file offset (arch/x86/kernel/msr.c).
fn msr_device(cpu: u32) -> String {
    format!("/dev/cpu/{cpu}/msr")
}

impl Host for Live {
    fn kind(&self) -> Kind {
        Kind::Live
    }

    /// Where intel-speed-select keeps it.
    fn topology_cache(&self) -> Option<std::path::PathBuf> {
        Some("/var/run/isst_cpu_topology.dat".into())
    }

    fn name(&self) -> String {
        "live".to_owned()
    }

    crate::recorded::read_from_tree!();

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
        let file = std::fs::File::open(msr_device(cpu)).map_err(|error| fail(Errno::from(&error)))?;
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, u64::from(register))
            .map_err(|error| fail(Errno::from(&error)))?;
        Ok(u64::from_le_bytes(bytes))
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
        // SAFETY: `argument` is a live, exclusively borrowed buffer. The driver (isst_if_common.c) reads and
        // writes only within the structure that `number` names, and the callers in `isst` size the buffer by
        // that structure, element counts included.
        let answer =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::c_ulong::from(number), argument.as_mut_ptr()) };
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
        // SAFETY: SIZE_BUFFER takes no buffer; a null pointer of length 0 is what the manual asks for.
        let size = unsafe { libc::klogctl(SIZE_BUFFER, std::ptr::null_mut(), 0) };
        if size < 0 {
            return Err(fail());
        }
        let mut buffer = vec![0u8; size as usize];
        // SAFETY: the buffer is ours and `size` bytes long; the kernel writes at most that many.
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
        Ok(Box::new(crate::event::LiveCounter::open(kind, config, cpu)?))
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
