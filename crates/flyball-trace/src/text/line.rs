//! Parses chunks of whole lines into records.

#![expect(clippy::inline_always, reason = "measured: calls here cost a fifth of the time that text takes")]

use std::sync::Arc;

use crate::{
    clock::Clock,
    comm::Comm,
    event_names::{NameId, Names},
    events::{AmdPerf, Event, IntelSample},
    record::Record,
    scan::{blanks, bracketed_decimal, decimal, micros, short_decimal, signed},
};

/// The result of parsing one chunk of text.
#[derive(Debug, Default, Clone)]
pub struct TextBatch {
    /// The records, in the order of their lines.
    pub records: Vec<Record>,
    /// Number of lines, including comments and empty ones.
    pub lines: u64,
    /// Lines that are neither empty nor a comment nor a record.
    pub unparsed: u64,
    /// Offset of the first such line in the text.
    pub first_unparsed: Option<u64>,
    /// True if times are plain numbers, because the trace's clock does not count nanoseconds.
    pub ticks: bool,
    /// `entries-in-buffer/entries-written` of the header, if it was in this chunk.
    pub entries: Option<(u64, u64)>,
    /// Offset of the chunk in the text.
    pub offset: u64,
    /// If requested, the text after the name of each passed-through event, with its index in
    /// `records`.
    pub details: Vec<(usize, Vec<u8>)>,
}

impl TextBatch {
    /// Clears the batch for the next chunk, but keeps its memory.
    pub fn clear(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        *self = TextBatch { records, ..TextBatch::default() };
    }

    /// The clock that the text's times suggest.
    pub fn clock(&self) -> Clock {
        if self.ticks { Clock::Ticks } else { Clock::Local }
    }
}

/// Parses lines of trace text.
#[derive(Debug)]
pub struct LineParser {
    details: bool,
    amd: FrequentLine,
    intel: FrequentLine,
    names: Arc<Names>,
    /// Names of passed-through events, most recent first, because neighbouring lines often have
    /// equal names.
    seen: Vec<(Vec<u8>, NameId)>,
}

/// The part of a line before the colon after the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Prefix {
    comm: Comm,
    pid: i32,
    cpu: u32,
    time: u64,
    ticks: bool,
    marks: Marks,
}

impl LineParser {
    /// Creates a parser that keeps the names of passed-through events in `names`.
    pub fn new(names: Arc<Names>) -> LineParser {
        LineParser {
            details: false,
            amd: FrequentLine::default(),
            intel: FrequentLine::default(),
            names,
            seen: Vec::new(),
        }
    }

    /// Like [`LineParser::new`], but also keeps the fields of passed-through events in
    /// [`TextBatch::details`].
    pub fn with_details(names: Arc<Names>) -> LineParser {
        LineParser { details: true, ..LineParser::new(names) }
    }

    /// Parses a chunk of whole lines (the last may lack its newline) at `offset` in the text. Never
    /// fails: unreadable lines are counted in the batch.
    pub fn parse(&mut self, chunk: &[u8], offset: u64, batch: &mut TextBatch) {
        batch.offset = offset;
        let mut at = 0;
        while at < chunk.len() {
            batch.lines += 1;
            let amd = self.amd.read::<AmdPerf>(chunk, at, batch);
            if let Some(end) = amd.or_else(|| self.intel.read::<IntelSample>(chunk, at, batch)) {
                at = end;
                continue;
            }
            let length = memchr::memchr(b'\n', &chunk[at..]);
            let end = length.map_or(chunk.len(), |length| at + length);
            let line = &chunk[at..end];
            if !self.line(line, batch) {
                batch.unparsed += 1;
                batch.first_unparsed.get_or_insert(offset + at as u64);
            }
            at = end + 1;
        }
        // A chunk may start with lines of lost records, before which there is no record.
        let lost = batch.records.iter().take_while(|record| matches!(record.event, Event::Lost(_))).count();
        if let Some(time) = batch.records.get(lost).map(|record| record.time) {
            batch.records[..lost].iter_mut().for_each(|record| record.time = time);
        }
    }

