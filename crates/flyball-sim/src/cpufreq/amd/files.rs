//! Store and show functions of amd-pstate's files, and the registration of the driver for a mode.

use super::{AmdPstate, AmdPstateEpp, CPPC_REQ, Mode, PerfRequest, dynamic, preference::epp_values, send};
use crate::{
    board::CppcAccess,
    cpu_state::Cpu,
    cpufreq::{
        Cpufreq, Platform,
        policy::{Governor, Policy},
    },
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{kstrtobool, kstrtou32, scan_word, streq},
};

/// Words of energy_performance_preference, after `default`.
const EPP_WORDS: [&str; 4] = ["performance", "balance_performance", "balance_power", "power"];

/// energy_performance_preference of a CPU.
pub(crate) fn show_epp(platform: &Platform, cpu: u32) -> Answer<String> {
    let state = &platform.amd.cpus[cpu as usize];
    // Up to 6.12 amd_pstate_get_epp() reads the register, so it shows what another program wrote
    // there.
    let epp = match platform.board.access {
        CppcAccess::Msr if !platform.since(Kernel::V6_18) => {
            PerfRequest::unpack(platform.chip.read(cpu, CPPC_REQ)?).epp
        }
        _ => state.cached.epp,
    };
    let dynamic = platform.since(Kernel::V7_3) && state.dynamic.is_some();
    if state.raw && !dynamic {
        return Ok(epp.to_string());
    }
    // Several words can have one value; take the first.
    let word = EPP_WORDS.iter().zip(epp_values(platform, cpu)).find(|(_, value)| *value == epp);
    let word = match word {
        Some((word, _)) => (*word).to_owned(),
        None if platform.since(Kernel::V7_4) => epp.to_string(),
        None => return Err(Errno::INVAL),
    };
    Ok(if dynamic { format!("dynamic(profile:{word})") } else { word })
}

/// energy_performance_available_preferences under this policy.
pub(crate) fn available_epp(platform: &Platform, policy: &Policy) -> &'static str {
    if matches!(policy.governor, Governor::Performance) {
        "performance"
    } else if platform.since(Kernel::V7_3) {
        "default performance balance_performance balance_power power custom dynamic "
    } else if platform.since(Kernel::V7_2) {
        "default performance balance_performance balance_power power custom "
    } else {
        "default performance balance_performance balance_power power "
    }
}

/// Writes energy_performance_preference.
pub(crate) fn store_epp(platform: &mut Platform, policy: &Policy, text: &[u8]) -> Answer {
    let cpu = policy.leader();
    let state = platform.amd.cpus[cpu as usize];
    let new = platform.since(Kernel::V7_2);
    if platform.amd.dynamic_epp {
        return Err(Errno::BUSY);
    }
    let number = if new { kstrtou32(text, 0).ok() } else { None };
    let (epp, raw) = if let Some(number) = number {
        (u8::try_from(number).map_err(|_| Errno::INVAL)?, true)
    } else {
        // sysfs_match_string() compares the whole text. Older kernels use sscanf("%20s"), which
        // ignores what follows the first word.
        let word = if new { text.strip_suffix(b"\n").unwrap_or(text) } else { scan_word(text, 20)? };
        if word == b"dynamic" && platform.since(Kernel::V7_3) {
            if matches!(policy.governor, Governor::Performance) {
                return Err(Errno::BUSY);
            }
            if state.dynamic.is_none() {
                dynamic::start(platform, cpu, dynamic::BALANCED);
            }
            return Ok(());
        }
        let mut known = EPP_WORDS.iter().zip(epp_values(platform, cpu));
        let epp = if word == b"default" {
            state.default_epp
        } else {
            known.find(|(name, _)| name.as_bytes() == word).ok_or(Errno::INVAL)?.1
        };
        (epp, false)
    };
    // The performance governor allows only performance: EBUSY.
    if epp > 0 && epp != epp_values(platform, cpu)[0] && matches!(policy.governor, Governor::Performance) {
        return Err(Errno::BUSY);
    }
    dynamic::end(platform, cpu);
    // Only after the write is accepted: a rejected number must not change how the old value reads.
    platform.amd.cpus[cpu as usize].raw = raw;
    let request = PerfRequest { epp, ..state.cached };
    send(platform, cpu, policy.boost, request);
    Ok(())
}

/// Registers the driver of a mode at boot or after `disable`.
pub(crate) fn register(cpufreq: &mut Cpufreq, platform: &mut Platform, cpus: &[Cpu], mode: Mode) -> Answer {
    platform.amd.mode = mode;
    let result = match mode {
        Mode::Disable => Ok(()),
        Mode::Active => cpufreq.register(platform, cpus, &AmdPstateEpp),
        Mode::Passive | Mode::Guided => cpufreq.register(platform, cpus, &AmdPstate),
    };
    if result.is_err() {
        platform.amd.mode = Mode::Disable;
    }
    result
}

/// Writes amd_pstate/status. The kernel compares as many bytes as were written, which must be 6 or
/// 7.
pub(crate) fn store_status(
    cpufreq: &mut Cpufreq,
    platform: &mut Platform,
    cpus: &[Cpu],
    text: &[u8],
) -> Answer {
    let text = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    if !(6..=7).contains(&text.len()) {
        return Err(Errno::INVAL);
    }
    // get_mode_idx_from_str() compares only the first characters, and compares with `undefined`
    // first. No transition leads to that mode.
    if b"undefined".starts_with(text) {
        return Ok(());
    }
    let Some(mode) = Mode::ALL.into_iter().find(|mode| mode.word().as_bytes().starts_with(text)) else {
        return Err(Errno::INVAL);
    };
    let old = platform.amd.mode;
    if mode == old {
        return Ok(());
    }
    // mode_state_machine[][]: all other changes unregister the driver.
    let keeps = |mode| matches!(mode, Mode::Passive | Mode::Guided);
    // The driver stays; only autonomous selection changes
    // (amd_pstate_change_mode_without_dvr_change).
    if keeps(old) && keeps(mode) {
        platform.amd.mode = mode;
        for cpu in 0..platform.board.cpus() {
            platform.chip.set_autonomous(cpu, mode == Mode::Guided);
        }
        return Ok(());
    }
    if old != Mode::Disable {
        cpufreq.unregister(platform);
    }
    register(cpufreq, platform, cpus, mode)
}

/// Writes amd_pstate/dynamic_epp.
pub(crate) fn store_dynamic_epp(
    cpufreq: &mut Cpufreq,
    platform: &mut Platform,
    cpus: &[Cpu],
    text: &[u8],
) -> Answer {
    let on = if streq(text, "enabled") {
        true
    } else if streq(text, "disabled") {
        false
    } else {
        kstrtobool(text)?
    };
    // dynamic_epp_store() in 7.2.
    if platform.amd.mode != Mode::Active {
        return Err(Errno::INVAL);
    }
    if on == platform.amd.dynamic_epp {
        return Ok(());
    }
    // All policies start from scratch.
    cpufreq.unregister(platform);
    platform.amd.dynamic_epp = on;
    let mode = platform.amd.mode;
    register(cpufreq, platform, cpus, mode)
}
