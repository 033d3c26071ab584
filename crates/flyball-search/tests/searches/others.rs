//! Other ways to search, on the same machines and rounds, as today's tuners do.
//!
//! Each is the rule that its project documents, not its program: rounds in all blocks (`compare
//! --matrix`), successive halving, irace's F-race with paired t-tests at 95 % from the fifth block
//! on and without correction, Optuna's TPE (ten random trials, gamma 0.1, 24 candidates, one round
//! per trial, best single value), and KeenTune's scheme (TPE with five base rounds, three rounds
//! per trial, four rechecks). All use the limit as a penalty or as a filter on their own rounds.

use flyball_measure::stats::{mean, median, pairs_needed, standard_deviation};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;

use super::{
    LIMIT, TWELVE,
    machine::{Machine, Size, space},
    number, search,
};

/// A setting's values relative to the base in the same block: energy, and how far time is over the
/// limit.
type Values = Vec<[f64; 2]>;

/// One block of some settings, the base among them, in random order.
fn block(
    machine: &mut Machine,
    base: usize,
    limit: Option<f64>,
    arms: &[usize],
    values: &mut [Values],
    random: &mut Pcg64Mcg,
) {
    let mut order = arms.to_vec();
    if !order.contains(&base) {
        order.push(base);
    }
    order.shuffle(random);
    let rounds: Vec<_> = order.into_iter().map(|arm| machine.round(arm)).collect();
    let Some(zero) = rounds.iter().find(|round| round.arm == base) else { return };
    for round in &rounds {
        let of =
            |round: &flyball_search::Round| [round.objective, round.bounded].map(Option::unwrap_or_default);
        let (own, zero) = (of(round), of(zero));
        values[round.arm].push([own[0] - zero[0], own[1] - zero[1] - limit.unwrap_or(f64::INFINITY)]);
    }
}

/// The median of a setting's values: energy, and time over the limit.
fn middle(values: &Values) -> [f64; 2] {
    let of = |index: usize| {
        median(&values.iter().map(|value| value[index]).collect::<Vec<_>>()).unwrap_or(f64::INFINITY)
    };
    [of(0), of(1)]
}

/// Sorts better arms first: those that keep the limit by energy, then the others by their excess.
fn rank(arms: &mut [usize], values: &[Values]) {
    let key = |arm: usize| {
        let [energy, over] = middle(&values[arm]);
        if over > 0.0 { (1, over) } else { (0, energy) }
    };
    arms.sort_by(|a, b| key(*a).0.cmp(&key(*b).0).then(key(*a).1.total_cmp(&key(*b).1)));
}

fn exhaustive(machine: &mut Machine, size: Size, budget: usize, random: &mut Pcg64Mcg) -> usize {
    let mut arms: Vec<usize> = (0..space(size).len()).collect();
    let mut values = vec![Values::new(); arms.len()];
    while machine.done + arms.len() <= budget {
        block(machine, space(size).base(), LIMIT, &arms.clone(), &mut values, random);
    }
    rank(&mut arms, &values);
    arms[0]
}

/// Each stage drops half of the settings, and all stages have equal budgets (Karnin, Koren and
/// Somekh 2013).
fn halving(
    machine: &mut Machine,
    size: Size,
    limit: Option<f64>,
    budget: usize,
    random: &mut Pcg64Mcg,
) -> usize {
    let base = space(size).base();
    let mut arms: Vec<usize> = (0..space(size).len()).collect();
    let mut values = vec![Values::new(); arms.len()];
    let stages = (arms.len() as f64).log2().ceil() as usize;
    for stage in 1..=stages {
        let until = budget * stage / stages;
        loop {
            block(machine, base, limit, &arms, &mut values, random);
            if machine.done + arms.len() > until {
                break;
            }
        }
        rank(&mut arms, &values);
        arms.truncate(arms.len().div_ceil(2));
    }
    arms[0]
}

