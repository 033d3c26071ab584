//! The calls of API 2 and 3, which address a package and a power domain, not a CPU.
//!
//! Every refusal comes back as `ENOTTY` (isst_if_common.c drops the back-end's errno). Drivers
//! check few arguments (6.12.117 compares a level with the highest one, and a class's frequencies
//! and priority with their fields; the first 6.12 did not), and bits spill into the neighbouring
//! fields. So every value is checked here. Two arguments make kernels fault, and cannot be
//! expressed with these types:
//!
//! * a level above the highest in the core-mask calls (the first 6.12): only [`PerfLevels::level`]
//!   returns a [`Level`];
//! * an association call for a domain without registers (7.2): only [`domains`], which reads the
//!   mask of usable ones, returns a [`Domain`].

use super::{bad_argument, number, wire};
use crate::{Errno, Host, HostError, Op};

/// Number of buckets of active cores, each of which has its own turbo frequencies.
pub const BUCKETS: usize = 8;
/// Number of sets of turbo frequencies, one for each class of instructions.
pub const TRL_LEVELS: usize = 6;
/// Number of classes of service.
pub const CLOSES: u8 = 4;

/// A power domain that has registers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema, serde::Serialize,
)]
pub struct Domain {
    package: u8,
    id: u8,
}

impl Domain {
    /// Returns the package, as sysfs numbers it (physical_package_id).
    pub fn package(self) -> u8 {
        self.package
    }

    /// Returns the domain's number within its package.
    pub fn id(self) -> u8 {
        self.id
    }
}

/// Returns the usable power domains of a package, in ascending order; empty for a package that does
/// not exist.
///
/// # Errors
/// The errno of the call, except `ENOTTY`, the answer for a package without registers.
pub fn domains(host: &dyn Host, package: u8) -> Result<Vec<Domain>, HostError> {
    let mut argument = [0; 4];
    argument[0] = package;
    match host.isst(number::COUNT_TPMI_INSTANCES, &mut argument) {
        Ok(_) => {}
        Err(error) if error.errno == Errno::NOTTY => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    // `valid_mask` of isst_tpmi_instance_count has 16 bits.
    let mask = wire::u16_at(&argument, 2);
    Ok((0..16).filter(|id| mask >> id & 1 != 0).map(|id| Domain { package, id }).collect())
}

fn call(
    host: &dyn Host,
    number: u32,
    domain: Domain,
    what: &str,
    argument: &mut [u8],
) -> Result<(), HostError> {
    host.isst(number, argument).map(|_| ()).map_err(|error| {
        // The node itself cannot be opened: the message is about the node, not about one domain.
        if error.path == super::NODE {
            return error;
        }
        let path = format!("{what} of package {} power domain {}", domain.package, domain.id);
        HostError::new(Op::Isst, path, error.errno)
    })
}

/// SST-CP of a domain (isst_core_power, 6 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CorePower {
    /// True if classes of service are in effect.
    pub enabled: bool,
    /// True if the processor has SST-CP.
    pub supported: bool,
    /// True for ordered priority, false for proportional.
    pub ordered: bool,
}

impl CorePower {
    /// Reads the state.
    pub fn read(host: &dyn Host, domain: Domain) -> Result<CorePower, HostError> {
        // struct isst_core_power: get_set, socket_id, power_domain_id, enable, supported,
        // priority_type.
        let mut argument = [0, domain.package, domain.id, 0, 0, 0];
        call(host, number::CORE_POWER_STATE, domain, "core-power state", &mut argument)?;
        Ok(CorePower {
            enabled: argument[3] & 1 != 0,
            supported: argument[4] != 0,
            ordered: argument[5] & 1 != 0,
        })
    }

    /// Switches SST-CP and its kind of priority.
    ///
    /// # Errors
    /// `ENOTTY` if the driver refuses: HWP off, locked, not root.
    pub fn write(host: &dyn Host, domain: Domain, enabled: bool, ordered: bool) -> Result<(), HostError> {
        let mut argument = [1, domain.package, domain.id, u8::from(enabled), 0, u8::from(ordered)];
        call(host, number::CORE_POWER_STATE, domain, "core-power state", &mut argument)
    }
}

