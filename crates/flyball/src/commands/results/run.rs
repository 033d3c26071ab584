//! Implements the subcommands of `results`.

use std::collections::BTreeMap;

use flyball_results::{
    Added, Dataset, DatasetError, Input, InputDefaults, Kind, Pick, SkippedFile, Words, find,
    shifts::{Question, shifts as search},
};
use flyball_text::date;

use super::{
    Add, Export, List, Rows, Shifts, Show, Which,
    data::{ArmSummary, InputDetails, Listed, Sum},
    print,
};
use crate::{
    exit::{Exit, Failure},
    output::{self, Reporter},
};

/// Memory and time are not limited as for a single file: a dataset with years of results may take
/// long.
impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Failure {
        let exit = match error {
            DatasetError::Foreign(_) | DatasetError::Missing(_) => Exit::Usage,
            DatasetError::Io { what: "read", .. } => Exit::Usage,
            DatasetError::Io { .. } => Exit::Failed,
            DatasetError::Locked { .. } => Exit::Locked,
        };
        Failure::new(exit, error)
    }
}

impl Which {
    fn pick(&self) -> Result<Pick, Failure> {
        Ok(Pick { host: self.host.clone(), since: self.since.as_deref().map(time).transpose()? })
    }
}

/// Milliseconds since 1970.
fn time(text: &str) -> Result<u64, Failure> {
    date::parse(text).ok_or_else(|| {
        Failure::usage(format!("'{text}' is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z"))
    })
}

pub(super) fn add(output: &Reporter, args: &Add) -> Result<Exit, Failure> {
    let given = InputDefaults { host: args.host.clone(), time: args.time.as_deref().map(time).transpose()? };
    let mut dataset = None;
    let mut sum = Sum { added: Added::default(), skipped: Vec::new() };
    let count = |sum: &mut Sum, new: Added| {
        let all = &mut sum.added;
        all.inputs += new.inputs;
        all.rows += new.rows;
        all.known += new.known;
        all.undated += new.undated;
        all.files += new.files;
    };
    let mut taken = 0;
    let mut notes = Vec::new();
    for path in &args.paths {
        for place in find(path) {
            let path = place.path.display().to_string();
            match Input::read(&place, &given) {
                Ok(input) => {
                    notes.extend(input.warnings.iter().map(|warning| format!("note: {path}: {warning}")));
                    taken += 1;
                    // Created only when there is something to add, so that a rejected input leaves
                    // no empty dataset.
                    let dataset = match &mut dataset {
                        Some(dataset) => dataset,
                        None => dataset.insert(Dataset::create(&args.dataset)?),
                    };
                    count(&mut sum, dataset.add(input)?);
                }
                Err(error) => sum.skipped.push(SkippedFile { path, why: error.to_string() }),
            }
        }
    }
    if let Some(dataset) = &mut dataset {
        count(&mut sum, dataset.flush()?);
    }
    if taken == 0 {
        let reasons: Vec<String> =
            sum.skipped.iter().map(|one| format!("{}: {}", one.path, one.why)).collect();
        return Err(Failure::usage(format!("nothing can be added: {}", reasons.join("; "))));
    }
    say(&notes, "notes");
    output.object(|| &sum, || print::added(&sum))?;
    Ok(Exit::Done)
}

fn inputs(dataset: &Dataset, pick: &Pick) -> Result<(Vec<Listed>, Vec<SkippedFile>), Failure> {
    let mut all: BTreeMap<String, Listed> = BTreeMap::new();
    let mut passed = Vec::new();
    let mut words = Words::default();
    for kind in Kind::ALL {
        let columns = ["id", "host", "time", "source", "benchmark"];
        let new = dataset.read(kind, &columns, pick, &mut words, &mut |part, words| {
            let mut here: BTreeMap<u32, (Listed, std::collections::BTreeSet<u32>)> = BTreeMap::new();
            for &row in &part.rows {
                let Some(id) = part.columns[0].word(row) else { continue };
                let text =
                    |column: usize| part.columns[column].word(row).map(|word| words.text(word).to_owned());
                let time = part.columns[2].integer(row).unwrap_or(0).max(0).cast_unsigned();
                let (listed, benchmarks) = here.entry(id).or_insert_with(|| {
                    let listed = Listed {
                        id: words.text(id).to_owned(),
                        kind,
                        host: text(1).unwrap_or_default(),
                        time,
                        source: text(3).unwrap_or_default(),
                        benchmarks: Vec::new(),
                        rows: 0,
                    };
                    (listed, std::collections::BTreeSet::new())
                });
                listed.rows += 1;
                listed.time = listed.time.min(time);
                benchmarks.extend(part.columns.get(4).and_then(|column| column.word(row)));
            }
            for (mut listed, benchmarks) in here.into_values() {
                listed.benchmarks = benchmarks.iter().map(|word| words.text(*word).to_owned()).collect();
                // Later rounds of a resumed comparison are in another file.
                match all.get_mut(&listed.id) {
                    Some(earlier) => {
                        earlier.rows += listed.rows;
                        earlier.time = earlier.time.min(listed.time);
                    }
                    None => {
                        all.insert(listed.id.clone(), listed);
                    }
                }
            }
        })?;
        passed.extend(new.into_iter().filter(|new| !passed.contains(new)).collect::<Vec<_>>());
    }
    let mut all: Vec<Listed> = all.into_values().collect();
    all.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.id.cmp(&b.id)));
    Ok((all, passed))
}

fn name_passed(passed: &[SkippedFile]) {
    let note = |passed: &SkippedFile| format!("note: {} is passed over: {}", passed.path, passed.why);
    say(&passed.iter().map(note).collect::<Vec<_>>(), "files");
}

