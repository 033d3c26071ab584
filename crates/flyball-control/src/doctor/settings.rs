//! Settings and registers that keep processors below what they can do, without contradicting one
//! another: turbo off, percentages, preferences of single CPUs, limits of wake-up latency, and
//! registers that another program wrote.

use std::collections::BTreeMap;

use flyball_host::{
    CpuList,
    msr::{MSR_AMD_CPPC_REQ, MSR_HWP_REQUEST, MSR_IA32_MISC_ENABLE, MSR_PM_ENABLE},
};

use super::{
    Answer, Check, Facts, Fix, Group, Policy, Vendor, Verdict,
    conflicts::same_within_kind,
    facts::{BOOST, MAX_PERF_PCT, NO_TURBO, cpu_words},
    firmware::first_cpu,
    models, note, ok, unknown, warning,
};
use crate::Id;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "conflict.turbo-off",
        group: Group::Conflicts,
        why: "Without turbo no core goes above its base frequency, however few are busy.",
        looks: "intel_pstate/no_turbo or cpufreq/boost, and each policy's boost; not where firmware has turbo off",
        covers: &["boost"],
        run: turbo_off,
    },
    Check {
        id: "conflict.perf-pct",
        group: Group::Conflicts,
        why: "Percentages of intel_pstate limit every CPU in addition to its own limits, and no other file shows them.",
        looks: "intel_pstate/max_perf_pct and min_perf_pct against the range of the processor",
        covers: &[],
        run: perf_pct,
    },
    Check {
        id: "conflict.epp",
        group: Group::Conflicts,
        why: "CPUs of the same kind with different energy preferences run the same work at different speeds.",
        looks: "energy_performance_preference of CPUs of the same kind",
        covers: &["energy_performance_preference"],
        run: preferences,
    },
    Check {
        id: "conflict.dynamic-epp",
        group: Group::Conflicts,
        why: "With dynamic preferences amd-pstate writes the preference itself when the power supply or the platform profile changes.",
        looks: "amd_pstate/dynamic_epp",
        covers: &[],
        run: dynamic_epp,
    },
    Check {
        id: "conflict.latency-limit",
        group: Group::Conflicts,
        why: "A limit of the wake-up latency keeps idle CPUs out of deep states, which costs power and the turbo of busy ones.",
        looks: "power/pm_qos_resume_latency_us of every CPU",
        covers: &["cpuN/power/pm_qos_resume_latency_us"],
        run: latency_limit,
    },
    Check {
        id: "conflict.registers",
        group: Group::Conflicts,
        why: "A register that another program wrote is in force, and the kernel's files still show the old setting.",
        looks: "MSR 0x774 (Intel, with HWP) or 0xc00102b3 (AMD) of every CPU against energy_performance_preference and the limits",
        covers: &["energy_performance_preference", "scaling_max_freq"],
        run: registers,
    },
];

fn turbo_off(facts: &Facts) -> Option<Answer> {
    facts.driver()?;
    // Firmware's choice shows in no_turbo too (intel_pstate's update_turbo_state); firmware.turbo
    // is about that.
    let by_firmware = match facts.vendor {
        Vendor::Intel => facts
            .msr(first_cpu(facts), MSR_IA32_MISC_ENABLE)
            .map_or(!facts.flag("ida"), |value| value >> 38 & 1 == 1),
        Vendor::Amd => !facts.flag("cpb"),
        Vendor::Other => false,
    };
    if by_firmware {
        return None;
    }
    let (no_turbo, boost) = (facts.read(NO_TURBO), facts.read(BOOST));
    let cost = "so no core goes above its base frequency";
    for (path, read, off) in [(NO_TURBO, &no_turbo, "1"), (BOOST, &boost, "0")] {
        if let Ok(word) = read
            && word == off
        {
            return Some(
                warning(format!("turbo is switched off, {cost}")).seen(path, off).set(Id::Turbo, "on"),
            );
        }
    }
    let off = facts.cpus_with("boost", "0");
    if !off.is_empty() && facts.online.difference(&off).is_empty() {
        return Some(
            warning(format!("boost is off on every CPU, {cost}"))
                .seen(facts.policies.first()?.path("boost"), "0")
                .set(Id::Boost, "on"),
        );
    }
    match (no_turbo, boost) {
        (Ok(word), _) => Some(ok("turbo is on").seen(NO_TURBO, word)),
        (_, Ok(word)) if !facts.is_intel_pstate() => Some(ok("turbo is on").seen(BOOST, word)),
        (Err(why), _) if facts.is_intel_pstate() => Some(unknown(why)),
        // acpi-cpufreq presents the switch only if it can act (acpi_cpufreq_boost_init).
        _ => None,
    }
}

