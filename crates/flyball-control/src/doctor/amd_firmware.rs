//! Firmware settings of AMD processors that are visible in the running system, or only indirectly.
//!
//! EPYC's power limit is read through the management port (HSMP, Documentation/arch/x86/amd_hsmp.rst; its sensors are
//! drivers/platform/x86/amd/hsmp/hwmon.c since Linux 6.16).

use super::{Answer, Check, Facts, Fix, Group, Vendor, note, ok, unknown, warning};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "firmware.amd-power-limit",
        group: Group::Firmware,
        why: "A package power limit below the socket's maximum slows every load on all cores.",
        looks: "power1_cap against power1_cap_max of the amd_hsmp_hwmon sensors (Linux 6.16, driver hsmp_acpi)",
        covers: &[],
        run: power_limit,
    },
    Check {
        id: "firmware.determinism",
        group: Group::Firmware,
        why: "Under power determinism each EPYC uses all of its power and runs as fast as its silicon can, so that two sockets \
              of the same model differ. Under performance determinism they perform the same.",
        looks: "power1_input of the HSMP sensors of all sockets under load; the setting itself is not visible in the system",
        covers: &[],
        run: determinism,
    },
];

/// The HSMP sensor devices, one per socket.
fn sensors(facts: &Facts) -> Vec<String> {
    let root = "/sys/class/hwmon";
    let mut names: Vec<String> = facts.list(root);
    names.sort();
    names
        .into_iter()
        .map(|device| format!("{root}/{device}"))
        // A device whose name cannot be read may be one of them.
        .filter(|folder| facts.read(&format!("{folder}/name")).map_or(true, |name| name == "amd_hsmp_hwmon"))
        .collect()
}

fn is_epyc(facts: &Facts) -> bool {
    // HSMP exists since family 19h.
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
                "the socket's power limit is {} W; {} W are possible",
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

/// All sockets must draw this share of their limit before their powers are compared: idle sockets show nothing.
const LOADED: f64 = 0.5;
/// Sockets of the same model under the same load that differ by more than this share are not limited by power alone.
const DIFFERENT: f64 = 0.05;

fn determinism(facts: &Facts) -> Option<Answer> {
    if !is_epyc(facts) {
        return None;
    }
    let advice = || {
        Fix::Firmware(
            "look for Determinism Control (AMD CBS, NBIO, SMU): Performance for machines that perform the same and for steady benchmarks, Power \
             for the highest speed"
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
            unknown("power or performance determinism is not visible in the system: only two sockets under the same load show a hint")
                .fix(advice()),
        );
    }
    let (least, most) = powers
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(least, most), (_, now, _)| (least.min(*now), most.max(*now)));
    let answer = if most - least > DIFFERENT * most {
        note(format!(
            "loaded sockets draw {least:.0} and {most:.0} W: if their load is the same, this suggests performance determinism, in \
             which better silicon draws less power for the same speed"
        ))
    } else {
        ok(format!("loaded sockets draw about the same power ({least:.0} to {most:.0} W)"))
    };
    Some(powers.iter().take(4).fold(answer, |answer, (folder, now, _)| {
        answer.seen(format!("{folder}/power1_input"), format!("{now:.1} W"))
    }))
}
