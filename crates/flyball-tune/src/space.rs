//! The settings of a search: the product of the `--over` rows, without what the machine rejects.

use std::fmt;

use flyball_control::{
    Intent, IntentError, Knob, KnobName, Setting, UnknownKnob, Value, Wanted,
    quiet::{Level, QuietOptions, QuietPlan},
};
use flyball_host::{Host, KiloHertz, MicroWatts};
use flyball_measure::{Arm, ArmSetting, Settings as _, SettingsError};
use flyball_search::{Factor, Levels, Space};

use flyball_compare::{BootedArms, RunSeeds, UserKnob, arms, user_knobs};

/// The maximum number of settings. Each is planned before the search begins.
const MAX: usize = 2000;

/// The values of a knob that the machine lists.
pub type ValuesOf<'a> = dyn Fn(&Knob) -> Vec<String> + 'a;

/// Why settings cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    #[error("--over {knob} is given twice")]
    TwoRows { knob: String },
    #[error("{size} settings are too many ({rows}); the limit is {MAX}: use fewer values")]
    TooMany { size: usize, rows: String },
    #[error("no combination of these settings is left")]
    Empty,
    /// A value that the machine accepts neither in a combination nor alone.
    #[error("--over {setting}: {cause}{under}")]
    Refused { setting: String, cause: SettingsError, under: Under },
    /// The machine cannot be made quiet, or a simulated machine failed.
    #[error(transparent)]
    Machine(#[from] SettingsError),
    #[error("--without '{text}': write settings, as in 'governor=performance epp=power'")]
    Without { text: String },
    #[error("--over '{text}': write KNOB=VALUES, as in epp=performance,power")]
    NotARow { text: String },
    #[error(
        "--over {knob}: a search does not reboot the machine; search in each boot, and compare the settings found with \
         'flyball compare'"
    )]
    NeedsBoot { knob: String },
    #[error(transparent)]
    Knob(#[from] UnknownKnob),
    #[error(transparent)]
    Value(#[from] IntentError),
    #[error("--over '{text}': {fault}")]
    Row { text: String, fault: RowFault },
    #[error("the search's settings cannot be used: {0:?}")]
    Space(flyball_search::SpaceError),
}

/// The fault in the values of a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    #[error("there is nothing to choose from; name two values")]
    OneValue,
    #[error("this machine lists no values of it ('flyball get {0}' says why); name two")]
    NoneHere(&'static str),
    #[error("{0} is named twice")]
    Twice(String),
    #[error("the values of {knob} are {}", values.join(", "))]
    NotOfKnob { knob: String, values: Vec<String> },
    #[error("write LOW..HIGH:COUNT, with a count from 2 to 100")]
    Count,
    #[error(transparent)]
    End(#[from] IntentError),
    #[error("an end of a range is a number, not '{0}'")]
    EndWord(String),
    #[error("this knob's values have no order; name them")]
    NoOrder,
}

/// The quiet level and its settings, in effect while settings are searched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Under(Option<(Level, String)>);

impl fmt::Display for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((level, settings)) = &self.0 else { return Ok(()) };
        write!(f, " (--quiet={level} sets {settings}; leave it out, or search another knob)")
    }
}

/// The settings of a search. The first arm is the machine as it is.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Searched {
    /// The knobs with their values, and the values' positions if they have an order.
    pub factors: Vec<Row>,
    pub arms: Vec<Arm>,
    /// The index of each arm's value of each factor; unknown for the machine as it is.
    pub levels: Vec<Option<Vec<usize>>>,
    /// Combinations that are not searched, and why.
    pub left_out: Vec<LeftOut>,
}

/// A knob and its values.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[schemars(rename = "Factor")]
pub struct Row {
    pub knob: String,
    pub values: Vec<String>,
    /// Positions of the values on a line, if they have an order.
    pub places: Option<Vec<f64>>,
}

/// A setting that is not searched.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[schemars(rename = "SettingLeftOut")]
pub struct LeftOut {
    pub settings: String,
    pub why: String,
}

