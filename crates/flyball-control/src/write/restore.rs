//! Restoring earlier values.
//!
//! Restoring works on locations, their first contents and what the journal says of how to write them. It compares, writes
//! what differs in the order that the kernel needs ([`Step`]), waits for it to settle, and repeats until a whole round finds
//! nothing to write. One round is enough for most machines; more are needed where putting one thing back disturbs another.
//! Nothing here depends on how far the interrupted work had come, so it may itself be interrupted and started again.

use std::{collections::BTreeMap, fmt};

use flyball_host::{Host, HostError};
use serde::{Serialize, Serializer};

use super::{
    journal::{Goal, Goals},
    reasons::{Reason, reason},
    settle::{Expected, settle},
};
use crate::{
    Content, Location,
    knob::{
        order::{Step, natural},
        spelling::Spelling,
        subject::Subject,
    },
};

/// How many times everything is compared again before the differences that are left are called final.
const ROUNDS: usize = 5;

/// What restoring did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restoration {
    /// How many settings were remembered.
    pub remembered: usize,
    /// The locations that were written, in order, each with what it holds again.
    pub written: Vec<Written>,
    /// What could not be brought back.
    pub left: Vec<Left>,
    /// Lines of the journal that are damaged: their settings cannot be restored.
    #[serde(skip_serializing_if = "is_zero")]
    pub damaged: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A location that was restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Where.
    pub location: Location,
    /// What it held before restoring.
    pub from: String,
    /// What was written.
    pub to: String,
}

/// A location that does not hold what it held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Where.
    pub location: Location,
    /// What it held at first.
    pub wanted: String,
    /// What it holds now.
    pub found: String,
    /// What the kernel said to the last write, where it refused it.
    pub error: Option<Refused>,
}

/// A write that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What the kernel said.
    pub error: HostError,
    /// The likely reason, with the remedy.
    pub reason: Option<Reason>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

impl Serialize for Refused {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Restoration {
    /// Whether everything is as it was.
    pub fn is_exact(&self) -> bool {
        self.left.is_empty() && self.damaged == 0
    }
}

impl fmt::Display for Restoration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_exact() {
            return match self.written.len() {
                0 => f.write_str("nothing to restore: every setting has its earlier value"),
                1 => f.write_str("restored 1 setting: it has its earlier value"),
                count => write!(f, "restored {count} settings: all have their earlier values"),
            };
        }
        if self.left.is_empty() {
            write!(f, "restored {} settings", self.written.len())?;
        } else {
            write!(f, "could not restore {} of {} settings:", self.left.len(), self.remembered)?;
        }
        for left in &self.left {
            write!(f, "\n  {} holds '{}', was '{}'", left.location, left.found, left.wanted)?;
            if let Some(refused) = &left.error {
                write!(f, "\n    {refused}")?;
            }
        }
        match self.damaged {
            0 => {}
            1 => f.write_str("\n1 line of the journal is damaged; its settings cannot be restored")?,
            lines => {
                write!(f, "\n{lines} lines of the journal are damaged; their settings cannot be restored")?;
            }
        }
        f.write_str("\n'flyball restore' tries again; the journal keeps the earlier values")
    }
}

fn now(host: &dyn Host, location: &Location) -> Content {
    Content::of(&location.read(host))
}

impl Goal {
    fn spelling(&self) -> Spelling {
        self.handling.spelling
    }

    /// Whether the location is as it was.
    fn is_back(&self, host: &dyn Host, now: &Content) -> bool {
        self.spelling().is_back(host, &self.was, now)
    }

    /// The bytes to write to restore it; `None` if no write can.
    fn writable(&self) -> Option<Vec<u8>> {
        self.spelling().writable(&self.was)
    }

    /// Whether the location has gone, and may have: one that appeared after the first change, or an interrupt.
    fn has_gone(&self, found: &Content) -> bool {
        (self.late && matches!(found, Content::Unreadable(_))) || self.spelling().may_be_gone(found)
    }
}

/// Restores everything.
pub fn put_back(host: &dyn Host, goals: &Goals) -> Restoration {
    let mut round = Rounds {
        host,
        goals,
        outcome: Restoration { remembered: goals.0.len(), ..Restoration::default() },
        refused: BTreeMap::new(),
    };
    round.hidden_preferences();
    round.boost_while_passive();
    for number in 0..ROUNDS {
        if !round.write(number == 0) {
            break;
        }
    }
    round.finish()
}

