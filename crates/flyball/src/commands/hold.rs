//! `flyball hold`: settings that are kept. `add` and `release` change holds, `list` and `status`
//! show them, and `run` is the service.

pub(crate) mod add;
#[cfg(feature = "bus")]
mod bus;
#[cfg(not(feature = "bus"))]
#[path = "hold/bus_unavailable.rs"]
mod bus;
pub(crate) mod check;
pub(crate) mod rehearse;
mod run;
mod show;

use std::path::{Path, PathBuf};

use flyball_control::{
    Scope, fold,
    plan::{Change, Plan},
    verify::HeldBy,
    write::{
        restore::Restoration,
        state::StateDir,
        transaction::{Applied, TransactionError},
    },
};
use flyball_hold::{
    ACTIVE, Active, ApplyOutcome, BringError, ChangeError, Changed, Effective, End, Facts, HeldKnob, Hold,
    HoldName, Moment, Owner, Preview, ProcessId, Status, Store, StoreError,
};
use flyball_host::{CpuList, Host, Live, watch::since_boot};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    change::{self, Difference},
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
    output::Reporter,
};

/// Arguments of `hold`.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
A hold keeps settings under a name. If two holds set the same knob on the same CPUs, the one with the higher priority wins; on a tie, \
the newer one. When a hold ends, the next one takes over. When the last hold ends, flyball restores the values from before the first.

'flyball hold run' (flyball-hold.service) notices changes when they happen, reports which process made them, and corrects them. \
Without it, settings are set once and not watched.

Examples:
  flyball hold add latency                                  the profile latency, under its own name
  flyball hold add steady latency governor=performance
  flyball hold add game governor=performance -c 0-7 --priority 200 --for 2h
  flyball hold add night powersave --when time=22:00-06:00 --on-drift report
  flyball hold status --why
  flyball hold release --all        everything is as it was before the first hold

Exit codes: 0 done or all settings are in effect, 1 failed, 2 a value is not accepted, 3 restoring failed too, 4 the machine does not have \
this knob, 5 status: a setting is not in effect, 6 another flyball command is changing the machine, 7 done, but the kernel clamped a value."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Add a hold, or replace a hold with the same name.
    Add(add::Args),
    /// Release holds, and restore what no other hold sets.
    Release(ReleaseArgs),
    /// List the holds.
    List,
    /// Show each held setting, its current value, and what changed it last.
    Status(show::StatusArgs),
    /// Check a configuration file, and list its entries for this machine.
    Check(check::Args),
    /// Run the service in the foreground.
    Run(run::Args),
    /// Play events against the configuration on a simulated machine.
    Rehearse(rehearse::Args),
}

/// Arguments of `release`.
#[derive(Debug, clap::Args)]
struct ReleaseArgs {
    /// The hold.
    #[arg(value_name = "NAME")]
    name: Vec<HoldName>,

    /// Release all holds. Those of hold.toml return when the service starts again.
    #[arg(long, conflicts_with = "name")]
    all: bool,

    /// Print what the remaining holds would write and what would be restored; write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Add(args) => add::run(context, args),
        Command::Release(args) => release(context, args),
        Command::List => show::list(context),
        Command::Status(args) => show::status(context, args),
        Command::Check(args) => check::run(context, args),
        Command::Run(args) => run::run(context, args),
        Command::Rehearse(args) => rehearse::run(context, args),
    }
}

/// Changes the machine's holds.
fn change_holds(
    context: &Context,
    host: &dyn Host,
    change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
) -> Result<Changed, Failure> {
    change::must_be_writable(host)?;
    let (state, command) = (context.state_waiting_for_lock()?, change::command_line());
    Ok(flyball_hold::change_holds(host, &state, &command, moment(host), change)?)
}

/// Returns the current time on the clock that ends of holds refer to: a simulated machine's own, or
/// the boot clock.
fn moment(host: &dyn Host) -> Moment {
    let now = if host.software().is_some() { host.now() } else { since_boot() };
    Moment { now, ..Moment::here() }
}

