//! CPUID: leaves derived from the machine's file, and leaves that the file lists.

use crate::firmware::Interface;
use crate::silicon::Silicon;
use crate::spec::Vendor;

/// EAX, EBX, ECX, EDX.
pub type CpuidRegisters = [u32; 4];

impl Silicon {
    /// Returns the registers of a leaf about power, performance or identity, or `None` for other
    /// leaves, which an emulator answers itself.
    pub fn cpuid(&self, leaf: u32, subleaf: u32, cpu: usize) -> Option<CpuidRegisters> {
        let spec = &*self.spec;
        let own = spec.leaf.iter().find(|l| l.leaf == leaf && l.subleaf.is_none_or(|s| s == subleaf));
        if let Some(l) = own {
            return Some(l.value);
        }
        let kind = &spec.core[self.topology.core_of(cpu).kind];
        let intel = spec.identity.vendor == Vendor::Intel;
        match leaf {
            6 if intel => {
                // EAX: 0 digital sensor, 1 turbo, 2 ARAT, 4 PLN, 6 PTM, 7 HWP, 8 HWP notification,
                // 9 window, 10 EPP, 11 package request. EBX: two thresholds. ECX: 0 APERF/MPERF, 3
                // EPB.
                let mut eax = 0x57 & !(u32::from(!spec.firmware.turbo) << 1);
                if spec.firmware.interface == Interface::Hwp {
                    eax |= 1 << 7 | 1 << 9 | 1 << 11 | u32::from(spec.firmware.has_epp) << 10;
                }
                // EAX 19 hardware feedback. EDX: performance and efficiency, one page, the CPU's
                // row.
                let edx = u32::from(spec.firmware.feedback) * (3 | self.row(cpu) << 16);
                eax |= u32::from(spec.firmware.feedback) << 19;
                Some([eax, 2, 9, edx])
            }
            // AMD: ARAT, and APERF/MPERF in ECX.
            6 => Some([4, 0, 1, 0]),
            // TSC / crystal ratio: EBX / EAX times the crystal of 25 MHz in ECX.
            0x15 if intel => Some([2, spec.clock.tsc_khz / 12_500, 25_000_000, 0]),
            0x16 if intel => Some([kind.base_mhz, kind.max_mhz, spec.clock.bus_khz / 1000, 0]),
            0x8000_0002..=0x8000_0004 => {
                let mut brand = [0u8; 48];
                for (to, from) in brand.iter_mut().zip(spec.identity.brand.bytes()) {
                    *to = from;
                }
                let at = (leaf - 0x8000_0002) as usize * 16;
                let word = |i: usize| {
                    u32::from_le_bytes([
                        brand[at + i],
                        brand[at + i + 1],
                        brand[at + i + 2],
                        brand[at + i + 3],
                    ])
                };
                Some([word(0), word(4), word(8), word(12)])
            }
            // EDX: 6..10 as in the lab's Zen configuration: RAPL 14, read-only APERF/MPERF 10, CPB
            // 9, invariant TSC 8, P-states 7.
            0x8000_0007 if !intel => {
                let mut edx = 1 << 8 | 1 << 10 | 1 << 14;
                edx |= u32::from(spec.firmware.turbo) << 9
                    | u32::from(!spec.firmware.pstates_mhz.is_empty()) << 7;
                Some([0, 0, 0, edx])
            }
            0x8000_0008 if !intel => {
                // EBX: CLZERO, WBNOINVD, IBPB; bit 27 CPPC in MSRs.
                let ebx = 0x1201 | u32::from(spec.firmware.interface == Interface::CppcMsr) << 27;
                Some([0x3028, ebx, 0x3000 | (spec.cores_per_package() as u32 * kind.threads - 1), 0])
            }
            _ => None,
        }
    }
}
