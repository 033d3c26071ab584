//! Compares what calls read with the machine's file.

use flyball_silicon::{Silicon, spec::SstLevelSpec};

use super::{Case, Made, OF_LEVELS, answered, expect::answer_of_silicon, states};
use crate::speed_select::{Call, Shape, by_number, bytes, nr};

/// Expected fields and values in a call's answer about a level.
fn wanted(
    case: &Case<'_>,
    shape: &Shape,
    at: usize,
    level: &SstLevelSpec,
    nr: u32,
) -> Vec<(&'static str, Vec<u64>)> {
    let mhz = |mhz: u32| u64::from(mhz / 100 * 100);
    let one = |name, value: u64| (name, vec![value]);
    let padded = |list: &[u32], length: usize| {
        let mut all: Vec<u64> = list.iter().map(|n| u64::from(*n)).collect();
        all.resize(length, 0);
        all
    };
    let table = |lists: &[Vec<u32>]| {
        let mut all: Vec<u64> = lists.iter().take(6).flat_map(|list| padded(list, 8)).collect();
        all.resize(48, 0);
        all
    };
    let core = &case.mode.spec.core[0];
    let cores = &shape.domains[at].cores;
    let mask =
        |list: &[u32]| list.iter().filter(|core| **core < 64).fold(0u64, |mask, core| mask | 1 << core);
    match nr {
        nr::GET_PERF_LEVEL_INFO => {
            let own = [core.max_mhz, level.base_mhz, core.efficient_mhz, core.min_mhz];
            let [p0, p1, pn, pm] = if level.core_mhz == [0; 4] { own } else { level.core_mhz };
            let [fabric0, fabric1, fabricm] = level.uncore_mhz;
            vec![
                one("tdp_ratio", u64::from(level.base_mhz / 100)),
                one("base_freq_mhz", mhz(level.base_mhz)),
                one("base_freq_avx2_mhz", mhz(level.base_avx2_mhz)),
                one("base_freq_avx512_mhz", mhz(level.base_avx512_mhz)),
                one("base_freq_amx_mhz", mhz(level.base_amx_mhz)),
                one("thermal_design_power_w", u64::from(level.tdp_w)),
                one("tjunction_max_c", u64::from(level.tjmax_c)),
                one("max_memory_freq_mhz", mhz(level.memory_mhz)),
                one("cooling_type", u64::from(level.cooling_type)),
                one("p0_freq_mhz", mhz(p0)),
                one("p1_freq_mhz", mhz(p1)),
                one("pn_freq_mhz", mhz(pn)),
                one("pm_freq_mhz", mhz(pm)),
                one("p0_fabric_freq_mhz", mhz(fabric0)),
                one("p1_fabric_freq_mhz", mhz(fabric1)),
                one("pm_fabric_freq_mhz", mhz(fabricm)),
                one("max_buckets", 8),
                one("max_trl_levels", 6),
                ("bucket_core_counts", padded(&level.bucket_cores, 8)),
                ("trl_freq_mhz", table(&level.trl_mhz)),
            ]
        }
        nr::GET_PERF_LEVEL_CPU_MASK => {
            let all: Vec<u32> = (0..*cores).collect();
            vec![one("mask", mask(if level.cores.is_empty() { &all } else { &level.cores }))]
        }
        nr::GET_BASE_FREQ_INFO => level.bf.as_ref().map_or_else(Vec::new, |bf| {
            vec![
                one("high_base_freq_mhz", mhz(bf.high_mhz)),
                one("low_base_freq_mhz", mhz(bf.low_mhz)),
                one("tjunction_max_c", u64::from(bf.tjmax_c)),
                one("thermal_design_power_w", u64::from(bf.tdp_w)),
            ]
        }),
        nr::GET_BASE_FREQ_CPU_MASK => vec![one("mask", level.bf.as_ref().map_or(0, |bf| mask(&bf.cores)))],
        nr::GET_TURBO_FREQ_INFO => level.tf.as_ref().map_or_else(Vec::new, |tf| {
            vec![
                one("max_clip_freqs", 6),
                one("max_buckets", 8),
                one("max_trl_levels", 6),
                ("lp_clip_freq_mhz", padded(&tf.clip_mhz, 6)),
                ("bucket_core_counts", padded(&tf.bucket_cores, 8)),
                ("trl_freq_mhz", table(&tf.high_mhz)),
            ]
        }),
        nr::GET_PERF_LEVEL_FABRIC_INFO => {
            let of = |which: usize| padded(&[level.uncore_mhz[which], level.uncore1_mhz[which]], 8);
            vec![
                one("max_fabrics", 2),
                ("p0_fabric_freq_mhz", of(0)),
                ("p1_fabric_freq_mhz", of(1)),
                ("pm_fabric_freq_mhz", of(2)),
            ]
        }
        _ => Vec::new(),
    }
}

