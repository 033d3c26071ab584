//! Access without a driver: the TPMI register blocks in debugfs (`tpmi-BDF/tpmi-id-05/mem_dump`),
//! with the layout of isst_tpmi_core.c.
//!
//! For machines without a loaded Speed Select driver, and for recorded ones. Read-only.

use flyball_host::{Errno, Host, HostError, MegaHertz, Op, isst::memdump};

use super::{
    interface::{
        Access, BaseFreq, Clos, DomainAddress, Features, LevelData, Levels, PmConfig, Qos, TurboFreq,
        TurboLimits,
    },
    tpmi::Tpmi,
};

const DEBUGFS: &str = "/sys/kernel/debug";

/// Header of a domain without registers, which reads as all ones.
const INVALID: u64 = 0xff;

/// Number of levels that a block has room for.
const LEVELS: u8 = 5;

/// A power domain's registers from one of them on. Offsets count registers of eight bytes, as in
/// the registers themselves; the kernel multiplies them (isst_tpmi_core.c: SST_REG_SIZE).
#[derive(Clone, Copy)]
struct Part<'a> {
    block: &'a [u64],
    at: usize,
}

impl<'a> Part<'a> {
    fn part(self, offset: u32) -> Part<'a> {
        Part { at: self.at + offset as usize, ..self }
    }

    /// Reads a register. A dump may be shorter than its offsets imply; missing registers read as 0.
    fn register(self, index: usize) -> u64 {
        self.block.get(self.at + index).copied().unwrap_or(0)
    }

    /// Reads the field of `width` bits from bit `shift` of register `index`.
    fn field(self, index: usize, shift: u32, width: u32) -> u32 {
        (self.register(index) >> shift) as u32 & ((1 << width) - 1)
    }

    /// Reads bytes from bit `shift` of register `index` on.
    fn bytes<const N: usize>(self, index: usize, shift: u32) -> [u32; N] {
        std::array::from_fn(|place| self.field(index, shift + 8 * place as u32, 8))
    }

    /// Reads bytes as ratios of 100 MHz, the unit in all TPMI blocks.
    fn ratios<const N: usize>(self, index: usize, shift: u32) -> [MegaHertz; N] {
        self.bytes(index, shift).map(|ratio| MegaHertz(ratio * 100))
    }

    /// Reads turbo ratios from register `index` on, one register per instruction class.
    fn limits(self, index: usize) -> TurboLimits {
        std::array::from_fn(|kind| self.ratios(index + kind, 0))
    }
}

/// The parts of a level's registers: its own, SST-BF's and SST-TF's.
struct Level<'a> {
    own: Part<'a>,
    base_freq: Part<'a>,
    turbo_freq: Part<'a>,
}

/// The register blocks of a machine.
#[derive(Debug, Default)]
pub struct Dump {
    /// Blocks by package, then domain.
    packages: Vec<Vec<Option<Vec<u64>>>>,
}

/// A domain's registers; `None` for a domain without registers, or with an unknown major version of
/// the interface.
fn block(instance: &memdump::Instance) -> Option<Vec<u64>> {
    let registers = instance.registers();
    let header = *registers.first()?;
    // sst_main() accepts only major version 0; others may have another layout.
    (header & 0xff != INVALID && header >> 5 & 7 == 0).then_some(registers)
}

impl Dump {
    /// Reads the dumps in debugfs. A device is a package. debugfs does not show its number, so
    /// devices are ordered by their PCI addresses.
    ///
    /// # Errors
    /// `ENOENT` without any dump.
    pub fn read(host: &dyn Host) -> Result<Dump, HostError> {
        let mut packages: Vec<Vec<_>> = Vec::new();
        for device in host.list(DEBUGFS).unwrap_or_default() {
            if !device.starts_with("tpmi-") {
                continue;
            }
            let mut bytes = Vec::new();
            let instances =
                match host.read_into(&format!("{DEBUGFS}/{device}/tpmi-id-05/mem_dump"), &mut bytes) {
                    // A damaged dump is a package without domains.
                    Ok(()) => memdump::parse(&bytes).unwrap_or_default(),
                    // The device has no Speed Select.
                    Err(error) if error.errno == Errno::NOENT => continue,
                    Err(_) => Vec::new(),
                };
            // A package whose dump cannot be read keeps its index, or later packages would get its
            // number.
            packages.push(instances.iter().map(block).collect());
        }
        if packages.iter().all(Vec::is_empty) {
            let path = format!("{DEBUGFS}/tpmi-*/tpmi-id-05/mem_dump");
            return Err(HostError::new(Op::Read, path, Errno::NOENT));
        }
        Ok(Dump { packages })
    }

