//! `flyball show`: prints the whole machine on one screen, or the named knobs.
//!
//! The data is a list of rows (`flyball_control::survey`), printed as text or JSON.

mod facts;
pub(crate) mod lines;
mod screen;
mod uncore;

use std::mem::ManuallyDrop;

use flyball_control::{
    Id, Knob, KnobName, Location, Outcome, ReadError, Row, Snapshot, SurveyOptions, TABLE, Value, Why,
    knob::When, survey,
};
use flyball_host::{CpuList, Host};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    knob_arguments,
    paint::Paint,
};

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 shown; 4 none of the knobs exists here; 1 a value exists and cannot be read.

Examples:
  flyball show
  flyball show governor epp min-freq max-freq
  flyball show idle-state:C6 -c package:0
  flyball show --all --json")]
pub(crate) struct Args {
    /// Knobs or facts to show [default: those that fit the screen].
    #[arg(value_name = "KNOB", value_parser = knob_arguments::Name, hide_possible_values = true, help_heading = None)]
    pub knobs: Vec<KnobName>,

    /// CPUs: 0-3,7, package:0, die:1, core:3, node:0, type:P, or several of these separated by
    /// commas [default: all].
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: Option<String>,

    /// Show every row, even those that rarely matter.
    #[arg(short, long, conflicts_with = "knobs")]
    pub all: bool,
}

/// The machine as JSON.
#[derive(schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Whole<'a> {
    machine: &'a facts::Facts,
    rows: Vec<lines::Object<'a>>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let output = context.output.about(&*host);
    // Never dropped: with 512 CPUs, freeing its strings takes a tenth of the run time, and the
    // process ends anyway.
    let mut snapshot = ManuallyDrop::new(Snapshot::begin(host.as_ref())?);
    let cpus = knob_arguments::cpus(&*host, args.cpus.as_deref(), &mut snapshot)?;
    if !args.knobs.is_empty() {
        let options = SurveyOptions { cpus, sample_absence: false, ..SurveyOptions::default() };
        let ids: Vec<Id> = args.knobs.iter().map(|name| name.knob).collect();
        snapshot.take(host.as_ref(), &options.request(&ids));
        let rows = survey(&snapshot, &args.knobs, &options)?;
        output.list(|| lines::objects(&rows), || lines::render(&rows, &snapshot, Paint::stdout()))?;
        return Ok(verdict(&rows, true));
    }
    let rows = whole(host.as_ref(), &mut snapshot, cpus, args.all)?;
    // Only on processors with two chiplets whose caches differ. Saves other machines the reads.
    if matches!(snapshot.machine_value(Id::X3dMode), Ok(Some(_))) {
        snapshot.take_caches(host.as_ref())?;
    }
    if !output.is_json() {
        // Only for text: JSON has just the rows.
        screen::take(host.as_ref(), &mut snapshot);
    }
    let facts = facts::Facts::collect(host.as_ref(), &snapshot);
    output.object(
        || Whole { machine: &facts, rows: lines::objects(&rows) },
        || screen::render(&facts, &rows, &snapshot, (args.all, Paint::stdout())),
    )?;
    if !output.is_json() && snapshot.topology().policies.is_empty() {
        eprintln!("{}", facts.no_cpufreq(host.as_ref()));
    }
    Ok(verdict(&rows, false))
}

/// The rows of the screen.
fn whole(
    host: &dyn Host,
    snapshot: &mut Snapshot,
    cpus: Option<CpuList>,
    all: bool,
) -> Result<Vec<Row>, ReadError> {
    // Many knobs do not exist on a machine. Since the screen groups absent knobs, reading one
    // location of each is enough.
    let options = SurveyOptions { cpus, sample_absence: true, ..SurveyOptions::default() };
    let mut rows_of = |is_asked_for: &dyn Fn(&Knob) -> bool| {
        let ids: Vec<Id> = TABLE.iter().filter(|knob| is_asked_for(knob)).map(|knob| knob.id).collect();
        snapshot.take(host, &options.request(&ids));
        survey(snapshot, &ids.iter().map(|id| KnobName::from(*id)).collect::<Vec<_>>(), &options)
    };
    let mut rows = rows_of(&|knob| all || knob.shown.when == When::Always)?;
    if all {
        return Ok(rows);
    }
    // These rows only matter if another knob has a certain value, or none.
    let has = |id: Id, is_it: &dyn Fn(&Value) -> bool| {
        rows.iter().any(|row| row.knob == id && row.outcome.value().is_some_and(is_it))
    };
    let more = rows_of(&|knob| match knob.shown.when {
        When::Holds(id, value) => has(id, &|found| found.to_string() == value),
        When::Lacks(id) => !has(id, &|_| true),
        When::Always | When::OnRequest => false,
    })?;
    rows.extend(more);
    // In the order of the table, whichever pass found them.
    rows.sort_by_key(|row| row.knob);
    Ok(rows)
}

/// Returns the exit code of a command that printed `rows`, and prints errors on stderr. With
/// `strict`, the rows were requested by name, so having no value at all is a failure.
pub(crate) fn verdict(rows: &[Row], strict: bool) -> Exit {
    let (mut values, mut broken, mut denied) = (0, 0, 0);
    for row in rows {
        match &row.outcome {
            Outcome::Value(_) => values += 1,
            Outcome::Absent(_) => {}
            // Count instead of listing: without root there are hundreds, all with the same remedy.
            Outcome::Unreadable { permission: true, .. } => denied += row.places,
            Outcome::Unreadable { message, .. } => {
                broken += 1;
                eprintln!("flyball: {message}");
            }
        }
    }
    if denied > 0 {
        eprintln!("flyball: {denied} values can only be read by root");
    }
    match (broken, values) {
        (1.., _) => Exit::Failed,
        // The value exists and root could read it, so scripts must not skip.
        (0, 0) if strict && denied > 0 => Exit::Failed,
        (0, 0) if strict => Exit::NotHere,
        _ => Exit::Done,
    }
}

/// Returns the reason to group absent rows by: the directory that lacks the file, or the reason
/// itself.
fn reason(why: &Why) -> String {
    match why {
        Why::NoFile(path) => match path.rsplit_once('/') {
            // Many knobs are files of one directory. A driver that lacks one usually lacks several.
            Some((folder, _)) => format!("not in {folder}"),
            None => why.to_string(),
        },
        Why::NoRegister { no_driver: true, .. } => {
            "in registers only, and no msr driver (modprobe msr)".to_owned()
        }
        Why::NoRegister { no_driver: false, .. } => "in a register that is not there".to_owned(),
        Why::Unset(_) => "left at 0 by the firmware".to_owned(),
        Why::Unsupported(_) => "not supported here".to_owned(),
        _ => why.to_string(),
    }
}

fn source(row: &Row) -> String {
    row.source.as_ref().map(Location::to_string).unwrap_or_default()
}