/// A class of service (isst_clos_param, 10 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Clos {
    /// Lowest frequency in MHz.
    pub min_mhz: u16,
    /// Highest frequency in MHz; 25500 means no limit.
    pub max_mhz: u16,
    /// Proportional priority, 0 (most) to 15.
    pub priority: u8,
}

/// Refuses a class that does not exist.
fn check_clos(clos: u8) -> Result<(), HostError> {
    // The driver answers ENOTTY to everything (isst_if_common.c), so the error in an argument is
    // described here.
    if clos < CLOSES { Ok(()) } else { Err(bad_argument(format_args!("class of service {clos}"))) }
}

impl Clos {
    /// Reads class `clos`.
    ///
    /// # Errors
    /// `EINVAL` for a class above 3 (not sent); the errno of the call.
    pub fn read(host: &dyn Host, domain: Domain, clos: u8) -> Result<Clos, HostError> {
        check_clos(clos)?;
        // struct isst_clos_param; the frequencies are at 4 and 6, the priority at 8.
        let mut argument = [0, domain.package, domain.id, clos, 0, 0, 0, 0, 0, 0];
        call(host, number::CLOS_PARAM, domain, "class of service", &mut argument)?;
        Ok(Clos {
            min_mhz: wire::u16_at(&argument, 4),
            max_mhz: wire::u16_at(&argument, 6),
            priority: argument[8],
        })
    }

    /// Writes class `clos`. The registers hold whole hundreds of MHz; the driver drops the rest.
    ///
    /// # Errors
    /// `EINVAL` for a class above 3, a frequency above 25.5 GHz or a priority above 15 (not sent);
    /// the errno of the call.
    pub fn write(&self, host: &dyn Host, domain: Domain, clos: u8) -> Result<(), HostError> {
        check_clos(clos)?;
        if self.min_mhz / 100 > 0xff || self.max_mhz / 100 > 0xff || self.priority > 15 {
            return Err(bad_argument(format_args!(
                "class of service {clos} with {} to {} MHz and priority {}",
                self.min_mhz, self.max_mhz, self.priority
            )));
        }
        let mut argument = [1, domain.package, domain.id, clos, 0, 0, 0, 0, self.priority, 0];
        wire::put(&mut argument, 4, &self.min_mhz.to_le_bytes());
        wire::put(&mut argument, 6, &self.max_mhz.to_le_bytes());
        call(host, number::CLOS_PARAM, domain, "class of service", &mut argument)
    }
}

/// Bytes of isst_if_clos_assoc_cmds with one element.
pub const ASSOC_SIZE: usize = 12;

fn assoc(host: &dyn Host, domain: Domain, core: u16, write: Option<u8>) -> Result<u8, HostError> {
    if core > 63 {
        return Err(bad_argument(format_args!("core {core} of power domain {}", domain.id)));
    }
    let mut argument = [0; ASSOC_SIZE];
    // One element: with several, the driver stops at the first that fails without saying which.
    wire::put(&mut argument, 0, &1u16.to_le_bytes());
    wire::put(&mut argument, 2, &u16::from(write.is_some()).to_le_bytes());
    // The driver identifies cores only by the power unit's numbers.
    wire::put(&mut argument, 4, &1u16.to_le_bytes());
    argument[6] = domain.package;
    argument[7] = domain.id;
    wire::put(&mut argument, 8, &core.to_le_bytes());
    wire::put(&mut argument, 10, &u16::from(write.unwrap_or(0)).to_le_bytes());
    call(host, number::CLOS_ASSOC, domain, "class of a core", &mut argument)?;
    Ok((wire::u16_at(&argument, 10) & 0xff) as u8)
}

