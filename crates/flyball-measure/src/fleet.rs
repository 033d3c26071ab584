//! One comparison that was run on many machines: what its arms change on average, on which machines
//! they do not, and what those have in common.
//!
//! Each machine ran both arms in the same blocks, so each is its own control; its run directory is
//! reduced to an effect with an error ([`Member`]). [`analyse_fleet`] combines these, as a pure
//! function.

mod collect;
mod member;
mod report;

use std::collections::BTreeMap;

use self::member::{Known, Losses, Rounds};
pub use self::{
    collect::{CollectError, Collected, missing},
    member::{Experiment, Fact, Member, MemberError},
    report::{
        Effect, FactEffect, FleetReport, GroupEffect, Lasting, LostRounds, MachineEffect, MachineReport, Odd,
        Pilot, Skipped, UnlikeItself, WithoutRatio,
    },
};
use crate::{
    Better, Quantity, Verdict,
    stats::{self, Estimate, Interval},
    with_step,
};

/// Pairs that a machine needs: with fewer, the error is hardly known.
const LEAST_PAIRS: usize = 3;

/// Pairs per machine from which on intervals keep their confidence level. With three to five they
/// are too narrow, because the errors of the machines are estimated (docs/dev/compare.md).
pub(crate) const ENOUGH_PAIRS: usize = 6;

/// Minimum number of peers to compare a machine with. With fewer, the scatter is known so badly
/// that machines like the others are called odd (`stats::pooled`'s tests print how often).
const LEAST_PEERS: usize = 9;

/// Converts a difference of logarithms to a change as a fraction.
fn change(log: f64) -> f64 {
    log.exp_m1()
}

/// Combines the machines' effects. `skipped` are directories that cannot be used, `missing` are
/// machines that were expected and have none.
pub fn analyse_fleet(
    experiment: Experiment,
    members: &[Member],
    skipped: Vec<Skipped>,
    missing: Vec<String>,
    confidence: f64,
) -> FleetReport {
    let mut machines: Vec<MachineReport> = members.iter().map(MachineReport::new).collect();
    let mut effects = Vec::new();
    // Each quantity is a question of its own. Its arms share the error level, in intervals and in
    // verdicts.
    let arms = experiment.others().count().max(1);
    let joint = 1.0 - (1.0 - confidence) / arms as f64;
    let without_ratio = without_ratio(&experiment, members);
    for &quantity in Quantity::judged(&experiment.metric) {
        let better = quantity.metric(&experiment.metric).better;
        let judged = |arm| judge(members, &mut machines, (arm, quantity), better, [confidence, joint]);
        let is_withheld = |arm: &usize| {
            without_ratio.iter().any(|one| one.withholds && (one.arm, one.quantity) == (*arm, quantity))
        };
        let mut of_arms: Vec<Effect> =
            experiment.others().filter(|arm| !is_withheld(arm)).filter_map(judged).collect();
        for effect in &mut of_arms {
            effect.p_corrected = (effect.p * arms as f64).min(1.0);
            // Rounding cannot reverse one machine's difference, but it can reverse a mean of
            // several.
            let is_shown = effect.interval.is_some_and(|found| found.low >= 0.0 || found.high <= 0.0);
            let decided = is_shown && effect.p_corrected <= 1.0 - confidence;
            effect.verdict = verdict(decided, effect.change, better);
        }
        effects.append(&mut of_arms);
    }
    for effect in effects.iter_mut().filter(|effect| is_lost_unevenly(members, effect.arm, effect.quantity)) {
        (effect.lost_unevenly, effect.next) = (true, None);
    }
    let lost = lost(members);
    let unlike = |member: &Member| {
        let machine = member.machine.clone();
        let of = move |quantity: &Quantity| UnlikeItself { machine: machine.clone(), quantity: *quantity };
        member.unlike_itself.iter().map(of).collect::<Vec<_>>()
    };
    let unlike_itself = members.iter().flat_map(unlike).collect();
    FleetReport {
        experiment,
        confidence,
        machines,
        effects,
        skipped,
        missing,
        without_ratio,
        lost,
        unlike_itself,
    }
}

