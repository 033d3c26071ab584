//! System calls for files and processes that std lacks and that do not concern a machine's
//! settings.

#![allow(
    unsafe_code,
    reason = "fcntl(2), getrusage(2), send(2), signal(2), malloc_trim(3), descriptors of the service manager"
)]

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::Path,
    str::SplitWhitespace,
};

use rustix::{
    fs::FlockOperation,
    process::{WaitId, WaitIdOptions},
};

/// Takes an exclusive flock(2) on `file` without waiting; `false` if another open file has it.
///
/// The lock belongs to the open file, not to the process. A child that inherits the descriptor
/// holds it too, and the kernel releases it when the last copy is closed.
///
/// # Errors
/// Returns the error of flock(2), except if the lock is taken.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Keeps descriptors that this process's parent left open away from the programs that this process
/// starts. Kernels before Linux 5.11 do not support this, so there the programs inherit them.
pub fn keep_descriptors() {
    // SAFETY: the call changes only what exec(2) closes; no descriptor is closed here.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Locks `file` as long as it is open, so that [`is_marked`] sees that this process lives; `false`
/// if another process has marked it. Children do not keep the mark: std opens files with
/// `O_CLOEXEC`.
///
/// # Errors
/// The errno of fcntl(2).
pub fn mark(file: &File) -> io::Result<bool> {
    match record_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether a process has marked the file ([`mark`]). This needs only the right to read the
/// file, neither /proc, which units and containers hide, nor the right to signal. A user who may
/// only read the file can lock it too, but that lock does not count as a mark.
///
/// # Errors
/// The errno of fcntl(2).
pub fn is_marked(file: &File) -> io::Result<bool> {
    // Only a write lock would prevent a read lock, so ask about a read lock.
    Ok(record_lock(file, libc::F_OFD_GETLK, libc::F_RDLCK)?.l_type != libc::F_UNLCK as libc::c_short)
}

fn record_lock(file: &File, command: libc::c_int, kind: libc::c_int) -> io::Result<libc::flock> {
    // SAFETY: the structure is numbers, for which 0 is valid; l_pid must be 0 here
    // (fcntl_locking(2)).
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the kernel reads and writes this structure only, during the call.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

/// Sends bytes over a socket. A closed peer is an error instead of a SIGPIPE, which would end the
/// process.
///
/// # Errors
/// Returns the error of send(2): `EPIPE` if the peer has gone.
pub fn send(socket: &impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads as many bytes as the slice has; the descriptor is borrowed for the
    // call.
    let sent = unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    if sent as usize == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Makes reads of a pipe return without waiting.
///
/// # Errors
/// Returns the error of ioctl(2).
pub fn set_nonblocking(pipe: &impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(pipe, true)?)
}

/// Takes the sockets that the service manager opened for this process (sd_listen_fds(3)). A second
/// call returns none.
pub fn sockets_of_service() -> Vec<OwnedFd> {
    static IS_TAKEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    // If another process's variables were inherited by mistake, they have its number.
    if number("LISTEN_PID") != Some(std::process::id())
        || IS_TAKEN.swap(true, std::sync::atomic::Ordering::AcqRel)
    {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(64) as i32;
    // SD_LISTEN_FDS_START is 3.
    let given = (3..3 + count).filter(|&descriptor| {
        // SAFETY: F_GETFD only asks whether the number is an open descriptor.
        unsafe { libc::fcntl(descriptor, libc::F_GETFD) >= 0 }
    });
    // SAFETY: it is open, the service manager gave it to this process, and no other call takes it:
    // the flag above.
    given.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }).collect()
}

/// The environment variable that marks a workload, and everything that it starts, with the process
/// that measures it.
pub const OWNER_VARIABLE: &str = "FLYBALL_WARD";

/// Returns a name of this process that is unique in this boot: its id and its start time, because
/// ids are reused.
pub fn unique_name() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let pid = std::process::id();
        format!("{pid}.{}", started_at(pid).unwrap_or(0))
    })
}

/// Returns when a process started, in ticks since boot. With the process's number, this identifies
/// it. `None` if the process has ended.
pub fn started_at(pid: u32) -> Option<u64> {
    stat(Path::new(&format!("/proc/{pid}")), |_, mut fields| fields.nth(19)?.parse().ok())
}

