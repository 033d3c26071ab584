//! `flyball report`: rebuilds a comparison's report from its run directory, merges the comparisons
//! of a fleet, and analyses the kernel selftest's CSV files.

pub(crate) mod fleet;

use std::path::{Path, PathBuf};

use flyball_files::{Replacement, is_stream, read_input, replace, replace_file};
use flyball_measure::{
    GateVerdict, Limit, Manifest, RecordError, Report, RunDirectory, analyse, gate, render, selftest,
};
use flyball_process::{User, confine::Confinement};

use crate::{
    exit::{Exit, Failure},
    output::Reporter,
    paint::Paint,
    terminal,
};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball report flyball-compare-20260131-120000     rebuild the table, report.html and the other files
  flyball report selftest.tbench.csv                 check a CSV file of the kernel's amd-pstate selftest: recompute \
derived cells, judge every pair of arms
  flyball report selftest.tbench.csv -o DIR          also write a page and the selftest's three plots to DIR
  flyball report --json DIR                          everything as JSON
  flyball report --fleet DIR... -o fleet             what the arms change over all machines whose runs are in DIR, and a page
  flyball report --fleet DIR --hosts hosts.txt       name the hosts of the list without results
  flyball report --fleet DIR --design 1%             how many machines and rounds show a change of 1 %

Exit codes: 0 done, 1 no round of an arm counts, 2 the directory or file cannot be read, 12 over a limit of --fail-if, 13 cannot tell. \
Without --fail-if, these limits are those of the comparison.")]
pub(crate) struct Args {
    /// A run directory, or a selftest's CSV file; with --fleet any number of directories.
    #[arg(value_name = "DIR|CSV", required = true)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    of_fleet: fleet::FleetArgs,

    /// Directory for the report's files [default: the run directory; none for a CSV file or a
    /// fleet].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    #[command(flatten)]
    forms: Forms,

    /// The selftest's time limit for tbench (-t), in seconds [default: derived from the cells].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(2..))]
    time_limit: Option<i64>,
}

/// The heading of options that name files and directories of results.
pub(crate) const RESULTS: &str = "Results";

/// Other forms of a comparison's report.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = RESULTS)]
pub(crate) struct Forms {
    /// Also write the report as Markdown to this file; to standard output with -, instead of the
    /// text.
    #[arg(long, value_name = "FILE")]
    export_markdown: Option<PathBuf>,

    /// Also write the rounds as hyperfine's JSON to this file; to standard output with -, instead
    /// of the text.
    #[arg(long, value_name = "FILE")]
    export_json: Option<PathBuf>,

    /// Exit with 12 if over a limit: 'time > +2%'. With 13 if these rounds cannot tell. Quantities:
    /// time, cpu, metric, memory, faults, energy, per-watt, case (each of a suite) and others. May
    /// be repeated. --resume and 'flyball report' judge the comparison's own limits again, unless
    /// this option replaces them.
    #[arg(long, value_name = "LIMIT")]
    pub(super) fail_if: Vec<Limit>,
}

impl Forms {
    /// The files, without standard output.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.export_markdown.iter().chain(&self.export_json).filter(|file| !is_stdout(file))
    }

    /// Returns the limits from the command line. Without any, returns those with which the
    /// comparison was started.
    pub(crate) fn limits(&self, manifest: &Manifest) -> Result<Vec<Limit>, Failure> {
        let is_typed = !self.fail_if.is_empty();
        let own = manifest.schedule.limits.iter().filter(|_| !is_typed).map(|limit| limit.parse());
        let limits = self.fail_if.iter().cloned().map(Ok).chain(own).collect::<Result<Vec<Limit>, _>>();
        let checked = limits.and_then(|limits| {
            limits.iter().try_for_each(|limit| limit.check(&manifest.workload.metric, &limits))?;
            Ok(limits)
        });
        let limits = checked.map_err(|error| {
            let hint = if is_typed { "" } else { "\nhint: --fail-if replaces this limit of the comparison" };
            Failure::usage(format!("--fail-if: {error}{hint}"))
        })?;
        if !limits.is_empty() && manifest.arms.iter().filter(|arm| !arm.control).count() < 2 {
            return Err(Failure::usage("--fail-if needs a second program to compare with"));
        }
        Ok(limits)
    }

    /// Returns whether an export replaces the text on standard output.
    fn takes_stdout(&self) -> bool {
        self.export_markdown.iter().chain(&self.export_json).any(|file| is_stdout(file))
    }

    /// Checks in advance that the files can be written.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for file in self.files() {
            let place = file.parent().filter(|place| !place.as_os_str().is_empty() && !place.is_dir());
            if let Some(place) = place {
                let (file, place) = (file.display(), place.display());
                return Err(Failure::usage(format!("cannot write {file}: there is no directory {place}")));
            }
            // Do not try a stream such as a FIFO, because that would open it.
            let tried = if is_stream(file) { Ok(()) } else { Replacement::create(file).map(drop) };
            tried.map_err(|error| {
                let why = flyball_host::words_of(&error);
                Failure::usage(format!("cannot write {}: {why}", file.display()))
            })?;
        }
        Ok(())
    }
}

