//! The published schemas: what `--json` prints names one of them, and `flyball schema` prints them.
//! They are JSON Schema (draft 2020-12), one file each in `schemas`.

/// A schema with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// Its name and number, as in `"schema": "get/1"`. The number changes only with an incompatible
    /// change; fields may be added without.
    pub id: &'static str,
    /// The schema.
    pub text: &'static str,
}

impl Schema {
    /// The name without the number.
    pub fn name(&self) -> &'static str {
        self.id.split_once('/').map_or(self.id, |(name, _)| name)
    }

    /// The schema with this name, or name and number.
    pub fn find(name: &str) -> Option<&'static Schema> {
        ALL.iter().find(|schema| schema.id == name || schema.name() == name)
    }
}

/// Makes a constant of each file, and the list of them.
macro_rules! schemas {
    ($($constant:ident = $name:literal $number:literal,)*) => {
        $(pub const $constant: Schema = Schema {
            id: concat!($name, "/", $number),
            text: include_str!(concat!("../schemas/", $name, ".json")),
        };)*

        /// Every schema.
        pub const ALL: &[Schema] = &[$($constant),*];
    };
}

schemas! {
    AT_BOOT = "at-boot" 1,
    COMPARE_PLAN = "compare-plan" 1,
    DOCTOR = "doctor" 1,
    DOCTOR_LIST = "doctor-list" 1,
    EXPLAIN = "explain" 1,
    FLEET = "fleet" 1,
    GET = "get" 1,
    HOLD_ADD = "hold-add" 1,
    HOLD_LIST = "hold-list" 1,
    HOLD_REHEARSE = "hold-rehearse" 1,
    HOLD_RELEASE = "hold-release" 1,
    HOLD_STATUS = "hold-status" 1,
    PLAN = "plan" 1,
    PROFILES = "profiles" 1,
    QUIET_BENCH = "quiet-bench" 1,
    QUIET_PLAN = "quiet-plan" 1,
    QUIET_SHIFTS = "quiet-shifts" 1,
    QUIET_STATUS = "quiet-status" 1,
    RECORD = "record" 1,
    REPORT = "report" 1,
    RESTORE = "restore" 1,
    RESTORE_PLAN = "restore-plan" 1,
    RESULTS_ADD = "results-add" 1,
    RESULTS_LIST = "results-list" 1,
    RESULTS_SHIFTS = "results-shifts" 1,
    RESULTS_SHOW = "results-show" 1,
    SELFTEST = "selftest" 1,
    SET = "set" 1,
    SHOW = "show" 1,
    SHOW_KNOBS = "show-knobs" 1,
    SIM_CHECK = "sim-check" 1,
    SIM_LIST = "sim-list" 1,
    SIM_SHOW = "sim-show" 1,
    SST_BASE_FREQ = "sst-base-freq" 1,
    SST_CLASS_OF_CPU = "sst-class-of-cpu" 1,
    SST_CLASSES = "sst-classes" 1,
    SST_CORE_POWER = "sst-core-power" 1,
    SST_DOMAIN = "sst-domain" 1,
    SST_INFO = "sst-info" 1,
    SST_LEVELS = "sst-levels" 1,
    SST_RECOMMEND = "sst-recommend" 1,
    SST_TURBO_FREQ = "sst-turbo-freq" 1,
    SST_TURBO_LIMITS = "sst-turbo-limits" 1,
    TOP = "top" 1,
    TOP_ALERT = "top-alert" 1,
    TRACE_DIAGNOSE = "trace-diagnose" 1,
    TRACE_RECORD = "trace-record" 1,
    TRACE_REPORT = "trace-report" 1,
    TRACE_RUN = "trace-run" 1,
    TUNE = "tune" 1,
    TUNE_FRONT = "tune-front" 1,
    TUNE_PLAN = "tune-plan" 1,
    VERIFY = "verify" 1,
    WHY = "why" 1,

    // Files, not outputs: they say what they are by their names or by fields of their own.
    FILE_JOURNAL = "file-journal" 3,
    FILE_MANIFEST = "file-manifest" 1,
    FILE_PROFILE = "file-profile" 1,
    FILE_PUBLISHED = "file-published" 1,
    FILE_ROUND = "file-round" 1,
    FILE_SNAPSHOT = "file-snapshot" 1,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_says_its_name_and_number() {
        for schema in ALL {
            let read: serde_json::Value = serde_json::from_str(schema.text).unwrap();
            assert_eq!(read["$id"], format!("flyball:{}", schema.id));
            assert!(read["title"].as_str().is_some_and(|title| title.len() > 20), "{}", schema.id);
        }
    }

    #[test]
    fn every_file_of_schemas_is_listed() {
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/schemas")).unwrap();
        let names = files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
        for name in names {
            assert!(Schema::find(&name).is_some(), "{name}.json is not in schema.rs");
        }
    }
}
