//! `flyball why`: shows what each limit cost, from the hardware's highest frequency down to the one
//! that the CPUs had.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use flyball_control::write::journal::{Contents, Entry, Journal};
use flyball_control::{Location, Snapshot, knob::spelling::Spelling, select};
use flyball_host::{CpuList, Host, Kind, Launch};
use flyball_monitor::{Explanation, Facts, Layout, Options, Sample, Sampler, State, explain, file::shards};
use flyball_process::confine::Confinement;
use flyball_simhost::PROGRAM;
use flyball_top::{source::target, state::Jump};
use serde::Serialize;

use super::top::{
    at,
    replay::{notice, open},
};
use crate::{
    context::Context,
    exit::{Exit, Failure},
    knob_arguments,
    machine::bound,
    output::Reporter,
    paint::{Paint, Style},
    time::span_within,
};

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Watches CPUs for a while. Prints the hardware's highest frequency, then what each limit takes from it: turbo limits, Speed \
Select, frequency limits, governor and preference, power, current, heat, firmware. Each line names the file or register that \
shows the limit, and the setting that changes it. Sleeping CPUs are not woken. A recording is a single moment, so 'why' only \
lists its limits. A note names what only root can read.

Examples:
  flyball why
  flyball why 0-3 -t 10s
  flyball run --why -- ./bench                          what limited the CPUs that a command ran on
  flyball why -M sim:sst-guide --workload spin --pin 0-13
  flyball why --replay top.fbt --at 14:05               what 'flyball top --record' saw in the 5 s before

Exit codes: 0 explained, 1 none of the CPUs can be explained, 2 invalid arguments or recording.")]
pub(crate) struct Args {
    /// CPUs: 0-3,7, package:0, die:1, core:3, node:0, type:P, ccd:0, cache:big, or several of
    /// these separated by commas [default: all].
    #[arg(value_name = "CPUS", help_heading = None)]
    cpus: Option<String>,

    /// How long to watch.
    #[arg(short, long, value_name = "TIME", default_value = "5s",
        value_parser = span_within(Duration::from_millis(100), Duration::from_secs(3600)))]
    time: Duration,

    /// On a simulated machine: workload model to run meanwhile (see `flyball sim list`, or a file).
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,

    /// CPUs of that workload.
    #[arg(long, value_name = "CPUS", requires = "workload")]
    pin: Option<CpuList>,

    /// Explain a moment of a recording of 'flyball top --record'.
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    replay: Option<PathBuf>,

    /// The moment: 14:05, 14:05:30 (UTC), or -90s, -5m, -2h before the recording's end [default:
    /// its end].
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true, value_parser = at)]
    at: Option<Jump>,

    /// The files of that recording. They are looked for before this process is confined to them.
    #[arg(skip)]
    found: OnceLock<Vec<PathBuf>>,
}

impl Args {
    /// Adds the files of a recording; `false` if a machine is watched.
    pub(crate) fn files(&self, files: &mut Confinement) -> bool {
        let Some(replay) = &self.replay else { return false };
        for file in self.found.get_or_init(|| shards(replay).unwrap_or_default()) {
            files.read(file);
        }
        true
    }
}

/// How long a workload on a simulated machine runs before the first sample.
const WARM_UP: Duration = Duration::from_secs(2);

/// The output.
#[derive(Debug, schemars::JsonSchema, Serialize)]
pub(crate) struct Answer<'a> {
    seconds: f64,
    /// CPUs limited in the same way, with their limits.
    cpus: Vec<One<'a>>,
    /// CPU time of this program for one reading, ms, and the number of CPUs that it interrupted.
    /// Both are medians.
    reading_ms: f64,
    touched: u32,
    /// What cannot be seen, and how to make it visible.
    missing: Vec<String>,
}

#[derive(Debug, schemars::JsonSchema, Serialize)]
struct One<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    sentence: String,
}

