//! amd-pstate (drivers/cpufreq/amd-pstate.c): CPPC performance requests, in registers or in shared
//! memory. This file holds what the modes share.

mod active;
mod caps;
pub(crate) mod dynamic;
mod files;
mod passive;
mod preference;

pub(crate) use active::AmdPstateEpp;
pub(crate) use caps::Caps;
pub(in crate::cpufreq) use caps::highest_by_model;
pub(crate) use files::{available_epp, register, show_epp, store_dynamic_epp, store_epp, store_status};
pub(crate) use passive::AmdPstate;

use flyball_silicon::msr::{
    AMD_CPPC_CAP1 as CPPC_CAP1, AMD_CPPC_ENABLE as CPPC_ENABLE, AMD_CPPC_REQ as CPPC_REQ,
    AMD_PERF_CTL as PERF_CTL,
};

use super::{
    Platform,
    policy::{Limits, Policy},
};
use crate::{
    board::CppcAccess,
    errno::{Answer, Errno},
    kernel::Kernel,
    trace::{Event, Kind},
};

/// Mode in amd_pstate/status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Mode {
    Disable,
    Passive,
    Active,
    Guided,
}

impl Mode {
    pub(crate) const ALL: [Mode; 4] = [Mode::Disable, Mode::Passive, Mode::Active, Mode::Guided];

    pub(crate) fn word(self) -> &'static str {
        self.into()
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
            // AMD_CPPC_MAX_PERF and related macros (asm/msr-index.h): the maximum is the lowest
            // byte.
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
    /// True once the driver has seen this CPU: it then keeps `bios_min`.
    known: bool,
    /// Minimum that firmware requested; 0 if none.
    bios_min: u8,
    /// The request last sent. An equal request is not sent again.
    cached: PerfRequest,
    default_epp: u8,
    /// True if the last EPP was written as a number, so that it reads back as a number (7.2).
    raw: bool,
    /// Set if a platform profile decides the EPP of the policy whose first CPU this is.
    dynamic: Option<dynamic::Dynamic>,
    /// The CPU's performance levels, once the driver has read them.
    caps: Option<Caps>,
}