/// Returns whether an arm and the first arm lost unlike numbers of rounds: on a machine, or on all
/// together, where few on each machine add up.
fn is_lost_unevenly(members: &[Member], arm: usize, quantity: Quantity) -> bool {
    const LEVEL: f64 = 0.05;
    let own = || members.iter().filter_map(|member| member.losses.get(&(arm, quantity)));
    let sum = |get: fn(&Losses) -> Rounds| {
        let add = |sum: Rounds, next: Rounds| Rounds { lost: sum.lost + next.lost, all: sum.all + next.all };
        own().map(get).fold(Rounds::default(), add)
    };
    let all = Losses { of_first: sum(|one| one.of_first), own: sum(|one| one.own), why: String::new() };
    own().any(Losses::are_uneven) || all.p() <= LEVEL
}

/// The rounds that do not count, by arm and quantity.
fn lost(members: &[Member]) -> Vec<LostRounds> {
    let of_member = |member: &Member| {
        let own = member.losses.iter().filter(|(_, found)| found.own.lost > 0 || found.are_uneven());
        let lost = |((arm, quantity), found): (&(usize, Quantity), &Losses)| LostRounds {
            arm: *arm,
            quantity: *quantity,
            machine: member.machine.clone(),
            lost: found.own.lost,
            rounds: found.own.all,
            first_lost: found.of_first.lost,
            first_rounds: found.of_first.all,
            why: found.why.clone(),
            uneven: found.are_uneven(),
        };
        own.map(lost).collect::<Vec<_>>()
    };
    let mut all: Vec<LostRounds> = members.iter().flat_map(of_member).collect();
    all.sort_by_key(|one| (one.arm, one.quantity, one.uneven));
    all
}

/// Returns the machines on which an arm has no ratios in a quantity. One may be left out. Without
/// several, the fleet's mean would be over machines selected by their values.
fn without_ratio(experiment: &Experiment, members: &[Member]) -> Vec<WithoutRatio> {
    let mut all = Vec::new();
    for &quantity in Quantity::judged(&experiment.metric) {
        for arm in experiment.others() {
            let own: Vec<(&Member, &str)> =
                members.iter().filter_map(|member| Some((member, member.why_none(arm, quantity)?))).collect();
            let withholds = own.len() > 1;
            all.extend(own.into_iter().map(|(member, why)| WithoutRatio {
                arm,
                quantity,
                machine: member.machine.clone(),
                why: why.to_owned(),
                withholds,
            }));
        }
    }
    all
}

fn verdict(decided: bool, change: f64, better: Better) -> Verdict {
    match decided {
        false => Verdict::NoDifferenceShown,
        true if (change > 0.0) == (better == Better::Higher) => Verdict::Better,
        true => Verdict::Worse,
    }
}

/// Returns whether a difference between two machines exceeds rounding: each effect is off by at
/// most one step.
fn is_beyond(step: Option<f64>, difference: f64) -> bool {
    step.is_some_and(|step| difference.abs() >= 2.0 * step)
}

