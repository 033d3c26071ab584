//! The numbers of one task: what was asked for while it ran.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::record::Comm;

use super::cpu::{Range, RangeMeter};

/// One task. A request is booked on the task that ran on the CPU when the driver made it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TaskReport {
    /// The task's number; 0 is every CPU's idle task, -1 all tasks beyond the number that is kept.
    pub pid: i32,
    /// Its name, as it was at its last record.
    pub name: Comm,
    /// Requests or samples that were made while it ran.
    pub samples: u64,
    /// Desired performance, or the P-state asked for.
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
    des: RangeMeter,
    ghz: RangeMeter,
    load: RangeMeter,
}

/// Spreads task numbers; they are no attack, and there is one look-up for every record.
#[derive(Debug, Clone, Default)]
pub(super) struct PidHasher(u64);

impl Hasher for PidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_i32(&mut self, value: i32) {
        self.0 = u64::from(value as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// All tasks of a trace, up to a number: text can name any number of them.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskMeters {
    tasks: HashMap<i32, TaskMeter, BuildHasherDefault<PidHasher>>,
    rest: TaskMeter,
}

const MOST_TASKS: usize = 32_768;

impl TaskMeters {
    #[inline]
    pub(super) fn add(&mut self, pid: i32, name: Comm, des: Option<u32>, khz: u64, mperf: u64, tsc: u64) {
        let task = if self.tasks.len() < MOST_TASKS || self.tasks.contains_key(&pid) {
            self.tasks.entry(pid).or_default()
        } else {
            &mut self.rest
        };
        task.name = name;
        task.samples += 1;
        if let Some(des) = des {
            task.des.add(f64::from(des));
        }
        if tsc > 0 {
            task.ghz.add(khz as f64 / 1e6);
            task.load.add(mperf as f64 * 100.0 / tsc as f64);
        }
    }

    /// All tasks, those with the most samples first.
    pub(super) fn report(&self) -> Vec<TaskReport> {
        let one = |pid: i32, task: &TaskMeter| TaskReport {
            pid,
            name: task.name,
            samples: task.samples,
            des_perf: task.des.range(),
            ghz: task.ghz.range(),
            load: task.load.range(),
        };
        let mut reports: Vec<TaskReport> = self.tasks.iter().map(|(pid, task)| one(*pid, task)).collect();
        if self.rest.samples > 0 {
            reports.push(TaskReport { name: Comm::new(b"(all others)"), ..one(-1, &self.rest) });
        }
        reports.sort_by(|a, b| b.samples.cmp(&a.samples).then(a.pid.cmp(&b.pid)));
        reports
    }
}
