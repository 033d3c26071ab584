//! Limits on how much worse an arm may be than the first, for `--fail-if`.

use std::str::FromStr;

use super::{
    judge::compare_two,
    notes::runs_for_fixed_time,
    quantity::Quantity,
    report::{
        ArmReport, CaseReport, Comparison, GateAnswer, GateVerdict, NoInterval, Point, Report, Summary,
    },
    sift::is_partial,
    values::is_uneven,
};
use crate::{
    metric::{Better, Metric},
    run_directory::Manifest,
    stats::Interval,
};

/// A limit: `time > +2%`.
#[derive(Debug, Clone, PartialEq, derive_more::Display)]
#[display("{}", &text)]
pub struct Limit {
    text: String,
    /// None for the cases of a suite.
    quantity: Option<Quantity>,
    /// Whether a larger change is over the limit, or a smaller one.
    is_most: bool,
    /// As a fraction: 0.02 is 2 % more.
    change: f64,
}

/// Why a text is not a limit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LimitError {
    #[error("write QUANTITY > +PERCENT or QUANTITY < -PERCENT, as in 'time > +2%'")]
    Form,
    #[error("unknown quantity '{0}'; there are {CASE}, {names}", names = WORDS.map(|(word, _)| word).join(", "))]
    Quantity(String),
    #[error(
        "'{text}' fails an arm for not being more than {percent} % worse; to fail an arm that is more than that worse, \
         write '{right}'"
    )]
    Backwards { text: String, percent: f64, right: String },
    #[error(
        "'{text}' fails an arm for being more than {percent} % better, however much worse another is; to fail an arm \
         that is more than that worse, write '{right}'"
    )]
    OnlyGains { text: String, percent: f64, right: String },
}

/// The word for each case of a suite.
const CASE: &str = "case";

/// The quantities that a limit can name.
const WORDS: [(&str, Quantity); 14] = [
    ("time", Quantity::Time),
    ("cpu", Quantity::CpuTime),
    ("metric", Quantity::Performance),
    ("user", Quantity::User),
    ("system", Quantity::System),
    ("memory", Quantity::PeakMemory),
    ("faults", Quantity::Faults),
    ("switches", Quantity::Switches),
    ("instructions", Quantity::Instructions),
    ("cycles", Quantity::Cycles),
    ("branch-misses", Quantity::BranchMisses),
    ("cache-misses", Quantity::CacheMisses),
    ("energy", Quantity::Energy),
    ("per-watt", Quantity::PerWatt),
];

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let place = text.find(['>', '<']).ok_or(LimitError::Form)?;
        let (word, rest) = (text[..place].trim(), text[place + 1..].trim());
        let percent = rest.strip_suffix('%').ok_or(LimitError::Form)?.trim();
        let change = percent.parse::<f64>().ok().filter(|value| value.is_finite() && *value > -100.0);
        let found = WORDS.iter().find(|(known, _)| *known == word).map(|(_, quantity)| *quantity);
        if found.is_none() && word != CASE {
            return Err(LimitError::Quantity(word.to_owned()));
        }
        Ok(Limit {
            text: text.trim().to_owned(),
            quantity: found,
            is_most: text[place..].starts_with('>'),
            change: change.ok_or(LimitError::Form)? / 100.0,
        })
    }
}

impl Limit {
    pub(super) fn is_of_cases(&self) -> bool {
        self.quantity.is_none()
    }

