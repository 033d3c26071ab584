//! isst_tpmi_core.c: packages and power domains, on the 64-bit registers of each domain.
//!
//! Kernel 6.12 up to 6.12.107 checks almost none of its arguments. A value that is too large for
//! its field spills into the next field, and an index that is too large names another register. Two
//! such arguments crash the kernel. The model reproduces this, because programs must not rely on
//! the checks of later kernels (6.12.117 has most of them).

use flyball_silicon::msr;

use super::{Caller, put, u16_at};
use crate::{
    errno::{Answer, Errno},
    kernel::Kernel,
    world::World,
};

/// Registers of a domain, from its core-power block.
const CP_CONTROL: u32 = 8;
const CP_STATUS: u32 = 16;
const CLOS: u32 = 24;
const ASSOC: u32 = 56;
/// Offsets from the domain's perf-profile block.
const PP_FEATURES: u32 = 8;
const PP_LEVELS: u32 = 16;
const PP_CONTROL: u32 = 24;
const PP_STATUS: u32 = 32;
/// Number of levels in a block.
const LEVELS: u32 = 5;

/// A field's first bit and width.
type Field = (u32, u32);
const ENABLE: Field = (0, 1);
const PRIORITY_TYPE: Field = (1, 1);
const CLOS_PRIORITY: Field = (4, 4);
const CLOS_MIN: Field = (8, 8);
const CLOS_MAX: Field = (16, 8);
const LEVEL: Field = (0, 3);
const FEATURES: Field = (8, 8);

/// PERF_SET_LEVEL polls every 5 ms, and then waits for as long again.
const SETTLES_NS: u64 = 5_000_000;
const POLLS: u32 = 4;

fn extract(value: u64, (from, width): Field) -> u64 {
    value >> from & ((1 << width) - 1)
}

/// Replaces a field by a value. A value that is too large spills over, as in the driver.
fn with(register: u64, (from, width): Field, value: u64) -> u64 {
    register & !(((1 << width) - 1) << from) | value << from
}

fn mhz(ratio: u64) -> u16 {
    ratio as u16 * 100
}

/// A power domain's registers, as the driver has them mapped.
struct Domain<'a> {
    world: &'a mut World,
    package: usize,
    number: usize,
    /// Offsets of the core-power and perf-profile blocks.
    cp: u32,
    pp: u32,
}

impl Domain<'_> {
    fn read(&self, offset: u32) -> u64 {
        // Beyond the block, real hardware has the next block's memory or nothing; a simulated one
        // has nothing.
        self.world.platform.chip.silicon().tpmi_read(self.package, self.number, offset).unwrap_or(0)
    }

    fn write(&mut self, offset: u32, value: u64) {
        let silicon = self.world.platform.chip.silicon_mut();
        silicon.tpmi_write(self.package, self.number, offset, value);
        silicon.settle();
    }

    fn set(&mut self, offset: u32, field: Field, value: u64) {
        let old = self.read(offset);
        self.write(offset, with(old, field, value));
    }

    fn header(&self) -> u64 {
        self.read(self.pp)
    }

    /// Mask of existing levels.
    fn enabled(&self) -> u64 {
        extract(self.header(), (12, 8))
    }

    fn highest(&self) -> u64 {
        u64::from((self.enabled() | 1).ilog2())
    }

    /// Offset of a part of a level's block (`what`: 0 its own registers, 1 base-freq, 2
    /// turbo-freq).
    fn block(&self, level: u32, what: u32) -> u32 {
        let start = extract(self.read(self.pp + PP_LEVELS), (8 * level.min(7), 8)) as u32;
        let feature = extract(self.read(self.pp + PP_FEATURES), (8 * what, 8)) as u32;
        self.pp + 8 * start + 8 * feature
    }

    /// Mask of the levels with base-freq (1) or turbo-freq (2).
    fn support(&self, what: u32) -> u8 {
        (0..LEVELS)
            .filter(|level| self.enabled() >> level & 1 == 1)
            .filter(|&level| self.read(self.block(level, what)) >> 12 & 1 == 1)
            .fold(0, |mask, level| mask | 1 << level)
    }

    /// Rejects a level that the domain does not have, as kernels since 6.12 do.
    fn check_level(&self, level: u64) -> Answer {
        if level > self.highest() || self.enabled() >> level & 1 == 0 { Err(Errno::INVAL) } else { Ok(()) }
    }
}

