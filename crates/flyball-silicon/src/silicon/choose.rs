//! The firmware's work in each period, and the effects of register writes: targets, limits,
//! frequencies.

use super::{Core, Silicon, Thread, step};
use crate::spec::ClockDomain;

/// Limits that all cores of a package share when their frequencies are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PackageLimits {
    active: u32,
    /// Turbo limits by kind of code, kHz.
    turbo: [u32; 3],
    /// Share of the frequency range that power limits allow; the next field has the share that heat
    /// allows.
    power: f64,
    cool: f64,
}

impl Silicon {
    /// Runs the firmware once per period: evaluates load, power and heat, and chooses the next
    /// frequencies.
    pub(super) fn firmware(&mut self) {
        let seconds = self.period_ns as f64 * 1e-9;
        let t = &self.spec.thermal;
        // Firmware may be configured to throttle before the sensors reach zero.
        let tj = f64::from(if t.throttle_c > 0 { t.throttle_c } else { t.tjmax_c });
        for (cpu, thread) in self.thread.iter_mut().enumerate() {
            let window = thread.busy_ns - std::mem::replace(&mut thread.looked, thread.busy_ns);
            // Most CPUs of a large machine are idle in most periods.
            if window == 0 && thread.utilisation == 0.0 {
                continue;
            }
            if window != thread.window {
                thread.window = window;
                thread.measured = window as f64 / self.period_ns as f64;
            }
            let smooth = self.autonomous.smooth(thread.utilisation, thread.measured);
            // Round a vanishing remainder to 0: denormal numbers are slow.
            let smooth = if smooth < 1e-9 { 0.0 } else { smooth };
            if smooth != thread.utilisation {
                thread.utilisation = smooth;
                self.core[self.topology.cpu(cpu).core].asked |= thread.request.follows_load();
            }
        }
        for p in 0..self.package.len() {
            let core_r = self.spec.thermal.core_k_per_w;
            let pk = &mut self.package[p];
            // Power of the past period: firmware measures it like a reader of the energy counter.
            pk.control.step(pk.window_joules / seconds, seconds);
            // A log bit stays until software clears it.
            pk.power_log |= pk.control.room < 1.0;
            pk.awake = pk.window_awake / seconds;
            pk.first_awake = pk.window_first_awake / seconds;
            pk.window_joules = 0.0;
            pk.window_awake = 0.0;
            pk.window_first_awake = 0.0;
            // Keep half a degree below the limit: an integral controller over the share of the
            // range that is used.
            let over = pk.hottest - (tj - 0.5);
            pk.cool = (pk.cool - (0.002 * over).clamp(-0.01, 0.02)).clamp(0.05, 1.0);
            let hot = pk.hottest >= tj - 1.0;
            if hot {
                pk.hot_log = true;
                let die = pk.thermal.die;
                for c in self.topology.package_cores(p) {
                    self.core[c].hot_log |= die + self.core[c].watts * core_r >= tj - 1.0;
                }
                // Once per crossing of the limit: therm_throt counts interrupts, not time.
                self.package[p].throttle_events += u64::from(!self.package[p].hot);
            }
            self.package[p].hot = hot;
        }
        self.choose_targets();
        for p in 0..self.package.len() {
            self.choose_frequencies(p);
        }
    }

    /// Chooses each core's frequency without limits: the highest request of its online threads.
    pub(super) fn choose_targets(&mut self) {
        for c in 0..self.core.len() {
            if self.core[c].asked {
                self.choose_target(c);
            }
        }
    }

    /// Chooses the unlimited frequency of one core.
    #[inline]
    pub(super) fn choose_target(&mut self, c: usize) {
        let core = &mut self.core[c];
        core.asked = false;
        let kind = &self.kinds[core.place.kind as usize];
        let (one, two) = (&self.thread[core.place.first as usize], &self.thread[core.place.second as usize]);
        // A core runs at the higher request of its threads (see intel_cpufreq_cpu_offline() in
        // intel_pstate.c).
        let request_of =
            |thread: &Thread| self.autonomous.target(thread.request, kind.efficient, thread.utilisation);
        let target = if core.place.smt && two.online {
            if one.online { request_of(one).max(request_of(two)) } else { request_of(two) }
        } else if one.online {
            request_of(one)
        } else {
            // All threads are offline, so nothing requests more.
            kind.min
        };
        core.moved |= target != core.target;
        core.target = target;
    }

