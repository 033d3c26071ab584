//! Opens any trace by its first bytes: trace.dat, raw pages, or text, also compressed; from a file
//! or a pipe.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::unix::fs::FileTypeExt,
    path::Path,
    sync::Arc,
};

use crate::{
    clock::Clock,
    dat::{self, Buffer, CpuData, Source, TraceFile},
    decode::Decoder,
    detail::{Detail, DetailSink},
    error::TraceError,
    event_names::Names,
    events::Event,
    format::{EventFormat, PageHeader},
    machine::Machine,
    merge::{BufferSummary, Readahead, merge},
    record::Record,
    stats::CpuStats,
    tasks::Tasks,
    text::{TextBatch, TextOptions, TextSummary, read_text},
};

/// Maximum size of a trace.dat that comes through a pipe. It must be stored first, because its
/// parts are not read in order, and an endless stream must not fill the disk. Half of the free
/// space in `$TMPDIR`, which is often memory, stays free.
const MAX_SPOOLED: u64 = 16 << 30;

/// Maximum unpacked size of compressed text: a file of megabytes must not take hours.
#[cfg(feature = "compressed")]
const MAX_UNPACKED: u64 = 64 << 30;

/// Text of a compressed file; reading fails beyond the limit.
#[cfg(feature = "compressed")]
struct Unpacked<R> {
    text: R,
    left: u64,
}

#[cfg(feature = "compressed")]
impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.text.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let message = format!("it unpacks to more than {} GiB", MAX_UNPACKED >> 30);
            io::Error::new(io::ErrorKind::FileTooLarge, message)
        })?;
        Ok(count)
    }
}

/// The metadata that raw pages lack; a trace.dat file contains all of it.
#[derive(Debug, Clone, Default)]
pub struct RawDescription {
    /// The CPU of the pages.
    pub cpu: u32,
    /// Layouts of events.
    pub formats: Vec<EventFormat>,
    /// Layout of the pages' headers.
    pub header: PageHeader,
    /// Page size in bytes; 0 means 4096.
    pub page_size: u32,
    /// The clock of the records' times.
    pub clock: Clock,
    /// Names of tasks.
    pub tasks: Tasks,
}

/// How a trace was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stored {
    TraceDat,
    /// Pages of trace_pipe_raw.
    RawPages,
    /// Text of trace or trace_pipe.
    Text,
}

/// Everything about a trace except its records.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize)]
pub struct TraceSummary {
    /// How it was stored.
    pub stored: Stored,
    /// The clock of the records' times.
    pub clock: Clock,
    /// The kernel of the recorded machine, if the file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uname: Option<String>,
    /// The program that wrote the trace, if the file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
    /// The file's facts about the machine that it was recorded on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Summary of the text, for a text trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextSummary>,
    /// Summaries of the buffers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<BufferSummary>,
    /// The kernel's counts at the end of the recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stats: Vec<CpuStats>,
    /// Damage and missing parts, in words. Empty for a complete trace.
    pub problems: Vec<String>,
}

impl TraceSummary {
    fn add(&mut self, buffer: BufferSummary) {
        self.problems.extend(buffer.problems.iter().cloned());
        let more = buffer.damaged.saturating_sub(buffer.problems.len() as u64);
        if more > 0 {
            self.problems.push(format!("{more} more damaged places"));
        }
        self.buffers.push(buffer);
    }

    /// Number of records lost before they could be read, by the kernel's counts at the end of the
    /// recording; `None` if the trace lacks these counts.
    pub fn lost(&self) -> Option<u64> {
        (!self.stats.is_empty())
            .then(|| self.stats.iter().fold(0u64, |sum, cpu| sum.saturating_add(cpu.lost())))
    }
}

/// Receives records in chronological order.
pub type RecordSink<'a> = dyn FnMut(&[Record]) -> Result<(), TraceError> + Send + 'a;

