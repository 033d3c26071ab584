//! What makes a machine quiet for a benchmark, as `quiet`, `run --quiet` and `compare --quiet`
//! share it: the options, the decision, and a session that holds the machine quiet. The commands
//! themselves are in `commands/quiet`.

use flyball_control::{
    Intent, Snapshot, partition,
    quiet::{self, KNOBS, Level, QuietSettings, extras, remarks},
    write::{journal::Purpose, transaction::Transaction},
};
use flyball_host::{CpuList, Host, KiloHertz, Launch};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

/// Whether meters are read during a round or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Observer {
    /// Only before and after it.
    None,
}

/// The options that say how quiet, and for which CPUs.
#[derive(Debug, Clone, clap::Args)]
pub struct Quiet {
    /// How much speed may be lost: light, steady or fixed.
    #[arg(long, default_value = "steady", value_name = "LEVEL")]
    pub level: Level,

    /// The CPUs of the benchmark, reserved for it where possible [default: all].
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
        // A benchmark pinned to a CPU that is offline would run elsewhere, or not at all.
        Some(cpus) if cpus.is_empty() || !cpus.is_subset(online) => {
            Err(Failure::usage(format!("CPUs {cpus} are not all online; online are {online}")))
        }
        Some(cpus) => Ok(cpus.clone()),
        None => Ok(online.clone()),
    }
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
    pub fn decide(host: &dyn Host, options: &Quiet) -> Result<QuietPlan, Failure> {
        let snapshot = Snapshot::of_knobs(host, KNOBS)?;
        let cpus = cpus(&snapshot, options)?;
        // Decided for what the machine has: each level leaves out what is not there, with a reason.
        let recipe =
            quiet::decide(host, &snapshot, options.level, &cpus, options.freq).map_err(Failure::failed)?;
        let intent = recipe.intent().map_err(Failure::failed)?;
        Ok(QuietPlan { recipe, intent })
    }

    /// Makes the machine quiet inside a transaction that the caller holds: applies the settings,
    /// then moves interrupts and makes the control group if the machine allows it.
    pub fn apply(
        &self,
        host: &dyn Host,
        transaction: &mut Transaction<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<QuietResult, Failure> {
        let mut notes = Vec::new();
        if !self.intent.is_empty() {
            let applied = transaction.apply(&self.intent, interrupted)?;
            notes.extend(applied.notes.iter().map(ToString::to_string));
            notes.extend(applied.clamped().map(ToString::to_string));
        }
        // The settings of level fixed take SMT siblings offline, and the kernel moves their
        // interrupts: look again, so that no interrupt is sent to a CPU that is no longer there.
        let online = Snapshot::begin(host)?.topology().online.clone();
        let extras = extras(host, &online, &self.recipe.cpus);
        // Attempts, not settings: a machine on which some of them fail is still quieter than
        // before.
        let refused = transaction.try_writes(&extras).map_err(Failure::from)?;
        let is_interrupt = |path: &str| path.starts_with("/proc/irq/");
        // Interrupts with fixed affinity (per-CPU, IRQD_AFFINITY_MANAGED) answer EIO or EPERM:
        // usual, so they are counted in one note.
        let stuck = refused.iter().filter(|(location, _)| location.path().is_some_and(is_interrupt)).count();
        if stuck > 0 {
            let moved = extras.len() - refused.len();
            notes.push(format!(
                "{stuck} interrupts cannot be moved: their devices or the kernel do not allow it ({moved} other writes were \
                 made)"
            ));
        }
        let group = self.reserve(host, transaction, &mut notes)?;
        Ok(QuietResult { notes, group })
    }

    /// Makes the control group that keeps other tasks off the benchmark's CPUs; its path, where the
    /// kernel accepts it.
    fn reserve(
        &self,
        host: &dyn Host,
        transaction: &mut Transaction<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Option<String>, Failure> {
        let Some(partition) = &self.recipe.partition else { return Ok(None) };
        let refused = transaction.try_writes(&partition.writes()).map_err(Failure::from)?;
        // The kernel takes the write of an impossible partition and marks it invalid in the file
        // (Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition): only reading it back
        // shows whether it holds.
        let found = partition.location().read(host);
        let holds = found.as_ref().map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        if refused.is_empty() && holds.as_ref().is_ok_and(|text| partition.holds(text)) {
            return Ok(Some(partition.path.clone()));
        }
        let why = match (refused.first(), holds) {
            (Some((_, error)), _) => error.to_string(),
            (None, Ok(text)) => format!("the kernel changed it to '{text}'"),
            (None, Err(error)) => error.to_string(),
        };
        notes.push(format!("cannot keep other tasks off CPUs {}: {why}", self.recipe.cpus));
        // The group of an invalid partition reserves nothing and would only be left behind.
        transaction
            .try_writes(&[(partition.location(), partition::ABSENT.to_owned())])
            .map_err(Failure::from)?;
        Ok(None)
    }

    /// Prints what cannot be done on this machine.
    pub fn say(&self, host: &dyn Host) {
        for what in &self.recipe.unavailable {
            eprintln!("note: cannot {what}");
        }
        for remark in remarks(host) {
            eprintln!("note: {remark}");
        }
        if !self.recipe.boot.is_empty() {
            let words: Vec<&str> = self.recipe.boot.iter().map(|boot| boot.parameter.as_str()).collect();
            eprintln!("note: these kernel parameters would help after a reboot: {}", words.join(" "));
        }
    }
}

/// The result of making a machine quiet.
#[derive(Debug, Clone, Default)]
pub struct QuietResult {
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The control group that the benchmark must join.
    pub group: Option<String>,
}

/// A quiet machine. Everything is restored when the session ends, also if it is dropped.
pub struct QuietSession<'h> {
    pub transaction: Transaction<'h>,
    /// The control group of the benchmark's CPUs, if there is one.
    pub group: Option<String>,
    pub notes: Vec<String>,
}

