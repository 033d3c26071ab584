//! The kernel's Speed Select guide.

use super::bench::{Bench, Span};
use super::{Aim, CheckError, Report, Row, change};
use crate::workload::Workload;
use crate::{Caller, Kernel};

const SOURCE: &str = "sst-guide";
/// The BIOS of the guide's machine leaves C6 to the OS; the guide does not mention it.
const KERNEL: Kernel = Kernel::V6_1;

fn mhz(report: &mut Report, table: &'static str, row: String, published: f64, simulated: f64, used: bool) {
    let row = Row::new(SOURCE, table, row, ("Bzy_MHz", "MHz"), published);
    report.rows.push(row.simulated(simulated, used).aim(Aim::Percent(2.0)));
}

/// Reports the frequency of each of the first CPUs.
fn each_mhz(
    report: &mut Report,
    table: &'static str,
    published: [u32; 14],
    span: &Span,
    used: impl Fn(usize) -> bool,
) {
    for (cpu, published) in published.into_iter().enumerate() {
        mhz(report, table, format!("CPU {cpu}"), f64::from(published), span.bzy_mhz[cpu], used(cpu));
    }
}

fn pipe(report: &mut Report, row: &str, published: f64, simulated: f64, used: bool) {
    let row = Row::new(SOURCE, "perf bench sched pipe", row, ("time", "us/op"), published);
    report.rows.push(row.simulated(simulated, used).aim(Aim::Percent(3.0)));
}

/// Reports operations per second, as the guide does, and the change that a feature makes. Absolute
/// values can agree while the change is off by half.
fn rates_and_change(report: &mut Report, feature: &str, published: [(f64, f64); 2], simulated: [f64; 2]) {
    let table = "perf bench sched pipe";
    for ((when, (_, rate)), us) in ["before", "after"].iter().zip(published).zip(simulated) {
        let row = Row::new(SOURCE, table, format!("{when} {feature}"), ("rate", "1/s"), rate);
        report.rows.push(row.simulated(1e6 / us, false).aim(Aim::Percent(3.0)));
    }
    let name = format!("what {feature} changes");
    let row = Row::new(SOURCE, table, name, ("time", "%"), change(published.map(|(us, _)| us)));
    report.rows.push(row.simulated(change(simulated), false).aim(Aim::Sign(1.0)));
}

/// Runs sched-pipe on two CPUs with a busy loop on others, and measures a few seconds of the run.
fn run_pipe(bench: &mut Bench, cpus: [u32; 2], busy: &[u32]) -> Result<(f64, Span), CheckError> {
    let mut workload = Workload::builtin("sched-pipe")?;
    for group in &mut workload.task {
        // A tenth of the published length suffices: a turn takes equally long.
        group.turns /= 10;
    }
    bench.wait(0.2);
    let (progress, span) = bench.run_beside(workload, &cpus, busy)?;
    Ok((progress.turn_seconds() * 1e6, span))
}

pub(super) fn check(report: &mut Report) -> Result<(), CheckError> {
    levels(report)?;
    base_freq(report)?;
    turbo_freq(report)
}

/// Makes a call of /dev/isst_interface as the guide's tool does.
fn ioctl(bench: &mut Bench, number: u32, argument: &mut [u8]) -> Result<(), CheckError> {
    let answer = bench.machine.isst(number, argument, Caller::Root);
    answer.map(|_| ()).map_err(|errno| CheckError::Ioctl { number, argument: argument.to_vec(), errno })
}

fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn mailbox(
    bench: &mut Bench,
    cpu: u32,
    (command, sub): (u32, u32),
    parameter: u32,
    data: u32,
) -> Result<(), CheckError> {
    ioctl(bench, 0xc008_fe03, &mut words(&[1, cpu, parameter, data, 0, command | sub << 16, 0]))
}

/// Defines a class of service.
fn class(bench: &mut Bench, cpu: u32, number: u32, word: u32) -> Result<(), CheckError> {
    ioctl(bench, 0x4008_fe02, &mut words(&[1, 1, cpu, 0x08 + 4 * number, word]))
}

/// Puts a core into a class of service.
fn associate(bench: &mut Bench, cpu: u32, core: u32, class: u32) -> Result<(), CheckError> {
    ioctl(bench, 0x4008_fe02, &mut words(&[1, 1, cpu, 0x20 + 4 * core, class << 16]))
}

/// A CPU of each package.
const LEADERS: [u32; 2] = [0, 14];

/// Cores of a package that level 4 excludes.
const NOT_OF_LEVEL_4: [u32; 4] = [4, 6, 12, 13];

