//! The whole machine on one screen.

use std::collections::BTreeMap;

use flyball_control::{At, CoreType, Id, Outcome, Request, Row, Snapshot, TABLE, Value, knob::Section};
use flyball_host::{CpuList, Host, KiloHertz, Kind};

use super::{facts::Facts, lines, reason};
use flyball_text::wrap;

use crate::paint::{Cell, Columns, Paint, Style, cpus_within, one_line, terminal_columns};

const WIDTH: usize = 110;

fn width() -> usize {
    terminal_columns().map_or(WIDTH, |columns| columns.clamp(60, WIDTH))
}

/// Reads what the screen shows besides its rows: the dies of uncore domains, and the latencies of
/// idle states, from one CPU for all.
pub(super) fn take(host: &dyn Host, snapshot: &mut Snapshot) {
    // Not CPU 0, which may be offline.
    let first: CpuList = snapshot.topology().online.first().into_iter().collect();
    let knobs = &[Id::IdleLatency, Id::IdleResidency];
    snapshot.take(host, &Request { knobs, cpus: Some(&first), ..Request::default() });
    snapshot.take(host, &Request { knobs: &[Id::UncoreDomain, Id::UncoreAgents], ..Request::default() });
}

/// Returns the screen. `all` includes what is only shown on request.
pub(super) fn render(
    facts: &Facts,
    rows: &[Row],
    snapshot: &Snapshot,
    (all, paint): (bool, Paint),
) -> String {
    let screen = Screen { facts, rows, snapshot, all, paint };
    let mut out = screen.head();
    for section in [
        screen.settings(),
        screen.classes(),
        screen.levels(),
        screen.idle(),
        screen.uncore(),
        screen.power(),
        screen.heat(),
        screen.rest(),
        screen.absent(),
    ] {
        if !section.is_empty() {
            out.push('\n');
            out.push_str(&section);
        }
    }
    out
}

pub(super) struct Screen<'a> {
    facts: &'a Facts,
    pub(super) rows: &'a [Row],
    pub(super) snapshot: &'a Snapshot,
    all: bool,
    pub(super) paint: Paint,
}

/// Returns the knobs of a section, in the table's order.
fn section(section: Section) -> Vec<Id> {
    TABLE.iter().filter(|knob| knob.shown.section == section).map(|knob| knob.id).collect()
}

