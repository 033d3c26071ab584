//! A setting that the user's commands read and write: the size of a pool, a tunable of a program. A
//! search changes and restores it like a kernel knob.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    time::Duration,
};

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use schemars::JsonSchema;

use crate::{Errno, Host, HostError, Launch, Op};

/// Placeholder for the value in a command.
const VALUE: &str = "{value}";

/// The reading of a knob without a command for reading.
const UNREAD: &[u8] = b"unread";

/// Time limit for a command. A command that hangs would keep the machine in a state that is neither
/// the old nor the new one.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for the command to end after SIGTERM.
const AFTER_TERM: Duration = Duration::from_secs(2);

/// Limit on the bytes of output that are read: a value is a word.
const MAX_OUTPUT: u64 = 4096;

/// Limit on the bytes of a command. The journal repeats it in each line about the knob.
const MAX_COMMAND: usize = 4096;

/// A setting with its commands, each a line for /bin/sh. The journal stores them, so that the
/// setting can be restored even if the file that defined them has changed or is gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandKnob {
    pub name: String,
    /// Prints the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    /// Sets `{value}`.
    pub write: String,
    /// Sets the earlier value, if that needs another command than `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
}

impl CommandKnob {
    /// Returns why the knob cannot be used; `None` if it can be.
    pub fn fault(&self) -> Option<&'static str> {
        let commands = [self.read.as_ref(), Some(&self.write), self.restore.as_ref()];
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_lowercase())
                && name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b))
        };
        if !is_name(&self.name) {
            Some("its name must be lower-case letters, digits, '-', '_' and '.', beginning with a letter")
        } else if !self.write.contains(VALUE) {
            Some("'write' does not contain {value}")
        } else if self.read.is_none() && self.restore.is_none() {
            Some("it has no 'read', so what is there cannot be restored; give 'read' or 'restore'")
        } else if self.read.is_none() && self.restore.as_ref().is_some_and(|command| command.contains(VALUE))
        {
            Some("'restore' contains {value}, and there is no 'read' to fill it")
        } else if self.read.as_ref().is_some_and(|command| command.contains(VALUE)) {
            Some("'read' contains {value}")
        } else if commands.into_iter().flatten().any(|command| {
            command.trim().is_empty()
                || command.len() > MAX_COMMAND
                // A line end separates commands in a shell. Other control characters would be
                // invisible in messages.
                || command.contains(|c: char| c.is_control() && c != '\n' && c != '\t')
        }) {
            Some("a command is empty, longer than 4096 bytes or has control characters")
        } else {
            None
        }
    }

    /// Returns whether a value can be part of a command. A shell takes these characters literally,
    /// even between quotes, so a value can never become a command.
    pub fn is_value(text: &str) -> bool {
        !text.is_empty()
            && text.len() <= 256
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:+@%=,".contains(&b))
    }

    /// Reads the present value, without white space around it.
    ///
    /// # Errors
    /// The command failed, or did not print exactly one word.
    pub fn read(&self, host: &dyn Host) -> Result<Vec<u8>, HostError> {
        let Some(command) = &self.read else { return Ok(UNREAD.to_vec()) };
        let printed = self.run(host, Op::Read, command)?;
        let value = printed.trim();
        if CommandKnob::is_value(value) {
            return Ok(value.as_bytes().to_vec());
        }
        let first: String = value.chars().take(40).filter(|c| !c.is_control()).collect();
        let why = if value.is_empty() {
            "'read' printed nothing".to_owned()
        } else {
            format!("'read' printed '{first}', not one word of letters, digits and -_./:+@%=,")
        };
        Err(self.error(Op::Read, &why, Errno::INVAL))
    }

    /// Sets the value.
    ///
    /// # Errors
    /// The command failed, or the value is not one word.
    pub fn write(&self, host: &dyn Host, value: &[u8]) -> Result<(), HostError> {
        self.set(host, &self.write, value)
    }

    /// Sets a value that [`CommandKnob::read`] returned earlier.
    pub fn restore(&self, host: &dyn Host, value: &[u8]) -> Result<(), HostError> {
        self.set(host, self.restore.as_ref().unwrap_or(&self.write), value)
    }

    fn set(&self, host: &dyn Host, command: &str, value: &[u8]) -> Result<(), HostError> {
        let value = std::str::from_utf8(value).unwrap_or_default().trim();
        if !CommandKnob::is_value(value) {
            return Err(self.error(Op::Write, "the value is not one word", Errno::INVAL));
        }
        self.run(host, Op::Write, &command.replace(VALUE, value)).map(drop)
    }

    /// Runs a command and returns its output.
    fn run(&self, host: &dyn Host, op: Op, command: &str) -> Result<String, HostError> {
        let failed = |error: std::io::Error| {
            self.error(op, &error.to_string(), Errno(error.raw_os_error().unwrap_or(Errno::IO.0)))
        };
        // Capture in memory, not through pipes: a command with much output would wait for a reader,
        // which waits for the command's end.
        let capture = || {
            memfd_create("flyball-knob", MemfdFlags::CLOEXEC).map(File::from).map_err(|e| failed(e.into()))
        };
        let (mut stdout, mut stderr) = (capture()?, capture()?);
        let launch = Launch::new("/bin/sh", &["-c".to_owned(), command.to_owned()])
            .output_to(stdout.try_clone().map_err(failed)?, stderr.try_clone().map_err(failed)?);
        let mut running = host.spawn(launch).map_err(failed)?;
        let deadline = std::time::Instant::now() + PATIENCE;
        let ended = loop {
            // A signal to flyball ends a wait early, but the command has its own process group and
            // continues.
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if let Some(ended) = running.wait(left).map_err(failed)? {
                break ended;
            }
            if left.is_zero() {
                running.stop(AFTER_TERM).map_err(failed)?;
                return Err(self.error(op, "the command took more than 30 s", Errno::TIMEDOUT));
            }
        };
        if ended.status.success() {
            return Ok(head(&mut stdout));
        }
        let said = head(&mut stderr);
        let said =
            said.lines().rfind(|line| !line.trim().is_empty()).map(|line| format!(": {}", line.trim()));
        Err(self.error(op, &format!("{}{}", ended.status, said.unwrap_or_default()), Errno::IO))
    }

    fn error(&self, op: Op, why: &str, errno: Errno) -> HostError {
        HostError::new(op, format!("knob {} ({why})", self.name), errno)
    }
}

