//! Conditions of holds: the power supply, the time of day, running programs, pressure, heat and
//! limits.

mod facts;
mod lasting;
mod parts;

use std::{fmt, path::PathBuf, time::Duration};

use flyball_host::watch::LocalTime;
use flyball_text::span::Compact;
use serde::{Deserialize, Serialize};

pub use self::{
    facts::Facts,
    parts::{Heat, Limit, Power, Pressure, Window},
};
pub(crate) use self::{facts::groups, lasting::Lasting};

/// When a hold is active: only while all of the given parts are met.
#[derive(Debug, Clone, PartialEq, Eq, Default, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Window>,
    /// The path of a program that must have a running process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// A systemd unit that must have processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// A control group that must have processes, relative to the hierarchy's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// A user, by name or number, who must have a session or a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Heat>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// How long all parts must be met before the hold becomes active, and unmet before it becomes
    /// inactive.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub time_span: Option<Duration>,
}

/// Why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("'{0}' is not a power supply; it is ac or battery")]
    Power(String),
    #[error("'{0}' is not a part of the day; write 22:00-06:00")]
    Window(String),
    #[error("'{0}' is not the path of a program; write it in full, as /usr/bin/gamescope")]
    Program(String),
    #[error(
        "'{0}' is not a systemd unit with processes; write the full name of a service, scope or slice, as postgresql.service"
    )]
    Unit(String),
    #[error(
        "'{0}' is not a control group; write its path below /sys/fs/cgroup, as system.slice/postgresql.service"
    )]
    Group(String),
    #[error("'{0}' is not a user; write a name or a number")]
    User(String),
    #[error(
        "'{0}' is not a pressure; write 'cpu some 15% over 10s' (cpu, memory or io; some or full; over 2s, 4s, 6s, 8s or 10s)"
    )]
    Pressure(String),
    #[error("'{0}' is not a temperature; write 90C")]
    Temperature(String),
    #[error("'{0}' is not a limit; it is thermal or power")]
    Limit(String),
    #[error("'{0}' is not a time; write 30s, 5min or 2h")]
    Time(String),
    #[error(
        "'{0}' is not a condition; there are power, time, program, unit, cgroup, user, pressure, temperature, limit and for"
    )]
    Unknown(String),
}

/// The default time that heat and limits must last: a single reading of a sensor means little.
const SAMPLED_SPAN: Duration = Duration::from_secs(30);

