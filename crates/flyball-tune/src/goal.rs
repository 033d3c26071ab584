//! The goal of a search: a quantity to minimise or maximise, and perhaps a limit on another.

use std::fmt;

use flyball_measure::{Better, Manifest, Metric, Quantity, Round, has_logarithm};
use flyball_search::Bound;

/// The probability at which a search ends.
pub(crate) const CERTAINTY: f64 = 0.99;

/// The goal as given on the command line.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    pub over: Vec<String>,
    pub minimize: Option<String>,
    pub maximize: Option<String>,
    pub subject_to: Option<String>,
}

/// Why a goal cannot be used. Marks below the argument point at the faulty part.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GoalError {
    #[error(
        "'{wanted}' is not a quantity; there are {}, and this workload's {metric}{pointer}",
        NAMES.map(|(name, _)| name).join(", ")
    )]
    Quantity { wanted: String, metric: String, pointer: Pointer },
    #[error(
        "'{text}' limits how much better a setting may be, because {better} {metric} is better; write '{right}'{pointer}"
    )]
    Backwards { text: String, better: &'static str, metric: String, right: String, pointer: Pointer },
    #[error("{fault}; write for example 'time <= +5%' or 'power <= 60'{pointer}")]
    Limit { fault: LimitFault, pointer: Pointer },
    #[error(
        "'{wanted}' does not compare settings here: {metric} is a rate, and a load that runs for a fixed time takes as \
         long at any speed; use {instead}{pointer}"
    )]
    PerTime { wanted: String, metric: String, instead: String, pointer: Pointer },
    #[error("'performance' is {metric} here, where less is better; use {instead}{pointer}")]
    LessIsBetter { metric: String, instead: String, pointer: Pointer },
}

/// The fault in a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitFault {
    #[error("there is no <= or >=")]
    NoSign,
    #[error("the limit is not a number")]
    NotANumber,
    #[error("the change is not between -99 % and +10,000 %")]
    Change,
    #[error("the limit is not above zero")]
    NotPositive,
    #[error("'now' itself would not keep this limit; use --minimize or --maximize for it")]
    BrokenByNow,
}

/// An option's argument with a mark under a part of it, shown on lines of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    option: &'static str,
    argument: String,
    part: String,
}

impl Pointer {
    fn new(option: &'static str, argument: &str, part: &str) -> Pointer {
        Pointer { option, argument: argument.to_owned(), part: part.to_owned() }
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pointer { option, argument, part } = self;
        let before = argument.find(part).map_or(0, |at| argument[..at].chars().count());
        let column = option.chars().count() + 2 + before;
        let marks = "^".repeat(part.chars().count().max(1));
        write!(f, "\n  {option} '{argument}'\n  {}{marks}", " ".repeat(column))
    }
}

/// A quantity and the direction in which it is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[schemars(rename = "SearchAim")]
pub struct Aim {
    pub quantity: Quantity,
    /// Whether a larger value is better.
    pub more: bool,
}

impl Aim {
    /// The logarithm of the quantity in a round, negated if more is better, so that less is better.
    pub fn cost(self, round: &Round, manifest: &Manifest) -> Option<f64> {
        let log = self.quantity.value(round, manifest).filter(|value| has_logarithm(*value))?.ln();
        Some(self.change_of_log(log))
    }

    /// Why a round has no cost: it failed, or its quantity is not above zero. None if it has one.
    pub(crate) fn why_none(self, round: &Round, manifest: &Manifest) -> Option<String> {
        let is_missing = self.cost(round, manifest).is_none();
        let failure = round.outcome.failure.clone();
        failure.or_else(|| is_missing.then(|| "its quantity is not a number above zero".to_owned()))
    }

    /// Converts a change of a cost to one of the quantity's logarithm, and vice versa.
    pub fn change_of_log(self, log: f64) -> f64 {
        if self.more { -log } else { log }
    }
}

/// A limit on a quantity.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[schemars(rename = "SearchLimit")]
pub struct Limit {
    /// The direction that keeps the limit.
    pub aim: Aim,
    /// A change from the base as a fraction (0.05 is 5 % more), or a value in the unit of the
    /// report.
    pub value: f64,
    pub relative: bool,
}

