//! The map: a cell per CPU, in the order of the topology.

use flyball_monitor::{Cpu, CpuInterval, Layout};

use super::{number, percent, state as state_word};
use crate::{
    canvas::Canvas,
    moment::{Group, Moment, Reason, groups, is_running, wanted},
    palette::{ASLEEP, BARS, OFFLINE, Tone, UNKNOWN, bar, tone},
    scene::{Drawn, Scene},
    state::{Quantity, State, passes},
};

/// A cell: a glyph, a number of three characters, a tone.
struct MapCell {
    glyph: char,
    number: String,
    tone: Tone,
}

/// The value of a full cell, in the quantity's unit.
struct Scale {
    most: f64,
}

impl Scale {
    fn new(quantity: Quantity, moment: &Moment) -> Scale {
        let cpus = &moment.interval.cpus;
        let most = match quantity {
            // Relative to the highest request, so that a machine at half speed looks slow.
            Quantity::Speed => cpus
                .iter()
                .filter_map(|cpu| Some(wanted(cpu)?.max(cpu.mhz.unwrap_or(0.0))))
                .reduce(f64::max)
                .or_else(|| cpus.iter().filter_map(|cpu| cpu.mhz).reduce(f64::max))
                .unwrap_or(1.0),
            Quantity::Heat => 100.0,
            Quantity::Busy | Quantity::Got | Quantity::Why | Quantity::Idle => 1.0,
        };
        Scale { most }
    }
}

fn shown(quantity: Quantity, scale: &Scale, cpu: &CpuInterval, reason: Option<&Reason>) -> MapCell {
    let special = |glyph, word: &str| MapCell { glyph, number: word.to_owned(), tone: Tone::Faint };
    match cpu.state {
        flyball_monitor::State::Offline => return special(OFFLINE, "off"),
        // On large machines, idle times of sleeping CPUs are read in turns and may be missing.
        flyball_monitor::State::Asleep
            if quantity != Quantity::Idle || cpu.idle.last().is_none_or(Option::is_none) =>
        {
            return special(ASLEEP, "  ·");
        }
        flyball_monitor::State::Unknown => return special(UNKNOWN, "  ?"),
        _ => {}
    }
    if quantity == Quantity::Why {
        return match reason {
            Some(reason) => MapCell {
                glyph: reason.letter,
                number: format!("  {}", reason.letter),
                tone: if reason.is_throttle { Tone::Alert } else { Tone::Notice },
            },
            None => MapCell { glyph: '=', number: "  =".to_owned(), tone: Tone::Good },
        };
    }
    let value = match quantity {
        Quantity::Speed => cpu.mhz,
        Quantity::Busy => cpu.busy,
        Quantity::Got => cpu.got(),
        Quantity::Heat => cpu.celsius,
        _ => cpu.idle.last().copied().flatten(),
    };
    let Some(value) = value else { return special(UNKNOWN, "  ?") };
    let share = value / scale.most;
    let number = match quantity {
        Quantity::Speed => format!("{:.1}", value / 1000.0),
        Quantity::Heat => format!("{value:3.0}"),
        _ => format!("{:3.0}", value * 100.0),
    };
    let tone = match quantity {
        Quantity::Busy | Quantity::Idle => Tone::Plain,
        Quantity::Heat => tone(((value - 50.0) / 50.0).clamp(0.0, 1.0), false),
        // The colour scale ends at half of the request.
        _ => tone((share * 2.0 - 1.0).clamp(0.0, 1.0), true),
    };
    MapCell { glyph: bar(share), number, tone }
}

/// A line of the map: the title of a group, the title of a die, or a row of cells.
enum Row {
    Title(usize),
    Die(u32),
    Cells(Vec<usize>),
}

/// Returns the widest cells with which all CPUs fit, or the narrowest if none do. Separates dies if
/// there is room for their titles.
fn plan(layout: &Layout, groups: &[Group], width: usize, room: usize) -> (usize, Vec<Row>) {
    let die = |index: &usize| layout.cpus[*index].die;
    let rows = |cell: usize, has_dies: bool| {
        let per_line = per_line(width, cell);
        let mut rows = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            rows.push(Row::Title(at));
            let dies: Vec<&[usize]> = if has_dies {
                group.cpus.chunk_by(|one, other| die(one) == die(other)).collect()
            } else {
                vec![&group.cpus]
            };
            for cpus in &dies {
                rows.extend(cpus.first().and_then(die).filter(|_| dies.len() > 1).map(Row::Die));
                rows.extend(cpus.chunks(per_line).map(|cpus| Row::Cells(cpus.to_vec())));
            }
        }
        rows
    };
    // Four columns hold a number, two a glyph and a gap.
    for (cell, has_dies) in [(4, true), (4, false), (2, true), (2, false), (1, true)] {
        let rows = rows(cell, has_dies);
        if rows.len() <= room {
            return (cell, rows);
        }
    }
    (1, rows(1, false))
}

/// Returns the cells per line: a multiple of 8, which makes cells easy to count, unless that wastes
/// much.
fn per_line(width: usize, cell: usize) -> usize {
    let most = ((width - 2) / cell).max(1);
    if most >= 16 { most / 8 * 8 } else { most }
}

