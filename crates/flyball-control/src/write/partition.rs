//! A partition of CPUs: a control group whose CPUs no task outside of it may run on (cgroup v2, cpuset).
//!
//! It is one location: `absent`, or its CPUs and its kind, as `3 isolated`. Taking it away sends the tasks that are in it to
//! the root group first, so that it can be undone by whoever is left (Documentation/admin-guide/cgroup-v2.rst, Cpuset).

use std::time::Duration;

use flyball_host::{Errno, Host, HostError, Op};

/// Where the kernel's control groups are.
pub const ROOT: &str = "/sys/fs/cgroup";

/// The content of a partition that is not there.
pub const ABSENT: &str = "absent";

/// What the partition holds: its CPUs and its kind, or [`ABSENT`].
pub(crate) fn read(host: &dyn Host, path: &str) -> Result<Vec<u8>, HostError> {
    if !host.exists(path) {
        // Where the root cannot be looked into either, nothing is known.
        return if host.exists(ROOT) {
            Ok(ABSENT.as_bytes().to_vec())
        } else {
            Err(HostError::new(Op::Read, path, Errno::NOENT))
        };
    }
    let cpus = host.read(&format!("{path}/cpuset.cpus"))?;
    let kind = host.read(&format!("{path}/cpuset.cpus.partition"))?;
    Ok(format!("{cpus} {kind}").into_bytes())
}

/// Makes it (`CPUS KIND`) or takes it away.
pub(crate) fn write(host: &dyn Host, path: &str, content: &str) -> Result<(), HostError> {
    let Some((cpus, kind)) = content.trim().split_once(' ') else {
        return remove(host, path);
    };
    if !host.exists(path) {
        host.make_dir(path)?;
    }
    host.write(&format!("{path}/cpuset.cpus"), cpus.as_bytes())?;
    host.write(&format!("{path}/cpuset.cpus.partition"), kind.as_bytes())
}

fn remove(host: &dyn Host, path: &str) -> Result<(), HostError> {
    if !host.exists(path) {
        return Ok(());
    }
    let mut last = Ok(());
    for pause in [0_u64, 1, 10, 50, 200, 500] {
        host.sleep(Duration::from_millis(pause));
        for pid in host.read(&format!("{path}/cgroup.procs")).unwrap_or_default().lines() {
            // One that ended meanwhile is no trouble.
            let _ = host.write(&format!("{ROOT}/cgroup.procs"), pid.as_bytes());
        }
        last = host.remove_dir(path);
        match &last {
            // Processes that are ending still count for a moment.
            Err(error) if error.errno == Errno::BUSY => {}
            _ => break,
        }
    }
    last
}
