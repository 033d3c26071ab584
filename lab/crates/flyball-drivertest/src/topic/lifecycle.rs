//! `lifecycle`: a machine goes through sleep, hotplug, changes of the driver's mode, reloaded
//! modules, notifications and limits of its firmware. After each event, attributes, requests and
//! frequencies must equal those of a machine without the event, and the kernel must have reported
//! no fault.

mod events;

use std::collections::BTreeSet;

use super::{Bench, Topic, driver_test, locate};
use crate::{
    boots::{Boots, CannotTell, Ended, Job},
    messages::Message,
    mode::Mode,
    record::{self, Observation, Run},
    report::Test,
    rules,
    step::{Sequence, Step},
};
pub use events::harmless as harmless_events;
use events::{Event, LACKS};

pub(super) struct Lifecycle;

/// Maximum number of lines of a failure to show.
const DETAILS: usize = 12;
/// Maximum number of boots for a mode's events: one more for each event that ends the guest.
const BOOTS: usize = 4;
/// Maximum number of shorter variants of failures to try in one boot.
const VARIANTS: usize = 40;
/// Duration of the load on all CPUs at the end, ms.
const LOAD: u32 = 20;

impl Topic for Lifecycle {
    fn name(&self) -> &'static str {
        "lifecycle"
    }

    fn applies(&self, mode: &Mode) -> bool {
        mode.shape.is_none()
    }

    fn about(&self) -> &'static str {
        "after sleep, hotplug, mode changes, reloads and firmware events the state is that of a machine without them"
    }

    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell> {
        let events = events::all(mode);
        let (driver, seen) = go_through(bench.kernel, mode, &events, bench.seed)?;
        if !driver.is_good() {
            return Ok(vec![driver]);
        }
        let failed: Vec<usize> =
            seen.iter().enumerate().filter(|(_, seen)| seen.is_bad()).map(|(at, _)| at).collect();
        let known = match bench.baseline {
            Some(baseline) if !failed.is_empty() && mode.exists_in(baseline.release()) => {
                let events: Vec<Event> = failed.iter().map(|at| events[*at].clone()).collect();
                let (_, seen) = go_through(baseline, mode, &events, bench.seed)?;
                let bad = events.iter().zip(&seen).filter(|(_, seen)| seen.is_bad());
                bad.map(|(event, _)| event.name).collect()
            }
            _ => BTreeSet::new(),
        };
        let new: Vec<&Event> =
            failed.iter().map(|at| &events[*at]).filter(|event| !known.contains(event.name)).collect();
        let shortest = if bench.shrinks { shorten(bench.kernel, mode, &new, bench.seed) } else { Vec::new() };
        let mut tests = vec![driver];
        for (event, seen) in events.iter().zip(seen) {
            tests.push(match seen {
                Seen::Lacks => Test::skip(event.name, event.needs),
                Seen::Good => Test::pass(event.name),
                Seen::NotReached => Test::cannot_tell(event.name, "the guest ended before it"),
                Seen::Bad(lines) => {
                    let more = lines.len().saturating_sub(DETAILS);
                    let mut shown = vec![event.about.to_owned()];
                    shown.extend(lines.into_iter().take(DETAILS));
                    if more > 0 {
                        shown.push(format!("and {more} more lines"));
                    }
                    let test = Test::fail(event.name, shown);
                    if known.contains(event.name) {
                        test.known("the baseline shows it too")
                    } else {
                        let short = shortest.iter().find(|short| short.name == event.name).unwrap_or(event);
                        test.with_steps(Some([short.settings.clone(), short.steps.clone()].concat()))
                    }
                }
            });
        }
        Ok(tests)
    }
}

/// The result of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Good,
    /// The kernel or the machine does not support it.
    Lacks,
    Bad(Vec<String>),
    NotReached,
}

impl Seen {
    fn is_bad(&self) -> bool {
        matches!(self, Seen::Bad(_))
    }
}

/// Position of an event in the sequences of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Index of the sequence with the event.
    at: usize,
    /// Index of the sequence at whose end the state is judged.
    judged: usize,
    /// Index of the sequence without the event.
    reference: usize,
}