/// Number of a package's domains that the driver knows, and the mask of those with registers.
fn instances(world: &World, package: usize) -> Answer<(u8, u16)> {
    let silicon = world.platform.chip.silicon();
    if package >= silicon.topology().packages() {
        return Err(Errno::INVAL);
    }
    let count = silicon.tpmi_domains();
    let usable = |&domain: &usize| {
        let header = silicon.tpmi_read(package, domain, 0).unwrap_or(u64::MAX);
        // 0xff marks a missing domain. Only the version's major part, bits 7:5, must be 0.
        header & 0xff != 0xff && extract(header, (5, 3)) == 0
    };
    let mask = (0..count.min(16)).filter(usable).fold(0, |mask, domain| mask | 1u16 << domain);
    Ok((count as u8, mask))
}

fn domain(world: &mut World, package: u8, number: u8) -> Answer<Domain<'_>> {
    let (package, number) = (usize::from(package), usize::from(number));
    let (_, mask) = instances(world, package)?;
    if number >= 16 || mask >> number & 1 == 0 {
        return Err(Errno::INVAL);
    }
    let header = world.platform.chip.silicon().tpmi_read(package, number, 0).ok_or(Errno::INVAL)?;
    let (cp, pp) = (8 * extract(header, (16, 8)) as u32, 8 * extract(header, (24, 8)) as u32);
    Ok(Domain { world, package, number, cp, pp })
}

/// Returns whether the driver checks privilege and values: 6.12.107 does not, 6.12.117 and 7.2 do
/// (isst_tpmi_core.c, capable() and SST_MAX_CLOS).
fn checks(world: &World) -> bool {
    world.platform.since(Kernel::V7_2)
}

/// Fails if the domain's firmware forbids changes or the caller lacks privilege.
fn may_write(world: &World, caller: Caller) -> Answer {
    let silicon = world.platform.chip.silicon();
    let blocked = silicon.spec().sst.as_ref().is_some_and(|sst| sst.write_blocked);
    if blocked || checks(world) && caller != Caller::Root { Err(Errno::PERM) } else { Ok(()) }
}

/// Fails if HWP is off: the drivers change nothing while the firmware does not control frequencies.
fn hwp(world: &World) -> Answer {
    let on = world.platform.board.has("hwp")
        && world.platform.chip.read(0, msr::PM_ENABLE).is_ok_and(|v| v & 1 == 1);
    if on { Ok(()) } else { Err(Errno::FAULT) }
}

/// The driver accessed memory outside its mapping: the kernel kills the process, whose locks stay
/// taken.
fn oops(world: &mut World, what: &str) -> Errno {
    world.isst.fault = Some(format!("BUG: unable to handle page fault in isst_if_def_ioctl ({what})"));
    Errno::IO
}

/// Answers call `nr`, 5 or above, with the driver's own errno, which the common driver replaces
/// with `ENOTTY`.
pub(super) fn call(world: &mut World, nr: u32, argument: &mut [u8], caller: Caller) -> Answer<i32> {
    match nr {
        5 => {
            let (count, mask) = instances(world, usize::from(argument[0]))?;
            // If no domain is usable, the count is 0 (isst_if_get_tpmi_instance_count).
            argument[1] = if mask == 0 { 0 } else { count };
            put(argument, 2, &mask.to_le_bytes());
            Ok(0)
        }
        6 => core_power(world, argument, caller),
        7 => clos(world, argument, caller),
        8 => associate(world, argument, caller),
        9 => levels(world, argument),
        10 => set_level(world, argument, caller),
        11 => set_features(world, argument, caller),
        12 => level_info(world, argument),
        13 | 15 => core_mask(world, nr, argument),
        14 => base_freq(world, argument),
        16 => turbo_freq(world, argument),
        17 if checks(world) => fabric(world, argument),
        _ => Err(Errno::NOTTY),
    }
}

