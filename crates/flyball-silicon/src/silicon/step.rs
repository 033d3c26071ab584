//! Physics: the effect of a step at constant frequencies on counters, power, energy and heat.

use super::{Activity, Core, Idle, Kind, License, Package, Silicon};
use crate::curve::Curve;
use crate::spec::PowerSpec;

/// Sums over a package's cores in a part of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Number of cores outside deep idle states. `first_awake` counts those of the first core type.
    awake: f64,
    first_awake: f64,
    busy: f64,
    /// Busy time spent waiting for memory.
    stalled: f64,
}

/// Values derived from a core's work and frequency in a part of a step. They are recomputed only
/// after one of these changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CachedPower {
    /// Length of the part, ns; 0 if the values are invalid.
    dt: u64,
    /// Dynamic power, W.
    dynamic: f64,
    /// Leakage at the reference voltage and 50 C, W, and the share of it that remains in idle
    /// states.
    leakage: (f64, f64),
    /// Share of the time in which at least one CPU executes.
    share: f64,
    /// Share of the time that counts for the turbo limits.
    awake: f64,
    /// Time waiting for memory, of the second CPU and then of the first.
    stalled: [f64; 2],
    /// The kind and intensity of the code, if any ran.
    license: License,
    intensity: f64,
    /// Time in an idle state, and the index of its counter.
    rested: u64,
    counter: usize,
    /// By CPU: busy time, and cycles in millionths.
    busy: [u64; 2],
    microcycles: [u64; 2],
}

impl Silicon {
    /// Invalidates the values of cores whose work differs from the last step.
    pub(super) fn forget_changed_work(&mut self, whole: u64, activity: &[Activity]) {
        let same_length = std::mem::replace(&mut self.whole_ns, whole) == whole;
        for core in &mut self.core {
            let at = |cpu: u32| activity.get(cpu as usize).copied().unwrap_or_default();
            let now = [at(core.place.first), at(core.place.second)];
            if !same_length || now != core.activity {
                core.activity = now;
                (core.kept[0].dt, core.kept[1].dt) = (0, 0);
            }
        }
    }

    /// Simulates one part of a step, at most a firmware period, at constant frequencies: counters,
    /// power, energy, heat. `kept` is the index of the part.
    pub(super) fn step(&mut self, kept: usize, dt: u64, whole: u64) {
        let Silicon { spec, kinds, topology, core: cores, thread: threads, package, .. } = self;
        let seconds = dt as f64 * 1e-9;
        let femto = dt as f64 * 1e6;
        let core_r = spec.thermal.core_k_per_w;
        let mut platform = 0.0;
        for (p, pk) in package.iter_mut().enumerate() {
            let cores = &mut cores[topology.package_cores(p)];
            // Uses the die's temperature, once per package and step, instead of each core's.
            let warmth = Curve::leakage_by_heat(pk.thermal.die);
            let (mut watts, mut top, mut changed) = (0.0, 0.0f64, false);
            for core in cores.iter_mut() {
                if core.kept[kept].dt != dt {
                    let online =
                        [core.place.first, core.place.second].map(|cpu| threads[cpu as usize].online);
                    core.kept[kept] = core.part(&kinds[core.place.kind as usize], online, dt, whole);
                    changed = true;
                }
                let k = &core.kept[kept];
                let (one, two) = (core.place.first as usize, core.place.second as usize);
                threads[one].busy_ns += k.busy[0];
                threads[one].microcycles += u128::from(k.microcycles[0]);
                // 0 if the core has one thread.
                threads[two].busy_ns += k.busy[1];
                threads[two].microcycles += u128::from(k.microcycles[1]);
                if k.share > 0.0 {
                    // Turbo limits depend on the kind of code, the current budget on its intensity.
                    core.moved |= core.license != k.license || core.intensity != k.intensity;
                    core.license = k.license;
                    core.intensity = k.intensity;
                }
                core.residency[k.counter] += k.rested;
                let w = k.dynamic + k.leakage.0 * (core.leakage * warmth) * k.leakage.1;
                core.watts = w;
                // Integer femtojoules: sums do not depend on their order, and the truncation per
                // step is far below a counter's resolution. 63 bits hold 9 kJ per step.
                core.energy += (w * femto) as i64 as u128;
                watts += w;
                top = if w > top { w } else { top };
            }
            if changed {
                pk.sums[kept] = Sums::over(cores, kept);
            }
            let sums = pk.sums[kept];
            pk.account(watts, &sums, cores.len() as f64, &spec.power, dt);
            pk.thermal.step(pk.watts, seconds);
            pk.hottest = pk.thermal.die + top * core_r;
            platform += pk.watts + pk.dram_watts;
        }
        self.platform_watts = self.spec.power.platform_w + platform * (1.0 + self.spec.power.platform_loss);
        self.platform_energy += u128::from((self.platform_watts * femto) as u64);
    }
}

