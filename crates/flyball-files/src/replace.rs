//! Writes a file that the user named: first under another name, then renamed. So a reader finds
//! either the old or the complete new file, and a link at its name is replaced, not followed. If it
//! is not a file (`/dev/stdout`, a FIFO), it is written directly.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, OFlags, RenameFlags},
    io::Errno,
};

use crate::{
    output::{Location, Stream, TargetKind},
    regular::not_regular,
};

/// A file that is being written in place of another.
#[derive(Debug)]
#[must_use = "without `finish` nothing is replaced"]
pub struct Replacement {
    location: Location,
    written: Staging,
}

/// Where the content is until it is finished.
#[derive(Debug)]
enum Staging {
    /// In a file of this name, in the folder of the location.
    Temporary(OsString),
    Through(Stream),
    /// The file has its name.
    Done,
}

impl Replacement {
    /// Opens the file that will replace `path`, in its directory and with the rights that the umask
    /// leaves. If this value is dropped, `path` is unchanged.
    ///
    /// # Errors
    /// Returns the error of open(2); `PermissionDenied` for a link of another user in the path.
    pub fn create(path: &Path) -> io::Result<(File, Replacement)> {
        let location = Location::find(path)?;
        match location.look()? {
            TargetKind::Stream(stream) => {
                let file = stream.open()?;
                Ok((file, Replacement { location, written: Staging::Through(stream) }))
            }
            TargetKind::Directory => Err(Errno::ISDIR.into()),
            TargetKind::File | TargetKind::Nothing => Replacement::beside(location),
        }
    }

    fn beside(location: Location) -> io::Result<(File, Replacement)> {
        Replacement::made(location, |temporary| {
            temporary.open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o666)
        })
    }

    /// Replaces `path` by a file without a name (`O_TMPFILE`) on the same file system.
    ///
    /// # Errors
    /// The errno of linkat(2): `ENOENT` without /proc. `PermissionDenied` as
    /// [`Replacement::create`].
    pub fn from_unnamed(path: &Path, file: &File) -> io::Result<Replacement> {
        // AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH; the link in /proc does not.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let made = Replacement::made(Location::find(path)?, |Location { folder, name }| {
            Ok(rustix::fs::linkat(CWD, &own, folder, name, AtFlags::SYMLINK_FOLLOW)?)
        })?;
        Ok(made.1)
    }

    /// Creates a file with a new name.
    fn made<T>(
        mut location: Location,
        mut make: impl FnMut(&Location) -> io::Result<T>,
    ) -> io::Result<(T, Replacement)> {
        let name = std::mem::take(&mut location.name);
        let made =
            tempfile::Builder::new().prefix(".flyball-").disable_cleanup(true).make_in("", |path| {
                // tempfile prefixes the path with the current directory, so use only the name.
                path.file_name().unwrap_or_default().clone_into(&mut location.name);
                make(&location)
            })?;
        let temporary = std::mem::replace(&mut location.name, name);
        let (made, _) = made.into_parts();
        Ok((made, Replacement { location, written: Staging::Temporary(temporary) }))
    }

    /// Opens the new file once more, to append to it.
    ///
    /// # Errors
    /// Returns the error of open(2).
    pub fn reopen(&self) -> io::Result<File> {
        match &self.written {
            Staging::Temporary(name) => {
                let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Ok(rustix::fs::openat(&self.location.folder, name, flags, rustix::fs::Mode::empty())?.into())
            }
            Staging::Through(stream) => stream.open(),
            Staging::Done => Err(Errno::NOENT.into()),
        }
    }

    /// Writes the file to the disk. If `path` is a stream, there is no known disk.
    ///
    /// # Errors
    /// Returns the error of fdatasync(2).
    pub fn sync(&self, file: &File) -> io::Result<()> {
        if matches!(self.written, Staging::Temporary(_)) { file.sync_data() } else { Ok(()) }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Returns the error of rename(2).
    pub fn finish(mut self) -> io::Result<()> {
        if let Staging::Temporary(temporary) = &self.written {
            let Location { folder, name } = &self.location;
            rustix::fs::renameat(folder, temporary, folder, name)?;
            self.written = Staging::Done;
        }
        Ok(())
    }

    /// Like [`Replacement::finish`], but fails if the name exists.
    ///
    /// # Errors
    /// `EEXIST` if the name exists.
    pub fn finish_new(mut self) -> io::Result<()> {
        let Staging::Temporary(temporary) = &self.written else { return Err(Errno::EXIST.into()) };
        let Location { folder, name } = &self.location;
        match rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
            // NFS and others do not support the flag. Dropping this value removes the other name.
            Err(Errno::INVAL | Errno::NOSYS) => {
                Ok(rustix::fs::linkat(folder, temporary, folder, name, AtFlags::empty())?)
            }
            result => {
                result?;
                self.written = Staging::Done;
                Ok(())
            }
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Staging::Temporary(temporary) = &self.written {
            let _ = rustix::fs::unlinkat(&self.location.folder, temporary, AtFlags::empty());
        }
    }
}

/// Writes `bytes` to `path` as [`Replacement`] does. Writes them to the disk before the rename, so
/// that after a crash the name does not lead to an empty file.
///
/// # Errors
/// Fails like [`Replacement::create`], and with the error of write(2).
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, replacement) = Replacement::create(path)?;
    file.write_all(bytes)?;
    replacement.sync(&file)?;
    replacement.finish()
}

