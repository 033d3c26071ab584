//! The register interface: what a read answers and what a write does. Registers that mean something are in intel.rs and
//! amd.rs; those that only hold a value come from the machine's file.

mod amd;
mod intel;
mod request;

use crate::fault::Fault;
use crate::firmware::{Interface, SharedCppc};
use crate::msr;
use crate::silicon::Silicon;
use crate::spec::{MachineSpec, Scope, SstClass, Vendor};
use crate::topology::Topology;

/// Latched register values of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuRegisters {
    pub hwp_request: u64,
    pub hwp_interrupt: u64,
    pub hwp_status: u64,
    pub perf_ctl: u64,
    pub misc_enable: u64,
    pub epb: u64,
    pub clock_modulation: u64,
    pub therm_interrupt: u64,
    pub cppc_enable: u64,
    pub cppc_request: u64,
    pub cppc_request2: u64,
    pub hwcr: u64,
    pub tsc_adjust: u64,
    /// What is added to the counters because somebody wrote them.
    pub mperf_offset: u64,
    pub aperf_offset: u64,
    pub shared: SharedCppc,
}

/// Latched register values of one package.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PackageRegisters {
    pub pm_enable: u64,
    pub hwp_request: u64,
    pub power_limit: u64,
    pub turbo_ratios: u64,
    pub turbo_counts: u64,
    pub uncore_limit: u64,
    pub therm_interrupt: u64,
    pub config_tdp_control: u64,
    pub mailbox_interface: u64,
    pub mailbox_data: u64,
    pub mailbox_stalled: bool,
    pub feedback_pointer: u64,
    pub feedback_config: u64,
    /// The table has been written since the kernel last cleared this.
    pub feedback_new: bool,
    /// The TPMI device's control mailbox: status, command, and a third that nobody reads.
    pub tpmi_control: [u64; 3],
}

#[derive(Clone, Debug)]
struct Plain {
    msr: u32,
    writable: u64,
    scope: Scope,
    values: Vec<u64>,
}

/// All latched registers.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    pub cpu: Vec<CpuRegisters>,
    pub package: Vec<PackageRegisters>,
    /// Control registers of the uncore's TPMI clusters, package by package, domain by domain.
    pub uncore: Vec<u64>,
    /// Sorted by number.
    plain: Vec<Plain>,
}

impl Registers {
    pub fn new(spec: &MachineSpec, topology: &Topology) -> Registers {
        let f = &spec.firmware;
        let cpu = (0..topology.cpus())
            .map(|cpu| {
                let kind = &spec.core[topology.core_of(cpu).kind];
                let p = &kind.perf;
                let amd = spec.identity.vendor == Vendor::Amd;
                CpuRegisters {
                    hwp_request: u64::from(p.lowest) | u64::from(p.highest) << 8 | u64::from(f.epp) << 24,
                    hwp_interrupt: 0,
                    perf_ctl: if amd { 0 } else { u64::from(kind.base_mhz * 1000 / spec.clock.bus_khz) << 8 },
                    misc_enable: 0x0085_0089 | u64::from(!f.turbo) << 38,
                    epb: u64::from(f.epb),
                    cppc_enable: u64::from(f.on_at_boot),
                    cppc_request: u64::from(p.highest)
                        | u64::from(f.boot_min_perf) << 8
                        | u64::from(f.epp) << 24,
                    hwcr: 0x0100_0010 | u64::from(!f.turbo) << 25,
                    shared: SharedCppc {
                        desired: 0,
                        min: u32::from(f.boot_min_perf),
                        max: u32::from(p.highest),
                        enable: u32::from(f.on_at_boot),
                        auto_select: u32::from(f.on_at_boot),
                        epp: u32::from(f.epp),
                    },
                    ..CpuRegisters::default()
                }
            })
            .collect();
        let bytes = |list: &mut dyn Iterator<Item = u32>| {
            list.take(8).enumerate().fold(0u64, |v, (i, x)| v | u64::from(x.min(255)) << (8 * i))
        };
        let t = &spec.turbo;
        let ratio = |mhz: u32| mhz * 1000 / spec.clock.bus_khz;
        let package = PackageRegisters {
            pm_enable: u64::from(f.on_at_boot && f.interface == Interface::Hwp),
            hwp_request: 0x8000_ff01,
            power_limit: intel::encode_power_limits(spec),
            turbo_ratios: bytes(&mut t.sse_mhz.iter().map(|&m| ratio(m))),
            turbo_counts: if t.counts_register {
                bytes(&mut t.cores.iter().copied())
            } else {
                bytes(&mut t.sse_mhz.iter().skip(8).map(|&m| ratio(m)))
            },
            uncore_limit: spec
                .uncore
                .as_ref()
                .map_or(0, |u| u64::from(u.max_mhz / 100) | u64::from(u.min_mhz / 100) << 8),
            mailbox_data: 0,
            mailbox_interface: 0,
            mailbox_stalled: false,
            feedback_pointer: 0,
            feedback_config: 0,
            feedback_new: false,
            tpmi_control: [0; 3],
            therm_interrupt: 0x3,
            config_tdp_control: spec
                .sst
                .as_ref()
                .map_or(0, |s| u64::from(s.locked && s.class != SstClass::Tpmi) << 31),
        };
        let mut plain: Vec<Plain> = spec
            .register
            .iter()
            .map(|r| {
                let n = match r.scope {
                    Scope::Cpu => topology.cpus(),
                    Scope::Core => topology.cores(),
                    Scope::Package => topology.packages(),
                };
                Plain { msr: r.msr, writable: r.writable, scope: r.scope, values: vec![r.value; n] }
            })
            .collect();
        plain.sort_by_key(|p| p.msr);
        let clusters = match (&spec.uncore, &spec.sst) {
            (Some(u), Some(s)) if u.clusters > 0 => {
                let domains = topology.packages() * (topology.dies() + s.io_domains) as usize;
                vec![u64::from(u.max_mhz / 100) << 8 | u64::from(u.min_mhz / 100) << 15; domains]
            }
            _ => Vec::new(),
        };
        Registers { cpu, package: vec![package; topology.packages()], uncore: clusters, plain }
    }

