//! The governors' tunables. All policies of a governor share them, as with every x86 driver, and
//! they exist in /sys/devices/system/cpu/cpufreq/GOVERNOR while a policy uses the governor.

use super::Platform;
use crate::{
    cpu_state::Cpu,
    cpufreq::policy::{Governor, Policy},
    errno::{Answer, Errno},
    governor::{ConservativeTunables, OndemandTunables},
    kernel::Kernel,
    text::{kstrtou32, scan_unsigned},
};

/// Tunables of the governors in use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tunables {
    pub(crate) rate_limit_us: Option<u32>,
    pub(crate) ondemand: Option<OndemandTunables>,
    pub(crate) conservative: Option<ConservativeTunables>,
}

/// `sscanf(buf, "%u")`, which the older governors use.
fn number(text: &[u8]) -> Answer<u32> {
    // %u truncates larger numbers to 32 bits.
    Ok(scan_unsigned(text)? as u32)
}

impl Tunables {
    /// The value of a tunable, as text without the newline.
    pub(crate) fn show(&self, governor: &str, name: &str) -> Answer<u64> {
        match governor {
            "schedutil" => Ok(u64::from(self.rate_limit_us.ok_or(Errno::NOENT)?)),
            "ondemand" => {
                let tunables = self.ondemand.as_ref().ok_or(Errno::NOENT)?;
                Ok(match name {
                    "sampling_rate" => tunables.sampling_rate,
                    "up_threshold" => u64::from(tunables.up_threshold),
                    "sampling_down_factor" => u64::from(tunables.sampling_down_factor),
                    "ignore_nice_load" => u64::from(tunables.ignore_nice_load),
                    "powersave_bias" => u64::from(tunables.powersave_bias),
                    "io_is_busy" => u64::from(tunables.io_is_busy),
                    _ => return Err(Errno::NOENT),
                })
            }
            "conservative" => {
                let tunables = self.conservative.as_ref().ok_or(Errno::NOENT)?;
                Ok(match name {
                    "sampling_rate" => tunables.sampling_rate,
                    "up_threshold" => u64::from(tunables.up_threshold),
                    "down_threshold" => u64::from(tunables.down_threshold),
                    "sampling_down_factor" => u64::from(tunables.sampling_down_factor),
                    "ignore_nice_load" => u64::from(tunables.ignore_nice_load),
                    "freq_step" => u64::from(tunables.freq_step),
                    _ => return Err(Errno::NOENT),
                })
            }
            _ => Err(Errno::NOENT),
        }
    }

    /// Writes a tunable.
    pub(crate) fn store(
        &mut self,
        platform: &Platform,
        policies: &mut [Policy],
        cpus: &[Cpu],
        governor: &str,
        name: &str,
        text: &[u8],
    ) -> Answer {
        // CPUFREQ_DBS_MIN_SAMPLING_INTERVAL: two ticks.
        let least_rate = 2 * platform.board.tick_us;
        match governor {
            // Only rate_limit_us_store() uses kstrtouint; it accepts 0.
            "schedutil" => *self.rate_limit_us.as_mut().ok_or(Errno::NOENT)? = kstrtou32(text, 10)?,
            "ondemand" => {
                let tunables = self.ondemand.as_mut().ok_or(Errno::NOENT)?;
                let value = number(text)?;
                match name {
                    "sampling_rate" if u64::from(value) < least_rate => return Err(Errno::INVAL),
                    "sampling_rate" => {
                        tunables.sampling_rate = u64::from(value);
                        sample_soon(policies);
                    }
                    "up_threshold" if (1..=100).contains(&value) => tunables.up_threshold = value,
                    "sampling_down_factor" if (1..=100_000).contains(&value) => {
                        // Ends a stretched period now: sampling_down_factor_store() resets
                        // rate_mult to 1 for all policies.
                        tunables.sampling_down_factor = value;
                        for policy in policies {
                            if let Governor::Ondemand(governor) = &mut policy.governor {
                                governor.reset_multiplier();
                            }
                        }
                    }
                    "ignore_nice_load" => tunables.ignore_nice_load = value > 0,
                    "powersave_bias" => tunables.powersave_bias = value.min(1000),
                    "io_is_busy" => {
                        tunables.io_is_busy = value > 0;
                        rebase(platform, policies, cpus);
                    }
                    // The value is out of range: the path was resolved, so the file exists.
                    _ => return Err(Errno::INVAL),
                }
            }
            "conservative" => {
                let tunables = self.conservative.as_mut().ok_or(Errno::NOENT)?;
                // 6.12 reads all by sscanf, 7.2 all but the rate by kstrtouint.
                let value = match name {
                    "ignore_nice_load" | "freq_step" if platform.since(Kernel::V7_2) => kstrtou32(text, 0)?,
                    name if name != "sampling_rate" && platform.since(Kernel::V7_2) => {
                        kstrtou32(text, 0).map_err(|_| Errno::INVAL)?
                    }
                    _ => number(text)?,
                };
                match name {
                    "sampling_rate" if u64::from(value) < least_rate => return Err(Errno::INVAL),
                    "sampling_rate" => {
                        tunables.sampling_rate = u64::from(value);
                        sample_soon(policies);
                    }
                    // The thresholds must not meet, or one load would require a step up and a step
                    // down.
                    "up_threshold" if value <= 100 && value > tunables.down_threshold => {
                        tunables.up_threshold = value;
                    }
                    "down_threshold" if value >= 1 && value < tunables.up_threshold => {
                        tunables.down_threshold = value;
                    }
                    "sampling_down_factor" if (1..=10).contains(&value) => {
                        tunables.sampling_down_factor = value;
                    }
                    "ignore_nice_load" => tunables.ignore_nice_load = value > 0,
                    "freq_step" => tunables.freq_step = value.min(100),
                    _ => return Err(Errno::INVAL),
                }
            }
            _ => return Err(Errno::NOENT),
        }
        Ok(())
    }
}

/// sampling_rate_store(): a new rate takes effect at the next update, not at the end of the old
/// period.
fn sample_soon(policies: &mut [Policy]) {
    for policy in policies {
        match &mut policy.governor {
            Governor::Ondemand(governor) => governor.common.sample_soon(),
            Governor::Conservative(governor) => governor.common.sample_soon(),
            _ => {}
        }
    }
}

/// gov_update_cpu_data(): the definition of idle changed, so sampling restarts.
fn rebase(platform: &Platform, policies: &mut [Policy], cpus: &[Cpu]) {
    for policy in policies {
        let times = policy.online.iter().map(|&cpu| cpus[cpu as usize].times.dbs());
        match &mut policy.governor {
            Governor::Ondemand(governor) => governor.common.rebase(platform.now, times),
            Governor::Conservative(governor) => governor.common.rebase(platform.now, times),
            _ => {}
        }
    }
}