    /// Chooses the frequencies of a package's cores under all limits.
    pub(super) fn choose_frequencies(&mut self, p: usize) {
        let cores = self.topology.package_cores(p);
        let shared = self.spec.firmware.clock_domain == ClockDomain::Package;
        let pk = &self.package[p];
        // Rounded mean over the period, which is fractional if cores sleep for a part of it.
        let active = ((pk.awake + 0.5) as u32).max(1);
        // On hybrids the register counts performance cores: on a Core i7-1260P, which has four, the
        // limit falls up to the fourth bucket.
        let first_active = ((pk.first_awake + 0.5) as u32).max(1);
        let limits = PackageLimits {
            active,
            turbo: [0, 1, 2].map(|l| turbo_limit(&self.turbo[p][l], first_active)),
            power: pk.control.room,
            cool: pk.cool,
        };
        // With one clock for the package a single core's request moves all the others.
        let same = pk.chosen == Some(limits) && !shared;
        // Unmoved cores keep their frequency only if nothing that the package shares has changed.
        self.package[p].chosen = Some(limits);
        let mut common = 0;
        // Otherwise a core's frequency depends on more than the compared fields.
        let is_plain = self.sst.is_none() && self.spec.firmware.pstate_loss <= 0.0;
        let mut last: Option<(usize, bool)> = None;
        for c in cores.clone() {
            if same && !self.core[c].moved {
                continue;
            }
            self.core[c].moved = false;
            // Most cores of a large machine have equal requests, one after the other.
            let (chosen, is_over_budget) = match last {
                Some((other, is_over)) if self.core[other].has_equal_requests(&self.core[c]) => {
                    (self.core[other].powered, is_over)
                }
                _ => self.choose_frequency(c, limits),
            };
            last = is_plain.then_some((c, is_over_budget));
            if is_over_budget && !self.package[p].current_log {
                self.package[p].current_log = self.is_busy(c);
            }
            if self.core[c].powered != chosen {
                self.set_frequency(c, chosen);
            }
            if !shared {
                continue;
            }
            let khz = chosen.0;
            // An idle core has no vote: these parts run the package at the highest request of a
            // core in C0.
            if self.is_busy(c) {
                common = common.max(khz);
            }
        }
        if shared && common > 0 {
            for c in cores {
                let most = self.kinds[self.core[c].place.kind as usize].max;
                let Core { held, powered, .. } = self.core[c];
                self.set_frequency(c, (common.min(most).min(held), powered.1));
            }
        }
    }

    /// The frequency of one core under requests, switches, turbo limits and power limits, kHz.
    fn limited_frequency(&self, c: usize, limits: PackageLimits) -> u32 {
        let core = &self.core[c];
        let kind = &self.kinds[core.place.kind as usize];
        let license = core.license as usize;
        // From here on every limit only lowers the frequency: switches and class of service, turbo
        // bucket, power, current, heat.
        let mut khz = core.target.min(core.ceiling).max(kind.min);
        let turbo = match &self.sst {
            Some(s) => s.turbo_limit(c, license, limits.turbo[license]),
            None => limits.turbo[license],
        };
        khz = khz.min(turbo);
        // The room is a share of the range from the lowest frequency to the core's highest, so that
        // all cores slow down together.
        if limits.power < 1.0 {
            let power = match &self.sst {
                Some(s) => s.room(c, limits.power),
                None => limits.power,
            };
            let top = f64::from(kind.max - kind.min) * power;
            khz = khz.min(kind.min + top as u32);
        }
        khz
    }

    /// Lowers a frequency to what the current budget allows, kHz.
    #[inline]
    fn within_budget(&self, c: usize, mut khz: u32, active: u32) -> u32 {
        let core = &self.core[c];
        let kind = &self.kinds[core.place.kind as usize];
        let step = self.spec.firmware.step_khz;
        if kind.budget > 0.0 {
            let limit = kind.budget / f64::from(active);
            let q = core.quality * core.quality * core.intensity;
            // In steps, because the curve is a table. It stops at the guaranteed frequency, which
            // the budget never cuts.
            while khz > core.guaranteed && kind.curve.dynamic_watts(khz) * q > limit {
                khz -= step.min(khz - core.guaranteed);
            }
        }
        khz
    }

    /// Returns whether the current budget limits a busy core of a package.
    pub(crate) fn is_current_limited(&self, p: usize) -> bool {
        let Some(limits) = self.package[p].chosen else { return false };
        let mut cores = self.topology.package_cores(p);
        cores.any(|c| self.is_busy(c) && self.choose_frequency(c, limits).1)
    }

