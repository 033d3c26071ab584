//! amd-pstate (drivers/cpufreq/amd-pstate.c): CPPC performance requests, in registers or in shared memory.

mod files;

pub(crate) use files::{available_epp, register, show_epp, store_dynamic_epp, store_epp, store_status};

use super::{
    Driver, Platform, Style,
    policy::{Governor, Limits, Policy},
};
use crate::{
    board::{Board, CppcAccess},
    errno::{Answer, Errno},
    governor::Relation,
    kernel::Kernel,
    trace::{Context, Event, Kind},
};

const CPPC_CAP1: u32 = 0xc001_02b0;
const CPPC_ENABLE: u32 = 0xc001_02b1;
const CPPC_REQ: u32 = 0xc001_02b3;
// The old interface's register; its value is the number of a P-state.
const PERF_CTL: u32 = 0xc001_0062;

/// What amd_pstate/status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Disable,
    Passive,
    Active,
    Guided,
}

impl Mode {
    pub(crate) const ALL: [Mode; 4] = [Mode::Disable, Mode::Passive, Mode::Active, Mode::Guided];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Disable => "disable",
            Mode::Passive => "passive",
            Mode::Active => "active",
            Mode::Guided => "guided",
        }
    }
}

/// The request register, field by field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PerfRequest {
    pub(crate) min: u8,
    pub(crate) max: u8,
    pub(crate) desired: u8,
    pub(crate) epp: u8,
}

impl PerfRequest {
    fn unpack(value: u64) -> PerfRequest {
        PerfRequest {
            // AMD_CPPC_MAX_PERF and its neighbours (asm/msr-index.h): the maximum is the lowest byte.
            max: value as u8,
            min: (value >> 8) as u8,
            desired: (value >> 16) as u8,
            epp: (value >> 24) as u8,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.max)
            | u64::from(self.min) << 8
            | u64::from(self.desired) << 16
            | u64::from(self.epp) << 24
    }
}

/// `struct amd_cpudata`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AmdCpu {
    /// The driver has seen this CPU before: firmware's preference below is kept.
    known: bool,
    /// The minimum that firmware had asked for; 0 none.
    bios_min: u8,
    /// The value last sent; nothing is sent twice.
    cached: PerfRequest,
    default_epp: u8,
    /// The last EPP was written as a number and reads back as one (7.2).
    raw: bool,
    /// Its performance levels, once the driver has read them.
    caps: Option<Caps>,
}

/// The driver's global state.
#[expect(clippy::struct_excessive_bools, reason = "the driver's global switches")]
#[derive(Debug)]
pub(crate) struct Amd {
    /// The driver registered at boot, so that its files exist.
    pub(crate) present: bool,
    pub(crate) mode: Mode,
    /// The cores' highest levels differ (amd_detect_prefcore()), whatever amd_prefcore= says.
    pub(crate) ranked: bool,
    /// Preferred cores are used: `amd_pstate/prefcore`.
    pub(crate) prefcore: bool,
    pub(crate) dynamic_epp: bool,
    cpus: Vec<AmdCpu>,
}

impl Amd {
    pub(crate) fn new(cpus: u32) -> Amd {
        Amd {
            present: false,
            mode: Mode::Disable,
            ranked: false,
            prefcore: false,
            dynamic_epp: false,
            cpus: vec![AmdCpu::default(); cpus as usize],
        }
    }
}

/// Performance levels of a CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    /// The CPU's own highest level: its preferred-core ranking.
    pub(crate) own: u8,
    /// The level that the driver takes for the highest: `amd_pstate_highest_perf`.
    pub(crate) highest: u8,
    /// The level that the highest frequency belongs to.
    numerator: u8,
    pub(crate) nominal: u8,
    pub(crate) lowest_nonlinear: u8,
    pub(crate) lowest: u8,
    nominal_mhz: u32,
    lowest_mhz: u32,
    new: bool,
}

fn div_ceil(a: u64, b: u64) -> u64 {
    a.div_ceil(b.max(1))
}

impl Caps {
    pub(crate) fn of(platform: &Platform, cpu: u32) -> Answer<Caps> {
        match platform.amd.cpus.get(cpu as usize).and_then(|state| state.caps) {
            Some(caps) => Ok(caps),
            None => Caps::read(platform, cpu),
        }
    }

