//! The TPMI register block of Speed Select: one power domain's, as isst_tpmi_core.c lays it out.
//!
//! Frequencies are ratios of 100 MHz and powers eighths of a watt, as in the registers.

/// Number of levels that the block has room for.
pub const LEVELS: usize = 5;

/// The registers that fields are read from.
struct Registers<'a>(&'a [u64]);

impl Registers<'_> {
    /// Reads the field of `width` bits from bit `shift` of register `index`.
    fn field(&self, index: usize, shift: u32, width: u32, value: &mut u64) {
        let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        // A dump may be shorter than the offsets in it say. Missing registers read as 0.
        *value = self.0.get(index).map_or(0, |register| register >> shift & mask);
    }

    /// Reads a byte into each value, from bit `shift` of register `index` on.
    fn bytes(&self, index: usize, shift: u32, values: &mut [u64]) {
        for (place, value) in values.iter_mut().enumerate() {
            self.field(index, shift + 8 * place as u32, 8, value);
        }
    }
}

/// One class of service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Clos {
    /// 0 (most) to 15.
    pub priority: u64,
    pub min: u64,
    /// Highest ratio; 255 means no limit.
    pub max: u64,
}

/// SST-CP.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CorePower {
    /// Revision of this part.
    pub revision: u64,
    /// Requested state: bit 0 on, bit 1 ordered priority.
    pub control: u64,
    /// State in force.
    pub status: u64,
    /// The four classes.
    pub clos: [Clos; 4],
    /// The class of each core, by the power unit's numbers.
    pub assoc: Vec<u64>,
}

/// SST-BF of a level.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct BaseFreq {
    /// 1 if the level has SST-BF.
    pub supported: u64,
    /// High-priority cores' base ratio.
    pub high: u64,
    /// Base ratio of the other cores.
    pub low: u64,
    /// Highest temperature in degrees Celsius.
    pub tjunction: u64,
    /// Package power in 1/8 W.
    pub tdp: u64,
    /// High-priority cores.
    pub cores: u64,
}

/// SST-TF of a level.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct TurboFreq {
    /// Revision of this part.
    pub revision: u64,
    /// 1 if the level has SST-TF.
    pub supported: u64,
    /// Low-priority cores' highest ratio, by instruction class.
    pub clip: [u64; 6],
    /// High-priority cores of each bucket.
    pub bucket_cores: [u64; 8],
    /// High-priority cores' turbo ratio, by instruction class and bucket.
    pub trl: [[u64; 8]; 6],
    /// Revision 2: high-priority modules of buckets 0 to 2, used if one is not 0.
    pub modules: [u64; 3],
}

/// One performance level.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Level {
    /// Base ratio for SSE, AVX2, AVX-512, AMX.
    pub base: [u64; 4],
    /// Package power in 1/8 W.
    pub tdp: u64,
    /// Highest temperature in degrees Celsius.
    pub tjunction: u64,
    /// Memory speed in units of 100 MHz.
    pub memory: u64,
    /// The firmware's code for the cooling needed.
    pub cooling: u64,
    /// Cores that may run.
    pub cores: u64,
    /// Cores fused in, and cores that this level resolves to.
    pub core_counts: [u64; 2],
    /// Turbo ratio by instruction class and bucket.
    pub trl: [[u64; 8]; 6],
    /// Active cores of each bucket.
    pub bucket_cores: [u64; 8],
    /// P0, P1, Pn, Pm of cores.
    pub core: [u64; 4],
    /// P0, P1, Pm of the mesh.
    pub fabric: [u64; 3],
    /// P0, P1, Pm of the second mesh (revision 2).
    pub second_fabric: Option<[u64; 3]>,
    /// SST-BF.
    pub base_freq: BaseFreq,
    /// SST-TF.
    pub turbo_freq: TurboFreq,
}