    /// Parses any line. Returns `false` if it does not belong to a trace.
    fn line(&mut self, line: &[u8], batch: &mut TextBatch) -> bool {
        // Text that went through Windows or a serial console.
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(first) = line.iter().position(|byte| *byte != b' ') else { return true };
        if let Some((prefix, at)) = prefix(line) {
            let (event, rest) = self.event(&line[at..]);
            if self.details && matches!(event, Event::Other(_)) {
                batch.details.push((batch.records.len(), rest.to_vec()));
            }
            batch.ticks |= prefix.ticks;
            let Prefix { comm, pid, cpu, time, marks: Marks { flags, preempt, .. }, .. } = prefix;
            batch.records.push(Record { time, cpu, pid, comm, flags, preempt, event });
            return true;
        }
        // After the prefix, because a task may be called `#1`.
        if line[first] == b'#' {
            batch.entries = batch.entries.or_else(|| entries(line));
            return true;
        }
        // print_trace_line() in kernel/trace/trace.c; trace-cmd report words it as EVENTS DROPPED.
        if let Some((cpu, lost)) = lost(&line[first..]) {
            // The line has no time. It precedes the next record of its CPU. Use the time of the
            // previous record, of any CPU, which is as close and already known.
            let time = batch.records.last().map_or(0, |record| record.time);
            let event = Event::Lost(lost);
            batch.records.push(Record {
                time,
                cpu,
                pid: 0,
                comm: Comm::default(),
                flags: 0,
                preempt: 0,
                event,
            });
            return true;
        }
        // `trace-cmd report` and `perf script` start with such a line.
        line.starts_with(b"cpus=") || line.starts_with(b"CPU ") || line.starts_with(b"version = ")
    }

    fn event<'a>(&mut self, text: &'a [u8]) -> (Event, &'a [u8]) {
        let end = memchr::memchr(b' ', text).unwrap_or(text.len());
        // Without a colon it is a function's name, or a marker in raw form.
        let (name, rest) = match text[..end].strip_suffix(b":") {
            Some(name) => (name, &text[blanks(text, end)..]),
            None => (&b"(function)"[..], text),
        };
        // perf script prints the group first: `power:cpu_frequency:`.
        let name = match memchr::memrchr(b':', name) {
            Some(colon) => &name[colon + 1..],
            None => name,
        };
        (Event::parse(name, rest).unwrap_or_else(|| Event::Other(self.intern(name))), rest)
    }

    fn intern(&mut self, name: &[u8]) -> NameId {
        if let Some(at) = self.seen.iter().position(|(known, _)| known == name) {
            // Move it to the front, so that the next line finds it at once.
            if at > 0 {
                self.seen.swap(0, at);
            }
            return self.seen[0].1;
        }
        // A text can contain any number of names, so bound their memory.
        let known = if self.seen.len() < 4096 { &String::from_utf8_lossy(name) } else { "(other)" };
        let id = self.names.intern(known);
        if self.seen.len() < 4096 {
            self.seen.push((name.to_owned(), id));
        }
        id
    }
}

/// A frequent event, with its name as it appears in lines.
trait FrequentEvent: Sized {
    const NAME: &'static [u8];

    fn read(chunk: &[u8], at: usize) -> Option<(Self, usize)>;

    fn event(self) -> Event;
}

impl FrequentEvent for AmdPerf {
    const NAME: &'static [u8] = b"amd_pstate_perf: ";

    #[inline(always)]
    fn read(chunk: &[u8], at: usize) -> Option<(AmdPerf, usize)> {
        AmdPerf::in_order(chunk, at)
    }

    #[inline(always)]
    fn event(self) -> Event {
        Event::AmdPerf(self)
    }
}

impl FrequentEvent for IntelSample {
    const NAME: &'static [u8] = b"pstate_sample: ";

    #[inline(always)]
    fn read(chunk: &[u8], at: usize) -> Option<(IntelSample, usize)> {
        IntelSample::in_order(chunk, at)
    }

    #[inline(always)]
    fn event(self) -> Event {
        Event::Intel(self)
    }
}

/// Parses lines of one event in the kernel's format.
///
/// Each number in a line starts where the previous one ends, which a processor learns late. The
/// front of a line (task, CPU, time) is nearly always as long as in the previous line. So the
/// fields are parsed from there in parallel with the front, and dropped if the front turns out to
/// end elsewhere.
#[derive(Debug, Default)]
struct FrequentLine {
    /// Length of the text before the event's name.
    front: usize,
    /// Number of blanks between the name and the fields beyond the kernel's one: trace-cmd pads
    /// names.
    gap: usize,
    /// The flags of the previous line.
    marks: Marks,
}

