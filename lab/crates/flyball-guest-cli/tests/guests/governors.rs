//! Compares what governors request over time, in the simulator and in real kernels, under the same
//! loads.
//!
//! A schedule of pulses on four CPUs, generated from a fixed seed ([`schedule`]), is played in a
//! guest in the closed loop, where the kernel's own governor decides, and on the simulated machine
//! with the same silicon. The values written to the request registers are compared over time
//! ([`compare`]).
//!
//! Kernels and the emulator come from the cache of `flyball guest fetch`; missing ones are skipped
//! and counted. By default one guest is booted; `FLYBALL_GUEST_TESTS=all` boots all.
//! `FLYBALL_SCHEDULE_SEED=N` selects other schedules, and `FLYBALL_SCHEDULE_OUT=DIR` saves every
//! request of both sides.

mod compare;
mod decisions;
mod inside;
mod schedule;

use std::{fmt::Write as _, time::Duration};

use decisions::Decoder;
use libtest_mimic::Failed;
use schedule::CPUS;

use crate::{
    guest::{self, SuiteCase},
    twin,
};

/// One boot.
pub(crate) struct Case {
    kernel: &'static str,
    machine: &'static str,
    driver: &'static str,
    words: &'static [&'static str],
    /// The kernel parameters that the driver's name does not imply.
    append: &'static str,
    trials: &'static [Trial],
    everyday: bool,
}

/// A governor and its tunables.
pub(crate) struct Trial {
    everyday: bool,
    name: &'static str,
    governor: &'static str,
    tunables: &'static [(&'static str, &'static str)],
}

impl Trial {
    /// The files to write to and their values.
    fn writes(&self) -> Vec<(String, String)> {
        const BASE: &str = "/sys/devices/system/cpu/cpufreq";
        let governors =
            (0..CPUS).map(|cpu| (format!("{BASE}/policy{cpu}/scaling_governor"), self.governor.to_owned()));
        let tunables = self
            .tunables
            .iter()
            .map(|(name, value)| (format!("{BASE}/{}/{name}", self.governor), (*value).to_owned()));
        governors.chain(tunables).collect()
    }
}

impl Case {
    /// The trials: all of them, or only the default ones.
    fn trials(&self, all: bool) -> Vec<&'static Trial> {
        self.trials.iter().filter(|trial| all || trial.everyday).collect()
    }

    /// A register to which the processor rejects every write.
    fn mark(&self) -> u32 {
        if self.machine.starts_with("ryzen") { 0xc001_0063 } else { flyball_silicon::msr::PLATFORM_INFO }
    }
}

const fn trial(
    everyday: bool,
    name: &'static str,
    governor: &'static str,
    tunables: &'static [(&'static str, &'static str)],
) -> Trial {
    Trial { everyday, name, governor, tunables }
}

/// The order matters, because tunables keep their values for as long as their governor is used. A
/// sampling period of 10 ms is three ticks. With the default of 8 ms, nanoseconds decide whether it
/// is two or three. The same holds for rate limits.
const GOVERNORS: &[Trial] = &[
    trial(true, "schedutil", "schedutil", &[]),
    trial(false, "schedutil, 18 ms", "schedutil", &[("rate_limit_us", "18000")]),
    trial(false, "ondemand", "ondemand", &[]),
    trial(true, "ondemand, 10 ms", "ondemand", &[("sampling_rate", "10000")]),
    trial(
        false,
        "ondemand, 60 %, down 10",
        "ondemand",
        &[("up_threshold", "60"), ("sampling_down_factor", "10")],
    ),
    trial(false, "performance", "performance", &[]),
    trial(false, "conservative", "conservative", &[]),
    trial(true, "conservative, 10 ms", "conservative", &[("sampling_rate", "10000")]),
    trial(
        false,
        "conservative, 20 %, 60-40",
        "conservative",
        &[("freq_step", "20"), ("up_threshold", "60"), ("down_threshold", "40")],
    ),
    trial(false, "powersave", "powersave", &[]),
];

/// intel_pstate without HWP: its own algorithm.
const OWN: &[Trial] =
    &[trial(false, "powersave", "powersave", &[]), trial(false, "performance", "performance", &[])];

const fn case(
    kernel: &'static str,
    machine: &'static str,
    driver: &'static str,
    words: &'static [&'static str],
    trials: &'static [Trial],
    everyday: bool,
) -> Case {
    Case { kernel, machine, driver, words, append: "", trials, everyday }
}

