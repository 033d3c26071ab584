//! The content of a report: arms, comparisons and verdicts, as data.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::{Quantity, has_logarithm};
use crate::{
    meter::WakeNote,
    metric::Metric,
    program::Program,
    run_directory::{MachineNote, QuietNote, WorkloadNote},
    schedule::Schedule,
    speed::SpeedNote,
    stats::Interval,
};

/// The value of one round.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Point {
    pub boot: usize,
    pub block: usize,
    pub value: f64,
}

/// A trend inside an arm that is too strong to be chance.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ArmDrift")]
pub struct Drift {
    /// The change from the first round to the last along the median slope of the logarithms, as a
    /// fraction.
    pub change: f64,
    /// The probability of a trend this strong by chance.
    pub p: f64,
}

/// Where values come from, and so what is known about their rounding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Origin {
    /// A program printed them, and may have rounded them. Equal values do not reveal the step.
    #[default]
    Printed,
    /// flyball counted them, read them from its nanosecond clock, or computed them with a model.
    Measured,
    /// The user says that they are exact.
    Exact,
}

/// The readings of each round, by the name of the power meter.
pub(super) type Watts = BTreeMap<String, Vec<Vec<u64>>>;

/// One quantity of one arm.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Summary {
    pub quantity: Quantity,
    /// Its name, unit and direction.
    pub metric: Metric,
    /// Whether verdicts are given for it.
    #[serde(default)]
    pub is_judged: bool,
    pub median: f64,
    /// The median's confidence interval, without correction for other questions. None if there are
    /// too few rounds for the requested level.
    pub interval: Option<Interval>,
    pub mean: f64,
    pub deviation: Option<f64>,
    /// Every round that counts.
    pub points: Vec<Point>,
    /// A trend, if there is one.
    pub drift: Option<Drift>,
    /// Blocks whose value is far from the others (more than five scaled median deviations, or more
    /// in few rounds). They are not left out.
    pub outliers: Vec<usize>,
    #[serde(skip)]
    pub(super) origin: Origin,
    /// The numbers that the program printed, if the values are computed from them, and their
    /// origin.
    #[serde(skip)]
    pub(super) printed: (Origin, Vec<f64>),
    /// The energies, if the values are computed from them.
    #[serde(skip)]
    pub(super) joules: Vec<f64>,
    /// The readings of power meters that the values are computed from.
    #[serde(skip)]
    pub(super) watts: Watts,
    /// The values of the cases, if the values are means over a suite's cases.
    #[serde(skip)]
    pub(super) cases: BTreeMap<String, Vec<f64>>,
}

impl Summary {
    /// Returns the values in the order of the rounds.
    pub(crate) fn values(&self) -> Vec<f64> {
        self.points.iter().map(|point| point.value).collect()
    }

    /// Returns whether the values are computed from others that come in steps.
    pub(super) fn is_computed(&self) -> bool {
        !self.joules.is_empty() || !self.watts.is_empty()
    }

    /// Returns whether ratios of its values mean anything: no value is zero or negative.
    pub(super) fn has_ratios(&self) -> bool {
        self.without_ratio() == 0
    }

    /// Returns how many rounds have no ratio, because their value is zero or negative. With a
    /// single one of them, the quantity gets no verdict: leaving it out would select rounds by
    /// their values.
    pub(super) fn without_ratio(&self) -> usize {
        self.points.iter().filter(|point| !has_logarithm(point.value)).count()
    }
}

/// A round that does not count.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LeftOut {
    pub boot: usize,
    pub block: usize,
    pub why: String,
    /// Whether other programs or guests disturbed it, so that an extra block replaced its block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_others: bool,
}

/// How many rounds had which conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Grades {
    /// Too short to see whether something disturbed them.
    #[serde(default)]
    pub not_watched: usize,
    /// Nothing disturbed them.
    pub good: usize,
    /// Something disturbed them a little.
    pub fair: usize,
    /// Something disturbed them so much that they are left out, unless the arm itself caused it.
    pub bad: usize,
}