impl FrequentLine {
    /// Adds the record of a line, and returns the start of the next line. `None` for any other
    /// line.
    #[inline(always)]
    fn read<E: FrequentEvent>(&mut self, chunk: &[u8], start: usize, batch: &mut TextBatch) -> Option<usize> {
        let at = start + self.front;
        if chunk.get(at..)?.starts_with(E::NAME)
            && let Some((event, end)) = E::read(chunk, at + E::NAME.len() + self.gap)
        {
            let (prefix, behind) = kernel_prefix(chunk, start, &mut self.marks)?;
            if behind == at {
                return add(chunk, prefix, event.event(), end, batch);
            }
        }
        self.find::<E>(chunk, start, batch)
    }

    /// [`FrequentLine::read`] for a front or a gap of another length.
    #[cold]
    fn find<E: FrequentEvent>(&mut self, chunk: &[u8], start: usize, batch: &mut TextBatch) -> Option<usize> {
        let (prefix, at) = kernel_prefix(chunk, start, &mut self.marks)?;
        if !chunk.get(at..)?.starts_with(E::NAME) {
            return None;
        }
        let fields = blanks(chunk, at + E::NAME.len());
        let (event, end) = E::read(chunk, fields)?;
        self.front = at - start;
        self.gap = fields - at - E::NAME.len();
        add(chunk, prefix, event.event(), end, batch)
    }
}

/// Adds a record whose line's fields end at `end`.
#[inline(always)]
fn add(chunk: &[u8], prefix: Prefix, event: Event, end: usize, batch: &mut TextBatch) -> Option<usize> {
    let next = match chunk.get(end) {
        None => end,
        Some(b'\n') => end + 1,
        // More text follows the fields: another layout, which the careful path parses.
        Some(_) => return None,
    };
    let Prefix { comm, pid, cpu, time, ticks, marks: Marks { flags, preempt, .. } } = prefix;
    batch.ticks |= ticks;
    batch.records.push(Record { time, cpu, pid, comm, flags, preempt, event });
    Some(next)
}

/// Parses the prefix of a line whose task is printed 16 wide. Also returns the start of the event's
/// name.
#[inline(always)]
fn kernel_prefix(chunk: &[u8], start: usize, known: &mut Marks) -> Option<(Prefix, usize)> {
    let line = chunk.get(start..)?;
    let name: &[u8; 16] = line.first_chunk()?;
    let word = u128::from_le_bytes(*name);
    // A newline among the first bytes: the line is shorter, and its fields belong to the next one.
    if line.get(16) != Some(&b'-') || holds(word, b'\n') {
        return None;
    }
    let (pid, at) = short_decimal(chunk, start + 17)?;
    let (cpu, time, ticks, at, marks) = match usual_front(chunk, at, known) {
        Some((cpu, time, ticks, at)) => (cpu, time, ticks, at, *known),
        None => behind_task(chunk, at)?,
    };
    // The name is right-aligned. Shifting it down leaves zeros after it.
    let lead = (word ^ every(b' ')).trailing_zeros() & !7;
    let comm = word.checked_shr(lead).unwrap_or(0).to_le_bytes();
    let comm = if holds(word, 0) { Comm::new(&comm) } else { Comm::filled(comm) };
    Some((Prefix { comm, pid: i32::try_from(pid).ok()?, cpu, time, ticks, marks }, at))
}

/// The characters of option irq-info and their meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Marks {
    text: [u8; 5],
    flags: u8,
    preempt: u8,
}

impl Marks {
    /// The reverse of `flags` in print.rs. Kernels before 5.17 have four characters. Characters for
    /// "not supported", and letters of future kernels, are ignored.
    #[cold]
    fn read(text: &[u8]) -> Marks {
        let mut marks = Marks::default();
        for (at, byte) in text.iter().enumerate().take(5) {
            marks.text[at] = *byte;
            let digit = char::from(*byte).to_digit(16).unwrap_or(0) as u8;
            marks.flags |= match (at, byte) {
                (0, b'd') => 0x01,
                (0, b'D') => 0x81,
                (0, b'b') => 0x80,
                (1, b'B') => 0x26,
                (1, b'N') => 0x24,
                (1, b'b') => 0x06,
                (1, b'n') => 0x04,
                (1, b'L') => 0x22,
                (1, b'p') => 0x20,
                (1, b'l') => 0x02,
                (2, b'Z') => 0x48,
                (2, b'z') => 0x40,
                (2, b'H') => 0x18,
                (2, b'h') => 0x08,
                (2, b's') => 0x10,
                _ => 0,
            };
            marks.preempt |= match at {
                3 => digit,
                4 => digit << 4,
                _ => 0,
            };
        }
        marks
    }
}

