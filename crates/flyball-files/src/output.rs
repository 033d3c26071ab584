//! Creates outputs safely. A path that the user named is walked part by part, and each folder is
//! held open. So renames by others change nothing, and no link of an untrusted user is followed on
//! the way. Files are then created, renamed and removed by name in the open folder.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::{FileTypeExt as _, MetadataExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat},
    io::Errno,
};

use crate::{MAX_LINKS, regular::not_regular};

/// Flags for a descriptor that only identifies a file.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// How to open a regular file that is written in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// An existing file, to read and to change.
    Change,
    /// The same, but creates an empty file if there is none.
    Keep,
    /// Writes go to the file's end. Creates an empty file if there is none.
    Append,
    /// A new file: an existing one is an error.
    New,
}

/// Opens a regular file to read it and to write it in place. Follows neither a link at its name nor
/// a link of another user on the way.
///
/// # Errors
/// The errno of openat(2): `ELOOP` for a link at the name. `InvalidInput` if the file is not
/// regular. `PermissionDenied` for a link of another user, and for a file with several names in a
/// folder of another user if this user is root: the other user may have chosen the file.
pub fn open_output(path: &Path, how: Opening, mode: u32) -> io::Result<File> {
    let flags = OFlags::NONBLOCK
        | match how {
            Opening::Change => OFlags::RDWR,
            Opening::Keep => OFlags::RDWR | OFlags::CREATE,
            Opening::Append => OFlags::RDWR | OFlags::CREATE | OFlags::APPEND,
            Opening::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
    let location = Location::find(path)?;
    let file = location.open(flags, mode)?;
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(not_regular());
    }
    if status.nlink() > 1 && is_root() && !is_trusted(rustix::fs::fstat(&location.folder)?.st_uid) {
        let message = "another user's directory has it, and it has other names";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(file)
}

/// Creates a directory that must not exist yet.
///
/// # Errors
/// The errno of mkdirat(2); `PermissionDenied` for a link of another user on the way.
pub fn make_dir(path: &Path) -> io::Result<()> {
    let Location { folder, name } = Location::find(path)?;
    Ok(rustix::fs::mkdirat(&folder, &name, Mode::from_raw_mode(0o777))?)
}

/// Creates a directory and the missing ones above it.
///
/// # Errors
/// The errno of mkdirat(2); `PermissionDenied` for a link of another user on the way.
pub fn make_dirs(path: &Path) -> io::Result<()> {
    walk(start(CWD, path)?, path, true, &mut 0).map(drop)
}

/// Removes a file, or a link itself.
///
/// # Errors
/// The errno of unlinkat(2); `PermissionDenied` for a link of another user on the way.
pub fn remove_output(path: &Path) -> io::Result<()> {
    Location::find(path)?.remove()
}

/// Renames a file.
///
/// # Errors
/// The errno of renameat(2); `PermissionDenied` for a link of another user on the way.
pub fn rename_output(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (Location::find(from)?, Location::find(to)?);
    Ok(rustix::fs::renameat(&from.folder, &from.name, &to.folder, &to.name)?)
}

/// Creates a link.
///
/// # Errors
/// The errno of symlinkat(2); `PermissionDenied` for a link of another user on the way.
pub fn link_output(target: &Path, path: &Path) -> io::Result<()> {
    let Location { folder, name } = Location::find(path)?;
    Ok(rustix::fs::symlinkat(target, &folder, &name)?)
}

/// Listens on a socket at that path. Replaces a socket on which no process listens any more.
///
/// # Errors
/// The errno of bind(2): `ENOENT` without /proc. `PermissionDenied` for a link of another user on
/// the way.
pub fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let location = Location::find(path)?;
    // bind(2) accepts only a path.
    let folder = format!("/proc/self/fd/{}", location.folder.as_raw_fd());
    let socket = Path::new(&folder).join(&location.name);
    if std::fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(&socket).is_err()
    {
        location.remove()?;
    }
    UnixListener::bind(socket)
}

/// A name in a folder that is held open.
#[derive(Debug)]
pub(crate) struct Location {
    pub folder: OwnedFd,
    pub name: OsString,
}

/// The kind of file at a location.
#[derive(Debug)]
pub(crate) enum TargetKind {
    Nothing,
    /// A regular file, or a link to anything but a stream or a directory.
    File,
    Directory,
    Stream(Stream),
}

