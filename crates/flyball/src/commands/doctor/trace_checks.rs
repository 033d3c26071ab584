//! Checks that use a trace of the driver's decisions together with the machine's files.
//!
//! The kernel's command line and the driver only make a fault possible. Only a trace shows whether
//! a tickless CPU was busy without a call of its driver.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use flyball_control::doctor::{Evidence, Finding, Fix, Group, Verdict};
use flyball_host::{Host, topology::scaling_driver};
use flyball_trace::{
    Event, Isolation, Names, Record, TextOptions, Trace,
    diagnose::{Diagnoser, Finding as Found, FindingKind, Limits, Severity},
};

use crate::{commands::trace::traced_machine, exit::Failure};

/// A check that needs a trace.
pub(super) struct Check {
    /// Stable id, `trace.NAME`.
    pub id: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What it reads.
    pub looks: &'static str,
}

const CALLBACKS: Check = Check {
    id: "trace.callbacks",
    why: "A driver that decides in the scheduler's callback cannot raise the speed of a CPU on which nothing calls it.",
    looks: "pstate_sample or amd_pstate_perf (and sched_switch) of each CPU, against nohz_full= and isolcpus= of this machine",
};
const FREQUENCY: Check = Check {
    id: "trace.frequency",
    why: "A frequency that does not follow its requests shows limits, heat or firmware that override the settings.",
    looks: "requests, APERF, MPERF, limits and thermal events of the trace",
};
const LOSSES: Check = Check {
    id: "trace.losses",
    why: "Lost events may include the ones you are looking for.",
    looks: "lost records, and damage in the file",
};

pub(super) const CHECKS: &[Check] = &[CALLBACKS, FREQUENCY, LOSSES];

/// The findings of a trace.
///
/// # Errors
/// The file cannot be read, or is not a trace.
pub(super) fn findings(host: &dyn Host, file: &Path) -> Result<Vec<Finding>, Failure> {
    // Read it from the machine, not from the trace: the check is whether the settings of this
    // machine explain the trace.
    let isolation = traced_machine::from_host(host)?.isolation().unwrap_or_default();
    let driver = scaling_driver(host);
    let names = Arc::new(Names::default());
    let mut diagnoser = Diagnoser::new(Limits::default(), Vec::new())
        .with_isolation(isolation.clone())
        .with_names(names.clone());
    let mut decisions: BTreeMap<u32, u64> = BTreeMap::new();
    let mut sink = |records: &[Record]| {
        for record in records {
            match &record.event {
                Event::AmdPerf(event) => *decisions.entry(event.cpu).or_default() += 1,
                // Kernel 5.17 has no counters, but this is a call of the driver too.
                Event::AmdRequest(event) => *decisions.entry(event.cpu).or_default() += 1,
                // pstate_sample has no field for the CPU, since each CPU records its own samples.
                Event::Intel(_) => *decisions.entry(record.cpu).or_default() += 1,
                _ => {}
            }
            diagnoser.add(record);
        }
        Ok(())
    };
    let summary = Trace::open(file)?.read(&TextOptions::default(), None, &names, &mut sink)?;
    let found = diagnoser.findings(summary.clock);
    let trace = TraceFacts {
        file: file.display().to_string(),
        counts_time: summary.clock.nanoseconds(),
        decisions,
        isolation,
        driver,
    };
    // Damage and losses have the same consequence: what the checks look for may be missing.
    let mut losses: Vec<String> = summary.problems;
    losses.extend(found.iter().filter(|one| one.kind == FindingKind::Lost).map(sentence));
    Ok(vec![trace.callbacks(&found), trace.frequency(&found), trace.losses(&losses)])
}

/// Facts about the whole trace.
struct TraceFacts {
    file: String,
    counts_time: bool,
    decisions: BTreeMap<u32, u64>,
    isolation: Isolation,
    driver: Option<String>,
}

fn concerns_callbacks(kind: FindingKind) -> bool {
    matches!(kind, FindingKind::NoDecisions | FindingKind::Unexplained | FindingKind::Stopped)
}

fn sentence(found: &Found) -> String {
    let who = found.cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}: "));
    let doubt = if found.uncertain { " (uncertain: records were lost in this time)" } else { "" };
    format!("{who}{}{doubt}", found.what)
}

fn times(found: &Found) -> String {
    format!("{:.3} to {:.3} s", found.from, found.to)
}

