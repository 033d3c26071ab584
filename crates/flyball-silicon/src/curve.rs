//! Voltage as a function of frequency, and the resulting power.

/// A piecewise linear voltage-frequency curve. The dynamic power at full switching activity is
/// tabulated by frequency, because the step loop looks it up for every core.
#[derive(Clone, Debug)]
pub struct Curve {
    points: Vec<(u32, f64)>,
    /// W at activity 1 for each multiple of [`STEP_KHZ`].
    dynamic: Vec<f64>,
    /// Volts for each multiple of [`STEP_KHZ`].
    volts: Vec<f64>,
    reference: f64,
}

// A quarter of the smallest ratio step of 100 MHz: linear interpolation is within a thousandth of
// V^2 f.
const STEP_KHZ: u32 = 25_000;

impl Curve {
    /// Creates a curve from points (MHz, millivolts) with ascending frequency, the switched
    /// capacitance in nanofarads, and the frequency at which the leakage is specified.
    pub fn new(points: &[(u32, u32)], nanofarads: f64, reference_khz: u32) -> Curve {
        let points: Vec<(u32, f64)> =
            points.iter().map(|&(mhz, mv)| (mhz * 1000, f64::from(mv) / 1000.0)).collect();
        let mut c = Curve { points, dynamic: Vec::new(), volts: Vec::new(), reference: 1.0 };
        // Entries beyond the last point: a lookup also reads the next entry, and rounding may
        // slightly exceed the maximum.
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

    /// The voltage in volts at a frequency. It is constant below the first point, and continues
    /// with the last slope above the last point.
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
        // Leave room for the next entry, which is read too.
        let i = ((khz / STEP_KHZ) as usize).min(self.dynamic.len() - 2);
        let part = f64::from(khz - (i as u32 * STEP_KHZ)) * (1.0 / f64::from(STEP_KHZ));
        self.dynamic[i] + (self.dynamic[i + 1] - self.dynamic[i]) * part
    }

    /// Returns the factor of leakage at this frequency's voltage: the square of the ratio to the
    /// reference voltage.
    #[inline]
    pub fn leakage_by_voltage(&self, khz: u32) -> f64 {
        let i = ((khz / STEP_KHZ) as usize).min(self.volts.len() - 1);
        let r = self.volts[i] / self.reference;
        r * r
    }

    /// Returns the factor of leakage at this temperature: 1 at 50 C, plus 1.2 % per kelvin.
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
