//! The text of debugfs' `tpmi-BDF/tpmi-id-NN/mem_dump`: registers of a TPMI feature, instance by
//! instance.
//!
//! An instance is a power domain. Each begins with `TPMI Instance:0 offset:0x90007000`; then come
//! lines of up to eight 32-bit words in hexadecimal after their byte offset (tpmi_mem_dump_show in
//! drivers/platform/x86/intel/tpmi.c, in newer kernels vsec_tpmi.c).

/// The registers of one power domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Number in the dump.
    pub index: u32,
    /// Offset of the registers in the device's memory.
    pub offset: u64,
    /// The 32-bit words, in order.
    pub words: Vec<u32>,
}

/// A line that is invalid in a dump, with its number from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {0} is none of a register dump")]
pub struct BadLine(pub usize);

/// Limit on the words of one instance: a TPMI feature has at most 64 KiB (its directory entry has a
/// 16-bit size in words).
const MAX_WORDS: usize = 1 << 16;

/// Parses a dump. If the last line was cut within a word, that word is lost without an error. Any
/// other invalid line is an error.
///
/// # Errors
/// The first invalid line.
pub fn parse(bytes: &[u8]) -> Result<Vec<Instance>, BadLine> {
    let mut instances: Vec<Instance> = Vec::new();
    let lines = bytes.split(|&byte| byte == b'\n').count();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let bad = || BadLine(number + 1);
        let text = std::str::from_utf8(line).map_err(|_| bad())?.trim();
        if text.is_empty() {
            continue;
        }
        if let Some(rest) = text.strip_prefix("TPMI Instance:") {
            let (index, offset) = rest.split_once(" offset:0x").ok_or_else(bad)?;
            instances.push(Instance {
                index: index.parse().map_err(|_| bad())?,
                offset: u64::from_str_radix(offset, 16).map_err(|_| bad())?,
                words: Vec::new(),
            });
            continue;
        }
        let words = &mut instances.last_mut().ok_or_else(bad)?.words;
        let (offset, values) = text.split_once(':').ok_or_else(bad)?;
        let offset = usize::from_str_radix(offset, 16).map_err(|_| bad())?;
        // Lines must follow without a gap: a missing line would move every register after it.
        if offset != words.len() * 4 || offset / 4 > MAX_WORDS {
            return Err(bad());
        }
        for value in values.split_whitespace() {
            match u32::from_str_radix(value, 16) {
                Ok(word) if value.len() == 8 => words.push(word),
                // The last line of a truncated file may end within a word.
                _ if number + 1 == lines && value.len() < 8 => {}
                _ => return Err(bad()),
            }
        }
    }
    Ok(instances)
}

impl Instance {
    /// Returns the registers as 64-bit words. An odd word at the end is dropped.
    pub fn registers(&self) -> Vec<u64> {
        self.words.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect()
    }
}
