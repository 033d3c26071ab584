//! The inside of a served machine: a mount namespace in which the machine's files cover the real
//! ones.
//!
//! This runs in its own process, which becomes the served program. Mounts made here are invisible
//! outside, and disappear with the last process inside.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
    },
    thread::{UnshareFlags, unshare_unsafe},
};

use super::own;

/// A failure to set up the namespace.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {error}")]
pub struct SetupError {
    /// The step that failed.
    pub what: String,
    /// The kernel's error.
    pub error: io::Error,
}

/// Settings that forbid user namespaces to ordinary users, their value in that case, and the
/// command that allows them.
const LOCKS: [(&str, &str, &str); 3] = [
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
];

impl SetupError {
    /// Returns advice if the environment lacks something that serving needs, and `None` for other
    /// failures.
    pub fn remedy(&self) -> Option<String> {
        let root = rustix::process::geteuid().is_root();
        if self.what.starts_with(MOUNT_NAMESPACE) {
            return Some(
                "this container may not make mount namespaces; give it CAP_SYS_ADMIN, or use flyball's own \
                 commands with -M sim:NAME, which need no privileges"
                    .to_owned(),
            );
        }
        if self.what.starts_with(FUSE) {
            return Some(match self.error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                    "there is no FUSE here: load it as root with 'modprobe fuse', or give the container /dev/fuse".to_owned()
                }
                _ => "/dev/fuse may not be opened: make it readable and writable for this user (mode 0666)".to_owned(),
            });
        }
        let namespace = [USER_NAMESPACE, "write /proc/self", "make mounts private", "mount"];
        if root || !namespace.iter().any(|start| self.what.starts_with(start)) {
            return None;
        }
        let locked = LOCKS
            .iter()
            .find(|(path, locked, _)| fs::read_to_string(path).is_ok_and(|value| value.trim() == *locked));
        Some(match locked {
            Some((.., setting)) => format!("run it as root, or let root allow it: sysctl {setting}"),
            None => "run it as root: this place does not let an ordinary user make namespaces".to_owned(),
        })
    }
}

const MOUNT_NAMESPACE: &str = "make a mount namespace";
const USER_NAMESPACE: &str = "make a user namespace";
const FUSE: &str = "open /dev/fuse";

fn attempt<T, E: Into<io::Error>>(what: impl Into<String>, result: Result<T, E>) -> Result<T, SetupError> {
    result.map_err(|error| SetupError { what: what.into(), error: error.into() })
}

/// Directories and files that the machine's replace at the same paths.
const OVER: [&str; 10] = [
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/interrupts",
    "/proc/cmdline",
    "/proc/version",
    "/proc/sys/kernel/ftrace_enabled",
    "/proc/sys/kernel/osrelease",
    "/sys/kernel/tracing",
];

/// Files replaced by ones that only a served machine has: files that flyball writes outside the
/// processors' files, and the boot id by which journals distinguish boots.
const OWN_OVER: [(&str, &str); 3] = [
    ("/proc/sys/kernel/random/boot_id", own::BOOT_ID),
    ("/proc/sys/kernel/perf_event_max_sample_rate", own::SAMPLE_RATE),
    ("/proc/irq", own::INTERRUPTS),
];

/// A directory with some names replaced.
struct Overlay {
    path: &'static str,
    /// Names that come from the machine, or are hidden if it does not have them.
    machine: &'static [&'static str],
    /// Names that are new empty directories, accessible to the namespace's root only.
    fresh: &'static [&'static str],
}

/// The overlays.
///
/// The machine has no control groups, and programs must not put its CPU numbers into the real ones.
/// The topology that intel-speed-select keeps in /run belongs to the machine too. flyball's journal
/// in /run/flyball is about the real machine: a restore in the namespace must neither replay nor
/// remove it, and changes in the namespace must not get into it.
const OVERLAYS: [Overlay; 7] = [
    Overlay { path: "/sys/class", machine: &["powercap", "hwmon"], fresh: &[] },
    Overlay { path: "/sys/devices/virtual", machine: &["powercap"], fresh: &[] },
    Overlay { path: "/sys/devices/platform", machine: &["hwmon"], fresh: &[] },
    Overlay { path: "/sys/bus", machine: &["cpu"], fresh: &[] },
    // Hide the real kernel's log: without /dev/kmsg programs use syslog(2), which the supervisor
    // answers.
    Overlay { path: "/dev", machine: &["cpu", "cpu_dma_latency", "isst_interface", "kmsg"], fresh: &[] },
    Overlay { path: "/sys/fs", machine: &["cgroup"], fresh: &[] },
    Overlay { path: "/run", machine: &["isst_cpu_topology.dat"], fresh: &["flyball"] },
];

