//! The explanation of a group of CPUs: the waterfall with its evidence.

use flyball_host::CpuList;
use serde::Serialize;

use crate::{Cap, Certainty, Limiter, Proof, State};

/// Why CPUs ran as fast as they did. The steps and [`Explanation::rest`] add up to the difference
/// of the two frequencies.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Explanation {
    /// CPUs limited in the same way. The numbers are their means.
    pub cpus: CpuList,
    pub state: State,
    /// Share of the time in which they ran.
    pub busy: Option<f64>,
    /// The highest frequency of their hardware, MHz, and where that was read.
    pub highest: Option<f64>,
    pub highest_from: String,
    /// The mean frequency while they ran, MHz.
    pub mhz: Option<f64>,
    /// In the order in which the limits take effect.
    pub steps: Vec<Step>,
    /// The part of the difference that no step explains: rounding and measurement error, MHz.
    pub rest: f64,
    /// Every limit below the highest frequency that is a known frequency, even if it cost nothing.
    pub limits: Vec<Cap>,
    /// The index in [`Explanation::limits`] of the limit that the CPU exceeded because its SMT
    /// sibling has a higher one.
    #[serde(skip)]
    pub(super) unheld: Option<usize>,
    /// Share of the cycles that did not wait for memory, if the processor counts them.
    pub productive: Option<f64>,
    /// Share of the time in each idle state, by name.
    pub idle: Vec<(String, f64)>,
}

/// How much one limit cost.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
#[schemars(rename = "LimitStep")]
pub struct Step {
    pub limiter: Limiter,
    /// Mean loss over the time in which the CPU ran, MHz.
    pub mhz: f64,
    /// Share of the running time in which the limit applied.
    pub share: f64,
    pub evidence: Proof,
    pub certainty: Certainty,
    /// The knob that changes the limit.
    pub knob: Option<&'static str>,
    /// Who set the knob, if known.
    pub by: Option<String>,
}

impl Step {
    /// Returns the reason's name, with a question mark if the evidence does not show it.
    pub fn name(&self) -> String {
        let mark = if self.certainty == Certainty::Measured { "" } else { "?" };
        format!("{}{mark}", self.limiter)
    }
}

/// Maximum frequency difference within a group, as a share.
const NEAR: f64 = 0.015;

impl Explanation {
    /// Returns whether both were limited in the same way.
    pub(super) fn is_like(&self, other: &Explanation) -> bool {
        let limiters = |one: &Explanation| one.steps.iter().map(|step| step.limiter).collect::<Vec<_>>();
        let near = |one: Option<f64>, other: Option<f64>, room: f64| match (one, other) {
            (Some(one), Some(other)) => (one - other).abs() <= room,
            (one, other) => one.is_none() && other.is_none(),
        };
        let room = NEAR * self.highest.unwrap_or(0.0);
        self.state == other.state
            && near(self.highest, other.highest, 0.5)
            && near(self.mhz, other.mhz, room)
            && near(self.busy, other.busy, 0.1)
            && limiters(self) == limiters(other)
            && self.unheld.is_some() == other.unheld.is_some()
            // Without a speed, only the limits can differ.
            && (self.mhz.is_some() || self.limits == other.limits)
    }

    /// Merges a similar group into this one. The numbers become means.
    pub(super) fn join(&mut self, other: &Explanation) {
        let (old, new) = (self.cpus.len() as f64, other.cpus.len() as f64);
        let mean = |one: f64, other: f64| (one * old + other * new) / (old + new);
        let both = |one: &mut Option<f64>, other: Option<f64>| {
            *one = one.zip(other).map(|(one, other)| mean(one, other));
        };
        both(&mut self.busy, other.busy);
        both(&mut self.highest, other.highest);
        both(&mut self.mhz, other.mhz);
        both(&mut self.productive, other.productive);
        self.rest = mean(self.rest, other.rest);
        for (step, others) in self.steps.iter_mut().zip(&other.steps) {
            step.mhz = mean(step.mhz, others.mhz);
            step.share = mean(step.share, others.share);
        }
        for (idle, others) in self.idle.iter_mut().zip(&other.idle) {
            idle.1 = mean(idle.1, others.1);
        }
        self.cpus.add(&other.cpus);
    }

    /// Returns the deciding limit: the last one with a noticeable cost. Removing only earlier ones
    /// would not make the CPU faster. If every cost is small, returns the largest.
    pub fn deciding(&self) -> Option<&Step> {
        let noticeable = NEAR * self.highest.unwrap_or(0.0);
        let last = self.steps.iter().rfind(|step| step.mhz >= noticeable);
        last.or_else(|| self.first())
    }

    /// Returns the step with the largest cost.
    pub fn first(&self) -> Option<&Step> {
        self.steps.iter().max_by(|one, other| one.mhz.total_cmp(&other.mhz))
    }

    /// Returns the limit that the CPU exceeded because its SMT sibling has a higher one.
    pub(crate) fn unheld(&self) -> Option<&Cap> {
        self.limits.get(self.unheld?)
    }
}
