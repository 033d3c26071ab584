//! `trace record -M sim:NAME -- WORKLOAD`: a model of a workload in the machine's own time, and what the simulated
//! kernel's tracepoints say meanwhile. The pages are the simulated ring buffer's; the file is like any other.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_host::{CpuList, Host};
use flyball_sim::workload::Engine;
use flyball_simhost::{SimHost, workload_model};
use flyball_trace::{
    CpuStats, Decoder, EventFormat, Names, Page, PageHeader, Record, Tasks,
    dat::{self, CpuInput, Description},
    live::{CaptureSummary, CpuCapture, LiveSink},
};

use super::{
    super::{known, print::live_sink},
    Args, say,
};
use crate::{
    context::Context,
    exit::{Exit, Failure},
};

const TRACEFS: &str = "/sys/kernel/tracing";
const NAME: &str = "flyball";
/// KiB of a CPU's buffer, and how much of the machine's time passes between two looks at it.
const BUFFER_KIB: u64 = 4096;
const SLICE: Duration = Duration::from_millis(20);
/// Without a workload and a time there is no end: so long is what a person has the patience for.
const DEFAULT_TIME: Duration = Duration::from_secs(10);
/// A model that does not end.
const LONGEST: Duration = Duration::from_secs(3600);

/// What runs: words after `--`, as `flyball sim work` takes them.
struct Work {
    name: String,
    amount: Option<u64>,
    pins: Vec<u32>,
}

impl Work {
    fn parse(words: &[String]) -> Result<Work, Failure> {
        let usage = |message: String| Failure::usage(message);
        let mut work = Work { name: String::new(), amount: None, pins: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value =
                |option: &str| words.next().ok_or_else(|| usage(format!("{option} needs a value")));
            match word.as_str() {
                "--amount" => {
                    let text = value("--amount")?;
                    let amount = text.parse().ok().filter(|&amount: &u64| amount > 0);
                    work.amount = Some(amount.ok_or_else(|| usage(format!("amount '{text}' is no count")))?);
                }
                "--pin" => {
                    let list: CpuList =
                        value("--pin")?.parse().map_err(|error| usage(format!("--pin: {error}")))?;
                    work.pins = list.iter().collect();
                }
                _ if work.name.is_empty() && !word.starts_with('-') => work.name.clone_from(word),
                _ => {
                    return Err(usage(format!(
                        "'{word}' is not understood: on a simulated machine a model runs, not a command; give its name \
                         and perhaps --amount N and --pin CPUS"
                    )));
                }
            }
        }
        Ok(work)
    }
}

/// The recording's files: an instance of the simulated tracing.
struct Tracing<'m> {
    machine: &'m SimHost,
}

impl Tracing<'_> {
    fn path(name: &str) -> String {
        format!("{TRACEFS}/instances/{NAME}/{name}")
    }

    fn text(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.machine.read_into(path, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, name: &str, value: &str) -> Result<(), Failure> {
        Ok(self.machine.write(&Self::path(name), value.as_bytes())?)
    }

    /// Whether the machine has the event, `system/name`.
    fn has(&self, event: &str) -> bool {
        self.machine.exists(&format!("{TRACEFS}/events/{event}/format"))
    }

    /// Directories that may be events: what a group holds beside its switches.
    fn events(&self, group: &str) -> Vec<String> {
        let mut names = self.machine.list(&format!("{TRACEFS}/events/{group}")).unwrap_or_default();
        names.retain(|name| self.has(&format!("{group}/{name}")));
        names
    }
}

