//! Reads text of any length in bounded memory, on any number of threads.
//!
//! Each thread takes the next chunk of whole lines from the reader, parses its records without
//! holding a lock, and puts them into a queue. A thread that finds nobody delivering from the queue
//! becomes the deliverer and passes on the next batches, so that the receiver sees the text in
//! order. The others keep reading unless they are too far ahead. A thread works on one chunk and
//! one batch of records, which together fit into a core's second-level cache.

use std::{
    collections::BTreeMap,
    io::Read,
    num::NonZeroUsize,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{error::TraceError, event_names::Names};

use super::line::{LineParser, TextBatch};

/// Options for reading text.
#[derive(Debug, Clone)]
pub struct TextOptions {
    /// Number of parsing threads; 1 uses only the caller's thread.
    pub threads: NonZeroUsize,
    /// Size of a chunk.
    pub chunk: usize,
    /// Keep the fields of passed-through events ([`TextBatch::details`]).
    pub details: bool,
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        TextOptions { threads: NonZeroUsize::MIN, chunk: 128 * 1024, details: false }
    }
}

/// Summary of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct TextSummary {
    pub bytes: u64,
    pub lines: u64,
    /// Number of records, including lost-event lines.
    pub records: u64,
    /// Number of lines that do not belong to a trace.
    pub unparsed: u64,
    /// Offset of the first such line.
    pub first_unparsed: Option<u64>,
    /// `entries-in-buffer/entries-written` of the header.
    pub entries: Option<(u64, u64)>,
    /// True if the text ends inside a line.
    pub cut_off: bool,
}

impl TextSummary {
    fn add(&mut self, batch: &TextBatch) {
        self.lines += batch.lines;
        self.records += batch.records.len() as u64;
        self.unparsed += batch.unparsed;
        self.first_unparsed = self.first_unparsed.or(batch.first_unparsed);
        self.entries = self.entries.or(batch.entries);
    }
}

/// Maximum length of a line. The kernel's are below 8 KiB.
const LONGEST_LINE: usize = 8 << 20;

/// Splits a reader into chunks of whole lines.
struct Chunks<R> {
    reader: R,
    /// Start of a line whose end has not been read.
    rest: Vec<u8>,
    offset: u64,
    next: u64,
    ended: bool,
}

impl<R: Read> Chunks<R> {
    /// Fills `chunk` with whole lines. Returns its number, its offset in the text, and its used
    /// length; `None` at the end. Bytes after the used part are not cleared, because that would
    /// cost a pass over the text.
    fn fill(&mut self, chunk: &mut Vec<u8>, size: usize) -> std::io::Result<Option<Piece>> {
        let mut used = self.rest.len();
        if chunk.len() < used + size {
            chunk.resize(used + size, 0);
        }
        chunk[..used].copy_from_slice(&self.rest);
        self.rest.clear();
        let mut searched = 0;
        while !self.ended {
            if chunk.len() < used + size {
                chunk.resize(used + size, 0);
            }
            let start = used;
            while used < start + size {
                match self.reader.read(&mut chunk[used..start + size]) {
                    Ok(0) => {
                        self.ended = true;
                        break;
                    }
                    Ok(count) => used += count,
                    // A signal (window size, stop and continue) must not end a read from a pipe.
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                }
                // Someone may watch a pipe as it comes, so do not wait for a full chunk.
                if chunk[used - 1] == b'\n' {
                    break;
                }
            }
            if self.ended {
                break;
            }
            // Text after the last newline waits for its end in the next chunk.
            if let Some(newline) = memchr::memrchr(b'\n', &chunk[searched..used]) {
                let end = searched + newline + 1;
                self.rest.extend_from_slice(&chunk[end..used]);
                used = end;
                break;
            }
            searched = used;
            if searched > LONGEST_LINE {
                // Not a trace; pass it on as one unparsed line instead of holding all of it.
                break;
            }
        }
        if used == 0 {
            return Ok(None);
        }
        let place = Piece { number: self.next, offset: self.offset, used };
        self.next += 1;
        self.offset += used as u64;
        Ok(Some(place))
    }
}

