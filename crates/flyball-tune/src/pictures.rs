//! The picture of a search.

use flyball_measure::RunDirectory;
use flyball_plot::{Axis, Block, Chart, Mark, Page, Series};

use crate::{blocks::Outcome, record::Record};

/// A picture, alone and as a page.
#[derive(Debug)]
pub struct Pictures {
    pub svg: String,
    pub html: String,
}

impl Pictures {
    /// What is expected of each setting that ran, and how sure that is.
    pub fn of_search(directory: &RunDirectory, record: &Record, outcome: &Outcome) -> Pictures {
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
            let chosen = if *arm == outcome.chosen { " (the search's choice)" } else { "" };
            format!("{}. {}{chosen}", index + 1, record.searched.arms[*arm].name)
        });
        let page = Page::new(record.goal.title(metric))
            .with(Block::Charts(vec![chart.clone()]))
            .with(Block::List(names.collect()));
        Pictures { svg: chart.svg(), html: page.html() }
    }
}