/// intel_pstate's own algorithm, which follows load without HWP in its active mode.
const fn own(kernel: &'static str) -> Case {
    let words = &["intel_pstate=no_hwp", "intel_pstate=active"];
    Case {
        append: "intel_pstate=active",
        ..case(kernel, "sst-guide", "intel_pstate=no_hwp", words, OWN, false)
    }
}

const PASSIVE: &[&str] = &["amd_pstate=passive"];
const GUIDED: &[&str] = &["amd_pstate=guided"];
const NONE: &[&str] = &["amd_pstate=disable", "intel_pstate=disable"];
const INTEL_PASSIVE: &[&str] = &["intel_pstate=passive"];
const NO_HWP: &[&str] = &["intel_pstate=no_hwp"];

const CASES: &[Case] = &[
    case("6.12", "ryzen-5750g", "amd-pstate=passive", PASSIVE, GOVERNORS, true),
    case("6.12", "ryzen-5750g", "amd-pstate=guided", GUIDED, GOVERNORS, false),
    case("6.12", "ryzen-5750g", "acpi-cpufreq", NONE, GOVERNORS, false),
    case("6.12", "sst-guide", "intel_pstate=passive", INTEL_PASSIVE, GOVERNORS, false),
    case("6.12", "sst-guide", "intel_pstate=no_hwp", NO_HWP, GOVERNORS, false),
    own("6.12"),
    case("7.2", "ryzen-5750g", "amd-pstate=passive", PASSIVE, GOVERNORS, false),
    case("7.2", "ryzen-5750g", "acpi-cpufreq", NONE, GOVERNORS, false),
    case("7.2", "sst-guide", "intel_pstate=passive", INTEL_PASSIVE, GOVERNORS, false),
    case("7.2", "sst-guide", "intel_pstate=no_hwp", NO_HWP, GOVERNORS, false),
    own("7.2"),
    case("6.1", "ryzen-5750g", "amd-pstate=passive", PASSIVE, GOVERNORS, false),
    case("6.1", "ryzen-5750g", "acpi-cpufreq", NONE, GOVERNORS, false),
    case("6.1", "sst-guide", "intel_pstate=passive", INTEL_PASSIVE, GOVERNORS, false),
    case("6.1", "sst-guide", "intel_pstate=no_hwp", NO_HWP, GOVERNORS, false),
    own("6.1"),
];

/// Idle time before each schedule.
pub(crate) const SETTLE_MS: u64 = 250;
const SEED: u64 = 1;

