//! The steps of energy meters, and the differences that they hide.

use super::*;

/// Rates of about 1000 with noise of 0.2 %, 15 blocks of rounds of about 10 s, and a power meter
/// that is read once a second as `watts` says of an arm.
fn metered_rates(mut watts: impl FnMut(&mut Noise, usize) -> f64) -> (Manifest, Vec<Round>) {
    let mut manifest = manifest(&["a", "b"]);
    manifest.machine.simulated = false;
    manifest.workload.reader = Some(printed());
    manifest.workload.metric = Metric::new("rate", "op/s", Better::Higher);
    manifest.boots.push(metered(1.0, &[Domain::Package]));
    manifest.boots[0].meters.energy[0].is_power = true;
    let mut random = Noise::new(33);
    let mut rounds = Vec::new();
    for place in 0..30 {
        let mut round = round(place / 2, place % 2, 1000.0 * (0.002 * random.draw()).exp());
        // Rounds do not take equally long, so that energies are not equal.
        round.outcome.seconds = 10.0 + 1e-3 * random.draw().abs();
        let mut read = |second: usize| {
            let at = if second == 10 { round.outcome.seconds } else { second as f64 };
            (at, watts(&mut random, place % 2).round() as u64)
        };
        round.readings.energy = vec![(0..=10).map(&mut read).collect()];
        rounds.push(round);
    }
    (manifest, rounds)
}

fn answer(manifest: &Manifest, rounds: &[Round], limit: &str) -> (Report, GateAnswer) {
    let report = analyse(manifest, rounds);
    let answer = gate(manifest, &report, &[limit.parse().expect("a limit")]).remove(0);
    (report, answer)
}

#[test]
fn equal_readings_of_a_meter_have_no_known_step() {
    // Whole watts of 20.55 and 21.45 W.
    let (manifest, rounds) = metered_rates(|random, arm| [20.55, 21.45][arm] + 0.01 * random.draw());
    let (report, answer) = answer(&manifest, &rounds, "energy > +2%");
    for one in &report.comparisons[1..] {
        let found = (one.verdict, one.interval, one.step);
        assert_eq!(found, (Verdict::NoDifferenceShown, None, None), "{:?}", one.quantity);
    }
    assert_eq!((answer.verdict, answer.reason), (GateVerdict::CannotTell, Some(NoInterval::UnknownStep)));
    assert!(report.notes.iter().any(|note| note.starts_with("All values of the energy meter are equal")));
}

#[test]
fn a_step_of_a_power_meter_is_no_difference() {
    // 20.45 and 20.55 W, whose whole watts differ by 5 %.
    let (manifest, rounds) = metered_rates(|random, arm| [20.45, 20.55][arm] + 0.01 * random.draw());
    let (report, answer) = answer(&manifest, &rounds, "energy > +2%");
    for one in &report.comparisons[1..] {
        let interval = one.interval.expect("it has one");
        assert_eq!(one.verdict, Verdict::NoDifferenceShown, "{:?}", one.quantity);
        assert!(interval.low < 0.005 && interval.high > 0.1 || interval.low < -0.09, "{interval:?}");
    }
    assert_eq!(answer.verdict, GateVerdict::CannotTell);
    let note = "Values of the energy meter come in steps of at most 5.00 %";
    assert!(report.notes.iter().any(|found| found.starts_with(note)), "{:?}", report.notes);
    assert!(text_of(&report).contains("equal values or rounding hide its size and direction"));
}

/// The mean over a round has more digits than the readings, and is no more exact unless they
/// scatter.
#[test]
fn the_mean_of_readings_has_their_step_unless_they_scatter() {
    let interval = |noise: f64| {
        let (manifest, rounds) = metered_rates(|random, arm| [20.3, 20.9][arm] + noise * random.draw());
        let report = analyse(&manifest, &rounds);
        assert_eq!(report.comparisons[1].quantity, Quantity::WorkEnergy);
        report.comparisons[1].interval.expect("it has one")
    };
    for (noise, is_wide) in [(0.15, true), (0.3, true), (0.8, false)] {
        let found = interval(noise);
        assert!(found.contains(0.6 / 20.3), "{noise}: {found:?}");
        assert_eq!(found.high - found.low > 0.09, is_wide, "{noise}: {found:?}");
    }
}

/// A counter of whole joules, in rounds that use 5.1 and 5.9 J.
#[test]
fn energy_per_work_has_the_step_of_a_counter() {
    let (mut manifest, mut rounds) = metered_rates(|_, _| 1.0);
    manifest.boots[0].meters.energy[0].is_power = false;
    let mut give = |joules: &dyn Fn(&Round) -> u64| {
        for round in &mut rounds {
            round.readings.energy = vec![vec![(0.0, 7), (10.0, 7 + joules(round))]];
        }
        answer(&manifest, &rounds, "energy > +2%")
    };
    let (report, of_equal) = give(&|_| 5);
    assert_eq!((report.comparisons[1].step, of_equal.verdict), (None, GateVerdict::CannotTell));
    let (report, of_more) = give(&|round| 5 + u64::from(round.arm == 1 && round.block == 4));
    assert!(report.comparisons[1].step.is_some_and(|step| step > 0.19), "{:?}", report.comparisons[1]);
    assert_eq!((of_more.verdict, of_more.reason), (GateVerdict::CannotTell, None));
}
