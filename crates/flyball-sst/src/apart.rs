//! CPUs set apart: kept from ordinary work by an isolated cgroup v2 partition, instead of taken offline.
//!
//! A partition takes its CPUs out of the scheduler's reach (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus.
//! partition"); they stay online, so that nothing loses its frequency policy, its interrupts or its place in sysfs.
//! There is one partition a power domain, in a folder of ours below the root of the tree.

use flyball_host::{CpuList, Errno, Host, HostError, Op};

const CGROUP: &str = "/sys/fs/cgroup";

/// The folder of a power domain's partition.
pub fn folder(package: u8, domain: u8) -> String {
    format!("{CGROUP}/flyball-sst-{package}-{domain}")
}

/// What stands of a power domain's partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Apart {
    /// Nothing, and the root does not give cpusets to its groups.
    None,
    /// Nothing, but cpusets are given: by us earlier, or by somebody else.
    Ready,
    /// These CPUs are apart.
    Cpus(CpuList),
}

fn gives_cpusets(host: &dyn Host) -> Result<bool, HostError> {
    let has = |name: &str| {
        let text = host.read(&format!("{CGROUP}/{name}"))?;
        Ok::<bool, HostError>(text.split_whitespace().any(|word| word == "cpuset"))
    };
    match has("cgroup.controllers") {
        Ok(true) => has("cgroup.subtree_control"),
        Ok(false) => Err(missing()),
        Err(error) if error.is_absent() => Err(missing()),
        Err(error) => Err(error),
    }
}

fn missing() -> HostError {
    let what = format!("cgroup v2 with the cpuset controller, at {CGROUP}");
    HostError::new(Op::Read, what, Errno::NODEV)
}

/// Reads it.
///
/// # Errors
/// `ENODEV` where there is no cgroup v2 with cpusets.
pub fn read(host: &dyn Host, folder: &str) -> Result<Apart, HostError> {
    let gives = gives_cpusets(host)?;
    let partition = host.read_optional(&format!("{folder}/cpuset.cpus.partition"))?.unwrap_or_default();
    if (partition.starts_with("isolated") || partition.starts_with("root")) && !partition.contains("invalid")
    {
        let path = format!("{folder}/cpuset.cpus");
        let cpus: CpuList = host
            .read(&path)?
            .parse()
            .map_err(|_| HostError::new(Op::Read, format!("CPU list in {path}"), Errno::INVAL))?;
        return Ok(if cpus.is_empty() { Apart::Ready } else { Apart::Cpus(cpus) });
    }
    Ok(if gives { Apart::Ready } else { Apart::None })
}

/// Makes it so.
///
/// # Errors
/// What the kernel answered; `EINVAL`, with the kernel's reason, for CPUs of which it makes no partition.
pub fn write(host: &dyn Host, folder: &str, wanted: &Apart) -> Result<(), HostError> {
    let Apart::Cpus(cpus) = wanted else {
        take_back(host, folder)?;
        if *wanted == Apart::None && gives_cpusets(host)? && !anyone_uses_cpusets(host) {
            // Refused (EBUSY) where a group still hands them on: then somebody needs them.
            let _ = host.write(&format!("{CGROUP}/cgroup.subtree_control"), b"-cpuset");
        }
        return Ok(());
    };
    if !gives_cpusets(host)? {
        host.write(&format!("{CGROUP}/cgroup.subtree_control"), b"+cpuset")?;
    }
    if !host.exists(folder) {
        host.make_dir(folder)?;
    }
    let partition = format!("{folder}/cpuset.cpus.partition");
    // A partition must be an ordinary group again before its CPUs change.
    host.write(&partition, b"member")?;
    host.write(&format!("{folder}/cpuset.cpus"), cpus.to_string().as_bytes())?;
    let mut reason = String::new();
    for kind in ["isolated", "root"] {
        match host.write(&partition, kind.as_bytes()).and_then(|()| host.read(&partition)) {
            Ok(now) if now.starts_with(kind) && !now.contains("invalid") => return Ok(()),
            Ok(now) => reason = now,
            Err(error) => reason = error.to_string(),
        }
    }
    take_back(host, folder)?;
    Err(HostError::new(Op::Write, format!("partition of CPUs {cpus} ({reason})"), Errno::INVAL))
}

fn take_back(host: &dyn Host, folder: &str) -> Result<(), HostError> {
    let partition = format!("{folder}/cpuset.cpus.partition");
    if !host.exists(folder) {
        return Ok(());
    }
    if host.exists(&partition) {
        host.write(&partition, b"member")?;
    }
    // A group that somebody put tasks into stays, as an ordinary one.
    let _ = host.remove_dir(folder);
    Ok(())
}

/// Whether some group of the root has CPUs of its own.
pub fn anyone_uses_cpusets(host: &dyn Host) -> bool {
    let names = host.list(CGROUP).unwrap_or_default();
    names.iter().any(|name| {
        host.read(&format!("{CGROUP}/{name}/cpuset.cpus")).is_ok_and(|cpus| !cpus.trim().is_empty())
            || host.read(&format!("{CGROUP}/{name}/cpuset.mems")).is_ok_and(|mems| !mems.trim().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_sst_fake::FakeMachine;

    #[test]
    fn cpus_go_apart_and_come_back_with_nothing_left_behind() {
        let machine = FakeMachine::guide(true);
        let before = machine.everything();
        let folder = folder(0, 0);
        assert_eq!(read(&machine, &folder).unwrap(), Apart::None);
        let some = Apart::Cpus("4,6,12,13".parse().unwrap());
        write(&machine, &folder, &some).unwrap();
        assert_eq!(read(&machine, &folder).unwrap(), some);
        let others = Apart::Cpus("5".parse().unwrap());
        write(&machine, &folder, &others).unwrap();
        assert_eq!(read(&machine, &folder).unwrap(), others);
        write(&machine, &folder, &Apart::Ready).unwrap();
        assert_eq!(read(&machine, &folder).unwrap(), Apart::Ready);
        write(&machine, &folder, &Apart::None).unwrap();
        assert_eq!(machine.everything(), before);
    }

    #[test]
    fn cpusets_stay_where_somebody_else_has_some() {
        let machine = FakeMachine::guide(true);
        let folder = folder(0, 0);
        machine.put(&format!("{CGROUP}/machine.slice/cpuset.cpus"), "0-3");
        write(&machine, &folder, &Apart::Cpus("5".parse().unwrap())).unwrap();
        write(&machine, &folder, &Apart::None).unwrap();
        assert_eq!(read(&machine, &folder).unwrap(), Apart::Ready);
    }
}