/// Returns the class of a core, given by the power unit's number.
///
/// # Errors
/// `EINVAL` for a core above 63 (not sent); the errno of the call.
pub fn class_of(host: &dyn Host, domain: Domain, core: u16) -> Result<u8, HostError> {
    assoc(host, domain, core, None)
}

/// Puts a core into a class.
///
/// # Errors
/// `EINVAL` for a core above 63 or a class above 3 (not sent); the errno of the call.
pub fn associate(host: &dyn Host, domain: Domain, core: u16, clos: u8) -> Result<(), HostError> {
    check_clos(clos)?;
    assoc(host, domain, core, Some(clos)).map(|_| ())
}

/// A performance level that the domain has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Level(u8);

impl Level {
    pub fn number(self) -> u8 {
        self.0
    }
}

/// The performance levels of a domain (isst_perf_level_info, 11 bytes).
#[expect(clippy::struct_excessive_bools, reason = "the kernel's structure: each is a state of its own")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PerfLevels {
    /// The domain asked.
    pub domain: Domain,
    pub highest: u8,
    /// Revision of the register block.
    pub revision: u8,
    /// Bit i: level i exists.
    pub mask: u8,
    /// The level in force.
    pub current: u8,
    /// SST-BF is on.
    pub base_freq_on: bool,
    /// SST-TF is on.
    pub turbo_freq_on: bool,
    /// Firmware refuses another level.
    pub locked: bool,
    /// SST-PP is enabled.
    pub enabled: bool,
    /// API 3: bit i, level i has SST-TF. API 2: one flag for all.
    pub turbo_freq_support: u8,
    /// API 3: bit i, level i has SST-BF. API 2: one flag for all.
    pub base_freq_support: u8,
}

impl PerfLevels {
    /// Bytes of isst_perf_level_info.
    pub const SIZE: usize = 11;

    /// Reads the performance levels.
    pub fn read(host: &dyn Host, domain: Domain) -> Result<PerfLevels, HostError> {
        let mut argument = [0; PerfLevels::SIZE];
        argument[0] = domain.package;
        argument[1] = domain.id;
        call(host, number::PERF_LEVELS, domain, "performance levels", &mut argument)?;
        Ok(PerfLevels {
            domain,
            highest: argument[2],
            revision: argument[3],
            mask: argument[4],
            current: argument[5],
            base_freq_on: argument[6] & 1 != 0,
            turbo_freq_on: argument[6] & 2 != 0,
            locked: argument[7] != 0,
            enabled: argument[8] != 0,
            turbo_freq_support: argument[9],
            base_freq_support: argument[10],
        })
    }

    /// Returns the level with this number, if the domain has it. Drivers have registers for five.
    pub fn level(&self, number: u8) -> Option<Level> {
        // Compared here, because not every kernel does; and the mask can have gaps.
        let exists = number < 5 && number <= self.highest && self.mask >> number & 1 != 0;
        exists.then_some(Level(number))
    }
}

/// Requests another level. The driver waits for it (up to 20 ms) and switches SST-BF and SST-TF
/// off.
///
/// # Errors
/// `ENOTTY` if it refuses: already the level, locked, HWP off, not root, or firmware did not
/// follow.
pub fn set_level(host: &dyn Host, domain: Domain, level: Level) -> Result<(), HostError> {
    let mut argument = [domain.package, domain.id, level.0];
    call(host, number::PERF_SET_LEVEL, domain, "performance level", &mut argument)
}

/// Switches SST-BF and SST-TF. The driver does not wait for the firmware to follow.
///
/// # Errors
/// `ENOTTY` if it refuses.
pub fn set_features(
    host: &dyn Host,
    domain: Domain,
    base_freq: bool,
    turbo_freq: bool,
) -> Result<(), HostError> {
    let mut argument = [domain.package, domain.id, u8::from(base_freq) | u8::from(turbo_freq) << 1];
    call(host, number::PERF_SET_FEATURE, domain, "base-freq and turbo-freq", &mut argument)
}