/// The work of restoring, from round to round.
struct Rounds<'a> {
    host: &'a dyn Host,
    goals: &'a Goals,
    outcome: Restoration,
    refused: BTreeMap<&'a Location, HostError>,
}

impl<'a> Rounds<'a> {
    /// Writes whatever differs, step by step. Whether anything was written.
    fn write(&mut self, first: bool) -> bool {
        let mut wrote = false;
        for step in Step::ALL {
            let expected = self.write_step(step, first);
            wrote |= !expected.is_empty();
            let expected: Vec<_> = expected
                .iter()
                .map(|(location, spelling, old, new)| Expected {
                    location,
                    spelling: *spelling,
                    old,
                    new: new.as_str(),
                })
                .collect();
            // Later steps depend on this one having taken effect.
            // The result is not used: the next round reads everything again anyway.
            settle(self.host, &expected);
        }
        wrote
    }

    fn write_step(&mut self, step: Step, first: bool) -> Vec<(&'a Location, Spelling, Content, String)> {
        let mut todo: Vec<(&'a Location, &'a Goal, Vec<u8>, Content)> = Vec::new();
        for (location, goal) in self.goals.0.iter().filter(|(_, goal)| goal.handling.step == step) {
            let Some(bytes) = goal.writable() else { continue };
            let found = now(self.host, location);
            // A limit that was announced may have been written a moment ago and not have settled: the file still shows
            // the old value, and would change after we have looked away. Written again, the request is the old one.
            let unsettled = first && goal.spelling().is_request() && goal.first_old.is_some();
            if (!goal.is_back(self.host, &found) || unsettled) && !goal.has_gone(&found) {
                todo.push((location, goal, bytes, found));
            }
        }
        todo.sort_by_cached_key(|(location, goal, bytes, found)| {
            let rank = goal.handling.bound.rank(found.trimmed(), &String::from_utf8_lossy(bytes));
            (rank, natural(location.path().unwrap_or_default()))
        });
        let mut expected = Vec::new();
        for (location, goal, bytes, found) in todo {
            match location.write(self.host, &bytes) {
                Ok(()) => {
                    self.refused.remove(location);
                    let to = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                    // A limit that is written again although it reads the same is not news for the user.
                    if found.trimmed() != to {
                        self.wrote(location, &found, &to);
                    }
                    expected.push((location, goal.spelling(), found, to));
                }
                Err(error) => {
                    self.refused.insert(location, error);
                }
            }
        }
        expected
    }

    fn wrote(&mut self, location: &Location, from: &Content, to: &str) {
        self.outcome.written.push(Written {
            location: location.clone(),
            from: from.to_string(),
            to: to.trim_end().to_owned(),
        });
    }

    /// Compares everything once more, and says what is left.
    fn finish(mut self) -> Restoration {
        for (location, goal) in &self.goals.0 {
            let found = now(self.host, location);
            if goal.is_back(self.host, &found) || goal.has_gone(&found) {
                continue;
            }
            let written = goal.first_old.is_some();
            // What could not be read then (an offline CPU's policy) and what cannot be written is not compared, unless
            // flyball wrote over it.
            let unknown = matches!(goal.was, Content::Unreadable(_)) && written;
            if goal.writable().is_none() && !unknown {
                continue;
            }
            let error = self.refused.get(location);
            // Per-CPU interrupts move by themselves with hotplug; flyball never wrote them, only remembered
            // them.
            if !written && error.is_some_and(|error| goal.spelling().is_kernels_own(error.errno)) {
                continue;
            }
            let error = error.map(|error| Refused {
                error: error.clone(),
                reason: reason(self.host, location, Subject::of(location), error),
            });
            self.outcome.left.push(Left {
                location: location.clone(),
                wanted: goal.was.to_string(),
                found: found.to_string(),
                error,
            });
        }
        self.outcome
    }

    /// amd-pstate lets its own limit follow boost in passive mode only (amd_pstate_cpu_boost_update in
    /// drivers/cpufreq/amd-pstate.c): boost that was switched off in passive mode and comes back in guided mode leaves the
    /// frequency capped at nominal. So on the way from passive to guided boost comes back before the mode.
    fn boost_while_passive(&mut self) {
        let of_step = |step: Step| self.goals.0.iter().filter(move |(_, goal)| goal.handling.step == step);
        let to_guided = of_step(Step::DriverMode).any(|(mode, goal)| {
            goal.was.trimmed() == "guided" && now(self.host, mode).trimmed() == "passive"
        });
        if !to_guided {
            return;
        }
        let switches: Vec<_> =
            of_step(Step::Turbo).filter(|(_, goal)| goal.spelling() == Spelling::Switch).collect();
        for (location, goal) in switches {
            let found = now(self.host, location);
            let Some(bytes) = goal.writable() else { continue };
            if !goal.is_back(self.host, &found) && location.write(self.host, &bytes).is_ok() {
                self.wrote(location, &found, &String::from_utf8_lossy(&bytes));
            }
        }
    }

