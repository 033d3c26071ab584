//! A CPU's counters: a perf group costs one interrupt per reading, registers cost one each.

use flyball_control::ThermStatus;
use flyball_host::{EventGroup, Host, HostError, KeptFile, Vendor, msr, topology::CPUS};

use super::file::{KeptAttribute, SHORT};
use crate::{ABSENT, Quantity};

/// Where counters come from on a machine.
pub(super) enum Source {
    /// Events of the `msr` PMU: quantity, PMU type, event.
    Group(Vec<(Quantity, u32, u64)>),
    /// Registers: quantity, number.
    Registers(Vec<(Quantity, u32)>),
    /// CPPC's counters of delivered and reference performance (acpi_cppc/feedback_ctrs).
    Feedback,
    None,
}

/// The open counters of a CPU.
pub(super) enum Counters {
    /// Opened at the CPU's first turn: opening a perf event interrupts the CPU too.
    Closed,
    Group(Box<dyn EventGroup>),
    /// The file of the registers, if the host keeps it open.
    Registers(Option<Box<dyn KeptFile>>),
    Feedback(KeptAttribute),
}

/// The counters of delivered and reference performance of a CPU.
pub(super) fn feedback(cpu: u32) -> KeptAttribute {
    KeptAttribute::new(format!("{CPUS}/cpu{cpu}/acpi_cppc/feedback_ctrs"))
}

pub(super) const TSC: u32 = 0x10;
const MPERF: u32 = 0xe7;
const APERF: u32 = 0xe8;
const PPERF: u32 = 0x64e;

/// The registers to use if the perf group cannot be opened.
pub(super) fn registers(vendor: Vendor) -> &'static [(Quantity, u32)] {
    match vendor {
        Vendor::Intel => &[
            (Quantity::Tsc, TSC),
            (Quantity::Aperf, APERF),
            (Quantity::Mperf, MPERF),
            (Quantity::Productive, PPERF),
            (Quantity::ThermalMargin, msr::MSR_IA32_THERM_STATUS),
        ],
        _ => &[(Quantity::Tsc, TSC), (Quantity::Aperf, APERF), (Quantity::Mperf, MPERF)],
    }
}

/// The names of the group's events, below events/ of the PMU (arch/x86/events/msr.c).
pub(super) const EVENTS: &[(&str, Quantity)] = &[
    ("tsc", Quantity::Tsc),
    ("aperf", Quantity::Aperf),
    ("mperf", Quantity::Mperf),
    ("pperf", Quantity::Productive),
    ("irperf", Quantity::Productive),
    ("smi", Quantity::Smi),
    ("cpu_thermal_margin", Quantity::ThermalMargin),
];

impl Source {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Source::None)
    }

    pub(super) fn quantities(&self) -> Vec<Quantity> {
        match self {
            Source::Group(events) => events.iter().map(|event| event.0).collect(),
            Source::Registers(registers) => registers.iter().map(|register| register.0).collect(),
            Source::Feedback => vec![Quantity::Aperf, Quantity::Mperf],
            Source::None => Vec::new(),
        }
    }

    /// Reads a CPU's counters and returns how many interrupts that took. `None` if they cannot be
    /// read, because the CPU went offline.
    pub(super) fn read(
        &self,
        host: &dyn Host,
        cpu: u32,
        counters: &mut Counters,
        mut put: impl FnMut(Quantity, u64),
    ) -> Option<u32> {
        // At the first turn, and after the CPU was offline, when the kernel detached its events
        // (perf_event_exit_cpu).
        if matches!(counters, Counters::Closed) {
            *counters = self.open(host, cpu).ok()?;
        }
        match (self, &mut *counters) {
            (Source::Feedback, Counters::Feedback(file)) => {
                // "ref:%llu del:%llu" (show_feedback_ctrs in drivers/acpi/cppc_acpi.c). If the
                // counters are registers of the CPU, the kernel reads them there.
                let mut line = [0; SHORT];
                let (reference, delivered) = file.line(host, &mut line)?.split_once(' ')?;
                put(Quantity::Mperf, reference.strip_prefix("ref:")?.parse().ok()?);
                put(Quantity::Aperf, delivered.strip_prefix("del:")?.parse().ok()?);
                Some(1)
            }
            (Source::Group(events), Counters::Group(group)) => {
                // With one read(2), the kernel updates the whole group with one interrupt of that
                // CPU (perf_event_read).
                let mut counts = vec![0; events.len()];
                group.read(&mut counts).ok()?;
                for (event, count) in events.iter().zip(counts) {
                    // An invalid temperature reads as -1 (msr_event_update), which equals ABSENT.
                    put(event.0, count);
                }
                Some(1)
            }
            (Source::Registers(registers), counters) => {
                for &(quantity, register) in registers {
                    let value = counters.register(host, cpu, register);
                    // Every CPU has a TSC, so this CPU went offline. Other registers may be missing
                    // on this model.
                    if value.is_none() && quantity == Quantity::Tsc {
                        return None;
                    }
                    put(quantity, value.map_or(ABSENT, |value| field(quantity, value)));
                }
                Some(registers.len() as u32)
            }
            _ => None,
        }
    }

    fn open(&self, host: &dyn Host, cpu: u32) -> Result<Counters, HostError> {
        match self {
            Source::Group(events) => {
                let events: Vec<(u32, u64)> = events.iter().map(|event| (event.1, event.2)).collect();
                Ok(Counters::Group(host.event_group(&events, cpu)?))
            }
            Source::Feedback => Ok(Counters::Feedback(feedback(cpu))),
            _ => Ok(Counters::Registers(host.keep_open(&format!("/dev/cpu/{cpu}/msr"))?)),
        }
    }
}

impl Counters {
    pub(super) fn register(&self, host: &dyn Host, cpu: u32, register: u32) -> Option<u64> {
        if let Counters::Registers(Some(file)) = self {
            let mut bytes = [0; 8];
            let count = file.read_at(u64::from(register), &mut bytes).ok()?;
            return (count == 8).then(|| u64::from_le_bytes(bytes));
        }
        host.msr(cpu, register).ok()
    }
}

/// Extracts the quantity from a register's value.
pub(super) fn field(quantity: Quantity, value: u64) -> u64 {
    match quantity {
        Quantity::ThermalMargin => ThermStatus(value).below().unwrap_or(ABSENT),
        _ => value,
    }
}
