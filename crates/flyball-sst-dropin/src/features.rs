//! The commands of base-freq and turbo-freq.

use flyball_host::{MegaHertz, isst::legacy, msr::MSR_TURBO_RATIO_LIMIT};

use flyball_sst::access::Clos;

use crate::{
    bios,
    display::Id,
    levels, online,
    options::Options,
    power,
    session::{Code, Control, Ended, FAILED, Session},
    show, turbo,
};

/// `base-freq info`.
pub(super) fn base_info(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    let Some(level) = options.level else {
        session.error("Invalid command: specify tdp_level");
        return Err(Ended(1));
    };
    session.report(|session, id| {
        let base = if session.is_bios_set() {
            Ok(bios::base_freq(session, id)?)
        } else {
            levels::base_freq(session, id, level)?
        };
        match base {
            Ok(base) => show::show_base_freq(session, id, &base),
            Err(_) => {
                session.error(&format!("Failed to get base-freq info at this level {level}"));
                session.display.finish();
                return Err(Ended(1));
            }
        }
        Ok(())
    })
}

/// `base-freq enable` and `disable`.
pub(super) fn set_base(session: &mut Session<'_>, options: &Options, on: bool) -> Result<(), Ended> {
    session.report(|session, id| {
        let result = set_base_of(session, id, options, on)?;
        session.result(id, "base-freq", if on { "enable" } else { "disable" }, result);
        Ok(())
    })
}

/// Switches SST-BF of one domain (`set_pbf_for_cpu` in isst-config.c). With `--auto` the classes of
/// service are set before the feature is enabled, and disabled again if that fails.
fn set_base_of(
    session: &mut Session<'_>,
    id: &Id,
    options: &Options,
    on: bool,
) -> Result<Result<(), Code>, Ended> {
    if session.is_bios_set() {
        bios::set_limits(session, id, on)?;
        return Ok(Ok(()));
    }
    let (level, control) = answered!(current(session, id)?);
    if !control.features.base_freq {
        session.error(&format!("base-freq feature is not present at this level {level}"));
        return Ok(Err(FAILED));
    }
    // Classes first: base-freq without them would briefly slow the wrong cores.
    if options.auto && on {
        answered!(prefer_high_cores(session, id)?);
    }
    let result = set_features(session, id, true, on)?;
    if options.auto {
        match result {
            Err(_) => {
                // The result is base-freq's error; an error of this cleanup is not reported.
                let _ = power::set_qos(session, id, false, 0)?;
            }
            Ok(()) if on => online::raise_min(session, id)?,
            Ok(()) => online::lower_min(session, id)?,
        }
        if !on {
            // Also after an error above, and then a second time, like the original.
            let _ = power::set_qos(session, id, false, 1)?;
        }
    }
    Ok(result)
}

/// The current level and its features.
fn current(session: &mut Session<'_>, id: &Id) -> Result<Result<(u8, Control), Code>, Ended> {
    let levels = answered!(session.levels(id)?, session, "Failed to get number of levels");
    match session.control(id, levels.current)? {
        Ok(control) => Ok(Ok((levels.current, control))),
        Err(code) => {
            session.error("Failed to get current level");
            Ok(Err(code))
        }
    }
}

/// Switches one feature without changing the other.
fn set_features(session: &mut Session<'_>, id: &Id, base: bool, on: bool) -> Result<Result<(), Code>, Ended> {
    // On an error use level 0, which every part has.
    let level = session.levels(id)?.map_or(0, |levels| levels.current);
    let control = answered!(session.control(id, level)?);
    if !base && on && !control.core_power_on {
        session.display.message(false, "Make sure to execute before: core-power enable");
    }
    let features = control.features;
    // One command sets both, so write the other one as it was read.
    let (base_freq, turbo_freq) =
        if base { (on, features.turbo_freq_on) } else { (features.base_freq_on, on) };
    let answer = session.at(id, |access, place| access.set_features(place, base_freq, turbo_freq));
    session.ask(answer)
}

/// Classes of service for base-freq: class 0 for the high-priority cores, class 3 for the others.
fn prefer_high_cores(session: &mut Session<'_>, id: &Id) -> Result<Result<(), Code>, Ended> {
    if id.cpu < 0 {
        return Ok(Ok(()));
    }
    let levels = answered!(session.levels(id)?);
    let (base, high) = answered!(levels::base_freq(session, id, levels.current.into())?);
    // set_core_priority_and_min() fails without a high-priority core.
    if high.is_empty() {
        return Ok(Err(FAILED));
    }
    answered!(set_classes(session, id, base.high, base.low)?);
    for cpu in session.domain_cpus(id) {
        let own = session.id(cpu.number);
        let class = if high.contains(cpu.number) { 0 } else { 3 };
        answered!(power::associate(session, &own, class)?, session, "isst_clos_associate failed");
    }
    power::set_qos(session, id, true, 1)
}

/// Gives class 0 one minimum frequency and the highest priority, classes 1 to 3 another and the
/// lowest priority.
fn set_classes(
    session: &mut Session<'_>,
    id: &Id,
    high: MegaHertz,
    low: MegaHertz,
) -> Result<Result<(), Code>, Ended> {
    for class in 0..4 {
        let before = answered!(power::read_class(session, id, class)?, session, "isst_pm_get_clos failed");
        // Weight 0 and EPP 0 are the highest priority, 15 the lowest.
        let (min, least) = if class == 0 { (high, 0) } else { (low, 15) };
        let clos = Clos { min, max: Clos::NO_LIMIT, epp: least, weight: least, desired: before.desired };
        answered!(power::write_class(session, id, class, &clos)?, session, "isst_set_clos failed");
    }
    Ok(Ok(()))
}

