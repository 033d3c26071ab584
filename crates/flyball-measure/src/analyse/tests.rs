//! Reports of made-up rounds, and how often the verdicts are right.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, Normal};

use super::*;
use crate::{
    meter::{Domain, EnergySource},
    metric::{Better, Metric},
    run_directory::{
        Boot,
        tests::{boot, manifest, round},
    },
    workload::{
        preset::Reader,
        suite::{Suite, geometric_mean},
    },
};

mod energy;
mod suites;

/// A boot of two arms with an energy counter of each domain, which counts in `unit` joules.
fn metered(unit: f64, domains: &[Domain]) -> Boot {
    let mut boot = boot(&[0, 1]);
    boot.meters.no_energy = None;
    boot.meters.energy = domains
        .iter()
        .map(|&domain| EnergySource {
            domain,
            name: format!("{}-0", domain.name()),
            place: String::new(),
            unit,
            wraps_after: None,
            is_power: false,
        })
        .collect();
    boot
}

/// Standard normal noise.
struct Noise(Pcg64Mcg, Normal);

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise(Pcg64Mcg::seed_from_u64(seed), Normal::standard())
    }

    fn draw(&mut self) -> f64 {
        self.1.inverse_cdf(self.0.random_range(1e-12..1.0 - 1e-12))
    }
}

/// A realistic machine: it drifts over the run, noise is skewed to the slow side, and now and then
/// another program disturbs a round. `slowdown` is what arm b costs, `noise` the spread of a round.
fn comparison(seed: u64, slowdown: f64, noise: f64, blocks: usize) -> Report {
    disturbed_comparison(seed, slowdown, noise, blocks, 0.03)
}

/// Like `comparison`, with a probability that another program disturbs a round.
fn disturbed_comparison(seed: u64, slowdown: f64, noise: f64, blocks: usize, disturbance: f64) -> Report {
    let mut random = Noise::new(seed);
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(boot(&[0, 1]));
    manifest.schedule.seed = seed;
    let drift = random.draw() * 0.02;
    let mut rounds = Vec::new();
    for block in 0..blocks {
        for arm in manifest.schedule.order(block, &[0, 1]) {
            let place = rounds.len() as f64 / (2 * blocks) as f64;
            let disturbed = if random.0.random_range(0.0..1.0) < disturbance { 0.1 } else { 0.0 };
            let value = 10.0
                * (1.0 + drift * place)
                * (random.draw() * noise).exp()
                * (1.0 + disturbed)
                * if arm == 1 { 1.0 + slowdown } else { 1.0 };
            rounds.push(round(block, arm, value));
        }
    }
    analyse(&manifest, &rounds)
}

#[test]
fn a_setting_does_not_differ_from_itself() {
    // 200 comparisons of a setting with itself, with drift and disturbances, at three levels of
    // noise.
    for (noise, base) in [(0.002, 0), (0.01, 1000), (0.05, 2000)] {
        let called = (0..200)
            .filter(|seed| {
                let report = comparison(base + seed, 0.0, noise, 15);
                report.comparisons.iter().any(|c| c.verdict.is_difference())
            })
            .count();
        println!("A/A: {called} of 200 called different at noise {noise}");
        assert!(called <= 10, "{called} of 200 at noise {noise}");
    }
}

/// Rounds of two arms that share drift and disturbances, whose own noise differs by a factor;
/// `skewed` makes it lognormal.
fn unsteady(seed: u64, factor: f64, blocks: usize, skewed: bool) -> Steadiness {
    let mut random = Noise::new(seed);
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(boot(&[0, 1]));
    let mut rounds = Vec::new();
    for block in 0..blocks {
        for arm in 0..2 {
            let noise = 0.01 * if arm == 1 { factor } else { 1.0 } * random.draw();
            let noise = if skewed { noise.abs().sqrt() * 0.1 } else { noise };
            rounds.push(round(block, arm, 10.0 * (1.0 + block as f64 * 1e-4) * noise.exp()));
        }
    }
    // Without the medians' intervals, which take most of the time of a report.
    let counted: Vec<&Round> = rounds.iter().collect();
    let arms = [0, 1].map(|arm| report_points(&manifest, &counted, arm));
    compare(&manifest, &arms, Quantity::Performance, Correction::for_questions(1))[0]
        .steadiness
        .expect("performance has one")
}

#[test]
fn a_less_steady_arm_is_found_and_seldom_invented() {
    for (blocks, skewed) in [(10, false), (15, false), (30, false), (15, true), (30, true)] {
        let is_wrong = |seed: &u64| {
            let verdict = unsteady(*seed, 1.0, blocks, skewed).verdict;
            verdict.is_difference()
        };
        let wrong = (0..1000).filter(is_wrong).count();
        println!("steadiness: {wrong} of 1000 called different, {blocks} blocks, skewed {skewed}");
        // The level is 1 %, but the medians are estimated from the same rounds.
        assert!(wrong <= 20, "{wrong} of 1000, {blocks} blocks, skewed {skewed}");
    }
    let found = (0..200).filter(|seed| unsteady(*seed, 3.0, 30, false).verdict == Verdict::Worse).count();
    println!("steadiness: {found} of 200 found at three times the deviation, 30 blocks");
    assert!(found >= 180, "{found} of 200");
}

#[test]
fn one_slow_round_does_not_turn_the_word_around() {
    // The base varies by 0.2 % and has one round of +60 %; the other arm varies by 2 %.
    for seed in 0..50 {
        let mut random = Noise::new(seed);
        let mut manifest = manifest(&["a", "b"]);
        manifest.boots.push(boot(&[0, 1]));
        let rounds: Vec<Round> = (0..30)
            .flat_map(|block| [(block, 0, 0.002), (block, 1, 0.02)])
            .map(|(block, arm, noise)| {
                let slow = if (block, arm) == (7, 0) { 1.6 } else { 1.0 };
                round(block, arm, 10.0 * slow * (random.draw() * noise).exp())
            })
            .collect();
        let counted: Vec<&Round> = rounds.iter().collect();
        let arms = [0, 1].map(|arm| report_points(&manifest, &counted, arm));
        let found = compare(&manifest, &arms, Quantity::Performance, Correction::for_questions(1))[0]
            .steadiness
            .expect("performance has one");
        assert_eq!(found.verdict, Verdict::Worse, "seed {seed}: {found:?}");
    }
}

#[test]
fn a_planted_slowdown_is_found() {
    // 2 % on a quiet workload (0.5 % from round to round), and on one that is disturbed now and
    // then.
    for (disturbance, base) in [(0.0, 5000), (0.03, 6000)] {
        let found = (0..200)
            .filter(|seed| {
                let report = disturbed_comparison(base + seed, 0.02, 0.005, 15, disturbance);
                report.comparisons[0].verdict == Verdict::Worse
            })
            .count();
        println!("A/B: {found} of 200 found, {disturbance} of rounds disturbed");
        let least = if disturbance > 0.0 { 145 } else { 180 };
        assert!(found >= least, "{found} of 200 with {disturbance} of rounds disturbed");
    }
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let held = (0..200)
        .filter(|seed| {
            let report = comparison(9000 + seed, 0.02, 0.01, 12);
            report.comparisons[0].interval.is_some_and(|interval| interval.contains(0.02))
        })
        .count();
    assert!(held >= 190, "{held} of 200 at 99 %");
}

fn text_of(report: &Report) -> String {
    crate::render::text(
        report,
        crate::render::Screen { width: None, painter: flyball_text::columns::Unstyled },
    )
}

#[test]
fn few_rounds_say_that_they_are_few() {
    let report = comparison(1, 0.5, 0.001, 3);
    assert_eq!(report.comparisons[0].verdict, Verdict::TooFewRounds);
    assert_eq!(report.comparisons[0].interval, None);
    let text = text_of(&report);
    assert!(
        text.starts_with("b: wall time needs 8 rounds to be compared with a; 3 rounds measured +"),
        "{text}"
    );
    assert!(text.contains("too few rounds to show any difference; 8 must count"), "{text}");
}

