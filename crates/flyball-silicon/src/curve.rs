//! Voltage over frequency, and the power that follows from it.

/// A piecewise linear voltage-frequency curve, with the dynamic power at full switching activity
/// tabulated over frequency: the step loop looks it up for every core.
#[derive(Clone, Debug)]
pub struct Curve {
    points: Vec<(u32, f64)>,
    /// W at activity 1 for each multiple of [`STEP_KHZ`].
    dynamic: Vec<f64>,
    /// Volts for each multiple of [`STEP_KHZ`].
    volts: Vec<f64>,
    reference: f64,
}

// A quarter of the smallest ratio step of 100 MHz: between two entries a straight line is within a
// thousandth of V^2 f.
const STEP_KHZ: u32 = 25_000;

impl Curve {
    /// A curve from points (MHz, millivolts), which must rise in frequency, the switched
    /// capacitance in nanofarads and the frequency at which the leakage is given.
    pub fn new(points: &[(u32, u32)], nanofarads: f64, reference_khz: u32) -> Curve {
        let points: Vec<(u32, f64)> =
            points.iter().map(|&(mhz, mv)| (mhz * 1000, f64::from(mv) / 1000.0)).collect();
        let mut c = Curve { points, dynamic: Vec::new(), volts: Vec::new(), reference: 1.0 };
        // Entries beyond the last point: the look-up also reads the entry above, and rounding may
        // ask for slightly more than the maximum.
        let top = c.points.last().map_or(0, |p| p.0) / STEP_KHZ + 8;
        for i in 0..=top {
            let khz = i * STEP_KHZ;
            let v = c.volts(khz);
            c.volts.push(v);
            c.dynamic.push(nanofarads * v * v * f64::from(khz) * 1e-6);
        }
        c.reference = c.volts(reference_khz);
        c
    }

    /// The voltage in volts at a frequency: constant below the first point, extended with the last
    /// slope above the last.
    pub fn volts(&self, khz: u32) -> f64 {
        let p = &self.points;
        let Some(&(first, v0)) = p.first() else { return 1.0 };
        if khz <= first || p.len() == 1 {
            return v0;
        }
        // At least 1: a segment has a point before it.
        let i = p.iter().position(|q| khz <= q.0).unwrap_or(p.len() - 1).max(1);
        let ((f0, v0), (f1, v1)) = (p[i - 1], p[i]);
        v0 + (v1 - v0) * f64::from(khz - f0) / f64::from((f1 - f0).max(1))
    }

    /// Dynamic power in watts of one core at full activity.
    #[inline]
    pub fn dynamic_watts(&self, khz: u32) -> f64 {
        // The entry above is read too.
        let i = ((khz / STEP_KHZ) as usize).min(self.dynamic.len() - 2);
        let part = f64::from(khz - (i as u32 * STEP_KHZ)) * (1.0 / f64::from(STEP_KHZ));
        self.dynamic[i] + (self.dynamic[i + 1] - self.dynamic[i]) * part
    }

    /// Returns the factor for leakage at the reference voltage that this frequency's voltage
    /// causes: the square of their ratio.
    #[inline]
    pub fn leakage_by_voltage(&self, khz: u32) -> f64 {
        let i = ((khz / STEP_KHZ) as usize).min(self.volts.len() - 1);
        let r = self.volts[i] / self.reference;
        r * r
    }

    /// Returns the factor for leakage at 50 C that this temperature causes: 1.2 % more a kelvin.
    #[inline]
    pub fn leakage_by_heat(celsius: f64) -> f64 {
        // A straight line would reach zero at -33 C, and the air may be set to -40 C.
        (1.0 + 0.012 * (celsius - 50.0)).max(0.3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_and_extends() {
        let c = Curve::new(&[(1000, 700), (2000, 800), (4000, 1200)], 1.0, 2_000_000);
        assert!((c.volts(500_000) - 0.7).abs() < 1e-12);
        assert!((c.volts(1_500_000) - 0.75).abs() < 1e-12);
        assert!((c.volts(3_000_000) - 1.0).abs() < 1e-12);
        assert!((c.volts(4_100_000) - 1.22).abs() < 1e-12);
    }

    #[test]
    fn power_is_capacitance_times_voltage_squared_times_frequency() {
        let c = Curve::new(&[(1000, 700), (2000, 800), (4000, 1200)], 1.5, 2_000_000);
        for mhz in [400, 1000, 1500, 2600, 3999, 4000] {
            let v = c.volts(mhz * 1000);
            let want = 1.5 * v * v * f64::from(mhz) / 1000.0;
            assert!((c.dynamic_watts(mhz * 1000) - want).abs() < want * 1e-3, "{mhz}");
        }
    }

    #[test]
    fn leakage_follows_voltage_and_temperature() {
        let c = Curve::new(&[(1000, 700), (2000, 800)], 1.0, 2_000_000);
        assert!((c.leakage_by_voltage(2_000_000) * Curve::leakage_by_heat(50.0) - 1.0).abs() < 1e-12);
        assert!((Curve::leakage_by_heat(100.0) - 1.6).abs() < 1e-12);
        assert!(c.leakage_by_voltage(1_000_000) < 0.78);
    }
}
