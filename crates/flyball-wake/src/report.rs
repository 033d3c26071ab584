//! The findings of a watch, for printing and as JSON.

use flyball_host::{
    CpuList,
    cpuidle::{ExitRate, IdleState, WORTH_MS, costliest, lost_ms},
};

use crate::SourceKind;

/// Wake-ups of CPUs, and of a workload, over an interval. Rates are per second.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeReport {
    /// The result in one sentence.
    pub sentence: String,
    pub seconds: f64,
    /// The watched CPUs: those of the request that are online and that the workload may use.
    pub cpus: CpuList,
    /// CPUs that were asked for, and were offline at some time.
    pub left_out: CpuList,
    /// The cpuidle driver and governor; `null` without cpuidle.
    pub driver: Option<String>,
    pub governor: Option<String>,
    /// Exits from idle states, summed over the CPUs; `null` without cpuidle.
    pub wakes: Option<f64>,
    /// Lightest first.
    pub states: Vec<WakeState>,
    /// An upper bound for the time that exits cost, in milliseconds per second: the workload's, or
    /// the sum over the CPUs. Uses the medians of `--measured`, and the driver's table for other
    /// states. The table is an inference, as a real exit may take more or less than advertised.
    /// `null` without cpuidle, and in a virtual machine, where the host decides, unless measured.
    pub lost_ms_at_most: Option<f64>,
    /// The latency limit that could pay off. `null` if none could, or if the loss is not known.
    pub advice: Option<WakeAdvice>,
    /// What `--check` found about the advice.
    pub check: Option<WakeCheck>,
    /// Most wake-ups first.
    pub by_cpu: Vec<WakeCpu>,
    /// Interrupts on these CPUs, most frequent first. An interrupt of a running CPU wakes nobody.
    pub interrupts: Vec<WakeSource>,
    pub softirqs: Vec<WakeSource>,
    /// A lower bound for wake-ups without an interrupt: another CPU wrote to the memory that an
    /// idle CPU monitors. `null` if the machine does not count all interrupts.
    pub wakes_without_interrupt: Option<f64>,
    /// What woke the CPUs, by tracepoints; `null` without `--sources`.
    pub sources: Option<WakeSources>,
    pub workload: Option<WakeWorkload>,
    /// Share of these CPUs' time that a hypervisor gave to other guests. `null` outside virtual
    /// machines.
    pub stolen: Option<f64>,
    /// What this kind of watch cannot see.
    pub unseen: Vec<String>,
    /// CPU time that reading the counters took, ms.
    pub reading_ms: f64,
}

/// A latency limit that could pay off.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeAdvice {
    /// The setting, as `compare`, `set` and `hold` take it.
    pub setting: String,
    /// An upper bound for the part of [`WakeReport::lost_ms_at_most`] that the limit saves, from
    /// the driver's table. Its price in watts is not known; `compare` measures it.
    pub saved_ms_at_most: f64,
}

/// The comparison of the advised limit with the current settings.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeCheck {
    /// The result in one sentence.
    pub sentence: String,
    pub verdict: CheckVerdict,
    /// Change of the workload's metric, as a fraction, with its confidence interval.
    pub change: Option<f64>,
    pub interval: Option<(f64, f64)>,
    /// What the limit costs, W, with its confidence interval; `null` without a meter.
    pub watts: Option<f64>,
    pub watts_interval: Option<(f64, f64)>,
    /// The run directory of the comparison.
    pub directory: String,
}

/// The verdict on a limit, by the workload's metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckVerdict {
    Pays,
    /// The metric gets worse, or it changes by less than 0.5 %.
    DoesNotPay,
    NotShown,
}

/// Chooses the least strict limit that saves nearly as much as the best one. Returns the deepest
/// state that it allows, and an upper bound for what it saves, ms per second. `states` are lightest
/// first.
fn choose_limit(states: &[ExitRate], wakes: f64) -> Option<(usize, f64)> {
    let lost = |longest: f64| {
        let limited = states.iter().map(|state| ExitRate { cost_us: state.cost_us.min(longest), ..*state });
        lost_ms(wakes, &limited.collect::<Vec<_>>())
    };
    let all = lost(f64::INFINITY);
    // Never advise polling: it costs all of the idle power savings.
    let limits = states.iter().enumerate().filter(|(_, state)| state.cost_us > 0.0);
    let limits: Vec<(usize, f64)> = limits.map(|(index, state)| (index, all - lost(state.cost_us))).collect();
    let most = limits.iter().map(|limit| limit.1).fold(0.0, f64::max);
    limits.into_iter().rev().find(|limit| limit.1 >= 0.9 * most && limit.1 > 0.0)
}