impl Condition {
    /// Adds a part: `power=battery`, `time=22:00-06:00`, `unit=x.service`.
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), ConditionError> {
        match key {
            "power" => self.power = Some(value.parse()?),
            "time" => self.time = Some(value.parse()?),
            "program" => {
                let is_whole = value.starts_with('/') && value.len() > 1 && !value.contains(char::is_control);
                let program = is_whole.then(|| PathBuf::from(value));
                self.program = Some(program.ok_or_else(|| ConditionError::Program(value.to_owned()))?);
            }
            "unit" => {
                let is_unit = paths_of_unit(value).is_some();
                self.unit = Some(
                    is_unit
                        .then(|| value.to_owned())
                        .ok_or_else(|| ConditionError::Unit(value.to_owned()))?,
                );
            }
            "cgroup" => {
                let path = value.trim_start_matches("/sys/fs/cgroup").trim_matches('/');
                let is_inside = !path.is_empty()
                    && path.len() < 4096
                    && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
                    && !path.contains(char::is_control);
                self.cgroup = Some(
                    is_inside
                        .then(|| path.to_owned())
                        .ok_or_else(|| ConditionError::Group(value.to_owned()))?,
                );
            }
            "user" => {
                let is_name = !value.is_empty()
                    && value.len() <= 256
                    && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@$".contains(c));
                self.user = Some(
                    is_name
                        .then(|| value.to_owned())
                        .ok_or_else(|| ConditionError::User(value.to_owned()))?,
                );
            }
            "pressure" => self.pressure = Some(value.parse()?),
            "temperature" => self.temperature = Some(value.parse()?),
            "limit" => self.limit = Some(value.parse()?),
            "for" => {
                self.time_span =
                    Some(parts::time(value).ok_or_else(|| ConditionError::Time(value.to_owned()))?);
            }
            other => return Err(ConditionError::Unknown(other.to_owned())),
        }
        Ok(())
    }

    pub fn is_met(&self, facts: &Facts) -> bool {
        self.unmet(facts).is_none()
    }

    /// Returns the first part that is not met, in words.
    pub fn unmet(&self, facts: &Facts) -> Option<String> {
        if !self.lasts() {
            return self.unmet_now(facts);
        }
        if facts.lasting.contains(&self.to_string()) {
            return None;
        }
        // A part that is visibly unmet is the best reason. Otherwise it depends on time, or on a
        // report from the kernel.
        Some(self.unmet_now(facts).unwrap_or_else(|| match (&self.pressure, self.limit) {
            (Some(pressure), _) => format!("the pressure {pressure} is not reported"),
            (_, Some(limit)) => format!("the {limit} limit is not reached all the time"),
            _ => format!("not yet for {}", Compact(self.time_to_last())),
        }))
    }

    /// Returns the first part that is not met now, among those that can be read from the machine.
    pub(crate) fn unmet_now(&self, facts: &Facts) -> Option<String> {
        if let Some(power) = self.power.filter(|power| facts.power != Some(*power)) {
            return Some(match facts.power {
                Some(found) => format!("power is {found}, not {power}"),
                None => "the machine has no power supply in /sys/class/power_supply".to_owned(),
            });
        }
        if let Some(time) = self.time.filter(|time| !time.contains(facts.minutes)) {
            return Some(format!("it is not between {time}"));
        }
        if let Some(program) = self.program.as_ref().filter(|program| !facts.running.contains_key(*program)) {
            return Some(format!("{} does not run", program.display()));
        }
        if let Some((called, _)) =
            self.groups().into_iter().find(|(called, _)| !facts.populated.contains(called))
        {
            return Some(match called.split_once('=') {
                Some(("unit", unit)) => format!("{unit} has no processes"),
                Some(("user", user)) => format!("the user {user} has no session"),
                _ => format!("{called} has no processes"),
            });
        }
        match (self.temperature, facts.temperature) {
            (Some(Heat(least)), Some(now)) if now < least * 1000 => {
                Some(format!("the processor has {} °C, below {least} °C", now / 1000))
            }
            (Some(_), None) => Some("the processor has no temperature sensor in /sys/class/hwmon".to_owned()),
            _ => None,
        }
    }

    /// Returns whether only time can show if it is met, so that the service must judge it.
    pub(crate) fn lasts(&self) -> bool {
        self.time_span.is_some()
            || self.pressure.is_some()
            || self.temperature.is_some()
            || self.limit.is_some()
    }

    pub(crate) fn time_to_last(&self) -> Duration {
        let is_sampled = self.temperature.is_some() || self.limit.is_some();
        self.time_span.unwrap_or(if is_sampled { SAMPLED_SPAN } else { Duration::ZERO })
    }

    /// Returns how often it must be checked because the kernel reports nothing: twice within the
    /// time that it has to last.
    pub fn sampled(&self) -> Option<Duration> {
        let is_sampled = self.temperature.is_some() || self.limit.is_some();
        // Check twice, so that a single peak between two readings does not count as lasting.
        // Sensors update about once a second.
        let pause = (self.time_to_last() / 2).clamp(Duration::from_secs(2), Duration::from_secs(30));
        is_sampled.then_some(pause)
    }

    /// Describes the part that is checked periodically because the kernel does not report it.
    pub fn not_reported(&self) -> Option<String> {
        let pause = Compact(self.sampled()?);
        let what = match (self.temperature, self.limit) {
            (Some(_), Some(_)) => "temperature and limits are",
            (Some(_), None) => "the temperature is",
            _ => "the count of reached limits is",
        };
        Some(format!("{what} read every {pause}, because the kernel does not report it"))
    }

    /// Returns the groups that must have processes: each as the condition spells it, with its
    /// possible paths.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let unit = self.unit.as_ref().map(|unit| (format!("unit={unit}"), paths_of_unit(unit)));
        let group = self.cgroup.as_ref().map(|path| (format!("cgroup={path}"), Some(vec![path.clone()])));
        // A user that does not exist has no path, so the condition is not met. hold.toml may be
        // older than the user.
        let user = self.user.as_ref().map(|user| {
            let slice = |number| vec![format!("user.slice/user-{number}.slice")];
            (format!("user={user}"), facts::number_of_user(user).map(slice))
        });
        let all = [unit, group, user].into_iter().flatten();
        all.map(|(called, paths)| (called, paths.unwrap_or_default())).collect()
    }
}

