//! Shifts over months: a series per host, benchmark and arm, with a point per run, and the facts
//! that changed where the series shifts.
//!
//! A run's rounds share its conditions, so a run is one point, the median of its rounds. Among
//! thousands of series some look uneven by chance. [`flyball_measure::shifts::evidence`] says how
//! sure it is that each has a shift. Among the named series, at most a share of one minus the
//! confidence is false on average (Benjamini and Hochberg 1995). Only named series are searched for
//! the location.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flyball_measure::{
    render::relative,
    shifts::{Form, Options, Shift, evidence, find},
    stats,
};

use flyball_table::parquet::Words;

use crate::{
    dataset::{Dataset, DatasetError, Part, Pick, SkippedFile},
    schema::{FACTS, Kind},
};

/// Maximum number of runs between a fact's change and a shift, which noise moves by as much.
const NEAR: usize = 3;

/// Minimum number of runs of a series.
const LEAST_RUNS: usize = 10;

/// What to search.
#[derive(Debug, Clone)]
pub struct Question {
    pub pick: Pick,
    pub benchmark: Option<String>,
    pub confidence: f64,
    /// Threads that search.
    pub threads: usize,
}

/// The result of a search.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub struct Answer {
    /// One minus the share of the named series that are named by chance, at most and on average.
    pub confidence: f64,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds that failed, which do not count.
    pub failed: usize,
    pub hosts: usize,
    /// Series with enough runs.
    pub series: usize,
    /// Series with too few runs.
    pub short: usize,
    /// Series with several runs at the same time, in words. They were not searched.
    pub undated: Vec<String>,
    /// Names that stand for several experiments on one host. The experiments are kept apart.
    pub ambiguous: Vec<String>,
    /// The first and the last run, in milliseconds since 1970.
    pub first: u64,
    pub last: u64,
    pub shifted: Vec<ShiftedSeries>,
    /// Changes of facts that came with shifts, the most frequent first.
    pub with: Vec<FactChange>,
    /// Files that were skipped.
    pub passed: Vec<SkippedFile>,
}

/// A series that shifted.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub struct ShiftedSeries {
    pub host: String,
    pub benchmark: String,
    /// The arm; empty if there is none.
    pub arm: String,
    pub metric: String,
    pub unit: String,
    pub runs: usize,
    /// The p-value of the evidence, corrected for the number of series.
    pub p: f64,
    pub changes: Vec<ShiftPlace>,
}

/// Where a series shifted.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub struct ShiftPlace {
    pub form: Form,
    /// The last run that is surely before the change, and the first that is surely after it (at
    /// 95 %), in milliseconds since 1970.
    pub before: u64,
    pub after: u64,
    pub median_before: f64,
    pub median_after: f64,
    /// The change as a fraction; null unless both levels are above zero.
    pub change: Option<f64>,
    /// Whether the change is an improvement, if the metric says which direction is better.
    pub better: Option<bool>,
    pub facts: Vec<Fact>,
}

/// A fact that changed with a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema, serde::Serialize)]
#[schemars(rename = "ChangedFact")]
pub struct Fact {
    pub name: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// Runs between the shift and this change: 0 if they coincide.
    pub runs_away: usize,
}

/// A change of a fact, over all series of a benchmark.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub struct FactChange {
    pub benchmark: String,
    pub arm: String,
    pub metric: String,
    pub unit: String,
    /// Whether higher is better, if known. Series with other units or directions are in other rows.
    pub higher_is_better: Option<bool>,
    pub name: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// Series that shifted with it.
    pub shifted: usize,
    /// Series in which it changed, with enough runs on both sides.
    pub of: usize,
    /// How many of the shifted series became worse, if the metric says which direction is better.
    pub worse: Option<usize>,
    /// The median change of the shifted series.
    pub change: Option<f64>,
}

/// Columns that are read, in this order.
const COLUMNS: [&str; 21] = [
    "id",
    "host",
    "time",
    "benchmark",
    "experiment",
    "arm",
    "arm_settings",
    "metric",
    "unit",
    "higher_is_better",
    "warm_up",
    "failure",
    "value",
    "boot",
    "processor",
    "product",
    "firmware",
    "microcode",
    "kernel",
    "driver",
    "settings",
];
const FIRST_FACT: usize = 14;
/// The facts and `settings`.
const FACT_COLUMNS: usize = 7;
/// The facts of a run: its own, its `settings`, and the settings of the latest snapshot before it.
type Facts = [Option<u32>; FACT_COLUMNS + 1];

