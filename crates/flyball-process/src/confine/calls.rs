//! Filters of system calls: lists of allowed calls, so that a later kernel's new call is refused
//! until it is listed. There is one list for readers of files, and one for a process that opens
//! nothing.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// The condition on a call's arguments.
#[derive(Debug, Clone, Copy)]
enum Check {
    /// All arguments are allowed.
    Any,
    /// The argument of this number is in one of the lists.
    OneOf(u8, &'static [&'static [u64]]),
    /// The argument of this number, masked (first value), equals the second value.
    Bits(u8, u64, u64),
    /// The argument of this number is this process's own number.
    Own(u8),
    /// The argument of this number is 0: no address, or the calling process.
    Zero(u8),
    /// Both of these arguments are 0.
    Zeros(u8, u8),
}

macro_rules! calls {
    ($($name:ident $check:expr),* $(,)?) => {
        &[$((stringify!($name), libc::$name, $check)),*]
    };
}

/// The flags of a new thread in this process: no new process, no new namespace.
const THREAD: u64 = libc::CLONE_THREAD as u64;
const THREAD_OR_NAMESPACE: u64 = (libc::CLONE_THREAD
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// Without F_SETOWN, which makes the kernel signal another process.
const FCNTL: &[u64] = &[
    libc::F_DUPFD as u64,
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    libc::F_GETFL as u64,
    libc::F_SETFL as u64,
    libc::F_DUPFD_CLOEXEC as u64,
];

/// ioctl(2) requests that std and the runtime make on a socket and on stderr.
#[allow(clippy::unnecessary_cast, reason = "an int in musl's headers")]
const IOCTL: &[u64] = &[libc::FIONBIO as u64, libc::TCGETS as u64];

/// Locks of files, and the size of pipes.
#[allow(clippy::unnecessary_cast, reason = "an int in musl's headers")]
const LOCKS: &[u64] = &[
    libc::F_GETLK as u64,
    libc::F_SETLK as u64,
    libc::F_SETLKW as u64,
    libc::F_OFD_GETLK as u64,
    libc::F_OFD_SETLK as u64,
    libc::F_OFD_SETLKW as u64,
    libc::F_GETPIPE_SZ as u64,
    libc::F_SETPIPE_SZ as u64,
];

/// ioctl(2) requests for a terminal's size and mode, and std's other requests on files.
#[allow(clippy::unnecessary_cast, reason = "an int in musl's headers")]
const TERMINAL: &[u64] = &[
    libc::FIONREAD as u64,
    libc::FIOCLEX as u64,
    libc::TIOCGWINSZ as u64,
    libc::TCSETS as u64,
    libc::TCSETSW as u64,
    libc::TCSETSF as u64,
    libc::TCGETS2 as u64,
    libc::TCSETS2 as u64,
    libc::TCSETSW2 as u64,
    libc::TCSETSF2 as u64,
];

/// `SOCK_STREAM` with each of its flags.
const STREAMS: &[u64] = &[
    libc::SOCK_STREAM as u64,
    (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64,
    (libc::SOCK_STREAM | libc::SOCK_NONBLOCK) as u64,
    (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64,
];

/// prctl(2) options for a thread's name, for the names that allocators give to memory, and for the
/// data that the kernel passed to the process at its start.
const PRCTL: &[u64] = &[libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64, PR_GET_AUXV];

/// Linux 6.4; libc has no name for it.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// A call: its name, its number, and the condition on its arguments.
type Call = (&'static str, libc::c_long, Check);
type Calls = &'static [Call];

/// Calls of both kinds of process: memory, threads, signals to itself, time.
const COMMON: Calls = calls![
    SYS_read Check::Any,
    SYS_readv Check::Any,
    SYS_write Check::Any,
    SYS_writev Check::Any,
    SYS_close Check::Any,
    SYS_fstat Check::Any,
    SYS_ppoll Check::Any,
    SYS_epoll_create1 Check::Any,
    SYS_epoll_ctl Check::Any,
    SYS_epoll_pwait Check::Any,
    SYS_eventfd2 Check::Any,
    SYS_pipe2 Check::Any,
    SYS_timerfd_create Check::Any,
    SYS_timerfd_settime Check::Any,
    SYS_futex Check::Any,
    SYS_mmap Check::Bits(2, libc::PROT_EXEC as u64, 0),
    SYS_mprotect Check::Bits(2, libc::PROT_EXEC as u64, 0),
    SYS_mremap Check::Any,
    SYS_munmap Check::Any,
    SYS_madvise Check::Any,
    SYS_brk Check::Any,
    SYS_clone Check::Bits(0, THREAD_OR_NAMESPACE, THREAD),
    SYS_exit Check::Any,
    SYS_exit_group Check::Any,
    SYS_set_robust_list Check::Any,
    SYS_rseq Check::Any,
    SYS_rt_sigaction Check::Any,
    SYS_rt_sigprocmask Check::Any,
    SYS_rt_sigreturn Check::Any,
    SYS_sigaltstack Check::Any,
    SYS_restart_syscall Check::Any,
    SYS_tgkill Check::Own(0),
    SYS_prctl Check::OneOf(0, &[PRCTL]),
    SYS_getpid Check::Any,
    SYS_gettid Check::Any,
    SYS_getuid Check::Any,
    SYS_geteuid Check::Any,
    SYS_getrandom Check::Any,
    SYS_clock_gettime Check::Any,
    SYS_clock_nanosleep Check::Any,
    SYS_nanosleep Check::Any,
    SYS_sched_yield Check::Any,
    SYS_sched_getaffinity Check::Any,
    SYS_membarrier Check::Any,
    SYS_capget Check::Any,
];

/// The older variants of [`COMMON`] that this architecture still has.
#[cfg(target_arch = "x86_64")]
const COMMON_BEFORE: Calls = calls![
    SYS_poll Check::Any,
    SYS_epoll_wait Check::Any,
    SYS_time Check::Any,
    SYS_gettimeofday Check::Any,
];
#[cfg(not(target_arch = "x86_64"))]
const COMMON_BEFORE: Calls = &[];

/// Calls of a process that has its sockets open and opens nothing. `cargo test -p flyball --test
/// cli bus` traces `flyball hold-bus` while every method is called, and compares. Calls that it
/// does not see are made by other C libraries, on other architectures, or under memory pressure.
const OF_SOCKETS: Calls = calls![
    SYS_recvfrom Check::Any,
    SYS_recvmsg Check::Any,
    SYS_sendto Check::Any,
    SYS_sendmsg Check::Any,
    SYS_shutdown Check::Any,
    SYS_getsockopt Check::Any,
    SYS_getsockname Check::Any,
    SYS_getpeername Check::Any,
    SYS_fcntl Check::OneOf(1, &[FCNTL]),
    SYS_ioctl Check::OneOf(1, &[IOCTL]),
    SYS_prlimit64 Check::Zeros(0, 2),
];

/// Calls of readers on files, which Landlock restricts. They include no calls for modes, owners,
/// attributes or times, for which it has no rights. `truncate` has a right only since Linux 6.2.
/// `cargo test -p flyball --test cli confined` traces readers, which must not need any other call.
const OF_FILES: Calls = calls![
    SYS_openat Check::Any,
    SYS_openat2 Check::Any,
    SYS_lseek Check::Any,
    SYS_pread64 Check::Any,
    SYS_pwrite64 Check::Any,
    SYS_preadv Check::Any,
    SYS_pwritev Check::Any,
    SYS_newfstatat Check::Any,
    SYS_statx Check::Any,
    SYS_statfs Check::Any,
    SYS_fstatfs Check::Any,
    SYS_getdents64 Check::Any,
    SYS_readlinkat Check::Any,
    SYS_faccessat Check::Any,
    SYS_faccessat2 Check::Any,
    SYS_mkdirat Check::Any,
    SYS_unlinkat Check::Any,
    SYS_linkat Check::Any,
    SYS_renameat2 Check::Any,
    SYS_ftruncate Check::Any,
    SYS_fallocate Check::Any,
    SYS_fadvise64 Check::Any,
    SYS_fsync Check::Any,
    SYS_fdatasync Check::Any,
    SYS_flock Check::Any,
    SYS_copy_file_range Check::Any,
    SYS_sendfile Check::Any,
    SYS_splice Check::Any,
    SYS_umask Check::Any,
    SYS_dup Check::Any,
    SYS_dup3 Check::Any,
    SYS_getcwd Check::Any,
    SYS_pselect6 Check::Any,
    SYS_getgid Check::Any,
    SYS_getegid Check::Any,
    SYS_getresuid Check::Any,
    SYS_getresgid Check::Any,
    SYS_getgroups Check::Any,
    SYS_getppid Check::Any,
    SYS_getpgid Check::Any,
    SYS_getrusage Check::Any,
    SYS_uname Check::Any,
    SYS_sysinfo Check::Any,
    SYS_getcpu Check::Any,
    SYS_clock_getres Check::Any,
    SYS_kill Check::Own(0),
    // Only limits of this process.
    SYS_prlimit64 Check::Zero(0),
    SYS_fcntl Check::OneOf(1, &[FCNTL, LOCKS]),
    SYS_ioctl Check::OneOf(1, &[IOCTL, TERMINAL]),
    // The pair by which a screen is notified of signals. A datagram socket could send to any socket
    // by name, but a stream is connected to its other end.
    SYS_socketpair Check::OneOf(1, &[STREAMS]),
    SYS_sendto Check::Zero(4),
    SYS_recvfrom Check::Zero(4),
];

/// The older variants of [`OF_FILES`] that this architecture still has.
#[cfg(target_arch = "x86_64")]
const OF_FILES_BEFORE: Calls = calls![
    SYS_open Check::Any,
    SYS_stat Check::Any,
    SYS_lstat Check::Any,
    SYS_access Check::Any,
    SYS_readlink Check::Any,
    SYS_mkdir Check::Any,
    SYS_rmdir Check::Any,
    SYS_unlink Check::Any,
    SYS_link Check::Any,
    SYS_rename Check::Any,
    SYS_renameat Check::Any,
    SYS_getdents Check::Any,
    SYS_dup2 Check::Any,
    SYS_pipe Check::Any,
    SYS_select Check::Any,
    SYS_getpgrp Check::Any,
    SYS_getrlimit Check::Any,
    SYS_setrlimit Check::Any,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_FILES_BEFORE: Calls = &[];

/// Returns the calls of a process that opens nothing.
fn socket_calls() -> impl Iterator<Item = &'static Call> {
    [COMMON, COMMON_BEFORE, OF_SOCKETS].into_iter().flatten()
}

/// Returns the calls of a reader of files.
fn file_calls() -> impl Iterator<Item = &'static Call> {
    [COMMON, COMMON_BEFORE, OF_FILES, OF_FILES_BEFORE].into_iter().flatten()
}

/// Returns the names of the calls that a process which opens nothing may make, as strace prints
/// them.
pub fn allowed() -> impl Iterator<Item = &'static str> {
    // The C library falls back from clone3, which is refused with a different errno.
    socket_calls().map(|(name, ..)| name.trim_start_matches("SYS_")).chain(["clone3"])
}

/// Returns the numbers of all calls with rules, for a process that opens nothing and for a reader.
#[cfg(test)]
pub(super) fn numbers() -> [Vec<libc::c_long>; 2] {
    let of = |calls: &mut dyn Iterator<Item = &'static Call>| {
        calls.map(|(_, number, _)| *number).chain([libc::SYS_clone3]).collect()
    };
    [of(&mut socket_calls()), of(&mut file_calls())]
}

impl Check {
    /// Returns rules of which any allows the call. No rules allow it always.
    fn rules(self) -> Result<Vec<SeccompRule>, BackendError> {
        let is = |argument, op, value| SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value);
        let equal = |argument, value| int(argument, SeccompCmpOp::Eq, value);
        let rules = match self {
            Check::Any => Vec::new(),
            Check::OneOf(argument, lists) => lists
                .iter()
                .copied()
                .flatten()
                .map(|value| Ok(vec![equal(argument, *value)?]))
                .collect::<Result<Vec<_>, BackendError>>()?,
            Check::Bits(argument, mask, value) => {
                vec![vec![is(argument, SeccompCmpOp::MaskedEq(mask), value)?]]
            }
            Check::Zero(argument) => vec![vec![is(argument, SeccompCmpOp::Eq, 0)?]],
            Check::Own(argument) => vec![vec![equal(argument, u64::from(std::process::id()))?]],
            Check::Zeros(first, second) => {
                vec![vec![equal(first, 0)?, is(second, SeccompCmpOp::Eq, 0)?]]
            }
        };
        rules.into_iter().map(SeccompRule::new).collect()
    }
}