/// SST-PP.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct PerfProfile {
    /// Revision of this part.
    pub revision: u64,
    /// Bit i: level i exists.
    pub enabled: u64,
    /// Bit i: software may change to level i.
    pub allowed: u64,
    /// 1 if the level can be changed while running.
    pub dynamic: u64,
    /// Offsets in a level's block of its own registers, SST-BF's and SST-TF's, in registers.
    pub feature_offsets: [u64; 3],
    /// Offsets of the levels' blocks from this part, in registers.
    pub level_offsets: [u64; LEVELS],
    /// Requested level, lock and features (bit 0 SST-BF, bit 1 SST-TF).
    pub control: [u64; 3],
    /// Level, lock and features in force.
    pub status: [u64; 3],
    /// Reason why the last change was refused; 0 for none.
    pub error: u64,
    /// The levels, one for every bit of `enabled` up to the fifth.
    pub levels: Vec<Option<Level>>,
}

/// The whole block of a power domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Block {
    /// Interface version: major and minor.
    pub version: [u64; 2],
    /// Bit 0: SST-CP; bit 1: SST-PP.
    pub capability: u64,
    /// Offsets of SST-CP's registers, and SST-PP's.
    pub offsets: [u64; 2],
    /// SST-CP, if the capability includes it.
    pub core_power: Option<CorePower>,
    /// SST-PP, if the capability includes it.
    pub perf_profile: Option<PerfProfile>,
}

/// Header of a domain that has no registers, which reads as all ones.
const INVALID: u64 = 0xff;

impl CorePower {
    fn read(&mut self, registers: &Registers<'_>, at: usize) {
        registers.field(at, 4, 8, &mut self.revision);
        registers.field(at + 1, 0, 2, &mut self.control);
        registers.field(at + 2, 0, 2, &mut self.status);
        for (index, clos) in self.clos.iter_mut().enumerate() {
            // SST_CLOS_CONFIG_PRIO, _MIN and _MAX; the first class is at SST_CLOS_CONFIG_0_OFFSET,
            // 24 bytes.
            registers.field(at + 3 + index, 4, 4, &mut clos.priority);
            registers.field(at + 3 + index, 8, 8, &mut clos.min);
            registers.field(at + 3 + index, 16, 8, &mut clos.max);
        }
        // Four registers of 16 cores, 4 bits each (SST_CLOS_ASSOC_0_OFFSET).
        self.assoc.resize(64, 0);
        for (core, class) in self.assoc.iter_mut().enumerate() {
            registers.field(at + 7 + core / 16, 4 * (core as u32 % 16), 4, class);
        }
    }
}

impl BaseFreq {
    fn read(&mut self, registers: &Registers<'_>, at: usize) {
        registers.field(at, 12, 1, &mut self.supported);
        // SST_BF_P1_HIGH, _P1_LOW, _T_PROHOT and _TDP in isst_tpmi_core.c.
        registers.field(at, 13, 8, &mut self.high);
        registers.field(at, 21, 8, &mut self.low);
        registers.field(at, 38, 8, &mut self.tjunction);
        registers.field(at, 46, 15, &mut self.tdp);
        registers.field(at + 1, 0, 64, &mut self.cores);
    }
}

impl TurboFreq {
    fn read(&mut self, registers: &Registers<'_>, at: usize) {
        registers.field(at, 4, 8, &mut self.revision);
        registers.field(at, 12, 1, &mut self.supported);
        // From SST_TF_LP_CLIP_RATIO_0 on, eight bits each.
        registers.bytes(at, 16, &mut self.clip);
        registers.bytes(at + 1, 0, &mut self.bucket_cores);
        for (index, row) in self.trl.iter_mut().enumerate() {
            registers.bytes(at + 2 + index, 0, row);
        }
        if self.revision >= 2 {
            for (index, modules) in self.modules.iter_mut().enumerate() {
                registers.field(at + 8, 16 * index as u32, 16, modules);
            }
        }
    }

    /// Returns the high-priority cores of each bucket, as the kernel counts them: modules if the
    /// revision has them.
    pub fn high_priority_cores(&self) -> [u64; 8] {
        let mut counts = self.bucket_cores;
        if self.revision >= 2 && self.modules.iter().any(|&count| count != 0) {
            counts[..3].copy_from_slice(&self.modules);
        }
        counts
    }
}

