//! Ring-buffer pages, which `per_cpu/cpuN/trace_pipe_raw` returns and trace.dat files contain.
//!
//! A page starts with a time stamp and a commit word, followed by records. Each record follows a
//! 32-bit word with five bits of type and length, and 27 bits of time since the previous record
//! (struct ring_buffer_event in the kernel's include/linux/ring_buffer.h). Types 29 to 31 are
//! padding and two encodings of times that exceed 27 bits.

use crate::{error::Malformed, format::PageHeader};

/// Records were lost before this page (`RB_MISSED_EVENTS`).
const MISSED: u64 = 1 << 31;
/// Their number follows the data (`RB_MISSED_STORED`).
const MISSED_STORED: u64 = 1 << 30;
/// Bits of the commit word that have the size.
const SIZE: u64 = (1 << 20) - 1;
/// The bits of a time that an absolute time stamp omits (`TS_MSB`).
const TOP: u64 = 0xf8 << 56;

/// Records that were overwritten before they could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    None,
    /// Some records; the kernel did not report how many.
    Some,
    /// This many.
    Count(u64),
}

#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    data: &'a [u8],
    start: usize,
    /// Time of the page's first record.
    pub time: u64,
    /// The records lost before the page.
    pub missed: Missed,
}

impl<'a> Page<'a> {
    /// Parses a page (or sub-buffer) from its bytes.
    ///
    /// # Errors
    /// The page is shorter than its header, or shorter than its header says.
    pub fn parse(bytes: &'a [u8], header: PageHeader) -> Result<Page<'a>, Malformed> {
        let short = || Malformed::new(bytes.len() as u64, "the page ends inside its header");
        let time = u64::from_le_bytes(*bytes.first_chunk().ok_or_else(short)?);
        // local_t is a long, which has 4 bytes on 32-bit kernels; the trace's events/header_page
        // tells its size.
        let commit = match header.commit_size {
            4 => u64::from(word(bytes, 8).ok_or_else(short)?),
            _ => u64::from_le_bytes(*bytes.get(8..).and_then(<[u8]>::first_chunk).ok_or_else(short)?),
        };
        // ring_buffer_read_page() sets the upper flags, which are not part of the length.
        let used = (commit & SIZE) as usize;
        let end = header.data + used;
        let data = bytes.get(..end).filter(|data| data.len() >= header.data).ok_or_else(|| {
            let room = bytes.len().saturating_sub(header.data);
            Malformed::new(8, format!("the page says that it holds {used} bytes, and has room for {room}"))
        })?;
        let missed = if commit & MISSED == 0 {
            Missed::None
        } else if commit & MISSED_STORED == 0 {
            Missed::Some
        } else {
            // The number follows the data if there was room for a long; otherwise the flag is not
            // set.
            let count = match header.commit_size {
                4 => word(bytes, end).map(u64::from),
                _ => bytes.get(end..).and_then(<[u8]>::first_chunk).map(|count| u64::from_le_bytes(*count)),
            };
            count.filter(|count| *count > 0).map_or(Missed::Some, Missed::Count)
        };
        Ok(Page { data, start: header.data, time, missed })
    }

    /// The page's records, in order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { data: self.data, walk: self.walk() }
    }

    /// The state of [`Page::entries`] without the bytes, for callers that keep the page elsewhere:
    /// see [`PageCursor`].
    pub fn walk(&self) -> PageCursor {
        PageCursor { at: self.start, end: self.data.len(), time: self.time }
    }

    /// Used bytes of the page, including its header.
    pub fn used(&self) -> usize {
        self.data.len()
    }

    /// Number of data records in the page, and its damage, if any.
    pub fn count(&self) -> (u64, Option<Malformed>) {
        let mut count = 0;
        for entry in self.entries() {
            match entry {
                Ok(_) => count += 1,
                Err(malformed) => return (count, Some(malformed)),
            }
        }
        (count, None)
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|word| u32::from_le_bytes(*word))
}

/// One data record of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub time: u64,
    /// Offset of its header word in the page.
    pub offset: usize,
    /// The record, from `common_type` on, including up to three bytes that pad its last word.
    pub payload: &'a [u8],
}

/// Iterator over a page's data records. It ends after the first damage.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    data: &'a [u8],
    walk: PageCursor,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.walk.next(self.data)
    }
}

/// A position in a page. Holds no borrow: [`PageCursor::next`] must be given the page that it came
/// from.
#[derive(Debug, Clone, Default)]
pub struct PageCursor {
    at: usize,
    end: usize,
    time: u64,
}

