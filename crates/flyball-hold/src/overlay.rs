//! What is in force: all holds in the order of their priorities, one over the other.

use flyball_control::{Intent, Setting, Topology, select};

use crate::{Facts, Hold, HoldName, Left};

/// The overlay of the holds that count now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Effective {
    /// The settings, the strongest hold's last: of several for one place the plan takes the last.
    pub intent: Intent,
    /// The holds that count, the strongest last.
    pub holds: Vec<HoldName>,
    /// By setting, the position of its hold in `holds`.
    of: Vec<usize>,
}

impl Effective {
    /// The overlay of these holds, which are in the order in which they were added.
    pub fn of(holds: &[Hold], facts: &Facts) -> Effective {
        let is_in_force =
            |hold: &&Hold| hold.condition.as_ref().is_none_or(|condition| condition.is_met(facts));
        let mut counting: Vec<&Hold> = holds.iter().filter(is_in_force).collect();
        // Stable: of equal priorities the later one wins.
        counting.sort_by_key(|hold| hold.priority);
        let mut effective = Effective::default();
        for (index, hold) in counting.into_iter().enumerate() {
            effective.holds.push(hold.name.clone());
            for setting in hold.intent().settings {
                effective.of.push(index);
                effective.intent.settings.push(setting);
            }
        }
        effective
    }

    /// The hold whose setting a plan names as `from`.
    pub fn hold_of(&self, from: &str) -> Option<&HoldName> {
        let index = self.intent.settings.iter().rposition(|setting| setting.from == from)?;
        self.holds.get(*self.of.get(index)?)
    }

    /// The settings without the places that were left to others.
    pub fn without(&self, left: &[Left], topology: &Topology) -> Intent {
        let mut settings = Vec::with_capacity(self.intent.settings.len());
        for setting in &self.intent.settings {
            settings.extend(remaining(setting, left, topology));
        }
        Intent { settings }
    }
}

/// What remains of a setting.
fn remaining(setting: &Setting, left: &[Left], topology: &Topology) -> Option<Setting> {
    let mut gone = left.iter().filter(|left| left.concerns(setting)).peekable();
    if gone.peek().is_none() {
        return Some(setting.clone());
    }
    // A selector that is wrong here is for the planner to refuse.
    let mut cpus = match &setting.on {
        Some(selector) => select(selector, topology).ok()?,
        None => topology.present.clone(),
    };
    for left in gone {
        cpus = cpus.difference(&left.cpus);
    }
    (!cpus.is_empty()).then(|| Setting { on: Some(cpus.to_string()), ..setting.clone() })
}
