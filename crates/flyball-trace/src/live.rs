//! Recording a machine's trace: a separate instance, its pages into a trace.dat file, every record accounted for.
//!
//! Reader threads, each for some CPUs, sleep until a buffer is a quarter full, take its pages, count their records
//! and write them, past the page cache, into a stretch of a nameless file with holes. [`Capture::stop`] takes the
//! holes out, writes the head in front, and gives the file its name: no page is copied a second time. Where the file
//! system cannot do that, each CPU has its own file, and they are copied together. A process that is killed leaves an
//! instance, which the next capture removes, and no files.
//!
//! The time of a machine in software stands still while its buffers are read, so there the pages are taken by
//! [`Capture::attend`], on the thread that lets its time pass: reader threads would make what is lost, and where pages
//! end, depend on the host's scheduler.

mod collect;
mod describe;

use std::{
    io::{Seek, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use flyball_host::{
    CpuList, Host, HostError,
    spool::{self, Spool},
    tracefs::{Instance, InstanceOptions, PageReader, Tracefs, memory_kib},
};

use crate::{
    clock::Clock,
    dat::{self, CpuInput, DatVersion, Description, Head},
    decode::Decoder,
    error::TraceError,
    machine::Machine,
    names::Names,
    record::Record,
    stats::CpuStats,
};

use collect::{Collector, CpuPart, Place};

/// Called with the records of some pages, in the order of their time, while they are recorded. Events that are passed
/// through have their name and fields beside them; the text is empty for all others.
pub type LiveSink = Box<dyn FnMut(&[(Record, String)]) + Send>;

/// What to record.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Events: `group/event` or `group:event`, or `group` for all of a group.
    pub events: Vec<String>,
    /// CPUs to record on; all if not given.
    pub cpus: Option<CpuList>,
    /// Buffer of each CPU, KiB; 8 MiB, less on machines with little memory or many CPUs, if not given.
    pub buffer_kib: Option<u64>,
    /// Sub-buffer size, KiB, where the kernel can change it. If not given, 16 KiB where that can be had, and the
    /// kernel's 4 KiB with a live sink, for which sub-buffers are taken before they are full.
    pub page_kib: Option<u32>,
    /// The trace clock; `mono`, which every program can read and which is the same on all CPUs, if not given.
    pub clock: Option<String>,
    /// Where the pages are kept until the recording ends: a directory on the disk that the file will be on.
    pub directory: PathBuf,
    /// The name of the program that writes the file, which the file carries.
    pub writer: String,
    /// What is known of the machine, to judge the trace elsewhere.
    pub machine: Option<Machine>,
    /// Tells this recording from others of the machine, in the file.
    pub trace_id: u64,
}

impl CaptureOptions {
    /// The events that tell a P-state driver's decisions, as far as this kernel has them.
    pub fn default_events(tracefs: &Tracefs) -> Vec<String> {
        crate::events::by_default()
            .filter(|event| {
                event.split_once('/').is_some_and(|(group, event)| tracefs.has_event(group, event))
            })
            .collect()
    }
}

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The kernel refused.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The file could not be written.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// It cannot be done here.
    #[error("{0}")]
    NotHere(String),
}

/// What one CPU recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CpuCapture {
    /// The CPU.
    pub cpu: u32,
    /// Records in the file, counted page by page.
    pub received: u64,
    /// Bytes of pages in the file.
    pub bytes: u64,
    /// What the kernel counted.
    pub stats: CpuStats,
}

impl CpuCapture {
    /// Whether every record is accounted for: received and lost are what the kernel wrote.
    pub fn balanced(&self) -> bool {
        self.received + self.stats.lost() + self.stats.entries == self.stats.written()
    }
}

/// What a capture recorded.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CaptureSummary {
    /// The file.
    pub file: PathBuf,
    /// Records in it.
    pub received: u64,
    /// Records that were overwritten or refused before they could be read.
    pub lost: u64,
    /// Records that the kernel wrote: received and lost.
    pub written: u64,
    /// Bytes of pages.
    pub bytes: u64,
    /// Instances that an earlier, killed run had left, and that were removed.
    pub leftovers: Vec<String>,
    /// Each CPU with a buffer.
    pub cpus: Vec<CpuCapture>,
}

