//! A Speed Select machine in memory: drivers, firmware and the files next to them, for tests.
//!
//! It offers both interfaces over one state, rejects what firmware rejects, and can fail at any
//! change or call on request, so that tests can check undoing at every point. Its values are made
//! up, except that [`FakeMachine::guide`] has the numbers of the machine in the kernel's Speed
//! Select guide (Documentation/admin-guide/pm/intel-speed-select.rst).
//!
//! Unlike the simulated machine of flyball-sim, it can fail calls by number, and it reports
//! hazardous calls.

mod calls;
mod files;
mod host;
mod mailbox;
mod tpmi;
mod wire;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use flyball_host::Errno;

/// SST-TF of a level: cores of the buckets, ratios by kind and bucket, clip ratios.
pub type TurboFreq = ([u8; 8], [[u8; 8]; 3], [u8; 3]);

/// One performance level.
#[derive(Debug, Clone)]
pub struct FakeLevel {
    /// Mask of the enabled cores.
    pub cores: u64,
    /// Base ratios: SSE, AVX2, AVX-512, AMX.
    pub base: [u8; 4],
    /// Design power, W.
    pub tdp: u16,
    pub tjunction: u8,
    /// Turbo ratios of SSE, AVX2, AVX-512 by bucket.
    pub trl: [[u8; 8]; 3],
    /// SST-BF: high and low ratio, cores, temperature.
    pub base_freq: Option<(u8, u8, u64, u8)>,
    /// SST-TF: cores of the buckets, ratios by kind and bucket, clip ratios.
    pub turbo_freq: Option<TurboFreq>,
}

/// A power domain's changeable state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "bits of registers, set one by one")]
pub struct State {
    /// The current level.
    pub level: u8,
    /// SST-BF on.
    pub base_freq: bool,
    /// SST-TF on.
    pub turbo_freq: bool,
    /// SST-CP on.
    pub core_power: bool,
    /// The processor has no SST-CP.
    pub lacks_core_power: bool,
    /// Classes have an effect. With the mailbox, this is separate from SST-CP.
    pub qos: bool,
    /// Priorities are ordered.
    pub ordered: bool,
    /// Classes in the mailbox format: EPP, weight, min, max, desired.
    pub clos: [u32; 4],
    /// Class of each core.
    pub assoc: [u8; 64],
    /// MSR 0x1AD.
    pub trl: u64,
    /// The firmware rejects a change of level.
    pub locked: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub files: BTreeMap<String, String>,
    /// By package, then domain.
    pub states: BTreeMap<(u8, u8), State>,
    /// Number of changes so far, and the one to fail.
    pub changes: usize,
    pub fail_at: Option<(usize, Errno)>,
    /// Description of every attempted change.
    pub log: Vec<String>,
    /// Number of driver calls so far, and those to fail.
    pub calls: usize,
    pub failing_calls: Option<(std::ops::Range<usize>, Errno)>,
    /// Calls that would crash a real kernel, or whose bits would spill into other fields.
    pub hazards: Vec<String>,
    /// The firmware accepts switches but ignores them.
    pub ignores_switches: bool,
}

pub struct FakeMachine {
    pub(crate) inner: Mutex<Inner>,
    /// 1, or 3 for TPMI.
    pub(crate) api: u16,
    pub(crate) levels: Vec<FakeLevel>,
    pub(crate) packages: u8,
    /// TPMI: number of power domains without CPUs, after domain 0.
    pub(crate) io_domains: u8,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
    /// TPMI: the first core of those in a domain without registers.
    pub(crate) dead_from: u32,
    /// Mailbox: classes of service use the mailbox, and there is no MMIO driver.
    pub(crate) classes_in_mailbox: bool,
}

impl FakeMachine {
    /// Two packages of 14 cores with two threads. The first threads of both packages come first,
    /// then the second threads.
    pub fn guide(tpmi: bool) -> FakeMachine {
        let trl = [
            [32, 31, 31, 31, 31, 31, 31, 31],
            [31, 30, 30, 30, 30, 30, 30, 30],
            [30, 29, 29, 29, 29, 29, 29, 29],
        ];
        let turbo = (
            [2, 4, 6, 0, 0, 0, 0, 0],
            [[32, 31, 31, 0, 0, 0, 0, 0], [32, 30, 30, 0, 0, 0, 0, 0], [31, 29, 29, 0, 0, 0, 0, 0]],
            [26, 24, 21],
        );
        let level = |cores: u64, base: [u8; 4], bf: bool| FakeLevel {
            cores,
            base: if tpmi { base } else { [base[0], base[1], base[2], 0] },
            tdp: 205,
            tjunction: 105,
            trl,
            base_freq: bf.then_some((30, 24, 0b10_0001_0110_0000, 125)),
            turbo_freq: Some(turbo),
        };
        let all = 0x3fff;
        FakeMachine::new(
            if tpmi { 3 } else { 1 },
            (2, 14, 2),
            vec![
                level(all, [26, 24, 21, 17], true),
                level(0x1fff, [26, 24, 21, 17], true),
                level(0x0fff, [27, 25, 22, 18], false),
                level(0x07ff, [27, 25, 22, 18], false),
                level(0x0faf, [28, 26, 23, 19], false),
            ],
        )
    }

