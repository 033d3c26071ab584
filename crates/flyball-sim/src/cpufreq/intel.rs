//! intel_pstate (drivers/cpufreq/intel_pstate.c): active with and without HWP, and passive (intel_cpufreq).

mod files;

pub(crate) use files::{
    base_frequency, firmware_enabled_hwp, register, show_epp, store_epb, store_epp, store_no_turbo,
    store_pct, store_status,
};

use super::{
    Driver, Platform, Style,
    policy::{Governor, Limits, Policy},
};
use crate::{
    cpu_state::Cpu,
    errno::{Answer, Errno},
    governor::Relation,
    kernel::Kernel,
    trace::{Context, Event, Kind},
};

// Register numbers as in asm/msr-index.h, here once more: the product's table of names must not be the simulator's too.
const PLATFORM_INFO: u32 = 0xce;
const PERF_CTL: u32 = 0x199;
const MISC_ENABLE: u32 = 0x1a0;
const TURBO_RATIO_LIMIT: u32 = 0x1ad;
/// What a step of a ratio is worth, kHz.
const RATIO_KHZ: u32 = 100_000;
const CONFIG_TDP_NOMINAL: u32 = 0x648;
const CONFIG_TDP_CONTROL: u32 = 0x64b;
const TURBO_ACTIVATION_RATIO: u32 = 0x64c;
const PM_ENABLE: u32 = 0x770;
const HWP_CAPABILITIES: u32 = 0x771;
const HWP_REQUEST: u32 = 0x774;

/// What intel_pstate/status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    Active,
    Passive,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Active => "active",
            Mode::Passive => "passive",
        }
    }
}

/// The part of `struct cpudata` that outlives a policy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IntelCpu {
    /// EPP at boot.
    default_epp: Option<u8>,
    /// EPP before the performance policy forced 0.
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
    /// When the last wake-up from IO was, ns.
    last_io: u64,
    /// When the scheduler last called without one, or the minimum was raised, ns.
    last_update: u64,
}

/// The driver's global state.
#[expect(clippy::struct_excessive_bools, reason = "the driver's global switches")]
#[derive(Debug)]
pub(crate) struct Intel {
    /// The driver registered at boot, so that its files exist.
    pub(crate) present: bool,
    pub(crate) mode: Mode,
    pub(crate) hwp: bool,
    /// Firmware had switched HWP on before the kernel came (`hwp_forced`).
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
            // HWP_EPP_PERFORMANCE and its neighbours in msr-index.h; 192 where AMD has 191.
            epp_table: [0, 128, 192, 255],
            cpus: vec![IntelCpu::default(); cpus as usize],
        }
    }

    /// The words' values by model (intel_epp_default in intel_pstate.c).
    fn choose_epp_table(&mut self, kernel: Kernel, model: u32) {
        // From the defaults each time: 0x9a changes one of them alone.
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

/// P-states of a CPU, in steps of `scaling` kHz.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pstates {
    pub(crate) min: u32,
    /// Guaranteed: the highest without turbo.
    pub(crate) max: u32,
    pub(crate) turbo: u32,
    pub(crate) scaling: u32,
    /// The lowest ratio as a frequency: on hybrid processors levels are not ratios, and this is not a level's.
    lowest_khz: u32,
}

/// The highest ratio without turbo where power levels can be chosen: the one below which turbo begins, if it is just
/// below the level's own (core_get_max_pstate() and core_get_tdp_ratio()). Not asked for under HWP.
fn activation_ratio(platform: &Platform, cpu: u32, info: u64) -> Option<u32> {
    // Bits 34:33 of PLATFORM_INFO: how many power levels besides the nominal one can be chosen.
    if info & 0x6_0000_0000 == 0 {
        return None;
    }
    let level = (platform.chip.read(cpu, CONFIG_TDP_CONTROL).ok()? & 3) as u32;
    let of_level = platform.chip.read(cpu, CONFIG_TDP_NOMINAL + level).ok()?;
    // Level 1 and 2 have the ratio in 23:16, the nominal level in 7:0 (core_get_tdp_ratio()).
    let ratio = (if level == 0 { of_level } else { of_level >> 16 }) & 0xff;
    let activation = platform.chip.read(cpu, TURBO_ACTIVATION_RATIO).ok()? & 0xff;
    (ratio > 0 && ratio - 1 == activation).then_some(activation as u32)
}

