//! Firmware settings that are visible in the running system.
//!
//! Register layouts: Intel's Software Developer's Manual, volume 4, as the kernel's turbostat decodes them
//! (tools/power/x86/turbostat/turbostat.c).

use flyball_host::msr::{
    MSR_CONFIG_TDP_CONTROL, MSR_IA32_ENERGY_PERF_BIAS, MSR_IA32_MISC_ENABLE, MSR_IA32_POWER_CTL,
    MSR_MISC_PWR_MGMT, MSR_PKG_CST_CONFIG_CONTROL, MSR_PKG_POWER_INFO, MSR_PKG_POWER_LIMIT,
    MSR_PLATFORM_INFO, MSR_RAPL_POWER_UNIT,
};
use flyball_host::{Epb, Kind};

use super::{Answer, Check, Facts, Fix, Group, Sampled, Vendor, note, ok, unknown, warning};
use crate::Id;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "firmware.p-state-control",
        group: Group::Firmware,
        why: "In native mode the system controls the speed; out of band the firmware does, and intel_pstate does not load.",
        looks: "MSR 0x1aa bits 8 and 18, and the kernel log's 'P-states controlled by the platform'",
        covers: &[],
        run: p_state_control,
    },
    Check {
        id: "firmware.turbo",
        group: Group::Firmware,
        why: "With turbo off in firmware no setting can raise the frequency above the base frequency.",
        looks: "MSR 0x1a0 bit 38 and the ida flag (Intel); the cpb flag (AMD)",
        covers: &[],
        run: turbo,
    },
    Check {
        id: "firmware.package-c-state",
        group: Group::Firmware,
        why: "A shallow limit costs idle power and turbo headroom; a deep one costs wake-up latency.",
        looks: "MSR 0xe2, low bits, by model; bit 15 says whether it is locked",
        covers: &[],
        run: package_c_state,
    },
    Check {
        id: "firmware.autonomous-c-state",
        group: Group::Firmware,
        why: "Autonomous core C-states turn every halt into C6 without the kernel: this saves power and adds latency.",
        looks: "MSR 0xe2 bit 16 (Broadwell-X, Skylake-X and Cascade Lake)",
        covers: &[],
        run: autonomous_c_state,
    },
    Check {
        id: "firmware.c1e",
        group: Group::Firmware,
        why: "C1E lowers the frequency at every halt: less power, but each wake-up takes a few microseconds longer.",
        looks: "MSR 0x1fc bit 1 of every CPU",
        covers: &[],
        run: c1e,
    },
    Check {
        id: "firmware.energy-bias",
        group: Group::Firmware,
        why: "The energy performance bias decides how eagerly firmware policies trade speed for power.",
        looks: "power/energy_perf_bias of every CPU, or MSR 0x1b0; the kernel log's 'Set to normal'",
        covers: &[],
        run: energy_bias,
    },
    Check {
        id: "firmware.power-limit",
        group: Group::Firmware,
        why: "A sustained power limit below the processor's rating slows every long load.",
        looks: "MSR 0x610 against 0x614, or the constraints of powercap's package zones",
        covers: &[],
        run: power_limit,
    },
    Check {
        id: "firmware.bios-limit",
        group: Group::Firmware,
        why: "A limit from the firmware (_PPC) caps the frequency regardless of all settings.",
        looks: "bios_limit against scaling_available_frequencies (acpi-cpufreq)",
        covers: &["bios_limit", "cpuinfo_max_freq"],
        run: bios_limit,
    },
    Check {
        id: "firmware.uncore",
        group: Group::Firmware,
        why: "The uncore clock drives caches, mesh and memory: a fixed or lowered range changes latency and power.",
        looks: "min_freq_khz, max_freq_khz and initial_max_freq_khz of intel_uncore_frequency",
        covers: &[],
        run: uncore,
    },
    Check {
        id: "firmware.speed-select",
        group: Group::Firmware,
        why: "A locked performance level cannot be changed from the running system.",
        looks: "MSR 0x64b bit 31, where MSR 0xce has several levels",
        covers: &[],
        run: speed_select,
    },
    Check {
        id: "firmware.bd-prochot",
        group: Group::Firmware,
        why: "With bi-directional PROCHOT a power supply or controller can slow the processor; without it, they cannot.",
        looks: "MSR 0x1fc bit 0 of every CPU",
        covers: &[],
        run: bd_prochot,
    },
    Check {
        id: "firmware.smt",
        group: Group::Firmware,
        why: "SMT doubles the CPUs; siblings share a core's speed and disturb each other's latency.",
        looks: "smt/control",
        covers: &[],
        run: smt,
    },
];

