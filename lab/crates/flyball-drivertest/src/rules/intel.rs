//! What intel_pstate requests from the processor: HWP requests, and P-states if HWP is off.

use super::{Case, Rule, number};
use crate::{mode::Kind, record::Observation};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "intel.request",
        about: "HWP gets the limits of the policy within those of all (max_perf_pct, min_perf_pct), under performance the maximum twice",
        source: "admin-guide/pm/intel_pstate.rst, Coordination of P-State Limits and Active Mode With HWP",
        applies: |mode| mode.kind == Kind::IntelActive && mode.is_uniform(),
        check: request,
    },
    Rule {
        id: "intel.passive-request",
        about: "HWP's minimum is what the governor chose, and its maximum the limit",
        source: "admin-guide/pm/intel_pstate.rst, Passive Mode and Coordination of P-State Limits",
        applies: |mode| mode.kind == Kind::IntelPassive && mode.is_uniform(),
        check: passive_request,
    },
    Rule {
        id: "intel.preference",
        about: "the preference that is read is the one that the processor got",
        source: "admin-guide/pm/intel_pstate.rst, Energy vs Performance Hints",
        applies: |mode| mode.is_hwp() && mode.is_uniform(),
        check: preference,
    },
    Rule {
        id: "intel.preference-as-written",
        about: "a preference that was accepted is read back",
        source: "admin-guide/pm/intel_pstate.rst, Energy vs Performance Hints",
        applies: |mode| mode.is_hwp() && mode.is_uniform(),
        check: preference_as_written,
    },
    Rule {
        id: "intel.preference-under-performance",
        about: "under governor performance the processor gets preference performance, and another is refused",
        source: "admin-guide/pm/intel_pstate.rst, Active Mode With HWP, performance",
        applies: |mode| mode.kind == Kind::IntelActive && mode.is_uniform(),
        check: preference_under_performance,
    },
    Rule {
        id: "intel.performance-state",
        about: "without HWP, what is asked for is within the limits, and under performance their maximum",
        source: "admin-guide/pm/intel_pstate.rst, Active Mode Without HWP and Coordination of P-State Limits",
        applies: |mode| {
            matches!(mode.kind, Kind::IntelActiveNoHwp | Kind::IntelPassiveNoHwp) && mode.is_uniform()
        },
        check: performance_state,
    },
    Rule {
        id: "intel.turbo",
        about: "without turbo nothing above the base frequency is asked for",
        source: "admin-guide/pm/intel_pstate.rst, no_turbo",
        applies: |mode| mode.is_intel_pstate() && mode.is_uniform(),
        check: turbo,
    },
    Rule {
        id: "intel.percentages",
        about: "max_perf_pct and min_perf_pct read what was written, within 100 and each other",
        source: "admin-guide/pm/intel_pstate.rst, max_perf_pct and min_perf_pct",
        applies: |mode| mode.is_intel_pstate(),
        check: percentages,
    },
    Rule {
        id: "intel.switches",
        about: "no_turbo and hwp_dynamic_boost read as they were written",
        source: "admin-guide/pm/intel_pstate.rst, no_turbo and hwp_dynamic_boost",
        applies: |mode| mode.is_intel_pstate(),
        check: switches,
    },
    Rule {
        id: "intel.constants",
        about: "num_pstates, turbo_pct and base_frequency are the processor's, whatever is set",
        source: "admin-guide/pm/intel_pstate.rst, num_pstates, turbo_pct, base_frequency",
        applies: |mode| mode.is_intel_pstate() && mode.is_uniform(),
        check: constants,
    },
];

/// Levels in the driver's unit: ratios of 100 MHz.
struct Levels {
    lowest: i64,
    base: i64,
    turbo: i64,
}

fn levels(case: &Case<'_>) -> Levels {
    let core = &case.mode.spec.core[0];
    Levels {
        lowest: i64::from(core.min_mhz) / 100,
        base: i64::from(core.base_mhz) / 100,
        turbo: i64::from(core.max_mhz) / 100,
    }
}

/// A policy's effective minimum and maximum as ratios: the policy's own and the global percentages
/// of turbo.
fn bounds(case: &Case<'_>, policy: u32) -> Option<(i64, i64)> {
    let levels = levels(case);
    let get = |name: &str| case.after.policy_number(policy, name);
    let ratio = |khz: i64| khz / 100_000;
    let percent = |name: &str, usual| case.after.number(&format!("intel_pstate/{name}")).unwrap_or(usual);
    let of_turbo = |percent: i64| (levels.turbo * percent + 99) / 100;
    let (min, max) = (ratio(get("scaling_min_freq")?), ratio(get("scaling_max_freq")?));
    let (all_min, all_max) = (of_turbo(percent("min_perf_pct", 0)), of_turbo(percent("max_perf_pct", 100)));
    let low = min.max(all_min).min(max);
    let high = max.min(all_max).max(min);
    Some((low.min(high).max(levels.lowest), high.max(levels.lowest)))
}

