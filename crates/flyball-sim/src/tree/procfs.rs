//! The part of /proc that tools about processors read.

use super::{Attribute, ro, rw};
use crate::{
    board::{Board, Vendor},
    errno::Answer,
    text::line,
    world::World,
};

/// Converts nanoseconds to hundredths of a second, the unit of /proc/stat.
fn ticks(ns: u64) -> u64 {
    // USER_HZ is 100, independent of the kernel's tick.
    ns / 10_000_000
}

fn stat(world: &World, out: &mut Vec<u8>) -> Answer {
    let row = |times: crate::cpu_state::Times| {
        format!(
            "{} 0 {} {} {} 0 0 0 0 0",
            ticks(times.user),
            ticks(times.system),
            ticks(times.idle),
            ticks(times.iowait)
        )
    };
    let mut sum = crate::cpu_state::Times::default();
    for cpu in &world.cpus {
        sum.user += cpu.times.user;
        sum.system += cpu.times.system;
        sum.idle += cpu.times.idle;
        sum.iowait += cpu.times.iowait;
    }
    line(out, format_args!("cpu  {}", row(sum)))?;
    for number in world.online() {
        line(out, format_args!("cpu{number} {}", row(world.cpus[number as usize].times)))?;
    }
    line(out, "intr 0\nctxt 0")?;
    line(out, "btime 1700000000\nprocesses 1\nprocs_running 1\nprocs_blocked 0")?;
    line(out, "softirq 0 0 0 0 0 0 0 0 0 0 0")
}

/// Only the local timer ticks, and only while a CPU is busy.
fn interrupts(world: &World, out: &mut Vec<u8>) -> Answer {
    use std::fmt::Write as _;
    let mut head = String::from("     ");
    let mut timer = String::from(" LOC:");
    for cpu in world.online() {
        let times = world.cpus[cpu as usize].times;
        let ticks = (times.user + times.system) / (world.platform.board.tick_us * 1000);
        let _ = write!(head, "       CPU{cpu:<4}");
        let _ = write!(timer, " {ticks:10}");
    }
    line(out, head.trim_end())?;
    line(out, format_args!("{timer}   Local timer interrupts"))
}

fn cpuinfo(world: &World, out: &mut Vec<u8>) -> Answer {
    let board = &world.platform.board;
    let flags = board.flags.join(" ");
    for number in world.online() {
        let place = &board.places[number as usize];
        let online = |keep: &dyn Fn(&crate::board::CpuPlace) -> bool| {
            world.online().filter(|&cpu| keep(&board.places[cpu as usize])).count()
        };
        let siblings = online(&|other| other.package == place.package);
        let threads = place.siblings.iter().filter(|&&cpu| world.is_online(cpu)).count().max(1);
        let cpu = &world.cpus[number as usize];
        // arch_freq_get_on_cpu(), as in scaling_cur_freq.
        let khz = if world.platform.now.saturating_sub(cpu.measured.1) <= 20_000_000 && cpu.measured.0 > 0 {
            cpu.measured.0
        } else {
            world.cpufreq.policy_of(number).map_or(board.tsc_khz, |policy| policy.current)
        };
        let vendor = match board.vendor {
            Vendor::Intel => "GenuineIntel",
            Vendor::Amd => "AuthenticAMD",
            Vendor::Arm => {
                arm_cpuinfo(board, number, &flags, out)?;
                continue;
            }
        };
        let cache = board.caches.last().map_or(0, |cache| cache.kib);
        // loops_per_jiffy comes from the TSC (arch/x86/kernel/tsc.c): twice its MHz.
        let bogo = u64::from(board.tsc_khz) * 2;
        line(
            out,
            format_args!(
                "processor\t: {number}\nvendor_id\t: {vendor}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: {}\n\
                 stepping\t: {}\nmicrocode\t: {:#x}\ncpu MHz\t\t: {}.{:03}\ncache size\t: {cache} KB\n\
                 physical id\t: {}\nsiblings\t: {siblings}\ncore id\t\t: {}\ncpu cores\t: {}\napicid\t\t: {number}\n\
                 initial apicid\t: {number}\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\n\
                 flags\t\t: {flags}\nbugs\t\t:\nbogomips\t: {}.{:02}\nclflush size\t: 64\ncache_alignment\t: 64\n\
                 address sizes\t: 48 bits physical, 48 bits virtual\npower management:\n",
                board.family,
                board.model,
                board.brand,
                board.stepping,
                board.microcode,
                khz / 1000,
                khz % 1000,
                place.package,
                place.core,
                siblings / threads,
                if board.vendor == Vendor::Intel { 27 } else { 16 },
                bogo / 1000,
                bogo % 1000 / 10,
            ),
        )?;
    }
    Ok(())
}

