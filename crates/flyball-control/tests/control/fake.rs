//! A small kernel in memory. Its attribute files are coupled as cpufreq, amd-pstate and
//! intel_pstate couple them. It can fail at any write and die at any moment.
//!
//! It does not simulate a processor. It has just enough of the kernel's behaviour to make a
//! careless apply or restore go wrong. Its rules come from the drivers' sources and from the
//! answers of real kernels in guests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Mutex,
    time::Duration,
};

use flyball_host::{CpuList, Errno, Host, HostError, Kind, Op};

pub(crate) const CPU: &str = "/sys/devices/system/cpu";
const IRQ: &str = "/proc/irq";
const HW_MIN: u64 = 400_000;
const HW_BASE: u64 = 3_300_000;
const HW_TURBO: u64 = 4_600_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    AmdPstate,
    IntelPstate,
    AcpiCpufreq,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Policy {
    cpus: Vec<usize>,
    /// True if it exists. A driver creates policies for online CPUs, and removes all of its
    /// policies when it is switched off.
    exists: bool,
    governor: String,
    epp: u8,
    /// Preference that intel_pstate keeps while `performance` is in force.
    saved_epp: Option<u8>,
    min: Option<u64>,
    max: Option<u64>,
    boost: bool,
    speed: u64,
    /// The limits that the kernel's worker saw last, and the number of reads until it runs again.
    seen: (u64, u64),
    lag: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    driver: Driver,
    mode: String,
    turbo: bool,
    policies: Vec<Policy>,
    online: Vec<bool>,
    bias: Vec<u8>,
    latency: Vec<String>,
    disabled: Vec<[bool; 3]>,
    /// Tunables of governors that are in use.
    tunables: BTreeMap<String, u64>,
    uncore: (u64, u64),
    pct: (u64, u64),
    /// The CPUs that each interrupt may use.
    irqs: Vec<CpuList>,
    /// True if a policy was removed whose CPUs were offline.
    has_lost: bool,
    /// The paths that exist; `None` after a write, which may change them.
    paths: Option<BTreeSet<String>>,
}

/// An event at one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The call fails with this errno.
    Fail(i32),
    /// If it is a write, the kernel accepts it and does nothing.
    Lose,
    /// Another program writes this before the call.
    Poke(&'static str, &'static str),
    /// A CPU goes offline, or comes online, before the call.
    Online(usize, bool),
}

/// Faults to inject.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// The n-th write from now fails with this errno, once.
    pub fail_write: Option<(usize, i32)>,
    /// The n-th read of a file from now fails with this errno, once.
    pub fail_read: Option<(usize, i32)>,
    /// The process dies at the n-th call from now: before the call, or after it took effect.
    pub die_at: Option<(usize, bool)>,
    /// Number of bytes at the unflushed end of the journal that are lost at death.
    pub torn: usize,
    /// Events at the n-th call from now, counting reads, lists and writes alike.
    pub events: Vec<(usize, Event)>,
}

#[derive(Debug, Default)]
struct Events {
    faults: Faults,
    calls: usize,
    reads: usize,
    writes: Vec<String>,
    dead: bool,
    /// Path of the journal, followed by its content when the process died.
    journal: Option<PathBuf>,
    image: Option<Vec<u8>>,
    /// Length that the file next to the journal gives.
    length: usize,
    flushed: usize,
}

pub(crate) struct Kernel {
    state: Mutex<State>,
    events: Mutex<Events>,
    lag: u32,
}

impl Kernel {
    pub(crate) fn new(driver: Driver, cpus: usize, per_policy: usize, lag: u32) -> Kernel {
        let mode = if driver == Driver::AcpiCpufreq { "none" } else { "active" };
        let numbers: Vec<usize> = (0..cpus).collect();
        let policies = numbers
            .chunks(per_policy.max(1))
            .map(|cpus| Policy {
                cpus: cpus.to_vec(),
                exists: true,
                governor: String::new(),
                epp: 128,
                saved_epp: None,
                min: None,
                max: None,
                boost: true,
                speed: HW_BASE,
                seen: (HW_MIN, HW_TURBO),
                lag: 0,
            })
            .collect();
        let mut state = State {
            driver,
            mode: mode.to_owned(),
            turbo: true,
            policies,
            online: vec![true; cpus],
            bias: vec![6; cpus],
            latency: vec!["0".to_owned(); cpus],
            disabled: vec![[false; 3]; cpus],
            tunables: BTreeMap::new(),
            uncore: (800_000, 2_400_000),
            pct: (9, 100),
            irqs: ["0-3", "1", "2-3", "3"].map(|list| list.parse().unwrap()).to_vec(),
            has_lost: false,
            paths: None,
        };
        state.make_policies_anew();
        Kernel { state: Mutex::new(state), events: Mutex::new(Events::default()), lag }
    }

