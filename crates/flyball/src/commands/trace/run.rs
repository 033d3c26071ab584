//! `flyball trace run`: records while a command runs, then reports and diagnoses the trace.

use std::sync::Arc;

use flyball_trace::{
    Names, TextOptions, Trace, TraceSummary,
    diagnose::Finding,
    live::CaptureSummary,
    report::{Analyser, Report},
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
};

use super::{
    diagnose::{self, Diagnosis, Judge},
    input::print_losses,
    record, tables,
};

/// Arguments of `trace run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball trace run -- make -j8                what the driver decided meanwhile, and what was wrong
  flyball trace run -t 10s                     ten seconds of whatever the machine does
  flyball -M sim:ryzen-5750g,boot=amd_pstate=passive trace run -- gitsource --amount 20000

The recording stays in the file of -o, for `flyball trace report` and `flyball trace diagnose` with their options.

Exit codes: that of the command if it failed; otherwise 0, 8 a warning, 9 a fault, 1 records that could not be read.")]
// Its options are those of two other commands, whose group has the same name.
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    record: record::Args,

    /// Show this many tasks.
    #[arg(long, value_name = "N", default_value_t = 10)]
    tasks: usize,

    /// Show at most this many findings of each kind.
    #[arg(long, value_name = "N", default_value_t = 5)]
    most: usize,
}

/// The output of --json.
#[derive(schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Output<'a> {
    recording: &'a CaptureSummary,
    trace: &'a TraceSummary,
    report: &'a Report,
    findings: &'a [Finding],
}

/// Records, then prints the report and the findings.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let (recording, code) = record::make(context, &*host, &args.record)?;
    record::say(&recording);
    let names = Arc::new(Names::default());
    let mut analyser = Analyser::new();
    let mut judge = Judge::new(names.clone());
    // Analyse the file afterwards: doing it during the recording would load the traced machine.
    let trace = Trace::open(&args.record.output)?;
    let summary = trace.read(&TextOptions::default(), None, &names, &mut |batch| {
        analyser.add_all(batch);
        judge.add(batch);
        Ok(())
    })?;
    let report = analyser.report(summary.clock, &names);
    let Diagnosis { findings, seen } = judge.finish(&summary, None, None);
    context.output.about(&*host).object(
        || Output { recording: &recording, trace: &summary, report: &report, findings: &findings },
        || {
            let verdict = match findings.as_slice() {
                [] => format!("{}\n", seen.silence()),
                findings => diagnose::render(findings, args.most),
            };
            format!("{}\n{verdict}", tables::render(&summary, &report, args.tasks))
        },
    )?;
    // Call both, without short-circuiting, so that both messages are printed.
    let (is_whole, is_read) = (print_losses(&summary), seen.print_unread());
    Ok(match code {
        Some(code) if code != 0 => Exit::Command(code),
        _ => diagnose::exit(&findings, is_whole && is_read),
    })
}
