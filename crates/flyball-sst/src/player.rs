//! A Speed Select machine in memory: drivers, firmware and the files beside them, for tests.
//!
//! It plays either interface over the same state, refuses what the firmware of the lab's machines refuses, and can
//! be told to fail at any change, so that undoing is tested at every point. What it plays is made up; the numbers
//! of [`Player::guide`] are those of the machine in the kernel's Speed Select guide.

mod calls;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use flyball_host::{Errno, Host, HostError, Kind, Op};

/// One performance level.
#[derive(Debug, Clone)]
pub struct PlayedLevel {
    /// Cores that run.
    pub cores: u64,
    /// Base ratios: SSE, AVX2, AVX-512, AMX.
    pub base: [u8; 4],
    /// Watts.
    pub tdp: u16,
    /// Degrees Celsius.
    pub tjunction: u8,
    /// Turbo ratios of SSE, AVX2, AVX-512 by bucket.
    pub trl: [[u8; 8]; 3],
    /// SST-BF: high and low ratio, cores, temperature.
    pub base_freq: Option<(u8, u8, u64, u8)>,
    /// SST-TF: cores of the buckets, ratios by kind and bucket, clip ratios.
    pub turbo_freq: Option<([u8; 8], [[u8; 8]; 3], [u8; 3])>,
}

/// A power domain's changeable state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The level in force.
    pub level: u8,
    /// SST-BF on.
    pub base_freq: bool,
    /// SST-TF on.
    pub turbo_freq: bool,
    /// SST-CP on.
    pub core_power: bool,
    /// Classes count (mailbox: apart from SST-CP).
    pub qos: bool,
    /// Ordered priority.
    pub ordered: bool,
    /// Classes as the mailbox codes them: EPP, weight, min, max, desired.
    pub clos: [u32; 4],
    /// Class of each core.
    pub assoc: [u8; 64],
    /// MSR 0x1AD.
    pub trl: u64,
    /// Firmware refuses another level.
    pub locked: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub files: BTreeMap<String, String>,
    /// By package, then domain.
    pub states: BTreeMap<(u8, u8), State>,
    /// Changes made so far, and the one that fails.
    pub changes: usize,
    pub fail_at: Option<(usize, Errno)>,
    /// Every change that was asked for, in words.
    pub log: Vec<String>,
    /// Calls of the driver so far, and which of them fail.
    pub calls: usize,
    pub failing_calls: Option<(std::ops::Range<usize>, Errno)>,
    /// Calls that a real kernel would not have survived, or whose bits would have spilled into other fields.
    pub hazards: Vec<String>,
}

/// The machine.
pub struct Player {
    pub(crate) inner: Mutex<Inner>,
    /// 1, or 3 for TPMI.
    pub(crate) api: u16,
    pub(crate) levels: Vec<PlayedLevel>,
    pub(crate) packages: u8,
    /// TPMI: power domains without CPUs, after domain 0.
    pub(crate) io_domains: u8,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
    /// TPMI: cores from this one on are in a domain without registers.
    pub(crate) dead_from: u32,
}

/// The folder of CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

