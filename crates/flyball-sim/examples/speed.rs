//! How fast the simulation is: `cargo run --release -p flyball-sim --example speed`.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use flyball_sim::{Boot, Kernel, SimMachine, Steady, silicon::MachineSpec};

/// Processor time of this process: what a busy machine does beside does not count.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    for options in [vec![], vec!["amd_pstate=passive".to_owned()]] {
        let spec = MachineSpec::builtin("epyc-512").expect("a machine that comes with the crate");
        let boot = Boot { options, ..Boot::default() };
        let started = Instant::now();
        let mut machine = SimMachine::boot(spec, Kernel::V7_2, boot, 0).expect("it boots");
        let booted = started.elapsed();
        let driver = machine.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver").unwrap_or_default();
        let governor =
            machine.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap_or_default();
        // A third busy, a third half busy, a third idle.
        let cpus = (0..512)
            .filter(|cpu| cpu % 3 < 2)
            .map(|cpu| (cpu, if cpu % 3 == 0 { 1.0 } else { 0.5 }))
            .collect();
        machine.run(Some(Box::new(Steady { cpus })));
        let simulated = Duration::from_secs(4);
        let started = used();
        machine.advance(simulated);
        let took = used() - started;
        let mut buffer = Vec::new();
        let mut reads = 0u32;
        let started = used();
        for cpu in 0..512 {
            for name in
                ["scaling_governor", "scaling_min_freq", "scaling_cur_freq", "energy_performance_preference"]
            {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}");
                if machine.read_into(&path, &mut buffer).is_ok() {
                    reads += 1;
                }
            }
        }
        let read = used() - started;
        println!(
            "epyc-512 {} {}: boots in {booted:?}; {:.1} times real time at 1 ms steps; {:.2} us a read ({reads} reads)",
            String::from_utf8_lossy(&driver).trim(),
            String::from_utf8_lossy(&governor).trim(),
            simulated.as_secs_f64() / took.as_secs_f64(),
            read.as_secs_f64() * 1e6 / f64::from(reads.max(1)),
        );
    }
}
