//! API 1: mailbox commands, and MMIO registers for the classes of service.
//!
//! The fields of answers follow isst-core-mbox.c and isst-core.c in
//! tools/power/x86/intel-speed-select.

use std::time::Duration;

use flyball_host::{
    Errno, Host, HostError, MegaHertz, Op,
    isst::{self, legacy},
};

use super::{
    commands::{
        CLOS_PM_CLOS, CLOS_PM_QOS_CONFIG, CLOS_PQR_ASSOC, CONFIG_CLOS, CONFIG_TDP, CONFIG_TDP_GET_CORE_MASK,
        CONFIG_TDP_GET_FACT_HP_TURBO_LIMIT_NUMCORES, CONFIG_TDP_GET_FACT_HP_TURBO_LIMIT_RATIOS,
        CONFIG_TDP_GET_FACT_LP_CLIPPING_RATIO, CONFIG_TDP_GET_LEVELS_INFO, CONFIG_TDP_GET_MEM_FREQ,
        CONFIG_TDP_GET_P1_INFO, CONFIG_TDP_GET_RATIO_INFO, CONFIG_TDP_GET_TDP_CONTROL,
        CONFIG_TDP_GET_TDP_INFO, CONFIG_TDP_GET_TJMAX_INFO, CONFIG_TDP_GET_TURBO_LIMIT_RATIOS,
        CONFIG_TDP_GET_UNCORE_P0_P1_INFO, CONFIG_TDP_PBF_GET_CORE_MASK_INFO,
        CONFIG_TDP_PBF_GET_P1HI_P1LO_INFO, CONFIG_TDP_PBF_GET_TDP_INFO, CONFIG_TDP_PBF_GET_TJ_MAX_INFO,
        CONFIG_TDP_SET_LEVEL, CONFIG_TDP_SET_TDP_CONTROL, MBOX_CMD_WRITE_BIT, PM_CLOS_OFFSET, PM_FEATURE,
        PQR_ASSOC_OFFSET, READ_PM_CONFIG, WRITE_PM_CONFIG,
    },
    cpu_model::{CpuModel, EMERALDRAPIDS_X, ICELAKE_D, ICELAKE_X, SAPPHIRERAPIDS_X},
    interface::{
        Access, BaseFreq, Clos, DomainAddress, Features, LevelData, Levels, PmConfig, Qos, TurboFreq,
        TurboLimits,
    },
};

/// Bits of CONFIG_TDP_GET_TDP_CONTROL and CONFIG_TDP_SET_TDP_CONTROL: the feature is on.
const TURBO_FREQ_ON: u32 = 1 << 16;
const BASE_FREQ_ON: u32 = 1 << 17;

/// Bits of CLOS_PM_QOS_CONFIG.
const QOS_ENABLED: u32 = 1 << 1;
const QOS_ORDERED: u32 = 1 << 2;

/// SST-CP is on, in READ_PM_CONFIG and WRITE_PM_CONFIG.
const CORE_POWER_ON: u32 = 1 << 16;

/// Selects the second half, in the data of commands for core masks, turbo limits and bucket counts.
const SECOND_HALF: u32 = 1 << 8;

/// Selects the mesh, in the data of CONFIG_TDP_GET_RATIO_INFO.
const RATIO_OF_MESH: u32 = 1 << 16;

/// Encoding of the memory frequency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryCode {
    /// Sapphire and Emerald Rapids: 200 MHz steps.
    Steps,
    /// Ice Lake: 12 minus the code, times 266.66 MHz.
    Countdown,
    None,
}

/// The mailbox interface of a machine.
pub struct Mailbox<'h> {
    host: &'h dyn Host,
    /// How often to try a command.
    pub tries: u32,
    /// Pause before each command.
    pub pause: Duration,
    classes_by_command: bool,
    memory: MemoryCode,
    kinds: &'static [&'static str],
}