/// Position of a chunk in the text.
struct Piece {
    number: u64,
    offset: u64,
    used: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in another thread ends the scope anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parsed records of one chunk.
struct ParsedChunk {
    batch: TextBatch,
    bytes: u64,
    cut_off: bool,
}

/// Parsed chunks that have not been passed on.
#[derive(Default)]
struct Queue {
    /// The chunk to pass on next.
    next: u64,
    /// True while a thread is passing on batches.
    delivering: bool,
    ready: BTreeMap<u64, ParsedChunk>,
    /// Used batches, kept for their memory.
    spare: Vec<TextBatch>,
    failed: Option<TraceError>,
}

/// The receiver of the records, and the current summary.
struct Receiver<'a> {
    summary: TextSummary,
    sink: &'a mut (dyn FnMut(&TextBatch) -> Result<(), TraceError> + Send),
}

impl Receiver<'_> {
    fn take(&mut self, done: &ParsedChunk) -> Result<(), TraceError> {
        self.summary.add(&done.batch);
        self.summary.bytes += done.bytes;
        self.summary.cut_off = done.cut_off;
        (self.sink)(&done.batch)
    }
}

/// State that the threads share.
struct Shared<'a, R> {
    chunks: Mutex<Chunks<R>>,
    queue: Mutex<Queue>,
    /// Signals that the queue has room, or that waiting for it is pointless.
    moved: Condvar,
    receiver: Mutex<Receiver<'a>>,
    /// Maximum number of batches in the queue.
    room: usize,
}

impl<R: Read + Send> Shared<'_, R> {
    fn fail(&self, error: TraceError) {
        lock(&self.queue).failed.get_or_insert(error);
        self.moved.notify_all();
    }

    /// Reads chunks until the text ends or something fails.
    fn work(&self, path: &Path, names: &Arc<Names>, options: &TextOptions) {
        let make = if options.details { LineParser::with_details } else { LineParser::new };
        let mut parser = make(names.clone());
        let mut chunk = Vec::new();
        let mut batch = TextBatch::default();
        loop {
            let filled = {
                // One thread reads at a time, so that chunks are numbered in the order of the text.
                let mut chunks = lock(&self.chunks);
                match chunks.fill(&mut chunk, options.chunk.max(4096)) {
                    Ok(place) => place,
                    Err(error) => {
                        // Otherwise the other threads would read on after the error, and deliver
                        // text with a gap.
                        chunks.ended = true;
                        self.fail(TraceError::io("read", path, error));
                        return;
                    }
                }
            };
            let Some(Piece { number, offset, used }) = filled else { return };
            let text = &chunk[..used];
            // Keeps its memory: some 60 KiB of records per chunk need not be allocated again.
            batch.clear();
            parser.parse(text, offset, &mut batch);
            let done = ParsedChunk { batch, bytes: used as u64, cut_off: text.last() != Some(&b'\n') };
            match self.deliver(number, done) {
                Some(spare) => batch = spare,
                None => return,
            }
        }
    }

    /// Puts a chunk's records into the queue, and empties it up to the first gap unless another
    /// thread does. Returns memory for the next batch, or `None` after a failure.
    fn deliver(&self, number: u64, done: ParsedChunk) -> Option<TextBatch> {
        let mut queue = lock(&self.queue);
        // Always accept the next chunk, because all others wait for it.
        while queue.failed.is_none() && queue.ready.len() >= self.room && queue.next != number {
            queue = self.moved.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.ready.insert(number, done);
        if !queue.delivering {
            queue.delivering = true;
            while queue.failed.is_none() {
                let next = queue.next;
                let Some(done) = queue.ready.remove(&next) else { break };
                queue.next += 1;
                // Unlock while the receiver works, so that the others can add their batches.
                drop(queue);
                let taken = lock(&self.receiver).take(&done);
                queue = lock(&self.queue);
                queue.spare.push(done.batch);
                if let Err(error) = taken {
                    queue.failed.get_or_insert(error);
                }
                self.moved.notify_all();
            }
            queue.delivering = false;
        }
        queue.failed.is_none().then(|| queue.spare.pop().unwrap_or_default())
    }
}

