//! Kernel notifications, so that a service need not poll: writes to attributes and their writers
//! (fanotify), devices that are added or removed (uevents), processes that start and end (fanotify,
//! pidfd), sleep, wake-up and clock changes of the machine (timerfd), files of a directory and
//! control groups (inotify), pressure (PSI). One poll(2) waits for all of them.

mod clock;
mod devices;
mod files;
mod groups;
mod writer;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use self::{clock::WallClock, devices::Devices, files::Files, groups::Groups, writes::Writes};
pub use self::{
    clock::{LocalTime, asleep, local_time, since_boot},
    devices::{DeviceAction, event as device_event},
    writer::Writer,
    writes::reported,
};

/// A notification from the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process wrote a file of the machine.
    Written { path: String, by: Writer },
    /// A watched program was started.
    Started { program: PathBuf, pid: u32 },
    /// A watched process has ended.
    Ended { pid: u32 },
    /// A CPU, a power supply or another device changed; the path is below /sys.
    Device { action: DeviceAction, path: String },
    /// The machine was asleep for this long.
    Resumed { asleep: Duration },
    /// The wall clock was set.
    ClockSet,
    /// A file of the watched directory was replaced or closed after writing.
    File { name: String },
    /// A control group was created, got its first process, or lost its last one.
    Group,
    /// The pressure of this name crossed its threshold.
    Pressure { name: String },
    /// The kernel's queue overflowed, so everything must be checked.
    Lost,
    /// The wake-up descriptor became readable: a signal.
    Woken,
}

/// A set of watches to wait for with one call.
#[derive(Debug, Default)]
pub struct Watch {
    writes: Option<Writes>,
    devices: Option<Devices>,
    clock: Option<WallClock>,
    files: Option<Files>,
    processes: BTreeMap<u32, OwnedFd>,
    groups: Option<Groups>,
    pressure: BTreeMap<String, File>,
    wake: Vec<OwnedFd>,
    asleep: Duration,
}

impl Watch {
    /// Creates a set without watches.
    pub fn new() -> Watch {
        Watch { asleep: asleep(), ..Watch::default() }
    }

    /// Watches writes to all attributes on the file system of `root`. Paths are reported relative
    /// to `root`. Paths outside `root`, and paths that `concerns` rejects, are ignored.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN, `ENOSYS` without fanotify.
    pub fn writes_below(&mut self, root: &Path, concerns: fn(&str) -> bool) -> io::Result<()> {
        // /sys is a separate file system. A tree of files is part of a larger one.
        let marked = if root == Path::new("/") { Path::new("/sys") } else { root };
        let mut writes = Writes::new(root, concerns)?;
        writes.mark_file_system(marked)?;
        self.writes = Some(writes);
        Ok(())
    }

    /// Watches starts of a program.
    ///
    /// # Errors
    /// There is no such file, or as [`Watch::writes_below`].
    pub fn program(&mut self, path: &Path) -> io::Result<()> {
        match &mut self.writes {
            Some(writes) => writes.mark_program(path),
            None => {
                let mut writes = Writes::new(Path::new("/"), |_| false)?;
                writes.mark_program(path)?;
                self.writes = Some(writes);
                Ok(())
            }
        }
    }

    /// Watches devices that are added, removed or changed.
    pub fn devices(&mut self) -> io::Result<()> {
        self.devices = Some(Devices::subscribe()?);
        Ok(())
    }

    /// Watches the wall clock and sleep.
    pub fn clock(&mut self) -> io::Result<()> {
        self.clock = Some(WallClock::new()?);
        Ok(())
    }

    pub fn files(&mut self, directory: &Path) -> io::Result<()> {
        self.files = Some(Files::new(directory)?);
        Ok(())
    }

    /// Watches for the end of a process.
    ///
    /// # Errors
    /// `ESRCH` if it has ended.
    pub fn process(&mut self, pid: u32) -> io::Result<()> {
        let id = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        self.processes.insert(pid, pidfd_open(id, PidfdFlags::empty())?);
        Ok(())
    }

    /// Watches whether these control groups have processes, and stops watching all others. The
    /// groups need not exist. Returns whether a group is newly watched, since it may already have
    /// changed.
    ///
    /// # Errors
    /// inotify is missing, or there are too many watches.
    pub fn groups(&mut self, groups: &BTreeSet<PathBuf>) -> io::Result<bool> {
        if groups.is_empty() {
            self.groups = None;
            return Ok(false);
        }
        match &mut self.groups {
            Some(known) => known.follow(groups),
            None => self.groups.insert(Groups::new()?).follow(groups),
        }
    }

