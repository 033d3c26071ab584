//! Checks that a specification describes a possible machine.

use crate::spec::{
    CoreSpec, InterfaceSpec, MAX_CPUS, MachineSpec, PROFILE_WORDS, SpecError, SpecFault, SstClass,
    SstLevelSpec, SstSpec, Vendor,
};

impl MachineSpec {
    /// Checks that the machine can exist.
    ///
    /// # Errors
    /// Returns the first mistake found.
    pub fn check(&self) -> Result<(), SpecError> {
        // Bounds first, because the following arithmetic relies on them.
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
        let counted = (1..=64).contains(&t.packages) && (1..=16).contains(&t.dies);
        rule(counted, "topology: packages must be 1 to 64, dies 1 to 16")?;
        let domains = &t.power_domains;
        let cores: u64 = domains.iter().map(|&n| u64::from(n)).sum();
        // Domains replace dies: with both, each core would have two positions.
        rule(
            domains.is_empty() || t.dies == 1 && domains.len() <= 16 && cores == self.cores_per_package(),
            "topology.power_domains: at most 16, with all cores of a package of one die",
        )?;
        rule(!self.core.is_empty(), "core: at least one core type is needed")?;
        if self.cpus() > MAX_CPUS {
            return Err(SpecFault::TooManyCpus);
        }
        if !t.core_ids.is_empty() && t.core_ids.len() as u64 != self.cores_per_package() {
            return Err(SpecFault::CoreIds { ids: t.core_ids.len(), cores: self.cores_per_package() });
        }
        let per_cache = u64::from(t.cores_per_cache).max(1);
        let caches = if t.cores_per_cache == 0 { 1 } else { self.cores_per_package().div_ceil(per_cache) };
        rule(
            t.caches_kb.is_empty() || t.caches_kb.len() as u64 == caches,
            "topology.caches_kb: one size for each last-level cache of a package",
        )?;
        // Ratios are computed by dividing by bus_khz.
        rule(
            self.clock.tsc_khz >= 100_000 && (25_000..=400_000).contains(&self.clock.bus_khz),
            "clock: tsc_khz must be 100000 or more, bus_khz 25000 to 400000",
        )
    }

    fn check_turbo(&self) -> Result<(), SpecFault> {
        let u = &self.turbo;
        let rising = u.cores.windows(2).all(|w| w[0] < w[1]);
        rule(
            u.cores.len() <= 16 && rising && u.sse_mhz.len() == u.cores.len(),
            "turbo: at most 16 buckets, cores rising, one sse_mhz each",
        )?;
        let complete = |list: &Vec<u32>| list.is_empty() || list.len() == u.cores.len();
        rule(complete(&u.avx2_mhz) && complete(&u.avx512_mhz), "turbo: one frequency a bucket")
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
        rule(watts.iter().all(|w| (0.0..=10_000.0).contains(w)), "power: watts must be 0 to 10000")?;
        // Widths of the fields of MSR 0x606.
        let units = p.energy_unit <= 31 && p.power_unit <= 15 && p.time_unit <= 15;
        rule(units, "power: units are out of range")?;
        let windows = p.pl1_s > 0.0 && p.pl1_s <= 1000.0 && p.pl2_s > 0.0 && p.pl2_s <= 1000.0;
        rule(windows, "power: windows must be above 0 and at most 1000 s")
    }

    fn check_heat(&self) -> Result<(), SpecFault> {
        let h = &self.thermal;
        let v = &self.variation;
        rule(
            (0.0..=20.0).contains(&v.ambient_c) && (0.0..=1.0).contains(&v.preheat),
            "variation: ambient_c must be 0 to 20, preheat 0 to 1",
        )?;
        // Thermal::step() uses steps of a quarter of this constant. With a smaller one each
        // simulated millisecond would need many steps.
        let constant = h.die_k_per_w * h.die_j_per_k;
        rule(constant >= 0.002, "thermal: the die's time constant is below 2 ms")?;
        let throttle = h.throttle_c <= h.tjmax_c && (h.throttle_c == 0 || h.throttle_c >= 50);
        rule(throttle, "thermal.throttle_c: 0, or 50 to tjmax_c")?;
        // The sensors' readouts are seven bits of degrees below it.
        rule(
            (50..=127).contains(&h.tjmax_c)
                && (-40.0..=60.0).contains(&h.ambient_c)
                && (0.0..=20.0).contains(&h.core_k_per_w),
            "thermal: tjmax_c must be 50 to 127, ambient_c -40 to 60, core_k_per_w 0 to 20",
        )
    }

    fn check_firmware(&self) -> Result<(), SpecFault> {
        let f = &self.firmware;
        rule(
            (100..=100_000).contains(&f.period_us) && (1000..=400_000).contains(&f.step_khz),
            "firmware: period_us must be 100 to 100000, step_khz 1000 to 400000",
        )?;
        rule(
            (0.0..=0.2).contains(&f.pstate_loss) && (0.0..=0.2).contains(&f.pstate_power),
            "firmware: pstate_loss and pstate_power must be 0 to 0.2",
        )?;
        for device in &self.profile_device {
            let mut words = device.choices.iter().chain(&device.hidden).chain([&device.start]);
            let known = words.all(|word| PROFILE_WORDS.contains(&word.as_str()));
            rule(known, "profile_device: the kernel has no such profile")?;
            let starts = !device.name.is_empty() && device.choices.contains(&device.start);
            rule(starts, "profile_device: needs a name and a start among its choices")?;
        }
        rule(self.profile_device.len() <= 16, "profile_device: at most 16")?;
        let is_arm = self.identity.vendor == Vendor::Arm;
        rule(
            !is_arm || f.interface == InterfaceSpec::CppcShared && f.cpc_nominal_mhz > f.cpc_lowest_mhz,
            "firmware: an Arm machine needs interface cppc-shared and rising cpc frequencies",
        )?;
        let falling = f.pstates_mhz.windows(2).all(|w| w[0] > w[1]);
        rule(falling && f.pstates_mhz.len() <= 16, "firmware.pstates_mhz: at most 16, falling")
    }

