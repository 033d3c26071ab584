//! The mailbox: commands as the kernel's isst_if drivers pass them on and intel-speed-select sends them. It is reached
//! through MSRs 0xB0 and 0xB1 (Skylake-X) or registers in PCI configuration space (Ice Lake to Emerald Rapids).

use crate::fault::Fault;
use crate::silicon::Silicon;
use crate::spec::{SstClass, SstLevelSpec};
use crate::sst::ClassOfService;

/// The completion code of a command that failed; the kernel makes ENXIO of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxError(pub u8);

/// The firmware knows no such command.
const ILLEGAL_COMMAND: MailboxError = MailboxError(1);
/// The command's data is out of range, or it cannot be done now.
const ILLEGAL_DATA: MailboxError = MailboxError(3);
const BUSY: u64 = 1 << 31;

impl Silicon {
    pub(crate) fn has_msr_mailbox(&self) -> bool {
        self.spec.sst.as_ref().is_some_and(|s| s.class == SstClass::MailboxMsr)
    }

    /// A write to the interface register 0xB0: with the busy bit set it is a command, done at once, and what reads back
    /// has busy clear and the completion code in bits 7:0.
    pub(crate) fn mailbox_by_msr(&mut self, cpu: usize, value: u64) {
        let package = self.topology.package_of(cpu);
        if value & BUSY == 0 {
            self.registers.package[package].mailbox_interface = value & 0xffff_ffff;
            return;
        }
        let data = self.registers.package[package].mailbox_data as u32;
        let (command, sub, parameter) = (value as u8, (value >> 8) as u8, (value >> 16) as u32 & 0x3fff);
        let (code, answer) = match self.mailbox(package, command, sub, parameter, data) {
            Ok(answer) => (0, answer),
            Err(MailboxError(code)) => (code, 0),
        };
        let r = &mut self.registers.package[package];
        r.mailbox_interface = value & 0x7fff_ff00 | u64::from(code);
        r.mailbox_data = u64::from(answer);
    }

    /// One mailbox command to a package's power-control unit.
    ///
    /// # Errors
    /// The completion code, not 0, of a command that is not known or cannot be done.
    pub fn mailbox(
        &mut self,
        package: usize,
        command: u8,
        sub: u8,
        parameter: u32,
        data: u32,
    ) -> Result<u32, MailboxError> {
        let Some(sst) = &mut self.sst else { return Err(ILLEGAL_COMMAND) };
        if sst.spec.class == SstClass::Tpmi || package >= sst.domains.len() {
            return Err(ILLEGAL_COMMAND);
        }
        let write = parameter & 0x100 != 0;
        let dom = &mut sst.domains[package];
        let answer = match (command, sub) {
            (0x7f, 0x00) => {
                let max = sst.spec.level.last().map_or(0, |l| l.number);
                let now = sst.level(package).number;
                Ok(sst.spec.version & 0xff
                    | max << 8
                    | now << 16
                    | u32::from(sst.spec.locked) << 24
                    | 1 << 31)
            }
            (0x7f, 0x01) => {
                let now = sst.level(package).number == data & 0xff;
                let dom = &sst.domains[package];
                let level = sst.level_numbered(data & 0xff).ok_or(ILLEGAL_DATA)?;
                Ok(u32::from(level.tf.is_some())
                    | u32::from(level.bf.is_some()) << 1
                    | u32::from(now && dom.turbo_freq) << 16
                    | u32::from(now && dom.base_freq) << 17)
            }
            (0x7f, 0x02) => {
                let done = sst.set_features(package, data >> 17 & 1 != 0, data >> 16 & 1 != 0);
                self.sst_changed(package);
                if done { Ok(0) } else { Err(ILLEGAL_DATA) }
            }
            (0x7f, 0x08) => {
                let done = sst.set_level(package, data & 0xff);
                self.level_changed(package);
                if done { Ok(0) } else { Err(ILLEGAL_DATA) }
            }
            (0x7f, 0x03..=0x23) => {
                let all = sst.domains[package].class_of.len() as u32;
                let bus = self.spec.clock.bus_khz;
                let max = self.spec.core[0].max_mhz;
                let min = self.spec.core[0].min_mhz;
                let level = sst.level_numbered(data & 0xff).ok_or(ILLEGAL_DATA)?;
                level_query(level, sub, data, all, bus, (min, max))
            }
            (0x94, 0x03) => Ok(u32::from(sst.spec.core_power) | u32::from(dom.pm_core_power) << 16),
            (0x95, 0x03) => {
                dom.pm_core_power = data >> 16 & 1 != 0;
                Ok(0)
            }
            (0xd0, 0x00) => {
                let core = (parameter & 0xff) as usize;
                let class = dom.class_of.get_mut(core).ok_or(ILLEGAL_DATA)?;
                if write {
                    *class = (data >> 16 & 3) as u8;
                    self.sst_changed(package);
                    Ok(0)
                } else {
                    Ok(u32::from(*class) << 16)
                }
            }
            (0xd0, 0x01) => {
                let class = dom.classes.get_mut((parameter & 0xff) as usize).ok_or(ILLEGAL_DATA)?;
                if write {
                    *class = ClassOfService::from_word(data);
                    self.sst_changed(package);
                    Ok(0)
                } else {
                    Ok(class.word())
                }
            }
            (0xd0, 0x02) => {
                if write {
                    dom.core_power = data >> 1 & 1 != 0;
                    dom.ordered = data >> 2 & 1 != 0;
                    self.sst_changed(package);
                    Ok(0)
                } else {
                    Ok(u32::from(dom.core_power) << 1 | u32::from(dom.ordered) << 2)
                }
            }
            (0xd0, 0x03) => Ok(0),
            _ => Err(ILLEGAL_COMMAND),
        };
        self.settle();
        answer
    }

