//! Firmware settings of AMD processors that show from the running system, or that can only be hinted at.
//!
//! EPYC's power limit is the management port's (HSMP, Documentation/arch/x86/amd_hsmp.rst; its sensors are
//! drivers/platform/x86/amd/hsmp/hwmon.c since Linux 6.16).

use super::{Answer, Check, Facts, Fix, Group, Vendor, note, ok, unknown, warning};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "firmware.amd-power-limit",
        group: Group::Firmware,
        why: "A package power limit below the most that the socket may have slows every load on all cores.",
        looks: "power1_cap against power1_cap_max of the amd_hsmp_hwmon sensors (Linux 6.16, driver hsmp_acpi)",
        covers: &[],
        run: power_limit,
    },
    Check {
        id: "firmware.determinism",
        group: Group::Firmware,
        why: "Under power determinism each EPYC takes all of its power and runs as fast as its silicon can: two like sockets \
              then differ. Under performance determinism they are alike.",
        looks: "power1_input of the HSMP sensors of like sockets under load; the setting itself shows nowhere in the system",
        covers: &[],
        run: determinism,
    },
];

/// The HSMP sensor devices, one a socket.
fn sensors(facts: &Facts) -> Vec<String> {
    let root = "/sys/class/hwmon";
    let mut names: Vec<String> = facts.list(root);
    names.sort();
    names
        .into_iter()
        .map(|device| format!("{root}/{device}"))
        // One without a name may be of them.
        .filter(|folder| facts.read(&format!("{folder}/name")).map_or(true, |name| name == "amd_hsmp_hwmon"))
        .collect()
}

fn is_epyc(facts: &Facts) -> bool {
    // HSMP came with family 19h.
    facts.vendor == Vendor::Amd && facts.processor.contains("EPYC") && facts.family >= 0x19
}

fn microwatts(facts: &Facts, folder: &str, name: &str) -> Option<u64> {
    facts.read(&format!("{folder}/{name}")).ok()?.parse().ok()
}

const REMEDY: &str = "Linux 6.16 or newer, HSMP enabled in firmware, modprobe hsmp_acpi";

fn power_limit(facts: &Facts) -> Option<Answer> {
    if !is_epyc(facts) {
        return None;
    }
    let mut shown = None;
    for folder in sensors(facts) {
        let (Some(cap), Some(most)) =
            (microwatts(facts, &folder, "power1_cap"), microwatts(facts, &folder, "power1_cap_max"))
        else {
            return Some(unknown(facts.missing(&format!("the power limit of {folder}"), REMEDY)));
        };
        let seen = |answer: Answer| {
            answer
                .seen(format!("{folder}/power1_cap"), cap.to_string())
                .seen(format!("{folder}/power1_cap_max"), most.to_string())
        };
        if cap < most {
            let words = format!(
                "the socket's power limit is {} W of the {} W that it may have",
                cap / 1_000_000,
                most / 1_000_000
            );
            return Some(seen(warning(words)).fix(Fix::Firmware(
                "raise cTDP and the package power limit (AMD CBS, NBIO, SMU); a management controller may set it too".to_owned(),
            )));
        }
        shown.get_or_insert((folder.clone(), cap));
    }
    Some(match shown {
        Some((folder, cap)) => ok(format!("the socket's power limit is the highest, {} W", cap / 1_000_000))
            .seen(format!("{folder}/power1_cap"), cap.to_string()),
        None => unknown(facts.missing("the socket's power limit (amd_hsmp_hwmon)", REMEDY)),
    })
}

/// Both sockets must take this much of their limit before their powers are compared: idle sockets tell nothing.
const LOADED: f64 = 0.5;
/// Like sockets under the same load that differ by more than this do not run as if limited alike.
const APART: f64 = 0.05;

fn determinism(facts: &Facts) -> Option<Answer> {
    if !is_epyc(facts) {
        return None;
    }
    let advice = || {
        Fix::Firmware(
            "look for Determinism Control (AMD CBS, NBIO, SMU): Performance for like machines and steady benchmarks, Power for \
             the most speed"
                .to_owned(),
        )
    };
    let powers: Vec<(String, f64, f64)> = sensors(facts)
        .into_iter()
        .filter_map(|folder| {
            let [now, cap] = ["power1_input", "power1_cap"]
                .map(|name| microwatts(facts, &folder, name).map(|uw| uw as f64 / 1e6));
            Some((folder, now?, cap?))
        })
        .collect();
    let loaded = powers.len() > 1 && powers.iter().all(|(_, now, cap)| *cap > 0.0 && now / cap >= LOADED);
    if !loaded {
        return Some(
            unknown("power or performance determinism does not show from the system: only two sockets under the same load hint at it")
                .fix(advice()),
        );
    }
    let (least, most) = powers
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(least, most), (_, now, _)| (least.min(*now), most.max(*now)));
    let answer = if most - least > APART * most {
        note(format!(
            "loaded sockets take {least:.0} and {most:.0} W: if their load is the same, a hint at performance determinism, in which \
             better silicon takes less power for the same speed"
        ))
    } else {
        ok(format!("loaded sockets take about the same power ({least:.0} to {most:.0} W)"))
    };
    Some(powers.iter().take(4).fold(answer, |answer, (folder, now, _)| {
        answer.seen(format!("{folder}/power1_input"), format!("{now:.1} W"))
    }))
}
