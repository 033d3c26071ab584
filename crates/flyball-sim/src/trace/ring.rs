//! The ring buffer of one CPU (kernel/trace/ring_buffer.c): pages of records, of which the oldest
//! is overwritten.
//!
//! Records are stored as values and laid out when a page is read. Their size in a page is known in
//! advance, so that pages fill up, are overwritten and are counted as in the kernel.

use std::collections::VecDeque;

use super::Event;
use crate::kernel::Kernel;

/// Bytes of a sub-buffer.
pub(crate) const PAGE: usize = 4096;
// Time stamp and commit word (struct buffer_data_page).
const HEADER: usize = 16;
const DATA: usize = PAGE - HEADER;
/// Longest time between two records that fits into 27 bits of the record header.
const LONGEST: u64 = 1 << 27;
/// Flag in the commit word: records were lost before this page, and their number follows the data.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) stamp: u64,
    pub(crate) pid: i32,
    pub(crate) flags: u8,
    pub(crate) preempt: u8,
    pub(crate) event: Event,
}

#[derive(Debug, Default)]
struct Page {
    used: usize,
    records: Vec<Record>,
}

/// Counters that the stats file shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Records in the buffer.
    pub(crate) entries: u64,
    pub(crate) overrun: u64,
    /// Bytes in the buffer.
    pub(crate) bytes: u64,
    /// Records rejected because nothing may be overwritten.
    pub(crate) dropped: u64,
    /// Records taken by readers.
    pub(crate) read: u64,
}

/// The buffer of one CPU.
#[derive(Debug)]
pub(crate) struct Ring {
    pages: VecDeque<Page>,
    capacity: usize,
    counts: Counts,
    last: u64,
    /// Records overwritten since a reader last took a page.
    missed: u64,
}

/// Number of pages for a size in KiB.
fn pages(kib: u64) -> usize {
    // At least two, as in ring_buffer_resize(); at most 4 GiB per CPU, allocated only when used.
    (kib.saturating_mul(1024).div_ceil(DATA as u64) as usize).clamp(2, 1 << 20)
}

impl Ring {
    pub(crate) fn new(kib: u64) -> Ring {
        Ring { pages: VecDeque::new(), capacity: pages(kib), counts: Counts::default(), last: 0, missed: 0 }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts.entries == 0
    }

    /// Number of pages with records, and number of all pages.
    pub(crate) fn fill(&self) -> (usize, usize) {
        (self.pages.len(), self.capacity)
    }

    /// The stamp of the oldest record.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.records().next().map(|record| record.stamp)
    }

    /// All records, oldest first.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.pages.iter().flat_map(|page| &page.records)
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.counts = Counts::default();
        self.missed = 0;
    }

    pub(crate) fn resize(&mut self, kib: u64) {
        self.capacity = pages(kib);
        while self.pages.len() > self.capacity {
            self.overwrite();
        }
    }

    /// The stamp of a new record: at least `step` after the newest record's.
    pub(crate) fn after(&self, stamp: u64, step: u64) -> u64 {
        if self.last == 0 { stamp } else { stamp.max(self.last.saturating_add(step)) }
    }

    fn overwrite(&mut self) {
        if let Some(page) = self.pages.pop_front() {
            let gone = page.records.len() as u64;
            self.counts.entries -= gone;
            self.counts.overrun += gone;
            self.counts.bytes -= page.used as u64;
            self.missed += gone;
        }
    }

    /// Adds a record whose payload has `size` bytes.
    pub(crate) fn push(&mut self, record: Record, size: usize, overwrite: bool) {
        let mut need = event_size(size);
        // The record exceeds a page: ring_buffer_lock_reserve() fails.
        if need > DATA {
            self.counts.dropped += 1;
            return;
        }
        let delta = match self.pages.back().and_then(|page| page.records.last()) {
            Some(last) => record.stamp.saturating_sub(last.stamp),
            None => 0,
        };
        if delta >= LONGEST {
            // Needs a time extension, a record of two words before this one.
            need += 8;
        }
        if self.pages.back().is_none_or(|page| page.used + need > DATA) {
            if self.pages.len() >= self.capacity {
                if !overwrite {
                    self.counts.dropped += 1;
                    return;
                }
                self.overwrite();
            }
            // A page's first record has the page's timestamp.
            self.pages.push_back(Page::default());
            // No time extension is needed: the page's timestamp replaces the difference.
            need = event_size(size);
        }
        self.last = record.stamp;
        if let Some(page) = self.pages.back_mut() {
            page.used += need;
            page.records.push(record);
            self.counts.entries += 1;
            self.counts.bytes += need as u64;
        }
    }

    /// Removes the oldest record.
    pub(crate) fn pop(&mut self) -> Option<Record> {
        let page = self.pages.front_mut()?;
        // Linear, but a page holds some two hundred records.
        let record = page.records.remove(0);
        self.counts.entries -= 1;
        self.counts.read += 1;
        if page.records.is_empty() {
            self.counts.bytes -= page.used as u64;
            self.pages.pop_front();
        }
        Some(record)
    }

    /// Removes the oldest page, in the layout of trace_pipe_raw.
    pub(crate) fn take_page(&mut self, kernel: Kernel) -> Option<Vec<u8>> {
        let page = self.pages.pop_front()?;
        let count = page.records.len() as u64;
        self.counts.entries -= count;
        self.counts.read += count;
        self.counts.bytes -= page.used as u64;
        // The page reports, once, how many records were lost before it.
        let missed = std::mem::take(&mut self.missed);
        Some(lay_out(&page.records, kernel, missed))
    }
}