/// The identity of a series: numbers of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    host: u32,
    benchmark: u32,
    experiment: u32,
    arm: u32,
    arm_settings: u32,
    metric: u32,
    unit: u32,
    higher_is_better: Option<bool>,
}

#[derive(Debug)]
struct Run {
    time: i64,
    value: f64,
    facts: Facts,
}

/// The rounds of a run, until their median is taken.
#[derive(Debug)]
struct Rounds {
    run: (u32, i64),
    time: i64,
    values: Vec<f64>,
    facts: Facts,
}

impl Rounds {
    fn run(self) -> Option<Run> {
        let value = if let [value] = self.values[..] { value } else { stats::median(&self.values)? };
        Some(Run { time: self.time, value, facts: self.facts })
    }
}

/// Searches a dataset.
///
/// # Errors
/// The dataset cannot be read.
pub fn shifts(dataset: &Dataset, question: &Question) -> Result<Answer, DatasetError> {
    let mut words = Words::default();
    let only = question.benchmark.as_deref().map(|name| words.number(name));
    let (mut rounds, mut failed) = (0, 0);
    let mut series: HashMap<Key, (Vec<Run>, Option<Rounds>)> = HashMap::new();
    let mut passed = dataset.read(Kind::Rounds, &COLUMNS, &question.pick, &mut words, &mut |part, _| {
        let (counted, left_out) = collect(part, only, &mut series);
        rounds += counted;
        failed += left_out;
    })?;
    let whole = series.into_iter().map(|(key, (mut runs, open))| {
        runs.extend(open.and_then(Rounds::run));
        runs.sort_by_key(|run| run.time);
        (key, runs)
    });
    let (series, short): (Vec<_>, Vec<_>) = whole.partition(|(_, runs)| runs.len() >= LEAST_RUNS);
    // Inputs with equal times, such as files of one checkout, have no known order.
    let is_dated = |(_, runs): &(Key, Vec<Run>)| runs.windows(2).all(|two| two[0].time != two[1].time);
    let (mut series, undated): (Vec<_>, Vec<_>) = series.into_iter().partition(is_dated);
    // The order depends only on the names.
    series.sort_by(|(a, _), (b, _)| {
        let name =
            |key: &Key| [key.host, key.benchmark, key.arm, key.metric, key.experiment].map(|n| words.text(n));
        name(a).cmp(&name(b)).then(a.cmp(b))
    });
    let timeline = Timeline::read(dataset, &mut words, &mut passed, &question.pick)?;
    for (key, runs) in &mut series {
        timeline.complete(key.host, runs);
    }
    let found = search(&series, question);
    let mut settings = Settings::default();
    let shifted: Vec<(usize, ShiftedSeries)> = found
        .into_iter()
        .map(|(index, p, shifts)| {
            let (key, runs) = &series[index];
            let changes = shifts.iter().map(|shift| place(shift, key, runs, &words, &mut settings)).collect();
            let text = |number| words.text(number).to_owned();
            let shifted = ShiftedSeries {
                host: text(key.host),
                benchmark: text(key.benchmark),
                arm: text(key.arm),
                metric: text(key.metric),
                unit: text(key.unit),
                runs: runs.len(),
                p,
                changes,
            };
            (index, shifted)
        })
        .collect();
    let with = with(&series, &shifted, &words, &mut settings);
    let hosts: BTreeSet<u32> = series.iter().chain(&short).chain(&undated).map(|(key, _)| key.host).collect();
    let times = || {
        series
            .iter()
            .chain(&short)
            .chain(&undated)
            .flat_map(|(_, runs)| runs)
            .map(|run| run.time.cast_unsigned())
    };
    Ok(Answer {
        confidence: question.confidence,
        rounds,
        failed,
        hosts: hosts.len(),
        series: series.len(),
        short: short.len(),
        undated: undated.iter().map(|(key, runs)| undated_note(*key, runs, &words)).collect(),
        ambiguous: ambiguous(series.iter().chain(&short).map(|(key, _)| key), &words),
        first: times().min().unwrap_or(0),
        last: times().max().unwrap_or(0),
        shifted: shifted.into_iter().map(|(_, shifted)| shifted).collect(),
        with,
        passed,
    })
}

