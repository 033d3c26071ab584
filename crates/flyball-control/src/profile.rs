//! Profiles: an intent in a TOML file.
//!
//! ```toml
//! description = "steady, for benchmarks"
//!
//! turbo = "off"
//! governor = "performance"
//! "idle-state:C6" = "off"
//!
//! [cpus."0-3,8"]          # by CPU list
//! max-freq = "2.6GHz"
//!
//! [type.E]                # by kind of core; also package, die, node, core, policy
//! max-freq = "min"
//!
//! [optional]              # skipped if the machine lacks it; also [optional.type.E] and so on
//! epp = ["balance_power", "power"]     # the first value that the machine accepts
//! ```
//!
//! Settings before the first section are for all CPUs. Sections come later, so they win; optional
//! settings come last. Values are strings as on the command line; booleans and whole numbers are
//! accepted too if they cannot be misread. The plan decides which value of a list a machine gets,
//! and whether it gets an optional setting (`plan/choice.rs`).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;
use toml::de::{DeTable, DeValue};

use crate::intent::{Intent, IntentError, Setting};

/// Sections that select CPUs by a property, with the selector's word for it.
const GROUPS: [&str; 8] = ["package", "die", "node", "core", "policy", "type", "ccd", "cache"];

/// Limit on the settings of a profile. One for each of the 19 knobs of each of 512 CPUs would be
/// fewer. The planner judges each setting against the others, so its time grows with the square.
pub const MAX_SETTINGS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// Purpose of the profile, in the author's words.
    pub description: Option<String>,
    /// The settings.
    pub intent: Intent,
}

/// The reason why a text is not a profile, and the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} line {line}: {what}")]
pub struct ProfileError {
    /// Name of the file, as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub what: String,
}

struct Reader<'a> {
    file: &'a str,
    /// End of each line of the text: counting lines again for every setting would take quadratic
    /// time.
    ends: Vec<usize>,
    profile: Profile,
}

/// The schema of the file, as TOML.
impl JsonSchema for Profile {
    fn schema_name() -> Cow<'static, str> {
        "Profile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let value = json!({ "type": ["string", "boolean", "integer"] });
        let values = json!({
            "description": "A value as on the command line, or several, of which the first that the machine accepts is used.",
            "anyOf": [value, { "type": "array", "items": value }],
        });
        let settings = json!({ "type": "object", "additionalProperties": values });
        let section = |by: &str| {
            let description = format!("Settings of some CPUs, by {by}.");
            json!({ "description": description, "type": "object", "additionalProperties": settings })
        };
        let groups = ["cpus"].into_iter().chain(GROUPS);
        let sections: serde_json::Map<_, _> = groups.map(|name| (name.to_owned(), section(name))).collect();
        let mut properties = sections.clone();
        let optional = json!({
            "description": "Settings that are left out where the machine lacks them, with a note.",
            "type": "object",
            "properties": sections,
            "additionalProperties": values,
        });
        properties.insert("optional".to_owned(), optional);
        let description = json!({ "description": "What the profile is for.", "type": "string" });
        properties.insert("description".to_owned(), description);
        json_schema!({ "type": "object", "properties": properties, "additionalProperties": values })
    }
}

impl Profile {
    /// Parses a profile; `file` is its name in messages.
    ///
    /// # Errors
    /// Text that is not UTF-8 or not TOML, an unknown section or knob, or a value that the knob
    /// does not accept.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Profile, ProfileError> {
        let bad = |line: usize, what: String| ProfileError { file: file.to_owned(), line, what };
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            bad(line, "not UTF-8; is this a profile?".to_owned())
        })?;
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let words = match error.message() {
                // The most common mistake, in the parser's words.
                words if words.contains("must be quoted") => "write words in quotes, as \"performance\"",
                words => words,
            };
            bad(line, words.to_owned())
        })?;
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        let mut reader = Reader { file, ends, profile: Profile::default() };
        reader.settings(table.get_ref(), false)?;
        Ok(reader.profile)
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns a table's entries in the order of the file: position of the key, key, value.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(usize, &'t str, &'t DeValue<'i>)> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value)| (key.span().start, key.get_ref().as_ref(), value.get_ref()))
        .collect();
    // toml's table is sorted by key, but in an intent the later setting wins.
    entries.sort_by_key(|(at, ..)| *at);
    entries
}