/// Returns the possible paths of a unit's control group, as systemd creates it (systemd.slice(5),
/// systemd.resource-control(5)); `None` if the text is not a unit's name. Does not find a unit with
/// its own Slice=.
fn paths_of_unit(unit: &str) -> Option<Vec<String>> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let (name, kind) = unit.rsplit_once('.')?;
    if name.is_empty() || name.starts_with('.') || unit.len() > 255 || !unit.chars().all(is_allowed) {
        return None;
    }
    match kind {
        // a-b.slice is inside a.slice.
        "slice" => {
            let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
            let parts: Vec<String> = ends.map(|end| format!("{}.slice", &name[..end])).collect();
            Some(vec![parts.join("/")])
        }
        "service" | "scope" | "socket" | "mount" | "swap" => {
            // Services start in system.slice, virtual machines and containers in machine.slice.
            // Process 1 is in init.scope.
            let plain = ["system.slice", "machine.slice", "init.scope"]
                .map(|slice| if slice == unit { unit.to_owned() } else { format!("{slice}/{unit}") });
            let mut paths = plain.to_vec();
            // user@1000.service is an exception: its slice is the user's.
            if let Some((prefix, instance)) = name.split_once('@') {
                let escaped = prefix.replace('-', "\\x2d");
                paths.push(format!("system.slice/system-{escaped}.slice/{unit}"));
                paths.push(format!("user.slice/user-{instance}.slice/{unit}"));
            }
            Some(paths)
        }
        _ => None,
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn part(key: &str, value: Option<impl fmt::Display>) -> Option<String> {
            value.map(|value| format!("{key}={value}"))
        }
        // Keep this order: the text is also the key under which the service stores lasting
        // conditions, and commands look it up.
        let parts = [
            part("power", self.power),
            part("time", self.time),
            part("program", self.program.as_ref().map(|program| program.display())),
            part("unit", self.unit.as_ref()),
            part("cgroup", self.cgroup.as_ref()),
            part("user", self.user.as_ref()),
            part("pressure", self.pressure.as_ref()),
            part("temperature", self.temperature),
            part("limit", self.limit),
            part("for", self.time_span.map(Compact)),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<String>>().join(" "))
    }
}

/// Returns the time until a condition on the time of day next changes.
pub(crate) fn next_edge<'c>(
    conditions: impl Iterator<Item = &'c Condition>,
    now: LocalTime,
) -> Option<Duration> {
    conditions.filter_map(|condition| condition.time).map(|time| time.next_edge(now)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_must_be_met_and_others_are_refused() {
        let mut condition = Condition::default();
        condition.add("power", "battery").unwrap();
        condition.add("time", "22:00-06:00").unwrap();
        let facts = |power, minutes| Facts { power, minutes, ..Facts::default() };
        assert!(condition.is_met(&facts(Some(Power::Battery), 0)));
        assert!(!condition.is_met(&facts(Some(Power::Ac), 0)));
        assert!(condition.unmet(&facts(None, 0)).unwrap().contains("no power supply"));
        assert!(!condition.is_met(&facts(Some(Power::Battery), 720)));
        assert_eq!(condition.to_string(), "power=battery time=22:00-06:00");
        assert!(matches!(condition.add("wind", "x"), Err(ConditionError::Unknown(key)) if key == "wind"));
        for (key, bad) in [
            ("program", "gamescope"),
            ("unit", "postgresql"),
            ("unit", "../x.service"),
            ("unit", ".service"),
            ("unit", "a.target"),
            ("cgroup", "../x"),
            ("cgroup", "/"),
            ("user", "a b"),
            ("limit", "speed"),
            ("for", "soon"),
        ] {
            assert!(condition.add(key, bad).is_err(), "{key}={bad}");
        }
    }

    #[test]
    fn a_unit_is_where_systemd_puts_it() {
        let paths = |unit: &str| paths_of_unit(unit).unwrap();
        assert_eq!(paths("a-b.slice"), ["a.slice/a-b.slice"]);
        assert!(paths("ssh.service").contains(&"system.slice/ssh.service".to_owned()));
        let getty = "system.slice/system-getty.slice/getty@tty1.service".to_owned();
        assert!(paths("getty@tty1.service").contains(&getty));
        let user = "user.slice/user-1000.slice/user@1000.service".to_owned();
        assert!(paths("user@1000.service").contains(&user));
    }

    #[test]
    fn a_condition_comes_back_from_the_store() {
        let mut condition = Condition::default();
        for (key, value) in [
            ("pressure", "io full 5% over 4s"),
            ("temperature", "95C"),
            ("limit", "power"),
            ("user", "0"),
            ("for", "5min"),
        ] {
            condition.add(key, value).unwrap();
        }
        let text = serde_json::to_string(&condition).unwrap();
        assert_eq!(serde_json::from_str::<Condition>(&text).unwrap(), condition);
        assert_eq!(
            condition.to_string(),
            "user=0 pressure=io full 5% over 4s temperature=95C limit=power for=5min"
        );
        assert!(condition.unmet(&Facts::default()).is_some());
        let lasting = [condition.to_string()].into();
        assert!(condition.is_met(&Facts { lasting, ..Facts::default() }));
    }
}
