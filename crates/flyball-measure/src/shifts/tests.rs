//! Made-up series: how often a shift is found that is there, and one that is not.

use super::*;
use rand_distr::{Distribution, StandardNormal};

fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    (0..count).map(|_| StandardNormal.sample(&mut rng)).collect()
}

#[test]
fn a_series_without_a_shift_gets_one_in_at_most_one_percent() {
    let options = Options { permutations: 999, ..Options::default() };
    let found = (0..1000).filter(|&seed| !find(&noise(seed, 400), &options).is_empty()).count();
    println!("shifts called in {found} of 1000 series without one");
    assert!(found <= 10, "{found} of 1000");
}

#[test]
fn a_shift_of_one_deviation_is_found_within_ten_runs_in_ninety_percent() {
    let options = Options { permutations: 999, ..Options::default() };
    let mut hits = 0;
    for seed in 0..300u64 {
        let at = 60 + (seed as usize * 37) % 280;
        let mut values = noise(10_000 + seed, 400);
        values[at..].iter_mut().for_each(|value| *value += 1.0);
        hits += usize::from(find(&values, &options).iter().any(|shift| shift.at.abs_diff(at) <= 10));
    }
    println!("{hits} of 300 planted shifts found within 10 runs");
    assert!(hits >= 270, "{hits} of 300");
}

#[test]
fn the_glitch_is_found_at_its_run() {
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(7);
    let values: Vec<f64> = (0..400)
        .map(|run| {
            let noise: f64 = StandardNormal.sample(&mut rng);
            if run < 105 { 20.3 + 0.4 * noise } else { 11.0 + 0.2 * noise }
        })
        .collect();
    let shifts = find(&values, &Options::default());
    assert_eq!(shifts.len(), 1);
    assert_eq!(shifts[0].at, 105);
    assert!((shifts[0].median_before - 20.3).abs() < 0.2 && (shifts[0].median_after - 11.0).abs() < 0.1);
}

#[test]
fn slow_wandering_is_no_shift_and_a_slope_is_drift() {
    let mut called = 0;
    for seed in 0..100 {
        let mut level = 0.0;
        let wander: Vec<f64> = noise(500 + seed, 300)
            .into_iter()
            .map(|step| {
                level = 0.7 * level + step;
                level
            })
            .collect();
        called += usize::from(!find(&wander, &Options::default()).is_empty());
    }
    assert!(called <= 6, "{called} of 100 wandering series");
    let slope: Vec<f64> = noise(3, 200).iter().enumerate().map(|(i, n)| i as f64 * 0.05 + n).collect();
    let shifts = find(&slope, &Options::default());
    assert_eq!(shifts.iter().map(|s| s.form).collect::<Vec<_>>(), [Form::Drift]);
    assert!(shifts[0].before.len() < 20 && shifts[0].after.len() < 20, "{shifts:?}");
}

/// Level, a little warmer, throttled with a long tail, level: two drifts, and no more.
#[test]
fn a_tail_belongs_to_its_drift() {
    let noise = noise(11, 400);
    let value = |run: usize| {
        let late = (run as f64 - 240.0).max(0.0);
        60.0 + (run as f64 - 200.0).clamp(0.0, 40.0) * 0.03
            + 65.0 * (1.0 - (-late / 30.0).exp())
            + 0.1 * noise[run]
    };
    let values: Vec<f64> = (0..400).map(value).collect();
    let shifts = find(&values, &Options::default());
    assert!(shifts.len() <= 2 && shifts.iter().all(|shift| shift.form == Form::Drift), "{shifts:#?}");
    let last = shifts.last().unwrap();
    assert!((225..250).contains(&last.at) && last.after.start > 290, "{last:?}");
    assert!(last.median_before < 62.0 && last.median_after > 120.0, "{last:?}");
}

