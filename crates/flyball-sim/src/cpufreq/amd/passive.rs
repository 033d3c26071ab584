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
        // "limit the max perf when core performance boost feature is disabled": up to 6.12 this
        // caps only the register's maximum, later also the desired level.
        let top = if platform.board.boost || platform.before(Kernel::V6_12) { u8::MAX } else { caps.nominal };
        let within = if platform.since(Kernel::V6_18) { max.min(top) } else { max };
        // Guided mode does not affect governors that set a fixed frequency.
        let guided = platform.amd.mode == Mode::Guided && policy.governor.is_dynamic();
        for &cpu in &policy.online {
            // Without EPP files the driver still has to write the field, so it writes its cached
            // value.
            let epp = platform.amd.cpus[cpu as usize].cached.epp;
            let desired = desired.clamp(min.min(within), within);
            let (min, max) = (min.min(max), max.min(top));
            // Guided: firmware chooses between a floor and the maximum, and the target becomes the
            // floor (amd_pstate_update).
            let request = if guided {
                PerfRequest { min: desired, max, desired: 0, epp }
            } else {
                PerfRequest { min, max, desired, epp }
            };
            if platform.trace.is_enabled(Kind::AmdPerf)
                // No event without a sample: amd_pstate_sample() returns false if MPERF or TSC has
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
        // A mailbox may sleep, which the scheduler's hook must not. fast_switch_possible is
        // therefore set only for MSRs, and schedutil uses adjust_perf only with it.
        platform.board.access == CppcAccess::Msr
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        init(platform, policy)?;
        let cppc = platform.board.cppc_latency_ns;
        // 6.1 uses two constants in amd-pstate.c.
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
        // The driver has no `online` up to 6.12. cpufreq_online() calls `init` again, which resets
        // boost, including the global switch (amd_pstate_init_boost_support()).
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
            // Use the whole range: the limits apply only to the requested frequency.
            (min, max) = (caps.lowest, caps.highest);
        }
        let desired = if platform.since(Kernel::V6_18) {
            caps.perf(khz)
        } else {
            // amd_pstate_update_freq(): levels are relative to the highest frequency, whether boost
            // is on or off.
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
            // The limits do not apply to schedutil's request.
            (floor, max) = (caps.lowest, caps.highest);
        }
        if !platform.since(Kernel::V6_18) {
            // amd_pstate_adjust_perf(): below the lowest nonlinear level, work costs more energy,
            // not less.
            floor = floor.max(caps.lowest_nonlinear);
        }
        // cap_perf is the highest level even while boost is off: utilisation is relative to the
        // whole processor, and the limit cuts off everything above nominal.
        let scale = |value: u32| {
            if value >= capacity {
                caps.highest
            } else {
                div_ceil(u64::from(caps.highest) * u64::from(value), u64::from(capacity)) as u8
            }
        };
        let desired = scale(target);
        // Up to 6.12 a minimum equal to the capacity is ignored: amd_pstate_adjust_perf() starts
        // from the lowest level.
        let least = if min >= capacity && !platform.since(Kernel::V6_18) { caps.lowest } else { scale(min) };
        let min = least.max(floor).min(max);
        Self::request(platform, policy, &caps, min, desired, max);
        // amd_pstate_update() sets it too: with adjust_perf no frequency passes through the core.
        // Up to 6.12 it is in proportion to the limit.
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
        // Up to 6.12 the register does not change: there is no `offline`, and amd_pstate_cpu_exit()
        // only frees memory.
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
