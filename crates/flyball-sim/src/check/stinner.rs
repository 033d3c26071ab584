//! Victor Stinner's laptop and desktop.

use super::bench::Bench;
use super::{Aim, CheckError, Quantity, Report, Row};
use crate::workload::Workload;
use crate::{Kernel, fault::BLOCKED};

const KERNEL: Kernel = Kernel::V6_1;

struct Rows<'a> {
    report: &'a mut Report,
    table: &'static str,
}

impl Rows<'_> {
    fn add(&mut self, row: &str, of: Quantity, published: f64, simulated: f64, aim: Aim, used: bool) {
        let row = Row::new("stinner", self.table, row, of, published);
        self.report.rows.push(row.simulated(simulated, used).aim(aim));
    }

    /// Reports the package's current temperature; the aim is 5 degrees.
    fn temperature(&mut self, row: &str, bench: &Bench, published: f64, used: bool) {
        let celsius = bench.machine.silicon().temperature(0).0;
        self.add(row, ("temperature", "C"), published, celsius, Aim::Absolute(5.0), used);
    }

    /// Reports the first CPU's current frequency; the aim is 2 %.
    fn frequency(&mut self, row: &str, bench: &Bench, published: f64) {
        let mhz = f64::from(bench.machine.silicon().frequency(0).mhz());
        self.add(row, ("frequency", "MHz"), published, mhz, Aim::Percent(2.0), false);
    }
}

pub(super) fn check(report: &mut Report) -> Result<(), CheckError> {
    turbo(report)?;
    frequency(report)?;
    desktop_heat(report)?;
    laptop_heat(report)
}

/// The benchmark's median on one CPU while the CPUs in `busy` run a busy loop.
fn call_simple(bench: &mut Bench, cpu: u32, busy: &[u32], cycles: f64) -> Result<(f64, f64), CheckError> {
    let mut workload = Workload::builtin("call-simple")?;
    workload.seconds = 2.0;
    workload.task[0].cycles *= cycles;
    let (progress, span) = bench.run_beside(workload, &[cpu], busy)?;
    Ok((progress.turn_seconds() * 1000.0, span.bzy_mhz[cpu as usize]))
}

fn turbo(report: &mut Report) -> Result<(), CheckError> {
    let mut to = Rows { report, table: "bm_call_simple, i7-3520M" };
    for (turbo, second, ghz, ms) in [
        (false, false, 2.9, 14.6),
        (false, true, 2.9, 14.7),
        (true, false, 3.6, 11.8),
        (true, true, 3.4, 12.4),
    ] {
        let mut bench = Bench::boot("i7-3520m", KERNEL, &["intel_pstate=active"])?;
        bench.set_all("scaling_governor", "performance")?;
        bench.set("intel_pstate/no_turbo", if turbo { "0" } else { "1" })?;
        let (got, mhz) = call_simple(&mut bench, 0, if second { &[2] } else { &[] }, 1.0)?;
        let row = format!("turbo {}, {} CPU", if turbo { "on" } else { "off" }, 1 + u8::from(second));
        to.add(&row, ("median", "ms"), ms, got, Aim::Percent(3.0), !turbo && !second);
        to.add(&row, ("frequency", "GHz"), ghz, mhz / 1000.0, Aim::Percent(2.0), false);
    }
    Ok(())
}

/// Cycles of the benchmark on the desktop's older cores relative to the laptop's; set from 12.9 ms
/// at 3.4 GHz.
const SANDY_BRIDGE: f64 = 43.86 / 42.34;

fn frequency(report: &mut Report) -> Result<(), CheckError> {
    let mut to = Rows { report, table: "bm_call_simple, i7-2600" };
    for (row, khz, ms) in [("min, 1.6 GHz", "1600000", 27.7), ("max, 3.4 GHz", "3400000", 12.9)] {
        let mut bench = Bench::boot("i7-2600", KERNEL, &["intel_pstate=active"])?;
        bench.set_all("scaling_governor", "performance")?;
        bench.set("intel_pstate/no_turbo", "1")?;
        bench.set_all("scaling_max_freq", khz)?;
        let (got, _) = call_simple(&mut bench, 0, &[], SANDY_BRIDGE)?;
        to.add(row, ("median", "ms"), ms, got, Aim::Percent(3.0), khz == "3400000");
    }
    Ok(())
}

fn desktop_heat(report: &mut Report) -> Result<(), CheckError> {
    let mut to = Rows { report, table: "desktop with its fan blocked" };
    let mut bench = Bench::boot("i7-2600", KERNEL, &["intel_pstate=active"])?;
    bench.set_all("scaling_governor", "performance")?;
    bench.set("intel_pstate/no_turbo", "1")?;
    let spin = Workload { seconds: 0.0, ..Workload::builtin("spin")? };
    bench.start(&spin, &[]);
    bench.wait(300.0);
    to.temperature("fan free", &bench, 66.0, true);
    to.frequency("fan free", &bench, 3400.0);
    bench.machine.silicon_mut().set_obstruction(0, BLOCKED);
    bench.wait(60.0);
    // Wait until nothing changes any more: the blog gives the lowest frequency that it saw.
    to.temperature("blocked for a minute", &bench, 97.0, false);
    bench.wait(60.0);
    let from = bench.mark();
    bench.wait(2.0);
    let span = bench.since(&from);
    to.add("blocked", ("frequency", "MHz"), 1533.0, span.bzy_mhz[0], Aim::Percent(10.0), true);
    bench.machine.silicon_mut().set_obstruction(0, 1.0);
    bench.machine.run(None);
    bench.wait(1.0);
    bench.start(&spin, &[]);
    bench.wait(90.0);
    to.temperature("free again", &bench, 62.0, false);
    to.frequency("free again", &bench, 3400.0);
    Ok(())
}

/// Resistance of a tissue in the laptop's air outlet, set so that the laptop reaches 101 C.
const STUFFED: f64 = 1.5;

fn laptop_heat(report: &mut Report) -> Result<(), CheckError> {
    let mut to = Rows { report, table: "laptop with its outlet blocked" };
    let mut bench = Bench::boot("i7-3520m", KERNEL, &["intel_pstate=active"])?;
    bench.set_all("scaling_governor", "performance")?;
    let spin = Workload { seconds: 0.0, ..Workload::builtin("spin")? };
    bench.start(&spin, &[]);
    bench.wait(300.0);
    to.temperature("outlet free", &bench, 83.0, true);
    to.frequency("outlet free", &bench, 3391.0);
    bench.machine.silicon_mut().set_obstruction(0, STUFFED);
    bench.wait(300.0);
    to.temperature("blocked for five minutes", &bench, 102.0, false);
    let from = bench.mark();
    bench.wait(2.0);
    let span = bench.since(&from);
    to.add(
        "blocked for five minutes",
        ("frequency", "MHz"),
        3077.0,
        span.bzy_mhz[0],
        Aim::Percent(10.0),
        false,
    );
    Ok(())
}
