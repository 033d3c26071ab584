//! The columns of each kind of table, with their meaning. docs/results.md has them as a table,
//! which a test compares.

use schemars::JsonSchema;
use serde::Serialize;

use flyball_table::Kind as Type;

/// The version of the columns, as in `version=1`. Columns may be added within a version. Renaming
/// or removing a column, or changing its meaning, needs a new version.
pub const VERSION: u32 = 1;

/// A kind of table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TableKind")]
pub enum Kind {
    /// A row per round of a benchmark.
    Rounds,
    /// A row per answer of the doctor.
    Findings,
    /// A row per setting of a snapshot.
    Settings,
}

/// A column: its name, what it holds, what it means.
pub(crate) type Column = (&'static str, Type, &'static str);

/// The first columns, which every kind has.
pub const COMMON: [Column; 13] = [
    (
        "id",
        Type::Text,
        "the input that the row comes from: a hash of its host, content and `--time`; a file has all rows of an input",
    ),
    ("host", Type::Text, "the host's name"),
    ("time", Type::Time, "when it was measured; of a file that does not say, when it was written"),
    ("simulated", Type::Truth, "whether the machine exists only in software"),
    ("source", Type::Text, "the path that was added"),
    ("tool", Type::Text, "the program that made the input, with its version"),
    ("processor", Type::Text, "the processor's name"),
    ("product", Type::Text, "vendor and product, as the firmware names them"),
    ("firmware", Type::Text, "the firmware's version"),
    ("microcode", Type::Text, "the microcode's revision"),
    ("kernel", Type::Text, "the kernel's release"),
    ("driver", Type::Text, "the cpufreq driver"),
    (
        "settings",
        Type::Text,
        "other facts and settings as a JSON object of texts: governor, command-line, and what else the input has",
    ),
];

/// Facts among the common columns, without `settings`.
pub const FACTS: [&str; 6] = ["processor", "product", "firmware", "microcode", "kernel", "driver"];

const ROUNDS: [Column; 24] = [
    ("benchmark", Type::Text, "the workload, command or test"),
    ("experiment", Type::Text, "a hash of command line and metric: equal names may be different experiments"),
    ("arm", Type::Text, "the arm of a comparison; empty otherwise"),
    ("arm_settings", Type::Text, "its settings, as typed"),
    ("arm_number", Type::Integer, "its place among the arms; 0 is what the others are compared with"),
    ("metric", Type::Text, "what `value` is: wall time, throughput"),
    ("unit", Type::Text, "the unit of `value`"),
    ("higher_is_better", Type::Truth, "which way is better, if that is known"),
    ("round", Type::Integer, "the round's number in its input, from 0"),
    ("block", Type::Integer, "rounds of one boot and block are compared as pairs"),
    ("boot", Type::Integer, "the boot of the input, from 0"),
    ("warm_up", Type::Truth, "whether it was only to warm up; such rounds do not count"),
    ("failure", Type::Text, "how it failed, if it did (hyperfine: any exit code but 0)"),
    ("value", Type::Exact, "what was measured"),
    ("seconds", Type::Exact, "from start to end"),
    ("energy_j", Type::Exact, "energy of the packages"),
    ("dram_j", Type::Exact, "energy of memory"),
    ("platform_j", Type::Exact, "energy of the whole machine"),
    ("ghz", Type::Exact, "mean frequency while running"),
    ("busy_percent", Type::Exact, "share of time not idle, of the CPUs that the workload may use"),
    ("celsius", Type::Exact, "the highest temperature"),
    ("throttled", Type::Integer, "how often heat throttled CPUs and packages"),
    ("context_switches", Type::Integer, "of the workload, or of the machine if the workload's are not known"),
    ("load", Type::Exact, "load average at the start"),
];

const FINDINGS: [Column; 5] = [
    ("check", Type::Text, "the check, as `flyball doctor --list` names it"),
    ("verdict", Type::Text, "ok, note, warning, fault or unknown"),
    ("what", Type::Text, "the finding in one sentence"),
    ("evidence", Type::Text, "a JSON list of `place` and `value`"),
    ("group", Type::Text, "the check's group"),
];

const SETTINGS: [Column; 4] = [
    ("knob", Type::Text, "the knob"),
    ("cpus", Type::Text, "the CPUs that have this value; empty for all"),
    ("value", Type::Text, "the value"),
    ("unit", Type::Text, "its unit, if it has one"),
];

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Rounds, Kind::Findings, Kind::Settings];

    /// Its name, as in `kind=rounds`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Rounds => "rounds",
            Kind::Findings => "findings",
            Kind::Settings => "settings",
        }
    }

    /// The columns after the common ones.
    pub fn own(self) -> &'static [Column] {
        match self {
            Kind::Rounds => &ROUNDS,
            Kind::Findings => &FINDINGS,
            Kind::Settings => &SETTINGS,
        }
    }

    /// All columns, in order.
    pub fn columns(self) -> Vec<(&'static str, Type)> {
        COMMON.iter().chain(self.own()).map(|(name, kind, _)| (*name, *kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for kind in Kind::ALL {
            let mut names: Vec<&str> = kind.columns().iter().map(|column| column.0).collect();
            names.extend(["version", "kind", "month"]);
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{kind:?}");
        }
    }
}