    /// Watches pressure under a name. `file` is a file in /proc/pressure, and `trigger` the text to
    /// write to it (`some 150000 1000000`, in microseconds; Documentation/accounting/psi.rst).
    ///
    /// # Errors
    /// `ENOENT` without pressure, `EPERM` before Linux 6.5 without CAP_SYS_RESOURCE, `EINVAL` for
    /// an invalid window.
    pub fn pressure(&mut self, name: &str, file: &Path, trigger: &str) -> io::Result<()> {
        let mut open = File::options().read(true).write(true).open(file)?;
        // The kernel expects the terminating zero (psi_write in kernel/sched/psi.c cuts off the
        // last byte).
        open.write_all(format!("{trigger}\0").as_bytes())?;
        self.pressure.insert(name.to_owned(), open);
        Ok(())
    }

    /// Keeps only the pressure watches that `is_kept` accepts.
    pub fn keep_pressures(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.pressure.retain(|name, _| is_kept(name));
    }

    /// Ends a wait when this nonblocking descriptor becomes readable.
    pub fn wake_by(&mut self, descriptor: OwnedFd) {
        self.wake.push(descriptor);
    }

    /// Waits for a notification, for at most `time`. Returns an empty list on a timeout.
    ///
    /// # Errors
    /// The errno of poll(2) or a read, other than `EINTR`.
    pub fn wait(&mut self, time: Option<Duration>) -> io::Result<Vec<Event>> {
        let ready = self.ready(time)?;
        let mut events = Vec::new();
        let is_ready = |source: Source| ready.contains(&source);
        if is_ready(Source::Wake) {
            for wake in &self.wake {
                // Read it empty, so that it wakes only once. If the other end is closed, it keeps
                // waking.
                let _ = rustix::io::read(wake, &mut [0; 64]);
            }
            events.push(Event::Woken);
        }
        // Before the writes: a command announces its settings before it writes them.
        if let Some(files) = self.files.as_ref().filter(|_| is_ready(Source::Files)) {
            files.take(&mut events)?;
        }
        if let Some(clock) = self.clock.as_ref().filter(|_| is_ready(Source::Clock)) {
            clock.rearm()?;
            events.push(Event::ClockSet);
        }
        // Check this even without a message: kernels before 5.15 do not end the timer at resume
        // (timerfd_resume in fs/timerfd.c).
        let slept = asleep();
        // The two clocks are not read at the same time.
        if slept > self.asleep + Duration::from_millis(10) {
            events.retain(|event| *event != Event::ClockSet);
            events.push(Event::Resumed { asleep: slept.saturating_sub(self.asleep) });
            self.asleep = slept;
        }
        if let Some(groups) = self.groups.as_ref().filter(|_| is_ready(Source::Groups)) {
            groups.take(&mut events)?;
        }
        if let Some(devices) = self.devices.as_ref().filter(|_| is_ready(Source::Devices)) {
            devices.take(&mut events)?;
        }
        for pid in ready.iter().filter_map(|source| match source {
            Source::Process(pid) => Some(*pid),
            _ => None,
        }) {
            self.processes.remove(&pid);
            events.push(Event::Ended { pid });
        }
        events.extend(ready.iter().filter_map(|source| match source {
            Source::Pressure(name) => Some(Event::Pressure { name: name.clone() }),
            _ => None,
        }));
        if let Some(writes) = self.writes.as_mut().filter(|_| is_ready(Source::Writes)) {
            writes.take(&mut events)?;
        }
        Ok(events)
    }

    fn ready(&self, time: Option<Duration>) -> io::Result<Vec<Source>> {
        let mut sources = Vec::new();
        let mut polled = Vec::new();
        let mut add = |source: Source, descriptor, flags| {
            sources.push(source);
            polled.push(PollFd::from_borrowed_fd(descriptor, flags));
        };
        let input = PollFlags::IN;
        for wake in &self.wake {
            add(Source::Wake, wake.as_fd(), input);
        }
        if let Some(files) = &self.files {
            add(Source::Files, files.as_fd(), input);
        }
        if let Some(clock) = &self.clock {
            add(Source::Clock, clock.as_fd(), input);
        }
        if let Some(devices) = &self.devices {
            add(Source::Devices, devices.as_fd(), input);
        }
        for (pid, descriptor) in &self.processes {
            add(Source::Process(*pid), descriptor.as_fd(), input);
        }
        if let Some(groups) = &self.groups {
            add(Source::Groups, groups.as_fd(), input);
        }
        for (name, file) in &self.pressure {
            add(Source::Pressure(name.clone()), file.as_fd(), PollFlags::PRI);
        }
        if let Some(writes) = &self.writes {
            add(Source::Writes, writes.as_fd(), input);
        }
        let timeout = time.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()) as _,
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = sources.into_iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        Ok(ready.map(|(source, _)| source).collect())
    }
}

