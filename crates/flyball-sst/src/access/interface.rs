//! The requests that every interface answers, and their data.

use flyball_host::{HostError, MegaHertz};
use serde::Serialize;

/// Address of a power domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DomainAddress {
    /// A CPU of the domain; `None` for a domain without CPUs (an IO die), which only TPMI reaches.
    pub cpu: Option<u32>,
    /// physical_package_id.
    pub package: u8,
    /// Number within the package; 0 if there is only one.
    pub domain: u8,
}

/// The performance levels of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Levels {
    /// Version of the feature.
    pub version: u8,
    pub highest: u8,
    pub current: u8,
    /// True if the firmware rejects changes of the level.
    pub locked: bool,
    /// True if SST-PP is enabled.
    pub enabled: bool,
}

/// Whether a level has SST-BF and SST-TF, and which of the two are on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "two features, each there or not and on or off")]
pub struct Features {
    pub base_freq: bool,
    pub turbo_freq: bool,
    pub base_freq_on: bool,
    pub turbo_freq_on: bool,
}

/// SST-CP as reported by the power unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct PmConfig {
    pub supported: bool,
    pub enabled: bool,
}

/// State of the classes of service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Qos {
    pub enabled: bool,
    /// True for ordered priority, false for proportional.
    pub ordered: bool,
}

/// Frequencies, power and temperature of a level. 0 MHz means "not given".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
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
    pub memory: MegaHertz,
    /// The firmware's code for the required cooling (TPMI).
    pub cooling: u32,
}

/// Turbo frequencies of a level: by instruction class, then bucket.
pub type TurboLimits = [[MegaHertz; 8]; 6];

/// SST-BF of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct BaseFreq {
    /// Base frequency of the high-priority cores.
    pub high: MegaHertz,
    /// Base frequency of the other cores.
    pub low: MegaHertz,
    /// High-priority cores, by the power unit's numbers.
    pub cores: u64,
    /// Highest temperature in degrees Celsius.
    pub tjunction_c: u32,
    /// Package power in watts.
    pub tdp_w: u32,
}

/// SST-TF of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct TurboFreq {
    /// The low-priority cores' highest frequency by instruction class.
    pub clip: [MegaHertz; 6],
    /// High-priority cores of each bucket; 0 ends the list.
    pub bucket_cores: [u32; 8],
    /// The high-priority cores' turbo frequency by instruction class and bucket.
    pub limits: TurboLimits,
}

/// A class of service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Clos {
    pub min: MegaHertz,
    /// Highest frequency; [`Clos::NO_LIMIT`] if there is no limit.
    pub max: MegaHertz,
    /// Energy preference, 0 (performance) to 15; TPMI has none.
    pub epp: u8,
    /// Proportional priority, 0 (highest) to 15.
    pub weight: u8,
    /// A requested frequency, which no processor uses.
    pub desired: MegaHertz,
}

impl Clos {
    /// The highest value of the register, 255 times 100 MHz.
    pub const NO_LIMIT: MegaHertz = MegaHertz(25_500);
}

/// A kind of interface.
///
/// # Errors
/// All calls return the driver's errno with a description of the request. TPMI returns `ENOTTY` for
/// every rejected call, and the mailbox if its driver is not loaded.
#[allow(clippy::missing_errors_doc)]
pub trait Access {
    /// Returns whether domains are addressed by package and number (TPMI) rather than through a
    /// CPU.
    fn is_tpmi(&self) -> bool;
    /// Names of the instruction classes that have turbo frequencies.
    fn turbo_kinds(&self) -> &'static [&'static str];
    /// Returns whether the power domain has registers.
    fn has(&self, place: &DomainAddress) -> bool;
    /// The domains of a package with registers.
    fn domains(&self, package: u8) -> Vec<u8>;

    fn pm_config(&self, at: &DomainAddress) -> Result<PmConfig, HostError>;
    /// Switches SST-CP itself (mailbox). Does nothing on TPMI, where it is a part of
    /// [`Access::set_qos`].
    fn set_pm_config(&self, at: &DomainAddress, enabled: bool) -> Result<(), HostError>;
    fn qos(&self, at: &DomainAddress) -> Result<Qos, HostError>;
    fn set_qos(&self, at: &DomainAddress, qos: Qos) -> Result<(), HostError>;

    fn levels(&self, at: &DomainAddress) -> Result<Levels, HostError>;
    /// Returns a level's features, or `EINVAL` for a level that does not exist.
    fn features(&self, at: &DomainAddress, level: u8) -> Result<Features, HostError>;
    /// Switches SST-BF and SST-TF, which share a register field and are therefore written together.
    fn set_features(&self, at: &DomainAddress, base_freq: bool, turbo_freq: bool) -> Result<(), HostError>;
    fn set_level(&self, at: &DomainAddress, level: u8) -> Result<(), HostError>;

    fn level_data(&self, at: &DomainAddress, level: u8) -> Result<LevelData, HostError>;
    /// The mesh frequencies of a level: highest, base, lowest.
    fn uncore(&self, at: &DomainAddress, level: u8) -> Result<[MegaHertz; 3], HostError>;
    /// The cores that run at a level, by the power unit's numbers.
    fn level_cores(&self, at: &DomainAddress, level: u8) -> Result<u64, HostError>;
    fn turbo_limits(&self, at: &DomainAddress, level: u8) -> Result<TurboLimits, HostError>;
    /// Active cores of the turbo buckets.
    fn bucket_cores(&self, at: &DomainAddress, level: u8) -> Result<[u32; 8], HostError>;
    fn base_freq(&self, at: &DomainAddress, level: u8) -> Result<BaseFreq, HostError>;
    fn turbo_freq(&self, at: &DomainAddress, level: u8) -> Result<TurboFreq, HostError>;

    fn clos(&self, at: &DomainAddress, class: u8) -> Result<Clos, HostError>;
    /// Sets a class of service. Frequencies are rounded down to whole hundreds of MHz.
    fn set_clos(&self, at: &DomainAddress, class: u8, clos: &Clos) -> Result<(), HostError>;
    /// The class of a core, by the power unit's number.
    fn class_of(&self, at: &DomainAddress, core: u16) -> Result<u8, HostError>;
    /// Puts a core into a class.
    fn associate(&self, at: &DomainAddress, core: u16, class: u8) -> Result<(), HostError>;
}
