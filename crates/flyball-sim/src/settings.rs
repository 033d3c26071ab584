//! All settings of a machine as text, to compare the state in which two programs left two machines.

use std::fmt::Write as _;

use flyball_silicon::msr;

use crate::{
    machine::SimMachine,
    tree::{self, Dir, Node},
    world::World,
};

impl SimMachine {
    /// Every writable attribute that can be read, with its value, and Speed Select's state, one per
    /// line. Takes no machine time.
    pub fn settings(&self) -> String {
        let world = self.world();
        let mut text = String::new();
        let silicon = world.platform.chip.silicon();
        for (number, (level, domain)) in silicon.sst_domains().enumerate() {
            let _ = writeln!(text, "sst {number} level {level} {domain:?}");
        }
        for package in 0..silicon.topology().packages() {
            let cpu = silicon.topology().core(silicon.topology().package_cores(package).start).cpus[0];
            let ratios = silicon.read_msr(cpu, msr::TURBO_RATIO_LIMIT).unwrap_or(0);
            let _ = writeln!(text, "turbo {package} {ratios:016x}");
        }
        walk(world, Dir::Cpus, "/sys/devices/system/cpu", &mut text);
        text
    }
}

fn walk(world: &World, dir: Dir, path: &str, text: &mut String) {
    let mut names = tree::list(world, dir);
    names.sort_unstable();
    for name in names {
        let path = format!("{path}/{name}");
        match tree::resolve(world, &path, false) {
            Ok(Node::Dir(inner)) => walk(world, inner, &path, text),
            Ok(Node::File(dir, name)) if name != "uevent" => {
                let Some(attribute) = tree::attribute(world, dir, name) else { continue };
                if let (Some(show), true) = (attribute.show, attribute.mode & 0o222 != 0) {
                    let mut value = Vec::new();
                    let value = match show(world, dir, &mut value) {
                        Ok(()) => String::from_utf8_lossy(&value).trim_end().to_owned(),
                        Err(errno) => format!("{errno:?}"),
                    };
                    let _ = writeln!(text, "{path} {value}");
                }
            }
            _ => {}
        }
    }
}
