//! Moments as text, CSV and JSON.

use flyball_monitor::{CpuInterval, Interval, Layout, alert::Event};
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
    schema,
};

/// Prints moments of one machine.
pub struct Printer {
    output: Reporter,
    form: Form,
    layout: Layout,
    has_head: bool,
}

/// A moment as JSON, on one line.
#[derive(Serialize)]
struct Line<'a> {
    /// Nanoseconds since 1970.
    time: u64,
    machine: &'a str,
    #[serde(flatten)]
    interval: &'a Interval,
    /// In the order of `cpus`.
    numbers: Vec<u32>,
    why: Vec<Option<&'a str>>,
    cost: flyball_monitor::Cost,
}

#[derive(Serialize)]
struct AlertLine<'a> {
    alert: &'a Event,
}

/// Columns of CSV. Settings have their kernel's names, as in `show` and `compare`.
const CSV: &str = "time_ns,cpu,package,core,type,state,busy_percent,mhz,scaling_min_mhz,scaling_max_mhz,\
                   energy_performance_preference,celsius,deepest_idle_percent,core_throttles,package_throttles,smi,\
                   package_watts,package_limit_watts,why\n";

fn field(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

impl Printer {
    pub fn new(output: Reporter, form: Form, layout: &Layout) -> Printer {
        Printer { output, form, layout: layout.clone(), has_head: false }
    }

    /// An alert that begins or is over: on stderr, or between the lines of JSON.
    pub fn event(&self, event: &Event) -> Result<(), Failure> {
        match self.form {
            Form::Json => self.output.json_line(schema::TOP_ALERT, &AlertLine { alert: event }),
            _ => {
                eprintln!("flyball: {event}");
                Ok(())
            }
        }
    }

    pub fn moment(&mut self, moment: &Moment) -> Result<(), Failure> {
        match self.form {
            Form::Json => {
                let why =
                    moment.reasons.iter().map(|reason| reason.as_ref().map(|reason| reason.word.as_str()));
                let line = Line {
                    time: moment.wall,
                    machine: &self.layout.machine.name,
                    interval: &moment.interval,
                    numbers: self.layout.cpus.iter().map(|cpu| cpu.number).collect(),
                    why: why.collect(),
                    cost: moment.cost,
                };
                self.output.json_line(schema::TOP, &line)
            }
            Form::Csv => {
                let head = if self.has_head { "" } else { CSV };
                self.has_head = true;
                output::raw(&(head.to_owned() + &self.csv(moment)))
            }
            _ => output::print(self.text(moment)),
        }
    }

    fn csv(&self, moment: &Moment) -> String {
        let mut out = String::new();
        for (index, (place, cpu)) in self.layout.cpus.iter().zip(&moment.interval.cpus).enumerate() {
            let package = self.layout.package_of(place).and_then(|index| moment.interval.packages.get(index));
            let number = |value: Option<u32>| value.map_or_else(String::new, |value| value.to_string());
            let count = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
            let deep = cpu.idle.last().copied().flatten();
            let fields = [
                moment.wall.to_string(),
                place.number.to_string(),
                number(place.package),
                number(place.core),
                place.core_type.map_or_else(String::new, |core_type| core_type.to_string()),
                state(cpu).to_owned(),
                field(cpu.busy.map(|busy| busy * 100.0), 2),
                field(cpu.mhz, 1),
                field(cpu.min, 0),
                field(cpu.max, 0),
                number(cpu.epp.map(u32::from)),
                field(cpu.celsius, 0),
                field(deep.map(|share| share * 100.0), 1),
                count(cpu.throttles),
                count(cpu.package_throttles),
                count(cpu.smi),
                field(package.and_then(|package| package.watts), 2),
                field(package.and_then(|package| package.limit), 1),
                moment.reasons[index].as_ref().map_or_else(String::new, |reason| quoted(&reason.word)),
            ];
            out += &fields.join(",");
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
            let line = Summary::of(&group, moment);
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
            out += &format!(
                "\n{}: CPUs {}",
                Paint::stdout().apply(Style::Heading, &reason.word),
                crate::paint::cpus(&cpus)
            );
        }
        out += &format!(
            "\n{}cost: {:.1} ms of CPU time, {} CPUs touched, {} interrupts\n",
            if moment.reasons.iter().any(Option::is_some) { "\n" } else { "" },
            moment.cost.cpu as f64 * 1e-6,
            moment.cost.touched,
            moment.cost.interrupts
        );
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

/// A text as a field of CSV (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