/// Formats a frequency as `3.9`, in GHz with up to three decimals: 2.001 is not 2.0.
fn ghz(frequency: KiloHertz) -> String {
    let text = format!("{:.3}", frequency.0 as f64 / 1e6);
    let short = text.trim_end_matches('0');
    // `4.0`, not `4.` or `4`, so that columns of frequencies are aligned.
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

pub(super) fn range(low: Option<KiloHertz>, high: Option<KiloHertz>) -> String {
    match (low, high) {
        (Some(low), Some(high)) if ghz(low) == ghz(high) => ghz(low),
        (Some(low), Some(high)) => format!("{}-{}", ghz(low), ghz(high)),
        (Some(one), None) | (None, Some(one)) => ghz(one),
        (None, None) => String::new(),
    }
}

/// CPUs with equal values in some rows.
struct Class {
    cpus: CpuList,
    kind: Option<CoreType>,
    online: bool,
    /// For each requested knob, the index of the row with the value.
    rows: Vec<Option<usize>>,
}

impl Screen<'_> {
    fn rows(&self, knob: Id) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.knob == knob)
    }

    fn value(&self, knob: Id) -> Option<&Value> {
        self.rows(knob).find_map(|row| row.outcome.value())
    }

    fn head(&self) -> String {
        let facts = self.facts;
        let unknown = match facts.vendor {
            flyball_control::Vendor::Other => "Unknown processor".to_owned(),
            vendor => format!("{vendor} processor"),
        };
        let name = facts.model_name.as_deref().unwrap_or(&unknown);
        let mut line = vec![self.paint.apply(Style::Heading, name)];
        // The model name of engineering samples is "Genuine Intel(R) 0000" or similar (CPUID leaf
        // 0x80000002).
        let says_nothing = facts.model_name.is_none() || name.contains("Genuine") || name.contains("0000");
        if let Some((family, model, stepping)) = facts.signature.filter(|_| says_nothing) {
            line.push(format!("family {family}, model {model:#x}, stepping {stepping}"));
        }
        let count = |number: usize, one: &str, many: &str| match number {
            0 => None,
            1 => Some(format!("1 {one}")),
            more => Some(format!("{more} {many}")),
        };
        line.extend(count(facts.packages.len(), "package", "packages"));
        // Usually, there is one die per package, which is not worth a mention.
        if facts.dies > facts.packages.len() {
            line.extend(count(facts.dies, "die", "dies"));
        }
        line.extend(count(facts.cores, "core", "cores"));
        line.extend(count(facts.present.len(), "CPU", "CPUs"));
        if facts.nodes.len() > 1 {
            line.extend(count(facts.nodes.len(), "node", "nodes"));
            // A firmware setting (SNC, NPS) that decides which memory is near.
            line.extend(facts.nodes_per_package.map(|nodes| format!("{nodes} nodes per package")));
        }
        let mut out = one_line(line.join(", ")) + "\n";
        let mut second = Vec::new();
        second.extend(facts.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
        second.extend(
            facts.microcode.as_ref().filter(|_| self.all).map(|revision| format!("microcode {revision}")),
        );
        second.push(match facts.kind {
            Kind::Live => match &facts.emulated {
                Some(what) => format!("this machine, which is emulated ({what})"),
                None => "this machine".to_owned(),
            },
            // Print both: a model's numbers must not be mistaken for a server's.
            Kind::Recorded if facts.simulated => format!("simulated, recorded in {}", facts.name),
            Kind::Recorded => format!("recorded in {}", facts.name),
            Kind::Simulated => format!("simulated: {}", facts.name),
        });
        match (facts.policies, facts.policy_size) {
            (0, _) => {}
            (_, 0 | 1) => second.push("one policy per CPU".to_owned()),
            (1, _) => second.push("one policy for all CPUs".to_owned()),
            (policies, size) => second.push(format!("{policies} policies of up to {size} CPUs")),
        }
        out += &self.paint.apply(Style::Faint, &one_line(second.join(", ")));
        out.push('\n');
        let mut places = Vec::new();
        let differ = |groups: usize| groups > 1;
        if differ(facts.packages.len()) {
            places.extend(facts.packages.iter().map(|(number, cpus)| (format!("package {number}"), cpus)));
        }
        places.extend(facts.core_types.iter().map(|(kind, cpus)| (format!("{kind} cores"), cpus)));
        places.extend(facts.caches.iter().enumerate().map(|(number, cache)| {
            let size = cache.kib.map_or_else(|| "L3".to_owned(), |kib| format!("{} MiB L3", kib / 1024));
            (format!("ccd {number} ({size})"), &cache.cpus)
        }));
        if !facts.offline.is_empty() {
            places.push(("offline".to_owned(), &facts.offline));
        }
        if !places.is_empty() {
            let mut text: Vec<String> =
                places.iter().map(|(name, cpus)| format!("{name}: {}", cpus_within(cpus, 36))).collect();
            text.extend(facts.core_type_evidence.map(|evidence| format!("kinds of cores by {evidence}")));
            for line in wrap(&text.join("; "), width()) {
                out += &self.paint.apply(Style::Faint, &line);
                out.push('\n');
            }
        }
        out
    }

    /// Machine-wide values, three to a line.
    fn settings(&self) -> String {
        let wide = |row: &&Row| {
            row.knob.knob().shown.section == Section::Machine && !matches!(row.outcome, Outcome::Absent(_))
        };
        let mut rows: Vec<&Row> = self.rows.iter().filter(wide).collect();
        // The driver, which sets the frequency, comes first, although it is late in the table.
        rows.sort_by_key(|row| row.knob != Id::Driver);
        let is_list = |row: &&Row| matches!(row.outcome.value(), Some(Value::Words(_) | Value::Fields(_)));
        let (long, short): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(is_list);
        let pair = |row: &Row| (row.knob.to_string(), lines::value(row));
        let (long, short) = (long.into_iter().map(pair), short.into_iter().map(pair).collect::<Vec<_>>());
        let mut columns = Columns::new();
        // Fill columns first, not lines, so that related knobs of the table stay together.
        let height = short.len().div_ceil(3);
        let name = |text: &str| Cell::styled(Style::Heading, text);
        for line in 0..height {
            let mut row = Vec::new();
            for column in 0..3 {
                if let Some((knob, value)) = short.get(column * height + line) {
                    row.extend([name(knob), value.clone()]);
                }
            }
            columns.row(row);
        }
        let mut out = columns.render(self.paint);
        let mut columns = Columns::new();
        for (knob, value) in long {
            columns.row(vec![name(&knob), value]);
        }
        out += &columns.render(self.paint);
        out
    }

    /// Groups the CPUs by their values of `knobs`.
    fn group(&self, knobs: &[Id]) -> Vec<Class> {
        // A table by CPU number, so that the work is one step per row and CPU on machines with
        // hundreds of both.
        let size = self.snapshot.topology().present.iter().last().map_or(0, |last| last as usize + 1);
        let mut where_from: Vec<Vec<Option<usize>>> = vec![vec![None; knobs.len()]; size];
        for (index, row) in self.rows.iter().enumerate() {
            let Some(column) = knobs.iter().position(|knob| *knob == row.knob) else { continue };
            // A knob that is absent everywhere is no difference, and is reported below.
            if row.places == 0
                || matches!(row.outcome, Outcome::Absent(ref why) if *why != flyball_control::Why::Offline)
            {
                continue;
            }
            for cpu in row.cpus.iter() {
                if let Some(rows) = where_from.get_mut(cpu as usize) {
                    rows[column] = Some(index);
                }
            }
        }
        let mut classes: Vec<Class> = Vec::new();
        type Key = (Option<CoreType>, bool, Vec<Option<usize>>);
        let mut index: BTreeMap<Key, usize> = BTreeMap::new();
        for (number, cpu) in &self.snapshot.topology().cpus {
            let Some(rows) = where_from.get(*number as usize) else { continue };
            if rows.iter().all(Option::is_none) {
                continue;
            }
            // Compare rows instead of values: the survey puts equal values of many CPUs into one
            // row.
            let key = (cpu.core_type, cpu.online, rows.clone());
            let at = *index.entry(key).or_insert_with(|| {
                classes.push(Class {
                    cpus: CpuList::new(),
                    kind: cpu.core_type,
                    online: cpu.online,
                    rows: rows.clone(),
                });
                classes.len() - 1
            });
            classes[at].cpus.insert(*number);
        }
        classes
    }

    fn text(&self, class: &Class, column: usize) -> Cell {
        match class.rows[column] {
            Some(row) => lines::value(&self.rows[row]),
            None => Cell::from(""),
        }
    }

    fn frequency(&self, class: &Class, column: usize) -> Option<KiloHertz> {
        self.rows[class.rows[column]?].outcome.value()?.frequency()
    }

    /// Returns the settings of CPUs, with equal CPUs in one row.
    fn classes(&self) -> String {
        let knobs = section(Section::Cpus);
        let classes = self.group(&knobs);
        if self.facts.policies == 0 && classes.iter().all(|class| class.rows.iter().all(Option::is_none)) {
            return String::new();
        }
        let at = |knob: Id| knobs.iter().position(|other| *other == knob).unwrap_or(0);
        let mut columns = Columns::new();
        columns.heading([
            "CPUs",
            "type",
            "governor",
            "epp",
            "epb",
            "min-max GHz",
            "hardware",
            "base",
            "nominal",
            "boost",
            "latency",
            "setspeed",
            "now",
        ]);
        for class in &classes {
            let mut row = vec![
                Cell::from(cpus_within(&class.cpus, if width() < 100 { 16 } else { 26 })),
                Cell::from(class.kind.map(|kind| kind.to_string()).unwrap_or_default()),
            ];
            // sysfs removes the cpufreq directory of an offline CPU, so there is nothing else to
            // show.
            if !class.online {
                row.push(Cell::styled(Style::Notice, "offline"));
                columns.row(row);
                continue;
            }
            let one = |knob: Id| range(self.frequency(class, at(knob)), None);
            let both =
                |low: Id, high: Id| range(self.frequency(class, at(low)), self.frequency(class, at(high)));
            row.extend([
                self.text(class, at(Id::Governor)),
                self.text(class, at(Id::Epp)),
                self.text(class, at(Id::Epb)),
                both(Id::MinFreq, Id::MaxFreq).into(),
                both(Id::HwMinFreq, Id::HwMaxFreq).into(),
                one(Id::BaseFreq).into(),
                one(Id::NominalFreq).into(),
                self.text(class, at(Id::Boost)),
                match self.text(class, at(Id::LatencyLimit)) {
                    // Blank the usual value. The column is dropped if no CPU has another value.
                    cell if cell.text() == "no-limit" => Cell::from(""),
                    cell => cell,
                },
                one(Id::Setspeed).into(),
                self.now(&class.cpus).into(),
            ]);
            columns.row(row);
        }
        columns.drop_empty();
        // Only the column of CPUs is left, so nothing is known about them.
        if columns.width() < 2 {
            String::new()
        } else {
            columns.render_within(self.paint, terminal_columns())
        }
    }

    /// The range of current frequencies on `cpus`.
    fn now(&self, cpus: &CpuList) -> String {
        let (mut low, mut high): (Option<KiloHertz>, Option<KiloHertz>) = (None, None);
        for row in self.rows(Id::CurFreq) {
            let Some(frequency) = row.outcome.value().and_then(Value::frequency) else { continue };
            if row.cpus.iter().any(|cpu| cpus.contains(cpu)) {
                low = Some(low.map_or(frequency, |low| low.min(frequency)));
                high = Some(high.map_or(frequency, |high| high.max(frequency)));
            }
        }
        range(low, high)
    }

    /// The firmware's performance levels.
    fn levels(&self) -> String {
        let knobs = section(Section::Levels);
        let mut classes = self.group(&knobs);
        // Offline CPUs are in the table above. Here, their rows would be empty.
        classes.retain(|class| class.online);
        if classes.is_empty() {
            return String::new();
        }
        let mut columns = Columns::new();
        columns.heading(["CPPC levels", "type", "highest", "nominal", "nonlinear GHz", "rank"]);
        for class in &classes {
            let mut row = vec![
                Cell::from(cpus_within(&class.cpus, 40)),
                Cell::from(class.kind.map(|kind| kind.to_string()).unwrap_or_default()),
            ];
            let at = |knob: Id| knobs.iter().position(|other| *other == knob).unwrap_or(0);
            row.extend([
                self.text(class, at(Id::CppcHighest)),
                self.text(class, at(Id::CppcNominal)),
                range(self.frequency(class, at(Id::LowestNonlinearFreq)), None).into(),
                self.text(class, at(Id::PrefcoreRanking)),
            ]);
            columns.row(row);
        }
        columns.drop_empty();
        columns.render(self.paint)
    }

    /// Returns the idle states, and on which CPUs they may be used.
    fn idle(&self) -> String {
        let names = self.snapshot.idle_states();
        let Some(cpu) = self.snapshot.topology().online.first() else { return String::new() };
        if names.is_empty() || self.rows(Id::IdleState).next().is_none() {
            return String::new();
        }
        let mut columns = Columns::new();
        columns.heading(["idle state", "wakes within", "pays after", "on", "off"]);
        for (state, name) in names.iter().enumerate() {
            let at = At::IdleState { cpu, state: state as u32 };
            let place = flyball_control::Place::named(at, name.as_str(), CpuList::from_iter([cpu]));
            let time = |knob: Id| match self.snapshot.value(knob, &place) {
                Ok(Some(value)) => value.to_string(),
                _ => String::new(),
            };
            let on = |wanted: bool| {
                let mut cpus = CpuList::new();
                for row in self.rows(Id::IdleState).filter(|row| row.name == *name) {
                    if row.outcome.value().and_then(Value::switch) == Some(wanted) {
                        cpus.extend(row.cpus.iter());
                    }
                }
                if cpus.is_empty() { String::new() } else { cpus_within(&cpus, 32) }
            };
            columns.row(vec![
                name.as_str().into(),
                time(Id::IdleLatency).into(),
                time(Id::IdleResidency).into(),
                on(true).into(),
                Cell::styled(Style::Notice, on(false)),
            ]);
        }
        columns.drop_empty();
        columns.render(self.paint)
    }

    /// Returns power limits and energy counters.
    fn power(&self) -> String {
        let rows = [Id::PowerLimit, Id::PowerWindow, Id::Energy]
            .map(|knob| self.rows(knob).filter(|row| !row.name.is_empty()).collect::<Vec<_>>());
        let [limits, windows, energies] = &rows;
        if limits.is_empty() && energies.is_empty() {
            return String::new();
        }
        let mut columns = Columns::new();
        columns.heading(["power and energy", "CPUs", "limit", "over", "energy counter"]);
        for row in limits {
            let window = windows.iter().find(|other| other.name == row.name);
            columns.row(vec![
                row.name.as_str().into(),
                cpus_within(&row.cpus, 26).into(),
                lines::value(row),
                window.map_or(Cell::from(""), |row| match row.outcome.value() {
                    // Windows are powers of two of the hardware's clock, so 0.999424 s means one
                    // second.
                    Some(Value::Time(time)) if time.0 >= 100_000 => {
                        format!("{} s", (time.0 as f64 / 1e4).round() / 1e2).into()
                    }
                    Some(Value::Time(time)) => format!("{} ms", (time.0 as f64 / 10.0).round() / 1e2).into(),
                    _ => lines::value(row),
                }),
            ]);
        }
        for row in energies {
            let used = match row.outcome.value() {
                Some(Value::Energy(energy)) => format!("{:.0} J", energy.0 as f64 / 1e6).into(),
                _ => lines::value(row),
            };
            columns.row(vec![
                row.name.as_str().into(),
                cpus_within(&row.cpus, 26).into(),
                "".into(),
                "".into(),
                used,
            ]);
        }
        columns.drop_empty();
        columns.render(self.paint)
    }

    /// Temperatures and throttling, in two lines.
    fn heat(&self) -> String {
        let mut columns = Columns::new();
        let mut sensors: Vec<(&str, f64)> = Vec::new();
        for row in self.rows(Id::Temperature) {
            if let Some(Value::Temperature(temperature)) = row.outcome.value() {
                sensors.push((&row.name, temperature.0));
            }
        }
        // The labels of coretemp (drivers/hwmon/coretemp.c): one sensor per core, of which the
        // hottest is enough.
        let core = |name: &str| name.contains(" Core ");
        let hottest = sensors.iter().filter(|(name, _)| core(name)).max_by(|a, b| a.1.total_cmp(&b.1));
        let mut parts: Vec<String> = sensors
            .iter()
            .filter(|(name, _)| !core(name))
            .map(|(name, degrees)| format!("{name} {degrees:.0} C"))
            .collect();
        parts.extend(hottest.map(|(name, degrees)| format!("hottest: {name} {degrees:.0} C")));
        for (index, line) in wrap(&parts.join(", "), width() - 20).into_iter().enumerate() {
            if !line.is_empty() {
                let name = if index == 0 { "temperature" } else { "" };
                columns.row(vec![Cell::styled(Style::Heading, name), line.into()]);
            }
        }
        for knob in [Id::CoreThrottles, Id::PackageThrottles] {
            let counts: Vec<(u64, &CpuList)> = self
                .rows(knob)
                .filter_map(|row| match row.outcome.value() {
                    Some(Value::Count(count)) => Some((*count, &row.cpus)),
                    _ => None,
                })
                .collect();
            // The maximum, not the sum, because each CPU of a package counts the package's events.
            let Some((most, cpus)) = counts.iter().max_by_key(|(count, _)| *count) else { continue };
            let cell = if *most == 0 {
                Cell::from("0 since boot")
            } else {
                Cell::styled(
                    Style::Notice,
                    format!("up to {most} since boot (CPUs {})", cpus_within(cpus, 40)),
                )
            };
            columns.row(vec![Cell::styled(Style::Heading, knob.to_string()), cell]);
        }
        columns.render(self.paint)
    }

    /// Returns rows that are in no table above.
    fn rest(&self) -> String {
        let taken = |knob: Id| {
            knob.knob().shown.section != Section::Line
                // The table of CPUs already shows it.
                || (knob == Id::Online && self.facts.offline.is_empty())
        };
        let rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| !taken(row.knob) && !matches!(row.outcome, Outcome::Absent(_)))
            .collect();
        let mut columns = Columns::new();
        let mut last = String::new();
        for row in rows {
            let name = lines::name(row);
            let shown = if name == last { String::new() } else { name.clone() };
            last = name;
            let value = match row.outcome.value() {
                Some(value) if row.knob == Id::Trl => {
                    ratios(&value.to_string()).map_or(lines::value(row), Cell::from)
                }
                _ => lines::value(row),
            };
            // A value for the whole machine needs no list of CPUs.
            let cpus = if row.cpus == self.snapshot.topology().online {
                String::new()
            } else {
                format!("CPUs {}", cpus_within(&row.cpus, 40))
            };
            columns.row(vec![Cell::styled(Style::Heading, shown), value, cpus.into()]);
        }
        columns.render(self.paint)
    }

    /// Lists what the machine lacks by reason with --all. Otherwise, only counts it.
    fn absent(&self) -> String {
        let mut reasons: Vec<(String, Vec<Id>)> = Vec::new();
        for row in self.rows {
            let Outcome::Absent(why) = &row.outcome else { continue };
            // Present in other locations: the tables show where.
            if *why == flyball_control::Why::Offline || self.value(row.knob).is_some() {
                continue;
            }
            let reason = reason(why);
            match reasons.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, knobs)) if knobs.contains(&row.knob) => {}
                Some((_, knobs)) => knobs.push(row.knob),
                None => reasons.push((reason, vec![row.knob])),
            }
        }
        if reasons.is_empty() {
            return String::new();
        }
        let mut out = self.paint.apply(Style::Heading, "absent");
        if !self.all {
            let count = reasons.iter().map(|(_, knobs)| knobs.len()).sum::<usize>();
            let rows = if count == 1 { "1 setting or fact" } else { &format!("{count} settings and facts") };
            return out
                + &self.paint.apply(Style::Faint, &format!("  {rows} (flyball show --all says why)\n"));
        }
        out.push('\n');
        for (reason, knobs) in reasons {
            let mut names: Vec<String> = knobs.iter().map(ToString::to_string).collect();
            // Each AMD processor lacks the same 22 knobs of Intel. Three examples are enough.
            if reason.ends_with("processors only") && names.len() > 4 {
                let more = names.split_off(3).len();
                if let Some(last) = names.last_mut() {
                    *last = format!("{last} and {more} more");
                }
            }
            for (index, line) in
                wrap(&format!("{reason}: {}", names.join(", ")), width() - 4).iter().enumerate()
            {
                let indent = if index == 0 { "  " } else { "    " };
                out += &self.paint.apply(Style::Faint, &format!("{indent}{line}"));
                out.push('\n');
            }
        }
        out
    }
}

/// Formats turbo ratio limits, a byte of 100 MHz each from the lowest: `3.2, 7 x 3.1 GHz`.
fn ratios(value: &str) -> Option<String> {
    let bytes = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?.to_le_bytes();
    let runs: Vec<String> = bytes
        .chunk_by(|a, b| a == b)
        .map(|run| match (f64::from(run[0]) / 10.0, run.len()) {
            (ghz, 1) => format!("{ghz:.1}"),
            (ghz, count) => format!("{count} x {ghz:.1}"),
        })
        .collect();
    (bytes[0] > 0).then(|| format!("{} GHz", runs.join(", ")))
}
