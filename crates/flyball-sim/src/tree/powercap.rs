//! /sys/class/powercap: the intel-rapl control type, its package zones and their subzones
//! (drivers/powercap/powercap_sys.c, intel_rapl_common.c, intel_rapl_msr.c).

use flyball_silicon::msr::{AMD_RAPL_POWER_UNIT, PKG_POWER_INFO, PKG_POWER_LIMIT, RAPL_POWER_UNIT};

use super::{Attribute, Dir, Node, numbered, ro, rw};
use crate::{
    board::Vendor,
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{kstrtobool, kstrtou64, line},
    world::World,
};

/// Register of a package's energy counter.
fn package_counter(world: &World) -> u32 {
    if world.platform.board.vendor == Vendor::Intel { 0x611 } else { 0xc001_029b }
}

/// Number of package zones; 0 if the counter's register is missing.
pub(super) fn packages(world: &World) -> u32 {
    // intel_rapl supports AMD since 5.11.
    if world.platform.board.vendor == Vendor::Amd && world.platform.before(Kernel::V5_15) {
        return 0;
    }
    if world.platform.chip.read(0, package_counter(world)).is_ok() {
        world.platform.board.packages()
    } else {
        0
    }
}

/// Subzones of a package zone: name and counter register, in the driver's order.
fn subzones(world: &World) -> Vec<(&'static str, u32)> {
    let candidates: &[(&str, u32)] = if world.platform.board.vendor == Vendor::Intel {
        // PP0, PP1 and DRAM, in the order of enum rapl_domain_type (include/linux/intel_rapl.h).
        &[("core", 0x639), ("uncore", 0x641), ("dram", 0x619)]
    } else {
        &[("core", 0xc001_029a)]
    };
    candidates
        .iter()
        .copied()
        .filter(|(_, register)| world.platform.chip.read(0, *register).is_ok())
        .collect()
}

/// Returns whether a zone of the whole machine exists besides the packages' zones, that is, whether
/// its register exists.
fn has_platform(world: &World) -> bool {
    world.platform.board.vendor == Vendor::Intel && world.platform.chip.read(0, 0x64d).is_ok()
}

fn zones(world: &World) -> u32 {
    match packages(world) {
        0 => 0,
        packages => packages + u32::from(has_platform(world)),
    }
}

fn is_platform(world: &World, dir: Dir) -> bool {
    dir.index() >= packages(world)
}

/// The CPU that accesses a zone's registers: the package's first online CPU.
fn leader(world: &World, dir: Dir) -> Answer<u32> {
    let package = if is_platform(world, dir) { 0 } else { dir.index() };
    world
        .online()
        // rapl_package's lead_cpu. Without it the package's zones disappear (rapl_cpu_down_prep).
        .find(|&cpu| world.platform.board.places[cpu as usize].package == package)
        .ok_or(Errno::NODEV)
}

/// The unit register.
fn units(world: &World, cpu: u32) -> Answer<u64> {
    let register =
        if world.platform.board.vendor == Vendor::Intel { RAPL_POWER_UNIT } else { AMD_RAPL_POWER_UNIT };
    world.platform.chip.read(cpu, register)
}

/// The energy unit in nanojoules, truncated like the driver's integer division. DRAM on some
/// servers and psys on others have fixed units.
fn energy_unit(world: &World, cpu: u32, register: u32) -> Answer<u64> {
    let model = world.platform.board.model;
    // Haswell-X, Broadwell-X, Skylake-X and Ice Lake-X/D (rapl_defaults_hsw_server in
    // intel_rapl_common.c).
    if register == 0x619 && matches!(model, 0x3f | 0x4f | 0x55 | 0x6a | 0x6c) {
        return Ok(15_300);
    }
    // Sapphire and Emerald Rapids (rapl_defaults_spr_server).
    if register == 0x64d && matches!(model, 0x8f | 0xcf) {
        return Ok(1_000_000_000);
    }
    Ok(1_000_000_000 >> (units(world, cpu)? >> 8 & 0x1f))
}

