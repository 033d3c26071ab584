//! API 1: mailbox commands, and MMIO registers for the classes of service.
//!
//! Command numbers and fields: isst_if_mbox_pci.c's list, and what the firmware answers on the machines of the lab.

use std::time::Duration;

use flyball_host::{Errno, Host, HostError, MegaHertz, Op, isst::legacy};

use super::{
    Access, BaseFreq, Clos, CpuModel, Features, LevelData, Levels, Place, PmConfig, Qos, TurboFreq,
    TurboLimits,
};

const CONFIG_TDP: u16 = 0x7f;
const CONFIG_CLOS: u16 = 0xd0;
const READ_PM_CONFIG: u16 = 0x94;
const WRITE_PM_CONFIG: u16 = 0x95;
const PM_FEATURE: u16 = 0x03;

/// Says "write" in the parameter of a class-of-service command.
const WRITE: u32 = 1 << 8;

/// Class definitions and core associations in MMIO space.
const MMIO_CLOS: u32 = 0x08;
const MMIO_ASSOC: u32 = 0x20;

/// How the memory frequency is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryCode {
    /// Sapphire and Emerald Rapids: 200 MHz steps.
    Steps,
    /// Ice Lake: 12 minus the code, times 266.66 MHz.
    Countdown,
    /// Not given.
    None,
}

/// The mailbox interface of a machine.
pub struct Mailbox<'h> {
    host: &'h dyn Host,
    /// Tries of a command before its error counts.
    pub tries: u32,
    /// Wait before each command.
    pub pause: Duration,
    classes_in_mailbox: bool,
    memory: MemoryCode,
    kinds: &'static [&'static str],
}

impl<'h> Mailbox<'h> {
    /// The interface of a CPU model.
    pub fn new(host: &'h dyn Host, model: &CpuModel) -> Mailbox<'h> {
        Mailbox {
            host,
            tries: 3,
            pause: Duration::ZERO,
            classes_in_mailbox: model.is_skylake_based(),
            memory: match model.model {
                0x8f | 0xcf => MemoryCode::Steps,
                0x6a | 0x6c => MemoryCode::Countdown,
                _ => MemoryCode::None,
            },
            kinds: if model.model == 0xcf {
                &["level-0", "level-1", "level-2", "level-3", "level-4"]
            } else {
                &["sse", "avx2", "avx512"]
            },
        }
    }

    fn cpu(at: &Place) -> Result<u32, HostError> {
        at.cpu.ok_or_else(|| {
            let what =
                format!("a mailbox of package {} power domain {}, which has no CPU", at.package, at.domain);
            HostError::new(Op::Isst, what, Errno::NODEV)
        })
    }

    fn send(
        &self,
        at: &Place,
        command: u16,
        sub_command: u16,
        parameter: u32,
        data: u32,
    ) -> Result<u32, HostError> {
        let request = legacy::Mailbox { cpu: Mailbox::cpu(at)?, command, sub_command, parameter, data };
        if !self.pause.is_zero() {
            self.host.sleep(self.pause);
        }
        let mut left = self.tries.max(1);
        loop {
            left -= 1;
            match request.send(self.host) {
                // A missing driver or node does not come back by asking again.
                Err(error)
                    if left > 0 && !matches!(error.errno, Errno::NOTTY | Errno::INVAL | Errno::PERM) => {}
                answer => return answer,
            }
        }
    }

    fn tdp(&self, at: &Place, sub_command: u16, data: u32) -> Result<u32, HostError> {
        self.send(at, CONFIG_TDP, sub_command, 0, data)
    }

    fn class_register(&self, at: &Place, sub: u16, index: u32, write: Option<u32>) -> Result<u32, HostError> {
        if self.classes_in_mailbox {
            let flag = if write.is_some() { WRITE } else { 0 };
            return self.send(at, CONFIG_CLOS, sub, flag | index, write.unwrap_or(0));
        }
        let register = if sub == 0 { MMIO_ASSOC } else { MMIO_CLOS } + 4 * index;
        let cpu = Mailbox::cpu(at)?;
        match write {
            Some(value) => legacy::write_mmio(self.host, cpu, register, value).map(|()| value),
            None => legacy::read_mmio(self.host, cpu, register),
        }
    }
}

/// Byte `index` of a response.
fn byte(word: u32, index: u32) -> u32 {
    word >> (8 * index) & 0xff
}

fn ratio(word: u32, index: u32) -> MegaHertz {
    MegaHertz(byte(word, index) * 100)
}

impl Access for Mailbox<'_> {
    fn is_tpmi(&self) -> bool {
        false
    }

