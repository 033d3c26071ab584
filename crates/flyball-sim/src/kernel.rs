//! The kernel versions whose differences a simulated machine models.

use std::{fmt, str::FromStr};

/// A kernel version. Each stands for the stable series that Debian ships under that number, and
/// 3.10 for Red Hat Enterprise Linux 7's. No kernel before 6.1 was run: what those answer is read
/// from source (3.10.0-1160.el7, 4.19.48, 5.10.198, 5.15.80).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// 3.10: policies are below each CPU, not in directories of their own. To be read; writes are
    /// as in 4.19.
    V3_10,
    /// 4.19: limits take effect in the write, EPP has words alone, intel_pstate is active without
    /// HWP too.
    V4_19,
    /// 5.10: limits are requests (since 5.3), EPP takes numbers and passive mode keeps HWP (5.9).
    V5_10,
    /// 5.15: schedutil passes performance to intel_pstate (5.11), powercap knows AMD (5.11).
    V5_15,
    /// 6.1: amd-pstate (5.17) in passive mode alone and without a status file, number parsing by
    /// sscanf.
    V6_1,
    /// 6.12: per-policy boost, preferred cores, amd-pstate active, guided and passive.
    V6_12,
    /// 6.18: amd-pstate as rewritten since 6.13 (frequencies by nominal level, its lowest nonlinear
    /// level as the default minimum), cpuinfo_avg_freq.
    V6_18,
    /// 7.2: numeric EPP and dynamic_epp of amd-pstate.
    V7_2,
}

impl Kernel {
    /// All modelled versions, oldest first.
    pub const ALL: [Kernel; 8] = [
        Kernel::V3_10,
        Kernel::V4_19,
        Kernel::V5_10,
        Kernel::V5_15,
        Kernel::V6_1,
        Kernel::V6_12,
        Kernel::V6_18,
        Kernel::V7_2,
    ];

    fn version(self) -> &'static str {
        match self {
            Kernel::V3_10 => "3.10",
            Kernel::V4_19 => "4.19",
            Kernel::V5_10 => "5.10",
            Kernel::V5_15 => "5.15",
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::V6_18 => "6.18",
            Kernel::V7_2 => "7.2",
        }
    }

    /// The release string of uname and /proc/version, which names the simulator.
    pub fn release(self) -> String {
        format!("{}.0-flyball-sim", self.version())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version())
    }
}

/// A version that is not modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{0}' is not modelled (expected 3.10, 4.19, 5.10, 5.15, 6.1, 6.12, 6.18 or 7.2)")]
pub struct UnknownKernel(String);

impl FromStr for Kernel {
    type Err = UnknownKernel;

    fn from_str(text: &str) -> Result<Kernel, UnknownKernel> {
        Kernel::ALL
            .into_iter()
            .find(|kernel| kernel.version() == text)
            .ok_or_else(|| UnknownKernel(text.to_owned()))
    }
}
