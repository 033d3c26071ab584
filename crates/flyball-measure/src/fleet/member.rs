//! One machine of a fleet: its run directory, reduced to what the fleet's report needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use schemars::JsonSchema;
use serde::Serialize;
use strum::VariantArray as _;

use super::LEAST_PAIRS;
use crate::{
    analyse::{ArmReport, Differences, Quantity, are_unlike, differences, is_coarse},
    metric::Metric,
    run_directory::{Manifest, RunDirectory},
    stats::{self, Estimate},
};

/// What was run on every machine.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Experiment {
    /// The name in its file, if it came from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The digest of that file.
    #[serde(skip)]
    pub digest: Option<String>,
    pub workload: String,
    /// The command line, if it was a command.
    pub argv: Vec<String>,
    pub metric: Metric,
    /// The arms, by name with their settings; the first is what the others are compared with.
    pub arms: Vec<(String, Vec<String>)>,
    /// The arms that are the first arm again (`--aa`).
    #[serde(skip)]
    pub controls: Vec<usize>,
}

impl Experiment {
    pub fn new(manifest: &Manifest) -> Experiment {
        let settings = |arm: &crate::Arm| arm.settings.iter().map(ToString::to_string).collect();
        let file = manifest.experiment.clone();
        Experiment {
            name: file.as_ref().map(|file| file.name.clone()),
            digest: file.map(|file| file.digest),
            workload: manifest.workload.name.clone(),
            argv: manifest.workload.argv.clone(),
            metric: manifest.workload.metric.clone(),
            arms: manifest.arms.iter().map(|arm| (arm.name.clone(), settings(arm))).collect(),
            controls: (0..manifest.arms.len()).filter(|arm| manifest.arms[*arm].control).collect(),
        }
    }

    /// The arms that are compared with the first.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> {
        (1..self.arms.len()).filter(|arm| !self.controls.contains(arm))
    }
}

/// A property in which machines of a fleet may differ.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    JsonSchema,
    Serialize,
    strum::VariantArray,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Fact {
    Processor,
    Product,
    Firmware,
    Microcode,
    Kernel,
    Driver,
}

impl Fact {
    pub const ALL: &[Fact] = Fact::VARIANTS;

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One machine's part in the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub machine: String,
    /// Its run directory.
    pub directory: String,
    pub simulated: bool,
    /// Start, in seconds since 1970.
    pub started: u64,
    pub facts: BTreeMap<Fact, String>,
    /// Blocks with the first arm and another one: the maximum over the other arms.
    pub pairs: usize,
    effects: BTreeMap<(usize, Quantity), Known>,
    /// Why there is no effect of an arm in a quantity that was measured.
    without: BTreeMap<(usize, Quantity), String>,
    /// Of the arms but the first.
    pub(super) losses: BTreeMap<(usize, Quantity), Losses>,
    /// Quantities in which the first arm differs from itself (`--aa`).
    pub(super) unlike_itself: BTreeSet<Quantity>,
}

/// An arm's effect on a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Known {
    /// The logarithm of the ratio to the first arm.
    pub(super) estimate: Estimate,
    /// The rounding step of the values. None if it is not known.
    pub(super) step: Option<f64>,
    /// Whether the values are computed from others that come in steps.
    pub(super) is_computed: bool,
}

impl Known {
    /// The p-value of the effect. Rounding of a factor can make or reverse the change of computed
    /// values, so only what is beyond a step counts.
    pub(super) fn p(&self, confidence: f64) -> f64 {
        let found = self.estimate.interval(confidence).map(|found| found.map(f64::exp_m1));
        let step = match (self.is_computed, self.step) {
            (false, _) => 0.0,
            (true, None) => return 1.0,
            (true, Some(step)) => found.filter(|found| is_coarse(*found, step)).map_or(0.0, |_| step),
        };
        let size = (self.estimate.value.abs() - step.ln_1p()).max(0.0);
        Estimate { value: size, ..self.estimate }.p().unwrap_or(1.0)
    }
}

/// Rounds of an arm without a value in a quantity, and how many rounds it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rounds {
    pub(super) lost: usize,
    pub(super) all: usize,
}

