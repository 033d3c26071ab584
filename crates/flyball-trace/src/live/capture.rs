//! A capture from its start to the file: the instance, the threads that read its buffers, and
//! finally the trace.dat.

use std::{
    io::{Seek, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use flyball_host::{
    Host,
    tracefs::{Instance, InstanceOptions, PageReader, Tracefs, memory_kib},
};
use flyball_process::spool::Spool;

use crate::{
    clock::Clock,
    dat::{self, CpuInput, Description, Head},
    decode::Decoder,
    error::TraceError,
    event_names::Names,
    stats::CpuStats,
};

use super::{
    collect::{Collector, CpuPart, Destination, LiveRecords},
    describe::{self, Origin, TaskNames},
    options::{CaptureError, CaptureOptions, CaptureSummary, CpuCapture, LiveSink},
};

/// A running capture. If it is dropped without [`Capture::stop`], it stops recording and leaves
/// nothing behind.
#[derive(Debug)]
pub struct Capture {
    tracefs: Tracefs,
    instance: Option<Instance>,
    events: Vec<String>,
    about: Origin,
    /// The file, if the file system can remove holes from it.
    spool: Option<Spool>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Vec<CpuPart>, CaptureError>>>,
    /// On a simulated machine, reads all buffers instead of threads.
    poller: Option<Collector>,
    names: Arc<TaskNames>,
    leftovers: Vec<String>,
}

/// Sub-buffers of 16 KiB need a quarter of the system calls. Larger ones gain little more, but cost
/// short recordings on hundreds of CPUs more disk space, because each CPU's last sub-buffer is
/// stored whole.
const PAGE_KIB: u32 = 16;

/// Number of CPUs per thread. At 100,000 records per second and CPU the thread is busy for a tenth
/// of the time.
const CPUS_PER_THREAD: usize = 32;

impl Capture {
    /// Starts to record `host`. With `live`, also passes records on while recording, with a delay
    /// of a quarter second.
    ///
    /// # Errors
    /// The caller lacks root or tracefs, the kernel lacks an event or clock, or the buffers do not
    /// fit.
    pub fn start(
        host: &dyn Host,
        options: &CaptureOptions,
        live: Option<LiveSink>,
    ) -> Result<Capture, CaptureError> {
        let tracefs = host.tracefs()?;
        // Only those of killed runs: instances of running processes stay.
        let leftovers = tracefs.remove_leftovers().unwrap_or_default();
        // trace-cmd and perf write `group:event`.
        let events: Vec<String> = options.events.iter().map(|event| event.replace(':', "/")).collect();
        if events.is_empty() {
            return Err(CaptureError::NotHere(
                "this kernel has none of the events that report performance requests".into(),
            ));
        }
        if let Some(event) = events
            .iter()
            .find(|event| !is_plain(event) || tracefs.directories(&format!("events/{event}")).is_err())
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
                filters: Vec::new(),
                cpus: options.cpus.clone(),
                buffer_kib: options.buffer_kib.unwrap_or_else(|| default_buffer(host, &tracefs)),
                wished_page_kib: live.is_none().then_some(PAGE_KIB),
                // `local` differs between CPUs, and nothing outside the kernel can read it.
                clock: Some(options.clock.clone().unwrap_or_else(|| "mono".into())),
                // The instance's buffer_percent: readers sleep until this much of a buffer is full
                // (ring_buffer_wait()).
                wake_percent: 25,
            },
        )?;
        let mut readers = Vec::new();
        for cpu in instance.cpus()? {
            if options.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu)) {
                readers.push(instance.reader(cpu)?);
            }
        }
        let names = Arc::new(TaskNames::default());
        let live = live.map(|sink| {
            let formats = describe::formats(&tracefs, &events);
            let decoder = Decoder::new(&formats, &Names::default());
            Arc::new(LiveRecords::new(decoder, sink, names.clone()))
        });
        // Live output is written in small pieces, which the page cache combines.
        let spool = if live.is_none() { Spool::create_in(&options.directory, readers.len()) } else { None };
        let mut parts = Vec::new();
        for (number, reader) in readers.iter().enumerate() {
            let stretch = spool.as_ref().map(|spool| spool.stretch(number));
            parts.push(CpuPart::new(reader.cpu(), &options.directory, stretch)?);
        }
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
            spool,
            end: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            poller: None,
            names,
            leftovers,
        };
        // From here on, an error drops the capture, which removes the instance.
        capture.collect(readers, parts, live)?;
        // Last: events before the readers wait for their buffers could overrun them.
        if let Some(instance) = &capture.instance {
            instance.start()?;
        }
        Ok(capture)
    }

    /// Gives the buffers to reader threads or, on a simulated machine, to a collector that
    /// [`Capture::poll`] runs.
    fn collect(
        &mut self,
        readers: Vec<PageReader>,
        parts: Vec<CpuPart>,
        live: Option<Arc<LiveRecords>>,
    ) -> Result<(), CaptureError> {
        // One thread is enough to watch the names of tasks.
        let mut names = Some((self.tracefs.clone(), self.names.clone()));
        if !self.tracefs.files().is_concurrent() {
            self.poller = Some(Collector::new(readers, parts, live, names));
            return Ok(());
        }
        let (mut readers, mut parts) = (readers.into_iter(), parts.into_iter());
        loop {
            let some: Vec<PageReader> = readers.by_ref().take(CPUS_PER_THREAD).collect();
            if some.is_empty() {
                return Ok(());
            }
            let places = parts.by_ref().take(CPUS_PER_THREAD).collect();
            let collector = Collector::new(some, places, live.clone(), names.take());
            let end = self.end.clone();
            let thread = std::thread::Builder::new().name("trace".into()).spawn(move || collector.run(&end));
            self.threads
                .push(thread.map_err(|error| TraceError::io("start a reader of", "trace_pipe_raw", error))?);
        }
    }

    /// On a simulated machine, takes what is in the buffers: call it whenever its time has
    /// advanced. Does nothing on others, where threads read the buffers.
    ///
    /// # Errors
    /// The buffers cannot be read, or the pages cannot be stored.
    pub fn poll(&mut self) -> Result<(), CaptureError> {
        self.poller.as_mut().map_or(Ok(()), |collector| collector.take(false))
    }

    /// The file through which the caller can write its own records into the recorded buffers.
    pub fn raw_marker(&self) -> Result<std::fs::File, CaptureError> {
        match &self.instance {
            Some(instance) => Ok(instance.raw_marker()?),
            None => Err(CaptureError::NotHere("the capture has been stopped".into())),
        }
    }

    /// Returns whether a reader has failed, so that the capture need not continue.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<Vec<CpuPart>, CaptureError> {
        self.end.store(true, Ordering::Release);
        if let Some(mut collector) = self.poller.take() {
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
        // Threads end in any order, but CPUs are in order in the file.
        parts.sort_by_key(|part| part.cpu);
        failure.map_or(Ok(parts), Err)
    }

    /// Stops recording, reads the remaining data in the buffers, writes the trace.dat file and
    /// removes the instance.
    ///
    /// # Errors
    /// If the buffers cannot be read or the file not be written; the instance is removed all the
    /// same.
    pub fn stop(mut self, path: &Path) -> Result<CaptureSummary, CaptureError> {
        let Some(instance) = self.instance.take() else {
            return Err(CaptureError::NotHere("the capture has been stopped already".into()));
        };
        instance.stop()?;
        let parts = self.join()?;
        let mut cpus = Vec::new();
        let mut stats = Vec::new();
        for part in &parts {
            // After the readers have ended: a record that is still in a buffer counts as an entry,
            // not as lost.
            let text = instance.stats(part.cpu)?;
            stats.push(format!("CPU: {}\n{text}", part.cpu));
            cpus.push(CpuCapture {
                cpu: part.cpu,
                received: part.received,
                bytes: part.size,
                stats: CpuStats::parse(part.cpu, &text),
            });
        }
        // Before the instance is removed: names of tasks that started since the last look.
        self.names.look(&self.tracefs);
        let mut about = describe::description(&self.tracefs, &instance, &self.events, &self.about)?;
        about.cmdlines = self.names.text();
        about.stats = stats;
        debug_assert!(Clock::chosen(&about.clock) != Clock::Unknown);
        // Before the file is written, which may take long, because the buffers take kernel memory.
        instance.remove()?;
        self.save(path, &about, parts)?;
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
    /// Writes the trace.dat file: next to `path` first, so that a file of that name is whole or the
    /// one from before.
    fn save(&mut self, path: &Path, about: &Description, parts: Vec<CpuPart>) -> Result<(), CaptureError> {
        let Some(spool) = self.spool.take() else {
            let mut inputs: Vec<CpuInput> = parts
                .into_iter()
                .filter_map(|part| match part.place {
                    Destination::Own(pages) => Some(CpuInput { cpu: part.cpu, pages, size: part.size }),
                    Destination::SpoolPart(_) => None,
                })
                .collect();
            return Ok(dat::save(path, about, &mut inputs)?);
        };
        let sizes: Vec<(u32, u64)> = parts.iter().map(|part| (part.cpu, part.size)).collect();
        drop(parts);
        let head = Head::new(about, &sizes);
        let sizes: Vec<u64> = sizes.into_iter().map(|(_, size)| size).collect();
        let write = || -> std::io::Result<()> {
            let front = head.places.first().copied().unwrap_or(head.end);
            let mut file = spool.close_gaps(front, &sizes)?;
            file.rewind()?;
            file.write_all(&head.bytes)?;
            // CPUs without pages refer to the file's end, which is aligned to a page.
            if file.metadata()?.len() < head.end {
                file.set_len(head.end)?;
            }
            flyball_files::Replacement::from_unnamed(path, &file)?.finish()
        };
        Ok(write().map_err(|error| TraceError::io("write", path, error))?)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(instance) = &self.instance {
            // A drop cannot report an error, and removing the instance stops it too.
            let _ = instance.stop();
        }
        // Close the readers before the instance's own drop removes it, which would fail otherwise.
        self.poller = None;
        let _ = self.join();
    }
}

/// Group and event become a path below events/, so they must be plain names.
fn is_plain(event: &str) -> bool {
    let parts: Vec<&str> = event.split('/').collect();
    parts.len() <= 2 && parts.iter().all(|part| !part.is_empty() && !part.starts_with('.'))
}

/// Default buffer size per CPU, KiB: 8 MiB, or down to 4 MiB if all buffers would exceed 1 GiB, and
/// at most a sixteenth of the memory in total.
pub fn default_buffer(host: &dyn Host, tracefs: &Tracefs) -> u64 {
    buffer_kib(memory_kib(host).unwrap_or(u64::MAX), u64::from(tracefs.cpu_count()))
}

fn buffer_kib(memory_kib: u64, cpus: u64) -> u64 {
    let cpus = cpus.max(1);
    let wanted = ((1 << 20) / cpus).clamp(4096, 8192);
    // Buffers cannot be swapped out, so a small machine must keep most of its memory.
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
