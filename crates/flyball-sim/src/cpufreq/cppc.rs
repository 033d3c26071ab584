//! cppc_cpufreq (drivers/cpufreq/cppc_cpufreq.c, drivers/acpi/cppc_acpi.c): CPPC of ACPI on Arm
//! servers, read from 7.3 and compared with 6.12, 7.2 and 7.3 on an emulated machine.

use flyball_silicon::SharedCppc;

use super::{
    Driver, Platform, Style,
    policy::{Limits, Policy},
};
use crate::{
    board::Cppc,
    errno::{Answer, Errno},
    governor::Relation,
    kernel::Kernel,
    text::{kstrtobool, kstrtou64, line},
};

/// Registers of a CPU that the silicon does not model.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Registers {
    /// Autonomous activity window: mantissa in bits 6:0, decimal exponent in 9:7.
    window: u64,
    /// Performance limited: bit 0 if below the desired level, bit 1 if below the minimum.
    limited: u64,
}

pub(crate) struct CppcCpufreq;

/// cppc_perf_to_khz(): linear through the lowest and nominal levels.
pub(super) fn khz(levels: &Cppc, level: u16) -> u32 {
    let rise = i64::from(levels.nominal_mhz - levels.lowest_mhz) * 1000;
    let run = i64::from(levels.nominal - levels.lowest).max(1);
    let offset = i64::from(levels.nominal_mhz) * 1000 - i64::from(levels.nominal) * rise / run;
    (offset + i64::from(level) * rise / run) as u32
}

/// cppc_khz_to_perf().
fn level(levels: &Cppc, khz: u32) -> u32 {
    let run = i64::from(levels.nominal_mhz - levels.lowest_mhz).max(1) * 1000;
    let rise = i64::from(levels.nominal - levels.lowest);
    let offset = i64::from(levels.nominal) - i64::from(levels.nominal_mhz) * 1000 * rise / run;
    (offset + i64::from(khz) * rise / run).max(0) as u32
}

fn levels(platform: &Platform, policy: &Policy) -> Answer<Cppc> {
    platform.board.cppc.get(policy.number as usize).copied().ok_or(Errno::NODEV)
}

/// cppc_cpufreq_update_perf_limits(): since 7.2 each request carries minimum and maximum.
fn limited(platform: &Platform, policy: &Policy, shared: SharedCppc) -> SharedCppc {
    let Ok(levels) = levels(platform, policy) else { return shared };
    let bounds = (u32::from(levels.lowest), u32::from(levels.highest));
    let of = |khz| level(&levels, khz).clamp(bounds.0, bounds.1);
    SharedCppc { min: of(policy.min.min(policy.max)), max: of(policy.max), ..shared }
}

impl Driver for CppcCpufreq {
    fn name(&self) -> &'static str {
        "cppc_cpufreq"
    }

    fn style(&self) -> Style {
        Style::Target
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        let levels = levels(platform, policy)?;
        policy.lowest = khz(&levels, levels.lowest);
        let can_boost = self.can_boost(platform, policy);
        policy.boost &= can_boost;
        // 6.12 begins with the nominal level even where boost is on.
        let boost = policy.boost && platform.since(Kernel::V6_18);
        policy.highest = khz(&levels, if boost { levels.highest } else { levels.nominal });
        // The driver's first minimum is a request since 7.2.
        if platform.since(Kernel::V7_2) && policy.request.0 == 0 {
            policy.request.0 = khz(&levels, levels.lowest_nonlinear) as i32;
        }
        // Only a mailbox has a latency; with registers, the core's default applies.
        policy.delay_us = Some(platform.board.cppc_latency_ns / 1000).filter(|us| *us > 0);
        policy.current = khz(&levels, levels.highest);
        for &cpu in &policy.online {
            let shared = platform.chip.shared(cpu);
            platform.chip.set_shared(cpu, SharedCppc { desired: levels.highest.into(), ..shared });
        }
        Ok(())
    }

    fn verify(&self, _platform: &Platform, policy: &Policy, limits: &mut Limits) {
        limits.clip(policy.lowest, policy.highest);
    }

    fn target(&self, platform: &mut Platform, policy: &mut Policy, khz: u32, _relation: Relation) -> u32 {
        let Ok(levels) = levels(platform, policy) else { return khz };
        for &cpu in &policy.online {
            let mut shared = SharedCppc { desired: level(&levels, khz), ..platform.chip.shared(cpu) };
            if platform.since(Kernel::V7_2) {
                shared = limited(platform, policy, shared);
            }
            platform.chip.set_shared(cpu, shared);
        }
        khz
    }

    fn switches_fast(&self, platform: &Platform) -> bool {
        // cppc_allow_fast_switch(): a mailbox may sleep.
        platform.board.cppc_latency_ns == 0
    }

    fn needs_update_limits(&self) -> bool {
        true
    }

    fn has_boost(&self, _platform: &Platform) -> Option<bool> {
        // The file exists because the driver has set_boost, even if the processor has no boost.
        Some(false)
    }

    fn can_boost(&self, platform: &Platform, policy: &Policy) -> bool {
        levels(platform, policy).is_ok_and(|levels| levels.highest > levels.nominal)
    }

    fn set_boost(&self, platform: &mut Platform, policy: &mut Policy, on: bool) -> Answer {
        if !self.can_boost(platform, policy) {
            return Err(Errno::INVAL);
        }
        let levels = levels(platform, policy)?;
        policy.highest = khz(&levels, if on { levels.highest } else { levels.nominal });
        if platform.before(Kernel::V6_18) {
            // 6.12 overwrites the maximum that was asked for.
            policy.request.1 = policy.highest as i32;
        } else {
            policy.driver_request.1 = policy.highest as i32;
        }
        Ok(())
    }

    fn leave(&self, platform: &mut Platform, cpu: u32) {
        // cppc_cpufreq_cpu_exit(): there is no `offline`. Firmware resets the other registers with
        // the CPU.
        let lowest = platform.board.cppc[cpu as usize].lowest.into();
        let epp = platform.chip.silicon().spec().firmware.epp.into();
        let shared = SharedCppc { desired: lowest, auto_select: 0, epp, ..platform.chip.shared(cpu) };
        platform.chip.set_shared(cpu, shared);
        platform.cppc[cpu as usize] = Registers::default();
    }

    fn enter(&self, platform: &mut Platform, policy: &mut Policy, _cpu: u32) {
        // init succeeded when the policy was created, so it succeeds again.
        let _ = self.init(platform, policy);
    }

    fn current(&self, platform: &Platform, policy: &Policy) -> Option<u32> {
        // The driver computes it from two readings of the counters.
        Some(platform.chip.khz(policy.leader()))
    }
}