fn register(world: &World, dir: Dir) -> Answer<u32> {
    match dir {
        Dir::Subzone(_, index) => {
            subzones(world).get(usize::from(index)).map(|(_, register)| *register).ok_or(Errno::NODEV)
        }
        _ if is_platform(world, dir) => Ok(0x64d),
        _ => Ok(package_counter(world)),
    }
}

fn energy(world: &World, dir: Dir, out: &mut Vec<u8>) -> Answer {
    let (cpu, register) = (leader(world, dir)?, register(world, dir)?);
    // ENERGY_STATUS_MASK: the counter has 32 bits.
    let raw = world.platform.chip.read(cpu, register)? & 0xffff_ffff;
    line(out, raw * energy_unit(world, cpu, register)? / 1000)
}

fn range(world: &World, dir: Dir, out: &mut Vec<u8>) -> Answer {
    let (cpu, register) = (leader(world, dir)?, register(world, dir)?);
    // What a reader must add when the counter has wrapped, in microjoules, computed from
    // nanojoules.
    line(out, 0xffff_ffff * energy_unit(world, cpu, register)? / 1000)
}

/// Returns whether constraints exist, which need the package's limit register.
fn limited(world: &World, dir: Dir) -> bool {
    !is_platform(world, dir)
        && world.platform.board.vendor == Vendor::Intel
        && world.platform.chip.read(0, PKG_POWER_LIMIT).is_ok()
}

/// The limit register, and the power unit in microwatts as a fraction: value x 1e6 / divisor.
fn limit(world: &World, dir: Dir) -> Answer<(u32, u64, u64)> {
    let cpu = leader(world, dir)?;
    Ok((cpu, world.platform.chip.read(cpu, PKG_POWER_LIMIT)?, 1 << (units(world, cpu)? & 0xf)))
}

fn show_power<const SHIFT: u32>(world: &World, dir: Dir, out: &mut Vec<u8>) -> Answer {
    let (_, value, divisor) = limit(world, dir)?;
    // POWER_LIMIT1_MASK, 15 bits, the second limit 32 bits above it.
    line(out, (value >> SHIFT & 0x7fff) * 1_000_000 / divisor)
}

fn write_limit(world: &mut World, dir: Dir, mask: u64, bits: u64) -> Answer {
    let (cpu, value, _) = limit(world, dir)?;
    // The lock bit is set: rapl_write_pl_data() fails, and powercap_sys.c turns every failure of
    // `set` into ENODATA.
    if value >> 63 == 1 {
        return Err(Errno::NODATA);
    }
    // A single read-modify-write of the register, which holds both limits with their windows.
    world.platform.chip.write(cpu, PKG_POWER_LIMIT, value & !mask | bits & mask).map_err(|_| Errno::NODATA)
}

fn store_power<const SHIFT: u32>(world: &mut World, dir: Dir, text: &[u8]) -> Answer {
    // powercap_sys.c returns EINVAL for everything that kstrtou64 rejects, including ERANGE.
    let microwatts = kstrtou64(text, 10).map_err(|_| Errno::INVAL)?;
    let (_, _, divisor) = limit(world, dir)?;
    // rapl_write_data_raw() truncates to the field (`bits &= rpi->mask`): 4,096 W in eighths of a
    // watt become 0.
    let raw = (u128::from(microwatts) * u128::from(divisor) / 1_000_000) as u64 & 0x7fff;
    write_limit(world, dir, 0x7fff << SHIFT, raw << SHIFT)
}

/// Time windows are `2^Y * (1 + F/4)` units of `1 / 2^n` seconds.
fn show_window<const SHIFT: u32>(world: &World, dir: Dir, out: &mut Vec<u8>) -> Answer {
    let (cpu, value, _) = limit(world, dir)?;
    let unit: u64 = 1_000_000 >> (units(world, cpu)? >> 16 & 0xf);
    let field = value >> SHIFT & 0x7f;
    let (y, f) = (field & 0x1f, field >> 5);
    line(out, ((u128::from(4 + f) * u128::from(unit)) << y) / 4)
}

