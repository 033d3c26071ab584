//! A cgroup partition as one location. Its content is `absent`, or its CPUs and kind, such as `3
//! isolated`.
//!
//! Removing the group first moves its tasks to the root group, so any process can undo it
//! (Documentation/admin-guide/cgroup-v2.rst, Cpuset).

use std::time::Duration;

pub use flyball_host::cgroup::ROOT;
use flyball_host::{Errno, Host, HostError, Op, cgroup::Group};

/// The content of a partition that does not exist.
pub const ABSENT: &str = "absent";

/// Reads the partition's CPUs and kind, or [`ABSENT`].
pub(crate) fn read(host: &dyn Host, path: &str) -> Result<Vec<u8>, HostError> {
    let group = Group::at(path);
    if !group.exists(host) {
        // Without the root group, the state of its children is unknown.
        return if host.exists(ROOT) {
            Ok(ABSENT.as_bytes().to_vec())
        } else {
            Err(HostError::new(Op::Read, path, Errno::NOENT))
        };
    }
    Ok(format!("{} {}", group.cpus(host)?, group.kind(host)?).into_bytes())
}

/// Creates the group (`CPUS KIND`) or removes it.
pub(crate) fn write(host: &dyn Host, path: &str, content: &str) -> Result<(), HostError> {
    let group = Group::at(path);
    let Some((cpus, kind)) = content.trim().split_once(' ') else {
        return remove(host, &group);
    };
    // Set the CPUs before the kind: a group without CPUs cannot become a partition, and the kernel
    // would mark it invalid.
    group.create(host)?;
    group.set_cpus(host, cpus)?;
    group.set_kind_text(host, kind)
}

fn remove(host: &dyn Host, group: &Group) -> Result<(), HostError> {
    if !group.exists(host) {
        return Ok(());
    }
    let mut last = Ok(());
    // rmdir of a group fails with EBUSY while it contains a task. A task that was just moved or is
    // exiting leaves within milliseconds, so three quarters of a second in all is far more than
    // enough.
    for pause in [0_u64, 1, 10, 50, 200, 500] {
        host.sleep(Duration::from_millis(pause));
        group.release_tasks(host);
        last = group.remove(host);
        match &last {
            // Exiting processes still count for a moment.
            Err(error) if error.errno == Errno::BUSY => {}
            _ => break,
        }
    }
    last
}
