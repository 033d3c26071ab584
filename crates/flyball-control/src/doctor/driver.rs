//! Which cpufreq driver runs, in which mode, and why a better one does not.
//!
//! The kernel's rules for choosing a driver are in drivers/cpufreq/amd-pstate.c and intel_pstate.c.

use super::{
    Answer, Check, Facts, Fix, Vendor,
    facts::{NO_CPU_ONLINE, cpu_words},
    fault, models, note, ok, unknown, warning,
};
use crate::Id;
use flyball_host::{CpuInfo, CpuList, msr::MSR_PM_ENABLE};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "driver.present",
        "Without a cpufreq driver only the firmware decides the speed, and no setting can change it.",
        "scaling_driver of every policy; intel_pstate/status and amd_pstate/status; the kernel's command line",
        present,
    ),
    Check::new(
        "driver.best",
        "The vendor's own driver sees more performance levels, reacts faster and passes on energy preferences.",
        "scaling_driver, the command line (amd_pstate=, intel_pstate=, blacklists), acpi_cppc, pm_profile, family, model, kernel, its log",
        best,
    ),
    Check::new(
        "driver.mode",
        "In active mode the processor chooses by a preference (without HWP, intel_pstate by the load). In passive mode a governor chooses.",
        "intel_pstate/status or amd_pstate/status, and the command line",
        mode,
    ),
    Check::new(
        "driver.hwp",
        "Hardware P-states (HWP) change speed within a millisecond, without waiting for the kernel.",
        "the hwp flag, MSR 0x770 bit 0, the kernel log's 'HWP enabled', preferences offered by the driver",
        hwp,
    ),
    Check::new(
        "driver.same",
        "CPUs under different drivers cannot be compared, and settings affect only some of them.",
        "scaling_driver of every policy",
        same,
    )
    .covers(&["scaling_driver"]),
    Check::new(
        "driver.default-governor",
        "The kernel ignores a governor of the command line that the driver does not have, and says nothing about it.",
        "cpufreq.default_governor= on the command line, scaling_available_governors of every policy",
        default_governor,
    )
    .covers(&["scaling_available_governors"]),
];

const STATUS_INTEL: &str = "/sys/devices/system/cpu/intel_pstate/status";
pub(super) const STATUS_AMD: &str = "/sys/devices/system/cpu/amd_pstate/status";

fn present(facts: &Facts) -> Option<Answer> {
    if let Some(driver) = facts.driver() {
        return Some(ok(format!("cpufreq driver {driver}")).seen(driver_path(facts), driver));
    }
    for (path, name) in [(STATUS_INTEL, "intel_pstate"), (STATUS_AMD, "amd_pstate")] {
        if let Ok(status) = facts.read(path)
            // intel_pstate prints `off` (intel_pstate_show_status), amd_pstate `disable`
            // (amd_pstate_show_status).
            && matches!(status.as_str(), "off" | "disable")
        {
            return Some(
                fault(format!("{name} is switched off, and no driver has taken its place"))
                    .seen(path, status)
                    .set(Id::DriverMode, "active"),
            );
        }
    }
    const NO_DRIVER: &str = "no cpufreq driver is running";
    let seen = |answer: Answer| answer.seen(flyball_host::topology::POLICIES, "no policies");
    if !CpuInfo::read(facts.host()).unwrap_or_default().can_have_acpi_pstates() {
        return Some(seen(note(NO_DRIVER)).fix(Fix::Person(
            "load the module of this processor's cpufreq driver, if there is one; on s390 and in partitions of \
             POWER there is none, and the firmware decides the frequency"
                .to_owned(),
        )));
    }
    let answer = seen(fault(NO_DRIVER));
    Some(match blocked_by_parameter(facts) {
        Some((parameter, action)) => answer.seen("/proc/cmdline", parameter).parameter(action),
        // acpi-cpufreq and amd-pstate need firmware that describes P-states (_PSS, _CPC);
        // intel_pstate leaves them to firmware that controls them itself
        // (intel_pstate_platform_pwr_mgmt_exists).
        None => answer.firmware(
            "look for P-states, SpeedStep, CPPC or 'OS control of power' and give control to \
                      the operating system",
        ),
    })
}

