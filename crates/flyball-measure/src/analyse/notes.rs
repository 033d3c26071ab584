//! Notes for the reader, besides the numbers.

use std::collections::{BTreeMap, BTreeSet};

use flyball_text::counted;
use rand::{Rng as _, SeedableRng as _};

use super::{
    judge::log_ratios,
    quantity::Quantity,
    report::{ArmReport, Comparison, Grades, LeftOut, Point, Report, Summary},
    sift::{disturbances, without_value},
    values::two_levels,
};
use crate::{
    meter::{Domain, WakeNote},
    numbers::{between, number, p_value, percent, unsigned},
    run_directory::{Manifest, Round, WorkloadNote},
    schedule::Schedule,
    speed::SpeedNote,
    watch::{Counting, Grade},
    workload::preset::note_fixed_time,
};

/// Returns a sentence for each round that is left out. If they are many, it returns their number
/// and the worst of each kind.
pub(super) fn left_out_notes(arm: &ArmReport) -> Vec<String> {
    if arm.left_out.len() <= 5 {
        return arm
            .left_out
            .iter()
            .map(|one| format!("{}: round {} is left out: {}.", arm.name, one.block + 1, one.why))
            .collect();
    }
    // Reasons of one kind differ only in their numbers.
    let stem = |why: &str| why.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().to_owned();
    let mut kinds: BTreeMap<String, Vec<&LeftOut>> = BTreeMap::new();
    for one in &arm.left_out {
        kinds.entry(stem(&one.why)).or_default().push(one);
    }
    kinds
        .into_values()
        .map(|mut group| {
            group.sort_by_key(|one| (one.boot, one.block));
            let blocks: Vec<String> = group.iter().map(|one| (one.block + 1).to_string()).collect();
            let more = if blocks.len() > 12 { " and more" } else { "" };
            format!(
                "{}: {} rounds are left out ({}{more}), the first of them: {}.",
                arm.name,
                group.len(),
                blocks[..blocks.len().min(12)].join(", "),
                group[0].why
            )
        })
        .collect()
}

/// Names the energy meters of packages and platform that never moved, if that is why there is no
/// energy.
pub(super) fn still(manifest: &Manifest, rounds: &[&Round]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for (number, boot) in manifest.boots.iter().enumerate() {
        for (place, source) in boot.meters.energy.iter().enumerate() {
            let mut read = rounds
                .iter()
                .filter(|round| round.boot == number)
                .filter_map(|round| round.readings.energy.get(place))
                .filter(|series| series.len() > 1)
                .peekable();
            // Boots usually have the same meters: name each only once.
            let matters = matches!(source.domain, Domain::Package | Domain::Platform)
                && !names.contains(&source.name.as_str());
            if matters && read.peek().is_some() && read.all(|series| source.stands_still(series)) {
                names.push(&source.name);
            }
        }
    }
    (!names.is_empty()).then(|| {
        format!(
            "{} did not move in any round (a virtual machine's counters often stand still)",
            names.join(", ")
        )
    })
}

/// Notes that a warm-up round took several times as long as those that count. The first run then
/// did a build or a download, or filled a cache, and this work was not measured. Page caches alone
/// rarely make a run three times as long.
pub(super) fn slow_warm_up(manifest: &Manifest, rounds: &[Round]) -> Option<String> {
    const TIMES: f64 = 3.0;
    // Models always do the same work, and a user of --prepare has thought of it.
    if manifest.workload.reader.is_none() || manifest.workload.hooks.prepare.is_some() {
        return None;
    }
    let of_arm = |arm: usize| {
        let seconds = |warm_up: bool| {
            let rounds = rounds.iter().filter(move |round| round.arm == arm && round.warm_up == warm_up);
            rounds.map(|round| round.outcome.seconds)
        };
        let slowest = seconds(true).max_by(f64::total_cmp)?;
        let median = crate::stats::median(&seconds(false).collect::<Vec<_>>())?;
        // Below a tenth of a second, most of it is the first start of the program.
        (slowest > TIMES * median && slowest > 0.1).then_some((slowest, median))
    };
    let found = (0..manifest.arms.len()).filter_map(of_arm);
    found.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(slowest, median)| {
        format!(
            "A warm-up round took {} s, the rounds that count {} s (median): if the first run does work that later ones find \
             done, as make does, undo it before each round (--prepare 'make clean').",
            number(slowest),
            number(median)
        )
    })
}

