//! Prints moments as text, CSV and JSON.

use flyball_monitor::{CpuInterval, Interval, Layout};
use flyball_table::{Cell, Kind};
use flyball_top::{
    Moment,
    moment::{Summary, groups},
};

use serde::Serialize;

use super::Form;
use crate::{
    exit::Failure,
    output::{self, Reporter},
    paint::{Columns, Paint, Style},
};

/// Prints moments of one machine.
pub(crate) struct Printer {
    output: Reporter,
    form: Form,
    layout: Layout,
    /// Indices in [`COLUMNS`] of the columns in CSV.
    columns: Vec<usize>,
    has_head: bool,
}

/// A moment in JSON, on one line.
#[derive(schemars::JsonSchema, Serialize)]
pub(crate) struct Line<'a> {
    /// Nanoseconds since 1970.
    time: u64,
    machine: &'a str,
    #[serde(flatten)]
    interval: &'a Interval,
    /// In the order of `cpus`.
    numbers: Vec<u32>,
    /// Names of the governors. The `governor` of a CPU is an index into this list, from 0.
    governors: &'a [String],
    why: Vec<Option<&'a str>>,
    cost: flyball_monitor::Cost,
}

/// Columns of CSV and Parquet. Time, CPU and delivered frequency are called as in
/// `trace report --parquet`, settings as the kernel calls them.
pub(super) const COLUMNS: [(&str, Kind); 22] = [
    ("time_ns", Kind::Integer),
    ("cpu", Kind::Integer),
    ("package", Kind::Integer),
    ("core", Kind::Integer),
    ("type", Kind::Text),
    ("state", Kind::Text),
    ("busy_percent", Kind::Number(2)),
    ("khz", Kind::Number(0)),
    ("scaling_min_freq", Kind::Number(0)),
    ("scaling_max_freq", Kind::Number(0)),
    ("energy_performance_preference", Kind::Text),
    ("celsius", Kind::Number(0)),
    ("deepest_idle_percent", Kind::Number(1)),
    ("wakes_per_second", Kind::Number(1)),
    ("wakes_from", Kind::Text),
    ("core_throttles", Kind::Integer),
    ("package_throttles", Kind::Integer),
    ("smi", Kind::Integer),
    ("core_watts", Kind::Number(2)),
    ("package_watts", Kind::Number(2)),
    ("package_limit_watts", Kind::Number(1)),
    ("why", Kind::Text),
];

impl Printer {
    /// `columns` are the columns of CSV. Empty for all.
    pub(crate) fn new(output: Reporter, form: Form, layout: &Layout, columns: &[String]) -> Printer {
        let place = |name: &String| COLUMNS.iter().position(|column| column.0 == name);
        let columns = match columns {
            [] => (0..COLUMNS.len()).collect(),
            some => some.iter().filter_map(place).collect(),
        };
        Printer { output, form, layout: layout.clone(), columns, has_head: false }
    }

    pub(crate) fn moment(&mut self, moment: &Moment) -> Result<(), Failure> {
        match self.form {
            Form::Json => {
                let why =
                    moment.reasons.iter().map(|reason| reason.as_ref().map(|reason| reason.word.as_str()));
                let line = Line {
                    time: moment.wall,
                    machine: &self.layout.machine.name,
                    interval: &moment.interval,
                    numbers: self.layout.cpus.iter().map(|cpu| cpu.number).collect(),
                    governors: &self.layout.machine.governors,
                    why: why.collect(),
                    cost: moment.cost,
                };
                self.output.json_line(&line)
            }
            Form::Csv => {
                let names: Vec<&str> = self.columns.iter().map(|column| COLUMNS[*column].0).collect();
                let head = if self.has_head { String::new() } else { names.join(",") + "\n" };
                self.has_head = true;
                output::raw(&(head + &self.csv(moment)))
            }
            _ => output::print(self.text(moment)),
        }
    }