    /// Returns every file with its content, or the errno of reading it. Not counted as calls, and
    /// without faults.
    pub(crate) fn dump(&self) -> BTreeMap<String, Result<String, i32>> {
        let mut state = self.state.lock().unwrap();
        for policy in &mut state.policies {
            policy.lag = 0;
        }
        let paths = state.paths();
        paths.into_iter().map(|path| (path.clone(), state.read(&path).map_err(|errno| errno.0))).collect()
    }

    /// Returns all settings by name, including those of offline CPUs' policies, which the files
    /// would show if the CPUs came online.
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        let state = self.state.lock().unwrap();
        let mut all = BTreeMap::new();
        let mut put = |name: String, value: String| _ = all.insert(name, value);
        put("mode".to_owned(), state.mode.clone());
        put("turbo".to_owned(), state.turbo.to_string());
        put("percentages".to_owned(), format!("{:?}", state.pct));
        put("uncore".to_owned(), format!("{:?}", state.uncore));
        put("tunables".to_owned(), format!("{:?}", state.tunables));
        put("online".to_owned(), format!("{:?}", state.online));
        put("interrupts".to_owned(), format!("{:?}", state.irqs));
        for cpu in 0..state.online.len() {
            let of_cpu = (state.bias[cpu], &state.latency[cpu], &state.disabled[cpu]);
            put(format!("cpu{cpu}"), format!("{of_cpu:?}"));
        }
        for (index, policy) in state.policies.iter().enumerate() {
            let number = policy.cpus[0];
            // The driver creates the policy with its defaults when its CPU comes online.
            if !state.has_policies() {
                put(format!("policy{number}"), "none".to_owned());
                continue;
            }
            put(format!("policy{number} governor"), policy.governor.clone());
            put(format!("policy{number} limits"), format!("{:?}", state.effective(index)));
            // A policy's own boost has no effect while boost is off for the machine.
            if state.driver != Driver::IntelPstate {
                put(format!("policy{number} boost"), (policy.boost && state.turbo).to_string());
            }
            if state.has_epp() {
                put(format!("policy{number} epp"), policy.epp.to_string());
            }
            if policy.governor == "userspace" {
                put(format!("policy{number} speed"), policy.speed.to_string());
            }
        }
        all
    }

    /// Writes as another program, not counted.
    pub(crate) fn poke(&self, path: &str, value: &str) -> Result<(), Errno> {
        self.state.lock().unwrap().write(&format!("{CPU}/{path}"), value, 0)
    }

    /// Arms faults, and restarts the counters. At death, the content of `journal` is saved.
    pub(crate) fn arm(&self, faults: Faults, journal: PathBuf) {
        *self.events.lock().unwrap() = Events { faults, journal: Some(journal), ..Events::default() };
    }

    /// Restarts the process after its death, without faults, and restores the journal from its
    /// saved content.
    pub(crate) fn revive(&self) -> bool {
        let mut events = self.events.lock().unwrap();
        let was_dead = events.dead;
        if let (Some(image), Some(path)) = (events.image.take(), events.journal.clone()) {
            std::fs::write(&path, image).unwrap();
            std::fs::write(path.with_extension("length"), events.length.to_string()).unwrap();
        } else if let (true, Some(path)) = (was_dead, events.journal.clone()) {
            let _ = std::fs::remove_file(path.with_extension("length"));
            let _ = std::fs::remove_file(path);
        }
        *events = Events::default();
        was_dead
    }

    /// Returns the numbers of the policies that the driver has not created, because their CPUs were
    /// never online under it.
    pub(crate) fn unmade_policies(&self) -> Vec<usize> {
        let state = self.state.lock().unwrap();
        state.policies.iter().filter(|policy| !policy.exists).map(|policy| policy.cpus[0]).collect()
    }

    /// Returns whether the process has died and was not revived yet.
    pub(crate) fn is_dead(&self) -> bool {
        self.events.lock().unwrap().dead
    }

    /// Runs `look` without faults, and then restores them.
    pub(crate) fn pause<T>(&self, look: impl FnOnce(&Kernel) -> T) -> T {
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        let found = look(self);
        *self.events.lock().unwrap() = events;
        found
    }

    /// Returns whether a driver removed a policy whose CPUs were offline.
    pub(crate) fn has_lost_policies(&self) -> bool {
        self.state.lock().unwrap().has_lost
    }

    pub(crate) fn calls(&self) -> usize {
        self.events.lock().unwrap().calls
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        self.events.lock().unwrap().writes.clone()
    }

    /// Runs one call through the faults.
    fn call<T>(
        &self,
        op: Op,
        path: &str,
        value: Option<&str>,
        work: impl FnOnce(&mut State) -> Result<T, Errno>,
    ) -> Result<T, HostError> {
        let fail = |errno: Errno| HostError::new(op, path, errno);
        let mut events = self.events.lock().unwrap();
        if events.dead {
            return Err(fail(Errno::IO));
        }
        let call = events.calls;
        events.calls += 1;
        let dies = events.faults.die_at.filter(|(at, _)| *at == call).map(|(_, after)| after);
        if dies == Some(false) {
            events.die();
            return Err(fail(Errno::IO));
        }
        // Saves the journal at the last call before death.
        if events.faults.die_at.is_some_and(|(at, _)| at == call + 1) || dies == Some(true) {
            events.flushed = events.journal_bytes().len();
        }
        let happening: Vec<Event> =
            events.faults.events.iter().filter(|(at, _)| *at == call).map(|(_, event)| *event).collect();
        let mut lost = false;
        for event in happening {
            match event {
                Event::Fail(errno) => return Err(fail(Errno(errno))),
                Event::Lose => lost |= op == Op::Write,
                Event::Poke(path, value) => _ = self.poke(path, value),
                Event::Online(cpu, on) => {
                    let _ = self.poke(&format!("cpu{cpu}/online"), if on { "1" } else { "0" });
                }
            }
        }
        if let Some(value) = value {
            let write = events.writes.len();
            events.writes.push(format!("{path}={value}"));
            if let Some((at, errno)) = events.faults.fail_write
                && at == write
            {
                return Err(fail(Errno(errno)));
            }
        }
        if op == Op::Read {
            events.reads += 1;
            if let Some((at, errno)) = events.faults.fail_read
                && at + 1 == events.reads
            {
                return Err(fail(Errno(errno)));
            }
        }
        let mut state = self.state.lock().unwrap();
        if lost {
            // Return the result of the write, without its effect.
            let before = state.clone();
            let answer = work(&mut state).map_err(fail);
            *state = before;
            return answer;
        }
        let answer = work(&mut state).map_err(fail);
        drop(state);
        if dies == Some(true) {
            events.die();
            return Err(fail(Errno::IO));
        }
        answer
    }
}

