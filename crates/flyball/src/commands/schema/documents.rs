//! The published schemas. Generated from the types that commands print with `--json` and write to
//! files. `flyball schema` prints them as JSON Schema, draft 2020-12.

use schemars::{
    JsonSchema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{RecursiveTransform, Transform},
};
use serde_json::{Value as Json, json};

use crate::{
    commands::{self, sst::read},
    output::{Document, Envelope},
};

/// The schema of an output or a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema {
    /// Its name and number.
    pub id: &'static str,
    /// What it describes.
    pub title: &'static str,
    shape: Shape,
    /// Generates the schema of the type, and adds the types that it refers to.
    body: fn(&mut SchemaGenerator) -> schemars::Schema,
}

/// The kind of output that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// An object that names its schema.
    Object,
    /// A list of such objects.
    List,
    /// A file, without an envelope.
    File,
}

impl Schema {
    /// Finds a schema by name, or by name and number.
    pub(crate) fn find(name: &str) -> Option<&'static Schema> {
        let is_named = |id: &str| id == name || id.split_once('/').is_some_and(|(first, _)| first == name);
        ALL.iter().find(|schema| is_named(schema.id))
    }

    /// Generates the JSON Schema, with the types that it refers to.
    pub(crate) fn generate(&self) -> schemars::Schema {
        let mut generator = generator();
        let mut schema = self.within(&mut generator);
        schema.insert("$id".to_owned(), format!("flyball:{}", self.id).into());
        finished(schema, generator)
    }

    fn within(&self, generator: &mut SchemaGenerator) -> schemars::Schema {
        let mut schema = (self.body)(generator);
        if self.shape != Shape::File {
            // Remove the envelope's description.
            schema.remove("description");
            if let Some(id) = schema.pointer_mut("/properties/schema") {
                *id = json!({ "description": "The name and number of this schema.", "const": self.id });
            }
        }
        if self.shape == Shape::List {
            schema = schemars::json_schema!({ "type": "array", "items": schema });
        }
        schema.insert("title".to_owned(), self.title.into());
        schema
    }
}

