//! What `quiet`, `run --quiet` and `compare --quiet` share: options, output, and a session that
//! keeps the machine quiet.

use flyball_control::{
    Intent, IntentError,
    quiet::{Level, QuietError, QuietOptions, QuietPlan, remarks},
    write::{journal::Purpose, transaction::Transaction},
};
use flyball_host::{CpuList, Host, Launch};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    failures,
};

/// Whether meters are read during a round or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Observer {
    /// Only before and after it.
    None,
}

/// The options that say how quiet, and for which CPUs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Quiet {
    /// How much speed to give up: light, steady or fixed.
    #[arg(long, default_value = "steady", value_name = "LEVEL")]
    pub level: Level,

    /// The CPUs of the benchmark, reserved for it where possible [default: all].
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: Option<CpuList>,

    /// The frequency of level fixed, as max-freq takes it: 2GHz, min [default: the base frequency].
    #[arg(long, value_name = "FREQ", value_parser = frequency)]
    pub freq: Option<String>,

    /// Keep address space layout randomisation enabled for the command.
    #[arg(long)]
    pub keep_aslr: bool,
}

/// Returns the words of a frequency if max-freq accepts them.
fn frequency(words: &str) -> Result<String, IntentError> {
    Intent::from_arguments(&[format!("max-freq={words}")], None).map(|_| words.to_owned())
}

impl Quiet {
    /// Returns the options without those that only start a command.
    pub(crate) fn options(&self) -> QuietOptions {
        QuietOptions { level: self.level, cpus: self.cpus.clone(), freq: self.freq.clone() }
    }
}

failures!(QuietError);

impl From<&QuietError> for Exit {
    fn from(error: &QuietError) -> Exit {
        match error {
            QuietError::Read(error) => error.into(),
            QuietError::Offline { .. } => Exit::Usage,
            QuietError::Intent(_) => Exit::Failed,
            QuietError::Apply(error) => error.into(),
        }
    }
}

/// Prints what cannot be done on this machine.
pub(crate) fn print_limits(plan: &QuietPlan, host: &dyn Host) {
    for what in &plan.recipe.unavailable {
        eprintln!("note: cannot {what}");
    }
    for remark in remarks(host) {
        eprintln!("note: {remark}");
    }
    if !plan.recipe.boot.is_empty() {
        let words: Vec<&str> = plan.recipe.boot.iter().map(|boot| boot.parameter.as_str()).collect();
        eprintln!("note: these kernel parameters would help after a reboot: {}", words.join(" "));
    }
}

/// A quiet machine. Everything is restored when the session ends or is dropped.
pub(crate) struct QuietSession<'h> {
    pub transaction: Transaction<'h>,
    /// The control group for the benchmark's CPUs, if there is one.
    pub group: Option<String>,
    pub notes: Vec<String>,
}

impl<'h> QuietSession<'h> {
    /// Makes the machine quiet. With `guarded`, a guardian restores it if this process dies.
    /// Without a guardian, nothing is printed before the changes are committed, because a closed
    /// pipe would end the process in the middle.
    pub(crate) fn begin(
        context: &Context,
        host: &'h dyn Host,
        quiet: &Quiet,
        purpose: Purpose,
        guarded: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<QuietSession<'h>, Failure> {
        change::must_be_writable(host)?;
        let plan = QuietPlan::decide(host, &quiet.options())?;
        print_limits(&plan, host);
        let state = context.state()?;
        // No guardian for `quiet on`, which must outlive this process.
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
            Err(error) => {
                // Report the first error. What it left unrestored is in the journal.
                let _ = transaction.end();
                Err(error.into())
            }
        }
    }

    /// Restores everything.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let restoration = self.transaction.end();
        if restoration.is_exact() {
            return Ok(());
        }
        Err(Failure::new(Exit::HalfDone, restoration.to_string()))
    }
}

/// Prepares to start a benchmark's process: on its CPUs, with the highest priority, and with fixed
/// addresses.
pub(crate) fn launch(command: &[String], cpus: &CpuList, quiet: &Quiet, group: Option<&str>) -> Launch {
    // -20: other processes on its CPUs should wait for the benchmark.
    let mut launch = Launch::new(&command[0], &command[1..]).on(cpus).at_niceness(-20);
    if let Some(group) = group {
        launch = launch.in_control_group(group);
    }
    if !quiet.keep_aslr {
        launch = launch.with_fixed_addresses();
    }
    launch
}