/// Parses the front of a line in its usual form, `[003] d..1.  3552.927123: `, with blanks before
/// and in it. Returns the values of [`behind_task`].
#[inline(always)]
fn usual_front(chunk: &[u8], at: usize, known: &mut Marks) -> Option<(u32, u64, bool, usize)> {
    let at = blanks(chunk, at);
    if *chunk.get(at)? != b'[' {
        return None;
    }
    let (cpu, at) = bracketed_decimal(chunk, at + 1)?;
    let [b']', b' ', flags @ .., b' '] = chunk.get(at..)?.first_chunk::<8>()? else { return None };
    if *flags != known.text {
        // Flags start with a letter or a dot, a time with a digit.
        if flags[0].is_ascii_digit()
            || !flags.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.')
        {
            return None;
        }
        *known = Marks::read(flags);
    }
    let (seconds, at) = short_decimal(chunk, blanks(chunk, at + 8))?;
    if *chunk.get(at)? != b'.' || *chunk.get(at + 9)? == b' ' {
        return None;
    }
    let micros = micros(chunk, at + 1)?;
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(micros * 1_000)?;
    Some((u32::try_from(cpu).ok()?, time, false, at + 9))
}

/// Sixteen times `byte`.
const fn every(byte: u8) -> u128 {
    u128::from_le_bytes([byte; 16])
}

/// Returns whether one of the sixteen bytes is `byte`.
#[inline]
fn holds(word: u128, byte: u8) -> bool {
    let zeros = word ^ every(byte);
    zeros.wrapping_sub(every(1)) & !zeros & every(0x80) != 0
}

/// Parses from after the task's number to after the colon that follows the time. Returns CPU, time,
/// whether it is in ticks, end offset and flags.
#[inline]
fn behind_task(chunk: &[u8], at: usize) -> Option<(u32, u64, bool, usize, Marks)> {
    // Option record-tgid prints the thread group's number here, in brackets.
    let mut at = blanks(chunk, at);
    if chunk.get(at) == Some(&b'(') {
        // `(%7d) ` or `(-------) `; trace-cmd writes it narrower.
        let close = memchr::memchr(b')', chunk.get(at..at + 16)?)?;
        let inside = &chunk[at + 1..at + close];
        if !inside.iter().all(|byte| matches!(byte, b' ' | b'-' | b'0'..=b'9')) {
            return None;
        }
        at = blanks(chunk, at + close + 1);
    }
    if chunk.get(at) != Some(&b'[') {
        return None;
    }
    let (cpu, end) = decimal(chunk, at + 1)?;
    if chunk.get(end) != Some(&b']') || chunk.get(end + 1) != Some(&b' ') {
        return None;
    }
    at = end + 2;
    // Flags follow immediately; a time without flags has at least one more blank before it, or ends
    // in a colon.
    let mut marks = Marks::default();
    if chunk.get(at) != Some(&b' ') && time_at(chunk, at).is_none() {
        let flags = chunk.get(at..at + 12)?;
        let length = memchr::memchr(b' ', flags)?;
        if !flags[..length].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.') {
            return None;
        }
        marks = Marks::read(&flags[..length]);
        at += length;
    }
    let (time, ticks, end) = time_at(chunk, blanks(chunk, at))?;
    Some((u32::try_from(cpu).ok()?, time, ticks, end, marks))
}

/// Parses a time and the `: ` after it.
#[inline]
fn time_at(chunk: &[u8], at: usize) -> Option<(u64, bool, usize)> {
    let (whole, end) = decimal(chunk, at)?;
    let (time, ticks, end) = if chunk.get(end) == Some(&b'.') {
        let (fraction, stop) = decimal(chunk, end + 1)?;
        // The kernel prints microseconds, trace-cmd report -t and perf script --ns nanoseconds.
        let nanoseconds = match stop - end - 1 {
            6 => fraction * 1_000,
            9 => fraction,
            digits @ 1..=8 => fraction * 10u64.pow(9 - digits as u32),
            _ => return None,
        };
        (whole.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?, false, stop)
    } else {
        (whole, true, end)
    };
    let colon = chunk.get(end) == Some(&b':');
    (colon && matches!(chunk.get(end + 1), Some(b' ' | b'\n') | None)).then_some((
        time,
        ticks,
        blanks(chunk, end + 1),
    ))
}

