//! A directory with untrusted content, and operations below it.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use crate::{MAX_LISTED, PathError, beneath, plain};

/// An open directory. All paths are relative to it and stay inside.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    File,
    Directory,
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// The part of stat(2)'s result that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub kind: Type,
    /// Permission bits, including set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    pub size: u64,
    pub owner: u32,
}

impl From<rustix::fs::Stat> for Status {
    fn from(stat: rustix::fs::Stat) -> Status {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Type::File,
            FileType::Directory => Type::Directory,
            FileType::Symlink => Type::Link,
            _ => Type::Special,
        };
        Status { kind, mode: stat.st_mode & 0o7777, size: stat.st_size.cast_unsigned(), owner: stat.st_uid }
    }
}

/// Returns the normal form of a path. `EINVAL` for a path that climbs, `ENAMETOOLONG` for one over
/// the limits.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let errno = |why| match why {
        PathError::Outside | PathError::Zero => Errno::INVAL,
        PathError::Long | PathError::Deep | PathError::Name => Errno::NAMETOOLONG,
    };
    Ok(plain(path).map_err(errno)?)
}

impl Dir {
    /// Opens the directory at `path`, which the user named. Follows links on the way to it.
    ///
    /// # Errors
    /// The errno of open(2); `ENOTDIR` if it is not a directory.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Dir> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir { fd: rustix::fs::open(path.as_ref(), flags, Mode::empty())? })
    }

    fn beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = inside(path)?;
        Ok(beneath::open(self.fd.as_fd(), path.as_os_str().as_bytes(), flags, mode)?)
    }

    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// The errno of openat2(2): `EXDEV` if a link leads outside, `ELOOP` for too many links.
    /// `EINVAL` for a path that climbs, `ENAMETOOLONG` for one over the limits. The other methods
    /// return the same errors.
    pub fn dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        Ok(Dir { fd: self.beneath(path.as_ref(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())? })
    }

    /// Opens the regular file at `path` to read.
    ///
    /// # Errors
    /// `EISDIR` for a directory, `EOPNOTSUPP` for a FIFO, a socket or a device; otherwise as
    /// [`Dir::dir`].
    pub fn file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        // Check the type first, because opening a device can have effects (rewind a tape, arm a
        // watchdog).
        regular(&self.beneath(path.as_ref(), OFlags::PATH, Mode::empty())?)?;
        // The file may have been replaced. A FIFO or a terminal must not block us or become our
        // terminal.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.beneath(path.as_ref(), flags, Mode::empty())?;
        regular(&fd)?;
        Ok(fd.into())
    }

    /// Returns the content of the regular file at `path`.
    ///
    /// # Errors
    /// `EFBIG` for more than `most` bytes; otherwise like [`Dir::file`].
    pub fn read(&self, path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_into(path, most, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads like [`Dir::read`], into a buffer that is cleared first.
    pub fn read_into(&self, path: impl AsRef<Path>, most: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.clear();
        // Ignore the file's claimed size: files of proc claim none, and a sparse file claims any.
        // One more byte shows that a file is longer than `most`.
        let count = self.file(path)?.take(most + 1).read_to_end(bytes)?;
        if count as u64 > most { Err(Errno::FBIG.into()) } else { Ok(()) }
    }

    /// Returns the status of `path`. Follows links that stay inside.
    pub fn status(&self, path: impl AsRef<Path>) -> io::Result<Status> {
        Ok(rustix::fs::fstat(self.beneath(path.as_ref(), OFlags::PATH, Mode::empty())?)?.into())
    }

    /// Returns the status of `path`, without following a link.
    pub fn status_of_link(&self, path: impl AsRef<Path>) -> io::Result<Status> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        Ok(rustix::fs::fstat(self.beneath(path.as_ref(), flags, Mode::empty())?)?.into())
    }

    /// Returns the target of the link at `path`.
    ///
    /// # Errors
    /// `EINVAL` if it is not a link; `EILSEQ` for a target that is not text.
    pub fn link(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let found = self.beneath(path.as_ref(), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
        if Status::from(rustix::fs::fstat(&found)?).kind != Type::Link {
            return Err(Errno::INVAL.into());
        }
        let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
        target.into_string().map_err(|_| Errno::ILSEQ.into())
    }

    /// Returns the names in the directory at `path`, in no particular order. Skips names that are
    /// not text.
    ///
    /// # Errors
    /// `EFBIG` for more than [`MAX_LISTED`]; otherwise as [`Dir::dir`].
    pub fn list(&self, path: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let fd = self.beneath(path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            // No file that flyball looks for has such a name.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
            if names.len() > MAX_LISTED {
                return Err(Errno::FBIG.into());
            }
        }
        Ok(names)
    }

    /// Creates a file that must not exist yet, for writing.
    ///
    /// # Errors
    /// `EEXIST` if there is anything, even a dangling link; otherwise as
    /// [`Dir::dir`].
    pub fn create(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        Ok(self.beneath(path.as_ref(), flags, Mode::from_raw_mode(mode & 0o777))?.into())
    }

    /// Creates a new file in place of an existing one. Replaces a link instead of following it.
    ///
    /// # Errors
    /// `EISDIR` if there is a directory; otherwise as [`Dir::create`].
    pub fn replace(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        // Do not truncate the old file: processes that have it open, and its other names, keep the
        // old content.
        match self.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.create(path, mode),
        }
    }

    /// Removes the file or link at `path`.
    ///
    /// # Errors
    /// `EISDIR` for a directory; otherwise as [`Dir::dir`].
    pub fn remove(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (parent, name) = self.parent(path.as_ref())?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
    }

    /// Renames a file; both paths may be in different directories.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (old, from) = self.parent(from.as_ref())?;
        let (new, to) = self.parent(to.as_ref())?;
        Ok(rustix::fs::renameat(&old, from, &new, to)?)
    }

    /// Creates the directory at `path` and the missing ones above it, and opens it.
    ///
    /// # Errors
    /// `ENOTDIR` if something else is in the way; otherwise as [`Dir::dir`].
    pub fn make_dirs(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<Dir> {
        let path = inside(path.as_ref())?;
        let mut done = PathBuf::new();
        for part in &path {
            done.push(part);
            let (parent, name) = self.parent(&done)?;
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode & 0o777)) {
                // It may be a file, or a link that leads outside. Then the next part, or the end,
                // cannot be opened.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.dir(&path)
    }

    /// Creates a link in a directory that is reached without links. Does nothing and returns
    /// `false` if the target could lead outside, or if the path to the link contains another link,
    /// because its depth is then not that of the path.
    ///
    /// # Errors
    /// `EEXIST` if something is there; otherwise as [`Dir::dir`].
    pub fn make_link(&self, path: impl AsRef<Path>, target: &Path) -> io::Result<bool> {
        let path = inside(path.as_ref())?;
        let depth = path.iter().count().saturating_sub(1);
        if !crate::path::stays_inside(target, depth) {
            return Ok(false);
        }
        let mut above = PathBuf::new();
        for part in path.iter().take(depth) {
            above.push(part);
            if self.status_of_link(&above)?.kind != Type::Directory {
                return Ok(false);
            }
        }
        let (parent, name) = self.parent(&path)?;
        rustix::fs::symlinkat(target, &parent, name)?;
        Ok(true)
    }

    /// Opens the directory that contains `path`. Returns it with the name in it.
    fn parent(&self, path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
        let path = inside(path)?;
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = path.parent().unwrap_or(Path::new(""));
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let fd = beneath::open(self.fd.as_fd(), above.as_os_str().as_bytes(), flags, Mode::empty())?;
        Ok((fd, name.into()))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn regular(fd: &OwnedFd) -> io::Result<()> {
    match Status::from(rustix::fs::fstat(fd)?).kind {
        Type::File => Ok(()),
        Type::Directory => Err(Errno::ISDIR.into()),
        Type::Link | Type::Special => Err(Errno::OPNOTSUPP.into()),
    }
}

#[cfg(test)]
mod tests;
