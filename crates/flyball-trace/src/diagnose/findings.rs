//! The severity and the advice of each kind of finding.

use super::{Finding, FindingKind, Severity};

impl FindingKind {
    /// Returns the severity of this kind of finding, and the advice for it.
    fn row(self) -> (Severity, &'static str) {
        match self {
            FindingKind::StuckLow => (Severity::Fault, STUCK_LOW),
            FindingKind::StuckHigh => (Severity::Note, STUCK_HIGH),
            FindingKind::NoDecisions => (Severity::Fault, NO_DECISIONS),
            FindingKind::Stopped => (Severity::Warning, STOPPED),
            FindingKind::Ignored => (Severity::Warning, IGNORED),
            FindingKind::Clipped | FindingKind::Throttled => (Severity::Warning, CLIPPED),
            FindingKind::Hunting => (Severity::Warning, HUNTING),
            FindingKind::NoBoost => (Severity::Note, NO_BOOST),
            FindingKind::SiblingsDisagree => (Severity::Warning, DISAGREE),
            FindingKind::Lost => (Severity::Warning, LOST),
            FindingKind::Unexplained => (Severity::Note, UNEXPLAINED),
        }
    }
}

/// Creates a finding for `range`, in nanoseconds.
pub(super) fn finding(
    kind: FindingKind,
    cpu: impl Into<Option<u32>>,
    range: (u64, u64),
    what: String,
) -> Finding {
    let (severity, remedy) = kind.row();
    Finding {
        kind,
        severity,
        cpu: cpu.into(),
        other_cpu: None,
        from: range.0 as f64 / 1e9,
        to: range.1 as f64 / 1e9,
        what,
        evidence: Vec::new(),
        remedy,
        uncertain: false,
    }
}

const STUCK_LOW: &str = "look at the limits (scaling_max_freq, max_perf_pct), at heat and power limits, and whether the \
    driver's callback runs on this CPU (nohz_full, isolcpus)";
const STUCK_HIGH: &str = "a governor of performance, a minimum set too high, or a decision that was never taken back: look \
    at scaling_governor and scaling_min_freq";
const NO_DECISIONS: &str = "the driver's callback did not run: on nohz_full or isolated CPUs intel_pstate in active mode has \
    none (use its passive mode, or HWP); a task that never lets the scheduler run does the same";
const STOPPED: &str = "the CPU went idle or offline, or its driver or governor was changed";
const IGNORED: &str = "the firmware does not grant what is asked for: heat, power or current limits, a BIOS power mode, or a \
    sibling's request";
const CLIPPED: &str = "look who set the limit: scaling_max_freq, a thermal daemon, a power profile";
const HUNTING: &str = "a longer rate limit or sampling interval (schedutil/rate_limit_us, ondemand/sampling_rate), or a \
    governor that averages over more time";
const NO_BOOST: &str = "is boost on (cpufreq/boost, intel_pstate/no_turbo), and does the BIOS allow it?";
const DISAGREE: &str = "the core runs at the higher of the two; give both the same limits and preference";
const LOST: &str =
    "record with a larger buffer (-b) or fewer events; findings that touch these places may be wrong";
pub(super) const UNEXPLAINED: &str = "record task switches too (--sched): they show whether a task ran there, which is this fault, or the \
    CPU slept, which is how it should be";
