//! Power limits: a running average per limit, the share of the frequency range that the limits
//! leave, and the encoding of the limit register.

use crate::spec::PowerSpec;

/// One power limit with its time window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PowerLimit {
    /// True if the limit is enabled (bit 15 or 47 of the limit register).
    pub enabled: bool,
    /// True if the limit may push below the guaranteed frequency (the clamp bit).
    pub clamp: bool,
    /// W.
    pub watts: f64,
    /// s.
    pub window: f64,
}

/// A package's two power limits and the controller that keeps the package under them.
#[derive(Clone, Debug)]
pub(crate) struct PowerControl {
    /// Long-term (PL1) and short-term (PL2) limit.
    pub limits: [PowerLimit; 2],
    /// Running averages over the two windows, W.
    pub average: [f64; 2],
    /// Share of its frequency range that the package may use: 1 for all, 0 for none.
    pub room: f64,
    /// Time spent limited, ns.
    pub limited_ns: u64,
}

impl PowerControl {
    /// A control that leaves the whole frequency range.
    pub(crate) fn new(limits: [PowerLimit; 2]) -> PowerControl {
        PowerControl { limits, average: [0.0; 2], room: 1.0, limited_ns: 0 }
    }

    /// Returns the power that the limits currently allow. While a limit's average is below it, more
    /// power than the limit is allowed for a time.
    pub(crate) fn allowed(&self) -> f64 {
        let mut allowed = f64::INFINITY;
        for (l, a) in self.limits.iter().zip(self.average) {
            if l.enabled && l.watts > 0.0 {
                // Spread the unused power over an eighth of the window, so that the average
                // approaches the limit smoothly. A window that is short compared to the control's
                // lag allows nothing extra.
                let k = l.window * 20.0;
                let w = l.watts + (l.watts - a).max(-l.watts * 0.5) * if k < 8.0 { k } else { 8.0 };
                allowed = if w < allowed { w } else { allowed };
            }
        }
        if allowed < 1.0 { 1.0 } else { allowed }
    }

    /// Updates the averages with a past step's power, and sets the room for the next step.
    #[inline]
    pub(crate) fn step(&mut self, watts: f64, seconds: f64) {
        for (l, a) in self.limits.iter().zip(&mut self.average) {
            // At most 1: an average over less than a step is simply the step's power.
            let k = seconds / l.window;
            *a += (watts - *a) * if k < 1.0 { k } else { 1.0 };
        }
        let allowed = self.allowed();
        // An idle package draws almost nothing, which must not make the error infinite.
        let error = allowed / watts.max(0.1) - 1.0;
        // Correct a fifth of the relative error per step, by at most 5 % upwards and 10 %
        // downwards.
        let change = (0.2 * error).clamp(-0.1, 0.05);
        self.room = (self.room + change).clamp(0.0, 1.0);
        if self.room < 1.0 {
            self.limited_ns += (seconds * 1e9) as u64;
        }
    }
}

/// Encodes a time window as the register's field: 2^y (1 + f/4) units, rounded down.
fn encode_window(seconds: f64, unit: u8) -> u64 {
    // The field has only 128 values. Searching all of them avoids the rounding errors of a
    // logarithm.
    let mut best = 0;
    for y in 0..32u64 {
        for f in 0..4u64 {
            let w = (1u64 << y) as f64 * (1.0 + f as f64 / 4.0) / f64::from(1u32 << unit);
            // Windows in machine files are rounded: 2.44 ms means 2.4414 ms.
            if w <= seconds * 1.001 {
                best = y | f << 5;
            }
        }
    }
    best
}

pub(crate) fn decode_window(field: u64, unit: u8) -> f64 {
    (1u64 << (field & 0x1f)) as f64 * (1.0 + (field >> 5 & 3) as f64 / 4.0) / f64::from(1u32 << unit)
}

/// The package power limit register at reset.
pub(crate) fn encode_power_limits(p: &PowerSpec) -> u64 {
    let half = |watts: f64, window: f64| -> u64 {
        if watts <= 0.0 {
            return 0;
        }
        let raw = (watts * f64::from(1u32 << p.power_unit)) as u64 & 0x7fff;
        // Bits 15 and 16: enabled, and clamped.
        raw | 1 << 15 | 1 << 16 | encode_window(window, p.time_unit) << 17
    };
    half(p.pl1_w, p.pl1_s) | half(p.pl2_w, p.pl2_s) << 32 | u64::from(p.locked) << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(w1: f64, s1: f64) -> PowerControl {
        PowerControl::new([
            PowerLimit { enabled: true, clamp: true, watts: w1, window: s1 },
            PowerLimit { enabled: true, clamp: true, watts: w1 * 1.2, window: 0.002 },
        ])
    }

    /// A package that draws 20 W, plus 180 W times the cube of the room.
    fn plant(room: f64) -> f64 {
        20.0 + 180.0 * room * room * room
    }

    #[test]
    fn the_average_meets_the_limit() {
        let mut c = control(100.0, 1.0);
        for _ in 0..20_000 {
            let w = plant(c.room);
            c.step(w, 0.001);
        }
        assert!((c.average[0] - 100.0).abs() < 1.5, "{}", c.average[0]);
    }

    #[test]
    fn a_longer_window_lends_for_longer() {
        let run = |window: f64| {
            let mut c = control(100.0, window);
            let mut above = 0;
            for _ in 0..60_000 {
                let w = plant(c.room);
                above += u32::from(w > 110.0);
                c.step(w, 0.001);
            }
            above
        };
        let (short, long) = (run(1.0), run(8.0));
        assert!(long > 4 * short, "{short} {long}");
    }

    #[test]
    fn without_limits_there_is_all_the_room() {
        let mut c = control(100.0, 1.0);
        c.limits[0].enabled = false;
        c.limits[1].enabled = false;
        for _ in 0..1000 {
            c.step(500.0, 0.001);
        }
        assert!((c.room - 1.0).abs() < 1e-12);
    }

    #[test]
    fn windows_as_the_kernel_codes_them() {
        // Gold parts have 1 s and 2.44 ms in units of 976 us: y = 10, f = 0 and y = 1, f = 1.
        assert_eq!(encode_window(1.0, 10), 10);
        assert!((decode_window(10, 10) - 1.0).abs() < 1e-12);
        assert_eq!(encode_window(0.002_441_4, 10), 1 | 1 << 5);
        assert!((decode_window(0x21, 10) - 0.002_441_4).abs() < 1e-6);
        assert!((decode_window(encode_window(28.0, 10), 10) - 28.0).abs() < 1e-9);
    }

    #[test]
    fn the_limit_register_of_a_real_machine() {
        // gnr0's 0x610: 500 W over 1 s, 600 W over 2.44 ms; its unit register 0xa0e03.
        let field = |v: u64| (v & 0x7fff) as f64 / 8.0;
        assert!((field(0x0087_92c0_0015_8fa0) - 500.0).abs() < 1e-9);
        assert!((field(0x0087_92c0_0015_8fa0 >> 32) - 600.0).abs() < 1e-9);
        assert!((decode_window(0x0015_8fa0 >> 17 & 0x7f, 10) - 1.0).abs() < 1e-9);
    }
}
