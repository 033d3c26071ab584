//! What the commands that change a machine share: arguments, exit codes of failures, rendering.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, sync::atomic::Ordering};

use flyball_control::{
    Content, Id, Location, Scope, Setting, fold,
    intent::Intent,
    owners::neighbours,
    plan::{Change, Plan, PlanError},
    write::{
        journal::Purpose,
        restore::Restoration,
        state::{LockError, StateDir},
        transaction::{Applied, AppliedChange, ApplyError, Outcome, Transaction, TransactionError},
    },
};
use flyball_hold::Store;
use flyball_host::{CpuList, Host, Kind};
use flyball_process::confine::Confinement;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    failures,
    machine::MachineArg,
    output::Reporter,
    paint::one_line,
    profiles::{self, Source},
};

pub(crate) use crate::process::{command_line, interrupts};

/// A location whose value differs from that before flyball's first change.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Difference {
    pub location: Location,
    /// The value before the first change.
    pub was: String,
    pub now: String,
}

impl Difference {
    pub(crate) fn new(location: &Location, was: &Content, now: &Content) -> Difference {
        Difference { location: location.clone(), was: was.to_string(), now: now.to_string() }
    }

    /// Returns the location, and what undoing does there.
    pub(crate) fn line(&self) -> (&Location, String) {
        (&self.location, format!("  {} -> {}", self.now, self.was))
    }
}

/// Settings and profiles, mixed, as `plan`, `apply` and `verify` take them.
#[derive(Debug, clap::Args)]
pub(crate) struct SettingArgs {
    /// A profile (a name of `flyball profiles`, a TOML file, - for stdin), or a setting KNOB=VALUE
    /// or KNOB@CPUS=VALUE; later ones win.
    #[arg(required = true, value_name = "PROFILE|KNOB=VALUE")]
    pub wanted: Vec<String>,

    /// CPUs of settings that do not name their own: 0-3,7, package:0, type:P and so on [default:
    /// all].
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: Option<String>,
}

impl SettingArgs {
    pub(crate) fn files(&self, files: &mut Confinement) {
        for argument in &self.wanted {
            match profiles::find(argument) {
                Some(Source::File(path)) => files.read(path),
                // Built in, so no file is opened.
                Some(Source::BuiltIn(_)) => {}
                None => files.read(argument),
            }
        }
    }

    pub(crate) fn intent(&self) -> Result<Intent, Failure> {
        let mut intent = Intent::default();
        let mut has_profiles_only = true;
        for argument in &self.wanted {
            // A file name may contain '='. If such a file exists, it is a profile.
            if argument.contains('=') && !Path::new(argument).exists() {
                let one = Intent::from_arguments(&[argument], self.cpus.as_deref());
                // Keep the order of the command line: if two settings are for the same location,
                // the later one wins.
                intent.settings.extend(one.map_err(Failure::usage)?.settings);
                has_profiles_only = false;
            } else {
                intent.settings.extend(profiles::read(argument)?.profile.intent.settings);
            }
        }
        if intent.is_empty() {
            return Err(Failure::usage("the profile contains no settings"));
        }
        if has_profiles_only && self.cpus.is_some() {
            // Without this error, the profile would act on CPUs that the user did not mean.
            return Err(Failure::usage(
                "-c is for settings KNOB=VALUE; a profile names its CPUs itself, in a section [cpus.\"0-3\"]",
            ));
        }
        Ok(intent)
    }
}

/// Rejects a recorded machine before anything is planned.
pub(crate) fn must_be_writable(host: &dyn Host) -> Result<(), Failure> {
    if host.kind() == Kind::Recorded {
        return Err(Failure::usage(format!(
            "{} is a recording and cannot be changed; 'flyball plan' says what would be written",
            host.name()
        )));
    }
    Ok(())
}