impl PageCursor {
    fn fail(&mut self, what: &str) -> Malformed {
        let offset = self.at as u64;
        // The length of a damaged record is unknown, and so is the start of the next one.
        self.at = self.end;
        Malformed::new(offset, what)
    }

    /// The next data record of `page`; `None` at its end.
    #[inline]
    pub fn next<'a>(&mut self, page: &'a [u8]) -> Option<Result<Entry<'a>, Malformed>> {
        let data = page.get(..self.end)?;
        while self.at < data.len() {
            let offset = self.at;
            let Some(head) = word(data, offset) else {
                return Some(Err(self.fail("a record's header is cut off")));
            };
            let delta = u64::from(head >> 5);
            let (start, end) = match head & 31 {
                // RINGBUF_TYPE_DATA_TYPE_LEN_MAX is 28: the length in words of four bytes
                // (RB_ALIGNMENT).
                kind @ 1..=28 => {
                    self.time = self.time.wrapping_add(delta);
                    (offset + 4, offset + 4 + 4 * kind as usize)
                }
                // Longer than 28 words: struct ring_buffer_event has the length in array[0].
                0 => {
                    let Some(length) = word(data, offset + 4).filter(|length| *length >= 4) else {
                        return Some(Err(self.fail("a long record without a length")));
                    };
                    self.time = self.time.wrapping_add(delta);
                    // The length includes its own word; the next record starts at a multiple of
                    // four bytes.
                    (offset + 8, offset + 4 + (length as usize).next_multiple_of(4))
                }
                // RINGBUF_TYPE_PADDING: the unused end of a page, or a record that
                // ring_buffer_discard_commit() discarded.
                29 => {
                    // rb_event_set_padding(): nothing after it was ever written.
                    if delta == 0 {
                        self.at = data.len();
                        return None;
                    }
                    let Some(length) = word(data, offset + 4) else {
                        return Some(Err(self.fail("a discarded record is cut off")));
                    };
                    // The time of a discarded record still counts, because later records are
                    // relative to it. A time of 1 only says that the record is not the end of the
                    // page (rb_event_discard(); rb_read_data_buffer() skips it too).
                    if delta > 1 {
                        self.time = self.time.wrapping_add(delta);
                    }
                    self.at = offset + 4 + (length as usize).max(4);
                    continue;
                }
                // RINGBUF_TYPE_TIME_EXTEND (30) adds to the time, RINGBUF_TYPE_TIME_STAMP (31) sets
                // it. Neither is a data record.
                kind => {
                    let Some(high) = word(data, offset + 4) else {
                        return Some(Err(self.fail("a time stamp is cut off")));
                    };
                    let value = delta | (u64::from(high) << 27);
                    self.time =
                        if kind == 30 { self.time.wrapping_add(value) } else { absolute(value, self.time) };
                    self.at = offset + 8;
                    continue;
                }
            };
            // Only a damaged page gets here: in the kernel no record crosses the end of a page.
            let Some(payload) = data.get(start..end) else {
                return Some(Err(self.fail("a record reaches over the end of its page")));
            };
            self.at = end;
            return Some(Ok(Entry { time: self.time, offset, payload }));
        }
        None
    }
}