fn first_cpu(facts: &Facts) -> u32 {
    facts.online.first().unwrap_or(0)
}

fn turbo(facts: &Facts) -> Option<Answer> {
    match facts.vendor {
        Vendor::Intel => Some(turbo_intel(facts)),
        Vendor::Amd => turbo_amd(facts),
        Vendor::Other => None,
    }
}

fn turbo_intel(facts: &Facts) -> Answer {
    let no_turbo = facts.read("/sys/devices/system/cpu/intel_pstate/no_turbo").ok();
    // The kernel clears the ida flag if firmware sets bit 38 of IA32_MISC_ENABLE (arch/x86/kernel/cpu/intel.c).
    let place = format!("MSR {MSR_IA32_MISC_ENABLE:#x} bit 38");
    let off = match facts.msr(first_cpu(facts), MSR_IA32_MISC_ENABLE) {
        Ok(value) => Some(value >> 38 & 1 == 1),
        Err(_) if facts.flag("ida") => Some(false),
        Err(_) => None,
    };
    let advice = Fix::Firmware("set Turbo Mode (Intel Turbo Boost Technology) to Enabled".to_owned());
    match (off, no_turbo.as_deref()) {
        (Some(true), _) => warning("turbo is off in firmware").seen(place, "1").fix(advice),
        (Some(false), Some(word)) => {
            ok("firmware allows turbo").seen("/sys/devices/system/cpu/intel_pstate/no_turbo", word)
        }
        (Some(false), None) => ok("firmware allows turbo")
            .seen("/proc/cpuinfo flags", if facts.flag("ida") { "ida" } else { "no ida" }),
        (None, _) => note("the processor reports no turbo: either it has none, or firmware disables it")
            .seen("/proc/cpuinfo flags", "no ida")
            .fix(advice),
    }
}

fn turbo_amd(facts: &Facts) -> Option<Answer> {
    let boost = "/sys/devices/system/cpu/cpufreq/boost";
    if facts.flag("cpb") {
        return Some(ok("firmware allows boost").seen("/proc/cpuinfo flags", "cpb"));
    }
    // The kernel clears cpb when firmware sets HWCR bit 25 (arch/x86/kernel/cpu/amd.c, on some families).
    facts.driver()?;
    Some(
        warning("the processor reports no core performance boost")
            .seen("/proc/cpuinfo flags", "no cpb")
            .seen(boost, facts.read(boost).unwrap_or_else(|why| why))
            .fix(Fix::Firmware("set Core Performance Boost to Auto or Enabled".to_owned())),
    )
}

