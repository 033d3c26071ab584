//! Checks that a specification describes a possible machine.

use crate::spec::{
    CoreSpec, MAX_CPUS, MachineSpec, PROFILE_WORDS, SpecError, SpecFault, SstClass, SstLevelSpec, SstSpec,
};

impl MachineSpec {
    /// Checks that the machine is a possible one.
    ///
    /// # Errors
    /// Returns the first mistake found.
    pub fn check(&self) -> Result<(), SpecError> {
        // Bounds first: the arithmetic of what follows relies on them.
        let checked = self
            .check_bounds()
            .and_then(|()| self.check_topology())
            .and_then(|()| self.core.iter().enumerate().try_for_each(|(i, c)| check_core(i, c)))
            .and_then(|()| self.check_turbo())
            .and_then(|()| self.check_power())
            .and_then(|()| self.check_heat())
            .and_then(|()| self.check_firmware())
            .and_then(|()| self.sst.as_ref().map_or(Ok(()), |s| self.check_sst(s)));
        checked.map_err(|fault| SpecError { machine: self.name.clone(), fault })
    }

    fn check_topology(&self) -> Result<(), SpecFault> {
        let t = &self.topology;
        if t.packages == 0 || t.dies == 0 || t.packages > 64 || t.dies > 16 {
            return Err(SpecFault::Rule("topology: packages must be 1 to 64, dies 1 to 16"));
        }
        let domains = &t.power_domains;
        let cores: u64 = domains.iter().map(|&n| u64::from(n)).sum();
        // Domains take the place of dies: both would give each core two places.
        if !domains.is_empty() && (t.dies != 1 || domains.len() > 16 || cores != self.cores_per_package()) {
            return Err(SpecFault::Rule(
                "topology.power_domains: at most 16, with all cores of a package of one die",
            ));
        }
        if self.core.is_empty() {
            return Err(SpecFault::Rule("core: at least one core type is needed"));
        }
        if self.cpus() > MAX_CPUS {
            return Err(SpecFault::TooManyCpus);
        }
        if !t.core_ids.is_empty() && t.core_ids.len() as u64 != self.cores_per_package() {
            return Err(SpecFault::CoreIds { ids: t.core_ids.len(), cores: self.cores_per_package() });
        }
        // Ratios are computed by dividing by bus_khz.
        if self.clock.tsc_khz < 100_000 || !(25_000..=400_000).contains(&self.clock.bus_khz) {
            return Err(SpecFault::Rule("clock: tsc_khz must be 100000 or more, bus_khz 25000 to 400000"));
        }
        Ok(())
    }

    fn check_turbo(&self) -> Result<(), SpecFault> {
        let u = &self.turbo;
        if u.cores.len() > 16 || u.cores.windows(2).any(|w| w[0] >= w[1]) || u.sse_mhz.len() != u.cores.len()
        {
            return Err(SpecFault::Rule("turbo: at most 16 buckets, cores rising, one sse_mhz each"));
        }
        for list in [&u.avx2_mhz, &u.avx512_mhz] {
            if !list.is_empty() && list.len() != u.cores.len() {
                return Err(SpecFault::Rule("turbo: one frequency a bucket"));
            }
        }
        Ok(())
    }

    fn check_power(&self) -> Result<(), SpecFault> {
        let p = &self.power;
        let watts = [
            p.tdp_w,
            p.pl1_w,
            p.pl2_w,
            p.uncore_busy_w,
            p.uncore_idle_w,
            p.package_sleep_w,
            p.dram_idle_w,
            p.dram_busy_w,
            p.platform_w,
        ];
        if watts.iter().any(|w| !w.is_finite() || !(0.0..=10_000.0).contains(w)) {
            return Err(SpecFault::Rule("power: watts must be 0 to 10000"));
        }
        // Widths of the fields of MSR 0x606.
        if p.energy_unit > 31 || p.power_unit > 15 || p.time_unit > 15 {
            return Err(SpecFault::Rule("power: units are out of range"));
        }
        if !(p.pl1_s > 0.0 && p.pl1_s <= 1000.0 && p.pl2_s > 0.0 && p.pl2_s <= 1000.0) {
            return Err(SpecFault::Rule("power: windows must be above 0 and at most 1000 s"));
        }
        Ok(())
    }

