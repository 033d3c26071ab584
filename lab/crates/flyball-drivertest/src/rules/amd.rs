//! What amd-pstate requests from the processor, in registers and in the mailbox.

use super::{Case, Rule, number};
use crate::{mode::Kind, record::Observation};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "amd.fields-ordered",
        about: "lowest <= minimum <= desired (unless 0) <= maximum <= highest performance",
        source: "admin-guide/pm/amd-pstate.rst, AMD CPPC Performance Capability",
        applies: |mode| mode.is_amd_pstate(),
        check: fields_ordered,
    },
    Rule {
        id: "amd.autonomous",
        about: "active mode leaves the desired performance to the processor (0)",
        source: "admin-guide/pm/amd-pstate.rst, Active Mode; ACPI 6.5, 8.4.6.1.2.3",
        applies: |mode| mode.kind == Kind::AmdActive,
        check: autonomous,
    },
    Rule {
        id: "amd.maximum",
        about: "the maximum performance asked for is that of scaling_max_freq",
        source: "admin-guide/pm/amd-pstate.rst, Maximum requested performance",
        applies: |mode| mode.kind == Kind::AmdActive,
        check: maximum,
    },
    Rule {
        id: "amd.minimum",
        about: "the minimum performance asked for is that of scaling_min_freq, and at least that with governor performance",
        source: "admin-guide/pm/amd-pstate.rst, Minimum requested performance",
        applies: |mode| mode.kind == Kind::AmdActive,
        check: minimum,
    },
    Rule {
        id: "amd.desired",
        about: "passive mode asks for what the governor chose: the limit, or the speed that was set",
        source: "admin-guide/pm/amd-pstate.rst, Passive Mode and Desired performance",
        applies: |mode| mode.kind == Kind::AmdPassive,
        check: desired,
    },
    Rule {
        id: "amd.within-limits",
        about: "what passive and guided mode ask for is within scaling_min_freq and scaling_max_freq",
        source: "admin-guide/pm/amd-pstate.rst, Passive Mode and Guided Autonomous Mode",
        applies: |mode| matches!(mode.kind, Kind::AmdPassive | Kind::AmdGuided),
        check: within_limits,
    },
    Rule {
        id: "amd.preference",
        about: "the preference that is read is the one that the processor got",
        source: "admin-guide/pm/amd-pstate.rst, energy_performance_preference",
        applies: |mode| mode.kind == Kind::AmdActive,
        check: preference,
    },
    Rule {
        id: "amd.preference-as-written",
        about: "a preference that was accepted is read back",
        source: "admin-guide/pm/amd-pstate.rst, energy_performance_preference",
        applies: |mode| mode.kind == Kind::AmdActive,
        check: preference_as_written,
    },
    Rule {
        id: "amd.preference-under-performance",
        about: "under governor performance the preference is performance, and another is refused",
        source: "admin-guide/pm/amd-pstate.rst, energy_performance_available_preferences",
        applies: |mode| mode.kind == Kind::AmdActive,
        check: preference_under_performance,
    },
    Rule {
        id: "amd.boost",
        about: "cpuinfo_max_freq is the nominal frequency without boost and the highest with it",
        source: "admin-guide/pm/cpufreq.rst, The boost File in sysfs; admin-guide/pm/amd-pstate.rst, Nominal Performance",
        applies: |mode| mode.is_amd_pstate(),
        check: boost,
    },
    Rule {
        id: "amd.constants",
        about: "amd_pstate_* read what the processor reports, whatever is set",
        source: "admin-guide/pm/amd-pstate.rst, amd_pstate_max_freq, amd_pstate_lowest_nonlinear_freq, amd_pstate_highest_perf",
        applies: |mode| mode.is_amd_pstate(),
        check: constants,
    },
    Rule {
        id: "amd.enabled",
        about: "CPPC is enabled while the driver is in use",
        source: "admin-guide/pm/amd-pstate.rst, Processor Support",
        applies: |mode| mode.is_amd_pstate(),
        check: enabled,
    },
    Rule {
        id: "amd.autonomous-selection",
        about: "in the mailbox, autonomous selection is on in active and guided mode and off in passive mode",
        source: "admin-guide/pm/amd-pstate.rst, Guided Autonomous Mode; ACPI 6.5, 8.4.6.1.4",
        applies: |mode| mode.is_amd_pstate() && mode.is_mailbox(),
        check: autonomous_selection,
    },
];