/// Notes that the machine was busy before the first round, that its host gave its time to others,
/// or that other programs disturbed rounds which count.
pub(super) fn busy(manifest: &Manifest, rounds: &[Round], arms: &[ArmReport]) -> Vec<String> {
    let mut notes = Vec::new();
    let cpus = manifest.machine.cpus.max(1);
    // Later rounds have the load of the rounds before them.
    let before = rounds.first().and_then(|round| round.moment.load_before);
    if let Some(load) = before.filter(|load| *load > 0.5 * cpus as f64 && !manifest.machine.simulated) {
        notes.push(format!(
            "The machine was busy before the first round (load {} on {cpus} CPUs): other programs make rounds slower \
             and less steady.",
            number(load)
        ));
    }
    let steal: Vec<f64> = rounds.iter().filter_map(|round| round.conditions.as_ref()?.steal).collect();
    if let Some(share) = crate::stats::mean(&steal).filter(|share| *share > 0.01) {
        notes.push(format!(
            "The host gave {:.0} % of the CPUs' time to other guests (steal), the mean of all rounds.",
            100.0 * share
        ));
    }
    let more = |boot: usize| {
        let own = rounds.iter().filter(|round| round.boot == boot && !round.warm_up);
        own.map(|round| round.block + 1).max().unwrap_or(0).saturating_sub(manifest.schedule.most())
    };
    let more: usize = (0..manifest.boots.len()).map(more).sum();
    if more > 0 && manifest.schedule.repeats() > 0 {
        let blocks = if more == 1 { "block was" } else { "blocks were" };
        notes.push(format!(
            "{more} {blocks} run in place of those in which other programs or guests disturbed a round (at most {}).",
            manifest.schedule.repeats()
        ));
    }
    if manifest.quiet.is_none() {
        let is_left_out = |round: &Round| {
            let left_out = arms.get(round.arm).map_or(&[][..], |arm| &arm.left_out);
            left_out.iter().any(|one| (one.boot, one.block) == (round.boot, round.block))
        };
        let of_count = || rounds.iter().filter(|round| !round.warm_up && !is_left_out(round));
        let bad: Vec<String> = of_count()
            .filter_map(|round| {
                let found = disturbances(round, manifest);
                found.into_iter().find(|found| found.grade == Grade::Bad).map(|found| found.what)
            })
            .collect();
        if let Some(first) = bad.first() {
            notes.push(format!(
                "{} of {} that count ran under bad conditions, such as: {first} (--quiet can help).",
                bad.len(),
                counted(of_count().count(), "round")
            ));
        }
    }
    notes
}

/// Notes that all arms took equally long at different speeds: the program may run for a fixed time
/// or wait for something other than a CPU. The time does not matter if the metric is a rate.
pub(super) fn fixed_time(report: &Report) -> Option<String> {
    const SAME: f64 = 1.005;
    const OTHER: f64 = 1.1;
    if let Some(note) = known_to_run_for_fixed_time(&report.workload, &report.arms) {
        return Some(note);
    }
    if report.workload.metric.is_rate() || report.workload.metric.is_suite() {
        return None;
    }
    let range = |quantity| {
        let medians: Vec<f64> =
            report.arms.iter().filter_map(|arm| Some(arm.summary(quantity)?.median)).collect();
        let low = medians.iter().copied().min_by(f64::total_cmp)?;
        Some((low, medians.iter().copied().max_by(f64::total_cmp)?))
            .filter(|_| medians.len() > 1 && low > 0.0)
    };
    let times = range(Quantity::Time)?;
    let speeds = range(Quantity::Frequency)
        .filter(|speeds| times.1 <= SAME * times.0 && speeds.1 >= OTHER * speeds.0)
        .map(|speeds| format!(", although CPUs ran at {} to {} GHz", number(speeds.0), number(speeds.1)));
    let so_far = speeds.or_else(|| runs_for_fixed_time(&report.workload, &report.arms).then(String::new))?;
    Some(format!(
        "All arms took {} s{so_far}. If the workload runs for a fixed time, compare its rate instead (--metric, \
         --unit): slower arms did less work.",
        number(times.0)
    ))
}

fn known_to_run_for_fixed_time(workload: &WorkloadNote, arms: &[ArmReport]) -> Option<String> {
    let programs = arms.iter().filter_map(|arm| Some(arm.program.as_ref()?.argv.as_slice()));
    note_fixed_time(workload.reader.as_ref()?, programs.chain([workload.argv.as_slice()]))
}

