//! Plants each fault that a value can cause on every recorded machine where it can occur. The
//! doctor must find it, and must not report anything else that is new.

use std::collections::{BTreeMap, BTreeSet};

use flyball_control::{
    Id, Intent, Reading, Snapshot,
    doctor::{Options, Report, Verdict, examine},
    plan::plan,
};
use flyball_host::{Archive, Host};
use flyball_testing::machines;

use super::situations::Changed;

const CPU: &str = "/sys/devices/system/cpu";

/// A planted fault: files and registers, and the checks of which one must find it. The others may.
struct Fault {
    name: &'static str,
    files: BTreeMap<String, String>,
    registers: Vec<(u32, u64)>,
    found_by: &'static [&'static str],
}

/// Returns the faults that a machine can have.
#[expect(clippy::too_many_lines, reason = "a table")]
fn faults(host: &Archive) -> Vec<Fault> {
    let read = |path: &str| host.read(path).ok();
    let policies: Vec<String> = host
        .list(&format!("{CPU}/cpufreq"))
        .unwrap_or_default()
        .into_iter()
        .filter(|name| name.starts_with("policy"))
        .map(|name| format!("{CPU}/cpufreq/{name}"))
        .collect();
    let each = |file: &str, value: &dyn Fn(&str) -> Option<String>| -> Option<BTreeMap<String, String>> {
        policies
            .iter()
            .map(|policy| {
                read(&format!("{policy}/{file}"))?;
                Some((format!("{policy}/{file}"), value(policy)?))
            })
            .collect::<Option<BTreeMap<_, _>>>()
            .filter(|files| !files.is_empty())
    };
    let number = |path: String| read(&path).and_then(|text| text.trim().parse::<u64>().ok());
    let driver = policies.first().and_then(|policy| read(&format!("{policy}/scaling_driver")));
    let is_active = matches!(driver.as_deref(), Some("intel_pstate" | "amd-pstate-epp"));
    let one = |path: &str, value: &str| Some(BTreeMap::from([(path.to_owned(), value.to_owned())]));
    let present = |path: &str, value: &str| read(path).and_then(|_| one(path, value));
    let mut faults = Vec::new();
    let mut add = |name, files: Option<BTreeMap<String, String>>, found_by| {
        faults.extend(files.map(|files| Fault { name, files, registers: Vec::new(), found_by }));
    };
    if !is_active {
        add(
            "userspace",
            each("scaling_governor", &|_| Some("userspace".to_owned())),
            &["conflict.userspace"][..],
        );
        add(
            "powersave",
            each("scaling_governor", &|_| Some("powersave".to_owned())),
            &["conflict.powersave"],
        );
    }
    let lowered = |policy: &str| {
        let table = read(&format!("{policy}/scaling_available_frequencies"));
        let top =
            table.and_then(|list| list.split_whitespace().filter_map(|khz| khz.parse::<u64>().ok()).max());
        let highest = number(format!("{policy}/cpuinfo_max_freq"))?;
        Some((top.map_or(highest, |top| top.min(highest)) * 94 / 100).to_string())
    };
    add(
        "maximum of 94 %",
        each("scaling_max_freq", &lowered),
        &["conflict.lowered-maximum", "conflict.below-base"],
    );
    let half = |policy: &str| Some((number(format!("{policy}/cpuinfo_min_freq"))? * 11 / 10).to_string());
    add(
        "maximum near the minimum",
        each("scaling_max_freq", &half),
        &["conflict.below-base", "conflict.lowered-maximum"],
    );
    if let Some(last) = policies.last() {
        let limit = format!("{last}/scaling_max_freq");
        let low = number(format!("{last}/cpuinfo_min_freq")).map(|khz| (khz + 100_000).to_string());
        add(
            "one maximum",
            low.and_then(|low| one(&limit, &low)),
            &["conflict.limits", "conflict.below-base"],
        );
        let epp = format!("{last}/energy_performance_preference");
        add(
            "one preference",
            present(&epp, "power"),
            &["conflict.epp", "conflict.registers", "conflict.governor-epp"],
        );
    }
    add("no_turbo", present(&format!("{CPU}/intel_pstate/no_turbo"), "1"), &["conflict.turbo-off"]);
    add("boost", present(&format!("{CPU}/cpufreq/boost"), "0"), &["conflict.turbo-off", "conflict.turbo"]);
    add("max_perf_pct", present(&format!("{CPU}/intel_pstate/max_perf_pct"), "80"), &["conflict.perf-pct"]);
    add(
        "a latency limit",
        present(&format!("{CPU}/cpu0/power/pm_qos_resume_latency_us"), "n/a"),
        &["conflict.latency-limit"],
    );
    add("a state off", present(&format!("{CPU}/cpu0/cpuidle/state2/disable"), "1"), &["conflict.cpuidle"]);
    for governor in ["ladder", "haltpoll"] {
        let path = format!("{CPU}/cpuidle/current_governor");
        add(governor, present(&path, governor), &["conflict.idle-governor"]);
    }
    add("no idle driver", present(&format!("{CPU}/cpuidle/current_driver"), "none"), &["conflict.cpuidle"]);
    add("smt", present(&format!("{CPU}/smt/control"), "off"), &["firmware.smt"]);
    add(
        "hpet",
        one("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
        &["now.clock-source"],
    );
    add("low-power", one("/sys/firmware/acpi/platform_profile", "low-power"), &["firmware.platform-profile"]);
    let stepping = |text: String| {
        let end = text.trim_end().rfind("stepping")?;
        let line = text[end..].find('\n')? + end;
        Some(format!("{}stepping\t: 77{}", &text[..end], &text[line..]))
    };
    add(
        "another stepping",
        read("/proc/cpuinfo").and_then(stepping).and_then(|text| one("/proc/cpuinfo", &text)),
        &["firmware.same-processors"],
    );
    let epb = format!("{CPU}/cpu0/power/energy_perf_bias");
    let other = if read(&epb).as_deref() == Some("0") { "15" } else { "0" };
    add("one bias", present(&epb, other), &["firmware.energy-bias"]);
    if driver.as_deref() == Some("intel_pstate") && host.msr(0, 0x770).is_ok_and(|value| value & 1 == 1) {
        if let Ok(request) = host.msr(0, 0x774) {
            for (name, value) in [
                ("a desired level", request & !0xff_0000 | 0x0a_0000),
                ("a preference in the register", request & !0xff00_0000 | 0xff00_0000),
                ("a maximum in the register", request & !0xff00 | (request >> 9 & 0x7f) << 8),
                ("the package's request in force", request | 1 << 42),
            ] {
                faults.push(Fault {
                    name,
                    files: BTreeMap::new(),
                    registers: vec![(0x774, value), (0x772, request & !0xff00 | 0x0900)],
                    found_by: &["conflict.registers"],
                });
            }
        }
    }
    faults
}

/// Returns unusual states of a machine that are not faults. The checks in `found_by` must not
/// report them.
fn controls(host: &Archive) -> Vec<Fault> {
    let policies = host.list(&format!("{CPU}/cpufreq")).unwrap_or_default();
    let policies: Vec<String> = policies.into_iter().filter(|name| name.starts_with("policy")).collect();
    let each = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
        let of = |policy: &String| {
            let path = |name: &str| format!("{CPU}/cpufreq/{policy}/{name}");
            files.iter().map(move |(name, text)| (path(name), (*text).to_owned())).collect::<Vec<_>>()
        };
        policies.iter().flat_map(of).collect()
    };
    let mut controls = Vec::new();
    let has_hwp = host.msr(0, 0x770).is_ok_and(|value| value & 1 == 1);
    // intel_cpufreq_update_pstate: the governor's level is also the minimum, and for governors with
    // a strict target also the maximum.
    if let (true, Ok(now)) = (has_hwp, host.msr(0, 0x774)) {
        let byte = |value: u64, shift: u32| (value & 0xff) << shift;
        let (lowest, highest) = (now & 0xff, now >> 8 & 0xff);
        for (governor, level, maximum) in [
            ("schedutil", lowest, highest),
            ("schedutil", highest / 2, highest),
            ("performance", highest, highest),
            ("powersave", lowest, lowest),
        ] {
            let files = each(&[("scaling_driver", "intel_cpufreq"), ("scaling_governor", governor)]);
            let request = now & !0xff_ffff | byte(level, 0) | byte(maximum, 8) | byte(level, 16);
            let registers = vec![(0x774, request)];
            let found_by = &["conflict.registers", "conflict.governor-epp"];
            controls.push(Fault { name: governor, files, registers, found_by });
        }
    }
    // _PPC: scaling_max_freq shows the limit, and no setting raises it.
    if let Some(limit) = policies.first().and_then(|policy| {
        let table = host.read(&format!("{CPU}/cpufreq/{policy}/scaling_available_frequencies")).ok()?;
        host.read(&format!("{CPU}/cpufreq/{policy}/bios_limit")).ok()?;
        table.split_whitespace().filter_map(|khz| khz.parse::<u64>().ok()).min().map(|khz| khz.to_string())
    }) {
        controls.push(Fault {
            name: "a limit of the firmware",
            files: each(&[("bios_limit", &limit), ("scaling_max_freq", &limit)]),
            registers: Vec::new(),
            found_by: &["conflict.below-base", "conflict.lowered-maximum", "conflict.limits"],
        });
    }
    controls
}

