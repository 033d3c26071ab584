//! Confining this process before it parses what another user wrote: only the named files, no
//! programs, no sockets, no rights of root beyond files. What a hole in a parser could then do ends
//! at the files that the user named.
//!
//! Three means of the kernel, each used where it is there: capabilities are dropped, Landlock
//! (Linux 5.13) bounds files and TCP connections, and a system call filter refuses what no reader
//! of files needs. `no_new_privs` goes with both. A kernel or a container that lacks one of them
//! changes nothing else.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The newest version of Landlock whose rights are requested; rights that a kernel does not know
/// are skipped. 6 is the version of Linux 6.12.
const NEWEST: ABI = ABI::V6;

/// Files that std reads to count the processors available to a process
/// (`std::thread::available_parallelism`), and the file that shows which process has a state file
/// locked. The command line of that process stays out of reach.
const OF_EACH: [&str; 4] = ["/proc/locks", "/proc/self/cgroup", "/proc/self/mountinfo", "/sys/fs/cgroup"];

/// The files of a process that is to be confined.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    reads: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    opens_nothing: bool,
    has_terminal: bool,
}

/// The means that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    /// Landlock bounds files.
    pub files: bool,
    /// System calls are filtered.
    pub calls: bool,
    /// Capabilities that are not needed for files are gone.
    pub capabilities: bool,
}

impl Confinement {
    /// For a process that has everything open that it needs: no call that opens a file is left, so
    /// that this does not depend on Landlock, and no capability.
    pub fn without_files() -> Confinement {
        Confinement { opens_nothing: true, ..Confinement::default() }
    }

    /// The process reads this file, or everything in this directory.
    pub fn read(&mut self, path: impl Into<PathBuf>) {
        self.reads.push(path.into());
    }

    /// The process shows a screen on its terminal.
    pub fn terminal(&mut self) {
        self.has_terminal = true;
    }

    /// The process writes into this directory, which it may have to make.
    pub fn write_in(&mut self, folder: &Path) {
        // Where the directory is not there yet, the right to make it belongs to the next one above
        // it that is.
        let there = folder.ancestors().find(|path| path.is_dir());
        self.folders.push(there.unwrap_or(Path::new(".")).to_owned());
    }

    /// The process writes this file: makes, replaces or truncates it.
    pub fn write(&mut self, file: &Path) {
        self.files.push(file.to_owned());
        let mut folder_of = |path: &Path| match path.parent() {
            // "x" has the parent "", which cannot be opened.
            Some(parent) if parent.as_os_str().is_empty() => self.write_in(Path::new(".")),
            Some(parent) => self.write_in(parent),
            None => {}
        };
        // Files are written under another name and renamed, so the right belongs to the directory.
        // What is written through, as /dev/stdout, needs none of its own.
        if !flyball_files::is_stream(file) {
            folder_of(file);
        }
        if let Ok(real) = file.canonicalize()
            && real.is_file()
        {
            folder_of(&real);
        }
    }

    /// Confines the calling thread and the threads and programs it starts from now on; a process of
    /// one thread as a whole. There is no way back. Means that the kernel does not offer are
    /// skipped.
    pub fn enter(&self) -> Confined {
        // The order: without the capabilities the others need no_new_privs, which both of them set.
        Confined {
            capabilities: self.drop_capabilities().is_ok(),
            files: self.bound_files().is_ok_and(|status| status != RulesetStatus::NotEnforced),
            calls: refuse_calls(self.opens_nothing).is_ok(),
        }
    }

