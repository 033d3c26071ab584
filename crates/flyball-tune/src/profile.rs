//! The settings of an arm as a profile.

use std::fmt::Write as _;

use flyball_control::save::quoted;
use flyball_measure::{ArmSetting, Manifest};

use crate::record::Record;

/// No profile can hold the settings: the user's own commands set them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no profile is written: {settings} is set by your own commands, and a profile sets knobs of the machine only"
)]
pub struct NoProfile {
    settings: String,
}

/// The text of a profile with the settings of an arm. `doubt` goes into its description.
///
/// # Errors
/// [`NoProfile`].
pub fn profile(manifest: &Manifest, record: &Record, arm: usize, doubt: &str) -> Result<String, NoProfile> {
    let machine = &manifest.machine;
    let is_real = !machine.simulated && machine.emulated.is_none();
    let place = if is_real { String::new() } else { format!(" on {}", machine.title()) };
    let description = format!(
        "{} for {}, found by flyball tune{place}{doubt}",
        record.goal.title(&manifest.workload.metric),
        manifest.workload.name
    );
    let arm = &record.searched.arms[arm];
    let (of_user, of_machine): (Vec<&ArmSetting>, Vec<&ArmSetting>) =
        arm.settings.iter().partition(|setting| setting.user_knob(&manifest.knobs).is_some());
    if of_machine.is_empty() && !of_user.is_empty() {
        return Err(NoProfile { settings: arm.name.clone() });
    }
    // A profile is applied without the user's commands.
    let without: String = of_user
        .iter()
        .map(|setting| format!("# {setting} is not part of this profile: it is set by your own command\n"))
        .collect();
    Ok(profile_text(&description, &without, &of_machine))
}

/// The text of a profile with these settings of the machine. `comments` are whole lines.
pub fn profile_text(description: &str, comments: &str, settings: &[&ArmSetting]) -> String {
    let mut text = format!("description = {}\n{comments}", quoted(description));
    let mut sections = String::new();
    for setting in settings {
        let line = |knob: &str| format!("{} = {}\n", quoted(knob), quoted(setting.value()));
        match setting.knob().split_once('@') {
            None => text += &line(setting.knob()),
            Some((knob, cpus)) => {
                let _ = write!(sections, "\n[cpus.{}]\n{}", quoted(cpus), line(knob));
            }
        }
    }
    text + &sections
}
