//! `top` for a live or simulated machine: on the screen, as text or data, or only recording.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use flyball_host::{Host, Launch, Process};
use flyball_monitor::{
    IdleReads, Options, Reads, Sampler,
    file::{RecordError, Recorder, Retention},
};
use flyball_top::{Source as _, machine::Machine, source::moment_at};

use super::{Args, Form, print::Printer};
use crate::{
    context::Context,
    exit::{Exit, Failure},
    process::interrupts,
};

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Failure {
        let exit = match error {
            RecordError::Io { .. } => Exit::Unwritten,
            RecordError::Busy(_) => Exit::Locked,
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    }
}

pub(super) fn run(context: &Context, args: &Args, form: Form) -> Result<Exit, Failure> {
    let host = context.open()?;
    let options = options(args, form);
    let sampler = Sampler::open(&*host, options)?;
    let mut machine = Machine::new(&*host, sampler, args.interval, args.speed);
    if let Some(path) = &args.record {
        let kept = Retention { age: args.keep, bytes: args.size };
        machine.learn();
        let recorder = Recorder::open(path, machine.layout(), machine.facts(), kept)?;
        machine.record_to(recorder, path.display().to_string());
    }
    // Before the command starts: a signal must not leave it running alone.
    let ended = interrupts()?;
    let program = match start(&*host, &args.command) {
        Ok(program) => program,
        Err(error) => {
            machine.recorder.take().map_or(Ok(()), Recorder::withdraw)?;
            return Err(error);
        }
    };
    let shown = match form {
        #[cfg(feature = "tui")]
        Form::Screen => screen(&mut machine, args, &ended),
        _ => printed(context, &*host, &mut machine, args, form, &ended),
    };
    if let Some(program) = program {
        let _ = program.stop(Duration::from_secs(2));
    }
    // Whatever ended it, write the pending samples to the file.
    let finished = machine.recorder.take().map_or(Ok(()), Recorder::finish);
    shown?;
    finished?;
    Ok(Exit::Done)
}

fn options(args: &Args, form: Form) -> Options {
    /// With fewer samples, not every CPU would get its turn.
    const FEW: u64 = 10;
    // A recording has all.
    let shows = |names: &[&str]| args.record.is_some() || args.shows(names);
    let defaults = Options {
        touch: args.touch.into(),
        reads: Reads {
            // The reason depends on how many cores are awake.
            idle: match form {
                _ if args.record.is_some() => IdleReads::All,
                Form::Csv | Form::Json if args.shows(&["wakes_per_second", "wakes_from"]) => IdleReads::All,
                _ if shows(&["deepest_idle_percent", "why"]) => IdleReads::Times,
                _ => IdleReads::Suspects,
            },
            requests: shows(&[
                "scaling_min_freq",
                "scaling_max_freq",
                "energy_performance_preference",
                "why",
            ]),
            reasons: shows(&["why"]),
            core_energy: shows(&["core_watts"]),
        },
        ..Options::default()
    };
    match form {
        Form::Screen => Options { is_staged: true, ..defaults },
        _ if args.record.is_none() && args.samples.map_or(form == Form::Text, |count| count <= FEW) => {
            Options { slow: Duration::ZERO, ..defaults }
        }
        _ => defaults,
    }
}

fn start(host: &dyn Host, command: &[String]) -> Result<Option<Box<dyn Process>>, Failure> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let launch = Launch::new(program, arguments).silent();
    // The error of a simulated machine lists the accepted words.
    host.spawn(launch).map(Some).map_err(|error| Failure::usage(format!("cannot run {program}: {error}")))
}

#[cfg(feature = "tui")]
fn screen(machine: &mut Machine, args: &Args, ended: &AtomicBool) -> Result<(), Failure> {
    let coloured = crate::terminal::is_coloured();
    let options = flyball_top::Options { coloured, samples: args.samples, ended };
    let mut state = flyball_top::State::default();
    let result = flyball_top::run(machine, &mut state, &options);
    match (result, machine.failed.take()) {
        (_, Some(error)) => Err(error.into()),
        (Err(error), None) => Err(Failure::failed(format!("the terminal: {error}"))),
        (Ok(_), None) => Ok(()),
    }
}

/// Prints samples, or only records them if there is no screen.
fn printed(
    context: &Context,
    host: &dyn Host,
    machine: &mut Machine,
    args: &Args,
    form: Form,
    ended: &AtomicBool,
) -> Result<(), Failure> {
    let mut printer = Printer::new(context.output.about(host), form, machine.layout(), &args.columns);
    let is_silent = args.record.is_some() && form == Form::Text;
    // Data continues until a signal. Text is one sample, unless the user requests more.
    let count = args.samples.or((form == Form::Text && !is_silent).then_some(1));
    machine.take()?;
    let mut due = Instant::now();
    let mut taken = 0;
    while count.is_none_or(|count| taken < count) {
        // If the machine is slower than the interval, do not sample twice in a row.
        due = (due + machine.pause()).max(Instant::now());
        if !wait(due, ended) {
            break;
        }
        machine.take()?;
        taken += 1;
        let number = machine.timeline().end() - 1;
        if !is_silent && let Some(moment) = moment_at(machine, number).map_err(Failure::failed)? {
            printer.moment(&moment)?;
        }
    }
    Ok(())
}

/// Waits until a time. Returns `false` if a signal arrived.
fn wait(until: Instant, ended: &AtomicBool) -> bool {
    /// Longest sleep, because a sleep continues after a signal handler.
    const LOOK: Duration = Duration::from_millis(100);
    loop {
        if ended.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
}