impl<'h> Mailbox<'h> {
    /// The interface on a CPU model.
    pub fn new(host: &'h dyn Host, model: &CpuModel) -> Mailbox<'h> {
        Mailbox {
            host,
            tries: 3,
            pause: Duration::ZERO,
            classes_by_command: model.is_skylake_based(),
            memory: match model.model {
                SAPPHIRERAPIDS_X | EMERALDRAPIDS_X => MemoryCode::Steps,
                ICELAKE_X | ICELAKE_D => MemoryCode::Countdown,
                _ => MemoryCode::None,
            },
            kinds: if model.model == EMERALDRAPIDS_X {
                &["level-0", "level-1", "level-2", "level-3", "level-4"]
            } else {
                &["sse", "avx2", "avx512"]
            },
        }
    }

    fn cpu(at: &DomainAddress) -> Result<u32, HostError> {
        at.cpu.ok_or_else(|| {
            let what =
                format!("a mailbox of package {} power domain {}, which has no CPU", at.package, at.domain);
            HostError::new(Op::Isst, what, Errno::NODEV)
        })
    }

    fn send(
        &self,
        at: &DomainAddress,
        command: u16,
        sub_command: u16,
        parameter: u32,
        data: u32,
    ) -> Result<u32, HostError> {
        let request = legacy::Mailbox { cpu: Mailbox::cpu(at)?, command, sub_command, parameter, data };
        if !self.pause.is_zero() {
            self.host.sleep(self.pause);
        }
        // The firmware and other agents share the mailbox, so it may be busy; the tool tries three
        // times too.
        let mut left = self.tries.max(1);
        loop {
            left -= 1;
            match request.send(self.host) {
                // Do not retry a missing driver, a wrong request or a missing privilege.
                Err(error)
                    if left > 0 && !matches!(error.errno, Errno::NOTTY | Errno::INVAL | Errno::PERM) => {}
                answer => return answer,
            }
        }
    }

    fn tdp(&self, at: &DomainAddress, sub_command: u16, data: u32) -> Result<u32, HostError> {
        self.send(at, CONFIG_TDP, sub_command, 0, data)
    }

    fn class_register(
        &self,
        at: &DomainAddress,
        sub: u16,
        index: u32,
        write: Option<u32>,
    ) -> Result<u32, HostError> {
        if self.classes_by_command {
            // Skylake-X has no MMIO device for the classes (isst_if_mmio.c lists Ice Lake and
            // later).
            let flag = if write.is_some() { MBOX_CMD_WRITE_BIT } else { 0 };
            return self.send(at, CONFIG_CLOS, sub, flag | index, write.unwrap_or(0));
        }
        let register = if sub == CLOS_PQR_ASSOC { PQR_ASSOC_OFFSET } else { PM_CLOS_OFFSET } + 4 * index;
        let cpu = Mailbox::cpu(at)?;
        match write {
            Some(value) => legacy::write_mmio(self.host, cpu, register, value).map(|()| value),
            None => legacy::read_mmio(self.host, cpu, register),
        }
    }
}

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

    fn has(&self, place: &DomainAddress) -> bool {
        // A package, or a die of it, is one domain.
        place.cpu.is_some() && place.domain == 0
    }

    fn domains(&self, _package: u8) -> Vec<u8> {
        vec![0]
    }

    fn pm_config(&self, at: &DomainAddress) -> Result<PmConfig, HostError> {
        let answer = self.send(at, READ_PM_CONFIG, PM_FEATURE, 0, 0)?;
        Ok(PmConfig { supported: answer & 1 != 0, enabled: answer & CORE_POWER_ON != 0 })
    }

    fn set_pm_config(&self, at: &DomainAddress, enabled: bool) -> Result<(), HostError> {
        let data = if enabled { CORE_POWER_ON } else { 0 };
        // Parameter 0, like the tool. The driver regards only parameter 3 as a set request
        // (isst_cmd_set_reqs), so it neither checks CAP_SYS_ADMIN nor repeats this command after a
        // resume.
        self.send(at, WRITE_PM_CONFIG, PM_FEATURE, 0, data).map(|_| ())
    }

