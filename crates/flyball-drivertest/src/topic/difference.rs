//! `difference`: the same sequences on the old and the new kernel. A difference counts if it shows in two boots with different
//! seeds of both kernels, so that timing does not make one; differences with one cause are one test.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bench, Topic, driver_of_all};
use crate::{
    boots::{Boots, CannotTell},
    generate, guests,
    mode::Mode,
    record::{Observation, Run},
    report::Test,
    saved::ModeRecord,
    step::{Sequence, Step},
};

pub struct Difference;

/// Differences that are shown, and places of each.
const MOST: usize = 60;

impl Topic for Difference {
    fn name(&self) -> &'static str {
        "difference"
    }

    fn about(&self) -> &'static str {
        "the same sequences get the same answers, attributes and register writes as on the baseline"
    }

    fn is_default(&self, bench: &Bench<'_>) -> bool {
        bench.baseline.is_some() || bench.against.is_some()
    }

    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell> {
        if let Some(saved) = bench.against {
            let Some(old) = saved.find(mode) else {
                return Ok(vec![Test::skip(
                    "difference",
                    format!("the file has no record of {}", mode.name),
                )]);
            };
            let runs = old.runs();
            return compare(bench, mode, &old.sequences, &|_| Ok(runs.clone()), old.seed);
        }
        let Some(baseline) = bench.baseline else {
            return Ok(vec![Test::skip("difference", "it needs --baseline or --against")]);
        };
        if !mode.exists_in(baseline.release()) {
            return Ok(vec![Test::skip(
                "difference",
                format!("{} does not have this mode", baseline.release()),
            )]);
        }
        let sequences = generate::sequences(mode, bench.seed);
        let old = |seed| {
            let seen = guests::run(baseline, mode, &sequences, seed)?;
            if driver_of_all(mode, &seen).is_good() {
                Ok(seen.boot.runs)
            } else {
                Err(CannotTell::Driver(format!(
                    "the baseline {} does not have the driver in this mode",
                    baseline.release()
                )))
            }
        };
        compare(bench, mode, &sequences, &old, bench.seed)
    }
}

fn compare(
    bench: &Bench<'_>,
    mode: &Mode,
    sequences: &[Sequence],
    old: &dyn Fn(u64) -> Result<Vec<Run>, CannotTell>,
    seed: u64,
) -> Result<Vec<Test>, CannotTell> {
    let new = |seed| boot(bench.kernel, mode, sequences, seed);
    let (first, driver, record) = new(seed)?;
    if !driver.is_good() {
        return Ok(vec![driver]);
    }
    if let Some(save) = bench.save {
        save(record);
    }
    let mut found = differences(sequences, &old(seed)?, &first);
    if !found.is_empty() {
        // Another seed moves everything that depends on time.
        let again = seed ^ 0x5eed;
        let (second, ..) = new(again)?;
        let second = differences(sequences, &old(again)?, &second);
        found.retain(|cause, _| second.contains_key(cause));
    }
    let mut tests = vec![driver];
    if found.is_empty() {
        tests.push(Test::pass("difference"));
    }
    let more = found.len().saturating_sub(MOST);
    for (cause, places) in found.into_iter().take(MOST) {
        let mut lines = vec![format!("{} -> {}", places.old, places.new)];
        lines.push(format!("in {} steps, first in {}", places.count, places.place));
        tests.push(Test::fail(cause, lines).with_steps(Some(places.steps)));
    }
    if more > 0 {
        tests.push(Test::fail("more", vec![format!("{more} more differences are not shown")]));
    }
    Ok(tests)
}

fn boot(
    boots: &dyn Boots,
    mode: &Mode,
    sequences: &[Sequence],
    seed: u64,
) -> Result<(Vec<Run>, Test, ModeRecord), CannotTell> {
    let seen = guests::run(boots, mode, sequences, seed)?;
    let (driver, record) = (driver_of_all(mode, &seen), ModeRecord::new(mode, seed, sequences, &seen.boot));
    Ok((seen.boot.runs, driver, record))
}

/// Where one cause shows.
struct Places {
    old: String,
    new: String,
    count: usize,
    place: String,
    steps: Vec<Step>,
}

