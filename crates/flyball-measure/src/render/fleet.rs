//! A fleet's report as text and as a page.

use std::{collections::BTreeSet, fmt::Write};

use flyball_plot::{Axis, Block, Chart, Mark, Page, Series, Table};
use flyball_text::columns::{Cell, Columns, Painter, one_line};

use super::{Screen, parts::style};
use crate::{
    analyse::{Quantity, Verdict, is_coarse, rounding},
    fleet::{
        ENOUGH_PAIRS, Effect, Fact, FactEffect, FleetReport, LostRounds, MachineReport, Odd, Pilot,
        WithoutRatio,
    },
    metric::{Better, Metric},
    numbers::{between, level, p_value, percent, unsigned},
    stats::Interval,
};

/// Maximum number of names in a list; further ones are only counted.
const NAMES: usize = 12;

/// Maximum number of machines with their own intervals in a chart; more become a line within a
/// band.
const INTERVALS: usize = 80;

/// The whole report, and with `designs` how many machines an effect needs, for each of the report's
/// effects.
pub fn fleet_text<P: Painter + Copy>(
    report: &FleetReport,
    wanted: Option<f64>,
    designs: &[Vec<Pilot>],
    screen: Screen<P>,
) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "fleet     {}", one_line(machines(report)));
    let workload = one_line(report.experiment.workload.clone());
    let _ = match &report.experiment.name {
        Some(name) => writeln!(out, "workload  {workload} (experiment {})", one_line(name.clone())),
        None => writeln!(out, "workload  {workload}"),
    };
    let metric = &report.experiment.metric;
    let _ = writeln!(
        out,
        "metric    {}, {} is better",
        one_line(format!("{} in {}", metric.name, metric.unit)),
        if metric.better == Better::Higher { "more" } else { "less" }
    );
    let _ = writeln!(out, "against   {}\n", one_line(report.experiment.arms[0].0.clone()));
    if !report.effects.is_empty() {
        out.push_str(&grid(report).render_within(screen.painter, screen.width));
    }
    if let arms @ 2.. = report.experiment.others().count() {
        let _ = writeln!(out, "intervals and words of each quantity hold together for its {arms} arms");
    }
    if report.effects.iter().any(|effect| effect.quantity != report.effects[0].quantity) {
        let _ = writeln!(
            out,
            "each quantity is judged by itself: of several, one may differ by chance more often"
        );
    }
    out.push('\n');
    for effect in &report.effects {
        for line in lines(report, effect) {
            let _ = writeln!(out, "{line}");
        }
    }
    if let Some(wanted) = wanted {
        let _ = writeln!(
            out,
            "\nmachines like these that show a change of {} with 90 % probability at {} % confidence; that is a guess from {} machines:",
            unsigned(wanted),
            level(report.confidence),
            report.machines.len()
        );
        out.push_str(&design_grid(report, designs).render_within(screen.painter, screen.width));
        out.push('\n');
    }
    for note in notes(report) {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// How many machines there are, and how many are simulated, skipped or missing.
fn machines(report: &FleetReport) -> String {
    let pairs = report.machines.iter().map(|machine| machine.pairs);
    let (least, most) = (pairs.clone().min().unwrap_or(0), pairs.max().unwrap_or(0));
    let blocks = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let plural = if most == 1 { "" } else { "s" };
    let mut text = format!("{} machines with {blocks} block{plural} each", report.machines.len());
    for (count, what) in [
        (report.simulated(), "simulated"),
        (report.skipped.len(), "skipped"),
        (report.missing.len(), "missing"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}

/// The arm and the quantity, as a heading.
fn title(report: &FleetReport, effect: &Effect) -> String {
    let (arm, metric) = names(report, effect);
    format!("{arm}: {}", metric.name)
}

fn names(report: &FleetReport, effect: &Effect) -> (String, Metric) {
    let metric = effect.quantity.metric(&report.experiment.metric);
    (one_line(report.experiment.arms[effect.arm].0.clone()), metric)
}

/// Returns the word for a verdict in the first and the last column.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Equivalent | Verdict::NoDifferenceShown | Verdict::TooFewRounds => "unclear",
    }
}

fn header(report: &FleetReport) -> [String; 8] {
    let level = format!("{} % interval", level(report.confidence));
    ["arm", "quantity", "change", &level, "next machine", "better", "worse", "on average"]
        .map(ToOwned::to_owned)
}

/// The mean over the machines. A machine whose values are all equal has no known noise, so its
/// weight is not known either.
fn mean(effect: &Effect) -> Option<f64> {
    effect.step.map(|_| effect.change)
}

fn cells(report: &FleetReport, effect: &Effect) -> Vec<Cell> {
    let (arm, metric) = names(report, effect);
    let range = |interval: Option<Interval>| interval.map_or_else(|| "-".to_owned(), between);
    vec![
        arm.into(),
        metric.name.into(),
        mean(effect).map_or_else(|| "-".to_owned(), percent).into(),
        range(effect.interval).into(),
        range(effect.next).into(),
        format!("{}/{}", effect.better, effect.machines).into(),
        format!("{}/{}", effect.worse, effect.machines).into(),
        Cell::styled(style(effect.verdict), word(effect.verdict)),
    ]
}

fn grid(report: &FleetReport) -> Columns {
    let mut columns = Columns::aligned_right(2..7);
    columns.heading(header(report));
    report.effects.iter().for_each(|effect| columns.row(cells(report, effect)));
    columns
}

/// The direction of an interval: `Some(true)` if all of it is better.
fn side(interval: Option<Interval>, better: Better) -> Option<bool> {
    let interval = interval.filter(|interval| !interval.contains(0.0))?;
    Some((interval.low > 0.0) == (better == Better::Higher))
}

/// The largest share of machines of another kind that this many machines may have missed, at 95 %.
fn unlike(machines: usize) -> f64 {
    1.0 - 0.05_f64.powf(1.0 / machines as f64)
}

/// Summarizes an effect in a sentence.
fn sentence(report: &FleetReport, effect: &Effect) -> String {
    let (arm, metric) = names(report, effect);
    let start = format!("{arm}, {}", metric.name);
    let worse = match effect.worse {
        0 => String::new(),
        count => format!(", but worse on {count} of {} machines", effect.machines),
    };
    let better = match effect.better {
        0 => String::new(),
        count => format!(", but better on {count} of {} machines", effect.machines),
    };
    let next = if effect.lost_unevenly {
        "; the next machine is not predicted, because rounds are left out unevenly (see the notes)"
    } else if effect.next.is_some() {
        "; the next machine may go either way"
    } else {
        "; what the next machine does is not known from so few"
    };
    let like = format!(
        " if it is like these {} (up to {:.0} % of machines may be unlike them)",
        effect.machines,
        100.0 * unlike(effect.machines)
    );
    match (effect.verdict, side(effect.next, metric.better)) {
        (Verdict::Better, Some(true)) => {
            format!("{start}: better on average{worse}, and expected to be better on the next machine{like}.")
        }
        (Verdict::Better, _) => {
            format!("{start}: better on average{worse}{next}.")
        }
        (Verdict::Worse, Some(false)) => {
            format!("{start}: worse on average{better}, and expected to be worse on the next machine{like}.")
        }
        (Verdict::Worse, _) => {
            format!("{start}: worse on average{better}{next}.")
        }
        _ if effect.better + effect.worse > 0 => format!(
            "{start}: the average is unclear; better on {}, worse on {} of {} machines.",
            effect.better, effect.worse, effect.machines
        ),
        _ => format!(
            "{start}: unclear; no difference is shown on average or on any of {} machines.",
            effect.machines
        ),
    }
}

/// All lines about an effect, the most important first.
fn lines(report: &FleetReport, effect: &Effect) -> Vec<String> {
    let alpha = 1.0 - report.confidence;
    let mut lines = vec![sentence(report, effect)];
    lines.extend(
        effect.facts.iter().filter(|fact| fact.p_corrected <= alpha).map(|fact| by_fact(fact, alpha)),
    );
    if let Some(plain) = effect.plain_change {
        let interval =
            effect.plain_interval.map_or_else(String::new, |found| format!(" ({})", between(found)));
        lines.push(format!(
            "  each machine counted once, the mean is {}{interval}: quiet machines, which count more above, differ from noisy \
             ones",
            percent(plain)
        ));
    }
    lines.extend(effect.odd.iter().take(NAMES).map(odd));
    if effect.odd.len() > NAMES {
        lines.push(format!(
            "  and {} more machines are unlike their peers (--json lists all)",
            effect.odd.len() - NAMES
        ));
    }
    // For a mean that cannot be distinguished from zero, this adds nothing.
    if let Some(without) =
        effect.without_one.as_ref().filter(|_| effect.verdict != Verdict::NoDifferenceShown)
    {
        let [(low, lowest), (high, highest)] = [&without.lowest, &without.highest];
        lines.push(format!(
            "  without one machine the mean stays between {} (without {}) and {} (without {})",
            percent(*lowest),
            one_line(low.clone()),
            percent(*highest),
            one_line(high.clone())
        ));
    }
    lines
}

fn list(facts: &[Fact]) -> String {
    facts.iter().map(|fact| fact.name()).collect::<Vec<_>>().join(" and ")
}

fn by_fact(fact: &FactEffect, alpha: f64) -> String {
    let groups = fact.groups.iter().take(NAMES).map(|group| {
        let machines = if group.machines == 1 { "machine" } else { "machines" };
        format!(
            "{} on {} ({} {machines})",
            percent(group.change),
            one_line(group.values.join(", ")),
            group.machines
        )
    });
    let more = match fact.groups.len().saturating_sub(NAMES) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let unsure = match &fact.within {
        Some((first, p)) if *p > alpha => format!(
            "; goes with {}: among machines with the same {} no difference is shown, {}",
            first.name(),
            first.name(),
            p_value(*p)
        ),
        Some((first, p)) => {
            format!("; also among machines with the same {}, {}", first.name(), p_value(*p))
        }
        None if fact.facts.len() > 1 => {
            "; they divide the fleet in the same way, so which matters is not known".to_owned()
        }
        None => String::new(),
    };
    format!(
        "  by {}: {}{more} ({}){unsure}",
        list(&fact.facts),
        groups.collect::<Vec<_>>().join("; "),
        p_value(fact.p_corrected)
    )
}

fn odd(odd: &Odd) -> String {
    let differs: Vec<String> = odd
        .differs_in
        .iter()
        .map(|(fact, own, usual)| one_line(format!("{} {own}, most peers {usual}", fact.name())))
        .collect();
    format!(
        "  {}: {} where its peers have {} ({}); {}",
        one_line(odd.machine.clone()),
        percent(odd.change),
        percent(odd.peers),
        p_value(odd.p_corrected),
        if differs.is_empty() {
            "no recorded fact differs from theirs".to_owned()
        } else {
            differs.join("; ")
        }
    )
}

/// How many machines show the wanted effect.
fn design_grid(report: &FleetReport, designs: &[Vec<Pilot>]) -> Columns {
    let mut columns = Columns::aligned_right(0..designs.len() + 1);
    let head = report.effects.iter().map(|effect| title(report, effect));
    columns.heading(std::iter::once("rounds per arm".to_owned()).chain(head));
    let rounds = designs.first().map_or(0, Vec::len);
    for place in 0..rounds {
        let machines = |design: &Vec<Pilot>| {
            design[place].machines.map_or_else(|| "over a million".to_owned(), |count| count.to_string())
        };
        let first = designs[0][place].rounds.to_string();
        columns.text_row(std::iter::once(first).chain(designs.iter().map(machines)));
    }
    columns
}

/// Names, and how many more there are.
fn some<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    let mut words: Vec<String> = all.iter().take(NAMES).map(text).collect();
    if all.len() > NAMES {
        words.push(format!("and {} more", all.len() - NAMES));
    }
    words.join(", ")
}

