//! The table: a check, a machine, one change to it, and the expected answer.

use flyball_control::doctor::Verdict;

use super::machines::{
    CLOCK, CPU, Files, PROFILE, PROFILE_DEVICES, acpi, amd, client, each_policy, epyc, flags, for_latency,
    haswell, intel, msr, msr_by_cpu, no_policies, put, tpmi,
};

pub(super) struct Row {
    pub id: &'static str,
    pub base: fn() -> Files,
    pub change: fn(&mut Files),
    pub expected: Verdict,
}

pub(super) fn row(id: &'static str, base: fn() -> Files, change: fn(&mut Files), expected: Verdict) -> Row {
    Row { id, base, change, expected }
}

/// Switches hardware P-states off on a processor that has them: the driver then offers no
/// preferences.
fn hwp_off(files: &mut Files) {
    msr(files, 0x770, "0");
    files.retain(|path, _| !path.ends_with("energy_performance_preference"));
}

/// Simulates a kernel that leaves every server to acpi-cpufreq (amd_pstate_init).
fn server_of_6_12(files: &mut Files) {
    put(files, "proc/sys/kernel/osrelease", "6.12.117");
    put(files, "sys/firmware/acpi/pm_profile", "4");
}

/// Removes the energy preferences, without which the kernel skips hardware P-states.
fn hwp_without_preferences(files: &mut Files) {
    hwp_off(files);
    flags(files, " hwp_epp", "");
}

fn uncore_minimum(files: &mut Files) {
    put(files, format!("{CPU}/intel_uncore_frequency/package_00_die_00/min_freq_khz"), "2000000");
}

/// Adds a firmware limit, which scaling_max_freq shows because it is in force.
fn capped_by_firmware(files: &mut Files) {
    each_policy(files, "bios_limit", "1500000");
    each_policy(files, "scaling_max_freq", "1500000");
}

/// Locks the performance level of a Cascade Lake; Skylake has no Speed Select.
fn cascade_lake_locked(files: &mut Files) {
    flags(files, "stepping\t: 4", "stepping\t: 7");
    msr(files, 0x64b, "80000000");
}

fn power_capped(files: &mut Files) {
    msr(files, 0xce, "1400");
    msr(files, 0x771, "5081025");
}

fn idle_parameter(files: &mut Files) {
    put(files, format!("{CPU}/cpuidle/current_driver"), "intel_idle");
    put(files, "proc/cmdline", "intel_idle.max_cstate=1");
    files.retain(|path, _| !path.contains("cpuidle/state2"));
}

/// Adds states that the driver lists but leaves off.
fn idle_states_off_since_boot(files: &mut Files) {
    for cpu in 0..4 {
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state2/disable"), "1");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state2/default_status"), "disabled");
    }
}

/// Switches to passive mode, with this request in the register.
fn passive(files: &mut Files, governor: &str, request: &str) {
    put(files, format!("{CPU}/intel_pstate/status"), "passive");
    each_policy(files, "scaling_driver", "intel_cpufreq");
    each_policy(files, "scaling_governor", governor);
    each_policy(files, "scaling_setspeed", "2000000");
    msr(files, 0x774, request);
}

/// Takes the last CPU offline, so that its policy refuses reads.
fn sleeping_policy(files: &mut Files, file: &str) {
    put(files, format!("{CPU}/online"), "0-2");
    files.remove(&format!("{CPU}/cpufreq/policy3/{file}"));
}

/// Gives each CPU the part and the revision of an Arm core.
fn arm_cores(files: &mut Files, cores: [&str; 4]) {
    let block = |(cpu, core): (usize, &str)| {
        let (part, revision) = core.split_once(' ').unwrap();
        format!(
            "processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: {part}\nCPU revision\t: {revision}\n\n"
        )
    };
    put(files, "proc/cpuinfo", cores.into_iter().enumerate().map(block).collect::<String>());
}

fn other_stepping(files: &mut Files) {
    let text = files["proc/cpuinfo"].clone().unwrap();
    put(files, "proc/cpuinfo", text.replacen("stepping\t: 4", "stepping\t: 3", 1));
}