    /// Under a `performance` governor the preference reads `performance`, and the one that another governor will restore
    /// is hidden. It showed when the governor was changed: the first write to the preference found it. While the other
    /// governor is still in force, it is restored there.
    fn hidden_preferences(&mut self) {
        for (location, goal) in &self.goals.0 {
            let (Spelling::Preference, Some(old), Some(path)) =
                (goal.spelling(), &goal.first_old, location.path())
            else {
                continue;
            };
            if goal.was == *old {
                continue;
            }
            let Some((governor, was)) = self.governor_of(path) else { continue };
            let (in_force, found) = (now(self.host, governor), now(self.host, location));
            // intel_pstate keeps the preference in cpudata->epp_powersave while performance governs
            // (intel_pstate_hwp_set). Written before the governor comes back, the old value is what it will
            // keep.
            if was != "performance" || in_force.trimmed() == "performance" || found == *old {
                continue;
            }
            let Some(bytes) = goal.spelling().writable(old) else { continue };
            if location.write(self.host, &bytes).is_ok() {
                self.wrote(location, &found, &old.to_string());
            }
        }
    }

    /// The governor in the folder of a policy's file, with what it was.
    fn governor_of(&self, path: &str) -> Option<(&'a Location, &'a str)> {
        let folder = path.rsplit_once('/')?.0;
        let beside = |location: &Location| {
            location.path().and_then(|path| path.rsplit_once('/')).is_some_and(|(other, _)| other == folder)
        };
        self.goals
            .0
            .iter()
            .find(|(location, goal)| goal.handling.step == Step::Governor && beside(location))
            .map(|(location, goal)| (location, goal.was.trimmed()))
    }
}

#[cfg(test)]
mod tests {
    use flyball_host::Errno;

    use super::*;

    fn goals(path: &str, was: &str) -> Goals {
        let location = Location::file(path);
        let handling = Subject::of(&location).and_then(|subject| subject.handling(was)).unwrap();
        let was = Content::Text(was.to_owned());
        Goals(BTreeMap::from([(location, Goal { was, handling, late: false, first_old: None })]))
    }

    #[test]
    fn cpusets_are_removed_only_if_no_other_program_uses_them() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let control = "sys/fs/cgroup/cgroup.subtree_control";
        let read = || std::fs::read_to_string(folder.path().join(control)).unwrap();
        put(control, "memory io\n");
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        let goals = goals(&format!("/{control}"), "memory\n");
        let outcome = put_back(&host, &goals);
        assert!(outcome.is_exact() && outcome.written.is_empty(), "io is not flyball's: {outcome:?}");

        put(control, "cpuset memory\n");
        put("sys/fs/cgroup/machine.slice/cpuset.cpus", "0-3\n");
        assert!(put_back(&host, &goals).is_exact());
        assert_eq!(read(), "cpuset memory\n");

        put("sys/fs/cgroup/machine.slice/cpuset.cpus", "\n");
        put_back(&host, &goals);
        assert_eq!(read(), "-cpuset\n", "the write");
    }

    #[test]
    fn an_interrupt_that_is_gone_is_no_difference() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys")).unwrap();
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        let left = |goals: &Goals| put_back(&host, goals).left.len();
        assert_eq!(left(&goals("/proc/irq/77/smp_affinity_list", "3\n")), 0);
        let governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
        assert_eq!(left(&goals(governor, "powersave\n")), 1);
    }

    #[test]
    fn what_was_written_over_without_being_known_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
        std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
        std::fs::write(folder.path().join(path), "performance\n").unwrap();
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        let mut goals = goals(&format!("/{path}"), "");
        for goal in goals.0.values_mut() {
            goal.was = Content::Unreadable(Errno::IO.0);
        }
        assert!(put_back(&host, &goals).is_exact(), "disturbed only");
        for goal in goals.0.values_mut() {
            goal.first_old = Some(goal.was.clone());
        }
        assert_eq!(put_back(&host, &goals).left.len(), 1);
    }
}
