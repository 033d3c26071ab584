//! Restores earlier values.
//!
//! Restoring works on locations, their first contents and the journal's instructions for writing
//! them. It compares, writes the differences in the order that the kernel needs ([`Step`]), waits
//! for the machine to settle, and repeats until a whole round finds nothing to write. One round is
//! enough for most machines; more are needed if restoring one thing disturbs another. Nothing here
//! depends on how far the interrupted work had come, so restoring may itself be interrupted and
//! started again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use flyball_host::{Host, HostError};
use flyball_text::Natural;
use serde::{Serialize, Serializer};

use super::{
    journal::{Goal, Goals, Uncertainty},
    outdated,
    reasons::{Reason, reason},
    settle::{Expected, settle},
};
use crate::{
    Content, Location,
    knob::{order::Step, spelling::Spelling, subject::Subject},
};

/// Rounds of comparing everything before the remaining differences count as final.
const ROUNDS: usize = 5;

/// The result of restoring.
#[derive(Debug, Clone, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Restoration {
    /// Number of settings in the journal.
    pub remembered: usize,
    /// The locations that were written, in order, each with the content that it holds again.
    pub written: Vec<RestoredLocation>,
    /// Number of locations that had been changed, if known. A limit may still have shown its old
    /// value when it was restored, and is then not in `written`.
    #[serde(skip_serializing_if = "is_zero")]
    pub made: usize,
    /// Locations that could not be restored.
    pub left: Vec<NotRestored>,
    /// Locations of a released hold that differ and that a later command of the user disturbed:
    /// turbo that was switched off meanwhile keeps a limit low.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Location>,
    /// Number of damaged lines in the journal: their settings cannot be restored.
    #[serde(skip_serializing_if = "is_zero")]
    pub damaged: usize,
    /// Locations in the journal that flyball never writes, and did not write now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<Location>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A location that was restored.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct RestoredLocation {
    pub location: Location,
    /// Content before restoring.
    pub from: String,
    /// Content that was written.
    pub to: String,
}

/// A location that does not hold its first content, or is not known to.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct NotRestored {
    pub location: Location,
    /// The first content.
    pub wanted: String,
    /// Present content.
    pub found: String,
    /// The reason why it does not count as restored.
    pub because: NotRestoredReason,
    /// The kernel's error for the last write, if it refused it.
    pub error: Option<Refused>,
}

/// The reason why a location does not count as restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotRestoredReason {
    /// It holds something else.
    Differs,
    /// It cannot be read now: its CPU is offline, or its device or driver is gone.
    CannotBeRead,
    /// It could not be read before a setting was changed that it depends on.
    WasNotRead,
    /// The CPUs were offline when a change of the driver's mode removed the settings there.
    WasLost,
    /// The machine cannot be read now, so another hold may set it.
    MayBeHeld,
}

/// A write that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct Refused {
    /// The kernel's error.
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
    /// Returns whether there was nothing to restore.
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_exact() && self.moved.is_empty() && self.written.is_empty() && self.made == 0
    }

    /// Returns whether everything is restored.
    pub fn is_exact(&self) -> bool {
        self.left.is_empty() && self.damaged == 0 && self.foreign.is_empty()
    }
}

impl fmt::Display for Restoration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_exact() && !self.moved.is_empty() {
            let (back, moved) = (self.written.len(), self.moved.len());
            return write!(
                f,
                "restored {back}; a later command keeps {moved} others: 'flyball restore' undoes both"
            );
        }
        if self.is_exact() {
            return match self.written.len().max(self.made) {
                0 => f.write_str("nothing to restore: every setting has its earlier value"),
                1 => f.write_str("restored 1 setting: it has its earlier value"),
                count => write!(f, "restored {count} settings: all have their earlier values"),
            };
        }
        let (left, remembered) = (self.left.len(), self.remembered);
        if self.left.is_empty() {
            let settings = if self.written.len() == 1 { "setting" } else { "settings" };
            write!(f, "restored {} {settings}", self.written.len())?;
        } else if self.left.iter().all(|left| left.because == NotRestoredReason::Differs) {
            write!(f, "could not restore {left} of {remembered} settings:")?;
        } else {
            write!(f, "{left} of {remembered} settings are not, or are not known to be, as they were:")?;
        }
        for left in self.left.iter().take(SHOWN) {
            write!(f, "\n  {left}")?;
        }
        if left > SHOWN {
            write!(f, "\n  and {} more", left - SHOWN)?;
        }
        match self.damaged {
            0 => {}
            1 => f.write_str("\n1 line of the journal is damaged; its settings cannot be restored")?,
            lines => {
                write!(f, "\n{lines} lines of the journal are damaged; their settings cannot be restored")?;
            }
        }
        for location in &self.foreign {
            write!(f, "\n{location} is in the journal, and flyball never writes there: not written")?;
        }
        f.write_str("\n'flyball restore' tries again; the journal keeps the earlier values")
    }
}

