//! What the firmware and the board choose for the whole machine: the platform's profile, and
//! whether all processors are the same.

use std::collections::BTreeMap;

use flyball_host::CpuList;

use super::{Answer, Check, Facts, Fix, Group, facts::cpu_words, note, ok, unknown, warning};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "firmware.platform-profile",
        group: Group::Firmware,
        why: "The platform's profile sets power limits and fan curves in the firmware, below all settings of the kernel.",
        looks: "/sys/firmware/acpi/platform_profile",
        covers: &[],
        run: platform_profile,
    },
    Check {
        id: "firmware.same-processors",
        group: Group::Firmware,
        why: "CPUs of different steppings or with different microcode run the same work at different speeds.",
        looks: "model, stepping and microcode of every CPU in /proc/cpuinfo",
        covers: &[],
        run: same_processors,
    },
];

fn platform_profile(facts: &Facts) -> Option<Answer> {
    let path = "/sys/firmware/acpi/platform_profile";
    // Only machines whose firmware has profiles have the file.
    let profile = facts.read(path).ok()?;
    Some(match profile.as_str() {
        "low-power" | "quiet" | "cool" => {
            note(format!("the platform's profile is {profile}: firmware lowers power limits for it"))
                .seen(path, profile)
                .fix(Fix::Person(format!(
                    "choose another profile if speed matters: powerprofilesctl set balanced, or write balanced to {path}"
                )))
        }
        _ => ok(format!("the platform's profile is {profile}")).seen(path, profile),
    })
}

fn same_processors(facts: &Facts) -> Option<Answer> {
    let path = "/proc/cpuinfo";
    let text = match facts.read(path) {
        Ok(text) => text,
        Err(why) => return Some(unknown(why)),
    };
    // Kinds of a hybrid processor are dies of one stepping: the kernel loads one microcode for
    // them.
    let mut kinds: BTreeMap<String, CpuList> = BTreeMap::new();
    for block in text.split("\n\n") {
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        let Some(cpu) = field("processor").and_then(|number| number.parse().ok()) else { continue };
        let fields = ["model", "stepping", "microcode"].map(|name| (name, field(name)));
        let known: Vec<String> =
            fields.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?))).collect();
        if !known.is_empty() {
            kinds.entry(known.join(", ")).or_default().insert(cpu);
        }
    }
    let known: CpuList = kinds.values().flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
    let missing = facts.online.difference(&known);
    let mut kinds: Vec<(String, CpuList)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, cpus)| std::cmp::Reverse(cpus.len()));
    match kinds.as_slice() {
        [(kind, _)] if missing.is_empty() => {
            Some(ok(format!("every CPU is {kind}")).seen(path, kind.clone()))
        }
        [] | [_] => Some(unknown(format!("{path} does not describe {}", cpu_words(&missing)))),
        [_, others @ ..] => {
            let rare: CpuList = others.iter().flat_map(|(_, cpus)| cpus.iter().collect::<Vec<_>>()).collect();
            let answer =
                warning(format!("{} differ from the other CPUs in stepping or microcode", cpu_words(&rare)));
            let seen = |answer: Answer, (kind, cpus): &(String, CpuList)| {
                answer.seen(format!("{path}, {}", cpu_words(cpus)), kind.clone())
            };
            Some(kinds.iter().take(4).fold(answer, seen).fix(Fix::Person(
                "load the newest microcode on all CPUs (an early update, then a boot); different steppings need \
                 processors of one kind"
                    .to_owned(),
            )))
        }
    }
}