impl Reader<'_> {
    fn bad(&self, at: usize, what: impl Into<String>) -> ProfileError {
        ProfileError { file: self.file.to_owned(), line: self.line_of(at), what: what.into() }
    }

    fn line_of(&self, at: usize) -> usize {
        self.ends.partition_point(|end| *end < at) + 1
    }

    /// Reads the settings of the file, or of its section `[optional]`, which has the same sections.
    fn settings(&mut self, table: &DeTable<'_>, optional: bool) -> Result<(), ProfileError> {
        let entries = in_order(table);
        for (at, key, value) in &entries {
            match (*key, value) {
                ("description", DeValue::String(text)) if !optional => {
                    self.profile.description = Some(text.clone().into_owned());
                }
                ("description", _) if !optional => return Err(self.bad(*at, "description is a text")),
                (_, DeValue::Table(_)) => {}
                (key, value) => self.setting(*at, key, value, None, optional)?,
            }
        }
        let mut last = None;
        // Sections after the settings for all CPUs, wherever they stand in the file: settings that
        // name CPUs win.
        for (at, key, value) in entries {
            let DeValue::Table(groups) = value else { continue };
            if key == "optional" && !optional {
                // Wherever it stands: a setting that the profile insists on must not hide it.
                last = Some(groups);
                continue;
            }
            if key != "cpus" && !GROUPS.contains(&key) {
                return Err(self.bad(
                    at,
                    format!(
                        "no section '{key}'; sections are [cpus.\"0-3\"], {} and [optional]",
                        GROUPS.map(|g| format!("[{g}.X]")).join(" ")
                    ),
                ));
            }
            for (at, name, value) in in_order(groups) {
                let DeValue::Table(settings) = value else {
                    return Err(self.bad(
                        at,
                        format!(
                            "[{key}] needs a name: [{key}.{}]",
                            if key == "cpus" { "\"0-3\"" } else { "0" }
                        ),
                    ));
                };
                let selector = if key == "cpus" { name.to_owned() } else { format!("{key}:{name}") };
                for (at, knob, value) in in_order(settings) {
                    self.setting(at, knob, value, Some(&selector), optional)?;
                }
            }
        }
        last.map_or(Ok(()), |settings| self.settings(settings, true))
    }

    fn setting(
        &mut self,
        at: usize,
        name: &str,
        value: &DeValue<'_>,
        on: Option<&str>,
        optional: bool,
    ) -> Result<(), ProfileError> {
        let must_be = || {
            self.bad(
                at,
                format!("the value of {name} must be a text, a switch, a whole number, or a list of these"),
            )
        };
        let texts: Option<Vec<String>> = match value {
            DeValue::Array(values) => values.iter().map(|value| text_of(value.get_ref())).collect(),
            value => text_of(value).map(|text| vec![text]),
        };
        let texts = texts.ok_or_else(must_be)?;
        let Some((first, others)) = texts.split_first() else { return Err(must_be()) };
        if self.profile.intent.settings.len() + others.len() >= MAX_SETTINGS {
            return Err(
                self.bad(at, format!("more than {MAX_SETTINGS} settings; a setting for several CPUs is one"))
            );
        }
        let from = format!("{} line {}", self.file, self.line_of(at));
        let setting = Setting::new(name, first, on, from)
            .and_then(|setting| others.iter().try_fold(setting, |setting, other| setting.or(other)))
            .map_err(|error: IntentError| self.bad(at, error.to_string()))?;
        self.profile.intent.settings.push(setting.optional(optional));
        Ok(())
    }
}

/// Returns a value as it would appear on the command line.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Boolean(on) => Some((if *on { "on" } else { "off" }).to_owned()),
        // A bare number is right for epp, epb and percentages, and refused with the units named for
        // frequencies.
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Id;

    const TEXT: &str = r#"
description = "steady"
turbo = false
epb = 6
governor = "performance"
"idle-state:C6" = "off"

[cpus."0-3,8"]
max-freq = "2.6GHz"

[type.E]
max-freq = "min"
[package.1]
min-freq = "base"
"#;

    #[test]
    fn a_profile_becomes_an_intent_in_the_files_order() {
        let profile = Profile::parse(TEXT.as_bytes(), "steady.toml").unwrap();
        assert_eq!(profile.description.as_deref(), Some("steady"));
        let settings = &profile.intent.settings;
        let order: Vec<_> = settings.iter().map(|setting| (setting.knob(), setting.on.as_deref())).collect();
        assert_eq!(
            order,
            [
                (Id::Turbo, None),
                (Id::Epb, None),
                (Id::Governor, None),
                (Id::IdleState, None),
                (Id::MaxFreq, Some("0-3,8")),
                (Id::MaxFreq, Some("type:E")),
                (Id::MinFreq, Some("package:1")),
            ]
        );
        assert_eq!(settings[2].from, "steady.toml line 5");
    }

    #[test]
    fn optional_settings_come_last_and_a_list_is_a_choice() {
        let text = "[optional]\nepp = [\"power\", 200]\n[optional.type.E]\nepb = 15\n[cpus.\"0\"]\nepb = 0";
        let settings = Profile::parse(text.as_bytes(), "p").unwrap().intent.settings;
        let seen: Vec<_> =
            settings.iter().map(|one| (one.knob(), one.optional, one.otherwise.len())).collect();
        assert_eq!(seen, [(Id::Epb, false, 0), (Id::Epp, true, 1), (Id::Epb, true, 0)]);
        assert_eq!(settings[2].on.as_deref(), Some("type:E"));
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let error = |text: &str| Profile::parse(text.as_bytes(), "p").unwrap_err().to_string();
        assert!(error("a = 1\nb =").starts_with("p line 2"), "{}", error("a = 1\nb ="));
        assert!(
            error("\ngovenor = \"x\"").contains("p line 2") && error("govenor = \"x\"").contains("governor")
        );
        assert!(error("max-freq = 2600000").contains("unit"));
        assert!(error("[cpu.\"0\"]\nepb = 1").contains("sections are"));
        assert!(error("[cpus]\nepb = 1").contains("needs a name"));
        assert!(error("epb = [[1]]").contains("must be") && error("epb = []").contains("must be"));
        assert!(error("epb = [1, \"hot\"]").contains("not a value of epb"));
        assert!(error("[optional.optional]\nepb = 1").contains("no section 'optional'"));
        assert!(error("max-freq = 2.6").contains("must be"));
        assert!(Profile::parse(b"x = \"\xff\"", "p").unwrap_err().what.contains("UTF-8"));
        assert_eq!(Profile::parse(b"", "p").unwrap(), Profile::default());
        let many: String = (0..=MAX_SETTINGS).map(|cpu| format!("[cpus.\"{cpu}\"]\nepb = 1\n")).collect();
        assert_eq!(Profile::parse(many.as_bytes(), "p").unwrap_err().line, 2 * MAX_SETTINGS + 2);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~\n]{0,80}") {
            let _ = Profile::parse(text.as_bytes(), "p");
        }
    }
}
