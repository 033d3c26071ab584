//! The table of situations: a recorded machine, its change, and the expected answer of the doctor.

use flyball_control::doctor::Verdict::{Fault, Note, Unknown, Warning};

use super::situations::{
    Change::{self, Added, File, Register, RegisterOf, Word},
    Situation,
};

macro_rules! cpu {
    ($file:literal) => {
        concat!("/sys/devices/system/cpu/", $file)
    };
}

const LAPTOP: &str = "dell-latitude";

const fn row(
    machine: &'static str,
    change: Change,
    id: &'static str,
    verdict: flyball_control::doctor::Verdict,
    remedy: &'static str,
) -> Situation {
    Situation { machine, change, id, verdict, remedy }
}

pub(super) fn situations() -> Vec<Situation> {
    [settings(), idle(), registers(), firmware(), amd()].into_iter().flatten().collect()
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn settings() -> Vec<Situation> {
    let file = File;
    vec![
        row(
            LAPTOP,
            file(cpu!("cpufreq/policy3/scaling_governor"), "performance"),
            "conflict.governor",
            Warning,
            "governor=powersave",
        ),
        row(
            LAPTOP,
            file(cpu!("cpufreq/policy2/scaling_max_freq"), "2000000"),
            "conflict.limits",
            Warning,
            "max-freq=max",
        ),
        row(
            LAPTOP,
            file(cpu!("cpufreq/policy1/scaling_max_freq"), "1200000"),
            "conflict.below-base",
            Warning,
            "max-freq=max",
        ),
        row(
            LAPTOP,
            file(cpu!("cpufreq/policy0/scaling_min_freq"), "4800000"),
            "conflict.pinned-minimum",
            Note,
            "min-freq=min",
        ),
        row(
            LAPTOP,
            file(cpu!("cpufreq/policy0/scaling_min_freq"), "2000000"),
            "conflict.raised-minimum",
            Note,
            "min-freq=min",
        ),
        row(
            LAPTOP,
            file(cpu!("cpufreq/policy5/energy_performance_preference"), "power"),
            "conflict.epp",
            Warning,
            "epp=",
        ),
        row(LAPTOP, file(cpu!("intel_pstate/no_turbo"), "1"), "conflict.turbo-off", Warning, "turbo=on"),
        row(
            LAPTOP,
            file(cpu!("intel_pstate/max_perf_pct"), "70"),
            "conflict.perf-pct",
            Warning,
            "max-perf-pct=100",
        ),
        row(
            LAPTOP,
            file(cpu!("intel_pstate/min_perf_pct"), "50"),
            "conflict.perf-pct",
            Note,
            "min-perf-pct=min",
        ),
        row(LAPTOP, file(cpu!("intel_pstate/status"), "passive"), "driver.mode", Note, ""),
        row(LAPTOP, file(cpu!("cpu2/power/energy_perf_bias"), "0"), "firmware.energy-bias", Warning, "epb="),
        row(LAPTOP, file(cpu!("smt/control"), "off"), "firmware.smt", Note, ""),
        row(
            "adl0",
            file(cpu!("cpufreq/policy9/energy_performance_preference"), "power"),
            "conflict.epp",
            Warning,
            "epp@type:E=balance_performance",
        ),
        row(
            "adl0",
            file(cpu!("cpufreq/policy4/scaling_max_freq"), "3000000"),
            "conflict.limits",
            Warning,
            "max-freq=max",
        ),
        row(
            "adl0",
            file(cpu!("cpufreq/policy12/scaling_max_freq"), "1000000"),
            "conflict.below-base",
            Warning,
            "max-freq=max",
        ),
        row(
            "adl0",
            file(cpu!("intel_pstate/max_perf_pct"), "90"),
            "conflict.perf-pct",
            Warning,
            "max-perf-pct=100",
        ),
        row(
            "skld0",
            file(cpu!("cpufreq/policy3/scaling_governor"), "powersave"),
            "conflict.powersave",
            Warning,
            "governor=",
        ),
        row("skld0", file(cpu!("intel_pstate/no_turbo"), "1"), "conflict.turbo-off", Warning, "turbo=on"),
        row(
            "bdwup0",
            file(cpu!("intel_pstate/min_perf_pct"), "60"),
            "conflict.perf-pct",
            Note,
            "min-perf-pct=min",
        ),
        row(
            "clx2s0",
            file(cpu!("cpufreq/policy4/scaling_driver"), "acpi-cpufreq"),
            "driver.same",
            Fault,
            "kernel log",
        ),
        row(
            "clx2s0",
            file(cpu!("cpufreq/policy95/scaling_max_freq"), "2000000"),
            "conflict.below-base",
            Warning,
            "max-freq=max",
        ),
        row("icx2s0", file(cpu!("intel_pstate/no_turbo"), "1"), "conflict.turbo-off", Warning, "turbo=on"),
        row(
            "srf8",
            file(cpu!("cpufreq/policy100/energy_performance_preference"), "power"),
            "conflict.epp",
            Warning,
            "epp=",
        ),
    ]
}

fn idle() -> Vec<Situation> {
    vec![
        row(
            LAPTOP,
            File(cpu!("cpu4/power/pm_qos_resume_latency_us"), "n/a"),
            "conflict.latency-limit",
            Warning,
            "latency-limit=no-limit",
        ),
        row(
            LAPTOP,
            File(cpu!("cpu0/power/pm_qos_resume_latency_us"), "100"),
            "conflict.latency-limit",
            Note,
            "latency-limit=no-limit",
        ),
        row(
            LAPTOP,
            File(cpu!("cpu1/cpuidle/state2/disable"), "1"),
            "conflict.cpuidle",
            Note,
            "idle-state=default",
        ),
        row(LAPTOP, File(cpu!("cpuidle/current_driver"), "none"), "conflict.cpuidle", Warning, "C-states"),
        row(LAPTOP, Added("/proc/cmdline", "idle=poll"), "conflict.cpuidle", Warning, "remove idle=poll"),
        row(
            "clx2s0",
            Added("/proc/cmdline", "intel_idle.max_cstate=3"),
            "conflict.cpuidle",
            Note,
            "remove intel_idle.max_cstate=3",
        ),
        row(
            "bdwup0",
            Added("/proc/cmdline", "isolcpus=2 nohz_full=2"),
            "conflict.observer",
            Note,
            "--observer none",
        ),
        row(
            "milan0",
            File(cpu!("cpu9/cpuidle/state2/disable"), "1"),
            "conflict.cpuidle",
            Note,
            "idle-state=default",
        ),
        row(
            "turin0",
            File(cpu!("cpu200/power/pm_qos_resume_latency_us"), "n/a"),
            "conflict.latency-limit",
            Warning,
            "latency-limit=no-limit",
        ),
    ]
}

fn registers() -> Vec<Situation> {
    vec![
        row(LAPTOP, Register(0x774, 0xff00_3004), "conflict.registers", Warning, "another program"),
        row(LAPTOP, RegisterOf(3, 0x774, 0x8000_1004), "conflict.registers", Warning, "another program"),
        row(LAPTOP, RegisterOf(5, 0x1fc, 0x24_0059), "firmware.c1e", Warning, ""),
        row(LAPTOP, RegisterOf(5, 0x1fc, 0x24_005a), "firmware.bd-prochot", Note, "BD PROCHOT"),
        row(LAPTOP, Register(0x19c, 0x883c_0001), "now.prochot", Fault, "power supply"),
        row(LAPTOP, Register(0x19c, 0x883c_000c), "now.prochot", Fault, "power supply"),
        row(LAPTOP, Register(0x19c, 0x8801_0003), "now.prochot", Fault, "heat sink"),
        row(LAPTOP, Register(0x64f, 0x400), "now.limit-reasons", Warning, ""),
        row(LAPTOP, Register(0x1a0, 0x40_0085_0089), "firmware.turbo", Warning, "Turbo Mode"),
        row("clx2s0", Register(0x770, 0), "driver.hwp", Warning, "Native Mode"),
        row("clx2s0", Register(0x1aa, 0x100), "firmware.p-state-control", Warning, "Native Mode"),
        row("clx2s0", Register(0x64b, 0x8000_0000), "firmware.speed-select", Note, "Speed Select"),
        row("clx2s0", Register(0x771, 0x70a_1027), "firmware.guaranteed", Note, ""),
        row("clx2s0", RegisterOf(30, 0x774, 0xff00_270a), "conflict.registers", Warning, "another program"),
        row("turin0", Register(0xc001_02b1, 0), "amd-pstate.enabled", Fault, ""),
        row("turin0", Register(0xc001_02b3, 0xff00_46ff), "conflict.registers", Warning, "another program"),
        row("milan0", Register(0xc001_0061, 0x21), "now.amd-current-limit", Warning, "fans"),
    ]
}

fn firmware() -> Vec<Situation> {
    let package_1 = cpu!("intel_uncore_frequency/package_01_die_01/max_freq_khz");
    vec![
        row(LAPTOP, Register(0xe2, 0x7400_8000), "firmware.package-c-state", Note, "Package C State"),
        row(LAPTOP, Register(0xe2, 0x7400_800f), "firmware.package-c-state", Unknown, ""),
        row(
            LAPTOP,
            Word("/proc/cpuinfo", "model\t\t: 140", "model\t\t: 250"),
            "firmware.package-c-state",
            Unknown,
            "",
        ),
        row(LAPTOP, Word("/proc/cpuinfo", " hwp ", " "), "driver.hwp", Warning, "Native Mode"),
        row("clx2s0", RegisterOf(24, 0xe2, 0x8402), "firmware.package-c-state", Note, "Package C State"),
        row(
            "clx2s0",
            File(cpu!("intel_uncore_frequency/package_00_die_00/max_freq_khz"), "1500000"),
            "firmware.uncore",
            Warning,
            "uncore-max-freq=max",
        ),
        row("clx2s0", File(package_1, "1500000"), "firmware.uncore", Warning, "uncore-max-freq=max"),
        row(
            "clx2s0",
            File(cpu!("intel_uncore_frequency/package_00_die_00/min_freq_khz"), "2000000"),
            "firmware.uncore",
            Note,
            "uncore-min-freq=min",
        ),
        row(
            "clx2s0",
            File(cpu!("intel_uncore_frequency/package_01_die_01/min_freq_khz"), "3000000"),
            "firmware.uncore",
            Fault,
            "uncore-min-freq=min",
        ),
        row("clx2s0", Word("/proc/cpuinfo", " ida ", " "), "firmware.turbo", Note, "Turbo Mode"),
        row(
            "srf8",
            File(
                "/sys/kernel/debug/tpmi-0000:00:03.1/plr/domain0/status",
                "cpus THERMAL\ncpu0 THERMAL THERMAL_PER_CORE",
            ),
            "now.tpmi-limits",
            Note,
            "write 0",
        ),
    ]
}

fn amd() -> Vec<Situation> {
    let command_line = "/proc/cmdline";
    vec![
        row("milan0", Added(command_line, "amd_pstate=active"), "driver.best", Warning, "dmesg"),
        row(
            "milan0",
            Added(command_line, "amd_pstate=disable"),
            "driver.best",
            Warning,
            "remove amd_pstate=disable",
        ),
        row(
            "milan0",
            Added(command_line, "module_blacklist=amd_pstate"),
            "driver.best",
            Warning,
            "remove the amd_pstate entry",
        ),
        row(
            "milan0",
            File(cpu!("cpu0/acpi_cppc/nominal_freq"), "0"),
            "driver.best",
            Warning,
            "update the firmware",
        ),
        row(
            "milan0",
            File(cpu!("cpu0/acpi_cppc/lowest_freq"), "0"),
            "driver.best",
            Warning,
            "update the firmware",
        ),
        row("milan0", File(cpu!("cpufreq/boost"), "0"), "conflict.turbo-off", Warning, "turbo=on"),
        row(
            "milan0",
            File(cpu!("cpufreq/policy7/bios_limit"), "1500000"),
            "firmware.bios-limit",
            Warning,
            "management controller",
        ),
        row(
            "milan0",
            File(cpu!("cpufreq/policy7/scaling_governor"), "powersave"),
            "conflict.powersave",
            Warning,
            "governor=",
        ),
        row(
            "milan0",
            Word("/proc/cpuinfo", " cpb ", " "),
            "firmware.turbo",
            Warning,
            "Core Performance Boost",
        ),
        row("turin0", File(cpu!("cpufreq/policy7/boost"), "0"), "conflict.turbo", Warning, "boost=on"),
        row(
            "turin0",
            File(cpu!("cpufreq/policy3/energy_performance_preference"), "power"),
            "conflict.epp",
            Warning,
            "epp=",
        ),
        row("turin0", File(cpu!("amd_pstate/status"), "passive"), "driver.mode", Note, ""),
        row("turin0", File(cpu!("cpu1/acpi_cppc/nominal_perf"), "100"), "amd-pstate.perf", Fault, ""),
        row(
            "turin0",
            File(cpu!("cpufreq/policy1/amd_pstate_lowest_nonlinear_freq"), "900000"),
            "amd-pstate.freq",
            Fault,
            "",
        ),
    ]
}
