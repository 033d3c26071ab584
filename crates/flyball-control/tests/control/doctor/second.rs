//! A second set of faults, based on what goes wrong on machines and not on the checks. Each is
//! planted on every recorded machine that has the file or register. The doctor must report
//! something new, and nothing for harmless changes. docs/dev/doctor.md lists the faults that it
//! missed at first.

use std::collections::BTreeMap;

use flyball_control::doctor::{Options, Report, Verdict, examine};
use flyball_host::{Archive, Host};
use flyball_testing::machines;

use super::situations::Changed;

struct Change {
    name: String,
    files: BTreeMap<String, String>,
    registers: Vec<(u32, u64)>,
    is_fault: bool,
}

/// Returns the machine's files that match a pattern with one `*` in a folder's name.
fn matching(host: &Archive, pattern: &str) -> Vec<String> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![pattern.to_owned()].into_iter().filter(|path| host.exists(path)).collect();
    };
    let (folder, stem) = before.rsplit_once('/').unwrap();
    let mut names = host.list(folder).unwrap_or_default();
    names.retain(|name| name.starts_with(stem));
    names.sort_by_key(|name| name[stem.len()..].parse::<u32>().unwrap_or(0));
    let path = |name: String| format!("{folder}/{name}{after}");
    names.into_iter().map(path).filter(|path| host.exists(path)).collect()
}

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// Files, and the text to put into all of them, or into the last.
const FILES: &[(&str, &str, &str, bool)] = &[
    ("one CPU may not sleep", "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us", "1", false),
    ("no CPU may sleep", "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us", "1", true),
    ("all states off on one CPU", "/sys/devices/system/cpu/cpu1/cpuidle/state*/disable", "1", true),
    ("first deep state off", "/sys/devices/system/cpu/cpu*/cpuidle/state2/disable", "1", true),
    ("HPET", CLOCK, "hpet", true),
    ("ACPI timer", CLOCK, "acpi_pm", true),
    ("no turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo", "1", true),
    ("half of the speed", "/sys/devices/system/cpu/intel_pstate/max_perf_pct", "50", true),
    ("always fast", "/sys/devices/system/cpu/intel_pstate/min_perf_pct", "100", true),
    ("no boost", "/sys/devices/system/cpu/cpufreq/boost", "0", true),
    (
        "low preference of one",
        "/sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
        "power",
        false,
    ),
    ("one slow core", "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq", "800000", false),
    ("all slow", "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq", "1200000", true),
    ("one bias", "/sys/devices/system/cpu/cpu*/power/energy_perf_bias", "15", false),
    ("no long-term limit", "/sys/class/powercap/intel-rapl:*/enabled", "0", true),
    ("a low power limit", "/sys/class/powercap/intel-rapl:*/constraint_0_power_limit_uw", "30000000", true),
    ("throttled cores", "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count", "41234", true),
    (
        "throttled packages",
        "/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count",
        "41234",
        true,
    ),
    ("a slow mesh", "/sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz", "800000", true),
    ("ladder", "/sys/devices/system/cpu/cpuidle/current_governor", "ladder", true),
    ("no idle driver", IDLE_DRIVER, "none", true),
    ("SMT off", "/sys/devices/system/cpu/smt/control", "forceoff", true),
];

/// Kernel parameters that cost speed or latency, with the idle driver or the clock that remains.
const WORDS: &[(&str, Option<(&str, &str)>)] = &[
    ("idle=poll", None),
    ("idle=halt", None),
    ("processor.max_cstate=1 intel_idle.max_cstate=0", Some((IDLE_DRIVER, "acpi_idle"))),
    ("cpuidle.off=1", None),
    ("tsc=unstable", Some((CLOCK, "hpet"))),
];