/// An open trace, which can be read once.
pub struct Trace {
    content: Content,
    name: String,
}

enum Content {
    Dat(Box<TraceFile>),
    Raw(Source),
    Text(Box<dyn Read + Send>),
}

impl Trace {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a readable trace; then the error says what to do.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let file = File::open(path).map_err(|error| TraceError::io("open", path, error))?;
        // A FIFO or trace_pipe cannot seek, which trace.dat requires.
        let kind = file.metadata().map_err(|error| TraceError::io("read", path, error))?.file_type();
        if kind.is_char_device() || kind.is_block_device() {
            // /dev/zero has no end.
            let message = format!("{}: a device; a trace is a file or comes through a pipe", path.display());
            return Err(TraceError::Unsupported(message));
        }
        if kind.is_file() { Trace::from_file(file, path) } else { Trace::from_reader(Box::new(file), path) }
    }

    /// Opens a trace that comes through a pipe, called `path` in messages. A trace.dat is first
    /// stored in an unnamed temporary file, because its parts are not read in order.
    pub fn from_reader(mut reader: Box<dyn Read + Send>, path: &Path) -> Result<Trace, TraceError> {
        let mut start = Vec::new();
        let failed = |error| TraceError::io("read", path, error);
        // Enough for the first bytes of each format, and to see that text has no control
        // characters.
        reader.by_ref().take(512).read_to_end(&mut start).map_err(failed)?;
        let whole = io::Cursor::new(start.clone()).chain(reader);
        match sniff(&start) {
            Sniffed::Dat | Sniffed::Binary => {
                let mut file = tempfile::tempfile().map_err(failed)?;
                // Half, because other programs and this one's output need space too.
                let most = flyball_files::free_bytes(&file).map_err(failed)? / 2;
                spool(whole, &mut file, most.min(MAX_SPOOLED), path)?;
                file.rewind().map_err(failed)?;
                Trace::from_file(file, path)
            }
            sniffed => Trace::text(&sniffed, Box::new(whole), path),
        }
    }

    fn from_file(mut file: File, path: &Path) -> Result<Trace, TraceError> {
        let failed = |error| TraceError::io("read", path, error);
        let mut start = Vec::new();
        Read::by_ref(&mut file).take(512).read_to_end(&mut start).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let name = path.display().to_string();
        match sniff(&start) {
            Sniffed::Dat => {
                let file = TraceFile::read(Source::file(file, path)?)?;
                Ok(Trace { content: Content::Dat(Box::new(file)), name })
            }
            Sniffed::Binary => Ok(Trace { content: Content::Raw(Source::file(file, path)?), name }),
            sniffed => Trace::text(&sniffed, Box::new(file), path),
        }
    }

    fn text(sniffed: &Sniffed, reader: Box<dyn Read + Send>, path: &Path) -> Result<Trace, TraceError> {
        let name = path.display().to_string();
        let reader = match sniffed {
            Sniffed::Text => reader,
            #[cfg(feature = "compressed")]
            // Concatenated rotated logs are several gzip streams in one file.
            Sniffed::Gzip => {
                Box::new(Unpacked { text: flate2::read::MultiGzDecoder::new(reader), left: MAX_UNPACKED })
            }
            #[cfg(feature = "compressed")]
            Sniffed::Zstd => {
                Box::new(Unpacked { text: flyball_files::ZstdReader::new(reader), left: MAX_UNPACKED })
            }
            Sniffed::Refused(why) => return Err(TraceError::Unsupported(format!("{name}: {why}"))),
            _ => return Err(TraceError::Unsupported(format!("{name}: this build reads no compressed text"))),
        };
        Ok(Trace { content: Content::Text(reader), name })
    }

    pub fn stored(&self) -> Stored {
        match self.content {
            Content::Dat(_) => Stored::TraceDat,
            Content::Raw(_) => Stored::RawPages,
            Content::Text(_) => Stored::Text,
        }
    }

    /// The trace.dat file of the trace, if it is one.
    pub fn dat(&self) -> Option<&TraceFile> {
        if let Content::Dat(file) = &self.content { Some(file) } else { None }
    }

    /// Reads all records in chronological order, in batches of some thousand.
    ///
    /// # Errors
    /// Reading fails, or `sink` returns an error; raw pages cannot be read without `raw`. Damage
    /// goes into the summary.
    pub fn read(
        self,
        options: &TextOptions,
        raw: Option<RawDescription>,
        names: &Arc<Names>,
        sink: &mut RecordSink<'_>,
    ) -> Result<TraceSummary, TraceError> {
        let file = match self.content {
            Content::Text(reader) => return read_as_text(reader, &self.name, options, names, sink),
            Content::Dat(file) => *file,
            Content::Raw(source) => {
                let Some(raw) = raw else { return Err(needs_formats(&self.name)) };
                raw_file(source, raw)
            }
        };
        read_file(&file, names, sink)
    }
}

