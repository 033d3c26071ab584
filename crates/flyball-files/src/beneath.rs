//! Opens a path below a directory. Neither `..`, nor links, nor renames by others can lead outside.
//!
//! Since 5.6 the kernel does this in one call: openat2(2) with `RESOLVE_BENEATH`. If that call does
//! not exist, or a container's filter refuses it with `EPERM`, [`walk`] does the same part by part.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::{MAX_LINKS, MAX_PARTS};

/// Limit on retries of a call that the kernel gave up because of a concurrent rename. A process
/// that renames in a loop must not block us.
const TRIES: usize = 100;

/// Opens `path`, which has the normal form of [`crate::plain`]. An empty path is the directory
/// itself.
pub(crate) fn open(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::CLOEXEC;
    // Magic links (/proc/N/fd/M) jump anywhere without a path.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match rustix::fs::openat2(root, path, flags, mode, resolve) {
            // EAGAIN: a rename in the tree while a `..` was resolved (openat2(2), RESOLVE_BENEATH).
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => return walk(root, path, flags, mode),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens `path` like [`open`], but without openat2(2). Each directory on the way is held open, so
/// `..` returns to the directory from which it was entered, even if that has been moved.
pub(crate) fn walk(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut entered: Vec<OwnedFd> = Vec::new();
    let mut todo = Vec::new();
    push(&mut todo, path);
    let mut links = 0;
    while let Some(part) = todo.pop() {
        match part.as_slice() {
            b"." => continue,
            b".." => {
                // openat2(2) returns this errno for a path that climbs outside.
                entered.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            _ => {}
        }
        let here = entered.last().map_or(root, AsFd::as_fd);
        let last = todo.is_empty();
        // O_EXCL follows no link at the last name (open(2)), so no check is needed.
        if last && flags.contains(OFlags::EXCL) {
            return rustix::fs::openat(here, part, flags | OFlags::NOFOLLOW, mode);
        }
        let found = rustix::fs::openat(here, part.as_slice(), look, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if kind == FileType::Symlink {
            if last && flags.contains(OFlags::NOFOLLOW) {
                return if flags.contains(OFlags::PATH) { Ok(found) } else { Err(Errno::LOOP) };
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP);
            }
            // An empty path reads the descriptor's own link (readlinkat(2)).
            let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
            if target.to_bytes().first() == Some(&b'/') {
                return Err(Errno::XDEV);
            }
            push(&mut todo, target.to_bytes());
            continue;
        }
        if last && !flags.contains(OFlags::PATH) {
            // The file may have been replaced by a link, which is not followed.
            return rustix::fs::openat(here, part, flags | OFlags::NOFOLLOW, mode);
        }
        if kind != FileType::Directory && (!last || flags.contains(OFlags::DIRECTORY)) {
            return Err(Errno::NOTDIR);
        }
        if last {
            return Ok(found);
        }
        // Each part holds a descriptor.
        if entered.len() >= MAX_PARTS {
            return Err(Errno::NAMETOOLONG);
        }
        entered.push(found);
    }
    // The path, or a link, ended in a directory that is already open.
    let here = entered.last().map_or(root, AsFd::as_fd);
    rustix::fs::openat(here, ".", flags.difference(OFlags::NOFOLLOW), mode)
}

/// Puts the parts of `path` on the stack, the first on top. A trailing slash requires a directory,
/// like `.`.
fn push(todo: &mut Vec<Vec<u8>>, path: &[u8]) {
    if path.last() == Some(&b'/') {
        todo.push(b".".to_vec());
    }
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    todo.extend(parts.rev().map(<[u8]>::to_vec));
}