#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ArmReport {
    pub name: String,
    /// Its settings as typed.
    pub settings: Vec<String>,
    /// What it ran, if arms ran different programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Whether it is the first arm again, to see what the machine's own noise is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// The boots in which it ran.
    pub boots: Vec<usize>,
    /// What to boot with, if it has not run and needs another boot.
    pub waits_for: Option<String>,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds that do not count.
    pub left_out: Vec<LeftOut>,
    /// How good the conditions of its rounds were, if they were watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grades: Option<Grades>,
    /// Throttle events over all rounds, if the kernel counts them.
    pub throttled: Option<u64>,
    /// Upper bound of its peak memory in MiB, if some rounds have no exact value: the peak of
    /// flyball itself, which each program inherits at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_at_most: Option<f64>,
    /// How fast its CPUs ran, and why not faster: means of its rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<SpeedNote>,
    /// How often its CPUs woke, and out of what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<WakeNote>,
    /// Messages from applying it.
    pub notes: Vec<String>,
    pub summaries: Vec<Summary>,
    /// A case of a suite is missing in rounds of this arm or of the first, so it cannot be
    /// compared.
    #[serde(skip)]
    pub(super) lacks_case: bool,
    /// Rounds without a value of the metric.
    #[serde(skip)]
    pub(super) failed: usize,
    /// Rounds that count although they were throttled.
    #[serde(skip)]
    pub(super) hot: usize,
}

impl ArmReport {
    /// Returns one of its quantities, if it has that one.
    pub fn summary(&self, quantity: Quantity) -> Option<&Summary> {
        self.summaries.iter().find(|summary| summary.quantity == quantity)
    }
}

/// The conclusion about two arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second is better.
    Better,
    /// The second is worse.
    Worse,
    /// They are shown to differ by less than [`crate::EQUIVALENT`].
    Equivalent,
    /// Whatever the difference is, these rounds do not show it.
    NoDifferenceShown,
    /// There are too few rounds to show a difference.
    TooFewRounds,
}

impl Verdict {
    /// Returns whether a difference is shown.
    pub fn is_difference(self) -> bool {
        matches!(self, Verdict::Better | Verdict::Worse)
    }
}

/// How the scatter of two arms' rounds compares: a test of the absolute deviations from each arm's
/// median (Brown and Forsythe), by ranks and pair by pair.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Steadiness {
    /// Robust standard deviations of the logarithms (the median distance from the median, scaled
    /// so that it equals the standard deviation of normal noise): the base's, then the arm's.
    pub spreads: (f64, f64),
    /// The Hodges-Lehmann estimate of how much further the arm's rounds are from their median
    /// than the base's, in the unit of `spreads`. Its sign is the direction of the test.
    pub change: f64,
    pub p: f64,
    /// `p`, corrected for all questions of the report.
    pub p_corrected: f64,
    /// Whether the arm is steadier (better) or less steady (worse) than the base.
    pub verdict: Verdict,
}

/// Two arms compared in one quantity.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Comparison {
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
    /// Its confidence interval, corrected for all questions of the report. It excludes 0 exactly if
    /// a difference is shown. None if there are too few rounds.
    pub interval: Option<Interval>,
    /// The two-sided p-value of the rank test.
    pub p: f64,
    /// `p`, corrected for all questions of the report.
    pub p_corrected: f64,
    /// Cliff's delta: how much more often the arm's rounds lie above the base's than below.
    pub delta: f64,
    pub verdict: Verdict,
    /// Whether rounds of one arm have no value more often than those of the other, so that the
    /// comparison holds only for rounds that have one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether the arm's rounds scatter more or less than the base's. Only for performance, and
    /// only if rounding does not hide it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steadiness: Option<Steadiness>,
    /// The smallest change that a comparison with as many rounds and the same noise shows in 9 of
    /// 10 cases. Only if no difference is shown, and if there are enough rounds to estimate the
    /// noise.
    pub shows: Option<f64>,
    /// Rounds of each arm that would show a change of 1 % in 9 of 10 cases.
    pub rounds_for_one_percent: Option<usize>,
    /// The rounding step of both arms' values (their last digit, or the tick of a coarse clock), as
    /// a fraction of the smallest value. Rounding can hide this much of the difference. None if the
    /// step is not known; then there is no interval.
    #[serde(default)]
    pub step: Option<f64>,
}

