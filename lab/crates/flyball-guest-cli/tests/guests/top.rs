//! `flyball top` on real kernels with one busy CPU and others asleep: it must not cause interrupts
//! on the sleeping CPUs.
//!
//! The test reads the kernel's own /proc/interrupts: function calls and rescheduling on the CPUs
//! other than 0, compared with an equal time without a monitor. A probe in the kernel counts the
//! interrupts that the program itself sent. turbostat is measured too if it is installed on this
//! machine. One boot by default; `FLYBALL_GUEST_TESTS=all` boots AMD, Intel and 32 CPUs too.

use std::path::Path;

use libtest_mimic::Failed;

use crate::{
    guest::{self, SuiteCase},
    program,
};

struct Boot {
    name: &'static str,
    usual: bool,
    kernel: &'static str,
    cpus: u32,
    options: &'static [&'static str],
}

const BOOTS: &[Boot] = &[
    Boot {
        name: "8 CPUs, amd-pstate, 6.12",
        usual: true,
        kernel: "6.12",
        cpus: 8,
        options: &["ryzen-5750g"],
    },
    Boot {
        name: "8 CPUs, intel_pstate, 6.12",
        usual: false,
        kernel: "6.12",
        cpus: 8,
        options: &["gold-6138"],
    },
    Boot {
        name: "32 CPUs, intel_pstate, 6.12",
        usual: false,
        kernel: "6.12",
        cpus: 32,
        options: &["gold-6138"],
    },
    Boot { name: "8 CPUs, amd-pstate, 6.1", usual: false, kernel: "6.1", cpus: 8, options: &["ryzen-5750g"] },
];

/// Number of samples in each run, one a second.
fn samples() -> u32 {
    if guest::all() { 60 } else { 20 }
}

/// Its paths in distributions' packages.
const TURBOSTAT: &[&str] = &["/usr/sbin/turbostat", "/usr/bin/turbostat"];
/// Percentage points by which the CPUs' sleep time may differ while top runs.
const RESIDENCY: f64 = 0.1;

/// Effects of a run on the CPUs other than 0.
struct Run {
    interrupts: i64,
    /// Interrupts that the program sent to other CPUs, if the kernel has probes.
    sent: Option<i64>,
    /// Fewer than one a second if the emulator is slow.
    samples: i64,
    /// Share of the time in which they slept, %.
    asleep: f64,
}

fn counted(text: &str, name: &str) -> Result<Run, Failed> {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("run {name} ")));
    let words: Vec<&str> = line.ok_or_else(|| format!("no run {name}:\n{text}"))?.split(' ').collect();
    match words[..] {
        ["CAL", calls, "RES", rescheduled, "idle", slept, "busy", busy, "sent", sent, "samples", samples] => {
            Ok(Run {
                interrupts: calls.parse::<i64>()? + rescheduled.parse::<i64>()?,
                sent: sent.parse().ok(),
                samples: samples.parse()?,
                asleep: 100.0 / (1.0 + busy.parse::<f64>()? / slept.parse::<f64>()?),
            })
        }
        _ => Err(format!("{words:?}").into()),
    }
}

fn look(boot: &Boot) -> Result<(), Failed> {
    let flyball = format!("{}:flyball.bin", program::flyball());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/top.sh:top.sh");
    let (cpus, seconds) = (boot.cpus.to_string(), samples().to_string());
    let mut files = vec!["--cpus", &cpus, "--modules", "msr", "--file", &flyball, "--file", script];
    let mut words = vec!["sh", "./top.sh", "./flyball.bin", &seconds];
    let turbostat = TURBOSTAT.iter().find(|path| Path::new(path).exists());
    let turbostat = turbostat.map(|path| format!("{path}:turbostat.bin"));
    if let Some(file) = &turbostat {
        files.extend(["--file", file]);
        words.push("./turbostat.bin");
    }
    let output = guest::run(boot.kernel, &[boot.options, &files].concat(), &words)?;
    let text = format!(
        "{}\n--- stderr\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let run = |name| counted(&text, name);
    let (quiet, watched, touched) = (run("nothing")?, run("default")?, run("all")?);
    for (name, run) in [("nothing", Some(&quiet)), ("default", Some(&watched)), ("all", Some(&touched))]
        .into_iter()
        .chain([("turbostat", counted(&text, "turbostat").ok().as_ref())])
    {
        let Some(run) = run else { continue };
        let sent = run.sent.map_or_else(String::new, |sent| format!(", {sent} sent by it"));
        println!(
            "{}: {name}: {} interrupts{sent} in {} samples, asleep {:.3} %",
            boot.name, run.interrupts, run.samples, run.asleep
        );
    }
    // The kernel sends some by itself, from the interrupts of CPU 0 while top runs there: timers of
    // sleeping CPUs move to one that is awake. A monitor that wakes CPUs sends one per CPU and
    // sample.
    let cpus = i64::from(boot.cpus - 1);
    let of_samples = watched.samples * cpus;
    let sent = watched.sent.unwrap_or(watched.interrupts - quiet.interrupts);
    if sent > of_samples / 20 {
        return Err(format!("{sent} interrupts in {of_samples}\n{text}").into());
    }
    // One clock tick as a share of the run, %.
    let rounding = 1.0 / f64::from(samples());
    if quiet.asleep - watched.asleep > RESIDENCY + rounding {
        return Err(format!("asleep {:.3} % against {:.3} %\n{text}", watched.asleep, quiet.asleep).into());
    }
    // Otherwise the count above could not have shown any interrupts.
    if touched.interrupts - quiet.interrupts < touched.samples * cpus / 2 {
        let (all, nothing) = (touched.interrupts, quiet.interrupts);
        return Err(format!("--touch all: {all} interrupts against {nothing}\n{text}").into());
    }
    Ok(())
}

pub(crate) fn suite() -> Vec<SuiteCase> {
    let case = |boot: &'static Boot| SuiteCase {
        name: boot.name.to_owned(),
        kernel: boot.kernel.to_owned(),
        everyday: boot.usual,
        missing: None,
        test: Box::new(move || look(boot)),
    };
    BOOTS.iter().map(case).collect()
}