impl Events {
    fn journal_bytes(&self) -> Vec<u8> {
        self.journal.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default()
    }

    fn die(&mut self) {
        self.dead = true;
        let bytes = self.journal_bytes();
        // Lines appended since the last call may not have reached the disk, because no write
        // followed them.
        let loose = bytes.len().saturating_sub(self.flushed);
        let kept = bytes.len() - self.faults.torn.min(loose);
        // The length is written after the lines.
        let path = self.journal.as_ref().map(|path| path.with_extension("length"));
        let length = path.and_then(|path| std::fs::read_to_string(path).ok()?.trim_end().parse().ok());
        let length = length.unwrap_or(0);
        self.length = if kept < bytes.len() { kept.min(length) } else { length };
        self.image = self.journal.as_ref().filter(|path| path.exists()).map(|_| bytes[..kept].to_vec());
    }
}

impl State {
    fn active(&self) -> bool {
        self.mode == "active"
    }

    fn has_policies(&self) -> bool {
        self.mode != "disable" && self.mode != "off"
    }

    fn has_epp(&self) -> bool {
        match self.driver {
            Driver::AmdPstate => self.active(),
            Driver::IntelPstate => true,
            Driver::AcpiCpufreq => false,
        }
    }

    fn governors(&self) -> &'static [&'static str] {
        if self.active() {
            &["performance", "powersave"]
        } else {
            &["conservative", "ondemand", "userspace", "powersave", "performance", "schedutil"]
        }
    }

    fn make_policies_anew(&mut self) {
        let governor = match (self.driver, self.active()) {
            (Driver::AmdPstate, true) => "performance",
            (Driver::IntelPstate, true) => "powersave",
            _ => "schedutil",
        };
        self.turbo = true;
        self.pct = (9, 100);
        for policy in &mut self.policies {
            policy.governor.clear();
            policy.epp = 128;
            policy.saved_epp = None;
            (policy.min, policy.max, policy.boost) = (None, None, true);
        }
        self.tunables.clear();
        for index in 0..self.policies.len() {
            let online = self.is_online(index);
            self.has_lost |= self.policies[index].exists && !online;
            self.policies[index].exists = online;
            // A new policy gets the defaults.
            self.govern(index, governor);
            self.look_again(index, 0);
        }
    }

    fn govern(&mut self, index: usize, governor: &str) {
        let amd = self.driver == Driver::AmdPstate;
        let active = self.active();
        let policy = &mut self.policies[index];
        let old = std::mem::replace(&mut policy.governor, governor.to_owned());
        if active && old != governor {
            if governor == "performance" {
                policy.saved_epp = (!amd).then_some(policy.epp);
                policy.epp = 0;
            } else if let Some(saved) = policy.saved_epp.take().filter(|_| policy.epp == 0) {
                policy.epp = saved;
            }
        }
        if governor == "userspace" && old != governor {
            policy.speed = HW_BASE;
        }
        self.share_tunables();
    }

    /// Keeps a governor's shared tunables while a policy with online CPUs uses it. When the last
    /// CPU of a policy goes offline, its governor exits (cpufreq_exit_governor in __cpufreq_offline
    /// of drivers/cpufreq/cpufreq.c).
    fn share_tunables(&mut self) {
        let in_use = |index: &usize| self.policies[*index].exists && self.is_online(*index);
        let used: BTreeSet<String> = (0..self.policies.len())
            .filter(in_use)
            .map(|index| self.policies[index].governor.clone())
            .collect();
        self.tunables.retain(|governor, _| used.contains(governor));
        for governor in used {
            if governor == "ondemand" || governor == "schedutil" {
                self.tunables.entry(governor).or_insert(10);
            }
        }
    }

    fn hw_max(&self, index: usize) -> u64 {
        if self.turbo && self.policies[index].boost { HW_TURBO } else { HW_BASE }
    }

    fn effective(&self, index: usize) -> (u64, u64) {
        let policy = &self.policies[index];
        let hw = self.hw_max(index);
        // In passive mode the percentages are requests on the policies' limits (update_qos_requests
        // in intel_pstate.c).
        let (low, high) = if self.driver == Driver::IntelPstate && !self.active() {
            (HW_TURBO * self.pct.0 / 100, HW_TURBO * self.pct.1 / 100)
        } else {
            (HW_MIN, HW_TURBO)
        };
        let max = policy.max.unwrap_or(u64::MAX).min(high).clamp(HW_MIN, hw);
        let min = policy.min.unwrap_or(0).max(low).clamp(HW_MIN, hw).min(max);
        (min, max)
    }

    /// Lets the kernel's worker update the limits after `lag` reads.
    fn look_again(&mut self, index: usize, lag: u32) {
        if lag == 0 {
            self.policies[index].seen = self.effective(index);
        }
        self.policies[index].lag = lag;
    }

    fn limits(&mut self, index: usize) -> (u64, u64) {
        if self.policies[index].lag > 0 {
            self.policies[index].lag -= 1;
        } else {
            self.policies[index].seen = self.effective(index);
        }
        self.policies[index].seen
    }

    fn is_online(&self, index: usize) -> bool {
        self.policies[index].cpus.iter().any(|&cpu| self.online[cpu])
    }

    /// Returns every path that exists.
    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            ["online", "present", "possible", "offline"].iter().map(|name| format!("{CPU}/{name}")).collect();
        match self.driver {
            Driver::AmdPstate => paths.push(format!("{CPU}/amd_pstate/status")),
            Driver::IntelPstate => {
                for name in ["status", "no_turbo", "min_perf_pct", "max_perf_pct"] {
                    paths.push(format!("{CPU}/intel_pstate/{name}"));
                }
            }
            Driver::AcpiCpufreq => {}
        }
        paths.extend((0..self.irqs.len()).map(|irq| format!("{IRQ}/{irq}/smp_affinity_list")));
        for cpu in 0..self.online.len() {
            if cpu > 0 {
                paths.push(format!("{CPU}/cpu{cpu}/online"));
            }
            paths.push(format!("{CPU}/cpu{cpu}/power/pm_qos_resume_latency_us"));
            for state in 0..3 {
                for name in ["name", "latency", "disable"] {
                    paths.push(format!("{CPU}/cpu{cpu}/cpuidle/state{state}/{name}"));
                }
            }
            if self.driver == Driver::IntelPstate && self.online[cpu] {
                paths.push(format!("{CPU}/cpu{cpu}/power/energy_perf_bias"));
            }
        }
        for name in ["min_freq_khz", "max_freq_khz", "initial_min_freq_khz", "initial_max_freq_khz"] {
            paths.push(format!("{CPU}/intel_uncore_frequency/package_00_die_00/{name}"));
        }
        if !self.has_policies() {
            return paths;
        }
        if self.driver != Driver::IntelPstate {
            paths.push(format!("{CPU}/cpufreq/boost"));
        }
        for governor in self.tunables.keys() {
            paths.push(format!("{CPU}/cpufreq/{governor}/rate"));
        }
        for policy in self.policies.iter().filter(|policy| policy.exists) {
            let folder = format!("{CPU}/cpufreq/policy{}", policy.cpus[0]);
            for name in [
                "scaling_governor",
                "scaling_min_freq",
                "scaling_max_freq",
                "scaling_setspeed",
                "scaling_available_governors",
                "scaling_driver",
                "cpuinfo_min_freq",
                "cpuinfo_max_freq",
                "related_cpus",
                "affected_cpus",
            ] {
                paths.push(format!("{folder}/{name}"));
            }
            if self.has_epp() {
                paths.push(format!("{folder}/energy_performance_preference"));
                paths.push(format!("{folder}/energy_performance_available_preferences"));
            }
            if self.driver != Driver::IntelPstate {
                paths.push(format!("{folder}/boost"));
            }
        }
        paths
    }

    fn irq_of(path: &str) -> Option<usize> {
        path.strip_prefix(IRQ)?.split('/').nth(1)?.parse().ok()
    }

    fn policy_of(&self, path: &str) -> Option<(usize, String)> {
        let (number, name) = path.strip_prefix(&format!("{CPU}/cpufreq/policy"))?.split_once('/')?;
        let number: usize = number.parse().ok()?;
        let index = self.policies.iter().position(|policy| policy.cpus[0] == number)?;
        Some((index, name.to_owned()))
    }

    fn has(&mut self, path: &str) -> bool {
        if self.paths.is_none() {
            self.paths = Some(self.paths().into_iter().collect());
        }
        self.paths.as_ref().is_some_and(|paths| paths.contains(path))
    }

    fn read(&mut self, path: &str) -> Result<String, Errno> {
        if !self.has(path) {
            return Err(Errno::NOENT);
        }
        if let Some((index, name)) = self.policy_of(path) {
            if !self.is_online(index) {
                return Err(Errno::BUSY);
            }
            return Ok(format!("{}\n", self.read_policy(index, &name)));
        }
        if let Some(irq) = State::irq_of(path) {
            return Ok(format!("{}\n", self.irqs[irq]));
        }
        let rest = path.strip_prefix(&format!("{CPU}/")).unwrap_or(path);
        let list = |wanted: bool| {
            let cpus: flyball_host::CpuList =
                (0..self.online.len() as u32).filter(|cpu| self.online[*cpu as usize] == wanted).collect();
            cpus.to_string()
        };
        let cpu = || -> usize {
            rest.trim_start_matches("cpu")
                .split('/')
                .next()
                .and_then(|number| number.parse().ok())
                .unwrap_or(0)
        };
        let text = match rest {
            "online" => list(true),
            "offline" => list(false),
            "present" | "possible" => format!("0-{}", self.online.len() - 1),
            "amd_pstate/status" | "intel_pstate/status" => self.mode.clone(),
            "intel_pstate/no_turbo" => u8::from(!self.turbo).to_string(),
            "intel_pstate/min_perf_pct" => self.pct.0.to_string(),
            "intel_pstate/max_perf_pct" => self.pct.1.to_string(),
            "cpufreq/boost" => u8::from(self.turbo).to_string(),
            _ if rest.starts_with("cpufreq/") => self
                .tunables
                .get(rest.split('/').nth(1).unwrap_or_default())
                .copied()
                .unwrap_or(0)
                .to_string(),
            _ if rest.ends_with("initial_min_freq_khz") => "800000".to_owned(),
            _ if rest.ends_with("initial_max_freq_khz") => "2400000".to_owned(),
            _ if rest.ends_with("min_freq_khz") => self.uncore.0.to_string(),
            _ if rest.ends_with("max_freq_khz") => self.uncore.1.to_string(),
            _ if rest.ends_with("/online") => u8::from(self.online[cpu()]).to_string(),
            _ if rest.ends_with("energy_perf_bias") => self.bias[cpu()].to_string(),
            _ if rest.ends_with("pm_qos_resume_latency_us") => self.latency[cpu()].clone(),
            _ => {
                let state: usize = rest
                    .split("state")
                    .nth(1)
                    .and_then(|tail| tail.split('/').next())
                    .and_then(|number| number.parse().ok())
                    .unwrap_or(0);
                match rest.rsplit('/').next() {
                    Some("name") => ["POLL", "C1", "C6"][state].to_owned(),
                    Some("latency") => ["0", "2", "120"][state].to_owned(),
                    _ => u8::from(self.disabled[cpu()][state]).to_string(),
                }
            }
        };
        Ok(format!("{text}\n"))
    }

    fn read_policy(&mut self, index: usize, name: &str) -> String {
        let hw_max = self.hw_max(index);
        let governors = self.governors().join(" ");
        let (active, driver, mode_has_numbers) =
            (self.active(), self.driver, self.driver == Driver::IntelPstate);
        let online = self.online.clone();
        let limits = if name.starts_with("scaling_m") { self.limits(index) } else { (0, 0) };
        let policy = &self.policies[index];
        let words = |cpus: Vec<usize>| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        match name {
            "scaling_governor" => policy.governor.clone(),
            "scaling_available_governors" => governors,
            "scaling_driver" => match driver {
                Driver::AmdPstate if active => "amd-pstate-epp",
                Driver::AmdPstate => "amd-pstate",
                Driver::IntelPstate if active => "intel_pstate",
                Driver::IntelPstate => "intel_cpufreq",
                Driver::AcpiCpufreq => "acpi-cpufreq",
            }
            .to_owned(),
            "scaling_min_freq" => limits.0.to_string(),
            "scaling_max_freq" => limits.1.to_string(),
            "cpuinfo_min_freq" => HW_MIN.to_string(),
            "cpuinfo_max_freq" => hw_max.to_string(),
            "related_cpus" => words(policy.cpus.clone()),
            "affected_cpus" => words(policy.cpus.iter().copied().filter(|cpu| online[*cpu]).collect()),
            "scaling_setspeed" if policy.governor == "userspace" => policy.speed.to_string(),
            "scaling_setspeed" => "<unsupported>".to_owned(),
            "boost" => u8::from(policy.boost).to_string(),
            "energy_performance_available_preferences"
                if active && policy.governor == "performance" && driver == Driver::AmdPstate =>
            {
                "performance".to_owned()
            }
            "energy_performance_available_preferences" => {
                "default performance balance_performance balance_power power ".to_owned()
            }
            _ => match policy.epp {
                0 => "performance".to_owned(),
                128 => "balance_performance".to_owned(),
                192 => "balance_power".to_owned(),
                255 => "power".to_owned(),
                number if mode_has_numbers => number.to_string(),
                _ => "balance_performance".to_owned(),
            },
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm per file")]
    fn write(&mut self, path: &str, value: &str, lag: u32) -> Result<(), Errno> {
        let value = value.trim();
        if !self.has(path) {
            return Err(Errno::NOENT);
        }
        self.paths = None;
        if let Some((index, name)) = self.policy_of(path) {
            return self.write_policy(index, &name, value, lag);
        }
        if let Some(irq) = State::irq_of(path) {
            let list: CpuList = value.parse().map_err(|_| Errno::INVAL)?;
            if !list.iter().any(|cpu| self.online.get(cpu as usize) == Some(&true)) {
                return Err(Errno::INVAL);
            }
            self.irqs[irq] = list;
            return Ok(());
        }
        let rest = path.strip_prefix(&format!("{CPU}/")).unwrap_or(path).to_owned();
        let number = value.parse::<u64>().map_err(|_| Errno::INVAL);
        let switch = match value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(Errno::INVAL),
        };
        let cpu: usize = rest
            .trim_start_matches("cpu")
            .split('/')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        match rest.as_str() {
            "amd_pstate/status" | "intel_pstate/status" => {
                let modes: &[&str] = match self.driver {
                    Driver::AmdPstate => &["active", "passive", "guided", "disable"],
                    _ if value == "off" => return Err(Errno::BUSY),
                    _ => &["active", "passive"],
                };
                if !modes.contains(&value) {
                    return Err(Errno::INVAL);
                }
                let gentle =
                    [self.mode.as_str(), value].iter().all(|mode| matches!(*mode, "passive" | "guided"));
                if self.mode != value {
                    value.clone_into(&mut self.mode);
                    if !gentle {
                        self.make_policies_anew();
                    }
                }
            }
            "intel_pstate/no_turbo" | "cpufreq/boost" => {
                let on = switch?;
                self.turbo = if rest.ends_with("no_turbo") { !on } else { on };
                let turbo = self.turbo;
                for index in 0..self.policies.len() {
                    // cpufreq_boost_trigger_state goes through the active policies only.
                    if self.driver != Driver::IntelPstate && self.is_online(index) {
                        self.policies[index].boost = turbo;
                    }
                    self.look_again(index, lag);
                }
            }
            "intel_pstate/min_perf_pct" | "intel_pstate/max_perf_pct" => {
                if rest.ends_with("min_perf_pct") {
                    self.pct.0 = number?.clamp(9, self.pct.1);
                } else {
                    self.pct.1 = number?.clamp(self.pct.0, 100);
                }
                for index in 0..self.policies.len() {
                    self.look_again(index, lag);
                }
            }
            "online" | "present" | "possible" | "offline" => return Err(Errno::ACCES),
            _ if rest.contains("initial_") => return Err(Errno::ACCES),
            _ if rest.starts_with("cpufreq/") => {
                let governor = rest.split('/').nth(1).unwrap_or_default().to_owned();
                self.tunables.insert(governor, number?);
            }
            _ if rest.ends_with("min_freq_khz") => self.uncore.0 = number?,
            _ if rest.ends_with("max_freq_khz") => self.uncore.1 = number?,
            _ if rest.ends_with("/online") => {
                self.online[cpu] = switch?;
                let index = self.policies.iter().position(|policy| policy.cpus.contains(&cpu)).unwrap_or(0);
                if self.online[cpu] && !self.policies[index].exists {
                    self.policies[index].exists = true;
                    let governor = self.policies[index].governor.clone();
                    self.govern(index, &governor);
                    self.look_again(index, 0);
                }
                self.share_tunables();
                // An interrupt without an online CPU may use any CPU (kernel/irq/cpuhotplug.c).
                let online: CpuList =
                    (0..self.online.len() as u32).filter(|&cpu| self.online[cpu as usize]).collect();
                for irq in self.irqs.iter_mut().filter(|irq| !irq.intersects(&online)) {
                    irq.clone_from(&online);
                }
            }
            _ if rest.ends_with("energy_perf_bias") => {
                self.bias[cpu] = number.and_then(|n| if n < 16 { Ok(n as u8) } else { Err(Errno::INVAL) })?;
            }
            _ if rest.ends_with("pm_qos_resume_latency_us") => {
                if value != "n/a" {
                    number?;
                }
                value.clone_into(&mut self.latency[cpu]);
            }
            _ if rest.ends_with("/disable") => {
                let state: usize =
                    rest.split("state").nth(1).and_then(|t| t.split('/').next()?.parse().ok()).unwrap_or(0);
                self.disabled[cpu][state] = number? != 0;
            }
            _ => return Err(Errno::ACCES),
        }
        Ok(())
    }

    fn write_policy(&mut self, index: usize, name: &str, value: &str, lag: u32) -> Result<(), Errno> {
        if !self.is_online(index) {
            return Err(Errno::BUSY);
        }
        let number = value.parse::<u64>().map_err(|_| Errno::INVAL);
        match name {
            "scaling_governor" => {
                if !self.governors().contains(&value) {
                    return Err(Errno::INVAL);
                }
                if self.policies[index].governor != value {
                    self.govern(index, value);
                }
            }
            "scaling_min_freq" => {
                self.policies[index].min = Some(number?);
                self.look_again(index, lag);
            }
            "scaling_max_freq" => {
                self.policies[index].max = Some(number?);
                self.look_again(index, lag);
            }
            "scaling_setspeed" if self.policies[index].governor == "userspace" => {
                self.policies[index].speed = number?;
            }
            "boost" => {
                let on = value == "1";
                if on && !self.turbo {
                    return Err(Errno::INVAL);
                }
                self.policies[index].boost = on;
                self.look_again(index, lag);
            }
            "energy_performance_preference" => {
                let epp = match value {
                    "performance" => 0,
                    "balance_performance" | "default" => 128,
                    "balance_power" => 192,
                    "power" => 255,
                    _ if self.driver == Driver::IntelPstate => {
                        value.parse::<u8>().map_err(|_| Errno::INVAL)?
                    }
                    _ => return Err(Errno::INVAL),
                };
                if self.active() && self.policies[index].governor == "performance" && epp > 0 {
                    return Err(Errno::BUSY);
                }
                self.policies[index].epp = epp;
            }
            "scaling_setspeed" => return Err(Errno::INVAL),
            _ => return Err(Errno::ACCES),
        }
        Ok(())
    }
}

