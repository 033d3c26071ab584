//! The kernel's Speed Select guide.

use super::bench::{Bench, Span};
use super::{Aim, Report, Row};
use crate::Kernel;
use crate::workload::Workload;

const SOURCE: &str = "sst-guide";
/// The BIOS of the guide's machine leaves C6 to the system; the guide says nothing of it.
const KERNEL: Kernel = Kernel::V6_1;

fn mhz(report: &mut Report, table: &'static str, row: String, published: f64, simulated: f64, used: bool) {
    let aim = Aim::Percent(2.0);
    report.rows.push(Row {
        source: SOURCE,
        table,
        row,
        quantity: "Bzy_MHz",
        unit: "MHz",
        published,
        simulated: Some(simulated),
        aim,
        used,
    });
}

fn pipe(report: &mut Report, row: &str, published: f64, simulated: f64, used: bool) {
    let (table, aim) = ("perf bench sched pipe", Aim::Percent(3.0));
    report.rows.push(Row {
        source: SOURCE,
        table,
        row: row.into(),
        quantity: "time",
        unit: "us/op",
        published,
        simulated: Some(simulated),
        aim,
        used,
    });
}

/// Runs sched-pipe on two CPUs, with a busy loop on others, and watches for a few seconds of it.
fn run_pipe(bench: &mut Bench, cpus: [u32; 2], busy: &[u32]) -> Result<(f64, Span), String> {
    let mut workload = Workload::builtin("sched-pipe").map_err(|e| e.to_string())?;
    for group in &mut workload.task {
        // A tenth of the published length: a turn takes as long in it.
        group.turns /= 10;
    }
    let mut allowed = cpus.to_vec();
    if !busy.is_empty() {
        let mut spin = Workload::builtin("spin").map_err(|e| e.to_string())?.task.remove(0);
        spin.count = busy.len() as u32;
        spin.counts = false;
        // The spinning tasks come after the pair in the list of CPUs.
        workload.task.push(spin);
        allowed.extend(busy);
    }
    bench.wait(0.2);
    let (progress, span) = bench.run(&workload, &allowed);
    Ok((progress.turn_seconds() * 1e6, span))
}

pub(super) fn check(report: &mut Report) -> Result<(), String> {
    levels(report)?;
    base_freq(report)?;
    turbo_freq(report)
}

fn levels(report: &mut Report) -> Result<(), String> {
    let table = "turbostat, all CPUs busy, no_turbo";
    let mut bench = Bench::boot("sst-guide", KERNEL, &[])?;
    bench.set("intel_pstate/no_turbo", "1")?;
    let spin = Workload::builtin("spin").map_err(|e| e.to_string())?;
    bench.start(&spin, &[]);
    bench.wait(0.5);
    let from = bench.mark();
    bench.wait(1.0);
    let span = bench.since(&from);
    for cpu in 0..5 {
        mhz(report, table, format!("level 0, CPU {cpu}"), 2600.0, span.bzy_mhz[cpu], false);
    }
    Ok(())
}

/// CPUs of the chosen cores in package 0.
const CHOSEN: [usize; 4] = [5, 6, 8, 13];

