//! Our statistics against SciPy's: the numbers in `scipy.json` were computed by `expect_scipy.py`
//! beside it.

use flyball_measure::stats;
use serde_json::Value;

fn expected() -> Value {
    serde_json::from_str(include_str!("../scipy.json")).expect("it is JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|item| item.as_f64().expect("a number")).collect()
}

fn cases<'a>(all: &'a Value, name: &str) -> &'a Vec<Value> {
    let list = all[name].as_array().expect("a list");
    assert!(list.len() >= 2, "{name}");
    list
}

#[track_caller]
fn close(ours: f64, theirs: &Value, tolerance: f64) {
    let theirs = theirs.as_f64().expect("a number");
    assert!((ours - theirs).abs() <= tolerance * theirs.abs().max(1e-3), "ours {ours}, SciPy {theirs}");
}

#[test]
fn signed_ranks() {
    for case in cases(&expected(), "paired") {
        let values = numbers(&case["values"]);
        close(stats::signed_rank(&values).p, &case["p"], 1e-9);
        close(stats::hodges_lehmann(&values).expect("values"), &case["hodges_lehmann"], 1e-9);
    }
}

#[test]
fn rank_sums_shifts_and_welch() {
    for case in cases(&expected(), "unpaired") {
        let (a, b) = (numbers(&case["a"]), numbers(&case["b"]));
        close(stats::rank_sum(&a, &b).expect("values"), &case["rank_sum"], 1e-9);
        close(stats::welch(&a, &b).expect("spread"), &case["welch"], 1e-8);
        close(stats::shift(&a, &b).expect("values"), &case["shift"], 1e-9);
        close(stats::cliffs_delta(&a, &b).expect("values"), &case["delta"], 1e-9);
    }
}

#[test]
fn trends() {
    for case in cases(&expected(), "trends") {
        let values = numbers(&case["values"]);
        let found = stats::trend(&values).expect("values");
        close(found.slope, &case["slope"], 1e-9);
        let pairs = (values.len() * (values.len() - 1) / 2) as f64;
        close(found.s as f64 / pairs, &case["tau"], 1e-9);
        if !case["exact"].is_null() {
            close(found.p, &case["exact"], 1e-9);
        }
    }
}

#[test]
fn quantiles_and_deviations() {
    for case in cases(&expected(), "quantiles") {
        let values = numbers(&case["values"]);
        for (q, theirs) in
            [0.1, 0.25, 0.5, 0.75, 0.9].into_iter().zip(case["quartiles"].as_array().expect("a list"))
        {
            close(stats::quantile(&values, q).expect("values"), theirs, 1e-12);
        }
        close(stats::standard_deviation(&values).expect("values"), &case["deviation"], 1e-12);
    }
}

/// Pooled effects of machines, against statsmodels' Paule-Mandel variance and Hartung-Knapp
/// interval (with few machines, that of their rounds): the numbers were computed by
/// `expect_statsmodels.py`.
#[test]
fn pooled_effects() {
    let all: Value = serde_json::from_str(include_str!("../statsmodels.json")).expect("it is JSON");
    for case in cases(&all, "pooled") {
        let effects: Vec<stats::Estimate> = numbers(&case["values"])
            .into_iter()
            .zip(numbers(&case["errors"]))
            .map(|(value, error)| stats::Estimate { value, error, freedom: 15.0 })
            .collect();
        let found = stats::pooled(&effects).expect("machines");
        let interval = found.interval(0.95).expect("machines");
        close(found.between, &case["between"], 1e-9);
        close(found.mean, &case["mean"], 1e-9);
        close(found.error, &case["error"], 1e-9);
        close(found.i_squared, &case["i2"], 1e-9);
        close(interval.low, &case["low"], 1e-9);
        close(interval.high, &case["high"], 1e-9);
    }
}
