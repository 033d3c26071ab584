//! The calls of the played machine's drivers.

use flyball_host::{Errno, isst::number};

use super::{PlayedLevel, Player, State};

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: impl Into<u64>, size: usize) {
    bytes[at..at + size].copy_from_slice(&value.into().to_le_bytes()[..size]);
}

fn four(ratios: &[u8]) -> u32 {
    (0..4).map(|index| u32::from(ratios[index]) << (8 * index)).sum()
}

/// Buckets' active cores.
const BUCKETS: [u8; 8] = [2, 4, 6, 8, 10, 12, 14, 16];

/// The mesh's P0, P1, Pm.
const MESH: [u8; 3] = [25, 18, 8];

impl Player {
    pub(super) fn call(&self, call: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        match call {
            number::GET_PLATFORM_INFO => {
                let tpmi = self.api > 1;
                put(bytes, 0, self.api, 2);
                put(bytes, 2, 1u16, 2);
                put(bytes, 4, 64u16, 2);
                bytes[6] = u8::from(!tpmi);
                bytes[7] = u8::from(!tpmi);
                Ok(0)
            }
            number::GET_PHY_ID => {
                let count = word(bytes, 0) as usize;
                for index in 0..count {
                    let cpu = word(bytes, 4 + 8 * index);
                    let Some((_, core)) = self.place(cpu) else {
                        return if index == 0 { Err(Errno::INVAL) } else { Ok(index as i32) };
                    };
                    let thread = cpu / (self.cores * u32::from(self.packages));
                    let raw = if self.api > 1 {
                        // Domain 5 exists for the driver, and has no registers.
                        (if core < self.dead_from { 0 } else { 5 << 11 }) | core << 3 | thread
                    } else {
                        core << 1 | thread
                    };
                    put(bytes, 8 + 8 * index, raw, 4);
                }
                Ok(count as i32)
            }
            number::MSR_COMMAND => self.msr_command(bytes),
            number::IO_CMD | number::MBOX_COMMAND if self.api > 1 => Err(Errno::NOTTY),
            number::IO_CMD => self.io_command(bytes),
            number::MBOX_COMMAND => self.mailbox(bytes),
            _ if self.api == 1 => Err(Errno::NOTTY),
            // The common driver has one errno for everything.
            _ => self.tpmi(call, bytes).map_err(|_| Errno::NOTTY),
        }
    }

    /// Remembers a call that must never be made: two fault in kernels (a core mask above the highest level in 6.12, an
    /// association in a domain without registers in 7.2), the others are taken by 6.12, and bits spill.
    pub(super) fn note_hazard(&self, call: u32, bytes: &[u8]) {
        if self.api == 1 {
            return;
        }
        let mut inner = self.lock();
        let bad = match call {
            number::GET_PERF_LEVEL_CPU_MASK | number::GET_BASE_FREQ_CPU_MASK => {
                usize::from(bytes[2]) >= self.levels.len()
            }
            number::CLOS_ASSOC => {
                half(bytes, 0) != 1
                    || half(bytes, 8) > 63
                    || half(bytes, 10) > 3
                    || !inner.states.contains_key(&(bytes[6], bytes[7]))
            }
            number::CORE_POWER_STATE => bytes[0] > 1 || bytes[3] > 1 || bytes[5] > 1,
            number::CLOS_PARAM => {
                bytes[3] > 3 || bytes[8] > 15 || half(bytes, 4) > 25_500 || half(bytes, 6) > 25_500
            }
            number::PERF_SET_LEVEL => usize::from(bytes[2]) >= self.levels.len(),
            number::PERF_SET_FEATURE => bytes[2] > 3,
            _ => false,
        };
        if bad {
            inner.hazards.push(format!("call {:#x}: {bytes:02x?}", call & 0xff));
        }
    }

