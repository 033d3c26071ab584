//! The table: a row per CPU, or per group of similar CPUs.

use std::collections::BTreeMap;

use flyball_host::CpuList;
use flyball_monitor::{CpuInterval, Waking};

use super::{number, percent, scroll, state as state_word};
use crate::{
    canvas::{Canvas, Cell, Column, fitting},
    moment::{Moment, is_running, mean, spread, waking, wanted},
    palette::{Tone, tone},
    scene::{Drawn, Scene},
    state::{Column as Sorted, State, passes},
};

/// Title of the column with each CPU's wakeups per second and the idle state whose exits cost most.
const WAKES: &str = "wakes/s from";

const COLUMNS: &[Column] = &[
    Column { title: "CPUs", width: 12, rank: 0, is_number: false },
    Column { title: "n", width: 3, rank: 6, is_number: true },
    Column { title: "pkg", width: 3, rank: 7, is_number: true },
    Column { title: "type", width: 4, rank: 9, is_number: false },
    Column { title: "state", width: 7, rank: 5, is_number: false },
    Column { title: "busy %", width: 7, rank: 2, is_number: true },
    Column { title: "want", width: 5, rank: 0, is_number: true },
    Column { title: "got", width: 11, rank: 0, is_number: true },
    Column { title: "%", width: 3, rank: 3, is_number: true },
    Column { title: "C", width: 3, rank: 4, is_number: true },
    Column { title: "deep idle %", width: 11, rank: 10, is_number: true },
    Column { title: "EPP", width: 3, rank: 8, is_number: true },
    Column { title: "governor", width: 12, rank: 11, is_number: false },
    Column { title: WAKES, width: 12, rank: 12, is_number: true },
    Column { title: "why not more", width: 12, rank: 0, is_number: false },
];

/// A row: similar CPUs.
struct Line<'a> {
    cpus: Vec<usize>,
    list: CpuList,
    first: &'a CpuInterval,
    busy: Option<f64>,
    got: Option<(f64, f64, f64)>,
    share: Option<f64>,
    celsius: Option<f64>,
    deep: Option<f64>,
    wakes: String,
    why: String,
    is_throttled: bool,
}

impl<'a> Line<'a> {
    fn new(cpus: Vec<usize>, scene: &Scene, moment: &'a Moment) -> Line<'a> {
        let all = || cpus.iter().map(|index| &moment.interval.cpus[*index]);
        let reason = moment.reasons[cpus[0]].as_ref();
        Line {
            list: cpus.iter().map(|index| scene.layout.cpus[*index].number).collect(),
            // Values that all CPUs of a row share come from its first CPU.
            first: &moment.interval.cpus[cpus[0]],
            busy: mean(all().filter_map(|cpu| cpu.busy)),
            got: spread(all().filter_map(|cpu| cpu.mhz).collect()),
            share: mean(all().filter_map(CpuInterval::got)),
            celsius: all().filter_map(|cpu| cpu.celsius).reduce(f64::max),
            deep: mean(all().filter_map(|cpu| cpu.idle.last().copied().flatten())),
            wakes: waking(&scene.layout.machine, all()).map_or_else(|| "-".to_owned(), from),
            why: reason.map_or_else(|| "-".to_owned(), |reason| reason.word.clone()),
            is_throttled: reason.is_some_and(|reason| reason.is_throttle),
            cpus,
        }
    }

    fn cell(&self, scene: &Scene, column: usize) -> Cell {
        let plain = |text: String| (text, Tone::Plain);
        let place = &scene.layout.cpus[self.cpus[0]];
        match COLUMNS[column].title {
            "CPUs" => plain(short(&self.list, COLUMNS[column].width)),
            "n" => plain(self.cpus.len().to_string()),
            "pkg" => plain(place.package.map_or_else(|| "-".to_owned(), |number| number.to_string())),
            "type" => {
                plain(place.core_type.map_or_else(|| "-".to_owned(), |core_type| core_type.to_string()))
            }
            "state" => {
                let tone = if is_running(self.first) { Tone::Plain } else { Tone::Faint };
                (state_word(self.first).to_owned(), tone)
            }
            "busy %" => plain(percent(self.busy)),
            "want" => plain(number(wanted(self.first), 0)),
            "got" => {
                let text = match self.got {
                    // A spread below 100 MHz is noise.
                    Some((least, _, most)) if most - least >= 100.0 => format!("{least:.0}-{most:.0}"),
                    Some((_, median, _)) => format!("{median:.0}"),
                    None => "-".to_owned(),
                };
                (
                    text,
                    self.share.map_or(Tone::Plain, |share| tone((share * 2.0 - 1.0).clamp(0.0, 1.0), true)),
                )
            }
            "%" => plain(percent(self.share)),
            "C" => plain(number(self.celsius, 0)),
            "deep idle %" => plain(percent(self.deep)),
            "EPP" => plain(self.first.epp.map_or_else(|| "-".to_owned(), |epp| epp.to_string())),
            "governor" => {
                let governors = &scene.layout.machine.governors;
                let name = self.first.governor.and_then(|number| governors.get(number));
                plain(name.cloned().unwrap_or_else(|| "-".to_owned()))
            }
            WAKES => plain(self.wakes.clone()),
            _ => (self.why.clone(), if self.is_throttled { Tone::Alert } else { Tone::Plain }),
        }
    }

    /// Returns the number to sort by. Unknown values come last.
    fn key(&self, column: Sorted) -> f64 {
        match column {
            Sorted::Cpu => -(self.cpus[0] as f64),
            Sorted::Busy => self.busy.unwrap_or(-1.0),
            Sorted::Want => wanted(self.first).unwrap_or(-1.0),
            Sorted::Got => self.share.unwrap_or(-1.0),
            Sorted::Why => f64::from(u8::from(self.is_throttled)) + f64::from(u8::from(self.why != "-")),
            Sorted::Heat => self.celsius.unwrap_or(-1.0),
        }
    }
}

/// `1155 C3`.
fn from(waking: Waking) -> String {
    let state = waking.state.map_or_else(String::new, |(name, _)| format!(" {name}"));
    format!("{:.0}{state}", waking.wakes)
}

/// Shortens a CPU list: cut at a comma, with the mark.
fn short(list: &CpuList, width: usize) -> String {
    let text = list.to_string();
    if text.len() <= width {
        return text;
    }
    let cut = text[..width].rfind(',').map_or(width - 1, |comma| comma + 1);
    format!("{}…", &text[..cut.min(width - 1)])
}

fn title(column: Sorted) -> &'static str {
    match column {
        Sorted::Cpu => "CPUs",
        Sorted::Busy => "busy %",
        Sorted::Want => "want",
        Sorted::Got => "got",
        Sorted::Why => "why not more",
        Sorted::Heat => "C",
    }
}

