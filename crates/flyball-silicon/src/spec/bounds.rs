//! Bounds of every count, list and number in a machine file. Machine files may come from anyone: a
//! file that passes uses little memory and cannot overflow later arithmetic. `check.rs` then looks
//! for contradictions.

use super::{CoreSpec, MachineSpec, SpecFault, SstLevelSpec, SstSpec, Vendor};

/// Maximum size of a machine file in bytes.
pub const MAX_TEXT: usize = 1 << 20;
/// Maximum number of CPUs: the largest for which Linux is built (NR_CPUS on x86).
pub const MAX_CPUS: usize = 8192;
/// Maximum number of registers, and of CPUID leaves, in a file.
const MAX_LISTED: usize = 1024;
/// Maximum frequency, MHz: a ratio of 8 bits at a bus clock of 100 MHz, as in turbo and Speed
/// Select registers.
const MAX_MHZ: u32 = 25_500;
/// Number of core numbers in the mailbox, and maximum length of a list of cores.
const MAX_CORES: usize = 256;

/// A key, its value and its maximum.
type Bound<'a> = (&'a str, u64, u64);

fn check(bounds: &[Bound<'_>]) -> Result<(), SpecFault> {
    match bounds.iter().find(|(_, value, most)| value > most) {
        Some((key, value, most)) => {
            Err(SpecFault::Above { key: (*key).to_owned(), value: *value, most: *most })
        }
        None => Ok(()),
    }
}

/// The largest value of a list, to check all of them against one bound.
fn largest(values: &[u32]) -> u64 {
    values.iter().copied().max().unwrap_or(0).into()
}

fn within(key: &str, value: f64, low: f64, high: f64) -> Result<(), SpecFault> {
    // Also false for NaN.
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(SpecFault::Outside { key: key.to_owned(), low, high })
    }
}

impl MachineSpec {
    /// Returns the first count, list or number that is out of bounds.
    pub(super) fn check_bounds(&self) -> Result<(), SpecFault> {
        let (topology, identity, firmware) = (&self.topology, &self.identity, &self.firmware);
        // Arm: the fields of MIDR_EL1.
        let is_arm = identity.vendor == Vendor::Arm;
        let (model, stepping) = if is_arm { (0xfff, 0xff) } else { (0xff, 15) };
        let level = if is_arm { u16::MAX } else { 0xff };
        let levels = self.core.iter().flat_map(|core| core.ranking.iter().chain([&core.perf.highest]));
        check(&[
            ("name", self.name.len() as u64, 128),
            ("title", self.title.len() as u64, 512),
            ("about", self.about.len() as u64, 1 << 16),
            ("identity.brand", identity.brand.len() as u64, 128),
            ("identity.flags", identity.flags.len() as u64, 1 << 14),
            // The extended family adds eight bits to 15.
            ("identity.family", identity.family.into(), 0xff + 15),
            ("identity.model", identity.model.into(), model),
            ("identity.stepping", identity.stepping.into(), stepping),
            ("core.perf", levels.copied().max().unwrap_or(0).into(), level.into()),
            ("topology.power_domains", topology.power_domains.len() as u64, 16),
            ("topology.power_domains", largest(&topology.power_domains), 1024),
            ("topology.core_ids", topology.core_ids.len() as u64, MAX_CPUS as u64),
            ("topology.core_ids", largest(&topology.core_ids), 0xffff),
            ("topology.caches_kb", topology.caches_kb.len() as u64, 1024),
            ("topology.unit_cores", topology.unit_cores.len() as u64, MAX_CPUS as u64),
            // 20 GHz: above any real clock, and counters of years still fit.
            ("clock.tsc_khz", self.clock.tsc_khz.into(), 20_000_000),
            ("core", self.core.len() as u64, 8),
            ("turbo", largest(&self.turbo.cores), u16::MAX.into()),
            ("turbo", largest(&self.turbo.sse_mhz), MAX_MHZ.into()),
            ("turbo", largest(&self.turbo.avx2_mhz), MAX_MHZ.into()),
            ("turbo", largest(&self.turbo.avx512_mhz), MAX_MHZ.into()),
            ("power.domains", self.power.domains.len() as u64, 8),
            ("firmware.pstates_mhz", largest(&firmware.pstates_mhz), MAX_MHZ.into()),
            ("firmware.transition_us", firmware.transition_us.into(), 1_000_000),
            ("firmware.cpc_lowest_mhz", firmware.cpc_lowest_mhz.into(), MAX_MHZ.into()),
            ("firmware.cpc_nominal_mhz", firmware.cpc_nominal_mhz.into(), MAX_MHZ.into()),
            ("register", self.register.len() as u64, MAX_LISTED as u64),
            ("leaf", self.leaf.len() as u64, MAX_LISTED as u64),
        ])?;
        let follow = &firmware.autonomous;
        within("firmware.autonomous.rise_ms", follow.rise_ms, 0.0, 1e6)?;
        within("firmware.autonomous.fall_ms", follow.fall_ms, 0.0, 1e6)?;
        within("firmware.autonomous.gain", follow.gain, 0.0, 100.0)?;
        within("firmware.autonomous.gain_loss", follow.gain_loss, 0.0, 100.0)?;
        within("firmware.autonomous.ceiling_loss", follow.ceiling_loss, 0.0, 1.0)?;
        within("power.platform_loss", self.power.platform_loss, 0.0, 10.0)?;
        let heat = &self.thermal;
        for (key, value) in [("sink_k_per_w", heat.sink_k_per_w), ("die_k_per_w", heat.die_k_per_w)] {
            within(&format!("thermal.{key}"), value, 1e-4, 1000.0)?;
        }
        for (key, value) in [("sink_j_per_k", heat.sink_j_per_k), ("die_j_per_k", heat.die_j_per_k)] {
            within(&format!("thermal.{key}"), value, 1e-4, 1e6)?;
        }
        // The sink must be slower than the steps of the die's node (thermal.rs), or the sum
        // diverges.
        within("thermal: seconds of the sink", heat.sink_k_per_w * heat.sink_j_per_k, 0.01, 1e9)?;
        if let Some(uncore) = &self.uncore {
            // Seven bits of 100 MHz (MSR 0x620).
            check(&[
                ("uncore.min_mhz", uncore.min_mhz.into(), uncore.max_mhz.into()),
                ("uncore.max_mhz", uncore.max_mhz.into(), 12_700),
                ("uncore.clusters", uncore.clusters.into(), 16),
            ])?;
        }
        self.core.iter().enumerate().try_for_each(|(i, core)| check_core(i, core))?;
        self.sst.as_ref().map_or(Ok(()), check_sst)
    }
}