/// Applies an intent until reboot or restore, and prints the result.
pub(crate) fn apply(context: &Context, host: &dyn Host, intent: &Intent) -> Result<Exit, Failure> {
    must_be_writable(host)?;
    let state = context.state_waiting_for_lock()?;
    let interrupted = interrupts()?;
    // Without a guardian, because the settings must outlive this process. After a crash, `flyball
    // restore` undoes them.
    let mut transaction = Transaction::begin(host, &state, Purpose::Set, &command_line(), None)?;
    // Print at the end: before that, a closed pipe would end the process in the middle of a change.
    let notes: Vec<String> = transaction.notes().iter().map(ToString::to_string).collect();
    let applied = match transaction.apply(intent, &|| interrupted.load(Ordering::Relaxed)) {
        Ok(applied) => applied,
        Err(error) => {
            // The transaction has restored what was written, or tries again here.
            let _ = transaction.end();
            return Err(error.into());
        }
    };
    // Commit to the journal before printing: from here on the changes remain, whatever happens to
    // stdout.
    transaction.keep()?;
    for note in notes.into_iter().chain(applied.notes.iter().map(ToString::to_string)) {
        eprintln!("note: {note}");
    }
    note_holds(&state, host, intent);
    note_not_persistent(context);
    // If stdout cannot be written (a full disk), say that the settings are in effect.
    print_applied(&context.output.about(host), &applied).map_err(|failure| {
        failure.reworded(|message| {
            format!("the settings are in effect ('flyball restore' undoes them), but {message}")
        })
    })?;
    Ok(if applied.clamped().next().is_some() { Exit::Clamped } else { Exit::Done })
}

/// Notes that settings on a simulated machine are lost at the end of the command, if they are.
pub(crate) fn note_not_persistent(context: &Context) {
    if let MachineArg::Simulated(setup) = &context.machine
        && setup.state.is_none()
    {
        eprintln!("note: this machine ends with the command; --sim-state FILE keeps it");
    }
}

/// Names running programs that write the same knobs, each with the command that stops it. They may
/// overwrite the settings.
pub(crate) fn note_neighbours<'s>(host: &dyn Host, settings: impl Iterator<Item = &'s Setting>) {
    for owner in neighbours(host, &settings.map(Setting::knob).collect()) {
        let process = owner.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        let writes: Vec<&str> = owner.writes.iter().map(|id| id.knob().name).collect();
        let stop = owner.stop.unwrap_or(owner.remedy);
        eprintln!("note: {}{process} also writes {}; to end it: {stop}", owner.name, writes.join(", "));
    }
}

/// Names the holds that want another value of the same knobs, since the service will set them
/// again.
fn note_holds(state: &StateDir, host: &dyn Host, intent: &Intent) {
    // Ignore errors: the commands that change holds report them.
    let Ok(store) = Store::load(state, host) else { return };
    for hold in &store.holds {
        let same = |setting: &&Setting| intent.setting(setting.knob()).is_some();
        if let Some(setting) = hold.settings.iter().find(same) {
            eprintln!(
                "note: the hold {} keeps {} and may set it again; 'flyball hold release {}' releases it",
                hold.name, setting.name, hold.name
            );
        }
    }
}

fn print_applied(output: &Reporter, applied: &Applied) -> Result<(), Failure> {
    output.object(|| applied, || render_applied(applied))
}

/// Returns a line for each requested setting and each value it got. CPUs with the same value share
/// a line.
pub(crate) fn render_applied(applied: &Applied) -> String {
    if applied.made.is_empty() {
        return "already in effect; nothing to change\n".to_owned();
    }
    let mut lines: Vec<(Id, String, String, CpuList)> = Vec::new();
    let mut add = |change: &Change, tail: String| {
        // Compare the printed text, so that lines that look the same are merged.
        let same = |(knob, instance, text, _): &&mut (Id, String, String, CpuList)| {
            *knob == change.knob && *instance == change.instance && *text == tail
        };
        match lines.iter_mut().find(same) {
            Some((.., cpus)) => cpus.extend(change.cpus.iter()),
            None => lines.push((change.knob, change.instance.clone(), tail, change.cpus.clone())),
        }
    };
    for AppliedChange { change, outcome } in &applied.made {
        // `was` is in the knob's terms, like the new value (turbo=on). `old` is the attribute's
        // text (no_turbo 0).
        let was = change.was.as_deref().or(change.old.as_deref()).unwrap_or("unknown");
        add(
            change,
            match outcome {
                Outcome::Applied => format!("{} (was {was})", change.value),
                other => format!("{}: {other} (was {was}); see {}", change.new, change.location),
            },
        );
    }
    for change in &applied.not_needed {
        add(change, format!("{}, through the settings above", change.value));
    }
    let mut out = String::new();
    for (knob, instance, text, cpus) in lines {
        let instance = if instance.is_empty() { instance } else { format!(":{instance}") };
        // I/O dies have no CPUs.
        let on = if knob.knob().scope == Scope::Machine || cpus.is_empty() {
            String::new()
        } else {
            format!(" of {}", cpus_label(&cpus))
        };
        let _ = writeln!(out, "{knob}{instance}{on}: {text}");
    }
    // Planned changes that were not needed already have a line above.
    let changes = applied.made.iter().map(|made| &made.change).chain(&applied.not_needed);
    let has_change = |from: &str| changes.clone().any(|change| change.from == from);
    for setting in applied.intent.settings.iter().filter(|setting| !has_change(&setting.from)) {
        let settings = &applied.intent.settings;
        let later = settings.iter().rev().take_while(|later| later.from != setting.from);
        let replacing = |later: &&Setting| {
            later.name == setting.name && later.on.as_ref().is_none_or(|on| Some(on) == setting.on.as_ref())
        };
        let _ = match later.filter(replacing).last() {
            Some(later) => writeln!(out, "{}: replaced by {}", as_typed(setting), as_typed(later)),
            None => writeln!(out, "{}: already in effect", as_typed(setting)),
        };
    }
    out
}