/// Reads trace text from `reader` (called `path` in errors) to its end, and passes the records to
/// `sink` in the order of the text.
///
/// # Errors
/// Reading fails, or `sink` returns an error. Unreadable lines are counted and are not errors.
pub fn read_text<R: Read + Send>(
    reader: R,
    path: &Path,
    names: &Arc<Names>,
    options: &TextOptions,
    sink: &mut (dyn FnMut(&TextBatch) -> Result<(), TraceError> + Send),
) -> Result<TextSummary, TraceError> {
    let threads = options.threads.get();
    let shared = Shared {
        chunks: Mutex::new(Chunks { reader, rest: Vec::new(), offset: 0, next: 0, ended: false }),
        queue: Mutex::default(),
        moved: Condvar::new(),
        receiver: Mutex::new(Receiver { summary: TextSummary::default(), sink }),
        // One waiting and one in progress per thread, so that memory is bounded if the receiver is
        // slow.
        room: 2 * threads,
    };
    if threads == 1 {
        shared.work(path, names, options);
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| shared.work(path, names, options));
            }
        });
    }
    let queue = shared.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    match queue.failed {
        Some(error) => Err(error),
        None => Ok(shared.receiver.into_inner().unwrap_or_else(PoisonError::into_inner).summary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: u32) -> String {
        let mut text = String::from("# tracer: nop\n");
        for number in 0..lines {
            text.push_str(&format!(
                "{:>16}-{:<7} [{:03}] d..1. {:5}.{:06}: amd_pstate_perf: amd_min_perf=15 amd_des_perf={} \
                 amd_max_perf=166 freq=1100000 mperf=10 aperf=11 tsc=12 cpu_id=1 fast_switch=true\n",
                "job[12]",
                number,
                number % 300,
                number / 1000,
                number % 1000,
                number % 256
            ));
        }
        text
    }

    /// Returns a few bytes at a time, like a pipe.
    struct SmallReads<'a>(&'a [u8], usize);

    impl Read for SmallReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    /// A reader that a signal interrupts before each piece.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(std::io::ErrorKind::Interrupted.into()) } else { self.0.read(buffer) }
        }
    }

    #[test]
    fn a_signal_before_the_first_byte_is_nothing() {
        let text = text(10);
        let reader = Interrupted(text.as_bytes(), false);
        let options = TextOptions::default();
        let summary = read_text(reader, Path::new("t"), &Arc::default(), &options, &mut |_| Ok(())).unwrap();
        assert_eq!((summary.records, summary.unparsed), (10, 0));
    }

    fn read(text: &str, threads: usize, chunk: usize, step: usize) -> (Vec<i32>, TextSummary) {
        let mut pids = Vec::new();
        let options = TextOptions { threads: NonZeroUsize::new(threads).unwrap(), chunk, details: false };
        let summary = read_text(
            SmallReads(text.as_bytes(), step),
            Path::new("t"),
            &Arc::default(),
            &options,
            &mut |batch| {
                pids.extend(batch.records.iter().map(|record| record.pid));
                Ok(())
            },
        )
        .unwrap();
        (pids, summary)
    }

    #[test]
    fn order_and_count_do_not_depend_on_threads_and_chunks() {
        let text = text(3_000);
        for (threads, chunk, step) in
            [(1, 4096, 1 << 20), (1, 4096, 777), (3, 5000, 4099), (2, 1 << 20, 1 << 20)]
        {
            let (pids, summary) = read(&text, threads, chunk, step);
            assert_eq!(pids, (0..3_000).collect::<Vec<i32>>());
            assert_eq!((summary.lines, summary.records, summary.unparsed), (3_001, 3_000, 0));
            assert_eq!((summary.bytes, summary.cut_off), (text.len() as u64, false));
        }
    }

    #[test]
    fn a_text_cut_off_inside_a_line_says_so() {
        let text = text(10);
        let (pids, summary) = read(&text[..text.len() - 30], 2, 4096, 1 << 20);
        assert_eq!((pids.len(), summary.cut_off), (10, true));
        let (_, summary) = read("", 2, 4096, 100);
        assert_eq!(summary, TextSummary::default());
    }

    #[test]
    fn unparsed_lines_are_placed_in_the_whole_text() {
        let mut text = text(100);
        let at = text.len();
        text.push_str("no trace at all\n");
        let (_, summary) = read(&text, 2, 4096, 1 << 20);
        assert_eq!((summary.unparsed, summary.first_unparsed), (1, Some(at as u64)));
    }

    #[test]
    fn failures_of_reader_and_receiver_end_the_reading() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("gone"))
            }
        }
        let options = TextOptions { threads: NonZeroUsize::new(2).unwrap(), chunk: 4096, details: false };
        let error =
            read_text(Broken, Path::new("t"), &Arc::default(), &options, &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("cannot read t: gone"), "{error}");
        let text = text(3_000);
        let error = read_text(text.as_bytes(), Path::new("t"), &Arc::default(), &options, &mut |_| {
            Err(TraceError::Unsupported("full".into()))
        });
        assert!(error.is_err());
    }
}
