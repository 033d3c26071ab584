//! Firmware settings of AMD processors that are visible in the running system, at least indirectly.
//!
//! EPYC's power limit is read through the management port (HSMP,
//! Documentation/arch/x86/amd_hsmp.rst; its sensors are drivers/platform/x86/amd/hsmp/hwmon.c since
//! Linux 6.16).

use super::{
    Answer, Check, Facts, Fix, Vendor,
    facts::{BOOST, cpu_words},
    note, ok, unknown, warning,
};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "firmware.amd-max-freq",
        "With boost on the driver's highest frequency is cpufreq's too; where they differ, programs see the wrong range.",
        "amd_pstate_max_freq against cpuinfo_max_freq of policies whose boost is on",
        max_freq,
    )
    .covers(&["amd_pstate_max_freq", "cpuinfo_max_freq"]),
    Check::new(
        "firmware.prefcore",
        "Preferred cores boost higher; without the ranking the scheduler puts single tasks on any core.",
        "amd_pstate/prefcore, amd_pstate_prefcore_ranking and acpi_cppc/highest_perf of every CPU, the command line",
        preferred_cores,
    ),
    Check::new(
        "firmware.amd-power-limit",
        "A package power limit below the socket's maximum slows every load on all cores.",
        "power1_cap against power1_cap_max of the amd_hsmp_hwmon sensors (Linux 6.16, driver hsmp_acpi)",
        power_limit,
    ),
    Check::new(
        "firmware.determinism",
        "Under power determinism each EPYC uses all of its power and runs as fast as its silicon can, so that two sockets \
              of the same model differ. Under performance determinism they perform the same.",
        "power1_input of the HSMP sensors of all sockets under load; the setting itself is not visible in the system",
        determinism,
    ),
];

fn is_amd_pstate(facts: &Facts) -> bool {
    facts.driver().is_some_and(|driver| driver.starts_with("amd-pstate"))
}

fn max_freq(facts: &Facts) -> Option<Answer> {
    if !is_amd_pstate(facts) {
        return None;
    }
    let boost = facts.read(BOOST).ok();
    let mut differs = flyball_host::CpuList::new();
    let mut shown = None;
    for policy in &facts.policies {
        // Without boost cpuinfo_max_freq is the nominal frequency (amd_pstate_set_boost), so the
        // two differ by design.
        let on = policy.get("boost").or(boost.as_deref()) == Some("1");
        let (Some(driver), Some(highest)) =
            (policy.number("amd_pstate_max_freq"), policy.number("cpuinfo_max_freq"))
        else {
            return Some(unknown(format!("{} cannot be read", policy.path("amd_pstate_max_freq"))));
        };
        let place = (policy.path("amd_pstate_max_freq"), format!("{driver}, cpuinfo_max_freq {highest} kHz"));
        // One percent: one is computed from levels, the other from MHz, and they round differently.
        if on && driver.abs_diff(highest) * 100 > highest {
            differs.extend(policy.cpus.iter());
            shown = Some(place);
        } else {
            shown.get_or_insert(place);
        }
    }
    let (place, text) = shown?;
    Some(if differs.is_empty() {
        ok("amd-pstate and cpufreq have the same highest frequency").seen(place, text)
    } else {
        note(format!(
            "{}: amd-pstate's highest frequency is not cpufreq's, although boost is on",
            cpu_words(&differs)
        ))
        .seen(place, text)
        .firmware("update the firmware or kernel: the levels of _CPC and the registers differ")
    })
}

