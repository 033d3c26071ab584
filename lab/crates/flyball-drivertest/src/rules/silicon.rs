//! The silicon's behaviour under load, compared with the promises of sysfs.

use flyball_silicon::spec::ClockDomain;

use super::{Case, Rule};
use crate::mode::Mode;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "silicon.maximum",
        about: "a busy CPU does not run above scaling_max_freq",
        source: "admin-guide/pm/cpufreq.rst, scaling_max_freq",
        applies: Mode::is_uniform,
        check: maximum,
    },
    Rule {
        id: "silicon.minimum",
        about: "a busy CPU does not run below scaling_min_freq, up to the base frequency",
        source: "admin-guide/pm/cpufreq.rst, scaling_min_freq",
        applies: Mode::is_uniform,
        check: minimum,
    },
    Rule {
        id: "silicon.performance",
        about: "under governor performance a busy CPU runs at scaling_max_freq, up to the base frequency",
        source: "admin-guide/pm/cpufreq.rst, performance",
        applies: Mode::is_uniform,
        check: performance,
    },
];

/// Frequencies are multiples of the processor's step, and drivers round up to a level.
fn slack(case: &Case<'_>) -> i64 {
    let core = &case.mode.spec.core[0];
    let per_level = i64::from(core.max_mhz) * 1000 / i64::from(core.perf.highest).max(1);
    i64::from(case.mode.spec.firmware.step_khz) + per_level
}

fn each(case: &Case<'_>, check: impl Fn(u32, i64, i64) -> Option<String>) -> Vec<String> {
    let mut out = Vec::new();
    for policy in case.after.policies() {
        for cpu in case.after.cpus(policy) {
            if let Some(busy) = case.after.load.get(&cpu) {
                let text = check(policy, i64::from(busy.lowest), i64::from(busy.highest));
                out.extend(text.map(|text| format!("cpu{cpu}: {text}")));
            }
        }
    }
    out
}

/// The frequency up to which a busy CPU gets its request, whatever other CPUs do.
fn sure(case: &Case<'_>) -> i64 {
    i64::from(case.mode.spec.core[0].base_mhz) * 1000
}

fn maximum(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, _, highest| {
        // The threads of a core, and all cores of some processors, share a clock, which follows the
        // highest request.
        let own = case.after.policy_number(policy, "scaling_max_freq")?;
        let max = shared(case, policy, own, "scaling_max_freq");
        // acpi-cpufreq's highest state allows the processor to boost.
        let table = case.mode.kind == crate::mode::Kind::AcpiCpufreq;
        let top = case.after.policy_number(policy, "cpuinfo_max_freq") == Some(max) || max >= sure(case);
        (!(table && top) && highest > max + slack(case))
            .then(|| format!("runs at {highest} kHz, and scaling_max_freq is {max}"))
    })
}

/// The highest value of an attribute among the policies that share one policy's clock.
fn shared(case: &Case<'_>, policy: u32, own: i64, name: &str) -> i64 {
    let threads = case.mode.spec.core[0].threads.max(1);
    let is_one_clock = case.mode.spec.firmware.clock_domain == ClockDomain::Package;
    let is_shared = |other: &u32| is_one_clock || other / threads == policy / threads;
    let others = case.after.policies().into_iter().filter(is_shared);
    others.filter_map(|other| case.after.policy_number(other, name)).fold(own, i64::max)
}

fn minimum(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, lowest, _| {
        let min = case.after.policy_number(policy, "scaling_min_freq")?.min(sure(case));
        (lowest < min - slack(case)).then(|| format!("runs at {lowest} kHz, and scaling_min_freq is {min}"))
    })
}

fn performance(case: &Case<'_>) -> Vec<String> {
    each(case, |policy, lowest, _| {
        if case.after.policy(policy, "scaling_governor") != Some("performance") {
            return None;
        }
        let all = case.after.number("intel_pstate/max_perf_pct").unwrap_or(100);
        let top = i64::from(case.mode.spec.core[0].max_mhz) * 10 * all;
        let max = case.after.policy_number(policy, "scaling_max_freq")?.min(sure(case)).min(top);
        (lowest < max - slack(case))
            .then(|| format!("runs at {lowest} kHz under governor performance, and could at {max}"))
    })
}
