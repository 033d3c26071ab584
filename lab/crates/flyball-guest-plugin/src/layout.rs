//! Addresses of the guest's firmware interfaces that are not registers: the CPPC mailbox in memory,
//! and the P-state ports.

/// Guest-physical address of the CPPC mailbox. It is reserved in the kernel's memory map.
pub const MAILBOX: u64 = 0x0f00_0000;

/// Size of the memory there that the kernel does not use.
pub const MAILBOX_RESERVED: u64 = 1 << 20;

/// The P-state port of CPU 0; that of CPU n is n higher. QEMU's q35 has no device at these ports.
pub const PORTS: u16 = 0x5600;

/// The guest writes a byte to this port to put a mark into the log of register writes. The port
/// follows those of the CPUs. `/dev/port` can access it on any kernel, without a module.
pub const MARK: u16 = PORTS + MAX_CPUS as u16;

/// Maximum number of CPUs: each needs a port, a mailbox block, and an APIC id of 8 bits.
pub const MAX_CPUS: u32 = 255;

/// Byte offsets in a processor's block of the mailbox.
pub mod block {
    /// Size of a block; the first is the mailbox's header.
    pub const SIZE: u32 = 0x100;
    /// Desired performance, 32 bits.
    pub const DESIRED: u32 = 0x00;
    /// Lower limit, 32 bits.
    pub const MINIMUM: u32 = 0x04;
    /// Upper limit, 32 bits.
    pub const MAXIMUM: u32 = 0x08;
    /// CPPC enabled, 32 bits.
    pub const ENABLE: u32 = 0x0c;
    /// True if the hardware selects the performance level itself, 32 bits.
    pub const AUTONOMOUS: u32 = 0x10;
    /// Time window for this selection, 32 bits.
    pub const WINDOW: u32 = 0x14;
    /// Energy performance preference, 32 bits.
    pub const PREFERENCE: u32 = 0x18;
    /// Performance has been limited, 32 bits.
    pub const LIMITED: u32 = 0x1c;
    /// Guaranteed performance, 32 bits.
    pub const GUARANTEED: u32 = 0x20;
    /// Time window, 32 bits.
    pub const TIME_WINDOW: u32 = 0x24;
    /// Tolerance for lower performance, 32 bits.
    pub const TOLERANCE: u32 = 0x28;
    /// Reference counter, 64 bits.
    pub const REFERENCE: u32 = 0x30;
    /// Delivered counter, 64 bits.
    pub const DELIVERED: u32 = 0x38;
    /// Value at which the counters wrap, 64 bits.
    pub const WRAP: u32 = 0x40;

    /// Offset of a processor's block from the mailbox's base.
    pub const fn offset(number: u32) -> u32 {
        SIZE * (number + 1)
    }
}
