//! Programs that run on a machine, and child processes as a benchmark needs them: each has its own
//! process group, a fixed set of CPUs and death with its parent, and the kernel accounts for it
//! (wait4's rusage).

#![allow(unsafe_code, reason = "wait4(2)")]

mod start;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::PathBuf,
    process::ExitStatus,
    time::{Duration, Instant},
};

use flyball_process::{SUDO_VARIABLES, User, terminal};

use crate::CpuList;

/// Resources used by a process and the descendants that it waited for, by the kernel's accounting
/// (getrusage(2)).
#[derive(
    Debug, Clone, Copy, PartialEq, Default, schemars::JsonSchema, serde::Serialize, serde::Deserialize,
)]
pub struct Usage {
    /// Seconds of CPU time in user mode.
    pub user_seconds: f64,
    /// Seconds of CPU time in the kernel.
    pub system_seconds: f64,
    /// Times that a task gave up its CPU to wait.
    pub voluntary_switches: u64,
    /// Times that a task lost its CPU.
    pub involuntary_switches: u64,
    /// Largest resident set, in KiB. `None` if it is no larger than that of the process that
    /// started it: a child begins with its parent's value (`exec_mmap` in fs/exec.c).
    #[serde(default)]
    pub peak_kib: Option<u64>,
    /// Page faults that needed input.
    pub major_faults: u64,
    /// Page faults that needed no input.
    #[serde(default)]
    pub minor_faults: u64,
}

