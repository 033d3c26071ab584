//! Platform profiles (drivers/acpi/platform_profile.c) and the preferred die of a processor with 3D
//! V-Cache (drivers/platform/x86/amd/x3d_vcache.c).

use std::borrow::Cow;

use super::{Attribute, Dir, ro, rw};
use crate::{
    cpufreq::amd::dynamic,
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{line, streq},
    world::World,
};

/// The words that the kernel knows (`profile_names`), in its order.
const WORDS: [&str; 8] = flyball_silicon::spec::PROFILE_WORDS;

/// A device of the class. Before 6.14 there is no class, and only the first device registers
/// (`platform_profile_register` returns EEXIST to others).
struct Device<'a> {
    number: u32,
    name: Cow<'a, str>,
    choices: &'a [usize],
    /// Words that it accepts but does not list.
    hidden: &'a [usize],
    profile: usize,
    /// First CPU of the amd-pstate policy that registered it.
    policy: Option<u32>,
}

fn devices(world: &World) -> Vec<Device<'_>> {
    let platform = &world.platform;
    let firmwares = (0..).zip(platform.board.profile_devices.iter().zip(&world.firmware.profiles)).map(
        |(number, (device, profile))| Device {
            number,
            name: Cow::Borrowed(device.name.as_str()),
            choices: &device.choices,
            hidden: &device.hidden,
            profile: *profile,
            policy: None,
        },
    );
    if !has_class(world) {
        return firmwares.take(1).collect();
    }
    let policies = dynamic::devices(platform).map(|(cpu, dynamic)| Device {
        number: dynamic.device,
        name: Cow::Owned(format!("amd-pstate-epp-cpu{cpu}")),
        choices: &dynamic::CHOICES,
        hidden: &[],
        profile: dynamic.profile,
        policy: Some(cpu),
    });
    firmwares.chain(policies).collect()
}

/// Numbers of the devices in the class directory.
pub(super) fn numbers(world: &World) -> Vec<u32> {
    if has_class(world) { devices(world).iter().map(|device| device.number).collect() } else { Vec::new() }
}

fn has_class(world: &World) -> bool {
    // 6.14.
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

/// The words that all devices accept. Hidden ones count only if there are several devices.
fn common(devices: &[Device<'_>]) -> Vec<usize> {
    let takes = |device: &Device<'_>, word| {
        device.choices.contains(&word) || devices.len() > 1 && device.hidden.contains(&word)
    };
    (0..WORDS.len()).filter(|word| devices.iter().all(|device| takes(device, *word))).collect()
}

fn show_words(out: &mut Vec<u8>, words: &[usize]) -> Answer {
    line(out, words.iter().map(|word| WORDS[*word]).collect::<Vec<_>>().join(" "))
}

/// `sysfs_match_string`: compares the whole word, with or without its newline.
fn word(text: &[u8]) -> Answer<usize> {
    WORDS.iter().position(|word| streq(text, word)).ok_or(Errno::INVAL)
}

const CUSTOM: usize = WORDS.len() - 1;

pub(super) static ACPI: &[Attribute] = &[
    rw(
        "platform_profile",
        |world, _, out| {
            let devices = devices(world);
            let first = devices.first().ok_or(Errno::NODEV)?.profile;
            let is_same = devices.iter().all(|device| device.profile == first);
            line(out, WORDS[if is_same { first } else { CUSTOM }])
        },
        |world, _, text| {
            let word = word(text)?;
            if word == CUSTOM {
                return Err(Errno::INVAL);
            }
            let devices = devices(world);
            if !common(&devices).contains(&word) {
                return Err(Errno::OPNOTSUPP);
            }
            let all = devices.iter().map(|device| (device.number, device.policy)).collect::<Vec<_>>();
            for (number, policy) in all {
                set(world, number, policy, word);
            }
            Ok(())
        },
    )
    .when(has_legacy),
    ro("platform_profile_choices", |world, _, out| {
        let words = common(&devices(world));
        if words.is_empty() { Err(Errno::INVAL) } else { show_words(out, &words) }
    })
    .when(has_legacy),
];

pub(super) static DEVICE: &[Attribute] = &[
    ro("name", |world, dir, out| line(out, &device(world, dir)?.name)),
    ro("choices", |world, dir, out| show_words(out, device(world, dir)?.choices)),
    rw(
        "profile",
        |world, dir, out| line(out, WORDS[device(world, dir)?.profile]),
        |world, dir, text| {
            let word = word(text)?;
            let Device { number, choices, hidden, policy, .. } = device(world, dir)?;
            if !choices.contains(&word) && !hidden.contains(&word) {
                return Err(Errno::OPNOTSUPP);
            }
            set(world, number, policy, word);
            Ok(())
        },
    ),
];

fn device(world: &World, dir: Dir) -> Answer<Device<'_>> {
    devices(world).into_iter().find(|device| device.number == dir.index()).ok_or(Errno::NODEV)
}

fn set(world: &mut World, number: u32, policy: Option<u32>, word: usize) {
    match policy {
        Some(cpu) => dynamic::set_profile(&mut world.platform, cpu, word),
        None => world.firmware.profiles[number as usize] = word,
    }
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