    fn read(platform: &Platform, cpu: u32) -> Answer<Caps> {
        let cpc = platform.board.cppc.get(cpu as usize).ok_or(Errno::NODEV)?;
        let (own, nominal, lowest_nonlinear, lowest) = match platform.board.access {
            CppcAccess::Msr => {
                // CAP1 has the levels in the order of the fields of _CPC, highest at the top.
                let value = platform.chip.read(cpu, CPPC_CAP1)?;
                ((value >> 24) as u8, (value >> 16) as u8, (value >> 8) as u8, value as u8)
            }
            _ => (cpc.highest, cpc.nominal, cpc.lowest_nonlinear, cpc.lowest),
        };
        // The kernel divides by the nominal level.
        if nominal == 0 || lowest == 0 || cpc.nominal_mhz == 0 {
            return Err(Errno::INVAL);
        }
        let board = &platform.board;
        let numerator = if platform.before(Kernel::V6_12) {
            // pstate_init_perf() and cppc_init_perf() of 6.1: whichever is less.
            own.min(highest_by_model(board))
        } else if platform.amd.ranked {
            // With preferred cores the register differs from core to core, the frequency that it stands for does not
            // (amd_get_boost_ratio_numerator(), which does not look at amd_prefcore=): 196 on Zen 4 models 0x70 to
            // 0x7f, 166 elsewhere.
            if board.family == 0x19 && (0x70..=0x7f).contains(&board.model) { 196 } else { 166 }
        } else {
            own
        };
        // 6.12.107 computes levels on the scale of each core's own (seen there); 6.12.117 has the numerator, as 6.18.
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
        // amd_pstate_init_freq(): from 6.9 on firmware's zeros and a nonlinear frequency out of order keep the driver away.
        let (least, nonlinear) = (cpc.lowest_mhz * 1000, caps.khz(lowest_nonlinear));
        if !platform.before(Kernel::V6_12)
            && (least == 0 || nonlinear <= least || nonlinear > cpc.nominal_mhz * 1000)
        {
            return Err(Errno::INVAL);
        }
        Ok(caps)
    }

    /// The frequency of a performance level in kHz. Up to 6.12 a ratio with ten binary places is truncated twice.
    pub(crate) fn khz(&self, perf: u8) -> u32 {
        let nominal_khz = u64::from(self.nominal_mhz) * 1000;
        if self.new {
            div_ceil(nominal_khz * u64::from(perf), u64::from(self.nominal)) as u32
        } else if perf == self.nominal {
            nominal_khz as u32
        } else {
            // SCHED_CAPACITY_SHIFT: amd_pstate_init_freq() keeps ten binary places, and whole MHz in the end.
            let ratio = (u64::from(perf) << 10) / u64::from(self.nominal);
            (((u64::from(self.nominal_mhz) * ratio) >> 10) * 1000) as u32
        }
    }

    /// `amd_pstate_max_freq`, which boost does not change.
    pub(crate) fn highest_khz(&self) -> u32 {
        self.khz(self.numerator)
    }

    pub(crate) fn lowest_khz(&self) -> u32 {
        // Up to 6.12 _CPC's lowest frequency, which 6.1 takes as it is if firmware has left it at 0.
        if self.new { self.khz(self.lowest) } else { self.lowest_mhz * 1000 }
    }

    /// The performance level of a frequency (7.2).
    fn perf(&self, khz: u32) -> u8 {
        let perf = div_ceil(u64::from(khz) * u64::from(self.nominal), u64::from(self.nominal_mhz) * 1000);
        // The result fits: `highest` is a byte.
        perf.clamp(u64::from(self.lowest), u64::from(self.highest)) as u8
    }
}

/// amd_get_highest_perf() of kernels before 6.9 (arch/x86/kernel/cpu/amd.c): the end of the scale of two families' models.
pub(super) fn highest_by_model(board: &Board) -> u8 {
    match (board.family, board.model) {
        (0x17, 0x30..0x40 | 0x70..0x80) | (0x19, 0x20..0x30 | 0x40..0x70) => 166,
        _ => 255,
    }
}

/// amd-pstate in passive and guided mode.
pub(crate) struct AmdPstate;

/// amd-pstate-epp: active mode.
pub(crate) struct AmdPstateEpp;

/// The tracepoint of a request: since 6.13 in the functions that write it.
fn trace_request(platform: &mut Platform, cpu: u32, boost: bool, request: PerfRequest, changed: bool) {
    // Asked first: the levels are worked out only for a reader.
    if platform.trace.is_enabled(Kind::AmdEpp)
        && let Ok(caps) = Caps::of(platform, cpu)
    {
        let PerfRequest { min, max, epp, .. } = request;
        platform
            .trace_event(cpu, Event::AmdEpp { cpu, highest: caps.highest, epp, min, max, boost, changed });
    }
}

