//! The directory for everything that must survive flyball's own death: a lock and a journal.
//!
//! On the running machine it is /run/flyball, on a tmpfs, so it is gone after a reboot, just like
//! the settings.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// The directory that holds a machine's lock and journal.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
    /// The directory that every flyball on the machine locks, if it differs from `path`.
    home: Option<PathBuf>,
    patience: Option<LockTimeout>,
}

/// How long to wait for a lock that another flyball holds. The service holds it for some
/// milliseconds per correction.
#[derive(Debug, Clone, Copy)]
pub struct LockTimeout {
    pub time: Duration,
    /// Called once, if the lock is still taken after a moment.
    pub waits: fn(&LockError),
}

impl LockTimeout {
    /// Pause between two attempts.
    const PAUSE: Duration = Duration::from_millis(10);
    /// How long to wait before `waits` is called.
    const MOMENT: Duration = Duration::from_millis(300);
}

impl StateDir {
    /// Directory of the running machine's state.
    pub const LIVE: &str = "/run/flyball";

    /// Creates a handle on the state directory at `path`, but not the directory.
    pub fn new(path: impl Into<PathBuf>) -> StateDir {
        StateDir { path: path.into(), home: None, patience: None }
    }

    /// Returns this directory, for a machine whose default directory is `home`. [`StateDir::lock`]
    /// locks that directory too. Otherwise two flyballs with two directories could change one
    /// machine at once, each restoring over the other's writes.
    #[must_use]
    pub fn on_machine(self, home: impl Into<PathBuf>) -> StateDir {
        StateDir { home: Some(home.into()), ..self }
    }

    /// Returns this directory with a [`StateDir::lock`] that waits.
    #[must_use]
    pub fn waiting(self, patience: LockTimeout) -> StateDir {
        StateDir { patience: Some(patience), ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    fn lock_path(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Creates the directory. Other users may open the files in it if their modes permit it, but
    /// cannot list it. A journal lists files and the contents to write back, so a user who could
    /// write to the directory, or replace it, could make root write anything anywhere. So flyball
    /// refuses a directory that others can write to, and a directory below one.
    ///
    /// # Errors
    /// The file system's error: `EACCES` on /run for an ordinary user; `InvalidInput` for a
    /// directory that another user owns or may write to, here or on the way.
    pub fn create(&self) -> io::Result<()> {
        let path = std::path::absolute(&self.path)?;
        // Check before creating anything below a directory that another user may write to.
        check(&path)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&path)?;
        // Check again: another program may have created it in between.
        check(&path)
    }

    /// Refuses a directory that another user owns or may write to, as [`StateDir::create`] does: an
    /// empty one would look as if nothing had been changed. A directory that cannot be examined
    /// passes; opening its files will fail.
    ///
    /// # Errors
    /// [`LockError::Io`] with `InvalidInput` for such a directory.
    pub fn check(&self) -> Result<(), LockError> {
        match std::path::absolute(&self.path).and_then(|path| check(&path)) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(LockError::Io { path: self.path.clone(), error })
            }
            _ => Ok(()),
        }
    }

    /// Takes the lock. If another process holds it, returns that holder in the error.
    ///
    /// # Errors
    /// [`LockError::Held`] with the holder; [`LockError::Io`] if the directory or the file cannot
    /// be created.
    pub fn lock(&self, command: &str) -> Result<Lock, LockError> {
        let begin = Instant::now();
        let mut has_said = false;
        loop {
            match (self.lock_at_once(command), self.patience) {
                (Err(error @ LockError::Held { .. }), Some(patience)) if begin.elapsed() < patience.time => {
                    if begin.elapsed() >= LockTimeout::MOMENT && !std::mem::replace(&mut has_said, true) {
                        (patience.waits)(&error);
                    }
                    std::thread::sleep(LockTimeout::PAUSE);
                }
                (result, _) => return result,
            }
        }
    }

