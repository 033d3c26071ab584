//! The JSON that benchmark tools write.

use serde_json::Value;

use super::model::{Series, SeriesError, error};
use crate::{
    shifts::{Column, Values},
    stats,
};

/// Parses JSON as tools write it: Python's `NaN` and `Infinity`, which JSON does not have, become
/// null.
pub(super) fn parse(text: &str) -> Result<Value, SeriesError> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        // The first error is reported: its position is that of the user's file, not of the replaced
        // text.
        Err(first) if text.contains("NaN") || text.contains("Infinity") => {
            serde_json::from_str(&without_nan(text)).map_err(|_| error(format!("bad JSON: {first}")))
        }
        Err(first) => Err(error(format!("bad JSON: {first}"))),
    }
}

/// The text with `NaN`, `Infinity` and `-Infinity` outside of strings as `null`.
fn without_nan(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if !quoted
            && let Some(word) =
                ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| rest.starts_with(word))
        {
            out.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// A list of numbers, or of objects with a number each and its metadata.
fn list(list: &[Value], value: Option<&str>) -> Result<Series, SeriesError> {
    if list.is_empty() {
        return Err(error("an empty list: no runs"));
    }
    // null replaces NaN and keeps its position, so that runs keep their numbers.
    if list.iter().all(|one| one.is_number() || one.is_null()) {
        let values: Vec<Option<f64>> = list.iter().map(Value::as_f64).collect();
        return Ok(Series::new("value".to_owned(), String::new(), &values, Vec::new()));
    }
    let Some(objects) = list.iter().map(Value::as_object).collect::<Option<Vec<_>>>() else {
        return Err(error("a JSON list is of numbers, or of objects that hold numbers"));
    };
    let mut header: Vec<String> = Vec::new();
    for key in objects.iter().flat_map(|object| object.keys()) {
        if !header.contains(key) {
            header.push(key.clone());
        }
    }
    let cell = |found: Option<&Value>| match found {
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Bool(yes)) => Some(yes.to_string()),
        _ => None,
    };
    let cells =
        header.iter().map(|key| objects.iter().map(|object| cell(object.get(key))).collect()).collect();
    super::table::from_columns(&header, cells, value)
}

