//! StorPool's page: latency of 4 KiB reads and power of the machine, before and after.

use super::bench::Bench;
use super::{Aim, CheckError, Report, Row};
use crate::Kernel;
use crate::workload::Workload;

pub(super) fn check(report: &mut Report) -> Result<(), CheckError> {
    for (row, new, latency_us, watts) in [("old", false, 60.0, 150.0), ("new", true, 67.0, 100.0)] {
        // Old: P-states by the system (firmware keeps HWP off), governor performance, bias 0. New:
        // HWP, governor powersave, bias 15. The firmware's autonomous C-states are the third
        // change: without them the storage layer's CPUs stay in C1, as the page's authors set them
        // up elsewhere; with them idle CPUs reach C6. That is an assumption.
        let mut bench =
            Bench::boot("gold-6138", Kernel::V6_1, if new { &[] } else { &["intel_pstate=no_hwp"] })?;
        let cpus = bench.machine.silicon().cpus();
        for cpu in 0..cpus {
            bench.set(&format!("cpu{cpu}/power/energy_perf_bias"), if new { "15" } else { "0" })?;
            if !new {
                bench.set(&format!("cpu{cpu}/cpuidle/state2/disable"), "1")?;
                bench.set(&format!("cpu{cpu}/cpuidle/state3/disable"), "1")?;
            }
        }
        bench.set_all("scaling_governor", if new { "powersave" } else { "performance" })?;
        if new {
            // A bias of 15 is taken for the preference that goes with it. The kernel of the page
            // (3.10) knew no dynamic boost.
            bench.set_all("energy_performance_preference", "power")?;
            bench.set("intel_pstate/hwp_dynamic_boost", "0")?;
        }
        let mut reads = Workload::builtin("io-4k")?;
        reads.seconds = 5.0;
        bench.wait(1.0);
        let (progress, span) = bench.run(&reads, &[2]);
        // Latencies set the drive's time and what the preference does; powers are predicted.
        let mut add = |quantity, published, simulated, aim, used| {
            let row = Row::new("storpool", "latency and power", row, quantity, published);
            report.rows.push(row.simulated(simulated, used).aim(aim));
        };
        add(("latency", "us"), latency_us, progress.turn_seconds() * 1e6, Aim::Percent(5.0), true);
        add(("power", "W"), watts, span.wall_watts, Aim::Percent(15.0), false);
    }
    Ok(())
}
