//! A search computed again from its directory: the verdict, and its pictures.

use std::path::Path;

use flyball_measure::{Blocks as _, RunDirectory};
use flyball_plot::{Axis, Block, Chart, Mark, Page, Series};

use super::{
    CONFIRM, FILE, Record,
    blocks::{Outcome, SearchBlocks},
    earlier, front,
    intake::{in_order, not_over},
    read_record,
    verdict::{Confirmed, Verdict},
};
use crate::{
    commands::report::save,
    exit::{Exit, Failure},
    output::Reporter,
    schema,
};

/// Whether a run directory is that of a search.
pub fn is_search(path: &Path) -> bool {
    path.join(FILE).is_file()
}

/// The search of a directory, as it chooses blocks.
pub(super) fn blocks<'a>(
    directory: &RunDirectory,
    record: &'a Record,
    shows: bool,
) -> Result<SearchBlocks<'a>, Failure> {
    let blocks = SearchBlocks::new(record, directory.manifest.schedule.seed, shows)?;
    let Some(after) = record.contradicted_after else { return Ok(blocks) };
    let fresh = RunDirectory::open(&directory.path().join(CONFIRM[0]))?;
    Ok(blocks.contradicted(after, earlier::of_confirmation(&fresh, record)))
}

/// Computes the verdict of a finished search again, and writes its pictures to `place`.
///
/// # Errors
/// A directory that is damaged, or whose search is not over.
pub fn report(output: &Reporter, directory: &RunDirectory, place: &Path) -> Result<Exit, Failure> {
    let record = read_record(directory.path(), directory)?;
    if record.goal.second.is_some() {
        return front::report(output, directory, &record, place);
    }
    let mut blocks = blocks(directory, &record, false)?;
    let done = in_order(directory);
    let next = blocks.next(&directory.manifest, &done);
    let Some(outcome) = blocks.outcome.filter(|_| next.is_none()) else {
        return Ok(not_over(directory, done.len()));
    };
    let second = record.contradicted_after.is_some();
    let folder = directory.path().join(CONFIRM[usize::from(second)]);
    let confirmed = match outcome.chosen {
        0 => None,
        _ => Some(Confirmed::new(&RunDirectory::open(&folder)?, &record.goal)),
    };
    let verdict = Verdict::new(&record.goal, &record.searched, directory, &outcome, confirmed, second);
    write_pictures(directory, &record, &outcome, place)?;
    output.object(schema::TUNE, || &verdict, || verdict.text(&directory.manifest, &record.searched))?;
    Ok(Exit::Done)
}

/// The picture of a search: what is expected of each setting that ran, and how sure that is.
pub(super) fn write_pictures(
    directory: &RunDirectory,
    record: &Record,
    outcome: &Outcome,
    place: &Path,
) -> Result<(), Failure> {
    let metric = &directory.manifest.workload.metric;
    let aim = record.goal.aim;
    let quantity = aim.quantity.metric(metric).name;
    let percent = |log: f64| 100.0 * aim.of_log(log).exp_m1();
    let mut ran: Vec<usize> = (0..record.searched.arms.len())
        .filter(|arm| directory.rounds.iter().any(|round| round.arm == *arm && !round.warm_up))
        .collect();
    ran.sort_by(|a, b| outcome.expected[*a].0.total_cmp(&outcome.expected[*b].0));
    // Two deviations to either side, the ends in order also where more is better.
    let intervals = ran.iter().enumerate().map(|(index, arm)| {
        let (mean, deviation) = outcome.expected[*arm];
        let ends = [-2.0, 2.0].map(|times| percent(mean + times * deviation));
        (index as f64 + 1.0, ends[0].min(ends[1]), percent(mean), ends[0].max(ends[1]))
    });
    let chart = Chart::new(
        format!("{} by the model", record.goal.title(metric)),
        Axis::new("settings that ran, the best first", ""),
        Axis::new(format!("{quantity} against now"), "%"),
    )
    .with(Series::unnamed(Mark::Intervals(intervals.collect())));
    let names = ran.iter().enumerate().map(|(index, arm)| {
        let chosen = if *arm == outcome.chosen { " (chosen)" } else { "" };
        format!("{}. {}{chosen}", index + 1, record.searched.arms[*arm].name)
    });
    let page = Page::new(record.goal.title(metric))
        .with(Block::Charts(vec![chart.clone()]))
        .with(Block::List(names.collect()));
    let _as_owner = directory.owner().map(flyball_process::User::for_files);
    save(place, "search.svg", chart.svg().as_bytes())?;
    save(place, "search.html", page.html().as_bytes())
}
