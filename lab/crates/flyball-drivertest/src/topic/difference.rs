//! `difference`: runs equal sequences on the old and the new kernel. A difference counts if it
//! appears at one step in two boots of both kernels. All four have different seeds, so that timing
//! does not cause one. Differences with one cause are one test: values that already differ in the
//! base state, consequences of an answer or of another attribute, levels that are rounded
//! differently.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bench, Topic, contract::reports, driver_of_all, of_baseline};
use crate::{
    boots::{Boots, CannotTell},
    generate, guests,
    mode::Mode,
    record::{Observation, Run},
    report::Test,
    saved::ModeRecord,
    speed_select,
    step::{Sequence, Step},
};

pub(super) struct Difference;

/// Maximum number of causes to show.
const MAX: usize = 60;

/// Maximum number of additional pairs of values to show for each cause.
const EXAMPLES: usize = 5;

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
    let mut found = differences(sequences, &old(of_baseline(seed))?, &first);
    if !found.is_empty() {
        // Another seed shifts everything that depends on time.
        let again = seed ^ 0x5eed;
        let (second, ..) = new(again)?;
        let second = differences(sequences, &old(of_baseline(again))?, &second);
        let second: BTreeSet<_> = second.iter().map(Place::key).collect();
        found.retain(|place| second.contains(&place.key()));
    }
    let mut causes: BTreeMap<&str, Vec<&Place>> = BTreeMap::new();
    for place in &found {
        causes.entry(&place.cause).or_default().push(place);
    }
    let mut tests = vec![driver];
    if causes.is_empty() {
        tests.push(Test::pass("difference"));
    }
    let more = causes.len().saturating_sub(MAX);
    tests.extend(causes.iter().take(MAX).filter_map(|(cause, places)| test(cause, places, sequences)));
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
    let driver = driver_of_all(mode, &seen);
    let mut record = ModeRecord::new(mode, seed, sequences, &seen.boot);
    record.reports = reports(&seen, sequences);
    Ok((seen.boot.runs, driver, record))
}

/// A point at which the kernels differ.
struct Place {
    cause: String,
    /// The differing attribute, answer or field of a request.
    subject: String,
    old: String,
    new: String,
    sequence: usize,
    at: usize,
}

impl Place {
    /// Identifies the difference in another boot. Values are excluded because they may depend on
    /// time.
    fn key(&self) -> (String, String, usize, usize) {
        (self.cause.clone(), self.subject.clone(), self.sequence, self.at)
    }
}

