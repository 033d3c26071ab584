//! A reader thread: moves pages from the ring buffers of some CPUs into files, and counts their
//! records.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flyball_host::tracefs::{PageReader, Tracefs, wait_for_pages};
use flyball_process::spool::{Aligned, SpoolPart};

use crate::{
    comm::Comm,
    decode::Decoder,
    disk_pace::Pace,
    error::TraceError,
    events::Event,
    format::PageHeader,
    page::{Missed, Page},
    record::Record,
};

use super::{
    describe::TaskNames,
    options::{CaptureError, LiveSink},
};

/// Size of a write through the page cache. Larger writes cost twice as much: together with the
/// kernel's copy they exceed the second-level cache, and the page cache stores them in folios that
/// it must search for.
const WRITE: usize = 64 * 1024;
/// Size of a write that bypasses the page cache, where each write is a request to the disk: a
/// quarter of the usual buffer, which is the amount waiting when a reader wakes up.
const DIRECT_WRITE: usize = 2 * 1024 * 1024;

/// Minimum time between two looks at the names of tasks.
const LOOK: Duration = Duration::from_secs(1);

/// How long a list of this many names lasts. The kernel keeps some hundred names on old versions
/// and some thousand on new ones (`saved_cmdlines_size`). Printing them costs it more than
/// everything else in a quiet recording. No name is missed if fewer than 800 new tasks start per
/// second.
fn until_forgotten(names: usize) -> Duration {
    (LOOK * names as u32 / 800).clamp(LOOK, 10 * LOOK)
}

/// Destination of one CPU's pages.
#[derive(Debug)]
pub(super) enum Destination {
    /// The CPU's part of the file that becomes the trace.
    SpoolPart(SpoolPart),
    /// Its own unnamed file.
    Own(File),
}

/// One CPU's pages.
#[derive(Debug)]
pub(super) struct CpuPart {
    pub(super) cpu: u32,
    pub(super) place: Destination,
    pub(super) size: u64,
    pub(super) received: u64,
}

impl CpuPart {
    pub(super) fn new(
        cpu: u32,
        directory: &Path,
        stretch: Option<SpoolPart>,
    ) -> Result<CpuPart, CaptureError> {
        let place = match stretch {
            Some(stretch) => Destination::SpoolPart(stretch),
            None => Destination::Own(
                tempfile::tempfile_in(directory)
                    .map_err(|error| TraceError::io("create a file in", directory, error))?,
            ),
        };
        Ok(CpuPart { cpu, place, size: 0, received: 0 })
    }
}

/// Passes records on during the recording.
pub(super) struct LiveRecords {
    decoder: Decoder,
    sink: Mutex<LiveSink>,
    names: Arc<TaskNames>,
}

impl LiveRecords {
    pub(super) fn new(decoder: Decoder, sink: LiveSink, names: Arc<TaskNames>) -> LiveRecords {
        LiveRecords { decoder, sink: Mutex::new(sink), names }
    }

    fn add(&self, cpu: u32, page: &Page<'_>, records: &mut Vec<(Record, String)>) {
        if page.missed != Missed::None {
            let count = if let Missed::Count(count) = page.missed { Some(count) } else { None };
            let (time, comm, event) = (page.time, Comm::default(), Event::Lost(count));
            let record = Record { time, cpu, pid: 0, comm, flags: 0, preempt: 0, event };
            records.push((record, String::new()));
        }
        // Damage is counted when the file is read; here only records to print matter.
        for entry in page.entries().flatten() {
            if let Ok(record) = self.decoder.decode(entry.time, cpu, entry.payload) {
                records.push((record, self.decoder.other(&record, entry.payload)));
            }
        }
    }

    fn deliver(&self, records: &mut Vec<(Record, String)>) {
        if records.is_empty() {
            return;
        }
        // Pages come CPU by CPU, so sort the records of one turn by time.
        records.sort_by_key(|(record, _)| (record.time, record.cpu));
        for (record, _) in records.iter_mut() {
            record.comm = self.names.name(record.pid);
        }
        (self.sink.lock().unwrap_or_else(PoisonError::into_inner))(records);
        records.clear();
    }
}

impl std::fmt::Debug for LiveRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveRecords").finish_non_exhaustive()
    }
}

/// The readers of one thread, and the destinations of their pages.
#[derive(Debug)]
pub(super) struct Collector {
    readers: Vec<PageReader>,
    parts: Vec<CpuPart>,
    live: Option<Arc<LiveRecords>>,
    names: Option<(Tracefs, Arc<TaskNames>)>,
    pace: Pace,
    /// Allocated and zeroed once, not for every page.
    pages: Aligned,
    /// Decoded records that have not been passed on.
    records: Vec<(Record, String)>,
}

