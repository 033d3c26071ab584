//! /etc/flyball/hold.toml: which profile is held under which condition.
//!
//! ```toml
//! [[when]]                      # all that match count; later ones win
//! profile = "balanced"
//!
//! [[when]]
//! profile = "battery"
//! power = "battery"
//!
//! [[when]]
//! profile = "latency"
//! vendor = "amd"                # only on such machines
//! virtual = "no"
//!
//! [desktop]                     # the profiles that a desktop offers
//! performance = "latency"
//! ```

use flyball_control::Setting;
use toml::de::{DeTable, DeValue};

use crate::{
    Active, Condition, ConditionError, ConfigError, Hold, HoldName, MachineFacts, OnDrift, Requirement,
};

/// One `[[when]]` entry.
#[derive(Debug, Clone, PartialEq)]
pub struct When {
    /// The profile's name.
    pub profile: String,
    /// Line and column of the profile, from 1.
    profile_at: (usize, usize),
    pub machine: Requirement,
    pub condition: Option<Condition>,
    pub on_drift: OnDrift,
    /// Line of the entry, from 1.
    pub line: usize,
}

/// The parsed file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// The file's name in messages.
    pub file: String,
    pub when: Vec<When>,
    /// The holds that survive reboots, which come from another file.
    pub active: Vec<Active>,
    /// The flyball profile for each profile of the desktop, if the file names one.
    pub desktop: Desktop,
}

/// `[desktop]`: names of flyball's profiles for those of the desktop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Desktop {
    pub power_saver: Option<String>,
    pub balanced: Option<String>,
    pub performance: Option<String>,
}

/// Finds the settings of a profile by its name. An error is the sentence to show.
pub type Profiles<'a> = &'a dyn Fn(&str) -> Result<Vec<Setting>, String>;

/// The lowest priority of the configuration's holds. They are numbered upwards in order, below the
/// holds that users add.
const FIRST_PRIORITY: u32 = 10;

/// Limit on entries in a file: the maximum number of holds.
const MAX_ENTRIES: usize = 64;

impl Config {
    /// Reads the file's text; `file` is its name in messages.
    ///
    /// # Errors
    /// The first error. If a file has an error, none of its entries is used.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Config, ConfigError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            wrong(file, &String::from_utf8_lossy(&bytes[..error.valid_up_to()]), usize::MAX, "not UTF-8")
        })?;
        // Parse into a table with spans, not into a structure, so that each error has a line and
        // column.
        let table = DeTable::parse(text)
            .map_err(|error| wrong(file, text, error.span().map_or(0, |span| span.start), error.message()))?;
        let wrong = |at: usize, what: &str| wrong(file, text, at, what);
        let mut config = Config { file: file.to_owned(), ..Config::default() };
        for (key, value) in table.get_ref() {
            let entries = match (key.get_ref().as_ref(), value.get_ref()) {
                ("when", DeValue::Array(entries)) => entries,
                ("desktop", DeValue::Table(table)) => {
                    config.desktop = desktop(table, &wrong)?;
                    continue;
                }
                ("when", _) => return Err(wrong(key.span().start, "write [[when]], with two brackets")),
                (other, _) => {
                    return Err(wrong(
                        key.span().start,
                        &format!("'{other}' is not a key here; there are [[when]] and [desktop]"),
                    ));
                }
            };
            // Each change of a condition plans all entries.
            if entries.len() > MAX_ENTRIES {
                return Err(wrong(key.span().start, &format!("more than {MAX_ENTRIES} entries")));
            }
            for entry in entries {
                let DeValue::Table(entry_table) = entry.get_ref() else {
                    return Err(wrong(entry.span().start, "write [[when]], with two brackets"));
                };
                let line =
                    text.as_bytes()[..entry.span().start].iter().filter(|&&byte| byte == b'\n').count() + 1;
                config.when.push(when(entry_table, entry.span().start, line, &wrong)?);
            }
        }
        Ok(config)
    }

    /// Returns the holds of the entries that apply to this machine.
    ///
    /// # Errors
    /// The first entry whose profile cannot be used, even if it is for other machines: a file is
    /// valid or invalid on all machines alike.
    pub fn holds(
        &self,
        machine: &MachineFacts,
        profiles: Profiles<'_>,
        since: u64,
    ) -> Result<Vec<Hold>, ConfigError> {
        let mut holds = Vec::new();
        for (index, when) in self.when.iter().enumerate() {
            let hold = profiles(&when.profile)
                .and_then(|settings| Ok(Hold { settings, ..self.hold(index, when, since)? }))
                .map_err(|what| {
                    let (line, column) = when.profile_at;
                    ConfigError { file: self.file.clone(), line, column, what }
                })?;
            if when.machine.unmet(machine).is_none() {
                holds.push(hold);
            }
        }
        Ok(holds)
    }

    /// Returns the hold of entry number `index`, without its settings.
    pub fn hold(&self, index: usize, when: &When, since: u64) -> Result<Hold, String> {
        // The profile may be a path, so replace invalid characters.
        let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let profile: String = when.profile.chars().map(allowed).take(40).collect();
        // The number makes the name unique: two entries may use the same profile.
        let name: HoldName =
            format!("config-{}:{profile}", index + 1).parse().map_err(|error| format!("{error}"))?;
        Ok(Hold {
            priority: FIRST_PRIORITY + index as u32,
            profile: Some(when.profile.clone()),
            condition: when.condition.clone(),
            on_drift: when.on_drift,
            ..Hold::new(name, crate::Owner::Config, Vec::new(), since)
        })
    }
}

