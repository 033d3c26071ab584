//! Firmware settings that limit the processor: power, frequency, uncore, performance level, PROCHOT and SMT.
//!
//! Register layouts: Intel's Software Developer's Manual, volume 4, as the kernel's turbostat decodes them
//! (tools/power/x86/turbostat/turbostat.c).

use flyball_host::{
    Kind,
    msr::{
        MSR_CONFIG_TDP_CONTROL, MSR_IA32_POWER_CTL, MSR_PKG_POWER_INFO, MSR_PKG_POWER_LIMIT,
        MSR_PLATFORM_INFO, MSR_RAPL_POWER_UNIT,
    },
};

use super::{
    Answer, Check, Facts, Fix, Group, Sampled, Unseen, Vendor, firmware::first_cpu, note, ok, unknown,
    warning,
};
use crate::Id;

pub(super) const CHECKS: &[Check] = &[
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
        // Bit 63 locks the register until the next reset: then only firmware can raise the limit (Intel SDM 3, package
        // RAPL domain).
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
        // psys and the zones below a package have limits of their own, which are not the processor's.
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
            Kind::Recorded => Unseen::NotRecorded("a power limit".to_owned()),
            _ => "neither the powercap zones nor the power limit registers can be read".into(),
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
        // The driver checks each end against the hardware only, so both can be written in this order.
        if min > max {
            return Some(
                super::fault(format!("{domain}: the uncore's minimum is above its maximum ({text})"))
                    .seen(path("min_freq_khz"), min.to_string())
                    .seen(path("max_freq_khz"), max.to_string())
                    .set(Id::UncoreMinFreq, "min"),
            );
        }
        // What the driver found when it was loaded: as a rule firmware's choice, and what a lowered maximum is measured
        // by.
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
