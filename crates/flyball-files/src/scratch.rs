//! Temporary directories that do not long outlive their process.
//!
//! A killed process cannot remove its directory. So each directory contains a file that its process
//! has locked. The kernel releases the lock when the process ends, for whatever reason. Creating a
//! directory first removes those of the same name whose lock is free.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::FlockOperation;

/// The name of the locked file.
const LOCK: &str = ".lock";
/// A directory without the lock file is being created, or its process was killed while creating it.
/// After this time it counts as the latter.
const YOUNG: Duration = Duration::from_secs(3600);

/// A directory of this process, removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
    /// Locked as long as the directory exists. Children do not inherit it.
    _lock: File,
}

impl Scratch {
    /// Creates a directory `NAME.XXXXXX`, mode 0700, in the directory for temporary files. First
    /// removes directories of the same name that killed processes of this user have left there.
    pub fn new(name: &str) -> io::Result<Scratch> {
        Scratch::new_in(&std::env::temp_dir(), name)
    }

    /// Creates a directory like [`Scratch::new`], inside `parent`.
    pub fn new_in(parent: &Path, name: &str) -> io::Result<Scratch> {
        clean(parent, name);
        let prefix = format!("{name}.");
        let dir = tempfile::Builder::new()
            .prefix(&prefix)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        // Lock it before it gets its name, so that a process which finds the name finds it locked.
        let unnamed = dir.path().join(".unlocked");
        let lock = File::options().write(true).create_new(true).mode(0o600).open(&unnamed)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unnamed, dir.path().join(LOCK))?;
        Ok(Scratch { dir, _lock: lock })
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Creates a directory in it.
    pub fn make_dir(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }
}

/// Removes directories left by killed processes. A directory that cannot be read or removed stays:
/// it is another user's, or the disk has a problem.
fn clean(parent: &Path, name: &str) {
    let me = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let Some(rest) = entry
            .file_name()
            .to_str()
            .and_then(|found| found.strip_prefix(name)?.strip_prefix('.').map(str::to_owned))
        else {
            continue;
        };
        // The name must match tempfile's pattern. Anything else with this prefix is not ours to
        // remove.
        if rest.len() != 6 || !rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            continue;
        }
        let path = entry.path();
        // In a directory that all users can write, another user may have used our name.
        let Ok(status) = fs::symlink_metadata(&path) else { continue };
        if status.is_dir() && status.uid() == me && is_abandoned(&path, &status) {
            // Another process may be removing it at the same time.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_abandoned(path: &Path, status: &fs::Metadata) -> bool {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    match File::options().read(true).custom_flags(flags).open(path.join(LOCK)) {
        // A free lock is taken only for a moment. An abandoned directory stays abandoned, because
        // its process is gone.
        Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            status.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age > YOUNG))
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir_all(path.join("inside")).unwrap();
            path
        };
        let left = made("flyball-x.abc123");
        fs::write(left.join(LOCK), "").unwrap();
        let young = made("flyball-x.abc124");
        let other = made("flyball-y.abc123");
        let odd = made("flyball-x.keep-this");
        fs::write(odd.join(LOCK), "").unwrap();
        let alive = Scratch::new_in(parent.path(), "flyball-x").unwrap();
        assert!(!left.exists());
        let second = Scratch::new_in(parent.path(), "flyball-x").unwrap();
        for kept in [&young, &other, &odd, &alive.path().to_owned()] {
            assert!(kept.exists(), "{}", kept.display());
        }
        assert_eq!(fs::metadata(alive.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists() && second.path().exists());
    }

    #[test]
    fn a_link_is_not_taken_for_a_directory() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("precious");
        fs::create_dir(&target).unwrap();
        fs::write(target.join(LOCK), "").unwrap();
        std::os::unix::fs::symlink(&target, parent.path().join("flyball-x.abcdef")).unwrap();
        Scratch::new_in(parent.path(), "flyball-x").unwrap();
        assert!(target.join(LOCK).exists());
    }
}
