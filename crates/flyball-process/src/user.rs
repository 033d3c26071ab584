//! The user as whom a command runs: by default the user who called sudo, so that only flyball
//! itself is root.

#![allow(unsafe_code, reason = "getpwnam_r(3), getpwuid_r(3), getgrouplist(3), setfsuid(2)")]

use std::{
    ffi::{CStr, CString, OsString},
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// The user's groups according to the group database.
    pub groups: Vec<u32>,
    pub home: PathBuf,
}

/// The variables in which sudo describes its caller.
pub const SUDO_VARIABLES: [&str; 4] = ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"];

impl User {
    /// Returns the user of that name; `None` if there is none.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn by_name(name: &str) -> io::Result<Option<User>> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        // SAFETY: the name is a C string that outlives the call; the other arguments are those of
        // `entry`.
        entry(|record, buffer, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), record, buffer.as_mut_ptr().cast(), buffer.len(), found)
        })
    }

    /// Returns the user with that number. If the database has no such user, only the number is
    /// known, with the group `gid`.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn by_number(uid: u32, gid: u32) -> io::Result<User> {
        // SAFETY: the arguments are those of `entry`.
        let known = entry(|record, buffer, found| unsafe {
            libc::getpwuid_r(uid, record, buffer.as_mut_ptr().cast(), buffer.len(), found)
        })?;
        let unknown = || User { name: uid.to_string(), uid, gid, groups: vec![gid], home: "/".into() };
        Ok(known.unwrap_or_else(unknown))
    }

    /// Returns the user who called sudo, if sudo made this process root; `None` otherwise, or if
    /// root itself called sudo.
    ///
    /// # Errors
    /// sudo's variables hold no numbers, or the database cannot be read.
    pub fn from_sudo() -> io::Result<Option<User>> {
        // Without root, any program may have set these variables.
        if !crate::process::is_root() {
            return Ok(None);
        }
        let number = |name: &str| {
            let Some(text) = std::env::var_os(name) else { return Ok(None) };
            let number = text.to_str().and_then(|text| text.parse::<u32>().ok());
            number.map(Some).ok_or_else(|| io::Error::other(format!("{name} is not a number")))
        };
        match (number("SUDO_UID")?, number("SUDO_GID")?) {
            (None | Some(0), _) => Ok(None),
            // (uid_t) -1 means "do not change" to setuid(2) and similar calls.
            (Some(u32::MAX), _) | (_, Some(u32::MAX)) => {
                Err(io::Error::other("SUDO_UID or SUDO_GID is not a user"))
            }
            (Some(uid), gid) => User::by_number(uid, gid.unwrap_or(uid)).map(Some),
        }
    }

    /// Returns whether this process already runs as that user.
    pub fn is_self(&self) -> bool {
        crate::process::user() == self.uid
    }

    /// Gives a root-owned output to this user. Another user may have replaced it by a link, which
    /// is not followed.
    ///
    /// # Errors
    /// The errors of [`flyball_files::open_output`] and of fchown(2).
    pub fn give(&self, path: &Path) -> io::Result<()> {
        let file = flyball_files::open_output(path, flyball_files::Opening::Change, 0)?;
        std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))
    }

    /// Accesses files as this user until the returned value is dropped. New files of the calling
    /// thread belong to the user, and the thread can access only the user's files, wherever links
    /// lead.
    pub fn for_files(&self) -> FilesOfUser {
        let before = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if before.0 == self.uid {
            return FilesOfUser { before: None };
        }
        // Set the group first: once the user is not root, it could not be changed any more.
        set_file_ids(self.uid, self.gid, true);
        FilesOfUser { before: Some(before) }
    }
}

/// See [`User::for_files`].
#[derive(Debug)]
#[must_use]
pub struct FilesOfUser {
    before: Option<(u32, u32)>,
}

impl Drop for FilesOfUser {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.before {
            set_file_ids(uid, gid, false);
        }
    }
}

/// Sets the calling thread's ids for file access. Use `group_first` if the new user may not set the
/// group.
fn set_file_ids(uid: u32, gid: u32, group_first: bool) {
    // SAFETY: setfsuid(2) and setfsgid(2) take a number and touch no memory. They cannot fail for
    // root, and report nothing.
    unsafe {
        if group_first {
            libc::setfsgid(gid);
            libc::setfsuid(uid);
        } else {
            libc::setfsuid(uid);
            libc::setfsgid(gid);
        }
    }
}

/// Returns an entry of the user database, using one of the two calls that look it up.
fn entry(
    look: impl Fn(&mut libc::passwd, &mut [u8], &mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<User>> {
    let mut buffer = vec![0_u8; 1 << 10];
    loop {
        // SAFETY: all zeros is a value of passwd, a structure of numbers and pointers.
        let mut record: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        match look(&mut record, &mut buffer, &mut found) {
            0 if found.is_null() => return Ok(None),
            0 => return from_record(&record).map(Some),
            // An entry with many members may be long, but not a megabyte.
            libc::ERANGE if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            // The databases return these for a name that they do not contain (getpwnam(3), ERRORS).
            libc::ENOENT | libc::ESRCH => return Ok(None),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn from_record(record: &libc::passwd) -> io::Result<User> {
    // SAFETY: a record that was found has C strings in both fields, in the buffer that the caller
    // still holds.
    let (name, home) = unsafe { (CStr::from_ptr(record.pw_name), CStr::from_ptr(record.pw_dir)) };
    Ok(User {
        name: name.to_string_lossy().into_owned(),
        uid: record.pw_uid,
        gid: record.pw_gid,
        groups: groups_of(name, record.pw_gid)?,
        home: OsString::from_vec(home.to_bytes().to_vec()).into(),
    })
}

fn groups_of(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; 64];
    // The kernel allows 65536 groups (NGROUPS_MAX).
    while groups.len() <= 1 << 16 {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name is a C string; `groups` has room for `count` numbers, and the call
        // writes at most that many.
        let answer = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if answer >= 0 {
            groups.truncate(answer as usize);
            return Ok(groups);
        }
        // -1: there are more groups than room.
        groups.resize(groups.len() * 4, 0);
    }
    Err(io::Error::other("a user is in more groups than the kernel allows"))
}

/// Returns the user whose files a command reads and writes: the user who called sudo, or else the
/// user of this process.
pub fn caller() -> u32 {
    match User::from_sudo() {
        Ok(Some(user)) => user.uid,
        _ => crate::process::user(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = User::by_name("root").unwrap().expect("every system has it");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(User::by_number(0, 0).unwrap(), root);
        assert_eq!(User::by_name("nobody-has-this-name").unwrap(), None);
        let unknown = User::by_number(4_000_000, 4_000_001).unwrap();
        assert_eq!((unknown.uid, unknown.gid, unknown.groups), (4_000_000, 4_000_001, vec![4_000_001]));
    }

    #[test]
    fn files_belong_to_the_user_and_stay_in_reach() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        if !crate::process::is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let user = User::by_number(4_000_000, 4_000_001).unwrap();
        {
            let _as_user = user.for_files();
            std::fs::write(folder.path().join("theirs"), "x").unwrap();
            assert!(std::fs::read(&secret).is_err());
        }
        assert!(std::fs::read(&secret).is_ok());
        let made = std::fs::metadata(folder.path().join("theirs")).unwrap();
        assert_eq!((made.uid(), made.gid()), (4_000_000, 4_000_001));
    }
}