    /// Something of Speed Select changed in a package.
    pub(crate) fn sst_changed(&mut self, package: usize) {
        self.package[package].stale = true;
        self.stale = true;
    }

    /// The level changed: turbo ratios, design power and capabilities follow it.
    pub(crate) fn level_changed(&mut self, package: usize) {
        let Some(sst) = &self.sst else { return };
        let level = sst.level(package * sst.per_package());
        let ratio = |mhz: u32| u64::from((mhz * 1000 / self.spec.clock.bus_khz).min(255));
        let word = |list: &mut dyn Iterator<Item = u64>| {
            list.take(8).enumerate().fold(0u64, |v, (i, x)| v | x << (8 * i))
        };
        let r = &mut self.registers.package[package];
        if let Some(list) = level.trl_mhz.first() {
            r.turbo_ratios = word(&mut list.iter().map(|&m| ratio(m)));
            r.turbo_counts = word(&mut level.bucket_cores.iter().map(|&n| u64::from(n)));
        }
        let watts = f64::from(level.tdp_w);
        let control = &mut self.package[package].control.limits[0];
        if watts > 0.0 && r.power_limit >> 63 == 0 {
            let raw = (watts * f64::from(1u32 << self.spec.power.power_unit)) as u64 & 0x7fff;
            r.power_limit = r.power_limit & !0x7fff | raw;
            control.watts = watts;
        }
        // The guaranteed level changed: HWP_STATUS bit 0 on every CPU of the package.
        for c in self.topology.package_cores(package) {
            for cpu in self.topology.core(c).cpus {
                self.registers.cpu[cpu].hwp_status |= 1;
            }
        }
        self.sst_changed(package);
    }

    /// The PUNIT's MSR-like identity of a CPU, for GET_PHY_ID.
    ///
    /// # Errors
    /// As [`Silicon::read_msr`].
    pub fn punit_cpu(&self, cpu: usize) -> Result<u64, Fault> {
        self.read_msr(cpu, crate::msr::PM_LOGICAL_ID)
            .or_else(|_| self.read_msr(cpu, crate::msr::THREAD_ID_INFO))
    }
}

