//! Tracepoints that show what woke a CPU. They use their own tracefs instance, which is read while
//! it records.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use flyball_host::{
    CpuList, Errno, Host, HostError, Op,
    tracefs::{Instance, InstanceOptions, PageReader, Tracefs, wait_for_pages},
};
use flyball_trace::{
    Comm, CpuStats, EventFormat, Field, Missed, Page, PageHeader, Tasks, live::default_buffer,
};

use crate::{
    SourceKind, WakeError,
    sources::{Attribution, Names, TracedEvent, What},
};

/// Events without which nothing can be attributed.
const NEEDED: [&str; 3] = ["power/cpu_idle", "sched/sched_waking", "sched/sched_switch"];

/// Events that name interrupts, if the kernel has them.
const INTERRUPTS: [(&str, SourceKind, &str); 10] = [
    ("irq/irq_handler_entry", SourceKind::Device, ""),
    ("irq_vectors/local_timer_entry", SourceKind::Timer, "local timer"),
    ("irq_vectors/reschedule_entry", SourceKind::Reschedule, "reschedule IPI"),
    ("irq_vectors/call_function_entry", SourceKind::FunctionCall, "function-call IPI"),
    ("irq_vectors/call_function_single_entry", SourceKind::FunctionCall, "function-call IPI"),
    ("irq_vectors/irq_work_entry", SourceKind::Other, "irq work"),
    ("irq_vectors/thermal_apic_entry", SourceKind::Other, "thermal interrupt"),
    ("irq_vectors/x86_platform_ipi_entry", SourceKind::Other, "platform IPI"),
    // arm64 and arm.
    ("ipi/ipi_entry", SourceKind::Reschedule, "IPI"),
    ("nmi/nmi_handler", SourceKind::Other, "NMI"),
];

const RAISE: &str = "irq/softirq_raise";

/// How full a buffer must be to wake the reader, percent.
const WAKE_PERCENT: u32 = 10;

/// The shortest and the longest time between two readings. The minimum is for kernels without a
/// fill level, where any record wakes the reader: its own wake-ups would keep it awake.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(450)];

/// A record gets its timestamp before it can be read, ns. Younger records wait for the next
/// reading, so that the records of all CPUs are in order.
const SETTLE: u64 = 1_000_000;

/// If there are more records than this in a second, only windows are recorded from then on, so that
/// recording and reading cost less than 3 % of a CPU (docs/dev/trace.md).
const MAX_RECORDS: u64 = 30_000;

/// The expected records of a window. Switching the events costs about as much as 10,000.
const WINDOW_RECORDS: u64 = 10_000;

/// Each period has one window at a random position, ns, so that something that happens once a
/// second is neither always missed nor always seen.
const PERIOD: u64 = 1_000_000_000;

/// The shortest and the longest window, ns.
const WINDOW: [u64; 2] = [10_000_000, 500_000_000];

/// A running trace. Dropping it removes all of it.
#[derive(Debug)]
pub struct Tracing {
    tracefs: Tracefs,
    instance: Option<Instance>,
    readers: Vec<PageReader>,
    events: Vec<String>,
    reading: Option<(Arc<AtomicBool>, Thread)>,
}

/// Returns filters for events that need not be recorded. Any CPU may do the waking, so only two
/// events can be restricted to the watched CPUs. Kernels before 6.6 have no CPU filters.
fn filters(cpus: &CpuList, of: u32) -> Vec<(&'static str, Vec<String>)> {
    let from_idle = "prev_pid == 0".to_owned();
    if cpus.len() == of as usize {
        return vec![("sched/sched_switch", vec![from_idle])];
    }
    let here = format!("CPU & CPUS{{{cpus}}}");
    let both = format!("{from_idle} && {here}");
    vec![("power/cpu_idle", vec![here]), ("sched/sched_switch", vec![both, from_idle])]
}

type Thread = JoinHandle<Result<Reading, HostError>>;