/// A CPU's block on arm64 (arch/arm64/kernel/cpuinfo.c).
fn arm_cpuinfo(board: &Board, number: u32, flags: &str, out: &mut Vec<u8>) -> Answer {
    let (variant, revision) = (board.stepping >> 4, board.stepping & 15);
    // BogoMIPS follows from the architected counter: loops_per_jiffy in time_init().
    let bogo = board.tsc_khz / 500;
    line(
        out,
        format_args!(
            "processor\t: {number}\nBogoMIPS\t: {bogo}.00\nFeatures\t: {flags}\n\
             CPU implementer\t: {:#04x}\nCPU architecture: 8\nCPU variant\t: {variant:#x}\n\
             CPU part\t: {:#05x}\nCPU revision\t: {revision}\n",
            board.family, board.model,
        ),
    )
}

pub(super) static PROC: &[Attribute] = &[
    ro("cpuinfo", |world, _, out| cpuinfo(world, out)).live(),
    ro("stat", |world, _, out| stat(world, out)).live(),
    ro("interrupts", |world, _, out| interrupts(world, out)).live(),
    ro("cmdline", |world, _, out| {
        let mut words = vec!["BOOT_IMAGE=/vmlinuz".to_owned()];
        words.extend(world.boot.options.iter().cloned());
        line(out, words.join(" "))
    }),
    ro("version", |world, _, out| {
        line(
            out,
            format_args!(
                "Linux version {} (flyball sim, simulated machine {}) #1 SMP",
                world.platform.kernel.release(),
                world.name
            ),
        )
    }),
    ro("uptime", |world, _, out| {
        let idle: u64 = world.cpus.iter().map(|cpu| cpu.times.idle).sum();
        let show = |ns: u64| format!("{}.{:02}", ns / 1_000_000_000, ns % 1_000_000_000 / 10_000_000);
        line(out, format_args!("{} {}", show(world.platform.now), show(idle)))
    })
    .live(),
    ro("loadavg", |_, _, out| line(out, "0.00 0.00 0.00 1/100 1")),
    ro("meminfo", |world, _, out| {
        let kib = world.platform.board.memory_mib * 1024;
        line(
            out,
            format_args!(
                "MemTotal:       {kib:8} kB\nMemFree:        {kib:8} kB\nMemAvailable:   {kib:8} kB"
            ),
        )
    }),
    ro("modules", |world, _, out| match world.platform.board.vendor {
        Vendor::Arm => Ok(()),
        _ => line(out, "msr 16384 0 - Live 0x0000000000000000"),
    }),
];

pub(super) static KERNEL: &[Attribute] = &[
    ro("osrelease", |world, _, out| line(out, world.platform.kernel.release())),
    ro("hostname", |world, _, out| line(out, format_args!("sim-{}", world.name))),
    ro("ostype", |_, _, out| line(out, "Linux")),
    // There is no function tracer to stop.
    rw("ftrace_enabled", |_, _, out| line(out, 1), |_, _, _| Ok(())),
    ro("nmi_watchdog", |_, _, out| line(out, 0)),
    ro("perf_event_paranoid", |_, _, out| line(out, 2)),
    ro("randomize_va_space", |_, _, out| line(out, 2)),
];
