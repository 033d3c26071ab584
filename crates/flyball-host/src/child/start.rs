//! Starts a program as posix_spawn(3) does: until execve(2) the new process runs in this process's
//! memory, while the thread that created it waits. fork(2) would copy the page tables, which takes
//! longer than short programs run, and would cost this process a page fault for each page that it
//! then writes. posix_spawn(3) itself supports neither CPUs nor users, nor death with the parent.

#![allow(unsafe_code, reason = "clone(2), and system calls between it and execve(2)")]

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void},
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    sync::{Arc, OnceLock},
};

use flyball_process::User;

use super::{Launch, Stream};
use crate::CpuList;

/// Everything that the new process needs. It cannot allocate, so this process prepares it.
pub(super) struct Child {
    /// The paths to try for the program.
    paths: Vec<CString>,
    arguments: Strings,
    environment: Strings,
    directory: Option<CString>,
    /// Standard input, output and error; `None` for streams inherited from this process.
    streams: [Option<Arc<File>>; 3],
    own_group: bool,
    own_session: bool,
    niceness: Option<(c_int, CString)>,
    fixed_addresses: bool,
    /// The file through which the process enters its control group.
    group: Option<CString>,
    mask: Option<Vec<u8>>,
    user: Option<User>,
    parent: libc::pid_t,
    /// Signals for which this process has a handler.
    handled: &'static [c_int],
    /// The error that the new process writes if it cannot become the program.
    errno: c_int,
}

/// The signals for which this process had a handler when it started its first program. Finding them
/// takes 31 system calls, and a comparison starts thousands of programs. A handler installed later
/// could run in a new process before its execve(2), but flyball's handlers only set a flag in
/// memory that both share.
static HANDLED: OnceLock<Vec<c_int>> = OnceLock::new();

/// /dev/null, open since the first program that needed it.
static NULL: OnceLock<Arc<File>> = OnceLock::new();

/// Strings for execve(2), and the pointers to them.
struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    /// `inherited` must point to strings that nobody changes while these are used.
    fn new(inherited: impl Iterator<Item = *const c_char>, owned: Vec<CString>) -> Strings {
        let own = owned.iter().map(|one| one.as_ptr());
        let pointers = inherited.chain(own).chain([std::ptr::null()]).collect();
        Strings { pointers, _owned: owned }
    }

    /// Returns this process's environment with `changes`. It is not copied, because that takes
    /// longer than to start a program.
    fn environment(changes: BTreeMap<OsString, Option<OsString>>) -> io::Result<Strings> {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        let mut inherited = Vec::new();
        // SAFETY: a list of strings that ends with null, or null itself (environ(7)). flyball never
        // changes its environment, so both stay as they are.
        unsafe {
            let mut next = environ;
            while !next.is_null() && !(*next).is_null() {
                let variable = CStr::from_ptr(*next).to_bytes();
                let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
                if !changes.contains_key(OsStr::from_bytes(name)) {
                    inherited.push(*next);
                }
                next = next.add(1);
            }
        }
        let own = changes.into_iter().filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value?);
            Some(string(name))
        });
        Ok(Strings::new(inherited.into_iter(), own.collect::<io::Result<_>>()?))
    }
}

impl Child {
    pub(super) fn prepare(launch: Launch) -> io::Result<Child> {
        let path = || match launch.environment.get(OsStr::new("PATH")) {
            Some(changed) => changed.clone(),
            None => std::env::var_os("PATH"),
        };
        let paths = paths(&launch.program, path)?;
        let own_session = launch.own_group && launch.niceness.is_some();
        let words = std::iter::once(launch.program).chain(launch.arguments);
        let arguments = Strings::new(std::iter::empty(), words.map(string).collect::<io::Result<_>>()?);
        Ok(Child {
            paths,
            environment: Strings::environment(launch.environment)?,
            arguments,
            directory: launch.directory.map(string).transpose()?,
            streams: [file(launch.stdin)?, file(launch.stdout)?, file(launch.stderr)?],
            own_group: launch.own_group,
            own_session,
            niceness: launch
                .niceness
                .map(|value| Ok::<_, io::Error>((value, string(value.to_string())?)))
                .transpose()?,
            fixed_addresses: launch.fixed_addresses,
            group: launch.group,
            mask: launch.cpus.as_ref().map(affinity_mask),
            user: launch.user,
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            handled: HANDLED.get_or_init(handled_signals),
            errno: 0,
        })
    }

