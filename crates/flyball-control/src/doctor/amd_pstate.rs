//! The read-only part of the kernel's amd-pstate unit tests (drivers/cpufreq/amd-pstate-ut.c), in
//! user space.
//!
//! Each answer also says what the running kernel's module would report. Depending on the version
//! its tests are stricter or laxer, check limits that a user may have set, and on 6.1 compare with
//! a constant that few processors have. A complaint of the module alone is mentioned, but is not a
//! fault. The tests that write are in `amd_pstate_write`.

use super::{Answer, Check, Facts, KernelTest, Policy, Unseen, Vendor, fault, ok, unknown};
use flyball_host::msr::{MSR_AMD_CPPC_CAP1, MSR_AMD_CPPC_ENABLE, MSR_K7_HWCR};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "amd-pstate.cpc-valid",
        "The driver needs the firmware's _CPC table; it cannot control a CPU without one.",
        "acpi_cppc of every online CPU",
        cpc_valid,
    ),
    Check::new(
        "amd-pstate.enabled",
        "A CPU on which collaborative control (CPPC) is not enabled ignores requests.",
        "MSR 0xc00102b1 of every CPU; with the mailbox, that the driver is bound",
        enabled,
    ),
    Check::new(
        "amd-pstate.perf",
        "The performance levels must be in order, or frequencies computed from them are wrong.",
        "MSR 0xc00102b0 and acpi_cppc of every CPU",
        perf,
    ),
    Check::new(
        "amd-pstate.freq",
        "The frequencies must be in order, or limits computed from them are wrong.",
        "cpuinfo_max_freq, nominal_freq, amd_pstate_lowest_nonlinear_freq and cpuinfo_min_freq of every policy",
        freq,
    )
    .covers(&["cpuinfo_max_freq", "cpuinfo_min_freq", "amd_pstate_lowest_nonlinear_freq"]),
];

impl Answer {
    /// Adds the result of the kernel's own test: success, or this complaint.
    pub(super) fn kernel_says(mut self, name: &'static str, complaint: Option<String>) -> Answer {
        self.kernel_test = Some(KernelTest { name, passes: complaint.is_none(), because: complaint });
        self
    }
}

/// Returns whether the running kernel is at least this version. An unknown version counts as new.
pub(super) fn since(facts: &Facts, major: u32, minor: u32) -> bool {
    facts.kernel_version().is_none_or(|version| version >= (major, minor))
}

fn applies(facts: &Facts) -> Option<()> {
    facts.driver()?.starts_with("amd-pstate").then_some(())
}

fn cppc(facts: &Facts, cpu: u32, name: &str) -> Result<u64, Unseen> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/{name}");
    let text = facts.read(&path)?;
    text.parse().map_err(|_| format!("{path} does not hold a number: '{text}'").into())
}

fn cpc_valid(facts: &Facts) -> Option<Answer> {
    // One answer explains why the group's other tests are missing.
    if let (Vendor::Amd, Some(driver), None) = (facts.vendor, facts.driver(), applies(facts)) {
        return Some(
            unknown(format!(
                "{driver} runs, so the tests of amd-pstate do not apply; driver.best says why it is not amd-pstate"
            ))
            .seen(facts.policies.first()?.path("scaling_driver"), driver),
        );
    }
    applies(facts)?;
    let mut missing = flyball_host::CpuList::new();
    for cpu in facts.online.iter() {
        if cppc(facts, cpu, "highest_perf").is_err() || cppc(facts, cpu, "nominal_perf").is_err() {
            missing.insert(cpu);
        }
    }
    let test = "amd_pstate_ut_acpi_cpc_valid";
    Some(if missing.is_empty() {
        ok("every online CPU has a _CPC table").seen("CPUs", facts.online.to_string()).kernel_says(test, None)
    } else {
        fault(format!("no usable _CPC table on CPUs {missing}"))
            .seen("/sys/devices/system/cpu/cpuN/acpi_cppc", format!("missing on CPUs {missing}"))
            .firmware("look for CPPC (AMD CBS, NBIO or SMU options) and set it to Enabled")
            .kernel_says(test, Some("the _CPC object is not present".to_owned()))
    })
}