    fn check_heat(&self) -> Result<(), SpecFault> {
        let h = &self.thermal;
        let v = &self.variation;
        if !(0.0..=20.0).contains(&v.ambient_c) || !(0.0..=1.0).contains(&v.preheat) {
            return Err(SpecFault::Rule("variation: ambient_c must be 0 to 20, preheat 0 to 1"));
        }
        for x in [h.sink_k_per_w, h.sink_j_per_k, h.die_k_per_w, h.die_j_per_k] {
            if !(x.is_finite() && x > 0.0) {
                return Err(SpecFault::Rule("thermal: resistances and capacities must be above 0"));
            }
        }
        // Thermal::step() cuts its steps to a quarter of this: a smaller constant would make every
        // simulated millisecond many steps.
        if h.die_k_per_w * h.die_j_per_k < 0.002 {
            return Err(SpecFault::Rule("thermal: the die's time constant is below 2 ms"));
        }
        if h.throttle_c > h.tjmax_c || (h.throttle_c != 0 && h.throttle_c < 50) {
            return Err(SpecFault::Rule("thermal.throttle_c: 0, or 50 to tjmax_c"));
        }
        // The sensors' readouts have seven bits of degrees below it.
        if !(50..=127).contains(&h.tjmax_c)
            || !(-40.0..=60.0).contains(&h.ambient_c)
            || !(0.0..=20.0).contains(&h.core_k_per_w)
        {
            return Err(SpecFault::Rule(
                "thermal: tjmax_c must be 50 to 127, ambient_c -40 to 60, core_k_per_w 0 to 20",
            ));
        }
        Ok(())
    }

    fn check_firmware(&self) -> Result<(), SpecFault> {
        let f = &self.firmware;
        if !(100..=100_000).contains(&f.period_us) || !(1000..=400_000).contains(&f.step_khz) {
            return Err(SpecFault::Rule(
                "firmware: period_us must be 100 to 100000, step_khz 1000 to 400000",
            ));
        }
        if !(0.0..=0.2).contains(&f.pstate_loss) || !(0.0..=0.2).contains(&f.pstate_power) {
            return Err(SpecFault::Rule("firmware: pstate_loss and pstate_power must be 0 to 0.2"));
        }
        for device in &self.profile_device {
            let mut words = device.choices.iter().chain(&device.hidden).chain([&device.start]);
            if words.any(|word| !PROFILE_WORDS.contains(&word.as_str())) {
                return Err(SpecFault::Rule("profile_device: the kernel has no such profile"));
            }
            if device.name.is_empty() || !device.choices.contains(&device.start) {
                return Err(SpecFault::Rule("profile_device: needs a name and a start among its choices"));
            }
        }
        if self.profile_device.len() > 16 {
            return Err(SpecFault::Rule("profile_device: at most 16"));
        }
        if f.pstates_mhz.windows(2).any(|w| w[0] <= w[1]) || f.pstates_mhz.len() > 16 {
            return Err(SpecFault::Rule("firmware.pstates_mhz: at most 16, falling"));
        }
        Ok(())
    }

    fn check_sst(&self, s: &SstSpec) -> Result<(), SpecFault> {
        self.check_levels(s, &s.level)?;
        s.domain.iter().try_for_each(|d| self.check_levels(s, &d.level))
    }

