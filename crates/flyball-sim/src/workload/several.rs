//! Several loads at once, each on its own CPUs: for example a benchmark, and busy loops on other
//! CPUs.

use std::sync::{Arc, Mutex, PoisonError};

use super::Shared;
use crate::load::{CpuWork, Load, Step};

/// A running load.
struct Running {
    /// CPUs that the load may use; empty for all.
    cpus: Vec<u32>,
    load: Box<dyn Load>,
    shared: Shared,
}

/// Concurrent loads. Clones share the list.
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

    /// Adds a load on some CPUs, or on all if `cpus` is empty. Returns `false` and adds nothing if
    /// one of the CPUs has a load already: each model assumes that its CPUs are its own, so two on
    /// one CPU would both run at full speed.
    #[must_use]
    pub fn add(&mut self, cpus: &[u32], load: Box<dyn Load>, shared: Shared) -> bool {
        let name = load.name().to_owned();
        let added = self.each(|list| {
            // A load that has ended releases its CPUs.
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

    /// Returns whether no load is left.
    pub fn is_empty(&self) -> bool {
        self.each(|list| list.is_empty())
    }

    /// Ends the load with this progress handle.
    pub fn end(&self, shared: &Shared) {
        self.each(|list| list.retain(|running| !Arc::ptr_eq(&running.shared, shared)));
    }
}

impl Load for Several {
    fn step(&mut self, step: &Step<'_>, work: &mut [CpuWork]) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, running) in list.iter_mut().enumerate() {
            // The first load writes directly into the result, so that a single load costs nothing
            // extra.
            if index == 0 {
                running.load.step(step, work);
                continue;
            }
            self.scratch.clear();
            self.scratch.resize(work.len(), CpuWork::default());
            running.load.step(step, &mut self.scratch);
            for (have, more) in work.iter_mut().zip(&self.scratch) {
                // Every model adds the kernel's own work to all CPUs; count only the first model's.
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
