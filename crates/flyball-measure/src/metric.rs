//! What is measured of a workload: a number, its unit, and which direction is better.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better: throughput.
    Higher,
    /// Less is better: time, energy, latency.
    Lower,
}

/// A quantity that rounds yield.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Metric {
    /// Its name: `wall time`, `throughput`.
    pub name: String,
    /// Its unit: `s`, `MB/s`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

/// The name of the metric of suites, by which it is recognised.
const MEAN_OF_CASES: &str = "mean of cases";
/// The beginning of its name if some cases do not count.
const MEAN_OF: &str = "mean of ";

impl Metric {
    pub fn new(name: impl Into<String>, unit: impl Into<String>, better: Better) -> Metric {
        Metric { name: name.into(), unit: unit.into(), better }
    }

    /// The time from start to end of a command.
    pub fn wall_time() -> Metric {
        Metric::new("wall time", "s", Better::Lower)
    }

    /// The mean over the cases of a benchmark suite.
    pub fn suite(unit: impl Into<String>, better: Better) -> Metric {
        Metric::new(MEAN_OF_CASES, unit, better)
    }

    /// The mean over some of a suite's cases.
    #[must_use]
    pub(crate) fn for_cases(&self, some: usize, all: usize) -> Metric {
        Metric::new(format!("{MEAN_OF}{some} of {all} cases"), &self.unit, self.better)
    }

    /// Returns whether it is the mean over the cases of a suite.
    pub fn is_suite(&self) -> bool {
        let of = self.name.strip_prefix(MEAN_OF).and_then(|rest| rest.strip_suffix(" cases"));
        let numbers = of.and_then(|of| of.split_once(" of "));
        self.name == MEAN_OF_CASES
            || numbers.is_some_and(|(some, all)| [some, all].iter().all(|one| one.parse::<usize>().is_ok()))
    }

    /// Returns whether it is work per time, so that metric x time is work. More of a score, a ratio
    /// or a level in dB is better, too, but it is no work.
    pub fn is_rate(&self) -> bool {
        const ENDS: [&str; 13] =
            ["/s", "/sec", "/min", "/h", "bps", "fps", "qps", "rps", "tps", "iops", "flops", "mips", "hz"];
        let unit = self.unit.to_ascii_lowercase();
        self.better == Better::Higher && ENDS.iter().any(|end| unit.ends_with(end))
    }

    /// Whether it is the time of a fixed piece of work, so that only energy for the same work
    /// counts. Other metrics of which less is better, such as a latency in us, do not measure a
    /// fixed amount of work.
    fn is_time_of_work(&self) -> bool {
        self.better == Better::Lower && self.unit == "s"
    }

    /// The metric of performance per watt that belongs to this one, as the kernel's amd-pstate
    /// selftest defines it: work per joule for a rate (`MB/s` x s / J = `MB/J`), 1/energy for the
    /// time of a fixed piece of work. For a latency, which the selftest does not have, it is the
    /// inverse divided by the mean power.
    #[must_use]
    pub fn per_watt(&self) -> Metric {
        let unit = if self.is_rate() {
            self.unit
                .strip_suffix("/s")
                .map_or_else(|| format!("{} s/J", self.unit), |work| format!("{work}/J"))
        } else if self.is_time_of_work() {
            "1/J".to_owned()
        } else if self.unit.is_empty() {
            "1/W".to_owned()
        } else if self.better == Better::Higher {
            format!("{}/W", self.unit)
        } else {
            format!("1/({} W)", self.unit)
        };
        Metric::new("performance per watt", unit, Better::Higher)
    }

    /// The unit of energy per work of a rate: `J/MB` for `MB/s`.
    pub(crate) fn energy_per_work_unit(&self) -> String {
        let per_joule = self.per_watt().unit;
        per_joule.strip_suffix("/J").map_or_else(
            || format!("J/({per_joule} J)"),
            |work| match work {
                "1" => "J".to_owned(),
                work => format!("J/{work}"),
            },
        )
    }

    /// Whether performance per watt is the inverse of an energy that is also judged.
    pub(crate) fn is_per_watt_of_energy(&self) -> bool {
        self.is_rate() || self.is_time_of_work()
    }

    /// Performance per watt of one round.
    pub fn value_per_watt(&self, value: f64, seconds: f64, joules: f64) -> Option<f64> {
        let result = if self.better == Better::Higher {
            // Rate x time is work: work per joule. A score is divided by the mean power.
            value * seconds / joules
        } else if self.is_time_of_work() {
            1.0 / joules
        } else {
            // 1 / (latency x mean power).
            seconds / (value * joules)
        };
        (joules > 0.0 && result.is_finite()).then_some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn performance_per_watt_is_the_selftests() {
        // First round of the amd-pstate document's tbench table: 99 s at 2504.05 MB/s for 1563.67
        // J.
        let tbench = Metric::new("throughput", "MB/s", Better::Higher);
        assert_eq!(tbench.per_watt().unit, "MB/J");
        let value = tbench.value_per_watt(2504.05, 99.0, 1563.67).expect("energy is positive");
        assert!((value - 158.5378).abs() < 1e-4);
        assert_eq!(Metric::wall_time().per_watt().unit, "1/J");
        assert_eq!(Metric::wall_time().value_per_watt(10.0, 10.0, 0.0), None);
        // Half the latency at the same power is twice the performance per watt.
        let latency = Metric::new("mean latency", "us", Better::Lower);
        assert_eq!(latency.per_watt().unit, "1/(us W)");
        assert_eq!(latency.value_per_watt(50.0, 10.0, 100.0), Some(0.002));
        assert_eq!(latency.value_per_watt(25.0, 10.0, 100.0), Some(0.004));
    }
}