    /// Root keeps what makes it read the files of others, and write them if there is something to
    /// write: the user who runs `sudo flyball -M FILE` has asked for that file.
    fn drop_capabilities(&self) -> io::Result<()> {
        let mut needed =
            if self.opens_nothing { CapabilitySet::empty() } else { CapabilitySet::DAC_READ_SEARCH };
        if !self.files.is_empty() || !self.folders.is_empty() {
            needed |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        }
        let kept = rustix::thread::capabilities(None)?.permitted & needed;
        // Before the others, because it needs CAP_SETPCAP. An ordinary user has no such right, and
        // nothing to lose.
        for capability in (0..64).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
            let _ = rustix::thread::remove_capability_from_bounding_set(capability);
        }
        let _ = rustix::thread::clear_ambient_capability_set();
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        Ok(rustix::thread::set_capabilities(None, sets)?)
    }

    fn bound_files(&self) -> Result<RulesetStatus, RulesetError> {
        let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
        let change: BitFlags<AccessFs> = AccessFs::WriteFile | AccessFs::Truncate;
        // No devices, sockets or FIFOs are made, and nothing is executed.
        let make: BitFlags<AccessFs> =
            AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile | AccessFs::RemoveDir;
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        // A temporary file is read again, and files of a directory are looked for before they are
        // replaced.
        let folders = self.folders.iter().map(|path| (path.as_path(), read | change | make));
        let files = self.files.iter().map(|path| (path.as_path(), change));
        let reads = self.reads.iter().map(PathBuf::as_path).chain(OF_EACH.iter().map(Path::new));
        // A terminal that is opened now is asked for its size and mode by ioctl(2), which Landlock
        // refuses since Linux 6.10 (ABI 5) on devices without this right; those that were open
        // before are not concerned.
        let tty: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let terminal = self.has_terminal.then_some((Path::new("/dev/tty"), tty));
        for (path, rights) in reads.map(|path| (path, read)).chain(folders).chain(files).chain(terminal) {
            // A path that is not there gets no rule and is refused by open(2) as ever. A pipe
            // (/dev/stdin) is on no file system: the kernel takes no rule for it (EBADFD in
            // landlock_add_rule), and needs none.
            let _ = (&mut ruleset).add_rules(path_beneath_rules([path], rights));
        }
        Ok(ruleset.restrict_self()?.ruleset)
    }
}

/// Calls that no reader of files makes: other programs, sockets, other processes, mounts, modules,
/// and parts of the kernel in which holes were found again and again. All other calls are allowed:
/// a list of the needed ones would have to follow every C library.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Calls that open or change a file by its name, or act on another process: root's files are root's
/// without any capability.
const OF_FILES: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_fchmod,
    // Not in the libc crate of every architecture; one number on all of them (Linux 6.6).
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_process_madvise,
];

const FCHMODAT2: libc::c_long = 452;

/// Like [`OF_FILES`], but the older calls that this architecture still has.
#[cfg(target_arch = "x86_64")]
const OF_FILES_BEFORE: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_mknod,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_FILES_BEFORE: &[libc::c_long] = &[];

