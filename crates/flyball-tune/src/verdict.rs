//! The result of a search, and its confirmation by fresh rounds.

use std::fmt::Write as _;

use flyball_measure::{
    Comparison, Manifest, Metric, NoInterval, Round, RunDirectory, judge, odd_rounds, render, step,
};
use flyball_text::columns::one_line;

use crate::{
    blocks::Outcome,
    goal::{Aim, Goal, Limit, LimitText, certainty},
    space::Searched,
};

/// Up to this many settings, searches are wrong less often.
const MANY_SETTINGS: usize = 100;

/// The result of `tune`.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub struct Verdict<'a> {
    pub goal: &'a Goal,
    /// The setting to use, by its name: 'now' unless fresh rounds show that the candidate is better
    /// (see [`Confirmed::shows_gain`]).
    pub chosen: String,
    /// The settings of `chosen`; none for 'now'.
    pub settings: Vec<String>,
    /// Whether `chosen` is the machine as it is.
    pub keeps_now: bool,
    /// The setting that the search proposed, by its name.
    pub candidate: String,
    pub search: &'a Outcome,
    /// For each searched knob, the share of the expected differences that it explains alone. Empty
    /// if no gain is shown: these differences may then be noise.
    pub mattered: Vec<(String, f64)>,
    /// The candidate against the machine as it is, in fresh rounds.
    pub confirmed: Option<Confirmed>,
    /// Combinations that were left out.
    pub left_out: usize,
    /// Settings that failed twice, each with its last failure: nothing is known about them.
    pub failed: Vec<(String, String)>,
    /// Whether this is the second choice, because fresh rounds contradicted the first.
    pub second: bool,
    /// The rounding step of the goal's quantity, as a fraction; none if it is not known. The model
    /// does not allow for it.
    pub step: Option<f64>,
    /// If no setting that ran keeps an absolute limit: the nearest one, and the fraction by which
    /// it misses the limit.
    #[serde(skip)]
    pub nearest: Option<(String, f64)>,
    /// A better setting beyond a relative limit: its expected change of the goal, and its measured
    /// change of the limited quantity.
    #[serde(skip)]
    #[schemars(skip)]
    beyond: Option<(String, f64, f64)>,
}

/// The result of the fresh rounds.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub struct Confirmed {
    /// Fresh rounds of the chosen setting.
    pub rounds: usize,
    pub objective: Option<Comparison>,
    pub limit: Option<Comparison>,
    /// Whether the limit is kept; none if it is not decided.
    pub keeps_limit: Option<bool>,
    /// Whether the machine as it is keeps an absolute limit. It always keeps a relative one.
    pub now_keeps_limit: Option<bool>,
    /// Whether no setting keeps an absolute limit by the rounds of the search.
    #[serde(skip)]
    pub none_kept_limit: bool,
    /// Notes on rounds of now or of the chosen setting, in the search or fresh, that lie far from
    /// the others or on two levels: the change is then about typical rounds.
    pub odd_rounds: Vec<String>,
}

impl Confirmed {
    /// Judges the second arm of a comparison, for which the search chose its arm `chosen`.
    pub fn new(directory: &RunDirectory, goal: &Goal, search: &RunDirectory, chosen: usize) -> Confirmed {
        let (manifest, rounds) = (&directory.manifest, &directory.rounds);
        // The gain and the limit hold together.
        let questions = 1 + usize::from(goal.limit.is_some_and(|limit| limit.relative));
        let of =
            |aim: Aim| judge(manifest, rounds, aim.quantity, questions).into_iter().find(|one| one.arm == 1);
        let limit = goal.limit.and_then(|limit| of(limit.aim));
        let keeps_limit = match (goal.limit, &limit) {
            (Some(wanted), Some(found)) if wanted.relative => found.interval.and_then(|interval| {
                let (best, worst) = if wanted.aim.more {
                    (interval.high - wanted.value, interval.low - wanted.value)
                } else {
                    (wanted.value - interval.low, wanted.value - interval.high)
                };
                if worst >= 0.0 {
                    Some(true)
                } else if best < 0.0 {
                    Some(false)
                } else {
                    None
                }
            }),
            (Some(wanted), _) => absolute(directory, 1, wanted.aim, wanted.value),
            (None, _) => None,
        };
        let now_keeps_limit = goal.limit.and_then(|wanted| {
            if wanted.relative { Some(true) } else { absolute(directory, 0, wanted.aim, wanted.value) }
        });
        let quantity = goal.aim.quantity;
        let fresh = [0, 1].map(|arm| odd_rounds(manifest, rounds, arm, quantity));
        let searched = odd_rounds(&search.manifest, &search.rounds, chosen, quantity);
        let odd_rounds = fresh
            .into_iter()
            .flatten()
            .map(|note| format!("Fresh rounds of {note}"))
            .chain(searched.map(|note| format!("Rounds of the search, {note}")))
            .collect();
        let rounds = rounds.iter().filter(|round| round.arm == 1 && !round.warm_up).count();
        Confirmed {
            rounds,
            objective: of(goal.aim),
            limit,
            keeps_limit,
            now_keeps_limit,
            none_kept_limit: goal.limit.and_then(|limit| nearest(search, limit)).is_some(),
            odd_rounds,
        }
    }

