//! /sys/devices/system/cpu/cpufreq, intel_pstate and amd_pstate.

use super::{Attribute, Dir, Node, numbered, ro, rw, wo};
use crate::{
    cpufreq::{
        Driver, GOVERNORS, Style,
        amd::{self, Caps},
        cppc,
        intel::{self, Pstates},
        policy::{Governor, Policy},
    },
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{kstrtobool, kstrtou32, kstrtou64, line, scan_signed, scan_unsigned, scan_word},
    world::World,
};

/// The policy of a directory. Access to a policy without online CPUs fails (cpufreq.c, show and
/// store).
fn policy(world: &World, dir: Dir) -> Answer<&Policy> {
    let index = world.cpufreq.index_of_policy(dir.index()).ok_or(Errno::NOENT)?;
    let policy = &world.cpufreq.policies[index];
    if policy.is_active() { Ok(policy) } else { Err(Errno::BUSY) }
}

fn index(world: &World, dir: Dir) -> Answer<usize> {
    policy(world, dir)?;
    world.cpufreq.index_of_policy(dir.index()).ok_or(Errno::NOENT)
}

fn words(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Numbers padded to this width, each followed by a space.
fn spaced(numbers: &[u32], width: usize) -> String {
    use std::fmt::Write as _;
    numbers.iter().fold(String::new(), |mut text, number| {
        let _ = write!(text, "{number:width$} ");
        text
    })
}

fn driver_name(world: &World) -> &'static str {
    world.cpufreq.driver.map_or("", |driver| driver.name())
}

fn is_amd(world: &World) -> bool {
    matches!(driver_name(world), "amd-pstate" | "amd-pstate-epp")
}

fn has_epp(world: &World) -> bool {
    driver_name(world) == "amd-pstate-epp"
        || matches!(driver_name(world), "intel_pstate" | "intel_cpufreq")
            && world.platform.intel.hwp
            && world.platform.board.has("hwp_epp")
}

fn is_acpi(world: &World) -> bool {
    driver_name(world) == "acpi-cpufreq"
}

fn is_cppc(world: &World) -> bool {
    driver_name(world) == "cppc_cpufreq"
}

/// The registers of CPPC came as files with 6.16 and 6.17.
fn has_registers(world: &World, _: Dir) -> bool {
    is_cppc(world) && world.platform.since(Kernel::V6_18)
}

fn boost_initial(world: &World) -> Option<bool> {
    world.cpufreq.driver.and_then(|driver| driver.has_boost(&world.platform))
}

fn caps(world: &World, dir: Dir) -> Answer<Caps> {
    Caps::for_cpu(&world.platform, policy(world, dir)?.number)
}

/// Writes to a limit. Since 5.3 the write is a request that a work item applies. Before, it takes
/// effect at once, and fails if minimum and maximum cross (store_one() and cpufreq_set_policy() of
/// 4.19).
fn store_limit(world: &mut World, dir: Dir, text: &[u8], is_max: bool) -> Answer {
    let index = index(world, dir)?;
    let mut request = world.cpufreq.policies[index].request;
    // The request may exceed the processor's range: verify() clips the result.
    if is_max {
        request.1 = limit(world, text, i32::MAX)?;
    } else {
        request.0 = limit(world, text, 0)?;
    }
    let at_once = world.platform.before(Kernel::V5_10);
    if at_once && request.0 > request.1 {
        return Err(Errno::INVAL);
    }
    let World { cpufreq, platform, .. } = world;
    cpufreq.policies[index].request = request;
    if at_once {
        cpufreq.refresh(platform, index);
    } else {
        cpufreq.request_changed(platform, index);
    }
    Ok(())
}

/// Parses a limit: up to 6.1 with sscanf, later with kstrtoul; stored as a signed 32-bit request.
/// -1 (all bits set) removes the request (freq_qos_value_invalid() in include/linux/pm_qos.h,
/// PM_QOS_DEFAULT_VALUE).
fn limit(world: &World, text: &[u8], default: i32) -> Answer<i32> {
    let value = if world.platform.before(Kernel::V6_12) { scan_unsigned(text)? } else { kstrtou64(text, 0)? };
    match value as i32 {
        -1 => Ok(default),
        value if value < 0 => Err(Errno::INVAL),
        value => Ok(value),
    }
}

