//! From raw rounds to a report: pure, so that the same run directory always gives the same report.
//!
//! Arms are compared with the first one. Rounds of one block ran close together, so their ratios are compared, not
//! their values: what changed over the hours changed for both. The test is Wilcoxon's on the logarithms of these
//! ratios, its probabilities exact, corrected after Holm for the number of arms; the estimate and its interval are
//! those that belong to the test. Arms that ran in different boots have no common blocks; they are compared by the
//! rank-sum test, and the report says so.

use std::collections::BTreeMap;

use crate::{
    meter::Domain,
    metric::{Better, Metric},
    record::{MachineNote, Manifest, QuietNote, Round, WorkloadNote},
    schedule::Schedule,
    stats::{self, Interval},
    watch::{self, Disturbance, Grade, Source},
};

/// Draws of the bootstrap.
const RESAMPLES: usize = 4000;

/// What is reported of each arm, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The workload's own metric.
    Performance,
    /// Energy of the packages.
    Energy,
    /// Performance per watt.
    PerWatt,
    /// Energy of memory.
    Dram,
    /// Energy of the whole platform.
    Platform,
    /// Mean power of the packages.
    Power,
    /// Mean frequency while running.
    Frequency,
    /// Share of time not idle, of the CPUs that the workload may use.
    Busy,
    /// The highest temperature.
    Temperature,
    /// Context switches of the workload, or of the machine where the workload's are not known.
    Switches,
    /// CPU time in user mode.
    User,
    /// CPU time in the kernel.
    System,
    /// Wall time.
    Time,
    /// Decisions of the driver a second, by its trace.
    Decisions,
    /// Frequency while running, by the driver's trace.
    TraceFrequency,
    /// From request to frequency, by the driver's trace.
    Lag,
}

impl Quantity {
    /// Those that verdicts are given for.
    pub const JUDGED: [Quantity; 3] = [Quantity::Performance, Quantity::Energy, Quantity::PerWatt];

    const ALL: [Quantity; 16] = [
        Quantity::Performance,
        Quantity::Energy,
        Quantity::PerWatt,
        Quantity::Dram,
        Quantity::Platform,
        Quantity::Power,
        Quantity::Frequency,
        Quantity::Busy,
        Quantity::Temperature,
        Quantity::Switches,
        Quantity::User,
        Quantity::System,
        Quantity::Time,
        Quantity::Decisions,
        Quantity::TraceFrequency,
        Quantity::Lag,
    ];

    /// Its name, unit and direction for a workload with this metric.
    pub fn metric(self, workload: &Metric) -> Metric {
        let lower = |name: &str, unit: &str| Metric::new(name, unit, Better::Lower);
        match self {
            Quantity::Performance => workload.clone(),
            Quantity::Energy => lower("energy", "J"),
            Quantity::PerWatt => workload.per_watt(),
            Quantity::Dram => lower("DRAM energy", "J"),
            Quantity::Platform => lower("platform energy", "J"),
            Quantity::Power => lower("power", "W"),
            Quantity::Frequency => Metric::new("frequency", "GHz", Better::Higher),
            Quantity::Busy => lower("busy", "%"),
            Quantity::Temperature => lower("peak temperature", "C"),
            Quantity::Switches => lower("context switches", ""),
            Quantity::User => lower("user time", "s"),
            Quantity::System => lower("system time", "s"),
            Quantity::Time => lower("wall time", "s"),
            Quantity::Decisions => lower("decisions", "/s"),
            Quantity::TraceFrequency => Metric::new("traced frequency", "GHz", Better::Higher),
            Quantity::Lag => lower("lag", "ms"),
        }
    }

