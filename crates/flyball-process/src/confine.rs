//! Confines this process before it parses another user's input: it keeps access only to the named
//! files, and loses programs, sockets, and root's rights beyond files. If a parser has a hole, an
//! attacker reaches no more than the files that the user named.
//!
//! This uses three mechanisms of the kernel, if they exist: capabilities are dropped, Landlock
//! (Linux 5.13) restricts files and TCP connections, and a system call filter allows only the calls
//! of a reader of files, or of a process without files. Both of the latter set `no_new_privs`. If a
//! kernel or a container lacks one mechanism, the others still work.

mod calls;

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::{
    process::{Gid, Uid},
    thread::{CapabilitySet, CapabilitySets},
};

pub use self::calls::allowed;
use crate::User;

/// The newest version of Landlock whose rights are requested. Rights that a kernel does not know
/// are skipped. Version 6 is that of Linux 6.12.
const NEWEST: ABI = ABI::V6;

/// Shows which process has locked a state file. That process's command line stays inaccessible.
const ALWAYS_READABLE: &str = "/proc/locks";

/// Returns how many processors this process may use. std reads that from files which a confined
/// process cannot open, so [`Confinement::enter`] counts them in advance.
pub fn processors() -> NonZeroUsize {
    static COUNT: OnceLock<NonZeroUsize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
}

/// The number of the user `nobody`, which every kernel has
/// (Documentation/admin-guide/sysctl/fs.rst, overflowuid).
const NOBODY: u32 = 65_534;