/// amd_pstate_update_perf(): sends a request if it differs from the last one.
fn send(platform: &mut Platform, cpu: u32, boost: bool, request: PerfRequest) {
    let changed = platform.amd.cpus[cpu as usize].cached != request;
    trace_request(platform, cpu, boost, request, changed);
    let state = &mut platform.amd.cpus[cpu as usize];
    // Nothing is written twice: with shared memory each write is a mailbox command.
    if !changed {
        return;
    }
    state.cached = request;
    match platform.board.access {
        CppcAccess::Msr => {
            // wrmsrl_on_cpu()'s result is not looked at by the kernel either.
            let _ = platform.chip.write(cpu, CPPC_REQ, request.pack());
        }
        CppcAccess::SharedMemory => {
            // cppc_init_perf() and the changes of mode keep auto_sel like this; writing it with each request has the
            // same effect.
            let autonomous = platform.amd.mode != Mode::Passive;
            platform.chip.write_shared(
                cpu,
                request.min,
                request.max,
                request.desired,
                request.epp,
                autonomous,
            );
        }
        CppcAccess::None => {}
    }
}

/// What both kinds of init share: enable, cache what firmware left, find the hardware's limits.
fn init(platform: &mut Platform, policy: &mut Policy) -> Answer<Caps> {
    let cpu = policy.number;
    let caps = Caps::read(platform, cpu)?;
    platform.amd.cpus[cpu as usize].caps = Some(caps);
    policy.lowest = caps.lowest_khz();
    policy.highest = caps.highest_khz();
    if policy.highest < policy.lowest {
        return Err(Errno::INVAL);
    }
    let request = if platform.board.access == CppcAccess::Msr {
        // Per package on hardware (pstate_enable() skips CPUs of packages that it has seen); writing it again changes
        // nothing.
        let _ = platform.chip.write(cpu, CPPC_ENABLE, 1);
        PerfRequest::unpack(platform.chip.read(cpu, CPPC_REQ)?)
    } else {
        platform.chip.enable_shared(cpu);
        let (min, max, desired, epp) = platform.chip.read_shared(cpu);
        PerfRequest { min, max, desired, epp }
    };
    // amd_perf_ctl_reset(): P0, or the old interface would cap the new one.
    // Machines without P-state registers refuse it, which does not matter to CPPC.
    let _ = platform.chip.write(cpu, PERF_CTL, 0);
    let new = platform.since(Kernel::V6_18);
    let state = &mut platform.amd.cpus[cpu as usize];
    state.cached = request;
    // A driver that registers again allocates a new struct amd_cpudata.
    state.raw = false;
    // msr_init_perf(): a minimum alone is firmware's, since the driver leaves nothing else behind. Kernels before 6.13
    // have no notion of it.
    let alone = request.max == 0 && request.desired == 0 && request.epp == 0;
    state.bios_min = if new && alone && platform.board.access == CppcAccess::Msr { request.min } else { 0 };
    if !std::mem::replace(&mut state.known, true) || !new {
        // Up to 6.12 the default is what stands in the register whenever the driver comes.
        state.default_epp = request.epp;
    }
    if !new && platform.amd.mode != Mode::Active && platform.board.access == CppcAccess::Msr {
        // Up to 6.12 the driver without preferences does not look what the register holds: its first request there
        // takes the preference away (amd_pstate_cpu_init leaves cppc_req_cached at 0).
        state.cached = PerfRequest::unpack(0);
    }
    policy.current = policy.lowest;
    Ok(caps)
}

fn verify(platform: &Platform, policy: &Policy, limits: &mut Limits) {
    if platform.since(Kernel::V6_18)
        && limits.min == 0
        && let Ok(caps) = Caps::of(platform, policy.number)
    {
        // No minimum was requested: firmware's, else the lowest nonlinear frequency.
        let bios = platform.amd.cpus[policy.number as usize].bios_min;
        limits.min = caps.khz(if bios > 0 { bios } else { caps.lowest_nonlinear });
    }
    limits.clip(policy.lowest, policy.highest);
}

