//! Where each quantity's values begin in a sample of a layout.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::Range,
};

use crate::{ABSENT, Layout, Quantity, Sample};

/// Looked up once per layout: a sample of 576 CPUs has 26,000 values, and a search of the fields
/// for each of them costs more than reading them does.
#[derive(Debug)]
pub struct ValueOffsets(HashMap<Quantity, ValueOffset, BuildHasherDefault<Small>>);

/// Where a quantity begins, and after how many bits it wraps.
#[derive(Debug, Clone, Copy)]
struct ValueOffset {
    start: usize,
    wraps_after: u8,
}

impl ValueOffsets {
    pub fn new(layout: &Layout) -> ValueOffsets {
        let mut start = 0;
        let mut places = HashMap::default();
        for field in &layout.fields {
            // The first of two, as a search of the fields has it: a file may name a quantity twice.
            places.entry(field.quantity).or_insert(ValueOffset { start, wraps_after: field.wraps_after });
            start += layout.instances(field.scope);
        }
        ValueOffsets(places)
    }

    pub(crate) fn has(&self, quantity: Quantity) -> bool {
        self.0.contains_key(&quantity)
    }

    pub(crate) fn put(&self, sample: &mut Sample, quantity: Quantity, index: usize, value: u64) {
        if let Some(place) = self.0.get(&quantity) {
            sample.values[place.start + index] = value;
        }
    }

    /// `index` is one of the quantity's scope.
    pub fn get(&self, sample: &Sample, quantity: Quantity, index: usize) -> Option<u64> {
        // A sample of a file may be shorter than its layout says.
        let value = *sample.values.get(self.0.get(&quantity)?.start + index)?;
        (value != ABSENT).then_some(value)
    }

    /// How much a counter moved. `None` where it is not known at both ends, or stands below where
    /// it was and does not wrap.
    pub(crate) fn delta(&self, from: &Sample, to: &Sample, quantity: Quantity, index: usize) -> Option<u64> {
        let bits = self.0.get(&quantity)?.wraps_after;
        let (from, to) = (self.get(from, quantity, index)?, self.get(to, quantity, index)?);
        // Also for registers that do not count; nothing asks for their difference.
        if to >= from {
            return Some(to - from);
        }
        // A 64-bit counter does not wrap in the life of a machine: it was written, or began again.
        (1..64).contains(&bits).then(|| ((1u64 << bits) + to).saturating_sub(from))
    }

    /// The places of a quantity's first `count` values; none where it is not read.
    pub(crate) fn range(&self, quantity: Quantity, count: usize) -> Range<usize> {
        self.0.get(&quantity).map_or(0..0, |place| place.start..place.start + count)
    }
}

/// Hashes the one or two small numbers that a quantity is. The standard hash withstands keys that
/// an attacker chooses, and takes several times as long.
#[derive(Debug, Default)]
struct Small(u64);

impl Small {
    fn add(&mut self, number: u64) {
        // An odd constant with bits everywhere (the golden ratio): the table takes the lowest and
        // the highest bits.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Small {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.add(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }

    /// Writes the number of an enum's variant.
    fn write_isize(&mut self, number: isize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