    /// Whether fresh rounds show a gain: the setting is better than the machine as it is, or keeps
    /// a limit that the machine as it is breaks. A setting that breaks the limit is no gain.
    pub fn shows_gain(&self, aim: Aim) -> bool {
        let is_needed = self.keeps_limit == Some(true) && self.now_keeps_limit == Some(false);
        self.keeps_limit != Some(false) && (self.is_better(aim) || is_needed)
    }

    /// Whether fresh rounds show that the search was wrong: the setting breaks a limit that it kept
    /// in the search, or the machine as it is is better and keeps the limit.
    pub fn contradicts(&self, aim: Aim) -> bool {
        let is_worse = self
            .objective
            .as_ref()
            .and_then(|found| found.interval)
            .is_some_and(|interval| if aim.more { interval.high < 0.0 } else { interval.low > 0.0 });
        let breaks_limit = self.keeps_limit == Some(false) && !self.none_kept_limit;
        is_worse && self.now_keeps_limit != Some(false) || breaks_limit
    }

    /// Whether fresh rounds do not decide a relative limit, and their estimate breaks it.
    fn is_beyond(&self, limit: Limit) -> bool {
        let change = self.limit.as_ref().map(|found| found.change).filter(|_| self.keeps_limit.is_none());
        change.is_some_and(|change| {
            limit.relative && if limit.aim.more { change < limit.value } else { change > limit.value }
        })
    }

    /// Whether fresh rounds show the chosen setting to be better than the machine as it is.
    pub fn is_better(&self, aim: Aim) -> bool {
        self.objective.as_ref().is_some_and(|found| {
            found
                .interval
                .is_some_and(|interval| if aim.more { interval.low > 0.0 } else { interval.high < 0.0 })
        })
    }
}

/// A gain, a difference of logarithms, in percent.
fn unsigned(gain: f64) -> String {
    format!("{:.1} %", 100.0 * gain.exp_m1())
}

/// Returns the values of a quantity in the rounds of an arm.
fn measured(directory: &RunDirectory, arm: usize, aim: Aim) -> Vec<f64> {
    let rounds = directory.rounds.iter().filter(|round| round.arm == arm && !round.warm_up);
    rounds.filter_map(|round| aim.quantity.value(round, &directory.manifest)).collect()
}

/// Whether all fresh rounds of an arm are on one side of an absolute limit.
fn absolute(directory: &RunDirectory, arm: usize, aim: Aim, value: f64) -> Option<bool> {
    let measured = measured(directory, arm, aim);
    let keeps = |one: &f64| if aim.more { *one >= value } else { *one <= value };
    match measured.iter().filter(|one| keeps(one)).count() {
        _ if measured.is_empty() => None,
        count if count == measured.len() => Some(true),
        0 => Some(false),
        _ => None,
    }
}

/// The setting whose median is nearest to an absolute limit, and the fraction by which it misses
/// the limit; `None` if a setting keeps it. The machine as it is keeps every relative limit.
fn nearest(directory: &RunDirectory, limit: Limit) -> Option<(String, f64)> {
    let Limit { aim, value, relative } = limit;
    let over = |arm: usize| {
        let change = median(directory, aim, arm)? / value - 1.0;
        Some((arm, change, if aim.more { -change } else { change }))
    };
    let arms = &directory.manifest.arms;
    let found = (0..arms.len()).filter_map(over).min_by(|a, b| a.2.total_cmp(&b.2));
    let (arm, change, miss) = found.filter(|_| !relative)?;
    (miss > 0.0).then(|| (arms[arm].name.clone(), change))
}

/// The median of a setting's rounds.
fn median(directory: &RunDirectory, aim: Aim, arm: usize) -> Option<f64> {
    let mut measured = measured(directory, arm, aim);
    measured.sort_by(f64::total_cmp);
    measured.get(measured.len() / 2).copied()
}

