//! Files that only a served machine has: those that `flyball sim work` and tests use, and kernel
//! settings that must not be the real machine's. They are in their own folder of the served tree;
//! `namespace.rs` lists where each is mounted.

use crate::{
    errno::{Answer, Errno},
    machine::Kind,
    text::{cpu_mask, kstrtou32},
};

const FOLDER: &str = "/flyball";
/// `flyball sim work` starts a workload here: written `NAME AMOUNT CPUS`, read
/// `done|running TURNS NANOSECONDS`.
pub(super) const WORK: &str = "/flyball/work";
/// Reading returns all settings of the machine ([`crate::SimMachine::settings`]). Writing `reset`
/// reboots the machine.
pub(super) const SETTINGS: &str = "/flyball/settings";
/// /proc/sys/kernel/random/boot_id, by which journals distinguish boots. Each start of a served
/// machine is a boot.
pub(super) const BOOT_ID: &str = "/flyball/boot_id";
/// /proc/sys/kernel/perf_event_max_sample_rate.
pub(super) const SAMPLE_RATE: &str = "/flyball/perf_event_max_sample_rate";
/// /proc/irq. The machine has no devices, so it has no numbered interrupts.
pub(super) const INTERRUPTS: &str = "/flyball/irq";
const DEFAULT_AFFINITY: &str = "/flyball/irq/default_smp_affinity";

/// Every file, with its permission bits.
const FILES: [(&str, u16); 5] =
    [(WORK, 0o644), (SETTINGS, 0o644), (BOOT_ID, 0o444), (SAMPLE_RATE, 0o644), (DEFAULT_AFFINITY, 0o644)];

/// Values of the files that replace kernel settings.
#[derive(Debug)]
pub(super) struct KernelSettings {
    boot_id: String,
    sample_rate: u32,
    default_affinity: String,
}

impl KernelSettings {
    /// The settings of a freshly booted kernel.
    pub(super) fn booted(cpus: u32) -> KernelSettings {
        KernelSettings {
            boot_id: fresh_id(),
            // kernel/events/core.c, DEFAULT_MAX_SAMPLE_RATE.
            sample_rate: 100_000,
            default_affinity: cpu_mask(0..cpus, cpus),
        }
    }

    /// Returns the kind of a file in the folder, and `None` for other paths.
    pub(super) fn kind(path: &str) -> Option<Kind> {
        if path == FOLDER || path == INTERRUPTS {
            return Some(Kind::Directory);
        }
        FILES.iter().find(|(file, _)| *file == path).map(|(_, mode)| Kind::File(*mode))
    }

    /// The names in a directory of the folder; `None` for other paths.
    pub(super) fn list(path: &str) -> Option<Vec<String>> {
        if KernelSettings::kind(path)? != Kind::Directory {
            return None;
        }
        let all = FILES.iter().map(|(file, _)| *file).chain([INTERRUPTS]);
        let inside = all.filter_map(|file| file.strip_prefix(path)?.strip_prefix('/'));
        Some(inside.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    /// The text of a kernel setting; `None` for other paths.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        Some(match path {
            BOOT_ID => format!("{}\n", self.boot_id),
            SAMPLE_RATE => format!("{}\n", self.sample_rate),
            DEFAULT_AFFINITY => format!("{}\n", self.default_affinity),
            _ => return None,
        })
    }

    /// Writes a kernel setting; `None` for other paths.
    pub(super) fn write(&mut self, path: &str, text: &[u8]) -> Option<Answer> {
        match path {
            // proc_dointvec_minmax() with a minimum of 1 (perf_event_max_sample_rate_handler).
            SAMPLE_RATE => Some(match kstrtou32(text, 10) {
                Ok(rate @ 1..) => {
                    self.sample_rate = rate;
                    Ok(())
                }
                _ => Err(Errno::INVAL),
            }),
            DEFAULT_AFFINITY => {
                let text = String::from_utf8_lossy(text.trim_ascii()).into_owned();
                let hexadecimal = |c: char| c.is_ascii_hexdigit() || c == ',';
                // default_affinity_write() parses a mask and shows it in its own format; here it
                // reads back as written.
                Some(if text.is_empty() || text.len() > 4096 || !text.chars().all(hexadecimal) {
                    Err(Errno::INVAL)
                } else {
                    self.default_affinity = text;
                    Ok(())
                })
            }
            _ => None,
        }
    }
}

/// A new id for each boot, as in the kernel. It comes from the real machine's kernel.
fn fresh_id() -> String {
    if let Ok(id) = std::fs::read_to_string("/proc/sys/kernel/random/uuid") {
        return id.trim().to_owned();
    }
    // Without /proc, make the id unique by process and time.
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), time.as_nanos() & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_settings_are_read_back() {
        let mut own = KernelSettings::booted(16);
        assert_eq!(own.read(DEFAULT_AFFINITY).as_deref(), Some("ffff\n"));
        assert_eq!(own.write(SAMPLE_RATE, b"1\n"), Some(Ok(())));
        assert_eq!(own.read(SAMPLE_RATE).as_deref(), Some("1\n"));
        assert_eq!(own.write(SAMPLE_RATE, b"0"), Some(Err(Errno::INVAL)));
        assert_eq!(own.write(DEFAULT_AFFINITY, b"no"), Some(Err(Errno::INVAL)));
        assert_eq!(own.write(BOOT_ID, b"x"), None);
        assert_ne!(own.read(BOOT_ID), KernelSettings::booted(16).read(BOOT_ID));
    }

    #[test]
    fn what_is_listed_exists() {
        for folder in [FOLDER, INTERRUPTS] {
            let names = KernelSettings::list(folder).unwrap();
            assert!(!names.is_empty());
            assert!(
                names.iter().all(|name| KernelSettings::kind(&format!("{folder}/{name}")).is_some()),
                "{names:?}"
            );
        }
        assert_eq!(KernelSettings::list("/sys"), None);
    }
}
