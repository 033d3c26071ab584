//! `flyball hold list` and `flyball hold status`.

use std::fmt::Write as _;

use flyball_control::{Scope, Setting, write::journal::Journal};
use flyball_hold::{HeldKnob, Hold, HoldStatus, Status, Store};
use flyball_text::span::words;

use super::{moment, reporter, status_of};
use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    paint::{Cell, Columns, Paint, Style},
};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Also show each hold's conditions and, for each setting, holds of lower priority and their
    /// values.
    #[arg(long)]
    why: bool,
}

/// Maximum number of drifts that are shown. JSON has all.
const SHOWN: usize = 5;

pub(super) fn list(context: &Context) -> Result<Exit, Failure> {
    let host = context.open()?;
    let store = Store::load(&context.state()?, &*host)?;
    let status = status_of(&*host, &store);
    let now = moment(&*host).now;
    let paint = Paint::stdout();
    reporter(context, &*host).list(
        || status.holds.iter().collect(),
        || {
            if status.holds.is_empty() {
                return "no holds\n".to_owned();
            }
            let mut columns = Columns::new();
            columns.heading(["hold", "priority", "owner", "in force", "settings"]);
            for one in &status.holds {
                let in_force = match &one.because {
                    None => Cell::styled(Style::Good, "yes"),
                    Some(why) => Cell::styled(Style::Faint, format!("no: {why}")),
                };
                let hold = &one.hold;
                let name = Cell::styled(Style::Heading, hold.name.as_str());
                let what = format!("{}{}", settings(hold), end(hold, now));
                columns.row(vec![
                    name,
                    hold.priority.to_string().into(),
                    hold.owner.to_string().into(),
                    in_force,
                    what.into(),
                ]);
            }
            columns.render(paint)
        },
    )?;
    Ok(Exit::Done)
}

/// Formats what a hold sets, on one line.
fn settings(hold: &Hold) -> String {
    match &hold.profile {
        Some(profile) => format!("profile {profile}"),
        None => hold.settings.iter().map(as_argument).collect::<Vec<_>>().join(" "),
    }
}

/// Formats a setting with its CPUs, as a command takes it.
fn as_argument(setting: &Setting) -> String {
    let on = setting.on.as_ref().map(|on| format!("@{on}")).unwrap_or_default();
    format!("{}{on}={}", setting.name, setting.wanted)
}

fn end(hold: &Hold, now: std::time::Duration) -> String {
    // The previous column says why it has ended.
    if hold.end.has_come(now) {
        return String::new();
    }
    let time = hold.end.at.map(|at| format!(", ends in {}", words(at.saturating_sub(now).as_secs_f64())));
    let process = hold.end.process.map(|process| format!(", ends with process {}", process.pid));
    format!("{}{}", time.unwrap_or_default(), process.unwrap_or_default())
}

pub(super) fn status(context: &Context, args: &StatusArgs) -> Result<Exit, Failure> {
    let host = context.open()?;
    let store = Store::load(&context.state()?, &*host)?;
    let mut status = status_of(&*host, &store);
    // Ignore an unreadable journal: commands that change something report it.
    if let Ok(Some(journal)) = Journal::load(&context.state()?) {
        status.name_commands(&*host, &journal);
    }
    reporter(context, &*host)
        .object(|| &status, || render(&status, (args.why, false)) + &changes(&status))?;
    Ok(if status.is_held() { Exit::Done } else { Exit::Drifted })
}