/// Returns a condition on an int: the upper half of its register is undefined.
fn int(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

/// Refuses with EPERM every call that no reader of files needs.
pub(super) fn allow_files() -> Result<(), Error> {
    allow(file_calls())
}

/// Refuses with EPERM every call that a process which opens nothing may not make.
pub(super) fn allow_sockets() -> Result<(), Error> {
    allow(socket_calls())
}

fn allow(calls: impl Iterator<Item = &'static Call>) -> Result<(), Error> {
    // A filter cannot look behind a pointer, so it cannot judge clone3(2). If clone3 seems not to
    // exist, the C library makes the older call.
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let rules = calls.map(|(_, number, check)| Ok((*number, check.rules()?)));
    let mut rules = rules.collect::<Result<BTreeMap<_, _>, BackendError>>().map_err(Error::Backend)?;
    rules.insert(libc::SYS_clone3, Vec::new());
    apply([(libc::SYS_clone3, Vec::new())].into(), SeccompAction::Allow, absent)?;
    // Return an errno instead of killing: a library that tries another call can then continue.
    apply(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

fn apply(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    listed: SeccompAction,
) -> Result<(), Error> {
    let arch = std::env::consts::ARCH.try_into().map_err(Error::Backend)?;
    let filter = SeccompFilter::new(rules, others, listed, arch)
        .and_then(TryInto::<BpfProgram>::try_into)
        .map_err(Error::Backend)?;
    seccompiler::apply_filter(&filter)
}
