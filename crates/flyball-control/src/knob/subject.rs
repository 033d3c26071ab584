//! The subject of a location: a knob of the table, or one of the auxiliary settings. Both state how
//! they are written, so everything that writes finds it in their row (`table/lookup.rs`).

use super::Id;

/// The setting that a location holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Knob(Id),
    /// A setting that is not a knob, but that a change of the machine writes or disturbs.
    Auxiliary(AuxiliaryId),
}

/// The identity of a setting that is not a knob; its row is in `table/auxiliary.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuxiliaryId {
    /// amd-pstate's preference by platform profile.
    DynamicEpp,
    /// A tunable of a governor that all policies share.
    SharedTunable,
    /// A tunable of one policy's governor.
    PolicyTunable,
    /// The CPUs that may serve an interrupt.
    Interrupt,
    /// How often the kernel may take profiling interrupts.
    SampleRate,
    /// The switch that gives control groups cpusets. The controller leaves after the groups that
    /// use it, hence the step.
    CpusetController,
    /// A control group that keeps CPUs for itself.
    Partition,
    /// A setting of the user's own commands.
    Command,
    /// A command setting that can be written and not read.
    UnreadCommand,
}
