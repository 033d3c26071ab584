//! Texts: what users write, and what kernels and other programs print.

use flyball_control::{
    Intent, Snapshot,
    import::{Import, Program, Supply},
    profile::Profile,
};
use flyball_host::{CpuInfo, CpuList, isst::memdump};
use flyball_measure::{Arm, render, selftest, series};
use flyball_silicon::MachineSpec;
use flyball_simhost::SimSetup;

use crate::outcome;

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A list of CPUs, printed and read again.
pub fn cpulist(bytes: &[u8]) -> String {
    outcome(text(bytes).parse::<CpuList>(), |list| {
        assert_eq!(list.to_string().parse::<CpuList>().ok().as_ref(), Some(&list));
        format!("{}", list.len().min(4))
    })
}

/// /proc/cpuinfo.
pub fn cpuinfo(bytes: &[u8]) -> String {
    let info = format!("{:?}", CpuInfo::parse(bytes));
    info.chars().filter(|char| !char.is_ascii_digit()).take(200).collect()
}

/// A profile.
pub fn profile(bytes: &[u8]) -> String {
    outcome(Profile::parse(bytes, "fuzz"), |profile| format!("{profile:?}").chars().take(80).collect())
}

/// A configuration of another program; what comes of it is a profile.
pub fn import(bytes: &[u8]) -> String {
    let text = text(bytes);
    let mut outcomes = String::new();
    for program in [Program::Tlp, Program::Tuned, Program::AutoCpufreq] {
        for supply in [Supply::Ac, Supply::Battery] {
            outcomes += &outcome(Import::parse(program, supply, &text), |import| {
                let profile = import.profile();
                let read = Profile::parse(profile.as_bytes(), "fuzz").expect("what was printed can be read");
                format!("{} {}", read.intent.settings.len(), import.unsupported.len().min(4))
            });
        }
    }
    outcomes
}

/// Settings of a command line, one a line.
pub fn setting(bytes: &[u8]) -> String {
    let text = text(bytes);
    let lines: Vec<&str> = text.lines().collect();
    outcome(Intent::from_arguments(&lines, None), |intent| format!("{intent:?}").chars().take(80).collect())
}

/// An arm of a comparison.
pub fn arm(bytes: &[u8]) -> String {
    outcome(Arm::parse(&text(bytes)), |arm| format!("{}", arm.settings.len()))
}

/// A machine file of the simulator, written and read again.
pub fn machine(bytes: &[u8]) -> String {
    outcome(MachineSpec::from_toml(&text(bytes)), |spec| {
        let written = spec.to_toml().expect("a machine that was read can be written");
        let again = MachineSpec::from_toml(&written).expect("what was written can be read");
        format!("{}", again.cpus())
    })
}

/// A simulated machine as `-M sim:` names it; nothing is opened.
pub fn setup(bytes: &[u8]) -> String {
    outcome(SimSetup::parse(&text(bytes)), |setup| format!("{}", setup.faults.len()))
}

/// A series of benchmark runs: pyperf, JSON, CSV.
pub fn series(bytes: &[u8]) -> String {
    outcome(series::read(bytes, None), |series| format!("{}", series.len().min(9)))
}

/// A sheet of the kernel's amd-pstate selftest, and what is computed again of it.
pub fn selftest(bytes: &[u8]) -> String {
    outcome(selftest::read(bytes), |sheet| {
        let report = selftest::judge(&sheet, None);
        let _ = render::sheet_text(&sheet, &report);
        let wrong = report.checks.iter().filter(|check| !check.agrees).count();
        format!("{} {} {}", sheet.groups.len().min(9), report.pairs.len().min(9), wrong.min(9))
    })
}

/// A dump of a TPMI feature's registers.
pub fn tpmi(bytes: &[u8]) -> String {
    match memdump::parse(bytes) {
        Ok(instances) => format!("{}", instances.len()),
        Err(_) => "bad line".to_owned(),
    }
}

/// /proc/interrupts, or /proc/softirqs.
pub fn interrupts(bytes: &[u8]) -> String {
    let lines = flyball_wake::parse_interrupts(&String::from_utf8_lossy(bytes)).len();
    format!("{}", lines.min(9))
}

/// What a snapshot of a recorded machine says; used by the targets of files.
pub fn look(host: &dyn flyball_host::Host) -> String {
    let intent = Intent::from_arguments(&["governor=performance", "max-freq=max", "epp=power"], None);
    let intent = intent.expect("settings");
    outcome(Snapshot::for_intent(host, &intent), |snapshot| {
        let plan = flyball_control::plan::plan(&snapshot, &intent);
        outcome(plan, |plan| format!("{} {}", snapshot.topology().cpus.len(), plan.changes.len()))
    })
}