    /// Rejects a limit that would fail an arm that is no worse than the first and pass a worse one,
    /// unless `all` limits have the other side, too.
    ///
    /// # Errors
    /// The condition that was probably meant.
    pub fn check(&self, metric: &Metric, all: &[Limit]) -> Result<(), LimitError> {
        let better = self.quantity.map_or(metric.better, |quantity| quantity.metric(metric).better);
        if self.is_most != (better == Better::Higher) {
            return Ok(());
        }
        let allows_worse = if self.is_most { self.change < 0.0 } else { self.change > 0.0 };
        let (from, to) = if self.is_most { ('>', "<") } else { ('<', ">") };
        let (text, percent) = (self.text.clone(), (self.change.abs() * 1e8).round() / 1e6);
        let right = self.text.replacen(from, to, 1);
        if allows_worse {
            return Err(LimitError::Backwards { text, percent, right });
        }
        let is_other = |one: &Limit| one.quantity == self.quantity && one.is_most != self.is_most;
        if all.iter().any(is_other) {
            return Ok(());
        }
        // The same number on the side of what is worse.
        let (word, number) = right.split_once(to).unwrap_or_default();
        let sign = if self.is_most { '-' } else { '+' };
        let right = format!("{word}{to} {sign}{}", number.trim().trim_start_matches(['+', '-']));
        Err(LimitError::OnlyGains { text, percent, right })
    }

    /// Returns whether a whole interval is over or within the limit.
    fn verdict(&self, found: Option<&Comparison>, is_withheld: bool) -> GateVerdict {
        let interval = found.filter(|_| !is_withheld).and_then(|one| one.interval);
        match interval {
            Some(found) if self.is_most && found.low > self.change => GateVerdict::Over,
            Some(found) if self.is_most && found.high <= self.change => GateVerdict::Within,
            Some(found) if !self.is_most && found.high < self.change => GateVerdict::Over,
            Some(found) if !self.is_most && found.low >= self.change => GateVerdict::Within,
            _ => GateVerdict::CannotTell,
        }
    }

    /// Returns the case that decides for an arm. The intervals of cases hold together, so picking
    /// the worst needs no further correction.
    fn worst<'a>(&self, cases: &'a [CaseReport], arm: usize) -> Option<&'a CaseReport> {
        let own = cases.iter().filter(|case| case.comparison.arm == arm);
        // Large changes come first, and `max_by_key` takes the last of equals.
        own.rev().max_by_key(|case| self.verdict(Some(&case.comparison), case.withheld))
    }
}

/// Checks every arm against every limit. An arm is over or within a limit if its whole interval is.
/// The level is corrected for the number of answers.
pub fn gate(manifest: &Manifest, report: &Report, limits: &[Limit]) -> Vec<GateAnswer> {
    answers(manifest, &report.arms, &report.cases, &report.withheld, limits)
}

/// Returns the quantity that is judged instead of `quantity`: performance, if that is the metric.
fn judged_quantity(manifest: &Manifest, quantity: Quantity) -> Quantity {
    if quantity.is_metric(&manifest.workload.metric) { Quantity::Performance } else { quantity }
}

/// The peak memory of both arms, if one of them is only known to be at most a bound. The bound then
/// replaces its values.
fn bounded(quantity: Quantity, base: &ArmReport, arm: &ArmReport) -> Option<(Summary, Summary)> {
    let at_most = |arm: &ArmReport, like: &Summary| {
        let value = arm.memory_at_most?;
        let points = like.points.iter().map(|point| Point { value, ..*point }).collect();
        Some(Summary { points, ..like.clone() })
    };
    match (base.summary(quantity), arm.summary(quantity)) {
        _ if quantity != Quantity::PeakMemory => None,
        (None, Some(known)) => Some((at_most(base, known)?, known.clone())),
        (Some(known), None) => Some((known.clone(), at_most(arm, known)?)),
        _ => None,
    }
}