#[test]
fn many_arms_are_judged_in_a_table() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut manifest = manifest(&names);
    manifest.boots.push(boot(&[0, 1, 2, 3, 4, 5]));
    let rounds: Vec<Round> = (0..12)
        .flat_map(|block| {
            (0..names.len()).map(move |arm| {
                let jitter = ((block * 7 + arm * 3) % 5) as f64 * 0.001;
                round(block, arm, 10.0 * (1.0 + jitter) * if arm == 3 { 1.1 } else { 1.0 })
            })
        })
        .collect();
    let text = text_of(&analyse(&manifest, &rounds));
    assert!(text.contains("all verdicts and their intervals hold together with 99 % confidence"), "{text}");
    let head = text.find("against a\n").expect("a table");
    let lines: Vec<&str> = text[head..].lines().skip(2).take(5).collect();
    let arms: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(arms, names[1..], "{text}");
    assert!(lines[2].contains("+9.") && lines[2].contains("worse (+"), "{text}");
}

#[test]
fn throttled_rounds_are_left_out_and_named() {
    let mut manifest = manifest(&["cool", "hot"]);
    manifest.boots.push(boot(&[0, 1]));
    let mut rounds: Vec<Round> = (0..10)
        .flat_map(|block| {
            [round(block, 0, 1.0 + block as f64 * 0.001), round(block, 1, 1.1 + block as f64 * 0.0007)]
        })
        .collect();
    rounds[6].readings.throttled = Some(4);
    rounds[6].outcome.value = Some(9.0);
    let report = analyse(&manifest, &rounds);
    assert_eq!(report.arms[0].rounds, 9);
    assert_eq!(report.comparisons[0].pairs, 9);
    assert!(
        report.notes.iter().any(|note| note == "cool: round 4 is left out: throttled (4 events)."),
        "{:?}",
        report.notes
    );
    // Throttling in most rounds belongs to the arm, and so does throttling more often than the
    // other arm.
    for limit in [10, 4] {
        for round in &mut rounds {
            round.readings.throttled = Some(u64::from(round.arm == 1 && round.block < limit));
        }
        let report = analyse(&manifest, &rounds);
        assert_eq!(report.arms[1].rounds, 10);
        let note = format!("hot: throttled in {limit} of 10 rounds, which count. Without them");
        assert!(report.notes.iter().any(|one| one.starts_with(&note)), "{:?}", report.notes);
    }
}

/// An arm that fails in its slow rounds looks as fast as the first, and a limit must not pass it.
#[test]
fn rounds_without_a_value_decide_no_limit() {
    let mut random = Noise::new(5);
    let noise: Vec<f64> = (0..60).map(|_| 1.0 + 0.002 * random.draw()).collect();
    let (mut manifest, mut rounds) = drawn(&["a", "b"], 30, |block, arm| noise[2 * block + arm]);
    manifest.workload.metric = Metric::new("p99", "us", Better::Lower);
    let limits = ["metric > +2%", "metric < -1%"].map(|text| text.parse().expect("a limit"));
    let verdicts = |rounds: &[Round]| {
        let report = analyse(&manifest, rounds);
        let answers =
            gate(&manifest, &report, &limits).into_iter().map(|one| one.verdict).collect::<Vec<_>>();
        (report.comparisons[0].verdict, answers, text_of(&report))
    };
    let (verdict, answers, _) = verdicts(&rounds);
    assert_eq!((verdict, &answers[..]), (Verdict::Equivalent, &[GateVerdict::Within; 2][..]));
    for round in rounds.iter_mut().filter(|round| round.arm == 1 && round.block % 3 == 0) {
        round.outcome.failure = Some("did not end within 1 s".to_owned());
    }
    let (verdict, answers, text) = verdicts(&rounds);
    assert_eq!((verdict, &answers[..]), (Verdict::NoDifferenceShown, &[GateVerdict::CannotTell; 2][..]));
    let note = "b: 10 of 30 rounds have no p99, and 0 of 30 of a.";
    assert!(text.contains(note) && !text.contains("no arm; all are within"), "{text}");
    assert!(text.contains("no difference seen in the rounds that have a value"), "{text}");
    // An arm that is slower even so is over the limit.
    for round in rounds.iter_mut().filter(|round| round.arm == 1) {
        round.outcome.value = round.outcome.value.map(|value| 1.1 * value);
    }
    assert_eq!(verdicts(&rounds).1, [GateVerdict::Over, GateVerdict::CannotTell]);
    // As many failures in both arms are chance.
    for round in rounds.iter_mut().filter(|round| round.block % 3 == 0) {
        round.outcome.failure = Some("did not end within 1 s".to_owned());
    }
    assert_eq!(verdicts(&rounds).1, [GateVerdict::Over, GateVerdict::Within]);
}

/// More of a score is better, but it is no work that energy could be divided by.
#[test]
fn only_the_energy_of_a_rate_is_per_work() {
    for (unit, is_rate) in
        [("dB", false), ("%", false), ("", false), ("MB/s", true), ("IOPS", true), ("tps", true)]
    {
        let metric = Metric::new("metric", unit, Better::Higher);
        assert_eq!(Quantity::judged(&metric).contains(&Quantity::WorkEnergy), is_rate, "{unit}");
        assert_eq!(metric.value_per_watt(42.0, 10.0, 210.0), Some(2.0));
    }
    assert_eq!(Metric::new("quality", "dB", Better::Higher).per_watt().unit, "dB/W");
}

#[test]
fn drift_and_outliers_are_told() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(boot(&[0, 1]));
    let mut random = Noise::new(4);
    let mut rounds: Vec<Round> = (0..12)
        .flat_map(|block| {
            let level = 10.0 * (1.0 + 0.01 * block as f64);
            [
                round(block, 0, level * (1.0 + 0.001 * random.draw())),
                round(block, 1, 10.0 + 0.01 * random.draw()),
            ]
        })
        .collect();
    rounds[9].outcome.value = Some(12.0);
    let report = analyse(&manifest, &rounds);
    let drift = report.arms[0].summary(Quantity::Performance).and_then(|s| s.drift).expect("it drifts");
    assert!((drift.change - 0.104).abs() < 0.01, "{drift:?}");
    assert_eq!(report.arms[1].summary(Quantity::Performance).map(|s| s.outliers.clone()), Some(vec![4]));
    // One note for the drift of one arm, one for the outlier of the other.
    let notes_of = |arm: &str| report.notes.iter().filter(|note| note.starts_with(arm)).count();
    assert_eq!((notes_of("a: "), notes_of("b: ")), (1, 1), "{:?}", report.notes);
}

#[test]
fn energy_decides_where_time_does_not() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(metered(1e-6, &[Domain::Package]));
    let mut random = Noise::new(11);
    let rounds: Vec<Round> = (0..10)
        .flat_map(|block| {
            [0, 1].map(|arm| {
                let mut round = round(block, arm, 10.0 + 0.01 * random.draw());
                let joules = if arm == 1 { 80.0 } else { 100.0 } * (1.0 + 0.003 * random.draw());
                round.readings.energy = vec![vec![(0.0, 5), (10.0, 5 + (joules * 1e6) as u64)]];
                round
            })
        })
        .collect();
    let report = analyse(&manifest, &rounds);
    let verdicts: Vec<(Quantity, Verdict)> =
        report.comparisons.iter().map(|c| (c.quantity, c.verdict)).collect();
    assert_eq!(
        verdicts,
        [
            // Rounds differ by 0.1 %.
            (Quantity::Performance, Verdict::Equivalent),
            (Quantity::Energy, Verdict::Better),
            (Quantity::PerWatt, Verdict::Better)
        ]
    );
    assert!((report.comparisons[2].change - 0.25).abs() < 0.01);
    let power = report.arms[0].summary(Quantity::Power).expect("it is metered");
    assert!((power.median - 10.0).abs() < 0.1);
}

#[test]
fn too_few_rounds_have_no_brackets() {
    // The range of seven rounds contains the median with 98.4 %, that of eight with 99.2 %.
    let interval = |blocks| comparison(1, 0.0, 0.01, blocks).arms[0].summaries[0].interval;
    assert_eq!(interval(7), None);
    assert!(interval(8).is_some());
    let text = text_of(&comparison(1, 0.0, 0.01, 7));
    let below =
        "too few rounds for 99 % intervals of them. Arms are compared in pairs of rounds, not by these";
    assert!(text.contains(below), "{text}");
}

#[test]
fn rounds_of_one_boot_without_common_blocks_are_not_of_other_boots() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(boot(&[0, 1]));
    let rounds: Vec<Round> =
        (0..20).map(|block| round(block, block % 2, 1.0 + block as f64 * 1e-3)).collect();
    let report = analyse(&manifest, &rounds);
    assert!(!report.comparisons[0].paired);
    assert!(!text_of(&report).contains("other boot"));
}

