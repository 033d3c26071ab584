//! One hold.

use std::{fmt, str::FromStr, time::Duration};

use flyball_control::{Intent, Setting};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::Condition;

/// A hold's name: letters, digits and `-_.:@`, so that it is one word in a shell, a log and a
/// unit's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct HoldName(String);

/// The text is not a valid name for a hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a name of a hold; use 1 to 64 letters, digits and -_.:@, the first a letter or digit"
)]
pub struct NameError {
    text: String,
}

impl FromStr for HoldName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<HoldName, NameError> {
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || "-_.:@".contains(character);
        // A leading - would be a command's option, a leading . or @ an odd file or unit.
        let starts = text.starts_with(|first: char| first.is_ascii_alphanumeric());
        if starts && text.len() <= 64 && text.chars().all(is_allowed) {
            Ok(HoldName(text.to_owned()))
        } else {
            Err(NameError { text: text.to_owned() })
        }
    }
}

impl HoldName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns this name with `number` appended. The result must still be a valid name.
    pub(crate) fn numbered(&self, number: u32) -> HoldName {
        HoldName(format!("{}.{number}", self.0))
    }
}

impl fmt::Display for HoldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for HoldName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for HoldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HoldName, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The owner of a hold. Only its owner and root change or release it.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(with = "String", rename = "HoldOwner")]
pub enum Owner {
    /// /etc/flyball/hold.toml.
    Config,
    /// /var/lib/flyball/active.
    Boot,
    /// A user.
    User(u32),
    /// The desktop: the profile that this user chose, or that the service of an earlier boot kept.
    Desktop(Option<u32>),
    /// A program on D-Bus, by the cookie of its hold. Its name is only for display, because the
    /// program chose it.
    Client { cookie: u32, user: u32, name: String },
}

impl Owner {
    /// Returns the owning user, if there is one.
    pub fn user(&self) -> Option<u32> {
        match self {
            Owner::Config | Owner::Boot | Owner::Desktop(None) => None,
            Owner::User(user) | Owner::Desktop(Some(user)) | Owner::Client { user, .. } => Some(*user),
        }
    }

    /// Returns the cookie, if the owner is a program.
    pub fn cookie(&self) -> Option<u32> {
        if let Owner::Client { cookie, .. } = self { Some(*cookie) } else { None }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Config => f.pad("config"),
            Owner::Boot => f.pad("boot"),
            Owner::User(0) => f.pad("root"),
            Owner::User(user) => f.pad(&format!("user {user}")),
            Owner::Desktop(None) => f.pad("desktop"),
            Owner::Desktop(Some(user)) => f.pad(&format!("desktop of user {user}")),
            Owner::Client { cookie, user, name } => f.pad(&format!("client {cookie} of user {user}: {name}")),
        }
    }
}

impl From<&str> for Owner {
    /// Parses the output of [`Owner`]'s `Display`. An earlier flyball wrote arbitrary names: such a
    /// hold belongs to root.
    fn from(text: &str) -> Owner {
        let client = || {
            let (cookie, rest) = text.strip_prefix("client ")?.split_once(" of user ")?;
            let (user, name) = rest.split_once(": ")?;
            Some(Owner::Client {
                cookie: cookie.parse().ok()?,
                user: user.parse().ok()?,
                name: name.to_owned(),
            })
        };
        let user = |prefix| text.strip_prefix(prefix).and_then(|user| user.parse().ok());
        match text {
            "config" => Owner::Config,
            "boot" => Owner::Boot,
            "desktop" => Owner::Desktop(None),
            _ => client()
                .or_else(|| user("desktop of user ").map(|user| Owner::Desktop(Some(user))))
                .unwrap_or_else(|| Owner::User(user("user ").unwrap_or(0))),
        }
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Owner, D::Error> {
        Ok(String::deserialize(deserializer)?.as_str().into())
    }
}

/// The reaction when something else changes a hold's setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDrift {
    /// Set it again, a few times in a minute. After that, leave it with a warning.
    #[default]
    Correct,
    /// Report the change and leave it.
    Report,
    /// Leave the other writer's value, even when the hold is released.
    Yield,
}

/// What happens to a hold when the service stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// Its settings stay: a service that is updated must not change the machine.
    #[default]
    Keep,
    Release,
}

/// A process, identified so that a later one with the same number is not mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// Start time, in ticks since boot.
    pub started: u64,
}

impl ProcessId {
    /// Identifies a running process; `None` if there is none of this number.
    pub fn from_pid(pid: u32) -> Option<ProcessId> {
        Some(ProcessId { pid, started: flyball_process::started_at(pid)? })
    }

    pub fn runs(self) -> bool {
        ProcessId::from_pid(self.pid) == Some(self)
    }
}

/// When a hold ends by itself: when the first of these happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, schemars::JsonSchema, Serialize, Deserialize)]
pub struct End {
    /// At this time since boot, including sleep. Setting the wall clock does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Duration>,
    /// When this process ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
}