/// Makes a test of all points with one cause: the difference with examples, and the shortest way to
/// it.
fn test(cause: &str, places: &[&Place], sequences: &[Sequence]) -> Option<Test> {
    let is_effect = |place: &Place| place.subject != ANSWER && !cause.contains(&place.subject);
    let first = places.iter().min_by_key(|place| (place.at, place.sequence, is_effect(place)))?;
    let sequence = &sequences[first.sequence];
    let steps = sequence.steps[..first.at.min(sequence.steps.len())].to_vec();
    let show = |place: &Place| {
        let step = place.at.checked_sub(1).and_then(|at| sequences[place.sequence].steps.get(at));
        let after =
            step.map_or_else(|| "in the base state".to_owned(), |step| format!("after {}", exactly(step)));
        format!("{} {} -> {} {after}", place.subject, shown(&place.old), shown(&place.new))
    };
    let mut lines = vec![show(first)];
    let mut kinds = BTreeSet::from([(&first.subject, &first.old, &first.new)]);
    let others = places.iter().filter(|place| kinds.insert((&place.subject, &place.old, &place.new)));
    let others: Vec<String> = others.map(|place| show(place)).collect();
    lines.extend(others.iter().take(EXAMPLES).cloned());
    if others.len() > EXAMPLES {
        lines.push(format!("and {} other pairs of values", others.len() - EXAMPLES));
    }
    let count = places.iter().map(|place| (place.sequence, place.at)).collect::<BTreeSet<_>>().len();
    lines.push(format!("in {count} steps, first in {}, step {}", sequence.name, first.at));
    Some(Test::fail(cause, lines).with_steps(Some(steps)))
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

/// The differences with their causes.
fn differences(sequences: &[Sequence], old: &[Run], new: &[Run]) -> Vec<Place> {
    let base =
        |runs: &[Run]| runs.iter().find_map(|run| run.observations.first().cloned()).unwrap_or_default();
    let constants = Constants::new(&base(old), &base(new));
    let mut found = Vec::new();
    for (index, (sequence, (a, b))) in sequences.iter().zip(old.iter().zip(new)).enumerate() {
        let mut open = Open::default();
        let mut by_load = BTreeSet::new();
        for at in 0..a.observations.len().max(b.observations.len()) {
            let step = at.checked_sub(1).and_then(|at| sequence.steps.get(at));
            let (Some(a_now), Some(b_now)) = (a.observations.get(at), b.observations.get(at)) else {
                let steps = |run: &Run| format!("{} steps", run.observations.len());
                found.push(Place {
                    cause: "sequence.cut-short".to_owned(),
                    subject: "sequence".to_owned(),
                    old: steps(a),
                    new: steps(b),
                    sequence: index,
                    at: at.saturating_sub(1),
                });
                break;
            };
            let before = at.checked_sub(1).map(|at| (&a.observations[at], &b.observations[at]));
            let by_load_before = by_load.clone();
            follow_governors(&mut by_load, a_now, b_now);
            let moment = Moment {
                step,
                before,
                a: a_now,
                b: b_now,
                constants: &constants,
                by_load_before: &by_load_before,
                by_load: &by_load,
            };
            let seen = moment.differences(&open);
            for (key, difference) in &seen {
                // Do not report a difference again until the values have been equal.
                let is_known = !key.starts_with(EVENT)
                    && open
                        .get(key)
                        .is_some_and(|known| (&known.old, &known.new) == (&difference.old, &difference.new));
                if !is_known {
                    found.push(Place {
                        cause: difference.cause.clone(),
                        subject: difference.subject.clone(),
                        old: difference.old.clone(),
                        new: difference.new.clone(),
                        sequence: index,
                        at,
                    });
                }
            }
            // From here on the kernels are in different driver modes.
            let is_parted = seen.iter().any(|(key, _)| key.starts_with(EVENT) && key.ends_with("/status"));
            if is_parted {
                break;
            }
            open = seen;
        }
    }
    found
}

/// A difference at one point in time.
#[derive(Debug, Clone)]
struct Differing {
    cause: String,
    subject: String,
    old: String,
    new: String,
    /// True if it differs from the base state on, or only one kernel has the file: nothing else
    /// follows from it.
    is_constant: bool,
}

/// The subject of a differing answer.
const ANSWER: &str = "the answer";

/// Prefix of the key of an event: an answer, writes. All others are states.
const EVENT: &str = "!";

/// Current differences by the path of an attribute, or by CPU and field of a request.
type Open = BTreeMap<String, Differing>;

/// Differences in the base state. If a pair of values appears again later, it has the same cause.
struct Constants(BTreeMap<(String, String), BTreeSet<String>>);

impl Constants {
    fn new(a: &Observation, b: &Observation) -> Constants {
        let mut pairs: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        let mut add = |old: &str, new: &str, subject: String| {
            pairs.entry((old.to_owned(), new.to_owned())).or_default().insert(subject);
        };
        for (path, old, new) in crate::rules::differences(a, b) {
            if let (Some(old), Some(new)) = (old, new) {
                add(old, new, plain(path));
            }
        }
        for (_, field, old, new) in requests(a, b) {
            add(&old, &new, field);
        }
        Constants(pairs)
    }

    /// The cause of this pair of values. A frequency may come from another attribute; other values
    /// are less specific.
    fn cause(&self, subject: &str, old: &str, new: &str) -> Option<String> {
        let subjects = self.0.get(&(old.to_owned(), new.to_owned()))?;
        let is_frequency = |text: &str| text.len() >= 5 && text.parse::<u64>().is_ok();
        let found =
            if is_frequency(old) && is_frequency(new) { subjects.first() } else { subjects.get(subject) };
        found.map(|name| format!("base-state.{name}"))
    }

    /// The cause of the pair of values that this attribute has in the base state.
    fn cause_of(&self, subject: &str) -> String {
        let first = self.0.values().find(|subjects| subjects.contains(subject)).and_then(BTreeSet::first);
        format!("base-state.{}", first.map_or(subject, String::as_str))
    }
}

/// The attributes on which an attribute or a field of a request depends: if one of these differs
/// too, it is the cause.
fn sources(subject: &str) -> &'static [&'static str] {
    match subject {
        "boost" => &["cpufreq/boost"],
        "cpuinfo_max_freq" => &["cpufreq/boost", "boost", "intel_pstate/no_turbo"],
        "scaling_max_freq" => &["cpufreq/boost", "boost", "intel_pstate/no_turbo", "cpuinfo_max_freq"],
        "scaling_min_freq" => &[
            "cpufreq/boost",
            "boost",
            "intel_pstate/no_turbo",
            "cpuinfo_max_freq",
            "cpuinfo_min_freq",
            "scaling_max_freq",
        ],
        "energy_performance_preference"
        | "energy_performance_available_preferences"
        | "request.preference" => &["scaling_governor", "energy_performance_preference"],
        "request.maximum" => {
            &["cpufreq/boost", "boost", "scaling_governor", "cpuinfo_max_freq", "scaling_max_freq"]
        }
        "request.minimum" => &["scaling_governor", "scaling_min_freq", "scaling_max_freq"],
        "request.desired" | "request.ratio" | "request.state" => {
            &["scaling_governor", "scaling_setspeed", "scaling_min_freq", "scaling_max_freq"]
        }
        _ => &[],
    }
}

