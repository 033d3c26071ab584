//! Answers derived from kernel source alone: truncated, rounded and rejected numbers.

use std::time::Duration;

use flyball_sim::{Boot, Kernel, SimMachine, silicon::MachineSpec};

const CPU: &str = "/sys/devices/system/cpu";
const POWERCAP: &str = "/sys/class/powercap/intel-rapl:0";

fn boot(spec: MachineSpec, kernel: Kernel, options: &[&str]) -> SimMachine {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    SimMachine::boot(spec, kernel, Boot { options, ..Boot::default() }, 0).unwrap()
}

fn named(name: &str, kernel: Kernel, options: &[&str]) -> SimMachine {
    boot(MachineSpec::builtin(name).unwrap(), kernel, options)
}

fn amd(interface: &str, lowest_mhz: &str) -> MachineSpec {
    let text = include_str!("../machines/amd.toml")
        .replace("INTERFACE", interface)
        .replace("TURBO", "true")
        .replace("RANKING", "[]")
        .replace("cpc_lowest_mhz = 400", &format!("cpc_lowest_mhz = {lowest_mhz}"));
    MachineSpec::from_toml(&text).unwrap()
}

fn read(machine: &mut SimMachine, path: &str) -> String {
    String::from_utf8(machine.read(path).unwrap()).unwrap().trim().to_owned()
}

/// rapl_write_data_raw() in drivers/powercap/intel_rapl_common.c: `bits &= rpi->mask`.
#[test]
fn a_power_limit_beyond_its_field_wraps() {
    let mut machine = named("gold-6138", Kernel::V6_12, &[]);
    let limit = format!("{POWERCAP}/constraint_0_power_limit_uw");
    let unit = 1_000_000_u64 >> (machine.read_msr(0, 0x606).unwrap() & 0xf);
    machine.write(&limit, (0x8003 * unit).to_string().as_bytes()).unwrap();
    assert_eq!(read(&mut machine, &limit), (3 * unit).to_string());
    assert_eq!(machine.read_msr(0, 0x610).unwrap() & 0x7fff, 3);
}

/// intel_cpufreq_target() returns the P-state that it sets, rounded up for userspace.
#[test]
fn a_target_between_two_p_states_is_the_upper_one() {
    let mut machine = named("i7-2600", Kernel::V6_12, &["intel_pstate=passive"]);
    let policy = format!("{CPU}/cpufreq/policy0");
    machine.write(&format!("{policy}/scaling_governor"), b"userspace").unwrap();
    machine.write(&format!("{policy}/scaling_setspeed"), b"2050000").unwrap();
    assert_eq!(read(&mut machine, &format!("{policy}/scaling_setspeed")), "2100000");
    assert_eq!(machine.read_msr(0, 0x199).unwrap() >> 8 & 0xff, 21);
}

/// amd_pstate_init_freq(): since 6.9 the driver rejects a lowest frequency of 0.
#[test]
fn firmware_zeros_keep_amd_pstate_away() {
    let zero = || amd("cppc-msr", "0");
    let driver = |kernel| {
        let mut machine = boot(zero(), kernel, &["amd_pstate=passive"]);
        read(&mut machine, &format!("{CPU}/cpufreq/policy0/scaling_driver"))
    };
    assert_eq!(
        [Kernel::V6_1, Kernel::V6_12, Kernel::V6_18].map(driver),
        ["amd-pstate", "acpi-cpufreq", "acpi-cpufreq"]
    );
}

/// amd_pstate_set_epp() of 6.12 sends `min_limit_perf` with shared memory, not the minimum of the
/// performance policy.
#[test]
fn performance_keeps_its_minimum_with_shared_memory_on_6_12() {
    let minimum = |kernel| {
        let mut machine = boot(amd("cppc-shared", "400"), kernel, &["amd_pstate=active"]);
        machine.write(&format!("{CPU}/cpufreq/policy0/scaling_governor"), b"performance").unwrap();
        machine.silicon().shared_cppc(0).unwrap().min
    };
    assert!(minimum(Kernel::V6_12) < minimum(Kernel::V6_18));
}

/// tracing_mark_write(): the limit is TRACE_BUF_SIZE in 6.1, later TRACE_MARKER_MAX_SIZE and the
/// space in a sub-buffer.
#[test]
fn a_long_marker_is_cut() {
    for (kernel, most) in [(Kernel::V6_1, 1024), (Kernel::V6_12, 4054)] {
        let mut machine = named("i7-2600", kernel, &[]);
        machine.write("/sys/kernel/tracing/trace_marker", &[b'x'; 5000]).unwrap();
        machine.advance(Duration::from_millis(1));
        let trace = read(&mut machine, "/sys/kernel/tracing/trace");
        let longest = trace.split(|c| c != 'x').map(str::len).max().unwrap();
        assert_eq!(longest, most, "{kernel}");
    }
}
