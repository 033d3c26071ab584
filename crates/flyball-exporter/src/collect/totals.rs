//! Sums of counters that the kernel has only per CPU or not at all: throttling of packages, and how
//! long a limit was visible.

use std::collections::BTreeMap;

use flyball_control::{LimitReasons, ThermStatus};
use flyball_monitor::{Layout, Quantity, Sample, Sampler};

use super::speed::Groups;
use crate::{Exposition, catalogue as names};

/// Limits in the thermal registers: name, register and bit. A reason may have several bits. The
/// bits of the model's limit reasons register are added to these.
const REASONS: &[(&str, Quantity, u32)] = &[
    ("prochot", Quantity::ThermStatus, ThermStatus::PROCHOT),
    ("prochot", Quantity::PackageThermStatus, ThermStatus::PROCHOT),
    ("thermal", Quantity::ThermStatus, ThermStatus::HOT),
    ("thermal", Quantity::PackageThermStatus, ThermStatus::HOT),
    ("power", Quantity::PackageThermStatus, ThermStatus::POWER),
];

/// Sums since the exporter started.
pub(super) struct Totals {
    /// Throttled time of core and package by CPU, ms.
    throttled: Vec<[u64; 2]>,
    /// Reasons by package: whether the last sample showed the reason, and its total time, s.
    reasons: Vec<BTreeMap<&'static str, (bool, f64)>>,
    /// The reasons that this machine's registers can show.
    known: Vec<&'static str>,
    limits: Option<LimitReasons>,
    has_throttles: bool,
}

impl Totals {
    pub(super) fn new(layout: &Layout) -> Totals {
        let limits =
            layout.machine.limit_reasons().filter(|_| layout.field(Quantity::LimitReasons).is_some());
        let thermal = REASONS.iter().filter(|reason| layout.field(reason.1).is_some());
        let mut known: Vec<&'static str> = thermal.map(|reason| reason.0).collect();
        known.extend(limits.into_iter().flat_map(LimitReasons::labels));
        known.sort_unstable();
        known.dedup();
        Totals {
            throttled: vec![[0; 2]; layout.cpus.len()],
            reasons: vec![known.iter().map(|name| (*name, (false, 0.0))).collect(); layout.packages.len()],
            known,
            limits,
            has_throttles: layout.field(Quantity::CoreThrottleTime).is_some(),
        }
    }

    /// Adds what happened between two consecutive samples.
    pub(super) fn add(&mut self, sampler: &Sampler<'_>, groups: &Groups, from: &Sample, to: &Sample) {
        let places = sampler.places();
        let seconds = to.at.saturating_sub(from.at) as f64 * 1e-9;
        // The sampler reads the registers of slow busy CPUs only. If there are none, nothing
        // limits.
        for reasons in &mut self.reasons {
            for reason in reasons.values_mut() {
                reason.0 = false;
            }
        }
        for (index, package) in groups.package_of.iter().enumerate() {
            for (sum, quantity) in self.throttled[index]
                .iter_mut()
                .zip([Quantity::CoreThrottleTime, Quantity::PackageThrottleTime])
            {
                // The first value of a CPU that never ran before is no increase.
                if let (Some(before), Some(now)) =
                    (places.get(from, quantity, index), places.get(to, quantity, index))
                {
                    // The count of a CPU that was offline restarts at 0 (thermal_throttle_add_dev).
                    *sum += now.saturating_sub(before);
                }
            }
            // The bits stay in the sample until the CPU is read again. Only count those of this
            // interval.
            let at = |sample: &Sample| places.get(sample, Quantity::ReasonsAt, index);
            let Some(package) = package.filter(|_| at(to).is_some() && at(to) != at(from)) else {
                continue;
            };
            let is_set = |quantity, bit| {
                places.get(to, quantity, index).is_some_and(|value: u64| value >> bit & 1 == 1)
            };
            let thermal = REASONS.iter().filter(|(_, quantity, bit)| is_set(*quantity, *bit));
            let value = places.get(to, Quantity::LimitReasons, index).unwrap_or(0);
            let shown = self.limits.into_iter().flat_map(|limits| limits.shown(value));
            let labels = shown.filter_map(|(_, reason)| reason.label());
            for name in thermal.map(|reason| reason.0).chain(labels) {
                if let Some(reason) = self.reasons[package].get_mut(name) {
                    reason.0 = true;
                }
            }
        }
        for reason in self.reasons.iter_mut().flat_map(BTreeMap::values_mut).filter(|reason| reason.0) {
            reason.1 += seconds;
        }
    }

    pub(super) fn write(&self, out: &mut Exposition, layout: &Layout, groups: &Groups) {
        if self.has_throttles {
            self.write_throttles(out, layout, groups);
        }
        let of_each = |out: &mut Exposition, family, value: fn(&(bool, f64)) -> f64| {
            for (package, reasons) in groups.packages.iter().zip(&self.reasons) {
                for name in &self.known {
                    if let Some(reason) = reasons.get(name) {
                        out.add(family, &[("package", package), ("reason", name)], value(reason));
                    }
                }
            }
        };
        of_each(out, names::LIMIT_ACTIVE, |reason| f64::from(u8::from(reason.0)));
        of_each(out, names::LIMIT_SECONDS, |reason| reason.1);
    }

    fn write_throttles(&self, out: &mut Exposition, layout: &Layout, groups: &Groups) {
        // Both threads of a core get the interrupt, and so do all CPUs of a package
        // (therm_throt.c). The highest count is the number of events.
        let mut cores: BTreeMap<(usize, Option<u32>, Option<u32>), u64> = BTreeMap::new();
        let mut packages = vec![0u64; groups.packages.len()];
        for (index, cpu) in layout.cpus.iter().enumerate() {
            let Some(package) = groups.package_of[index] else { continue };
            let [core, whole] = self.throttled[index];
            let most = cores.entry((package, cpu.die, cpu.core)).or_default();
            *most = core.max(*most);
            packages[package] = packages[package].max(whole);
        }
        for (index, name) in groups.packages.iter().enumerate() {
            let of_cores: u64 = cores.iter().filter(|(core, _)| core.0 == index).map(|(_, time)| time).sum();
            for (scope, time) in [("core", of_cores), ("package", packages[index])] {
                out.add(names::THROTTLE, &[("package", name), ("scope", scope)], time as f64 * 1e-3);
            }
        }
    }
}
