//! The subject of a location: a knob of the table, or one of the auxiliary settings. The row of
//! either states how to write it (`table/lookup.rs`).

use super::Id;

/// The setting that a location holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Knob(Id),
    /// A setting that is not a knob, but that commands write or disturb.
    Auxiliary(AuxiliaryId),
}

/// The identity of a setting that is not a knob; its row is in `table/auxiliary.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuxiliaryId {
    /// amd-pstate's preference by platform profile.
    DynamicEpp,
    /// A governor's tunable that all policies share.
    SharedTunable,
    /// A tunable of one policy's governor.
    PolicyTunable,
    /// The CPUs that may serve an interrupt.
    Interrupt,
    /// How often the kernel may take profiling interrupts.
    SampleRate,
    /// The switch that passes the cpuset controller on to control groups. It is switched off after
    /// the groups that use it, hence the step.
    CpusetController,
    /// A control group that has CPUs to itself.
    Partition,
    /// A setting of the user's own commands.
    Command,
    /// A setting of the user's own commands that can only be written.
    UnreadCommand,
}
