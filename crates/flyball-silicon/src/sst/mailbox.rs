//! The mailbox: commands as the kernel's isst_if drivers pass them on and intel-speed-select sends
//! them. It is reached through MSRs 0xB0 and 0xB1 (Skylake-X) or registers in PCI configuration
//! space (Ice Lake to Emerald Rapids). The interface register has the command (bits 7:0), its
//! sub-command (15:8), a parameter (29:16) and the busy bit (31), which starts it; the other
//! register has data. Commands complete at once: the interface register then has busy clear and the
//! completion code in bits 7:0, 0 for success.

use crate::fault::Fault;
use crate::silicon::Silicon;
use crate::spec::{SstClass, SstLevelSpec};
use crate::sst_state::{ClassOfService, Refusal};

/// The completion code of a failed command; the kernel returns `ENXIO` for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxError(pub u8);

/// The firmware does not have this command.
const ILLEGAL_COMMAND: MailboxError = MailboxError(1);
/// The command's data is out of range, or the command is currently not allowed.
const ILLEGAL_DATA: MailboxError = MailboxError(3);
const BUSY: u64 = 1 << 31;
/// Bit of the parameter that makes core-power commands writes (MBOX_CMD_WRITE_BIT in
/// isst_if_common.h).
const WRITE: u32 = 1 << 8;

/// The mailbox's data register in PCI configuration space (isst_if_mbox_pci.c).
const CONFIG_DATA: u32 = 0xa0;
/// The mailbox's interface register.
const CONFIG_INTERFACE: u32 = 0xa4;

impl From<Refusal> for MailboxError {
    fn from(_: Refusal) -> MailboxError {
        ILLEGAL_DATA
    }
}

impl Silicon {
    pub(crate) fn has_msr_mailbox(&self) -> bool {
        self.spec.sst.as_ref().is_some_and(|s| s.class == SstClass::MailboxMsr)
    }

    /// Handles a write to the interface register, which starts a command if the busy bit is set.
    fn write_interface(&mut self, package: usize, value: u64) {
        let r = &mut self.registers.package[package];
        if r.mailbox_stalled {
            return;
        }
        if value & BUSY == 0 {
            r.mailbox_interface = value & 0xffff_ffff;
            return;
        }
        let data = r.mailbox_data as u32;
        let (command, sub, parameter) = (value as u8, (value >> 8) as u8, (value >> 16) as u32 & 0x3fff);
        let (code, answer) = match self.mailbox(package, command, sub, parameter, data) {
            Ok(answer) => (0, answer),
            Err(MailboxError(code)) => (code, 0),
        };
        let r = &mut self.registers.package[package];
        // The completion code replaces the command's number; the other fields read back as written.
        r.mailbox_interface = value & 0x7fff_ff00 | u64::from(code);
        r.mailbox_data = u64::from(answer);
    }

    fn interface(&self, package: usize) -> u64 {
        let r = &self.registers.package[package];
        r.mailbox_interface | if r.mailbox_stalled { BUSY } else { 0 }
    }

    /// The two registers as MSRs, 0xB0 and 0xB1.
    pub(crate) fn mailbox_msr(&self, package: usize, interface: bool) -> u64 {
        if interface { self.interface(package) } else { self.registers.package[package].mailbox_data }
    }

    pub(crate) fn write_mailbox_msr(&mut self, package: usize, interface: bool, value: u64) {
        if interface {
            self.write_interface(package, value);
        } else {
            self.registers.package[package].mailbox_data = value & 0xffff_ffff;
        }
    }

    fn has_pci_mailbox(&self, package: usize) -> bool {
        self.spec.sst.as_ref().is_some_and(|s| s.class == SstClass::MailboxPci)
            && package < self.registers.package.len()
    }

