//! Compares every value that flyball reads with the raw files. Uses separate rules: a second parser
//! of the kernel's files, which shares neither code nor tables with the first. Each value must
//! match its file, and each file in the rules must have been read.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use flyball_host::{Archive, Errno, Host};
use serde_json::{Value, json};

use super::Failed;

/// How a file's text becomes what `get --json` prints.
#[derive(Clone, Copy)]
enum Rule {
    Number,
    Thousand,
    Word,
    Words,
    Numbers,
    OneIsOn,
    OneIsOff,
    Enabled,
    NanosToMicros,
    Latency,
}
use Rule::{Enabled, Latency, NanosToMicros, Number, Numbers, OneIsOff, OneIsOn, Thousand, Word, Words};

/// By knob: the part of the path that names the location, the file's name, and the rule. `*`
/// matches digits.
const RULES: &[(&str, &str, Rule)] = &[
    ("driver-mode", "cpu/amd_pstate/status", Word),
    ("driver-mode", "cpu/intel_pstate/status", Word),
    ("turbo", "cpu/intel_pstate/no_turbo", OneIsOff),
    ("turbo", "cpu/cpufreq/boost", OneIsOn),
    ("boost", "cpu/cpufreq/policy*/boost", OneIsOn),
    ("smt", "cpu/smt/control", Word),
    ("governor", "cpu/cpufreq/policy*/scaling_governor", Word),
    ("epp", "cpu/cpufreq/policy*/energy_performance_preference", Word),
    ("epb", "cpu/cpu*/power/energy_perf_bias", Number),
    ("hwp-dynamic-boost", "cpu/intel_pstate/hwp_dynamic_boost", OneIsOn),
    ("energy-efficiency", "cpu/intel_pstate/energy_efficiency", OneIsOn),
    ("min-perf-pct", "cpu/intel_pstate/min_perf_pct", Number),
    ("max-perf-pct", "cpu/intel_pstate/max_perf_pct", Number),
    ("num-pstates", "cpu/intel_pstate/num_pstates", Number),
    ("turbo-pct", "cpu/intel_pstate/turbo_pct", Number),
    ("min-freq", "cpu/cpufreq/policy*/scaling_min_freq", Number),
    ("max-freq", "cpu/cpufreq/policy*/scaling_max_freq", Number),
    ("cur-freq", "cpu/cpufreq/policy*/scaling_cur_freq", Number),
    ("hw-min-freq", "cpu/cpufreq/policy*/cpuinfo_min_freq", Number),
    ("hw-max-freq", "cpu/cpufreq/policy*/cpuinfo_max_freq", Number),
    ("base-freq", "cpu/cpufreq/policy*/base_frequency", Number),
    ("bios-limit", "cpu/cpufreq/policy*/bios_limit", Number),
    ("transition-latency", "cpu/cpufreq/policy*/cpuinfo_transition_latency", NanosToMicros),
    ("available-epp", "cpu/cpufreq/policy*/energy_performance_available_preferences", Words),
    ("available-freqs", "cpu/cpufreq/policy*/scaling_available_frequencies", Numbers),
    ("boost-freqs", "cpu/cpufreq/policy*/scaling_boost_frequencies", Numbers),
    ("lowest-nonlinear-freq", "cpu/cpufreq/policy*/amd_pstate_lowest_nonlinear_freq", Number),
    ("prefcore-ranking", "cpu/cpufreq/policy*/amd_pstate_prefcore_ranking", Number),
    ("prefcore", "cpu/amd_pstate/prefcore", Enabled),
    ("nominal-freq", "cpu/cpu*/acpi_cppc/nominal_freq", Thousand),
    ("cppc-highest", "cpu/cpu*/acpi_cppc/highest_perf", Number),
    ("cppc-nominal", "cpu/cpu*/acpi_cppc/nominal_perf", Number),
    ("cppc-guaranteed", "cpu/cpu*/acpi_cppc/guaranteed_perf", Number),
    ("cppc-lowest-nonlinear", "cpu/cpu*/acpi_cppc/lowest_nonlinear_perf", Number),
    ("cppc-lowest", "cpu/cpu*/acpi_cppc/lowest_perf", Number),
    ("idle-state", "cpu/cpu*/cpuidle/state*/disable", OneIsOff),
    ("idle-default", "cpu/cpu*/cpuidle/state*/default_status", Enabled),
    ("idle-latency", "cpu/cpu*/cpuidle/state*/latency", Number),
    ("idle-residency", "cpu/cpu*/cpuidle/state*/residency", Number),
    ("idle-driver", "cpu/cpuidle/current_driver", Word),
    ("idle-governor", "cpu/cpuidle/current_governor", Word),
    ("available-idle-governors", "cpu/cpuidle/available_governors", Words),
    ("c1-demotion", "cpu/cpuidle/intel_c1_demotion", OneIsOn),
    ("latency-limit", "cpu/cpu*/power/pm_qos_resume_latency_us", Latency),
    ("uncore-min-freq", "cpu/intel_uncore_frequency/*/min_freq_khz", Number),
    ("uncore-max-freq", "cpu/intel_uncore_frequency/*/max_freq_khz", Number),
    ("uncore-hw-min", "cpu/intel_uncore_frequency/*/initial_min_freq_khz", Number),
    ("uncore-hw-max", "cpu/intel_uncore_frequency/*/initial_max_freq_khz", Number),
    ("uncore-freq", "cpu/intel_uncore_frequency/*/current_freq_khz", Number),
    ("elc-floor-freq", "cpu/intel_uncore_frequency/*/elc_floor_freq_khz", Number),
    ("elc-low-threshold", "cpu/intel_uncore_frequency/*/elc_low_threshold_percent", Number),
    ("elc-high-threshold", "cpu/intel_uncore_frequency/*/elc_high_threshold_percent", Number),
    ("elc-high-enable", "cpu/intel_uncore_frequency/*/elc_high_threshold_enable", OneIsOn),
    ("core-throttles", "cpu/cpu*/thermal_throttle/core_throttle_count", Number),
    ("package-throttles", "cpu/cpu*/thermal_throttle/package_throttle_count", Number),
    ("online", "cpu/cpu*/online", OneIsOn),
];