/// The frequency from APERF and MPERF, unless the CPU has been idle for more than 20 ms
/// (aperfmperf.c).
fn measured(world: &World, policy: &Policy) -> u32 {
    if is_cppc(world) {
        // CONFIG_CPUFREQ_ARCH_CUR_FREQ exists only on x86; elsewhere the file shows the last
        // request.
        return policy.current;
    }
    let cpu = &world.cpus[policy.leader() as usize];
    let (khz, at) = cpu.measured;
    // MAX_SAMPLE_AGE: (HZ / 50) jiffies.
    if khz > 0 && world.platform.now.saturating_sub(at) <= 20_000_000 { khz } else { policy.current }
}

/// A register of CPPC that cppc_cpufreq shows.
macro_rules! register {
    ($name:literal) => {
        rw(
            $name,
            |world, dir, out| cppc::show(&world.platform, policy(world, dir)?, $name, out),
            |world, dir, text| {
                let index = index(world, dir)?;
                cppc::store(&mut world.platform, &world.cpufreq.policies[index], $name, text)
            },
        )
    };
}

pub(super) static POLICY: &[Attribute] = &[
    ro("affected_cpus", |world, dir, out| line(out, words(&policy(world, dir)?.online))),
    ro("related_cpus", |world, dir, out| line(out, words(&policy(world, dir)?.cpus))),
    ro("cpuinfo_min_freq", |world, dir, out| line(out, policy(world, dir)?.lowest)),
    ro("cpuinfo_max_freq", |world, dir, out| line(out, policy(world, dir)?.highest)),
    ro("cpuinfo_transition_latency", |world, dir, out| line(out, policy(world, dir)?.latency_ns)),
    ro("cpuinfo_avg_freq", |world, dir, out| line(out, measured(world, policy(world, dir)?)))
        // On arm64 it needs the processor's activity monitors, which are not modelled.
        .when(|world, _| world.platform.since(Kernel::V6_18) && !is_cppc(world))
        .live(),
    ro("cpuinfo_cur_freq", |world, dir, out| {
        let driver = world.cpufreq.driver.ok_or(Errno::NODEV)?;
        match driver.current(&world.platform, policy(world, dir)?) {
            Some(khz) if khz > 0 => line(out, khz),
            _ => line(out, "<unknown>"),
        }
    })
    .mode(0o400)
    .when(|world, _| is_acpi(world) && !world.platform.board.pss_ports || is_cppc(world))
    .live(),
    ro("scaling_cur_freq", |world, dir, out| line(out, measured(world, policy(world, dir)?))).live(),
    ro("scaling_driver", |world, dir, out| policy(world, dir).and_then(|_| line(out, driver_name(world)))),
    ro("scaling_available_governors", |world, dir, out| {
        policy(world, dir)?;
        match world.cpufreq.driver.map(Driver::style) {
            Some(Style::SetPolicy) => line(out, "performance powersave"),
            _ => line(out, format_args!("{} ", world.cpufreq.governors.join(" "))),
        }
    }),
    rw(
        "scaling_governor",
        |world, dir, out| line(out, policy(world, dir)?.governor.name()),
        |world, dir, text| {
            let index = index(world, dir)?;
            let word = String::from_utf8_lossy(scan_word(text, 15)?).to_ascii_lowercase();
            let setpolicy = world.cpufreq.driver.is_some_and(|driver| driver.style() == Style::SetPolicy);
            // setpolicy drivers compare only as many characters as the name has, others the whole
            // word; both ignore case.
            let name = GOVERNORS
                .into_iter()
                .find(|name| if setpolicy { word.starts_with(name) } else { word == *name })
                .ok_or(Errno::INVAL)?;
            let World { cpufreq, platform, cpus, .. } = world;
            cpufreq.set_governor(platform, cpus, index, name)
        },
    ),
    rw(
        "scaling_min_freq",
        |world, dir, out| line(out, policy(world, dir)?.min),
        |world, dir, text| store_limit(world, dir, text, false),
    ),
    rw(
        "scaling_max_freq",
        |world, dir, out| line(out, policy(world, dir)?.max),
        |world, dir, text| store_limit(world, dir, text, true),
    ),
    rw(
        "scaling_setspeed",
        |world, dir, out| {
            let policy = policy(world, dir)?;
            match policy.governor {
                // Kernels from 7.2 on show the request, earlier ones the resulting frequency.
                Governor::Userspace(speed) if world.platform.since(Kernel::V6_18) => line(out, speed),
                Governor::Userspace(_) => line(out, policy.current),
                _ => line(out, "<unsupported>"),
            }
        },
        |world, dir, text| {
            let index = index(world, dir)?;
            // store_scaling_setspeed(): only userspace has a store_setspeed.
            if !matches!(world.cpufreq.policies[index].governor, Governor::Userspace(_)) {
                return Err(Errno::INVAL);
            }
            let speed = if world.platform.before(Kernel::V6_18) {
                scan_unsigned(text)? as u32
            } else {
                kstrtou32(text, 0)?
            };
            // Stored before clamping: cpufreq_set() stores the request.
            world.cpufreq.policies[index].governor = Governor::Userspace(speed);
            let World { cpufreq, platform, .. } = world;
            cpufreq.target(platform, index, speed, crate::governor::Relation::Low);
            Ok(())
        },
    ),
    rw(
        "boost",
        |world, dir, out| line(out, u8::from(policy(world, dir)?.boost)),
        |world, dir, text| {
            let index = index(world, dir)?;
            let on = kstrtobool(text)?;
            // store_local_boost(): a policy cannot boost while the global switch is off.
            if !world.platform.boost {
                return Err(Errno::INVAL);
            }
            let World { cpufreq, platform, .. } = world;
            if cpufreq.driver.is_some_and(|driver| !driver.can_boost(platform, &cpufreq.policies[index])) {
                return Err(Errno::INVAL);
            }
            if cpufreq.policies[index].boost == on {
                return Ok(());
            }
            cpufreq.set_policy_boost(platform, index, on)
        },
    )
    .when(|world, _| world.platform.since(Kernel::V6_12) && boost_initial(world).is_some()),
    // acpi-cpufreq
    ro("scaling_available_frequencies", |world, dir, out| {
        let table = &policy(world, dir)?.table;
        // show_available_freqs() leaves a space after the last entry.
        line(out, spaced(table, 0))
    })
    .when(|world, _| is_acpi(world)),
    // Empty: CPUFREQ_BOOST_FREQ marks no entry of acpi-cpufreq's table.
    ro("scaling_boost_frequencies", |world, dir, out| policy(world, dir).and_then(|_| line(out, ""))).when(
        |world, _| is_acpi(world) && world.platform.since(Kernel::V6_18) && boost_initial(world).is_some(),
    ),
    // The highest P-state that _PPC allows (acpi_processor_get_bios_limit()).
    ro("bios_limit", |world, dir, out| {
        let policy = policy(world, dir)?;
        line(out, policy.bios_limit.or(policy.table.first().copied()).unwrap_or(0))
    })
    .when(|world, _| is_acpi(world)),
    ro("freqdomain_cpus", |world, dir, out| {
        let siblings = &world.platform.board.places[policy(world, dir)?.number as usize].siblings;
        line(out, words(siblings))
    })
    .when(|world, _| is_acpi(world) || is_cppc(world)),
    register!("auto_select").when(has_registers),
    register!("auto_act_window").when(has_registers),
    register!("energy_performance_preference_val").when(has_registers),
    register!("perf_limited").when(|world, _| is_cppc(world) && world.platform.since(Kernel::V7_2)).live(),
    rw(
        "cpb",
        |world, dir, out| policy(world, dir).and_then(|_| line(out, u8::from(world.platform.boost))),
        |world, dir, text| {
            let index = index(world, dir)?;
            let value = kstrtou32(text, 10).map_err(|_| Errno::INVAL)?;
            if value > 1 {
                return Err(Errno::INVAL);
            }
            // The register changes, but the file shows the global switch (store_cpb, show_cpb).
            let driver = world.cpufreq.driver.ok_or(Errno::NODEV)?;
            let World { cpufreq, platform, .. } = world;
            driver.set_boost(platform, &mut cpufreq.policies[index], value == 1)
        },
    )
    .when(|world, _| {
        is_acpi(world)
            && world.platform.board.vendor == crate::board::Vendor::Amd
            && boost_initial(world).is_some()
    }),
    // amd-pstate
    ro("amd_pstate_max_freq", |world, dir, out| {
        let caps = caps(world, dir)?;
        line(out, caps.highest_khz())
    })
    .when(|world, _| is_amd(world)),
    ro("amd_pstate_lowest_nonlinear_freq", |world, dir, out| {
        let caps = caps(world, dir)?;
        line(out, caps.khz(caps.lowest_nonlinear))
    })
    .when(|world, _| is_amd(world)),
    ro("amd_pstate_highest_perf", |world, dir, out| line(out, caps(world, dir)?.highest))
        .when(|world, _| is_amd(world)),
    ro("amd_pstate_prefcore_ranking", |world, dir, out| line(out, caps(world, dir)?.own))
        .when(|world, _| is_amd(world) && shows_prefcore(world)),
    ro("amd_pstate_hw_prefcore", |world, dir, out| {
        policy(world, dir)?;
        line(out, if world.platform.amd.prefcore { "enabled" } else { "disabled" })
    })
    .when(|world, _| is_amd(world) && shows_prefcore(world)),
    // EPP
    ro("energy_performance_available_preferences", |world, dir, out| {
        let policy = policy(world, dir)?;
        if is_amd(world) {
            line(out, amd::available_epp(&world.platform, policy))
        } else {
            line(out, "default performance balance_performance balance_power power ")
        }
    })
    .when(|world, _| has_epp(world)),
    rw(
        "energy_performance_preference",
        |world, dir, out| {
            let cpu = policy(world, dir)?.leader();
            let epp = if is_amd(world) {
                amd::show_epp(&world.platform, cpu)
            } else {
                intel::show_epp(&world.platform, cpu)
            };
            line(out, epp?)
        },
        |world, dir, text| {
            let index = index(world, dir)?;
            let amd = is_amd(world);
            let World { cpufreq, platform, .. } = world;
            if amd {
                amd::store_epp(platform, &cpufreq.policies[index], text)
            } else {
                intel::store_epp(cpufreq, platform, index, text)
            }
        },
    )
    .when(|world, _| has_epp(world)),
    ro("base_frequency", |world, dir, out| {
        line(out, intel::base_frequency(&world.platform, policy(world, dir)?.number)?)
    })
    // Since 4.20 and in RHEL 7.
    .when(|world, _| {
        matches!(driver_name(world), "intel_pstate" | "intel_cpufreq")
            && world.platform.intel.hwp
            && world.platform.kernel != Kernel::V4_19
    }),
];

