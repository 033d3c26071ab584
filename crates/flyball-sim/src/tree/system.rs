//! Uncore frequency, DMI identity, and module parameters that tools look at.

use super::{Attribute, Dir, Node, numbered, ro, rw};
use crate::{
    board::Vendor,
    errno::{Answer, Errno},
    text::{kstrtou32, line},
    world::World,
};

const UNCORE_LIMIT: u32 = 0x620;
const UNCORE_STATUS: u32 = 0x621;

/// The MSR interface of the uncore's clock is there.
pub(super) fn has_uncore(world: &World) -> bool {
    world.platform.board.vendor == Vendor::Intel && world.platform.chip.read(0, UNCORE_LIMIT).is_ok()
}

/// The CPU through which a die's registers are reached.
fn leader(world: &World, dir: Dir) -> Answer<u32> {
    let package = dir.index();
    world
        .online()
        .find(|&cpu| world.platform.board.places[cpu as usize].package == package)
        .ok_or(Errno::NXIO)
}

fn show_ratio(world: &World, dir: Dir, shift: u32, out: &mut Vec<u8>) -> Answer {
    let cpu = leader(world, dir)?;
    line(out, (world.platform.chip.read(cpu, UNCORE_LIMIT)? >> shift & 0x7f) * 100_000)
}

fn store_ratio(world: &mut World, dir: Dir, shift: u32, text: &[u8]) -> Answer {
    let khz = kstrtou32(text, 10).map_err(|_| Errno::INVAL)?;
    let ratio = u64::from(khz / 100_000);
    if ratio == 0 || ratio > 127 {
        return Err(Errno::INVAL);
    }
    let cpu = leader(world, dir)?;
    let old = world.platform.chip.read(cpu, UNCORE_LIMIT)?;
    world.platform.chip.write(cpu, UNCORE_LIMIT, old & !(0x7f << shift) | ratio << shift)
}

fn initial(world: &World, out: &mut Vec<u8>, of: fn(&flyball_silicon::spec::UncoreSpec) -> u32) -> Answer {
    let uncore = world.platform.chip.silicon().spec().uncore.as_ref().ok_or(Errno::NODEV)?;
    line(out, of(uncore) * 1000)
}

pub(super) static UNCORE: &[Attribute] = &[
    ro("initial_max_freq_khz", |world, _, out| initial(world, out, |uncore| uncore.max_mhz)),
    ro("initial_min_freq_khz", |world, _, out| initial(world, out, |uncore| uncore.min_mhz)),
    rw("max_freq_khz", |w, d, out| show_ratio(w, d, 0, out), |w, d, text| store_ratio(w, d, 0, text)),
    rw("min_freq_khz", |w, d, out| show_ratio(w, d, 8, out), |w, d, text| store_ratio(w, d, 8, text)),
    ro("current_freq_khz", |world, dir, out| {
        let cpu = leader(world, dir)?;
        line(out, (world.platform.chip.read(cpu, UNCORE_STATUS)? & 0x7f) * 100_000)
    })
    .mode(0o400)
    .when(|world, _| world.platform.chip.read(0, UNCORE_STATUS).is_ok())
    .live(),
];

pub(super) fn uncore_child(world: &World, name: &str) -> Option<Node> {
    let rest = name.strip_prefix("package_")?.strip_suffix("_die_00")?;
    if rest.len() != 2 {
        return None;
    }
    let package = numbered(rest.strip_prefix('0').unwrap_or(rest), "")?;
    (package < world.platform.board.packages()).then_some(Node::Dir(Dir::UncoreDie(package)))
}

pub(super) fn uncore_names(world: &World, names: &mut Vec<String>) {
    names.extend((0..world.platform.board.packages()).map(|package| format!("package_{package:02}_die_00")));
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