/// Returns whether kernels only round a frequency to a level differently.
fn is_rounding(field: &str, old: &str, new: &str) -> bool {
    let levels = old.parse::<u64>().ok().zip(new.parse::<u64>().ok());
    matches!(field, "request.maximum" | "request.minimum" | "request.desired")
        && levels.is_some_and(|(old, new)| old.abs_diff(new) == 1)
}

/// The fields of a request.
fn fields(register: &str, value: u64) -> Vec<(&str, u64)> {
    let byte = |shift: u32| value >> shift & 0xff;
    match register {
        // arch/x86/include/asm/msr-index.h, AMD_CPPC_*
        "0xc00102b3" => {
            vec![
                ("maximum", byte(0)),
                ("minimum", byte(8)),
                ("desired", byte(16)),
                ("preference", byte(24)),
                ("rest", value >> 32),
            ]
        }
        // arch/x86/include/asm/msr-index.h, HWP_*
        "0x774" => {
            vec![
                ("minimum", byte(0)),
                ("maximum", byte(8)),
                ("desired", byte(16)),
                ("preference", byte(24)),
                ("rest", value >> 32),
            ]
        }
        // Bit 32 disengages turbo (Intel's manual, IA32_PERF_CTL).
        "0x199" => vec![("ratio", byte(8)), ("turbo-off", value >> 32 & 1)],
        "0xc0010062" => vec![("state", value)],
        "mailbox.max" => vec![("maximum", value)],
        "mailbox.min" => vec![("minimum", value)],
        "mailbox.epp" => vec![("preference", value)],
        other => vec![(other.strip_prefix("mailbox.").unwrap_or(other), value)],
    }
}

/// The differing fields of requests: CPU, `request.FIELD`, old and new value.
fn requests(a: &Observation, b: &Observation) -> Vec<(u32, String, String, String)> {
    let keys: BTreeSet<&(u32, String)> = a.registers.keys().chain(b.registers.keys()).collect();
    let mut all = Vec::new();
    for key in keys.into_iter().filter(|key| crate::rules::is_request(&key.1)) {
        let (cpu, name) = (key.0, key.1.as_str());
        // With HWP the processor ignores PERF_CTL (Intel SDM 15.4.2), which the driver wrote before
        // it enabled HWP.
        let has_hwp = |o: &Observation| o.register(cpu, "0x770").is_some_and(|on| on & 1 == 1);
        if name == "0x199" && has_hwp(a) && has_hwp(b) {
            continue;
        }
        match (a.registers.get(key), b.registers.get(key)) {
            (Some(old), Some(new)) => {
                let pairs = fields(name, *old).into_iter().zip(fields(name, *new));
                let pairs = pairs.filter(|((_, old), (_, new))| old != new);
                all.extend(pairs.map(|((field, old), (_, new))| {
                    (cpu, format!("request.{field}"), old.to_string(), new.to_string())
                }));
            }
            (old, new) => {
                let text = |value: Option<&u64>| {
                    value.map_or_else(|| "never written".to_owned(), |v| format!("{v:#x}"))
                };
                all.push((cpu, format!("request.{name}"), text(old), text(new)));
            }
        }
    }
    all
}

/// Both kernels after one step.
struct Moment<'a> {
    step: Option<&'a Step>,
    before: Option<(&'a Observation, &'a Observation)>,
    a: &'a Observation,
    b: &'a Observation,
    constants: &'a Constants,
    /// CPUs whose request depends on load in one of the kernels.
    by_load_before: &'a BTreeSet<u32>,
    by_load: &'a BTreeSet<u32>,
}

