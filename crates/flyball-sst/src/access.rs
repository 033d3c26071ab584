//! One face for both interfaces: mailboxes (API 1) and power-domain registers (TPMI, API 2 and 3).
//!
//! A request names a [`Place`]. Mailboxes are reached through a CPU of the package; TPMI through package and
//! domain. Frequencies are in MHz on both, whatever the registers hold.

mod dump;
mod mailbox;
mod tpmi;

use flyball_host::{CpuInfo, Host, HostError, MegaHertz, isst};

pub use dump::Dump;
pub use mailbox::Mailbox;
pub use tpmi::Tpmi;

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Place {
    /// A CPU of the domain; `None` for one without CPUs (an IO die), which only TPMI reaches.
    pub cpu: Option<u32>,
    /// physical_package_id.
    pub package: u8,
    /// The power domain within the package; 0 where there is one.
    pub domain: u8,
}

/// The performance levels of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Levels {
    /// Version of the feature.
    pub version: u8,
    /// The highest level.
    pub highest: u8,
    /// The one in force.
    pub current: u8,
    /// Firmware refuses another.
    pub locked: bool,
    /// SST-PP is enabled.
    pub enabled: bool,
}

/// What a level has of SST-BF and SST-TF, and what is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Features {
    /// The level has SST-BF.
    pub base_freq: bool,
    /// The level has SST-TF.
    pub turbo_freq: bool,
    /// SST-BF is on.
    pub base_freq_on: bool,
    /// SST-TF is on.
    pub turbo_freq_on: bool,
}

/// SST-CP as the power unit reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct PmConfig {
    /// The part has SST-CP.
    pub supported: bool,
    /// It is on.
    pub enabled: bool,
}

/// Classes of service as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Qos {
    /// They count.
    pub enabled: bool,
    /// Ordered priority instead of proportional.
    pub ordered: bool,
}

/// The numbers of a level. 0 MHz is "not given".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct LevelData {
    /// Base frequency as a ratio of 100 MHz.
    pub tdp_ratio: u32,
    /// Package power in watts.
    pub tdp_w: u32,
    /// Highest temperature in degrees Celsius.
    pub tjunction_c: u32,
    /// Base frequency for SSE, AVX2, AVX-512, AMX code.
    pub base: [MegaHertz; 4],
    /// Mesh: highest, base, lowest.
    pub uncore: [MegaHertz; 3],
    /// Second mesh: highest, base, lowest.
    pub second_uncore: [MegaHertz; 3],
    /// Memory speed.
    pub memory: MegaHertz,
    /// The firmware's code for the cooling needed (TPMI).
    pub cooling: u32,
}

/// Turbo frequencies of a level: by instruction class, then bucket.
pub type TurboLimits = [[MegaHertz; 8]; 6];

/// SST-BF of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct BaseFreq {
    /// High-priority cores' base frequency.
    pub high: MegaHertz,
    /// The others'.
    pub low: MegaHertz,
    /// High-priority cores, by the power unit's numbers.
    pub cores: u64,
    /// Highest temperature in degrees Celsius.
    pub tjunction_c: u32,
    /// Package power in watts.
    pub tdp_w: u32,
}

/// SST-TF of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct TurboFreq {
    /// The low-priority cores' highest frequency by instruction class.
    pub clip: [MegaHertz; 6],
    /// High-priority cores of each bucket; 0 ends the list.
    pub bucket_cores: [u32; 8],
    /// The high-priority cores' turbo frequency by instruction class and bucket.
    pub limits: TurboLimits,
}

/// A class of service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Clos {
    /// Lowest frequency.
    pub min: MegaHertz,
    /// Highest frequency; [`Clos::NO_LIMIT`] is none.
    pub max: MegaHertz,
    /// Energy preference, 0 (performance) to 15; TPMI has none.
    pub epp: u8,
    /// Proportional priority, 0 (most) to 15.
    pub weight: u8,
    /// A frequency asked for; nothing uses it.
    pub desired: MegaHertz,
}

impl Clos {
    /// The highest value of the register, 255 times 100 MHz.
    pub const NO_LIMIT: MegaHertz = MegaHertz(25_500);
}

