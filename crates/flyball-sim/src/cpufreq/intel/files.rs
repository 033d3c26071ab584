//! Store and show functions of intel_pstate's files, and the registration of the driver for a mode.

use flyball_silicon::msr::ENERGY_PERF_BIAS;

use super::{
    EPP_WORDS, HWP_REQUEST, IntelCpufreq, IntelPstate, Mode, PM_ENABLE, Pstates, firmware_disables_turbo,
    percent_requests, set_epp,
};
use crate::{
    cpu_state::Cpu,
    cpufreq::{Cpufreq, Platform, policy::Governor},
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{kstrtou32, scan_unsigned, scan_word, streq},
};

/// min_perf_pct's floor: the lowest P-state as a percentage of turbo, rounded down.
pub(crate) fn floor_pct(platform: &Platform) -> u32 {
    Pstates::for_cpu(platform, 0).map_or(0, |pstates| pstates.min * 100 / pstates.turbo.max(1))
}

/// Registers the driver of a mode.
pub(crate) fn register(cpufreq: &mut Cpufreq, platform: &mut Platform, cpus: &[Cpu], mode: Mode) -> Answer {
    platform.intel.max_pct = 100;
    // intel_pstate_register_driver() clears `global`, which also resets no_turbo.
    platform.intel.no_turbo = firmware_disables_turbo(platform);
    if !platform.intel.present {
        // Only at boot (intel_pstate_init()): firmware's values of the words survive a change of
        // mode.
        platform.intel.choose_epp_table(platform.kernel, platform.board.model);
    }
    platform.intel.min_pct = floor_pct(platform);
    platform.intel.mode = mode;
    let result = match mode {
        Mode::Off => Ok(()),
        Mode::Active => cpufreq.register(platform, cpus, &IntelPstate),
        Mode::Passive => cpufreq.register(platform, cpus, &IntelCpufreq),
    };
    if result.is_err() {
        platform.intel.mode = Mode::Off;
    }
    result
}

/// Returns whether firmware enabled HWP before the kernel started. If so, the driver uses HWP even
/// with intel_pstate=no_hwp (intel_pstate_hwp_is_enabled()).
pub(crate) fn firmware_enabled_hwp(platform: &Platform) -> bool {
    platform.board.hwp && platform.chip.read(0, PM_ENABLE).is_ok_and(|value| value & 1 != 0)
}

/// Writes intel_pstate/status.
pub(crate) fn store_status(
    cpufreq: &mut Cpufreq,
    platform: &mut Platform,
    cpus: &[Cpu],
    text: &[u8],
) -> Answer {
    let old = platform.intel.mode;
    // HWP cannot be switched off, so neither can the driver. Up to 5.8 it cannot go passive either
    // (intel_pstate_unregister_driver()).
    let held = platform.intel.hwp && platform.before(Kernel::V5_10);
    let mode = if streq(text, "off") {
        if old == Mode::Off {
            // Newer kernels accept a second `off`, older ones reject it.
            return if platform.since(Kernel::V7_2) { Ok(()) } else { Err(Errno::INVAL) };
        }
        if platform.intel.hwp {
            return Err(Errno::BUSY);
        }
        Mode::Off
    } else if streq(text, "active") {
        Mode::Active
    } else if streq(text, "passive") {
        Mode::Passive
    } else {
        return Err(Errno::INVAL);
    };
    if mode == old {
        return Ok(());
    }
    if held {
        return Err(Errno::BUSY);
    }
    // Unregister the old driver first: two cannot be registered (EEXIST).
    if old != Mode::Off {
        cpufreq.unregister(platform);
    }
    register(cpufreq, platform, cpus, mode)
}

/// Refreshes every policy; in passive mode, also the requests that the percentages stand for.
fn refresh_all(cpufreq: &mut Cpufreq, platform: &mut Platform) {
    for index in 0..cpufreq.policies.len() {
        let number = cpufreq.policies[index].number;
        if platform.intel.mode == Mode::Passive
            && let Ok(pstates) = Pstates::for_cpu(platform, number)
        {
            cpufreq.policies[index].driver_request = percent_requests(platform, &pstates);
        }
        // cpufreq_update_policy() for all; in passive mode the kernel's work item does this when
        // requests change.
        cpufreq.refresh(platform, index);
    }
}

/// Writes intel_pstate/no_turbo.
pub(crate) fn store_no_turbo(cpufreq: &mut Cpufreq, platform: &mut Platform, text: &[u8]) -> Answer {
    // sscanf: `1x` is 1, and numbers above 1 count as 1 (clamp_t).
    let value = scan_unsigned(text)? as u32 != 0;
    if platform.intel.mode == Mode::Off {
        return Err(Errno::AGAIN);
    }
    // Turbo that firmware has disabled cannot be enabled here. Up to 5.15 every write then fails;
    // later the attempt sets no_turbo.
    let old = platform.before(Kernel::V6_1);
    let refused = firmware_disables_turbo(platform) && (old || !value);
    if refused && (platform.intel.no_turbo || old) {
        return Err(Errno::PERM);
    }
    let value = value || refused;
    // store_no_turbo() returns here if the value does not change, and refreshes nothing.
    if value == platform.intel.no_turbo {
        return Ok(());
    }
    platform.intel.no_turbo = value;
    if value && let Ok(pstates) = Pstates::for_cpu(platform, 0) {
        // store_no_turbo(): clamps the minimum to the range without turbo.
        let most = pstates.max * 100 / pstates.turbo.max(1);
        platform.intel.min_pct = platform.intel.min_pct.min(most);
    }
    if platform.since(Kernel::V6_12) {
        // intel_pstate_update_limits_for_all(). Before 6.12 cpuinfo_max_freq keeps its value from
        // registration.
        for policy in &mut cpufreq.policies {
            if let Ok(pstates) = Pstates::for_cpu(platform, policy.number) {
                policy.highest = pstates.khz(if value { pstates.max } else { pstates.turbo });
            }
        }
    }
    refresh_all(cpufreq, platform);
    if refused { Err(Errno::PERM) } else { Ok(()) }
}

