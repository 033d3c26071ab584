//! Rules for every cpufreq driver: limits, governors, rejected writes, hotplug.

use super::{Case, Rule, differences};
use crate::{
    mode::{Kind, Mode},
    record::Observation,
    step::Step,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "policy.base-state",
        about: "the same settings give the same state, whatever was set before",
        source: "admin-guide/pm/cpufreq.rst, Policy Interface in sysfs: an attribute shows what is in effect",
        applies: |_| true,
        check: base_state,
    },
    Rule {
        id: "policy.limits-ordered",
        about: "cpuinfo_min_freq <= scaling_min_freq <= scaling_max_freq <= cpuinfo_max_freq",
        source: "admin-guide/pm/cpufreq.rst, scaling_max_freq and scaling_min_freq",
        applies: |_| true,
        check: limits_ordered,
    },
    Rule {
        id: "policy.limits-as-asked",
        about: "limits read as they were written, clamped to the range of the processor and to each other",
        source: "admin-guide/pm/cpufreq.rst, scaling_max_freq; ABI/testing/sysfs-devices-system-cpu, cpuX/cpufreq/*",
        applies: |mode| mode.kind != Kind::AcpiCpufreq && mode.is_uniform(),
        check: limits_as_asked,
    },
    Rule {
        id: "policy.number-refused",
        about: "a limit that is not a number is refused",
        source: "admin-guide/pm/cpufreq.rst: the limits are frequencies in kHz",
        applies: |_| true,
        check: number_refused,
    },
    Rule {
        id: "policy.governor-as-written",
        about: "a listed governor is accepted and read back, another is refused",
        source: "admin-guide/pm/cpufreq.rst, scaling_governor and scaling_available_governors",
        applies: |_| true,
        check: governor_as_written,
    },
    Rule {
        id: "policy.switch-refused",
        about: "a switch takes 0 and 1 only",
        source: "ABI/testing/sysfs-devices-system-cpu, cpufreq/boost; admin-guide/pm/cpufreq.rst, The boost File in sysfs",
        applies: |_| true,
        check: switch_refused,
    },
    Rule {
        id: "policy.switch-as-written",
        about: "boost reads as it was written, in every policy",
        source: "admin-guide/pm/cpufreq.rst, The boost File in sysfs",
        applies: |_| true,
        check: switch_as_written,
    },
    Rule {
        id: "policy.refused-changes-nothing",
        about: "a refused write changes no attribute and no request",
        source: "filesystems/sysfs.rst: an error is returned if a bad value comes through; cpu-freq/cpu-drivers.rst",
        applies: |_| true,
        check: refused_changes_nothing,
    },
    Rule {
        id: "policy.own-cpus-only",
        about: "a write to a policy changes the attributes and requests of its own CPUs only",
        source: "admin-guide/pm/cpufreq.rst, CPU Initialization: a policy is for the CPUs that share it",
        applies: |_| true,
        check: own_cpus_only,
    },
    Rule {
        id: "policy.offline-and-online",
        about: "a CPU that was offline has the settings and requests back that it had",
        source: "admin-guide/pm/cpufreq.rst, CPU Initialization: a policy that was in use before is restored with its governor and limits",
        applies: |_| true,
        check: offline_and_online,
    },
    Rule {
        id: "policy.offline-is-alone",
        about: "other CPUs do not notice that one goes offline or comes online",
        source: "admin-guide/pm/cpufreq.rst, CPU Initialization",
        applies: |_| true,
        check: offline_is_alone,
    },
    Rule {
        id: "policy.event-changes-nothing",
        about: "a test of suspend and a notification of the firmware leave settings and requests as they were",
        source: "power/basic-pm-debugging.rst; ACPI 8.4.5.3 and 8.4.6: a notification makes the kernel read the limits again",
        applies: |_| true,
        check: event_changes_nothing,
    },
    Rule {
        id: "policy.online-as-written",
        about: "a CPU goes offline and comes online when that is written",
        source: "core-api/cpu_hotplug.rst, Using CPU hotplug",
        applies: |_| true,
        check: online_as_written,
    },
    Rule {
        id: "policy.status-as-written",
        about: "the driver's mode reads as it was written; other words are refused",
        source: "admin-guide/pm/amd-pstate.rst, status; admin-guide/pm/intel_pstate.rst, status",
        applies: |_| true,
        check: status_as_written,
    },
    Rule {
        id: "policy.has-governor",
        about: "every policy of an online CPU has a driver, a governor and limits that can be read",
        source: "admin-guide/pm/cpufreq.rst, Policy Interface in sysfs",
        applies: |_| true,
        check: has_governor,
    },
];