/// The rank-sum test over boots assumes like spreads.
#[test]
fn unlike_spreads_of_boots_are_told() {
    for (factor, expected) in [(1.0, false), (20.0, true)] {
        let mut random = Noise::new(7);
        let mut manifest = manifest(&["a", "b"]);
        manifest.boots.extend([boot(&[0]), boot(&[1])]);
        let mut rounds = Vec::new();
        for (block, arm) in (0..15).flat_map(|block| [(block, 0), (block, 1)]) {
            let noise = 0.002 * random.draw() * if arm == 1 { factor } else { 1.0 };
            let mut one = round(block, arm, 10.0 * noise.exp());
            one.boot = arm;
            rounds.push(one);
        }
        let report = analyse(&manifest, &rounds);
        let text = text_of(&report);
        assert!(text.contains("were not run in turns"), "{text}");
        assert_eq!(text.contains("assumes that they vary alike"), expected, "{text}");
    }
}

#[test]
fn numbers_without_ratios_get_no_verdict() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(boot(&[0, 1]));
    manifest.workload.metric = crate::metric::Metric::new("score", "points", crate::metric::Better::Higher);
    // -5 is more than -10, though their ratio is a half.
    let rounds: Vec<Round> = (0..12)
        .flat_map(|block| {
            let jitter = f64::from(block as u32 % 5) * 0.01;
            [round(block, 0, -10.0 - jitter), round(block, 1, -5.0 - jitter)]
        })
        .collect();
    let report = analyse(&manifest, &rounds);
    assert_eq!(report.comparisons, []);
    assert!(report.notes.iter().any(|note| note.starts_with("a, b: score is zero or negative in 12 rounds")));
}

#[test]
fn a_counter_that_stands_still_and_lost_records_are_told() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(metered(1e-6, &[Domain::Package]));
    let mut rounds: Vec<Round> = (0..8).flat_map(|block| [0, 1].map(|arm| round(block, arm, 2.0))).collect();
    for round in &mut rounds {
        round.readings.energy = vec![vec![(0.0, 7), (2.0, 7)]];
        let lost = u64::from(round.arm == 1 && round.block == 3) * 100;
        round.trace = Some(crate::TraceNote { decisions: 10, lost, ..Default::default() });
    }
    let report = analyse(&manifest, &rounds);
    assert!(report.no_energy.as_ref().is_some_and(|why| why.starts_with("package-0 did not move")));
    assert_eq!(report.arms[0].summary(Quantity::Power), None);
    let decisions = |arm: usize| report.arms[arm].summary(Quantity::Decisions).map(|s| s.points.len());
    assert_eq!((decisions(0), decisions(1)), (Some(8), Some(7)));
    assert!(report.notes.iter().any(|note| note.starts_with("b: the trace lost 100 records in 1 rounds")));
}

/// If the package's counter fails in a round, the platform's counter does not replace it.
#[test]
fn work_per_joule_is_of_one_domain() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(metered(1.0, &[Domain::Package, Domain::Platform]));
    let mut rounds: Vec<Round> = (0..8).flat_map(|block| [0, 1].map(|arm| round(block, arm, 2.0))).collect();
    for round in &mut rounds {
        round.readings.energy = vec![vec![(0.0, 0), (2.0, 100)], vec![(0.0, 0), (2.0, 400)]];
    }
    rounds[4].readings.energy[0].clear();
    let report = analyse(&manifest, &rounds);
    let values = |arm: usize| -> Vec<f64> {
        report.arms[arm].summary(Quantity::PerWatt).expect("it is metered").values()
    };
    assert_eq!((values(0), values(1)), (vec![0.01; 7], vec![0.01; 8]));
}

#[test]
fn the_same_rounds_give_the_same_report() {
    let first = comparison(3, 0.01, 0.01, 10);
    let second = comparison(3, 0.01, 0.01, 10);
    assert_eq!(first, second);
    let json = serde_json::to_string(&first).expect("it can be written");
    let read: Report = serde_json::from_str(&json).expect("it can be read");
    assert_eq!(serde_json::to_string(&read).expect("it can be written"), json);
}

#[test]
fn nothing_measured_makes_no_claim() {
    let report = analyse(&manifest(&["a", "b"]), &[]);
    assert_eq!(report.comparisons, []);
    // A report without numbers can still be printed.
    assert_ne!(text_of(&report), "");
}

/// Eight of 20 rounds of the second arm were long enough to be watched, and all of these were
/// disturbed.
#[test]
fn rounds_that_were_not_watched_are_no_undisturbed_ones() {
    let mut manifest = manifest(&["now", "same"]);
    manifest.boots.push(boot(&[0, 1]));
    let mut rounds: Vec<Round> =
        (0..20).flat_map(|block| [round(block, 0, 1.0), round(block, 1, 1.001)]).collect();
    let watched = |busy| Some(crate::watch::Conditions { busy: Some(busy), ..Default::default() });
    for round in &mut rounds {
        round.outcome.usage = Some(flyball_host::Usage { user_seconds: 0.4, ..Default::default() });
        round.outcome.seconds = 1.0;
        round.conditions = (round.arm == 1 && round.block < 8).then(|| watched(0.9)).flatten();
    }
    assert_eq!(analyse(&manifest, &rounds).arms[1].rounds, 20);
    for round in rounds.iter_mut().filter(|round| round.conditions.is_none()) {
        round.conditions = watched(0.2);
    }
    assert_eq!(analyse(&manifest, &rounds).arms[1].rounds, 20, "only this arm has them");
    for round in rounds.iter_mut().filter(|round| round.arm == 0 && round.block < 7) {
        round.conditions = watched(0.9);
    }
    let arms = analyse(&manifest, &rounds).arms;
    assert_eq!((arms[0].rounds, arms[1].rounds), (13, 12), "others disturbed both");
}

/// Rounds 1, 4 and 7 of the second arm run next to a neighbour that takes most of the CPU, and look
/// fast.
#[test]
fn rounds_under_bad_conditions_are_left_out_of_a_quiet_comparison() {
    let mut manifest = manifest(&["now", "same"]);
    manifest.boots.push(boot(&[0, 1]));
    let usage = flyball_host::Usage { user_seconds: 0.9, ..Default::default() };
    let mut rounds: Vec<Round> = (0..20)
        .flat_map(|block| [round(block, 0, 1.0), round(block, 1, 1.0 + f64::from(block as u32 % 2) * 1e-3)])
        .collect();
    for round in &mut rounds {
        round.outcome.usage = Some(usage);
        round.outcome.seconds = 1.0;
        let noisy = round.arm == 1 && matches!(round.block, 1 | 4 | 7);
        let busy = Some(if noisy { 1.5 } else { 0.92 });
        round.conditions = Some(crate::watch::Conditions { busy, ..Default::default() });
        if noisy {
            round.outcome.value = Some(0.1);
        }
    }
    // Watched but not asked to be quiet: everything counts.
    assert_eq!(analyse(&manifest, &rounds).arms[1].rounds, 20);
    manifest.quiet = Some(crate::QuietNote {
        level: "steady".to_owned(),
        cpus: "0".to_owned(),
        settings: Vec::new(),
        unavailable: Vec::new(),
    });
    let report = analyse(&manifest, &rounds);
    let arm = &report.arms[1];
    assert_eq!(
        (arm.rounds, arm.grades),
        (17, Some(crate::Grades { not_watched: 0, good: 17, fair: 0, bad: 3 }))
    );
    assert_eq!(arm.left_out.iter().map(|one| one.block).collect::<Vec<_>>(), [1, 4, 7]);
    assert_eq!(report.comparisons[0].pairs, 17);
    let text = text_of(&report);
    assert!(text.contains("17 (-3)"), "the table shows how many are left out: {text}");

    // A frequency that moves in most of an arm's rounds is the arm's own.
    for round in rounds.iter_mut().filter(|round| round.arm == 0) {
        round.conditions = Some(crate::watch::Conditions {
            frequency_mhz: Some(2000.0),
            frequency_range_mhz: Some(1000.0),
            ..Default::default()
        });
    }
    assert_eq!(analyse(&manifest, &rounds).arms[0].rounds, 20);
    // The load of other programs never is. An arm without rounds says so.
    for round in &mut rounds {
        round.conditions = Some(crate::watch::Conditions { busy: Some(1.5), ..Default::default() });
    }
    let report = analyse(&manifest, &rounds);
    assert_eq!(report.arms[0].rounds, 0);
    assert!(report.notes.iter().any(|note| note == "now, same: no round is left, so there is no verdict."));
    assert!(report.notes.iter().any(|note| note.starts_with("now, same: 20 rounds are left out (1, 2, 3")));
}

