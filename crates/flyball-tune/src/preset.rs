//! Spaces and goals for a purpose: the options that `--preset` expands to on this machine.

use std::str::FromStr;

use flyball_control::{Id, Snapshot};
use flyball_host::{Host, KiloHertz};
use flyball_measure::{Better, Metric};

use crate::{goal::SearchRequest, space::ValuesOf};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Preset {
    Efficiency,
    Latency,
    /// Watts.
    PowerCap(f64),
}

impl FromStr for Preset {
    type Err = PresetError;

    fn from_str(text: &str) -> Result<Preset, PresetError> {
        match (text, text.strip_prefix("power-cap=")) {
            ("efficiency", _) => Ok(Preset::Efficiency),
            ("latency", _) => Ok(Preset::Latency),
            (_, Some(watts)) => watts
                .trim_end_matches('W')
                .parse()
                .ok()
                .filter(|watts: &f64| watts.is_finite() && *watts > 0.0)
                .map(Preset::PowerCap)
                .ok_or(PresetError::Watts),
            _ => Err(PresetError::Word),
        }
    }
}

/// Why a preset cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    #[error("write efficiency, latency or power-cap=WATTS")]
    Word,
    #[error("write power-cap=WATTS, as power-cap=60")]
    Watts,
    #[error("this machine has none of the knobs of this preset; name knobs with --over")]
    NoKnobs,
}

impl Preset {
    /// The options that the preset expands to.
    ///
    /// # Errors
    /// A machine that has none of the knobs.
    pub fn expand(
        self,
        host: &dyn Host,
        values_of: &ValuesOf<'_>,
        metric: &Metric,
    ) -> Result<SearchRequest, PresetError> {
        // If the metric is a rate, the load may run for a fixed time.
        let more_is_better = metric.better == Better::Higher;
        let limit = match self {
            Preset::Efficiency if more_is_better => Some("performance >= -5%".to_owned()),
            Preset::Efficiency => Some("time <= +5%".to_owned()),
            Preset::Latency => None,
            Preset::PowerCap(watts) => Some(format!("power <= {watts}")),
        };
        let (minimize, maximize) = match self {
            Preset::Efficiency => (Some("energy".to_owned()), None),
            Preset::Latency | Preset::PowerCap(_) if more_is_better => (None, Some("performance".to_owned())),
            Preset::Latency | Preset::PowerCap(_) => (Some("time".to_owned()), None),
        };
        let mut over = Vec::new();
        // Latency depends on how fast clocks rise and cores wake, the others on how high clocks go.
        let listed: &[Id] = match self {
            Preset::Latency => &[Id::Epp, Id::Governor, Id::Turbo],
            Preset::Efficiency | Preset::PowerCap(_) => &[Id::Epp],
        };
        for knob in listed {
            let values = values_of(knob.knob());
            // 'default' is an alias of another value (drivers/cpufreq/intel_pstate.c,
            // energy_perf_strings).
            let values: Vec<String> = values.into_iter().filter(|value| value != "default").collect();
            if values.len() > 1 {
                over.push(format!("{knob}={}", values.join(",")));
            }
        }
        if self != Preset::Latency {
            over.extend(frequencies(host));
        }
        if over.is_empty() {
            return Err(PresetError::NoKnobs);
        }
        Ok(SearchRequest { over, minimize, maximize, subject_to: limit })
    }
}

/// Five maximum frequencies from 40 % of the range up: below that, time grows as clocks fall, and
/// nothing is saved.
fn frequencies(host: &dyn Host) -> Option<String> {
    let snapshot = Snapshot::take_knobs(host, &[Id::HwMinFreq, Id::HwMaxFreq]).ok()?;
    let read = |knob: Id| {
        let policy = snapshot.places(knob).ok()?.first()?;
        Some(snapshot.value_if_readable(knob, policy).ok()??.frequency()?.0)
    };
    let (low, high) = (read(Id::HwMinFreq)?, read(Id::HwMaxFreq)?);
    let from = low + high.checked_sub(low)? * 2 / 5;
    let typed = |khz: u64| KiloHertz(khz).to_string().replace(' ', "");
    // A multiple of 100 MHz, like the other values of the range.
    (high > from).then(|| format!("max-freq={}..{}:5", typed(from / 100_000 * 100_000), typed(high)))
}
