//! The processor model, which determines the mailbox's commands and the encoding of its answers.

use flyball_host::CpuInfo;

// Numbers and names from arch/x86/include/asm/intel-family.h.
pub const SKYLAKE_X: u32 = 0x55;
pub const ICELAKE_X: u32 = 0x6a;
pub(super) const ICELAKE_D: u32 = 0x6c;
pub(super) const SAPPHIRERAPIDS_X: u32 = 0x8f;
pub(super) const EMERALDRAPIDS_X: u32 = 0xcf;

/// The processor, from /proc/cpuinfo.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CpuModel {
    pub vendor: String,
    /// Family, including the extended family.
    pub family: u32,
    /// Model, including the extended model.
    pub model: u32,
    pub stepping: u32,
    /// The brand string.
    pub name: String,
}

impl CpuModel {
    /// Reads the model from /proc/cpuinfo; missing numbers are 0.
    pub fn new(info: &CpuInfo) -> CpuModel {
        CpuModel {
            vendor: info.vendor_id.clone(),
            family: info.family.unwrap_or(0),
            model: info.model.unwrap_or(0),
            stepping: info.stepping.unwrap_or(0),
            name: info.model_name.clone().unwrap_or_default(),
        }
    }

    /// Skylake and Cascade Lake servers, whose classes of service are in the mailbox too
    /// (`is_skx_based_platform` in isst-config.c).
    pub fn is_skylake_based(&self) -> bool {
        self.model == SKYLAKE_X
    }

    /// Cascade Lake. Only its N parts have Speed Select: base frequencies set in the BIOS, visible
    /// in cpufreq (`update_cpu_model` in isst-config.c distinguishes them from Skylake and Cooper
    /// Lake by the stepping).
    pub fn is_cascade_lake(&self) -> bool {
        self.model == SKYLAKE_X && matches!(self.stepping, 6 | 7)
    }
}
