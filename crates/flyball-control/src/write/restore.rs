//! Putting back what was.
//!
//! Restoring works on files and their first contents alone: it compares, writes what differs in the order that the
//! kernel needs ([`Step`]), waits for it to settle, and goes round again until a whole round finds nothing to
//! write. One round is enough for most machines; more are needed where putting one thing back disturbs another.
//! Nothing here depends on how far the interrupted work had come, so it may itself be interrupted and begun again.

use std::collections::BTreeMap;

use flyball_host::{Errno, Host, HostError, cgroup::cpusets_in_use};
use serde::Serialize;

use super::{
    journal::Goals,
    order::{Step, natural, rank},
    reasons,
    settle::{Expected, settle},
};
use crate::{Content, Location};

/// How many times everything is compared again before the differences that are left are called final.
const ROUNDS: usize = 5;

/// What putting back came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restoration {
    /// How many settings were remembered.
    pub remembered: usize,
    /// The locations that were written, in order, each with what it holds again.
    pub written: Vec<Written>,
    /// What could not be brought back.
    pub left: Vec<Left>,
}

/// A location that was put back.
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
    /// What the kernel said to the last write, where it refused it, with the likely reason.
    pub error: Option<String>,
}

impl Restoration {
    /// Whether everything is as it was.
    pub fn is_exact(&self) -> bool {
        self.left.is_empty()
    }
}

/// The bytes that bring a content back, where that is not the content itself.
fn writable_form(location: &Location, goal: &Content) -> Option<Vec<u8>> {
    let text = goal.trimmed();
    match location.name() {
        // The governor does not take a speed, so there was none to remember.
        "scaling_setspeed" if text.starts_with('<') => None,
        // amd-pstate prints `dynamic(balanced:balance_performance)` and takes `dynamic`.
        "energy_performance_preference" if text.starts_with("dynamic") => Some(b"dynamic".to_vec()),
        // A preference that has no word cannot be read on amd-pstate up to 6.18 (EINVAL). It can only be what the
        // firmware had set, and `default` brings that back.
        "energy_performance_preference" if *goal == Content::Unreadable(Errno::INVAL.0) => {
            Some(b"default".to_vec())
        }
        // Reads as a list of controllers and takes changes: +cpuset is the only one that is ever made.
        "cgroup.subtree_control" => {
            let had = text.split_whitespace().any(|name| name == "cpuset");
            Some(if had { b"+cpuset".to_vec() } else { b"-cpuset".to_vec() })
        }
        // Reads `notsupported` or `notimplemented` where there is no SMT to control.
        "control" if text.starts_with("not") => None,
        _ => goal.to_bytes().filter(|bytes| !bytes.is_empty()),
    }
}

fn now(host: &dyn Host, location: &Location) -> Content {
    Content::of(&location.read(host))
}

/// Whether a location is as it was. `dynamic` preferences print the present platform profile: only the word counts. Of the
/// controllers that are handed down to control groups only cpusets are ours, and they stay where somebody else has come
/// to use them: taking them away would take the CPUs of all those groups away.
fn is_back(host: &dyn Host, location: &Location, goal: &Content, now: &Content) -> bool {
    if goal == now {
        return true;
    }
    if location.name() == "cgroup.subtree_control" {
        let hands_down =
            |content: &Content| content.trimmed().split_whitespace().any(|name| name == "cpuset");
        let (had, has) = (hands_down(goal), hands_down(now));
        return had == has || (has && cpusets_in_use(host));
    }
    goal.trimmed().starts_with("dynamic") && now.trimmed().starts_with("dynamic")
}

fn is_interrupt(location: &Location) -> bool {
    location.path().is_some_and(|path| path.starts_with("/proc/irq/"))
}

/// Whether a location has gone and may have: one that came after the first change, or an interrupt that its device has given
/// back. When the device asks again, it gets a new one.
fn has_gone(goals: &Goals, location: &Location, found: &Content) -> bool {
    (goals.late.contains(location) && matches!(found, Content::Unreadable(_)))
        || (is_interrupt(location) && *found == Content::Unreadable(Errno::NOENT.0))
}

