//! What the processor itself says holds its frequency down: Intel's status and limit-reason registers, and of AMD's what
//! is documented: the current limit register, and the system management port of EPYC (HSMP).
//!
//! Sources: Intel's Software Developer's Manual, volume 4, as turbostat decodes it (tools/power/x86/turbostat); AMD's
//! processor programming references for MSR C001_0061; Documentation/arch/x86/amd_hsmp.rst and
//! drivers/platform/x86/amd/hsmp/acpi.c (files in sysfs since Linux 6.16).

use flyball_host::CpuList;
use flyball_host::msr::{
    MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE, MSR_IA32_PACKAGE_THERM_STATUS, MSR_IA32_THERM_STATUS,
    MSR_PSTATE_CUR_LIMIT,
};

use super::{Answer, Check, Facts, Fix, Group, Sampled, Vendor, fault, note, ok, unknown, warning};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "now.limit-reasons",
        group: Group::Now,
        why: "The processor itself says what holds its frequency below the request.",
        looks: "MSR 0x64f of clients and servers from Haswell to Broadwell and of later clients: what limits now, and what has",
        covers: &[],
        run: limit_reasons,
    },
    Check {
        id: "now.thermal-status",
        group: Group::Now,
        why: "Heat, power and current limits act below every setting; the status registers tell which one does.",
        looks: "MSR 0x19c of every CPU and 0x1b1 of its package: critical heat, power, current and cross-domain limits",
        covers: &[],
        run: thermal_status,
    },
    Check {
        id: "now.amd-current-limit",
        group: Group::Now,
        why: "Heat (HTC) and the management controller (SB-RMI) lower AMD processors by this limit, below every setting.",
        looks: "MSR 0xc0010061 of every CPU, bits 2:0: the fastest P-state that is allowed now",
        covers: &[],
        run: amd_current_limit,
    },
    Check {
        id: "now.amd-limit-source",
        group: Group::Now,
        why: "EPYC's management port says which limit is the active one: heat, PROCHOT, current, power or an agent.",
        looks: "pwr_current_active_freq_limit_source and prochot_status of HSMP in sysfs (Linux 6.16, driver hsmp_acpi)",
        covers: &[],
        run: amd_limit_source,
    },
];

/// Reasons of MSR 0x64F, low 16 bits active, high 16 bits logged (turbostat's print of
/// MSR_CORE_PERF_LIMIT_REASONS).
const REASONS: &[(u32, &str)] = &[
    (0, "PROCHOT"),
    (1, "thermal"),
    (4, "graphics"),
    (5, "autonomous HWP"),
    (6, "voltage regulator heat"),
    (8, "electrical current"),
    (9, "core power"),
    (10, "package power limit 1"),
    (11, "package power limit 2"),
    (12, "turbo ratio limit"),
    (13, "turbo transitions"),
];

