//! intel_pstate (drivers/cpufreq/intel_pstate.c): the parts that its modes share.

mod active;
mod files;
mod passive;
mod pstates;

pub(crate) use active::IntelPstate;
pub(crate) use files::{
    base_frequency, firmware_enabled_hwp, register, show_epp, store_epb, store_epp, store_no_turbo,
    store_pct, store_status,
};
pub(crate) use passive::IntelCpufreq;
use passive::percent_requests;
pub(crate) use pstates::Pstates;

use flyball_silicon::msr::{
    CONFIG_TDP_CONTROL, CONFIG_TDP_NOMINAL, HWP_CAPABILITIES, HWP_REQUEST, MISC_ENABLE, PERF_CTL,
    PLATFORM_INFO, PM_ENABLE, TURBO_ACTIVATION_RATIO, TURBO_RATIO_LIMIT,
};

use super::{
    Platform,
    policy::{Limits, Policy},
};
use crate::{
    errno::Answer,
    kernel::Kernel,
    trace::{Context, Event, Kind},
};

/// One step of a ratio, kHz.
const RATIO_KHZ: u32 = 100_000;

/// Mode in intel_pstate/status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Mode {
    Off,
    Active,
    Passive,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        self.into()
    }
}

/// The part of `struct cpudata` that outlives a policy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IntelCpu {
    /// EPP at boot.
    default_epp: Option<u8>,
    /// EPP before the performance policy forced it to 0.
    saved_epp: Option<u8>,
    /// EPB while the CPU is offline.
    pub(crate) epb: u8,
    boost: HwpBoost,
}

/// HWP dynamic boost's part of `struct cpudata`.
#[derive(Debug, Clone, Copy, Default)]
struct HwpBoost {
    /// `hwp_boost_min`: the raised minimum, 0 without boost.
    min: u32,
    /// Time of the last wakeup from IO, ns.
    last_io: u64,
    /// Time when the scheduler last called without a wakeup from IO, or the minimum was raised, ns.
    last_update: u64,
}

/// The driver's global state.
#[expect(clippy::struct_excessive_bools, reason = "the driver's global switches")]
#[derive(Debug)]
pub(crate) struct Intel {
    /// True if the driver registered at boot, so that its files exist.
    pub(crate) present: bool,
    pub(crate) mode: Mode,
    pub(crate) hwp: bool,
    /// True if firmware had enabled HWP before the kernel started (`hwp_forced`).
    pub(crate) forced: bool,
    pub(crate) no_turbo: bool,
    pub(crate) max_pct: u32,
    pub(crate) min_pct: u32,
    pub(crate) dynamic_boost: bool,
    /// Values of the words performance, balance_performance, balance_power, power.
    epp_table: [u8; 4],
    pub(crate) cpus: Vec<IntelCpu>,
}

const EPP_WORDS: [&str; 5] = ["default", "performance", "balance_performance", "balance_power", "power"];

impl Intel {
    pub(crate) fn new(cpus: u32) -> Intel {
        Intel {
            present: false,
            mode: Mode::Off,
            hwp: false,
            forced: false,
            no_turbo: false,
            max_pct: 100,
            min_pct: 0,
            dynamic_boost: false,
            // HWP_EPP_PERFORMANCE and related macros in msr-index.h; 192 corresponds to AMD's 191.
            epp_table: [0, 128, 192, 255],
            cpus: vec![IntelCpu::default(); cpus as usize],
        }
    }

    /// The words' values by model (intel_epp_default in intel_pstate.c).
    fn choose_epp_table(&mut self, kernel: Kernel, model: u32) {
        // Start from the defaults each time, because 0x9a changes only one of them.
        self.epp_table = [0, 128, 192, 255];
        match model {
            // intel_epp_balance_perf[] came after 5.15.
            0x9a if kernel >= Kernel::V6_1 => self.epp_table[1] = 102,
            0x8f | 0xcf if kernel >= Kernel::V6_12 => self.epp_table[1] = 32,
            0xad | 0xae if kernel >= Kernel::V6_18 => self.epp_table[1] = 32,
            0xaa | 0xc6 if kernel >= Kernel::V6_12 => self.epp_table = [16, 64, 179, 255],
            _ => {}
        }
    }
}

