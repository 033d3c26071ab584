//! `flyball get`: prints the values of knobs: each one in JSON, grouped in text.

use flyball_control::{Id, KnobName, Outcome, Row, Snapshot, SurveyOptions, survey};
use serde_json::Value as Json;

use crate::{
    commands::show,
    context::Context,
    exit::{Exit, Failure},
    knob_arguments,
    paint::{Cell, Columns, Paint, Style},
};

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 at least one value; 4 none of the knobs exists here; 1 a value exists and cannot be read.

Examples:
  flyball get governor
  flyball get min-freq max-freq -c 0-3 --json
  flyball get power-limit:long_term
  if [ \"$(flyball get --bare turbo)\" = on ]; then echo turbo; fi")]
pub(crate) struct Args {
    /// Knobs or facts; `flyball explain` lists them.
    #[arg(value_name = "KNOB", required = true, value_parser = knob_arguments::Name, hide_possible_values = true)]
    pub knobs: Vec<KnobName>,

    /// CPUs: 0-3,7, package:0, die:1, core:3, node:0, type:P, or several of these separated by
    /// commas [default: all].
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: Option<String>,

    /// Print each different value on a line of its own, for scripts: words as `set` takes them,
    /// numbers without a unit (--json names it).
    #[arg(long, conflicts_with = "json")]
    pub bare: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let mut snapshot = Snapshot::begin(host.as_ref())?;
    let cpus = knob_arguments::cpus(&*host, args.cpus.as_deref(), &mut snapshot)?;
    let output = context.output.about(&*host);
    // JSON has an object per location, so that a script can look up a CPU. Text groups equal
    // values. Read every location, since the knobs were requested by name.
    let options = SurveyOptions { cpus, sample_absence: false, apart: output.is_json() };
    let ids: Vec<Id> = args.knobs.iter().map(|name| name.knob).collect();
    snapshot.take(host.as_ref(), &options.request(&ids));
    let rows = survey(&snapshot, &args.knobs, &options)?;
    output.list(
        || rows.iter().map(show::lines::Single::from).collect(),
        || if args.bare { bare(&rows) } else { render(&rows) },
    )?;
    Ok(show::verdict(&rows, true))
}

/// Prints only the values.
fn bare(rows: &[Row]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        let Some(value) = row.outcome.value() else { continue };
        let line = match serde_json::to_value(value.plain()) {
            Ok(Json::Number(number)) => number.to_string(),
            // Switches and lists in the form that `set` takes.
            _ => value.to_string(),
        };
        // Print equal values once, so that a script that compares with one word does not depend on
        // the number of CPUs.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns a line per value. Absent knobs go to stderr.
fn render(rows: &[Row]) -> String {
    let mut columns = Columns::new();
    for row in rows {
        let name = show::lines::name(row);
        match &row.outcome {
            Outcome::Value(value) => columns.row(vec![
                Cell::styled(Style::Heading, name),
                value.to_string().into(),
                // The domain of an I/O die has no CPUs.
                if row.cpus.is_empty() { "no CPUs".to_owned() } else { format!("CPUs {}", row.cpus.short()) }
                    .into(),
            ]),
            Outcome::Absent(why) => {
                eprintln!("flyball: {name} is absent on CPUs {}: {why}", row.cpus.short());
            }
            // show::verdict() reports these and decides the exit code.
            Outcome::Unreadable { .. } => {}
        }
    }
    columns.render(Paint::stdout())
}