/// Sets the bits of perf_limited if a busy CPU runs below its desired or minimum level.
pub(crate) fn report(platform: &mut Platform, cpu: u32, khz: u32) {
    let shared = platform.chip.shared(cpu);
    let silicon = platform.chip.silicon();
    // Frequencies are multiples of a step, so allow one step of difference.
    let least = khz + silicon.spec().firmware.step_khz;
    let misses = |level: u32| least <= silicon.level_khz(cpu as usize, level);
    let desired = shared.auto_select == 0 && misses(shared.desired.min(shared.max));
    let minimum = misses(shared.min);
    platform.cppc[cpu as usize].limited |= u64::from(desired) | u64::from(minimum) << 1;
}

/// Returns whether `_CPC` has the register behind a file.
fn has(platform: &Platform, name: &str) -> bool {
    name == "perf_limited" || platform.board.autonomous
}

pub(crate) fn show(platform: &Platform, policy: &Policy, name: &str, out: &mut Vec<u8>) -> Answer {
    if !has(platform, name) {
        return line(out, "<unsupported>");
    }
    let cpu = policy.leader();
    let (shared, own) = (platform.chip.shared(cpu), platform.cppc[cpu as usize]);
    line(
        out,
        match name {
            "auto_select" => shared.auto_select.into(),
            "auto_act_window" => (own.window & 0x7f) * 10u64.pow((own.window >> 7 & 7) as u32),
            // Where firmware chooses, nothing is desired (cppc_get_perf_limited_filtered()).
            "perf_limited" if shared.auto_select != 0 => own.limited & !1,
            "perf_limited" => own.limited,
            _ => u64::from(shared.epp),
        },
    )
}

pub(crate) fn store(platform: &mut Platform, policy: &Policy, name: &str, text: &[u8]) -> Answer {
    let cpu = policy.leader();
    let shared = platform.chip.shared(cpu);
    let check = |platform: &Platform| if has(platform, name) { Ok(()) } else { Err(Errno::OPNOTSUPP) };
    match name {
        "auto_select" => {
            let on = kstrtobool(text)?;
            check(platform)?;
            // Firmware chooses within the policy's limits.
            let shared = if on { limited(platform, policy, shared) } else { shared };
            platform.chip.set_shared(cpu, SharedCppc { auto_select: u32::from(on), ..shared });
        }
        "auto_act_window" => {
            let (mut window, mut digits) = (kstrtou64(text, 0)?, 0);
            if window > 1_270_000_000 {
                return Err(Errno::INVAL);
            }
            while window > 129 {
                (window, digits) = (window / 10, digits + 1);
            }
            check(platform)?;
            platform.cppc[cpu as usize].window = window.min(127) | digits << 7;
        }
        "perf_limited" => {
            let bits = kstrtou64(text, 0)?;
            if bits & !3 != 0 {
                return Err(Errno::INVAL);
            }
            platform.cppc[cpu as usize].limited &= !bits;
        }
        _ => {
            let epp = kstrtou64(text, 0)?;
            if epp > 255 {
                return Err(Errno::INVAL);
            }
            check(platform)?;
            platform.chip.set_shared(cpu, SharedCppc { epp: epp as u32, ..shared });
        }
    }
    Ok(())
}
