//! The kernel versions whose differences a simulated machine models.

use std::{fmt, str::FromStr};

/// A kernel version. Each stands for the stable series that Debian ships under that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// 6.1: no amd-pstate status file, number parsing by sscanf.
    V6_1,
    /// 6.12: per-policy boost, preferred cores, amd-pstate active, guided and passive.
    V6_12,
    /// 6.18: amd-pstate as rewritten since 6.13 (frequencies by nominal level, its lowest nonlinear level as the default
    /// minimum), cpuinfo_avg_freq.
    V6_18,
    /// 7.2: numeric EPP and dynamic_epp of amd-pstate.
    V7_2,
}

impl Kernel {
    /// All modelled versions, oldest first.
    pub const ALL: [Kernel; 4] = [Kernel::V6_1, Kernel::V6_12, Kernel::V6_18, Kernel::V7_2];

    /// The release string of uname and /proc/version, which names the simulator.
    pub fn release(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1.0-flyball-sim",
            Kernel::V6_12 => "6.12.0-flyball-sim",
            Kernel::V6_18 => "6.18.0-flyball-sim",
            Kernel::V7_2 => "7.2.0-flyball-sim",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::V6_18 => "6.18",
            Kernel::V7_2 => "7.2",
        })
    }
}

/// A version that is not modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{0}' is not modelled (expected 6.1, 6.12, 6.18 or 7.2)")]
pub struct UnknownKernel(String);

impl FromStr for Kernel {
    type Err = UnknownKernel;

    fn from_str(text: &str) -> Result<Kernel, UnknownKernel> {
        Kernel::ALL
            .into_iter()
            .find(|kernel| kernel.to_string() == text)
            .ok_or_else(|| UnknownKernel(text.to_owned()))
    }
}
