//! The calls of API 1: mailbox commands, the classes' MMIO registers, and some MSRs.

use flyball_host::Errno;

use crate::{
    FakeLevel, FakeMachine, State,
    wire::{half, put, word},
};

const CONFIG_TDP: u16 = 0x7f;
const CONFIG_CLOS: u16 = 0xd0;
const READ_PM_CONFIG: u16 = 0x94;
const WRITE_PM_CONFIG: u16 = 0x95;

/// The bit of a class command's parameter that makes it a write.
const WRITE: u32 = 0x100;

/// Active cores of the turbo buckets.
pub(crate) const BUCKETS: [u8; 8] = [2, 4, 6, 8, 10, 12, 14, 16];

/// The mesh's P0, P1 and Pm ratios.
pub(crate) const MESH: [u8; 3] = [25, 18, 8];

/// Packs four ratios into a response word.
fn four(ratios: &[u8]) -> u32 {
    (0..4).map(|index| u32::from(ratios[index]) << (8 * index)).sum()
}

impl FakeMachine {
    pub(crate) fn msr_command(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let (package, _) = self.place(word(bytes, 12)).ok_or(Errno::INVAL)?;
        let mut inner = self.lock();
        let write = word(bytes, 8) == 1;
        let value = u64::from(word(bytes, 24)) | u64::from(word(bytes, 28)) << 32;
        let register = word(bytes, 16);
        if write {
            inner.change(format!("MSR {register:#x} of package {package} <- {value:#x}"))?;
        }
        let state = inner.states.get_mut(&(package, 0)).ok_or(Errno::INVAL)?;
        match (register, write) {
            (0x1ad, true) => state.trl = value,
            (0x1ad, false) => put(bytes, 24, state.trl, 8),
            // MSR_TURBO_RATIO_LIMIT1: the cores per bucket, on servers from Skylake on.
            (0x1ae, false) => put(bytes, 24, u64::from_le_bytes(BUCKETS), 8),
            // MSR_CONFIG_TDP_CONTROL: the lock is bit 31.
            (0x64b, false) => put(bytes, 24, u64::from(state.locked) << 31, 8),
            _ => return Err(Errno::INVAL),
        }
        Ok(1)
    }

