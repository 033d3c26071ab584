//! Decodes latched registers into each CPU's request and the limits of turbo switches.

use crate::firmware::{Interface, Request};
use crate::silicon::Silicon;
use crate::spec::Vendor;

const TURBO_DISABLE: u64 = 1 << 38;
const PERF_CTL_TURBO_DISENGAGE: u64 = 1 << 32;
const CPB_DISABLE: u64 = 1 << 25;

impl Silicon {
    /// Returns whether this CPU's request is a performance level (HWP or CPPC) and not a P-state.
    pub(crate) fn requests_levels(&self, cpu: usize) -> bool {
        let r = &self.registers.cpu[cpu];
        match self.spec.firmware.interface {
            Interface::Hwp => self.registers.package[self.topology.package_of(cpu)].pm_enable & 1 != 0,
            Interface::CppcMsr => r.cppc_enable & 1 != 0,
            Interface::CppcShared => r.shared.enable != 0 || self.spec.identity.vendor == Vendor::Arm,
            Interface::PerfCtl | Interface::AmdPstate => false,
        }
    }

    /// The frequency of a performance level on a CPU's core type, kHz, clamped to the core's range.
    /// Intel levels are relative to the highest level (100 MHz each, less on hybrid performance
    /// cores), AMD levels to the nominal level.
    pub fn level_khz(&self, cpu: usize, level: u32) -> u32 {
        let k = self.topology.core_of(cpu).kind;
        let (kind, scale) = (&self.kinds[k], &self.spec.core[k].perf);
        let (khz, unit) = match self.spec.firmware.interface {
            Interface::Hwp | Interface::PerfCtl => (kind.max, scale.highest),
            _ => (kind.base, scale.nominal),
        };
        let khz = u64::from(level) * u64::from(khz) / u64::from(unit.max(1));
        // The processor clamps to the nearest existing level.
        (khz as u32).clamp(kind.min, kind.max)
    }

    pub(crate) fn decode_request(&self, cpu: usize) -> Request {
        let r = &self.registers.cpu[cpu];
        let core = self.topology.core_of(cpu);
        let kind = &self.kinds[core.kind];
        if !self.requests_levels(cpu) {
            return self.decode_pstate(cpu);
        }
        // Register fields are bytes, and the callers shift without masking.
        let mask = if self.spec.firmware.interface == Interface::CppcShared { u32::MAX } else { 0xff };
        let level = |x: u32| self.level_khz(cpu, x & mask);
        let request = |min: u32, max: u32, desired: u32, epp: u32| Request {
            min: level(min),
            // A maximum of 0 is below the lowest level, so the lowest applies.
            max: if max & mask == 0 { kind.min } else { level(max) },
            desired: if desired & mask == 0 { 0 } else { level(desired) },
            epp: epp as u8,
        };
        match self.spec.firmware.interface {
            Interface::Hwp => {
                let package = self.registers.package[core.package].hwp_request;
                // Bit 42, package control: the fields come from IA32_HWP_REQUEST_PKG instead (Intel
                // SDM 4).
                let v = if r.hwp_request >> 42 & 1 != 0 { package } else { r.hwp_request };
                let epp =
                    // Without EPP the bias of 0 to 15 is the preference, scaled to EPP: 17 = 255 /
                    // 15 (intel_pstate.c, intel_pstate_get_epb).
                    if self.spec.firmware.has_epp { (v >> 24) as u32 } else { (r.epb & 0xf) as u32 * 17 };
                request(v as u32, (v >> 8) as u32, (v >> 16) as u32, epp)
            }
            Interface::CppcMsr => {
                let v = r.cppc_request as u32;
                request(v >> 8, v, v >> 16, v >> 24)
            }
            _ => {
                let s = &r.shared;
                // Desired performance is ignored under autonomous selection (ACPI 6.5,
                // 8.4.6.1.4.1).
                let desired = if s.auto_select != 0 { 0 } else { s.desired };
                request(s.min, s.max, desired, s.epp)
            }
        }
    }

