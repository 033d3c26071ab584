//! Frequencies and load: minimum, median and maximum per package and core type, or per CPU.

use flyball_monitor::{CpuInterval, Interval, Layout};

use crate::{
    Exposition,
    catalogue::{self as names, Family},
};

struct Group {
    package: String,
    core_type: String,
    /// Layout indices of the CPUs.
    cpus: Vec<usize>,
}

/// The groups of a machine, and each CPU's package.
pub(super) struct Groups {
    of_types: Vec<Group>,
    /// Index into [`Groups::packages`], by layout index of the CPU.
    pub(super) package_of: Vec<Option<usize>>,
    pub(super) packages: Vec<String>,
}

/// Only CPUs busier than this show what they are given. On less busy CPUs, waking up takes a
/// noticeable share.
const BUSY: f64 = 0.5;

impl Groups {
    pub(super) fn new(layout: &Layout) -> Groups {
        let mut groups: Vec<Group> = Vec::new();
        for (index, cpu) in layout.cpus.iter().enumerate() {
            // The package of a CPU that was never online is not known.
            let Some(package) = cpu.package.map(|package| package.to_string()) else { continue };
            // Separate core types: the minimum of a mixed group would always be an E-core's.
            let core_type = cpu.core_type.map_or_else(String::new, |core_type| core_type.to_string());
            match groups.iter_mut().find(|group| group.package == package && group.core_type == core_type) {
                Some(group) => group.cpus.push(index),
                None => groups.push(Group { package, core_type, cpus: vec![index] }),
            }
        }
        Groups {
            of_types: groups,
            package_of: layout.cpus.iter().map(|cpu| layout.package_of(cpu)).collect(),
            packages: layout.packages.iter().map(|package| package.number.to_string()).collect(),
        }
    }

    pub(super) fn write(&self, out: &mut Exposition, interval: &Interval) {
        // Sleeping CPUs have no frequency, so the first and the third metric skip them.
        self.one(out, names::EFFECTIVE, interval, |cpu| Some(cpu.mhz? * 1e6));
        self.one(out, names::REQUESTED, interval, |cpu| Some(cpu.max? * 1e6));
        self.one(out, names::DELIVERED, interval, |cpu| cpu.got().filter(|_| cpu.busy > Some(BUSY)));
        self.one(out, names::BUSY, interval, |cpu| cpu.busy);
    }

    fn one(
        &self,
        out: &mut Exposition,
        family: &'static Family,
        interval: &Interval,
        value: impl Fn(&CpuInterval) -> Option<f64>,
    ) {
        for group in &self.of_types {
            let mut values: Vec<f64> =
                group.cpus.iter().filter_map(|&index| value(&interval.cpus[index])).collect();
            // A mean would hide one slow core among many, and a histogram would need ten series per
            // group.
            values.sort_unstable_by(f64::total_cmp);
            let (Some(min), Some(max)) = (values.first(), values.last()) else { continue };
            for (stat, value) in [("min", *min), ("median", values[values.len() / 2]), ("max", *max)] {
                let labels =
                    [("package", group.package.as_str()), ("type", &group.core_type), ("stat", stat)];
                out.add(family, &labels, value);
            }
        }
    }
}

pub(super) fn write_each(out: &mut Exposition, layout: &Layout, interval: &Interval) {
    type Value = fn(&CpuInterval) -> Option<f64>;
    let families: [(&'static Family, Value); 3] = [
        (names::THREAD_EFFECTIVE, |cpu| Some(cpu.mhz? * 1e6)),
        (names::THREAD_REQUESTED, |cpu| Some(cpu.max? * 1e6)),
        (names::THREAD_BUSY, |cpu| cpu.busy),
    ];
    for (family, value) in families {
        for (cpu, found) in layout.cpus.iter().zip(&interval.cpus) {
            if let Some(value) = value(found) {
                out.add_of(family, "cpu", cpu.number, value);
            }
        }
    }
}