/// Watches and explains.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    if let Some(path) = &args.replay {
        return replayed(context, args, path);
    }
    let host = context.open()?;
    let wanted = knob_arguments::cpus(&*host, args.cpus.as_deref(), &mut Snapshot::begin(&*host)?);
    let wanted = wanted.map_err(|failure| match &args.cpus {
        // The user may have meant a command, like `run` takes.
        Some(word) if word.contains('/') => failure
            .reworded(|message| format!("{message}\nhint: 'flyball run --why -- {word}' explains a command")),
        _ => failure,
    })?;
    let _load = match &args.workload {
        Some(name) => Some(start_model(&*host, name, args.pin.as_ref())?),
        None => None,
    };
    // Read everything in each sample: a few seconds are too short to read in turns.
    let mut sampler = Sampler::open(&*host, Options { slow: Duration::ZERO, ..Options::default() })?;
    let samples = watch(&*host, &mut sampler, args.time);
    let layout = sampler.layout();
    let journal = context.state().ok().and_then(|state| Journal::load(&state).ok().flatten());
    let facts = Facts::take(&*host, layout, |path| setter(journal.as_ref()?, &*host, path))?;
    let output = context.output.about(&*host);
    print(&output, layout, &facts, &samples, args.time.as_secs_f64(), wanted.as_ref())
}

/// Explains the last part of a recording before a time.
fn replayed(context: &Context, args: &Args, path: &Path) -> Result<Exit, Failure> {
    // Any user may have written the file, and reading it could take much memory and time.
    let _ = bound();
    let usage = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let files = args.found.get_or_init(|| shards(path).unwrap_or_default());
    let mut recording = open(path, files)?;
    let until = args.at.map_or(recording.span().1, |jump| target(jump, recording.span().1));
    let last = recording.index_at(until).map_err(|error| usage(&error))?.max(1);
    let from = until.saturating_sub(args.time.as_nanos() as u64);
    // At least two samples, because a single one has no speed.
    let first = recording.index_at(from).map_err(|error| usage(&error))?.min(last - 1);
    let mut samples = Vec::new();
    for number in first..=last {
        samples.extend(recording.sample(number).map_err(|error| usage(&error))?);
    }
    if samples.len() < 2 {
        return Err(usage(&"the recording has only one sample; at least two are needed"));
    }
    let Some(facts) = recording.facts(last) else {
        return Err(usage(&"it was recorded by an older flyball, without the limits that reasons need"));
    };
    let layout = recording.layout();
    let wanted = args.cpus.as_ref().map(|text| select(text, &layout.topology())).transpose();
    let wanted = wanted.map_err(Failure::usage)?;
    let seconds =
        samples.last().zip(samples.first()).map_or(0, |(last, first)| last.at - first.at.min(last.at));
    if let Some(notice) = notice(recording.lost()) {
        eprintln!("note: {}: {notice}", path.display());
    }
    let output = context.output.about_simulated(layout.machine.kind == Kind::Simulated);
    print(&output, layout, facts, &samples, seconds as f64 * 1e-9, wanted.as_ref())
}

/// Explains the samples, and prints the result.
fn print(
    output: &Reporter,
    layout: &Layout,
    facts: &Facts,
    samples: &[Sample],
    seconds: f64,
    wanted: Option<&CpuList>,
) -> Result<Exit, Failure> {
    let found = explain(layout, facts, samples, wanted);
    let mut costs: Vec<(u64, u32)> =
        samples.iter().map(|sample| (sample.cost.cpu, sample.cost.touched)).collect();
    costs.sort_unstable();
    let (cpu, touched) = costs.get(costs.len() / 2).copied().unwrap_or_default();
    let missing: Vec<String> = layout.missing.iter().map(ToString::to_string).collect();
    output.object(
        || Answer {
            seconds,
            cpus: found.iter().map(|one| One { explanation: one, sentence: one.to_string() }).collect(),
            reading_ms: cpu as f64 * 1e-6,
            touched,
            missing: missing.clone(),
        },
        || render(&found, layout, Paint::stdout()),
    )?;
    if !output.is_json() {
        for what in &missing {
            eprintln!("note: not visible here: {what}");
        }
    }
    Ok(if found.is_empty() { Exit::Failed } else { Exit::Done })
}

