//! Descriptions of the machines on which the answers were recorded.

#[path = "../archives.rs"]
pub(crate) mod archives;

use std::path::PathBuf;

use flyball_sim::{Kernel, silicon::MachineSpec};

/// Folder of the recordings.
pub(crate) fn folder() -> Option<PathBuf> {
    flyball_testing::shared("lab/results/sst")
}

/// A recorded machine reduced to a guest's CPUs: `packages` packages, with these cores in each of
/// their power domains, one thread each.
fn recorded(name: &'static str, packages: u32, domains: &[&[u32]]) -> Option<MachineSpec> {
    let mut spec = archives::described(name);
    let topology = &mut spec.topology;
    topology.packages = packages;
    topology.power_domains = domains.iter().map(|cores| cores.len() as u32).collect();
    topology.unit_cores = domains.concat();
    topology.core_ids.clear();
    spec.core.truncate(1);
    (spec.core[0].count, spec.core[0].threads) = (topology.unit_cores.len() as u32, 1);
    topology.cores_per_cache = spec.core[0].count;
    spec.check().ok()?;
    Some(spec)
}

/// The Granite Rapids with two CPUs in each of three domains.
fn granite_rapids(packages: u32) -> Option<MachineSpec> {
    recorded("gnr0", packages, &[&[0, 42], &[0, 38], &[0, 2]])
}

/// The machine that a recording was made on, and its kernel.
pub(crate) fn machine(name: &str) -> Option<(MachineSpec, Kernel)> {
    let (class, kernel) = name.rsplit_once('-')?;
    let kernel: Kernel = kernel.parse().unwrap();
    let mailbox = |model: u32, class: &str| {
        let text = include_str!("../../machines/intel.toml").to_owned()
            + include_str!("../../machines/speed-select.toml");
        let text = text
            .replace("model = 85", &format!("model = {model}"))
            .replace("CLASS", class)
            // Later models encode memory frequencies differently and report none.
            .replace("memory_mhz = 3200", if model > 106 { "memory_mhz = 0" } else { "memory_mhz = 3200" })
            .replace("cores = [1, 2, 3, 4]\nsse_mhz = [4600, 4500, 4300, 4200]",
                "cores = [1, 2, 3, 4, 5, 6, 7, 8]\nsse_mhz = [4600, 4500, 4300, 4200, 4200, 4200, 4200, 4200]\ncounts_register = true");
        MachineSpec::from_toml(&text).unwrap()
    };
    let spec = match class {
        "isst-clx" => mailbox(85, "mailbox-msr"),
        "isst-icx" => mailbox(106, "mailbox-pci"),
        "isst-spr" => mailbox(143, "mailbox-pci"),
        "isst-emr" => mailbox(207, "mailbox-pci"),
        "isst-gnr-2pkg" => granite_rapids(2)?,
        "isst-srf" => {
            // Only its Speed Select registers were the recorded Sierra Forest's.
            let mut spec = recorded("srf8", 1, &[&[0, 1, 2, 3, 4, 5]])?;
            let frequencies = granite_rapids(1)?;
            (spec.core, spec.turbo) = (frequencies.core, frequencies.turbo);
            spec
        }
        "isst-gnr" => granite_rapids(1)?,
        "isst-gnr-blocked" => {
            let mut spec = granite_rapids(1)?;
            spec.sst.as_mut().unwrap().write_blocked = true;
            spec
        }
        "isst-gnr-levels3" => {
            let mut spec = granite_rapids(1)?;
            let sst = spec.sst.as_mut().unwrap();
            sst.locked = false;
            for domain in &mut sst.domain {
                three_levels(&mut domain.level);
            }
            spec
        }
        _ => return None,
    };
    Some((spec, kernel))
}

/// Makes three levels out of one, like the lab's firmware: each is 200 MHz, 20 W and 2 degrees
/// lower than the one before and lacks its highest cores. The last has no base-freq or turbo-freq.
fn three_levels(levels: &mut Vec<flyball_sim::silicon::spec::SstLevelSpec>) {
    for number in 1..3 {
        let mut level = levels[0].clone();
        level.number = number;
        for base in [&mut level.base_mhz, &mut level.base_avx2_mhz, &mut level.base_avx512_mhz] {
            *base = base.saturating_sub(200 * number);
        }
        level.tdp_w -= 20 * number;
        level.tjmax_c -= 2 * number;
        for _ in 0..4 * number {
            if level.cores.last().is_some_and(|&highest| highest >= 24) {
                level.cores.pop();
            }
        }
        let kept = level.cores.clone();
        if let Some(bf) = &mut level.bf {
            bf.cores.retain(|core| kept.contains(core));
        }
        levels.push(level);
    }
    (levels[2].bf, levels[2].tf) = (None, None);
}
