//! What a user wants of a machine: settings as data, before any machine was looked at.
//!
//! An intent comes from `KNOB=VALUE` arguments or from a profile (`profile`). It knows the table
//! and nothing of a machine; `plan` brings the two together. Settings are in order: where two of
//! them name the same place, the later one counts.

use serde::{Deserialize, Serialize};

use crate::{Id, KnobName, UnknownKnob, Wanted, WantedError};

/// One wanted setting.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Setting {
    /// The knob, and perhaps which instance of it (`idle-state:C6`).
    pub name: KnobName,
    /// The value, not yet resolved.
    pub wanted: Wanted,
    /// Values to use instead, in this order, where the machine does not accept the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<Wanted>,
    /// Whether the setting is left out where the machine lacks the knob or accepts none of its
    /// values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The CPUs, as a selector; all where there is none.
    pub on: Option<String>,
    /// Where the user said so, as it reads in a message: `governor=performance`,
    /// `quiet.toml line 3`.
    pub from: String,
}

/// What is wanted of a machine.
#[derive(Debug, Clone, PartialEq, Default, schemars::JsonSchema, Serialize)]
pub struct Intent {
    /// The settings in order.
    pub settings: Vec<Setting>,
}

/// Why an argument is not a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntentError {
    /// It has no `=`.
    #[error("'{0}' is not a setting; write KNOB=VALUE, for example governor=performance")]
    NoEquals(String),
    /// The knob is not in the table.
    #[error(transparent)]
    Unknown(#[from] UnknownKnob),
    /// The value is none of the knob's.
    #[error(transparent)]
    Value(#[from] WantedError),
}

impl Setting {
    /// The setting of `name` (`governor`, `idle-state:C6`) to `value` on the CPUs of selector `on`.
    ///
    /// # Errors
    /// The knob is unknown, is a fact, or does not take the value.
    pub fn new(
        name: &str,
        value: &str,
        on: Option<&str>,
        from: impl Into<String>,
    ) -> Result<Setting, IntentError> {
        let name: KnobName = name.parse().map_err(UnknownKnob::to_set)?;
        let wanted = Wanted::parse(name.knob.knob(), value)?;
        let (on, from) = (on.map(str::to_owned), from.into());
        Ok(Setting { name, wanted, otherwise: Vec::new(), optional: false, on, from })
    }

    /// Adds a value to use where the machine accepts none of those before it.
    ///
    /// # Errors
    /// The knob does not take the value.
    pub fn or(mut self, value: &str) -> Result<Setting, IntentError> {
        self.otherwise.push(Wanted::parse(self.name.knob.knob(), value)?);
        Ok(self)
    }

    /// The same setting, left out where the machine cannot have it.
    #[must_use]
    pub fn optional(mut self, optional: bool) -> Setting {
        self.optional = optional;
        self
    }

    /// Whether a machine that does not accept it may get another value, or none.
    pub(crate) fn is_flexible(&self) -> bool {
        self.optional || !self.otherwise.is_empty()
    }

    pub fn knob(&self) -> Id {
        self.name.knob
    }
}

impl Intent {
    /// Reads `KNOB=VALUE` and `KNOB@CPUS=VALUE` arguments; those without CPUs are for selector
    /// `on`.
    ///
    /// # Errors
    /// The first argument that is not a setting.
    pub fn from_arguments<S: AsRef<str>>(arguments: &[S], on: Option<&str>) -> Result<Intent, IntentError> {
        let mut settings = Vec::new();
        for argument in arguments {
            let argument = argument.as_ref();
            let (name, value) =
                argument.split_once('=').ok_or_else(|| IntentError::NoEquals(argument.to_owned()))?;
            // CPUs of its own come before those for all settings.
            let (name, on) = name.split_once('@').map_or((name, on), |(name, cpus)| (name, Some(cpus)));
            settings.push(Setting::new(name, value, on, argument)?);
        }
        Ok(Intent { settings })
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// The last setting of a knob, whatever its CPUs.
    pub fn of(&self, knob: Id) -> Option<&Setting> {
        self.settings.iter().rfind(|setting| setting.name.knob == knob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_settings() {
        let intent =
            Intent::from_arguments(&["governor=performance", "idle-state:C6=off"], Some("0-3")).unwrap();
        assert_eq!(intent.settings[0].knob(), Id::Governor);
        assert_eq!(intent.settings[0].on.as_deref(), Some("0-3"));
        assert_eq!(intent.settings[1].name.to_string(), "idle-state:C6");
        let intent =
            Intent::from_arguments(&["idle-state:C6@policy:2=off", "turbo=off"], Some("0-3")).unwrap();
        assert_eq!(intent.settings[0].on.as_deref(), Some("policy:2"));
        assert_eq!(intent.settings[1].on.as_deref(), Some("0-3"));
    }

    #[test]
    fn wrong_arguments_say_what_is_right() {
        let error = |argument: &str| Intent::from_arguments(&[argument], None).unwrap_err();
        assert!(matches!(error("performance"), IntentError::NoEquals(text) if text == "performance"));
        assert!(
            matches!(error("govenor=performance"), IntentError::Unknown(unknown) if unknown.nearest == Some("governor"))
        );
        assert!(
            matches!(error("max-freq=2600000"), IntentError::Value(wrong) if wrong.accepted.contains("unit"))
        );
        assert!(
            matches!(error("driver=acpi-cpufreq"), IntentError::Value(wrong) if wrong.accepted.is_empty())
        );
        assert!(matches!(error("=x"), IntentError::Unknown(_)));
    }
}