/// Returns an attribute's path without links, as the kernel reports it: /sys/class leads to
/// /sys/devices.
pub fn real_path(host: &dyn crate::Host, path: &str) -> String {
    let mut path = path.to_owned();
    // A class directory has one link per device. Few attributes are behind two links.
    for _ in 0..4 {
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
        let link = ends.into_iter().find_map(|end| Some((end, host.link(&path[..end]).ok()?)));
        let Some((end, target)) = link else { break };
        let folder = path[..end].rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut parts: Vec<&str> =
            if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
        for part in target.split('/') {
            match part {
                ".." => _ = parts.pop(),
                "." | "" => {}
                part => parts.push(part),
            }
        }
        path = format!("{}{}", parts.join("/"), &path[end..]);
    }
    path
}

/// The source of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Wake,
    Files,
    Clock,
    Devices,
    Process(u32),
    Groups,
    Pressure(String),
    Writes,
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn until(watch: &mut Watch, is_it: impl Fn(&Event) -> bool) -> Option<Event> {
        // Other processes write to the same file system; their events are ignored.
        for _ in 0..50 {
            let events = watch.wait(Some(Duration::from_millis(200))).unwrap();
            if let Some(found) = events.into_iter().find(|event| is_it(event)) {
                return Some(found);
            }
        }
        None
    }

    #[test]
    fn a_write_is_reported_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sys")).unwrap();
        std::fs::write(root.join("sys/knob"), "1\n").unwrap();
        let mut watch = Watch::new();
        match watch.writes_below(&root, |path| path.starts_with("/sys/knob")) {
            Ok(()) => {}
            // This happens without CAP_SYS_ADMIN.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
            Err(error) => panic!("{error}"),
        }
        // This process's own writes are not reported.
        std::fs::write(root.join("sys/own"), "2\n").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo 2 > sys/other; echo 2 > sys/knob; read wait"]).current_dir(&root);
        let mut shell = shell.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let found = until(&mut watch, |event| matches!(event, Event::Written { .. }));
        let Some(Event::Written { path, by }) = found else { panic!("no event") };
        assert_eq!((path.as_str(), by.pid), ("/sys/knob", shell.id()));
        assert!(by.name.is_some());
        watch.process(shell.id()).unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        let pid = shell.id();
        assert_eq!(
            until(&mut watch, |event| matches!(event, Event::Ended { .. })),
            Some(Event::Ended { pid })
        );
    }

    #[test]
    fn a_lock_that_is_given_up_and_a_wake_up_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = Watch::new();
        watch.files(folder.path()).unwrap();
        watch.clock().unwrap();
        assert_eq!(watch.wait(Some(Duration::from_millis(1))).unwrap(), []);
        let lock = File::create(folder.path().join("lock")).unwrap();
        assert_eq!(watch.wait(Some(Duration::from_millis(1))).unwrap(), []);
        drop(lock);
        assert_eq!(watch.wait(None).unwrap(), [Event::File { name: "lock".to_owned() }]);
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        watch.wake_by(ours.into());
        drop(theirs);
        assert_eq!(watch.wait(None).unwrap(), [Event::Woken]);
    }

    #[test]
    fn a_group_is_followed_from_before_it_exists_until_after() {
        let folder = tempfile::tempdir().unwrap();
        let (slice, group) =
            (folder.path().join("system.slice"), folder.path().join("system.slice/a.service"));
        let set = |text: &str| std::fs::write(group.join("cgroup.events"), text).unwrap();
        let mut watch = Watch::new();
        let groups = BTreeSet::from([group.clone()]);
        assert!(watch.groups(&groups).unwrap() && !watch.groups(&groups).unwrap());
        let is_reported = |watch: &mut Watch| {
            let reported = watch.wait(Some(Duration::from_millis(20))).unwrap() == [Event::Group];
            (reported, watch.groups(&groups).unwrap())
        };
        std::fs::create_dir(&slice).unwrap();
        assert_eq!(is_reported(&mut watch), (true, true));
        std::fs::create_dir(&group).unwrap();
        set("populated 1\n");
        assert_eq!(is_reported(&mut watch), (true, true));
        std::fs::create_dir(slice.join("b.service")).unwrap();
        assert_eq!(
            is_reported(&mut watch),
            (false, false),
            "another unit does not wake a service whose unit runs"
        );
        set("populated 0\n");
        assert_eq!(is_reported(&mut watch), (true, true));
        std::fs::remove_dir_all(&group).unwrap();
        is_reported(&mut watch);
        std::fs::create_dir(&group).unwrap();
        assert!(is_reported(&mut watch).0, "started again");
    }

    #[test]
    fn devices_are_reported_by_the_kernel_only() {
        let mut watch = Watch::new();
        watch.devices().unwrap();
        assert!(watch.wait(Some(Duration::from_millis(1))).is_ok());
    }
}
