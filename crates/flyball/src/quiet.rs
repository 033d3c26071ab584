//! Making a machine quiet and restoring it: for one command, for a session, or until `quiet off`.

use std::{
    os::unix::process::ExitStatusExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_control::{
    Intent, Location, Snapshot, partition,
    plan::plan,
    quiet::{self, KNOBS, Level, QuietSettings, extras, remarks},
    write::{
        hold::{self, Hold, Scope},
        journal::{Journal, Purpose},
    },
};
use flyball_host::{CpuList, Host, KiloHertz, Kind, Launch};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    output,
};

/// The options that say how quiet, and for which CPUs.
#[derive(Debug, Clone, clap::Args)]
pub struct Quiet {
    /// How much speed may be lost: light, steady or fixed.
    #[arg(long, default_value = "steady", value_name = "LEVEL")]
    pub level: Level,

    /// The CPUs of the benchmark, reserved for it as far as possible [default: all].
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: Option<CpuList>,

    /// The frequency of level fixed [default: the base frequency].
    #[arg(long, value_name = "FREQ")]
    pub freq: Option<KiloHertz>,

    /// Keep address space layout randomisation enabled for the command.
    #[arg(long)]
    pub keep_aslr: bool,
}

/// The CPUs of the benchmark: those of --cpus, or all.
pub fn cpus(snapshot: &Snapshot, quiet: &Quiet) -> Result<CpuList, Failure> {
    let online = &snapshot.topology().online;
    match &quiet.cpus {
        Some(cpus) if cpus.is_empty() || !cpus.is_subset(online) => {
            Err(Failure::usage(format!("CPUs {cpus} are not all online; online are {online}")))
        }
        Some(cpus) => Ok(cpus.clone()),
        None => Ok(online.clone()),
    }
}

/// The topology.
fn look(host: &dyn Host) -> Result<Snapshot, Failure> {
    Snapshot::begin(host).map_err(Failure::failed)
}

fn decide(host: &dyn Host, level: &Quiet) -> Result<(QuietSettings, Intent), Failure> {
    let snapshot = Snapshot::of_knobs(host, KNOBS).map_err(Failure::failed)?;
    let cpus = cpus(&snapshot, level)?;
    let settings = quiet::decide(host, &snapshot, level.level, &cpus, level.freq).map_err(Failure::failed)?;
    let intent = settings.intent().map_err(Failure::failed)?;
    Ok((settings, intent))
}

fn say(recipe: &QuietSettings, host: &dyn Host) {
    for what in &recipe.unavailable {
        eprintln!("note: cannot {what}");
    }
    for remark in remarks(host) {
        eprintln!("note: {remark}");
    }
    if !recipe.boot.is_empty() {
        let words: Vec<&str> = recipe.boot.iter().map(|boot| boot.parameter.as_str()).collect();
        eprintln!("note: these kernel parameters would help after a reboot: {}", words.join(" "));
    }
}

/// Prints the plan, and writes nothing.
pub fn preview(context: &Context, quiet: &Quiet) -> Result<Exit, Failure> {
    let host = context.open()?;
    let (recipe, intent) = decide(&*host, quiet)?;
    let snapshot = Snapshot::for_intent(&*host, &intent).map_err(Failure::failed)?;
    let plan = plan(&snapshot, &intent)?;
    let extras = extras(&*host, &snapshot.topology().online, &recipe.cpus);
    let data = || {
        let extras: Vec<_> = extras
            .iter()
            .map(|(location, new)| serde_json::json!({"location": location, "new": new}))
            .collect();
        serde_json::json!({"recipe": recipe, "plan": plan, "extras": extras})
    };
    context.output.about(&*host).object(data, || {
        say(&recipe, &*host);
        let mut out = change::plan_text(&plan, false);
        if let Some(partition) = &recipe.partition {
            out += &format!("control group\n  {}  CPUs {}\n", partition.path, partition.content);
        }
        if !extras.is_empty() {
            out += "interrupts and profiling, where possible\n";
            for line in folded(&*host, &extras) {
                out += &format!("  {line}\n");
            }
        }
        out
    })?;
    Ok(Exit::Done)
}