fn compare(call: &Call, reply: &[u8], wanted: &[(&'static str, Vec<u64>)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, wanted) in wanted {
        let found = call.list(reply, name);
        if found != *wanted {
            lines.push(format!("{name} is {found:?} instead of {wanted:?}"));
        }
    }
    lines
}

pub(super) fn of_level(case: &Case<'_>) -> Vec<String> {
    let (Some(made), Some(shape)) = (Made::of(case), case.mode.shape.as_ref()) else { return Vec::new() };
    let Some(call) =
        by_number(made.number).filter(|call| made.answer.is_ok() && OF_LEVELS.contains(&call.nr))
    else {
        return Vec::new();
    };
    let Some(reply) = bytes(&made.answer.value) else { return Vec::new() };
    let of = |name| call.get(made.argument, name);
    let at = shape.domain(of("socket_id"), of("power_domain_id"));
    let level = at.and_then(|at| Some((at, shape.domains[at].level(u32::try_from(of("level")).ok()?)?)));
    level.map_or_else(Vec::new, |(at, level)| compare(call, &reply, &wanted(case, shape, at, level, call.nr)))
}

pub(super) fn of_mailbox(case: &Case<'_>) -> Vec<String> {
    let Some((argument, reply, call)) = answered(case, nr::MBOX_COMMAND) else { return Vec::new() };
    let Some(shape) = case.mode.shape.as_ref() else { return Vec::new() };
    let done = case.after.answers.first().map_or(0, |answer| answer.returned).clamp(0, 64) as usize;
    let mut lines = Vec::new();
    for command in 0..done.min(call.count(argument)) {
        let of = |name| call.of_command(argument, command, name) as u32;
        let part = of("sub_command") as u8;
        // Commands that read settings are checked when the settings are read back.
        if of("command") != 0x7f || matches!(part, 0..=2 | 8) {
            continue;
        }
        let Some(at) = shape.domain_of_cpu(u64::from(of("logical_cpu"))) else { continue };
        let wanted = answer_of_silicon(
            case,
            shape.domains[at].package,
            part,
            of("parameter") & 0x3fff,
            of("req_data"),
        );
        let found = call.of_command(&reply, command, "resp_data") as u32;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            lines.push(format!("the answer to 7f{part:02x} is {found:#x} instead of {wanted:#x}"));
        }
    }
    lines
}

pub(super) fn of_platform(case: &Case<'_>) -> Vec<String> {
    let Some(shape) = case.mode.shape.as_ref() else { return Vec::new() };
    if let Some((_, reply, call)) = answered(case, nr::GET_PLATFORM_INFO) {
        let mailbox = u64::from(!shape.is_tpmi());
        let memory = u64::from(shape.class == flyball_silicon::spec::SstClass::MailboxPci);
        let mut wanted = vec![
            ("max_cmds_per_ioctl", vec![64]),
            ("mbox_supported", vec![mailbox]),
            ("mmio_supported", vec![memory]),
        ];
        // 2 or 3 with TPMI.
        let version = call.get(&reply, "api_version");
        if (version == 1) == shape.is_tpmi() {
            wanted.push(("api_version", vec![if shape.is_tpmi() { 3 } else { 1 }]));
        }
        return compare(call, &reply, &wanted);
    }
    if let Some((argument, reply, call)) = answered(case, nr::COUNT_TPMI_INSTANCES) {
        let of_package =
            shape.domains.iter().filter(|d| u64::from(d.package) == call.get(argument, "socket_id"));
        let mask = of_package.fold(0u64, |mask, d| mask | 1 << d.number);
        let count = if mask == 0 { 0 } else { u64::from(shape.per_package) };
        return compare(call, &reply, &[("count", vec![count]), ("valid_mask", vec![mask])]);
    }
    let Some((argument, reply, call)) = answered(case, nr::GET_PHY_ID) else { return Vec::new() };
    let Ok(silicon) = Silicon::new(case.mode.spec.clone(), 0) else { return Vec::new() };
    let mut lines = Vec::new();
    for command in 0..call.count(argument) {
        let cpu = call.of_command(argument, command, "logical_cpu");
        let found = call.of_command(&reply, command, "physical_cpu");
        if cpu < u64::from(shape.cpus)
            && let Some(wanted) =
                silicon.punit_cpu(cpu as usize).ok().filter(|wanted| wanted & 0xffff_ffff != found)
        {
            lines.push(format!("the power unit's number of CPU {cpu} is {found:#x} instead of {wanted:#x}"));
        }
    }
    lines
}

pub(super) fn base_frequency(case: &Case<'_>) -> Vec<String> {
    let Some((shape, _, after)) = states(case) else { return Vec::new() };
    let mut lines = Vec::new();
    for (d, state) in shape.domains.iter().zip(&after.domains) {
        let Some(level) = state.level.and_then(|level| d.level(level)) else { continue };
        for (core, cpus) in d.cpus.iter().enumerate() {
            let mhz = match (&level.bf, state.base_freq) {
                (Some(bf), Some(true)) if bf.cores.contains(&(core as u32)) => bf.high_mhz,
                (Some(bf), Some(true)) => bf.low_mhz,
                (_, Some(false)) => level.base_mhz,
                _ => continue,
            };
            for cpu in cpus {
                let path = format!("cpufreq/policy{cpu}/base_frequency");
                if let Some(found) = case.after.number(&path).filter(|khz| *khz != i64::from(mhz) * 1000) {
                    lines.push(format!(
                        "{path} is {found} at level {} with base-freq {}",
                        level.number,
                        if state.base_freq == Some(true) { "on" } else { "off" }
                    ));
                }
            }
        }
    }
    lines
}
