//! Thousands of series with known shifts, and the table of columns in docs/results.md.

use std::fmt::Write as _;

use flyball_results::{
    COMMON, Dataset, Input, InputDefaults, Kind, Pick,
    shifts::{Answer, Question, shifts},
};
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, StandardNormal};

const HOSTS: usize = 40;
const BENCHMARKS: usize = 50;
const RUNS: usize = 60;
const DAY: u64 = 86_400_000;

/// Series of lognormal values; `level` returns by how much each run of a series is slower.
/// Neighbours correlate by `correlation`.
fn searched(seed: u64, correlation: f64, level: impl Fn(usize, usize) -> f64) -> Answer {
    let folder = tempfile::tempdir().expect("a folder");
    let mut dataset = Dataset::create(folder.path()).expect("a dataset");
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut wander = vec![0.0; HOSTS * BENCHMARKS];
    for run in 0..RUNS {
        for host in 0..HOSTS {
            let mut results = Vec::new();
            for benchmark in 0..BENCHMARKS {
                let series = host * BENCHMARKS + benchmark;
                let noise: f64 = StandardNormal.sample(&mut rng);
                wander[series] = correlation * wander[series] + noise;
                let value = (0.01 * wander[series] + level(series, run)).exp();
                results.push(format!(r#"{{"command":"b{benchmark}","times":[{value}]}}"#));
            }
            let json = format!(r#"{{"results":[{}]}}"#, results.join(","));
            let given = InputDefaults {
                host: Some(format!("node{host:02}")),
                time: Some(20_454 * DAY + run as u64 * 7 * DAY),
            };
            let input = Input::from_bytes(json.as_bytes(), &given).expect("hyperfine's JSON");
            dataset.add(input).expect("room");
        }
    }
    dataset.flush().expect("room");
    let question = Question { pick: Pick::default(), benchmark: None, confidence: 0.99, threads: 2 };
    let answer = shifts(&dataset, &question).expect("a dataset that can be read");
    assert_eq!((answer.series, answer.rounds), (HOSTS * BENCHMARKS, HOSTS * BENCHMARKS * RUNS));
    answer
}

#[test]
fn of_thousands_of_series_without_a_shift_none_or_hardly_one_is_named() {
    let mut datasets = 0;
    let mut series = 0;
    for seed in 0..4 {
        // Half of them wander from run to run.
        let answer = searched(seed, if seed % 2 == 0 { 0.0 } else { 0.5 }, |_, _| 0.0);
        datasets += usize::from(!answer.shifted.is_empty());
        series += answer.shifted.len();
    }
    println!(
        "{series} of {} series without a shift were named, in {datasets} of 4 datasets",
        4 * HOSTS * BENCHMARKS
    );
    // The expected number of datasets is 0.04.
    assert!(datasets <= 1 && series <= 3, "{series} series in {datasets} datasets");
}

#[test]
fn planted_shifts_are_found_at_their_place() {
    // A hundred of 2000 series change by five of their deviations, at various places.
    let at = |series: usize| series.is_multiple_of(20).then(|| 20 + series / 20 % 20);
    let answer =
        searched(99, 0.0, |series, run| if at(series).is_some_and(|at| run >= at) { 0.05 } else { 0.0 });
    let series = |host: &str, benchmark: &str| {
        host[4..].parse::<usize>().unwrap() * BENCHMARKS + benchmark[1..].parse::<usize>().unwrap()
    };
    let (mut found, mut placed, mut wrong) = (0, 0, 0);
    for shifted in &answer.shifted {
        match at(series(&shifted.host, &shifted.benchmark)) {
            None => wrong += 1,
            Some(at) => {
                found += 1;
                let first = 20_454 * DAY + at as u64 * 7 * DAY;
                let mut places = shifted.changes.iter();
                placed += usize::from(places.any(|place| place.before < first && first <= place.after));
            }
        }
    }
    println!(
        "{found} of 100 planted shifts named, {placed} between the named runs; {wrong} of 1900 others named"
    );
    assert!(found >= 92 && placed >= found - 8 && wrong <= 4, "{found} {placed} {wrong}");
}

/// A time of 20 % more is a rate of 17 % less: they have no common mean.
#[test]
fn unlike_units_and_ways_have_rows_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut dataset = Dataset::create(folder.path()).expect("a dataset");
    let column =
        |name: &str| Kind::Rounds.columns().iter().position(|column| column.0 == name).expect("a column");
    let hosts =
        [("s", 1.2, false), ("s", 1.2, false), ("ms", 1.2, false), ("op/s", 0.8, true), ("s", 0.8, true)];
    for run in 0..30_u32 {
        for (number, (unit, factor, better)) in hosts.into_iter().enumerate() {
            let value = if run < 15 { 1.0 } else { factor } * (1.0 + 0.001 * f64::from(run * 7 % 5));
            let json = format!(r#"{{"results":[{{"command":"b","times":[{value}]}}]}}"#);
            let given = InputDefaults {
                host: Some(format!("node{number}")),
                time: Some((20_454 + u64::from(run)) * DAY),
            };
            let mut input = Input::from_bytes(json.as_bytes(), &given).expect("hyperfine's JSON");
            for row in &mut input.rows {
                row[column("unit")] = unit.into();
                row[column("higher_is_better")] = flyball_table::Cell::Truth(better);
                row[column("firmware")] = if run < 15 { "1.2" } else { "1.3" }.into();
            }
            dataset.add(input).expect("room");
        }
    }
    dataset.flush().expect("room");
    let question = Question { pick: Pick::default(), benchmark: None, confidence: 0.99, threads: 1 };
    let answer = shifts(&dataset, &question).expect("a dataset that can be read");
    let mut rows: Vec<_> = answer
        .with
        .iter()
        .map(|with| (with.unit.as_str(), with.higher_is_better, with.shifted, with.of, with.worse))
        .collect();
    rows.sort_unstable();
    assert_eq!(
        rows,
        [
            ("ms", Some(false), 1, 1, Some(1)),
            ("op/s", Some(true), 1, 1, Some(1)),
            ("s", Some(false), 2, 2, Some(2)),
            ("s", Some(true), 1, 1, Some(1)),
        ]
    );
    for with in &answer.with {
        let expected = if with.higher_is_better == Some(true) { -0.2 } else { 0.2 };
        assert!((with.change.expect("a change") - expected).abs() < 0.01, "{with:?}");
    }
}

#[test]
fn what_failed_without_a_value_is_a_row() {
    let google = r#"{"context":{"host_name":"a","date":"2026-01-31T12:00:00+00:00"},"benchmarks":[
        {"name":"b","run_name":"b","run_type":"iteration","real_time":5.0,"time_unit":"ns"},
        {"name":"c","run_name":"c","run_type":"iteration","error_occurred":true,"error_message":"no input","real_time":0.0,
         "time_unit":"ns"}]}"#;
    let fio = r#"{"fio version":"fio-3.33","timestamp_ms":1769860800000,"jobs":[
        {"jobname":"j","hostname":"a","error":5,"read":{"bw_bytes":0,"iops":0.0},"write":{"bw_bytes":0,"iops":0.0}}]}"#;
    let column =
        |name: &str| Kind::Rounds.columns().iter().position(|column| column.0 == name).expect("a column");
    for (json, rows, benchmark, failure) in [(google, 2, "c", "no input"), (fio, 1, "j", "error 5")] {
        let input = Input::from_bytes(json.as_bytes(), &InputDefaults::default()).expect("results");
        let last = input.rows.last().expect("a row");
        let cell = |name: &str| last[column(name)].clone();
        assert_eq!(input.rows.len(), rows);
        assert_eq!((cell("benchmark"), cell("failure")), (benchmark.into(), failure.into()));
        assert_eq!(
            (cell("value"), cell("seconds")),
            (flyball_table::Cell::Absent, flyball_table::Cell::Absent)
        );
    }
}