    fn msr_command(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
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
            (0x1ae, false) => put(bytes, 24, u64::from_le_bytes(BUCKETS), 8),
            (0x64b, false) => put(bytes, 24, u64::from(state.locked) << 31, 8),
            _ => return Err(Errno::INVAL),
        }
        Ok(1)
    }

    fn io_command(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let (package, _) = self.place(word(bytes, 8)).ok_or(Errno::INVAL)?;
        let (write, register, value) = (word(bytes, 4) == 1, word(bytes, 12), word(bytes, 16));
        let mut inner = self.lock();
        if write {
            inner.change(format!("MMIO {register:#x} of package {package} <- {value:#x}"))?;
        }
        let state = inner.states.get_mut(&(package, 0)).ok_or(Errno::INVAL)?;
        match register {
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

    fn mailbox(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let (package, _) = self.place(word(bytes, 4)).ok_or(Errno::INVAL)?;
        let (parameter, data) = (word(bytes, 8), word(bytes, 12));
        let (command, sub) = (half(bytes, 20), half(bytes, 22));
        let mut inner = self.lock();
        let writes = matches!((command, sub), (0x7f, 0x02 | 0x08) | (0x95, 3))
            || command == 0xd0 && parameter & 0x100 != 0;
        if writes {
            inner.change(format!("mailbox {command:02x}/{sub:02x} of package {package} <- {data:#x}"))?;
        }
        let state = inner.states.get_mut(&(package, 0)).ok_or(Errno::INVAL)?;
        let number = data & 0xff;
        let level = || self.levels.get(number as usize).ok_or(Errno::NXIO);
        let index = (data >> 8 & 0xff) as usize;
        let kind = (data >> 16 & 0xff) as usize;
        let now = &self.levels[usize::from(state.level)];
        let answer = match (command, sub) {
            (0x7f, 0x00) => {
                let highest = self.levels.len() as u32 - 1;
                1 | highest << 8 | u32::from(state.level) << 16 | u32::from(state.locked) << 24 | 1 << 31
            }
            (0x7f, 0x01) => {
                let level = level()?;
                u32::from(level.turbo_freq.is_some())
                    | u32::from(level.base_freq.is_some()) << 1
                    | u32::from(state.turbo_freq) << 16
                    | u32::from(state.base_freq) << 17
            }
            (0x7f, 0x02) => {
                let (turbo, base) = (data >> 16 & 1 != 0, data >> 17 & 1 != 0);
                if turbo && (now.turbo_freq.is_none() || !state.qos) || base && now.base_freq.is_none() {
                    return Err(Errno::NXIO);
                }
                (state.turbo_freq, state.base_freq) = (turbo, base);
                0
            }
            (0x7f, 0x03) => u32::from(level()?.tdp) | u32::from(level()?.base[0]) << 16,
            (0x7f, 0x04) => 0,
            (0x7f, 0x05) => level()?.tjunction.into(),
            (0x7f, 0x06) => (level()?.cores >> (32 * index.min(1))) as u32,
            (0x7f, 0x07) => four(&level()?.trl.get(kind).ok_or(Errno::NXIO)?[4 * index.min(1)..]),
            (0x7f, 0x08) => {
                level()?;
                if state.locked {
                    return Err(Errno::NXIO);
                }
                *state = State { level: number as u8, base_freq: false, turbo_freq: false, ..state.clone() };
                0
            }
            (0x7f, 0x0a) => four(&level()?.base),
            (0x7f, 0x0b) => 24,
            (0x7f, 0x0c) => u32::from(MESH[0]) | u32::from(MESH[1]) << 8 | u32::from(MESH[2]) << 24,
            (0x7f, 0x10) => four(&level()?.turbo_freq.ok_or(Errno::NXIO)?.0[4 * index.min(1)..]),
            (0x7f, 0x11) => four(
                &level()?.turbo_freq.ok_or(Errno::NXIO)?.1.get(kind).ok_or(Errno::NXIO)?[4 * index.min(1)..],
            ),
            (0x7f, 0x12) => {
                let [sse, avx2, avx512] = level()?.turbo_freq.ok_or(Errno::NXIO)?.2;
                four(&[sse, avx2, avx512, 0])
            }
            (0x7f, 0x20) => (level()?.base_freq.ok_or(Errno::NXIO)?.2 >> (32 * index.min(1))) as u32,
            (0x7f, 0x21) => {
                let (high, low, ..) = level()?.base_freq.ok_or(Errno::NXIO)?;
                u32::from(low) | u32::from(high) << 8
            }
            (0x7f, 0x22) => level()?.base_freq.ok_or(Errno::NXIO)?.3.into(),
            (0x7f, 0x23) => level()?.tdp.into(),
            (0xd0, 0x02) if parameter & 0x100 != 0 => {
                (state.qos, state.ordered) = (data & 2 != 0, data & 4 != 0);
                0
            }
            (0xd0, 0x02) => u32::from(state.qos) << 1 | u32::from(state.ordered) << 2,
            (0x94, 3) => 1 | u32::from(state.core_power) << 16,
            (0x95, 3) => {
                state.core_power = data >> 16 & 1 != 0;
                0
            }
            _ => return Err(Errno::NXIO),
        };
        put(bytes, 16, answer, 4);
        Ok(1)
    }

    fn tpmi(&self, call: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        if call == number::COUNT_TPMI_INSTANCES {
            if bytes[0] >= self.packages {
                return Err(Errno::INVAL);
            }
            bytes[1] = 1 + self.io_domains;
            put(bytes, 2, (2u16 << self.io_domains) - 1, 2);
            return Ok(0);
        }
        if call == number::CLOS_ASSOC {
            return self.assoc(bytes);
        }
        let set = matches!(call, number::CORE_POWER_STATE | number::CLOS_PARAM) && bytes[0] == 1;
        let at = usize::from(matches!(call, number::CORE_POWER_STATE | number::CLOS_PARAM));
        let key = (bytes[at], bytes[at + 1]);
        let mut inner = self.lock();
        if !inner.states.contains_key(&key) {
            return Err(Errno::INVAL);
        }
        if set || matches!(call, number::PERF_SET_LEVEL | number::PERF_SET_FEATURE) {
            inner.change(format!("call {:#x} of {key:?} <- {bytes:02x?}", call & 0xff))?;
        }
        let state = inner.states.get_mut(&key).ok_or(Errno::INVAL)?;
        let now = &self.levels[usize::from(state.level)];
        match call {
            number::CORE_POWER_STATE if set => {
                if bytes[3] > 1 || bytes[5] > 1 {
                    return Err(Errno::INVAL);
                }
                (state.qos, state.core_power, state.ordered) = (bytes[3] != 0, bytes[3] != 0, bytes[5] != 0);
            }
            number::CORE_POWER_STATE => {
                bytes[3] = u8::from(state.qos);
                bytes[4] = 1;
                bytes[5] = u8::from(state.ordered);
            }
            number::CLOS_PARAM => {
                let clos = state.clos.get_mut(usize::from(bytes[3])).ok_or(Errno::INVAL)?;
                if set {
                    let (min, max) = (u32::from(half(bytes, 4)) / 100, u32::from(half(bytes, 6)) / 100);
                    if min > 255 || max > 255 || bytes[8] > 15 {
                        return Err(Errno::INVAL);
                    }
                    *clos = u32::from(bytes[8]) << 4 | min << 8 | max << 16;
                } else {
                    bytes[8] = (*clos >> 4 & 0xf) as u8;
                    put(bytes, 4, (*clos >> 8 & 0xff) as u16 * 100, 2);
                    put(bytes, 6, (*clos >> 16 & 0xff) as u16 * 100, 2);
                }
            }
            number::PERF_LEVELS => {
                let mask = |has: fn(&PlayedLevel) -> bool| {
                    (0..self.levels.len())
                        .filter(|&index| has(&self.levels[index]))
                        .fold(0, |mask, index| mask | 1 << index)
                };
                let features = u8::from(state.base_freq) | u8::from(state.turbo_freq) << 1;
                let all: u8 = mask(|_| true);
                bytes[2..11].copy_from_slice(&[
                    self.levels.len() as u8 - 1,
                    1,
                    all,
                    state.level,
                    features,
                    u8::from(state.locked),
                    1,
                    mask(|level| level.turbo_freq.is_some()),
                    mask(|level| level.base_freq.is_some()),
                ]);
            }
            number::PERF_SET_LEVEL => {
                if state.locked || bytes[2] == state.level || usize::from(bytes[2]) >= self.levels.len() {
                    return Err(Errno::INVAL);
                }
                *state = State { level: bytes[2], base_freq: false, turbo_freq: false, ..state.clone() };
            }
            number::PERF_SET_FEATURE => {
                let (base, turbo) = (bytes[2] & 1 != 0, bytes[2] & 2 != 0);
                if bytes[2] > 3
                    || base && now.base_freq.is_none()
                    || turbo && (now.turbo_freq.is_none() || !state.qos)
                {
                    return Err(Errno::INVAL);
                }
                (state.base_freq, state.turbo_freq) = (base, turbo);
            }
            _ => return self.level_call(call, bytes),
        }
        Ok(0)
    }

    fn assoc(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let (set, key) = (half(bytes, 2) == 1, (bytes[6], bytes[7]));
        let (core, class) = (half(bytes, 8), half(bytes, 10));
        let mut inner = self.lock();
        if half(bytes, 4) == 0 || core > 63 || class > 3 || !inner.states.contains_key(&key) {
            return Err(Errno::INVAL);
        }
        if set {
            inner.change(format!("class of core {core} of {key:?} <- {class}"))?;
        }
        let state = inner.states.get_mut(&key).ok_or(Errno::INVAL)?;
        let place = &mut state.assoc[usize::from(core)];
        if set {
            *place = class as u8;
        } else {
            put(bytes, 10, u16::from(*place), 2);
        }
        Ok(0)
    }

    fn level_call(&self, call: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        let level = self.levels.get(usize::from(bytes[2])).ok_or(Errno::INVAL)?;
        let mhz = |ratio: u8| u16::from(ratio) * 100;
        let row = |bytes: &mut [u8], at: usize, trl: &[[u8; 8]; 3]| {
            for (kind, ratios) in trl.iter().enumerate() {
                for (bucket, &ratio) in ratios.iter().enumerate() {
                    put(bytes, at + 2 * (8 * kind + bucket), mhz(ratio), 2);
                }
            }
        };
        match call {
            number::GET_PERF_LEVEL_INFO => {
                let fields = [
                    u16::from(level.base[0]),
                    mhz(level.base[0]),
                    mhz(level.base[1]),
                    mhz(level.base[2]),
                    mhz(level.base[3]),
                    level.tdp,
                    level.tjunction.into(),
                    4800,
                    0,
                ];
                for (index, value) in fields.into_iter().enumerate() {
                    put(bytes, 4 + 2 * index, value, 2);
                }
                for (at, ratio) in [(30, MESH[0]), (32, MESH[1]), (36, MESH[2])] {
                    put(bytes, at, mhz(ratio), 2);
                }
                put(bytes, 38, 8u16, 2);
                put(bytes, 40, 6u16, 2);
                for (bucket, cores) in BUCKETS.into_iter().enumerate() {
                    put(bytes, 42 + 2 * bucket, u16::from(cores), 2);
                }
                row(bytes, 58, &level.trl);
            }
            number::GET_PERF_LEVEL_CPU_MASK => put(bytes, 8, level.cores, 8),
            number::GET_BASE_FREQ_INFO | number::GET_BASE_FREQ_CPU_MASK => {
                let (high, low, cores, tjunction) = level.base_freq.ok_or(Errno::INVAL)?;
                if call == number::GET_BASE_FREQ_CPU_MASK {
                    put(bytes, 8, cores, 8);
                } else {
                    for (index, value) in
                        [mhz(high), mhz(low), tjunction.into(), level.tdp].into_iter().enumerate()
                    {
                        put(bytes, 4 + 2 * index, value, 2);
                    }
                }
            }
            number::GET_TURBO_FREQ_INFO => {
                let (cores, trl, clip) = level.turbo_freq.ok_or(Errno::INVAL)?;
                for (at, value) in [(4, 6u16), (6, 8), (8, 6)] {
                    put(bytes, at, value, 2);
                }
                for (index, ratio) in clip.into_iter().enumerate() {
                    put(bytes, 10 + 2 * index, mhz(ratio), 2);
                }
                for (bucket, cores) in cores.into_iter().enumerate() {
                    put(bytes, 22 + 2 * bucket, u16::from(cores), 2);
                }
                row(bytes, 38, &trl);
            }
            number::GET_PERF_LEVEL_FABRIC_INFO => {
                for (at, ratio) in [(8, 22u8), (24, 16), (40, 8)] {
                    put(bytes, at, mhz(ratio), 2);
                }
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    }
}
