//! Several loads at once, each on CPUs of its own: a benchmark and what keeps the other CPUs busy.

use std::sync::{Arc, Mutex, PoisonError};

use super::Shared;
use crate::load::{CpuWork, Load, Step};

/// A running load.
struct Running {
    /// CPUs that it may use; empty for all.
    cpus: Vec<u32>,
    load: Box<dyn Load>,
    shared: Shared,
}

/// Loads that run at the same time. Clones share the list.
#[derive(Clone, Default)]
pub struct Several {
    name: String,
    list: Arc<Mutex<Vec<Running>>>,
    scratch: Vec<CpuWork>,
}

impl std::fmt::Debug for Several {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Several").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Several {
    fn each<T>(&self, look: impl FnOnce(&mut Vec<Running>) -> T) -> T {
        look(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a load on some CPUs (none: all). `false`, and nothing is added, if one of them has a
    /// load already: a model has its CPUs to itself, and two on one would both run at full speed.
    #[must_use]
    pub fn add(&mut self, cpus: &[u32], load: Box<dyn Load>, shared: Shared) -> bool {
        let name = load.name().to_owned();
        let added = self.each(|list| {
            // A load that has ended gives its CPUs back.
            list.retain(|running| !running.load.is_done());
            let meets = |other: &Running| {
                cpus.is_empty() || other.cpus.is_empty() || other.cpus.iter().any(|cpu| cpus.contains(cpu))
            };
            let free = !list.iter().any(meets);
            if free {
                list.push(Running { cpus: cpus.to_vec(), load, shared });
            }
            free
        });
        if added {
            self.name = name;
        }
        added
    }

    /// Returns whether none of the added loads is left.
    pub fn is_empty(&self) -> bool {
        self.each(|list| list.is_empty())
    }

    /// Ends the load with this progress.
    pub fn end(&self, shared: &Shared) {
        self.each(|list| list.retain(|running| !Arc::ptr_eq(&running.shared, shared)));
    }
}

impl Load for Several {
    fn step(&mut self, step: &Step<'_>, work: &mut [CpuWork]) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, running) in list.iter_mut().enumerate() {
            // The first writes straight into the result, so that one load alone costs nothing
            // extra.
            if index == 0 {
                running.load.step(step, work);
                continue;
            }
            self.scratch.clear();
            self.scratch.resize(work.len(), CpuWork::default());
            running.load.step(step, &mut self.scratch);
            for (have, more) in work.iter_mut().zip(&self.scratch) {
                // Every model adds the kernel's own work to all CPUs: that of the first is enough.
                let tasks = more.activity.busy_ns > 0 || more.activity.wakes > 0 || more.gap_us != u32::MAX;
                if tasks && !more.kernel {
                    *have = *more;
                }
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_done(&self) -> bool {
        self.each(|list| list.iter().all(|running| running.load.is_done()))
    }
}
