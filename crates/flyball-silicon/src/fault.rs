//! Failures of register accesses: the processor raises a general protection fault, which a kernel
//! reports as EIO from /dev/cpu/N/msr.

use std::fmt;

/// Why a register access raised #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This processor has no such register.
    NoSuchRegister(u32),
    /// The register can be read but not written.
    ReadOnly(u32),
    /// The value sets bits that the register does not have, or a field to a value that it does not
    /// take.
    BadValue(u32, u64),
    /// There is no such CPU.
    NoSuchCpu(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoSuchRegister(r) => write!(f, "#GP: this processor has no MSR {r:#x}"),
            Fault::ReadOnly(r) => write!(f, "#GP: MSR {r:#x} is read-only"),
            Fault::BadValue(r, v) => write!(f, "#GP: MSR {r:#x} does not take {v:#x}"),
            Fault::NoSuchCpu(c) => write!(f, "there is no CPU {c}"),
        }
    }
}

impl std::error::Error for Fault {}
