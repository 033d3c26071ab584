//! `flyball verify`: checks whether settings are in effect, and if not, which programs may have
//! changed them.

use std::fmt::Write as _;

use flyball_control::{
    Snapshot,
    owners::{owners, sees_processes},
    verify::{HeldBy, Verdict, verify},
};
use flyball_host::Host;

use crate::{
    change,
    commands::hold,
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Compares the machine with a profile or settings. If something differs, running programs that write that knob are named \
(tuned, power-profiles-daemon, TLP, auto-cpufreq, thermald and others).

Examples:
  flyball verify quiet.toml && echo ok
  flyball verify governor=performance -c 0-3

Exit codes: 0 in effect, 5 drifted, 2 a value is not accepted, 4 the machine does not have this knob.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) wanted: change::SettingArgs,
}

/// Compares the machine with the settings, and prints the differences.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let intent = args.wanted.intent()?;
    let host = context.open()?;
    let snapshot = Snapshot::for_intent(&*host, &intent)?;
    let mut verdict = verify(&snapshot, &intent)?;
    if !verdict.holds() {
        // Only after a drift, because finding owners reads every process.
        verdict.set_owners(owners(&*host));
        verdict.set_holds(hold::held(context, &*host));
    }
    context.output.about(&*host).object(|| &verdict, || render(&verdict, &*host))?;
    Ok(if verdict.holds() { Exit::Done } else { Exit::Drifted })
}

/// Returns the settings that are not in effect. Prints on stderr who may have changed them, and
/// what a profile omits here or on some CPUs.
fn render(verdict: &Verdict, host: &dyn Host) -> String {
    for note in verdict.notes.iter().filter(|note| note.is_choice() || note.leaves_cpus_out()) {
        eprintln!("note: {note}");
    }
    if verdict.holds() {
        return "in effect\n".to_owned();
    }
    let lines = verdict.drifted.iter().map(|change| {
        let instance =
            if change.instance.is_empty() { String::new() } else { format!(":{}", change.instance) };
        // Like the output of `set`, in the knob's terms if possible.
        let old = change.was.as_deref().or(change.old.as_deref()).unwrap_or("absent");
        (&change.cpus, format!("{}{} is {old}, should be {}", change.knob, instance, change.value))
    });
    let mut out = String::new();
    for (words, cpus) in change::by_value(lines) {
        let on = if cpus.is_empty() { String::new() } else { format!(" (CPUs {})", cpus.short()) };
        let _ = writeln!(out, "drifted: {words}{on}");
    }
    for held in &verdict.held_by {
        let HeldBy { hold, knob, instance, value, cpus } = held;
        let colon = if instance.is_empty() { "" } else { ":" };
        let on = if cpus.is_empty() { String::new() } else { format!(" of {}", change::cpus_label(cpus)) };
        eprintln!("the hold {hold} sets {knob}{colon}{instance}{on} to {value}");
    }
    for owner in &verdict.owners {
        let process = owner.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        eprintln!("{}{process} runs here and writes that: {}", owner.name, owner.remedy);
    }
    if verdict.owners.is_empty() && verdict.held_by.is_empty() {
        let nobody = if sees_processes(host) {
            "no program known to write these settings is running"
        } else {
            "the machine's processes cannot be seen, so a program may have changed them"
        };
        eprintln!("{nobody}; a driver switch, suspend or hotplug resets some");
    }
    out
}
