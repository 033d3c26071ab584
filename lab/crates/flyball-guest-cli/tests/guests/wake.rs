//! `flyball wake --sources` on real kernels: planted wake-ups of CPU 1 have their sources, and the
//! counts are the kernel's own.
//!
//! One boot by default; `FLYBALL_GUEST_TESTS=all` boots other kernels too.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    process::Command,
    thread,
    time::Duration,
};

use flyball_process::pin_thread;
use libtest_mimic::Failed;
use serde_json::Value;

use crate::{
    guest::{self, SuiteCase},
    program,
};

/// Wake-ups of each kind.
const COUNT: usize = 600;
const PAUSE: Duration = Duration::from_millis(4);
const SETTLE: Duration = Duration::from_secs(2);
/// The kernel's counts of CPU 1's exits, read within the watch.
const INNER: &str = "/tmp/inner";
const SPINNER: &str = "/tmp/spinner";

/// While a loop keeps CPU 1 awake, its counters stand still: they are read then, so that the counts
/// have to be equal. Pinned to CPU 0, flyball wakes CPU 1 as seldom as it can. schedutil would
/// change its frequency by interrupts.
const SCRIPT: &str = "
    for policy in /sys/devices/system/cpu/cpufreq/policy*; do echo performance > $policy/scaling_governor; done
    taskset 2 sh -c 'while :; do :; done' &
    echo $! > /tmp/spinner
    taskset -p 1 $$ > /dev/null
    ./flyball wake --sources --json -c 1 -- sh -c './wakes --inside wake' > report
    echo \"ended $?\"
    kill -9 $(cat /tmp/spinner)
    cat /tmp/inner report";

/// Exits of CPU 1 from all states.
fn exits() -> u64 {
    let usage =
        |state| fs::read_to_string(format!("/sys/devices/system/cpu/cpu1/cpuidle/state{state}/usage")).ok();
    (0..10).map_while(usage).map(|text| text.trim().parse::<u64>().expect("a number")).sum()
}

fn signal_spinner(signal: &str) {
    let spinner = fs::read_to_string(SPINNER).expect("its number");
    let sent = Command::new("kill").args([signal, spinner.trim()]).status();
    assert!(sent.expect("a command").success());
    thread::sleep(SETTLE);
}

/// In the guest: a thread that sleeps, then one that reads what another CPU writes.
pub(crate) fn inside() {
    let named = |name: &str, cpu, run: Box<dyn FnOnce() + Send>| {
        let pinned = move || {
            pin_thread(cpu).expect("a CPU");
            run();
        };
        thread::Builder::new().name(name.to_owned()).spawn(pinned).expect("a thread")
    };
    // The watch begins with the command, and its first reading takes the emulator milliseconds.
    thread::sleep(SETTLE);
    let before = exits();
    signal_spinner("-STOP");
    let sleeper = Box::new(|| (0..COUNT).for_each(|_| thread::sleep(PAUSE)));
    named("planted-timer", 1, sleeper).join().expect("it sleeps");
    let (mut reading, mut writing) = io::pipe().expect("a pipe");
    let reader = Box::new(move || while reading.read(&mut [0]).is_ok_and(|count| count > 0) {});
    let reader = named("planted-reader", 1, reader);
    let writer = Box::new(move || {
        for _ in 0..COUNT {
            thread::sleep(PAUSE);
            writing.write_all(b"x").expect("a reader");
        }
    });
    named("planted-writer", 0, writer).join().expect("it writes");
    reader.join().expect("it reads");
    signal_spinner("-CONT");
    fs::write(INNER, format!("inner {}\n", exits() - before)).expect("a file");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Boots a guest for the watch. Returns all that was printed, and the report.
fn boot(kernel: &str) -> Result<(String, Value), Failed> {
    let flyball = format!("{}:flyball", program::flyball());
    let own = format!("{}:wakes", std::env::current_exe()?.display());
    let options = ["ryzen-5750g", "--cpus", "2", "--memory", "1536", "--file", &flyball, "--file", &own];
    let output = guest::run(kernel, &options, &["sh", "-c", SCRIPT])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = || format!("{text}\n--- stderr\n{}", String::from_utf8_lossy(&output.stderr));
    if !text.contains("ended 0\n") {
        return Err(all().into());
    }
    let report = serde_json::from_str(&text[text.find('{').ok_or_else(all)?..])?;
    Ok((text, report))
}

fn watch(kernel: &str) -> Result<(), Failed> {
    let (mut text, mut report) = boot(kernel)?;
    // 13 s, unless the host is busy: then other interrupts often come before the planted sources.
    for _ in 0..2 {
        if number(&report["seconds"]) > 25.0 {
            (text, report) = boot(kernel)?;
        }
    }
    let all = || text.clone();
    let inner = text.lines().find_map(|line| line.strip_prefix("inner ")).ok_or_else(all)?;
    let sources = &report["sources"];
    let (counted, traced) = (&sources["counted"], &sources["exits"]);
    println!("{kernel}: the kernel counted {inner} exits, flyball {counted}, and traced {traced}");
    if *counted != inner.parse::<u64>()? || traced != counted {
        return Err(all().into());
    }
    let causes = sources["causes"].as_array().ok_or_else(all)?;
    // Each exit is out of the state that the kernel counted.
    let states = report["states"].as_array().ok_or_else(all)?;
    let of_state = |at: usize| causes.iter().map(|cause| number(&cause["by_state"][at])).sum::<f64>();
    let off = |(at, state): (usize, &Value)| {
        (of_state(at) * number(&report["seconds"]) - number(&state["exits"])).abs()
    };
    let wrong: f64 = states.iter().enumerate().map(off).sum();
    println!("{kernel}: {wrong:.0} exits out of another state");
    if wrong > 0.01 * number(counted) {
        return Err(all().into());
    }
    let mut sums = [0.0; 2];
    for (woken, kind, name) in
        [("planted-timer", "timer", "local timer"), ("planted-reader", "thread", "planted-writer")]
    {
        for cause in causes.iter().filter(|cause| cause["woken"] == woken) {
            let count = number(&cause["wakes"]) * number(&report["seconds"]);
            sums[usize::from(cause["kind"] == kind && cause["name"] == name)] += count;
        }
    }
    // Now and then another interrupt comes first, or the CPU is awake already: more often in the
    // guest of a busy host.
    let [wrong, right] = sums;
    println!("{kernel}: {right:.0} exits by the planted source, {wrong:.0} by others");
    if right < COUNT as f64 || right < 0.98 * (right + wrong) {
        return Err(all().into());
    }
    Ok(())
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let case = |kernel: &'static str| SuiteCase {
        name: format!("{kernel}-planted_wake_ups_have_their_sources"),
        kernel: kernel.to_owned(),
        everyday: kernel == "6.12",
        missing: None,
        test: Box::new(move || watch(kernel)),
    };
    ["6.1", "6.12", "7.2"].into_iter().map(case).collect()
}
