//! Other tools' results: hyperfine, pyperf, Google Benchmark and fio. The reader of series supplies
//! the values if it knows the tool; this module reads the other facts from the files: time, host
//! and settings.

use std::{collections::BTreeMap, sync::Arc};

use flyball_measure::{
    series::{self, Series},
    shifts::Values,
};
use flyball_table::Cell;
use flyball_text::date;
use serde_json::Value;

use super::{About, InputError, ParsedInput, Row, experiment};
use crate::schema::Kind;

/// Parses a tool's JSON, which may be followed by notes.
pub(super) fn parse(text: &str) -> Result<Value, InputError> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(InputError::Json(Arc::new(error))),
        None => Err(InputError::Unusable("the file is empty")),
    }
}

pub(super) fn read(value: &Value, whole: &str) -> Result<ParsedInput, InputError> {
    if value.get("fio version").is_some() {
        return fio(value, whole);
    }
    let about = match value {
        _ if value.get("results").is_some() => {
            About { tool: Some("hyperfine".to_owned()), ..About::default() }
        }
        _ if value.get("context").is_some() => google(&value["context"]),
        _ if value.get("benchmarks").is_some() => pyperf(value),
        _ => {
            return Err(InputError::Unusable(
                "JSON of none of hyperfine, pyperf, Google Benchmark, fio and flyball",
            ));
        }
    };
    let all = series::read(whole.as_bytes(), None).map_err(|error| InputError::Series(Arc::new(error)))?;
    let mut rows = Vec::new();
    let mut warnings = Vec::new();
    for series in &all {
        if !series.left_out.is_empty() {
            warnings.push(format!(
                "{}: {} runs have no number and are left out",
                series.name,
                series.left_out.len()
            ));
        }
        let result = OneResult {
            benchmark: &series.name,
            metric: "wall time",
            unit: &series.unit,
            better: Some(false),
        };
        let failures = exit_codes(series);
        rows.extend((0_u64..).zip(&series.values).map(|(round, value)| {
            let failure = failures.get(round as usize).and_then(Option::as_deref);
            result.row(round, Some(*value), failure)
        }));
    }
    rows.extend(google_failures(value));
    Ok(ParsedInput { kind: Kind::Rounds, about, identity: whole.as_bytes().to_vec(), rows, warnings })
}

/// Returns how each run of hyperfine failed, if it did: with -i, it records programs that fail.
/// Empty for tools that record no exit codes.
fn exit_codes(series: &Series) -> Vec<Option<String>> {
    let codes = series.columns.iter().find(|column| column.name == series::EXIT_CODE);
    let Some(Values::Numbers(codes)) = codes.map(|column| &column.values) else { return Vec::new() };
    // Without a code, it is not known whether a run failed.
    let failure =
        |code: &Option<f64>| code.filter(|code| *code != 0.0).map(|code| format!("exit code {code}"));
    codes.iter().map(failure).collect()
}

/// A quantity that was measured in some rounds.
struct OneResult<'a> {
    benchmark: &'a str,
    metric: &'a str,
    unit: &'a str,
    /// Whether higher is better.
    better: Option<bool>,
}

impl OneResult<'_> {
    fn row(&self, round: u64, value: Option<f64>, failure: Option<&str>) -> Row {
        let value = value.filter(|value| value.is_finite());
        let scale = match self.unit {
            "s" => Some(1.0),
            "ms" => Some(1e-3),
            "us" => Some(1e-6),
            "ns" => Some(1e-9),
            _ => None,
        };
        let seconds = scale.zip(value).map(|(scale, value)| value * scale);
        let mut cells = vec![
            self.benchmark.into(),
            experiment(&[self.benchmark, self.metric, self.unit]).into(),
            "".into(),
            "".into(),
            0.into(),
            self.metric.into(),
            self.unit.into(),
            self.better.into(),
            round.into(),
            Cell::Absent,
            Cell::Absent,
            false.into(),
            failure.into(),
            value.into(),
            seconds.filter(|_| self.metric == "wall time").into(),
        ];
        cells.resize(Kind::Rounds.own().len(), Cell::Absent);
        Row { time: None, cells }
    }
}

fn text(value: &Value, key: &str) -> Option<String> {
    match value.get(key)? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
        _ => None,
    }
}

/// Returns these fields of an object as settings.
fn settings(value: &Value, names: &[&str]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), text(value, name)?))).collect()
}

fn google(context: &Value) -> About {
    About {
        host: text(context, "host_name"),
        time: text(context, "date").and_then(|date| date::parse(&date)),
        tool: Some("Google Benchmark".to_owned()),
        settings: settings(
            context,
            &[
                "executable",
                "num_cpus",
                "cpu_scaling_enabled",
                "aslr_enabled",
                "library_version",
                "library_build_type",
            ],
        ),
        ..About::default()
    }
}

/// Rows without a value for failed repetitions, which the reader of series leaves out.
fn google_failures(value: &Value) -> Vec<Row> {
    let entries = value.get("benchmarks").and_then(Value::as_array);
    let is_failed = |entry: &&Value| entry.get("error_occurred").and_then(Value::as_bool) == Some(true);
    let row = |entry: &Value| -> Option<Row> {
        let name = text(entry, "run_name").or_else(|| text(entry, "name"))?;
        let unit = text(entry, "time_unit").unwrap_or_else(|| "ns".to_owned());
        let round = entry.get("repetition_index").and_then(Value::as_u64).unwrap_or(0);
        let why =
            text(entry, "error_message").filter(|why| !why.is_empty()).unwrap_or_else(|| "failed".to_owned());
        let result = OneResult { benchmark: &name, metric: "wall time", unit: &unit, better: Some(false) };
        Some(result.row(round, None, Some(&why)))
    };
    entries.into_iter().flatten().filter(is_failed).filter_map(row).collect()
}

