//! Lines of a service in systemd's journal, with a priority and fields that programs filter by
//! (systemd.journal-fields(7)).

use std::{fmt::Display, os::unix::net::UnixDatagram, path::Path};

use flyball_hold::Priority;
use flyball_process::terminal;

use crate::{exit::Failure, output};

/// Where the journal takes entries (its native protocol).
const SOCKET: &str = "/run/systemd/journal/socket";

/// Where the lines of a service go.
#[derive(Debug)]
pub(crate) struct Journal(Option<UnixDatagram>);

impl Journal {
    /// The journal if stdout leads there, as in a unit; otherwise stdout.
    pub(crate) fn or_stdout() -> Journal {
        let stream = std::env::var("JOURNAL_STREAM").ok();
        // Device and inode of what systemd connected: another program in between, or a redirection,
        // has another one (systemd.exec(5)).
        let leads_there =
            stream.is_some_and(|stream| terminal::stdout_file().is_some_and(|stdout| stdout == stream));
        Journal(leads_there.then(|| connect(Path::new(SOCKET))).flatten())
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Neither the journal nor stdout takes it.
    pub(crate) fn line(
        &self,
        priority: Priority,
        text: impl Display,
        fields: &[(&'static str, String)],
    ) -> Result<(), Failure> {
        let text = text.to_string();
        let sent = self.0.as_ref().is_some_and(|socket| socket.send(&entry(priority, &text, fields)).is_ok());
        if sent { Ok(()) } else { output::line(text) }
    }
}

fn connect(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

/// An entry as the journal reads it: `NAME=value` and a newline, or for a value of several lines
/// the name, its length and the value.
fn entry(priority: Priority, text: &str, fields: &[(&'static str, String)]) -> Vec<u8> {
    let priority = (priority as u8).to_string();
    let first = [("MESSAGE", text), ("PRIORITY", priority.as_str()), ("SYSLOG_IDENTIFIER", "flyball")];
    let mut bytes = Vec::new();
    for (name, value) in first.into_iter().chain(fields.iter().map(|(name, value)| (*name, value.as_str()))) {
        bytes.extend(name.bytes());
        if value.contains('\n') {
            bytes.push(b'\n');
            bytes.extend((value.len() as u64).to_le_bytes());
        } else {
            bytes.push(b'=');
        }
        bytes.extend(value.bytes());
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_priority_and_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journald = UnixDatagram::bind(&path).unwrap();
        let journal = Journal(connect(&path));
        journal.line(Priority::Warning, "a\nb", &[("KNOB", "epp".to_owned())]).unwrap();
        let mut buffer = [0; 256];
        let count = journald.recv(&mut buffer).unwrap();
        let expected = [
            b"MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n".as_slice(),
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=flyball\nKNOB=epp\n",
        ];
        assert_eq!(&buffer[..count], expected.concat());
        assert!(connect(Path::new("/nowhere")).is_none());
    }
}