/// `turbo-freq info`.
pub(super) fn turbo_info(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    let Some(level) = options.level else {
        // An empty line follows it.
        session.error("Invalid command: specify tdp_level\n");
        return Err(Ended(1));
    };
    session.report(|session, id| match levels::turbo_freq(session, id, level, options.bucket)? {
        Ok(turbo) => {
            show::show_turbo_freq(session, id, &turbo, options);
            Ok(())
        }
        Err(_) => {
            session.error(&format!("Failed to get turbo-freq info at this level {level}"));
            session.display.finish();
            Err(Ended(1))
        }
    })
}

/// `turbo-freq enable` and `disable`.
pub(super) fn set_turbo(session: &mut Session<'_>, options: &Options, on: bool) -> Result<(), Ended> {
    session.display.start();
    let mut failed = false;
    session.each(|session, id| {
        let result = set_turbo_of(session, id, options, on)?;
        if on {
            failed |= result.is_err();
            session.result(id, "turbo-freq", "enable", result);
        } else {
            // Enabling changed the turbo limits, so restore them.
            restore_turbo_limits(session, id, options.turbo_limits)?;
            session.result(id, "turbo-freq", "disable", result);
        }
        Ok(())
    })?;
    if on && options.auto && !failed {
        let (id, result) = prefer_targets(session)?;
        session.result(&id, "turbo-freq --auto", "enable", result);
    }
    session.display.finish();
    Ok(())
}

/// Switches SST-TF of one domain (`set_fact_for_cpu` in isst-config.c). SST-TF needs classes of
/// service, so they are enabled first. The turbo ratio limits must be raised, or they would still
/// cap the high-priority cores.
fn set_turbo_of(
    session: &mut Session<'_>,
    id: &Id,
    options: &Options,
    on: bool,
) -> Result<Result<(), Code>, Ended> {
    // SST-TF raises turbo limits, which have no effect while turbo is off.
    if on && online::no_turbo(session)? {
        session.error("Turbo mode is disabled");
        return Ok(Err(FAILED));
    }
    let (level, control) = answered!(current(session, id)?);
    if !control.features.turbo_freq {
        session.error(&format!("turbo-freq feature is not present at this level {level}"));
        return Ok(Err(FAILED));
    }
    if on {
        answered!(power::set_qos(session, id, true, 1)?);
    }
    let mut result = set_features(session, id, false, on)?;
    if on && result.is_ok() {
        // The original reads the levels here only for a possible error.
        result = session.levels(id)?.map(|_| ());
        if result.is_ok() && id.cpu >= 0 {
            result = turbo::set_limits(session, id, options.turbo_limits)?;
        }
    }
    // On: clean up only after an error. Off: always, but an error counts as the result.
    if options.auto && (result.is_err() || !on) {
        let _ = power::set_qos(session, id, false, 0)?;
    }
    Ok(result)
}

/// Writes the current level's turbo limits, or those that the user gave.
fn restore_turbo_limits(session: &mut Session<'_>, id: &Id, given: u64) -> Result<(), Ended> {
    if id.cpu < 0 {
        return Ok(());
    }
    let mut limits = given;
    if limits == 0 {
        let Ok(levels) = session.levels(id)? else { return Ok(()) };
        let row = session.at(id, |access, place| access.turbo_limits(place, levels.current));
        let Ok(row) = session.ask(row)? else { return Ok(()) };
        // The register has eight ratios of 100 MHz, bucket 0 in its lowest byte.
        limits = u64::from_le_bytes(row[0].map(|limit| (limit.0 / 100).min(0xff) as u8));
    }
    let register = MSR_TURBO_RATIO_LIMIT;
    let answer = legacy::write_msr(session.host, id.cpu.unsigned_abs(), register, limits);
    let _ = session.ask_msr(id, register, true, answer)?;
    Ok(())
}

/// Classes of service for turbo-freq: class 0 for the target CPUs and their siblings, class 3 for
/// all others.
fn prefer_targets(session: &mut Session<'_>) -> Result<(Id, Result<(), Code>), Ended> {
    let mut targets = session.targets.clone().unwrap_or_default().intersection(session.map.present());
    for cpu in targets.clone().iter() {
        // A class belongs to a core: a sibling in class 3 would undo the target's class.
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        if let Some(siblings) = session.host.read(&path).ok().and_then(|text| text.parse().ok()) {
            targets = targets.union(&siblings);
        }
    }
    let mut set = std::collections::BTreeSet::new();
    for cpu in session.map.present().iter().collect::<Vec<_>>() {
        if !session.seems_online(cpu) {
            continue;
        }
        let id = session.id(cpu);
        // Classes belong to the package, so once each is enough.
        if set.insert((id.package, id.die, id.domain)) {
            if let Err(code) = set_classes(session, &id, MegaHertz(0), MegaHertz(0))? {
                return Ok((id, Err(code)));
            }
        }
        let class = if targets.contains(cpu) { 0 } else { 3 };
        if let Err(code) = power::associate(session, &id, class)? {
            return Ok((id, Err(code)));
        }
    }
    Ok((Id { cpu: -1, package: -1, die: -1, domain: -1 }, Ok(())))
}
