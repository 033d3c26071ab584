//! The settings of arms on a machine: applied before a round, restored at the end.

use std::io;

use flyball_control::{
    IntentError, ReadError,
    plan::PlanError,
    quiet::QuietError,
    save::SavedSetting,
    write::{
        restore::Restoration,
        transaction::{ApplyError, TransactionError},
    },
};
use flyball_host::HostError;

use crate::arm::{Arm, ArmSetting};

/// Applies the settings of an arm to a machine, and restores them.
pub trait Settings {
    /// Brings the machine from the state that this object left it in to the settings of `arm`.
    /// Settings of the previous arm that this one does not name return to their original values.
    /// Returns notes, for example about values that the kernel clamped.
    ///
    /// # Errors
    /// Why the settings could not be applied. [`Settings::restore`] undoes what was written.
    fn apply(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError>;

    /// Restores everything.
    ///
    /// # Errors
    /// The settings that could not be restored.
    fn restore(&mut self) -> Result<(), SettingsError>;

    /// Returns what the machine must be booted with before this arm can be applied; `None` if it
    /// can be applied now.
    ///
    /// # Errors
    /// An arm that no boot makes possible.
    fn boot_needed(&self, arm: &Arm) -> Result<Option<String>, SettingsError> {
        let _ = arm;
        Ok(None)
    }

    /// Returns what other programs, or the kernel, have changed since the last [`Settings::apply`],
    /// as a sentence.
    fn changed(&mut self) -> Option<String> {
        None
    }

    /// The settings as they are, for the record.
    fn snapshot(&self) -> SettingsSnapshot {
        SettingsSnapshot::None
    }
}

/// The settings of a machine before or after the rounds of a boot: a file `snapshot-*.json`.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum SettingsSnapshot {
    /// Every setting that a profile can have.
    Settings { settings: Vec<SavedSetting> },
    /// The format of older versions of flyball: the text of a profile.
    Profile { profile: String },
    /// A simulated machine, which boots again for each round.
    Booted { machine: String, simulated: bool },
    /// The machine could not be read.
    Unread { error: String },
    /// A machine without knobs.
    None,
}

/// Why settings could not be applied or restored.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The knob of a setting is not known here.
    #[error(transparent)]
    Intent(#[from] IntentError),
    /// The machine cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The machine does not accept a setting.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The transaction could not begin.
    #[error(transparent)]
    Begin(#[from] TransactionError),
    /// Applying failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The machine could not be made quiet before the arms.
    #[error(transparent)]
    Quiet(#[from] QuietError),
    /// Something could not be restored.
    #[error("{0}")]
    Restore(Restoration),
    /// A knob of the user's own did not take its value.
    #[error(transparent)]
    UserKnob(#[from] Box<UserKnobError>),
    /// A knob of the user's own cannot be read.
    #[error(transparent)]
    UnreadKnob(#[from] HostError),
    /// The user's own knob read differently without a write in between.
    #[error(
        "knob {knob}: 'read' printed '{first}' and then '{second}'; it must print the value, the same each time"
    )]
    UnsteadyKnob { knob: String, first: String, second: String },
    /// No kernel parameter brings up this cpufreq driver.
    #[error(
        "no cpufreq driver '{0}' is known; there are acpi-cpufreq, amd-pstate (passive and guided), amd-pstate-epp \
         (active), intel_pstate (active), intel_cpufreq (passive)"
    )]
    Driver(String),
    /// A simulated machine did not boot.
    #[error(transparent)]
    Boot(io::Error),
    /// A simulated machine booted, and does not have what the arm needs.
    #[error("{machine} booted with {words} still needs {needed}: this machine or kernel does not have that")]
    NotBooted { machine: String, words: String, needed: String },
    /// A simulated machine whose state is kept.
    #[error(
        "a comparison boots the machine again and again: it cannot be kept with --sim-state\nhint: leave out --sim-state"
    )]
    Kept,
    /// The journal of a simulated machine has no directory.
    #[error("cannot make a directory for the journal: {0}")]
    Journal(io::Error),
    /// An arm sets something, but the machine was opened for arms that set nothing.
    #[error("the machine is not held")]
    NotHeld,
}

/// A knob of the user's own that did not take its value.
#[derive(Debug, thiserror::Error)]
#[error("{}{}", self.problem(), if self.restoration.is_exact() { String::new() } else { format!("; {}", self.restoration) })]
pub struct UserKnobError {
    pub setting: ArmSetting,
    /// The value read after the write, or the error of the read command.
    pub found: Result<String, HostError>,
    /// How the arm's other settings were restored.
    pub restoration: Restoration,
}

impl UserKnobError {
    fn problem(&self) -> String {
        match &self.found {
            Ok(found) => format!("{} was written and reads '{found}'", self.setting),
            Err(error) => error.to_string(),
        }
    }
}

/// An arm that the machine does not accept.
#[derive(Debug, thiserror::Error)]
#[error("arm '{arm}': {cause}")]
pub struct RefusedArm {
    pub arm: String,
    pub cause: SettingsError,
}