impl Searched {
    /// Multiplies the rows and checks each setting with the machine.
    ///
    /// # Errors
    /// Rows that are not settings; too many settings, or none that the machine accepts.
    pub fn new(
        candidates: &Candidates<'_>,
        over: &[String],
        without: &[String],
    ) -> Result<Searched, SpaceError> {
        let factors = over.iter().map(|row| Row::parse(row, candidates)).collect::<Result<Vec<_>, _>>()?;
        for (index, row) in factors.iter().enumerate() {
            if factors[..index].iter().any(|other| other.knob == row.knob) {
                return Err(SpaceError::TwoRows { knob: row.knob.clone() });
            }
        }
        let without = without.iter().map(|text| exclusion(text)).collect::<Result<Vec<_>, _>>()?;
        let size = factors.iter().fold(1_usize, |size, row| size.saturating_mul(row.values.len()));
        if size > MAX {
            let rows: Vec<String> =
                factors.iter().map(|row| format!("{} of {}", row.values.len(), row.knob)).collect();
            return Err(SpaceError::TooMany { size, rows: rows.join(", ") });
        }
        let mut searched =
            Searched { arms: vec![Arm::now()], levels: vec![None], left_out: Vec::new(), factors };
        for number in 0..size {
            let levels = searched.levels_of(number);
            let settings: Vec<ArmSetting> = levels
                .iter()
                .zip(&searched.factors)
                .map(|(level, row)| ArmSetting::new(&row.knob, &row.values[*level]))
                .collect();
            let excluded = without.iter().any(|all| all.iter().all(|one| settings.contains(one)));
            let arm = Arm::unnamed(settings);
            let refused = if excluded {
                Some("--without".to_owned())
            } else {
                candidates.refusal(&arm)?.map(|error| error.to_string())
            };
            match refused {
                Some(why) => searched.left_out.push(LeftOut { settings: arm.name, why }),
                None => {
                    searched.arms.push(arm);
                    searched.levels.push(Some(levels));
                }
            }
        }
        searched.check_values(candidates)?;
        if searched.arms.len() < 2 {
            return Err(SpaceError::Empty);
        }
        Ok(searched)
    }

    /// Rejects a value that the machine accepts in no combination: it is a mistake, not a
    /// combination to leave out.
    fn check_values(&self, candidates: &Candidates<'_>) -> Result<(), SpaceError> {
        for (factor, row) in self.factors.iter().enumerate() {
            for (level, value) in row.values.iter().enumerate() {
                if self.levels.iter().flatten().any(|levels| levels[factor] == level) {
                    continue;
                }
                let arm = Arm::unnamed(vec![ArmSetting::new(&row.knob, value)]);
                let alone = candidates.refusal(&arm)?;
                // If it is possible alone, its combinations are not, or --without leaves them out.
                if let Some(cause) = alone {
                    return Err(SpaceError::Refused { setting: arm.name, cause, under: candidates.under() });
                }
            }
        }
        Ok(())
    }

    /// The levels of the setting with this number; the first knob changes fastest.
    fn levels_of(&self, mut number: usize) -> Vec<usize> {
        let level = |row: &Row| {
            let level = number % row.values.len();
            number /= row.values.len();
            level
        };
        self.factors.iter().map(level).collect()
    }

    pub(crate) fn space(&self) -> Result<Space, SpaceError> {
        let factors: Vec<Factor> = self
            .factors
            .iter()
            .map(|row| Factor {
                name: row.knob.clone(),
                levels: match &row.places {
                    Some(places) => Levels::Ordered(places.clone()),
                    None => Levels::Categories(row.values.len()),
                },
            })
            .collect();
        Space::new(&factors, self.levels.clone(), 0).map_err(SpaceError::Space)
    }
}

/// Everything that decides which settings can be searched.
pub struct Candidates<'a> {
    host: &'a dyn Host,
    values_of: &'a ValuesOf<'a>,
    knobs: &'a [UserKnob],
    /// How the machine is kept quiet under all settings.
    quiet: Option<(&'a QuietOptions, QuietPlan)>,
}

