//! Intel Speed Select in a machine's file.

use serde::{Deserialize, Serialize};

use super::{one, yes};

/// Which Speed Select registers a machine has.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum SstClass {
    /// The mailbox in MSRs 0xB0 and 0xB1 for everything (Skylake-X family).
    MailboxMsr,
    /// The PCI mailbox, classes of service in memory-mapped registers (Ice Lake to Emerald Rapids).
    MailboxPci,
    /// Memory-mapped registers per power domain (Granite Rapids and later).
    Tpmi,
}

/// Intel Speed Select.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a machine file")]
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SstSpec {
    /// The registers that carry Speed Select.
    pub class: SstClass,
    /// Version of the performance profile feature.
    #[serde(default = "one")]
    pub version: u32,
    /// True if levels cannot be changed.
    #[serde(default)]
    pub locked: bool,
    /// True if core-power (classes of service) exists.
    #[serde(default = "yes")]
    pub core_power: bool,
    /// Performance levels, in order.
    pub level: Vec<SstLevelSpec>,
    /// Number of power domains without cores, which follow those of the dies (TPMI).
    #[serde(default)]
    pub io_domains: u32,
    /// True if the domains without cores have Speed Select registers too.
    #[serde(default)]
    pub io_registers: bool,
    /// Cores that the power unit counts as one (a module of small cores). They share a class of
    /// service.
    #[serde(default = "one")]
    pub cores_per_module: u32,
    /// Power domains of a package without registers, numbered among all domains.
    #[serde(default)]
    pub absent: Vec<u32>,
    /// Levels by power domain, package by package, if domains differ; `level` then has those of the
    /// first domain.
    #[serde(default)]
    pub domain: Vec<SstDomainSpec>,
    /// True if firmware ignores writes to the Speed Select registers (TPMI).
    #[serde(default)]
    pub write_blocked: bool,
    /// PCI bus number of the PUNIT's devices on each package.
    #[serde(default)]
    pub pci_bus: Vec<u32>,
}

/// The part of the description that belongs to one power domain.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SstDomainSpec {
    /// The domain's performance levels, in order.
    pub level: Vec<SstLevelSpec>,
}

/// One performance level.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SstLevelSpec {
    /// The level's number. Numbers may have gaps; levels in between are not enabled.
    pub number: u32,
    /// TDP ratio: the base frequency in units of the bus clock.
    pub base_mhz: u32,
    /// Base frequency with AVX2, MHz. 0: not reported.
    #[serde(default)]
    pub base_avx2_mhz: u32,
    /// Base frequency with AVX-512, MHz.
    #[serde(default)]
    pub base_avx512_mhz: u32,
    /// Base frequency with AMX, MHz.
    #[serde(default)]
    pub base_amx_mhz: u32,
    pub tdp_w: u32,
    pub tjmax_c: u32,
    /// Cores of the power domain that may be online. If empty, all.
    #[serde(default)]
    pub cores: Vec<u32>,
    /// Number of cores, or of modules of small cores, that registers report for the power domain
    /// (TPMI). 0: the actual number.
    #[serde(default)]
    pub counted: u32,
    /// Memory frequency, MHz. 0: not reported.
    #[serde(default)]
    pub memory_mhz: u32,
    /// Uncore frequencies: highest, base, lowest, MHz.
    #[serde(default)]
    pub uncore_mhz: [u32; 3],
    /// Second fabric's frequencies: highest, base, lowest, MHz.
    #[serde(default)]
    pub uncore1_mhz: [u32; 3],
    /// Frequencies of the cores: highest, base, most efficient, lowest, MHz. Zeros: those of the
    /// machine.
    #[serde(default)]
    pub core_mhz: [u32; 4],
    #[serde(default)]
    pub cooling_type: u32,
    /// Bucket core counts.
    #[serde(default)]
    pub bucket_cores: Vec<u32>,
    /// Turbo limits by bucket: one list per kind of code (SSE, AVX2, AVX-512, AMX ...), MHz.
    #[serde(default)]
    pub trl_mhz: Vec<Vec<u32>>,
    pub bf: Option<SstBfSpec>,
    pub tf: Option<SstTfSpec>,
}

/// Base-freq of a level.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SstBfSpec {
    /// Guaranteed frequency of the chosen cores, MHz.
    pub high_mhz: u32,
    /// Guaranteed frequency of the other cores, MHz.
    pub low_mhz: u32,
    /// The chosen cores of the power domain.
    pub cores: Vec<u32>,
    pub tjmax_c: u32,
    pub tdp_w: u32,
}

/// Turbo-freq of a level.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SstTfSpec {
    /// High-priority core counts of the buckets, ascending.
    pub bucket_cores: Vec<u32>,
    /// Limits of high-priority cores by bucket: one list per kind of code, MHz.
    pub high_mhz: Vec<Vec<u32>>,
    /// Limits of low-priority cores: one per kind of code, MHz.
    pub clip_mhz: Vec<u32>,
}
