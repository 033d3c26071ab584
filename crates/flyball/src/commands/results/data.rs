//! What `results` prints, as data.

use std::collections::BTreeMap;

use flyball_results::{Added, Kind, SkippedFile};

/// What `add` prints.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Sum {
    #[serde(flatten)]
    pub added: Added,
    /// What was passed over.
    pub skipped: Vec<SkippedFile>,
}

/// An input of the dataset.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Listed {
    pub id: String,
    pub kind: Kind,
    pub host: String,
    /// The first row's, in milliseconds since 1970.
    pub time: u64,
    pub source: String,
    /// The benchmarks; none of findings and settings.
    pub benchmarks: Vec<String>,
    pub rows: usize,
}

/// An input with its facts.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct InputDetails {
    #[serde(flatten)]
    pub listed: Listed,
    /// Processor, firmware and the like, by name.
    pub facts: BTreeMap<String, String>,
    /// Other facts and settings, by name.
    pub settings: BTreeMap<String, String>,
    /// Of each arm and metric the number of rounds that count, and their median.
    pub results: Vec<ArmSummary>,
    /// Of findings, how many of each verdict.
    pub verdicts: BTreeMap<String, usize>,
}

/// Rounds of an arm.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct ArmSummary {
    pub benchmark: String,
    /// The arm; empty if there is none.
    pub arm: String,
    pub metric: String,
    pub unit: String,
    pub rounds: usize,
    pub median: f64,
}
