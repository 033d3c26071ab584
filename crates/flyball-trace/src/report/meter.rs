//! Buffers the requests of each CPU, to add several at once to its sums.

use crate::{
    clock::Clock,
    events::{AmdEpp, AmdPerf, AmdRequest, IntelSample},
};

use super::{
    cpu::{CpuReport, CpuSums, Request},
    range::load,
};

/// Number of a CPU's requests to add at once, while its sums are in the core's first-level cache.
/// With hundreds of CPUs in turn, each single request would fetch them from memory.
const TOGETHER: usize = 16;

/// A buffered request, in half a cache line. With 256 CPUs, the buffers must leave room in the
/// core's second-level cache for the text and the records of a chunk.
#[derive(Debug, Clone, Copy, Default)]
struct PendingRequest {
    time: u64,
    khz: u32,
    mperf: u32,
    tsc: u32,
    min: u16,
    des: u16,
    max: u16,
    fast: bool,
    changed: Option<bool>,
}

impl PendingRequest {
    /// Returns `None` if a number does not fit. Counters of 32 bits suffice for more than a second
    /// between two requests.
    #[inline]
    fn new(time: u64, event: &AmdPerf) -> Option<PendingRequest> {
        let AmdPerf { min, des, max, khz, mperf, tsc, changed, fast_switch: fast, .. } = *event;
        // One test for three numbers: the union has any bit that does not fit.
        if (mperf | tsc | khz) >> 32 != 0 || (min | des | max) >> 16 != 0 {
            return None;
        }
        let (khz, mperf, tsc) = (khz as u32, mperf as u32, tsc as u32);
        let (min, des, max) = (min as u16, des as u16, max as u16);
        Some(PendingRequest { time, khz, mperf, tsc, min, des, max, fast, changed })
    }

    #[inline]
    fn request(&self) -> Request {
        let (mperf, tsc) = (u64::from(self.mperf), u64::from(self.tsc));
        Request {
            time: self.time,
            khz: u64::from(self.khz),
            mperf,
            tsc,
            load: load(mperf, tsc),
            min: u32::from(self.min),
            des: u32::from(self.des),
            max: u32::from(self.max),
            changed: self.changed,
            fast: self.fast,
        }
    }
}

impl Request {
    fn new(time: u64, event: &AmdPerf, load: f64) -> Request {
        let AmdPerf { min, des, max, khz, mperf, tsc, changed, fast_switch: fast, .. } = *event;
        Request { time, khz, mperf, tsc, load, min, des, max, changed, fast }
    }
}

/// One CPU. Only two words that each request needs are here, adjacent for all CPUs; other data is
/// elsewhere.
#[derive(Debug, Default)]
pub(super) struct CpuMeter {
    /// Number of buffered requests. A separate word: a load that also covered `known`, which was
    /// just written, would wait for that store to reach the cache.
    waiting: u32,
    /// True if the CPU has had a request or sample.
    known: bool,
    numbers: Box<Numbers>,
}

#[derive(Debug, Clone, Default)]
struct Numbers {
    waiting: [PendingRequest; TOGETHER],
    sums: CpuSums,
}

impl Numbers {
    /// Adds the first `count` buffered requests.
    fn settle(&mut self, count: usize) {
        if count > 0 {
            self.sums.requests(self.waiting[..count.min(TOGETHER)].iter().map(PendingRequest::request));
        }
    }
}

impl CpuMeter {
    /// Adds a request with its load. Returns `false` for the CPU's first, whose counters cover time
    /// before the trace (since boot, after a change of driver); the kernel's tracers skip it too.
    #[inline]
    pub(super) fn amd(&mut self, time: u64, event: &AmdPerf, load: f64) -> bool {
        let known = std::mem::replace(&mut self.known, true);
        match PendingRequest::new(time, event) {
            Some(waiting) => {
                // The remainder changes nothing, but saves the bounds check.
                self.numbers.waiting[self.waiting as usize % TOGETHER] = waiting;
                self.waiting += 1;
                if self.waiting as usize >= TOGETHER {
                    self.settle();
                }
            }
            // After the buffered requests, because the sums need chronological order.
            None => self.settle().requests(std::iter::once(Request::new(time, event, load))),
        }
        known
    }

    /// Adds the buffered requests, and returns the sums, for adding something later.
    fn settle(&mut self) -> &mut CpuSums {
        self.numbers.settle(std::mem::take(&mut self.waiting) as usize);
        &mut self.numbers.sums
    }

    /// Adds a request of a kernel that reports no counters.
    pub(super) fn amd_request(&mut self, time: u64, event: &AmdRequest) {
        self.known = true;
        self.settle().request_alone(time, event);
    }

    pub(super) fn amd_epp(&mut self, time: u64, event: &AmdEpp) {
        // Without adding the buffered ones first: requests of active mode have separate sums.
        self.numbers.sums.amd_epp(time, event);
    }

    /// Adds a sample with its load, like [`CpuMeter::amd`].
    pub(super) fn intel(&mut self, time: u64, event: &IntelSample, load: f64) -> bool {
        self.known = true;
        self.settle().intel(time, event, load)
    }

    pub(super) fn lost(&mut self) {
        // Buffered requests came before the loss.
        self.settle().lost();
    }

    /// The sums, for events whose order relative to requests does not matter.
    pub(super) fn sums(&mut self) -> &mut CpuSums {
        &mut self.numbers.sums
    }

    /// Returns the numbers of a trace that ends at `end`.
    pub(super) fn report(&self, cpu: u32, clock: Clock, end: u64) -> CpuReport {
        // Cloned, so that a report can be made in the middle of a trace.
        let mut numbers = self.numbers.clone();
        numbers.settle(self.waiting as usize);
        numbers.sums.report(cpu, clock, end)
    }
}
