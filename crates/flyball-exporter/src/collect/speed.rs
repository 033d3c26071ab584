//! Frequencies and load: least, median and most per package and type of core, or of each CPU.

use flyball_monitor::{CpuInterval, Interval, Layout};

use crate::{
    Exposition,
    catalogue::{self as names, Family},
};

/// CPUs of one package and type.
struct Group {
    package: String,
    core_type: String,
    /// Indices in the layout.
    cpus: Vec<usize>,
}

/// The groups of a machine, and the package of each CPU.
pub(super) struct Groups {
    of_types: Vec<Group>,
    /// Index in [`Groups::packages`] by CPU of the layout.
    pub(super) package_of: Vec<Option<usize>>,
    pub(super) packages: Vec<String>,
}

/// CPUs that are busier than that show what they are given; below it, waking up takes a share that
/// is not small.
const BUSY: f64 = 0.5;

impl Groups {
    pub(super) fn new(layout: &Layout) -> Groups {
        let mut groups: Vec<Group> = Vec::new();
        for (index, cpu) in layout.cpus.iter().enumerate() {
            // Not known of a CPU that was never online.
            let Some(package) = cpu.package.map(|package| package.to_string()) else { continue };
            // Apart from each other, because the least of a mixed group would always be an
            // E-core's.
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
        // Sleeping CPUs have no frequency, and are left out of the first and third.
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
            // A mean would hide one slow core among many; a histogram would cost ten series for
            // each group.
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

/// Writes the speed of each CPU.
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