/// A file that is written to and never replaced: a device, a FIFO, a socket, or a descriptor of a
/// process.
#[derive(Debug)]
pub(crate) struct Stream {
    location: Location,
    /// True if the name is a link in procfs. Only the kernel can follow it: its text is
    /// `pipe:[1234]`, or a path at which there may be another file by now.
    is_descriptor: bool,
}

impl Location {
    /// Opens the folder that contains `path`.
    ///
    /// # Errors
    /// The errno of openat(2); `EISDIR` for a path that can only be a directory;
    /// `PermissionDenied` for a link of another user on the way.
    pub(crate) fn find(path: &Path) -> io::Result<Location> {
        Location::below(start(CWD, path)?, path, &mut 0)
    }

    fn below(start: OwnedFd, path: &Path, links: &mut usize) -> io::Result<Location> {
        match path.file_name() {
            _ if path.as_os_str().is_empty() => Err(Errno::NOENT.into()),
            Some(name) if !path.as_os_str().as_bytes().ends_with(b"/") => {
                let parent = path.parent().unwrap_or(Path::new(""));
                Ok(Location { folder: walk(start, parent, false, links)?, name: name.to_owned() })
            }
            _ => Err(Errno::ISDIR.into()),
        }
    }

    /// Finds the kind of file at the location. Follows a link of this user to see whether it leads
    /// to a stream or a directory.
    ///
    /// # Errors
    /// The errno of openat(2); `PermissionDenied` for a link of another user.
    pub(crate) fn look(&self) -> io::Result<TargetKind> {
        let folder = self.folder.try_clone()?;
        let mut here = Location { folder, name: self.name.clone() };
        for links in 0..MAX_LINKS {
            let found =
                match rustix::fs::openat(&here.folder, &here.name, LOOK | OFlags::NOFOLLOW, Mode::empty()) {
                    Err(Errno::NOENT) if links > 0 => return Ok(TargetKind::File),
                    Err(Errno::NOENT) => return Ok(TargetKind::Nothing),
                    found => found?,
                };
            let status = rustix::fs::fstat(&found)?;
            match FileType::from_raw_mode(status.st_mode) {
                FileType::RegularFile => return Ok(TargetKind::File),
                FileType::Directory => return Ok(TargetKind::Directory),
                FileType::Symlink => {}
                kind => {
                    // Only root can create devices, but any user may wait behind a FIFO.
                    if matches!(kind, FileType::Fifo | FileType::Socket) {
                        check_owner(&here.folder, &here.name, &status, "FIFO or socket")?;
                    }
                    return Ok(TargetKind::Stream(Stream { location: here, is_descriptor: false }));
                }
            }
            check_owner(&here.folder, &here.name, &status, "link")?;
            if is_in_proc(&here.folder)? {
                return Ok(TargetKind::Stream(Stream { location: here, is_descriptor: true }));
            }
            let target = target(&found)?;
            let target = Path::new(&target);
            // If the target cannot be reached, it is no stream. The link is then replaced, which
            // follows nothing.
            match start(&here.folder, target).and_then(|start| Location::below(start, target, &mut 0)) {
                Ok(next) => here = next,
                Err(error) if error.raw_os_error() == Some(Errno::ISDIR.raw_os_error()) => {
                    return Ok(TargetKind::Directory);
                }
                Err(_) => return Ok(TargetKind::File),
            }
        }
        Err(Errno::LOOP.into())
    }

