//! Preferences that follow a platform profile (amd_pstate_set_dynamic_epp in amd-pstate.c): each
//! policy with one registers its own platform-profile device.

use flyball_silicon::spec::PROFILE_WORDS;

use super::{PerfRequest, preference::epp_values, send};
use crate::cpufreq::Platform;

/// Profiles of these devices, as indexes of [`PROFILE_WORDS`].
pub(crate) const CHOICES: [usize; 3] = [LOW_POWER, BALANCED, PERFORMANCE];
pub(crate) const LOW_POWER: usize = 0;
pub(crate) const BALANCED: usize = 3;
pub(crate) const PERFORMANCE: usize = 5;
const _: () = assert!(PROFILE_WORDS.len() > PERFORMANCE);

/// A policy's platform-profile device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dynamic {
    /// N of platform-profile-N.
    pub(crate) device: u32,
    /// The profile as an index of [`PROFILE_WORDS`].
    pub(crate) profile: usize,
}

/// The policies that have a device, by first CPU.
pub(crate) fn devices(platform: &Platform) -> impl Iterator<Item = (u32, Dynamic)> {
    (0..).zip(&platform.amd.cpus).filter_map(|(cpu, state)| Some((cpu, state.dynamic?)))
}

/// Registers the device of a CPU's policy under the lowest free number.
pub(super) fn start(platform: &mut Platform, cpu: u32, profile: usize) {
    let taken = devices(platform).map(|(_, dynamic)| dynamic.device).collect::<Vec<_>>();
    let first = platform.board.profile_devices.len() as u32;
    // The range has one more number than are taken, so one is free.
    let mut numbers = first..=first + taken.len() as u32;
    let device = numbers.find(|number| !taken.contains(number)).unwrap_or(first);
    platform.amd.cpus[cpu as usize].dynamic = Some(Dynamic { device, profile });
    set_profile(platform, cpu, profile);
}

/// Removes the device (amd_pstate_clear_dynamic_epp). The preference stays as it is.
pub(super) fn end(platform: &mut Platform, cpu: u32) {
    platform.amd.cpus[cpu as usize].dynamic = None;
}

/// Writes a word of [`CHOICES`] to the device of a CPU (amd_pstate_profile_set).
pub(crate) fn set_profile(platform: &mut Platform, cpu: u32, profile: usize) {
    let words = epp_values(platform, cpu);
    let state = &mut platform.amd.cpus[cpu as usize];
    let Some(dynamic) = &mut state.dynamic else { return };
    dynamic.profile = profile;
    let epp = match profile {
        LOW_POWER => words[3],
        // A server's firmware chose one default for everything. Other machines get 0 on mains; a
        // machine without a power supply device counts as on mains
        // (power_supply_is_system_supplied).
        BALANCED if platform.board.server => state.default_epp,
        _ => words[0],
    };
    let request = PerfRequest { epp, ..state.cached };
    send(platform, cpu, platform.boost, request);
}