    /// Reads a register of the mailbox function's configuration space (8086:3459, later parts
    /// 8086:3259; device 30 function 1 on the second of the PUNIT's buses, see MSR 0x128): data at
    /// 0xA0, interface at 0xA4. `None` if the function or the register does not exist.
    pub fn mailbox_config_read(&self, package: usize, offset: u32) -> Option<u32> {
        match offset {
            _ if !self.has_pci_mailbox(package) => None,
            CONFIG_DATA => Some(self.registers.package[package].mailbox_data as u32),
            CONFIG_INTERFACE => Some(self.interface(package) as u32),
            _ => None,
        }
    }

    /// Writes one of the two registers. A write to the interface register with the busy bit runs
    /// the command, whose answer can be read at once. Returns false if the function or the register
    /// does not exist.
    pub fn mailbox_config_write(&mut self, package: usize, offset: u32, value: u32) -> bool {
        match offset {
            _ if !self.has_pci_mailbox(package) => return false,
            CONFIG_DATA => self.registers.package[package].mailbox_data = u64::from(value),
            CONFIG_INTERFACE => self.write_interface(package, u64::from(value)),
            _ => return false,
        }
        true
    }

    /// Makes a package's mailbox busy permanently, like hung firmware, or lets it work again.
    pub fn stall_mailbox(&mut self, package: usize, stalled: bool) {
        if let Some(r) = self.registers.package.get_mut(package) {
            r.mailbox_stalled = stalled;
        }
    }

    /// Locks the performance levels of all packages, or unlocks them, as a BIOS setting does.
    pub fn lock_levels(&mut self, locked: bool) {
        if let Some(sst) = &mut self.sst {
            sst.locked = locked;
            if sst.spec.class == SstClass::Tpmi {
                return;
            }
        }
        for r in &mut self.registers.package {
            r.config_tdp_control = r.config_tdp_control & !(1 << 31) | u64::from(locked) << 31;
        }
    }

