//! Merges the records of all CPUs of a trace.dat file in chronological order.
//!
//! Each CPU's records are already in order; a heap tells which CPU is next. The CPU at the top
//! returns records until another CPU has an older one, so that bursts do not use the heap.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    comm::Comm,
    dat::{Buffer, CpuPages, TraceFile},
    decode::Decoder,
    error::TraceError,
    events::Event,
    page::{Entry, Missed, Page, PageCursor},
    record::Record,
};

/// Counts of one CPU's pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct CpuCount {
    pub cpu: u32,
    /// Number of records, decoded or not.
    pub records: u64,
    /// Lost records according to the pages' headers. They undercount: see the statistics of the
    /// recording.
    pub lost: u64,
    /// Number of pages that report lost records without a number.
    pub lost_unknown: u64,
}

/// Counts of a buffer.
#[derive(Debug, Clone, Default, schemars::JsonSchema, serde::Serialize)]
pub struct BufferSummary {
    /// For each CPU, in the order of the file.
    pub cpus: Vec<CpuCount>,
    /// Records without a format, or too short for their format.
    pub undecoded: u64,
    /// The first hundred problems.
    pub problems: Vec<String>,
    /// Number of all problems.
    pub damaged: u64,
}

impl BufferSummary {
    fn problem(&mut self, what: impl FnOnce() -> String) {
        self.damaged += 1;
        if self.problems.len() < 100 {
            self.problems.push(what());
        }
    }
}

/// Bytes of pages to read at once, over all CPUs.
#[derive(Debug, Clone, Copy)]
pub struct Readahead(pub usize);

impl Default for Readahead {
    /// 8 MiB: large reads with few CPUs, and bounded memory with hundreds of CPUs.
    fn default() -> Readahead {
        Readahead(8 << 20)
    }
}

/// One CPU's records.
struct Stream {
    pages: CpuPages,
    page: Vec<u8>,
    walk: PageCursor,
    /// Lost records to report before the page's first record.
    missed: Option<(u64, Missed)>,
    count: CpuCount,
    /// The next record; its payload is in `page`.
    next: Option<Record>,
    payload: (usize, usize),
    ended: bool,
}

