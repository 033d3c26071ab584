//! How firmware interprets the system's requests: one request per CPU, decoded from the registers
//! that carry it, and the policy that follows load if the request leaves the choice to the
//! processor.

use crate::spec::AutonomousSpec;
pub use crate::spec::InterfaceSpec as Interface;

/// A CPU's decoded request, in kHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub min: u32,
    pub max: u32,
    /// 0: the firmware chooses between min and max.
    pub desired: u32,
    /// Energy performance preference, 0 to 255.
    pub epp: u8,
}

impl Request {
    /// Returns whether the firmware chooses a frequency by the load.
    pub(crate) fn follows_load(self) -> bool {
        self.desired == 0 && self.epp != 0
    }
}

/// The CPPC registers of one CPU that firmware keeps in memory, as an ACPI _CPC object names them.
/// Values are performance levels with the same meaning as in the MSRs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCppc {
    pub desired: u32,
    pub min: u32,
    pub max: u32,
    pub enable: u32,
    /// Autonomous selection enable: the processor chooses between min and max.
    pub auto_select: u32,
    /// Energy performance preference.
    pub epp: u32,
}

/// The autonomous policy's constants in a form for the step loop.
#[derive(Clone, Debug)]
pub(crate) struct Autonomous {
    rise: f64,
    fall: f64,
    gain: [f64; 256],
    ceiling: [f64; 256],
}

impl Autonomous {
    pub(crate) fn new(a: &AutonomousSpec, period_us: u32) -> Autonomous {
        let share = |ms: f64| {
            // A first-order filter with one step per period; a factor above 1 would overshoot.
            let k = f64::from(period_us) / 1000.0 / ms.max(0.01);
            if k < 1.0 { k } else { 1.0 }
        };
        let mut gain = [0.0; 256];
        let mut ceiling = [1.0; 256];
        // Tables: target() runs for every thread in every period.
        for epp in 0..256usize {
            let x = epp as f64 / 255.0;
            gain[epp] = a.gain - a.gain_loss * x;
            let from = f64::from(a.ceiling_from);
            // ceiling_from may be 255.
            let over = (epp as f64 - from) / (255.0 - from).max(1.0);
            ceiling[epp] = 1.0 - a.ceiling_loss * over.max(0.0);
        }
        Autonomous { rise: share(a.rise_ms), fall: share(a.fall_ms), gain, ceiling }
    }

    /// Applies the smoothing filter to a measured utilisation.
    #[inline]
    pub(crate) fn smooth(&self, old: f64, measured: f64) -> f64 {
        old + (measured - old) * if measured > old { self.rise } else { self.fall }
    }

    /// Returns the frequency for a request and a smoothed utilisation. `efficient` is the lowest
    /// frequency worth using.
    #[inline]
    pub(crate) fn target(&self, r: Request, efficient: u32, utilisation: f64) -> u32 {
        // A desired value turns autonomous selection off (Intel SDM 3B, IA32_HWP_REQUEST; ACPI 6.5,
        // 8.4.6.1).
        if r.desired != 0 {
            return r.desired.min(r.max).max(r.min);
        }
        // EPP 0 means performance regardless of power, so the load does not matter.
        if r.epp == 0 {
            // A register's minimum may exceed its maximum; the minimum wins, as in the other
            // branches.
            return r.max.max(r.min);
        }
        let low = efficient.min(r.max).max(r.min);
        let range = f64::from(r.max.max(low) - low);
        let share = utilisation * self.gain[r.epp as usize];
        let top = self.ceiling[r.epp as usize];
        low + (range * top * if share < 1.0 { share } else { 1.0 }) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(min: u32, max: u32, desired: u32, epp: u8) -> Request {
        Request { min, max, desired, epp }
    }

    #[test]
    fn desired_is_obeyed_within_limits() {
        let a = Autonomous::new(&AutonomousSpec::default(), 1000);
        assert_eq!(a.target(request(1_000, 3_000, 2_000, 255), 500, 0.0), 2_000);
        assert_eq!(a.target(request(1_000, 3_000, 5_000, 255), 500, 0.0), 3_000);
        assert_eq!(a.target(request(1_000, 3_000, 200, 255), 500, 0.0), 1_000);
    }

    #[test]
    fn more_load_and_a_lower_epp_mean_more_frequency() {
        let a = Autonomous::new(&AutonomousSpec::default(), 1000);
        let at = |epp, u| a.target(request(800_000, 3_600_000, 0, epp), 1_000_000, u);
        assert_eq!(at(0, 0.0), 3_600_000);
        assert_eq!(at(128, 0.0), 1_000_000);
        assert_eq!(at(128, 1.0), 3_600_000);
        assert!(at(255, 1.0) < at(128, 1.0));
        for u in 0..100 {
            let u = f64::from(u) / 100.0;
            assert!(at(64, u) >= at(128, u) && at(128, u) >= at(192, u) && at(192, u) >= at(255, u));
            assert!(at(128, u + 0.01) >= at(128, u));
        }
    }

    #[test]
    fn a_minimum_above_the_maximum_wins() {
        let a = Autonomous::new(&AutonomousSpec::default(), 1000);
        assert_eq!(a.target(request(3_000, 1_000, 0, 128), 500, 0.3), 3_000);
    }
}