/// Reports a default governor that no policy offers (cpufreq_init_policy() in
/// drivers/cpufreq/cpufreq.c). A driver that chooses frequencies itself accepts any text that
/// begins with one of its two governors, in any case.
fn default_governor(facts: &Facts) -> Option<Answer> {
    let asked = facts.parameter("cpufreq.default_governor")?;
    let lower = asked.to_ascii_lowercase();
    let is_taken = |offered: &str| {
        offered.split_whitespace().any(|governor| {
            governor == asked || offered == "performance powersave" && lower.starts_with(governor)
        })
    };
    let governors = facts.by_value("scaling_available_governors");
    let (offered, cpus) = governors.iter().find(|(offered, _)| !is_taken(offered)).or(governors.first())?;
    let answer = if is_taken(offered) {
        ok(format!("the driver has the governor {asked} of the command line"))
    } else {
        let action = format!("take cpufreq.default_governor={asked} away, or name one of: {offered}");
        note(format!("the kernel ignored cpufreq.default_governor={asked} on {}", cpu_words(cpus)))
            .parameter(action)
    };
    Some(
        answer
            .seen("/proc/cmdline", format!("cpufreq.default_governor={asked}"))
            .seen("scaling_available_governors", offered.clone()),
    )
}

fn driver_path(facts: &Facts) -> String {
    facts.policies.first().map(|policy| policy.path("scaling_driver")).unwrap_or_default()
}

/// Returns a kernel parameter that prevents the vendor's driver, with the fix.
fn blocked_by_parameter(facts: &Facts) -> Option<(String, String)> {
    let name = match facts.vendor {
        Vendor::Intel => "intel_pstate",
        Vendor::Amd => "amd_pstate",
        Vendor::Other => return None,
    };
    if facts.parameter(name) == Some("disable") {
        return Some((format!("{name}=disable"), format!("remove {name}=disable")));
    }
    for parameter in ["initcall_blacklist", "modprobe.blacklist", "module_blacklist"] {
        if let Some(list) = facts.parameter(parameter)
            // initcall_blacklist names functions: intel_pstate_init, amd_pstate_init.
            && list.split(',').any(|entry| entry.starts_with(name))
        {
            return Some((
                format!("{parameter}={list}"),
                format!("remove the {name} entry from {parameter}"),
            ));
        }
    }
    None
}

fn best(facts: &Facts) -> Option<Answer> {
    let driver = facts.driver()?;
    match facts.vendor {
        Vendor::Intel => Some(best_intel(facts, driver)),
        Vendor::Amd => Some(best_amd(facts, driver)),
        Vendor::Other => None,
    }
}

fn best_intel(facts: &Facts, driver: &str) -> Answer {
    let seen = |answer: Answer| answer.seen(driver_path(facts), driver);
    // Both are intel_pstate.c: intel_cpufreq is its passive mode.
    if matches!(driver, "intel_pstate" | "intel_cpufreq") {
        return seen(ok(format!("Intel's own driver, {driver}")));
    }
    if let Some((parameter, action)) = blocked_by_parameter(facts) {
        return seen(warning(format!("{driver} runs because the command line disables intel_pstate")))
            .seen("/proc/cmdline", parameter)
            .parameter(action);
    }
    if facts.log.as_deref().is_some_and(|log| log.contains("P-states controlled by the platform")) {
        return seen(warning(format!("{driver} runs because the firmware controls P-states")))
            .seen("kernel log", "intel_pstate: P-states controlled by the platform")
            .firmware("set P-state control to the operating system (OS DBPM, native mode)");
    }
    if facts.flag("hwp") {
        return seen(warning(format!("{driver} runs although the processor has hardware P-states")))
            .person("look in the kernel log for intel_pstate's reason: dmesg | grep intel_pstate");
    }
    // Without HWP, intel_pstate recognises processors by model (intel_pstate_cpu_ids); others get
    // acpi-cpufreq.
    seen(note(if facts.cmdline.is_some() {
        format!("{driver} runs; intel_pstate does not support this model without hardware P-states")
    } else {
        format!(
            "{driver} runs; intel_pstate either does not support this model without hardware P-states or was disabled"
        )
    }))
}