    /// Starts the process.
    ///
    /// # Errors
    /// The errno of whichever step failed.
    pub(super) fn start(&mut self) -> io::Result<libc::pid_t> {
        // The new process needs only a few stack frames.
        const STACK: usize = 64 << 10;
        let mut stack: Vec<u8> = Vec::with_capacity(STACK);
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the new process uses `self` and the upper end of `stack`, aligned to 16 bytes as
        // both processors' conventions ask for; both outlive it in this memory, because with
        // CLONE_VFORK this thread goes on only after execve or _exit. Signals are blocked, so that
        // no handler runs in the new process, which shares what handlers change.
        let (pid, error) = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let top = stack.as_mut_ptr().add(STACK);
            let top = top.sub(top as usize % 16);
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let pid = libc::clone(enter, top.cast(), flags, std::ptr::from_mut(self).cast());
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
            (pid, error)
        };
        if pid < 0 {
            return Err(error);
        }
        // SAFETY: a volatile read of a live field, which the other process may have written.
        let errno = unsafe { (&raw const self.errno).read_volatile() };
        if errno != 0 {
            // SAFETY: our child, which has ended and which nobody else waits for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(pid)
    }

    /// Becomes the program. Returns only if that fails, with the reason.
    ///
    /// # Safety
    /// For the process that [`Child::start`] makes: makes system calls only, allocates nothing.
    unsafe fn become_program(&self) -> io::Error {
        // SAFETY: as above; every pointer is that of a live value of `self`.
        match unsafe { self.set_up() } {
            Err(error) => error,
            // SAFETY: as above.
            Ok(()) => unsafe { self.execute() },
        }
    }

