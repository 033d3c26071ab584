//! Explains findings by the kernel's isolation of CPUs.
//!
//! A driver that decides in the scheduler's callback (intel_pstate in active mode without HWP)
//! decides at each tick. A CPU in `nohz_full` has no tick while a single task runs on it. Another
//! CPU then makes its remaining tick of once per second, and intel_pstate_update_util() in
//! drivers/cpufreq/intel_pstate.c ignores callbacks from other CPUs. So a task that never enters
//! the kernel keeps the CPU at whatever P-state it had, often the lowest.

use flyball_host::{CpuList, isolation::Isolation};

use super::{
    Diagnoser, Finding, FindingKind,
    findings::{UNEXPLAINED, finding},
};

const TICKLESS: &str = "take the CPU out of nohz_full, or let something else than the scheduler's callback choose its \
    frequency: the governor performance (from kernel 4.9 on intel_pstate then sets the P-state at once), HWP, or \
    intel_pstate=passive with a fixed minimum (scaling_min_freq)";
const NOT_TICKLESS: &str = "the tick runs on this CPU, so something else kept the callback away: a hypervisor that took \
    the CPU, interrupts that were off, or a task above the scheduler's classes (stop machine, a real-time task that \
    never sleeps)";

/// Adds explanations by the kernel's isolation to the findings, and findings that only isolation
/// makes suspicious.
pub(super) fn explain(diagnoser: &Diagnoser, isolation: &Isolation, findings: &mut Vec<Finding>) {
    let options =
        if isolation.words.is_empty() { "no nohz_full".to_owned() } else { isolation.words.join(" ") };
    for finding in findings.iter_mut() {
        let Some(cpu) = finding.cpu else { continue };
        let tickless = isolation.tickless.contains(cpu);
        match finding.kind {
            FindingKind::NoDecisions if tickless => {
                finding.evidence.push(format!(
                    "the kernel runs CPU {cpu} without a tick ({options}): while one task ran there, nothing called the \
                     driver"
                ));
                finding.remedy = TICKLESS;
            }
            FindingKind::NoDecisions => {
                finding.evidence.push(format!("the kernel ticks on CPU {cpu} ({options})"));
                finding.remedy = NOT_TICKLESS;
            }
            FindingKind::Stopped if tickless => {
                finding.evidence.push(format!(
                    "the kernel runs CPU {cpu} without a tick ({options}): if a task ran there since, nothing called the \
                     driver"
                ));
                finding.remedy = UNEXPLAINED;
            }
            FindingKind::StuckLow if tickless => {
                finding.evidence.push(format!("the kernel runs CPU {cpu} without a tick ({options})"));
            }
            _ => {}
        }
    }
    without_decisions(diagnoser, isolation, &options, findings);
}

/// Finds tickless CPUs without a decision in the whole trace: a fault if a task ran there,
/// otherwise only suspicious.
fn without_decisions(
    diagnoser: &Diagnoser,
    isolation: &Isolation,
    options: &str,
    findings: &mut Vec<Finding>,
) {
    let decided = |cpu: u32| diagnoser.cpus.get(cpu as usize).is_some_and(|state| state.samples > 0);
    // Without any decision, the driver has no such callback (HWP, CPPC's active mode), or was not
    // recorded.
    if !diagnoser.cpus.iter().any(|state| state.samples > 0) {
        return;
    }
    let range = (diagnoser.first.unwrap_or(0), diagnoser.last);
    let mut unexplained = Vec::new();
    for cpu in isolation.tickless.iter().take(crate::record::MAX_CPUS as usize).filter(|cpu| !decided(*cpu)) {
        let state = diagnoser.cpus.get(cpu as usize);
        // A task that has run for a shorter time may have just started.
        let running = state.and_then(|state| state.running).filter(|(pid, since)| {
            *pid != 0 && diagnoser.last.saturating_sub(*since) as f64 >= 1e9 * diagnoser.limits.least
        });
        let Some((pid, since)) = running else {
            // An idle CPU correctly makes no decisions.
            let sleeps = state.is_some_and(|state| {
                state.running.is_some_and(|(pid, _)| pid == 0) || state.idle.is_some_and(|(idle, _)| idle)
            });
            if !sleeps {
                unexplained.push(cpu);
            }
            continue;
        };
        let what = format!(
            "no decision in the whole trace, though task {pid} ran for its last {:.2} s; other CPUs decided meanwhile",
            diagnoser.last.saturating_sub(since) as f64 / 1e9
        );
        let evidence =
            format!("the kernel runs CPU {cpu} without a tick ({options}): nothing called the driver");
        let found = finding(FindingKind::NoDecisions, cpu, (since, range.1), what);
        findings.push(Finding { evidence: vec![evidence], remedy: TICKLESS, ..found });
    }
    if !unexplained.is_empty() {
        let cpus = CpuList::from_iter(unexplained);
        let what = format!("no decision of CPU {cpus} in the whole trace, while other CPUs decided");
        let evidence = vec![format!("the kernel runs them without a tick ({options})")];
        findings.push(Finding { evidence, ..finding(FindingKind::Unexplained, None, range, what) });
    }
}
