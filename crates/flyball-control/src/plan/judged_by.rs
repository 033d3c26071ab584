//! Which knobs and facts the planner looks at to judge a setting of a knob, besides the knob itself.
//!
//! A snapshot for an intent holds the knobs that the intent sets and these. A rule that reads a knob belongs here as well:
//! `tests/snapshots.rs` plans settings of every knob and fails where one was left out.

use crate::Id;

/// Speed Select: features stand on the level and on core-power, so any of its settings looks at all of these.
macro_rules! speed_select {
    ($($more:ident),*) => {
        &[Id::SstLevel, Id::SstBf, Id::SstTf, Id::SstCp, Id::SstCpPriority $(, Id::$more)*]
    };
}

/// What `knob` is judged by.
pub fn judged_by(knob: Id) -> &'static [Id] {
    match knob {
        Id::DriverMode => &[Id::Driver],
        Id::SstLevel => speed_select![SstLocked, SstApart, Online, Turbo, MaxFreq, HwMaxFreq],
        // A feature brings core-power along, whose classes meet the limits of cpufreq.
        Id::SstBf | Id::SstTf | Id::SstCp => speed_select![Turbo, MaxFreq, HwMaxFreq],
        Id::ClosMin | Id::ClosMax => speed_select![ClosMin, ClosMax, BaseFreq, NominalFreq],
        Id::SstCpPriority | Id::ClosWeight | Id::ClosEpp | Id::Clos | Id::Trl | Id::SstApart => {
            speed_select![]
        }
        Id::Turbo => &[Id::Boost],
        Id::Boost => &[Id::Turbo],
        Id::Governor => &[Id::AvailableGovernors, Id::Driver],
        Id::Epp => &[Id::AvailableEpp, Id::Governor, Id::Driver, Id::DriverMode, Id::HwpRequest],
        Id::MinPerfPct => &[Id::MaxPerfPct],
        Id::MaxPerfPct => &[Id::MinPerfPct],
        Id::MinFreq | Id::MaxFreq => &[
            Id::MinFreq,
            Id::MaxFreq,
            Id::HwMinFreq,
            Id::HwMaxFreq,
            Id::BaseFreq,
            Id::NominalFreq,
            Id::AvailableFreqs,
            Id::BoostFreqs,
            Id::Turbo,
        ],
        Id::Setspeed => &[Id::Governor, Id::HwMinFreq, Id::HwMaxFreq, Id::BaseFreq, Id::NominalFreq],
        Id::FloorFreq => &[Id::HwMinFreq, Id::HwMaxFreq, Id::BaseFreq, Id::NominalFreq],
        Id::IdleState => &[Id::IdleLatency],
        Id::IdleGovernor => &[Id::AvailableIdleGovernors],
        Id::UncoreMinFreq | Id::UncoreMaxFreq => {
            &[Id::UncoreMinFreq, Id::UncoreMaxFreq, Id::UncoreHwMin, Id::UncoreHwMax]
        }
        Id::ElcFloorFreq | Id::ElcLowThreshold | Id::ElcHighThreshold => &[Id::UncoreHwMin, Id::UncoreHwMax],
        Id::PowerLimit => &[Id::PowerMax],
        _ => &[],
    }
}
