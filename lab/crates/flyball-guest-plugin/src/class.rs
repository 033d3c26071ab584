//! Classes of workload. A class splits the time of work into the core's share, which changes with
//! the frequency, and memory's share, which does not. It also sets the core's activity during the
//! work.
//!
//! A cycle of work takes `1 / frequency + memory_ps`. The model of memory goes no further: there
//! are no shared caches and no bandwidth limits. The effect of a frequency change on a class is
//! therefore an input of the model, not a result.

use flyball_silicon::KiloHertz;

/// Activity of a core that waits for memory, relative to one that executes. Estimated: most of a
/// waiting core's clocks keep running.
const WAITING: f64 = 0.45;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkloadClass {
    /// Name on command lines.
    pub name: &'static str,
    /// The kind of work that the class represents, and the source of its numbers.
    pub about: &'static str,
    /// Time spent on memory for each cycle of the core, ps.
    pub memory_ps: u32,
    /// Switching activity while executing, in 1/256 of dense integer code's.
    pub intensity: u16,
}

impl WorkloadClass {
    /// Dense integer code that runs from the first-level cache: its speed is proportional to the
    /// frequency.
    pub const INTEGER: WorkloadClass = WorkloadClass {
        name: "integer",
        about: "dense integer code: as fast as the frequency",
        memory_ps: 0,
        intensity: 256,
    };

    pub const ALL: [WorkloadClass; 4] = [
        WorkloadClass::INTEGER,
        WorkloadClass {
            name: "build",
            about: "short processes of a build: 1 % of the time is memory's (AMD's slides, gitsource)",
            memory_ps: 3, // 3 us with 900,000 cycles: what reproduces three rows of the slides' gitsource
            intensity: 223,
        },
        WorkloadClass {
            name: "network",
            about: "network code with cache misses: 40 % of the time is memory's (AMD's slides, tbench)",
            memory_ps: 183, // 2.2 us with 12,000 cycles: what reproduces a row of the slides' tbench
            intensity: 104,
        },
        WorkloadClass {
            name: "memory",
            about: "chains of loads that miss: 90 % of the time at 3.3 GHz is memory's (assumed)",
            memory_ps: 2727,
            intensity: 256,
        },
    ];

    pub fn named(name: &str) -> Option<WorkloadClass> {
        WorkloadClass::ALL.into_iter().find(|class| class.name == name)
    }

    /// Memory's share of the time at a frequency, 0 to 1.
    pub fn memory_share(&self, frequency: KiloHertz) -> f64 {
        let memory = f64::from(self.memory_ps);
        // A cycle takes 1e9 / kHz picoseconds.
        memory / (memory + 1e9 / f64::from(frequency.0.max(1)))
    }

    /// Mean switching activity at a frequency, including the time spent waiting, in 1/256 of dense
    /// integer code's.
    pub fn intensity_at(&self, frequency: KiloHertz) -> u16 {
        let waiting = self.memory_share(frequency) * (1.0 - WAITING);
        (f64::from(self.intensity) * (1.0 - waiting)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_does_not_get_faster() {
        let slow_and_fast = |name: &str| {
            let class = WorkloadClass::named(name).unwrap();
            [1_650_000, 3_300_000].map(|khz| class.memory_share(KiloHertz(khz)))
        };
        assert_eq!(slow_and_fast("integer"), [0.0, 0.0]);
        let [slow, fast] = slow_and_fast("memory");
        assert!(slow < 0.83 && (0.899..0.901).contains(&fast), "{slow} {fast}");
        let [_, network] = slow_and_fast("network");
        assert!((0.37..0.38).contains(&network), "{network}");
        assert_eq!(WorkloadClass::INTEGER.intensity_at(KiloHertz(4_000_000)), 256);
        let memory = WorkloadClass::named("memory").unwrap();
        assert_eq!(memory.intensity_at(KiloHertz(3_300_000)), 129);
        assert_eq!(WorkloadClass::named("Memory"), None);
    }
}