impl Limit {
    /// The limit for a search, on [`Aim::cost`].
    pub fn bound(self) -> Bound {
        let log = if self.relative { (1.0 + self.value).ln() } else { self.value.ln() };
        let cost = if self.aim.more { -log } else { log };
        if self.relative { Bound::OverBase(cost) } else { Bound::Absolute(cost) }
    }
}

/// The goal of a search.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[schemars(rename = "SearchGoal")]
pub struct Goal {
    pub aim: Aim,
    pub limit: Option<Limit>,
    /// Differences up to this fraction do not matter.
    pub within: f64,
    /// The quantity that decides between settings that are equal within that.
    #[serde(default)]
    pub prefer: Option<Aim>,
}

/// The names that quantities have here, besides the workload's own metric.
const NAMES: [(&str, Quantity); 12] = [
    ("time", Quantity::Time),
    ("energy", Quantity::Energy),
    ("energy-per-work", Quantity::WorkEnergy),
    ("power", Quantity::Power),
    ("perf-per-watt", Quantity::PerWatt),
    ("performance", Quantity::Performance),
    ("dram-energy", Quantity::Dram),
    ("platform-energy", Quantity::Platform),
    ("latency", Quantity::Latency),
    ("temperature", Quantity::Temperature),
    ("user-time", Quantity::User),
    ("system-time", Quantity::System),
];

/// The names of quantities, besides the workload's own metric.
pub fn quantities() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

impl Goal {
    /// Reads the options.
    ///
    /// # Errors
    /// Unknown quantities; limits that are not a quantity, `<=` or `>=`, and a number.
    pub fn parse(
        asked: &SearchRequest,
        within: f64,
        prefer: &str,
        metric: &Metric,
    ) -> Result<Goal, GoalError> {
        let name = asked.minimize.as_deref().or(asked.maximize.as_deref()).unwrap_or_default();
        let option = if asked.minimize.is_some() { "--minimize" } else { "--maximize" };
        let aim = aim(option, name, name, asked.minimize.is_none(), metric)?;
        let limit = asked.subject_to.as_deref().map(|text| parse_limit(text, metric)).transpose()?;
        // 'time' is the default. For a rate, time says nothing.
        let prefer = if prefer == "time" && metric.is_rate() { "performance" } else { prefer };
        Ok(Goal { aim, limit, within, prefer: Some(good("--prefer", prefer, prefer, metric)?) })
    }

    /// Whether a setting that takes several times as long is rejected for that alone.
    pub fn is_about_time(&self) -> bool {
        let aims = [Some(self.aim), self.limit.filter(|limit| limit.relative).map(|limit| limit.aim)];
        aims.into_iter().flatten().any(|aim| aim.quantity == Quantity::Time && !aim.more)
    }

    /// The goal for a search, on [`Aim::cost`].
    pub fn for_search(&self) -> flyball_search::Goal {
        flyball_search::Goal {
            within: self.within,
            bound: self.limit.map(Limit::bound),
            certainty: CERTAINTY,
        }
    }

    /// The goal in words: `least energy, time <= +5 %`.
    pub fn title(&self, metric: &Metric) -> String {
        let most = if self.aim.more { "most" } else { "least" };
        let mut text = format!("{most} {}", self.aim.quantity.metric(metric).name);
        if let Some(limit) = &self.limit {
            text += &format!(", {}", LimitText { limit, metric });
        }
        text
    }
}

/// A limit as it is typed.
pub(crate) struct LimitText<'a> {
    pub limit: &'a Limit,
    pub metric: &'a Metric,
}

impl fmt::Display for LimitText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { aim, value, relative } = self.limit;
        let metric = aim.quantity.metric(self.metric);
        let sign = if aim.more { ">=" } else { "<=" };
        if *relative {
            write!(f, "{} {sign} {:+} %", metric.name, round(value * 100.0))
        } else {
            write!(f, "{} {sign} {value} {}", metric.name, metric.unit)
        }
    }
}

/// Rounds off the digits that a binary fraction adds.
fn round(percent: f64) -> f64 {
    (percent * 1e6).round() / 1e6
}

