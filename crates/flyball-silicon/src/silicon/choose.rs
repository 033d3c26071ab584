//! What the firmware does once a period, and what register writes change: targets, limits, frequencies.

use super::Silicon;
use crate::spec::ClockDomain;

impl Silicon {
    /// What the firmware does once a period: look at load, power and heat, and choose the next frequencies.
    pub(super) fn firmware(&mut self) {
        let seconds = self.period_ns as f64 * 1e-9;
        let t = &self.spec.thermal;
        let tj = f64::from(if t.throttle_c > 0 { t.throttle_c } else { t.tjmax_c });
        for cpu in 0..self.cpus() {
            let measured = self.window_busy[cpu] as f64 / self.period_ns as f64;
            self.window_busy[cpu] = 0;
            self.utilisation[cpu] = self.autonomous.smooth(self.utilisation[cpu], measured);
        }
        for p in 0..self.package.len() {
            let core_r = self.spec.thermal.core_k_per_w;
            let pk = &mut self.package[p];
            pk.control.step(pk.window_joules / seconds, seconds);
            pk.power_log |= pk.control.room < 1.0;
            pk.awake = pk.window_awake / seconds;
            pk.window_joules = 0.0;
            pk.window_awake = 0.0;
            // Keep half a degree below the limit: an integral controller over the share of the range that is used.
            let over = pk.hottest - (tj - 0.5);
            pk.cool = (pk.cool - (0.002 * over).clamp(-0.01, 0.02)).clamp(0.05, 1.0);
            let hot = pk.hottest >= tj - 1.0;
            if hot {
                pk.hot_log = true;
                let die = pk.thermal.die;
                for c in self.topology.package_cores(p) {
                    self.hot_log[c] |= die + self.core_watts[c] * core_r >= tj - 1.0;
                }
                self.package[p].throttle_events += u64::from(!self.package[p].hot);
            }
            self.package[p].hot = hot;
        }
        self.choose_targets();
        for p in 0..self.package.len() {
            self.choose_frequencies(p);
        }
    }

    /// What each core would run at if nothing limited it: the highest wish of its threads that have something to do.
    pub(super) fn choose_targets(&mut self) {
        for c in 0..self.place.len() {
            let place = self.place[c];
            let kind = &self.kinds[place.kind as usize];
            let (i0, i1) = (place.first as usize, place.second as usize);
            let wish =
                |i: usize| self.autonomous.target(self.request[i], kind.efficient, self.utilisation[i]);
            self.target[c] = if place.smt && self.online[i1] {
                if self.online[i0] { wish(i0).max(wish(i1)) } else { wish(i1) }
            } else if self.online[i0] {
                wish(i0)
            } else {
                kind.min
            };
        }
    }

    /// The frequencies of a package's cores under all limits.
    pub(super) fn choose_frequencies(&mut self, p: usize) {
        let cores = self.topology.package_cores(p);
        let spec = std::sync::Arc::clone(&self.spec);
        let f = &spec.firmware;
        let step = f.step_khz;
        let pk = &self.package[p];
        let active = ((pk.awake + 0.5) as u32).max(1);
        let turbo = [0, 1, 2].map(|l| turbo_limit(&self.turbo[p][l], active));
        let shared = f.clock_domain == ClockDomain::Package;
        let mut common = 0;
        for c in cores.clone() {
            let place = self.place[c];
            let kind = &self.kinds[place.kind as usize];
            let license = self.license[c] as usize;
            let mut khz = self.target[c].min(self.ceiling[c]).max(kind.min);
            let turbo = match &self.sst {
                Some(s) => s.turbo_limit(c, license, turbo[license]),
                None => turbo[license],
            };
            khz = khz.min(turbo);
            if pk.control.room < 1.0 {
                let room = match &self.sst {
                    Some(s) => s.room(c, pk.control.room),
                    None => pk.control.room,
                };
                let top = f64::from(kind.max - kind.min) * room;
                khz = khz.min(kind.min + top as u32);
            }
            if kind.budget > 0.0 {
                let limit = kind.budget / f64::from(active);
                let q = self.quality[c] * self.quality[c] * self.intensity[c];
                while khz > self.guaranteed[c] && kind.curve.dynamic_watts(khz) * q > limit {
                    khz -= step.min(khz - self.guaranteed[c]);
                }
            }
            khz = khz / step * step;
            khz = khz.max(kind.min);
            if f.pstate_loss > 0.0 {
                // Boost under P-state registers: the frequency manager works against them.
                let at_odds = khz > self.guaranteed[c] && !self.wishes_by_level(place.first as usize);
                self.conflict[c] = 1.0;
                if at_odds {
                    // The voltage stays that of the frequency that was meant.
                    let meant = kind.curve.dynamic_watts(khz);
                    khz -= (f64::from(khz) * f.pstate_loss) as u32;
                    let lost = meant * (1.0 - f.pstate_loss) / kind.curve.dynamic_watts(khz).max(1e-9);
                    self.conflict[c] = lost * (1.0 + f.pstate_power);
                }
            }
            if pk.cool < 1.0 {
                // Below the lowest frequency the clock is modulated: what is left is the average.
                khz = khz.min((f64::from(kind.max) * pk.cool) as u32);
            }
            self.khz[c] = khz.min(self.held[c]).max(kind.min / 16);
            let busy =
                self.utilisation[place.first as usize] > 0.0 || self.utilisation[place.second as usize] > 0.0;
            if busy {
                common = common.max(self.khz[c]);
            }
        }
        if shared && common > 0 {
            for c in cores {
                let most = self.kinds[self.place[c].kind as usize].max;
                self.khz[c] = common.min(most).min(self.held[c]);
            }
        }
    }

    /// What follows from a package's switches: guaranteed frequencies, ceilings, turbo limits, uncore.
    pub(super) fn refresh_package(&mut self, p: usize) {
        for c in self.topology.package_cores(p) {
            let kind = &self.kinds[self.place[c].kind as usize];
            let (guaranteed, class_max) = match &self.sst {
                Some(s) => (s.guaranteed(c), s.class_max(c)),
                None => (kind.base, u32::MAX),
            };
            self.guaranteed[c] = guaranteed;
            let core_turbo = self.core_turbo_allowed(c);
            self.ceiling[c] = if core_turbo { kind.max } else { guaranteed }.min(class_max).max(kind.min);
        }
        for l in 0..3 {
            self.turbo[p][l] = self.turbo_table(p, l);
        }
        if let Some(w) = self.sst.as_ref().and_then(|s| s.package_tdp(p)) {
            self.package[p].control.limits[0].watts = self.package[p].control.limits[0].watts.min(w.max(1.0));
        }
        self.package[p].uncore = self.uncore_share(p);
    }
}

/// The limit for this many active cores: the first bucket that holds them, or the last.
fn turbo_limit(table: &[(u32, u32)], active: u32) -> u32 {
    table.iter().find(|b| active <= b.0).or(table.last()).map_or(u32::MAX, |b| b.1)
}