    fn lock_at_once(&self, command: &str) -> Result<Lock, LockError> {
        // Everyone takes the machine's own lock first, and waits for neither lock, so two processes
        // cannot hold one each.
        let machine = match self.home.as_ref().map(|home| StateDir::new(home.clone()).lock(command)) {
            Some(Ok(lock)) => Some(lock),
            // Without access to /run there is no lock to share, and usually no writable file of the
            // machine either.
            Some(Err(LockError::Io { error, .. }))
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                None
            }
            Some(Err(error)) => return Err(error),
            None => None,
        };
        let path = self.lock_path();
        let fail = |error: io::Error| LockError::Io { path: path.clone(), error };
        self.create().map_err(|error| LockError::Io { path: self.path.clone(), error })?;
        if machine.as_ref().is_some_and(|machine| machine.is_at(&path)) {
            // Both paths lead to one directory: a second lock on its file would wait for the first.
            return machine.ok_or(LockError::Held { path, holder: None });
        }
        let held = |mut file: &File| {
            let mut text = String::new();
            // The holder may be writing its name just now. The message then lacks the name.
            let _ = Read::by_ref(&mut file).take(MAX_PER_HOLDER).read_to_string(&mut text);
            let holder = serde_json::from_str(&text).ok().filter(|holder| !is_stale(holder, file));
            LockError::Held { path: path.clone(), holder }
        };
        // Closing a file that was opened for writing wakes everyone who waits for the lock. A
        // failed attempt must not wake the service that makes it.
        if let Ok(file) = regular(File::options().read(true), &path)
            && !flyball_process::try_lock(&file).map_err(fail)?
        {
            return Err(held(&file));
        }
        // Do not truncate: the file holds the name of the process that has the lock.
        let opened = regular(File::options().read(true).write(true).create(true), &path);
        let mut file = match opened {
            // Restoring works on a read-only file system too. Writes fail later, at the journal.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                regular(File::options().read(true), &path).map_err(|_| fail(error))?
            }
            opened => opened.map_err(fail)?,
        };
        if !flyball_process::try_lock(&file).map_err(fail)? {
            return Err(held(&file));
        }
        let holder = Holder { pid: std::process::id(), command: command.to_owned(), since: now() };
        // Write the name after taking the lock, or it would overwrite the holder's name. On a full
        // file system the lock has no name.
        let _ = write_over(&mut file, &serde_json::to_vec(&holder).unwrap_or_default());
        Ok(Lock { file, path, machine: machine.map(Box::new) })
    }
}

/// Limit on the bytes read from a lock file, which has one line.
const MAX_PER_HOLDER: u64 = 64 << 10;

fn check(path: &Path) -> io::Result<()> {
    flyball_files::check_private(path).map_err(|why| match why {
        flyball_files::Untrusted::Io { source, .. } => source,
        other => io::Error::new(io::ErrorKind::InvalidInput, other.to_string()),
    })
}

/// Opens a regular file of a state directory, readable only by its owner.
pub(crate) fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    flyball_files::open_trusted(options.mode(0o600), path)
}

/// Returns whether the holder named in a lock file has ended. On a read-only file system the next
/// holder cannot replace the name. A guardian keeps the lock of a process that has ended, and the
/// kernel still lists the lock under that process's number.
fn is_stale(holder: &Holder, file: &File) -> bool {
    let pid = holder.pid.to_string();
    flyball_process::started_at(holder.pid).is_none()
        && flyball_process::lock_holder(file).is_none_or(|(locker, _)| locker != pid)
}

fn write_over(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(bytes)
}

/// Returns the seconds since 1970, for display in the journal and the lock, never for measurements.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// Command line of the process.
    pub command: String,
    /// Time when it took the lock, in seconds since 1970.
    pub since: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = now().saturating_sub(self.since);
        write!(f, "'{}' (pid {}), for ", self.command, self.pid)?;
        match age {
            0..120 => write!(f, "{age} s"),
            120..7200 => write!(f, "{} min", age / 60),
            _ => write!(f, "{} h", age / 3600),
        }
    }
}

/// The lock on a machine, held while this value lives. The kernel releases it when the last process
/// that holds it dies, however it dies. A guardian holds it too.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    /// The machine's own lock, if the state directory is a different one.
    machine: Option<Box<Lock>>,
}

impl Lock {
    /// Returns a second handle of this lock. The machine stays locked until both are dropped.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn again(&self) -> io::Result<Lock> {
        let machine = self.machine.as_ref().map(|lock| lock.again()).transpose()?.map(Box::new);
        Ok(Lock { file: self.file.try_clone()?, path: self.path.clone(), machine })
    }

    /// Returns another handle of this lock, to hand to a child process.
    pub fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Returns another handle of the machine's own lock, if that is a different file.
    pub fn share_machine(&self) -> io::Result<Option<File>> {
        self.machine.as_ref().map(|lock| lock.share()).transpose()
    }

    /// Returns the path of the lock's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_at(&self, path: &Path) -> bool {
        let identity = |status: std::fs::Metadata| (status.dev(), status.ino());
        match (self.file.metadata(), std::fs::metadata(path)) {
            (Ok(mine), Ok(other)) => identity(mine) == identity(other),
            _ => false,
        }
    }
}

