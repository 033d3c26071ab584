//! Arms: the settings that are compared, as they are typed.
//!
//! `NAME: K=V K=V` is one arm; `K=V1,V2` a row of a matrix, whose cross product makes arms named by
//! their settings. An arm without settings, and the word `now`, is the machine as it is.

use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use flyball_control::{IntentError, Setting};
use flyball_host::CommandKnob;

use crate::program::Program;

/// One setting of an arm. Reports and run directories keep its words, the machine gets its meaning.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, Display)]
#[serde(from = "Words", into = "Words")]
#[display("{}={}", words.knob, words.value)]
pub struct ArmSetting {
    words: Words,
    meaning: Meaning,
}

/// A setting as it was typed, and as run directories hold it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
struct Words {
    /// The knob, perhaps with the CPUs it is for: `max-freq@0-3`.
    knob: String,
    value: String,
}

/// What a setting of an arm sets.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// A knob of flyball's table.
    Knob(Setting),
    /// The cpufreq driver, which a boot brings up.
    Driver(String),
    /// A word of the kernel's command line.
    Boot(String),
    /// None of these, for this reason: a knob of the user's own, or a setting that another version
    /// of flyball wrote into a run directory.
    Other(IntentError),
}

impl From<Words> for ArmSetting {
    fn from(words: Words) -> ArmSetting {
        let meaning = match (words.knob.as_str(), words.knob.strip_prefix("boot:")) {
            ("driver", _) => Meaning::Driver(words.value.clone()),
            ("boot", _) => Meaning::Boot(words.value.clone()),
            (_, Some(parameter)) => Meaning::Boot(format!("{parameter}={}", words.value)),
            (knob, None) => {
                let (name, on) = knob.split_once('@').map_or((knob, None), |(name, on)| (name, Some(on)));
                let from = format!("{knob}={}", words.value);
                Setting::new(name, &words.value, on, from).map_or_else(Meaning::Other, Meaning::Knob)
            }
        };
        ArmSetting { words, meaning }
    }
}

impl From<ArmSetting> for Words {
    fn from(setting: ArmSetting) -> Words {
        setting.words
    }
}

impl ArmSetting {
    /// The setting of `knob` (`governor`, `max-freq@0-3`, `driver`) to `value`.
    pub fn new(knob: impl Into<String>, value: impl Into<String>) -> ArmSetting {
        ArmSetting::from(Words { knob: knob.into(), value: value.into() })
    }

    /// Reads `KNOB=VALUE`; `None` if a side is empty or there is no `=`.
    pub fn parse(word: &str) -> Option<ArmSetting> {
        let (knob, value) = word.split_once('=')?;
        let (knob, value) = (knob.trim(), value.trim());
        (!knob.is_empty() && !value.is_empty()).then(|| ArmSetting::new(knob, value))
    }

    /// The knob as typed, perhaps with `@CPUS`.
    pub fn knob(&self) -> &str {
        &self.words.knob
    }

    /// The value as typed.
    pub fn value(&self) -> &str {
        &self.words.value
    }

    /// What it sets.
    pub fn meaning(&self) -> &Meaning {
        &self.meaning
    }

    /// The user's own knob that it sets, if it sets one of `knobs`.
    pub fn user_knob<'k>(&self, knobs: &'k [CommandKnob]) -> Option<&'k CommandKnob> {
        knobs.iter().find(|knob| knob.name == self.words.knob)
    }
}

/// Settings under a name.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Arm {
    /// The name in tables and plots.
    pub name: String,
    /// The settings, in the order typed; none is the machine as it is.
    // Run directories call this field `wishes`.
    #[serde(rename = "wishes")]
    pub settings: Vec<ArmSetting>,
    /// What it runs, if arms run different programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Whether it is the first arm again (`--aa`): any difference is the machine's own noise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
}

/// Why arms cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    /// A word is not a setting.
    #[error("'{0}' is not a setting; write knob=value, as in --arm 'fast: governor=performance'")]
    Word(String),
    /// An arm without a name and settings.
    #[error("an arm needs a name or settings, as in --arm 'fast: governor=performance'")]
    Empty,
    /// A name without a colon.
    #[error("'{0}' sets nothing; write '{0}: knob=value', or '{0}:' for the machine as it is")]
    Bare(String),
    /// Two arms have the same name.
    #[error("two arms are called '{0}'")]
    Twice(String),
    /// A matrix row without values.
    #[error("'{0}' has no values; write --matrix governor=performance,powersave")]
    Row(String),
    /// The cross product is too large.
    #[error("this makes {0} arms; the limit is {most}", most = Arm::MAX)]
    Many(usize),
    /// A setting of neither flyball's knobs nor the user's.
    #[error("arm '{arm}': {cause}")]
    Setting { arm: String, cause: IntentError },
    /// One arm or none.
    #[error(
        "a comparison needs two arms at least: give a second program, two settings of --matrix or --arm ('now' is the \
         machine as it is), or --aa to compare a program with itself"
    )]
    Few,
}