/// Files for which one CPU's file stands for all. The content of all of them must be equal.
const SHARED: &[(&str, &str, Rule)] = &[
    ("driver", "cpu/cpufreq/policy*/scaling_driver", Word),
    ("available-governors", "cpu/cpufreq/policy*/scaling_available_governors", Words),
];

/// Returns the expected value of `text` by `rule`. `None` if the machine reports that there is
/// none.
fn expected(rule: Rule, text: &str) -> Result<Option<Value>, String> {
    let line = text.lines().next().unwrap_or_default().trim();
    let number = || line.parse::<i64>().map_err(|error| format!("'{line}': {error}"));
    Ok(Some(match rule {
        _ if line.starts_with('<') => return Ok(None),
        Number => json!(number()?),
        Thousand if number()? == 0 => return Ok(None),
        Thousand => json!(number()? * 1000),
        NanosToMicros => json!(number()? / 1000),
        Word => line.parse::<u8>().map_or_else(|_| json!(line), |number| json!(number)),
        Words => json!(line.split_whitespace().collect::<Vec<_>>()),
        Numbers => json!(line.split_whitespace().map(|n| n.parse::<i64>().unwrap_or(-1)).collect::<Vec<_>>()),
        OneIsOn => json!(number()? != 0),
        OneIsOff => json!(number()? == 0),
        Enabled => json!(line == "enabled"),
        Latency if line == "0" => json!("no-limit"),
        Latency if line == "n/a" => json!("n/a"),
        Latency => json!(number()?),
    }))
}

/// Returns whether `path` matches `pattern`, in which `*` matches digits within a component, or a
/// whole component.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len()
        && pattern.iter().zip(&path).all(|(pattern, part)| match pattern.strip_suffix('*') {
            Some("") => true,
            Some(stem) => part
                .strip_prefix(stem)
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())),
            None => pattern == part,
        })
}

/// Collects the files below a folder, by path. Does not follow links.
fn files(machine: &Archive, folder: &str, found: &mut BTreeMap<String, String>) -> Result<(), Failed> {
    for name in machine.list(folder)? {
        let path = format!("{folder}/{name}");
        if machine.link(&path).is_ok() {
            continue;
        }
        let mut bytes = Vec::new();
        match machine.read_into(&path, &mut bytes) {
            Ok(()) => drop(found.insert(path, String::from_utf8(bytes)?)),
            Err(error) if error.errno == Errno::ISDIR => files(machine, &path, found)?,
            Err(_) => {}
        }
    }
    Ok(())
}