fn best_amd(facts: &Facts, driver: &str) -> Answer {
    let seen = |answer: Answer| answer.seen(driver_path(facts), driver);
    if driver.starts_with("amd-pstate") {
        return seen(ok(format!("AMD's own driver, {driver}")));
    }
    if let Some((parameter, action)) = blocked_by_parameter(facts) {
        return seen(warning(format!("{driver} runs because the command line disables amd-pstate")))
            .seen("/proc/cmdline", parameter)
            .parameter(action);
    }
    // amd-pstate needs family 17h model 30h or newer (amd_pstate_cpu_supported and
    // cpc_supported_by_cpu).
    if facts.family < 0x17 || (facts.family == 0x17 && facts.model < 0x30) {
        return seen(ok(format!("{driver}; amd-pstate does not support processors this old")));
    }
    let first = facts.online.first().unwrap_or(0);
    let cppc = format!("/sys/devices/system/cpu/cpu{first}/acpi_cppc");
    if !facts.exists(&cppc) {
        return seen(warning(format!(
            "{driver} runs because the firmware offers no _CPC (collaborative control)"
        )))
        .seen(cppc, "missing")
        .firmware("look for CPPC (AMD CBS, NBIO or SMU options) and set it to Enabled");
    }
    if let Some(answer) = zeros_of_cpc(facts, &cppc, driver) {
        return seen(answer);
    }
    let seen = |answer: Answer| seen(answer).seen(cppc.as_str(), "present");
    if let Some(version) = facts.kernel_version()
        && version < (5, 17)
    {
        return seen(note(format!(
            "{driver} runs; amd-pstate was added in Linux 5.17 and this is {}.{}",
            version.0, version.1
        )))
        .person("use a newer kernel");
    }
    seen(match facts.parameter("amd_pstate") {
        Some(mode @ ("active" | "passive" | "guided")) => requested_in_vain(facts, driver, mode),
        _ => not_requested(facts, driver),
    })
}

/// Reports zeros in the firmware's _CPC that amd-pstate refuses (amd_pstate_init_freq: "value is
/// incorrect").
fn zeros_of_cpc(facts: &Facts, cppc: &str, driver: &str) -> Option<Answer> {
    let is_zero = |name: &str| facts.read(&format!("{cppc}/{name}")).is_ok_and(|text| text.trim() == "0");
    // Since Linux 7.0 the driver derives the lowest frequency from lowest_perf.
    let needed = ["highest_perf", "nominal_perf", "nominal_freq", "lowest_perf"]
        .into_iter()
        .chain((!super::amd_pstate::since(facts, 7, 0)).then_some("lowest_freq"));
    let zero: Vec<&str> = needed.filter(|name| is_zero(name)).collect();
    if zero.is_empty() {
        return None;
    }
    let answer = warning(format!(
        "{driver} runs because the firmware's _CPC has zeros, which amd-pstate refuses: {}",
        zero.join(", ")
    ));
    let answer = zero.iter().fold(answer, |answer, name| answer.seen(format!("{cppc}/{name}"), "0"));
    Some(
        answer
            .firmware("update the firmware: its _CPC table must give frequencies; no kernel parameter helps"),
    )
}

/// Reports that the parameter requests amd-pstate but another driver runs.
fn requested_in_vain(facts: &Facts, driver: &str, mode: &str) -> Answer {
    let parameter = format!("amd_pstate={mode}");
    let seen = |answer: Answer| answer.seen("/proc/cmdline", parameter.as_str());
    // Until Linux 6.3 (active) and 6.4 (guided) amd-pstate had only passive mode.
    let known_since = match mode {
        "active" => (6, 3),
        "guided" => (6, 4),
        _ => (5, 17),
    };
    if let Some(version) = facts.kernel_version().filter(|version| *version < known_since) {
        return seen(warning(format!(
            "{driver} runs: Linux {}.{} does not know {parameter}",
            version.0, version.1
        )))
        .parameter("use amd_pstate=passive, or a newer kernel");
    }
    let answer = seen(warning(format!(
        "{driver} runs although the command line requests {parameter}: the driver refused this machine"
    )));
    // pr_fmt in amd-pstate.c sets this prefix.
    let log = facts.log.as_deref().and_then(|log| log.lines().find(|line| line.contains("amd_pstate:")));
    let answer = match log {
        Some(line) => answer.seen("kernel log", line.trim()),
        None => answer,
    };
    // _CPC exists, so firmware has not disabled CPPC. Without the flag cppc the driver uses the
    // firmware's mailbox.
    answer.person("look in the kernel log for the driver's reason: dmesg | grep -i amd_pstate")
}

