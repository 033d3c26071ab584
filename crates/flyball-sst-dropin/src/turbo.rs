//! turbo-mode: switches turbo with cpufreq's upper limit, and sets the package's turbo ratio
//! limits.

use flyball_host::{isst::legacy, msr::MSR_TURBO_RATIO_LIMIT};

use crate::{
    display::Id,
    online,
    options::Options,
    session::{Code, Ended, Session},
};

/// `turbo-mode enable` and `disable`, for all online CPUs, regardless of `--cpu`.
pub(super) fn set_mode(session: &mut Session<'_>, on: bool) -> Result<(), Ended> {
    session.display.start();
    let mut lifted = std::collections::BTreeSet::new();
    for cpu in 0..session.map.room {
        // The tool ends at the first CPU number in the kernel's range that the machine lacks.
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        // Gaps in the numbers are normal on machines that reserve numbers for hotplug.
        if session.strict && !session.map.present().contains(cpu) {
            continue;
        }
        if cpu != 0 && session.number(!session.strict, &path)? == 0 {
            continue;
        }
        let id = session.id(cpu);
        if on {
            // Once per domain, since each call covers all of its CPUs.
            if lifted.insert((id.package, id.die, id.domain)) {
                lift_base_limit(session, &id)?;
            }
        } else {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/base_frequency");
            let base = session.number(false, &path)?;
            online::write_limit(session, cpu, "scaling_max_freq", base);
        }
        session.result(&id, "turbo-mode", if on { "enable" } else { "disable" }, Ok(()));
    }
    session.display.finish();
    Ok(())
}

/// Raises the upper limit of a domain's CPUs if it equals the base frequency, as after `disable`.
/// Another limit, set by the user, stays (the tool overwrites it).
#[allow(clippy::unnecessary_wraps, reason = "steps share one form")]
fn lift_base_limit(session: &mut Session<'_>, id: &Id) -> Result<(), Ended> {
    for cpu in session.domain_cpus(id) {
        let folder = format!("/sys/devices/system/cpu/cpu{}/cpufreq", cpu.number);
        let read = |name: &str| session.host.read(&format!("{folder}/{name}")).ok();
        let (max, base) = (read("scaling_max_freq"), read("base_frequency"));
        if max.is_some() && max == base {
            online::copy_limit(session, cpu.number, "cpuinfo_max_freq", "scaling_max_freq");
        }
    }
    Ok(())
}

/// Writes the turbo ratio limits; 0 removes all limits.
pub(super) fn set_limits(session: &mut Session<'_>, id: &Id, limits: u64) -> Result<Result<(), Code>, Ended> {
    // For ratios that the processor cannot reach, its own limits apply, so all ones remove every
    // limit.
    let limits = if limits == 0 { u64::MAX } else { limits };
    let register = MSR_TURBO_RATIO_LIMIT;
    let answer = legacy::write_msr(session.host, id.cpu.unsigned_abs(), register, limits);
    session.ask_msr(id, register, true, answer)
}

/// `turbo-mode get-trl` and `set-trl`.
pub(super) fn limits(session: &mut Session<'_>, options: &Options, set: bool) -> Result<(), Ended> {
    session.report(|session, id| {
        if id.cpu < 0 {
            return Ok(());
        }
        if set {
            if options.turbo_limits == 0 {
                session.error("Invalid TRL. Specify with [-t|--trl]");
                return Err(Ended(0));
            }
            session.check_privilege()?;
            let result = set_limits(session, id, options.turbo_limits)?;
            session.result(id, "turbo-mode", "set-trl", result);
            return Ok(());
        }
        let register = MSR_TURBO_RATIO_LIMIT;
        let answer = legacy::read_msr(session.host, id.cpu.unsigned_abs(), register);
        match session.ask_msr(id, register, false, answer)? {
            Ok(limits) => session.display.record(id, |lines| {
                lines.section("get-trl", |lines| lines.value("trl", format_args!("{limits:#x}")));
            }),
            Err(code) => session.result(id, "turbo-mode", "get-trl", Err(code)),
        }
        Ok(())
    })
}
