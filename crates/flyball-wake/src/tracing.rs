//! The tracepoints that say what woke a CPU: an instance of its own, read while it records.

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

/// A buffer that is this full, in percent, wakes the reader.
const WAKE_PERCENT: u32 = 10;

/// The shortest and the longest time between two readings. A kernel without a fill level wakes the
/// reader by any record, so that its own wake-ups would keep it awake.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(450)];

/// A record gets its time before it can be read, ns: younger ones wait for the next reading, so
/// that those of all CPUs are in order.
const SETTLE: u64 = 1_000_000;

/// If there are more records than this in a second, only windows are recorded from then on, so that
/// recording and reading cost about 3 % of a CPU (docs/dev/trace.md).
const MAX_RECORDS: u64 = 40_000;

/// The expected records of a window. Switching the events costs about as much as 10,000.
const WINDOW_RECORDS: u64 = 30_000;

/// A window is recorded at a random place of each period, ns, so that nothing that happens once a
/// second is always missed, or always seen.
const PERIOD: u64 = 1_000_000_000;

/// The shortest and the longest window, ns.
const WINDOW: [u64; 2] = [10_000_000, 500_000_000];

/// A trace that has begun. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Tracing {
    tracefs: Tracefs,
    instance: Option<Instance>,
    readers: Vec<PageReader>,
    events: Vec<String>,
    reading: Option<(Arc<AtomicBool>, Thread)>,
}

/// What need not be recorded. Whoever wakes a CPU may run on any other one, so only two events are
/// of few CPUs. Kernels before 6.6 cannot choose CPUs in a filter.
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

/// What the trace said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) attribution: Attribution,
    pub(crate) names: Names,
    pub(crate) records: u64,
    pub(crate) lost: u64,
    /// How long events were recorded, if not all the time.
    pub(crate) sampled: Option<Duration>,
    /// CPU time of the thread that read it.
    pub(crate) cost: Duration,
}

impl Outcome {
    /// Exits a second for each that the trace has, of `counted` ones.
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
    /// Begins to record the wake-ups of `cpus`.
    ///
    /// # Errors
    /// Without the right to trace, or the events.
    pub fn start(host: &dyn Host, cpus: &CpuList) -> Result<Tracing, WakeError> {
        let tracefs = host.tracefs()?;
        // Of killed runs.
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

    /// Reads the trace from now on, and counts the exits of each CPU from its time in `starts` on.
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

    /// Ends the trace. The exits of each CPU count up to its time in `ends`.
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
        // For threads that woke others and were not woken out of an idle CPU themselves.
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
        // The instance, dropped later, can be removed when no reader is open.
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
    /// All the time: the start of this period, and the records until then.
    Whole {
        since: u64,
        records: u64,
    },
    /// In a window, up to a time.
    On {
        until: u64,
    },
    Off {
        until: u64,
    },
}

/// Switches the events, so that there are not too many records.
#[derive(Debug)]
struct Recorder {
    tracefs: Tracefs,
    /// The files that switch an event each.
    switches: Vec<String>,
    phase: Phase,
    /// Length of a window, ns.
    window: u64,
    /// Start of this period.
    period: u64,
    random: u64,
    /// Since when events are recorded, and the time of recordings that ended, ns.
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

    /// Switches the events on or off if it is time to. Returns what the attribution has to know,
    /// and from when on.
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

    /// Stopping the recording alone would leave more than half of what events cost.
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

/// What becomes of the records, on the thread that reads them.
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
        // Late is lost.
        flyball_process::prefer_thread();
        let size = readers.iter().map(PageReader::page_size).max().unwrap_or(0);
        let mut page = vec![0; size];
        let mut ready = Vec::new();
        loop {
            let last = end.load(Ordering::Acquire);
            let now = monotonic_ns();
            for reader in readers {
                // Until it is empty, or behind the time at which this reading began.
                while reader.read_page(&mut page[..reader.page_size()])? {
                    if self.take(reader.cpu(), &page[..reader.page_size()]) > now && !last {
                        break;
                    }
                }
            }
            // The last events are ordered when it is known up to when exits count.
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

    /// Decodes a page. Returns the time at which it begins.
    fn take(&mut self, cpu: u32, bytes: &[u8]) -> u64 {
        // That of the running kernel, which has 64 bits as this program has.
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

    /// Attributes what happened before `until`.
    fn hand_on(&mut self, until: u64) {
        // Stable: those of one CPU are in order.
        self.waiting.sort_by_key(|seen| seen.time);
        let count = self.waiting.partition_point(|seen| seen.time < until);
        for seen in self.waiting.drain(..count) {
            self.attribution.add(&seen, &self.layouts.names);
        }
    }
}

/// Where the fields of an event lie.
#[derive(Debug)]
enum Layout {
    Idle(Field),
    Waking(Field),
    Switch(Field, Field),
    Handler(Field, Field),
    Vector(u16),
    Raise,
}

/// The layouts of the events, as their format files have them.
#[derive(Debug)]
struct Layouts {
    /// By number of the event.
    by_id: Vec<Option<Layout>>,
    flags: Field,
    pid: Field,
    names: Names,
    /// Indices of the interrupts of devices, by number.
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

    /// `None` for a record that is cut off, or no event of these.
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
            // Only from the idle task, with or without the filter.
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
    /// The index of an interrupt.
    fn interrupt(&mut self, kind: SourceKind, name: &str) -> u16 {
        let known = self.interrupts.iter().position(|known| known.1 == name);
        let index = known.unwrap_or_else(|| {
            self.interrupts.push((kind, name.to_owned()));
            self.interrupts.len() - 1
        });
        u16::try_from(index).unwrap_or(u16::MAX)
    }
}
