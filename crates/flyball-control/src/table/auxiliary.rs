//! Settings that are not knobs, and that changes write or disturb all the same: interrupts, control groups, tunables of
//! governors. They are remembered and put back like knobs, so they state the same.

use crate::{
    knob::{Disturbs, Writing},
    write::{
        order::{Bound, Step, Turn},
        spelling::Spelling,
    },
};

use super::effects;

/// A setting that is not a knob.
#[derive(Debug)]
pub struct Auxiliary {
    /// Its identity in code.
    pub id: AuxiliaryId,
    /// What it is, in a few words.
    pub title: &'static str,
    /// The patterns of its files; none where it is not a file.
    pub files: &'static [&'static str],
    /// How it is written.
    pub writing: Writing,
}

macro_rules! auxiliaries {
    ($($(#[doc = $doc:literal])+ $id:ident { $($field:ident: $value:expr),* $(,)? })*) => {
        /// The identity of a setting that is not a knob.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum AuxiliaryId { $($(#[doc = $doc])+ $id,)* }

        /// Every setting that is not a knob.
        pub static AUXILIARIES: &[Auxiliary] =
            &[$(Auxiliary { id: AuxiliaryId::$id, $($field: $value),* }),*];
    };
}

/// A setting whose write disturbs nothing else.
const fn alone(step: Step, spelling: Spelling) -> Writing {
    Writing { turn: Turn::In(step), spelling, bound: Bound::None, disturbs: &[], refusals: &[] }
}

auxiliaries! {
    /// amd-pstate's preference by platform profile.
    DynamicEpp {
        title: "dynamic preference of amd-pstate",
        files: &["/sys/devices/system/cpu/amd_pstate/dynamic_epp"],
        writing: Writing {
            turn: Turn::In(Step::DriverMode),
            spelling: Spelling::Switch,
            bound: Bound::None,
            disturbs: &[Disturbs::Everywhere(effects::EVERYTHING)],
            refusals: &[],
        },
    }
    /// A tunable of a governor that all policies share.
    SharedTunable {
        title: "tunable of a governor",
        files: &["/sys/devices/system/cpu/cpufreq/{governor}/{tunable}"],
        writing: alone(Step::Tunable, Spelling::Number),
    }
    /// A tunable of one policy's governor.
    PolicyTunable {
        title: "tunable of a policy's governor",
        files: &["/sys/devices/system/cpu/cpufreq/policy{policy}/{governor}/{tunable}"],
        writing: alone(Step::Tunable, Spelling::Number),
    }
    /// The CPUs that may serve an interrupt.
    Interrupt {
        title: "CPUs of an interrupt",
        files: &["/proc/irq/{irq}/smp_affinity_list"],
        writing: alone(Step::Power, Spelling::Interrupt),
    }
    /// How often the kernel may take profiling interrupts.
    SampleRate {
        title: "highest rate of profiling interrupts",
        files: &["/proc/sys/kernel/perf_event_max_sample_rate"],
        writing: alone(Step::Power, Spelling::Number),
    }
    /// Whether control groups get cpusets. The controller leaves after the groups that use it, hence the step.
    CpusetController {
        title: "cpusets for control groups",
        files: &["/sys/fs/cgroup/cgroup.subtree_control"],
        writing: alone(Step::Offline, Spelling::CpusetController),
    }
    /// A control group that keeps CPUs for itself.
    Partition {
        title: "control group that keeps CPUs for itself",
        files: &[],
        writing: alone(Step::Idle, Spelling::Text),
    }
}
