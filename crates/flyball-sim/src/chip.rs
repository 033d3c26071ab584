//! The processors as the drivers reach them: registers by CPU, shared-memory CPPC, and the frequency that came of it.

use flyball_silicon::{Activity, SharedCppc, Silicon};

use crate::errno::{Answer, Errno};

/// The processors.
#[derive(Debug)]
pub(crate) struct Chip {
    silicon: Silicon,
}

impl Chip {
    pub(crate) fn new(silicon: Silicon) -> Chip {
        Chip { silicon }
    }

    pub(crate) fn silicon(&self) -> &Silicon {
        &self.silicon
    }

    pub(crate) fn silicon_mut(&mut self) -> &mut Silicon {
        &mut self.silicon
    }

    /// rdmsr on a CPU; a register that the CPU does not have faults, which the kernel reports as `EIO`.
    pub(crate) fn read(&self, cpu: u32, register: u32) -> Answer<u64> {
        self.silicon.read_msr(cpu as usize, register).map_err(|_| Errno::IO)
    }

    /// wrmsr on a CPU.
    pub(crate) fn write(&mut self, cpu: u32, register: u32, value: u64) -> Answer {
        self.silicon.write_msr(cpu as usize, register, value).map_err(|_| Errno::IO)
    }

    fn shared(&self, cpu: u32) -> SharedCppc {
        self.silicon.shared_cppc(cpu as usize).unwrap_or_default()
    }

    /// Minimum, maximum, desired performance and EPP in shared memory.
    pub(crate) fn read_shared(&self, cpu: u32) -> (u8, u8, u8, u8) {
        let shared = self.shared(cpu);
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
            ..self.shared(cpu)
        };
        self.silicon.set_shared_cppc(cpu as usize, shared);
    }

    /// Turns shared-memory CPPC on.
    pub(crate) fn enable_shared(&mut self, cpu: u32) {
        let shared = SharedCppc { enable: 1, ..self.shared(cpu) };
        self.silicon.set_shared_cppc(cpu as usize, shared);
    }

    /// Lets firmware choose between minimum and maximum, or not. Nothing to do where registers carry the request.
    pub(crate) fn set_autonomous(&mut self, cpu: u32, on: bool) {
        if self.silicon.shared_cppc(cpu as usize).is_some() {
            let shared = SharedCppc { auto_select: u32::from(on), ..self.shared(cpu) };
            self.silicon.set_shared_cppc(cpu as usize, shared);
        }
    }

    /// The frequency that a CPU runs at, in kHz.
    pub(crate) fn khz(&self, cpu: u32) -> u32 {
        self.silicon.frequency(cpu as usize).0
    }

    pub(crate) fn advance(&mut self, span: u64, activity: &[Activity]) {
        self.silicon.advance(span, activity);
    }
}