/// Names of the package C-state limits by the low bits of MSR 0xE2; `None` for a model whose table is not known.
fn package_limit(model: u32, value: u64) -> Option<&'static str> {
    const CLIENT: [&str; 9] = ["C0", "C2", "C3", "C6", "C7", "C7s", "C8", "C9", "unlimited"];
    const SERVER: [&str; 8] = [
        "C0",
        "C2",
        "C6 without retention",
        "C6 with retention",
        "reserved",
        "reserved",
        "reserved",
        "unlimited",
    ];
    const ATOM_SERVER: [&str; 3] = ["C0", "C2", "C6"];
    let index = value as usize;
    let name = match model {
        // Skylake-X, Ice Lake-X and -D, Sapphire and Emerald Rapids.
        0x55 | 0x6a | 0x6c | 0x8f | 0xcf => SERVER.get(index & 7),
        // Granite Rapids, Sierra Forest.
        0xad..=0xaf => ATOM_SERVER.get(index & 7),
        // Haswell to Raptor Lake clients, Broadwell servers.
        0x3c | 0x3f | 0x45 | 0x46 | 0x3d | 0x47 | 0x4f | 0x56 | 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6
        | 0x7d | 0x7e | 0x8c | 0x8d | 0x97 | 0x9a | 0xb7 | 0xba | 0xbf => CLIENT.get(index & 15),
        _ => None,
    }?;
    Some(name)
}

fn package_c_state(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let value = match facts.msr(first_cpu(facts), MSR_PKG_CST_CONFIG_CONTROL) {
        Ok(value) => value,
        Err(why) => return Some(unknown(why)),
    };
    let locked = if value >> 15 & 1 == 1 { "locked by firmware" } else { "not locked" };
    let place = format!("MSR {MSR_PKG_CST_CONFIG_CONTROL:#x}");
    let Some(name) = package_limit(facts.model, value) else {
        return Some(
            unknown(format!("the package C-state limits of CPU model {:#x} are not known", facts.model))
                .seen(place, format!("{value:#x}")),
        );
    };
    let answer = if matches!(name, "C0") {
        note(format!("packages never enter an idle state: the limit is {name} ({locked})")).fix(
            Fix::Firmware(
                "set Package C State to Auto or C6 if idle power matters more than latency".to_owned(),
            ),
        )
    } else {
        ok(format!("package C-state limit {name} ({locked})"))
    };
    Some(answer.seen(place, format!("{value:#x}")))
}

fn autonomous_c_state(facts: &Facts) -> Option<Answer> {
    // Bit 16 is automatic C-state conversion on Broadwell-X and Skylake-X (automatic_cstate_conversion_probe).
    if facts.vendor != Vendor::Intel || !matches!(facts.model, 0x4f | 0x55) {
        return None;
    }
    let value = match facts.msr(first_cpu(facts), MSR_PKG_CST_CONFIG_CONTROL) {
        Ok(value) => value,
        Err(why) => return Some(unknown(why)),
    };
    let on = value >> 16 & 1 == 1;
    Some(
        ok(format!("autonomous core C-states are {}", if on { "on" } else { "off" }))
            .seen(format!("MSR {MSR_PKG_CST_CONFIG_CONTROL:#x} bit 16"), if on { "1" } else { "0" }),
    )
}

fn c1e(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    Some(match facts.msr_everywhere(MSR_IA32_POWER_CTL) {
        Sampled::Unreadable(why) => unknown(why),
        Sampled::Values(values) => {
            let on = values.iter().filter(|(_, value)| value >> 1 & 1 == 1).count();
            let place = format!("MSR {MSR_IA32_POWER_CTL:#x} bit 1");
            if on == 0 {
                ok("C1E is off").seen(place, "0")
            } else if on == values.len() {
                ok("C1E is on").seen(place, "1")
            } else {
                warning(format!("C1E is on for {on} of {} CPUs", values.len())).seen(place, "mixed")
            }
        }
    })
}

