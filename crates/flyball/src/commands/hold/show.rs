//! `flyball hold list` and `flyball hold status`.

use std::fmt::Write as _;

use flyball_hold::{HeldKnob, Hold, Status, Store, status as status_of};

use super::{facts, moment, reporter};
use crate::{
    context::Context,
    exit::{Exit, Failure},
    paint::{Cell, Columns, Paint, Style, cpus},
    schema,
    time::words,
};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// For each setting, the weaker holds and what they want there.
    #[arg(long)]
    why: bool,
}

/// How many drifts are shown; JSON has all that are kept.
const SHOWN: usize = 5;

pub(super) fn list(context: &Context) -> Result<Exit, Failure> {
    let host = context.open()?;
    let store = Store::load(&context.state()?, &*host)?;
    let status = status_of(&*host, &store, &facts(&*host, &store));
    let now = moment(&*host).now;
    let paint = Paint::stdout();
    reporter(context, &*host).list(
        schema::HOLD_LIST,
        || status.holds.iter().collect(),
        || {
            if status.holds.is_empty() {
                return "no holds\n".to_owned();
            }
            let mut columns = Columns::new();
            columns.heading(["hold", "priority", "owner", "counts", "settings"]);
            for one in &status.holds {
                let counts = match &one.because {
                    None => Cell::styled(Style::Good, "yes"),
                    Some(why) => Cell::styled(Style::Faint, why),
                };
                let hold = &one.hold;
                let name = Cell::styled(Style::Heading, hold.name.as_str());
                let what = format!("{}{}", settings(hold), end(hold, now));
                columns.row(vec![
                    name,
                    hold.priority.to_string().into(),
                    (&hold.owner).into(),
                    counts,
                    what.into(),
                ]);
            }
            columns.render(paint)
        },
    )?;
    Ok(Exit::Done)
}

/// What a hold sets, in one line.
fn settings(hold: &Hold) -> String {
    match &hold.profile {
        Some(profile) => format!("profile {profile}"),
        None => hold.settings.iter().map(|setting| setting.from.as_str()).collect::<Vec<_>>().join(" "),
    }
}

fn end(hold: &Hold, now: std::time::Duration) -> String {
    let time = hold.end.at.map(|at| format!(", for {}", words(at.saturating_sub(now).as_secs_f64())));
    let process = hold.end.process.map(|process| format!(", while {} runs", process.pid));
    format!("{}{}", time.unwrap_or_default(), process.unwrap_or_default())
}

pub(super) fn status(context: &Context, args: &StatusArgs) -> Result<Exit, Failure> {
    let host = context.open()?;
    let store = Store::load(&context.state()?, &*host)?;
    let status = status_of(&*host, &store, &facts(&*host, &store));
    reporter(context, &*host).object(schema::HOLD_STATUS, || &status, || render(&status, args.why))?;
    Ok(if status.is_held() { Exit::Done } else { Exit::Drifted })
}

fn render(status: &Status, why: bool) -> String {
    let mut out = match &status.service {
        Some(service) => format!("service: runs (pid {})\n", service.process.pid),
        None => "service: does not run\n".to_owned(),
    };
    for blind in status.service.iter().flat_map(|service| &service.blind) {
        let _ = writeln!(out, "not noticed: {blind}");
    }
    if let Some(error) = &status.config_error {
        let _ = writeln!(out, "configuration: {error}; none of its holds is in force");
    }
    if let Some(error) = &status.failure {
        let _ = writeln!(out, "not in force: {error}");
    }
    if status.holds.is_empty() {
        out += "no holds\n";
    }
    for one in status.holds.iter().filter(|one| !one.in_force) {
        let because = one.because.as_deref().unwrap_or_default();
        let _ = writeln!(out, "hold {} does not count: {because}", one.hold.name);
    }
    for knob in &status.knobs {
        out += &line(knob, why);
    }
    if !status.drifts.is_empty() {
        out += "last changes:\n";
        for drift in status.drifts.iter().rev().take(SHOWN) {
            let ago = crate::time::seconds_since_1970().saturating_sub(drift.at);
            let _ = writeln!(out, "  {} ago: {drift}", words(ago as f64));
        }
    }
    out
}

fn line(knob: &HeldKnob, why: bool) -> String {
    let HeldKnob { knob: id, instance, cpus: on, wanted, found, holds, hold, over, left } = knob;
    let colon = if instance.is_empty() { "" } else { ":" };
    let found = found.as_deref().unwrap_or("absent");
    let state = match (holds, left) {
        (true, _) => "held".to_owned(),
        (false, Some(left)) => format!("is {found} ({left})"),
        (false, None) => format!("is {found}"),
    };
    let mut out = format!("{id}{colon}{instance}={wanted} on CPUs {}: {state}, by {hold}\n", cpus(on));
    for weaker in over.iter().filter(|_| why) {
        let _ = writeln!(out, "    {} wants {}", weaker.hold, weaker.wanted);
    }
    out
}
