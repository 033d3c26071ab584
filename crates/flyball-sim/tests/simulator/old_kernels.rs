//! Answers of kernels before 6.1, as read from their source: existing files, the driver that binds,
//! and differences in writes.

use std::time::Duration;

use flyball_sim::{Boot, Errno, Kernel, SimMachine, silicon::MachineSpec};

const CPU: &str = "/sys/devices/system/cpu";

fn boot(name: &str, kernel: Kernel, options: &[&str]) -> SimMachine {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    let boot = Boot { options, ..Boot::default() };
    SimMachine::boot(MachineSpec::builtin(name).unwrap(), kernel, boot, 0).unwrap()
}

fn read(machine: &mut SimMachine, path: &str) -> String {
    String::from_utf8(machine.read(&format!("{CPU}/{path}")).unwrap()).unwrap().trim().to_owned()
}

fn write(machine: &mut SimMachine, path: &str, text: &str) -> Result<(), Errno> {
    machine.write(&format!("{CPU}/{path}"), text.as_bytes())
}

/// Files, and the first kernel in [`Kernel::ALL`] that has them.
#[test]
fn files_come_with_their_kernels() {
    let files = [
        ("gold-6138", "cpufreq/policy0", Kernel::V4_19),
        ("gold-6138", "cpu0/cpufreq/scaling_governor", Kernel::V3_10),
        ("gold-6138", "cpu0/power/energy_perf_bias", Kernel::V5_10),
        ("gold-6138", "cpu0/thermal_throttle/core_throttle_count", Kernel::V3_10),
        ("gold-6138", "cpu0/thermal_throttle/core_throttle_total_time_ms", Kernel::V5_10),
        ("gold-6138", "cpu0/topology/thread_siblings_list", Kernel::V3_10),
        ("gold-6138", "cpu0/topology/die_id", Kernel::V5_10),
        ("gold-6138", "cpu0/topology/cluster_id", Kernel::V6_1),
        ("gold-6138", "cpu0/cpuidle/state1/residency", Kernel::V4_19),
        ("gold-6138", "cpu0/cpuidle/state1/default_status", Kernel::V5_10),
        ("gold-6138", "cpu0/cpuidle/state1/rejected", Kernel::V5_10),
        ("gold-6138", "cpuidle/current_governor", Kernel::V5_10),
        ("gold-6138", "intel_pstate/hwp_dynamic_boost", Kernel::V4_19),
        ("gold-6138", "intel_uncore_frequency", Kernel::V5_10),
        ("ryzen-5750g", "cpu0/acpi_cppc/lowest_freq", Kernel::V4_19),
        ("ryzen-5750g", "cpufreq/boost", Kernel::V3_10),
    ];
    for (name, path, since) in files {
        for &kernel in Kernel::ALL {
            let there = boot(name, kernel, &[]).exists(&format!("{CPU}/{path}"));
            assert_eq!(there, kernel >= since, "{name} {kernel}: {path}");
        }
    }
    for &kernel in Kernel::ALL {
        let exists = |name: &str, path: &str| boot(name, kernel, &[]).exists(path);
        assert_eq!(
            exists("gold-6138", &format!("{CPU}/cpu0/cpufreq/base_frequency")),
            kernel != Kernel::V4_19,
            "{kernel}"
        );
        assert_eq!(exists("sst-guide", "/dev/isst_interface"), kernel >= Kernel::V5_10, "{kernel}");
        let zone = "/sys/class/powercap/intel-rapl:0";
        assert_eq!(exists("ryzen-5750g", zone), kernel >= Kernel::V5_15, "{kernel}");
    }
}