impl Trace {
    /// Reads the trace like [`Trace::read`], but one record at a time, with the details that its
    /// event lacks. Use it to show records.
    pub fn read_details(
        self,
        options: &TextOptions,
        raw: Option<RawDescription>,
        names: &Arc<Names>,
        sink: &mut DetailSink<'_>,
    ) -> Result<TraceSummary, TraceError> {
        let options = TextOptions { details: true, ..options.clone() };
        let file = match self.content {
            Content::Text(reader) => {
                return read_batches(reader, &self.name, &options, names, &mut |batch| {
                    // Sorted by index, and few records have details.
                    let mut details = batch.details.iter().peekable();
                    for (at, record) in batch.records.iter().enumerate() {
                        match details.next_if(|(place, _)| *place == at) {
                            Some((_, text)) => sink(batch.clock(), record, Detail::Text(text))?,
                            None => sink(batch.clock(), record, Detail::None)?,
                        }
                    }
                    Ok(())
                });
            }
            Content::Dat(file) => *file,
            Content::Raw(source) => match raw {
                Some(raw) => raw_file(source, raw),
                None => return Err(needs_formats(&self.name)),
            },
        };
        let decoder = Decoder::new(&file.formats, names);
        let mut summary = summary_of(&file);
        // Buffer by buffer: instances have their own clocks, so their times cannot be compared.
        for buffer in &file.buffers {
            let read = merge(&file, buffer, &decoder, Readahead::default(), |record, payload| {
                sink(buffer.clock, record, decoder.detail(record, payload))
            })?;
            summary.add(read);
        }
        Ok(summary)
    }
}

/// Stores data from a pipe, if it has at most `most` bytes.
fn spool(from: impl Read, file: &mut File, most: u64, path: &Path) -> Result<(), TraceError> {
    let copied = io::copy(&mut from.take(most.saturating_add(1)), file)
        .map_err(|error| TraceError::io("read", path, error))?;
    if copied > most {
        let message = format!(
            "{}: longer than {} MiB, the most that is stored of a pipe; write it to a file and name that",
            path.display(),
            most >> 20
        );
        return Err(TraceError::Unsupported(message));
    }
    Ok(())
}

fn needs_formats(name: &str) -> TraceError {
    TraceError::Unsupported(format!(
        "{name}: neither trace.dat nor text; if it holds pages of trace_pipe_raw, say where the format files of their \
         kernel are"
    ))
}

fn raw_file(source: Source, raw: RawDescription) -> TraceFile {
    // The kernel's default: one page for each sub-buffer (buffer_subbuf_size_kb).
    let page_size = if raw.page_size == 0 { 4096 } else { raw.page_size };
    let data = CpuData { cpu: raw.cpu, offset: 0, size: source.len(), compressed: false };
    let buffer = Buffer { name: String::new(), clock: raw.clock, page_size, cpus: vec![data] };
    TraceFile::from_pages(source, raw.formats, raw.header, raw.tasks, buffer)
}