/// One kind of interface.
///
/// # Errors
/// All calls: the errno of the driver, with the request in words. `ENOTTY` is TPMI's answer to everything that it
/// refuses, and the mailbox's where its driver is not loaded.
#[allow(clippy::missing_errors_doc)]
pub trait Access {
    /// Whether domains are named by package and number (TPMI) rather than through a CPU.
    fn is_tpmi(&self) -> bool;
    /// How many instruction classes have turbo frequencies, and their names.
    fn turbo_kinds(&self) -> &'static [&'static str];
    /// Whether the place has registers.
    fn has(&self, place: &Place) -> bool;
    /// The domains of a package that have registers.
    fn domains(&self, package: u8) -> Vec<u8>;

    /// SST-CP's state.
    fn pm_config(&self, at: &Place) -> Result<PmConfig, HostError>;
    /// Switches SST-CP itself (mailbox; a part of [`Access::set_qos`] on TPMI, where this does nothing).
    fn set_pm_config(&self, at: &Place, enabled: bool) -> Result<(), HostError>;
    /// The classes' switch and priority type.
    fn qos(&self, at: &Place) -> Result<Qos, HostError>;
    /// Sets both.
    fn set_qos(&self, at: &Place, qos: Qos) -> Result<(), HostError>;

    /// The levels.
    fn levels(&self, at: &Place) -> Result<Levels, HostError>;
    /// What a level has, and what is on. `EINVAL` for a level that does not exist.
    fn features(&self, at: &Place, level: u8) -> Result<Features, HostError>;
    /// Switches SST-BF and SST-TF.
    fn set_features(&self, at: &Place, base_freq: bool, turbo_freq: bool) -> Result<(), HostError>;
    /// Changes the level.
    fn set_level(&self, at: &Place, level: u8) -> Result<(), HostError>;

    /// Base frequencies, powers and temperatures of a level.
    fn level_data(&self, at: &Place, level: u8) -> Result<LevelData, HostError>;
    /// The mesh frequencies of a level: highest, base, lowest.
    fn uncore(&self, at: &Place, level: u8) -> Result<[MegaHertz; 3], HostError>;
    /// The cores that a level lets run.
    fn level_cores(&self, at: &Place, level: u8) -> Result<u64, HostError>;
    /// Turbo frequencies of a level.
    fn turbo_limits(&self, at: &Place, level: u8) -> Result<TurboLimits, HostError>;
    /// Active cores of the turbo buckets.
    fn bucket_cores(&self, at: &Place, level: u8) -> Result<[u32; 8], HostError>;
    /// SST-BF of a level.
    fn base_freq(&self, at: &Place, level: u8) -> Result<BaseFreq, HostError>;
    /// SST-TF of a level.
    fn turbo_freq(&self, at: &Place, level: u8) -> Result<TurboFreq, HostError>;

    /// A class of service.
    fn clos(&self, at: &Place, class: u8) -> Result<Clos, HostError>;
    /// Sets a class of service. Frequencies are cut to whole hundreds of MHz.
    fn set_clos(&self, at: &Place, class: u8, clos: &Clos) -> Result<(), HostError>;
    /// The class of a core, by the power unit's number.
    fn class_of(&self, at: &Place, core: u16) -> Result<u8, HostError>;
    /// Puts a core into a class.
    fn associate(&self, at: &Place, core: u16, class: u8) -> Result<(), HostError>;
}

/// What /proc/cpuinfo says of the first CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CpuModel {
    /// vendor_id.
    pub vendor: String,
    /// Family, extended family included.
    pub family: u32,
    /// Model, extended model included.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// The brand string.
    pub name: String,
}

impl CpuModel {
    /// Reads it; all zero where there is nothing to read.
    pub fn read(host: &dyn Host) -> CpuModel {
        let info = CpuInfo::read(host).unwrap_or_default();
        CpuModel {
            vendor: info.vendor_id,
            family: info.family.unwrap_or(0),
            model: info.model.unwrap_or(0),
            stepping: info.stepping.unwrap_or(0),
            name: info.model_name.unwrap_or_default(),
        }
    }

    /// Skylake and Cascade Lake servers, whose classes of service are in the mailbox too.
    pub fn is_skylake_based(&self) -> bool {
        self.model == 0x55
    }

    /// Cascade Lake, of which only the N parts have anything: base frequencies set in the BIOS, seen in cpufreq.
    pub fn is_cascade_lake(&self) -> bool {
        self.model == 0x55 && matches!(self.stepping, 6 | 7)
    }
}

/// Opens the interface that the drivers offer.
///
/// # Errors
/// The errno of asking; `EOPNOTSUPP` for a version that is not known.
pub fn open<'h>(
    host: &'h dyn Host,
    model: &CpuModel,
) -> Result<(isst::Platform, Box<dyn Access + 'h>), HostError> {
    let platform = isst::Platform::read(host)?;
    let access: Box<dyn Access + 'h> = match platform.api_version {
        1 => Box::new(Mailbox::new(host, model)),
        2 | 3 => Box::new(Tpmi::new(host, platform.api_version)),
        version => {
            let what = format!("interface version {version} of {}", isst::NODE);
            return Err(HostError::new(flyball_host::Op::Isst, what, flyball_host::Errno::OPNOTSUPP));
        }
    };
    Ok((platform, access))
}