fn pyperf(value: &Value) -> About {
    // Metadata that all runs share is at the top. A file of one benchmark may also have it in the
    // benchmark or in its first run.
    let first = value.pointer("/benchmarks/0");
    let run = first.and_then(|first| {
        first.get("runs")?.as_array()?.iter().find(|run| run.get("values").is_some())?.get("metadata")
    });
    let places = [value.get("metadata"), first.and_then(|first| first.get("metadata")), run];
    let find = |name: &str| places.iter().flatten().find_map(|place| text(place, name));
    let mut about = About {
        host: find("hostname"),
        time: find("date").and_then(|date| date::parse(&date)),
        tool: Some(
            find("perf_version")
                .or_else(|| find("pyperf_version"))
                .map_or("pyperf".to_owned(), |version| format!("pyperf {version}")),
        ),
        ..About::default()
    };
    if let Some(processor) = find("cpu_model_name") {
        about.facts.insert("processor", processor);
    }
    // Linux-6.1.0-40-amd64-x86_64-with-glibc2.36
    if let Some(kernel) = find("platform").as_deref().and_then(|platform| platform.strip_prefix("Linux-")) {
        let end = ["-x86_64", "-i686"].iter().filter_map(|machine| kernel.find(machine)).min();
        about.facts.insert("kernel", kernel[..end.unwrap_or(kernel.len())].to_owned());
    }
    for place in places.iter().flatten() {
        let names = ["cpu_config", "cpu_affinity", "python_version", "python_compiler", "aslr", "cpu_count"];
        for (name, value) in settings(place, &names) {
            about.settings.entry(name).or_insert(value);
        }
    }
    about
}

/// fio: throughput, operations per second and completion latency of each job and direction that did
/// something.
fn fio(value: &Value, whole: &str) -> Result<ParsedInput, InputError> {
    let jobs = value.get("jobs").or_else(|| value.get("client_stats")).and_then(Value::as_array);
    let jobs = jobs.ok_or(InputError::Unusable("fio's JSON has no jobs"))?;
    let milliseconds = value.get("timestamp_ms").and_then(Value::as_u64);
    let seconds = value.get("timestamp").and_then(Value::as_u64).and_then(|time| time.checked_mul(1000));
    let mut about = About {
        time: milliseconds.or(seconds).filter(|time| *time > 0),
        tool: text(value, "fio version"),
        ..About::default()
    };
    let mut hosts: Vec<String> = jobs.iter().filter_map(|job| text(job, "hostname")).collect();
    hosts.dedup();
    match hosts.as_slice() {
        [] => {}
        [host] => about.host = Some(host.clone()),
        _ => return Err(InputError::Unusable("results of several clients; give a file for each host")),
    }
    if let Some(options) = value.get("global options").and_then(Value::as_object) {
        let texts =
            options.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        about.settings.extend(texts);
    }
    let mut rows = Vec::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for job in jobs {
        let name = text(job, "jobname").ok_or(InputError::Unusable("a job of fio has no name"))?;
        if name == "All clients" {
            continue;
        }
        let error = job.get("error").and_then(Value::as_i64).filter(|error| *error != 0);
        let failure = error.map(|error| format!("error {error}"));
        let before = rows.len();
        for direction in ["read", "write", "trim"] {
            let Some(part) = job.get(direction) else { continue };
            let number =
                |pointer: &str| part.pointer(pointer).and_then(Value::as_f64).filter(|value| *value > 0.0);
            let benchmark = format!("{name} {direction}");
            let latency = |rest: &str| {
                // Versions before 3 report microseconds.
                let old = number(&format!("/clat{rest}")).map(|value| value * 1e3);
                number(&format!("/clat_ns{rest}")).or(old)
            };
            let results = [
                ("throughput", "B/s", true, number("/bw_bytes").or(number("/bw").map(|kib| kib * 1024.0))),
                ("operations", "1/s", true, number("/iops")),
                ("mean latency", "ns", false, latency("/mean")),
                ("latency 99 %", "ns", false, latency("/percentile/99.000000")),
            ];
            if results.iter().all(|result| result.3.is_none()) {
                continue;
            }
            let count = counts.entry(benchmark.clone()).or_insert(0);
            let round = *count;
            *count += 1;
            for (metric, unit, higher, value) in results {
                let result = OneResult { benchmark: &benchmark, metric, unit, better: Some(higher) };
                rows.extend(value.map(|value| result.row(round, Some(value), failure.as_deref())));
            }
        }
        // A job that failed before it did anything has no direction.
        if failure.is_some() && rows.len() == before {
            let result =
                OneResult { benchmark: &name, metric: "throughput", unit: "B/s", better: Some(true) };
            rows.push(result.row(0, None, failure.as_deref()));
        }
    }
    Ok(ParsedInput {
        kind: Kind::Rounds,
        about,
        identity: whole.as_bytes().to_vec(),
        rows,
        warnings: Vec::new(),
    })
}
