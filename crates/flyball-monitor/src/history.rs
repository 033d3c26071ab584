//! The last minutes of samples in memory, so that a moment that was not recorded can be viewed, and
//! what a history and a recording have in common.
//!
//! A sample of 576 CPUs has 26,000 numbers. Ten minutes of raw numbers would take 125 MB, so
//! samples are packed as in a file.

use std::{
    collections::VecDeque,
    fmt,
    io::{Read, Seek},
    time::Duration,
};

use crate::{
    Layout, Sample,
    file::{self, CHUNK, FileError, Recording},
};

/// Samples by number. Numbers grow with time and do not change.
pub trait Timeline {
    fn layout(&self) -> &Layout;

    /// The number of the oldest sample that is kept.
    fn first(&self) -> u64;

    /// The number after that of the newest sample.
    fn end(&self) -> u64;

    /// Returns a sample by its number. `None` if it is not kept or is damaged.
    ///
    /// # Errors
    /// An unreadable or damaged recording.
    fn sample(&mut self, number: u64) -> Result<Option<Sample>, FileError>;

    /// The number of the last sample that is not later than a time (ns since 1970), or the first.
    fn at(&mut self, wall: u64) -> Result<u64, FileError>;
}

impl<R: Read + Seek> Timeline for Recording<R> {
    fn layout(&self) -> &Layout {
        Recording::layout(self)
    }

    fn first(&self) -> u64 {
        0
    }

    fn end(&self) -> u64 {
        self.len()
    }

    fn sample(&mut self, number: u64) -> Result<Option<Sample>, FileError> {
        Recording::sample(self, number)
    }

    fn at(&mut self, wall: u64) -> Result<u64, FileError> {
        self.index_at(wall)
    }
}

/// A chunk as in a file, without its head.
struct Packed {
    /// Nanoseconds since 1970 of its first sample, and the monotonic time of its last.
    wall: u64,
    last_at: u64,
    bytes: Vec<u8>,
}

/// The samples of the last minutes.
pub struct History {
    layout: Layout,
    span: Duration,
    /// Full chunks of [`CHUNK`] samples.
    packed: VecDeque<Packed>,
    /// Samples that are not in a chunk yet.
    open: Vec<Sample>,
    first: u64,
    /// The chunk that was unpacked last: its number, counted from the first chunk ever, and its
    /// samples.
    unpacked: Option<(u64, Vec<Sample>)>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("first", &self.first)
            .field("end", &self.end())
            .finish_non_exhaustive()
    }
}

impl History {
    /// Keeps the samples of the last `span`, and up to a chunk more.
    pub fn new(layout: Layout, span: Duration) -> History {
        History { layout, span, packed: VecDeque::new(), open: Vec::new(), first: 0, unpacked: None }
    }

    /// Adds the newest sample.
    pub fn add(&mut self, sample: Sample) {
        let now = sample.at;
        self.open.push(sample);
        // Pack only full chunks: single samples have few differences to store.
        if self.open.len() == CHUNK {
            let bytes = file::pack(&self.open, self.layout.values());
            self.packed.push_back(Packed { wall: self.open[0].wall, last_at: now, bytes });
            self.open.clear();
        }
        let kept_from = now.saturating_sub(self.span.as_nanos() as u64);
        // Drop whole chunks: single samples cannot be removed from a chunk.
        while self.packed.front().is_some_and(|chunk| chunk.last_at < kept_from) {
            self.packed.pop_front();
            self.first += CHUNK as u64;
        }
    }

    /// Returns the size of the chunks, bytes.
    pub fn bytes(&self) -> usize {
        self.packed.iter().map(|chunk| chunk.bytes.len()).sum()
    }

    /// The number of the first sample of `open`.
    fn open_from(&self) -> u64 {
        self.first + (self.packed.len() * CHUNK) as u64
    }

    fn unpack(&mut self, index: usize) -> &[Sample] {
        let number = self.first / CHUNK as u64 + index as u64;
        if self.unpacked.as_ref().is_none_or(|(which, _)| *which != number) {
            let samples = file::unpack(&self.packed[index].bytes, CHUNK, self.layout.values());
            self.unpacked = Some((number, samples.unwrap_or_default()));
        }
        self.unpacked.as_ref().map_or(&[], |(_, samples)| samples)
    }
}

impl Timeline for History {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn first(&self) -> u64 {
        self.first
    }

    fn end(&self) -> u64 {
        self.open_from() + self.open.len() as u64
    }

    fn sample(&mut self, number: u64) -> Result<Option<Sample>, FileError> {
        let Some(index) = number.checked_sub(self.first) else { return Ok(None) };
        if let Some(index) = number.checked_sub(self.open_from()) {
            return Ok(self.open.get(index as usize).cloned());
        }
        let (chunk, within) = (index as usize / CHUNK, index as usize % CHUNK);
        Ok(self.unpack(chunk).get(within).cloned())
    }

    fn at(&mut self, wall: u64) -> Result<u64, FileError> {
        if let Some(index) = self.open.iter().rposition(|sample| sample.wall <= wall) {
            return Ok(self.open_from() + index as u64);
        }
        let Some(chunk) = self.packed.iter().rposition(|chunk| chunk.wall <= wall) else {
            return Ok(self.first);
        };
        let first = self.first + (chunk * CHUNK) as u64;
        let within = self.unpack(chunk).iter().rposition(|sample| sample.wall <= wall);
        Ok(first + within.unwrap_or(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::{layout, nth};

    #[test]
    fn the_last_minutes_are_kept_and_found() {
        let layout = layout(4);
        let mut history = History::new(layout.clone(), Duration::from_secs(100));
        for n in 0..1000 {
            history.add(nth(&layout, n));
        }
        assert_eq!(history.end(), 1000);
        assert!((884..=900).contains(&history.first()), "{}", history.first());
        for number in history.first()..history.end() {
            assert_eq!(history.sample(number).unwrap(), Some(nth(&layout, number)));
            assert_eq!(history.at(number * 1_000_000_000 + 5).unwrap(), number);
        }
        assert_eq!(history.sample(history.first() - 1).unwrap(), None);
        assert_eq!(history.sample(1000).unwrap(), None);
        assert_eq!(history.at(0).unwrap(), history.first());
    }
}