#[test]
fn two_levels_are_named() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(boot(&[0, 1]));
    let mut random = Noise::new(5);
    let rounds: Vec<Round> = (0..30)
        .flat_map(|block| [0, 1].map(|arm| (block, arm)))
        .map(|(block, arm)| {
            let level = if arm == 1 && block % 6 == 5 { 1.96 } else { 1.0 };
            round(block, arm, level * (1.0 + 0.005 * random.draw()))
        })
        .collect();
    let notes = analyse(&manifest, &rounds).notes;
    let levels: Vec<&String> = notes.iter().filter(|note| note.contains("two levels")).collect();
    assert_eq!(levels.len(), 1, "{notes:?}");
    assert!(levels[0].contains("in 25 rounds and 1.9") && levels[0].contains("in 5."), "{}", levels[0]);
}

#[test]
fn ticks_of_a_clock_are_no_levels() {
    let mut random = Noise::new(8);
    let (manifest, rounds) = drawn(&["a", "b"], 20, |_, _| {
        // 14 ms, read on a clock of 4 ms.
        0.004 * (3.5 * (0.08 * random.draw()).exp()).round()
    });
    let notes = analyse(&manifest, &rounds).notes.join("\n");
    assert!(notes.contains("come in steps of") && !notes.contains("two levels"), "{notes}");
}

/// Rounds of equal arms in the order in which a comparison runs them, or one block after the other.
/// The round after one of the second arm takes longer by `slowed`, in deviations of the noise.
fn slowing_the_next(seed: u64, arms: &[&str], blocks: usize, slowed: f64, in_turns: bool) -> Report {
    let mut manifest = manifest(arms);
    let all: Vec<usize> = (0..arms.len()).collect();
    manifest.boots.push(boot(&all));
    manifest.schedule.seed = seed;
    let mut random = Noise::new(seed);
    let mut rounds: Vec<Round> = Vec::new();
    let mut from = 0;
    while from < blocks {
        let together = if in_turns { manifest.schedule.together(from, blocks, usize::MAX) } else { 1 };
        let orders: Vec<Vec<usize>> =
            (from..from + together).map(|block| manifest.schedule.order(block, &all)).collect();
        for place in 0..arms.len() {
            for (block, order) in (from..).zip(&orders) {
                let is_slowed = rounds.last().is_some_and(|round| round.arm == 1);
                let log = random.draw() + if is_slowed { slowed } else { 0.0 };
                rounds.push(round(block, order[place], 10.0 * (0.005 * log).exp()));
            }
        }
        from += together;
    }
    analyse(&manifest, &rounds)
}

#[test]
fn what_a_round_leaves_to_the_next_is_named_and_moves_no_verdict() {
    // Counts, of 100 comparisons, those that call equal arms different, and those with the note.
    let counts = |arms: &[&str], blocks: usize, slowed: f64, in_turns: bool| {
        let of = |seed: u64| {
            let report = slowing_the_next(seed, arms, blocks, slowed, in_turns);
            let is_wrong = report.comparisons.iter().any(|one| one.verdict.is_difference());
            (is_wrong, report.notes.iter().any(|note| note.contains("it changes the round after it")))
        };
        let found: Vec<(bool, bool)> = (0..100).map(of).collect();
        let wrong = found.iter().filter(|one| one.0).count();
        (wrong, found.iter().filter(|one| one.1).count())
    };
    for arms in [&["a", "b"][..], &["a", "b", "c"]] {
        for (blocks, slowed) in [(15, 0.0), (15, 2.0), (30, 1.0), (30, 4.0)] {
            let (wrong, noted) = counts(arms, blocks, slowed, true);
            println!("{} arms, {blocks} blocks, {slowed}: {wrong} wrong, {noted} noted of 100", arms.len());
            // One in a hundred may be.
            assert!(wrong <= 4, "{wrong} of 100, {blocks} blocks, {slowed}");
            let is_expected = if slowed == 0.0 { noted <= 4 } else { slowed < 2.0 || noted >= 75 };
            assert!(is_expected, "{noted} of 100, {blocks} blocks, {slowed}");
        }
    }
    // If blocks run one after the other, as in older versions, the second arm gains half of it.
    let (wrong, noted) = counts(&["a", "b"], 30, 4.0, false);
    assert!(wrong >= 50 && noted >= 95, "{wrong} wrong, {noted} noted");
}

#[test]
fn a_busy_machine_and_a_fixed_time_are_named() {
    let mut manifest = manifest(&["a", "b"]);
    manifest.boots.push(boot(&[0, 1]));
    let mut rounds: Vec<Round> =
        (0..10).flat_map(|block| [0, 1].map(|arm| round(block, arm, 10.0 + block as f64 * 1e-4))).collect();
    rounds[0].moment.load_before = Some(44.0);
    manifest.machine.simulated = false;
    let report = analyse(&manifest, &rounds);
    assert!(
        report.notes.iter().any(|note| note.contains("busy before the first round (load 44")),
        "{:?}",
        report.notes
    );
    assert_eq!(notes::fixed_time(&report), None);
    let limits = ["time > +5%", "energy > +5%", "memory > +5%"].map(|text| text.parse().expect("a limit"));
    assert_eq!(gate(&manifest, &report, &limits[..1])[0].verdict, GateVerdict::Within);
    // A command, which may do less work.
    assert_eq!(report.comparisons[0].verdict, Verdict::Equivalent);
    manifest.workload.reader = Some(Reader::WallTime);
    let report = analyse(&manifest, &rounds);
    let note = notes::fixed_time(&report).expect("a note");
    assert!(note.starts_with("All arms took 10.00 s. If the workload runs for a fixed time"), "{note}");
    assert_eq!(
        (report.comparisons[0].verdict, report.comparisons[0].shows),
        (Verdict::NoDifferenceShown, None)
    );
    let answer = &gate(&manifest, &report, &limits[..1])[0];
    assert_eq!(answer.reason, Some(NoInterval::FixedTime), "{answer}");
    for round in &mut rounds {
        round.outcome.seconds *= 1.03;
        round.outcome.value = Some(round.outcome.seconds);
    }
    let report = analyse(&manifest, &rounds);
    assert_eq!(notes::fixed_time(&report), None);
    assert_eq!(report.comparisons[0].verdict, Verdict::Equivalent);
    // On a busy machine, a command of a fixed time does not end in time.
    manifest.workload.argv = ["stress-ng", "-t", "10"].map(str::to_owned).to_vec();
    let report = analyse(&manifest, &rounds);
    assert!(notes::fixed_time(&report).is_some_and(|note| note.starts_with("'stress-ng -t' fixes")));
    assert_eq!(report.comparisons[0].verdict, Verdict::NoDifferenceShown);
    for answer in gate(&manifest, &report, &limits) {
        assert_eq!(answer.verdict, GateVerdict::CannotTell, "{answer}");
    }
}

/// A number that a program prints, as in `12.3 ms`.
fn printed() -> Reader {
    Reader::expression("([0-9.]+) ms", "ms", Better::Lower, false).expect("a good pattern")
}

#[test]
fn equal_values_have_no_known_step_and_show_nothing() {
    let (mut manifest, mut rounds) = drawn(&["a", "b"], 30, |_, _| 15.625);
    manifest.workload.reader = Some(printed());
    let limit: Limit = "metric > +1%".parse().expect("a limit");
    let report = analyse(&manifest, &rounds);
    assert_eq!(
        (report.comparisons[0].verdict, report.comparisons[0].interval),
        (Verdict::NoDifferenceShown, None)
    );
    let notes = report.notes.join(" ");
    assert!(notes.contains("are equal, so the step") && !notes.contains("come in steps"), "{notes}");
    let answer = &gate(&manifest, &report, std::slice::from_ref(&limit))[0];
    assert_eq!((answer.verdict, answer.reason), (GateVerdict::CannotTell, Some(NoInterval::UnknownStep)));
    // One tick of a clock of 64 Hz is 10 %.
    rounds[7].outcome.value = Some(17.1875);
    let report = analyse(&manifest, &rounds);
    let answer = &gate(&manifest, &report, std::slice::from_ref(&limit))[0];
    assert_eq!(
        (answer.verdict, report.comparisons[0].step),
        (GateVerdict::CannotTell, Some(1.5625 / 15.625))
    );
}