    fn block(&self, at: &DomainAddress) -> Result<Part<'_>, HostError> {
        let found = self
            .packages
            .get(usize::from(at.package))
            .and_then(|domains| domains.get(usize::from(at.domain)));
        let block = found.and_then(Option::as_deref).ok_or_else(|| {
            let what = format!("registers of package {} power domain {}", at.package, at.domain);
            HostError::new(Op::Read, what, Errno::NODEV)
        })?;
        Ok(Part { block, at: 0 })
    }

    /// The SST-CP block. In the header's capability, bit 0 is SST-CP and bit 1 SST-PP; without its
    /// bit a part has no registers.
    fn power(&self, at: &DomainAddress) -> Result<Option<Part<'_>>, HostError> {
        let header = self.block(at)?;
        Ok((header.field(0, 8, 1) != 0).then(|| header.part(header.field(0, 16, 8))))
    }

    /// The SST-PP block.
    fn profile(&self, at: &DomainAddress) -> Result<Part<'_>, HostError> {
        let header = self.block(at)?;
        if header.field(0, 9, 1) == 0 {
            let what = "SST-PP, which this part does not have";
            return Err(HostError::new(Op::Read, what, Errno::OPNOTSUPP));
        }
        Ok(header.part(header.field(0, 24, 8)))
    }

    fn level(&self, at: &DomainAddress, number: u8) -> Result<Level<'_>, HostError> {
        let profile = self.profile(at)?;
        if number >= LEVELS || profile.field(0, 12, 8) >> number & 1 == 0 {
            return Err(HostError::new(Op::Read, format!("level {number}"), Errno::INVAL));
        }
        let start = profile.part(profile.field(2, 8 * u32::from(number), 8));
        // The offsets within a level are the same for all levels (struct feature_offset).
        let [own, base_freq, turbo_freq] = profile.bytes(1, 0).map(|offset| start.part(offset));
        Ok(Level { own, base_freq, turbo_freq })
    }
}

fn refuse<T>() -> Result<T, HostError> {
    Err(HostError::new(
        Op::Isst,
        "registers shown by debugfs, which are read-only (load isst_tpmi to change them)",
        Errno::ROFS,
    ))
}

impl Access for Dump {
    fn is_tpmi(&self) -> bool {
        true
    }

