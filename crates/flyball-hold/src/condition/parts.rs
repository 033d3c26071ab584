//! The parts of a condition: their spelling, and what they compare.

use std::{fmt, str::FromStr, time::Duration};

use derive_more::Display;
use flyball_host::watch::LocalTime;
use flyball_text::span::{self, Compact};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::ConditionError;

/// The machine's present power source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    #[display("ac")]
    Ac,
    #[display("battery")]
    Battery,
}

/// A part of the day, in minutes since midnight. It may span midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Window {
    from: u32,
    to: u32,
}

/// A share of time in which tasks wait for a resource (Documentation/accounting/psi.rst).
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Pressure {
    resource: &'static str,
    /// `some` or `full`.
    who: &'static str,
    percent: u32,
    window: Duration,
}

/// A minimum temperature of the processor, in degrees Celsius.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Display)]
#[schemars(with = "String")]
#[display("{}C", _0)]
pub struct Heat(pub i32);

/// A limit that the processor runs into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    #[display("thermal")]
    Thermal,
    #[display("power")]
    Power,
}

impl FromStr for Power {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Power, ConditionError> {
        match text {
            "ac" => Ok(Power::Ac),
            "battery" => Ok(Power::Battery),
            other => Err(ConditionError::Power(other.to_owned())),
        }
    }
}

const DAY: u32 = 24 * 60;

impl Window {
    pub(super) fn contains(self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }

    /// Returns the time until it begins or ends.
    pub(super) fn next_edge(self, now: LocalTime) -> Duration {
        // Between 1 minute and a day: at an edge this means the next one, since a wait of 0 would
        // be repeated for a minute.
        let until = |minute: u32| (minute + DAY - now.minutes - 1) % DAY + 1;
        let minutes = until(self.from).min(until(self.to));
        Duration::from_secs(u64::from(minutes * 60).saturating_sub(u64::from(now.seconds)))
    }
}

impl FromStr for Window {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Window, ConditionError> {
        let minutes = |text: &str| {
            let (hours, minutes) = text.split_once(':')?;
            let number = |digits: &str, below: u32| {
                let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
                digits.parse::<u32>().ok().filter(|number| is_plain && *number < below)
            };
            Some(number(hours, 24)? * 60 + number(minutes, 60)?)
        };
        let window = text.split_once('-').and_then(|(from, to)| {
            let (from, to) = (minutes(from.trim())?, minutes(to.trim())?);
            // The same time twice could mean always or never.
            (from != to).then_some(Window { from, to })
        });
        window.ok_or_else(|| ConditionError::Window(text.to_owned()))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        write!(f, "{}-{}", clock(self.from), clock(self.to))
    }
}

impl Pressure {
    /// Returns the file, below /proc/pressure.
    pub fn file(&self) -> &'static str {
        self.resource
    }

    /// Returns the text to write to the file: the stall time and the window, in microseconds.
    pub fn trigger(&self) -> String {
        let window = self.window.as_micros() as u64;
        format!("{} {} {window}", self.who, window * u64::from(self.percent) / 100)
    }

    /// Returns how long the pressure counts as present after a report. The kernel reports once per
    /// window (update_triggers in kernel/sched/psi.c), and checks every 2 s for a program without
    /// CAP_SYS_RESOURCE (PSI_FREQ).
    pub(super) fn lasts(&self) -> Duration {
        self.window + Duration::from_secs(3)
    }
}

impl FromStr for Pressure {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Pressure, ConditionError> {
        let one_of = |word: &str, known: &[&'static str]| known.iter().copied().find(|known| *known == word);
        let parse = || {
            let words: Vec<&str> = text.split_whitespace().collect();
            let [resource, who, percent, "over", window] = words[..] else { return None };
            let resource = one_of(resource, &["cpu", "memory", "io"])?;
            let who = one_of(who, &["some", "full"])?;
            let percent = percent.strip_suffix('%')?.parse::<u32>().ok().filter(|n| (1..=100).contains(n))?;
            let window = time(window)?;
            // psi_trigger_create: the maximum is WINDOW_MAX_US, and without CAP_SYS_RESOURCE only
            // multiples of 2 s are accepted.
            let is_taken = window.as_millis() % 2000 == 0 && (2..=10).contains(&window.as_secs());
            is_taken.then_some(Pressure { resource, who, percent, window })
        };
        parse().ok_or_else(|| ConditionError::Pressure(text.to_owned()))
    }
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pressure { resource, who, percent, window } = self;
        write!(f, "{resource} {who} {percent}% over {}", Compact(*window))
    }
}

