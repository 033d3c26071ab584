//! Reading what suites of benchmarks print or write: a value for each case.
//!
//! If a suite repeats a case within one run, the median of the repetitions is the case's value in
//! that run.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{metric::Better, stats};

/// The placeholder in a command line for the file that the suite writes.
pub(crate) const PLACE: &str = "{suite}";

/// Suites whose results are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// The JSON file of pyperf, and of pyperformance.
    Pyperf,
    /// `--benchmark_format=json` of Google Benchmark.
    GoogleBenchmark,
    /// What criterion prints, and cargo's own benchmarks: `--output-format bencher`.
    Criterion,
    /// `go test -bench`: ns/op.
    Go,
    /// `--export-json` of hyperfine.
    Hyperfine,
    /// Lines of a case and its value.
    Csv,
}

type Adapter = fn(&str) -> Vec<(String, f64)>;

/// The suites: their names, what their results look like, and how they are read, in seconds.
const ADAPTERS: [(&str, Suite, &str, Adapter); 6] = [
    ("pyperf", Suite::Pyperf, "JSON with \"benchmarks\" of \"runs\", printed or written to {suite}", pyperf),
    ("google-benchmark", Suite::GoogleBenchmark, "JSON of --benchmark_format=json", google_benchmark),
    (
        "criterion",
        Suite::Criterion,
        "'CASE time: [LOW MEAN HIGH]' or 'test CASE ... bench: N ns/iter'",
        criterion,
    ),
    ("go", Suite::Go, "lines 'BenchmarkCASE COUNT N ns/op'", go),
    ("hyperfine", Suite::Hyperfine, "JSON of --export-json, printed or written to {suite}", hyperfine),
    ("csv", Suite::Csv, "lines 'CASE,NUMBER'", csv),
];

impl Suite {
    /// The names of all suites.
    pub fn names() -> [&'static str; 6] {
        ADAPTERS.map(|(name, ..)| name)
    }

    pub fn named(name: &str) -> Option<Suite> {
        ADAPTERS.iter().find(|(known, ..)| *known == name).map(|(_, suite, ..)| *suite)
    }

    /// The form of its results.
    pub(crate) fn form(self) -> &'static str {
        ADAPTERS.iter().find(|(_, suite, ..)| *suite == self).map_or("", |(_, _, form, _)| form)
    }

    /// Unit and direction of the cases, if the suite determines them.
    pub fn unit(self) -> Option<(&'static str, Better)> {
        (self != Suite::Csv).then_some(("s", Better::Lower))
    }

    /// Reads the cases of one run.
    pub fn read(self, text: &str) -> BTreeMap<String, f64> {
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let read = ADAPTERS.iter().filter(|(_, suite, ..)| *suite == self).flat_map(|(.., read)| read(text));
        for (name, value) in read.filter(|(_, value)| value.is_finite()) {
            values.entry(name).or_default().push(value);
        }
        values.into_iter().filter_map(|(name, all)| Some((name, stats::median(&all)?))).collect()
    }
}

/// The geometric mean, in which no value counts more than another. Values that are not positive
/// have no ratios and are ignored: cases, stressors or ciphers that do not run print 0.
pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::ln).collect();
    stats::mean(&logs).map(f64::exp)
}

/// The first JSON object in a text, which may follow other output.
fn json(text: &str) -> Value {
    let first = text.find('{').and_then(|start| {
        serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next()?.ok()
    });
    first.unwrap_or_default()
}

fn items<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of[key].as_array().into_iter().flatten()
}

fn pyperf(text: &str) -> Vec<(String, f64)> {
    let file = json(text);
    let of_case = |case: &Value| {
        // Metadata that all benchmarks share are the file's, such as the only name.
        let name = [case, &file].into_iter().find_map(|of| of["metadata"]["name"].as_str());
        let name = name.unwrap_or("benchmark").to_owned();
        let values = items(case, "runs").flat_map(|run| items(run, "values")).filter_map(Value::as_f64);
        values.map(|value| (name.clone(), value)).collect::<Vec<_>>()
    };
    items(&file, "benchmarks").flat_map(of_case).collect()
}

