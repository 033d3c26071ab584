//! Settings that contradict each other.

use flyball_host::{CpuList, msr::MSR_PLATFORM_INFO};

use super::{
    Answer, Check, Facts, Fix, KnobValue, Vendor,
    facts::{BOOST, MAX_PERF_PCT, MIN_PERF_PCT, NO_TURBO, cpu_words},
    note, ok, unknown, warning,
};
use crate::{Id, cppc_khz};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "conflict.governor",
        "CPUs of the same kind under different governors run the same work at different speeds.",
        "scaling_governor of CPUs of the same kind",
        governors,
    )
    .covers(&["scaling_governor"]),
    Check::new(
        "conflict.limits",
        "CPUs of the same kind with different limits run the same work at different speeds.",
        "scaling_min_freq and scaling_max_freq of CPUs of the same kind, relative to the range of each",
        limits,
    )
    .covers(&["scaling_min_freq", "scaling_max_freq", "cpuinfo_min_freq", "cpuinfo_max_freq"]),
    Check::new(
        "conflict.below-base",
        "A maximum below the base frequency wastes speed that the processor guarantees.",
        "scaling_max_freq against base_frequency, acpi_cppc/nominal_freq, or MSR 0xce bits 15:8 (Intel since Sandy Bridge)",
        below_base,
    )
    .covers(&["scaling_max_freq", "base_frequency", "cpuN/acpi_cppc/nominal_freq"]),
    Check::new(
        "conflict.lowered-maximum",
        "A maximum below the hardware's takes turbo from CPUs that could have it; no_turbo with the same effect would stand out.",
        "scaling_max_freq against cpuinfo_max_freq and the highest of scaling_available_frequencies, where it is not below the \
            base frequency",
        lowered_maximum,
    )
    .covers(&["scaling_max_freq", "cpuinfo_max_freq"]),
    Check::new(
        "conflict.pinned-minimum",
        "A minimum equal to the maximum leaves the governor no choice, idle or busy.",
        "scaling_min_freq against scaling_max_freq under governors that choose a frequency",
        pinned,
    )
    .covers(&["scaling_min_freq", "scaling_max_freq", "cpuinfo_min_freq", "scaling_governor"]),
    Check::new(
        "conflict.raised-minimum",
        "A raised minimum overrides the governor: CPUs with little load run faster than it would choose.",
        "scaling_min_freq against cpuinfo_min_freq and amd_pstate_lowest_nonlinear_freq, under governors that go low",
        raised,
    )
    .covers(&["scaling_min_freq", "scaling_max_freq", "cpuinfo_min_freq", "scaling_governor"]),
    Check::new(
        "conflict.governor-epp",
        "Under the performance governor the driver holds the preference at performance and refuses others.",
        "scaling_governor against energy_performance_preference",
        governor_epp,
    )
    .covers(&["scaling_driver", "scaling_governor", "energy_performance_preference"]),
    Check::new(
        "conflict.powersave",
        "Outside active mode `powersave` does not save power: it pins the lowest frequency under any load.",
        "scaling_governor and scaling_driver",
        powersave,
    )
    .covers(&["scaling_driver", "scaling_governor"]),
    Check::new(
        "conflict.userspace",
        "The userspace governor keeps one frequency under any load, until a program writes another.",
        "scaling_governor, scaling_setspeed and cpuinfo_max_freq",
        userspace,
    )
    .covers(&["scaling_governor"]),
    Check::new(
        "conflict.epb-epp",
        "Bias and preference steer the same firmware policies; with opposite values the outcome is not predictable.",
        "power/energy_perf_bias against energy_performance_preference",
        epb_epp,
    )
    .covers(&["energy_performance_preference", "cpuN/power/energy_perf_bias"]),
    Check::new(
        "conflict.epb-uncore",
        "Firmware can set the uncore up for latency (ELC); any energy bias but 0 then lets it leave its maximum all the same.",
        "intel_uncore_frequency/uncoreNN/elc_* against power/energy_perf_bias",
        epb_uncore,
    )
    .covers(&["cpuN/power/energy_perf_bias"]),
    Check::new(
        "conflict.turbo",
        "There are two switches for turbo, and turbo is off if either of them is off.",
        "cpufreq/boost, intel_pstate/no_turbo and each policy's boost",
        turbo,
    )
    .covers(&["boost"]),
];