/// The result of a trace.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) attribution: Attribution,
    pub(crate) names: Names,
    pub(crate) records: u64,
    pub(crate) lost: u64,
    /// How long events were recorded, if not all the time.
    pub(crate) sampled: Option<Duration>,
    /// CPU time of the reading thread.
    pub(crate) cost: Duration,
}

impl Outcome {
    /// Returns the rate that one exit in the trace stands for, if cpuidle counted `counted` exits.
    pub(crate) fn rate_of_each(&self, counted: u64, seconds: f64) -> f64 {
        let seen = self.attribution.seen;
        match self.sampled {
            None => 1.0 / seconds,
            Some(_) if counted > 0 && seen > 0 => counted as f64 / seen as f64 / seconds,
            Some(time) => 1.0 / time.as_secs_f64().max(1e-9),
        }
    }
}

impl Tracing {
    /// Starts recording the wake-ups of `cpus`.
    ///
    /// # Errors
    /// No permission to trace, or missing events.
    pub fn start(host: &dyn Host, cpus: &CpuList) -> Result<Tracing, WakeError> {
        let tracefs = host.tracefs()?;
        // Instances of killed runs.
        tracefs.remove_leftovers()?;
        let has =
            |event: &&str| event.split_once('/').is_some_and(|(group, name)| tracefs.has_event(group, name));
        if let Some(missing) = NEEDED.iter().find(|event| !has(event)) {
            return Err(WakeError::NoEvent(missing, host.name()));
        }
        let optional = INTERRUPTS.iter().map(|row| row.0).chain([RAISE]);
        let events: Vec<String> =
            NEEDED.into_iter().chain(optional.filter(|event| has(event))).map(str::to_owned).collect();
        let options = InstanceOptions {
            filters: filters(cpus, tracefs.cpu_count()),
            events: events.clone(),
            buffer_kib: default_buffer(host, &tracefs),
            wished_page_kib: Some(16),
            clock: Some("mono".to_owned()),
            wake_percent: WAKE_PERCENT,
            ..InstanceOptions::default()
        };
        let instance = Instance::create(&tracefs, &options)?;
        let mut readers = Vec::new();
        for cpu in instance.cpus()? {
            readers.push(instance.reader(cpu)?);
        }
        instance.start()?;
        Ok(Tracing { tracefs, instance: Some(instance), readers, events, reading: None })
    }

    /// Starts the thread that reads the trace. Exits of each CPU count from its time in `starts`
    /// on.
    pub(crate) fn read(&mut self, polls: Vec<bool>, starts: Vec<(u32, u64)>) -> Result<(), WakeError> {
        let failed = || HostError::new(Op::Read, "trace_pipe_raw", Errno::IO);
        let instance = self.instance.as_ref().ok_or_else(failed)?;
        let switches = self.events.iter();
        let switches =
            switches.map(|event| format!("instances/{}/events/{event}/enable", instance.name())).collect();
        let mut reading = Reading {
            recorder: Recorder::new(self.tracefs.clone(), switches),
            layouts: Layouts::new(&self.tracefs, &self.events)?,
            attribution: Attribution::new(polls, starts),
            waiting: Vec::new(),
            records: 0,
            cost: Duration::ZERO,
        };
        let readers = std::mem::take(&mut self.readers);
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let run = move || reading.run(&readers, &ended).map(|()| reading);
        let thread = std::thread::Builder::new().name("trace".into()).spawn(run);
        let thread =
            thread.map_err(|error| HostError::new(Op::Read, "trace_pipe_raw", Errno::from(&error)))?;
        self.reading = Some((end, thread));
        Ok(())
    }

