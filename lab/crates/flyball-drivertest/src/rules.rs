//! The contract of cpufreq drivers as a table of rules. Each rule is checked after every step and
//! names its source; each file below rules/ has the rules of one driver.
//!
//! A rule compares what sysfs reports, the content of the register or mailbox, and the silicon's
//! behaviour under load. If kernels differ and the documentation leaves it open, a rule accepts all
//! of them: `difference` compares kernels exactly.

mod acpi;
mod amd;
mod intel;
mod policy;
mod silicon;
mod speed_select;

pub use policy::{has_steady_request, is_fixed, is_request, is_switch};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    mode::Mode,
    record::{Observation, Run},
    step::{Sequence, Step},
};

/// A rule.
pub struct Rule {
    /// Stable identifier `subject.rule`.
    pub id: &'static str,
    /// What must hold.
    pub about: &'static str,
    /// The kernel documentation that requires it.
    pub source: &'static str,
    /// The modes to which it applies.
    pub applies: fn(&Mode) -> bool,
    /// Returns one line for each violation.
    pub check: fn(&Case<'_>) -> Vec<String>,
}

/// A point in a sequence.
pub struct Case<'a> {
    pub mode: &'a Mode,
    /// The step; `None` for the base state.
    pub step: Option<&'a Step>,
    /// Observation before the step; for the base state it equals `after`.
    pub before: &'a Observation,
    pub after: &'a Observation,
    /// The base state of the boot's first sequence.
    pub first: &'a Observation,
    /// All earlier observations in the sequence with their steps: the state at index i is before
    /// the step at index i.
    pub earlier: &'a [(&'a Observation, Option<&'a Step>)],
    pub asked: &'a Asked,
}

impl Case<'_> {
    /// The file that the step writes, without directories, and its value.
    pub fn written(&self) -> Option<(&str, &str)> {
        match self.step? {
            Step::Write { path, value } => Some((path.rsplit('/').next().unwrap_or_default(), value)),
            _ => None,
        }
    }

    /// Returns whether every write of the step failed, and there was at least one.
    pub fn is_refused(&self) -> bool {
        let answers = &self.after.answers;
        !answers.is_empty() && answers.iter().all(|answer| !answer.is_ok())
    }

    /// Returns whether the driver is in the tested mode; sequences may have left it.
    pub fn is_home(&self) -> bool {
        let driver =
            self.after.policies().first().and_then(|policy| self.after.policy(*policy, "scaling_driver"));
        let status =
            self.mode.status().is_none_or(|(path, word)| self.after.get(path).is_none_or(|now| now == word));
        status && driver == Some(self.mode.scaling_driver())
    }

    /// The attributes that differ between before and after.
    pub fn changed(&self) -> Vec<(&str, Option<&str>, Option<&str>)> {
        differences(self.before, self.after)
    }
}

/// The attributes in which two observations differ.
pub fn differences<'a>(
    a: &'a Observation,
    b: &'a Observation,
) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
    let mut paths: Vec<&String> = a.attributes.keys().chain(b.attributes.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let all = paths.into_iter().map(|path| (path.as_str(), a.get(path), b.get(path)));
    all.filter(|(_, old, new)| old != new).collect()
}

/// The limits requested through sysfs, by policy; `None` if the driver may have set one itself.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub min: BTreeMap<u32, i64>,
    pub max: BTreeMap<u32, i64>,
    /// The speed requested from the userspace governor.
    pub speed: BTreeMap<u32, i64>,
}

impl Asked {
    /// The limits after the base state was set.
    fn base(base: &Observation) -> Asked {
        let mut asked = Asked::default();
        for policy in base.policies() {
            if let (Some(min), Some(max)) = (
                base.policy_number(policy, "cpuinfo_min_freq"),
                base.policy_number(policy, "cpuinfo_max_freq"),
            ) {
                asked.min.insert(policy, min);
                asked.max.insert(policy, max);
            }
        }
        asked
    }

