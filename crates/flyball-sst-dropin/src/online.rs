//! Effects of a level change: CPUs go online, offline or into cgroup partitions, and cpufreq's
//! limits change.

use std::time::Duration;

use flyball_host::{
    CpuList, Errno, HostError, MegaHertz,
    cgroup::{Group, Kind, set_gives_cpusets},
    topology::TopologyFile,
};

use crate::{
    display::Id,
    session::{Ended, Session},
};

/// Size of the tool's buffer for the list of a partition's CPUs.
const LONGEST_LIST: usize = 511;

const UNCORE: &str = "/sys/devices/system/cpu/intel_uncore_frequency";

/// After a level change, sets the mesh limits, then switches the CPUs (`set_tdp_level_for_cpu` in
/// isst-config.c).
pub(super) fn follow_level(session: &mut Session<'_>, id: &Id, level: u8) -> Result<(), Ended> {
    session.flush();
    // The tool waits because base frequencies take a moment to change.
    session.host.sleep(Duration::from_millis(2));
    if session.model.family != 19 {
        set_mesh_limits(session, id, level)?;
    }
    session.warn("Option is set to online/offline\n");
    let cores = session.at(id, |access, place| access.level_cores(place, level));
    let Ok(cores) = session.ask(cores)? else {
        session.error("Can't get coremask, online/offline option is ignored");
        return Ok(());
    };
    let cpus = session.of_cores(id, cores);
    if session.cgroup {
        session.warn("Using cgroup v2 in lieu of online/offline\n");
        if enable_cpusets(session) && partition(session, id, &cpus, level) {
            return Ok(());
        }
    }
    set_online(session, id, &cpus, true)
}

/// Brings a domain's CPUs in `cpus` online, and takes its others offline.
pub(super) fn set_online(
    session: &mut Session<'_>,
    id: &Id,
    cpus: &CpuList,
    limits: bool,
) -> Result<(), Ended> {
    // An empty mask would take every CPU of the domain offline.
    if cpus.is_empty() {
        return Ok(());
    }
    for cpu in session.domain_cpus(id) {
        let cpu = cpu.number;
        if cpus.contains(cpu) {
            session.warn(&format!("online cpu {cpu}\n"));
            switch(session, cpu, true)?;
            if limits {
                raise_low_max(session, cpu)?;
            }
        } else {
            session.warn(&format!("offline cpu {cpu}\n"));
            switch(session, cpu, false)?;
        }
    }
    Ok(())
}

/// Brings one CPU online or takes it offline. CPU 0, which most kernels keep online, goes into a
/// cgroup instead.
pub(super) fn switch(session: &mut Session<'_>, cpu: u32, online: bool) -> Result<(), Ended> {
    if session.cgroup_cpu0 && cpu == 0 {
        session.warn("Will use cgroup v2 for CPU 0\n");
        isolate_cpu0(session, !online);
        return Ok(());
    }
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    if !session.host.exists(&path) {
        if cpu == 0 {
            session.warn("This system is not configured for CPU 0 online/offline\n");
            session.warn("Will use cgroup v2\n");
            isolate_cpu0(session, !online);
            return Ok(());
        }
        return Err(session.fatal(255, &format!("{path} open failed"), Some(Errno::NOENT)));
    }
    // In the tool, open(2) and write(2) fail with different messages. The host does both, so the
    // errno distinguishes them.
    match session.host.write(&path, if online { b"1\n" } else { b"0\n" }) {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.errno, Errno::ACCES | Errno::PERM | Errno::ROFS) => {
            Err(session.fatal(255, &format!("{path} open failed"), Some(error.errno)))
        }
        Err(error) => {
            session.warn(&format!("Online/Offline: Operation failed\n: {}\n", error.errno.describe()));
            session.failed = true;
            Ok(())
        }
    }
}

