//! Firmware settings that are visible in the running system: who controls P-states, turbo, C-states
//! and the energy bias.
//!
//! Register layouts: Intel's Software Developer's Manual, volume 4, as the kernel's turbostat
//! decodes them (tools/power/x86/turbostat/turbostat.c).

use crate::{FirmwareTurbo, Id, cppc::cppc_level};
use flyball_host::Epb;
use flyball_host::msr::{
    MSR_IA32_MISC_ENABLE, MSR_IA32_POWER_CTL, MSR_MISC_PWR_MGMT, MSR_PKG_CST_CONFIG_CONTROL,
};

use super::{
    Answer, Check, Facts, Fix, Vendor,
    facts::{BOOST, NO_TURBO, packages},
    models::{self, PackageLimit},
    note, ok, unknown, warning,
};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "firmware.p-state-control",
        "In native mode the system controls the speed; out of band the firmware does, and intel_pstate does not load.",
        "MSR 0x1aa bits 8 and 18, and the kernel log's 'P-states controlled by the platform'",
        p_state_control,
    ),
    Check::new(
        "firmware.turbo",
        "With turbo off in firmware no setting can raise the frequency above the base frequency.",
        "MSR 0x1a0 bit 38 and the ida flag (Intel); the cpb flag (AMD)",
        turbo,
    ),
    Check::new(
        "firmware.package-c-state",
        "A shallow limit costs idle power and turbo headroom; a deep one costs wake-up latency.",
        "MSR 0xe2 of each package, low bits, by model; bit 15 says whether it is locked",
        package_c_state,
    ),
    Check::new(
        "firmware.autonomous-c-state",
        "Autonomous core C-states turn every halt into C6 without the kernel: this saves power and adds latency.",
        "MSR 0xe2 bit 16 (Broadwell-X and -D, Skylake-X and Cascade Lake)",
        autonomous_c_state,
    ),
    Check::new(
        "firmware.c1e",
        "C1E lowers voltage and frequency: less power, but each wake-up takes a few microseconds longer. With promotion every C1 is one.",
        "MSR 0x1fc bit 1 of every CPU; name and disable of the first CPU's idle states",
        c1e,
    ),
    Check::new(
        "firmware.energy-bias",
        "The energy performance bias decides how eagerly firmware policies trade speed for power.",
        "power/energy_perf_bias of every CPU, or MSR 0x1b0; the kernel log's 'Set to normal'",
        energy_bias,
    ),
];

pub(super) fn first_cpu(facts: &Facts) -> u32 {
    facts.online.first().unwrap_or(0)
}

fn turbo(facts: &Facts) -> Option<Answer> {
    match facts.vendor {
        Vendor::Intel => Some(turbo_intel(facts)),
        Vendor::Amd => turbo_amd(facts),
        Vendor::Other => None,
    }
}

/// Returns turbo as the firmware has set it.
pub(super) fn firmware_turbo(facts: &Facts) -> FirmwareTurbo {
    let is_set = |(package, value): (u32, u64)| (package, value >> 38 & 1 == 1);
    let registers = facts.msr_of_packages(MSR_IA32_MISC_ENABLE).unwrap_or_default();
    let bits: Vec<_> = registers.into_iter().map(is_set).collect();
    let has_boost = facts.read(BOOST).is_ok();
    let level = |name: &str| cppc_level(|path| facts.read(path).ok(), first_cpu(facts), name);
    let has_equal_levels =
        || level("highest_perf").is_some_and(|highest| level("nominal_perf") == Some(highest));
    FirmwareTurbo::new(facts.vendor, |flag| facts.flag(flag), has_boost, &bits, has_equal_levels)
}

fn turbo_intel(facts: &Facts) -> Answer {
    let no_turbo = facts.read(NO_TURBO).ok();
    let place = format!("MSR {MSR_IA32_MISC_ENABLE:#x} bit 38");
    let advice = Fix::Firmware("set Turbo Mode (Intel Turbo Boost Technology) to Enabled".to_owned());
    match (firmware_turbo(facts), no_turbo.as_deref()) {
        (FirmwareTurbo::Off { packages: off, is_everywhere }, _) => {
            let on = if is_everywhere { String::new() } else { format!(" on {}", packages(&off)) };
            let seen =
                |answer: Answer, package: &u32| answer.seen(format!("{place} of package {package}"), "1");
            let answer = warning(format!("turbo is off in firmware{on}"));
            off.iter().take(4).fold(answer, seen).fix(advice)
        }
        (FirmwareTurbo::Allowed, Some(word)) => ok("firmware allows turbo").seen(NO_TURBO, word),
        (FirmwareTurbo::Allowed, None) => ok("firmware allows turbo").seen("/proc/cpuinfo flags", "ida"),
        (FirmwareTurbo::NoFlag(_) | FirmwareTurbo::Absent, _) => {
            note("the processor reports no turbo: either it has none, or firmware disables it")
                .seen("/proc/cpuinfo flags", "no ida")
                .fix(advice)
        }
    }
}