    /// Ends the trace. Exits of each CPU count up to its time in `ends`.
    pub(crate) fn finish(mut self, ends: Vec<(u32, u64)>) -> Result<Outcome, HostError> {
        let failed = || HostError::new(Op::Read, "trace_pipe_raw", Errno::IO);
        let instance = self.instance.take().ok_or_else(failed)?;
        instance.stop()?;
        let mut reading = self.join().ok_or_else(failed)??;
        let sampled = reading.recorder.sampled();
        let mut lost = 0_u64;
        for cpu in instance.cpus()? {
            lost = lost.saturating_add(CpuStats::parse(cpu, &instance.stats(cpu)?).lost());
        }
        let began = flyball_process::thread_time();
        reading.attribution.end(ends);
        reading.hand_on(u64::MAX);
        reading.attribution.finish();
        let mut names = reading.layouts.names;
        // Names of threads that woke others but were never woken on an idle CPU themselves.
        let known = Tasks::parse(&self.tracefs.read("saved_cmdlines").unwrap_or_default());
        known.iter().for_each(|(pid, name)| {
            names.threads.entry(pid).or_insert(name);
        });
        instance.remove()?;
        Ok(Outcome {
            attribution: reading.attribution,
            names,
            records: reading.records,
            lost,
            sampled,
            cost: reading.cost + flyball_process::thread_time().saturating_sub(began),
        })
    }

    fn join(&mut self) -> Option<Result<Reading, HostError>> {
        let (end, thread) = self.reading.take()?;
        end.store(true, Ordering::Release);
        thread.join().ok()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // The instance is dropped later and can only be removed when no reader is open.
        self.join();
        self.readers.clear();
    }
}

/// The time of the trace's clock, ns.
pub(crate) fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether events are recorded now.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// All the time. Has the start of this period, and the number of records until then.
    Whole {
        since: u64,
        records: u64,
    },
    /// In a window that ends at this time.
    On {
        until: u64,
    },
    Off {
        until: u64,
    },
}

/// Switches the events on and off to limit the number of records.
#[derive(Debug)]
struct Recorder {
    tracefs: Tracefs,
    /// One file per event, which switches it.
    switches: Vec<String>,
    phase: Phase,
    /// Length of a window, ns.
    window: u64,
    period: u64,
    random: u64,
    /// When the current recording started, and the total length of earlier ones, ns.
    began: u64,
    recorded: u64,
}

impl Recorder {
    fn new(tracefs: Tracefs, switches: Vec<String>) -> Recorder {
        let now = monotonic_ns();
        let phase = Phase::Whole { since: now, records: 0 };
        Recorder {
            tracefs,
            switches,
            phase,
            window: 0,
            period: now,
            random: now | 1,
            began: now,
            recorded: 0,
        }
    }

    /// Switches the events on or off when it is time. Returns what to tell the attribution, and
    /// from when on it applies.
    fn step(&mut self, records: u64) -> Result<Option<(u64, What)>, HostError> {
        let now = monotonic_ns();
        match self.phase {
            Phase::Whole { since, records: before } => {
                let (passed, records_here) = (now - since, records - before);
                if records_here > MAX_RECORDS && passed < 2 * PERIOD {
                    let window = WINDOW_RECORDS.saturating_mul(passed) / records_here;
                    self.window = window.clamp(WINDOW[0], WINDOW[1]);
                    self.period = now;
                    return self.switch_off().map(Some);
                }
                if passed >= PERIOD {
                    self.phase = Phase::Whole { since: now, records };
                }
                Ok(None)
            }
            Phase::On { until } if now >= until => self.switch_off().map(Some),
            Phase::Off { until } if now >= until => {
                self.switch("1")?;
                self.began = monotonic_ns();
                self.phase = Phase::On { until: self.began + self.window };
                Ok(Some((self.began, What::Resume)))
            }
            _ => Ok(None),
        }
    }

    /// Switches the events themselves: stopping only the recording would leave more than half of
    /// their cost.
    fn switch(&self, value: &str) -> Result<(), HostError> {
        self.switches.iter().try_for_each(|path| self.tracefs.files().write(path, value))
    }

    fn switch_off(&mut self) -> Result<(u64, What), HostError> {
        let now = monotonic_ns();
        self.recorded += now - self.began;
        self.switch("0")?;
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.period = (self.period + PERIOD).max(now);
        self.phase = Phase::Off { until: self.period + self.random % (PERIOD - self.window) };
        Ok((now, What::Pause))
    }