/// Starts a model on a simulated machine.
pub(super) fn start_model(
    host: &dyn Host,
    name: &str,
    pin: Option<&CpuList>,
) -> Result<Box<dyn flyball_host::Process>, Failure> {
    if host.software().is_none() {
        return Err(Failure::usage(format!(
            "--workload is for simulated machines (-M sim:NAME); on {} start the program yourself, and give its CPUs",
            host.name()
        )));
    }
    let mut words = vec![name.to_owned(), "--endless".to_owned()];
    words.extend(pin.iter().flat_map(|cpus| ["--pin".to_owned(), cpus.to_string()]));
    let load = host.spawn(Launch::new(PROGRAM, &words)).map_err(Failure::usage)?;
    host.sleep(WARM_UP);
    Ok(load)
}

/// Samples over the given time, often enough to see for which share of it a limit applied.
fn watch(host: &dyn Host, sampler: &mut Sampler<'_>, time: Duration) -> Vec<Sample> {
    let mut samples = vec![sampler.sample()];
    // A recording has only one snapshot.
    if host.kind() == Kind::Recorded {
        return samples;
    }
    let count = (time.as_millis() / 500).clamp(2, 600) as u32;
    for _ in 0..count {
        host.sleep(time / count);
        samples.push(sampler.sample());
    }
    samples
}

/// Returns who set a frequency limit according to the journal: the flyball command that wrote the
/// file last and kept its setting, unless the file has another value now.
fn setter(journal: &Contents, host: &dyn Host, path: &str) -> Option<String> {
    let (Entry { command, .. }, wrote) = journal.last_write(&Location::File(path.to_owned()))?;
    let (wrote, found) = (wrote.trimmed(), host.read(path).ok()?);
    Some(if Spelling::FrequencyLimit.agrees(wrote, &found) {
        format!("'{command}'")
    } else {
        // The file shows the lowest of all requests, so another program or the kernel itself
        // changed it.
        format!(
            "another program or the kernel, since '{command}' (it wrote {wrote}, the file has {})",
            found.trim()
        )
    })
}

fn render(found: &[Explanation], layout: &Layout, paint: Paint) -> String {
    let mut out = String::new();
    for one in found {
        if !out.is_empty() {
            out.push('\n');
        }
        let busy = one.busy.map_or_else(String::new, |busy| format!(", busy {:.0} %", busy * 100.0));
        let title = format!("CPUs {}{}", one.cpus, if one.state == State::Running { &busy } else { "" });
        let _ = writeln!(out, "{}", paint.apply(Style::Heading, &title));
        steps(&mut out, one);
        let _ = writeln!(out, "  {one}");
    }
    if layout.cpus.is_empty() {
        out.push_str("no CPUs\n");
    }
    out
}

/// Writes the waterfall. For a single snapshot, writes its limits.
fn steps(out: &mut String, one: &Explanation) {
    let (Some(highest), Some(mhz)) = (one.highest, one.mhz) else {
        // A sleeping CPU has no speed because it sleeps, not because of a limit.
        let limits = if one.state == State::Unknown { &one.limits[..] } else { &[] };
        for limit in limits {
            let _ = writeln!(out, "  {:>6.0} MHz at most  {}: {}", limit.mhz, limit.limiter, limit.evidence);
        }
        return;
    };
    if one.steps.is_empty() {
        return;
    }
    let _ = writeln!(out, "  {highest:>6.0} MHz  highest ({})", one.highest_from);
    for step in &one.steps {
        let evidence: Vec<String> = step.evidence.pieces().iter().map(ToString::to_string).collect();
        let certainty = step.certainty.words().map_or_else(String::new, |words| format!("; {words}"));
        let knob = step.knob.map_or_else(String::new, |knob| format!("; setting: {knob}"));
        let by = step.by.as_ref().map_or_else(String::new, |by| format!("; by {by}"));
        let _ = writeln!(
            out,
            "  {:>+6.0}      {}, {:.0} % of the time ({}{certainty}{knob}{by})",
            -step.mhz,
            step.limiter,
            step.share * 100.0,
            evidence.join("; "),
        );
    }
    if one.rest.abs() >= 0.5 {
        let _ = writeln!(out, "  {:>+6.0}      rounding and measurement", -one.rest);
    }
    let _ = writeln!(out, "  {mhz:>6.0} MHz  while it ran");
}