impl Sums {
    /// Adds up a package's cores in order.
    fn over(cores: &[Core], kept: usize) -> Sums {
        let mut sums = Sums::default();
        for core in cores {
            let k = &core.kept[kept];
            sums.stalled += k.stalled[0];
            sums.stalled += k.stalled[1];
            sums.busy += k.share;
            sums.awake += k.awake;
            if core.place.kind == 0 {
                sums.first_awake += k.awake;
            }
        }
        sums
    }
}

impl Core {
    /// Computes the derived values for a part of a step.
    fn part(&self, kind: &Kind, online: [bool; 2], dt: u64, whole: u64) -> CachedPower {
        // Through i64, because processors convert it in one instruction.
        let whole_dt = dt as i64 as f64;
        let per_dt = 1.0 / whole_dt;
        let khz = self.khz;
        let [a0, a1] = self.activity;
        let mut k = CachedPower { dt, ..CachedPower::default() };
        let (mut b0, mut idle) = (part_of(a0.busy_ns, dt, whole), a0.idle);
        if !online[0] {
            // An offline CPU idles in the deepest state (arch/x86/kernel/smpboot.c,
            // native_play_dead) and does not keep its core awake.
            (b0, idle) = (0, u8::MAX);
        }
        // The share of the step in which either thread of the core executes, and the core's
        // activity.
        let (mut share, mut act) = (0.0, 0.0);
        let s0 = if b0 > 0 { b0 as i64 as f64 * per_dt } else { 0.0 };
        (k.license, k.intensity) = (a0.license, f64::from(a0.intensity) * (1.0 / 256.0));
        if self.place.smt && online[1] {
            let b1 = part_of(a1.busy_ns, dt, whole);
            // A core idles only as deeply as its shallower thread (Intel SDM 3B, core C-states).
            idle = idle.min(a1.idle);
            if b1 > 0 {
                let s1 = b1 as i64 as f64 * per_dt;
                let x1 = f64::from(a1.intensity) * (1.0 / 256.0);
                // The time in which both threads execute, assuming that they are independent. They
                // then share the execution units, so the lighter thread adds only a part of its
                // activity.
                let both = s0 * s1;
                act +=
                    s1 * x1 - both * (1.0 - kind.smt_power) * if x1 < k.intensity { x1 } else { k.intensity };
                // The second thread's time without the overlap; the first thread's own is added
                // below.
                share = s1 - both;
                k.stalled[0] = s1 * f64::from(a1.memory) * (1.0 / 255.0);
                if b0 == 0 || x1 > k.intensity {
                    k.intensity = x1;
                }
                k.license = if b0 == 0 { a1.license } else { k.license.max(a1.license) };
                let st = &kind.idle[(idle as usize).min(kind.idle.len() - 1)];
                k.busy[1] = b1;
                k.microcycles[1] = microcycles(b1, khz, scaled(a1.wakes, dt, whole), st);
            }
        }
        let st = &kind.idle[(idle as usize).min(kind.idle.len() - 1)];
        if b0 > 0 {
            act += s0 * f64::from(a0.intensity) * (1.0 / 256.0);
            share += s0;
            k.stalled[1] = s0 * f64::from(a0.memory) * (1.0 / 255.0);
            k.busy[0] = b0;
            k.microcycles[0] = microcycles(b0, khz, scaled(a0.wakes, dt, whole), st);
        }
        let rest = 1.0 - share;
        (k.rested, k.counter) = (if rest > 0.0 { (rest * whole_dt) as i64 as u64 } else { 0 }, st.counter);
        // Idle states keep a share of leakage and, in C1, of clock activity.
        k.dynamic = self.dynamic * (act + st.activity * rest);
        k.leakage = (kind.leakage * self.quality, share + st.leakage * rest);
        // Turbo limits count cores outside deep states; a core in a shallow state counts like one
        // that executes.
        (k.share, k.awake) = (share, if st.deep { share } else { 1.0 });
        k
    }
}