impl Host for Kernel {
    fn kind(&self) -> Kind {
        Kind::Simulated
    }

    fn name(&self) -> String {
        "fake".to_owned()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        buffer.clear();
        let text = self.call(Op::Read, path, None, |state| state.read(path))?;
        buffer.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let value = String::from_utf8_lossy(bytes).into_owned();
        let lag = self.lag;
        self.call(Op::Write, path, Some(&value), |state| state.write(path, &value, lag))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        self.call(Op::List, path, None, |state| {
            let prefix = format!("{path}/");
            state.has(path);
            let names: BTreeSet<String> = state
                .paths
                .iter()
                .flatten()
                .filter_map(|known| known.strip_prefix(&prefix)?.split('/').next().map(str::to_owned))
                .collect();
            if names.is_empty() { Err(Errno::NOENT) } else { Ok(names.into_iter().collect()) }
        })
    }

    fn exists(&self, path: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        let prefix = format!("{path}/");
        state.has(path) || state.paths.iter().flatten().any(|known| known.starts_with(&prefix))
    }

    fn writable(&self, path: &str) -> bool {
        const FIXED: [&str; 14] = [
            "name",
            "latency",
            "online_list",
            "scaling_available_governors",
            "scaling_driver",
            "cpuinfo_min_freq",
            "cpuinfo_max_freq",
            "related_cpus",
            "affected_cpus",
            "energy_performance_available_preferences",
            "initial_min_freq_khz",
            "initial_max_freq_khz",
            "present",
            "possible",
        ];
        self.state.lock().unwrap().has(path) && !FIXED.contains(&path.rsplit('/').next().unwrap_or_default())
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        Err(HostError::new(Op::Link, path, Errno::NOENT))
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        Err(HostError::new(Op::ReadMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NOENT))
    }

    fn write_msr(&self, cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NOENT))
    }

    fn isst(&self, number: u32, _argument: &mut [u8]) -> Result<i32, HostError> {
        Err(HostError::new(Op::Isst, format!("ioctl {number:#x}"), Errno::NODEV))
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    /// Runs the worker that applies limits, which takes less than a millisecond.
    fn sleep(&self, time: Duration) {
        if time >= Duration::from_millis(1) {
            let mut state = self.state.lock().unwrap();
            for index in 0..state.policies.len() {
                state.look_again(index, 0);
            }
        }
    }
}