/// Judges an arm in one quantity: over all machines, on each machine, and by the machines' facts.
fn judge(
    members: &[Member],
    machines: &mut [MachineReport],
    question: (usize, Quantity),
    better: Better,
    [confidence, joint]: [f64; 2],
) -> Option<Effect> {
    let (arm, quantity) = question;
    let alpha = 1.0 - confidence;
    let own: Vec<(usize, Known)> = members
        .iter()
        .enumerate()
        .filter_map(|(index, member)| Some((index, member.effect(arm, quantity)?)))
        .collect();
    let known: Vec<(usize, Estimate)> = own.iter().map(|(index, known)| (*index, known.estimate)).collect();
    let is_computed = own.iter().any(|(_, known)| known.is_computed);
    // The coarsest step; none if a machine's step is not known.
    let all: Option<Vec<f64>> = own.iter().map(|(_, known)| known.step).collect();
    let step = all.map(|all| all.into_iter().fold(0.0, f64::max));
    let estimates: Vec<Estimate> = known.iter().map(|(_, estimate)| *estimate).collect();
    let whole = stats::pooled(&estimates)?;
    let as_change = |interval: Interval| with_step(interval.map(change), step, false);

    let p: Vec<f64> = own.iter().map(|(_, known)| known.p(confidence)).collect();
    let mut counts = [0_usize; 3];
    for ((index, Known { estimate, step, .. }), p) in own.iter().zip(stats::holm(&p)) {
        let verdict = verdict(p <= alpha, estimate.value, better);
        counts[match verdict {
            Verdict::Better => 0,
            Verdict::Worse => 1,
            Verdict::Equivalent | Verdict::NoDifferenceShown | Verdict::TooFewRounds => 2,
        }] += 1;
        machines[*index].effects.push(MachineEffect {
            arm,
            quantity,
            change: change(estimate.value),
            interval: estimate
                .interval(confidence)
                .and_then(|found| with_step(found.map(change), *step, verdict.is_difference())),
            verdict,
        });
    }
    let facts = by_fact(members, &known, step, confidence);
    let others = stats::leave_one_out(&estimates);
    // Machines are weighted by how well their effect is known. If that depends on the effect, the
    // weighted mean stands for quiet machines only, so both means must show the effect.
    let is_other = |plain: &Estimate| {
        whole
            .interval(joint)
            .is_some_and(|interval| (plain.value - whole.mean).abs() > 0.5 * interval.half_width())
    };
    let plain = stats::unweighted(&estimates).filter(is_other);
    let agrees = |plain: &Estimate| (plain.value > 0.0) == (whole.mean > 0.0);
    let p_of_plain = plain.map(|plain| plain.p().filter(|_| agrees(&plain)).unwrap_or(1.0));
    // Smaller differences between the two means can come from rounding.
    let plain = plain.filter(|plain| is_beyond(step, change(plain.value) - change(whole.mean)));
    // If a fact divides the fleet, a machine is compared with those that share it: otherwise half a
    // fleet would be odd, or its scatter would hide the odd one.
    let divided = facts.iter().find(|fact| fact.p_corrected <= alpha);
    let mut odd = odd(members, &known, divided, alpha);
    odd.retain(|one| is_beyond(step, one.change - one.peers));
    let agree = [1.0, -1.0].iter().any(|sign| estimates.iter().all(|one| sign * one.value >= 0.0));
    Some(Effect {
        arm,
        quantity,
        machines: whole.machines,
        change: change(whole.mean),
        plain_change: plain.map(|plain| change(plain.value)),
        plain_interval: plain.and_then(|plain| plain.interval(joint)).and_then(as_change),
        interval: whole.interval(joint).and_then(|found| {
            let found = found.map(change);
            with_step(found, step, agree && !is_computed && !found.contains(0.0))
        }),
        step,
        p: whole.p().unwrap_or(1.0).max(p_of_plain.unwrap_or(0.0)),
        p_corrected: 1.0,
        verdict: Verdict::NoDifferenceShown,
        between: whole.between,
        i_squared: whole.i_squared,
        next: stats::next_machine(&estimates, joint).and_then(as_change),
        lost_unevenly: false,
        better: counts[0],
        worse: counts[1],
        undecided: counts[2],
        without_one: others.map(|others| lasting(members, &known, &others)),
        facts,
        odd,
        noise: {
            // The scatter of one pair, from which the errors of other numbers of rounds follow.
            let of_pairs: Vec<f64> =
                known.iter().map(|(_, estimate)| estimate.error * (estimate.freedom + 1.0).sqrt()).collect();
            stats::median(&of_pairs).unwrap_or(0.0)
        },
    })
}

/// Returns the extremes of the mean with one machine left out.
fn lasting(members: &[Member], known: &[(usize, Estimate)], others: &[stats::LeftOutOne]) -> Lasting {
    let name = |place: usize| members[known[place].0].machine.clone();
    let mut ends = [(0, f64::INFINITY), (0, f64::NEG_INFINITY)];
    for (place, one) in others.iter().enumerate() {
        if one.mean < ends[0].1 {
            ends[0] = (place, one.mean);
        }
        if one.mean > ends[1].1 {
            ends[1] = (place, one.mean);
        }
    }
    let [lowest, highest] = ends.map(|(place, mean)| (name(place), change(mean)));
    Lasting { lowest, highest }
}

