//! Uncore frequency, DMI identity, and module parameters that tools read.

use super::{Attribute, Dir, Node, numbered, ro, rw};
use crate::{
    board::Vendor,
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{cpu_list, kstrtou32, line},
    world::World,
};

const UNCORE_LIMIT: u32 = 0x620;
const UNCORE_STATUS: u32 = 0x621;

/// Returns whether the uncore's clock can be set, through an MSR or TPMI clusters.
pub(super) fn has_uncore(world: &World) -> bool {
    // intel-uncore-frequency came with 5.6.
    world.platform.board.vendor == Vendor::Intel
        && world.platform.since(Kernel::V5_10)
        && (world.platform.chip.read(0, UNCORE_LIMIT).is_ok() || clusters(world) > 0)
}

/// Number of TPMI clusters in a package, one per power domain (uncore-frequency-tpmi.c, which 6.1
/// lacks).
fn clusters(world: &World) -> u32 {
    let silicon = world.platform.chip.silicon();
    let there = silicon.spec().uncore.as_ref().is_some_and(|uncore| uncore.clusters > 0);
    if there && world.platform.since(Kernel::V6_12) { silicon.tpmi_domains() as u32 } else { 0 }
}

/// A cluster's control register: highest ratio in bits 14:8, lowest in 21:15.
const CONTROL: u32 = 0x18;
const STATUS: u32 = 0x10;

/// The clusters of a directory, as package and domain: a single cluster, or all of its package.
fn members(world: &World, dir: Dir) -> Vec<(usize, usize)> {
    let each = clusters(world) as usize;
    let index = dir.index() as usize;
    match dir {
        Dir::UncoreCluster(_) => vec![(index / each.max(1), index % each.max(1))],
        _ => (0..each).map(|domain| (index, domain)).collect(),
    }
}

fn cluster_ratios(world: &World, dir: Dir, register: u32, shift: u32) -> Vec<u64> {
    let silicon = world.platform.chip.silicon();
    let read = |(package, domain)| silicon.uncore_cluster_read(package, domain, register) >> shift & 0x7f;
    members(world, dir).into_iter().map(read).collect()
}

/// The CPU that accesses a die's registers.
fn leader(world: &World, dir: Dir) -> Answer<u32> {
    let package = dir.index();
    world
        .online()
        .find(|&cpu| world.platform.board.places[cpu as usize].package == package)
        .ok_or(Errno::NXIO)
}

fn show_ratio(world: &World, dir: Dir, shift: u32, out: &mut Vec<u8>) -> Answer {
    if clusters(world) > 0 {
        let ratios = cluster_ratios(world, dir, CONTROL, if shift == 0 { 8 } else { 15 });
        // A package shows the widest range of its clusters.
        let ratio = if shift == 0 { ratios.into_iter().max() } else { ratios.into_iter().min() };
        return line(out, ratio.ok_or(Errno::NODATA)? * 100_000);
    }
    let cpu = leader(world, dir)?;
    line(out, (world.platform.chip.read(cpu, UNCORE_LIMIT)? >> shift & 0x7f) * 100_000)
}

fn store_ratio(world: &mut World, dir: Dir, shift: u32, text: &[u8]) -> Answer {
    // store_attr() returns EINVAL for everything that kstrtouint rejects.
    let khz = kstrtou32(text, 10).map_err(|_| Errno::INVAL)?;
    let ratio = u64::from(khz / 100_000);
    // Seven bits; uncore_write_control_freq() does not check that minimum is below maximum.
    if ratio == 0 || ratio > 127 {
        return Err(Errno::INVAL);
    }
    if clusters(world) > 0 {
        let is_max = shift == 0;
        let field = if is_max { 8 } else { 15 };
        let members = members(world, dir);
        let package = members.first().map_or(0, |(package, _)| *package);
        let bound = &mut world.uncore_bounds[package][usize::from(!is_max)];
        if !matches!(dir, Dir::UncoreCluster(_)) {
            *bound = ratio;
        } else if *bound != 0 && (is_max && ratio > *bound || !is_max && ratio < *bound) {
            return Err(Errno::INVAL);
        }
        for (package, domain) in members {
            let silicon = world.platform.chip.silicon_mut();
            let old = silicon.uncore_cluster_read(package, domain, CONTROL);
            silicon.uncore_cluster_write(package, domain, CONTROL, old & !(0x7f << field) | ratio << field);
        }
        return Ok(());
    }
    let cpu = leader(world, dir)?;
    let old = world.platform.chip.read(cpu, UNCORE_LIMIT)?;
    world.platform.chip.write(cpu, UNCORE_LIMIT, old & !(0x7f << shift) | ratio << shift)
}

