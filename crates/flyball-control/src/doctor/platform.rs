//! The firmware's and the board's choices for the whole machine: the platform profile, and whether
//! all processors are equal.

use std::collections::BTreeMap;

use flyball_host::CpuList;

use crate::Id;

use super::{Answer, Check, Facts, facts::cpu_words, note, ok, unknown, warning};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "firmware.platform-profile",
        "The platform's profile sets power limits and fan curves in the firmware, below all settings of the kernel.",
        "/sys/firmware/acpi/platform_profile",
        platform_profile,
    ),
    Check::new(
        "conflict.platform-profile",
        "Each profile device sets its own part of the firmware; devices with different profiles work against each other.",
        "/sys/class/platform-profile/*/profile",
        profile_devices,
    ),
    Check::new(
        "conflict.scheduler",
        "schedutil follows what a sched_ext scheduler asks for. One that takes all tasks and asks for nothing keeps CPUs at their highest frequency.",
        "/sys/kernel/sched_ext/root/ops and switch_all, scaling_governor",
        scheduler,
    )
    .covers(&["scaling_governor"]),
    Check::new(
        "firmware.same-processors",
        "CPUs of different steppings or with different microcode run the same work at different speeds.",
        "model, stepping and microcode of every CPU in /proc/cpuinfo",
        same_processors,
    ),
];

fn platform_profile(facts: &Facts) -> Option<Answer> {
    let path = "/sys/firmware/acpi/platform_profile";
    // Only machines whose firmware has profiles have the file.
    let profile = facts.read(path).ok()?;
    Some(match profile.as_str() {
        "low-power" | "quiet" | "cool" => {
            note(format!("the platform's profile is {profile}: firmware lowers power limits for it"))
                .seen(path, profile)
                .set(Id::PlatformProfile, "balanced")
        }
        _ => ok(format!("the platform's profile is {profile}")).seen(path, profile),
    })
}

fn profile_devices(facts: &Facts) -> Option<Answer> {
    const DEVICES: &str = "/sys/class/platform-profile";
    let folders = facts.list(DEVICES);
    // A single device cannot differ. The class was added in kernel 6.14.
    if folders.len() < 2 {
        return None;
    }
    let mut profiles = Vec::with_capacity(folders.len());
    for folder in folders {
        let path = format!("{DEVICES}/{folder}/profile");
        let profile = seen!(facts.read(&path));
        profiles.push((path, profile));
    }
    let is_same = profiles.windows(2).all(|pair| pair[0].1 == pair[1].1);
    let answer = if is_same {
        ok("all profile devices have the same profile")
    } else {
        warning("profile devices have different profiles: platform-profile shows custom")
            .person("set one profile for all: flyball set platform-profile=balanced")
    };
    Some(profiles.into_iter().fold(answer, |answer, (path, profile)| answer.seen(path, profile)))
}

/// Schedulers that call scx_bpf_cpuperf_set (the scx repository, August 2026). `ops` begins with
/// one of these names.
const ASK_FOR_FREQUENCY: [&str; 9] =
    ["lavd", "bpfland", "cosmos", "flash", "layered", "rusty", "p2dq", "chaos", "flow"];

fn scheduler(facts: &Facts) -> Option<Answer> {
    let path = "/sys/kernel/sched_ext/root/ops";
    // The file exists only while a scheduler is loaded.
    let ops = facts.read(path).ok()?;
    let governors = facts.policies.iter().map(|policy| policy.get("scaling_governor"));
    let is_schedutil = governors.flatten().any(|governor| governor == "schedutil");
    // If a scheduler handles only some tasks, the kernel's own estimate remains for the others
    // (sugov_get_util in kernel/sched/cpufreq_schedutil.c).
    let takes_all = seen!(facts.read("/sys/kernel/sched_ext/switch_all")) == "1";
    let asks = ASK_FOR_FREQUENCY.iter().any(|name| ops.starts_with(name));
    Some(if is_schedutil && takes_all && !asks {
        warning(format!(
            "{ops} is not known to ask for frequencies: schedutil may keep CPUs at their highest"
        ))
        .seen(path, ops)
        .person("use the driver's active mode, another governor, or a scheduler that asks for frequencies")
    } else {
        ok(format!("{ops} and the governor do not contradict each other")).seen(path, ops)
    })
}

fn same_processors(facts: &Facts) -> Option<Answer> {
    let path = "/proc/cpuinfo";
    let text = seen!(facts.read(path));
    // Core types of a hybrid processor are on dies of one stepping, so the kernel loads one
    // microcode for them.
    let mut parts: BTreeMap<String, BTreeMap<String, CpuList>> = BTreeMap::new();
    for block in text.split("\n\n") {
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        let Some(cpu) = field("processor").and_then(|number| number.parse().ok()) else { continue };
        // Arm cores are of one type if implementer and part are equal.
        let part = field("CPU part").unwrap_or_default().to_owned();
        let names =
            ["model", "stepping", "microcode", "CPU implementer", "CPU part", "CPU variant", "CPU revision"];
        let fields = names.map(|name| (name, field(name)));
        let known: Vec<String> =
            fields.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?))).collect();
        if !known.is_empty() {
            parts.entry(part).or_default().entry(known.join(", ")).or_default().insert(cpu);
        }
    }
    let all = parts.values().flat_map(BTreeMap::values);
    let known: CpuList = all.flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
    let missing = facts.online.difference(&known);
    let each = if parts.len() > 1 { "every CPU of a part has one stepping, such as" } else { "every CPU is" };
    // The part whose cores differ, else any.
    let differing = parts.values().position(|kinds| kinds.len() > 1).unwrap_or(0);
    let kinds = parts.into_values().nth(differing).unwrap_or_default();
    let mut kinds: Vec<(String, CpuList)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, cpus)| std::cmp::Reverse(cpus.len()));
    match kinds.as_slice() {
        [(kind, _)] if missing.is_empty() => Some(ok(format!("{each} {kind}")).seen(path, kind.clone())),
        [] | [_] => Some(unknown(format!("{path} does not describe {}", cpu_words(&missing)))),
        [_, others @ ..] => {
            let rare: CpuList = others.iter().flat_map(|(_, cpus)| cpus.iter().collect::<Vec<_>>()).collect();
            let answer =
                warning(format!("{} differ from the other CPUs in stepping or microcode", cpu_words(&rare)));
            let seen = |answer: Answer, (kind, cpus): &(String, CpuList)| {
                answer.seen(format!("{path}, {}", cpu_words(cpus)), kind.clone())
            };
            Some(kinds.iter().take(4).fold(answer, seen).person(
                "load the newest microcode on all CPUs (an early update, then a boot); different \
                        steppings need \
                 processors of one kind",
            ))
        }
    }
}