/// Writes to files other than knobs, with interrupts of the same old and new CPUs on one line.
fn folded(host: &dyn Host, extras: &[(Location, String)]) -> Vec<String> {
    let mut interrupts: std::collections::BTreeMap<(String, &str), CpuList> =
        std::collections::BTreeMap::new();
    let mut lines = Vec::new();
    for (location, new) in extras {
        let path = location.path().unwrap_or_default();
        let old = host.read(path).unwrap_or_default();
        let number = path.strip_prefix("/proc/irq/").and_then(|rest| rest.split('/').next()?.parse().ok());
        match number {
            Some(number) => {
                interrupts.entry((old, new)).or_default().insert(number);
            }
            None => lines.push(format!("{location}  {old} -> {new}")),
        }
    }
    let of_interrupts = interrupts
        .into_iter()
        .map(|((old, new), numbers)| format!("/proc/irq/{{{numbers}}}/smp_affinity_list  {old} -> {new}"));
    of_interrupts.chain(lines).collect()
}

/// What makes this machine quiet: the decision, and the settings to apply.
#[derive(Debug, Clone)]
pub struct QuietPlan {
    pub recipe: QuietSettings,
    /// The settings as an intent.
    pub intent: Intent,
}

impl QuietPlan {
    /// Decides for a machine as it is now. Nothing is written.
    pub fn decide(host: &dyn Host, quiet: &Quiet) -> Result<QuietPlan, Failure> {
        let (recipe, intent) = decide(host, quiet)?;
        Ok(QuietPlan { recipe, intent })
    }

    /// Makes the machine quiet inside a transaction that the caller holds.
    pub fn apply(
        &self,
        host: &dyn Host,
        hold: &mut Hold<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<QuietResult, Failure> {
        apply_plan(hold, host, &self.recipe, &self.intent, interrupted)
    }

    /// Prints what cannot be done on this machine.
    pub fn say(&self, host: &dyn Host) {
        say(&self.recipe, host);
    }
}

/// Applies the settings, then moves interrupts and makes the control group if the machine allows it.
fn apply_plan(
    hold: &mut Hold<'_>,
    host: &dyn Host,
    recipe: &QuietSettings,
    intent: &Intent,
    interrupted: &dyn Fn() -> bool,
) -> Result<QuietResult, Failure> {
    let mut notes = Vec::new();
    if !intent.is_empty() {
        let applied = hold.apply(intent, interrupted)?;
        notes.extend(applied.notes.iter().map(ToString::to_string));
        notes.extend(applied.clamped().map(ToString::to_string));
    }
    let extras = extras(host, &look(host)?.topology().online, &recipe.cpus);
    let refused = hold.try_writes(&extras).map_err(Failure::from)?;
    let stuck = refused
        .iter()
        .filter(|(location, _)| location.path().is_some_and(|path| path.starts_with("/proc/irq/")));
    let stuck = stuck.count();
    if stuck > 0 {
        let moved = extras.len() - refused.len();
        notes.push(format!(
            "{stuck} interrupts cannot be moved: their devices or the kernel do not allow it ({moved} other writes were made)"
        ));
    }
    let mut group = None;
    if let Some(partition) = &recipe.partition {
        let refused = hold.try_writes(&partition.writes()).map_err(Failure::from)?;
        let found = partition.location().read(host);
        let holds = found.as_ref().map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        if refused.is_empty() && holds.as_ref().is_ok_and(|text| partition.holds(text)) {
            group = Some(partition.path.clone());
        } else {
            let why = match (refused.first(), holds) {
                (Some((_, error)), _) => error.to_string(),
                (None, Ok(text)) => format!("the kernel changed it to '{text}'"),
                (None, Err(error)) => error.to_string(),
            };
            notes.push(format!("cannot keep other tasks off CPUs {}: {why}", recipe.cpus));
            hold.try_writes(&[(partition.location(), partition::ABSENT.to_owned())])
                .map_err(Failure::from)?;
        }
    }
    Ok(QuietResult { notes, group })
}

/// The result of making a machine quiet.
#[derive(Debug, Clone, Default)]
pub struct QuietResult {
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The control group that the benchmark must join.
    pub group: Option<String>,
}

/// A quiet machine. Everything is put back when the session ends, also if it is dropped.
pub struct QuietSession<'h> {
    hold: Hold<'h>,
    /// The control group of the benchmark's CPUs, if there is one.
    pub group: Option<String>,
    /// Notes for the user.
    notes: Vec<String>,
}