/// No answer on a recorded machine may be ok if the machine's files show otherwise.
#[test]
fn no_answer_denies_what_the_machine_shows() {
    let (mut c1e, mut locks) = (0, 0);
    for machine in machines() {
        let host = Archive::open(&machine.display().to_string()).unwrap();
        let report = examine(&host, Options::default()).unwrap();
        let words = |id: &str| {
            let found = report.findings.iter().find(|finding| finding.id == id);
            found.map_or_else(String::new, |found| format!("{} {}", found.verdict.word(), found.what))
        };
        let states = host.list(&format!("{CPU}/cpu0/cpuidle")).unwrap_or_default();
        let is_c1e = |state: &String| {
            host.read(&format!("{CPU}/cpu0/cpuidle/{state}/name")).is_ok_and(|name| name.trim() == "C1E")
        };
        if states.iter().any(is_c1e) && host.msr(0, 0x1fc).is_ok() {
            c1e += 1;
            assert!(!words("firmware.c1e").contains("off"), "{}: {}", host.name(), words("firmware.c1e"));
            let is_promoted = host.msr(0, 0x1fc).is_ok_and(|value| value >> 1 & 1 == 1);
            let expected = if is_promoted { "is promoted" } else { "in use" };
            assert!(words("firmware.c1e").contains(expected), "{}: {}", host.name(), words("firmware.c1e"));
        }
        let snapshot = Snapshot::take_knobs(&host, &[Id::SstLocked]).unwrap();
        for place in snapshot.places(Id::SstLocked).unwrap_or_default() {
            if let Ok(Reading::Value { value, .. }) = snapshot.read(Id::SstLocked, place) {
                locks += 1;
                let is_locked = words("firmware.speed-select").contains("is locked");
                assert_eq!(is_locked, value.to_string() == "on", "{}: {value}", host.name());
            }
        }
    }
    println!("{c1e} machines with C1E, {locks} power domains with a lock");
    assert!(c1e >= 6 && locks > 0, "{c1e} {locks}");
}

