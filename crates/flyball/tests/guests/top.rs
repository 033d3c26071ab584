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
const SAMPLES: u32 = 20;

/// Interrupts that the CPUs but 0 got in a run.
fn counted(text: &str, name: &str) -> Result<i64, Failed> {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("run {name} ")));
    let words: Vec<&str> = line.ok_or_else(|| format!("no run {name}:\n{text}"))?.split(' ').collect();
    match words[..] {
        ["CAL", calls, "RES", rescheduled, "idle_us", _] => {
            Ok(calls.parse::<i64>()? + rescheduled.parse::<i64>()?)
        }
        _ => Err(format!("{words:?}").into()),
    }
}

fn look(boot: &Boot) -> Result<(), Failed> {
    let flyball = format!("{}:flyball.bin", env!("CARGO_BIN_EXE_flyball"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/top.sh:top.sh");
    let (cpus, samples) = (boot.cpus.to_string(), SAMPLES.to_string());
    let files = ["--cpus", &cpus, "--modules", "msr", "--file", &flyball, "--file", script];
    let output = guest::run(
        boot.kernel,
        &[boot.options, &files].concat(),
        &["sh", "./top.sh", "./flyball.bin", &samples],
    )?;
    let text = format!(
        "{}\n--- stderr\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let (nothing, start) = (counted(&text, "nothing")?, counted(&text, "start")?);
    // Each CPU is asked once, at the start, for what its hardware can do.
    let (default, all) = (counted(&text, "default")? - start, counted(&text, "all")? - start);
    println!(
        "{}: {nothing} without top, {start} at its start, {default} by default, {all} with --touch all",
        boot.name
    );
    // Kernels send some by themselves (timers that move, RCU); a monitor that wakes CPUs sends one per CPU and sample.
    let of_samples = i64::from(SAMPLES * (boot.cpus - 1));
    if default - nothing > of_samples / 20 {
        return Err(format!("{default} interrupts against {nothing}\n{text}").into());
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