/// Extends a 59-bit time stamp with the top bits of the time reached so far (rb_fix_abs_ts() in the
/// kernel).
fn absolute(value: u64, reached: u64) -> u64 {
    let time = (value & !TOP) | (reached & TOP);
    // If the top bits are 0, the time cannot have wrapped: that takes 18 years of nanoseconds since
    // boot.
    if reached & TOP != 0 && time < reached { time.wrapping_add(1 << 59) } else { time }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds a page with the kernel's layout.
    pub(crate) struct PageBuilder {
        pub(crate) bytes: Vec<u8>,
    }

    impl PageBuilder {
        pub(crate) fn new(time: u64) -> PageBuilder {
            let mut bytes = time.to_le_bytes().to_vec();
            bytes.extend_from_slice(&[0; 8]);
            PageBuilder { bytes }
        }

        pub(crate) fn word(mut self, kind: u32, delta: u32) -> PageBuilder {
            self.bytes.extend_from_slice(&(kind | (delta << 5)).to_le_bytes());
            self
        }

        pub(crate) fn raw(mut self, bytes: &[u8]) -> PageBuilder {
            self.bytes.extend_from_slice(bytes);
            self
        }

        pub(crate) fn record(self, delta: u32, payload: &[u8]) -> PageBuilder {
            let padded = payload.len().next_multiple_of(4);
            let mut built = if padded <= 112 && padded > 0 {
                self.word((padded / 4) as u32, delta)
            } else {
                self.word(0, delta).raw(&(padded as u32 + 4).to_le_bytes())
            };
            built.bytes.extend_from_slice(payload);
            built.bytes.resize(built.bytes.len() + padded - payload.len(), 0);
            built
        }

        pub(crate) fn finish(mut self, flags: u64, behind: &[u8]) -> Vec<u8> {
            let used = (self.bytes.len() - 16) as u64;
            self.bytes[8..16].copy_from_slice(&(used | flags).to_le_bytes());
            self.bytes.extend_from_slice(behind);
            self.bytes.resize(self.bytes.len().max(4096), 0);
            self.bytes
        }
    }

    fn times(page: &[u8]) -> Vec<(u64, usize)> {
        let page = Page::parse(page, PageHeader::default()).unwrap();
        page.entries().map(|entry| entry.map(|entry| (entry.time, entry.payload.len())).unwrap()).collect()
    }

    #[test]
    fn all_header_forms_are_read() {
        let page = PageBuilder::new(1_000)
            .record(0, &[1; 64])
            .record(5, &[2; 16])
            .word(30, 7)
            .raw(&3u32.to_le_bytes())
            .record(1, &[3; 113])
            .word(29, 4)
            .raw(&12u32.to_le_bytes())
            .raw(&[0xee; 8])
            .record(2, &[4; 4])
            .word(31, 99)
            .raw(&(1u32 << 10).to_le_bytes())
            .record(0, &[5; 112])
            .word(29, 0)
            .raw(&[0xff; 40])
            .finish(0, &[]);
        let extended = 1_005 + 7 + (3 << 27) + 1;
        assert_eq!(
            times(&page),
            [(1_000, 64), (1_005, 16), (extended, 116), (extended + 6, 4), ((1 << 37) + 99, 112)]
        );
    }

    #[test]
    fn absolute_stamps_keep_the_top_bits() {
        assert_eq!(absolute(5, 0), 5);
        assert_eq!(absolute(5, (3 << 59) | 4), (3 << 59) | 5);
        assert_eq!(absolute(3, (3 << 59) | 4), (4 << 59) | 3);
    }

    #[test]
    fn lost_records_are_counted_or_only_known() {
        let missed = |flags, behind: &[u8]| {
            let page = PageBuilder::new(0).record(0, &[0; 8]).finish(flags, behind);
            Page::parse(&page, PageHeader::default()).unwrap().missed
        };
        assert_eq!(missed(0, &[]), Missed::None);
        assert_eq!(missed(MISSED, &7u64.to_le_bytes()), Missed::Some);
        assert_eq!(missed(MISSED | MISSED_STORED, &7u64.to_le_bytes()), Missed::Count(7));
        assert_eq!(missed(MISSED | MISSED_STORED, &0u64.to_le_bytes()), Missed::Some);
    }

    #[test]
    fn damage_ends_the_page_with_its_offset() {
        let page = PageBuilder::new(0).record(0, &[0; 8]).word(28, 0).finish(0, &[]);
        let page = Page::parse(&page, PageHeader::default()).unwrap();
        let (count, damage) = page.count();
        assert_eq!((count, damage.unwrap().offset), (1, 28));
        let mut page = PageBuilder::new(0).record(0, &[0; 8]).finish(0, &[]);
        page[8..16].copy_from_slice(&4081u64.to_le_bytes());
        assert_eq!(Page::parse(&page, PageHeader::default()).unwrap_err().offset, 8);
        assert!(Page::parse(&page[..12], PageHeader::default()).is_err());
        assert!(Page::parse(&[], PageHeader { commit_size: 4, data: 12 }).is_err());
    }

    #[test]
    fn sub_buffers_of_64_kib_are_read_whole() {
        let mut built = PageBuilder::new(0);
        for _ in 0..3_000 {
            built = built.record(1, &[0; 16]);
        }
        let page = built.finish(0, &[]);
        assert!(page.len() > 60_000);
        assert_eq!(times(&page).len(), 3_000);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), small: bool) {
            let header = if small { PageHeader { commit_size: 4, data: 12 } } else { PageHeader::default() };
            let mut bytes = bytes;
            if let Some(commit) = bytes.get_mut(9..16) {
                // Most random commit words are too large to pass the first check.
                commit.fill(0);
            }
            if let Ok(page) = Page::parse(&bytes, header) {
                let _ = page.count();
            }
        }
    }
}
