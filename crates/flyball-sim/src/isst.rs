//! /dev/isst_interface: the ioctls of Speed Select as the kernel's drivers answer them
//! (drivers/platform/x86/intel/speed_select_if), on flyball-silicon's registers.
//!
//! This file models isst_if_common.c: the node, the drivers' properties, CPU numbers, and the few
//! MSRs that it allows. mailbox.rs models isst_if_mbox_pci.c, isst_if_mbox_msr.c and
//! isst_if_mmio.c; tpmi.rs models isst_tpmi_core.c. An argument is the call's structure in the
//! caller's memory layout. Where the driver would copy data back, the argument is changed in place.

mod mailbox;
mod tpmi;

use flyball_silicon::msr;

use crate::{
    errno::{Answer, Errno},
    isst_drivers::Backend,
    world::World,
};

/// The node's path.
pub(crate) const NODE: &str = "/dev/isst_interface";

/// The calls' type (magic). Their numbers have the size of a pointer, as ioctl(2) gets them:
/// direction, 8 bytes, 0xFE, number.
const MAGIC: u32 = 0xfe;

/// Maximum number of commands in a call.
const MAX: usize = 64;

/// A caller of ioctl(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A caller with CAP_SYS_ADMIN.
    Root,
    /// A caller without privilege that has the node open.
    Ordinary,
}

/// Returns how many bytes of its argument a call can access, from the call's number and the
/// argument's first four bytes. 0 for an unknown call or a rejected count of commands.
pub fn argument_size(number: u32, head: [u8; 4]) -> usize {
    let many = |count: usize, header: usize, each: usize| {
        if count == 0 || count > MAX { header } else { header + count * each }
    };
    // Calls with several commands begin with their count, of 32 bits, or of 16 for association.
    let word = u32::from_le_bytes(head) as usize;
    let half = usize::from(u16::from_le_bytes([head[0], head[1]]));
    if number >> 8 & 0xff != MAGIC {
        return 0;
    }
    match number & 0xff {
        0 => 8,
        1 => many(word, 4, 8),
        2 => many(word, 4, 16),
        3 => many(word, 4, 24),
        4 => many(word, 8, 24),
        5 => 4,
        6 => 6,
        7 => 10,
        8 => many(half, 6, 6),
        9 => 11,
        10 | 11 => 3,
        12 => 154,
        13 | 15 => 24,
        14 => 12,
        16 => 134,
        17 => 54,
        _ => 0,
    }
}

/// Reads little-endian fields of a structure. Callers check the offsets.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

pub(crate) fn call(world: &mut World, number: u32, argument: &mut [u8], caller: Caller) -> Answer<i32> {
    let backend = world.isst.backend.ok_or(Errno::NOENT)?;
    if world.isst.fault.is_some() {
        // A real driver hangs here, because it died with a lock held.
        return Err(Errno::IO);
    }
    let mut head = [0; 4];
    for (to, from) in head.iter_mut().zip(argument.iter()) {
        *to = *from;
    }
    let size = argument_size(number, head);
    // The driver compares the whole number, so a wrong direction or size makes the call unknown.
    if size == 0 || number != encoded(number & 0xff) {
        return Err(Errno::NOTTY);
    }
    // copy_from_user() fails like this on memory that is not the caller's.
    if argument.len() < size {
        return Err(Errno::FAULT);
    }
    let tpmi = backend == Backend::Tpmi;
    let nr = number & 0xff;
    match nr {
        0 => {
            // Version 1 of the interface, or 3 with TPMI; version 1 of the driver; the two flags.
            let mailbox = matches!(backend, Backend::MailboxMsr | Backend::MailboxPci(_));
            let mmio = matches!(backend, Backend::MailboxPci(_));
            put(argument, 0, &[if tpmi { 3 } else { 1 }, 0, 1, 0, MAX as u8, 0, mailbox.into(), mmio.into()]);
            Ok(0)
        }
        1 => each(argument, 4, 8, |element| {
            let cpu = u32_at(element, 0);
            let known = world.punit_cpu(cpu, tpmi)?;
            // The driver's own copy of the number, read when the CPU came online.
            put(element, 4, &known.to_le_bytes());
            Ok(())
        }),
        2 => match backend {
            Backend::MailboxPci(last) => {
                each(argument, 4, 16, |element| mailbox::mmio(world, element, last, caller))
            }
            _ => Err(Errno::NOTTY),
        },
        3 if tpmi => Err(Errno::NOTTY),
        3 => each(argument, 4, 24, |element| mailbox::command(world, element, backend, caller)),
        4 => each(argument, 8, 24, |element| register(world, element, caller)),
        // The common driver replaces the back-end's error with its own.
        _ if tpmi => tpmi::call(world, nr, argument, caller).map_err(|errno| match errno {
            Errno::IO if world.isst.fault.is_some() => Errno::IO,
            _ => Errno::NOTTY,
        }),
        _ => Err(Errno::NOTTY),
    }
}