/// A quantity by its name, which is part of the argument of an option.
fn quantity(
    option: &'static str,
    argument: &str,
    name: &str,
    metric: &Metric,
) -> Result<Quantity, GoalError> {
    let wanted = name.trim();
    if wanted == metric.name {
        return Ok(Quantity::Performance);
    }
    let pointer = || Pointer::new(option, argument, wanted);
    let found = NAMES.iter().find(|(name, _)| *name == wanted).map(|(_, quantity)| *quantity);
    match found {
        // A slower setting does less work in the same time, which is no saving.
        Some(Quantity::Energy) if metric.is_rate() => Ok(Quantity::WorkEnergy),
        Some(Quantity::Time) if metric.is_rate() => Err(GoalError::PerTime {
            wanted: wanted.to_owned(),
            metric: metric.name.clone(),
            instead: match option {
                "--subject-to" => "--subject-to 'performance >= -2%'".to_owned(),
                _ => "--maximize performance".to_owned(),
            },
            pointer: pointer(),
        }),
        Some(Quantity::WorkEnergy) if !metric.is_rate() => Ok(Quantity::Energy),
        Some(quantity) => Ok(quantity),
        None => Err(GoalError::Quantity {
            wanted: wanted.to_owned(),
            metric: metric.name.clone(),
            pointer: pointer(),
        }),
    }
}

/// A quantity in the requested direction. If less of a metric is better, more performance does not
/// mean more of it.
fn aim(
    option: &'static str,
    argument: &str,
    name: &str,
    more: bool,
    metric: &Metric,
) -> Result<Aim, GoalError> {
    let quantity = quantity(option, argument, name, metric)?;
    if more && name.trim() == "performance" && metric.better == Better::Lower {
        let instead = match option {
            "--subject-to" => format!("--subject-to '{} <= +2%'", metric.name),
            _ => format!("--minimize '{}'", metric.name),
        };
        let pointer = Pointer::new(option, argument, name.trim());
        return Err(GoalError::LessIsBetter { metric: metric.name.clone(), instead, pointer });
    }
    Ok(Aim { quantity, more })
}

/// A quantity in the direction that is usually good.
fn good(option: &'static str, argument: &str, name: &str, metric: &Metric) -> Result<Aim, GoalError> {
    let quantity = quantity(option, argument, name, metric)?;
    Ok(Aim { quantity, more: quantity.metric(metric).better == Better::Higher })
}

fn parse_limit(text: &str, metric: &Metric) -> Result<Limit, GoalError> {
    let wrong = |part: &str, fault: LimitFault| GoalError::Limit {
        fault,
        pointer: Pointer::new("--subject-to", text, part),
    };
    let (name, value, more) = if let Some((name, value)) = text.split_once("<=") {
        (name, value, false)
    } else if let Some((name, value)) = text.split_once(">=") {
        (name, value, true)
    } else {
        return Err(wrong(text, LimitFault::NoSign));
    };
    let aim = aim("--subject-to", text, name.trim(), more, metric)?;
    let typed = value.trim();
    let percent = typed.strip_suffix('%').map(str::trim_end);
    let number: f64 = percent
        .unwrap_or(typed)
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| wrong(typed, LimitFault::NotANumber))?;
    let relative = percent.is_some();
    let value = if relative { number / 100.0 } else { number };
    if relative && !(-0.99..=100.0).contains(&value) {
        return Err(wrong(typed, LimitFault::Change));
    }
    if !relative && value <= 0.0 {
        return Err(wrong(typed, LimitFault::NotPositive));
    }
    // The base must keep the limit, or there may be nothing to choose.
    if relative && (if more { value > 0.0 } else { value < 0.0 }) {
        return Err(wrong(typed, LimitFault::BrokenByNow));
    }
    let measured = aim.quantity.metric(metric);
    if relative && more != (measured.better == Better::Higher) {
        let (better, sign) = if more { ("less", "<= +") } else { ("more", ">= -") };
        let change = typed.trim_start_matches(['+', '-']);
        return Err(GoalError::Backwards {
            text: text.to_owned(),
            better,
            metric: measured.name.clone(),
            right: format!("{} {sign}{change}", name.trim()),
            pointer: Pointer::new("--subject-to", text, text.trim()),
        });
    }
    Ok(Limit { aim, value, relative })
}