    fn csv(&self, moment: &Moment) -> String {
        let mut out = String::new();
        for row in rows(&self.layout, moment) {
            for (number, &column) in self.columns.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                out += &row[column].csv(COLUMNS[column].1);
            }
            out.push('\n');
        }
        out
    }

    fn text(&self, moment: &Moment) -> String {
        let layout = &self.layout;
        let machine = &layout.machine;
        let model = machine.model_name.as_deref().unwrap_or_default();
        let mut out = format!(
            "{}: {} CPUs, {}, over {:.2} s\n\n",
            machine.name,
            layout.cpus.len(),
            if model.is_empty() { machine.driver.as_deref().unwrap_or("no cpufreq driver") } else { model },
            moment.interval.seconds
        );
        let mut table = Columns::aligned_right(1..10);
        table.heading([
            "",
            "CPUs",
            "asleep",
            "busy %",
            "want MHz",
            "got MHz",
            "least",
            "most",
            "W",
            "limit W",
            "why not more",
        ]);
        let text = |value: Option<f64>, decimals: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        for group in groups(layout) {
            let line = Summary::new(&group, moment);
            table.text_row([
                group.name.clone(),
                group.cpus.len().to_string(),
                line.asleep.to_string(),
                text(line.busy.map(|busy| busy * 100.0), 1),
                text(line.want, 0),
                text(line.got.map(|(_, median, _)| median), 0),
                text(line.got.map(|(least, _, _)| least), 0),
                text(line.got.map(|(_, _, most)| most), 0),
                text(line.watts, 1),
                line.limits(),
                line.why,
            ]);
        }
        out += &table.render(Paint::stdout());
        for (reason, cpus) in moment.held_back(layout) {
            out +=
                &format!("\n{}: CPUs {}", Paint::stdout().apply(Style::Heading, &reason.word), cpus.short());
        }
        // Reading a recording touches no CPU.
        let is_recorded = layout.machine.kind == flyball_host::Kind::Recorded;
        let cost = format!(
            "\n{}cost: {:.1} ms of CPU time, {} CPUs touched, {} interrupts\n",
            if moment.reasons.iter().any(Option::is_some) { "\n" } else { "" },
            moment.cost.cpu as f64 * 1e-6,
            moment.cost.touched,
            moment.cost.interrupts
        );
        out += if is_recorded { "\n" } else { &cost };
        for missing in &layout.missing {
            out += &format!("not read: {missing}\n");
        }
        out
    }
}

fn state(cpu: &CpuInterval) -> &'static str {
    match cpu.state {
        flyball_monitor::State::Asleep => "asleep",
        flyball_monitor::State::Running => "running",
        flyball_monitor::State::Offline => "offline",
        flyball_monitor::State::Unknown => "unknown",
    }
}

/// Returns a row per CPU, with the columns of [`COLUMNS`].
pub(super) fn rows<'a>(layout: &'a Layout, moment: &'a Moment) -> impl Iterator<Item = Vec<Cell>> + 'a {
    fn integer<T: Into<u64>>(value: Option<T>) -> Cell {
        value.map_or(Cell::Absent, |value| Cell::Integer(value.into()))
    }
    let number = |value: Option<f64>| value.map_or(Cell::Absent, Cell::Number);
    let text = |value: Option<String>| value.map_or(Cell::Absent, Cell::Text);
    layout.cpus.iter().zip(&moment.interval.cpus).enumerate().map(move |(index, (place, cpu))| {
        let package = layout.package_of(place).and_then(|index| moment.interval.packages.get(index));
        let deep = cpu.idle.last().copied().flatten();
        let waking = cpu.waking(&layout.machine);
        let khz = |mhz: Option<f64>| number(mhz.map(|mhz| mhz * 1000.0));
        vec![
            Cell::Integer(moment.wall),
            Cell::Integer(place.number.into()),
            integer(place.package),
            integer(place.core),
            text(place.core_type.map(|core_type| core_type.to_string())),
            Cell::Text(state(cpu).to_owned()),
            number(cpu.busy.map(|busy| busy * 100.0)),
            khz(cpu.mhz),
            khz(cpu.min),
            khz(cpu.max),
            text(cpu.epp.map(|epp| epp.to_string())),
            number(cpu.celsius),
            number(deep.map(|share| share * 100.0)),
            number(waking.as_ref().map(|waking| waking.wakes)),
            text(waking.and_then(|waking| waking.state).map(|(name, _)| name)),
            integer(cpu.throttles),
            integer(cpu.package_throttles),
            integer(cpu.smi),
            number(cpu.core_watts),
            number(package.and_then(|package| package.watts)),
            number(package.and_then(|package| package.limit)),
            text(moment.reasons[index].as_ref().map(|reason| reason.word.clone())),
        ]
    })
}