/// Maximum distance of a ratio from [`bounds`]: the documentation leaves open how a limit between
/// two ratios is rounded.
fn rounding(case: &Case<'_>, policy: u32) -> i64 {
    let limits = ["scaling_min_freq", "scaling_max_freq"].iter();
    let between =
        limits.filter_map(|name| case.after.policy_number(policy, name)).any(|khz| khz % 100_000 != 0);
    i64::from(between)
}

/// Calls `check` with each CPU's register, for each policy, while the driver is in the tested mode.
fn each(case: &Case<'_>, register: &str, check: impl Fn(u32, u64) -> Option<String>) -> Vec<String> {
    if !case.is_home() {
        return Vec::new();
    }
    let mut out = Vec::new();
    for policy in case.after.policies() {
        for cpu in case.after.cpus(policy) {
            if let Some(value) = case.after.register(cpu, register) {
                out.extend(check(policy, value).map(|text| format!("cpu{cpu}: {text}")));
            }
        }
    }
    out
}

fn request(case: &Case<'_>) -> Vec<String> {
    each(case, "0x774", |policy, value| {
        let (min, max, desired) = ((value & 0xff) as i64, (value >> 8 & 0xff) as i64, value >> 16 & 0xff);
        let (mut low, high) = bounds(case, policy)?;
        if case.after.policy(policy, "scaling_governor") == Some("performance") {
            low = high;
        }
        // While boosted for a task that waits for IO, the minimum may exceed the limit for
        // milliseconds.
        let boosts = case.after.get("intel_pstate/hwp_dynamic_boost") == Some("1");
        let near = |a: i64, b: i64| (a - b).abs() <= rounding(case, policy);
        let holds =
            (near(min, low) || boosts && min >= low && min <= high) && near(max, high) && desired == 0;
        (!holds).then(|| format!("HWP got {min} to {max}, desired {desired}, instead of {low} to {high}"))
    })
}

fn passive_request(case: &Case<'_>) -> Vec<String> {
    each(case, "0x774", |policy, value| {
        let (min, max) = ((value & 0xff) as i64, (value >> 8 & 0xff) as i64);
        let (low, high) = bounds(case, policy)?;
        let wanted = match case.after.policy(policy, "scaling_governor")? {
            "performance" => high,
            "powersave" => low,
            "userspace" => ((*case.asked.speed.get(&policy)? + 99_999) / 100_000).clamp(low, high),
            _ => {
                let by = rounding(case, policy);
                let holds = min >= low - by && min <= high + by && max <= high + by && max >= min;
                return (!holds).then(|| format!("HWP got {min} to {max} within limits of {low} to {high}"));
            }
        };
        let near = |a: i64, b: i64| (a - b).abs() <= rounding(case, policy);
        let holds = near(min, wanted) && (near(max, high) || near(max, wanted));
        (!holds).then(|| {
            format!("HWP got {min} to {max}; the governor's choice is {wanted} and the limit {high}")
        })
    })
}

/// drivers/cpufreq/intel_pstate.c, epp_values; models with values of their own read numbers.
const WORDS: &[(&str, u64)] =
    &[("performance", 0), ("balance_performance", 0x80), ("balance_power", 0xc0), ("power", 0xff)];

fn preference_value(text: &str) -> Option<u64> {
    WORDS.iter().find(|(word, _)| *word == text).map_or_else(|| number(text).map(|n| n as u64), |w| Some(w.1))
}

fn preference(case: &Case<'_>) -> Vec<String> {
    each(case, "0x774", |policy, value| {
        let reads = case.after.policy(policy, "energy_performance_preference")?;
        let (found, expected) = (value >> 24 & 0xff, preference_value(reads)?);
        (found != expected).then(|| format!("the preference reads {reads}, and the processor got {found}"))
    })
}

fn preference_as_written(case: &Case<'_>) -> Vec<String> {
    if !case.is_home() {
        return Vec::new();
    }
    let written =
        case.after.answers.iter().filter(|a| a.file() == "energy_performance_preference" && a.is_ok());
    written
        .filter_map(|a| {
            let (now, wanted) = (case.after.get(&a.path)?, preference_value(&a.value)?);
            (preference_value(now) != Some(wanted))
                .then(|| format!("{} reads {now} after {}", a.path, a.value))
        })
        .collect()
}

fn preference_under_performance(case: &Case<'_>) -> Vec<String> {
    let mut out = each(case, "0x774", |policy, value| {
        let performance = case.after.policy(policy, "scaling_governor") == Some("performance");
        (performance && value >> 24 & 0xff != 0)
            .then(|| format!("governor performance with preference {}", value >> 24 & 0xff))
    });
    for a in case.after.answers.iter().filter(|a| a.file() == "energy_performance_preference" && a.is_ok()) {
        let governor = a.path.replace("energy_performance_preference", "scaling_governor");
        if case.is_home()
            && case.before.get(&governor) == Some("performance")
            && preference_value(&a.value).is_some_and(|value| value != 0)
        {
            out.push(format!("{} took {} under governor performance", a.path, a.value));
        }
    }
    out
}