/// Exits from an idle state, summed over the CPUs.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeState {
    pub name: String,
    /// The latency that the driver advertises, us.
    pub exit_latency_us: u64,
    /// The latency in the report of `--measured`, if the report has the state.
    pub measured_exit_us: Option<f64>,
    pub target_residency_us: Option<u64>,
    /// The kernel's count.
    pub exits: u64,
    pub wakes: f64,
    /// Exits after which a thread of the workload ran; `null` if not all were traced.
    pub of_workload: Option<f64>,
    /// Share of all exits, 0 to 1.
    pub share: f64,
    /// Mean time in the state per entry, us; `null` without entries.
    pub mean_residency_us: Option<f64>,
    /// Share of the CPUs' time that they spent in the state.
    pub residency: f64,
    /// Wake-ups before the target residency although a lighter state was allowed: the governor
    /// chose too deep a state.
    pub above: Option<f64>,
    /// Sleeps that were long enough for a deeper allowed state: the governor chose too light a
    /// state.
    pub below: Option<f64>,
    /// Entries that the processor rejected.
    pub rejected: Option<f64>,
}

/// One CPU.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeCpu {
    pub cpu: u32,
    pub wakes: f64,
    /// For each state, in the order of [`WakeReport::states`].
    pub by_state: Vec<f64>,
    /// Like [`WakeReport::lost_ms_at_most`].
    pub lost_ms_at_most: f64,
    pub interrupts: f64,
}

/// A kind of interrupt.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeSource {
    pub kind: SourceKind,
    pub name: String,
    pub rate: f64,
}

/// Exits from idle states in the kernel's tracepoints.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeSources {
    /// Exits in the trace.
    pub exits: u64,
    /// Exits that cpuidle counted in the same time. May differ by a few on a busy CPU, because the
    /// counters are read state by state.
    pub counted: u64,
    /// Exits whose source the events show.
    pub attributed: u64,
    pub records: u64,
    /// Records that were overwritten before flyball read them.
    pub lost: u64,
    /// Seconds in which events were recorded, if there were too many to record all the time. The
    /// rates are then the recorded shares, scaled to all exits that cpuidle counted.
    pub sampled_seconds: Option<f64>,
    /// CPU time spent reading events, ms. Does not include what recording cost the traced CPUs.
    pub reading_ms: f64,
    /// Exits after which a thread of the workload ran.
    pub of_workload: Option<f64>,
    /// Most wake-ups first, at most 100.
    pub causes: Vec<WakeCause>,
    /// Number of all causes.
    pub all_causes: usize,
}

/// What ended an idle state, and the thread that ran afterwards.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeCause {
    pub kind: SourceKind,
    pub name: String,
    /// Thread that woke another one.
    pub tid: Option<u32>,
    /// The thread that the CPU ran next. `null` if the CPU slept again.
    pub woken: Option<String>,
    pub woken_tid: Option<u32>,
    pub of_workload: bool,
    pub wakes: f64,
    /// The 95 % margin of error of `wakes`, as events were recorded in windows only. `null` if they
    /// were recorded all the time, or in fewer than five windows.
    pub wakes_error: Option<f64>,
    /// For each state, in the order of [`WakeReport::states`].
    pub by_state: Vec<f64>,
}

/// The threads that were watched.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeWorkload {
    pub threads: usize,
    /// Threads that ended meanwhile. What they did after the last reading is missing, except in the
    /// sums of a command.
    pub ended: usize,
    /// How often threads waited and were woken.
    pub wakes: f64,
    /// How often threads lost their CPU.
    pub preempted: f64,
    /// Milliseconds per second in which threads were ready and waited for a CPU. Includes the exit
    /// from an idle state only from the moment that the CPU runs again. `null` if the kernel does
    /// not count it.
    pub run_delay_ms: Option<f64>,
    /// The threads with the most wake-ups, at most 20.
    pub busiest: Vec<WakeThread>,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct WakeThread {
    pub tid: u32,
    pub name: String,
    pub wakes: f64,
    pub preempted: f64,
    /// Share of a CPU's time that the thread ran.
    pub running: Option<f64>,
    pub run_delay_ms: Option<f64>,
}

fn rate(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

impl WakeState {
    pub(crate) fn exits(&self) -> ExitRate<'_> {
        let cost_us = self.measured_exit_us.unwrap_or(self.exit_latency_us as f64);
        ExitRate { name: &self.name, cost_us, rate: self.of_workload.unwrap_or(self.wakes) }
    }
}

