//! Alerts: a quantity, a comparison, how long it must be true, and when the alert ends.
//!
//! An alert ends when the value has been back by [`MARGIN`] of the threshold for as long as the
//! alert's condition had to hold. A value that hovers around the threshold is one alert, not many.

use std::{fmt, str::FromStr, time::Duration};

use flyball_text::span;
use serde::Serialize;

/// Quantity that an alert watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Busy CPUs that heat, power or current keeps below their request.
    Throttled,
    /// Watts of a package.
    Package,
    /// Degrees of a package.
    Temperature,
    /// Busy share of all CPUs.
    Busy,
    /// Frequency of a busy CPU.
    Speed,
    /// Frequency of a busy CPU as a share of its request.
    Got,
}

/// Name, subject, and the subject's units with their factors.
type Row = (&'static str, Subject, &'static [(&'static str, f64)]);

/// A unit is required: 'package > 340' could mean watts or amperes.
const SUBJECTS: &[Row] = &[
    ("throttled", Subject::Throttled, &[("CPUs", 1.0), ("CPU", 1.0)]),
    ("package", Subject::Package, &[("W", 1.0), ("kW", 1000.0), ("mW", 0.001)]),
    ("temperature", Subject::Temperature, &[("C", 1.0), ("°C", 1.0)]),
    ("busy", Subject::Busy, &[("%", 1.0)]),
    ("speed", Subject::Speed, &[("MHz", 1.0), ("GHz", 1000.0), ("kHz", 0.001)]),
    ("got", Subject::Got, &[("%", 1.0)]),
];

impl Subject {
    fn row(self) -> &'static Row {
        SUBJECTS.iter().find(|row| row.1 == self).unwrap_or(&SUBJECTS[0])
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        self.row().2[0].0
    }
}

/// How far a value must be back before an alert ends, as a share of the threshold.
pub const MARGIN: f64 = 0.02;

/// An alert as the user gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// The alert as the user typed it.
    pub text: String,
    pub subject: Subject,
    pub above: bool,
    pub threshold: f64,
    pub hold: Duration,
}

/// Why a text is not an alert.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", &.0)]
pub struct NotAnAlert(String);

/// The syntax of alerts.
pub const FORMS: &str = "throttled [> N CPUs], package > N W, temperature > N C, busy > N %, speed < N GHz, got < N %; \
                         each with 'for TIME' after it";

/// Used if the alert has no `for`.
const HOLD: Duration = Duration::from_secs(2);

impl FromStr for Alert {
    type Err = NotAnAlert;

    fn from_str(text: &str) -> Result<Alert, NotAnAlert> {
        let no = |what: String| NotAnAlert(format!("{what}; alerts are: {FORMS}"));
        let (condition, hold) = match text.split_once(" for ") {
            Some((condition, time)) => {
                (condition, span::parse(time.trim()).map_err(|error| no(error.to_string()))?)
            }
            None => (text, HOLD),
        };
        let condition = condition.trim();
        let name = condition.split(|char: char| char.is_whitespace() || "<>".contains(char)).next();
        let name = name.unwrap_or_default();
        let known = SUBJECTS.iter().find(|row| row.0 == name);
        let Some((_, subject, units)) = known else { return Err(no(format!("'{name}' is not a quantity"))) };
        let rest = condition[name.len()..].trim();
        let alert =
            |above, threshold| Alert { text: text.to_owned(), subject: *subject, above, threshold, hold };
        if rest.is_empty() && *subject == Subject::Throttled {
            return Ok(alert(true, 0.0));
        }
        let above = match rest.get(..1) {
            Some(">") => true,
            Some("<") => false,
            _ => return Err(no(format!("'{text}' has no comparison, > or <"))),
        };
        let value = rest[1..].trim();
        let end = value.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(value.len());
        let number: f64 =
            value[..end].parse().map_err(|_| no(format!("'{value}' is not a number with a unit")))?;
        let unit = value[end..].trim();
        let Some((_, factor)) = units.iter().find(|(known, _)| *known == unit) else {
            let known: Vec<&str> = units.iter().map(|(unit, _)| *unit).collect();
            let given =
                if unit.is_empty() { "has no unit".to_owned() } else { format!("has the unit '{unit}'") };
            return Err(no(format!("'{text}' {given}; give {}", known.join(", "))));
        };
        Ok(alert(above, number * factor))
    }
}

/// The most alarming value of a subject, and where it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    pub value: f64,
    /// `package 0`, `CPUs 3,7`.
    pub place: String,
}