fn core_power(world: &mut World, argument: &mut [u8], caller: Caller) -> Answer<i32> {
    let set = argument[0] != 0;
    if set {
        hwp(world)?;
    }
    let strict = checks(world);
    let allowed = may_write(world, caller);
    let mut d = domain(world, argument[1], argument[2])?;
    if set {
        allowed?;
        if strict && (argument[3] > 1 || argument[5] > 1) {
            return Err(Errno::INVAL);
        }
        d.set(d.cp + CP_CONTROL, ENABLE, argument[3].into());
        d.set(d.cp + CP_CONTROL, PRIORITY_TYPE, argument[5].into());
        return Ok(0);
    }
    // The status register has the current state. The control register has the request, which
    // firmware may not have followed yet.
    let status = d.read(d.cp + CP_STATUS);
    argument[3] = extract(status, ENABLE) as u8;
    argument[4] = (d.read(0) >> 8 & 1) as u8;
    argument[5] = extract(status, PRIORITY_TYPE) as u8;
    Ok(0)
}

fn clos(world: &mut World, argument: &mut [u8], caller: Caller) -> Answer<i32> {
    let strict = checks(world);
    if strict && argument[3] > 3 {
        return Err(Errno::INVAL);
    }
    // Computed here, because the domain borrows the world. The driver rejects the call further
    // down.
    let allowed = may_write(world, caller);
    let mut d = domain(world, argument[1], argument[2])?;
    let register = d.cp + CLOS + 8 * u32::from(argument[3]);
    if argument[0] != 0 {
        allowed?;
        let (min, max) = (u16_at(argument, 4) / 100, u16_at(argument, 6) / 100);
        if strict && (min > 255 || max > 255 || argument[8] > 15) {
            return Err(Errno::INVAL);
        }
        d.set(register, CLOS_MIN, min.into());
        d.set(register, CLOS_MAX, max.into());
        d.set(register, CLOS_PRIORITY, argument[8].into());
        return Ok(0);
    }
    let value = d.read(register);
    put(argument, 4, &mhz(extract(value, CLOS_MIN)).to_le_bytes());
    put(argument, 6, &mhz(extract(value, CLOS_MAX)).to_le_bytes());
    argument[8] = extract(value, CLOS_PRIORITY) as u8;
    Ok(0)
}

/// Reads or sets classes of cores: count (0), set (2), numbering of the cores (4); elements from 6:
/// package, domain, core (2), class (4).
fn associate(world: &mut World, argument: &mut [u8], caller: Caller) -> Answer<i32> {
    let (count, set, punit) = (u16_at(argument, 0), u16_at(argument, 2) != 0, u16_at(argument, 4) != 0);
    if count == 0 || count > 64 {
        return Err(Errno::INVAL);
    }
    let strict = checks(world);
    let allowed = may_write(world, caller);
    for index in 0..usize::from(count) {
        let element = argument.get_mut(6 + 6 * index..12 + 6 * index).ok_or(Errno::FAULT)?;
        let (core, class) = (u16_at(element, 2), u16_at(element, 4));
        if strict && (class > 3 || core > 63) {
            return Err(Errno::INVAL);
        }
        let (count, mask) = instances(world, usize::from(element[0]))?;
        if !punit {
            return Err(Errno::OPNOTSUPP);
        }
        if u16::from(element[1]) < u16::from(count) && mask >> element[1] & 1 == 0 && strict {
            // 7.2 checks the domain's number, but not whether the domain has registers.
            return Err(oops(world, "association with a power domain without registers"));
        }
        if set {
            allowed?;
        }
        let mut d = domain(world, element[0], element[1])?;
        let register = d.cp + ASSOC + 8 * u32::from(core / 16);
        let field = (u32::from(core % 16) * 4, 4);
        if set {
            d.set(register, field, class.into());
        } else {
            let class = extract(d.read(register), field) as u16;
            put(element, 4, &class.to_le_bytes());
        }
    }
    Ok(0)
}