    /// Sends a mailbox command to a package's power-control unit.
    ///
    /// # Errors
    /// The completion code, not 0, of a command that is unknown or not allowed.
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
        let write = parameter & WRITE != 0;
        // Reads still work: this firmware rejects changes, but is not hung.
        if sst.refuses && (write || matches!((command, sub), (0x7f, 0x02 | 0x08) | (0x95, 0x03))) {
            return Err(ILLEGAL_DATA);
        }
        let answer = match command {
            0x7f => self.profile_command(package, sub, data),
            0x94 | 0x95 | 0xd0 => self.class_command(package, command, sub, parameter, data),
            _ => Err(ILLEGAL_COMMAND),
        };
        self.settle();
        answer
    }

    /// CONFIG_TDP (0x7F): levels, and base-freq and turbo-freq of the current level.
    fn profile_command(&mut self, package: usize, sub: u8, data: u32) -> Result<u32, MailboxError> {
        let sst = self.sst.as_mut().ok_or(ILLEGAL_COMMAND)?;
        match sub {
            0x00 => {
                let max = sst.levels(package).last().map_or(0, |l| l.number);
                let now = sst.level(package).number;
                Ok(sst.spec.version & 0xff | max << 8 | now << 16 | u32::from(sst.locked) << 24 | 1 << 31)
            }
            0x01 => {
                let now = sst.level(package).number == data & 0xff;
                let dom = &sst.domains[package];
                let level = sst.level_numbered(package, data & 0xff).ok_or(ILLEGAL_DATA)?;
                Ok(u32::from(level.tf.is_some())
                    | u32::from(level.bf.is_some()) << 1
                    | u32::from(now && dom.turbo_freq) << 16
                    | u32::from(now && dom.base_freq) << 17)
            }
            0x02 => {
                let before = sst.domains[package].clone();
                let done = sst
                    .set_base_freq(package, data >> 17 & 1 != 0)
                    .and_then(|()| sst.set_turbo_freq(package, data >> 16 & 1 != 0));
                if done.is_err() {
                    // One command carries both features: if firmware rejects one, it changes
                    // neither.
                    sst.domains[package] = before;
                }
                self.sst_changed(package);
                Ok(done.map(|()| 0)?)
            }
            0x08 => {
                sst.set_level(package, data & 0xff)?;
                self.level_changed(package);
                Ok(0)
            }
            // All other sub-commands concern a level, whose number is in the data.
            0x03..=0x23 => {
                let level = sst.level_numbered(package, data & 0xff).ok_or(ILLEGAL_DATA)?;
                let query = LevelQuery {
                    level,
                    data,
                    cores: sst.domains[package].class_of.len() as u32,
                    bus_khz: self.spec.clock.bus_khz,
                    min_mhz: self.spec.core[0].min_mhz,
                    max_mhz: self.spec.core[0].max_mhz,
                    model: self.spec.identity.model,
                };
                query.answer(sub)
            }
            _ => Err(ILLEGAL_COMMAND),
        }
    }

    /// Core-power: power-management configuration (0x94 reads, 0x95 writes) and classes of service
    /// (0xD0).
    fn class_command(
        &mut self,
        package: usize,
        command: u8,
        sub: u8,
        parameter: u32,
        data: u32,
    ) -> Result<u32, MailboxError> {
        let sst = self.sst.as_mut().ok_or(ILLEGAL_COMMAND)?;
        let write = parameter & WRITE != 0;
        let number = (parameter & 0xff) as usize;
        let dom = &mut sst.domains[package];
        match (command, sub) {
            (0x94, 0x03) => Ok(u32::from(sst.spec.core_power) | u32::from(dom.pm_core_power) << 16),
            (0x95, 0x03) if !sst.spec.core_power => Err(ILLEGAL_DATA),
            (0x95, 0x03) => {
                dom.pm_core_power = data >> 16 & 1 != 0;
                Ok(0)
            }
            (0xd0, 0x00) => {
                let class = dom.class_of.get_mut(number).ok_or(ILLEGAL_DATA)?;
                if !write {
                    return Ok(u32::from(*class) << 16);
                }
                *class = (data >> 16 & 3) as u8;
                self.sst_changed(package);
                Ok(0)
            }
            (0xd0, 0x01) => {
                let class = dom.classes.get_mut(number).ok_or(ILLEGAL_DATA)?;
                if !write {
                    return Ok(class.word());
                }
                *class = ClassOfService::from_word(data);
                self.sst_changed(package);
                Ok(0)
            }
            (0xd0, 0x02) => {
                if !write {
                    return Ok(u32::from(dom.core_power) << 1 | u32::from(dom.ordered) << 2);
                }
                sst.set_core_power(package, data >> 1 & 1 != 0, data >> 2 & 1 != 0)?;
                self.sst_changed(package);
                Ok(0)
            }
            (0xd0, 0x03) => Ok(0),
            _ => Err(ILLEGAL_COMMAND),
        }
    }

    /// Called when Speed Select settings of a package have changed.
    pub(crate) fn sst_changed(&mut self, package: usize) {
        self.package[package].stale = true;
        self.touch();
    }

    /// Called when the level has changed: updates turbo ratios, design power and capabilities.
    pub(crate) fn level_changed(&mut self, package: usize) {
        let Some(sst) = &self.sst else { return };
        let level = sst.level(package * sst.per_package());
        let ratio = |mhz: u32| u64::from((mhz * 1000 / self.spec.clock.bus_khz).min(255));
        let word = |list: &mut dyn Iterator<Item = u64>| {
            list.take(8).enumerate().fold(0u64, |v, (i, x)| v | x << (8 * i))
        };
        let r = &mut self.registers.package[package];
        // 0x1AD and 0x1AE change with the level, so values that software cached become wrong.
        if let Some(list) = level.trl_mhz.first() {
            r.turbo_ratios = word(&mut list.iter().map(|&m| ratio(m)));
            r.turbo_counts = word(&mut level.bucket_cores.iter().map(|&n| u64::from(n)));
        }
        let watts = f64::from(level.tdp_w);
        let control = &mut self.package[package].control.limits[0];
        if watts > 0.0 && r.power_limit >> 63 == 0 {
            // PL1 follows the level's design power, unless firmware has locked the limits.
            let raw = (watts * f64::from(1u32 << self.spec.power.power_unit)) as u64 & 0x7fff;
            r.power_limit = r.power_limit & !0x7fff | raw;
            control.watts = watts;
        }
        // The guaranteed level changed: set HWP_STATUS bit 0 on every CPU of the package.
        for c in self.topology.package_cores(package) {
            for cpu in self.topology.core(c).cpus {
                self.registers.cpu[cpu].hwp_status |= 1;
            }
        }
        self.sst_changed(package);
    }

    /// The PUNIT's MSR-like identity of a CPU, for GET_PHY_ID.
    pub fn punit_cpu(&self, cpu: usize) -> Result<u64, Fault> {
        self.read_msr(cpu, crate::msr::PM_LOGICAL_ID)
            .or_else(|_| self.read_msr(cpu, crate::msr::THREAD_ID_INFO))
    }
}