/// Generates one schema for all outputs and files: an object with a property for each name and
/// number. Types that several of them use are defined once.
pub(crate) fn generate_all() -> schemars::Schema {
    let mut generator = generator();
    let properties: serde_json::Map<String, Json> =
        ALL.iter().map(|schema| (schema.id.to_owned(), schema.within(&mut generator).to_value())).collect();
    let all = schemars::json_schema!({
        "title": "Every output and file of flyball, by the name and number of its schema",
        "type": "object",
        "properties": properties,
    });
    finished(all, generator)
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

/// Adds the types that a schema refers to, and converts doc comments to plain text.
fn finished(mut schema: schemars::Schema, mut generator: SchemaGenerator) -> schemars::Schema {
    if let Some(dialect) = generator.settings().meta_schema.clone() {
        schema.insert("$schema".to_owned(), dialect.into());
    }
    let definitions = generator.take_definitions(false);
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    RecursiveTransform(plain_description).transform(&mut schema);
    RecursiveTransform(never_null_if_absent).transform(&mut schema);
    schema
}

/// Joins the lines of a doc comment, and removes the brackets of its links.
fn plain_description(schema: &mut schemars::Schema) {
    if let Some(Json::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ").replace("[`", "`").replace("`]", "`");
    }
}

/// Removes `null` and the default from fields that may be absent. The types omit such fields
/// (`skip_serializing_if`), but schemars only sees an `Option`.
fn never_null_if_absent(schema: &mut schemars::Schema) {
    let required: Vec<Json> = schema.get("required").and_then(Json::as_array).cloned().unwrap_or_default();
    let Some(Json::Object(properties)) = schema.get_mut("properties") else { return };
    let optional = properties.iter_mut().filter(|(name, _)| !required.contains(&json!(name)));
    for field in optional.filter_map(|(_, field)| field.as_object_mut()) {
        field.remove("default");
        for key in ["type", "anyOf"] {
            let Some(Json::Array(kinds)) = field.get_mut(key) else { continue };
            kinds.retain(|kind| kind != "null" && kind["type"] != "null");
            let [only] = kinds.as_mut_slice() else { continue };
            match only.take() {
                Json::Object(mut only) => {
                    field.remove(key);
                    field.append(&mut only);
                }
                only => {
                    field.insert(key.to_owned(), only);
                }
            }
        }
    }
}

/// Implements [`Document`] for each printed type, and defines the list of all schemas.
macro_rules! schemas {
    ($($(#[$condition:meta])? $shape:ident $name:literal $number:tt $type:ty, $title:literal;)*) => {
        $($(#[$condition])? schemas!(@document $shape $name $number $type);)*

        pub(crate) const ALL: &[Schema] = &[$($(#[$condition])? Schema {
            id: concat!($name, "/", schemas!(@number $number)),
            title: $title,
            shape: schemas!(@shape $shape),
            body: |generator| schemas!(@body $shape $type, generator),
        }),*];
    };
    (@number ($format:expr)) => { $format };
    (@number $number:literal) => { $number };
    (@document file $name:literal $number:tt $type:ty) => {};
    (@document $shape:ident $name:literal $number:tt $type:ty) => {
        impl Document for $type {
            const ID: &'static str = concat!($name, "/", $number);
        }
    };
    (@shape object) => { Shape::Object };
    (@shape list) => { Shape::List };
    (@shape file) => { Shape::File };
    (@body file $type:ty, $generator:ident) => { <$type as JsonSchema>::json_schema($generator) };
    (@body $shape:ident $type:ty, $generator:ident) => {
        <Envelope<'_, $type> as JsonSchema>::json_schema($generator)
    };
}

schemas! {
    object "at-boot" 1 commands::apply::at_boot::AtBoot,
        "What `flyball apply --at-boot` prints";
    object "bisect" 1 flyball_compare::bisect::BisectReport,
        "What `flyball compare --bisect` prints: the commit that changed the metric";
    object "compare-plan" 1 commands::compare::dry_run::DryRun<'_>,
        "What `flyball compare --dry-run` prints: the arms, their writes and the order of the rounds";
    object "doctor" 1 flyball_control::doctor::Report,
        "What `flyball doctor` prints: the findings";
    list "doctor-list" 1 commands::doctor::render::Row,
        "What `flyball doctor --list` prints: the checks";
    list "explain" 1 commands::explain::Explained,
        "What `flyball explain` prints: knobs, facts and profiles";
    object "fleet" 1 commands::report::fleet::Printed<'_>,
        "What `flyball report --fleet` prints, and its `fleet.json`. Changes are fractions of the first arm's value";
    list "get" 1 commands::show::lines::Single<'_>,
        "What `flyball get` prints: an object per knob and place";
    object "hold-add" 1 commands::hold::add::AddedHold<'_>,
        "What `flyball hold add` prints";
    object "hold-check" 1 commands::hold::check::Checked,
        "What `flyball hold check` prints: the entries of a configuration, and what becomes of each here";
    list "hold-list" 1 flyball_hold::HoldStatus,
        "What `flyball hold list` prints: an object per hold";
    object "hold-rehearse" 1 commands::hold::rehearse::Rehearsed,
        "What `flyball hold rehearse` prints: what the service did at each event, and the end";
    object "hold-release" 1 commands::hold::ReleaseOutcome<'_>,
        "What `flyball hold release` prints";
    object "hold-status" 1 flyball_hold::Status,
        "What `flyball hold status` prints: holds, what they hold, and the last drifts";
    object "plan" 1 flyball_control::plan::Plan,
        "What `flyball plan` prints, and every command with --dry-run: the writes in order";
    list "profiles" 1 commands::profiles::Object,
        "What `flyball profiles` prints: the profiles and what this machine can have of each";
    object "quiet-bench" 1 commands::quiet::bench::Measured<'_>,
        "What `flyball quiet bench` prints: the runs with their conditions, and the shifts among them";
    object "quiet-plan" 1 commands::quiet::status::Planned<'_>,
        "What `flyball quiet --dry-run` prints: what would be set";
    list "quiet-shifts" 1 commands::quiet::shifts::SeriesShifts,
        "What `flyball quiet shifts` prints: the shifts in each series";
    object "quiet-status" 1 commands::quiet::status::QuietStatus<'_>,
        "What `flyball quiet status` prints: whether the machine is quiet";
    object "record" 1 flyball_host::Summary,
        "What `flyball record` prints: what the recording holds";
    object "report" 1 flyball_measure::Report,
        "What `flyball report` and `compare` print, and `report.json` of a run directory";
    object "restore" 1 flyball_control::write::transaction::Restored,
        "What `flyball restore` prints: what was undone, and what could not be";
    object "restore-plan" 1 commands::restore::RestorePlan,
        "What `flyball restore --dry-run` prints: what would be restored";
    #[cfg(feature = "parquet")]
    object "results-add" 1 commands::results::data::Sum,
        "What `flyball results add` prints: what was added";
    #[cfg(feature = "parquet")]
    list "results-list" 1 commands::results::data::Listed,
        "What `flyball results list` prints: the inputs of a dataset";
    #[cfg(feature = "parquet")]
    object "results-shifts" 1 flyball_results::shifts::Answer,
        "What `flyball results shifts` prints: shifts over months";
    #[cfg(feature = "parquet")]
    object "results-show" 1 commands::results::data::InputDetails,
        "What `flyball results show` prints: an input of a dataset";
    object "selftest" 1 flyball_measure::selftest::SelftestReport,
        "What `flyball report` of a kernel selftest's CSV file prints";
    object "set" 1 flyball_control::write::transaction::Applied,
        "What `flyball set`, `apply` and the commands of `sst` print: what was changed";
    object "show" 1 commands::show::Whole<'_>,
        "What `flyball show` prints: the machine and its values";
    list "show-knobs" 1 commands::show::lines::Object<'_>,
        "What `flyball show KNOB...` prints: an object per value, with the CPUs that have it";
    object "sim-check" 1 commands::sim::check::Sheet<'_>,
        "What `flyball sim check` prints: published values and those of the simulator";
    list "sim-list" 1 commands::sim::Row,
        "What `flyball sim list` prints: the simulated machines";
    object "sim-show" 1 commands::sim::Sheet,
        "What `flyball sim show` prints: a simulated machine";
    list "sst-base-freq" 1 read::OfDomain<read::LevelBaseFreq>,
        "What `flyball sst base-freq info` prints: an object per power domain";
    list "sst-class-of-cpu" 1 read::ClassOfCpu,
        "What `flyball sst core-power get-assoc` prints: an object per CPU";
    list "sst-classes" 1 read::OfDomain<flyball_sst::model::ClassOfService>,
        "What `flyball sst core-power get-config` prints: an object per power domain and class of service";
    list "sst-core-power" 1 read::OfDomain<read::CorePower>,
        "What `flyball sst core-power info` prints: an object per power domain";
    list "sst-domain" 1 read::OfDomain<read::Single>,
        "What `flyball sst perf-profile get-...` prints: one value per power domain";
    object "sst-info" 1 read::Info,
        "What `flyball sst info` prints: interface, features and power domains";
    list "sst-levels" 1 read::DomainLevel,
        "What `flyball sst perf-profile info` prints: an object per power domain and level";
    list "sst-recommend" 1 flyball_sst::recommend::Candidate,
        "What `flyball sst recommend` prints: what would serve the CPUs, the best first";
    list "sst-turbo-freq" 1 read::OfDomain<read::LevelTurboFreq>,
        "What `flyball sst turbo-freq info` prints: an object per power domain";
    list "sst-turbo-limits" 1 read::OfDomain<read::TurboLimits>,
        "What `flyball sst turbo-mode get-trl` prints: an object per power domain";
    object "top" 1 commands::top::print::Line<'_>,
        "What `flyball top --json` prints, one per line: a moment";
    object "trace-diagnose" 1 commands::trace::diagnose::Output<'_>,
        "What `flyball trace diagnose` prints: the trace and the findings";
    object "trace-record" 1 flyball_trace::live::CaptureSummary,
        "What `flyball trace record` prints: how the recording went";
    object "trace-report" 1 commands::trace::report::Output<'_>,
        "What `flyball trace report` prints: the trace and what happened in it";
    object "trace-run" 1 commands::trace::run::Output<'_>,
        "What `flyball trace run` prints: recording, report and findings";
    object "tune" 1 flyball_tune::Verdict<'_>,
        "What `flyball tune` prints: the chosen settings, and what fresh rounds say of them";
    object "tune-plan" 1 flyball_tune::Record,
        "What `flyball tune -n` prints, and what `search.json` of a run directory holds: the space of a search";
    object "verify" 1 flyball_control::verify::Verdict,
        "What `flyball verify` prints: which settings do not hold, and what may have changed them";
    object "wake" 1 flyball_wake::WakeReport,
        "What `flyball wake` prints: wake-ups, idle states that they left, and what woke CPUs";
    object "wake-probe" 1 flyball_wake::ProbeReport,
        "What `flyball wake --probe` prints: how long wake-ups take, by idle state";
    object "why" 1 commands::why::Answer<'_>,
        "What `flyball why` prints: why each CPU runs no faster";

    // Files: the file name or a field of the file itself tells its kind.
    file "file-journal" (flyball_control::journal_format!()) flyball_control::write::journal::Record,
        "The JSON of a line of the journal, which follows the CRC-32 of the line";
    file "file-manifest" 1 flyball_measure::Manifest,
        "The file `manifest.json` of a run directory: what was compared, how, and on what";
    file "file-profile" 1 flyball_control::profile::Profile,
        "A profile, as TOML: settings for all CPUs, sections for some of them, and optional ones";
    file "file-round" 1 flyball_measure::Round,
        "A line of the file `rounds.jsonl` of a run directory: one run of the workload under one arm";
    file "file-snapshot" 1 flyball_measure::SettingsSnapshot,
        "A file `snapshot-*.json` of a run directory: the settings before or after the rounds of a boot";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_says_its_name_and_number() {
        for schema in ALL {
            let read = schema.generate();
            assert_eq!(read.get("$id").unwrap(), &format!("flyball:{}", schema.id));
            assert!(schema.title.len() > 20, "{}", schema.id);
        }
    }

    /// If two types have the same name, schemars adds a number to the second, which tells readers
    /// nothing.
    #[test]
    fn no_two_types_share_a_name() {
        let all = generate_all();
        let names = all.get("$defs").and_then(Json::as_object).unwrap().keys();
        let numbered: Vec<_> =
            names.filter(|name| name.ends_with(|end: char| end.is_ascii_digit())).collect();
        assert!(numbered.is_empty(), "rename one of the types with #[schemars(rename)]: {numbered:?}");
    }
}
