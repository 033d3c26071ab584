//! StorPool's page on Xeon Scalable processors: hardware P-states native, autonomous C-states on
//! (off on the second generation), energy bias 15, governor powersave. Storage latency rises by
//! about 7 microseconds (60 to 67) and power falls by about 50 W (150 to 100), as measured there on
//! a Xeon Gold 6138 with Linux 3.10.

use super::{Answer, Check, Facts, Fix, KnobValue, Vendor, facts::NO_CPU_ONLINE, note, ok, unknown, warning};
use crate::Id;
use flyball_host::msr::{MSR_PKG_CST_CONFIG_CONTROL, MSR_PM_ENABLE};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "storpool.hwp",
        "The page's main change: the processor changes its speed itself, faster than the kernel could.",
        "the hwp flag and MSR 0x770 bit 0, on Xeon Scalable of generations 1 and 2",
        hwp,
    ),
    Check::new(
        "storpool.autonomous-c-state",
        "The page enables autonomous core C-states on the first generation and disables them on the second.",
        "MSR 0xe2 bit 16",
        autonomous_c_state,
    ),
    Check::new(
        "storpool.energy-bias",
        "Bias 15 lets the firmware save power between bursts; on the page, latency rose from 60 to 67 us and power fell from 150 to 100 W.",
        "power/energy_perf_bias of every CPU",
        energy_bias,
    )
    .covers(&["cpuN/power/energy_perf_bias"]),
    Check::new(
        "storpool.governor",
        "With hardware P-states the powersave governor lets the processor choose within the limits.",
        "scaling_governor of every policy",
        governor,
    )
    .covers(&["scaling_governor"]),
];

/// Returns the generation of Xeon Scalable: model 55h is Skylake up to stepping 4 (first), Cascade
/// Lake from 5 to 7 (second).
fn generation(facts: &Facts) -> Option<u32> {
    let server = facts.vendor == Vendor::Intel && facts.family == 6 && facts.model == 0x55;
    server.then_some(if facts.stepping <= 4 { 1 } else { 2 })
}

fn not_covered(facts: &Facts) -> Option<Answer> {
    generation(facts).is_none().then(|| {
        unknown(format!("the page covers Xeon Scalable generations 1 and 2; this is {}", facts.processor))
    })
}

fn hwp(facts: &Facts) -> Option<Answer> {
    // Only this check reports that the page does not cover the machine.
    if let Some(answer) = not_covered(facts) {
        return Some(answer);
    }
    let advice = Fix::Firmware("set Hardware PM State Control, Hardware P-States to Native Mode".to_owned());
    let seen =
        |answer: Answer| answer.seen("/proc/cpuinfo flags", if facts.flag("hwp") { "hwp" } else { "no hwp" });
    Some(match facts.online.first().map(|cpu| facts.msr(cpu, MSR_PM_ENABLE)) {
        // HWP_ENABLE: only a reset clears it (Intel SDM 3, IA32_PM_ENABLE).
        Some(Ok(value)) if value & 1 == 1 => {
            ok("hardware P-states are on").seen("MSR 0x770", format!("{value:#x}"))
        }
        Some(Ok(value)) => {
            warning("hardware P-states are off").seen("MSR 0x770", format!("{value:#x}")).fix(advice)
        }
        // Check the flag before the error: without it the register does not exist.
        _ if !facts.flag("hwp") => {
            seen(warning("hardware P-states are not offered by the firmware")).fix(advice)
        }
        Some(Err(why)) => seen(unknown(why)),
        None => seen(unknown(NO_CPU_ONLINE)),
    })
}

fn autonomous_c_state(facts: &Facts) -> Option<Answer> {
    let generation = generation(facts)?;
    let expected = generation == 1;
    let word = |on: bool| if on { "on" } else { "off" };
    Some(match facts.online.first().map(|cpu| facts.msr(cpu, MSR_PKG_CST_CONFIG_CONTROL)) {
        Some(Ok(value)) => {
            let on = value >> 16 & 1 == 1;
            let answer = if on == expected {
                ok(format!(
                    "autonomous core C-states are {}, as the page recommends for generation {generation}",
                    word(on)
                ))
            } else {
                warning(format!(
                    "autonomous core C-states are {}; for generation {generation} the page recommends {}",
                    word(on),
                    word(expected)
                ))
                .firmware(format!(
                    "set CPU C State Control, Autonomous Core C-State to {}",
                    if expected { "Enabled" } else { "Disabled" }
                ))
            };
            answer.seen("MSR 0xe2 bit 16", if on { "1" } else { "0" })
        }
        Some(Err(why)) => unknown(why),
        None => unknown(NO_CPU_ONLINE),
    })
}

fn energy_bias(facts: &Facts) -> Option<Answer> {
    generation(facts)?;
    let biases = seen!(facts.energy_biases());
    // The first CPU that deviates, else any.
    let &(_, value, place) = biases.iter().find(|(_, value, _)| *value != 15).or(biases.first())?;
    let answer = if value == 15 {
        ok("the energy bias is 15 on every online CPU")
    } else {
        warning(format!("the energy bias is {value}; the page recommends 15")).set(Id::Epb, "power")
    };
    Some(answer.seen(place, value.to_string()))
}

fn governor(facts: &Facts) -> Option<Answer> {
    generation(facts)?;
    let groups = facts.by_value("scaling_governor");
    if groups.is_empty() {
        return Some(unknown("no governor can be read"));
    }
    let active = facts.driver() == Some("intel_pstate");
    Some(match groups.iter().find(|(governor, _)| governor != "powersave") {
        None => ok("the governor is powersave").seen("scaling_governor", "powersave"),
        // In passive mode powersave would pin the lowest frequency. The page assumes hardware
        // P-states. Without them a governor has to follow the load, as in the profile.
        Some((governor, cpus)) if !active && !facts.flag("hwp") => ok(format!(
            "the governor is {governor}; powersave is meant for hardware P-states, which are not offered"
        ))
        .seen(format!("CPUs {}", cpus.short()), governor.clone())
        .seen("/proc/cpuinfo flags", "no hwp"),
        Some((governor, cpus)) if !active => note(format!(
            "the governor is {governor}; the page's powersave is meant for intel_pstate's active mode"
        ))
        .seen(format!("CPUs {}", cpus.short()), governor.clone())
        .fix(Fix::Settings(vec![
            KnobValue::new(Id::DriverMode, "active"),
            KnobValue::new(Id::Governor, "powersave"),
        ])),
        Some((governor, cpus)) => {
            warning(format!("the governor is {governor}; the page recommends powersave"))
                .seen(format!("CPUs {}", cpus.short()), governor.clone())
                .set(Id::Governor, "powersave")
        }
    })
}