fn facts(host: &dyn Host, store: &Store) -> Facts {
    store.facts(host, moment(host).local)
}

fn status_of(host: &dyn Host, store: &Store) -> Status {
    flyball_hold::status(host, store, &facts(host, store), moment(host).now)
}

/// Returns the knobs that holds have in effect.
pub(crate) fn held(context: &Context, host: &dyn Host) -> Vec<HeldBy> {
    // Ignore errors: the commands that change holds report them.
    let store = context.state().ok().and_then(|state| Store::load(&state, host).ok());
    let knobs = store.map(|store| status_of(host, &store).knobs).unwrap_or_default();
    let in_force = knobs.into_iter().filter(|knob| knob.holds);
    let held = in_force.map(|HeldKnob { knob, instance, cpus, wanted, hold, .. }| {
        let cpus = if knob.knob().scope == Scope::Machine { CpuList::default() } else { cpus };
        HeldBy { hold: hold.to_string(), knob, instance, value: wanted, cpus }
    });
    held.collect()
}

/// Notes if no service watches the settings that were just made.
fn note_without_service(store: &Store, host: &dyn Host) {
    if store.service.is_none() && !store.holds.is_empty() {
        let how = if host.name() == Live::NAME {
            "; systemctl start flyball-hold.service, or flyball hold run"
        } else {
            ""
        };
        eprintln!(
            "note: the service does not run: nothing corrects changes or ends a hold by itself, and conditions are checked only when you add or release holds{how}"
        );
    }
}

/// Removes the named holds from the store, and returns them.
fn take_released(store: &mut Store, args: &ReleaseArgs) -> Result<Vec<Hold>, StoreError> {
    if args.all {
        let released = store.holds.clone();
        store.clear();
        return Ok(released);
    }
    let of_config =
        |name: &&HoldName| store.holds.iter().any(|hold| hold.name == **name && hold.owner == Owner::Config);
    if let Some(name) = args.name.iter().find(of_config) {
        return Err(StoreError::OfConfig(name.clone()));
    }
    args.name.iter().map(|name| store.release(name)).collect()
}

/// The output of `hold release`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ReleaseOutcome<'a> {
    /// The names of the holds.
    released: &'a [&'a str],
    /// `null` with --dry-run.
    restoration: Option<&'a Restoration>,
    /// `null` if nothing had to be written.
    applied: Option<&'a Applied>,
    /// Knobs that another program or the user set while a hold was active. Not restored.
    stays: &'a [HeldKnob],
    /// With --dry-run: what a release would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned: Option<&'a ReleasePlan>,
}

/// The effect of a release.
#[derive(Debug, JsonSchema, Serialize)]
struct ReleasePlan {
    /// Values that would be restored, because no hold sets these knobs any more.
    restored: Vec<Difference>,
    /// Writes for the remaining holds. `null` if there are none.
    plan: Option<Plan>,
}

fn release(context: &Context, args: &ReleaseArgs) -> Result<Exit, Failure> {
    if args.name.is_empty() && !args.all {
        return Err(Failure::usage(
            "name the hold to release ('flyball hold list'), or release all with --all",
        ));
    }
    let host = context.open()?;
    if args.dry_run {
        return release_preview(context, &*host, args);
    }
    let mut released: Vec<Hold> = Vec::new();
    let mut before: Option<(Store, Status)> = None;
    let changed = change_holds(context, &*host, |store| {
        before = Some((store.clone(), status_of(&*host, store)));
        released = take_released(store, args)?;
        Ok(())
    })?;
    if let Some(root) = root(context) {
        let is_released = |active: &Active| args.all || args.name.contains(&active.name);
        change_active(&root, |all| all.retain(|active| !is_released(active)))?;
    }
    let brought = changed.brought;
    let stays = before.map(|(store, status)| stays(&*host, &store, &status, &released)).unwrap_or_default();
    let names: Vec<&str> = released.iter().map(|hold| hold.name.as_str()).collect();
    let data = || ReleaseOutcome {
        released: &names,
        restoration: Some(&brought.restored),
        applied: brought.applied.as_ref(),
        stays: &stays,
        planned: None,
    };
    context.output.about(&*host).object(data, || {
        let heading = if names.is_empty() {
            "no holds\n".to_owned()
        } else {
            format!("released: {}\n", names.join(", "))
        };
        let stays: String = stays.iter().map(show::stays).collect();
        // 'nothing to restore: every setting has its earlier value' would be wrong if another
        // program has changed a setting.
        let has_nothing =
            !stays.is_empty() && brought.restored.is_exact() && brought.restored.written.is_empty();
        let restored = if has_nothing { String::new() } else { restored_text(&brought) };
        format!("{heading}{restored}{}{stays}", applied_text(&brought))
    })?;
    Ok(exit_of(&brought))
}

