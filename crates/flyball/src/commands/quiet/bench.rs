//! `flyball quiet bench`: runs a series on a quiet machine. Monitors and grades each run, then
//! looks for shifts.

use std::{io::ErrorKind, path::PathBuf, sync::atomic::Ordering, time::Duration};

use flyball_compare::{RunSeeds, SpeedWatch};
use flyball_control::{Snapshot, write::journal::Purpose};
use flyball_host::{Host, Kind};
use flyball_measure::{
    Meters, RoundSpeed, SpeedNote,
    series::Series,
    shifts::{Column, Options, Values},
    stats,
    watch::{Conditions, Disturbance, Grade, Limits, Watch, grade},
};
use flyball_process::User;

use super::shifts;
use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    output::Reporter,
    quiet_machine::{self, Observer, Quiet},
    run_as::RunAs,
};

/// Arguments of `quiet bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of runs.
    #[arg(long, short_alias = 'n', alias = "rounds", default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,

    /// Warm-up runs that do not count.
    #[arg(long, alias = "warmup", default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    warm_up: u32,

    #[command(flatten)]
    quiet: Quiet,

    /// Do not change the machine, only monitor it.
    #[arg(long)]
    as_is: bool,

    /// Write every run, with its conditions, as CSV that `quiet shifts` reads.
    #[arg(short, long, value_name = "FILE.csv")]
    output: Option<PathBuf>,

    /// Seed of what differs by chance between the runs of a simulated machine.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,

    /// Read nothing during a run, only before and after it (see compare --observer).
    #[arg(long, value_enum, value_name = "WHICH")]
    observer: Option<Observer>,

    #[command(flatten)]
    run_as: RunAs,

    /// The command, whose wall time is measured. On a simulated machine a workload model and its
    /// amount: call-simple 70.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// One run of the series.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
struct Run {
    seconds: f64,
    grade: Grade,
    disturbances: Vec<Disturbance>,
    #[serde(flatten)]
    conditions: Conditions,
    /// Why the CPUs ran at their speed, like in `flyball why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<SpeedNote>,
}

/// The output of `quiet bench`.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Measured<'a> {
    /// The command that was measured.
    command: &'a [String],
    level: flyball_control::quiet::Level,
    /// Whether the machine was left as it was.
    as_is: bool,
    runs: &'a [Run],
    median_ms: f64,
    standard_deviation_ms: f64,
    /// The shifts in the wall time of the runs.
    shifts: &'a shifts::SeriesShifts,
}

/// Runs the series. A simulated machine is not rebooted between runs, so a fault with a set time
/// happens in the middle of the series.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    if host.kind() != Kind::Live && host.software().is_none() {
        return Err(Failure::usage("a series runs on this machine or on a simulated one (-M sim:NAME)"));
    }
    let user = args.run_as.user(&*host)?;
    let interrupted = change::interrupts()?;
    let session = if args.as_is {
        None
    } else {
        // A simulated machine ends with this process, so there is nothing for a guardian to
        // restore.
        let guarded = host.software().is_none();
        let stopped = || interrupted.load(Ordering::Relaxed);
        let session = quiet_machine::QuietSession::begin(
            context,
            &*host,
            &args.quiet,
            Purpose::Quiet,
            guarded,
            &stopped,
        )?;
        if !guarded {
            session.notes.iter().for_each(|note| eprintln!("note: {note}"));
        }
        Some(session)
    };
    let group = session.as_ref().and_then(|session| session.group.clone());
    let runs = series(&*host, args, user.as_ref(), group.as_deref(), &interrupted);
    // Restore before checking the result.
    if let Some(session) = session {
        session.end()?;
    }
    conclude(&context.output.about(&*host), args, user.as_ref(), &runs?)?;
    Ok(if interrupted.load(Ordering::Relaxed) { Exit::Command(130) } else { Exit::Done })
}

