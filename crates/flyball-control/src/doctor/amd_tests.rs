//! The reading part of the kernel's amd-pstate unit tests (drivers/cpufreq/amd-pstate-ut.c), from user space.
//!
//! The two tests that write (preferences and mode transitions) are `flyball doctor --write`'s, which goes through
//! plan, apply and restore like every other write.

use super::{Answer, Check, Facts, Fix, Group, Policy, fault, note, ok, unknown};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "amd-pstate.cpc-valid",
        group: Group::AmdPstate,
        why: "The driver works from the firmware's _CPC table; a CPU without one cannot be driven.",
        run: cpc_valid,
    },
    Check {
        id: "amd-pstate.enabled",
        group: Group::AmdPstate,
        why: "Requests are ignored by a CPU on which collaborative control (CPPC) is not enabled.",
        run: enabled,
    },
    Check {
        id: "amd-pstate.perf",
        group: Group::AmdPstate,
        why: "The performance levels must be in order, or frequencies computed from them are wrong.",
        run: perf,
    },
    Check {
        id: "amd-pstate.freq",
        group: Group::AmdPstate,
        why: "The frequencies must be in order, or limits computed from them are wrong.",
        run: freq,
    },
];

/// MSRs of the register kind (arch/x86/include/asm/msr-index.h).
const CPPC_CAP1: u32 = 0xc001_02b0;
const CPPC_ENABLE: u32 = 0xc001_02b1;

fn applies(facts: &Facts) -> Option<()> {
    facts.driver()?.starts_with("amd-pstate").then_some(())
}

fn cppc(facts: &Facts, cpu: u32, name: &str) -> Result<u64, String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/{name}");
    let text = facts.read(&path)?;
    text.parse().map_err(|_| format!("{path} holds no number: '{text}'"))
}

fn cpc_valid(facts: &Facts) -> Option<Answer> {
    applies(facts)?;
    let mut missing = flyball_host::CpuList::new();
    for cpu in facts.online.iter() {
        if cppc(facts, cpu, "highest_perf").is_err() || cppc(facts, cpu, "nominal_perf").is_err() {
            missing.insert(cpu);
        }
    }
    Some(if missing.is_empty() {
        ok("every online CPU has a _CPC table").seen("CPUs", facts.online.to_string())
    } else {
        fault(format!("no usable _CPC table on CPUs {missing}"))
            .seen("/sys/devices/system/cpu/cpuN/acpi_cppc", format!("not there on CPUs {missing}"))
            .fix(Fix::Firmware(
                "look for CPPC (AMD CBS, NBIO or SMU options) and set it to Enabled".to_owned(),
            ))
    })
}

fn enabled(facts: &Facts) -> Option<Answer> {
    applies(facts)?;
    if !facts.flag("cppc") {
        // The mailbox kind has no register to ask: the driver would not have bound had enabling failed.
        return Some(
            unknown("this processor takes requests by mailbox, which cannot be read from user space")
                .seen("/proc/cpuinfo flags", "no cppc"),
        );
    }
    let values = match facts.msr_everywhere(CPPC_ENABLE) {
        super::Sampled::Values(values) => values,
        super::Sampled::Unreadable(why) => return Some(unknown(why)),
    };
    let off: flyball_host::CpuList =
        values.iter().filter(|(_, value)| value & 1 == 0).map(|(cpu, _)| *cpu).collect();
    Some(if off.is_empty() {
        ok("CPPC is enabled on every online CPU").seen(format!("MSR {CPPC_ENABLE:#x}"), "1")
    } else {
        fault(format!("CPPC is not enabled on CPUs {off}"))
            .seen(format!("MSR {CPPC_ENABLE:#x}"), format!("0 on CPUs {off}"))
    })
}