/// Preferred-core files: always on 6.12 and 6.18, later only if the cores differ, never on 6.1.
fn shows_prefcore(world: &World) -> bool {
    world.platform.since(Kernel::V6_12) && !world.platform.since(Kernel::V7_2)
        || world.platform.since(Kernel::V7_2) && world.platform.amd.prefcore
}

pub(super) static GLOBAL: &[Attribute] = &[rw(
    "boost",
    |world, _, out| line(out, u8::from(world.platform.boost)),
    |world, _, text| {
        let on = if world.platform.before(Kernel::V6_12) {
            match scan_signed(text)? {
                // sscanf("%d"), and only 0 or 1 (store_boost()).
                0 => false,
                1 => true,
                _ => return Err(Errno::INVAL),
            }
        } else {
            kstrtobool(text)?
        };
        let World { cpufreq, platform, .. } = world;
        // store_boost() returns EINVAL for every error of the driver.
        cpufreq.set_boost(platform, on).map_err(|_| Errno::INVAL)
    },
)
.when(|world, _| boost_initial(world).is_some())];

pub(super) static STATS: &[Attribute] = &[
    ro("total_trans", |world, dir, out| {
        let stats = policy(world, dir)?.stats.as_ref().ok_or(Errno::NOENT)?;
        line(out, stats.table.iter().flatten().map(|&count| u64::from(count)).sum::<u64>())
    })
    .live(),
    ro("time_in_state", |world, dir, out| {
        let policy = policy(world, dir)?;
        let stats = policy.stats.as_ref().ok_or(Errno::NOENT)?;
        for (index, khz) in policy.table.iter().enumerate() {
            let mut time = stats.time.get(index).copied().unwrap_or(0);
            // The time at the current entry is added at the next change of frequency; until then
            // compute it from `last`.
            if index == stats.index {
                time += world.platform.now.saturating_sub(stats.last);
            }
            // In units of 10 ms.
            line(out, format_args!("{khz} {}", time / 10_000_000))?;
        }
        Ok(())
    })
    .live(),
    ro("trans_table", |world, dir, out| {
        let policy = policy(world, dir)?;
        let stats = policy.stats.as_ref().ok_or(Errno::NOENT)?;
        line(out, "   From  :    To")?;
        let header = spaced(&policy.table, 9);
        line(out, format_args!("         : {header}"))?;
        for (row, khz) in policy.table.iter().enumerate() {
            let cells = spaced(stats.table.get(row).map_or(&[], Vec::as_slice), 9);
            line(out, format_args!("{khz:9}: {cells}"))?;
        }
        Ok(())
    })
    .live(),
    // Since 4.8 (drivers/cpufreq/cpufreq_stats.c).
    wo("reset", |world, dir, _| {
        let index = index(world, dir)?;
        let now = world.platform.now;
        if let Some(stats) = &mut world.cpufreq.policies[index].stats {
            stats.time.fill(0);
            stats.table.iter_mut().for_each(|row| row.fill(0));
            stats.last = now;
        }
        Ok(())
    })
    .when(|world, _| world.platform.since(Kernel::V4_19)),
];