    /// How long to sleep.
    fn pause(&self) -> Duration {
        match self.phase {
            Phase::Whole { .. } => PAUSES[0],
            Phase::On { until } => Duration::from_nanos(until.saturating_sub(monotonic_ns())).min(PAUSES[0]),
            Phase::Off { until } => Duration::from_nanos(until.saturating_sub(monotonic_ns())).min(PAUSES[1]),
        }
    }

    /// How long events were recorded, if not all the time.
    fn sampled(&self) -> Option<Duration> {
        let open = match self.phase {
            Phase::Whole { .. } => return None,
            Phase::On { .. } => monotonic_ns().saturating_sub(self.began),
            Phase::Off { .. } => 0,
        };
        Some(Duration::from_nanos(self.recorded + open))
    }
}

/// The reading thread's state: attributes the records.
#[derive(Debug)]
struct Reading {
    recorder: Recorder,
    layouts: Layouts,
    attribution: Attribution,
    /// Events that are decoded, and not yet in order.
    waiting: Vec<TracedEvent>,
    records: u64,
    cost: Duration,
}

impl Reading {
    fn run(&mut self, readers: &[PageReader], end: &AtomicBool) -> Result<(), HostError> {
        // Records are lost if this thread runs late.
        flyball_process::prefer_thread();
        let size = readers.iter().map(PageReader::page_size).max().unwrap_or(0);
        let mut page = vec![0; size];
        let mut ready = Vec::new();
        loop {
            let last = end.load(Ordering::Acquire);
            let now = monotonic_ns();
            for reader in readers {
                // Read until the buffer is empty, or until the page begins after the start of this
                // reading.
                while reader.read_page(&mut page[..reader.page_size()])? {
                    if self.take(reader.cpu(), &page[..reader.page_size()]) > now && !last {
                        break;
                    }
                }
            }
            // The last events are only attributed once the end of the interval is known.
            if last {
                self.cost = flyball_process::thread_time();
                return Ok(());
            }
            let mark = self.recorder.step(self.records)?;
            self.waiting.extend(mark.map(|(time, what)| TracedEvent {
                time,
                cpu: 0,
                pid: 0,
                flags: 0,
                what,
            }));
            self.hand_on(now.saturating_sub(SETTLE));
            std::thread::sleep(self.recorder.pause());
            if matches!(self.recorder.phase, Phase::Whole { .. }) {
                wait_for_pages(readers, PAUSES[1], &mut ready)?;
            }
        }
    }

    /// Decodes a page. Returns the page's timestamp.
    fn take(&mut self, cpu: u32, bytes: &[u8]) -> u64 {
        // The running kernel's header. Like this program, it has 64 bits.
        let Ok(page) = Page::parse(bytes, PageHeader::default()) else { return 0 };
        if page.missed != Missed::None {
            self.waiting.push(TracedEvent { time: page.time, cpu, pid: 0, flags: 0, what: What::Lost });
        }
        for entry in page.entries().flatten() {
            self.records += 1;
            self.waiting.extend(self.layouts.decode(entry.time, cpu, entry.payload));
        }
        page.time
    }

    /// Passes events before `until` to the attribution.
    fn hand_on(&mut self, until: u64) {
        // A stable sort: the events of each CPU are already in order.
        self.waiting.sort_by_key(|seen| seen.time);
        let count = self.waiting.partition_point(|seen| seen.time < until);
        for seen in self.waiting.drain(..count) {
            self.attribution.add(&seen, &self.layouts.names);
        }
    }
}

/// Positions of an event's fields.
#[derive(Debug)]
enum Layout {
    Idle(Field),
    Waking(Field),
    Switch(Field, Field),
    Handler(Field, Field),
    Vector(u16),
    Raise,
}

/// The layouts of the events, from their format files.
#[derive(Debug)]
struct Layouts {
    /// By number of the event.
    by_id: Vec<Option<Layout>>,
    flags: Field,
    pid: Field,
    names: Names,
    /// By number of a device interrupt: its index.
    devices: HashMap<i64, u16>,
}