/// Returns whether a command is known to run for a fixed time, or seems to end after a whole number
/// of seconds: all arms take this long and at most 0.2 % and 20 ms more, and rounds differ by less
/// than 0.05 %.
pub(super) fn runs_for_fixed_time(workload: &WorkloadNote, arms: &[ArmReport]) -> bool {
    const SAME: f64 = 0.0005;
    let metric = &workload.metric;
    // Models always do the same work.
    if known_to_run_for_fixed_time(workload, arms).is_some() {
        return true;
    }
    if workload.reader.is_none() || metric.is_rate() || metric.is_suite() || arms.len() < 2 {
        return false;
    }
    let times: Option<Vec<(f64, f64)>> = arms
        .iter()
        .map(|arm| {
            let values = arm.summary(Quantity::Time)?.values();
            let median = crate::stats::median(&values)?;
            let distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
            Some((median, crate::stats::median(&distances).filter(|_| values.len() > 2)?))
        })
        .collect();
    let Some(times) = times else { return false };
    let whole = times[0].0.floor();
    times.iter().all(|(median, distance)| {
        whole >= 1.0 && (0.0..=0.02 + 0.002 * whole).contains(&(median - whole)) && *distance <= SAME * median
    }) && times.iter().all(|(median, _)| (median - times[0].0).abs() <= SAME * median)
}

/// Names the arms whose rounds have no value more often than those of the first arm.
pub(super) fn partial(report: &Report) -> Vec<String> {
    let base = &report.arms[0];
    let note = |comparison: &Comparison| {
        let arm = &report.arms[comparison.arm];
        let name = comparison.quantity.metric(&report.workload.metric).name;
        let [lost, of] = without_value(arm, comparison.quantity);
        let [base_lost, of_base] = without_value(base, comparison.quantity);
        format!(
            "{}: {lost} of {} have no {name}, and {base_lost} of {of_base} of {}. What is said of {name} holds only for \
             the rounds that have it, and no limit on it is kept.",
            arm.name,
            counted(of, "round"),
            base.name
        )
    };
    report.comparisons.iter().filter(|one| one.partial).map(note).collect()
}

/// Notes that an arm slows or speeds up the round after it, by heat, caches or turbo budget. In
/// each block, the round after the arm is compared with the round after the first arm, both without
/// the effect of their own arm. Which rounds these are is random, as in a comparison of the two
/// arms.
pub(super) fn carry_over(rounds: &[Round], arms: &[ArmReport], comparisons: &[Comparison]) -> Vec<String> {
    let mut logs: BTreeMap<(usize, usize, usize), f64> = BTreeMap::new();
    for (index, arm) in arms.iter().enumerate() {
        let own = |one: &&Comparison| one.arm == index && one.quantity == Quantity::Performance && one.paired;
        let effect = comparisons.iter().find(own).map(|one| one.change.ln_1p());
        // The ratio of 1e-160 and 1e160 overflows.
        let effect = effect.or((index == 0).then_some(0.0)).filter(|effect| effect.is_finite());
        let Some(effect) = effect else { continue };
        let points = arm.summary(Quantity::Performance).map_or(&[][..], |summary| &summary.points);
        let log = |point: &Point| ((point.boot, point.block, index), point.value.ln() - effect);
        logs.extend(points.iter().filter(|point| point.value > 0.0).map(log));
    }
    let key = |round: &Round| (round.boot, round.block, round.arm);
    let is_next = |pair: &&[Round]| pair[0].boot == pair[1].boot && !pair[0].warm_up && !pair[1].warm_up;
    let follows: Vec<&[Round]> = rounds.windows(2).filter(is_next).collect();
    let after: BTreeMap<(usize, usize, usize), f64> =
        follows.iter().filter_map(|pair| Some((key(&pair[0]), *logs.get(&key(&pair[1]))?))).collect();
    // Half a percent, for all arms together: the effects of the own arms are estimated from the
    // same rounds, and at 1 % up to 1.6 % of comparisons without carry-over had a note.
    let alpha = 0.005 / arms.len().saturating_sub(1).max(1) as f64;
    let base = arms.first().map_or("", |arm| &arm.name);
    let of_arm = |arm: usize| {
        let of_block = |(&(boot, block, own), log): (&(usize, usize, usize), &f64)| {
            (own == arm).then_some(())?;
            Some(log - after.get(&(boot, block, 0))?)
        };
        let more: Vec<f64> = after.iter().filter_map(of_block).collect();
        let p = crate::stats::signed_rank(&more).p;
        let interval = crate::stats::walsh_interval(&more, 1.0 - alpha).filter(|_| p <= alpha)?;
        // The share of an arm's rounds that came after this arm.
        let share = |own: usize| {
            let before: Vec<usize> =
                follows.iter().filter(|pair| pair[1].arm == own).map(|pair| pair[0].arm).collect();
            before.iter().filter(|one| **one == arm).count() as f64 / before.len().max(1) as f64
        };
        let less = share(arm) - share(0);
        // The effects that were taken off the rounds contain the share `less` of the change. So
        // what is left is smaller by the square of this share. If the arms always ran in turn,
        // nothing is left.
        let kept = Some(1.0 - less * less).filter(|kept| *kept > 0.25)?;
        let change = crate::stats::hodges_lehmann(&more)? / kept;
        let (name, metric) = (&arms[arm].name, &arms[arm].summary(Quantity::Performance)?.metric.name);
        Some(format!(
            "{name}: {CARRY_OVER} ({metric} {}, {} against the round after {base}, {}), by heat, caches or a power \
             budget. The order of the rounds cancels this in the next round only: if it lasts longer, a difference of \
             this size may come from it. A longer --cool-down lessens it.",
            percent(change.exp_m1()),
            between(interval.map(|end| (end / kept).exp_m1())),
            p_value(p),
        ))
    };
    (1..arms.len()).filter_map(of_arm).collect()
}

