//! The back-ends of the mailbox generation: isst_if_mbox_pci.c, isst_if_mbox_msr.c and
//! isst_if_mmio.c.

use flyball_silicon::msr;

use super::{Caller, put, u16_at, u32_at};
use crate::{
    errno::{Answer, Errno},
    isst_drivers::Backend,
    world::World,
};

/// The mailbox's registers in configuration space, data and interface.
const DATA: u32 = 0xa0;
const INTERFACE: u32 = 0xa4;
const BUSY: u32 = 1 << 31;
/// Average duration of a command, ns (OS_MAILBOX_TIMEOUT_AVG_US), and the driver's timeout.
const TAKES_NS: u64 = 40_000;
const WAITS_NS: u64 = 1_000_000;

/// Commands and sub-commands that isst_if_mbox_cmd_invalid() allows.
fn allowed(command: u16, sub: u16) -> bool {
    match command {
        0xd0 => sub <= 3,
        0x7f => matches!(sub, 0..=0x0c | 0x10..=0x12 | 0x20..=0x23),
        0x94 | 0x95 => sub == 3,
        _ => false,
    }
}

/// Returns whether isst_if_mbox_set_req() regards a command as a change, which needs privilege.
/// (intel-speed-select sends other parameters, which are not on this list.)
fn is_set(command: u16, sub: u16, parameter: u32) -> bool {
    match (command, sub) {
        (0xd0, 0..=3) => parameter == 8,
        (0x7f, 2 | 8) => parameter == 0,
        (0x95, 3) => parameter == 3,
        _ => false,
    }
}

/// Runs a command: CPU (0), parameter (4), request (8), response (12), command (16), part (18),
/// reserved (20).
pub(super) fn command(world: &mut World, element: &mut [u8], backend: Backend, caller: Caller) -> Answer {
    let (cpu, parameter, data) = (u32_at(element, 0), u32_at(element, 4), u32_at(element, 8));
    let (command, sub) = (u16_at(element, 16), u16_at(element, 18));
    if cpu >= world.platform.board.cpus() || !allowed(command, sub) {
        return Err(Errno::INVAL);
    }
    if is_set(command, sub, parameter) && caller != Caller::Root {
        return Err(Errno::PERM);
    }
    // Layout of the interface register: busy 31, parameter 29:16, part 15:8, command 7:0.
    let word = BUSY | (parameter & 0x3fff) << 16 | u32::from(sub & 0xff) << 8 | u32::from(command & 0xff);
    let answer = match backend {
        Backend::MailboxMsr => by_msr(world, cpu, word, data)?,
        _ => by_pci(world, cpu, word, data)?,
    };
    // The firmware has acted when the driver reads its answer, so the change is effective before
    // the next step.
    world.platform.chip.silicon_mut().settle();
    put(element, 12, &answer.to_le_bytes());
    Ok(())
}

/// isst_if_mbox_cmd(): wait for the mailbox, write data and command, wait again, check the
/// completion code, read data.
fn by_pci(world: &mut World, cpu: u32, word: u32, data: u32) -> Answer<u32> {
    let package = world.package_of(cpu)?;
    let silicon = world.platform.chip.silicon_mut();
    // The CPU's bus has no such function, so there is no device.
    let status = silicon.mailbox_config_read(package, INTERFACE).ok_or(Errno::INVAL)?;
    if status & BUSY != 0 {
        // The driver polls for this long and then gives up (OS_MAILBOX_TIMEOUT_MAX_US).
        world.platform.now += WAITS_NS;
        return Err(Errno::BUSY);
    }
    silicon.mailbox_config_write(package, DATA, data);
    silicon.mailbox_config_write(package, INTERFACE, word);
    let status = silicon.mailbox_config_read(package, INTERFACE).ok_or(Errno::INVAL)?;
    let answer = silicon.mailbox_config_read(package, DATA).ok_or(Errno::INVAL)?;
    world.platform.now += TAKES_NS;
    finish(status, answer)
}

/// isst_if_send_mbox_cmd() of Skylake, which runs on the CPU itself.
fn by_msr(world: &mut World, cpu: u32, word: u32, data: u32) -> Answer<u32> {
    if !world.is_online(cpu) {
        return Err(Errno::NXIO);
    }
    world.disturb(cpu);
    let chip = &mut world.platform.chip;
    if chip.read(cpu, msr::OS_MAILBOX_INTERFACE)? as u32 & BUSY != 0 {
        return Err(Errno::BUSY);
    }
    chip.write(cpu, msr::OS_MAILBOX_DATA, data.into())?;
    chip.write(cpu, msr::OS_MAILBOX_INTERFACE, word.into())?;
    let status = chip.read(cpu, msr::OS_MAILBOX_INTERFACE)? as u32;
    let answer = chip.read(cpu, msr::OS_MAILBOX_DATA)? as u32;
    finish(status, answer)
}

fn finish(status: u32, answer: u32) -> Answer<u32> {
    match status {
        _ if status & BUSY != 0 => Err(Errno::BUSY),
        // The driver has one errno for all completion codes other than 0.
        _ if status & 0xff != 0 => Err(Errno::NXIO),
        _ => Ok(answer),
    }
}

/// Accesses a register in the PUNIT's memory: read or write (0), CPU (4), register (8), value (12).
/// `last` is the last mapped register.
pub(super) fn mmio(world: &mut World, element: &mut [u8], last: u32, caller: Caller) -> Answer {
    let (write, cpu, register) = (u32_at(element, 0) != 0, u32_at(element, 4), u32_at(element, 8));
    if !register.is_multiple_of(4) {
        return Err(Errno::INVAL);
    }
    if write && caller != Caller::Root {
        return Err(Errno::PERM);
    }
    // The driver allows everything from the first range's start to the second's end, including the
    // gap (isst_if_mmio_rd_wr).
    if !(4..=last).contains(&register) {
        return Err(Errno::INVAL);
    }
    let package = world.package_of(cpu)?;
    let silicon = world.platform.chip.silicon_mut();
    if write {
        let done = silicon.mmio_write(package, register, u32_at(element, 12));
        silicon.settle();
        return if done { Ok(()) } else { Err(Errno::INVAL) };
    }
    let value = silicon.mmio_read(package, register).ok_or(Errno::INVAL)?;
    put(element, 12, &value.to_le_bytes());
    Ok(())
}
