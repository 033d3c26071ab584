//! `flyball top` on real kernels with one CPU that works and others that sleep: the sleeping ones get no interrupt because of it.
//!
//! Judged by the kernel's own /proc/interrupts: function calls and rescheduling on the CPUs but 0, against the same time in
//! which nothing looks. One boot by default; `FLYBALL_GUEST_TESTS=all` boots AMD, Intel and 32 CPUs too.

use libtest_mimic::Failed;

use crate::guest::{self, SuiteCase};

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

/// Samples of each run, a second apart.
fn samples() -> u32 {
    if guest::all() { 60 } else { 20 }
}

/// Points of a percentage by which the time that CPUs sleep may differ with top.
const RESIDENCY: f64 = 0.1;

/// What a run did to the CPUs but 0.
struct Run {
    interrupts: i64,
    /// Share of the time in which they slept, %.
    asleep: f64,
}

fn counted(text: &str, name: &str, cpus: u32) -> Result<Run, Failed> {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("run {name} ")));
    let words: Vec<&str> = line.ok_or_else(|| format!("no run {name}:\n{text}"))?.split(' ').collect();
    match words[..] {
        ["CAL", calls, "RES", rescheduled, "idle", slept, "ticks", ticks] => Ok(Run {
            interrupts: calls.parse::<i64>()? + rescheduled.parse::<i64>()?,
            asleep: slept.parse::<f64>()? / (ticks.parse::<f64>()? * f64::from(cpus - 1)) * 100.0,
        }),
        _ => Err(format!("{words:?}").into()),
    }
}

fn look(boot: &Boot) -> Result<(), Failed> {
    let flyball = format!("{}:flyball.bin", env!("CARGO_BIN_EXE_flyball"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/top.sh:top.sh");
    let (cpus, seconds) = (boot.cpus.to_string(), samples().to_string());
    let files = ["--cpus", &cpus, "--modules", "msr", "--file", &flyball, "--file", script];
    let output = guest::run(
        boot.kernel,
        &[boot.options, &files].concat(),
        &["sh", "./top.sh", "./flyball.bin", &seconds],
    )?;
    let text = format!(
        "{}\n--- stderr\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let run = |name| counted(&text, name, boot.cpus);
    let (quiet, start) = (run("nothing")?, run("start")?.interrupts);
    // Each CPU is asked once, at the start, for what its hardware can do.
    let watched = run("default")?;
    let (nothing, default, all) =
        (quiet.interrupts, watched.interrupts - start, run("all")?.interrupts - start);
    println!(
        "{}: {nothing} without top, {start} at its start, {default} by default, {all} with --touch all; \
         asleep {:.3} % without top, {:.3} % with it",
        boot.name, quiet.asleep, watched.asleep
    );
    // Kernels send some by themselves (timers that move, RCU); a monitor that wakes CPUs sends one per CPU and sample.
    let of_samples = i64::from(samples() * (boot.cpus - 1));
    if default - nothing > of_samples / 20 {
        return Err(format!("{default} interrupts against {nothing}\n{text}").into());
    }
    // Each run's length is known to a hundredth of a second.
    let rounding = 1.0 / f64::from(samples());
    if quiet.asleep - watched.asleep > RESIDENCY + rounding {
        return Err(format!("asleep {:.3} % against {:.3} %\n{text}", watched.asleep, quiet.asleep).into());
    }
    // Otherwise the count above could not have seen any.
    if all - nothing < of_samples / 2 {
        return Err(format!("--touch all: {all} interrupts against {nothing}\n{text}").into());
    }
    Ok(())
}

pub fn suite() -> Vec<SuiteCase> {
    let case = |boot: &'static Boot| SuiteCase {
        name: boot.name.to_owned(),
        kernel: boot.kernel.to_owned(),
        everyday: boot.usual,
        missing: None,
        test: Box::new(move || look(boot)),
    };
    BOOTS.iter().map(case).collect()
}
