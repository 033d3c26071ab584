//! What three rounds show of a difference that is known from many rounds: the judgement of the
//! three-round design of the kernel's amd-pstate document, by resampling comparisons of
//! lab/scripts/amd-table.
//!
//! ```text
//! lab/scripts/amd-table DIR1 6; lab/scripts/amd-table DIR2 6 100       # seeds: other boots
//! cargo run -p flyball-measure --example three_rounds -- DIR1/build DIR2/build
//! ```
//!
//! The truth is the mean difference of all rounds, in the world that made them. Three rounds of
//! each driver are drawn from one boot, again and again, and judged as the document does (which
//! average is larger), by Welch's t test, and by the exact rank test that needs no assumption.
//! Second, three rounds are drawn around the same truth with the spread of the three rounds that
//! the document prints, because a machine of metal is less steady than an emulated one.

use std::{env, error::Error, path::Path, process::ExitCode};

use flyball_measure::{
    Quantity, RunDirectory, analyse,
    stats::{mean, rank_sum, smallest_rank_sum_p, standard_deviation, welch},
};
use rand::{Rng, SeedableRng};

/// Rounds of the document's design, and how often they are drawn.
const ROUNDS: usize = 3;
const DRAWS: usize = 20_000;

/// Performance per watt of the three rounds that the kernel's document prints
/// (Documentation/admin-guide/pm/amd-pstate.rst): governor, then acpi-cpufreq's and amd-pstate's.
/// MB/J of tbench, 1/J of gitsource.
type Printed = (&'static str, [f64; 3], [f64; 3]);
const TBENCH: [Printed; 2] = [
    ("schedutil", [152.7723, 152.0138, 151.2433], [151.5971, 150.6377, 149.9737]),
    ("ondemand", [160.0997, 155.4297, 153.5060], [158.5378, 155.2941, 154.2860]),
];
const GITSOURCE: [Printed; 2] = [
    (
        "schedutil",
        [0.001_192_548, 0.001_203_528, 0.001_194_286],
        [0.001_153_668, 0.001_135_847, 0.001_153_375],
    ),
    (
        "ondemand",
        [0.001_345_967, 0.001_223_256, 0.001_219_497],
        [0.001_155_027, 0.001_190_944, 0.001_168_429],
    ),
];

/// The values of an arm in each boot.
fn values(directory: &Path, arm: &str, quantity: Quantity) -> Option<Vec<f64>> {
    let run = RunDirectory::open(directory).ok()?;
    let report = analyse(&run.manifest, &run.rounds);
    let arm = report.arms.iter().find(|found| found.name == arm)?;
    let summary = arm.summaries.iter().find(|summary| summary.quantity == quantity)?;
    Some(summary.points.iter().map(|point| point.value).collect())
}

/// How often three rounds give each answer.
#[derive(Default)]
struct Seen {
    sign: usize,
    half: usize,
    welch: usize,
    rank: usize,
}

impl Seen {
    fn judge(&mut self, a: &[f64], b: &[f64], truth: f64) {
        let (Some(ma), Some(mb)) = (mean(a), mean(b)) else { return };
        let found = mb / ma - 1.0;
        self.sign += usize::from(found.signum() == truth.signum());
        self.half += usize::from((found - truth).abs() <= truth.abs() / 2.0);
        self.welch += usize::from(welch(a, b).is_some_and(|p| p < 0.05) && found.signum() == truth.signum());
        self.rank += usize::from(rank_sum(a, b).is_some_and(|p| p < 0.05));
    }

    fn text(&self) -> String {
        let share = |count: usize| 100.0 * count as f64 / DRAWS as f64;
        format!(
            "sign right {:5.1} %, size within half {:5.1} %, Welch at 95 % {:5.1} %, rank test {:3.1} %",
            share(self.sign),
            share(self.half),
            share(self.welch),
            share(self.rank)
        )
    }
}

/// A standard normal number, by twelve uniform ones.
fn normal(random: &mut impl Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

fn run(directories: &[String]) -> Result<(), Box<dyn Error>> {
    let mut random = rand_pcg::Pcg64::seed_from_u64(1);
    println!(
        "{ROUNDS} rounds against {ROUNDS}: the smallest p of a rank test is {:.2}, whatever they are",
        smallest_rank_sum_p(ROUNDS, ROUNDS)
    );
    for governor in ["schedutil", "ondemand", "performance"] {
        for quantity in [Quantity::Performance, Quantity::Energy, Quantity::PerWatt] {
            let boots: Vec<(Vec<f64>, Vec<f64>)> = directories
                .iter()
                .filter_map(|directory| {
                    let of = |driver: &str| {
                        values(Path::new(directory), &format!("{driver}-{governor}"), quantity)
                    };
                    Some((of("acpi")?, of("amd")?)).filter(|(a, b)| a.len() > 1 && b.len() > 1)
                })
                .collect();
            let effects: Vec<f64> =
                boots.iter().filter_map(|(a, b)| Some(mean(b)? / mean(a)? - 1.0)).collect();
            let truth = mean(&effects).ok_or("no rounds: give run directories of lab/scripts/amd-table")?;
            let spreads: Vec<f64> = boots
                .iter()
                .flat_map(|(a, b)| [a, b])
                .filter_map(|v| Some(standard_deviation(v)? / mean(v)?))
                .collect();
            let spread = mean(&spreads).unwrap_or(0.0);
            let between = standard_deviation(&effects).unwrap_or(0.0);
            let rounds: usize = boots.iter().map(|(a, b)| a.len() + b.len()).sum();
            println!(
                "\n{governor}, {quantity:?}: truth {:+.2} % ({rounds} rounds, {} boots each; spread {:.2} % within, {:.2} % between boots)",
                100.0 * truth,
                boots.len(),
                100.0 * spread,
                100.0 * between,
            );
            let mut seen = Seen::default();
            for _ in 0..DRAWS {
                let (a, b) = &boots[random.random_range(0..boots.len())];
                let mut three = |from: &[f64]| [0; ROUNDS].map(|_| from[random.random_range(0..from.len())]);
                let (a, b) = (three(a), three(b));
                seen.judge(&a, &b, truth);
            }
            println!("  drawn from these rounds:         {}", seen.text());
            let printed = if directories.iter().any(|d| d.contains("tbench")) { &TBENCH } else { &GITSOURCE };
            let printed =
                printed.iter().find(|(name, ..)| *name == governor && quantity == Quantity::PerWatt);
            if let Some((_, acpi, amd)) = printed {
                let relative = |v: &[f64]| Some(standard_deviation(v)? / mean(v)?);
                let (sa, sb) = (relative(acpi).unwrap_or(0.0), relative(amd).unwrap_or(0.0));
                let mut seen = Seen::default();
                for _ in 0..DRAWS {
                    let a = [0; ROUNDS].map(|_| 1.0 + sa * normal(&mut random));
                    let b = [0; ROUNDS].map(|_| (1.0 + truth) * (1.0 + sb * normal(&mut random)));
                    seen.judge(&a, &b, truth);
                }
                println!(
                    "  with the document's own spread:  {} (spread {:.2} and {:.2} %)",
                    seen.text(),
                    100.0 * sa,
                    100.0 * sb
                );
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let directories: Vec<String> = env::args().skip(1).collect();
    match run(&directories) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("three_rounds: {why}");
            ExitCode::FAILURE
        }
    }
}