#[test]
fn drivers_that_bind() {
    let driver = |name, kernel, options: &[&str]| {
        let mut machine = boot(name, kernel, options);
        let mode =
            machine.exists(&format!("{CPU}/intel_pstate")).then(|| read(&mut machine, "intel_pstate/status"));
        (
            read(&mut machine, "cpu0/cpufreq/scaling_driver"),
            read(&mut machine, "cpu0/cpufreq/scaling_governor"),
            mode,
        )
    };
    let intel = |driver: &str, governor: &str, mode: &str| {
        (driver.to_owned(), governor.to_owned(), Some(mode.to_owned()))
    };
    // Without HWP the default is active until 5.8.
    assert_eq!(driver("i7-2600", Kernel::V4_19, &[]), intel("intel_pstate", "powersave", "active"));
    assert_eq!(driver("i7-2600", Kernel::V5_10, &[]), intel("intel_cpufreq", "schedutil", "passive"));
    assert_eq!(driver("i7-2600", Kernel::V3_10, &[]), intel("intel_pstate", "powersave", "active"));
    // Until 5.9 passive mode does not use HWP, and HWP cannot be disabled.
    let passive = ["intel_pstate=passive"];
    let mut old = boot("gold-6138", Kernel::V4_19, &passive);
    assert!(!old.exists(&format!("{CPU}/cpufreq/policy0/energy_performance_preference")));
    let mut new = boot("gold-6138", Kernel::V5_10, &passive);
    assert_eq!(read(&mut new, "cpufreq/policy0/scaling_driver"), "intel_cpufreq");
    assert!(new.exists(&format!("{CPU}/cpufreq/policy0/energy_performance_preference")));
    assert_eq!(write(&mut old, "intel_pstate/status", "active"), Ok(()));
    let mut hwp = boot("gold-6138", Kernel::V4_19, &[]);
    assert_eq!(write(&mut hwp, "intel_pstate/status", "passive"), Err(Errno::BUSY));
    // No amd-pstate before 5.17, whatever the command line says.
    for kernel in [Kernel::V3_10, Kernel::V4_19, Kernel::V5_10, Kernel::V5_15] {
        assert_eq!(driver("ryzen-5750g", kernel, &["amd_pstate=passive"]).0, "acpi-cpufreq", "{kernel}");
    }
}

#[test]
fn limits_apply_at_once_and_may_not_cross_before_5_3() {
    let mut machine = boot("gold-6138", Kernel::V4_19, &[]);
    assert_eq!(write(&mut machine, "cpufreq/policy0/scaling_max_freq", "2000000"), Ok(()));
    assert_eq!(read(&mut machine, "cpufreq/policy0/scaling_max_freq"), "2000000", "without a work item");
    assert_eq!(write(&mut machine, "cpufreq/policy0/scaling_min_freq", "2100000"), Err(Errno::INVAL));
    let mut machine = boot("gold-6138", Kernel::V5_10, &[]);
    assert_eq!(write(&mut machine, "cpufreq/policy0/scaling_max_freq", "2000000"), Ok(()));
    assert_eq!(write(&mut machine, "cpufreq/policy0/scaling_min_freq", "2100000"), Ok(()));
    machine.advance(Duration::from_millis(1));
    assert_eq!(read(&mut machine, "cpufreq/policy0/scaling_min_freq"), "2000000", "a request, clipped");
}

#[test]
fn preferences_are_words_until_5_9() {
    let epp = "cpufreq/policy0/energy_performance_preference";
    let mut machine = boot("gold-6138", Kernel::V4_19, &[]);
    assert_eq!(write(&mut machine, epp, "100"), Err(Errno::INVAL));
    machine.write_msr(0, 0x774, 0x0a14_0a00 | 100 << 24).unwrap();
    assert_eq!(read(&mut machine, epp), "balance_performance", "the next word above");
    let mut machine = boot("gold-6138", Kernel::V5_10, &[]);
    assert_eq!(write(&mut machine, epp, "100"), Ok(()));
    assert_eq!(read(&mut machine, epp), "100");
}

#[test]
fn turbo_that_firmware_has_switched_off_cannot_be_written_until_5_15() {
    let off = |kernel, value| {
        let mut machine = boot("gold-6138", kernel, &[]);
        let misc = machine.read_msr(0, 0x1a0).unwrap();
        machine.write_msr(0, 0x1a0, misc | 1 << 38).unwrap();
        (read(&mut machine, "intel_pstate/no_turbo"), write(&mut machine, "intel_pstate/no_turbo", value))
    };
    assert_eq!(
        off(Kernel::V5_15, "1"),
        ("1".to_owned(), Err(Errno::PERM)),
        "the register is looked at each time"
    );
    assert_eq!(off(Kernel::V6_1, "1"), ("0".to_owned(), Ok(())), "as 6.1.158: when no_turbo is written");
    assert_eq!(off(Kernel::V6_1, "0").1, Err(Errno::PERM));
}