/// Limit on listed differences: above it they are only counted. JSON has all of them.
const SHOWN: usize = 40;

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotRestored { location, wanted, found, because, error } = self;
        match because {
            NotRestoredReason::Differs => write!(f, "{location} holds '{found}', was '{wanted}'")?,
            NotRestoredReason::CannotBeRead => write!(f, "{location} is {found} now, was '{wanted}'")?,
            NotRestoredReason::WasNotRead => {
                write!(f, "{location} holds '{found}'; it could not be read before the change")?;
            }
            NotRestoredReason::WasLost => write!(
                f,
                "{location} holds '{found}'; its CPUs were offline when the driver's mode changed, which removed what was \
                 set there"
            )?,
            NotRestoredReason::MayBeHeld => {
                write!(
                    f,
                    "{location} holds '{found}'; another hold may set it, and the machine cannot be read"
                )?;
            }
        }
        error.as_ref().map_or(Ok(()), |refused| write!(f, "\n    {refused}"))
    }
}

fn now(host: &dyn Host, location: &Location) -> Content {
    Content::from_read(&location.read(host))
}

impl Goal {
    fn spelling(&self) -> Spelling {
        self.handling.spelling
    }

    /// Returns whether the location holds its earlier content.
    fn is_back(&self, host: &dyn Host, now: &Content) -> bool {
        self.spelling().is_back(host, &self.was, now)
    }

    /// Returns the bytes to write to restore it; `None` if no write can.
    fn writable(&self) -> Option<Vec<u8>> {
        self.spelling().writable(&self.was)
    }

    /// Returns whether the location is gone and need not exist: it appeared after the first change,
    /// or it is an interrupt. The policy of an offline CPU is not gone, since it keeps its
    /// settings.
    fn has_gone(&self, found: &Content) -> bool {
        (self.late && found.is_out_of_reach() && !found.is_busy()) || self.spelling().may_be_gone(found)
    }

    /// Returns whether the location is hidden while a CPU is offline: its policy refuses to be
    /// read, or its own files are gone, like energy_perf_bias, whose value the kernel keeps
    /// (intel_epb_offline in arch/x86/kernel/cpu/intel_epb.c).
    fn is_hidden(location: &Location, found: &Content) -> bool {
        let of_cpu = |path: &str| {
            let rest = path.strip_prefix("/sys/devices/system/cpu/cpu");
            rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        found.is_busy() || (found.is_out_of_reach() && location.path().is_some_and(of_cpu))
    }

    /// Returns whether a write to the location may take some time to show.
    fn is_pending(&self) -> bool {
        self.spelling().is_request() && self.first_old.is_some()
    }
}

/// Restores everything. Reports as restored only what it has read back and found equal.
pub fn restore_goals(host: &dyn Host, goals: &Goals) -> Restoration {
    let mut rounds = Rounds {
        host,
        goals,
        outcome: Restoration { remembered: goals.0.len(), ..Restoration::default() },
        refused: BTreeMap::new(),
        seen_back: BTreeSet::new(),
    };
    // Both need the present governor or mode, which the first round changes.
    rounds.hidden_preferences();
    rounds.boost_while_passive();
    let mut refused_before = false;
    for number in 0..ROUNDS {
        let round = rounds.write(number == 0);
        // A refusal may be temporary: the policy is being recreated, or firmware is busy. Two
        // refusals in a row are final.
        if round == Round::Idle || (round == Round::Refused && refused_before) {
            // A request may show its old value and change later. Only the comparison waits for
            // that.
            let left = rounds.compare();
            if round == Round::Refused
                || !left.iter().any(|(.., because)| *because == NotRestoredReason::Differs)
            {
                return rounds.finish(left);
            }
        }
        refused_before = round == Round::Refused;
    }
    // If another program writes as well, settings that depend on each other may never agree. So the
    // number of rounds is limited.
    let left = rounds.compare();
    rounds.finish(left)
}

/// Pauses between the reads of the last comparison, in milliseconds. An errno counts as the
/// kernel's answer if every read returns it. A request counts as settled if no read finds another
/// value: its worker has run by then.
const LOOKS: [u64; 4] = [0, 1, 4, 16];

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// There was nothing to write.
    Idle,
    /// Every write was refused.
    Refused,
    /// Something was written.
    Wrote,
}