fn not_requested(facts: &Facts, driver: &str) -> Answer {
    if let Some(version) = facts.kernel_version().filter(|version| *version < (6, 5)) {
        return note(format!(
            "{driver} runs; on Linux {}.{} amd-pstate needs a kernel parameter",
            version.0, version.1
        ))
        .parameter(if version < (6, 3) {
            "add amd_pstate=passive"
        } else {
            "add amd_pstate=active"
        });
    }
    // amd_pstate_init leaves a machine to acpi-cpufreq if its ACPI profile is unspecified (0) or a
    // server's (4, 7). Since Linux 6.13 servers of family 1Ah get amd-pstate.
    let path = "/sys/firmware/acpi/pm_profile";
    let profile = facts.read(path);
    let is_left_out = facts.family < 0x1a || !super::amd_pstate::since(facts, 6, 13);
    let servers = if facts.family < 0x1a { "before family 1Ah" } else { "before Linux 6.13" };
    let left_out = match profile.as_deref().map(str::trim) {
        Ok("0") => Some("an ACPI profile that is not specified".to_owned()),
        Ok("4" | "7") if is_left_out => Some(format!("server profiles {servers}")),
        Ok(_) => None,
        Err(_) if is_left_out => Some(format!(
            "unspecified ACPI profiles and for server profiles {servers}; {path} cannot be read here"
        )),
        Err(_) => Some(format!("unspecified ACPI profiles; {path} cannot be read here")),
    };
    let answer = match left_out {
        Some(which) => note(format!("{driver} runs; without a parameter the kernel uses it for {which}"))
            .parameter("add amd_pstate=active (or passive, guided) to try the other driver"),
        None => warning(format!("{driver} runs although amd-pstate supports this processor"))
            .person("look in the kernel log for amd_pstate's reason: dmesg | grep -i amd_pstate"),
    };
    answer.seen(path, profile.unwrap_or_else(|_| "not known".to_owned()))
}

fn mode(facts: &Facts) -> Option<Answer> {
    let driver = facts.driver()?;
    let (path, parameter) = match driver {
        "intel_pstate" | "intel_cpufreq" => (STATUS_INTEL, "intel_pstate"),
        _ if driver.starts_with("amd-pstate") => (STATUS_AMD, "amd_pstate"),
        _ => return None,
    };
    let status = match facts.read(path) {
        Ok(status) => status,
        // Linux 6.1 has no status file, and recordings may lack it. The driver's name shows the
        // mode.
        Err(_) if driver == "amd-pstate-epp" => {
            return Some(
                ok("the driver is in active mode, as its name says").seen(driver_path(facts), driver),
            );
        }
        // Guided mode came after the status file (6.4), so without the file the mode is passive.
        Err(_) if driver == "amd-pstate" => "passive".to_owned(),
        Err(why) => return Some(unknown(why)),
    };
    let answer = |answer: Answer| {
        if facts.exists(path) {
            answer.seen(path, status.as_str())
        } else {
            answer.seen(driver_path(facts), driver)
        }
    };
    Some(match status.as_str() {
        "active" => answer(ok("the driver is in active mode")),
        "passive" | "guided" => {
            let why = match facts.parameter(parameter) {
                Some(value) if value == status => {
                    format!(", as {parameter}={value} on the command line requests")
                }
                // intel_pstate_init: without HWP the default driver is intel_cpufreq, in passive
                // mode.
                _ if parameter == "intel_pstate" && !facts.flag("hwp") => {
                    ", the kernel's default without hardware P-states".to_owned()
                }
                _ => String::new(),
            };
            answer(note(format!("the driver is in {status} mode{why}: a governor chooses the speed")))
        }
        other => answer(note(format!("the driver is in an unknown mode: {other}"))),
    })
}

