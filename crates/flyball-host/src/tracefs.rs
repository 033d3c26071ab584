//! tracefs: a separate trace instance, and the pages of its ring buffers.
//!
//! Nothing here touches the global trace buffer, which other programs may be using. An [`Instance`]
//! is a directory below `instances/`. Its name contains the process that created it and that
//! process's start time. So instances of a killed process can be recognised and removed
//! ([`Tracefs::remove_leftovers`]).
//!
//! Instances are the same on every machine, but their files are reached in different ways, which
//! [`TraceFiles`] hides.

mod instance;
mod mount;
mod reader;

pub use instance::{Instance, InstanceOptions};
pub use mount::LiveFiles;
pub use reader::{PageReader, Pages, wait_for_pages};

use std::sync::Arc;

use flyball_process::started_at;

use crate::{Errno, Host, HostError};

/// The files of a machine's tracefs, by their paths below its root.
pub trait TraceFiles: Send + Sync + std::fmt::Debug {
    /// Returns the path of the root, for messages.
    fn root(&self) -> String;

    /// Reads a whole file.
    fn read(&self, path: &str) -> Result<Vec<u8>, HostError>;

    /// Writes a file with a single write(2), as tracefs requires.
    fn write(&self, path: &str, value: &str) -> Result<(), HostError>;

    /// Lists the names of the directories in a directory.
    fn directories(&self, path: &str) -> Result<Vec<String>, HostError>;

    fn make_dir(&self, path: &str) -> Result<(), HostError>;

    fn remove_dir(&self, path: &str) -> Result<(), HostError>;

    /// Opens a `trace_pipe_raw` file.
    fn open_pages(&self, path: &str) -> Result<Box<dyn Pages>, HostError>;

    /// Opens a file for many writes.
    ///
    /// # Errors
    /// The errno of open(2); `ENOSYS` for a simulated machine, where no such file can be held.
    fn open_to_write(&self, path: &str) -> Result<std::fs::File, HostError>;

    /// Returns whether records arrive while this process does other things. On a simulated machine
    /// time passes only in [`Host::sleep`] and while waiting for a program, so buffers must be read
    /// in between.
    fn is_concurrent(&self) -> bool;
}

/// A machine's tracefs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tracefs(Arc<dyn TraceFiles>);

/// Prefix of the names of instances that flyball makes.
const PREFIX: &str = "flyball-";

impl Tracefs {
    pub fn new(files: impl TraceFiles + 'static) -> Tracefs {
        Tracefs(Arc::new(files))
    }

    pub fn files(&self) -> &dyn TraceFiles {
        &*self.0
    }

    /// Returns the path of the root, for messages.
    pub fn root(&self) -> String {
        self.0.root()
    }

    /// Reads a file by its path below the root.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, HostError> {
        self.0.read(path)
    }

    /// Lists the directories in `path`, sorted.
    pub fn directories(&self, path: &str) -> Result<Vec<String>, HostError> {
        let mut names = self.0.directories(path)?;
        names.sort();
        Ok(names)
    }

    /// Returns whether the kernel has this event.
    pub fn has_event(&self, group: &str, event: &str) -> bool {
        self.0.read(&format!("events/{group}/{event}/format")).is_ok()
    }

    /// Removes the instances of flyball processes that have ended, and returns their names.
    ///
    /// # Errors
    /// The instances cannot be listed. An instance that cannot be removed is left for the next
    /// time.
    pub fn remove_leftovers(&self) -> Result<Vec<String>, HostError> {
        let mut removed = Vec::new();
        for name in self.directories("instances")? {
            let Some((pid, started)) = owner(&name) else { continue };
            // The number alone could belong to a later process.
            if started_at(pid).is_some_and(|now| now == started) {
                continue;
            }
            let path = format!("instances/{name}");
            // Stop recording, in case the removal is refused because a reader is open.
            let _ = self.0.write(&format!("{path}/tracing_on"), "0");
            if self.0.remove_dir(&path).is_ok() {
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// Returns the number of CPUs in the ring buffer: one more than the highest per_cpu/cpuN.
    pub fn cpu_count(&self) -> u32 {
        let cpus = self.directories("per_cpu").unwrap_or_default();
        let highest = cpus.iter().filter_map(|name| name.strip_prefix("cpu")?.parse::<u32>().ok()).max();
        highest.map_or(1, |cpu| cpu + 1)
    }
}

/// Message for [`is_locked_down`].
pub const LOCKED_DOWN: &str =
    "the kernel is locked down (confidentiality): tracing is not possible; see `man kernel_lockdown`";

/// Returns whether the kernel hides its data even from root (security/lockdown/lockdown.c), so that
/// no process can trace.
pub fn is_locked_down(host: &dyn Host) -> bool {
    match host.read("/sys/kernel/security/lockdown") {
        Ok(text) => text.contains("[confidentiality]"),
        // Without securityfs, the mode requested at boot.
        Err(_) => host
            .read("/proc/cmdline")
            .is_ok_and(|line| line.split_whitespace().any(|word| word == "lockdown=confidentiality")),
    }
}

/// Returns the machine's memory in KiB.
pub fn memory_kib(host: &dyn Host) -> Result<u64, HostError> {
    const MEMINFO: &str = "/proc/meminfo";
    let text = host.read(MEMINFO)?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    total.ok_or_else(|| HostError::new(crate::Op::Read, MEMINFO, Errno::INVAL))
}

/// Parses the process and its start time from an instance's name.
fn owner(name: &str) -> Option<(u32, u64)> {
    let (pid, started) = name.strip_prefix(PREFIX)?.split_once('-')?;
    // A process may have several instances, which are numbered.
    let started = started.split('-').next()?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_owner() {
        assert_eq!(owner("flyball-12-3456"), Some((12, 3456)));
        assert_eq!(owner("flyball-12-3456-7"), Some((12, 3456)));
        for other in ["flyball", "flyball-12", "flyball-x-1", "trace-12-3", "flyball--1-2"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
