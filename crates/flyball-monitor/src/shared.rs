//! Adds readings of the hold service to a sample, for a user who may not take them:
//! [`flyball_process::readings`].

use flyball_host::Host;
use flyball_process::readings::{Reading, Readings};

use crate::{ABSENT, Field, Layout, Missing, Quantity, Sample, Scope, Unit, missing::What};

/// Shared quantities: the quantity, its group in [`What`], its scope and its unit.
const SHARED: &[(Quantity, What, Scope, Unit)] = &[
    (Quantity::CountersAt, What::Speed, Scope::Cpu, Unit::Nanoseconds),
    (Quantity::Tsc, What::Speed, Scope::Cpu, Unit::Cycles),
    (Quantity::Aperf, What::Speed, Scope::Cpu, Unit::Cycles),
    (Quantity::Mperf, What::Speed, Scope::Cpu, Unit::Cycles),
    (Quantity::ReasonsAt, What::Reasons, Scope::Cpu, Unit::Nanoseconds),
    (Quantity::ThermStatus, What::Reasons, Scope::Cpu, Unit::Count),
    (Quantity::PackageThermStatus, What::Reasons, Scope::Cpu, Unit::Count),
    (Quantity::LimitReasons, What::Reasons, Scope::Cpu, Unit::Count),
    (Quantity::PackageEnergy, What::Power, Scope::Package, Unit::MicroJoules),
    (Quantity::DramEnergy, What::Power, Scope::Package, Unit::MicroJoules),
    (Quantity::PlatformEnergy, What::Power, Scope::Machine, Unit::MicroJoules),
];

/// Energy is shared in steps of 10 mJ.
const ENERGY_STEP: u64 = 10_000;

/// The shared part of a sample.
pub fn readings_of(layout: &Layout, sample: &Sample) -> Readings {
    let mut values = Vec::new();
    for &(quantity, _, scope, unit) in SHARED {
        if layout.field(quantity).is_none() {
            continue;
        }
        let name = quantity.to_string();
        if layout.instances(scope) > 0 && sample.get(layout, quantity, 0).is_none() {
            // Tells the client that the quantity exists: reasons are only read while a CPU is
            // slower than requested.
            values.push(Reading { name: name.clone(), number: number(layout, scope, 0), value: ABSENT });
        }
        for index in 0..layout.instances(scope) {
            let Some(value) = sample.get(layout, quantity, index) else { continue };
            let value = if unit == Unit::MicroJoules { value / ENERGY_STEP * ENERGY_STEP } else { value };
            values.push(Reading { name: name.clone(), number: number(layout, scope, index), value });
        }
    }
    Readings { at: sample.at, values }
}

fn number(layout: &Layout, scope: Scope, index: usize) -> u32 {
    match scope {
        Scope::Cpu => layout.cpus[index].number,
        Scope::Package => layout.packages[index].number,
        Scope::Machine => 0,
    }
}

/// Adds quantities that the service shares to a layout that lacks them, and returns them.
pub(crate) fn extend(host: &dyn Host, layout: &mut Layout) -> Vec<Quantity> {
    let mut given = Vec::new();
    if !layout.missing.iter().any(Missing::is_forbidden) {
        return given;
    }
    // The service does not run, or does not answer this user. The quantities stay missing, and the
    // remedy names the command that grants access.
    let Ok(readings) = host.shared_readings() else { return given };
    let mut found = Vec::new();
    for &(quantity, what, scope, unit) in SHARED {
        let name = quantity.to_string();
        let is_shared = readings.values.iter().any(|reading| reading.name == name);
        let is_missing = layout.missing.iter().any(|missing| missing.what == what && missing.is_forbidden());
        if is_shared && is_missing && layout.field(quantity).is_none() {
            let wraps_after = if unit == Unit::Count { 0 } else { 64 };
            layout.fields.push(Field { quantity, scope, unit, wraps_after });
            given.push(quantity);
            found.push(what);
        }
    }
    if found.contains(&What::Power) {
        let field = Field {
            quantity: Quantity::EnergyAt,
            scope: Scope::Machine,
            unit: Unit::Nanoseconds,
            wraps_after: 64,
        };
        layout.fields.push(field);
    }
    layout.missing.retain(|missing| !found.contains(&missing.what));
    given
}

/// Copies the service's readings of these quantities into a sample. If the service does not answer,
/// the old values stay, and their time shows their age.
pub(crate) fn fill(host: &dyn Host, layout: &Layout, given: &[Quantity], sample: &mut Sample) {
    let Ok(readings) = host.shared_readings() else { return };
    if let Some(start) = layout.start(Quantity::EnergyAt) {
        sample.values[start] = readings.at;
    }
    for &(quantity, _, scope, _) in SHARED.iter().filter(|shared| given.contains(&shared.0)) {
        let Some(start) = layout.start(quantity) else { continue };
        let name = quantity.to_string();
        for reading in readings.values.iter().filter(|reading| reading.name == name) {
            let index = match scope {
                Scope::Cpu => layout.index_of(reading.number),
                Scope::Package => layout.packages.iter().position(|package| package.number == reading.number),
                Scope::Machine => Some(0),
            };
            if let Some(value) = index.and_then(|index| sample.values.get_mut(start + index)) {
                *value = reading.value;
            }
        }
    }
}
