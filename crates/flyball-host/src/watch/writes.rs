//! Writes to attributes, and starts of programs, with the responsible process: fanotify(7).

#![allow(unsafe_code, reason = "fanotify_init(2) and fanotify_mark(2)")]

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use super::{Event, Writer};

/// A group of marks.
#[derive(Debug)]
pub(super) struct Writes {
    group: OwnedFd,
    root: PathBuf,
    concerns: fn(&str) -> bool,
    buffer: Vec<u8>,
}

/// sizeof(struct fanotify_event_metadata) in include/uapi/linux/fanotify.h: event_len u32, vers u8,
/// reserved u8, metadata_len u16, mask u64, fd s32, pid s32.
const HEADER: usize = 24;

fn last(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Writes {
    /// Reports writes to the paths that `concerns` accepts.
    pub(super) fn new(root: &Path, concerns: fn(&str) -> bool) -> io::Result<Writes> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        let opened = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as libc::c_uint;
        // SAFETY: fanotify_init takes two numbers and touches no memory.
        let group = last(unsafe { libc::fanotify_init(flags, opened) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let group = unsafe { OwnedFd::from_raw_fd(group) };
        // Room for 170 events. Each holds a descriptor until it is read.
        Ok(Writes { group, root: root.to_owned(), concerns, buffer: vec![0; 4096] })
    }

    fn mark(&self, flags: libc::c_uint, mask: u64, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let group = self.group.as_raw_fd();
        let flags = libc::FAN_MARK_ADD | flags;
        // SAFETY: the path is a live string with its end; the kernel only reads it.
        last(unsafe { libc::fanotify_mark(group, flags, mask, libc::AT_FDCWD, path.as_ptr()) }).map(drop)
    }

    /// Marks the file system, not the mount, so that writes in a container that mounts it elsewhere
    /// are seen too.
    pub(super) fn mark_file_system(&mut self, path: &Path) -> io::Result<()> {
        // The kernel sends FAN_MODIFY for an accepted write (vfs_write in fs/read_write.c). A
        // refused write changes nothing.
        self.mark(libc::FAN_MARK_FILESYSTEM, libc::FAN_MODIFY, path)
    }

    pub(super) fn mark_program(&mut self, path: &Path) -> io::Result<()> {
        self.mark(libc::FAN_MARK_INODE, libc::FAN_OPEN_EXEC, path)
    }

    /// Adds the writes reported until now. Skips this process's own writes.
    pub(super) fn take(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let me = std::process::id();
        loop {
            let count = match rustix::io::read(&self.group, &mut self.buffer) {
                Ok(0) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
                Ok(count) => count,
                // A file could not be opened again, such as a write-only file. It is unknown which
                // file it was.
                Err(_) => {
                    events.push(Event::Lost);
                    return Ok(());
                }
            };
            let mut rest = &self.buffer[..count];
            while let Some((event, next)) = split(rest) {
                rest = next;
                if event.mask & libc::FAN_Q_OVERFLOW != 0 {
                    events.push(Event::Lost);
                    continue;
                }
                // SAFETY: the kernel opened the descriptor for this event and gave it to this
                // process, once.
                let file = (event.file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event.file) });
                if event.pid == me {
                    continue;
                }
                let Some(path) = file.and_then(|file| name_of(&file)) else { continue };
                if event.mask & libc::FAN_OPEN_EXEC != 0 {
                    events.push(Event::Started { program: path, pid: event.pid });
                } else if let Some(path) = below(&self.root, &path).filter(|path| (self.concerns)(path)) {
                    // Look up the process in /proc only now: most writes to sysfs do not concern
                    // processors.
                    events.push(Event::Written { path, by: Writer::from_pid(event.pid) });
                }
            }
        }
    }
}

impl AsFd for Writes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

struct Raw {
    mask: u64,
    file: i32,
    pid: u32,
}

/// Splits off the first event of a buffer; `None` at its end and for bytes that are not an event.
fn split(bytes: &[u8]) -> Option<(Raw, &[u8])> {
    let head = bytes.get(..HEADER)?;
    let length = u32::from_ne_bytes(head[..4].try_into().ok()?) as usize;
    let raw = Raw {
        mask: u64::from_ne_bytes(head[8..16].try_into().ok()?),
        file: i32::from_ne_bytes(head[16..20].try_into().ok()?),
        pid: u32::from_ne_bytes(head[20..24].try_into().ok()?),
    };
    // event_len includes records that later kernels may add. It is never less than the header; a
    // smaller value would loop for ever.
    Some((raw, bytes.get(length.max(HEADER)..)?))
}

/// Returns the masks and processes of the events in a kernel buffer, without their files.
pub fn reported(bytes: &[u8]) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some((event, next)) = split(rest) {
        rest = next;
        found.push((event.mask, event.pid));
    }
    found
}

fn name_of(file: &OwnedFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Converts a path of this system to the machine's own; `None` outside the machine.
fn below(root: &Path, path: &Path) -> Option<String> {
    let path = path.strip_prefix(root).ok()?;
    Some(format!("/{}", path.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_one_after_the_other() {
        let event = |mask: u64, pid: u32| {
            let mut bytes = (HEADER as u32).to_ne_bytes().to_vec();
            bytes.extend([3, 0, HEADER as u8, 0]);
            bytes.extend(mask.to_ne_bytes());
            bytes.extend((-1i32).to_ne_bytes());
            bytes.extend(pid.to_ne_bytes());
            bytes
        };
        let bytes = [event(libc::FAN_MODIFY, 7), event(libc::FAN_Q_OVERFLOW, 0)].concat();
        let (first, rest) = split(&bytes).unwrap();
        assert_eq!((first.mask, first.pid, first.file), (libc::FAN_MODIFY, 7, -1));
        let (second, rest) = split(rest).unwrap();
        assert_eq!(second.mask, libc::FAN_Q_OVERFLOW);
        assert!(rest.is_empty() && split(rest).is_none());
        assert!(split(&bytes[..20]).is_none());
        assert!(split(&[0xff; 40]).is_none(), "a length beyond the buffer");
    }

    #[test]
    fn paths_are_the_machines() {
        let path = |root: &str, path: &str| below(Path::new(root), Path::new(path));
        assert_eq!(path("/", "/sys/x").as_deref(), Some("/sys/x"));
        assert_eq!(path("/tmp/m", "/tmp/m/sys/x").as_deref(), Some("/sys/x"));
        assert_eq!(path("/tmp/m", "/tmp/n/sys/x"), None);
    }
}
