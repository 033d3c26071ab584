//! Makes a machine quiet inside a transaction: decides, applies the settings, moves interrupts, and
//! creates the benchmark's control group.

use flyball_host::{CpuList, Host};

use super::{KNOBS, Level, QuietSettings, decide, extras};
use crate::{
    Intent, IntentError, ReadError, Snapshot, partition,
    write::transaction::{ApplyError, Transaction},
};

/// How quiet the machine should be, and for which CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuietOptions {
    /// How much speed to give up.
    pub level: Level,
    /// The CPUs of the benchmark; all if `None`.
    pub cpus: Option<CpuList>,
    /// The frequency of level fixed, as `max-freq` takes it; the base frequency if `None`.
    pub freq: Option<String>,
}

/// Why a machine cannot be made quiet.
#[derive(Debug, thiserror::Error)]
pub enum QuietError {
    /// The machine cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Some CPUs are offline: a benchmark on them would run elsewhere, or not at all.
    #[error("CPUs {cpus} are not all online; online are {online}")]
    Offline { cpus: CpuList, online: CpuList },
    /// One of the decided settings is invalid.
    #[error(transparent)]
    Intent(#[from] IntentError),
    /// Applying failed; everything written has been restored.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl QuietOptions {
    /// Returns the CPUs of the benchmark.
    ///
    /// # Errors
    /// [`QuietError::Offline`].
    pub fn cpus(&self, snapshot: &Snapshot) -> Result<CpuList, QuietError> {
        let online = &snapshot.topology().online;
        match &self.cpus {
            Some(cpus) if cpus.is_empty() || !cpus.is_subset(online) => {
                Err(QuietError::Offline { cpus: cpus.clone(), online: online.clone() })
            }
            Some(cpus) => Ok(cpus.clone()),
            None => Ok(online.clone()),
        }
    }
}

/// The decision on how to make this machine quiet, and the settings to apply.
#[derive(Debug, Clone)]
pub struct QuietPlan {
    pub recipe: QuietSettings,
    /// The settings as an intent.
    pub intent: Intent,
}

impl QuietPlan {
    /// Decides for the machine as it is now. Writes nothing.
    pub fn decide(host: &dyn Host, options: &QuietOptions) -> Result<QuietPlan, QuietError> {
        let snapshot = Snapshot::take_knobs(host, KNOBS)?;
        let cpus = options.cpus(&snapshot)?;
        // Each level skips settings that the machine lacks, with a reason.
        let recipe = decide(host, &snapshot, options.level, &cpus, options.freq.as_deref())?;
        let intent = recipe.intent()?;
        Ok(QuietPlan { recipe, intent })
    }

    /// Makes the machine quiet inside the caller's transaction: applies the settings, then moves
    /// interrupts and creates the control group if the machine allows it.
    pub fn apply(
        &self,
        host: &dyn Host,
        transaction: &mut Transaction<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<QuietResult, QuietError> {
        let mut notes = Vec::new();
        if !self.intent.is_empty() {
            let applied = transaction.apply(&self.intent, interrupted)?;
            notes.extend(applied.notes.iter().map(ToString::to_string));
            notes.extend(applied.clamped().map(ToString::to_string));
        }
        // Level fixed takes SMT siblings offline, and the kernel moves their interrupts. Read the
        // online CPUs again, so that no interrupt is sent to an offline CPU.
        let online = Snapshot::begin(host)?.topology().online.clone();
        let extras = extras(host, &online, &self.recipe.cpus);
        // These may fail: the machine is still quieter than before.
        let refused = transaction.try_writes(&extras)?;
        let is_interrupt = |path: &str| path.starts_with("/proc/irq/");
        // Interrupts with fixed affinity (per-CPU, IRQD_AFFINITY_MANAGED) return EIO or EPERM. That
        // is normal, so a single note counts them.
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

    /// Creates the control group that keeps other tasks off the benchmark's CPUs. Returns its path
    /// if the kernel accepts it.
    fn reserve(
        &self,
        host: &dyn Host,
        transaction: &mut Transaction<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Option<String>, ApplyError> {
        let Some(partition) = &self.recipe.partition else { return Ok(None) };
        let refused = transaction.try_writes(&partition.writes())?;
        // The kernel accepts an impossible partition and marks it invalid in the file
        // (Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition). Only reading it back
        // shows whether it is in effect.
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
        // An invalid partition reserves nothing, so remove its group.
        transaction.try_writes(&[(partition.location(), partition::ABSENT.to_owned())])?;
        Ok(None)
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