impl Pstates {
    pub(crate) fn of(platform: &Platform, cpu: u32) -> Answer<Pstates> {
        let info = platform.chip.read(cpu, PLATFORM_INFO)?;
        let scaling =
            // Not 0: it is divided by.
            platform.board.places.get(cpu as usize).map_or(100_000, |place| place.scaling_khz).max(1);
        let (mut min, mut max) = (((info >> 40) & 0xff) as u32, ((info >> 8) & 0xff) as u32);
        let turbo;
        if platform.intel.hwp {
            let caps = platform.chip.read(cpu, HWP_CAPABILITIES)?;
            turbo = (caps & 0xff) as u32;
            // Read each time, since Speed Select moves it (intel_pstate_get_hwp_cap()).
            max = ((caps >> 8) & 0xff) as u32;
            if min == 0 {
                min = (caps >> 24 & 0xff) as u32;
            }
        } else {
            max = activation_ratio(platform, cpu, info).unwrap_or(max);
            // core_get_turbo_pstate(): the ratio of one busy core, or the highest without turbo where that is more.
            turbo = ((platform.chip.read(cpu, TURBO_RATIO_LIMIT).unwrap_or(0) & 0xff) as u32).max(max);
        }
        // intel_pstate_msrs_not_valid(): the driver gives up rather than divide by these.
        if min == 0 || max == 0 {
            return Err(Errno::NODEV);
        }
        // intel_pstate_hybrid_hwp_adjust(): the lowest ratio becomes the level that reaches it.
        let lowest_khz = if scaling == RATIO_KHZ { min * scaling } else { min * RATIO_KHZ };
        // Levels of hybrid processors are not ratios. Rounded up, as intel_pstate_freq_to_hwp() does: the level is at
        // least as fast.
        if scaling != RATIO_KHZ {
            min = lowest_khz.div_ceil(scaling);
        }
        Ok(Pstates { min, max: max.max(min), turbo: turbo.max(max).max(min), scaling, lowest_khz })
    }

    /// The frequency of a level, rounded down to what a ratio can be.
    pub(crate) fn khz(&self, level: u32) -> u32 {
        let khz = level * self.scaling;
        if self.scaling == RATIO_KHZ { khz } else { khz / RATIO_KHZ * RATIO_KHZ }
    }

    /// The level of a frequency (`intel_pstate_freq_to_hwp_rel`).
    fn level(&self, khz: u32, relation: Relation) -> u32 {
        // The ends were rounded down to ratios: dividing them again could miss the levels that they stand for.
        if khz == self.khz(self.turbo) {
            self.turbo
        } else if khz == self.khz(self.max) {
            self.max
        } else {
            match relation {
                Relation::High => khz / self.scaling,
                Relation::Close => (khz + self.scaling / 2) / self.scaling,
                Relation::Low => khz.div_ceil(self.scaling),
            }
        }
    }

    /// The level of a limit: rounded down to a ratio first (`intel_pstate_update_perf_limits`).
    fn limit_level(&self, khz: u32) -> u32 {
        self.level(khz / RATIO_KHZ * RATIO_KHZ, Relation::Low)
    }

    /// The highest that turbo switches allow.
    fn top(&self, platform: &Platform) -> u32 {
        if is_turbo_off(platform) { self.max } else { self.turbo }
    }
}

