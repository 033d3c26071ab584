//! `flyball sim work`: runs a workload model on the served machine that this program runs on.
//!
//! The machine's server runs the model. This program starts it by writing to a file of the machine,
//! waits as long as the real workload would take, and prints the output of the real tool.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    time::Duration,
};

use flyball_sim::workload::Workload;

use crate::exit::{Exit, Failure};

/// Runs a model on the machine of `flyball sim run`.
pub(super) fn run(
    name: &str,
    amount: Option<u64>,
    pins: Option<&flyball_host::CpuList>,
) -> Result<Exit, Failure> {
    let Some(machine) = std::env::var_os("FLYBALL_SIM").map(PathBuf::from) else {
        return Err(Failure::usage(
            "this command runs on a served machine: flyball sim run NAME -- flyball sim work sched-pipe",
        ));
    };
    let model = Workload::builtin(name).map_err(Failure::usage)?;
    let file = machine.join("flyball/work");
    let failed = |error: std::io::Error| Failure::failed(format!("the simulated machine: {error}"));
    let pins = pins.map(ToString::to_string).unwrap_or_default();
    // The workload belongs to this open file until it is closed, so several commands can run at the
    // same time.
    let file = fs::File::options().read(true).write(true).open(&file).map_err(failed)?;
    let words = format!("{name} {} {pins}\n", amount.unwrap_or(0));
    (&file).write_all(words.as_bytes()).map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => Failure::usage(
            "another workload runs on CPUs that this one may use: give each of them --pin with CPUs of its own",
        ),
        _ => failed(error),
    })?;
    let (turns, seconds) = loop {
        let mut text = [0; 64];
        let length = file.read_at(&mut text, 0).map_err(failed)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let mut words = text.split_whitespace();
        let done = words.next() == Some("done");
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let (turns, nanoseconds) = (number(), number());
        if done {
            break (turns, nanoseconds as f64 * 1e-9);
        }
        // The served machine runs in real time, so the model ends when the real workload would.
        std::thread::sleep(Duration::from_millis(20));
    };
    crate::output::print(said(&model, turns, seconds))?;
    Ok(Exit::Done)
}

/// Returns what the real tool would print.
fn said(model: &Workload, turns: u64, seconds: f64) -> String {
    let rate = turns as f64 / seconds.max(1e-9);
    match model.name.as_str() {
        // tools/perf/bench/sched-pipe.c
        "sched-pipe" => format!(
            "# Running 'sched/pipe' benchmark:\n# Executed {turns} pipe operations between two processes\n\n\
             {:>14}: {seconds:.3} [sec]\n\n {:>14.6} usecs/op\n {:>14} ops/sec\n",
            "Total time",
            seconds * 1e6 / turns.max(1) as f64,
            rate as u64,
        ),
        // dbench.c
        "tbench" => format!("Throughput {:.3} MB/sec (procs)\n", rate * model.scale),
        _ => {
            format!("{}: {turns} {} in {seconds:.3} s, {:.3}/s\n", model.name, model.unit, rate * model.scale)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_perf_bench_does() {
        let model = Workload::builtin("sched-pipe").unwrap();
        let text = said(&model, 1_000_000, 5.0);
        assert!(text.contains("Total time: 5.000 [sec]"), "{text}");
        assert!(text.contains("5.000000 usecs/op"), "{text}");
        assert!(text.contains("200000 ops/sec"), "{text}");
    }
}