/// Returns the names of the processes of a group that have not ended.
pub fn names_of_group(group: i32) -> Vec<String> {
    let name = |entry: std::fs::DirEntry| {
        stat(&entry.path(), |name, mut fields| {
            let (state, _parent, of) = (fields.next()?, fields.next()?, fields.next()?);
            let lives = !matches!(state, "Z" | "X") && of.parse() == Ok(group);
            lives.then(|| name.to_owned())
        })
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(name).collect()
}

/// Adopts orphans among the descendants of this process (PR_SET_CHILD_SUBREAPER).
pub fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1));
}

/// Kills the adopted processes whose environment has the variable `mark` (`NAME=VALUE`), and those
/// that are adopted when they end. Returns their names. Also waits for adopted processes that have
/// ended by themselves, unless they are older than `age`.
pub fn kill_adopted(mark: &str, age: std::time::Duration) -> Vec<String> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    // USER_HZ is 100 on all machines.
    let since = (now.saturating_sub(age).as_millis() / 10) as u64;
    let mut names = Vec::new();
    // Most programs leave no process behind. One system call shows that; reading the lists of
    // children takes ten.
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(rustix::process::waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD)) {
        return names;
    }
    // The limit is for a process that cannot be waited for, or forks without end.
    for _ in 0..100 {
        let mut found = false;
        for pid in children() {
            let place = Path::new("/proc").join(pid.to_string());
            let ended = || stat(&place, |_, mut fields| Some(fields.next()? == "Z")) == Some(true);
            let Some(process) = rustix::process::Pid::from_raw(pid) else { continue };
            if has_variable(&place, mark) {
                names.extend(stat(&place, |name, _| Some(name.to_owned())));
                if rustix::process::kill_process(process, rustix::process::Signal::KILL).is_err() {
                    continue;
                }
            } else if !ended() || started_at(pid as u32).is_none_or(|start| start < since) {
                continue;
            }
            found |= rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty()).is_ok();
        }
        if !found {
            break;
        }
    }
    names
}

/// Returns whether a process's environment has a variable (`NAME=VALUE`). The environment of a
/// process that has ended, or of another user's, cannot be read; such a process is not to be
/// killed.
fn has_variable(process: &Path, variable: &str) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|word| word == variable.as_bytes())
}

/// Returns the children of this process from the kernel's list (CONFIG_PROC_CHILDREN).
fn children() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Passes to `read` a process's name and the fields that follow it in /proc/PID/stat: state,
/// parent, group, ... (proc_pid_stat(5)). The name may contain blanks, parentheses and bytes that
/// are not UTF-8, so the fields begin after the last parenthesis.
fn stat<T>(process: &Path, read: impl FnOnce(&str, SplitWhitespace<'_>) -> Option<T>) -> Option<T> {
    let stat = std::fs::read(process.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    read(name, after.split_whitespace())
}

/// Returns the number and the command line of the process that holds an flock(2) lock on `file`.
pub fn lock_holder(file: &File) -> Option<(String, String)> {
    use std::os::unix::fs::MetadataExt as _;
    // A line of /proc/locks: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`, with the file as
    // device and inode. Ignore the device: it is the file system's (lock_get_status in fs/locks.c),
    // which on btrfs is not the one of stat(2).
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() > 5 && words[1] == "FLOCK" && words[5].ends_with(&inode)).then(|| words[4].to_owned())
    })?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let words: Vec<&str> = command.split('\0').filter(|word| !word.is_empty()).collect();
    Some((pid, words.join(" ")))
}

/// Kills every process whose environment carries the mark of `guard`, because a workload's own
/// children survive when the process that measured it is killed. Returns how many were killed.
pub fn kill_owned_by(guard: &str) -> usize {
    let mark = format!("{OWNER_VARIABLE}={guard}");
    let mut ended = 0;
    // Later passes find processes forked during the first. The limit is for a process that cannot
    // be killed.
    for _ in 0..3 {
        let before = ended;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = pid.filter(|&pid| pid != std::process::id() as i32) else { continue };
            if has_variable(&entry.path(), &mark)
                && let Some(pid) = rustix::process::Pid::from_raw(pid)
                && rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
            {
                ended += 1;
            }
        }
        if ended == before {
            break;
        }
    }
    ended
}