fn energy_bias(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel || !facts.flag("epb") {
        return None;
    }
    let mut values: std::collections::BTreeMap<u64, flyball_host::CpuList> =
        std::collections::BTreeMap::new();
    for cpu in facts.online.iter() {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/power/energy_perf_bias");
        let value = match facts.read(&path).map(|text| text.parse::<u64>()) {
            Ok(Ok(value)) => value,
            Ok(Err(_)) => return Some(unknown(format!("{path} does not hold a number"))),
            Err(_) => match facts.msr(cpu, MSR_IA32_ENERGY_PERF_BIAS) {
                Ok(value) => value & 0xf,
                Err(why) => return Some(unknown(why)),
            },
        };
        values.entry(value).or_default().insert(cpu);
    }
    let place = "/sys/devices/system/cpu/cpuN/power/energy_perf_bias";
    if values.len() > 1 {
        return Some(
            values.iter().fold(warning("CPUs have different energy biases"), |answer, (value, cpus)| {
                answer.seen(format!("CPUs {cpus}"), value.to_string())
            }),
        );
    }
    let value = *values.keys().next()?;
    let raised = facts.log.as_deref().is_some_and(|log| log.contains("ENERGY_PERF_BIAS: Set to 'normal'"));
    let word =
        u8::try_from(value).ok().and_then(|value| Epb(value).word()).unwrap_or("between the named values");
    let answer = if raised {
        ok(format!("energy bias {value} ({word}); the firmware set 0 and the kernel raised it"))
    } else {
        ok(format!("energy bias {value} ({word}) on every online CPU"))
    };
    Some(answer.seen(place, value.to_string()))
}

fn power_limit(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    // PKG_POWER_LIMIT bits 14:0 and PKG_POWER_INFO's TDP are in the units of 0x606 bits 3:0.
    let cpu = first_cpu(facts);
    let read = |register| facts.msr(cpu, register);
    if let (Ok(limit), Ok(info), Ok(units)) =
        (read(MSR_PKG_POWER_LIMIT), read(MSR_PKG_POWER_INFO), read(MSR_RAPL_POWER_UNIT))
    {
        let unit = f64::from(1u32 << (units & 0xf));
        let (long, tdp) = ((limit & 0x7fff) as f64 / unit, (info & 0x7fff) as f64 / unit);
        let enabled = limit >> 15 & 1 == 1;
        let locked = limit >> 63 == 1;
        let seen = |answer: Answer| {
            answer.seen("MSR 0x610", format!("{limit:#x}")).seen("MSR 0x614", format!("{info:#x}"))
        };
        return Some(if !enabled {
            seen(note("the long-term power limit is not enabled"))
        } else if tdp > 0.0 && long < tdp {
            seen(warning(format!("the long-term power limit is {long:.0} W, below the rating of {tdp:.0} W")))
                .fix(if locked {
                    Fix::Firmware(
                        "the limit is locked: raise PL1 (package power limit 1) in firmware".to_owned(),
                    )
                } else {
                    Fix::Person(format!(
                        "raise the limit: flyball explain power-limit; the rating is {tdp:.0} W"
                    ))
                })
        } else {
            seen(ok(format!("long-term power limit {long:.0} W, rating {tdp:.0} W")))
        });
    }
    power_limit_of_powercap(facts)
}

fn power_limit_of_powercap(facts: &Facts) -> Option<Answer> {
    let root = "/sys/class/powercap";
    let mut shown = None;
    for zone in facts.list(root) {
        let folder = format!("{root}/{zone}");
        if !facts.read(&format!("{folder}/name")).is_ok_and(|name| name.starts_with("package-")) {
            continue;
        }
        let number =
            |name: &str| facts.read(&format!("{folder}/{name}")).ok().and_then(|t| t.parse::<u64>().ok());
        let path = format!("{folder}/constraint_0_power_limit_uw");
        let (Some(limit), Some(rating)) =
            (number("constraint_0_power_limit_uw"), number("constraint_0_max_power_uw").filter(|&uw| uw > 0))
        else {
            continue;
        };
        if limit < rating {
            return Some(
                warning(format!(
                    "{zone}: the long-term power limit is {} W, below the rating of {} W",
                    limit / 1_000_000,
                    rating / 1_000_000
                ))
                .seen(path, limit.to_string())
                .seen(format!("{folder}/constraint_0_max_power_uw"), rating.to_string())
                .fix(Fix::Person("raise the limit: flyball explain power-limit".to_owned())),
            );
        }
        shown.get_or_insert((path, limit));
    }
    Some(match shown {
        Some((path, limit)) => {
            ok("no long-term power limit is below the rating").seen(path, limit.to_string())
        }
        None => unknown(match facts.kind() {
            Kind::Recorded => "a power limit was not recorded",
            _ => "neither the powercap zones nor the power limit registers can be read",
        }),
    })
}

