//! Decides which of an arm's rounds count, and summarizes them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    quantity::Quantity,
    report::{ArmReport, Comparison, Drift, Grades, LeftOut, Origin, Point, Summary, Watts},
};
use crate::{
    meter::{Domain, WakeNote},
    metric::Metric,
    run_directory::{Manifest, Round},
    speed::SpeedNote,
    stats,
    watch::{self, Disturbance, Grade, Source},
    workload::preset::Reader,
};

/// The disturbances of a round, judged from its record. Empty if it was not watched.
pub(super) fn disturbances(round: &Round, manifest: &Manifest) -> Vec<Disturbance> {
    let Some(conditions) = &round.conditions else { return Vec::new() };
    let cpus = manifest.quiet.as_ref().map(|quiet| &quiet.cpus).or(manifest.workload.cpus.as_ref());
    let cpus = cpus.and_then(|cpus| cpus.parse::<flyball_host::CpuList>().ok());
    // Shares are of the watched CPUs: those made quiet, else those that it may use.
    let count = cpus.map_or(manifest.machine.cpus, |cpus| cpus.len()).max(1);
    let own = round.outcome.usage.map(|usage| {
        (usage.user_seconds + usage.system_seconds) / (round.outcome.seconds * count as f64).max(1e-9)
    });
    watch::grade(conditions, own, &watch::Limits::default(), round.speed.as_ref()).1
}

/// Returns why a round by itself is unreliable: it was throttled or, on a machine that was made
/// quiet, disturbed. The caller judges whether the arm itself causes this.
pub fn disturbance(manifest: &Manifest, round: &Round) -> Option<String> {
    if let Some(count) = round.readings.throttled.filter(|count| *count > 0) {
        return Some(format!("throttled ({count} events)"));
    }
    let found = disturbances(round, manifest).into_iter().find(|found| found.grade == Grade::Bad);
    found.filter(|_| manifest.quiet.is_some()).map(|found| found.what)
}

/// Returns whether an arm may cause something, by how many of how many rounds of each arm have it:
/// most rounds of an arm, or another share than that of the first arm's rounds (Fisher's exact
/// test). To leave out such rounds would flatter the arm that has more of them.
fn is_caused(arms: &[[usize; 2]]) -> bool {
    let first = arms.first().copied().unwrap_or_default();
    arms.iter().any(|&[with, of]| with * 2 > of || are_unlike(first, [with, of]))
}

/// Returns whether two shares of rounds, each as a count of how many, differ by more than chance:
/// whether the arms lose such rounds for reasons of their own (Fisher's exact test).
pub(crate) fn are_unlike(one: [usize; 2], other: [usize; 2]) -> bool {
    const CHANCE: f64 = 0.2;
    stats::fisher(one, other).is_some_and(|p| p <= CHANCE)
}

/// Returns whether rounds of an arm lack a value more often than those of the first arm, or mostly.
/// The comparison then holds only for rounds that have one.
pub(super) fn is_partial(base: &ArmReport, arm: &ArmReport, quantity: Quantity) -> bool {
    is_caused(&[base, arm].map(|arm| without_value(arm, quantity)))
}

/// Marks a comparison of partly missing values, which shows no arms to be the same.
pub(super) fn mark_partial(comparison: &mut Comparison, arms: &[ArmReport], quantity: Quantity) {
    comparison.partial = is_partial(&arms[0], &arms[comparison.arm], quantity);
    if comparison.partial {
        comparison.without_same();
    }
}

/// Returns how many of an arm's rounds have no value of a quantity, because they failed or a meter
/// did not answer, and how many rounds these are out of.
pub(super) fn without_value(arm: &ArmReport, quantity: Quantity) -> [usize; 2] {
    let known = match quantity {
        // Peaks that are not known exactly have a bound.
        Quantity::PeakMemory => arm.rounds,
        _ => arm.summary(quantity).map_or(0, |summary| summary.points.len()),
    };
    [arm.rounds + arm.failed - known, arm.rounds + arm.failed]
}

/// An arm's rounds, split into those that count and those that do not, and their conditions.
struct Sifted<'a> {
    kept: Vec<&'a Round>,
    left_out: Vec<LeftOut>,
    grades: Option<Grades>,
    /// Rounds without a value of the metric.
    failed: usize,
    /// Rounds that count although they were throttled.
    hot: usize,
}

