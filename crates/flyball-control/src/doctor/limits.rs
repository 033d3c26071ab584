//! Frequency limits that the processor itself reports: Intel's status and limit-reason registers,
//! and on AMD the documented sources, which are the current limit register and the system
//! management port of EPYC (HSMP).
//!
//! Sources: Intel's Software Developer's Manual, volume 4, as turbostat decodes it
//! (tools/power/x86/turbostat); AMD's processor programming references for MSR C001_0061;
//! Documentation/arch/x86/amd_hsmp.rst and drivers/platform/x86/amd/hsmp/acpi.c (files in sysfs
//! since Linux 6.16).

use std::collections::{BTreeMap, BTreeSet};

use flyball_host::{
    CpuList,
    msr::{
        MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE, MSR_IA32_PACKAGE_THERM_STATUS, MSR_IA32_THERM_STATUS,
        MSR_PSTATE_CUR_LIMIT,
    },
};

use super::{
    Answer, Check, Evidence, Facts, Unseen, Vendor, Verdict, amd_firmware::REMEDY, facts, fault, models,
    note, ok, unknown, warning,
};
use crate::{LimitReasons, LimitSource, ThermStatus};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "now.limit-reasons",
        "The processor itself reports what keeps its frequency below the request.",
        "MSR 0x690 of Haswell and of Broadwell servers, 0x64f of clients and Xeon Scalable since Skylake: what limits now, and what has limited",
        limit_reasons,
    ),
    Check::new(
        "now.tpmi-limits",
        "Xeons since Granite Rapids record for each power domain what has kept its frequency below the request.",
        "plr/domainN/status below /sys/kernel/debug/tpmi-* (Linux 6.12, driver intel_plr_tpmi)",
        tpmi_limits,
    ),
    Check::new(
        "now.thermal-status",
        "Heat, power and current limits override every setting; the status registers show which one is active.",
        "MSR 0x19c of every CPU and 0x1b1 of its package: critical heat, power, current and cross-domain limits",
        thermal_status,
    ),
    Check::new(
        "now.amd-current-limit",
        "Heat (HTC) and the management controller (SB-RMI) slow AMD processors by this limit, which overrides every setting.",
        "MSR 0xc0010061 of every CPU, bits 2:0: the fastest P-state that is allowed now",
        amd_current_limit,
    ),
    Check::new(
        "now.amd-limit-source",
        "EPYC's management port reports which limit is active: heat, PROCHOT, current, power or an agent.",
        "pwr_current_active_freq_limit_source and prochot_status of HSMP in sysfs (Linux 6.16, driver hsmp_acpi)",
        amd_limit_source,
    ),
];

