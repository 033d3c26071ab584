//! The hardware event counters (perf_event_open(2)) that benchmarks and the monitor need: counting,
//! CPU-wide, no samples; one by one, or several of a CPU in a group that is read with one
//! interrupt.

#![allow(unsafe_code, reason = "perf_event_open(2)")]

use std::{
    io::Read,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Mutex,
};

use crate::{Errno, HostError, Op};

/// A running counter.
pub trait EventCounter: Send + Sync {
    /// Reads the count since it was opened, without scaling.
    fn read(&self) -> Result<u64, HostError>;
}

/// Running counters of one CPU.
pub trait EventGroup: Send {
    /// Reads the counts since they were opened, in their order.
    ///
    /// # Errors
    /// The errno of read(2).
    fn read(&self, counts: &mut [u64]) -> Result<(), HostError>;
}

/// A counter of the running kernel.
#[derive(Debug)]
pub(crate) struct LiveCounter {
    file: Mutex<std::fs::File>,
    name: String,
}

/// The first version of `struct perf_event_attr` (include/uapi/linux/perf_event.h): every kernel
/// takes it.
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

/// Opens event `config` of the PMU with type number `kind` on `cpu`, for all tasks; as a member of
/// the group that `leader` leads, if there is one.
fn open(
    (kind, config): (u32, u64),
    cpu: u32,
    leader: Option<&std::fs::File>,
    read_format: u64,
    name: &str,
) -> Result<std::fs::File, HostError> {
    // A workload that is started while it is open must not inherit it.
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    // Flags 0: enabled at once, user and kernel, no samples.
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind, size, config, read_format, ..Attributes::default() };
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: `attributes` is live and as long as its size field says; the kernel only reads it.
    // The descriptor returned is new and ours alone.
    unsafe {
        let raw = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            // All tasks of the CPU, which needs CAP_PERFMON or kernel.perf_event_paranoid 0.
            -1 as libc::pid_t,
            cpu as libc::c_int,
            group as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        );
        if raw < 0 {
            let error = std::io::Error::last_os_error();
            return Err(HostError::new(Op::Read, name, Errno::from(&error)));
        }
        Ok(std::fs::File::from(OwnedFd::from_raw_fd(raw as i32)))
    }
}

impl LiveCounter {
    pub(crate) fn open(kind: u32, config: u64, cpu: u32) -> Result<LiveCounter, HostError> {
        let name = format!("event {config:#x} of PMU type {kind} on CPU {cpu}");
        // read_format 0: read(2) gives the count alone.
        let file = open((kind, config), cpu, None, 0, &name)?;
        Ok(LiveCounter { file: Mutex::new(file), name })
    }
}

/// Counters of one CPU, the leader first.
#[derive(Debug)]
pub(crate) struct LiveGroup {
    files: Vec<std::fs::File>,
    name: String,
}

impl LiveGroup {
    pub(crate) fn open(events: &[(u32, u64)], cpu: u32) -> Result<LiveGroup, HostError> {
        // PERF_FORMAT_GROUP: one read(2) of the leader gives how many there are, and then the
        // counts of all.
        const GROUP: u64 = 8;
        let name = format!("{} events of CPU {cpu}", events.len());
        let mut files: Vec<std::fs::File> = Vec::with_capacity(events.len());
        for &event in events {
            files.push(open(event, cpu, files.first(), GROUP, &name)?);
        }
        Ok(LiveGroup { files, name })
    }
}

impl EventGroup for LiveGroup {
    fn read(&self, counts: &mut [u64]) -> Result<(), HostError> {
        let fail = |errno| HostError::new(Op::Read, self.name.clone(), errno);
        let mut bytes = vec![0; 8 * (self.files.len() + 1)];
        let leader = self.files.first().ok_or_else(|| fail(Errno::BADF))?;
        let length = (&*leader).read(&mut bytes).map_err(|error| fail(Errno::from(&error)))?;
        // An event that is in error, because its CPU went, reads as the end of the file
        // (perf_read_group).
        if length < bytes.len() {
            return Err(fail(Errno::NODEV));
        }
        for (count, value) in counts.iter_mut().zip(bytes[8..].as_chunks().0) {
            *count = u64::from_ne_bytes(*value);
        }
        Ok(())
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
        // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK; needs perf_event_paranoid <= 0 or
        // CAP_PERFMON.
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
    fn a_group_is_read_at_once() {
        // Two of PERF_TYPE_SOFTWARE: the CPU clock and context switches.
        let Ok(group) = Live::new().event_group(&[(1, 0), (1, 3)], 0) else {
            eprintln!("skipped: no software events of a CPU");
            return;
        };
        let (mut first, mut second) = ([0; 2], [0; 2]);
        group.read(&mut first).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        group.read(&mut second).unwrap();
        assert!(second[0] > first[0] && second[1] >= first[1], "{first:?} {second:?}");
    }

    #[test]
    fn a_pmu_that_is_not_there_is_absent() {
        assert!(Live::new().event_counter(9_999, 2, 0).is_err());
    }
}