impl Layouts {
    fn new(tracefs: &Tracefs, events: &[String]) -> Result<Layouts, HostError> {
        let wrong = |event: &str| HostError::new(Op::Read, format!("events/{event}/format"), Errno::INVAL);
        let mut by_id = Vec::new();
        let mut common = None;
        let mut names = Names::default();
        for event in events {
            let bytes = tracefs.read(&format!("events/{event}/format"))?;
            let format = EventFormat::parse("", &bytes).map_err(|_| wrong(event))?;
            let field = |name: &str| format.field(name).cloned().ok_or_else(|| wrong(event));
            let layout = match event.as_str() {
                "power/cpu_idle" => Layout::Idle(field("state")?),
                "sched/sched_waking" => Layout::Waking(field("pid")?),
                "sched/sched_switch" => Layout::Switch(field("next_pid")?, field("next_comm")?),
                "irq/irq_handler_entry" => Layout::Handler(field("irq")?, field("name")?),
                RAISE => Layout::Raise,
                _ => {
                    let row = INTERRUPTS.iter().find(|row| row.0 == event);
                    let (_, kind, name) = row.ok_or_else(|| wrong(event))?;
                    Layout::Vector(names.interrupt(*kind, name))
                }
            };
            let id = usize::from(format.id);
            if by_id.len() <= id {
                by_id.resize_with(id + 1, || None);
            }
            by_id[id] = Some(layout);
            common = Some((field("common_flags")?, field("common_pid")?));
        }
        let (flags, pid) = common.ok_or_else(|| wrong("power/cpu_idle"))?;
        Ok(Layouts { by_id, flags, pid, names, devices: HashMap::new() })
    }

    /// Decodes a record. `None` if it is cut off or of another event.
    fn decode(&mut self, time: u64, cpu: u32, payload: &[u8]) -> Option<TracedEvent> {
        let id = u16::from_le_bytes(*payload.first_chunk()?);
        let number = |field: &Field| field.integer(payload);
        let what = match self.by_id.get(usize::from(id))?.as_ref()? {
            Layout::Idle(state) => match number(state)? as u32 {
                // PWR_EVENT_EXIT in include/trace/events/power.h.
                u32::MAX => What::Exit,
                state => What::Enter(state),
            },
            Layout::Waking(pid) => What::Waking(number(pid)? as i32),
            // Only switches from the idle task, even if there is no filter.
            Layout::Switch(..) if number(&self.pid)? != 0 => return None,
            Layout::Switch(pid, comm) => {
                let pid = number(pid)? as i32;
                self.names.threads.insert(pid, Comm::new(comm.text(payload)?));
                What::Run(pid)
            }
            Layout::Handler(irq, name) => {
                let irq = number(irq)?;
                let index = match self.devices.get(&irq) {
                    Some(index) => *index,
                    None => {
                        let name = String::from_utf8_lossy(name.text(payload)?);
                        let index = self.names.interrupt(SourceKind::Device, &format!("{name} (IRQ {irq})"));
                        self.devices.insert(irq, index);
                        index
                    }
                };
                What::Interrupt(index)
            }
            Layout::Vector(index) => What::Interrupt(*index),
            Layout::Raise => What::Raise,
        };
        Some(TracedEvent {
            time,
            cpu,
            pid: number(&self.pid)? as i32,
            flags: number(&self.flags)? as u8,
            what,
        })
    }
}

impl Names {
    /// Returns the index of an interrupt. Adds it if it is new.
    fn interrupt(&mut self, kind: SourceKind, name: &str) -> u16 {
        let known = self.interrupts.iter().position(|known| known.1 == name);
        let index = known.unwrap_or_else(|| {
            self.interrupts.push((kind, name.to_owned()));
            self.interrupts.len() - 1
        });
        u16::try_from(index).unwrap_or(u16::MAX)
    }
}
