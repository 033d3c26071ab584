//! Conditions of holds: the power supply, the time of the day, a running program.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    time::Duration,
};

use flyball_host::{Host, watch::LocalTime};
use serde::{Deserialize, Serialize};

/// When a hold counts. All parts that are given must be met.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Condition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Window>,
    /// The path of a program of which at least one process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
}

/// What the machine runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    Ac,
    Battery,
}

/// A part of the day, in minutes since midnight; it may go over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    from: u32,
    to: u32,
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
    #[error("conditions on {0} are not supported; there are power, time and program")]
    Unsupported(String),
}

impl Condition {
    /// Adds a part: `power=battery`, `time=22:00-06:00`, `program=/usr/bin/x`.
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), ConditionError> {
        match key {
            "power" => {
                self.power = Some(match value {
                    "ac" => Power::Ac,
                    "battery" => Power::Battery,
                    other => return Err(ConditionError::Power(other.to_owned())),
                });
            }
            "time" => self.time = Some(value.parse()?),
            "program" => {
                let is_whole = value.starts_with('/') && value.len() > 1 && !value.contains(char::is_control);
                if !is_whole {
                    return Err(ConditionError::Program(value.to_owned()));
                }
                self.program = Some(PathBuf::from(value));
            }
            other => return Err(ConditionError::Unsupported(other.to_owned())),
        }
        Ok(())
    }

    pub fn is_met(&self, facts: &Facts) -> bool {
        self.unmet(facts).is_none()
    }

    /// The first part that is not met, in words.
    pub fn unmet(&self, facts: &Facts) -> Option<String> {
        if let Some(power) = self.power.filter(|power| facts.power != Some(*power)) {
            return Some(match facts.power {
                Some(found) => format!("power is {found}, not {power}"),
                None => "the machine has no power supply in /sys/class/power_supply".to_owned(),
            });
        }
        if let Some(time) = self.time.filter(|time| !time.contains(facts.minutes)) {
            return Some(format!("it is not between {time}"));
        }
        let program = self.program.as_ref().filter(|program| !facts.running.contains_key(*program))?;
        Some(format!("{} does not run", program.display()))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = self.power.map(|power| format!("power={power}"));
        let time = self.time.map(|time| format!("time={time}"));
        let program = self.program.as_ref().map(|program| format!("program={}", program.display()));
        let parts: Vec<String> = [power, time, program].into_iter().flatten().collect();
        f.write_str(&parts.join(" "))
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Power::Ac => "ac",
            Power::Battery => "battery",
        })
    }
}

const DAY: u32 = 24 * 60;

impl Window {
    fn contains(self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }

    /// How long until it begins or ends.
    fn next_edge(self, now: LocalTime) -> Duration {
        let until = |minute: u32| (minute + DAY - now.minutes - 1) % DAY + 1;
        let minutes = until(self.from).min(until(self.to));
        Duration::from_secs(u64::from(minutes * 60).saturating_sub(u64::from(now.seconds)))
    }
}

impl std::str::FromStr for Window {
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

/// What conditions are judged by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// `None` for a machine without a power supply that is known.
    pub power: Option<Power>,
    /// Since midnight.
    pub minutes: u32,
    /// The watched programs that run, each with its processes.
    pub running: BTreeMap<PathBuf, BTreeSet<u32>>,
}

impl Facts {
    /// Looks at what `conditions` need, and at nothing else.
    pub fn look<'c>(
        host: &dyn Host,
        now: LocalTime,
        conditions: impl Iterator<Item = &'c Condition> + Clone,
    ) -> Facts {
        let needs_power = conditions.clone().any(|condition| condition.power.is_some());
        let programs: BTreeSet<&PathBuf> =
            conditions.filter_map(|condition| condition.program.as_ref()).collect();
        let mut facts = Facts { power: None, minutes: now.minutes, running: BTreeMap::new() };
        if needs_power {
            facts.power = power(host);
        }
        if !programs.is_empty() {
            for pid in
                host.list("/proc").unwrap_or_default().iter().filter_map(|name| name.parse::<u32>().ok())
            {
                // Kernel threads have no program, and a process may end at any time.
                let Ok(program) = host.link(&format!("/proc/{pid}/exe")) else { continue };
                if let Some(program) = programs.iter().find(|known| known.as_os_str() == program.as_str()) {
                    facts.running.entry((*program).clone()).or_default().insert(pid);
                }
            }
        }
        facts
    }
}

/// When a condition on the time of the day next changes.
pub(crate) fn next_edge<'c>(
    conditions: impl Iterator<Item = &'c Condition>,
    now: LocalTime,
) -> Option<Duration> {
    conditions.filter_map(|condition| condition.time).map(|time| time.next_edge(now)).min()
}

/// What the machine runs on: the mains if one is online, else a battery that is there.
fn power(host: &dyn Host) -> Option<Power> {
    const SUPPLIES: &str = "/sys/class/power_supply";
    let (mut has_mains, mut has_battery) = (false, false);
    for name in host.list(SUPPLIES).ok()? {
        let read = |file: &str| host.read(&format!("{SUPPLIES}/{name}/{file}")).unwrap_or_default();
        // The batteries of mice and keyboards have the scope `Device` (power_supply_sysfs.c).
        if read("scope") == "Device" {
            continue;
        }
        match read("type").as_str() {
            "Mains" | "USB" => {
                has_mains = true;
                if read("online") == "1" {
                    return Some(Power::Ac);
                }
            }
            "Battery" | "UPS" => has_battery = true,
            _ => {}
        }
    }
    (has_mains || has_battery).then_some(Power::Battery)
}

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
    fn the_mains_count_before_a_battery_and_mice_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join("sys/class/power_supply").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        std::fs::create_dir_all(folder.path().join("sys")).unwrap();
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        assert_eq!(power(&host), None);
        put("mouse/type", "Battery\n");
        put("mouse/scope", "Device\n");
        assert_eq!(power(&host), None);
        put("BAT0/type", "Battery\n");
        assert_eq!(power(&host), Some(Power::Battery));
        put("AC/type", "Mains\n");
        put("AC/online", "1\n");
        assert_eq!(power(&host), Some(Power::Ac));
        put("AC/online", "0\n");
        assert_eq!(power(&host), Some(Power::Battery));
    }

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
        assert!(
            matches!(condition.add("unit", "x.service"), Err(ConditionError::Unsupported(key)) if key == "unit")
        );
        assert!(condition.add("program", "gamescope").is_err());
    }
}
