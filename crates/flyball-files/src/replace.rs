//! Writing a file that the user named: under another name first, then renamed, so that a reader
//! finds it whole or as it was, and a link at its name is replaced and not followed. What is not a
//! file (`/dev/stdout`, a FIFO) is written through.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno};

use crate::MAX_LINKS;

/// A file that is being written in place of another.
#[derive(Debug)]
#[must_use = "without `finish` nothing is replaced"]
pub struct Replacement {
    path: PathBuf,
    /// The file's name so far; `None` if `path` is written through.
    temporary: Option<tempfile::TempPath>,
}

impl Replacement {
    /// Opens the file that will take the place of `path`, in its directory and with the rights that
    /// the umask leaves. If this value is dropped, `path` stays as it was.
    ///
    /// # Errors
    /// Returns the error of open(2); `EACCES` for a link of another user in a directory that all
    /// users can write.
    pub fn of(path: &Path) -> io::Result<(File, Replacement)> {
        refuse_foreign_link(path)?;
        // A directory of results may be the link, too.
        refuse_foreign_link(folder_of(path))?;
        if is_stream(path) {
            // Appended: behind /dev/stdout may be a file that has content already.
            let file = File::options().append(true).open(path)?;
            return Ok((file, Replacement { path: path.to_owned(), temporary: None }));
        }
        if path.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        let (file, temporary) = tempfile::Builder::new()
            .prefix(".flyball-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder_of(path))?
            .into_parts();
        Ok((file, Replacement { path: path.to_owned(), temporary: Some(temporary) }))
    }

    /// Where the content is until [`Replacement::finish`], to open it once more.
    pub fn written(&self) -> &Path {
        self.temporary.as_deref().unwrap_or(&self.path)
    }

    /// Writes the file to the disk. If `path` is written through, there is no known disk to write
    /// to.
    ///
    /// # Errors
    /// Returns the error of fdatasync(2).
    pub fn sync(&self, file: &File) -> io::Result<()> {
        if self.temporary.is_some() { file.sync_data() } else { Ok(()) }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Returns the error of rename(2).
    pub fn finish(self) -> io::Result<()> {
        self.temporary.map_or(Ok(()), |temporary| Ok(temporary.persist(&self.path)?))
    }

    /// Gives the file its name like [`Replacement::finish`], unless the name exists.
    ///
    /// # Errors
    /// `EEXIST` if it does.
    pub fn finish_new(self) -> io::Result<()> {
        self.temporary
            .map_or(Err(Errno::EXIST.into()), |temporary| Ok(temporary.persist_noclobber(&self.path)?))
    }
}

/// Writes `bytes` to `path` as [`Replacement`] does, and to the disk before the rename, so that
/// after a crash the name does not lead to an empty file.
///
/// # Errors
/// Fails like [`Replacement::of`], and with the error of write(2).
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, replacement) = Replacement::of(path)?;
    file.write_all(bytes)?;
    replacement.sync(&file)?;
    replacement.finish()
}

/// Replaces a file like [`replace`], but does not wait for the disk: for what can be made again.
///
/// # Errors
/// Fails like [`Replacement::of`], and with the error of write(2).
pub fn replace_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, replacement) = Replacement::of(path)?;
    file.write_all(bytes)?;
    replacement.finish()
}

/// Replaces a file like [`replace`], and gives it this mode whatever the umask.
///
/// # Errors
/// Fails like [`replace`], and with the error of fchmod(2).
pub fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (mut file, replacement) = Replacement::of(path)?;
    if replacement.temporary.is_some() {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    replacement.sync(&file)?;
    replacement.finish()
}

/// The directory that holds `path`: the current one for a name alone, whose parent is the empty
/// path.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns whether `path` names something that is written through, not replaced: a device, a FIFO,
/// or a descriptor of this process (/dev/stdout, /dev/fd/1), whatever that leads to.
pub fn is_stream(path: &Path) -> bool {
    let mut path = path.to_owned();
    // /dev/stdout is a link to /proc/self/fd/1, /dev/fd one to /proc/self/fd. What is in there are
    // links that only the kernel can follow: `pipe:[1234]`, or the path of a file that may be
    // another by now.
    for _ in 0..MAX_LINKS {
        let Ok(parent) = folder_of(&path).canonicalize() else { return false };
        if parent.starts_with("/proc") {
            return true;
        }
        let Ok(status) = fs::symlink_metadata(&path) else { return false };
        if !status.is_symlink() {
            let kind = status.file_type();
            return kind.is_char_device() || kind.is_fifo() || kind.is_block_device() || kind.is_socket();
        }
        let Ok(target) = fs::read_link(&path) else { return false };
        path = parent.join(target);
    }
    false
}

/// Refuses a link that another user has put into a directory in which all users can make files, as
/// the kernel does with `fs.protected_symlinks` (may_follow_link in fs/namei.c), which a machine
/// may have switched off. Root follows no other user's link at all, except those of the user who
/// called sudo.
///
/// # Errors
/// `EACCES` for such a link.
pub fn refuse_foreign_link(path: &Path) -> io::Result<()> {
    let Ok(link) = fs::symlink_metadata(path) else { return Ok(()) };
    let folder = fs::metadata(folder_of(path))?;
    let shared = folder.mode() & 0o1002 == 0o1002;
    let me = rustix::process::geteuid().as_raw();
    let is_callers = || std::env::var("SUDO_UID").is_ok_and(|uid| uid.parse() == Ok(link.uid()));
    let foreign = link.uid() != me && !is_callers() && (me == 0 || shared && link.uid() != folder.uid());
    if link.is_symlink() && foreign { Err(Errno::ACCESS.into()) } else { Ok(()) }
}

/// Makes or truncates a file that is written as it comes, where [`replace`] cannot be used. A link
/// is followed as by [`refuse_foreign_link`], and not if it appears meanwhile.
///
/// # Errors
/// Returns the error of open(2), or of that function.
pub fn create(path: &Path) -> io::Result<File> {
    refuse_foreign_link(path)?;
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let flags = if is_link { 0 } else { OFlags::NOFOLLOW.bits().cast_signed() };
    File::options().write(true).create(true).truncate(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::unix::fs::{chown, lchown, symlink},
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
    fn root_follows_no_link_of_another_user() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        drop(create(&folder.path().join("new")).unwrap());
        // Both are another user's, as in that user's directory.
        if lchown(&link, Some(65534), None).is_ok() {
            chown(folder.path(), Some(65534), None).unwrap();
            assert_eq!(create(&link).unwrap_err().raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
            assert_eq!(fs::read(&target).unwrap(), b"kept");
            lchown(&link, Some(0), None).unwrap();
        }
        drop(create(&link).unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"");
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
            assert_eq!(error.raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
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
        let (mut file, replacement) = Replacement::of(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        drop(replacement);
        assert_eq!(left(folder.path()), ["out"]);
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        // A reader that has the old one open reads on in the old one.
        assert_eq!(io::read_to_string(held).unwrap(), "first");
        let (_, replacement) = Replacement::of(&path).unwrap();
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
        // As /tmp.
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
