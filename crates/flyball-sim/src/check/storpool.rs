//! StorPool's page: latency of 4 KiB reads and power of the machine, before and after.

use super::bench::Bench;
use super::{Aim, CheckError, Report, Row};
use crate::Kernel;
use crate::workload::Workload;

pub(super) fn check(report: &mut Report) -> Result<(), CheckError> {
    for (row, new, latency_us, watts) in [("old", false, 60.0, 150.0), ("new", true, 67.0, 100.0)] {
        // Old: P-states chosen by the OS (firmware keeps HWP off), governor performance, bias 0.
        // New: HWP, governor powersave, bias 15. The third change is the firmware's autonomous
        // C-states. We assume that without them the storage layer's CPUs stay in C1, as the page's
        // authors configured them elsewhere, and that with them idle CPUs reach C6.
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
            // We use the preference that corresponds to a bias of 15. The page's kernel (3.10) had
            // no dynamic boost.
            bench.set_all("energy_performance_preference", "power")?;
            bench.set("intel_pstate/hwp_dynamic_boost", "0")?;
        }
        let mut reads = Workload::builtin("io-4k")?;
        reads.seconds = 5.0;
        bench.wait(1.0);
        let (progress, span) = bench.run(&reads, &[2]);
        // The latencies set the drive's time and the effect of the preference; powers are
        // predictions.
        let mut add = |quantity, published, simulated, aim, used| {
            let row = Row::new("storpool", "latency and power", row, quantity, published);
            report.rows.push(row.simulated(simulated, used).aim(aim));
        };
        add(("latency", "us"), latency_us, progress.turn_seconds() * 1e6, Aim::Percent(5.0), true);
        add(("power", "W"), watts, span.wall_watts, Aim::Percent(15.0), false);
    }
    Ok(())
}