fn set_boost(platform: &mut Platform, policy: &mut Policy, on: bool) -> Answer {
    if !platform.board.boost && platform.since(Kernel::V6_12) {
        return Err(Errno::INVAL);
    }
    let caps = Caps::of(platform, policy.number)?;
    policy.highest = if on { caps.highest_khz() } else { caps.khz(caps.nominal) };
    // A request of the driver's own (req[1]): what was asked for before stays asked for. The switch in HWCR is left
    // alone; without boost no level above nominal is requested.
    policy.driver_request.1 = policy.highest as i32;
    Ok(())
}

/// The levels of the policy's limits.
fn limit_levels(platform: &Platform, caps: &Caps, policy: &Policy) -> (u8, u8) {
    if platform.since(Kernel::V6_18) {
        return (caps.perf(policy.min), caps.perf(policy.max));
    }
    // amd_pstate_update_min_max_limit(): of cpuinfo_max_freq, which boost changes, and truncated. Without the CPU flag
    // cpb boost is not supported, and the scale is the whole one (amd_pstate_init_boost_support()).
    let top = if platform.board.boost && !policy.boost { caps.nominal } else { caps.highest };
    let level = |khz: u32| (u64::from(khz) * u64::from(top) / u64::from(policy.highest.max(1))) as u8;
    let max = level(policy.max).clamp(caps.lowest, top);
    (level(policy.min).max(caps.lowest).min(max), max)
}

impl AmdPstate {
    /// amd_pstate_update().
    fn request(platform: &mut Platform, policy: &mut Policy, caps: &Caps, min: u8, desired: u8, max: u8) {
        // "limit the max perf when core performance boost feature is disabled": of the register's maximum alone up to
        // 6.12, of the desired level too since.
        let top = if platform.board.boost || platform.before(Kernel::V6_12) { u8::MAX } else { caps.nominal };
        let within = if platform.since(Kernel::V6_18) { max.min(top) } else { max };
        // Governors that set one frequency get it in guided mode too.
        let guided = platform.amd.mode == Mode::Guided && policy.governor.is_dynamic();
        for &cpu in &policy.online {
            // Without EPP files the driver still has to write the field: it writes back what it has cached.
            let epp = platform.amd.cpus[cpu as usize].cached.epp;
            let desired = desired.clamp(min.min(within), within);
            let (min, max) = (min.min(max), max.min(top));
            // Guided: firmware chooses between a floor and the maximum, so the target becomes the floor
            // (amd_pstate_update).
            let request = if guided {
                PerfRequest { min: desired, max, desired: 0, epp }
            } else {
                PerfRequest { min, max, desired, epp }
            };
            if platform.trace.is_enabled(Kind::AmdPerf)
                // No event without a sample: amd_pstate_sample() is false where MPERF or TSC has not moved.
                && let Some(counters) = platform.trace.sample(&platform.chip, cpu)
            {
                let event = Event::AmdPerf {
                    min: request.min,
                    desired: request.desired,
                    max: request.max,
                    khz: platform.trace.khz(counters),
                    counters,
                    cpu,
                    changed: platform.amd.cpus[cpu as usize].cached != request,
                    fast: platform.trace.context == Context::Tick,
                };
                platform.trace_event(cpu, event);
            }
            send(platform, cpu, policy.boost, request);
        }
    }
}