/// The mean that throughput follows. For a rate, it is the work of all rounds divided by their
/// time.
struct Mean {
    words: &'static str,
    /// What each round adds to the numerator and the denominator.
    parts: BTreeMap<(usize, usize), (f64, f64)>,
}

impl Mean {
    fn new(arm: &ArmReport, summary: &Summary) -> Mean {
        let key = |point: &Point| (point.boot, point.block);
        let times = arm.summary(Quantity::Time).map(|time| &time.points);
        // A benchmark's points are not work per time, although more of them is better.
        let is_rate = summary.metric.unit.ends_with("/s");
        match times.filter(|times| is_rate && times.len() == summary.points.len()) {
            Some(times) => {
                let part =
                    |(rate, time): (&Point, &Point)| (key(rate), (rate.value * time.value, time.value));
                let parts = summary.points.iter().zip(times).map(part).collect();
                Mean { words: "the work of all rounds over their time", parts }
            }
            None => {
                let parts = summary.points.iter().map(|point| (key(point), (point.value, 1.0))).collect();
                Mean { words: "the mean", parts }
            }
        }
    }

    fn value(&self) -> f64 {
        let (above, below) =
            self.parts.values().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        above / below
    }

    /// Returns the p-value of a permutation test: how often the means differ as much after random
    /// exchanges of arms within blocks. There are enough exchanges for p = `alpha` / 10. `None`
    /// without common blocks, and if that takes too many exchanges.
    fn test(&self, base: &Mean, alpha: f64) -> Option<f64> {
        const MAX_EXCHANGES: usize = 1 << 18;
        let exchanges = ((10.0 / alpha).ceil() as usize).max(2000) - 1;
        if exchanges > MAX_EXCHANGES {
            return None;
        }
        type Part = (f64, f64);
        let pairs: Vec<[Part; 2]> =
            self.parts.iter().filter_map(|(key, part)| Some([*part, *base.parts.get(key)?])).collect();
        let change = |exchanged: &mut dyn FnMut() -> bool| {
            let mut sums = [(0.0, 0.0); 2];
            for pair in &pairs {
                let first = usize::from(exchanged());
                for (sum, part) in sums.iter_mut().zip([pair[first], pair[1 - first]]) {
                    *sum = (sum.0 + part.0, sum.1 + part.1);
                }
            }
            (sums[0].0 / sums[0].1 / (sums[1].0 / sums[1].1)).ln().abs()
        };
        let seen = change(&mut || false) * (1.0 - 1e-9);
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let as_far = (0..exchanges).filter(|_| change(&mut || random.random()) >= seen).count();
        (pairs.len() > 1).then(|| (1 + as_far) as f64 / (1 + exchanges) as f64)
    }
}

