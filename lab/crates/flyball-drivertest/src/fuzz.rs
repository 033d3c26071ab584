//! Fuzzing: generates sequences, guided by what the driver did with earlier ones.
//!
//! The sequences of a round run in guests. A sequence that shows something new is added to the
//! corpus, from which the next round is made. After each step the rules of the contract must hold,
//! and the kernel must not report a fault or hang. Failing sequences are shortened and run again
//! separately.
//!
//! - `coverage`: what counts as new;
//! - `corpus`: the kept sequences;
//! - `mutate`: new sequences from kept ones;
//! - `reproducer`: a finding as a shell script.

mod corpus;
mod coverage;
mod mutate;
mod reproducer;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    path::Path,
    time::Instant,
};

use serde::Serialize;

use crate::{
    boots::{Boots, CannotTell},
    generate,
    guests::{self, Seen},
    messages::Message,
    mode::Mode,
    rules,
    shrink::{self, Failure},
    speed_select,
    step::{Sequence, Step},
    topic::{driver_of_all, locate},
};
use corpus::Corpus;
use mutate::Mutator;

/// Steps per round. More make better use of a boot; with fewer, later rounds benefit sooner from
/// new sequences.
const ROUND: usize = 900;
/// Number of consecutive rounds without a verdict after which fuzzing stops.
const PATIENCE: usize = 3;
/// Maximum number of lines of observations to keep.
const DETAILS: usize = 8;

/// A failure.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What fails, and where, without numbers. Each id is reported once.
    pub id: String,
    /// The rule and its source.
    pub about: Option<String>,
    /// The observations.
    pub details: Vec<String>,
    /// The shortest sequence found that fails when started from the mode's base state.
    pub steps: Vec<Step>,
    /// The round in which it was found.
    pub round: u32,
    /// True if it failed again in a boot with another seed.
    pub repeats: bool,
    /// True if the baseline fails too.
    pub known: bool,
}

impl Finding {
    /// A shell script that reproduces the failure.
    pub fn script(&self, mode: &Mode, release: &str) -> String {
        reproducer::script(self, mode, release)
    }

    /// File name of the script.
    pub fn file_name(&self) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let name: String = self.id.chars().map(word).take(100).collect();
        let mut parts: Vec<&str> = name.split('-').collect();
        parts.retain(|part| !part.is_empty());
        parts.join("-")
    }
}

/// The progress of fuzzing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Progress {
    pub round: u32,
    /// Host seconds.
    pub seconds: f64,
    pub sequences: usize,
    pub steps: usize,
    /// Number of distinct behaviours of the driver.
    pub features: usize,
    /// Number of kept sequences.
    pub corpus: usize,
    pub findings: usize,
    /// Number of rounds without a verdict.
    pub lost: usize,
}

/// The outcome of fuzzing.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub machine: String,
    pub mode: String,
    /// Progress after each round.
    pub progress: Vec<Progress>,
    pub findings: Vec<Finding>,
}

/// Inputs of fuzzing.
pub struct Fuzzer<'a> {
    pub kernel: &'a dyn Boots,
    pub baseline: Option<&'a dyn Boots>,
    pub mode: &'a Mode,
    pub seed: u64,
    /// Directory of the corpus.
    pub corpus: Option<&'a Path>,
    /// Returns whether to run another round.
    pub should_continue: &'a dyn Fn(u32) -> bool,
    /// Called after each round, with its new findings.
    pub on_progress: &'a mut dyn FnMut(&Progress, &[Finding]) -> io::Result<()>,
}

