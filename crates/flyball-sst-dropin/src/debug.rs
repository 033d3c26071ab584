//! `--debug`: prints a line for every call of the driver and every write of a file.
//!
//! Mailbox, MMIO and MSR commands are in the format of the tool's debug output. Calls on power
//! domains, which the tool does not print, show their number and bytes. The tool's interpretation
//! of answers, which it prints between those lines, is omitted.

use std::{
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use flyball_host::{Host, HostError, isst::number};

/// The machine. Once `--debug` was given, it records its calls.
pub(super) struct DebugHost<'h> {
    host: &'h dyn Host,
    on: AtomicBool,
    lines: Mutex<String>,
}

impl<'h> DebugHost<'h> {
    pub(super) fn new(host: &'h dyn Host) -> DebugHost<'h> {
        DebugHost { host, on: AtomicBool::new(false), lines: Mutex::default() }
    }

    /// Starts recording.
    pub(super) fn begin(&self) {
        // The drop-in has one thread; the type is needed because hosts must be `Sync`.
        self.on.store(true, Ordering::Relaxed);
    }

    /// Takes the lines recorded since the last call.
    pub(super) fn take(&self) -> String {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn add(&self, line: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        lines.push_str(line);
        lines.push('\n');
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn bytes(argument: &[u8]) -> String {
    // Only the start, which has address and level: structures of levels have hundreds of bytes.
    argument.iter().take(32).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A call with its structure before and after it, as one line.
fn describe(call: u32, before: &[u8], after: &[u8], answer: Result<i32, &HostError>) -> String {
    let failed = answer.err().map_or(String::new(), |error| format!(" failed: {}", error.errno.describe()));
    match call {
        // Offsets include the count word: struct isst_if_mbox_cmd in include/uapi/linux/isst_if.h.
        number::MBOX_COMMAND => format!(
            "mbox_cmd response: cpu:{} command:{:x} sub_command:{:x} parameter:{:x} req_data:{:x} resp:{:x}{failed}",
            word(before, 4),
            word(before, 20) & 0xffff,
            word(before, 20) >> 16,
            word(before, 8),
            word(before, 12),
            word(after, 16),
        ),
        // struct isst_if_io_reg.
        number::IO_CMD => format!(
            "mmio_cmd response: cpu:{} reg:{:x} rd_write:{:x} resp:{:x}{failed}",
            word(before, 8),
            word(before, 12),
            word(before, 4),
            word(after, 16),
        ),
        number::MSR_COMMAND => {
            // struct isst_if_msr_cmd: its 64-bit fields require four bytes of padding after the
            // count.
            let value = u64::from(word(after, 24)) | u64::from(word(after, 28)) << 32;
            format!(
                "msr_cmd response: cpu:{} msr:{:x} rd_write:{:x} resp:{value:x} {value:x}{failed}",
                word(before, 12),
                word(before, 16),
                word(before, 8),
            )
        }
        _ => format!("call {}: {} answer: {}{failed}", call & 0xff, bytes(before), bytes(after)),
    }
}

impl Host for DebugHost<'_> {
    flyball_host::forward!(
        host: kind, topology_cache, name, read_into, cpuid, make_dir, remove_dir, list, exists, writable,
        link, msr, write_msr, now, sleep
    );

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let done = self.host.write(path, bytes);
        if self.on.load(Ordering::Relaxed) {
            let text = String::from_utf8_lossy(bytes);
            let failed = done
                .as_ref()
                .err()
                .map_or(String::new(), |error| format!(" failed: {}", error.errno.describe()));
            self.add(&format!("write {path}: {}{failed}", text.trim()));
        }
        done
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        if !self.on.load(Ordering::Relaxed) {
            return self.host.isst(number, argument);
        }
        // The driver writes its answer into the same bytes.
        let before = argument.to_vec();
        let answer = self.host.isst(number, argument);
        self.add(&describe(number, &before, argument, answer.as_ref().map(|&count| count)));
        answer
    }
}