/// Compares an arm with the first, with an interval of this level. If a peak is only bounded, the
/// interval is open on that side: its end is infinite or -1.
fn compared(
    quantity: Quantity,
    base: &ArmReport,
    arm: &ArmReport,
    index: usize,
    level: f64,
    until: bool,
) -> Option<Comparison> {
    let bounded = bounded(quantity, base, arm);
    let summaries = bounded.as_ref().map(|(base, other)| (base, other));
    let (first, other) = summaries.or_else(|| base.summary(quantity).zip(arm.summary(quantity)))?;
    let found = Some((first, other)).filter(|(first, other)| first.has_ratios() && other.has_ratios());
    let found = found.and_then(|(first, other)| compare_two(first, other, index, level, until))?;
    let interval = found.with_steps(false).map(|ends| match (&bounded, base.summary(quantity)) {
        (None, _) => ends,
        (_, None) => Interval { high: f64::INFINITY, ..ends },
        (_, Some(_)) => Interval { low: -1.0, ..ends },
    });
    Some(Comparison { interval, partial: is_partial(base, arm, quantity), ..found })
}

/// Returns whether there is no verdict on this quantity. A finding of `--aa` on CPU time also holds
/// for its parts, which have no verdict of their own.
fn is_withheld_of(withheld: &[Quantity], quantity: Quantity) -> bool {
    let is_part = matches!(quantity, Quantity::User | Quantity::System);
    withheld.contains(&quantity) || is_part && withheld.contains(&Quantity::CpuTime)
}

/// Returns whether an answer about arms that did different work is still valid: slower arms may
/// have done less in the same time, and faster ones used more resources for more work.
fn holds_of_other_work(verdict: GateVerdict, is_fixed_time: bool, quantity: Option<Quantity>) -> bool {
    let is_of_work = is_fixed_time && !matches!(quantity, Some(Quantity::Time | Quantity::PeakMemory));
    verdict == GateVerdict::Over && !is_of_work
}

/// Why two arms have no values of a quantity. `quantity` is none if the named one does not compare
/// the same work.
fn not_measured(base: &ArmReport, arm: &ArmReport, quantity: Option<Quantity>) -> NoInterval {
    let are_small = [base, arm].iter().all(|arm| arm.memory_at_most.is_some());
    match quantity {
        None => NoInterval::OtherWork,
        Some(Quantity::PeakMemory) if are_small => NoInterval::BelowOwn,
        _ => NoInterval::NotMeasured,
    }
}

/// Returns whether one of two arms has no values of a quantity.
fn is_missing(
    base: &ArmReport,
    arm: &ArmReport,
    quantity: Option<Quantity>,
    found: Option<&Comparison>,
) -> bool {
    let has_both = |one| base.summary(one).is_some() && arm.summary(one).is_some();
    let is_bounded = found.is_some_and(|one| one.interval.is_some());
    !quantity.is_some_and(|one| has_both(one) || is_bounded)
}