/// A series of runs in which another job comes and goes, a fan is blocked for a while, or a
/// background task starts.
#[test]
fn changes_that_go_back_and_changes_of_spread_are_found() {
    let forms =
        |values: &[f64]| find(values, &Options::default()).iter().map(|s| (s.form, s.at)).collect::<Vec<_>>();
    let small = noise(5, 200);
    let doubled: Vec<f64> =
        (0..60).map(|run| if (20..40).contains(&run) { 2.0 } else { 1.0 } + 0.001 * small[run]).collect();
    assert_eq!(forms(&doubled), [(Form::Step, 20), (Form::Step, 40)]);
    // Up by 80 % over 29 runs, and down again.
    let hill =
        |run: usize| 1.0 + 0.8 * (1.0 - (run as f64 - 100.0).abs() / 29.0).max(0.0) + 0.001 * small[run];
    let shifts = find(&(0..200).map(hill).collect::<Vec<_>>(), &Options::default());
    let drifts: Vec<_> = shifts.iter().filter(|shift| shift.form == Form::Drift).collect();
    assert!(drifts.len() >= 2 && drifts[0].at.abs_diff(71) <= 8, "{shifts:#?}");
    assert!(drifts[0].median_before < 1.1, "{shifts:#?}");
    let wider: Vec<f64> = (0..200).map(|run| 100.0 + if run < 90 { 0.5 } else { 2.0 } * small[run]).collect();
    let shifts = find(&wider, &Options::default());
    assert_eq!(shifts.len(), 1, "{shifts:#?}");
    assert_eq!(shifts[0].form, Form::Spread);
    assert!(shifts[0].at.abs_diff(90) <= 12, "{shifts:#?}");
    let (before, after) = (shifts[0].median_before, shifts[0].median_after);
    assert!((0.3..0.7).contains(&before) && (1.3..2.7).contains(&after), "{shifts:#?}");
}

/// Series whose neighbours resemble each other get a shift about as rarely as the help says, and a
/// clear step among few of them is found.
#[test]
fn correlated_series_seldom_get_a_shift() {
    let series = |seed: u64, count: usize, correlation: f64| -> Vec<f64> {
        let mut level = 0.0;
        let of_run = noise(seed, count).into_iter().enumerate().map(|(run, step)| {
            let new = if run == 0 { 1.0 } else { (1.0 - correlation * correlation).sqrt() };
            level = correlation * level + new * step;
            level
        });
        of_run.collect()
    };
    let count: u64 = std::env::var("FLYBALL_SERIES").map_or(200, |text| text.parse().expect("a number"));
    for (runs, most) in [(20, 0.1), (50, 0.06), (100, 0.04), (200, 0.03), (300, 0.03)] {
        for correlation in [0.0, 0.3, 0.5, 0.8] {
            let of = |seed: u64| series(seed * 7919 + runs as u64, runs, correlation);
            let found = (0..count).filter(|&seed| !find(&of(seed), &Options::default()).is_empty()).count();
            println!("{runs} runs, correlation {correlation}: {found} of {count}");
            assert!(found as f64 <= most * count as f64 + 2.0, "{runs} runs, {correlation}: {found}");
        }
        for (step, least) in [(3.0, 0.5), (5.0, 0.9), (10.0, 0.97)] {
            let of = |seed: u64| {
                let mut values = series(seed * 104_729 + runs as u64, runs, 0.0);
                values[runs / 2..].iter_mut().for_each(|value| *value += step);
                values
            };
            let is_found = |seed: &u64| {
                find(&of(*seed), &Options::default()).iter().any(|shift| shift.at.abs_diff(runs / 2) <= 2)
            };
            let found = (0..count / 2).filter(is_found).count();
            println!("{runs} runs, a step of {step}: {found} of {}", count / 2);
            assert!(found as f64 >= least * (count / 2) as f64, "{runs} runs, a step of {step}: {found}");
        }
    }
}

/// A doubling that lasts three to five runs is found at its runs, and a level that goes up and down
/// is a season.
#[test]
fn glitches_are_found_and_seasons_are_called_so() {
    let places =
        |values: &[f64]| find(values, &Options::default()).iter().map(|s| (s.form, s.at)).collect::<Vec<_>>();
    for length in 3..=5 {
        for seed in 0..10 {
            let noise = noise(40 + seed, 200);
            let value =
                |run: usize| if (105..105 + length).contains(&run) { 2.0 } else { 1.0 } + 0.01 * noise[run];
            let values: Vec<f64> = (0..200).map(value).collect();
            assert_eq!(places(&values), [(Form::Step, 105), (Form::Step, 105 + length)], "{length} {seed}");
        }
    }
    // Three slow runs that are not neighbours are outliers.
    let apart = |run: usize| if [50, 105, 160].contains(&run) { 2.0 } else { 1.0 };
    let values: Vec<f64> = noise(4, 200).iter().enumerate().map(|(i, n)| apart(i) + 0.01 * n).collect();
    assert!(places(&values).is_empty());
    let of = |height: &dyn Fn(f64) -> f64| {
        let noise = noise(8, 240);
        let values: Vec<f64> = (0..240).map(|run| 10.0 + height(run as f64) + 0.1 * noise[run]).collect();
        season(&values)
    };
    let wave = of(&|run| (run * std::f64::consts::TAU / 60.0).sin());
    assert!(wave.is_some_and(|period| (54.0..66.0).contains(&period)), "{wave:?}");
    let day_and_night = of(&|run| if (run as usize / 25).is_multiple_of(2) { 0.0 } else { 1.0 });
    assert!(day_and_night.is_some_and(|period| (47.0..53.0).contains(&period)), "{day_and_night:?}");
    assert_eq!(of(&|run| if run < 100.0 { 0.0 } else { 1.0 }), None);
}

