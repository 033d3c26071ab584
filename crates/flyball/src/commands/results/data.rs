//! The output of `results`, as data.

use std::collections::BTreeMap;

use flyball_results::{Added, Kind, SkippedFile};

/// The output of `add`.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Sum {
    #[serde(flatten)]
    pub added: Added,
    /// Skipped inputs.
    pub skipped: Vec<SkippedFile>,
}

/// An input of the dataset.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Listed {
    pub id: String,
    pub kind: Kind,
    pub host: String,
    /// Time of the first row, milliseconds since 1970.
    pub time: u64,
    pub source: String,
    /// The benchmarks. Empty for findings and settings.
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
    /// The number of counted rounds and their median, for each arm and metric.
    pub results: Vec<ArmSummary>,
    /// The number of findings with each verdict.
    pub verdicts: BTreeMap<String, usize>,
}

/// Rounds of an arm.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct ArmSummary {
    pub benchmark: String,
    /// The arm. Empty if there is none.
    pub arm: String,
    pub metric: String,
    pub unit: String,
    pub rounds: usize,
    pub median: f64,
}