    /// Its value in a round, in the unit of [`Quantity::metric`].
    fn of(self, round: &Round, manifest: &Manifest) -> Option<f64> {
        let sources = &manifest.boots.get(round.boot)?.meters.energy;
        let joules = |domain| round.readings.joules(sources, domain);
        let outcome = &round.outcome;
        match self {
            Quantity::Performance => outcome.value,
            Quantity::Energy => joules(Domain::Package),
            Quantity::PerWatt => {
                // Where only the platform is metered, that is the energy to count.
                let energy = joules(Domain::Package).or_else(|| joules(Domain::Platform))?;
                let seconds = outcome.work_seconds.unwrap_or(outcome.seconds);
                manifest.workload.metric.value_per_watt(outcome.value?, seconds, energy)
            }
            Quantity::Dram => joules(Domain::Dram),
            Quantity::Platform => joules(Domain::Platform),
            Quantity::Power => {
                Some(joules(Domain::Package)? / outcome.seconds).filter(|power| power.is_finite())
            }
            Quantity::Frequency => round.readings.mean_khz().map(|khz| khz / 1e6),
            Quantity::Busy => round.readings.busy().map(|share| share * 100.0),
            Quantity::Temperature => round.readings.peak_celsius(),
            Quantity::Switches => outcome
                .usage
                .map(|usage| usage.voluntary_switches + usage.involuntary_switches)
                .or(round.readings.switches)
                .map(|count| count as f64),
            Quantity::User => outcome.usage.map(|usage| usage.user_seconds),
            Quantity::System => outcome.usage.map(|usage| usage.system_seconds),
            Quantity::Time => Some(outcome.seconds),
            Quantity::Decisions => Some(round.trace.as_ref()?.decisions as f64 / outcome.seconds),
            Quantity::TraceFrequency => round.trace.as_ref()?.ghz,
            Quantity::Lag => round.trace.as_ref()?.lag_ms,
        }
    }
}

/// The value of one round.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Point {
    /// The boot.
    pub boot: usize,
    /// The block.
    pub block: usize,
    /// The value.
    pub value: f64,
}

/// A trend inside an arm that is too strong to be chance.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Drift {
    /// The change from the first round to the last along the median slope, as a fraction of the median.
    pub change: f64,
    /// The probability of such a trend in rounds without one.
    pub p: f64,
}

/// One quantity of one arm.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// What.
    pub quantity: Quantity,
    /// Its name, unit and direction.
    pub metric: Metric,
    /// The median.
    pub median: f64,
    /// The median's bootstrap confidence interval.
    pub interval: Option<Interval>,
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: Option<f64>,
    /// Every round that counts.
    pub points: Vec<Point>,
    /// A trend, if there is one.
    pub drift: Option<Drift>,
    /// Blocks whose value is far from the others (more than five scaled median deviations). They count.
    pub outliers: Vec<usize>,
}

/// A round that does not count.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    /// The boot.
    pub boot: usize,
    /// The block.
    pub block: usize,
    /// Why.
    pub why: String,
}

/// How many rounds had which conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Grades {
    /// Nothing disturbed them.
    pub good: usize,
    /// Something did, a little.
    pub fair: usize,
    /// Something did, so much that they are left out unless it is the arm's own doing.
    pub bad: usize,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ArmReport {
    /// Its name.
    pub name: String,
    /// Its settings as typed.
    pub settings: Vec<String>,
    /// The boots in which it ran.
    pub boots: Vec<usize>,
    /// What it waits for, if it has not run: what to boot with.
    pub waits_for: Option<String>,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds that do not.
    pub left_out: Vec<LeftOut>,
    /// How good the conditions of its rounds were, where they were watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grades: Option<Grades>,
    /// Throttle events over all rounds, where the kernel counts them.
    pub throttled: Option<u64>,
    /// What applying it had to say.
    pub notes: Vec<String>,
    /// Its quantities.
    pub summaries: Vec<Summary>,
}

impl ArmReport {
    /// One of its quantities.
    pub fn summary(&self, quantity: Quantity) -> Option<&Summary> {
        self.summaries.iter().find(|summary| summary.quantity == quantity)
    }
}

