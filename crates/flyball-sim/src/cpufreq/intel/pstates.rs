//! A CPU's P-states as intel_pstate reads them, and their frequencies.

use super::{
    CONFIG_TDP_CONTROL, CONFIG_TDP_NOMINAL, HWP_CAPABILITIES, PLATFORM_INFO, RATIO_KHZ,
    TURBO_ACTIVATION_RATIO, TURBO_RATIO_LIMIT, is_turbo_off,
};
use crate::{
    cpufreq::Platform,
    errno::{Answer, Errno},
    governor::Relation,
};

/// P-states of a CPU, in steps of `scaling` kHz.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pstates {
    pub(crate) min: u32,
    /// Guaranteed level: the highest without turbo.
    pub(crate) max: u32,
    pub(crate) turbo: u32,
    pub(crate) scaling: u32,
    /// The lowest ratio as a frequency. On hybrid processors levels are not ratios, so no level has
    /// this frequency.
    pub(super) lowest_khz: u32,
}

/// Returns the highest ratio without turbo on a processor with selectable power levels: the ratio
/// above which turbo begins, if it is just below the level's own ratio (core_get_max_pstate() and
/// core_get_tdp_ratio()). Not used under HWP.
fn activation_ratio(platform: &Platform, cpu: u32, info: u64) -> Option<u32> {
    // Bits 34:33 of PLATFORM_INFO: number of selectable power levels besides the nominal one.
    if info & 0x6_0000_0000 == 0 {
        return None;
    }
    let level = (platform.chip.read(cpu, CONFIG_TDP_CONTROL).ok()? & 3) as u32;
    let of_level = platform.chip.read(cpu, CONFIG_TDP_NOMINAL + level).ok()?;
    // Levels 1 and 2 have the ratio in bits 23:16, the nominal level in bits 7:0
    // (core_get_tdp_ratio()).
    let ratio = (if level == 0 { of_level } else { of_level >> 16 }) & 0xff;
    let activation = platform.chip.read(cpu, TURBO_ACTIVATION_RATIO).ok()? & 0xff;
    (ratio > 0 && ratio - 1 == activation).then_some(activation as u32)
}

impl Pstates {
    pub(crate) fn for_cpu(platform: &Platform, cpu: u32) -> Answer<Pstates> {
        let info = platform.chip.read(cpu, PLATFORM_INFO)?;
        let scaling =
            // At least 1, because it is a divisor.
            platform.board.places.get(cpu as usize).map_or(100_000, |place| place.scaling_khz).max(1);
        let (mut min, mut max) = (((info >> 40) & 0xff) as u32, ((info >> 8) & 0xff) as u32);
        let turbo;
        if platform.intel.hwp {
            let caps = platform.chip.read(cpu, HWP_CAPABILITIES)?;
            turbo = (caps & 0xff) as u32;
            // Read each time, since Speed Select moves it (intel_pstate_get_hwp_cap()).
            max = ((caps >> 8) & 0xff) as u32;
            if min == 0 {
                min = (caps >> 24 & 0xff) as u32;
            }
        } else {
            max = activation_ratio(platform, cpu, info).unwrap_or(max);
            // core_get_turbo_pstate(): the ratio of one busy core, but at least the highest without
            // turbo.
            turbo = ((platform.chip.read(cpu, TURBO_RATIO_LIMIT).unwrap_or(0) & 0xff) as u32).max(max);
        }
        // intel_pstate_msrs_not_valid(): the driver gives up rather than divide by these.
        if min == 0 || max == 0 {
            return Err(Errno::NODEV);
        }
        // intel_pstate_hybrid_hwp_adjust(): the minimum becomes the level that reaches the lowest
        // ratio.
        let lowest_khz = if scaling == RATIO_KHZ { min * scaling } else { min * RATIO_KHZ };
        // Levels of hybrid processors are not ratios. Round up like intel_pstate_freq_to_hwp(), so
        // that the level is fast enough.
        if scaling != RATIO_KHZ {
            min = lowest_khz.div_ceil(scaling);
        }
        Ok(Pstates { min, max: max.max(min), turbo: turbo.max(max).max(min), scaling, lowest_khz })
    }

    /// Returns the frequency of a level, rounded down to a whole ratio.
    pub(crate) fn khz(&self, level: u32) -> u32 {
        let khz = level * self.scaling;
        if self.scaling == RATIO_KHZ { khz } else { khz / RATIO_KHZ * RATIO_KHZ }
    }

    /// The level of a frequency (`intel_pstate_freq_to_hwp_rel`).
    pub(super) fn level(&self, khz: u32, relation: Relation) -> u32 {
        // The range's ends were rounded down to ratios, so a division could miss their levels.
        if khz == self.khz(self.turbo) {
            self.turbo
        } else if khz == self.khz(self.max) {
            self.max
        } else {
            match relation {
                Relation::High => khz / self.scaling,
                Relation::Close => (khz + self.scaling / 2) / self.scaling,
                Relation::Low => khz.div_ceil(self.scaling),
            }
        }
    }

    /// The level of a limit, which is first rounded down to a ratio
    /// (`intel_pstate_update_perf_limits`).
    pub(super) fn limit_level(&self, khz: u32) -> u32 {
        self.level(khz / RATIO_KHZ * RATIO_KHZ, Relation::Low)
    }

    /// The highest level that the turbo switches allow.
    pub(super) fn top(&self, platform: &Platform) -> u32 {
        if is_turbo_off(platform) { self.max } else { self.turbo }
    }
}