/// Notes that runs of a series have equal times.
fn undated_note(key: Key, runs: &[Run], words: &Words) -> String {
    let is_equal = |at: usize| {
        let time = |at: usize| runs.get(at).map(|run| run.time);
        at > 0 && time(at - 1) == time(at) || time(at + 1) == time(at)
    };
    let equal = (0..runs.len()).filter(|at| is_equal(*at)).count();
    format!(
        "{}: {}: {equal} of {} runs have the time of another run, so their order is not known",
        words.text(key.host),
        words.text(key.benchmark),
        runs.len()
    )
}

/// Adds the rounds of a file to their series. Returns how many count, and how many failed.
fn collect(
    part: &Part,
    only: Option<u32>,
    series: &mut HashMap<Key, (Vec<Run>, Option<Rounds>)>,
) -> (usize, usize) {
    let column = |name: &str| {
        let index = COLUMNS.iter().position(|column| *column == name).unwrap_or(0);
        &part.columns[index]
    };
    let [id, host, time, benchmark, experiment] =
        ["id", "host", "time", "benchmark", "experiment"].map(column);
    let [arm, arm_settings, metric, unit, better] =
        ["arm", "arm_settings", "metric", "unit", "higher_is_better"].map(column);
    let [warm_up, failure, value, boot] = ["warm_up", "failure", "value", "boot"].map(column);
    let (mut count, mut failed) = (0, 0);
    for &row in &part.rows {
        let (Some(id), Some(host), Some(time)) = (id.word(row), host.word(row), time.integer(row)) else {
            continue;
        };
        let Some(benchmark) = benchmark.word(row).filter(|name| only.is_none_or(|only| only == *name)) else {
            continue;
        };
        if warm_up.truth(row) == Some(true) {
            continue;
        }
        if failure.word(row).is_some() {
            failed += 1;
            continue;
        }
        let Some(value) = value.number(row).filter(|value| value.is_finite()) else { continue };
        count += 1;
        let key = Key {
            host,
            benchmark,
            experiment: experiment.word(row).unwrap_or(u32::MAX),
            arm: arm.word(row).unwrap_or(u32::MAX),
            arm_settings: arm_settings.word(row).unwrap_or(u32::MAX),
            metric: metric.word(row).unwrap_or(u32::MAX),
            unit: unit.word(row).unwrap_or(u32::MAX),
            higher_is_better: better.truth(row),
        };
        let (runs, open) = series.entry(key).or_default();
        // Another boot may have other facts, so it is a run of its own. A file has all rows of an
        // input next to each other.
        let run = (id, boot.integer(row).unwrap_or(0));
        match open {
            Some(open) if open.run == run => open.values.push(value),
            _ => {
                let facts = std::array::from_fn(|fact| part.columns.get(FIRST_FACT + fact)?.word(row));
                let next = Rounds { run, time, values: vec![value], facts };
                runs.extend(open.replace(next).and_then(Rounds::run));
            }
        }
    }
    (count, failed)
}

/// Facts of hosts from snapshots, for runs whose own files have none, such as those of other tools.
struct Timeline {
    /// By host and time.
    facts: BTreeMap<(u32, i64), [Option<u32>; FACT_COLUMNS]>,
}

impl Timeline {
    fn read(
        dataset: &Dataset,
        words: &mut Words,
        passed: &mut Vec<SkippedFile>,
        pick: &Pick,
    ) -> Result<Timeline, DatasetError> {
        let mut columns = vec!["host", "time"];
        columns.extend(FACTS);
        columns.push("settings");
        // Including earlier ones: a snapshot is valid until the next one.
        let pick = Pick { since: None, ..pick.clone() };
        let mut facts = BTreeMap::new();
        for kind in [Kind::Settings, Kind::Findings] {
            let new = dataset.read(kind, &columns, &pick, words, &mut |part, _| {
                for &row in &part.rows {
                    let (Some(host), Some(time)) = (part.columns[0].word(row), part.columns[1].integer(row))
                    else {
                        continue;
                    };
                    let there = facts.entry((host, time)).or_insert([None; FACT_COLUMNS]);
                    for (fact, there) in there.iter_mut().enumerate() {
                        *there = there.or(part.columns[2 + fact].word(row));
                    }
                }
            })?;
            // Files of other versions were already named with the rounds.
            passed.extend(new.into_iter().filter(|new| !passed.contains(new)).collect::<Vec<_>>());
        }
        Ok(Timeline { facts })
    }