/// Directories of tunables, by index.
const TUNABLES: [&str; 3] = ["schedutil", "ondemand", "conservative"];

macro_rules! tunables {
    ($governor:literal: $($name:literal),*) => {
        &[$(rw(
            $name,
            |world, _, out| line(out, world.cpufreq.tunables.show($governor, $name)?),
            |world, _, text| {
                let World { cpufreq, platform, cpus, .. } = world;
                cpufreq.tunables.store(platform, &mut cpufreq.policies, cpus, $governor, $name, text)
            },
        )),*]
    };
}

pub(super) static SCHEDUTIL: &[Attribute] = tunables!("schedutil": "rate_limit_us");
pub(super) static ONDEMAND: &[Attribute] = tunables!("ondemand":
    "sampling_rate", "up_threshold", "sampling_down_factor", "ignore_nice_load", "powersave_bias", "io_is_busy");
pub(super) static CONSERVATIVE: &[Attribute] = tunables!("conservative":
    "sampling_rate", "up_threshold", "down_threshold", "sampling_down_factor", "ignore_nice_load", "freq_step");

fn intel_pstates(world: &World) -> Answer<Pstates> {
    if world.platform.intel.mode == intel::Mode::Off {
        return Err(Errno::AGAIN);
    }
    Pstates::for_cpu(&world.platform, 0)
}

