//! `top --replay`: shows a recording on the screen, as text or as data.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use flyball_files::open_regular;
use flyball_monitor::{
    Facts, Layout,
    file::{Lost, Recording, shards},
    history::Timeline,
};
use flyball_top::{
    Source, SourceError, Status,
    source::{moment_at, target},
};

use super::{Args, Form, print::Printer};
use crate::{
    context::Context,
    exit::{Exit, Failure},
    machine::bound,
};

/// A recording as a source for the screen.
struct Replay {
    recording: Recording<File>,
    interval: Duration,
    notices: Vec<String>,
}

impl Source for Replay {
    fn timeline(&mut self) -> &mut dyn Timeline {
        &mut self.recording
    }

    fn advance(&mut self) -> io::Result<bool> {
        // A damaged chunk is only noticed when it is read.
        self.notices = notice(self.recording.lost()).into_iter().collect();
        Ok(false)
    }

    fn status(&self) -> Status<'_> {
        Status {
            interval: self.interval,
            is_replay: true,
            notices: &self.notices,
            missing: &[],
            recording: None,
            own: None,
        }
    }

    fn known(&self, number: u64) -> (&Layout, Option<&Facts>) {
        (self.recording.layout(), self.recording.facts(number))
    }

    fn record(&mut self) -> Result<flyball_top::Recording, SourceError> {
        Err(SourceError::Replay)
    }

    fn export(&mut self, _text: &str) -> Result<PathBuf, SourceError> {
        Err(SourceError::Replay)
    }
}

impl Replay {
    /// Prints what could not be read. Call it after the last moment, since a chunk is only checked
    /// when it is shown.
    fn note(&self, path: &Path) {
        if let Some(notice) = notice(self.recording.lost()) {
            eprintln!("note: {}: {notice}", path.display());
        }
    }
}

pub(crate) fn open(path: &Path, files: &[PathBuf]) -> Result<Recording<File>, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    if files.is_empty() {
        return Err(usage(&"there is no such recording"));
    }
    let opened = files.iter().map(|file| open_regular(OpenOptions::new().read(true), file));
    let opened = opened.collect::<io::Result<Vec<File>>>().map_err(|error| usage(&error))?;
    Recording::open(opened).map_err(|error| usage(&error))
}

/// Describes the parts of a recording that could not be read.
pub(crate) fn notice(lost: Lost) -> Option<String> {
    let mut parts = Vec::new();
    if lost.bytes > 0 {
        parts.push(format!("{} bytes are torn or damaged", lost.bytes));
    }
    if lost.samples > 0 {
        parts.push(format!("{} samples are damaged", lost.samples));
    }
    if lost.files > 0 {
        parts.push(format!("{} earlier files have another layout; give their own names", lost.files));
    }
    let place = lost.first.map_or(String::new(), |first| format!(" (the first at byte {first})"));
    (!parts.is_empty()).then(|| parts.join(", ") + &place)
}

pub(super) fn run(context: &Context, args: &Args, path: &Path, form: Form) -> Result<Exit, Failure> {
    // Any user may have written the file, and reading it may take much memory and time.
    let _ = bound();
    let files = args.found.get_or_init(|| shards(path).unwrap_or_default());
    let mut recording = open(path, files)?;
    let (first, last) = recording.span();
    let begin = match args.at {
        Some(jump) => recording.index_at(target(jump, last)).map_err(Failure::usage)?,
        None => 0,
    };
    let between = Duration::from_nanos(last.saturating_sub(first) / recording.len().max(2).saturating_sub(1));
    // If the recording's clock jumped, play it at a usual speed.
    let interval = between.clamp(Duration::from_millis(50), Duration::from_secs(5));
    let notices: Vec<String> = notice(recording.lost()).into_iter().collect();
    let mut replay = Replay { recording, interval, notices };
    if let Some(file) = &args.parquet {
        parquet(&mut replay, args, begin, file)?;
        replay.note(path);
        return Ok(Exit::Done);
    }
    match form {
        #[cfg(feature = "tui")]
        Form::Screen => {
            let ended = crate::process::interrupts()?;
            let coloured = crate::terminal::is_coloured();
            let options = flyball_top::Options { coloured, samples: None, ended: &ended };
            let mut state = flyball_top::State::default();
            state.show(begin.max(1));
            let shown = flyball_top::run(&mut replay, &mut state, &options);
            shown.map_err(|error| Failure::failed(format!("the terminal: {error}")))?;
        }
        _ => {
            let simulated = replay.recording.layout().machine.kind == flyball_host::Kind::Simulated;
            let output = context.output.about_simulated(simulated);
            let mut printer = Printer::new(output, form, replay.recording.layout(), &args.columns);
            // Like for a live machine, text is one moment. Data is everything from there on.
            let count = args.samples.unwrap_or(if form == Form::Text { 1 } else { u64::MAX });
            let from = begin.max(1);
            let end = replay.recording.len().min(from.saturating_add(count));
            for number in from..end {
                if let Some(moment) = moment_at(&mut replay, number).map_err(Failure::usage)? {
                    printer.moment(&moment)?;
                }
            }
            replay.note(path);
            if replay.recording.len() < 2 {
                return Err(Failure::usage(format!(
                    "{}: the recording has only one sample; at least two are needed",
                    path.display()
                )));
            }
        }
    }
    Ok(Exit::Done)
}

/// Writes moments to a Parquet file, from one on.
#[cfg(feature = "parquet")]
fn parquet(replay: &mut Replay, args: &Args, begin: u64, file: &Path) -> Result<(), Failure> {
    use flyball_files::Replacement;

    use super::print;
    let unwritten =
        |error: io::Error| Failure::new(Exit::Unwritten, format!("cannot write {}: {error}", file.display()));
    let (opened, replacement) = Replacement::create(file).map_err(unwritten)?;
    let mut table = flyball_table::parquet::Table::new(opened, &print::COLUMNS, &[]).map_err(unwritten)?;
    let from = begin.max(1);
    let end = replay.recording.len().min(from.saturating_add(args.samples.unwrap_or(u64::MAX)));
    for number in from..end {
        let Some(moment) = moment_at(replay, number).map_err(Failure::usage)? else { continue };
        for row in print::rows(replay.recording.layout(), &moment) {
            table.add(row).map_err(unwritten)?;
        }
    }
    table.finish().and_then(|()| replacement.finish()).map_err(unwritten)
}

/// In builds without the feature, says how to get it.
#[cfg(not(feature = "parquet"))]
fn parquet(_: &mut Replay, _: &Args, _: u64, _: &Path) -> Result<(), Failure> {
    Err(Failure::usage(
        "this build cannot write Parquet files: build with `--features parquet`, or use --csv",
    ))
}
