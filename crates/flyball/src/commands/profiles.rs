//! `flyball profiles`: lists the named profiles, and how much of each is possible on this machine.

use flyball_control::{
    Intent, Setting, Snapshot,
    plan::{Note, PlanError, plan_and_choice},
    verify::verify,
};
use flyball_process::confine::Confinement;
use serde::Serialize;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    paint::{Cell, Columns, Paint, Style},
    profiles::{self, NamedProfile, Source},
};

/// Arguments of `profiles`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Profiles are looked up in /etc/flyball, then in /usr/lib/flyball/profiles; those of flyball are also built in. The first \
column says how many of the profile's settings this machine can have, and whether all of these are in effect.

Examples:
  flyball profiles
  flyball explain storage        its settings, with the reasons
  flyball plan storage           what it would write here, and what it leaves out
  flyball apply storage
  flyball restore && flyball apply balanced    another one instead

Exit codes: 0 listed; 1 the machine cannot be read.")]
pub(crate) struct Args {}

/// Adds the files that the command reads, besides the machine's.
pub(crate) fn files(files: &mut Confinement) {
    for name in profiles::names() {
        if let Some(Source::File(path)) = profiles::find(&name) {
            files.read(path);
        }
    }
}

/// A profile on a machine.
#[derive(Debug, schemars::JsonSchema, Serialize)]
pub(crate) struct Object {
    name: String,
    description: Option<String>,
    /// The file, unless it is built in.
    file: Option<String>,
    settings: usize,
    /// How many of its settings are possible on this machine.
    possible: usize,
    in_effect: bool,
    /// What was omitted or replaced, and why. If nothing is possible, the reason.
    notes: Vec<String>,
}

pub(crate) fn run(context: &Context, _: &Args) -> Result<Exit, Failure> {
    let mut all: Vec<NamedProfile> = Vec::new();
    for name in profiles::names() {
        match profiles::read(&name) {
            Ok(profile) => all.push(profile),
            // An invalid file in /etc/flyball must not hide the others.
            Err(failure) => eprintln!("flyball: {failure}"),
        }
    }
    let host = context.open()?;
    // Take a single snapshot for all profiles.
    let settings: Vec<Setting> =
        all.iter().flat_map(|one| one.profile.intent.settings.iter().cloned()).collect();
    let snapshot = Snapshot::for_intent(&*host, &Intent { settings })?;
    let objects: Vec<Object> = all.iter().map(|one| object(&snapshot, one)).collect::<Result<_, _>>()?;
    let paint = Paint::stdout();
    context.output.about(&*host).list(|| objects.iter().collect(), || render(&objects, paint))?;
    Ok(Exit::Done)
}

fn object(snapshot: &Snapshot, one: &NamedProfile) -> Result<Object, Failure> {
    let intent = &one.profile.intent;
    let (possible, in_effect, notes) = match plan_and_choice(snapshot, intent) {
        Ok((plan, chosen)) => {
            // A plan may have writes although the profile holds. verify() skips such writes: those
            // that every plan has (`epp=default`), and knobs that an earlier write may change.
            let holds = plan.is_empty() || verify(snapshot, &chosen).is_ok_and(|verdict| verdict.holds());
            let notes = plan.notes.iter().filter(|note| note.is_choice()).map(Note::to_string).collect();
            (chosen.settings.len(), holds, notes)
        }
        Err(PlanError::Read(error)) => return Err(error.into()),
        // List a profile that is not possible here, too.
        Err(error) => (0, false, error.to_string().lines().map(str::to_owned).collect()),
    };
    Ok(Object {
        name: one.name.clone(),
        description: one.profile.description.clone(),
        file: one.file.as_ref().map(|file| file.display().to_string()),
        settings: intent.settings.len(),
        possible,
        in_effect,
        notes,
    })
}

/// A line per profile.
fn render(objects: &[Object], paint: Paint) -> String {
    let mut columns = Columns::new();
    columns.heading(["profile", "settings here", "for"]);
    for one in objects {
        let share = format!("{} of {}", one.possible, one.settings);
        let here = match one {
            Object { in_effect: true, .. } => Cell::styled(Style::Good, format!("{share}, in effect")),
            Object { possible: 0, .. } => Cell::styled(Style::Faint, share),
            _ => share.into(),
        };
        let mut about = one.description.clone().unwrap_or_default();
        if let Some(file) = &one.file {
            about = format!("{about} ({file})");
        }
        columns.row(vec![Cell::styled(Style::Heading, &one.name), here, about.into()]);
    }
    columns.render(paint)
}
