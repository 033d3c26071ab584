//! Hardware event counters of a program's processes.

use flyball_host::{Errno, Host, HostError};

/// What a program's processes did, by the processor's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    pub instructions: u64,
    pub cycles: u64,
    pub branch_misses: u64,
    /// Misses of the last level of cache, by the kernel's choice of the event.
    pub cache_misses: u64,
}

/// `PERF_TYPE_HARDWARE`, and the events in the order of [`Counts`]
/// (include/uapi/linux/perf_event.h).
const EVENTS: [(u32, u64); 4] = [(0, 1), (0, 0), (0, 5), (0, 3)];

/// Counters of the program that is started next.
pub(crate) struct Counting(Box<dyn flyball_host::ProgramCounters>);

impl Counting {
    pub(crate) fn open(host: &dyn Host) -> Result<Counting, HostError> {
        host.program_counters(&EVENTS).map(Counting)
    }

    /// Reads the counts of the program, which has ended. `None` if the counters were shared with
    /// another user of them for a part of the time: what was not counted can only be estimated.
    pub(crate) fn read(&self) -> Option<Counts> {
        let counts = self.0.read().ok()??;
        let &[instructions, cycles, branch_misses, cache_misses] = counts.as_slice() else { return None };
        Some(Counts { instructions, cycles, branch_misses, cache_misses })
    }
}

/// Says why programs cannot be counted on `host`, if so.
pub(crate) fn why_not(host: &dyn Host) -> Option<String> {
    let error = Counting::open(host).err()?;
    Some(match error.errno {
        Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV => {
            "this kernel sees no hardware counters (usual in a virtual machine)".to_owned()
        }
        Errno::ACCES | Errno::PERM => {
            let level = host.read("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "perf_event_open is not allowed (kernel.perf_event_paranoid is {}; 2 or less allows it, if no \
                 container or security module forbids it)",
                level.trim()
            )
        }
        _ => format!("perf_event_open: {}", error.errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers in place of the kernel.
    struct Answer(Result<Option<Vec<u64>>, Errno>);

    impl flyball_host::ProgramCounters for Answer {
        fn read(&self) -> Result<Option<Vec<u64>>, HostError> {
            self.0.clone().map_err(|errno| HostError::new(flyball_host::Op::Read, "events", errno))
        }
    }

    #[test]
    fn only_whole_counts_count() {
        let read = |answer| Counting(Box::new(Answer(answer))).read();
        let counts = Counts { instructions: 4, cycles: 3, branch_misses: 2, cache_misses: 1 };
        assert_eq!(read(Ok(Some(vec![4, 3, 2, 1]))), Some(counts));
        assert_eq!(read(Ok(None)), None, "the group had to share the counters");
        assert_eq!(read(Ok(Some(vec![4, 3]))), None);
        assert_eq!(read(Err(Errno::NODEV)), None);
    }

    #[test]
    fn a_machine_without_counters_says_so() {
        // On this kernel either can be true. A simulated machine has no counters, and gives no
        // reason.
        let live = flyball_host::Live::new();
        assert_eq!(why_not(&live).is_none(), live.program_counters(&EVENTS).is_ok());
    }
}