/// Creates the namespace, mounts the machine below `stage`, an empty directory of the caller, hands
/// the FUSE device to the server over `socket`, and covers the real files with the machine's.
///
/// # Errors
/// Returns the kernel's error: user namespaces may be disabled for users other than root.
pub fn enter(stage: &Path, socket: &OwnedFd) -> Result<(), SetupError> {
    // Before unshare(2): in the new user namespace both are 65534 until the maps are written.
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let root = rustix::process::geteuid().is_root();
    if root {
        attempt(MOUNT_NAMESPACE, unshare(UnshareFlags::NEWNS))?;
    } else {
        attempt(USER_NAMESPACE, unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS))?;
        // Without this an unprivileged process may not write gid_map (user_namespaces(7)).
        attempt("write /proc/self/setgroups", fs::write("/proc/self/setgroups", "deny"))?;
        attempt("write /proc/self/uid_map", fs::write("/proc/self/uid_map", format!("0 {uid} 1")))?;
        attempt("write /proc/self/gid_map", fs::write("/proc/self/gid_map", format!("0 {gid} 1")))?;
    }
    // Otherwise mounts made here would appear outside.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    attempt("make mounts private", mount_change("/", private))?;
    let fuse = stage.join("machine");
    let spare = stage.join("spare");
    for folder in [&fuse, &spare] {
        attempt(format!("make {}", folder.display()), fs::create_dir(folder))?;
    }
    // Opened in the namespace that mounts: the kernel accepts no other namespace's device.
    let device = attempt(FUSE, fs::File::options().read(true).write(true).open("/dev/fuse"))?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let options = attempt("name the options", std::ffi::CString::new(options))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    attempt("mount the simulated machine", mount("flyball-sim", &fuse, "fuse", flags, options.as_c_str()))?;
    attempt("hand the machine to its server", super::send(socket, device.as_fd()))?;
    // The server has its copy. The file system ends when the last descriptor is closed, so close
    // this one.
    drop(device);
    if root {
        // Programs find tracefs among the mounts. They must find the machine's, and not control the
        // real machine's tracing.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        // In reverse order: a mount may cover or contain an earlier one.
        for mount in mounts.lines().rev() {
            let mut words = mount.split(' ').skip(1);
            if let (Some(path), Some("tracefs" | "debugfs")) = (words.next(), words.next()) {
                attempt(format!("hide {path}"), unmount(path, UnmountFlags::DETACH))?;
            }
        }
        // Mount a tracefs for programs that look among the mounts; the machine's then covers it. If
        // this fails, programs use the path.
        let _ =
            mount("nodev", "/sys/kernel/tracing", "tracefs", MountFlags::empty(), None::<&std::ffi::CStr>);
    }
    // A place to assemble the overlays, which disappears with the namespace.
    attempt("mount a tmpfs", mount("flyball-sim", &spare, "tmpfs", flags, c"mode=0755"))?;
    let same = OVER.iter().map(|path| (*path, *path));
    for (path, source) in same.chain(OWN_OVER) {
        let from = under(&fuse, source);
        if Path::new(path).exists() && from.exists() {
            attempt(format!("mount over {path}"), mount_bind_recursive(&from, path))?;
        }
    }
    for (number, wanted) in OVERLAYS.iter().enumerate() {
        if Path::new(wanted.path).is_dir() {
            overlay(&fuse, &spare.join(number.to_string()), wanted)?;
        }
    }
    // The overlays are in place. Below the stage they would be a second path to the real files,
    // which a process that cleans up the stage must not find.
    attempt("unmount the tmpfs", unmount(&spare, UnmountFlags::DETACH))?;
    Ok(())
}

#[allow(unsafe_code, reason = "unshare(2)")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: neither a mount nor a user namespace touches the file descriptor table, which is what
    // makes unsharing unsafe; the process has one thread, which becomes the served program.
    unsafe { unshare_unsafe(flags) }
}

fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Builds a directory at `scratch` with all entries of the real one except some names, and mounts
/// it over the real one.
fn overlay(machine: &Path, scratch: &Path, wanted: &Overlay) -> Result<(), SetupError> {
    let target = Path::new(wanted.path);
    attempt(format!("make {}", scratch.display()), fs::create_dir(scratch))?;
    let entries = attempt(format!("list {}", target.display()), fs::read_dir(target))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if wanted.machine.iter().chain(wanted.fresh).any(|own| name == *own) {
            continue;
        }
        // Skip entries that vanish meanwhile or cannot be bound: programs about processors do not
        // need them.
        let _ = copy_entry(&entry.path(), &scratch.join(&name));
    }
    for name in wanted.machine {
        let from = under(machine, wanted.path).join(name);
        if from.exists() {
            let to = scratch.join(name);
            attempt(format!("mount {}", from.display()), bind(&from, &to))?;
        }
    }
    for name in wanted.fresh {
        let made = fs::DirBuilder::new().mode(0o700).create(scratch.join(name));
        attempt(format!("make {name} for {}", target.display()), made)?;
    }
    attempt(format!("mount over {}", target.display()), mount_bind_recursive(scratch, target))
}

fn copy_entry(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(from)?.file_type().is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    bind(from, to)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    if fs::metadata(from)?.is_dir() {
        fs::create_dir(to)?;
    } else {
        fs::File::create(to)?;
    }
    Ok(mount_bind_recursive(from, to)?)
}