impl Usage {
    /// Converts the kernel's structure. `parent_kib` is the largest resident set of the parent at
    /// the start of the child.
    fn from_raw(raw: &libc::rusage, parent_kib: u64) -> Usage {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Usage {
            user_seconds: seconds(raw.ru_utime),
            system_seconds: seconds(raw.ru_stime),
            voluntary_switches: raw.ru_nvcsw as u64,
            involuntary_switches: raw.ru_nivcsw as u64,
            peak_kib: Some(raw.ru_maxrss as u64).filter(|kib| *kib > parent_kib),
            major_faults: raw.ru_majflt as u64,
            minor_faults: raw.ru_minflt as u64,
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// `None` for the model of a workload, which the kernel does not account for.
    pub usage: Option<Usage>,
    /// Time from just before the start to the end, on the machine's clock.
    pub wall: Duration,
    /// Units of work per second, from a model that works for a given time.
    pub rate: Option<f64>,
}

/// A program that runs on a machine, started by [`Host::spawn`](crate::Host::spawn).
pub trait Process: Send + std::fmt::Debug {
    /// Waits for the end, for at most `limit` of the machine's time. Returns `None` on a timeout or
    /// a signal.
    fn wait(&mut self, limit: Duration) -> io::Result<Option<Ended>>;

    /// Ends it with its descendants, by force after `patience`.
    fn stop(self: Box<Self>, patience: Duration) -> io::Result<Ended>;

    /// Returns the number of its process; `None` for the model of a workload.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// After its end: kills the remaining processes of its group, and returns their names.
    fn kill_left_behind(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// The variable that identifies the processes of one launch.
const LAUNCH_VARIABLE: &str = "FLYBALL_LAUNCH";

/// A process that was started and has not been waited for.
#[derive(Debug)]
pub struct Running {
    pid: i32,
    descriptor: OwnedFd,
    started: Instant,
    own_group: bool,
    /// The variable that marks its processes, unless daemons among them may stay.
    mark: Option<String>,
    /// The largest resident set of this process when it started the program, KiB.
    parent_kib: u64,
}

/// The destination of one of a program's standard streams.
#[derive(Debug)]
enum Stream {
    /// The same as that of this process.
    Inherited,
    /// To /dev/null.
    Null,
    File(File),
}

/// How to start a program.
#[derive(Debug)]
pub struct Launch {
    program: String,
    arguments: Vec<String>,
    /// Changes to this process's environment. `None` removes a variable.
    environment: BTreeMap<OsString, Option<OsString>>,
    directory: Option<PathBuf>,
    stdin: Stream,
    stdout: Stream,
    stderr: Stream,
    cpus: Option<CpuList>,
    own_group: bool,
    keeps_daemons: bool,
    niceness: Option<i32>,
    fixed_addresses: bool,
    group: Option<std::ffi::CString>,
    user: Option<User>,
}

impl Launch {
    /// Launches `program` with `arguments`, input from /dev/null, in its own process group.
    pub fn new(program: &str, arguments: &[String]) -> Launch {
        Launch {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            environment: BTreeMap::new(),
            directory: None,
            stdin: Stream::Null,
            stdout: Stream::Inherited,
            stderr: Stream::Inherited,
            cpus: None,
            own_group: true,
            keeps_daemons: false,
            niceness: None,
            fixed_addresses: false,
            group: None,
            user: None,
        }
    }

    /// Keeps it in this process's group, with its terminal and standard input, for interactive
    /// commands.
    #[must_use]
    pub fn in_foreground(mut self) -> Launch {
        self.own_group = false;
        self.stdin = Stream::Inherited;
        self
    }

    /// Lets processes that leave its session survive its end.
    #[must_use]
    pub fn keeping_daemons(mut self) -> Launch {
        self.keeps_daemons = true;
        self
    }

    /// Restricts it and its descendants to these CPUs.
    #[must_use]
    pub fn on(mut self, cpus: &CpuList) -> Launch {
        self.cpus = Some(cpus.clone());
        self
    }

    /// Runs it at this niceness, -20 (first) to 19 (last), against tasks of other sessions too. If
    /// that is not allowed, the niceness stays unchanged.
    ///
    /// If the kernel groups tasks by session (kernel/sched/autogroup.c), niceness counts only among
    /// the tasks of one session. So a process with its own group also gets its own session, and the
    /// session gets the niceness.
    #[must_use]
    pub fn at_niceness(mut self, niceness: i32) -> Launch {
        self.niceness = Some(niceness);
        self
    }

    /// Disables address space randomisation for it and its descendants (personality(2)).
    #[must_use]
    pub fn with_fixed_addresses(mut self) -> Launch {
        self.fixed_addresses = true;
        self
    }

    /// Starts it in this control group (a directory of cgroup v2), so that it may use the group's
    /// CPUs.
    #[must_use]
    pub fn in_control_group(mut self, path: &str) -> Launch {
        self.group = std::ffi::CString::new(format!("{path}/cgroup.procs")).ok();
        self
    }

    /// Runs it as `user`, with that user's groups and home. The other settings are still made as
    /// root.
    #[must_use]
    pub fn as_user(mut self, user: Option<&User>) -> Launch {
        let Some(user) = user.filter(|user| !user.is_self()) else { return self };
        let (home, name) = (user.home.clone().into_os_string(), OsString::from(&user.name));
        for (variable, value) in [("HOME", home), ("USER", name.clone()), ("LOGNAME", name)] {
            self.environment.insert(variable.into(), Some(value));
        }
        self.environment.extend(SUDO_VARIABLES.map(|variable| (variable.into(), None)));
        self.user = Some(user.clone());
        self
    }

    /// Sends standard output and standard error to these files.
    #[must_use]
    pub fn output_to(mut self, stdout: File, stderr: File) -> Launch {
        (self.stdout, self.stderr) = (Stream::File(stdout), Stream::File(stderr));
        self
    }

    /// Discards its output.
    #[must_use]
    pub fn silent(mut self) -> Launch {
        (self.stdout, self.stderr) = (Stream::Null, Stream::Null);
        self
    }

    /// Reads standard input from this file.
    #[must_use]
    pub fn input_from(mut self, file: File) -> Launch {
        self.stdin = Stream::File(file);
        self
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Launch {
        self.environment.insert(name.into(), Some(value.into()));
        self
    }

    /// Starts it in this directory.
    #[must_use]
    pub fn in_directory(mut self, directory: &std::path::Path) -> Launch {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Returns the program and its arguments. A simulated machine runs the model that these words
    /// name.
    pub fn words(&self) -> Vec<String> {
        std::iter::once(&self.program).chain(&self.arguments).cloned().collect()
    }

    /// Returns the CPUs that it may use; `None` if all.
    pub fn cpus(&self) -> Option<&CpuList> {
        self.cpus.as_ref()
    }

    /// Prints the result of the model `name`, as a program would print its own. Without a file the
    /// result goes to standard error: flyball's standard output is for data.
    pub fn print(&mut self, name: &str, text: &str) {
        use io::Write as _;
        match &mut self.stdout {
            Stream::File(file) => {
                // As for a program that cannot write its output, the reader notices.
                let _ = file.write_all(text.as_bytes());
            }
            Stream::Null => {}
            // stderr may be full or closed, but the result is in the report too.
            Stream::Inherited => {
                terminal::complain(format_args!("flyball: {name} (model): {text}"));
            }
        }
    }

    /// Starts it on the running kernel.
    ///
    /// # Errors
    /// The errno of execve(2), fork(2) or `sched_setaffinity(2)`; EINVAL for CPUs that are all
    /// offline.
    pub fn start(mut self) -> io::Result<Running> {
        if self.own_group {
            // The guardian finds the workload's processes by this variable if this process is
            // killed.
            let name = flyball_process::unique_name();
            self.environment.insert(flyball_process::OWNER_VARIABLE.into(), Some(name.into()));
        }
        let own_group = self.own_group;
        let mark = (own_group && !self.keeps_daemons).then(|| {
            // The mark is unique and has a fixed width: the size of the environment moves the
            // stack.
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let number = format!("{:010}.{:09}", time.tv_sec, time.tv_nsec);
            let mark = format!("{LAUNCH_VARIABLE}={number}");
            self.environment.insert(LAUNCH_VARIABLE.into(), Some(number.into()));
            flyball_process::adopt_orphans();
            mark
        });
        let mut child = start::Child::prepare(self)?;
        let started = Instant::now();
        let pid = child.start()?;
        // Read it after the child's exec, for which this thread waits: the child has inherited this
        // process's value by then.
        let parent_kib = flyball_process::usage(false).peak_kib;
        let descriptor = start::descriptor(pid)?;
        Ok(Running { pid, descriptor, started, own_group, mark, parent_kib })
    }
}

impl Running {
    pub fn id(&self) -> u32 {
        self.pid as u32
    }

    /// Returns whether the terminal stopped the process: its own group is in the background, and
    /// nobody brings it to the foreground.
    fn waits_for_terminal(&self) -> bool {
        use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return false };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let by = waitid(WaitId::Pid(pid), options).ok().flatten().and_then(|status| status.stopping_signal());
        by.is_some_and(|by| [Signal::TTIN, Signal::TTOU].iter().any(|known| known.as_raw() == by))
    }

    /// Sends a signal to its own group, or to the process if it has none. A process that is already
    /// gone is not an error.
    fn signal(&self, signal: rustix::process::Signal) {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return };
        let _ = if self.own_group {
            rustix::process::kill_process_group(pid, signal)
        } else {
            rustix::process::kill_process(pid, signal)
        };
    }
}

impl Process for Running {
    fn wait(&mut self, limit: Duration) -> io::Result<Option<Ended>> {
        use rustix::event::{PollFd, PollFlags, poll};
        // A pidfd is readable when its process has ended (pidfd_open(2)), so poll can wait with a
        // time limit, unlike waitpid(2).
        let mut watched = [PollFd::from_borrowed_fd(self.descriptor.as_fd(), PollFlags::IN)];
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) if self.waits_for_terminal() => {
                self.signal(rustix::process::Signal::KILL);
                return Err(io::Error::other("it stopped because it needs the terminal"));
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let wall = self.started.elapsed();
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value of this plain C structure.
        let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `status` and `raw` are live and exclusively borrowed for the call; `pid` is our
        // child.
        let answer = unsafe { libc::wait4(self.pid, &raw mut status, libc::WNOHANG, &raw mut raw) };
        match answer {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ => Ok(Some(Ended {
                status: ExitStatus::from_raw(status),
                usage: Some(Usage::from_raw(&raw, self.parent_kib)),
                wall,
                rate: None,
            })),
        }
    }

    fn pid(&self) -> Option<u32> {
        Some(self.id())
    }

    /// Sends SIGTERM to its whole group, and SIGKILL after `patience`.
    fn stop(mut self: Box<Self>, patience: Duration) -> io::Result<Ended> {
        self.signal(rustix::process::Signal::TERM);
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.signal(rustix::process::Signal::KILL);
            }
            // Keep waiting after SIGKILL too: a process in uninterruptible sleep ends later, and a
            // timeout of 0 would spin.
            let step = Duration::from_millis(100);
            if let Some(ended) = self.wait(if left.is_zero() { step } else { left.min(step) })? {
                // Members of the group that outlived their leader.
                self.signal(rustix::process::Signal::KILL);
                self.kill_left_behind();
                return Ok(ended);
            }
        }
    }

    fn kill_left_behind(&mut self) -> Vec<String> {
        let group = rustix::process::Pid::from_raw(self.pid).filter(|_| self.own_group);
        let mut names = Vec::new();
        // While a member lives, no other group can get this number.
        if group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok()) {
            names = flyball_process::names_of_group(self.pid);
            self.signal(rustix::process::Signal::KILL);
        }
        if let Some(mark) = &self.mark {
            for name in flyball_process::kill_adopted(mark, self.started.elapsed()) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Launch {
        Launch::new("/bin/sh", &["-c".to_owned(), script.to_owned()])
    }

    fn finish(mut running: Running) -> Ended {
        for _ in 0..600 {
            if let Some(ended) = running.wait(Duration::from_millis(100)).expect("poll and wait4 work") {
                return ended;
            }
        }
        panic!("it does not end");
    }

    #[test]
    fn exit_codes_and_usage_arrive() {
        let ended =
            finish(shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3").start().expect("sh"));
        assert_eq!(ended.status.code(), Some(3));
        let usage = ended.usage.expect("the kernel accounts it");
        assert!(usage.user_seconds > 0.0);
        assert!(ended.wall.as_secs_f64() >= usage.user_seconds * 0.5);
    }

    #[test]
    fn the_whole_group_is_stopped() {
        let started = Instant::now();
        let mut running = shell("trap '' TERM; sleep 300 & sleep 300").start().expect("sh");
        assert!(running.wait(Duration::from_millis(200)).expect("poll works").is_none());
        let group = running.id() as i32;
        let ended = Box::new(running).stop(Duration::from_millis(200)).expect("it stops");
        assert!(!ended.status.success());
        assert!(started.elapsed() < Duration::from_secs(20));
        // No process of the group is left once init has reaped the orphan.
        let gone = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            rustix::process::Pid::from_raw(group)
                .is_none_or(|pid| rustix::process::test_kill_process_group(pid).is_err())
        });
        assert!(gone, "sleep still runs");
    }

    #[test]
    fn what_is_left_behind_is_named_and_killed() {
        let mut running = shell("sleep 300 & sleep 0.3; exit 0").start().expect("sh");
        while running.wait(Duration::from_millis(100)).expect("poll and wait4 work").is_none() {}
        assert_eq!(running.kill_left_behind(), ["sleep"]);
        let gone = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            flyball_process::names_of_group(running.pid).is_empty()
        });
        assert!(gone, "sleep still runs");
    }

