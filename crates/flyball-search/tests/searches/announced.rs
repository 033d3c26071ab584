//! The result announced after a search, against the truth: fresh rounds of base, chosen setting and
//! runner-up, judged by the test and interval that `compare` uses.

use flyball_measure::stats::{hodges_lehmann, pairs_needed, walsh_interval};

use super::{
    LIMIT, TWELVE,
    machine::{Machine, Size, space},
    number, search,
};

/// As in `tune` at 99 %: two pairs more than the minimum for judging three arms.
const LEVEL: f64 = 0.99;

/// The announced change of the chosen setting's energy and its interval, and the true one; `None`
/// if the base was chosen.
fn confirmed(machine: &mut Machine, size: Size, seed: u64) -> Option<(f64, (f64, f64), f64)> {
    let base = space(size).base();
    let (choice, _) = search(machine, size, LIMIT, 200, seed);
    if choice.arm == base {
        return None;
    }
    let changes: Vec<f64> = (0..pairs_needed(1.0 - LEVEL, 2) + 2)
        .filter_map(|block| {
            // The arms rotate instead of being shuffled.
            let mut arms = vec![base, choice.arm];
            arms.extend(choice.runner_up.filter(|arm| *arm != base));
            let turn = block % arms.len();
            arms.rotate_left(turn);
            let rounds: Vec<_> = arms.iter().map(|arm| machine.round(*arm)).collect();
            let of = |arm| rounds.iter().find(|round| round.arm == arm).and_then(|round| round.objective);
            Some(of(choice.arm)? - of(base)?)
        })
        .collect();
    let interval = walsh_interval(&changes, LEVEL)?;
    let truth = machine.truth(choice.arm)[0] - machine.truth(base)[0];
    Some((hodges_lehmann(&changes)?, (interval.low, interval.high), truth))
}

#[test]
fn announced_savings() {
    let (count, seed) = (number("FLYBALL_SEARCHES", 20), number("FLYBALL_SEARCH_SEED", 1));
    println!(
        "settings  announced better  mean error   interval holds the truth   better where nothing differs"
    );
    for size in [TWELVE, [3, 4, 4, 1]] {
        if count < 100 && size != TWELVE {
            continue;
        }
        let (mut better, mut errors, mut held, mut of, mut flat) = (0, 0.0, 0, 0, 0);
        for number in 0..count {
            let seed = seed.wrapping_mul(2_000_003).wrapping_add(number);
            if let Some((change, (low, high), truth)) =
                confirmed(&mut Machine::new(size, 0.01, seed), size, seed)
            {
                of += 1;
                better += usize::from(high < 0.0);
                errors += change - truth;
                held += usize::from((low..=high).contains(&truth));
            }
            let announced = confirmed(&mut Machine::new(size, 0.01, !seed).flat(), size, seed);
            flat += usize::from(announced.is_some_and(|(_, (_, high), _)| high < 0.0));
        }
        println!(
            "{:8} {better:10} of {of} {:+10.3} % {held:16} of {of} {flat:20} of {count}",
            size.iter().product::<usize>(),
            100.0 * errors / f64::from(of.max(1)),
        );
        assert!(held * 10 >= of as usize * 9 && flat * 10 <= count as usize);
    }
}