/// Returns whether a CPU's registers depend only on settings, which is not so under governors that
/// follow load.
fn is_steady(case: &Case<'_>, cpu: u32) -> bool {
    is_steady_in(case.mode, case.before, cpu) && is_steady_in(case.mode, case.after, cpu)
}

fn is_steady_in(mode: &Mode, seen: &Observation, cpu: u32) -> bool {
    let governor = seen.policies().into_iter().find(|policy| seen.cpus(*policy).contains(&cpu));
    let governor = governor.and_then(|policy| seen.policy(policy, "scaling_governor"));
    // In active mode without HWP, intel_pstate itself follows load under its powersave policy;
    // sequences switch to active mode too.
    let is_active = seen.get("intel_pstate/status") == Some("active");
    let chooses_itself =
        mode.kind == Kind::IntelActiveNoHwp || mode.kind == Kind::IntelPassiveNoHwp && is_active;
    !chooses_itself && governor.is_some_and(is_fixed)
}

/// Returns whether a governor's request does not depend on load.
pub fn is_fixed(governor: &str) -> bool {
    matches!(governor, "performance" | "powersave" | "userspace")
}

/// Returns whether a CPU's register is a request that has an effect and depends only on settings.
pub fn has_steady_request(mode: &Mode, seen: &Observation, cpu: u32, name: &str) -> bool {
    is_request(name) && !has_no_effect(mode, name) && is_steady_in(mode, seen, cpu)
}

/// CPUs' requests that differ between two observations.
fn requests<'a>(
    case: &Case<'_>,
    a: &'a Observation,
    b: &'a Observation,
) -> Vec<(u32, &'a str, Option<u64>, u64)> {
    let all =
        b.registers.iter().map(|((cpu, name), now)| (*cpu, name.as_str(), a.register(*cpu, name), *now));
    // Only requests: there are also other registers, such as the package's interrupts.
    all.filter(|(_, name, ..)| is_request(name) && !has_no_effect(case.mode, name))
        .filter(|(cpu, _, old, now)| *old != Some(*now) && is_steady(case, *cpu))
        .collect()
}

/// With HWP on, the processor ignores PERF_CTL (Intel's manual, volume 3, Hardware-Controlled
/// Performance States).
fn has_no_effect(mode: &Mode, name: &str) -> bool {
    mode.is_hwp() && name == "0x199"
}

/// Returns whether a register or mailbox field requests performance.
pub fn is_request(name: &str) -> bool {
    matches!(name, "0xc00102b3" | "0xc0010062" | "0x774" | "0x199" | "0x1b0")
        || name.starts_with("mailbox.") && !crate::speed_select::is_register(name)
}

/// Returns whether a register enables CPPC (CPPC_ENABLE) or HWP (IA32_PM_ENABLE).
pub fn is_switch(name: &str) -> bool {
    matches!(name, "0xc00102b1" | "0x770")
}

fn show(value: Option<&str>) -> String {
    value.map_or_else(|| "no such file".to_owned(), |value| format!("'{value}'"))
}

fn base_state(case: &Case<'_>) -> Vec<String> {
    if case.step.is_some() {
        return Vec::new();
    }
    let attributes = differences(case.first, case.after).into_iter();
    // A governor's own files exist only while it is used.
    let attributes = attributes.filter(|(path, ..)| path.matches('/').count() < 3 || path.contains("policy"));
    let mut out: Vec<String> = attributes
        .map(|(path, old, new)| format!("{path} reads {}, and {} at first", show(new), show(old)))
        .collect();
    for (cpu, name, old, now) in requests(case, case.first, case.after) {
        if old.is_some() {
            out.push(format!("cpu{cpu} {name} holds {now:#x}, and {:#x} at first", old.unwrap_or(0)));
        }
    }
    out
}

fn limits_ordered(case: &Case<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for policy in case.after.policies() {
        let get = |name: &str| case.after.policy_number(policy, name);
        if let (Some(low), Some(min), Some(max), Some(high)) = (
            get("cpuinfo_min_freq"),
            get("scaling_min_freq"),
            get("scaling_max_freq"),
            get("cpuinfo_max_freq"),
        ) && !(low <= min && min <= max && max <= high)
        {
            out.push(format!("policy{policy}: {low} <= {min} <= {max} <= {high} does not hold"));
        }
    }
    out
}

