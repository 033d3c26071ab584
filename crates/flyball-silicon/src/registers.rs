//! The register interface: the results of RDMSR and the effects of WRMSR. Registers with a meaning
//! are in intel.rs and amd.rs; those that only hold a value come from the machine's file.

mod amd;
mod intel;

use crate::fault::Fault;
use crate::msr;
use crate::silicon::Silicon;
use crate::spec::{Scope, Vendor};

impl Silicon {
    /// Reads a register like RDMSR.
    ///
    /// # Errors
    /// [`Fault`]: the processor raises #GP, because it has no such register or no such CPU.
    pub fn read_msr(&self, cpu: usize, reg: u32) -> Result<u64, Fault> {
        self.read_msr_within(cpu, reg, 0)
    }

    /// Reads a register in the middle of a step, after this CPU has executed for `elapsed_ns`,
    /// which the counters include. For callers such as emulators, which run a CPU first and account
    /// for the time afterwards.
    ///
    /// # Errors
    /// [`Fault`]: the processor raises #GP, because it has no such register or no such CPU.
    pub fn read_msr_within(&self, cpu: usize, reg: u32, elapsed_ns: u64) -> Result<u64, Fault> {
        if cpu >= self.cpus() {
            return Err(Fault::NoSuchCpu(cpu));
        }
        if let Some(v) = self.read_counter(cpu, reg, elapsed_ns) {
            return Ok(v);
        }
        // A register in the machine's file overrides the computed one, so that a file can state a
        // value that the model does not derive.
        if let Some(p) = self.registers.plain(reg) {
            return Ok(p.values[self.scope_index(cpu, p.scope)]);
        }
        let v = match self.spec.identity.vendor {
            Vendor::Intel => self.read_intel(cpu, reg),
            Vendor::Amd => self.read_amd(cpu, reg),
            Vendor::Arm => None,
        };
        v.ok_or(Fault::NoSuchRegister(reg))
    }

    /// Writes a register like WRMSR. The change takes effect at the start of the next step, or with
    /// [`settle`](Self::settle).
    ///
    /// # Errors
    /// [`Fault`]: the processor raises #GP.
    pub fn write_msr(&mut self, cpu: usize, reg: u32, value: u64) -> Result<(), Fault> {
        if cpu >= self.cpus() {
            return Err(Fault::NoSuchCpu(cpu));
        }
        if let Some(scope) = self.registers.plain(reg).map(|p| p.scope) {
            let at = self.scope_index(cpu, scope);
            let Some(p) = self.registers.plain_mut(reg) else { return Ok(()) };
            if p.writable == 0 {
                return Err(Fault::ReadOnly(reg));
            }
            p.values[at] = (p.values[at] & !p.writable) | (value & p.writable);
            return Ok(());
        }
        // A register that cannot be read does not exist, so a write faults too.
        self.read_msr(cpu, reg)?;
        // The two registers that governors write often affect one CPU; any other write may affect
        // all.
        if matches!(reg, msr::AMD_CPPC_REQ | msr::HWP_REQUEST) {
            self.touch_request(cpu);
        } else {
            self.touch();
        }
        match self.spec.identity.vendor {
            Vendor::Intel => self.write_intel(cpu, reg, value),
            Vendor::Amd => self.write_amd(cpu, reg, value),
            Vendor::Arm => Err(Fault::NoSuchRegister(reg)),
        }
    }

    /// Reads TSC, MPERF or APERF, which both vendors have.
    fn read_counter(&self, cpu: usize, reg: u32, elapsed: u64) -> Option<u64> {
        let r = &self.registers.cpu[cpu];
        let tsc = |ns: u64| (u128::from(ns) * u128::from(self.spec.clock.tsc_khz) / 1_000_000) as u64;
        let amd = self.spec.identity.vendor == Vendor::Amd;
        match reg {
            msr::TSC => Some(tsc(self.now_ns + elapsed).wrapping_add(r.tsc_adjust)),
            // MPERF counts at the TSC's rate, but only in C0 (Intel SDM 4, IA32_MPERF).
            msr::MPERF => Some(tsc(self.thread[cpu].busy_ns + elapsed).wrapping_add(r.mperf_offset)),
            msr::APERF => Some(self.aperf(cpu, elapsed).wrapping_add(r.aperf_offset)),
            msr::AMD_MPERF_RO if amd => Some(tsc(self.thread[cpu].busy_ns + elapsed)),
            msr::AMD_APERF_RO if amd => Some(self.aperf(cpu, elapsed)),
            _ => None,
        }
    }

    fn aperf(&self, cpu: usize, elapsed: u64) -> u64 {
        // At this step's frequency, since firmware decides only between steps.
        let khz = u64::from(self.core[self.topology.cpu(cpu).core].khz);
        self.thread[cpu].cycles() + khz * elapsed / 1_000_000
    }

    /// Writes a writable counter.
    fn write_counter(&mut self, cpu: usize, reg: u32, value: u64) -> bool {
        let Some(now) = self.read_counter(cpu, reg, 0) else { return false };
        let r = &mut self.registers.cpu[cpu];
        // The counter continues from the value. Store only the offset, because the underlying time
        // is shared.
        let by = value.wrapping_sub(now);
        match reg {
            msr::TSC => r.tsc_adjust = r.tsc_adjust.wrapping_add(by),
            msr::MPERF => r.mperf_offset = r.mperf_offset.wrapping_add(by),
            msr::APERF => r.aperf_offset = r.aperf_offset.wrapping_add(by),
            _ => return false,
        }
        true
    }

    fn scope_index(&self, cpu: usize, scope: Scope) -> usize {
        match scope {
            Scope::Cpu => cpu,
            Scope::Core => self.topology.cpu(cpu).core,
            Scope::Package => self.topology.package_of(cpu),
        }
    }
}