/// The fleet divided by each fact in which its machines differ.
fn by_fact(
    members: &[Member],
    known: &[(usize, Estimate)],
    step: Option<f64>,
    confidence: f64,
) -> Vec<FactEffect> {
    let mut found: Vec<FactEffect> = Vec::new();
    let mut divisions: Vec<Vec<usize>> = Vec::new();
    for &fact in Fact::ALL {
        let mut values: Vec<String> = Vec::new();
        let division: Vec<usize> = known
            .iter()
            .map(|(index, _)| {
                let value = members[*index].facts.get(&fact).cloned().unwrap_or_else(|| "unknown".to_owned());
                values.iter().position(|other| *other == value).unwrap_or_else(|| {
                    values.push(value);
                    values.len() - 1
                })
            })
            .collect();
        // A value per machine would explain everything and say nothing.
        if values.len() < 2 || values.len() * 2 > known.len() {
            continue;
        }
        // Values are numbered as they come, so facts that divide the fleet in the same way have the
        // same numbers.
        if let Some(place) = divisions.iter().position(|other| *other == division) {
            found[place].facts.push(fact);
            for (group, value) in found[place].groups.iter_mut().zip(values) {
                group.values.push(value);
            }
            continue;
        }
        let mut estimates = vec![Vec::new(); values.len()];
        for ((_, estimate), group) in known.iter().zip(&division) {
            estimates[*group].push(*estimate);
        }
        let Some(compared) = stats::groups(&estimates) else { continue };
        let groups = values.into_iter().zip(&compared.means).zip(&estimates);
        let groups = groups.map(|((value, mean), machines)| GroupEffect {
            values: vec![value],
            machines: machines.len(),
            change: change(mean.mean),
            interval: stats::pooled(machines)
                .and_then(|pooled| pooled.interval(confidence))
                .and_then(|interval| with_step(interval.map(change), step, false)),
        });
        let changes = || compared.means.iter().map(|mean| change(mean.mean));
        let range = changes().fold(f64::MIN, f64::max) - changes().fold(f64::MAX, f64::min);
        found.push(FactEffect {
            facts: vec![fact],
            p: if is_beyond(step, range) { compared.p } else { 1.0 },
            p_corrected: 1.0,
            within: None,
            groups: groups.collect(),
        });
        divisions.push(division);
    }
    within_surest(known, &mut found, &divisions);
    let p: Vec<f64> = found.iter().map(|fact| fact.p).collect();
    for (fact, p) in found.iter_mut().zip(stats::holm(&p)) {
        fact.p_corrected = p;
        fact.groups.sort_by_key(|group| std::cmp::Reverse(group.machines));
    }
    found.sort_by(|a, b| a.p.total_cmp(&b.p));
    found
}

/// Tests each fact again among the machines that share the surest fact. A fact that merely goes
/// along with it divides the fleet too, but not these machines.
fn within_surest(known: &[(usize, Estimate)], found: &mut [FactEffect], divisions: &[Vec<usize>]) {
    let Some(first) = (0..found.len()).min_by(|a, b| found[*a].p.total_cmp(&found[*b].p)) else { return };
    let grouped = |division: &[usize], estimates: &[Estimate]| {
        let mut groups = vec![Vec::new(); division.iter().max().map_or(0, |most| most + 1)];
        for (estimate, group) in estimates.iter().zip(division) {
            groups[*group].push(*estimate);
        }
        groups
    };
    let estimates: Vec<Estimate> = known.iter().map(|(_, estimate)| *estimate).collect();
    let Some(means) = stats::groups(&grouped(&divisions[first], &estimates)) else { return };
    let left: Vec<Estimate> = estimates
        .iter()
        .zip(&divisions[first])
        .map(|(estimate, group)| Estimate { value: estimate.value - means.means[*group].mean, ..*estimate })
        .collect();
    let name = found[first].facts[0];
    for (place, fact) in found.iter_mut().enumerate().filter(|(place, _)| *place != first) {
        fact.within = stats::groups(&grouped(&divisions[place], &left)).map(|compared| (name, compared.p));
    }
}

