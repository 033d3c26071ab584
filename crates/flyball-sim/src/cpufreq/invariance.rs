//! The frequency that the kernel regards as a CPU's full speed when it scales utilisation. It is
//! neither the highest nor the nominal frequency (arch/x86/kernel/cpu/aperfmperf.c,
//! arch/x86/kernel/acpi/cppc.c).

use super::Platform;
use flyball_silicon::msr;

use crate::{
    board::{CppcAccess, Vendor},
    kernel::Kernel,
};

// Full speed is a ratio to the base frequency; both are multiples of this clock.
const BUS_KHZ: u64 = 100_000;
/// Fixed-point representation of 1.
const ONE: u64 = 1024;

/// Frequencies at which a CPU's utilisation grows as fast as time passes, kHz.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FullSpeed {
    /// With turbo on.
    pub(crate) turbo: u32,
    /// With turbo off in intel_pstate.
    pub(crate) base: u32,
}

/// Returns the full speed of all CPUs, from the first CPU's registers and tables. `None` if the
/// kernel would not know it, and on hybrid machines, whose scales differ by core.
pub(crate) fn full_speed(platform: &Platform) -> Option<FullSpeed> {
    // Hybrid processors get capacities by core from HWP's levels
    // (arch_enable_hybrid_capacity_scale()).
    if platform.chip.silicon().spec().core.len() > 1 {
        return None;
    }
    let (base, ratio) = match platform.board.vendor {
        // The highest level's frequency, whether boost is on or not
        // (topology_init_cpu_capacity_cppc()).
        Vendor::Arm => {
            let levels = platform.board.cppc.first()?;
            (super::cppc::khz(levels, levels.highest).into(), ONE)
        }
        // Since 5.7 on Intel and since 5.11 on AMD (arch/x86/kernel/smpboot.c,
        // init_freq_invariance()).
        Vendor::Intel if platform.since(Kernel::V5_10) => intel(platform)?,
        Vendor::Amd if platform.since(Kernel::V5_15) => amd(platform)?,
        _ => return None,
    };
    let turbo = (base * ratio / ONE) as u32;
    Some(FullSpeed { turbo, base: base as u32 })
}

/// `intel_set_max_freq_ratio`: the turbo frequency with four busy cores, or with one core if there
/// are fewer.
fn intel(platform: &Platform) -> Option<(u64, u64)> {
    let read = |register| platform.chip.read(0, register).ok();
    // Bits 15:8, the highest ratio without turbo (core_set_max_freq_ratio()).
    let base = read(msr::PLATFORM_INFO)? >> 8 & 0xff;
    let turbo = msr::turbo_ratio_of_four(platform.board.model, read)?;
    // The kernel leaves invariance off in this case.
    if base == 0 || turbo == 0 {
        return None;
    }
    Some((base * BUS_KHZ, turbo * ONE / base))
}

/// `amd_set_max_freq_ratio`: halfway between nominal and highest performance.
fn amd(platform: &Platform) -> Option<(u64, u64)> {
    let board = &platform.board;
    let first = board.cppc.first().filter(|first| first.nominal > 0)?;
    if board.access == CppcAccess::None {
        return None;
    }
    let highest = if platform.before(Kernel::V6_12) {
        u64::from(super::amd::highest_by_model(board))
    } else if board.cppc.iter().all(|cpu| cpu.highest == first.highest) {
        u64::from(first.highest)
    } else if board.family == 0x19 && (0x70..0x80).contains(&board.model) {
        196
    } else {
        166
    };
    // "midpoint between max_boost and max_P" (amd_set_max_freq_ratio()).
    let ratio = (highest * ONE / u64::from(first.nominal)).midpoint(ONE);
    Some((u64::from(first.nominal_mhz) * 1000, ratio))
}
