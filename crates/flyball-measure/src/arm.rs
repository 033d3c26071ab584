//! Arms: the settings that are compared, as they are typed.
//!
//! `NAME: K=V K=V` is one arm; `K=V1,V2` a row of a matrix, whose cross product makes arms named by
//! their settings. An arm without settings, and the word `now`, is the machine as it is.

use std::fmt;

/// One setting as typed: knob, value, and perhaps the CPUs it is for (`K@0-3=V`). What it means is
/// for others to say.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ArmSetting {
    /// The knob, `governor`, perhaps with `@CPUS`.
    pub knob: String,
    pub value: String,
}

impl fmt::Display for ArmSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.knob, self.value)
    }
}

/// Settings under a name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Arm {
    /// The name in tables and plots.
    pub name: String,
    /// The settings, in the order typed; none is the machine as it is.
    // The name that run directories have for it.
    #[serde(rename = "wishes")]
    pub settings: Vec<ArmSetting>,
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
    /// Two arms have the same name.
    #[error("two arms are called '{0}'")]
    Twice(String),
    /// A matrix row without values.
    #[error("'{0}' has no values; write --matrix governor=performance,powersave")]
    Row(String),
    /// The cross product is too large.
    #[error("the matrix makes {0} arms; the limit is {most}: use fewer values", most = Arm::MAX)]
    Many(usize),
    /// One arm or none.
    #[error("a comparison needs two arms at least; add --arm now to compare with the machine as it is")]
    Few,
}

impl Arm {
    /// The most arms of one comparison.
    pub const MAX: usize = 64;

    /// The machine as it is.
    pub fn now() -> Arm {
        Arm { name: "now".to_owned(), settings: Vec::new() }
    }

    /// Reads `NAME: K=V K=V`, `K=V K=V` (named by its settings), `NAME:` or `now`.
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
            _ => (Some(text), ""),
        };
        let settings = settings.split_whitespace().map(setting).collect::<Result<Vec<_>, _>>()?;
        let name = match name {
            Some("") | None => join(&settings),
            Some(name) => name.to_owned(),
        };
        if name.is_empty() { Err(ArmError::Empty) } else { Ok(Arm { name, settings }) }
    }

    /// The arms of a comparison: those named, then the matrix's cross product.
    ///
    /// # Errors
    /// As [`Arm::parse`]; names used twice; fewer than two arms, too many.
    pub fn all(arms: &[String], matrix: &[String]) -> Result<Vec<Arm>, ArmError> {
        let mut all = arms.iter().map(|text| Arm::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let mut product: Vec<Vec<ArmSetting>> = vec![Vec::new()];
        for row in matrix {
            let first = setting(row.trim())?;
            let values: Vec<&str> = first.value.split(',').map(str::trim).filter(|v| !v.is_empty()).collect();
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
                            settings
                                .push(ArmSetting { knob: first.knob.clone(), value: (*value).to_owned() });
                        }
                        settings
                    })
                })
                .collect();
        }
        if !matrix.is_empty() {
            all.extend(product.into_iter().map(|settings| {
                if settings.is_empty() { Arm::now() } else { Arm { name: join(&settings), settings } }
            }));
        }
        if all.len() > Arm::MAX {
            return Err(ArmError::Many(all.len()));
        }
        for (index, arm) in all.iter().enumerate() {
            // Reports and resumed comparisons know arms by their names.
            if all[..index].iter().any(|other| other.name == arm.name) {
                return Err(ArmError::Twice(arm.name.clone()));
            }
        }
        if all.len() < 2 { Err(ArmError::Few) } else { Ok(all) }
    }
}

fn setting(word: &str) -> Result<ArmSetting, ArmError> {
    match word.split_once('=') {
        Some((knob, value)) if !knob.trim().is_empty() && !value.trim().is_empty() => {
            Ok(ArmSetting { knob: knob.trim().to_owned(), value: value.trim().to_owned() })
        }
        _ => Err(ArmError::Word(word.to_owned())),
    }
}

fn join(settings: &[ArmSetting]) -> String {
    settings.iter().map(ArmSetting::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arms: &[&str], matrix: &[&str]) -> Result<Vec<String>, ArmError> {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Ok(Arm::all(&own(arms), &own(matrix))?.into_iter().map(|arm| arm.name).collect())
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
    fn impossible_sets_are_refused() {
        assert_eq!(names(&["a:"], &[]), Err(ArmError::Few));
        assert_eq!(names(&["a:", "a: turbo=on"], &[]), Err(ArmError::Twice("a".to_owned())));
        assert_eq!(names(&[], &["turbo=,"]), Err(ArmError::Row("turbo=,".to_owned())));
        let row = format!("max-freq={}", (0..65).map(|i| format!("{i}GHz")).collect::<Vec<_>>().join(","));
        assert_eq!(names(&[], &[&row]), Err(ArmError::Many(65)));
    }
}