/// A call's number with its direction, as the header's macros encode it.
fn encoded(nr: u32) -> u32 {
    let direction = match nr {
        0 | 5 | 12..=17 => 2,
        2 | 10 | 11 => 1,
        _ => 3,
    };
    direction << 30 | 8 << 16 | MAGIC << 8 | nr
}

/// Runs the commands of a call in order until one fails. Returns the number of completed commands.
/// The caller sees the error only if the first command failed.
fn each(
    argument: &mut [u8],
    header: usize,
    size: usize,
    mut one: impl FnMut(&mut [u8]) -> Answer,
) -> Answer<i32> {
    let count = u32_at(argument, 0) as usize;
    if count == 0 || count > MAX {
        return Err(Errno::INVAL);
    }
    for index in 0..count {
        let from = header + index * size;
        let element = argument.get_mut(from..from + size).ok_or(Errno::FAULT)?;
        if let Err(errno) = one(element) {
            return if index == 0 { Err(errno) } else { Ok(index as i32) };
        }
    }
    Ok(count as i32)
}

/// Accesses an MSR that the driver allows: read or write (0), CPU (4), number (8), value (16).
fn register(world: &mut World, element: &mut [u8], caller: Caller) -> Answer {
    let (write, cpu, number) = (u32_at(element, 0) != 0, u32_at(element, 4), u64_at(element, 8));
    let allowed = [
        msr::TURBO_RATIO_LIMIT,
        msr::TURBO_RATIO_LIMIT1,
        msr::TURBO_RATIO_LIMIT2,
        msr::CONFIG_TDP_CONTROL,
        msr::PM_LOGICAL_ID,
    ];
    let register = allowed.into_iter().find(|&r| u64::from(r) == number).ok_or(Errno::INVAL)?;
    if cpu >= world.platform.board.cpus() {
        return Err(Errno::INVAL);
    }
    // Reading the registers needs no privilege (isst_if_msr_cmd_req).
    if write && caller != Caller::Root {
        return Err(Errno::PERM);
    }
    // rdmsrl_safe_on_cpu() fails like this for an offline CPU.
    if !world.is_online(cpu) {
        return Err(Errno::NXIO);
    }
    // The access runs in an interrupt on the CPU itself, which wakes it.
    world.disturb(cpu);
    if write {
        world.platform.chip.write(cpu, register, u64_at(element, 16))
    } else {
        let value = world.platform.chip.read(cpu, register)?;
        put(element, 16, &value.to_le_bytes());
        Ok(())
    }
}

impl World {
    /// The power unit's number of a CPU, as the driver read it when the CPU came online.
    pub(crate) fn punit_cpu(&self, cpu: u32, tpmi: bool) -> Answer<u32> {
        if cpu >= self.platform.board.cpus() {
            return Err(Errno::INVAL);
        }
        let read = |register| self.platform.chip.read(cpu, register);
        let raw = if tpmi { read(msr::PM_LOGICAL_ID) } else { Err(Errno::IO) };
        // A CPU that faults on the register keeps -1.
        Ok(raw.or_else(|_| read(msr::THREAD_ID_INFO)).map_or(u32::MAX, |raw| raw as u32))
    }

    /// A CPU's package, with the drivers' error for an unknown CPU.
    fn package_of(&self, cpu: u32) -> Answer<usize> {
        let place = self.platform.board.places.get(cpu as usize).ok_or(Errno::INVAL)?;
        Ok(place.package as usize)
    }
}

#[cfg(test)]
mod tests;
