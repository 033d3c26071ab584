//! `flyball guest fuzz`: tests a kernel's drivers with random sequences, guided by how the drivers
//! reacted to earlier ones. The fuzzer is in `flyball-drivertest`; this module has the command
//! line, and the files of the corpus and the findings.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flyball_drivertest::{
    boots::{Boots, Guests},
    fuzz::{Finding, FuzzError, Fuzzer, Outcome, Progress},
    mode::Mode,
};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    failure::{CANNOT_TELL, Exit, Failure},
    output::{self, schema},
    test,
};

/// Arguments of `guest fuzz`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Boots the kernel (--kernel) again and again and gives its driver sequences of settings. Those that make the driver do something new \
are kept and changed further. After each step the rules of `guest test --only contract` must hold. What fails is shortened, run again \
by itself, and written as a shell script that needs nothing of flyball.

Examples:
  flyball guest fuzz ryzen-5750g --driver amd-pstate=active --kernel ~/linux --for 1h
  flyball guest fuzz sst-guide --driver intel_pstate=active --kernel ~/linux --baseline 6.12
  flyball guest fuzz tpmi-small --driver speed-select --kernel 7.2 --directory ~/fuzz

Exit codes:
  0    nothing was found, or only what the baseline shows too
  1    something was found
  2    the command line cannot be used
  125  cannot tell: the kernel does not boot or lacks the driver, or the host is too busy")]
pub(crate) struct Args {
    /// The machine, from `flyball guest list`, or a machine's TOML file.
    #[arg(value_name = "MACHINE", default_value = "ryzen-5750g")]
    machine: String,

    /// The mode: amd-pstate=active, intel_pstate=passive [default: the machine's first].
    #[arg(long, value_name = "DRIVER")]
    driver: Option<String>,

    /// How long.
    #[arg(long = "for", value_name = "TIME", default_value = "10min", value_parser = flyball_text::span::parse)]
    time: Duration,

    /// Rounds at most; a round is some 900 steps.
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,

    /// Kernel to compare with: what it shows too is known.
    #[arg(long, value_name = "OLD")]
    baseline: Option<String>,

    /// Where the corpus and the findings are kept, below MACHINE.DRIVER. A later run goes on with
    /// the corpus.
    #[arg(long, value_name = "DIR", default_value = "flyball-fuzz")]
    directory: PathBuf,

    /// Guests to run at the same time.
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    jobs: usize,

    /// Seed of the sequences and of the guests.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// The kernel's modules (lib/modules/RELEASE), if they are not in its package or tree.
    #[arg(long, value_name = "DIR")]
    modules_dir: Option<PathBuf>,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Printed<'a> {
    kernel: &'a str,
    release: &'a str,
    baseline: Option<&'a str>,
    seed: u64,
    /// Directory of the findings.
    directory: &'a Path,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

pub(crate) fn run(kernel: Option<&str>, json: bool, args: &Args) -> Result<Exit, Failure> {
    let mode = &mode(args)?;
    let kernels =
        test::Kernels::find(kernel, args.baseline.as_deref(), args.modules_dir.as_deref(), args.jobs)?;
    let release = kernels.tested.release();
    if !mode.exists_in(release) {
        return Err(Failure::failed(format!("{release} does not have {}", mode.name)).exiting(CANNOT_TELL));
    }
    let directory = args.directory.join(format!("{}.{}", short_name(&args.machine), mode.name));
    let findings = directory.join("findings");
    flyball_files::make_dirs(&findings)
        .map_err(|e| Failure::usage(format!("cannot create {}: {e}", findings.display())))?;
    let interrupted = interrupts()?;
    let started = Instant::now();
    let should_continue = |rounds: u32| {
        let more = args.rounds.is_none_or(|most| rounds < most) && started.elapsed() < args.time;
        more && !interrupted.load(Ordering::Relaxed)
    };
    let fuzzer = Fuzzer {
        kernel: &kernels.tested,
        baseline: kernels.baseline.as_ref().map(|guests: &Guests| guests as &dyn Boots),
        mode,
        seed: args.seed,
        corpus: Some(&directory.join("corpus")),
        should_continue: &should_continue,
        on_progress: &mut |progress, found| {
            report(progress);
            found.iter().try_for_each(|finding| {
                let file = findings.join(format!("{}.sh", finding.file_name()));
                flyball_files::replace(&file, finding.script(mode, release).as_bytes())
            })
        },
    };
    eprintln!(
        "flyball: fuzzing {} of {release} on {}; Ctrl-C ends it after the round",
        mode.name, args.machine
    );
    let outcome = fuzzer.run().map_err(|error| match error {
        FuzzError::CannotTell(why) => Failure::failed(why).exiting(CANNOT_TELL),
        error => Failure::failed(format!("{}: {error}", directory.display())),
    })?;
    let printed = Printed {
        kernel: kernels.wanted,
        release,
        baseline: args.baseline.as_deref(),
        seed: args.seed,
        directory: &directory,
        outcome: &outcome,
    };
    if json {
        output::json(schema::FUZZ, &printed)?;
    } else {
        output::text(&text(&outcome, &findings))?;
    }
    let is_new = |finding: &Finding| !finding.known;
    Ok(if outcome.findings.iter().any(is_new) { Exit::Failed } else { Exit::Done })
}

/// Returns a flag that is set by Ctrl-C, SIGTERM and a closed terminal, so that the current round
/// ends and is saved.
fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| Failure::failed(format!("cannot catch signal {signal}: {error}")))?;
    }
    Ok(flag)
}