/// Stinner's glitch: the temperature falls for a while after the run at which the frequency
/// changed.
#[test]
fn what_changes_slowly_from_the_same_run_on_is_named() {
    let small = noise(9, 400);
    let values: Vec<f64> =
        (0..400).map(|run| if run < 105 { 20.3 } else { 11.0 } + 0.2 * small[run]).collect();
    for tau in [5.0, 10.0, 20.0, 40.0] {
        let falls = |run: usize| match run {
            0..105 => 70.0 + small[(run * 7) % 400],
            _ => 58.0 + 12.0 * (-(run as f64 - 105.0) / tau).exp() + small[(run * 7) % 400],
        };
        let values_of =
            |one: &dyn Fn(usize) -> f64| Values::Numbers((0..400).map(|run| Some(one(run))).collect());
        let column = |name: &str, values| Column { name: name.to_owned(), unit: "C".to_owned(), values };
        let columns = [
            column("temperature", values_of(&falls)),
            column("uptime", values_of(&|run| run as f64)),
            column(
                "other",
                values_of(&|run| {
                    3.0 + ((run as f64 - 250.0) / 60.0).clamp(0.0, 1.0) + 0.1 * small[(run * 3) % 400]
                }),
            ),
        ];
        let shifts = find(&values, &Options::default());
        let step = shifts.iter().find(|shift| shift.form == Form::Step && shift.at == 105);
        let step = step.unwrap_or_else(|| panic!("{shifts:#?}"));
        let names: Vec<_> = column_changes(step, &columns, &Options::default())
            .into_iter()
            .map(|change| change.name)
            .collect();
        assert_eq!(names, ["temperature"], "tau {tau}");
    }
}

/// Three runs are a level of their own, which neither a slow change nor a wider spread is.
#[test]
fn few_far_runs_at_an_end_are_a_step() {
    let mut named = 0;
    for (runs, few, size, seed) in
        [(100, 3, 10.0), (60, 4, 10.0), (40, 4, 10.0), (60, 3, 10.0), (300, 4, 6.0), (20, 3, 10.0)]
            .into_iter()
            .flat_map(|(runs, few, size)| (0..10).map(move |seed| (runs, few, size, seed)))
    {
        for is_last in [true, false] {
            let mut values = noise(30_000 + seed, runs);
            let range = if is_last { runs - few..runs } else { 0..few };
            values[range].iter_mut().for_each(|value| *value += size);
            let at = if is_last { runs - few } else { few };
            let shifts = find(&values, &Options::default());
            let is_right = |shift: &Shift| {
                let Some(within) = shift.within.clone() else { return false };
                shift.form == Form::Step && within.start <= at && at <= within.end
            };
            assert!(shifts.iter().all(is_right), "{runs} {few} {seed} {is_last}: {shifts:#?}");
            named += shifts.len();
        }
    }
    println!("{named} of 120");
    assert!(named >= 40, "{named}");
}

/// Two steps in one direction fit a ramp better than one step, but are no ramp.
#[test]
fn two_steps_are_not_slow() {
    for size in [3.0, 10.0, 100.0] {
        let (mut named, mut slow, mut false_ones) = (0, 0, 0);
        for seed in 0..20 {
            let mut values = noise(50_000 + seed, 100);
            values[30..].iter_mut().for_each(|value| *value += size);
            values[70..].iter_mut().for_each(|value| *value += size);
            let shifts = find(&values, &Options::default());
            let is_at = |shift: &Shift, at: usize| shift.at.abs_diff(at) <= 5;
            slow += shifts.iter().filter(|shift| shift.form == Form::Drift).count();
            named += shifts.iter().filter(|shift| is_at(shift, 30) || is_at(shift, 70)).count();
            false_ones += shifts.iter().filter(|shift| !is_at(shift, 30) && !is_at(shift, 70)).count();
        }
        println!("{size} deviations each: {named} of 40 named, {slow} slow, {false_ones} elsewhere");
        assert!(named >= 36 && slow == 0 && false_ones <= 1, "{size}");
    }
}

