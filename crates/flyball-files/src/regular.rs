//! Opens a file by its full path, in a directory that others may have written to.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

/// Reads `from` to its end, if that comes within `most` bytes. A device such as /dev/zero has no
/// end.
///
/// # Errors
/// Returns the error of read(2); `FileTooLarge`.
pub fn read_bounded(from: impl io::Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(from, most.saturating_add(1)), &mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it is longer than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Opens a file that the user named, which may be a pipe or a terminal. A FIFO without a writer
/// reads as empty; an ordinary open would wait for a writer forever.
///
/// # Errors
/// Returns the error of open(2).
pub fn open_input(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    // Only opening must not wait. Reading may wait for the program at the other end.
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// Reads a file that [`open_input`] opens.
pub fn read_input(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_input(path)?, most)
}

/// Returns how many bytes this process may still write to the file system of a file.
///
/// # Errors
/// Returns the error of fstatvfs(3).
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let status = rustix::fs::fstatvfs(file)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Opens a regular file. Does not follow a link at its name, which could lead to a file in another
/// directory. Does not wait for the other end of a FIFO. Replaces the custom flags of `options`.
///
/// # Errors
/// The errno of open(2): `ELOOP` for a link. `InvalidInput` if the file is not a regular one.
pub fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

pub(crate) fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// Opens a regular file like [`open_regular`], if no other user can have written it: it belongs to
/// this user or to root, and no other user may write it.
///
/// # Errors
/// Fails like [`open_regular`]; `PermissionDenied` for a file that another user could write.
pub fn open_trusted(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = open_regular(options, path)?;
    check_trusted(&file)?;
    Ok(file)
}

/// Checks that no other user can have written a file.
///
/// # Errors
/// `PermissionDenied` if another user could; `InvalidInput` if the file is not regular, because
/// then owner and mode say nothing about its content.
pub fn check_trusted(file: &File) -> io::Result<()> {
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(not_regular());
    }
    let me = rustix::process::geteuid().as_raw();
    if (status.uid() != me && status.uid() != 0) || status.mode() & 0o022 != 0 {
        let (owner, mode) = (status.uid(), status.mode() & 0o7777);
        let what = format!("another user could have written it (owner {owner}, mode {mode:03o}; chmod go-w)");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_file_that_others_may_write_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "").unwrap();
        for (mode, is_trusted) in
            [(0o600, true), (0o644, true), (0o664, false), (0o666, false), (0o602, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let opened = open_trusted(OpenOptions::new().read(true), &path);
            assert_eq!(opened.is_ok(), is_trusted, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            assert!(open_trusted(OpenOptions::new().read(true), &path).is_err());
        }
    }
}