fn check_core(i: usize, core: &CoreSpec) -> Result<(), SpecFault> {
    let volts = core.volts.iter().map(|point| point.0).max().unwrap_or(0);
    let bounds = [
        ("count", core.count.into(), 1024),
        ("threads", core.threads.into(), 2),
        ("volts", core.volts.len() as u64, 64),
        ("volts", volts.into(), MAX_MHZ.into()),
        ("better", core.better.len() as u64, 1024),
        ("ranking", core.ranking.len() as u64, MAX_CPUS as u64),
        ("idle", core.idle.len() as u64, 15),
    ];
    check(&bounds).map_err(|fault| fault.in_part(&format!("core[{i}].")))?;
    for state in &core.idle {
        let bounds = [
            ("name", state.name.len() as u64, 64),
            ("desc", state.desc.len() as u64, 256),
            ("latency_us", state.latency_us.into(), 10_000_000),
            ("residency_us", state.residency_us.into(), 10_000_000),
            ("ramp_mhz", state.ramp_mhz.into(), MAX_MHZ.into()),
        ];
        check(&bounds).map_err(|fault| fault.in_part(&format!("core[{i}].idle.")))?;
    }
    Ok(())
}

fn check_sst(sst: &SstSpec) -> Result<(), SpecFault> {
    check(&[
        ("sst.version", sst.version.into(), 0xff),
        ("sst.io_domains", sst.io_domains.into(), 16),
        ("sst.absent", sst.absent.len() as u64, 32),
        // A list for each of the domains of 64 packages.
        ("sst.domain", sst.domain.len() as u64, 64 * 32),
        ("sst.pci_bus", sst.pci_bus.len() as u64, 64),
        ("sst.pci_bus", largest(&sst.pci_bus), 0xff),
    ])?;
    let own = sst.domain.iter().flat_map(|domain| &domain.level);
    sst.level.iter().chain(own).try_for_each(check_level)
}

fn check_level(level: &SstLevelSpec) -> Result<(), SpecFault> {
    let frequencies = [
        [level.base_mhz, level.base_avx2_mhz, level.base_avx512_mhz, level.base_amx_mhz],
        level.core_mhz,
        [level.memory_mhz, level.uncore_mhz[0], level.uncore_mhz[1], level.uncore_mhz[2]],
        [0, level.uncore1_mhz[0], level.uncore1_mhz[1], level.uncore1_mhz[2]],
    ];
    let mut bounds = vec![
        ("MHz", largest(frequencies.as_flattened()), MAX_MHZ.into()),
        // 15 bits of 1/8 W.
        ("tdp_w", level.tdp_w.into(), 4095),
        ("tjmax_c", level.tjmax_c.into(), 0xff),
        ("cores", level.cores.len() as u64, MAX_CORES as u64),
        ("counted", level.counted.into(), 0xff),
        ("cooling_type", level.cooling_type.into(), 3),
        ("bucket_cores", largest(&level.bucket_cores), 0xff),
        ("trl_mhz", largest(&level.trl_mhz.concat()), MAX_MHZ.into()),
    ];
    if let Some(bf) = &level.bf {
        bounds.extend([
            ("bf", largest(&[bf.high_mhz, bf.low_mhz]), MAX_MHZ.into()),
            ("bf.cores", bf.cores.len() as u64, MAX_CORES as u64),
            ("bf.tjmax_c", bf.tjmax_c.into(), 0xff),
            ("bf.tdp_w", bf.tdp_w.into(), 4095),
        ]);
    }
    if let Some(tf) = &level.tf {
        bounds.extend([
            ("tf.bucket_cores", largest(&tf.bucket_cores), 0xff),
            ("tf.high_mhz", largest(&tf.high_mhz.concat()), MAX_MHZ.into()),
            ("tf.clip_mhz", tf.clip_mhz.len() as u64, 8),
            ("tf.clip_mhz", largest(&tf.clip_mhz), MAX_MHZ.into()),
        ]);
    }
    check(&bounds).map_err(|fault| fault.in_part(&format!("sst.level {}: ", level.number)))
}
