//! Follows changes of the performance level by other agents: a management controller, or another
//! program.
//!
//! When a domain's level has changed, the new level's CPUs are brought online, and all others go
//! offline or into a cgroup v2 partition. The first look counts as a change, so that a service that
//! did not run when the level changed catches up.

use std::collections::BTreeMap;

use flyball_host::{CpuList, Host, HostError};

use crate::{
    access::DomainAddress,
    cost,
    cpus::is_online,
    layout::{Domain, Layout},
    partition::Partition,
};

/// How to keep CPUs that the level excludes from running tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// Offline, by hotplug.
    Hotplug,
    /// In an isolated cgroup v2 partition.
    Cgroup,
}

/// An observation or action, for a log.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Event {
    /// The level of a domain changed; `from` is `None` at the first look.
    #[display(
        "power domain {}:{}: level {}{to}",
        place.package,
        place.domain,
        from.map(|from| format!("{from} became ")).unwrap_or_default()
    )]
    Level {
        place: DomainAddress,
        from: Option<u8>,
        to: u8,
    },
    /// CPUs were brought online.
    #[display("online: {_0}")]
    Online(CpuList),
    /// CPUs were taken offline.
    #[display("offline: {_0}")]
    Offline(CpuList),
    /// The CPUs in the partition; if empty, the partition was removed.
    #[display(
        "{}",
        if _0.is_empty() {
            "no CPU is in a cgroup partition any more".to_owned()
        } else {
            format!("isolated in a cgroup partition: {_0}")
        }
    )]
    Isolated(CpuList),
    Refused(Refusal),
}

/// Why the level was not followed, or not with all CPUs.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Refusal {
    #[display("the level's CPUs cannot be read: nothing done")]
    LevelCpusUnknown,
    /// The kernel has no hotplug for this CPU.
    #[display("CPU {cpu} is kept online by this kernel")]
    KeptOnline { cpu: u32 },
    #[display("{_0}")]
    Host(HostError),
}

/// The last seen levels.
#[derive(Debug)]
pub struct Follower {
    means: Exclusion,
    /// Levels by package, die and domain.
    seen: BTreeMap<(u8, u32, u8), u8>,
}

impl Follower {
    pub fn new(means: Exclusion) -> Follower {
        Follower { means, seen: BTreeMap::new() }
    }

    /// Checks every domain with CPUs, and follows those whose level changed. A locked level cannot
    /// change, so its domain is skipped, and CPUs that the user switched stay as they are.
    ///
    /// # Errors
    /// The levels cannot be read.
    pub fn look(&mut self, layout: &Layout, host: &dyn Host) -> Result<Vec<Event>, HostError> {
        let mut events = Vec::new();
        let access = layout.access(host);
        for domain in layout.domains.iter().filter(|domain| !domain.cpus.is_empty()) {
            let mut at = domain.clone();
            // The domain's CPU may have gone offline. If none is online, the next read fails with
            // the driver's own errno.
            at.place.cpu = domain.cpus.iter().find(|&cpu| is_online(host, cpu)).or(domain.place.cpu);
            let levels = access.levels(&at.place)?;
            let key = (at.place.package, at.die, at.place.domain);
            let from = self.seen.get(&key).copied();
            if levels.locked || from == Some(levels.current) {
                continue;
            }
            // Before following it, so that a CPU that cannot be switched is reported once, not at
            // every look.
            self.seen.insert(key, levels.current);
            events.push(Event::Level { place: at.place, from, to: levels.current });
            match cost::cpus_of_level(layout, access.as_ref(), &at, levels.current) {
                Some(inside) => self.apply(host, &at, &inside, &mut events),
                None => {
                    events.push(Event::Refused(Refusal::LevelCpusUnknown));
                }
            }
        }
        Ok(events)
    }