impl WakeReport {
    /// Returns the limit that could save at least a hundredth of the workload's time, or of a CPU's
    /// time.
    pub(crate) fn advise(&self) -> Option<WakeAdvice> {
        self.lost_ms_at_most?;
        let wakes = self.workload.as_ref().map_or(f64::INFINITY, |workload| workload.wakes);
        let states: Vec<ExitRate> = self.states.iter().map(WakeState::exits).collect();
        let (limit, saved) = choose_limit(&states, wakes)?;
        let of_cpu = |cpu: &WakeCpu| -> f64 {
            let exits = states.iter().zip(&cpu.by_state);
            exits.map(|(state, exits)| (state.cost_us - states[limit].cost_us).max(0.0) * exits * 1e-3).sum()
        };
        // Compare with single CPUs, so that unused CPUs, which the kernel wakes now and then, hide
        // none.
        let most =
            if self.workload.is_some() { saved } else { self.by_cpu.iter().map(of_cpu).fold(0.0, f64::max) };
        (most >= WORTH_MS).then(|| WakeAdvice {
            setting: format!("latency-limit@{}={}", self.cpus, states[limit].name),
            saved_ms_at_most: saved,
        })
    }

    /// The first line.
    pub(crate) fn answer(&self, table: &[IdleState]) -> String {
        let number = if self.cpus.len() == 1 { ("CPU", "wakes") } else { ("CPUs", "wake") };
        let who = match &self.workload {
            Some(_) => "this workload wakes".to_owned(),
            None => format!("{} {} {}", number.0, self.cpus, number.1),
        };
        let wakes = match &self.workload {
            Some(workload) => Some(workload.wakes),
            None => self.wakes,
        };
        let Some(wakes) = wakes else {
            return "this machine has no cpuidle: how often its CPUs wake, and out of what, is not known"
                .to_owned();
        };
        if wakes == 0.0 {
            let who = if self.workload.is_some() { "no thread of this workload" } else { "no CPU" };
            return format!("{who} woke up in {:.1} s", self.seconds);
        }
        let times = format!("{who} {} times a second", rate(wakes));
        let costliest = costliest(&self.states.iter().map(WakeState::exits).collect::<Vec<_>>());
        let costliest = costliest.and_then(|exits| self.states.iter().find(|state| state.name == exits.name));
        match (costliest, self.lost_ms_at_most) {
            _ if table.is_empty() => {
                format!("{times}; this machine has no cpuidle, so what its CPUs wake from is not known")
            }
            (None, None) => format!("{times}; what an exit costs is the host's business, and not known here"),
            (None, Some(_)) => {
                format!("{times}; none of these wake-ups is out of a state that costs time to leave")
            }
            (Some(state), lost) => {
                let share = format!("{:.0} %", state.share * 100.0);
                let latency = match state.measured_exit_us {
                    Some(us) => format!("measured exit {us:.0} us"),
                    None => format!("advertised exit latency {} us", state.exit_latency_us),
                };
                let out_of = match &self.workload {
                    Some(_) => {
                        format!(", and {share} of its CPUs' wake-ups are out of {} ({latency})", state.name)
                    }
                    None => format!(", {share} of them out of {} ({latency})", state.name),
                };
                let lost = match (lost, &self.workload) {
                    (None, _) => "what an exit costs is the host's business, and not known here".to_owned(),
                    (Some(lost), Some(_)) => format!("at most {} ms a second are lost", rate(lost)),
                    (Some(lost), None) if self.cpus.len() == 1 => {
                        format!("at most {} ms a second are lost", rate(lost))
                    }
                    (Some(lost), None) => {
                        format!("at most {} ms a second are lost, summed over the CPUs", rate(lost))
                    }
                };
                format!("{times}{out_of}: {lost}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_strict_limit_that_saves_most() {
        let states = |c1e, c6, c6p| {
            [("POLL", 0.0, 9.0), ("C1", 1.0, 50.0), ("C1E", 4.0, c1e), ("C6", 170.0, c6), ("C6P", 210.0, c6p)]
                .map(|(name, cost_us, rate)| ExitRate { name, cost_us, rate })
        };
        let chosen = |states: &[ExitRate<'static>], wakes| {
            choose_limit(states, wakes).map(|limit| states[limit.0].name)
        };
        // C1 would only save 0.003 ms more per exit.
        let (limit, saved) = choose_limit(&states(0.0, 5000.0, 0.0), 1e9).unwrap();
        assert!(limit == 2 && (saved - 830.0).abs() < 1e-6, "{limit} {saved}");
        // Allowing C6 would save little of what C6P costs.
        assert_eq!(chosen(&states(0.0, 0.0, 100.0), 1e9), Some("C1E"));
        assert_eq!(chosen(&states(1000.0, 0.0, 0.0), 1e9), Some("C1"));
        // Nothing to save in the lightest state, or for a workload that never wakes.
        assert_eq!(chosen(&states(0.0, 0.0, 0.0), 1e9), None);
        assert_eq!(chosen(&states(0.0, 5000.0, 0.0), 0.0), None);
        assert_eq!(chosen(&[], 1e9), None);
    }
}
