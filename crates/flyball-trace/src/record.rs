//! One record of a trace, in the same form whether it came out of ring-buffer bytes or out of text.

use std::{fmt, sync::RwLock};

/// A task's name as the kernel keeps it: at most 15 bytes, any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Comm([u8; 16]);

impl Comm {
    /// The name in `bytes`, up to the first NUL, cut at 16 bytes (`TASK_COMM_LEN`).
    #[inline]
    pub fn new(bytes: &[u8]) -> Comm {
        let mut comm = [0; 16];
        let bytes = &bytes[..bytes.len().min(16)];
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        comm[..length].copy_from_slice(&bytes[..length]);
        Comm(comm)
    }

    /// A name that is known to be followed by nothing but NULs.
    #[inline]
    pub(crate) const fn filled(bytes: [u8; 16]) -> Comm {
        Comm(bytes)
    }

    /// The bytes of the name.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0[..self.0.iter().position(|byte| *byte == 0).unwrap_or(16)]
    }

    /// Whether there is no name: a ring-buffer record has only the task's number.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.bytes()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}

impl serde::Serialize for Comm {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `amd_cpu:amd_pstate_perf`: one request of the AMD driver in its passive and guided modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AmdPerf {
    /// Least performance of the request.
    pub min: u32,
    /// Performance asked for; 0 lets the firmware choose.
    pub des: u32,
    /// Most performance of the request (the field is called `capacity`).
    pub max: u32,
    /// The CPU that the request is for.
    pub cpu: u32,
    /// Estimated frequency since the CPU's previous request, kHz.
    pub khz: u64,
    /// Increase of the counter that runs at nominal frequency while the CPU is not idle.
    pub mperf: u64,
    /// Increase of the counter that runs at the real frequency while the CPU is not idle.
    pub aperf: u64,
    /// Increase of the time stamp counter.
    pub tsc: u64,
    /// Whether the request differed from the one before; only kernels up to 6.12 say.
    pub changed: Option<bool>,
    /// Whether the request was made in the scheduler's context.
    pub fast_switch: bool,
}

/// `amd_cpu:amd_pstate_epp_perf`: one request of the AMD driver in its active mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AmdEpp {
    /// The CPU that the request is for.
    pub cpu: u32,
    /// The CPU's highest performance.
    pub highest: u32,
    /// Energy performance preference, 0 to 255.
    pub epp: u32,
    /// Least performance.
    pub min: u32,
    /// Most performance.
    pub max: u32,
    /// Whether boost is on.
    pub boost: bool,
    /// Whether the request differed from the one before.
    pub changed: bool,
}

/// `amd_cpu:amd_pstate_cppc_req2`: a floor performance was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AmdReq2 {
    /// The CPU that the request is for.
    pub cpu: u32,
    /// The floor.
    pub floor: u32,
    /// Whether it differed from the one before.
    pub changed: bool,
    /// 0, or the negative errno of the register write.
    pub error: i32,
}

/// `power:pstate_sample`: one sample of intel_pstate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IntelSample {
    /// Busy share at the real frequency, percent; 10 and 90 mark the two paths of the passive mode.
    pub core_busy: u32,
    /// Busy share as the algorithm scaled it, percent.
    pub scaled_busy: u32,
    /// P-state before.
    pub from: u32,
    /// P-state asked for.
    pub to: u32,
    /// Increase of MPERF.
    pub mperf: u64,
    /// Increase of APERF.
    pub aperf: u64,
    /// Increase of the time stamp counter.
    pub tsc: u64,
    /// Average frequency since the sample before, kHz.
    pub khz: u32,
    /// Boost for tasks that wait for input and output, percent; 0 where the kernel has no such field.
    pub io_boost: u32,
}

/// `sched:sched_switch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switch {
    /// Name of the task that stops running.
    pub prev_comm: Comm,
    /// Its number.
    pub prev_pid: i32,
    /// Its priority.
    pub prev_prio: i32,
    /// Name of the task that runs now.
    pub next_comm: Comm,
    /// Its number.
    pub next_pid: i32,
    /// Its priority.
    pub next_prio: i32,
}

/// What a thermal event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThermalKind {
    /// `thermal_temperature`: a zone's temperature, thousandths of a degree Celsius.
    Temperature,
    /// `thermal_zone_trip`: a zone crossed trip point number `value`.
    Trip,
    /// `cdev_update`: a cooling device was set to state `value`.
    Cooling,
    /// `hw_pressure_update`, `thermal_pressure_update`: capacity that CPU `id` lost, of 1024.
    Pressure,
    /// `powernv_throttle`: chip `id` is throttled to P-state `value`.
    Throttle,
}

