//! Runs every check of the doctor on a machine where it fires and on another where it does not.
//!
//! The machines are small artificial trees (`machines`). Each row (`rows`) changes one of them in
//! one place.

mod everywhere;
pub(crate) mod machines;
mod rows;
mod second;
mod situation_rows;
pub(crate) mod situations;

use std::collections::{BTreeMap, BTreeSet};

use flyball_control::doctor::{CHECKS, Options, Report, Verdict, examine};

use machines::{
    CLOCK, CPU, FileHost, Files, acpi, amd, client, each_policy, epyc, flags, for_latency, haswell, intel,
    msr, no_policies, put, storpool, tpmi,
};
use rows::rows;

fn report(files: &Files, storpool: bool) -> Report {
    try_report(files, storpool).unwrap()
}

/// Returns `None` if even the list of processors is missing.
fn try_report(files: &Files, storpool: bool) -> Option<Report> {
    examine(&FileHost(files), Options { storpool }).ok()
}

fn verdict(report: &Report, id: &str) -> Option<Verdict> {
    report.findings.iter().find(|finding| finding.id == id).map(|finding| finding.verdict)
}

#[test]
fn each_row_fires() {
    for row in rows() {
        let mut files = (row.base)();
        (row.change)(&mut files);
        let report = report(&files, true);
        assert_eq!(
            verdict(&report, row.id),
            Some(row.expected),
            "{}: {:#?}",
            row.id,
            report.findings.iter().find(|f| f.id == row.id)
        );
    }
}

fn no_idle_state_but_polling(files: &mut Files) {
    let off = |path: &String| path.ends_with("/disable") && !path.contains("state0");
    files.iter_mut().filter(|(path, _)| off(path)).for_each(|(_, text)| *text = Some("1".to_owned()));
}

fn acpi_idle(files: &mut Files, parameters: &str) {
    put(files, format!("{CPU}/cpuidle/current_driver"), "acpi_idle");
    put(files, "proc/cmdline", parameters);
}

fn acpi_idle_with_c1(files: &mut Files) {
    acpi_idle(files, "processor.max_cstate=1 intel_idle.max_cstate=0");
    no_deep_state(files);
}

fn no_deep_state(files: &mut Files) {
    files.retain(|path, _| !path.contains("cpuidle/state2"));
}

fn no_deep_state_and_no_turbo(files: &mut Files) {
    no_deep_state(files);
    let cpuinfo = files["proc/cpuinfo"].clone().unwrap_or_default();
    put(files, "proc/cpuinfo", cpuinfo.replace(" ida", ""));
}

fn clock_that_a_program_chose(files: &mut Files) {
    put(files, CLOCK, "hpet");
    put(files, CLOCK.replace("current", "available"), "tsc hpet acpi_pm");
}

type Case = (fn(&mut Files), &'static str, Verdict, &'static str);

/// The answer or its remedy names the cause, which the verdict alone does not show.
#[test]
fn answers_name_the_cause() {
    let removed = "remove processor.max_cstate=1 intel_idle.max_cstate=0";
    let cases: [Case; 7] = [
        (no_idle_state_but_polling, "conflict.cpuidle", Verdict::Warning, "poll at full power"),
        (acpi_idle_with_c1, "conflict.cpuidle", Verdict::Warning, removed),
        (
            |f| acpi_idle(f, "intel_idle.max_cstate=0"),
            "conflict.cpuidle",
            Verdict::Note,
            "keeps intel_idle away",
        ),
        (no_deep_state, "conflict.cpuidle", Verdict::Note, "stay powered and count for the turbo"),
        (no_deep_state_and_no_turbo, "conflict.cpuidle", Verdict::Note, "idle cores stay powered\""),
        (|f| msr(f, 0x610, "8000820000008400"), "firmware.power-limit", Verdict::Warning, "raise PL2"),
        (clock_that_a_program_chose, "now.clock-source", Verdict::Warning, "write tsc to"),
    ];
    for (change, id, verdict, words) in cases {
        let mut files = intel();
        change(&mut files);
        let report = report(&files, false);
        let found = report.findings.iter().find(|finding| finding.id == id).unwrap();
        assert!(found.verdict == verdict && format!("{found:?}").contains(words), "{words}: {found:#?}");
    }
}

