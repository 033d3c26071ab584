//! /sys/devices/system/cpu without cpufreq: lists of CPUs, hotplug, topology, caches, idle states,
//! QoS, SMT, CPPC, thermal throttling, and the NUMA nodes.

use super::{Attribute, Dir, Node, numbered, ro, rw};
use crate::{
    board::{CpuPlace, Vendor},
    cpufreq::intel,
    errno::{Answer, Errno},
    idle::Governor,
    kernel::Kernel,
    text::{cpu_list, cpu_mask, kstrtobool, kstrtou32, line, streq, trim},
    world::{Smt, World},
};

fn place(world: &World, dir: Dir) -> Answer<&CpuPlace> {
    world.platform.board.places.get(dir.index() as usize).ok_or(Errno::NODEV)
}

/// Online CPUs whose position satisfies a condition.
fn online_where<'a>(
    world: &'a World,
    keep: impl Fn(&CpuPlace) -> bool + 'a,
) -> impl Iterator<Item = u32> + 'a {
    // Masks of topology and nodes hold only online CPUs; the kernel removes a CPU that goes
    // offline.
    world.online().filter(move |&cpu| keep(&world.platform.board.places[cpu as usize]))
}

fn all(world: &World) -> String {
    cpu_list(0..world.platform.board.cpus())
}