impl Arm {
    /// The maximum number of arms in a comparison.
    pub const MAX: usize = 64;

    /// Settings under a name, for the workload that all arms share.
    pub fn new(name: impl Into<String>, settings: Vec<ArmSetting>) -> Arm {
        Arm { name: name.into(), settings, program: None, control: false }
    }

    /// The machine as it is.
    pub fn now() -> Arm {
        Arm::new("now", Vec::new())
    }

    /// An arm named by its settings.
    pub fn unnamed(settings: Vec<ArmSetting>) -> Arm {
        Arm::new(join(&settings), settings)
    }

    /// Reads `NAME: K=V K=V`, `K=V K=V` (named by its settings), `NAME:` or `now`. Another word
    /// alone is an error: it would name the machine as it is, for example after a governor.
    ///
    /// # Errors
    /// Words that are not settings.
    pub fn parse(text: &str) -> Result<Arm, ArmError> {
        let text = text.trim();
        if text.is_empty() || text == ":" {
            return Err(ArmError::Empty);
        }
        // A colon ends the name only in front of any setting: values may hold colons (`tcp:1`),
        // names may not.
        let (name, settings) = match text.split_once(':') {
            Some((name, rest)) if !name.contains('=') => (Some(name.trim()), rest),
            _ if text.contains('=') => (None, text),
            _ if text == "now" => (Some(text), ""),
            _ => return Err(ArmError::Bare(text.to_owned())),
        };
        let settings = settings.split_whitespace().map(setting).collect::<Result<Vec<_>, _>>()?;
        let name = match name {
            Some("") | None => join(&settings),
            Some(name) => name.to_owned(),
        };
        if name.is_empty() { Err(ArmError::Empty) } else { Ok(Arm::new(name, settings)) }
    }

    /// The arms of a comparison of settings: at least two, each with a name of its own.
    pub fn all(arms: &[String], matrix: &[String], knobs: &[CommandKnob]) -> Result<Vec<Arm>, ArmError> {
        let all = Arm::from_words(arms, matrix, knobs)?;
        Arm::check_all(&all)?;
        Ok(all)
    }

    /// Refuses arms that cannot be compared.
    ///
    /// # Errors
    /// Names used twice; fewer than two arms, too many.
    pub fn check_all(all: &[Arm]) -> Result<(), ArmError> {
        if all.len() > Arm::MAX {
            return Err(ArmError::Many(all.len()));
        }
        for (index, arm) in all.iter().enumerate() {
            // Reports and resumed comparisons know arms by their names.
            if all[..index].iter().any(|other| other.name == arm.name) {
                return Err(ArmError::Twice(arm.name.clone()));
            }
        }
        if all.len() < 2 { Err(ArmError::Few) } else { Ok(()) }
    }