/// Splits an arm's rounds into those that count and those that do not, by their outcome and
/// conditions, never by their values.
fn sift<'a>(manifest: &Manifest, rounds: &[&'a Round], arm: usize) -> Sifted<'a> {
    let own: Vec<&Round> = rounds.iter().copied().filter(|round| round.arm == arm).collect();
    // How many rounds of each arm are so, of those of which it is known.
    let shares = |is: &dyn Fn(&Round) -> Option<bool>| -> Vec<[usize; 2]> {
        let mut shares = vec![[0, 0]; manifest.arms.len()];
        for round in rounds {
            if let (Some(is), Some(share)) = (is(round), shares.get_mut(round.arm)) {
                share[0] += usize::from(is);
                share[1] += 1;
            }
        }
        shares
    };
    // A round whose throttling the kernel does not count is not hot.
    let is_hot = |round: &Round| round.readings.throttled.is_some_and(|count| count > 0);
    let heat_counts = is_caused(&shares(&|round| Some(is_hot(round))));
    let disturbed: Vec<Vec<Disturbance>> = own.iter().map(|round| disturbances(round, manifest)).collect();
    let bad = |found: &Disturbance| found.grade == Grade::Bad;
    // The same rule for other disturbances that settings or programs can cause. Other programs are
    // normal on a machine that was not made quiet.
    let is_own = |source: Source| {
        let has =
            |round: &Round| disturbances(round, manifest).iter().any(|one| bad(one) && one.source == source);
        // Short rounds are not watched: whether others disturbed them is unknown.
        let is_seen = |round: &Round| match source {
            Source::Load | Source::Steal => round.conditions.as_ref().is_some_and(|seen| seen.busy.is_some()),
            Source::Frequency | Source::Memory | Source::Heat => true,
        };
        (source.may_be_own() || manifest.quiet.is_none())
            && is_caused(&shares(&|round| is_seen(round).then(|| has(round))))
    };
    let mut counts: BTreeSet<Source> =
        disturbed.iter().flatten().filter(|one| bad(one)).map(|one| one.source).collect();
    counts.retain(|source| is_own(*source));
    let runs_beside = !manifest.workload.background.is_empty() || manifest.workload.server.is_some();
    let mut grades = None;
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    for (round, disturbed) in own.iter().zip(&disturbed) {
        if let Some(conditions) = &round.conditions {
            let undisturbed = if conditions.is_watched() { Grade::Good } else { Grade::NotWatched };
            let grades: &mut Grades = grades.get_or_insert_default();
            match disturbed.iter().map(|found| found.grade).max().unwrap_or(undisturbed) {
                Grade::NotWatched => grades.not_watched += 1,
                Grade::Good => grades.good += 1,
                Grade::Fair => grades.fair += 1,
                Grade::Bad => grades.bad += 1,
            }
        }
        let disturbance = disturbed.iter().find(|found| {
            // Heat has its own rule below, from the same counter. Frequency and memory belong to a
            // machine that was not made quiet.
            let counts_against = match found.source {
                Source::Heat => false,
                Source::Steal | Source::Load => true,
                Source::Frequency | Source::Memory => manifest.quiet.is_some(),
            };
            // A background load or server belongs to the comparison.
            let is_beside = found.source == Source::Load && runs_beside;
            counts_against && !is_beside && bad(found) && !counts.contains(&found.source)
        });
        let by_others = disturbance.is_some();
        let why = if let Some(failure) = &round.outcome.failure {
            Some(format!("the workload failed ({failure})"))
        } else if round.outcome.value.is_none() {
            Some("no metric in the output".to_owned())
        } else if let Some(count) = round.readings.throttled.filter(|&count| count > 0 && !heat_counts) {
            Some(format!("throttled ({count} events)"))
        } else {
            disturbance.map(|found| found.what.clone())
        };
        match why {
            Some(why) => left_out.push(LeftOut { boot: round.boot, block: round.block, why, by_others }),
            None => kept.push(*round),
        }
    }
    let failed = own.iter().filter(|round| !has_value(round)).count();
    let hot = kept.iter().filter(|round| is_hot(round)).count();
    Sifted { kept, left_out, grades, failed, hot }
}

fn has_value(round: &Round) -> bool {
    round.outcome.failure.is_none() && round.outcome.value.is_some()
}

/// Returns the number of blocks of a boot in which other programs disturbed a round so much that it
/// is left out.
pub(crate) fn disturbed_blocks(manifest: &Manifest, rounds: &[Round], boot: usize) -> usize {
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up && round.boot == boot).collect();
    let all = (0..manifest.arms.len()).flat_map(|arm| sift(manifest, &counted, arm).left_out);
    all.filter(|one| one.by_others).map(|one| one.block).collect::<BTreeSet<_>>().len()
}