impl End {
    pub fn has_come(&self, now: Duration) -> bool {
        self.because(now).is_some()
    }

    /// Returns why the hold has ended; `None` if it has not.
    pub fn because(&self, now: Duration) -> Option<String> {
        if self.at.is_some_and(|at| at <= now) {
            return Some("its time is over".to_owned());
        }
        // Check /proc at each event: only the caller has a pidfd, and commands without a service
        // have none.
        let process = self.process.filter(|process| !process.runs())?;
        Some(format!("process {} has ended", process.pid))
    }
}

/// Bytes of a setting as JSON that count as one value in [`size`].
const BYTES_PER_VALUE: usize = 256;

/// Returns the number of settings and of further values in their lists: the planner checks each on
/// every CPU. A setting with long texts counts by its bytes: in a profile, many settings share one
/// selector's text, but here each has a copy.
pub fn size(settings: &[Setting]) -> usize {
    let bytes = |setting: &Setting| serde_json::to_vec(setting).map_or(0, |bytes| bytes.len());
    let of = |setting: &Setting| (1 + setting.otherwise.len()).max(bytes(setting) / BYTES_PER_VALUE);
    settings.iter().map(of).sum()
}

/// Settings that are kept under a name.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Hold {
    pub name: HoldName,
    pub owner: Owner,
    /// If two holds set the same place, the one with the higher number wins. On a tie, the newer
    /// hold wins.
    pub priority: u32,
    /// The profile of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The settings, as in the state file. `from` is the setting as the user wrote it.
    pub settings: Vec<Setting>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    #[serde(default)]
    pub end: End,
    #[serde(default)]
    pub on_drift: OnDrift,
    #[serde(default)]
    pub on_exit: OnExit,
    /// Start time, in seconds since 1970.
    pub since: u64,
}

impl Hold {
    /// The default priority.
    pub const PRIORITY: u32 = 100;
    /// The highest priority.
    pub const HIGHEST: u32 = 1000;
    /// The priority of a hold for the duration of a command.
    pub const OF_COMMAND: u32 = 200;

    /// Creates a hold of these settings, without a condition or an end.
    pub fn new(name: HoldName, owner: Owner, settings: Vec<Setting>, since: u64) -> Hold {
        Hold {
            name,
            owner,
            priority: Hold::PRIORITY,
            profile: None,
            settings,
            condition: None,
            end: End::default(),
            on_drift: OnDrift::default(),
            on_exit: OnExit::default(),
            since,
        }
    }

    /// Returns the settings, with the hold's name in each `from`.
    pub fn intent(&self) -> Intent {
        // Two holds may contain the same line of one profile. Without the name, a change could not
        // be attributed to its hold.
        let named = |setting: &Setting| Setting {
            from: format!("hold {}: {}", self.name, setting.from),
            ..setting.clone()
        };
        Intent { settings: self.settings.iter().map(named).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_word() {
        for good in ["game", "job-4711", "user@1000.service", "a:b_c.d"] {
            assert_eq!(good.parse::<HoldName>().unwrap().as_str(), good);
        }
        for bad in ["", "-x", "a b", "a/b", "a\nb", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<HoldName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn owners_are_read_as_they_are_written() {
        let client = |name: &str| Owner::Client { cookie: 7, user: 1000, name: name.to_owned() };
        let desktop = [Owner::Desktop(None), Owner::Desktop(Some(0)), Owner::Desktop(Some(1000))];
        let others = [Owner::Config, Owner::Boot, Owner::User(0), Owner::User(1000), client("config")];
        for owner in desktop.into_iter().chain(others) {
            let json = serde_json::to_string(&owner).unwrap();
            assert_eq!(serde_json::from_str::<Owner>(&json).unwrap(), owner, "{json}");
        }
        for name in ["", "root", "config", "boot", "desktop", "user 7", ": ", "client 8 of user 7: x"] {
            assert_eq!(Owner::from(client(name).to_string().as_str()), client(name));
        }
        // An earlier flyball stored a name from sudo, or one that an application chose.
        assert_eq!(Owner::from("alice"), Owner::User(0));
    }

    #[test]
    fn an_end_comes_with_time_or_process() {
        let at = |seconds| End { at: Some(Duration::from_secs(seconds)), process: None };
        assert!(at(5).has_come(Duration::from_secs(5)) && !at(5).has_come(Duration::from_secs(4)));
        assert!(!End::default().has_come(Duration::MAX));
        let own = ProcessId::from_pid(std::process::id()).unwrap();
        assert!(!End { at: None, process: Some(own) }.has_come(Duration::ZERO));
        let other = ProcessId { started: own.started + 1, ..own };
        assert!(End { at: None, process: Some(other) }.has_come(Duration::ZERO));
    }
}