impl<'h> QuietSession<'h> {
    /// Makes the machine quiet. With `guarded` a guardian restores it if this process dies. Without a guardian nothing is
    /// printed until the changes are committed, because a closed pipe would end the process in the middle.
    pub fn begin(
        context: &Context,
        host: &'h dyn Host,
        quiet: &Quiet,
        purpose: Purpose,
        guarded: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<QuietSession<'h>, Failure> {
        change::must_be_writable(host)?;
        let (recipe, intent) = decide(host, quiet)?;
        say(&recipe, host);
        let state = context.state()?;
        let guardian = guarded.then(|| context.guardian(&state)).transpose()?;
        let mut hold = Hold::begin(host, &state, purpose, &change::command_line(), guardian)?;
        match apply_plan(&mut hold, host, &recipe, &intent, interrupted) {
            Ok(result) => {
                let notes: Vec<String> =
                    hold.notes().iter().map(ToString::to_string).chain(result.notes).collect();
                if guarded {
                    for note in &notes {
                        eprintln!("note: {note}");
                    }
                }
                Ok(QuietSession { hold, group: result.group, notes })
            }
            Err(failure) => {
                let _ = hold.end();
                Err(failure)
            }
        }
    }

    /// Notes for the user.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Puts everything back.
    pub fn end(self) -> Result<(), Failure> {
        let restoration = self.hold.end();
        if restoration.is_exact() {
            return Ok(());
        }
        Err(Failure::new(Exit::HalfDone, restoration.to_string()))
    }
}

/// How to start a benchmark's process: on its CPUs, with the highest priority, and with fixed addresses.
pub fn launch(command: &[String], cpus: &CpuList, quiet: &Quiet, group: Option<&str>) -> Launch {
    let mut launch = Launch::new(&command[0], &command[1..]).on(cpus).at_niceness(-20);
    if let Some(group) = group {
        launch = launch.in_control_group(group);
    }
    if !quiet.keep_aslr {
        launch = launch.with_fixed_addresses();
    }
    launch
}

