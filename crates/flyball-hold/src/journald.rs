//! Writes a service's lines to systemd's journal, with a priority and fields for programs to filter
//! by (systemd.journal-fields(7)).

use std::{os::unix::net::UnixDatagram, path::Path};

use flyball_process::terminal;

use crate::{Notice, Priority};

/// The socket on which the journal accepts entries (its native protocol).
const SOCKET: &str = "/run/systemd/journal/socket";

/// The journal, if the service's output goes there.
#[derive(Debug)]
pub struct Journald(Option<UnixDatagram>);

impl Journald {
    /// Returns the journal if stdout leads there, as in a unit.
    pub fn from_stdout() -> Journald {
        let stream = std::env::var("JOURNAL_STREAM").ok();
        // Device and inode of systemd's connection. With another program in between, or a
        // redirection, they differ (systemd.exec(5)).
        let leads_there =
            stream.is_some_and(|stream| terminal::stdout_file().is_some_and(|stdout| stdout == stream));
        Journald(leads_there.then(|| connect(Path::new(SOCKET))).flatten())
    }

    /// Sends a line; `false` if stdout leads elsewhere, or the journal rejects it.
    pub fn send(&self, notice: &Notice) -> bool {
        let text = notice.to_string();
        let entry =
            |socket: &UnixDatagram| socket.send(&entry(notice.priority(), &text, &notice.fields())).is_ok();
        self.0.as_ref().is_some_and(entry)
    }
}

fn connect(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

/// Returns an entry in the journal's format: `NAME=value` and a newline, or for a multi-line value
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
        let fields = [("KNOB", "epp".to_owned())];
        connect(&path).unwrap().send(&entry(Priority::Warning, "a\nb", &fields)).unwrap();
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
