//! `contract`: runs generated sequences. After each step the rules of `rules` must hold, and the
//! kernel must report no fault.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bench, Topic, driver_of_all, locate, of_baseline};
use crate::{
    boots::CannotTell,
    generate,
    guests::{self, Part, Seen},
    messages::Message,
    mode::Mode,
    record::Run,
    report::Test,
    rules::{self, Violation},
    saved::ModeRecord,
    shrink::{self, Failure},
    speed_select,
    step::{Sequence, Step},
};

pub(super) struct Contract;

/// The test that every guest ran all of its steps.
const TO_THE_END: &str = "runs-to-the-end";

/// Why a failure does not count.
const KNOWN: &str = "the baseline shows it too";

/// Maximum number of lines of a violation to show.
const DETAILS: usize = 6;

impl Topic for Contract {
    fn name(&self) -> &'static str {
        "contract"
    }

    fn about(&self) -> &'static str {
        "attributes, requests and frequencies agree after each step, as the kernel's documentation says"
    }

    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell> {
        let sequences = generate::sequences(mode, bench.seed);
        let seen = guests::run(bench.kernel, mode, &sequences, bench.seed)?;
        let boot = &seen.boot;
        let mut tests = vec![driver_of_all(mode, &seen)];
        if !tests[0].is_good() {
            return Ok(tests);
        }
        if let Some(save) = bench.save {
            let mut record = ModeRecord::new(mode, bench.seed, &sequences, boot);
            record.reports = reports(&seen, &sequences);
            save(record);
        }
        let violations = rules::check(mode, &sequences, &boot.runs);
        let messages = &seen.messages;
        let is_clean =
            violations.is_empty() && messages.is_empty() && seen.parts.iter().all(|part| part.complete);
        let known = if is_clean { BTreeSet::new() } else { known(bench, mode, &sequences)? };
        let shows = |sequences: &[Sequence], seen: &Seen| shows(mode, sequences, seen);
        // Failures of the baseline are not worth more boots.
        let (old, violations): (Vec<Violation>, Vec<Violation>) = violations
            .into_iter()
            .partition(|violation| violation.shapes().all(|shape| known.contains(&shape)));
        let mut new = failures(&sequences, &violations, messages);
        new.retain(|failure| !known.contains(&failure.id));
        if bench.shrinks {
            // If a guest does not finish, the failure stays as it was found.
            let _ = shrink::shrink(bench.kernel, mode, bench.seed, &mut new, &shows);
        }
        let reproducer = |id: &str| {
            let failure = new.iter().find(|failure| bench.shrinks && failure.id == id)?;
            Some(failure.steps.clone())
        };
        for rule in rules::of(mode) {
            // Violations that the baseline does not show come first.
            let mut of_rule = violations.iter().chain(&old).filter(|violation| violation.rule == rule.id);
            let is_known = violations.iter().all(|violation| violation.rule != rule.id);
            let test = match of_rule.next() {
                None => Test::pass(rule.id),
                Some(first) => {
                    let mut lines = vec![format!("{} ({})", rule.about, rule.source)];
                    lines.push(place(&sequences, first));
                    lines.extend(first.details.iter().take(DETAILS).cloned());
                    let more = of_rule.count();
                    if more > 0 {
                        lines.push(format!("and at {more} more steps"));
                    }
                    let test = Test::fail(rule.id, lines);
                    if is_known { test.known(KNOWN) } else { test.with_steps(reproducer(rule.id)) }
                }
            };
            tests.push(test);
        }
        tests.extend(message_tests(messages, &sequences, &known, &reproducer));
        if let Some(part) = seen.parts.iter().find(|part| !part.complete) {
            let test = incomplete(part, &seen, &sequences);
            tests.push(if known.contains(TO_THE_END) { test.known(KNOWN) } else { test });
        }
        Ok(tests)
    }
}

/// Failures to shrink: each rule's violation with the fewest steps before it, and each kind of
/// message.
fn failures(sequences: &[Sequence], violations: &[Violation], messages: &[Message]) -> Vec<Failure> {
    let mut first: BTreeMap<String, (usize, Option<usize>)> = BTreeMap::new();
    for violation in violations {
        let place = (violation.sequence, violation.step);
        let best = first.entry(violation.rule.clone()).or_insert(place);
        if place.1 < best.1 {
            *best = place;
        }
    }
    for message in messages {
        if let Some(place) = locate(sequences, message.step) {
            first.entry(identity(message, sequences)).or_insert(place);
        }
    }
    let steps = |(index, step): (usize, Option<usize>)| {
        let all = &sequences[index].steps;
        // If a base state differs, the sequence before it caused that.
        match step {
            Some(step) => all[..=step].to_vec(),
            None => index.checked_sub(1).map(|before| sequences[before].steps.clone()).unwrap_or_default(),
        }
    };
    let failure = |(id, place): (String, (usize, Option<usize>))| Failure {
        id,
        steps: steps(place),
        is_after: place.1.is_none(),
    };
    first.into_iter().map(failure).collect()
}