    /// A machine of `(packages, cores, threads)` with these levels; API 1 or 3.
    pub fn new(api: u16, (packages, cores, threads): (u8, u32, u32), levels: Vec<FakeLevel>) -> FakeMachine {
        let files = files::initial(packages, cores, threads);
        // One ratio per byte, that for the fewest cores first: 3.2 GHz, then 3.1.
        let trl = u64::from_le_bytes(std::array::from_fn(|bucket| if bucket == 0 { 0x20 } else { 0x1f }));
        let state = State {
            level: 0,
            base_freq: false,
            turbo_freq: false,
            core_power: false,
            lacks_core_power: false,
            qos: false,
            ordered: false,
            // No minimum and the highest maximum, so all classes are alike.
            clos: [0x00ff_0000; 4],
            assoc: [0; 64],
            trl,
            locked: false,
        };
        let states = (0..packages).map(|package| ((package, 0), state.clone())).collect();
        FakeMachine {
            inner: Mutex::new(Inner {
                files,
                states,
                changes: 0,
                fail_at: None,
                log: Vec::new(),
                calls: 0,
                failing_calls: None,
                hazards: Vec::new(),
                ignores_switches: false,
            }),
            api,
            levels,
            packages,
            io_domains: 0,
            cores,
            threads,
            dead_from: u32::MAX,
            classes_in_mailbox: false,
        }
    }

    /// One package of 4 cores with two threads, and three levels. The last level has neither SST-BF
    /// nor SST-TF.
    pub fn small(tpmi: bool) -> FakeMachine {
        let trl = [[32, 31, 30, 30, 30, 30, 30, 30]; 3];
        let turbo = ([1, 2, 0, 0, 0, 0, 0, 0], [[34, 33, 0, 0, 0, 0, 0, 0]; 3], [22, 20, 18]);
        let level = |cores: u64, ratio: u8, features: bool| FakeLevel {
            cores,
            base: [ratio, ratio - 2, ratio - 4, 0],
            tdp: 150,
            tjunction: 100,
            trl,
            base_freq: features.then_some((ratio + 3, ratio - 2, 0b0101 & cores, 100)),
            turbo_freq: features.then_some(turbo),
        };
        let levels = vec![level(0xf, 24, true), level(0x7, 25, true), level(0x3, 27, false)];
        FakeMachine::new(if tpmi { 3 } else { 1 }, (1, 4, 2), levels)
    }

    /// Puts the upper half of the cores into a power domain without registers, like on recorded
    /// Sierra Forests.
    #[must_use]
    pub fn with_dead_domain(mut self) -> FakeMachine {
        self.dead_from = self.cores / 2;
        self
    }

    /// Makes it a Skylake server, whose classes of service are in the mailbox.
    #[must_use]
    pub fn as_skylake(mut self) -> FakeMachine {
        self.classes_in_mailbox = true;
        let cpuinfo = self.lock().files["/proc/cpuinfo"].replace("model\t\t: 143", "model\t\t: 85");
        self.put("/proc/cpuinfo", &cpuinfo);
        self
    }

    /// Adds power domains without CPUs to every package (TPMI).
    #[must_use]
    pub fn with_io_domains(mut self, count: u8) -> FakeMachine {
        self.io_domains = count;
        {
            let mut inner = self.lock();
            for package in 0..self.packages {
                let state = inner.states[&(package, 0)].clone();
                for domain in 1..=count {
                    // They follow levels and switches like the first domain, but have no cores.
                    inner.states.insert((package, domain), state.clone());
                }
            }
        }
        self
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // If a failed assertion poisoned the lock, a second panic would hide the first.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Changes the state of every domain.
    pub fn set(&self, change: impl Fn(&mut State)) {
        self.lock().states.values_mut().for_each(change);
    }

    pub fn state(&self, package: u8, domain: u8) -> State {
        self.lock().states[&(package, domain)].clone()
    }

    /// Adds or replaces a file.
    pub fn put(&self, path: &str, text: &str) {
        self.lock().files.insert(path.to_owned(), text.to_owned());
    }

    /// Everything that can be changed, to compare before and after.
    pub fn everything(&self) -> (BTreeMap<String, String>, BTreeMap<(u8, u8), State>) {
        let inner = self.lock();
        (inner.files.clone(), inner.states.clone())
    }

    /// Makes change number `at` fail, counted from 0 from now on.
    pub fn fail_at(&self, at: usize, errno: Errno) {
        let mut inner = self.lock();
        // Counting starts here, so that a test can prepare the machine first.
        inner.changes = 0;
        inner.fail_at = Some((at, errno));
    }

    /// Sets whether the firmware accepts switches of SST-CP, SST-BF and SST-TF but ignores them
    /// (TPMI).
    pub fn ignore_switches(&self, ignores: bool) {
        self.lock().ignores_switches = ignores;
    }

    /// Returns the number of attempted changes since the last [`FakeMachine::fail_at`].
    pub fn changes(&self) -> usize {
        self.lock().changes
    }

    /// Makes driver calls with these numbers fail, counted from 0 from now on. Includes reading
    /// calls.
    pub fn fail_calls(&self, numbers: std::ops::Range<usize>, errno: Errno) {
        let mut inner = self.lock();
        inner.calls = 0;
        inner.failing_calls = Some((numbers, errno));
    }

    /// Returns the number of calls since the last [`FakeMachine::fail_calls`].
    pub fn calls(&self) -> usize {
        self.lock().calls
    }

    /// Returns calls that would crash a real kernel, or whose bits would spill into other fields.
    pub fn hazards(&self) -> Vec<String> {
        self.lock().hazards.clone()
    }

    /// Stops failing.
    pub fn heal(&self) {
        let mut inner = self.lock();
        (inner.fail_at, inner.failing_calls) = (None, None);
    }

    /// Takes the descriptions of all changes attempted so far.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }

    pub(crate) fn place(&self, cpu: u32) -> Option<(u8, u32)> {
        let stride = self.cores * u32::from(self.packages);
        (cpu < stride * self.threads).then(|| ((cpu % stride / self.cores) as u8, cpu % stride % self.cores))
    }
}
