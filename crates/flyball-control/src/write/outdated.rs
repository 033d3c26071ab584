//! Detects turbo-off limits that no longer match the base frequencies.

use flyball_host::{Host, topology::POLICIES};

use crate::Location;

/// Returns whether `location` is intel_pstate's turbo switch and some policy may not reach its base
/// frequency. Since kernel 6.12 the driver reads the limits for turbo off when turbo is switched
/// (store_no_turbo in intel_pstate.c), and Speed Select may move base frequencies later.
pub(super) fn turbo_off(host: &dyn Host, location: &Location) -> bool {
    if location.name() != "no_turbo" {
        return false;
    }
    let khz = |path: String| host.read(&path).ok()?.trim().parse::<u64>().ok();
    let policies = host.list(POLICIES).unwrap_or_default();
    policies.iter().any(|policy| {
        let base = khz(format!("{POLICIES}/{policy}/base_frequency"));
        let highest = khz(format!("{POLICIES}/{policy}/cpuinfo_max_freq"));
        // A difference below 50 MHz is rounding in firmware tables.
        matches!((highest, base), (Some(highest), Some(base)) if highest + 50_000 < base)
    })
}