/// Identifies a report's fault: its kind, and the call of Speed Select's device in which it came.
fn identity(message: &Message, sequences: &[Sequence]) -> String {
    let step = locate(sequences, message.step).and_then(|(index, step)| Some(&sequences[index].steps[step?]));
    match step {
        Some(Step::Ioctl { number, argument }) => {
            format!("{}.{}", message.kind, speed_select::kind(*number, argument))
        }
        _ => message.kind.clone(),
    }
}

/// Finds which candidates show which rule or message.
fn shows(mode: &Mode, sequences: &[Sequence], seen: &Seen) -> Vec<(usize, String)> {
    let violations = rules::check(mode, sequences, &seen.boot.runs).into_iter();
    let mut found: Vec<(usize, String)> =
        violations.filter_map(|violation| Some((violation.shown_by()?, violation.rule))).collect();
    for message in &seen.messages {
        found.extend(locate(sequences, message.step).map(|(index, _)| (index, identity(message, sequences))));
    }
    found
}

/// Failures of the other kernel: shapes of violations, and kinds of messages.
fn known(bench: &Bench<'_>, mode: &Mode, sequences: &[Sequence]) -> Result<BTreeSet<String>, CannotTell> {
    let broken = |runs: &[Run]| {
        rules::check(mode, sequences, runs)
            .into_iter()
            .flat_map(|violation| violation.shapes().collect::<Vec<_>>())
            .collect::<BTreeSet<_>>()
    };
    if let Some(baseline) = bench.baseline.filter(|baseline| mode.exists_in(baseline.release())) {
        let seen = guests::run(baseline, mode, sequences, of_baseline(bench.seed))?;
        let mut known = broken(&seen.boot.runs);
        known.extend(reports(&seen, sequences));
        return Ok(known);
    }
    // A record of other sequences cannot be compared.
    let record = bench.against.and_then(|saved| saved.find(mode)).filter(|old| old.sequences == sequences);
    let known =
        |old: &ModeRecord| broken(&old.runs()).into_iter().chain(old.reports.iter().cloned()).collect();
    Ok(record.map(known).unwrap_or_default())
}

/// The kernel's own reports, and whether it ended a guest.
pub(super) fn reports(seen: &Seen, sequences: &[Sequence]) -> BTreeSet<String> {
    let mut all: BTreeSet<String> =
        seen.messages.iter().map(|message| identity(message, sequences)).collect();
    all.extend(seen.parts.iter().any(|part| !part.complete).then(|| TO_THE_END.to_owned()));
    all
}

fn place(sequences: &[Sequence], violation: &Violation) -> String {
    let name = sequences.get(violation.sequence).map_or("?", |sequence| &*sequence.name);
    match violation.step {
        Some(step) => format!("in {name}, step {}", step + 1),
        None => format!("before {name}"),
    }
}

/// One test for the kernel's own reports, with their text.
fn message_tests(
    messages: &[Message],
    sequences: &[Sequence],
    known: &BTreeSet<String>,
    reproducer: &dyn Fn(&str) -> Option<Vec<Step>>,
) -> Vec<Test> {
    if messages.is_empty() {
        return vec![Test::pass("kernel-messages")];
    }
    let mut kinds: Vec<String> = Vec::new();
    let mut tests = Vec::new();
    for message in messages {
        let kind = identity(message, sequences);
        if kinds.contains(&kind) {
            continue;
        }
        let mut lines = message.text.clone();
        if let Some((index, step)) = locate(sequences, message.step) {
            let step = step.map_or(0, |step| step + 1);
            lines.insert(0, format!("in {}, step {step}", sequences[index].name));
        }
        let test = Test::kernel_report(&kind, lines);
        tests.push(if known.contains(&kind) {
            test.known(KNOWN)
        } else {
            test.with_steps(reproducer(&kind))
        });
        kinds.push(kind);
    }
    tests
}

/// A guest that did not complete its steps.
fn incomplete(part: &Part, seen: &Seen, sequences: &[Sequence]) -> Test {
    let mut lines = Vec::new();
    let ended = &part.ended;
    let what = if seen.boot.hang.is_some() { "did not return within 20 s" } else { "was the last" };
    match locate(sequences, seen.last_step(part)) {
        Some((index, Some(step))) => {
            let sequence = &sequences[index];
            lines.push(format!("in {}, step {} {what}: {}", sequence.name, step + 1, sequence.steps[step]));
        }
        Some((index, None)) => {
            lines.push(format!("the return to the base state before {} {what}", sequences[index].name));
        }
        None => {}
    }
    lines.extend(ended.cut.clone());
    lines.push(ended.last_words());
    Test::fail(TO_THE_END, lines)
}