/// The code of a memory frequency: on Ice Lake it counts down from 12 in steps of 266.66 MHz, and 7
/// means none; later parts use steps of 200 MHz.
fn memory_code(mhz: u32, model: u32) -> u32 {
    match model {
        0x6a | 0x6c if mhz == 0 => 7,
        0x6a | 0x6c => 12u32.saturating_sub((mhz * 3 + 400) / 800),
        _ => mhz / 200,
    }
}

/// A CONFIG_TDP query about one level, with the state that its answers depend on.
struct LevelQuery<'a> {
    level: &'a SstLevelSpec,
    data: u32,
    /// Cores of the package, as the mailbox numbers them.
    cores: u32,
    bus_khz: u32,
    min_mhz: u32,
    max_mhz: u32,
    model: u32,
}

impl LevelQuery<'_> {
    fn answer(&self, sub: u8) -> Result<u32, MailboxError> {
        let &LevelQuery { level: l, data, cores, bus_khz, min_mhz, max_mhz, model } = self;
        let ratio = |mhz: u32| (mhz * 1000 / bus_khz).min(255);
        let index = data >> 8 & 0xff;
        let kind = (data >> 16 & 0xff) as usize;
        let bytes = |list: &[u32], scale: &dyn Fn(u32) -> u32| {
            list.iter()
                .skip(4 * index as usize)
                .take(4)
                .enumerate()
                .fold(0, |v, (i, &x)| v | scale(x) << (8 * i))
        };
        let mask =
            |list: &[u32]| list.iter().filter(|&&c| c / 32 == index).fold(0u32, |m, &c| m | 1 << (c % 32));
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
            0x0b => memory_code(l.memory_mhz, model),
            0x0c if data >> 16 & 1 != 0 => {
                ratio(l.uncore_mhz[0]) | ratio(l.uncore_mhz[1]) << 8 | ratio(l.uncore_mhz[2]) << 24
            }
            0x0c => ratio(max_mhz) | ratio(l.base_mhz) << 8 | ratio(min_mhz) << 24,
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
}

#[cfg(test)]
mod tests {
    use super::{CONFIG_DATA, CONFIG_INTERFACE};
    use crate::{MachineSpec, Silicon, spec::SstClass};

    fn chip(class: SstClass) -> Silicon {
        let mut spec = MachineSpec::builtin("sst-guide").unwrap();
        spec.sst.as_mut().unwrap().class = class;
        Silicon::new(spec, 0).unwrap()
    }

    /// Runs a command through configuration space. Returns completion code and answer.
    fn by_pci(s: &mut Silicon, command: u32, data: u32) -> (u32, u32) {
        assert!(s.mailbox_config_write(1, CONFIG_DATA, data));
        assert!(s.mailbox_config_write(1, CONFIG_INTERFACE, command | 1 << 31));
        let status = s.mailbox_config_read(1, CONFIG_INTERFACE).unwrap();
        assert_eq!(status >> 31, 0, "done");
        (status & 0xff, s.mailbox_config_read(1, CONFIG_DATA).unwrap())
    }

