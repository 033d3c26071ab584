//! A user's wanted settings as data, independent of any machine.
//!
//! An intent comes from `KNOB=VALUE` arguments or from a profile (`profile`). It depends on the
//! table but not on a machine; `plan` combines it with a machine. Settings are in order: if two of
//! them set the same place, the later one wins.

use serde::{Deserialize, Serialize};

use crate::{Id, KnobName, UnknownKnob, Wanted, WantedError};

/// One wanted setting.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Setting {
    /// The knob, optionally with an instance (`idle-state:C6`).
    pub name: KnobName,
    /// The value, not yet resolved.
    pub wanted: Wanted,
    /// Fallback values, tried in this order if the machine does not accept the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<Wanted>,
    /// True if the setting is dropped when the machine lacks the knob or accepts none of its
    /// values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Selector of the CPUs; `None` for all.
    pub on: Option<String>,
    /// Origin of the setting, as messages print it: `governor=performance`, `quiet.toml line 3`.
    pub from: String,
}

/// The settings that a user wants.
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
    /// The knob does not take the value.
    #[error(transparent)]
    Value(#[from] WantedError),
}

impl Setting {
    /// Creates the setting of `name` (`governor`, `idle-state:C6`) to `value` on the CPUs of
    /// selector `on`.
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

    /// Adds a value to use if the machine accepts none of the earlier ones.
    ///
    /// # Errors
    /// The knob does not take the value.
    pub fn or(mut self, value: &str) -> Result<Setting, IntentError> {
        self.otherwise.push(Wanted::parse(self.name.knob.knob(), value)?);
        Ok(self)
    }

    /// Marks the setting as optional: it is dropped if the machine does not accept it.
    #[must_use]
    pub fn optional(mut self, optional: bool) -> Setting {
        self.optional = optional;
        self
    }

    /// Returns whether a machine that rejects the value may use another one, or none.
    pub(crate) fn is_flexible(&self) -> bool {
        self.optional || !self.otherwise.is_empty()
    }

    pub fn knob(&self) -> Id {
        self.name.knob
    }
}

impl Intent {
    /// Parses `KNOB=VALUE` and `KNOB@CPUS=VALUE` arguments. Arguments without CPUs apply to
    /// selector `on`.
    ///
    /// # Errors
    /// The first argument that is not a setting.
    pub fn from_arguments<S: AsRef<str>>(arguments: &[S], on: Option<&str>) -> Result<Intent, IntentError> {
        let mut settings = Vec::new();
        for argument in arguments {
            let argument = argument.as_ref();
            let (name, value) =
                argument.split_once('=').ok_or_else(|| IntentError::NoEquals(argument.to_owned()))?;
            // CPUs in the argument take precedence over `on`.
            let (name, on) = name.split_once('@').map_or((name, on), |(name, cpus)| (name, Some(cpus)));
            settings.push(Setting::new(name, value, on, argument)?);
        }
        Ok(Intent { settings })
    }

    /// Returns whether there are no settings.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// Returns the last setting of a knob, whatever its CPUs.
    pub fn setting(&self, knob: Id) -> Option<&Setting> {
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
