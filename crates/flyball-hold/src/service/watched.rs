//! What a service's caller has to watch.

use std::{collections::BTreeSet, path::PathBuf};

use super::Service;
use crate::{
    Condition,
    condition::{Pressure, groups},
};

/// What a service's caller has to watch for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Watched {
    /// The processes with which holds end, or of which a condition names the program.
    pub processes: BTreeSet<u32>,
    pub programs: BTreeSet<PathBuf>,
    /// Control groups, as paths of the machine.
    pub groups: BTreeSet<String>,
    pub pressures: Vec<Pressure>,
}

impl Service<'_> {
    /// What to watch for the holds that there are.
    pub fn watched(&self) -> Watched {
        let mut processes: BTreeSet<u32> =
            self.store.holds.iter().filter_map(|hold| hold.end.process).map(|process| process.pid).collect();
        // One process of each program is enough: when it ends, the others are looked for.
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

    /// Notes something that is not noticed here, for the status.
    pub fn cannot_notice(&mut self, what: String) {
        let Some(service) = self.store.service.as_mut().filter(|service| !service.blind.contains(&what))
        else {
            return;
        };
        service.blind.push(what);
        // Without the lock the next change of the store saves it.
        if let Ok(_lock) = self.lock() {
            self.save();
        }
    }
}
