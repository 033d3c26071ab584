//! The calls of API 1: CPU numbers of the power unit, mailbox commands, MMIO registers, MSRs.
//!
//! A call carries up to 64 commands. The driver runs them in order, stops at the first failure and
//! returns how many it ran. The error itself is lost unless the first command failed. So this
//! module sends one command per call, to get the errno of every failure. Only CPU numbers, which
//! are many and harmless, are queried in batches.

use super::{bad_argument, call, number, wire};
use crate::{
    Errno, Host, HostError,
    msr::{
        MSR_CONFIG_TDP_CONTROL, MSR_PM_LOGICAL_ID, MSR_TURBO_RATIO_LIMIT, MSR_TURBO_RATIO_LIMIT1,
        MSR_TURBO_RATIO_LIMIT2,
    },
};

/// Number of commands that fit in one call (isst_if_common.c).
pub const MAX_COMMANDS: usize = 64;

/// Returns the bytes of isst_if_cpu_maps with `count` elements.
pub const fn cpu_maps_size(count: usize) -> usize {
    4 + 8 * count
}

/// Returns the bytes of isst_if_io_regs with `count` elements.
pub const fn io_regs_size(count: usize) -> usize {
    4 + 16 * count
}

/// Returns the bytes of isst_if_mbox_cmds with `count` elements.
pub const fn mbox_cmds_size(count: usize) -> usize {
    4 + 24 * count
}

/// Returns the bytes of isst_if_msr_cmds with `count` elements.
pub const fn msr_cmds_size(count: usize) -> usize {
    8 + 24 * count
}

/// A CPU's number in the power unit: the raw content of MSR 0x53 (API 1) or 0x54 (TPMI).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PunitCpu(pub u32);

impl PunitCpu {
    /// The driver's value for a CPU whose MSR it could not read.
    pub const UNKNOWN: PunitCpu = PunitCpu(u32::MAX);

    /// Splits it into the power domain and the core within it. On TPMI processors these are bits
    /// 15:11 and 10:3 of MSR 0x54 (module); on older ones bits 13:9 and 8:1 of MSR 0x53.
    pub fn split(self, tpmi: bool) -> (u8, u16) {
        if tpmi {
            ((self.0 >> 11 & 0x1f) as u8, (self.0 >> 3 & 0xff) as u16)
        } else {
            ((self.0 >> 9 & 0x1f) as u8, (self.0 >> 1 & 0xff) as u16)
        }
    }
}

