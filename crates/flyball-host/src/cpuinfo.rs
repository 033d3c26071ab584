//! /proc/cpuinfo: the processor's identity, and the package and core of each online CPU.
//!
//! The kernel prints a block per online CPU (arch/x86/kernel/cpu/proc.c, `show_cpuinfo`). The file
//! may be truncated, or come from an older kernel or another architecture, so unknown lines are
//! ignored.

use std::collections::{BTreeMap, BTreeSet};

use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Host, HostError};

#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    Default,
    Display,
)]
#[serde(rename_all = "kebab-case")]
pub enum Vendor {
    #[display("Intel")]
    Intel,
    /// `AuthenticAMD`, and `HygonGenuine`, whose processors are AMD's first Zen.
    #[display("AMD")]
    Amd,
    /// Any other vendor, or unknown.
    #[default]
    #[display("other")]
    Other,
}

impl Vendor {
    /// Returns the vendor that CPUID identifies by this string.
    fn from_id(vendor_id: &str) -> Vendor {
        match vendor_id {
            "GenuineIntel" => Vendor::Intel,
            "AuthenticAMD" | "HygonGenuine" => Vendor::Amd,
            _ => Vendor::Other,
        }
    }
}

/// `physical id` and `core id` of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuIds {
    pub package: Option<u32>,
    pub core: Option<u32>,
}

/// The content of /proc/cpuinfo. Each property of the processor comes from the first block that has
/// it: all CPUs of a machine show the same, except the microcode while it is being loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuInfo {
    /// Empty if the file does not contain it.
    pub vendor_id: String,
    /// `cpu family`, extended family included.
    pub family: Option<u32>,
    /// `model`, extended model included.
    pub model: Option<u32>,
    pub stepping: Option<u32>,
    /// `model name`, including the runs of blanks that some processors have in it. On Arm, where
    /// the file has only numbers, the name of the core with these numbers.
    pub model_name: Option<String>,
    /// `microcode`, which the kernel prints in hexadecimal.
    pub microcode: Option<u32>,
    pub flags: BTreeSet<String>,
    pub is_arm: bool,
    /// Every CPU with a block, which are the online ones.
    pub cpus: BTreeMap<u32, CpuIds>,
}