/// Records.
pub(super) fn run(context: &Context, args: &Args, machine: &SimHost) -> Result<Exit, Failure> {
    if args.page_kib.is_some_and(|kib| kib != 4) {
        return Err(Failure::usage("a simulated machine's sub-buffers have 4 KiB"));
    }
    let work = Work::parse(&args.command)?;
    let engine = if work.name.is_empty() {
        None
    } else {
        let model = workload_model(&work.name, work.amount)?;
        Some(Engine::new(model, work.pins, machine.seed()))
    };
    let tracing = Tracing { machine };
    let events = chosen(args, &tracing)?;
    machine
        .with(|machine| machine.make_directory(&format!("{TRACEFS}/instances"), NAME))
        .map_err(|errno| Failure::failed(format!("cannot make a trace instance: {errno:?}")))?;
    tracing.write("tracing_on", "0")?;
    tracing
        .write("trace_clock", &args.clock)
        .map_err(|_| Failure::usage(format!("no trace clock '{}'; see {TRACEFS}/trace_clock", args.clock)))?;
    tracing.write("buffer_size_kb", &args.buffer_kib.unwrap_or(BUFFER_KIB).to_string())?;
    for event in &events {
        tracing.write(&format!("events/{event}/enable"), "1")?;
    }
    let count = machine.with(|machine| machine.silicon().cpus()) as u32;
    let cpus: Vec<u32> =
        (0..count).filter(|&cpu| args.cpus.as_ref().is_none_or(|chosen| chosen.contains(cpu))).collect();
    let about = describe(context, &tracing, &events, count)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let live = args.live.then(|| Live::new(&about, &interrupted));
    let mut taken = Taken { pages: BTreeMap::new(), header: header(&about)?, live };
    let progress = engine.as_ref().map(Engine::shared);
    let end = args.time.unwrap_or(if engine.is_some() { LONGEST } else { DEFAULT_TIME });
    machine.with(|machine| machine.run(engine.map(|engine| Box::new(engine) as _)));
    tracing.write("tracing_on", "1")?;
    let started = machine.now();
    loop {
        let ran = machine.now().saturating_sub(started);
        if ran >= end || interrupted.load(Ordering::Acquire) {
            break;
        }
        machine.sleep(SLICE.min(end - ran));
        taken.take(machine, &cpus, false)?;
        let done = |progress: &flyball_sim::workload::Shared| {
            progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner).done
        };
        if progress.as_ref().is_some_and(done) {
            break;
        }
    }
    tracing.write("tracing_on", "0")?;
    taken.take(machine, &cpus, true)?;
    let summary = save(args, &tracing, &cpus, about, taken)?;
    machine.with(|machine| {
        machine.run(None);
        // The machine is nearly gone anyway.
        let _ = machine.remove_directory(&format!("{TRACEFS}/instances/{NAME}"));
    });
    if let Some(progress) = progress {
        let progress = progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        eprintln!(
            "flyball: {} (model): {} turns in {:.3} s, simulated",
            work.name,
            progress.turns,
            progress.ns as f64 * 1e-9
        );
    }
    say(&context.output.about(machine), &summary)?;
    Ok(Exit::Done)
}

/// The events to record, as `group/event`.
fn chosen(args: &Args, tracing: &Tracing<'_>) -> Result<Vec<String>, Failure> {
    let mut events = Vec::new();
    if !args.only {
        events.extend(flyball_trace::events::decisions().filter(|event| tracing.has(event)));
    }
    events.extend(args.idle.then(|| "power/cpu_idle".to_owned()));
    events.extend(args.sched.then(|| "sched/sched_switch".to_owned()));
    for event in &args.events {
        let event = event.replace(':', "/");
        if event.contains('/') {
            events.push(event);
        } else {
            let names = tracing.events(&event);
            if names.is_empty() {
                events.push(event);
            } else {
                events.extend(names.into_iter().map(|name| format!("{event}/{name}")));
            }
        }
    }
    match events.iter().find(|event| !tracing.has(event)) {
        Some(event) => {
            let event = event.replace('/', ":");
            Err(Failure::not_here(format!(
                "a simulated machine has no event {event}; it tells amd_cpu, power:cpu_frequency, \
                         power:cpu_frequency_limits, power:cpu_idle and power:pstate_sample"
            )))
        }
        None => Ok(events),
    }
}

/// What the file says beside its pages.
fn describe(
    context: &Context,
    tracing: &Tracing<'_>,
    events: &[String],
    cpus: u32,
) -> Result<Description, Failure> {
    let mut groups: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
    for event in events {
        let Some((group, _)) = event.split_once('/') else { continue };
        let format = tracing.text(&format!("{TRACEFS}/events/{event}/format"))?;
        match groups.iter_mut().find(|(known, _)| known == group) {
            Some((_, formats)) if formats.contains(&format) => {}
            Some((_, formats)) => formats.push(format),
            None => groups.push((group.to_owned(), vec![format])),
        }
    }
    let release = String::from_utf8_lossy(&tracing.text("/proc/sys/kernel/osrelease")?).trim().to_owned();
    let host = String::from_utf8_lossy(&tracing.text("/proc/sys/kernel/hostname")?).trim().to_owned();
    Ok(Description {
        page_size: 4096,
        header_page: tracing.text(&format!("{TRACEFS}/events/header_page"))?,
        header_event: tracing.text(&format!("{TRACEFS}/events/header_event"))?,
        ftrace_formats: vec![tracing.text(&format!("{TRACEFS}/events/ftrace/print/format"))?],
        event_formats: groups,
        kallsyms: Vec::new(),
        printk: Vec::new(),
        cmdlines: Vec::new(),
        clock: String::from_utf8_lossy(&tracing.text(&Tracing::path("trace_clock"))?).into_owned(),
        uname: format!("Linux {host} {release} x86_64"),
        writer: format!("flyball {}, of {} (simulated)", env!("CARGO_PKG_VERSION"), context.machine),
        stats: Vec::new(),
        cpus,
        machine: known::of_host(tracing.machine).ok(),
        // The same machine and workload make the same bytes.
        trace_id: 0x73_696d,
    })
}