/// The CPUs in a list on the kernel's command line; flags may precede it (`isolcpus=domain,3-5`).
fn asked_for(world: &World, name: &str) -> Vec<u32> {
    let text = world.boot.value(name).unwrap_or_default();
    let lists = text.split(',').filter(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    let cpus = crate::text::read_cpu_list(&lists.collect::<Vec<_>>().join(",")).unwrap_or_default();
    cpus.into_iter().filter(|&cpu| cpu < world.platform.board.cpus()).collect()
}

pub(super) static CPUS: &[Attribute] = &[
    ro("online", |world, _, out| line(out, cpu_list(world.online()))),
    ro("offline", |world, _, out| {
        line(out, cpu_list((0..world.platform.board.cpus()).filter(|&cpu| !world.is_online(cpu))))
    }),
    ro("possible", |world, _, out| line(out, all(world))),
    ro("present", |world, _, out| line(out, all(world))),
    // CONFIG_NR_CPUS of Debian's kernels, less one (drivers/base/cpu.c).
    ro("kernel_max", |_, _, out| line(out, 8191)),
    ro("isolated", |world, _, out| line(out, cpu_list(asked_for(world, "isolcpus")))),
    ro("nohz_full", |world, _, out| {
        let cpus = asked_for(world, "nohz_full");
        // Without nohz_full= the mask is not allocated, and older kernels print the null pointer
        // with %*pbl.
        if cpus.is_empty() && !world.platform.since(Kernel::V6_18) {
            return line(out, "(null)");
        }
        line(out, cpu_list(cpus))
    }),
    ro("modalias", |world, _, out| line(out, modalias(world))),
    rw("uevent", |_, _, _| Ok(()), |_, _, _| Ok(())),
];

fn modalias(world: &World) -> String {
    let board = &world.platform.board;
    let vendor = match board.vendor {
        // X86_VENDOR_INTEL and X86_VENDOR_AMD (asm/processor.h).
        Vendor::Intel => 0,
        Vendor::Amd => 2,
        Vendor::Arm => return "cpu:type:aarch64:feature:".to_owned(),
    };
    format!("cpu:type:x86,ven{vendor:04X}fam{:04X}mod{:04X}:feature:", board.family, board.model)
}

pub(super) static CPU: &[Attribute] = &[
    rw(
        "online",
        |world, dir, out| line(out, u8::from(world.is_online(dir.index()))),
        |world, dir, text| {
            let online = kstrtobool(text)?;
            world.set_online(dir.index(), online)
        },
    )
    // cpu0 cannot go offline on x86 (BOOTPARAM_HOTPLUG_CPU0, off by default, was removed in 6.5).
    .when(|world, dir| dir.index() != 0 || world.platform.board.vendor == Vendor::Arm),
    // By CPPC's highest level, which is every core's here (topology_init_cpu_capacity_cppc()).
    // The file goes with the CPU.
    ro("cpu_capacity", |_, _, out| line(out, 1024))
        .when(|world, dir| world.platform.board.vendor == Vendor::Arm && world.is_online(dir.index())),
    // DEVICE_ATTR_ADMIN_RO: 0400, as `ppin` below.
    ro("crash_notes_size", |_, _, out| line(out, 384)).mode(0o400),
    rw(
        "uevent",
        |world, _, out| {
            line(out, "DRIVER=processor")?;
            line(out, format_args!("MODALIAS={}", modalias(world)))
        },
        |_, _, _| Ok(()),
    ),
];

fn mask(world: &World, dir: Dir, out: &mut Vec<u8>, of: fn(&World, &CpuPlace) -> Vec<u32>) -> Answer {
    line(out, cpu_mask(of(world, place(world, dir)?), world.platform.board.cpus()))
}

fn list(world: &World, dir: Dir, out: &mut Vec<u8>, of: fn(&World, &CpuPlace) -> Vec<u32>) -> Answer {
    line(out, cpu_list(of(world, place(world, dir)?)))
}

fn same_core(world: &World, place: &CpuPlace) -> Vec<u32> {
    place.siblings.iter().copied().filter(|&cpu| world.is_online(cpu)).collect()
}

fn same_package(world: &World, place: &CpuPlace) -> Vec<u32> {
    let package = place.package;
    online_where(world, |other| other.package == package).collect()
}

fn same_die(world: &World, place: &CpuPlace) -> Vec<u32> {
    let (package, die) = (place.package, place.die);
    online_where(world, |other| other.package == package && other.die == die).collect()
}

fn same_cache(world: &World, place: &CpuPlace) -> Vec<u32> {
    let llc = place.llc;
    online_where(world, |other| other.llc == llc).collect()
}

/// arm64 has no dies (TOPOLOGY_DIE_SYSFS).
fn has_dies(world: &World, _: Dir) -> bool {
    world.platform.since(Kernel::V5_10) && world.platform.board.vendor != Vendor::Arm
}

fn has_new_names(world: &World, _: Dir) -> bool {
    world.platform.since(Kernel::V5_10)
}

fn has_ppin(world: &World, dir: Dir) -> bool {
    has_clusters(world, dir) && world.platform.board.vendor != Vendor::Arm
}

fn has_clusters(world: &World, _: Dir) -> bool {
    world.platform.since(Kernel::V6_1)
}

pub(super) static TOPOLOGY: &[Attribute] = &[
    ro("physical_package_id", |world, dir, out| line(out, place(world, dir)?.package)),
    // die_id and the names core_cpus, package_cpus and die_cpus came with 5.2, clusters with 5.16,
    // ppin with 5.18 (drivers/base/topology.c).
    ro("die_id", |world, dir, out| line(out, place(world, dir)?.die)).when(has_dies),
    ro("core_id", |world, dir, out| line(out, place(world, dir)?.core)),
    // The id of the second-level cache, which Intel's cores do not share here; BAD_APICID if the
    // kernel does not set it.
    ro("cluster_id", |world, dir, out| match world.platform.board.vendor {
        Vendor::Intel | Vendor::Arm => line(out, place(world, dir)?.core),
        Vendor::Amd => line(out, 65535),
    })
    .when(has_clusters),
    // The protected inventory number, which cannot be read here (arch/x86/kernel/cpu/common.c,
    // ppin_init()).
    ro("ppin", |_, _, out| line(out, "0x0")).mode(0o400).when(has_ppin),
    ro("thread_siblings", |world, dir, out| mask(world, dir, out, same_core)),
    ro("thread_siblings_list", |world, dir, out| list(world, dir, out, same_core)),
    ro("core_cpus", |world, dir, out| mask(world, dir, out, same_core)).when(has_new_names),
    ro("core_cpus_list", |world, dir, out| list(world, dir, out, same_core)).when(has_new_names),
    ro("core_siblings", |world, dir, out| mask(world, dir, out, same_package)),
    ro("core_siblings_list", |world, dir, out| list(world, dir, out, same_package)),
    ro("package_cpus", |world, dir, out| mask(world, dir, out, same_package)).when(has_new_names),
    ro("package_cpus_list", |world, dir, out| list(world, dir, out, same_package)).when(has_new_names),
    ro("die_cpus", |world, dir, out| mask(world, dir, out, same_die)).when(has_dies),
    ro("die_cpus_list", |world, dir, out| list(world, dir, out, same_die)).when(has_dies),
    ro("cluster_cpus", |world, dir, out| mask(world, dir, out, same_core)).when(has_clusters),
    ro("cluster_cpus_list", |world, dir, out| list(world, dir, out, same_core)).when(has_clusters),
];

fn cppc(world: &World, dir: Dir) -> Answer<crate::board::Cppc> {
    world.platform.board.cppc.get(dir.index() as usize).copied().ok_or(Errno::NODEV)
}

pub(super) static CPPC: &[Attribute] = &[
    ro("feedback_ctrs", |world, dir, out| {
        let silicon = world.platform.chip.silicon();
        let cpu = dir.index();
        let delivered = silicon.cycles(cpu as usize);
        // MPERF counts at the reference performance, like CPPC's reference counter.
        let reference = world.platform.chip.read(cpu, 0xe7).unwrap_or(0);
        line(out, format_args!("ref:{reference} del:{delivered}"))
    })
    .live(),
    ro("guaranteed_perf", |world, dir, out| line(out, cppc(world, dir)?.guaranteed))
        .when(|world, _| world.platform.since(Kernel::V6_12)),
    ro("highest_perf", |world, dir, out| line(out, cppc(world, dir)?.highest)),
    // The two frequencies came with 4.18 (drivers/acpi/cppc_acpi.c).
    ro("lowest_freq", |world, dir, out| line(out, cppc(world, dir)?.lowest_mhz))
        .when(|world, _| world.platform.since(Kernel::V4_19)),
    ro("lowest_nonlinear_perf", |world, dir, out| line(out, cppc(world, dir)?.lowest_nonlinear)),
    ro("lowest_perf", |world, dir, out| line(out, cppc(world, dir)?.lowest)),
    ro("nominal_freq", |world, dir, out| line(out, cppc(world, dir)?.nominal_mhz))
        .when(|world, _| world.platform.since(Kernel::V4_19)),
    ro("nominal_perf", |world, dir, out| line(out, cppc(world, dir)?.nominal)),
    // Without a register from firmware, the kernel uses nominal (cppc_get_perf_ctrs()).
    ro("reference_perf", |world, dir, out| line(out, cppc(world, dir)?.reference)),
    // Without information from firmware, cppc_get_perf_ctrs() assumes that the counters never wrap.
    ro("wraparound_time", |_, _, out| line(out, u64::MAX)),
];

/// Shows the events of the CPU's package: the silicon counts by package.
fn throttles(world: &World, dir: Dir, out: &mut Vec<u8>) -> Answer {
    let place = place(world, dir)?;
    line(out, world.platform.chip.silicon().throttle_events(place.package as usize))
}

/// Shows the longest event, ms.
fn longest_throttle(world: &World, dir: Dir, out: &mut Vec<u8>) -> Answer {
    line(out, world.throttle_ms(place(world, dir)?.package).1)
}

/// Shows the total time of all events, ms.
fn throttle_time(world: &World, dir: Dir, out: &mut Vec<u8>) -> Answer {
    line(out, world.throttle_ms(place(world, dir)?.package).0)
}

/// Times in addition to counts came with 5.6 (arch/x86/kernel/cpu/mce/therm_throt.c).
fn has_times(world: &World, _: Dir) -> bool {
    world.platform.since(Kernel::V5_10)
}

pub(super) static THROTTLE: &[Attribute] = &[
    ro("core_throttle_count", throttles).live(),
    ro("core_throttle_max_time_ms", longest_throttle).when(has_times).live(),
    ro("core_throttle_total_time_ms", throttle_time).when(has_times).live(),
    ro("package_throttle_count", throttles).live(),
    ro("package_throttle_max_time_ms", longest_throttle).when(has_times).live(),
    ro("package_throttle_total_time_ms", throttle_time).when(has_times).live(),
];

pub(super) static POWER: &[Attribute] = &[
    rw(
        "async",
        |_, _, out| line(out, "disabled"),
        |_, _, text| {
            if streq(text, "enabled") || streq(text, "disabled") { Ok(()) } else { Err(Errno::INVAL) }
        },
    ),
    // EIO for a device that does not use autosuspend (drivers/base/power/sysfs.c).
    rw("autosuspend_delay_ms", |_, _, _| Err(Errno::IO), |_, _, _| Err(Errno::IO)),
    rw(
        "control",
        |_, _, out| line(out, "auto"),
        |_, _, text| {
            if streq(text, "auto") || streq(text, "on") { Ok(()) } else { Err(Errno::INVAL) }
        },
    ),
    rw(
        "energy_perf_bias",
        |world, dir, out| line(out, world.platform.chip.read(dir.index(), 0x1b0)? & 0xf),
        |world, dir, text| intel::store_epb(&mut world.platform, dir.index(), text),
    )
    // Since 5.2 (arch/x86/kernel/cpu/intel_epb.c); before, only the register has it.
    // intel_epb_offline removes the file.
    .when(|world, dir| {
        world.platform.board.epb && world.platform.since(Kernel::V5_10) && world.is_online(dir.index())
    }),
    rw(
        "pm_qos_resume_latency_us",
        |world, dir, out| match world.cpus[dir.index() as usize].resume_latency_us {
            // The kernel stores `n/a` as 0 and `0` as no constraint; both read back as they do
            // here.
            -1 => line(out, "n/a"),
            latency => line(out, latency),
        },
        |world, dir, text| {
            let latency = if streq(text, "n/a") {
                -1
            } else {
                // The largest value is PM_QOS_RESUME_LATENCY_NO_CONSTRAINT, which the kernel
                // reserves for its own use.
                match crate::text::kstrtoi32(text, 0) {
                    Ok(value) if (0..i32::MAX).contains(&value) => value,
                    _ => return Err(Errno::INVAL),
                }
            };
            world.cpus[dir.index() as usize].resume_latency_us = latency;
            Ok(())
        },
    ),
    ro("runtime_active_kids", |_, _, out| line(out, 0)),
    ro("runtime_active_time", |_, _, out| line(out, 0)),
    ro("runtime_enabled", |_, _, out| line(out, "disabled")),
    ro("runtime_status", |_, _, out| line(out, "unsupported")),
    ro("runtime_suspended_time", |_, _, out| line(out, 0)),
    ro("runtime_usage", |_, _, out| line(out, 0)),
];

fn cache(world: &World, dir: Dir) -> Answer<crate::board::Cache> {
    let cache = world.platform.board.caches.get(usize::from(dir.minor())).copied().ok_or(Errno::NODEV)?;
    let kib = if cache.level >= 3 { place(world, dir)?.llc_kib } else { cache.kib };
    Ok(crate::board::Cache { kib, ..cache })
}

/// Number of a CPU's caches: a low-power core may lack the last one.
fn caches(world: &World, cpu: u32) -> usize {
    let board = &world.platform.board;
    board.caches.iter().filter(|cache| cache.level < 3 || board.places[cpu as usize].llc_kib > 0).count()
}

fn shares(world: &World, dir: Dir) -> Answer<Vec<u32>> {
    let place = place(world, dir)?;
    Ok(if cache(world, dir)?.level >= 3 { same_cache(world, place) } else { same_core(world, place) })
}

pub(super) static CACHE: &[Attribute] = &[
    ro("coherency_line_size", |_, _, out| line(out, 64)),
    ro("id", |world, dir, out| {
        let place = place(world, dir)?;
        let first = shares(world, dir)?.first().copied().unwrap_or(0);
        line(out, if cache(world, dir)?.level >= 3 { place.llc } else { first })
    }),
    ro("level", |world, dir, out| line(out, cache(world, dir)?.level)),
    ro("size", |world, dir, out| line(out, format_args!("{}K", cache(world, dir)?.kib))),
    ro("type", |world, dir, out| line(out, cache(world, dir)?.kind)),
    ro("shared_cpu_list", |world, dir, out| line(out, cpu_list(shares(world, dir)?))),
    ro("shared_cpu_map", |world, dir, out| {
        line(out, cpu_mask(shares(world, dir)?, world.platform.board.cpus()))
    }),
];

/// The idle state of stateN, or `None` if it is POLL.
fn idle_state(world: &World, dir: Dir) -> Option<&crate::board::IdleState> {
    let board = &world.platform.board;
    board.idle.get(usize::from(dir.minor()).checked_sub(board.first_idle)?)
}

fn idle_states(world: &World) -> usize {
    world.platform.board.idle.len() + world.platform.board.first_idle
}

fn idle_count(world: &World, dir: Dir) -> Answer<crate::cpu_state::IdleCount> {
    world.cpus[dir.index() as usize].idle.get(usize::from(dir.minor())).copied().ok_or(Errno::NODEV)
}

fn has_newer_counts(world: &World, _: Dir) -> bool {
    world.platform.since(Kernel::V5_10)
}

/// Up to 5.7 the governor cannot be changed without `cpuidle_sysfs_switch` on the command line
/// (drivers/cpuidle/sysfs.c).
fn switches_governors(world: &World, _: Dir) -> bool {
    world.platform.since(Kernel::V5_10)
}

pub(super) static IDLE_STATE: &[Attribute] = &[
    ro("name", |world, dir, out| line(out, idle_state(world, dir).map_or("POLL", |state| &state.name))),
    ro("desc", |world, dir, out| {
        line(out, idle_state(world, dir).map_or("CPUIDLE CORE POLL IDLE", |state| &state.desc))
    }),
    ro("latency", |world, dir, out| line(out, idle_state(world, dir).map_or(0, |state| state.latency_us))),
    ro("residency", |world, dir, out| {
        line(out, idle_state(world, dir).map_or(0, |state| state.residency_us))
    })
    .when(|world, _| world.platform.since(Kernel::V4_19)),
    // POLL's power_usage is -1, printed as unsigned; other states leave it at 0
    // (drivers/cpuidle/poll_state.c).
    ro("power", |world, dir, out| line(out, if idle_state(world, dir).is_none() { u32::MAX } else { 0 })),
    ro("usage", |world, dir, out| line(out, idle_count(world, dir)?.usage)).live(),
    // `rejected` came with 5.10, `above` and `below` with 5.1, `default_status` with 5.6
    // (drivers/cpuidle/sysfs.c).
    ro("rejected", |world, dir, out| line(out, idle_count(world, dir)?.rejected))
        .when(has_newer_counts)
        .live(),
    ro("time", |world, dir, out| line(out, idle_count(world, dir)?.time_ns / 1000)).live(),
    ro("above", |world, dir, out| line(out, idle_count(world, dir)?.above)).when(has_newer_counts).live(),
    ro("below", |world, dir, out| line(out, idle_count(world, dir)?.below)).when(has_newer_counts).live(),
    // No modelled state has CPUIDLE_FLAG_OFF.
    ro("default_status", |_, _, out| line(out, "enabled")).when(has_newer_counts),
    rw(
        "disable",
        |world, dir, out| {
            idle_count(world, dir)?;
            line(out, world.cpus[dir.index() as usize].disabled >> dir.minor() & 1)
        },
        |world, dir, text| {
            // store_state_ull() returns EINVAL for everything that kstrtoull rejects.
            let disabled = crate::text::kstrtou64(text, 0).map_err(|_| Errno::INVAL)? != 0;
            idle_count(world, dir)?;
            let (states, bit) = (&mut world.cpus[dir.index() as usize].disabled, 1 << dir.minor());
            *states = if disabled { *states | bit } else { *states & !bit };
            Ok(())
        },
    ),
];

pub(super) static IDLE_GLOBAL: &[Attribute] = &[
    ro("current_driver", |world, _, out| line(out, world.platform.board.idle_driver)),
    // A space follows each name (show_available_governors() in drivers/cpuidle/sysfs.c).
    ro("available_governors", |world, _, out| line(out, if world.has_teo { "menu teo " } else { "menu " }))
        .when(switches_governors),
    rw(
        "current_governor",
        |world, _, out| line(out, world.idle_governor.name()),
        |world, _, text| {
            let governor = Governor::from_name(trim(text)).ok_or(Errno::INVAL)?;
            if governor == Governor::Teo && !world.has_teo {
                return Err(Errno::INVAL);
            }
            world.set_idle_governor(governor);
            Ok(())
        },
    )
    .when(switches_governors),
    ro("current_governor_ro", |world, _, out| line(out, world.idle_governor.name())),
];

fn has_smt_switch(world: &World) -> bool {
    world.platform.board.vendor != Vendor::Arm || world.platform.since(Kernel::V6_18)
}

pub(super) static SMT: &[Attribute] = &[
    ro("active", |world, _, out| {
        let two =
            world.online().any(|cpu| same_core(world, &world.platform.board.places[cpu as usize]).len() > 1);
        line(out, u8::from(two))
    }),
    rw(
        "control",
        |world, _, out| {
            line(
                out,
                match world.smt {
                    // Arm has the switch (HOTPLUG_SMT) since 6.15.
                    Smt::NotSupported if !has_smt_switch(world) => "notimplemented",
                    Smt::On => "on",
                    Smt::Off => "off",
                    Smt::ForceOff => "forceoff",
                    Smt::NotSupported => "notsupported",
                },
            )
        },
        |world, _, text| {
            // Before the word is looked at, since 6.6.
            if world.smt == Smt::NotSupported && world.platform.since(Kernel::V6_12) {
                return Err(Errno::NODEV);
            }
            let wanted = if streq(text, "on") {
                Smt::On
            } else if streq(text, "off") {
                Smt::Off
            } else if streq(text, "forceoff") {
                Smt::ForceOff
            } else {
                // From 6.6 on, a number of threads is also accepted.
                match (kstrtou32(text, 10), world.platform.since(Kernel::V6_12)) {
                    (Ok(1), true) => Smt::Off,
                    (Ok(2), true) => Smt::On,
                    _ => return Err(Errno::INVAL),
                }
            };
            match world.smt {
                Smt::ForceOff => return Err(Errno::PERM),
                Smt::NotSupported => return Err(Errno::NODEV),
                _ => {}
            }
            world.set_smt(wanted)
        },
    ),
];

pub(super) static NODES: &[Attribute] = &[
    ro("online", |world, _, out| line(out, cpu_list(0..nodes(world)))),
    ro("possible", |world, _, out| line(out, cpu_list(0..nodes(world)))),
    ro("has_cpu", |world, _, out| line(out, cpu_list(0..nodes(world)))),
    ro("has_memory", |world, _, out| line(out, cpu_list(0..nodes(world)))),
];

pub(super) static NODE: &[Attribute] = &[
    ro("cpulist", |world, dir, out| {
        let node = dir.index();
        line(out, cpu_list(online_where(world, |place| place.node == node)))
    }),
    ro("cpumap", |world, dir, out| {
        let node = dir.index();
        line(out, cpu_mask(online_where(world, |place| place.node == node), world.platform.board.cpus()))
    }),
    ro("distance", |world, dir, out| {
        let row: Vec<String> = (0..nodes(world))
            // ACPI's SLIT: 10 is local by definition, and 32 between packages is common on AMD
            // servers.
            .map(|other| if other == dir.index() { "10" } else { "32" }.to_owned())
            .collect();
        line(out, row.join(" "))
    }),
];

pub(super) fn nodes(world: &World) -> u32 {
    world.platform.board.places.iter().map(|place| place.node + 1).max().unwrap_or(1)
}

/// A CPU's folders, and whether each exists.
fn folders(world: &World, cpu: u32) -> [(&'static str, Dir, bool); 6] {
    let board = &world.platform.board;
    let online = world.is_online(cpu);
    [
        // Hotplug callbacks remove it with the CPU, like cache and thermal_throttle.
        ("topology", Dir::Topology(cpu), online),
        ("acpi_cppc", Dir::Cppc(cpu), !board.cppc.is_empty()),
        ("thermal_throttle", Dir::Throttle(cpu), online && board.vendor == Vendor::Intel),
        ("power", Dir::CpuPower(cpu), true),
        ("cache", Dir::Caches(cpu), online),
        ("cpuidle", Dir::Idle(cpu), !board.idle.is_empty()),
    ]
}

/// The folders of /sys/devices/system/cpu, and whether each exists.
fn global_folders(world: &World) -> [(&'static str, Dir, bool); 6] {
    [
        ("cpufreq", Dir::Cpufreq, true),
        ("cpuidle", Dir::IdleGlobal, true),
        ("smt", Dir::Smt, true),
        ("intel_pstate", Dir::IntelPstate, world.platform.intel.present),
        ("amd_pstate", Dir::AmdPstate, world.platform.amd.present && world.platform.since(Kernel::V6_12)),
        ("intel_uncore_frequency", Dir::Uncore, super::system::has_uncore(world)),
    ]
}

pub(super) fn child(world: &World, dir: Dir, name: &str) -> Option<Node> {
    let count = world.platform.board.cpus();
    match dir {
        Dir::Cpus => match numbered(name, "cpu") {
            // Directories of present CPUs stay when a CPU goes offline.
            Some(cpu) => (cpu < count).then_some(Node::Dir(Dir::Cpu(cpu))),
            None => find(&global_folders(world), name),
        },
        Dir::Cpu(cpu) => match name {
            // Up to 4.2 the policy is a directory below its CPU (cpufreq_add_dev()).
            "cpufreq" if world.platform.before(Kernel::V4_19) => {
                world.cpufreq.policy_of(cpu).map(|policy| Node::Dir(Dir::Policy(policy.number)))
            }
            "cpufreq" => world
                .cpufreq
                .policy_of(cpu)
                .map(|policy| Node::Link(format!("../cpufreq/policy{}", policy.number))),
            "subsystem" => Some(Node::Link("../../../../bus/cpu".to_owned())),
            _ => match numbered(name, "node") {
                Some(node) => (world.platform.board.places[cpu as usize].node == node)
                    .then(|| Node::Link(format!("../../node/node{node}"))),
                None => find(&folders(world, cpu), name),
            },
        },
        Dir::Caches(cpu) => numbered(name, "index")
            .filter(|&n| (n as usize) < caches(world, cpu))
            .map(|n| Node::Dir(Dir::Cache(cpu, n as u8))),
        Dir::Idle(cpu) => numbered(name, "state")
            .filter(|&n| (n as usize) < idle_states(world))
            .map(|n| Node::Dir(Dir::IdleState(cpu, n as u8))),
        Dir::Nodes => numbered(name, "node").filter(|&n| n < nodes(world)).map(|n| Node::Dir(Dir::Node(n))),
        Dir::Node(node) => numbered(name, "cpu")
            .filter(|&cpu| {
                world.platform.board.places.get(cpu as usize).is_some_and(|place| place.node == node)
            })
            .map(|cpu| Node::Link(format!("../../cpu/cpu{cpu}"))),
        _ => None,
    }
}

fn find(folders: &[(&'static str, Dir, bool)], name: &str) -> Option<Node> {
    folders.iter().find(|(folder, _, there)| *there && *folder == name).map(|(_, dir, _)| Node::Dir(*dir))
}

pub(super) fn names(world: &World, dir: Dir, names: &mut Vec<String>) {
    let there = |folders: &[(&'static str, Dir, bool)]| {
        folders
            .iter()
            .filter(|(_, _, there)| *there)
            .map(|(name, _, _)| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    match dir {
        Dir::Cpus => {
            names.extend(there(&global_folders(world)));
            names.extend((0..world.platform.board.cpus()).map(|cpu| format!("cpu{cpu}")));
        }
        Dir::Cpu(cpu) => {
            names.extend(there(&folders(world, cpu)));
            if world.cpufreq.index_of(cpu).is_some() {
                names.push("cpufreq".to_owned());
            }
            names.push("subsystem".to_owned());
            names.push(format!("node{}", world.platform.board.places[cpu as usize].node));
        }
        Dir::Caches(cpu) => names.extend((0..caches(world, cpu)).map(|n| format!("index{n}"))),
        Dir::Idle(_) => names.extend((0..idle_states(world)).map(|n| format!("state{n}"))),
        Dir::Nodes => names.extend((0..nodes(world)).map(|n| format!("node{n}"))),
        Dir::Node(node) => {
            let places = world.platform.board.places.iter().enumerate();
            names.extend(places.filter(|(_, place)| place.node == node).map(|(cpu, _)| format!("cpu{cpu}")));
        }
        _ => {}
    }
}