    fn apply(&self, host: &dyn Host, domain: &Domain, inside: &CpuList, events: &mut Vec<Event>) {
        let outside = domain.cpus.difference(inside);
        if self.means == Exclusion::Cgroup {
            // `Ready` instead of `None`, because the next level may need cpusets again.
            let target = if outside.is_empty() { Partition::Ready } else { Partition::Cpus(outside.clone()) };
            match target.write(host, domain.place.package, domain.place.domain) {
                Ok(()) => events.push(Event::Isolated(outside)),
                Err(error) => events.push(Event::Refused(Refusal::Host(error))),
            }
            return;
        }
        // Online first, so that the CPUs that both levels have in common are always online.
        for (cpus, on) in [(inside, true), (&outside, false)] {
            let mut done = CpuList::new();
            for cpu in cpus.iter().filter(|&cpu| is_online(host, cpu) != on) {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
                // CPU 0 on most kernels: follow the level with the others.
                if !on && !host.exists(&path) {
                    events.push(Event::Refused(Refusal::KeptOnline { cpu }));
                    continue;
                }
                match host.write(&path, if on { b"1" } else { b"0" }) {
                    Ok(()) => done.insert(cpu),
                    Err(error) => events.push(Event::Refused(Refusal::Host(error))),
                }
            }
            if !done.is_empty() {
                events.push(if on { Event::Online(done) } else { Event::Offline(done) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_sst_fake::FakeMachine;

    fn online(machine: &FakeMachine) -> String {
        machine.read("/sys/devices/system/cpu/online").unwrap()
    }

    #[test]
    fn cpus_go_and_come_back_with_the_level() {
        for tpmi in [false, true] {
            let machine = FakeMachine::guide(tpmi);
            let layout = Layout::read(&machine).unwrap();
            let mut follower = Follower::new(Exclusion::Hotplug);
            assert_eq!(follower.look(&layout, &machine).unwrap().len(), 2, "the first look");
            assert_eq!(follower.look(&layout, &machine).unwrap(), []);
            machine.set(|state| state.level = 4);
            let events = follower.look(&layout, &machine).unwrap();
            assert_eq!(events[0].to_string(), "power domain 0:0: level 0 became 4");
            assert_eq!(events[1].to_string(), "offline: 4,6,12,13,32,34,40,41");
            machine.set(|state| state.level = 0);
            let _ = follower.look(&layout, &machine).unwrap();
            assert_eq!(online(&machine), "0-55");
            machine.set(|state| (state.level, state.locked) = (4, true));
            assert_eq!(follower.look(&layout, &machine).unwrap(), []);
        }
    }

    #[test]
    fn partitions_instead_of_hotplug() {
        let machine = FakeMachine::guide(true);
        let layout = Layout::read(&machine).unwrap();
        let mut follower = Follower::new(Exclusion::Cgroup);
        machine.set(|state| state.level = 4);
        let _ = follower.look(&layout, &machine).unwrap();
        let folder = "/sys/fs/cgroup/flyball-sst-0-0";
        let read = |name: &str| machine.read(&format!("{folder}/{name}")).unwrap();
        assert_eq!(
            (read("cpuset.cpus").as_str(), read("cpuset.cpus.partition").as_str()),
            ("4,6,12,13,32,34,40,41", "isolated")
        );
        assert_eq!(online(&machine), "0-55");
        machine.set(|state| state.level = 0);
        let _ = follower.look(&layout, &machine).unwrap();
        assert!(!machine.exists(folder), "the partition is gone");
    }

    #[test]
    fn a_refusal_is_reported_and_the_rest_is_done() {
        let machine = FakeMachine::guide(true);
        let layout = Layout::read(&machine).unwrap();
        machine.set(|state| state.level = 4);
        machine.fail_at(1, flyball_host::Errno::BUSY);
        let events = Follower::new(Exclusion::Hotplug).look(&layout, &machine).unwrap();
        assert!(
            events.iter().any(
                |event| matches!(event, Event::Refused(Refusal::Host(error)) if error.path.ends_with("cpu6/online"))
            )
        );
        assert!(events.contains(&Event::Offline("4,12,13,32,34,40,41".parse().unwrap())), "{events:?}");
    }
}
