//! intel_cpufreq, the driver's passive mode: turns a governor's frequency or utilisation into a
//! request.

use super::{
    IntelPstate, Pstates, firmware_disables_turbo, init, leave, perf_limits, restore_epp, set_epp,
    trace_sample, verify, write_hwp, write_perf_ctl,
};
use crate::{
    cpufreq::{
        Driver, Platform, Style,
        policy::{Governor, Limits, Policy},
    },
    errno::Answer,
    governor::Relation,
    kernel::Kernel,
};

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
            let Ok(pstates) = Pstates::for_cpu(platform, cpu) else { continue };
            let (min, max) = perf_limits(platform, policy, &pstates);
            let target = pstates.level(khz, relation).clamp(min, max);
            // intel_cpufreq_target() and intel_cpufreq_fast_switch() return this value.
            set = target * pstates.scaling;
            if platform.intel.hwp {
                // CPUFREQ_GOV_STRICT_TARGET: these governors cap the maximum too, or HWP would run
                // above the target.
                let strict = matches!(
                    policy.governor,
                    Governor::Userspace(_) | Governor::Powersave | Governor::Performance
                );
                // intel_cpufreq_adjust_hwp() of 5.10 does not set the desired level.
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
        let Ok(pstates) = Pstates::for_cpu(platform, cpu) else { return };
        let (low, high) = perf_limits(platform, policy, &pstates);
        // intel_cpufreq_adjust_perf() scales to HWP's range without turbo, rounded up, if turbo is
        // off. Up to 6.1 it does so only if firmware has disabled turbo (global.turbo_disabled).
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

/// The percentages as frequency requests (passive mode).
pub(super) fn percent_requests(platform: &Platform, pstates: &Pstates) -> (i32, i32) {
    // update_qos_request(): percentages of turbo_freq, rounded up, even with no_turbo.
    let of = |pct: u32| (u64::from(pstates.khz(pstates.turbo)) * u64::from(pct)).div_ceil(100) as i32;
    (of(platform.intel.min_pct), of(platform.intel.max_pct))
}