impl Comparison {
    /// Withdraws what only rounds that are all known can show: that arms are the same, and what
    /// would have been seen.
    pub(super) fn without_same(&mut self) {
        self.shows = None;
        if self.verdict == Verdict::Equivalent {
            self.verdict = Verdict::NoDifferenceShown;
        }
    }

    /// Returns whether rounding to steps can move the interval.
    pub(super) fn is_coarse(&self) -> bool {
        self.interval.zip(self.step).is_some_and(|(found, step)| is_coarse(found, step))
    }

    /// Returns the interval widened for rounding: see [`with_step`].
    pub(super) fn with_steps(&self, is_shown: bool) -> Option<Interval> {
        self.interval.and_then(|found| with_step(found, self.step, is_shown))
    }
}

/// Returns whether rounding matters. Noise of ten steps or more evens it out.
pub(crate) fn is_coarse(found: Interval, step: f64) -> bool {
    const OF_WIDTH: f64 = 0.1;
    step > OF_WIDTH * (found.high - found.low)
}

/// Widens the interval of a difference, as a fraction, for values that were rounded to steps. Each
/// ratio is off by at most one step, and so are the ends. Rounding does not reverse a difference,
/// so the interval of a shown difference ends at 0. None if the step is not known.
pub fn with_step(found: Interval, step: Option<f64>, is_shown: bool) -> Option<Interval> {
    let step = step?;
    if !is_coarse(found, step) {
        return Some(found);
    }
    let step = 1.0 + step;
    let (low, high) = ((1.0 + found.low) / step - 1.0, (1.0 + found.high) * step - 1.0);
    Some(match is_shown {
        true if found.low > 0.0 => Interval { low: low.max(0.0), high },
        true => Interval { low, high: high.min(0.0) },
        false => Interval { low, high },
    })
}

/// One case of a benchmark suite: an arm compared with the first arm.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CaseReport {
    pub name: String,
    /// The medians: the first arm's, then this arm's.
    pub medians: [f64; 2],
    pub comparison: Comparison,
    /// The first arm seems to differ from itself, so there is no verdict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// Drifts and disturbed rounds, which make the case less reliable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
}

/// A program against the first one under the same settings.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ProgramEffect {
    pub program: String,
    /// The first program.
    pub base: String,
    /// The settings.
    pub under: String,
    /// The comparison of the two arms, corrected for all questions of this kind.
    pub effect: Comparison,
    /// This ratio compared with the ratio under the first settings: whether the effect depends on
    /// the settings. None for the first settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interaction: Option<Comparison>,
}

/// Whether an arm keeps within a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateVerdict {
    /// The whole interval is within the limit: the arm is shown not to be worse.
    Within,
    /// The limit lies inside the interval, or there is no interval.
    CannotTell,
    /// The whole interval is over the limit.
    Over,
}

/// Why an answer about a limit has no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoInterval {
    /// One of the arms has no counted round with a value of the quantity.
    #[display("not measured")]
    NotMeasured,
    /// The metric is a rate or a suite's, and the quantity is not per work.
    #[display("the arms may do different work")]
    OtherWork,
    /// There is no suite, or an arm lacks one of its cases.
    #[display("a case has no value, or 0, in an arm")]
    LostCase,
    /// Rounds of one arm have no value more often than those of the other.
    #[display("too many rounds of one arm have no value")]
    LostRounds,
    /// In both arms, the peak memory is hidden behind flyball's own.
    #[display("in both arms at most flyball's own, so not known")]
    BelowOwn,
    /// A value is zero or negative, so there are no ratios.
    #[display("zero or negative in some rounds")]
    NoRatio,
    /// Arms did different work in the same time.
    #[display("the workload runs for a fixed time")]
    FixedTime,
    #[display("too few rounds")]
    TooFewRounds,
    #[display(
        "all values, or all of a case, are equal, so their step is not known; --exact, if they are counts"
    )]
    UnknownStep,
}