/// Why fuzzing ended early.
#[derive(Debug, thiserror::Error)]
pub enum FuzzError {
    #[error(transparent)]
    CannotTell(#[from] CannotTell),
    #[error("the corpus: {0}")]
    Corpus(io::Error),
    #[error(transparent)]
    Write(io::Error),
}

impl Fuzzer<'_> {
    /// Fuzzes until `should_continue` returns false.
    ///
    /// # Errors
    /// No round can be judged, or a file cannot be written.
    pub fn run(self) -> Result<Outcome, FuzzError> {
        let started = Instant::now();
        let (mut corpus, _) = match self.corpus {
            Some(directory) => Corpus::open(directory).map_err(FuzzError::Corpus)?,
            None => Default::default(),
        };
        let mut mutator = Mutator::new(self.mode, self.seed);
        // The corpus of an earlier run shows what is already known; the contract's sequences are
        // the starting point.
        let mut waiting: VecDeque<Vec<Step>> =
            generate::sequences(self.mode, self.seed).into_iter().map(|sequence| sequence.steps).collect();
        waiting.extend(std::mem::take(&mut corpus.entries));
        let mut features: BTreeSet<u64> = BTreeSet::new();
        let mut reported: BTreeSet<String> = BTreeSet::new();
        let mut now = Progress::default();
        let mut out = Outcome {
            machine: self.mode.machine.clone(),
            mode: self.mode.name.clone(),
            progress: Vec::new(),
            findings: Vec::new(),
        };
        let mut lost_in_a_row = 0;
        while now.round == 0 || (self.should_continue)(now.round) {
            now.round += 1;
            let round = round(&mut waiting, &mut mutator, &corpus.entries);
            let seen = match guests::run(self.kernel, self.mode, &round, self.seed ^ u64::from(now.round)) {
                Ok(seen) => seen,
                Err(error) => {
                    now.lost += 1;
                    lost_in_a_row += 1;
                    if now.round == 1 || lost_in_a_row == PATIENCE {
                        return Err(error.into());
                    }
                    continue;
                }
            };
            lost_in_a_row = 0;
            if now.round == 1 {
                let driver = driver_of_all(self.mode, &seen);
                if !driver.is_good() {
                    return Err(CannotTell::Driver(driver.details.join("\n")).into());
                }
            }
            for (sequence, run) in round.iter().zip(&seen.boot.runs) {
                now.sequences += usize::from(!run.observations.is_empty());
                now.steps += run.observations.len().saturating_sub(1);
                let new: Vec<usize> = coverage::features(&sequence.steps, run)
                    .into_iter()
                    .filter(|(_, feature)| features.insert(*feature))
                    .map(|(at, _)| at)
                    .collect();
                // Steps after the last new behaviour add nothing.
                if let Some(last) = new.into_iter().max() {
                    let until = (last + 1).min(corpus::LONGEST);
                    corpus.keep(sequence.steps[..until].to_vec()).map_err(FuzzError::Corpus)?;
                }
            }
            let mut new = evidence(self.mode, &round, &seen);
            new.retain(|id, _| !reported.contains(id));
            reported.extend(new.keys().cloned());
            let findings = self.findings(new, now.round);
            now.features = features.len();
            now.corpus = corpus.entries.len();
            now.findings += findings.len();
            now.seconds = started.elapsed().as_secs_f64();
            (self.on_progress)(&now, &findings).map_err(FuzzError::Write)?;
            out.progress.push(now.clone());
            out.findings.extend(findings);
        }
        Ok(out)
    }

    /// Shortens new failures, runs each separately, and checks whether the baseline fails too.
    fn findings(&self, new: BTreeMap<String, Evidence>, round: u32) -> Vec<Finding> {
        if new.is_empty() {
            return Vec::new();
        }
        let shows = |sequences: &[Sequence], seen: &Seen| shown(self.mode, sequences, seen);
        let mut failures: Vec<Failure> = new
            .iter()
            .map(|(id, found)| Failure {
                id: id.clone(),
                steps: found.steps.clone(),
                is_after: found.is_after,
            })
            .collect();
        // If a guest does not survive, the failure stays as it was found.
        let _ = shrink::shrink(self.kernel, self.mode, self.seed, &mut failures, &shows);
        failures.into_iter().map(|failure| self.finding(&new[&failure.id], failure, round)).collect()
    }

    /// Runs a failure separately, also on the baseline.
    fn finding(&self, first: &Evidence, failure: Failure, round: u32) -> Finding {
        let sequences = [("finding", failure.steps.clone()), ("end", Vec::new())];
        let sequences = sequences.map(|(name, steps)| Sequence { name: name.to_owned(), steps });
        let again = |boots: &dyn Boots| {
            let seen = guests::run(boots, self.mode, &sequences, self.seed ^ 0x5eed).ok()?;
            evidence(self.mode, &sequences, &seen).remove(&failure.id)
        };
        let repeated = again(self.kernel);
        let old = self.baseline.filter(|baseline| self.mode.exists_in(baseline.release())).and_then(again);
        Finding {
            about: first.about.clone(),
            repeats: repeated.is_some(),
            details: repeated.map_or_else(|| first.details.clone(), |found| found.details),
            round,
            known: old.is_some(),
            id: failure.id,
            steps: failure.steps,
        }
    }
}

/// Generates the sequences of a round.
fn round(
    waiting: &mut VecDeque<Vec<Step>>,
    mutator: &mut Mutator<'_>,
    corpus: &[Vec<Step>],
) -> Vec<Sequence> {
    let mut all: Vec<Sequence> = Vec::new();
    let mut steps = 0;
    while steps < ROUND {
        let next = waiting.pop_front().unwrap_or_else(|| mutator.next(corpus));
        steps += next.len();
        all.push(Sequence { name: format!("fuzz.{}", all.len()), steps: next });
    }
    all
}

/// The first occurrence of a failure.
#[derive(Debug, Clone)]
struct Evidence {
    /// The steps up to the failure.
    steps: Vec<Step>,
    /// True if the failure was in the base state after the steps.
    is_after: bool,
    about: Option<String>,
    details: Vec<String>,
}