impl Rounds {
    fn new(arm: &ArmReport, quantity: Quantity) -> Rounds {
        let all = arm.rounds + arm.left_out.len();
        Rounds { lost: all - arm.summary(quantity).map_or(0, |summary| summary.points.len()), all }
    }

    fn share(self) -> [usize; 2] {
        [self.lost, self.all]
    }

    fn are_none_left(self) -> bool {
        self.lost == self.all
    }
}

/// The rounds that an arm and the first arm lost on a machine, and why the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Losses {
    pub(super) of_first: Rounds,
    pub(super) own: Rounds,
    pub(super) why: String,
}

impl Losses {
    /// None if the quantity was not measured, or if no round of either arm is left.
    fn new(arms: &[ArmReport], arm: usize, quantity: Quantity) -> Option<Losses> {
        let [of_first, own] = [0, arm].map(|arm| Rounds::new(&arms[arm], quantity));
        let have_run = of_first.all > 0 && own.all > 0;
        if !have_run || of_first.are_none_left() && own.are_none_left() {
            return None;
        }
        let why = |arm: usize, rounds: Rounds| {
            let left_out = arms[arm].left_out.first().map(|one| one.why.clone());
            left_out.filter(|_| rounds.lost == arms[arm].left_out.len())
        };
        let (place, rounds) = if own.lost > 0 { (arm, own) } else { (0, of_first) };
        let why = why(place, rounds).unwrap_or_else(|| "the energy is not known".to_owned());
        Some(Losses { of_first, own, why })
    }

    /// Returns whether the arms lost so unlike numbers of rounds that the rest may be a selection.
    pub(super) fn are_uneven(&self) -> bool {
        self.own.are_none_left() != self.of_first.are_none_left()
            || are_unlike(self.own.share(), self.of_first.share())
    }

    /// The probability of numbers as unlike as these by chance.
    pub(super) fn p(&self) -> f64 {
        stats::fisher(self.own.share(), self.of_first.share()).unwrap_or(1.0)
    }
}

/// Why a run directory cannot take part in a fleet's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    #[error("it has one arm")]
    OneArm,
    #[error("it has no rounds")]
    NoRounds,
    #[error("all rounds of all arms failed or were disturbed")]
    NoneLeft,
    #[error("no block has both arms")]
    NoPairs,
    #[error("one block with both arms; {LEAST_PAIRS} are needed")]
    OnePair,
    #[error("{pairs} blocks with both arms; {LEAST_PAIRS} are needed")]
    FewPairs { pairs: usize },
}

#[cfg(test)]
impl Member {
    /// A machine with a known effect in performance only.
    pub(super) fn with_effect(name: String, estimate: Estimate, step: Option<f64>) -> Member {
        Member {
            machine: name,
            directory: String::new(),
            simulated: false,
            started: 0,
            facts: BTreeMap::new(),
            pairs: estimate.freedom as usize + 1,
            effects: [((1, Quantity::Performance), Known { estimate, step, is_computed: false })].into(),
            without: BTreeMap::new(),
            losses: BTreeMap::new(),
            unlike_itself: BTreeSet::new(),
        }
    }

    /// The same machine after its arms lost these rounds of 15.
    pub(super) fn losing(mut self, first: usize, own: usize) -> Member {
        let rounds = |lost| Rounds { lost, all: 15 };
        let why = "the workload failed (exit code 1)".to_owned();
        let losses = Losses { of_first: rounds(first), own: rounds(own), why };
        if losses.are_uneven() {
            self.effects.clear();
        }
        self.losses = [((1, Quantity::Performance), losses)].into();
        self
    }

    /// The same machine with values that are computed from others that come in steps.
    pub(super) fn computed(mut self) -> Member {
        self.effects.values_mut().for_each(|known| known.is_computed = true);
        self
    }

    /// The same machine with values of zero.
    pub(super) fn without_ratio(mut self) -> Member {
        self.effects.clear();
        let why = "b: wall time is zero or negative in 8 rounds".to_owned();
        self.without = [((1, Quantity::Performance), why)].into();
        self
    }
}

