//! A file of the machine that is read in every sample.

use flyball_host::{Host, KeptFile};

/// The longest attribute that a sample reads is the name of a governor (CPUFREQ_NAME_LEN, 16).
pub(super) const SHORT: usize = 64;
pub(super) type Line = [u8; SHORT];

/// A file of the machine that is kept open between readings.
#[allow(missing_debug_implementations, reason = "an open file has nothing to show")]
pub struct KeptAttribute {
    path: String,
    state: State,
}

enum State {
    /// Not opened yet.
    New,
    Kept(Box<dyn KeptFile>),
    /// The host cannot keep it open, so each reading opens it.
    Each,
    /// It does not exist, or cannot be read.
    Gone,
}

impl KeptAttribute {
    /// Opens nothing before the first reading.
    pub fn new(path: String) -> KeptAttribute {
        KeptAttribute { path, state: State::New }
    }

    /// Reopens the file at the next reading. After its CPU was offline, the open descriptor may be
    /// of the old file.
    pub fn reopen(&mut self) {
        self.state = State::New;
    }

    fn open(&mut self, host: &dyn Host) {
        if matches!(self.state, State::New) {
            self.state = match host.keep_open(&self.path) {
                Ok(Some(file)) => State::Kept(file),
                // Out of descriptors, or a simulated or recorded host, which has none.
                Ok(None) => State::Each,
                Err(_) => State::Gone,
            };
        }
    }

    /// Reads the whole file. Returns `false` if it cannot be read.
    pub fn read_into(&mut self, host: &dyn Host, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        self.open(host);
        match &self.state {
            State::Kept(file) => {
                // /proc/stat of 512 CPUs is 50 kB, which one call hands out if there is room.
                buffer.resize(buffer.capacity().max(SHORT), 0);
                let mut length = 0;
                loop {
                    let Ok(count) = file.read_at(length as u64, &mut buffer[length..]) else {
                        self.state = State::Gone;
                        return false;
                    };
                    length += count;
                    // The kernel prints an attribute in one call. There is more only if the buffer
                    // is full.
                    if length < buffer.len() {
                        break;
                    }
                    buffer.resize(2 * length, 0);
                }
                buffer.truncate(length);
                true
            }
            State::Each => host.read_into(&self.path, buffer).is_ok(),
            State::New | State::Gone => false,
        }
    }

    /// Reads the first line of an attribute. Thousands are read per sample, and clearing a large
    /// buffer would cost more than the reading.
    pub(super) fn line<'b>(&mut self, host: &dyn Host, line: &'b mut Line) -> Option<&'b str> {
        self.open(host);
        let count = match &self.state {
            State::Kept(file) => {
                let Ok(count) = file.read_at(0, line) else {
                    self.state = State::Gone;
                    return None;
                };
                count
            }
            State::Each => {
                let text = host.read(&self.path).ok()?;
                let count = text.len().min(SHORT);
                line[..count].copy_from_slice(&text.as_bytes()[..count]);
                count
            }
            State::New | State::Gone => return None,
        };
        // Recordings may hold the same line twice.
        std::str::from_utf8(&line[..count])
            .ok()
            .map(|text| text.lines().next().unwrap_or_default().trim_end())
    }

    /// Reads a file that holds a number.
    pub fn number(&mut self, host: &dyn Host, buffer: &mut Vec<u8>) -> Option<u64> {
        if !self.read_into(host, buffer) {
            return None;
        }
        number(buffer)
    }

    /// Reads an attribute that holds a number.
    pub(super) fn short_number(&mut self, host: &dyn Host) -> Option<u64> {
        number(self.line(host, &mut [0; SHORT])?.as_bytes())
    }
}

/// The decimal number at the beginning of a line.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    text[..digits].iter().try_fold(0u64, |sum, byte| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')))
}