/// Whether writes of the file are requests that the kernel combines later.
fn is_request(location: &Location) -> bool {
    matches!(location.name(), "scaling_min_freq" | "scaling_max_freq")
}

/// Puts everything back.
pub fn put_back(host: &dyn Host, goals: &Goals) -> Restoration {
    let mut outcome = Restoration { remembered: goals.content.len(), ..Restoration::default() };
    let mut refused: BTreeMap<Location, HostError> = BTreeMap::new();
    hidden_preferences(host, goals, &mut outcome);
    boost_while_passive(host, goals, &mut outcome);
    for round in 0..ROUNDS {
        let mut wrote = false;
        for step in Step::ALL {
            let mut todo: Vec<(&Location, Vec<u8>, Content)> = Vec::new();
            for (location, goal) in &goals.content {
                if Step::of(location, goal.trimmed()) != step {
                    continue;
                }
                let Some(bytes) = writable_form(location, goal) else { continue };
                let found = now(host, location);
                // A limit that was announced may have been written a moment ago and not have settled: the file still shows
                // the old value, and would change after we have looked away. Written again, the request is the old one.
                let unsettled = round == 0 && is_request(location) && goals.first_old.contains_key(location);
                if (!is_back(host, location, goal, &found) || unsettled) && !has_gone(goals, location, &found)
                {
                    todo.push((location, bytes, found));
                }
            }
            todo.sort_by_key(|(location, bytes, found)| {
                (
                    rank(location, found.trimmed(), &String::from_utf8_lossy(bytes)),
                    natural(location.path().unwrap_or_default()),
                )
            });
            let mut expected = Vec::new();
            for (location, bytes, found) in &todo {
                match location.write(host, bytes) {
                    Ok(()) => {
                        refused.remove(*location);
                        wrote = true;
                        let to = String::from_utf8_lossy(bytes).trim_end().to_owned();
                        if found.trimmed() != to {
                            outcome.written.push(Written {
                                location: (*location).clone(),
                                from: found.to_string(),
                                to,
                            });
                        }
                        expected.push((*location, found, String::from_utf8_lossy(bytes).into_owned()));
                    }
                    Err(error) => {
                        refused.insert((*location).clone(), error);
                    }
                }
            }
            let expected: Vec<_> = expected
                .iter()
                .map(|(location, old, new)| Expected { location, old, new: new.as_str() })
                .collect();
            settle(host, &expected);
        }
        if !wrote {
            break;
        }
    }
    for (location, goal) in &goals.content {
        let found = now(host, location);
        // What could not be read then (an offline CPU's policy) and what has no form to write is not missed.
        if is_back(host, location, goal, &found) || writable_form(location, goal).is_none() {
            continue;
        }
        // The kernel's own interrupts (timers of one CPU) move with hotplug and take no orders (EIO, kernel/irq/proc.c).
        let kernels_own = is_interrupt(location)
            && !goals.first_old.contains_key(location)
            && refused.get(location).is_some_and(|error| error.errno == Errno::IO);
        if has_gone(goals, location, &found) || kernels_own {
            continue;
        }
        let error = refused.get(location).map(|error| match reasons::reason(host, location, error) {
            Some(reason) => format!("{error}: {reason}"),
            None => error.to_string(),
        });
        outcome.left.push(Left {
            location: location.clone(),
            wanted: goal.to_string(),
            found: found.to_string(),
            error,
        });
    }
    outcome
}