    fn turbo_kinds(&self) -> &'static [&'static str] {
        self.kinds
    }

    fn has(&self, place: &Place) -> bool {
        place.cpu.is_some() && place.domain == 0
    }

    fn domains(&self, _package: u8) -> Vec<u8> {
        vec![0]
    }

    fn pm_config(&self, at: &Place) -> Result<PmConfig, HostError> {
        let answer = self.send(at, READ_PM_CONFIG, PM_FEATURE, 0, 0)?;
        Ok(PmConfig { supported: answer & 1 != 0, enabled: answer >> 16 & 1 != 0 })
    }

    fn set_pm_config(&self, at: &Place, enabled: bool) -> Result<(), HostError> {
        self.send(at, WRITE_PM_CONFIG, PM_FEATURE, 0, u32::from(enabled) << 16).map(|_| ())
    }

    fn qos(&self, at: &Place) -> Result<Qos, HostError> {
        let answer = self.send(at, CONFIG_CLOS, 2, 0, 0)?;
        Ok(Qos { enabled: answer & 2 != 0, ordered: answer & 4 != 0 })
    }

    fn set_qos(&self, at: &Place, qos: Qos) -> Result<(), HostError> {
        let before = self.send(at, CONFIG_CLOS, 2, 0, 0)?;
        let wanted = before & !6 | u32::from(qos.enabled) << 1 | u32::from(qos.ordered) << 2;
        self.send(at, CONFIG_CLOS, 2, WRITE, wanted).map(|_| ())
    }

    fn levels(&self, at: &Place) -> Result<Levels, HostError> {
        let answer = self.tdp(at, 0x00, 0)?;
        Ok(Levels {
            version: byte(answer, 0) as u8,
            highest: byte(answer, 1) as u8,
            current: byte(answer, 2) as u8,
            locked: answer >> 24 & 1 != 0,
            enabled: answer >> 31 != 0,
        })
    }

    fn features(&self, at: &Place, level: u8) -> Result<Features, HostError> {
        let answer = self.tdp(at, 0x01, level.into())?;
        Ok(Features {
            turbo_freq: answer & 1 != 0,
            base_freq: answer & 2 != 0,
            turbo_freq_on: answer >> 16 & 1 != 0,
            base_freq_on: answer >> 17 & 1 != 0,
        })
    }

    fn set_features(&self, at: &Place, base_freq: bool, turbo_freq: bool) -> Result<(), HostError> {
        self.tdp(at, 0x02, u32::from(turbo_freq) << 16 | u32::from(base_freq) << 17).map(|_| ())
    }

    fn set_level(&self, at: &Place, level: u8) -> Result<(), HostError> {
        self.tdp(at, 0x08, level.into()).map(|_| ())
    }

    fn level_data(&self, at: &Place, level: u8) -> Result<LevelData, HostError> {
        let request = u32::from(level);
        let tdp = self.tdp(at, 0x03, request)?;
        let tjunction = self.tdp(at, 0x05, request)?;
        let mut data = LevelData {
            tdp_ratio: byte(tdp, 2),
            tdp_w: tdp & 0x7fff,
            tjunction_c: byte(tjunction, 0),
            uncore: self.uncore(at, level)?,
            ..LevelData::default()
        };
        // What older firmware does not answer is not given.
        if let Ok(base) = self.tdp(at, 0x0a, request) {
            data.base = [0, 1, 2, 3].map(|index| ratio(base, index));
        }
        if let Ok(answer) = self.tdp(at, 0x0b, request) {
            data.memory = MegaHertz(memory_speed(self.memory, byte(answer, 0)));
        }
        Ok(data)
    }

    fn uncore(&self, at: &Place, level: u8) -> Result<[MegaHertz; 3], HostError> {
        let missing =
            |error: &HostError| error.errno == Errno::NOTTY || error.path == flyball_host::isst::NODE;
        match self.tdp(at, 0x0c, 1 << 16 | u32::from(level)) {
            Ok(answer) => return Ok([ratio(answer, 0), ratio(answer, 1), ratio(answer, 3)]),
            Err(error) if missing(&error) => return Err(error),
            Err(_) => {}
        }
        match self.tdp(at, 0x09, level.into()) {
            Ok(answer) => Ok([ratio(answer, 0), ratio(answer, 1), MegaHertz(0)]),
            Err(error) if missing(&error) => Err(error),
            Err(_) => Ok([MegaHertz(0); 3]),
        }
    }

    fn level_cores(&self, at: &Place, level: u8) -> Result<u64, HostError> {
        let low = self.tdp(at, 0x06, level.into())?;
        let high = self.tdp(at, 0x06, 1 << 8 | u32::from(level))?;
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    fn turbo_limits(&self, at: &Place, level: u8) -> Result<TurboLimits, HostError> {
        let mut limits = TurboLimits::default();
        for (kind, row) in limits.iter_mut().enumerate().take(self.kinds.len()) {
            for half in 0..2 {
                let answer = self.tdp(at, 0x07, u32::from(level) | half << 8 | (kind as u32) << 16)?;
                for index in 0..4 {
                    row[(4 * half + index) as usize] = ratio(answer, index);
                }
            }
        }
        Ok(limits)
    }

    fn bucket_cores(&self, at: &Place, _level: u8) -> Result<[u32; 8], HostError> {
        let counts =
            legacy::read_msr(self.host, Mailbox::cpu(at)?, flyball_host::msr::MSR_TURBO_RATIO_LIMIT1)?;
        Ok(counts.to_le_bytes().map(u32::from))
    }

    fn base_freq(&self, at: &Place, level: u8) -> Result<BaseFreq, HostError> {
        let request = u32::from(level);
        let low = self.tdp(at, 0x20, request).unwrap_or(0);
        let high = self.tdp(at, 0x20, 1 << 8 | request).unwrap_or(0);
        let ratios = self.tdp(at, 0x21, request)?;
        let tdp = self.tdp(at, 0x23, request)?;
        let tjunction = self.tdp(at, 0x22, request)?;
        Ok(BaseFreq {
            high: ratio(ratios, 1),
            low: ratio(ratios, 0),
            cores: u64::from(low) | u64::from(high) << 32,
            tjunction_c: byte(tjunction, 0),
            tdp_w: tdp & 0xffff,
        })
    }

    fn turbo_freq(&self, at: &Place, level: u8) -> Result<TurboFreq, HostError> {
        let request = u32::from(level);
        let mut turbo = TurboFreq::default();
        let clip = self.tdp(at, 0x12, request)?;
        for index in 0..3 {
            turbo.clip[index as usize] = ratio(clip, index);
        }
        for half in 0..2u32 {
            let counts = self.tdp(at, 0x10, half << 8 | request)?;
            for index in 0..4 {
                turbo.bucket_cores[(4 * half + index) as usize] = byte(counts, index);
            }
        }
        for (kind, row) in turbo.limits.iter_mut().enumerate().take(self.kinds.len()) {
            for half in 0..2u32 {
                let ratios = self.tdp(at, 0x11, (kind as u32) << 16 | half << 8 | request)?;
                for index in 0..4 {
                    row[(4 * half + index) as usize] = ratio(ratios, index);
                }
            }
        }
        Ok(turbo)
    }

    fn clos(&self, at: &Place, class: u8) -> Result<Clos, HostError> {
        let word = self.class_register(at, 1, u32::from(class & 3), None)?;
        Ok(Clos {
            epp: (word & 0xf) as u8,
            weight: (word >> 4 & 0xf) as u8,
            min: ratio(word, 1),
            max: ratio(word, 2),
            desired: ratio(word, 3),
        })
    }

    fn set_clos(&self, at: &Place, class: u8, clos: &Clos) -> Result<(), HostError> {
        let fits = |frequency: MegaHertz| frequency.0 / 100 <= 0xff;
        if class > 3 || clos.epp > 15 || clos.weight > 15 || !fits(clos.min) || !fits(clos.max) {
            let what = format!("class of service {class} as {clos:?}");
            return Err(HostError::new(Op::Isst, what, Errno::INVAL));
        }
        let word = u32::from(clos.epp)
            | u32::from(clos.weight) << 4
            | (clos.min.0 / 100) << 8
            | (clos.max.0 / 100) << 16
            | (clos.desired.0 / 100).min(0xff) << 24;
        self.class_register(at, 1, class.into(), Some(word)).map(|_| ())
    }

    fn class_of(&self, at: &Place, core: u16) -> Result<u8, HostError> {
        let word = self.class_register(at, 0, u32::from(core & 0xff), None)?;
        Ok((word >> 16 & 3) as u8)
    }

    fn associate(&self, at: &Place, core: u16, class: u8) -> Result<(), HostError> {
        if class > 3 || core > 0xff {
            let what = format!("core {core} into class {class}");
            return Err(HostError::new(Op::Isst, what, Errno::INVAL));
        }
        self.class_register(at, 0, core.into(), Some(u32::from(class) << 16)).map(|_| ())
    }
}

fn memory_speed(coding: MemoryCode, code: u32) -> u32 {
    match coding {
        MemoryCode::Steps => code * 200,
        MemoryCode::Countdown if code < 7 => {
            // In tenths of MHz, cut; then up by one where the last digit is above 5 (3199 is 3200).
            let tenths = (f64::from(12 - code) * 133.33 * 2.0 * 10.0) as u32;
            let whole = tenths / 10;
            if whole % 10 > 5 { whole + 1 } else { whole }
        }
        MemoryCode::Countdown | MemoryCode::None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_speeds_are_those_of_the_dimms() {
        let ice_lake: Vec<u32> = (0..8).map(|code| memory_speed(MemoryCode::Countdown, code)).collect();
        assert_eq!(ice_lake, [3200, 2933, 2667, 2400, 2133, 1867, 1600, 0]);
        assert_eq!(memory_speed(MemoryCode::Steps, 24), 4800);
        assert_eq!(memory_speed(MemoryCode::None, 24), 0);
    }
}