/// docs/dev/doctor.md assesses each finding on the recorded machines.
#[test]
fn the_page_judges_every_finding() {
    let page = include_str!("../../../../../docs/dev/doctor.md");
    let table = page.split("## Findings on the recorded machines").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let (mut judged, mut named) = (BTreeSet::new(), BTreeSet::new());
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for machine in cells[1].split(", ") {
            named.insert(machine.to_owned());
            if let Some((verdict, rest)) = cells[2].split_once(" `") {
                let id = rest.split('`').next().unwrap();
                judged.insert((machine.to_owned(), verdict.to_owned(), id.to_owned()));
            }
        }
    }
    let mut found = BTreeSet::new();
    for machine in machines() {
        let host = Archive::open(&machine.display().to_string()).unwrap();
        let name = machine.file_name().unwrap().to_string_lossy().replace(".tar.zst", "");
        assert!(named.remove(&name), "{name} is not in the table");
        for finding in examine(&host, Options::default()).unwrap().from(Verdict::Note) {
            found.insert((name.clone(), finding.verdict.word().to_owned(), finding.id.to_owned()));
        }
    }
    assert_eq!(judged, found);
    assert!(named.is_empty(), "no such recording: {named:?}");
}

/// A hostile recording has numbers that no kernel prints.
#[test]
fn no_number_is_too_large_to_compute_with() {
    for machine in machines() {
        let host = Archive::open(&machine.display().to_string()).unwrap();
        let names = host.list(&format!("{CPU}/cpufreq")).unwrap_or_default();
        let folders = names.iter().map(|name| format!("{CPU}/cpufreq/{name}"));
        let files: BTreeMap<String, String> = folders
            .chain([format!("{CPU}/intel_pstate")])
            .flat_map(|folder| {
                let files = host.list(&folder).unwrap_or_default();
                files.into_iter().map(move |file| format!("{folder}/{file}"))
            })
            .filter(|path| host.read(path).is_ok_and(|text| text.trim().parse::<u64>().is_ok()))
            .map(|path| (path, u64::MAX.to_string()))
            .collect();
        let host = Changed::with(&host, files, &[]);
        examine(&host, Options::default()).unwrap();
        for setting in ["max-freq=75%", "max-freq=base", "min-freq=efficient", "max-freq=2GHz"] {
            let intent = Intent::from_arguments(&[setting], None).unwrap();
            if let Ok(snapshot) = Snapshot::for_intent(&host, &intent) {
                let _ = plan(&snapshot, &intent);
            }
        }
    }
}