/// Whether the driver takes turbo for off. Up to 5.15 update_turbo_state() looks at the register each time; later kernels do
/// so when they register and when no_turbo is written (6.1.158 has this too).
pub(crate) fn is_turbo_off(platform: &Platform) -> bool {
    platform.intel.no_turbo || platform.before(Kernel::V6_1) && firmware_disables_turbo(platform)
}

/// MSR 0x1A0 bit 38 on the boot CPU.
pub(crate) fn firmware_disables_turbo(platform: &Platform) -> bool {
    platform.chip.read(0, MISC_ENABLE).is_ok_and(|value| value >> 38 & 1 == 1)
}

/// The global percentages as P-states: rounded up, of the turbo P-state.
fn global_limits(platform: &Platform, pstates: &Pstates) -> (u32, u32) {
    // DIV_ROUND_UP of the turbo P-state, whatever turbo is switched to: 50 % does not move when no_turbo is written.
    let of = |pct: u32| (pstates.turbo * pct).div_ceil(100).clamp(pstates.min, pstates.turbo);
    (of(platform.intel.min_pct), of(platform.intel.max_pct))
}

/// intel_pstate_update_perf_limits(): the range of P-states that policy and percentages leave.
fn perf_limits(platform: &Platform, policy: &Policy, pstates: &Pstates) -> (u32, u32) {
    let top = pstates.top(platform);
    let (min, max) = (pstates.limit_level(policy.min), pstates.limit_level(policy.max));
    let (global_min, global_max) = global_limits(platform, pstates);
    // The order is the kernel's: a minimum is raised by the percentages, but never above the policy's own maximum.
    let low = min.max(global_min).min(max).min(top);
    let high = max.min(global_max).max(low).min(top);
    // As intel_pstate_prepare_request() does it for requests.
    (low.clamp(pstates.min, top), high.clamp(pstates.min, top))
}