/// Every finding has evidence, except about things that could not be read.
#[test]
fn every_finding_carries_its_evidence() {
    let changed = rows().into_iter().map(|row| {
        let mut files = (row.base)();
        (row.change)(&mut files);
        files
    });
    let mut bare = BTreeMap::new();
    for files in changed.chain([intel(), amd(), acpi(), epyc(), client(), haswell(), storpool(), tpmi()]) {
        for finding in report(&files, true).findings {
            if finding.verdict != Verdict::Unknown && finding.evidence.is_empty() {
                bare.insert(finding.id, finding.what);
            }
        }
    }
    assert!(bare.is_empty(), "{bare:#?}");
}

/// The client register of limit reasons needs a client's model.
#[test]
fn limit_reasons_are_named() {
    let mut files = intel();
    flags(&mut files, "model\t\t: 85", "model\t\t: 158");
    assert_eq!(verdict(&report(&files, false), "now.limit-reasons"), Some(Verdict::Ok));
    msr(&mut files, 0x64f, "400");
    let report = report(&files, false);
    let finding = report.findings.iter().find(|finding| finding.id == "now.limit-reasons").unwrap();
    assert_eq!(finding.verdict, Verdict::Warning);
    assert!(finding.what.contains("package power limit 1"), "{}", finding.what);
}

/// Checks of settings that are a matter of preference. They report nothing outside the recommended
/// profile.
const TASTE: &[&str] = &["firmware.autonomous-c-state"];

/// Checks that query a device, not files: the program's own tests cover them on simulated machines.
const DEVICES: &[&str] = &["conflict.clos"];