fn initial(world: &World, dir: Dir, out: &mut Vec<u8>, is_max: bool) -> Answer {
    let silicon = world.platform.chip.silicon();
    let uncore = silicon.spec().uncore.as_ref().ok_or(Errno::NODEV)?;
    let is_io = |(_, domain)| domain >= silicon.topology().dies() as usize;
    let of_clusters = members(world, dir).into_iter().map(|member| uncore.max_of(is_io(member))).max();
    line(out, 1000 * if is_max { of_clusters.unwrap_or(uncore.max_mhz) } else { uncore.min_mhz })
}

pub(super) static UNCORE: &[Attribute] = &[
    ro("initial_max_freq_khz", |world, dir, out| initial(world, dir, out, true)),
    ro("initial_min_freq_khz", |world, dir, out| initial(world, dir, out, false)),
    rw("max_freq_khz", |w, d, out| show_ratio(w, d, 0, out), |w, d, text| store_ratio(w, d, 0, text)),
    rw("min_freq_khz", |w, d, out| show_ratio(w, d, 8, out), |w, d, text| store_ratio(w, d, 8, text)),
    ro("current_freq_khz", |world, dir, out| {
        let cpu = leader(world, dir)?;
        line(out, (world.platform.chip.read(cpu, UNCORE_STATUS)? & 0x7f) * 100_000)
    })
    .mode(0o400)
    // Only after 5.15 (drivers/platform/x86/intel/uncore-frequency.c).
    .when(|world, _| world.platform.since(Kernel::V6_1) && world.platform.chip.read(0, UNCORE_STATUS).is_ok())
    .live(),
];

/// A TPMI cluster. Latency control (elc_*) is not modelled.
pub(super) static CLUSTER: &[Attribute] = &[
    ro("domain_id", |world, dir, out| line(out, dir.index() % clusters(world).max(1))),
    // One cluster per power domain here.
    ro("fabric_cluster_id", |_, _, out| line(out, 0)),
    ro("package_id", |world, dir, out| line(out, dir.index() / clusters(world).max(1))),
    ro("initial_max_freq_khz", |world, dir, out| initial(world, dir, out, true)),
    ro("initial_min_freq_khz", |world, dir, out| initial(world, dir, out, false)),
    rw("max_freq_khz", |w, d, out| show_ratio(w, d, 0, out), |w, d, text| store_ratio(w, d, 0, text)),
    rw("min_freq_khz", |w, d, out| show_ratio(w, d, 8, out), |w, d, text| store_ratio(w, d, 8, text)),
    ro("current_freq_khz", |world, dir, out| {
        let ratios = cluster_ratios(world, dir, STATUS, 0);
        line(out, ratios.first().copied().ok_or(Errno::NODATA)? * 100_000)
    })
    .live(),
];

pub(super) fn uncore_child(world: &World, name: &str) -> Option<Node> {
    // uncore%02d counts over all packages, package_%02d_die_%02d within a package.
    if let Some(number) = name.strip_prefix("uncore").filter(|number| number.len() >= 2) {
        let all = clusters(world) * world.platform.board.packages();
        let index = numbered(number.strip_prefix('0').unwrap_or(number), "")?;
        return (index < all).then_some(Node::Dir(Dir::UncoreCluster(index)));
    }
    let rest = name.strip_prefix("package_")?.strip_suffix("_die_00")?;
    if rest.len() != 2 {
        return None;
    }
    let package = numbered(rest.strip_prefix('0').unwrap_or(rest), "")?;
    (package < world.platform.board.packages()).then_some(Node::Dir(Dir::UncoreDie(package)))
}

pub(super) fn uncore_names(world: &World, names: &mut Vec<String>) {
    let packages = world.platform.board.packages();
    names.extend((0..packages).map(|package| format!("package_{package:02}_die_00")));
    names.extend((0..packages * clusters(world)).map(|index| format!("uncore{index:02}")));
}

pub(super) static DMI: &[Attribute] = &[
    ro("sys_vendor", |_, _, out| line(out, "flyball (simulated)")),
    ro("product_name", |world, _, out| line(out, format_args!("sim:{}", world.name))),
    ro("board_name", |world, _, out| line(out, &world.name)),
    ro("bios_version", |_, _, out| line(out, env!("CARGO_PKG_VERSION"))),
    ro("chassis_type", |world, _, out| line(out, if world.platform.board.server { 23 } else { 3 })),
];

