//! Turns a machine into metrics. Reads what cannot change once and keeps files open. A scrape reads
//! everything else in one pass.

pub mod doctor;
mod holds;
mod node;
mod select;
mod settings;
mod speed;
mod totals;

use std::{rc::Rc, time::Duration};

use flyball_control::{ReadError, write::state::StateDir};
use flyball_host::{
    Host, Kind, Live,
    cpuidle::{Count, Exits},
    watch,
};
use flyball_monitor::{
    Account, Facts, IdleReads, Interval, KeptAttribute, Layout, Quantity, Reads, Sample, Sampler, missing,
};

pub use self::settings::covered;
use self::{
    doctor::Findings, holds::Holds, node::Node, select::Select, settings::Settings, speed::Groups,
    totals::Totals,
};
use crate::{Exposition, Format, catalogue as names};

/// What to export.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "switches of the command line")]
pub struct Options {
    pub per_cpu: bool,
    /// Also export node_exporter's names.
    pub node: bool,
    /// Also export `process_*`. Not for a file that node_exporter serves: it has these metrics
    /// itself and would report an error at each scrape.
    pub process: bool,
    /// Export `flyball_cpu_lost_hertz`: how much frequency each limit costs, as in `flyball why`.
    pub why: bool,
    /// Export exits from idle states. Reads five files per CPU and state.
    pub wakes: bool,
    /// Maximum number of a knob's values that are counted by name. All others are counted as
    /// `other`.
    pub most_values: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { per_cpu: false, node: false, process: true, why: false, wakes: false, most_values: 16 }
    }
}

/// Faster scrapes get the same numbers again. There is no point in waking CPUs more often, and
/// energy that is read more often reveals what code runs (CVE-2020-8694;
/// Documentation/admin-guide/hw-vuln describes similar attacks).
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// How long limits by settings are cached, ns. Reading them takes hundreds of files.
const FACTS_EVERY: u64 = 60_000_000_000;

/// Maximum number of clients whose last scrape is remembered. Prometheus servers often come in
/// pairs.
const MAX_CLIENTS: usize = 8;

/// The two samples behind a client's last answer.
struct Client {
    name: String,
    from: Rc<Sample>,
    to: Rc<Sample>,
}

/// A machine, and what is remembered about it.
pub struct Collector<'h> {
    host: &'h dyn Host,
    options: Options,
    state: Option<StateDir>,
    sampler: Sampler<'h>,
    groups: Groups,
    settings: Settings,
    select: Select,
    node: Option<Node>,
    exits: Option<Exits>,
    totals: Totals,
    holds: Option<Holds>,
    mode: KeptAttribute,
    findings: Option<Findings>,
    /// Limits by settings, and when they were read.
    facts: Option<(u64, Facts)>,
    last: Rc<Sample>,
    /// The sample before `last`. A new client's interval begins with it.
    before: Rc<Sample>,
    clients: Vec<Client>,
    used: Duration,
    room: usize,
}

