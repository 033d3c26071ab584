//! Devices that are added, removed or changed: NETLINK_KOBJECT_UEVENT (lib/kobject_uevent.c).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind,
    netlink::{KOBJECT_UEVENT, SocketAddrNetlink},
    recvfrom, socket_with,
};

use super::Event;

/// The change of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAction {
    Added,
    Removed,
    Online,
    Offline,
    Changed,
    /// Bound to a driver, unbound, or moved.
    Other,
}

#[derive(Debug)]
pub(super) struct Devices(OwnedFd);

/// The kernel's own group. Group 2 is udev's, which does not exist in a private network namespace.
const KERNEL: u32 = 1;

impl Devices {
    pub(super) fn subscribe() -> io::Result<Devices> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
        Ok(Devices(socket))
    }

    pub(super) fn take(&self, events: &mut Vec<Event>) -> io::Result<()> {
        // UEVENT_BUFFER_SIZE in include/linux/kobject.h is 2048. The first string precedes that
        // buffer.
        let mut buffer = [0; 8192];
        loop {
            let (length, sender) = match recvfrom(&self.0, &mut buffer, RecvFlags::empty()) {
                Ok((length, _, sender)) => (length, sender),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
                // The queue was full (netlink(7)).
                Err(rustix::io::Errno::NOBUFS) => {
                    events.push(Event::Lost);
                    return Ok(());
                }
                Err(errno) => return Err(errno.into()),
            };
            // Root of another namespace may send to the group. The kernel's port is 0.
            let is_kernel = sender
                .and_then(|sender| SocketAddrNetlink::try_from(sender).ok())
                .is_some_and(|sender| sender.pid() == 0);
            if is_kernel {
                events.extend(event(&buffer[..length.min(buffer.len())]));
            }
        }
    }
}

impl AsFd for Devices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Parses the event of a message: `ACTION@PATH`, then variables, each with a zero at its end.
pub fn event(message: &[u8]) -> Option<Event> {
    let first = message.split(|&byte| byte == 0).next()?;
    let (action, path) = std::str::from_utf8(first).ok()?.split_once('@')?;
    let action = match action {
        "add" => DeviceAction::Added,
        "remove" => DeviceAction::Removed,
        "online" => DeviceAction::Online,
        "offline" => DeviceAction::Offline,
        "change" => DeviceAction::Changed,
        _ => DeviceAction::Other,
    };
    Some(Event::Device { action, path: format!("/sys{path}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_an_action_and_a_path() {
        let message = b"online@/devices/system/cpu/cpu1\0ACTION=online\0DEVPATH=/devices/system/cpu/cpu1\0";
        let path = "/sys/devices/system/cpu/cpu1".to_owned();
        assert_eq!(event(message), Some(Event::Device { action: DeviceAction::Online, path }));
        assert_eq!(event(b"libudev\0\xfe\xed"), None);
        assert_eq!(event(b""), None);
    }
}
