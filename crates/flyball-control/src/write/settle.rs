//! Reading back: did a write take, when, and as what.
//!
//! Frequency limits are requests that a kernel worker combines later (drivers/cpufreq/cpufreq.c, `handle_update`):
//! read back at once, the old value may still be there. So reading back is patient, and only then says that a value
//! was clamped. And the kernel has its own spelling: a governor is matched without case, a preference written as a
//! number reads back as a word.

use std::time::Duration;

use flyball_host::Host;

use crate::{Content, Location};

/// Pauses between two looks, in milliseconds; about a second in all. A worker needs far less than a millisecond on
/// hardware, up to some tens in an emulator on a busy host.
const PAUSES: [u64; 11] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// After this many looks at one and the same value that is neither the old nor the wanted one, it is final: the
/// kernel has acted, and clamped.
const STEADY: u32 = 4;

/// What was found at a location after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The wanted value.
    Held,
    /// Another value, and it stays.
    Other(Content),
}

/// A location with what it held, and what it is to hold.
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    /// Where.
    pub location: &'a Location,
    /// What was there before the write.
    pub old: &'a Content,
    /// What was written.
    pub new: &'a str,
}

/// Waits until every location holds what is expected, or has settled on something else. The answers are in order.
pub fn settle(host: &dyn Host, expected: &[Expected<'_>]) -> Vec<Found> {
    let mut found: Vec<Option<Found>> = vec![None; expected.len()];
    let mut seen: Vec<(Content, u32)> = vec![(Content::Text(String::new()), 0); expected.len()];
    for pause in PAUSES {
        if pause > 0 {
            host.sleep(Duration::from_millis(pause));
        }
        for (index, want) in
            expected.iter().enumerate().filter(|(index, _)| found[*index].is_none()).collect::<Vec<_>>()
        {
            let now = Content::of(&want.location.read(host));
            if agrees(want.location, want.new, now.trimmed()) && !matches!(now, Content::Unreadable(_)) {
                found[index] = Some(Found::Held);
                continue;
            }
            let (last, times) = &mut seen[index];
            *times = if *last == now { *times + 1 } else { 1 };
            *last = now;
            if *times >= STEADY && last != want.old && !matches!(last, Content::Unreadable(_)) {
                found[index] = Some(Found::Other(last.clone()));
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.into_iter().zip(seen).map(|(found, (last, _))| found.unwrap_or(Found::Other(last))).collect()
}

/// Whether `found` is how the kernel spells `wanted` at this location.
pub fn agrees(location: &Location, wanted: &str, found: &str) -> bool {
    let (wanted, found) = (wanted.trim(), found.trim());
    if wanted == found {
        return true;
    }
    match location.name() {
        "energy_performance_preference" => preference_agrees(wanted, found),
        "cgroup.subtree_control" => {
            let has = found.split_whitespace().any(|name| name == "cpuset");
            (wanted == "+cpuset" && has) || (wanted == "-cpuset" && !has)
        }
        "scaling_governor" => wanted.eq_ignore_ascii_case(found),
        "energy_perf_bias" => bias(wanted).is_some_and(|value| Some(value) == found.parse().ok()),
        // kstrtobool() and friends: an idle state's `disable` takes any non-zero number.
        "boost" | "cpb" | "no_turbo" | "online" | "disable" | "hwp_dynamic_boost" | "energy_efficiency" => {
            switch(wanted).is_some_and(|on| Some(on) == switch(found))
        }
        "dynamic_epp" => switch(wanted).is_some_and(|on| Some(on) == switch(found)),
        // Kept in 7 bits: may read back one percent lower (uncore-frequency-tpmi.c).
        "elc_low_threshold_percent" | "elc_high_threshold_percent" => {
            matches!((wanted.parse::<u32>(), found.parse::<u32>()), (Ok(w), Ok(f)) if w == f || w == f + 1)
        }
        // Turbo ratio limits of Speed Select: zeros in front do not count.
        "trl" => matches!((hexadecimal(wanted), hexadecimal(found)), (Some(w), Some(f)) if w == f),
        "control" => wanted == "forceoff" && found == "off",
        _ => match (wanted.parse::<u64>(), found.parse::<u64>()) {
            (Ok(wanted), Ok(found)) => wanted == found,
            _ => false,
        },
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x").trim_start_matches("0X"), 16).ok()
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "y" | "Y" | "on" | "yes" | "true" | "enabled" => Some(true),
        "0" | "n" | "N" | "off" | "no" | "false" | "disabled" => Some(false),
        number => number.parse::<u64>().ok().map(|number| number != 0),
    }
}

/// The words of arch/x86/kernel/cpu/intel_epb.c. `normal` is 6 or 7, by model: both agree.
fn bias(word: &str) -> Option<u64> {
    match word {
        "performance" => Some(0),
        "balance-performance" => Some(4),
        "normal" => Some(6),
        "balance-power" => Some(8),
        "power" => Some(15),
        number => number.parse().ok(),
    }
}

/// A number and a word agree where any driver prints that number as that word: the words' numbers differ by vendor
/// and, on Intel, by model (intel_epp_default[] in intel_pstate.c). The kernel prints a word only when the register
/// holds exactly its own number for it, so a word after a number that was accepted is that number.
fn preference_agrees(wanted: &str, found: &str) -> bool {
    const WORDS: [&str; 4] = ["performance", "balance_performance", "balance_power", "power"];
    match wanted {
        // Brings back what the firmware had chosen, which reads as whatever that is.
        "default" => !found.is_empty(),
        "dynamic" => found.starts_with("dynamic"),
        // Raw 0 reads `default` on models whose word has another number; `performance` reigning writes the raw 0.
        "performance" => found == "0" || found == "default",
        _ => wanted.parse::<u8>().is_ok() && (WORDS.contains(&found) || found == "default"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(name: &str, wanted: &str, found: &str) -> bool {
        agrees(&Location::file(format!("/x/{name}")), wanted, found)
    }

    #[test]
    fn the_kernels_spelling_is_known() {
        assert!(agree("scaling_governor", "PERFORMANCE", "performance\n"));
        assert!(agree("energy_performance_preference", "128", "balance_performance"));
        assert!(agree("energy_performance_preference", "default", "performance"));
        assert!(agree("boost", "on", "1"));
        assert!(agree("disable", "2", "1"));
        assert!(agree("energy_perf_bias", "power", "15"));
        assert!(agree("scaling_max_freq", "2000000", "2000000\n"));
    }

    #[test]
    fn other_values_do_not_agree() {
        assert!(!agree("scaling_governor", "performance", "powersave"));
        assert!(!agree("energy_performance_preference", "power", "balance_power"));
        assert!(!agree("energy_performance_preference", "77", "78"));
        assert!(!agree("boost", "1", "0"));
        assert!(!agree("scaling_max_freq", "2000000", "2400000"));
        assert!(!agree("scaling_setspeed", "2000000", "<unsupported>"));
        assert!(!agree("energy_performance_preference", "power", ""));
    }
}
