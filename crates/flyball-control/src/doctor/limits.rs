//! What the processor itself reports as limiting its frequency: Intel's status and limit-reason registers, and on AMD what
//! is documented: the current limit register, and the system management port of EPYC (HSMP).
//!
//! Sources: Intel's Software Developer's Manual, volume 4, as turbostat decodes it (tools/power/x86/turbostat); AMD's
//! processor programming references for MSR C001_0061; Documentation/arch/x86/amd_hsmp.rst and
//! drivers/platform/x86/amd/hsmp/acpi.c (files in sysfs since Linux 6.16).

use std::collections::{BTreeMap, BTreeSet};

use flyball_host::{
    CpuList,
    msr::{
        MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE, MSR_IA32_PACKAGE_THERM_STATUS, MSR_IA32_THERM_STATUS,
        MSR_PSTATE_CUR_LIMIT,
    },
};

use super::{
    Answer, Check, Evidence, Facts, Fix, Group, Sampled, Unseen, Vendor, Verdict, fault, note, ok, unknown,
    warning,
};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "now.limit-reasons",
        group: Group::Now,
        why: "The processor itself reports what keeps its frequency below the request.",
        looks: "MSR 0x64f of clients and servers from Haswell to Broadwell and of later clients: what limits now, and what has limited",
        covers: &[],
        run: limit_reasons,
    },
    Check {
        id: "now.thermal-status",
        group: Group::Now,
        why: "Heat, power and current limits override every setting; the status registers show which one is active.",
        looks: "MSR 0x19c of every CPU and 0x1b1 of its package: critical heat, power, current and cross-domain limits",
        covers: &[],
        run: thermal_status,
    },
    Check {
        id: "now.amd-current-limit",
        group: Group::Now,
        why: "Heat (HTC) and the management controller (SB-RMI) slow AMD processors by this limit, which overrides every setting.",
        looks: "MSR 0xc0010061 of every CPU, bits 2:0: the fastest P-state that is allowed now",
        covers: &[],
        run: amd_current_limit,
    },
    Check {
        id: "now.amd-limit-source",
        group: Group::Now,
        why: "EPYC's management port reports which limit is active: heat, PROCHOT, current, power or an agent.",
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
    // Haswell and Broadwell, and later clients; servers since Skylake-X have the reasons elsewhere.
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
    // Each reason has its log bit 16 above it, which stays set until software clears it (Intel SDM 4,
    // MSR_CORE_PERF_LIMIT_REASONS).
    let (active, logged) = (named(value, REASONS, 0).join(", "), named(value, REASONS, 16).join(", "));
    Some(
        if active.is_empty() {
            ok(if logged.is_empty() {
                "nothing limits the frequency, and nothing has limited it".to_owned()
            } else {
                format!("nothing limits the frequency now; logged: {logged}")
            })
        } else {
            warning(format!("the frequency is limited by: {active}"))
        }
        .seen(format!("MSR 0x64f of CPU {cpu}"), format!("{value:#x}")),
    )
}

/// The bit of the critical temperature in both.
const CRITICAL: u32 = 4;

/// Status bits of MSR 0x19C and 0x1B1, each with its log in the next bit. PROCHOT (0) is for `now.prochot`; current (12)
/// and cross-domain (14) exist only in the core's register.
const CORE_STATUS: &[(u32, &str)] = &[
    (CRITICAL, "critical temperature"),
    (10, "power limit"),
    (12, "electrical current limit"),
    (14, "a limit of another domain"),
];
const PACKAGE_STATUS: &[(u32, &str)] = &[(CRITICAL, "critical temperature"), (10, "power limit")];

fn thermal_status(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let core = match facts.msr_everywhere(MSR_IA32_THERM_STATUS) {
        Sampled::Values(values) => values,
        Sampled::Unreadable(why) => return Some(unknown(why)),
    };
    let packages = match package_status(facts) {
        Ok(packages) => packages,
        Err(why) => return Some(unknown(why)),
    };
    Some(limited_now(&core, &packages).unwrap_or_else(|| limited_before(&core, &packages)))
}

/// MSR 0x1B1 of each package, from one of its CPUs; empty on parts without it (family 6 before Sandy Bridge).
fn package_status(facts: &Facts) -> Result<Vec<(u32, u64)>, Unseen> {
    let mut status = Vec::new();
    if !facts.flag("pts") {
        return Ok(status);
    }
    let packages = facts.topology().packages();
    // A CPU without a package would be a package without a look at its register, and then an ok that was not seen.
    let known = packages.values().map(|cpus| cpus.intersection(&facts.online).len()).sum::<usize>();
    if known != facts.online.len() {
        return Err("the packages of the CPUs are unknown".into());
    }
    for (package, cpus) in packages {
        let Some(cpu) = cpus.intersection(&facts.online).first() else { continue };
        status.push((package, facts.msr(cpu, MSR_IA32_PACKAGE_THERM_STATUS)?));
    }
    Ok(status)
}

