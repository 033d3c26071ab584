//! Where tracefs is, or a mount of it that nobody else sees.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::{Errno, HostError, Op};

use super::{failed, read};

/// The kernel's tracefs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tracefs {
    root: PathBuf,
    /// Keeps a mount of one's own alive.
    _mount: Option<Arc<OwnedFd>>,
}

/// How the names of instances that flyball makes begin.
pub(super) const PREFIX: &str = "flyball-";

impl Tracefs {
    /// The mounted tracefs; where none is mounted, a mount that is not attached to any directory and goes away with
    /// this value.
    ///
    /// # Errors
    /// `EACCES`/`EPERM` without the right to see it or under lockdown, `ENODEV` in a kernel without tracing.
    pub fn open() -> Result<Tracefs, HostError> {
        let mut refused = None;
        for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            let root = PathBuf::from(root);
            match fs::metadata(root.join("trace_clock")) {
                Ok(_) => return Ok(Tracefs { root, _mount: None }),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    refused.get_or_insert(failed(Op::Read, &root, &error));
                }
                Err(_) => {}
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let fail = |errno: rustix::io::Errno| HostError::new(Op::Mount, "tracefs", errno);
        let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(fail)?;
        rustix::mount::fsconfig_create(&context).map_err(fail)?;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
            .map_err(fail)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        // Under lockdown tracefs can be mounted and is empty (fs/tracefs/inode.c, `tracefs_create_file`).
        if !root.join("trace_clock").exists() {
            return Err(HostError::new(Op::Read, "tracefs, which is empty", Errno::PERM));
        }
        Ok(Tracefs { root, _mount: Some(Arc::new(mount)) })
    }

    /// Whether the kernel keeps its secrets from root too (security/lockdown/lockdown.c): then nobody can trace.
    pub fn is_locked_down() -> bool {
        match fs::read_to_string("/sys/kernel/security/lockdown") {
            Ok(text) => text.contains("[confidentiality]"),
            // Without securityfs, what was asked for at boot.
            Err(_) => fs::read_to_string("/proc/cmdline")
                .is_ok_and(|line| line.split_whitespace().any(|word| word == "lockdown=confidentiality")),
        }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads a file by its path below the root.
    ///
    /// # Errors
    /// The errno of open(2) or read(2).
    pub fn read(&self, path: &str) -> Result<Vec<u8>, HostError> {
        read(&self.root.join(path))
    }

    /// The directories in `path`, sorted.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn directories(&self, path: &str) -> Result<Vec<String>, HostError> {
        let full = self.root.join(path);
        let entries = fs::read_dir(&full).map_err(|error| failed(Op::List, &full, &error))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Whether the kernel has this event.
    pub fn has_event(&self, group: &str, event: &str) -> bool {
        self.root.join("events").join(group).join(event).join("format").exists()
    }

    /// Removes the instances of flyball processes that are gone. Answers their names.
    ///
    /// # Errors
    /// Where the instances cannot be listed. One that cannot be removed is left for the next time.
    pub fn remove_leftovers(&self) -> Result<Vec<String>, HostError> {
        let mut removed = Vec::new();
        for name in self.directories("instances")? {
            let Some((pid, started)) = owner(&name) else { continue };
            if started_at(pid).is_some_and(|now| now == started) {
                continue;
            }
            let path = self.root.join("instances").join(&name);
            let _ = super::write(&path.join("tracing_on"), "0");
            if fs::remove_dir(&path).is_ok() {
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// The kernel's own name, release and machine, as trace.dat files carry them.
    pub fn uname() -> String {
        let name = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        format!(
            "{} {} {} {}",
            text(name.sysname()),
            text(name.nodename()),
            text(name.release()),
            text(name.machine())
        )
    }

    /// How many CPUs the ring buffer has: one more than the highest per_cpu/cpuN.
    pub fn cpu_count(&self) -> u32 {
        let cpus = self.directories("per_cpu").unwrap_or_default();
        let highest = cpus.iter().filter_map(|name| name.strip_prefix("cpu")?.parse::<u32>().ok()).max();
        highest.map_or(1, |cpu| cpu + 1)
    }

    /// Memory of the machine, KiB.
    ///
    /// # Errors
    /// Where /proc/meminfo cannot be read.
    pub fn memory_kib() -> Result<u64, HostError> {
        let path = Path::new("/proc/meminfo");
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let total = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        total.ok_or_else(|| HostError::new(Op::Read, "/proc/meminfo", Errno::INVAL))
    }
}

/// Process and its start time out of an instance's name.
fn owner(name: &str) -> Option<(u32, u64)> {
    let (pid, started) = name.strip_prefix(PREFIX)?.split_once('-')?;
    // A process may have several, which have another number behind.
    let started = started.split('-').next()?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

/// When a process started, in ticks since boot: with its number, who it is. `None` for one that is gone.
pub(super) fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; what follows it are numbers, the 20th the start.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
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

    #[test]
    fn this_process_has_started_and_others_have_not() {
        assert!(started_at(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(started_at(u32::MAX), None);
    }
}