    fn qos(&self, at: &DomainAddress) -> Result<Qos, HostError> {
        let answer = self.send(at, CONFIG_CLOS, CLOS_PM_QOS_CONFIG, 0, 0)?;
        Ok(Qos { enabled: answer & QOS_ENABLED != 0, ordered: answer & QOS_ORDERED != 0 })
    }

    fn set_qos(&self, at: &DomainAddress, qos: Qos) -> Result<(), HostError> {
        // The word has undocumented fields, which keep their values.
        let mut word = self.send(at, CONFIG_CLOS, CLOS_PM_QOS_CONFIG, 0, 0)? & !(QOS_ENABLED | QOS_ORDERED);
        if qos.enabled {
            word |= QOS_ENABLED;
        }
        if qos.ordered {
            word |= QOS_ORDERED;
        }
        self.send(at, CONFIG_CLOS, CLOS_PM_QOS_CONFIG, MBOX_CMD_WRITE_BIT, word).map(|_| ())
    }

    fn levels(&self, at: &DomainAddress) -> Result<Levels, HostError> {
        let answer = self.tdp(at, CONFIG_TDP_GET_LEVELS_INFO, 0)?;
        Ok(Levels {
            version: byte(answer, 0) as u8,
            highest: byte(answer, 1) as u8,
            current: byte(answer, 2) as u8,
            locked: answer >> 24 & 1 != 0,
            enabled: answer >> 31 != 0,
        })
    }

    fn features(&self, at: &DomainAddress, level: u8) -> Result<Features, HostError> {
        let answer = self.tdp(at, CONFIG_TDP_GET_TDP_CONTROL, level.into())?;
        Ok(Features {
            turbo_freq: answer & 1 != 0,
            base_freq: answer & 2 != 0,
            turbo_freq_on: answer & TURBO_FREQ_ON != 0,
            base_freq_on: answer & BASE_FREQ_ON != 0,
        })
    }

    fn set_features(&self, at: &DomainAddress, base_freq: bool, turbo_freq: bool) -> Result<(), HostError> {
        // The command sets both features: a feature that is not in the data is switched off.
        let mut data = 0;
        if turbo_freq {
            data |= TURBO_FREQ_ON;
        }
        if base_freq {
            data |= BASE_FREQ_ON;
        }
        self.tdp(at, CONFIG_TDP_SET_TDP_CONTROL, data).map(|_| ())
    }

    fn set_level(&self, at: &DomainAddress, level: u8) -> Result<(), HostError> {
        self.tdp(at, CONFIG_TDP_SET_LEVEL, level.into()).map(|_| ())
    }

    fn level_data(&self, at: &DomainAddress, level: u8) -> Result<LevelData, HostError> {
        let request = u32::from(level);
        let tdp = self.tdp(at, CONFIG_TDP_GET_TDP_INFO, request)?;
        let tjunction = self.tdp(at, CONFIG_TDP_GET_TJMAX_INFO, request)?;
        let mut data = LevelData {
            tdp_ratio: byte(tdp, 2),
            // Bit 15 of the answer is not part of the power.
            tdp_w: tdp & 0x7fff,
            tjunction_c: byte(tjunction, 0),
            uncore: self.uncore(at, level)?,
            ..LevelData::default()
        };
        // Older firmware lacks these two commands; the values are then unknown.
        if let Ok(base) = self.tdp(at, CONFIG_TDP_GET_P1_INFO, request) {
            data.base = [0, 1, 2, 3].map(|index| ratio(base, index));
        }
        if let Ok(answer) = self.tdp(at, CONFIG_TDP_GET_MEM_FREQ, request) {
            data.memory = MegaHertz(memory_speed(self.memory, byte(answer, 0)));
        }
        Ok(data)
    }