fn limits_as_asked(case: &Case<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for policy in case.after.policies() {
        let get = |name: &str| case.after.policy_number(policy, name);
        let (Some(low), Some(high)) = (get("cpuinfo_min_freq"), get("cpuinfo_max_freq")) else { continue };
        // Without turbo the effective limit is the base frequency, even if cpuinfo_max_freq does
        // not change (intel_pstate.rst, no_turbo).
        let base = i64::from(case.mode.spec.core[0].base_mhz) * 1000;
        let no_turbo = case.after.get("intel_pstate/no_turbo") == Some("1");
        let high = if no_turbo { high.min(base) } else { high };
        let within = |khz: i64| khz.clamp(low, high.max(low));
        let (all_min, all_max) = limits_of_all(case);
        let Some(asked) = case.asked.max.get(&policy) else { continue };
        let max = within(*asked);
        let mut maxima = vec![max, within(max.min(all_max))];
        // Without HWP the turbo activation ratio makes the base ratio minus one the highest state
        // without turbo (intel_pstate.c, core_get_max_pstate). A limit above it is treated as the
        // highest frequency (intel_pstate_adjust_policy_max).
        let below_base = base - 100_000;
        if matches!(case.mode.kind, Kind::IntelActiveNoHwp | Kind::IntelPassiveNoHwp) && max > below_base {
            maxima.push(if no_turbo { below_base } else { high });
        }
        if let Some(now) = get("scaling_max_freq").filter(|now| !maxima.contains(now)) {
            out.push(format!("policy{policy}: scaling_max_freq reads {now} instead of {max}"));
        }
        let Some(asked) = case.asked.min.get(&policy) else { continue };
        let min = within(*asked).min(max);
        let mut minima: Vec<i64> = maxima
            .iter()
            .flat_map(|max| [within(*asked), within((*asked).max(all_min))].map(|min| min.min(*max)))
            .collect();
        // Since 6.13, 0 means the lowest frequency that saves energy (amd-pstate.c,
        // amd_pstate_verify).
        minima
            .extend(get("amd_pstate_lowest_nonlinear_freq").filter(|_| *asked == 0).map(|khz| khz.min(max)));
        if let Some(now) = get("scaling_min_freq").filter(|now| !minima.contains(now)) {
            out.push(format!("policy{policy}: scaling_min_freq reads {now} instead of {min}"));
        }
    }
    out
}

/// In passive mode the global percentages are also limits of each policy, and shown there
/// (intel_pstate.c, update_qos_request). The documentation leaves open which of them
/// scaling_max_freq shows.
fn limits_of_all(case: &Case<'_>) -> (i64, i64) {
    // Not the tested mode, because sequences change the driver's mode.
    if case.after.get("intel_pstate/status") != Some("passive") {
        return (0, i64::MAX);
    }
    let turbo = i64::from(case.mode.spec.core[0].max_mhz) * 1000;
    let percent =
        |name: &str, usual: i64| case.after.number(&format!("intel_pstate/{name}")).unwrap_or(usual);
    ((turbo * percent("min_perf_pct", 0) + 99) / 100, turbo * percent("max_perf_pct", 100) / 100)
}

fn number_refused(case: &Case<'_>) -> Vec<String> {
    let limits = |file: &str| matches!(file, "scaling_max_freq" | "scaling_min_freq");
    let bad = case.after.answers.iter().filter(|a| limits(a.file()) && a.answer != "absent");
    let bad = bad.filter(|a| a.is_ok() != a.value.trim().parse::<u64>().is_ok() && a.answer != "EBUSY");
    bad.map(|a| format!("{} <- '{}' was answered {}", a.path, a.value, a.answer)).collect()
}