/// The first two of four arms have one and the same number in every round.
#[test]
fn equal_values_are_those_of_the_named_arms() {
    let note = |levels: [f64; 4]| {
        let (mut manifest, rounds) = drawn(&["a", "b", "c", "d"], 30, |_, arm| levels[arm]);
        manifest.workload.reader = Some(printed());
        analyse(&manifest, &rounds).notes.join(" ")
    };
    let some = note([100.0, 105.0, 100.0, 105.0]);
    assert!(some.contains("All values of wall time of a and c are equal"), "{some}");
    assert!(note([100.0; 4]).contains("All values of wall time are equal"));
}

/// Points are no work per time, although more of them is better.
#[test]
fn only_units_per_second_are_work_over_time() {
    let follows = |unit: &str| {
        let (mut manifest, mut rounds) = drawn(
            &["a", "b"],
            30,
            |block, _| if block % 3 == 0 { 50.0 } else { 100.0 } + 0.01 * block as f64,
        );
        manifest.workload.metric = Metric::new("score", unit, Better::Higher);
        for round in &mut rounds {
            round.outcome.seconds = 100.0 / round.outcome.value.unwrap_or(1.0);
        }
        analyse(&manifest, &rounds).notes.join(" ")
    };
    let (points, rate) = (follows("points"), follows("MB/s"));
    assert!(points.contains("follow the mean, 83.") && !points.contains("over their time"), "{points}");
    assert!(rate.contains("follow the work of all rounds over their time, 75."), "{rate}");
}

#[test]
fn rounding_is_not_called_less_steady_and_a_shown_difference_names_the_best() {
    let mut random = Noise::new(31);
    let (mut all, mut worse) = (0, 0);
    for _ in 0..40 {
        // Equal noise, on a step and on the edge of one.
        let (mut manifest, rounds) =
            drawn(&["a", "b"], 30, |_, arm| (100.0 + 0.5 * arm as f64 + 0.25 * random.draw()).round());
        manifest.workload.reader = Some(printed());
        manifest.workload.metric = Metric::new("time", "ms", Better::Lower);
        let report = analyse(&manifest, &rounds);
        let comparison = &report.comparisons[0];
        let steadiness = comparison.steadiness;
        assert!(steadiness.is_none_or(|found| !found.verdict.is_difference()), "{steadiness:?}");
        all += usize::from(steadiness.is_none());
        if comparison.verdict == Verdict::Worse {
            worse += 1;
            assert_eq!(comparison.interval.map(|found| found.low), Some(0.0));
            let text = text_of(&report);
            assert!(text.contains("best time: a; between 0.00 and "), "{text}");
        }
    }
    assert!(all > 2 && worse > 10, "{all} {worse}");
    // One arm's noise is far above the step, and the other's far below.
    let (mut manifest, rounds) =
        drawn(&["a", "b"], 30, |_, arm| (100.0 + [0.02, 10.0][arm] * random.draw()).round());
    manifest.workload.reader = Some(printed());
    let report = analyse(&manifest, &rounds);
    assert_eq!(report.comparisons[0].steadiness.map(|found| found.verdict), Some(Verdict::Worse));
}

/// A program against another under two settings: `effects` is what the second costs under each, as
/// fractions. Noise of a round is 1 %, and the second setting is a tenth faster for both.
fn two_by_two(seed: u64, effects: [f64; 2], blocks: usize) -> Report {
    let mut random = Noise::new(seed);
    let factors = [1.0, 1.0 + effects[0], 0.9, 0.9 * (1.0 + effects[1])];
    programs_and_settings(blocks, |block, arm| {
        10.0 * (1.0 + 1e-3 * block as f64) * factors[arm] * (0.01 * random.draw()).exp()
    })
}

/// Equal programs in 25 blocks; `run` returns whether a round exists.
fn two_by_two_rounds(seed: u64, run: impl Fn(usize, usize) -> bool) -> Report {
    let mut random = Noise::new(seed);
    programs_in_rounds(25, |block, arm| run(block, arm).then(|| 10.0 * (0.01 * random.draw()).exp()))
}

fn programs_and_settings(blocks: usize, mut value: impl FnMut(usize, usize) -> f64) -> Report {
    programs_in_rounds(blocks, |block, arm| Some(value(block, arm)))
}

fn programs_in_rounds(blocks: usize, mut value: impl FnMut(usize, usize) -> Option<f64>) -> Report {
    let mut manifest = manifest(&["old x", "new x", "old y", "new y"]);
    for (place, arm) in manifest.arms.iter_mut().enumerate() {
        let (program, setting) = (["old", "new"][place % 2], ["x", "y"][place / 2]);
        let argv = vec![format!("./{program}")];
        arm.program = Some(crate::program::Program { argv, ..Default::default() });
        arm.settings = vec![crate::ArmSetting::new("mode", setting)];
        arm.name = format!("{program} mode={setting}");
    }
    manifest.boots.push(boot(&[0, 1, 2, 3]));
    let mut rounds = Vec::new();
    for block in 0..blocks {
        rounds.extend((0..4).filter_map(|arm| Some(round(block, arm, value(block, arm)?))));
    }
    manifest.workload.reader = Some(printed());
    // Without the medians' intervals, which take most of the time of a report.
    let counted: Vec<&Round> = rounds.iter().collect();
    let arms: Vec<ArmReport> = (0..4).map(|arm| report_points(&manifest, &counted, arm)).collect();
    let mut report = analyse(&manifest, &rounds[..4]);
    report.effects = interaction::effects(&manifest, &arms);
    report
}

#[test]
fn an_effect_that_depends_on_the_settings_is_found_and_seldom_invented() {
    let only = "new is faster than old under mode=y, which is not shown elsewhere";
    let right = (0..100).filter(|seed| text_of(&two_by_two(*seed, [0.0, -0.03], 25)).contains(only)).count();
    println!("interaction: {right} of 100 right at 3 % under one setting, noise 1 %, 25 blocks");
    assert!(right >= 95, "{right} of 100");
    let shown = |report: &Report| {
        report
            .effects
            .iter()
            .filter_map(|one| one.interaction.as_ref())
            .any(|one| one.verdict.is_difference())
    };
    for effect in [0.0, -0.03] {
        let wrong = (0..400).filter(|seed| shown(&two_by_two(5000 + seed, [effect; 2], 25))).count();
        println!("interaction: {wrong} of 400 invented at {effect} under both settings");
        assert!(wrong <= 4, "{wrong} of 400 at {effect}");
    }
    let both = text_of(&two_by_two(1, [0.04, -0.04], 25));
    assert!(both.contains("new is faster than old under mode=y, and slower under mode=x"), "{both}");
    let more = text_of(&two_by_two(2, [-0.03, -0.10], 25));
    assert!(more.contains("new is faster than old everywhere, but not equally"), "{more}");
    let alike = text_of(&two_by_two(3, [-0.05, -0.05], 25));
    assert!(
        alike.contains("new against old: no sign that the difference depends on the settings"),
        "{alike}"
    );
}

#[test]
fn whether_settings_matter_is_not_answered_untested() {
    let few = text_of(&two_by_two(1, [0.04, -0.04], 5));
    assert!(few.contains("depends on the settings is not tested: that needs 10 rounds"), "{few}");
    // A value of zero under one setting.
    let mut random = Noise::new(5);
    let zero = programs_and_settings(25, |block, arm| {
        if (block, arm) == (3, 1) { 0.0 } else { 10.0 * (0.01 * random.draw()).exp() }
    });
    let text = text_of(&zero);
    assert!(text.contains("is not tested: a setting has no verdict"), "{text}");
    // Under the second setting, no block has both programs.
    let apart = two_by_two_rounds(6, |block, arm| arm < 2 || (arm == 2) == (block < 12));
    assert!(text_of(&apart).contains("is not tested: no block has both programs under mode=y: "));
}