fn google_benchmark(text: &str) -> Vec<(String, f64)> {
    let file = json(text);
    let is = |case: &Value, key: &str, word: &str| case[key].as_str() == Some(word);
    // Older versions have no run types, and no repetitions either.
    let runs = || items(&file, "benchmarks").filter(|case| !is(case, "run_type", "aggregate"));
    let medians = items(&file, "benchmarks").filter(|case| is(case, "aggregate_name", "median"));
    let of_case = |case: &Value| {
        let name = case["run_name"].as_str().or(case["name"].as_str())?;
        let unit = seconds(case["time_unit"].as_str().unwrap_or("ns"))?;
        // A failed case has no time. It gets 0, so that the report names it.
        let failed = case["error_occurred"].as_bool() == Some(true);
        Some((name.to_owned(), if failed { 0.0 } else { case["real_time"].as_f64()? * unit }))
    };
    // --benchmark_report_aggregates_only leaves no single runs.
    if runs().next().is_some() {
        runs().filter_map(of_case).collect()
    } else {
        medians.filter_map(of_case).collect()
    }
}

fn criterion(text: &str) -> Vec<(String, f64)> {
    let mut name = "";
    let mut found = Vec::new();
    for line in text.lines() {
        // test NAME ... bench:   1,234 ns/iter (+/- 5)
        let bencher = line.strip_prefix("test ").and_then(|line| line.split_once(" ... bench:"));
        if let Some((case, rest)) = bencher {
            let value = rest.split_whitespace().next().unwrap_or_default().replace(',', "");
            found.extend(value.parse::<f64>().ok().map(|value| (case.to_owned(), value * 1e-9)));
            continue;
        }
        let Some((before, interval)) = line.split_once("time:   [") else {
            // A long name has a line of its own.
            if !line.starts_with(char::is_whitespace) && !line.trim().is_empty() {
                name = line.trim();
            }
            continue;
        };
        if !before.trim().is_empty() {
            name = before.trim();
        }
        // Low, estimate, high, each with its unit. A change since the last run is in percent.
        let words: Vec<&str> = interval.split_whitespace().collect();
        let estimate = match words.as_slice() {
            [_, _, value, unit, ..] => value.parse::<f64>().ok().zip(seconds(unit)),
            _ => None,
        };
        found.extend(estimate.map(|(value, unit)| (name.to_owned(), value * unit)));
    }
    found
}

fn go(text: &str) -> Vec<(String, f64)> {
    let of_package = |line: &str| line.strip_prefix("pkg:").map(|package| package.trim().to_owned());
    // Packages may have benchmarks with the same name.
    let several = text.lines().filter_map(of_package).nth(1).is_some();
    let mut package = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(name) = of_package(line).filter(|_| several) {
            package = name + ".";
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with("Benchmark") {
            continue;
        }
        let value = words.windows(2).find(|pair| pair[1] == "ns/op").and_then(|pair| pair[0].parse().ok());
        found.extend(value.map(|value: f64| (format!("{package}{}", words[0]), value * 1e-9)));
    }
    found
}

fn hyperfine(text: &str) -> Vec<(String, f64)> {
    let file = json(text);
    let of_case = |case: &Value| {
        let value = case["median"].as_f64().or(case["mean"].as_f64())?;
        Some((case["command"].as_str()?.to_owned(), value))
    };
    items(&file, "results").filter_map(of_case).collect()
}

fn csv(text: &str) -> Vec<(String, f64)> {
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).flexible(true).trim(csv::Trim::All);
    let mut lines = reader.from_reader(text.as_bytes());
    // Lines without a number, such as a heading, belong to no case.
    let of_line = |line: csv::StringRecord| Some((line.get(0)?.to_owned(), line.get(1)?.parse().ok()?));
    lines.records().filter_map(|line| of_line(line.ok()?)).collect()
}