/// Notes that rounds of an arm lie far from the others or on two levels. Verdicts about typical
/// rounds ignore them.
pub(super) fn odd_rounds(
    arms: &[ArmReport],
    index: usize,
    quantity: Quantity,
    schedule: &Schedule,
) -> Option<String> {
    const MAX_OTHERS: usize = 4;
    let (base, arm) = (arms.first()?, &arms[index]);
    let summary = arm.summary(quantity)?;
    let mean = Mean::new(arm, summary);
    let alpha = (1.0 - schedule.confidence) / arms.len().saturating_sub(1).max(1) as f64;
    let against = |other: &ArmReport, of_other: &Summary| {
        let of_other = Mean::new(other, of_other);
        let chance = match mean.test(&of_other, alpha).filter(|_| !schedule.is_until()) {
            Some(p) if p <= alpha => p_value(p),
            Some(p) => format!("{}: not shown to differ", p_value(p)),
            None => "not tested".to_owned(),
        };
        let (value, of_other) = (mean.value(), of_other.value());
        let change = if index > 0 { value / of_other } else { of_other / value } - 1.0;
        format!("{}: {}, {}, {chance}", other.name, number(of_other), percent(change))
    };
    // The other arms have a note of their own if their rounds are odd, too.
    let others = if index > 0 { std::slice::from_ref(base) } else { &arms[1..] };
    let others: Vec<String> = others
        .iter()
        .filter_map(|other| Some((other, other.summary(quantity)?)))
        .filter(|(_, of_other)| index > 0 || !super::values::is_uneven(of_other))
        .take(MAX_OTHERS)
        .map(|(other, of_other)| against(other, of_other))
        .collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) };
    let follows = format!("{}, {}{others}", mean.words, number(mean.value()));
    if let Some([low, high]) = two_levels(&summary.values()) {
        return Some(format!(
            "{}: {} {TWO_LEVELS}: {} in {} rounds and {} in {}. The median shows one \
             of them at most, and intervals can end between them; throughput and bills follow {follows}.",
            arm.name,
            summary.metric.name,
            number(low.0),
            low.1,
            number(high.0),
            high.1
        ));
    }
    let mut blocks = summary.outliers.clone();
    blocks.sort_unstable();
    let rounds = if blocks.len() > MAX_NAMED {
        format!("{} of {} rounds", blocks.len(), arm.rounds)
    } else {
        let numbers: Vec<String> = blocks.iter().map(|block| (block + 1).to_string()).collect();
        format!("round {}", numbers.join(", "))
    };
    (!blocks.is_empty()).then(|| {
        format!(
            "{}: {} far from the others in {rounds}. {}; throughput and bills follow {follows}.",
            arm.name,
            summary.metric.name,
            if schedule.is_until() {
                "With --until, intervals and verdicts count how far"
            } else {
                "Verdicts are about typical rounds and do not count how far"
            }
        )
    })
}

/// How many rounds a note names.
const MAX_NAMED: usize = 10;

/// The medians of the thirds of values.
fn thirds(values: &[f64]) -> Option<[f64; 3]> {
    let third = values.len().div_ceil(3);
    let middle = (values.len() - third) / 2;
    let of = |from: usize| crate::stats::median(&values[from..from + third]);
    Some([of(0)?, of(middle)?, of(values.len() - third)?])
}

/// A quantity, the arm whose difference from the first changes, and the note about it.
type Changed = (Quantity, usize, String);

/// Returns the comparisons in which the difference itself changes during the run: the ratios of
/// blocks have a trend or resemble their neighbours. The level is 1 % over all comparisons.
pub(super) fn changed_differences(report: &Report) -> Vec<Changed> {
    let of_comparison = |one: &Comparison| {
        let (base, arm) = (&report.arms[one.base], &report.arms[one.arm]);
        let summaries = (base.summary(one.quantity)?, arm.summary(one.quantity)?);
        let ratios = log_ratios(summaries.0, summaries.1);
        let trend = crate::stats::trend(&ratios).filter(|_| one.paired && arm.boots.len() == 1)?;
        let p = (2.0 * trend.p.min(crate::stats::alike(&ratios).unwrap_or(1.0))).min(1.0);
        let [first, middle, last] = thirds(&ratios)?.map(|log| percent(log.exp_m1()));
        (p < 0.01 / report.comparisons.len() as f64).then(|| {
            let note = format!(
                "{} against {}: the difference in {} {CHANGED} (medians of the thirds of the blocks: {first}, {middle}, \
                 {last}; {}): its interval is of no one time.",
                arm.name,
                base.name,
                summaries.1.metric.name,
                p_value(p)
            );
            (one.quantity, one.arm, note)
        })
    };
    report.comparisons.iter().filter_map(of_comparison).collect()
}

/// Notes trace records that were lost in an arm's rounds.
fn round_notes(rounds: &[&Round], arm: usize, name: &str) -> Option<String> {
    let lost: Vec<u64> = rounds
        .iter()
        .filter(|round| round.arm == arm)
        .filter_map(|round| Some(round.trace.as_ref()?.lost))
        .filter(|lost| *lost > 0)
        .collect();
    (!lost.is_empty()).then(|| {
        format!(
            "{name}: the trace lost {} records in {} rounds; their decisions per second are left out, and their traced \
             frequency and lag are of what was kept.",
            lost.iter().sum::<u64>(),
            lost.len()
        )
    })
}

