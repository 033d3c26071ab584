//! Settings that are not knobs but that commands write or disturb: interrupts, control groups,
//! tunables of governors. They are saved and restored like knobs, so their rows have the same
//! properties.

use crate::knob::{Disturbs, Writing, order::Step, spelling::Spelling, subject::AuxiliaryId};

use super::effects;

/// A setting that is not a knob.
#[derive(Debug)]
pub struct Auxiliary {
    /// Identity in code.
    pub id: AuxiliaryId,
    /// Short description.
    pub title: &'static str,
    /// The patterns of its files; empty if it is not a file.
    pub files: &'static [&'static str],
    /// How it is written.
    pub writing: Writing,
}

/// Every setting that is not a knob, in the order of [`AuxiliaryId`].
pub(crate) static AUXILIARIES: &[Auxiliary] = &[
    Auxiliary {
        id: AuxiliaryId::DynamicEpp,
        title: "dynamic preference of amd-pstate",
        files: &["/sys/devices/system/cpu/amd_pstate/dynamic_epp"],
        writing: Writing {
            disturbs: &[Disturbs::Everywhere(effects::EVERYTHING)],
            ..Writing::alone(Step::DriverMode, Spelling::Switch)
        },
    },
    Auxiliary {
        id: AuxiliaryId::SharedTunable,
        title: "tunable of a governor",
        files: &["/sys/devices/system/cpu/cpufreq/{governor}/{tunable}"],
        writing: Writing::alone(Step::Tunable, Spelling::Number),
    },
    Auxiliary {
        id: AuxiliaryId::PolicyTunable,
        title: "tunable of a policy's governor",
        files: &["/sys/devices/system/cpu/cpufreq/policy{policy}/{governor}/{tunable}"],
        writing: Writing::alone(Step::Tunable, Spelling::Number),
    },
    Auxiliary {
        id: AuxiliaryId::Interrupt,
        title: "CPUs of an interrupt",
        files: &["/proc/irq/{irq}/smp_affinity_list"],
        writing: Writing::alone(Step::Power, Spelling::Interrupt),
    },
    Auxiliary {
        id: AuxiliaryId::SampleRate,
        title: "highest rate of profiling interrupts",
        files: &["/proc/sys/kernel/perf_event_max_sample_rate"],
        writing: Writing::alone(Step::Power, Spelling::Number),
    },
    Auxiliary {
        id: AuxiliaryId::CpusetController,
        title: "cpusets for control groups",
        files: &["/sys/fs/cgroup/cgroup.subtree_control"],
        writing: Writing::alone(Step::Offline, Spelling::CpusetController),
    },
    Auxiliary {
        id: AuxiliaryId::Partition,
        title: "control group that keeps CPUs for itself",
        files: &[],
        writing: Writing::alone(Step::Idle, Spelling::Text),
    },
    Auxiliary {
        id: AuxiliaryId::Command,
        title: "knob of the user",
        files: &[],
        // After all knobs of the machine, before CPUs go offline: a program may count the online
        // CPUs.
        writing: Writing::alone(Step::Power, Spelling::Text),
    },
    Auxiliary {
        id: AuxiliaryId::UnreadCommand,
        title: "knob of the user without a command for reading",
        files: &[],
        writing: Writing::alone(Step::Power, Spelling::Unread),
    },
];