/// Runs one command on the quiet machine.
pub fn around(context: &Context, quiet: &Quiet, command: &[String]) -> Result<Exit, Failure> {
    let host = context.open()?;
    if host.kind() != Kind::Live {
        return Err(Failure::usage(
            "a command can only run on this machine, without -M; 'flyball quiet -n -M ...' prints the plan for another machine",
        ));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let ended = change::interrupts()?;
    let session =
        QuietSession::begin(context, &*host, quiet, Purpose::Quiet, true, &|| ended.load(Ordering::Relaxed))?;
    let code = (|| {
        let machine = look(&*host)?;
        let cpus = cpus(&machine, quiet)?;
        let fail = |error: std::io::Error| {
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            Failure::new(Exit::Command(code), format!("cannot run {}: {error}", command[0]))
        };
        let launch = launch(command, &cpus, quiet, session.group.as_deref()).in_foreground();
        let mut running = host.spawn(launch).map_err(fail)?;
        loop {
            if let Some(ended) = running.wait(Duration::from_millis(200)).map_err(fail)? {
                break Ok(ended);
            }
            if ended.load(Ordering::Relaxed) && !interrupted.swap(true, Ordering::Relaxed) {
                break running.stop(Duration::from_secs(2)).map_err(fail);
            }
        }
    })();
    session.end()?;
    let ended = code?;
    let code = ended.status.code().or_else(|| Some(128 + ended.status.signal()?)).unwrap_or(255);
    Ok(if code == 0 { Exit::Done } else { Exit::Command(code as u8) })
}

/// Makes the machine quiet until `quiet off`.
pub fn on(context: &Context, quiet: &Quiet) -> Result<Exit, Failure> {
    let host = context.open()?;
    let interrupted = change::interrupts()?;
    let session = QuietSession::begin(context, &*host, quiet, Purpose::QuietOn, false, &|| {
        interrupted.load(Ordering::Relaxed)
    })?;
    let QuietSession { hold, group, notes } = session;
    hold.keep()?;
    for note in &notes {
        eprintln!("note: {note}");
    }
    output::line(format_args!("quiet ({}); 'flyball quiet off' puts everything back", quiet.level))?;
    if let Some(group) = group {
        output::line(format_args!(
            "a benchmark gets the reserved CPUs by joining the control group: echo $$ > {group}/cgroup.procs"
        ))?;
    }
    Ok(Exit::Done)
}

/// Undoes `quiet on`.
pub fn off(context: &Context) -> Result<Exit, Failure> {
    let host = context.open()?;
    change::must_be_writable(&*host)?;
    let state = context.state()?;
    let contents = Journal::load(&state)?;
    // A command that was killed before its first write has changed nothing.
    let pending: Vec<_> = contents
        .iter()
        .flat_map(flyball_control::write::journal::Contents::pending)
        .filter(|entry| entry.writes > 0)
        .collect();
    let Some(position) = pending.iter().rposition(|entry| entry.purpose == Some(Purpose::QuietOn)) else {
        output::line("not quiet: nothing to undo")?;
        return Ok(Exit::Done);
    };
    if position + 1 != pending.len() {
        return Err(Failure::failed(format!(
            "settings were changed after 'quiet on' ({}); undo those first with 'flyball restore --last', or everything with 'flyball restore'",
            pending[position + 1].command
        )));
    }
    let restored = hold::restore(&*host, &state, &change::command_line(), Scope::Last)?;
    output::line(&restored.restoration)?;
    Ok(if restored.restoration.is_exact() { Exit::Done } else { Exit::HalfDone })
}

/// Prints whether the machine is quiet for a level.
pub fn status(context: &Context, quiet: &Quiet) -> Result<Exit, Failure> {
    let host = context.open()?;
    let (recipe, intent) = decide(&*host, quiet)?;
    let snapshot = Snapshot::for_intent(&*host, &intent).map_err(Failure::failed)?;
    let plan = plan(&snapshot, &intent)?;
    let left = extras(&*host, &snapshot.topology().online, &recipe.cpus).len();
    let data = || {
        serde_json::json!({
            "level": quiet.level, "quiet": plan.is_empty(), "settings": recipe.settings, "differs": plan.changes,
            "interrupts_and_profiling": left, "unavailable": recipe.unavailable, "boot": recipe.boot,
        })
    };
    context.output.about(&*host).object(data, || {
        let mut out = if plan.is_empty() {
            format!("quiet for level {}: all {} settings hold\n", quiet.level, recipe.settings.len())
        } else {
            let writes = if plan.changes.len() == 1 { "write is" } else { "writes are" };
            format!("not quiet for level {}: {} {writes} missing\n", quiet.level, plan.changes.len())
        };
        if !plan.is_empty() {
            out += &change::plan_text(&plan, false);
        }
        for what in &recipe.unavailable {
            eprintln!("note: cannot {what}");
        }
        out
    })?;
    Ok(if plan.is_empty() { Exit::Done } else { Exit::Drifted })
}