#[test]
fn one_run_more_than_too_few_at_an_end_is_found() {
    let options = Options::default();
    assert_eq!([20, 37, 38, 60, 110, 111].map(|count| too_few_at_end(count, &options)), [4, 4, 3, 3, 3, 2]);
    for count in [20, 60, 120] {
        let few = too_few_at_end(count, &options);
        let found = |last: usize| {
            let is_found = |seed: &u64| {
                let mut values = noise(40_000 + seed, count);
                values[count - last..].iter_mut().for_each(|value| *value += 50.0);
                !find(&values, &options).is_empty()
            };
            (0..10).filter(is_found).count()
        };
        let (seldom, mostly) = (found(few), found(few + 1));
        println!(
            "{count} runs: {few} far ones at the end {seldom} of 10, {} of them {mostly} of 10",
            few + 1
        );
        assert!(seldom <= 2 && mostly >= 8, "{count} runs: {seldom}, {mostly}");
    }
}

/// Two values that differ in their last digits, one of them more often in the middle.
#[test]
fn a_change_that_no_median_shows_is_not_a_shift() {
    let noise = noise(3, 400);
    let value = |run: usize| {
        let often = if (34..345).contains(&run) { -1.5 } else { 0.3 };
        if noise[run] > often { 14.705_882_352_941_176 } else { 14.705_882_352_941_178 }
    };
    let values: Vec<f64> = (0..400).map(value).collect();
    let shifts = find(&values, &Options::default());
    assert!(shifts.iter().all(|shift| shift.form == Form::Spread), "{shifts:#?}");
}

#[test]
fn odd_series_do_not_panic() {
    let options = Options::default();
    for values in [vec![], vec![1.0], vec![1.0; 50], vec![f64::NAN; 20], vec![f64::INFINITY, 1.0]] {
        assert!(find(&values, &options).is_empty());
    }
    let constant_step: Vec<f64> = (0..40).map(|i| if i < 20 { 1.0 } else { 2.0 }).collect();
    assert_eq!(find(&constant_step, &options)[0].at, 20);
}

/// Series without a shift reach a level of evidence no more often than promised.
#[test]
fn evidence_is_as_rare_as_it_says() {
    let options = Options::default();
    for (name, count, correlation) in
        [("independent", 40, 0.0), ("independent", 100, 0.0), ("wandering", 40, 0.5), ("wandering", 100, 0.5)]
    {
        let mut found = [0; 3];
        for seed in 0..20_000 {
            let mut level = 0.0;
            let values = noise(70_000 + seed, count).into_iter().map(|step| {
                level = correlation * level + step;
                level
            });
            let p = evidence(&values.collect::<Vec<f64>>(), &options);
            for (limit, found) in [1e-2, 1e-3, 1e-4].into_iter().zip(&mut found) {
                *found += usize::from(p <= limit);
            }
        }
        println!("{name}, {count} runs: {found:?} of 20000 with evidence of 1e-2, 1e-3, 1e-4");
        // 200, 20 and 2 are promised. Chance adds some.
        assert!(found[0] <= 240 && found[1] <= 30 && found[2] <= 6, "{name} {count} {found:?}");
    }
}

/// One step fitted to these leaves residuals that are alike in neighbouring runs.
#[test]
fn slow_changes_and_several_steps_have_evidence() {
    let options = Options::default();
    let at = |run: usize, from: usize| f64::from(u8::from(run >= from));
    let ramp = |run: usize| ((run as f64 - 20.0) / 25.0).clamp(0.0, 1.0);
    let two = |run: usize| f64::midpoint(at(run, 20), at(run, 40));
    let three = |run: usize| (at(run, 15) + at(run, 30) + at(run, 45)) / 3.0;
    for (name, level) in
        [("ramp", &ramp as &dyn Fn(usize) -> f64), ("two steps", &two), ("three steps", &three)]
    {
        let is_sure = |seed: &u64| {
            let noise = noise(80_000 + seed, 60).into_iter().enumerate();
            let values: Vec<f64> = noise.map(|(run, one)| 10.0 * level(run) + one).collect();
            evidence(&values, &options) <= 1e-4
        };
        let sure = (0..20).filter(is_sure).count();
        println!("{name}: {sure} of 20 have evidence of 1e-4");
        assert!(sure >= 18, "{name}: {sure}");
    }
}

