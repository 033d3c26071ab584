//! Inputs: recognised by their content, read within size limits, and turned into the rows of one
//! kind.

mod benchmark;
mod report;
mod run;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use flyball_files::read_input;
use flyball_measure::{RecordError, series::SeriesError};
use flyball_table::Cell;
use flyball_text::hex;
use sha2::{Digest as _, Sha256};

use crate::schema::Kind;

/// Maximum size of a file in bytes. A million runs of a benchmark are 20 MB of JSON.
const MAX_FILE: u64 = 64 << 20;

/// Maximum depth of inputs below a given directory: tools collect them as SITE/HOST/RUN.
const DEPTH: usize = 3;

/// Facts from the user for inputs that lack them.
#[derive(Debug, Clone, Default)]
pub struct InputDefaults {
    pub host: Option<String>,
    /// In milliseconds since 1970.
    pub time: Option<u64>,
}

/// An input to add.
#[derive(Debug, Clone)]
pub struct Input {
    pub kind: Kind,
    /// A hash of its identity.
    pub id: String,
    pub host: String,
    /// Milliseconds since 1970.
    pub time: u64,
    /// Whether the content has a time, so that the input has this time whenever it is added.
    pub is_dated: bool,
    /// The rows, with cells in the order of the kind's columns.
    pub rows: Vec<Vec<Cell>>,
    /// Warnings about parts that were skipped.
    pub warnings: Vec<String>,
}

/// Why an input cannot be added.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InputError {
    #[error("{}", flyball_host::words_of(.0))]
    Io(Arc<io::Error>),
    /// A run directory that cannot be read.
    #[error(transparent)]
    Run(Arc<RecordError>),
    #[error("not text: a byte that is not UTF-8 at offset {offset}")]
    NotUtf8 { offset: usize },
    #[error("bad JSON: {0}")]
    Json(Arc<serde_json::Error>),
    /// The output of a benchmark.
    #[error("{}", .0.what)]
    Series(Arc<SeriesError>),
    /// JSON of a flyball command in an unknown schema version.
    #[error("'{name}' JSON of schema {version}; this flyball reads 1")]
    Schema { name: String, version: String },
    #[error("flyball's '{name}' JSON is not stored; add the run directory, 'doctor --json' or 'show --json'")]
    NotStored { name: String },
    /// A path that is not searched, or content that lacks what its kind requires.
    #[error("{0}")]
    Unusable(&'static str),
}

/// Facts that all rows of an input share.
#[derive(Debug, Clone, Default)]
struct About {
    /// The host, if the content names it.
    host: Option<String>,
    /// The name of a simulated machine, which is its host if the user gives no other.
    machine: Option<String>,
    time: Option<u64>,
    simulated: Option<bool>,
    tool: Option<String>,
    /// Facts by the names of their columns.
    facts: BTreeMap<&'static str, String>,
    settings: BTreeMap<String, String>,
}

/// A row: its own time, if it has one, and the cells of its kind.
struct Row {
    time: Option<u64>,
    cells: Vec<Cell>,
}

/// An input whose host and time are not decided yet.
struct ParsedInput {
    kind: Kind,
    about: About,
    /// What distinguishes it from other inputs of its host.
    identity: Vec<u8>,
    rows: Vec<Row>,
    warnings: Vec<String>,
}

/// A path at which an input may be.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub path: PathBuf,
    /// The folder in which it was found, if a directory was given: tools name this folder after the
    /// host.
    pub folder: Option<String>,
    /// An error if it is already known to be unusable.
    pub usable: Result<(), InputError>,
}

/// The run directories and files at or below `path`, in the order of names.
pub fn find(path: &Path) -> Vec<Candidate> {
    let mut found = Vec::new();
    if path.is_dir() {
        walk(path, 0, &mut found);
        if found.is_empty() {
            let why = InputError::Unusable("there is no run directory, .json or .toml file in it");
            found.push(Candidate { path: path.to_owned(), folder: None, usable: Err(why) });
        }
    } else {
        found.push(Candidate { path: path.to_owned(), folder: None, usable: Ok(()) });
    }
    found
}

fn walk(path: &Path, depth: usize, found: &mut Vec<Candidate>) {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut add = |path: &Path, folder: Option<String>, usable| {
        found.push(Candidate { path: path.to_owned(), folder, usable });
    };
    let is_run = path.join("manifest.json").is_file();
    if is_run {
        add(path, path.parent().and_then(name).filter(|_| depth > 0), Ok(()));
    } else if path.join("rounds.jsonl").exists() {
        add(path, None, Err(InputError::Unusable("it has rounds and no manifest.json")));
        return;
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return add(path, None, Err(InputError::Io(Arc::new(error)))),
    };
    let mut entries: Vec<fs::DirEntry> = entries.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (inner, kind) = (entry.path(), entry.file_type());
        let is = |is: fn(&fs::FileType) -> bool| kind.as_ref().is_ok_and(is);
        let file = entry.file_name().to_string_lossy().into_owned();
        if is(fs::FileType::is_dir) {
            // A search contains its confirmation; other files in a run directory are not inputs.
            if depth < DEPTH && (!is_run || file.starts_with("confirm")) {
                walk(&inner, depth + 1, found);
            }
        } else if is(fs::FileType::is_symlink) {
            // It could lead out of the given directory, or in circles.
            let why = InputError::Unusable("links are not followed; give the file or directory itself");
            found.push(Candidate { path: inner, folder: None, usable: Err(why) });
        } else if !is_run && [".json", ".toml"].iter().any(|end| file.ends_with(end)) {
            let is_regular = is(fs::FileType::is_file).then_some(());
            let usable = is_regular.ok_or(InputError::Unusable("not a regular file"));
            found.push(Candidate { path: inner, folder: name(path), usable });
        }
    }
}