impl<'a> Candidates<'a> {
    pub fn new(
        host: &'a dyn Host,
        values_of: &'a ValuesOf<'a>,
        knobs: &'a [UserKnob],
        quiet: Option<&'a QuietOptions>,
    ) -> Result<Candidates<'a>, SettingsError> {
        let quiet = quiet
            .map(|quiet| Ok::<_, SettingsError>((quiet, QuietPlan::decide(host, quiet)?)))
            .transpose()?;
        Ok(Candidates { host, values_of, knobs, quiet })
    }

    /// Why the machine does not accept an arm.
    fn refusal(&self, arm: &Arm) -> Result<Option<SettingsError>, SettingsError> {
        let Some(software) = self.host.software() else { return Ok(self.plan(arm).err()) };
        // A simulated machine tries the arm: the resulting boot decides which knobs there are.
        let quiet = self.quiet.as_ref().map(|(quiet, _)| (*quiet).clone());
        let mut booted = BootedArms::new(self.host, software, quiet, RunSeeds::default())?;
        let tried = booted.apply(arm);
        booted.restore()?;
        // A plan for the booted machine tells a missing knob from a wrong value.
        Ok(tried.err().map(|tried| self.plan(arm).err().unwrap_or(tried)))
    }

    /// Plans an arm on top of the quiet settings: for example, the governor of a quiet machine
    /// rejects preferences.
    fn plan(&self, arm: &Arm) -> Result<(), SettingsError> {
        let own = arms::intent(arm, &user_knobs::commands(self.knobs))?;
        let mut intent = self.quiet.as_ref().map_or_else(Intent::default, |(_, plan)| plan.intent.clone());
        intent.settings.extend(own.settings);
        arms::plan_now(self.host, &intent).map(drop)
    }

    fn under(&self) -> Under {
        Under(self.quiet.as_ref().map(|(quiet, plan)| {
            let settings: Vec<String> = plan.recipe.settings.iter().map(ToString::to_string).collect();
            (quiet.level, settings.join(" "))
        }))
    }

    fn knob(&self, name: &str) -> Option<&UserKnob> {
        self.knobs.iter().find(|knob| knob.commands.name == name)
    }
}

/// The settings of a `--without`.
fn exclusion(text: &str) -> Result<Vec<ArmSetting>, SpaceError> {
    let settings: Option<Vec<ArmSetting>> = text.split_whitespace().map(ArmSetting::parse).collect();
    settings
        .filter(|settings| !settings.is_empty())
        .ok_or_else(|| SpaceError::Without { text: text.to_owned() })
}

impl Row {
    fn parse(text: &str, candidates: &Candidates<'_>) -> Result<Row, SpaceError> {
        let wrong = |fault: RowFault| SpaceError::Row { text: text.to_owned(), fault };
        let Some((knob, values)) = text.split_once('=') else {
            return Err(SpaceError::NotARow { text: text.to_owned() });
        };
        let (knob, values) = (knob.trim(), values.trim());
        if ["driver", "boot"].contains(&knob) || knob.starts_with("boot:") {
            return Err(SpaceError::NeedsBoot { knob: knob.to_owned() });
        }
        if let Some(user) = candidates.knob(knob) {
            return Row::from_user_knob(text, user, values);
        }
        let bare = knob.split('@').next().unwrap_or(knob);
        let name: KnobName = bare.parse()?;
        let values: Vec<String> = if values == "all" {
            let listed = (candidates.values_of)(name.knob.knob());
            if listed.is_empty() {
                return Err(wrong(RowFault::NoneHere(name.knob.knob().name)));
            }
            listed
        } else if let Some((ends, count)) = values.split_once("..").and_then(|(low, rest)| {
            let (high, count) = rest.rsplit_once(':')?;
            Some(((low, high), count))
        }) {
            range(bare, ends, count).map_err(wrong)?
        } else {
            values.split(',').map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned).collect()
        };
        if values.len() < 2 {
            return Err(wrong(RowFault::OneValue));
        }
        for (index, value) in values.iter().enumerate() {
            Setting::new(bare, value, None, text)?;
            if values[..index].contains(value) {
                return Err(wrong(RowFault::Twice(value.clone())));
            }
        }
        let places = places(bare, &values);
        Ok(Row { knob: knob.to_owned(), values, places })
    }
}

impl Row {
    /// Values of a user's knob, or `all`.
    fn from_user_knob(text: &str, knob: &UserKnob, values: &str) -> Result<Row, SpaceError> {
        let wrong = |fault: RowFault| SpaceError::Row { text: text.to_owned(), fault };
        let values: Vec<String> = match values {
            "all" => knob.values.clone(),
            list => list.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect(),
        };
        for (index, value) in values.iter().enumerate() {
            if !knob.values.contains(value) {
                let (knob, values) = (knob.commands.name.clone(), knob.values.clone());
                return Err(wrong(RowFault::NotOfKnob { knob, values }));
            }
            if values[..index].contains(value) {
                return Err(wrong(RowFault::Twice(value.clone())));
            }
        }
        if values.len() < 2 {
            return Err(wrong(RowFault::OneValue));
        }
        // Numbers are their own positions; words have their positions in the file.
        let numbers: Option<Vec<f64>> =
            values.iter().map(|value| value.parse().ok().filter(|number: &f64| number.is_finite())).collect();
        let in_file =
            |value: &String| knob.values.iter().position(|known| known == value).unwrap_or_default();
        let places = knob
            .ordered
            .then(|| numbers.unwrap_or_else(|| values.iter().map(|value| in_file(value) as f64).collect()));
        Ok(Row { knob: knob.commands.name.clone(), values, places })
    }
}