fn governor_as_written(case: &Case<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for answer in case.after.answers.iter().filter(|a| a.file() == "scaling_governor" && a.answer != "absent")
    {
        let list = answer.path.replace("scaling_governor", "scaling_available_governors");
        let Some(list) = case.before.get(&list).filter(|list| !list.starts_with('!')) else { continue };
        let word = answer.value.trim();
        let listed = list.split_whitespace().any(|name| name.eq_ignore_ascii_case(word));
        // Drivers with their own policies accept any text that begins with a name
        // (cpufreq_parse_policy).
        let begins = list.split_whitespace().any(|name| word.to_ascii_lowercase().starts_with(name));
        if listed != answer.is_ok() && !(begins && answer.is_ok()) {
            out.push(format!(
                "{} <- '{word}' was answered {}; available: {list}",
                answer.path, answer.answer
            ));
        }
        if answer.is_ok()
            && listed
            && case.after.get(&answer.path).is_some_and(|now| !now.eq_ignore_ascii_case(word))
        {
            out.push(format!("{} reads {} after '{word}'", answer.path, show(case.after.get(&answer.path))));
        }
    }
    out
}

fn switch_refused(case: &Case<'_>) -> Vec<String> {
    let bad =
        case.after.answers.iter().filter(|a| a.file() == "boost" && !matches!(a.value.trim(), "0" | "1"));
    bad.filter(|a| a.is_ok()).map(|a| format!("{} <- '{}' was accepted", a.path, a.value)).collect()
}

fn switch_as_written(case: &Case<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for answer in case.after.answers.iter().filter(|a| a.file() == "boost" && a.is_ok()) {
        let word = answer.value.trim();
        let mut reads = vec![answer.path.clone()];
        if answer.path == "cpufreq/boost" {
            // A write of the current value does not affect policies that differ (store_boost since
            // 6.17).
            if case.before.get("cpufreq/boost") != Some(word) {
                reads.extend(
                    case.after.policies().iter().map(|policy| format!("cpufreq/policy{policy}/boost")),
                );
            }
        }
        for path in reads {
            if let Some(now) = case.after.get(&path).filter(|now| *now != word && !now.starts_with('!')) {
                out.push(format!("{path} reads '{now}' after {} <- {word}", answer.path));
            }
        }
    }
    out
}

fn refused_changes_nothing(case: &Case<'_>) -> Vec<String> {
    if case.is_refused() { all_changes(case) } else { Vec::new() }
}

fn event_changes_nothing(case: &Case<'_>) -> Vec<String> {
    if matches!(case.step, Some(Step::Run(_))) { all_changes(case) } else { Vec::new() }
}

/// The attributes and requests that a step has changed.
fn all_changes(case: &Case<'_>) -> Vec<String> {
    let changed = case.changed().into_iter();
    let mut out: Vec<String> = changed
        .map(|(path, old, new)| format!("{path} changed from {} to {}", show(old), show(new)))
        .collect();
    for (cpu, name, old, now) in requests(case, case.before, case.after) {
        out.push(format!(
            "cpu{cpu} {name} changed from {} to {now:#x}",
            old.map_or("unset".into(), |v| format!("{v:#x}"))
        ));
    }
    out
}

/// The policy that a step's path names.
fn policy_of(case: &Case<'_>) -> Option<u32> {
    let Step::Write { path, .. } = case.step? else { return None };
    path.strip_prefix("cpufreq/policy")?.split('/').next()?.parse().ok()
}

fn own_cpus_only(case: &Case<'_>) -> Vec<String> {
    let Some(policy) = policy_of(case) else { return Vec::new() };
    let own = format!("cpufreq/policy{policy}/");
    let mut out = Vec::new();
    for (path, old, new) in case.changed() {
        // A governor's files appear with its first user and disappear with its last.
        let of_other = path.starts_with("cpufreq/policy") && !path.starts_with(&own);
        if of_other || path.starts_with("cpu") && path.ends_with("/online") {
            out.push(format!("{path} changed from {} to {}", show(old), show(new)));
        }
    }
    let cpus = case.before.cpus(policy);
    for (cpu, name, old, now) in requests(case, case.before, case.after) {
        if !cpus.contains(&cpu) {
            out.push(format!(
                "cpu{cpu} {name} changed from {} to {now:#x}",
                old.map_or("unset".into(), |v| format!("{v:#x}"))
            ));
        }
    }
    out
}

/// The CPU of an `online` file, and the value.
fn hotplug(step: Option<&Step>) -> Option<(u32, &str)> {
    let Step::Write { path, value } = step? else { return None };
    let cpu = path.strip_prefix("cpu")?.strip_suffix("/online")?.parse().ok()?;
    Some((cpu, value))
}