/// Switches a root process to the user of that name, or to `nobody` if that user does not exist. It
/// can then no longer access files of other users (not even of root), nor signal or trace their
/// processes. Does nothing if the process is not root's.
///
/// # Errors
/// The process may not switch users. Call this before there is a second thread.
pub fn become_user(name: &str) -> io::Result<()> {
    if !crate::is_root() {
        return Ok(());
    }
    // A user with root's number would give up nothing.
    let user = User::by_name(name).unwrap_or_default().filter(|user| user.uid != 0 && user.gid != 0);
    let (uid, gid) = user.map_or((NOBODY, NOBODY), |user| (user.uid, user.gid));
    empty_bounding_set();
    rustix::thread::set_thread_groups(&[])?;
    let (gid, uid) = (Gid::from_raw(gid), Uid::from_raw(uid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

/// Takes all capabilities from programs that are started from now on. Without CAP_SETPCAP the set
/// stays.
fn empty_bounding_set() {
    for capability in (0..64).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
}

/// The files that a process may access once it is confined.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    reads: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    opens_nothing: bool,
    has_terminal: bool,
}

/// The mechanisms that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    /// True if Landlock restricts files.
    pub files: bool,
    /// True if system calls are filtered.
    pub calls: bool,
    /// True if capabilities that are not needed for files were dropped.
    pub capabilities: bool,
}

impl Confinement {
    /// Creates the confinement of a process that already has everything open. It keeps only the
    /// calls that such a process makes, so that this does not depend on Landlock, and no
    /// capability.
    pub fn without_files() -> Confinement {
        Confinement { opens_nothing: true, ..Confinement::default() }
    }

    /// Allows reading this file, or everything in this directory.
    pub fn read(&mut self, path: impl Into<PathBuf>) {
        self.reads.push(path.into());
    }

    /// Allows showing a screen on the terminal.
    pub fn terminal(&mut self) {
        self.has_terminal = true;
    }

    /// Allows writing into this directory, and creating it.
    pub fn write_in(&mut self, folder: &Path) {
        // If the directory does not exist yet, the right belongs to the nearest existing directory
        // above it.
        let there = folder.ancestors().find(|path| path.is_dir());
        self.folders.push(there.unwrap_or(Path::new(".")).to_owned());
    }

    /// Allows creating, replacing and truncating this file.
    pub fn write(&mut self, file: &Path) {
        self.files.push(file.to_owned());
        let mut folder_of = |path: &Path| match path.parent() {
            // "x" has the parent "", which cannot be opened.
            Some(parent) if parent.as_os_str().is_empty() => self.write_in(Path::new(".")),
            Some(parent) => self.write_in(parent),
            None => {}
        };
        // Files are written under another name and renamed, so the right belongs to the directory.
        // Streams such as /dev/stdout need no such right.
        if !flyball_files::is_stream(file) {
            folder_of(file);
        }
        if let Ok(real) = file.canonicalize()
            && real.is_file()
        {
            folder_of(&real);
        }
    }

    /// Confines the calling thread, and threads and programs that it starts from now on. A process
    /// with one thread is confined as a whole. This cannot be undone. Mechanisms that the kernel
    /// lacks are skipped.
    pub fn enter(&self) -> Confined {
        if !self.opens_nothing {
            processors();
        }
        // Drop capabilities first: without them the other two need no_new_privs, which both of them
        // set.
        Confined {
            capabilities: self.drop_capabilities().is_ok(),
            files: self.bound_files().is_ok_and(|status| status != RulesetStatus::NotEnforced),
            calls: if self.opens_nothing { calls::allow_sockets() } else { calls::allow_files() }.is_ok(),
        }
    }

    /// Drops root's capabilities, except those for reading others' files, and for writing them if
    /// there are files to write: a user who runs `sudo flyball -M FILE` has asked for that file.
    fn drop_capabilities(&self) -> io::Result<()> {
        let mut needed =
            if self.opens_nothing { CapabilitySet::empty() } else { CapabilitySet::DAC_READ_SEARCH };
        if !self.files.is_empty() || !self.folders.is_empty() {
            needed |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        }
        let kept = rustix::thread::capabilities(None)?.permitted & needed;
        // Do this first, because it needs CAP_SETPCAP. An ordinary user lacks that right and has
        // nothing to lose.
        empty_bounding_set();
        let _ = rustix::thread::clear_ambient_capability_set();
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        Ok(rustix::thread::set_capabilities(None, sets)?)
    }

    fn bound_files(&self) -> Result<RulesetStatus, RulesetError> {
        let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
        let change: BitFlags<AccessFs> = AccessFs::WriteFile | AccessFs::Truncate;
        // Devices, sockets and FIFOs cannot be created, and nothing can be executed.
        let make: BitFlags<AccessFs> =
            AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile | AccessFs::RemoveDir;
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        // A temporary file is read again, and a directory's files are looked up before they are
        // replaced.
        let folders = self.folders.iter().map(|path| (path.as_path(), read | change | make));
        let files = self.files.iter().map(|path| (path.as_path(), change));
        let reads = self.reads.iter().map(PathBuf::as_path).chain([Path::new(ALWAYS_READABLE)]);
        // Asking a newly opened terminal for its size and mode needs ioctl(2). Since Linux 6.10
        // (ABI 5), Landlock refuses it on devices without this right, unless they were open before.
        let tty: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let terminal = self.has_terminal.then_some((Path::new("/dev/tty"), tty));
        for (path, rights) in reads.map(|path| (path, read)).chain(folders).chain(files).chain(terminal) {
            // A nonexistent path gets no rule, and open(2) fails as usual. A pipe (/dev/stdin) is
            // on no file system: the kernel accepts no rule for it (EBADFD in landlock_add_rule),
            // and needs none.
            let _ = (&mut ruleset).add_rules(path_beneath_rules([path], rights));
        }
        Ok(ruleset.restrict_self()?.ruleset)
    }
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code, reason = "system calls that std does not make")]

    use std::{fs, net::TcpListener, process::Command, thread};

    use super::*;

    /// Runs `work` in a confined thread. All three mechanisms apply to threads, and end with them.
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
            // "made" does not exist, so files may be created in the nearest directory above it.
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

    /// Makes a call with arguments that no call accepts.
    fn attempt(number: libc::c_long) -> Option<i32> {
        let none = usize::MAX;
        // SAFETY: the kernel refuses the call before it looks at the arguments; if it does not, no
        // call accepts these.
        let made = unsafe { libc::syscall(number, none, none, none, none, none, none) };
        (made == -1).then(|| io::Error::last_os_error().raw_os_error())?
    }

    #[test]
    fn only_listed_calls_are_made() {
        let [of_sockets, of_files] = calls::numbers();
        for (files, listed) in
            [(Confinement::without_files(), of_sockets), (Confinement::default(), of_files)]
        {
            confined(&files, |means| {
                if !means.calls {
                    eprintln!("skipped 1 test: this kernel has no filters of system calls");
                    return;
                }
                // uretprobe and uprobe of x86-64, which the kernel itself places in programs,
                // cannot be filtered: called from elsewhere, they end the process.
                let of_probes = 335..=336;
                // All possible numbers of this kernel or a later one, and one of the x32 ABI.
                let unlisted = |number: &i64| !listed.contains(number) && !of_probes.contains(number);
                for number in (0..1024).filter(unlisted).chain([0x4000_0000 + libc::SYS_read]) {
                    assert_eq!(attempt(number), Some(libc::EPERM), "call {number}");
                }
                assert_eq!(attempt(libc::SYS_clone3), Some(libc::ENOSYS));
            });
        }
    }

    /// Calls that may never be in a list, whatever the benefit.
    #[test]
    fn no_list_has_a_call_that_reaches_further() {
        // libc has no names for fchmodat2 and setxattrat, so use their numbers.
        let of_both = [
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            452,
            libc::SYS_fchown,
            libc::SYS_fchownat,
            libc::SYS_utimensat,
            libc::SYS_setxattr,
            libc::SYS_lsetxattr,
            libc::SYS_fsetxattr,
            463,
            libc::SYS_truncate,
            libc::SYS_mknodat,
            libc::SYS_symlinkat,
            libc::SYS_tkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
            libc::SYS_pidfd_send_signal,
            libc::SYS_pidfd_getfd,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_setpriority,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_mount,
            libc::SYS_setns,
            libc::SYS_unshare,
        ];
        let of_sockets =
            [libc::SYS_openat, libc::SYS_openat2, libc::SYS_kill, libc::SYS_dup3, libc::SYS_accept4];
        let [sockets, files] = calls::numbers();
        let listed = |calls: &[libc::c_long], list: &[libc::c_long]| -> Vec<libc::c_long> {
            calls.iter().copied().filter(|call| list.contains(call)).collect()
        };
        assert_eq!(listed(&of_both, &files), [0; 0]);
        assert_eq!(listed(&[of_both.as_slice(), &of_sockets].concat(), &sockets), [0; 0]);
    }

    /// Makes calls that every confined process is refused because of their arguments.
    fn refused_for_their_arguments(parent: u32) {
        let (none, page) = (0, 4096);
        let exec = libc::PROT_READ | libc::PROT_EXEC;
        let memory = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (unix, datagrams) = (libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC);
        let mut pair = [0_i32; 2];
        // SAFETY: refused before the kernel looks at them; signal 0 changes nothing, and a new
        // process of `clone` would end the test.
        let refused = unsafe {
            [
                libc::syscall(libc::SYS_kill, parent, 0),
                libc::syscall(libc::SYS_tkill, parent, 0),
                libc::syscall(libc::SYS_tgkill, parent, parent, 0),
                libc::syscall(libc::SYS_prlimit64, parent, libc::RLIMIT_NOFILE, none, none),
                libc::syscall(libc::SYS_fcntl, 1, libc::F_SETOWN, parent),
                libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI, c"x".as_ptr()),
                // FIOSETOWN and SIOCSPGRP.
                libc::syscall(libc::SYS_ioctl, 0, 0x8901, &raw const parent),
                libc::syscall(libc::SYS_ioctl, 0, 0x8902, &raw const parent),
                libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0),
                libc::syscall(libc::SYS_mmap, none, page, exec, memory, -1, 0),
                libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none),
                libc::syscall(libc::SYS_socketpair, unix, datagrams, 0, pair.as_mut_ptr()),
            ]
        };
        assert_eq!(refused, [-1; 12]);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn without_files_nothing_is_opened() {
        let parent = std::os::unix::process::parent_id();
        let folder = tempfile::tempdir().unwrap();
        confined(&Confinement::without_files(), |means| {
            if !means.calls {
                eprintln!("skipped 1 test: this kernel has no filters of system calls");
                return;
            }
            assert!(denied(fs::read("/proc/self/stat")) && denied(fs::write(folder.path().join("x"), "x")));
            assert!(denied(fs::rename(folder.path(), "/tmp/elsewhere")));
            refused_for_their_arguments(parent);
            let (none, own, page, read) = (0, std::process::id(), 4096, libc::PROT_READ);
            let memory = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let limit = [8_u64, 8];
            // SAFETY: signal 0 and no new limit change nothing; the memory is new; the limit is
            // refused.
            let own = unsafe {
                [
                    libc::syscall(libc::SYS_tgkill, own, libc::gettid(), 0),
                    libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, none, none),
                    libc::syscall(libc::SYS_mmap, none, page, read, memory, -1, 0).min(0),
                    libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, limit.as_ptr(), none),
                ]
            };
            assert_eq!(own, [0, 0, 0, -1]);
            assert!(rustix::thread::capabilities(None).unwrap().permitted.is_empty());
            // A runtime needs new threads and memory, so both are allowed.
            thread::spawn(|| vec![0_u8; 8 << 20].len()).join().unwrap();
        });
    }

    #[test]
    fn readers_reach_no_other_process_and_no_socket() {
        let parent = std::os::unix::process::parent_id();
        confined(&Confinement::default(), |means| {
            if !means.calls {
                eprintln!("skipped 1 test: this kernel has no filters of system calls");
                return;
            }
            refused_for_their_arguments(parent);
            let (none, own) = (0, std::process::id());
            let name = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
            let mut pair = [0_i32; 2];
            // SAFETY: signal 0 and no new limit change nothing, and the arrays live longer than the
            // calls.
            let own = unsafe {
                [
                    libc::syscall(libc::SYS_tgkill, own, libc::gettid(), 0),
                    libc::syscall(libc::SYS_kill, own, 0),
                    libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, none, none),
                    libc::syscall(libc::SYS_fcntl, 1, libc::F_GETFD).min(0),
                    libc::syscall(
                        libc::SYS_socketpair,
                        libc::AF_UNIX,
                        libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
                        0,
                        pair.as_mut_ptr(),
                    ),
                    libc::syscall(libc::SYS_sendto, pair[0], c"x".as_ptr(), 1, 0, none, none) - 1,
                    libc::syscall(libc::SYS_sendto, pair[0], c"x".as_ptr(), 1, 0, &raw const name, 2),
                ]
            };
            assert_eq!(own, [0, 0, 0, 0, 0, 0, -1]);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EPERM));
            thread::spawn(|| vec![0_u8; 8 << 20].len()).join().unwrap();
        });
    }

    #[test]
    fn root_becomes_another_user_for_good() {
        if !crate::is_root() {
            eprintln!("skipped 1 test: only root can become another user");
            return;
        }
        // A thread changes only its own ids, until the C library changes them for all threads.
        let ids = thread::spawn(|| {
            become_user("no-such-user").unwrap();
            let groups = rustix::process::getgroups().unwrap().len();
            let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
            assert!(rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err());
            assert!(denied(fs::read("/etc/shadow")));
            (uid.as_raw(), gid.as_raw(), groups)
        });
        assert_eq!(ids.join().unwrap(), (NOBODY, NOBODY, 0));
    }

    #[test]
    fn capabilities_are_gone() {
        let kept = |files: &Confinement| {
            confined(files, |means| {
                assert!(means.capabilities);
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
