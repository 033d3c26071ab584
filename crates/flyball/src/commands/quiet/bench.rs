//! `flyball quiet bench`: a series of runs in quiet, each watched and graded, then searched for shifts.

use std::{io::Write as _, path::PathBuf, sync::atomic::Ordering, time::Duration};

use flyball_control::Snapshot;
use flyball_host::Kind;
use flyball_measure::{
    Better, Meters, Stop, Workload as _, WorkloadError,
    series::Series,
    shifts::{Column, Options, Values},
    stats,
    watch::{Conditions, Disturbance, Grade, Limits, Watch, grade},
};
use flyball_simhost::SimHost;

use super::{Quiet, hold, shifts};
use crate::{
    change,
    commands::compare::simulated::Work,
    context::Context,
    exit::{Exit, Failure},
    output::Reporter,
};

/// Arguments of `quiet bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many runs.
    #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
    runs: usize,

    /// Runs before the first that counts.
    #[arg(long, default_value_t = 1, value_name = "N")]
    warm_up: usize,

    #[command(flatten)]
    quiet: Quiet,

    /// Leave the machine as it is: only watch.
    #[arg(long)]
    as_is: bool,

    /// Write every run, with its conditions, as CSV that `quiet shifts` reads.
    #[arg(short, long, value_name = "FILE.csv")]
    output: Option<PathBuf>,

    /// Seed of a simulated machine's chances.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,

    /// The command; its wall time is what is measured. On a simulated machine the model of a workload, and for how
    /// long: call-simple 1.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// One run of the series.
#[derive(Debug, serde::Serialize)]
struct Run {
    seconds: f64,
    grade: Grade,
    disturbances: Vec<Disturbance>,
    #[serde(flatten)]
    conditions: Conditions,
}

/// Runs the series.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    if let Some(simulated) = context.open_simulated()? {
        return on_simulated(context, args, &simulated);
    }
    let host = context.open()?;
    if host.kind() != Kind::Live {
        return Err(Failure::usage(
            "a series runs on the machine that is here, or on a simulated one (-M sim:NAME)",
        ));
    }
    let interrupted = change::interrupts()?;
    let silence = if args.as_is {
        None
    } else {
        Some(hold::Silence::begin(context, &*host, &args.quiet, true, &|| {
            interrupted.load(Ordering::Relaxed)
        })?)
    };
    let group = silence.as_ref().and_then(|silence| silence.group.clone());
    let runs = series(&*host, args, group.as_deref(), &interrupted);
    if let Some(silence) = silence {
        silence.end()?;
    }
    conclude(&context.output.about(&*host), args, &runs?)?;
    Ok(if interrupted.load(Ordering::Relaxed) { Exit::Command(130) } else { Exit::Done })
}

/// A series on a machine in software, in its own time. It is not booted between the runs: what goes wrong by the clock
/// goes wrong in the middle.
fn on_simulated(context: &Context, args: &Args, machine: &SimHost) -> Result<Exit, Failure> {
    let interrupted = change::interrupts()?;
    let silence = if args.as_is {
        None
    } else {
        Some(hold::Silence::begin(context, machine, &args.quiet, false, &|| {
            interrupted.load(Ordering::Relaxed)
        })?)
    };
    silence.iter().flat_map(hold::Silence::notes).for_each(|note| eprintln!("note: {note}"));
    let mut work = Work::of_series(machine, &args.command, args.quiet.cpus.clone(), args.seed)?;
    let metric = work.metric();
    let stop = Stop::watching(std::sync::Arc::clone(&interrupted));
    let cpus = args.quiet.cpus.clone().unwrap_or_default();
    let meters = Meters::find(machine, args.quiet.cpus.as_ref());
    let mut runs = Vec::with_capacity(args.runs);
    for number in 0..args.warm_up + args.runs {
        work.again();
        let mut watch = Watch::start(machine, &meters, cpus.clone());
        let outcome = match work.run(machine, Duration::from_millis(100), &mut || watch.tick(), &stop) {
            Ok(outcome) => outcome,
            Err(WorkloadError::Stopped) => break,
            Err(error) => return Err(Failure::failed(error.to_string())),
        };
        let conditions = watch.stop();
        if number < args.warm_up {
            continue;
        }
        // A rate as the time that one takes, so that all series are of times.
        let value = outcome.value.unwrap_or(f64::NAN);
        let seconds = if metric.better == Better::Higher { 1.0 / value } else { value };
        let (grade, disturbances) = grade(&conditions, None, &Limits::default());
        runs.push(Run { seconds, grade, disturbances, conditions });
    }
    if let Some(silence) = silence {
        silence.end()?;
    }
    conclude(&context.output.about(machine), args, &runs)?;
    Ok(if interrupted.load(Ordering::Relaxed) { Exit::Command(130) } else { Exit::Done })
}