/// Notes that frequencies were sampled, not counted: an idle CPU's file shows the last request, and
/// weighs as much as a busy one's.
fn frequency_by_file(manifest: &Manifest, report: &Report) -> Option<String> {
    report.arms.iter().find_map(|arm| arm.summary(Quantity::Frequency))?;
    // Registers are preferred: in a boot that has them, frequencies were counted.
    let boot =
        manifest.boots.iter().find(|b| b.meters.registers.is_empty() && !b.meters.frequency.is_empty())?;
    let (_, path) = boot.meters.frequency.first()?;
    let remedy = if manifest.machine.simulated {
        ""
    } else {
        "; as root and with the msr module it is what the hardware counted while running"
    };
    Some(format!(
        "Frequency is the plain mean of what {} of {} CPUs said every {} s, idle CPUs included{remedy}.",
        path.rsplit('/').next().unwrap_or(path),
        boot.meters.frequency.len(),
        manifest.schedule.interval
    ))
}

/// Notes what rounding to this step hides.
pub(crate) fn rounding(values: &str, step: Option<f64>) -> String {
    match step {
        None => format!("All values of {values} are equal, so the step in which they come is not known."),
        Some(step) => format!(
            "Values of {values} come in steps of at most {}: rounding hides what is smaller, so intervals allow for a step at \
             either end.",
            unsigned(step)
        ),
    }
}

/// Returns the note on rounding by the energy meter. Rounding of the metric has its own.
fn rounding_of_meter(report: &Report) -> Option<String> {
    let of_metric = |arm: usize| {
        let is_own = |one: &&Comparison| one.quantity == Quantity::Performance && one.arm == arm;
        report.comparisons.iter().find(is_own).and_then(|one| one.step)
    };
    let of_energy = || report.comparisons.iter().filter(|one| one.quantity != Quantity::Performance);
    // All values of the metric may be equal, which another note says.
    let is_unknown = |one: &&Comparison| one.step.is_none() && of_metric(one.arm).is_some();
    let unknown: BTreeSet<usize> = of_energy().filter(is_unknown).map(|one| one.arm).collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|arm| report.arms[*arm].name.as_str()).collect();
        let all = of_energy().all(|one| unknown.contains(&one.arm));
        let of = if all { "" } else { &format!(" of {} and {}", report.arms[0].name, names.join(" and ")) };
        return Some(rounding(&format!("the energy meter{of}"), None));
    }
    let of_meter = |one: &Comparison| {
        let of_metric = if one.quantity == Quantity::Energy { 0.0 } else { of_metric(one.arm)? };
        let step = (1.0 + one.step?) / (1.0 + of_metric) - 1.0;
        one.interval.is_some_and(|interval| super::is_coarse(interval, step)).then_some(step)
    };
    let step = of_energy().filter_map(of_meter).max_by(f64::total_cmp)?;
    Some(rounding("the energy meter", Some(step)))
}

/// All notes of a report, as sentences.
pub(super) fn notes(
    manifest: &Manifest,
    rounds: &[&Round],
    report: &Report,
    changed: &[Changed],
) -> Vec<String> {
    let mut notes = Vec::new();
    let of_performance = || report.comparisons.iter().filter(|one| one.quantity == Quantity::Performance);
    let metric = &report.workload.metric.name;
    let steps = of_performance().filter(|one| one.is_coarse()).filter_map(|one| one.step);
    let equal: Vec<&str> = of_performance()
        .filter(|one| one.step.is_none())
        .map(|one| report.arms[one.arm].name.as_str())
        .collect();
    if !equal.is_empty() {
        let all = equal.len() == of_performance().count();
        let of = if all {
            String::new()
        } else {
            format!(" of {} and {}", report.arms[0].name, equal.join(" and "))
        };
        let what = if report.workload.metric.is_suite() { "a case" } else { metric };
        notes.push(rounding(&format!("{what}{of}"), None));
    }
    if let Some(step) = steps.max_by(f64::total_cmp) {
        notes.push(rounding(metric, Some(step)));
    }
    notes.extend(rounding_of_meter(report));
    if manifest.machine.simulated {
        notes.push("This machine exists only in software: every number here is simulated.".to_owned());
    }
    if let Some(what) = &manifest.machine.emulated {
        notes.push(format!(
            "The processors of this machine are emulated ({what}): times, speeds, energy and heat are a model's."
        ));
    }
    notes.extend(quiet_note(manifest, report));
    notes.extend(frequency_by_file(manifest, report));
    let of_arm = |(index, arm): (usize, &ArmReport)| {
        let notes = left_out_notes(arm).into_iter().chain(round_notes(rounds, index, &arm.name));
        (arm.name.clone(), notes.chain(arm_notes(report, index, changed)).collect())
    };
    notes.extend(folded(report.arms.iter().enumerate().map(of_arm).collect()));
    notes.extend(boot_notes(manifest, report));
    notes
}

