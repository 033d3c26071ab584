//! Settings as counts of CPUs by value, and numbers as their minimum and maximum. Settings that the
//! sampler reads at each scrape come from its sample. The others, thousands of files on a large
//! machine, are read in turn.

use std::{collections::BTreeMap, time::Duration};

use flyball_control::{Form, Id, KnobFile, Scope, Snapshot};
use flyball_host::Host;
use flyball_monitor::{KeptAttribute, Layout, Machine, Preference, Quantity, Sample, Sampler};

use super::speed::Groups;
use crate::{
    Exposition,
    catalogue::{self as names, Family},
};

/// Knobs whose files are read in turn.
const IN_TURN: &[Id] = &[
    Id::Turbo,
    Id::MaxPerfPct,
    Id::MinPerfPct,
    Id::Boost,
    Id::Epb,
    Id::IdleState,
    Id::UncoreMinFreq,
    Id::UncoreMaxFreq,
];
/// Knobs of each sample whose values are counted.
const COUNTED: &[(Id, Form)] =
    &[(Id::Online, Form::Switch), (Id::Governor, Form::Word), (Id::Epp, Form::Epp)];
/// Knobs of each sample whose least and greatest values are exported.
const RANGES: &[(Id, Quantity)] = &[(Id::MinFreq, Quantity::RequestMin), (Id::MaxFreq, Quantity::RequestMax)];

/// Returns the exported knobs that have files. The machine may lack some of them.
pub fn covered() -> impl Iterator<Item = Id> {
    let counted = COUNTED.iter().map(|(knob, _)| *knob);
    IN_TURN.iter().copied().chain(counted).chain(RANGES.iter().map(|(knob, _)| *knob))
}

/// Time in which every file is read once.
const TURN: Duration = Duration::from_secs(60);

/// A file that is read in turn.
struct Item {
    knob: usize,
    /// An index into the layout's packages; `None` for the whole machine.
    package: Option<usize>,
    /// Number of CPUs that the file applies to.
    cpus: u64,
    /// Index of the CPU that the kernel interrupts to read the file.
    read_on: Option<usize>,
    file: KeptAttribute,
    value: Option<u64>,
}

/// The settings of a machine.
pub(super) struct Settings {
    /// Knob names, and how their files spell values.
    knobs: Vec<(String, Form)>,
    items: Vec<Item>,
    next: usize,
    looked: Option<u64>,
    buffer: Vec<u8>,
}

impl Settings {
    /// Finds the files of the table's knobs. The files change with the driver's mode, after which
    /// the exporter is best restarted.
    pub(super) fn open(host: &dyn Host, layout: &Layout) -> Settings {
        let mut settings =
            Settings { knobs: Vec::new(), items: Vec::new(), next: 0, looked: None, buffer: Vec::new() };
        let mut snapshot = Snapshot::empty(host.name(), host.kind(), layout.topology());
        for &knob in IN_TURN {
            for file in snapshot.files(host, knob) {
                settings.add(layout, knob, file);
            }
        }
        settings
    }

    fn add(&mut self, layout: &Layout, knob: Id, file: KnobFile) {
        let KnobFile { place, path, form } = file;
        let row = knob.knob();
        let members: Vec<usize> = place
            .cpus
            .iter()
            .filter_map(|cpu| layout.index_of(cpu))
            .filter(|index| layout.cpus[*index].package.is_some())
            .collect();
        // The package of an offline CPU is not known.
        let Some(&first) = members.first() else { return };
        let package = match row.scope {
            Scope::Machine => None,
            _ => layout.package_of(&layout.cpus[first]),
        };
        let name = match row.scope {
            Scope::IdleState => format!("{}:{}", row.name, place.name),
            _ => row.name.to_owned(),
        };
        let known = self.knobs.iter().position(|known| known.0 == name);
        let knob_index = known.unwrap_or_else(|| {
            self.knobs.push((name, form));
            self.knobs.len() - 1
        });
        self.items.push(Item {
            knob: knob_index,
            package,
            cpus: members.len() as u64,
            // energy_perf_bias_show() in arch/x86/kernel/cpu/intel_epb.c: rdmsrl_on_cpu().
            read_on: (knob == Id::Epb).then_some(first),
            file: KeptAttribute::new(path),
            value: None,
        });
    }

    /// Reads the files whose turn it is: all at first, then in proportion to the time since the
    /// last call. A file that needs an interrupt of a CPU is only read if `may_interrupt` returns
    /// true for that CPU's index.
    pub(super) fn look(&mut self, host: &dyn Host, at: u64, may_interrupt: impl Fn(usize) -> bool) {
        let all = self.items.len();
        // In proportion to the time, so that frequent scrapes read little each, and rare scrapes
        // are not minutes behind.
        let count = match self.looked.replace(at) {
            None => all,
            Some(before) => {
                let share = at.saturating_sub(before) as f64 / TURN.as_nanos() as f64;
                ((all as f64 * share).ceil() as usize).min(all)
            }
        };
        for _ in 0..count {
            let item = &mut self.items[self.next % all];
            self.next = (self.next + 1) % all;
            if item.read_on.is_some_and(|index| !may_interrupt(index)) {
                continue;
            }
            item.value = item.file.number(host, &mut self.buffer);
            if item.value.is_none() {
                // The CPU is offline. When it comes back, its file is a new one.
                item.file.reopen();
            }
        }
    }