impl Player {
    /// Two packages of 14 cores with two threads: packages' first threads first, then their second ones.
    pub fn guide(tpmi: bool) -> Player {
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
        let level = |cores: u64, base: [u8; 4], bf: bool| PlayedLevel {
            cores,
            base: if tpmi { base } else { [base[0], base[1], base[2], 0] },
            tdp: 205,
            tjunction: 105,
            trl,
            base_freq: bf.then_some((30, 24, 0b10_0001_0110_0000, 125)),
            turbo_freq: Some(turbo),
        };
        let all = 0x3fff;
        Player::new(
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
    pub fn new(api: u16, (packages, cores, threads): (u8, u32, u32), levels: Vec<PlayedLevel>) -> Player {
        let mut files = BTreeMap::new();
        let per_package = cores;
        let total = per_package * u32::from(packages) * threads;
        let stride = per_package * u32::from(packages);
        files.insert(
            "/proc/cpuinfo".to_owned(),
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Played\nstepping\t: \
             8\nflags\t\t: fpu hwp\n\n"
                .to_owned(),
        );
        files.insert(format!("{CPUS}/online"), format!("0-{}", total - 1));
        files.insert(format!("{CPUS}/present"), format!("0-{}", total - 1));
        files.insert(format!("{CPUS}/possible"), format!("0-{}", total - 1));
        files.insert(format!("{CPUS}/intel_pstate/no_turbo"), "0".to_owned());
        files.insert("/sys/fs/cgroup/cgroup.controllers".to_owned(), "cpuset cpu io memory".to_owned());
        files.insert("/sys/fs/cgroup/cgroup.subtree_control".to_owned(), String::new());
        for package in 0..packages {
            let folder = format!("{CPUS}/intel_uncore_frequency/package_{package:02}_die_00");
            for (name, value) in [("min_freq_khz", "800000"), ("max_freq_khz", "2500000")] {
                files.insert(format!("{folder}/{name}"), value.to_owned());
            }
        }
        let groups = total.div_ceil(32) as usize;
        for cpu in 0..total {
            let folder = format!("{CPUS}/cpu{cpu}");
            let first = cpu % stride;
            let siblings =
                (0..threads).map(|thread| (first + thread * stride).to_string()).collect::<Vec<_>>();
            for (name, value) in [
                ("topology/physical_package_id", (first / per_package).to_string()),
                ("topology/die_id", "0".to_owned()),
                ("topology/core_id", (first % per_package).to_string()),
                ("topology/thread_siblings", vec!["00000000"; groups].join(",")),
                ("topology/thread_siblings_list", siblings.join(",")),
                ("cpufreq/scaling_min_freq", "800000".to_owned()),
                ("cpufreq/scaling_max_freq", "3200000".to_owned()),
                ("cpufreq/cpuinfo_min_freq", "800000".to_owned()),
                ("cpufreq/cpuinfo_max_freq", "3200000".to_owned()),
                ("cpufreq/base_frequency", "2600000".to_owned()),
            ] {
                files.insert(format!("{folder}/{name}"), value);
            }
            if cpu != 0 {
                files.insert(format!("{folder}/online"), "1".to_owned());
            }
        }
        let trl = u64::from_le_bytes(std::array::from_fn(|bucket| if bucket == 0 { 0x20 } else { 0x1f }));
        let state = State {
            level: 0,
            base_freq: false,
            turbo_freq: false,
            core_power: false,
            qos: false,
            ordered: false,
            clos: [0x00ff_0000; 4],
            assoc: [0; 64],
            trl,
            locked: false,
        };
        let states = (0..packages).map(|package| ((package, 0), state.clone())).collect();
        Player {
            inner: Mutex::new(Inner {
                files,
                states,
                changes: 0,
                fail_at: None,
                log: Vec::new(),
                calls: 0,
                failing_calls: None,
                hazards: Vec::new(),
            }),
            api,
            levels,
            packages,
            io_domains: 0,
            cores,
            threads,
            dead_from: u32::MAX,
        }
    }

    /// One package of 4 cores with two threads and three levels, the last without either feature.
    pub fn small(tpmi: bool) -> Player {
        let trl = [[32, 31, 30, 30, 30, 30, 30, 30]; 3];
        let turbo = ([1, 2, 0, 0, 0, 0, 0, 0], [[34, 33, 0, 0, 0, 0, 0, 0]; 3], [22, 20, 18]);
        let level = |cores: u64, ratio: u8, features: bool| PlayedLevel {
            cores,
            base: [ratio, ratio - 2, ratio - 4, 0],
            tdp: 150,
            tjunction: 100,
            trl,
            base_freq: features.then_some((ratio + 3, ratio - 2, 0b0101 & cores, 100)),
            turbo_freq: features.then_some(turbo),
        };
        let levels = vec![level(0xf, 24, true), level(0x7, 25, true), level(0x3, 27, false)];
        Player::new(if tpmi { 3 } else { 1 }, (1, 4, 2), levels)
    }

    /// The upper half of the cores is in a power domain that has no registers, as recorded Sierra Forests have them.
    #[must_use]
    pub fn with_dead_domain(mut self) -> Player {
        self.dead_from = self.cores / 2;
        self
    }

    /// Adds power domains without CPUs to every package (TPMI).
    #[must_use]
    pub fn with_io_domains(mut self, count: u8) -> Player {
        self.io_domains = count;
        {
            let mut inner = self.lock();
            for package in 0..self.packages {
                let state = inner.states[&(package, 0)].clone();
                for domain in 1..=count {
                    inner.states.insert((package, domain), state.clone());
                }
            }
        }
        self
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Changes the state of every domain.
    pub fn set(&self, change: impl Fn(&mut State)) {
        self.lock().states.values_mut().for_each(change);
    }

    /// The state of a domain.
    pub fn state(&self, package: u8, domain: u8) -> State {
        self.lock().states[&(package, domain)].clone()
    }

    /// Puts a file there.
    pub fn put(&self, path: &str, text: &str) {
        self.lock().files.insert(path.to_owned(), text.to_owned());
    }

    /// Everything that can be changed, to compare before and after.
    pub fn everything(&self) -> (BTreeMap<String, String>, BTreeMap<(u8, u8), State>) {
        let inner = self.lock();
        (inner.files.clone(), inner.states.clone())
    }

    /// Lets change number `at` (from now, counted from 0) fail.
    pub fn fail_at(&self, at: usize, errno: Errno) {
        let mut inner = self.lock();
        inner.changes = 0;
        inner.fail_at = Some((at, errno));
    }

    /// How many changes were asked for since the last [`Player::fail_at`].
    pub fn changes(&self) -> usize {
        self.lock().changes
    }

    /// Lets the driver's calls of these numbers (from now, counted from 0) fail, reading ones too.
    pub fn fail_calls(&self, numbers: std::ops::Range<usize>, errno: Errno) {
        let mut inner = self.lock();
        inner.calls = 0;
        inner.failing_calls = Some((numbers, errno));
    }

    /// How many calls were made since the last [`Player::fail_calls`].
    pub fn calls(&self) -> usize {
        self.lock().calls
    }

    /// Calls that a real kernel would not have survived, or not have kept within their fields.
    pub fn hazards(&self) -> Vec<String> {
        self.lock().hazards.clone()
    }

    /// Forgets the faults.
    pub fn heal(&self) {
        let mut inner = self.lock();
        (inner.fail_at, inner.failing_calls) = (None, None);
    }

    /// Takes the words of every change asked for so far.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }

    /// The CPU's package and core.
    pub(crate) fn place(&self, cpu: u32) -> Option<(u8, u32)> {
        let stride = self.cores * u32::from(self.packages);
        (cpu < stride * self.threads).then(|| ((cpu % stride / self.cores) as u8, cpu % stride % self.cores))
    }
}

impl Inner {
    /// Counts a change; the one to fail fails.
    pub(crate) fn change(&mut self, what: String) -> Result<(), Errno> {
        self.log.push(what);
        let number = self.changes;
        self.changes += 1;
        match self.fail_at {
            Some((at, errno)) if at == number => Err(errno),
            _ => Ok(()),
        }
    }

    fn is_offline(&self, path: &str) -> bool {
        path.strip_prefix(CPUS)
            .and_then(|rest| rest.strip_prefix("/cpu"))
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(cpu, _)| self.files.get(&format!("{CPUS}/cpu{cpu}/online")))
            .is_some_and(|online| online == "0")
    }
}

impl Host for Player {
    fn kind(&self) -> Kind {
        Kind::Simulated
    }

    fn name(&self) -> String {
        "player".to_owned()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let fail = |errno| HostError::new(Op::Read, path, errno);
        let inner = self.lock();
        if inner.is_offline(path) {
            if path.contains("/topology/") {
                return Err(fail(Errno::NOENT));
            }
            if path.contains("/cpufreq/") {
                return Err(fail(Errno::BUSY));
            }
        }
        let text = inner.files.get(path).ok_or_else(|| fail(Errno::NOENT))?;
        buffer.clear();
        buffer.extend_from_slice(text.as_bytes());
        buffer.push(b'\n');
        Ok(())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        let fail = |errno| HostError::new(Op::Write, path, errno);
        let mut inner = self.lock();
        if !inner.files.contains_key(path) {
            return Err(fail(Errno::NOENT));
        }
        inner.change(format!("{path} <- {text}")).map_err(fail)?;
        if inner.is_offline(path) && path.contains("/cpufreq/") {
            return Err(fail(Errno::BUSY));
        }
        let online = path.ends_with("/online") && path != format!("{CPUS}/online");
        let value = if path.ends_with("_freq") {
            text.parse::<u64>().map_err(|_| fail(Errno::INVAL))?.clamp(800_000, 3_200_000).to_string()
        } else if path.ends_with("/cgroup.subtree_control") {
            let now = inner.files.get(path).cloned().unwrap_or_default();
            let mut words: Vec<&str> = now.split_whitespace().collect();
            for word in text.split_whitespace() {
                words.retain(|known| *known != &word[1..]);
                if let Some(name) = word.strip_prefix('+') {
                    words.push(name);
                }
            }
            words.join(" ")
        } else {
            text
        };
        inner.files.insert(path.to_owned(), value);
        if online {
            let total = self.cores * u32::from(self.packages) * self.threads;
            let list: flyball_host::CpuList = (0..total)
                .filter(|cpu| {
                    inner.files.get(&format!("{CPUS}/cpu{cpu}/online")).is_none_or(|online| online == "1")
                })
                .collect();
            inner.files.insert(format!("{CPUS}/online"), list.to_string());
        }
        Ok(())
    }

    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        let mut inner = self.lock();
        inner.change(format!("mkdir {path}")).map_err(|errno| HostError::new(Op::Write, path, errno))?;
        for (name, value) in [("cpuset.cpus", ""), ("cpuset.cpus.partition", "member")] {
            inner.files.insert(format!("{path}/{name}"), value.to_owned());
        }
        Ok(())
    }

    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        let mut inner = self.lock();
        inner.change(format!("rmdir {path}")).map_err(|errno| HostError::new(Op::Write, path, errno))?;
        let prefix = format!("{path}/");
        inner.files.retain(|file, _| !file.starts_with(&prefix));
        Ok(())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let prefix = format!("{path}/");
        let inner = self.lock();
        let mut names: Vec<String> = inner
            .files
            .keys()
            .filter_map(|file| file.strip_prefix(&prefix)?.split('/').next().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Err(HostError::new(Op::List, path, Errno::NOENT)) } else { Ok(names) }
    }

    fn exists(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        let inner = self.lock();
        if path.contains("/topology") && inner.is_offline(&prefix) {
            return false;
        }
        inner.files.contains_key(path)
            || inner.files.range(prefix.clone()..).next().is_some_and(|(file, _)| file.starts_with(&prefix))
    }

    fn writable(&self, path: &str) -> bool {
        self.exists(path)
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        Err(HostError::new(Op::Link, path, Errno::NOENT))
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        Err(HostError::new(Op::ReadMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NODEV))
    }

    fn write_msr(&self, cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NODEV))
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        {
            let mut inner = self.lock();
            let call = inner.calls;
            inner.calls += 1;
            if let Some((_, errno)) = inner.failing_calls.as_ref().filter(|(calls, _)| calls.contains(&call))
            {
                return Err(HostError::new(Op::Isst, format!("ioctl {number:#x}"), *errno));
            }
        }
        self.note_hazard(number, argument);
        self.call(number, argument)
            .map_err(|errno| HostError::new(Op::Isst, format!("ioctl {number:#x}"), errno))
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}
}
