//! The calls of API 2 and 3: registers of power domains.

use flyball_host::{Errno, isst::number};

use crate::{
    FakeLevel, FakeMachine, State,
    mailbox::{BUCKETS, MESH},
    wire::{half, put},
};

impl FakeMachine {
    pub(crate) fn tpmi(&self, call: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        if call == number::COUNT_TPMI_INSTANCES {
            if bytes[0] >= self.packages {
                return Err(Errno::INVAL);
            }
            bytes[1] = 1 + self.io_domains;
            // One bit per domain from 0 on. The first domain has the CPUs.
            put(bytes, 2, (2u16 << self.io_domains) - 1, 2);
            return Ok(0);
        }
        if call == number::CLOS_ASSOC {
            return self.assoc(bytes);
        }
        // These two structures begin with get_set, all others with the socket.
        let has_get_set = matches!(call, number::CORE_POWER_STATE | number::CLOS_PARAM);
        let set = has_get_set && bytes[0] == 1;
        let at = usize::from(has_get_set);
        let key = (bytes[at], bytes[at + 1]);
        let mut inner = self.lock();
        if !inner.states.contains_key(&key) {
            return Err(Errno::INVAL);
        }
        if set || matches!(call, number::PERF_SET_LEVEL | number::PERF_SET_FEATURE) {
            // The low byte of an ioctl number is its index.
            inner.change(format!("call {:#x} of {key:?} <- {bytes:02x?}", call & 0xff))?;
        }
        let switches = matches!(call, number::PERF_SET_FEATURE) || set && call == number::CORE_POWER_STATE;
        if switches && inner.ignores_switches {
            // No error: the driver writes the register without reading it back.
            return Ok(0);
        }
        let state = inner.states.get_mut(&key).ok_or(Errno::INVAL)?;
        match call {
            number::CORE_POWER_STATE => core_power_state(state, bytes, set)?,
            number::CLOS_PARAM => class_of_service(state, bytes, set)?,
            number::PERF_LEVELS => self.perf_levels(state, bytes),
            number::PERF_SET_LEVEL => {
                // The driver rejects the current level (isst_if_set_perf_level).
                if state.locked || bytes[2] == state.level || usize::from(bytes[2]) >= self.levels.len() {
                    return Err(Errno::INVAL);
                }
                *state = State { level: bytes[2], base_freq: false, turbo_freq: false, ..state.clone() };
            }
            number::PERF_SET_FEATURE => {
                let now = &self.levels[usize::from(state.level)];
                // Bit 0 is SST-BF, bit 1 is SST-TF. The driver rejects all other bits
                // (SST_PP_FEATURE_STATE_VALID_MASK).
                let (base, turbo) = (bytes[2] & 1 != 0, bytes[2] & 2 != 0);
                if bytes[2] > 3
                    || base && now.base_freq.is_none()
                    || turbo && (now.turbo_freq.is_none() || !state.qos)
                {
                    return Err(Errno::INVAL);
                }
                (state.base_freq, state.turbo_freq) = (base, turbo);
            }
            _ => {
                let level = self.levels.get(usize::from(bytes[2])).ok_or(Errno::INVAL)?;
                describe_level(level, call, bytes)?;
            }
        }
        Ok(0)
    }

