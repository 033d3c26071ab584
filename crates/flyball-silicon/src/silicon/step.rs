//! Physics: what a step of constant frequencies does to counters, power, energy and heat.

use super::{Activity, Idle, Package, Silicon, Thread};
use crate::curve::Curve;
use crate::spec::PowerSpec;

/// Sums over a package's cores in a step.
struct CoreSums {
    watts: f64,
    /// Cores that were not in a deep idle state.
    awake: f64,
    busy: f64,
    /// Busy time that was spent waiting for memory.
    stalled: f64,
    cores: f64,
}

impl Silicon {
    /// Physics of one step of at most a firmware period, at constant frequencies: counters, power,
    /// energy, heat.
    pub(super) fn step(&mut self, dt: u64, whole: u64, activity: &[Activity]) {
        let Silicon { spec, kinds, topology, core: cores, thread: threads, package, .. } = self;
        let seconds = dt as f64 * 1e-9;
        let per_dt = 1.0 / dt as f64;
        let femto = dt as f64 * 1e6;
        let core_r = spec.thermal.core_k_per_w;
        let mut platform = 0.0;
        for (p, pk) in package.iter_mut().enumerate() {
            let cores = &mut cores[topology.package_cores(p)];
            // By the die's temperature, once per package and step, not by each core's.
            let warmth = Curve::leakage_by_heat(pk.thermal.die);
            let (mut watts, mut awake, mut busy_sum, mut stall_sum, mut top) = (0.0, 0.0, 0.0, 0.0, 0.0f64);
            for core in cores.iter_mut() {
                let kind = &kinds[core.place.kind as usize];
                let khz = core.khz;
                let (i0, i1) = (core.place.first as usize, core.place.second as usize);
                let a0 = activity.get(i0).copied().unwrap_or_default();
                let (mut b0, mut idle) = (part_of(a0.busy_ns, dt, whole), a0.idle);
                if !threads[i0].online {
                    // An offline CPU rests in the deepest state (arch/x86/kernel/smpboot.c,
                    // native_play_dead) and does not keep its core out of it.
                    (b0, idle) = (0, u8::MAX);
                }
                // By thread, the share of the step in which it executes; of the core, that of
                // either, and its activity.
                let (mut s0, mut s1, mut share, mut act) = (0.0, 0.0, 0.0, 0.0);
                let mut license = a0.license;
                let mut intensity = f64::from(a0.intensity) * (1.0 / 256.0);
                if b0 > 0 {
                    s0 = b0 as f64 * per_dt;
                }
                if core.place.smt && threads[i1].online {
                    let a1 = activity.get(i1).copied().unwrap_or_default();
                    let b1 = part_of(a1.busy_ns, dt, whole);
                    // A core rests only as deeply as its shallower thread (Intel SDM 3B, core
                    // C-states).
                    idle = idle.min(a1.idle);
                    if b1 > 0 {
                        s1 = b1 as f64 * per_dt;
                        let x1 = f64::from(a1.intensity) * (1.0 / 256.0);
                        // The time in which both execute, as if they did so independently of each
                        // other. Then they share the execution units: the lighter thread adds only
                        // a part of its activity.
                        let both = s0 * s1;
                        act += s1 * x1
                            - both * (1.0 - kind.smt_power) * if x1 < intensity { x1 } else { intensity };
                        // The time in which either executes, less what is counted twice; the first
                        // thread's own is added below.
                        share = s1 - both;
                        stall_sum += s1 * f64::from(a1.memory) * (1.0 / 255.0);
                        if b0 == 0 || x1 > intensity {
                            intensity = x1;
                        }
                        license = if b0 == 0 { a1.license } else { license.max(a1.license) };
                        let st = &kind.idle[(idle as usize).min(kind.idle.len() - 1)];
                        let wakes = scaled(a1.wakes, dt, whole);
                        threads[i1].count(b1, khz, wakes, st, 1.0 - kind.smt_loss * s0);
                    }
                }
                let st = &kind.idle[(idle as usize).min(kind.idle.len() - 1)];
                if b0 > 0 {
                    act += s0 * f64::from(a0.intensity) * (1.0 / 256.0);
                    share += s0;
                    stall_sum += s0 * f64::from(a0.memory) * (1.0 / 255.0);
                    threads[i0].count(b0, khz, scaled(a0.wakes, dt, whole), st, 1.0 - kind.smt_loss * s1);
                }
                if share > 0.0 {
                    // Turbo limits depend on the kind of code, the current budget on its intensity.
                    core.moved |= core.license != license || core.intensity != intensity;
                    core.license = license;
                    core.intensity = intensity;
                }
                let rest = 1.0 - share;
                if rest > 0.0 {
                    core.residency[st.counter] += (rest * dt as f64) as u64;
                }
                // Idle states keep a share of leakage and, in C1, of clock activity.
                let leakage = kind.leakage * core.quality * (core.leakage * warmth);
                let w = core.dynamic * (act + st.activity * rest) + leakage * (share + st.leakage * rest);
                core.watts = w;
                // Femtojoules as integers: sums do not depend on their order, and the truncation of
                // a step is far below what a counter shows. 64 bits hold 18 kJ per step.
                core.energy += u128::from((w * femto) as u64);
                watts += w;
                top = if w > top { w } else { top };
                busy_sum += share;
                // Turbo limits count cores that are not in a deep state; in a shallow one a core
                // counts like one that executes.
                awake += if st.deep { share } else { 1.0 };
            }
            let sums =
                CoreSums { watts, awake, busy: busy_sum, stalled: stall_sum, cores: cores.len() as f64 };
            pk.account(&sums, &spec.power, dt);
            pk.thermal.step(pk.watts, seconds);
            pk.hottest = pk.thermal.die + top * core_r;
            platform += pk.watts + pk.dram_watts;
        }
        self.platform_watts = self.spec.power.platform_w + platform * (1.0 + self.spec.power.platform_loss);
        self.platform_energy += u128::from((self.platform_watts * femto) as u64);
    }
}

