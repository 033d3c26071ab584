//! What acpi-cpufreq requests from the processor: P-states in the firmware's table.

use super::{Case, Rule};
use crate::mode::Kind;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "acpi.state",
        about: "the P-state asked for is the one of the frequency that the governor chose, within the limits",
        source: "admin-guide/pm/cpufreq.rst, performance, powersave and userspace; ACPI 6.5, 8.4.5.2 _PSS",
        applies: |mode| mode.kind == Kind::AcpiCpufreq,
        check: state,
    },
    Rule {
        id: "acpi.table",
        about: "scaling_available_frequencies is the firmware's table, and the limits lie in it",
        source: "admin-guide/pm/cpufreq.rst, scaling_available_frequencies; ACPI 6.5, 8.4.5.2 _PSS",
        applies: |mode| mode.kind == Kind::AcpiCpufreq,
        check: table,
    },
    Rule {
        id: "acpi.boost",
        about: "boost 0 sets the processor's bit that disables boost on every CPU, boost 1 clears it",
        source: "admin-guide/pm/cpufreq.rst, The boost File in sysfs; AMD's manual, MSRC001_0015, CpbDis",
        applies: |mode| mode.kind == Kind::AcpiCpufreq,
        check: boost,
    },
];

fn state(case: &Case<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let table = &case.mode.spec.firmware.pstates_mhz;
    for policy in case.after.policies() {
        let get = |name: &str| case.after.policy_number(policy, name);
        let (Some(min), Some(max)) = (get("scaling_min_freq"), get("scaling_max_freq")) else { continue };
        let within = |khz: i64| khz >= min && khz <= max;
        for cpu in case.after.cpus(policy) {
            // AMD's register takes the state's number; Intel's ports write a ratio.
            let (khz, name) = if let Some(number) = case.after.register(cpu, "0xc0010062") {
                (
                    table.get(number as usize & 7).map(|mhz| i64::from(*mhz) * 1000),
                    format!("P-state {number}"),
                )
            } else if let Some(value) = case.after.register(cpu, "0x199") {
                let ratio = (value >> 8 & 0xff) as i64;
                // Turbo is the state 1 MHz above the highest.
                let found =
                    table.iter().map(|mhz| i64::from(*mhz) * 1000).rfind(|khz| khz / 100_000 == ratio);
                (found, format!("ratio {ratio}"))
            } else {
                continue;
            };
            let Some(khz) = khz else {
                out.push(format!("cpu{cpu}: {name} is not in the firmware's table"));
                continue;
            };
            let states: Vec<i64> =
                table.iter().map(|mhz| i64::from(*mhz) * 1000).filter(|khz| within(*khz)).collect();
            let wanted = match case.after.policy(policy, "scaling_governor") {
                Some("performance") => states.iter().max().copied(),
                Some("powersave") => states.iter().min().copied(),
                Some("userspace") => case.asked.speed.get(&policy).and_then(|speed| {
                    let speed = (*speed).clamp(min, max);
                    // The lowest at or above the target, or the highest below it.
                    let above = states.iter().copied().filter(|khz| *khz >= speed).min();
                    above.or_else(|| states.iter().max().copied())
                }),
                _ => None,
            };
            // A ratio does not distinguish turbo from the state below it.
            let near = |a: i64, b: i64| (a - b).abs() <= 1000;
            if let Some(wanted) = wanted.filter(|wanted| !near(*wanted, khz)) {
                out.push(format!("cpu{cpu}: {name} ({khz} kHz) instead of {wanted} kHz"));
            } else if !states.is_empty() && !states.iter().any(|state| near(*state, khz)) {
                out.push(format!("cpu{cpu}: {name} ({khz} kHz) is outside of {min} to {max} kHz"));
            }
        }
    }
    out
}

fn table(case: &Case<'_>) -> Vec<String> {
    let mut table: Vec<i64> =
        case.mode.spec.firmware.pstates_mhz.iter().map(|mhz| i64::from(*mhz) * 1000).collect();
    table.sort_unstable();
    let mut out = Vec::new();
    for policy in case.after.policies() {
        let Some(list) = case.after.policy(policy, "scaling_available_frequencies") else { continue };
        let mut found: Vec<i64> = list.split_whitespace().filter_map(|khz| khz.parse().ok()).collect();
        found.sort_unstable();
        if found != table {
            out.push(format!("policy{policy}: scaling_available_frequencies reads '{list}'"));
        }
    }
    out
}

fn boost(case: &Case<'_>) -> Vec<String> {
    // Bit 25 of HWCR on AMD, bit 38 of MISC_ENABLE on Intel.
    let (register, bit) = if case.mode.spec.identity.vendor == flyball_silicon::spec::Vendor::Amd {
        ("0xc0010015", 25)
    } else {
        ("0x1a0", 38)
    };
    let mut out = Vec::new();
    for policy in case.after.policies() {
        let own = case.after.policy(policy, "boost").or_else(|| case.after.get("cpufreq/boost"));
        let Some(boost) = own else { continue };
        for cpu in case.after.cpus(policy) {
            if let Some(value) = case.after.register(cpu, register)
                && (value >> bit & 1 == 1) != (boost == "0")
            {
                out.push(format!("cpu{cpu}: boost is {boost}, and the disable bit {}", value >> bit & 1));
            }
        }
    }
    out
}
