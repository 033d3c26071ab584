//! The processors as drivers reach them: registers by CPU, shared-memory CPPC, and the resulting
//! frequency.

use std::collections::HashMap;

use flyball_silicon::{Activity, SharedCppc, Silicon, spec::Vendor};

use crate::errno::{Answer, Errno};

/// Registers of Intel processors that tools read and that have no effect here, with the values that
/// firmware leaves in them (estimated): feature control, C-state limit (locked), prefetchers, power
/// management, C1E and power control, interrupt response limits, and limit reasons of graphics and
/// ring. Tools give up if one of these registers is missing.
const HELD: [(u32, u64); 14] = [
    (0x3a, 0x5),
    (0xe2, 0x8402),
    (0x1a4, 0),
    (0x1aa, 0),
    // Bidirectional PROCHOT, and no promotion to C1E, as recorded on servers: intel_idle clears the
    // bit (c1e_promotion_disable).
    (0x1fc, 0x1),
    (0x60a, 0),
    (0x60b, 0),
    (0x60c, 0),
    (0x658, 0),
    (0x659, 0),
    (0x65a, 0),
    (0x65b, 0),
    (0x6b0, 0),
    (0x6b1, 0),
];

/// Additional registers of hybrid processors: limits and energy of memory and graphics, which are
/// not modelled and read 0.
const HELD_HYBRID: [(u32, u64); 7] =
    [(0x618, 0), (0x619, 0), (0x61b, 0), (0x61c, 0), (0x640, 0), (0x641, 0), (0x642, 0)];

#[derive(Debug)]
pub(crate) struct Chip {
    silicon: Silicon,
    /// Registers of [`HELD`] that were written, by CPU.
    held: HashMap<(u32, u32), u64>,
}

impl Chip {
    pub(crate) fn new(silicon: Silicon) -> Chip {
        Chip { silicon, held: HashMap::new() }
    }

    pub(crate) fn silicon(&self) -> &Silicon {
        &self.silicon
    }

    pub(crate) fn silicon_mut(&mut self) -> &mut Silicon {
        &mut self.silicon
    }

    /// rdmsr on a CPU; a register that the CPU does not have faults, which the kernel reports as
    /// `EIO`.
    pub(crate) fn read(&self, cpu: u32, register: u32) -> Answer<u64> {
        // Ask the silicon first: a held value must not shadow a modelled register.
        if let Ok(value) = self.silicon.read_msr(cpu as usize, register) {
            return Ok(value);
        }
        let initial = self.held(register).ok_or(Errno::IO)?;
        Ok(self.held.get(&(cpu, register)).copied().unwrap_or(initial))
    }

    /// Returns firmware's value of a register that only holds a value.
    fn held(&self, register: u32) -> Option<u64> {
        let spec = self.silicon.spec();
        if spec.identity.vendor != Vendor::Intel {
            return None;
        }
        let hybrid = if spec.core.len() > 1 { &HELD_HYBRID[..] } else { &[] };
        HELD.iter().chain(hybrid).find(|(held, _)| *held == register).map(|(_, value)| *value)
    }

    /// wrmsr on a CPU.
    pub(crate) fn write(&mut self, cpu: u32, register: u32, value: u64) -> Answer {
        match self.silicon.write_msr(cpu as usize, register, value) {
            Ok(()) => Ok(()),
            Err(flyball_silicon::Fault::NoSuchRegister(_)) if self.held(register).is_some() => {
                self.held.insert((cpu, register), value);
                Ok(())
            }
            // wrmsr_safe() catches the fault and answers EIO.
            Err(_) => Err(Errno::IO),
        }
    }

    pub(crate) fn shared(&self, cpu: u32) -> SharedCppc {
        self.silicon.shared_cppc(cpu as usize).unwrap_or_default()
    }

    /// Minimum, maximum, desired performance and EPP in shared memory.
    pub(crate) fn read_shared(&self, cpu: u32) -> (u8, u8, u8, u8) {
        let shared = self.shared(cpu);
        // Levels are bytes; the fields are words because ACPI's registers are.
        (shared.min as u8, shared.max as u8, shared.desired as u8, shared.epp as u8)
    }

    /// Writes the request in shared memory.
    pub(crate) fn write_shared(
        &mut self,
        cpu: u32,
        min: u8,
        max: u8,
        desired: u8,
        epp: u8,
        autonomous: bool,
    ) {
        let shared = SharedCppc {
            desired: u32::from(desired),
            min: u32::from(min),
            max: u32::from(max),
            auto_select: u32::from(autonomous),
            epp: u32::from(epp),
            // `enable` stays as it is.
            ..self.shared(cpu)
        };
        self.silicon.set_shared_cppc(cpu as usize, shared);
    }

    pub(crate) fn set_shared(&mut self, cpu: u32, shared: SharedCppc) {
        self.silicon.set_shared_cppc(cpu as usize, shared);
    }

    /// Turns shared-memory CPPC on.
    pub(crate) fn enable_shared(&mut self, cpu: u32) {
        let shared = SharedCppc { enable: 1, ..self.shared(cpu) };
        self.silicon.set_shared_cppc(cpu as usize, shared);
    }

    /// Lets firmware choose between minimum and maximum, or not. Does nothing if requests go
    /// through registers.
    pub(crate) fn set_autonomous(&mut self, cpu: u32, on: bool) {
        if self.silicon.shared_cppc(cpu as usize).is_some() {
            let shared = SharedCppc { auto_select: u32::from(on), ..self.shared(cpu) };
            self.silicon.set_shared_cppc(cpu as usize, shared);
        }
    }

    /// A CPU's current frequency in kHz.
    pub(crate) fn khz(&self, cpu: u32) -> u32 {
        self.silicon.frequency(cpu as usize).0
    }

    pub(crate) fn advance(&mut self, span: u64, activity: &[Activity]) {
        self.silicon.advance(span, activity);
    }
}
