//! Side effects of writes in the kernel: the groups of settings that rows list as disturbed.
//!
//! A governor change resets the energy preference and discards the old governor's tunables, a
//! driver switch recreates every policy, a CPU that goes offline takes its policy along. To restore
//! *exactly*, all of that is saved before the write.

use crate::{
    Id,
    knob::subject::{
        AuxiliaryId,
        Subject::{self, Auxiliary, Knob},
    },
};

/// The settings of a policy: those that disappear with it, and those that its governor and its
/// boost reset.
pub(crate) const POLICY: &[Subject] = &[
    Knob(Id::Governor),
    Knob(Id::Epp),
    Knob(Id::MinFreq),
    Knob(Id::MaxFreq),
    Knob(Id::Setspeed),
    Knob(Id::Boost),
    Knob(Id::FloorFreq),
    Knob(Id::AutoSelect),
    Knob(Id::ActivityWindow),
    Knob(Id::EppValue),
    Auxiliary(AuxiliaryId::PolicyTunable),
];

/// Tunables that disappear when the last policy switches to another governor.
// cpufreq_dbs_governor_exit frees a governor's tunables with their last user (gov_attr_set_put in
// cpufreq_governor_attr_set.c); the next user starts from the defaults.
pub(crate) const SHARED_TUNABLES: &[Subject] = &[Auxiliary(AuxiliaryId::SharedTunable)];

/// If the hardware has no EPP, preference and bias are one setting under two names.
// intel_pstate_hwp_set writes the bias if X86_FEATURE_HWP_EPP is missing (intel_pstate_set_epb).
pub(crate) const BIAS: &[Subject] = &[Knob(Id::Epb)];

/// See [`BIAS`].
pub(crate) const PREFERENCE: &[Subject] = &[Knob(Id::Epp)];

/// The frequency limits of one policy.
pub(crate) const LIMITS: &[Subject] = &[Knob(Id::MinFreq), Knob(Id::MaxFreq)];

/// In passive mode the percentages are requests on every policy's limits (update_qos_requests in
/// intel_pstate.c).
pub(crate) const PERCENTAGES: &[Subject] =
    &[Knob(Id::MinPerfPct), Knob(Id::MaxPerfPct), Knob(Id::MinFreq), Knob(Id::MaxFreq)];

/// Settings that move with the hardware's highest frequency.
pub(crate) const TURBO: &[Subject] = &[
    Knob(Id::Turbo),
    Knob(Id::MinPerfPct),
    Knob(Id::MaxPerfPct),
    Knob(Id::HwpDynamicBoost),
    Knob(Id::MinFreq),
    Knob(Id::MaxFreq),
    Knob(Id::Boost),
    Knob(Id::FloorFreq),
];

/// Settings outside its policy that disappear when a CPU goes offline.
// The kernel saves and restores the bias itself, but its file does not exist in the meantime
// (intel_epb_offline in intel_epb.c).
pub(crate) const CPU: &[Subject] = &[Knob(Id::Epb), Knob(Id::LatencyLimit), Knob(Id::IdleState)];

/// Every setting that a driver switch or SMT can touch. SMT `on` also brings CPUs online that were
/// taken offline one by one.
pub(crate) const EVERYTHING: &[Subject] = &[
    Knob(Id::DriverMode),
    Auxiliary(AuxiliaryId::DynamicEpp),
    Knob(Id::Online),
    Knob(Id::Smt),
    Knob(Id::Turbo),
    Knob(Id::Boost),
    Knob(Id::Governor),
    Knob(Id::Epp),
    Knob(Id::Epb),
    Knob(Id::EnergyEfficiency),
    Knob(Id::HwpDynamicBoost),
    Knob(Id::MinPerfPct),
    Knob(Id::MaxPerfPct),
    Knob(Id::MinFreq),
    Knob(Id::MaxFreq),
    Knob(Id::Setspeed),
    Knob(Id::FloorFreq),
    Knob(Id::AutoSelect),
    Knob(Id::ActivityWindow),
    Knob(Id::EppValue),
    Auxiliary(AuxiliaryId::SharedTunable),
    Auxiliary(AuxiliaryId::PolicyTunable),
];

/// The root entry of a package writes to all its fabric clusters (uncore-frequency-tpmi.c).
pub(crate) const UNCORE: &[Subject] = &[Knob(Id::UncoreMinFreq), Knob(Id::UncoreMaxFreq)];

/// The profiles of all devices. The machine's profile sets each of them.
pub(crate) const PROFILES: &[Subject] = &[Knob(Id::DeviceProfile)];

/// Power limits, which a performance level resets.
pub(crate) const POWER: &[Subject] = &[Knob(Id::PowerLimit), Knob(Id::PowerWindow)];

/// The features of Speed Select, which share one word of a register.
pub(crate) const FEATURES: &[Subject] = &[Knob(Id::SstBf), Knob(Id::SstTf)];

/// Turbo ratio limits. Firmware overwrites them with those of the level.
pub(crate) const RATIOS: &[Subject] = &[Knob(Id::Trl)];

/// Core-power and its priority, which share one word of a register.
pub(crate) const CORE_POWER: &[Subject] = &[Knob(Id::SstCp), Knob(Id::SstCpPriority)];
