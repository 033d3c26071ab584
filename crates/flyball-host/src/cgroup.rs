//! Cgroup v2 partitions: groups whose CPUs no outside task uses.
//!
//! A partition removes its CPUs from the scheduling domains of the other groups. The CPUs stay
//! online, so they keep their frequency policy, their interrupts and their place in sysfs
//! (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus.partition"; kernel/cgroup/cpuset.c).

use crate::{Errno, Host, HostError, Op};

/// The root of the tree of control groups.
pub const ROOT: &str = "/sys/fs/cgroup";

/// The kinds that `cpuset.cpus.partition` accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An ordinary group.
    Member,
    /// A partition with load balancing among its CPUs.
    Root,
    /// A partition without load balancing; older kernels have only `root`.
    // Added in Linux 6.1 (cgroup-v2.rst).
    Isolated,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Member => "member",
            Kind::Root => "root",
            Kind::Isolated => "isolated",
        }
    }
}

/// A control group that is a partition, or may become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group(String);

impl Group {
    /// Returns the group in a folder, given by its full path.
    pub fn at(path: impl Into<String>) -> Group {
        Group(path.into())
    }

    /// Returns a group directly below the root.
    pub fn named(name: &str) -> Group {
        Group(format!("{ROOT}/{name}"))
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    pub fn exists(&self, host: &dyn Host) -> bool {
        host.exists(&self.0)
    }

    /// Creates the group if there is none.
    pub fn create(&self, host: &dyn Host) -> Result<(), HostError> {
        if self.exists(host) { Ok(()) } else { host.make_dir(&self.0) }
    }

    /// Reads the group's CPUs, as the kernel prints them.
    ///
    /// # Errors
    /// The errno of reading; `ENOENT` if groups have no cpuset controller.
    pub fn cpus(&self, host: &dyn Host) -> Result<String, HostError> {
        host.read(&self.file("cpuset.cpus"))
    }

    pub fn set_cpus(&self, host: &dyn Host, cpus: &str) -> Result<(), HostError> {
        host.write(&self.file("cpuset.cpus"), cpus.as_bytes())
    }

    /// Reads the group's kind, as the kernel prints it: `isolated invalid (Reason)` for a partition
    /// that the kernel cannot make.
    ///
    /// # Errors
    /// The errno of reading; `ENOENT` if groups have no cpuset controller.
    pub fn kind(&self, host: &dyn Host) -> Result<String, HostError> {
        host.read(&self.file("cpuset.cpus.partition"))
    }

    /// Writes a kind. The kernel may accept it and still print it as invalid.
    pub fn set_kind(&self, host: &dyn Host, kind: Kind) -> Result<(), HostError> {
        self.set_kind_text(host, kind.word())
    }

    /// Like [`Group::set_kind`], but with the text from a journal.
    pub fn set_kind_text(&self, host: &dyn Host, kind: &str) -> Result<(), HostError> {
        host.write(&self.file("cpuset.cpus.partition"), kind.as_bytes())
    }

    /// Returns whether the group has the cpuset controller, so that it may become a partition.
    pub fn has_cpuset(&self, host: &dyn Host) -> bool {
        host.exists(&self.file("cpuset.cpus.partition"))
    }

    /// Returns whether the kernel has made the group a partition.
    ///
    /// # Errors
    /// The errno of reading, unless the file does not exist.
    pub fn is_partition(&self, host: &dyn Host) -> Result<bool, HostError> {
        let kind = host.read_optional(&self.file("cpuset.cpus.partition"))?.unwrap_or_default();
        // A partition that lost its CPUs reads back as `root invalid (reason)`: the kernel keeps
        // the written word.
        Ok((kind.starts_with(Kind::Isolated.word()) || kind.starts_with(Kind::Root.word()))
            && !kind.contains("invalid"))
    }

    /// Moves its tasks to the root group, skipping tasks that have ended.
    pub fn release_tasks(&self, host: &dyn Host) {
        for pid in host.read(&self.file("cgroup.procs")).unwrap_or_default().lines() {
            // One by one: cgroup.procs takes one process per write(2).
            let _ = host.write(&format!("{ROOT}/cgroup.procs"), pid.as_bytes());
        }
    }

    /// Removes the group.
    ///
    /// # Errors
    /// The errno of rmdir(2): `EBUSY` while it has tasks.
    pub fn remove(&self, host: &dyn Host) -> Result<(), HostError> {
        host.remove_dir(&self.0)
    }
}

/// Returns whether the root group passes the cpuset controller on to its children.
///
/// # Errors
/// `ENODEV` without cgroup v2 or its cpuset controller.
pub fn gives_cpusets(host: &dyn Host) -> Result<bool, HostError> {
    let missing = || {
        let what = format!("cgroup v2 with the cpuset controller, at {ROOT}");
        HostError::new(Op::Read, what, Errno::NODEV)
    };
    let has = |name: &str| {
        let text = host.read(&format!("{ROOT}/{name}"))?;
        Ok::<bool, HostError>(text.split_whitespace().any(|word| word == "cpuset"))
    };
    match has("cgroup.controllers") {
        // The kernel has the controller. This file decides whether child groups get its files
        // (cgroup-v2.rst, "Enabling and Disabling").
        Ok(true) => has("cgroup.subtree_control"),
        Ok(false) => Err(missing()),
        Err(error) if error.is_absent() => Err(missing()),
        Err(error) => Err(error),
    }
}

/// Switches whether the root group passes the cpuset controller on to its children.
///
/// # Errors
/// The errno of writing: `EBUSY` if a child passes it on to its own children.
pub fn set_gives_cpusets(host: &dyn Host, gives: bool) -> Result<(), HostError> {
    let word: &[u8] = if gives { b"+cpuset" } else { b"-cpuset" };
    host.write(&format!("{ROOT}/cgroup.subtree_control"), word)
}

/// Returns whether a group directly below the root has its own CPUs or memory nodes.
pub fn cpusets_in_use(host: &dyn Host) -> bool {
    let names = host.list(ROOT).unwrap_or_default();
    let set = |name: &str, file: &str| {
        host.read(&format!("{ROOT}/{name}/{file}")).is_ok_and(|list| !list.trim().is_empty())
    };
    names.iter().any(|name| set(name, "cpuset.cpus") || set(name, "cpuset.mems"))
}