/// Recognises the tool by the keys at the top.
pub(super) fn read(value: &Value, column: Option<&str>) -> Result<Vec<Series>, SeriesError> {
    if let Some(runs) = value.as_array() {
        return list(runs, column).map(|series| vec![series]);
    }
    let series = if let Some(results) = value.get("results").and_then(Value::as_array) {
        hyperfine(results)
    } else if let Some(benchmarks) = value.get("benchmarks").and_then(Value::as_array) {
        if benchmarks.iter().any(|benchmark| benchmark.get("runs").is_some()) {
            pyperf(value, benchmarks)
        } else {
            google(benchmarks)
        }
    } else {
        return Err(error(
            "JSON of neither pyperf, hyperfine nor Google Benchmark: no 'benchmarks' or 'results'",
        ));
    };
    let series: Vec<Series> = series.into_iter().filter(|series| !series.values.is_empty()).collect();
    if series.is_empty() { Err(error("JSON of a benchmark tool, but without runs")) } else { Ok(series) }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// The name of the column of hyperfine's exit codes.
pub const EXIT_CODE: &str = "exit code";

/// hyperfine: `results[].times`, seconds, with `exit_codes` and `memory_usage_byte` as metadata.
fn hyperfine(results: &[Value]) -> Vec<Series> {
    results
        .iter()
        .map(|result| {
            let numbers = |key: &str| -> Vec<Option<f64>> {
                result
                    .get(key)
                    .and_then(Value::as_array)
                    .map(|list| list.iter().map(Value::as_f64).collect())
                    .unwrap_or_default()
            };
            let times = numbers("times");
            let mut columns = Vec::new();
            for (key, name, unit) in [("memory_usage_byte", "memory", "bytes"), ("exit_codes", EXIT_CODE, "")]
            {
                let values = numbers(key);
                if values.len() == times.len() && values.iter().any(Option::is_some) {
                    columns.push(Column {
                        name: name.to_owned(),
                        unit: unit.to_owned(),
                        values: Values::Numbers(values),
                    });
                }
            }
            let name = text(result, "command").unwrap_or_default();
            Series::new(name, "s".to_owned(), &times, columns)
        })
        .collect()
}

/// Google Benchmark: `benchmarks[]` with one entry per repetition; aggregates are left out.
fn google(benchmarks: &[Value]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for entry in benchmarks {
        let aggregate = text(entry, "run_type").as_deref() == Some("aggregate");
        let (Some(name), Some(time)) = (text(entry, "name"), entry.get("real_time").and_then(Value::as_f64))
        else {
            continue;
        };
        // Means and deviations are not runs, and a run that failed has the time until its failure.
        if aggregate || entry.get("error_occurred").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        // `run_name` is the same for all repetitions.
        let name = text(entry, "run_name").unwrap_or(name);
        let cpu = entry.get("cpu_time").and_then(Value::as_f64);
        let unit = text(entry, "time_unit").unwrap_or_else(|| "ns".to_owned());
        let slot = match series.iter_mut().position(|s| s.name == name) {
            Some(index) => &mut series[index],
            None => {
                let column = Column {
                    name: "cpu time".to_owned(),
                    unit: unit.clone(),
                    values: Values::Numbers(Vec::new()),
                };
                series.push(Series {
                    name,
                    unit,
                    values: Vec::new(),
                    columns: vec![column],
                    left_out: Vec::new(),
                });
                let last = series.len() - 1;
                &mut series[last]
            }
        };
        slot.values.push(time);
        if let Values::Numbers(values) = &mut slot.columns[0].values {
            values.push(cpu);
        }
    }
    series
}

/// pyperf: one point per run (a process), the median of its values; with the run's metadata. Runs
/// that only calibrate have no values.
fn pyperf(root: &Value, benchmarks: &[Value]) -> Vec<Series> {
    let shared = root.get("metadata");
    benchmarks
        .iter()
        .map(|benchmark| {
            let common = benchmark.get("metadata");
            let named = |key: &str| {
                common
                    .and_then(|metadata| text(metadata, key))
                    .or_else(|| shared.and_then(|metadata| text(metadata, key)))
            };
            let mut values = Vec::new();
            let mut metadata: Vec<&Value> = Vec::new();
            for run in benchmark.get("runs").and_then(Value::as_array).into_iter().flatten() {
                let numbers: Vec<f64> = run
                    .get("values")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_f64)
                    .collect();
                // One point per process: values of one process share its memory layout and hash
                // seed, and are not independent.
                if let Some(median) = stats::median(&numbers) {
                    values.push(median);
                    metadata.push(run.get("metadata").unwrap_or(&Value::Null));
                }
            }
            Series {
                left_out: Vec::new(),
                name: named("name").unwrap_or_else(|| "benchmark".to_owned()),
                unit: match named("unit").as_deref() {
                    None | Some("second") => "s".to_owned(),
                    Some(other) => other.to_owned(),
                },
                values,
                columns: pyperf_columns(&metadata),
            }
        })
        .collect()
}