/// A probability for people. No model is completely sure.
pub(crate) fn certainty(probability: f64) -> String {
    if probability > 0.99 { "over 99 %".to_owned() } else { format!("{:.0} %", 100.0 * probability) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(minimize: &str, limit: Option<&str>) -> Result<Goal, GoalError> {
        let metric = Metric::new("score", "points", Better::Lower);
        let asked = SearchRequest {
            minimize: Some(minimize.to_owned()),
            subject_to: limit.map(str::to_owned),
            ..SearchRequest::default()
        };
        Goal::parse(&asked, 0.01, "time", &metric)
    }

    #[test]
    fn goals_are_read() {
        let metric = Metric::new("score", "points", Better::Lower);
        let goal = parse("energy", Some("time <= +5 %")).expect("a goal");
        assert_eq!(goal.title(&metric), "least energy, wall time <= +5 %");
        assert_eq!(goal.limit.map(Limit::bound), Some(Bound::OverBase(1.05_f64.ln())));
        let goal = parse("power", Some("perf-per-watt>=-2%")).expect("a goal");
        assert_eq!(goal.title(&metric), "least power, performance per watt >= -2 %");
        assert_eq!(goal.limit.map(Limit::bound), Some(Bound::OverBase(-(0.98_f64.ln()))));
        let goal = parse("time", Some("power <= 60")).expect("a goal");
        assert_eq!(goal.limit.map(Limit::bound), Some(Bound::Absolute(60.0_f64.ln())));
    }

    #[test]
    fn goals_of_a_rate_are_for_the_same_work() {
        let metric = Metric::new("throughput", "MB/s", Better::Higher);
        let parse = |minimize: &str, limit: Option<&str>| {
            let asked = SearchRequest {
                minimize: Some(minimize.to_owned()),
                subject_to: limit.map(str::to_owned),
                ..SearchRequest::default()
            };
            Goal::parse(&asked, 0.01, "time", &metric)
        };
        let goal = parse("energy", Some("performance >= -2%")).expect("a goal");
        assert_eq!(goal.title(&metric), "least energy per work, throughput >= -2 %");
        for (refused, instead) in [
            (parse("energy", Some("time <= +2%")), "'performance >= -2%'"),
            (parse("time", None), "--maximize performance"),
        ] {
            assert!(refused.expect_err("a rate").to_string().contains(instead), "{instead}");
        }
    }

    #[test]
    fn other_goals_are_refused() {
        for (minimize, limit) in [
            ("watts", None),
            ("energy", Some("time 5%")),
            ("energy", Some("time <= five")),
            ("energy", Some("time <= nan")),
            ("energy", Some("time <= -2%")),
            ("energy", Some("score >= 2%")),
            ("energy", Some("power <= 0")),
        ] {
            assert!(parse(minimize, limit).is_err(), "{minimize} {limit:?}");
        }
    }

    #[test]
    fn limits_on_how_much_better_a_setting_may_be_are_refused() {
        for (limit, right) in [
            ("time >= -5%", "less wall time is better; write 'time <= +5%'"),
            ("perf-per-watt <= 3 %", "write 'perf-per-watt >= -3 %'"),
        ] {
            let refused = parse("energy", Some(limit)).expect_err(limit).to_string();
            assert!(refused.contains(right), "{refused}");
        }
    }

    #[test]
    fn more_performance_is_not_more_of_a_time() {
        let refused = parse("energy", Some("performance >= -2%")).expect_err("less is better").to_string();
        assert!(refused.contains("use --subject-to 'score <= +2%'\n"), "{refused}");
        let metric = Metric::new("score", "points", Better::Lower);
        let most = SearchRequest { maximize: Some("performance".to_owned()), ..SearchRequest::default() };
        let refused = Goal::parse(&most, 0.01, "time", &metric).expect_err("less is better").to_string();
        assert!(refused.contains("use --minimize 'score'\n"), "{refused}");
    }
}