pub(crate) fn map(canvas: &mut Canvas, state: &State, scene: &Scene, moment: &Moment) -> Drawn {
    let layout = scene.layout;
    let groups: Vec<Group> = groups(layout)
        .into_iter()
        .map(|mut group| {
            // Filter the CPUs of each group, so that other CPUs move as little as possible.
            group.cpus.retain(|index| {
                let word = moment.reasons[*index].as_ref().map_or("", |reason| reason.word.as_str());
                passes(&state.filter, layout.cpus[*index].number, &format!("{} {word}", group.name))
            });
            group
        })
        .filter(|group| !group.cpus.is_empty())
        .collect();
    let order: Vec<usize> = groups.iter().flat_map(|group| group.cpus.iter().copied()).collect();
    let selected = order.get(state.selected.min(order.len().saturating_sub(1))).copied();
    // The quantity and the legend are above the map, and the selected CPU below.
    let room = canvas.height().saturating_sub(3);
    let (cell, rows) = plan(layout, &groups, canvas.width(), room);
    let scale = Scale::new(state.quantity, moment);
    canvas.text(0, 0, &legend(state.quantity, &scale), Tone::Faint);
    // The selection is a CPU. Its row depends on the width of the screen.
    let at_row = |row: &Row| matches!((row, selected), (Row::Cells(cpus), Some(cpu)) if cpus.contains(&cpu));
    let selected_row = rows.iter().position(at_row).unwrap_or(0);
    let from = super::scroll(selected_row, rows.len(), room);
    for (at, row) in rows.iter().enumerate().skip(from).take(room) {
        let y = 1 + at - from;
        match row {
            Row::Title(group) => {
                let group = &groups[*group];
                let title = format!("── {} ", group.name);
                let rule = "─".repeat(canvas.width().saturating_sub(title.chars().count() + 1));
                canvas.text(0, y, &(title + &rule), Tone::Faint);
            }
            Row::Die(number) => {
                canvas.text(1, y, &format!("die {number}"), Tone::Faint);
            }
            Row::Cells(cpus) => {
                for (x, index) in cpus.iter().enumerate() {
                    let value = shown(
                        state.quantity,
                        &scale,
                        &moment.interval.cpus[*index],
                        moment.reasons[*index].as_ref(),
                    );
                    let tone = if selected == Some(*index) { Tone::Selected } else { value.tone };
                    // Show numbers only if they fit with a gap. Glyphs look the same in less room.
                    if cell == 4 {
                        canvas.text(1 + x * cell, y, &value.number, tone);
                    } else {
                        canvas.glyph(1 + x * cell, y, value.glyph, tone);
                    }
                }
            }
        }
    }
    let last = canvas.height() - 1;
    if rows.len() > room {
        let below: usize = rows[(from + room).min(rows.len())..].iter().map(cells).sum();
        let above: usize = rows[..from].iter().map(cells).sum();
        canvas.right(last - 1, &format!("{above} CPUs above, {below} below "), Tone::Faint);
    }
    if let Some(index) = selected {
        let text =
            sentence(&layout.cpus[index], &moment.interval.cpus[index], moment.reasons[index].as_ref());
        canvas.text(0, last, &text, Tone::Plain);
    } else {
        canvas.text(0, last, "no CPU passes the filter", Tone::Notice);
    }
    Drawn {
        items: order.len(),
        line: per_line(canvas.width(), cell),
        page: per_line(canvas.width(), cell) * (room / 2).max(1),
        selected_cpu: selected.map(|index| layout.cpus[index].number),
        groups: false,
        ..Drawn::default()
    }
}

fn cells(row: &Row) -> usize {
    match row {
        Row::Title(_) | Row::Die(_) => 0,
        Row::Cells(cpus) => cpus.len(),
    }
}

/// Explains the glyphs.
fn legend(quantity: Quantity, scale: &Scale) -> String {
    let name = quantity.name();
    let bars: String = BARS.iter().collect();
    let scale = match quantity {
        Quantity::Speed => format!("{bars} to {:.1} GHz", scale.most / 1000.0),
        Quantity::Heat => format!("{bars} to 100 C"),
        Quantity::Why => "= as asked".to_owned(),
        _ => format!("{bars} to 100 %"),
    };
    format!("{name}: {scale}  {ASLEEP} asleep  {OFFLINE} offline  {UNKNOWN} not known  (m: next)")
}

/// Describes a CPU in one line, the most important first: a narrow screen cuts the end.
pub(super) fn sentence(place: &Cpu, cpu: &CpuInterval, reason: Option<&Reason>) -> String {
    let mut parts = Vec::new();
    if is_running(cpu) {
        match (cpu.mhz, wanted(cpu)) {
            (Some(_), Some(_)) => {
                parts.push(format!("got {} of {} MHz", number(cpu.mhz, 0), number(wanted(cpu), 0)));
            }
            (Some(_), None) => parts.push(format!("{} MHz", number(cpu.mhz, 0))),
            _ => {}
        }
        parts.extend(reason.map(|reason| reason.word.clone()));
        parts.push(format!("{} % busy", percent(cpu.busy)));
    } else {
        parts.push(state_word(cpu).to_owned());
    }
    parts.extend(place.core.map(|core| format!("core {core}")));
    format!("CPU {}: {}", place.number, parts.join(", "))
}