/// Writes intel_pstate/max_perf_pct or min_perf_pct.
pub(crate) fn store_pct(cpufreq: &mut Cpufreq, platform: &mut Platform, is_max: bool, text: &[u8]) -> Answer {
    let value = scan_unsigned(text)? as u32;
    if platform.intel.mode == Mode::Off {
        return Err(Errno::AGAIN);
    }
    if is_max {
        // clamp_t with the other bound: an out-of-range value is not an error.
        platform.intel.max_pct = value.min(100).max(platform.intel.min_pct);
    } else {
        platform.intel.min_pct = value.max(floor_pct(platform)).min(platform.intel.max_pct);
    }
    refresh_all(cpufreq, platform);
    Ok(())
}

/// energy_performance_preference of a CPU.
pub(crate) fn show_epp(platform: &Platform, cpu: u32) -> Answer<String> {
    // intel_pstate_get_epp(cpu, 0) reads the register, not the cached request.
    let epp = (platform.chip.read(cpu, HWP_REQUEST)? >> 24) as u8;
    let table = platform.intel.epp_table;
    if platform.before(Kernel::V5_10) {
        // Until 5.9 each word stood for a range of values (HWP_EPP_*); since then numbers can be
        // written and read.
        let index = table.iter().position(|&value| epp <= value).unwrap_or(3);
        return Ok(EPP_WORDS[index + 1].to_owned());
    }
    Ok(match table.iter().position(|&value| value == epp) {
        Some(index) => EPP_WORDS[index + 1].to_owned(),
        // intel_pstate_get_energy_pref_index(): on models where `performance` has another value, 0
        // has no word.
        None if epp == 0 => "default".to_owned(),
        None => epp.to_string(),
    })
}

/// Writes energy_performance_preference.
pub(crate) fn store_epp(cpufreq: &mut Cpufreq, platform: &mut Platform, index: usize, text: &[u8]) -> Answer {
    let policy = &cpufreq.policies[index];
    let cpu = policy.leader();
    let word = scan_word(text, 20)?;
    let table = platform.intel.epp_table;
    let epp = match EPP_WORDS.iter().position(|name| name.as_bytes() == word) {
        // 128 is the reset value; a CPU with a policy has its own default by now.
        Some(0) => platform.intel.cpus[cpu as usize].default_epp.unwrap_or(128),
        Some(index) => table[index - 1],
        None if platform.before(Kernel::V5_10) => return Err(Errno::INVAL),
        // The whole text must be a number: `128 x` is rejected.
        None => u8::try_from(kstrtou32(text, 10)?).map_err(|_| Errno::INVAL)?,
    };
    // After parsing: a bad word gives EINVAL even without a driver.
    if platform.intel.mode == Mode::Off {
        return Err(Errno::AGAIN);
    }
    // intel_pstate_set_energy_pref_index(): under performance only 0 is allowed, as a number or
    // word. 4.19 accepts any value, which the next policy change overwrites.
    if platform.intel.mode == Mode::Active
        && matches!(policy.governor, Governor::Performance)
        && epp > 0
        && platform.since(Kernel::V5_10)
    {
        return Err(Errno::BUSY);
    }
    set_epp(platform, cpu, epp);
    Ok(())
}

/// base_frequency in kHz.
pub(crate) fn base_frequency(platform: &Platform, cpu: u32) -> Answer<u32> {
    let pstates = Pstates::for_cpu(platform, cpu)?;
    Ok(pstates.khz(pstates.max))
}

/// Words of energy_perf_bias.
const EPB_WORDS: [(&str, u8); 5] =
    [("performance", 0), ("balance-performance", 4), ("normal", 6), ("balance-power", 8), ("power", 15)];

/// Writes energy_perf_bias (arch/x86/kernel/cpu/intel_epb.c).
pub(crate) fn store_epb(platform: &mut Platform, cpu: u32, text: &[u8]) -> Answer {
    // intel_epb_normal is 7 on Alder Lake L, Gracemont and Raptor Lake P.
    let normal = if matches!(platform.board.model, 0x9a | 0xbe | 0xba) { 7 } else { 6 };
    // Words first, then a number in any base (__sysfs_match_string, kstrtou64 with base 0).
    let value = match EPB_WORDS.iter().find(|(word, _)| streq(text, word)) {
        Some(("normal", _)) => normal,
        Some((_, value)) => *value,
        None => kstrtou32(text, 0).ok().filter(|&value| value <= 15).ok_or(Errno::INVAL)? as u8,
    };
    // Keep it for an offline CPU: intel_epb_online() writes it when the CPU comes back.
    platform.intel.cpus[cpu as usize].epb = value;
    let old = platform.chip.read(cpu, ENERGY_PERF_BIAS)?;
    platform.chip.write(cpu, ENERGY_PERF_BIAS, old & !0xf | u64::from(value))
}