    fn uncore(&self, at: &DomainAddress, level: u8) -> Result<[MegaHertz; 3], HostError> {
        let missing = |error: &HostError| error.errno == Errno::NOTTY || error.path == isst::NODE;
        // CONFIG_TDP_GET_RATIO_INFO also has the lowest ratio. Firmware without it has the older
        // command. Only a missing driver is an error (`mbox_get_uncore_p0_p1_info`).
        match self.tdp(at, CONFIG_TDP_GET_RATIO_INFO, RATIO_OF_MESH | u32::from(level)) {
            Ok(answer) => return Ok([ratio(answer, 0), ratio(answer, 1), ratio(answer, 3)]),
            Err(error) if missing(&error) => return Err(error),
            Err(_) => {}
        }
        match self.tdp(at, CONFIG_TDP_GET_UNCORE_P0_P1_INFO, level.into()) {
            Ok(answer) => Ok([ratio(answer, 0), ratio(answer, 1), MegaHertz(0)]),
            Err(error) if missing(&error) => Err(error),
            Err(_) => Ok([MegaHertz(0); 3]),
        }
    }

    fn level_cores(&self, at: &DomainAddress, level: u8) -> Result<u64, HostError> {
        let low = self.tdp(at, CONFIG_TDP_GET_CORE_MASK, level.into())?;
        let high = self.tdp(at, CONFIG_TDP_GET_CORE_MASK, SECOND_HALF | u32::from(level))?;
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    fn turbo_limits(&self, at: &DomainAddress, level: u8) -> Result<TurboLimits, HostError> {
        let mut limits = TurboLimits::default();
        for (kind, row) in limits.iter_mut().enumerate().take(self.kinds.len()) {
            for half in 0..2 {
                // Four ratios fit into an answer, so eight buckets take two commands.
                let request = u32::from(level) | (half * SECOND_HALF) | (kind as u32) << 16;
                let answer = self.tdp(at, CONFIG_TDP_GET_TURBO_LIMIT_RATIOS, request)?;
                for index in 0..4 {
                    row[(4 * half + index) as usize] = ratio(answer, index);
                }
            }
        }
        Ok(limits)
    }

    fn bucket_cores(&self, at: &DomainAddress, _level: u8) -> Result<[u32; 8], HostError> {
        let counts =
            legacy::read_msr(self.host, Mailbox::cpu(at)?, flyball_host::msr::MSR_TURBO_RATIO_LIMIT1)?;
        // Bucket 0 is the lowest byte. MSR 0x1AE has the counts for the current level; the mailbox
        // has no counts per level.
        Ok(counts.to_le_bytes().map(u32::from))
    }

    fn base_freq(&self, at: &DomainAddress, level: u8) -> Result<BaseFreq, HostError> {
        let request = u32::from(level);
        // The tool reads the second half only on parts with more than 32 cores; others may reject
        // it.
        let low = self.tdp(at, CONFIG_TDP_PBF_GET_CORE_MASK_INFO, request).unwrap_or(0);
        let high = self.tdp(at, CONFIG_TDP_PBF_GET_CORE_MASK_INFO, SECOND_HALF | request).unwrap_or(0);
        let ratios = self.tdp(at, CONFIG_TDP_PBF_GET_P1HI_P1LO_INFO, request)?;
        let tdp = self.tdp(at, CONFIG_TDP_PBF_GET_TDP_INFO, request)?;
        let tjunction = self.tdp(at, CONFIG_TDP_PBF_GET_TJ_MAX_INFO, request)?;
        Ok(BaseFreq {
            high: ratio(ratios, 1),
            low: ratio(ratios, 0),
            cores: u64::from(low) | u64::from(high) << 32,
            tjunction_c: byte(tjunction, 0),
            tdp_w: tdp & 0xffff,
        })
    }

    fn turbo_freq(&self, at: &DomainAddress, level: u8) -> Result<TurboFreq, HostError> {
        let request = u32::from(level);
        let mut turbo = TurboFreq::default();
        let clip = self.tdp(at, CONFIG_TDP_GET_FACT_LP_CLIPPING_RATIO, request)?;
        // SSE, AVX2 and AVX-512; the fourth byte is unused.
        for index in 0..3 {
            turbo.clip[index as usize] = ratio(clip, index);
        }
        for half in 0..2u32 {
            let counts =
                self.tdp(at, CONFIG_TDP_GET_FACT_HP_TURBO_LIMIT_NUMCORES, (half * SECOND_HALF) | request)?;
            for index in 0..4 {
                turbo.bucket_cores[(4 * half + index) as usize] = byte(counts, index);
            }
        }
        for (kind, row) in turbo.limits.iter_mut().enumerate().take(self.kinds.len()) {
            for half in 0..2u32 {
                let ratios = self.tdp(
                    at,
                    CONFIG_TDP_GET_FACT_HP_TURBO_LIMIT_RATIOS,
                    (kind as u32) << 16 | (half * SECOND_HALF) | request,
                )?;
                for index in 0..4 {
                    row[(4 * half + index) as usize] = ratio(ratios, index);
                }
            }
        }
        Ok(turbo)
    }

    fn clos(&self, at: &DomainAddress, class: u8) -> Result<Clos, HostError> {
        // Four classes: a larger number would read the registers after them.
        let word = self.class_register(at, CLOS_PM_CLOS, u32::from(class & 3), None)?;
        Ok(Clos {
            epp: (word & 0xf) as u8,
            weight: (word >> 4 & 0xf) as u8,
            min: ratio(word, 1),
            max: ratio(word, 2),
            desired: ratio(word, 3),
        })
    }

    fn set_clos(&self, at: &DomainAddress, class: u8, clos: &Clos) -> Result<(), HostError> {
        let fits = |frequency: MegaHertz| frequency.0 / 100 <= 0xff;
        // Checked here, because the mailbox accepts any word, and a value too large for its field
        // would spill into the next one.
        if class > 3 || clos.epp > 15 || clos.weight > 15 || !fits(clos.min) || !fits(clos.max) {
            let what = format!("class of service {class} as {clos:?}");
            return Err(HostError::new(Op::Isst, what, Errno::INVAL));
        }
        let word = u32::from(clos.epp)
            | u32::from(clos.weight) << 4
            | (clos.min.0 / 100) << 8
            | (clos.max.0 / 100) << 16
            // Nothing uses this field; it is written back as it was read.
            | (clos.desired.0 / 100).min(0xff) << 24;
        self.class_register(at, CLOS_PM_CLOS, class.into(), Some(word)).map(|_| ())
    }

    fn class_of(&self, at: &DomainAddress, core: u16) -> Result<u8, HostError> {
        let word = self.class_register(at, CLOS_PQR_ASSOC, u32::from(core & 0xff), None)?;
        Ok((word >> 16 & 3) as u8)
    }

    fn associate(&self, at: &DomainAddress, core: u16, class: u8) -> Result<(), HostError> {
        if class > 3 || core > 0xff {
            let what = format!("core {core} into class {class}");
            return Err(HostError::new(Op::Isst, what, Errno::INVAL));
        }
        // Bits 17:16 of the word; the others are reserved.
        self.class_register(at, CLOS_PQR_ASSOC, core.into(), Some(u32::from(class) << 16)).map(|_| ())
    }
}

fn memory_speed(coding: MemoryCode, code: u32) -> u32 {
    match coding {
        MemoryCode::Steps => code * 200,
        MemoryCode::Countdown if code < 7 => {
            // The tool's arithmetic after CONFIG_TDP_GET_MEM_FREQ: truncate to MHz, then add one if
            // the last digit is above 5, so that 3199 becomes 3200.
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