/// A capture that is running. Dropped without [`Capture::stop`], it records no more and leaves nothing behind.
#[derive(Debug)]
pub struct Capture {
    tracefs: Tracefs,
    instance: Option<Instance>,
    events: Vec<String>,
    about: Origin,
    directory: PathBuf,
    /// The file, where the file system can take the holes out of it.
    spool: Option<Spool>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Vec<CpuPart>, CaptureError>>>,
    /// Reads all buffers, in place of threads, on a machine in software.
    attendant: Option<Collector>,
    names: Arc<describe::TaskNames>,
    leftovers: Vec<String>,
}

/// Where a recording comes from, as its file says.
#[derive(Debug)]
struct Origin {
    uname: String,
    writer: String,
    machine: Option<Machine>,
    trace_id: u64,
}

/// Sub-buffers of 16 KiB are read with a quarter of the system calls; larger ones gain little more, and cost a short
/// recording on hundreds of CPUs more disk, because a CPU's last is stored whole.
const PAGE_KIB: u32 = 16;

/// CPUs that one thread reads. At 100,000 records a second and CPU it is busy for a tenth of the time.
const CPUS_PER_THREAD: usize = 32;

impl Capture {
    /// Starts to record `host`. With `live`, also hands on the records as they come, a quarter second late.
    ///
    /// # Errors
    /// Without root or tracefs, for events or clocks that the kernel does not have, and for buffers that do not fit.
    pub fn start(
        host: &dyn Host,
        options: &CaptureOptions,
        live: Option<LiveSink>,
    ) -> Result<Capture, CaptureError> {
        let tracefs = host.tracefs()?;
        let leftovers = tracefs.remove_leftovers().unwrap_or_default();
        let events: Vec<String> = options.events.iter().map(|event| event.replace(':', "/")).collect();
        if events.is_empty() {
            return Err(CaptureError::NotHere(
                "this kernel has none of the events that tell performance requests".into(),
            ));
        }
        if let Some(event) = events
            .iter()
            .find(|event| !plain(event) || tracefs.directories(&format!("events/{event}")).is_err())
        {
            return Err(CaptureError::NotHere(format!(
                "this kernel has no event {event}; see events/ in {}",
                tracefs.root()
            )));
        }
        let instance = Instance::create(
            &tracefs,
            &InstanceOptions {
                events: events.clone(),
                cpus: options.cpus.clone(),
                buffer_kib: options.buffer_kib.unwrap_or_else(|| default_buffer(host, &tracefs)),
                page_kib: options.page_kib,
                wished_page_kib: live.is_none().then_some(PAGE_KIB),
                clock: Some(options.clock.clone().unwrap_or_else(|| "mono".into())),
                wake_percent: 25,
            },
        )?;
        let mut readers = Vec::new();
        for cpu in instance.cpus()? {
            if options.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu)) {
                readers.push(instance.reader(cpu)?);
            }
        }
        let names = Arc::new(describe::TaskNames::default());
        let live = live.map(|sink| {
            let formats = describe::formats(&tracefs, &events);
            let decoder = Decoder::new(&formats, &Names::default());
            Arc::new(collect::Live::new(decoder, sink, names.clone()))
        });
        // What is printed as it comes is written in small pieces, which the page cache puts together.
        let spool = if live.is_none() { Spool::create_in(&options.directory, readers.len()) } else { None };
        let mut parts = Vec::new();
        for (number, reader) in readers.iter().enumerate() {
            let stretch = spool.as_ref().map(|spool| spool.stretch(number));
            parts.push(CpuPart::new(reader.cpu(), &options.directory, stretch)?);
        }
        let end = Arc::new(AtomicBool::new(false));
        let mut capture = Capture {
            tracefs,
            instance: Some(instance),
            events,
            about: Origin {
                uname: host.uname(),
                writer: options.writer.clone(),
                machine: options.machine.clone(),
                trace_id: options.trace_id,
            },
            directory: options.directory.clone(),
            spool,
            end,
            threads: Vec::new(),
            attendant: None,
            names,
            leftovers,
        };
        let all_names = (capture.tracefs.clone(), capture.names.clone());
        if !capture.tracefs.files().is_concurrent() {
            capture.attendant = Some(Collector::new(readers, parts, live, Some(all_names)));
            if let Some(instance) = &capture.instance {
                instance.start()?;
            }
            return Ok(capture);
        }
        let (mut readers, mut parts) = (readers.into_iter(), parts.into_iter());
        let mut all_names = Some(all_names);
        loop {
            let some: Vec<PageReader> = readers.by_ref().take(CPUS_PER_THREAD).collect();
            if some.is_empty() {
                break;
            }
            let places = parts.by_ref().take(CPUS_PER_THREAD).collect();
            // One thread is enough to look at the names of tasks.
            let collector = Collector::new(some, places, live.clone(), all_names.take());
            let end = capture.end.clone();
            let thread = std::thread::Builder::new().name("trace".into()).spawn(move || collector.run(&end));
            capture
                .threads
                .push(thread.map_err(|error| TraceError::io("start a reader of", "trace_pipe_raw", error))?);
        }
        if let Some(instance) = &capture.instance {
            instance.start()?;
        }
        Ok(capture)
    }

    /// Takes what is in the buffers of a machine in software: to be called whenever its time has passed. Does nothing on
    /// others, whose buffers are read meanwhile.
    ///
    /// # Errors
    /// Where the buffers cannot be read or the pages not be kept.
    pub fn attend(&mut self) -> Result<(), CaptureError> {
        self.attendant.as_mut().map_or(Ok(()), |collector| collector.take(false))
    }

    /// The file through which the caller's own records get into the buffers that are recorded.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn raw_marker(&self) -> Result<std::fs::File, CaptureError> {
        match &self.instance {
            Some(instance) => Ok(instance.raw_marker()?),
            None => Err(CaptureError::NotHere("the capture has been stopped".into())),
        }
    }

    /// Whether a reader has given up, so that there is no sense in going on.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<Vec<CpuPart>, CaptureError> {
        self.end.store(true, Ordering::Release);
        if let Some(mut collector) = self.attendant.take() {
            collector.take(true)?;
            return Ok(collector.into_parts());
        }
        let mut parts = Vec::new();
        let mut failure = None;
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(part)) => parts.extend(part),
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {
                    failure = Some(CaptureError::NotHere("a reader of the ring buffer panicked".into()));
                }
            }
        }
        parts.sort_by_key(|part| part.cpu);
        failure.map_or(Ok(parts), Err)
    }

    /// Stops recording, reads what is left in the buffers, writes the trace.dat file and removes the instance.
    ///
    /// # Errors
    /// Where the buffers cannot be read or the file not be written; the instance is removed all the same.
    pub fn stop(mut self, path: &Path, version: DatVersion) -> Result<CaptureSummary, CaptureError> {
        let Some(instance) = self.instance.take() else {
            return Err(CaptureError::NotHere("the capture has been stopped already".into()));
        };
        instance.stop()?;
        let parts = self.join()?;
        let mut cpus = Vec::new();
        let mut stats = Vec::new();
        for part in &parts {
            let text = instance.stats(part.cpu)?;
            stats.push(format!("CPU: {}\n{text}", part.cpu));
            cpus.push(CpuCapture {
                cpu: part.cpu,
                received: part.received,
                bytes: part.size,
                stats: CpuStats::parse(part.cpu, &text),
            });
        }
        self.names.look(&self.tracefs);
        let mut about = describe::description(&self.tracefs, &instance, &self.events, &self.about)?;
        about.cmdlines = self.names.text();
        about.stats = stats;
        debug_assert!(Clock::chosen(&about.clock) != Clock::Unknown);
        instance.remove()?;
        self.save(path, version, &about, parts)?;
        Ok(CaptureSummary {
            file: path.to_owned(),
            received: cpus.iter().map(|cpu| cpu.received).sum(),
            lost: cpus.iter().map(|cpu| cpu.stats.lost()).sum(),
            written: cpus.iter().map(|cpu| cpu.stats.written()).sum(),
            bytes: cpus.iter().map(|cpu| cpu.bytes).sum(),
            leftovers: std::mem::take(&mut self.leftovers),
            cpus,
        })
    }
}

