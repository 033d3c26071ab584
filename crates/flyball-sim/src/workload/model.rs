//! The description of a workload.

use serde::Deserialize;

/// A workload: groups of tasks, and when it ends.
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    /// One-line description for lists.
    pub title: String,
    /// The situation that the workload models, and the source of its numbers.
    pub about: String,
    /// Name of a turn in results, in the plural: "ops", "requests".
    #[serde(default = "turns")]
    pub unit: String,
    /// Ends after this time, s; 0: when all turns have ended.
    #[serde(default)]
    pub seconds: f64,
    /// The real program's length is given in seconds, not in turns.
    #[serde(default)]
    pub timed: bool,
    /// The unit of a result, if it is not turns per second.
    #[serde(default)]
    pub result: Option<String>,
    /// A result is turns per second times this factor.
    #[serde(default = "one")]
    pub scale: f64,
    /// The variation between runs.
    #[serde(default)]
    pub variation: Variation,
    /// Groups of tasks.
    #[serde(default)]
    pub task: Vec<Group>,
}

/// The variation between runs, as relative standard deviations; 0 for none.
#[derive(Debug, Clone, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Variation {
    /// Variation of all cycles, which depends on the placement of code and data in caches.
    #[serde(default)]
    pub cycles: f64,
    /// Variation of all time that no clock speeds up.
    #[serde(default)]
    pub memory: f64,
    /// Variation of the kernel's own work.
    #[serde(default)]
    pub kernel: f64,
}

/// Where a group's tasks run.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Task n stays on the n-th allowed CPU.
    Fixed,
    /// Each turn runs on an idle CPU that the scheduler finds.
    #[default]
    Roam,
    /// A task stays on its CPU unless that is busy.
    Stay,
    /// Two CPUs alternate within each turn: a pair of tasks that wake each other.
    Pair,
}

/// Tasks of one kind.
#[expect(clippy::struct_excessive_bools, reason = "independent keys of a file")]
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Number of tasks; 0: one for each allowed CPU.
    #[serde(default = "one_task")]
    pub count: u32,
    /// Where they run.
    #[serde(default)]
    pub place: Placement,
    /// Roaming tasks use only this many of the allowed CPUs, the first ones, because the scheduler
    /// prefers warm caches. 0: all.
    #[serde(default)]
    pub over: u32,
    /// Cycles per turn.
    #[serde(default)]
    pub cycles: f64,
    /// Turns of a second size: (share of the turns, cycles). Without it all are equal.
    #[serde(default)]
    pub long: Option<(f64, f64)>,
    /// Variation of cycles between turns: 0 for none, 1 for between zero and twice as many.
    #[serde(default)]
    pub spread: f64,
    /// Busy time per turn that no clock speeds up (memory, polled devices), ns.
    #[serde(default)]
    pub memory_ns: f64,
    /// Idle time per turn (a device, a timer, a person), ns.
    #[serde(default)]
    pub gap_ns: f64,
    /// Gaps of a second size: (share of the turns, ns). Without it all are equal.
    #[serde(default)]
    pub long_gap: Option<(f64, f64)>,
    /// A timer ends the gap, so that the idle governor can know its length.
    #[serde(default)]
    pub timer: bool,
    /// The gap waits for a device: the scheduler counts it as iowait.
    #[serde(default)]
    pub io: bool,
    /// Each turn is a new process: the scheduler has no history and assumes half a CPU.
    #[serde(default)]
    pub fork: bool,
    /// Total turns of the group's tasks; 0: unlimited.
    #[serde(default)]
    pub turns: u64,
    /// Switching activity while executing; 1 is dense integer code.
    #[serde(default = "one")]
    pub intensity: f64,
    /// Busy share of each of a pair's CPUs in a turn.
    #[serde(default = "half")]
    pub busy_share: f64,
    /// Stretches of turns with another busy share: (share of the turns in stretches, busy share,
    /// turns per stretch).
    #[serde(default)]
    pub stretches: Option<(f64, f64, u64)>,
    /// True if the result counts the group's turns.
    #[serde(default = "yes")]
    pub counts: bool,
}

fn turns() -> String {
    "turns".to_owned()
}
fn one() -> f64 {
    1.0
}
fn one_task() -> u32 {
    1
}
fn half() -> f64 {
    0.5
}
fn yes() -> bool {
    true
}

