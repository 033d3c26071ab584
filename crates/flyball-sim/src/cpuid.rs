//! The CPUID leaves of identity and topology, which follow from a machine's description.
//! flyball-silicon answers those about power and performance.

use flyball_silicon::{
    Silicon,
    spec::{CoreKind, Vendor},
};

/// Returns EAX, EBX, ECX and EDX of a leaf; zeros for leaves that such processors do not have.
pub(crate) fn answer(silicon: &Silicon, leaf: u32, subleaf: u32, cpu: usize) -> [u32; 4] {
    // Leaves in the description take precedence: recorded machines have some.
    if let Some(registers) = silicon.cpuid(leaf, subleaf, cpu) {
        return registers;
    }
    let spec = silicon.spec();
    let intel = spec.identity.vendor == Vendor::Intel;
    let text = |bytes: &[u8; 12]| {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        (word(0), word(4), word(8))
    };
    let place = silicon.topology().core_of(cpu);
    let threads = place.threads;
    let logical = spec.cores_per_package() as u32 * threads;
    let bits = |count: u32| count.next_power_of_two().trailing_zeros();
    // Package, core and thread numbers, each in as many bits as it needs.
    let apic = ((place.package as u32) << bits(logical.max(1)))
        | (place.in_package << bits(threads))
        | silicon.topology().cpu(cpu).thread;
    match leaf {
        0 => {
            let (first, second, third) = text(if intel { b"GenuineIntel" } else { b"AuthenticAMD" });
            // The order of the registers is EBX, EDX, ECX.
            [if intel { 0x16 } else { 0x10 }, first, third, second]
        }
        1 => {
            let (family, model) = (spec.identity.family, spec.identity.model);
            // Families above 15 are the sum of both fields; models have their upper half in bits
            // 19:16 (Intel SDM 2A, CPUID).
            let extended = family.saturating_sub(15);
            let signature = spec.identity.stepping & 0xf
                | (model & 0xf) << 4
                | family.min(15) << 8
                | (model >> 4 & 0xf) << 16
                | extended << 20;
            // ECX: SSE3, MONITOR, EST, TM2 and common features; EDX: FPU, TSC, MSR, APIC, ACPI, HT,
            // TM and common features.
            let ecx = 0x7ed8_3203 | if intel { 1 << 7 | 1 << 8 } else { 0 };
            [signature, apic << 24 | (logical.min(255)) << 16 | 8 << 8, ecx, 0xbfeb_fbff]
        }
        // Write-back caches with lines of 64 bytes. Enough for tools that only check that caches
        // exist.
        4 | 0x8000_001d if subleaf < 4 => [0x121 + 0x20 * subleaf, 0x1c0_003f, 0x3f, 0],
        5 => [64, 64, 3, 0x1120],
        7 if subleaf == 0 => [0, 1 << 3 | 1 << 5 | 1 << 8, 0, u32::from(spec.core.len() > 1) << 15],
        0xb => match subleaf {
            0 => [bits(threads), threads, 1 << 8, apic],
            1 => [bits(logical), logical, 2 << 8 | 1, apic],
            _ => [0, 0, subleaf, apic],
        },
        // Native model: 0x40 Core, 0x20 Atom (Intel SDM 2A).
        0x1a => {
            let kind = spec.core[place.kind].kind;
            let big = kind == CoreKind::Performance;
            [if big { 0x40 << 24 } else { 0x20 << 24 }, 0, 0, 0]
        }
        0x8000_0000 if intel => [0x8000_0008, 0, 0, 0],
        0x8000_0000 => [if spec.core.len() > 1 { 0x8000_0026 } else { 0x8000_001e }, 0, 0, 0],
        0x8000_0001 => [0, 0, 0x121, 0x2c10_0800],
        // Invariant TSC.
        0x8000_0007 => [0, 0, 0, 1 << 8],
        0x8000_0008 => [0x302e, 0, 0, 0],
        0x8000_001e => [apic, place.in_package | (threads - 1) << 8, place.package as u32, 0],
        // Core types (AMD APM volume 3): EAX bit 30 says that they differ; EBX 31:28 is this core's
        // type.
        0x8000_0026 if !intel && spec.core.len() > 1 => {
            let kind = match spec.core[place.kind].kind {
                CoreKind::Performance => 0,
                CoreKind::Efficiency => 1 << 28,
                CoreKind::LowPower => 2 << 28,
            };
            match subleaf {
                0 => [1 << 30 | bits(threads), kind | threads, 1 << 8, apic],
                // The socket level.
                1 => [1 << 30 | bits(logical), logical, 4 << 8 | 1, apic],
                _ => [0, 0, subleaf, apic],
            }
        }
        _ => [0; 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_silicon::MachineSpec;

    #[test]
    fn family_and_model_come_back() {
        for name in MachineSpec::names() {
            let spec = MachineSpec::builtin(name).unwrap();
            // Arm has no CPUID instruction.
            if spec.identity.vendor == Vendor::Arm {
                continue;
            }
            let (family, model) = (spec.identity.family, spec.identity.model);
            let silicon = Silicon::new(spec, 0).unwrap();
            let signature = answer(&silicon, 1, 0, 0)[0];
            let base = signature >> 8 & 0xf;
            let read = if base == 15 { base + (signature >> 20 & 0xff) } else { base };
            assert_eq!(
                (read, signature >> 4 & 0xf | (signature >> 16 & 0xf) << 4),
                (family, model),
                "{name}"
            );
        }
    }

    #[test]
    fn apic_numbers_differ() {
        let silicon = Silicon::new(MachineSpec::builtin("epyc-512").unwrap(), 0).unwrap();
        let all: std::collections::HashSet<u32> =
            (0..512).map(|cpu| answer(&silicon, 0xb, 0, cpu)[3]).collect();
        assert_eq!(all.len(), 512);
    }
}