fn init(platform: &mut Platform, policy: &mut Policy) -> Answer<Pstates> {
    let cpu = policy.number;
    if platform.intel.hwp {
        // intel_pstate_hwp_enable() runs for each CPU: HWP is on before its capabilities are read.
        platform.chip.write(cpu, PM_ENABLE, 1)?;
    }
    let pstates = Pstates::of(platform, cpu)?;
    policy.lowest = pstates.lowest_khz;
    // cpuinfo_max_freq: of the state at registration, and since 6.12 also after a change of no_turbo.
    let top = if platform.intel.no_turbo { pstates.max } else { pstates.turbo };
    policy.highest = pstates.khz(top);
    policy.current = policy.lowest;
    if platform.intel.hwp {
        let epp = (platform.chip.read(cpu, HWP_REQUEST)? >> 24) as u8;
        let table = platform.intel.epp_table;
        let state = &mut platform.intel.cpus[cpu as usize];
        if state.default_epp.is_none() {
            state.default_epp = Some(epp);
            // intel_pstate_update_epp_defaults(): what firmware chose becomes the meaning of balance_performance; if
            // firmware left HWP to the kernel, the model's own default replaces what the register had.
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
    let Ok(pstates) = Pstates::of(platform, policy.number) else { return };
    // Of the present levels: they may have changed since the policy was made.
    limits.clip(policy.lowest, policy.highest.min(pstates.khz(pstates.top(platform))));
}

/// Changes the range and preference of HWP_REQUEST.
fn write_hwp(platform: &mut Platform, cpu: u32, min: u32, max: u32, desired: u32, epp: Option<u8>) {
    // intel_pstate_hwp_set() reads the register too, so that the fields of others stay; passive mode keeps a copy
    // (hwp_req_cached).
    let Ok(old) = platform.chip.read(cpu, HWP_REQUEST) else { return };
    // The other fields, activity window and package control, stay as firmware left them.
    let epp = epp.map_or(old >> 24 & 0xff, u64::from);
    let low =
        u64::from(min & 0xff) | u64::from(max & 0xff) << 8 | u64::from(desired & 0xff) << 16 | epp << 24;
    let value = old & !0xffff_ffff | low;
    // Unchanged requests are not written: wrmsr costs more than the comparison.
    if value != old {
        let _ = platform.chip.write(cpu, HWP_REQUEST, value);
    }
}

fn set_epp(platform: &mut Platform, cpu: u32, epp: u8) {
    // The preference alone: intel_pstate_set_epp() leaves the limits as they are.
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

/// The tracepoint of a sample. In passive mode the fields about load say how the request came: 10 through a governor's
/// thread, 90 right out of the scheduler.
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
    // get_avg_frequency() multiplies APERF/MPERF by cpu_khz, the TSC's frequency, which is that of the guaranteed
    // P-state.
    let top = Pstates::of(platform, cpu).map_or(0, |pstates| pstates.max);
    // 128 bits: counters of a long interval times a frequency in kHz exceed 64.
    let khz = u128::from(top) * u128::from(scaling) * u128::from(aperf) / u128::from(mperf.max(1));
    let (busy, scaled) = match load {
        Some(scaled) => ((u128::from(aperf) * 100 / u128::from(mperf.max(1))) as u32, scaled),
        None if platform.trace.context == Context::Tick => (90, 0),
        None => (10, 0),
    };
    // The tracepoint has percent.
    let io_boost = policy.io_boost * 100 / 1024;
    let event = Event::PstateSample { busy, scaled, from, to, counters, khz: khz as u32, io_boost };
    platform.trace_event(cpu, event);
}

/// A CPU goes offline: the lowest level, so that it does not hold its siblings up.
fn leave(platform: &mut Platform, cpu: u32) {
    if platform.intel.hwp {
        if let Ok(caps) = platform.chip.read(cpu, HWP_CAPABILITIES) {
            let lowest = (caps >> 24 & 0xff) as u32;
            let saved = platform.chip.read(cpu, HWP_REQUEST).map_or(128, |value| (value >> 24) as u8);
            let state = &mut platform.intel.cpus[cpu as usize];
            // intel_pstate_hwp_offline(): the preference is kept for intel_pstate_hwp_reenable().
            if state.saved_epp.is_none() {
                // The first to save wins: the performance policy's 0 must not replace what the user chose before it.
                state.saved_epp = Some(saved);
            }
            // Lowest performance and EPP 255, so that the core's other thread alone decides.
            write_hwp(platform, cpu, lowest, lowest, 0, Some(255));
        }
    } else if let Ok(pstates) = Pstates::of(platform, cpu) {
        write_perf_ctl(platform, cpu, pstates.min);
    }
}

/// Takes back the preference that going offline or the performance policy replaced.
fn restore_epp(platform: &mut Platform, cpu: u32) -> Option<u8> {
    let now = platform.chip.read(cpu, HWP_REQUEST).map_or(0, |value| (value >> 24) as u8);
    let saved = platform.intel.cpus[cpu as usize].saved_epp.take()?;
    // Another program may have written the register in the meantime: then its value stays.
    (now == 0 || now == 255).then_some(saved)
}

/// intel_pstate: active mode.
pub(crate) struct IntelPstate;

impl Driver for IntelPstate {
    fn name(&self) -> &'static str {
        "intel_pstate"
    }

    fn style(&self) -> Style {
        Style::SetPolicy
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        init(platform, policy)?;
        // intel_pstate_cpu_init(): the fallback for a default governor that is neither word.
        policy.governor = Governor::Powersave;
        Ok(())
    }

    fn verify(&self, platform: &Platform, policy: &Policy, limits: &mut Limits) {
        verify(platform, policy, limits);
    }

    fn set_policy(&self, platform: &mut Platform, policy: &mut Policy) {
        let performance = matches!(policy.governor, Governor::Performance);
        for cpu in policy.online.clone() {
            let Ok(pstates) = Pstates::of(platform, cpu) else { continue };
            let (min, max) = perf_limits(platform, policy, &pstates);
            if platform.intel.hwp {
                let epp = if performance {
                    let now = platform.chip.read(cpu, HWP_REQUEST).map_or(0, |value| (value >> 24) as u8);
                    let state = &mut platform.intel.cpus[cpu as usize];
                    // intel_pstate_hwp_set() saves once per change of policy (epp_policy): a second refresh must not
                    // save the 0.
                    if now != 0 || state.saved_epp.is_none() {
                        state.saved_epp = state.saved_epp.or(Some(now));
                    }
                    Some(0)
                } else {
                    restore_epp(platform, cpu)
                };
                // Desired 0: between minimum and maximum the processor chooses by itself.
                write_hwp(platform, cpu, if performance { max } else { min }, max, 0, epp);
            } else if performance {
                // intel_pstate_set_pstate() traces before it writes.
                platform.trace_event(cpu, Event::CpuFrequency { khz: max * pstates.scaling, cpu });
                write_perf_ctl(platform, cpu, max);
                policy.current = max * pstates.scaling;
            } else {
                // Without HWP powersave follows load (see `sample`): limits only move what is set now into the new
                // range.
                let current = (policy.current / pstates.scaling).clamp(min, max);
                write_perf_ctl(platform, cpu, current);
                policy.current = current * pstates.scaling;
            }
        }
    }

    fn leave(&self, platform: &mut Platform, cpu: u32) {
        leave(platform, cpu);
    }

    fn enter(&self, platform: &mut Platform, _policy: &mut Policy, cpu: u32) {
        if platform.intel.hwp
            && let Some(epp) = restore_epp(platform, cpu)
        {
            set_epp(platform, cpu, epp);
        }
    }

    fn samples(&self, platform: &Platform) -> bool {
        // intel_pstate_set_update_util_hook() does nothing under HWP without hwp_boost: the processor follows the load
        // itself.
        !platform.intel.hwp || platform.intel.dynamic_boost
    }

    /// Without HWP, powersave: every 10 ms a P-state in proportion to load (intel_pstate_update_util). With HWP:
    /// the minimum is raised for tasks that wait for IO, if hwp_dynamic_boost says so.
    fn sample(&self, platform: &mut Platform, policy: &mut Policy, cpus: &[Cpu]) {
        let cpu = policy.leader();
        let Some(state) = cpus.get(cpu as usize) else { return };
        if platform.intel.hwp {
            // Set from the performance policy too, which clears its hook (intel_pstate_set_policy()).
            if platform.intel.dynamic_boost && matches!(policy.governor, Governor::Powersave) {
                dynamic_boost(platform, policy, cpu, state.woke_from_io);
            }
            return;
        }
        // INTEL_PSTATE_SAMPLING_INTERVAL: 10 ms.
        if matches!(policy.governor, Governor::Performance) || platform.now < policy.sampled + 10_000_000 {
            return;
        }
        // Before it is set to now: what load is measured over.
        let gap = platform.now - policy.sampled;
        policy.sampled = platform.now;
        let Ok(pstates) = Pstates::of(platform, cpu) else { return };
        let (min, max) = perf_limits(platform, policy, &pstates);
        // intel_pstate_update_util(): an eighth for a task that waited for IO, doubled for each further one; halved
        // without, and forgotten after more than a tick without a call.
        policy.io_boost = match (state.woke_from_io, policy.io_boost) {
            (true, 0) => 128,
            (true, boost) => (boost * 2).min(1024),
            // TICK_NSEC in the kernel, since the last call of the hook; here since the last sample, which is 10 ms at
            // least.
            (false, _) if gap > 20_000_000 => 0,
            (false, boost) => boost / 2,
        };
        // busy is in 1024ths: MPERF against TSC.
        // MPERF counts while the CPU is in C0, which is when it runs something.
        let ran = state.times.user + state.times.system;
        let busy = (ran.saturating_sub(policy.seen_busy) * 1024 / gap.max(1)) as u32;
        policy.seen_busy = ran;
        let busy = busy.max(policy.io_boost).min(1024);
        let ceiling = if platform.intel.no_turbo { pstates.max } else { pstates.turbo };
        // get_target_pstate(): a quarter of headroom, then half the distance when it falls, so that it falls slowly.
        let mut target = (u64::from(ceiling) * 5 * u64::from(busy) / 4 / 1024) as u32;
        // The processor's lowest level, not the policy's: limits act on the result alone (intel_pstate_prepare_request()).
        target = target.max(pstates.min);
        // get_avg_pstate(): from APERF and MPERF over the last period.
        let average = state.measured.0 / pstates.scaling;
        if average > target {
            target += (average - target) / 2;
        }
        let target = target.clamp(min, max);
        let from = policy.current / pstates.scaling;
        policy.current = target * pstates.scaling;
        // Also if nothing changes: intel_pstate_adjust_pstate() traces each decision.
        platform.trace_event(cpu, Event::CpuFrequency { khz: policy.current, cpu });
        write_perf_ctl(platform, cpu, target);
        trace_sample(platform, policy, cpu, pstates.scaling, (from, target), Some(busy * 100 / 1024));
    }
}

/// intel_pstate_update_util_hwp_local(): the minimum is raised halfway to guaranteed, to guaranteed, to the maximum; it falls
/// back when the scheduler has not called for 3 ms.
fn dynamic_boost(platform: &mut Platform, policy: &Policy, cpu: u32, io: bool) {
    // hwp_boost_hold_time_ns.
    const HOLD_NS: u64 = 3_000_000;
    let Ok(pstates) = Pstates::of(platform, cpu) else { return };
    let (min, max) = perf_limits(platform, policy, &pstates);
    let (now, tick) = (platform.now, platform.board.tick_us * 1000);
    let boost = &mut platform.intel.cpus[cpu as usize].boost;
    let raised = if io {
        // A single wake-up proves nothing: two within two ticks (TICK_NSEC) count.
        let again = now < boost.last_io + 2 * tick;
        boost.last_io = now;
        if !again || max == min || boost.min >= max {
            return;
        }
        // intel_pstate_hwp_boost_up().
        let guaranteed = pstates.max;
        let from = if boost.min == 0 { min } else { boost.min };
        boost.min = match guaranteed.midpoint(min) {
            half if from < half => half,
            _ if from < guaranteed => guaranteed,
            _ if from == guaranteed && max != guaranteed => max,
            _ => {
                boost.min = from;
                return;
            }
        };
        boost.last_update = now;
        boost.min
    } else {
        // intel_pstate_hwp_boost_down(): each call without IO puts the end off.
        let expired = boost.min > 0 && now > boost.last_update + HOLD_NS;
        boost.last_update = now;
        if !expired {
            return;
        }
        boost.min = 0;
        min
    };
    // Only the register: the cached request keeps the minimum to go back to, which is worked out again here.
    write_hwp(platform, cpu, raised, max, 0, None);
}

/// intel_cpufreq: passive mode.
pub(crate) struct IntelCpufreq;

impl Driver for IntelCpufreq {
    fn name(&self) -> &'static str {
        "intel_cpufreq"
    }

    fn style(&self) -> Style {
        Style::Target
    }

    fn adjusts_performance(&self, platform: &Platform) -> bool {
        // intel_cpufreq_adjust_perf() came with 5.11.
        platform.intel.hwp && platform.since(Kernel::V5_15)
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        let pstates = init(platform, policy)?;
        // INTEL_CPUFREQ_TRANSITION_LATENCY.
        policy.latency_ns = 20_000;
        // INTEL_CPUFREQ_TRANSITION_DELAY_HWP and INTEL_CPUFREQ_TRANSITION_DELAY.
        policy.delay_us = Some(if platform.intel.hwp { 5000 } else { 500 });
        // In passive mode the percentages are frequency QoS requests, not limits of the driver.
        policy.driver_request = percent_requests(platform, &pstates);
        if platform.intel.hwp {
            for cpu in policy.online.clone() {
                if let Some(epp) = restore_epp(platform, cpu) {
                    set_epp(platform, cpu, epp);
                }
            }
        }
        Ok(())
    }

    fn verify(&self, platform: &Platform, policy: &Policy, limits: &mut Limits) {
        verify(platform, policy, limits);
    }

    fn target(&self, platform: &mut Platform, policy: &mut Policy, khz: u32, relation: Relation) -> u32 {
        let mut set = khz;
        for cpu in policy.online.clone() {
            let Ok(pstates) = Pstates::of(platform, cpu) else { continue };
            let (min, max) = perf_limits(platform, policy, &pstates);
            let target = pstates.level(khz, relation).clamp(min, max);
            // What intel_cpufreq_target() and intel_cpufreq_fast_switch() answer.
            set = target * pstates.scaling;
            if platform.intel.hwp {
                // CPUFREQ_GOV_STRICT_TARGET: these governors cap the maximum too, or HWP would run above the target.
                let strict = matches!(
                    policy.governor,
                    Governor::Userspace(_) | Governor::Powersave | Governor::Performance
                );
                // intel_cpufreq_adjust_hwp() of 5.10 leaves the desired level alone.
                let desired = if platform.since(Kernel::V5_15) { target } else { 0 };
                write_hwp(platform, cpu, target, if strict { target } else { max }, desired, None);
            } else {
                write_perf_ctl(platform, cpu, target);
            }
            let from = policy.current / pstates.scaling;
            trace_sample(platform, policy, cpu, pstates.scaling, (from, target), None);
        }
        set
    }

    fn switches_fast(&self, _platform: &Platform) -> bool {
        true
    }

    fn needs_update_limits(&self) -> bool {
        true
    }

    fn adjust(&self, platform: &mut Platform, policy: &mut Policy, min: u32, target: u32, capacity: u32) {
        let cpu = policy.leader();
        let Ok(pstates) = Pstates::of(platform, cpu) else { return };
        let (low, high) = perf_limits(platform, policy, &pstates);
        // intel_cpufreq_adjust_perf() scales to HWP's range without turbo where turbo is off, rounded up. Up to 6.1 only where
        // firmware has switched it off (global.turbo_disabled).
        let off = if platform.before(Kernel::V6_12) {
            firmware_disables_turbo(platform)
        } else {
            platform.intel.no_turbo
        };
        let top = if off { pstates.max } else { pstates.turbo };
        let scale =
            |value: u32| (u64::from(top) * u64::from(value)).div_ceil(u64::from(capacity.max(1))) as u32;
        let target = scale(target.min(capacity)).clamp(low, high);
        let min = scale(min.min(capacity)).max(low).min(target);
        write_hwp(platform, cpu, min, high, target, None);
        let from = policy.current / pstates.scaling;
        policy.current = target * pstates.scaling;
        trace_sample(platform, policy, cpu, pstates.scaling, (from, target), None);
    }

    fn leave(&self, platform: &mut Platform, cpu: u32) {
        leave(platform, cpu);
    }

    fn enter(&self, platform: &mut Platform, policy: &mut Policy, cpu: u32) {
        IntelPstate.enter(platform, policy, cpu);
    }
}

/// The percentages as requests on frequency (passive mode).
fn percent_requests(platform: &Platform, pstates: &Pstates) -> (i32, i32) {
    // update_qos_request(): of turbo_freq, whatever no_turbo says, rounded up.
    let of = |pct: u32| (u64::from(pstates.khz(pstates.turbo)) * u64::from(pct)).div_ceil(100) as i32;
    (of(platform.intel.min_pct), of(platform.intel.max_pct))
}