impl TraceFacts {
    fn finding(&self, check: &Check, verdict: Verdict, what: String) -> Finding {
        let count: u64 = self.decisions.values().sum();
        let evidence = vec![Evidence {
            place: self.file.clone(),
            value: format!("{count} decisions on {} CPUs", self.decisions.len()),
        }];
        Finding {
            id: check.id,
            group: Group::Trace,
            verdict,
            what,
            why: check.why,
            evidence,
            fix: None,
            kernel_test: None,
            not_recorded: false,
            compared: Vec::new(),
        }
    }

    /// Returns why the trace cannot be judged, or `None` if it can.
    fn blind(&self) -> Option<&'static str> {
        if !self.counts_time {
            Some("the trace clock is a counter, not a time source: record with --clock mono")
        } else if self.decisions.is_empty() {
            Some(
                "the trace contains no decisions of a driver: record pstate_sample or amd_pstate_perf (flyball trace record)",
            )
        } else {
            None
        }
    }

    /// Returns the worst finding, with up to four findings as evidence.
    fn worst(&self, check: &Check, found: &[&Found]) -> Option<Finding> {
        let first = found.first()?;
        let verdict = match found.iter().map(|one| one.severity).max() {
            Some(Severity::Fault) => Verdict::Fault,
            Some(Severity::Warning) => Verdict::Warning,
            _ => Verdict::Note,
        };
        let mut finding = self.finding(check, verdict, sentence(first));
        // A trace may have hundreds of findings. Four show their kind, and `trace diagnose` lists
        // all.
        for one in found.iter().take(4) {
            let mut value =
                if one == first { times(one) } else { format!("{}; {}", times(one), sentence(one)) };
            for evidence in &one.evidence {
                value += &format!("; {evidence}");
            }
            finding.evidence.push(Evidence { place: "in the trace".to_owned(), value });
        }
        if found.len() > 4 {
            let value = format!("{} more: flyball trace diagnose {}", found.len() - 4, self.file);
            finding.evidence.push(Evidence { place: "in the trace".to_owned(), value });
        }
        finding.fix = Some(Fix::Person(first.remedy.to_owned()));
        Some(finding)
    }

    fn callbacks(&self, found: &[Found]) -> Finding {
        // Check this first: without time or decisions there are no findings, which would look like
        // a healthy machine.
        if let Some(why) = self.blind() {
            return self.finding(&CALLBACKS, Verdict::Unknown, why.to_owned());
        }
        let concerned: Vec<&Found> = found.iter().filter(|one| concerns_callbacks(one.kind)).collect();
        if let Some(mut finding) = self.worst(&CALLBACKS, &concerned) {
            if let Some(driver) = &self.driver {
                finding
                    .evidence
                    .insert(1, Evidence { place: "scaling_driver".to_owned(), value: driver.clone() });
            }
            return finding;
        }
        let tickless = &self.isolation.tickless;
        if tickless.is_empty() {
            return self.finding(
                &CALLBACKS,
                Verdict::Ok,
                "no busy CPU was left without a decision".to_owned(),
            );
        }
        // Only a tickless CPU that was busy shows that its driver is called. Without decisions on
        // such CPUs, the result is unknown, not ok.
        if tickless.iter().any(|cpu| self.decisions.contains_key(&cpu)) {
            let what =
                format!("the driver was called on the tickless CPUs ({tickless}) whenever they were busy");
            return self.finding(&CALLBACKS, Verdict::Ok, what);
        }
        let what =
            format!("the tickless CPUs ({tickless}) were idle in this trace, so it says nothing about them");
        self.finding(&CALLBACKS, Verdict::Unknown, what)
    }

    fn frequency(&self, found: &[Found]) -> Finding {
        if let Some(why) = self.blind() {
            return self.finding(&FREQUENCY, Verdict::Unknown, why.to_owned());
        }
        let concerned: Vec<&Found> = found
            .iter()
            .filter(|one| !concerns_callbacks(one.kind) && one.kind != FindingKind::Lost)
            .collect();
        self.worst(&FREQUENCY, &concerned).unwrap_or_else(|| {
            self.finding(&FREQUENCY, Verdict::Ok, "the frequency followed the requests".to_owned())
        })
    }

    fn losses(&self, problems: &[String]) -> Finding {
        let Some(first) = problems.first() else {
            return self.finding(&LOSSES, Verdict::Ok, "no records were lost".to_owned());
        };
        let mut finding = self.finding(&LOSSES, Verdict::Warning, first.clone());
        for more in problems.iter().skip(1).take(3) {
            finding.evidence.push(Evidence { place: self.file.clone(), value: more.clone() });
        }
        finding.fix = Some(Fix::Person(
            "record with a larger buffer (trace record -b), fewer events or fewer CPUs".to_owned(),
        ));
        finding
    }
}