/// `-` means standard output, as in hyperfine.
fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

impl Args {
    /// Adds the input directory or file, and the output directory.
    pub(crate) fn files(&self, files: &mut Confinement) {
        self.paths.iter().chain(&self.of_fleet.hosts).for_each(|path| files.read(path));
        // For a CSV file or a fleet, report files are only written with -o.
        let place = self.output.clone().or_else(|| {
            let own = self.paths.first().filter(|path| path.is_dir() && !self.of_fleet.fleet);
            own.cloned()
        });
        if let Some(place) = place {
            files.write_in(&place);
        }
        self.forms.files().for_each(|file| files.write(file));
    }
}

/// Rebuilds the report. `is_search` and `search` detect and report a directory of `tune`, which is
/// implemented on top of this command.
pub(crate) fn run(
    output: &Reporter,
    args: &Args,
    is_search: fn(&Path) -> bool,
    search: fn(&Reporter, &RunDirectory, &Path) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    if args.of_fleet.fleet {
        return fleet::run(output, args);
    }
    let [path] = args.paths.as_slice() else {
        return Err(Failure::usage(
            "one directory or file is reported at a time; --fleet puts several together",
        ));
    };
    if path.is_file() {
        return sheet(output, args, path);
    }
    let directory = RunDirectory::open(path).map_err(|error| match &error {
        RecordError::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage(format!(
                "{error}; give a run directory of 'flyball compare', or a CSV file of the amd-pstate selftest"
            ))
        }
        _ => error.into(),
    })?;
    for warning in &directory.warnings {
        eprintln!("note: {warning}");
    }
    let place = args.output.clone().unwrap_or_else(|| directory.path().to_owned());
    if is_search(path) {
        write_files(&directory, &place, true)?;
        return search(output, &directory, &place);
    }
    write_and_print(output, &directory, &place, &args.forms, true)
}

/// Writes a file of the report, or replaces it. Does not follow a link, since a run directory may
/// come from another user.
pub(super) fn save(place: &Path, name: &str, bytes: &[u8]) -> Result<(), Failure> {
    let path = place.join(name);
    replace_file(&path, bytes, false).map_err(|error| {
        let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        let hint = if is_denied { "\nhint: -o DIR writes the report elsewhere" } else { "" };
        Failure::failed(format!("cannot write {}: {error}{hint}", path.display()))
    })
}

fn make(place: &Path) -> Result<(), Failure> {
    flyball_files::make_dirs(place)
        .map_err(|error| Failure::failed(format!("cannot create {}: {error}", place.display())))
}

/// Saves a chart as SVG, and as PNG too in builds with that feature.
fn save_chart(place: &Path, name: &str, chart: &flyball_plot::Chart, as_png: bool) -> Result<(), Failure> {
    save(place, &format!("{name}.svg"), chart.svg().as_bytes())?;
    #[cfg(not(feature = "png"))]
    let _ = as_png;
    #[cfg(feature = "png")]
    if as_png {
        // Scaled by two, for dense screens and print.
        let png = chart.png(2.0).map_err(Failure::failed)?;
        save(place, &format!("{name}.png"), &png)?;
    }
    Ok(())
}

/// Analyses a directory's rounds, and checks the differences against the limits.
fn judge(directory: &RunDirectory, limits: &[Limit]) -> Report {
    let mut report = analyse(&directory.manifest, &directory.rounds);
    report.gate = gate(&directory.manifest, &report, limits);
    report
}

