//! Collects the few modules that a guest needs, with all dependencies, from a kernel's module tree.
//!
//! Packages contain no `modules.dep` (depmod makes it at installation), so the dependencies come
//! from the modules themselves: `depends=` in their `.modinfo`. Like in the kernel, `-` and `_` are
//! equal in names.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{decompress, elf::Elf, error::GuestError};

/// Modules for every guest, if its kernel has them: file systems for the host's files, access to
/// registers, cpufreq drivers and governors, and meters.
pub(crate) const WANTED: &[&str] = &[
    "virtio_pci",
    "9p",
    "9pnet_virtio",
    "overlay",
    "fuse",
    "cuse",
    "msr",
    "cpuid",
    "acpi_cpufreq",
    "amd_pstate",
    "amd_pstate_ut",
    "pcc_cpufreq",
    "cpufreq_powersave",
    "cpufreq_userspace",
    "cpufreq_ondemand",
    "cpufreq_conservative",
    "isst_if_common",
    "isst_if_mbox_msr",
    "isst_if_mmio",
    "isst_if_mbox_pci",
    "isst_tpmi_core",
    "isst_tpmi",
    "intel_vsec",
    "intel_vsec_tpmi",
    "intel_tpmi",
    "intel_tpmi_power_domains",
    "intel_rapl_tpmi",
    "intel_uncore_frequency_tpmi",
    "intel_uncore_frequency",
    "intel_rapl_msr",
    "intel_rapl_common",
    "processor_thermal_device",
    "amd_energy",
    "intel_cstate",
    "rapl",
    "coretemp",
    "k10temp",
    "msr_trace",
];

/// One module's file, unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    /// Path below the module directory, ending in `.ko`.
    pub path: String,
    /// Paths of the modules to load before it, in no particular order.
    pub needs: Vec<String>,
    /// The unpacked file.
    pub content: Vec<u8>,
}

/// The kernel's name of the module in this file: `kernel/a/acpi-cpufreq.ko.xz` is `acpi_cpufreq`.
pub(crate) fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().find_map(|end| name.strip_suffix(end))?;
    Some(normal(stem))
}

fn normal(name: &str) -> String {
    name.trim().replace('-', "_")
}

/// Every module file below `dir`, by name.
fn index(dir: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            // Do not follow links: `build` and `source` lead to a kernel tree.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if let Some(name) = name_of(&path) {
                found.insert(name, path);
            }
        }
    }
    found
}

/// The `wanted` modules below `dir` (`lib/modules/RELEASE`), and their dependencies. Modules that
/// the kernel lacks are skipped: they are built in, or unknown to it.
pub(crate) fn collect<'a>(
    dir: &Path,
    wanted: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Module>, GuestError> {
    let index = index(dir);
    let mut done: BTreeMap<String, Module> = BTreeMap::new();
    let mut open: Vec<String> = wanted.into_iter().map(normal).collect();
    while let Some(name) = open.pop() {
        // Several modules may need one module.
        let Some(file) = index.get(&name).filter(|_| !done.contains_key(&name)) else { continue };
        let packed = fs::read(file).map_err(|e| GuestError::file("read", file, e))?;
        let content =
            // Unpacked here, because busybox's modprobe does not support Zstandard. The limit is
            // against files made to fill the memory.
            decompress::unpack(&packed, 256 << 20).map_err(|e| GuestError::file("unpack", file, e))?;
        let elf = Elf::new(&content).ok_or_else(|| GuestError::format(file, "not a kernel module"))?;
        let mut needs = Vec::new();
        for list in elf.modinfo("depends") {
            for need in list.split(',').map(normal).filter(|need| !need.is_empty()) {
                if let Some(path) = index.get(&need) {
                    needs.push(inside(dir, path));
                    open.push(need);
                }
            }
        }
        done.insert(name, Module { path: inside(dir, file), needs, content });
    }
    Ok(done.into_values().collect())
}

/// The module's path in the guest, which has it uncompressed.
fn inside(dir: &Path, file: &Path) -> String {
    let path = file.strip_prefix(dir).unwrap_or(file).to_string_lossy().into_owned();
    match path.find(".ko.") {
        Some(at) => path[..at + 3].to_owned(),
        None => path,
    }
}

/// `modules.dep` in modprobe's format: each module with its dependencies, nearest first.
pub(crate) fn dependency_list(modules: &[Module]) -> String {
    let by_path: BTreeMap<&str, &Module> = modules.iter().map(|m| (m.path.as_str(), m)).collect();
    let mut text = String::new();
    for module in modules {
        let mut order: Vec<&str> = Vec::new();
        let mut open: Vec<&str> = module.needs.iter().map(String::as_str).collect();
        while let Some(path) = open.pop() {
            // Move a module that several need to the end: modprobe reads the list backwards, so it
            // is loaded before all of them.
            order.retain(|seen| *seen != path);
            order.push(path);
            if order.len() > by_path.len() {
                break; // a circle: no such kernel exists, but a broken tree must not hang us
            }
            open.extend(by_path.get(path).into_iter().flat_map(|m| m.needs.iter().map(String::as_str)));
        }
        text.push_str(&module.path);
        text.push(':');
        for path in order {
            text.push(' ');
            text.push_str(path);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::module;

    #[test]
    fn takes_what_is_wanted_and_what_that_needs() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("kernel/drivers");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("acpi-cpufreq.ko"), module("depends=proc-essor\0")).unwrap();
        let packed = zstd::encode_all(&module("depends=base\0")[..], 1).unwrap();
        fs::write(kernel.join("proc_essor.ko.zst"), packed).unwrap();
        fs::write(kernel.join("base.ko"), module("depends=\0")).unwrap();
        fs::write(kernel.join("other.ko"), module("")).unwrap();
        let found = collect(dir.path(), ["acpi_cpufreq", "absent"]).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(
            dependency_list(&found),
            "kernel/drivers/acpi-cpufreq.ko: kernel/drivers/proc_essor.ko kernel/drivers/base.ko\n\
             kernel/drivers/base.ko:\n\
             kernel/drivers/proc_essor.ko: kernel/drivers/base.ko\n"
        );
    }

    #[test]
    fn names_are_the_kernels() {
        assert_eq!(name_of(Path::new("a/acpi-cpufreq.ko.xz")).as_deref(), Some("acpi_cpufreq"));
        assert_eq!(name_of(Path::new("modules.order")), None);
        assert!(collect(Path::new("/nonexistent"), ["msr"]).unwrap().is_empty());
    }
}