impl Driver for AmdPstate {
    fn name(&self) -> &'static str {
        "amd-pstate"
    }

    fn style(&self) -> Style {
        Style::Target
    }

    fn adjusts_performance(&self, platform: &Platform) -> bool {
        // A mailbox may sleep, which the scheduler's hook may not: fast_switch_possible is set for MSRs only, and
        // schedutil uses adjust_perf only with it.
        platform.board.access == CppcAccess::Msr
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        init(platform, policy)?;
        let cppc = platform.board.cppc_latency_ns;
        // 6.1 has the two constants of amd-pstate.c alone.
        if platform.since(Kernel::V6_12) && cppc > 0 {
            policy.latency_ns = cppc;
            policy.delay_us = Some(cppc / 1000);
        } else {
            policy.latency_ns = 20_000;
            policy.delay_us = Some(1000);
        }
        Ok(())
    }

    fn enter(&self, platform: &mut Platform, policy: &mut Policy, _cpu: u32) {
        if platform.since(Kernel::V6_18) {
            return;
        }
        // The driver of 6.12 and before has no `online`: cpufreq_online() calls `init` again, which brings boost back, also
        // the global switch's value (amd_pstate_init_boost_support()).
        if self.init(platform, policy).is_ok() {
            platform.boost = boost_at_start(platform);
            policy.boost = platform.boost;
            policy.driver_request.1 = policy.highest as i32;
        }
    }

    fn verify(&self, platform: &Platform, policy: &Policy, limits: &mut Limits) {
        verify(platform, policy, limits);
    }

    fn target(&self, platform: &mut Platform, policy: &mut Policy, khz: u32, _relation: Relation) -> u32 {
        let Ok(caps) = Caps::of(platform, policy.number) else { return khz };
        let (mut min, mut max) = limit_levels(platform, &caps, policy);
        if platform.before(Kernel::V6_12) {
            // The whole range: the limits act on the frequency that is asked for alone.
            (min, max) = (caps.lowest, caps.highest);
        }
        let desired = if platform.since(Kernel::V6_18) {
            caps.perf(khz)
        } else {
            // amd_pstate_update_freq(): on the scale of the highest frequency that there is, whether boost is on or not.
            let highest = u64::from(caps.highest_khz().max(1));
            ((u64::from(khz) * u64::from(caps.highest) + highest / 2) / highest) as u8
        };
        Self::request(platform, policy, &caps, min, desired, max);
        khz
    }

    fn adjust(&self, platform: &mut Platform, policy: &mut Policy, min: u32, target: u32, capacity: u32) {
        let Ok(caps) = Caps::of(platform, policy.number) else { return };
        let (mut floor, mut max) = limit_levels(platform, &caps, policy);
        if platform.before(Kernel::V6_12) {
            // The limits do not act on what schedutil asks for.
            (floor, max) = (caps.lowest, caps.highest);
        }
        if !platform.since(Kernel::V6_18) {
            // amd_pstate_adjust_perf(): below the lowest nonlinear level work costs more energy, not less.
            floor = floor.max(caps.lowest_nonlinear);
        }
        // cap_perf is the highest level also while boost is off: utilisation is on the scale of the whole processor, and
        // the limit cuts off what is above nominal.
        let scale = |value: u32| {
            if value >= capacity {
                caps.highest
            } else {
                div_ceil(u64::from(caps.highest) * u64::from(value), u64::from(capacity)) as u8
            }
        };
        let desired = scale(target);
        // Up to 6.12 a minimum of the whole capacity is none: amd_pstate_adjust_perf() starts from the lowest level.
        let least = if min >= capacity && !platform.since(Kernel::V6_18) { caps.lowest } else { scale(min) };
        let min = least.max(floor).min(max);
        Self::request(platform, policy, &caps, min, desired, max);
        // As amd_pstate_update() does: with adjust_perf no frequency passes the core. Up to 6.12 in proportion to the limit.
        let level = desired.clamp(min, max.max(min));
        policy.current = if platform.since(Kernel::V6_18) {
            caps.khz(level)
        } else {
            let top = if platform.before(Kernel::V6_12) { caps.highest_khz() } else { policy.max };
            (u64::from(level) * u64::from(top) / u64::from(max.max(1))) as u32
        };
    }

    fn switches_fast(&self, platform: &Platform) -> bool {
        platform.board.access == CppcAccess::Msr
    }

    fn needs_update_limits(&self) -> bool {
        true
    }

    fn has_boost(&self, platform: &Platform) -> Option<bool> {
        Some(boost_at_start(platform))
    }

    fn set_boost(&self, platform: &mut Platform, policy: &mut Policy, on: bool) -> Answer {
        set_boost(platform, policy, on)
    }

    fn leave(&self, platform: &mut Platform, cpu: u32) {
        // Up to 6.12 the register stays as it is: there is no `offline`, and amd_pstate_cpu_exit() only frees.
        if platform.since(Kernel::V6_18) {
            go_offline(platform, cpu);
        }
    }

    fn exit(&self, platform: &mut Platform, cpu: u32) {
        if platform.since(Kernel::V6_18) {
            release(platform, cpu);
        }
    }
}

/// The boost switch at start: from 6.12 on only with the CPU flag cpb.
fn boost_at_start(platform: &Platform) -> bool {
    if platform.before(Kernel::V6_12) {
        platform.board.cppc.first().is_some_and(|cppc| cppc.highest > cppc.nominal)
    } else {
        platform.board.boost
    }
}

/// amd_pstate_cpu_offline() since 6.13: firmware's minimum, and the rest as it was.
fn go_offline(platform: &mut Platform, cpu: u32) {
    let state = platform.amd.cpus[cpu as usize];
    send(platform, cpu, platform.boost, PerfRequest { min: state.bios_min, ..state.cached });
}