    fn check_levels(&self, s: &SstSpec, levels: &[SstLevelSpec]) -> Result<(), SpecFault> {
        // The TPMI block has places for five levels.
        if levels.is_empty()
            || levels.windows(2).any(|w| w[0].number >= w[1].number)
            || levels.iter().any(|l| l.number > 4)
        {
            return Err(SpecFault::Rule("sst.level: numbers 0 to 4, rising"));
        }
        let largest = self.topology.power_domains.iter().max().map(|&n| u64::from(n));
        let cores = if s.class == SstClass::Tpmi && largest.is_some() {
            largest.unwrap_or(0)
        } else if s.class == SstClass::Tpmi {
            self.cores_per_package() / u64::from(self.topology.dies)
        } else {
            self.cores_per_package()
        };
        // Numbers with gaps: up to the room that registers have.
        // A TPMI mask is one register of 64 bits; the mailbox has 256 core numbers.
        let room = if s.class == SstClass::Tpmi { 64 } else { 256 };
        if self.topology.unit_cores.iter().any(|&number| number >= room) {
            return Err(SpecFault::UnitCores { room });
        }
        let cores = if self.topology.unit_cores.is_empty() { cores } else { u64::from(room) };
        if s.cores_per_module == 0 || s.cores_per_module > 4 {
            return Err(SpecFault::Rule("sst.cores_per_module: 1 to 4"));
        }
        for l in levels {
            let lists = [Some(&l.cores), l.bf.as_ref().map(|b| &b.cores)];
            if lists.into_iter().flatten().flatten().any(|&c| u64::from(c) >= cores) {
                return Err(SpecFault::LevelCores { level: l.number, cores });
            }
            // Six registers of eight bytes each.
            if l.trl_mhz.len() > 6
                || l.bucket_cores.len() > 8
                || l.trl_mhz.iter().any(|t| t.len() != l.bucket_cores.len())
            {
                return Err(SpecFault::LevelRule {
                    level: l.number,
                    rule: "at most 6 turbo lists of one frequency a bucket, 8 buckets",
                });
            }
            if let Some(t) = &l.tf
                && (t.bucket_cores.len() > 8
                    || t.high_mhz.len() > 6
                    || t.high_mhz.iter().any(|h| h.len() != t.bucket_cores.len()))
            {
                return Err(SpecFault::LevelRule { level: l.number, rule: "tf: one frequency a bucket" });
            }
        }
        Ok(())
    }
}

/// Core type number `i`.
fn check_core(i: usize, c: &CoreSpec) -> Result<(), SpecFault> {
    let at = |key, rule| Err(SpecFault::CoreRule { index: i, key, rule });
    if c.count == 0 || c.count > 1024 {
        return at("count", "must be 1 to 1024");
    }
    if !(1..=2).contains(&c.threads) {
        return at("threads", "must be 1 or 2");
    }
    if c.min_mhz < 100 || c.max_mhz > 10_000 {
        return at("min_mhz", "frequencies must be 100 to 10000 MHz");
    }
    if !(c.min_mhz <= c.efficient_mhz && c.efficient_mhz <= c.base_mhz && c.base_mhz <= c.max_mhz) {
        return at("min_mhz", "min, efficient, base and max must rise in this order");
    }
    let p = &c.perf;
    if p.lowest == 0 || p.lowest > p.efficient || p.efficient > p.nominal || p.nominal > p.highest {
        return at("perf", "lowest, efficient, nominal and highest must rise in this order from 1");
    }
    if c.volts.is_empty() || c.volts.windows(2).any(|w| w[0].0 >= w[1].0 || w[0].1 > w[1].1) {
        return at("volts", "points must rise in frequency and not fall in voltage");
    }
    if c.volts.iter().any(|v| !(200..=2000).contains(&v.1)) {
        return at("volts", "millivolts must be 200 to 2000");
    }
    let sane = |x: f64, to: f64| x.is_finite() && (0.0..=to).contains(&x);
    if !sane(c.dynamic_nf, 100.0)
        || !sane(c.leakage_w, 100.0)
        || !sane(c.idle_activity, 1.0)
        || !sane(c.budget_w, 10_000.0)
    {
        return at("dynamic_nf", "dynamic_nf, leakage_w, idle_activity or budget_w is out of range");
    }
    if !sane(c.smt_power, 2.0) || !sane(c.smt_share, 1.0) || c.smt_share < 0.1 {
        return at("smt_share", "smt_power must be 0 to 2, smt_share 0.1 to 1");
    }
    if c.idle.is_empty() || c.idle.len() > 15 {
        return at("idle", "1 to 15 idle states are needed");
    }
    for s in &c.idle {
        if !sane(s.leakage, 1.0)
            || !sane(s.activity, 1.0)
            || !sane(s.ramp_us, 100_000.0)
            || !sane(s.wake_us, 100_000.0)
        {
            return at("idle", "shares must be 0 to 1, times 0 to 100000 us");
        }
    }
    if c.better.iter().any(|b| b.0 >= c.count || !(0.5..=1.0).contains(&b.1)) {
        return at("better", "core numbers must be below count, shares 0.5 to 1");
    }
    Ok(())
}