/// 0.6 % more under each setting, from 100.0 and from 99.6, in whole numbers.
#[test]
fn rounding_makes_no_interaction() {
    let values = [100.0, 101.0, 100.0, 100.0];
    let equal = programs_and_settings(25, |_, arm| values[arm]);
    let once =
        programs_and_settings(25, |block, arm| values[arm] + f64::from(u8::from(block == 9 && arm == 3)));
    for (report, is_known) in [(equal, false), (once, true)] {
        let found = report.effects[1].interaction.as_ref().expect("it is tested");
        assert!(found.p_corrected < 0.01 && found.interval.is_some() == is_known, "{found:?}");
        let text = text_of(&report);
        assert_eq!(text.contains("no sign that the difference depends on the settings"), is_known, "{text}");
        assert_eq!(
            text.contains("not tested: the step in which values come is not known"),
            !is_known,
            "{text}"
        );
        assert_eq!(text.contains("that is known to"), is_known, "{text}");
    }
}

/// A suite of `cases` cases with 2 % noise, run by arms that take `factors` times as long in the
/// first of them.
fn suite(seed: u64, cases: usize, factors: &[f64], blocks: usize) -> (Manifest, Vec<Round>) {
    let mut random = Noise::new(seed);
    let names: Vec<String> = (0..factors.len()).map(|arm| format!("arm {arm}")).collect();
    let mut manifest = manifest(&names.iter().map(String::as_str).collect::<Vec<_>>());
    manifest.workload.metric = Metric::suite("s", Better::Lower);
    manifest.workload.reader =
        Some(Reader::Suite { suite: Suite::Csv, exact: false, metric: manifest.workload.metric.clone() });
    manifest.boots.push(boot(&(0..factors.len()).collect::<Vec<_>>()));
    let mut rounds = Vec::new();
    for block in 0..blocks {
        for (arm, factor) in factors.iter().enumerate() {
            let mut one = round(block, arm, 0.0);
            one.outcome.cases = (0..cases)
                .map(|case| {
                    let factor = if case == 0 { *factor } else { 1.0 };
                    (format!("case {case}"), factor * (0.02 * random.draw()).exp())
                })
                .collect();
            one.outcome.value = geometric_mean(one.outcome.cases.values().copied());
            rounds.push(one);
        }
    }
    (manifest, rounds)
}

/// 11.6 and 12.4 ns, both printed as 12 in most rounds: a factor of 1e-9 does not hide the step,
/// and the mean of the cases is no more exact than the cases.
#[test]
fn suites_in_whole_nanoseconds_are_not_called_the_same() {
    let (mut manifest, mut rounds) = suite(3, 2, &[1.0, 1.0], 20);
    for round in &mut rounds {
        let factor = if round.arm == 0 { 11.6 } else { 12.4 };
        for value in round.outcome.cases.values_mut() {
            *value = (factor * value.powf(0.5)).round() * 1e-9;
        }
        round.outcome.value = geometric_mean(round.outcome.cases.values().copied());
    }
    manifest.schedule.limits = vec!["time > +5%".to_owned()];
    let report = analyse(&manifest, &rounds);
    let all = report.comparisons.iter().chain(report.cases.iter().map(|case| &case.comparison));
    for comparison in all {
        assert_eq!(comparison.verdict, Verdict::NoDifferenceShown, "{comparison:?}");
        assert!(comparison.step.is_some_and(|step| (step - 1.0 / 12.0).abs() < 0.01), "{comparison:?}");
    }
    let limit: Limit = "metric > +5%".parse().expect("a limit");
    let answers = gate(&manifest, &report, std::slice::from_ref(&limit));
    assert_eq!(answers[0].verdict, GateVerdict::CannotTell);
    // 2.6 and 3.4 ns can both be printed as 3 in all rounds: nothing is known of the mean either.
    for round in &mut rounds {
        round.outcome.cases.insert("case 0".to_owned(), 3e-9);
        round.outcome.cases.insert("case 1".to_owned(), 1.0 + 1e-6 * round.block as f64);
        round.outcome.value = geometric_mean(round.outcome.cases.values().copied());
    }
    let report = analyse(&manifest, &rounds);
    let mean = &report.comparisons[0];
    assert_eq!((mean.verdict, mean.interval, mean.step), (Verdict::NoDifferenceShown, None, None));
    assert_eq!(mean.shows, None);
    let answers = gate(&manifest, &report, &[limit]);
    assert_eq!(
        (answers[0].verdict, answers[0].reason),
        (GateVerdict::CannotTell, Some(NoInterval::UnknownStep))
    );
    assert!(report.notes.join(" ").contains("All values of a case are equal"), "{:?}", report.notes);
}

#[test]
fn cases_of_a_suite_are_judged_together() {
    let (manifest, mut rounds) = suite(1, 100, &[1.0, 1.2], 20);
    // Later builds have other cases, and one round is disturbed in one of them.
    rounds[1].outcome.cases.insert("new".to_owned(), 9.0);
    rounds[4].outcome.cases.insert("case 5".to_owned(), 9.0);
    let report = analyse(&manifest, &rounds);
    assert_eq!(report.cases.len(), 100);
    let first = &report.cases[0];
    assert_eq!((first.name.as_str(), first.comparison.verdict), ("case 0", Verdict::Worse));
    let interval = first.comparison.interval.expect("20 pairs have one");
    assert!(interval.low > 0.1 && interval.high < 0.3, "{interval:?}");
    let others = |one: &CaseReport| one.comparison.verdict == Verdict::NoDifferenceShown;
    assert!(report.cases[1..].iter().all(others));
    let disturbed = report.cases.iter().find(|one| one.name == "case 5").expect("it is there");
    assert_eq!(disturbed.marks, ["arm 0 disturbed in 1 of 20 rounds"]);
    assert!(report.notes.iter().any(|note| note.contains("left out (1)")), "{:?}", report.notes);
    let point = report.arms[1].summary(Quantity::Performance).expect("it has values").points[0].value;
    assert!(point < 1.1, "the new case does not count: {point}");
    // 14 rounds cannot decide a hundred cases.
    let (manifest, rounds) = suite(2, 100, &[1.0, 1.2], 14);
    let report = analyse(&manifest, &rounds);
    assert!(report.cases.iter().all(|one| one.comparison.verdict == Verdict::TooFewRounds));
}

#[test]
fn a_case_that_differs_from_itself_has_no_verdict() {
    let (mut manifest, rounds) = suite(3, 10, &[1.0, 1.2, 1.2], 20);
    manifest.arms[2].control = true;
    let report = analyse(&manifest, &rounds);
    let first = report.cases.iter().find(|one| one.name == "case 0").expect("it is there");
    assert!(first.withheld && first.comparison.verdict == Verdict::NoDifferenceShown, "{first:?}");
    assert_eq!(report.cases.len(), 10, "the control is no arm of its own");
}

#[test]
fn few_looks_and_many_rounds_are_called_so() {
    let text = |length: Length, blocks: usize, noise: f64, seconds: f64| {
        let mut manifest = manifest(&["a", "b"]);
        manifest.boots.push(boot(&[0, 1]));
        manifest.schedule.length = length;
        let mut random = Noise::new(8);
        let each = (0..blocks).flat_map(|block| [0, 1].map(|arm| (block, arm)));
        let rounds: Vec<Round> =
            each.map(|(block, arm)| round(block, arm, seconds * (noise * random.draw()).exp())).collect();
        text_of(&analyse(&manifest, &rounds))
    };
    let until = Length::Until { half_width: 0.01, decided: false, least: 3, most: 200 };
    let few = text(until, 4, 0.01, 1.0);
    assert!(few.contains("needs 6 rounds to be compared"), "{few}");
    assert!(few.contains("too few rounds to show any difference; 6 must count"), "{few}");
    let many = text(Length::Rounds(20), 20, 0.2, 1.0);
    assert!(many.contains(" rounds per arm would show 1 % ("), "{many}");
    let hopeless = text(Length::Rounds(20), 20, 0.2, 600.0);
    assert!(hopeless.contains("; at this noise a day cannot show 1 % (about "), "{hopeless}");
}

/// Blocks of arms whose values follow from the block and the arm.
fn drawn(
    names: &[&str],
    blocks: usize,
    mut value: impl FnMut(usize, usize) -> f64,
) -> (Manifest, Vec<Round>) {
    let mut manifest = manifest(names);
    manifest.boots.push(boot(&(0..names.len()).collect::<Vec<_>>()));
    let arms = 0..names.len();
    let each = (0..blocks).flat_map(|block| arms.clone().map(move |arm| (block, arm)));
    (manifest, each.map(|(block, arm)| round(block, arm, value(block, arm))).collect())
}