/// The differences by cause: what was done, and what differs then, without the numbers of policies and CPUs.
fn differences(sequences: &[Sequence], old: &[Run], new: &[Run]) -> BTreeMap<String, Places> {
    let mut found: BTreeMap<String, Places> = BTreeMap::new();
    for (sequence, (a, b)) in sequences.iter().zip(old.iter().zip(new)) {
        // What differs already is not reported again until it has been the same.
        let mut known: BTreeSet<String> = BTreeSet::new();
        let count = a.observations.len().max(b.observations.len());
        for at in 0..count {
            let step = at.checked_sub(1).and_then(|at| sequence.steps.get(at));
            let (Some(a_now), Some(b_now)) = (a.observations.get(at), b.observations.get(at)) else {
                let (old, new) = (a.observations.len(), b.observations.len());
                let cause = "sequence.cut-short".to_owned();
                add(
                    &mut found,
                    cause,
                    &format!("{old} steps"),
                    &format!("{new} steps"),
                    sequence,
                    at.saturating_sub(1),
                );
                break;
            };
            let before = at.checked_sub(1).map(|at| (&a.observations[at], &b.observations[at]));
            let mut seen = BTreeSet::new();
            for (key, cause, old, new) in of_step(step, before, a_now, b_now) {
                if !known.contains(&key) {
                    add(&mut found, cause, &old, &new, sequence, at);
                }
                seen.insert(key);
            }
            known = seen;
        }
    }
    found
}

fn add(
    found: &mut BTreeMap<String, Places>,
    cause: String,
    old: &str,
    new: &str,
    sequence: &Sequence,
    at: usize,
) {
    let steps = sequence.steps[..at.min(sequence.steps.len())].to_vec();
    let place = format!("{}, step {at}", sequence.name);
    match found.get_mut(&cause) {
        Some(places) => {
            places.count += 1;
            if steps.len() < places.steps.len() {
                *places = Places { old: old.into(), new: new.into(), count: places.count, place, steps };
            }
        }
        None => {
            drop(found.insert(cause, Places { old: old.into(), new: new.into(), count: 1, place, steps }));
        }
    }
}

/// What differs after one step: a key for this place, the cause, the old and the new value.
fn of_step(
    step: Option<&Step>,
    before: Option<(&Observation, &Observation)>,
    a: &Observation,
    b: &Observation,
) -> Vec<(String, String, String, String)> {
    let doing = doing(step);
    let mut all = Vec::new();
    let mut push = |key: String, cause: String, old: String, new: String| all.push((key, cause, old, new));
    if step.is_some() {
        for (old, new) in a.answers.iter().zip(&b.answers) {
            if old.path == new.path && old.answer != new.answer {
                let cause = format!("answer.{}.{}-{}", doing, old.answer, new.answer);
                push(format!("answer {}", old.path), cause, old.answer.clone(), new.answer.clone());
            }
        }
    }
    for (path, old, new) in crate::rules::differences(a, b) {
        let text = |value: Option<&str>| value.unwrap_or("no such file").to_owned();
        let name = plain(path);
        // Governor userspace begins with the frequency of that moment, which goes by the load before it.
        if name == "scaling_setspeed" && !doing.starts_with("scaling_setspeed") {
            continue;
        }
        // A file that one kernel does not have, or that always reads another value, has one cause, whatever was done.
        let only = |old: Option<&str>, new: Option<&str>| old.is_none() || new.is_none();
        let cause = if only(old, new) && !is_dynamic(path, before) {
            format!("file.{name}")
        } else {
            format!("attribute.{name}.after.{doing}")
        };
        push(format!("attribute {path} {old:?} {new:?}"), cause, text(old), text(new));
    }
    let steady = |cpu: u32| {
        let attribute = |o: &Observation, name: &str| {
            let policy = o.policies().into_iter().find(|policy| o.cpus(*policy).contains(&cpu));
            policy.and_then(|policy| o.policy(policy, name).map(str::to_owned))
        };
        let of = |o: &Observation| attribute(o, "scaling_governor");
        // What userspace began with went by load.
        let same_speed = attribute(a, "scaling_setspeed") == attribute(b, "scaling_setspeed");
        let fixed = |o: &Observation| {
            of(o)
                .is_none_or(|governor| matches!(governor.as_str(), "performance" | "powersave" | "userspace"))
        };
        // intel_pstate's powersave without HWP goes by load: its requests are in PERF_CTL.
        let by_load = |o: &Observation| {
            of(o).as_deref() == Some("powersave")
                && o.get("intel_pstate/status") == Some("active")
                && o.register(cpu, "0x770").is_none_or(|on| on & 1 == 0)
        };
        same_speed
            && fixed(a)
            && fixed(b)
            && !by_load(a)
            && !by_load(b)
            && before.is_none_or(|(a, b)| fixed(a) && fixed(b) && !by_load(a) && !by_load(b))
    };
    let keys: BTreeSet<&(u32, String)> = a.registers.keys().chain(b.registers.keys()).collect();
    for key in keys {
        let (cpu, name) = (key.0, &key.1);
        let (old, new) = (a.registers.get(key), b.registers.get(key));
        // With HWP the processor ignores PERF_CTL (Intel SDM 15.4.2), which the driver wrote before it switched HWP on.
        let has_hwp = |o: &Observation| o.register(cpu, "0x770").is_some_and(|on| on & 1 == 1);
        if name == "0x199" && has_hwp(a) && has_hwp(b) {
            continue;
        }
        if old != new && steady(cpu) && crate::rules::is_request(name) {
            let text =
                |value: Option<&u64>| value.map_or_else(|| "never written".to_owned(), |v| format!("{v:#x}"));
            let cause = format!("register.{name}.after.{doing}");
            push(format!("register {cpu} {name} {old:?} {new:?}"), cause, text(old), text(new));
        }
    }
    // The order of writes to one CPU's registers, without repetitions.
    let cpus: BTreeSet<u32> = a.writes.iter().chain(&b.writes).map(|write| write.cpu).collect();
    for cpu in cpus.into_iter().filter(|cpu| step.is_some() && steady(*cpu)) {
        let order = |o: &Observation| {
            let of =
                o.writes.iter().filter(|write| write.cpu == cpu && crate::rules::is_request(&write.register));
            let mut names: Vec<String> =
                of.map(|write| format!("{}={:#x}", write.register, write.value)).collect();
            names.dedup();
            names
        };
        let (old, new) = (order(a), order(b));
        if old != new {
            let cause = format!("writes.{doing}");
            push(format!("writes {cpu} {old:?} {new:?}"), cause, old.join(" "), new.join(" "));
        }
    }
    all
}