/// Parses the prefix of any line: every minus sign may precede the number, and the first that makes
/// sense is used.
fn prefix(line: &[u8]) -> Option<(Prefix, usize)> {
    if let Some(found) = kernel_prefix(line, 0, &mut Marks::default()) {
        return Some(found);
    }
    // Longer lines also have their task and CPU at the front.
    let front = &line[..line.len().min(120)];
    for dash in memchr::memchr_iter(b'-', front) {
        let Some((pid, at)) = decimal(line, dash + 1) else { continue };
        if pid == 1 && dash > 0 && line[dash - 1] == b' ' {
            // Not init after a name that ends in a blank, but perf's number for an unknown task.
            continue;
        }
        let (Some((cpu, time, ticks, at, marks)), Ok(pid)) = (behind_task(line, at), i32::try_from(pid))
        else {
            continue;
        };
        let lead = line[..dash].iter().position(|byte| *byte != b' ').unwrap_or(dash);
        return Some((Prefix { comm: Comm::new(&line[lead..dash]), pid, cpu, time, ticks, marks }, at));
    }
    perf_prefix(line)
}

/// Parses the start of a line of `perf script`: `comm  pid [cpu] time: group:event: fields`, with
/// runs of blanks after the name.
fn perf_prefix(line: &[u8]) -> Option<(Prefix, usize)> {
    let front = &line[..line.len().min(120)];
    for bracket in memchr::memchr_iter(b'[', front) {
        let Some((cpu, time, ticks, at, marks)) = behind_task(line, bracket) else { continue };
        let before = line[..bracket].trim_ascii_end();
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let number = before.len() - digits;
        let sign = usize::from(before[..number].ends_with(b"-"));
        let number = number - sign;
        let Some((pid, _)) = signed(before, number) else { continue };
        if number == 0 || before[number - 1] != b' ' {
            continue;
        }
        let comm = before[..number].trim_ascii();
        let pid = i32::try_from(pid).ok()?;
        return Some((Prefix { comm: Comm::new(comm), pid, cpu, time, ticks, marks }, at));
    }
    None
}

/// Parses `CPU:3 [LOST 17 EVENTS]` or `CPU:3 [LOST EVENTS]`; trace-cmd writes `CPU:3 [17 EVENTS
/// DROPPED]`.
fn lost(line: &[u8]) -> Option<(u32, Option<u64>)> {
    let (cpu, at) = decimal(line, if line.starts_with(b"CPU:") { 4 } else { return None })?;
    let cpu = u32::try_from(cpu).ok()?;
    let rest = &line[blanks(line, at)..];
    if let Some(rest) = rest.strip_prefix(b"[LOST ") {
        return Some((cpu, decimal(rest, 0).map(|(count, _)| count)));
    }
    if rest.strip_prefix(b"[EVENTS DROPPED").is_some() {
        return Some((cpu, None));
    }
    let (count, end) = decimal(rest.strip_prefix(b"[")?, 0)?;
    rest[end + 1..].starts_with(b" EVENTS DROPPED]").then_some((cpu, Some(count)))
}