/// The state of restoring, kept from round to round.
struct Rounds<'a> {
    host: &'a dyn Host,
    goals: &'a Goals,
    outcome: Restoration,
    refused: BTreeMap<&'a Location, HostError>,
    /// Locations that were found restored before their CPUs were taken offline again, which hides
    /// them.
    seen_back: BTreeSet<&'a Location>,
}

impl<'a> Rounds<'a> {
    /// Writes whatever differs, step by step.
    fn write(&mut self, first: bool) -> Round {
        let mut wrote = self.bring_online_again();
        let mut attempted = false;
        for &step in Step::ALL {
            if step == Step::Offline {
                self.look_before_offline();
            }
            let (tried, expected) = self.write_step(step, first);
            attempted |= tried;
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
            // Later steps need this one to have taken effect. The next round reads everything again
            // and sees the outcome.
            settle(self.host, &expected);
        }
        match (wrote, attempted) {
            (true, _) => Round::Wrote,
            (false, true) => Round::Refused,
            (false, false) => Round::Idle,
        }
    }

    /// Brings CPUs online again that flyball had brought online, if some of their locations were
    /// not yet found restored. That happens if an interrupted restore took them offline first. The
    /// round's last step takes them offline again.
    fn bring_online_again(&self) -> bool {
        let is_hidden = |(location, goal): (&'a Location, &'a Goal)| {
            goal.writable().is_some()
                && !self.seen_back.contains(location)
                && Goal::is_hidden(location, &now(self.host, location))
        };
        let offline = |(location, goal): &(&'a Location, &'a Goal)| {
            location.name() == "online"
                && goal.was.trimmed() == "0"
                && goal.first_old.is_some()
                && now(self.host, location).trimmed() == "0"
        };
        let offline: Vec<&Location> =
            self.goals.0.iter().filter(offline).map(|(location, _)| location).collect();
        if offline.is_empty() || !self.goals.0.iter().any(is_hidden) {
            return false;
        }
        // A CPU that refuses stays offline. The settings that it hides are listed at the end.
        let brought = offline.into_iter().filter(|location| location.write(self.host, b"1").is_ok());
        brought.count() > 0
    }

    /// Notes the locations that are restored, while the CPUs that will go offline are still online.
    fn look_before_offline(&mut self) {
        let mut going = self.goals.0.iter().filter(|(_, goal)| goal.handling.step == Step::Offline);
        if !going.any(|(location, goal)| !goal.is_back(self.host, &now(self.host, location))) {
            return;
        }
        for (location, goal) in &self.goals.0 {
            let found = now(self.host, location);
            if goal.is_back(self.host, &found) && !matches!(found, Content::Unreadable(_)) {
                self.seen_back.insert(location);
            } else if !matches!(found, Content::Unreadable(_)) {
                self.seen_back.remove(location);
            }
        }
    }

