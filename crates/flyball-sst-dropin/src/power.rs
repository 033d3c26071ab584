//! The commands of core-power: classes of service, and the class of each core.

use flyball_host::{Errno, HostError, MegaHertz, Op};

use flyball_sst::access::{
    Clos, DomainAddress, Qos,
    commands::{PM_CLOS_OFFSET, PQR_ASSOC_OFFSET},
};

use crate::{
    display::Id,
    options::Options,
    session::{Code, Ended, FAILED, Session, place},
};

/// `EINVAL`, negative: core-power cannot be disabled while turbo-freq is on.
const REFUSED: Code = -22;

/// The power domains of a package to which a class or the switch is written: all of them on TPMI.
fn places(session: &Session<'_>, id: &Id) -> Vec<DomainAddress> {
    let Some(own) = place(id) else { return Vec::new() };
    if !session.platform.is_tpmi() {
        return vec![own];
    }
    // The tool's arrays have room for eight (MAX_PUNIT_PER_DIE).
    let domains = session.access().domains(own.package).into_iter().filter(|&domain| domain < 8);
    domains.map(|domain| DomainAddress { domain, ..own }).collect()
}

/// Switches classes of service. The priority type is written with the switch, so the old one is
/// lost, like in the tool.
///
/// Mailbox parts have two switches, SST-CP's and that of the classes (`mbox_pm_qos_config` in
/// isst-core-mbox.c). The first may fail on firmware without SST-CP, where the second still works,
/// so its error is only reported.
pub(super) fn set_qos(
    session: &mut Session<'_>,
    id: &Id,
    on: bool,
    kind: u32,
) -> Result<Result<(), Code>, Ended> {
    let tpmi = session.platform.is_tpmi();
    if !tpmi {
        // Only mailbox parts need this check; TPMI drivers reject it themselves.
        if !on {
            let level = session.levels(id)?.map_or(0, |levels| levels.current);
            match session.control(id, level)? {
                Ok(control) if control.features.turbo_freq_on => {
                    session.error("Ignoring request, turbo-freq feature is still enabled");
                    return Ok(Err(REFUSED));
                }
                Ok(_) => {}
                Err(code) => return Ok(Err(code)),
            }
        }
        let answer = session.at(id, |access, place| access.set_pm_config(place, on));
        if session.ask(answer)?.is_err() {
            session.display.message(false, "WRITE_PM_CONFIG command failed, ignoring error");
        }
        // Read only for a possible error: the write below replaces everything.
        let answer = session.at(id, |access, place| access.qos(place));
        answered!(session.ask(answer)?, session, "CLOS_PM_QOS_CONFIG command failed");
        if kind > 1 {
            session.error("Invalid priority type: Changing type to ordered");
        }
    } else if kind > 1 {
        // Older drivers would accept it, and the bits would spill into the next field.
        return Ok(Err(FAILED));
    }
    let qos = Qos { enabled: on, ordered: kind != 0 };
    // The switch is per package on TPMI parts, but each domain has its own register.
    for place in places(session, id) {
        let answer = session.access().set_qos(&place, qos);
        answered!(session.ask(answer)?);
    }
    Ok(Ok(()))
}

/// `core-power enable` and `disable`.
pub(super) fn enable(session: &mut Session<'_>, options: &Options, on: bool) -> Result<(), Ended> {
    // CPU 0 represents all, like in the original.
    if on && session.host.exists("/sys/devices/system/cpu/cpu0/cpufreq") {
        session.warn("cpufreq subsystem and core-power enable will interfere with each other!\n");
    }
    session.report(|session, id| {
        let power = session.at(id, |access, place| access.pm_config(place));
        // An error does not mean "unsupported"; then try the switch itself.
        if session.ask(power)?.is_ok_and(|power| !power.supported) {
            session.error("core-power not supported");
            return Ok(());
        }
        // On these parts the original requests the ordered type regardless of the option.
        let kind = if session.model.is_skylake_based() { 1 } else { options.priority };
        let result = set_qos(session, id, on, kind)?;
        if result.is_err() {
            session.error("isst_pm_qos_config failed");
        }
        session.result(id, "core-power", if on { "enable" } else { "disable" }, result);
        Ok(())
    })
}

/// `core-power info`.
pub(super) fn info(session: &mut Session<'_>) -> Result<(), Ended> {
    session.report(|session, id| {
        let qos = session.at(id, |access, place| access.qos(place));
        let Ok(qos) = session.ask(qos)? else {
            session.error("isst_clos_get_info failed");
            return Ok(());
        };
        let power = session.at(id, |access, place| access.pm_config(place));
        let power = session.ask(power)?.unwrap_or_default();
        session.display.record(id, |lines| {
            lines.section("core-power", |lines| {
                lines.value("support-status", if power.supported { "supported" } else { "unsupported" });
                lines.value("enable-status", if power.enabled { "enabled" } else { "disabled" });
                lines.value("clos-enable-status", if qos.enabled { "enabled" } else { "disabled" });
                lines.value("priority-type", if qos.ordered { "ordered" } else { "proportional" });
            });
        });
        Ok(())
    })
}

pub(super) fn read_class(session: &mut Session<'_>, id: &Id, class: u8) -> Result<Result<Clos, Code>, Ended> {
    let answer = session.at(id, |access, place| access.clos(place, class));
    session.ask_class(id, PM_CLOS_OFFSET + 4 * u32::from(class), false, answer)
}

pub(super) fn write_class(
    session: &mut Session<'_>,
    id: &Id,
    class: u8,
    clos: &Clos,
) -> Result<Result<(), Code>, Ended> {
    for place in places(session, id) {
        let answer = session.access().set_clos(&place, class, clos);
        answered!(session.ask_class(id, PM_CLOS_OFFSET + 4 * u32::from(class), true, answer)?);
    }
    Ok(Ok(()))
}