impl CpuInfo {
    /// Reads the file; empty if the machine has none.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn read(host: &dyn Host) -> Result<CpuInfo, HostError> {
        let mut bytes = Vec::with_capacity(1 << 16);
        match host.read_into("/proc/cpuinfo", &mut bytes) {
            Ok(()) => Ok(CpuInfo::parse(&bytes)),
            Err(error) if error.is_absent() => Ok(CpuInfo::default()),
            Err(error) => Err(error),
        }
    }

    pub fn parse(bytes: &[u8]) -> CpuInfo {
        let mut info = CpuInfo::default();
        let mut cpu = None;
        let mut start = 0;
        // True once a block has identified the processor. After that, only the three of some 28
        // lines that differ between CPUs are parsed: on 512 CPUs the file has a megabyte, mostly
        // the same flags repeated.
        let mut is_known = false;
        let (mut implementer, mut arm_cores) = (None, Vec::new());
        while start < bytes.len() {
            let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |length| start + length);
            let line = &bytes[start..end];
            start = end + 1;
            let per_cpu: [&[u8]; 3] = [b"processor", b"physical id", b"core id"];
            if is_known && !per_cpu.iter().any(|key| line.starts_with(key)) {
                continue;
            }
            let Ok(line) = std::str::from_utf8(line) else { continue };
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim(), value.trim());
            match key {
                "processor" => {
                    cpu = value.parse::<u32>().ok();
                    is_known = !info.flags.is_empty() && info.family.is_some() && info.model_name.is_some();
                    if let Some(cpu) = cpu {
                        info.cpus.insert(cpu, CpuIds::default());
                    }
                }
                "physical id" | "core id" => {
                    if let Some(ids) = cpu.and_then(|cpu| info.cpus.get_mut(&cpu)) {
                        let id = if key == "core id" { &mut ids.core } else { &mut ids.package };
                        *id = value.parse().ok();
                    }
                }
                "vendor_id" if info.vendor_id.is_empty() => value.clone_into(&mut info.vendor_id),
                "cpu family" if info.family.is_none() => info.family = value.parse().ok(),
                "model" if info.model.is_none() => info.model = value.parse().ok(),
                "stepping" if info.stepping.is_none() => info.stepping = value.parse().ok(),
                // The other names are from LoongArch, POWER and RISC-V.
                "model name" | "Model Name" | "cpu" | "uarch"
                    if info.model_name.is_none() && !value.is_empty() =>
                {
                    let name = if key == "cpu" { value.split(',').next().unwrap_or(value) } else { value };
                    info.model_name = Some(name.to_owned());
                }
                "microcode" if info.microcode.is_none() => {
                    info.microcode = hexadecimal(value);
                }
                "CPU implementer" => (info.is_arm, implementer) = (true, hexadecimal(value)),
                "CPU part" => {
                    arm_cores
                        .extend(implementer.zip(hexadecimal(value)).filter(|core| !arm_cores.contains(core)));
                }
                "flags" if info.flags.is_empty() => {
                    info.flags = value.split_whitespace().map(str::to_owned).collect();
                }
                _ => {}
            }
        }
        if info.model_name.is_none() && !arm_cores.is_empty() {
            let names: Vec<String> = arm_cores.into_iter().map(|(by, part)| arm_name(by, part)).collect();
            info.model_name = Some(names.join(" and "));
        }
        info
    }

    /// Returns whether firmware can describe this processor's P-states to the kernel. True on x86
    /// and Arm (ACPI's _PSS and _CPC), and if the processor is unknown.
    pub fn can_have_acpi_pstates(&self) -> bool {
        let is_known = !self.vendor_id.is_empty() || self.model_name.is_some();
        // Only x86 has a line with flags. A recording from Intel or AMD may lack it.
        !is_known || self.is_arm || !self.flags.is_empty() || self.vendor() != Vendor::Other
    }

    /// Returns whether a hypervisor runs below (on x86): CPUID sets the flag only for guests.
    pub fn is_virtual(&self) -> bool {
        self.flags.contains("hypervisor")
    }

    pub fn vendor(&self) -> Vendor {
        Vendor::from_id(&self.vendor_id)
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Returns the name of a core by its identification register (arch/arm64/include/asm/cputype.h).
fn arm_name(implementer: u32, part: u32) -> String {
    let name = match (implementer, part) {
        (0x41, 0xd03) => "Arm Cortex-A53",
        (0x41, 0xd05) => "Arm Cortex-A55",
        (0x41, 0xd07) => "Arm Cortex-A57",
        (0x41, 0xd08) => "Arm Cortex-A72",
        (0x41, 0xd0b) => "Arm Cortex-A76",
        (0x41, 0xd41) => "Arm Cortex-A78",
        (0x41, 0xd0c) => "Arm Neoverse N1",
        (0x41, 0xd40) => "Arm Neoverse V1",
        (0x41, 0xd49) => "Arm Neoverse N2",
        (0x41, 0xd4f) => "Arm Neoverse V2",
        (0x41, 0xd84) => "Arm Neoverse V3",
        (0x41, 0xd8e) => "Arm Neoverse N3",
        (0xc0, 0xac3) => "Ampere-1",
        (0xc0, 0xac4) => "Ampere-1a",
        (0x48, 0xd01) => "HiSilicon TSV110",
        (0x51, 0x001) => "Qualcomm Oryon",
        _ => return format!("Arm processor, implementer {implementer:#x}, part {part:#x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_describes_pstates_on_x86_and_arm_only() {
        let can = |text: &str| CpuInfo::parse(text.as_bytes()).can_have_acpi_pstates();
        for text in ["", "vendor_id : GenuineIntel\n", "vendor_id : CentaurHauls\nflags : fpu tsc\n"] {
            assert!(can(text), "{text}");
        }
        assert!(can("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n"));
        for text in ["vendor_id : IBM/S390\n", "processor : 0\ncpu : POWER9, altivec supported\n"] {
            assert!(!can(text), "{text}");
        }
    }

    #[test]
    fn processors_of_other_architectures_have_names() {
        for (text, name) in [
            (
                "CPU implementer : 0x41\nCPU part : 0xd05\nCPU implementer : 0x41\nCPU part : 0xd0b\n",
                "Arm Cortex-A55 and Arm Cortex-A76",
            ),
            ("processor : 0\ncpu : POWER9, altivec supported\n", "POWER9"),
            ("Model Name : Loongson-3A6000\n", "Loongson-3A6000"),
            ("uarch : sifive,u74-mc\n", "sifive,u74-mc"),
        ] {
            assert_eq!(CpuInfo::parse(text.as_bytes()).model_name.as_deref(), Some(name));
        }
    }

    #[test]
    fn two_packages() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
                    model name\t: Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz\nstepping\t: 6\n\
                    microcode\t: 0xd0003e7\nphysical id\t: 0\ncore id\t\t: 0\nflags\t\t: fpu hwp hfi\n\n\
                    processor\t: 28\nvendor_id\t: GenuineIntel\nphysical id\t: 1\ncore id\t\t: 3\n\n\
                    processor\t: 29\n";
        let info = CpuInfo::parse(text.as_bytes());
        assert_eq!((info.family, info.model, info.stepping), (Some(6), Some(106), Some(6)));
        assert_eq!(info.model_name.as_deref(), Some("Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz"));
        assert_eq!(info.microcode, Some(0xd00_03e7));
        assert_eq!(info.vendor(), Vendor::Intel);
        assert!(info.flags.contains("hfi"));
        assert_eq!(info.cpus[&28], CpuIds { package: Some(1), core: Some(3) });
        assert_eq!(info.cpus[&29], CpuIds::default());
    }

    #[test]
    fn arm_is_named_by_its_numbers() {
        let named = |implementer, part| {
            let text = format!(
                "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: {implementer}\n\
                 CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: {part}\nCPU revision\t: 1\n\n"
            );
            let info = CpuInfo::parse(text.as_bytes());
            assert_eq!(info.vendor(), Vendor::Other);
            info.model_name.unwrap_or_default()
        };
        assert_eq!(named("0x41", "0xd0c"), "Arm Neoverse N1");
        assert_eq!(named("0x41", "0xd99"), "Arm processor, implementer 0x41, part 0xd99");
        assert_eq!(named("", "0xd0c"), "");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let _ = CpuInfo::parse(&bytes);
        }
    }
}