fn bios_limit(facts: &Facts) -> Option<Answer> {
    let mut shown = None;
    for policy in &facts.policies {
        let (Some(limit), Some(max)) = (policy.number("bios_limit"), policy.number("cpuinfo_max_freq"))
        else {
            continue;
        };
        // The limit is an entry of the table of frequencies; boost above the table is not limited by it.
        let top = facts
            .read(&policy.path("scaling_available_frequencies"))
            .ok()
            .and_then(|text| text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).max())
            .unwrap_or(max);
        if limit > 0 && limit < top {
            return Some(
                warning(format!(
                    "the firmware limits policy {} to {} MHz of {}",
                    policy.number,
                    limit / 1000,
                    top / 1000
                ))
                .seen(policy.path("bios_limit"), limit.to_string())
                .fix(Fix::Firmware(
                    "look for a power or thermal cap, or a management controller's limit".to_owned(),
                )),
            );
        }
        shown.get_or_insert((policy.path("bios_limit"), limit));
    }
    let (path, limit) = shown?;
    Some(ok("the firmware sets no frequency limit").seen(path, limit.to_string()))
}

fn uncore(facts: &Facts) -> Option<Answer> {
    let root = "/sys/devices/system/cpu/intel_uncore_frequency";
    let domains = facts.list(root);
    if domains.is_empty() {
        return (facts.vendor == Vendor::Intel)
            .then(|| unknown(facts.missing(root, "modprobe intel_uncore_frequency")));
    }
    let mut shown = None;
    let mut unread = None;
    for domain in &domains {
        let path = |name: &str| format!("{root}/{domain}/{name}");
        let number = |name: &str| facts.read(&path(name)).ok().and_then(|text| text.parse::<u64>().ok());
        let (Some(min), Some(max)) = (number("min_freq_khz"), number("max_freq_khz")) else {
            unread.get_or_insert(domain.clone());
            continue;
        };
        let text = format!("{} to {} MHz", min / 1000, max / 1000);
        if min > max {
            return Some(
                super::fault(format!("{domain}: the uncore's minimum is above its maximum ({text})"))
                    .seen(path("min_freq_khz"), min.to_string())
                    .seen(path("max_freq_khz"), max.to_string())
                    .set(Id::UncoreMinFreq, "min"),
            );
        }
        let Some(initial) = number("initial_max_freq_khz") else {
            unread.get_or_insert(domain.clone());
            continue;
        };
        if max < initial {
            return Some(
                note(format!("{domain}: the uncore's maximum was lowered ({text})"))
                    .seen(path("max_freq_khz"), max.to_string())
                    .seen(path("initial_max_freq_khz"), initial.to_string()),
            );
        }
        if min == max {
            return Some(
                note(format!("{domain}: the uncore is fixed at {} MHz", max / 1000))
                    .seen(path("min_freq_khz"), min.to_string()),
            );
        }
        shown.get_or_insert((path("max_freq_khz"), text));
    }
    if let Some(domain) = unread {
        return Some(unknown(format!("the frequencies of {root}/{domain} cannot all be read")));
    }
    let (place, text) = shown?;
    Some(ok(format!("the uncore may use its whole range ({text})")).seen(place, text))
}

