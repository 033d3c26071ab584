//! Every check of the doctor on a machine where it fires and on one where it does not.
//!
//! The machines are small made-up trees: a good Intel server and a good AMD one, each changed by a row in one place.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use flyball_control::doctor::{CHECKS, Options, Report, Verdict, examine};
use flyball_host::Recorded;

type Files = BTreeMap<String, Option<String>>;

const CPU: &str = "sys/devices/system/cpu";

fn put(files: &mut Files, path: impl Into<String>, text: impl Into<String>) {
    files.insert(path.into(), Some(text.into()));
}

fn common(files: &mut Files, flags: &str, vendor: &str, family: u32, model: u32) {
    let mut cpuinfo = String::new();
    for cpu in 0..4 {
        cpuinfo += &format!(
            "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: Test\nstepping\t: 4\nflags\t\t: {flags}\n\n"
        );
        put(files, format!("{CPU}/cpu{cpu}/topology/physical_package_id"), "0");
        put(files, format!("{CPU}/cpu{cpu}/topology/core_id"), cpu.to_string());
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state0/name"), "POLL");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state0/disable"), "0");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state1/name"), "C1");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state1/disable"), "0");
        let policy = format!("{CPU}/cpufreq/policy{cpu}");
        put(files, format!("{policy}/related_cpus"), cpu.to_string());
        put(files, format!("{policy}/affected_cpus"), cpu.to_string());
        put(files, format!("{policy}/cpuinfo_min_freq"), "1000000");
        put(files, format!("{policy}/cpuinfo_max_freq"), "3700000");
        put(files, format!("{policy}/scaling_min_freq"), "1000000");
        put(files, format!("{policy}/scaling_max_freq"), "3700000");
        put(files, format!("{policy}/scaling_governor"), "powersave");
        put(files, format!("{policy}/energy_performance_preference"), "balance_performance");
    }
    put(files, "proc/cpuinfo", cpuinfo);
    put(files, "proc/cmdline", "root=/dev/sda1 ro");
    put(files, "proc/version", "Linux version 6.12.1 (someone@somewhere)");
    put(files, "proc/1/comm", "systemd");
    for name in ["online", "present", "possible"] {
        put(files, format!("{CPU}/{name}"), "0-3");
    }
    put(files, format!("{CPU}/smt/control"), "notsupported");
    put(files, format!("{CPU}/cpuidle/current_driver"), "some_idle");
    put(files, "sys/class/hwmon/hwmon0/temp1_input", "45000");
    put(files, "sys/class/hwmon/hwmon0/temp1_crit", "100000");
}

/// A first-generation Xeon Scalable, well set up.
fn intel() -> Files {
    let mut files = Files::new();
    common(&mut files, "ida epb hwp hwp_epp aperfmperf", "GenuineIntel", 6, 0x55);
    for cpu in 0..4 {
        put(&mut files, format!("{CPU}/cpufreq/policy{cpu}/scaling_driver"), "intel_pstate");
        put(&mut files, format!("{CPU}/cpufreq/policy{cpu}/base_frequency"), "2000000");
        put(&mut files, format!("{CPU}/cpu{cpu}/power/energy_perf_bias"), "6");
        put(&mut files, format!("{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count"), "0");
        put(&mut files, format!("{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count"), "0");
    }
    put(&mut files, format!("{CPU}/intel_pstate/status"), "active");
    put(&mut files, format!("{CPU}/intel_pstate/no_turbo"), "0");
    let uncore = format!("{CPU}/intel_uncore_frequency/package_00_die_00");
    for (name, value) in
        [("min", "1200000"), ("initial_min", "1200000"), ("max", "2400000"), ("initial_max", "2400000")]
    {
        put(&mut files, format!("{uncore}/{name}_freq_khz"), value);
    }
    put(&mut files, "sys/class/hwmon/hwmon0/name", "coretemp");
    let mut msrs = String::new();
    for (register, value) in [
        (0xce, "200000000"),
        (0xe2, "18402"),
        (0x19c, "882a0000"),
        (0x1a0, "850089"),
        (0x1fc, "2904005b"),
        (0x606, "a0e03"),
        (0x610, "8000000000008400"),
        (0x614, "400"),
        (0x64b, "0"),
        (0x64f, "0"),
        (0x770, "1"),
    ] {
        msrs += &format!("{register:x}:0|{value} 1|{value} 2|{value} 3|{value}\n");
    }
    put(&mut files, "msr.txt", msrs);
    files
}

