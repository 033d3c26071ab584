//! Notifications that firmware changed the capabilities of CPUs: generic netlink, family `thermal`,
//! group `event`, event THERMAL_GENL_EVENT_CPU_CAPABILITY_CHANGE
//! (drivers/thermal/thermal_netlink.c, sent by intel_hfi.c).

#![allow(unsafe_code, reason = "netlink sockets")]

use std::{
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

use crate::{Errno, HostError, Op};

/// Numbers from include/uapi/linux/genetlink.h and thermal.h.
mod number {
    pub(super) const GENL_ID_CTRL: u16 = 0x10;
    pub(super) const CTRL_CMD_GETFAMILY: u8 = 3;
    pub(super) const CTRL_ATTR_FAMILY_ID: u16 = 1;
    pub(super) const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    pub(super) const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
    pub(super) const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
    pub(super) const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;
    pub(super) const EVENT_CPU_CAPABILITY_CHANGE: u8 = 14;
    pub(super) const ATTR_CPU_CAPABILITY: u16 = 20;
    pub(super) const ATTR_CPU_CAPABILITY_ID: u16 = 21;
}

/// The capability of a CPU, as firmware rates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    pub cpu: u32,
    /// 0 to 1023.
    pub performance: u32,
    /// 0 to 1023.
    pub efficiency: u32,
}

/// A subscription to capability changes.
#[derive(Debug)]
pub struct CapabilityEvents {
    socket: OwnedFd,
    family: u16,
}

const WHAT: &str = "netlink group 'event' of family 'thermal'";

fn fail(errno: Errno) -> HostError {
    HostError::new(Op::Read, WHAT, errno)
}

fn last() -> HostError {
    fail(Errno::from(&std::io::Error::last_os_error()))
}

impl CapabilityEvents {
    /// Subscribes on the running kernel.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no such family (CONFIG_THERMAL_NETLINK); the errno of the socket
    /// calls.
    pub fn subscribe() -> Result<CapabilityEvents, HostError> {
        // SAFETY: socket(2) takes three numbers and touches no memory.
        let raw = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_GENERIC)
        };
        if raw < 0 {
            return Err(last());
        }
        // SAFETY: `raw` was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let mut request = Vec::new();
        let name = b"thermal\0";
        let length = 16 + 4 + 4 + name.len();
        // nlmsghdr (length, type, flags, sequence, port), genlmsghdr (command, version, padding),
        // and one attribute, the name.
        request.extend((length as u32).to_ne_bytes());
        request.extend(number::GENL_ID_CTRL.to_ne_bytes());
        request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request.extend([1u32, 0].map(u32::to_ne_bytes).concat());
        request.extend([number::CTRL_CMD_GETFAMILY, 1, 0, 0]);
        request.extend((4 + name.len() as u16).to_ne_bytes());
        request.extend(number::CTRL_ATTR_FAMILY_NAME.to_ne_bytes());
        request.extend(name);
        // SAFETY: the buffer is a live slice of the length given.
        let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(last());
        }
        let mut buffer = vec![0; 8192];
        let answer = receive(&socket, &mut buffer)?;
        // The kernel assigns both numbers when it registers the family, so they differ between
        // boots.
        let (family, group) = family(answer)?;
        // SAFETY: the option's value is a live u32 and its size is given.
        let joined = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_ADD_MEMBERSHIP,
                std::ptr::from_ref(&group).cast(),
                4,
            )
        };
        if joined < 0 { Err(last()) } else { Ok(CapabilityEvents { socket, family }) }
    }

    /// Waits for changes, for at most `time`. Returns an empty list on a timeout.
    ///
    /// # Errors
    /// The errno of poll(2) or recv(2); `EINTR` if a signal arrived.
    pub fn wait(&self, time: Duration) -> Result<Vec<Capability>, HostError> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd, and the count says one.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            0 => return Ok(Vec::new()),
            count if count < 0 => return Err(last()),
            _ => {}
        }
        // A message has at most 64 CPUs, 16 in older kernels (HFI_THERMNL_CAPS_PER_EVENT in
        // intel_hfi.c), with three attributes of 8 bytes each. recv(2) truncates a message that
        // does not fit.
        let mut buffer = vec![0; 65_536];
        let message = receive(&self.socket, &mut buffer)?;
        Ok(capabilities(message, self.family))
    }
}

