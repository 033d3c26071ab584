//! Where flyball keeps what must survive its own death: one directory with a lock and a journal.
//!
//! For the running machine that is /run/flyball: on a tmpfs, so that it ends with the boot whose settings it is about.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// The directory that holds a machine's lock and journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Where the running machine's state is kept.
    pub const LIVE: &str = "/run/flyball";

    /// The state directory at `path`; nothing is created yet.
    pub fn new(path: impl Into<PathBuf>) -> StateDir {
        StateDir(path.into())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The journal's path.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    fn lock_path(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Creates the directory, readable by its owner alone. A user who can write to it could have root write anything
    /// anywhere, since a journal says which files get which contents back; so one that is not ours alone is refused.
    ///
    /// # Errors
    /// What the file system answered: `EACCES` on /run for an ordinary user; `InvalidInput` for a
    /// directory of another user, or one that others may write to.
    pub fn create(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let me = flyball_host::process::user();
        // The place itself, which may be a link, and what it leads to.
        let (link, place) = (std::fs::symlink_metadata(&self.0)?, std::fs::metadata(&self.0)?);
        let foreign = [&link, &place].iter().any(|found| found.uid() != me && found.uid() != 0);
        // A user's own directory may be open to the user's group, as many distributions set the umask (002).
        // For root no one else may write.
        let others = if me == 0 { 0o022 } else { 0o002 };
        if foreign || place.mode() & others != 0 {
            let who = if foreign { "it belongs to another user" } else { "others may write to it" };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, who));
        }
        Ok(())
    }

    /// Takes the lock, or says who has it.
    ///
    /// # Errors
    /// [`LockError::Held`] with the holder; [`LockError::Io`] when the directory or the file cannot be made.
    pub fn lock(&self, command: &str) -> Result<Lock, LockError> {
        let path = self.lock_path();
        let fail = |error: io::Error| LockError::Io { path: path.clone(), error };
        self.create().map_err(|error| LockError::Io { path: self.0.clone(), error })?;
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        if !flyball_host::process::try_lock(&file).map_err(fail)? {
            let mut text = String::new();
            // The holder may be writing its name just now; then the name is missing from the message, no more.
            let _ = file.read_to_string(&mut text);
            return Err(LockError::Held { path, holder: serde_json::from_str(&text).ok() });
        }
        let holder = Holder { pid: std::process::id(), command: command.to_owned(), since: now() };
        // After the lock is taken: before it, this would overwrite the name of the holder.
        write_over(&mut file, &serde_json::to_vec(&holder).unwrap_or_default()).map_err(fail)?;
        Ok(Lock { file, path })
    }
}

fn write_over(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(bytes)
}

/// Seconds since 1970, for the journal and the lock: words for people, never measured with.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// What it was started as.
    pub command: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = now().saturating_sub(self.since);
        write!(f, "pid {} ({}), since ", self.pid, self.command)?;
        match age {
            0..120 => write!(f, "{age} s"),
            120..7200 => write!(f, "{} min", age / 60),
            _ => write!(f, "{} h", age / 3600),
        }
    }
}

/// The machine is ours while this lives. The kernel gives it up when the last process that holds it dies, however it
/// dies; a guardian holds it too.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Another handle of the same lock, to hand to a child process.
    ///
    /// # Errors
    /// What dup(2) answered.
    pub fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The lock's file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Why the lock cannot be taken.
#[derive(Debug)]
pub enum LockError {
    /// Another flyball has it.
    Held {
        /// The lock's file.
        path: PathBuf,
        /// Who, where that could be read.
        holder: Option<Holder>,
    },
    /// The state directory cannot be used.
    Io {
        /// What could not be made or opened.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { holder: Some(holder), .. } => {
                write!(
                    f,
                    "another flyball holds this machine: {holder}; let it end, or end it (kill {})",
                    holder.pid
                )
            }
            LockError::Held { path, holder: None } => {
                write!(f, "another flyball holds this machine: see who has {} open", path.display())
            }
            LockError::Io { path, error } if error.kind() == io::ErrorKind::PermissionDenied => write!(
                f,
                "cannot use {}: {error}; settings of the machine are root's: run it with sudo",
                path.display()
            ),
            LockError::Io { path, error } => write!(
                f,
                "cannot use {}: {error}; give another directory with --state-dir or FLYBALL_STATE",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LockError {}

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
        assert!(words.contains("set governor=performance") && words.contains("kill"), "{words}");
        // A shared handle keeps the lock after the first is gone: that is how a guardian holds it.
        let shared = lock.share().unwrap();
        drop(lock);
        assert!(matches!(state.lock("x"), Err(LockError::Held { .. })));
        drop(shared);
        assert!(state.lock("x").is_ok());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path().join("state"));
        std::fs::create_dir(state.path()).unwrap();
        let open = |mode| std::fs::set_permissions(state.path(), PermissionsExt::from_mode(mode)).unwrap();
        open(0o1777);
        let error = state.lock("x").unwrap_err().to_string();
        assert!(error.contains("others may write") && error.contains("--state-dir"), "{error}");
        assert!(!state.lock_path().exists());
        open(0o755);
        assert!(state.lock("x").is_ok());
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