impl Package {
    /// Adds up power and energy of a step: the cores, and the uncore and memory that serve them.
    #[inline]
    fn account(&mut self, watts: f64, sums: &Sums, cores: f64, power: &PowerSpec, dt: u64) {
        let femto = dt as f64 * 1e6;
        // The package sleeps while no core is awake. If the sum of awake time is less than one
        // core's, the remaining share of the step counts as sleep.
        let sleep = if sums.awake < 1.0 { 1.0 - sums.awake } else { 0.0 };
        let range = power.uncore_busy_w - power.uncore_idle_w;
        let uncore = (power.uncore_idle_w + range * sums.busy / cores) * self.uncore;
        let uncore = power.package_sleep_w * sleep + uncore * (1.0 - sleep);
        let stalled = (sums.stalled / cores).min(1.0);
        let dram = power.dram_idle_w + (power.dram_busy_w - power.dram_idle_w) * stalled;
        self.sleep_ns += (sleep * dt as f64) as u64;
        self.cores_watts = watts;
        self.watts = watts + uncore;
        self.dram_watts = dram;
        self.energy += u128::from((self.watts * femto) as u64);
        self.cores_energy += u128::from((watts * femto) as u64);
        self.dram_energy += u128::from((dram * femto) as u64);
        self.window_joules += self.watts * (dt as f64 * 1e-9);
        self.window_awake += sums.awake * (dt as f64 * 1e-9);
        self.window_first_awake += sums.first_awake * (dt as f64 * 1e-9);
    }
}

/// The share of a step's busy time that falls into a part of it.
#[inline]
fn part_of(busy: u32, dt: u64, whole: u64) -> u64 {
    if dt == whole || busy == u32::MAX {
        u64::from(busy).min(dt)
    } else {
        // Spread evenly over the step's parts, because the position of the work in the step is
        // unknown.
        (u64::from(busy).min(whole) * dt / whole).min(dt)
    }
}

#[inline]
fn scaled(wakes: u16, dt: u64, whole: u64) -> f64 {
    if dt == whole { f64::from(wakes) } else { f64::from(wakes) * (dt as f64 / whole as f64) }
}

/// The cycles of a busy time, in millionths (kHz times ns).
fn microcycles(busy: u64, khz: u32, wakes: f64, idle: &Idle) -> u64 {
    let all = u64::from(khz) * busy;
    // After a wakeup from a deep state the core first runs at the ramp frequency, so subtract the
    // missing cycles.
    let ramp = wakes * idle.ramp_ns;
    if ramp > 0.0 && idle.ramp_khz > 0.0 && idle.ramp_khz < f64::from(khz) {
        let t = if ramp < busy as f64 { ramp } else { busy as f64 };
        return all - (t * (f64::from(khz) - idle.ramp_khz)) as u64;
    }
    all
}