    pub(super) fn write(
        &self,
        out: &mut Exposition,
        sampler: &Sampler<'_>,
        to: &Sample,
        groups: &Groups,
        most_values: usize,
    ) {
        let packages = groups.packages.len();
        let of_sample = COUNTED.iter().map(|(knob, form)| (knob.knob().name, *form));
        let knobs = self.knobs.iter().map(|(name, form)| (name.as_str(), *form));
        let mut counts: Vec<Counts<'_>> = knobs
            .chain(of_sample)
            .map(|(knob, form)| Counts { knob, form, values: vec![Vec::new(); packages] })
            .collect();
        let mut ranges = Ranges::new();
        for (index, package) in groups.package_of.iter().enumerate() {
            let Some(package) = *package else { continue };
            let get = |quantity| sampler.places().get(to, quantity, index);
            // A CPU without a known state counts as offline.
            let online = u64::from(get(Quantity::Online) == Some(1));
            let values = [Some(online), get(Quantity::Governor), get(Quantity::Epp)];
            for (counts, value) in counts[self.knobs.len()..].iter_mut().zip(values) {
                counts.add(package, value, 1);
            }
            for (knob, quantity) in RANGES {
                if let Some(khz) = get(*quantity) {
                    widen(&mut ranges, knob.knob().name, Some(package), true, khz as f64 * 1e3);
                }
            }
        }
        let layout = sampler.layout();
        for item in &self.items {
            let Some(value) = item.value else { continue };
            match (&self.knobs[item.knob], item.package) {
                ((knob, Form::KHz), package) => {
                    widen(&mut ranges, knob, package, true, value as f64 * 1e3);
                }
                ((knob, Form::Percent), package) => {
                    widen(&mut ranges, knob, package, false, value as f64 / 100.0);
                }
                (_, Some(package)) => counts[item.knob].add(package, Some(value), item.cpus),
                (_, None) => {
                    for (package, of) in layout.packages.iter().enumerate() {
                        counts[item.knob].add(package, Some(value), of.cpus.iter().count() as u64);
                    }
                }
            }
        }
        counts.sort_by_key(|counts| counts.knob);
        for counts in counts {
            for (package, values) in groups.packages.iter().zip(counts.values) {
                let mut values: Vec<(String, u64)> = values
                    .into_iter()
                    .filter_map(|(value, cpus)| Some((spelled(counts.form, value, &layout.machine)?, cpus)))
                    .collect();
                values.sort_unstable();
                write_counts(out, counts.knob, package, values, most_values);
            }
        }
        write_ranges(out, names::SETTING_RATIO, &ranges, groups);
        write_ranges(out, names::SETTING_HERTZ, &ranges, groups);
    }
}

/// Number of CPUs by value of a knob. Values are kept as numbers, because words for thousands of
/// files would cost more than reading the files.
struct Counts<'a> {
    knob: &'a str,
    form: Form,
    /// Values by package, each with the number of its CPUs.
    values: Vec<Vec<(u64, u64)>>,
}

impl Counts<'_> {
    fn add(&mut self, package: usize, value: Option<u64>, cpus: u64) {
        let Some(value) = value else { return };
        let values = &mut self.values[package];
        // A linear search: mostly all CPUs have the same value.
        match values.iter_mut().find(|known| known.0 == value) {
            Some(known) => known.1 += cpus,
            None => values.push((value, cpus)),
        }
    }
}

type Ranges<'a> = BTreeMap<(&'a str, Option<usize>), (bool, f64, f64)>;

fn widen<'a>(ranges: &mut Ranges<'a>, knob: &'a str, package: Option<usize>, is_hertz: bool, value: f64) {
    let range = ranges.entry((knob, package)).or_insert((is_hertz, value, value));
    (range.1, range.2) = (range.1.min(value), range.2.max(value));
}

/// Writes the most common values by name, and all other CPUs together: raw preferences alone have
/// 256 values.
fn write_counts(
    out: &mut Exposition,
    knob: &str,
    package: &str,
    mut values: Vec<(String, u64)>,
    most: usize,
) {
    if values.len() > most {
        // The sort is stable, so values with the same count are sorted by name. Otherwise a series
        // could come and go between scrapes.
        values.sort_by_key(|(_, cpus)| std::cmp::Reverse(*cpus));
        let others = values.split_off(most.saturating_sub(1)).iter().map(|(_, cpus)| cpus).sum();
        values.push(("other".to_owned(), others));
    }
    for (value, cpus) in values {
        out.add(names::CPUS, &[("knob", knob), ("value", &value), ("package", package)], cpus as f64);
    }
}

fn write_ranges(out: &mut Exposition, family: &'static Family, ranges: &Ranges<'_>, groups: &Groups) {
    for ((knob, package), (is_hertz, min, max)) in ranges {
        if *is_hertz != (family.unit == "hertz") {
            continue;
        }
        let package = package.map_or("", |package| groups.packages[package].as_str());
        for (stat, value) in [("min", *min), ("max", *max)] {
            out.add(family, &[("knob", knob), ("package", package), ("stat", stat)], value);
        }
    }
}

/// Returns the value as a user would type it; `None` for a governor that appeared after the start.
fn spelled(form: Form, value: u64, machine: &Machine) -> Option<String> {
    let text = match (form, value) {
        (Form::Switch, 0) | (Form::InvertedSwitch, 1..) => "off",
        (Form::Switch, _) | (Form::InvertedSwitch, 0) => "on",
        (Form::Word, number) => machine.governors.get(number as usize)?,
        (Form::Epp, value) => {
            return Some(Preference::from_code(value)?.to_string());
        }
        (_, value) => return Some(value.to_string()),
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn rare_values_are_counted_together() {
        let mut out = Exposition::new(Format::Text, 0);
        let values = (0..20).map(|value| (value.to_string(), 100 - value)).collect();
        write_counts(&mut out, "epp", "0", values, 4);
        let text = out.finish();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 4, "{text}");
        let others: u64 = (3..20).map(|value| 100 - value).sum();
        assert!(text.contains(&format!("value=\"other\",package=\"0\"}} {others}\n")), "{text}");
    }
}