    fn turbo_kinds(&self) -> &'static [&'static str] {
        Tpmi::KINDS
    }

    fn has(&self, place: &DomainAddress) -> bool {
        self.block(place).is_ok()
    }

    fn domains(&self, package: u8) -> Vec<u8> {
        let domains = self.packages.get(usize::from(package)).map_or(0, Vec::len) as u8;
        (0..domains).filter(|&domain| self.has(&DomainAddress { cpu: None, package, domain })).collect()
    }

    fn pm_config(&self, at: &DomainAddress) -> Result<PmConfig, HostError> {
        let power = self.power(at)?;
        let enabled = power.is_some_and(|power| power.field(2, 0, 1) != 0);
        Ok(PmConfig { supported: power.is_some(), enabled })
    }

    fn set_pm_config(&self, _at: &DomainAddress, _enabled: bool) -> Result<(), HostError> {
        refuse()
    }

    fn qos(&self, at: &DomainAddress) -> Result<Qos, HostError> {
        let status = self.power(at)?.map_or(0, |power| power.field(2, 0, 2));
        Ok(Qos { enabled: status & 1 != 0, ordered: status & 2 != 0 })
    }

    fn set_qos(&self, _at: &DomainAddress, _qos: Qos) -> Result<(), HostError> {
        refuse()
    }

    fn levels(&self, at: &DomainAddress) -> Result<Levels, HostError> {
        let profile = self.profile(at)?;
        Ok(Levels {
            version: profile.field(0, 4, 8) as u8,
            // The highest bit of the level mask; `| 1`, because level 0 always exists and 0 has no
            // highest bit.
            highest: (profile.field(0, 12, 8) | 1).ilog2() as u8,
            current: profile.field(4, 0, 3) as u8,
            locked: profile.field(4, 3, 1) != 0,
            // A block exists only if the header's capability has SST-PP, which is what the driver
            // reports here.
            enabled: true,
        })
    }

    fn features(&self, at: &DomainAddress, level: u8) -> Result<Features, HostError> {
        let level = self.level(at, level)?;
        let state = self.profile(at)?.field(4, 8, 8);
        Ok(Features {
            base_freq: level.base_freq.field(0, 12, 1) != 0,
            turbo_freq: level.turbo_freq.field(0, 12, 1) != 0,
            base_freq_on: state & 1 != 0,
            turbo_freq_on: state & 2 != 0,
        })
    }

    fn set_features(
        &self,
        _at: &DomainAddress,
        _base_freq: bool,
        _turbo_freq: bool,
    ) -> Result<(), HostError> {
        refuse()
    }

    fn set_level(&self, _at: &DomainAddress, _level: u8) -> Result<(), HostError> {
        refuse()
    }

    fn level_data(&self, at: &DomainAddress, level: u8) -> Result<LevelData, HostError> {
        let level = self.level(at, level)?.own;
        let base = level.bytes(0, 0);
        // Only revision 2 has a second mesh.
        let has_second = self.profile(at)?.field(0, 4, 8) >= 2;
        Ok(LevelData {
            tdp_ratio: base[0],
            // SST_PP_TDP (eighths of a watt), _T_PROCHOT, _MAX_MEMORY_FREQ and _COOLING_TYPE.
            tdp_w: level.field(1, 32, 15) / 8,
            tjunction_c: level.field(1, 47, 8),
            base: base.map(|ratio| MegaHertz(ratio * 100)),
            uncore: level.ratios(11, 32),
            second_uncore: if has_second { level.ratios(12, 0) } else { [MegaHertz(0); 3] },
            memory: MegaHertz(level.field(1, 55, 7) * 100),
            cooling: level.field(1, 62, 2),
        })
    }

    fn uncore(&self, at: &DomainAddress, level: u8) -> Result<[MegaHertz; 3], HostError> {
        Ok(self.level(at, level)?.own.ratios(11, 32))
    }

    fn level_cores(&self, at: &DomainAddress, level: u8) -> Result<u64, HostError> {
        Ok(self.level(at, level)?.own.register(2))
    }

    fn turbo_limits(&self, at: &DomainAddress, level: u8) -> Result<TurboLimits, HostError> {
        Ok(self.level(at, level)?.own.limits(4))
    }

    fn bucket_cores(&self, at: &DomainAddress, level: u8) -> Result<[u32; 8], HostError> {
        Ok(self.level(at, level)?.own.bytes(10, 0))
    }

    fn base_freq(&self, at: &DomainAddress, level: u8) -> Result<BaseFreq, HostError> {
        let base = self.level(at, level)?.base_freq;
        // SST_BF_P1_HIGH, _P1_LOW, _T_PROHOT and _TDP in isst_tpmi_core.c.
        let [high, low] = base.ratios(0, 13);
        Ok(BaseFreq {
            high,
            low,
            cores: base.register(1),
            tjunction_c: base.field(0, 38, 8),
            tdp_w: base.field(0, 46, 15) / 8,
        })
    }

    fn turbo_freq(&self, at: &DomainAddress, level: u8) -> Result<TurboFreq, HostError> {
        let turbo = self.level(at, level)?.turbo_freq;
        let mut bucket_cores = turbo.bytes(1, 0);
        // Revision 2 counts the modules of buckets 0 to 2; the kernel uses these counts if any is
        // not 0.
        let modules = [0, 16, 32].map(|shift| turbo.field(8, shift, 16));
        if turbo.field(0, 4, 8) >= 2 && modules != [0; 3] {
            bucket_cores[..3].copy_from_slice(&modules);
        }
        // From SST_TF_LP_CLIP_RATIO_0 on, eight bits each.
        Ok(TurboFreq { clip: turbo.ratios(0, 16), bucket_cores, limits: turbo.limits(2) })
    }

    fn clos(&self, at: &DomainAddress, class: u8) -> Result<Clos, HostError> {
        let none = || HostError::new(Op::Read, format!("class of service {class}"), Errno::INVAL);
        let power = self.power(at)?.filter(|_| class < 4).ok_or_else(none)?;
        // SST_CLOS_CONFIG_PRIO, _MIN and _MAX; the first class is at SST_CLOS_CONFIG_0_OFFSET, 24
        // bytes.
        let index = 3 + usize::from(class);
        let [min, max] = power.ratios(index, 8);
        Ok(Clos { min, max, weight: power.field(index, 4, 4) as u8, ..Clos::default() })
    }

    fn set_clos(&self, _at: &DomainAddress, _class: u8, _clos: &Clos) -> Result<(), HostError> {
        refuse()
    }

    fn class_of(&self, at: &DomainAddress, core: u16) -> Result<u8, HostError> {
        let none = || HostError::new(Op::Read, format!("class of core {core}"), Errno::INVAL);
        let power = self.power(at)?.filter(|_| core < 64).ok_or_else(none)?;
        // Four registers of 16 cores, 4 bits each (SST_CLOS_ASSOC_0_OFFSET).
        Ok(power.field(7 + usize::from(core) / 16, 4 * (u32::from(core) % 16), 4) as u8)
    }

    fn associate(&self, _at: &DomainAddress, _core: u16, _class: u8) -> Result<(), HostError> {
        refuse()
    }
}

#[cfg(test)]
mod tests;