/// The numbers of a level (isst_perf_level_data_info, 154 bytes). Frequencies in MHz; 0 means "not
/// given".
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct LevelData {
    /// The base frequency as a ratio of 100 MHz.
    pub tdp_ratio: u16,
    /// Base frequency for SSE, AVX2, AVX-512 and AMX code.
    pub base_mhz: [u16; 4],
    /// Package power in watts.
    pub tdp_w: u16,
    /// Highest temperature in degrees Celsius.
    pub tjunction_c: u16,
    /// Highest memory speed.
    pub memory_mhz: u16,
    /// The firmware's code for the cooling that this level needs.
    pub cooling_type: u16,
    /// Highest, base, most efficient and lowest core frequency (P0, P1, Pn, Pm).
    pub core_mhz: [u16; 4],
    /// Mesh: highest, base, lowest.
    pub fabric_mhz: [u16; 3],
    /// Active cores of each bucket.
    pub bucket_cores: [u16; BUCKETS],
    /// Turbo frequency by instruction class and bucket.
    pub trl_mhz: [[u16; BUCKETS]; TRL_LEVELS],
}

impl LevelData {
    /// Bytes of isst_perf_level_data_info.
    pub const SIZE: usize = 154;

    /// Reads a level's numbers.
    pub fn read(host: &dyn Host, domain: Domain, level: Level) -> Result<LevelData, HostError> {
        let mut argument = [0; LevelData::SIZE];
        argument[0] = domain.package;
        argument[1] = domain.id;
        argument[2] = level.0;
        call(host, number::GET_PERF_LEVEL_INFO, domain, "level's numbers", &mut argument)?;
        let at = |offset: usize| wire::u16_at(&argument, offset);
        // The driver states how many are filled. The arrays of the structure end at these bounds in
        // any case.
        let buckets = usize::from(at(38)).min(BUCKETS);
        let levels = usize::from(at(40)).min(TRL_LEVELS);
        let mut data = LevelData {
            tdp_ratio: at(4),
            base_mhz: [at(6), at(8), at(10), at(12)],
            tdp_w: at(14),
            tjunction_c: at(16),
            memory_mhz: at(18),
            cooling_type: at(20),
            core_mhz: [at(22), at(24), at(26), at(28)],
            // At 34 is Pn of the mesh, which the driver does not fill.
            fabric_mhz: [at(30), at(32), at(36)],
            ..LevelData::default()
        };
        for bucket in 0..buckets {
            data.bucket_cores[bucket] = at(42 + 2 * bucket);
            for level in 0..levels {
                data.trl_mhz[level][bucket] = at(58 + 2 * (BUCKETS * level + bucket));
            }
        }
        Ok(data)
    }
}

