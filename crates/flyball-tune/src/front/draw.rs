//! A front as a picture: in the terminal, and as a page.

use flyball_measure::{Manifest, Metric, render};
use flyball_plot::{Axis, Block, Chart, Cross, Mark as Drawn, Page, Series};

use super::{FrontClaim, FrontFound, FrontPlace};
use crate::{Pictures, pictures::facts};

/// The source of the marks on settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The claims that were shown.
    Claims,
    /// The model's expectation, if nothing was shown yet.
    Likely,
}

/// Columns and lines of the picture in a terminal. With its axis it fits 80 columns.
const SIZE: (usize, usize) = (52, 14);

/// The settings in a terminal: numbers for those on the front, signs for the others.
pub(super) fn picture(found: &FrontFound, metric: &Metric, mark: Mark) -> String {
    let at = |place: &FrontPlace, quantity: usize| 100.0 * place.changes[quantity][1];
    // Settings that have not run have no position.
    let ran = || {
        found
            .settings
            .iter()
            .enumerate()
            .filter(|(_, one)| one.changes[0][0] < one.changes[0][2] || one.arm == 0)
    };
    let range = |quantity: usize| {
        let values = || ran().map(|(_, place)| at(place, quantity));
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        // A single setting, or all at one position: avoid a division by a width of zero.
        if high > low { (low, high) } else { (low - 1.0, low + 1.0) }
    };
    let (x, y) = (range(0), range(1));
    let (columns, lines) = SIZE;
    let mut cells = vec![vec![' '; columns + 2]; lines];
    let cell = |value: f64, (low, high): (f64, f64), count: usize| {
        ((value - low) / (high - low) * (count - 1) as f64).round() as usize
    };
    // The important ones last: they are drawn over the others.
    let order = |claim: FrontClaim| match claim {
        FrontClaim::Dominated => 0,
        FrontClaim::Undecided => 1,
        FrontClaim::OnFront => 2,
    };
    let mut places: Vec<(usize, &FrontPlace)> = ran().collect();
    places.sort_by_key(|(_, place)| order(place.claim));
    for (index, place) in places {
        let (column, line) = (cell(at(place, 0), x, columns), lines - 1 - cell(at(place, 1), y, lines));
        let is_likely = mark == Mark::Likely && place.claim == FrontClaim::Undecided;
        let sign = match place.claim {
            FrontClaim::OnFront => (index + 1).to_string(),
            FrontClaim::Dominated => "\u{b7}".to_owned(),
            FrontClaim::Undecided if is_likely && place.chance >= 0.5 => "o".to_owned(),
            FrontClaim::Undecided if is_likely => ".".to_owned(),
            FrontClaim::Undecided => "?".to_owned(),
        };
        for (offset, sign) in sign.chars().enumerate() {
            if let Some(cell) = cells[line].get_mut(column + offset) {
                *cell = sign;
            }
        }
    }
    let [first, second] = found.names(metric);
    let mut out = format!("{second} (up) and {first} against now\n");
    for (line, cells) in cells.iter().enumerate() {
        let label = match line {
            0 => format!("{:+.1} %", y.1),
            line if line + 1 == lines => format!("{:+.1} %", y.0),
            _ => String::new(),
        };
        let text: String = cells.iter().collect();
        out += &format!("{label:>10} |{}\n", text.trim_end());
    }
    let (left, right) = (format!("{:+.1} %", x.0), format!("{:+.1} %", x.1));
    out += &format!("{:>10} +{}\n", "", "-".repeat(columns));
    out += &format!("{:>10}  {left}{:>width$}\n", "", right, width = columns - left.chars().count());
    out += match mark {
        Mark::Claims => "numbers: on the front; \u{b7} dominated; ? undecided\n",
        Mark::Likely => {
            "o likely on the front, . likely not; numbers: shown on the front, \u{b7} dominated\n"
        }
    };
    out
}

/// The picture of a front as a chart and as a page.
pub(super) fn pictures(found: &FrontFound, manifest: &Manifest) -> Pictures {
    let metric = &manifest.workload.metric;
    let [first, second] = found.names(metric);
    let title = found.goal.title(metric);
    let mut chart = Chart::new(
        title.clone(),
        Axis::new(format!("{first} against now"), "%"),
        Axis::new(format!("{second} against now"), "%"),
    )
    .described("expected changes with two standard deviations");
    let kinds = [
        (FrontClaim::OnFront, "on the front", 0),
        (FrontClaim::Undecided, "undecided", 1),
        (FrontClaim::Dominated, "dominated", 7),
    ];
    for (claim, name, colour) in kinds {
        let mut name = Some(name);
        for (index, one) in found.settings.iter().enumerate().filter(|(_, one)| one.claim == claim) {
            let of = |quantity: usize| {
                let [low, middle, high] = one.changes[quantity].map(|part| 100.0 * part);
                (low, middle, high)
            };
            let cross = Cross { x: of(0), y: of(1), label: (index + 1).to_string() };
            // One entry in the key for all settings of a kind.
            let name = name.take().unwrap_or_default();
            chart = chart.with(Series::new(name, Drawn::Cross(cross)).coloured(colour));
        }
    }
    let list = found.settings.iter().enumerate().map(|(index, one)| {
        let claim = match (one.claim, &one.by) {
            (FrontClaim::OnFront, _) => "on the front".to_owned(),
            (_, Some(by)) => format!("dominated by {}", found.number_of(by)),
            _ => "undecided".to_owned(),
        };
        format!("{}. {}: {claim}", index + 1, one.name)
    });
    let mut page = Page::new(title);
    page.blocks.extend(render::banner(&manifest.machine).map(Block::Banner));
    let page = page
        .with(Block::Charts(vec![chart.clone()]))
        .with(Block::List(list.collect()))
        .with(Block::Heading("How it was run".to_owned()))
        .with(Block::Facts(facts(manifest)));
    Pictures { svg: chart.svg(), html: page.html() }
}