/// Makes [`REFUSED`] fail with EPERM, and with `files` the calls that open files, too.
fn refuse_calls(files: bool) -> Result<(), seccompiler::Error> {
    let arch = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    // A call without conditions is always refused.
    let of_files = OF_FILES.iter().chain(OF_FILES_BEFORE).filter(|_| files);
    let mut rules: BTreeMap<_, _> =
        REFUSED.iter().chain(of_files).map(|number| (*number, Vec::new())).collect();
    if files {
        // For this process they stay: the C library asks for the size of a stack, and ends with a
        // signal to itself.
        let unless_first_is = |value: u64| {
            let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value);
            Ok::<_, seccompiler::BackendError>(vec![SeccompRule::new(vec![other?])?])
        };
        let own = u64::from(std::process::id());
        let of_others = [(libc::SYS_prlimit64, 0), (libc::SYS_tgkill, own)];
        for (number, value) in of_others {
            rules.insert(number, unless_first_is(value).map_err(seccompiler::Error::Backend)?);
        }
    }
    // An errno, not a kill: a library that tries such a call goes on without it.
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)
        .and_then(TryInto::<BpfProgram>::try_into)
        .map_err(seccompiler::Error::Backend)?;
    seccompiler::apply_filter(&filter)
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code, reason = "system calls that std does not make")]

    use std::{fs, net::TcpListener, process::Command, thread};

    use super::*;

    /// Runs `work` in a confined thread: all three means bind threads, and end with them.
    fn confined<T: Send>(files: &Confinement, work: impl FnOnce(Confined) -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(|| work(files.enter())).join().expect("the thread does not panic"))
    }

    fn denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    #[test]
    fn only_the_named_files_can_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in/a/file", "out/old", "later/old", "other/file"] {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), name).unwrap();
        }
        std::os::unix::fs::symlink(path("other/file"), path("in/link")).unwrap();
        let mut files = Confinement::default();
        files.read(path("in"));
        files.write(&path("out/new"));
        files.write_in(&path("later/made/below"));
        files.read(path("not-there"));
        confined(&files, |means| {
            if !means.files {
                eprintln!("skipped 1 test: this kernel has no Landlock");
                return;
            }
            assert_eq!(fs::read_to_string(path("in/a/file")).unwrap(), "in/a/file");
            assert_eq!(fs::read_dir(path("in")).unwrap().count(), 2);
            assert!(denied(fs::read(path("other/file"))) && denied(fs::read(path("in/link"))));
            assert!(denied(fs::read_dir("/")) && denied(fs::read("/etc/passwd")));
            assert!(denied(fs::write(path("in/a/file"), "x")) && denied(fs::write(path("in/new"), "x")));
            fs::write(path("out/.new"), "x").unwrap();
            fs::rename(path("out/.new"), path("out/new")).unwrap();
            // "made" is not there, so that files may be made in the next directory above it.
            fs::create_dir_all(path("later/made/below")).unwrap();
            fs::write(path("later/made/below/file"), "x").unwrap();
            assert_eq!(fs::read(path("not-there")).unwrap_err().kind(), io::ErrorKind::NotFound);
        });
        assert_eq!(fs::read_to_string(path("other/file")).unwrap(), "other/file");
    }

    #[test]
    fn nothing_is_run_and_nothing_is_connected() {
        confined(&Confinement::default(), |means| {
            if means.calls {
                assert!(denied(TcpListener::bind("127.0.0.1:0")));
            }
            if means.calls || means.files {
                assert!(Command::new("/bin/true").status().is_err());
            } else {
                eprintln!("skipped 1 test: this kernel has neither Landlock nor filters of system calls");
            }
        });
    }

    #[test]
    fn without_files_nothing_is_opened_with_or_without_landlock() {
        let folder = tempfile::tempdir().unwrap();
        confined(&Confinement::without_files(), |means| {
            if !means.calls {
                eprintln!("skipped 1 test: this kernel has no filters of system calls");
                return;
            }
            assert!(denied(fs::read("/proc/self/stat")) && denied(fs::write(folder.path().join("x"), "x")));
            assert!(denied(fs::rename(folder.path(), "/tmp/elsewhere")));
            let path = std::ffi::CString::new(folder.path().as_os_str().as_encoded_bytes()).unwrap();
            let (at, name) = (libc::AT_FDCWD, path.as_ptr());
            let (none, other) = (std::ptr::null::<u8>(), rustix::process::getppid().unwrap().as_raw_pid());
            let own = std::process::id();
            // SAFETY: the kernel refuses these before it looks at their arguments; if it does not,
            // they change the test's own directory, or ask its parent.
            let made = unsafe {
                [
                    libc::syscall(FCHMODAT2, at, name, 0o777, 0),
                    libc::syscall(libc::SYS_utimensat, at, name, none, 0),
                    libc::syscall(libc::SYS_setxattr, name, c"user.x".as_ptr(), c"x".as_ptr(), 1, 0),
                    libc::syscall(libc::SYS_prlimit64, other, libc::RLIMIT_NOFILE, none, none),
                    libc::syscall(libc::SYS_tgkill, other, other, 0),
                    libc::syscall(libc::SYS_rt_sigqueueinfo, other, 0, none),
                    libc::syscall(libc::SYS_sched_setaffinity, other, 0, none),
                ]
            };
            assert_eq!(made, [-1; 7]);
            // SAFETY: signal 0 and no new limit change nothing.
            let own = unsafe {
                [
                    libc::syscall(libc::SYS_tgkill, own, libc::gettid(), 0),
                    libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, none, none),
                ]
            };
            assert_eq!(own, [0; 2], "for this process");
            assert!(rustix::thread::capabilities(None).unwrap().permitted.is_empty());
            // Threads are made, and memory: a runtime needs them.
            thread::spawn(|| vec![0_u8; 8 << 20].len()).join().unwrap();
        });
    }

    #[test]
    fn capabilities_are_gone() {
        let kept = |files: &Confinement| {
            confined(files, |means| {
                assert!(means.capabilities && rustix::thread::no_new_privs().unwrap());
                let sets = rustix::thread::capabilities(None).unwrap();
                assert!(sets.inheritable.is_empty() && sets.effective == sets.permitted);
                sets.permitted
            })
        };
        let mut files = Confinement::default();
        assert!(CapabilitySet::DAC_READ_SEARCH.contains(kept(&files)));
        files.write_in(Path::new("/tmp"));
        let writing = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        assert!(writing.contains(kept(&files)));
    }
}
