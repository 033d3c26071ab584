//! Filters of system calls. Readers of files have a list of calls that are refused, because a list
//! of all that they need would have to follow every C library. A process that opens nothing makes
//! few calls, so it has a list of those that are allowed.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

/// Linux 6.6; older C libraries have no name for it.
const FCHMODAT2: libc::c_long = 452;

/// Calls that no reader of files makes: other programs, sockets, other processes, modes, owners and
/// times of files (Landlock has no rights for those), mounts, modules, and parts of the kernel in
/// which holes were found again and again.
const REFUSED: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fsetxattr,
    libc::SYS_fremovexattr,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
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

/// Calls of readers that are refused unless their first argument is this process. Signals: Landlock
/// bounds them from Linux 6.12 on only.
const SIGNALS: &[libc::c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// The same, but 0 stands for this process or thread too.
const OF_A_PROCESS: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Calls of readers that are refused with these values of an argument: signals of a file to another
/// process, characters typed into the terminal.
#[allow(clippy::unnecessary_cast, reason = "an int in musl's headers")]
const REFUSED_WITH: &[(libc::c_long, u8, &[u64])] = &[
    (libc::SYS_fcntl, 1, &[libc::F_SETOWN as u64, F_SETSIG, F_SETOWN_EX]),
    (libc::SYS_ioctl, 1, &[libc::TIOCSTI as u64, libc::TIOCLINUX as u64]),
];

/// Numbers of include/uapi/asm-generic/fcntl.h that libc has no names for.
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// `IOPRIO_WHO_PROCESS` of include/uapi/linux/ioprio.h.
const IOPRIO_WHO_PROCESS: u64 = 1;

/// What an argument must be for a call to be allowed.
#[derive(Debug, Clone, Copy)]
enum Check {
    /// The call has any arguments.
    Any,
    /// The argument of this number is one of these.
    OneOf(u8, &'static [u64]),
    /// The argument of this number has these bits of the mask.
    Bits(u8, u64, u64),
    /// The call concerns this process: the argument is its number.
    Own(u8),
    /// Both of these arguments are 0.
    Zeros(u8, u8),
}

macro_rules! calls {
    ($($name:ident $check:expr),* $(,)?) => {
        &[$((stringify!($name), libc::$name, $check)),*]
    };
}

/// A thread of this process: not a new process, and no new namespace.
const THREAD: u64 = libc::CLONE_THREAD as u64;
const THREAD_OR_NAMESPACE: u64 = (libc::CLONE_THREAD
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// Not F_SETOWN, which has a signal sent to another process.
const FCNTL: &[u64] = &[
    libc::F_DUPFD as u64,
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    libc::F_GETFL as u64,
    libc::F_SETFL as u64,
    libc::F_DUPFD_CLOEXEC as u64,
];

/// What std and the runtime ask of a socket and of stderr.
#[allow(clippy::unnecessary_cast, reason = "an int in musl's headers")]
const IOCTL: &[u64] = &[libc::FIONBIO as u64, libc::TCGETS as u64];

/// `prctl` for the name of a thread, and for the names that allocators give to memory.
const PRCTL: &[u64] = &[libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64];

/// A list of calls: the name, the number, what the arguments must be.
type Calls = &'static [(&'static str, libc::c_long, Check)];

/// The calls of a process that has its sockets open and opens nothing.
/// `cargo test -p flyball --test cli bus` traces `flyball hold-bus` while every method is called,
/// and compares. What it does not see is made by other C libraries, other architectures, or under
/// memory pressure.
const ALLOWED: Calls = calls![
    SYS_read Check::Any,
    SYS_readv Check::Any,
    SYS_write Check::Any,
    SYS_writev Check::Any,
    SYS_recvfrom Check::Any,
    SYS_recvmsg Check::Any,
    SYS_sendto Check::Any,
    SYS_sendmsg Check::Any,
    SYS_shutdown Check::Any,
    SYS_getsockopt Check::Any,
    SYS_getsockname Check::Any,
    SYS_getpeername Check::Any,
    SYS_close Check::Any,
    SYS_fcntl Check::OneOf(1, FCNTL),
    SYS_ioctl Check::OneOf(1, IOCTL),
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
    SYS_prlimit64 Check::Zeros(0, 2),
    SYS_prctl Check::OneOf(0, PRCTL),
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

/// The same, in the older calls that this architecture still has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_BEFORE: Calls = calls![
    SYS_poll Check::Any,
    SYS_epoll_wait Check::Any,
    SYS_time Check::Any,
    SYS_gettimeofday Check::Any,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_BEFORE: Calls = &[];

/// The names of the calls that are left to a process that opens nothing, as strace prints them.
pub fn allowed() -> impl Iterator<Item = &'static str> {
    let all = ALLOWED.iter().chain(ALLOWED_BEFORE);
    // The C library falls back from this one, which is refused in its own way.
    all.map(|(name, ..)| name.trim_start_matches("SYS_")).chain(["clone3"])
}

/// The numbers of all calls that have rules of their own.
#[cfg(test)]
pub(super) fn numbers() -> Vec<libc::c_long> {
    let listed = ALLOWED.iter().chain(ALLOWED_BEFORE).map(|(_, number, _)| *number);
    listed.chain([libc::SYS_clone3]).collect()
}

impl Check {
    /// Any of these rules lets the call through; no rule at all does so always.
    fn rules(self) -> Result<Vec<SeccompRule>, BackendError> {
        let is = |argument, op, value| SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value);
        let equal = |argument, value| int(argument, SeccompCmpOp::Eq, value);
        let rules = match self {
            Check::Any => Vec::new(),
            Check::OneOf(argument, values) => values
                .iter()
                .map(|value| Ok(vec![equal(argument, *value)?]))
                .collect::<Result<Vec<_>, BackendError>>()?,
            Check::Bits(argument, mask, value) => {
                vec![vec![is(argument, SeccompCmpOp::MaskedEq(mask), value)?]]
            }
            Check::Own(argument) => vec![vec![equal(argument, u64::from(std::process::id()))?]],
            Check::Zeros(first, second) => {
                vec![vec![equal(first, 0)?, is(second, SeccompCmpOp::Eq, 0)?]]
            }
        };
        rules.into_iter().map(SeccompRule::new).collect()
    }
}

