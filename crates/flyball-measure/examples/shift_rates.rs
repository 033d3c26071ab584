//! How often the search for shifts finds what is there, and what is not: the table of
//! docs/quiet.md.
//!
//! ```text
//! cargo run -p flyball-measure --example shift_rates -- 1000
//! ```

use flyball_measure::shifts::{Column, Form, Options, Values, column_changes, find};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

/// Runs of a series.
const RUNS: usize = 200;

fn noise(seed: u64) -> Vec<f64> {
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    (0..RUNS).map(|_| StandardNormal.sample(&mut rng)).collect()
}

/// A series around 100 with a deviation of 1.
fn series(noise: &[f64], level: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..RUNS).map(|run| 100.0 + level(run) + noise[run]).collect()
}

/// Neighbours that correlate by 0.7, which wander.
fn wandering(noise: &[f64]) -> Vec<f64> {
    let mut level = 0.0;
    let wander = noise.iter().map(|step| {
        level = 0.7 * level + step;
        100.0 + level
    });
    wander.collect()
}

/// One run in twenty takes ten deviations longer.
fn with_outliers(noise: &[f64]) -> Vec<f64> {
    series(noise, |run| if noise[run].abs() > 1.96 { 10.0 } else { 0.0 })
}

/// What counts as found: a form, near a run.
type Expected = (Form, usize);

fn rate(count: u64, mut is: impl FnMut(u64) -> bool) -> f64 {
    (0..count).filter(|seed| is(*seed)).count() as f64 * 100.0 / count as f64
}

fn planted(count: u64, expected: &[Expected], make: impl Fn(&[f64]) -> Vec<f64>) -> f64 {
    rate(count, |seed| {
        let shifts = find(&make(&noise(seed)), &Options::default());
        expected.iter().all(|(form, at)| {
            // A steep ramp may pass for a step, and the other way round.
            let is_level = |form: Form| form != Form::Spread;
            shifts.iter().any(|shift| {
                is_level(shift.form) == is_level(*form) && shift.at.abs_diff(*at) <= RUNS / 20 + 5
            })
        })
    })
}

fn main() {
    let count = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1000);
    println!("{count} series of {RUNS} runs each, around 100 with a standard deviation of 1");
    let none = |make: &dyn Fn(&[f64]) -> Vec<f64>| {
        rate(count, |seed| !find(&make(&noise(1_000_000 + seed)), &Options::default()).is_empty())
    };
    println!("false, independent runs              {:5.1} %", none(&|noise| series(noise, |_| 0.0)));
    println!("false, neighbours correlate by 0.7   {:5.1} %", none(&wandering));
    println!("false, outliers in 5 % of the runs   {:5.1} %", none(&with_outliers));
    let step = |height: f64| {
        planted(count, &[(Form::Step, 80)], |n| series(n, |run| if run < 80 { 0.0 } else { height }))
    };
    println!("step of 1 deviation                  {:5.1} %", step(1.0));
    println!("step of 2 deviations                 {:5.1} %", step(2.0));
    let temporary = |height: f64, runs: usize| {
        planted(count, &[(Form::Step, 80), (Form::Step, 80 + runs)], |n| {
            series(n, |run| if (80..80 + runs).contains(&run) { height } else { 0.0 })
        })
    };
    println!("temporary, 2 deviations, 20 runs     {:5.1} %", temporary(2.0, 20));
    println!("temporary, 2 deviations, 40 runs     {:5.1} %", temporary(2.0, 40));
    println!("temporary, 3 deviations, 10 runs     {:5.1} %", temporary(3.0, 10));
    let ramp = planted(count, &[(Form::Drift, 60)], |n| {
        series(n, |run| 4.0 * ((run as f64 - 60.0) / 60.0).clamp(0.0, 1.0))
    });
    println!("ramp of 4 deviations over 60 runs    {ramp:5.1} %");
    let hill = planted(count, &[(Form::Drift, 70), (Form::Drift, 100)], |n| {
        series(n, |run| 8.0 * (1.0 - (run as f64 - 100.0).abs() / 30.0).max(0.0))
    });
    println!("up by 8 deviations and back, 60 runs {hill:5.1} %");
    let wider = |factor: f64| {
        planted(count, &[(Form::Spread, 100)], |n| {
            (0..RUNS).map(|run| 100.0 + if run < 100 { 1.0 } else { factor } * n[run]).collect()
        })
    };
    println!("spread times 2                       {:5.1} %", wider(2.0));
    println!("spread times 3                       {:5.1} %", wider(3.0));
    named(count);
}

/// Metadata that falls slowly after a step, and metadata that has nothing to do with it.
fn named(count: u64) {
    let (mut slow, mut unrelated) = (0, 0);
    for seed in 0..count {
        let values = series(&noise(seed), |run| if run < 80 { 0.0 } else { 5.0 });
        let (heat, other) = (noise(2_000_000 + seed), noise(3_000_000 + seed));
        // From 5 to 40 runs until a third is left.
        let tau = 5.0 + (seed % 36) as f64;
        let fall =
            |run: usize| if run < 80 { 0.0 } else { -12.0 * (1.0 - (-(run as f64 - 80.0) / tau).exp()) };
        // It rises at another run.
        let start = 120.0 + (seed % 40) as f64;
        let elsewhere = |run: usize| 10.0 * ((run as f64 - start) / 30.0).clamp(0.0, 1.0);
        let column = |name: &str, values: Vec<f64>| Column {
            name: name.to_owned(),
            unit: String::new(),
            values: Values::Numbers(values.into_iter().map(Some).collect()),
        };
        let columns = [column("slow", series(&heat, fall)), column("other", series(&other, elsewhere))];
        for shift in find(&values, &Options::default()).iter().filter(|shift| shift.at.abs_diff(80) <= 15) {
            let names: Vec<String> = column_changes(shift, &columns, &Options::default())
                .into_iter()
                .map(|change| change.name)
                .collect();
            slow += u64::from(names.iter().any(|name| name == "slow"));
            unrelated += u64::from(names.iter().any(|name| name == "other"));
        }
    }
    let percent = |part: u64| part as f64 * 100.0 / count as f64;
    println!("slow metadata named with its step    {:5.1} %", percent(slow));
    println!("false, metadata that moves elsewhere {:5.1} %", percent(unrelated));
}