/// Returns the user that this process acts as (its effective id).
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns freed memory to the kernel. A service that briefly plans 512 CPUs once a minute would
/// otherwise keep that memory.
pub fn release_freed_memory() {
    // musl returns pages when they are freed.
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and changes only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the pages of the program and its libraries that were needed to start. The kernel maps
/// most of the 15 MB while a command line is parsed and a machine is read, because it maps the
/// surroundings of each touched page (fault_around_bytes, mm/memory.c). Code that still runs is
/// read again from the page cache.
pub fn release_start_code() {
    let Ok(mappings) = std::fs::read_to_string("/proc/self/smaps") else { return };
    let mut current: Option<(usize, usize)> = None;
    for line in mappings.lines() {
        // A heading: 55d0c0a00000-55d0c1000000 r-xp 00000000 08:01 123 /usr/bin/flyball
        if let Some((range, rest)) = line.split_once(' ')
            && let Some((start, end)) = range.split_once('-')
        {
            let number = |text| usize::from_str_radix(text, 16);
            let is_file = rest.starts_with("r-") && rest.contains(" /");
            current = match (number(start), number(end)) {
                (Ok(start), Ok(end)) if is_file => Some((start, end)),
                _ => None,
            };
        } else if let Some(count) = line.strip_prefix("Anonymous:")
            && let Some((start, end)) = current.take()
            // Otherwise the loader has written to some of its pages (relocations), and no file has
            // their content.
            && count.trim() == "0 kB"
        {
            // SAFETY: the pages are of a file, not writable and none was changed, so each access
            // finds the same again.
            unsafe {
                libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED);
            }
        }
    }
}

/// User and system CPU time, and the largest memory, of this process or of its ended children.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub time: std::time::Duration,
    /// Largest resident memory so far, KiB.
    pub peak_kib: u64,
}

/// Returns the resources used so far by this process (`children` false), or by all its children
/// that were waited for.
pub fn usage(children: bool) -> Usage {
    let who = if children { libc::RUSAGE_CHILDREN } else { libc::RUSAGE_SELF };
    // SAFETY: all zeros is a value of rusage, a structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: getrusage writes one rusage to the place that it is given, which lives until the call
    // returns.
    if unsafe { libc::getrusage(who, &raw mut usage) } != 0 {
        return Usage::default();
    }
    let time = |time: libc::timeval| std::time::Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Usage { time: time(usage.ru_utime) + time(usage.ru_stime), peak_kib: usage.ru_maxrss as u64 }
}

/// Returns the CPU time of the calling thread.
pub fn thread_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the CPU on which the calling thread runs.
pub fn current_cpu() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

/// Raises the calling thread's priority, for a thread that does little but must not be late.
/// Without `CAP_SYS_NICE` nothing changes.
pub fn prefer_thread() {
    // Linux has a niceness per thread. 0 is the calling thread.
    let _ = rustix::process::setpriority_process(None, -19);
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// `EINVAL` for a CPU that does not exist or is offline.
pub fn pin_thread(cpu: u32) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    // `set` panics beyond the size of cpu_set_t.
    if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu as usize);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Returns the CPUs on which the calling thread may run.
pub fn allowed_cpus() -> Vec<u32> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

/// The file through which a process limits the wake-up latency of all CPUs
/// (Documentation/power/pm_qos_interface.rst). The request lasts as long as the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Holds the machine's latency limit, us, until the file is closed.
///
/// # Errors
/// The errno of opening or writing it: `EACCES` for users other than root.
pub fn hold_latency(limit_us: i32) -> io::Result<File> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).open(LATENCY)?;
    file.write_all(&limit_us.to_ne_bytes())?;
    Ok(file)
}

/// Reads the machine's latency limit, us; `None` if this user may not read it.
pub fn latency_limit() -> Option<u64> {
    use std::io::Read as _;
    let mut bytes = [0; 4];
    File::open(LATENCY).ok()?.read_exact(&mut bytes).ok()?;
    u64::try_from(i32::from_ne_bytes(bytes)).ok()
}

/// Restores SIGPIPE's default action (end the process), which Rust's runtime has set to ignore.
/// Ignores SIGXFSZ: if a file may not grow (ulimit -f), a write then fails with EFBIG, which can be
/// handled between two settings.
pub fn set_signal_actions() {
    // SAFETY: signal(2) with SIG_DFL or SIG_IGN installs no handler and touches no memory of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