/// The start or end of an alert.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Event {
    pub alert: String,
    pub subject: Subject,
    /// `false`: the alert ends.
    pub begins: bool,
    /// Nanoseconds since 1970.
    pub wall: u64,
    pub value: f64,
    pub unit: &'static str,
    pub place: String,
}

impl fmt::Display for Event {
    /// `alert begins: package > 340 W: 351.2 W, package 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.begins { "begins" } else { "is over" };
        let decimals = usize::from(self.value.fract() != 0.0);
        write!(f, "alert {state}: {}: {:.decimals$} {}", self.alert, self.value, self.unit)?;
        if self.place.is_empty() { Ok(()) } else { write!(f, ", {}", self.place) }
    }
}

/// An alert and its current state.
#[derive(Debug, Clone)]
pub struct Watch {
    pub alert: Alert,
    pub is_on: bool,
    /// Since when the condition for changing the state has been true, on the monotonic clock.
    since: Option<u64>,
}

impl Watch {
    pub fn new(alert: Alert) -> Watch {
        Watch { alert, is_on: false, since: None }
    }

    /// Processes the next sample. An absent reading changes nothing, as it is neither high nor low.
    pub fn look(&mut self, at: u64, wall: u64, reading: Option<&Reading>) -> Option<Event> {
        let reading = reading?;
        let alert = &self.alert;
        let sign = if alert.above { 1.0 } else { -1.0 };
        // Positive if the value is on the alarming side.
        let beyond = (reading.value - alert.threshold) * sign;
        let changes = match self.is_on {
            false => beyond > 0.0,
            // A count of CPUs has no margin: a CPU is either throttled or not.
            true if alert.subject == Subject::Throttled => beyond <= 0.0,
            true => beyond < -MARGIN * alert.threshold,
        };
        if !changes {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(at);
        // Monotonic, because setting the wall clock must not begin or end an alert.
        if at.saturating_sub(since) < alert.hold.as_nanos() as u64 {
            return None;
        }
        self.since = None;
        self.is_on = !self.is_on;
        Some(Event {
            alert: alert.text.clone(),
            subject: alert.subject,
            begins: self.is_on,
            wall,
            value: reading.value,
            unit: alert.subject.unit(),
            place: reading.place.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_read() {
        let read =
            |text: &str| text.parse::<Alert>().map(|a| (a.subject, a.above, a.threshold, a.hold.as_millis()));
        assert_eq!(read("throttled for 2s"), Ok((Subject::Throttled, true, 0.0, 2000)));
        assert_eq!(read("throttled > 3 CPUs"), Ok((Subject::Throttled, true, 3.0, 2000)));
        assert_eq!(read("package > 340 W"), Ok((Subject::Package, true, 340.0, 2000)));
        assert_eq!(read("speed<2.1GHz for 500ms"), Ok((Subject::Speed, false, 2100.0, 500)));
        assert_eq!(read("got < 90 % for 1min"), Ok((Subject::Got, false, 90.0, 60_000)));
        for (text, part) in [
            ("package > 340", "has no unit"),
            ("package > 340 C", "give W"),
            ("packages > 1 W", "'packages' is not a quantity"),
            ("package 340 W", "no comparison"),
            ("package > W", "not a number"),
            ("", "'' is not a quantity"),
            ("busy > 1 % for ever", "'ever' is not a time"),
            ("busy é", "no comparison"),
        ] {
            let error = text.parse::<Alert>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("throttled"), "{text}: {error}");
        }
    }

    #[test]
    fn an_alert_holds_and_is_over_with_hysteresis() {
        let mut watch = Watch::new("package > 100 W for 2s".parse().unwrap());
        let mut look = |second: u64, value: f64| {
            let reading = Reading { value, place: "package 0".into() };
            watch.look(second * 1_000_000_000, 0, Some(&reading)).map(|event| event.begins)
        };
        let values = [90.0, 101.0, 99.0, 101.0, 102.0, 103.0, 99.0, 101.0, 99.0, 97.0, 97.0, 97.0, 99.0];
        let events: Vec<_> = (0..).zip(values).filter_map(|(n, value)| Some((n, look(n, value)?))).collect();
        assert_eq!(events, [(5, true), (11, false)]);
        assert_eq!(watch.look(20_000_000_000, 0, None), None);
    }

    #[test]
    fn an_event_is_a_sentence() {
        let event = Event {
            alert: "package > 340 W".into(),
            subject: Subject::Package,
            begins: true,
            wall: 0,
            value: 351.25,
            unit: "W",
            place: "package 0".into(),
        };
        assert_eq!(event.to_string(), "alert begins: package > 340 W: 351.2 W, package 0");
    }
}