fn notes(report: &FleetReport) -> Vec<String> {
    let mut notes: Vec<String> = report
        .skipped
        .iter()
        .take(NAMES)
        .map(|one| one_line(format!("{} skipped: {}", one.directory, one.why)))
        .collect();
    if report.skipped.len() > NAMES {
        notes.push(format!("{} more directories skipped", report.skipped.len() - NAMES));
    }
    for effect in &report.effects {
        let (_, metric) = names(report, effect);
        let coarse = effect.step.filter(|step| effect.interval.is_some_and(|found| is_coarse(found, *step)));
        let note = match (effect.step, coarse) {
            (None, _) => rounding(&format!("{} on a machine", metric.name), None),
            (_, Some(step)) => rounding(&metric.name, Some(step)),
            _ => continue,
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes.extend(without_ratio(report));
    notes.extend(lost(report));
    notes.extend(unlike_itself(report));
    if !report.missing.is_empty() {
        notes.push(format!("no results from {}", some(&report.missing, |name| one_line(name.clone()))));
    }
    let is_short = |machine: &&MachineReport| machine.pairs < ENOUGH_PAIRS && !machine.effects.is_empty();
    let few = report.machines.iter().filter(is_short).count();
    if few > 0 {
        notes.push(format!(
            "{few} of {} machines have fewer than {ENOUGH_PAIRS} blocks: then an interval of 95 % holds in 86 to 95 % of \
             cases, one of 99 % in 96 to 97 %",
            report.machines.len()
        ));
    }
    let is_left_out = report.lost.iter().any(|one| one.uneven) || !report.unlike_itself.is_empty();
    if report.effects.is_empty() && report.without_ratio.is_empty() && !is_left_out {
        notes.push("nothing to put together: no quantity was measured on two machines".to_owned());
    }
    notes
}

/// Says which machines are left out of which quantity.
fn without_ratio(report: &FleetReport) -> Vec<String> {
    let is_same =
        |one: &WithoutRatio, other: &WithoutRatio| (one.arm, one.quantity) == (other.arm, other.quantity);
    let note = |own: &[WithoutRatio]| {
        let first = one_line(format!("{}, {}", own[0].machine, own[0].why));
        match own.len() {
            1 => format!("{first}; left out of this quantity"),
            count => format!(
                "{first}, the first of {count} machines with such rounds; changes are ratios, so there is no verdict on it"
            ),
        }
    };
    report.without_ratio.chunk_by(is_same).map(note).collect()
}

/// Names the machines on which rounds of an arm do not count.
fn lost(report: &FleetReport) -> Vec<String> {
    let name = |arm: usize| one_line(report.experiment.arms[arm].0.clone());
    let place = |one: &LostRounds| {
        let count = if one.lost == one.rounds {
            format!("all {}", one.rounds)
        } else {
            format!("{} of {}", one.lost, one.rounds)
        };
        let of_first = format!("{}: {} of {}", name(0), one.first_lost, one.first_rounds);
        one_line(format!("{} ({count}; {of_first})", one.machine))
    };
    let note = |own: &[&LostRounds]| {
        let (arm, first) = (name(own[0].arm), one_line(own[0].why.clone()));
        let places = some(own, |one| place(one));
        let metric = own[0].quantity.metric(&report.experiment.metric).name;
        let of =
            if own[0].quantity == Quantity::Performance { arm.clone() } else { format!("{arm}, {metric}") };
        let rest = match (own[0].uneven, own.len()) {
            (false, _) => String::new(),
            (true, 1) => {
                format!(". This machine does not count for {of}: its other rounds may be a selection")
            }
            (true, _) => {
                format!(". These machines do not count for {of}: their other rounds may be a selection")
            }
        };
        format!("{of}: rounds are left out on {places}; the first: {first}{rest}")
    };
    // Energy lacks the rounds that the metric lacks, and one note on these is enough.
    let mut known = BTreeSet::new();
    let all: Vec<&LostRounds> = report
        .lost
        .iter()
        .filter(|one| known.insert((one.arm, &one.machine, one.lost, one.first_lost)))
        .collect();
    let key = |one: &LostRounds| (one.arm, one.quantity, one.uneven);
    all.chunk_by(|one, other| key(one) == key(other)).map(note).collect()
}

/// Names the machines whose first arm differs from itself.
fn unlike_itself(report: &FleetReport) -> Vec<String> {
    let first = one_line(report.experiment.arms[0].0.clone());
    let of = |quantity: &Quantity| {
        let metric = quantity.metric(&report.experiment.metric).name;
        let own: Vec<&String> = report
            .unlike_itself
            .iter()
            .filter(|one| one.quantity == *quantity)
            .map(|one| &one.machine)
            .collect();
        let machines = some(&own, |name| one_line((*name).clone()));
        (!own.is_empty()).then(|| {
            format!("{first} differs from itself (--aa) in {metric} on {machines}; left out of this quantity")
        })
    };
    Quantity::judged(&report.experiment.metric).iter().filter_map(of).collect()
}

pub fn fleet_page(report: &FleetReport) -> Page {
    let mut page = Page::new(format!("flyball fleet: {}", one_line(report.experiment.workload.clone())));
    if report.simulated() > 0 {
        page = page.with(Block::Banner(format!(
            "{} of {} machines are simulated. A model made their numbers, not hardware.",
            report.simulated(),
            report.machines.len()
        )));
    }
    page = page.with(Block::Paragraph(machines(report)));
    let answer = report.effects.iter().map(|effect| {
        let sentence = sentence(report, effect);
        let (what, said) = sentence.split_once(": ").unwrap_or(("", &sentence));
        (format!("{what}:"), said.to_owned())
    });
    page = page.with(Block::Answer(answer.collect()));
    let header = header(report).to_vec();
    let rows = report.effects.iter().map(|effect| cells(report, effect)).collect();
    page = page
        .with(Block::Tables(vec![Table { header, rows, colours: Vec::new() }]))
        .with(Block::Charts(report.effects.iter().map(|effect| forest(report, effect)).collect()));
    let details: Vec<String> = report
        .effects
        .iter()
        .flat_map(|effect| lines(report, effect).into_iter().skip(1).map(move |line| (effect, line)))
        .map(|(effect, line)| {
            let (arm, metric) = names(report, effect);
            format!("{arm}, {}: {}", metric.name, line.trim_start())
        })
        .collect();
    if !details.is_empty() {
        page = page
            .with(Block::Heading("What it depends on, and exceptions".to_owned()))
            .with(Block::List(details));
    }
    let notes = notes(report);
    if !notes.is_empty() {
        page = page.with(Block::Heading("Notes".to_owned())).with(Block::List(notes));
    }
    page.with(Block::Details("All machines".to_owned(), vec![Block::Tables(vec![all(report)])])).with(
        Block::Paragraph(format!(
            "Each machine is its own control: blocks with both arms, the mean of their ratios. Over machines: random effects, \
             variance after Paule and Mandel, interval after Hartung and Knapp, {} % confidence; 'next machine' is where the \
             effect on one more machine like these lies.",
            level(report.confidence)
        )),
    )
}

/// The machines' changes in order of size, each with its interval.
fn forest(report: &FleetReport, effect: &Effect) -> Chart {
    let (_, metric) = names(report, effect);
    let mut machines: Vec<(&str, f64, Interval)> = report
        .machines
        .iter()
        .filter_map(|machine| {
            let own = machine.effect(effect)?;
            let interval = own.interval.unwrap_or(Interval { low: own.change, high: own.change });
            Some((machine.machine.as_str(), own.change * 100.0, interval.map(|end| end * 100.0)))
        })
        .collect();
    machines.sort_by(|a, b| a.1.total_cmp(&b.1));
    let better = if metric.better == Better::Higher { "more" } else { "less" };
    let few = machines.len() <= INTERVALS;
    let places = if few {
        Axis::categories("", machines.iter().map(|(name, ..)| one_line((*name).to_owned())).collect())
    } else {
        Axis::new("machines, in order of their change", "")
    };
    let mut chart = Chart::new(title(report, effect), places, Axis::new("change", "%"))
        .described(format!("dashed: the mean of all machines; {better} is better"))
        .with(Series::unnamed(Mark::Level(0.0)).coloured(7));
    if let Some(mean) = mean(effect) {
        chart = chart.with(Series::unnamed(Mark::Level(mean * 100.0)).coloured(1));
    }
    let at = |place: usize| place as f64;
    if few {
        let intervals = machines
            .iter()
            .enumerate()
            .map(|(place, (_, middle, ends))| (at(place), ends.low, *middle, ends.high));
        chart = chart.with(Series::unnamed(Mark::Intervals(intervals.collect())).coloured(0));
    } else {
        // A point per machine and pixel is enough: five thousand intervals would be a grey block
        // and a megabyte.
        let step = machines.len().div_ceil(1000);
        let last = machines.len() - 1;
        // The first and the last are the odd ones, if there are any.
        let is_shown = |place: &usize| place.is_multiple_of(step) || *place < NAMES || place + NAMES > last;
        let shown: Vec<_> = machines.iter().enumerate().filter(|(place, _)| is_shown(place)).collect();
        let band = shown.iter().map(|(place, (_, _, ends))| (at(*place), ends.low, ends.high)).collect();
        let line = shown.iter().map(|(place, (_, middle, _))| (at(*place), *middle)).collect();
        chart = chart
            .with(Series::unnamed(Mark::Band(band)).coloured(0).faint(0.3))
            .with(Series::unnamed(Mark::Line(line)).coloured(0));
    }
    chart
}

/// Every machine with its facts and changes.
fn all(report: &FleetReport) -> Table {
    let mut header: Vec<String> = vec!["machine".to_owned(), "blocks".to_owned()];
    header.extend(report.effects.iter().map(|effect| title(report, effect)));
    header.extend(Fact::ALL.iter().map(|fact| fact.name().to_owned()));
    let rows = report.machines.iter().map(|machine| {
        let mut row: Vec<Cell> = vec![machine.machine.clone().into(), machine.pairs.to_string().into()];
        row.extend(report.effects.iter().map(|effect| {
            machine
                .effect(effect)
                .map_or_else(|| Cell::from("-"), |own| Cell::styled(style(own.verdict), percent(own.change)))
        }));
        row.extend(
            Fact::ALL.iter().map(|fact| Cell::from(machine.facts.get(fact).cloned().unwrap_or_default())),
        );
        row
    });
    Table { header, rows: rows.collect(), colours: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_of_intervals() {
        let interval = |low, high| Some(Interval { low, high });
        assert_eq!(side(interval(-0.1, 0.1), Better::Lower), None);
        assert_eq!(side(interval(-0.2, -0.1), Better::Lower), Some(true));
        assert_eq!(side(interval(-0.2, -0.1), Better::Higher), Some(false));
        assert_eq!(side(None, Better::Higher), None);
    }

    #[test]
    fn few_machines_may_have_missed_many_of_another_kind() {
        let percents = [2, 5, 10, 59].map(|machines| (100.0 * unlike(machines)).round());
        assert_eq!(percents, [78.0, 45.0, 26.0, 5.0]);
    }

    #[test]
    fn long_lists_are_counted() {
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        assert!(some(&names, Clone::clone).ends_with("11, and 8 more"));
        assert_eq!(some(&names[..2], Clone::clone), "0, 1");
    }
}
