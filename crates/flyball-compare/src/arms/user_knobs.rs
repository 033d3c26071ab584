//! The user's own knobs as settings of arms: read before anything is changed, written under the
//! journal of the transaction, read back, and restored with it.

use flyball_control::{
    Location,
    write::transaction::{ProbeOutcome, Transaction},
};
use flyball_host::{CommandKnob, Host};
use flyball_measure::{Arm, SettingsError, UserKnobError};

/// Reads each knob twice. A knob with two different values could be neither checked nor restored.
pub(super) fn check(host: &dyn Host, knobs: &[CommandKnob]) -> Result<(), SettingsError> {
    for knob in knobs {
        let read = || Ok::<_, SettingsError>(String::from_utf8_lossy(&knob.read(host)?).into_owned());
        let (first, second) = (read()?, read()?);
        if first != second {
            return Err(SettingsError::UnsteadyKnob { knob: knob.name.clone(), first, second });
        }
    }
    Ok(())
}

/// Writes the user's knobs of an arm. After a failure, restores everything that the arm has
/// changed.
pub(super) fn apply(
    transaction: &mut Transaction<'_>,
    knobs: &[CommandKnob],
    arm: &Arm,
) -> Result<(), SettingsError> {
    for setting in &arm.settings {
        let Some(knob) = setting.user_knob(knobs) else { continue };
        let location = Location::Command(Box::new(knob.clone()));
        // After an error of the journal, the changes have already been restored.
        let found = match transaction.probe(&location, setting.value())? {
            ProbeOutcome::Held => continue,
            ProbeOutcome::Reads(found) => Ok(found),
            ProbeOutcome::Refused(error) => Err(error),
        };
        let restoration = transaction.restore();
        return Err(Box::new(UserKnobError { setting: setting.clone(), found, restoration }).into());
    }
    Ok(())
}