/// Returns the size of a record of `size` bytes with its header.
fn event_size(size: usize) -> usize {
    let size = size.next_multiple_of(4);
    // RINGBUF_TYPE_DATA_TYPE_LEN_MAX: longer records carry their length in a separate word.
    if size / 4 <= 28 { 4 + size } else { 8 + size }
}

fn lay_out(records: &[Record], kernel: Kernel, missed: u64) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE);
    let first = records.first().map_or(0, |record| record.stamp);
    page.extend_from_slice(&first.to_le_bytes());
    page.extend_from_slice(&[0; 8]);
    let mut before = first;
    for record in records {
        let mut delta = record.stamp.saturating_sub(before);
        before = record.stamp;
        if delta >= LONGEST {
            let low = (delta & (LONGEST - 1)) as u32;
            // RINGBUF_TYPE_TIME_EXTEND: 27 bits in this word, the others in the next.
            page.extend_from_slice(&(30 | low << 5).to_le_bytes());
            page.extend_from_slice(&((delta >> 27) as u32).to_le_bytes());
            delta = 0;
        }
        let size = record.event.size(kernel).next_multiple_of(4);
        if size / 4 <= 28 {
            page.extend_from_slice(&((size / 4) as u32 | (delta as u32) << 5).to_le_bytes());
        } else {
            page.extend_from_slice(&((delta as u32) << 5).to_le_bytes());
            // Type 0: the length is in a separate word, which it includes.
            page.extend_from_slice(&(size as u32 + 4).to_le_bytes());
        }
        let end = page.len() + size;
        page.extend_from_slice(&record.event.kind().id(kernel).to_le_bytes());
        page.push(record.flags);
        page.push(record.preempt);
        page.extend_from_slice(&record.pid.to_le_bytes());
        record.event.encode(kernel, &mut page);
        // Records are padded to whole words.
        page.resize(end, 0);
    }
    let used = page.len() - HEADER;
    let mut commit = used as u64;
    if missed > 0 {
        commit |= MISSED;
        // ring_buffer_read_page(): the number follows the data if it fits, which a flag tells.
        if used + 8 <= DATA {
            commit |= MISSED_STORED;
            page.extend_from_slice(&missed.to_le_bytes());
        }
    }
    page[8..16].copy_from_slice(&commit.to_le_bytes());
    page.resize(PAGE, 0);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(stamp: u64) -> Record {
        Record { stamp, pid: 0, flags: 1, preempt: 1, event: Event::CpuIdle { state: 1, cpu: 0 } }
    }

    #[test]
    fn every_record_is_in_the_buffer_read_or_counted_as_lost() {
        let mut ring = Ring::new(8);
        for n in 0..5000 {
            ring.push(record(n * 1000), 16, true);
        }
        let counts = ring.counts();
        assert_eq!(counts.entries + counts.overrun, 5000);
        assert!(counts.overrun > 0 && counts.bytes <= 3 * DATA as u64);
        let page = ring.take_page(Kernel::V6_12).unwrap();
        assert_eq!(page.len(), PAGE);
        // 204 records of 20 bytes fill a page exactly; earlier losses are flagged.
        let commit = u64::from_le_bytes(page[8..16].try_into().unwrap());
        assert_eq!((commit & 0xf_ffff, commit & MISSED != 0), (4080, true));
        ring.push(record(6_000_000), 16, true);
        let counts = ring.counts();
        assert_eq!(counts.entries + counts.overrun + counts.read, 5001);
    }

    #[test]
    fn a_full_buffer_refuses_where_nothing_may_be_overwritten() {
        let mut ring = Ring::new(1);
        for n in 0..1000 {
            ring.push(record(n), 16, false);
        }
        assert_eq!(ring.counts().entries + ring.counts().dropped, 1000);
        assert_eq!(ring.oldest(), Some(0));
    }

    #[test]
    fn long_times_take_an_extension() {
        let mut ring = Ring::new(64);
        ring.push(record(10), 16, true);
        ring.push(record(10 + 5 * LONGEST + 7), 16, true);
        let page = ring.take_page(Kernel::V6_12).unwrap();
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
        assert_eq!((word(36) & 31, word(36) >> 5, word(40)), (30, 7, 5));
        assert_eq!((word(44) & 31, word(44) >> 5), (4, 0));
    }
}