/// The sequences that test the events: first the references, then each event.
fn plan(events: &[Event]) -> (Vec<Sequence>, Vec<Place>) {
    let mut sequences: Vec<Sequence> = Vec::new();
    let with_load = |settings: &[Step], steps: &[Step]| {
        let mut all: Vec<Step> = events::at_once(settings).into_iter().collect();
        all.extend(steps.iter().cloned());
        all.push(Step::Load(LOAD));
        all
    };
    let reference = |event: &Event| with_load(&[&event.settings[..], &event.instead].concat(), &[]);
    for event in events {
        let steps = reference(event);
        if sequences.iter().all(|known| known.steps != steps) {
            sequences.push(Sequence { name: format!("reference.{}", sequences.len()), steps });
        }
    }
    let mut places = Vec::new();
    for event in events {
        let wanted = reference(event);
        let reference = sequences.iter().position(|known| known.steps == wanted).unwrap_or(0);
        let at = sequences.len();
        let mut push = |name: String, steps| sequences.push(Sequence { name, steps });
        if event.keeps {
            push(event.name.to_owned(), with_load(&event.settings, &event.steps));
        } else {
            push(event.name.to_owned(), event.steps.clone());
            push(format!("after.{}", event.name), with_load(&event.settings, &[]));
        }
        places.push(Place { at, judged: sequences.len() - 1, reference });
    }
    // The base state after the last event.
    sequences.push(Sequence { name: "end".into(), steps: Vec::new() });
    (sequences, places)
}

/// Takes guests through all events. An event that ends the guest is a failure, and another guest
/// continues after it.
fn go_through(
    boots: &dyn Boots,
    mode: &Mode,
    events: &[Event],
    seed: u64,
) -> Result<(Test, Vec<Seen>), CannotTell> {
    let mut all: Vec<Seen> = Vec::new();
    let mut driver = None;
    for _ in 0..BOOTS {
        let rest = &events[all.len()..];
        if rest.is_empty() {
            break;
        }
        let (sequences, places) = plan(rest);
        let job = Job { faults: true, ..Job::sequences(mode, &sequences, seed) };
        let ended = boots.boot(mode, &job)?;
        let test = driver_test(mode, &ended);
        if !test.is_good() {
            return Ok((test, Vec::new()));
        }
        driver.get_or_insert(test);
        let seen = judge(mode, rest, &sequences, &places, &Guest::new(&ended));
        let reached = seen.iter().position(|seen| *seen == Seen::NotReached).unwrap_or(seen.len());
        all.extend(seen.into_iter().take(reached));
        if reached == 0 {
            break;
        }
    }
    all.resize(events.len(), Seen::NotReached);
    Ok((driver.unwrap_or_else(|| Test::pass("driver")), all))
}

/// The results of a boot.
#[derive(Debug, Default)]
struct Guest {
    boot: record::Boot,
    messages: Vec<Message>,
    /// The number of the last step that began.
    reached: Option<u32>,
    /// Why it ended early, and its last words.
    end: Vec<String>,
}

impl Guest {
    fn new(ended: &Ended) -> Guest {
        let boot = ended.record();
        let last_words = ended.last_words();
        let end = ended.cut.iter().map(String::as_str).chain(last_words.lines());
        Guest {
            messages: ended.messages(),
            reached: boot.hang.or_else(|| ended.last_step()),
            end: end.map(str::to_owned).collect(),
            boot,
        }
    }
}

/// Judges each event of a boot.
fn judge(
    mode: &Mode,
    events: &[Event],
    sequences: &[Sequence],
    places: &[Place],
    guest: &Guest,
) -> Vec<Seen> {
    let boot = &guest.boot;
    let run = |index: usize| boot.runs.get(index);
    let whole =
        |index: usize| run(index).filter(|run| run.observations.len() == sequences[index].steps.len() + 1);
    let mut all = Vec::new();
    for (event, place) in events.iter().zip(places) {
        let Some(own) = run(place.at) else {
            all.push(Seen::NotReached);
            continue;
        };
        let mut lines = Vec::new();
        let first = usize::from(event.keeps && !event.settings.is_empty());
        let during = own.observations.iter().skip(first + 1).take(event.steps.len());
        if during.clone().any(|seen| seen.code == Some(LACKS)) {
            all.push(Seen::Lacks);
            continue;
        }
        for (at, (step, seen)) in event.steps.iter().zip(during).enumerate() {
            lines.extend(
                seen.code.filter(|code| *code != 0).map(|code| format!("{step} ended with code {code}")),
            );
            let refused = seen.answers.iter().filter(|answer| !answer.is_ok());
            lines.extend(refused.map(|a| format!("{} <- {} was answered {}", a.path, a.value, a.answer)));
            if let Some((_, check)) = event.check.filter(|(index, _)| *index == at) {
                lines.extend(check(mode, seen));
            }
        }
        for message in &guest.messages {
            let index = locate(sequences, message.step).map(|(index, _)| index);
            // A message during the following return to the base state may still be the event's
            // fault.
            if index.is_some_and(|index| (place.at..=place.judged).contains(&index)) {
                lines.push(format!("the kernel reports: {}", message.kind));
                lines.extend(message.text.iter().cloned());
            }
        }
        match (whole(place.judged), whole(place.reference)) {
            (Some(judged), Some(reference)) => {
                let base = |index: usize| run(index).and_then(|run| run.observations.first());
                let (first, before, after) = (base(0), base(place.at), base(place.judged + 1));
                let from_first = |seen: Option<&Observation>| match (first, seen) {
                    (Some(first), Some(seen)) => {
                        differences(mode, first, seen, "after the return to the base state")
                    }
                    _ => Vec::new(),
                };
                // Damage by an earlier event is not this event's fault, and neither is its repair.
                let spoilt: BTreeSet<String> =
                    from_first(before).into_iter().map(|(subject, _)| subject).collect();
                let mut found = differences(mode, last(reference), last(judged), "at the end");
                found.extend(from_first(after));
                let new = found.into_iter().filter(|(subject, _)| !spoilt.contains(subject));
                lines.extend(new.map(|(_, line)| line));
            }
            (_, None) => lines.push("the guest ended before there was a state to compare with".to_owned()),
            (None, _) => {
                let hang = boot.hang.is_some();
                let what = if hang { "a step did not return within 20 s" } else { "the guest ended" };
                lines.push(what.to_owned());
                if let Some((index, Some(step))) = guest.reached.and_then(|number| locate(sequences, number))
                {
                    lines.push(format!("at: {}", sequences[index].steps[step]));
                }
                lines.extend(guest.end.iter().cloned());
            }
        }
        all.push(if lines.is_empty() { Seen::Good } else { Seen::Bad(lines) });
    }
    all
}

