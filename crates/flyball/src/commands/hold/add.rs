//! `flyball hold add`: adds a hold.

use std::{path::PathBuf, time::Duration};

use flyball_control::{
    Snapshot,
    plan::{Note, Remark, plan},
    write::{restore::Restoration, transaction::Applied},
};
use flyball_hold::{
    Active, Changed, Condition, Effective, End, Hold, HoldName, OnDrift, OnExit, Owner, ProcessId, Store,
};
use flyball_host::Host;
use flyball_process::User;
use flyball_text::span;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    applied_text, change_holds, exit_of, facts, moment, note_without_service, reporter, restored_text,
};
use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    profiles,
    time::seconds_since_1970,
};

/// Arguments of `add`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The hold's name: letters, digits and -_.:@.
    #[arg(value_name = "NAME")]
    name: HoldName,

    /// A profile (a name of `flyball profiles`, a TOML file, - for stdin), or a setting KNOB=VALUE
    /// or KNOB@CPUS=VALUE; later ones win [default: the profile with the hold's name].
    #[arg(value_name = "PROFILE|KNOB=VALUE")]
    wanted: Vec<String>,

    /// CPUs of settings that do not name their own: 0-3,7, package:0, type:P and so on [default:
    /// all].
    #[arg(short, long, value_name = "CPUS")]
    cpus: Option<String>,

    /// On conflict, the hold with the higher number wins. Holds of hold.toml have 10 to 73.
    #[arg(long, value_name = "N", default_value_t = Hold::PRIORITY, value_parser = clap::value_parser!(u32).range(..=i64::from(Hold::HIGHEST)))]
    priority: u32,

    /// Release it after this time: 90s, 5min, 2h.
    #[arg(long = "for", value_name = "TIME", value_parser = lasting)]
    time: Option<Duration>,

    /// Release it when this process ends.
    #[arg(long, value_name = "PID")]
    while_pid: Option<u32>,

    /// Activate it only while a condition is true: power=ac|battery, time=22:00-06:00,
    /// program=/path, unit=NAME.service, cgroup=PATH, user=NAME, pressure='cpu some 15% over 10s',
    /// temperature=90C, limit=thermal|power; for=30s. May be repeated.
    #[arg(long = "when", value_name = "KEY=VALUE")]
    when: Vec<String>,

    /// What to do if something else changes a setting: correct it, report it, or yield (keep the
    /// new value, even after release).
    #[arg(long, value_name = "POLICY", default_value = "correct")]
    on_drift: DriftPolicy,

    /// When the service stops: keep or release.
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    on_exit: ExitPolicy,

    /// Add it at every boot too, when the service starts. It must be a single named profile, with
    /// no option except --priority. For conditions, use /etc/flyball/hold.toml.
    #[arg(long, conflicts_with_all = ["time", "while_pid", "when", "on_drift", "on_exit", "cpus"])]
    at_boot: bool,

    /// Print every write with its reason; write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DriftPolicy {
    Correct,
    Report,
    Yield,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ExitPolicy {
    Keep,
    Release,
}

fn lasting(text: &str) -> Result<Duration, String> {
    let time = span::parse(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("the time must be above 0".to_owned()) } else { Ok(time) }
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    // Before opening the machine: a user's mistake is one on any machine.
    let wanted = wanted(args)?;
    let settings = wanted.intent()?.settings;
    let mut condition = Condition::default();
    for part in &args.when {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            Failure::usage(format!("'{part}' is not a condition; write KEY=VALUE, for example power=battery"))
        })?;
        condition.add(key, value).map_err(Failure::usage)?;
    }
    let process = args.while_pid.map(|pid| {
        ProcessId::from_pid(pid).ok_or_else(|| Failure::usage(format!("there is no process {pid}")))
    });
    let process = process.transpose()?;
    let at_boot = args.at_boot.then(|| at_boot(context, args, &wanted.wanted)).transpose()?;
    let host = context.open()?;
    let end = End { at: args.time.map(|time| moment(&*host).now + time), process };
    let hold = Hold {
        name: args.name.clone(),
        owner: owner(),
        priority: args.priority,
        profile: wanted.wanted.iter().find(|word| profiles::find(word).is_some()).cloned(),
        settings,
        condition: (condition != Condition::default()).then_some(condition),
        end,
        on_drift: match args.on_drift {
            DriftPolicy::Correct => OnDrift::Correct,
            DriftPolicy::Report => OnDrift::Report,
            DriftPolicy::Yield => OnDrift::Yield,
        },
        on_exit: match args.on_exit {
            ExitPolicy::Keep => OnExit::Keep,
            ExitPolicy::Release => OnExit::Release,
        },
        since: seconds_since_1970(),
    };
    if args.dry_run {
        return dry_run(context, &*host, hold);
    }
    // Plan now, because an unmet condition must not hide a setting that the machine rejects.
    let snapshot = Snapshot::for_intent(&*host, &hold.intent())?;
    plan(&snapshot, &hold.intent())?;
    let Changed { brought, store, facts } = change_holds(context, &*host, |store| store.add(hold.clone()))?;
    if let Some((root, active)) = at_boot {
        super::change_active(&root, |all| {
            all.retain(|one| one.name != active.name);
            all.push(active);
        })?;
    }
    let unmet = hold.condition.as_ref().and_then(|condition| condition.unmet(&facts));
    for note in brought.applied.iter().flat_map(|applied| &applied.notes) {
        if let Some(note) = own(note, &hold) {
            eprintln!("note: {note}");
        }
    }
    change::note_neighbours(&*host, hold.settings.iter());
    note_without_service(&store, &*host);
    change::note_not_persistent(context);
    let data = || AddedHold {
        hold: &hold,
        in_force: unmet.is_none(),
        because: unmet.as_deref(),
        applied: brought.applied.as_ref(),
        restoration: &brought.restored,
    };
    reporter(context, &*host).object(data, || {
        let waits = unmet.as_ref().map(|why| format!("; not active now: {why}")).unwrap_or_default();
        let changed = restored_text(&brought) + &applied_text(&brought);
        let nothing = if changed.is_empty() && unmet.is_none() { "; nothing to change" } else { "" };
        format!("held: {}{waits}{nothing}\n{changed}", hold.name)
    })?;
    Ok(exit_of(&brought))
}