/// Prints notes. Thousands of notes usually say the same, so only prints the first ten.
fn say(notes: &[String], what: &str) {
    for note in notes.iter().take(10) {
        eprintln!("{note}");
    }
    if notes.len() > 10 {
        eprintln!("note: the same of {} more {what}", notes.len() - 10);
    }
}

pub(super) fn list(output: &Reporter, args: &List) -> Result<Exit, Failure> {
    let dataset = Dataset::open(&args.dataset)?;
    let (all, passed) = inputs(&dataset, &args.which.pick()?)?;
    name_passed(&passed);
    output.list(|| all.iter().collect(), || print::listed(&all))?;
    Ok(Exit::Done)
}

pub(super) fn show(output: &Reporter, args: &Show) -> Result<Exit, Failure> {
    let dataset = Dataset::open(&args.dataset)?;
    let (all, passed) = inputs(&dataset, &Pick::default())?;
    name_passed(&passed);
    let mut found = all.into_iter().filter(|listed| listed.id.starts_with(&args.id));
    let Some(listed) = found.next().filter(|_| !args.id.is_empty()) else {
        return Err(Failure::usage(format!("there is no input {}; see 'flyball results list'", args.id)));
    };
    if let Some(other) = found.next() {
        return Err(Failure::usage(format!(
            "{} may be {} or {}; give more characters",
            args.id, listed.id, other.id
        )));
    }
    let mut shown = InputDetails {
        facts: BTreeMap::new(),
        settings: BTreeMap::new(),
        results: Vec::new(),
        verdicts: BTreeMap::new(),
        listed,
    };
    let mut words = Words::default();
    let mut columns = vec!["id", "settings"];
    columns.extend(flyball_results::FACTS);
    let facts = columns.len();
    columns.extend(match shown.listed.kind {
        Kind::Rounds => &["benchmark", "arm", "metric", "unit", "warm_up", "failure", "value"][..],
        Kind::Findings => &["verdict"],
        Kind::Settings => &[],
    });
    let pick = Pick { host: Some(shown.listed.host.clone()), since: None };
    let mut values: BTreeMap<[String; 4], Vec<f64>> = BTreeMap::new();
    dataset.read(shown.listed.kind, &columns, &pick, &mut words, &mut |part, words| {
        for &row in &part.rows {
            let text = |column: usize| part.columns[column].word(row).map(|word| words.text(word).to_owned());
            if text(0).as_deref() != Some(&shown.listed.id) {
                continue;
            }
            if let Some(settings) = text(1) {
                shown.settings = serde_json::from_str(&settings).unwrap_or_default();
            }
            let named = flyball_results::FACTS.iter().zip(2..facts);
            shown.facts.extend(named.filter_map(|(name, column)| Some(((*name).to_owned(), text(column)?))));
            match shown.listed.kind {
                Kind::Rounds => {
                    let counts =
                        part.columns[facts + 4].truth(row) != Some(true) && text(facts + 5).is_none();
                    let of = [0, 1, 2, 3].map(|at| text(facts + at).unwrap_or_default());
                    let of = values.entry(of).or_default();
                    of.extend(part.columns[facts + 6].number(row).filter(|_| counts));
                }
                Kind::Findings => *shown.verdicts.entry(text(facts).unwrap_or_default()).or_default() += 1,
                Kind::Settings => {}
            }
        }
    })?;
    shown.results = values
        .into_iter()
        .filter_map(|([benchmark, arm, metric, unit], values)| {
            let median = flyball_measure::stats::median(&values)?;
            Some(ArmSummary { benchmark, arm, metric, unit, rounds: values.len(), median })
        })
        .collect();
    output.object(|| &shown, || print::shown(&shown))?;
    Ok(Exit::Done)
}

pub(super) fn export(output: &Reporter, args: &Export) -> Result<Exit, Failure> {
    if output.is_json() {
        return Err(Failure::usage("export prints CSV; DuckDB, Polars and Spark read the dataset itself"));
    }
    let dataset = Dataset::open(&args.dataset)?;
    let kind = match args.kind {
        Rows::Rounds => Kind::Rounds,
        Rows::Findings => Kind::Findings,
        Rows::Settings => Kind::Settings,
    };
    let columns = kind.columns();
    let names: Vec<&str> = columns.iter().map(|column| column.0).collect();
    let mut printed = output::raw(&(names.join(",") + "\n"));
    let mut words = Words::default();
    let passed = dataset.read(kind, &names, &args.which.pick()?, &mut words, &mut |part, words| {
        let mut lines = String::new();
        for &row in &part.rows {
            let fields =
                columns.iter().enumerate().map(|(index, (_, kind))| part.cell(index, row, words).csv(*kind));
            lines += &(fields.collect::<Vec<_>>().join(",") + "\n");
        }
        if printed.is_ok() {
            printed = output::raw(&lines);
        }
    })?;
    printed?;
    name_passed(&passed);
    Ok(Exit::Done)
}

pub(super) fn shifts(output: &Reporter, args: &Shifts) -> Result<Exit, Failure> {
    // Negated, so that NaN, which is outside every range, is rejected too.
    if !(50.0..=99.99).contains(&args.confidence) {
        return Err(Failure::usage(format!("--confidence {} is not between 50 and 99.99", args.confidence)));
    }
    let dataset = Dataset::open(&args.dataset)?;
    let question = Question {
        pick: args.which.pick()?,
        benchmark: args.benchmark.clone(),
        confidence: args.confidence / 100.0,
        threads: flyball_process::confine::processors().get(),
    };
    let answer = search(&dataset, &question)?;
    name_passed(&answer.passed);
    output.object(|| &answer, || print::shifts(&answer))?;
    Ok(Exit::Done)
}