/// Reads the second mesh's frequencies of a level: highest, base, lowest in MHz
/// (isst_perf_level_fabric_info, 54 bytes; revision 2 of the block, kernels from 7.x on). `None` if
/// there is no such call or block.
///
/// # Errors
/// The errno of the call, except `ENOTTY`.
pub fn second_fabric(host: &dyn Host, domain: Domain, level: Level) -> Result<Option<[u16; 3]>, HostError> {
    let mut argument = [0; 54];
    argument[0] = domain.package;
    argument[1] = domain.id;
    wire::put(&mut argument, 2, &u16::from(level.0).to_le_bytes());
    // The answer is three arrays of eight from byte 6 on, by mesh; the second mesh is the second of
    // each.
    match call(host, number::GET_PERF_LEVEL_FABRIC_INFO, domain, "mesh frequencies", &mut argument) {
        Ok(()) => {
            Ok(Some([wire::u16_at(&argument, 8), wire::u16_at(&argument, 24), wire::u16_at(&argument, 40)]))
        }
        Err(error) if error.errno == Errno::NOTTY => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes of isst_perf_level_cpu_mask.
pub const CPU_MASK_SIZE: usize = 24;

fn core_mask(
    host: &dyn Host,
    number: u32,
    what: &str,
    domain: Domain,
    level: Level,
) -> Result<u64, HostError> {
    let mut argument = [0; CPU_MASK_SIZE];
    argument[0] = domain.package;
    argument[1] = domain.id;
    argument[2] = level.0;
    // The bits are the power unit's core numbers; the driver knows no others.
    argument[3] = 1;
    call(host, number, domain, what, &mut argument)?;
    Ok(wire::u64_at(&argument, 8))
}

/// Returns the cores that a level lets run, as bits by the power unit's numbers.
pub fn level_cores(host: &dyn Host, domain: Domain, level: Level) -> Result<u64, HostError> {
    core_mask(host, number::GET_PERF_LEVEL_CPU_MASK, "cores of a level", domain, level)
}

/// Returns the high-priority cores of SST-BF.
pub fn base_freq_cores(host: &dyn Host, domain: Domain, level: Level) -> Result<u64, HostError> {
    core_mask(host, number::GET_BASE_FREQ_CPU_MASK, "base-freq's cores", domain, level)
}

/// SST-BF of a level (isst_base_freq_info, 12 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BaseFreq {
    /// Base frequency of the high-priority cores in MHz.
    pub high_mhz: u16,
    /// Base frequency of the others in MHz.
    pub low_mhz: u16,
    /// Highest temperature in degrees Celsius.
    pub tjunction_c: u16,
    /// Package power in watts.
    pub tdp_w: u16,
}

impl BaseFreq {
    /// Reads a level's SST-BF.
    pub fn read(host: &dyn Host, domain: Domain, level: Level) -> Result<BaseFreq, HostError> {
        let mut argument = [0; 12];
        argument[0] = domain.package;
        argument[1] = domain.id;
        wire::put(&mut argument, 2, &u16::from(level.0).to_le_bytes());
        call(host, number::GET_BASE_FREQ_INFO, domain, "base-freq", &mut argument)?;
        Ok(BaseFreq {
            high_mhz: wire::u16_at(&argument, 4),
            low_mhz: wire::u16_at(&argument, 6),
            tjunction_c: wire::u16_at(&argument, 8),
            tdp_w: wire::u16_at(&argument, 10),
        })
    }
}

/// SST-TF of a level (isst_turbo_freq_info, 134 bytes). Frequencies in MHz.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct TurboFreq {
    /// The low-priority cores' highest frequency, by instruction class.
    pub clip_mhz: [u16; TRL_LEVELS],
    /// High-priority cores of each bucket.
    pub bucket_cores: [u16; BUCKETS],
    /// The high-priority cores' turbo frequency, by instruction class and bucket.
    pub trl_mhz: [[u16; BUCKETS]; TRL_LEVELS],
}

impl TurboFreq {
    /// Bytes of isst_turbo_freq_info.
    pub const SIZE: usize = 134;

    /// Reads a level's SST-TF.
    pub fn read(host: &dyn Host, domain: Domain, level: Level) -> Result<TurboFreq, HostError> {
        let mut argument = [0; TurboFreq::SIZE];
        argument[0] = domain.package;
        argument[1] = domain.id;
        wire::put(&mut argument, 2, &u16::from(level.0).to_le_bytes());
        call(host, number::GET_TURBO_FREQ_INFO, domain, "turbo-freq", &mut argument)?;
        let at = |offset: usize| wire::u16_at(&argument, offset);
        // Bounded by the structure, whatever count the driver gives.
        let clips = usize::from(at(4)).min(TRL_LEVELS);
        let buckets = usize::from(at(6)).min(BUCKETS);
        let levels = usize::from(at(8)).min(TRL_LEVELS);
        let mut turbo = TurboFreq::default();
        for (index, clip) in turbo.clip_mhz.iter_mut().enumerate().take(clips) {
            *clip = at(10 + 2 * index);
        }
        for bucket in 0..buckets {
            turbo.bucket_cores[bucket] = at(22 + 2 * bucket);
            for level in 0..levels {
                turbo.trl_mhz[level][bucket] = at(38 + 2 * (BUCKETS * level + bucket));
            }
        }
        Ok(turbo)
    }
}