impl Capture {
    /// Writes the trace.dat file: beside `path` first, so that a file of that name is whole or the one from before.
    fn save(
        &mut self,
        path: &Path,
        version: DatVersion,
        about: &Description,
        parts: Vec<CpuPart>,
    ) -> Result<(), CaptureError> {
        let Some(spool) = self.spool.take() else {
            let mut inputs: Vec<CpuInput> = parts
                .into_iter()
                .filter_map(|part| match part.place {
                    Place::Own(pages) => Some(CpuInput { cpu: part.cpu, pages, size: part.size }),
                    Place::Stretch(_) => None,
                })
                .collect();
            return Ok(dat::save(&self.directory, path, version, about, &mut inputs)?);
        };
        let sizes: Vec<(u32, u64)> = parts.iter().map(|part| (part.cpu, part.size)).collect();
        drop(parts);
        let head = Head::new(version, about, &sizes);
        let sizes: Vec<u64> = sizes.into_iter().map(|(_, size)| size).collect();
        let write = || -> std::io::Result<()> {
            let front = head.places.first().copied().unwrap_or(head.end);
            let mut file = spool.close_gaps(front, &sizes)?;
            file.rewind()?;
            file.write_all(&head.bytes)?;
            if file.metadata()?.len() < head.end {
                file.set_len(head.end)?;
            }
            // A name that nobody has, then the wanted one: a file that was there is replaced as a whole.
            let near = tempfile::Builder::new()
                .prefix(".trace")
                .make_in(&self.directory, |path| spool::give_name(&file, path))?;
            near.into_temp_path().persist(path).map_err(|error| error.error)
        };
        Ok(write().map_err(|error| TraceError::io("write", path, error))?)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(instance) = &self.instance {
            let _ = instance.stop();
        }
        // Readers must be closed before the instance can be removed, which its own drop does.
        self.attendant = None;
        let _ = self.join();
    }
}

