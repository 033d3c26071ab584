//! The numbers of one task: requests made while it ran.

use std::collections::HashMap;

use crate::comm::Comm;

use super::range::{LoadMeter, Range, WholeMeter};

/// One task. A request is attributed to the task that ran on the CPU when the driver made it.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct TaskReport {
    /// The task's number; 0 is every CPU's idle task, -1 all tasks beyond the limit.
    pub pid: i32,
    /// The task's name at its last record.
    pub name: Comm,
    /// Requests or samples that were made while it ran.
    pub samples: u64,
    /// Desired performance, or the requested P-state.
    pub des_perf: Option<Range>,
    /// Frequency, GHz.
    pub ghz: Option<Range>,
    /// Load of its CPU, percent.
    pub load: Option<Range>,
}

#[derive(Debug, Clone, Default)]
struct TaskMeter {
    name: Comm,
    samples: u64,
    /// Number of samples without a desired performance: requests of active mode.
    unasked: u64,
    des: WholeMeter,
    khz: WholeMeter,
    load: LoadMeter,
}

/// Number of tasks that are found without the map: every record needs a lookup, mostly of few
/// tasks.
const RECENT: usize = 256;

/// Sums up all tasks of a trace, up to a limit: text can contain any number of them.
#[derive(Debug, Clone)]
pub(super) struct TaskMeters {
    /// Index in `meters` by task number.
    places: HashMap<i32, u32>,
    meters: Vec<(i32, TaskMeter)>,
    /// Index of the last task with these low bits of its number.
    recent: [u32; RECENT],
    rest: TaskMeter,
}

impl Default for TaskMeters {
    fn default() -> TaskMeters {
        TaskMeters {
            places: HashMap::new(),
            meters: Vec::new(),
            recent: [u32::MAX; RECENT],
            rest: TaskMeter::default(),
        }
    }
}

// PID_MAX_DEFAULT of include/linux/threads.h.
const MAX_TASKS: usize = 32_768;

impl TaskMeters {
    #[inline]
    fn meter(&mut self, pid: i32) -> &mut TaskMeter {
        // Negative numbers are damage; the cast gives them some slot.
        let slot = pid as usize % RECENT;
        let place = self.recent[slot] as usize;
        if self.meters.get(place).is_some_and(|(known, _)| *known == pid) {
            return &mut self.meters[place].1;
        }
        self.search(pid, slot)
    }

    #[cold]
    fn search(&mut self, pid: i32, slot: usize) -> &mut TaskMeter {
        let next = self.meters.len();
        let place = match self.places.get(&pid) {
            Some(place) => *place as usize,
            None if next >= MAX_TASKS => return &mut self.rest,
            None => {
                self.places.insert(pid, next as u32);
                self.meters.push((pid, TaskMeter::default()));
                next
            }
        };
        self.recent[slot] = place as u32;
        &mut self.meters[place].1
    }

    /// Adds a request made while the task ran: the requested level, and frequency and load if the
    /// record's counters cover only time of the trace.
    #[inline]
    pub(super) fn add(&mut self, pid: i32, name: Comm, des: Option<u32>, counted: Option<(u64, f64)>) {
        let task = self.meter(pid);
        // The latest name, because execve() renames a task soon after its start.
        task.name = name;
        task.samples += 1;
        match des {
            Some(des) => task.des.add(u64::from(des)),
            None => task.unasked += 1,
        }
        if let Some((khz, load)) = counted.filter(|(_, load)| !load.is_nan()) {
            task.khz.add(khz);
            task.load.add(load);
        }
    }

    /// All tasks, those with the most samples first.
    pub(super) fn report(&self) -> Vec<TaskReport> {
        let one = |pid: i32, task: &TaskMeter| TaskReport {
            pid,
            name: task.name,
            samples: task.samples,
            des_perf: task.des.range(task.samples - task.unasked, 1.0),
            ghz: task.khz.range(task.load.count(), 1e6),
            load: task.load.range(),
        };
        let mut reports: Vec<TaskReport> = self.meters.iter().map(|(pid, task)| one(*pid, task)).collect();
        if self.rest.samples > 0 {
            reports.push(TaskReport { name: Comm::new(b"(all others)"), ..one(-1, &self.rest) });
        }
        reports.sort_by(|a, b| b.samples.cmp(&a.samples).then(a.pid.cmp(&b.pid)));
        reports
    }
}