/// Merges the notes of all arms. A note that several arms share appears once.
fn folded(arms: Vec<(String, Vec<String>)>) -> Vec<String> {
    let mut notes: Vec<(Vec<String>, String)> = Vec::new();
    for (name, of_arm) in arms {
        for note in of_arm {
            let rest = note.strip_prefix(&format!("{name}: ")).map(str::to_owned);
            match (notes.iter_mut().find(|(_, other)| rest.as_ref() == Some(other)), rest) {
                (Some((names, _)), _) => names.push(name.clone()),
                (None, Some(rest)) => notes.push((vec![name.clone()], rest)),
                (None, None) => notes.push((Vec::new(), note)),
            }
        }
    }
    let line = |(names, rest): (Vec<String>, String)| match names.as_slice() {
        [] => rest,
        [first, _, _, more @ ..] => format!("{first} and {} other arms: {rest}", more.len() + 2),
        few => format!("{}: {rest}", few.join(", ")),
    };
    notes.into_iter().map(line).collect()
}

/// How quiet the machine was kept, and in how many rounds that held.
fn quiet_note(manifest: &Manifest, report: &Report) -> Option<String> {
    let quiet = manifest.quiet.as_ref()?;
    let sum = |get: fn(&Grades) -> usize| -> usize {
        report.arms.iter().filter_map(|arm| arm.grades.as_ref()).map(get).sum()
    };
    let out: usize = report.arms.iter().map(|arm| arm.left_out.len()).sum();
    Some(format!(
        "The machine was kept quiet (level {}, CPUs {}: {}); conditions were good in {} rounds, fair in {}, bad in {}, \
         not watched in {} (rounds below {} s are too short); {out} rounds are left out of the verdict, whatever their values.",
        quiet.level,
        quiet.cpus,
        if quiet.settings.is_empty() { "nothing to set here".to_owned() } else { quiet.settings.join(" ") },
        sum(|grades| grades.good),
        sum(|grades| grades.fair),
        sum(|grades| grades.bad),
        sum(|grades| grades.not_watched),
        Counting::SHORTEST_SECONDS,
    ))
}

const TWO_LEVELS: &str = "has two levels";
const CHANGED: &str = "changed during the run";
const NO_ROUND: &str = "no round is left";
const CARRY_OVER: &str = "it changes the round after it";
const ZERO: &str = "is zero or negative";
pub(super) const CPU_TIME: &str = "CPU time differs from that of";

/// Returns whether a note is shown next to the answer, which is incomplete without it.
pub(crate) fn is_first(note: &str) -> bool {
    [TWO_LEVELS, CHANGED, NO_ROUND, CARRY_OVER, ZERO, CPU_TIME].iter().any(|words| note.contains(words))
}

/// Notes that a quantity of an arm has values without a ratio.
pub(crate) fn without_ratio(arm: &str, summary: &Summary) -> Option<String> {
    let without = summary.without_ratio();
    let rounds = if without == 1 { "round" } else { "rounds" };
    (without > 0).then(|| format!("{arm}: {} {ZERO} in {without} {rounds}", summary.metric.name))
}

/// Notes that an arm's values change during the run, and whether their differences do.
fn moves(report: &Report, index: usize, changed: &[Changed]) -> Option<String> {
    let arm = &report.arms[index];
    let mut is_steady = true;
    let mut moving = Vec::new();
    for summary in arm.summaries.iter().filter(|summary| summary.is_judged) {
        let Some((drift, [first, _, last])) = summary.drift.zip(thirds(&summary.values())) else { continue };
        // A coarse clock can show a trend whose medians agree or go the other way.
        if (last > first) != (drift.change > 0.0) || first == last {
            continue;
        }
        let (name, p) = (&summary.metric.name, p_value(drift.p));
        moving.push(format!("{name} from {} to {} ({p})", number(first), number(last)));
        let is_own = |quantity, other| quantity == summary.quantity && (index == 0 || other == index);
        is_steady &= report.comparisons.iter().any(|one| one.paired && is_own(one.quantity, one.arm))
            && !changed.iter().any(|(quantity, other, _)| is_own(*quantity, *other));
    }
    let blocks = if is_steady { ". Arms are compared within blocks, which show no such change" } else { "" };
    (!moving.is_empty()).then(|| {
        format!(
            "{}: values move during the run (medians of its first and last third): {}. Their medians mix both{blocks}.",
            arm.name,
            moving.join(", ")
        )
    })
}

