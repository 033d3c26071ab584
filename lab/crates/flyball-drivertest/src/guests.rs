//! Runs sequences in several guests at once, each a part of them, and merges the results. The
//! division depends only on the sequences, so that a result does not depend on how many guests the
//! host runs at a time.

use std::thread;

use crate::{
    boots::{Boots, CannotTell, Ended, Job},
    messages::Message,
    mode::Mode,
    record::{Boot, Run},
    step::Sequence,
};

/// Number of guests that share the work.
const GUESTS: usize = 2;
/// Number of steps that justify another guest, which takes seconds to boot.
const WORTH: usize = 120;
/// Maximum number of additional guests for steps that were not reached because a step ended the
/// guest.
const FURTHER: usize = 4;
/// Cost of a return to the base state, in steps.
const RETURN: usize = 3;

/// A guest's part of the sequences.
#[derive(Debug)]
pub struct Part {
    /// Number of steps before the part.
    pub before: u32,
    pub ended: Ended,
    /// True if all of its steps have run.
    pub complete: bool,
}

/// The observations of all sequences.
#[derive(Debug, Default)]
pub struct Seen {
    pub boot: Boot,
    /// Reports of the kernels themselves, with step numbers over all parts.
    pub messages: Vec<Message>,
    pub parts: Vec<Part>,
}

impl Seen {
    /// The number of the last step that a part reached: the one that does not return, or else the
    /// last that began.
    pub fn last_step(&self, part: &Part) -> u32 {
        let last = || part.ended.last_step().map(|number| part.before + number);
        self.boot.hang.or_else(last).unwrap_or(0)
    }
}

fn weight(sequence: &Sequence) -> usize {
    sequence.steps.len() + RETURN
}

/// Divides sequences into parts of similar work.
fn divide(sequences: &[Sequence]) -> Vec<&[Sequence]> {
    let all: usize = sequences.iter().map(weight).sum();
    let count = (all / WORTH).clamp(1, GUESTS);
    let mut parts = Vec::new();
    let mut left = sequences;
    for number in (1..=count).rev() {
        let share = left.iter().map(weight).sum::<usize>() / number;
        let mut sum = 0;
        let until = left.iter().position(|sequence| {
            sum += weight(sequence);
            sum >= share
        });
        let (part, rest) = left.split_at(until.map_or(left.len(), |at| at + 1));
        parts.push(part);
        left = rest;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Runs sequences, each starting from the mode's base state.
pub fn run(boots: &dyn Boots, mode: &Mode, sequences: &[Sequence], seed: u64) -> Result<Seen, CannotTell> {
    let parts = divide(sequences);
    let ended: Vec<Result<Vec<(Ended, Boot)>, CannotTell>> = thread::scope(|scope| {
        let boot = |part| boot_until_done(boots, mode, part, seed);
        let running: Vec<_> = parts.iter().map(|part| scope.spawn(move || boot(part))).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(CannotTell::Guest("a thread of flyball has panicked".to_owned())))
        };
        running.into_iter().map(end).collect()
    });
    let mut seen = Seen { boot: Boot { complete: true, ..Boot::default() }, ..Seen::default() };
    let mut before = 0;
    for (part, all) in parts.iter().zip(ended) {
        let mut left: &[Sequence] = part;
        let mut all = all?.into_iter().peekable();
        while let Some((ended, boot)) = all.next() {
            let reached = if all.peek().is_some() { boot.runs.len().min(left.len()) } else { left.len() };
            let (of_guest, rest) = left.split_at(reached);
            add(&mut seen, ended, boot, of_guest, before);
            before += of_guest.iter().map(|sequence| sequence.steps.len() as u32 + 1).sum::<u32>();
            left = rest;
        }
    }
    Ok(seen)
}

/// Boots a guest for the sequences, and another one for those after the sequence that ended it.
fn boot_until_done(
    boots: &dyn Boots,
    mode: &Mode,
    sequences: &[Sequence],
    seed: u64,
) -> Result<Vec<(Ended, Boot)>, CannotTell> {
    let mut all: Vec<(Ended, Boot)> = Vec::new();
    let mut left = sequences;
    loop {
        let ended = match boots.boot(mode, &Job::sequences(mode, left, seed)) {
            Ok(ended) => ended,
            // The first guest has results; ignore the failure of later ones.
            Err(_) if !all.is_empty() => break,
            Err(why) => return Err(why),
        };
        let boot = ended.record();
        let (complete, reached) = (boot.complete, boot.runs.len().min(left.len()));
        all.push((ended, boot));
        left = &left[reached..];
        // A guest that did not begin a sequence will not begin it in another boot either.
        if complete || left.is_empty() || reached == 0 || all.len() > FURTHER {
            break;
        }
    }
    Ok(all)
}

/// Adds a guest's part.
fn add(seen: &mut Seen, ended: Ended, boot: Boot, part: &[Sequence], before: u32) {
    let whole = |step: u32| if step == 0 { 0 } else { before + step };
    seen.messages.extend(ended.messages().into_iter().map(|m| Message { step: whole(m.step), ..m }));
    seen.boot.complete &= boot.complete;
    seen.boot.hang = seen.boot.hang.or(boot.hang.map(whole));
    let mut runs = boot.runs;
    // Add empty runs for sequences that were not reached, so that the next part's indexes are
    // right.
    let unreached = part.iter().skip(runs.len());
    runs.extend(unreached.map(|sequence| Run { name: sequence.name.clone(), observations: Vec::new() }));
    seen.boot.runs.extend(runs);
    seen.parts.push(Part { before, ended, complete: boot.complete });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Step;

    /// A guest that prints its steps, and whose kernel warns at its third step.
    struct Prints;

    impl Boots for Prints {
        fn boot(&self, _: &Mode, job: &Job) -> Result<Ended, CannotTell> {
            let steps = String::from_utf8_lossy(&job.files[1].1).into_owned();
            let output = steps.lines().filter(|line| line.starts_with("seq") || line.starts_with("s "));
            let output: String = output.map(|line| format!("{line}\no\na/b:1\n.\n")).collect();
            let console = "flyball: step 3\nWARNING: CPU: 1\n".to_owned();
            Ok(Ended { output: output + "end\n", console, ..Ended::default() })
        }

        fn release(&self) -> &'static str {
            "test"
        }
    }

    #[test]
    fn parts_are_one_result() {
        let mode = &Mode::all("ryzen-5750g").unwrap()[0];
        let sequence =
            |at: usize| Sequence { name: format!("n{at}"), steps: vec![Step::Wait(1); 5 + at % 7] };
        let all: Vec<Sequence> = (0..40).map(sequence).collect();
        let sizes: Vec<usize> = divide(&all).into_iter().map(<[Sequence]>::len).collect();
        assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (GUESTS, 40));
        assert!(sizes.iter().all(|size| (17..=23).contains(size)), "{sizes:?}");
        assert_eq!(divide(&all[..3]).len(), 1);
        assert!(divide(&[]).is_empty());
        let seen = run(&Prints, mode, &all, 0).unwrap();
        let names: Vec<&str> = seen.boot.runs.iter().map(|run| &*run.name).collect();
        assert_eq!(names, all.iter().map(|sequence| &*sequence.name).collect::<Vec<_>>());
        assert!(seen.boot.complete);
        // Each kernel's third step is the second step of its first sequence.
        let places: Vec<_> = seen.messages.iter().map(|m| crate::topic::locate(&all, m.step)).collect();
        assert_eq!(places, [Some((0, Some(1))), Some((sizes[0], Some(1)))]);
    }
}
