//! The kernel versions whose differences a simulated machine models.

use strum::VariantArray;

/// A kernel version. Each stands for the stable series that Debian ships under that number, and
/// 3.10 for Red Hat Enterprise Linux 7. Kernels before 6.1 were not run: their answers come from
/// source (3.10.0-1160.el7, 4.19.48, 5.10.198, 5.15.80).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, VariantArray, strum::Display, strum::EnumString,
)]
#[strum(parse_err_fn = UnknownKernel::new, parse_err_ty = UnknownKernel)]
pub enum Kernel {
    /// 3.10: policies are directories of each CPU. Model for reading; writes behave as in 4.19.
    #[strum(serialize = "3.10")]
    V3_10,
    /// 4.19: the write applies limits at once, EPP takes only words, and intel_pstate is active
    /// without HWP too.
    #[strum(serialize = "4.19")]
    V4_19,
    /// 5.10: limits are requests (since 5.3), EPP takes numbers and passive mode keeps HWP (5.9).
    #[strum(serialize = "5.10")]
    V5_10,
    /// 5.15: schedutil passes performance to intel_pstate (5.11), powercap knows AMD (5.11).
    #[strum(serialize = "5.15")]
    V5_15,
    /// 6.1: amd-pstate (5.17) has only passive mode and no status file; numbers are parsed with
    /// sscanf.
    #[strum(serialize = "6.1")]
    V6_1,
    /// 6.12: per-policy boost, preferred cores, amd-pstate active, guided and passive.
    #[strum(serialize = "6.12")]
    V6_12,
    /// 6.18: amd-pstate as rewritten since 6.13 (frequencies relative to the nominal level, lowest
    /// nonlinear level as the default minimum), cpuinfo_avg_freq.
    #[strum(serialize = "6.18")]
    V6_18,
    /// 7.2: numeric EPP and dynamic_epp of amd-pstate.
    #[strum(serialize = "7.2")]
    V7_2,
    /// 7.3: EPP `dynamic` for each policy of amd-pstate replaces dynamic_epp.
    #[strum(serialize = "7.3")]
    V7_3,
    /// 7.4: amd-pstate's EPP words have values by model and core type. Not run: read from source as
    /// linux-pm pulled it in September 2026.
    #[strum(serialize = "7.4")]
    V7_4,
}

impl Kernel {
    /// All modelled versions, oldest first.
    pub const ALL: &[Kernel] = Kernel::VARIANTS;

    /// The release string of uname and /proc/version, which names the simulator.
    pub fn release(self) -> String {
        format!("{self}.0-flyball-sim")
    }
}

/// A version that is not modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{0}' is not modelled (expected one of {all})", all = Kernel::ALL.iter().map(Kernel::to_string).collect::<Vec<_>>().join(", "))]
pub struct UnknownKernel(String);

impl UnknownKernel {
    fn new(text: &str) -> UnknownKernel {
        UnknownKernel(text.to_owned())
    }
}