/// Returns whether the driver regards turbo as off. Up to 5.15 update_turbo_state() reads the
/// register each time; later kernels read it only at registration and when no_turbo is written
/// (6.1.158 also does so).
pub(crate) fn is_turbo_off(platform: &Platform) -> bool {
    platform.intel.no_turbo || platform.before(Kernel::V6_1) && firmware_disables_turbo(platform)
}

/// MSR 0x1A0 bit 38 on the boot CPU.
pub(crate) fn firmware_disables_turbo(platform: &Platform) -> bool {
    platform.chip.read(0, MISC_ENABLE).is_ok_and(|value| value >> 38 & 1 == 1)
}

/// The global percentages of the turbo P-state, rounded up to P-states.
fn global_limits(platform: &Platform, pstates: &Pstates) -> (u32, u32) {
    // DIV_ROUND_UP of the turbo P-state even if turbo is off: writing no_turbo does not move 50 %.
    let of = |pct: u32| (pstates.turbo * pct).div_ceil(100).clamp(pstates.min, pstates.turbo);
    (of(platform.intel.min_pct), of(platform.intel.max_pct))
}

/// intel_pstate_update_perf_limits(): the range of P-states that the policy and the percentages
/// allow.
fn perf_limits(platform: &Platform, policy: &Policy, pstates: &Pstates) -> (u32, u32) {
    let top = pstates.top(platform);
    let (min, max) = (pstates.limit_level(policy.min), pstates.limit_level(policy.max));
    let (global_min, global_max) = global_limits(platform, pstates);
    // The order is the kernel's: the percentages raise a minimum, but never above the policy's
    // maximum.
    let low = min.max(global_min).min(max).min(top);
    let high = max.min(global_max).max(low).min(top);
    // Like intel_pstate_prepare_request().
    (low.clamp(pstates.min, top), high.clamp(pstates.min, top))
}

fn init(platform: &mut Platform, policy: &mut Policy) -> Answer<Pstates> {
    let cpu = policy.number;
    if platform.intel.hwp {
        // intel_pstate_hwp_enable() runs for each CPU: HWP is on before its capabilities are read.
        platform.chip.write(cpu, PM_ENABLE, 1)?;
    }
    let pstates = Pstates::for_cpu(platform, cpu)?;
    policy.lowest = pstates.lowest_khz;
    // cpuinfo_max_freq depends on no_turbo at registration, and since 6.12 also follows later
    // changes of no_turbo.
    let top = if platform.intel.no_turbo { pstates.max } else { pstates.turbo };
    policy.highest = pstates.khz(top);
    policy.current = policy.lowest;
    if platform.intel.hwp {
        let epp = (platform.chip.read(cpu, HWP_REQUEST)? >> 24) as u8;
        let table = platform.intel.epp_table;
        let state = &mut platform.intel.cpus[cpu as usize];
        if state.default_epp.is_none() {
            state.default_epp = Some(epp);
            // intel_pstate_update_epp_defaults(): firmware's choice becomes the value of
            // balance_performance. If firmware left HWP to the kernel, the model's default replaces
            // the register's value.
            if platform.intel.forced && (1..=128).contains(&epp) {
                platform.intel.epp_table[1] = epp;
            } else if table[1] != 128 {
                state.default_epp = Some(table[1]);
                set_epp(platform, cpu, table[1]);
            }
        }
    }
    Ok(pstates)
}

fn verify(platform: &Platform, policy: &Policy, limits: &mut Limits) {
    let Ok(pstates) = Pstates::for_cpu(platform, policy.number) else { return };
    // Use the current levels: they may have changed since the policy was created.
    limits.clip(policy.lowest, policy.highest.min(pstates.khz(pstates.top(platform))));
}

/// Changes the range and preference of HWP_REQUEST.
fn write_hwp(platform: &mut Platform, cpu: u32, min: u32, max: u32, desired: u32, epp: Option<u8>) {
    // intel_pstate_hwp_set() reads the register too, to preserve the other fields; passive mode
    // keeps a copy (hwp_req_cached).
    let Ok(old) = platform.chip.read(cpu, HWP_REQUEST) else { return };
    // The other fields, activity window and package control, stay as firmware left them.
    let epp = epp.map_or(old >> 24 & 0xff, u64::from);
    let low =
        u64::from(min & 0xff) | u64::from(max & 0xff) << 8 | u64::from(desired & 0xff) << 16 | epp << 24;
    let value = old & !0xffff_ffff | low;
    // Skip unchanged requests: wrmsr costs more than the comparison.
    if value != old {
        let _ = platform.chip.write(cpu, HWP_REQUEST, value);
    }
}