fn preferred_cores(facts: &Facts) -> Option<Answer> {
    if !is_amd_pstate(facts) {
        return None;
    }
    let path = "/sys/devices/system/cpu/amd_pstate/prefcore";
    // Before 6.9 Linux has neither the file nor a ranking.
    if !super::amd_pstate::since(facts, 6, 9) {
        return None;
    }
    let state = seen!(facts.read(path));
    // The file prefcore alone does not show why it is disabled: the cores may be equal, which is
    // not a fault.
    let mut levels = std::collections::BTreeMap::new();
    for cpu in facts.online.iter() {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/highest_perf");
        match facts.read(&file).map(|text| text.parse::<u64>()) {
            Ok(Ok(level)) => {
                levels.entry(level).or_insert_with(flyball_host::CpuList::new).insert(cpu);
            }
            Ok(Err(_)) => return Some(unknown(format!("{file} does not hold a number"))),
            Err(why) => return Some(unknown(why)),
        }
    }
    let parameter = facts.parameter("amd_prefcore").filter(|value| *value == "disable");
    let best = levels.last_key_value().map(|(level, cpus)| format!("level {level} on CPUs {cpus}"));
    let seen = |answer: Answer| answer.seen(path, state.as_str());
    Some(match (state.as_str(), levels.len() > 1, parameter) {
        ("enabled", true, _) => seen(ok("the scheduler gets the ranking of the cores"))
            .seen("best cores", best.unwrap_or_default()),
        (_, false, _) => seen(ok("all cores have the same highest performance: none is preferred")),
        (_, true, Some(value)) => seen(note(
            "cores differ in their highest performance, and the command line keeps that from the scheduler",
        ))
        .seen("/proc/cmdline", format!("amd_prefcore={value}"))
        .seen("best cores", best.unwrap_or_default())
        .parameter("remove amd_prefcore=disable"),
        (_, true, None) => seen(note(
            "cores differ in their highest performance, and the scheduler is not given the ranking",
        ))
        .seen("best cores", best.unwrap_or_default())
        .firmware("look for CPPC Preferred Cores (AMD CBS, SMU options) and set it to Enabled"),
    })
}

/// Returns the HSMP sensor devices, one per socket.
fn sensors(facts: &Facts) -> Vec<String> {
    let root = "/sys/class/hwmon";
    let mut names: Vec<String> = facts.list(root);
    names.sort();
    names
        .into_iter()
        .map(|device| format!("{root}/{device}"))
        // A device whose name cannot be read may be an HSMP sensor.
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

pub(super) const REMEDY: &str = "Linux 6.16 or newer with the driver hsmp_acpi (CONFIG_AMD_HSMP_ACPI, which Debian does not \
                                 build), and HSMP enabled in firmware";

fn power_limit(facts: &Facts) -> Option<Answer> {
    if !is_epyc(facts) {
        return None;
    }
    let sensors = sensors(facts);
    match facts.first_of_packages() {
        Ok(sockets) if sensors.len() >= sockets.len() => {}
        Ok(_) => return Some(unknown(facts.missing("each socket's power limit (amd_hsmp_hwmon)", REMEDY))),
        Err(why) => return Some(unknown(why)),
    }
    let mut shown = None;
    for folder in sensors {
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
        // Report only the first socket with a lowered limit: that is enough to check the firmware
        // setup.
        if cap < most {
            let words = format!(
                "the socket's power limit is {} W; {} W are possible",
                cap / 1_000_000,
                most / 1_000_000
            );
            return Some(seen(warning(words)).firmware(
                "raise cTDP and the package power limit (AMD CBS, NBIO, SMU); a management \
                          controller may set it too",
            ));
        }
        shown.get_or_insert((folder.clone(), cap));
    }
    Some(match shown {
        Some((folder, cap)) => ok(format!("the socket's power limit is the highest, {} W", cap / 1_000_000))
            .seen(format!("{folder}/power1_cap"), cap.to_string()),
        None => unknown(facts.missing("the socket's power limit (amd_hsmp_hwmon)", REMEDY)),
    })
}

/// All sockets must draw this share of their limit before their powers are compared: idle sockets
/// prove nothing.
const LOADED: f64 = 0.5;
/// Sockets of the same model under the same load that differ by more than this share are limited by
/// more than power.
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
    // A single socket cannot be compared. The share of a cap of 0 would be infinite.
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
