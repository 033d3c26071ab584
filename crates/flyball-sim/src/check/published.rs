//! Published numbers of a machine and a workload under certain settings. `check` compares the
//! models with them; a comparison on the same machine prints them next to its own.

use serde::Serialize;

/// The quantity of a published number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// How long one of the workload's units takes, microseconds.
    Latency,
    /// Power of the whole machine at the wall, watts.
    WallPower,
}

/// One published number.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Published {
    pub source: &'static str,
    /// The machine file that stands for the document's machine.
    pub machine: &'static str,
    /// The workload that stands for the document's.
    pub workload: &'static str,
    /// Which row of its table.
    pub row: &'static str,
    /// The settings of that row, each in the spellings that mean the same.
    pub settings: &'static [&'static [&'static str]],
    /// The measured quantity.
    pub of: Measured,
    /// The number, in the unit of its quantity.
    pub value: f64,
}

impl Published {
    /// Returns whether `settings`, as words, include all settings of the row.
    pub fn is_of(&self, settings: &[String]) -> bool {
        self.settings.iter().all(|spellings| {
            spellings.iter().any(|one| settings.iter().any(|word| word.eq_ignore_ascii_case(one)))
        })
    }
}

const OLD: &[&[&str]] = &[&["governor=performance"], &["epb=0", "epb=performance"]];
const NEW: &[&[&str]] = &[&["governor=powersave"], &["epb=15", "epb=power"]];

const fn storpool(
    row: &'static str,
    settings: &'static [&'static [&'static str]],
    of: Measured,
    value: f64,
) -> Published {
    Published { source: "storpool", machine: "gold-6138", workload: "io-4k", row, settings, of, value }
}

/// All that is known.
pub(super) const PUBLISHED: &[Published] = &[
    storpool("old", OLD, Measured::Latency, 60.0),
    storpool("old", OLD, Measured::WallPower, 150.0),
    storpool("new", NEW, Measured::Latency, 67.0),
    storpool("new", NEW, Measured::WallPower, 100.0),
];

/// Returns the published numbers for a machine under a workload.
pub fn published(machine: &str, workload: &str) -> Vec<&'static Published> {
    PUBLISHED.iter().filter(|one| one.machine == machine && one.workload == workload).collect()
}