/// Returns the notes that qualify an arm's numbers.
fn arm_notes(report: &Report, index: usize, changed: &[Changed]) -> Vec<String> {
    let arm = &report.arms[index];
    let mut notes = Vec::new();
    if arm.rounds == 0 && !arm.left_out.is_empty() {
        notes.push(format!("{}: {NO_ROUND}, so there is no verdict.", arm.name));
    }
    if arm.hot > 0 {
        let why = if report.arms[0].hot > 0 {
            "Heat, not only the settings, decides this comparison"
        } else {
            "Without them, this arm would look better than it is"
        };
        notes.push(format!(
            "{}: throttled in {} of {}, which count. {why}. Use a longer --cool-down or better cooling.",
            arm.name,
            arm.hot,
            counted(arm.rounds, "round")
        ));
    }
    if let Some(why) = arm.speed.as_ref().and_then(SpeedNote::why_not) {
        notes.push(format!("{}: {why}", arm.name));
    }
    if let Some(words) = arm.wakes.as_ref().and_then(WakeNote::words) {
        notes.push(format!("{}: {words}", arm.name));
    }
    if let Some(needed) = &arm.waits_for {
        notes.push(format!("{}: not run yet; boot with {needed}, then continue with --resume.", arm.name));
    }
    notes.extend(moves(report, index, changed));
    for summary in arm.summaries.iter().filter(|summary| summary.is_judged) {
        if let Some(what) = without_ratio(&arm.name, summary) {
            let is_user = summary.metric == Quantity::User.metric(&summary.metric);
            let hint = if is_user { " --metric cpu-time counts the kernel's time too." } else { "" };
            notes.push(format!("{what}; changes are ratios, so there is no verdict on it.{hint}"));
        }
    }
    // Energy and work per joule follow the performance of the same round: one note for the round is
    // enough.
    notes.extend(odd_rounds(&report.arms, index, Quantity::Performance, &report.schedule));
    notes.extend(arm.notes.iter().map(|note| format!("{}: {note}", arm.name)));
    notes
}

/// Says which arms ran in which boot, if there is more than one.
fn boot_notes(manifest: &Manifest, report: &Report) -> Vec<String> {
    let in_boot = |boot: usize| -> Vec<&str> {
        report.arms.iter().filter(|arm| arm.boots.contains(&boot)).map(|arm| arm.name.as_str()).collect()
    };
    // A boot in which the command was stopped before its first round has no arms, and makes no
    // difference.
    let used: Vec<usize> = (0..manifest.boots.len()).filter(|boot| !in_boot(*boot).is_empty()).collect();
    if used.len() < 2 {
        return Vec::new();
    }
    let mut notes = Vec::new();
    for boot in used {
        let data = &manifest.boots[boot];
        let driver = data.driver.as_deref().map(|driver| format!(", {driver}")).unwrap_or_default();
        let arms = in_boot(boot).join(", ");
        notes.push(format!("Boot {} (Linux {}{driver}): {arms}.", boot + 1, data.kernel));
    }
    notes.push(
        "Arms of different boots were not run in turns: a difference between them holds what differs between \
         the boots too."
            .to_owned(),
    );
    notes.extend(unlike_spreads(report));
    notes
}

/// The ratio of spreads between boots above which there is a note. The rank-sum test holds its
/// level up to about this ratio.
const UNLIKE: f64 = 2.0;

/// Notes that arms of different boots scatter differently. The rank-sum test and its interval
/// assume that they scatter alike.
fn unlike_spreads(report: &Report) -> Vec<String> {
    let own = |one: &&Comparison| !one.paired && one.quantity == Quantity::Performance;
    let unlike = report.comparisons.iter().filter(own).filter_map(|one| {
        let found = one.steadiness?;
        let (base, other) = found.spreads;
        let is_unlike = found.verdict.is_difference() || base.max(other) > UNLIKE * base.min(other);
        is_unlike.then(|| {
            format!(
                "{} and {}: typical rounds vary by {} and by {}. The test of arms of different boots assumes that they \
                 vary alike: if not, equal arms get a verdict in 2 to 7 % of comparisons at 99 % confidence, and \
                 intervals miss the truth as often.",
                report.arms[one.base].name,
                report.arms[one.arm].name,
                unsigned(base),
                unsigned(other)
            )
        })
    });
    unlike.collect()
}