fn perf_pct(facts: &Facts) -> Option<Answer> {
    // per_cpu_perf_limits removes both files: each CPU then has only its own limits.
    if !facts.is_intel_pstate()
        || facts.parameter("intel_pstate").is_some_and(|words| words.contains("per_cpu_perf_limits"))
    {
        return None;
    }
    let path = |name: &str| format!("/sys/devices/system/cpu/intel_pstate/{name}");
    let number = |name: &str| {
        let text = facts.read(&path(name))?;
        text.parse::<u64>().map_err(|_| super::Unseen::from(format!("{} does not hold a number", path(name))))
    };
    let (min, max) = match (number("min_perf_pct"), number("max_perf_pct")) {
        (Ok(min), Ok(max)) => (min, max),
        (Err(why), _) | (_, Err(why)) => return Some(unknown(why)),
    };
    if max < 100 {
        return Some(
            warning(format!("every CPU is limited to {max} % of its highest performance"))
                .seen(path("max_perf_pct"), max.to_string())
                .set(Id::MaxPerfPct, "100"),
        );
    }
    // The driver starts with its lowest ratio in percent of the highest (min_perf_pct_min). Hybrid
    // processors count levels that frequencies do not show.
    let floor = facts
        .policies
        .iter()
        .filter_map(|policy| {
            Some(policy.number("cpuinfo_min_freq")? * 100 / policy.number("cpuinfo_max_freq")?.max(1))
        })
        .max();
    let hybrid = facts.policies.iter().any(|policy| policy.core_type.is_some());
    if !hybrid && floor.is_none() {
        return Some(unknown("no policy shows the range of its frequencies"));
    }
    if !hybrid && floor.is_some_and(|floor| min > floor + 1) {
        return Some(
            note(format!(
                "no CPU goes below {min} % of its highest performance, whatever its own minimum says"
            ))
            .seen(path("min_perf_pct"), min.to_string())
            .set(Id::MinPerfPct, floor.unwrap_or(0).to_string()),
        );
    }
    Some(
        ok("percentages limit no CPU")
            .seen(path("max_perf_pct"), "100")
            .seen(path("min_perf_pct"), min.to_string()),
    )
}

fn preferences(facts: &Facts) -> Option<Answer> {
    let name = "energy_performance_preference";
    let answer = same_within_kind(facts, "energy preferences", |policy| policy.get(name).map(str::to_owned))?;
    // Kinds of a hybrid processor may have preferences of their own: one word for all of them would
    // undo that.
    let hybrid = facts.policies.iter().any(|policy| policy.core_type.is_some());
    let most = facts.by_value(name).first().map(|(word, _)| word.clone());
    Some(match (answer.verdict, most) {
        (Verdict::Warning, Some(word)) if !hybrid => answer.set(Id::Epp, word),
        _ => answer,
    })
}

fn dynamic_epp(facts: &Facts) -> Option<Answer> {
    let path = "/sys/devices/system/cpu/amd_pstate/dynamic_epp";
    // Kernels before 7.1 have no such file.
    let word = facts.read(path).ok()?;
    Some(if word == "enabled" {
        note("the driver chooses the energy preference itself: one that is set does not stay")
            .seen(path, word)
            .fix(Fix::Person(format!("to choose the preference yourself: write disabled to {path}")))
    } else {
        ok("a preference that is set stays").seen(path, word)
    })
}

fn latency_limit(facts: &Facts) -> Option<Answer> {
    let mut groups: BTreeMap<String, CpuList> = BTreeMap::new();
    for cpu in facts.online.iter() {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
        match facts.read(&path) {
            Ok(text) => {
                groups.entry(text).or_default().insert(cpu);
            }
            Err(why) => return Some(unknown(why)),
        }
    }
    // 0 stands for none (pm_qos_resume_latency_us_show in drivers/base/power/sysfs.c).
    groups.remove("0");
    let place = "/sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us";
    if groups.is_empty() {
        return Some(ok("no CPU has a limit of its wake-up latency").seen(place, "0"));
    }
    let all: CpuList = groups.values().flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
    // `n/a` is PM_QOS_LATENCY_ANY's opposite: no latency at all (drivers/base/power/sysfs.c).
    let answer = match groups.get("n/a") {
        Some(cpus) => warning(format!(
            "CPUs {cpus} may not leave polling while idle: their wake-up latency is set to none"
        )),
        None => note(format!(
            "{} have a limit of their wake-up latency, which keeps them out of deeper idle states",
            cpu_words(&all)
        )),
    };
    let answer = groups.iter().take(4).fold(answer, |answer, (text, cpus)| {
        answer.seen(place.replace("cpuN", &format!("cpu{}", cpus.first().unwrap_or(0))), text.clone())
    });
    Some(answer.set(Id::LatencyLimit, "no-limit"))
}