    fn follow(&mut self, before: &Observation, after: &Observation) {
        for answer in after.answers.iter().filter(|answer| answer.is_ok()) {
            let policy: Option<u32> = answer
                .path
                .strip_prefix("cpufreq/policy")
                .and_then(|rest| rest.split('/').next())
                .and_then(|number| number.parse().ok());
            let value = number(&answer.value);
            let set = |map: &mut BTreeMap<u32, i64>| {
                if let Some(policy) = policy {
                    map.remove(&policy);
                    map.extend(value.map(|value| (policy, value)));
                }
            };
            match answer.file() {
                "scaling_max_freq" => set(&mut self.max),
                "scaling_min_freq" => set(&mut self.min),
                "scaling_setspeed" => set(&mut self.speed),
                "scaling_governor" => drop(policy.map(|policy| self.speed.remove(&policy))),
                // set_boost in some drivers writes the policy's request.
                "boost" => self.max.clear(),
                // A policy that is created again has the driver's requests; which of them applies
                // depends on the driver.
                "status"
                    if before.get("amd_pstate/status") != after.get("amd_pstate/status")
                        || before.get("intel_pstate/status") != after.get("intel_pstate/status") =>
                {
                    *self = Asked::default();
                }
                _ => {}
            }
        }
    }
}

/// A number in the format of the kernel's kstrtouint.
pub fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Every rule.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [policy::RULES, amd::RULES, intel::RULES, acpi::RULES, silicon::RULES, speed_select::RULES]
        .into_iter()
        .flatten()
}

/// The rules of a mode. Rules of cpufreq do not cover Speed Select's device.
pub fn of(mode: &Mode) -> impl Iterator<Item = &'static Rule> {
    let about_calls = |rule: &Rule| rule.id.starts_with("speed-select.");
    rules().filter(move |rule| about_calls(rule) == mode.shape.is_some() && (rule.applies)(mode))
}

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    pub rule: String,
    /// Index of the sequence, and of the step; `None` for the base state.
    pub sequence: usize,
    pub step: Option<usize>,
    pub details: Vec<String>,
}

impl Violation {
    /// The sequence that shows the violation. If a base state differs, the sequence before it
    /// caused that.
    pub fn shown_by(&self) -> Option<usize> {
        match self.step {
            Some(_) => Some(self.sequence),
            None => self.sequence.checked_sub(1),
        }
    }

    /// The violations with their rule and without numbers: equal for another CPU or another
    /// frequency, but not for another attribute.
    pub fn shapes(&self) -> impl Iterator<Item = String> {
        let word = |word: &str| match word {
            word if word.trim_start_matches(['\'', '-', '(']).starts_with(|c: char| c.is_ascii_digit()) => {
                "N".to_owned()
            }
            word => word.chars().filter(|c| !c.is_ascii_digit()).collect(),
        };
        self.details.iter().map(move |line| {
            let words: Vec<String> = line.split(' ').map(word).collect();
            format!("{}: {}", self.rule, words.join(" "))
        })
    }
}

/// Checks a boot's runs of `sequences`.
pub fn check(mode: &Mode, sequences: &[Sequence], runs: &[Run]) -> Vec<Violation> {
    let mut found = Vec::new();
    let Some(first) = runs.first().and_then(|run| run.observations.first()) else { return found };
    let rules: Vec<&Rule> = of(mode).collect();
    for (index, (sequence, run)) in sequences.iter().zip(runs).enumerate() {
        let Some(base) = run.observations.first() else { continue };
        let mut asked = Asked::base(base);
        let mut earlier: Vec<(&Observation, Option<&Step>)> = Vec::new();
        for (at, after) in run.observations.iter().enumerate() {
            let step = at.checked_sub(1).and_then(|at| sequence.steps.get(at));
            let before = at.checked_sub(1).map_or(after, |at| &run.observations[at]);
            if at > 0 {
                asked.follow(before, after);
                earlier.push((before, step));
            }
            let case = Case { mode, step, before, after, first, earlier: &earlier, asked: &asked };
            for rule in &rules {
                let details = (rule.check)(&case);
                if !details.is_empty() {
                    found.push(Violation {
                        rule: rule.id.to_owned(),
                        sequence: index,
                        step: at.checked_sub(1),
                        details,
                    });
                }
            }
        }
    }
    found
}

/// The rule with this id.
pub fn find(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

#[cfg(test)]
mod tests;
