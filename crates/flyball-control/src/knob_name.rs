//! The name of a knob on the command line and in profiles: `governor`, or `idle-state:C6` for one
//! of several instances.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{At, Id, Knob, Place, UnknownKnob};

/// A knob, optionally with an instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct KnobName {
    pub knob: Id,
    /// The text after the colon: `C6`, `long_term`, `package_00_die_00`.
    pub instance: Option<String>,
}

impl From<Id> for KnobName {
    fn from(knob: Id) -> KnobName {
        KnobName { knob, instance: None }
    }
}

impl FromStr for KnobName {
    type Err = UnknownKnob;

    fn from_str(text: &str) -> Result<KnobName, UnknownKnob> {
        // Check this first: otherwise `clos-2-min` would be an unknown name.
        if let Some(name) = clos_in_the_middle(text.trim()) {
            return name.parse();
        }
        let (name, instance) = match text.trim().split_once(':') {
            // If a script's variable is empty, `idle-state:$STATE` must not mean every state.
            Some((_, instance)) if instance.trim().is_empty() => return Err(UnknownKnob::new(text.trim())),
            Some((name, instance)) => (name, Some(instance.trim())),
            None => (text.trim(), None),
        };
        Ok(KnobName { knob: Knob::named(name)?.id, instance: instance.map(str::to_owned) })
    }
}

impl fmt::Display for KnobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instance {
            Some(instance) => write!(f, "{}:{instance}", self.knob),
            None => self.knob.fmt(f),
        }
    }
}

impl Serialize for KnobName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KnobName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KnobName, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Turns `clos-2-min`, Speed Select's own form, into the table's form `clos-min:2`.
fn clos_in_the_middle(text: &str) -> Option<String> {
    let (class, what) = text.strip_prefix("clos-")?.split_once('-')?;
    class.parse::<u8>().ok().map(|class| format!("clos-{what}:{class}"))
}

/// Short words for the constraints of powercap.
const CONSTRAINTS: &[(&str, &str)] = &[
    ("long", "long_term"),
    ("pl1", "long_term"),
    ("short", "short_term"),
    ("pl2", "short_term"),
    ("peak", "peak_power"),
    ("pl4", "peak_power"),
];

impl KnobName {
    /// Returns whether the name applies to `place`. Without an instance it applies to every place.
    /// An instance is a place's name, number (an idle state's depth), directory, or the last word
    /// of its name (`dram`, `long_term` or `long`).
    pub fn matches(&self, place: &Place) -> bool {
        let Some(instance) = &self.instance else { return true };
        let same = |name: &str| name.eq_ignore_ascii_case(instance);
        if same(&place.name) {
            return true;
        }
        match &place.at {
            At::Package(number) | At::Policy(number) | At::Cpu(number) => same(&number.to_string()),
            At::Die { package, die } => same(&format!("{package}.{die}")),
            At::IdleState { state, .. } => same(&state.to_string()),
            At::Uncore(folder) | At::ProfileDevice(folder) => same(folder),
            At::Zone(folder) => same(folder) || place.name.rsplit(' ').next().is_some_and(same),
            At::Constraint { zone, constraint } => {
                let wanted = instance.to_ascii_lowercase().replace('-', "_");
                let wanted = CONSTRAINTS
                    .iter()
                    .find(|(short, _)| *short == wanted)
                    .map_or(wanted.as_str(), |(_, l)| l);
                place.name.rsplit(' ').next() == Some(wanted) || same(&format!("{zone}:{constraint}"))
            }
            At::Socket { hwmon, port } => same(hwmon) || same(port),
            At::Sensor { hwmon, sensor } => same(&format!("{hwmon}:{sensor}")),
            At::PowerDomain { package, domain, .. } => same(&format!("{package}.{domain}")),
            At::Clos { package, domain, class, .. } => {
                // A class number alone means that class in every power domain.
                same(&class.to_string()) || same(&format!("{package}.{domain}.{class}"))
            }
            At::Machine | At::Core { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_host::CpuList;

    #[test]
    fn instances_match_by_name_number_and_short_word() {
        let state = Place::named(At::IdleState { cpu: 1, state: 3 }, "C6", CpuList::from_iter([1]));
        for (text, matches) in
            [("idle-state", true), ("idle-state:c6", true), ("idle-state:3", true), ("idle-state:C1", false)]
        {
            assert_eq!(text.parse::<KnobName>().unwrap().matches(&state), matches, "{text}");
        }
        assert!("idle-state:".parse::<KnobName>().is_err(), "not every state");
        let limit = Place::named(
            At::Constraint { zone: "intel-rapl:0".into(), constraint: 1 },
            "package-0 short_term",
            CpuList::new(),
        );
        for (text, matches) in [
            ("short", true),
            ("pl2", true),
            ("short-term", true),
            ("package-0 short_term", true),
            ("pl1", false),
        ] {
            let name = KnobName { knob: Id::PowerLimit, instance: Some(text.to_owned()) };
            assert_eq!(name.matches(&limit), matches, "{text}");
        }
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let near = |name: &str| name.parse::<KnobName>().unwrap_err().nearest;
        assert_eq!(near("govenor"), Some("governor"));
        assert_eq!(near("scaling_governor"), Some("governor"));
        assert_eq!(near("max_freq"), Some("max-freq"));
        assert_eq!(near("no_turbo"), Some("turbo"));
        assert_eq!(near("xyzzy"), None);
        assert_eq!(near(""), None);
    }
}