/// The mode that `--driver` selects, or the machine's first.
fn mode(args: &Args) -> Result<Mode, Failure> {
    if args.machine == "all" {
        return Err(Failure::usage("fuzz takes one machine (see flyball guest list)"));
    }
    let mut modes = test::modes(std::slice::from_ref(&args.machine), args.driver.as_slice())?;
    let is_named = |mode: &Mode| args.driver.as_ref().is_none_or(|word| mode.name == *word);
    let named = modes.iter().position(is_named).or((modes.len() == 1).then_some(0));
    match named {
        Some(named) => Ok(modes.swap_remove(named)),
        None => {
            let names: Vec<&str> = modes.iter().map(|mode| &*mode.name).collect();
            Err(Failure::usage(format!("name one mode: {}", names.join(", "))))
        }
    }
}

/// A machine's name, or its file's name without directory and suffix.
fn short_name(machine: &str) -> &str {
    Path::new(machine).file_stem().and_then(|stem| stem.to_str()).unwrap_or(machine)
}

fn report(now: &Progress) {
    eprintln!(
        "flyball: round {}, {:.0} s: {} steps in {} sequences, {} features, {} kept, {} found",
        now.round, now.seconds, now.steps, now.sequences, now.features, now.corpus, now.findings
    );
}

fn text(outcome: &Outcome, findings: &Path) -> String {
    let mut text = String::new();
    for finding in &outcome.findings {
        text.push_str(&format!("{}\n", finding.id));
        let lines = finding.about.iter().chain(&finding.details);
        lines.for_each(|line| text.push_str(&format!("  {line}\n")));
        if finding.known {
            text.push_str("  The baseline shows it too.\n");
        }
        if !finding.repeats {
            text.push_str("  It did not show again by itself with another seed: it may need what came before, or chance.\n");
        }
        text.push_str("  The steps, from the base state:\n");
        finding.steps.iter().for_each(|step| text.push_str(&format!("    {step}\n")));
        text.push_str(&format!("  {}\n\n", findings.join(format!("{}.sh", finding.file_name())).display()));
    }
    let last = outcome.progress.last().cloned().unwrap_or_default();
    let count = match outcome.findings.len() {
        0 => "nothing was found".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    text.push_str(&format!(
        "{count} in {} steps, {} rounds, {:.0} s; the driver did {} different things\n",
        last.steps, last.round, last.seconds, last.features
    ));
    if last.lost > 0 {
        text.push_str(&format!("{} more rounds could not be judged\n", last.lost));
    }
    text
}
