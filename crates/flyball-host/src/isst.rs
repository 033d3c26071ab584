//! Speed Select: the calls of `/dev/isst_interface`, and the register block behind the newer calls.
//!
//! Two families of calls share the node. Up to Emerald Rapids ([`legacy`]) a request is a mailbox
//! command, an MMIO register or an MSR of a CPU. From Granite Rapids on it names a package and a
//! power domain (flyball-sst makes these calls). [`Platform::api_version`] tells which family a
//! machine supports. [`memdump`] reads the TPMI block itself, as debugfs shows it, for machines
//! without the node.
//!
//! Structures, sizes and numbers: include/uapi/linux/isst_if.h. Every argument is checked before a
//! driver sees it, because drivers differ in their checks and two of them fault on arguments that
//! they do not check.

pub mod legacy;
pub mod memdump;
pub mod wire;

use crate::{CpuInfo, Errno, Host, HostError, Kind, Op, Vendor};

/// The node of the common driver (isst_if_common.c).
pub const NODE: &str = "/dev/isst_interface";

/// The numbers of the calls, as ioctl(2) receives them on 64-bit machines (magic 0xFE, size of a
/// pointer).
pub mod number {
    /// Properties of the drivers.
    pub const GET_PLATFORM_INFO: u32 = 0x8008_fe00;
    /// The power unit's number of a CPU.
    pub const GET_PHY_ID: u32 = 0xc008_fe01;
    /// A 32-bit MMIO register.
    pub const IO_CMD: u32 = 0x4008_fe02;
    pub const MBOX_COMMAND: u32 = 0xc008_fe03;
    /// One of the few MSRs that the driver allows.
    pub const MSR_COMMAND: u32 = 0xc008_fe04;
    /// The power domains of a package that have registers.
    pub const COUNT_TPMI_INSTANCES: u32 = 0x8008_fe05;
    /// Switches SST-CP on or off.
    pub const CORE_POWER_STATE: u32 = 0xc008_fe06;
    /// One class of service.
    pub const CLOS_PARAM: u32 = 0xc008_fe07;
    /// The class of a core.
    pub const CLOS_ASSOC: u32 = 0xc008_fe08;
    /// The performance levels of a domain.
    pub const PERF_LEVELS: u32 = 0xc008_fe09;
    /// Changes the performance level.
    pub const PERF_SET_LEVEL: u32 = 0x4008_fe0a;
    /// Switches SST-BF and SST-TF on or off.
    pub const PERF_SET_FEATURE: u32 = 0x4008_fe0b;
    /// The numbers of a level.
    pub const GET_PERF_LEVEL_INFO: u32 = 0x8008_fe0c;
    /// The cores of a level.
    pub const GET_PERF_LEVEL_CPU_MASK: u32 = 0x8008_fe0d;
    /// SST-BF of a level.
    pub const GET_BASE_FREQ_INFO: u32 = 0x8008_fe0e;
    /// The high-priority cores of SST-BF.
    pub const GET_BASE_FREQ_CPU_MASK: u32 = 0x8008_fe0f;
    /// SST-TF of a level.
    pub const GET_TURBO_FREQ_INFO: u32 = 0x8008_fe10;
    /// The mesh frequencies of a level.
    pub const GET_PERF_LEVEL_FABRIC_INFO: u32 = 0x8008_fe11;
}

/// Highest supported interface version: 1 is mailbox and MMIO, 2 and 3 are TPMI.
pub const HIGHEST_API: u16 = 3;

/// Properties of a machine's drivers (isst_if_platform_info).
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct Platform {
    /// 1: mailbox and MMIO; 2 and 3: TPMI.
    pub api_version: u16,
    /// The common driver's own version.
    pub driver_version: u16,
    /// Number of commands that one legacy call may carry.
    pub max_commands: u16,
    /// True if a mailbox driver is loaded.
    pub mailbox: bool,
    /// True if the MMIO driver is loaded.
    pub mmio: bool,
}

impl Platform {
    /// Bytes of isst_if_platform_info.
    pub const SIZE: usize = 8;

    /// Queries the common driver.
    ///
    /// # Errors
    /// `ENOENT` without the node; the errno of open(2) or ioctl(2).
    pub fn read(host: &dyn Host) -> Result<Platform, HostError> {
        let mut argument = [0; Platform::SIZE];
        host.isst(number::GET_PLATFORM_INFO, &mut argument)?;
        Ok(Platform::decode(&argument))
    }

    /// Decodes the structure.
    pub fn decode(bytes: &[u8; Platform::SIZE]) -> Platform {
        Platform {
            api_version: wire::u16_at(bytes, 0),
            driver_version: wire::u16_at(bytes, 2),
            max_commands: wire::u16_at(bytes, 4),
            mailbox: bytes[6] != 0,
            mmio: bytes[7] != 0,
        }
    }

    /// Returns whether requests go to power domains' registers instead of mailboxes.
    pub fn is_tpmi(&self) -> bool {
        self.api_version > 1
    }
}

