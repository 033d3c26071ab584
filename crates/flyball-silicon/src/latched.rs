//! The values that registers hold, by CPU and by package. registers.rs and silicon/request.rs
//! interpret them.

use crate::firmware::{Interface, SharedCppc};
use crate::limits::encode_power_limits;
use crate::spec::{CoreSpec, MachineSpec, Scope, SstClass, Vendor};
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
    /// Offset of MPERF after a program has written it.
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
    /// True if the feedback table was written since the kernel last cleared this.
    pub feedback_new: bool,
}

/// A register that only holds a value, without effect.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    msr: u32,
    /// Bits that a write changes.
    pub writable: u64,
    pub scope: Scope,
    /// Values by CPU, core or package, as `scope` says.
    pub values: Vec<u64>,
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

impl CpuRegisters {
    /// The values of a CPU of core type `kind` at reset.
    fn new(spec: &MachineSpec, kind: &CoreSpec) -> CpuRegisters {
        let f = &spec.firmware;
        let p = &kind.perf;
        let intel = spec.identity.vendor == Vendor::Intel;
        CpuRegisters {
            // Intel SDM 4, IA32_HWP_REQUEST: minimum 7:0, maximum 15:8, desired 23:16 (0:
            // autonomous), EPP 31:24.
            hwp_request: u64::from(p.lowest) | u64::from(p.highest) << 8 | u64::from(f.epp) << 24,
            // Firmware hands over at the guaranteed ratio (Intel) or in P0 (AMD, whose register
            // holds a state's number).
            perf_ctl: if intel { u64::from(kind.base_mhz * 1000 / spec.clock.bus_khz) << 8 } else { 0 },
            // Fast strings (0), thermal control (3), performance monitoring (7), EIST (16), MONITOR
            // (18), no xTPR messages (23), turbo disable (38): Intel SDM 4, IA32_MISC_ENABLE.
            misc_enable: 0x0085_0089 | u64::from(!f.turbo) << 38,
            epb: u64::from(f.epb),
            cppc_enable: u64::from(f.on_at_boot),
            // The reverse of HWP: maximum in bits 7:0, minimum in bits 15:8 (asm/msr-index.h,
            // AMD_CPPC_MAX_PERF_MASK).
            cppc_request: u64::from(p.highest) | u64::from(f.boot_min_perf) << 8 | u64::from(f.epp) << 24,
            // MSRC001_0015: INVDWBINVD (4) and TscFreqSel (24), as Zen firmware leaves them; CpbDis
            // (25).
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
    }
}

impl PackageRegisters {
    /// The values of a package at reset.
    fn new(spec: &MachineSpec) -> PackageRegisters {
        let f = &spec.firmware;
        let t = &spec.turbo;
        let ratio = |mhz: u32| mhz * 1000 / spec.clock.bus_khz;
        let bytes = |list: &mut dyn Iterator<Item = u32>| {
            list.take(8).enumerate().fold(0u64, |v, (i, x)| v | u64::from(x.min(255)) << (8 * i))
        };
        // MSR 0x1AE holds more ratios on client parts and the buckets' core counts on servers
        // (turbostat, dump_turbo_ratio_limits).
        let turbo_counts = if t.counts_register {
            bytes(&mut t.cores.iter().copied())
        } else {
            bytes(&mut t.sse_mhz.iter().skip(8).map(|&m| ratio(m)))
        };
        let locked = spec.sst.as_ref().is_some_and(|s| s.locked && s.class != SstClass::Tpmi);
        PackageRegisters {
            pm_enable: u64::from(f.on_at_boot && f.interface == Interface::Hwp),
            // IA32_HWP_REQUEST_PKG at reset: minimum 1, maximum 0xff, EPP 0x80.
            hwp_request: 0x8000_ff01,
            power_limit: encode_power_limits(&spec.power),
            turbo_ratios: bytes(&mut t.sse_mhz.iter().map(|&m| ratio(m))),
            turbo_counts,
            // MSR 0x620 counts in 100 MHz whatever the bus clock is (uncore-frequency.c,
            // UNCORE_FREQ_KHZ_MULTIPLIER).
            uncore_limit: spec
                .uncore
                .as_ref()
                .map_or(0, |u| u64::from(u.max_mhz / 100) | u64::from(u.min_mhz / 100) << 8),
            therm_interrupt: 0x3,
            // CONFIG_TDP_CONTROL bit 31 is the lock; on TPMI machines the lock is in the TPMI
            // registers.
            config_tdp_control: u64::from(locked) << 31,
            ..PackageRegisters::default()
        }
    }
}

impl Registers {
    /// The registers of a machine at reset.
    pub(crate) fn new(spec: &MachineSpec, topology: &Topology) -> Registers {
        let cpu = (0..topology.cpus())
            .map(|cpu| CpuRegisters::new(spec, &spec.core[topology.core_of(cpu).kind]))
            .collect();
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
        // Sorted for binary search at each access.
        plain.sort_by_key(|p| p.msr);
        // One cluster per power domain, including IO domains, which have their own fabric clock.
        let clusters = match (&spec.uncore, &spec.sst) {
            (Some(u), Some(s)) if u.clusters > 0 => {
                let each = topology.dies() + s.io_domains;
                let control = |domain: u32| {
                    let max = u.max_of(domain % each >= topology.dies());
                    u64::from(max / 100) << 8 | u64::from(u.min_mhz / 100) << 15
                };
                (0..topology.packages() as u32 * each).map(control).collect()
            }
            _ => Vec::new(),
        };
        let package = vec![PackageRegisters::new(spec); topology.packages()];
        Registers { cpu, package, uncore: clusters, plain }
    }

    pub(crate) fn shared(&self, cpu: usize) -> Option<SharedCppc> {
        self.cpu.get(cpu).map(|c| c.shared)
    }

    pub(crate) fn set_shared(&mut self, cpu: usize, value: SharedCppc) {
        if let Some(c) = self.cpu.get_mut(cpu) {
            c.shared = value;
        }
    }

    pub(crate) fn plain(&self, reg: u32) -> Option<&Plain> {
        self.plain.binary_search_by_key(&reg, |p| p.msr).ok().map(|i| &self.plain[i])
    }

    pub(crate) fn plain_mut(&mut self, reg: u32) -> Option<&mut Plain> {
        self.plain.binary_search_by_key(&reg, |p| p.msr).ok().map(|i| &mut self.plain[i])
    }
}