/// Returns the names of the bits that are set, with the table's bit numbers raised by `shift`.
fn named(value: u64, table: &[(u32, &'static str)], shift: u32) -> Vec<&'static str> {
    table.iter().filter(|(bit, _)| value >> (bit + shift) & 1 == 1).map(|(_, name)| *name).collect()
}

fn limit_reasons(facts: &Facts) -> Option<Answer> {
    if !models::family_6(facts) {
        return None;
    }
    let Some(reasons) = LimitReasons::for_processor(facts.vendor, Some(facts.family), Some(facts.model))
    else {
        // Broadwell's clients (3Dh, 47h) may have Haswell's register. Servers with TPMI report in
        // debugfs (now.tpmi-limits).
        let has_none =
            models::server(facts.model) || models::before_hwp(facts) && !matches!(facts.model, 0x3d | 0x47);
        return (!has_none).then(|| {
            unknown(format!(
                "whether CPU model {:#x} reports limit reasons, and where, is not known",
                facts.model
            ))
        });
    };
    let register = reasons.register;
    let values = seen!(facts.msr_of_packages(register));
    let with_evidence = |answer: Answer| {
        values.iter().fold(answer, |answer, (package, value)| {
            answer.seen(format!("MSR {register:#x} of package {package}"), format!("{value:#x}"))
        })
    };
    let of = |shift: u32| -> Vec<(u32, String)> {
        let words = values.iter().map(|(package, value)| {
            let shown: Vec<&str> = reasons.shown(value >> shift).map(|(_, reason)| reason.words()).collect();
            (*package, shown.join(", "))
        });
        words.filter(|(_, words)| !words.is_empty()).collect()
    };
    let text = |list: &[(u32, String)]| -> String {
        let alone = values.len() == 1;
        let words =
            list.iter().map(
                |(package, words)| if alone { words.clone() } else { format!("{words} (package {package})") },
            );
        words.collect::<Vec<_>>().join("; ")
    };
    // The log bit of each reason is 16 bits higher. It stays set until software clears it (Intel
    // SDM 4, MSR_CORE_PERF_LIMIT_REASONS).
    let (active, logged) = (of(0), of(16));
    Some(with_evidence(if !active.is_empty() {
        let words = format!("the frequency is limited by: {}", text(&active));
        // At turbo, a Xeon Scalable runs into one of its limits most of the time.
        let is_usual = models::server(facts.model) && register == MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE;
        if is_usual { note(words) } else { warning(words) }
    } else if logged.is_empty() {
        ok("nothing limits the frequency, and nothing has limited it")
    } else {
        ok(format!("nothing limits the frequency now; logged: {}", text(&logged)))
    }))
}

/// Reasons of the kernel's plr_coarse_reasons that come from the request itself or from quality of
/// service, so there is no limit to remove.
const NO_LIMIT: &[&str] = &["none", "QOS", "MISC"];

/// Reports the limit reasons of processors with TPMI (drivers/platform/x86/intel/plr_tpmi.c, Linux
/// 6.12). Each power domain has a file with a line of coarse reasons for all of its CPUs and a line
/// for each CPU. The bits stay until 0 is written to the file.
fn tpmi_limits(facts: &Facts) -> Option<Answer> {
    let root = "/sys/kernel/debug";
    let devices: Vec<String> =
        facts.list(root).into_iter().filter(|name| name.starts_with("tpmi-")).collect();
    if devices.is_empty() {
        return None;
    }
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut seen = None;
    let mut evidence = Vec::new();
    for device in devices {
        let folder = format!("{root}/{device}/plr");
        for domain in facts.list(&folder) {
            let path = format!("{folder}/{domain}/status");
            let text = seen!(facts.read(&path));
            // The first line has the domain's coarse reasons. Each later line belongs to one CPU.
            let Some(words) = text.lines().next().and_then(|line| line.strip_prefix("cpus")) else {
                return Some(unknown(format!("{path} does not begin with the reasons of all CPUs")));
            };
            let words: Vec<&str> = words.split_whitespace().filter(|word| !NO_LIMIT.contains(word)).collect();
            if !words.is_empty() {
                let fine = fine_reasons(&text, &words);
                groups.entry(words.join(", ").to_lowercase()).or_default().extend(fine.keys().cloned());
                let counts = fine.iter().map(|(word, cpus)| format!("{word} on {}", facts::cpu_words(cpus)));
                let all = std::iter::once(format!("cpus {}", words.join(" "))).chain(counts);
                evidence.push((path.clone(), all.collect::<Vec<_>>().join("; ")));
            }
            seen.get_or_insert(path);
        }
    }
    let Some(first) = seen else {
        return Some(unknown(facts.missing(
            "the limit reasons in /sys/kernel/debug/tpmi-*/plr",
            "Linux 6.12 or newer, modprobe intel_plr_tpmi",
        )));
    };
    if groups.is_empty() {
        return Some(ok("no limit has been active since the reasons were cleared").seen(first, "none"));
    }
    let words: Vec<String> = groups
        .into_iter()
        .map(|(coarse, mut fine)| {
            fine.sort();
            fine.dedup();
            if fine.is_empty() { coarse } else { format!("{coarse} ({})", fine.join(", ")) }
        })
        .collect();
    let answer = note(format!(
        "the frequency has been limited, since the reasons were cleared, by: {}",
        words.join("; ")
    ));
    let answer = evidence.into_iter().take(4).fold(answer, |answer, (path, text)| answer.seen(path, text));
    Some(answer.person(format!("to see whether it lasts: write 0 to {first} and look again under load")))
}

/// Returns the reasons of single CPUs in a domain's file, without the coarse reasons: `cpu3 POWER
/// POWER_PLATFORM_PL1_PCS`.
fn fine_reasons(text: &str, coarse: &[&str]) -> BTreeMap<String, CpuList> {
    let mut fine: BTreeMap<String, CpuList> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace();
        let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
        let Some(cpu) = cpu else { continue };
        for word in words.filter(|word| !coarse.contains(word) && !NO_LIMIT.contains(word)) {
            fine.entry(word.to_owned()).or_default().insert(cpu);
        }
    }
    fine
}

/// The bit of the critical temperature in both status registers.
const CRITICAL: u32 = 4;

/// Status bits of MSR 0x19C and 0x1B1. The next bit is the log of each. `now.prochot` reports heat
/// (0) and PROCHOT (2); current (12) and cross-domain (14) exist only in the core's register.
const CORE_STATUS: &[(u32, &str)] = &[
    (CRITICAL, "critical temperature"),
    (ThermStatus::POWER, "power limit"),
    (12, "electrical current limit"),
    (14, "a limit of another domain"),
];
const PACKAGE_STATUS: &[(u32, &str)] =
    &[(CRITICAL, "critical temperature"), (ThermStatus::POWER, "power limit")];

fn thermal_status(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let core = seen!(facts.msr_everywhere(MSR_IA32_THERM_STATUS));
    let packages = match package_status(facts) {
        Ok(packages) => packages,
        // A limit reported by a core is enough without the package registers.
        Err(why) => return Some(limited_now(&core, &[]).unwrap_or_else(|| unknown(why))),
    };
    Some(limited_now(&core, &packages).unwrap_or_else(|| limited_before(&core, &packages)))
}

/// Reads MSR 0x1B1 of each package, from one of its CPUs. Empty on processors without it (family 6
/// before Sandy Bridge).
pub(super) fn package_status(facts: &Facts) -> Result<Vec<(u32, u64)>, Unseen> {
    if !facts.flag("pts") {
        return Ok(Vec::new());
    }
    facts.msr_of_packages(MSR_IA32_PACKAGE_THERM_STATUS)
}

/// Reports active limits. Critical temperature is a fault, everything else a warning.
fn limited_now(core: &[(u32, u64)], packages: &[(u32, u64)]) -> Option<Answer> {
    let mut active: BTreeMap<&str, CpuList> = BTreeMap::new();
    for (cpu, value) in core {
        for name in named(*value, CORE_STATUS, 0) {
            active.entry(name).or_default().insert(*cpu);
        }
    }
    let mut limited: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (package, value) in packages {
        let now = named(*value, PACKAGE_STATUS, 0);
        if !now.is_empty() {
            limited.entry(now.join(", ")).or_default().push(*package);
        }
    }
    let mut answer = (!limited.is_empty()).then(|| {
        let words: Vec<String> = limited
            .iter()
            .map(|(now, which)| format!("{} limited now by: {now}", facts::packages(which)))
            .collect();
        let of = packages.iter().filter(|(_, value)| !named(*value, PACKAGE_STATUS, 0).is_empty());
        of.fold(warning(words.join("; ")), |answer, (package, value)| {
            answer.seen(format!("MSR 0x1b1 of package {package}"), format!("{value:#x}"))
        })
    });
    for (name, cpus) in active {
        let words = format!("CPUs {}", cpus.short());
        let answer = answer.get_or_insert_with(|| warning(format!("{words} are limited now by: {name}")));
        answer.evidence.push(Evidence { place: format!("MSR 0x19c of {words}"), value: name.to_owned() });
    }
    let mut answer = answer?;
    // At the critical temperature the processor may stop altogether, so this is not a usual limit.
    if core.iter().chain(packages).any(|(_, value)| value >> CRITICAL & 1 == 1) {
        // Set it here, so that the answer keeps the evidence of the other limits.
        answer.verdict = Verdict::Fault;
    }
    Some(answer.person(
        "see firmware.power-limit and now.temperature: raise the power limit or improve cooling, \
                or lower the power with \
         max-freq or turbo=off",
    ))
}

/// Reports limits logged as active since the log was cleared, if none is active now.
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

/// Reports the P-state current limit register of families 10h to 1Ah: CurPstateLimit in bits 2:0,
/// PstateMaxVal in 6:4.
fn amd_current_limit(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Amd || facts.family < 0x10 || !facts.flag("hw_pstate") {
        return None;
    }
    let values = seen!(facts.msr_everywhere(MSR_PSTATE_CUR_LIMIT));
    // P-state 0 is the fastest. Any other number is a limit.
    let held: CpuList = values.iter().filter(|(_, value)| value & 7 != 0).map(|(cpu, _)| *cpu).collect();
    let place = format!("MSR {MSR_PSTATE_CUR_LIMIT:#x}");
    let Some(first) = held.first() else {
        let value = values.first().map_or(0, |(_, value)| *value);
        return Some(ok("every P-state is allowed on every CPU").seen(place, format!("{value:#x}")));
    };
    let value = values.iter().find(|(cpu, _)| *cpu == first).map_or(0, |(_, value)| *value);
    Some(
        warning(format!(
            "{} may not go above P-state {}: heat or the management controller limits them",
            facts::cpu_words(&held),
            value & 7
        ))
        .seen(format!("{place} of CPU {first}"), format!("{value:#x}"))
        .person(
            "check fans, air flow and heat sink, then the management controller's power cap (APML, SB-RMI)",
        ),
    )
}

fn amd_limit_source(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Amd || !facts.processor.contains("EPYC") {
        return None;
    }
    let folders = hsmp_folders(facts);
    if folders.is_empty() {
        // amd_hsmp, the other driver, has no text files (drivers/platform/x86/amd/hsmp/plat.c).
        return Some(unknown(facts.missing("the management port's limits (HSMP)", REMEDY)));
    }
    // There is one device per socket. A socket without a device may be the limited one.
    match facts.first_of_packages() {
        Ok(sockets) if folders.len() >= sockets.len() => {}
        Ok(_) => return Some(unknown("not every socket has the management port's files (HSMP)")),
        Err(why) => return Some(unknown(why)),
    }
    let (mut fine, mut hot, mut limited) = (Vec::new(), Vec::new(), Vec::new());
    let mut shown = Vec::new();
    for (socket, folder) in folders.iter().enumerate() {
        let source = format!("{folder}/pwr_current_active_freq_limit_source");
        let prochot = format!("{folder}/prochot_status");
        let (text, is_hot) = match (facts.read(&source), facts.read(&prochot)) {
            (Ok(text), Ok(word)) => (text, word == "1"),
            // If one socket's limit is unknown, so is the answer, whatever the others report.
            (Err(why), _) | (_, Err(why)) => return Some(unknown(why)),
        };
        let active = || LimitSource::named_in(&text);
        let below: Vec<&str> =
            active().filter(|source| source.is_below_rating()).map(LimitSource::words).collect();
        fine.extend(active().map(LimitSource::words));
        if is_hot {
            hot.push(socket);
            shown.push((prochot, "1".to_owned()));
        }
        if !below.is_empty() {
            let limit = facts.read(&format!("{folder}/pwr_current_active_freq_limit")).ok();
            let at = limit.map_or_else(String::new, |mhz| format!(" at {mhz} MHz"));
            limited.push(format!("socket {socket}{at} by {}", below.join(" and ")));
        }
        shown.push((source, text));
    }
    let seen = |answer: Answer| {
        shown.iter().take(4).fold(answer, |answer, (place, text)| answer.seen(place.clone(), text.clone()))
    };
    // Check this first: it is a fault, whatever else limits the socket.
    if !hot.is_empty() {
        let sockets: CpuList = hot.iter().map(|&socket| socket as u32).collect();
        let what = "at the temperature limit, or something outside asserts it";
        return Some(seen(fault(format!("PROCHOT is active on sockets {sockets}: {what}"))).person(
            "check fans, air flow and heat sink; then the power supply and the management controller's log",
        ));
    }
    if !limited.is_empty() {
        return Some(seen(warning(format!("the frequency is limited: {}", limited.join("; ")))).person(
            "heat: improve cooling; PPT or TDC: raise cTDP and the package power limit in \
                        firmware; an agent: see its \
                 settings",
        ));
    }
    fine.sort_unstable();
    fine.dedup();
    let what = if fine.is_empty() {
        "no limit is active".to_owned()
    } else {
        format!("only the processor's own rating limits the frequency: {}", fine.join(", "))
    };
    Some(seen(ok(what)))
}

/// Returns the directories of the management port's devices, one per socket.
pub(super) fn hsmp_folders(facts: &Facts) -> Vec<String> {
    let root = "/sys/devices/platform";
    let ports = facts.list(root).into_iter().filter(|name| name.starts_with("AMDI0097:"));
    ports.map(|name| format!("{root}/{name}")).collect()
}