impl ClassOfService {
    /// The word of the mailbox and of the memory-mapped register: 3:0 preference, 7:4 weight, 15:8 min, 23:16 max,
    /// 31:24 desired.
    pub fn word(self) -> u32 {
        u32::from(self.epp & 15)
            | u32::from(self.weight & 15) << 4
            | u32::from(self.min) << 8
            | u32::from(self.max) << 16
            | u32::from(self.desired) << 24
    }

    /// See [`word`](Self::word).
    pub fn from_word(w: u32) -> ClassOfService {
        ClassOfService {
            epp: w as u8 & 15,
            weight: (w >> 4) as u8 & 15,
            min: (w >> 8) as u8,
            max: (w >> 16) as u8,
            desired: (w >> 24) as u8,
        }
    }
}

/// The 7F queries about one level.
fn level_query(
    l: &SstLevelSpec,
    sub: u8,
    data: u32,
    cores: u32,
    bus_khz: u32,
    range: (u32, u32),
) -> Result<u32, MailboxError> {
    let ratio = |mhz: u32| (mhz * 1000 / bus_khz).min(255);
    let index = data >> 8 & 0xff;
    let kind = (data >> 16 & 0xff) as usize;
    let bytes = |list: &[u32], scale: &dyn Fn(u32) -> u32| {
        list.iter().skip(4 * index as usize).take(4).enumerate().fold(0, |v, (i, &x)| v | scale(x) << (8 * i))
    };
    let mask = |list: &[u32]| list.iter().filter(|&&c| c / 32 == index).fold(0u32, |m, &c| m | 1 << (c % 32));
    let everyone: Vec<u32> = (0..cores).collect();
    Ok(match sub {
        0x03 => l.tdp_w & 0x7fff | ratio(l.base_mhz) << 16,
        0x04 => l.tdp_w & 0x7fff | ((l.tdp_w / 2) & 0x7fff) << 16,
        0x05 => l.tjmax_c & 0xff,
        0x06 => mask(if l.cores.is_empty() { &everyone } else { &l.cores }),
        0x07 => bytes(l.trl_mhz.get(kind).ok_or(ILLEGAL_DATA)?, &ratio),
        0x09 => ratio(l.uncore_mhz[0]) | ratio(l.uncore_mhz[1]) << 8,
        0x0a => {
            ratio(l.base_mhz)
                | ratio(l.base_avx2_mhz) << 8
                | ratio(l.base_avx512_mhz) << 16
                | ratio(l.base_amx_mhz) << 24
        }
        0x0b => l.memory_mhz / 200,
        0x0c if data >> 16 & 1 != 0 => {
            ratio(l.uncore_mhz[0]) | ratio(l.uncore_mhz[1]) << 8 | ratio(l.uncore_mhz[2]) << 24
        }
        0x0c => ratio(range.1) | ratio(l.base_mhz) << 8 | ratio(range.0) << 24,
        0x10..=0x12 => {
            let tf = l.tf.as_ref().ok_or(ILLEGAL_DATA)?;
            match sub {
                0x10 => bytes(&tf.bucket_cores, &|n| n & 0xff),
                0x11 => bytes(tf.high_mhz.get(kind).ok_or(ILLEGAL_DATA)?, &ratio),
                _ => tf.clip_mhz.iter().take(3).enumerate().fold(0, |v, (i, &m)| v | ratio(m) << (8 * i)),
            }
        }
        0x20..=0x23 => {
            let bf = l.bf.as_ref().ok_or(ILLEGAL_DATA)?;
            match sub {
                0x20 => mask(&bf.cores),
                0x21 => ratio(bf.low_mhz) | ratio(bf.high_mhz) << 8,
                0x22 => bf.tjmax_c & 0xff | (bf.tjmax_c.saturating_sub(10) & 0xff) << 8,
                _ => bf.tdp_w & 0xffff,
            }
        }
        _ => return Err(ILLEGAL_COMMAND),
    })
}
