//! Fronts of energy and time, on machines whose front is known.

use flyball_search::{Front, FrontGoal, Label, Standing};

use super::{
    TWELVE,
    machine::{Machine, Size, space},
    number,
    others::wilson,
};

const WITHIN: f64 = 0.01;

fn front(machine: &mut Machine, size: Size, most: usize, seed: u64) -> Vec<Standing> {
    let mut front = Front::new(space(size), FrontGoal { within: WITHIN, confidence: 0.95, most }, seed);
    while let Some(orders) = front.next() {
        for block in machine.blocks(&orders) {
            front.add(&block, |_, _| Some(0.0));
        }
    }
    front.standings()
}

/// Whether the second setting truly dominates the first: better in one quantity, and not worse in
/// the other by more than what does not matter.
fn dominates(machine: &Machine, arm: usize, other: usize) -> bool {
    let by = |quantity: usize| machine.truth(other)[quantity] - machine.truth(arm)[quantity];
    (by(0) < 0.0 && by(1) <= WITHIN) || (by(1) < 0.0 && by(0) <= WITHIN)
}

/// Whether a setting is truly on the front: none is as good in one quantity and better in the other
/// by more than what does not matter.
fn is_on_front(machine: &Machine, size: Size, arm: usize) -> bool {
    !(0..space(size).len()).any(|other| {
        let by = |quantity: usize| machine.truth(other)[quantity] - machine.truth(arm)[quantity];
        (by(0) < -WITHIN && by(1) <= 0.0) || (by(1) < -WITHIN && by(0) <= 0.0)
    })
}

#[test]
fn fronts() {
    let (count, seed) = (number("FLYBALL_SEARCHES", 5), number("FLYBALL_SEARCH_SEED", 1));
    println!(
        "settings  noise   rounds mean (median, p90)  decided   searches with all claims right      on the front: right   dominated: right"
    );
    let rows: [(Size, f64, usize); 4] =
        [(TWELVE, 0.005, 200), (TWELVE, 0.01, 200), (TWELVE, 0.02, 200), ([3, 4, 4, 1], 0.01, 300)];
    let only = number("FLYBALL_SEARCH_SETTINGS", 0) as usize;
    for (size, noise, most) in rows {
        let settings = size.iter().product::<usize>();
        if (only > 0 && only != settings) || (count < 100 && only == 0 && settings > 12) {
            continue;
        }
        let (mut rounds, mut decided, mut all_right) = (Vec::new(), 0, 0);
        let mut claims = [(0_u32, 0_u32); 2];
        for number in 0..count {
            let seed = seed.wrapping_mul(5_000_011).wrapping_add(number);
            let mut machine = Machine::new(size, noise, seed);
            let standings = front(&mut machine, size, most, seed);
            rounds.push(machine.done as f64);
            let mut is_right = true;
            for (arm, standing) in standings.iter().enumerate() {
                let (kind, right) = match standing.label {
                    Label::Undecided => continue,
                    Label::OnFront => (0, is_on_front(&machine, size, arm)),
                    Label::Dominated { by } => (1, dominates(&machine, arm, by)),
                };
                decided += 1;
                claims[kind].0 += u32::from(right);
                claims[kind].1 += 1;
                is_right &= right;
            }
            all_right += u32::from(is_right);
        }
        rounds.sort_by(f64::total_cmp);
        let at = |share: f64| rounds[((rounds.len() - 1) as f64 * share) as usize];
        let (low, high) = wilson(f64::from(all_right), count as f64);
        let share = |(right, of): (u32, u32)| 100.0 * f64::from(right) / f64::from(of.max(1));
        println!(
            "{settings:8} {:5.1}% {:10.0} ({:.0}, {:.0}) {:15.1}% {:15.1}% ({low:.1} to {high:.1}) {:12.2}% of {} {:10.2}% of {}",
            100.0 * noise,
            rounds.iter().sum::<f64>() / count as f64,
            at(0.5),
            at(0.9),
            100.0 * f64::from(decided) / (count as f64 * settings as f64),
            100.0 * f64::from(all_right) / count as f64,
            share(claims[0]),
            claims[0].1,
            share(claims[1]),
            claims[1].1,
        );
        assert!(f64::from(all_right) >= 0.7 * count as f64);
    }
}
