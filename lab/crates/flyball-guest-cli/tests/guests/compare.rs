//! `compare` on real kernels with real drivers, in an emulator whose guest time, energy and
//! frequency follow the driver's requests. The test checks that real differences are found, that no
//! others are reported, and that the kernel's own files, read with cat, change during the run and
//! are the same before and after it.
//!
//! Kernels and the emulator come from the cache of `flyball guest fetch`. If one is missing, its
//! guests are skipped and counted.

use libtest_mimic::Failed;
use serde_json::Value;

use crate::{
    guest::{self, SuiteCase},
    program,
};

/// One boot and the arms to compare in it.
struct Guest {
    name: &'static str,
    kernel: &'static str,
    options: &'static [&'static str],
    arms: &'static [&'static str],
    /// For each arm but the first: the verdict on performance, and the least and most change in
    /// percent.
    expected: &'static [(&'static str, f64, f64)],
    /// Values that cat must have read during the run.
    during: &'static [&'static str],
    /// If not empty, trace each round; the requests of these arms must be for a frequency in this
    /// range, GHz.
    traced: &'static [(usize, f64, f64)],
}

const GUESTS: &[Guest] = &[
    Guest {
        name: "governors of amd-pstate passive, 7.2",
        kernel: "7.2",
        options: &["ryzen-5750g", "--driver", "amd-pstate=passive"],
        arms: &[
            "fast: governor=performance",
            "slow: governor=schedutil max-freq=1200MHz",
            "again: governor=performance",
        ],
        // 4683 against 1200 MHz.
        expected: &[("worse", 230.0, 380.0), ("no-difference-shown", -3.0, 3.0)],
        during: &["performance", "schedutil"],
        traced: &[(1, 1.0, 1.4)],
    },
    Guest {
        name: "preferences of intel_pstate active, 7.2",
        kernel: "7.2",
        options: &["sst-guide"],
        arms: &["fast: governor=performance", "power: governor=powersave epp=power"],
        expected: &[("worse", 30.0, 400.0)],
        during: &["performance performance", "powersave power"],
        traced: &[],
    },
    Guest {
        name: "driver modes of amd-pstate, 6.12",
        kernel: "6.12",
        options: &["ryzen-5750g", "--driver", "amd-pstate=active"],
        arms: &[
            "passive: driver-mode=passive governor=performance",
            "active: driver-mode=active governor=powersave max-freq=2GHz",
        ],
        expected: &[("worse", 80.0, 200.0)],
        during: &["performance", "powersave"],
        traced: &[],
    },
];

fn boot(guest: &Guest) -> Result<(), Failed> {
    let flyball = format!("{}:flyball", program::flyball());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/compare.sh");
    let modules = "?msr,?intel_rapl_msr,?cpufreq_powersave";
    let more = ["--closed", "--cpus", "2", "--modules", modules, "--file", &flyball, "--file", script];
    let trace = if guest.traced.is_empty() { "" } else { "--trace" };
    let command = [&["sh", "./compare.sh", "./flyball", trace], guest.arms].concat();
    let output = guest::run(guest.kernel, &[guest.options, &more].concat(), &command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = || format!("{text}\n--- stderr\n{}", String::from_utf8_lossy(&output.stderr));
    for line in ["exit 0", "same before and after"] {
        if !text.lines().any(|have| have == line) {
            return Err(format!("no line '{line}' in\n{}", all()).into());
        }
    }
    for seen in guest.during {
        if !text.lines().any(|line| line.strip_prefix("during: ").is_some_and(|line| line.starts_with(seen)))
        {
            return Err(format!("'{seen}' was never in the kernel's files\n{}", all()).into());
        }
    }
    let report = text.split("--- report\n").nth(1).ok_or_else(|| format!("no report in\n{}", all()))?;
    let report: Value = serde_json::from_str(report).map_err(|error| format!("{error}\n{}", all()))?;
    let comparisons = report["comparisons"].as_array().cloned().unwrap_or_default();
    for (index, (verdict, least, most)) in guest.expected.iter().enumerate() {
        let found = comparisons
            .iter()
            .find(|comparison| comparison["quantity"] == "performance" && comparison["arm"] == index + 1)
            .ok_or_else(|| format!("arm {} was not compared\n{}", index + 1, all()))?;
        let change = found["change"].as_f64().unwrap_or(f64::NAN) * 100.0;
        let is_wanted = found["verdict"] == *verdict
            || (*verdict == "no-difference-shown" && found["verdict"] == "equivalent");
        if !is_wanted || !(*least..=*most).contains(&change) {
            return Err(format!(
                "arm {}: {} by {change:.1} %, wanted {verdict} by {least} to {most} %\n{}",
                index + 1,
                found["verdict"],
                all()
            )
            .into());
        }
    }
    for (arm, low, high) in guest.traced {
        let summaries = report["arms"][arm]["summaries"].as_array().cloned().unwrap_or_default();
        let median = |quantity: &str| {
            summaries.iter().find(|summary| summary["quantity"] == quantity)?["median"].as_f64()
        };
        let (decisions, ghz) = (median("decisions"), median("trace-frequency"));
        if decisions.is_none() || ghz.is_none_or(|ghz| !(*low..=*high).contains(&ghz)) {
            return Err(format!("arm {arm}: {decisions:?} decisions/s at {ghz:?} GHz\n{}", all()).into());
        }
    }
    Ok(())
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let suited = |guest: &'static Guest| SuiteCase {
        name: guest.name.to_owned(),
        kernel: guest.kernel.to_owned(),
        everyday: true,
        missing: None,
        test: Box::new(move || boot(guest)),
    };
    GUESTS.iter().map(suited).collect()
}
