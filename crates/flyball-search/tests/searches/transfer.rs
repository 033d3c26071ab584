//! Searches that start from an earlier one: on a copy of the machine, on a machine that has nothing
//! in common with it, and on one on which the order of the settings is reversed.

use flyball_search::{Bound, Choice, Goal, Round, Search, Step};

use super::{
    LIMIT, TWELVE,
    machine::{Machine, Size, space},
    number,
};

/// A search and its blocks.
fn search(
    machine: &mut Machine,
    size: Size,
    earlier: &[Vec<Round>],
    seed: u64,
) -> (Choice, bool, Vec<Vec<Round>>) {
    let goal = Goal { within: 0.01, bound: LIMIT.map(Bound::OverBase), certainty: 0.99 };
    let mut search = Search::new(space(size), goal, seed).starting_from(earlier);
    let mut blocks = Vec::new();
    loop {
        match search.step() {
            Step::End(choice) => return (choice, true, blocks),
            Step::Run(_) if machine.done >= 200 => {
                return (search.best().expect("a block has run"), false, blocks);
            }
            Step::Run(block) => {
                let rounds: Vec<Round> = block.into_iter().map(|arm| machine.round(arm)).collect();
                search.add(&rounds);
                blocks.push(rounds);
            }
        }
    }
}

#[test]
fn an_earlier_search_saves_rounds_and_can_be_overruled() {
    let (count, seed) = (number("FLYBALL_SEARCHES", 10), number("FLYBALL_SEARCH_SEED", 1));
    println!("settings  from               rounds    right   of ended false");
    for size in [TWELVE, [3, 4, 4, 1]] {
        let only = number("FLYBALL_SEARCH_SETTINGS", 0) as usize;
        let settings = size.iter().product::<usize>();
        if (only > 0 && only != settings) || (count < 100 && size != TWELVE) {
            continue;
        }
        let mut rows = [(0, 0, 0, 0); 4];
        for number in 0..count {
            let seed = seed.wrapping_mul(3_000_017).wrapping_add(number);
            let old = Machine::new(size, 0.01, seed);
            let (_, _, blocks) = search(&mut old.copy(seed, 0.01), size, &[], seed);
            let (_, _, misleading) = search(&mut old.copy(seed, 0.01).reversed(), size, &[], seed);
            for (row, (machine, earlier)) in rows.iter_mut().zip([
                (old.copy(!seed, 0.01), &[][..]),
                (old.copy(!seed, 0.01), &blocks[..]),
                (Machine::new(size, 0.01, !seed), &blocks[..]),
                (old.copy(!seed, 0.01), &misleading[..]),
            ]) {
                let mut machine = machine;
                let (choice, ended, _) = search(&mut machine, size, earlier, seed ^ 77);
                let right = machine.is_right(choice.arm, space(size).base(), LIMIT);
                row.0 += machine.done;
                row.1 += usize::from(right);
                row.2 += usize::from(ended);
                row.3 += usize::from(ended && !right);
            }
        }
        for (name, (rounds, right, ended, wrong)) in
            ["nothing", "its copy", "another machine", "its reverse"].iter().zip(rows)
        {
            println!(
                "{:8}  {name:16} {:8.1} {:7.1}%   {wrong} of {ended}",
                size.iter().product::<usize>(),
                rounds as f64 / count as f64,
                100.0 * right as f64 / count as f64
            );
            assert!(right * 10 >= count as usize * 7);
        }
    }
}