fn enabled(facts: &Facts) -> Option<Answer> {
    applies(facts)?;
    let test = "amd_pstate_ut_check_enabled";
    // Without the flags it is unknown whether requests go by register or by mailbox.
    if facts.topology().flags.is_empty() {
        return Some(unknown("/proc/cpuinfo does not show the processor's flags"));
    }
    if !facts.flag("cppc") {
        // amd_pstate_init() and amd_pstate_cpu_init() fail if enabling by mailbox fails. The module
        // does not check this.
        let driver = facts.driver()?;
        return Some(
            ok("requests go by mailbox, and the driver is bound: it would not be if the mailbox had refused to enable them")
                .seen("/proc/cpuinfo flags", "no cppc")
                .seen(facts.policies.first()?.path("scaling_driver"), driver)
                .kernel_says(test, None),
        );
    }
    let values = seen!(facts.msr_everywhere(MSR_AMD_CPPC_ENABLE));
    let off: flyball_host::CpuList =
        values.iter().filter(|(_, value)| value & 1 == 0).map(|(cpu, _)| *cpu).collect();
    Some(if off.is_empty() {
        ok("CPPC is enabled on every online CPU")
            .seen(format!("MSR {MSR_AMD_CPPC_ENABLE:#x}"), "1")
            .kernel_says(test, None)
    } else {
        fault(format!("CPPC is not enabled on CPUs {off}"))
            .seen(format!("MSR {MSR_AMD_CPPC_ENABLE:#x}"), format!("0 on CPUs {off}"))
            .kernel_says(test, Some(format!("amd pstate must be enabled (on one of CPUs {off})")))
    })
}

