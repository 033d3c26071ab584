//! What a comparison reports of each arm: the quantities, their units, and how a round gives them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray as _;

use crate::{
    counters::Counts,
    meter::Domain,
    metric::{Better, Metric},
    run_directory::{Manifest, Round},
};

/// The quantities that are reported for each arm, in this order.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The workload's own metric.
    Performance,
    /// Time per operation, for a workload that makes one after the other (io-4k).
    Latency,
    /// Energy of the packages.
    Energy,
    /// Energy of the packages for the work of a second at a rate of one, if the metric is a rate.
    WorkEnergy,
    /// Performance per watt.
    PerWatt,
    /// Energy of memory.
    Dram,
    /// Energy of the whole platform.
    Platform,
    /// Mean power of the packages.
    Power,
    /// Mean power of the whole platform.
    PlatformPower,
    /// Mean frequency while running.
    Frequency,
    /// Share of time in which the CPUs of the workload were not idle.
    Busy,
    /// The highest temperature.
    Temperature,
    /// Context switches of the workload, or of the machine if the workload's are not known.
    Switches,
    /// The largest resident set of a process.
    PeakMemory,
    /// Page faults, with and without input.
    Faults,
    /// Instructions of the program's processes, in millions.
    Instructions,
    /// Cycles of the CPUs while these ran, in millions.
    Cycles,
    /// Branches that the processor predicted wrongly, in millions.
    BranchMisses,
    /// Accesses that missed the last level of cache, in millions.
    CacheMisses,
    /// CPU time in user mode and in the kernel. Each alone is counted in ticks; their sum is exact.
    CpuTime,
    /// CPU time in user mode.
    User,
    /// CPU time in the kernel.
    System,
    Time,
    /// Decisions of the driver a second, by its trace.
    Decisions,
    /// Frequency while running, by the driver's trace.
    TraceFrequency,
    /// Time from request to frequency, by the driver's trace.
    Lag,
    /// Desired performance, the mean over the driver's records.
    DesiredPerformance,
    /// Frequency, the mean over the driver's records.
    SampledFrequency,
    /// Load, the mean over the driver's records.
    SampledLoad,
}

