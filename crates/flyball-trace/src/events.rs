//! The table of trace events: everything this library knows about each kernel event, in one place.
//!
//! [`event!`](declare::event) declares an event in the file of its subsystem: its fields with their
//! names in format files, their text and their types. A row of the `table!` below makes it a
//! variant of [`Event`]. Everything else uses the table: the decoder of binary records, the reader
//! of text, the printer, the counts in the report, and the lists of events to record. The columns
//! of decisions in CSV files are in `csv/row.rs`.

mod amd;
mod declare;
pub(crate) mod field;
mod intel;
mod power;
mod sched;
#[cfg(test)]
mod tests;
mod thermal;

use std::fmt;

use crate::{event_names::NameId, format::EventFormat};

use self::{declare::KernelEvent, field::Layout};

pub use self::{
    amd::{AmdEpp, AmdPerf, AmdReq2, AmdRequest},
    intel::IntelSample,
    power::{Frequency, FrequencyLimits, Idle, IdleMiss},
    sched::Switch,
    thermal::{Cooling, Pressure, Temperature, ThermalPressure, Throttle, Trip},
};

/// The purpose for which an event is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A decision of a P-state driver or its result: part of every recording.
    Decision,
    /// Something that limits performance: part of recordings on a real machine.
    Limit,
    /// Only on request: there may be hundreds of thousands per second, or the event explains no
    /// decision.
    OnRequest,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct EventRow {
    /// The directory below events/.
    pub system: &'static str,
    pub name: &'static str,
    /// The purpose for which the event is recorded.
    pub role: Role,
    /// The driver that makes these requests. If there are several, the first in the table names the
    /// trace.
    pub driver: Option<&'static str>,
    /// The fields that a format file must have: for each, its names in different kernels.
    pub fields: &'static [&'static [&'static str]],
    /// The fields as a kernel prints them.
    pub example: &'static str,
}

impl EventRow {
    /// `system/name`: the event's directory below events/.
    pub fn path(&self) -> String {
        format!("{}/{}", self.system, self.name)
    }
}

/// Generates [`TABLE`], [`Event`] and [`Plan`] from the rows.
macro_rules! table {
    ($($(#[$doc:meta])* $variant:ident($type:ident), $role:expr, driver $driver:expr;)+) => {
        /// The content of a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $variant($type),)+
            /// Records were lost on this CPU before this point; the number, if the kernel reports
            /// it.
            Lost(Option<u64>),
            /// Any other event, passed through by its name.
            Other(NameId),
        }

        /// The events that are read field by field.
        pub static TABLE: [EventRow; [$(stringify!($variant)),+].len()] = [$(EventRow {
            system: <$type as KernelEvent>::SYSTEM,
            name: <$type as KernelEvent>::NAME,
            role: $role,
            driver: $driver,
            fields: <$type as KernelEvent>::FIELDS,
            example: <$type as KernelEvent>::EXAMPLE,
        }),+];

        impl Event {
            /// Index of the event in [`TABLE`]; `None` for lost records and passed-through events.
            #[inline]
            pub fn row(&self) -> Option<usize> {
                // The variants without their fields, because only such an enum can be cast to its
                // index.
                enum At { $($variant),+ }
                match self {
                    $(Event::$variant(_) => Some(At::$variant as usize),)+
                    Event::Lost(_) | Event::Other(_) => None,
                }
            }

            /// The CPU that the event describes, if one of its fields has it.
            #[inline]
            pub fn about(&self) -> Option<u32> {
                match self {
                    $(Event::$variant(event) => event.about(),)+
                    Event::Lost(_) | Event::Other(_) => None,
                }
            }

            /// Parses the event `name` from the text after its name. `None` if the event is not in
            /// the table or lacks fields: such events are passed through.
            pub(crate) fn parse(name: &[u8], text: &[u8]) -> Option<Event> {
                $(
                    // One name may have several layouts; the one with more fields comes first.
                    if name == <$type as KernelEvent>::NAME.as_bytes()
                        && let Some(event) = <$type as KernelEvent>::parse(text)
                    {
                        return Some(Event::$variant(event));
                    }
                )+
                None
            }
        }

        impl fmt::Display for Event {
            /// Prints name and fields like the kernel's `print fmt` of the event.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Event::$variant(event) => {
                        f.write_str(<$type as KernelEvent>::NAME)?;
                        f.write_str(": ")?;
                        event.print(f)
                    })+
                    Event::Lost(Some(count)) => write!(f, "LOST {count} EVENTS"),
                    Event::Lost(None) => f.write_str("LOST EVENTS"),
                    Event::Other(id) => write!(f, "event {}", id.0),
                }
            }
        }

        /// How to read one event's binary records: the locations of its fields, computed once.
        #[derive(Debug, Clone)]
        pub(crate) enum Plan {
            $($variant(<$type as KernelEvent>::Places),)+
            /// The event is passed through.
            Other,
        }

        impl Plan {
            /// Returns [`Plan::Other`] for an event that is not in the table, or that lacks a
            /// required field.
            pub(crate) fn new(format: &EventFormat) -> Plan {
                let layout = Layout::new(format);
                $(
                    if format.name == <$type as KernelEvent>::NAME
                        && let Some(places) = <$type as KernelEvent>::places(layout)
                    {
                        return Plan::$variant(places);
                    }
                )+
                Plan::Other
            }

            /// Decodes a record. `name` is the event's name if it is passed through.
            #[inline]
            pub(crate) fn decode(&self, record: &[u8], name: NameId) -> Event {
                match self {
                    $(Plan::$variant(places) => {
                        Event::$variant(<$type as KernelEvent>::decode(places, record))
                    })+
                    Plan::Other => Event::Other(name),
                }
            }
        }
    };
}