/// A mistake in a workload's description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No built-in workload has this name.
    #[error("workload: '{name}' is not known; there are {}", Workload::names().collect::<Vec<_>>().join(", "))]
    Unknown { name: String },
    #[error("workload: {}", .0.to_string().trim_end())]
    Toml(#[from] toml::de::Error),
    /// An invalid value of the workload.
    #[error("workload: {name}: {fault}")]
    Whole { name: String, fault: &'static str },
    /// An invalid value of a task.
    #[error("workload: {name}: task[{task}]: {fault}")]
    Task { name: String, task: usize, fault: &'static str },
}

const FILES: &[(&str, &str)] = &[
    ("idle", include_str!("../../workloads/idle.toml")),
    ("spin", include_str!("../../workloads/spin.toml")),
    ("sched-pipe", include_str!("../../workloads/sched-pipe.toml")),
    ("call-simple", include_str!("../../workloads/call-simple.toml")),
    ("gitsource", include_str!("../../workloads/gitsource.toml")),
    ("tbench", include_str!("../../workloads/tbench.toml")),
    ("speedometer", include_str!("../../workloads/speedometer.toml")),
    ("memory", include_str!("../../workloads/memory.toml")),
    ("bursts", include_str!("../../workloads/bursts.toml")),
    ("io-4k", include_str!("../../workloads/io-4k.toml")),
    ("rpc", include_str!("../../workloads/rpc.toml")),
    ("short-sleeps", include_str!("../../workloads/short-sleeps.toml")),
    ("audio", include_str!("../../workloads/audio.toml")),
];

impl Workload {
    /// Names of the built-in workloads.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|file| file.0)
    }

    /// The text of a built-in workload.
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        FILES.iter().find(|file| file.0 == name).map(|file| file.1)
    }

    /// A built-in workload.
    ///
    /// # Errors
    /// No workload has this name; the message lists the names.
    pub fn builtin(name: &str) -> Result<Workload, WorkloadError> {
        let Some(text) = Workload::builtin_text(name) else {
            return Err(WorkloadError::Unknown { name: name.to_owned() });
        };
        Workload::from_toml(text)
    }

    /// Parses a description.
    ///
    /// # Errors
    /// The text is not TOML, a key is unknown or missing, or a value is invalid; the message names
    /// the key.
    pub fn from_toml(text: &str) -> Result<Workload, WorkloadError> {
        let workload: Workload = toml::from_str(text)?;
        workload.check()?;
        Ok(workload)
    }

    /// Sets the length in the real program's unit: turns of all tasks, or seconds.
    pub fn set_length(&mut self, amount: u64) {
        if self.timed {
            self.seconds = amount as f64;
            return;
        }
        if self.seconds > 0.0 {
            // The result is still a rate.
            self.seconds = f64::INFINITY;
        }
        // If some groups have turns, groups without turns are background load.
        let has_turns = self.task.iter().any(|group| group.turns > 0);
        for group in self.task.iter_mut().filter(|group| group.turns > 0 || !has_turns && group.counts) {
            group.turns = amount;
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let name = &self.name;
        let bad = |task: usize, fault| Err(WorkloadError::Task { name: name.clone(), task, fault });
        let whole = |fault| Err(WorkloadError::Whole { name: name.clone(), fault });
        if !(self.seconds.is_finite() && self.seconds >= 0.0 && self.scale.is_finite()) {
            return whole("seconds must be 0 or more");
        }
        let v = &self.variation;
        if [v.cycles, v.memory, v.kernel].iter().any(|share| !(0.0..=0.3).contains(share)) {
            return whole("variation: shares must be 0 to 0.3");
        }
        for (i, group) in self.task.iter().enumerate() {
            let second = |pair: Option<(f64, f64)>| pair.map_or(0.0, |pair| pair.1);
            let work = [group.cycles, group.memory_ns, second(group.long)];
            let gaps = [group.gap_ns, second(group.long_gap)];
            let mut times = work.iter().chain(&gaps);
            if times.any(|x| !x.is_finite() || *x < 0.0 || *x > 1e15) {
                return bad(i, "cycles, memory_ns and gap_ns must be 0 to 1e15");
            }
            if group.cycles + group.memory_ns < 1.0 {
                return bad(i, "a turn must take at least one cycle or nanosecond");
            }
            if !(0.0..=1.0).contains(&group.spread) || !(0.0..=1.0).contains(&group.busy_share) {
                return bad(i, "spread and busy_share must be 0 to 1");
            }
            if !(0.0..=4.0).contains(&group.intensity) || group.count > 100_000 {
                return bad(i, "intensity must be 0 to 4, count at most 100000");
            }
            if group
                .stretches
                .is_some_and(|s| !(0.0..=1.0).contains(&s.0) || !(0.0..=1.0).contains(&s.1) || s.2 == 0)
            {
                return bad(i, "stretches: two shares of 0 to 1 and turns");
            }
            let is_share = |pair: Option<(f64, f64)>| pair.is_none_or(|l| (0.0..=1.0).contains(&l.0));
            if !is_share(group.long) || !is_share(group.long_gap) {
                return bad(i, "long and long_gap: a share of 0 to 1, and cycles or ns");
            }
            if group.long_gap.is_some() && (group.gap_ns <= 0.0 || group.place == Placement::Pair) {
                return bad(i, "long_gap needs gap_ns, and no pair");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_come_with_the_crate_are_sound() {
        for name in Workload::names() {
            let workload = Workload::builtin(name).unwrap();
            assert_eq!(workload.name, name);
        }
        assert!(Workload::builtin("nonesuch").unwrap_err().to_string().contains("gitsource"));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let text = |line: &str| format!("name='x'\ntitle=''\nabout=''\n[[task]]\ncycles=1\n{line}\n");
        assert!(Workload::from_toml(&text("gap_ns=5")).is_ok());
        for line in ["gap_ns=-1", "spread=2", "cycle=3", "intensity=nan", "memory_ns=inf"] {
            assert!(Workload::from_toml(&text(line)).is_err(), "{line}");
        }
    }
}