fn last(run: &Run) -> &Observation {
    // A complete run has at least the base state.
    &run.observations[run.observations.len() - 1]
}

/// Differences between the states without and with the event: subject and line of each.
fn differences(mode: &Mode, without: &Observation, with: &Observation, when: &str) -> Vec<(String, String)> {
    let show =
        |value: Option<&str>| value.map_or_else(|| "no such file".to_owned(), |value| format!("'{value}'"));
    let mut out: Vec<(String, String)> = rules::differences(without, with)
        .into_iter()
        .map(|(path, old, new)| {
            (path.to_owned(), format!("{path} is {} {when}, and {} without it", show(new), show(old)))
        })
        .collect();
    for ((cpu, name), now) in &with.registers {
        let old = without.register(*cpu, name);
        let steady = |seen| rules::has_steady_request(mode, seen, *cpu, name);
        let is_compared = rules::is_switch(name) && old.is_some() || steady(without) && steady(with);
        if is_compared && old != Some(*now) {
            let old = old.map_or_else(|| "unset".to_owned(), |old| format!("{old:#x}"));
            let subject = format!("cpu{cpu} {name}");
            let line = format!("{subject} holds {now:#x} {when}, and {old} without it");
            out.push((subject, line));
        }
    }
    for (cpu, old) in &without.load {
        let Some(now) = with.load.get(cpu) else { continue };
        // Heat and energy of earlier loads affect the frequency slightly.
        if now.highest < old.highest / 10 * 9 || now.lowest > old.lowest / 10 * 11 {
            let line = format!(
                "cpu{cpu} runs at {} kHz under load {when}, and at {} without it",
                now.highest, old.highest
            );
            out.push((format!("cpu{cpu} load"), line));
        }
    }
    out
}

/// Variants of an event without settings or with a single one, shortest first.
fn variants(event: &Event) -> Vec<Event> {
    let with = |settings: Vec<Step>| Event { settings, ..event.clone() };
    let mut all = vec![with(Vec::new())];
    all.extend(event.settings.iter().map(|step| with(vec![step.clone()])));
    all.retain(|variant| variant.settings.len() < event.settings.len());
    all
}

/// The shortest variants that still fail; none if the guest does not survive.
fn shorten(boots: &dyn Boots, mode: &Mode, events: &[&Event], seed: u64) -> Vec<Event> {
    let share = VARIANTS / events.len().max(1);
    let all: Vec<Event> =
        events.iter().flat_map(|event| variants(event).into_iter().take(share.max(3))).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let (sequences, places) = plan(&all);
    let job = Job { faults: true, ..Job::sequences(mode, &sequences, seed) };
    let Ok(ended) = boots.boot(mode, &job) else { return Vec::new() };
    let seen = judge(mode, &all, &sequences, &places, &Guest::new(&ended));
    let mut found: Vec<Event> = Vec::new();
    for (variant, _) in all.iter().zip(&seen).filter(|(_, seen)| seen.is_bad()) {
        if found.iter().all(|known| known.name != variant.name) {
            found.push(variant.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests;