/// Why the lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another flyball has it.
    #[error("another flyball is changing this machine: {}", match holder {
        Some(holder) => format!("{holder}; wait until it ends"),
        None => format!("see who has {} open", path.display()),
    })]
    Held {
        /// The lock's file.
        path: PathBuf,
        /// The holder, if it could be read.
        holder: Option<Holder>,
    },
    /// The state directory cannot be used.
    #[error("cannot use {}: {error}; {}", path.display(), match error.kind() {
        io::ErrorKind::PermissionDenied => "settings of the machine are root's: run it with sudo",
        // Restoring needs the journal in this directory, so another directory would not help.
        io::ErrorKind::ReadOnlyFilesystem =>
            "make its file system writable (mount -o remount,rw), because the saved settings are kept there",
        _ => "give another directory with --state-dir or FLYBALL_STATE",
    })]
    Io {
        /// Path that could not be created or opened.
        path: PathBuf,
        error: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_with_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path().join("state"));
        let lock = state.lock("flyball set governor=performance").unwrap();
        let error = state.lock("flyball plan").unwrap_err();
        let LockError::Held { holder: Some(holder), .. } = &error else { panic!("{error}") };
        assert_eq!(holder.pid, std::process::id());
        let words = error.to_string();
        assert!(words.contains("set governor=performance") && words.contains("wait"), "{words}");
        // A shared handle keeps the lock after the first is gone: that is how a guardian holds it.
        let shared = lock.share().unwrap();
        drop(lock);
        assert!(matches!(state.lock("x"), Err(LockError::Held { .. })));
        drop(shared);
        assert!(state.lock("x").is_ok());
    }

    #[test]
    fn a_lock_that_is_held_for_a_moment_is_waited_for() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static SAID: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let patience = |time| LockTimeout {
            time: Duration::from_millis(time),
            waits: |_| _ = SAID.fetch_add(1, Ordering::Relaxed),
        };
        let state = StateDir::new(folder.path().join("state"));
        let lock = state.lock("a").unwrap();
        let begin = Instant::now();
        assert!(matches!(state.clone().waiting(patience(500)).lock("b"), Err(LockError::Held { .. })));
        assert!(begin.elapsed() >= Duration::from_millis(500) && SAID.load(Ordering::Relaxed) == 1);
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(lock);
        });
        assert!(state.waiting(patience(60_000)).lock("b").is_ok());
        other.join().unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path().join("state"));
        std::fs::create_dir(state.path()).unwrap();
        let open = |mode| std::fs::set_permissions(state.path(), PermissionsExt::from_mode(mode)).unwrap();
        open(0o1777);
        let refused = |state: &StateDir| matches!(state.lock("x"), Err(LockError::Io { error, .. }) if error.kind() == io::ErrorKind::InvalidInput);
        assert!(refused(&state) && state.check().is_err());
        assert!(!state.lock_path().exists());
        open(0o755);
        assert!(state.check().is_ok() && state.lock("x").is_ok());
        // A user who may rename the directory above can replace it after the check.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(refused(&state));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn two_state_directories_of_one_machine_exclude_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let home = StateDir::new(at("run"));
        let of = |name: &str| StateDir::new(at(name)).on_machine(at("run"));
        let held = |state: StateDir| matches!(state.lock("x"), Err(LockError::Held { .. }));
        let lock = of("a").lock("flyball set").unwrap();
        assert!(held(of("b")) && held(home.clone()));
        // A guardian that holds both handles keeps both locks.
        let (own, machine) = (lock.share().unwrap(), lock.share_machine().unwrap());
        drop(lock);
        assert!(held(of("b")) && machine.is_some());
        drop((own, machine));
        let lock = home.lock("flyball set").unwrap();
        assert!(held(of("a")));
        drop(lock);
        // The machine's own directory, given by hand.
        assert!(of("run").lock("x").is_ok());
    }

    #[test]
    fn only_a_regular_file_is_a_lock() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path());
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), state.lock_path()).unwrap();
        assert!(matches!(state.lock("x"), Err(LockError::Io { .. })));
        assert!(!folder.path().join("elsewhere").exists());
        std::fs::remove_file(state.lock_path()).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(state.lock_path()).status().unwrap();
        assert!(fifo.success());
        assert!(matches!(state.lock("x"), Err(LockError::Io { .. })));
    }

    #[test]
    fn another_directory_is_not_recommended_where_it_would_not_help() {
        let at = |kind: io::ErrorKind| LockError::Io { path: "/run/flyball".into(), error: kind.into() };
        assert!(!at(io::ErrorKind::ReadOnlyFilesystem).to_string().contains("--state-dir"));
        assert!(at(io::ErrorKind::StorageFull).to_string().contains("--state-dir"));
    }

    /// On a read-only file system the next holder cannot write its name, so the lock file still
    /// names the previous holder.
    #[test]
    fn a_holder_that_has_ended_is_not_named() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path());
        let _lock = state.lock("now").unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let previous = Holder { pid: ended.id(), command: "before".to_owned(), since: now() };
        std::fs::write(state.lock_path(), serde_json::to_vec(&previous).unwrap()).unwrap();
        assert!(matches!(state.lock("b"), Err(LockError::Held { holder: None, .. })));
    }

    #[test]
    fn a_lock_file_with_nonsense_still_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path());
        let _lock = state.lock("a").unwrap();
        std::fs::write(state.lock_path(), b"\xff{").unwrap();
        assert!(matches!(state.lock("b"), Err(LockError::Held { holder: None, .. })));
    }
}