/// A request, from the register or from the mailbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub max: i64,
    pub min: i64,
    pub desired: i64,
    pub preference: i64,
}

/// A CPU's request, if one was written.
pub(super) fn request(seen: &Observation, cpu: u32, mailbox: bool) -> Option<Request> {
    if mailbox {
        let field = |name: &str| seen.register(cpu, &format!("mailbox.{name}")).map(|value| value as i64);
        return Some(Request {
            max: field("max")?,
            min: field("min")?,
            desired: field("desired")?,
            preference: field("epp")?,
        });
    }
    let word = seen.register(cpu, "0xc00102b3")?;
    let byte = |shift: u32| (word >> shift & 0xff) as i64;
    Some(Request { max: byte(0), min: byte(8), desired: byte(16), preference: byte(24) })
}

/// Calls `check` with each CPU's request, for each policy of online CPUs, while the driver is in
/// the tested mode.
fn each(case: &Case<'_>, check: impl Fn(u32, u32, Request) -> Option<String>) -> Vec<String> {
    if !case.is_home() {
        return Vec::new();
    }
    let mut out = Vec::new();
    for policy in case.after.policies() {
        for cpu in case.after.cpus(policy) {
            if let Some(request) = request(case.after, cpu, case.mode.is_mailbox()) {
                out.extend(check(policy, cpu, request).map(|text| format!("cpu{cpu}: {text}")));
            }
        }
    }
    out
}

/// The performance level of a frequency. Kernels multiply by the highest level over the highest
/// frequency (up to 6.12), or by the nominal ones, and round down or up; a deviation of one level
/// is accepted.
fn level(case: &Case<'_>, policy: u32, khz: i64) -> Option<i64> {
    let perf = &case.mode.spec.core[0].perf;
    let top = case.after.policy_number(policy, "amd_pstate_max_freq")?;
    let level = (khz * i64::from(perf.highest) + top / 2) / top.max(1);
    Some(level.clamp(i64::from(perf.lowest), i64::from(perf.highest)))
}

/// Returns whether `found` is the level of the frequency. At the ends of the range it must be
/// exact.
fn is_level(case: &Case<'_>, policy: u32, found: i64, khz: i64) -> Option<bool> {
    let perf = &case.mode.spec.core[0].perf;
    if case.after.policy_number(policy, "amd_pstate_max_freq") == Some(khz) {
        return Some(found == highest(case, policy));
    }
    let expected = level(case, policy, khz)?;
    // Frequencies at or below the lowest level's.
    if expected == i64::from(perf.lowest) && khz <= i64::from(case.mode.spec.core[0].min_mhz) * 1000 {
        return Some(found == expected);
    }
    Some((found - expected).abs() <= 1)
}

/// The highest level of a policy's cores.
fn highest(case: &Case<'_>, policy: u32) -> i64 {
    let own = case.after.policy_number(policy, "amd_pstate_highest_perf");
    own.unwrap_or_else(|| i64::from(case.mode.spec.core[0].perf.highest))
}

fn fields_ordered(case: &Case<'_>) -> Vec<String> {
    let perf = &case.mode.spec.core[0].perf;
    let (lowest, highest) = (i64::from(perf.lowest), i64::from(perf.highest));
    each(case, |_, _, r| {
        let desired = if r.desired == 0 { r.min } else { r.desired };
        let ordered = r.min <= desired && desired <= r.max && r.max <= highest && r.min >= lowest.min(r.max);
        (!ordered).then(|| {
            format!("{lowest} <= {} <= {} <= {} <= {highest} does not hold", r.min, r.desired, r.max)
        })
    })
}

fn autonomous(case: &Case<'_>) -> Vec<String> {
    each(case, |_, _, r| {
        (r.desired != 0).then(|| format!("desired performance is {} instead of 0", r.desired))
    })
}

fn maximum(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, _, r| {
        let khz = case.after.policy_number(policy, "scaling_max_freq")?;
        (!is_level(case, policy, r.max, khz)?).then(|| {
            format!(
                "maximum performance is {} and scaling_max_freq {khz} kHz, about {}",
                r.max,
                level(case, policy, khz).unwrap_or(0)
            )
        })
    })
}

