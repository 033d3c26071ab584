//! Temperatures: coretemp (Intel) with a sensor for the package and each core, k10temp (AMD) with
//! Tctl, and the management port (HSMP) with a power limit for each socket
//! (drivers/platform/x86/amd/hsmp/hwmon.c).

use super::{Attribute, Dir, ro, rw};
use crate::{
    board::Vendor,
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{kstrtou64, line},
    world::World,
};

/// One device per package, plus one per management port; none on Arm, whose sensors have the board
/// maker's drivers.
pub(super) fn count(world: &World) -> u32 {
    if world.platform.board.vendor == Vendor::Arm {
        return 0;
    }
    world.platform.board.packages() * if has_ports(world) { 2 } else { 1 }
}

/// hsmp_acpi has text files and sensors since 6.16.
pub(super) fn has_ports(world: &World) -> bool {
    world.platform.board.socket_power_mw.is_some() && world.platform.since(Kernel::V6_18)
}

/// The socket of a port's sensor; `None` for a temperature sensor.
fn socket(world: &World, dir: Dir) -> Option<usize> {
    dir.index().checked_sub(world.platform.board.packages()).map(|socket| socket as usize)
}

fn is_port(world: &World, dir: Dir) -> bool {
    socket(world, dir).is_some()
}

fn socket_power(world: &World, dir: Dir) -> Answer<u64> {
    let power = socket(world, dir).and_then(|socket| world.firmware.socket_power_mw.get(socket));
    power.map(|power| u64::from(*power)).ok_or(Errno::NODEV)
}

pub(super) static COMMON: &[Attribute] = &[
    ro("name", |world, dir, out| {
        line(
            out,
            match world.platform.board.vendor {
                _ if is_port(world, dir) => "amd_hsmp_hwmon",
                Vendor::Intel => "coretemp",
                Vendor::Amd | Vendor::Arm => "k10temp",
            },
        )
    }),
    rw(
        "power1_cap",
        |world, dir, out| line(out, socket_power(world, dir)? * 1000),
        |world, dir, text| {
            // The driver checks only the sign, and truncates to milliwatts.
            let milliwatts = kstrtou64(text, 10).map_err(|_| Errno::INVAL)? / 1000;
            let socket = socket(world, dir).ok_or(Errno::NODEV)?;
            let power = world.firmware.socket_power_mw.get_mut(socket).ok_or(Errno::NODEV)?;
            *power = milliwatts as u32;
            Ok(())
        },
    )
    .when(is_port),
    ro("power1_cap_max", |world, _, out| {
        line(out, u64::from(world.platform.board.socket_power_mw.ok_or(Errno::NODEV)?) * 1000)
    })
    .when(is_port),
];

/// The management port's own files (acpi.c).
pub(super) static PORT: &[Attribute] = &[
    ro("pwr_current_active_freq_limit", |world, dir, out| {
        let silicon = world.platform.chip.silicon();
        let core = silicon.spec().core.first().ok_or(Errno::NODEV)?;
        if limits(world, dir)[0] == "OPN Max" {
            return line(out, core.max_mhz);
        }
        let own =
            world.online().filter(|&cpu| world.platform.board.places[cpu as usize].package == dir.index());
        let fastest = own.map(|cpu| silicon.frequency(cpu as usize).0 / 1000).max();
        line(out, fastest.unwrap_or(core.max_mhz))
    })
    .live(),
    ro("pwr_current_active_freq_limit_source", |world, dir, out| line(out, limits(world, dir).join("\n")))
        .live(),
    ro("prochot_status", |_, _, out| line(out, 0)),
];

/// The kernel's names of the causes that limit a socket (acpi.c).
fn limits(world: &World, dir: Dir) -> Vec<&'static str> {
    let (silicon, socket) = (world.platform.chip.silicon(), dir.index() as usize);
    let mut names = Vec::new();
    names.extend(silicon.throttled(socket).then_some("cHTC-Active"));
    names.extend(silicon.is_power_limited(socket).then_some("PPT Limit"));
    if names.is_empty() {
        names.push("OPN Max");
    }
    names
}