/// Reads the power unit's numbers of `cpus`, in their order. `None` for a CPU that the driver does
/// not know, and [`PunitCpu::UNKNOWN`] if it could not read the CPU's MSR.
///
/// # Errors
/// The errno of the call if the driver returns a number for no CPU at all.
pub fn punit_cpus(host: &dyn Host, cpus: &[u32]) -> Result<Vec<Option<PunitCpu>>, HostError> {
    let mut answers = Vec::with_capacity(cpus.len());
    let mut rest = cpus;
    let mut interruptions = 0;
    while !rest.is_empty() {
        let count = rest.len().min(MAX_COMMANDS);
        let mut argument = vec![0; cpu_maps_size(count)];
        wire::put(&mut argument, 0, &(count as u32).to_le_bytes());
        for (index, cpu) in rest[..count].iter().enumerate() {
            wire::put(&mut argument, 4 + 8 * index, &cpu.to_le_bytes());
        }
        let done = match host.isst(number::GET_PHY_ID, &mut argument) {
            // `done` CPUs were answered. The next one was refused, or a signal arrived
            // (isst_if_exec_multi_cmd).
            Ok(done) => usize::try_from(done).unwrap_or(0).min(count),
            // If the first CPU of the batch is refused, the call itself fails.
            Err(error) if error.errno == Errno::INVAL => 0,
            // The signal came before the first CPU, so retry. The limit is for a host that never
            // returns anything else.
            Err(error) if error.errno == Errno::INTR && interruptions < 16 => {
                interruptions += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        for index in 0..done {
            let raw = PunitCpu(wire::u32_at(&argument, 8 + 8 * index));
            answers.push(Some(raw));
        }
        // Skip a CPU that is refused as the first of a batch, and query the rest again.
        if done == 0 {
            answers.push(None);
        }
        rest = &rest[done.max(1)..];
    }
    Ok(answers)
}

/// A mailbox command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mailbox {
    /// The CPU whose package is queried.
    pub cpu: u32,
    /// Command, e.g. 0x7F for CONFIG_TDP.
    pub command: u16,
    pub sub_command: u16,
    /// Parameter that goes into the interface register with the command.
    pub parameter: u32,
    /// The data word.
    pub data: u32,
}

/// Returns whether the driver accepts a command and sub-command. It answers others with `EINVAL`.
fn mailbox_allows(command: u16, sub_command: u16) -> bool {
    // `isst_valid_cmds` of isst_if_common.c.
    match command {
        0xd0 => sub_command <= 0x03,
        0x7f => matches!(sub_command, 0x00..=0x0c | 0x10..=0x12 | 0x20..=0x23),
        0x94 | 0x95 => sub_command == 0x03,
        _ => false,
    }
}

impl Mailbox {
    /// Sends the command and returns the response's data word.
    ///
    /// # Errors
    /// `ENOTTY` without a mailbox driver, `ENXIO` if the firmware refuses, `EBUSY` if it does not
    /// answer, `EINVAL` for a CPU without a mailbox or a command outside the driver's list (which
    /// is not sent).
    pub fn send(&self, host: &dyn Host) -> Result<u32, HostError> {
        // The PCI driver silently masks the parameter to 14 bits, so a longer one would be a
        // different command.
        if !mailbox_allows(self.command, self.sub_command) || self.parameter > 0x3fff {
            return Err(bad_argument(format_args!(
                "mailbox command {:02x}/{:02x} with parameter {:#x}",
                self.command, self.sub_command, self.parameter
            )));
        }
        let mut argument = [0; mbox_cmds_size(1)];
        wire::put(&mut argument, 0, &1u32.to_le_bytes());
        wire::put(&mut argument, 4, &self.cpu.to_le_bytes());
        wire::put(&mut argument, 8, &self.parameter.to_le_bytes());
        wire::put(&mut argument, 12, &self.data.to_le_bytes());
        wire::put(&mut argument, 20, &self.command.to_le_bytes());
        wire::put(&mut argument, 22, &self.sub_command.to_le_bytes());
        call(host, number::MBOX_COMMAND, &mut argument, || {
            format!(
                "mailbox command {:02x}/{:02x} (parameter {:#x}, data {:#x}) on CPU {}",
                self.command, self.sub_command, self.parameter, self.data, self.cpu
            )
        })?;
        Ok(wire::u32_at(&argument, 16))
    }
}

/// The end of the registers that the driver maps, on the processors with more of them
/// (isst_if_mmio.c).
const MMIO_END: u32 = 0x11c;

fn mmio(host: &dyn Host, cpu: u32, register: u32, write: Option<u32>) -> Result<u32, HostError> {
    // isst_if_mmio.c tests the alignment first, then the processor's range.
    if !register.is_multiple_of(4) || !(0x04..=MMIO_END).contains(&register) {
        return Err(bad_argument(format_args!("MMIO register {register:#x}")));
    }
    let mut argument = [0; io_regs_size(1)];
    wire::put(&mut argument, 0, &1u32.to_le_bytes());
    wire::put(&mut argument, 4, &u32::from(write.is_some()).to_le_bytes());
    wire::put(&mut argument, 8, &cpu.to_le_bytes());
    wire::put(&mut argument, 12, &register.to_le_bytes());
    wire::put(&mut argument, 16, &write.unwrap_or(0).to_le_bytes());
    call(host, number::IO_CMD, &mut argument, || format!("MMIO register {register:#x} on CPU {cpu}"))?;
    Ok(wire::u32_at(&argument, 16))
}

/// Reads a 32-bit MMIO register of the CPU's package.
///
/// # Errors
/// `ENOTTY` without the driver isst_if_mmio; `EINVAL` for a register outside of its range.
pub fn read_mmio(host: &dyn Host, cpu: u32, register: u32) -> Result<u32, HostError> {
    mmio(host, cpu, register, None)
}

/// Writes a 32-bit MMIO register of the CPU's package.
///
/// # Errors
/// Same as [`read_mmio`], and `EPERM` without CAP_SYS_ADMIN.
pub fn write_mmio(host: &dyn Host, cpu: u32, register: u32, value: u32) -> Result<(), HostError> {
    mmio(host, cpu, register, Some(value)).map(|_| ())
}

/// Registers that the driver allows (isst_if_common.c, `punit_msr_white_list`).
const ALLOWED: [u32; 5] = [
    MSR_TURBO_RATIO_LIMIT,
    MSR_TURBO_RATIO_LIMIT1,
    MSR_TURBO_RATIO_LIMIT2,
    MSR_CONFIG_TDP_CONTROL,
    MSR_PM_LOGICAL_ID,
];

fn msr(host: &dyn Host, cpu: u32, register: u32, write: Option<u64>) -> Result<u64, HostError> {
    if !ALLOWED.contains(&register) {
        return Err(bad_argument(format_args!("MSR {register:#x}")));
    }
    let mut argument = [0; msr_cmds_size(1)];
    wire::put(&mut argument, 0, &1u32.to_le_bytes());
    // At 8, not directly after the count at 4: the structure has 64-bit fields and is aligned for
    // them.
    wire::put(&mut argument, 8, &u32::from(write.is_some()).to_le_bytes());
    wire::put(&mut argument, 12, &cpu.to_le_bytes());
    wire::put(&mut argument, 16, &u64::from(register).to_le_bytes());
    wire::put(&mut argument, 24, &write.unwrap_or(0).to_le_bytes());
    let what = || format!("MSR {register:#x} of CPU {cpu} through {}", super::NODE);
    call(host, number::MSR_COMMAND, &mut argument, what)?;
    Ok(wire::u64_at(&argument, 24))
}

/// Reads one of the MSRs that the driver allows.
///
/// # Errors
/// `EINVAL` for any other register; the errno of the call.
pub fn read_msr(host: &dyn Host, cpu: u32, register: u32) -> Result<u64, HostError> {
    msr(host, cpu, register, None)
}

/// Writes one of the MSRs that the driver allows. The driver repeats the write after a resume.
///
/// # Errors
/// Same as [`read_msr`], and `EPERM` without CAP_SYS_ADMIN.
pub fn write_msr(host: &dyn Host, cpu: u32, register: u32, value: u64) -> Result<(), HostError> {
    msr(host, cpu, register, Some(value)).map(|_| ())
}
