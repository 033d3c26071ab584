//! `flyball hold rehearse`: plays events on a simulated machine, to test the configuration.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use flyball_files::read_input;
use flyball_hold::{Active, Config, Rehearsal, Status, TimedNotice, events};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    run::{read_config, settings_of},
    show,
};
use crate::{
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `rehearse`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A line of the file is a time since the start and an event; at the start it is noon:

  10s   power battery
  1min  starts /usr/bin/gamescope      (also: starts unit NAME, cgroup PATH, user NAME; ends ...)
  2min  writes /sys/devices/system/cpu/cpufreq/policy0/scaling_governor powersave as tuned
  3min  offline 3
  4min  online 3
  5min  pressure cpu some 15% over 10s
  6min  temperature 95C
  7min  limit thermal
  8min  changes /sys/devices/system/cpu/cpufreq/policy0/scaling_governor powersave  (unreported)
  9min  resume 8h
  9min  clock 22:30

The configuration and its profiles are those of /etc/flyball, as 'flyball hold run' reads them. Nothing of this machine is changed.

Exit codes: 0 at the end all settings of active holds are in effect, 5 some are not, 2 a file is wrong.")]
pub(super) struct Args {
    /// The events.
    #[arg(long, value_name = "FILE")]
    events: PathBuf,

    /// Configuration: which profile is held when [default: /etc/flyball/hold.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Maximum bytes of an event file, many times what the maximum number of events takes.
const MAX_BYTES: u64 = 16 << 20;

/// What happened at one time.
#[derive(Debug, schemars::JsonSchema, Serialize)]
#[schemars(rename = "RehearsalStep")]
struct Step {
    /// Seconds since the start.
    at_s: f64,
    /// The event. `null` if only time passed.
    event: Option<String>,
    /// What the service did, in words.
    did: Vec<String>,
}

/// The output of a rehearsal.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Rehearsed {
    /// What happened, in order.
    steps: Vec<Step>,
    /// What is held at the end.
    status: Status,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let name = args.events.display().to_string();
    let bytes = read_input(&args.events, MAX_BYTES)
        .map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    let events = events(&bytes, &name).map_err(Failure::usage)?;
    let host = context.open_simulated()?.ok_or_else(|| {
        Failure::usage("a rehearsal changes settings: it is for a simulated machine, as -M sim:ryzen-5750g")
    })?;
    let config = read_config(args.config.as_deref(), true, |_| Ok(()))?;
    // With its own configuration, a rehearsal ignores this machine's holds for every boot.
    let active = if args.config.is_some() { Ok(Vec::new()) } else { Active::load("/".as_ref()) };
    let config = config.and_then(|config| Ok(Config { active: active?, ..config }));
    let mut rehearsal = Rehearsal::start(&host, context.state()?, config, &settings_of)?;
    let mut steps = Vec::new();
    let first = rehearsal.done();
    add(&mut steps, Duration::ZERO, Some("start"), first);
    for event in &events {
        for done in rehearsal.until(event.at) {
            add(&mut steps, done.at, None, vec![done]);
        }
        let done = rehearsal.play(event).map_err(|error| Failure::failed(format!("{name}, {error}")))?;
        add(&mut steps, event.at, Some(&event.text), done);
    }
    // Conditions with a duration may still change after the last event.
    let end = events.last().map_or(Duration::ZERO, |event| event.at) + Duration::from_secs(60);
    for done in rehearsal.until(end) {
        add(&mut steps, done.at, None, vec![done]);
    }
    let (facts, now) = rehearsal.facts();
    let status = flyball_hold::status(&host, rehearsal.service().store(), &facts, now);
    let rehearsed = Rehearsed { steps, status };
    context.output.about(&host).object(|| &rehearsed, || render(&rehearsed.steps, &rehearsed.status))?;
    Ok(if rehearsed.status.is_held() { Exit::Done } else { Exit::Drifted })
}

fn add(steps: &mut Vec<Step>, at: Duration, event: Option<&str>, done: Vec<TimedNotice>) {
    let did = done.into_iter().map(|done| done.notice.to_string()).collect();
    steps.push(Step { at_s: at.as_secs_f64(), event: event.map(str::to_owned), did });
}

fn render(steps: &[Step], status: &Status) -> String {
    let mut out = String::new();
    for step in steps {
        let seconds = step.at_s as u64;
        let clock = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        let _ = writeln!(out, "{clock:>8}  {}", step.event.as_deref().unwrap_or("(time)"));
        for did in &step.did {
            let _ = writeln!(out, "          {did}");
        }
    }
    format!("{out}\nAt the end:\n{}", show::render(status, (true, true)))
}