/// Returns the rows. CPUs are one row if they agree in all other columns and run at about the same
/// speed.
fn lines<'a>(state: &State, scene: &Scene, moment: &'a Moment) -> Vec<Line<'a>> {
    let layout = scene.layout;
    let of = |index: usize| {
        let (place, cpu) = (&layout.cpus[index], &moment.interval.cpus[index]);
        let why = moment.reasons[index].as_ref().map_or("", |reason| reason.word.as_str());
        let governor = cpu.governor.and_then(|number| layout.machine.governors.get(number));
        let kind = place.core_type.map_or_else(String::new, |core_type| format!("{core_type}-core"));
        let governor = governor.map_or("", String::as_str);
        let package = place.package.map_or_else(String::new, |number| format!("package {number}"));
        let text = format!("{} {kind} {package} {why} {governor}", state_word(cpu));
        // Rounded to a tenth of the request: readers would call that the same speed.
        let speed = cpu.got().map(|got| (got * 10.0).round() as i64);
        let key = (text.clone(), cpu.max.map(|max| max as u64), cpu.epp, speed);
        (text, key)
    };
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let mut single = Vec::new();
    for index in 0..layout.cpus.len() {
        let (text, key) = of(index);
        if !passes(&state.filter, layout.cpus[index].number, &text) {
            continue;
        }
        if state.folded {
            groups.entry(key).or_default().push(index);
        } else {
            single.push(vec![index]);
        }
    }
    let members = if state.folded { groups.into_values().collect() } else { single };
    let mut lines: Vec<Line> = members.into_iter().map(|cpus| Line::new(cpus, scene, moment)).collect();
    // The highest value first. CPUs by number.
    lines.sort_by(|a, b| b.key(state.column).total_cmp(&a.key(state.column)).then(a.cpus[0].cmp(&b.cpus[0])));
    if state.reversed {
        lines.reverse();
    }
    lines
}

pub(crate) fn table(canvas: &mut Canvas, state: &State, scene: &Scene, moment: &Moment) -> Drawn {
    let lines = lines(state, scene, moment);
    let widest = lines.iter().map(|line| line.list.to_string().len()).max().unwrap_or(4);
    let mut columns = COLUMNS.to_vec();
    // A list gets the room that other columns leave. At least five characters for the title with
    // the mark of the order.
    columns[0].width = widest.clamp(5, (canvas.width() / 5).max(10));
    let (chosen, _) = fitting(&columns, canvas.width());
    canvas.head(0, &columns, &chosen, Some(title(state.column)));
    let room = canvas.height().saturating_sub(2).max(1);
    let selected = state.selected.min(lines.len().saturating_sub(1));
    let from = scroll(selected, lines.len(), room);
    for (at, line) in lines.iter().enumerate().skip(from).take(room) {
        let y = 1 + at - from;
        canvas.row(y, &columns, &chosen, |column| match column {
            0 => (short(&line.list, columns[0].width), Tone::Plain),
            _ => line.cell(scene, column),
        });
        if at == selected {
            canvas.select(y);
        }
    }
    let last = canvas.height() - 1;
    let count = match (lines.len(), from + room < lines.len() || from > 0) {
        (0, _) => "no CPU passes the filter".to_owned(),
        (count, true) => format!("rows {}-{} of {count}", from + 1, (from + room).min(count)),
        (1, false) => "1 row".to_owned(),
        (count, false) => format!("{count} rows"),
    };
    let fold =
        if state.folded { "equal CPUs are one row (f: a row each)" } else { "f: equal CPUs in one row" };
    canvas.text(0, last, &format!("{count}; {fold}"), Tone::Faint);
    let chosen_line = lines.get(selected);
    Drawn {
        items: lines.len(),
        line: 1,
        page: room,
        selected_cpu: chosen_line.map(|line| scene.layout.cpus[line.cpus[0]].number),
        groups: chosen_line.is_some_and(|line| line.cpus.len() > 1),
        wakes: chosen.iter().any(|column| COLUMNS[*column].title == WAKES),
        ..Drawn::default()
    }
}
