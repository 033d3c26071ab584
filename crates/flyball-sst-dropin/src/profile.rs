//! The commands of perf-profile, which show levels and change the level.

use flyball_host::{isst::legacy, msr::MSR_CONFIG_TDP_CONTROL};
use flyball_sst::access::Levels;

use crate::{
    bios,
    display::Id,
    levels::read_levels,
    online,
    options::Options,
    session::{Code, Ended, FAILED, Session},
    show::show_levels,
};

/// One of the commands that show a single number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Single {
    Levels,
    Version,
    Enabled,
    Current,
    Locked,
}

impl Single {
    /// The label. Only the current level's has an underscore.
    fn label(self) -> &'static str {
        match self {
            Single::Levels => "get-config-levels",
            Single::Version => "get-config-version",
            Single::Enabled => "get-config-enabled",
            Single::Current => "get-config-current_level",
            Single::Locked => "get-lock-status",
        }
    }

    fn value(self, levels: &Levels) -> String {
        let word = |value: bool, no: &str, yes: &str| if value { yes.to_owned() } else { no.to_owned() };
        match self {
            Single::Levels => levels.highest.to_string(),
            Single::Version => levels.version.to_string(),
            Single::Enabled => word(levels.enabled, "disabled", "enabled"),
            Single::Current => levels.current.to_string(),
            Single::Locked => word(levels.locked, "unlocked", "locked"),
        }
    }
}

pub(super) fn single(session: &mut Session<'_>, what: Single) -> Result<(), Ended> {
    session.report(|session, id| {
        match session.levels(id)? {
            Ok(levels) => session.display.record(id, |lines| lines.value(what.label(), what.value(&levels))),
            // The original continues with the next package here; the commands below end.
            Err(_) => session.error("get_tdp_* failed"),
        }
        Ok(())
    })
}

/// `perf-profile info`.
pub(super) fn info(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    session.report(|session, id| {
        if session.is_bios_set() {
            return bios::info(session, id, options);
        }
        match read_levels(session, id, options.level)? {
            Ok(levels) => {
                show_levels(session, id, &levels);
                Ok(())
            }
            Err(_) => {
                session.error(&format!("Failed to get perf-profile info on cpu {}", id.cpu));
                session.display.finish();
                Err(Ended(1))
            }
        }
    })
}

/// `perf-profile set-config-level`.
pub(super) fn set_level(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    let Some(level) = options.level else {
        session.error("Invalid command: specify tdp_level");
        return Err(Ended(1));
    };
    session.report(|session, id| set_level_of(session, id, level, options))
}

fn set_level_of(session: &mut Session<'_>, id: &Id, level: u32, options: &Options) -> Result<(), Ended> {
    let Ok(levels) = session.levels(id)? else {
        session.error("Get TDP level failed");
        session.display.finish();
        return Err(Ended(1));
    };
    // The original skips it too ("TDP level already set. Skipped").
    if u32::from(levels.current) != level && change(session, id, level)?.is_err() {
        session.error("Set TDP level failed");
        session.display.finish();
        return Err(Ended(1));
    }
    session.result(id, "perf-profile", "set_tdp_level", Ok(()));
    if options.online && id.cpu >= 0 {
        // The level was set or is the current one, so it fits.
        online::follow_level(session, id, level as u8)?;
    }
    Ok(())
}

fn change(session: &mut Session<'_>, id: &Id, level: u32) -> Result<Result<(), Code>, Ended> {
    // A number that does not fit the field would arrive truncated.
    let Ok(number) = u8::try_from(level) else {
        if !session.platform.is_tpmi() {
            session.error(&format!("Set TDP level failed for level {level}"));
        }
        return Ok(Err(FAILED));
    };
    if session.platform.is_tpmi() {
        let answer = session.at(id, |access, place| access.set_level(place, number));
        return session.ask(answer);
    }
    let register = MSR_CONFIG_TDP_CONTROL;
    let lock = legacy::read_msr(session.host, id.cpu.unsigned_abs(), register);
    let lock = session.ask_msr(id, register, false, lock)?;
    // Bit 31 of MSR_CONFIG_TDP_CONTROL is its lock (SDM vol. 4).
    if lock.is_ok_and(|lock| lock >> 31 & 1 != 0) {
        session.error("TDP is locked");
        return Ok(Err(FAILED));
    }
    let answer = session.at(id, |access, place| access.set_level(place, number));
    let answer = session.ask(answer)?;
    if answer.is_err() {
        session.error(&format!("Set TDP level failed for level {level}"));
    }
    Ok(answer)
}