fn desktop(table: &DeTable<'_>, wrong: &dyn Fn(usize, &str) -> ConfigError) -> Result<Desktop, ConfigError> {
    let mut desktop = Desktop::default();
    for (key, value) in table {
        let DeValue::String(text) = value.get_ref() else {
            return Err(wrong(value.span().start, "write the name of a profile in quotes"));
        };
        let field = match key.get_ref().as_ref() {
            "power-saver" => &mut desktop.power_saver,
            "balanced" => &mut desktop.balanced,
            "performance" => &mut desktop.performance,
            _ => {
                let sentence = "a desktop knows power-saver, balanced and performance only";
                return Err(wrong(key.span().start, sentence));
            }
        };
        *field = Some(text.clone().into_owned());
    }
    Ok(desktop)
}

fn when(
    table: &DeTable<'_>,
    at: usize,
    line: usize,
    wrong: &dyn Fn(usize, &str) -> ConfigError,
) -> Result<When, ConfigError> {
    let (mut profile, mut condition, mut on_drift) = (None, Condition::default(), OnDrift::default());
    let mut machine = Requirement::default();
    for (key, value) in table {
        let (key_at, key) = (key.span().start, key.get_ref().as_ref());
        let DeValue::String(text) = value.get_ref() else {
            return Err(wrong(value.span().start, &format!("the value of {key} must be a text in quotes")));
        };
        match key {
            "profile" => {
                // Keep the position, so that an error about the profile has a line and column.
                let ConfigError { line, column, .. } = wrong(value.span().start, "");
                profile = Some((text.clone().into_owned(), (line, column)));
            }
            "on-drift" => {
                on_drift = match text.as_ref() {
                    "correct" => OnDrift::Correct,
                    "report" => OnDrift::Report,
                    "yield" => OnDrift::Yield,
                    _ => return Err(wrong(value.span().start, "on-drift is correct, report or yield")),
                };
            }
            key => match machine.add(key, text) {
                Some(added) => added.map_err(|what| wrong(value.span().start, &what))?,
                None => condition.add(key, text).map_err(|error| match error {
                    ConditionError::Unknown(key) => {
                        let keys =
                            "profile, on-drift, vendor, model, kernel, driver, virtual, or a condition";
                        wrong(key_at, &format!("'{key}' is not a key of [[when]]: {keys}"))
                    }
                    error => wrong(value.span().start, &error.to_string()),
                })?,
            },
        }
    }
    let Some((profile, profile_at)) = profile else { return Err(wrong(at, "profile is missing")) };
    // An entry without a condition is always active. Use it for a base profile.
    let condition = (condition != Condition::default()).then_some(condition);
    Ok(When { profile, profile_at, machine, condition, on_drift, line })
}

