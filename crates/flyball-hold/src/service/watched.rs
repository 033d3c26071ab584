//! The things that a service's caller has to watch.

use std::{collections::BTreeSet, path::PathBuf};

use super::Service;
use crate::{
    Condition,
    condition::{Pressure, groups},
};

/// The things that a service's caller has to watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Watched {
    /// Processes whose end ends a hold, or that run a program in a condition.
    pub processes: BTreeSet<u32>,
    pub programs: BTreeSet<PathBuf>,
    /// Control groups, as paths of the machine.
    pub groups: BTreeSet<String>,
    pub pressures: Vec<Pressure>,
}

impl Service<'_> {
    /// Returns what to watch for the present holds.
    pub fn watched(&self) -> Watched {
        let mut processes: BTreeSet<u32> =
            self.store.holds.iter().filter_map(|hold| hold.end.process).map(|process| process.pid).collect();
        // One process of each program is enough: when it ends, the service looks for others.
        processes.extend(self.facts.running.values().filter_map(|processes| processes.first()));
        let paths =
            self.conditions().flat_map(Condition::groups).flat_map(|(_, paths)| groups(self.host, &paths));
        Watched {
            processes,
            programs: self.conditions().filter_map(|condition| condition.program.clone()).collect(),
            groups: paths.collect(),
            pressures: self.conditions().filter_map(|condition| condition.pressure.clone()).collect(),
        }
    }

    /// Records for the status something that is not noticed here.
    pub fn cannot_notice(&mut self, what: String) {
        let Some(service) = self.store.service.as_mut().filter(|service| !service.blind.contains(&what))
        else {
            return;
        };
        service.blind.push(what);
        // If the lock is taken, the next change of the store saves it.
        if let Ok(_lock) = self.lock() {
            self.save();
        }
    }
}