    /// Completes each run with the facts of the latest snapshot before it.
    fn complete(&self, host: u32, runs: &mut [Run]) {
        if self.facts.is_empty() {
            return;
        }
        let mut latest: [Option<u32>; FACT_COLUMNS] = [None; FACT_COLUMNS];
        let mut snapshots = self.facts.range((host, i64::MIN)..=(host, i64::MAX)).peekable();
        for run in runs {
            while let Some((_, facts)) = snapshots.next_if(|((_, time), _)| *time <= run.time) {
                for (latest, new) in latest.iter_mut().zip(facts) {
                    *latest = new.or(*latest);
                }
            }
            let (own, of_snapshot) = run.facts.split_at_mut(FACTS.len());
            for (fact, latest) in own.iter_mut().zip(latest) {
                *fact = fact.or(latest);
            }
            // A run has settings that a snapshot lacks, and vice versa.
            of_snapshot[1] = latest[FACT_COLUMNS - 1];
        }
    }
}

/// The shifted series, with the corrected p-value and the locations.
fn search(series: &[(Key, Vec<Run>)], question: &Question) -> Vec<(usize, f64, Vec<Shift>)> {
    let options = Options::default();
    let values = |index: usize| -> Vec<f64> { series[index].1.iter().map(|run| run.value).collect() };
    let all: Vec<usize> = (0..series.len()).collect();
    let p = parallel(&all, question.threads, |index| evidence(&values(index), &options));
    let corrected = stats::false_discovery(&p);
    let named: Vec<usize> =
        all.into_iter().filter(|&index| corrected[index] <= 1.0 - question.confidence).collect();
    let places = parallel(&named, question.threads, |index| {
        let mut shifts = find(&values(index), &options);
        // The evidence is about levels only.
        shifts.retain(|shift| shift.form != Form::Spread);
        shifts
    });
    let found = named.into_iter().zip(places).filter(|(_, shifts)| !shifts.is_empty());
    found.map(|(index, shifts)| (index, corrected[index], shifts)).collect()
}

/// The results of `work` for each item, in their order.
fn parallel<T: Send>(items: &[usize], threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let share = items.len().div_ceil(threads.max(1)).max(1);
    let work = &work;
    std::thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(|&item| work(item)).collect::<Vec<T>>()))
            .collect();
        // Propagates the panic of a thread.
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// `settings` of runs, each text parsed once.
#[derive(Default)]
struct Settings {
    parsed: HashMap<u32, BTreeMap<String, String>>,
}

impl Settings {
    fn get(&mut self, number: u32, words: &Words) -> &BTreeMap<String, String> {
        self.parsed
            .entry(number)
            .or_insert_with(|| serde_json::from_str(words.text(number)).unwrap_or_default())
    }
}

/// Returns the facts that differ between two runs. A fact that only one of them has does not count,
/// because inputs of another kind lack it.
fn differences(
    before: &Facts,
    after: &Facts,
    words: &Words,
    settings: &mut Settings,
) -> Vec<(String, Option<String>, Option<String>)> {
    let mut found: Vec<(String, Option<String>, Option<String>)> = Vec::new();
    for (name, (before, after)) in FACTS.iter().zip(before.iter().zip(after)) {
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            let text = |number: &u32| Some(words.text(*number).to_owned());
            found.push(((*name).to_owned(), text(before), text(after)));
        }
    }
    for (before, after) in before.iter().zip(after).skip(FACTS.len()) {
        let (Some(before), Some(after)) = (*before, *after) else { continue };
        if before == after {
            continue;
        }
        let before = settings.get(before, words).clone();
        let after = settings.get(after, words);
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let (old, new) = (before.get(name), after.get(name));
            if old != new && found.iter().all(|(known, ..)| known != name) {
                found.push((name.clone(), old.cloned(), new.cloned()));
            }
        }
    }
    found
}