    /// Opens the file of that name. Refuses a link.
    pub(crate) fn open(&self, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(rustix::fs::openat(&self.folder, &self.name, flags, Mode::from_raw_mode(mode))?.into())
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

impl Stream {
    /// Append, because the file behind /dev/stdout may have content already.
    pub(crate) fn open(&self) -> io::Result<File> {
        let Location { folder, name } = &self.location;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
        let follow = if self.is_descriptor { OFlags::empty() } else { OFlags::NOFOLLOW };
        Ok(rustix::fs::openat(folder, name, flags | follow, Mode::empty())?.into())
    }
}

/// Returns the folder from which a path starts.
fn start(here: impl rustix::fd::AsFd, path: &Path) -> io::Result<OwnedFd> {
    let from = if path.has_root() { "/" } else { "." };
    Ok(rustix::fs::openat(here, from, LOOK | OFlags::DIRECTORY, Mode::empty())?)
}

/// Opens the directory to which `path` leads from `here`. With `make`, creates missing directories.
fn walk(mut here: OwnedFd, path: &Path, make: bool, links: &mut usize) -> io::Result<OwnedFd> {
    let mut todo = Vec::new();
    push(&mut todo, path.as_os_str());
    while let Some(part) = todo.pop() {
        let found = match rustix::fs::openat(&here, &part, LOOK | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) if make => {
                match rustix::fs::mkdirat(&here, &part, Mode::from_raw_mode(0o777)) {
                    // Another process may have created it in between.
                    Ok(()) | Err(Errno::EXIST) => todo.push(part),
                    Err(errno) => return Err(errno.into()),
                }
                continue;
            }
            found => found?,
        };
        let status = rustix::fs::fstat(&found)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => here = found,
            FileType::Symlink => {
                check_owner(&here, &part, &status, "link")?;
                *links += 1;
                if *links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if is_in_proc(&here)? {
                    here = rustix::fs::openat(&here, &part, LOOK | OFlags::DIRECTORY, Mode::empty())?;
                    continue;
                }
                let target = target(&found)?;
                if target.as_bytes().starts_with(b"/") {
                    here = start(CWD, Path::new("/"))?;
                }
                push(&mut todo, &target);
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(here)
}

/// Puts the parts of `path` on the stack, the first on top.
fn push(todo: &mut Vec<OsString>, path: &OsStr) {
    let parts = path.as_bytes().split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    todo.extend(parts.rev().map(|part| OsStr::from_bytes(part).to_owned()));
}

/// Reads the target of a link. An empty path means the descriptor's own link (readlinkat(2)).
fn target(link: &OwnedFd) -> io::Result<OsString> {
    Ok(OsString::from_vec(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes()))
}

fn is_in_proc(folder: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(folder)?.f_type == PROC_SUPER_MAGIC)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether this user follows links of the user with that number anywhere. In a user
/// namespace without the machine's root, `/` and root's links belong to the number for all unknown
/// users.
fn is_trusted(owner: u32) -> bool {
    let is_callers = || std::env::var("SUDO_UID").is_ok_and(|uid| uid.parse() == Ok(owner));
    owner == rustix::process::geteuid().as_raw()
        || is_root() && (is_callers() || std::fs::metadata("/").is_ok_and(|root| root.uid() == owner))
}

/// Refuses a link or FIFO that another user has created in a directory in which all users can
/// create files. The kernel does the same with `fs.protected_symlinks` (may_follow_link in
/// fs/namei.c), which a machine may have disabled. Root follows no other user's link at all, except
/// those of the user who called sudo.
fn check_owner(folder: &OwnedFd, name: &OsStr, link: &Stat, what: &str) -> io::Result<()> {
    if is_trusted(link.st_uid) {
        return Ok(());
    }
    let folder = rustix::fs::fstat(folder)?;
    let is_shared = folder.st_mode & 0o1002 == 0o1002 && folder.st_uid != link.st_uid;
    if !is_root() && !is_shared {
        return Ok(());
    }
    let message = format!("'{}' is a {what} of user {}", name.display(), link.st_uid);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, chown, lchown, symlink},
        path::PathBuf,
    };

    use super::*;

    /// Every function that creates, changes or removes something at a path.
    type Way = (&'static str, fn(&Path) -> io::Result<()>);
    const WAYS: [Way; 13] = [
        ("replace", |path| crate::replace(path, b"x")),
        ("replace a file", |path| crate::replace_file(path, b"x", false)),
        ("replace with mode", |path| crate::replace_with_mode(path, b"x", 0o600)),
        ("create", |path| crate::create(path).map(drop)),
        ("unnamed", |path| crate::Replacement::from_unnamed(path, &tempfile::tempfile()?).map(drop)),
        ("change", |path| open_output(path, Opening::Change, 0o600).map(drop)),
        ("append", |path| open_output(path, Opening::Append, 0o600).map(drop)),
        ("listen", |path| listen_at(path).map(drop)),
        ("make a directory", make_dir),
        ("make directories", make_dirs),
        ("link", |path| link_output(Path::new("x"), path)),
        ("rename", |path| rename_output(path, Path::new("/nowhere"))),
        ("remove", remove_output),
    ];

    fn denied(result: io::Result<()>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        found.sort();
        found
    }

    /// An attacker has prepared a directory in which `way` is a link to one of our directories.
    #[test]
    fn root_follows_no_link_of_another_user_on_the_way() {
        if !is_root() {
            eprintln!("skipped 1 test: only root can make a link of another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
        fs::create_dir(&theirs).unwrap();
        fs::create_dir(&ours).unwrap();
        fs::write(ours.join("file"), "kept").unwrap();
        let before = content(&ours);
        let link = theirs.join("way");
        for (target, end) in [
            (ours.clone(), "way/file"),
            (PathBuf::from("../ours"), "way/file"),
            (PathBuf::from("../ours"), "way/new"),
            (folder.path().to_owned(), "way/ours/new"),
            (PathBuf::from(".."), "way/ours/../ours/new"),
            (PathBuf::from("/proc/self/cwd"), "way/new"),
        ] {
            symlink(&target, &link).unwrap();
            lchown(&link, Some(65534), None).unwrap();
            for (name, way) in WAYS {
                assert!(denied(way(&theirs.join(end))), "{name} {} {end}", target.display());
            }
            assert_eq!(content(&ours), before);
            fs::remove_file(&link).unwrap();
        }
        // Go through our own link to one of the attacker's links.
        symlink(&ours, &link).unwrap();
        lchown(&link, Some(65534), None).unwrap();
        let own = folder.path().join("own");
        symlink("theirs/way", &own).unwrap();
        for (name, way) in WAYS {
            assert!(denied(way(&own.join("file"))), "{name}");
        }
        // SUDO_UID would name the user who called sudo. A link of root is followed.
        lchown(&link, Some(0), None).unwrap();
        crate::replace(&own.join("file"), b"new").unwrap();
        assert_eq!(fs::read(ours.join("file")).unwrap(), b"new");
        // Root does not write into a FIFO of another user either, because anyone may be reading.
        let fifo = theirs.join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        lchown(&fifo, Some(65534), None).unwrap();
        assert!(denied(crate::replace(&fifo, b"new")));
    }

    #[test]
    fn what_is_written_in_place_is_no_link_and_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, theirs) = (folder.path().join("file"), folder.path().join("theirs"));
        fs::write(&file, "kept").unwrap();
        fs::create_dir(&theirs).unwrap();
        symlink("../file", theirs.join("link")).unwrap();
        fs::hard_link(&file, theirs.join("name")).unwrap();
        for how in [Opening::Change, Opening::Keep, Opening::Append, Opening::New] {
            assert!(open_output(&theirs.join("link"), how, 0o600).is_err());
        }
        assert!(open_output(&theirs, Opening::Append, 0o600).is_err());
        open_output(&theirs.join("name"), Opening::Append, 0o600).unwrap();
        if chown(&theirs, Some(65534), None).is_ok() {
            assert!(denied(open_output(&theirs.join("name"), Opening::Append, 0o600).map(drop)));
        }
        assert_eq!(fs::read(file).unwrap(), b"kept");
    }

    #[test]
    fn paths_lead_where_the_kernel_leads_them() {
        let folder = tempfile::tempdir().unwrap();
        make_dirs(&folder.path().join("a/b/../c/.")).unwrap();
        symlink("c/../../a", folder.path().join("a/round")).unwrap();
        symlink(folder.path().join("later"), folder.path().join("dangling")).unwrap();
        for path in ["a/b", "a/c", "a/round/round/c", "dangling/x"] {
            make_dirs(&folder.path().join(path)).unwrap();
            assert!(folder.path().join(path).is_dir(), "{path}");
        }
        symlink("self", folder.path().join("self")).unwrap();
        let errno = |result: io::Result<()>| Errno::from_io_error(&result.unwrap_err()).unwrap();
        assert_eq!(errno(make_dirs(&folder.path().join("self/x"))), Errno::LOOP);
        crate::replace(&folder.path().join("x"), b"").unwrap();
        assert_eq!(errno(make_dirs(&folder.path().join("x/y"))), Errno::NOTDIR);
        assert_eq!(errno(make_dir(&folder.path().join("x"))), Errno::EXIST);
        for path in ["", "none/x"] {
            assert_eq!(errno(crate::replace(Path::new(path), b"")), Errno::NOENT);
        }
        for path in ["/", "..", ".", "x/"] {
            assert_eq!(errno(crate::replace(Path::new(path), b"")), Errno::ISDIR, "{path}");
        }
        assert_eq!(fs::metadata(folder.path().join("a")).unwrap().permissions().mode() & 0o700, 0o700);
    }
}