fn hwp(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let register = facts.online.first().map(|cpu| facts.msr(cpu, MSR_PM_ENABLE));
    let says = |text: &str| facts.log.as_deref().is_some_and(|log| log.contains(text));
    if !facts.flag("hwp") {
        // Firmware that hides HWP hides the flag too, but model 55h and later servers all have HWP.
        let has_hwp = models::always_hwp(facts);
        return Some(if !has_hwp && !models::before_hwp(facts) {
            unknown(format!(
                "the processor reports no hardware P-states; whether CPU model {:#x} has them is unknown",
                facts.model
            ))
            .seen("/proc/cpuinfo flags", "no hwp")
        } else if has_hwp {
            warning("this processor model has hardware P-states, but the firmware hides them")
                .seen("/proc/cpuinfo flags", "no hwp")
                .firmware("set Hardware P-States (Hardware PM State Control) to Native Mode")
        } else {
            ok("this processor is older than hardware P-states").seen("/proc/cpuinfo flags", "no hwp")
        });
    }
    let answer = match register {
        // Prefer the register to the log, whose first lines since boot may be lost.
        Some(Ok(value)) if value & 1 == 1 => {
            ok("hardware P-states are on").seen(format!("MSR {MSR_PM_ENABLE:#x}"), format!("{value:#x}"))
        }
        Some(Ok(value)) => hwp_off(facts).seen(format!("MSR {MSR_PM_ENABLE:#x}"), format!("{value:#x}")),
        _ if says("HWP enabled") => {
            ok("hardware P-states are on").seen("kernel log", "intel_pstate: HWP enabled")
        }
        _ if says("HWP not enabled") => hwp_off(facts).seen("kernel log", "intel_pstate: HWP not enabled"),
        // intel_pstate shows preferences only with HWP (intel_pstate.c, hwp_cpufreq_attrs).
        _ if facts.policies.iter().any(|policy| policy.get("energy_performance_preference").is_some()) => {
            ok("hardware P-states are on: the driver offers energy preferences").seen(
                facts.policies[0].path("energy_performance_preference"),
                facts.policies[0].get("energy_performance_preference").unwrap_or("missing"),
            )
        }
        Some(Err(why)) => unknown(why),
        None => unknown(NO_CPU_ONLINE),
    };
    Some(answer.seen("/proc/cpuinfo flags", "hwp"))
}

fn hwp_off(facts: &Facts) -> Answer {
    // Broadwell servers and some hypervisors have HWP without the preference. The kernel then
    // leaves HWP off, unless firmware enabled it (intel_pstate_init). No firmware setting changes
    // that.
    if !facts.flag("hwp_epp") {
        return ok("the kernel leaves hardware P-states off: the processor has them without energy preferences (EPP)")
            .seen("/proc/cpuinfo flags", "no hwp_epp");
    }
    match facts.parameter("intel_pstate") {
        Some(value) if value.split(',').any(|word| matches!(word, "no_hwp" | "disable")) => {
            warning("hardware P-states are disabled on the command line")
                .seen("/proc/cmdline", format!("intel_pstate={value}"))
                .parameter(format!("remove intel_pstate={value}"))
        }
        _ => warning("the processor has hardware P-states, but they are off")
            .firmware("set Hardware P-States (Hardware PM State Control) to Native Mode"),
    }
}

fn same(facts: &Facts) -> Option<Answer> {
    let groups = facts.by_value("scaling_driver");
    let with: CpuList =
        facts.policies.iter().flat_map(|policy| policy.cpus.iter().collect::<Vec<_>>()).collect();
    let without = facts.online.difference(&with);
    match groups.as_slice() {
        [] => None,
        [(driver, cpus)] if !without.is_empty() => Some(
            warning(format!(
                "{} have no cpufreq policy: firmware alone decides their speed",
                cpu_words(&without)
            ))
            .seen(flyball_host::topology::POLICIES, format!("{driver} on {}", cpu_words(cpus)))
            .person("look in the kernel log for why the driver failed on these CPUs"),
        ),
        [(driver, cpus)] => Some(ok(format!("all policies use {driver}")).seen("CPUs", cpus.to_string())),
        several => {
            let answer =
                several.iter().fold(fault("CPUs have different drivers"), |answer, (driver, cpus)| {
                    answer.seen(format!("CPUs {}", cpus.short()), driver.clone())
                });
            Some(answer.person("look in the kernel log for why the driver failed on some CPUs"))
        }
    }
}
