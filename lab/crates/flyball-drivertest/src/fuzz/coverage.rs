//! A driver's behaviour in a sequence as a set of numbers: the result of each step, the changed
//! attributes, the written parts of registers, and the driver's state. A sequence with a new number
//! is worth keeping.
//!
//! Numbers of CPUs and policies are ignored, and frequencies are compared with the limits, so that
//! the same behaviour on another CPU or at another frequency is not new.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher as _},
};

use crate::{
    record::{Observation, Run},
    speed_select,
    step::Step,
};

/// Number of a step's register writes whose order counts.
const ORDER: usize = 4;

/// Behaviours, each with the index of its step.
pub(super) fn features(steps: &[Step], run: &Run) -> Vec<(usize, u64)> {
    let mut all = Vec::new();
    let mut before_that = String::new();
    for (at, (step, pair)) in steps.iter().zip(run.observations.windows(2)).enumerate() {
        let [before, after] = pair else { break };
        let doing = doing(step, before);
        let answers = answers(after);
        let state = state(step, before);
        let writes = writes(step, before, after);
        let changes = changes(before, after);
        let mut add = |what: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            what(&mut hasher);
            all.push((at, hasher.finish()));
        };
        add(&|h| ("answer", &doing, &answers, &state).hash(h));
        add(&|h| ("writes", &doing, &writes, &state).hash(h));
        add(&|h| ("changes", &doing, &changes).hash(h));
        add(&|h| ("pair", &before_that, &doing, &answers, &writes).hash(h));
        for written in &after.writes {
            for (byte, value) in written.value.to_le_bytes().into_iter().enumerate() {
                add(&|h| ("value", &written.register, byte, value / 16, written.refused).hash(h));
            }
        }
        before_that = doing;
    }
    all
}

/// A path without the numbers of policies and CPUs.
pub(super) fn kind(path: &str) -> String {
    path.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Describes a step: its file, and the category of its value.
fn doing(step: &Step, before: &Observation) -> String {
    match step {
        Step::Write { path, value } => {
            let value = match value.trim().parse::<i64>() {
                Ok(number) => place(number, path, before),
                Err(_) => value.as_str(),
            };
            format!("{} {value}", kind(path))
        }
        Step::Load(_) => "load".to_owned(),
        Step::Wait(_) => "wait".to_owned(),
        Step::Run(command) => command.clone(),
        Step::Ioctl { number, argument } => speed_select::coarse(*number, argument),
        Step::Firmware(faults) => format!("firmware {faults}"),
    }
}

/// The position of a number relative to the policy's limits, or else its rough size.
fn place(number: i64, path: &str, before: &Observation) -> &'static str {
    let next_to = |name: &str| before.number(&format!("{}/{name}", path.rsplit_once('/')?.0));
    let limits =
        ["cpuinfo_min_freq", "scaling_min_freq", "scaling_max_freq", "cpuinfo_max_freq"].map(next_to);
    if let [Some(lowest), Some(min), Some(max), Some(highest)] = limits {
        return match number {
            n if n < lowest => "below all",
            n if n < min => "below the minimum",
            n if n == min => "the minimum",
            n if n < max => "within",
            n if n == max => "the maximum",
            n if n <= highest => "above the maximum",
            _ => "above all",
        };
    }
    match number {
        i64::MIN..0 => "negative",
        0 => "0",
        1 => "1",
        2..50 => "low",
        50..100 => "middle",
        100 => "100",
        _ => "high",
    }
}

fn answers(after: &Observation) -> Vec<(String, &str)> {
    let mut all: Vec<(String, &str)> = after.answers.iter().map(|a| (kind(&a.path), &*a.answer)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The driver's state before a step: its mode, switches, number of offline CPUs, and for the step's
/// policy the governor and whether the limits are open.
fn state(step: &Step, before: &Observation) -> Vec<String> {
    let get = |path: &str| before.get(path).unwrap_or("-").to_owned();
    let mut all: Vec<String> =
        ["amd_pstate/status", "intel_pstate/status", "intel_pstate/no_turbo", "cpufreq/boost"]
            .map(get)
            .into();
    let offline = before.attributes.iter().filter(|(path, value)| path.ends_with("/online") && *value == "0");
    all.push(offline.count().min(2).to_string());
    if let Step::Write { path, .. } = step
        && let Some((policy, _)) =
            path.rsplit_once('/').filter(|(policy, _)| policy.starts_with("cpufreq/policy"))
    {
        all.push(get(&format!("{policy}/scaling_governor")));
        let number = |name: &str| before.number(&format!("{policy}/{name}"));
        all.push((number("scaling_max_freq") == number("cpuinfo_max_freq")).to_string());
        all.push((number("scaling_min_freq") == number("cpuinfo_min_freq")).to_string());
    }
    all
}

/// The bytes of registers that rose and fell, in order, and whether the register is the step's own
/// CPU's.
fn writes(step: &Step, before: &Observation, after: &Observation) -> Vec<(bool, String, Vec<i8>)> {
    let own = match step {
        Step::Write { path, .. } => {
            path.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u32>().ok()
        }
        _ => None,
    };
    let mut all: Vec<(bool, String, Vec<i8>)> = Vec::new();
    for written in &after.writes {
        let old = before.register(written.cpu, &written.register).unwrap_or(0).to_le_bytes();
        let new = written.value.to_le_bytes();
        let moves = old.iter().zip(&new).map(|(old, new)| new.cmp(old) as i8).collect();
        let entry = (own == Some(written.cpu), written.register.clone(), moves);
        if !all.contains(&entry) {
            all.push(entry);
        }
        if all.len() == ORDER {
            break;
        }
    }
    all
}

fn changes(before: &Observation, after: &Observation) -> Vec<String> {
    let mut all: Vec<String> =
        crate::rules::differences(before, after).into_iter().map(|(path, ..)| kind(path)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(policy: u32, max: &str, request: u64) -> Observation {
        let mut seen = Observation::default();
        for (name, value) in [
            ("cpuinfo_min_freq", "400000"),
            ("scaling_min_freq", "400000"),
            ("scaling_max_freq", max),
            ("cpuinfo_max_freq", "4680000"),
        ] {
            seen.attributes.insert(format!("cpufreq/policy{policy}/{name}"), value.to_owned());
        }
        let written = crate::record::Written {
            cpu: policy,
            register: "0xc00102b3".into(),
            value: request,
            refused: false,
        };
        seen.registers.insert((policy, "0xc00102b3".into()), request);
        seen.writes.push(written);
        seen
    }

    fn of(policy: u32, max: &str, request: u64) -> std::collections::BTreeSet<u64> {
        let run = Run {
            name: "a".into(),
            observations: vec![observed(policy, "4680000", 0xa6), observed(policy, max, request)],
        };
        let step = Step::write(format!("cpufreq/policy{policy}/scaling_max_freq"), max);
        features(&[step], &run).into_iter().map(|(_, feature)| feature).collect()
    }

    #[test]
    fn another_cpu_or_frequency_is_not_new() {
        assert_eq!(of(1, "3000000", 0x6a), of(2, "3100000", 0x6b));
    }

    #[test]
    fn another_field_or_value_is_new() {
        assert_ne!(of(1, "3000000", 0x6a), of(1, "3000000", 0x6a00));
        assert_ne!(of(1, "3000000", 0x6a), of(1, "300000", 0x6a));
    }
}