impl Moment<'_> {
    /// The current differences; `open` has those before the step.
    fn differences(&self, open: &Open) -> Open {
        let mut now = Open::new();
        let doing = doing(self.step);
        let mut refused = None;
        if self.step.is_some() {
            for (old, new) in self.a.answers.iter().zip(&self.b.answers) {
                if old.path == new.path && old.answer != new.answer {
                    let path = &old.path;
                    let asked = if path == speed_select::DEVICE { doing.clone() } else { plain(path) };
                    let cause = format!("answer.{asked}.{}-{}", old.answer, new.answer);
                    refused.get_or_insert_with(|| cause.clone());
                    let subject = ANSWER.to_owned();
                    let (old, new) = (old.answer.clone(), new.answer.clone());
                    let key = format!("{EVENT}answer {path}");
                    now.insert(key, Differing { cause, subject, old, new, is_constant: false });
                }
            }
        }
        now.extend(self.replies(&doing));
        // If one kernel rejects a step, it takes effect only in the other.
        let effect = |key: &str| {
            let written = self.a.answers.iter().any(|answer| answer.path == key);
            let earlier = open.get(key).filter(|known| !known.is_constant && !written);
            earlier.map(|known| known.cause.clone()).or_else(|| refused.clone())
        };
        for (path, old, new) in crate::rules::differences(self.a, self.b) {
            let name = plain(path);
            // The userspace governor starts with the current frequency, which depends on earlier
            // load.
            if name == "scaling_setspeed" && !doing.starts_with("scaling_setspeed") {
                continue;
            }
            // If the answer contains all settings, the field that differs.
            let field = old.zip(new).and_then(|(old, new)| speed_select::differing_state(path, old, new));
            let (name, old, new) = match &field {
                Some((field, old, new)) => (field.clone(), Some(&**old), Some(&**new)),
                None => (name, old, new),
            };
            let constant = old.zip(new).and_then(|(old, new)| self.constant(&name, old, new));
            // A file that one kernel lacks has a single cause, whatever was done.
            let lacks = (old.is_none() || new.is_none()) && !self.is_dynamic(path);
            let is_constant = constant.is_some() || lacks;
            let cause = constant
                .or_else(|| lacks.then(|| format!("file.{name}")))
                .or_else(|| effect(path))
                .unwrap_or_else(|| format!("attribute.{name}.after.{doing}"));
            let text = |value: Option<&str>| value.unwrap_or("no such file").to_owned();
            let differing = Differing { cause, subject: name, old: text(old), new: text(new), is_constant };
            now.insert(path.to_owned(), differing);
        }
        let attributes = now.clone();
        for differing in now.iter_mut().filter(|(path, _)| !open.contains_key(*path)) {
            if let Some(source) =
                source(&attributes, differing.0, &differing.1.subject).filter(|_| !differing.1.is_constant)
            {
                differing.1.cause = source;
            }
        }
        let attributes = now.clone();
        for (cpu, field, old, new) in requests(self.a, self.b) {
            if !self.is_steady(cpu) {
                continue;
            }
            let key = format!("cpu{cpu} {field}");
            let constant = self.constants.cause(&field, &old, &new);
            let is_constant = constant.is_some();
            let place =
                self.policy(cpu).map_or_else(String::new, |policy| format!("cpufreq/policy{policy}/"));
            let cause = constant
                .or_else(|| source(&attributes, &place, &field))
                .or_else(|| effect(&key))
                .or_else(|| is_rounding(&field, &old, &new).then(|| "request.one-level-apart".to_owned()))
                .unwrap_or_else(|| format!("{field}.after.{doing}"));
            now.insert(key, Differing { cause, subject: field, old, new, is_constant });
        }
        self.orders(&mut now, &doing, refused.as_deref());
        now
    }

    /// Compares, field by field, the answers to a call of Speed Select's device that neither kernel
    /// rejects.
    fn replies(&self, doing: &str) -> Open {
        let mut all = Open::new();
        let Some(Step::Ioctl { number, .. }) = self.step else { return all };
        let (Some(old), Some(new)) = (self.a.answers.first(), self.b.answers.first()) else { return all };
        if old.answer != new.answer {
            return all;
        }
        let replies = speed_select::bytes(&old.value).zip(speed_select::bytes(&new.value));
        let fields = speed_select::by_number(*number).zip(replies);
        let mut fields =
            fields.map_or_else(Vec::new, |(call, (old, new))| speed_select::differing(call, &old, &new));
        if old.returned != new.returned {
            fields.push(("returned".to_owned(), old.returned.to_string(), new.returned.to_string()));
        }
        for (field, old, new) in fields {
            let cause = format!("reply.{doing}.{field}");
            let differing = Differing { cause, subject: field.clone(), old, new, is_constant: false };
            all.insert(format!("{EVENT}reply {field}"), differing);
        }
        all
    }

    /// Compares the order of writes to one CPU's registers, without repetitions, if the result is
    /// equal.
    fn orders(&self, now: &mut Open, doing: &str, refused: Option<&str>) {
        let cpus: BTreeSet<u32> = self.a.writes.iter().chain(&self.b.writes).map(|write| write.cpu).collect();
        let same = |a: &Observation, b: &Observation, cpu: u32| {
            requests(a, b).iter().all(|request| request.0 != cpu)
        };
        for cpu in cpus {
            if self.step.is_none() || !self.is_steady(cpu) || self.by_load_before.contains(&cpu) {
                continue;
            }
            if !same(self.a, self.b, cpu) || self.before.is_some_and(|(a, b)| !same(a, b, cpu)) {
                continue;
            }
            let order = |o: &Observation| {
                let of = o.writes.iter().filter(|write| write.cpu == cpu && is_compared(&write.register));
                let mut names: Vec<String> =
                    of.map(|write| format!("{}={:#x}", write.register, write.value)).collect();
                names.dedup();
                names
            };
            let (old, new) = (order(self.a), order(self.b));
            if old != new {
                let cause = refused.map_or_else(|| format!("writes.after.{doing}"), str::to_owned);
                let (subject, old, new) = ("writes".to_owned(), old.join(" "), new.join(" "));
                now.insert(
                    format!("{EVENT}writes {cpu}"),
                    Differing { cause, subject, old, new, is_constant: false },
                );
            }
        }
    }

    /// The cause of a pair of values that depends on the base state: seen there, or written as
    /// `@NAME+N` of a value that differs there.
    fn constant(&self, subject: &str, old: &str, new: &str) -> Option<String> {
        let referenced = || {
            let Some(Step::Write { value, .. }) = self.step else { return None };
            let name = value.strip_prefix('@')?.split(['+', '-']).next()?;
            let wrote = |o: &Observation, value: &str| o.answers.iter().any(|answer| answer.value == value);
            (wrote(self.a, old) && wrote(self.b, new)).then(|| self.constants.cause_of(name))
        };
        self.constants.cause(subject, old, new).or_else(referenced)
    }

    /// Returns whether a file appeared or disappeared with this step in one of the kernels.
    fn is_dynamic(&self, path: &str) -> bool {
        self.before.is_some_and(|(a, b)| a.get(path).is_some() && b.get(path).is_some())
    }

    fn policy(&self, cpu: u32) -> Option<u32> {
        policy_of(self.a, cpu).or_else(|| policy_of(self.b, cpu))
    }

    /// Returns whether the CPU's request now depends on settings, not on load.
    fn is_steady(&self, cpu: u32) -> bool {
        // Userspace's initial frequency depends on load.
        let same_speed =
            attribute(self.a, cpu, "scaling_setspeed") == attribute(self.b, cpu, "scaling_setspeed");
        same_speed && !self.by_load.contains(&cpu)
    }
}

