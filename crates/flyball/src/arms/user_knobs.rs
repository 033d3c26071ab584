//! The user's own knobs as settings of arms: read before anything is changed, written under the
//! journal of the transaction, read back, and restored with it.

use flyball_control::{
    Location,
    write::transaction::{Probed, Transaction},
};
use flyball_host::{CommandKnob, Host};
use flyball_measure::{Arm, ArmSetting, SettingsError};

use crate::exit::Failure;

/// The settings of an arm that are the machine's: all but those of the user's knobs.
pub fn of_machine(arm: &Arm, knobs: &[CommandKnob]) -> Arm {
    let is_machines = |setting: &&ArmSetting| find(knobs, setting).is_none();
    Arm { name: arm.name.clone(), settings: arm.settings.iter().filter(is_machines).cloned().collect() }
}

/// The user's knob that a setting is of.
pub fn find<'k>(knobs: &'k [CommandKnob], setting: &ArmSetting) -> Option<&'k CommandKnob> {
    knobs.iter().find(|knob| knob.name == setting.knob)
}

/// Reads each knob twice. What does not read the same could be neither checked nor restored.
pub fn check(host: &dyn Host, knobs: &[CommandKnob]) -> Result<(), Failure> {
    for knob in knobs {
        let read = || {
            let bytes = knob.read(host).map_err(Failure::failed)?;
            Ok::<_, Failure>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (first, second) = (read()?, read()?);
        if first != second {
            return Err(Failure::failed(format!(
                "knob {}: 'read' printed '{first}' and then '{second}'; it must print the value, the same each time",
                knob.name
            )));
        }
    }
    Ok(())
}

/// Writes the user's knobs of an arm. After a failure everything that the arm has changed is
/// restored.
pub fn apply(
    transaction: &mut Transaction<'_>,
    knobs: &[CommandKnob],
    arm: &Arm,
) -> Result<(), SettingsError> {
    for setting in &arm.settings {
        let Some(knob) = find(knobs, setting) else { continue };
        let location = Location::Command(Box::new(knob.clone()));
        let why = match transaction.probe(&location, &setting.value) {
            Ok(Probed::Held) => continue,
            Ok(Probed::Reads(found)) => format!("{setting} was written and reads '{found}'"),
            Ok(Probed::Refused(error)) => error.to_string(),
            // What was changed has been restored.
            Err(error) => return Err(SettingsError(error.to_string())),
        };
        let restoration = transaction.restore();
        let rest = if restoration.is_exact() { String::new() } else { format!("; {restoration}") };
        return Err(SettingsError(format!("{why}{rest}")));
    }
    Ok(())
}
