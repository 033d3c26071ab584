//! Time, energy, frequency and heat of a load, from the silicon's log.

use crate::silicon::{self, Line};

/// A quantity, with its word in threshold files and its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    Time,
    Energy,
    Frequency,
    Reach,
    Overshoot,
    Heat,
}

impl Quantity {
    pub const ALL: [Quantity; 6] = [
        Quantity::Time,
        Quantity::Energy,
        Quantity::Frequency,
        Quantity::Reach,
        Quantity::Overshoot,
        Quantity::Heat,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Quantity::Time => "time",
            Quantity::Energy => "energy",
            Quantity::Frequency => "frequency",
            Quantity::Reach => "reach",
            Quantity::Overshoot => "overshoot",
            Quantity::Heat => "heat",
        }
    }

    /// The unit of a change: a ratio, or a difference for values that may be 0 or have no ratio.
    pub fn change_unit(self) -> &'static str {
        match self {
            Quantity::Time | Quantity::Energy | Quantity::Frequency => "%",
            Quantity::Reach => "ms",
            Quantity::Overshoot => "points",
            Quantity::Heat => "K",
        }
    }

    /// The change between two values, in `change_unit`.
    pub fn change(self, old: f64, new: f64) -> Option<f64> {
        match self.change_unit() {
            "%" => (old > 0.0).then(|| (new / old - 1.0) * 100.0),
            _ => Some(new - old),
        }
    }

    pub fn show(self, value: f64) -> String {
        match self {
            Quantity::Time => format!("{:.1} ms", value * 1000.0),
            Quantity::Energy => format!("{value:.3} J"),
            Quantity::Frequency => format!("{:.0} MHz", value / 1000.0),
            Quantity::Reach => format!("{value:.0} ms"),
            Quantity::Overshoot => format!("{value:.1} %"),
            Quantity::Heat => format!("{value:.1} C"),
        }
    }
}

/// The figures of one load under one setting.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Figures {
    /// Seconds.
    pub time: f64,
    /// Joules of the load's work.
    pub energy: f64,
    /// Mean over the busy time of CPUs, kHz.
    pub frequency: Option<f64>,
    /// Milliseconds until a busy CPU reaches 95 % of its final frequency.
    pub reach: Option<f64>,
    /// Percentage by which the highest frequency exceeds the final one.
    pub overshoot: Option<f64>,
    /// The highest temperature, C.
    pub heat: Option<f64>,
}

impl Figures {
    pub(super) fn get(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::Time => Some(self.time),
            Quantity::Energy => Some(self.energy),
            Quantity::Frequency => self.frequency,
            Quantity::Reach => self.reach,
            Quantity::Overshoot => self.overshoot,
            Quantity::Heat => self.heat,
        }
    }
}

/// The figures between two marks, ns.
pub(super) fn figures(lines: &[Line], from_ns: u64, to_ns: u64) -> Figures {
    let (from, to) = (from_ns as f64 / 1e6, to_ns as f64 / 1e6);
    let window = silicon::between(lines, from, to);
    let mut figures = Figures { time: (to - from) / 1e3, ..Figures::default() };
    let mut before = from;
    let (mut weighted, mut busy) = (0.0, 0.0);
    // Time since the start, ms, and frequency of CPUs that were busy for a whole millisecond.
    let mut full: Vec<(f64, f64)> = Vec::new();
    for line in window {
        figures.energy += line.watts * (line.ms - before) / 1e3;
        before = line.ms;
        figures.heat = Some(figures.heat.map_or(line.celsius, |heat| heat.max(line.celsius)));
        for (khz, ns) in &line.cpus {
            weighted += f64::from(*khz) * *ns as f64;
            busy += *ns as f64;
            if *ns >= silicon::BUSY_NS {
                full.push((line.ms - from, f64::from(*khz)));
            }
        }
    }
    if busy > 0.0 {
        figures.frequency = Some(weighted / busy);
    }
    // The final frequency: the median of the later half of the busy time.
    let mut late: Vec<f64> = full[full.len() / 2..].iter().map(|(_, khz)| *khz).collect();
    late.sort_by(f64::total_cmp);
    if let Some(settled) = late.get(late.len() / 2) {
        let reached = full.iter().find(|(_, khz)| *khz >= settled * 0.95);
        figures.reach = reached.map(|(ms, _)| *ms);
        let highest = full.iter().map(|(_, khz)| *khz).fold(*settled, f64::max);
        figures.overshoot = Some((highest / settled - 1.0) * 100.0);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(khz: &[u32]) -> Vec<Line> {
        let line = |(n, khz): (usize, &u32)| Line {
            ms: 100.0 + n as f64 + 1.0,
            watts: 10.0,
            celsius: 40.0 + n as f64,
            cpus: vec![(*khz, 1_000_000), (400_000, 0)],
        };
        khz.iter().enumerate().map(line).collect()
    }

    #[test]
    fn figures_are_of_the_window() {
        let all =
            lines(&[1_000_000, 1_000_000, 4_400_000, 4_000_000, 4_000_000, 4_000_000, 4_000_000, 4_000_000]);
        let found = figures(&all, 100_000_000, 108_000_000);
        assert!((found.time - 0.008).abs() < 1e-9 && (found.energy - 0.08).abs() < 1e-9, "{found:?}");
        assert_eq!(found.frequency, Some(3_300_000.0));
        assert_eq!((found.reach, found.heat), (Some(3.0), Some(47.0)));
        assert!((found.overshoot.unwrap() - 10.0).abs() < 1e-6);
        let part = figures(&all, 104_000_000, 106_000_000);
        assert!((part.energy - 0.02).abs() < 1e-9);
        assert_eq!((part.reach, part.overshoot), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn idle_or_no_time_has_no_frequency() {
        let mut idle = lines(&[400_000; 3]);
        for line in &mut idle {
            line.cpus[0].1 = 0;
        }
        let found = figures(&idle, 100_000_000, 103_000_000);
        assert_eq!((found.frequency, found.reach, found.overshoot), (None, None, None));
        assert_eq!(figures(&[], 5, 5), Figures::default());
        let _ = figures(&idle, 200_000_000, 100_000_000);
    }
}