/// Tracks which CPUs' requests depend on load. A CPU without a policy keeps its last request and
/// its state here.
fn follow_governors(by_load: &mut BTreeSet<u32>, a: &Observation, b: &Observation) {
    let cpus: BTreeSet<u32> = a.registers.keys().chain(b.registers.keys()).map(|(cpu, _)| *cpu).collect();
    for cpu in cpus {
        let of = |o: &Observation| {
            attribute(o, cpu, "scaling_governor").map(|governor| goes_by_load(o, cpu, governor))
        };
        match (of(a), of(b)) {
            (Some(true), _) | (_, Some(true)) => drop(by_load.insert(cpu)),
            (Some(false), Some(false)) => drop(by_load.remove(&cpu)),
            _ => {}
        }
    }
}

/// The cause of the value on which an attribute or a field of a request depends, if that differs
/// too.
fn source(now: &Open, path: &str, subject: &str) -> Option<String> {
    let place = path.rsplit_once('/').map_or("", |(place, _)| place);
    let differing = sources(subject).iter().find_map(|name| {
        let own = if name.contains('/') { (*name).to_owned() } else { format!("{place}/{name}") };
        now.get(&own).filter(|differing| !differing.is_constant)
    });
    differing.map(|differing| differing.cause.clone())
}

fn policy_of(o: &Observation, cpu: u32) -> Option<u32> {
    o.policies().into_iter().find(|policy| o.cpus(*policy).contains(&cpu))
}