/// Among the settings that the model expects to be better than now, and whose rounds break a
/// relative limit, the one nearest to the limit: with the expected change of the goal, and the
/// change of the limited quantity.
fn beyond_limit(directory: &RunDirectory, goal: &Goal, search: &Outcome) -> Option<(String, f64, f64)> {
    let limit = goal.limit.filter(|limit| limit.relative)?;
    let base = median(directory, limit.aim, 0)?;
    let miss = |change: f64| if limit.aim.more { limit.value - change } else { change - limit.value };
    let better = search.expected.iter().enumerate().filter(|(_, (cost, _))| *cost < (-goal.within).ln_1p());
    let measured = better.filter_map(|(arm, (cost, _))| {
        let change = median(directory, limit.aim, arm)? / base - 1.0;
        Some((arm, goal.aim.change_of_log(*cost).exp_m1(), change))
    });
    let over = measured.filter(|(_, _, change)| miss(*change) > 0.0);
    let (arm, gain, change) = over.min_by(|a, b| miss(a.2).total_cmp(&miss(b.2)))?;
    Some((directory.manifest.arms[arm].name.clone(), gain, change))
}

/// The rounding step over all settings that have values.
fn step_of_all(directory: &RunDirectory, aim: Aim) -> Option<f64> {
    let manifest = &directory.manifest;
    let rounds: Vec<&Round> = directory.rounds.iter().collect();
    let has_value = |arm: &usize| {
        let mut own = rounds.iter().filter(|round| round.arm == *arm && !round.warm_up);
        own.any(|round| round.outcome.failure.is_none() && aim.quantity.value(round, manifest).is_some())
    };
    let arms: Vec<usize> = (0..manifest.arms.len()).filter(has_value).collect();
    step(manifest, &rounds, aim.quantity, &arms)
}

/// The settings that failed as often as the search allows, each with its last failure. A round
/// without a number above zero counts as failed, too.
fn failed(directory: &RunDirectory, aim: Aim) -> Vec<(String, String)> {
    let of = |arm: usize| {
        let failures = directory.rounds.iter().filter(|round| round.arm == arm && !round.warm_up);
        let mut failures = failures.filter_map(|round| aim.why_none(round, &directory.manifest));
        let first = failures.next()?;
        // The first failure may be chance, so the search continues with the setting.
        let last = failures.next_back()?;
        Some((directory.manifest.arms[arm].name.clone(), if last.is_empty() { first } else { last }))
    };
    (1..directory.manifest.arms.len()).filter_map(of).collect()
}

