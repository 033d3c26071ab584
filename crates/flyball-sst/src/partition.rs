//! Keeps ordinary tasks off CPUs with an isolated cgroup v2 partition, instead of taking the CPUs
//! offline.
//!
//! Each power domain has one partition, in flyball's group below the root. The state before is one
//! of three, so that undoing also removes what only flyball needed: the cpuset controller of the
//! root's groups.

use flyball_host::{
    CpuList, Errno, Host, HostError, Op,
    cgroup::{Group, Kind, cpusets_in_use, gives_cpusets, set_gives_cpusets},
};

/// The group of a power domain's partition.
fn group(package: u8, domain: u8) -> Group {
    Group::named(&format!("flyball-sst-{package}-{domain}"))
}

/// The state of a power domain's partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partition {
    /// No partition, and the root has not enabled cpusets for its groups.
    None,
    /// No partition, but the root has enabled cpusets for its groups.
    Ready,
    /// A partition with these CPUs.
    Cpus(CpuList),
}

impl Partition {
    /// Reads the state.
    ///
    /// # Errors
    /// `ENODEV` without cgroup v2 or its cpuset controller.
    pub fn read(host: &dyn Host, package: u8, domain: u8) -> Result<Partition, HostError> {
        let group = group(package, domain);
        let gives = gives_cpusets(host)?;
        if group.is_partition(host)? {
            let list = group.cpus(host)?;
            let cpus: CpuList = list.parse().map_err(|_| {
                HostError::new(Op::Read, format!("CPUs of the partition, '{list}'"), Errno::INVAL)
            })?;
            // A partition without CPUs has no effect, so it counts as none.
            return Ok(if cpus.is_empty() { Partition::Ready } else { Partition::Cpus(cpus) });
        }
        Ok(if gives { Partition::Ready } else { Partition::None })
    }

    /// Brings the power domain into this state.
    ///
    /// # Errors
    /// Returns the kernel's error; `EINVAL`, with the kernel's reason, if the kernel rejects the
    /// CPUs for a partition.
    pub fn write(&self, host: &dyn Host, package: u8, domain: u8) -> Result<(), HostError> {
        let group = group(package, domain);
        let Partition::Cpus(cpus) = self else {
            dissolve(host, &group)?;
            // Keep cpusets enabled if another program uses them by now.
            if *self == Partition::None && gives_cpusets(host)? && !cpusets_in_use(host) {
                // EBUSY if a group has enabled cpusets for its own groups: they are then in use.
                let _ = set_gives_cpusets(host, false);
            }
            return Ok(());
        };
        if !gives_cpusets(host)? {
            set_gives_cpusets(host, true)?;
        }
        // The root must enable cpusets first, because that creates the group's cpuset files.
        group.create(host)?;
        // The CPUs of a partition can only change while it is an ordinary group.
        group.set_kind(host, Kind::Member)?;
        group.set_cpus(host, &cpus.to_string())?;
        // Older kernels support only `root`. Others accept a kind, and then report that it is
        // invalid, and why.
        let mut reason = String::new();
        // Try isolated first: it also excludes the CPUs from load balancing, which `root` leaves on
        // within the partition.
        for kind in [Kind::Isolated, Kind::Root] {
            match group.set_kind(host, kind).and_then(|()| group.kind(host)) {
                Ok(now) if now.starts_with(kind.word()) && !now.contains("invalid") => return Ok(()),
                Ok(now) => reason = now,
                Err(error) => reason = error.to_string(),
            }
        }
        // The kernel rejected the partition: leave nothing behind.
        dissolve(host, &group)?;
        Err(HostError::new(Op::Write, format!("partition of CPUs {cpus} ({reason})"), Errno::INVAL))
    }
}

fn dissolve(host: &dyn Host, group: &Group) -> Result<(), HostError> {
    if !group.exists(host) {
        return Ok(());
    }
    if group.has_cpuset(host) {
        group.set_kind(host, Kind::Member)?;
    }
    // A group with another program's tasks stays, as an ordinary group.
    let _ = group.remove(host);
    Ok(())
}

#[cfg(test)]
mod tests {
    use flyball_sst_fake::FakeMachine;

    use super::*;

    fn read(machine: &FakeMachine) -> Partition {
        Partition::read(machine, 0, 0).unwrap()
    }

    fn write(machine: &FakeMachine, state: &Partition) {
        state.write(machine, 0, 0).unwrap();
    }

    #[test]
    fn a_partition_is_made_changed_and_removed_without_a_trace() {
        let machine = FakeMachine::guide(true);
        let before = machine.everything();
        assert_eq!(read(&machine), Partition::None);
        let some = Partition::Cpus("4,6,12,13".parse().unwrap());
        write(&machine, &some);
        assert_eq!(read(&machine), some);
        let others = Partition::Cpus("5".parse().unwrap());
        write(&machine, &others);
        assert_eq!(read(&machine), others);
        write(&machine, &Partition::Ready);
        assert_eq!(read(&machine), Partition::Ready);
        write(&machine, &Partition::None);
        assert_eq!(machine.everything(), before);
    }

    #[test]
    fn cpusets_that_another_group_uses_stay() {
        let machine = FakeMachine::guide(true);
        machine.put("/sys/fs/cgroup/machine.slice/cpuset.cpus", "0-3");
        write(&machine, &Partition::Cpus("5".parse().unwrap()));
        write(&machine, &Partition::None);
        assert_eq!(read(&machine), Partition::Ready);
    }
}