/// Writes the report's files into a directory.
pub(crate) fn write_files(directory: &RunDirectory, place: &Path, as_png: bool) -> Result<(), Failure> {
    save_report(directory, &judge(directory, &[]), place, as_png)
}

/// Saves the report's files. Drawing PNG charts takes as long as a comparison of short programs, so
/// only `flyball report` makes them.
fn save_report(directory: &RunDirectory, report: &Report, place: &Path, as_png: bool) -> Result<(), Failure> {
    let (manifest, rounds) = (&directory.manifest, &directory.rounds);
    // Write as the owner of the directory, who could have put links in it: root must not write
    // where that user may not.
    let _as_owner = directory.owner().map(User::for_files);
    make(place)?;
    save(place, "report.json", &Reporter::file(report)?)?;
    save(place, "report.csv", selftest::write(report).as_bytes())?;
    save(place, "report.html", render::page(report, manifest, rounds).html().as_bytes())?;
    for named in render::charts(report, manifest, rounds) {
        save_chart(place, named.name, &named.chart, as_png)?;
    }
    Ok(())
}

/// Prints the report and writes its files into a directory.
pub(crate) fn write_and_print(
    output: &Reporter,
    directory: &RunDirectory,
    place: &Path,
    forms: &Forms,
    as_png: bool,
) -> Result<Exit, Failure> {
    let report = judge(directory, &forms.limits(&directory.manifest)?);
    let screen = render::Screen { width: terminal::columns(), painter: Paint::stdout() };
    // Known from the files: a report is made where the machine is not.
    let output = output.about_simulated(directory.manifest.machine.simulated);
    if !forms.takes_stdout() {
        output.object(|| &report, || render::text(&report, screen))?;
    }
    // Save after printing the table, so that an error such as a full disk does not hide the result.
    save_report(directory, &report, place, as_png)?;
    let export = |file: &Path, text: String| {
        if is_stdout(file) {
            return crate::output::raw(&text);
        }
        let _as_owner = directory.owner().map(User::for_files);
        replace(file, text.as_bytes()).map_err(|error| {
            let (file, run) = (file.display(), directory.path().display());
            let hint = format!("hint: 'flyball report {run}' with this option writes it again");
            Failure::failed(format!("cannot write {file}: {error}\n{hint}"))
        })
    };
    if let Some(file) = &forms.export_markdown {
        export(file, render::markdown(&report, &directory.manifest))?;
    }
    if let Some(file) = &forms.export_json {
        export(file, render::hyperfine(&report, &directory.manifest, &directory.rounds))?;
    }
    if !output.is_json() {
        // Tell people where the page is. In JSON mode, the caller knows the directory.
        eprintln!("report: {}", place.join("report.html").display());
    }
    Ok(match report.gate.iter().map(|answer| answer.verdict).max() {
        Some(GateVerdict::Over) => Exit::Over,
        // This arm has no rounds to compare. A CI job may accept 'cannot tell', so use another
        // code.
        _ if report.arms.iter().any(|arm| arm.rounds == 0 && !arm.left_out.is_empty()) => Exit::Failed,
        Some(GateVerdict::CannotTell) => Exit::CannotTell,
        Some(GateVerdict::Within) | None => Exit::Done,
    })
}

/// Maximum bytes of a selftest's CSV file. Its script writes about 10 kB.
const MAX_SHEET: u64 = 16 << 20;

/// Reads, checks and analyses a selftest's CSV file.
fn sheet(output: &Reporter, args: &Args, path: &Path) -> Result<Exit, Failure> {
    let usage = |error: String| Failure::usage(format!("{}: {error}", path.display()));
    let bytes = read_input(path, MAX_SHEET);
    let bytes = bytes.map_err(|error| usage(error.to_string()))?;
    let sheet = selftest::read(&bytes).map_err(|error| usage(error.to_string()))?;
    // The selftest's script ends a second before the limit.
    let report = selftest::judge(&sheet, args.time_limit.map(|limit| limit - 1));
    if let Some(place) = &args.output {
        make(place)?;
        save(place, "report.html", render::sheet_page(&sheet, &report).html().as_bytes())?;
        for (name, chart) in render::sheet_charts(&sheet) {
            save_chart(place, &format!("{}_{name}", report.test), &chart, true)?;
        }
        eprintln!("report: {}", place.join("report.html").display());
    }
    output.object(|| &report, || render::sheet_text(&sheet, &report))?;
    Ok(Exit::Done)
}