/// Returns the beginning of a command's output.
fn head(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // The offset is shared with the command's descriptor. If the output cannot be read, it is
    // missing from a message, or is not a value.
    if file.seek(SeekFrom::Start(0)).is_ok() {
        let _ = file.take(MAX_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Live;

    fn knob(read: Option<&str>, write: &str, restore: Option<&str>) -> CommandKnob {
        let own = |text: &str| text.to_owned();
        CommandKnob {
            name: "pool".to_owned(),
            read: read.map(own),
            write: write.to_owned(),
            restore: restore.map(own),
        }
    }

    #[test]
    fn what_commands_do_is_read_back_and_failures_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pool");
        std::fs::write(&file, "4\n").unwrap();
        let path = file.display();
        let pool = knob(Some(&format!("cat {path}")), &format!("echo {{value}} > {path}"), None);
        let host = Live::new();
        assert_eq!(pool.read(&host).unwrap(), b"4");
        pool.write(&host, b"8\n").unwrap();
        assert_eq!(pool.read(&host).unwrap(), b"8");
        assert!(pool.write(&host, b"8; rm x").is_err());
        let error = knob(None, "echo no {value} >&2; exit 3", Some("true")).write(&host, b"1").unwrap_err();
        assert!(error.to_string().contains("exit status: 3: no 1"), "{error}");
        std::fs::write(&file, "a b\n").unwrap();
        assert!(pool.read(&host).unwrap_err().to_string().contains("not one word"));
    }

    #[test]
    fn knobs_that_cannot_be_restored_are_refused() {
        assert_eq!(knob(Some("cat x"), "echo {value}", None).fault(), None);
        assert_eq!(knob(None, "echo {value}", Some("reset")).fault(), None);
        for bad in [
            knob(None, "echo {value}", None),
            knob(None, "echo {value}", Some("set {value}")),
            knob(Some("cat x"), "echo 1", None),
            knob(Some("cat {value}"), "echo {value}", None),
            knob(Some(" "), "echo {value}", None),
            knob(Some("cat \u{1b}"), "echo {value}", None),
            CommandKnob { name: "Pool size".to_owned(), ..knob(Some("cat x"), "echo {value}", None) },
        ] {
            assert!(bad.fault().is_some(), "{bad:?}");
        }
    }
}
