//! The registers in which Intel models report what limits their cores' frequency, with their bits.
//! The doctor, `why`, `top` and the exporter share this table.
//!
//! Models that are not listed have no such register, or an unknown one, so none is read. Sources:
//! the kernel's turbostat (`plr_msrs` of Haswell's features); Intel's Software Developer's Manual,
//! volume 4, MSR_CORE_PERF_LIMIT_REASONS of Haswell (0x690) and of the table "6th-13th Generation
//! Core, 1st-5th Generation Xeon Scalable" (0x64f).

use flyball_host::{
    Vendor,
    msr::{MSR_CORE_PERF_LIMIT_REASONS, MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE},
};

/// A limit that a register of limit reasons shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "`words` says what each is")]
pub enum LimitReason {
    Prochot,
    Thermal,
    PowerBudget,
    PlatformServices,
    GraphicsDriver,
    ResidencyRegulation,
    AverageThermal,
    RegulatorThermal,
    RegulatorCurrent,
    Current,
    CorePower,
    LongPower,
    ShortPower,
    TurboLimit,
    TurboTransitions,
    BaseFrequency,
    ActiveCores,
    CoreFrequency,
}

use LimitReason as R;

impl LimitReason {
    /// Returns its description, and its label in metrics if it has one.
    fn names(self) -> (&'static str, Option<&'static str>) {
        match self {
            R::Prochot => ("PROCHOT", Some("prochot")),
            R::Thermal => ("thermal", Some("thermal")),
            R::PowerBudget => ("power budget", None),
            R::PlatformServices => ("platform configuration services", None),
            R::GraphicsDriver => ("graphics driver", None),
            R::ResidencyRegulation => ("residency state regulation", None),
            R::AverageThermal => ("running average thermal limit", Some("running-average-thermal")),
            R::RegulatorThermal => ("voltage regulator heat", Some("regulator-thermal")),
            R::RegulatorCurrent => ("voltage regulator current", Some("regulator-current")),
            R::Current => ("electrical current", Some("current")),
            R::CorePower => ("core power", None),
            R::LongPower => ("package power limit 1", Some("power-pl1")),
            R::ShortPower => ("package power limit 2", Some("power-pl2")),
            R::TurboLimit => ("turbo ratio limit", Some("turbo-limit")),
            R::TurboTransitions => ("turbo transitions", None),
            R::BaseFrequency => ("core frequency P1", None),
            R::ActiveCores => ("turbo limit of the active cores", None),
            R::CoreFrequency => ("core frequency", None),
        }
    }

    pub fn words(self) -> &'static str {
        self.names().0
    }

    /// Returns its label in metrics.
    pub fn label(self) -> Option<&'static str> {
        self.names().1
    }
}

/// A model's register of limit reasons.
#[derive(Debug, Clone, Copy)]
pub struct LimitReasons {
    pub register: u32,
    /// Bit N + 16 is the log of bit N.
    bits: &'static [(u32, LimitReason)],
}

/// 4th generation clients. Bit 5 (autonomous utilisation-based control) means that a low load needs
/// no higher frequency, which is not a limit.
const HASWELL: LimitReasons = LimitReasons {
    register: MSR_CORE_PERF_LIMIT_REASONS,
    bits: &[
        (0, R::Prochot),
        (1, R::Thermal),
        (4, R::GraphicsDriver),
        (6, R::RegulatorThermal),
        (8, R::Current),
        (9, R::CorePower),
        (10, R::LongPower),
        (11, R::ShortPower),
        (12, R::TurboLimit),
        (13, R::TurboTransitions),
    ],
};

/// Xeon E5 v3 and v4, Xeon D of Broadwell.
const HASWELL_SERVER: LimitReasons = LimitReasons {
    register: MSR_CORE_PERF_LIMIT_REASONS,
    bits: &[
        (0, R::Prochot),
        (1, R::Thermal),
        (2, R::PowerBudget),
        (3, R::PlatformServices),
        (6, R::RegulatorThermal),
        (8, R::Current),
        (10, R::TurboLimit),
        (13, R::BaseFrequency),
        (14, R::ActiveCores),
        (15, R::CoreFrequency),
    ],
};

/// Clients since Skylake, and Xeon Scalable of the first five generations.
const SKYLAKE: LimitReasons = LimitReasons {
    register: MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE,
    bits: &[
        (0, R::Prochot),
        (1, R::Thermal),
        (4, R::ResidencyRegulation),
        (5, R::AverageThermal),
        (6, R::RegulatorThermal),
        (7, R::RegulatorCurrent),
        (8, R::Current),
        (10, R::LongPower),
        (11, R::ShortPower),
        (12, R::TurboLimit),
        (13, R::TurboTransitions),
    ],
};

impl LimitReasons {
    /// Returns the register of a processor; `None` if it has none or the register is unknown.
    pub fn for_processor(vendor: Vendor, family: Option<u32>, model: Option<u32>) -> Option<LimitReasons> {
        if vendor != Vendor::Intel || family != Some(6) {
            return None;
        }
        match model? {
            0x3c | 0x45 | 0x46 => Some(HASWELL),
            0x3f | 0x4f | 0x56 => Some(HASWELL_SERVER),
            0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6 | 0x66 | 0x7d | 0x7e | 0xa7 | 0x8c | 0x8d | 0x97
            | 0x9a | 0xb7 | 0xba | 0xbf | 0x55 | 0x6a | 0x8f | 0xcf => Some(SKYLAKE),
            _ => None,
        }
    }

    /// Returns the reasons that are set in `value`, with their bits.
    pub fn shown(self, value: u64) -> impl Iterator<Item = (u32, LimitReason)> {
        self.bits.iter().copied().filter(move |(bit, _)| value >> bit & 1 == 1)
    }

    /// Returns the labels of metrics for the reasons that the register can show.
    pub fn labels(self) -> impl Iterator<Item = &'static str> {
        self.bits.iter().filter_map(|(_, reason)| reason.label())
    }
}

/// IA32_THERM_STATUS of a core, or IA32_PACKAGE_THERM_STATUS, which has the same bits (Intel SDM
/// volume 4). The log of each bit is the next bit.
#[derive(Debug, Clone, Copy)]
pub struct ThermStatus(pub u64);

impl ThermStatus {
    /// The processor's own sensor is at its limit.
    pub const HOT: u32 = 0;
    /// Another device asserts PROCHOT# or FORCEPR#.
    pub const PROCHOT: u32 = 2;
    pub const POWER: u32 = 10;

    pub fn shows(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// Returns whether a bit was set since the log was last cleared.
    pub fn has_logged(self, bit: u32) -> bool {
        self.shows(bit + 1)
    }

    /// Returns the degrees below the limit, from a core's register.
    pub fn below(self) -> Option<u64> {
        self.shows(31).then_some(self.0 >> 16 & 0x7f)
    }
}