fn points(rounds: &[&Round], value: impl Fn(&Round) -> Option<f64>) -> Vec<Point> {
    let of_round = |round: &&Round| {
        let value = value(round).filter(|value| value.is_finite())?;
        Some(Point { boot: round.boot, block: round.block, value })
    };
    rounds.iter().filter_map(of_round).collect()
}

/// Summarizes values; `None` if there are none.
fn summary(quantity: Quantity, metric: Metric, is_judged: bool, points: Vec<Point>) -> Option<Summary> {
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    Some(Summary {
        quantity,
        metric,
        is_judged,
        median: stats::median(&values)?,
        interval: None,
        mean: stats::mean(&values)?,
        deviation: stats::standard_deviation(&values),
        points,
        drift: None,
        outliers: Vec::new(),
        origin: Origin::default(),
        printed: (Origin::default(), Vec::new()),
        joules: Vec::new(),
        watts: Watts::new(),
        cases: BTreeMap::new(),
    })
}

fn origin(quantity: Quantity, manifest: &Manifest) -> Origin {
    let reader = manifest.workload.reader.as_ref();
    let is_measured = match quantity {
        Quantity::User | Quantity::System => false,
        Quantity::Time => true,
        _ if Quantity::RESOURCES.contains(&quantity) => true,
        // Meters round as programs do, whatever reads the metric.
        _ if quantity.domain(manifest).is_some() => manifest.machine.simulated,
        Quantity::Performance => matches!(reader, None | Some(Reader::WallTime)),
        _ => reader.is_none(),
    };
    match reader {
        _ if is_measured => Origin::Measured,
        Some(Reader::Expression { exact: true, .. } | Reader::Suite { exact: true, .. })
            if quantity == Quantity::Performance =>
        {
            Origin::Exact
        }
        _ => Origin::Printed,
    }
}

/// The readings of power meters of a domain.
fn watts(manifest: &Manifest, rounds: &[&Round], domain: Domain) -> Watts {
    let mut found = Watts::new();
    for round in rounds {
        let sources = manifest.boots.get(round.boot).map_or(&[][..], |boot| &boot.meters.energy);
        let own = sources.iter().zip(&round.readings.energy);
        for (source, series) in own.filter(|(source, _)| source.is_power && source.domain == domain) {
            let readings = series.iter().map(|(_, reading)| *reading).collect();
            found.entry(source.name.clone()).or_default().push(readings);
        }
    }
    found
}

fn case_values(rounds: &[&Round]) -> BTreeMap<String, Vec<f64>> {
    let mut cases: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in rounds.iter().flat_map(|round| &round.outcome.cases) {
        cases.entry(name.clone()).or_default().push(*value);
    }
    cases
}

/// Summarizes each case of a suite in the rounds of an arm that count. Drifts less probable than
/// `least` are kept.
pub(super) fn case_summaries(
    manifest: &Manifest,
    rounds: &[&Round],
    arm: &ArmReport,
    index: usize,
    least: f64,
) -> BTreeMap<String, Summary> {
    let is_left_out =
        |round: &Round| arm.left_out.iter().any(|one| (one.boot, one.block) == (round.boot, round.block));
    let own = rounds.iter().copied().filter(|round| round.arm == index && !is_left_out(round));
    let kept: Vec<&Round> = own.collect();
    let names: BTreeSet<&String> = kept.iter().flat_map(|round| round.outcome.cases.keys()).collect();
    let of_case = |name: &String| {
        let points = points(&kept, |round| round.outcome.cases.get(name).copied());
        let mut summary = summary(Quantity::Performance, manifest.workload.metric.clone(), true, points)?;
        summary.origin = origin(Quantity::Performance, manifest);
        summary.drift = drift(&summary, least);
        summary.outliers = outliers(&summary);
        Some((name.clone(), summary))
    };
    names.into_iter().filter_map(of_case).collect()
}

/// Summarizes a quantity over the rounds of one arm that count.
pub(super) fn summary_of(manifest: &Manifest, kept: &[&Round], quantity: Quantity) -> Option<Summary> {
    let mut points = points(kept, |round| quantity.value(round, manifest));
    // Low peaks cannot be measured, so the median of the others would be too high.
    if quantity == Quantity::PeakMemory && points.len() < kept.len() {
        points.clear();
    }
    let is_judged = Quantity::judged(&manifest.workload.metric).contains(&quantity);
    let mut found = summary(quantity, quantity.metric(&manifest.workload.metric), is_judged, points)?;
    found.origin = origin(quantity, manifest);
    if quantity == Quantity::Performance {
        found.cases = case_values(kept);
    }
    if let Some(domain) = quantity.domain(manifest) {
        found.watts = watts(manifest, kept, domain);
        if quantity != Quantity::Energy {
            let printed = kept.iter().filter_map(|round| round.outcome.value).collect();
            found.printed = (origin(Quantity::Performance, manifest), printed);
            found.joules = kept.iter().filter_map(|round| quantity.joules(round, manifest)).collect();
        }
    }
    Some(found)
}

