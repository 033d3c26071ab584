//! Windows of a trace: the requests and their results for each CPU and some milliseconds.

use crate::record::MAX_CPUS;

/// One CPU in one window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    pub(super) count: u32,
    // Sums of 32 bits keep a window at 36 bytes; judging needs only percents.
    des: f32,
    min: f32,
    max: f32,
    ghz: f32,
    mperf: f32,
    aperf: f32,
    tsc: f32,
    /// Number of reversals of the request, from up to down or back.
    pub(super) turns: u32,
}

impl Window {
    #[expect(clippy::too_many_arguments, reason = "the fields of one sample, in the order of the event")]
    pub(super) fn add(&mut self, des: u32, min: u32, max: u32, khz: u64, mperf: u64, aperf: u64, tsc: u64) {
        self.count += 1;
        self.des += des as f32;
        self.min += min as f32;
        self.max += max as f32;
        self.ghz += khz as f32 / 1e6;
        self.mperf += mperf as f32;
        self.aperf += aperf as f32;
        self.tsc += tsc as f32;
    }

    fn merge(&mut self, other: &Window) {
        if other.count == 0 {
            return;
        }
        self.count += other.count;
        self.des += other.des;
        self.min += other.min;
        self.max += other.max;
        self.ghz += other.ghz;
        self.mperf += other.mperf;
        self.aperf += other.aperf;
        self.tsc += other.tsc;
        self.turns += other.turns;
    }

    fn mean(&self, sum: f32) -> f64 {
        f64::from(sum) / f64::from(self.count.max(1))
    }

    pub(super) fn des(&self) -> f64 {
        self.mean(self.des)
    }

    pub(super) fn min(&self) -> f64 {
        self.mean(self.min)
    }

    pub(super) fn max(&self) -> f64 {
        self.mean(self.max)
    }

    pub(super) fn ghz(&self) -> f64 {
        self.mean(self.ghz)
    }

    /// Share of time in C0.
    pub(super) fn load(&self) -> f64 {
        if self.tsc > 0.0 { f64::from(self.mperf) / f64::from(self.tsc) } else { 0.0 }
    }

    /// Frequency over nominal frequency.
    pub(super) fn boost(&self) -> f64 {
        if self.mperf > 0.0 { f64::from(self.aperf) / f64::from(self.mperf) } else { 0.0 }
    }
}

/// The direction of a CPU's request, kept across windows.
#[derive(Debug, Clone, Copy, Default)]
struct Course {
    des: Option<u32>,
    rising: Option<bool>,
}

impl Course {
    /// Returns whether the request reverses here. Only steps of at least a tenth of the level
    /// count, because small steps are a governor's usual work.
    fn turns(&mut self, des: u32) -> bool {
        let Some(before) = self.des.replace(des) else { return false };
        // schedutil follows utilisation with a quarter of headroom, so nearly every tick brings a
        // small step.
        let step = u64::from(des.abs_diff(before));
        if step * 10 < u64::from(des.max(before)) || step == 0 {
            return false;
        }
        let rising = des > before;
        self.rising.replace(rising).is_some_and(|before| before != rising)
    }
}

/// Windows of all CPUs, with one common width.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) width: u64,
    pub(super) start: u64,
    pub(super) cpus: Vec<Vec<Window>>,
    courses: Vec<Course>,
    used: usize,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { width: 10_000_000, start: 0, cpus: Vec::new(), courses: Vec::new(), used: 0 }
    }
}

/// Maximum number of windows over all CPUs: 512 Ki of 36 bytes.
const MAX: usize = 512 * 1024;

impl Windows {
    pub(super) fn add(&mut self, start: u64, time: u64, cpu: u32, des: u32, add: impl FnOnce(&mut Window)) {
        if cpu >= MAX_CPUS {
            return;
        }
        self.start = start;
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, Vec::new);
            self.courses.resize_with(cpu + 1, Course::default);
        }
        let mut at = (time.saturating_sub(start) / self.width) as usize;
        // Widen for all CPUs at once, so that the windows of two CPUs can be compared.
        while at >= MAX || self.used + (at + 1).saturating_sub(self.cpus[cpu].len()) > MAX {
            self.widen();
            at = (time.saturating_sub(start) / self.width) as usize;
            // A damaged time, centuries away.
            if self.width > 1 << 60 {
                return;
            }
        }
        let windows = &mut self.cpus[cpu];
        if windows.len() <= at {
            self.used += at + 1 - windows.len();
            windows.resize(at + 1, Window::default());
        }
        windows[at].turns += u32::from(self.courses[cpu].turns(des));
        add(&mut windows[at]);
    }

    fn widen(&mut self) {
        self.width *= 2;
        self.used = 0;
        for windows in &mut self.cpus {
            let merged = windows
                // Join pairs from the start, so that window n becomes n / 2 for every CPU, whatever
                // its number of windows.
                .chunks(2)
                .map(|pair| {
                    let mut window = pair[0];
                    if let Some(second) = pair.get(1) {
                        window.merge(second);
                    }
                    window
                })
                .collect::<Vec<_>>();
            *windows = merged;
            self.used += windows.len();
        }
    }

    /// Start of a window, nanoseconds.
    pub(super) fn time(&self, at: usize) -> u64 {
        self.start.saturating_add(at as u64 * self.width)
    }
}