impl std::fmt::Debug for Collector<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'h> Collector<'h> {
    /// Discovers what can be read, and takes the first sample. `state` has the holds.
    ///
    /// # Errors
    /// The machine's CPUs cannot be listed.
    pub fn open(
        host: &'h dyn Host,
        options: Options,
        state: Option<StateDir>,
    ) -> Result<Collector<'h>, ReadError> {
        let mut sampler = open_sampler(host)?;
        // Without a sample before the first scrape, that scrape would have no interval, and
        // Prometheus would wait a whole period for the next.
        let last = Rc::new(sample(host, &mut sampler));
        let layout = sampler.layout();
        let collector = Collector {
            host,
            options,
            groups: Groups::new(layout),
            settings: Settings::open(host, layout),
            select: Select::open(host),
            node: options.node.then(|| Node::open(host, layout)),
            exits: options
                .wakes
                .then(|| Exits::open(host, layout.cpus.iter().map(|cpu| cpu.number).collect())),
            totals: Totals::new(layout),
            holds: state.clone().map(Holds::new),
            mode: KeptAttribute::new(mode_file(layout)),
            state,
            findings: None,
            facts: None,
            before: Rc::clone(&last),
            last,
            sampler,
            clients: Vec::new(),
            used: Duration::ZERO,
            room: 0,
        };
        // For example, /proc/cpuinfo of 512 CPUs takes a megabyte.
        flyball_process::release_freed_memory();
        Ok(collector)
    }

    /// Sets the findings of the latest doctor run.
    pub fn set_findings(&mut self, findings: Findings) {
        self.findings = Some(findings);
    }

    /// Returns how long energy counters may go unread, so that even the fastest cannot wrap unseen.
    pub fn meters_within(&self) -> Option<Duration> {
        // An upper bound for a package's power: 500 W, or twice its limit.
        let layout = self.sampler.layout();
        let limits =
            (0..layout.packages.len()).filter_map(|index| self.last.get(layout, Quantity::PowerLimit, index));
        let watts = limits.map(|limit| 2e-6 * limit as f64).fold(500.0, f64::max);
        self.sampler.shortest_range().map(|range| Duration::from_secs_f64(0.8e-6 * range as f64 / watts))
    }

    /// Reads the energy counters only.
    pub fn follow_meters(&mut self) {
        self.sampler.follow_energy();
    }

    /// Answers a scrape. The answer covers the time since the client's own last scrape.
    pub fn scrape(&mut self, client: &str, format: Format) -> String {
        let started = flyball_process::thread_time();
        // Must come first: CPU indices refer to the layout that the samples were taken with.
        self.renew();
        let (from, to) = self.interval_of(client);
        let interval = Interval::between(self.sampler.layout(), &from, &to);
        let sampler = &self.sampler;
        self.settings.look(self.host, to.at, |index| sampler.may_interrupt(index));
        let mut out = Exposition::new(format, self.room);
        self.write(&mut out, &interval, &to);
        if self.options.why && !interval.is_broken {
            self.write_losses(&mut out, &interval, &from, &to);
        }
        if let Some(exits) = &mut self.exits {
            exits.follow(self.host);
            write_wakes(&mut out, exits);
        }
        self.used += flyball_process::thread_time().saturating_sub(started);
        self.write_own(&mut out);
        let text = out.finish();
        // The next text will be about as long, and growing a string to 500 kB copies it a dozen
        // times.
        self.room = text.len();
        text
    }

    /// Rediscovers the whole machine if a CPU comes online for the first time: its package was not
    /// known before.
    fn renew(&mut self) {
        let places = self.sampler.places();
        let is_new = |(index, cpu): (usize, &flyball_monitor::Cpu)| {
            cpu.package.is_none() && places.get(&self.last, Quantity::Online, index) == Some(1)
        };
        if self.sampler.layout().cpus.iter().enumerate().any(is_new)
            && let Ok(renewed) = Collector::open(self.host, self.options, self.state.clone())
        {
            // Counters restart at 0, as if the exporter had been restarted. Prometheus handles
            // that.
            *self = Collector { findings: self.findings.take(), used: self.used, ..renewed };
        }
    }

    /// Returns the client's previous sample and a new one, unless the last one is still young.
    fn interval_of(&mut self, client: &str) -> (Rc<Sample>, Rc<Sample>) {
        let least = LEAST_INTERVAL.as_nanos() as u64;
        // On the machine's monotonic clock: setting back the wall clock must not stop the sampling.
        if (self.host.now().as_nanos() as u64).saturating_sub(self.last.at) >= least {
            let next = Rc::new(sample(self.host, &mut self.sampler));
            self.totals.add(&self.sampler, &self.groups, &self.last, &next);
            self.before = std::mem::replace(&mut self.last, next);
        }
        if let Some(known) = self.clients.iter_mut().find(|known| known.name == client) {
            // If another client's scrape took the last sample moments ago, this client gets it too.
            if self.last.at.saturating_sub(known.to.at) >= least {
                known.from = std::mem::replace(&mut known.to, Rc::clone(&self.last));
            }
            return (Rc::clone(&known.from), Rc::clone(&known.to));
        }
        // Forget the client that has been away for longest. If a client's address changes (a
        // container that is restarted), it never comes back under the old one.
        if self.clients.len() >= MAX_CLIENTS
            && let Some(oldest) = (0..self.clients.len()).min_by_key(|&index| self.clients[index].to.at)
        {
            self.clients.swap_remove(oldest);
        }
        let (from, to) = (Rc::clone(&self.before), Rc::clone(&self.last));
        self.clients.push(Client { name: client.to_owned(), from: Rc::clone(&from), to: Rc::clone(&to) });
        (from, to)
    }

    fn write(&mut self, out: &mut Exposition, interval: &Interval, to: &Sample) {
        out.add(names::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        self.write_machine(out);
        let layout = self.sampler.layout();
        self.settings.write(out, &self.sampler, to, &self.groups, self.options.most_values);
        self.groups.write(out, interval);
        if self.options.per_cpu {
            speed::write_each(out, layout, interval);
        }
        write_power(out, &self.sampler, &self.groups, to, interval);
        self.totals.write(out, layout, &self.groups);
        self.select.write(out, self.host, to.at);
        if let Some(holds) = &mut self.holds {
            holds.write(out, self.host);
        }
        if let Some(findings) = &self.findings {
            findings.write(out);
        }
        for missing in &layout.missing {
            // Only count what a permission would make readable. A container or virtual machine that
            // lacks it misses nothing else.
            if let missing::Why::Forbidden(_, errno) = &missing.why {
                out.add(names::UNREADABLE, &[("what", what(missing.what)), ("why", errno)], 1.0);
            }
        }
        if let Some(errno) = self.holds.as_ref().and_then(Holds::refused) {
            out.add(names::UNREADABLE, &[("what", "holds"), ("why", errno)], 1.0);
        }
    }

    /// Writes what each limit costs the CPUs of each package, from the engine of `flyball why`.
    fn write_losses(&mut self, out: &mut Exposition, interval: &Interval, from: &Sample, to: &Sample) {
        let layout = self.sampler.layout();
        if self.facts.as_ref().is_none_or(|(at, _)| to.at.saturating_sub(*at) >= FACTS_EVERY) {
            self.facts = Facts::take(self.host, layout, |_| None).ok().map(|facts| (to.at, facts));
        }
        let Some((_, facts)) = &self.facts else { return };
        let mut account = Account::new(layout);
        account.add_interval(layout, facts, interval, from, to);
        for (package, number) in layout.packages.iter().zip(&self.groups.packages) {
            let found = account.whole(layout, facts, Some(&package.cpus));
            for step in found.iter().flat_map(|found| &found.steps) {
                out.add(names::LOST, &[("package", number), ("reason", &step.name())], step.mhz * 1e6);
            }
        }
    }

    /// Writes the exporter's own metrics. Comes last, because it includes the cost of all others.
    fn write_own(&mut self, out: &mut Exposition) {
        out.add(names::SCRAPE_CPU, &[], self.used.as_secs_f64());
        if self.options.process {
            write_process(out);
        }
        if let Some(node) = &mut self.node {
            node.write(out, self.host, &self.sampler, &self.last, self.options.per_cpu);
        }
    }

    fn write_machine(&mut self, out: &mut Exposition) {
        let machine = &self.sampler.layout().machine;
        let mut mode = Vec::new();
        if !self.mode.read_into(self.host, &mut mode) {
            mode.clear();
            // A driver may be loaded later, or replaced.
            self.mode.reopen();
        }
        let vendor = machine.vendor.to_string();
        let labels = [
            ("vendor", vendor.as_str()),
            ("model", machine.model_name.as_deref().unwrap_or_default()),
            ("driver", machine.driver.as_deref().unwrap_or_default()),
            ("driver_mode", &String::from_utf8_lossy(mode.trim_ascii_end())),
            ("kernel", &machine.kernel),
            ("simulated", if flyball_host::simulated(self.host) { "true" } else { "false" }),
        ];
        // A separate series for kernel and driver: rules join it by `instance`, so other metrics
        // need no such labels.
        out.add(names::MACHINE_INFO, &labels, 1.0);
    }
}