/// What is said of two arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second is better.
    Better,
    /// The second is worse.
    Worse,
    /// Whatever the difference is, these rounds do not show it.
    NoDifferenceShown,
    /// So few rounds cannot show any.
    TooFewRounds,
}

/// Two arms compared in one quantity.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Comparison {
    /// In what.
    pub quantity: Quantity,
    /// The arm compared with, by index: the first.
    pub base: usize,
    /// The arm, by index.
    pub arm: usize,
    /// Whether rounds of one block were compared; otherwise the arms ran in different boots.
    pub paired: bool,
    /// Pairs, or rounds of the smaller group.
    pub pairs: usize,
    /// The change from base to arm as a fraction: 0.02 is 2 % more. The Hodges-Lehmann estimate.
    pub change: f64,
    /// Its confidence interval; none where so few rounds cannot give one.
    pub interval: Option<Interval>,
    /// The two-sided probability of such ranks without a difference.
    pub p: f64,
    /// The same, corrected for the number of arms.
    pub p_corrected: f64,
    /// Cliff's delta: how much more often the arm's rounds lie above the base's than below.
    pub delta: f64,
    /// What is said.
    pub verdict: Verdict,
    /// The smallest change that this many rounds with this noise show in 9 of 10 cases.
    pub shows: Option<f64>,
    /// Rounds of each arm that would show a change of 1 % in 9 of 10 cases.
    pub rounds_for_one_percent: Option<usize>,
}

/// A comparison, worked out.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: MachineNote,
    /// The workload.
    pub workload: WorkloadNote,
    /// How it was run.
    pub schedule: Schedule,
    /// How the machine was kept quiet, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietNote>,
    /// The arms; the first is what the others are compared with.
    pub arms: Vec<ArmReport>,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// Why there is no energy, if there is none.
    pub no_energy: Option<String>,
    /// Why there is no frequency, if there is none.
    pub no_frequency: Option<String>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// Makes the report.
pub fn analyse(manifest: &Manifest, rounds: &[Round]) -> Report {
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up).collect();
    let arms: Vec<ArmReport> =
        (0..manifest.arms.len()).map(|arm| report_arm(manifest, &counted, arm)).collect();
    let mut comparisons = Vec::new();
    for quantity in Quantity::JUDGED {
        comparisons.extend(compare(manifest, &arms, quantity));
    }
    let reason = |get: fn(&crate::meter::MeterList) -> &Option<String>| {
        manifest.boots.iter().find_map(|boot| get(&boot.meters).clone())
    };
    let mut report = Report {
        machine: manifest.machine.clone(),
        workload: manifest.workload.clone(),
        schedule: manifest.schedule.clone(),
        quiet: manifest.quiet.clone(),
        arms,
        comparisons,
        no_energy: reason(|meters| &meters.no_energy),
        no_frequency: reason(|meters| &meters.no_frequency),
        notes: Vec::new(),
    };
    report.notes = notes(manifest, &report);
    report
}

/// The widest half-width of the performance intervals of a boot's arms against its first, as a fraction; `None`
/// while there is none. What `--until` waits for.
pub fn half_width(manifest: &Manifest, rounds: &[Round], boot: usize) -> Option<f64> {
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up && round.boot == boot).collect();
    let arms = &manifest.boots.get(boot)?.arms;
    let reports: Vec<ArmReport> = arms.iter().map(|arm| report_points(manifest, &counted, *arm)).collect();
    let level = manifest.schedule.confidence;
    let (base, others) = reports.split_first()?;
    if others.is_empty() {
        // An arm alone in its boot: its own median's precision counts.
        let values: Vec<f64> =
            base.summary(Quantity::Performance)?.points.iter().map(|p| p.value.ln()).collect();
        return stats::walsh_interval(&values, level).map(Interval::half_width);
    }
    others.iter().try_fold(0.0_f64, |widest, other| {
        let ratios = log_ratios(base.summary(Quantity::Performance)?, other.summary(Quantity::Performance)?);
        Some(widest.max(stats::walsh_interval(&ratios, level)?.half_width()))
    })
}