    /// Writes the differences of one step. Returns whether there were any, and which writes were
    /// accepted.
    fn write_step(
        &mut self,
        step: Step,
        first: bool,
    ) -> (bool, Vec<(&'a Location, Spelling, Content, String)>) {
        let mut todo: Vec<(&'a Location, &'a Goal, Vec<u8>, Content)> = Vec::new();
        for (location, goal) in self.goals.0.iter().filter(|(_, goal)| goal.handling.step == step) {
            let Some(bytes) = goal.writable() else { continue };
            let found = now(self.host, location);
            // A journaled limit may have been written a moment ago and not have settled: the file
            // still shows the old value, and would change after the comparison. Writing it again
            // replaces the request. A file that returns the same errno as before does not prove
            // that flyball's write is undone either.
            let unseen = matches!(found, Content::Unreadable(_)) && goal.first_old.is_some();
            let again = first || self.is_refused_unread(location, goal);
            // One command's output need not reflect another command's write: it may show a file for
            // the next start, or another instance.
            let unproven = matches!(location, Location::Command(_)) && goal.first_old.is_some();
            let unsettled = again && (goal.is_pending() || unseen || unproven);
            // flyball switched turbo on and off again while base frequencies changed. They have
            // changed back by now, and the driver looks only when the switch changes. The write
            // below is the second half.
            let outdated = first
                && goal.first_old.is_some()
                && goal.was.trimmed() == "1"
                && goal.is_back(self.host, &found)
                && outdated::turbo_off(self.host, location)
                && location.write(self.host, b"0").is_ok();
            // A policy without CPUs refuses every write.
            if (!goal.is_back(self.host, &found) || unsettled || outdated)
                && !goal.has_gone(&found)
                && !Goal::is_hidden(location, &found)
            {
                todo.push((location, goal, bytes, found));
            }
        }
        // Raise a maximum first and lower it last, so that it never crosses the minimum.
        todo.sort_by_cached_key(|(location, goal, bytes, found)| {
            let rank = goal.handling.bound.rank(found.trimmed(), &String::from_utf8_lossy(bytes));
            (rank, Natural(location.path().unwrap_or_default().to_owned()))
        });
        let mut expected = Vec::new();
        let attempted = !todo.is_empty();
        for (location, goal, bytes, found) in todo {
            match location.restore(self.host, &bytes) {
                Ok(()) => {
                    self.refused.remove(location);
                    let to = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                    // Writing a limit again that reads the same is not worth reporting.
                    if found.trimmed() != to {
                        self.wrote(location, &found, &to);
                    }
                    expected.push((location, goal.spelling(), found, to));
                }
                Err(error) => {
                    // Keep the error for the report. A later success removes it.
                    self.refused.insert(location, error);
                }
            }
        }
        (attempted, expected)
    }

    /// Returns whether restoring a knob that cannot be read failed, which only its command's
    /// failure shows.
    fn is_refused_unread(&self, location: &Location, goal: &Goal) -> bool {
        goal.spelling() == Spelling::Unread && self.refused.contains_key(location)
    }

    fn wrote(&mut self, location: &Location, from: &Content, to: &str) {
        self.outcome.written.push(RestoredLocation {
            location: location.clone(),
            from: from.to_string(),
            to: to.trim_end().to_owned(),
        });
    }

    /// Compares everything once more. Returns the locations that are not restored, or may not be,
    /// with their contents.
    fn compare(&self) -> Vec<(&'a Location, &'a Goal, Content, NotRestoredReason)> {
        let mut open: Vec<(&Location, &Goal, Option<Content>, bool)> =
            self.goals.0.iter().map(|(location, goal)| (location, goal, None, true)).collect();
        for (look, pause) in LOOKS.into_iter().enumerate() {
            if pause > 0 {
                self.host.sleep(std::time::Duration::from_millis(pause));
            }
            open.retain_mut(|(location, goal, last, steady)| {
                let found = now(self.host, location);
                *steady &= last.as_ref().is_none_or(|last| *last == found);
                let is_back = goal.is_back(self.host, &found)
                    && !matches!(found, Content::Unreadable(_))
                    && !self.is_refused_unread(location, goal);
                *last = Some(found);
                // A restored location is done, unless it may still change or its earlier content is
                // uncertain.
                !is_back || goal.uncertainty.is_some() || (goal.is_pending() && look + 1 < LOOKS.len())
            });
            if open.is_empty() {
                break;
            }
        }
        let left = open.into_iter().filter_map(|(location, goal, found, steady)| {
            let found = found?;
            Some((location, goal, self.not_restored_reason(location, goal, &found, steady)?, found))
        });
        left.map(|(location, goal, because, found)| (location, goal, found, because)).collect()
    }

    /// Returns why a location that holds `found` does not count as restored; `None` if it does.
    /// `steady` is true if every read found that content.
    fn not_restored_reason(
        &self,
        location: &Location,
        goal: &Goal,
        found: &Content,
        steady: bool,
    ) -> Option<NotRestoredReason> {
        match goal.uncertainty {
            Some(Uncertainty::Lost) => return Some(NotRestoredReason::WasLost),
            Some(Uncertainty::SeenLate) => return Some(NotRestoredReason::WasNotRead),
            None => {}
        }
        if let Content::Unreadable(_) = found {
            // The kernel answers as before; or the location need not exist any more; or it was
            // compared before its CPU went offline.
            let restored = || self.outcome.written.iter().any(|written| written.location == *location);
            let is_same = goal.was == *found && (goal.first_old.is_none() || restored());
            let is_hidden = Goal::is_hidden(location, found);
            let has_gone = goal.has_gone(found) && !is_hidden;
            let was_seen = is_hidden && self.seen_back.contains(location);
            return (!steady || !(is_same || has_gone || was_seen))
                .then_some(NotRestoredReason::CannotBeRead);
        }
        if goal.is_back(self.host, found) && !self.is_refused_unread(location, goal) {
            return None;
        }
        if matches!(goal.was, Content::Unreadable(_)) && goal.writable().is_none() {
            return Some(NotRestoredReason::WasNotRead);
        }
        // Another setting causes a content that cannot be written (`<unsupported>`). flyball never
        // wrote to this location, so nothing was lost.
        let written = goal.first_old.is_some();
        if goal.writable().is_none() && !written {
            return None;
        }
        let error = self.refused.get(location);
        // Per-CPU interrupts move by themselves with hotplug. flyball never wrote them, only saved
        // them.
        if !written && error.is_some_and(|error| goal.spelling().is_kernels_own(error.errno)) {
            return None;
        }
        Some(NotRestoredReason::Differs)
    }

    fn finish(mut self, left: Vec<(&'a Location, &'a Goal, Content, NotRestoredReason)>) -> Restoration {
        for (location, goal, found, because) in left {
            let error = self.refused.get(location).map(|error| Refused {
                error: error.clone(),
                reason: reason(self.host, location, Subject::from_location(location), error),
            });
            self.outcome.left.push(NotRestored {
                location: location.clone(),
                wanted: goal.was.to_string(),
                found: found.to_string(),
                because,
                error,
            });
        }
        self.outcome
    }

    /// Restores boost before the mode on the way from passive to guided. amd-pstate lets its own
    /// limit follow boost in passive mode only (amd_pstate_cpu_boost_update in
    /// drivers/cpufreq/amd-pstate.c): boost that was switched off in passive mode and comes back in
    /// guided mode leaves the frequency capped at nominal.
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

    /// Restores hidden preferences while another governor is still in force. Under the
    /// `performance` governor the preference reads `performance`, which hides the value that
    /// returns with the earlier governor. The first write to the preference found that value when
    /// the governor was changed.
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
            // (intel_pstate_hwp_set). It stores the old value there if that is written before the
            // governor is restored.
            if was != "performance" || in_force.trimmed() == "performance" || found == *old {
                continue;
            }
            let Some(bytes) = goal.spelling().writable(old) else { continue };
            if location.write(self.host, &bytes).is_ok() {
                self.wrote(location, &found, &old.to_string());
            }
        }
    }

    /// Returns the governor in the folder of a policy's file, with its earlier content.
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
        let handling = Subject::from_location(&location).and_then(|subject| subject.handling(was)).unwrap();
        let was = Content::Text(was.to_owned());
        Goals(BTreeMap::from([(
            location,
            Goal { was, handling, late: false, uncertainty: None, first_old: None },
        )]))
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
        let outcome = restore_goals(&host, &goals);
        assert!(outcome.is_exact() && outcome.written.is_empty(), "io is not flyball's: {outcome:?}");

        put(control, "cpuset memory\n");
        put("sys/fs/cgroup/machine.slice/cpuset.cpus", "0-3\n");
        assert!(restore_goals(&host, &goals).is_exact());
        assert_eq!(read(), "cpuset memory\n");

        put("sys/fs/cgroup/machine.slice/cpuset.cpus", "\n");
        restore_goals(&host, &goals);
        assert_eq!(read(), "-cpuset\n", "the write");
    }

    #[test]
    fn an_interrupt_that_is_gone_is_no_difference() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys")).unwrap();
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        let left = |goals: &Goals| restore_goals(&host, goals).left.len();
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
        let because = |goals: &Goals| {
            restore_goals(&host, goals).left.iter().map(|left| left.because).collect::<Vec<_>>()
        };
        assert_eq!(because(&goals), [NotRestoredReason::WasNotRead], "disturbed only");
        for goal in goals.0.values_mut() {
            goal.first_old = Some(goal.was.clone());
        }
        assert_eq!(because(&goals), [NotRestoredReason::WasNotRead]);
    }
}