/// Group and event are joined to a path below events/: nothing but names may be in them.
fn plain(event: &str) -> bool {
    let parts: Vec<&str> = event.split('/').collect();
    parts.len() <= 2 && parts.iter().all(|part| !part.is_empty() && !part.starts_with('.'))
}

/// 8 MiB per CPU, down to 4 MiB where that is more than 1 GiB on all of them, and no more than a sixteenth of the memory.
fn default_buffer(host: &dyn Host, tracefs: &Tracefs) -> u64 {
    buffer_kib(memory_kib(host).unwrap_or(u64::MAX), u64::from(tracefs.cpu_count()))
}

fn buffer_kib(memory_kib: u64, cpus: u64) -> u64 {
    let cpus = cpus.max(1);
    let wanted = ((1 << 20) / cpus).clamp(4096, 8192);
    (memory_kib / 16 / cpus).clamp(64, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_leave_the_machine_its_memory() {
        let gib = 1 << 20;
        for (memory, cpus, wanted) in [
            (16 * gib, 2, 8192),
            (512 * gib, 128, 8192),
            (512 * gib, 192, 5461),
            (512 * gib, 512, 4096),
            (8 * gib, 128, 4096),
            (gib / 2, 4, 8192),
            (gib / 4, 128, 128),
            (0, 0, 64),
            (u64::MAX, 1, 8192),
        ] {
            assert_eq!(buffer_kib(memory, cpus), wanted, "{memory} {cpus}");
        }
    }
}