impl FromStr for Heat {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Heat, ConditionError> {
        let degrees = text.trim_end_matches("°C").trim_end_matches('C').trim();
        let degrees = degrees.parse::<i32>().ok().filter(|degrees| (1..=150).contains(degrees));
        // Without a unit, a number could be Fahrenheit.
        degrees
            .filter(|_| text.ends_with('C'))
            .map(Heat)
            .ok_or_else(|| ConditionError::Temperature(text.to_owned()))
    }
}

impl FromStr for Limit {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Limit, ConditionError> {
        match text {
            "thermal" => Ok(Limit::Thermal),
            "power" => Ok(Limit::Power),
            other => Err(ConditionError::Limit(other.to_owned())),
        }
    }
}

/// Parses a time of whole seconds, above zero and at most a day. For longer waits there is the time
/// of day.
pub(super) fn time(text: &str) -> Option<Duration> {
    let time = span::parse(text).ok()?;
    (time.subsec_nanos() == 0 && (1..=86_400).contains(&time.as_secs())).then_some(time)
}

macro_rules! as_text {
    ($($part:ty),*) => {$(
        impl Serialize for $part {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $part {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$part, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_text!(Pressure, Heat);

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> Window {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_may_go_over_midnight() {
        let night = window("22:00-06:00");
        let inside: Vec<u32> = [0, 5 * 60 + 59, 6 * 60, 12 * 60, 22 * 60 - 1, 22 * 60]
            .map(|m| u32::from(night.contains(m)))
            .to_vec();
        assert_eq!(inside, [1, 1, 0, 0, 0, 1]);
        assert!(window("08:00-17:30").contains(17 * 60 + 29));
        for bad in ["", "8:00-9:00", "08:00", "24:00-01:00", "08:60-09:00", "08:00-08:00", "+8:00-09:00"] {
            assert!(bad.parse::<Window>().is_err(), "{bad}");
        }
        assert_eq!(night.to_string(), "22:00-06:00");
    }

    #[test]
    fn the_next_edge_is_never_now() {
        let at = |minutes, seconds| LocalTime { minutes, seconds };
        let night = window("22:00-06:00");
        assert_eq!(night.next_edge(at(21 * 60 + 59, 30)), Duration::from_secs(30));
        assert_eq!(night.next_edge(at(22 * 60, 0)), Duration::from_secs(8 * 3600));
        assert_eq!(night.next_edge(at(6 * 60, 1)), Duration::from_secs(16 * 3600 - 1));
    }

    #[test]
    fn pressure_is_what_the_kernel_takes() {
        let pressure: Pressure = "cpu some 15% over 10s".parse().unwrap();
        assert_eq!((pressure.file(), pressure.trigger().as_str()), ("cpu", "some 1500000 10000000"));
        assert_eq!(pressure.to_string(), "cpu some 15% over 10s");
        for bad in [
            "",
            "cpu 15%",
            "cpu some 15 over 10s",
            "gpu some 15% over 10s",
            "cpu some 15% over 3s",
            "io full 0% over 2s",
        ] {
            assert!(bad.parse::<Pressure>().is_err(), "{bad}");
        }
    }

    #[test]
    fn temperatures_and_times_have_units() {
        assert_eq!("90C".parse::<Heat>().unwrap(), Heat(90));
        assert_eq!("90 °C".parse::<Heat>().unwrap(), Heat(90));
        for bad in ["90", "C", "900C", "-1C", "90F"] {
            assert!(bad.parse::<Heat>().is_err(), "{bad}");
        }
        assert_eq!(time("5min").map(|time| Compact(time).to_string()).as_deref(), Some("5min"));
        assert_eq!([time("0s"), time("0.5s"), time("s"), time("25h"), time("-5s")], [None; 5]);
    }
}