/// Register bits to set, with the registers that must exist: Intel SDM volume 4.
const BITS: &[(&str, u32, u64)] = &[
    ("turbo disabled by firmware", 0x1a0, 1 << 38),
    ("SpeedStep off", 0x1a0, 0),
    ("PROCHOT from outside", 0x19c, 1 << 2),
    ("too hot", 0x19c, 1 << 0),
    ("at the power limit", 0x64f, 1 << 10),
];

fn changes(host: &Archive) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, pattern, value, is_all) in FILES {
        let mut paths = matching(host, pattern);
        if !is_all {
            paths = paths.pop().into_iter().collect();
        }
        paths.retain(|path| host.read(path).is_ok_and(|now| now.trim() != *value));
        if !paths.is_empty() {
            let files = paths.into_iter().map(|path| (path, (*value).to_owned())).collect();
            changes.push(Change { name: (*name).to_owned(), files, registers: Vec::new(), is_fault: true });
        }
    }
    let options = host.read("/proc/cmdline").unwrap_or_default();
    let mut add = |words: &str, left: Option<(&str, &str)>, is_fault| {
        let line = ("/proc/cmdline".to_owned(), format!("{} {words}", options.trim_end()));
        let left = left.map(|(path, content)| (path.to_owned(), content.to_owned()));
        let files = std::iter::once(line).chain(left).collect();
        changes.push(Change { name: words.to_owned(), files, registers: Vec::new(), is_fault });
    };
    if !options.is_empty() {
        for (words, left) in WORDS {
            // If a recording has no clock source, only the command line changes.
            add(words, left.filter(|(path, _)| *path != CLOCK || host.exists(path)), true);
        }
        // A guest has its own clock despite the parameter.
        add("notsc", Some((CLOCK, "kvm-clock")), false);
        for words in ["quiet", "console=ttyS0,115200", "mitigations=auto", "selinux=0"] {
            add(words, None, false);
        }
    }
    for (name, register, bits) in BITS {
        let Ok(now) = host.msr(0, *register) else { continue };
        let value = if *bits == 0 { now & !(1 << 16) } else { now | bits };
        if value != now {
            let registers = vec![(*register, value)];
            changes.push(Change {
                name: (*name).to_owned(),
                files: BTreeMap::new(),
                registers,
                is_fault: true,
            });
        }
    }
    changes
}

/// Returns the findings that are not ok, with their text.
fn said(report: &Report) -> BTreeMap<&'static str, (Verdict, String)> {
    report.from(Verdict::Note).iter().map(|found| (found.id, (found.verdict, found.what.clone()))).collect()
}

#[test]
fn faults_written_without_the_checks_are_found() {
    let (mut planted, mut controls, mut silent, mut alarms) = (0, 0, Vec::new(), Vec::new());
    for machine in machines() {
        let host = Archive::open(&machine.display().to_string()).unwrap();
        let examined = |host: &dyn Host| said(&examine(host, Options::default()).unwrap());
        let before = examined(&host);
        for Change { name, files, registers, is_fault } in changes(&host) {
            let after = examined(&Changed::with(&host, files, &registers));
            let new: Vec<&str> = after
                .iter()
                .filter(|(id, found)| before.get(*id) != Some(*found))
                .map(|(id, _)| *id)
                .collect();
            println!("{}: {name}: {}", host.name(), new.join(" "));
            let is_new = !new.is_empty();
            match (is_fault, is_new) {
                (true, false) => silent.push(format!("{}: {name}", host.name())),
                (false, true) => alarms.push(format!("{}: {name}", host.name())),
                _ => {}
            }
            planted += usize::from(is_fault);
            controls += usize::from(!is_fault);
        }
    }
    println!(
        "{planted} faults planted, {} silent; {controls} controls, {} alarms",
        silent.len(),
        alarms.len()
    );
    println!("silent: {silent:#?}");
    assert!(planted >= 100, "{planted}");
    assert!(silent.len() * 20 <= planted, "of {planted}: {silent:#?}");
    assert!(alarms.is_empty(), "of {controls}: {alarms:#?}");
}