impl<'a> Verdict<'a> {
    pub fn new(
        goal: &'a Goal,
        searched: &Searched,
        directory: &RunDirectory,
        search: &'a Outcome,
        confirmed: Option<Confirmed>,
        second: bool,
    ) -> Verdict<'a> {
        let shows_gain = confirmed.as_ref().is_some_and(|fresh| fresh.shows_gain(goal.aim));
        let chosen = &searched.arms[if shows_gain { search.chosen } else { 0 }];
        let shares = searched.factors.iter().map(|row| row.knob.clone()).zip(search.shares.iter().copied());
        let mut mattered: Vec<(String, f64)> = shares.filter(|_| shows_gain).collect();
        mattered.sort_by(|a, b| b.1.total_cmp(&a.1));
        Verdict {
            goal,
            chosen: chosen.name.clone(),
            settings: chosen.settings.iter().map(ToString::to_string).collect(),
            keeps_now: !shows_gain,
            candidate: searched.arms[search.chosen].name.clone(),
            search,
            mattered,
            confirmed,
            left_out: searched.left_out.len(),
            failed: failed(directory, goal.aim),
            second,
            step: step_of_all(directory, goal.aim),
            nearest: goal.limit.and_then(|limit| nearest(directory, limit)),
            beyond: beyond_limit(directory, goal, search),
        }
    }

    /// The sentences to print: the answer first.
    pub fn text(&self, manifest: &Manifest, searched: &Searched) -> String {
        let metric = &manifest.workload.metric;
        let mut out = self.answer(manifest, searched);
        let _ = writeln!(out, "\ngoal       {}", self.goal.title(metric));
        let _ = writeln!(out, "machine    {}", one_line(manifest.machine.summary()));
        let _ = writeln!(
            out,
            "search     {} rounds in {} blocks, {} of {} settings tried",
            self.search.rounds,
            self.search.blocks,
            self.search.tried,
            searched.arms.len()
        );
        let _ = writeln!(out, "chosen     {}{}", self.chosen, self.doubt());
        let mattered: Vec<String> =
            self.mattered.iter().map(|(knob, share)| format!("{knob} {:.0} %", 100.0 * share)).collect();
        if let (true, Some((low, high))) = (mattered.len() > 1, self.search.range()) {
            let change = |cost| render::percent(self.goal.aim.change_of_log(cost).exp_m1());
            let _ = writeln!(
                out,
                "influence  {} of the differences that the model expects, which are {} to {} against now",
                mattered.join(", "),
                change(low).trim_end_matches(" %"),
                change(high)
            );
        }
        out
    }

    /// The findings, in sentences.
    pub fn answer(&self, manifest: &Manifest, searched: &Searched) -> String {
        let metric = &manifest.workload.metric;
        let mut out = String::new();
        match &self.confirmed {
            None if self.failed.len() + 1 == searched.arms.len() => {
                let _ = writeln!(out, "No other setting could be run.");
            }
            None => {
                let (size, end) = match self.search.gain_left {
                    None => (format!("{} %", 100.0 * self.goal.within), "."),
                    Some((size, _)) => (unsigned(size), ", so the search ended early."),
                };
                let _ = writeln!(
                    out,
                    "Keep the machine as it is: no setting is known to be better by more than {size}{end}"
                );
                if let (Some((name, gain, over)), Some(limit)) = (&self.beyond, &self.goal.limit) {
                    let _ = writeln!(
                        out,
                        "By the model, '{name}' changes {} by {} against now, but it breaks the limit: {} {}.",
                        self.goal.aim.quantity.metric(metric).name,
                        render::percent(*gain),
                        limit.aim.quantity.metric(metric).name,
                        render::percent(*over)
                    );
                }
            }
            Some(confirmed) => {
                out += &self.objective(confirmed, metric, manifest.schedule.confidence);
                out += &self.limit(confirmed, metric);
                out.extend(confirmed.odd_rounds.iter().map(|note| format!("{note}\n")));
            }
        }
        if self.second {
            out += "The fresh rounds of a first choice contradicted the search; this is the second.\n";
        }
        if let (Some((name, over)), Some(limit)) = (&self.nearest, &self.goal.limit) {
            let shown = LimitText { limit, metric };
            let _ = writeln!(
                out,
                "No setting keeps the limit {shown}; the nearest is '{name}', {:+.1} %.",
                100.0 * over
            );
        }
        out += &self.certainty(searched);
        out
    }

    /// The first sentence: how good the candidate is.
    fn objective(&self, confirmed: &Confirmed, metric: &Metric, confidence: f64) -> String {
        let name = self.goal.aim.quantity.metric(metric).name;
        let Some(found) = &confirmed.objective else {
            return format!("The fresh rounds have no {name}.\n");
        };
        let Some(interval) = found.interval else {
            return match found.step {
                Some(_) => format!("The fresh rounds were too few for {name}.\n"),
                None => format!("The fresh rounds do not compare {name}: {}.\n", NoInterval::UnknownStep),
            };
        };
        let range = format!(
            "{}({} to {} at {} %{}, {} fresh pairs)",
            if confirmed.odd_rounds.is_empty() { "" } else { "in typical rounds " },
            render::percent(interval.low),
            render::percent(interval.high),
            render::level(confidence),
            if self.goal.limit.is_some_and(|limit| limit.relative) { " together with the limit" } else { "" },
            found.pairs
        );
        if confirmed.is_better(self.goal.aim) && !confirmed.shows_gain(self.goal.aim) {
            format!(
                "Keep the machine as it is: '{}' changes {name} by {} against now {range}, but breaks the limit.\n",
                self.candidate,
                render::percent(found.change)
            )
        } else if confirmed.is_better(self.goal.aim) {
            format!(
                "'{}' changes {name} by {} against now {range}.\n",
                self.candidate,
                render::percent(found.change)
            )
        } else if confirmed.shows_gain(self.goal.aim) {
            format!(
                "'{}' keeps the limit in each fresh round, and the machine as it is breaks it in each: {name} {} {range}.\n",
                self.candidate,
                render::percent(found.change)
            )
        } else {
            format!(
                "Keep the machine as it is: the fresh rounds do not show that '{}' is better, {name} {} {range}.\n",
                self.candidate,
                render::percent(found.change)
            )
        }
    }

    /// Words next to a choice that is beyond the limit by fresh rounds which do not decide it.
    fn doubt(&self) -> &'static str {
        let limit = self.goal.limit.filter(|_| !self.keeps_now);
        match self.confirmed.as_ref().zip(limit) {
            Some((fresh, limit)) if fresh.is_beyond(limit) => {
                " (beyond the limit by the fresh rounds, which do not decide it)"
            }
            _ => "",
        }
    }

    /// The second sentence: whether the limit holds.
    fn limit(&self, confirmed: &Confirmed, metric: &Metric) -> String {
        let Some(limit) = &self.goal.limit else { return String::new() };
        let shown = LimitText { limit, metric };
        let found = match &confirmed.limit {
            Some(found) => match found.interval {
                Some(interval) => format!(
                    ": {} ({} to {})",
                    render::percent(found.change),
                    render::percent(interval.low),
                    render::percent(interval.high)
                ),
                None => String::new(),
            },
            None => String::new(),
        };
        // An absolute limit is compared with each round.
        let each = if limit.relative { "" } else { " in each fresh round" };
        match confirmed.keeps_limit {
            Some(true) => format!("It keeps the limit {shown}{each}{found}.\n"),
            Some(false) if confirmed.now_keeps_limit == Some(true) => {
                format!("It breaks the limit {shown}{each}{found}.\n")
            }
            // The search looked for a setting that keeps the limit, and otherwise chose the
            // nearest.
            Some(false) => format!(
                "No setting is known to keep the limit {shown}; this one, the nearest, breaks it{each}{found}.\n"
            ),
            None => format!("Whether it keeps the limit {shown} is not decided{found}.\n"),
        }
    }

    /// The third sentence: how sure the search is that there is nothing better.
    fn certainty(&self, searched: &Searched) -> String {
        let within = 100.0 * self.goal.within;
        let failed: String = self
            .failed
            .iter()
            .map(|(name, why)| format!("'{name}' failed twice and is left out: {why}.\n"))
            .collect();
        let ran = searched.arms.len() - self.failed.len();
        if ran == 1 {
            return failed;
        }
        let chosen = if self.search.chosen == 0 { "now".to_owned() } else { format!("'{}'", self.candidate) };
        let best = format!("within {within} % of the best of {ran} settings");
        if self.step.is_none_or(|step| step > self.goal.within) && self.nearest.is_none() {
            let why = self.step.map_or(NoInterval::UnknownStep.to_string(), |step| {
                format!("values come in steps of at most {}", render::unsigned(step))
            });
            return format!("{failed}Whether {chosen} is {best} is not known: {why}.\n");
        }
        if let Some((size, chance)) = self.search.gain_left {
            return format!(
                "{failed}By the model, one of the {} other settings is better than now by more than {} with a probability of \
                 at most {:.0} %.\n",
                ran - 1,
                unsigned(size),
                (100.0 * chance).ceil().max(1.0)
            );
        }
        let what =
            self.nearest.as_ref().map_or(best, |_| format!("the nearest to the limit of {ran} settings"));
        let mut out = format!(
            "{failed}By the model, {chosen} is {what} with {} certainty",
            certainty(self.search.certainty)
        );
        if !self.search.settled {
            out += "; the rounds were used up before it was certain (--max-runs, --max-time)";
        } else if self.nearest.is_none() {
            // docs/dev/tune.md has the rates.
            let wrong = if ran > MANY_SETTINGS { 10 } else { 8 };
            out += &format!("; up to {wrong} % of simulated searches that ended so were wrong");
        }
        out += ".\n";
        let undecided: Vec<String> = self
            .search
            .undecided
            .iter()
            .take(3)
            .map(|(arm, chance)| format!("'{}' ({:.0} %)", searched.arms[*arm].name, 100.0 * chance))
            .collect();
        if !undecided.is_empty() {
            out += &format!("Perhaps better by more than that: {}.\n", undecided.join(", "));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use flyball_measure::Quantity;

    use super::*;

    #[test]
    fn an_estimate_beyond_an_open_limit_is_told() {
        let aim = Aim { quantity: Quantity::Performance, more: true };
        let limit = Limit { aim, value: -0.02, relative: true };
        for (change, keeps_limit, is_beyond) in
            [(-0.115, None, true), (-0.01, None, false), (-0.115, Some(true), false)]
        {
            let found = serde_json::json!({
                "quantity": "performance", "base": 0, "arm": 1, "paired": true, "pairs": 9, "change": change,
                "interval": null, "p": 1.0, "p_corrected": 1.0, "delta": 0.0, "verdict": "no-difference-shown",
                "shows": null, "rounds_for_one_percent": null,
            });
            let confirmed = Confirmed {
                rounds: 9,
                objective: None,
                limit: serde_json::from_value(found).expect("a comparison"),
                keeps_limit,
                now_keeps_limit: Some(true),
                none_kept_limit: false,
                odd_rounds: Vec::new(),
            };
            assert_eq!(confirmed.is_beyond(limit), is_beyond, "{change}");
        }
    }
}
