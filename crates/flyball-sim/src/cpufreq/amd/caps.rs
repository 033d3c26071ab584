//! A CPU's performance levels as amd-pstate reads them, and their frequencies.

use super::CPPC_CAP1;
use crate::{
    board::{Board, CppcAccess},
    cpufreq::Platform,
    errno::{Answer, Errno},
    kernel::Kernel,
};

/// Performance levels of a CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    /// The CPU's own highest level: its preferred-core ranking.
    pub(crate) own: u8,
    /// The level that the driver uses as the highest: `amd_pstate_highest_perf`.
    pub(crate) highest: u8,
    /// The level of the highest frequency.
    numerator: u8,
    pub(crate) nominal: u8,
    pub(crate) lowest_nonlinear: u8,
    pub(crate) lowest: u8,
    nominal_mhz: u32,
    lowest_mhz: u32,
    new: bool,
}

pub(super) fn div_ceil(a: u64, b: u64) -> u64 {
    a.div_ceil(b.max(1))
}

impl Caps {
    pub(crate) fn for_cpu(platform: &Platform, cpu: u32) -> Answer<Caps> {
        match platform.amd.cpus.get(cpu as usize).and_then(|state| state.caps) {
            Some(caps) => Ok(caps),
            None => Caps::read(platform, cpu),
        }
    }

    pub(super) fn read(platform: &Platform, cpu: u32) -> Answer<Caps> {
        let cpc = platform.board.cppc.get(cpu as usize).ok_or(Errno::NODEV)?;
        let (own, nominal, lowest_nonlinear, lowest) = match platform.board.access {
            CppcAccess::Msr => {
                // CAP1 has the levels in the order of _CPC's fields, highest in the top byte.
                let value = platform.chip.read(cpu, CPPC_CAP1)?;
                ((value >> 24) as u8, (value >> 16) as u8, (value >> 8) as u8, value as u8)
            }
            // AMD machines have no levels above 255, so bytes suffice.
            _ => (cpc.highest as u8, cpc.nominal as u8, cpc.lowest_nonlinear as u8, cpc.lowest as u8),
        };
        // The kernel divides by the nominal level.
        if nominal == 0 || lowest == 0 || cpc.nominal_mhz == 0 {
            return Err(Errno::INVAL);
        }
        let board = &platform.board;
        let numerator = if platform.before(Kernel::V6_12) {
            // pstate_init_perf() and cppc_init_perf() of 6.1 use the lower value.
            own.min(highest_by_model(board))
        } else if platform.amd.ranked {
            // With preferred cores, the register differs from core to core but its frequency does
            // not (amd_get_boost_ratio_numerator(), which ignores amd_prefcore=): 196 on Zen 4
            // models 0x70 to 0x7f, 166 elsewhere. If the kinds of cores differ, it is 196 on
            // performance cores and the core's own level on others.
            let place = &board.places[cpu as usize];
            if platform.since(Kernel::V6_18) && board.places.iter().any(|place| place.efficient) {
                if place.efficient { own } else { 196 }
            } else if board.family == 0x19 && (0x70..=0x7f).contains(&board.model) {
                196
            } else {
                166
            }
        } else {
            own
        };
        // 6.12.107 computes levels on each core's own scale (seen there); 6.12.117 uses the
        // numerator, like 6.18.
        let highest = if platform.kernel == Kernel::V6_12 { own } else { numerator };
        let caps = Caps {
            own,
            highest,
            numerator,
            nominal,
            lowest_nonlinear,
            lowest,
            nominal_mhz: cpc.nominal_mhz,
            lowest_mhz: cpc.lowest_mhz,
            new: platform.since(Kernel::V6_18),
        };
        // amd_pstate_init_freq(): from 6.9 on, the driver does not bind if firmware leaves zeros or
        // a nonlinear frequency out of order.
        let (least, nonlinear) = (cpc.lowest_mhz * 1000, caps.khz(lowest_nonlinear));
        if !platform.before(Kernel::V6_12)
            && (least == 0 || nonlinear <= least || nonlinear > cpc.nominal_mhz * 1000)
        {
            return Err(Errno::INVAL);
        }
        Ok(caps)
    }

    /// The frequency of a performance level in kHz. Up to 6.12 it comes from a ratio with ten
    /// binary places, truncated twice.
    pub(crate) fn khz(&self, perf: u8) -> u32 {
        let nominal_khz = u64::from(self.nominal_mhz) * 1000;
        if self.new {
            div_ceil(nominal_khz * u64::from(perf), u64::from(self.nominal)) as u32
        } else if perf == self.nominal {
            nominal_khz as u32
        } else {
            // SCHED_CAPACITY_SHIFT: amd_pstate_init_freq() keeps ten binary places, and truncates
            // to whole MHz.
            let ratio = (u64::from(perf) << 10) / u64::from(self.nominal);
            (((u64::from(self.nominal_mhz) * ratio) >> 10) * 1000) as u32
        }
    }

    /// `amd_pstate_max_freq`, which boost does not change.
    pub(crate) fn highest_khz(&self) -> u32 {
        self.khz(self.numerator)
    }

    pub(crate) fn lowest_khz(&self) -> u32 {
        // Up to 6.12 this is _CPC's lowest frequency; 6.1 accepts it even if firmware left it at 0.
        if self.new { self.khz(self.lowest) } else { self.lowest_mhz * 1000 }
    }

    /// The performance level of a frequency (7.2).
    pub(super) fn perf(&self, khz: u32) -> u8 {
        let perf = div_ceil(u64::from(khz) * u64::from(self.nominal), u64::from(self.nominal_mhz) * 1000);
        // The result fits: `highest` is a byte.
        perf.clamp(u64::from(self.lowest), u64::from(self.highest)) as u8
    }
}

/// amd_get_highest_perf() of kernels before 6.9 (arch/x86/kernel/cpu/amd.c): the highest level on
/// models of two families.
pub(in crate::cpufreq) fn highest_by_model(board: &Board) -> u8 {
    match (board.family, board.model) {
        (0x17, 0x30..0x40 | 0x70..0x80) | (0x19, 0x20..0x30 | 0x40..0x70) => 166,
        _ => 255,
    }
}
