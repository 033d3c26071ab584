//! `--info`: prints the abilities of platform and drivers, according to the first power domain with
//! CPUs.

use flyball_host::isst;

use crate::{
    display::Id,
    session::{Ended, Session},
};

/// Prints the information; the rest of the command line is ignored.
pub(super) fn show(session: &mut Session<'_>) -> Result<(), Ended> {
    if session.is_bios_set() {
        session.warn("\nThis option in not supported on this platform\n");
        return Ok(());
    }
    session.read_cpus();
    let isst::Platform { api_version, driver_version, mailbox, mmio, .. } = session.platform;
    session.line(&format!("Platform: API version : {api_version}\n"));
    session.line(&format!("Platform: Driver version : {driver_version}\n"));
    session.line(&format!("Platform: mbox supported : {}\n", u8::from(mailbox)));
    session.line(&format!("Platform: mmio supported : {}\n", u8::from(mmio)));
    // IO dies have no levels.
    let first = session.power_domains()?.into_iter().find(|id| id.cpu >= 0);
    show_profile_features(session, first)?;
    show_core_power(session, first)
}

/// SST-PP, and whether any of its levels has SST-TF and SST-BF.
fn show_profile_features(session: &mut Session<'_>, first: Option<Id>) -> Result<(), Ended> {
    let mut levels = None;
    let (mut turbo_freq, mut base_freq) = (false, false);
    if let Some(id) = first {
        levels = session.levels(&id)?.ok();
        for level in 0..=levels.map_or(0, |levels| levels.highest) {
            if let Ok(control) = session.control(&id, level)? {
                turbo_freq |= control.features.turbo_freq;
                base_freq |= control.features.base_freq;
            }
        }
    }
    // `levels` returns level 0, locked, if the mailbox failed. The tool treats an answer as missing
    // only if all of it is zero.
    let levels = levels.filter(|levels| levels.enabled || levels.locked || levels.highest > 0);
    if levels.is_some_and(|levels| levels.enabled) {
        session.line("Intel(R) SST-PP (feature perf-profile) is supported\n");
    } else {
        session.line("Intel(R) SST-PP (feature perf-profile) is not supported\n");
        session.line("Only performance level 0 (base level) is present\n");
    }
    if levels.is_some_and(|levels| levels.locked) {
        session.line("TDP level change control is locked\n");
    } else {
        let highest = levels.map_or(0, |levels| levels.highest);
        session.line(&format!("TDP level change control is unlocked, max level: {highest}\n"));
    }
    session.line(&format!("Intel(R) SST-TF (feature turbo-freq) is {}supported\n", not(turbo_freq)));
    session.line(&format!("Intel(R) SST-BF (feature base-freq) is {}supported\n", not(base_freq)));
    Ok(())
}

fn show_core_power(session: &mut Session<'_>, first: Option<Id>) -> Result<(), Ended> {
    let power = match first {
        Some(id) => {
            let power = session.at(&id, |access, place| access.pm_config(place));
            session.ask(power)?.ok()
        }
        None => None,
    };
    match power {
        Some(power) => {
            let not = not(power.supported);
            session.line(&format!("Intel(R) SST-CP (feature core-power) is {not}supported\n"));
        }
        None => session.line("Intel(R) SST-CP (feature core-power) status is unknown\n"),
    }
    Ok(())
}

fn not(has: bool) -> &'static str {
    if has { "" } else { "not " }
}