/// Returns whether a value counts in ratios: it is above zero. The ratio of two negative numbers
/// would say the opposite.
pub fn has_logarithm(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

impl Quantity {
    /// Returns the quantities that get verdicts. If the metric is a rate, a slower setting may do
    /// less work in the same time, so energy is judged for the same work. Suites repeat their cases
    /// for a fixed time, and do not report how much work that is.
    pub fn judged(metric: &Metric) -> &'static [Quantity] {
        if metric.is_suite() {
            &[Quantity::Performance]
        } else if metric.is_rate() {
            &[Quantity::Performance, Quantity::WorkEnergy, Quantity::PerWatt]
        } else {
            &[Quantity::Performance, Quantity::Energy, Quantity::PerWatt]
        }
    }

    /// Returns the quantity that compares arms for the same work, instead of this one, if there is
    /// one.
    pub(super) fn per_work(self, metric: &Metric) -> Option<Quantity> {
        match self {
            Quantity::Energy | Quantity::PerWatt if metric.is_suite() => None,
            Quantity::Time | Quantity::CpuTime | Quantity::User | Quantity::System
                if metric.is_rate() || metric.is_suite() =>
            {
                None
            }
            Quantity::Energy if metric.is_rate() => Some(Quantity::WorkEnergy),
            other => Some(other),
        }
    }

    /// Returns whether a workload's metric is this quantity, which performance then stands for.
    pub fn is_metric(self, metric: &Metric) -> bool {
        self != Quantity::Performance && self.metric(metric) == *metric
    }

    /// The resources that processes of programs use. They are judged if programs are compared. User
    /// and system time are parts of CPU time.
    pub const RESOURCES: [Quantity; 8] = [
        Quantity::CpuTime,
        Quantity::PeakMemory,
        Quantity::Faults,
        Quantity::Switches,
        Quantity::Instructions,
        Quantity::Cycles,
        Quantity::BranchMisses,
        Quantity::CacheMisses,
    ];

    pub(super) const ALL: &[Quantity] = Quantity::VARIANTS;

    /// Its name, unit and direction for a workload with this metric.
    pub fn metric(self, workload: &Metric) -> Metric {
        let lower = |name: &str, unit: &str| Metric::new(name, unit, Better::Lower);
        match self {
            Quantity::Performance => workload.clone(),
            Quantity::Latency => lower("latency", "us"),
            Quantity::Energy => lower("energy", "J"),
            Quantity::WorkEnergy => lower("energy per work", &workload.energy_per_work_unit()),
            Quantity::PerWatt => workload.per_watt(),
            Quantity::Dram => lower("DRAM energy", "J"),
            Quantity::Platform => lower("platform energy", "J"),
            Quantity::Power => lower("power", "W"),
            Quantity::PlatformPower => lower("platform power", "W"),
            Quantity::Frequency => Metric::new("frequency", "GHz", Better::Higher),
            Quantity::Busy => lower("busy", "%"),
            Quantity::Temperature => lower("peak temperature", "C"),
            Quantity::Switches => lower("context switches", ""),
            Quantity::PeakMemory => lower("peak memory", "MiB"),
            Quantity::Faults => lower("page faults", ""),
            Quantity::Instructions => lower("instructions", "M"),
            Quantity::Cycles => lower("cycles", "M"),
            Quantity::BranchMisses => lower("branch misses", "M"),
            Quantity::CacheMisses => lower("cache misses", "M"),
            Quantity::CpuTime => lower("CPU time", "s"),
            Quantity::User => lower("user time", "s"),
            Quantity::System => lower("system time", "s"),
            Quantity::Time => lower("wall time", "s"),
            Quantity::Decisions => lower("decisions", "/s"),
            Quantity::TraceFrequency => Metric::new("traced frequency", "GHz", Better::Higher),
            Quantity::Lag => lower("lag", "ms"),
            Quantity::DesiredPerformance => lower("desired performance", ""),
            Quantity::SampledFrequency => Metric::new("frequency of the records", "GHz", Better::Higher),
            Quantity::SampledLoad => lower("load of the records", "%"),
        }
    }

    /// The domain whose energy it is, or is computed from, if verdicts are given for it.
    pub(super) fn domain(self, manifest: &Manifest) -> Option<Domain> {
        let mut sources = manifest.boots.iter().flat_map(|boot| &boot.meters.energy);
        match self {
            Quantity::Energy => Some(Domain::Package),
            // If only the platform is metered, its energy counts. All rounds use the same domain.
            Quantity::WorkEnergy | Quantity::PerWatt
                if sources.any(|source| source.domain == Domain::Package) =>
            {
                Some(Domain::Package)
            }
            Quantity::WorkEnergy | Quantity::PerWatt => Some(Domain::Platform),
            _ => None,
        }
    }

    /// The energy of a round that it is computed from.
    pub(super) fn joules(self, round: &Round, manifest: &Manifest) -> Option<f64> {
        round.readings.joules(&manifest.boots.get(round.boot)?.meters.energy, self.domain(manifest)?)
    }

    /// Its value in a round, in the unit of [`Quantity::metric`].
    pub fn value(self, round: &Round, manifest: &Manifest) -> Option<f64> {
        let sources = &manifest.boots.get(round.boot)?.meters.energy;
        let joules = |domain| round.readings.joules(sources, domain);
        let outcome = &round.outcome;
        let counted = |get: fn(Counts) -> u64| outcome.counts.map(|counts| get(counts) as f64 / 1e6);
        match self {
            Quantity::Performance => outcome.value,
            // A rate of operations one after the other is the inverse of the time that each takes.
            Quantity::Latency => {
                let one_by_one =
                    manifest.workload.name.starts_with("io-4k") && manifest.workload.metric.is_rate();
                one_by_one.then(|| Some(1e6 / outcome.value?)).flatten()
            }
            Quantity::Energy => joules(Domain::Package),
            Quantity::WorkEnergy => {
                let per_joule = Quantity::PerWatt.value(round, manifest)?;
                manifest.workload.metric.is_rate().then(|| 1.0 / per_joule)
            }
            Quantity::PerWatt => {
                let energy = self.joules(round, manifest)?;
                // For tbench, the time limit less one second, as the kernel's selftest computes it
                // (tbench.sh).
                let seconds = outcome.work_seconds.unwrap_or(outcome.seconds);
                manifest.workload.metric.value_per_watt(outcome.value?, seconds, energy)
            }
            Quantity::Dram => joules(Domain::Dram),
            Quantity::Platform => joules(Domain::Platform),
            Quantity::Power => round.readings.watts(sources, Domain::Package),
            Quantity::PlatformPower => round.readings.watts(sources, Domain::Platform),
            Quantity::Frequency => round.readings.mean_khz().map(|khz| khz / 1e6),
            Quantity::Busy => round.readings.busy().map(|share| share * 100.0),
            Quantity::Temperature => round.readings.peak_celsius(),
            Quantity::Switches => outcome
                .usage
                .map(|usage| usage.voluntary_switches + usage.involuntary_switches)
                // A simulated workload has no process to account for.
                .or(round.readings.switches)
                .map(|count| count as f64),
            Quantity::PeakMemory => outcome.usage?.peak_kib.map(|kib| kib as f64 / 1024.0),
            Quantity::Faults => outcome.usage.map(|usage| (usage.major_faults + usage.minor_faults) as f64),
            Quantity::Instructions => counted(|counts| counts.instructions),
            Quantity::Cycles => counted(|counts| counts.cycles),
            Quantity::BranchMisses => counted(|counts| counts.branch_misses),
            Quantity::CacheMisses => counted(|counts| counts.cache_misses),
            Quantity::CpuTime => outcome.usage.map(|usage| usage.user_seconds + usage.system_seconds),
            Quantity::User => outcome.usage.map(|usage| usage.user_seconds),
            Quantity::System => outcome.usage.map(|usage| usage.system_seconds),
            Quantity::Time => Some(outcome.seconds),
            // Lost records held decisions too.
            Quantity::Decisions => {
                let trace = round.trace.as_ref().filter(|trace| trace.lost == 0)?;
                Some(trace.decisions as f64 / outcome.seconds)
            }
            Quantity::TraceFrequency => round.trace.as_ref()?.ghz,
            Quantity::Lag => round.trace.as_ref()?.lag_ms,
            Quantity::DesiredPerformance => Some(round.trace.as_ref()?.sampled?.des_perf),
            Quantity::SampledFrequency => round.trace.as_ref()?.sampled?.ghz,
            Quantity::SampledLoad => round.trace.as_ref()?.sampled?.load,
        }
    }
}