fn wrong(file: &str, text: &str, at: usize, what: &str) -> ConfigError {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    ConfigError { file: file.to_owned(), line, column, what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_are_in_the_order_of_the_file() {
        let text = "[[when]]\nprofile = \"balanced\"\n[[when]]\nprofile = \"battery\"\npower = \"battery\"\non-drift = \"report\"\n";
        let config = Config::parse(text.as_bytes(), "hold.toml").unwrap();
        assert_eq!(config.when.len(), 2);
        assert_eq!((config.when[0].condition.clone(), config.when[1].line), (None, 3));
        assert_eq!(config.when[1].on_drift, OnDrift::Report);
        let hold = config.hold(1, &config.when[1], 0).unwrap();
        assert_eq!((hold.name.as_str(), hold.priority), ("config-2:battery", 11));
        assert!(hold.priority < Hold::PRIORITY);
    }

    #[test]
    fn entries_for_other_machines_make_no_hold_and_unknown_profiles_have_a_place() {
        let text =
            "[[when]]\nprofile = \"a\"\nvendor = \"amd\"\n\n[[when]]\nprofile = \"b\"\nvendor = \"intel\"\n";
        let config = Config::parse(text.as_bytes(), "hold.toml").unwrap();
        let amd = MachineFacts { vendor: "amd".to_owned(), ..MachineFacts::default() };
        let holds = config.holds(&amd, &|_| Ok(Vec::new()), 0).unwrap();
        assert_eq!(holds.iter().map(|hold| hold.name.as_str()).collect::<Vec<_>>(), ["config-1:a"]);
        let unknown = |name: &str| if name == "b" { Err("unknown".to_owned()) } else { Ok(Vec::new()) };
        let error = config.holds(&amd, &unknown, 0).unwrap_err();
        assert_eq!(error.to_string(), "hold.toml:6:11: unknown");
    }

    #[test]
    fn errors_have_line_and_column() {
        let error = |text: &str| Config::parse(text.as_bytes(), "hold.toml").unwrap_err();
        let at = |text: &str| (error(text).line, error(text).column);
        assert_eq!(at("[[when]]\nprofile = \"x\"\nwind = \"a.service\"\n"), (3, 1));
        assert_eq!(at("[[when]]\nprofile = \"x\"\npower = \"wind\"\n"), (3, 9));
        assert_eq!(at("[[when]]\nprofile = 3\n"), (2, 11));
        assert_eq!(at("\n[[when]]\npower = \"ac\"\n").0, 2);
        assert_eq!(at("[when]\nprofile = \"x\"\n").0, 1);
        assert_eq!(at("x = 1\n"), (1, 1));
        assert_eq!(at("[desktop]\ngame = \"x\"\n"), (2, 1));
        assert_eq!(at("[desktop]\nbalanced = 3\n"), (2, 12));
        let desktop = Config::parse(b"[desktop]\nbalanced = \"quiet\"\n", "hold.toml").unwrap().desktop;
        assert_eq!((desktop.balanced.as_deref(), desktop.performance), (Some("quiet"), None));
        assert_eq!(at("[[when]]\nprofile = \"x\n").0, 2);
        assert!(
            error("[[when]]\nprofile = \"x\"\ntime = \"9-5\"").to_string().starts_with("hold.toml:3:8: ")
        );
        assert!(Config::parse(b"x = \"\xff\"", "hold.toml").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~\n]{0,80}") {
            let _ = Config::parse(text.as_bytes(), "p");
            let _ = Config::parse(format!("[[when]]\n{text}").as_bytes(), "p");
        }
    }
}