impl Level {
    fn read(&mut self, registers: &Registers<'_>, at: usize, features: [u64; 3], revision: u64) {
        // The header gives, once for all levels, the offsets of SST-PP, SST-BF and SST-TF within a
        // level (struct feature_offset).
        let own = at + features[0] as usize;
        registers.bytes(own, 0, &mut self.base);
        // SST_PP_TDP, _T_PROCHOT, _MAX_MEMORY_FREQ and _COOLING_TYPE.
        registers.field(own + 1, 32, 15, &mut self.tdp);
        registers.field(own + 1, 47, 8, &mut self.tjunction);
        registers.field(own + 1, 55, 7, &mut self.memory);
        registers.field(own + 1, 62, 2, &mut self.cooling);
        registers.field(own + 2, 0, 64, &mut self.cores);
        registers.bytes(own + 3, 0, &mut self.core_counts);
        for (index, row) in self.trl.iter_mut().enumerate() {
            registers.bytes(own + 4 + index, 0, row);
        }
        registers.bytes(own + 10, 0, &mut self.bucket_cores);
        registers.bytes(own + 11, 0, &mut self.core);
        registers.bytes(own + 11, 32, &mut self.fabric);
        if revision >= 2 {
            registers.bytes(own + 12, 0, self.second_fabric.get_or_insert_default());
        }
        self.base_freq.read(registers, at + features[1] as usize);
        self.turbo_freq.read(registers, at + features[2] as usize);
    }
}

impl PerfProfile {
    fn read(&mut self, registers: &Registers<'_>, at: usize) {
        registers.field(at, 4, 8, &mut self.revision);
        registers.field(at, 12, 8, &mut self.enabled);
        registers.field(at, 20, 8, &mut self.allowed);
        registers.field(at, 42, 1, &mut self.dynamic);
        registers.bytes(at + 1, 0, &mut self.feature_offsets);
        registers.bytes(at + 2, 0, &mut self.level_offsets);
        let [level, lock, features] = &mut self.control;
        registers.field(at + 3, 0, 3, level);
        registers.field(at + 3, 3, 1, lock);
        registers.field(at + 3, 8, 8, features);
        let [level, lock, features] = &mut self.status;
        registers.field(at + 4, 0, 3, level);
        registers.field(at + 4, 3, 1, lock);
        registers.field(at + 4, 4, 4, &mut self.error);
        registers.field(at + 4, 8, 8, features);
        self.levels.resize(LEVELS, None);
        for (index, level) in self.levels.iter_mut().enumerate() {
            if self.enabled >> index & 1 != 0 {
                // All offsets are in registers of eight bytes; the kernel multiplies them
                // (isst_tpmi_core.c: SST_REG_SIZE).
                let start = at + self.level_offsets[index] as usize;
                level.get_or_insert_default().read(registers, start, self.feature_offsets, self.revision);
            }
        }
    }
}

impl Block {
    fn read(&mut self, registers: &Registers<'_>) {
        let [major, minor] = &mut self.version;
        registers.field(0, 5, 3, major);
        registers.field(0, 0, 5, minor);
        registers.field(0, 8, 8, &mut self.capability);
        let [core_power, perf_profile] = &mut self.offsets;
        registers.field(0, 16, 8, core_power);
        registers.field(0, 24, 8, perf_profile);
        // cap_mask of sst_header: bit 0 is core-power, bit 1 perf-profile. Without its bit a part
        // has no registers.
        if self.capability & 1 != 0 {
            self.core_power.get_or_insert_default().read(registers, self.offsets[0] as usize);
        }
        if self.capability & 2 != 0 {
            self.perf_profile.get_or_insert_default().read(registers, self.offsets[1] as usize);
        }
    }

    /// Decodes a domain's registers; `None` for a domain that has none, or whose interface has an
    /// unknown major version.
    pub fn decode(registers: &[u64]) -> Option<Block> {
        let header = *registers.first()?;
        // sst_main() accepts major version 0 only; another one may have another layout.
        if header & 0xff == INVALID || header >> 5 & 7 != 0 {
            return None;
        }
        let mut block = Block::default();
        block.read(&Registers(registers));
        Some(block)
    }
}