fn performance_state(case: &Case<'_>) -> Vec<String> {
    each(case, "0x199", |policy, value| {
        let ratio = (value >> 8 & 0xff) as i64;
        let (low, high) = bounds(case, policy)?;
        let governor = case.after.policy(policy, "scaling_governor")?;
        let active = case.mode.kind == Kind::IntelActiveNoHwp;
        let wanted = match governor {
            "performance" => Some(high),
            "powersave" if !active => Some(low),
            "userspace" => {
                let speed = *case.asked.speed.get(&policy)?;
                Some(((speed + 99_999) / 100_000).clamp(low, high))
            }
            _ => None,
        };
        let by = rounding(case, policy);
        let holds =
            wanted.map_or(ratio >= low - by && ratio <= high + by, |wanted| (ratio - wanted).abs() <= by);
        (!holds).then(|| match wanted {
            Some(wanted) => format!("P-state {ratio} instead of {wanted}"),
            None => format!("P-state {ratio} outside of {low} to {high}"),
        })
    })
}

fn turbo(case: &Case<'_>) -> Vec<String> {
    if case.after.get("intel_pstate/no_turbo") != Some("1") {
        return Vec::new();
    }
    let base = levels(case).base;
    if case.mode.is_hwp() {
        return each(case, "0x774", |_, value| {
            let max = (value >> 8 & 0xff) as i64;
            (max > base)
                .then(|| format!("no_turbo is 1, and HWP got a maximum of {max} above the base {base}"))
        });
    }
    each(case, "0x199", |_, value| {
        // Bit 32 disables turbo; ratios above the base then have no effect (Intel's manual,
        // IA32_PERF_CTL).
        let disengaged = value >> 32 & 1 == 1;
        let ratio = (value >> 8 & 0xff) as i64;
        (ratio > base && !disengaged)
            .then(|| format!("no_turbo is 1, and P-state {ratio} is asked for with turbo engaged"))
    })
}

fn percentages(case: &Case<'_>) -> Vec<String> {
    let get = |seen: &Observation, name: &str| seen.number(&format!("intel_pstate/{name}"));
    let mut out = Vec::new();
    let (Some(min), Some(max)) = (get(case.after, "min_perf_pct"), get(case.after, "max_perf_pct")) else {
        return out;
    };
    if !(0..=100).contains(&min) || !(min..=100).contains(&max) {
        out.push(format!("min_perf_pct {min} <= max_perf_pct {max} <= 100 does not hold"));
    }
    let levels = levels(case);
    for answer in &case.after.answers {
        let name = answer.file();
        if !matches!(name, "max_perf_pct" | "min_perf_pct") || answer.answer == "absent" {
            continue;
        }
        let value = answer.value.trim().parse::<u32>().ok().map(i64::from);
        if value.is_some() != answer.is_ok() && answer.answer != "EAGAIN" {
            out.push(format!("{name} <- '{}' was answered {}", answer.value, answer.answer));
        }
        let (Some(value), true) = (value, answer.is_ok()) else { continue };
        let floor = levels.lowest * 100 / levels.turbo.max(1);
        let (wanted, now) = if name == "max_perf_pct" {
            (value.min(100).max(min), max)
        } else {
            (value.max(floor).min(max), min)
        };
        if now != wanted && case.mode.is_uniform() {
            out.push(format!("{name} reads {now} instead of {wanted} after {value}"));
        }
    }
    out
}

fn switches(case: &Case<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for answer in &case.after.answers {
        let name = answer.file();
        if !matches!(name, "no_turbo" | "hwp_dynamic_boost") || answer.answer == "absent" {
            continue;
        }
        let value = answer.value.trim().parse::<u32>().ok();
        if value.is_some() != answer.is_ok() && !matches!(answer.answer.as_str(), "EAGAIN" | "EPERM") {
            out.push(format!("{name} <- '{}' was answered {}", answer.value, answer.answer));
        }
        if let (Some(value), true, Some(now)) = (value, answer.is_ok(), case.after.get(&answer.path))
            && now != value.min(1).to_string()
        {
            out.push(format!("{name} reads {now} after {value}"));
        }
    }
    out
}

fn constants(case: &Case<'_>) -> Vec<String> {
    let levels = levels(case);
    let mut out = Vec::new();
    let mut exact = |path: &str, expected: i64| {
        if let Some(now) = case.after.number(path).filter(|now| *now != expected) {
            out.push(format!("{path} reads {now} instead of {expected}"));
        }
    };
    exact("intel_pstate/num_pstates", levels.turbo - levels.lowest + 1);
    for policy in case.after.policies() {
        exact(&format!("cpufreq/policy{policy}/base_frequency"), levels.base * 100_000);
        exact(&format!("cpufreq/policy{policy}/cpuinfo_min_freq"), levels.lowest * 100_000);
        // Up to 6.5 no_turbo does not change cpuinfo_max_freq; later it becomes the base frequency.
        if case.after.get("intel_pstate/no_turbo") == Some("0") {
            exact(&format!("cpufreq/policy{policy}/cpuinfo_max_freq"), levels.turbo * 100_000);
        }
    }
    out
}