    pub(crate) fn io_command(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let (package, _) = self.place(word(bytes, 8)).ok_or(Errno::INVAL)?;
        let (write, register, value) = (word(bytes, 4) == 1, word(bytes, 12), word(bytes, 16));
        let mut inner = self.lock();
        if write {
            inner.change(format!("MMIO {register:#x} of package {package} <- {value:#x}"))?;
        }
        let state = inner.states.get_mut(&(package, 0)).ok_or(Errno::INVAL)?;
        match register {
            // PM_CLOS_OFFSET and PQR_ASSOC_OFFSET (tools/power/x86/intel-speed-select/isst.h): four
            // classes, then a word per core.
            0x08..=0x14 => {
                let clos = &mut state.clos[(register as usize - 8) / 4];
                if write { *clos = value } else { put(bytes, 16, *clos, 4) }
            }
            0x20..=0x11c => {
                let class = &mut state.assoc[(register as usize - 0x20) / 4];
                if write {
                    *class = (value >> 16 & 3) as u8;
                } else {
                    put(bytes, 16, u32::from(*class) << 16, 4);
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(1)
    }

    pub(crate) fn mailbox(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let (package, _) = self.place(word(bytes, 4)).ok_or(Errno::INVAL)?;
        let (parameter, data) = (word(bytes, 8), word(bytes, 12));
        let (command, sub) = (half(bytes, 20), half(bytes, 22));
        let mut inner = self.lock();
        // All other commands only read, so they do not count as changes.
        let writes = matches!((command, sub), (CONFIG_TDP, 0x02 | 0x08) | (WRITE_PM_CONFIG, 3))
            || command == CONFIG_CLOS && parameter & WRITE != 0;
        if writes {
            inner.change(format!("mailbox {command:02x}/{sub:02x} of package {package} <- {data:#x}"))?;
        }
        let state = inner.states.get_mut(&(package, 0)).ok_or(Errno::INVAL)?;
        let answer = match (command, sub) {
            (CONFIG_TDP, 0x00..=0x02 | 0x08) => self.level_state(state, sub, data)?,
            (CONFIG_TDP, _) => {
                let level = self.levels.get((data & 0xff) as usize).ok_or(Errno::NXIO)?;
                level_data(level, sub, data)?
            }
            (CONFIG_CLOS, 0x02) if parameter & WRITE != 0 => {
                (state.qos, state.ordered) = (data & 2 != 0, data & 4 != 0);
                0
            }
            (CONFIG_CLOS, 0x02) => u32::from(state.qos) << 1 | u32::from(state.ordered) << 2,
            (CONFIG_CLOS, 0x00 | 0x01) if self.classes_in_mailbox => {
                class_register(state, sub, parameter, data)?
            }
            (READ_PM_CONFIG, 3) => u32::from(!state.lacks_core_power) | u32::from(state.core_power) << 16,
            (WRITE_PM_CONFIG, 3) => {
                state.core_power = data >> 16 & 1 != 0;
                0
            }
            _ => return Err(Errno::NXIO),
        };
        put(bytes, 16, answer, 4);
        Ok(1)
    }

    /// The parts of CONFIG_TDP that read or change the current state.
    fn level_state(&self, state: &mut State, sub: u16, data: u32) -> Result<u32, Errno> {
        let number = data & 0xff;
        let level = || self.levels.get(number as usize).ok_or(Errno::NXIO);
        match sub {
            0x00 => {
                let highest = self.levels.len() as u32 - 1;
                Ok(1 | highest << 8 | u32::from(state.level) << 16 | u32::from(state.locked) << 24 | 1 << 31)
            }
            0x01 => {
                let level = level()?;
                Ok(u32::from(level.turbo_freq.is_some())
                    | u32::from(level.base_freq.is_some()) << 1
                    | u32::from(state.turbo_freq) << 16
                    | u32::from(state.base_freq) << 17)
            }
            0x02 => {
                let now = &self.levels[usize::from(state.level)];
                let (turbo, base) = (data >> 16 & 1 != 0, data >> 17 & 1 != 0);
                // The firmware only switches SST-TF on if classes have an effect.
                if turbo && (now.turbo_freq.is_none() || !state.qos) || base && now.base_freq.is_none() {
                    return Err(Errno::NXIO);
                }
                (state.turbo_freq, state.base_freq) = (turbo, base);
                Ok(0)
            }
            _ => {
                level()?;
                if state.locked {
                    return Err(Errno::NXIO);
                }
                // Like the firmware, a change of level switches both features off.
                *state = State { level: number as u8, base_freq: false, turbo_freq: false, ..state.clone() };
                Ok(0)
            }
        }
    }
}

/// Reads or writes a core's class or a class's definition, in the format of MMIO space.
fn class_register(state: &mut State, sub: u16, parameter: u32, data: u32) -> Result<u32, Errno> {
    let index = (parameter & 0xff) as usize;
    let write = parameter & WRITE != 0;
    if sub == 0x01 {
        let clos = state.clos.get_mut(index).ok_or(Errno::NXIO)?;
        if write {
            *clos = data;
        }
        Ok(*clos)
    } else {
        let class = state.assoc.get_mut(index).ok_or(Errno::NXIO)?;
        if write {
            *class = (data >> 16 & 3) as u8;
        }
        Ok(u32::from(*class) << 16)
    }
}

/// The parts of CONFIG_TDP that describe a level.
fn level_data(level: &FakeLevel, sub: u16, data: u32) -> Result<u32, Errno> {
    // Ratios and masks of eight bytes are read in halves.
    let half_of = 4 * ((data >> 8 & 0xff) as usize).min(1);
    let word_of = |mask: u64| (mask >> (8 * half_of)) as u32;
    let kind = (data >> 16 & 0xff) as usize;
    let turbo_freq = || level.turbo_freq.ok_or(Errno::NXIO);
    let base_freq = || level.base_freq.ok_or(Errno::NXIO);
    Ok(match sub {
        0x03 => u32::from(level.tdp) | u32::from(level.base[0]) << 16,
        0x04 => 0,
        0x05 => level.tjunction.into(),
        0x06 => word_of(level.cores),
        0x07 => four(&level.trl.get(kind).ok_or(Errno::NXIO)?[half_of..]),
        0x0a => four(&level.base),
        0x0b => 24,
        0x0c => u32::from(MESH[0]) | u32::from(MESH[1]) << 8 | u32::from(MESH[2]) << 24,
        0x10 => four(&turbo_freq()?.0[half_of..]),
        0x11 => four(&turbo_freq()?.1.get(kind).ok_or(Errno::NXIO)?[half_of..]),
        0x12 => {
            let [sse, avx2, avx512] = turbo_freq()?.2;
            four(&[sse, avx2, avx512, 0])
        }
        0x20 => word_of(base_freq()?.2),
        0x21 => {
            let (high, low, ..) = base_freq()?;
            u32::from(low) | u32::from(high) << 8
        }
        0x22 => base_freq()?.3.into(),
        0x23 => level.tdp.into(),
        _ => return Err(Errno::NXIO),
    })
}