fn cpuidle_off(files: &mut Files) {
    files.retain(|path, _| !path.contains("/cpuidle/"));
    put(files, "proc/cmdline", "ro cpuidle.off=1");
}

/// Makes CPU 3 leave a state of 133 us 100 times a second, which took 1.3 % of its time.
fn many_deep_exits(files: &mut Files) {
    put(files, format!("{CPU}/cpu3/cpuidle/state2/usage"), "100000");
}

/// Adds a hot k10temp, which has no limit.
fn hot_amd(files: &mut Files) {
    files.remove("sys/class/hwmon/hwmon0/temp1_crit");
    put(files, "sys/class/hwmon/hwmon0/temp1_input", "97000");
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn rows() -> Vec<Row> {
    use Verdict::{Fault, Note, Ok, Unknown, Warning};
    vec![
        row("driver.present", intel, no_policies, Fault),
        // The kernel may exclude a machine whose profile is unknown.
        row("driver.best", acpi, |_| {}, Note),
        row("driver.best", acpi, |f| put(f, "sys/firmware/acpi/pm_profile", "0"), Note),
        row("driver.best", acpi, |f| put(f, "sys/firmware/acpi/pm_profile", "2"), Warning),
        row("driver.best", acpi, |f| put(f, "proc/cmdline", "amd_pstate=disable"), Warning),
        row("driver.best", acpi, |f| put(f, "proc/cmdline", "amd_pstate=active"), Warning),
        row("driver.best", acpi, |f| put(f, format!("{CPU}/cpu0/acpi_cppc/nominal_freq"), "0"), Warning),
        row("driver.mode", intel, |f| put(f, format!("{CPU}/intel_pstate/status"), "passive"), Note),
        row("driver.hwp", intel, |f| flags(f, " hwp hwp_epp", ""), Warning),
        row("driver.hwp", intel, hwp_off, Warning),
        row("driver.hwp", intel, hwp_without_preferences, Ok),
        row(
            "driver.same",
            intel,
            |f| put(f, format!("{CPU}/cpufreq/policy2/scaling_driver"), "acpi-cpufreq"),
            Fault,
        ),
        row("amd-pstate.cpc-valid", acpi, |_| {}, Unknown),
        row("amd-pstate.cpc-valid", amd, |f| f.retain(|path, _| !path.contains("cpu3/acpi_cppc")), Fault),
        row("amd-pstate.enabled", amd, |f| msr(f, 0xc001_02b1, "0"), Fault),
        row("amd-pstate.perf", amd, |f| put(f, format!("{CPU}/cpu1/acpi_cppc/nominal_perf"), "70"), Fault),
        row(
            "amd-pstate.freq",
            amd,
            |f| put(f, format!("{CPU}/cpufreq/policy1/amd_pstate_lowest_nonlinear_freq"), "900000"),
            Fault,
        ),
        row(
            "firmware.p-state-control",
            intel,
            |f| {
                msr(f, 0x1aa, "40100");
                each_policy(f, "scaling_driver", "acpi-cpufreq");
            },
            Warning,
        ),
        row(
            "firmware.turbo",
            intel,
            |f| {
                msr(f, 0x1a0, "4000850089");
                flags(f, "ida ", "");
            },
            Warning,
        ),
        row("firmware.turbo", amd, |f| flags(f, "cpb ", ""), Warning),
        row("firmware.package-c-state", intel, |f| msr(f, 0xe2, "8400"), Note),
        // A value missing from the model's table, and a model without a table.
        row("firmware.package-c-state", intel, |f| msr(f, 0xe2, "8404"), Unknown),
        row("firmware.package-c-state", intel, |f| flags(f, "model\t\t: 85", "model\t\t: 250"), Unknown),
        row(
            "firmware.c1e",
            intel,
            |f| put(f, "msr.txt", f["msr.txt"].clone().unwrap().replace("1fc:0|2904005b", "1fc:0|29040059")),
            Warning,
        ),
        row(
            "firmware.energy-bias",
            intel,
            |f| put(f, format!("{CPU}/cpu2/power/energy_perf_bias"), "0"),
            Warning,
        ),
        row("firmware.power-limit", intel, |f| msr(f, 0x610, "8200"), Warning),
        row("firmware.bios-limit", acpi, |f| each_policy(f, "bios_limit", "1500000"), Warning),
        // If the firmware's limit is as low as cpufreq's, only the firmware's is reported.
        row("firmware.bios-limit", acpi, capped_by_firmware, Warning),
        row(
            "firmware.uncore",
            intel,
            |f| put(f, format!("{CPU}/intel_uncore_frequency/package_00_die_00/max_freq_khz"), "1800000"),
            Warning,
        ),
        row("firmware.uncore", intel, uncore_minimum, Note),
        // With levels of Speed Select (0xce bits 34:33) it may be on purpose, otherwise not.
        row("firmware.guaranteed", intel, |f| msr(f, 0x771, "5081025"), Note),
        row("firmware.guaranteed", intel, power_capped, Warning),
        // Half of the CPUs guarantee more: base-freq.
        row("firmware.guaranteed", intel, |f| msr_by_cpu(f, 0x771, "5081025", "5081825"), Note),
        // On these models the lock is in Speed Select's block, whatever the old register contains.
        row("firmware.speed-select", tpmi, |_| {}, Unknown),
        row("firmware.speed-select", intel, cascade_lake_locked, Note),
        row("firmware.bd-prochot", intel, |f| msr(f, 0x1fc, "2904005a"), Note),
        row(
            "firmware.amd-power-limit",
            epyc,
            |f| put(f, "sys/class/hwmon/hwmon2/power1_cap", "400000000"),
            Warning,
        ),
        row(
            "firmware.determinism",
            epyc,
            |f| put(f, "sys/class/hwmon/hwmon2/power1_input", "330000000"),
            Note,
        ),
        row("firmware.smt", intel, |f| put(f, format!("{CPU}/smt/control"), "off"), Note),
        row(
            "conflict.governor",
            intel,
            |f| put(f, format!("{CPU}/cpufreq/policy1/scaling_governor"), "performance"),
            Warning,
        ),
        row(
            "conflict.limits",
            intel,
            |f| put(f, format!("{CPU}/cpufreq/policy1/scaling_max_freq"), "2500000"),
            Warning,
        ),
        row("conflict.below-base", intel, |f| each_policy(f, "scaling_max_freq", "1500000"), Warning),
        row("conflict.pinned-minimum", intel, |f| each_policy(f, "scaling_min_freq", "3700000"), Note),
        row("conflict.raised-minimum", intel, |f| each_policy(f, "scaling_min_freq", "2500000"), Note),
        row("conflict.governor-epp", intel, |f| each_policy(f, "scaling_governor", "performance"), Note),
        row(
            "conflict.powersave",
            acpi,
            |f| {
                each_policy(f, "scaling_governor", "powersave");
                each_policy(f, "scaling_available_governors", "powersave ondemand");
            },
            Warning,
        ),
        row(
            "conflict.epb-epp",
            intel,
            |f| {
                each_policy(f, "energy_performance_preference", "performance");
                (0..4).for_each(|cpu| put(f, format!("{CPU}/cpu{cpu}/power/energy_perf_bias"), "15"));
            },
            Warning,
        ),
        row("conflict.turbo", amd, |f| put(f, format!("{CPU}/cpufreq/policy1/boost"), "0"), Warning),
        row("conflict.nohz-full", haswell, |f| put(f, "proc/cmdline", "isolcpus=2,3 nohz_full=2,3"), Fault),
        // rcu_nocbs= does not help: the kernel offloads tickless CPUs in any case.
        row(
            "conflict.nohz-full",
            haswell,
            |f| put(f, "proc/cmdline", "isolcpus=nohz,domain,2-N rcu_nocbs=all"),
            Fault,
        ),
        // Since 4.9 the governor performance sets the speed at once.
        row(
            "conflict.nohz-full",
            haswell,
            |f| {
                put(f, "proc/cmdline", "isolcpus=2,3 nohz_full=2,3");
                each_policy(f, "scaling_governor", "performance");
            },
            Ok,
        ),
        row(
            "conflict.nohz-full",
            haswell,
            |f| {
                put(f, "proc/cmdline", "isolcpus=2,3 nohz_full=2,3");
                put(f, "proc/sys/kernel/osrelease", "4.8.0");
                f.remove("proc/version");
                each_policy(f, "scaling_governor", "performance");
            },
            Fault,
        ),
        // Hardware P-states need no tick.
        row("conflict.nohz-full", intel, |f| put(f, "proc/cmdline", "isolcpus=2,3 nohz_full=2,3"), Ok),
        // The kernel refuses a list with an impossible CPU.
        row(
            "conflict.nohz-full",
            haswell,
            |f| {
                put(f, "proc/cmdline", "nohz_full=2-9");
                put(f, format!("{CPU}/nohz_full"), "");
            },
            Note,
        ),
        row("conflict.observer", intel, |f| put(f, "proc/cmdline", "isolcpus=2,3"), Note),
        row(
            "conflict.interrupts",
            for_latency,
            |f| put(f, "proc/cmdline", "isolcpus=2,3 irqaffinity=0-2"),
            Warning,
        ),
        row(
            "conflict.interrupts",
            for_latency,
            |f| put(f, "proc/cmdline", "isolcpus=2,3 irqaffinity=0-"),
            Unknown,
        ),
        row(
            "conflict.epb-uncore",
            for_latency,
            |f| put(f, format!("{CPU}/cpu1/power/energy_perf_bias"), "6"),
            Warning,
        ),
        row(
            "driver.default-governor",
            for_latency,
            |f| put(f, "proc/cmdline", "cpufreq.default_governor=schedutil"),
            Note,
        ),
        row("conflict.cpuidle", intel, |f| put(f, format!("{CPU}/cpuidle/current_driver"), "none"), Warning),
        row(
            "now.throttled",
            intel,
            |f| put(f, format!("{CPU}/cpu1/thermal_throttle/core_throttle_count"), "7"),
            Note,
        ),
        row("conflict.cpuidle", intel, idle_parameter, Warning),
        row("conflict.cpuidle", intel, idle_states_off_since_boot, Ok),
        row("conflict.cpuidle", amd, |f| put(f, "proc/cmdline", "intel_idle.max_cstate=0"), Ok),
        row("conflict.cpuidle", intel, |f| put(f, "proc/cmdline", "idle=poll"), Warning),
        row("conflict.cpuidle", intel, |f| put(f, format!("{CPU}/cpu3/cpuidle/state2/disable"), "1"), Note),
        row("conflict.turbo-off", intel, |f| put(f, format!("{CPU}/intel_pstate/no_turbo"), "1"), Warning),
        row("conflict.turbo-off", amd, |f| put(f, format!("{CPU}/cpufreq/boost"), "0"), Warning),
        row("conflict.turbo-off", amd, |f| each_policy(f, "boost", "0"), Warning),
        row(
            "conflict.perf-pct",
            intel,
            |f| put(f, format!("{CPU}/intel_pstate/max_perf_pct"), "80"),
            Warning,
        ),
        row("conflict.perf-pct", intel, |f| put(f, format!("{CPU}/intel_pstate/min_perf_pct"), "60"), Note),
        row(
            "conflict.epp",
            intel,
            |f| put(f, format!("{CPU}/cpufreq/policy3/energy_performance_preference"), "power"),
            Warning,
        ),
        row(
            "conflict.latency-limit",
            intel,
            |f| put(f, format!("{CPU}/cpu2/power/pm_qos_resume_latency_us"), "n/a"),
            Warning,
        ),
        row(
            "conflict.latency-limit",
            amd,
            |f| put(f, format!("{CPU}/cpu2/power/pm_qos_resume_latency_us"), "20"),
            Note,
        ),
        // The limit equals the slowest state's latency.
        row(
            "conflict.latency-limit",
            intel,
            |f| put(f, format!("{CPU}/cpu2/power/pm_qos_resume_latency_us"), "133"),
            Ok,
        ),
        row("conflict.registers", intel, |f| msr(f, 0x774, "ff00250a"), Warning),
        row("conflict.registers", intel, |f| msr(f, 0x774, "8000180a"), Warning),
        row("conflict.registers", amd, |f| msr(f, 0xc001_02b3, "28c8"), Warning),
        // Without the levels, nothing can be compared.
        row(
            "conflict.registers",
            amd,
            |f| f.retain(|path, _| !path.ends_with("cpu2/acpi_cppc/nominal_perf")),
            Unknown,
        ),
        // In passive mode the driver writes the governor's level.
        row("conflict.registers", intel, |f| passive(f, "conservative", "800a250a"), Ok),
        row("conflict.registers", intel, |f| passive(f, "performance", "80252525"), Ok),
        row("conflict.registers", intel, |f| passive(f, "powersave", "800a0a0a"), Ok),
        row("conflict.registers", intel, |f| passive(f, "userspace", "80141414"), Ok),
        // A maximum that no governor requests, and a minimum above the level.
        row("conflict.registers", intel, |f| passive(f, "performance", "80141414"), Warning),
        row("conflict.registers", intel, |f| passive(f, "schedutil", "800a140a"), Warning),
        row("conflict.registers", intel, |f| passive(f, "schedutil", "800a2514"), Warning),
        // The percentage raises the minimum that the driver requests.
        row(
            "conflict.registers",
            intel,
            |f| {
                put(f, format!("{CPU}/intel_pstate/min_perf_pct"), "60");
                msr(f, 0x774, "80002516");
            },
            Ok,
        ),
        // On a processor whose siblings are offline, the online policies are enough.
        row("conflict.registers", intel, |f| sleeping_policy(f, "scaling_min_freq"), Ok),
        row("firmware.amd-max-freq", amd, |f| sleeping_policy(f, "amd_pstate_max_freq"), Ok),
        row(
            "firmware.amd-max-freq",
            amd,
            |f| put(f, format!("{CPU}/cpufreq/policy2/amd_pstate_max_freq"), "4700000"),
            Note,
        ),
        row("firmware.prefcore", amd, |f| put(f, format!("{CPU}/cpu1/acpi_cppc/highest_perf"), "230"), Note),
        row("now.prochot", intel, |f| msr(f, 0x19c, "882a0001"), Fault),
        // Bit 2: another device asserts PROCHOT. Bit 3 is its log.
        row("now.prochot", intel, |f| msr(f, 0x19c, "882a000c"), Fault),
        row("now.prochot", intel, |f| msr(f, 0x1b1, "882a000c"), Fault),
        row("now.prochot", intel, |f| msr(f, 0x19c, "882a0008"), Note),
        row("now.prochot", intel, |f| msr(f, 0x19c, "88020003"), Fault),
        row("now.limit-reasons", client, |f| msr(f, 0x64f, "400"), Warning),
        // A small load needs no more (bit 5 of Haswell's register), which is not a limit.
        row("now.limit-reasons", haswell, |f| msr(f, 0x690, "20"), Ok),
        row("now.limit-reasons", haswell, |f| msr(f, 0x690, "400"), Warning),
        row("now.limit-reasons", intel, |f| flags(f, "model\t\t: 85", "model\t\t: 250"), Unknown),
        row(
            "now.tpmi-limits",
            tpmi,
            |f| {
                put(
                    f,
                    "sys/kernel/debug/tpmi-0000:00:03.1/plr/domain1/status",
                    "cpus POWER THERMAL\ncpu2 POWER POWER_PKG_PL1_MSR_TPMI\ncpu3 none",
                );
            },
            Note,
        ),
        row("now.thermal-status", intel, |f| msr(f, 0x1b1, "882a0400"), Warning),
        row("now.thermal-status", intel, |f| msr(f, 0x19c, "882a1000"), Warning),
        row("now.thermal-status", intel, |f| msr(f, 0x19c, "882a0010"), Fault),
        row("now.thermal-status", intel, |f| msr(f, 0x19c, "882a0800"), Note),
        row("now.amd-current-limit", amd, |f| msr(f, 0xc001_0061, "21"), Warning),
        row(
            "now.amd-limit-source",
            epyc,
            |f| {
                put(
                    f,
                    "sys/devices/platform/AMDI0097:01/pwr_current_active_freq_limit_source",
                    "TDC limit PPT Limit ",
                );
            },
            Warning,
        ),
        row(
            "now.amd-limit-source",
            epyc,
            |f| put(f, "sys/devices/platform/AMDI0097:00/prochot_status", "1"),
            Fault,
        ),
        row("now.temperature", intel, |f| put(f, "sys/class/hwmon/hwmon0/temp1_input", "99000"), Warning),
        row("now.offline", intel, |f| put(f, format!("{CPU}/online"), "0-2"), Note),
        row("now.owners", intel, |f| put(f, "proc/77/comm", "thermald"), Note),
        row("storpool.hwp", intel, hwp_off, Warning),
        row("storpool.autonomous-c-state", intel, |f| msr(f, 0xe2, "8402"), Warning),
        row("storpool.energy-bias", intel, |_| {}, Warning),
        row("storpool.governor", intel, |f| each_policy(f, "scaling_governor", "performance"), Warning),
        row("driver.best", acpi, server_of_6_12, Note),
        row("driver.same", intel, |f| f.retain(|path, _| !path.contains("/cpufreq/policy3/")), Warning),
        row("firmware.platform-profile", client, |f| put(f, PROFILE, "low-power"), Note),
        row(
            "conflict.platform-profile",
            client,
            |f| put(f, format!("{PROFILE_DEVICES}/platform-profile-1/profile"), "performance"),
            Warning,
        ),
        row(
            "conflict.scheduler",
            acpi,
            |f| {
                put(f, "sys/kernel/sched_ext/root/ops", "simple");
                put(f, "sys/kernel/sched_ext/switch_all", "1");
                each_policy(f, "scaling_governor", "schedutil");
            },
            Warning,
        ),
        row("firmware.same-processors", intel, other_stepping, Warning),
        // Two types of Arm cores, and two revisions of one type.
        row(
            "firmware.same-processors",
            intel,
            |f| arm_cores(f, ["0xd05 2", "0xd05 2", "0xd0b 1", "0xd0b 1"]),
            Ok,
        ),
        row(
            "firmware.same-processors",
            intel,
            |f| arm_cores(f, ["0xd05 2", "0xd05 2", "0xd0b 1", "0xd0b 0"]),
            Warning,
        ),
        row("conflict.lowered-maximum", intel, |f| each_policy(f, "scaling_max_freq", "2900000"), Note),
        row("conflict.lowered-maximum", amd, |f| each_policy(f, "scaling_max_freq", "3000000"), Note),
        row("conflict.userspace", acpi, |f| each_policy(f, "scaling_governor", "userspace"), Warning),
        row(
            "conflict.dynamic-epp",
            amd,
            |f| put(f, format!("{CPU}/amd_pstate/dynamic_epp"), "enabled"),
            Note,
        ),
        // A fixed level, and a minimum above the file's.
        row("conflict.registers", intel, |f| msr(f, 0x774, "800a250a"), Warning),
        row("conflict.registers", intel, |f| msr(f, 0x774, "80002524"), Warning),
        row("conflict.registers", amd, |f| msr(f, 0xc001_02b3, "8000283c"), Warning),
        row(
            "conflict.cpuidle",
            intel,
            |f| f.retain(|path, _| !path.contains("cpu3/cpuidle/state2")),
            Warning,
        ),
        row("conflict.cpuidle", amd, |f| f.retain(|path, _| !path.contains("/cpuidle/state2")), Note),
        row(
            "conflict.cpuidle",
            intel,
            |f| put(f, format!("{CPU}/cpuidle/current_driver"), "acpi_idle"),
            Note,
        ),
        row(
            "conflict.idle-governor",
            intel,
            |f| put(f, format!("{CPU}/cpuidle/current_governor"), "ladder"),
            Note,
        ),
        row(
            "conflict.idle-governor",
            amd,
            |f| put(f, format!("{CPU}/cpuidle/current_governor"), "haltpoll"),
            Note,
        ),
        row("conflict.cpuidle", intel, cpuidle_off, Warning),
        row("conflict.exit-latency", intel, many_deep_exits, Note),
        row("now.clock-source", intel, |f| put(f, CLOCK, "hpet"), Warning),
        row("now.temperature", amd, hot_amd, Warning),
        row("conflict.nohz-full", haswell, |f| put(f, "proc/cmdline", "isolcpus=nohz,2,3"), Note),
    ]
}