/// Returns whether a preference word from a file and a number from a register cannot match. The
/// words' numbers differ by model (intel_epp_default, amd-pstate's epp_values), so only words far
/// from the number contradict it.
fn contradicts(word: &str, number: u64) -> bool {
    match word {
        "performance" => number > 0x40,
        "balance_performance" => number == 0 || number > 0xa0,
        "balance_power" => number < 0x41 || number == 0xff,
        "power" => number < 0xa0,
        _ => word.parse::<u64>().is_ok_and(|written| written != number),
    }
}

/// How many CPUs have each number, by their preference's word.
type NumbersOfWord = BTreeMap<String, BTreeMap<u64, usize>>;

/// Like [`contradicts`], for drivers whose numbers for a word differ by kind of core: a CPU stands
/// out if few CPUs with its word have its number.
fn stands_out(numbers: &NumbersOfWord, word: &str, number: u64) -> bool {
    if word.parse::<u64>().is_ok() {
        return contradicts(word, number);
    }
    let Some(counts) = numbers.get(word) else { return true };
    counts.get(&number).unwrap_or(&0) * 8 <= counts.values().sum()
}

/// Returns the register that holds the driver's request, if the processor looks at it.
fn request_register(facts: &Facts) -> Option<u32> {
    match facts.vendor {
        Vendor::Intel if facts.is_intel_pstate() && facts.flag("hwp_epp") => {
            // Without HWP the processor does not look at the request.
            let is_off = facts.msr(first_cpu(facts), MSR_PM_ENABLE).is_ok_and(|value| value & 1 == 0);
            (!is_off).then_some(MSR_HWP_REQUEST)
        }
        Vendor::Amd if facts.driver() == Some("amd-pstate-epp") && facts.flag("cppc") => {
            Some(MSR_AMD_CPPC_REQ)
        }
        _ => None,
    }
}

/// Returns whether a policy does not show what the register's minimum is compared with.
fn lacks_minimum(policy: &Policy) -> bool {
    ["scaling_min_freq", "scaling_governor"].iter().any(|name| policy.get(name).is_none())
}

