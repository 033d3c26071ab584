//! The numbers of the model-specific registers that the processors have, as in the kernel's
//! asm/msr-index.h, and values that the kernel computes from several registers.

#![allow(
    missing_docs,
    reason = "the names are the documentation; what each holds is in registers/intel.rs and amd.rs"
)]

pub const TSC: u32 = 0x10;
pub const PLATFORM_ID: u32 = 0x17;
pub const SMI_COUNT: u32 = 0x34;
pub const TSC_ADJUST: u32 = 0x3b;
/// PUNIT numbering of a CPU: bit 0 thread, 8:1 core, 13:9 punit.
pub const THREAD_ID_INFO: u32 = 0x53;
/// Logical CPU, module and power domain of a CPU on parts with TPMI.
pub const PM_LOGICAL_ID: u32 = 0x54;
pub const BIOS_SIGN_ID: u32 = 0x8b;
pub const OS_MAILBOX_INTERFACE: u32 = 0xb0;
pub const OS_MAILBOX_DATA: u32 = 0xb1;
pub const PLATFORM_INFO: u32 = 0xce;
pub const MPERF: u32 = 0xe7;
pub const APERF: u32 = 0xe8;
/// PCI bus numbers of the PUNIT's functions (bits 7:0 bus 0, 15:8 bus 1).
pub const CPU_BUS_NUMBER: u32 = 0x128;
pub const PERF_STATUS: u32 = 0x198;
pub const PERF_CTL: u32 = 0x199;
pub const CLOCK_MODULATION: u32 = 0x19a;
pub const THERM_INTERRUPT: u32 = 0x19b;
pub const THERM_STATUS: u32 = 0x19c;
pub const MISC_ENABLE: u32 = 0x1a0;
pub const TEMPERATURE_TARGET: u32 = 0x1a2;
pub const TURBO_RATIO_LIMIT: u32 = 0x1ad;
/// Core counts of the turbo buckets on server parts, ratios 8 to 15 elsewhere.
pub const TURBO_RATIO_LIMIT1: u32 = 0x1ae;
pub const TURBO_RATIO_LIMIT2: u32 = 0x1af;
pub const ENERGY_PERF_BIAS: u32 = 0x1b0;
pub const PACKAGE_THERM_STATUS: u32 = 0x1b1;
pub const PACKAGE_THERM_INTERRUPT: u32 = 0x1b2;
pub const PKG_C3_RESIDENCY: u32 = 0x3f8;
pub const PKG_C6_RESIDENCY: u32 = 0x3f9;
pub const PKG_C7_RESIDENCY: u32 = 0x3fa;
pub const CORE_C3_RESIDENCY: u32 = 0x3fc;
pub const CORE_C6_RESIDENCY: u32 = 0x3fd;
pub const CORE_C7_RESIDENCY: u32 = 0x3fe;
pub const RAPL_POWER_UNIT: u32 = 0x606;
pub const PKG_C2_RESIDENCY: u32 = 0x60d;
pub const PKG_POWER_LIMIT: u32 = 0x610;
pub const PKG_ENERGY_STATUS: u32 = 0x611;
pub const PKG_PERF_STATUS: u32 = 0x613;
pub const PKG_POWER_INFO: u32 = 0x614;
pub const DRAM_POWER_LIMIT: u32 = 0x618;
pub const DRAM_ENERGY_STATUS: u32 = 0x619;
pub const DRAM_PERF_STATUS: u32 = 0x61b;
pub const DRAM_POWER_INFO: u32 = 0x61c;
pub const UNCORE_RATIO_LIMIT: u32 = 0x620;
pub const UNCORE_PERF_STATUS: u32 = 0x621;
pub const PKG_C8_RESIDENCY: u32 = 0x630;
pub const PKG_C9_RESIDENCY: u32 = 0x631;
pub const PKG_C10_RESIDENCY: u32 = 0x632;
pub const PP0_POWER_LIMIT: u32 = 0x638;
pub const PP0_ENERGY_STATUS: u32 = 0x639;
pub const PP0_POLICY: u32 = 0x63a;
pub const PP1_POWER_LIMIT: u32 = 0x640;
pub const PP1_ENERGY_STATUS: u32 = 0x641;
pub const PP1_POLICY: u32 = 0x642;
pub const CONFIG_TDP_NOMINAL: u32 = 0x648;
pub const CONFIG_TDP_LEVEL1: u32 = 0x649;
pub const CONFIG_TDP_LEVEL2: u32 = 0x64a;
/// Level in bits 1:0, lock in bit 31.
pub const CONFIG_TDP_CONTROL: u32 = 0x64b;
pub const TURBO_ACTIVATION_RATIO: u32 = 0x64c;
pub const PLATFORM_ENERGY_STATUS: u32 = 0x64d;
pub const PPERF: u32 = 0x64e;
pub const CORE_PERF_LIMIT_REASONS: u32 = 0x64f;
pub const CORE_C1_RESIDENCY: u32 = 0x660;
pub const PM_ENABLE: u32 = 0x770;
pub const HWP_CAPABILITIES: u32 = 0x771;
pub const HWP_REQUEST_PKG: u32 = 0x772;
pub const HWP_INTERRUPT: u32 = 0x773;
pub const HWP_REQUEST: u32 = 0x774;
pub const HWP_STATUS: u32 = 0x777;

