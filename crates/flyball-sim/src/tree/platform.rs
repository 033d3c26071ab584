//! Platform profiles (drivers/acpi/platform_profile.c) and the preferred die of a processor with 3D
//! V-Cache (drivers/platform/x86/amd/x3d_vcache.c).

use super::{Attribute, Dir, ro, rw};
use crate::{
    board::ProfileDevice,
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{line, streq},
    world::World,
};

/// The words that the kernel knows (`profile_names`), in its order.
const WORDS: [&str; 8] = flyball_silicon::spec::PROFILE_WORDS;

/// The devices: all since 6.14, and only the first to register before (`platform_profile_register`
/// answered EEXIST to others).
fn devices(world: &World) -> &[ProfileDevice] {
    let all = world.platform.board.profile_devices.as_slice();
    if has_class(world) { all } else { &all[..all.len().min(1)] }
}

/// How many devices the class directory has, which came with 6.14.
pub(super) fn count(world: &World) -> u32 {
    if has_class(world) { devices(world).len() as u32 } else { 0 }
}

fn has_class(world: &World) -> bool {
    world.platform.since(Kernel::V6_18)
}

fn has_legacy(world: &World, _: Dir) -> bool {
    // 5.12.
    world.platform.since(Kernel::V5_15) && !devices(world).is_empty()
}

pub(super) fn has_x3d(world: &World) -> bool {
    // 6.13.
    world.platform.board.x3d && world.platform.since(Kernel::V6_18)
}

/// The words that all devices take. Hidden ones count only if there are several devices.
fn common(world: &World) -> Vec<usize> {
    let devices = devices(world);
    let takes = |device: &ProfileDevice, word| {
        device.choices.contains(&word) || devices.len() > 1 && device.hidden.contains(&word)
    };
    (0..WORDS.len()).filter(|word| devices.iter().all(|device| takes(device, *word))).collect()
}

fn show_words(out: &mut Vec<u8>, words: &[usize]) -> Answer {
    line(out, words.iter().map(|word| WORDS[*word]).collect::<Vec<_>>().join(" "))
}

/// `sysfs_match_string`: a whole word, with or without its newline.
fn word(text: &[u8]) -> Answer<usize> {
    WORDS.iter().position(|word| streq(text, word)).ok_or(Errno::INVAL)
}

const CUSTOM: usize = WORDS.len() - 1;

pub(super) static ACPI: &[Attribute] = &[
    rw(
        "platform_profile",
        |world, _, out| {
            let profiles = &world.firmware.profiles[..devices(world).len()];
            let first = *profiles.first().ok_or(Errno::NODEV)?;
            let is_same = profiles.iter().all(|profile| *profile == first);
            line(out, WORDS[if is_same { first } else { CUSTOM }])
        },
        |world, _, text| {
            let word = word(text)?;
            if word == CUSTOM {
                return Err(Errno::INVAL);
            }
            if !common(world).contains(&word) {
                return Err(Errno::OPNOTSUPP);
            }
            let count = devices(world).len();
            world.firmware.profiles[..count].fill(word);
            Ok(())
        },
    )
    .when(has_legacy),
    ro("platform_profile_choices", |world, _, out| {
        let words = common(world);
        if words.is_empty() { Err(Errno::INVAL) } else { show_words(out, &words) }
    })
    .when(has_legacy),
];

pub(super) static DEVICE: &[Attribute] = &[
    ro("name", |world, dir, out| line(out, &device(world, dir)?.name)),
    ro("choices", |world, dir, out| show_words(out, &device(world, dir)?.choices)),
    rw(
        "profile",
        |world, dir, out| {
            let profile = world.firmware.profiles.get(dir.index() as usize).ok_or(Errno::NODEV)?;
            line(out, WORDS[*profile])
        },
        |world, dir, text| {
            let word = word(text)?;
            let device = device(world, dir)?;
            if !device.choices.contains(&word) && !device.hidden.contains(&word) {
                return Err(Errno::OPNOTSUPP);
            }
            world.firmware.profiles[dir.index() as usize] = word;
            Ok(())
        },
    ),
];

fn device(world: &World, dir: Dir) -> Answer<&ProfileDevice> {
    devices(world).get(dir.index() as usize).ok_or(Errno::NODEV)
}

pub(super) static X3D: &[Attribute] = &[rw(
    "amd_x3d_mode",
    |world, _, out| line(out, if world.firmware.cache_preferred { "cache" } else { "frequency" }),
    |world, _, text| {
        world.firmware.cache_preferred = match text {
            _ if streq(text, "cache") => true,
            _ if streq(text, "frequency") => false,
            _ => return Err(Errno::INVAL),
        };
        Ok(())
    },
)];