/// amd-pstate lets its own limit follow boost in passive mode only (amd_pstate_cpu_boost_update in
/// drivers/cpufreq/amd-pstate.c): boost that was switched off in passive mode and comes back in guided mode leaves the
/// frequency capped at nominal. So on the way from passive to guided boost comes back before the mode.
fn boost_while_passive(host: &dyn Host, goals: &Goals, outcome: &mut Restoration) {
    let mode = Location::file("/sys/devices/system/cpu/amd_pstate/status");
    let to_guided = goals.content.get(&mode).is_some_and(|goal| goal.trimmed() == "guided");
    if !to_guided || now(host, &mode).trimmed() != "passive" {
        return;
    }
    for (location, goal) in &goals.content {
        let found = now(host, location);
        if location.name() != "boost" || is_back(host, location, goal, &found) {
            continue;
        }
        let Some(bytes) = writable_form(location, goal) else { continue };
        if location.write(host, &bytes).is_ok() {
            outcome.written.push(Written {
                location: location.clone(),
                from: found.to_string(),
                to: String::from_utf8_lossy(&bytes).trim_end().to_owned(),
            });
        }
    }
}

/// Under a `performance` governor the preference reads `performance`, and the one that the other governor will get
/// back lies hidden. It came to light when the governor was changed: the first write to the preference found it. While
/// the other governor still reigns, it is put back there.
fn hidden_preferences(host: &dyn Host, goals: &Goals, outcome: &mut Restoration) {
    for (location, old) in &goals.first_old {
        if location.name() != "energy_performance_preference"
            || goals.content.get(location).is_none_or(|was| was == old)
        {
            continue;
        }
        let found = now(host, location);
        let (Some(bytes), false) = (writable_form(location, old), found == *old) else { continue };
        let Some(governor) = location.path().map(|path| path.replace(location.name(), "scaling_governor"))
        else {
            continue;
        };
        let was = goals.content.get(&Location::File(governor.clone())).map(Content::trimmed);
        let reigns = host.read(&governor).unwrap_or_default();
        if was == Some("performance") && reigns != "performance" && location.write(host, &bytes).is_ok() {
            outcome.written.push(Written {
                location: location.clone(),
                from: found.to_string(),
                to: old.to_string(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_as_it_reads_has_its_form() {
        let text = |text: &str| Content::Text(text.to_owned());
        let preference = Location::file("/p/energy_performance_preference");
        assert_eq!(
            writable_form(&preference, &text("dynamic(balanced:balance_performance)\n")).unwrap(),
            b"dynamic"
        );
        assert_eq!(writable_form(&preference, &Content::Unreadable(Errno::INVAL.0)).unwrap(), b"default");
        assert_eq!(writable_form(&preference, &Content::Unreadable(Errno::BUSY.0)), None);
        assert_eq!(writable_form(&Location::file("/p/scaling_setspeed"), &text("<unsupported>\n")), None);
        assert_eq!(writable_form(&Location::file("/p/boost"), &text("1\n")).unwrap(), b"1\n");
    }

    #[test]
    fn cpusets_are_taken_back_only_where_nobody_else_came_to_use_them() {
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
        let mut goals = Goals::default();
        goals.content.insert(Location::file(format!("/{control}")), Content::Text("memory\n".to_owned()));
        let outcome = put_back(&host, &goals);
        assert!(outcome.is_exact() && outcome.written.is_empty(), "io is somebody else's: {outcome:?}");

        put(control, "cpuset memory\n");
        put("sys/fs/cgroup/machine.slice/cpuset.cpus", "0-3\n");
        assert!(put_back(&host, &goals).is_exact());
        assert_eq!(read(), "cpuset memory\n");

        put("sys/fs/cgroup/machine.slice/cpuset.cpus", "\n");
        put_back(&host, &goals);
        assert_eq!(read(), "-cpuset\n", "what the kernel is told");
    }

    #[test]
    fn an_interrupt_that_is_gone_is_not_missed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys")).unwrap();
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        let mut goals = Goals::default();
        let left = |goals: &Goals| put_back(&host, goals).left.len();
        goals
            .content
            .insert(Location::file("/proc/irq/77/smp_affinity_list"), Content::Text("3\n".to_owned()));
        assert_eq!(left(&goals), 0);
        goals
            .content
            .insert(Location::file("/sys/x/scaling_governor"), Content::Text("powersave\n".to_owned()));
        assert_eq!(left(&goals), 1);
    }
}