/// amd_pstate_epp_cpu_exit() and amd_pstate_cpu_exit() since 6.13: nothing but firmware's minimum is left behind.
fn release(platform: &mut Platform, cpu: u32) {
    let min = platform.amd.cpus[cpu as usize].bios_min;
    send(platform, cpu, platform.boost, PerfRequest { min, max: 0, desired: 0, epp: 0 });
}

impl Driver for AmdPstateEpp {
    fn name(&self) -> &'static str {
        "amd-pstate-epp"
    }

    fn style(&self) -> Style {
        Style::SetPolicy
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        let caps = init(platform, policy)?;
        // amd_pstate_epp_cpu_init() sets no latency: nothing asks for frequencies.
        policy.latency_ns = 0;
        // policy->policy of amd_pstate_epp_cpu_init(): a fallback where the kernel's default governor is neither
        // word.
        policy.governor = if platform.board.server { Governor::Performance } else { Governor::Powersave };
        if platform.since(Kernel::V6_18) {
            policy.current = caps.khz(caps.lowest_nonlinear);
            if !platform.board.server {
                // A client starts balanced: the default on battery is what is written at init.
                let state = &mut platform.amd.cpus[policy.number as usize];
                state.default_epp = 128;
            }
        }
        Ok(())
    }

    fn verify(&self, platform: &Platform, policy: &Policy, limits: &mut Limits) {
        verify(platform, policy, limits);
    }

    fn set_policy(&self, platform: &mut Platform, policy: &mut Policy) {
        let Ok(caps) = Caps::of(platform, policy.number) else { return };
        let (mut min, max) = limit_levels(platform, &caps, policy);
        let performance = matches!(policy.governor, Governor::Performance);
        // amd_pstate_epp_update_limit() of 6.12 puts this minimum into the register's value alone: with shared memory
        // amd_pstate_set_epp() sends min_limit_perf, the policy's.
        let kept = !platform.since(Kernel::V6_18) && platform.board.access == CppcAccess::SharedMemory;
        if performance && !kept {
            let bios = platform.amd.cpus[policy.number as usize].bios_min;
            // Performance asks for nominal at least, since 7.0 for firmware's minimum where there is one.
            let floor = if platform.since(Kernel::V7_2) && bios > 0 { bios } else { caps.nominal };
            min = floor.min(max);
        }
        // Cloned: the driver's state is borrowed in the loop.
        for cpu in policy.online.clone() {
            let state = &mut platform.amd.cpus[cpu as usize];
            let mut epp = state.cached.epp;
            // The performance policy forces EPP 0 and keeps it after the policy changes (amd_pstate_epp_set_policy).
            if performance && epp != 0 {
                epp = 0;
                state.raw = false;
            }
            // The preference goes first, on its own.
            let cached = platform.amd.cpus[cpu as usize].cached;
            let changed = epp != cached.epp;
            trace_request(platform, cpu, policy.boost, PerfRequest { epp, ..cached }, changed);
            send(platform, cpu, policy.boost, PerfRequest { min: min.min(max), max, desired: 0, epp });
        }
    }

    fn has_boost(&self, platform: &Platform) -> Option<bool> {
        Some(boost_at_start(platform))
    }

    fn set_boost(&self, platform: &mut Platform, policy: &mut Policy, on: bool) -> Answer {
        set_boost(platform, policy, on)
    }

    fn leave(&self, platform: &mut Platform, cpu: u32) {
        if platform.since(Kernel::V6_18) {
            go_offline(platform, cpu);
            return;
        }
        // amd_pstate_epp_cpu_offline() of 6.12 asks for the lowest level and EPP 191, but pstate_update_perf(), which writes
        // the register, ignores its arguments for the cached request: the limits stay as they are (seen on 6.12.107). The
        // preference stays 191 when the CPU comes back: amd_pstate_epp_reenable() writes epp_cached.
        let state = &mut platform.amd.cpus[cpu as usize];
        state.raw = false;
        let cached = state.cached;
        send(platform, cpu, platform.boost, PerfRequest { epp: 191, ..cached });
    }

    fn exit(&self, platform: &mut Platform, cpu: u32) {
        if platform.since(Kernel::V6_18) {
            release(platform, cpu);
        } else {
            // cpufreq_remove_dev() takes the policy offline first.
            self.leave(platform, cpu);
        }
    }
}
