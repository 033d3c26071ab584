//! Settings and registers that keep processors below their capability without contradicting each
//! other: turbo off, percentages, preferences of single CPUs and limits of wake-up latency.

use std::collections::BTreeMap;

use flyball_host::CpuList;

use super::{
    Answer, Check, Facts, Verdict,
    conflicts::{is_active, same_within_kind},
    facts::{BOOST, NO_TURBO, cpu_words},
    firmware::firmware_turbo,
    note, ok, unknown, warning,
};
use crate::{CoreType, FirmwareTurbo, Id};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "conflict.turbo-off",
        "Without turbo no core goes above its base frequency, however few are busy.",
        "intel_pstate/no_turbo or cpufreq/boost, and each policy's boost; not where firmware has turbo off",
        turbo_off,
    )
    .covers(&["boost"]),
    Check::new(
        "conflict.perf-pct",
        "Percentages of intel_pstate limit every CPU in addition to its own limits, and no other file shows them.",
        "intel_pstate/max_perf_pct and min_perf_pct against the range of the processor",
        perf_pct,
    ),
    Check::new(
        "conflict.epp",
        "CPUs of the same kind with different energy preferences run the same work at different speeds.",
        "energy_performance_preference of CPUs of the same kind",
        preferences,
    )
    .covers(&["energy_performance_preference"]),
    Check::new(
        "conflict.dynamic-epp",
        "With dynamic preferences amd-pstate writes the preference itself when the power supply or the platform profile changes.",
        "amd_pstate/dynamic_epp",
        dynamic_epp,
    ),
    Check::new(
        "conflict.latency-limit",
        "A limit of the wake-up latency keeps idle CPUs out of deep states, which costs power and the turbo of busy ones.",
        "power/pm_qos_resume_latency_us of every CPU",
        latency_limit,
    )
    .covers(&["cpuN/power/pm_qos_resume_latency_us"]),
];

fn turbo_off(facts: &Facts) -> Option<Answer> {
    facts.driver()?;
    // no_turbo shows the firmware's choice too (intel_pstate's update_turbo_state). firmware.turbo
    // checks that.
    if matches!(
        firmware_turbo(facts),
        FirmwareTurbo::Off { is_everywhere: true, .. } | FirmwareTurbo::NoFlag(_) | FirmwareTurbo::Absent
    ) {
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
        // acpi-cpufreq creates the switch only if it can use it (acpi_cpufreq_boost_init).
        _ => None,
    }
}

fn perf_pct(facts: &Facts) -> Option<Answer> {
    // per_cpu_perf_limits removes both files. Each CPU then has only its own limits.
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
    // The driver's default is its lowest ratio in percent of the highest (min_perf_pct_min). Hybrid
    // processors use levels that frequencies do not show, but their lowest level is never above
    // half the highest.
    let range = |policy: &super::Policy| {
        Some(policy.number("cpuinfo_min_freq")? * 100 / policy.number("cpuinfo_max_freq")?.max(1))
    };
    let hybrid = facts.policies.iter().any(|policy| policy.core_type.is_some());
    let Some(lowest) = facts.policies.iter().filter_map(range).max() else {
        return Some(unknown("no policy shows the range of its frequencies"));
    };
    let floor = if hybrid { lowest.max(50) } else { lowest };
    if min > floor + 1 {
        return Some(
            note(format!(
                "no CPU goes below {min} % of its highest performance, whatever its own minimum says"
            ))
            .seen(path("min_perf_pct"), min.to_string())
            .set(Id::MinPerfPct, "min"),
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
    // If only some policies have the performance governor, the driver forces their preferences.
    // conflict.governor checks that.
    let performance = facts.cpus_with("scaling_governor", "performance");
    let some = !facts.online.is_subset(&performance);
    let forced = |policy: &super::Policy| {
        some && is_active(policy) && policy.get("scaling_governor") == Some("performance")
    };
    let answer = same_within_kind(facts, "energy preferences", &[name], |policy| {
        policy.get(name).filter(|_| !forced(policy)).map(str::to_owned)
    })?;
    if answer.verdict != Verdict::Warning {
        return Some(answer);
    }
    // The most common word of each core type changes the fewest CPUs. Types of a hybrid processor
    // may have different preferences, which one word for all would undo.
    let mut kinds: BTreeMap<Option<CoreType>, BTreeMap<&str, usize>> = BTreeMap::new();
    for policy in facts.policies.iter().filter(|policy| !forced(policy)) {
        if let Some(word) = policy.get(name) {
            *kinds.entry(policy.core_type).or_default().entry(word).or_default() += policy.cpus.len();
        }
    }
    let mut settings = Vec::new();
    for (kind, words) in kinds.into_iter().filter(|(_, words)| words.len() > 1) {
        let Some((word, _)) = words.into_iter().max_by_key(|(_, count)| *count) else { continue };
        match kind {
            Some(kind) => settings.push(format!("epp@type:{kind}={word}")),
            None => return Some(answer.set(Id::Epp, word)),
        }
    }
    Some(answer.person(format!("flyball set {}", settings.join(" "))))
}

fn dynamic_epp(facts: &Facts) -> Option<Answer> {
    let path = "/sys/devices/system/cpu/amd_pstate/dynamic_epp";
    // Kernels before 7.1 have no such file.
    let word = facts.read(path).ok()?;
    Some(if word == "enabled" {
        note("the driver chooses the energy preference itself: one that is set does not stay")
            .seen(path, word)
            .person(format!("to choose the preference yourself: write disabled to {path}"))
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
    // 0 means no limit (pm_qos_resume_latency_us_show in drivers/base/power/sysfs.c).
    groups.remove("0");
    let place = "/sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us";
    if groups.is_empty() {
        return Some(ok("no CPU has a limit of its wake-up latency").seen(place, "0"));
    }
    let shown: Vec<String> = groups.keys().cloned().collect();
    groups.retain(|limit, cpus| !allows_every_state(facts, limit, cpus.first().unwrap_or(0)));
    if groups.is_empty() {
        return Some(ok("no limit of a wake-up latency excludes an idle state").seen(place, shown.join(" ")));
    }
    let all: CpuList = groups.values().flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
    // `n/a` is the opposite of PM_QOS_LATENCY_ANY: no latency at all (drivers/base/power/sysfs.c).
    let answer = match groups.get("n/a") {
        Some(cpus) => warning(format!(
            "{} may not leave polling while idle: their wake-up latency is set to none",
            cpu_words(cpus)
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

/// Returns whether the exit latency of every idle state of a CPU is within `limit` microseconds.
fn allows_every_state(facts: &Facts, limit: &str, cpu: u32) -> bool {
    let states = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let latencies: Option<Vec<u64>> = facts
        .list(&states)
        .iter()
        .filter(|state| state.starts_with("state"))
        .map(|state| facts.read(&format!("{states}/{state}/latency")).ok()?.parse().ok())
        .collect();
    let slowest = latencies.and_then(|latencies| latencies.into_iter().max());
    limit.parse::<u64>().ok().zip(slowest).is_some_and(|(limit, slowest)| slowest <= limit)
}