fn minimum(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, _, r| {
        let khz = case.after.policy_number(policy, "scaling_min_freq")?;
        let expected = level(case, policy, khz)?.min(r.max);
        let performance = case.after.policy(policy, "scaling_governor") == Some("performance");
        let holds = if performance {
            // The lower bound is the smaller of the nominal level and the maximum; before 6.7 it
            // was the maximum.
            let nominal = i64::from(case.mode.spec.core[0].perf.nominal).min(r.max);
            r.min >= expected - 1 && r.min >= nominal.min(expected.max(nominal)) && r.min <= r.max
        } else {
            (r.min - expected).abs() <= 1
        };
        (!holds).then(|| {
            format!("minimum performance is {} and scaling_min_freq {khz} kHz, about {expected}", r.min)
        })
    })
}

fn desired(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, _, r| {
        let get = |name: &str| case.after.policy_number(policy, name);
        let (min, max) = (get("scaling_min_freq")?, get("scaling_max_freq")?);
        let khz = match case.after.policy(policy, "scaling_governor")? {
            "performance" => max,
            "powersave" => min,
            "userspace" => (*case.asked.speed.get(&policy)?).clamp(min, max),
            _ => return None,
        };
        let expected = level(case, policy, khz)?;
        // Some kernels use the lowest non-linear level as the floor of the minimum.
        let floor = r.min;
        let holds = (r.desired - expected).abs() <= 1 || expected < floor && r.desired == floor;
        (!holds).then(|| {
            format!(
                "desired performance is {} and the governor's choice {khz} kHz, about {expected}",
                r.desired
            )
        })
    })
}

fn within_limits(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, _, r| {
        let get = |name: &str| case.after.policy_number(policy, name);
        let (min, max) =
            (level(case, policy, get("scaling_min_freq")?)?, level(case, policy, get("scaling_max_freq")?)?);
        let asked = if r.desired == 0 { r.min } else { r.desired };
        // The maximum bounds the processor's own choice.
        let ceiling = if r.desired == 0 { r.max } else { r.desired };
        let holds = asked >= min - 1 && ceiling <= max.max(r.min) + 1;
        (!holds).then(|| {
            format!(
                "{} to {} (desired {}) is asked for, and the limits are {min} to {max}",
                r.min, r.max, r.desired
            )
        })
    })
}

/// Words and values of amd-pstate.rst and drivers/cpufreq/amd-pstate.c, epp_values.
const WORDS: &[(&str, i64)] =
    &[("performance", 0), ("balance_performance", 0x80), ("balance_power", 0xbf), ("power", 0xff)];

fn preference(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, _, r| {
        let reads = case.after.policy(policy, "energy_performance_preference")?;
        let value = match WORDS.iter().find(|(word, _)| *word == reads) {
            Some((_, value)) => *value,
            None => number(reads)?,
        };
        (value != r.preference)
            .then(|| format!("the preference reads {reads}, and the processor got {}", r.preference))
    })
}

fn preference_as_written(case: &Case<'_>) -> Vec<String> {
    if !case.is_home() {
        return Vec::new();
    }
    let written =
        case.after.answers.iter().filter(|a| a.file() == "energy_performance_preference" && a.is_ok());
    let known =
        written.filter(|a| WORDS.iter().any(|(word, _)| *word == a.value) || number(&a.value).is_some());
    known
        .filter_map(|a| {
            let now = case.after.get(&a.path)?;
            let value = |text: &str| {
                WORDS.iter().find(|(word, _)| *word == text).map_or_else(|| number(text), |w| Some(w.1))
            };
            (value(now) != value(&a.value)).then(|| format!("{} reads {now} after {}", a.path, a.value))
        })
        .collect()
}

fn preference_under_performance(case: &Case<'_>) -> Vec<String> {
    let mut out = each(case, |policy, _, r| {
        let performance = case.after.policy(policy, "scaling_governor") == Some("performance");
        (performance && r.preference != 0)
            .then(|| format!("governor performance with preference {}", r.preference))
    });
    for a in case.after.answers.iter().filter(|a| a.file() == "energy_performance_preference" && a.is_ok()) {
        let governor = a.path.replace("energy_performance_preference", "scaling_governor");
        let other = !matches!(a.value.as_str(), "performance" | "0" | "default");
        if case.is_home() && other && case.before.get(&governor) == Some("performance") {
            out.push(format!("{} took {} under governor performance", a.path, a.value));
        }
    }
    out
}