fn speed_select(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    // Only processors with more than one configurable TDP level have something to lock (MSR 0xCE bits 34:33).
    let info = facts.msr(first_cpu(facts), MSR_PLATFORM_INFO).ok()?;
    if (info >> 33) % 4 == 0 {
        return None;
    }
    Some(match facts.msr(first_cpu(facts), MSR_CONFIG_TDP_CONTROL) {
        Ok(value) if value >> 31 & 1 == 1 => note("the performance level is locked by firmware")
            .seen("MSR 0x64b bit 31", "1")
            .fix(Fix::Firmware("look for Speed Select, dynamic SST-PP or Configurable TDP lock".to_owned())),
        Ok(value) => ok("the performance level is not locked").seen("MSR 0x64b", format!("{value:#x}")),
        Err(why) => unknown(why),
    })
}

/// The bits of MSR 0x1AA by which intel_pstate recognises out-of-band control (intel_pstate.c, BITMASK_OOB).
const OUT_OF_BAND: u64 = 1 << 8 | 1 << 18;

fn p_state_control(facts: &Facts) -> Option<Answer> {
    // intel_pstate checks this only on servers: no client firmware controls P-states out of band.
    if facts.vendor != Vendor::Intel || facts.family != 6 || !server(facts.model) {
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
    Some(match facts.msr(first_cpu(facts), MSR_MISC_PWR_MGMT) {
        Ok(value) if value & OUT_OF_BAND != 0 => warning("the firmware controls P-states (out of band)")
            .seen("MSR 0x1aa", format!("{value:#x}"))
            .fix(advice),
        Ok(value) => ok("the system controls P-states (native)").seen("MSR 0x1aa", format!("{value:#x}")),
        // The driver checks this register before it loads.
        Err(_) if matches!(facts.driver(), Some("intel_pstate" | "intel_cpufreq")) => {
            ok("the system controls P-states: intel_pstate loads only then")
                .seen("scaling_driver", facts.driver().unwrap_or_default())
        }
        Err(why) => unknown(why),
    })
}

/// Servers of family 6 since Sandy Bridge (intel_pstate_cpu_oob_ids and its successors with HWP).
fn server(model: u32) -> bool {
    matches!(
        model,
        0x2d | 0x3e
            | 0x3f
            | 0x4f
            | 0x55
            | 0x56
            | 0x6a
            | 0x6c
            | 0x86
            | 0x8f
            | 0xad
            | 0xae
            | 0xaf
            | 0xcf
            | 0xdd
    )
}

fn bd_prochot(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel || facts.family != 6 {
        return None;
    }
    Some(match facts.msr_everywhere(MSR_IA32_POWER_CTL) {
        Sampled::Unreadable(why) => unknown(why),
        Sampled::Values(values) => {
            let ignoring: flyball_host::CpuList =
                values.iter().filter(|(_, value)| value & 1 == 0).map(|(cpu, _)| *cpu).collect();
            let place = format!("MSR {MSR_IA32_POWER_CTL:#x} bit 0");
            if ignoring.is_empty() {
                ok("external PROCHOT is enabled, as it should be; now.prochot shows whether it is asserted")
                    .seen(place, "1")
            } else {
                note(format!(
                    "external PROCHOT is disabled on CPUs {ignoring}: power supply and regulators cannot slow them"
                ))
                .seen(place, "0")
                .fix(Fix::Firmware("set BD PROCHOT (bi-directional PROCHOT) to Enabled".to_owned()))
            }
        }
    })
}

fn smt(facts: &Facts) -> Option<Answer> {
    let path = "/sys/devices/system/cpu/smt/control";
    match facts.read(path) {
        Ok(word) => Some(match word.as_str() {
            "on" => ok("SMT is on").seen(path, word),
            "off" | "forceoff" => note("SMT is switched off at run time").seen(path, word),
            "notsupported" => {
                ok("SMT is off in firmware, or the processor does not have it").seen(path, word)
            }
            _ => note(format!("SMT control reads {word}")).seen(path, word),
        }),
        Err(why) => Some(unknown(why)),
    }
}