impl NoInterval {
    /// Returns whether more rounds may give an interval.
    pub(super) fn is_of_rounds(self) -> bool {
        matches!(self, NoInterval::TooFewRounds | NoInterval::UnknownStep)
    }
}

/// An arm checked against a limit.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct GateAnswer {
    /// The limit as typed.
    pub limit: String,
    /// None for cases, and if no quantity compares the same work.
    #[serde(skip)]
    pub(crate) quantity: Option<Quantity>,
    /// The arm, by index.
    pub arm: usize,
    /// The name of the arm. For a limit on cases, the name of the worst case follows.
    pub name: String,
    /// The interval of the change from the first arm, at the confidence level corrected for the
    /// number of answers. None if there are too few rounds.
    pub interval: Option<Interval>,
    /// The change is at least this: the first arm's peak memory is only known to be at most
    /// `memory_at_most`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    pub verdict: GateVerdict,
    /// Why there is no interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<NoInterval>,
    /// With `--aa`, the first arm seems to differ from itself, so there is no verdict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_withheld: bool,
    /// Some rounds are far from the others, or have two levels, so the answer is about typical
    /// rounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_typical: bool,
    /// The limit is about wall time, and the metric is not.
    #[serde(skip)]
    pub(super) is_beside_metric: bool,
}

impl fmt::Display for GateAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.verdict {
            GateVerdict::Over if self.limit.contains('<') => "below the limit",
            GateVerdict::Over => "over the limit",
            GateVerdict::Within => "within the limit",
            GateVerdict::CannotTell if self.is_withheld => "no verdict (--aa)",
            GateVerdict::CannotTell => "cannot tell",
        };
        let typical = if self.is_typical { " in typical rounds" } else { "" };
        write!(f, "fail if {}: {}: {words}{typical}", self.limit, self.name)?;
        let of = if self.is_beside_metric { "wall time, not the metric: " } else { "" };
        match (self.interval, self.at_least) {
            (Some(interval), _) => write!(f, " ({of}{})", crate::numbers::between(interval)),
            (_, Some(low)) => write!(f, " ({} or more)", crate::numbers::percent(low)),
            _ => self.reason.map_or(Ok(()), |reason| write!(f, " ({reason})")),
        }
    }
}

/// The results of a comparison.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Report {
    pub machine: MachineNote,
    pub workload: WorkloadNote,
    /// How it was run.
    pub schedule: Schedule,
    /// How the machine was kept quiet, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietNote>,
    /// The arms; the first is what the others are compared with.
    pub arms: Vec<ArmReport>,
    pub comparisons: Vec<Comparison>,
    /// How many questions the comparisons answer, steadiness included. Each is answered strictly
    /// enough that all answers together hold with the confidence of the schedule.
    #[serde(default)]
    pub questions: usize,
    /// The correction for it: p-values are multiplied by this, the error level of intervals
    /// divided.
    #[serde(default)]
    pub correction: f64,
    /// The cases of a benchmark suite, with one correction over all of them. Cases that differ come
    /// first, then unclear ones; large changes before small ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<CaseReport>,
    /// The resources that the arms' processes used, compared if arms run different programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Comparison>,
    /// Each program against the first under each setting, if programs ran under several settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<ProgramEffect>,
    /// Quantities without verdicts, because the first arm seems to differ from itself in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<Quantity>,
    /// The answers to `--fail-if`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<GateAnswer>,
    /// Why there is no energy, if there is none.
    pub no_energy: Option<String>,
    /// Why there is no frequency, if there is none.
    pub no_frequency: Option<String>,
    /// Why the processor's counters are missing, if arms run different programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_counters: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns the steadiness of the first arm against itself if it differs: then there is no
    /// verdict on steadiness.
    pub(crate) fn unsteady_control(&self) -> Option<Steadiness> {
        let controls = self.comparisons.iter().filter(|one| self.arms[one.arm].control);
        controls.filter_map(|one| one.steadiness).find(|found| found.verdict.is_difference())
    }
}