    pub fn shared(&self, cpu: usize) -> Option<SharedCppc> {
        self.cpu.get(cpu).map(|c| c.shared)
    }

    pub fn set_shared(&mut self, cpu: usize, value: SharedCppc) {
        if let Some(c) = self.cpu.get_mut(cpu) {
            c.shared = value;
        }
    }

    fn plain(&self, reg: u32) -> Option<&Plain> {
        self.plain.binary_search_by_key(&reg, |p| p.msr).ok().map(|i| &self.plain[i])
    }
}

impl Silicon {
    /// Read a register as RDMSR does.
    ///
    /// # Errors
    /// [`Fault`]: the processor raises #GP, because it has no such register or no such CPU.
    pub fn read_msr(&self, cpu: usize, reg: u32) -> Result<u64, Fault> {
        self.read_msr_within(cpu, reg, 0)
    }

    /// Read a register in the middle of a step of which this CPU has executed `elapsed_ns` so far: the counters count
    /// them. For a caller that runs a CPU first and accounts for it afterwards, as an emulator does.
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
        // What a machine's file says of a register goes before what follows from the rest.
        if let Some(p) = self.registers.plain(reg) {
            return Ok(p.values[self.scope_index(cpu, p.scope)]);
        }
        let v = match self.spec.identity.vendor {
            Vendor::Intel => self.read_intel(cpu, reg),
            Vendor::Amd => self.read_amd(cpu, reg),
        };
        v.ok_or(Fault::NoSuchRegister(reg))
    }

    /// Write a register as WRMSR does. What it changes acts at the start of the next step, or with
    /// [`settle`](Self::settle).
    ///
    /// # Errors
    /// [`Fault`]: the processor raises #GP.
    pub fn write_msr(&mut self, cpu: usize, reg: u32, value: u64) -> Result<(), Fault> {
        if cpu >= self.cpus() {
            return Err(Fault::NoSuchCpu(cpu));
        }
        if let Ok(i) = self.registers.plain.binary_search_by_key(&reg, |p| p.msr) {
            let p = &self.registers.plain[i];
            if p.writable == 0 {
                return Err(Fault::ReadOnly(reg));
            }
            let at = self.scope_index(cpu, p.scope);
            let p = &mut self.registers.plain[i];
            p.values[at] = (p.values[at] & !p.writable) | (value & p.writable);
            return Ok(());
        }
        self.read_msr(cpu, reg)?;
        if matches!(reg, msr::AMD_CPPC_REQ | msr::HWP_REQUEST) {
            self.touch_request(cpu);
        } else {
            self.touch();
        }
        match self.spec.identity.vendor {
            Vendor::Intel => self.write_intel(cpu, reg, value),
            Vendor::Amd => self.write_amd(cpu, reg, value),
        }
    }

    /// TSC, MPERF and APERF, which both vendors have.
    fn read_counter(&self, cpu: usize, reg: u32, elapsed: u64) -> Option<u64> {
        let r = &self.registers.cpu[cpu];
        let tsc = |ns: u64| (u128::from(ns) * u128::from(self.spec.clock.tsc_khz) / 1_000_000) as u64;
        let amd = self.spec.identity.vendor == Vendor::Amd;
        match reg {
            msr::TSC => Some(tsc(self.now_ns + elapsed).wrapping_add(r.tsc_adjust)),
            msr::MPERF => Some(tsc(self.thread[cpu].busy_ns + elapsed).wrapping_add(r.mperf_offset)),
            msr::APERF => Some(self.aperf(cpu, elapsed).wrapping_add(r.aperf_offset)),
            msr::AMD_MPERF_RO if amd => Some(tsc(self.thread[cpu].busy_ns + elapsed)),
            msr::AMD_APERF_RO if amd => Some(self.aperf(cpu, elapsed)),
            _ => None,
        }
    }

    fn aperf(&self, cpu: usize, elapsed: u64) -> u64 {
        let khz = u64::from(self.core[self.topology.cpu(cpu).core].khz);
        self.thread[cpu].cycles + khz * elapsed / 1_000_000
    }

    /// A write to a counter that can be written.
    fn write_counter(&mut self, cpu: usize, reg: u32, value: u64) -> bool {
        let Some(now) = self.read_counter(cpu, reg, 0) else { return false };
        let r = &mut self.registers.cpu[cpu];
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