fn found(report: &Report) -> BTreeSet<&'static str> {
    report.from(Verdict::Note).iter().map(|finding| finding.id).collect()
}

#[test]
fn each_fault_is_found_on_every_machine_that_can_have_it() {
    let (mut planted, mut silent, mut others) = (0, Vec::new(), Vec::new());
    for machine in machines() {
        let host = Archive::open(&machine.display().to_string()).unwrap();
        let examined = |host: &dyn Host| examine(host, Options::default()).unwrap();
        let before = examined(&host);
        for Fault { name, files, registers, found_by } in faults(&host) {
            let report = examined(&Changed::with(&host, files, &registers));
            let text = |report: &Report, id: &str| {
                let finding = report.findings.iter().find(|finding| finding.id == id);
                finding.map(|finding| (finding.verdict, finding.what.clone()))
            };
            let is_new = |id: &&str| {
                text(&report, id).is_some_and(|(verdict, _)| verdict >= Verdict::Note)
                    && text(&report, id) != text(&before, id)
            };
            // A worse finding of the same check hides the fault.
            if found_by.iter().all(|id| found(&before).contains(id)) {
                continue;
            }
            planted += 1;
            if !found_by.iter().any(is_new) {
                silent.push(format!("{} {name}: {:?}", host.name(), text(&report, found_by[0])));
            }
            for id in found(&report).difference(&found(&before)).filter(|id| !found_by.contains(id)) {
                others.push(format!("{} {name}: {id}: {:?}", host.name(), text(&report, id)));
            }
        }
    }
    println!("{planted} faults planted, {} silent, {} other findings", silent.len(), others.len());
    assert!(silent.is_empty() && others.is_empty(), "silent: {silent:#?}\nothers: {others:#?}");
    assert!(planted >= 150, "{planted}");
}

#[test]
fn what_a_machine_does_by_itself_is_no_finding() {
    let (mut compared, mut alarms) = (0, Vec::new());
    for machine in machines() {
        let host = Archive::open(&machine.display().to_string()).unwrap();
        for Fault { name, files, registers, found_by } in controls(&host) {
            let report = examine(&Changed::with(&host, files, &registers), Options::default()).unwrap();
            compared += 1;
            let is_alarm = |id: &&&str| found(&report).contains(**id);
            alarms.extend(found_by.iter().find(is_alarm).map(|id| format!("{} {name}: {id}", host.name())));
        }
    }
    println!("{compared} controls, {} alarms", alarms.len());
    assert!(alarms.is_empty() && compared >= 28, "of {compared}: {alarms:#?}");
}