/// Like [`gate`], for arms and cases that are not in a report yet.
pub(super) fn answers(
    manifest: &Manifest,
    arms: &[ArmReport],
    cases: &[CaseReport],
    withheld: &[Quantity],
    limits: &[Limit],
) -> Vec<GateAnswer> {
    let Some((base, others)) = arms.split_first() else { return Vec::new() };
    let others: Vec<(usize, &ArmReport)> = others
        .iter()
        .enumerate()
        .filter(|(_, arm)| !arm.control)
        .map(|(place, arm)| (place + 1, arm))
        .collect();
    let alpha = (1.0 - manifest.schedule.confidence) / (limits.len() * others.len()).max(1) as f64;
    let until = manifest.schedule.is_until();
    let is_time = Quantity::Time.is_metric(&manifest.workload.metric);
    let is_fixed_time = runs_for_fixed_time(&manifest.workload, arms);
    let mut answers = Vec::new();
    for limit in limits {
        for (index, arm) in &others {
            let quantity = limit.quantity.map(|quantity| quantity.per_work(&manifest.workload.metric));
            let (found, is_withheld, case) = match quantity {
                Some(None) => (None, false, None),
                Some(Some(quantity)) => {
                    let found = compared(quantity, base, arm, *index, 1.0 - alpha, until);
                    (found, is_withheld_of(withheld, judged_quantity(manifest, quantity)), None)
                }
                None => limit.worst(cases, *index).map_or((None, false, None), |case| {
                    (Some(case.comparison.clone()), case.withheld, Some(&case.name))
                }),
            };
            let is_missing = match quantity {
                Some(quantity) => is_missing(base, arm, quantity, found.as_ref()),
                None => cases.is_empty() || arm.lacks_case,
            };
            let any = |is: fn(&Summary) -> bool| {
                let of_arm = |one: &&ArmReport| {
                    quantity.flatten().and_then(|found| one.summary(found)).is_some_and(is)
                };
                [base, arm].iter().any(of_arm)
            };
            let has_no_ratio = any(|found| !found.has_ratios());
            // With --until, answers are about the mean of the ratios, which every round changes.
            let is_typical = !until && any(is_uneven);
            let verdict = limit.verdict(found.as_ref(), is_withheld);
            let is_lost = quantity == Some(Some(Quantity::Performance)) && arm.lacks_case;
            let is_unlike = is_missing || is_fixed_time && quantity != Some(Some(Quantity::PeakMemory));
            // What is over the limit in the rounds that ended is worse still.
            let is_partial = found.as_ref().is_some_and(|one| one.partial) && verdict != GateVerdict::Over;
            let is_known = !is_lost
                && !is_partial
                && (!is_unlike || holds_of_other_work(verdict, is_fixed_time, quantity.flatten()));
            let verdict = if is_known { verdict } else { GateVerdict::CannotTell };
            let case = case.filter(|_| is_known);
            let (interval, step) =
                found.filter(|_| is_known).map_or((None, None), |one| (one.interval, Some(one.step)));
            let at_least = interval.filter(|found| found.high.is_infinite()).map(|found| found.low);
            let interval = interval.filter(|found| found.high.is_finite());
            let reason = match () {
                () if interval.is_some() || at_least.is_some() || is_withheld => None,
                () if is_lost => Some(NoInterval::LostCase),
                () if is_missing => {
                    Some(quantity.map_or(NoInterval::LostCase, |one| not_measured(base, arm, one)))
                }
                () if is_partial => Some(NoInterval::LostRounds),
                () if has_no_ratio => Some(NoInterval::NoRatio),
                () if !is_known => Some(NoInterval::FixedTime),
                () if step == Some(None) => Some(NoInterval::UnknownStep),
                () => Some(NoInterval::TooFewRounds),
            };
            let name = case.map_or_else(|| arm.name.clone(), |case| format!("{}, {case}", arm.name));
            answers.push(GateAnswer {
                limit: limit.text.clone(),
                quantity: quantity.flatten(),
                arm: *index,
                name,
                interval,
                at_least,
                verdict,
                reason,
                is_withheld,
                is_typical,
                is_beside_metric: quantity == Some(Some(Quantity::Time)) && !is_time,
            });
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use flyball_host::Usage;

    use super::*;
    use crate::{
        analyse,
        run_directory::tests::{boot, manifest, round},
        schedule::Length,
    };

    /// An arm that takes `factor` times as long, with noise of about one percent.
    fn answer(factor: f64, rounds: usize, limit: &str) -> GateVerdict {
        let mut manifest = manifest(&["old", "new"]);
        manifest.boots.push(boot(&[0, 1]));
        let noise = |block: usize, arm: usize| 1.0 + ((block * 7 + arm * 3) % 11) as f64 * 0.002;
        let rounds: Vec<_> = (0..rounds)
            .flat_map(|block| [round(block, 0, noise(block, 0)), round(block, 1, factor * noise(block, 1))])
            .collect();
        let report = analyse(&manifest, &rounds);
        let answers = gate(&manifest, &report, &[limit.parse().expect("a limit")]);
        assert_eq!(answers.len(), 1);
        let is_missing = answers[0].reason == Some(NoInterval::NotMeasured);
        assert_eq!(is_missing, limit.starts_with("memory"), "{}", answers[0]);
        answers[0].verdict
    }

    #[test]
    fn there_are_three_answers() {
        assert_eq!(answer(1.10, 20, "time > +2%"), GateVerdict::Over);
        assert_eq!(answer(1.00, 20, "time > 2%"), GateVerdict::Within);
        assert_eq!(answer(1.02, 20, "time > +2%"), GateVerdict::CannotTell);
        assert_eq!(answer(1.10, 3, "time > +2%"), GateVerdict::CannotTell);
        assert_eq!(answer(0.80, 20, "metric < -5%"), GateVerdict::Over);
        assert_eq!(answer(1.00, 20, "memory > 5%"), GateVerdict::CannotTell);
    }

    #[test]
    fn a_change_is_below_a_limit_from_below() {
        let mut manifest = manifest(&["old", "new"]);
        manifest.boots.push(boot(&[0, 1]));
        let value = |place: usize| 1.0 - (place % 2) as f64 * 0.5 + (place * 7 % 11) as f64 * 0.002;
        let rounds: Vec<_> = (0..40).map(|place| round(place / 2, place % 2, value(place))).collect();
        let report = analyse(&manifest, &rounds);
        let words = gate(&manifest, &report, &["time < -5%".parse().expect("a limit")])[0].to_string();
        assert!(words.starts_with("fail if time < -5%: new: below the limit (-"), "{words}");
    }

    #[test]
    fn with_until_no_answer_is_of_typical_rounds() {
        let mut manifest = manifest(&["old", "new"]);
        manifest.boots.push(boot(&[0, 1]));
        let value = |place: usize| if place == 7 { 9.0 } else { 1.0 + (place * 7 % 11) as f64 * 0.002 };
        let rounds: Vec<_> = (0..40).map(|place| round(place / 2, place % 2, value(place))).collect();
        let limit: Limit = "time > +2%".parse().expect("a limit");
        for (length, is_typical) in [
            (Length::Rounds(20), true),
            (Length::Until { half_width: 0.005, decided: true, least: 6, most: 20 }, false),
        ] {
            manifest.schedule.length = length;
            let report = analyse(&manifest, &rounds);
            assert_eq!(gate(&manifest, &report, std::slice::from_ref(&limit))[0].is_typical, is_typical);
        }
    }

    #[test]
    fn memory_below_that_of_flyball_is_a_bound() {
        let mut manifest = manifest(&["small", "large"]);
        manifest.boots.push(boot(&[0, 1]));
        let mut rounds: Vec<_> = (0..40).map(|place| round(place / 2, place % 2, 1.0)).collect();
        let mut answer = |large: usize, limit: &str| {
            for round in &mut rounds {
                let kib = if round.arm == large { 60_000 + round.block as u64 } else { 17_000 };
                let (known, bound) = if round.arm == large { (Some(kib), None) } else { (None, Some(kib)) };
                round.outcome.usage = Some(Usage { peak_kib: known, ..Usage::default() });
                round.outcome.memory_at_most_kib = bound;
            }
            let report = analyse(&manifest, &rounds);
            let answers = gate(&manifest, &report, &[limit.parse().expect("a limit")]);
            (answers[0].verdict, answers[0].to_string())
        };
        let (over, words) = answer(1, "memory > +10%");
        assert!(over == GateVerdict::Over && words.ends_with("over the limit (+253.0 % or more)"), "{words}");
        assert_eq!(answer(1, "memory > +500%").0, GateVerdict::CannotTell);
        assert_eq!(answer(0, "memory > +10%").0, GateVerdict::Within);
        assert_eq!(answer(0, "memory < -90%").0, GateVerdict::CannotTell);
        let (verdict, words) = answer(2, "memory > +10%");
        assert!(
            verdict == GateVerdict::CannotTell && words.contains("at most flyball's own"),
            "both are small: {words}"
        );
    }

    #[test]
    fn cpu_time_has_a_limit_and_wall_time_is_named_beside_another_metric() {
        let mut manifest = manifest(&["old", "new"]);
        manifest.boots.push(boot(&[0, 1]));
        manifest.workload.metric = Metric::new("CPU time", "s", Better::Lower);
        let round = |place: usize| {
            let mut round = round(place / 2, place % 2, 1.0);
            let half = 0.5 + (place % 2) as f64 * 0.1 + (place * 7 % 11) as f64 * 1e-3;
            let usage = Usage { user_seconds: half, system_seconds: half, ..Usage::default() };
            round.outcome.value = Some(usage.user_seconds + usage.system_seconds);
            round.outcome.usage = Some(usage);
            round
        };
        let report = analyse(&manifest, &(0..40).map(round).collect::<Vec<_>>());
        let limits = ["cpu > +2%", "time > +2%"].map(|limit| limit.parse().expect("a limit"));
        let words = gate(&manifest, &report, &limits).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(words[0].contains("over the limit (+1"), "{words:?}");
        assert!(words[1].contains(" (wall time, not the metric: "), "{words:?}");
    }

    #[test]
    fn limits_compare_the_same_work() {
        let rate = Metric::new("rate", "ops/s", Better::Higher);
        let [time, energy, cpu] = [Quantity::Time, Quantity::Energy, Quantity::CpuTime];
        assert_eq!((time.per_work(&rate), energy.per_work(&rate)), (None, Some(Quantity::WorkEnergy)));
        let suite = Metric::suite("s", Better::Lower);
        assert_eq!((time.per_work(&suite), energy.per_work(&suite)), (None, None));
        assert_eq!((cpu.per_work(&rate), cpu.per_work(&suite)), (None, None));
    }

    #[test]
    fn parts_of_cpu_time_are_withheld_with_it() {
        let withheld = [Quantity::CpuTime];
        let is = |quantity| is_withheld_of(&withheld, quantity);
        assert!(is(Quantity::User) && is(Quantity::System) && is(Quantity::CpuTime) && !is(Quantity::Time));
    }

    #[test]
    fn limits_that_only_a_worse_arm_keeps_are_refused() {
        let time = Metric::new("wall time", "s", Better::Lower);
        let rate = Metric::new("rate", "ops/s", Better::Higher);
        for (metric, limit, right) in [
            (&time, "time < +2%", Some("time > +2%")),
            (&rate, "cpu < 0.5%", Some("cpu > 0.5%")),
            (&time, "case < +5%", Some("case > +5%")),
            (&rate, "metric > -5%", Some("metric < -5%")),
            (&time, "per-watt > -3%", Some("per-watt < -3%")),
            // These would pass any arm that is worse.
            (&time, "time < -2%", Some("time > +2%")),
            (&rate, "metric > +2%", Some("metric < -2%")),
            (&rate, "metric > 2%", Some("metric < -2%")),
            // A required gain.
            (&time, "time > -5%", None),
            (&rate, "metric < +5%", None),
        ] {
            let limit: Limit = limit.parse().expect("a limit");
            let found = limit.check(metric, std::slice::from_ref(&limit));
            let found = found.err().map(|error| error.to_string());
            let asked = right.map(|right| format!("worse, write '{right}'"));
            let is_right = match (&found, &asked) {
                (Some(found), Some(asked)) => found.ends_with(asked.as_str()),
                (found, asked) => found.is_none() && asked.is_none(),
            };
            assert!(is_right, "{limit}: {found:?}");
        }
        let both = ["instructions > +1%", "instructions < -1%"].map(|text| text.parse().expect("a limit"));
        assert!(both.iter().all(|limit: &Limit| limit.check(&time, &both).is_ok()));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "time", "time > 2", "time > x%", "time = 2%", "time > -100%"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
        assert_eq!("colour > 2%".parse::<Limit>(), Err(LimitError::Quantity("colour".to_owned())));
    }
}
