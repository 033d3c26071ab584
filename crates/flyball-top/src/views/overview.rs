//! The overview: a line per package or core type with power and its limit, speed, and why it is not
//! faster.

use super::{number, percent, scroll, spark};
use crate::{
    canvas::{Canvas, Cell, Column, fitting},
    moment::{Group, Moment, Summary, groups, mean, wanted},
    palette::{Tone, tone},
    scene::{Drawn, Scene},
    state::State,
};

const COLUMNS: &[Column] = &[
    Column { title: "", width: 18, rank: 0, is_number: false },
    Column { title: "CPUs", width: 4, rank: 6, is_number: true },
    Column { title: "W", width: 5, rank: 2, is_number: true },
    Column { title: "limit W", width: 7, rank: 5, is_number: true },
    Column { title: "busy %", width: 6, rank: 3, is_number: true },
    Column { title: "want MHz", width: 8, rank: 0, is_number: true },
    Column { title: "got MHz", width: 7, rank: 0, is_number: true },
    Column { title: "least", width: 5, rank: 9, is_number: true },
    Column { title: "most", width: 5, rank: 8, is_number: true },
    Column { title: "C", width: 3, rank: 4, is_number: true },
    Column { title: "asleep", width: 6, rank: 7, is_number: true },
    Column { title: "why not more", width: 12, rank: 0, is_number: false },
];
/// Screens narrower than this use short names.
const NARROW: usize = 60;

fn cell(line: &Summary, group: &Group, column: usize) -> Cell {
    let plain = |text: String| (text, Tone::Plain);
    let got = line.got.map(|(_, median, _)| median);
    match COLUMNS[column].title {
        "" => (group.name.clone(), Tone::Heading),
        "CPUs" => plain(group.cpus.len().to_string()),
        "W" => {
            let share = line.watts.zip(line.limit).map(|(watts, limit)| watts / limit);
            (
                number(line.watts, 1),
                share.map_or(Tone::Plain, |share| if share >= 0.97 { Tone::Alert } else { Tone::Plain }),
            )
        }
        "limit W" => plain(line.limits()),
        "busy %" => plain(percent(line.busy)),
        "want MHz" => plain(number(line.want, 0)),
        "got MHz" => {
            let share = got.zip(line.want).map(|(got, want)| got / want);
            // The colour scale ends at half of the request.
            (number(got, 0), share.map_or(Tone::Plain, |share| tone((share * 2.0 - 1.0).max(0.0), true)))
        }
        "least" => plain(number(line.got.map(|(least, _, _)| least), 0)),
        "most" => plain(number(line.got.map(|(_, _, most)| most), 0)),
        "C" => plain(number(line.celsius, 0)),
        "asleep" => plain(line.asleep.to_string()),
        _ => (line.why.clone(), if line.is_throttled { Tone::Alert } else { Tone::Plain }),
    }
}

pub(crate) fn overview(canvas: &mut Canvas, state: &State, scene: &Scene, moment: &Moment) -> Drawn {
    let groups = groups(scene.layout);
    let mut columns = COLUMNS.to_vec();
    if canvas.width() < NARROW {
        columns[0].width = 9;
    }
    let (chosen, _) = fitting(&columns, canvas.width());
    canvas.head(1, &columns, &chosen, None);
    // The reasons below take at most a third of the screen.
    let held = moment.held_back(scene.layout);
    let room = canvas.height().saturating_sub(2);
    let below = (held.len() + 2).min(room / 3);
    let room = (room - below).max(1);
    // Draw graphs if there is room for two more lines in every group. Not for some groups only:
    // rows that jump between frames are unreadable.
    let per_group = if groups.len() * 3 <= room { 3 } else { 1 };
    let shown = room / per_group;
    let from = scroll(state.selected, groups.len(), shown);
    for (at, group) in groups.iter().enumerate().skip(from).take(shown) {
        let y = 2 + (at - from) * per_group;
        let line = Summary::new(group, moment);
        canvas.row(y, &columns, &chosen, |column| cell(&line, group, column));
        if at == state.selected {
            canvas.select(y);
        }
        if per_group == 3 {
            graphs(canvas, y + 1, scene, moment, group, line.limit);
        }
    }
    if groups.len() > from + shown {
        canvas.right(
            canvas.height() - 1,
            &format!("{} more below ", groups.len() - from - shown),
            Tone::Faint,
        );
    }
    let y = 2 + groups.len().min(shown) * per_group;
    reasons(canvas, y + 1, &held);
    Drawn {
        items: groups.len(),
        line: 1,
        page: shown.max(1),
        selected_cpu: groups
            .get(state.selected)
            .and_then(|group| group.cpus.first())
            .map(|index| scene.layout.cpus[*index].number),
        groups: true,
        ..Drawn::default()
    }
}

/// Draws the speed of a group's CPUs and the power of its package over the last samples.
fn graphs(canvas: &mut Canvas, y: usize, scene: &Scene, moment: &Moment, group: &Group, limit: Option<f64>) {
    const LABEL: usize = 12;
    let count = canvas.width().saturating_sub(LABEL + 2);
    let points: Vec<_> = scene.series.up_to(moment.number, count).collect();
    let most = group.cpus.iter().filter_map(|index| wanted(&moment.interval.cpus[*index])).reduce(f64::max);
    let speeds: Vec<f64> = points
        .iter()
        .map(|point| {
            let ran = group.cpus.iter().map(|index| f64::from(point.mhz[*index])).filter(|mhz| *mhz > 0.0);
            // A gap if no CPU ran. Zero would be a frequency.
            mean(ran).unwrap_or(f64::NAN)
        })
        .collect();
    let peak = speeds.iter().copied().filter(|speed| !speed.is_nan()).reduce(f64::max);
    let mut line = |y: usize, label: &str, values: Vec<f64>, most: f64| {
        let end = canvas.text(2, y, label, Tone::Faint);
        let text = spark(values.into_iter(), most);
        canvas.text(end.max(LABEL) + 1, y, &text, Tone::Good);
    };
    line(y, "speed", speeds, most.or(peak).unwrap_or(0.0));
    if let Some(package) = group.package {
        let watts: Vec<f64> = points.iter().map(|point| f64::from(point.watts[package])).collect();
        let peak = watts.iter().copied().filter(|watts| !watts.is_nan()).reduce(f64::max);
        if let Some(peak) = peak {
            // Scaled to the limit, so that the height shows how close power is to it, or to the
            // peak if that is higher.
            line(y + 1, "power", watts, limit.unwrap_or(peak).max(peak));
        }
    }
}

/// Lists why CPUs are held back, and which.
fn reasons(canvas: &mut Canvas, y: usize, held: &[(crate::moment::Reason, flyball_host::CpuList)]) {
    let room = canvas.height().saturating_sub(y + 1);
    if room == 0 || held.is_empty() {
        return;
    }
    canvas.text(0, y, "Not faster because of", Tone::Heading);
    for (at, (reason, cpus)) in held.iter().take(room).enumerate() {
        let tone = if reason.is_throttle { Tone::Alert } else { Tone::Plain };
        let is_last = at + 1 == room && held.len() > room;
        let more =
            if is_last { format!("  (and {} more reasons)", held.len() - room) } else { String::new() };
        let unit = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        let text = format!("{}: {} {unit}, {cpus}{more}", reason.word, cpus.len());
        canvas.text(2, y + 1 + at, &text, tone);
    }
}