/// Groups policies by core type. Hybrid processors have more than one type.
fn kinds<'a>(facts: &'a Facts<'_>) -> Vec<Vec<&'a super::Policy>> {
    let mut kinds: std::collections::BTreeMap<_, Vec<&super::Policy>> = std::collections::BTreeMap::new();
    for policy in &facts.policies {
        kinds.entry(policy.core_type).or_default().push(policy);
    }
    kinds.into_values().collect()
}

fn split_by<'a>(
    policies: &[&'a super::Policy],
    text: impl Fn(&'a super::Policy) -> Option<String>,
) -> Vec<(String, CpuList)> {
    let mut groups: std::collections::BTreeMap<String, CpuList> = std::collections::BTreeMap::new();
    for &policy in policies {
        if let Some(text) = text(policy) {
            groups.entry(text).or_default().extend(policy.cpus.iter());
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // The largest group first: the others are probably mistakes.
    groups.sort_by_key(|(_, cpus)| std::cmp::Reverse(cpus.len()));
    groups
}

/// Reports whether CPUs of the same type have the same value, with the values found.
pub(super) fn same_within_kind(
    facts: &Facts,
    what: &str,
    files: &[&str],
    text: impl Fn(&super::Policy) -> Option<String>,
) -> Option<Answer> {
    let mut shown = None;
    for policies in kinds(facts) {
        let groups = split_by(&policies, &text);
        if groups.len() > 1 {
            let mut answer = warning(format!("CPUs of the same kind have different {what}"));
            let paths = |policy: &super::Policy| files.iter().map(|file| policy.path(file)).collect();
            let values = policies.iter().filter_map(|policy| Some((text(policy)?, paths(policy))));
            answer.compared = values.collect();
            return Some(
                groups
                    .into_iter()
                    // A few groups show the mistake. Hundreds of different limits would fill the
                    // screen.
                    .take(6)
                    .fold(answer, |answer, (value, cpus)| {
                        answer.seen(format!("CPUs {}", cpus.short()), value)
                    }),
            );
        }
        if let Some((value, cpus)) = groups.into_iter().next() {
            shown.get_or_insert((value, cpus));
        }
    }
    let (value, cpus) = shown?;
    Some(
        ok(format!("CPUs of the same kind have the same {what}"))
            .seen(format!("CPUs {}", cpus.short()), value),
    )
}

fn governors(facts: &Facts) -> Option<Answer> {
    let most_common = facts.by_value("scaling_governor").first().map(|(governor, _)| governor.clone());
    let answer = same_within_kind(facts, "governors", &["scaling_governor"], |policy| {
        policy.get("scaling_governor").map(str::to_owned)
    })?;
    Some(match (answer.verdict, most_common) {
        // The most common governor changes the fewest CPUs.
        (super::Verdict::Warning, Some(governor)) => answer.set(Id::Governor, governor),
        _ => answer,
    })
}

/// Frequencies of a policy that messages call by name.
const LIMIT_ENDS: [(&str, &str); 3] =
    [("cpuinfo_min_freq", "lowest"), ("cpuinfo_max_freq", "highest"), ("base_frequency", "base")];

/// Returns whether the firmware (_PPC) sets the maximum, so that no setting can raise it:
/// firmware.bios-limit reports that. scaling_max_freq shows the lower of both limits.
fn is_limited_by_firmware(policy: &super::Policy) -> bool {
    let (Some(limit), Some(max)) = (policy.number("bios_limit"), policy.number("scaling_max_freq")) else {
        return false;
    };
    // Firmware tables have whole MHz.
    limit > 0 && limit < super::firmware_limits::top_of_table(policy).unwrap_or(0) && max * 100 >= limit * 99
}

fn limits(facts: &Facts) -> Option<Answer> {
    let files = ["scaling_min_freq", "scaling_max_freq"];
    let answer = same_within_kind(facts, "frequency limits", &files, |policy| {
        // Compare relative to each policy's own range. Otherwise preferred cores, and CPUs with
        // other limits by Speed Select or firmware, would count as different.
        let place = |name: &str| {
            let value = policy.number(name)?;
            Some(
                LIMIT_ENDS
                    .iter()
                    .find(|(end, _)| policy.number(end) == Some(value))
                    .map_or_else(|| format!("{} MHz", value / 1000), |(_, word)| (*word).to_owned()),
            )
        };
        let highest =
            if is_limited_by_firmware(policy) { "highest".to_owned() } else { place("scaling_max_freq")? };
        Some(format!("{} to {highest}", place("scaling_min_freq")?))
    })?;
    if answer.verdict == super::Verdict::Ok && facts.policies.iter().any(is_limited_by_firmware) {
        return None;
    }
    // Warn if a few CPUs have a narrowed range and most have the full one. Two equal groups may be
    // intentional.
    let usual = answer.evidence.first().is_some_and(|first| first.value == "lowest to highest");
    if answer.verdict != super::Verdict::Warning || !usual {
        return Some(answer);
    }
    let both = [(Id::MinFreq, "min"), (Id::MaxFreq, "max")];
    let settings = both.map(|(knob, value)| KnobValue::new(knob, value));
    Some(answer.fix(Fix::Settings(settings.to_vec())))
}

/// Returns the base frequency of a processor without hardware P-states, from MSR_PLATFORM_INFO
/// (bits 15:8, in 100 MHz since Sandy Bridge, the first with AVX).
fn base_ratio(facts: &Facts, policy: &super::Policy) -> Option<u64> {
    let is_known = super::models::family_6(facts) && facts.flag("avx");
    let cpu = policy.cpus.intersection(&facts.online).first().filter(|_| is_known)?;
    let ratio = facts.msr(cpu, MSR_PLATFORM_INFO).ok()? >> 8 & 0xff;
    (ratio > 0).then_some(ratio * 100_000)
}

/// Returns one of intel_pstate's percentages.
fn percent(facts: &Facts, path: &str) -> Option<u64> {
    facts.read(path).ok()?.parse::<u32>().ok().map(u64::from)
}

fn below_base(facts: &Facts) -> Option<Answer> {
    /// The bus clock in kHz, to which Intel's limits are rounded.
    const STEP: u64 = 100_000;
    let percent = percent(facts, MAX_PERF_PCT).filter(|percent| *percent < 100);
    let mut shown = None;
    let mut low = CpuList::new();
    let mut evidence = None;
    for policy in facts.policies.iter().filter(|policy| !is_limited_by_firmware(policy)) {
        // Only intel_pstate has base_frequency. CPPC's nominal frequency is its equivalent.
        let base = policy.number("base_frequency").or_else(|| {
            let cpu = policy.cpus.first()?;
            let mhz: u64 = facts
                .read(&format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/nominal_freq"))
                .ok()?
                .parse()
                .ok()?;
            // CPPC 2 has no frequencies, so the kernel prints 0.
            (mhz > 0).then_some(mhz * 1000)
        });
        let base = base.or_else(|| base_ratio(facts, policy));
        let (Some(base), Some(max)) = (base, policy.number("scaling_max_freq")) else { continue };
        // Without HWP the file follows the percentage, which conflict.perf-pct checks.
        let by_percent = percent.zip(policy.number("cpuinfo_max_freq"));
        if by_percent.is_some_and(|(percent, highest)| max + STEP >= highest * percent / 100) {
            continue;
        }
        // Firmware tables have whole MHz, and some end 1 MHz above the nominal frequency, so a
        // difference of a hundredth is not a limit.
        if max * 100 < base * 99 {
            low.extend(policy.cpus.iter());
            evidence.get_or_insert((policy.path("scaling_max_freq"), format!("{max}, base {base} kHz")));
        }
        shown.get_or_insert((policy.path("scaling_max_freq"), format!("{max}, base {base} kHz")));
    }
    if let Some((place, text)) = evidence {
        return Some(
            warning(format!("{} are limited to less than their base frequency", cpu_words(&low)))
                .seen(place, text)
                .set(Id::MaxFreq, "max"),
        );
    }
    if facts.policies.iter().any(is_limited_by_firmware) {
        return None;
    }
    let (place, text) = shown?;
    Some(ok("no maximum is below the base frequency, but for rounding").seen(place, text))
}

/// Returns the limit of a policy and its highest possible limit, if the present one is lower. With
/// acpi-cpufreq the highest limit is the highest P-state, since boost ignores limits.
fn lowered(policy: &super::Policy) -> Option<(u64, u64)> {
    if is_limited_by_firmware(policy) {
        return None;
    }
    let highest = super::firmware_limits::top_of_table(policy)?;
    let limit = policy.number("scaling_max_freq")?;
    // Drivers round limits to their levels, which are up to 1 % apart.
    (limit * 100 < highest * 99).then_some((limit, highest))
}

fn lowered_maximum(facts: &Facts) -> Option<Answer> {
    // Other checks report these causes.
    let is_found =
        |answer: Option<Answer>| answer.is_some_and(|answer| answer.verdict >= super::Verdict::Warning);
    if is_found(limits(facts))
        || is_found(below_base(facts))
        || facts.read(NO_TURBO).is_ok_and(|word| word == "1")
        || facts.read(MAX_PERF_PCT).is_ok_and(|percent| percent != "100")
    {
        return None;
    }
    let mut low = CpuList::new();
    let mut evidence = None;
    for policy in &facts.policies {
        if let Some((limit, highest)) = lowered(policy) {
            low.extend(policy.cpus.iter());
            evidence.get_or_insert((
                policy.path("scaling_max_freq"),
                format!("{limit}, the highest is {highest} kHz"),
            ));
        }
    }
    if let Some((place, text)) = evidence {
        return Some(
            note(format!("{} are limited to less than their highest frequency", cpu_words(&low)))
                .seen(place, text)
                .set(Id::MaxFreq, "max"),
        );
    }
    if facts.policies.iter().any(is_limited_by_firmware) {
        return None;
    }
    let has_both = |policy: &&super::Policy| {
        policy.number("scaling_max_freq").is_some() && policy.number("cpuinfo_max_freq").is_some()
    };
    let policy = facts.policies.iter().find(has_both)?;
    let highest = policy.number("cpuinfo_max_freq")?;
    let top = super::firmware_limits::top_of_table(policy)?;
    let above =
        if top < highest { format!("; boost to {highest} is above every limit") } else { String::new() };
    Some(
        ok("every CPU may reach its highest frequency")
            .seen(policy.path("scaling_max_freq"), format!("{}{above}", policy.get("scaling_max_freq")?)),
    )
}

fn userspace(facts: &Facts) -> Option<Answer> {
    let held: Vec<&super::Policy> =
        facts.policies.iter().filter(|policy| policy.get("scaling_governor") == Some("userspace")).collect();
    let Some(first) = held.first() else {
        let policy = facts.policies.iter().find(|policy| policy.get("scaling_governor").is_some())?;
        let governor = policy.get("scaling_governor")?.to_owned();
        return Some(
            ok("no CPU is under the userspace governor").seen(policy.path("scaling_governor"), governor),
        );
    };
    let cpus: CpuList = held.iter().flat_map(|policy| policy.cpus.iter().collect::<Vec<_>>()).collect();
    let speed = first.get("scaling_setspeed").unwrap_or("unknown").to_owned();
    let better = better_governor(facts);
    let answer = warning(format!(
        "{} keep one frequency under any load: their governor is userspace",
        cpu_words(&cpus)
    ))
    .seen(first.path("scaling_governor"), "userspace")
    .seen(first.path("scaling_setspeed"), speed);
    Some(match better {
        Some(governor) => answer.set(Id::Governor, governor),
        None => answer.person("load a governor that follows the load, such as schedutil"),
    })
}

/// Returns a governor that follows the load, if the driver offers one.
fn better_governor(facts: &Facts) -> Option<&'static str> {
    let offered = |name: &str| {
        facts.policies.iter().any(|policy| {
            policy
                .get("scaling_available_governors")
                .is_some_and(|list| list.split_whitespace().any(|word| word == name))
        })
    };
    ["schedutil", "ondemand", "performance"].into_iter().find(|name| offered(name))
}

fn pinned(facts: &Facts) -> Option<Answer> {
    let mut cpus = CpuList::new();
    let mut evidence = None;
    let mut any = None;
    for policy in &facts.policies {
        let (Some(min), Some(max), Some(lowest)) = (
            policy.number("scaling_min_freq"),
            policy.number("scaling_max_freq"),
            policy.number("cpuinfo_min_freq"),
        ) else {
            continue;
        };
        any.get_or_insert((policy.path("scaling_min_freq"), min.to_string()));
        // `userspace` and `performance` pin the frequency on purpose, and a CPU with one speed has
        // no choice.
        let chooses = !matches!(policy.get("scaling_governor"), Some("performance" | "userspace"));
        if min == max && max > lowest && chooses {
            cpus.extend(policy.cpus.iter());
            evidence.get_or_insert((policy.path("scaling_min_freq"), min.to_string()));
        }
    }
    if let Some((place, text)) = evidence {
        return Some(
            note(format!(
                "{}: minimum and maximum are equal, so the governor has no choice",
                cpu_words(&cpus)
            ))
            .seen(place, text)
            .set(Id::MinFreq, "min"),
        );
    }
    let (place, text) = any?;
    Some(ok("no governor that chooses a frequency has a minimum equal to its maximum").seen(place, text))
}

/// Reports a minimum between the lowest frequency and the maximum, under a governor that would use
/// lower frequencies.
fn raised(facts: &Facts) -> Option<Answer> {
    let mut groups: Vec<(String, CpuList, String, u64)> = Vec::new();
    let mut shown = None;
    let percent = percent(facts, MIN_PERF_PCT).unwrap_or(0);
    // base-freq is meant to be used with the base frequency as the minimum.
    let has_base_freq = |policy: &super::Policy| {
        let Some(Ok(levels)) = facts.levels() else { return false };
        let is_on = |cpu| levels.iter().any(|level| level.base_freq && level.cpus.contains(cpu));
        policy.cpus.first().is_some_and(is_on)
    };
    for policy in &facts.policies {
        let (Some(min), Some(max), Some(lowest), Some(governor)) = (
            policy.number("scaling_min_freq"),
            policy.number("scaling_max_freq"),
            policy.number("cpuinfo_min_freq"),
            policy.get("scaling_governor"),
        ) else {
            continue;
        };
        shown.get_or_insert((policy.path("scaling_min_freq"), min.to_string()));
        // amd-pstate (since 6.13) and cppc_cpufreq (since 7.3) set the lowest non-linear frequency
        // as the default minimum. In passive mode intel_pstate turns min_perf_pct into a minimum
        // (update_qos_requests), which conflict.perf-pct checks.
        let by_percent = policy.number("cpuinfo_max_freq").unwrap_or(0) * percent / 100;
        let by_levels = || {
            let cpu = policy.cpus.first().filter(|_| facts.driver() == Some("cppc_cpufreq"))?;
            cppc_khz(|path| facts.read(path).ok(), cpu, "lowest_nonlinear_perf").map(|khz| khz as u64)
        };
        let nonlinear = policy.number("amd_pstate_lowest_nonlinear_freq").or_else(by_levels).unwrap_or(0);
        let usual = lowest.max(nonlinear).max(by_percent);
        // A hundredth more is rounding in a table. conflict.pinned-minimum checks equal limits.
        if min * 100 <= usual * 101
            || (policy.number("base_frequency") == Some(min) && has_base_freq(policy))
            || min >= max
            || matches!(governor, "performance" | "userspace")
        {
            continue;
        }
        match groups.iter_mut().find(|(known, _, _, at)| known == governor && *at == min) {
            Some((_, cpus, ..)) => cpus.extend(policy.cpus.iter()),
            None => {
                groups.push((governor.to_owned(), policy.cpus.clone(), policy.path("scaling_min_freq"), min));
            }
        }
    }
    if let Some((governor, cpus, ..)) = groups.first() {
        let answer = note(format!(
            "{}: the minimum is raised, so {governor} cannot go as low as it would under little load",
            cpu_words(cpus)
        ));
        return Some(
            groups
                .iter()
                .take(4)
                .fold(answer, |answer, (.., place, min)| answer.seen(place.clone(), min.to_string()))
                .set(Id::MinFreq, "min"),
        );
    }
    let (place, text) = shown?;
    Some(ok("no minimum keeps a governor from low frequencies").seen(place, text))
}

/// Returns whether the driver runs in active mode. In passive mode the drivers are called
/// intel_cpufreq and amd-pstate.
pub(super) fn is_active(policy: &super::Policy) -> bool {
    matches!(policy.get("scaling_driver"), Some("intel_pstate" | "amd-pstate-epp"))
}

fn is_performance(word: &str) -> bool {
    matches!(word, "performance" | "0")
}

fn governor_epp(facts: &Facts) -> Option<Answer> {
    let mut shown = None;
    let mut lost = CpuList::new();
    for policy in &facts.policies {
        let Some(epp) = policy.get("energy_performance_preference") else { continue };
        // In passive mode the drivers accept any preference under any governor.
        if !is_active(policy) {
            continue;
        }
        if policy.get("scaling_governor") == Some("performance") && !is_performance(epp) {
            // On models whose number for performance is not 0, the register's 0 reads as `default`
            // (intel_pstate.c).
            if epp != "default" {
                lost.extend(policy.cpus.iter());
            }
        }
        shown.get_or_insert((policy.path("energy_performance_preference"), epp.to_owned()));
    }
    let (place, text) = shown?;
    Some(if lost.is_empty() {
        ok("governor and preference agree").seen(place, text)
    } else {
        note(format!(
            "{}: the preference is not the one that the performance governor sets",
            cpu_words(&lost)
        ))
        .seen(place, text)
    })
}

/// Checks `powersave`. In active mode it lets the processor choose. Otherwise it is
/// cpufreq_powersave.c, which always requests the minimum.
fn powersave(facts: &Facts) -> Option<Answer> {
    let mut shown = None;
    let mut slow = CpuList::new();
    let mut evidence = None;
    for policy in &facts.policies {
        let (Some(driver), Some(governor)) = (policy.get("scaling_driver"), policy.get("scaling_governor"))
        else {
            continue;
        };
        shown.get_or_insert((policy.path("scaling_governor"), format!("{governor} under {driver}")));
        if governor == "powersave" && !is_active(policy) {
            slow.extend(policy.cpus.iter());
            evidence.get_or_insert((policy.path("scaling_governor"), format!("powersave under {driver}")));
        }
    }
    if let Some((place, text)) = evidence {
        let better = better_governor(facts);
        let answer = warning(format!(
            "{} are held at their lowest frequency by the powersave governor",
            cpu_words(&slow)
        ))
        .seen(place, text);
        return Some(match better {
            Some(name) => answer.set(Id::Governor, name),
            None => answer,
        });
    }
    let (place, text) = shown?;
    Some(ok("no governor holds the lowest frequency").seen(place, text))
}

fn epb_epp(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let mut shown = None;
    for policy in &facts.policies {
        let Some(epp) = policy.get("energy_performance_preference") else { continue };
        let Some(cpu) = policy.cpus.intersection(&facts.online).first() else { continue };
        let Ok((epb, place)) = facts.energy_bias(cpu) else { continue };
        let fast = is_performance(epp);
        let slow = matches!(epp, "power" | "255");
        let text = format!("EPP {epp}, EPB {epb}");
        // 4 is balance-performance and 8 balance-power (energy_perf_strings in intel_epb.c). Beyond
        // these, the hints contradict each other.
        if (fast && epb >= 8) || (slow && epb <= 4) {
            return Some(
                warning(format!("preference and bias contradict each other ({text})"))
                    .seen(policy.path("energy_performance_preference"), epp)
                    .seen(place, epb.to_string())
                    .set(Id::Epb, if fast { "performance" } else { "power" }),
            );
        }
        shown.get_or_insert((text, (policy.path("energy_performance_preference"), epp), (place, epb)));
    }
    let (text, (path, epp), (place, epb)) = shown?;
    let answer = ok(format!("preference and bias do not contradict each other ({text})"));
    Some(answer.seen(path, epp).seen(place, epb.to_string()))
}

/// Compares the energy bias with an uncore that always requests its maximum, because its high
/// threshold is enabled and 0 %. Linux raises a bias of 0 to 6 at boot (intel_epb_restore() in
/// arch/x86/kernel/cpu/intel_epb.c). The bias' effect on the uncore: Intel's PerfSpect, issue 221.
fn epb_uncore(facts: &Facts) -> Option<Answer> {
    const ROOT: &str = "/sys/devices/system/cpu/intel_uncore_frequency";
    let for_latency = facts.list(ROOT).into_iter().find(|domain| {
        let is = |file: &str, value| facts.read(&format!("{ROOT}/{domain}/{file}")).as_deref() == Ok(value);
        is("elc_high_threshold_percent", "0") && is("elc_high_threshold_enable", "1")
    })?;
    let place = format!("{ROOT}/{for_latency}/elc_high_threshold_percent");
    let biases = seen!(facts.energy_biases());
    let biased: CpuList = biases.iter().filter(|(_, bias, _)| *bias != 0).map(|(cpu, ..)| *cpu).collect();
    let (_, bias, source) = biases.iter().find(|(_, bias, _)| *bias != 0).or(biases.first())?;
    let answer = if biased.is_empty() {
        ok("the energy bias leaves the uncore at its maximum, as its latency control asks")
    } else {
        warning(format!(
            "the uncore is set up for latency, but the energy bias of {} lets it slow down",
            cpu_words(&biased)
        ))
        .set(Id::Epb, "0")
    };
    Some(answer.seen(place, "0").seen(*source, bias.to_string()))
}

fn turbo(facts: &Facts) -> Option<Answer> {
    let boost = facts.read(BOOST).ok();
    let no_turbo = facts.read(NO_TURBO).ok();
    let off = facts.cpus_with("boost", "0");
    if let (Some(boost), Some(no_turbo)) = (&boost, &no_turbo)
        && boost == "1"
        && no_turbo == "1"
    {
        return Some(
            warning("boost is on, but no_turbo forbids it")
                .seen(BOOST, boost.as_str())
                .seen(NO_TURBO, no_turbo.as_str()),
        );
    }
    // Boost off on all CPUs is a choice, not a contradiction: conflict.turbo-off checks that.
    let first = facts.policies.iter().find(|policy| policy.get("boost") == Some("0"));
    if let (Some("1"), Some(first)) = (boost.as_deref(), first)
        && off.len() < facts.online.len()
    {
        return Some(
            warning(format!("boost is on for the machine but off for {}", cpu_words(&off)))
                .seen(BOOST, "1")
                .seen(first.path("boost"), "0")
                .set(Id::Boost, "on"),
        );
    }
    // A single switch cannot contradict another.
    let each = facts.policies.iter().find(|policy| policy.get("boost").is_some());
    let all = [(BOOST, boost), (NO_TURBO, no_turbo)].into_iter().filter_map(|(at, text)| Some((at, text?)));
    let mut answer = ok("the turbo switches agree");
    for (place, text) in all {
        answer = answer.seen(place, text);
    }
    if let Some(policy) = each {
        answer = answer.seen(policy.path("boost"), policy.get("boost").unwrap_or_default());
    }
    (answer.evidence.len() > 1).then_some(answer)
}