/// The driver's global state.
#[expect(clippy::struct_excessive_bools, reason = "the driver's global switches")]
#[derive(Debug)]
pub(crate) struct Amd {
    /// True if the driver registered at boot, so that its files exist.
    pub(crate) present: bool,
    pub(crate) mode: Mode,
    /// True if the cores' highest levels differ (amd_detect_prefcore()), regardless of
    /// amd_prefcore=.
    pub(crate) ranked: bool,
    /// True if preferred cores are used: `amd_pstate/prefcore`.
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

/// Traces a request. Since 6.13 the tracepoint is in the functions that write the request.
fn trace_request(platform: &mut Platform, cpu: u32, boost: bool, request: PerfRequest, changed: bool) {
    // Check first: the levels are needed only if someone reads the trace.
    if platform.trace.is_enabled(Kind::AmdEpp)
        && let Ok(caps) = Caps::for_cpu(platform, cpu)
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
    // Skip unchanged requests: with shared memory each write is a mailbox command.
    if !changed {
        return;
    }
    state.cached = request;
    match platform.board.access {
        CppcAccess::Msr => {
            // The kernel ignores the result of wrmsrl_on_cpu() too.
            let _ = platform.chip.write(cpu, CPPC_REQ, request.pack());
        }
        CppcAccess::SharedMemory => {
            // cppc_init_perf() and mode changes set auto_sel to this value; writing it with each
            // request has the same effect.
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

/// The common part of both kinds of init: enables the driver, caches firmware's values and reads
/// the hardware's limits.
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
        // On hardware this is per package (pstate_enable() skips packages that it has seen);
        // writing it again changes nothing.
        let _ = platform.chip.write(cpu, CPPC_ENABLE, 1);
        PerfRequest::unpack(platform.chip.read(cpu, CPPC_REQ)?)
    } else {
        platform.chip.enable_shared(cpu);
        let (min, max, desired, epp) = platform.chip.read_shared(cpu);
        PerfRequest { min, max, desired, epp }
    };
    // amd_perf_ctl_reset(): select P0, or the old interface would cap the new one. Machines without
    // P-state registers reject the write, which does not affect CPPC.
    let _ = platform.chip.write(cpu, PERF_CTL, 0);
    let new = platform.since(Kernel::V6_18);
    let state = &mut platform.amd.cpus[cpu as usize];
    state.cached = request;
    // A driver that registers again allocates a new struct amd_cpudata.
    state.raw = false;
    // msr_init_perf(): a minimum alone comes from firmware, since the driver leaves nothing else
    // behind. Kernels before 6.13 do not distinguish it, and from 7.3 any minimum is firmware's.
    let alone = request.max == 0 && request.desired == 0 && request.epp == 0;
    let firmwares = platform.kernel >= Kernel::V7_3 || new && alone;
    state.bios_min = if firmwares && platform.board.access == CppcAccess::Msr { request.min } else { 0 };
    if !std::mem::replace(&mut state.known, true) || !new {
        // Up to 6.12 the default is whatever the register holds when the driver registers.
        state.default_epp = request.epp;
    }
    if !new && platform.amd.mode != Mode::Active && platform.board.access == CppcAccess::Msr {
        // Up to 6.12 the driver without preferences does not read the register: its first request
        // clears the preference (amd_pstate_cpu_init leaves cppc_req_cached at 0).
        state.cached = PerfRequest::unpack(0);
    }
    policy.current = policy.lowest;
    Ok(caps)
}

fn verify(platform: &Platform, policy: &Policy, limits: &mut Limits) {
    if platform.since(Kernel::V6_18)
        && limits.min == 0
        && let Ok(caps) = Caps::for_cpu(platform, policy.number)
    {
        // No minimum was requested: use firmware's, or else the lowest nonlinear frequency.
        let bios = platform.amd.cpus[policy.number as usize].bios_min;
        limits.min = caps.khz(if bios > 0 { bios } else { caps.lowest_nonlinear });
    }
    limits.clip(policy.lowest, policy.highest);
}

fn set_boost(platform: &mut Platform, policy: &mut Policy, on: bool) -> Answer {
    if !platform.board.boost && platform.since(Kernel::V6_12) {
        return Err(Errno::INVAL);
    }
    let caps = Caps::for_cpu(platform, policy.number)?;
    policy.highest = if on { caps.highest_khz() } else { caps.khz(caps.nominal) };
    // The driver's own request (req[1]) caps the maximum without replacing the user's request. The
    // switch in HWCR stays as it is; without boost the driver requests no level above nominal.
    policy.driver_request.1 = policy.highest as i32;
    Ok(())
}

fn limit_levels(platform: &Platform, caps: &Caps, policy: &Policy) -> (u8, u8) {
    if platform.since(Kernel::V6_18) {
        return (caps.perf(policy.min), caps.perf(policy.max));
    }
    // amd_pstate_update_min_max_limit(): levels are truncated and relative to cpuinfo_max_freq,
    // which boost changes. Without the CPU flag cpb, boost is not supported and the scale is the
    // full one (amd_pstate_init_boost_support()).
    let top = if platform.board.boost && !policy.boost { caps.nominal } else { caps.highest };
    let level = |khz: u32| (u64::from(khz) * u64::from(top) / u64::from(policy.highest.max(1))) as u8;
    let max = level(policy.max).clamp(caps.lowest, top);
    (level(policy.min).max(caps.lowest).min(max), max)
}

/// State of the boost switch at start: from 6.12 on it needs the CPU flag cpb.
fn boost_at_start(platform: &Platform) -> bool {
    if platform.before(Kernel::V6_12) {
        platform.board.cppc.first().is_some_and(|cppc| cppc.highest > cppc.nominal)
    } else {
        platform.board.boost
    }
}

/// amd_pstate_cpu_offline() since 6.13: restores firmware's minimum and keeps the other fields.
fn go_offline(platform: &mut Platform, cpu: u32) {
    let state = platform.amd.cpus[cpu as usize];
    send(platform, cpu, platform.boost, PerfRequest { min: state.bios_min, ..state.cached });
}

/// amd_pstate_epp_cpu_exit() and amd_pstate_cpu_exit() since 6.13: leave only firmware's minimum in
/// the request.
fn release(platform: &mut Platform, cpu: u32) {
    dynamic::end(platform, cpu);
    let min = platform.amd.cpus[cpu as usize].bios_min;
    send(platform, cpu, platform.boost, PerfRequest { min, max: 0, desired: 0, epp: 0 });
}