pub(super) fn report_points(manifest: &Manifest, rounds: &[&Round], arm: usize) -> ArmReport {
    let Sifted { kept, left_out, grades, failed, hot } = sift(manifest, rounds, arm);
    let definition = &manifest.arms[arm];
    let mut boots: Vec<usize> = kept.iter().map(|round| round.boot).collect();
    boots.dedup();
    let mut notes: Vec<String> = Vec::new();
    for note in kept.iter().flat_map(|round| &round.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    let peak = |round: &Round| round.outcome.usage.and_then(|usage| usage.peak_kib);
    let peaks = kept.iter().map(|round| peak(round).or(round.outcome.memory_at_most_kib));
    let most = peaks.collect::<Option<Vec<u64>>>().and_then(|peaks| peaks.into_iter().max());
    let memory_at_most = most.filter(|_| kept.iter().any(|round| peak(round).is_none()));
    let throttled = kept.iter().filter_map(|round| round.readings.throttled).reduce(|a, b| a + b);
    let summaries =
        Quantity::ALL.iter().filter_map(|quantity| summary_of(manifest, &kept, *quantity)).collect();
    let states =
        |round: &Round| manifest.boots.get(round.boot).map_or(&[][..], |boot| &boot.meters.idle_states[..]);
    ArmReport {
        name: definition.name.clone(),
        settings: definition.settings.iter().map(ToString::to_string).collect(),
        program: definition.program.clone(),
        control: definition.control,
        boots,
        waits_for: None,
        rounds: kept.len(),
        left_out,
        grades,
        throttled,
        memory_at_most: memory_at_most.map(|kib| kib as f64 / 1024.0),
        wakes: WakeNote::mean(
            kept.first().map_or(&[], |round| states(round)),
            // Another boot may have other states.
            kept.iter()
                .filter(|round| states(round) == states(kept[0]))
                .filter_map(|round| round.readings.exits.as_ref()),
        ),
        speed: SpeedNote::mean(kept.iter().filter_map(|round| round.speed.as_ref())),
        notes,
        summaries,
        lacks_case: false,
        failed,
        hot,
    }
}

pub(super) fn report_arm(manifest: &Manifest, rounds: &[&Round], arm: usize) -> ArmReport {
    let mut report = report_points(manifest, rounds, arm);
    let schedule = &manifest.schedule;
    // One report in a hundred shows a drift by chance, over all arms and quantities.
    let questions = manifest.arms.len() * Quantity::judged(&manifest.workload.metric).len();
    let least = 0.01 / questions as f64;
    for summary in &mut report.summaries {
        summary.interval = stats::median_interval(&summary.values(), schedule.confidence);
        summary.drift = drift(summary, least);
        summary.outliers = outliers(summary);
    }
    if report.rounds == 0 {
        report.waits_for = manifest.boot_needs.get(arm).cloned().flatten();
    }
    report
}

/// The trend of values, if its p-value is less than `least`.
fn drift(summary: &Summary, least: f64) -> Option<Drift> {
    // A trend over several boots would be a difference between boots.
    let one_boot = summary.points.windows(2).all(|pair| pair[0].boot == pair[1].boot);
    let values = summary.values();
    // Logarithms, so that the change is a ratio of the last round to the first. Zero has none.
    if !one_boot || values.iter().any(|value| *value <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let trend = stats::trend(&logs).filter(|trend| trend.p < least)?;
    let change = (trend.slope * (values.len() - 1) as f64).exp_m1();
    change.is_finite().then_some(Drift { change, p: trend.p })
}

/// Blocks further than five scaled median absolute deviations from the median. Few rounds do not
/// tell the deviation well, so their limit is higher: with normal noise, one arm in 200 has such a
/// block.
pub(super) fn outliers(summary: &Summary) -> Vec<usize> {
    let away: Vec<f64> = summary.points.iter().map(|point| (point.value - summary.median).abs()).collect();
    let scale = stats::median(&away).unwrap_or(0.0) / stats::NORMAL_MEDIAN_DISTANCE;
    // If more than half of the values are equal, the scale is 0 and everything else is an outlier.
    if summary.points.len() < 5 || scale <= 0.0 {
        return Vec::new();
    }
    let far = scale * (5.0 + 500.0 / (away.len() as f64).powi(2));
    summary.points.iter().zip(&away).filter(|(_, away)| **away > far).map(|(p, _)| p.block).collect()
}