/// The answer if a limit is active. Critical temperature is a fault, everything else a warning.
fn limited_now(core: &[(u32, u64)], packages: &[(u32, u64)]) -> Option<Answer> {
    let mut active: BTreeMap<&str, CpuList> = BTreeMap::new();
    for (cpu, value) in core {
        for name in named(*value, CORE_STATUS, 0) {
            active.entry(name).or_default().insert(*cpu);
        }
    }
    let mut answer = packages.iter().find_map(|(package, value)| {
        let now = named(*value, PACKAGE_STATUS, 0);
        (!now.is_empty()).then(|| {
            warning(format!("package {package} is limited now by: {}", now.join(", ")))
                .seen(format!("MSR 0x1b1 of package {package}"), format!("{value:#x}"))
        })
    });
    for (name, cpus) in active {
        let words = format!("CPUs {cpus}");
        let answer = answer.get_or_insert_with(|| warning(format!("{words} are limited now by: {name}")));
        answer.evidence.push(Evidence { place: format!("MSR 0x19c of {words}"), value: name.to_owned() });
    }
    let mut answer = answer?;
    if core.iter().chain(packages).any(|(_, value)| value >> CRITICAL & 1 == 1) {
        answer.verdict = Verdict::Fault;
    }
    Some(answer.fix(Fix::Person(
        "see firmware.power-limit and now.temperature: raise the power limit or improve cooling, or lower the power with \
         max-freq or turbo=off"
            .to_owned(),
    )))
}

/// The answer if no limit is active: which ones have been since the log was cleared.
fn limited_before(core: &[(u32, u64)], packages: &[(u32, u64)]) -> Answer {
    let of = |values: &[(u32, u64)], table| -> Vec<&'static str> {
        values.iter().flat_map(|(_, value)| named(*value, table, 1)).collect()
    };
    let logged: BTreeSet<&str> =
        of(core, CORE_STATUS).into_iter().chain(of(packages, PACKAGE_STATUS)).collect();
    let answer = if logged.is_empty() {
        ok("no limit of heat, power or current is active, and none has been")
    } else {
        let words: Vec<&str> = logged.into_iter().collect();
        note(format!("no limit is active now; active since the log was cleared: {}", words.join(", ")))
    };
    let answer = answer.seen("MSR 0x19c", format!("{} CPUs", core.len()));
    if packages.is_empty() {
        answer
    } else {
        answer.seen("MSR 0x1b1", format!("{} packages", packages.len()))
    }
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
            "CPUs {held} may not go above P-state {}: heat or the management controller limits them",
            value & 7
        ))
        .seen(format!("{place} of CPU {first}"), format!("{value:#x}"))
        .fix(Fix::Person(
            "check fans, air flow and heat sink, then the management controller's power cap (APML, SB-RMI)"
                .to_owned(),
        )),
    )
}

/// The sources that HSMP names, and whether each is a limit below the processor's own rating.
const SOURCES: &[(&str, &str, bool)] = &[
    ("cHTC-Active", "heat (HTC)", true),
    ("PROCHOT", "PROCHOT, asserted from outside or by heat", true),
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
        // One socket whose limit is not known leaves the answer open, whatever the others say.
        let text = match facts.read(&source) {
            Ok(text) => text,
            Err(why) => return Some(unknown(why)),
        };
        let hot = match facts.read(&format!("{folder}/prochot_status")) {
            Ok(word) => word == "1",
            Err(why) => return Some(unknown(why)),
        };
        // Asked first: it is a fault, whatever else limits the socket.
        if hot {
            return Some(
                fault("PROCHOT is active: the socket is at its temperature limit, or something outside asserts it")
                    .seen(format!("{folder}/prochot_status"), "1")
                    .seen(source, text)
                    .fix(Fix::Person(
                        "check fans, air flow and heat sink; then the power supply and the management controller's log"
                            .to_owned(),
                    )),
            );
        }
        // The kernel prints one or several names, separated by blanks; a name may consist of two words.
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
                        "heat: improve cooling; PPT or TDC: raise cTDP and the package power limit in firmware; an agent: see its settings"
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
        format!("only the processor's own rating limits the frequency: {}", fine.join(", "))
    };
    Some(ok(what).seen(place, text))
}

/// The directories of the management port's devices, one per socket: ACPI's, or the platform driver's.
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