/// Formats the status. A rehearsal has no service process.
pub(super) fn render(status: &Status, (why, is_rehearsal): (bool, bool)) -> String {
    let mut out = String::new();
    if let Some(error) = &status.config_error {
        let _ = writeln!(out, "configuration: {error}");
        out += "    ignored until it is corrected; holds of the last good configuration stay\n";
    }
    if let Some(error) = &status.failure {
        let _ = writeln!(out, "not in force: {error}");
    }
    let (held, differing): (Vec<_>, Vec<_>) = status.knobs.iter().partition(|knob| knob.holds);
    let _ = match (status.holds.len(), held.len(), differing.len()) {
        (0, ..) => writeln!(out, "no holds"),
        (_, 0, 0) => writeln!(out, "no hold is in force"),
        (.., 0) if status.failure.is_some() => writeln!(out, "held: all other settings"),
        (.., 0) => writeln!(out, "held: all settings"),
        (_, held, differing) => {
            writeln!(out, "not held: {differing} of {} settings", held + differing)
        }
    };
    let _ = match &status.service {
        Some(_) if is_rehearsal => Ok(()),
        Some(service) => writeln!(out, "service: runs (pid {})", service.process.pid),
        None => writeln!(out, "service: does not run"),
    };
    for blind in status.service.iter().flat_map(|service| &service.blind) {
        let _ = writeln!(out, "not noticed: {blind}");
    }
    for one in &status.holds {
        out += &hold_reason(one, why);
    }
    for knob in differing.into_iter().chain(held) {
        out += &line(knob, status, why);
    }
    out
}

/// Lists what changed held settings, and how long ago.
fn changes(status: &Status) -> String {
    let mut out = String::new();
    for (at, drift) in status.drifts.iter().rev().take(SHOWN).enumerate() {
        if at == 0 {
            out += "last changes:\n";
        }
        let ago = crate::time::seconds_since_1970().saturating_sub(drift.at);
        let _ = writeln!(out, "  {} ago: {drift}", words(ago as f64));
    }
    out
}

/// Returns why a hold is not active. With `why`, also why it is active, and which parts of its
/// condition are not reported.
fn hold_reason(one: &HoldStatus, why: bool) -> String {
    let name = &one.hold.name;
    let mut out = match (&one.because, &one.hold.condition) {
        (Some(because), _) => format!("hold {name} is not in force: {because}\n"),
        (None, Some(condition)) if why => format!("hold {name} is in force: {condition}\n"),
        (None, _) => String::new(),
    };
    for not_reported in one.not_reported.iter().filter(|_| why) {
        let _ = writeln!(out, "    {not_reported}");
    }
    out
}

/// `max-freq of CPUs 0-3`.
fn place(knob: &HeldKnob) -> String {
    let HeldKnob { knob: id, instance, cpus: on, .. } = knob;
    let colon = if instance.is_empty() { "" } else { ":" };
    if id.knob().scope == Scope::Machine {
        format!("{id}{colon}{instance}")
    } else {
        format!("{id}{colon}{instance} of {}", change::cpus_label(on))
    }
}

fn line(knob: &HeldKnob, status: &Status, why: bool) -> String {
    let HeldKnob { wanted, found, holds, offline, hold, over, left, cause, set_by, .. } = knob;
    let found = found.as_deref().unwrap_or("absent");
    let because = match (left, cause) {
        (Some(left), Some(cause)) => format!("{left}; {cause}"),
        (Some(left), None) => left.to_string(),
        (None, _) if status.failure.is_some() => "see above".to_owned(),
        (None, _) if status.service.is_none() => match set_by {
            Some(command) => format!("set by '{command}'; no service watches it"),
            None => "no service watches it".to_owned(),
        },
        (None, _) => "not corrected yet".to_owned(),
    };
    // Show the state first: the hold cannot set an offline CPU.
    let state = if *offline {
        format!(
            "offline; {hold} sets {wanted} when {} online",
            if knob.cpus.len() == 1 { "it is" } else { "they are" }
        )
    } else if *holds {
        format!("{wanted}, held by {hold}")
    } else {
        format!("{found}, but {hold} sets {wanted} ({because})")
    };
    let mut out = format!("{}: {state}\n", place(knob));
    for weaker in over.iter().filter(|_| why) {
        let _ = writeln!(out, "    instead of {} by {}", weaker.wanted, weaker.hold);
    }
    out
}

/// Returns a line for a location that a release leaves as another program set it.
pub(super) fn stays(knob: &HeldKnob) -> String {
    let found = knob.found.as_deref().unwrap_or("absent");
    format!("{} stays at {found}: it was set while {} was in force\n", place(knob), knob.hold)
}
