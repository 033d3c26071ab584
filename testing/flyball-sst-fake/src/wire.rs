//! Little-endian fields of the driver's structures.

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: impl Into<u64>, size: usize) {
    bytes[at..at + size].copy_from_slice(&value.into().to_le_bytes()[..size]);
}