    unsafe fn set_up(&self) -> io::Result<()> {
        let check = |answer: c_int| if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        // SAFETY: system calls with numbers and with pointers into live values of `self`.
        unsafe {
            for (number, stream) in (0..).zip(&self.streams) {
                if let Some(file) = stream {
                    check(libc::dup2(file.as_raw_fd(), number))?;
                }
            }
            if let Some(directory) = &self.directory {
                check(libc::chdir(directory.as_ptr()))?;
            }
            if self.own_session {
                // A new session gets its own autogroup (ksys_setsid() in kernel/sys.c), and its
                // niceness counts against other sessions. It is not an error if a kernel has no
                // such file, or allows no better niceness. A new session is also a new group.
                libc::setsid();
                let file = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if let Some((_, text)) = self.niceness.as_ref().filter(|_| file >= 0) {
                    libc::write(file, text.as_ptr().cast(), text.as_bytes().len());
                }
            } else if self.own_group {
                // `stop` signals the group, which includes processes that the program starts.
                check(libc::setpgid(0, 0))?;
            }
            if let Some(group) = &self.group {
                // 0 is the writing process. Do this before the affinity: CPUs of an isolated cpuset
                // can only be used from inside it.
                let file = libc::open(group.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                check(file)?;
                check(libc::write(file, c"0".as_ptr().cast(), 1) as c_int)?;
            }
            if let Some((niceness, _)) = self.niceness {
                libc::setpriority(libc::PRIO_PROCESS, 0, niceness);
            }
            if self.fixed_addresses {
                // This value returns the present personality without changing it (personality(2)).
                let now = libc::personality(0xffff_ffff);
                libc::personality(now as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            }
            if let Some(mask) = &self.mask {
                // Use the system call directly: the C library's cpu_set_t ends at CPU 1023.
                check(libc::syscall(libc::SYS_sched_setaffinity, 0, mask.len(), mask.as_ptr()) as c_int)?;
            }
            if let Some(user) = &self.user {
                become_user(user)?;
            }
            // After the user: the kernel clears this request when the user changes (kernel/cred.c,
            // commit_creds).
            if self.own_group {
                // The kernel clears this at execve of a set-user-ID program, which is intended.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // A parent that died before the prctl no longer sends a signal (prctl(2),
                // PR_SET_PDEATHSIG).
                if libc::getppid() != self.parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
        }
        Ok(())
    }

    unsafe fn execute(&self) -> io::Error {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: as in `set_up`; `none` is initialised before it is used.
        unsafe {
            // flyball ignores SIGPIPE and SIGXFSZ. A program expects the default, which execve does
            // not restore for an ignored signal. Remove handlers before unblocking signals.
            for &signal in [libc::SIGPIPE, libc::SIGXFSZ].iter().chain(self.handled) {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        }
        let mut failure = io::Error::from_raw_os_error(libc::ENOENT);
        for path in &self.paths {
            let (arguments, environment) =
                (self.arguments.pointers.as_ptr(), self.environment.pointers.as_ptr());
            // SAFETY: lists of pointers to live strings, the last one null.
            unsafe { libc::execve(path.as_ptr(), arguments, environment) };
            let error = io::Error::last_os_error();
            // Unlike execvp(3), never run a file with a shell if the kernel cannot run it: an empty
            // file, or a program for another processor, would seem to run.
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                // There may be a program in a later directory (execvp(3)).
                Some(libc::EACCES) => failure = error,
                _ => return error,
            }
        }
        failure
    }
}

extern "C" fn enter(child: *mut c_void) -> c_int {
    let child = child.cast::<Child>();
    // SAFETY: the pointer that `Child::start` passed, whose thread waits meanwhile.
    unsafe {
        let errno = (*child).become_program().raw_os_error().unwrap_or(libc::EINVAL);
        (&raw mut (*child).errno).write_volatile(errno);
    }
    // The exit code by which shells report a missing program. The parent reads errno instead.
    127
}

/// Returns a descriptor for waiting for a child with a time limit.
pub(super) fn descriptor(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) on a child that has not been waited for: the number cannot have
    // been reused. The descriptor returned is new and ours alone.
    unsafe {
        let raw = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if raw < 0 {
            let error = io::Error::last_os_error();
            // Without a descriptor flyball could not wait with a limit, so kill the child.
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
            return Err(error);
        }
        Ok(OwnedFd::from_raw_fd(raw as i32))
    }
}

fn string(text: impl Into<OsString>) -> io::Result<CString> {
    CString::new(text.into().into_vec()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Returns the paths at which execvp(3) looks for a program.
fn paths(program: &str, list: impl FnOnce() -> Option<OsString>) -> io::Result<Vec<CString>> {
    if program.contains('/') {
        return Ok(vec![string(program)?]);
    }
    if program.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    // The list that C libraries use if PATH is not set.
    let list = list().unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&list).map(|directory| string(directory.join(program))).collect()
}

/// Returns the file for a stream; `None` if the stream is inherited.
fn file(stream: Stream) -> io::Result<Option<Arc<File>>> {
    Ok(match stream {
        Stream::Inherited => None,
        Stream::Null => Some(match NULL.get() {
            Some(null) => Arc::clone(null),
            None => {
                let null = File::options().read(true).write(true).open("/dev/null")?;
                Arc::clone(NULL.get_or_init(|| Arc::new(null)))
            }
        }),
        Stream::File(file) => Some(Arc::new(file)),
    })
}

/// Returns the signals for which this process has a handler.
fn handled_signals() -> Vec<c_int> {
    // The last signal before the real-time signals (signal(7)), for which flyball has no handlers.
    const LAST: c_int = 31;
    let is_handled = |signal: &c_int| {
        let mut now = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: only asks; `now` is filled where the answer is 0.
        unsafe {
            libc::sigaction(*signal, std::ptr::null(), now.as_mut_ptr()) == 0
                && ![libc::SIG_DFL, libc::SIG_IGN].contains(&now.assume_init_ref().sa_sigaction)
        }
    };
    (1..=LAST).filter(is_handled).collect()
}

/// Permanently drops root for `user`. Called between clone and execve.
fn become_user(user: &User) -> io::Result<()> {
    let check = |answer: libc::c_long| if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // Groups first, the user last: each step needs the root that the last one gives up. As system
    // calls, because the C library's functions change all threads of a process, and those of this
    // one are its parent's. SAFETY: the pointer and the length are those of a live slice; the
    // others are numbers.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setgid, user.gid))?;
        check(libc::syscall(libc::SYS_setuid, user.uid))
    }
}

/// Returns the mask for sched_setaffinity(2), long enough for the highest CPU.
fn affinity_mask(cpus: &CpuList) -> Vec<u8> {
    // The kernel takes whole words of 64 bits (sched_setaffinity(2)).
    let longs = cpus.iter().next_back().map_or(1, |last| last as usize / 64 + 1);
    let mut mask = vec![0_u8; longs * 8];
    for cpu in cpus.iter() {
        mask[cpu as usize / 8] |= 1 << (cpu % 8);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_kernel_cannot_run_is_given_to_no_shell() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, "exit 7\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut child = Child::prepare(Launch::new(path.to_str().unwrap(), &[]).silent()).unwrap();
        assert_eq!(child.start().unwrap_err().raw_os_error(), Some(libc::ENOEXEC));
    }
}