/// Compares in both directions.
pub(super) fn check(name: &str, machine: &Path) -> Result<(), Failed> {
    const SYSTEM: &str = "/sys/devices/system/";
    let registers = flyball_testing::machine(name);
    let mut found = BTreeMap::new();
    files(&registers, &format!("{SYSTEM}cpu"), &mut found)?;
    let files: BTreeMap<&str, &str> =
        found.iter().filter_map(|(path, text)| Some((path.strip_prefix(SYSTEM)?, text.as_str()))).collect();
    let knobs: BTreeSet<&str> = RULES.iter().chain(SHARED).map(|(knob, _, _)| *knob).collect();
    let mut arguments = vec!["get", "--json"];
    arguments.extend(&knobs);
    let values: Vec<Value> = serde_json::from_str(&super::stdout(machine, &arguments)?)?;
    // The values that flyball read, by knob and source.
    let mut read: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    for value in &values {
        let (Some(knob), Some(source)) = (value["knob"].as_str(), value["source"].as_str()) else { continue };
        match source.strip_prefix(SYSTEM) {
            Some(path) => {
                read.insert((knob, path), &value["value"]);
            }
            None => register(knob, source, &value["value"], &registers)?,
        }
    }
    let mut checked = 0;
    for (knob, pattern, rule) in RULES.iter().chain(SHARED) {
        let shared = SHARED.iter().any(|(other, _, _)| other == knob);
        for (path, text) in files.iter().filter(|(path, _)| fits(pattern, path)) {
            let wanted = expected(*rule, text).map_err(|error| format!("{path}: {error}"))?;
            let found = if shared {
                read.iter().find(|((other, _), _)| other == knob).map(|(_, value)| *value)
            } else {
                read.get(&(*knob, *path)).copied()
            };
            // If a machine has several mechanisms for a knob, the first one hides the others.
            let hidden =
                found.is_none() && read.keys().any(|(other, _)| other == knob) && !pattern.contains('*');
            if found != wanted.as_ref() && !hidden {
                return Err(
                    format!("{knob}: {path} holds '{}', flyball says {found:?}", text.trim_end()).into()
                );
            }
            checked += 1;
        }
    }
    if checked < 100 {
        return Err(format!("only {checked} files were compared").into());
    }
    whole_registers(machine, &registers)
}

/// More CPUs than any recorded machine has.
const MAX_CPUS: u32 = 1024;

/// Parses the register and the CPU of a source such as `MSR 0x774 of CPU 3`.
fn named(source: &str) -> Option<(u32, u32)> {
    let (register, cpu) = source.strip_prefix("MSR 0x")?.split_once(" of CPU ")?;
    Some((u32::from_str_radix(register, 16).ok()?, cpu.parse().ok()?))
}

/// Checks a value from a register, by the bits in the processor's manual.
fn register(knob: &str, source: &str, value: &Value, registers: &Archive) -> Result<(), Failed> {
    let key = named(source).ok_or_else(|| format!("{knob}: a source of no kind: {source}"))?;
    let raw = registers.msr(key.1, key.0)?;
    let wanted = match (knob, key.0) {
        ("epb", 0x1b0) => json!(raw & 15),
        ("epp", 0x774) => json!(raw >> 24 & 255),
        ("base-freq", 0xce) => json!((raw >> 8 & 255) * 100_000),
        ("energy-efficiency", 0x1fc) => json!(raw >> 19 & 1 == 0),
        _ => return Err(format!("{knob}: nothing is known of {source}").into()),
    };
    if *value == wanted {
        Ok(())
    } else {
        Err(format!("{knob}: {source} is {raw:#x}, flyball says {value}").into())
    }
}

/// Checks rows that show a whole register.
fn whole_registers(machine: &Path, registers: &Archive) -> Result<(), Failed> {
    let knobs = ["hwp-request", "hwp-capabilities", "turbo-ratios", "turbo-ratio-cores", "platform-info"];
    let mut arguments = vec!["get", "--json"];
    arguments.extend(knobs);
    let output = super::flyball(machine, &arguments);
    let values: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let mut seen = BTreeSet::new();
    for value in &values {
        let Some(source) = value["source"].as_str() else { continue };
        let key = named(source).ok_or_else(|| format!("a source of no kind: {source}"))?;
        let raw = registers.msr(key.1, key.0)?;
        let knob = value["knob"].as_str().unwrap_or_default();
        let byte = |number: u64| json!(raw >> (8 * number) & 255);
        let fields: &[(&str, Value)] = match knob {
            "hwp-request" => &[("min", byte(0)), ("max", byte(1)), ("desired", byte(2)), ("epp", byte(3))],
            "hwp-capabilities" => {
                &[("highest", byte(0)), ("guaranteed", byte(1)), ("efficient", byte(2)), ("lowest", byte(3))]
            }
            "platform-info" => &[("max-non-turbo", byte(1)), ("max-efficiency", byte(5))],
            _ => &[("0", byte(0)), ("3", byte(3)), ("7", byte(7))],
        };
        for (field, wanted) in fields {
            if value["value"][field] != *wanted {
                return Err(
                    format!("{knob}: {source} is {raw:#x}, {field} should be {wanted}: {value}").into()
                );
            }
        }
        seen.insert(key);
    }
    // Each recorded request of HWP must have been shown.
    let missed =
        (0..MAX_CPUS).find(|cpu| registers.msr(*cpu, 0x774).is_ok() && !seen.contains(&(0x774, *cpu)));
    missed.map_or(Ok(()), |cpu| Err(format!("MSR 0x774 of CPU {cpu} was not shown").into()))
}