    /// Runs a command through the MSRs of a CPU of package 1.
    fn by_msr(s: &mut Silicon, command: u32, data: u32) -> (u32, u32) {
        s.write_msr(14, 0xb1, data.into()).unwrap();
        s.write_msr(14, 0xb0, u64::from(command) | 1 << 31).unwrap();
        let status = s.read_msr(14, 0xb0).unwrap() as u32;
        (status & 0xff, s.read_msr(14, 0xb1).unwrap() as u32)
    }

    #[test]
    fn both_interfaces_reach_the_same_mailbox() {
        let (mut pci, mut msr) = (chip(SstClass::MailboxPci), chip(SstClass::MailboxMsr));
        // Levels; features of level 0; a missing level; an unknown command; turbo-freq without
        // classes; classes on; turbo-freq; classes off under turbo-freq; level 4, which disables
        // turbo-freq; current state.
        let steps: [(u32, u32, Option<u32>); 10] = [
            (0x7f, 0, Some(0x8000_0401)),
            (0x017f, 0, Some(3)),
            (0x037f, 2, None),
            (0x10, 0, None),
            (0x027f, 1 << 16, None),
            (0x0100_02d0, 6, Some(0)),
            (0x027f, 1 << 16, Some(0)),
            (0x0100_02d0, 4, None),
            (0x087f, 4, Some(0)),
            (0x017f, 4, Some(1)),
        ];
        for (command, data, answer) in steps {
            let (a, b) = (by_pci(&mut pci, command, data), by_msr(&mut msr, command, data));
            assert_eq!(a, b, "{command:#x}");
            assert_eq!(answer, (a.0 == 0).then_some(a.1), "{command:#x}");
        }
        // Package 1's cores have changed, package 0's have not.
        for s in [&pci, &msr] {
            assert_eq!((s.guaranteed(0).mhz(), s.guaranteed(14).mhz()), (2600, 2800));
        }
        assert!(pci.read_msr(0, 0xb0).is_err() && msr.mailbox_config_read(0, CONFIG_DATA).is_none());
    }

    #[test]
    fn a_stalled_mailbox_is_busy_and_does_nothing() {
        let mut s = chip(SstClass::MailboxPci);
        s.stall_mailbox(0, true);
        s.mailbox_config_write(0, CONFIG_DATA, 4);
        s.mailbox_config_write(0, CONFIG_INTERFACE, 0x087f | 1 << 31);
        assert_eq!(s.mailbox_config_read(0, CONFIG_INTERFACE).unwrap() >> 31, 1);
        s.stall_mailbox(0, false);
        assert_eq!(s.mailbox_config_read(0, CONFIG_INTERFACE), Some(0));
        assert_eq!(s.guaranteed(0).mhz(), 2600);
    }

    #[test]
    fn firmware_that_refuses_changes_still_answers() {
        let mut s = chip(SstClass::MailboxPci);
        assert_eq!(by_pci(&mut s, 0x0100_02d0, 6).0, 0);
        s.refuse_changes(true);
        for (command, data) in [(0x087f, 4), (0x027f, 1 << 17), (0x0100_02d0, 0), (0x0101_01d0, 0x0010_0000)]
        {
            assert_ne!(by_pci(&mut s, command, data).0, 0, "{command:#x}");
        }
        assert!(s.mmio_write(1, 0x0c, 0x00ff_1a50));
        assert_eq!(s.mmio_read(1, 0x0c), Some(0x00ff_0000));
        assert_eq!(by_pci(&mut s, 0x02d0, 0), (0, 6));
        assert_eq!(by_pci(&mut s, 0x7f, 0), (0, 0x8000_0401));
        s.refuse_changes(false);
        assert_eq!(by_pci(&mut s, 0x087f, 4).0, 0);
    }

    #[test]
    fn locked_levels_show_and_stay() {
        let mut s = chip(SstClass::MailboxPci);
        s.lock_levels(true);
        assert_eq!(by_pci(&mut s, 0x7f, 0).1 >> 24 & 1, 1);
        assert_ne!(by_pci(&mut s, 0x087f, 4).0, 0);
        assert_eq!(s.read_msr(14, crate::msr::CONFIG_TDP_CONTROL).unwrap() >> 31, 1);
    }
}