/// Reads the buffers of a trace.dat file one after the other, each in chronological order.
pub fn read_file(
    file: &TraceFile,
    names: &Arc<Names>,
    sink: &mut RecordSink<'_>,
) -> Result<TraceSummary, TraceError> {
    const BATCH: usize = 2048;
    let decoder = Decoder::new(&file.formats, names);
    let mut summary = summary_of(file);
    let mut batch = Vec::with_capacity(BATCH);
    for buffer in &file.buffers {
        let read = merge(file, buffer, &decoder, Readahead::default(), |record, _| {
            batch.push(*record);
            if batch.len() == BATCH {
                sink(&batch)?;
                batch.clear();
            }
            Ok(())
        })?;
        // Including the last, short batch: each buffer ends with its own.
        sink(&batch)?;
        batch.clear();
        summary.add(read);
    }
    Ok(summary)
}

/// Returns a trace.dat file's description of itself, before any record is read.
fn summary_of(file: &TraceFile) -> TraceSummary {
    TraceSummary {
        stored: if file.version == 0 { Stored::RawPages } else { Stored::TraceDat },
        // The first is the top-level buffer, or the only one in a recording by flyball.
        clock: file.buffers.first().map_or(Clock::Local, |buffer| buffer.clock),
        uname: file.uname.clone(),
        writer: file.writer.clone(),
        machine: file.machine.clone(),
        text: None,
        buffers: Vec::new(),
        stats: file.stats.iter().enumerate().map(|(cpu, text)| CpuStats::parse(cpu as u32, text)).collect(),
        problems: file.problems.clone(),
    }
}

fn read_as_text(
    reader: Box<dyn Read + Send>,
    name: &str,
    options: &TextOptions,
    names: &Arc<Names>,
    sink: &mut RecordSink<'_>,
) -> Result<TraceSummary, TraceError> {
    read_batches(reader, name, options, names, &mut |batch| sink(&batch.records))
}

fn read_batches(
    reader: Box<dyn Read + Send>,
    name: &str,
    options: &TextOptions,
    names: &Arc<Names>,
    sink: &mut (dyn FnMut(&TextBatch) -> Result<(), TraceError> + Send),
) -> Result<TraceSummary, TraceError> {
    let mut ticks = false;
    let text = read_text(reader, Path::new(name), names, options, &mut |batch| {
        ticks |= batch.ticks;
        sink(batch)
    })?;
    let mut problems = Vec::new();
    if text.unparsed > 0 {
        let first = text.first_unparsed.unwrap_or(0);
        problems.push(format!(
            "{} of {} lines are not trace text, the first at byte {first}",
            text.unparsed, text.lines
        ));
    }
    if text.cut_off && text.lines > 0 {
        problems.push(format!("the text ends inside a line at byte {}", text.bytes));
    }
    Ok(TraceSummary {
        stored: Stored::Text,
        // Text does not name its clock, but times without a decimal point are a counter's
        // (kernel/trace/trace_output.c).
        clock: if ticks { Clock::Ticks } else { Clock::Local },
        uname: None,
        writer: None,
        machine: None,
        text: Some(text),
        buffers: Vec::new(),
        stats: Vec::new(),
        problems,
    })
}

enum Sniffed {
    Dat,
    Binary,
    Text,
    Gzip,
    Zstd,
    Refused(&'static str),
}

fn sniff(start: &[u8]) -> Sniffed {
    // Before the test for zero bytes, because the first bytes of these formats contain some too.
    const KNOWN: [(&[u8], &str); 4] = [
        (b"PERFILE2", "perf.data of perf record; pipe it through `perf script -i FILE`"),
        (b"\xfd7zXZ", "xz-compressed; pipe it through `xz -dc FILE`"),
        (b"BZh", "bzip2-compressed; pipe it through `bzip2 -dc FILE`"),
        (b"PAR1", "a Parquet file; traces are read from trace.dat, raw pages and text"),
    ];
    if let Some((_, why)) = KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Sniffed::Refused(why);
    }
    if start.starts_with(dat::MAGIC) {
        Sniffed::Dat
    } else if start.starts_with(b"\x1f\x8b") {
        Sniffed::Gzip
    } else if start.starts_with(b"\x28\xb5\x2f\xfd") {
        Sniffed::Zstd
    // Trace text has no zero byte; nearly every header of a ring-buffer page has one.
    } else if start.contains(&0) {
        Sniffed::Binary
    } else {
        Sniffed::Text
    }
}

