//! Measures how fast the simulation is: `cargo run --release -p flyball-sim --example speed`.
//!
//! It simulates 512 CPUs in steps of a millisecond, under each governor of each driver: once with
//! all CPUs busy, and once with a third busy, a third half busy and a third idle. It also measures
//! the cost of reading a file. It prints the median and the slowest of five interleaved rounds, in
//! CPU time of this process. `-- --count` runs one round without reading a clock, for tools that
//! count instructions.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use flyball_sim::{
    Boot, Kernel, SimMachine, Steady,
    silicon::MachineSpec,
    workload::{Engine, Workload},
};

/// CPU time of this process, so that other processes do not disturb the measurement.
fn used() -> Duration {
    if std::env::args().any(|word| word == "--count") {
        return Duration::ZERO;
    }
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Kernel option, kernel version and governor.
const CASES: [(&str, Kernel, &str); 10] = [
    ("amd_pstate=active", Kernel::V7_2, "performance"),
    ("amd_pstate=active", Kernel::V7_2, "powersave"),
    ("amd_pstate=passive", Kernel::V7_2, "performance"),
    ("amd_pstate=passive", Kernel::V7_2, "schedutil"),
    ("amd_pstate=passive", Kernel::V7_2, "ondemand"),
    ("amd_pstate=passive", Kernel::V7_2, "conservative"),
    ("amd_pstate=passive", Kernel::V6_1, "schedutil"),
    ("amd_pstate=disable", Kernel::V7_2, "schedutil"),
    ("amd_pstate=disable", Kernel::V7_2, "ondemand"),
    ("amd_pstate=disable", Kernel::V7_2, "userspace"),
];

/// Boots a machine under one governor, with all of its CPUs busy or a third of them.
fn boot((option, kernel, governor): (&str, Kernel, &str), all_busy: bool) -> SimMachine {
    let spec = MachineSpec::builtin("epyc-512").expect("a machine that comes with the crate");
    let boot = Boot { options: vec![option.to_owned()], ..Boot::default() };
    let mut machine = SimMachine::boot(spec, kernel, boot, 0).expect("it boots");
    for cpu in 0..512 {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        machine.write(&path, governor.as_bytes()).expect("the driver has the governor");
    }
    if all_busy {
        let spin = Workload::builtin("spin").expect("a workload that comes with the crate");
        machine.run(Some(Box::new(Engine::new(spin, Vec::new(), 0))));
    } else {
        let cpus = (0..512).filter(|cpu| cpu % 3 < 2).map(|cpu| (cpu, if cpu % 3 == 0 { 1.0 } else { 0.5 }));
        machine.run(Some(Box::new(Steady { cpus: cpus.collect() })));
    }
    machine
}

/// Returns simulated time per CPU time, and the microseconds that a read takes.
fn round(machine: &mut SimMachine) -> (f64, f64) {
    let simulated = Duration::from_secs(1);
    let started = used();
    machine.advance(simulated);
    let took = used() - started;
    let mut buffer = Vec::new();
    let mut reads = 0u32;
    let started = used();
    for cpu in 0..512 {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
        reads += u32::from(machine.read_into(&path, &mut buffer).is_ok());
    }
    let read = used() - started;
    (simulated.as_secs_f64() / took.as_secs_f64(), read.as_secs_f64() * 1e6 / f64::from(reads.max(1)))
}

/// The median of the values, and the worst of them by `is_worst`.
fn median(values: impl Iterator<Item = f64>, is_worst: fn(f64, f64) -> f64) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let worst = values.iter().copied().reduce(is_worst).unwrap_or(0.0);
    (values[values.len() / 2], worst)
}

fn main() {
    let count = std::env::args().any(|word| word == "--count");
    for all_busy in [true, false] {
        let mut machines: Vec<SimMachine> = CASES.iter().map(|case| boot(*case, all_busy)).collect();
        let mut rounds = vec![Vec::new(); machines.len()];
        for _ in 0..if count { 1 } else { 5 } {
            for (machine, rounds) in machines.iter_mut().zip(&mut rounds) {
                rounds.push(round(machine));
            }
        }
        let load = if all_busy { "all busy" } else { "a third busy" };
        for ((machine, rounds), (_, kernel, governor)) in machines.iter_mut().zip(&rounds).zip(CASES) {
            let driver = machine.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
            let driver = String::from_utf8_lossy(&driver.unwrap_or_default()).trim().to_owned();
            let (speed, slowest) = median(rounds.iter().map(|round| round.0), f64::min);
            let (read, longest) = median(rounds.iter().map(|round| round.1), f64::max);
            println!(
                "epyc-512 {kernel} {driver} {governor}, {load}: {speed:.1} times real time ({slowest:.1} at the slowest); \
                 {read:.2} us a read ({longest:.2})"
            );
        }
    }
}