impl Collector {
    pub(super) fn new(
        readers: Vec<PageReader>,
        parts: Vec<CpuPart>,
        live: Option<Arc<LiveRecords>>,
        names: Option<(Tracefs, Arc<TaskNames>)>,
    ) -> Collector {
        let most = readers.iter().map(PageReader::page_size).max().unwrap_or(0);
        let pages = Aligned::new(DIRECT_WRITE.max(most));
        Collector { readers, parts, live, names, pace: Pace::new(), pages, records: Vec::new() }
    }

    pub(super) fn into_parts(self) -> Vec<CpuPart> {
        self.parts
    }

    /// Takes the pages of every buffer that is full enough, or of every buffer if there is a live
    /// sink or this is the `last` time.
    pub(super) fn take(&mut self, last: bool) -> Result<(), CaptureError> {
        for at in 0..self.readers.len() {
            if last || self.live.is_some() || self.readers[at].is_ready() {
                self.drain(at, last)?;
            }
        }
        if let Some(live) = &self.live {
            if let Some((tracefs, names)) = &self.names {
                names.look(tracefs);
            }
            live.deliver(&mut self.records);
        }
        Ok(())
    }

    /// Reads until `end` is set and the buffers are empty.
    pub(super) fn run(mut self, end: &AtomicBool) -> Result<Vec<CpuPart>, CaptureError> {
        // A late reader loses records: a fast CPU fills a buffer in half a second.
        flyball_process::prefer_thread();
        let patience = Duration::from_millis(if self.live.is_some() { 250 } else { 100 });
        let mut ready = Vec::new();
        let (mut looked, mut until_look) = (Instant::now(), LOOK);
        loop {
            // Read the flag before the buffers, so that this turn takes everything written before
            // the flag was set.
            let last = end.load(Ordering::Acquire);
            if last || self.live.is_some() {
                // A live sink does not wait for a quarter of a buffer.
                ready = (0..self.readers.len()).collect();
            }
            for at in ready.drain(..) {
                self.drain(at, last)?;
            }
            if let Some(live) = &self.live {
                live.deliver(&mut self.records);
            }
            if last {
                return Ok(self.parts);
            }
            // The kernel forgets names that are not read in time. A live sink prints names, so it
            // needs new ones soon.
            if let Some((tracefs, names)) = &self.names
                && looked.elapsed() > until_look
            {
                let known = names.look(tracefs);
                until_look = if self.live.is_some() { LOOK } else { until_forgotten(known) };
                looked = Instant::now();
            }
            if self.live.is_some() {
                std::thread::sleep(patience);
            } else {
                wait_for_pages(&self.readers, patience, &mut ready)?;
            }
        }
    }

    /// Takes one CPU's pages: up to the page that is being written or, if `last`, all of them.
    fn drain(&mut self, at: usize, last: bool) -> Result<(), CaptureError> {
        let (reader, part) = (&self.readers[at], &mut self.parts[at]);
        let size = reader.page_size();
        // The layout of the running kernel, which is 64-bit like this program.
        let header = PageHeader::default();
        let pages = self.pages.bytes();
        let mut have = 0;
        loop {
            let bytes = &mut pages[have..have + size];
            if !reader.read_page(bytes)? {
                break;
            }
            let page = Page::parse(bytes, header)
                .map_err(|error| TraceError::damaged(format!("a page of CPU {}", part.cpu), error))?;
            // Count here instead of using the kernel's numbers: that both agree proves that nothing
            // was lost.
            part.received += page.count().0;
            if let Some(live) = &self.live {
                live.add(part.cpu, &page, &mut self.records);
            }
            // Less than an eighth is free, so the writer has left this page, and another full one
            // may follow.
            let full = page.used() + size / 8 > size;
            have += size;
            if have + size > part.piece() {
                part.write(&pages[..have], &mut self.pace)?;
                have = 0;
            }
            if !full && !last {
                break;
            }
        }
        part.write(&pages[..have], &mut self.pace)
    }
}

impl CpuPart {
    /// Size of a write.
    fn piece(&self) -> usize {
        match &self.place {
            Destination::SpoolPart(stretch) if stretch.is_direct() => DIRECT_WRITE,
            _ => WRITE,
        }
    }

    fn write(&mut self, pages: &[u8], pace: &mut Pace) -> Result<(), CaptureError> {
        if pages.is_empty() {
            return Ok(());
        }
        let written = match &mut self.place {
            Destination::Own(file) => file.write_all(pages),
            Destination::SpoolPart(stretch) => {
                let start = Instant::now();
                let written = stretch.write(pages);
                if stretch.is_direct() && !pace.keeps_up(start.elapsed()) {
                    stretch.use_page_cache();
                }
                written
            }
        };
        written.map_err(|error| TraceError::io("write", format!("pages of CPU {}", self.cpu), error))?;
        self.size += pages.len() as u64;
        Ok(())
    }
}
