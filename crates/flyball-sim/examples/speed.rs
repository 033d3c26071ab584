//! How fast the simulation is: `cargo run --release -p flyball-sim --example speed`.
//!
//! A machine of 512 CPUs, of which a third is busy, a third half busy and a third idle, in steps of
//! a millisecond; and what a read of a file costs. Processor time of this process, in five rounds
//! that take turns: the median, and the slowest. `-- --count` runs one round without looking at a
//! clock, for tools that count instructions.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use flyball_sim::{Boot, Kernel, SimMachine, Steady, silicon::MachineSpec};

/// Processor time of this process: what else a busy machine does is not counted.
fn used() -> Duration {
    if std::env::args().any(|word| word == "--count") {
        return Duration::ZERO;
    }
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const CASES: [(&str, Kernel); 4] = [
    ("amd_pstate=active", Kernel::V7_2),
    ("amd_pstate=passive", Kernel::V7_2),
    ("amd_pstate=passive", Kernel::V6_1),
    ("amd_pstate=disable", Kernel::V7_2),
];

fn boot(option: &str, kernel: Kernel) -> SimMachine {
    let spec = MachineSpec::builtin("epyc-512").expect("a machine that comes with the crate");
    let boot = Boot { options: vec![option.to_owned()], ..Boot::default() };
    let mut machine = SimMachine::boot(spec, kernel, boot, 0).expect("it boots");
    let cpus = (0..512).filter(|cpu| cpu % 3 < 2).map(|cpu| (cpu, if cpu % 3 == 0 { 1.0 } else { 0.5 }));
    machine.run(Some(Box::new(Steady { cpus: cpus.collect() })));
    machine
}

/// How many times real time the simulation runs, and microseconds a read.
fn round(machine: &mut SimMachine) -> (f64, f64) {
    let simulated = Duration::from_secs(4);
    let started = used();
    machine.advance(simulated);
    let took = used() - started;
    let mut buffer = Vec::new();
    let mut reads = 0u32;
    let started = used();
    for cpu in 0..512 {
        for name in ["scaling_governor", "scaling_min_freq", "scaling_cur_freq", "cpuinfo_max_freq"] {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}");
            reads += u32::from(machine.read_into(&path, &mut buffer).is_ok());
        }
    }
    let read = used() - started;
    (simulated.as_secs_f64() / took.as_secs_f64(), read.as_secs_f64() * 1e6 / f64::from(reads.max(1)))
}

fn main() {
    let mut machines: Vec<SimMachine> = CASES.iter().map(|(option, kernel)| boot(option, *kernel)).collect();
    if std::env::args().any(|word| word == "--count") {
        for machine in &mut machines {
            round(machine);
        }
        return;
    }
    let mut rounds = vec![Vec::new(); machines.len()];
    for _ in 0..5 {
        for (machine, rounds) in machines.iter_mut().zip(&mut rounds) {
            rounds.push(round(machine));
        }
    }
    for ((machine, rounds), (_, kernel)) in machines.iter_mut().zip(&mut rounds).zip(CASES) {
        let mut show = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cpufreq/{name}");
            String::from_utf8_lossy(&machine.read(&path).unwrap_or_default()).trim().to_owned()
        };
        let (driver, governor) = (show("scaling_driver"), show("scaling_governor"));
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (slowest, median) = (rounds[0].0, rounds[2].0);
        rounds.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (read, worst) = (rounds[2].1, rounds[4].1);
        println!(
            "epyc-512 {kernel} {driver} {governor}: {median:.1} times real time at 1 ms steps ({slowest:.1} at the slowest); \
             {read:.2} us a read ({worst:.2} at the slowest)"
        );
    }
}