fn levels(report: &mut Report) -> Result<(), CheckError> {
    let table = "turbostat, all CPUs busy, no_turbo";
    let mut bench = Bench::boot("sst-guide", KERNEL, &[])?;
    bench.set("intel_pstate/no_turbo", "1")?;
    let spin = Workload::builtin("spin")?;
    let base = |bench: &mut Bench| -> Result<f64, CheckError> {
        let path = "/sys/devices/system/cpu/cpu0/cpufreq/base_frequency";
        let text = bench.machine.read(path).map_err(|errno| CheckError::Read { path, errno })?;
        let khz: f64 =
            String::from_utf8_lossy(&text).trim().parse().map_err(|_| CheckError::NotANumber(path))?;
        Ok(khz / 1000.0)
    };
    let mut row = |level: u32, published: f64, simulated: f64| {
        let name = format!("level {level}");
        let row = Row::new(SOURCE, "base_frequency of CPU 0", name, ("frequency", "MHz"), published);
        report.rows.push(row.simulated(simulated, level == 0).aim(Aim::Percent(0.0)));
    };
    row(0, 2600.0, base(&mut bench)?);
    bench.start(&spin, &[]);
    bench.wait(0.5);
    let from = bench.mark();
    bench.wait(1.0);
    let before = bench.since(&from);
    // perf-profile set-config-level -l 4 -o: set the level, then take CPUs offline, then move
    // limits that were at the old base frequency.
    for cpu in LEADERS {
        mailbox(&mut bench, cpu, (0x7f, 0x08), 0, 4)?;
        for core in NOT_OF_LEVEL_4 {
            for thread in [0, 28] {
                bench.set(&format!("cpu{}/online", cpu + core + thread), "0")?;
            }
        }
    }
    bench.set_all("scaling_max_freq", "2147483647")?;
    row(4, 2800.0, base(&mut bench)?);
    bench.wait(0.5);
    let from = bench.mark();
    bench.wait(1.0);
    let after = bench.since(&from);
    for cpu in 0..5 {
        mhz(report, table, format!("level 0, CPU {cpu}"), 2600.0, before.bzy_mhz[cpu], false);
    }
    for cpu in [0, 1, 2, 3, 5] {
        mhz(report, table, format!("level 4, CPU {cpu}"), 2800.0, after.bzy_mhz[cpu], false);
    }
    Ok(())
}

/// CPUs of the chosen cores in package 0.
const CHOSEN: [usize; 4] = [5, 6, 8, 13];

fn base_freq(report: &mut Report) -> Result<(), CheckError> {
    let before = [1000, 1005, 1000, 2600, 2600, 1000, 1000, 1005, 1005, 1000, 1000, 995, 1000, 1000];
    let after = [2151, 2166, 2175, 2175, 2175, 3000, 3000, 2180, 2662, 2176, 2175, 2176, 2176, 2661];
    let mut bench = Bench::boot("sst-guide", KERNEL, &[])?;
    bench.set("intel_pstate/no_turbo", "1")?;
    let (us, span) = run_pipe(&mut bench, [3, 4], &[])?;
    let first = us;
    pipe(report, "before base-freq, CPUs 3 and 4", 6.102_445, us, true);
    each_mhz(report, "turbostat before base-freq", before, &span, |cpu| cpu == 0);
    // base-freq enable -a: define classes of service, enable the feature, raise each CPU's minimum
    // to its maximum.
    for cpu in LEADERS {
        class(&mut bench, cpu, 0, 30 << 8 | 0xff << 16)?;
        for number in 1..4 {
            class(&mut bench, cpu, number, 15 | 15 << 4 | 24 << 8 | 0xff << 16)?;
        }
        for core in 0..14 {
            associate(&mut bench, cpu, core, if CHOSEN.contains(&(core as usize)) { 0 } else { 3 })?;
        }
        mailbox(&mut bench, cpu, (0xd0, 0x02), 0x100, 2 | 4)?;
        mailbox(&mut bench, cpu, (0x7f, 0x02), 0, 1 << 17)?;
    }
    bench.set("intel_pstate/no_turbo", "0")?;
    bench.set("intel_pstate/no_turbo", "1")?;
    bench.set_all("scaling_max_freq", "2147483647")?;
    bench.set_all("scaling_min_freq", "3200000")?;
    let (us, span) = run_pipe(&mut bench, [5, 6], &[])?;
    pipe(report, "after base-freq, CPUs 5 and 6", 5.627_922, us, false);
    let published = [(6.102_445, 163_868.0), (5.627_922, 177_685.0)];
    rates_and_change(report, "base-freq", published, [first, us]);
    // One CPU of either kind set the length of the housekeeping wakeups.
    each_mhz(report, "turbostat after base-freq", after, &span, |cpu| cpu == 1 || cpu == 8);
    Ok(())
}

fn turbo_freq(report: &mut Report) -> Result<(), CheckError> {
    let before = [3000, 3000, 3000, 3000, 3000, 3100, 3100, 3000, 3100, 3000, 3000, 3000, 3100, 3100];
    let busy: Vec<u32> = (0..12).collect();
    let mut bench = Bench::boot("sst-guide", KERNEL, &[])?;
    let (us, span) = run_pipe(&mut bench, [12, 13], &busy)?;
    let first = us;
    pipe(report, "before turbo-freq, CPUs 12 and 13, 0-11 busy", 5.705_488, us, false);
    each_mhz(report, "turbostat before turbo-freq", before, &span, |cpu| cpu == 0 || cpu == 5);
    // turbo-freq enable -a -c 12,13: cores 12 and 13 in class 0, all others in class 3.
    for cpu in LEADERS {
        mailbox(&mut bench, cpu, (0xd0, 0x02), 0x100, 2 | 4)?;
        for core in 0..14 {
            associate(&mut bench, cpu, core, if cpu == 0 && core >= 12 { 0 } else { 3 })?;
        }
        mailbox(&mut bench, cpu, (0x7f, 0x02), 0, 1 << 16)?;
        let turbo = u64::from(flyball_silicon::msr::TURBO_RATIO_LIMIT);
        let mut command = [1u64, u64::from(cpu) << 32 | 1, turbo, u64::MAX].map(u64::to_le_bytes).concat();
        ioctl(&mut bench, 0xc008_fe04, &mut command)?;
    }
    let (us, span) = run_pipe(&mut bench, [12, 13], &busy)?;
    pipe(report, "after turbo-freq, CPUs 12 and 13, 0-11 busy", 5.510_165, us, true);
    let published = [(5.705_488, 175_269.0), (5.510_165, 180_826.0)];
    rates_and_change(report, "turbo-freq", published, [first, us]);
    for cpu in [12, 13] {
        mhz(report, "turbostat after turbo-freq", format!("CPU {cpu}"), 3200.0, span.bzy_mhz[cpu], false);
    }
    Ok(())
}
