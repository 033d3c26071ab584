//! Heat: junction to die, die to sink, sink to air.

use crate::spec::ThermalSpec;

/// The thermal state of one package: a die node (tens of milliseconds) on a sink node (seconds to
/// minutes). A core is hotter than the die by its power times its resistance, without delay.
#[derive(Clone, Debug)]
pub(crate) struct Thermal {
    /// Die, degrees Celsius.
    pub die: f64,
    /// Heat sink, degrees Celsius.
    pub sink: f64,
    /// Air, degrees Celsius.
    pub ambient: f64,
    /// Factor of the sink's resistance: 1 for a normal fan.
    pub obstruction: f64,
    die_r: f64,
    die_c: f64,
    sink_r: f64,
    sink_c: f64,
}

impl Thermal {
    /// An equilibrium at ambient temperature plus the warming by `watts`.
    pub(crate) fn new(s: &ThermalSpec, watts: f64) -> Thermal {
        let mut t = Thermal {
            die: 0.0,
            sink: 0.0,
            ambient: s.ambient_c,
            obstruction: 1.0,
            die_r: s.die_k_per_w,
            die_c: s.die_j_per_k,
            sink_r: s.sink_k_per_w,
            sink_c: s.sink_j_per_k,
        };
        t.settle(watts);
        t
    }

    /// Sets the temperatures that this power reaches after infinite time.
    pub(crate) fn settle(&mut self, watts: f64) {
        self.sink = self.ambient + watts * self.sink_r * self.obstruction;
        self.die = self.sink + watts * self.die_r;
    }

    /// An explicit step. It is stable if `seconds` is below the die's time constant, so longer
    /// times are split.
    #[inline]
    pub(crate) fn step(&mut self, watts: f64, seconds: f64) {
        // An explicit step is stable below two time constants; a quarter of one keeps its error
        // small as well.
        let limit = 0.25 * self.die_r * self.die_c;
        let mut left = seconds;
        loop {
            let dt = if left > limit { limit } else { left };
            let down = (self.die - self.sink) / self.die_r;
            let out = (self.sink - self.ambient) / (self.sink_r * self.obstruction);
            self.die += (watts - down) / self.die_c * dt;
            self.sink += (down - out) / self.sink_c * dt;
            left -= dt;
            if left <= 0.0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ThermalSpec {
        ThermalSpec {
            ambient_c: 25.0,
            sink_k_per_w: 0.4,
            sink_j_per_k: 100.0,
            die_k_per_w: 0.1,
            die_j_per_k: 0.5,
            core_k_per_w: 0.3,
            tjmax_c: 100,
            throttle_c: 0,
        }
    }

    #[test]
    fn reaches_the_temperature_that_the_resistances_say() {
        let mut t = Thermal::new(&spec(), 0.0);
        for _ in 0..400_000 {
            t.step(100.0, 0.001);
        }
        assert!((t.sink - 65.0).abs() < 0.1, "{}", t.sink);
        assert!((t.die - 75.0).abs() < 0.1, "{}", t.die);
    }

    #[test]
    fn a_time_constant_is_resistance_times_capacitance() {
        let mut t = Thermal::new(&spec(), 0.0);
        // R C = 40 s: after that time the temperature has covered 1 - 1/e = 63.2 %.
        for _ in 0..40_000 {
            t.step(100.0, 0.001);
        }
        let share = (t.sink - 25.0) / 40.0;
        assert!((share - 0.632).abs() < 0.01, "{share}");
    }

    #[test]
    fn long_steps_are_as_stable_as_short_ones() {
        let (mut a, mut b) = (Thermal::new(&spec(), 0.0), Thermal::new(&spec(), 0.0));
        a.step(100.0, 5.0);
        for _ in 0..5000 {
            b.step(100.0, 0.001);
        }
        assert!((a.die - b.die).abs() < 0.5, "{} {}", a.die, b.die);
    }
}