/// Address of the hardware feedback table, and whether the system enabled it.
pub const HW_FEEDBACK_PTR: u32 = 0x17d0;
pub const HW_FEEDBACK_CONFIG: u32 = 0x17d1;

pub const AMD_MPERF_RO: u32 = 0xc000_00e7;
pub const AMD_APERF_RO: u32 = 0xc000_00e8;
pub const AMD_HWCR: u32 = 0xc001_0015;
pub const AMD_PSTATE_LIMIT: u32 = 0xc001_0061;
pub const AMD_PERF_CTL: u32 = 0xc001_0062;
pub const AMD_PERF_STATUS: u32 = 0xc001_0063;
/// Definition of P-state 0; those of P-states 1 to 7 follow.
pub const AMD_PSTATE_DEF_BASE: u32 = 0xc001_0064;
pub const AMD_CPPC_CAP1: u32 = 0xc001_02b0;
pub const AMD_CPPC_ENABLE: u32 = 0xc001_02b1;
pub const AMD_CPPC_CAP2: u32 = 0xc001_02b2;
pub const AMD_CPPC_REQ: u32 = 0xc001_02b3;
pub const AMD_CPPC_STATUS: u32 = 0xc001_02b4;
pub const AMD_CPPC_REQ2: u32 = 0xc001_02b5;
pub const AMD_RAPL_POWER_UNIT: u32 = 0xc001_0299;
pub const AMD_CORE_ENERGY_STATUS: u32 = 0xc001_029a;
pub const AMD_PKG_ENERGY_STATUS: u32 = 0xc001_029b;

/// Model of the processors that list the core counts of their turbo ratios.
const SKYLAKE_X: u32 = 0x55;

/// Returns the turbo ratio with four busy cores, or with one core if there are fewer. The kernel
/// uses it as full speed when it scales utilisation (arch/x86/kernel/cpu/aperfmperf.c,
/// `skx_set_max_freq_ratio`, `core_set_max_freq_ratio`). `model` is that of an Intel processor of
/// family 6, `read` reads a register. `None` if a required register cannot be read.
pub fn turbo_ratio_of_four(model: u32, read: impl Fn(u32) -> Option<u64>) -> Option<u64> {
    let ratios = read(TURBO_RATIO_LIMIT)?;
    let of = |group: u64| ratios >> (8 * group) & 0xff;
    let group = if model == SKYLAKE_X {
        let counts = read(TURBO_RATIO_LIMIT1)?;
        (0..8).find(|group| counts >> (8 * group) & 0xff >= 4)
    } else {
        None
    };
    let four = of(group.unwrap_or(3));
    Some(if four == 0 { of(0) } else { four })
}