/// An EPYC with amd-pstate in active mode, well set up.
fn amd() -> Files {
    let mut files = Files::new();
    common(&mut files, "cpb cppc hw_pstate aperfmperf", "AuthenticAMD", 0x1a, 2);
    for cpu in 0..4 {
        let policy = format!("{CPU}/cpufreq/policy{cpu}");
        put(&mut files, format!("{policy}/scaling_driver"), "amd-pstate-epp");
        put(&mut files, format!("{policy}/amd_pstate_lowest_nonlinear_freq"), "1500000");
        put(&mut files, format!("{policy}/amd_pstate_max_freq"), "3700000");
        for (name, value) in [
            ("highest_perf", "200"),
            ("nominal_perf", "140"),
            ("lowest_nonlinear_perf", "80"),
            ("lowest_perf", "40"),
            ("nominal_freq", "2600"),
        ] {
            put(&mut files, format!("{CPU}/cpu{cpu}/acpi_cppc/{name}"), value);
        }
    }
    put(&mut files, format!("{CPU}/amd_pstate/status"), "active");
    put(&mut files, format!("{CPU}/cpufreq/boost"), "1");
    put(&mut files, "sys/class/hwmon/hwmon0/name", "k10temp");
    let all = |register: u32, value: &str| format!("{register:x}:0|{value} 1|{value} 2|{value} 3|{value}\n");
    put(&mut files, "msr.txt", all(0xc001_02b0, "c88c5028") + &all(0xc001_02b1, "1"));
    files
}

/// acpi-cpufreq on an EPYC whose firmware limits nothing.
fn acpi() -> Files {
    let mut files = amd();
    files.remove(&format!("{CPU}/amd_pstate/status"));
    for cpu in 0..4 {
        let policy = format!("{CPU}/cpufreq/policy{cpu}");
        put(&mut files, format!("{policy}/scaling_driver"), "acpi-cpufreq");
        put(&mut files, format!("{policy}/bios_limit"), "2600000");
        put(&mut files, format!("{policy}/scaling_available_frequencies"), "2600000 1500000");
        files.remove(&format!("{policy}/energy_performance_preference"));
        put(&mut files, format!("{policy}/scaling_governor"), "schedutil");
    }
    files
}

fn report(files: &Files, storpool: bool) -> Report {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        if let Some(text) = text {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
    }
    examine(&Recorded::open(folder.path()).unwrap(), Options { storpool }).unwrap()
}

fn verdict(report: &Report, id: &str) -> Option<Verdict> {
    report.findings.iter().find(|finding| finding.id == id).map(|finding| finding.verdict)
}

struct Row {
    id: &'static str,
    base: fn() -> Files,
    change: fn(&mut Files),
    expected: Verdict,
}

fn row(id: &'static str, base: fn() -> Files, change: fn(&mut Files), expected: Verdict) -> Row {
    Row { id, base, change, expected }
}

fn each_policy(files: &mut Files, name: &str, value: &str) {
    for cpu in 0..4 {
        put(files, format!("{CPU}/cpufreq/policy{cpu}/{name}"), value);
    }
}

/// Replaces a register's line.
fn msr(files: &mut Files, register: u32, value: &str) {
    let text = files["msr.txt"].clone().unwrap();
    let prefix = format!("{register:x}:");
    let kept: String =
        text.lines().filter(|line| !line.starts_with(&prefix)).map(|line| format!("{line}\n")).collect();
    put(files, "msr.txt", format!("{kept}{prefix}0|{value} 1|{value} 2|{value} 3|{value}"));
}