/// An event of the thermal kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thermal {
    /// Which.
    pub kind: ThermalKind,
    /// Zone, CPU or chip; -1 where the event has none.
    pub id: i32,
    /// As [`ThermalKind`] says.
    pub value: i64,
    /// Name of the zone or device, cut at 16 bytes.
    pub name: Comm,
}

/// The number of an event's name in [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request of the AMD driver.
    AmdPerf(AmdPerf),
    /// A request of the AMD driver in active mode.
    AmdEpp(AmdEpp),
    /// A floor request of the AMD driver.
    AmdReq2(AmdReq2),
    /// A sample of intel_pstate.
    Intel(IntelSample),
    /// `power:cpu_frequency`: `cpu` was set to `khz`.
    Frequency {
        /// The CPU.
        cpu: u32,
        /// Frequency, kHz.
        khz: u32,
    },
    /// `power:cpu_frequency_limits`: the limits of `cpu`'s policy.
    Limits {
        /// The CPU that the policy is named after.
        cpu: u32,
        /// Least frequency, kHz.
        min_khz: u32,
        /// Most frequency, kHz.
        max_khz: u32,
    },
    /// `power:cpu_idle`: `cpu` enters idle state `state`, or leaves idle (`u32::MAX`).
    Idle {
        /// The CPU.
        cpu: u32,
        /// State number, or `u32::MAX`.
        state: u32,
    },
    /// `power:cpu_idle_miss`: the idle state was too deep or too shallow.
    IdleMiss {
        /// The CPU.
        cpu: u32,
        /// State number.
        state: u32,
        /// Whether it was too deep.
        below: bool,
    },
    /// A task switch.
    Switch(Switch),
    /// A thermal or throttle event.
    Thermal(Thermal),
    /// Records were lost on this CPU before this place; how many, where the kernel says.
    Lost(Option<u64>),
    /// Any other event, passed through by its name.
    Other(NameId),
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds, or the clock's own units where [`Clock::nanoseconds`](crate::Clock::nanoseconds) is false.
    pub time: u64,
    /// The CPU whose buffer held the record: where the code ran.
    pub cpu: u32,
    /// The task that ran.
    pub pid: i32,
    /// Its name; empty in a ring-buffer record (see [`Tasks`](crate::Tasks)).
    pub comm: Comm,
    /// `common_flags` of a ring-buffer record; 0 from text.
    pub flags: u8,
    /// `common_preempt_count` of a ring-buffer record; 0 from text.
    pub preempt: u8,
    /// What happened.
    pub event: Event,
}

impl Record {
    /// The CPU that the event is about: the one in its fields, else the one where the code ran.
    #[inline]
    pub fn subject(&self) -> u32 {
        match &self.event {
            Event::AmdPerf(event) => event.cpu,
            Event::AmdEpp(event) => event.cpu,
            Event::AmdReq2(event) => event.cpu,
            Event::Frequency { cpu, .. }
            | Event::Limits { cpu, .. }
            | Event::Idle { cpu, .. }
            | Event::IdleMiss { cpu, .. } => *cpu,
            _ => self.cpu,
        }
    }
}

/// The names of events that are passed through, each kept once. Shared by all readers of a trace.
#[derive(Debug, Default)]
pub struct Names(RwLock<Vec<String>>);

impl Names {
    /// The number of this name, new or known. Meant to be asked once a name and thread: it searches.
    pub fn intern(&self, name: &str) -> NameId {
        if let Ok(names) = self.0.read()
            && let Some(at) = names.iter().position(|known| known == name)
        {
            return NameId(at as u32);
        }
        let mut names = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        NameId(at as u32)
    }

    /// The name behind a number; empty for a number that was never given out.
    pub fn name(&self, id: NameId) -> String {
        let names = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        names.get(id.0 as usize).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_names_end_at_a_nul_and_at_sixteen_bytes() {
        assert_eq!(Comm::new(b"bash\0rest").bytes(), b"bash");
        assert_eq!(Comm::new(b"0123456789abcdefXYZ").bytes(), b"0123456789abcdef");
        assert!(Comm::new(b"").is_empty());
        assert_eq!(Comm::new(b"a\xff").to_string(), "a\u{fffd}");
    }

    #[test]
    fn records_stay_small() {
        // A batch of 4096 of them must stay in a core's second-level cache.
        assert!(std::mem::size_of::<Record>() <= 112, "{}", std::mem::size_of::<Record>());
    }

    #[test]
    fn names_are_kept_once() {
        let names = Names::default();
        let first = names.intern("sched_waking");
        assert_eq!(names.intern("sched_waking"), first);
        assert_ne!(names.intern("irq_handler_entry"), first);
        assert_eq!(names.name(first), "sched_waking");
        assert_eq!(names.name(NameId(99)), "");
    }
}