fn set_epp(platform: &mut Platform, cpu: u32, epp: u8) {
    // Only the preference: intel_pstate_set_epp() does not change the limits.
    if let Ok(old) = platform.chip.read(cpu, HWP_REQUEST) {
        let _ = platform.chip.write(cpu, HWP_REQUEST, old & !(0xff << 24) | u64::from(epp) << 24);
    }
}

fn write_perf_ctl(platform: &mut Platform, cpu: u32, pstate: u32) {
    // PERF_CTL's ratio is in bits 15:8.
    let mut value = u64::from(pstate & 0xff) << 8;
    if platform.intel.no_turbo && !firmware_disables_turbo(platform) {
        // core_get_val(): turbo disengage, unless firmware has switched turbo off anyway.
        value |= 1 << 32;
    }
    let _ = platform.chip.write(cpu, PERF_CTL, value);
}

/// Traces a sample. In passive mode the load fields hold the source of the request: 10 for a
/// governor's thread, 90 for the scheduler's fast path.
fn trace_sample(
    platform: &mut Platform,
    policy: &Policy,
    cpu: u32,
    scaling: u32,
    (from, to): (u32, u32),
    load: Option<u32>,
) {
    if !platform.trace.is_enabled(Kind::PstateSample) {
        return;
    }
    let Some(counters) = platform.trace.sample(&platform.chip, cpu) else { return };
    let [mperf, aperf, _] = counters;
    // get_avg_frequency() multiplies APERF/MPERF by cpu_khz, the TSC's frequency, which equals the
    // guaranteed P-state's.
    let top = Pstates::for_cpu(platform, cpu).map_or(0, |pstates| pstates.max);
    // 128 bits: over a long interval, counters times a frequency in kHz overflow 64 bits.
    let khz = u128::from(top) * u128::from(scaling) * u128::from(aperf) / u128::from(mperf.max(1));
    let (busy, scaled) = match load {
        Some(scaled) => ((u128::from(aperf) * 100 / u128::from(mperf.max(1))) as u32, scaled),
        None if platform.trace.context == Context::Tick => (90, 0),
        None => (10, 0),
    };
    // The tracepoint reports percent.
    let io_boost = policy.io_boost * 100 / 1024;
    let event = Event::PstateSample { busy, scaled, from, to, counters, khz: khz as u32, io_boost };
    platform.trace_event(cpu, event);
}

/// Takes a CPU offline: requests the lowest level so that the CPU does not hold up its siblings.
fn leave(platform: &mut Platform, cpu: u32) {
    if platform.intel.hwp {
        if let Ok(caps) = platform.chip.read(cpu, HWP_CAPABILITIES) {
            let lowest = (caps >> 24 & 0xff) as u32;
            let saved = platform.chip.read(cpu, HWP_REQUEST).map_or(128, |value| (value >> 24) as u8);
            let state = &mut platform.intel.cpus[cpu as usize];
            // intel_pstate_hwp_offline(): saves the preference for intel_pstate_hwp_reenable().
            if state.saved_epp.is_none() {
                // Keep the first saved value: the performance policy's 0 must not replace the
                // user's earlier choice.
                state.saved_epp = Some(saved);
            }
            // Lowest performance and EPP 255, so that the core's other thread alone decides.
            write_hwp(platform, cpu, lowest, lowest, 0, Some(255));
        }
    } else if let Ok(pstates) = Pstates::for_cpu(platform, cpu) {
        write_perf_ctl(platform, cpu, pstates.min);
    }
}

/// Restores the preference that going offline or the performance policy replaced.
fn restore_epp(platform: &mut Platform, cpu: u32) -> Option<u8> {
    let now = platform.chip.read(cpu, HWP_REQUEST).map_or(0, |value| (value >> 24) as u8);
    let saved = platform.intel.cpus[cpu as usize].saved_epp.take()?;
    // Another program may have written the register in the meantime; then keep its value.
    (now == 0 || now == 255).then_some(saved)
}