/// For each check in the table there is a machine on which it returns ok, and another on which it
/// reports something.
#[test]
fn every_check_is_ok_somewhere_and_fires_somewhere() {
    type Base = (&'static str, fn() -> Files);
    let bases: [Base; 9] = [
        ("intel", intel),
        ("amd", amd),
        ("acpi", acpi),
        ("epyc", epyc),
        ("client", client),
        ("haswell", haswell),
        ("storpool", storpool),
        ("tpmi", tpmi),
        ("for_latency", for_latency),
    ];
    let fine: Vec<(&str, Report)> = bases.iter().map(|(name, base)| (*name, report(&base(), true))).collect();
    let fired: BTreeSet<&str> =
        rows().iter().filter(|row| row.expected >= Verdict::Note).map(|row| row.id).collect();
    for check in CHECKS.iter().copied().flatten().filter(|check| !DEVICES.contains(&check.id)) {
        let on = fine.iter().find(|(_, report)| verdict(report, check.id) == Some(Verdict::Ok));
        assert!(on.is_some(), "no machine on which {} is ok", check.id);
        assert!(fired.contains(check.id) || TASTE.contains(&check.id), "{} never fires", check.id);
        println!("{:<28} ok on {}", check.id, on.unwrap().0);
    }
    let known: BTreeSet<&str> = CHECKS.iter().copied().flatten().map(|check| check.id).collect();
    assert!(rows().iter().all(|row| known.contains(row.id)), "a row for a check that there is not");
}

#[test]
fn good_machines_have_nothing_worse_than_a_note() {
    for files in [intel(), amd()] {
        let report = report(&files, false);
        assert!(report.worst() <= Verdict::Note, "{:#?}", report.from(Verdict::Warning));
    }
}

/// Returns whether a machine may lose this path without hiding a problem: a process that ends, or
/// an entry that its neighbours replace.
fn may_go(path: &str) -> bool {
    // The driver omits some power domains, so a missing file means nothing.
    path.starts_with("proc/1/") || path.starts_with("proc/77/") || path.contains("/plr/domain")
}

/// No verdict may become ok when files are removed one by one and in random sets, and registers
/// line by line: ok must mean that the check read what it needs.
#[test]
fn no_verdict_turns_to_ok_when_files_go_away() {
    // As for the property tests, PROPTEST_RNG_SEED and PROPTEST_CASES explore further.
    let number =
        |name: &str, usual: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let mut rng = Chance(number("PROPTEST_RNG_SEED", 1));
    let sets = number("PROPTEST_CASES", 12);
    let good: [fn() -> Files; 8] = [intel, amd, acpi, epyc, client, haswell, tpmi, for_latency];
    let broken = rows().into_iter().map(|row| {
        let mut files = (row.base)();
        (row.change)(&mut files);
        files
    });
    let mut compared = 0;
    let mut wrong: BTreeMap<&str, (String, Vec<String>)> = BTreeMap::new();
    for files in good.into_iter().map(|base| base()).chain(broken) {
        let before: BTreeMap<&str, Verdict> =
            report(&files, true).findings.iter().map(|finding| (finding.id, finding.verdict)).collect();
        for _ in 0..sets {
            // Remove between a single file and three quarters of all.
            let share = [1, 2, 5, 20, 50, 75][rng.below(6)];
            let single = rng.below(3) == 0;
            let chosen = rng.below(files.len());
            let mut damaged: Files = Files::new();
            for (number, (path, text)) in files.iter().enumerate() {
                let gone = if single { number == chosen } else { rng.below(100) < share };
                if path == "msr.txt" {
                    let lines = text.as_deref().unwrap_or_default().lines();
                    let kept: String =
                        lines.filter(|_| rng.below(100) >= share).map(|line| format!("{line}\n")).collect();
                    put(&mut damaged, path.clone(), kept);
                } else if !gone || may_go(path) {
                    damaged.insert(path.clone(), text.clone());
                }
            }
            let Some(after) = try_report(&damaged, true) else { continue };
            for finding in after.findings.iter().filter(|finding| finding.verdict == Verdict::Ok) {
                compared += 1;
                // A check that did not apply before may apply now, because a file that decided this
                // is gone. Its verdict is still based on files that it read.
                let Some(then) = before.get(finding.id) else { continue };
                if *then != Verdict::Ok {
                    let lost: Vec<&String> =
                        files.keys().filter(|path| !damaged.contains_key(*path)).collect();
                    let shorter = wrong.get(finding.id).is_none_or(|(_, known)| known.len() > lost.len());
                    if shorter {
                        let lost = lost.into_iter().cloned().collect();
                        wrong.insert(finding.id, (format!("{} was {then:?}", finding.what), lost));
                    }
                }
            }
        }
    }
    println!("{compared} verdicts of ok compared");
    for (id, (what, lost)) in &wrong {
        println!("{id}: {what}: {} lost", lost.len());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A small generator, so that the sets are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

#[test]
fn nothing_is_ok_where_nothing_can_be_seen() {
    let mut files = intel();
    files.retain(|path, _| {
        path == "proc/cpuinfo"
            || path.ends_with("/online")
            || path.contains("scaling_driver")
            || path.contains("_cpus")
    });
    let report = report(&files, true);
    let ok: Vec<&str> = report
        .findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Ok)
        .map(|finding| finding.id)
        .collect();
    // These need only the remaining files: the drivers' names, the processor's flags, and the list
    // of online CPUs.
    for id in &ok {
        assert!(
            matches!(
                *id,
                "driver.present"
                    | "driver.best"
                    | "driver.same"
                    | "firmware.same-processors"
                    | "firmware.turbo"
                    | "firmware.p-state-control"
            ),
            "{id} says ok"
        );
    }
}

#[test]
fn a_virtual_machine_is_told_so() {
    let mut files = intel();
    no_policies(&mut files);
    flags(&mut files, "ida", "hypervisor ida");
    let report = report(&files, false);
    assert!(report.not_visible.is_some() && report.findings.is_empty());
}

#[test]
fn a_container_is_told_so() {
    for marker in [".dockerenv", "run/.containerenv", "run/systemd/container"] {
        let mut files = intel();
        no_policies(&mut files);
        put(&mut files, marker, "");
        let hidden = report(&files, false).not_visible.unwrap();
        assert!(hidden.what.contains("container") && hidden.evidence.len() == 2, "{hidden:?}");
    }
    // A container that sees the machine's files counts as the host.
    let mut files = intel();
    put(&mut files, ".dockerenv", "");
    assert!(report(&files, false).not_visible.is_none());
}

#[test]
fn settings_to_make_name_each_knob_once() {
    let mut files = intel();
    put(&mut files, format!("{CPU}/cpufreq/policy1/scaling_governor"), "performance");
    each_policy(&mut files, "scaling_max_freq", "1500000");
    let settings: Vec<String> = report(&files, false).settings().iter().map(ToString::to_string).collect();
    assert_eq!(settings, ["governor=powersave", "max-freq=max"]);
}