    /// The arms that are named, then the matrix's cross product. `knobs` are the user's own.
    ///
    /// # Errors
    /// As [`Arm::parse`]; also unknown knobs, and a matrix of too many arms.
    pub fn from_words(
        arms: &[String],
        matrix: &[String],
        knobs: &[CommandKnob],
    ) -> Result<Vec<Arm>, ArmError> {
        let mut all = arms.iter().map(|text| Arm::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let mut product: Vec<Vec<ArmSetting>> = vec![Vec::new()];
        for row in matrix {
            let first = setting(row.trim())?;
            let values: Vec<&str> =
                first.value().split(',').map(str::trim).filter(|v| !v.is_empty()).collect();
            if values.is_empty() {
                return Err(ArmError::Row(row.clone()));
            }
            // Before the product is made: it grows exponentially with the rows.
            let size = product.len().saturating_mul(values.len());
            if size > Arm::MAX {
                return Err(ArmError::Many(size));
            }
            product = product
                .iter()
                .flat_map(|so_far| {
                    values.iter().map(|value| {
                        let mut settings = so_far.clone();
                        // `now` in a matrix leaves the knob alone.
                        if *value != "now" {
                            settings.push(ArmSetting::new(first.knob(), *value));
                        }
                        settings
                    })
                })
                .collect();
        }
        if !matrix.is_empty() {
            all.extend(
                product
                    .into_iter()
                    .map(|settings| if settings.is_empty() { Arm::now() } else { Arm::unnamed(settings) }),
            );
        }
        for arm in &all {
            for setting in &arm.settings {
                if let (Meaning::Other(cause), None) = (setting.meaning(), setting.user_knob(knobs)) {
                    return Err(ArmError::Setting { arm: arm.name.clone(), cause: cause.clone() });
                }
            }
        }
        Ok(all)
    }
}

fn setting(word: &str) -> Result<ArmSetting, ArmError> {
    ArmSetting::parse(word).ok_or_else(|| ArmError::Word(word.to_owned()))
}

fn join(settings: &[ArmSetting]) -> String {
    settings.iter().map(ArmSetting::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arms: &[&str], matrix: &[&str]) -> Result<Vec<String>, ArmError> {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Ok(Arm::all(&own(arms), &own(matrix), &[])?.into_iter().map(|arm| arm.name).collect())
    }

    #[test]
    fn arms_are_read() {
        let arm = Arm::parse("fast: governor=performance  epp=0").expect("a good arm");
        assert_eq!(arm.name, "fast");
        assert_eq!(arm.settings.len(), 2);
        assert_eq!(Arm::parse("governor=powersave").expect("good").name, "governor=powersave");
        assert_eq!(Arm::parse("now"), Ok(Arm::now()));
        assert_eq!(Arm::parse("base:").expect("good").settings, []);
        assert_eq!(Arm::parse("x: governor"), Err(ArmError::Word("governor".to_owned())));
        assert_eq!(Arm::parse("x: =3"), Err(ArmError::Word("=3".to_owned())));
        assert_eq!(Arm::parse(" "), Err(ArmError::Empty));
        assert_eq!(Arm::parse("performance"), Err(ArmError::Bare("performance".to_owned())));
    }

    #[test]
    fn a_matrix_is_a_cross_product() {
        assert_eq!(
            names(&["now"], &["governor=performance,powersave", "turbo=on,off"]).expect("good"),
            [
                "now",
                "governor=performance turbo=on",
                "governor=performance turbo=off",
                "governor=powersave turbo=on",
                "governor=powersave turbo=off"
            ]
        );
        assert_eq!(names(&[], &["turbo=on,now"]).expect("good"), ["turbo=on", "now"]);
    }

    #[test]
    fn settings_have_a_meaning_and_keep_their_words() {
        let arm = Arm::parse("x: max-freq@0-3=2GHz driver=acpi-cpufreq boot:isolcpus=1-3 pool=4").unwrap();
        let meanings: Vec<&Meaning> = arm.settings.iter().map(ArmSetting::meaning).collect();
        assert!(matches!(meanings[0], Meaning::Knob(setting) if setting.on.as_deref() == Some("0-3")));
        assert_eq!(meanings[1], &Meaning::Driver("acpi-cpufreq".to_owned()));
        assert_eq!(meanings[2], &Meaning::Boot("isolcpus=1-3".to_owned()));
        assert!(matches!(meanings[3], Meaning::Other(IntentError::Unknown(_))));
        let json = serde_json::to_string(&arm).unwrap();
        assert!(json.contains(r#"{"knob":"max-freq@0-3","value":"2GHz"}"#), "{json}");
        assert_eq!(serde_json::from_str::<Arm>(&json).unwrap(), arm);
    }

    #[test]
    fn knobs_are_flyballs_or_the_users() {
        let arms = ["now".to_owned(), "x: pool=4".to_owned()];
        let pool = CommandKnob { name: "pool".to_owned(), read: None, write: String::new(), restore: None };
        assert!(Arm::all(&arms, &[], &[pool]).is_ok());
        assert!(matches!(Arm::all(&arms, &[], &[]), Err(ArmError::Setting { arm, .. }) if arm == "x"));
    }

    #[test]
    fn impossible_sets_are_refused() {
        assert_eq!(names(&["a:"], &[]), Err(ArmError::Few));
        assert_eq!(names(&["a:", "a: turbo=on"], &[]), Err(ArmError::Twice("a".to_owned())));
        assert_eq!(names(&[], &["turbo=,"]), Err(ArmError::Row("turbo=,".to_owned())));
        let row = format!("max-freq={}", (0..65).map(|i| format!("{i}GHz")).collect::<Vec<_>>().join(","));
        assert_eq!(names(&[], &[&row]), Err(ArmError::Many(65)));
    }
}