fn is_hybrid(world: &World) -> bool {
    world.platform.board.places.iter().any(|place| place.efficient)
        && world.platform.board.places.iter().any(|place| !place.efficient)
}

pub(super) static INTEL_PSTATE: &[Attribute] = &[
    rw(
        "status",
        |world, _, out| line(out, world.platform.intel.mode.word()),
        |world, _, text| {
            let World { cpufreq, platform, cpus, .. } = world;
            intel::store_status(cpufreq, platform, cpus, text)
        },
    ),
    rw(
        "no_turbo",
        |world, _, out| {
            if world.platform.intel.mode == intel::Mode::Off {
                return Err(Errno::AGAIN);
            }
            line(out, u8::from(intel::is_turbo_off(&world.platform)))
        },
        |world, _, text| {
            let World { cpufreq, platform, .. } = world;
            intel::store_no_turbo(cpufreq, platform, text)
        },
    ),
    rw(
        "max_perf_pct",
        |world, _, out| line(out, world.platform.intel.max_pct),
        |world, _, text| {
            let World { cpufreq, platform, .. } = world;
            intel::store_pct(cpufreq, platform, true, text)
        },
    ),
    rw(
        "min_perf_pct",
        |world, _, out| line(out, world.platform.intel.min_pct),
        |world, _, text| {
            let World { cpufreq, platform, .. } = world;
            intel::store_pct(cpufreq, platform, false, text)
        },
    ),
    ro("num_pstates", |world, _, out| {
        let pstates = intel_pstates(world)?;
        line(out, pstates.turbo - pstates.min + 1)
    })
    .when(|world, _| !is_hybrid(world)),
    ro("turbo_pct", |world, _, out| {
        let pstates = intel_pstates(world)?;
        // No underflow: Pstates::for_cpu() keeps min, max and turbo in this order.
        let total = u64::from(pstates.turbo - pstates.min + 1);
        let plain = u64::from(pstates.max.saturating_sub(pstates.min) + 1);
        // Fixed point with 8 fraction bits.
        let share = (plain << 8) / total;
        line(out, 100 - ((share * (100 << 8)) >> 8 >> 8))
    })
    .when(|world, _| !is_hybrid(world)),
    rw(
        "hwp_dynamic_boost",
        |world, _, out| line(out, u8::from(world.platform.intel.dynamic_boost)),
        |world, _, text| {
            let value = if world.platform.before(Kernel::V6_12) {
                scan_unsigned(text).map_err(|_| Errno::INVAL)? as u32
            } else {
                kstrtou32(text, 10)?
            };
            world.platform.intel.dynamic_boost = value != 0;
            Ok(())
        },
    )
    // Hidden in passive mode (intel_pstate_sysfs_hide_hwp_dynamic_boost()); not in RHEL 7.
    .when(|world, _| {
        world.platform.intel.hwp
            && world.platform.intel.mode == intel::Mode::Active
            && world.platform.since(Kernel::V4_19)
    }),
];