fn attribute<'a>(o: &'a Observation, cpu: u32, name: &str) -> Option<&'a str> {
    policy_of(o, cpu).and_then(|policy| o.policy(policy, name))
}

fn goes_by_load(o: &Observation, cpu: u32, governor: &str) -> bool {
    // intel_pstate's powersave policy without HWP has its requests in PERF_CTL.
    let chooses_itself = governor == "powersave"
        && o.get("intel_pstate/status") == Some("active")
        && o.register(cpu, "0x770").is_none_or(|on| on & 1 == 0);
    chooses_itself || !crate::rules::is_fixed(governor)
}

/// A step without its value, except for switches, whose directions have separate causes.
fn doing(step: Option<&Step>) -> String {
    match step {
        None => "base-state".to_owned(),
        Some(Step::Write { path, value }) if matches!(value.as_str(), "0" | "1") && is_switch_file(path) => {
            format!("{}={value}", plain(path))
        }
        Some(Step::Write { path, .. }) => plain(path),
        Some(Step::Load(_)) => "load".to_owned(),
        Some(Step::Wait(_)) => "wait".to_owned(),
        Some(Step::Run(command)) => command.split_whitespace().collect::<Vec<_>>().join("_"),
        Some(Step::Ioctl { number, argument }) => speed_select::kind(*number, argument),
        Some(Step::Firmware(faults)) => format!("firmware={faults}"),
    }
}

/// Returns whether the order of writes to a register is compared.
fn is_compared(register: &str) -> bool {
    crate::rules::is_request(register) || speed_select::is_register(register)
}

fn is_switch_file(path: &str) -> bool {
    ["boost", "online", "no_turbo", "hwp_dynamic_boost"].iter().any(|name| path.ends_with(name))
}

/// A step with its value, for people.
fn exactly(step: &Step) -> String {
    match step {
        Step::Write { path, value } => format!("{}={value}", plain(path)),
        other => other.to_string(),
    }
}