/// `--all-cpus-online`.
pub(super) fn all_online(session: &mut Session<'_>) -> Result<(), Ended> {
    session.warn("Forcing all CPUs online\n");
    let room = session.map.room;
    for cpu in 0..room {
        // The tool stops at the first CPU number in the kernel's range that the machine lacks.
        if session.strict && !session.host.exists(&format!("/sys/devices/system/cpu/cpu{cpu}")) {
            continue;
        }
        switch(session, cpu, true)?;
    }
    // It was stored while CPUs were offline; now sysfs has all CPUs, so store it again.
    if let Some(file) = TopologyFile::for_host(session.host) {
        file.remove();
    }
    Ok(())
}

/// Enables cpusets for the root's groups.
pub(super) fn enable_cpusets(session: &Session<'_>) -> bool {
    set_gives_cpusets(session.host, true).is_ok()
}

/// The group of a power domain, with the tool's name (`isolate_cpus` in isst-config.c).
fn group(id: &Id) -> Group {
    Group::named(&format!("{}-{}-{}", id.package, id.die, id.domain))
}

/// Puts the CPUs of a domain that are not in `cpus` into a partition.
fn isolate_others(session: &Session<'_>, id: &Id, cpus: &CpuList) -> bool {
    if cpus.is_empty() {
        // The tool has already created the group at this point.
        let _ = group(id).create(session.host);
        return false;
    }
    let others = session.domain_cpus(id).into_iter().filter(|cpu| !cpus.contains(cpu.number));
    let list = others.map(|cpu| cpu.number.to_string()).collect::<Vec<_>>().join(",");
    isolate(session, &group(id), list).is_ok()
}

fn isolate(session: &Session<'_>, group: &Group, mut list: String) -> Result<(), HostError> {
    group.create(session.host)?;
    // snprintf(3) into a fixed buffer truncates a longer list, possibly inside a number.
    list.truncate(LONGEST_LIST);
    group.set_cpus(session.host, &list)?;
    // "isolated" also stops load balancing (cgroup-v2.rst, since Linux 5.19); older kernels support
    // only "root".
    group.set_kind(session.host, Kind::Isolated).or_else(|_| group.set_kind(session.host, Kind::Root))
}

/// Isolates the CPUs that a level excludes. Level 0 excludes none.
pub(super) fn partition(session: &Session<'_>, id: &Id, cpus: &CpuList, level: u8) -> bool {
    if level == 0 { return_cpus(session, id) } else { isolate_others(session, id, cpus) }
}

/// Turns a domain's partition into an ordinary group again.
fn return_cpus(session: &Session<'_>, id: &Id) -> bool {
    let group = group(id);
    group.create(session.host).and_then(|()| group.set_kind(session.host, Kind::Member)).is_ok()
}

/// Isolates CPU 0 by cgroup, or undoes that.
fn isolate_cpu0(session: &mut Session<'_>, isolated: bool) {
    let id = Id { cpu: 0, package: 0, die: 0, domain: 0 };
    let group = group(&id);
    if !isolated {
        let Ok(cpus) = group.cpus(session.host) else { return };
        if !cpus.starts_with('0') || group.kind(session.host).map_or(true, |kind| kind.starts_with('m')) {
            return;
        }
    }
    let done = enable_cpusets(session)
        && if isolated {
            isolate(session, &group, "0".to_owned()).is_ok()
        } else {
            return_cpus(session, &id)
        };
    if !done {
        session.warn("Can't isolate CPU 0\n");
        session.failed = true;
    }
}

fn limit(cpu: u32, name: &str) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}")
}

pub(super) fn no_turbo(session: &mut Session<'_>) -> Result<bool, Ended> {
    // A missing file counts as set.
    Ok(session.number(false, "/sys/devices/system/cpu/intel_pstate/no_turbo")? != 0)
}