/// Writes what was asked for, and prints the report.
fn conclude(output: &Reporter, args: &Args, runs: &[Run]) -> Result<(), Failure> {
    if let Some(path) = &args.output {
        write_csv(path, runs)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    report(output, runs, args)
}

fn series(
    host: &dyn flyball_host::Host,
    args: &Args,
    group: Option<&str>,
    interrupted: &std::sync::atomic::AtomicBool,
) -> Result<Vec<Run>, Failure> {
    let fail = |error: std::io::Error| Failure::failed(format!("cannot run {}: {error}", args.command[0]));
    let snapshot = Snapshot::begin(host).map_err(Failure::failed)?;
    let cpus = hold::cpus(&snapshot, &args.quiet)?;
    let meters = Meters::find(host, Some(&cpus));
    let mut runs = Vec::with_capacity(args.runs);
    for number in 0..args.warm_up + args.runs {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let launch = hold::launch(&args.command, &cpus, &args.quiet, group).silent();
        let mut watch = Watch::start(host, &meters, cpus.clone());
        let mut running = host.spawn(launch).map_err(fail)?;
        let ended = loop {
            if let Some(ended) = running.wait(Duration::from_millis(100)).map_err(fail)? {
                break Some(ended);
            }
            watch.tick();
            if interrupted.load(Ordering::Relaxed) {
                running.stop(Duration::from_secs(2)).map_err(fail)?;
                break None;
            }
        };
        let Some(ended) = ended else { break };
        if !ended.status.success() {
            return Err(Failure::failed(format!(
                "run {} of {} failed: {}; everything was put back",
                number + 1,
                args.command[0],
                ended.status
            )));
        }
        let conditions = watch.stop();
        if number < args.warm_up {
            continue;
        }
        let seconds = ended.wall.as_secs_f64();
        let own = ended
            .usage
            .map(|usage| (usage.user_seconds + usage.system_seconds) / (seconds * cpus.len() as f64));
        let (grade, disturbances) = grade(&conditions, own, &Limits::default());
        runs.push(Run { seconds, grade, disturbances, conditions });
    }
    Ok(runs)
}

/// The columns beside the time, by name, unit and how to take them from a run.
type Take = fn(&Conditions) -> Option<f64>;
const COLUMNS: &[(&str, &str, Take)] = &[
    ("frequency", "MHz", |c| c.frequency_mhz),
    ("temperature", "C", |c| c.temperature_c),
    ("throttled", "", |c| c.throttles.map(|count| count as f64)),
    ("load", "", |c| c.load),
    ("busy", "", |c| c.busy),
    ("steal", "", |c| c.steal),
    ("interrupts", "1/s", |c| c.interrupts_per_s),
    ("context switches", "1/s", |c| c.switches_per_s),
    ("memory pressure", "", |c| c.memory_pressure),
];

fn as_series(runs: &[Run], name: &str) -> Series {
    let columns = COLUMNS
        .iter()
        .map(|(name, unit, take)| Column {
            name: (*name).to_owned(),
            unit: (*unit).to_owned(),
            values: Values::Numbers(runs.iter().map(|run| take(&run.conditions)).collect()),
        })
        .collect();
    let values: Vec<Option<f64>> = runs.iter().map(|run| Some(run.seconds * 1000.0)).collect();
    Series::of(name.to_owned(), "ms".to_owned(), &values, columns)
}

fn write_csv(path: &std::path::Path, runs: &[Run]) -> std::io::Result<()> {
    let mut text = String::from("run,time (ms)");
    for (name, unit, _) in COLUMNS {
        text += &if unit.is_empty() { format!(",{name}") } else { format!(",{name} ({unit})") };
    }
    text += ",grade\n";
    for (number, run) in runs.iter().enumerate() {
        text += &format!("{},{:.6}", number + 1, run.seconds * 1000.0);
        for (_, _, take) in COLUMNS {
            text += &take(&run.conditions).map_or_else(|| ",".to_owned(), |value| format!(",{value}"));
        }
        text += &format!(",{}\n", word(run.grade));
    }
    // Beside the place and then into it: a reader never sees half a file.
    let partial = path.with_extension("csv.part");
    let mut file = std::fs::File::create(&partial)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(partial, path)
}

fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "good",
        Grade::Fair => "fair",
        Grade::Bad => "bad",
    }
}

fn report(output: &Reporter, runs: &[Run], args: &Args) -> Result<(), Failure> {
    if runs.is_empty() {
        return Err(Failure::failed("no run was finished"));
    }
    let series = as_series(runs, &args.command[0]);
    let found = shifts::look(&series, &Options::default());
    let median = stats::median(&series.values).unwrap_or(f64::NAN);
    let deviation = stats::standard_deviation(&series.values).unwrap_or(0.0);
    let count = |grade| runs.iter().filter(|run| run.grade == grade).count();
    let data = || {
        serde_json::json!({
            "command": args.command, "level": args.quiet.level, "as_is": args.as_is, "runs": runs,
            "median_ms": median, "standard_deviation_ms": deviation, "shifts": found,
        })
    };
    output.object(data, || {
        let mut out = format!(
            "{} runs: median {median:.3} ms, standard deviation {:.2} %; {} good, {} fair, {} bad\n",
            runs.len(),
            deviation / median * 100.0,
            count(Grade::Good),
            count(Grade::Fair),
            count(Grade::Bad),
        );
        for (number, run) in runs.iter().enumerate().filter(|(_, run)| run.grade == Grade::Bad).take(5) {
            let why: Vec<&str> =
                run.disturbances.iter().map(|disturbance| disturbance.what.as_str()).collect();
            out += &format!("  run {} ({:.3} ms): {}\n", number + 1, run.seconds * 1000.0, why.join("; "));
        }
        if count(Grade::Bad) > 5 {
            out += &format!("  and {} more bad runs\n", count(Grade::Bad) - 5);
        }
        out + &shifts::render(&found)
    })
}