pub(super) static INTEL_IDLE: &[Attribute] =
    &[ro("max_cstate", |_, _, out| line(out, 9)), ro("states_off", |_, _, out| line(out, 0))];

/// Returns whether the machine has cores of both kinds. Only then has the perf PMU a device per
/// kind (arch/x86/events/intel/core.c, `intel_pmu_init_hybrid`); otherwise there is one device,
/// `cpu`.
pub(super) fn is_hybrid(world: &World) -> bool {
    if world.platform.board.vendor != Vendor::Intel {
        return false;
    }
    let places = &world.platform.board.places;
    places.iter().any(|place| place.efficient) && !places.iter().all(|place| place.efficient)
}

/// The list of online CPUs of one kind.
fn cpus_of_kind(world: &World, efficient: bool, out: &mut Vec<u8>) -> Answer {
    let places = &world.platform.board.places;
    line(out, cpu_list(world.online().filter(|&cpu| places[cpu as usize].efficient == efficient)))
}

pub(super) static CPU_CORE: &[Attribute] = &[ro("cpus", |world, _, out| cpus_of_kind(world, false, out))];
pub(super) static CPU_ATOM: &[Attribute] = &[ro("cpus", |world, _, out| cpus_of_kind(world, true, out))];

#[cfg(test)]
mod tests {
    use flyball_silicon::MachineSpec;

    use crate::{Boot, Errno, Kernel, SimMachine};

    const UNCORE: &str = "/sys/devices/system/cpu/intel_uncore_frequency";

    fn boot(kernel: Kernel) -> SimMachine {
        SimMachine::boot(MachineSpec::builtin("tpmi-large").unwrap(), kernel, Boot::default(), 0).unwrap()
    }

    #[test]
    fn clusters_are_listed_and_set_as_on_a_recorded_granite_rapids() {
        let mut machine = boot(Kernel::V6_12);
        let names = machine.list(UNCORE).unwrap();
        assert_eq!(names.len(), 12, "two packages, five domains each: {names:?}");
        let mut read =
            |path: &str| String::from_utf8(machine.read(&format!("{UNCORE}/{path}")).unwrap()).unwrap();
        assert_eq!((read("uncore07/package_id"), read("uncore07/domain_id")), ("1\n".into(), "2\n".into()));
        assert_eq!(read("package_01_die_00/max_freq_khz"), "2500000\n");
        // First a cluster's own limit, then the package's, which applies to all of its clusters.
        machine.write(&format!("{UNCORE}/uncore07/max_freq_khz"), b"1500000").unwrap();
        let mut read =
            |path: &str| String::from_utf8(machine.read(&format!("{UNCORE}/{path}")).unwrap()).unwrap();
        assert_eq!(
            (read("uncore07/max_freq_khz"), read("uncore06/max_freq_khz")),
            ("1500000\n".into(), "2200000\n".into())
        );
        assert_eq!(read("package_01_die_00/max_freq_khz"), "2500000\n");
        machine.write(&format!("{UNCORE}/package_01_die_00/max_freq_khz"), b"1000000").unwrap();
        let mut read =
            |path: &str| String::from_utf8(machine.read(&format!("{UNCORE}/{path}")).unwrap()).unwrap();
        assert_eq!(
            (read("uncore07/max_freq_khz"), read("uncore00/max_freq_khz")),
            ("1000000\n".into(), "2200000\n".into())
        );
        // The package's limit now bounds its clusters, but not those of the other package.
        assert_eq!(machine.write(&format!("{UNCORE}/uncore07/max_freq_khz"), b"1500000"), Err(Errno::INVAL));
        assert_eq!(machine.write(&format!("{UNCORE}/uncore07/max_freq_khz"), b"900000"), Ok(()));
        assert_eq!(machine.write(&format!("{UNCORE}/uncore00/max_freq_khz"), b"1500000"), Ok(()));
        assert_eq!(machine.write(&format!("{UNCORE}/uncore00/max_freq_khz"), b"0"), Err(Errno::INVAL));
        assert_eq!(machine.read(&format!("{UNCORE}/uncore10/max_freq_khz")), Err(Errno::NOENT));
        assert!(!boot(Kernel::V6_1).exists(UNCORE), "6.1 has no driver for them");
    }
}