/// Removes cpufreq's upper limit if it is below the base frequency, or turbo is off.
pub(super) fn raise_low_max(session: &mut Session<'_>, cpu: u32) -> Result<(), Ended> {
    let max = session.number(false, &limit(cpu, "scaling_max_freq"))?;
    let base = session.number(false, &limit(cpu, "base_frequency"))?;
    if max < base || no_turbo(session)? {
        // INT_MAX: cpufreq clamps it to what the hardware can do. Errors are ignored, as in the
        // original.
        let _ = session.host.write(&limit(cpu, "scaling_max_freq"), b"2147483647");
    }
    Ok(())
}

/// Copies the value of one limit file to another.
pub(super) fn copy_limit(session: &Session<'_>, cpu: u32, from: &str, to: &str) {
    if let Ok(value) = session.host.read(&limit(cpu, from)) {
        // The original ignores the result; CPUs without cpufreq have no such file.
        let _ = session.host.write(&limit(cpu, to), format!("{value}\n").as_bytes());
    }
}

/// base-freq on, `--auto`: raises the lower limit of every online CPU of the domain as far as
/// possible.
pub(super) fn raise_min(session: &mut Session<'_>, id: &Id) -> Result<(), Ended> {
    for cpu in online_cpus(session, id) {
        raise_low_max(session, cpu)?;
        // The tool reads the limit back at once, when kernels still show the old value. So the old
        // value decides whether the limit ends at the base frequency.
        let min = session.number(false, &limit(cpu, "scaling_min_freq"))?;
        copy_limit(session, cpu, "cpuinfo_max_freq", "scaling_min_freq");
        let base = session.number(false, &limit(cpu, "base_frequency"))?;
        if min < base {
            write_limit(session, cpu, "scaling_min_freq", base);
        }
    }
    Ok(())
}

/// base-freq off, `--auto`: resets the lower limit to the minimum.
pub(super) fn lower_min(session: &mut Session<'_>, id: &Id) -> Result<(), Ended> {
    for cpu in online_cpus(session, id) {
        raise_low_max(session, cpu)?;
        copy_limit(session, cpu, "cpuinfo_min_freq", "scaling_min_freq");
    }
    Ok(())
}

pub(super) fn write_limit(session: &Session<'_>, cpu: u32, name: &str, value: i64) {
    let _ = session.host.write(&limit(cpu, name), value.to_string().as_bytes());
}

fn online_cpus(session: &Session<'_>, id: &Id) -> Vec<u32> {
    if id.cpu < 0 {
        return Vec::new();
    }
    let cpus = session.domain_cpus(id).into_iter().map(|cpu| cpu.number);
    cpus.filter(|&cpu| session.seems_online(cpu)).collect()
}

fn set_mesh_limits(session: &mut Session<'_>, id: &Id, level: u8) -> Result<(), Ended> {
    let uncore = session.at(id, |access, place| access.uncore(place, level));
    let Ok([max, _, min]) = session.ask(uncore)? else { return Ok(()) };
    // Without the uncore driver, firmware's limits for the level apply.
    let Some(folder) = mesh_folder(session, id) else { return Ok(()) };
    for (name, MegaHertz(value)) in [("min_freq_khz", min), ("max_freq_khz", max)] {
        // Firmware leaves 0 if a level has no limit.
        if value != 0 {
            let _ = session.host.write(&format!("{folder}/{name}"), (value * 1000).to_string().as_bytes());
        }
    }
    Ok(())
}

/// The uncore driver's folder of a domain: on mailbox parts its name has package and die, on TPMI
/// parts its files have numbers.
fn mesh_folder(session: &Session<'_>, id: &Id) -> Option<String> {
    if !session.platform.is_tpmi() {
        return Some(format!("{UNCORE}/package_{:02}_die_{:02}", id.package, id.die));
    }
    session.host.list(UNCORE).ok()?.into_iter().map(|name| format!("{UNCORE}/{name}")).find(|folder| {
        let is = |name: &str, value: i32| {
            session.host.read(&format!("{folder}/{name}")).is_ok_and(|text| text.trim() == value.to_string())
        };
        is("domain_id", id.domain) && is("package_id", id.package)
    })
}