/// The length of a unit of time in seconds.
fn seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ps" => 1e-12,
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(suite: &str, text: &str) -> Vec<(String, f64)> {
        let cases = Suite::named(suite).expect("a suite").read(text);
        // Tenths of a nanosecond, because products of decimals have rounding errors.
        cases.into_iter().map(|(name, value)| (name, (value * 1e10).round() / 10.0)).collect()
    }

    fn own(cases: &[(&str, f64)]) -> Vec<(String, f64)> {
        cases.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn pyperf_is_read() {
        let two = r#"{"benchmarks": [
            {"metadata": {"name": "sort", "loops": 8},
             "runs": [{"metadata": {"calibrate_loops": 8}, "warmups": [[1, 9.0]]},
                      {"values": [1e-6, 3e-6], "warmups": [[8, 9.0]]}, {"values": [2e-6]}]},
            {"metadata": {"name": "telco"}, "runs": [{"values": [5e-6]}]}],
            "metadata": {"cpu_count": 2, "unit": "second"}, "version": "1.0"}"#;
        assert_eq!(read("pyperf", two), own(&[("sort", 2000.0), ("telco", 5000.0)]));
        let one = r#"{"benchmarks": [{"runs": [{"values": [1e-6]}]}], "metadata": {"name": "one"}}"#;
        assert_eq!(read("pyperf", one), own(&[("one", 1000.0)]));
    }

    #[test]
    fn google_benchmark_is_read() {
        let run = r#"{"context": {"num_cpus": 2}, "benchmarks": [
            {"name": "BM_A/8", "run_name": "BM_A/8", "run_type": "iteration", "real_time": 12.0, "cpu_time": 1.0, "time_unit": "ns"},
            {"name": "BM_A/8", "run_name": "BM_A/8", "run_type": "iteration", "real_time": 14.0, "cpu_time": 1.0, "time_unit": "ns"},
            {"name": "BM_A/8_mean", "run_name": "BM_A/8", "run_type": "aggregate", "aggregate_name": "mean", "real_time": 99.0, "time_unit": "ns"},
            {"name": "BM_B", "run_name": "BM_B", "run_type": "iteration", "real_time": 2.5, "time_unit": "us"},
            {"name": "BM_C", "run_type": "iteration", "error_occurred": true, "real_time": 1.0, "time_unit": "us"}]}"#;
        assert_eq!(read("google-benchmark", run), own(&[("BM_A/8", 13.0), ("BM_B", 2500.0), ("BM_C", 0.0)]));
        let aggregates = r#"2026-11-26 Running ./b
            {"benchmarks": [
            {"name": "A_mean", "run_name": "A", "run_type": "aggregate", "aggregate_name": "mean", "real_time": 9.0, "time_unit": "ns"},
            {"name": "A_median", "run_name": "A", "run_type": "aggregate", "aggregate_name": "median", "real_time": 8.0, "time_unit": "ns"}]}"#;
        assert_eq!(read("google-benchmark", aggregates), own(&[("A", 8.0)]));
    }

    #[test]
    fn criterion_is_read() {
        let text = "\
alloc                   time:   [2.5094 ms 2.5306 ms 2.5553 ms]
                        thrpt:  [391.34 MiB/s 395.17 MiB/s 398.51 MiB/s]
                        change: [-38.292% -37.342% -36.524%] (p = 0.00 < 0.05)
                        Performance has improved.
Found 8 outliers among 100 measurements (8.00%)
  4 (4.00%) high mild
a group/with a long name/1024
                        time:   [1.0000 \u{b5}s 1.1000 \u{b5}s 1.2000 \u{b5}s]
                 change:
                        time:   [-2.0000% -1.0000% +0.5000%] (p = 0.20 > 0.05)
test tests::bench_old ... bench:   1,234 ns/iter (+/- 56)
test result: ok. 0 passed; 0 failed; 0 ignored; 1 measured
";
        let want = [("a group/with a long name/1024", 1100.0), ("alloc", 2_530_600.0)];
        let want = own(&[want[0], want[1], ("tests::bench_old", 1234.0)]);
        assert_eq!(read("criterion", text), want);
    }

    #[test]
    fn go_is_read() {
        let text = "goos: linux\npkg: example.org/a\nBenchmarkX-8   \t 100\t  12.5 ns/op\t 8.13 MB/s\t 3 B/op\n\
                    BenchmarkX-8 100 13.5 ns/op\nBenchmarkY\nBenchmarkY-8 5 0.25 ns/op\nPASS\nok example.org/a 1.2s\n";
        assert_eq!(read("go", text), own(&[("BenchmarkX-8", 13.0), ("BenchmarkY-8", 0.3)]));
        let two = "pkg: a\nBenchmarkX 1 1 ns/op\npkg: b\nBenchmarkX 1 2 ns/op\n";
        assert_eq!(read("go", two), own(&[("a.BenchmarkX", 1.0), ("b.BenchmarkX", 2.0)]));
    }

    #[test]
    fn hyperfine_and_csv_are_read() {
        let text = r#"{"results": [{"command": "old", "mean": 2e-6, "median": 1e-6, "times": [1e-6]}]}"#;
        assert_eq!(read("hyperfine", text), own(&[("old", 1000.0)]));
        let text = "case,seconds\n\"a, b\", 1e-6\na,2e-6\na,4e-6\n\nnote\n";
        assert_eq!(read("csv", text), own(&[("a", 3000.0), ("a, b", 1000.0)]));
    }

    #[test]
    fn other_texts_have_no_cases() {
        for suite in Suite::names() {
            for text in ["", "{", "{}", "x\ny", "[1, 2]", r#"{"benchmarks": 3, "results": [{"command": 1}]}"#]
            {
                assert_eq!(read(suite, text), [], "{suite}: {text}");
            }
        }
    }
}