/// Prints what releasing the holds would restore and write.
fn release_preview(context: &Context, host: &dyn Host, args: &ReleaseArgs) -> Result<Exit, Failure> {
    let state = context.state()?;
    let mut store = Store::load(&state, host)?;
    let released = take_released(&mut store, args)?;
    store.expire(moment(host).now);
    let effective = Effective::new(&store.holds, &facts(host, &store));
    let Preview { restored, plan } = flyball_hold::preview(host, &state, (&effective, &store.left))?;
    let names: Vec<&str> = released.iter().map(|hold| hold.name.as_str()).collect();
    let restored: Vec<_> =
        restored.iter().map(|(location, was, now)| Difference::new(location, was, now)).collect();
    let planned = ReleasePlan { restored, plan };
    let data = || {
        let planned = Some(&planned);
        ReleaseOutcome { released: &names, restoration: None, applied: None, stays: &[], planned }
    };
    context.output.about(host).object(data, || {
        let writes = fold::lines(planned.restored.iter().map(Difference::line), false);
        let heading = format!("would release: {}\n", names.join(", "));
        let written = planned.plan.as_ref().filter(|plan| !plan.is_empty());
        let written = written.map(|plan| change::plan_text(plan, false)).unwrap_or_default();
        let nothing = if writes.is_empty() && written.is_empty() { "nothing would change\n" } else { "" };
        heading + nothing + &writes + &written
    })?;
    Ok(Exit::Done)
}

/// Returns knobs that the released holds did not have in effect and that are unchanged: another
/// program or the user set them in the meantime.
fn stays(host: &dyn Host, store: &Store, before: &Status, released: &[Hold]) -> Vec<HeldKnob> {
    // The machine's state after the release, to compare with that before.
    let after = status_of(host, store).knobs;
    let of_released = |knob: &&HeldKnob| released.iter().any(|hold| hold.name == knob.hold);
    let stays = before.knobs.iter().filter(|knob| !knob.holds).filter(of_released);
    stays.filter(|knob| after.contains(knob)).cloned().collect()
}

/// Holds a profile while `command` runs. The hold ends with this process: if flyball is killed, the
/// service removes it, or the next command that changes holds.
pub(crate) fn while_running(
    context: &Context,
    profile: &str,
    command: impl FnOnce() -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let pid = std::process::id();
    let name: HoldName = format!("run-{pid}").parse().map_err(Failure::failed)?;
    let settings = crate::profiles::read(profile)?.profile.intent.settings;
    let host = context.open()?;
    let hold = Hold {
        priority: Hold::OF_COMMAND,
        profile: Some(profile.to_owned()),
        end: End { at: None, process: ProcessId::from_pid(pid) },
        ..Hold::new(name.clone(), add::owner(), settings, crate::time::seconds_since_1970())
    };
    let changed = change_holds(context, &*host, |store| store.add(hold))?;
    for note in changed.brought.applied.iter().flat_map(|applied| &applied.notes) {
        eprintln!("note: {note}");
    }
    let ended = command();
    let released = change_holds(context, &*host, |store| match store.release(&name) {
        // The hold is already gone: `flyball restore` or `hold release --all` removed it.
        Ok(_) | Err(StoreError::Unknown(_)) => Ok(()),
        Err(error) => Err(error),
    });
    match released {
        Ok(changed) if changed.brought.restored.is_exact() => ended,
        Ok(changed) => Err(Failure::new(Exit::HalfDone, changed.brought.restored.to_string())),
        Err(failure) => Err(failure.reworded(|message| {
            format!("the command has ended, but its hold {name} is not released yet: {message}")
        })),
    }
}