    /// A program that needs less memory than this process must not seem to need as much.
    #[test]
    fn only_memory_above_this_process_is_seen() {
        let own = vec![1u8; 64 << 20];
        let small = finish(Launch::new("true", &[]).start().expect("true"));
        assert_eq!(small.usage.and_then(|usage| usage.peak_kib), None, "{}", own.len());
        // Lines are longer than the pipe, so tail holds them.
        let large =
            finish(shell("head -c 200000000 /dev/zero | tail -c 190000000 >/dev/null").start().expect("sh"));
        assert!(large.usage.and_then(|usage| usage.peak_kib).is_some_and(|kib| kib > 180_000), "{large:?}");
    }

    #[test]
    fn affinity_is_inherited() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("out");
        let out = File::create(&path).expect("a file");
        let only: CpuList = "0".parse().expect("a list");
        let launch = shell("grep Cpus_allowed_list /proc/self/status")
            .on(&only)
            .output_to(out.try_clone().expect("dup"), out);
        assert!(finish(launch.start().expect("sh")).status.success());
        let text = std::fs::read_to_string(path).expect("it was written");
        assert_eq!(text.split_whitespace().last(), Some("0"));
        let none: CpuList = "4000".parse().expect("a list");
        assert!(shell("true").on(&none).start().is_err());
    }

    #[test]
    fn what_is_not_there_says_so() {
        let error = Launch::new("/nonexistent/program", &[]).start().expect_err("no such program");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