#[test]
fn evidence_of_a_clear_shift_is_beyond_one_in_a_million() {
    let options = Options::default();
    for (count, at) in [(50, 25), (60, 50), (100, 90), (300, 150)] {
        let mut found: Vec<f64> = (0..40)
            .map(|seed| {
                let mut values = noise(9_000 + seed, count);
                values[at..].iter_mut().for_each(|value| *value += 8.0);
                evidence(&values, &options)
            })
            .collect();
        found.sort_by(f64::total_cmp);
        let (median, most) = (found[20], found[39]);
        println!("{count} runs, shift at {at}: {median:.1e}, at most {most:.1e}");
        // If neighbours look dependent by chance, few runs count less.
        assert!(median < 1e-6 && most < 1e-3, "{count} {at} {median} {most}");
    }
    let mut there_and_back = noise(10, 90);
    there_and_back[40..55].iter_mut().for_each(|value| *value -= 8.0);
    assert!(evidence(&there_and_back, &options) < 1e-6);
}

#[test]
fn rounded_values_do_not_get_a_spread_of_zero() {
    let rounded = |seed| noise(seed, 60).into_iter().map(|value| (value / 1.2).round() + 100.0).collect();
    let has_zero = |values: Vec<f64>| {
        let shifts = find(&values, &Options::default());
        shifts
            .iter()
            .any(|shift| shift.form == Form::Spread && shift.median_before.min(shift.median_after) == 0.0)
    };
    assert!((0..300).all(|seed| !has_zero(rounded(seed))));
}

#[test]
fn a_lasting_change_of_the_named_size_is_found() {
    for runs in [40, 60, 100, 200] {
        let size = found_from(&vec![1.0; runs]).expect("enough runs");
        let is_found = |seed: &u64| {
            let mut values = noise(70_000 + seed, runs);
            values[runs / 2..].iter_mut().for_each(|value| *value += size);
            !find(&values, &Options { permutations: 999, ..Options::default() }).is_empty()
        };
        let count = (0..100).filter(is_found).count();
        println!("{runs} runs, {size:.2} deviations: found in {count} of 100");
        assert!(count >= 80, "{runs}: {count}");
    }
    assert_eq!(found_from(&[1.0; 39]), None);
    let levels: Vec<f64> = noise(1, 40).iter().map(|value| 10.0 + 0.01 * value).collect();
    assert!(found_from(&levels).is_some());
    let levels: Vec<f64> =
        (0..).zip(&levels).map(|(run, one)| if run % 3 == 0 { 2.0 * one } else { *one }).collect();
    assert_eq!(found_from(&levels), None, "two levels");
    assert_eq!(found_from(&(0..100).map(f64::from).collect::<Vec<f64>>()), None);
}

#[test]
fn equal_runs_are_no_season() {
    for (count, value) in [(60, 41_943_040.0), (61, 0.1), (80, 0.0), (500, 1.7)] {
        assert_eq!(super::season(&vec![value; count]), None, "{count} x {value}");
    }
}

/// Among strongly correlated series, hardly more than promised have evidence. If runs are alike by
/// chance, a step that is far larger than their movement is still found.
#[test]
fn a_clear_step_has_evidence_although_runs_look_alike() {
    let options = Options::default();
    let rates = |count: usize, correlation: f64, step: (usize, f64), series: u64| {
        let mut found = [0; 4];
        for seed in 0..series {
            let mut level = 0.0;
            let values = noise(70_000 + seed, count + 50).into_iter().map(|one| {
                level = correlation * level + one;
                level
            });
            let mut values: Vec<f64> = values.skip(50).collect();
            values[step.0..].iter_mut().for_each(|value| *value += step.1);
            let p = evidence(&values, &options);
            for (limit, found) in [1e-2, 1e-3, 3e-4, 1e-4].into_iter().zip(&mut found) {
                *found += usize::from(p <= limit);
            }
        }
        println!("{count} runs, correlation {correlation}, step {step:?}: {found:?} of {series}");
        found
    };
    // A single series is named from evidence of 1e-2 on, one of thirty from 3e-4 on.
    assert!(rates(14, 0.0, (9, 20.0), 200)[0] >= 190);
    assert!(rates(20, 0.0, (10, 20.0), 200)[2] >= 190);
    assert!(rates(30, 0.0, (15, 20.0), 200)[3] >= 190);
    assert!(rates(30, 0.0, (15, 6.0), 200)[0] >= 185);
    for (correlation, most) in [(0.0, 10), (0.5, 20), (0.8, 35)] {
        assert!(rates(30, correlation, (0, 0.0), 1_000)[0] <= most);
    }
}