fn receive<'b>(socket: &OwnedFd, buffer: &'b mut [u8]) -> Result<&'b [u8], HostError> {
    // SAFETY: the buffer is a live slice of the length given.
    let count = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(count).map(|count| &buffer[..count]).map_err(|_| last())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Iterates over attributes: kind and content. Ends at the first that does not fit.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        // The two upper bits are flags (NLA_TYPE_MASK, include/uapi/linux/netlink.h).
        let kind = u16_at(rest, 2)? & 0x3fff;
        let content = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

/// Returns the numbers of the family and of its group `event`.
fn family(message: &[u8]) -> Result<(u16, u32), HostError> {
    // An error message: type 2, then the negative errno.
    if u16_at(message, 4) == Some(2) {
        return Err(fail(Errno(u32_at(message, 16).map_or(libc::EIO, |code| -(code as i32)))));
    }
    let (mut id, mut group) = (None, None);
    for (kind, content) in attributes(message.get(20..).unwrap_or_default()) {
        match kind {
            number::CTRL_ATTR_FAMILY_ID => id = u16_at(content, 0),
            number::CTRL_ATTR_MCAST_GROUPS => {
                for (_, one) in attributes(content) {
                    let is_event = attributes(one).any(|(kind, name)| {
                        kind == number::CTRL_ATTR_MCAST_GRP_NAME && name.strip_suffix(b"\0") == Some(b"event")
                    });
                    if is_event {
                        group = attributes(one)
                            .find(|(kind, _)| *kind == number::CTRL_ATTR_MCAST_GRP_ID)
                            .and_then(|(_, content)| u32_at(content, 0));
                    }
                }
            }
            _ => {}
        }
    }
    id.zip(group).ok_or_else(|| fail(Errno::NOENT))
}

/// Returns the capabilities in a buffer of messages; none for other events.
fn capabilities(buffer: &[u8], family: u16) -> Vec<Capability> {
    let mut found = Vec::new();
    let mut rest = buffer;
    while let Some(length) = u32_at(rest, 0).map(|length| length as usize).filter(|&length| length >= 20) {
        let Some(message) = rest.get(..length) else { break };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if u16_at(message, 4) != Some(family) || message[16] != number::EVENT_CPU_CAPABILITY_CHANGE {
            continue;
        }
        for (kind, content) in attributes(&message[20..]) {
            if kind != number::ATTR_CPU_CAPABILITY {
                continue;
            }
            // Rows of CPU, performance, efficiency; a new CPU begins a new row.
            let mut numbers = attributes(content).filter_map(|(kind, value)| Some((kind, u32_at(value, 0)?)));
            while let Some((kind, cpu)) = numbers.next() {
                if kind != number::ATTR_CPU_CAPABILITY_ID {
                    continue;
                }
                let (Some((_, performance)), Some((_, efficiency))) = (numbers.next(), numbers.next()) else {
                    break;
                };
                found.push(Capability { cpu, performance, efficiency });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((4 + content.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((20 + attributes.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([command, 1, 0, 0]);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn reads_the_familys_answer() {
        let group = |name: &[u8], id: u32| {
            attribute(1, &[attribute(1, name), attribute(2, &id.to_ne_bytes())].concat())
        };
        let groups = attribute(7, &[group(b"sampling\0", 4), group(b"event\0", 5)].concat());
        let answer = message(
            0x10,
            1,
            &[attribute(2, b"thermal\0"), attribute(1, &23u16.to_ne_bytes()), groups].concat(),
        );
        assert_eq!(family(&answer).unwrap(), (23, 5));
        let mut error = message(2, 0, &[]);
        error[16..20].copy_from_slice(&(-libc::ENOENT).to_ne_bytes());
        assert_eq!(family(&error).unwrap_err().errno, Errno::NOENT);
        assert!(family(&[]).is_err());
    }

    #[test]
    fn reads_capabilities_and_skips_other_events() {
        let rows: Vec<u8> = [(21, 3u32), (22, 1000), (23, 500), (21, 7), (22, 0), (23, 0)]
            .iter()
            .flat_map(|(kind, value)| attribute(*kind, &value.to_ne_bytes()))
            .collect();
        let mut buffer = message(23, 5, &attribute(1, &[0; 4]));
        buffer.extend(message(23, 14, &attribute(20, &rows)));
        let found = capabilities(&buffer, 23);
        assert_eq!(found.iter().map(|capability| capability.cpu).collect::<Vec<_>>(), [3, 7]);
        assert_eq!((found[0].performance, found[0].efficiency), (1000, 500));
        assert!(capabilities(&buffer, 24).is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = capabilities(&bytes, 0);
            let _ = family(&bytes);
        }
    }
}