fn turbo_amd(facts: &Facts) -> Option<Answer> {
    if firmware_turbo(facts) == FirmwareTurbo::Allowed {
        return Some(ok("firmware allows boost").seen("/proc/cpuinfo flags", "cpb"));
    }
    // The flag is CPUID 80000007h EDX[9]. Zen 1 lacks it by erratum 1076, so the kernel adds it
    // there (init_amd_zen1 in arch/x86/kernel/cpu/amd.c). Without the flag acpi-cpufreq has no
    // boost file (acpi_cpufreq_boost_init).
    facts.driver()?;
    Some(
        warning("the processor reports no core performance boost")
            .seen("/proc/cpuinfo flags", "no cpb")
            .seen(BOOST, facts.read(BOOST).unwrap_or_else(|why| why.to_string()))
            .firmware("set Core Performance Boost to Auto or Enabled"),
    )
}

fn package_c_state(facts: &Facts) -> Option<Answer> {
    if !models::family_6(facts) {
        return None;
    }
    let values = seen!(facts.msr_of_packages(MSR_PKG_CST_CONFIG_CONTROL));
    let seen = |answer: Answer| {
        values.iter().fold(answer, |answer, (package, value)| {
            answer.seen(
                format!("MSR {MSR_PKG_CST_CONFIG_CONTROL:#x} of package {package}"),
                format!("{value:#x}"),
            )
        })
    };
    let mut limits: Vec<(&str, bool, Vec<u32>)> = Vec::new();
    for (package, value) in &values {
        let name = match models::package_limit(facts.model, *value) {
            Some(PackageLimit::State(name)) => name,
            Some(PackageLimit::Reserved) => {
                return Some(seen(unknown(format!(
                    "package {package} has a limit that Intel does not document"
                ))));
            }
            None => {
                return Some(seen(unknown(format!(
                    "the package C-state limits of CPU model {:#x} are not known",
                    facts.model
                ))));
            }
        };
        // Bit 15 is CFG lock: once firmware sets it, the register is read-only until the next
        // reset.
        let locked = value >> 15 & 1 == 1;
        match limits.iter_mut().find(|(known, at, _)| (*known, *at) == (name, locked)) {
            Some((.., packages)) => packages.push(*package),
            None => limits.push((name, locked, vec![*package])),
        }
    }
    let word = |locked: bool| if locked { "locked by firmware" } else { "not locked" };
    let advice = "set Package C State to Auto or C6 if idle power matters more than latency";
    let shallow = limits.iter().find(|(name, ..)| *name == "C0");
    Some(seen(match (limits.as_slice(), shallow) {
        (_, Some((name, locked, which))) => note(format!(
            "the package C-state limit of {} is {name} ({}): no idle state for the package as a whole",
            packages(which),
            word(*locked)
        ))
        .firmware(advice),
        ([(name, locked, _)], None) => ok(format!("package C-state limit {name} ({})", word(*locked))),
        _ => note("packages have different package C-state limits")
            .firmware("set Package C State to the same value for all sockets"),
    }))
}

fn autonomous_c_state(facts: &Facts) -> Option<Answer> {
    if !models::family_6(facts) || !models::converts_c_states(facts.model) {
        return None;
    }
    let value = seen!(facts.msr(first_cpu(facts), MSR_PKG_CST_CONFIG_CONTROL));
    let on = value >> 16 & 1 == 1;
    Some(
        ok(format!("autonomous core C-states are {}", if on { "on" } else { "off" }))
            .seen(format!("MSR {MSR_PKG_CST_CONFIG_CONTROL:#x} bit 16"), if on { "1" } else { "0" }),
    )
}