fn boost(case: &Case<'_>) -> Vec<String> {
    if !case.is_home() {
        return Vec::new();
    }
    let nominal_khz =
        i64::from(case.mode.spec.firmware.cpc_nominal_mhz.max(case.mode.spec.core[0].base_mhz)) * 1000;
    let nominal_level = i64::from(case.mode.spec.core[0].perf.nominal);
    let mut out = Vec::new();
    for policy in case.after.policies() {
        let (Some(boost), Some(high), Some(top)) = (
            case.after.policy(policy, "boost"),
            case.after.policy_number(policy, "cpuinfo_max_freq"),
            case.after.policy_number(policy, "amd_pstate_max_freq"),
        ) else {
            continue;
        };
        let expected = if boost == "1" { top } else { nominal_khz };
        // Firmware gives the nominal frequency in MHz, and the drivers round.
        if (high - expected).abs() > 2000 {
            out.push(format!(
                "policy{policy}: boost is {boost} and cpuinfo_max_freq {high} instead of {expected}"
            ));
        }
        for cpu in case.after.cpus(policy) {
            if let Some(r) = request(case.after, cpu, case.mode.is_mailbox())
                && boost == "0"
                && (r.desired > nominal_level || r.desired == 0 && r.max > nominal_level)
            {
                out.push(format!(
                    "cpu{cpu}: boost is off, and {} (desired {}) is asked for",
                    r.max, r.desired
                ));
            }
        }
    }
    out
}

fn constants(case: &Case<'_>) -> Vec<String> {
    let core = &case.mode.spec.core[0];
    let mut out = Vec::new();
    for policy in case.after.policies() {
        let mut near = |name: &str, expected: i64, by: i64| {
            if let Some(now) = case.after.policy_number(policy, name)
                && (now - expected).abs() > by
            {
                out.push(format!("policy{policy}: {name} reads {now} instead of about {expected}"));
            }
        };
        // The nominal frequency of the firmware is in whole MHz: half a per mille at the highest
        // level.
        near("amd_pstate_max_freq", i64::from(core.max_mhz) * 1000, 6000);
        near("amd_pstate_lowest_nonlinear_freq", i64::from(core.efficient_mhz) * 1000, 3000);
        if core.ranking.is_empty() {
            near("amd_pstate_highest_perf", i64::from(core.perf.highest), 0);
            near("amd_pstate_prefcore_ranking", i64::from(core.perf.highest), 0);
        } else if let Some(rank) = core.ranking.get(policy as usize / core.threads.max(1) as usize) {
            near("amd_pstate_prefcore_ranking", i64::from(*rank), 0);
        }
        if let Some(low) = case.after.policy_number(policy, "cpuinfo_min_freq") {
            // The lowest level's frequency, or the firmware's own lowest frequency.
            let expected = i64::from(core.min_mhz) * 1000;
            if (low - expected).abs() > expected * 7 / 100 {
                out.push(format!("policy{policy}: cpuinfo_min_freq reads {low} instead of about {expected}"));
            }
        }
    }
    out
}

fn enabled(case: &Case<'_>) -> Vec<String> {
    if !case.is_home() {
        return Vec::new();
    }
    let mut out = Vec::new();
    // The register is one per package (arch/x86/include/asm/msr-index.h, MSR_AMD_CPPC_ENABLE).
    let seen: Vec<u64> =
        (0..case.mode.cpu_count()).filter_map(|cpu| case.after.register(cpu, "0xc00102b1")).collect();
    if !seen.is_empty() && !seen.contains(&1) {
        out.push("CPPC is not enabled".to_owned());
    }
    out
}

fn autonomous_selection(case: &Case<'_>) -> Vec<String> {
    if !case.is_home() {
        return Vec::new();
    }
    let wanted = u64::from(case.mode.kind != Kind::AmdPassive);
    let cpus = case.after.policies().into_iter().flat_map(|policy| case.after.cpus(policy));
    cpus.filter_map(|cpu| {
        let found = case.after.register(cpu, "mailbox.auto")?;
        (found != wanted).then(|| format!("cpu{cpu}: autonomous selection is {found} instead of {wanted}"))
    })
    .collect()
}