/// Returns a setting with its knob. Arguments include the knob's name, lines of a profile do not.
fn as_typed(setting: &Setting) -> String {
    let name = setting.name.to_string();
    if setting.from.starts_with(&name) {
        setting.from.clone()
    } else {
        format!("{name}={} ({})", setting.wanted, setting.from)
    }
}

/// `CPU 5`, `CPUs 0-7`.
pub(crate) fn cpus_label(cpus: &CpuList) -> String {
    format!("CPU{} {}", if cpus.len() == 1 { "" } else { "s" }, cpus.short())
}

/// Prints a plan: every write in order on stdout, and notes on stderr. Equal writes to many CPUs
/// share a line unless `each` is set.
pub(crate) fn print_plan(output: &Reporter, plan: &Plan, each: bool) -> Result<(), Failure> {
    output.object(|| plan, || plan_text(plan, each))
}

/// Returns a plan as text. Prints its notes on stderr.
pub(crate) fn plan_text(plan: &Plan, each: bool) -> String {
    for note in &plan.notes {
        eprintln!("note: {note}");
    }
    let heading = if plan.is_empty() { "already in effect; nothing to change\n" } else { "" };
    format!("{heading}{}", render(plan, each))
}

/// Returns a write's line, without its location.
fn tail_of(change: &Change) -> String {
    let old = change.old.as_deref().unwrap_or("(unknown until applied)");
    // The value on a recorded machine may have several lines.
    let old = one_line(old.to_owned());
    let provisional = if change.provisional { " (provisional)" } else { "" };
    let through = change.through.as_ref().map(|through| format!(" -> {through}")).unwrap_or_default();
    format!("  {old}{through} -> {}{provisional}  # {}", change.new, change.because)
}

fn render(plan: &Plan, each: bool) -> String {
    let mut text = String::new();
    // Changes are sorted by step. Never fold lines across steps, since the order of steps matters.
    for step in plan.changes.chunk_by(|a, b| a.step == b.step) {
        let _ = writeln!(text, "{}", step[0].step);
        text += &fold::lines(step.iter().map(|change| (&change.location, tail_of(change))), each);
    }
    if plan.changes.iter().any(|change| change.provisional) {
        text += "(provisional): decided after the steps before it; the write may get another value, or not be needed\n";
    }
    text
}

failures!(PlanError, ApplyError, TransactionError);

impl From<&PlanError> for Exit {
    fn from(error: &PlanError) -> Exit {
        match error {
            // The user must correct an invalid value. But if the machine lacks a knob, scripts may
            // skip.
            PlanError::Refused(_) => Exit::Usage,
            PlanError::NotHere(_) => Exit::NotHere,
            PlanError::Read(error) => error.into(),
        }
    }
}

impl From<&ApplyError> for Exit {
    fn from(error: &ApplyError) -> Exit {
        match error {
            ApplyError::Plan(error) => error.into(),
            // If everything was undone, the machine is as before. Otherwise, scripts must be able
            // to tell.
            _ if error.restoration().is_none_or(Restoration::is_exact) => Exit::Failed,
            _ => Exit::HalfDone,
        }
    }
}

impl From<&TransactionError> for Exit {
    fn from(error: &TransactionError) -> Exit {
        match error {
            // Has its own code, so that a script can wait and retry.
            TransactionError::Lock(LockError::Held { .. }) => Exit::Locked,
            TransactionError::Unrecorded { .. } => Exit::HalfDone,
            _ => Exit::Failed,
        }
    }
}

/// Groups CPUs by value, to avoid repetition in messages.
pub(crate) fn by_value<'a>(
    items: impl IntoIterator<Item = (&'a CpuList, String)>,
) -> BTreeMap<String, CpuList> {
    let mut groups: BTreeMap<String, CpuList> = BTreeMap::new();
    for (cpus, value) in items {
        groups.entry(value).or_default().extend(cpus.iter());
    }
    groups
}