fn store_window<const SHIFT: u32>(world: &mut World, dir: Dir, text: &[u8]) -> Answer {
    let micros = kstrtou64(text, 10).map_err(|_| Errno::INVAL)?;
    let (cpu, _, _) = limit(world, dir)?;
    let unit: u64 = 1_000_000 >> (units(world, cpu)? >> 16 & 0xf);
    // rapl_compute_time_window_core(), including its truncations, so that it reads back as on the
    // driver.
    let ticks = micros / unit.max(1);
    if ticks == 0 {
        // Less than a unit is accepted: the field becomes 0, which is one unit.
        return write_limit(world, dir, 0x7f << SHIFT, 0);
    }
    // Five bits of exponent.
    let y = u64::from(ticks.ilog2()).min(0x1f);
    let f = ((4 * (ticks.min(u64::MAX / 8) - (1 << y).min(ticks))) >> y).min(3);
    write_limit(world, dir, 0x7f << SHIFT, (f << 5 | y) << SHIFT)
}

/// Powers of the info register in microwatts: thermal specification, minimum, maximum.
fn info(world: &World, dir: Dir, shift: u32) -> Answer<u64> {
    let cpu = leader(world, dir)?;
    let value = world.platform.chip.read(cpu, PKG_POWER_INFO).map_err(|_| Errno::NODATA)?;
    Ok(((value >> shift & 0x7fff) * 1_000_000) >> (units(world, cpu)? & 0xf))
}

pub(super) static CONTROL: &[Attribute] = &[
    // intel_rapl_msr.c registers its control type without operations, so enabled_store() has
    // nothing to call.
    rw("enabled", |_, _, out| line(out, 1), |_, _, text| kstrtobool(text).and(Err(Errno::NOSYS))),
    rw("uevent", |_, _, _| Ok(()), |_, _, _| Ok(())),
];

pub(super) static ZONE: &[Attribute] = &[
    ro("name", |world, dir, out| {
        if is_platform(world, dir) {
            line(out, "psys")
        } else {
            line(out, format_args!("package-{}", dir.index()))
        }
    }),
    rw(
        "enabled",
        |world, dir, out| {
            if limited(world, dir) {
                let (_, value, _) = limit(world, dir)?;
                // PL1's enable bit (get_domain_enable()).
                line(out, value >> 15 & 1)
            } else {
                line(out, 0)
            }
        },
        |world, dir, text| {
            let on = kstrtobool(text)?;
            if !limited(world, dir) {
                return Err(Errno::NOSYS);
            }
            // set_domain_enable() writes PL1's enable bit, set_floor_freq_default() PL2's. The
            // latter also writes the clamp bit, which has no effect here.
            let mask = 1 << 15 | 1 << 47;
            write_limit(world, dir, mask, if on { mask } else { 0 }).map_err(|_| Errno::NOSYS)
        },
    ),
    // Readable by root only since 5.10: energy reveals what code computes (CVE-2020-8694).
    ro("energy_uj", energy).mode(0o400).when(|world, _| world.platform.since(Kernel::V5_10)).live(),
    ro("energy_uj", energy).when(|world, _| world.platform.before(Kernel::V5_10)).live(),
    ro("max_energy_range_uj", range),
    ro("constraint_0_name", |_, _, out| line(out, "long_term")).when(limited),
    rw("constraint_0_power_limit_uw", show_power::<0>, store_power::<0>).when(limited),
    rw("constraint_0_time_window_us", show_window::<17>, store_window::<17>).when(limited),
    ro("constraint_0_max_power_uw", |w, d, out| line(out, info(w, d, 0)?)).when(limited),
    ro("constraint_1_name", |_, _, out| line(out, "short_term")).when(limited),
    rw("constraint_1_power_limit_uw", show_power::<32>, store_power::<32>).when(limited),
    rw("constraint_1_time_window_us", show_window::<49>, store_window::<49>).when(limited),
    ro("constraint_1_max_power_uw", |w, d, out| line(out, info(w, d, 32)?)).when(limited),
    rw("uevent", |_, _, _| Ok(()), |_, _, _| Ok(())),
];