#[test]
fn until_decided_means_that_the_limit_is_decided() {
    for (factor, verdict) in
        [(1.07, GateVerdict::Over), (1.0, GateVerdict::Within), (1.02, GateVerdict::Within)]
    {
        let mut random = Noise::new(31);
        let of_arm = |arm| if arm == 1 { factor } else { 1.0 };
        let (mut manifest, rounds) =
            drawn(&["a", "b"], 300, |_, arm| of_arm(arm) * (0.02 * random.draw()).exp());
        manifest.schedule.length =
            Length::Until { half_width: EQUIVALENT, decided: true, least: 6, most: 300 };
        let blocks_until = |manifest: &Manifest| {
            (6..300).find(|blocks| is_known(manifest, &rounds[..2 * blocks], 0)).unwrap_or(300)
        };
        let without = blocks_until(&manifest);
        manifest.schedule.limits = vec!["time > +5%".to_owned()];
        let blocks = blocks_until(&manifest);
        let limits = ["time > +5%".parse().expect("a limit")];
        let rounds = &rounds[..2 * blocks];
        assert_eq!(gate(&manifest, &analyse(&manifest, rounds), &limits)[0].verdict, verdict, "{factor}");
        // A difference is shown long before it is known on which side of the limit it lies.
        assert!(factor < 1.05 || without < blocks, "{factor}: {without} {blocks}");
    }
}

#[test]
fn a_first_arm_that_differs_from_itself_withholds_all_words() {
    let mut random = Noise::new(3);
    let (mut manifest, rounds) =
        drawn(&["a", "b", "a again"], 15, |_, arm| [1.0, 1.08, 1.012][arm] * (0.003 * random.draw()).exp());
    manifest.arms[2].control = true;
    let mut report = analyse(&manifest, &rounds);
    report.gate = gate(&manifest, &report, &["time > +5%".parse().expect("a limit")]);
    let text = text_of(&report);
    // The limit is answered first, and once.
    assert!(text.starts_with("fail if time > +5%: b: no verdict (--aa) (+"), "{text}");
    assert_eq!(text.matches("fail if").count(), 1, "{text}");
    assert!(text.contains("\nb against a: wall time +") && text.contains(" %, no verdict.\n"), "{text}");
    assert!(text.contains("a differs from itself in wall time: +"), "{text}");
    assert!(text.contains("fastest: no verdict; the first arm differs"), "{text}");
    assert!(!text.contains("no difference") && !text.contains("cannot tell"), "{text}");
    assert!(text.contains("\nsteadiness: no verdict (--aa).\n"), "{text}");
}

#[test]
fn a_difference_that_equal_values_hide_is_told() {
    for arms in [2, 6] {
        let value =
            |block: usize, arm: usize| if arm == 1 && block.is_multiple_of(3) { 101.0 } else { 100.0 };
        let (manifest, rounds) = drawn(&["a", "b", "c", "d", "e", "f"][..arms], 60, value);
        let report = analyse(&manifest, &rounds);
        assert_eq!(report.comparisons[0].verdict, Verdict::NoDifferenceShown);
        let text = text_of(&report);
        let found: Vec<&str> =
            text.lines().filter(|line| line.contains("p shows a difference, but")).collect();
        let start = if arms == 2 { "b: wall time unclear (" } else { "unclear, b in wall time" };
        assert!(found.len() == 1 && found[0].contains(start), "{text}");
    }
}

#[test]
fn a_first_arm_less_steady_than_itself_withholds_steadiness() {
    let mut random = Noise::new(71);
    let (mut manifest, rounds) =
        drawn(&["a", "b", "a again"], 30, |_, arm| ([0.002, 0.02, 0.02][arm] * random.draw()).exp());
    let text = text_of(&analyse(&manifest, &rounds));
    assert!(text.contains("\nb: less steady than a"), "{text}");
    manifest.arms[2].control = true;
    let report = analyse(&manifest, &rounds);
    let text = text_of(&report);
    assert!(text.contains("steadiness: no verdict (--aa): a differs from itself"), "{text}");
    assert!(!text.contains("less steady") && report.comparisons[0].steadiness.is_none(), "{text}");
}

#[test]
fn a_first_arm_whose_resources_differ_withholds_their_words() {
    let mut random = Noise::new(4);
    let (mut manifest, mut rounds) =
        drawn(&["a", "b", "a again"], 15, |_, _| 1.0 * (0.003 * random.draw()).exp());
    for (arm, one) in manifest.arms.iter_mut().enumerate() {
        one.program = Some(crate::program::Program { argv: vec!["x".to_owned()], ..Default::default() });
        one.control = arm == 2;
    }
    for round in &mut rounds {
        let minor_faults = [100, 2000, 1500][round.arm] + (round.block % 7) as u64;
        round.outcome.usage = Some(flyball_host::Usage { minor_faults, ..Default::default() });
    }
    let report = analyse(&manifest, &rounds);
    let notes = report.notes.join("\n");
    assert!(notes.contains("different from itself in page faults"), "{notes}");
    let gate = gate(&manifest, &report, &["faults > +5%".parse().expect("a limit")]);
    assert!(gate.iter().all(|one| one.verdict != GateVerdict::Over), "{gate:?}");
    assert!(report.resources.iter().all(|one| !one.verdict.is_difference()), "{:?}", report.resources);
}

#[test]
fn a_difference_that_changes_during_the_run_is_told() {
    let mut random = Noise::new(6);
    let mut changed = |rise: fn(usize, usize) -> f64| {
        let (manifest, rounds) =
            drawn(&["a", "b"], 40, |block, arm| rise(block, arm) * (0.005 * random.draw()).exp());
        analyse(&manifest, &rounds)
    };
    // One arm steps by 10 %.
    let report = changed(|block, arm| if arm == 1 && block >= 23 { 1.1 } else { 1.0 });
    let notes = report.notes.join("\n");
    assert!(
        notes.contains("b against a: the difference in wall time changed during the run (medians of the thirds of the blocks: "),
        "{notes}"
    );
    assert!(notes.contains("b: values move during the run") && !notes.contains("no such change"), "{notes}");
    let text = text_of(&report);
    assert!(text.lines().take(3).any(|line| line.contains("its interval is of no one time.")), "{text}");
    assert!(!text.contains("would have been seen") && !text.contains("would show 1 %"), "{text}");
    // Both arms do.
    let notes = changed(|block, _| if block >= 20 { 1.05 } else { 1.0 }).notes.join("\n");
    assert!(!notes.contains("the difference in"), "{notes}");
    assert!(notes.contains("show no such change"), "{notes}");
    assert!(notes.contains("1.05"), "a step of 5 % is not called more: {notes}");
    let count =
        (0..300).filter(|_| changed(|_, _| 1.0).notes.join("\n").contains("the difference in")).count();
    println!("differences without a change that are called so: {count} of 300");
    assert!(count <= 8, "{count}");
}

#[test]
fn rounded_values_are_not_called_the_same() {
    let mut random = Noise::new(8);
    let truth = |arm| if arm == 1 { 12.4 } else { 12.2 };
    let (manifest, rounds) =
        drawn(&["a", "b"], 30, |_, arm| (truth(arm) * (0.006 * random.draw()).exp()).round());
    let report = analyse(&manifest, &rounds);
    assert_eq!(report.comparisons[0].verdict, Verdict::NoDifferenceShown);
    assert_eq!(report.comparisons[0].step, Some(1.0 / 12.0), "{:?}", report.comparisons);
    let notes = report.notes.join("\n");
    assert!(notes.contains("Values of wall time come in steps of at most 8.33 %"), "{notes}");
    for (limit, verdict) in [("time > +5%", GateVerdict::CannotTell), ("time > +20%", GateVerdict::Within)] {
        let answers = gate(&manifest, &report, &[limit.parse().expect("a limit")]);
        assert_eq!(answers[0].verdict, verdict, "{limit}");
    }
    // A clock of 4 ms ticks prints many digits.
    let (manifest, rounds) =
        drawn(&["a", "b"], 30, |block, _| 0.100_000_1 + if block % 9 == 0 { 0.004 } else { 0.0 });
    let comparison = &analyse(&manifest, &rounds).comparisons[0];
    assert_eq!(comparison.verdict, Verdict::NoDifferenceShown);
    assert!(comparison.step.is_some_and(|step| (step - 0.04).abs() < 0.001), "{:?}", comparison.step);
}