impl Input {
    /// Reads a run directory or a file.
    ///
    /// # Errors
    /// Why it cannot be added.
    pub fn read(place: &Candidate, given: &InputDefaults) -> Result<Input, InputError> {
        place.usable.clone()?;
        let path = &place.path;
        if path.is_dir() {
            return run::read(path)?.into_input(place, given, None);
        }
        let io = |error: io::Error| InputError::Io(Arc::new(error));
        let bytes = read_input(path, MAX_FILE).map_err(io)?;
        let changed = fs::metadata(path).and_then(|status| status.modified()).ok();
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let changed = changed.map(|time| time.as_millis() as u64);
        recognise(&bytes)?.into_input(place, given, changed)
    }

    /// Reads an input from a file's content.
    ///
    /// # Errors
    /// Why it cannot be added.
    pub fn from_bytes(bytes: &[u8], given: &InputDefaults) -> Result<Input, InputError> {
        let place = Candidate { path: PathBuf::new(), folder: None, usable: Ok(()) };
        recognise(bytes)?.into_input(&place, given, None)
    }
}

/// Reads the content of a file.
fn recognise(bytes: &[u8]) -> Result<ParsedInput, InputError> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| InputError::NotUtf8 { offset: error.valid_up_to() })?;
    // fio prints notes before its JSON.
    let at = if text.starts_with(['{', '[']) { Some(0) } else { text.find("\n{").map(|at| at + 1) };
    if let Some(json) = at.map(|at| &text[at..])
        && !json.starts_with("[cpus")
        && (json.starts_with('{') || serde_json::from_str::<serde_json::Value>(json).is_ok())
    {
        return parse_json(json);
    }
    report::profile(text)
}

fn parse_json(text: &str) -> Result<ParsedInput, InputError> {
    let value = benchmark::parse(text)?;
    let schema = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
    match schema.split_once('/') {
        Some(("doctor", "1")) => report::doctor(&value, text),
        Some(("show", "1")) => report::show(&value, text),
        Some((name @ ("doctor" | "show"), number)) => {
            Err(InputError::Schema { name: name.to_owned(), version: number.to_owned() })
        }
        Some((name, _)) => Err(InputError::NotStored { name: name.to_owned() }),
        None => benchmark::read(&value, text),
    }
}

impl ParsedInput {
    fn into_input(
        self,
        place: &Candidate,
        given: &InputDefaults,
        changed: Option<u64>,
    ) -> Result<Input, InputError> {
        let ParsedInput { kind, about, identity, rows, warnings } = self;
        let host = about.host.clone().or_else(|| given.host.clone()).or_else(|| place.folder.clone());
        let host = host.or_else(|| about.machine.clone()).filter(|host| !host.is_empty()).ok_or({
            InputError::Unusable(
                "it does not name its host; give --host, or a directory with a folder per host",
            )
        })?;
        let time = about.time.or(given.time).or(changed);
        // Times outside this range come from a clock that was never set, and would be a month of
        // their own.
        let time = time
            .filter(|time| (1..=253_402_300_799_000).contains(time))
            .ok_or(InputError::Unusable("it does not say when it was measured; give --time"))?;
        if rows.is_empty() {
            return Err(InputError::Unusable("it has no results"));
        }
        let mut hash = Sha256::new();
        hash.update(kind.name());
        hash.update([0]);
        hash.update(&host);
        hash.update([0]);
        hash.update(&identity);
        // If the user gives the time, equal settings at another time are another snapshot.
        let said = given.time.filter(|_| about.time.is_none());
        hash.update(said.map(u64::to_le_bytes).unwrap_or_default());
        let id = hex(&hash.finalize()[..16]);
        let settings = serde_json::to_string(&about.settings).unwrap_or_default();
        let settings = (!about.settings.is_empty()).then_some(settings);
        let fact = |name| about.facts.get(name).map(String::as_str).into();
        let source = place.path.display().to_string();
        let common = |time: u64| -> Vec<Cell> {
            vec![
                id.as_str().into(),
                host.as_str().into(),
                time.into(),
                about.simulated.into(),
                source.as_str().into(),
                about.tool.as_deref().into(),
                fact("processor"),
                fact("product"),
                fact("firmware"),
                fact("microcode"),
                fact("kernel"),
                fact("driver"),
                settings.as_deref().into(),
            ]
        };
        let rows = rows.into_iter().map(|row| {
            let mut cells = common(row.time.unwrap_or(time));
            cells.extend(row.cells);
            cells
        });
        let rows = rows.collect();
        Ok(Input {
            kind,
            id: id.clone(),
            host: host.clone(),
            time,
            is_dated: about.time.or(given.time).is_some(),
            rows,
            warnings,
        })
    }
}

/// A hash of the parts that distinguish an experiment from others of the same name.
fn experiment(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update([0]);
    }
    hex(&hash.finalize()[..4])
}

/// Flattens TOML tables to one level: `cpus.0-3.governor`.
fn flatten(prefix: &str, value: &toml::Value, into: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, into);
            }
        }
        toml::Value::String(text) => {
            into.insert(prefix.to_owned(), text.clone());
        }
        other => {
            into.insert(prefix.to_owned(), other.to_string());
        }
    }
}