/// The disturbances of a round, judged from what was recorded of it. Empty where nothing was.
fn disturbances(round: &Round, manifest: &Manifest) -> Vec<Disturbance> {
    let Some(conditions) = &round.conditions else { return Vec::new() };
    let cpus = manifest.quiet.as_ref().and_then(|quiet| quiet.cpus.parse::<flyball_host::CpuList>().ok());
    let count = cpus.map_or(manifest.machine.cpus, |cpus| cpus.len()).max(1);
    let own = round.outcome.usage.map(|usage| {
        (usage.user_seconds + usage.system_seconds) / (round.outcome.seconds * count as f64).max(1e-9)
    });
    watch::grade(conditions, own, &watch::Limits::default()).1
}

/// What sifting an arm's rounds gives: those that count, those that do not, and their conditions.
struct Sifted<'a> {
    kept: Vec<&'a Round>,
    left_out: Vec<LeftOut>,
    grades: Option<Grades>,
}

/// Splits an arm's rounds into those that count and those that do not: by how they went and under what conditions,
/// never by their values.
fn sift<'a>(manifest: &Manifest, rounds: &[&'a Round], arm: usize) -> Sifted<'a> {
    let own: Vec<&Round> = rounds.iter().copied().filter(|round| round.arm == arm).collect();
    let hot = own.iter().filter(|round| round.readings.throttled.is_some_and(|count| count > 0)).count();
    // An arm that throttles more often than not does so because of its settings: that is its performance.
    let throttles_always = hot * 2 > own.len();
    let disturbed: Vec<Vec<Disturbance>> = own.iter().map(|round| disturbances(round, manifest)).collect();
    let bad = |found: &Disturbance| found.grade == Grade::Bad;
    // The same for what else its settings can bring about.
    let usual = |source: Source| {
        let with = disturbed.iter().filter(|all| all.iter().any(|one| bad(one) && one.source == source));
        source.may_be_own() && with.count() * 2 > own.len()
    };
    let mut grades = None;
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    for (round, disturbed) in own.iter().zip(&disturbed) {
        if round.conditions.is_some() {
            let grades: &mut Grades = grades.get_or_insert_default();
            match disturbed.iter().map(|found| found.grade).max().unwrap_or(Grade::Good) {
                Grade::Good => grades.good += 1,
                Grade::Fair => grades.fair += 1,
                Grade::Bad => grades.bad += 1,
            }
        }
        let disturbance = disturbed.iter().find(|found| {
            manifest.quiet.is_some() && bad(found) && found.source != Source::Heat && !usual(found.source)
        });
        let why = if let Some(failure) = &round.outcome.failure {
            Some(format!("the workload failed ({failure})"))
        } else if round.outcome.value.is_none() {
            Some("no metric in the output".to_owned())
        } else if let Some(count) = round.readings.throttled.filter(|&count| count > 0 && !throttles_always) {
            Some(format!("throttled ({count} events)"))
        } else {
            disturbance.map(|found| found.what.clone())
        };
        match why {
            Some(why) => left_out.push(LeftOut { boot: round.boot, block: round.block, why }),
            None => kept.push(*round),
        }
    }
    Sifted { kept, left_out, grades }
}

