//! The event counters (perf_event_open(2)) that benchmarks and the monitor need, without samples.
//! Counters of a CPU count all its tasks, separately or in a group that is read with one interrupt.
//! Counters of programs count the programs that a thread starts, and their descendants.

#![allow(unsafe_code, reason = "perf_event_open(2)")]

use std::{
    io::Read,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Mutex,
};

use crate::{Errno, HostError, Op};

/// A running counter.
pub trait EventCounter: Send + Sync {
    /// Reads the unscaled count since the counter was opened.
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

/// Counters of the programs that a thread starts while they are open.
pub trait ProgramCounters {
    /// Reads the counts of programs that have ended, in the order of the events. `None` if the
    /// kernel had no counter free for them for the whole time.
    ///
    /// # Errors
    /// The errno of read(2).
    fn read(&self) -> Result<Option<Vec<u64>>, HostError>;
}

/// A counter of the running kernel.
#[derive(Debug)]
pub(crate) struct LiveCounter {
    file: Mutex<std::fs::File>,
    name: String,
}

/// The first version of `struct perf_event_attr` (include/uapi/linux/perf_event.h), which every
/// kernel accepts.
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

/// The tasks to count.
#[derive(Clone, Copy)]
enum Scope {
    /// All tasks of a CPU, from now on. Needs CAP_PERFMON or kernel.perf_event_paranoid 0.
    Cpu(u32),
    /// Programs that this thread starts, from execve(2) on. Counting in the kernel needs
    /// CAP_PERFMON or kernel.perf_event_paranoid 1.
    Programs { kernel: bool },
}

/// Opens event `config` of the PMU with type number `kind`. If there is a `leader`, the event
/// becomes a member of its group.
fn open(
    (kind, config): (u32, u64),
    scope: Scope,
    leader: Option<&std::fs::File>,
    read_format: u64,
    name: &str,
) -> Result<std::fs::File, HostError> {
    // A workload that starts meanwhile must not inherit the descriptor.
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    // Bits of perf_event_attr. A member of a group counts when its leader does.
    const DISABLED: u64 = 1;
    const INHERIT: u64 = 1 << 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const ENABLE_ON_EXEC: u64 = 1 << 12;
    let (task, cpu, flags) = match scope {
        // All tasks, enabled at once, user and kernel.
        Scope::Cpu(cpu) => (-1, cpu as libc::c_int, 0),
        // This thread. Programs that it starts inherit the event and enable it by execve(2), which
        // this process does not call.
        Scope::Programs { kernel } => {
            let whole = if kernel { 0 } else { EXCLUDE_KERNEL };
            let starts = if leader.is_none() { DISABLED | ENABLE_ON_EXEC } else { 0 };
            (0, -1, INHERIT | starts | whole)
        }
    };
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind, size, config, read_format, flags, ..Attributes::default() };
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: `attributes` is live and as long as its size field says; the kernel only reads it.
    // The descriptor returned is new and ours alone.
    unsafe {
        let raw = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            task as libc::pid_t,
            cpu,
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
        // read_format 0: read(2) returns only the count.
        let file = open((kind, config), Scope::Cpu(cpu), None, 0, &name)?;
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
        // PERF_FORMAT_GROUP: one read(2) of the leader returns the number of counters and all
        // counts.
        const GROUP: u64 = 8;
        let name = format!("{} events of CPU {cpu}", events.len());
        let mut files: Vec<std::fs::File> = Vec::with_capacity(events.len());
        for &event in events {
            files.push(open(event, Scope::Cpu(cpu), files.first(), GROUP, &name)?);
        }
        Ok(LiveGroup { files, name })
    }
}

/// Counters of programs, the leader first.
#[derive(Debug)]
pub(crate) struct LivePrograms {
    files: Vec<std::fs::File>,
    name: String,
}

impl LivePrograms {
    pub(crate) fn open(events: &[(u32, u64)]) -> Result<LivePrograms, HostError> {
        let name = format!("{} events of programs", events.len());
        let open = |kernel| {
            // PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING. Kernels before
            // 6.13 refuse PERF_FORMAT_GROUP for inherited events (perf_event_alloc), so members are
            // read one by one. They still count together.
            const TIMES: u64 = 1 | 2;
            let mut files: Vec<std::fs::File> = Vec::with_capacity(events.len());
            for &event in events {
                files.push(self::open(event, Scope::Programs { kernel }, files.first(), TIMES, &name)?);
            }
            Ok(files)
        };
        let files = open(true).or_else(|error: HostError| match error.errno {
            Errno::ACCES | Errno::PERM => open(false),
            _ => Err(error),
        })?;
        Ok(LivePrograms { files, name })
    }
}

impl ProgramCounters for LivePrograms {
    fn read(&self) -> Result<Option<Vec<u64>>, HostError> {
        let mut counts = Vec::with_capacity(self.files.len());
        for mut file in &self.files {
            // The count, the enabled time, and the counting time.
            let mut bytes = [0; 24];
            file.read_exact(&mut bytes)
                .map_err(|error| HostError::new(Op::Read, self.name.clone(), Errno::from(&error)))?;
            let [count, enabled, running] = [0, 8, 16]
                .map(|at| bytes[at..].first_chunk().map_or(0, |number| u64::from_ne_bytes(*number)));
            if enabled != running {
                return Ok(None);
            }
            counts.push(count);
        }
        Ok(Some(counts))
    }
}

impl EventGroup for LiveGroup {
    fn read(&self, counts: &mut [u64]) -> Result<(), HostError> {
        let fail = |errno| HostError::new(Op::Read, self.name.clone(), errno);
        let mut bytes = vec![0; 8 * (self.files.len() + 1)];
        let leader = self.files.first().ok_or_else(|| fail(Errno::BADF))?;
        let length = (&*leader).read(&mut bytes).map_err(|error| fail(Errno::from(&error)))?;
        // An event in the error state, because its CPU went offline, reads as the end of the file
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
    fn programs_are_counted_with_what_they_start() {
        // Two of PERF_TYPE_SOFTWARE, which need no hardware: task clock and page faults.
        let events = [(1, 1), (1, 2)];
        let host = Live::new();
        let count = |script: &str| {
            let counters = match host.program_counters(&events) {
                Ok(counters) => counters,
                Err(error) => {
                    assert!(matches!(error.errno, Errno::PERM | Errno::ACCES | Errno::NOSYS), "{error}");
                    return None;
                }
            };
            let launch = crate::Launch::new("/bin/sh", &["-c".to_owned(), script.to_owned()]).silent();
            let mut running = host.spawn(launch).unwrap();
            while running.wait(std::time::Duration::from_secs(1)).unwrap().is_none() {}
            Some(counters.read().unwrap().expect("software events share no counter"))
        };
        let (Some(one), Some(many)) = (count("exit 0"), count("for i in 1 2 3 4 5; do sh -c 'exit 0'; done"))
        else {
            eprintln!("skipped: programs cannot be counted");
            return;
        };
        assert!(one.iter().all(|count| *count > 0), "{one:?}");
        // Children are included: each shell touches as many pages as the first.
        assert!(many[1] > 3 * one[1] && many[0] > one[0], "{one:?} {many:?}");
    }

    #[test]
    fn a_pmu_that_is_not_there_is_absent() {
        assert!(Live::new().event_counter(9_999, 2, 0).is_err());
        assert!(Live::new().program_counters(&[(9_999, 2)]).is_err());
    }
}