pub(super) static SUBZONE: &[Attribute] = &[
    ro("name", |world, dir, out| {
        line(out, subzones(world).get(usize::from(dir.minor())).ok_or(Errno::NODEV)?.0)
    }),
    // A subzone with this register has no limits, so nothing can be enabled.
    rw("enabled", |_, _, out| line(out, 0), |_, _, text| kstrtobool(text).and(Err(Errno::NOSYS))),
    ro("energy_uj", energy).mode(0o400).when(|world, _| world.platform.since(Kernel::V5_10)).live(),
    ro("energy_uj", energy).when(|world, _| world.platform.before(Kernel::V5_10)).live(),
    ro("max_energy_range_uj", range),
    rw("uevent", |_, _, _| Ok(()), |_, _, _| Ok(())),
];

/// Parses `intel-rapl:P` or `intel-rapl:P:I`.
fn zone_of(world: &World, name: &str) -> Option<Dir> {
    let rest = name.strip_prefix("intel-rapl:")?;
    match rest.split_once(':') {
        None => numbered(rest, "").filter(|&zone| zone < zones(world)).map(Dir::Zone),
        Some((zone, sub)) => {
            let zone = numbered(zone, "").filter(|&zone| zone < packages(world))?;
            let sub = numbered(sub, "").filter(|&sub| (sub as usize) < subzones(world).len())?;
            Some(Dir::Subzone(zone, sub as u8))
        }
    }
}

const PLACE: &str = "../../devices/virtual/powercap/intel-rapl";

/// The links of /sys/class/powercap.
pub(super) fn class_link(world: &World, name: &str) -> Option<String> {
    if name == "intel-rapl" {
        return (packages(world) > 0).then(|| PLACE.to_owned());
    }
    match zone_of(world, name)? {
        Dir::Zone(_) => Some(format!("{PLACE}/{name}")),
        Dir::Subzone(zone, _) => Some(format!("{PLACE}/intel-rapl:{zone}/{name}")),
        _ => None,
    }
}

pub(super) fn class_names(world: &World) -> Vec<String> {
    let mut names = Vec::new();
    if packages(world) > 0 {
        names.push("intel-rapl".to_owned());
        for zone in 0..zones(world) {
            names.push(format!("intel-rapl:{zone}"));
            if zone < packages(world) {
                names.extend((0..subzones(world).len()).map(|sub| format!("intel-rapl:{zone}:{sub}")));
            }
        }
    }
    names
}

pub(super) fn child(world: &World, dir: Dir, name: &str) -> Option<Node> {
    let found = match dir {
        Dir::Powercap => (name == "intel-rapl" && packages(world) > 0).then_some(Dir::Rapl)?,
        Dir::Rapl => zone_of(world, name).filter(|found| matches!(found, Dir::Zone(_)))?,
        Dir::Zone(zone) => zone_of(world, name)
            .filter(|found| matches!(found, Dir::Subzone(parent, _) if *parent == zone))?,
        _ => return None,
    };
    Some(Node::Dir(found))
}

pub(super) fn names(world: &World, dir: Dir, names: &mut Vec<String>) {
    match dir {
        Dir::Powercap if packages(world) > 0 => names.push("intel-rapl".to_owned()),
        Dir::Rapl => names.extend((0..zones(world)).map(|zone| format!("intel-rapl:{zone}"))),
        Dir::Zone(zone) if zone < packages(world) => {
            names.extend((0..subzones(world).len()).map(|sub| format!("intel-rapl:{zone}:{sub}")));
        }
        _ => {}
    }
}
