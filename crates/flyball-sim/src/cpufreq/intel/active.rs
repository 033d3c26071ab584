//! intel_pstate in active mode: HWP's range and preference, or without HWP the driver's own
//! algorithm.

use super::{
    HWP_REQUEST, Pstates, init, leave, perf_limits, restore_epp, set_epp, trace_sample, verify, write_hwp,
    write_perf_ctl,
};
use crate::{
    cpu_state::Cpu,
    cpufreq::{
        Driver, Platform, Style,
        policy::{Governor, Limits, Policy},
    },
    errno::Answer,
    trace::Event,
};

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
            let Ok(pstates) = Pstates::for_cpu(platform, cpu) else { continue };
            let (min, max) = perf_limits(platform, policy, &pstates);
            if platform.intel.hwp {
                let epp = if performance {
                    let now = platform.chip.read(cpu, HWP_REQUEST).map_or(0, |value| (value >> 24) as u8);
                    let state = &mut platform.intel.cpus[cpu as usize];
                    // intel_pstate_hwp_set() saves once per change of policy (epp_policy): a second
                    // refresh must not save the 0.
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
                // Without HWP powersave follows load (see `sample`): limits only move what is set
                // now into the new range.
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
        // intel_pstate_set_update_util_hook() does nothing under HWP without hwp_boost: the
        // processor follows the load itself.
        !platform.intel.hwp || platform.intel.dynamic_boost
    }

    /// Without HWP, powersave: every 10 ms a P-state in proportion to load
    /// (intel_pstate_update_util). With HWP: the minimum is raised for tasks that wait for IO, if
    /// hwp_dynamic_boost says so.
    fn sample(&self, platform: &mut Platform, policy: &mut Policy, cpus: &[Cpu]) {
        let cpu = policy.leader();
        let Some(state) = cpus.get(cpu as usize) else { return };
        if platform.intel.hwp {
            // Set from the performance policy too, which clears its hook
            // (intel_pstate_set_policy()).
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
        let Ok(pstates) = Pstates::for_cpu(platform, cpu) else { return };
        let (min, max) = perf_limits(platform, policy, &pstates);
        // intel_pstate_update_util(): an eighth for a task that waited for IO, doubled for each
        // further one; halved without, and forgotten after more than a tick without a call.
        policy.io_boost = match (state.woke_from_io, policy.io_boost) {
            (true, 0) => 128,
            (true, boost) => (boost * 2).min(1024),
            // TICK_NSEC in the kernel, since the last call of the hook; here since the last sample,
            // which is 10 ms at least.
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
        // get_target_pstate(): a quarter of headroom, then half the distance when it falls, so that
        // it falls slowly.
        let mut target = (u64::from(ceiling) * 5 * u64::from(busy) / 4 / 1024) as u32;
        // The processor's lowest level, not the policy's: limits act on the result alone
        // (intel_pstate_prepare_request()).
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

/// intel_pstate_update_util_hwp_local(): the minimum is raised halfway to guaranteed, to
/// guaranteed, to the maximum; it falls back when the scheduler has not called for 3 ms.
fn dynamic_boost(platform: &mut Platform, policy: &Policy, cpu: u32, io: bool) {
    // hwp_boost_hold_time_ns.
    const HOLD_NS: u64 = 3_000_000;
    let Ok(pstates) = Pstates::for_cpu(platform, cpu) else { return };
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
    // Only the register: the cached request keeps the minimum to go back to, which is worked out
    // again here.
    write_hwp(platform, cpu, raised, max, 0, None);
}