/// Returns a note without its remarks on other holds, which the commands that added these have
/// printed.
fn own(note: &Note, hold: &Hold) -> Option<Note> {
    let words = format!("hold {}: ", hold.name);
    let is_own = |text: &str| text.contains(&words);
    let mut note = note.clone();
    if let Remark::OfOtherVendor { settings, .. } = &mut note.remark {
        settings.retain(|(from, _)| is_own(from));
        return (!settings.is_empty()).then_some(note);
    }
    (!note.is_choice() || is_own(&note.to_string())).then_some(note)
}

/// The output of `hold add`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct AddedHold<'a> {
    hold: &'a Hold,
    /// Whether its condition is met now.
    in_force: bool,
    /// Why it is not in force.
    because: Option<&'a str>,
    /// `null` if nothing had to be written.
    applied: Option<&'a Applied>,
    restoration: &'a Restoration,
}

/// Returns what to hold: `hold add latency` holds the profile latency under that name.
fn wanted(args: &Args) -> Result<change::SettingArgs, Failure> {
    let mut wanted = args.wanted.clone();
    if wanted.is_empty() {
        let name = args.name.to_string();
        if profiles::find(&name).is_none() {
            return Err(Failure::usage(format!(
                "'{name}' is not a profile; give what to hold: flyball hold add {name} PROFILE|KNOB=VALUE..."
            )));
        }
        wanted.push(name);
    }
    Ok(change::SettingArgs { wanted, cpus: args.cpus.clone() })
}

/// Returns what to add at every boot, and the root directory to write it below.
fn at_boot(context: &Context, args: &Args, wanted: &[String]) -> Result<(PathBuf, Active), Failure> {
    let root = super::root(context)
        .ok_or_else(|| Failure::usage("--at-boot needs a machine that boots: this one or a tree of files"))?;
    match wanted {
        [profile] if profiles::find(profile).is_some() => {
            let (name, priority, profile) = (args.name.clone(), args.priority, profile.clone());
            Ok((root, Active { name, priority, profile }))
        }
        _ => Err(Failure::usage(
            "--at-boot takes one profile with a name; 'flyball save' and a file in /etc/flyball make one of settings",
        )),
    }
}

/// Prints what the hold writes when its condition is met.
fn dry_run(context: &Context, host: &dyn Host, hold: Hold) -> Result<Exit, Failure> {
    let mut store = Store::load(&context.state()?, host)?;
    store.expire(moment(host).now);
    let name = hold.name.clone();
    store.add(hold)?;
    let facts = facts(host, &store);
    if let Some(hold) = store.holds.iter_mut().find(|hold| hold.name == name)
        && let Some(why) = hold.condition.as_ref().and_then(|condition| condition.unmet(&facts))
    {
        eprintln!("note: not active now: {why}; when active, it writes:");
        hold.condition = None;
    }
    let effective = Effective::new(&store.holds, &facts);
    let snapshot = Snapshot::for_intent(host, &effective.intent)?;
    let wanted = effective.without(&store.left, &snapshot);
    change::print_plan(&reporter(context, host), &plan(&snapshot, &wanted)?, false)?;
    Ok(Exit::Done)
}

/// Returns who adds the hold: the user who called sudo, or that of this process.
pub(super) fn owner() -> Owner {
    let caller = User::from_sudo().ok().flatten().map(|user| user.uid);
    Owner::User(caller.unwrap_or_else(flyball_process::user))
}
