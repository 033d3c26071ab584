//! The file in which intel-speed-select stores the positions of CPUs, because sysfs has none for
//! offline CPUs.
//!
//! For each CPU it has four signed 16-bit numbers: CPU, core, package and die; -1 for unknown
//! (`store_cpu_topology` in tools/power/x86/intel-speed-select/isst-config.c). flyball shares the
//! file, so that each program finds the CPUs that the other took offline.

use std::path::PathBuf;

use super::{CPUS, Position};
use crate::Host;

/// Bytes per CPU.
const ENTRY: usize = 8;

/// The file, which need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyFile(pub PathBuf);

impl TopologyFile {
    /// Returns the file of a machine; `None` for a machine whose state is not kept between
    /// commands.
    pub fn for_host(host: &dyn Host) -> Option<TopologyFile> {
        host.topology_cache().map(TopologyFile)
    }

    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Reads the positions by CPU; empty if there is no file.
    pub fn read(&self) -> Vec<Position> {
        let bytes = std::fs::read(&self.0).unwrap_or_default();
        let number = |entry: &[u8], field: usize| {
            u32::try_from(i16::from_le_bytes([entry[2 * field], entry[2 * field + 1]])).ok()
        };
        bytes
            .chunks_exact(ENTRY)
            .map(|entry| Position {
                core: number(entry, 1),
                package: number(entry, 2),
                die: number(entry, 3),
            })
            .collect()
    }

    /// Stores the positions of CPUs 0 to `count`.
    pub fn store(&self, host: &dyn Host, count: u32) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for cpu in 0..count {
            let id = |name: &str| {
                let text = host.read(&format!("{CPUS}/cpu{cpu}/topology/{name}")).ok();
                // The tool's structure has short integers. A larger id is stored as unknown, not
                // truncated.
                text.and_then(|text| text.trim().parse::<i16>().ok()).filter(|&id| id >= 0).unwrap_or(-1)
            };
            for value in [cpu as i16, id("core_id"), id("physical_package_id"), id("die_id")] {
                bytes.extend(value.to_le_bytes());
            }
        }
        flyball_files::replace(&self.0, &bytes)
    }

    /// Removes the file, if it exists.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