/// The machines that are unlike their peers, corrected for the number of machines.
fn odd(
    members: &[Member],
    known: &[(usize, Estimate)],
    divided: Option<&FactEffect>,
    alpha: f64,
) -> Vec<Odd> {
    let key = |index: usize| divided.map(|fact| members[index].facts.get(&fact.facts[0]).cloned());
    let mut peers: BTreeMap<_, Vec<(usize, Estimate)>> = BTreeMap::new();
    for (index, estimate) in known {
        peers.entry(key(*index)).or_default().push((*index, *estimate));
    }
    let mut judged = Vec::new();
    for group in peers.values().filter(|group| group.len() > LEAST_PEERS) {
        let estimates: Vec<Estimate> = group.iter().map(|(_, estimate)| *estimate).collect();
        let Some(others) = stats::leave_one_out(&estimates) else { continue };
        let each = group.iter().zip(others);
        judged.extend(each.map(|((index, estimate), one)| (*index, *estimate, one, group.as_slice())));
    }
    let p: Vec<f64> = judged.iter().map(|(_, _, one, _)| one.p).collect();
    let corrected = stats::holm(&p);
    judged
        .into_iter()
        .zip(corrected)
        .filter(|(_, p)| *p <= alpha)
        .map(|((index, estimate, one, group), p_corrected)| Odd {
            machine: members[index].machine.clone(),
            change: change(estimate.value),
            peers: change(one.mean),
            p_corrected,
            differs_in: differs_in(members, index, group),
        })
        .collect()
}

/// The facts in which a machine differs from most of its peers: name, its own value, theirs.
fn differs_in(members: &[Member], index: usize, peers: &[(usize, Estimate)]) -> Vec<(Fact, String, String)> {
    let mut found = Vec::new();
    for &fact in Fact::ALL {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (peer, _) in peers.iter().filter(|(peer, _)| *peer != index) {
            *counts.entry(members[*peer].facts.get(&fact).map_or("unknown", String::as_str)).or_default() +=
                1;
        }
        let own = members[index].facts.get(&fact).map_or("unknown", String::as_str);
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        if let Some((usual, count)) = most.filter(|(usual, count)| *usual != own && *count * 2 >= peers.len())
        {
            let _ = count;
            found.push((fact, own.to_owned(), usual.to_owned()));
        }
    }
    found
}

