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
        // intel_pstate_cpu_init(): a fallback for a default governor that is neither performance
        // nor powersave.
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
                // Desired 0: the processor chooses between minimum and maximum by itself.
                write_hwp(platform, cpu, if performance { max } else { min }, max, 0, epp);
            } else if performance {
                // intel_pstate_set_pstate() traces before it writes.
                platform.trace_event(cpu, Event::CpuFrequency { khz: max * pstates.scaling, cpu });
                write_perf_ctl(platform, cpu, max);
                policy.current = max * pstates.scaling;
            } else {
                // Without HWP, powersave follows load (see `sample`): limits only clamp the current
                // P-state to the new range.
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
        // Under HWP without hwp_boost, intel_pstate_set_update_util_hook() does nothing: the
        // processor follows the load itself.
        !platform.intel.hwp || platform.intel.dynamic_boost
    }

    /// Without HWP, powersave sets a P-state in proportion to load every 10 ms
    /// (intel_pstate_update_util). With HWP, hwp_dynamic_boost raises the minimum for tasks that
    /// wait for IO.
    fn sample(&self, platform: &mut Platform, policy: &mut Policy, cpus: &[Cpu]) {
        let cpu = policy.leader();
        let Some(state) = cpus.get(cpu as usize) else { return };
        if platform.intel.hwp {
            // intel_pstate_set_policy() clears the performance policy's hook, so only powersave
            // gets here.
            if platform.intel.dynamic_boost && matches!(policy.governor, Governor::Powersave) {
                dynamic_boost(platform, policy, cpu, state.woke_from_io);
            }
            return;
        }
        // INTEL_PSTATE_SAMPLING_INTERVAL: 10 ms.
        if matches!(policy.governor, Governor::Performance) || platform.now < policy.sampled + 10_000_000 {
            return;
        }
        // Before `sampled` is updated: the period over which load is measured.
        let gap = platform.now - policy.sampled;
        policy.sampled = platform.now;
        let Ok(pstates) = Pstates::for_cpu(platform, cpu) else { return };
        let (min, max) = perf_limits(platform, policy, &pstates);
        // intel_pstate_update_util(): a wakeup from IO sets the boost to an eighth, and each
        // further one doubles it. An update without one halves it. More than a tick without a call
        // resets it.
        policy.io_boost = match (state.woke_from_io, policy.io_boost) {
            (true, 0) => 128,
            (true, boost) => (boost * 2).min(1024),
            // The kernel resets after TICK_NSEC since the hook's last call; here it is since the
            // last sample, which is at least 10 ms ago.
            (false, _) if gap > 20_000_000 => 0,
            (false, boost) => boost / 2,
        };
        // busy is in 1024ths: MPERF relative to TSC. MPERF counts while the CPU is in C0, that is
        // while it runs.
        let ran = state.times.user + state.times.system;
        let busy = (ran.saturating_sub(policy.seen_busy) * 1024 / gap.max(1)) as u32;
        policy.seen_busy = ran;
        let busy = busy.max(policy.io_boost).min(1024);
        let ceiling = if platform.intel.no_turbo { pstates.max } else { pstates.turbo };
        // get_target_pstate(): add a quarter of headroom; when the target falls, go only half the
        // distance.
        let mut target = (u64::from(ceiling) * 5 * u64::from(busy) / 4 / 1024) as u32;
        // Clamp to the processor's lowest level, not the policy's: limits apply only to the result
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
        // Even if nothing changes: intel_pstate_adjust_pstate() traces each decision.
        platform.trace_event(cpu, Event::CpuFrequency { khz: policy.current, cpu });
        write_perf_ctl(platform, cpu, target);
        trace_sample(platform, policy, cpu, pstates.scaling, (from, target), Some(busy * 100 / 1024));
    }
}

/// intel_pstate_update_util_hwp_local(): raises the minimum first halfway to guaranteed, then to
/// guaranteed, then to the maximum. It falls back if the scheduler has not called for 3 ms.
fn dynamic_boost(platform: &mut Platform, policy: &Policy, cpu: u32, io: bool) {
    // hwp_boost_hold_time_ns.
    const HOLD_NS: u64 = 3_000_000;
    let Ok(pstates) = Pstates::for_cpu(platform, cpu) else { return };
    let (min, max) = perf_limits(platform, policy, &pstates);
    let (now, tick) = (platform.now, platform.board.tick_us * 1000);
    let boost = &mut platform.intel.cpus[cpu as usize].boost;
    let raised = if io {
        // A single wakeup does not count: boost needs two within two ticks (TICK_NSEC).
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
        // intel_pstate_hwp_boost_down(): each call without IO postpones the end.
        let expired = boost.min > 0 && now > boost.last_update + HOLD_NS;
        boost.last_update = now;
        if !expired {
            return;
        }
        boost.min = 0;
        min
    };
    // Write only the register: the kernel's cached request keeps the old minimum, which is
    // recomputed here.
    write_hwp(platform, cpu, raised, max, 0, None);
}