/// Evenly spaced values of a knob.
fn range(knob: &str, (low, high): (&str, &str), count: &str) -> Result<Vec<String>, RowFault> {
    let count: u32 =
        count.trim().parse().ok().filter(|count| (2..=100).contains(count)).ok_or(RowFault::Count)?;
    let end = |text: &str| {
        let setting = Setting::new(knob, text, None, text)?;
        match setting.wanted {
            Wanted::Exactly(value) => Ok(value),
            _ => Err(RowFault::EndWord(text.to_owned())),
        }
    };
    let (low, high) = (end(low.trim())?, end(high.trim())?);
    let at = |low: u64, high: u64, index: u32| -> u64 {
        let part = f64::from(index) / f64::from(count - 1);
        (low as f64 + (high as f64 - low as f64) * part).round() as u64
    };
    // Steps that people would type: a multiple of 100 MHz or of a watt, if the steps are at least
    // twice that.
    let neat = |value: u64, unit: u64, low: u64, high: u64| {
        let coarse = low.abs_diff(high) / u64::from(count - 1) >= 2 * unit;
        if coarse && value != low && value != high { (value + unit / 2) / unit * unit } else { value }
    };
    (0..count)
        .map(|index| {
            let text = match (&low, &high) {
                (Value::Frequency(low), Value::Frequency(high)) => {
                    let (low, high) = (low.0, high.0);
                    let khz = neat(at(low, high, index), 100_000, low, high);
                    KiloHertz(khz).to_string()
                }
                (Value::Power(low), Value::Power(high)) => {
                    let microwatts = neat(at(low.0, high.0, index), 1_000_000, low.0, high.0);
                    MicroWatts(microwatts).to_string()
                }
                (low, high) => match (place(low), place(high)) {
                    (Some(low), Some(high)) => at(low as u64, high as u64, index).to_string(),
                    _ => return Err(RowFault::NoOrder),
                },
            };
            // As typed, without blanks: settings are words.
            Ok(text.replace(' ', ""))
        })
        .collect()
}

/// Positions of a knob's values, if all of them have one.
fn places(knob: &str, values: &[String]) -> Option<Vec<f64>> {
    let wanted: Vec<Wanted> = values
        .iter()
        .map(|value| Setting::new(knob, value, None, value.as_str()).ok().map(|setting| setting.wanted))
        .collect::<Option<_>>()?;
    // Preferences have an order. The numbers behind the words depend on driver and processor.
    let rank = |wanted: &Wanted| match wanted {
        Wanted::Exactly(Value::Word(word)) => {
            let words = ["performance", "balance_performance", "balance_power", "power"];
            words.iter().position(|known| known == word).map(|rank| rank as f64)
        }
        _ => None,
    };
    if let Some(ranks) = wanted.iter().map(rank).collect() {
        return Some(ranks);
    }
    let known: Vec<f64> = wanted
        .iter()
        .filter_map(|wanted| match wanted {
            Wanted::Exactly(value) => place(value),
            _ => None,
        })
        .collect();
    let low = known.iter().copied().fold(f64::INFINITY, f64::min);
    let high = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // 'min' and 'max' lie one step beyond the named values.
    let apart = if known.len() > 1 { (high - low) / (known.len() - 1) as f64 } else { 1.0 };
    wanted
        .iter()
        .map(|wanted| match wanted {
            Wanted::Exactly(value) => place(value),
            Wanted::Min => Some(if known.is_empty() { 0.0 } else { low - apart }),
            Wanted::Max => Some(if known.is_empty() { 1.0 } else { high + apart }),
            _ => None,
        })
        .collect()
}

/// The position of a value among others of its kind.
fn place(value: &Value) -> Option<f64> {
    Some(match value {
        Value::Frequency(khz) => khz.0 as f64,
        Value::Percent(percent) => f64::from(percent.0),
        Value::Time(micros) => micros.0 as f64,
        Value::Power(microwatts) => microwatts.0 as f64,
        Value::Epb(bias) => f64::from(bias.0),
        Value::Epp(preference) => f64::from(preference.0),
        Value::Perf(perf) => f64::from(perf.0),
        Value::Count(count) => *count as f64,
        _ => return None,
    })
}