/// Reports automatic promotion to C1E, which turns every C1 into C1E. If it is off, intel_idle
/// requests C1E with a separate hint. intel_idle clears the bit itself (c1e_promotion_disable in
/// intel_idle.c).
fn c1e(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let values = seen!(facts.msr_everywhere(MSR_IA32_POWER_CTL));
    let on = values.iter().filter(|(_, value)| value >> 1 & 1 == 1).count();
    let state = c1e_state(facts);
    let (answer, bit) = match (on, &state) {
        (0, Some((_, disable))) if disable == "0" => {
            (ok("C1E is in use as an idle state of its own; C1 is not promoted to it"), "0")
        }
        (0, Some(_)) => (ok("C1E is a disabled idle state; C1 is not promoted to it"), "0"),
        (0, None) => (ok("C1 is not promoted to C1E"), "0"),
        _ if on == values.len() => (ok("C1 is promoted to C1E at every halt"), "1"),
        _ => (warning(format!("C1 is promoted to C1E on {on} of {} CPUs", values.len())), "mixed"),
    };
    let answer = answer.seen(format!("MSR {MSR_IA32_POWER_CTL:#x} bit 1"), bit);
    Some(match state {
        Some((path, disable)) => answer.seen(path, disable),
        None => answer,
    })
}

/// Finds the file that disables the first CPU's idle state C1E, with its text.
fn c1e_state(facts: &Facts) -> Option<(String, String)> {
    let root = format!("/sys/devices/system/cpu/cpu{}/cpuidle", first_cpu(facts));
    let is_c1e = |state: &String| facts.read(&format!("{root}/{state}/name")).is_ok_and(|name| name == "C1E");
    let path = format!("{root}/{}/disable", facts.list(&root).into_iter().find(is_c1e)?);
    let text = facts.read(&path).ok()?;
    Some((path, text))
}

fn energy_bias(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel || !facts.flag("epb") {
        return None;
    }
    let biases = seen!(facts.energy_biases());
    let mut values: std::collections::BTreeMap<u64, flyball_host::CpuList> =
        std::collections::BTreeMap::new();
    for (cpu, value, _) in &biases {
        values.entry(*value).or_default().insert(*cpu);
    }
    let &(.., place) = biases.first()?;
    if values.len() > 1 {
        let answer =
            values.iter().fold(warning("CPUs have different energy biases"), |answer, (value, cpus)| {
                answer.seen(format!("CPUs {}", cpus.short()), value.to_string())
            });
        // If two values are equally frequent, prefer the lower one: it is faster.
        let (most, _) = values.iter().rev().max_by_key(|(_, cpus)| cpus.len())?;
        return Some(answer.set(Id::Epb, most.to_string()));
    }
    let value = *values.keys().next()?;
    // intel_epb_restore raises 0, the value if firmware sets none.
    let raised = facts.log.as_deref().is_some_and(|log| log.contains("ENERGY_PERF_BIAS: Set to 'normal'"));
    let word = u8::try_from(value).ok().and_then(|value| Epb(value).word(facts.model));
    let word = word.unwrap_or("between the named values");
    let answer = if raised {
        ok(format!("energy bias {value} ({word}); the firmware set 0 and the kernel raised it"))
    } else {
        ok(format!("energy bias {value} ({word}) on every online CPU"))
    };
    Some(answer.seen(place, value.to_string()))
}

/// The bits of MSR 0x1AA by which intel_pstate recognises out-of-band control (intel_pstate.c,
/// BITMASK_OOB).
const OUT_OF_BAND: u64 = 1 << 8 | 1 << 18;

fn p_state_control(facts: &Facts) -> Option<Answer> {
    // intel_pstate checks this only on servers: no client firmware controls P-states out of band.
    if facts.vendor != Vendor::Intel || facts.family != 6 || !models::server(facts.model) {
        return None;
    }
    let advice = Fix::Firmware(
        "set Hardware P-States to Native Mode, or power management to OS control (OS DBPM), not Out of Band Mode"
            .to_owned(),
    );
    let says = "P-states controlled by the platform";
    if facts.log.as_deref().is_some_and(|log| log.contains(says)) {
        return Some(
            warning("the firmware controls P-states")
                .seen("kernel log", format!("intel_pstate: {says}"))
                .fix(advice),
        );
    }
    // intel_pstate reads the register of the CPU on which it starts. Firmware sets it alike on all
    // CPUs.
    Some(match facts.msr(first_cpu(facts), MSR_MISC_PWR_MGMT) {
        Ok(value) if value & OUT_OF_BAND != 0 => warning("the firmware controls P-states (out of band)")
            .seen("MSR 0x1aa", format!("{value:#x}"))
            .fix(advice),
        Ok(value) => ok("the system controls P-states (native)").seen("MSR 0x1aa", format!("{value:#x}")),
        // The driver checks this register before it loads.
        Err(_) if facts.is_intel_pstate() => ok("the system controls P-states: intel_pstate loads only then")
            .seen("scaling_driver", facts.driver().unwrap_or_default()),
        Err(why) => unknown(why),
    })
}
