//! amd-pstate-epp, active mode: the processor chooses by preference within the policy's limits.

use super::{
    Caps, PerfRequest, boost_at_start, dynamic, go_offline, init, limit_levels, preference::epp_values,
    release, send, set_boost, trace_request, verify,
};
use crate::{
    board::CppcAccess,
    cpufreq::{
        Driver, Platform, Style,
        policy::{Governor, Limits, Policy},
    },
    errno::Answer,
    kernel::Kernel,
};

/// amd-pstate-epp: active mode.
pub(crate) struct AmdPstateEpp;

impl Driver for AmdPstateEpp {
    fn name(&self) -> &'static str {
        "amd-pstate-epp"
    }

    fn style(&self) -> Style {
        Style::SetPolicy
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        let caps = init(platform, policy)?;
        // amd_pstate_epp_cpu_init() sets no latency, since nothing requests frequencies.
        policy.latency_ns = 0;
        // policy->policy in amd_pstate_epp_cpu_init(): a fallback for a default governor that is
        // neither performance nor powersave.
        policy.governor = if platform.board.server { Governor::Performance } else { Governor::Powersave };
        if platform.since(Kernel::V6_18) {
            policy.current = caps.khz(caps.lowest_nonlinear);
            if !platform.board.server {
                // A client starts balanced: init writes the default for battery.
                let epp = epp_values(platform, policy.number)[1];
                let state = &mut platform.amd.cpus[policy.number as usize];
                state.default_epp = epp;
                let request = PerfRequest { epp, ..state.cached };
                send(platform, policy.number, policy.boost, request);
            }
            if platform.amd.dynamic_epp {
                let start = if platform.board.server { dynamic::PERFORMANCE } else { dynamic::BALANCED };
                dynamic::start(platform, policy.number, start);
            }
        }
        Ok(())
    }

    fn verify(&self, platform: &Platform, policy: &Policy, limits: &mut Limits) {
        verify(platform, policy, limits);
    }

    fn set_policy(&self, platform: &mut Platform, policy: &mut Policy) {
        let Ok(caps) = Caps::for_cpu(platform, policy.number) else { return };
        let (mut min, max) = limit_levels(platform, &caps, policy);
        let performance = matches!(policy.governor, Governor::Performance);
        if performance && platform.since(Kernel::V7_3) {
            dynamic::end(platform, policy.leader());
        }
        // amd_pstate_epp_update_limit() of 6.12 puts this minimum only into the register's value.
        // With shared memory amd_pstate_set_epp() sends min_limit_perf, the policy's minimum.
        let kept = !platform.since(Kernel::V6_18) && platform.board.access == CppcAccess::SharedMemory;
        if performance && !kept {
            let bios = platform.amd.cpus[policy.number as usize].bios_min;
            // The performance policy requests at least the nominal level, since 7.0 firmware's
            // minimum if there is one.
            let floor = if platform.since(Kernel::V7_2) && bios > 0 { bios } else { caps.nominal };
            min = floor.min(max);
        }
        // Cloned: the driver's state is borrowed in the loop.
        for cpu in policy.online.clone() {
            let mut epp = platform.amd.cpus[cpu as usize].cached.epp;
            // The performance policy forces EPP 0, which remains after the policy changes
            // (amd_pstate_epp_set_policy).
            if performance {
                epp = 0;
            }
            // The preference is written first, separately.
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
        // amd_pstate_epp_cpu_offline() of 6.12 requests the lowest level and EPP 191, but
        // pstate_update_perf(), which writes the register, uses the cached request instead of its
        // arguments: the limits do not change (seen on 6.12.107). The preference is still 191 when
        // the CPU comes back: amd_pstate_epp_reenable() writes epp_cached.
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