/// The location of a shift, with the facts that changed there or nearby.
fn place(shift: &Shift, key: &Key, runs: &[Run], words: &Words, settings: &mut Settings) -> ShiftPlace {
    let last = runs.len() - 1;
    // For a drift, the runs of the drift.
    let (from, to) = match shift.form {
        Form::Step | Form::Spread => (shift.at.clamp(1, last) - 1, shift.at.clamp(1, last)),
        Form::Drift => {
            let from = shift.before.end.saturating_sub(1).min(last - 1);
            (from, shift.after.start.clamp(from + 1, last))
        }
    };
    // The runs between which the change surely lies.
    let within = shift.within.clone().unwrap_or(from + 1..to);
    let (first, end) = (from.min(within.start.saturating_sub(1)), to.max(within.end.min(last)));
    let mut facts: BTreeMap<String, Fact> = BTreeMap::new();
    for at in first.min(from.saturating_sub(NEAR))..end.max((to + NEAR).min(last)) {
        if runs[at].facts == runs[at + 1].facts {
            continue;
        }
        let runs_away = if at < from { from - at } else { (at + 1).saturating_sub(to) };
        for (name, before, after) in differences(&runs[at].facts, &runs[at + 1].facts, words, settings) {
            let fact = Fact { name, before, after, runs_away };
            match facts.get(&fact.name) {
                Some(other) if other.runs_away <= runs_away => {}
                _ => {
                    facts.insert(fact.name.clone(), fact);
                }
            }
        }
    }
    let mut facts: Vec<Fact> = facts.into_values().collect();
    facts.sort_by_key(|fact| fact.runs_away);
    let (before, after) = (shift.median_before, shift.median_after);
    ShiftPlace {
        form: shift.form,
        before: runs[first].time.cast_unsigned(),
        after: runs[end].time.cast_unsigned(),
        median_before: before,
        median_after: after,
        change: relative(before, after),
        better: key.higher_is_better.map(|higher| (after > before) == higher),
        facts,
    }
}

/// Changes of facts over all series: how many series had each change, and how many of them shifted.
fn with(
    series: &[(Key, Vec<Run>)],
    shifted: &[(usize, ShiftedSeries)],
    words: &Words,
    settings: &mut Settings,
) -> Vec<FactChange> {
    type Change<'a> = (([&'a str; 4], Option<bool>), String, Option<String>, Option<String>);
    let mut counts: BTreeMap<Change, (Vec<f64>, usize, usize, usize)> = BTreeMap::new();
    // Changes in unlike units or directions have no common mean: a time of +25 % is a rate of -20
    // %.
    let question = |key: &Key| {
        let names = [key.benchmark, key.arm, key.metric, key.unit].map(|number| words.text(number));
        (names, key.higher_is_better)
    };
    for (index, shifted) in shifted {
        for place in &shifted.changes {
            for fact in place.facts.iter().filter(|fact| fact.runs_away <= NEAR) {
                let change =
                    (question(&series[*index].0), fact.name.clone(), fact.before.clone(), fact.after.clone());
                let entry = counts.entry(change).or_default();
                entry.0.extend(place.change);
                entry.1 += 1;
                entry.3 += usize::from(place.better == Some(false));
            }
        }
    }
    if counts.is_empty() {
        return Vec::new();
    }
    let side = Options::default().shortest;
    for (key, runs) in series {
        let question = question(key);
        for at in side.saturating_sub(1)..runs.len().saturating_sub(side) {
            if runs[at].facts == runs[at + 1].facts {
                continue;
            }
            for (name, before, after) in differences(&runs[at].facts, &runs[at + 1].facts, words, settings) {
                if let Some(entry) = counts.get_mut(&(question, name, before, after)) {
                    entry.2 += 1;
                }
            }
        }
    }
    let mut all: Vec<FactChange> = counts
        .into_iter()
        .map(
            |(
                (([benchmark, arm, metric, unit], better), name, before, after),
                (changes, shifted, of, worse),
            )| FactChange {
                benchmark: benchmark.to_owned(),
                arm: arm.to_owned(),
                metric: metric.to_owned(),
                unit: unit.to_owned(),
                higher_is_better: better,
                name,
                before,
                after,
                shifted,
                // A series counts even if its shift is nearer to an end than the search looks.
                of: of.max(shifted),
                worse: better.map(|_| worse),
                change: stats::median(&changes),
            },
        )
        .collect();
    all.sort_by(|a, b| b.shifted.cmp(&a.shifted).then(a.of.cmp(&b.of)));
    all
}

/// Benchmarks whose name stands for several experiments on one host.
fn ambiguous<'a>(keys: impl Iterator<Item = &'a Key>, words: &Words) -> Vec<String> {
    let mut experiments: BTreeMap<(u32, u32, u32, u32), BTreeSet<u32>> = BTreeMap::new();
    for key in keys {
        let name = (key.host, key.benchmark, key.metric, key.arm);
        experiments.entry(name).or_default().insert(key.experiment);
    }
    let several = experiments.into_iter().filter(|(_, experiments)| experiments.len() > 1);
    let names: BTreeSet<&str> = several.map(|((_, benchmark, ..), _)| words.text(benchmark)).collect();
    names.into_iter().map(str::to_owned).collect()
}