fn header(about: &Description) -> Result<PageHeader, Failure> {
    PageHeader::parse(&about.header_page)
        .map_err(|error| Failure::failed(format!("events/header_page: {error}")))
}

/// Records as they come, for people.
struct Live {
    decoder: Decoder,
    sink: LiveSink,
    tasks: Tasks,
    batch: Vec<(Record, String)>,
}

impl Live {
    fn new(about: &Description, interrupted: &Arc<AtomicBool>) -> Live {
        let formats: Vec<EventFormat> = about
            .event_formats
            .iter()
            .flat_map(|(group, files)| files.iter().filter_map(|file| EventFormat::parse(group, file).ok()))
            .collect();
        let decoder = Decoder::new(&formats, &Names::default());
        Live { decoder, sink: live_sink(interrupted.clone()), tasks: Tasks::default(), batch: Vec::new() }
    }

    fn flush(&mut self) {
        for (record, _) in &mut self.batch {
            record.comm = self.tasks.name(record.pid);
        }
        self.batch.sort_by_key(|(record, _)| (record.time, record.cpu));
        (self.sink)(&self.batch);
        self.batch.clear();
    }
}

/// Pages that were taken, a nameless file a CPU.
struct Taken {
    pages: BTreeMap<u32, (File, u64, u64)>,
    header: PageHeader,
    live: Option<Live>,
}

impl Taken {
    /// Takes what the buffers hold: pages of those that are a quarter full, or at the end all.
    fn take(&mut self, machine: &SimHost, cpus: &[u32], all: bool) -> Result<(), Failure> {
        if let Some(live) = &mut self.live {
            let names = machine.with(|machine| machine.read(&format!("{TRACEFS}/saved_cmdlines")));
            live.tasks = Tasks::parse(&names.unwrap_or_default());
        }
        for &cpu in cpus {
            let path = Tracing::path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            loop {
                let waits = !all && self.live.is_none() && !machine.with(|machine| machine.is_ready(&path));
                if waits {
                    break;
                }
                let Ok(pages) = machine.with(|machine| machine.take(&path, 1 << 20)) else { break };
                self.keep(cpu, &pages).map_err(|error| {
                    Failure::failed(format!("cannot keep the pages of CPU {cpu}: {error}"))
                })?;
            }
        }
        if let Some(live) = &mut self.live {
            live.flush();
        }
        Ok(())
    }

    fn keep(&mut self, cpu: u32, pages: &[u8]) -> std::io::Result<()> {
        let (file, size, count) = match self.pages.entry(cpu) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert((tempfile::tempfile()?, 0, 0)),
        };
        file.write_all(pages)?;
        *size += pages.len() as u64;
        for bytes in pages.chunks(4096) {
            let Ok(page) = Page::parse(bytes, self.header) else { continue };
            *count += page.count().0;
            if let Some(live) = &mut self.live {
                let records = page.entries().filter_map(Result::ok);
                live.batch.extend(records.filter_map(|entry| {
                    let record = live.decoder.decode(entry.time, cpu, entry.payload).ok()?;
                    Some((record, live.decoder.other(&record, entry.payload)))
                }));
            }
        }
        Ok(())
    }
}

fn save(
    args: &Args,
    tracing: &Tracing<'_>,
    cpus: &[u32],
    mut about: Description,
    taken: Taken,
) -> Result<CaptureSummary, Failure> {
    about.cmdlines = tracing.text(&format!("{TRACEFS}/saved_cmdlines"))?;
    let mut captured = Vec::new();
    let mut inputs = Vec::new();
    let mut pages = taken.pages;
    for &cpu in cpus {
        let text = tracing.text(&Tracing::path(&format!("per_cpu/cpu{cpu}/stats")))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let stats = CpuStats::parse(cpu, &text);
        about.stats.push(format!("CPU: {cpu}\n{text}"));
        let (file, bytes, received) = match pages.remove(&cpu) {
            Some(taken) => taken,
            None => (tempfile::tempfile().map_err(Failure::failed)?, 0, 0),
        };
        captured.push(CpuCapture { cpu, received, bytes, stats });
        inputs.push(CpuInput { cpu, pages: file, size: bytes });
    }
    let directory = args.output.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    dat::save(directory, &args.output, args.file_version, &about, &mut inputs)?;
    Ok(CaptureSummary {
        file: args.output.clone(),
        received: captured.iter().map(|cpu| cpu.received).sum(),
        lost: captured.iter().map(|cpu| cpu.stats.lost()).sum(),
        written: captured.iter().map(|cpu| cpu.stats.written()).sum(),
        bytes: captured.iter().map(|cpu| cpu.bytes).sum(),
        leftovers: Vec::new(),
        cpus: captured,
    })
}
