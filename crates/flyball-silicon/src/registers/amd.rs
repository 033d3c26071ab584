//! AMD's registers: CPPC, P-states, boost, RAPL. Fields as in the kernel's asm/msr-index.h,
//! amd-pstate.c and turbostat.

use crate::fault::Fault;
use crate::firmware::Interface;
use crate::msr;
use crate::silicon::Silicon;
use crate::spec::EnergyDomain;

impl Silicon {
    pub(super) fn read_amd(&self, cpu: usize, reg: u32) -> Option<u64> {
        let r = &self.registers.cpu[cpu];
        let place = self.topology.core_of(cpu);
        let core = self.topology.cpu(cpu).core;
        let spec = &*self.spec;
        let p = &spec.power;
        let states = &spec.firmware.pstates_mhz;
        let cppc = spec.firmware.interface == Interface::CppcMsr;
        let has = |d: EnergyDomain| p.domains.contains(&d);
        Some(match reg {
            msr::TSC_ADJUST => r.tsc_adjust,
            msr::BIOS_SIGN_ID => u64::from(spec.identity.microcode),
            msr::AMD_HWCR => r.hwcr,
            // PstateMaxVal, bits 6:4: the slowest P-state that may be requested.
            msr::AMD_PSTATE_LIMIT if !states.is_empty() => (states.len() as u64 - 1) << 4,
            msr::AMD_PERF_CTL if !states.is_empty() => r.perf_ctl,
            msr::AMD_PERF_STATUS if !states.is_empty() => self.current_pstate(core),
            msr::AMD_PSTATE_DEF_BASE..=0xc001_006b if !states.is_empty() => {
                let i = (reg - msr::AMD_PSTATE_DEF_BASE) as usize;
                states.get(i).map_or(0, |&mhz| pstate_definition(mhz, spec.identity.family))
            }
            msr::AMD_CPPC_CAP1 if cppc => {
                let s = &spec.core[place.kind].perf;
                let highest = spec.core[place.kind]
                    .ranking
                    .get(place.in_package as usize)
                    .copied()
                    .unwrap_or(s.highest);
                // AMD_CPPC_CAP1, from the lowest byte: lowest, lowest nonlinear, nominal, highest
                // (asm/msr-index.h). With preferred cores the highest level is the core's own
                // ranking.
                u64::from(s.lowest)
                    | u64::from(s.efficient) << 8
                    | u64::from(s.nominal) << 16
                    | u64::from(highest) << 24
            }
            msr::AMD_CPPC_ENABLE if cppc => r.cppc_enable,
            msr::AMD_CPPC_CAP2 if cppc => u64::from(spec.core[place.kind].perf.highest),
            msr::AMD_CPPC_REQ if cppc => r.cppc_request,
            msr::AMD_CPPC_STATUS if cppc => 0,
            msr::AMD_CPPC_REQ2 if cppc && spec.identity.flags.split(' ').any(|f| f == "cppc_perf_prio") => {
                r.cppc_request2
            }
            msr::AMD_RAPL_POWER_UNIT if has(EnergyDomain::Package) => {
                u64::from(p.power_unit) | u64::from(p.energy_unit) << 8 | u64::from(p.time_unit) << 16
            }
            msr::AMD_CORE_ENERGY_STATUS if has(EnergyDomain::Core) => {
                u64::from(self.core_energy_counter(core))
            }
            msr::AMD_PKG_ENERGY_STATUS if has(EnergyDomain::Package) => {
                u64::from(self.esu().counter(self.package[place.package].energy))
            }
            _ => return None,
        })
    }

    /// The P-state with the nearest frequency at or below the current one.
    fn current_pstate(&self, core: usize) -> u64 {
        let states = &self.spec.firmware.pstates_mhz;
        let mhz = self.core[core].khz / 1000;
        states.iter().position(|&s| mhz >= s).unwrap_or(states.len().saturating_sub(1)) as u64
    }

    pub(super) fn write_amd(&mut self, cpu: usize, reg: u32, value: u64) -> Result<(), Fault> {
        let package = self.topology.package_of(cpu);
        let cppc = self.spec.firmware.interface == Interface::CppcMsr;
        let r = &mut self.registers.cpu[cpu];
        match reg {
            msr::TSC_ADJUST => r.tsc_adjust = value,
            msr::BIOS_SIGN_ID => {}
            msr::AMD_HWCR => {
                // CpbDis may have changed, which disables boost on the package's cores.
                r.hwcr = value;
                self.package[package].stale = true;
            }
            msr::AMD_PERF_CTL if !self.spec.firmware.pstates_mhz.is_empty() => r.perf_ctl = value & 7,
            // Once enabled, CPPC stays on until reset. The register exists once per package: Linux
            // 6.12 writes it on one CPU of each.
            msr::AMD_CPPC_ENABLE if cppc => {
                for other in 0..self.registers.cpu.len() {
                    if self.topology.package_of(other) == package {
                        self.registers.cpu[other].cppc_enable |= value & 1;
                    }
                }
            }
            // The upper half is reserved.
            msr::AMD_CPPC_REQ if cppc => r.cppc_request = value & 0xffff_ffff,
            msr::AMD_CPPC_REQ2 if cppc && self.read_msr(cpu, reg).is_ok() => {
                self.registers.cpu[cpu].cppc_request2 = value & 0xff;
            }
            _ if self.write_counter(cpu, reg, value) => {}
            _ => return Err(Fault::ReadOnly(reg)),
        }
        Ok(())
    }
}

/// A P-state definition register: enabled (bit 63), frequency = 200 MHz x FID / DID (families 17h
/// and 19h), or 5 MHz x FID (from 1Ah on).
fn pstate_definition(mhz: u32, family: u32) -> u64 {
    if family >= 0x1a {
        return 1 << 63 | u64::from(mhz / 5) & 0xfff;
    }
    // DID 8 means a divider of 1, in steps of an eighth: frequency = FID x 25 MHz.
    1 << 63 | 8 << 8 | u64::from((mhz / 25).min(255))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_decode_back() {
        for mhz in [1600, 2400, 3300] {
            let v = pstate_definition(mhz, 0x19);
            assert_eq!(200 * (v & 0xff) / (v >> 8 & 0x3f), u64::from(mhz));
            assert_eq!(5 * (pstate_definition(mhz, 0x1a) & 0xfff), u64::from(mhz));
        }
    }
}