fn write_wakes(out: &mut Exposition, exits: &Exits) {
    type Take = fn(&Count) -> Option<u64>;
    let families: [(_, Take); 3] = [
        (names::WAKES, |count| Some(count.usage)),
        (names::TOO_DEEP, |count| count.above),
        (names::TOO_LIGHT, |count| count.below),
    ];
    for (family, take) in families {
        for (state, count) in exits.sums() {
            if let Some(count) = take(count) {
                out.add(family, &[("state", state)], count as f64);
            }
        }
    }
}

fn write_process(out: &mut Exposition) {
    out.add(names::PROCESS_CPU, &[], flyball_process::usage(false).time.as_secs_f64());
    // The second number is resident pages (proc_pid_statm(5)).
    let pages = Live::new().read("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    if let Some(resident) = resident {
        out.add(names::PROCESS_MEMORY, &[], (resident * rustix::param::page_size() as u64) as f64);
    }
}

fn open_sampler(host: &dyn Host) -> Result<Sampler<'_>, ReadError> {
    // Read limits and preferences at each scrape: their files are kept open, and a scrape must not
    // mix old and new values. No metric uses the times in idle states.
    let reads = Reads { idle: IdleReads::Suspects, ..Reads::default() };
    Sampler::open(host, flyball_monitor::Options { slow: Duration::ZERO, reads, ..Default::default() })
}

