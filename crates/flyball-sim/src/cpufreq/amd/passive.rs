//! amd-pstate in passive and guided mode: a governor's frequency or utilisation becomes a desired
//! level.

use super::{
    Caps, Mode, PerfRequest, boost_at_start, caps::div_ceil, go_offline, init, limit_levels, release, send,
    set_boost, verify,
};
use crate::{
    board::CppcAccess,
    cpufreq::{
        Driver, Platform, Style,
        policy::{Limits, Policy},
    },
    errno::Answer,
    governor::Relation,
    kernel::Kernel,
    trace::{Context, Event, Kind},
};

/// amd-pstate in passive and guided mode.
pub(crate) struct AmdPstate;

impl AmdPstate {
    /// amd_pstate_update().
    fn request(platform: &mut Platform, policy: &mut Policy, caps: &Caps, min: u8, desired: u8, max: u8) {
        // "limit the max perf when core performance boost feature is disabled": of the register's
        // maximum alone up to 6.12, of the desired level too since.
        let top = if platform.board.boost || platform.before(Kernel::V6_12) { u8::MAX } else { caps.nominal };
        let within = if platform.since(Kernel::V6_18) { max.min(top) } else { max };
        // Governors that set one frequency get it in guided mode too.
        let guided = platform.amd.mode == Mode::Guided && policy.governor.is_dynamic();
        for &cpu in &policy.online {
            // Without EPP files the driver still has to write the field: it writes back what it has
            // cached.
            let epp = platform.amd.cpus[cpu as usize].cached.epp;
            let desired = desired.clamp(min.min(within), within);
            let (min, max) = (min.min(max), max.min(top));
            // Guided: firmware chooses between a floor and the maximum, so the target becomes the
            // floor (amd_pstate_update).
            let request = if guided {
                PerfRequest { min: desired, max, desired: 0, epp }
            } else {
                PerfRequest { min, max, desired, epp }
            };
            if platform.trace.is_enabled(Kind::AmdPerf)
                // No event without a sample: amd_pstate_sample() is false if MPERF or TSC has
                // not moved.
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
        // A mailbox may sleep, which the scheduler's hook may not: fast_switch_possible is set for
        // MSRs only, and schedutil uses adjust_perf only with it.
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
        // The driver of 6.12 and before has no `online`: cpufreq_online() calls `init` again, which
        // brings boost back, also the global switch's value (amd_pstate_init_boost_support()).
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
        let Ok(caps) = Caps::for_cpu(platform, policy.number) else { return khz };
        let (mut min, mut max) = limit_levels(platform, &caps, policy);
        if platform.before(Kernel::V6_12) {
            // The whole range: the limits act on the frequency that is asked for alone.
            (min, max) = (caps.lowest, caps.highest);
        }
        let desired = if platform.since(Kernel::V6_18) {
            caps.perf(khz)
        } else {
            // amd_pstate_update_freq(): on the scale of the highest frequency that there is,
            // whether boost is on or not.
            let highest = u64::from(caps.highest_khz().max(1));
            ((u64::from(khz) * u64::from(caps.highest) + highest / 2) / highest) as u8
        };
        Self::request(platform, policy, &caps, min, desired, max);
        khz
    }

    fn adjust(&self, platform: &mut Platform, policy: &mut Policy, min: u32, target: u32, capacity: u32) {
        let Ok(caps) = Caps::for_cpu(platform, policy.number) else { return };
        let (mut floor, mut max) = limit_levels(platform, &caps, policy);
        if platform.before(Kernel::V6_12) {
            // The limits do not act on what schedutil asks for.
            (floor, max) = (caps.lowest, caps.highest);
        }
        if !platform.since(Kernel::V6_18) {
            // amd_pstate_adjust_perf(): below the lowest nonlinear level work costs more energy,
            // not less.
            floor = floor.max(caps.lowest_nonlinear);
        }
        // cap_perf is the highest level also while boost is off: utilisation is on the scale of the
        // whole processor, and the limit cuts off what is above nominal.
        let scale = |value: u32| {
            if value >= capacity {
                caps.highest
            } else {
                div_ceil(u64::from(caps.highest) * u64::from(value), u64::from(capacity)) as u8
            }
        };
        let desired = scale(target);
        // Up to 6.12 a minimum of the whole capacity is none: amd_pstate_adjust_perf() starts from
        // the lowest level.
        let least = if min >= capacity && !platform.since(Kernel::V6_18) { caps.lowest } else { scale(min) };
        let min = least.max(floor).min(max);
        Self::request(platform, policy, &caps, min, desired, max);
        // As amd_pstate_update() does: with adjust_perf no frequency passes the core. Up to 6.12 in
        // proportion to the limit.
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
        // Up to 6.12 the register stays as it is: there is no `offline`, and amd_pstate_cpu_exit()
        // only frees.
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