#[test]
fn normal_noise_seldom_has_far_rounds() {
    let mut random = Noise::new(21);
    for blocks in [5, 7, 10, 15, 30] {
        let has_far = |_: &usize| {
            let (manifest, rounds) = drawn(&["a"], blocks, |_, _| (0.01 * random.draw()).exp());
            let counted: Vec<&Round> = rounds.iter().collect();
            let arm = report_points(&manifest, &counted, 0);
            !sift::outliers(arm.summary(Quantity::Performance).expect("values")).is_empty()
        };
        let found = (0..2000).filter(has_far).count();
        assert!(found <= 20, "{found} of 2000, {blocks} blocks");
    }
}

#[test]
fn an_arm_that_noise_puts_first_is_not_called_the_best() {
    for seed in 0..10 {
        let mut random = Noise::new(seed);
        let (manifest, rounds) = drawn(&["now", "b", "c"], 25, |_, arm| {
            (if arm == 2 { 1.05 } else { 1.0 }) * (0.005 * random.draw()).exp()
        });
        let text = text_of(&analyse(&manifest, &rounds));
        assert!(text.contains("fastest: now or b ("), "{text}");
        let (manifest, rounds) =
            drawn(&["now", "b", "c"], 25, |_, arm| [1.0, 0.9, 0.8][arm] * (0.005 * random.draw()).exp());
        assert!(text_of(&analyse(&manifest, &rounds)).contains("fastest: c; between "));
    }
}

/// Returns the line about the best of arms with these values and a little noise.
fn best_of(levels: &[f64], zero_in: Option<usize>) -> String {
    let names: Vec<&str> = ["a", "b", "c", "d"][..levels.len()].to_vec();
    let mut manifest = manifest(&names);
    manifest.boots.push(boot(&(0..levels.len()).collect::<Vec<_>>()));
    manifest.workload.metric = Metric::new("latency", "us", Better::Lower);
    let mut random = Noise::new(41);
    let rounds: Vec<Round> = (0..30 * levels.len())
        .map(|place| {
            let (block, arm) = (place / levels.len(), place % levels.len());
            let value = levels[arm] * (1.0 + 0.001 * random.draw());
            round(block, arm, if zero_in == Some(arm) && block == 7 { 0.0 } else { value })
        })
        .collect();
    let text = text_of(&analyse(&manifest, &rounds));
    text.lines().rfind(|line| line.starts_with("best latency")).unwrap_or_default().to_owned()
}

#[test]
fn an_arm_without_a_verdict_is_named_beside_the_best() {
    let line = best_of(&[100.0, 50.0, 99.0], Some(1));
    assert!(line.starts_with("best latency of those with a verdict: c;"), "{line}");
    assert!(line.ends_with("; b has none"), "{line}");
    assert!(best_of(&[100.0, 50.0, 99.0], None).starts_with("best latency: b;"));
}

#[test]
fn the_best_of_two_compared_arms_is_told_with_their_verdict() {
    assert_eq!(best_of(&[100.0, 100.0, 103.0], None), "best latency: a or b (the same within ±0.5 %)");
    assert_eq!(
        best_of(&[103.0, 100.0, 100.0], None),
        "best latency: one of b, c (not compared with each other)"
    );
    let line = best_of(&[100.0, 100.0, 100.0, 103.0], None);
    assert_eq!(line, "best latency: one of a, b, c (b, c not compared with each other)");
}

#[test]
fn means_of_equal_arms_seldom_differ_by_more_than_chance() {
    let mut random = Noise::new(22);
    // `share` of the second arm's rounds and three in ten of the first one's take twice as long.
    let mut differs = |share: f64| {
        let (manifest, rounds) = drawn(&["a", "b"], 40, |_, arm| {
            let is_slow = random.0.random_range(0.0..1.0) < if arm == 1 { share } else { 0.3 };
            (if is_slow { 2.0 } else { 1.0 }) * (0.01 * random.draw()).exp()
        });
        odd_rounds(&manifest, &rounds, 1, Quantity::Performance)
            .is_some_and(|note| !note.contains("not shown to differ"))
    };
    let false_ones = (0..300).filter(|_| differs(0.3)).count();
    assert!(false_ones <= 8, "{false_ones} of 300");
    let found = (0..100).filter(|_| differs(0.8)).count();
    assert!(found >= 90, "{found} of 100");
}

#[test]
fn slow_rounds_of_one_arm_leave_out_what_would_have_been_seen() {
    let mut random = Noise::new(23);
    let mut text = |slow: f64| {
        let (manifest, rounds) = drawn(&["a", "b"], 40, |block, arm| {
            (if arm == 1 && block % 13 == 3 { slow } else { 1.0 }) * (0.02 * random.draw()).exp()
        });
        text_of(&analyse(&manifest, &rounds))
    };
    assert!(text(1.0).contains("would have been seen"));
    let slow = text(2.0);
    assert!(slow.contains("unclear") && !slow.contains("would have been seen"), "{slow}");
}

#[test]
fn rare_slow_rounds_are_told_beside_the_verdict() {
    let mut random = Noise::new(2);
    let (mut manifest, mut rounds) = drawn(&["a", "b"], 15, |block, arm| {
        (if arm == 1 && block == 7 { 1.5 } else { 1.0 }) * (0.001 * random.draw()).exp()
    });
    let mut report = analyse(&manifest, &rounds);
    report.gate = gate(&manifest, &report, &["time > +1%".parse().expect("a limit")]);
    let text = text_of(&report);
    assert!(text.starts_with("fail if time > +1%: b: within the limit in typical rounds"), "{text}");
    assert!(
        text.contains("\nb has the same wall time as a within ±0.5 % in typical rounds, shown"),
        "{text}"
    );
    assert!(text.contains("no arm; all are within ±0.5 % of a in typical rounds"), "{text}");
    assert!(text.contains("do not count how far; throughput and bills follow the mean, 1.03"), "{text}");
    assert!(text.contains("(a: 1.000, +3.") && text.contains(": not shown to differ)"), "{text}");
    // The means are compared if it is the first arm that has the slow round, too.
    let mut exchanged = rounds.clone();
    for round in &mut exchanged {
        round.arm = 1 - round.arm;
    }
    let text = text_of(&analyse(&manifest, &exchanged));
    assert!(text.contains("follow the mean, 1.03") && text.contains("(b: 1.000, -3."), "{text}");
    // The mean of a rate is work over time: 400/s in half of the rounds and 100/s in the others
    // make 160/s.
    manifest.workload.metric = crate::metric::Metric::new("rate", "ops/s", crate::metric::Better::Higher);
    for round in &mut rounds {
        let rate = if round.arm == 1 && round.block % 2 == 0 { 400.0 } else { 100.0 };
        round.outcome.value = Some(rate * (1.0 + 0.01 * random.draw()));
        round.outcome.seconds = 1000.0 / rate;
    }
    rounds.truncate(28);
    let notes = analyse(&manifest, &rounds).notes.join("\n");
    let follows = "throughput and bills follow the work of all rounds over their time, 1";
    let place = notes.find(follows).expect(&notes) + follows.len() - 1;
    let mean: f64 = notes[place..place + 5].parse().expect(&notes);
    assert!((mean - 160.0).abs() < 3.0, "{notes}");
}

#[test]
fn heat_of_all_arms_is_not_blamed_on_settings() {
    let (manifest, mut rounds) = drawn(&["now", "b"], 10, |block, arm| 1.0 + 0.001 * (block + arm) as f64);
    for round in &mut rounds {
        round.readings.throttled = Some(1);
    }
    let notes = analyse(&manifest, &rounds).notes.join("\n");
    let note = "now, b: throttled in 10 of 10 rounds, which count. Heat, not only the settings";
    assert!(notes.contains(note), "{notes}");
}

#[test]
fn a_drift_is_not_called_heat_of_the_round_before() {
    let mut random = Noise::new(12);
    let (manifest, mut rounds) = drawn(&["a", "b"], 30, |_, _| 0.0);
    for (number, round) in rounds.iter_mut().enumerate() {
        // The order within blocks alternates.
        round.place = if round.block % 2 == 0 { round.arm } else { 1 - round.arm };
        let time = 2 * (number / 2) + round.place;
        round.outcome.value = Some((0.005 * time as f64 + 0.001 * random.draw()).exp());
    }
    rounds.sort_by_key(|round| (round.block, round.place));
    let notes = analyse(&manifest, &rounds).notes.join("\n");
    assert!(notes.contains("values move during the run") && !notes.contains("--cool-down"), "{notes}");
}