fn base_freq(report: &mut Report) -> Result<(), String> {
    let before = [1000, 1005, 1000, 2600, 2600, 1000, 1000, 1005, 1005, 1000, 1000, 995, 1000, 1000];
    let after = [2151, 2166, 2175, 2175, 2175, 3000, 3000, 2180, 2662, 2176, 2175, 2176, 2176, 2661];
    let mut bench = Bench::boot("sst-guide", KERNEL, &[])?;
    bench.set("intel_pstate/no_turbo", "1")?;
    let (us, span) = run_pipe(&mut bench, [3, 4], &[])?;
    pipe(report, "before base-freq, CPUs 3 and 4", 6.102_445, us, true);
    for (cpu, &published) in before.iter().enumerate() {
        mhz(
            report,
            "turbostat before base-freq",
            format!("CPU {cpu}"),
            f64::from(published),
            span.bzy_mhz[cpu],
            cpu == 0,
        );
    }
    // base-freq enable -a: classes of service, the feature, then each CPU's minimum to its maximum.
    for package in 0..2 {
        let silicon = bench.machine.silicon_mut();
        let mut send = |command, sub, parameter, data| {
            silicon
                .mailbox(package, command, sub, parameter, data)
                .map_err(|e| format!("mailbox {command:x}/{sub:x}: {e:?}"))
        };
        send(0xd0, 0x01, 0x100, 30 << 8 | 0xff << 16)?;
        for class in 1..4 {
            send(0xd0, 0x01, 0x100 | class, 15 | 15 << 4 | 24 << 8 | 0xff << 16)?;
        }
        for core in 0..14 {
            send(0xd0, 0x00, 0x100 | core, if CHOSEN.contains(&(core as usize)) { 0 } else { 3 << 16 })?;
        }
        send(0xd0, 0x02, 0x100, 2 | 4)?;
        send(0x7f, 0x02, 0, 1 << 17)?;
    }
    bench.set("intel_pstate/no_turbo", "0")?;
    bench.set("intel_pstate/no_turbo", "1")?;
    bench.set_all("scaling_max_freq", "2147483647")?;
    bench.set_all("scaling_min_freq", "3200000")?;
    let (us, span) = run_pipe(&mut bench, [5, 6], &[])?;
    pipe(report, "after base-freq, CPUs 5 and 6", 5.627_922, us, false);
    for (cpu, &published) in after.iter().enumerate() {
        // The length of the housekeeping wake-ups was set from one CPU of either kind.
        let used = cpu == 1 || cpu == 8;
        mhz(
            report,
            "turbostat after base-freq",
            format!("CPU {cpu}"),
            f64::from(published),
            span.bzy_mhz[cpu],
            used,
        );
    }
    Ok(())
}

fn turbo_freq(report: &mut Report) -> Result<(), String> {
    let before = [3000, 3000, 3000, 3000, 3000, 3100, 3100, 3000, 3100, 3000, 3000, 3000, 3100, 3100];
    let busy: Vec<u32> = (0..12).collect();
    let mut bench = Bench::boot("sst-guide", KERNEL, &[])?;
    let (us, span) = run_pipe(&mut bench, [12, 13], &busy)?;
    pipe(report, "before turbo-freq, CPUs 12 and 13, 0-11 busy", 5.705_488, us, false);
    for (cpu, &published) in before.iter().enumerate() {
        let used = cpu == 0 || cpu == 5;
        mhz(
            report,
            "turbostat before turbo-freq",
            format!("CPU {cpu}"),
            f64::from(published),
            span.bzy_mhz[cpu],
            used,
        );
    }
    // turbo-freq enable -a -c 12,13: cores 12 and 13 in class 0, all others in class 3.
    for package in 0..2 {
        let silicon = bench.machine.silicon_mut();
        let mut send = |command, sub, parameter, data| {
            silicon
                .mailbox(package, command, sub, parameter, data)
                .map_err(|e| format!("mailbox {command:x}/{sub:x}: {e:?}"))
        };
        send(0xd0, 0x02, 0x100, 2 | 4)?;
        for core in 0..14 {
            send(0xd0, 0x00, 0x100 | core, if package == 0 && core >= 12 { 0 } else { 3 << 16 })?;
        }
        send(0x7f, 0x02, 0, 1 << 16)?;
        let cpu = if package == 0 { 0 } else { 14 };
        silicon
            .write_msr(cpu, flyball_silicon::msr::TURBO_RATIO_LIMIT, u64::MAX)
            .map_err(|e| e.to_string())?;
    }
    let (us, span) = run_pipe(&mut bench, [12, 13], &busy)?;
    pipe(report, "after turbo-freq, CPUs 12 and 13, 0-11 busy", 5.510_165, us, true);
    mhz(report, "turbostat after turbo-freq", "CPU 12".into(), 3200.0, span.bzy_mhz[12], false);
    Ok(())
}