/// Takes a sample whose wall clock differs from the monotonic clock only by suspended time. Setting
/// the clock must not break an interval, as counters continue. A suspend must.
fn sample(host: &dyn Host, sampler: &mut Sampler<'_>) -> Sample {
    let asleep = if host.kind() == Kind::Live { watch::asleep() } else { Duration::ZERO };
    let sample = sampler.sample();
    Sample { wall: sample.at + asleep.as_nanos() as u64, ..sample }
}

fn mode_file(layout: &Layout) -> String {
    // Both drivers keep the folder when the mode changes, although the driver's name changes
    // (intel_pstate or intel_cpufreq, amd-pstate or amd-pstate-epp).
    let driver = layout.machine.driver.as_deref().unwrap_or_default();
    let folder = if driver.starts_with("amd") { "amd_pstate" } else { "intel_pstate" };
    format!("/sys/devices/system/cpu/{folder}/status")
}

fn what(what: missing::What) -> &'static str {
    match what {
        missing::What::Speed => "speed",
        missing::What::Reasons => "reasons",
        missing::What::Power => "power",
        missing::What::IdleStates => "idle-states",
        missing::What::Requests => "requests",
    }
}

fn write_power(
    out: &mut Exposition,
    sampler: &Sampler<'_>,
    groups: &Groups,
    to: &Sample,
    interval: &Interval,
) {
    let get = |quantity, index| sampler.places().get(to, quantity, index);
    let zones = [
        ("package", Quantity::PackageEnergy, &groups.packages[..]),
        ("dram", Quantity::DramEnergy, &groups.packages[..]),
        ("platform", Quantity::PlatformEnergy, &[String::new()][..]),
    ];
    for (zone, quantity, numbers) in zones {
        for (index, number) in numbers.iter().enumerate() {
            // Absent if the meter does not answer: a 0 would look like 0 W, and like a counter
            // reset when the meter comes back.
            if let Some(energy) = get(quantity, index) {
                out.add(names::ENERGY, &[("zone", zone), ("package", number)], energy as f64 / 1e6);
            }
        }
    }
    for (constraint, quantity) in
        [("long_term", Quantity::PowerLimit), ("short_term", Quantity::ShortPowerLimit)]
    {
        for (index, number) in groups.packages.iter().enumerate() {
            if let Some(limit) = get(quantity, index) {
                let labels = [("package", number.as_str()), ("constraint", constraint)];
                out.add(names::POWER_LIMIT, &labels, limit as f64 * 1e-6);
            }
        }
    }
    for (number, package) in groups.packages.iter().zip(&interval.packages) {
        if let Some(celsius) = package.celsius {
            out.add(names::TEMPERATURE, &[("package", number)], celsius);
        }
    }
}