    fn check_sst(&self, s: &SstSpec) -> Result<(), SpecFault> {
        self.check_levels(s, &s.level)?;
        s.domain.iter().try_for_each(|d| self.check_levels(s, &d.level))
    }

    fn check_levels(&self, s: &SstSpec, levels: &[SstLevelSpec]) -> Result<(), SpecFault> {
        // The TPMI block has space for five levels.
        let rising = levels.windows(2).all(|w| w[0].number < w[1].number);
        let numbered = !levels.is_empty() && levels.iter().all(|l| l.number <= 4);
        rule(rising && numbered, "sst.level: numbers 0 to 4, rising")?;
        let largest = self.topology.power_domains.iter().max().map(|&n| u64::from(n));
        let cores = if s.class == SstClass::Tpmi && largest.is_some() {
            largest.unwrap_or(0)
        } else if s.class == SstClass::Tpmi {
            self.cores_per_package() / u64::from(self.topology.dies)
        } else {
            self.cores_per_package()
        };
        // Numbers may have gaps, but must fit into the registers: a TPMI mask has 64 bits, and the
        // mailbox has 256 core numbers.
        let room = if s.class == SstClass::Tpmi { 64 } else { 256 };
        if self.topology.unit_cores.iter().any(|&number| number >= room) {
            return Err(SpecFault::UnitCores { room });
        }
        let cores = if self.topology.unit_cores.is_empty() { cores } else { u64::from(room) };
        rule((1..=4).contains(&s.cores_per_module), "sst.cores_per_module: 1 to 4")?;
        for l in levels {
            let lists = [Some(&l.cores), l.bf.as_ref().map(|b| &b.cores)];
            if lists.into_iter().flatten().flatten().any(|&c| u64::from(c) >= cores) {
                return Err(SpecFault::LevelCores { level: l.number, cores });
            }
            let broken = |rule| SpecFault::LevelRule { level: l.number, rule };
            // Six registers of eight bytes each.
            let fits = |lists: &[Vec<u32>], buckets: usize| {
                lists.len() <= 6 && buckets <= 8 && lists.iter().all(|list| list.len() == buckets)
            };
            if !fits(&l.trl_mhz, l.bucket_cores.len()) {
                return Err(broken("at most 6 turbo lists of one frequency a bucket, 8 buckets"));
            }
            if l.tf.as_ref().is_some_and(|t| !fits(&t.high_mhz, t.bucket_cores.len())) {
                return Err(broken("tf: one frequency a bucket"));
            }
        }
        Ok(())
    }
}

fn rule(holds: bool, text: &'static str) -> Result<(), SpecFault> {
    if holds { Ok(()) } else { Err(SpecFault::Rule(text)) }
}

/// Checks core type number `i`.
fn check_core(i: usize, c: &CoreSpec) -> Result<(), SpecFault> {
    let rule = |holds: bool, key, rule| {
        if holds { Ok(()) } else { Err(SpecFault::CoreRule { index: i, key, rule }) }
    };
    rule((1..=1024).contains(&c.count), "count", "must be 1 to 1024")?;
    rule((1..=2).contains(&c.threads), "threads", "must be 1 or 2")?;
    rule(c.min_mhz >= 50 && c.max_mhz <= 10_000, "min_mhz", "frequencies must be 50 to 10000 MHz")?;
    let rising = [c.min_mhz, c.efficient_mhz, c.base_mhz, c.max_mhz].is_sorted();
    rule(rising, "min_mhz", "min, efficient, base and max must rise in this order")?;
    let p = &c.perf;
    let rising = p.lowest != 0 && [p.lowest, p.efficient, p.nominal, p.highest].is_sorted();
    rule(rising, "perf", "lowest, efficient, nominal and highest must rise in this order from 1")?;
    let rising = !c.volts.is_empty() && c.volts.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
    rule(rising, "volts", "points must rise in frequency and not fall in voltage")?;
    let sane = c.volts.iter().all(|v| (200..=2000).contains(&v.1));
    rule(sane, "volts", "millivolts must be 200 to 2000")?;
    // Also false for NaN.
    let sane = |x: f64, to: f64| (0.0..=to).contains(&x);
    rule(
        sane(c.dynamic_nf, 100.0)
            && sane(c.leakage_w, 100.0)
            && sane(c.idle_activity, 1.0)
            && sane(c.budget_w, 10_000.0),
        "dynamic_nf",
        "dynamic_nf, leakage_w, idle_activity or budget_w is out of range",
    )?;
    let smt = sane(c.smt_power, 2.0) && (0.1..=1.0).contains(&c.smt_share);
    rule(smt, "smt_share", "smt_power must be 0 to 2, smt_share 0.1 to 1")?;
    rule((1..=15).contains(&c.idle.len()), "idle", "1 to 15 idle states are needed")?;
    for s in &c.idle {
        let shares = sane(s.leakage, 1.0) && sane(s.activity, 1.0);
        let times = sane(s.ramp_us, 100_000.0) && sane(s.wake_us, 100_000.0);
        rule(shares && times, "idle", "shares must be 0 to 1, times 0 to 100000 us")?;
        rule(sane(s.wake_spread_us, s.wake_us), "idle", "wake_spread_us must be 0 to wake_us")?;
    }
    let better = c.better.iter().all(|b| b.0 < c.count && (0.5..=1.0).contains(&b.1));
    rule(better, "better", "core numbers must be below count, shares 0.5 to 1")
}