fn levels(world: &mut World, argument: &mut [u8]) -> Answer<i32> {
    let d = domain(world, argument[0], argument[1])?;
    let (header, status) = (d.header(), d.read(d.pp + PP_STATUS));
    let facts = [
        d.highest() as u8,
        extract(header, (4, 8)) as u8,
        d.enabled() as u8,
        extract(status, LEVEL) as u8,
        extract(status, FEATURES) as u8,
        (status >> 3 & 1) as u8,
        // Support of perf-profile: the capability's second bit.
        (d.read(0) >> 9 & 1) as u8,
        d.support(2),
        d.support(1),
    ];
    put(argument, 2, &facts);
    Ok(0)
}

fn set_level(world: &mut World, argument: &mut [u8], caller: Caller) -> Answer<i32> {
    hwp(world)?;
    let allowed = may_write(world, caller);
    let level = u64::from(argument[2]);
    let mut d = domain(world, argument[0], argument[1])?;
    if level > d.highest() {
        return Err(Errno::INVAL);
    }
    allowed?;
    let current = extract(d.read(d.pp + PP_STATUS), LEVEL);
    // Reject a level outside allowed_level_mask, and also the current level.
    if extract(d.header(), (20, 8)) >> level & 1 == 0 || current == level {
        return Err(Errno::INVAL);
    }
    let control = d.pp + PP_CONTROL;
    d.set(control, LEVEL, level);
    for look in 1..=POLLS {
        d.world.platform.now += SETTLES_NS;
        if extract(d.read(d.pp + PP_STATUS), LEVEL) == level {
            // A new level starts with all features off.
            d.set(control, FEATURES, 0);
            d.world.platform.now += SETTLES_NS;
            return Ok(0);
        }
        if look == POLLS {
            break;
        }
    }
    Err(Errno::FAULT)
}

fn set_features(world: &mut World, argument: &mut [u8], caller: Caller) -> Answer<i32> {
    hwp(world)?;
    let strict = checks(world);
    let allowed = may_write(world, caller);
    let mut d = domain(world, argument[0], argument[1])?;
    allowed?;
    if strict && argument[2] > 3 {
        return Err(Errno::INVAL);
    }
    d.set(d.pp + PP_CONTROL, FEATURES, argument[2].into());
    Ok(0)
}

/// Writes a register's eight ratios as frequencies at an offset of the structure.
fn ratios(argument: &mut [u8], at: usize, register: u64) {
    for (index, ratio) in register.to_le_bytes().into_iter().enumerate() {
        put(argument, at + 2 * index, &mhz(ratio.into()).to_le_bytes());
    }
}

/// Writes a register's eight bytes at an offset of the structure.
fn numbers(argument: &mut [u8], at: usize, register: u64) {
    for (index, number) in register.to_le_bytes().into_iter().enumerate() {
        put(argument, at + 2 * index, &u16::from(number).to_le_bytes());
    }
}

fn level_info(world: &mut World, argument: &mut [u8]) -> Answer<i32> {
    let level = u64::from(u16_at(argument, 2));
    let d = domain(world, argument[0], argument[1])?;
    d.check_level(level)?;
    let start = d.block(level as u32, 0);
    let info = |n: u32| d.read(start + 8 * n);
    let (base, limits, range) = (info(0), info(1), info(11));
    let fields: [u16; 17] = [
        extract(base, (0, 8)) as u16,
        mhz(extract(base, (0, 8))),
        mhz(extract(base, (8, 8))),
        mhz(extract(base, (16, 8))),
        mhz(extract(base, (24, 8))),
        // The design power is in eighths of a watt.
        (extract(limits, (32, 15)) / 8) as u16,
        extract(limits, (47, 8)) as u16,
        mhz(extract(limits, (55, 7))),
        extract(limits, (62, 2)) as u16,
        mhz(extract(range, (0, 8))),
        mhz(extract(range, (8, 8))),
        mhz(extract(range, (16, 8))),
        mhz(extract(range, (24, 8))),
        mhz(extract(range, (32, 8))),
        mhz(extract(range, (40, 8))),
        // The driver never fills pn_fabric_freq_mhz.
        0,
        mhz(extract(range, (48, 8))),
    ];
    let buckets = info(10);
    let trl: Vec<u64> = (4..10).map(info).collect();
    for (index, value) in fields.into_iter().enumerate() {
        put(argument, 4 + 2 * index, &value.to_le_bytes());
    }
    // TRL_MAX_BUCKETS and TRL_MAX_LEVELS.
    put(argument, 38, &[8, 0, 6, 0]);
    numbers(argument, 42, buckets);
    for (index, register) in trl.into_iter().enumerate() {
        ratios(argument, 58 + 16 * index, register);
    }
    Ok(0)
}

