//! From a sequence that shows a failure to a shorter one that still does. Candidates of one round run in one boot, each
//! from the base state.

use crate::{
    boots::{Boots, CannotTell, Ended, Job},
    mode::Mode,
    step::{Sequence, Step},
};

/// Boots for one failure at most.
const ROUNDS: usize = 4;
/// Candidates of a round at most.
const CANDIDATES: usize = 120;

/// A failure to be shown by fewer steps.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What fails: a rule, or a kind of message.
    pub id: String,
    /// The steps that show it; the last one is where it was seen.
    pub steps: Vec<Step>,
}

/// Which candidates of a boot show which failure: pairs of the candidate's index and the failure's id.
pub type Shows<'a> = dyn Fn(&[Sequence], &Ended) -> Vec<(usize, String)> + 'a;

/// Shortens all failures together. What does not show again, for whatever reason, stays as it is.
pub fn shrink(
    boots: &dyn Boots,
    mode: &Mode,
    seed: u64,
    failures: &mut [Failure],
    shows: &Shows<'_>,
) -> Result<(), CannotTell> {
    let mut open: Vec<bool> = failures.iter().map(|failure| failure.steps.len() > 1).collect();
    for _ in 0..ROUNDS {
        let mut all: Vec<(usize, Vec<Step>)> = Vec::new();
        let share = CANDIDATES / open.iter().filter(|open| **open).count().max(1);
        for (index, failure) in failures.iter().enumerate().filter(|(index, _)| open[*index]) {
            all.extend(candidates(&failure.steps).into_iter().take(share.max(4)).map(|steps| (index, steps)));
        }
        if all.is_empty() {
            break;
        }
        // The shortest first: some messages come once per boot.
        all.sort_by_key(|(_, steps)| steps.len());
        let name = |(at, (_, steps)): (usize, &(usize, Vec<Step>))| Sequence {
            name: format!("shrink.{at}"),
            steps: steps.clone(),
        };
        let sequences: Vec<Sequence> = all.iter().enumerate().map(name).collect();
        let ended = boots.boot(mode, &Job::sequences(mode, &sequences, seed))?;
        let found = shows(&sequences, &ended);
        for (index, failure) in failures.iter_mut().enumerate() {
            let best = all.iter().enumerate().find(|(at, (of, _))| {
                *of == index && found.iter().any(|(candidate, id)| candidate == at && *id == failure.id)
            });
            match best {
                Some((_, (_, steps))) if steps.len() < failure.steps.len() => {
                    failure.steps.clone_from(steps);
                    open[index] = steps.len() > 1;
                }
                _ => open[index] = false,
            }
        }
    }
    Ok(())
}

/// Shorter sequences, the shortest first: the last steps alone, the last with one or two others, and all but one or a part.
fn candidates(steps: &[Step]) -> Vec<Vec<Step>> {
    let count = steps.len();
    let mut all: Vec<Vec<Step>> = Vec::new();
    let Some(last) = steps.last() else { return all };
    for tail in [1, 2, 3, 4, 6, 8] {
        if tail < count {
            all.push(steps[count - tail..].to_vec());
        }
    }
    for (at, step) in steps[..count - 1].iter().enumerate() {
        all.push(vec![step.clone(), last.clone()]);
        // The step before the last often is half of the cause (offline and online, off and on).
        if count > 3 && at + 2 < count {
            all.push(vec![step.clone(), steps[count - 2].clone(), last.clone()]);
        }
        let mut without = steps.to_vec();
        without.remove(at);
        all.push(without);
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
    all.sort_by_key(Vec::len);
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    /// A driver that fails after a write of 7 and then of 9, whatever is between.
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
        let mut failures = [Failure { id: "rule".into(), steps }];
        let shows = |sequences: &[Sequence], _: &Ended| {
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
        // A script is no output of a guest.
        assert!(
            record::read(&Fails.boot(mode, &Job::agent("s 1\n".into(), 0)).unwrap().output, "", "")
                .runs
                .is_empty()
        );
    }
}