/// irace's race: from the fifth block on, settings are dropped that a paired t-test at 95 % finds
/// worse than the best.
fn race(machine: &mut Machine, size: Size, budget: usize, random: &mut Pcg64Mcg) -> usize {
    let base = space(size).base();
    let mut arms: Vec<usize> = (0..space(size).len()).collect();
    let mut values = vec![Values::new(); arms.len()];
    // A single cost: ten times the excess over the limit is added.
    let costs = |values: &Values| values.iter().map(|[energy, over]| energy + 10.0 * over.max(0.0)).collect();
    let mut blocks = 0;
    while arms.len() > 1 && machine.done + arms.len() <= budget {
        block(machine, base, LIMIT, &arms, &mut values, random);
        blocks += 1;
        if blocks < 5 {
            continue;
        }
        let cost: Vec<Vec<f64>> = arms.iter().map(|arm| costs(&values[*arm])).collect();
        let means: Vec<f64> = cost.iter().map(|cost| mean(cost).unwrap_or(f64::INFINITY)).collect();
        let best = (0..arms.len()).min_by(|a, b| means[*a].total_cmp(&means[*b])).unwrap_or(0);
        let worse = |index: usize| {
            // The base runs in every block, even if it was dropped. Its values are then not paired
            // with the others.
            let pairs: Vec<f64> =
                cost[index].iter().rev().zip(cost[best].iter().rev()).map(|(a, b)| a - b).collect();
            let (Some(middle), Some(spread)) = (mean(&pairs), standard_deviation(&pairs)) else {
                return false;
            };
            // The two-sided 5 % point of Student's t, accurate to a percent from four degrees on.
            let degrees = pairs.len() as f64 - 1.0;
            let point = 1.96 + 2.37 / degrees + 2.82 / degrees.powi(2) + 2.56 / degrees.powi(3);
            middle > point * spread / (pairs.len() as f64).sqrt()
        };
        arms = (0..arms.len()).filter(|index| !worse(*index)).map(|index| arms[index]).collect();
    }
    let mean_of = |arm: usize| mean(&costs(&values[arm])).unwrap_or(f64::INFINITY);
    arms.into_iter().min_by(|a, b| mean_of(*a).total_cmp(&mean_of(*b))).unwrap_or(base)
}