/// The names of the bits that are set, with the table's bits moved up by `shift`.
fn named(value: u64, table: &[(u32, &'static str)], shift: u32) -> Vec<&'static str> {
    table.iter().filter(|(bit, _)| value >> (bit + shift) & 1 == 1).map(|(_, name)| *name).collect()
}

fn limit_reasons(facts: &Facts) -> Option<Answer> {
    // The register is of Haswell to client parts; servers since Skylake-X moved the reasons elsewhere.
    let has_register = matches!(
        facts.model,
        0x3c | 0x45
            | 0x46
            | 0x3d
            | 0x47
            | 0x3f
            | 0x4f
            | 0x4e
            | 0x5e
            | 0x8e
            | 0x9e
            | 0xa5
            | 0xa6
            | 0x7d
            | 0x7e
            | 0x8c
            | 0x8d
            | 0x97
            | 0x9a
            | 0xb7
            | 0xba
            | 0xbf
    );
    if facts.vendor != Vendor::Intel || facts.family != 6 || !has_register {
        return None;
    }
    let cpu = facts.online.first()?;
    let value = match facts.msr(cpu, MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE) {
        Ok(value) => value,
        Err(why) => return Some(unknown(why)),
    };
    let (active, logged) = (named(value, REASONS, 0).join(", "), named(value, REASONS, 16).join(", "));
    Some(
        if active.is_empty() {
            ok(if logged.is_empty() {
                "nothing limits the frequency, and nothing has".to_owned()
            } else {
                format!("nothing limits the frequency now; logged: {logged}")
            })
        } else {
            warning(format!("the frequency is limited by: {active}"))
        }
        .seen(format!("MSR 0x64f of CPU {cpu}"), format!("{value:#x}")),
    )
}

/// Status bits of MSR 0x19C and 0x1B1, each with its log in the next bit. PROCHOT (0) is the business of `now.prochot`;
/// current (12) and cross-domain (14) are of the core's register alone.
const CORE_STATUS: &[(u32, &str)] = &[
    (4, "critical temperature"),
    (10, "power limit"),
    (12, "electrical current limit"),
    (14, "a limit of another domain"),
];
const PACKAGE_STATUS: &[(u32, &str)] = &[(4, "critical temperature"), (10, "power limit")];

fn thermal_status(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let core = match facts.msr_everywhere(MSR_IA32_THERM_STATUS) {
        Sampled::Values(values) => values,
        Sampled::Unreadable(why) => return Some(unknown(why)),
    };
    // One CPU of each package is enough for the package's; a part may have none (family 6 before Sandy Bridge).
    let mut packages = Vec::new();
    if facts.flag("pts") {
        let packaged = facts.topology.packages();
        if packaged.values().map(|cpus| cpus.intersection(&facts.online).len()).sum::<usize>()
            != facts.online.len()
        {
            return Some(unknown("which CPU is of which package is not told"));
        }
        for (package, cpus) in packaged {
            let Some(cpu) = cpus.intersection(&facts.online).first() else { continue };
            match facts.msr(cpu, MSR_IA32_PACKAGE_THERM_STATUS) {
                Ok(value) => packages.push((package, value)),
                Err(why) => return Some(unknown(why)),
            }
        }
    }
    let mut logged = std::collections::BTreeSet::new();
    let mut critical = false;
    let mut active: std::collections::BTreeMap<&str, CpuList> = std::collections::BTreeMap::new();
    for (cpu, value) in &core {
        for name in named(*value, CORE_STATUS, 0) {
            active.entry(name).or_default().insert(*cpu);
        }
        critical |= value >> 4 & 1 == 1;
        logged.extend(named(*value, CORE_STATUS, 1));
    }
    let mut answer = None;
    for (package, value) in &packages {
        let now = named(*value, PACKAGE_STATUS, 0);
        critical |= value >> 4 & 1 == 1;
        logged.extend(named(*value, PACKAGE_STATUS, 1));
        if !now.is_empty() && answer.is_none() {
            answer = Some(
                warning(format!("package {package} is held back now by: {}", now.join(", ")))
                    .seen(format!("MSR 0x1b1 of package {package}"), format!("{value:#x}")),
            );
        }
    }
    for (name, cpus) in &active {
        let words = format!("CPUs {cpus}");
        answer = Some(match answer {
            Some(answer) => answer.seen(format!("MSR 0x19c of {words}"), (*name).to_owned()),
            None => warning(format!("{words} are held back now by: {name}"))
                .seen(format!("MSR 0x19c of {words}"), (*name).to_owned()),
        });
    }
    if let Some(answer) = answer {
        let answer =
            Answer { verdict: if critical { super::Verdict::Fault } else { answer.verdict }, ..answer };
        return Some(answer.fix(Fix::Person(
            "see firmware.power-limit and now.temperature: raise the power limit or cool better, or ask for less (max-freq, turbo=off)"
                .to_owned(),
        )));
    }
    let seen = |answer: Answer| {
        let answer = answer.seen("MSR 0x19c", format!("{} CPUs", core.len()));
        if packages.is_empty() {
            answer
        } else {
            answer.seen("MSR 0x1b1", format!("{} packages", packages.len()))
        }
    };
    Some(if logged.is_empty() {
        seen(ok("no limit of heat, power or current holds it back, and none has"))
    } else {
        let words: Vec<&str> = logged.into_iter().collect();
        seen(note(format!(
            "nothing holds it back now, but since the log was cleared did: {}",
            words.join(", ")
        )))
    })
}

/// The P-state current limit register of families 10h to 1Ah: CurPstateLimit in bits 2:0, PstateMaxVal in 6:4.
fn amd_current_limit(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Amd || facts.family < 0x10 || !facts.flag("hw_pstate") {
        return None;
    }
    let values = match facts.msr_everywhere(MSR_PSTATE_CUR_LIMIT) {
        Sampled::Values(values) => values,
        Sampled::Unreadable(why) => return Some(unknown(why)),
    };
    let held: CpuList = values.iter().filter(|(_, value)| value & 7 != 0).map(|(cpu, _)| *cpu).collect();
    let place = format!("MSR {MSR_PSTATE_CUR_LIMIT:#x}");
    let Some(first) = held.first() else {
        let value = values.first().map_or(0, |(_, value)| *value);
        return Some(ok("every P-state is allowed on every CPU").seen(place, format!("{value:#x}")));
    };
    let value = values.iter().find(|(cpu, _)| *cpu == first).map_or(0, |(_, value)| *value);
    Some(
        warning(format!(
            "CPUs {held} may not go above P-state {}: heat or the management controller holds them there",
            value & 7
        ))
        .seen(format!("{place} of CPU {first}"), format!("{value:#x}"))
        .fix(Fix::Person(
            "check fans, air flow and heat sink, then the management controller's power cap (APML, SB-RMI)"
                .to_owned(),
        )),
    )
}

/// What the sources that HSMP names are, and whether each is more than the processor's own rating.
const SOURCES: &[(&str, &str, bool)] = &[
    ("cHTC-Active", "heat (HTC)", true),
    ("PROCHOT", "PROCHOT, pulled from outside or by heat", true),
    ("TDC limit", "the current limit (TDC)", true),
    ("PPT Limit", "the package power limit (PPT)", true),
    ("OPN Max", "the highest frequency of the model", false),
    ("Reliability Limit", "the reliability limit (voltage and age)", false),
    ("APML Agent", "the management controller (APML)", true),
    ("HSMP Agent", "a program through HSMP", true),
];

fn amd_limit_source(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Amd || !facts.processor.contains("EPYC") {
        return None;
    }
    let folders = hsmp_folders(facts);
    if folders.is_empty() {
        return Some(unknown(facts.missing(
            "the management port's files (HSMP)",
            "Linux 6.16 or newer, HSMP enabled in firmware, modprobe hsmp_acpi",
        )));
    }
    let mut shown = None;
    let mut fine = Vec::new();
    for folder in &folders {
        let source = format!("{folder}/pwr_current_active_freq_limit_source");
        let text = match facts.read(&source) {
            Ok(text) => text,
            Err(why) => return Some(unknown(why)),
        };
        let hot = match facts.read(&format!("{folder}/prochot_status")) {
            Ok(word) => word == "1",
            Err(why) => return Some(unknown(why)),
        };
        if hot {
            return Some(
                fault("PROCHOT is active: the socket is at its temperature limit, or something pulls the line")
                    .seen(format!("{folder}/prochot_status"), "1")
                    .seen(source, text)
                    .fix(Fix::Person(
                        "check fans, air flow and heat sink; then the power supply and the management controller's log"
                            .to_owned(),
                    )),
            );
        }
        // The kernel prints the names with blanks between, one or several, each name perhaps of two words.
        let active: Vec<_> = SOURCES.iter().filter(|(name, ..)| text.contains(name)).collect();
        let below: Vec<&str> =
            active.iter().filter(|(.., below)| *below).map(|(_, words, _)| *words).collect();
        let limit = facts.read(&format!("{folder}/pwr_current_active_freq_limit")).ok();
        let at = limit.as_deref().map_or_else(String::new, |mhz| format!(" at {mhz} MHz"));
        if !below.is_empty() {
            return Some(
                warning(format!("the socket's frequency is limited{at} by {}", below.join(" and ")))
                    .seen(source, text)
                    .fix(Fix::Person(
                        "heat: cool better; PPT or TDC: raise cTDP and the package power limit in firmware; an agent: ask it why"
                            .to_owned(),
                    )),
            );
        }
        fine.extend(active.iter().map(|(_, words, _)| *words));
        shown.get_or_insert((source, text));
    }
    let (place, text) = shown?;
    fine.dedup();
    let what = if fine.is_empty() {
        "no limit is active".to_owned()
    } else {
        format!("only the processor's own rating limits it: {}", fine.join(", "))
    };
    Some(ok(what).seen(place, text))
}

/// The directories of the management port's devices, one a socket: ACPI's, or the platform driver's.
pub(super) fn hsmp_folders(facts: &Facts) -> Vec<String> {
    let root = "/sys/devices/platform";
    let mut folders = Vec::new();
    for name in facts.list(root) {
        if name.starts_with("AMDI0097:") {
            folders.push(format!("{root}/{name}"));
        } else if name == "amd_hsmp" {
            let sockets = facts.list(&format!("{root}/{name}"));
            folders.extend(
                sockets
                    .iter()
                    .filter(|s| s.starts_with("socket"))
                    .map(|socket| format!("{root}/{name}/{socket}")),
            );
        }
    }
    folders
}
