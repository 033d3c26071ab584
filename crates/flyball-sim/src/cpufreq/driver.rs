//! The interface between the core and a driver: `struct cpufreq_driver`.

use super::{
    Platform,
    policy::{Limits, Policy},
};
use crate::{
    cpu_state::Cpu,
    errno::{Answer, Errno},
    governor::Relation,
};

/// How the core talks to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// The driver chooses within limits (`setpolicy`).
    SetPolicy,
    /// A governor chooses a frequency (`target`, `target_index`, `fast_switch`).
    Target,
}

/// A cpufreq driver: `struct cpufreq_driver`.
pub(crate) trait Driver: Sync {
    fn name(&self) -> &'static str;

    fn style(&self) -> Style;

    /// Returns whether schedutil passes utilisation instead of frequencies.
    fn adjusts_performance(&self, _platform: &Platform) -> bool {
        false
    }

    /// Fills in a new policy's hardware limits, latency and table.
    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer;

    /// Corrects limits before they are used.
    fn verify(&self, platform: &Platform, policy: &Policy, limits: &mut Limits);

    /// Applies new limits; for setpolicy drivers also a new policy word.
    fn set_policy(&self, _platform: &mut Platform, _policy: &mut Policy) {}

    /// Asks the hardware for a resolved frequency and returns the resulting one, kHz.
    fn target(&self, _platform: &mut Platform, _policy: &mut Policy, khz: u32, _relation: Relation) -> u32 {
        khz
    }

    /// Asks the hardware for performance on a scale of `capacity`.
    fn adjust(
        &self,
        _platform: &mut Platform,
        _policy: &mut Policy,
        _min: u32,
        _target: u32,
        _capacity: u32,
    ) {
    }

    /// Returns the initial state of the boost switch, if the driver has one.
    fn has_boost(&self, _platform: &Platform) -> Option<bool> {
        None
    }

    /// Returns whether boost of a policy can be switched (`boost_supported`).
    fn can_boost(&self, _platform: &Platform, _policy: &Policy) -> bool {
        true
    }

    /// Switches boost of one policy.
    fn set_boost(&self, _platform: &mut Platform, _policy: &mut Policy, _on: bool) -> Answer {
        Err(Errno::OPNOTSUPP)
    }

    /// Returns whether schedutil sets frequencies right in the scheduler (`fast_switch`), not in a
    /// thread.
    fn switches_fast(&self, _platform: &Platform) -> bool {
        false
    }

    /// Returns whether the core calls the driver with a frequency that is already set
    /// (`CPUFREQ_NEED_UPDATE_LIMITS`).
    fn needs_update_limits(&self) -> bool {
        false
    }

    /// Called when a CPU of the policy goes offline.
    fn leave(&self, _platform: &mut Platform, _cpu: u32) {}

    /// Called when the driver is unregistered.
    fn exit(&self, platform: &mut Platform, cpu: u32) {
        self.leave(platform, cpu);
    }

    /// Called when a CPU of the policy comes back online.
    fn enter(&self, _platform: &mut Platform, _policy: &mut Policy, _cpu: u32) {}

    /// Returns cpuinfo_cur_freq in kHz, if the driver can ask the hardware.
    fn current(&self, _platform: &Platform, _policy: &Policy) -> Option<u32> {
        None
    }

    /// Returns whether the driver's own algorithm currently follows the load.
    fn samples(&self, _platform: &Platform) -> bool {
        false
    }

    /// Runs the driver's own algorithm (intel_pstate without HWP).
    fn sample(&self, _platform: &mut Platform, _policy: &mut Policy, _cpus: &[Cpu]) {}
}