/// A path without the numbers of policies and CPUs: `scaling_max_freq`, `amd_pstate/status`,
/// `cpu/online`.
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
    use crate::record::Answer;

    const MAX: &str = "cpufreq/policy1/scaling_max_freq";
    const PREFERENCE: &str = "cpufreq/policy1/energy_performance_preference";

    /// A state of policy1 whose CPU has the request `request`.
    fn state(attributes: &[(&str, &str)], request: u64) -> Observation {
        let mut o = Observation::default();
        for (path, value) in [("scaling_governor", "powersave"), ("affected_cpus", "1")] {
            o.attributes.insert(format!("cpufreq/policy1/{path}"), value.into());
        }
        o.attributes.extend(attributes.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())));
        o.registers.insert((1, "0xc00102b3".into()), request);
        o
    }

    fn answered(mut o: Observation, path: &str, answer: &str) -> Observation {
        o.answers.push(Answer { path: path.into(), answer: answer.into(), value: "5".into(), returned: 0 });
        o
    }

    fn run(observations: Vec<Observation>) -> Vec<Run> {
        vec![Run { name: "a".into(), observations }]
    }

    fn sequence(steps: Vec<Step>) -> [Sequence; 1] {
        [Sequence { name: "a".into(), steps }]
    }

    fn causes(found: &[Place]) -> Vec<(&str, &str, usize)> {
        found.iter().map(|place| (&*place.cause, &*place.subject, place.at)).collect()
    }

    #[test]
    fn a_state_that_stays_different_is_one_difference() {
        let max = |value: &str| state(&[(MAX, value)], 0xa6);
        let sequences = sequence(vec![Step::write(MAX, "5000000"), Step::write(PREFERENCE, "power")]);
        let seen = |value: &str| run(vec![max("9"), max(value), max(value)]);
        assert!(differences(&sequences, &seen("5"), &seen("5")).is_empty());
        let found = differences(&sequences, &seen("5"), &seen("9"));
        assert_eq!(
            causes(&found),
            [("attribute.scaling_max_freq.after.scaling_max_freq", "scaling_max_freq", 1)]
        );
        let shown = test(&found[0].cause, &[&found[0]], &sequences).unwrap();
        assert_eq!(shown.details[0], "scaling_max_freq 5 -> 9 after scaling_max_freq=5000000");
        assert_eq!(shown.steps.len(), 1);
    }

    /// A constant of the kernel that differs shows in every attribute that depends on it.
    #[test]
    fn what_differs_in_the_base_state_is_one_cause() {
        let seen = |top: &str, other: &str| {
            let at = |max: &str| state(&[("cpufreq/policy1/cpuinfo_max_freq", top), (MAX, max)], 0xa6);
            run(vec![at(top), at("3300000"), at(top), at(other)])
        };
        let sequences =
            sequence(vec![Step::write(MAX, "3300000"), Step::write(MAX, "9"), Step::write(MAX, "4")]);
        let found = differences(&sequences, &seen("4680000", "1"), &seen("4683471", "2"));
        let base = "base-state.cpuinfo_max_freq";
        assert_eq!(
            causes(&found),
            [
                (base, "cpuinfo_max_freq", 0),
                (base, "scaling_max_freq", 0),
                (base, "scaling_max_freq", 2),
                ("attribute.scaling_max_freq.after.scaling_max_freq", "scaling_max_freq", 3)
            ]
        );
    }

    /// One kernel accepts the value. The consequent differences of the attribute and the request
    /// are not a second cause.
    #[test]
    fn effects_have_the_cause_of_the_answer() {
        let number = Step::write(PREFERENCE, "64");
        let sequences = sequence(vec![number.clone(), number]);
        let base = || state(&[(PREFERENCE, "power")], 0xff00_00a6);
        let refused = || answered(base(), PREFERENCE, "EINVAL");
        let taken = || answered(state(&[(PREFERENCE, "64")], 0x4000_00a6), PREFERENCE, "ok");
        let found = differences(
            &sequences,
            &run(vec![base(), refused(), refused()]),
            &run(vec![base(), taken(), taken()]),
        );
        let cause = "answer.energy_performance_preference.EINVAL-ok";
        assert_eq!(
            causes(&found),
            [
                (cause, "the answer", 1),
                (cause, "request.preference", 1),
                (cause, "energy_performance_preference", 1),
                (cause, "the answer", 2)
            ]
        );
    }

    /// Values that are set and read by calls of Speed Select's device.
    #[test]
    fn calls_differ_by_field() {
        let class = speed_select::by_nr(speed_select::nr::CLOS_PARAM);
        let argument = class.argument(&[("get_set", 1), ("clos", 2), ("max_freq_mhz", 900)]);
        let step = Step::Ioctl { number: class.number, argument: argument.clone() };
        let sequences = sequence(vec![step]);
        let seen = |answer: &str, reply: &[u8], set: u64| {
            let mut after = answered(Observation::default(), speed_select::DEVICE, answer);
            after.answers[0].value = speed_select::hex(reply);
            let read = speed_select::hex(&class.argument(&[("max_freq_mhz", set)]));
            after.attributes.insert("isst/0.1/CLOS_PARAM.2".into(), format!("0000000000000000 {read}"));
            let mut before = after.clone();
            let read = speed_select::hex(&class.argument(&[]));
            before.attributes.insert("isst/0.1/CLOS_PARAM.2".into(), format!("0000000000000000 {read}"));
            before.answers.clear();
            run(vec![before, after])
        };
        let of = |a: Vec<Run>, b: Vec<Run>| differences(&sequences, &a, &b);
        let other = class.argument(&[("get_set", 1), ("clos", 2), ("max_freq_mhz", 800)]);
        let found = of(seen("ok", &argument, 900), seen("ok", &other, 900));
        assert_eq!(causes(&found), [("reply.CLOS_PARAM.set.max_freq_mhz", "max_freq_mhz", 1)]);
        let found = of(seen("ok", &argument, 900), seen("ok", &argument, 0));
        let cause = "attribute.CLOS_PARAM.max_freq_mhz.after.CLOS_PARAM.set";
        assert_eq!(causes(&found), [(cause, "CLOS_PARAM.max_freq_mhz", 1)]);
        let found = of(seen("ok", &argument, 900), seen("ENOTTY", &argument, 0));
        let cause = "answer.CLOS_PARAM.set.ok-ENOTTY";
        assert_eq!(causes(&found), [(cause, ANSWER, 1), (cause, "CLOS_PARAM.max_freq_mhz", 1)]);
    }

    #[test]
    fn requests_differ_by_field() {
        let sequences = sequence(vec![Step::write("cpu1/online", "1"), Step::write("cpu1/online", "1")]);
        let seen = |request: u64, preference: &str| {
            run(vec![
                state(&[(PREFERENCE, "power")], 0xff00_00a6),
                state(&[(PREFERENCE, preference)], request),
            ])
        };
        // An independent register, and one that follows from an attribute.
        let found = differences(&sequences, &seen(0xff00_00a6, "power"), &seen(0xff00_14a6, "power"));
        assert_eq!(causes(&found), [("request.minimum.after.cpu/online=1", "request.minimum", 1)]);
        let found = differences(&sequences, &seen(0xff00_00a6, "power"), &seen(0xbf00_00a6, "balance_power"));
        let cause = "attribute.energy_performance_preference.after.cpu/online=1";
        assert_eq!(
            causes(&found),
            [(cause, "request.preference", 1), (cause, "energy_performance_preference", 1)]
        );
    }

    /// A register that depends on load under the last governor is not a difference, with a policy
    /// or without one.
    #[test]
    fn what_went_by_load_is_not_compared() {
        let sequences = sequence(vec![
            Step::write("cpufreq/policy1/scaling_governor", "schedutil"),
            Step::write("amd_pstate/status", "disable"),
            Step::write("amd_pstate/status", "passive"),
        ]);
        let seen = |request: u64| {
            let governor = [("cpufreq/policy1/scaling_governor", "schedutil")];
            let mut away = state(&[], request);
            away.attributes.clear();
            run(vec![state(&[], 0xa6), state(&governor, request), away, state(&[], request)])
        };
        assert_eq!(causes(&differences(&sequences, &seen(0x6ca6), &seen(0x6ea6)))[0].2, 3);
        assert!(differences(&sequences, &seen(0x6ca6), &seen(0x6ca6)).is_empty());
    }

    #[test]
    fn an_order_of_writes_is_a_difference_where_the_result_is_the_same() {
        let sequences = sequence(vec![Step::write(MAX, "5")]);
        let seen = |values: &[u64], last: u64| {
            let write = |value: &u64| crate::record::Written {
                cpu: 1,
                register: "0xc00102b3".into(),
                value: *value,
                refused: false,
            };
            let mut after = state(&[], last);
            after.writes = values.iter().map(write).collect();
            run(vec![state(&[], 0xa6), after])
        };
        let found = differences(&sequences, &seen(&[7], 7), &seen(&[9, 7], 7));
        assert_eq!(causes(&found), [("writes.after.scaling_max_freq", "writes", 1)]);
        let found = differences(&sequences, &seen(&[7], 7), &seen(&[9], 9));
        assert_eq!(causes(&found), [("request.maximum.after.scaling_max_freq", "request.maximum", 1)]);
    }

    #[test]
    fn paths_lose_their_numbers() {
        assert_eq!(plain("cpu3/online"), "cpu/online");
        assert_eq!(plain("cpufreq/policy12/schedutil/rate_limit_us"), "schedutil/rate_limit_us");
        assert_eq!(plain("cpufreq/boost"), "cpufreq/boost");
    }

    /// Guests whose limit depends only on their seed.
    struct Chance(std::sync::Mutex<BTreeSet<u64>>);

    impl crate::boots::Boots for Chance {
        fn boot(&self, mode: &Mode, job: &crate::boots::Job) -> Result<crate::boots::Ended, CannotTell> {
            self.0.lock().unwrap().insert(job.seed);
            let (driver, khz) = (mode.scaling_driver(), 100_000 + job.seed);
            let seen = format!(
                "cpufreq/policy0/scaling_governor:powersave\ncpufreq/policy0/scaling_driver:{driver}\n\
                 cpufreq/policy0/scaling_max_freq:{khz}\n"
            );
            let steps = String::from_utf8_lossy(&job.files[1].1).into_owned();
            let first = steps.lines().find(|line| line.starts_with("seq ")).unwrap_or_default();
            let output = format!("{first}\ns 1\no\n{seen}.\nend\n");
            Ok(crate::boots::Ended { output, ..crate::boots::Ended::default() })
        }

        fn release(&self) -> &'static str {
            "6.12.1"
        }
    }

    /// Random differences also appear between a kernel and itself: every guest has another seed.
    #[test]
    fn every_guest_has_a_seed_of_its_own() {
        let mode = &Mode::all("ryzen-5750g").unwrap()[0];
        let [kernel, baseline] = [(); 2].map(|()| Chance(std::sync::Mutex::default()));
        let bench = Bench {
            kernel: &kernel,
            baseline: Some(&baseline),
            against: None,
            seed: 7,
            shrinks: false,
            thresholds: None,
            save: None,
        };
        let tests = Difference.run(&bench, mode).unwrap();
        let [kernel, baseline] = [kernel, baseline].map(|boots| boots.0.into_inner().unwrap());
        assert_eq!((kernel.len(), baseline.len()), (2, 2));
        assert!(kernel.is_disjoint(&baseline));
        assert!(tests.iter().any(|test| test.name == "base-state.scaling_max_freq"), "{tests:?}");
    }
}