fn offline_and_online(case: &Case<'_>) -> Vec<String> {
    let Some((cpu, "1")) = hotplug(case.step) else { return Vec::new() };
    // The previous step must have taken the CPU offline, or there is nothing to compare.
    let Some([(was, away), _]) = case.earlier.get(case.earlier.len().saturating_sub(2)..) else {
        return Vec::new();
    };
    if hotplug(*away) != Some((cpu, "0")) || was.get(&format!("cpu{cpu}/online")) != Some("1") {
        return Vec::new();
    }
    let mut out: Vec<String> = differences(was, case.after)
        .into_iter()
        .map(|(path, old, new)| {
            format!("{path} was {} before it went offline and is {} now", show(old), show(new))
        })
        .collect();
    let steady = is_steady(&Case { before: was, ..*case }, cpu);
    for ((of, name), now) in &case.after.registers {
        let old = was.register(*of, name);
        if *of == cpu && steady && is_request(name) && !has_no_effect(case.mode, name) && old != Some(*now) {
            let old = old.map_or("unset".into(), |v| format!("{v:#x}"));
            out.push(format!("cpu{cpu} {name} was {old} before it went offline and is {now:#x} now"));
        }
    }
    out
}

fn offline_is_alone(case: &Case<'_>) -> Vec<String> {
    let Some((cpu, _)) = hotplug(case.step) else { return Vec::new() };
    let mut out = Vec::new();
    for policy in case.after.policies() {
        let mut cpus = case.before.cpus(policy);
        cpus.extend(case.after.cpus(policy));
        if cpus.contains(&cpu) {
            continue;
        }
        let own = format!("cpufreq/policy{policy}/");
        for (path, old, new) in case.changed().into_iter().filter(|(path, ..)| path.starts_with(&own)) {
            out.push(format!("{path} changed from {} to {}", show(old), show(new)));
        }
        for (of, name, old, now) in requests(case, case.before, case.after) {
            if cpus.contains(&of) {
                out.push(format!(
                    "cpu{of} {name} changed from {} to {now:#x}",
                    old.map_or("unset".into(), |v| format!("{v:#x}"))
                ));
            }
        }
    }
    out
}

fn online_as_written(case: &Case<'_>) -> Vec<String> {
    let Some((cpu, value)) = hotplug(case.step) else { return Vec::new() };
    let path = format!("cpu{cpu}/online");
    let (Some(answer), Some(now)) = (case.after.answers.first(), case.after.get(&path)) else {
        return Vec::new();
    };
    let valid = matches!(value, "0" | "1");
    if valid == answer.is_ok() && (!valid || now == value) {
        return Vec::new();
    }
    vec![format!("{path} <- '{value}' was answered {} and reads '{now}'", answer.answer)]
}

fn status_as_written(case: &Case<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for answer in case.after.answers.iter().filter(|a| a.file() == "status" && a.answer != "absent") {
        let word = answer.value.trim();
        let words: &[&str] = if answer.path.starts_with("amd") {
            &["active", "passive", "guided", "disable"]
        } else {
            &["active", "passive", "off"]
        };
        let now = case.after.get(&answer.path).unwrap_or_default();
        match (words.contains(&word), answer.is_ok()) {
            // "off" is rejected while HWP is on (intel_pstate.rst).
            (true, false) if word == "off" && case.mode.is_hwp() => {}
            (true, true) if now == word => {}
            // A prefix of a word is accepted (amd_pstate_update_status).
            (false, false) => {}
            (known, _) => out.push(format!(
                "{} <- '{word}' was answered {} and reads '{now}'{}",
                answer.path,
                answer.answer,
                if known { "" } else { ", which is not a mode" }
            )),
        }
    }
    out
}

fn has_governor(case: &Case<'_>) -> Vec<String> {
    // There are no policies while the driver is off.
    let off = ["amd_pstate/status", "intel_pstate/status"].iter();
    if off.filter_map(|path| case.after.get(path)).any(|now| matches!(now, "off" | "disable")) {
        return Vec::new();
    }
    let mut out = Vec::new();
    let have: Vec<u32> = case.after.policies().iter().flat_map(|policy| case.after.cpus(*policy)).collect();
    for cpu in 0..case.mode.cpu_count() {
        let online = cpu == 0 || case.after.get(&format!("cpu{cpu}/online")) == Some("1");
        if online && !have.contains(&cpu) {
            out.push(format!("cpu{cpu} is online and has no policy"));
        }
    }
    out
}
