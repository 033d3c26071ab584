//! The doctor's findings. Another process runs the checks every ten minutes: they read much more
//! than a scrape, and this process would keep their memory.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Exposition, catalogue as names};

/// Findings of one doctor run.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// Seconds since 1970.
    at: f64,
    /// Check and verdict.
    findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Finding {
    id: String,
    verdict: String,
}

#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

impl Findings {
    /// Parses the output of `flyball doctor --json`. `at` is the time of the run, seconds since
    /// 1970.
    ///
    /// # Errors
    /// The output is not valid.
    pub fn parse(json: &[u8], at: f64) -> Result<Findings, serde_json::Error> {
        Ok(Findings { at, findings: serde_json::from_slice::<Report>(json)?.findings })
    }

    pub(super) fn write(&self, out: &mut Exposition) {
        // Include every verdict, so that a count that falls to 0 is exported as 0 and leaves no
        // gap.
        let mut counts: BTreeMap<&str, u32> =
            ["ok", "note", "warning", "fault", "unknown"].map(|word| (word, 0)).into();
        for finding in &self.findings {
            *counts.entry(&finding.verdict).or_default() += 1;
        }
        for (verdict, count) in counts {
            out.add(names::DOCTOR_FINDINGS, &[("verdict", verdict)], f64::from(count));
        }
        for Finding { id, verdict } in &self.findings {
            if verdict == "warning" || verdict == "fault" {
                out.add(names::DOCTOR_FINDING, &[("id", id), ("verdict", verdict)], 1.0);
            }
        }
        out.add(names::DOCTOR_TIME, &[], self.at);
    }
}
