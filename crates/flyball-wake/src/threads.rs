//! The threads of a workload: how often each waited and was woken, and how long it then waited for
//! a CPU.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use flyball_host::{CpuList, Host};

use crate::WakeError;

/// The workload whose threads are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// None: only CPUs are watched.
    Cpus,
    /// A process with its descendants.
    Process(u32),
    /// A control group and those below it, as a name in the hierarchy or a full path.
    Group(String),
    /// Like [`Target::Process`], but started for this watch.
    Command(u32),
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// Times that it gave up its CPU to wait; each ends with a wake-up.
    voluntary: u64,
    /// Times that it lost its CPU.
    involuntary: u64,
    /// Time on a CPU, and time ready and waiting for a CPU, ns. Kernels may be built without these.
    times: Option<(u64, u64)>,
}

/// A thread's counters at the first and the last reading.
#[derive(Debug)]
struct Thread {
    name: String,
    first: Counts,
    last: Counts,
}

/// Counts of a thread over an interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Woken {
    pub(crate) tid: u32,
    pub(crate) name: String,
    pub(crate) wakes: u64,
    pub(crate) preempted: u64,
    /// Time on a CPU, and time ready without a CPU, ns.
    pub(crate) times: Option<(u64, u64)>,
}

#[derive(Debug)]
pub(crate) struct Threads {
    target: Target,
    known: BTreeMap<u32, Thread>,
    alive: BTreeSet<u32>,
    /// Ended threads whose number is in use again, and their counts.
    replaced: Vec<(u32, Thread)>,
    /// CPUs that at least one of the threads may use.
    pub(crate) allowed: CpuList,
    /// How long the last reading of all threads took.
    cost: Duration,
}

/// The pause between two readings is this many times as long as a reading, which keeps the cost
/// below 0.2 % of a CPU.
const PAUSE: u32 = 500;
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

impl Threads {
    /// Reads the threads for the first time.
    pub(crate) fn find(host: &dyn Host, target: Target) -> Result<Threads, WakeError> {
        let mut threads = Threads {
            target,
            known: BTreeMap::new(),
            alive: BTreeSet::new(),
            replaced: Vec::new(),
            allowed: CpuList::new(),
            cost: Duration::ZERO,
        };
        let processes = threads.processes(host)?;
        threads.add(host, &processes, true);
        match &threads.target {
            Target::Process(pid) if threads.alive.is_empty() => Err(WakeError::NoProcess(*pid, host.name())),
            Target::Group(name) if threads.alive.is_empty() => Err(WakeError::EmptyGroup(name.clone())),
            _ => Ok(threads),
        }
    }

    /// Reads the threads again. Returns whether any thread is left.
    pub(crate) fn look(&mut self, host: &dyn Host) -> bool {
        let processes = self.processes(host).unwrap_or_default();
        self.add(host, &processes, false);
        !self.alive.is_empty()
    }

    /// Returns how long to wait before the next reading.
    pub(crate) fn pause(&self) -> Duration {
        (self.cost * PAUSE).max(SHORTEST_PAUSE)
    }

    pub(crate) fn count(&self) -> usize {
        self.known.len() + self.replaced.len()
    }

    pub(crate) fn has(&self, tid: u32) -> bool {
        self.known.contains_key(&tid)
    }

    /// Returns the number of threads that ended. Their wake-ups after the last reading are not
    /// known.
    pub(crate) fn ended(&self) -> usize {
        self.count() - self.alive.len()
    }