fn core_mask(world: &mut World, nr: u32, argument: &mut [u8]) -> Answer<i32> {
    let strict = checks(world);
    let (level, punit) = (u32::from(argument[2]), argument[3] != 0);
    let d = domain(world, argument[0], argument[1])?;
    if strict {
        d.check_level(level.into())?;
    }
    if !punit {
        return Err(Errno::OPNOTSUPP);
    }
    let register = if nr == 13 { d.block(level, 0) + 16 } else { d.block(level, 1) + 8 };
    if u64::from(level) > d.highest() {
        // 6.12 takes the block's offset from beyond its table, which sooner or later leaves the
        // mapping.
        return Err(oops(world, "core mask of a level that there is not"));
    }
    let mask = d.read(register);
    put(argument, 8, &mask.to_le_bytes());
    Ok(0)
}

fn base_freq(world: &mut World, argument: &mut [u8]) -> Answer<i32> {
    let level = u64::from(u16_at(argument, 2));
    let d = domain(world, argument[0], argument[1])?;
    d.check_level(level)?;
    let info = d.read(d.block(level as u32, 1));
    let fields = [
        mhz(extract(info, (13, 8))),
        mhz(extract(info, (21, 8))),
        extract(info, (38, 8)) as u16,
        (extract(info, (46, 15)) / 8) as u16,
    ];
    for (index, value) in fields.into_iter().enumerate() {
        put(argument, 4 + 2 * index, &value.to_le_bytes());
    }
    Ok(0)
}

fn turbo_freq(world: &mut World, argument: &mut [u8]) -> Answer<i32> {
    let level = u64::from(u16_at(argument, 2));
    let d = domain(world, argument[0], argument[1])?;
    d.check_level(level)?;
    let start = d.block(level as u32, 2);
    let info: Vec<u64> = (0..9).map(|n| d.read(start + 8 * n)).collect();
    put(argument, 4, &[6, 0, 8, 0, 6, 0]);
    for index in 0..6 {
        let clip = mhz(extract(info[0], (16 + 8 * index, 8)));
        put(argument, 10 + 2 * index as usize, &clip.to_le_bytes());
    }
    numbers(argument, 22, info[1]);
    // From revision 2 on, modules are counted instead of cores, if there are any.
    if extract(info[0], (4, 8)) >= 2 && info[8] & 0xffff_ffff_ffff != 0 {
        for bucket in 0..3 {
            put(
                argument,
                22 + 2 * bucket as usize,
                &(extract(info[8], (16 * bucket, 16)) as u16).to_le_bytes(),
            );
        }
    }
    for index in 0..6 {
        ratios(argument, 38 + 16 * index, info[2 + index]);
    }
    Ok(0)
}

/// The fabrics' frequencies: p0[8] at 6, p1[8] at 22, pm[8] at 38.
fn fabric(world: &mut World, argument: &mut [u8]) -> Answer<i32> {
    let level = u64::from(u16_at(argument, 2));
    let d = domain(world, argument[0], argument[1])?;
    d.check_level(level)?;
    if extract(d.header(), (4, 8)) < 2 {
        return Err(Errno::INVAL);
    }
    let start = d.block(level as u32, 0);
    let (first, second) = (d.read(start + 88) >> 32, d.read(start + 96));
    put(argument, 4, &[2, 0]);
    for (fabric, register) in [first, second].into_iter().enumerate() {
        for (which, at) in [(0, 6), (8, 22), (16, 38)] {
            let value = mhz(extract(register, (which, 8)));
            put(argument, at + 2 * fabric, &value.to_le_bytes());
        }
    }
    Ok(0)
}