/// Returns the error for an argument that must not reach a driver.
pub fn bad_argument(what: impl std::fmt::Display) -> HostError {
    HostError::new(Op::Isst, format!("{NODE} ({what})"), Errno::INVAL)
}

/// Makes a call of the driver; `what` describes it in the error.
///
/// # Errors
/// The errno of open(2) or ioctl(2).
pub fn call(
    host: &dyn Host,
    number: u32,
    argument: &mut [u8],
    what: impl FnOnce() -> String,
) -> Result<(), HostError> {
    host.isst(number, argument).map(|_| ()).map_err(|error| {
        // If the node itself cannot be opened, report that and not the request.
        if error.path == NODE { error } else { HostError::new(Op::Isst, what(), error.errno) }
    })
}

/// Returns the module that drives Speed Select on a CPU model of family 6, or `None` for a CPU
/// without Speed Select (the tables of CPU ids in drivers/platform/x86/intel/speed_select_if).
pub fn module_for(model: u32) -> Option<&'static str> {
    match model {
        // Skylake-X and Cascade Lake: the mailbox is two MSRs (MSR_OS_MAILBOX_INTERFACE and _DATA).
        0x55 => Some("isst_if_mbox_msr"),
        // Ice Lake to Emerald Rapids: the mailbox is a PCI device, and the classes are in MMIO
        // space.
        0x6a | 0x6c | 0x8f | 0xcf => Some("isst_if_mbox_pci and isst_if_mmio"),
        // Granite Rapids X and D, Sierra Forest, Grand Ridge, Clearwater Forest.
        0xad | 0xae | 0xaf | 0xb6 | 0xdd => Some("intel_vsec, intel_vsec_tpmi and isst_tpmi"),
        _ => None,
    }
}

/// The processor's properties that decide about Speed Select.
#[derive(Debug, Clone, Copy)]
pub struct Processor<'a> {
    pub vendor: Vendor,
    pub family: Option<u32>,
    pub model: Option<u32>,
    pub stepping: Option<u32>,
    pub name: Option<&'a str>,
}

/// Explains why Speed Select does not answer, and how to fix it.
pub fn explain(host: &dyn Host, error: &HostError) -> String {
    let info = CpuInfo::read(host).unwrap_or_default();
    let processor = Processor {
        vendor: info.vendor(),
        family: info.family,
        model: info.model,
        stepping: info.stepping,
        name: info.model_name.as_deref(),
    };
    explain_on(&host.kind(), processor, error)
}

/// Like [`explain`], for a processor that is already known: reading /proc/cpuinfo again costs a
/// megabyte on a machine of 512 CPUs.
pub fn explain_on(kind: &Kind, processor: Processor<'_>, error: &HostError) -> String {
    // On an open node, a call fails with the same errno for another reason.
    let node_missing = error.path == NODE && error.is_absent();
    match error.errno {
        _ if node_missing => explain_absence(kind, processor),
        Errno::ACCES | Errno::PERM => {
            format!("{error}; Speed Select needs root (the node {NODE} is root's alone)")
        }
        Errno::NOTTY => format!(
            "{error}; the driver gives this one answer for every refusal: a setting locked or write-protected by \
             firmware, a value it does not take, or a call that this kernel does not have"
        ),
        Errno::BUSY => format!("{error}; the firmware's mailbox did not answer in time: try again"),
        // A completion code other than 0 (isst_if_mbox_pci.c, isst_if_mbox_msr.c).
        Errno::NXIO => {
            format!("{error}; the firmware refused the command: this CPU may not have the feature")
        }
        Errno::AGAIN => format!("{error}; a Speed Select driver is being loaded or removed: try again"),
        _ => error.to_string(),
    }
}

fn explain_absence(kind: &Kind, processor: Processor<'_>) -> String {
    let Processor { vendor, family, model, stepping, name } = processor;
    // Model 55h is Cascade Lake, the first with Speed Select, from stepping 5 on.
    let is_skylake = model == Some(0x55) && stepping.is_some_and(|stepping| stepping < 5);
    if !is_skylake && vendor == Vendor::Intel && family == Some(6) {
        if let Some(modules) = model.and_then(module_for) {
            if *kind == Kind::Recorded {
                return format!(
                    "this recording holds nothing of Speed Select: mailboxes cannot be recorded, and the register blocks \
                     that debugfs shows of later processors are not there. On the machine itself the driver is loaded \
                     with modprobe ({modules})"
                );
            }
            return format!(
                "no Speed Select driver: {NODE} is missing. Load it with modprobe ({modules}); a kernel without \
                 these modules needs CONFIG_INTEL_SPEED_SELECT_INTERFACE, and TPMI parts CONFIG_INTEL_TPMI"
            );
        }
    }
    if vendor == Vendor::Intel && family == Some(19) {
        return format!(
            "no Speed Select driver: {NODE} is missing. Load intel_vsec, intel_vsec_tpmi and isst_tpmi with modprobe"
        );
    }
    let name = name.unwrap_or("this CPU");
    format!("no Speed Select here: {name} does not support it (Xeon Scalable from Cascade Lake on does)")
}

#[cfg(test)]
mod tests;