pub(super) static AMD_PSTATE: &[Attribute] = &[
    rw(
        "status",
        |world, _, out| line(out, world.platform.amd.mode.word()),
        |world, _, text| {
            let World { cpufreq, platform, cpus, .. } = world;
            amd::store_status(cpufreq, platform, cpus, text)
        },
    ),
    ro("prefcore", |world, _, out| {
        line(out, if world.platform.amd.prefcore { "enabled" } else { "disabled" })
    }),
    rw(
        "dynamic_epp",
        |world, _, out| line(out, if world.platform.amd.dynamic_epp { "enabled" } else { "disabled" }),
        |world, _, text| {
            let World { cpufreq, platform, cpus, .. } = world;
            amd::store_dynamic_epp(cpufreq, platform, cpus, text)
        },
    )
    .when(|world, _| world.platform.kernel == Kernel::V7_2),
];

/// Returns whether the tunables of `TUNABLES[index]` exist.
fn in_use(world: &World, index: usize) -> bool {
    let tunables = &world.cpufreq.tunables;
    match index {
        0 => tunables.rate_limit_us.is_some(),
        1 => tunables.ondemand.is_some(),
        _ => tunables.conservative.is_some(),
    }
}

fn has_stats(world: &World, number: u32) -> bool {
    world.cpufreq.index_of_policy(number).is_some_and(|index| world.cpufreq.policies[index].stats.is_some())
}

pub(super) fn child(world: &World, dir: Dir, name: &str) -> Option<Node> {
    match dir {
        Dir::Cpufreq => match numbered(name, "policy") {
            // Directories of policies came with 4.3; before, each was below its CPU.
            Some(_) if world.platform.before(Kernel::V4_19) => None,
            Some(number) => world.cpufreq.index_of_policy(number).map(|_| Node::Dir(Dir::Policy(number))),
            None => TUNABLES
                .iter()
                .position(|governor| *governor == name)
                .filter(|&index| in_use(world, index))
                .map(|index| Node::Dir(Dir::Tunables(index as u8))),
        },
        Dir::Policy(number) => {
            (name == "stats" && has_stats(world, number)).then_some(Node::Dir(Dir::Stats(number)))
        }
        _ => None,
    }
}

pub(super) fn names(world: &World, dir: Dir, names: &mut Vec<String>) {
    match dir {
        Dir::Cpufreq => {
            if world.platform.since(Kernel::V4_19) {
                names.extend(world.cpufreq.policies.iter().map(|policy| format!("policy{}", policy.number)));
            }
            names.extend((0..TUNABLES.len()).filter(|&n| in_use(world, n)).map(|n| TUNABLES[n].to_owned()));
        }
        Dir::Policy(number) if has_stats(world, number) => names.push("stats".to_owned()),
        _ => {}
    }
}