    fn perf_levels(&self, state: &State, bytes: &mut [u8]) {
        let mask = |has: fn(&FakeLevel) -> bool| {
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

    fn assoc(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let (set, key) = (half(bytes, 2) == 1, (bytes[6], bytes[7]));
        let (core, class) = (half(bytes, 8), half(bytes, 10));
        let mut inner = self.lock();
        // The driver expects PUNIT core numbers, not the kernel's (punit_cpu_map).
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
}

fn core_power_state(state: &mut State, bytes: &mut [u8], set: bool) -> Result<(), Errno> {
    if set {
        if bytes[3] > 1 || bytes[5] > 1 {
            return Err(Errno::INVAL);
        }
        // TPMI has one switch for both. Only the mailbox has separate ones.
        (state.qos, state.core_power, state.ordered) = (bytes[3] != 0, bytes[3] != 0, bytes[5] != 0);
    } else {
        bytes[3] = u8::from(state.qos);
        bytes[4] = u8::from(!state.lacks_core_power);
        bytes[5] = u8::from(state.ordered);
    }
    Ok(())
}

fn class_of_service(state: &mut State, bytes: &mut [u8], set: bool) -> Result<(), Errno> {
    let clos = state.clos.get_mut(usize::from(bytes[3])).ok_or(Errno::INVAL)?;
    if set {
        // Registers hold multiples of 100 MHz in 8 bits.
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
    Ok(())
}

fn mhz(ratio: u8) -> u16 {
    u16::from(ratio) * 100
}

fn put_turbo_limits(bytes: &mut [u8], at: usize, limits: &[[u8; 8]; 3]) {
    for (kind, ratios) in limits.iter().enumerate() {
        for (bucket, &ratio) in ratios.iter().enumerate() {
            put(bytes, at + 2 * (8 * kind + bucket), mhz(ratio), 2);
        }
    }
}

/// Answers calls that describe a level. Offsets are those of the structures in
/// include/uapi/linux/isst_if.h.
fn describe_level(level: &FakeLevel, call: u32, bytes: &mut [u8]) -> Result<(), Errno> {
    match call {
        number::GET_PERF_LEVEL_INFO => put_level_info(level, bytes),
        number::GET_PERF_LEVEL_CPU_MASK => put(bytes, 8, level.cores, 8),
        number::GET_BASE_FREQ_INFO => {
            let (high, low, _, tjunction) = level.base_freq.ok_or(Errno::INVAL)?;
            let fields = [mhz(high), mhz(low), tjunction.into(), level.tdp];
            for (index, value) in fields.into_iter().enumerate() {
                put(bytes, 4 + 2 * index, value, 2);
            }
        }
        number::GET_BASE_FREQ_CPU_MASK => put(bytes, 8, level.base_freq.ok_or(Errno::INVAL)?.2, 8),
        number::GET_TURBO_FREQ_INFO => {
            let (cores, limits, clip) = level.turbo_freq.ok_or(Errno::INVAL)?;
            // SST_TF_MAX_LP_CLIP_RATIOS, TRL_MAX_BUCKETS and TRL_MAX_LEVELS, however many the
            // hardware uses.
            for (at, value) in [(4, 6u16), (6, 8), (8, 6)] {
                put(bytes, at, value, 2);
            }
            for (index, ratio) in clip.into_iter().enumerate() {
                put(bytes, 10 + 2 * index, mhz(ratio), 2);
            }
            for (bucket, cores) in cores.into_iter().enumerate() {
                put(bytes, 22 + 2 * bucket, u16::from(cores), 2);
            }
            put_turbo_limits(bytes, 38, &limits);
        }
        number::GET_PERF_LEVEL_FABRIC_INFO => {
            for (at, ratio) in [(8, 22u8), (24, 16), (40, 8)] {
                put(bytes, at, mhz(ratio), 2);
            }
        }
        _ => return Err(Errno::NOTTY),
    }
    Ok(())
}

fn put_level_info(level: &FakeLevel, bytes: &mut [u8]) {
    let fields = [
        u16::from(level.base[0]),
        mhz(level.base[0]),
        mhz(level.base[1]),
        mhz(level.base[2]),
        mhz(level.base[3]),
        level.tdp,
        level.tjunction.into(),
        // Memory frequency, MHz.
        4800,
        0,
    ];
    for (index, value) in fields.into_iter().enumerate() {
        put(bytes, 4 + 2 * index, value, 2);
    }
    // Not offset 34, the fabric's Pn, which the driver leaves empty too.
    for (at, ratio) in [(30, MESH[0]), (32, MESH[1]), (36, MESH[2])] {
        put(bytes, at, mhz(ratio), 2);
    }
    put(bytes, 38, 8u16, 2);
    put(bytes, 40, 6u16, 2);
    for (bucket, cores) in BUCKETS.into_iter().enumerate() {
        put(bytes, 42 + 2 * bucket, u16::from(cores), 2);
    }
    put_turbo_limits(bytes, 58, &level.trl);
}
