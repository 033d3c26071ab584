//! `--debug`: every call of the driver and every write of a file, a line each.
//!
//! Mailbox, MMIO and MSR commands are told as the tool tells their answers; calls of power domains, which it does not
//! tell, by number and bytes. The tool's own interpretation between those lines is not there.

use std::{
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_host::{Host, HostError, Kind, isst::number};

/// A machine whose calls are told, once that is asked for.
pub(super) struct Traced<'h> {
    host: &'h dyn Host,
    on: AtomicBool,
    lines: Mutex<String>,
}

impl<'h> Traced<'h> {
    pub(super) fn new(host: &'h dyn Host) -> Traced<'h> {
        Traced { host, on: AtomicBool::new(false), lines: Mutex::default() }
    }

    /// Tells from now on.
    pub(super) fn begin(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// The lines since the last time.
    pub(super) fn take(&self) -> String {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn tell(&self, line: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        lines.push_str(line);
        lines.push('\n');
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn bytes(argument: &[u8]) -> String {
    argument.iter().take(32).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A call before and after, in words.
fn told(call: u32, before: &[u8], after: &[u8], answer: Result<i32, &HostError>) -> String {
    let failed = answer.err().map_or(String::new(), |error| format!(" failed: {}", error.errno.describe()));
    match call {
        number::MBOX_COMMAND => format!(
            "mbox_cmd response: cpu:{} command:{:x} sub_command:{:x} parameter:{:x} req_data:{:x} resp:{:x}{failed}",
            word(before, 4),
            word(before, 20) & 0xffff,
            word(before, 20) >> 16,
            word(before, 8),
            word(before, 12),
            word(after, 16),
        ),
        number::IO_CMD => format!(
            "mmio_cmd response: cpu:{} reg:{:x} rd_write:{:x} resp:{:x}{failed}",
            word(before, 8),
            word(before, 12),
            word(before, 4),
            word(after, 16),
        ),
        number::MSR_COMMAND => {
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

impl Host for Traced<'_> {
    fn kind(&self) -> Kind {
        self.host.kind()
    }

    fn name(&self) -> String {
        self.host.name()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        self.host.read_into(path, buffer)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let done = self.host.write(path, bytes);
        if self.on.load(Ordering::Relaxed) {
            let text = String::from_utf8_lossy(bytes);
            let failed = done
                .as_ref()
                .err()
                .map_or(String::new(), |error| format!(" failed: {}", error.errno.describe()));
            self.tell(&format!("write {path}: {}{failed}", text.trim()));
        }
        done
    }

    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        self.host.make_dir(path)
    }

    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        self.host.remove_dir(path)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        self.host.list(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.host.exists(path)
    }

    fn writable(&self, path: &str) -> bool {
        self.host.writable(path)
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        self.host.link(path)
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        self.host.msr(cpu, register)
    }

    fn write_msr(&self, cpu: u32, register: u32, value: u64) -> Result<(), HostError> {
        self.host.write_msr(cpu, register, value)
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        if !self.on.load(Ordering::Relaxed) {
            return self.host.isst(number, argument);
        }
        let before = argument.to_vec();
        let answer = self.host.isst(number, argument);
        self.tell(&told(number, &before, argument, answer.as_ref().map(|&count| count)));
        answer
    }

    fn now(&self) -> Duration {
        self.host.now()
    }

    fn sleep(&self, time: Duration) {
        self.host.sleep(time);
    }
}