/// A file of one sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sensor {
    hwmon: u32,
    /// The N of tempN.
    index: u32,
    what: &'static str,
}

const INTEL_FILES: [&str; 5] = ["input", "label", "max", "crit", "crit_alarm"];
const AMD_FILES: [&str; 2] = ["input", "label"];

fn files(world: &World) -> &'static [&'static str] {
    match world.platform.board.vendor {
        Vendor::Intel => &INTEL_FILES,
        Vendor::Amd | Vendor::Arm => &AMD_FILES,
    }
}

/// The CPU of a package's tempN: N is 1 for the package, core id + 2 for a core.
fn cpu_of(world: &World, hwmon: u32, index: u32) -> Option<u32> {
    // BASE_SYSFS_ATTR_NO: coretemp numbers cores from 2, the package has 1.
    let core = index.checked_sub(2);
    if core.is_some() && world.platform.board.vendor == Vendor::Amd {
        return None;
    }
    world.online().find(|&cpu| {
        let place = &world.platform.board.places[cpu as usize];
        place.package == hwmon && core.is_none_or(|core| place.core == core)
    })
}

/// The sensor file of this name.
pub(super) fn sensor(world: &World, hwmon: u32, name: &str) -> Option<Sensor> {
    let rest = name.strip_prefix("temp")?;
    let (index, what) = rest.split_once('_')?;
    let index = super::numbered(index, "").filter(|&index| index > 0)?;
    let what = files(world).iter().copied().find(|file| *file == what)?;
    cpu_of(world, hwmon, index).map(|_| Sensor { hwmon, index, what })
}

pub(super) fn sensors(world: &World, hwmon: u32) -> Vec<String> {
    if hwmon >= world.platform.board.packages() {
        return Vec::new();
    }
    let mut indices = vec![1];
    if world.platform.board.vendor == Vendor::Intel {
        let mut cores: Vec<u32> = world
            .online()
            .map(|cpu| &world.platform.board.places[cpu as usize])
            .filter(|place| place.package == hwmon)
            .map(|place| place.core + 2)
            .collect();
        cores.sort_unstable();
        cores.dedup();
        indices.extend(cores);
    }
    indices
        .into_iter()
        .flat_map(|index| files(world).iter().map(move |file| format!("temp{index}_{file}")))
        .collect()
}

/// Prints the content of a sensor file.
pub(crate) fn show(world: &World, sensor: Sensor, out: &mut Vec<u8>) -> Answer {
    let Sensor { hwmon, index, what } = sensor;
    let cpu = cpu_of(world, hwmon, index).ok_or(Errno::NODEV)?;
    let silicon = world.platform.chip.silicon();
    let limit = silicon.spec().thermal.tjmax_c * 1000;
    match (what, world.platform.board.vendor, index) {
        ("label", Vendor::Amd, _) => line(out, "Tctl"),
        ("label", _, 1) => line(out, format_args!("Package id {hwmon}")),
        ("label", ..) => line(out, format_args!("Core {}", index - 2)),
        ("input", Vendor::Amd, _) => {
            // Steps of an eighth of a degree.
            line(out, (silicon.temperature(hwmon as usize).0 * 8.0) as i64 * 125)
        }
        ("input", _, _) => {
            // Whole degrees below the limit, the register's unit.
            let degrees = match index {
                1 => silicon.temperature(hwmon as usize),
                _ => silicon.core_temperature(cpu as usize),
            };
            let below = (f64::from(limit / 1000) - degrees.0).clamp(0.0, 127.0) as u32;
            line(out, limit - below * 1000)
        }
        // coretemp's ttarget subtracts the offset in bits 15:8 of TEMPERATURE_TARGET; 10 is an
        // estimate.
        ("max", ..) => line(out, limit.saturating_sub(10_000)),
        ("crit", ..) => line(out, limit),
        _ => line(out, 0),
    }
}
