//! Numbers of the model-specific registers that flyball reads or writes.
//!
//! Names and numbers come from the kernel's arch/x86/include/asm/msr-index.h, unless the line gives
//! another source.

/// drivers/platform/x86/intel/tpmi_power_domains.c; the power unit's number of a CPU on TPMI
/// processors.
pub const MSR_PM_LOGICAL_ID: u32 = 0x54;
pub const MSR_FSB_FREQ: u32 = 0xcd;
pub const MSR_PLATFORM_INFO: u32 = 0xce;
pub const MSR_PKG_CST_CONFIG_CONTROL: u32 = 0xe2;
pub const MSR_IA32_PERF_STATUS: u32 = 0x198;
pub const MSR_IA32_PERF_CTL: u32 = 0x199;
pub const MSR_IA32_THERM_STATUS: u32 = 0x19c;
pub const MSR_IA32_MISC_ENABLE: u32 = 0x1a0;
pub const MSR_IA32_TEMPERATURE_TARGET: u32 = 0x1a2;
pub const MSR_MISC_FEATURE_CONTROL: u32 = 0x1a4;
pub const MSR_MISC_PWR_MGMT: u32 = 0x1aa;
/// Eight ratios of 100 MHz, bucket 0 in the low byte.
pub const MSR_TURBO_RATIO_LIMIT: u32 = 0x1ad;
/// On servers since Skylake: the largest number of active cores of each of the eight buckets.
pub const MSR_TURBO_RATIO_LIMIT1: u32 = 0x1ae;
pub const MSR_TURBO_RATIO_LIMIT2: u32 = 0x1af;
pub const MSR_IA32_ENERGY_PERF_BIAS: u32 = 0x1b0;
pub const MSR_IA32_PACKAGE_THERM_STATUS: u32 = 0x1b1;
pub const MSR_IA32_POWER_CTL: u32 = 0x1fc;
pub const MSR_RAPL_POWER_UNIT: u32 = 0x606;
pub const MSR_PKG_POWER_LIMIT: u32 = 0x610;
pub const MSR_PKG_POWER_INFO: u32 = 0x614;
pub const MSR_DRAM_POWER_LIMIT: u32 = 0x618;
pub const MSR_DRAM_POWER_INFO: u32 = 0x61c;
pub const MSR_UNCORE_RATIO_LIMIT: u32 = 0x620;
pub const MSR_UNCORE_PERF_STATUS: u32 = 0x621;
pub const MSR_PP0_POWER_LIMIT: u32 = 0x638;
pub const MSR_PP1_POWER_LIMIT: u32 = 0x640;
pub const MSR_CONFIG_TDP_NOMINAL: u32 = 0x648;
pub const MSR_CONFIG_TDP_LEVEL_1: u32 = 0x649;
pub const MSR_CONFIG_TDP_LEVEL_2: u32 = 0x64a;
/// Bit 31: the level is locked.
pub const MSR_CONFIG_TDP_CONTROL: u32 = 0x64b;
pub const MSR_TURBO_ACTIVATION_RATIO: u32 = 0x64c;
/// `MSR_CORE_PERF_LIMIT_REASONS` of processors since Skylake (Intel SDM volume 4); the kernel names
/// only the older 0x690.
pub const MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE: u32 = 0x64f;
pub const MSR_CORE_PERF_LIMIT_REASONS: u32 = 0x690;
pub const MSR_GFX_PERF_LIMIT_REASONS: u32 = 0x6b0;
pub const MSR_RING_PERF_LIMIT_REASONS: u32 = 0x6b1;
pub const MSR_PM_ENABLE: u32 = 0x770;
pub const MSR_HWP_CAPABILITIES: u32 = 0x771;
pub const MSR_HWP_REQUEST_PKG: u32 = 0x772;
pub const MSR_HWP_INTERRUPT: u32 = 0x773;
pub const MSR_HWP_REQUEST: u32 = 0x774;
pub const MSR_HWP_STATUS: u32 = 0x777;

pub const MSR_K7_HWCR: u32 = 0xc001_0015;
/// The name is from drivers/cpufreq/powernow-k8.h. The fastest P-state that is allowed now.
pub const MSR_PSTATE_CUR_LIMIT: u32 = 0xc001_0061;
pub const MSR_AMD_PERF_CTL: u32 = 0xc001_0062;
pub const MSR_AMD_PERF_STATUS: u32 = 0xc001_0063;
/// P-state 0. The others follow it.
pub const MSR_AMD_PSTATE_DEF_BASE: u32 = 0xc001_0064;
pub const MSR_AMD_RAPL_POWER_UNIT: u32 = 0xc001_0299;
pub const MSR_AMD_CORE_ENERGY_STATUS: u32 = 0xc001_029a;
pub const MSR_AMD_CPPC_CAP1: u32 = 0xc001_02b0;
pub const MSR_AMD_CPPC_ENABLE: u32 = 0xc001_02b1;
pub const MSR_AMD_CPPC_CAP2: u32 = 0xc001_02b2;
pub const MSR_AMD_CPPC_REQ: u32 = 0xc001_02b3;
pub const MSR_AMD_CPPC_STATUS: u32 = 0xc001_02b4;
pub const MSR_AMD_CPPC_REQ2: u32 = 0xc001_02b5;

/// Returns the number of cores per unit of MSR 0x1ae: Xeons with E-cores (Sierra Forest, Clearwater
/// Forest) count modules of four.
pub fn cores_per_turbo_count(model: u32) -> u32 {
    if matches!(model, 0xaf | 0xdd) { 4 } else { 1 }
}