    /// Returns what each thread did since the first reading, most wake-ups first.
    pub(crate) fn woken(&self) -> Vec<Woken> {
        let known = self.known.iter().map(|(tid, thread)| (*tid, thread));
        let all = known.chain(self.replaced.iter().map(|(tid, thread)| (*tid, thread)));
        let mut woken: Vec<Woken> = all
            .map(|(tid, Thread { name, first, last })| Woken {
                tid,
                name: name.clone(),
                wakes: last.voluntary.saturating_sub(first.voluntary),
                preempted: last.involuntary.saturating_sub(first.involuntary),
                times: last
                    .times
                    .zip(first.times)
                    .map(|(now, then)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))),
            })
            .collect();
        woken.sort_by(|one, other| other.wakes.cmp(&one.wakes).then(one.tid.cmp(&other.tid)));
        woken
    }

    /// Returns the processes of the workload and their descendants.
    fn processes(&self, host: &dyn Host) -> Result<Vec<u32>, WakeError> {
        match &self.target {
            Target::Cpus => Ok(Vec::new()),
            Target::Process(pid) | Target::Command(pid) => Ok(family(host, *pid)),
            Target::Group(name) => {
                let root = ["", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                    .iter()
                    .map(|root| format!("{root}/{}", name.trim_start_matches('/')))
                    .find(|path| {
                        path.starts_with("/sys/fs/cgroup") && host.exists(&format!("{path}/cgroup.procs"))
                    })
                    .ok_or_else(|| WakeError::NoGroup(name.clone()))?;
                Ok(members(host, root))
            }
        }
    }

    fn add(&mut self, host: &dyn Host, processes: &[u32], is_first: bool) {
        let started = flyball_process::thread_time();
        self.alive.clear();
        // The counters of a just-started command, and of a thread that is new since the first
        // reading, began at 0 (copy_process() in kernel/fork.c).
        let has_past = is_first && !matches!(self.target, Target::Command(_));
        for pid in processes {
            for tid in host.list(&format!("/proc/{pid}/task")).unwrap_or_default() {
                let Ok(tid) = tid.parse::<u32>() else { continue };
                let Some((name, counts, allowed, is_alive)) = read(host, *pid, tid) else { continue };
                self.allowed.add(&allowed);
                if is_alive {
                    self.alive.insert(tid);
                }
                match self.known.get_mut(&tid) {
                    Some(thread) if counts.voluntary >= thread.last.voluntary => thread.last = counts,
                    known => {
                        let is_reused = known.is_some();
                        let first = if has_past {
                            counts
                        } else {
                            Counts { times: counts.times.map(|_| (0, 0)), ..Counts::default() }
                        };
                        let old = self.known.insert(tid, Thread { name, first, last: counts });
                        if is_reused {
                            self.replaced.extend(old.map(|thread| (tid, thread)));
                        }
                    }
                }
            }
        }
        self.cost = flyball_process::thread_time().saturating_sub(started);
    }
}

/// Returns a process and its descendants. Without CONFIG_PROC_CHILDREN, only the process itself.
fn family(host: &dyn Host, pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for tid in host.list(&format!("/proc/{pid}/task")).unwrap_or_default() {
            let children = host.read(&format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|word| word.parse().ok()) {
                if !found.contains(&child) {
                    found.push(child);
                }
            }
        }
    }
    found
}

/// The processes of a control group and of the groups below it.
fn members(host: &dyn Host, root: String) -> Vec<u32> {
    let mut groups = vec![root];
    let mut found = Vec::new();
    while let Some(group) = groups.pop() {
        let text = host.read(&format!("{group}/cgroup.procs")).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
        let names = host.list(&group).unwrap_or_default();
        let below = names.iter().map(|name| format!("{group}/{name}"));
        groups.extend(below.filter(|path| host.exists(&format!("{path}/cgroup.procs"))));
    }
    found
}

/// Reads a thread's name, counters and CPUs, and whether it is alive: an ended thread keeps its
/// counters until its parent reaps it. `None` if it is gone.
fn read(host: &dyn Host, pid: u32, tid: u32) -> Option<(String, Counts, CpuList, bool)> {
    let file = |name: &str| format!("/proc/{pid}/task/{tid}/{name}");
    let status = host.read(&file("status")).ok()?;
    let field =
        |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()));
    // proc_pid_schedstat() in fs/proc/base.c: time on a CPU, time ready, number of times scheduled.
    let times = host.read(&file("schedstat")).ok().and_then(|text| {
        let mut words = text.split_whitespace().map(|word| word.parse().ok());
        Some((words.next()??, words.next()??))
    });
    let counts = Counts {
        voluntary: field("voluntary_ctxt_switches")?.parse().ok()?,
        involuntary: field("nonvoluntary_ctxt_switches")?.parse().ok()?,
        times,
    };
    let allowed = field("Cpus_allowed_list").and_then(|list| list.parse().ok()).unwrap_or_default();
    let is_alive = !field("State").is_some_and(|state| state.starts_with(['Z', 'X']));
    Some((field("Name").unwrap_or("?").to_owned(), counts, allowed, is_alive))
}