#[test]
fn the_page_has_the_columns() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results.md");
    let mut table = String::new();
    let mut rows = |kind: &str, columns: &[(&str, flyball_table::Kind, &str)]| {
        let _ = writeln!(table, "\nColumns of {kind}:\n");
        for (name, of, meaning) in columns {
            let of = match of {
                flyball_table::Kind::Integer => "integer",
                flyball_table::Kind::Number(_) | flyball_table::Kind::Exact => "number",
                flyball_table::Kind::Text => "text",
                flyball_table::Kind::Truth => "boolean",
                flyball_table::Kind::Time => "timestamp",
            };
            let _ = writeln!(table, "- `{name}` ({of}): {meaning}");
        }
    };
    rows("all kinds", &COMMON);
    for kind in Kind::ALL {
        rows(kind.name(), kind.own());
    }
    table.push('\n');
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("<!-- columns -->\n").unwrap();
    let (there, after) = rest.split_once("<!-- end of columns -->").unwrap();
    if std::env::var_os("FLYBALL_BLESS").is_some() {
        std::fs::write(path, format!("{before}<!-- columns -->\n{table}<!-- end of columns -->{after}"))
            .unwrap();
    } else {
        assert_eq!(
            there, table,
            "FLYBALL_BLESS=1 cargo test -p flyball-results --test results columns writes it"
        );
    }
}