/// `# entries-in-buffer/entries-written: 207/300   #P:2`
fn entries(line: &[u8]) -> Option<(u64, u64)> {
    let key = b"entries-in-buffer/entries-written: ";
    let at = memchr::memmem::find(line, key)? + key.len();
    let (kept, at) = decimal(line, at)?;
    let (written, _) = decimal(line, at + usize::from(line.get(at) == Some(&b'/')))?;
    Some((kept, written))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Idle;

    const FIELDS: &str = "amd_pstate_perf: amd_min_perf=15 amd_des_perf=39 amd_max_perf=166 freq=1100000 \
                          mperf=10 aperf=11 tsc=12 cpu_id=1 fast_switch=true";

    fn parse(text: &str) -> TextBatch {
        let mut batch = TextBatch::default();
        LineParser::new(Arc::default()).parse(text.as_bytes(), 0, &mut batch);
        batch
    }

    fn one(line: &str) -> Record {
        let batch = parse(line);
        assert_eq!((batch.records.len(), batch.unparsed), (1, 0), "{line}: {batch:?}");
        batch.records[0]
    }

    #[test]
    fn names_with_brackets_blanks_and_minus_signs() {
        for name in ["<idle>", "job[12]", "a-b 3", "x-7 [009] d..1", "[001]", "-", "a (12) [3] ", "<...>"] {
            let name = name.trim_end();
            for front in ["[001] d..1. ", "(   4711) [001] d..1. ", "(-------) [001] ..... ", "[001] "] {
                let line = format!("{name:>16}-{:<7} {front}    3.552927: {FIELDS}\n", 4711);
                let record = one(&line);
                assert_eq!(record.comm.to_string(), name, "{line}");
                assert_eq!((record.pid, record.cpu, record.time), (4711, 1, 3_552_927_000), "{line}");
                assert!(matches!(record.event, Event::AmdPerf(AmdPerf { des: 39, .. })), "{line}");
            }
        }
    }

    #[test]
    fn the_fast_and_the_careful_path_agree() {
        // trace-cmd report pads the name.
        for fields in [FIELDS.to_owned(), FIELDS.replace(": ", ":      ")] {
            the_paths_agree(&fields);
        }
    }

    fn the_paths_agree(fields: &str) {
        let line = format!("{:>16}-{:<7} [1023] d.h2. 12345.678901: {fields}", "job[12]", 1);
        // Start with another front, so that the second line's front is found and the third's is
        // known.
        let other = format!("{:>16}-{:<7} [001] d.h2.  5.678901: {fields}\n", "amd_pstate_perf:", 1_234_567);
        let (mut fast, mut reader) = (TextBatch::default(), FrequentLine::default());
        let text = format!("{other}{line}\n{line}\n");
        let mut at = 0;
        while at < text.len() {
            at = reader.read::<AmdPerf>(text.as_bytes(), at, &mut fast).unwrap();
        }
        assert_eq!((fast.records.len(), fast.records[1]), (3, fast.records[2]));
        assert_eq!(fast.records[0].comm.to_string(), "amd_pstate_perf:");
        let fast = fast.records[1];
        let mut batch = TextBatch::default();
        assert!(LineParser::new(Arc::default()).line(line.as_bytes(), &mut batch));
        assert_eq!(batch.records, [fast]);
        assert_eq!((fast.cpu, fast.time), (1023, 12_345_678_901_000));
    }

    #[test]
    fn lines_of_other_printers() {
        let trimmed = one("<idle>-0     [001]  1249.871682: cpu_idle:             state=1 cpu_id=7");
        assert_eq!((trimmed.pid, trimmed.cpu, trimmed.event), (0, 1, Event::Idle(Idle { cpu: 7, state: 1 })));
        let perf = one("swapper 3     0 [003]   100.000000001: power:cpu_idle: state=4294967295 cpu_id=3");
        assert_eq!((perf.comm.to_string().as_str(), perf.pid, perf.cpu), ("swapper 3", 0, 3));
        assert_eq!((perf.time, perf.event), (100_000_000_001, Event::Idle(Idle { cpu: 3, state: u32::MAX })));
        let unknown =
            one("             :-1    -1 [001] 26829.284282:         power:cpu_idle: state=1 cpu_id=1");
        assert_eq!((unknown.comm.to_string().as_str(), unknown.pid, unknown.cpu), (":-1", -1, 1));
    }

    /// Both layouts of flags, with times of one to five digits: print_trace_line pads seconds to
    /// five.
    #[test]
    fn flags_are_read_in_both_layouts() {
        for (flags, expected) in [
            ("dN...", (0x25, 0)),
            ("dN..", (0x25, 0)),
            ("d.s..", (0x11, 0)),
            ("d.h1", (0x09, 1)),
            ("DNH21", (0x81 | 0x24 | 0x18, 0x12)),
        ] {
            for time in ["    9.000001", "  995.000001", " 4995.000001", "14995.000001", "4995.000001"] {
                let record = one(&format!("{:>16}-{:<7} [015] {flags} {time}: {FIELDS}", "<idle>", 0));
                assert_eq!((record.flags, record.preempt), expected, "{flags} {time}");
            }
        }
    }

    #[test]
    fn counter_clocks_are_plain_numbers() {
        for front in ["[001] ..... ", "[001] "] {
            let batch = parse(&format!("{:>16}-{:<7} {front}{:>12}: {FIELDS}", "a", 1, 3_552_927));
            assert_eq!((batch.records[0].time, batch.ticks), (3_552_927, true));
        }
    }

    #[test]
    fn lost_events_keep_their_place_and_number() {
        let batch = parse("CPU:1 [LOST 17 EVENTS]\nCPU:22 [LOST EVENTS]\nCPU:3 [5 EVENTS DROPPED]\n");
        let lost: Vec<(u32, Event)> = batch.records.iter().map(|record| (record.cpu, record.event)).collect();
        assert_eq!(lost, [(1, Event::Lost(Some(17))), (22, Event::Lost(None)), (3, Event::Lost(Some(5)))]);
    }

    #[test]
    fn losses_in_front_of_a_text_have_the_time_of_the_record_behind() {
        let batch =
            parse(&format!("CPU:1 [LOST 17 EVENTS]\n{:>16}-{:<7} [001] ..... 5.000000: {FIELDS}", "a", 1));
        assert_eq!(batch.records.iter().map(|record| record.time).collect::<Vec<_>>(), [5_000_000_000; 2]);
    }

    #[test]
    fn headers_are_read_and_unparsed_lines_counted() {
        let text = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 207/300   #P:2\n\n  what is this\nCPU:x\n";
        let batch = parse(text);
        assert_eq!(batch.entries, Some((207, 300)));
        assert_eq!((batch.lines, batch.unparsed), (6, 2));
        assert_eq!(batch.first_unparsed, Some(text.find("  what").unwrap() as u64));
    }

    #[test]
    fn other_events_pass_through_by_name() {
        let names = Arc::new(Names::default());
        let mut batch = TextBatch::default();
        let text = "              sh-9       [000] .....     1.000000: sched:sched_waking: comm=x\n\
                    \x20             sh-9       [000] .....     1.000001: do_idle <-cpu_startup\n\
                    \x20             sh-9       [000] .....     1.000002: amd_pstate_perf: amd_min_perf=1\n";
        LineParser::new(names.clone()).parse(text.as_bytes(), 0, &mut batch);
        let found: Vec<String> = batch
            .records
            .iter()
            .map(|record| if let Event::Other(id) = record.event { names.name(id) } else { String::new() })
            .collect();
        assert_eq!(found, ["sched_waking", "(function)", "amd_pstate_perf"]);
    }

    proptest::proptest! {
        #[test]
        fn the_usual_front_is_read_as_any_other(front in proptest::prop_oneof![
            " {0,3}\\[[0-9]{1,4}\\] [a-zA-Z.][a-zA-Z.0-9]{4} {1,6}[0-9]{1,20}\\.[0-9]{6}: {1,2}x",
            " {0,3}\\[[0-9]{1,4}\\] [a-zA-Z.0-9]{4,6} {0,6}[0-9]{0,20}[.]?[0-9]{5,7}:? {0,2}x?",
            " {0,3}\\[[0-9]{0,4}\\].{0,40}",
        ]) {
            let mut marks = Marks::default();
            let found = usual_front(front.as_bytes(), 0, &mut marks);
            let found = found.map(|(cpu, time, ticks, at)| (cpu, time, ticks, at, marks));
            proptest::prop_assert!(found.is_none() || found == behind_task(front.as_bytes(), 0), "{found:?}");
        }

        #[test]
        fn no_text_panics(text in "[ -~\n]{0,400}", junk in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let mut batch = TextBatch::default();
            let mut parser = LineParser::new(Arc::default());
            parser.parse(text.as_bytes(), 0, &mut batch);
            parser.parse(&junk, 0, &mut batch);
        }

        #[test]
        fn damaged_lines_do_not_panic(at in 0usize..220, byte: u8, cut in 0usize..220) {
            let mut line = format!("{:>16}-{:<7} [001] d..1.     3.552927: {FIELDS}\n", "job[12]", 5).into_bytes();
            let length = line.len();
            line[at % length] = byte;
            line.truncate(cut.max(1));
            let mut batch = TextBatch::default();
            LineParser::new(Arc::default()).parse(&line, 0, &mut batch);
            proptest::prop_assert!(batch.records.len() <= 2);
        }
    }
}
