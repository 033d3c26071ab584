//! Shortens a sequence that shows a failure. The candidates of one round run in one boot, each from
//! the base state.

use crate::{
    boots::{Boots, CannotTell},
    guests::{self, Seen},
    mode::Mode,
    step::{Sequence, Step},
};

/// Maximum number of rounds.
const ROUNDS: usize = 5;
/// Maximum number of candidates per round.
const CANDIDATES: usize = 120;
/// A sequence with this many steps is short enough: the first round has tried shorter ones.
const SHORT: usize = 2;

/// A failure, and the steps that show it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The failed rule, or the kind of message.
    pub id: String,
    /// The steps that show it; the last one is where it was seen.
    pub steps: Vec<Step>,
    /// True if the failure was in the base state after the steps, so that any of them may be the
    /// last required one.
    pub is_after: bool,
}

/// Finds which candidates show which failure: pairs of the candidate's index and the failure's id.
pub type Shows<'a> = dyn Fn(&[Sequence], &Seen) -> Vec<(usize, String)> + 'a;

/// Shortens all failures together. A failure that does not reproduce keeps its steps.
pub fn shrink(
    boots: &dyn Boots,
    mode: &Mode,
    seed: u64,
    failures: &mut [Failure],
    shows: &Shows<'_>,
) -> Result<(), CannotTell> {
    let mut open: Vec<bool> = failures.iter().map(|failure| failure.steps.len() > 1).collect();
    for round in 0..ROUNDS {
        let mut all: Vec<(usize, Vec<Step>)> = Vec::new();
        let share = CANDIDATES / open.iter().filter(|open| **open).count().max(1);
        for (index, failure) in failures.iter().enumerate().filter(|(index, _)| open[*index]) {
            let tried = match round.checked_sub(usize::from(failure.is_after)) {
                None => (1..failure.steps.len()).map(|length| failure.steps[..length].to_vec()).collect(),
                Some(0) => pairs(&failure.steps),
                Some(_) => parts(&failure.steps),
            };
            all.extend(tried.into_iter().take(share.max(8)).map(|steps| (index, steps)));
        }
        if all.is_empty() {
            break;
        }
        // Shortest first, because some messages come once per boot.
        all.sort_by_key(|(_, steps)| steps.len());
        // Failures of one sequence share candidates.
        let mut distinct: Vec<Vec<Step>> = Vec::new();
        for (_, steps) in &all {
            if !distinct.contains(steps) {
                distinct.push(steps.clone());
            }
        }
        let name = |(at, steps): (usize, Vec<Step>)| Sequence { name: format!("shrink.{at}"), steps };
        let mut sequences: Vec<Sequence> = distinct.into_iter().enumerate().map(name).collect();
        // The base state after the last candidate is judged too.
        sequences.push(Sequence { name: "end".to_owned(), steps: Vec::new() });
        let found = shows(&sequences, &guests::run(boots, mode, &sequences, seed)?);
        for (index, failure) in failures.iter_mut().enumerate() {
            if !open[index] {
                continue;
            }
            let shows_it =
                |at: usize| found.iter().any(|(candidate, id)| *candidate == at && *id == failure.id);
            let tried = |steps: &Vec<Step>| all.iter().any(|(of, tried)| *of == index && tried == steps);
            let mut best =
                sequences.iter().enumerate().filter(|(at, sequence)| shows_it(*at) && tried(&sequence.steps));
            match best.next() {
                Some((_, sequence)) if sequence.steps.len() < failure.steps.len() => {
                    failure.steps.clone_from(&sequence.steps);
                    open[index] = failure.steps.len() > SHORT;
                }
                // If no pair shows it, try parts of the sequence.
                _ => open[index] = round <= usize::from(failure.is_after),
            }
        }
    }
    Ok(())
}

/// The last steps alone, and the last step with one other.
fn pairs(steps: &[Step]) -> Vec<Vec<Step>> {
    let count = steps.len();
    let Some(last) = steps.last() else { return Vec::new() };
    let mut all: Vec<Vec<Step>> = (1..count.min(5)).map(|tail| steps[count - tail..].to_vec()).collect();
    // From the end, because the cause is usually close.
    all.extend(steps[..count - 1].iter().rev().map(|step| vec![step.clone(), last.clone()]));
    all
}

/// Removes one step or a part of the steps; also one step with the last two, the first of which is
/// often half of the cause (offline and online, off and on).
fn parts(steps: &[Step]) -> Vec<Vec<Step>> {
    let count = steps.len();
    let mut all: Vec<Vec<Step>> = Vec::new();
    for at in (0..count.saturating_sub(2)).rev().filter(|_| count > 3) {
        all.push(vec![steps[at].clone(), steps[count - 2].clone(), steps[count - 1].clone()]);
    }
    for part in [count / 2, count / 4] {
        let mut at = 0;
        while part > 1 && at + part < count {
            let mut without = steps.to_vec();
            without.drain(at..at + part);
            all.push(without);
            at += part;
        }
    }
    for at in 0..count.saturating_sub(1) {
        let mut without = steps.to_vec();
        without.remove(at);
        all.push(without);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boots::{Ended, Job};

    /// A driver that fails after a write of 7 and a later write of 9.
    struct Fails;

    impl Boots for Fails {
        fn boot(&self, _: &Mode, job: &Job) -> Result<Ended, CannotTell> {
            let text = String::from_utf8_lossy(&job.files[1].1).into_owned();
            Ok(Ended { output: text, ..Ended::default() })
        }

        fn release(&self) -> &'static str {
            "test"
        }
    }

    #[test]
    fn the_shortest_sequence_is_found() {
        let mode = &Mode::all("ryzen-5750g").unwrap()[0];
        let steps: Vec<Step> = [1, 7, 2, 3, 4, 5, 6, 8, 9].map(|n| Step::write("x", n.to_string())).into();
        let mut failures = [Failure { id: "rule".into(), steps, is_after: false }];
        let shows = |sequences: &[Sequence], _: &Seen| {
            let fails = |sequence: &Sequence| {
                let at = |n: &str| sequence.steps.iter().position(|step| *step == Step::write("x", n));
                matches!((at("7"), at("9")), (Some(a), Some(b)) if a < b)
            };
            (0..sequences.len())
                .filter(|at| fails(&sequences[*at]))
                .map(|at| (at, "rule".to_owned()))
                .collect()
        };
        shrink(&Fails, mode, 0, &mut failures, &shows).unwrap();
        assert_eq!(failures[0].steps, [Step::write("x", "7"), Step::write("x", "9")]);
    }
}