/// Reads the four levels of a CPU, highest first, and returns their source: like the driver and its
/// test, the register if there is one, otherwise the firmware's table.
fn levels(facts: &Facts, cpu: u32) -> Result<([u64; 4], String), Unseen> {
    if facts.flag("cppc")
        && let Ok(cap) = facts.msr(cpu, MSR_AMD_CPPC_CAP1)
    {
        // AMD_CPPC_LOWEST_PERF and its neighbours in msr-index.h: the lowest level is in the low
        // byte, the highest in bits 31:24.
        let byte = |shift: u32| (cap >> shift) & 0xff;
        return Ok((
            [byte(24), byte(16), byte(8), byte(0)],
            format!("MSR {MSR_AMD_CPPC_CAP1:#x} of CPU {cpu}"),
        ));
    }
    table(facts, cpu).map(|levels| (levels, format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc")))
}

/// Reads the four levels from the firmware's table.
fn table(facts: &Facts, cpu: u32) -> Result<[u64; 4], Unseen> {
    let read = |name| cppc(facts, cpu, name);
    Ok([read("highest_perf")?, read("nominal_perf")?, read("lowest_nonlinear_perf")?, read("lowest_perf")?])
}

fn perf(facts: &Facts) -> Option<Answer> {
    applies(facts)?;
    let test = "amd_pstate_ut_check_perf";
    let mut shown = None;
    let mut equal_floor = false;
    let mut complaint = None;
    for cpu in facts.online.iter() {
        let (values, place) = seen!(levels(facts, cpu));
        let [highest, nominal, nonlinear, lowest] = values;
        let text =
            format!("highest {highest}, nominal {nominal}, lowest non-linear {nonlinear}, lowest {lowest}");
        if !(highest >= nominal && nominal > nonlinear && nonlinear >= lowest && lowest > 0) {
            return Some(
                fault(format!("the performance levels of CPU {cpu} are out of order"))
                    .seen(place, text.clone())
                    .kernel_says(test, Some(format!("cpu{cpu}: {text}: the formula is incorrect"))),
            );
        }
        // Skip the highest level: with preferred cores the table holds the core's rank there.
        let other = seen!(table(facts, cpu));
        if other[1..] != values[1..] {
            return Some(
                fault(format!("CPU {cpu}: the firmware's table and the register disagree"))
                    .seen(place, text)
                    .seen(
                        format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc"),
                        format!("nominal {}, lowest non-linear {}, lowest {}", other[1], other[2], other[3]),
                    ),
            );
        }
        equal_floor |= nonlinear == lowest;
        complaint = complaint.or_else(|| level_complaint(facts, cpu, values));
        shown.get_or_insert((place, text));
    }
    let (place, text) = shown?;
    let answer = match (&complaint, equal_floor) {
        (Some(words), _) => {
            ok(format!("the levels are in order, although the kernel's amd-pstate-ut would report: {words}"))
        }
        (None, true) => ok("the levels are in order; the lowest non-linear level is also the lowest"),
        (None, false) => ok("highest >= nominal > lowest non-linear >= lowest > 0 on every online CPU"),
    };
    Some(answer.seen(place, text).kernel_says(test, complaint))
}

/// Returns this kernel's complaint about levels that are in order.
fn level_complaint(facts: &Facts, cpu: u32, [highest, _, nonlinear, lowest]: [u64; 4]) -> Option<String> {
    let policy = facts.policies.iter().find(|policy| policy.cpus.contains(cpu));
    let driver = policy.and_then(|policy| policy.number("amd_pstate_highest_perf"));
    if !since(facts, 6, 2) {
        // Up to 6.1 the test compares the driver's value with a constant of the model.
        let constant = constant_of_6_1(facts);
        if let Some(kept) = driver.filter(|&kept| kept != constant) {
            return Some(format!("it expects {constant} as the highest level, but the driver has {kept}"));
        }
    } else if let Some(kept) = driver.filter(|&kept| kept != highest) {
        if policy.and_then(|policy| policy.get("amd_pstate_hw_prefcore")) != Some("enabled") {
            return Some(format!("the highest level is {highest}, but the driver has {kept}"));
        }
    }
    // Equal lowest levels pass since 6.15.
    (nonlinear == lowest && !since(facts, 6, 15))
        .then(|| format!("the lowest non-linear level {nonlinear} is also the lowest"))
}

/// Returns amd_get_highest_perf() of Linux 6.1 (arch/x86/kernel/cpu/amd.c): 166 for some models of
/// families 17h and 19h.
fn constant_of_6_1(facts: &Facts) -> u64 {
    let model = facts.model;
    let lower = match facts.family {
        0x17 => (0x30..0x40).contains(&model) || (0x70..0x80).contains(&model),
        0x19 => (0x20..0x30).contains(&model) || (0x40..0x70).contains(&model),
        _ => false,
    };
    if lower { 166 } else { 255 }
}

fn freq(facts: &Facts) -> Option<Answer> {
    applies(facts)?;
    let test = "amd_pstate_ut_check_freq";
    let mut shown = None;
    let mut complaint = None;
    for policy in &facts.policies {
        // A policy without an online CPU refuses every read, so skip it.
        let Some(cpu) = policy.cpus.intersection(&facts.online).first() else { continue };
        let (Some(max), Some(min)) = (policy.number("cpuinfo_max_freq"), policy.number("cpuinfo_min_freq"))
        else {
            return Some(unknown(format!("{} cannot be read", policy.path("cpuinfo_max_freq"))));
        };
        let Some(nonlinear) = policy.number("amd_pstate_lowest_nonlinear_freq") else {
            return Some(unknown(format!(
                "{} does not exist",
                policy.path("amd_pstate_lowest_nonlinear_freq")
            )));
        };
        let Some(nominal) = nominal_khz(facts, policy, cpu) else {
            return Some(unknown(format!("the nominal frequency of CPU {cpu} is unknown")));
        };
        let text = format!("max {max}, nominal {nominal}, lowest non-linear {nonlinear}, min {min} kHz");
        if !(max >= nominal && nominal > nonlinear && nonlinear >= min && min > 0) {
            return Some(
                fault(format!("the frequencies of policy {} are out of order", policy.number))
                    .seen(policy.path("cpuinfo_max_freq"), text.clone())
                    .kernel_says(test, Some(format!("cpu{cpu}: {text}: the formula is incorrect"))),
            );
        }
        complaint = complaint.or_else(|| limit_complaint(facts, policy, cpu, nominal));
        shown.get_or_insert((policy.path("cpuinfo_max_freq"), text));
    }
    let (place, text) = shown?;
    let answer = match &complaint {
        Some(words) => ok(format!(
            "the frequencies are in order, although the kernel's amd-pstate-ut would report: {words}"
        )),
        None => ok("maximum >= nominal > lowest non-linear >= minimum > 0 for every policy"),
    };
    Some(answer.seen(place, text).kernel_says(test, complaint))
}

/// Returns this kernel's complaint although the frequencies are in order: its test also requires
/// boost and the driver's initial limits.
fn limit_complaint(facts: &Facts, policy: &Policy, cpu: u32, nominal: u64) -> Option<String> {
    let [nonlinear, lowest, highest] =
        ["amd_pstate_lowest_nonlinear_freq", "cpuinfo_min_freq", "cpuinfo_max_freq"]
            .map(|name| policy.number(name));
    let (min, max) = (policy.number("scaling_min_freq")?, policy.number("scaling_max_freq")?);
    if nonlinear == lowest && !since(facts, 6, 15) {
        return Some(format!("cpu{cpu}: the lowest non-linear frequency is also the lowest"));
    }
    // Since 6.13 the driver's default minimum is the lowest non-linear frequency. Before, it was
    // the lowest frequency.
    let first = if since(facts, 6, 13) { nonlinear } else { lowest };
    if first != Some(min) {
        return Some(format!(
            "cpu{cpu}: scaling_min_freq {min} is not {}, the driver's default",
            first.unwrap_or(0)
        ));
    }
    if !boosts(facts, cpu) {
        return Some(format!("cpu{cpu} must support boost"));
    }
    // Up to 6.12 it is the highest frequency with boost, whether boost is on or not. Since then it
    // is the policy's highest frequency.
    let top = if since(facts, 6, 13) { highest } else { policy.number("amd_pstate_max_freq") };
    if Some(max) != top && max != nominal {
        return Some(format!(
            "cpu{cpu}: scaling_max_freq {max} is neither the highest nor the nominal frequency"
        ));
    }
    None
}

/// Returns whether the driver considers the CPU able to boost. Up to 6.1 it checks the levels,
/// later the CPU flag and the firmware's bit in HWCR.
fn boosts(facts: &Facts, cpu: u32) -> bool {
    if !since(facts, 6, 2) {
        let kept = facts.policies.iter().find_map(|policy| policy.number("amd_pstate_highest_perf"));
        return levels(facts, cpu).is_ok_and(|(levels, _)| kept.unwrap_or(levels[0]) > levels[1]);
    }
    // Bit 25 is MSR_K7_HWCR_CPB_DIS. If it cannot be read, the flag alone decides.
    facts.flag("cpb") && facts.msr(cpu, MSR_K7_HWCR).map_or(true, |value| value >> 25 & 1 == 0)
}

/// Returns the nominal frequency: from _CPC if it is there, otherwise the highest frequency scaled
/// by the levels.
fn nominal_khz(facts: &Facts, policy: &Policy, cpu: u32) -> Option<u64> {
    if let Ok(mhz) = cppc(facts, cpu, "nominal_freq")
        && mhz > 0
    {
        return Some(mhz * 1000);
    }
    let nominal = cppc(facts, cpu, "nominal_perf").ok()?;
    let highest = policy.number("amd_pstate_highest_perf").filter(|&perf| perf > 0)?;
    Some(policy.number("amd_pstate_max_freq")? * nominal / highest)
}