/// Replaces a file like [`replace`], and gives it this mode whatever the umask.
///
/// # Errors
/// Fails like [`replace`], and with the error of fchmod(2).
pub fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (mut file, replacement) = Replacement::create(path)?;
    if matches!(replacement.written, Staging::Temporary(_)) {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    replacement.sync(&file)?;
    replacement.finish()
}

/// Returns the directory that contains `path`. For a bare name, whose parent is the empty path,
/// that is the current directory.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns whether `path` is written directly, not replaced: a device, a FIFO, or a descriptor of
/// this process (/dev/stdout, /dev/fd/1), whatever that leads to.
pub fn is_stream(path: &Path) -> bool {
    let found = Location::find(path).and_then(|location| location.look());
    matches!(found, Ok(TargetKind::Stream(_)))
}

/// Like [`replace`], for a name that flyball chose in a directory that may come from another user.
/// Without `sync` it does not wait for the disk: for files that can be made again. It never opens
/// an existing file of that name, because a FIFO could make it wait forever.
///
/// # Errors
/// `InvalidInput` if the existing object is not a file; otherwise as [`replace`].
pub fn replace_file(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    let location = Location::find(path)?;
    if matches!(location.look()?, TargetKind::Stream(_)) {
        return Err(not_regular());
    }
    let (mut file, replacement) = Replacement::beside(location)?;
    file.write_all(bytes)?;
    if sync {
        replacement.sync(&file)?;
    }
    replacement.finish()
}

/// Creates a file for incremental writing, if [`replace`] cannot be used. Replaces an existing
/// file, or opens a stream.
///
/// # Errors
/// Fails like [`Replacement::create`], and with the error of unlink(2).
pub fn create(path: &Path) -> io::Result<File> {
    let location = Location::find(path)?;
    match location.look()? {
        TargetKind::Stream(stream) => return stream.open(),
        TargetKind::Directory => return Err(Errno::ISDIR.into()),
        TargetKind::File => location.remove()?,
        TargetKind::Nothing => {}
    }
    location.open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o666)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::unix::fs::{MetadataExt as _, chown, lchown, symlink},
        process::Command,
        thread,
    };

    use super::*;

    fn left(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_is_written_as_it_comes_is_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        for _ in 0..2 {
            create(&link).unwrap().write_all(b"new").unwrap();
            assert_eq!(
                (fs::read(&link).unwrap(), fs::read(&target).unwrap()),
                (b"new".into(), b"kept".into())
            );
        }
        assert!(create(folder.path()).is_err());
    }

    #[test]
    fn a_directory_that_is_a_foreign_link_takes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, target) = (folder.path().join("shared"), folder.path().join("target"));
        fs::create_dir(&shared).unwrap();
        fs::create_dir(&target).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let link = shared.join("results");
        symlink(&target, &link).unwrap();
        replace(&link.join("own"), b"x").unwrap();
        if lchown(&link, Some(65534), None).is_ok() {
            let error = replace(&link.join("foreign"), b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(left(&target), ["own"]);
        }
    }

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        replace(&path, b"first").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o600, 0o600);
        let held = File::open(&path).unwrap();
        let (mut file, replacement) = Replacement::create(&path).unwrap();
        assert_eq!(left(folder.path()).len(), 2, "what is not finished is in the same directory");
        file.write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        drop(replacement);
        assert_eq!(left(folder.path()), ["out"]);
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        // A reader with the old file open continues to read the old one.
        assert_eq!(io::read_to_string(held).unwrap(), "first");
        let (_, replacement) = Replacement::create(&path).unwrap();
        assert_eq!(replacement.finish_new().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(left(folder.path()), ["out"]);
        assert_eq!(replace(folder.path(), b"").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(replace(&folder.path().join("none/x"), b"").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("out"), folder.path().join("victim"));
        for there in [false, true] {
            if there {
                fs::write(&victim, "precious").unwrap();
            }
            let _ = fs::remove_file(&path);
            symlink(&victim, &path).unwrap();
            replace(&path, b"new").unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read(&victim).ok(), there.then(|| b"precious".to_vec()));
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped 1 test: only root can make a link of another user");
            return;
        }
        // Mode and owner as for /tmp.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        chown(folder.path(), Some(0), None).unwrap();
        for target in ["/dev/null", "victim"] {
            let _ = fs::remove_file(&path);
            symlink(target, &path).unwrap();
            lchown(&path, Some(65534), None).unwrap();
            assert_eq!(replace(&path, b"new").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn streams_are_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = thread::spawn({
            let path = path.clone();
            move || {
                let mut text = String::new();
                File::open(path).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        });
        replace(&path, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(replace_file(&path, b"x", false).is_err());
        assert!(replace_file(&folder.path().join("new"), b"x", true).is_ok());
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        replace(&null, b"x").unwrap();
        assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
        for (path, stream) in [
            ("/dev/stdout", true),
            ("/dev/fd/1", true),
            ("/proc/self/fd/1", true),
            ("/dev/null", true),
            ("/dev/shm/x", false),
            ("x", false),
            ("/nowhere/x", false),
        ] {
            assert_eq!(is_stream(Path::new(path)), stream, "{path}");
        }
    }
}