fn perf(facts: &Facts) -> Option<Answer> {
    applies(facts)?;
    let mut shown = None;
    let mut equal_floor = false;
    for cpu in facts.online.iter() {
        let read = |name| cppc(facts, cpu, name);
        let levels = (|| {
            Ok::<_, String>((
                read("highest_perf")?,
                read("nominal_perf")?,
                read("lowest_nonlinear_perf")?,
                read("lowest_perf")?,
            ))
        })();
        let (highest, nominal, nonlinear, lowest) = match levels {
            Ok(levels) => levels,
            Err(why) => return Some(unknown(why)),
        };
        let text =
            format!("highest {highest}, nominal {nominal}, lowest non-linear {nonlinear}, lowest {lowest}");
        let place = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc");
        // Newer kernels allow the lowest non-linear level to be the lowest one.
        if !(highest >= nominal && nominal > nonlinear && nonlinear >= lowest && lowest > 0) {
            return Some(
                fault(format!("the performance levels of CPU {cpu} are out of order")).seen(place, text),
            );
        }
        equal_floor |= nonlinear == lowest;
        if facts.flag("cppc")
            && let Ok(cap) = facts.msr(cpu, CPPC_CAP1)
        {
            let register = [(cap >> 24) & 0xff, (cap >> 16) & 0xff, (cap >> 8) & 0xff, cap & 0xff];
            // The highest level is excused: with preferred cores the table carries the ranking's.
            if register[1..] != [nominal, nonlinear, lowest] {
                return Some(
                    fault(format!("CPU {cpu}: the firmware's table and the register disagree"))
                        .seen(place, text)
                        .seen(format!("MSR {CPPC_CAP1:#x} of CPU {cpu}"), format!("{cap:#x}")),
                );
            }
        }
        shown.get_or_insert((place, text));
    }
    let (place, text) = shown?;
    Some(if equal_floor {
        note("the levels are in order; the lowest non-linear one is the lowest, which old kernels refuse")
            .seen(place, text)
    } else {
        ok("highest >= nominal > lowest non-linear >= lowest > 0 on every online CPU").seen(place, text)
    })
}

fn freq(facts: &Facts) -> Option<Answer> {
    applies(facts)?;
    let mut shown = None;
    for policy in &facts.policies {
        let Some(cpu) = policy.cpus.intersection(&facts.online).first() else { continue };
        let (Some(max), Some(min)) = (policy.number("cpuinfo_max_freq"), policy.number("cpuinfo_min_freq"))
        else {
            return Some(unknown(format!("{} cannot be read", policy.path("cpuinfo_max_freq"))));
        };
        let Some(nonlinear) = policy.number("amd_pstate_lowest_nonlinear_freq") else {
            return Some(unknown(format!(
                "{} is not there",
                policy.path("amd_pstate_lowest_nonlinear_freq")
            )));
        };
        let nominal = nominal_khz(facts, policy, cpu);
        let text = format!(
            "max {max}, nominal {}, lowest non-linear {nonlinear}, min {min} kHz",
            nominal.map_or_else(|| "unknown".to_owned(), |khz| khz.to_string())
        );
        let in_order = max >= nominal.unwrap_or(max)
            && nominal.is_none_or(|nominal| nominal > nonlinear)
            && nonlinear >= min
            && min > 0;
        if !in_order {
            return Some(
                fault(format!("the frequencies of policy {} are out of order", policy.number))
                    .seen(policy.path("cpuinfo_max_freq"), text),
            );
        }
        shown.get_or_insert((policy.path("cpuinfo_max_freq"), text));
    }
    let (place, text) = shown?;
    Some(ok("maximum >= nominal > lowest non-linear >= minimum > 0 for every policy").seen(place, text))
}

/// The nominal frequency: _CPC's own where it has one; else the highest frequency scaled by the levels.
fn nominal_khz(facts: &Facts, policy: &Policy, cpu: u32) -> Option<u64> {
    if let Ok(mhz) = cppc(facts, cpu, "nominal_freq")
        && mhz > 0
    {
        return Some(mhz * 1000);
    }
    let nominal = cppc(facts, cpu, "nominal_perf").ok()?;
    let highest = policy.number("amd_pstate_highest_perf").filter(|&perf| perf > 0)?;
    Some(policy.number("amd_pstate_max_freq")? * nominal / highest)
}