/// A condition on an int: what the upper half of the register holds is not defined.
fn int(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

/// The rules by which calls of readers are refused: any rule of a call does, with all of its
/// conditions; no rule at all does always.
fn refusals() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let own = u64::from(std::process::id());
    let not = |argument, value| int(argument, SeccompCmpOp::Ne, value);
    let rule = SeccompRule::new;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    for number in SIGNALS {
        rules.insert(*number, vec![rule(vec![not(0, own)?])?]);
    }
    for number in OF_A_PROCESS {
        rules.insert(*number, vec![rule(vec![not(0, 0)?, not(0, own)?])?]);
    }
    // The first argument says whether the second is a process, a group or a user.
    for (number, process) in
        [(libc::SYS_setpriority, u64::from(libc::PRIO_PROCESS)), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)]
    {
        rules.insert(number, vec![rule(vec![not(0, process)?])?, rule(vec![not(1, 0)?])?]);
    }
    for (number, argument, values) in REFUSED_WITH {
        let with = values.iter().map(|value| rule(vec![int(*argument, SeccompCmpOp::Eq, *value)?]));
        rules.insert(*number, with.collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// An errno, not a kill: a library that tries such a call goes on without it.
const REFUSE: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// Makes what [`refusals`] names fail with EPERM.
pub(super) fn refuse() -> Result<(), Error> {
    #[cfg(target_arch = "x86_64")]
    seccompiler::apply_filter(&refuse_x32())?;
    apply(refusals().map_err(Error::Backend)?, SeccompAction::Allow, REFUSE)
}

/// Makes everything fail with EPERM that is not allowed to a process that opens nothing.
pub(super) fn allow_only() -> Result<(), Error> {
    // A filter sees no further than a pointer, so clone3(2) cannot be judged. The C library makes
    // the older call if the kernel seems not to have this one.
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let rules = ALLOWED.iter().chain(ALLOWED_BEFORE).map(|(_, number, check)| Ok((*number, check.rules()?)));
    let mut rules = rules.collect::<Result<BTreeMap<_, _>, BackendError>>().map_err(Error::Backend)?;
    rules.insert(libc::SYS_clone3, Vec::new());
    apply([(libc::SYS_clone3, Vec::new())].into(), SeccompAction::Allow, absent)?;
    apply(rules, REFUSE, SeccompAction::Allow)
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

/// The calls of the x32 ABI have the numbers of x86-64 with one more bit, and would pass a list of
/// what is refused.
#[cfg(target_arch = "x86_64")]
fn refuse_x32() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let one = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    vec![
        // The number is the first field of seccomp_data.
        one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        one(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        one(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        one(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