fn seed() -> u64 {
    std::env::var("FLYBALL_SCHEDULE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED)
}

fn run(number: usize) -> Result<(), Failed> {
    let case = &CASES[number];
    let &Case { kernel, machine, driver, words, .. } = case;
    let twin = twin::Twin { kernel, machine, driver, words, interface: None, cpus: CPUS };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let program = format!("{}:governors", std::env::current_exe().unwrap().display());
    let (cpus, place) = (CPUS.to_string(), out.to_str().unwrap());
    let options = [
        case.machine,
        "--driver",
        case.driver,
        "--cpus",
        &cpus,
        "--file",
        &program,
        "--closed",
        "--modules",
        "?msr,?cpufreq_powersave,?cpufreq_ondemand,?cpufreq_conservative",
        "--append",
        "msr.allow_writes=on",
        "--append",
        case.append,
        "--out",
        place,
    ];
    let trials = case.trials(guest::all());
    let extent = if guest::all() { "all" } else { "everyday" };
    let (index, seed_text) = (number.to_string(), seed().to_string());
    let output =
        guest::run(kernel, &options, &["./governors", "--inside", "governors", &index, &seed_text, extent])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let played = text.lines().filter(|line| line.starts_with("played ")).count();
    if !output.status.success() || played != trials.len() || text.lines().count() != played {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}\n{text}\n{errors}", output.status).into());
    }
    let log = std::fs::read_to_string(out.join("registers.log"))?;
    let silicon_log = std::fs::read_to_string(out.join("silicon.log"))?;

    let (mut simulated, _) = twin.boot()?;
    simulated.advance(Duration::from_secs(1));
    let decoder = Decoder::new(simulated.silicon().spec(), driver);
    let length = schedule::schedule(seed())[0].iter().map(|phase| phase.ms).sum::<u64>() * 1_000_000;
    let real = decoder.of_log(&log, case.mark(), CPUS, length);
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (number, (trial, (begin, real))) in trials.iter().zip(&real).enumerate() {
        for (path, value) in trial.writes() {
            simulated.write(&path, value.as_bytes()).map_err(|errno| format!("{path}: {errno:?}"))?;
        }
        let plan = schedule::schedule(seed() + number as u64);
        let busy = decisions::busy(&silicon_log, *begin, CPUS as usize, length);
        let ours = decoder.of_machine(&mut simulated, &plan, busy);
        let found = compare::compare(&plan, decoder.range, real, &ours);
        row(&mut table, trial.name, &found);
        let off = beyond(trial, &found);
        if !off.is_empty() {
            wrong.push(format!("{}: {off}", trial.name));
        }
        keep(case, trial, real, &ours);
    }
    eprintln!("{kernel} {driver} {}\n{HEAD}\n{table}", case.append);
    if real.len() != trials.len() {
        return Err(format!("{} of {} schedules in the register log", real.len(), trials.len()).into());
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// How far the simulator may be off, as shares of the range of frequencies. The simulator samples
/// once a millisecond and has its ticks on whole milliseconds, while each of the guest's CPUs has
/// its own ticks. A sample falls into a pulse or beside it, and a decision stays until the next, so
/// a phase of a few pulses can be off by most of the range. Over a whole schedule this averages
/// out.
const MEAN: f64 = 0.08;
const DISTANCE: f64 = 0.10;
const PHASES: f64 = 0.25;

/// Describes which values of a trial exceed their tolerance.
fn beyond(trial: &Trial, found: &compare::Findings) -> String {
    // A decision of ondemand and conservative stays until the next sample, 8 or 12 ms later, and
    // conservative starts from it. So the times of their samples matter more.
    let sampled = ["ondemand", "conservative"].contains(&trial.governor);
    let factor = if sampled { 1.6 } else { 1.0 };
    let [real, ours] = found.mean;
    [
        ("mean", f64::abs(ours - real), MEAN),
        ("distance", found.distance, DISTANCE),
        ("phases", found.phases.0, PHASES),
    ]
    .into_iter()
    .map(|(what, off, limit)| (what, off, limit * factor))
    .filter(|(_, off, limit)| off > limit)
    .map(|(what, off, limit)| format!("{what} off by {:.1} %, may be {:.0} %; ", off * 100.0, limit * 100.0))
    .collect()
}

const HEAD: &str = "                          mean %        phase rms, worst     dist  up ms       down ms     changes/s\n\
                    governor                  guest   sim                            guest  sim  guest  sim  guest  sim";

fn row(table: &mut String, name: &str, found: &compare::Findings) {
    let percent = |share: f64| share * 100.0;
    let _ = writeln!(
        table,
        "{name:25} {:6.1} {:6.1} {:6.1} {:+6.1} {:5.1} {:5.0} {:5.0} {:5.0} {:5.0} {:6.0} {:6.0}  {}",
        percent(found.mean[0]),
        percent(found.mean[1]),
        percent(found.phases.0),
        percent(found.phases.1),
        percent(found.distance),
        found.up[0],
        found.up[1],
        found.down[0],
        found.down[1],
        found.changes[0],
        found.changes[1],
        found.phases.2
    );
}

/// Saves every request of both sides if the user asked for them.
fn keep(case: &Case, trial: &Trial, real: &[decisions::Requests], ours: &[decisions::Requests]) {
    let Some(dir) = std::env::var_os("FLYBALL_SCHEDULE_OUT") else { return };
    let name = format!("{}-{}{}-{}.txt", case.kernel, case.driver, case.append, trial.name).replace(' ', "-");
    let mut text = String::new();
    for (side, all) in [("guest", real), ("sim", ours)] {
        for (cpu, requests) in all.iter().enumerate() {
            for (at, khz) in requests {
                let _ = writeln!(text, "{side} {cpu} {:.3} {khz}", *at as f64 / 1e6);
            }
        }
    }
    let _ = std::fs::create_dir_all(&dir);
    let _ = std::fs::write(std::path::Path::new(&dir).join(name), text);
}

/// Runs in the copy of this program in the guest.
pub(crate) fn inside(words: &[String]) {
    let [case, seed, extent] = words else { panic!("case, seed and extent, not {words:?}") };
    inside::run(&CASES[case.parse::<usize>().unwrap()], seed.parse().unwrap(), extent == "all");
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let suited = |(number, case): (usize, &'static Case)| SuiteCase {
        name: format!("{}-{}{}", case.kernel, case.driver, if case.append.is_empty() { "" } else { "-own" }),
        kernel: case.kernel.to_owned(),
        everyday: case.everyday,
        missing: None,
        test: Box::new(move || run(number)),
    };
    CASES.iter().enumerate().map(suited).collect()
}