/// A file that came or went with this step in one of the kernels.
fn is_dynamic(path: &str, before: Option<(&Observation, &Observation)>) -> bool {
    before.is_some_and(|(a, b)| a.get(path).is_some() && b.get(path).is_some())
}

/// A step without numbers of policies and CPUs; of values only words and small numbers.
fn doing(step: Option<&Step>) -> String {
    match step {
        None => "base-state".to_owned(),
        Some(Step::Write { path, value }) => {
            let name = plain(path);
            let frequency = name.contains("freq") || name.contains("setspeed");
            let number = value.parse::<i64>().is_ok() && value.len() > 3 || value.starts_with('@');
            if frequency && number { name } else { format!("{name}={}", value.replace(' ', "_")) }
        }
        Some(Step::Load(_)) => "load".to_owned(),
        Some(Step::Wait(_)) => "wait".to_owned(),
        Some(Step::Run(command)) => command.split_whitespace().collect::<Vec<_>>().join("_"),
    }
}

/// A path without numbers of policies and CPUs: `scaling_max_freq`, `amd_pstate/status`, `cpu/online`.
fn plain(path: &str) -> String {
    let mut parts = path.split('/');
    match parts.next() {
        Some("cpufreq") if path.starts_with("cpufreq/policy") => parts.skip(1).collect::<Vec<_>>().join("/"),
        Some(first) if first.starts_with("cpu") && first != "cpufreq" => {
            std::iter::once("cpu").chain(parts).collect::<Vec<_>>().join("/")
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(max: &str, answer: &str) -> Vec<Run> {
        let observation = |value: &str| {
            let mut o = Observation::default();
            o.attributes.insert("cpufreq/policy1/scaling_max_freq".into(), value.into());
            o.answers.push(crate::record::Answer {
                path: "cpufreq/policy1/scaling_max_freq".into(),
                answer: answer.into(),
                value: "5".into(),
            });
            o
        };
        vec![Run {
            name: "a".into(),
            observations: vec![observation("9"), observation(max), observation(max)],
        }]
    }

    #[test]
    fn a_difference_has_one_cause() {
        let step = Step::write("cpufreq/policy1/scaling_max_freq", "5000000");
        let sequences = [Sequence { name: "a".into(), steps: vec![step.clone(), step] }];
        assert!(differences(&sequences, &run("5", "ok"), &run("5", "ok")).is_empty());
        let found = differences(&sequences, &run("5", "ok"), &run("9", "ok"));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["attribute.scaling_max_freq.after.scaling_max_freq"]);
        assert_eq!(found.values().next().map(|places| (places.count, places.steps.len())), Some((1, 1)));
        let found = differences(&sequences, &run("5", "ok"), &run("5", "EBUSY"));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["answer.scaling_max_freq.ok-EBUSY"]);
    }

    #[test]
    fn paths_lose_their_numbers() {
        assert_eq!(plain("cpu3/online"), "cpu/online");
        assert_eq!(plain("cpufreq/policy12/schedutil/rate_limit_us"), "schedutil/rate_limit_us");
        assert_eq!(plain("cpufreq/boost"), "cpufreq/boost");
    }
}