/// Failures by id, each at the occurrence with the fewest steps before it.
fn evidence(mode: &Mode, sequences: &[Sequence], seen: &Seen) -> BTreeMap<String, Evidence> {
    let mut all: BTreeMap<String, Evidence> = BTreeMap::new();
    for fault in faults(mode, sequences, seen) {
        let steps = &sequences[fault.sequence].steps;
        let steps = fault.step.map_or(&steps[..], |step| &steps[..=step]).to_vec();
        let is_shorter = all.get(&fault.id).is_none_or(|known| steps.len() < known.steps.len());
        if is_shorter {
            let Fault { id, step, about, details, .. } = fault;
            all.insert(id, Evidence { steps, is_after: step.is_none(), about, details });
        }
    }
    all
}

/// Pairs of sequence index and failure id.
fn shown(mode: &Mode, sequences: &[Sequence], seen: &Seen) -> Vec<(usize, String)> {
    faults(mode, sequences, seen).into_iter().map(|fault| (fault.sequence, fault.id)).collect()
}

/// A failure at one step.
struct Fault {
    id: String,
    sequence: usize,
    /// `None`: the base state after all steps.
    step: Option<usize>,
    about: Option<String>,
    details: Vec<String>,
}

fn faults(mode: &Mode, sequences: &[Sequence], seen: &Seen) -> Vec<Fault> {
    let mut all = Vec::new();
    // Failures in the preceding base state, by rule: lasting damage is not the next sequence's
    // fault.
    let mut spoilt: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for mut violation in rules::check(mode, sequences, &seen.boot.runs) {
        let Some(sequence) = violation.shown_by() else { continue };
        if violation.step.is_none() {
            let now = (violation.sequence, violation.details.clone());
            let old = spoilt.insert(violation.rule.clone(), now).filter(|(at, _)| *at == sequence);
            if let Some((_, old)) = old {
                violation.details.retain(|line| !old.contains(line));
            }
        }
        let about =
            rules::find(&violation.rule).map(|rule| format!("{}: {} ({})", rule.id, rule.about, rule.source));
        let mut subjects: Vec<String> = violation.details.iter().map(|line| subject(line)).collect();
        subjects.sort_unstable();
        subjects.dedup();
        for subject in subjects {
            let details = violation.details.iter().filter(|line| self::subject(line) == subject);
            all.push(Fault {
                id: format!("{}: {subject}", violation.rule),
                sequence,
                step: violation.step,
                about: about.clone(),
                details: details.take(DETAILS).cloned().collect(),
            });
        }
    }
    for message in &seen.messages {
        let Some((sequence, step)) = locate(sequences, message.step) else { continue };
        let details = message.text.clone();
        all.push(Fault { id: message_id(message), sequence, step, about: None, details });
    }
    for part in seen.parts.iter().filter(|part| !part.complete) {
        let last = seen.last_step(part);
        // After an oops its locks stay taken, and a step that waits for one ends the guest.
        let is_faults_end = |m: &Message| m.kind == "oops" && (part.before..=last).contains(&m.step);
        if seen.messages.iter().any(is_faults_end) {
            continue;
        }
        let Some((sequence, step)) = locate(sequences, last) else { continue };
        let what = if seen.boot.hang.is_some() { "does not return" } else { "ends the guest" };
        let doing = step.and_then(|step| sequences[sequence].steps.get(step));
        let doing = match doing {
            Some(Step::Write { path, .. }) => coverage::kind(path),
            Some(Step::Ioctl { number, argument }) => speed_select::kind(*number, argument),
            Some(step) => step.to_string(),
            None => "the return to the base state".to_owned(),
        };
        let mut details: Vec<String> = part.ended.cut.iter().cloned().collect();
        details.extend(part.ended.last_words().lines().map(str::to_owned));
        all.push(Fault { id: format!("{what}: {doing}"), sequence, step, about: None, details });
    }
    all
}

/// The subject of a violation: an attribute, or a register of a CPU.
fn subject(line: &str) -> String {
    let mut words = line.split([' ', ':']);
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_register = second.starts_with("0x") || second.starts_with("mailbox.");
    if first.starts_with("cpu") && is_register { second.to_owned() } else { coverage::kind(first) }
}

/// The kind of a message, and the function that printed it.
fn message_id(message: &Message) -> String {
    let place = message.text.iter().find_map(|line| {
        let (_, place) = line.split_once("RIP: ")?;
        let name = place.split_once(':').map_or(place, |(_, name)| name);
        Some(name.split('+').next().unwrap_or(name).to_owned())
    });
    let place = place.or_else(|| Some(coverage::kind(message.text.first()?)));
    format!("{}: {}", message.kind, place.unwrap_or_default())
}

#[cfg(test)]
mod tests;