/// Returns whether a record belongs to one of the `chosen` CPUs, by the CPU that it describes or
/// ran on.
pub fn concerns(record: &Record, chosen: impl Fn(u32) -> bool) -> bool {
    match record.event {
        // Use the CPU in brackets, as the kernel's tracers do: their pattern ignores cpu_id.
        Event::AmdPerf(_) | Event::AmdRequest(_) | Event::Intel(_) | Event::Lost(_) => chosen(record.cpu),
        _ => chosen(record.subject()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINE: &str = "              sh-9       [000] .....     1.000000: cpu_idle: state=1 cpu_id=0\n";

    fn read(bytes: &[u8]) -> Result<(usize, TraceSummary), TraceError> {
        let trace = Trace::from_reader(Box::new(io::Cursor::new(bytes.to_vec())), Path::new("-"))?;
        let mut count = 0;
        let mut sink = |records: &[Record]| {
            count += records.len();
            Ok(())
        };
        let summary = trace.read(&TextOptions::default(), None, &Arc::default(), &mut sink)?;
        Ok((count, summary))
    }

    #[test]
    fn text_comes_through_a_pipe_also_compressed() {
        let (count, summary) = read(LINE.repeat(100).as_bytes()).unwrap();
        assert_eq!((count, summary.stored, summary.problems.len()), (100, Stored::Text, 0));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(LINE.repeat(50).as_bytes()).unwrap();
        assert_eq!(read(&packed.finish().unwrap()).unwrap().0, 50);
        let packed = zstd::bulk::compress(LINE.repeat(70).as_bytes(), 1).unwrap();
        assert_eq!(read(&packed).unwrap().0, 70);
    }

    #[test]
    fn what_cannot_be_read_says_what_to_do() {
        for (bytes, words) in [
            (&b"PERFILE2xxxx"[..], "perf script"),
            (b"\x00\x01\x02 pages", "format files"),
            (b"\x17\x08Dtracing5\x00\x00\x08\x00\x10\x00\x00", "version 5"),
            (b"\x17\x08Dtracing6\x00\x01\x08\x00\x10\x00\x00", "big-endian"),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let unsupported = |error| matches!(error, TraceError::Unsupported(_));
        assert!(unsupported(Trace::open(Path::new("/dev/zero")).err().unwrap()));
        let mut file = tempfile::tempfile().unwrap();
        let path = Path::new("-");
        spool(io::repeat(0).take(1 << 20), &mut file, 1 << 20, path).unwrap();
        file.set_len(0).unwrap();
        assert!(unsupported(spool(io::repeat(0), &mut file, 1 << 20, path).unwrap_err()));
        #[cfg(feature = "compressed")]
        let text = |left| io::copy(&mut Unpacked { text: &[b'x'; 100][..], left }, &mut io::sink());
        #[cfg(feature = "compressed")]
        assert!(text(100).is_ok() && text(99).is_err());
    }

    #[test]
    fn damage_of_text_is_said() {
        let (count, summary) = read(format!("{LINE}nonsense\n{LINE}{}", &LINE[..60]).as_bytes()).unwrap();
        assert_eq!(count, 3);
        assert_eq!(summary.problems.len(), 2, "{:?}", summary.problems);
        assert_eq!(read(b"").unwrap().0, 0);
    }
}