/// How many machines show an effect, for several numbers of rounds per machine, if the fleet is
/// like this one.
pub fn design(effect: &Effect, wanted: f64, confidence: f64) -> Vec<Pilot> {
    [4, 8, 16, 32, 64]
        .into_iter()
        .map(|rounds| Pilot {
            rounds,
            machines: stats::machines_to_show(
                wanted.ln_1p(),
                effect.between,
                effect.noise / f64::from(rounds).sqrt(),
                1.0 - confidence,
                report::POWER,
            ),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, Normal};

    use super::*;

    fn experiment(arms: usize) -> Experiment {
        Experiment {
            name: None,
            digest: None,
            workload: String::new(),
            argv: Vec::new(),
            metric: crate::Metric::new("wall time", "s", Better::Lower),
            arms: vec![(String::new(), Vec::new()); arms],
            controls: Vec::new(),
        }
    }

    #[test]
    fn arms_share_the_error_of_words_and_intervals() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(32);
        let normal = Normal::new(0.01, 0.01).expect("a deviation");
        let mut differs = 0;
        for _ in 0..200 {
            let of_machine = |number: usize| {
                let estimate = Estimate { value: normal.sample(&mut random), error: 0.005, freedom: 14.0 };
                Member::with_effect(number.to_string(), estimate, Some(0.0))
            };
            let members: Vec<Member> = (0..8).map(of_machine).collect();
            let report = analyse_fleet(experiment(4), &members, Vec::new(), Vec::new(), 0.95);
            let effect = &report.effects[0];
            let is_shown = effect.interval.is_some_and(|interval| !interval.contains(0.0));
            assert_eq!(is_shown, effect.verdict.is_difference(), "{effect:?}");
            differs += usize::from(is_shown);
        }
        assert!((20..180).contains(&differs), "{differs} of 200");
    }

    /// Eight machines on which all values are equal, or lie one step apart.
    #[test]
    fn rounding_gives_no_interval_of_no_width() {
        for (value, step, expected) in [
            (0.0, None, None),
            (0.0, Some(0.01), Some((-0.0099, 0.01))),
            (0.01_f64.ln_1p(), Some(0.01), Some((0.0, 0.0201))),
        ] {
            let estimate = Estimate { value, error: 0.0, freedom: 39.0 };
            let members: Vec<Member> =
                (0..8).map(|number| Member::with_effect(number.to_string(), estimate, step)).collect();
            let report = analyse_fleet(experiment(2), &members, Vec::new(), Vec::new(), 0.95);
            let effect = &report.effects[0];
            let ends = |found: Option<Interval>| found.map(|found| (found.low, found.high));
            let own = report.machines[0].effects[0].interval;
            for found in [ends(effect.interval), ends(own)] {
                let is_near = |(one, other): ((f64, f64), (f64, f64))| {
                    (one.0 - other.0).abs() < 2e-4 && (one.1 - other.1).abs() < 2e-4
                };
                assert!(
                    found == expected || found.zip(expected).is_some_and(is_near),
                    "{found:?} {expected:?}"
                );
            }
            assert_eq!(effect.next.is_none(), step.is_none(), "{effect:?}");
            assert_eq!(effect.plain_change, None, "{effect:?}");
            assert!(effect.next.is_none_or(|next| next.high - next.low > 0.01), "{effect:?}");
        }
    }

    /// Eight machines whose watts are read as 20 and 21: energy per work differs by 2.9 %, and one
    /// step of the watts is 5 %.
    #[test]
    fn computed_values_differ_only_by_more_than_a_step() {
        for (value, words) in [(0.029_f64, "unclear"), (0.08, "worse on average")] {
            let estimate = Estimate { value: value.ln_1p(), error: 0.0005, freedom: 7.0 };
            let of = |number: usize| Member::with_effect(number.to_string(), estimate, Some(0.05)).computed();
            let members: Vec<Member> = (0..8).map(of).collect();
            let report = analyse_fleet(experiment(2), &members, Vec::new(), Vec::new(), 0.95);
            let screen = crate::render::Screen { width: None, painter: flyball_text::columns::Unstyled };
            let text = crate::render::fleet_text(&report, None, &[], screen);
            assert!(text.contains(words), "{text}");
            let effect = &report.effects[0];
            assert_eq!(effect.worse, if value > 0.05 { 8 } else { 0 }, "{effect:?}");
            assert_eq!(effect.interval.is_some_and(|found| found.low > 0.0), value > 0.05, "{effect:?}");
        }
    }

    /// A machine whose values are all equal has no known noise, and so no known weight.
    #[test]
    fn an_unknown_step_gives_no_mean() {
        let of = |number: usize| {
            let error = if number == 0 { 0.0 } else { 0.002 };
            let estimate = Estimate { value: 0.001 * number as f64, error, freedom: 15.0 };
            Member::with_effect(number.to_string(), estimate, (number > 0).then_some(0.01))
        };
        let members: Vec<Member> = (0..8).map(of).collect();
        let report = analyse_fleet(experiment(2), &members, Vec::new(), Vec::new(), 0.95);
        let screen = crate::render::Screen { width: None, painter: flyball_text::columns::Unstyled };
        let text = crate::render::fleet_text(&report, None, &[], screen);
        assert!(text.contains("wall time       -") && !text.contains("counted once"), "{text}");
    }

    /// Five machines that agree say nothing of the fifth of machines on which it may be worse.
    #[test]
    fn the_next_machine_is_one_like_these() {
        for (value, word) in [(-0.05, "better"), (0.05, "worse")] {
            let of = |number: usize| {
                let estimate = Estimate { value: value + 0.001 * number as f64, error: 0.001, freedom: 14.0 };
                Member::with_effect(number.to_string(), estimate, Some(0.0))
            };
            let members: Vec<Member> = (0..5).map(of).collect();
            let report = analyse_fleet(experiment(2), &members, Vec::new(), Vec::new(), 0.95);
            let screen = crate::render::Screen { width: None, painter: flyball_text::columns::Unstyled };
            let text = crate::render::fleet_text(&report, None, &[], screen);
            let expected = format!(
                "expected to be {word} on the next machine if it is like these 5 (up to 45 % of machines may be unlike them)"
            );
            assert!(text.contains(&expected), "{text}");
        }
    }

    /// Machines with values of zero: one is left out and named, several take the verdict.
    #[test]
    fn machines_without_ratios_are_named_and_several_take_the_verdict() {
        for zeros in 0..3 {
            let estimate = Estimate { value: 0.05, error: 0.001, freedom: 14.0 };
            let of = |number: usize| Member::with_effect(format!("n{number}"), estimate, Some(0.0));
            let members: Vec<Member> = (0..6)
                .map(|number| if number < zeros { of(number).without_ratio() } else { of(number) })
                .collect();
            let report = analyse_fleet(experiment(2), &members, Vec::new(), Vec::new(), 0.95);
            assert_eq!(report.effects.len(), usize::from(zeros < 2), "{zeros}");
            assert!(report.effects.iter().all(|effect| effect.machines == 6 - zeros));
            assert_eq!(report.without_ratio.len(), zeros);
            let screen = crate::render::Screen { width: None, painter: flyball_text::columns::Unstyled };
            let text = crate::render::fleet_text(&report, None, &[], screen);
            assert_eq!(
                text.contains("n0, b: wall time is zero or negative in 8 rounds"),
                zeros > 0,
                "{text}"
            );
            assert_eq!(text.contains("so there is no verdict on it"), zeros > 1, "{text}");
            assert!(!text.contains("nothing to put together"), "{text}");
        }
    }

    /// Machines on which rounds of b failed: where many did, the machine is left out, and the next
    /// machine is not predicted, nor where few add up.
    #[test]
    fn rounds_that_only_one_arm_lost_are_named_and_take_the_next_machine() {
        for (losing, lost, kept, is_predicted) in
            [(0, 0, 6, true), (6, 1, 6, false), (1, 1, 6, true), (1, 6, 5, false), (6, 15, 0, false)]
        {
            let estimate = Estimate { value: -0.02, error: 0.001, freedom: 14.0 };
            let of = |number: usize| {
                let member = Member::with_effect(format!("n{number}"), estimate, Some(0.0));
                member.losing(0, if number < losing { lost } else { 0 })
            };
            let members: Vec<Member> = (0..6).map(of).collect();
            let report = analyse_fleet(experiment(2), &members, Vec::new(), Vec::new(), 0.95);
            let screen = crate::render::Screen { width: None, painter: flyball_text::columns::Unstyled };
            let text = crate::render::fleet_text(&report, None, &[], screen);
            assert_eq!(report.effects.first().map_or(0, |effect| effect.machines), kept, "{text}");
            assert_eq!(text.contains("and expected to be better"), is_predicted, "{text}");
            assert_eq!(text.contains("rounds are left out on n0"), losing > 0, "{text}");
            assert_eq!(text.contains("are left out unevenly"), kept > 0 && !is_predicted, "{text}");
            assert_eq!(report.lost.len(), losing);
            assert!(!text.contains("nothing to put together"), "{text}");
        }
    }

    /// Ten quiet machines with 1 % less time and ten noisy ones with 1 % more: the mean over
    /// machines is 0, but the weighted one is that of the quiet ones.
    #[test]
    fn quiet_and_noisy_machines_that_disagree_give_no_verdict() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(31);
        let (mut by_weight, mut verdicts, mut agreeing) = (0, 0, 0);
        for mixed in [true, false].repeat(200) {
            let members: Vec<Member> = (0..20)
                .map(|number| {
                    let (spread, effect) = if number < 10 { (0.01, -0.01) } else { (0.08, 0.01) };
                    let effect = if mixed { effect } else { -0.03 };
                    let normal = Normal::new(effect, spread).expect("a deviation");
                    let logs: Vec<f64> = (0..10).map(|_| normal.sample(&mut random)).collect();
                    let error = stats::standard_deviation(&logs).unwrap_or(0.0) / 10.0_f64.sqrt();
                    let value = stats::mean(&logs).unwrap_or(0.0);
                    Member::with_effect(
                        number.to_string(),
                        Estimate { value, error, freedom: 9.0 },
                        Some(0.0),
                    )
                })
                .collect();
            let report = analyse_fleet(experiment(2), &members, Vec::new(), Vec::new(), 0.95);
            let effect = &report.effects[0];
            let is_decided = effect.verdict != Verdict::NoDifferenceShown;
            by_weight += usize::from(mixed && effect.interval.is_some_and(|found| !found.contains(0.0)));
            verdicts += usize::from(mixed && is_decided);
            agreeing += usize::from(!mixed && is_decided);
        }
        println!("weighted interval without 0: {by_weight} of 200, verdicts {verdicts}; of -3 % {agreeing}");
        assert!(by_weight > 100 && verdicts <= 10 && agreeing > 190, "{by_weight} {verdicts} {agreeing}");
    }
}