fn no_policies(files: &mut Files) {
    files.retain(|path, _| !path.contains("/cpufreq/"));
}

fn flags(files: &mut Files, from: &str, to: &str) {
    let text = files["proc/cpuinfo"].clone().unwrap().replace(from, to);
    put(files, "proc/cpuinfo", text);
}

fn rows() -> Vec<Row> {
    use Verdict::{Fault, Note, Warning};
    vec![
        row("driver.present", intel, no_policies, Fault),
        row("driver.best", acpi, |_| {}, Warning),
        row("driver.best", acpi, |f| put(f, "proc/cmdline", "amd_pstate=disable"), Warning),
        row("driver.mode", intel, |f| put(f, format!("{CPU}/intel_pstate/status"), "passive"), Note),
        row("driver.hwp", intel, |f| flags(f, " hwp hwp_epp", ""), Warning),
        row("driver.hwp", intel, |f| msr(f, 0x770, "0"), Warning),
        row(
            "driver.same",
            intel,
            |f| put(f, format!("{CPU}/cpufreq/policy2/scaling_driver"), "acpi-cpufreq"),
            Fault,
        ),
        row("amd-pstate.cpc-valid", amd, |f| f.retain(|path, _| !path.contains("cpu3/acpi_cppc")), Fault),
        row("amd-pstate.enabled", amd, |f| msr(f, 0xc001_02b1, "0"), Fault),
        row("amd-pstate.perf", amd, |f| put(f, format!("{CPU}/cpu1/acpi_cppc/nominal_perf"), "70"), Fault),
        row(
            "amd-pstate.freq",
            amd,
            |f| put(f, format!("{CPU}/cpufreq/policy1/amd_pstate_lowest_nonlinear_freq"), "900000"),
            Fault,
        ),
        row("firmware.turbo", intel, |f| msr(f, 0x1a0, "4000850089"), Warning),
        row("firmware.turbo", amd, |f| flags(f, "cpb ", ""), Warning),
        row("firmware.package-c-state", intel, |f| msr(f, 0xe2, "8400"), Note),
        row(
            "firmware.c1e",
            intel,
            |f| put(f, "msr.txt", f["msr.txt"].clone().unwrap().replace("1fc:0|2904005b", "1fc:0|29040059")),
            Warning,
        ),
        row(
            "firmware.energy-bias",
            intel,
            |f| put(f, format!("{CPU}/cpu2/power/energy_perf_bias"), "0"),
            Warning,
        ),
        row("firmware.power-limit", intel, |f| msr(f, 0x610, "8200"), Warning),
        row("firmware.bios-limit", acpi, |f| each_policy(f, "bios_limit", "1500000"), Warning),
        row(
            "firmware.uncore",
            intel,
            |f| put(f, format!("{CPU}/intel_uncore_frequency/package_00_die_00/max_freq_khz"), "1800000"),
            Note,
        ),
        row("firmware.speed-select", intel, |f| msr(f, 0x64b, "80000000"), Note),
        row("firmware.smt", intel, |f| put(f, format!("{CPU}/smt/control"), "off"), Note),
        row(
            "conflict.governor",
            intel,
            |f| put(f, format!("{CPU}/cpufreq/policy1/scaling_governor"), "performance"),
            Warning,
        ),
        row(
            "conflict.limits",
            intel,
            |f| put(f, format!("{CPU}/cpufreq/policy1/scaling_max_freq"), "2500000"),
            Warning,
        ),
        row("conflict.below-base", intel, |f| each_policy(f, "scaling_max_freq", "1500000"), Warning),
        row("conflict.pinned-minimum", intel, |f| each_policy(f, "scaling_min_freq", "3700000"), Note),
        row("conflict.governor-epp", intel, |f| each_policy(f, "scaling_governor", "performance"), Note),
        row(
            "conflict.powersave",
            acpi,
            |f| {
                each_policy(f, "scaling_governor", "powersave");
                each_policy(f, "scaling_available_governors", "powersave ondemand");
            },
            Warning,
        ),
        row(
            "conflict.epb-epp",
            intel,
            |f| {
                each_policy(f, "energy_performance_preference", "performance");
                (0..4).for_each(|cpu| put(f, format!("{CPU}/cpu{cpu}/power/energy_perf_bias"), "15"));
            },
            Warning,
        ),
        row("conflict.turbo", amd, |f| put(f, format!("{CPU}/cpufreq/policy1/boost"), "0"), Note),
        row("conflict.nohz-full", intel, |f| put(f, "proc/cmdline", "isolcpus=2,3 nohz_full=2,3"), Fault),
        row("conflict.cpuidle", intel, |f| put(f, format!("{CPU}/cpuidle/current_driver"), "none"), Warning),
        row(
            "now.throttled",
            intel,
            |f| put(f, format!("{CPU}/cpu1/thermal_throttle/core_throttle_count"), "7"),
            Note,
        ),
        row("now.prochot", intel, |f| msr(f, 0x19c, "882a0001"), Fault),
        row("now.temperature", intel, |f| put(f, "sys/class/hwmon/hwmon0/temp1_input", "99000"), Warning),
        row("now.offline", intel, |f| put(f, format!("{CPU}/online"), "0-2"), Note),
        row("now.owners", intel, |f| put(f, "proc/77/comm", "thermald"), Note),
        row("storpool.hwp", intel, |f| msr(f, 0x770, "0"), Warning),
        row("storpool.autonomous-c-state", intel, |f| msr(f, 0xe2, "8402"), Warning),
        row("storpool.energy-bias", intel, |_| {}, Warning),
        row("storpool.governor", intel, |f| each_policy(f, "scaling_governor", "performance"), Warning),
    ]
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

#[test]
fn every_check_is_ok_somewhere_and_fires_somewhere() {
    let mut good = intel();
    (0..4).for_each(|cpu| put(&mut good, format!("{CPU}/cpu{cpu}/power/energy_perf_bias"), "15"));
    let mut client = intel();
    flags(&mut client, "model\t\t: 85", "model\t\t: 158");
    let mut fine: BTreeSet<&str> = BTreeSet::new();
    for files in [good, amd(), acpi(), client] {
        let report = report(&files, true);
        fine.extend(
            report.findings.iter().filter(|finding| finding.verdict == Verdict::Ok).map(|finding| finding.id),
        );
    }
    let fired: BTreeSet<&str> = rows().iter().map(|row| row.id).chain(["now.limit-reasons"]).collect();
    for check in CHECKS.iter().copied().flatten() {
        assert!(fine.contains(check.id), "no machine on which {} is ok", check.id);
        // What is on or off by taste has nothing to complain about outside the recommended profile.
        assert!(
            fired.contains(check.id) || check.id == "firmware.autonomous-c-state",
            "{} never fires",
            check.id
        );
    }
}

#[test]
fn good_machines_have_nothing_worse_than_a_note() {
    for files in [intel(), amd()] {
        let report = report(&files, false);
        assert!(report.worst() <= Verdict::Note, "{:#?}", report.from(Verdict::Warning));
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
    // What is left in sight: the drivers' names, the processor's flags, and that all known CPUs are online.
    for id in &ok {
        assert!(
            matches!(
                *id,
                "driver.present" | "driver.best" | "driver.same" | "firmware.turbo" | "now.offline"
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
fn settings_to_make_name_each_knob_once() {
    let mut files = intel();
    put(&mut files, format!("{CPU}/cpufreq/policy1/scaling_governor"), "performance");
    each_policy(&mut files, "scaling_max_freq", "1500000");
    assert_eq!(report(&files, false).settings(), ["governor=powersave", "max-freq=max"]);
}