/// Writes the requested files, and prints the report.
fn conclude(output: &Reporter, args: &Args, user: Option<&User>, runs: &[Run]) -> Result<(), Failure> {
    if let Some(path) = &args.output {
        // Write as the command's user: root must not write where that user may not.
        let _as_user = user.map(User::for_files);
        write_csv(path, runs)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    report(output, runs, args)
}

fn series(
    host: &dyn Host,
    args: &Args,
    user: Option<&User>,
    group: Option<&str>,
    interrupted: &std::sync::atomic::AtomicBool,
) -> Result<Vec<Run>, Failure> {
    let fail = |error: std::io::Error| match error.kind() {
        // Words that name no model.
        ErrorKind::InvalidInput if host.software().is_some() => Failure::usage(error.to_string()),
        _ => Failure::failed(format!("cannot run {}: {error}", args.command[0])),
    };
    let cpus = if host.software().is_some() {
        // Nothing else runs on a simulated machine, so a model only needs its own CPUs if the user
        // requests it.
        args.quiet.cpus.clone().unwrap_or_default()
    } else {
        args.quiet.options().cpus(&Snapshot::begin(host)?)?
    };
    let watched = Some(&cpus).filter(|cpus| !cpus.is_empty());
    let meters = Meters::find(host, watched);
    let mut speed = SpeedWatch::new(host, watched.cloned());
    let mut seeds = RunSeeds::new(args.seed);
    let mut runs = Vec::new();
    for number in 0..args.warm_up + args.runs {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        if let Some(software) = host.software() {
            // For each run, because the machine is not rebooted in between.
            software.vary(seeds.next_seed());
        }
        let launch = quiet_machine::launch(&args.command, &cpus, &args.quiet, group).as_user(user).silent();
        speed.begin("quiet");
        let mut watch = Watch::start(host, &meters, cpus.clone());
        let mut running = host.spawn(launch).map_err(fail)?;
        let ended = loop {
            // Ten readings per second detect throttling and bursts of load without disturbing the
            // command much. A signal ends the wait in any case.
            let interval =
                if args.observer.is_none() { Duration::from_millis(100) } else { Duration::from_secs(60) };
            if let Some(ended) = running.wait(interval).map_err(fail)? {
                break Some(ended);
            }
            if args.observer.is_none() {
                watch.tick();
            }
            if interrupted.load(Ordering::Relaxed) {
                running.stop(Duration::from_secs(2)).map_err(fail)?;
                break None;
            }
        };
        let Some(ended) = ended else { break };
        if !ended.status.success() {
            // The time of a failed run means something else, and the search would treat a series
            // with gaps as one without.
            return Err(Failure::failed(format!(
                "run {} of {} failed: {}; settings are restored",
                number + 1,
                args.command[0],
                ended.status
            )));
        }
        let conditions = watch.stop();
        let speed = RoundSpeed::end(&mut speed);
        // Watch warm-up runs too, so that all runs have the same conditions.
        if number < args.warm_up {
            continue;
        }
        // Convert a rate to the time per unit, so that all series are times.
        let seconds = ended.rate.map_or(ended.wall.as_nanos() as f64 * 1e-9, |rate| 1.0 / rate);
        // The command's own CPU time is load on its CPUs, not a disturbance.
        let own = ended
            .usage
            .map(|usage| (usage.user_seconds + usage.system_seconds) / (seconds * cpus.len() as f64));
        let (grade, disturbances) = grade(&conditions, own, &Limits::default(), speed.as_ref());
        runs.push(Run { seconds, grade, disturbances, conditions, speed });
    }
    Ok(runs)
}

/// Extracts a column's value from a run.
type Take = fn(&Conditions) -> Option<f64>;
const COLUMNS: &[(&str, &str, Take)] = &[
    ("frequency", "MHz", |c| c.frequency_mhz),
    ("temperature", "C", |c| c.temperature_c),
    ("throttled", "", |c| c.throttles.map(|count| count as f64)),
    ("load", "", |c| c.load),
    ("uptime", "s", |c| c.moment.uptime_s),
    ("wall clock", "s", |c| c.moment.unix_s),
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
    Series::new(name.to_owned(), "ms".to_owned(), &values, columns)
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
    flyball_files::replace(path, text.as_bytes())
}

fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "good",
        Grade::Fair => "fair",
        Grade::Bad => "bad",
        Grade::NotWatched => "not watched",
    }
}

fn report(output: &Reporter, runs: &[Run], args: &Args) -> Result<(), Failure> {
    if runs.is_empty() {
        return Err(Failure::failed("no run finished"));
    }
    let series = as_series(runs, &args.command[0]);
    let found = shifts::look(&series, &Options::default());
    let median = stats::median(&series.values).unwrap_or(f64::NAN);
    let deviation = stats::standard_deviation(&series.values).unwrap_or(0.0);
    let count = |grade| runs.iter().filter(|run| run.grade == grade).count();
    let data = || Measured {
        command: &args.command,
        level: args.quiet.level,
        as_is: args.as_is,
        runs,
        median_ms: median,
        standard_deviation_ms: deviation,
        shifts: &found,
    };
    output.object(data, || {
        let mut out = format!(
            "{} runs: median {median:.3} ms, standard deviation {:.2} %; {} good, {} fair, {} bad{}\n",
            runs.len(),
            deviation / median * 100.0,
            count(Grade::Good),
            count(Grade::Fair),
            count(Grade::Bad),
            match count(Grade::NotWatched) {
                0 => String::new(),
                count => format!(", {count} too short to be watched"),
            },
        );
        // Twice what the noisiest quiet machines show: something varies that the watch does not
        // see.
        if deviation > 0.05 * median && count(Grade::Bad) == 0 {
            out += if count(Grade::NotWatched) == runs.len() {
                "  the runs scatter by more than 5 %; no run was long enough to be watched, so the cause is unknown\n"
            } else {
                "  the runs scatter by more than 5 %, and no monitored condition explains it\n"
            };
        }
        for (number, run) in runs.iter().enumerate().filter(|(_, run)| run.grade == Grade::Bad).take(5) {
            let why: Vec<&str> =
                run.disturbances.iter().map(|disturbance| disturbance.what.as_str()).collect();
            out += &format!("  run {} ({:.3} ms): {}\n", number + 1, run.seconds * 1000.0, why.join("; "));
        }
        if count(Grade::Bad) > 5 {
            out += &format!("  {} more bad runs\n", count(Grade::Bad) - 5);
        }
        out + &shifts::render(&found)
    })
}