/// The keys of pyperf's metadata that can explain a shift. Texts such as `0=3588 MHz, 1=3600 MHz`
/// and `coretemp:Package id 0=63 C` become the mean of their numbers.
fn pyperf_columns(metadata: &[&Value]) -> Vec<Column> {
    let mut keys: Vec<&String> =
        metadata.iter().filter_map(|m| m.as_object()).flat_map(|m| m.keys()).collect();
    // Runs may have different keys; sorted, so that the order of columns does not depend on the
    // first run.
    keys.sort();
    keys.dedup();
    let mut columns = Vec::new();
    for key in keys {
        // Times of day and identities change with every run and explain nothing.
        if matches!(key.as_str(), "date" | "duration" | "uptime" | "boot_time") {
            continue;
        }
        let cells: Vec<Option<&Value>> = metadata.iter().map(|m| m.get(key)).collect();
        let (name, unit) = match key.as_str() {
            "cpu_freq" => ("frequency", "MHz"),
            "cpu_temp" => ("temperature", "C"),
            "load_avg_1min" => ("load", ""),
            other => (other, ""),
        };
        let number = |cell: &Value| -> Option<f64> {
            match (cell, key.as_str()) {
                (Value::Number(number), _) => number.as_f64(),
                (Value::String(text), "cpu_freq" | "cpu_temp") => mean_of_readings(text),
                _ => None,
            }
        };
        // A single text among the numbers makes this a column of words: its meaning is not known.
        let values = if cells.iter().flatten().all(|cell| number(cell).is_some()) {
            Values::Numbers(cells.iter().map(|cell| cell.and_then(number)).collect())
        } else {
            Values::Words(cells.iter().map(|cell| cell.and_then(Value::as_str).map(str::to_owned)).collect())
        };
        columns.push(Column { name: name.to_owned(), unit: unit.to_owned(), values });
    }
    columns
}

/// The mean of the numbers after each `=`, GHz taken as 1000 MHz.
fn mean_of_readings(text: &str) -> Option<f64> {
    let mut sum = 0.0;
    let mut count = 0u32;
    for part in text.split(',') {
        let reading = part.rsplit_once('=').map_or(part, |(_, reading)| reading).trim();
        let mut words = reading.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<f64>().ok()) else { continue };
        sum += if words.next() == Some("GHz") { number * 1000.0 } else { number };
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use crate::shifts::Values;

    #[test]
    fn hyperfine_times() {
        let text = r#"{"results":[{"command":"true","times":[0.1,0.2,0.3],"exit_codes":[0,0,0],"memory_usage_byte":[1,2,3]}]}"#;
        let series = read(text.as_bytes(), None).unwrap();
        assert_eq!(series[0].values, [0.1, 0.2, 0.3]);
        assert_eq!(series[0].columns.len(), 2);
    }

    #[test]
    fn google_benchmark_repetitions_without_aggregates() {
        let text = r#"{"context":{},"benchmarks":[
            {"name":"a","run_type":"iteration","real_time":5,"cpu_time":4,"time_unit":"us"},
            {"name":"a","run_type":"iteration","real_time":6,"cpu_time":4,"time_unit":"us"},
            {"name":"a_mean","run_name":"a","run_type":"aggregate","real_time":5.5,"cpu_time":4,"time_unit":"us"}]}"#;
        let series = read(text.as_bytes(), None).unwrap();
        assert_eq!(series.len(), 1);
        assert_eq!((series[0].values.as_slice(), series[0].unit.as_str()), (&[5.0, 6.0][..], "us"));
    }

    #[test]
    fn pyperf_runs_with_frequency_and_temperature() {
        let text = r#"{"version":"1.0","metadata":{"name":"call_simple","unit":"second"},"benchmarks":[{"runs":[
            {"warmups":[[1,0.2]]},
            {"values":[0.0203,0.0205],"metadata":{"cpu_freq":"0=1600 MHz, 1=1.6 GHz","cpu_temp":"coretemp:Package id 0=72 C","load_avg_1min":1.25}},
            {"values":[0.011],"metadata":{"cpu_freq":"0=3400 MHz","cpu_temp":"coretemp:Package id 0=58 C","load_avg_1min":1.0}}]}]}"#;
        let series = &read(text.as_bytes(), None).unwrap()[0];
        assert_eq!(series.values, [0.0204, 0.011]);
        let column =
            |name: &str| series.columns.iter().find(|column| column.name == name).unwrap().values.clone();
        assert_eq!(column("frequency"), Values::Numbers(vec![Some(1600.0), Some(3400.0)]));
        assert_eq!(column("temperature"), Values::Numbers(vec![Some(72.0), Some(58.0)]));
    }
}