/// Returns the root directory of a machine that boots. `None` for one that exists only in software.
fn root(context: &Context) -> Option<PathBuf> {
    match &context.machine {
        MachineArg::Live => Some("/".into()),
        MachineArg::Tree(root) => Some(root.clone()),
        _ => None,
    }
}

/// Changes the profiles held at every boot. Writes only if something changes.
fn change_active(root: &Path, change: impl FnOnce(&mut Vec<Active>)) -> Result<(), Failure> {
    let before = Active::load(root).map_err(Failure::usage)?;
    let mut after = before.clone();
    change(&mut after);
    if after == before {
        return Ok(());
    }
    let path = root.join(ACTIVE);
    Active::save(root, &after)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

fn restored_text(brought: &ApplyOutcome) -> String {
    let restored = &brought.restored;
    if restored.remembered == 0 && restored.is_exact() { String::new() } else { format!("{restored}\n") }
}

fn applied_text(brought: &ApplyOutcome) -> String {
    let made = brought.applied.as_ref().filter(|applied| !applied.made.is_empty());
    let made = made.map(change::render_applied).unwrap_or_default();
    let refused = brought.applied.iter().flat_map(|applied| &applied.refused);
    let lines = refused.map(|one| {
        let Change { knob, value, cpus, .. } = &one.change;
        (cpus, format!("{knob}={value} is not in force: {}", one.why))
    });
    let lines = change::by_value(lines).into_iter().map(|(words, cpus)| {
        let on = if cpus.is_empty() { String::new() } else { format!(" ({})", change::cpus_label(&cpus)) };
        format!("{words}{on}\n")
    });
    made + &lines.collect::<String>()
}

fn exit_of(brought: &ApplyOutcome) -> Exit {
    if !brought.restored.is_exact() {
        return Exit::HalfDone;
    }
    let is_clamped = |applied: &Applied| applied.clamped().next().is_some() || !applied.refused.is_empty();
    let clamped = brought.applied.as_ref().is_some_and(is_clamped);
    if clamped { Exit::Clamped } else { Exit::Done }
}

/// Releases every hold because everything has been restored. The caller has the lock.
pub(crate) fn release_all(host: &dyn Host, state: &StateDir) -> Result<(), Failure> {
    let mut store = Store::load(state, host)?;
    let count = store.clear();
    if count > 0 {
        store.save(state)?;
        eprintln!("note: {count} hold{} released", if count == 1 { " was" } else { "s were" });
    }
    Ok(())
}

/// The reporter for data about the machine.
fn reporter(context: &Context, host: &dyn Host) -> Reporter {
    context.output.about(host)
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match error {
            StoreError::Io { .. } | StoreError::Content { .. } | StoreError::OtherMachine { .. } => {
                Failure::failed(error)
            }
            StoreError::TooMany
            | StoreError::TooManyOfUsers
            | StoreError::NotOwner(_)
            | StoreError::Unknown(_)
            | StoreError::OfConfig(_) => Failure::usage(error),
        }
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Failure {
        match error {
            ChangeError::Lock(error) => TransactionError::Lock(error).into(),
            ChangeError::Store(error) => error.into(),
            ChangeError::Bring(error) => error.into(),
            error @ ChangeError::Unmet { .. } => Failure::failed(error),
        }
    }
}

impl From<BringError> for Failure {
    fn from(error: BringError) -> Failure {
        match error {
            BringError::Plan(error) => error.into(),
            BringError::Transaction(error) => error.into(),
            BringError::Apply(error) => error.into(),
        }
    }
}