/// Puts a CPU's core into a class.
pub(super) fn associate(session: &mut Session<'_>, id: &Id, class: u8) -> Result<Result<(), Code>, Ended> {
    let core = core(session, id);
    let answer = session.at(id, |access, place| access.associate(place, core, class));
    session.ask_class(id, PQR_ASSOC_OFFSET + 4 * u32::from(core), true, answer)
}

fn core(session: &Session<'_>, id: &Id) -> u16 {
    u32::try_from(id.cpu).ok().and_then(|cpu| session.map.get(cpu)).map_or(0, |cpu| cpu.core)
}

/// The class in `--clos`, if it exists.
fn class(options: &Options) -> Option<u8> {
    options.clos.and_then(|clos| u8::try_from(clos).ok()).filter(|&clos| clos <= 3)
}

/// `core-power config`.
pub(super) fn config(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    let Some(class) = class(options) else {
        session.error("Invalid clos id\n");
        return Err(Ended(0));
    };
    let skylake = session.model.is_skylake_based();
    let nibble = |session: &mut Session<'_>, value: Option<u32>, name: &str| match value {
        Some(value) if value <= 15 => value as u8,
        // The -1 of "not given", truncated to four bits (mbox_set_clos() in isst-core-mbox.c).
        _ if skylake => 15,
        _ => {
            session.warn(&format!("{name} is not specified or invalid, default: 0\n"));
            0
        }
    };
    let epp = nibble(session, options.epp, "clos epp");
    let weight = nibble(session, options.weight, "clos frequency weight");
    // Ratios on the mailbox, MHz on TPMI.
    let unit = if session.platform.is_tpmi() { 1 } else { 100 };
    let (min, max) = (options.min.map(|min| min / unit), options.max.map(|max| max / unit));
    if min.is_none() {
        session.warn("clos min is not specified, default: 0\n");
    }
    if max.is_none() {
        session.warn("clos max is not specified, default: Max frequency (ratio 0xff)\n");
    }
    if options.desired.is_none_or(|desired| desired / unit != 0) {
        session.warn("clos desired is not supported on this platform\n");
    }
    let (min, max) = (scaled(session, min.unwrap_or(0)), scaled(session, max.unwrap_or(0xff)));
    session.report(|session, id| {
        // An IO die has registers, but no cores for a class.
        if id.cpu < 0 {
            return Ok(());
        }
        let result = if fits(min) && fits(max) {
            write_class(session, id, class, &Clos { min, max, epp, weight, desired: MegaHertz(0) })?
        } else {
            // Eight bits per field: a larger ratio would spill into the next one. Older drivers do
            // not check.
            let error = HostError::new(Op::Isst, format!("a class from {min} to {max}"), Errno::INVAL);
            session.ask::<()>(Err(error))?
        };
        match result {
            Ok(()) => session.result(id, "core-power", "config", Ok(())),
            Err(_) => session.error("isst_set_clos failed"),
        }
        Ok(())
    })
}

/// Converts a frequency on the command line to MHz. Like the tool, it treats small numbers as
/// ratios on TPMI too.
fn scaled(session: &Session<'_>, value: u32) -> MegaHertz {
    let ratio = !session.platform.is_tpmi() || value <= 0xff;
    MegaHertz(if ratio { value.saturating_mul(100) } else { value })
}

fn fits(frequency: MegaHertz) -> bool {
    frequency.0 / 100 <= 0xff
}

/// `core-power get-config`.
pub(super) fn show_config(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    let Some(class) = class(options) else {
        session.error("Invalid clos id\n");
        session.display.finish();
        return Err(Ended(0));
    };
    session.report(|session, id| {
        let Ok(clos) = read_class(session, id, class)? else {
            session.error("isst_pm_get_clos failed");
            return Ok(());
        };
        session.display.record(id, |lines| {
            lines.section("core-power", |lines| {
                lines.value("clos", class);
                lines.value("epp", clos.epp);
                lines.value("clos-proportional-priority", clos.weight);
                lines.value("clos-min", clos.min);
                if clos.max == Clos::NO_LIMIT {
                    lines.value("clos-max", "Max Turbo frequency");
                } else {
                    lines.value("clos-max", clos.max);
                }
                lines.value("clos-desired", clos.desired);
            });
        });
        Ok(())
    })
}

/// `core-power assoc`. Errors are reported; the tool ignores them.
pub(super) fn assoc(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    let Some(class) = class(options) else {
        session.error("Invalid clos id\n");
        return Err(Ended(0));
    };
    session.display.start();
    if session.targets.is_some() {
        session.each(|session, id| {
            let result = associate(session, id, class)?;
            session.result(id, "core-power", "assoc", result);
            Ok(())
        })?;
    } else {
        session.error("Invalid target cpu. Specify with [-c|--cpu]");
    }
    session.display.finish();
    Ok(())
}

/// `core-power get-assoc`.
pub(super) fn show_assoc(session: &mut Session<'_>) -> Result<(), Ended> {
    if session.targets.is_none() {
        session.error("Invalid target cpu. Specify with [-c|--cpu]");
        return Err(Ended(0));
    }
    session.report(|session, id| {
        let core = core(session, id);
        let class = session.at(id, |access, place| access.class_of(place, core));
        match session.ask_class(id, PQR_ASSOC_OFFSET + 4 * u32::from(core), false, class)? {
            Ok(class) => {
                session
                    .display
                    .record(id, |lines| lines.section("get-assoc", |lines| lines.value("clos", class)));
            }
            Err(_) => session.error("isst_clos_get_assoc_status failed"),
        }
        Ok(())
    })
}
