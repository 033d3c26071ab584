//! `flyball quiet shifts`: finds shifts in a series, and what changed with them.

use std::{fmt::Write as _, path::Path};

use flyball_files::{read_bounded, read_input};
use flyball_measure::{
    RunDirectory,
    render::{number, percent, relative},
    series::{self, Series},
    shifts::{self, ColumnChange, Form, Options, Shift},
};
use flyball_process::confine::Confinement;

use crate::{
    exit::{Exit, Failure},
    machine,
    output::Reporter,
};

/// Arguments of `quiet shifts`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads JSON of pyperf, hyperfine and Google Benchmark, tables with a header (CSV, separated by commas, semicolons or \
tabs), JSON lists, and flyball's own run directories. A shift is reported if chance does not explain it: fewer \
than one in 200 random orders of the same values look as uneven, and a slow drift would not get that far. Other columns that changed \
at the same run are listed. A lasting change needs five runs; most are found from the eighth. Shorter changes are found only \
if they lie far from all other runs.

Examples:
  flyball quiet shifts bench.json
  flyball quiet shifts --value ms runs.csv
  flyball quiet shifts flyball-compare-20260131-120000

Exit codes: 0 whether or not there are shifts, 2 the file is not a series.")]
pub(crate) struct Args {
    /// The file (- for standard input), or a run directory.
    #[arg(value_name = "FILE")]
    file: String,

    /// The column of a table that holds the measurement [default: the first whose name is that of a
    /// time, otherwise the first with numbers].
    #[arg(long, value_name = "COLUMN")]
    value: Option<String>,

    /// The probability of reporting a shift in a series of independent runs that has none.
    #[arg(long, default_value_t = 0.005, value_name = "P")]
    alpha: f64,
}

impl Args {
    pub(crate) fn files(&self, files: &mut Confinement) {
        files.read(&self.file);
    }
}

/// One series with its shifts.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct SeriesShifts {
    name: String,
    /// The unit of numbers; empty if they have none.
    unit: String,
    runs: usize,
    /// The number of runs per cycle, if the level goes up and down periodically.
    #[serde(skip_serializing_if = "Option::is_none")]
    season: Option<f64>,
    /// The size of a lasting change in the middle that would be found in about 9 of 10 such series,
    /// in standard deviations of the runs on either side. Only if runs look independent.
    #[serde(skip)]
    finds: Option<f64>,
    /// A change in this many last runs is rarely found, however large it is.
    #[serde(skip)]
    too_few_at_end: usize,
    #[serde(skip)]
    are_equal: bool,
    shifts: Vec<Explained>,
}

/// A shift, and what may explain it.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
struct Explained {
    #[serde(flatten)]
    shift: Shift,
    with: Vec<ColumnChange>,
}

pub(crate) fn look(series: &Series, options: &Options) -> SeriesShifts {
    let season = shifts::season(&series.values);
    let shifts = shifts::find(&series.values, options)
        .into_iter()
        .map(|shift| Explained { with: shifts::column_changes(&shift, &series.columns, options), shift })
        .collect();
    SeriesShifts {
        name: series.name.clone(),
        unit: series.unit.clone(),
        runs: series.values.len(),
        season,
        finds: shifts::found_from(&series.values).filter(|_| season.is_none()),
        too_few_at_end: shifts::too_few_at_end(series.values.len(), options),
        are_equal: shifts::are_equal(&series.values),
        shifts,
    }
}

pub(crate) fn run(output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    let options = Options { alpha: args.alpha, ..Options::default() };
    // 1999 permutations cannot show a probability below 1/2000.
    if !(0.0005..=0.5).contains(&options.alpha) {
        return Err(Failure::usage(format!("--alpha {} is not between 0.0005 and 0.5", args.alpha)));
    }
    // Even a file of the permitted size can take minutes to search.
    let _ = machine::bound();
    let all = read(args)?;
    for series in all.iter().filter(|series| !series.left_out.is_empty()) {
        // If a column has no numbers at all, each run would be named.
        let runs: Vec<String> = series.left_out.iter().take(8).map(ToString::to_string).collect();
        let more = if series.left_out.len() > 8 { " and more" } else { "" };
        eprintln!(
            "flyball: {}: {} runs have no number and are left out ({}{more}); the others are numbered from 1",
            series.name,
            series.left_out.len(),
            runs.join(", ")
        );
    }
    let found: Vec<SeriesShifts> = all.iter().map(|series| look(series, &options)).collect();
    output.list(|| found.iter().collect(), || found.iter().map(render).collect())?;
    Ok(Exit::Done)
}

/// Maximum bytes of a series. A million runs of a benchmark are 20 MB as text.
const MAX_SERIES: u64 = 32 << 20;

fn read(args: &Args) -> Result<Vec<Series>, Failure> {
    if std::path::Path::new(&args.file).is_dir() {
        let directory = RunDirectory::open(std::path::Path::new(&args.file))?;
        return Ok(series::read_rounds(&directory));
    }
    let read = if args.file == "-" {
        read_bounded(std::io::stdin().lock(), MAX_SERIES)
    } else {
        read_input(Path::new(&args.file), MAX_SERIES)
    };
    let bytes = read.map_err(|error| Failure::usage(format!("cannot read {}: {error}", args.file)))?;
    series::read(&bytes, args.value.as_deref())
        .map_err(|error| Failure::usage(format!("{}: {error}", args.file)))
}

