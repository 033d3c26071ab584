//! Readings that the hold service shares with users who may not read the machine's meters and
//! counters: energy, counters of CPUs, registers with the reasons of limits.
//!
//! Clients send nothing: connecting is the request, and the answer is text that ends with the
//! connection. So the service has no input to parse. It answers root and members of the group
//! [`GROUP`], and reads at most once a second, however often clients ask: energy read more often
//! would show what code runs (CVE-2020-8694, and hardware/energy advisory INTEL-SA-00389).

use std::{
    fmt::Write as _,
    io::{self, Read as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// Socket on which the service answers.
pub const SOCKET: &str = "/run/flyball/readings";

/// The group whose members get an answer.
pub const GROUP: &str = "flyball";

/// The command that gives a user access to these readings.
pub const REMEDY: &str = "sudo sh -c 'groupadd -rf flyball && usermod -aG flyball '$USER, log in again, and systemctl start flyball-hold";

/// The first line, with the number of the format.
const TITLE: &str = "flyball-readings 1 ";
/// Limit on the bytes of an answer. 512 CPUs with ten values each need a twentieth of it.
pub const MAX_BYTES: u64 = 4 << 20;
/// Time limit for an answer. The service takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Name of the quantity, as in the monitor: `package_energy`.
    pub name: String,
    /// Number of the CPU or package.
    pub number: u32,
    pub value: u64,
}

/// The values that the service has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// Time on the machine's monotonic clock, ns.
    pub at: u64,
    pub values: Vec<Reading>,
}

impl Readings {
    /// Encodes the readings as text.
    pub fn encode(&self) -> String {
        let mut text = format!("{TITLE}{}\n", self.at);
        for Reading { name, number, value } in &self.values {
            let _ = writeln!(text, "{name} {number} {value}");
        }
        text + "end\n"
    }

    /// Parses such a text; `None` if it is incomplete, or has another format.
    pub fn parse(text: &str) -> Option<Readings> {
        let mut lines = text.strip_suffix("end\n")?.lines();
        let at = lines.next()?.strip_prefix(TITLE)?.parse().ok()?;
        let value = |line: &str| {
            let mut words = line.split(' ');
            let name = words.next().filter(|name| !name.is_empty())?.to_owned();
            let (number, value) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            words.next().is_none().then_some(Reading { name, number, value })
        };
        Some(Readings { at, values: lines.map(value).collect::<Option<_>>()? })
    }

    /// Queries the service.
    ///
    /// # Errors
    /// `NotFound` or `ConnectionRefused` if the service does not run, `PermissionDenied` for a user
    /// whom it refuses.
    pub fn ask(socket: &Path) -> io::Result<Readings> {
        let socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut text = String::new();
        socket.take(MAX_BYTES).read_to_string(&mut text)?;
        if text.is_empty() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Readings::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Returns whether the process at the other end of a socket runs as root or has the group.
#[allow(unsafe_code, reason = "getsockopt(2)")]
pub fn is_entitled(socket: &UnixStream) -> bool {
    use std::os::fd::AsRawFd as _;
    let Ok(peer) = rustix::net::sockopt::socket_peercred(socket) else { return false };
    if peer.uid.is_root() {
        return true;
    }
    let Some(group) = group_number() else { return false };
    if peer.gid.as_raw() == group {
        return true;
    }
    // Supplementary groups, since Linux 4.13 (net/core/sock.c, sk_getsockopt).
    const SO_PEERGROUPS: libc::c_int = 59;
    let mut groups = [0 as libc::gid_t; 1024];
    let mut length = size_of_val(&groups) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the array, which is as long, and the
    // length that it wrote.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    answer == 0 && groups[..(length as usize / size_of::<libc::gid_t>()).min(groups.len())].contains(&group)
}

/// Returns the group's number from /etc/group. System groups are not in a directory service.
fn group_number() -> Option<u32> {
    let text = std::fs::read_to_string("/etc/group").ok()?;
    text.lines().find_map(|line| line.strip_prefix(GROUP)?.strip_prefix(':')?.split(':').nth(1)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_come_back() {
        let reading = |name: &str, number, value| Reading { name: name.to_owned(), number, value };
        let readings = Readings {
            at: 7,
            values: vec![reading("package_energy", 1, u64::MAX), reading("aperf", 511, 0)],
        };
        let text = readings.encode();
        assert_eq!(Readings::parse(&text), Some(readings));
        for end in 0..text.len() {
            assert_eq!(Readings::parse(&text[..end]), None, "{end}");
        }
        for bad in [
            "flyball-readings 2 7\nend\n",
            "flyball-readings 1 7\na 1\nend\n",
            "flyball-readings 1 7\na 1 2 3\nend\n",
        ] {
            assert_eq!(Readings::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn own_processes_are_entitled_if_they_are_of_root() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(is_entitled(&one), crate::is_root());
    }
}