impl Member {
    /// Reduces a run directory. A machine without a host's name in its manifest is named after the
    /// directory it lies in.
    ///
    /// # Errors
    /// Why it cannot take part.
    pub fn read(directory: &RunDirectory) -> Result<Member, MemberError> {
        let manifest = &directory.manifest;
        let (mut effects, mut without) = (BTreeMap::new(), BTreeMap::new());
        let mut pairs = 0;
        let (arms, found) = differences(manifest, &directory.rounds);
        let others: Vec<usize> = (1..arms.len()).filter(|arm| !arms[*arm].control).collect();
        let unlike_itself: BTreeSet<Quantity> =
            found.iter().filter(|one| one.is_unlike_itself).map(|one| one.quantity).collect();
        let losses = losses(&manifest.workload.metric, &arms, &others);
        let is_uneven = losses.values().any(Losses::are_uneven);
        for found in found.into_iter().filter(|one| others.contains(&one.arm)) {
            let Differences { quantity, arm, logs, step, is_computed, .. } = found;
            pairs = pairs.max(found.pairs);
            if unlike_itself.contains(&quantity)
                || losses.get(&(arm, quantity)).is_some_and(Losses::are_uneven)
            {
                continue;
            }
            if let Some(why) = found.why_none {
                without.insert((arm, quantity), why);
            }
            let moments = (stats::mean(&logs), stats::standard_deviation(&logs));
            let (Some(value), Some(spread)) = moments else { continue };
            if logs.len() >= LEAST_PAIRS {
                let count = logs.len() as f64;
                let estimate = Estimate { value, error: spread / count.sqrt(), freedom: count - 1.0 };
                effects.insert((arm, quantity), Known { estimate, step, is_computed });
            }
        }
        if effects.is_empty() && without.is_empty() && !is_uneven && unlike_itself.is_empty() {
            let is_none_left = |arm: &ArmReport| arm.rounds == 0 && !arm.left_out.is_empty();
            return Err(match pairs {
                _ if others.is_empty() => MemberError::OneArm,
                0 if directory.rounds.is_empty() => MemberError::NoRounds,
                0 if arms.iter().all(is_none_left) => MemberError::NoneLeft,
                0 => MemberError::NoPairs,
                1 => MemberError::OnePair,
                2.. => MemberError::FewPairs { pairs },
            });
        }
        Ok(Member {
            machine: name(manifest, directory.path()),
            directory: directory.path().display().to_string(),
            simulated: manifest.machine.simulated || manifest.machine.emulated.is_some(),
            started: manifest.boots.first().map_or(0, |boot| boot.started),
            facts: facts(manifest),
            pairs,
            effects,
            without,
            losses,
            unlike_itself,
        })
    }

    /// The arm's effect.
    pub(super) fn effect(&self, arm: usize, quantity: Quantity) -> Option<Known> {
        self.effects.get(&(arm, quantity)).copied()
    }

    /// Why the arm has no effect in a quantity that was measured.
    pub(super) fn why_none(&self, arm: usize, quantity: Quantity) -> Option<&str> {
        self.without.get(&(arm, quantity)).map(String::as_str)
    }
}

/// The rounds that these arms and the first arm lost in each quantity.
fn losses(metric: &Metric, arms: &[ArmReport], others: &[usize]) -> BTreeMap<(usize, Quantity), Losses> {
    let each =
        Quantity::judged(metric).iter().flat_map(|quantity| others.iter().map(move |arm| (*arm, *quantity)));
    each.filter_map(|(arm, quantity)| Some(((arm, quantity), Losses::new(arms, arm, quantity)?))).collect()
}

fn name(manifest: &Manifest, path: &Path) -> String {
    if let Some(name) = &manifest.machine.system.hostname {
        return name.clone();
    }
    // The layout in which tools collect them: HOST/flyball-compare-20260131-120000.
    let parent = path.parent().and_then(Path::file_name).or_else(|| path.file_name());
    parent.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn facts(manifest: &Manifest) -> BTreeMap<Fact, String> {
    let system = &manifest.machine.system;
    let boot = manifest.boots.first();
    let known = [
        (Fact::Processor, Some(manifest.machine.processor.clone())),
        (Fact::Product, system.product.clone()),
        (Fact::Firmware, system.firmware.clone()),
        (Fact::Microcode, system.microcode.clone()),
        (Fact::Kernel, boot.map(|boot| boot.kernel.clone())),
        (Fact::Driver, boot.and_then(|boot| boot.driver.clone())),
    ];
    known.into_iter().filter_map(|(fact, value)| Some((fact, value?))).collect()
}