    fn is_busy(&self, c: usize) -> bool {
        let place = self.core[c].place;
        [place.first, place.second].iter().any(|&thread| self.thread[thread as usize].utilisation > 0.0)
    }

    /// Returns the frequency of one core, kHz, the factor of its power while two frequency managers
    /// conflict, and whether the current budget limits it.
    fn choose_frequency(&self, c: usize, limits: PackageLimits) -> ((u32, f64), bool) {
        let limited = self.limited_frequency(c, limits);
        let mut khz = self.within_budget(c, limited, limits.active);
        let f = &self.spec.firmware;
        let core = &self.core[c];
        let kind = &self.kinds[core.place.kind as usize];
        let cool = if limits.cool < 1.0 { (f64::from(kind.max) * limits.cool) as u32 } else { u32::MAX };
        let is_over_budget = khz < limited && khz <= core.held.min(cool);
        // Multipliers are whole numbers, so round down.
        khz = khz / f.step_khz * f.step_khz;
        khz = khz.max(kind.min);
        let mut conflict = 1.0;
        if f.pstate_loss > 0.0 {
            // P-state registers request boost: the frequency manager works against them.
            let at_odds = khz > core.guaranteed && !self.requests_levels(core.place.first as usize);
            if at_odds {
                // The voltage is still that of the intended frequency.
                let meant = kind.curve.dynamic_watts(khz);
                khz -= (f64::from(khz) * f.pstate_loss) as u32;
                let lost = meant * (1.0 - f.pstate_loss) / kind.curve.dynamic_watts(khz).max(1e-9);
                conflict = lost * (1.0 + f.pstate_power);
            }
        }
        // Below the lowest frequency the clock is modulated, and the result is its average. The
        // smallest duty cycle of clock modulation is a sixteenth (Intel SDM 3B).
        ((khz.min(cool).min(core.held).max(kind.min / 16), conflict), is_over_budget)
    }

    /// Sets a core's frequency, and the power factors at this frequency.
    #[inline]
    fn set_frequency(&mut self, c: usize, (khz, conflict): (u32, f64)) {
        let core = &mut self.core[c];
        let kind = &self.kinds[core.place.kind as usize];
        let q = core.quality;
        if core.powered == (khz, conflict) {
            return;
        }
        core.powered = (khz, conflict);
        core.kept = [step::CachedPower::default(); 2];
        core.khz = khz;
        core.dynamic = kind.curve.dynamic_watts(khz) * q * q * conflict;
        core.leakage = kind.curve.leakage_by_voltage(khz);
    }

    /// Derives a package's values from its switches: guaranteed frequencies, ceilings, turbo
    /// limits, uncore.
    pub(super) fn refresh_package(&mut self, p: usize) {
        for c in self.topology.package_cores(p) {
            let kind = &self.kinds[self.core[c].place.kind as usize];
            let (guaranteed, class_max) = match &self.sst {
                Some(s) => (s.guaranteed(c), s.class_max(c)),
                None => (kind.base, u32::MAX),
            };
            self.core[c].guaranteed = guaranteed;
            let core_turbo = self.core_turbo_allowed(c);
            // Without turbo the guaranteed frequency is the maximum, which base-freq has raised for
            // chosen cores.
            self.core[c].ceiling =
                if core_turbo { kind.max } else { guaranteed }.min(class_max).max(kind.min);
        }
        // One table for each License.
        for l in 0..3 {
            self.turbo[p][l] = self.turbo_table(p, l);
        }
        // A level's design power lowers the long-term limit, but never raises it above software's
        // value.
        if let Some(w) = self.sst.as_ref().and_then(|s| s.package_tdp(p)) {
            self.package[p].control.limits[0].watts = self.package[p].control.limits[0].watts.min(w.max(1.0));
        }
        self.package[p].uncore = self.uncore_share(p);
    }
}

impl Core {
    /// Returns whether a core of the package gets an equal frequency under equal limits.
    #[inline]
    fn has_equal_requests(&self, other: &Core) -> bool {
        self.target == other.target
            && self.ceiling == other.ceiling
            && self.guaranteed == other.guaranteed
            && self.held == other.held
            && self.place.kind == other.place.kind
            && self.license == other.license
            && self.intensity == other.intensity
            && self.quality == other.quality
    }
}

/// The limit for this many active cores: the first bucket with room for them, or the last bucket.
fn turbo_limit(table: &[(u32, u32)], active: u32) -> u32 {
    table.iter().find(|b| active <= b.0).or(table.last()).map_or(u32::MAX, |b| b.1)
}