impl<'h> QuietSession<'h> {
    /// Makes the machine quiet. With `guarded` a guardian restores it if this process dies. Without
    /// a guardian nothing is printed until the changes are committed, because a closed pipe would
    /// end the process in the middle.
    pub fn begin(
        context: &Context,
        host: &'h dyn Host,
        quiet: &Quiet,
        purpose: Purpose,
        guarded: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<QuietSession<'h>, Failure> {
        change::must_be_writable(host)?;
        let plan = QuietPlan::decide(host, quiet)?;
        plan.say(host);
        let state = context.state()?;
        // Not for `quiet on`, which is meant to outlive this process.
        let guardian = guarded.then(|| context.guardian(&state)).transpose()?;
        let mut transaction = Transaction::begin(host, &state, purpose, &change::command_line(), guardian)?;
        match plan.apply(host, &mut transaction, interrupted) {
            Ok(result) => {
                let notes: Vec<String> =
                    transaction.notes().iter().map(ToString::to_string).chain(result.notes).collect();
                if guarded {
                    for note in &notes {
                        eprintln!("note: {note}");
                    }
                }
                Ok(QuietSession { transaction, group: result.group, notes })
            }
            Err(failure) => {
                // The failure that led here is the one to report.
                // What it could not restore is in the journal.
                let _ = transaction.end();
                Err(failure)
            }
        }
    }

    /// Restores everything.
    pub fn end(self) -> Result<(), Failure> {
        let restoration = self.transaction.end();
        if restoration.is_exact() {
            return Ok(());
        }
        Err(Failure::new(Exit::HalfDone, restoration.to_string()))
    }
}

/// How to start a benchmark's process: on its CPUs, with the highest priority, and with fixed
/// addresses.
pub fn launch(command: &[String], cpus: &CpuList, quiet: &Quiet, group: Option<&str>) -> Launch {
    // -20: whatever shares its CPUs with a benchmark should wait for it.
    let mut launch = Launch::new(&command[0], &command[1..]).on(cpus).at_niceness(-20);
    if let Some(group) = group {
        launch = launch.in_control_group(group);
    }
    if !quiet.keep_aslr {
        launch = launch.with_fixed_addresses();
    }
    launch
}
