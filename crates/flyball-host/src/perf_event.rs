//! The hardware event counters (perf_event_open(2)) that a benchmark needs: counting, CPU-wide, no samples.

#![allow(unsafe_code, reason = "perf_event_open(2)")]

use std::{
    io::Read,
    os::fd::{FromRawFd, OwnedFd},
    sync::Mutex,
};

use crate::{Errno, HostError, Op};

/// A running counter.
pub trait EventCounter: Send + Sync {
    /// The count since it was opened, scaled by nothing.
    fn read(&self) -> Result<u64, HostError>;
}

/// A counter of the running kernel.
#[derive(Debug)]
pub(crate) struct LiveCounter {
    file: Mutex<std::fs::File>,
    name: String,
}

/// The first version of `struct perf_event_attr` (include/uapi/linux/perf_event.h): every kernel takes it.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

impl LiveCounter {
    /// Counts event `config` of the PMU with this type number on `cpu`, for all tasks.
    pub(crate) fn open(kind: u32, config: u64, cpu: u32) -> Result<LiveCounter, HostError> {
        // A workload that is started while it is open must not inherit it.
        const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
        let name = format!("event {config:#x} of PMU type {kind} on CPU {cpu}");
        // Flags 0: enabled at once, user and kernel, no samples. read_format 0: read(2) gives the count alone.
        let attributes =
            Attributes { kind, size: size_of::<Attributes>() as u32, config, ..Attributes::default() };
        // SAFETY: `attributes` is live and as long as its size field says; the kernel only reads it. The
        // descriptor returned is new and ours alone.
        let file = unsafe {
            let raw = libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                // All tasks of the CPU, which needs CAP_PERFMON or kernel.perf_event_paranoid 0.
                -1 as libc::pid_t,
                cpu as libc::c_int,
                -1 as libc::c_int,
                PERF_FLAG_FD_CLOEXEC,
            );
            if raw < 0 {
                let error = std::io::Error::last_os_error();
                return Err(HostError::new(Op::Read, name, Errno::from(&error)));
            }
            std::fs::File::from(OwnedFd::from_raw_fd(raw as i32))
        };
        Ok(LiveCounter { file: Mutex::new(file), name })
    }
}

impl EventCounter for LiveCounter {
    fn read(&self) -> Result<u64, HostError> {
        let mut bytes = [0; 8];
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.read_exact(&mut bytes)
            .map_err(|error| HostError::new(Op::Read, self.name.clone(), Errno::from(&error)))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Live};

    #[test]
    fn a_software_clock_counts() {
        // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK; needs perf_event_paranoid <= 0 or CAP_PERFMON.
        let counter = match Live::new().event_counter(1, 0, 0) {
            Ok(counter) => counter,
            Err(error) => {
                assert!(
                    matches!(error.errno, Errno::PERM | Errno::ACCES | Errno::NOSYS | Errno::NOENT),
                    "{error}"
                );
                eprintln!("skipped: {error}");
                return;
            }
        };
        let first = counter.read().expect("it can be read");
        std::thread::sleep(std::time::Duration::from_millis(5));
        let second = counter.read().expect("it can be read");
        assert!(second > first, "{first} {second}");
    }

    #[test]
    fn a_pmu_that_is_not_there_is_absent() {
        assert!(Live::new().event_counter(9_999, 2, 0).is_err());
    }
}