fn registers(facts: &Facts) -> Option<Answer> {
    let register = request_register(facts)?;
    let values = match facts.msr_everywhere(register) {
        super::Sampled::Values(values) => values,
        super::Sampled::Unreadable(why) => return Some(unknown(why)),
    };
    let policy_of = |cpu| facts.policies.iter().find(|policy| policy.cpus.contains(cpu));
    let word_of =
        |policy: &Policy| policy.get("energy_performance_preference").unwrap_or_default().to_owned();
    let words_differ = models::amd_words_differ(facts);
    let mut numbers = NumbersOfWord::new();
    for (cpu, value) in &values {
        if let Some(policy) = policy_of(*cpu) {
            *numbers.entry(word_of(policy)).or_default().entry(value >> 24 & 0xff).or_default() += 1;
        }
    }
    let (mut preference, mut maximum, mut request) = (CpuList::new(), CpuList::new(), CpuList::new());
    let mut evidence = Vec::new();
    let mut without_policy = CpuList::new();
    for (cpu, value) in values {
        let Some(policy) = policy_of(cpu) else {
            without_policy.insert(cpu);
            continue;
        };
        // Bit 42: the package's register holds the request instead.
        if register == MSR_HWP_REQUEST && value >> 42 & 1 == 1 {
            continue;
        }
        let word = policy.get("energy_performance_preference").unwrap_or_default();
        // Bits 31:24 in both registers.
        let number = value >> 24 & 0xff;
        let differs =
            if words_differ { stands_out(&numbers, word, number) } else { contradicts(word, number) };
        if differs {
            preference.insert(cpu);
            evidence.push((policy.path("energy_performance_preference"), word.to_owned(), cpu, value));
        }
        let is_capped = match register {
            MSR_HWP_REQUEST => is_capped(facts, policy, value),
            _ => is_capped_amd(facts, policy, cpu, value),
        };
        if register == MSR_HWP_REQUEST && (value >> 16 & 0xff != 0 || is_raised(policy, value)) {
            // Bits 23:16 are a level that the processor is to keep, 0 leaves the choice to it.
            request.insert(cpu);
            let limit = policy.get("scaling_min_freq").unwrap_or_default().to_owned();
            evidence.push((policy.path("scaling_min_freq"), limit, cpu, value));
        }
        if is_capped {
            maximum.insert(cpu);
            let limit = policy.get("scaling_max_freq").unwrap_or_default().to_owned();
            evidence.push((policy.path("scaling_max_freq"), limit, cpu, value));
        }
    }
    let place = format!("MSR {register:#x}");
    // is_capped() compares only if nothing else lowers the maximum.
    let unread = [NO_TURBO, MAX_PERF_PCT].into_iter().find_map(|path| facts.read(path).err());
    let (what, knob) = match (preference.is_empty(), maximum.is_empty()) {
        (true, true) if !request.is_empty() => (
            format!("{}: the register asks for a level or a minimum that no file shows", cpu_words(&request)),
            "min-freq",
        ),
        (true, true) if !without_policy.is_empty() => {
            return Some(unknown(format!("{}: the policy is not known", cpu_words(&without_policy))));
        }
        (true, true) if register == MSR_HWP_REQUEST && unread.is_some() => return unread.map(unknown),
        (true, true) if register == MSR_HWP_REQUEST && facts.policies.iter().any(lacks_minimum) => {
            return Some(unknown("scaling_min_freq or scaling_governor of a policy cannot be read"));
        }
        (true, true) => return Some(ok("the registers have what the files show").seen(place, "every CPU")),
        (false, _) => (
            format!("{}: the preference in force is not the one that the file shows", cpu_words(&preference)),
            "epp",
        ),
        _ => (
            format!("{}: the maximum in force is below the one that the file shows", cpu_words(&maximum)),
            "max-freq",
        ),
    };
    let answer = evidence.into_iter().take(3).fold(warning(what), |answer, (path, text, cpu, value)| {
        answer.seen(path, text).seen(format!("{place} of CPU {cpu}"), format!("{value:#x}"))
    });
    Some(answer.fix(Fix::Person(format!(
        "another program wrote the register: stop it, then set {knob} to another value and back, so that the kernel writes it again"
    ))))
}

/// Returns whether the highest level in amd-pstate's request register is more than a tenth below
/// the policy's maximum. The driver converts with the nominal level and frequency (freq_to_perf in
/// amd-pstate.c). Without these the answer is no.
fn is_capped_amd(facts: &Facts, policy: &Policy, cpu: u32, request: u64) -> bool {
    let cppc = |name: &str| {
        let text = facts.read(&format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/{name}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|number| *number > 0)
    };
    let level = request & 0xff;
    let numbers = (policy.number("scaling_max_freq"), cppc("nominal_perf"), cppc("nominal_freq"));
    let (Some(limit), Some(perf), Some(mhz), Some(highest)) =
        (numbers.0, numbers.1, numbers.2, cppc("highest_perf"))
    else {
        return false;
    };
    let asked = (limit * perf / (mhz * 1000)).min(highest);
    level > 0 && level * 10 < asked * 9
}

/// Returns whether the request's lowest ratio (bits 7:0) is above the policy's minimum. Levels of
/// hybrid processors are not ratios, and the performance governor sets the minimum to the maximum.
fn is_raised(policy: &Policy, request: u64) -> bool {
    if policy.core_type.is_some() || matches!(policy.get("scaling_governor"), None | Some("performance")) {
        return false;
    }
    let khz = (request & 0xff) * 100_000;
    policy.number("scaling_min_freq").is_some_and(|limit| khz > limit + 200_000)
}

/// Returns whether the request's highest ratio is below the policy's maximum. Levels of hybrid
/// processors are not ratios. With turbo off or a percentage limit, the driver itself asks for
/// less.
fn is_capped(facts: &Facts, policy: &Policy, request: u64) -> bool {
    if policy.core_type.is_some()
        || facts.read(NO_TURBO).map_or(true, |word| word != "0")
        || facts.read(MAX_PERF_PCT).map_or(true, |word| word != "100")
    {
        return false;
    }
    // Bits 15:8 are the highest ratio (HWP_MAX_PERF), which the driver rounds a limit to.
    let khz = (request >> 8 & 0xff) * 100_000;
    policy.number("scaling_max_freq").is_some_and(|limit| khz > 0 && khz + 100_000 < limit)
}