/// Formats shifts: `from run 106: 20.3 to 11.0 ms (-46 %); with it: frequency 1600 to 3400 MHz`.
pub(crate) fn render(found: &SeriesShifts) -> String {
    let mut out = String::new();
    if let Some(period) = found.season {
        let _ = writeln!(
            out,
            "{}: a season: the level goes up and down every {period:.0} runs; a lasting change that is smaller \
             may not be seen",
            found.name
        );
    }
    if found.shifts.is_empty() {
        // A shift needs a segment of minimum length on either side.
        let least = 2 * Options::default().shortest;
        let _ = if found.are_equal && found.runs >= least {
            writeln!(out, "{}: no shift: all {} runs are equal", found.name, found.runs)
        } else if found.runs < least {
            let runs = if found.runs == 1 { "run is" } else { "runs are" };
            writeln!(
                out,
                "{}: {} {runs} too few to detect a shift: at least {least} are needed",
                found.name, found.runs
            )
        } else {
            let lasting = found.finds.map_or_else(String::new, |deviations| {
                format!(
                    "; a lasting one in the middle is found in about 9 of 10 cases if it is {deviations:.1} standard \
                     deviations of the runs on either side or more and runs are independent, around one level"
                )
            });
            writeln!(
                out,
                "{}: no shift found in {} runs (a change in the last {} runs is seldom found, a short one only if it is far \
                 from other runs, and several changes may hide each other{lasting})",
                found.name, found.runs, found.too_few_at_end
            )
        };
        return out;
    }
    for Explained { shift, with } in &found.shifts {
        let unit = if found.unit.is_empty() { String::new() } else { format!(" {}", found.unit) };
        let (before, after) = (shift.median_before, shift.median_after);
        let change = match shift.form {
            Form::Spread => format!("typical deviation {} to {}{unit}", number(before), number(after)),
            _ => format!("{} to {}{unit} ({})", number(before), number(after), by(before, after)),
        };
        let place = match shift.form {
            Form::Spread => format!("from about run {}, the spread", shift.at + 1),
            Form::Step => step(shift, found.runs),
            Form::Drift => format!("slowly or in steps, {}", between(shift, found.runs)),
        };
        let _ = writeln!(out, "{}: {place}: {change}, p {}", found.name, p(shift.p));
        for column in with {
            let unit = if column.unit.is_empty() { String::new() } else { format!(" {}", column.unit) };
            let place = match column.until {
                None => format!("from run {}", column.at + 1),
                Some(until) => format!("slowly or in steps, over runs {} to {}", column.at + 1, until + 1),
            };
            let _ = writeln!(
                out,
                "  with it {place}: {} {} to {}{unit}",
                column.name, column.before, column.after
            );
        }
        if with.is_empty() {
            let _ = writeln!(out, "  no other column changed with it");
        }
    }
    out
}

/// Formats the change of a level: as a percentage, or as a difference if one value is not above
/// zero.
fn by(before: f64, after: f64) -> String {
    let difference = || format!("{}{}", if after > before { "+" } else { "" }, number(after - before));
    relative(before, after).map_or_else(difference, percent)
}

/// Describes the position of a step, as precisely as it is known.
fn step(shift: &Shift, runs: usize) -> String {
    let few = Options::default().shortest;
    if shift.within.as_ref().is_some_and(|within| 2 * within.len() > runs) {
        return format!("from run {} (at once or slowly, 95 %: somewhere in the series)", shift.at + 1);
    }
    if shift.within.as_ref().is_some_and(|within| !within.is_empty()) {
        return format!("from run {} (at once or slowly, {})", shift.at + 1, between(shift, runs));
    }
    match (shift.at, runs - shift.at) {
        (first, _) if first < few => format!("after the first {first} runs"),
        (_, last) if last < few => format!("in the last {last} runs"),
        _ => format!("from run {}", shift.at + 1),
    }
}

/// Returns the last run that is certainly before the change, and the first that is certainly after
/// it.
fn between(shift: &Shift, runs: usize) -> String {
    let within = shift.within.clone().unwrap_or(shift.before.end..shift.after.start);
    format!("95 %: between runs {} and {}", within.start.max(1), (within.end + 1).min(runs))
}

fn p(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_of_more_than_half_of_the_series_are_no_place() {
        let place = |within: std::ops::Range<usize>| {
            let shift = Shift {
                form: Form::Step,
                at: 60,
                within: Some(within),
                before: 0..60,
                after: 60..120,
                median_before: 1.0,
                median_after: 2.0,
                p: 0.0005,
            };
            step(&shift, 120)
        };
        assert_eq!(place(0..119), "from run 61 (at once or slowly, 95 %: somewhere in the series)");
        assert_eq!(place(50..70), "from run 61 (at once or slowly, 95 %: between runs 50 and 71)");
        assert_eq!(place(60..60), "from run 61");
    }
}
