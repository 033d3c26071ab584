//! The content of a fleet's report. Changes are fractions of the first arm's value: -0.05 is 5 %
//! less.

use super::member::{Experiment, Fact, Member};
use crate::{Quantity, Verdict, stats::Interval};

/// The probability of showing the effect that a design is made for.
pub(super) const POWER: f64 = 0.9;

#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct FleetReport {
    pub experiment: Experiment,
    /// The confidence of intervals and verdicts.
    pub confidence: f64,
    pub machines: Vec<MachineReport>,
    /// The effects of each arm but the first in each quantity.
    pub effects: Vec<Effect>,
    /// Directories that could not be used.
    pub skipped: Vec<Skipped>,
    /// Machines that were expected and have no directory.
    pub missing: Vec<String>,
    /// Which machines are left out of which quantity, because values of zero or below have no
    /// ratios.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_ratio: Vec<WithoutRatio>,
    /// Rounds that do not count, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostRounds>,
    /// Which machines are left out of which quantity, because their first arm differs from itself
    /// (`--aa`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlike_itself: Vec<UnlikeItself>,
}

impl FleetReport {
    /// Machines that exist only in software.
    pub fn simulated(&self) -> usize {
        self.machines.iter().filter(|machine| machine.simulated).count()
    }
}

/// A machine that is left out of a quantity, because one of its values is zero or negative.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct WithoutRatio {
    pub arm: usize,
    pub quantity: Quantity,
    pub machine: String,
    pub why: String,
    /// Several machines have such values, so the arm has no effect in this quantity.
    pub withholds: bool,
}

/// Rounds of an arm that do not count in a quantity on a machine: they failed, were disturbed, or
/// have no value.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct LostRounds {
    pub arm: usize,
    pub quantity: Quantity,
    pub machine: String,
    pub lost: usize,
    /// How many rounds the arm has.
    pub rounds: usize,
    /// The same of the first arm.
    pub first_lost: usize,
    pub first_rounds: usize,
    /// Why the first of them does not count.
    pub why: String,
    /// The arms lost so unlike numbers of rounds (Fisher's exact test at 0.2, or all of one arm)
    /// that the arm has no effect on this machine.
    pub uneven: bool,
}

/// A machine whose first arm differs from itself in a quantity.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct UnlikeItself {
    pub machine: String,
    pub quantity: Quantity,
}

/// A directory that could not be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct Skipped {
    pub directory: String,
    pub why: String,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct MachineReport {
    pub machine: String,
    pub directory: String,
    pub simulated: bool,
    /// Blocks with both arms.
    pub pairs: usize,
    /// processor, product, firmware, microcode, kernel, driver.
    pub facts: std::collections::BTreeMap<Fact, String>,
    pub effects: Vec<MachineEffect>,
}

impl MachineReport {
    /// This machine's own measurement of an effect.
    pub fn effect(&self, effect: &Effect) -> Option<&MachineEffect> {
        self.effects.iter().find(|own| (own.arm, own.quantity) == (effect.arm, effect.quantity))
    }

    pub(super) fn new(member: &Member) -> MachineReport {
        MachineReport {
            machine: member.machine.clone(),
            directory: member.directory.clone(),
            simulated: member.simulated,
            pairs: member.pairs,
            facts: member.facts.clone(),
            effects: Vec::new(),
        }
    }
}

/// An arm's effect on one machine.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct MachineEffect {
    pub arm: usize,
    pub quantity: Quantity,
    pub change: f64,
    /// The interval from this machine alone.
    pub interval: Option<Interval>,
    /// Corrected for the number of machines.
    pub verdict: Verdict,
}

/// An arm's effect over the fleet.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Effect {
    pub arm: usize,
    pub quantity: Quantity,
    pub machines: usize,
    pub change: f64,
    /// The unweighted mean over machines, if it lies far from the weighted mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain_change: Option<f64>,
    /// Interval of the unweighted mean. There is a verdict only if both means show a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain_interval: Option<Interval>,
    /// The interval of the mean over machines like these, corrected for the number of arms.
    pub interval: Option<Interval>,
    /// The coarsest rounding step of a machine's values, as a fraction. None if one machine's step
    /// is not known; then there is no interval.
    pub step: Option<f64>,
    /// The p-value of the weighted or of the unweighted mean, whichever is larger.
    pub p: f64,
    /// `p`, corrected for the number of arms.
    pub p_corrected: f64,
    pub verdict: Verdict,
    /// The standard deviation of the machines' true effects, as a fraction.
    pub between: f64,
    /// The share of the scatter that is not the rounds' noise, 0 to 1.
    pub i_squared: f64,
    /// The prediction interval of the effect on the next machine. None if rounds are lost unevenly.
    pub next: Option<Interval>,
    /// The arm and the first arm lost unlike numbers of rounds, on a machine or over all machines.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lost_unevenly: bool,
    /// Machines on which it is better.
    pub better: usize,
    /// Machines on which it is worse.
    pub worse: usize,
    pub undecided: usize,
    /// The lowest and highest mean with one machine left out, each with that machine; null with
    /// fewer than four.
    pub without_one: Option<Lasting>,
    /// The facts that divide the fleet, the surest difference first.
    pub facts: Vec<FactEffect>,
    /// Machines unlike their peers.
    pub odd: Vec<Odd>,
    /// The standard deviation of one pair of rounds, the median over the machines.
    pub noise: f64,
}

/// The lowest and the highest mean with one machine left out, each with that machine's name.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Lasting {
    pub lowest: (String, f64),
    pub highest: (String, f64),
}

/// The fleet divided by a fact.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct FactEffect {
    /// Several, if they divide the fleet in the same way: then the data cannot say which of them
    /// matters.
    pub facts: Vec<Fact>,
    pub p: f64,
    /// `p`, corrected for the number of facts.
    pub p_corrected: f64,
    /// The surest fact of all, and the probability of these differences among the machines that
    /// share it. None for the surest fact itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<(Fact, f64)>,
    pub groups: Vec<GroupEffect>,
}

/// The machines that share a fact.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct GroupEffect {
    /// The value of each of the facts.
    pub values: Vec<String>,
    pub machines: usize,
    pub change: f64,
    /// The interval from these machines alone; none for one machine.
    pub interval: Option<Interval>,
}

/// A machine that is unlike its peers.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Odd {
    pub machine: String,
    pub change: f64,
    /// The mean of its peers.
    pub peers: f64,
    /// The p-value, corrected for the number of machines.
    pub p_corrected: f64,
    /// Fact, its own value, the value of most peers.
    pub differs_in: Vec<(Fact, String, String)>,
}

/// How many machines show an effect with this many rounds of each arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct Pilot {
    pub rounds: u32,
    /// None above a million.
    pub machines: Option<usize>,
}