    /// Decodes PERF_CTL's ratio, or the definition of AMD's P-state.
    fn decode_pstate(&self, cpu: usize) -> Request {
        let r = &self.registers.cpu[cpu];
        let kind = &self.kinds[self.topology.core_of(cpu).kind];
        let khz = match self.spec.firmware.interface {
            Interface::Hwp | Interface::PerfCtl => (r.perf_ctl >> 8 & 0xff) as u32 * self.spec.clock.bus_khz,
            _ => {
                let i = (r.perf_ctl & 7) as usize;
                let states = &self.spec.firmware.pstates_mhz;
                match states.get(i).or(states.last()) {
                    // With boost, P0 requests as much as power and heat allow.
                    Some(_) if i == 0 => kind.max,
                    Some(&mhz) => mhz * 1000,
                    None => kind.max,
                }
            }
        };
        let khz = khz.clamp(kind.min, kind.max);
        // A P-state is a fixed request: the firmware has no choice.
        Request { min: kind.min, max: kind.max, desired: khz, epp: (r.epb & 0xf) as u8 * 17 }
    }

    /// Returns whether the switches of a core's threads allow turbo.
    pub(crate) fn core_turbo_allowed(&self, core: usize) -> bool {
        let place = self.topology.core(core);
        // One thread that disables turbo disables it for the whole core.
        place.cpus.iter().all(|&cpu| {
            let r = &self.registers.cpu[cpu];
            match self.spec.firmware.interface {
                Interface::Hwp | Interface::PerfCtl => {
                    r.misc_enable & TURBO_DISABLE == 0
                        // PERF_CTL's disengage bit has an effect only while HWP is off.
                        && (self.requests_levels(cpu) || r.perf_ctl & PERF_CTL_TURBO_DISENGAGE == 0)
                }
                _ => r.hwcr & CPB_DISABLE == 0,
            }
        })
    }

    /// The turbo limits of a package for one kind of code: (active cores, kHz). Limits of plain
    /// code come from the registers, others from the machine's file or its Speed Select level.
    pub(crate) fn turbo_table(&self, package: usize, license: usize) -> Vec<(u32, u32)> {
        let t = &self.spec.turbo;
        let r = &self.registers.package[package];
        let counts = |i: usize| -> u32 {
            if t.counts_register {
                if i < 8 { (r.turbo_counts >> (8 * i) & 0xff) as u32 } else { u32::MAX }
            } else {
                t.cores.get(i).copied().unwrap_or(i as u32 + 1)
            }
        };
        let plain: Vec<(u32, u32)> = (0..t.cores.len())
            .map(|i| {
                // Buckets after the eighth: MSR 0x1AE has their ratios on client parts, but core
                // counts on servers.
                let ratio = if i < 8 {
                    (r.turbo_ratios >> (8 * i) & 0xff) as u32
                } else if t.counts_register {
                    0xff
                } else {
                    (r.turbo_counts >> (8 * (i - 8)) & 0xff) as u32
                };
                (counts(i), ratio * self.spec.clock.bus_khz)
            })
            // Skip empty buckets: parts with fewer than eight leave the others at 0.
            .filter(|b| b.0 > 0 && b.1 > 0)
            .collect();
        if license == 0 {
            return plain;
        }
        if let Some(s) = &self.sst
            && let Some(own) = s.level_turbo(package, license)
        {
            return own;
        }
        // Without its own list, AVX-512 has the limits of AVX2, and AVX2 those of plain code.
        let list = if license == 2 && !t.avx512_mhz.is_empty() { &t.avx512_mhz } else { &t.avx2_mhz };
        if list.is_empty() {
            return plain;
        }
        t.cores.iter().zip(list).map(|(&c, &mhz)| (c, mhz * 1000)).collect()
    }

    /// The share of the uncore's power under its frequency limits: frequency times voltage squared,
    /// where voltage falls half as fast as frequency. The uncore runs at its highest allowed
    /// frequency.
    pub(crate) fn uncore_share(&self, package: usize) -> f64 {
        let Some(u) = &self.spec.uncore else { return 1.0 };
        let share = |ratio: u64| {
            let max = ratio as f64 * 100.0;
            let f = max.clamp(f64::from(u.min_mhz), f64::from(u.max_mhz)) / f64::from(u.max_mhz.max(1));
            let v = 0.5 + 0.5 * f;
            // Estimated: a third of the uncore's power does not depend on its clock.
            0.3 + 0.7 * f * v * v
        };
        // Each cluster has its own limit. Without clusters, use the package's register.
        let each = self.registers.uncore.len() / self.topology.packages();
        if each == 0 {
            return share(self.registers.package[package].uncore_limit & 0x7f);
        }
        let clusters = &self.registers.uncore[package * each..(package + 1) * each];
        clusters.iter().map(|control| share(control >> 8 & 0x7f)).sum::<f64>() / each as f64
    }
}