impl Stream {
    /// Advances to the next record.
    fn advance(
        &mut self,
        file: &TraceFile,
        decoder: &Decoder,
        summary: &mut BufferSummary,
    ) -> Result<(), TraceError> {
        self.next = None;
        loop {
            if let Some((time, missed)) = self.missed.take() {
                // Reported as a record before the page's first, like the LOST line in the kernel's
                // text.
                let count = if let Missed::Count(count) = missed {
                    self.count.lost = self.count.lost.saturating_add(count);
                    Some(count)
                } else {
                    // ring_buffer_read_page() stores the number only if it fits after the page's
                    // data.
                    self.count.lost_unknown += 1;
                    None
                };
                self.payload = (0, 0);
                let (cpu, event) = (self.count.cpu, Event::Lost(count));
                self.next =
                    Some(Record { time, cpu, pid: 0, comm: Comm::default(), flags: 0, preempt: 0, event });
                return Ok(());
            }
            match self.walk.next(&self.page) {
                Some(Ok(Entry { time, offset, payload })) => {
                    self.count.records += 1;
                    match decoder.decode(time, self.count.cpu, payload) {
                        Ok(mut record) => {
                            record.comm = file.tasks.name(record.pid);
                            // An offset, because the page belongs to this struct and the next page
                            // will replace it.
                            let start = payload.as_ptr() as usize - self.page.as_ptr() as usize;
                            self.payload = (start, start + payload.len());
                            self.next = Some(record);
                            return Ok(());
                        }
                        // Continue after this record: its length is in the ring buffer's header,
                        // not in the format.
                        Err(error) => {
                            summary.undecoded += 1;
                            let place = self.page_place() + offset as u64;
                            summary.problem(|| format!("CPU {}, {}", self.count.cpu, error.within(place)));
                        }
                    }
                }
                Some(Err(error)) => {
                    let place = self.page_place();
                    summary.problem(|| format!("CPU {}, {}", self.count.cpu, error.within(place)));
                }
                None => {
                    if !self.turn_page(file, summary)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn page_place(&self) -> u64 {
        self.pages.place().saturating_sub(self.page.len() as u64)
    }

    /// Moves to the next readable page. Returns `false` after the last.
    fn turn_page(&mut self, file: &TraceFile, summary: &mut BufferSummary) -> Result<bool, TraceError> {
        if self.ended {
            return Ok(false);
        }
        match self.pages.next_page(&mut self.page) {
            Ok(true) => {}
            Ok(false) => {
                self.ended = true;
                return Ok(false);
            }
            // A failed read tells nothing about the file, so it is not damage of one CPU.
            Err(error @ TraceError::Io { .. }) => return Err(error),
            Err(error) => {
                summary.problem(|| error.to_string());
                // After a truncated page or one that cannot be unpacked, the offset of the next is
                // unknown.
                self.ended = true;
                return Ok(false);
            }
        }
        match Page::parse(&self.page, file.header) {
            Ok(page) => {
                self.walk = page.walk();
                self.missed = (page.missed != Missed::None).then_some((page.time, page.missed));
            }
            Err(error) => {
                // Skip only this page: all pages have one size, so the next one can be found.
                self.walk = PageCursor::default();
                let place = self.page_place();
                summary.problem(|| format!("CPU {}, {}", self.count.cpu, error.within(place)));
            }
        }
        Ok(true)
    }
}

/// Passes all records of `buffer` to `sink`, ordered by time and then by CPU, each with its bytes,
/// which are empty for lost records.
///
/// # Errors
/// The file cannot be read, or `sink` fails. Damage goes into the summary.
pub fn merge(
    file: &TraceFile,
    buffer: &Buffer,
    decoder: &Decoder,
    readahead: Readahead,
    mut sink: impl FnMut(&Record, &[u8]) -> Result<(), TraceError>,
) -> Result<BufferSummary, TraceError> {
    let mut summary = BufferSummary::default();
    // Divided among the CPUs: a fixed amount for each of 512 CPUs would take gigabytes.
    let ahead = readahead.0 / buffer.cpus.len().max(1);
    let mut streams: Vec<Stream> = Vec::with_capacity(buffer.cpus.len());
    let mut heap = BinaryHeap::new();
    for data in &buffer.cpus {
        let mut stream = Stream {
            pages: file.pages(buffer, *data, ahead),
            page: Vec::new(),
            walk: PageCursor::default(),
            missed: None,
            count: CpuCount { cpu: data.cpu, ..CpuCount::default() },
            next: None,
            payload: (0, 0),
            ended: false,
        };
        stream.advance(file, decoder, &mut summary)?;
        if let Some(record) = &stream.next {
            heap.push(Reverse((record.time, streams.len())));
        }
        streams.push(stream);
    }
    while let Some(Reverse((_, index))) = heap.pop() {
        // Records of one CPU come in bursts: while it is ahead of all others, do not touch the
        // heap.
        let until = heap.peek().map_or((u64::MAX, usize::MAX), |next| next.0);
        let Some(stream) = streams.get_mut(index) else { break };
        while let Some(record) = stream.next {
            if (record.time, index) > until {
                heap.push(Reverse((record.time, index)));
                break;
            }
            sink(&record, stream.page.get(stream.payload.0..stream.payload.1).unwrap_or_default())?;
            stream.advance(file, decoder, &mut summary)?;
        }
    }
    // Include CPUs without a page, to show that nothing was recorded there.
    summary.cpus = streams.iter().map(|stream| stream.count).collect();
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use super::*;
    use crate::{
        dat::{self, CpuInput, Description, Source},
        decode::tests::amd_perf_payload,
        event_names::Names,
        events::AmdPerf,
        format::tests::{AMD_PERF, format_text},
        page::tests::PageBuilder,
    };

    fn perf_format() -> Vec<u8> {
        format_text("amd_pstate_perf", 2203, &AMD_PERF, "\"\"").into_bytes()
    }

    const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

    /// Two CPUs, two pages each, 50 records a page, CPU 1 half a step behind CPU 0; its second page
    /// lost 7.
    fn trace() -> Vec<u8> {
        let mut inputs = Vec::new();
        for cpu in 0..2u32 {
            let mut pages = tempfile::tempfile().unwrap();
            for page in 0..2u64 {
                let mut built = PageBuilder::new(1_000 + page * 1_000 + u64::from(cpu) * 10);
                for at in 0..50 {
                    let event = AmdPerf { des: at, cpu, ..AmdPerf::default() };
                    built = built
                        .record(if at == 0 { 0 } else { 20 }, &amd_perf_payload(40 + cpu as i32, &event));
                }
                let lost = cpu == 1 && page == 1;
                let flags = if lost { 3 << 30 } else { 0 };
                let behind = 7u64.to_le_bytes();
                pages.write_all(&built.finish(flags, if lost { &behind } else { &[] })).unwrap();
            }
            inputs.push(CpuInput { cpu, pages, size: 8192 });
        }
        let about = Description {
            page_size: 4096,
            header_page: HEADER_PAGE.into(),
            header_event: b"# compressed entry header\n".to_vec(),
            event_formats: vec![("amd_cpu".into(), vec![perf_format()])],
            cmdlines: b"40 left\n41 right hand\n".to_vec(),
            clock: "local [mono] boot\n".into(),
            uname: "Linux box 7.2 x86_64".into(),
            writer: "flyball 0.1".into(),
            stats: vec!["CPU: 0\nentries: 0\n".into()],
            cpus: 3,
            ..Description::default()
        };
        let mut out: File = tempfile::tempfile().unwrap();
        dat::write(&mut out, &about, &mut inputs).unwrap();
        let size = out.metadata().unwrap().len();
        let mut bytes = vec![0; size as usize];
        std::os::unix::fs::FileExt::read_exact_at(&out, &mut bytes, 0).unwrap();
        bytes
    }

    /// Versions 6 and 7.
    fn both() -> [Vec<u8>; 2] {
        let six = trace();
        [flyball_testing::dat_7(&six), six]
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Record>, BufferSummary, TraceFile), TraceError> {
        let file = TraceFile::read(Source::memory(bytes))?;
        let decoder = Decoder::new(&file.formats, &Names::default());
        let mut records = Vec::new();
        let mut all = BufferSummary::default();
        for buffer in &file.buffers {
            all = merge(&file, buffer, &decoder, Readahead(8192), |record, _| {
                records.push(*record);
                Ok(())
            })?;
        }
        Ok((records, all, file))
    }

    #[test]
    fn both_versions_read_back_what_was_written() {
        for bytes in both() {
            let (records, summary, file) = read(&bytes).unwrap();
            assert_eq!(file.problems, Vec::<String>::new());
            assert_eq!(summary.problems, Vec::<String>::new());
            assert_eq!(file.buffers[0].clock, crate::Clock::Mono);
            assert_eq!(
                (file.uname.as_deref(), file.writer.as_deref()),
                (Some("Linux box 7.2 x86_64"), Some("flyball 0.1"))
            );
            assert_eq!(records.len(), 201);
            assert!(
                records.windows(2).all(|pair| (pair[0].time, pair[0].cpu) <= (pair[1].time, pair[1].cpu))
            );
            let lost: Vec<&Record> =
                records.iter().filter(|record| matches!(record.event, Event::Lost(_))).collect();
            assert_eq!((lost[0].cpu, lost[0].time, lost[0].event), (1, 2_010, Event::Lost(Some(7))));
            let counts: Vec<(u64, u64)> = summary
                .cpus
                .iter()
                .filter(|cpu| cpu.records > 0)
                .map(|cpu| (cpu.records, cpu.lost))
                .collect();
            assert_eq!(counts, [(100, 0), (100, 7)]);
            let last = records.last().unwrap();
            assert_eq!((last.comm.to_string().as_str(), last.pid), ("right hand", 41));
        }
    }

    #[test]
    fn a_recording_without_records_is_whole() {
        let about = Description {
            page_size: 16_384,
            header_page: HEADER_PAGE.into(),
            clock: "[mono]".into(),
            cpus: 4,
            ..Description::default()
        };
        let input = |cpu| CpuInput { cpu, pages: tempfile::tempfile().unwrap(), size: 0 };
        let mut out: File = tempfile::tempfile().unwrap();
        dat::write(&mut out, &about, &mut [input(0), input(2)]).unwrap();
        let mut six = vec![0; out.metadata().unwrap().len() as usize];
        std::os::unix::fs::FileExt::read_exact_at(&out, &mut six, 0).unwrap();
        for bytes in [flyball_testing::dat_7(&six), six] {
            let (records, summary, file) = read(&bytes).unwrap();
            assert_eq!((records.len(), summary.problems, file.problems), (0, Vec::new(), Vec::new()));
        }
    }

    #[test]
    fn every_cut_ends_in_an_error_or_a_partial_trace() {
        for whole in both() {
            let full = read(&whole).unwrap().0.len();
            let mut partial = 0;
            for cut in (0..whole.len()).step_by(97) {
                match read(&whole[..cut]) {
                    Ok((records, summary, file)) => {
                        partial += 1;
                        assert!(records.len() <= full);
                        assert!(
                            summary.damaged > 0 || !file.problems.is_empty() || records.len() == full,
                            "a cut at {cut} of {} went unnoticed",
                            whole.len()
                        );
                    }
                    Err(error) => assert!(error.to_string().contains("at byte"), "{error}"),
                }
            }
            assert!(partial > 5, "{partial}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn flipped_bits_do_not_panic(flips in proptest::collection::vec((0usize..20_000, 0u8..8), 1..8), six: bool) {
            thread_local!(static WHOLE: [Vec<u8>; 2] = both());
            WHOLE.with(|whole| {
                let mut bytes = whole[usize::from(six)].clone();
                for (at, bit) in flips {
                    let length = bytes.len();
                    bytes[at % length] ^= 1 << bit;
                }
                let _ = read(&bytes);
            });
        }
    }
}