table! {
    /// A request of the AMD driver.
    AmdPerf(AmdPerf), Role::Decision, driver Some("amd-pstate");
    /// A request of the AMD driver without counters, in the layout of kernel 5.17.
    AmdRequest(AmdRequest), Role::Decision, driver Some("amd-pstate");
    /// A request of the AMD driver in active mode.
    AmdEpp(AmdEpp), Role::Decision, driver Some("amd-pstate-epp");
    /// A floor request of the AMD driver.
    AmdReq2(AmdReq2), Role::Decision, driver None;
    /// A sample of intel_pstate.
    Intel(IntelSample), Role::Decision, driver Some("intel_pstate");
    /// A frequency was set.
    Frequency(Frequency), Role::Decision, driver None;
    /// A policy's limits changed.
    Limits(FrequencyLimits), Role::Decision, driver None;
    /// A CPU enters or leaves an idle state.
    Idle(Idle), Role::OnRequest, driver None;
    /// An idle state was too deep or too shallow.
    IdleMiss(IdleMiss), Role::OnRequest, driver None;
    /// A task switch.
    Switch(Switch), Role::OnRequest, driver None;
    /// A zone's temperature.
    Temperature(Temperature), Role::OnRequest, driver None;
    /// A zone crossed a trip point.
    Trip(Trip), Role::Limit, driver None;
    /// A cooling device was set.
    Cooling(Cooling), Role::Limit, driver None;
    /// A CPU lost capacity to heat or power limits.
    Pressure(Pressure), Role::Limit, driver None;
    /// A CPU lost capacity to heat or power limits, as reported before kernel 6.10.
    ThermalPressure(ThermalPressure), Role::Limit, driver None;
    /// A POWER chip is throttled.
    Throttle(Throttle), Role::OnRequest, driver None;
}

/// An event whose name alone has a meaning.
#[derive(Debug, Clone, Copy)]
pub struct NamedRow {
    /// The directory below events/.
    pub system: &'static str,
    /// The event's name.
    pub name: &'static str,
    /// The purpose for which the event is recorded.
    pub role: Role,
    /// True if the event is about the CPU that it occurs on, false if about the whole machine.
    pub about_cpu: bool,
    /// The event's meaning in words.
    pub meaning: &'static str,
}

/// Passed-through events with a known meaning.
pub static BY_NAME: [NamedRow; 2] = [
    // intel_thermal_interrupt() in drivers/thermal/intel/therm_throt.c and its callers.
    NamedRow {
        system: "irq_vectors",
        name: "thermal_apic_entry",
        role: Role::Limit,
        about_cpu: true,
        meaning: "its thermal interrupt fired: a limit of heat or power was reached or left",
    },
    // drivers/thermal/cpufreq_cooling.c, for the power allocator.
    NamedRow {
        system: "thermal",
        name: "thermal_power_cpu_limit",
        role: Role::OnRequest,
        about_cpu: false,
        meaning: "the kernel's thermal governor limited the power of CPUs",
    },
];

/// The events that show a P-state driver's decisions, as `system/name`.
pub fn decisions() -> impl Iterator<Item = String> {
    with_role(Role::Decision)
}

/// The paths of a role, without duplicates: an event with two layouts has two adjacent rows.
fn with_role(role: Role) -> impl Iterator<Item = String> {
    let mut last = None;
    let rows = TABLE.iter().filter(move |row| row.role == role && last.replace(row.name) != Some(row.name));
    rows.map(EventRow::path)
}

/// The events that are recorded by default, as `system/name`: decisions, and limits of performance.
pub fn by_default() -> impl Iterator<Item = String> {
    let limits = with_role(Role::Limit);
    let named = BY_NAME.iter().filter(|row| row.role == Role::Limit);
    decisions().chain(limits).chain(named.map(|row| format!("{}/{}", row.system, row.name)))
}