impl Package {
    /// Power and energy of a step: the cores', and what uncore and memory take while the cores do
    /// this.
    #[inline]
    fn account(&mut self, sums: &CoreSums, power: &PowerSpec, dt: u64) {
        let femto = dt as f64 * 1e6;
        // The package sleeps in the share of the time in which not one core is awake. Less than one
        // core's worth of being awake: the rest of the step counts as time in which none is.
        let sleep = if sums.awake < 1.0 { 1.0 - sums.awake } else { 0.0 };
        let range = power.uncore_busy_w - power.uncore_idle_w;
        let uncore = (power.uncore_idle_w + range * sums.busy / sums.cores) * self.uncore;
        let uncore = power.package_sleep_w * sleep + uncore * (1.0 - sleep);
        let stalled = (sums.stalled / sums.cores).min(1.0);
        let dram = power.dram_idle_w + (power.dram_busy_w - power.dram_idle_w) * stalled;
        self.sleep_ns += (sleep * dt as f64) as u64;
        self.cores_watts = sums.watts;
        self.watts = sums.watts + uncore;
        self.dram_watts = dram;
        self.energy += u128::from((self.watts * femto) as u64);
        self.cores_energy += u128::from((sums.watts * femto) as u64);
        self.dram_energy += u128::from((dram * femto) as u64);
        self.window_joules += self.watts * (dt as f64 * 1e-9);
        self.window_awake += sums.awake * (dt as f64 * 1e-9);
    }
}

/// The share of a whole step's busy time that falls into a part of it.
#[inline]
fn part_of(busy: u32, dt: u64, whole: u64) -> u64 {
    if dt == whole || busy == u32::MAX {
        u64::from(busy).min(dt)
    } else {
        // Spread evenly over the step's parts: where in the step the work lay is not said.
        (u64::from(busy).min(whole) * dt / whole).min(dt)
    }
}

#[inline]
fn scaled(wakes: u16, dt: u64, whole: u64) -> f64 {
    if dt == whole { f64::from(wakes) } else { f64::from(wakes) * (dt as f64 / whole as f64) }
}

impl Thread {
    /// Counts busy time and cycles. `yield_` is the share of the work that the other thread leaves.
    #[inline]
    fn count(&mut self, busy: u64, khz: u32, wakes: f64, idle: &Idle, yield_: f64) {
        self.busy_ns += busy;
        self.window_busy += busy;
        let mut milli = u64::from(khz) * busy;
        // After a wake-up out of a deep state the core runs at the ramp frequency first: those
        // cycles are missing.
        let ramp = wakes * idle.ramp_ns;
        if ramp > 0.0 && idle.ramp_khz > 0.0 && idle.ramp_khz < f64::from(khz) {
            let t = if ramp < busy as f64 { ramp } else { busy as f64 };
            milli -= (t * (f64::from(khz) - idle.ramp_khz)) as u64;
        }
        // kHz times ns are millionths of a cycle.
        let sum = self.cycle_part + milli;
        let cycles = sum / 1_000_000;
        self.cycle_part = sum - cycles * 1_000_000;
        self.cycles += cycles;
        self.delivered += if yield_ < 1.0 { (cycles as f64 * yield_) as u64 } else { cycles };
    }
}
