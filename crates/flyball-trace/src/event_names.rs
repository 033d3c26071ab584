//! Names of events outside the table. Each name is stored once, and records carry its number.

use std::sync::RwLock;

/// The number of an event's name in [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// Names of passed-through events, each stored once. All readers of a trace share them.
#[derive(Debug, Default)]
pub struct Names(RwLock<Vec<String>>);

impl Names {
    /// Returns the number of a name, and adds the name if it is new. It searches linearly, so call
    /// it once per name and thread.
    pub fn intern(&self, name: &str) -> NameId {
        // The name is usually known, and readers do not block each other.
        if let Ok(names) = self.0.read()
            && let Some(at) = names.iter().position(|known| known == name)
        {
            return NameId(at as u32);
        }
        let mut names = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Search again: another thread may have added it between the two locks.
        let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        NameId(at as u32)
    }

    /// The name with this number; empty for an unassigned number.
    pub fn name(&self, id: NameId) -> String {
        let names = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        names.get(id.0 as usize).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once() {
        let names = Names::default();
        let first = names.intern("sched_waking");
        assert_eq!(names.intern("sched_waking"), first);
        assert_ne!(names.intern("irq_handler_entry"), first);
        assert_eq!(names.name(first), "sched_waking");
        assert_eq!(names.name(NameId(99)), "");
    }
}