/// Optuna's TPE for categories, and KeenTune's scheme around it.
fn tpe(machine: &mut Machine, size: Size, budget: usize, is_keentune: bool, random: &mut Pcg64Mcg) -> usize {
    let base = space(size).base();
    let (base_rounds, repeats) = if is_keentune { (5, 3) } else { (3, 1) };
    let run = |machine: &mut Machine, arm: usize, rounds: usize| -> [f64; 2] {
        let rounds: Vec<_> = (0..rounds).map(|_| machine.round(arm)).collect();
        let of = |value: fn(&flyball_search::Round) -> Option<f64>| {
            mean(&rounds.iter().filter_map(value).collect::<Vec<_>>()).unwrap_or(f64::INFINITY)
        };
        [of(|round| round.objective), of(|round| round.bounded)]
    };
    let most = run(machine, base, base_rounds)[1] + LIMIT.unwrap_or(f64::INFINITY);
    let level = |arm: usize, factor: usize| arm / size[..factor].iter().product::<usize>() % size[factor];
    let mut trials: Vec<(f64, usize)> = Vec::new();
    let rechecks = if is_keentune { 4 } else { 0 };
    while machine.done + repeats + rechecks <= budget {
        let arm = if trials.len() < 10 {
            random.random_range(0..space(size).len())
        } else {
            let below = trials.len().div_ceil(10).min(25);
            // The density of a level among some trials, with a prior of one trial over all levels.
            let density = |some: &[(f64, usize)], factor: usize, at: usize| {
                let with = some.iter().filter(|(_, arm)| level(*arm, factor) == at).count() as f64;
                (with + 1.0 / size[factor] as f64) / (some.len() as f64 + 1.0)
            };
            let mut arm = 0;
            let mut step = 1;
            for factor in 0..size.len() {
                let drawn = (0..24).map(|_| {
                    let mut place: f64 = random.random();
                    let at = (0..size[factor]).find(|at| {
                        place -= density(&trials[..below], factor, *at);
                        place < 0.0
                    });
                    at.unwrap_or(size[factor] - 1)
                });
                let gain =
                    |at: usize| density(&trials[..below], factor, at) / density(&trials[below..], factor, at);
                let best = drawn.max_by(|a, b| gain(*a).total_cmp(&gain(*b))).unwrap_or(0);
                arm += best * step;
                step *= size[factor];
            }
            arm
        };
        let [energy, time] = run(machine, arm, repeats);
        trials.push((energy + 10.0 * (time - most).max(0.0), arm));
        trials.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    // KeenTune's recheck is reported and changes nothing.
    trials.first().map_or(base, |(_, arm)| *arm)
}

#[test]
fn others() {
    let (count, seed) = (number("FLYBALL_SEARCHES", 5), number("FLYBALL_SEARCH_SEED", 1));
    println!("settings  way                    rounds   right (95 % interval)");
    for (size, budgets) in [(TWELVE, [48, 96, 192]), ([3, 4, 4, 1], [96, 192, 384])] {
        if count < 100 && size != TWELVE {
            continue;
        }
        type Way = (&'static str, fn(&mut Machine, Size, usize, &mut Pcg64Mcg) -> usize);
        let ways: [Way; 5] = [
            ("all rounds", exhaustive),
            ("halving", |machine, size, budget, random| halving(machine, size, LIMIT, budget, random)),
            ("irace's race", race),
            ("Optuna's TPE", |machine, size, budget, random| tpe(machine, size, budget, false, random)),
            ("KeenTune's scheme", |machine, size, budget, random| tpe(machine, size, budget, true, random)),
        ];
        let print = |name: &str, rounds: usize, right: usize| {
            let (low, high) = wilson(right as f64, count as f64);
            println!(
                "{:8}  {name:20} {:8.0} {:7.1} % ({low:.1} to {high:.1})",
                size.iter().product::<usize>(),
                rounds as f64 / count as f64,
                100.0 * right as f64 / count as f64,
            );
        };
        let seed_of = |number: u64| seed.wrapping_mul(1_000_003).wrapping_add(number);
        let base = space(size).base();
        let (mut rounds, mut right) = (0, 0);
        for number in 0..count {
            let mut machine = Machine::new(size, 0.01, seed_of(number));
            let (choice, _) = search(&mut machine, size, LIMIT, 200, seed_of(number));
            rounds += machine.done;
            right += usize::from(machine.is_right(choice.arm, base, LIMIT));
        }
        print("flyball tune", rounds, right);
        for (name, way) in ways {
            for budget in budgets {
                let (mut rounds, mut right) = (0, 0);
                for number in 0..count {
                    let mut machine = Machine::new(size, 0.01, seed_of(number));
                    let arm = way(&mut machine, size, budget, &mut Pcg64Mcg::seed_from_u64(!seed_of(number)));
                    rounds += machine.done;
                    right += usize::from(machine.is_right(arm, base, LIMIT));
                }
                print(name, rounds, right);
            }
        }
    }
}

/// Successive halving on each machine with as many rounds as `flyball tune` needed there, without
/// and with the rounds of its confirmation: by settings, noise, limit and whether one setting
/// stands out.
#[test]
fn halving_with_the_same_rounds() {
    type Row = (Size, f64, Option<f64>, fn(Machine) -> Machine, &'static str);
    let rows: [Row; 10] = [
        (TWELVE, 0.005, None, |machine| machine, "smooth"),
        (TWELVE, 0.01, None, |machine| machine, "smooth"),
        (TWELVE, 0.02, None, |machine| machine, "smooth"),
        (TWELVE, 0.01, LIMIT, |machine| machine, "smooth"),
        (TWELVE, 0.01, None, Machine::needle, "needle"),
        (TWELVE, 0.01, None, Machine::flat, "equal"),
        ([3, 4, 4, 1], 0.01, None, |machine| machine, "smooth"),
        ([3, 4, 4, 1], 0.01, LIMIT, |machine| machine, "smooth"),
        ([3, 4, 4, 1], 0.01, None, Machine::needle, "needle"),
        ([4, 6, 4, 2], 0.01, None, |machine| machine, "smooth"),
    ];
    let (count, seed) = (number("FLYBALL_SEARCHES", 5), number("FLYBALL_SEARCH_SEED", 1));
    let rows = if count > 10 { &rows[..] } else { &rows[1..2] };
    // The fresh rounds by which `tune` confirms at 99 %: of base, choice and runner-up.
    let fresh = 3 * (pairs_needed(0.01, 2) + 2);
    println!(
        "settings  noise  limit  truth   rounds   tune right             halving: rounds, right      with {fresh} more"
    );
    let only = number("FLYBALL_SEARCH_SETTINGS", 0) as usize;
    for (size, noise, limit, truth, name) in rows {
        if only > 0 && size.iter().product::<usize>() != only {
            continue;
        }
        let base = space(*size).base();
        let (mut rounds, mut right) = ([0; 3], [0; 3]);
        for number in 0..count {
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(number);
            let new = || truth(Machine::new(*size, *noise, seed));
            let mut machine = new();
            let (choice, _) = search(&mut machine, *size, *limit, 200, seed);
            let took = machine.done;
            rounds[0] += took;
            right[0] += usize::from(machine.is_right(choice.arm, base, *limit));
            for (place, budget) in [took, took + fresh].into_iter().enumerate() {
                let mut machine = new();
                let arm = halving(&mut machine, *size, *limit, budget, &mut Pcg64Mcg::seed_from_u64(!seed));
                // Each of its stages runs at least once, so it may need more than its budget.
                rounds[place + 1] += machine.done;
                right[place + 1] += usize::from(machine.is_right(arm, base, *limit));
            }
        }
        let mean = |rounds: usize| rounds as f64 / count as f64;
        let share = |right: usize| {
            let (low, high) = wilson(right as f64, count as f64);
            format!("{:5.1} % ({low:.1} to {high:.1})", 100.0 * right as f64 / count as f64)
        };
        println!(
            "{:8} {:5.1}% {:>6} {name:7} {:6.0}   {:22} {:4.0} {:22} {:4.0} {}",
            size.iter().product::<usize>(),
            noise * 100.0,
            if limit.is_some() { "+5 %" } else { "none" },
            mean(rounds[0]),
            share(right[0]),
            mean(rounds[1]),
            share(right[1]),
            mean(rounds[2]),
            share(right[2]),
        );
    }
}

/// Writes the machines of these searches to the file `FLYBALL_SEARCH_DUMP`, one JSON object per
/// line, for other programs to search (scripts/bench-tune): each setting's rounds without drift,
/// the drift by number of round, which settings are right answers, and the result of `flyball
/// tune`.
#[test]
fn recorded_rounds() {
    use std::io::Write as _;
    let Ok(path) = std::env::var("FLYBALL_SEARCH_DUMP") else { return };
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).expect("a file"));
    let (count, seed) = (number("FLYBALL_SEARCHES", 5), number("FLYBALL_SEARCH_SEED", 1));
    let size = if number("FLYBALL_SEARCH_SETTINGS", 12) == 48 { [3, 4, 4, 1] } else { TWELVE };
    let base = space(size).base();
    for number in 0..count {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(number);
        let mut machine = Machine::new(size, 0.01, seed);
        let (choice, _) = search(&mut machine, size, LIMIT, 200, seed);
        let tune = (machine.done, machine.is_right(choice.arm, base, LIMIT));
        let mut machine = Machine::new(size, 0.01, seed);
        let arms = 0..space(size).len();
        let right: Vec<usize> = arms.clone().filter(|arm| machine.is_right(*arm, base, LIMIT)).collect();
        let rounds: Vec<Vec<[f64; 2]>> = arms.map(|arm| machine.recorded(arm, 200)).collect();
        writeln!(
            file,
            "{{\"size\":{size:?},\"base\":{base},\"limit\":{},\"right\":{right:?},\"tune\":[{},{}],\"drift\":{:?},\"rounds\":{rounds:?}}}",
            LIMIT.unwrap_or_default(),
            tune.0,
            tune.1,
            &machine.drift()[..400],
        )
        .expect("written");
    }
}

/// The 95 % interval of a share, in percent (Wilson 1927).
pub(crate) fn wilson(found: f64, of: f64) -> (f64, f64) {
    let z = 1.96;
    let (share, more) = (found / of, z * z / of);
    let middle = (share + more / 2.0) / (1.0 + more);
    let half = z / (1.0 + more) * (share * (1.0 - share) / of + more / (4.0 * of)).sqrt();
    (100.0 * (middle - half).max(0.0), 100.0 * (middle + half).min(1.0))
}