fn report_points(manifest: &Manifest, rounds: &[&Round], arm: usize) -> ArmReport {
    let Sifted { kept, left_out, grades } = sift(manifest, rounds, arm);
    let definition = &manifest.arms[arm];
    let mut boots: Vec<usize> = kept.iter().map(|round| round.boot).collect();
    boots.dedup();
    let mut notes: Vec<String> = Vec::new();
    for note in kept.iter().flat_map(|round| &round.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    let throttled = kept.iter().filter_map(|round| round.readings.throttled).reduce(|a, b| a + b);
    let summaries = Quantity::ALL
        .into_iter()
        .filter_map(|quantity| {
            let points: Vec<Point> = kept
                .iter()
                .filter_map(|round| {
                    let value = quantity.of(round, manifest).filter(|value| value.is_finite())?;
                    Some(Point { boot: round.boot, block: round.block, value })
                })
                .collect();
            let values: Vec<f64> = points.iter().map(|point| point.value).collect();
            Some(Summary {
                quantity,
                metric: quantity.metric(&manifest.workload.metric),
                median: stats::median(&values)?,
                interval: None,
                mean: stats::mean(&values)?,
                deviation: stats::standard_deviation(&values),
                points,
                drift: None,
                outliers: Vec::new(),
            })
        })
        .collect();
    ArmReport {
        name: definition.name.clone(),
        settings: definition.wishes.iter().map(ToString::to_string).collect(),
        boots,
        waits_for: None,
        rounds: kept.len(),
        left_out,
        grades,
        throttled,
        notes,
        summaries,
    }
}

fn report_arm(manifest: &Manifest, rounds: &[&Round], arm: usize) -> ArmReport {
    let mut report = report_points(manifest, rounds, arm);
    let schedule = &manifest.schedule;
    for summary in &mut report.summaries {
        let values: Vec<f64> = summary.points.iter().map(|point| point.value).collect();
        let seed = schedule.seed ^ ((arm as u64) << 8) ^ summary.quantity as u64;
        summary.interval = stats::bootstrap(
            &values,
            |draw| stats::median(draw).unwrap_or(f64::NAN),
            schedule.confidence,
            RESAMPLES,
            seed,
        );
        // A trend over boots would be a difference between boots.
        let one_boot = summary.points.windows(2).all(|pair| pair[0].boot == pair[1].boot);
        summary.drift = stats::trend(&values).filter(|trend| one_boot && trend.p < 0.01).map(|trend| Drift {
            change: trend.slope * (values.len() - 1) as f64 / summary.median,
            p: trend.p,
        });
        summary.outliers = outliers(summary);
    }
    if report.rounds == 0 {
        report.waits_for = manifest.boot_needs.get(arm).cloned().flatten();
    }
    report
}

/// Blocks further than five scaled median absolute deviations from the median.
fn outliers(summary: &Summary) -> Vec<usize> {
    let away: Vec<f64> = summary.points.iter().map(|point| (point.value - summary.median).abs()).collect();
    // 1.4826: the deviation of normal noise with a median absolute deviation of 1.
    let scale = 1.4826 * stats::median(&away).unwrap_or(0.0);
    if summary.points.len() < 5 || scale <= 0.0 {
        return Vec::new();
    }
    summary.points.iter().zip(&away).filter(|(_, away)| **away > 5.0 * scale).map(|(p, _)| p.block).collect()
}

/// The logarithms of `other` over `base`, block by block, in the order of blocks.
fn log_ratios(base: &Summary, other: &Summary) -> Vec<f64> {
    let known: BTreeMap<(usize, usize), f64> =
        base.points.iter().map(|point| ((point.boot, point.block), point.value)).collect();
    let mut ratios: Vec<((usize, usize), f64)> = other
        .points
        .iter()
        .filter_map(|point| {
            let key = (point.boot, point.block);
            let ratio = (point.value / known.get(&key)?).ln();
            ratio.is_finite().then_some((key, ratio))
        })
        .collect();
    ratios.sort_by_key(|(key, _)| *key);
    ratios.into_iter().map(|(_, ratio)| ratio).collect()
}

/// Compares every arm with the first in one quantity.
fn compare(manifest: &Manifest, arms: &[ArmReport], quantity: Quantity) -> Vec<Comparison> {
    let level = manifest.schedule.confidence;
    let alpha = 1.0 - level;
    let Some(base) = arms.first().and_then(|arm| arm.summary(quantity)) else { return Vec::new() };
    let mut found: Vec<Comparison> = arms
        .iter()
        .enumerate()
        .skip(1)
        .filter_map(|(index, arm)| compare_two(base, arm.summary(quantity)?, index, level))
        .collect();
    let corrected = stats::holm(&found.iter().map(|comparison| comparison.p).collect::<Vec<_>>());
    let questions = found.len();
    let better = quantity.metric(&manifest.workload.metric).better;
    for (comparison, p) in found.iter_mut().zip(corrected) {
        comparison.p_corrected = p;
        let smallest = if comparison.paired {
            2.0_f64.powi(1 - comparison.pairs as i32)
        } else {
            let sizes =
                [base, arms[comparison.arm].summary(quantity).unwrap_or(base)].map(|s| s.points.len());
            stats::smallest_rank_sum_p(sizes[0], sizes[1])
        };
        comparison.verdict = if p <= alpha {
            let more = comparison.change > 0.0;
            if more == (better == Better::Higher) { Verdict::Better } else { Verdict::Worse }
        } else if smallest * questions as f64 > alpha {
            Verdict::TooFewRounds
        } else {
            Verdict::NoDifferenceShown
        };
    }
    found
}

fn compare_two(base: &Summary, other: &Summary, arm: usize, level: f64) -> Option<Comparison> {
    let values = |summary: &Summary| summary.points.iter().map(|point| point.value).collect::<Vec<f64>>();
    let logs = |summary: &Summary| {
        summary
            .points
            .iter()
            .map(|point| point.value.ln())
            .filter(|log| log.is_finite())
            .collect::<Vec<f64>>()
    };
    let alpha = 1.0 - level;
    let delta = stats::cliffs_delta(&values(base), &values(other))?;
    let ratios = log_ratios(base, other);
    let percent = |interval: Interval| interval.map(f64::exp_m1);
    let (change, interval, p, pairs, paired, spread) = if ratios.is_empty() {
        let (a, b) = (logs(base), logs(other));
        let spread = (stats::standard_deviation(&a)?.powi(2) + stats::standard_deviation(&b)?.powi(2)).sqrt();
        (
            stats::shift(&a, &b)?,
            stats::shift_interval(&a, &b, level),
            stats::rank_sum(&a, &b)?,
            a.len().min(b.len()),
            false,
            Some(spread),
        )
    } else {
        (
            stats::hodges_lehmann(&ratios)?,
            stats::walsh_interval(&ratios, level),
            stats::signed_rank(&ratios).p,
            ratios.len(),
            true,
            stats::standard_deviation(&ratios),
        )
    };
    let spread = spread.filter(|spread| *spread > 0.0);
    Some(Comparison {
        quantity: base.quantity,
        base: 0,
        arm,
        paired,
        pairs,
        change: change.exp_m1(),
        interval: interval.map(percent),
        p,
        p_corrected: p,
        delta,
        verdict: Verdict::NoDifferenceShown,
        shows: spread.and_then(|spread| stats::mean_shift_shown(pairs, spread, alpha, 0.9)).map(f64::exp_m1),
        rounds_for_one_percent: spread.map(|spread| stats::rounds_to_show(0.01, spread, alpha, 0.9)),
    })
}

/// A sentence for each round that is left out; of many, how many and the worst of what is alike.
fn left_out_notes(arm: &ArmReport) -> Vec<String> {
    if arm.left_out.len() <= 5 {
        return arm
            .left_out
            .iter()
            .map(|one| format!("{}: round {} is left out: {}.", arm.name, one.block + 1, one.why))
            .collect();
    }
    // Alike but for their numbers.
    let stem = |why: &str| why.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().to_owned();
    let mut alike: BTreeMap<String, Vec<&LeftOut>> = BTreeMap::new();
    for one in &arm.left_out {
        alike.entry(stem(&one.why)).or_default().push(one);
    }
    alike
        .into_values()
        .map(|group| {
            let blocks: Vec<String> = group.iter().map(|one| (one.block + 1).to_string()).collect();
            let more = if blocks.len() > 12 { " and more" } else { "" };
            format!(
                "{}: {} rounds are left out, such as round {}: {} (rounds {}{more}).",
                arm.name,
                group.len(),
                group[0].block + 1,
                group[0].why,
                blocks[..blocks.len().min(12)].join(", ")
            )
        })
        .collect()
}

/// What a reader should know, as sentences.
fn notes(manifest: &Manifest, report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if manifest.machine.simulated {
        notes.push("This machine exists only in software: every number here is simulated.".to_owned());
    }
    if let Some(quiet) = &manifest.quiet {
        let sum = |get: fn(&Grades) -> usize| -> usize {
            report.arms.iter().filter_map(|arm| arm.grades.as_ref()).map(get).sum()
        };
        let out: usize = report.arms.iter().map(|arm| arm.left_out.len()).sum();
        notes.push(format!(
            "The machine was kept quiet (level {}, CPUs {}: {}); conditions were good in {} rounds, fair in {}, bad in {}; \
             {out} rounds are left out of the verdict, whatever their values.",
            quiet.level,
            quiet.cpus,
            if quiet.settings.is_empty() { "nothing to set here".to_owned() } else { quiet.settings.join(" ") },
            sum(|grades| grades.good),
            sum(|grades| grades.fair),
            sum(|grades| grades.bad),
        ));
    }
    for arm in &report.arms {
        notes.extend(left_out_notes(arm));
        if arm.rounds == 0 && !arm.left_out.is_empty() {
            notes.push(format!("{}: no round is left, so there is no verdict.", arm.name));
        }
        if arm.throttled.is_some_and(|count| count > 0) {
            notes.push(format!(
                "{}: throttled in most of its rounds ({} events); they count, since its settings bring that about. \
                 A longer --cool-down or better cooling would say more.",
                arm.name,
                arm.throttled.unwrap_or(0)
            ));
        }
        if let Some(needed) = &arm.waits_for {
            notes
                .push(format!("{}: not run yet; boot with {needed}, then continue with --resume.", arm.name));
        }
        for summary in arm.summaries.iter().filter(|summary| Quantity::JUDGED.contains(&summary.quantity)) {
            if let Some(drift) = summary.drift {
                notes.push(format!(
                    "{}: {} drifts by {:+.1} % from first to last round (p = {}); pairs of one block are hardly \
                     touched by that, medians are.",
                    arm.name,
                    summary.metric.name,
                    drift.change * 100.0,
                    crate::render::probability(drift.p),
                ));
            }
            if !summary.outliers.is_empty() && summary.quantity == Quantity::Performance {
                let rounds: Vec<String> =
                    summary.outliers.iter().map(|block| (block + 1).to_string()).collect();
                notes.push(format!(
                    "{}: {} far from the others in round {}; kept, since ranks bear it.",
                    arm.name,
                    summary.metric.name,
                    rounds.join(", ")
                ));
            }
        }
        for note in &arm.notes {
            notes.push(format!("{}: {note}", arm.name));
        }
    }
    let in_boot = |boot: usize| -> Vec<&str> {
        report.arms.iter().filter(|arm| arm.boots.contains(&boot)).map(|arm| arm.name.as_str()).collect()
    };
    let used: Vec<usize> = (0..manifest.boots.len()).filter(|boot| !in_boot(*boot).is_empty()).collect();
    if used.len() > 1 {
        for boot in used {
            let data = &manifest.boots[boot];
            let driver = data.driver.as_deref().map(|driver| format!(", {driver}")).unwrap_or_default();
            notes.push(format!(
                "Boot {} (Linux {}{driver}): {}.",
                boot + 1,
                data.kernel,
                in_boot(boot).join(", ")
            ));
        }
        notes.push(
            "Arms of different boots were not run in turns: a difference between them holds what differs between \
             the boots too."
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
