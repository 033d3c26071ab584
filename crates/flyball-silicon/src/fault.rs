//! Failures of register accesses: the processor raises a general protection fault, which a kernel
//! reports as EIO from /dev/cpu/N/msr.

/// Why a register access raised #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// This processor has no such register.
    #[error("#GP: this processor has no MSR {0:#x}")]
    NoSuchRegister(u32),
    /// The register can be read but not written.
    #[error("#GP: MSR {0:#x} is read-only")]
    ReadOnly(u32),
    /// The value sets bits that the register does not have, or a field to an invalid value.
    #[error("#GP: MSR {0:#x} does not take {1:#x}")]
    BadValue(u32, u64),
    /// There is no such CPU.
    #[error("there is no CPU {0}")]
    NoSuchCpu(usize),
}
