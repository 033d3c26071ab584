//! Where each quantity's values begin in a sample of a layout.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::Range,
};

use crate::{ABSENT, Layout, Quantity, Sample};

/// Positions of a layout's quantities, looked up once: a sample of 576 CPUs has 26,000 values, and
/// searching the fields for each of them would cost more than reading it.
#[derive(Debug)]
pub struct ValueOffsets(HashMap<Quantity, ValueOffset, BuildHasherDefault<Small>>);

/// Where a quantity begins, and its width in bits.
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
            // A file may name a quantity twice. The first counts, as in a search of the fields.
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

    /// Returns a value. `index` is that of a CPU or package, as the quantity's scope says.
    pub fn get(&self, sample: &Sample, quantity: Quantity, index: usize) -> Option<u64> {
        // In a damaged file, a sample may be shorter than its layout says.
        let value = *sample.values.get(self.0.get(&quantity)?.start + index)?;
        (value != ABSENT).then_some(value)
    }

    /// Returns how much a counter moved. `None` if either end is not known, or if it went back
    /// without wrapping.
    pub(crate) fn delta(&self, from: &Sample, to: &Sample, quantity: Quantity, index: usize) -> Option<u64> {
        let bits = self.0.get(&quantity)?.wraps_after;
        let (from, to) = (self.get(from, quantity, index)?, self.get(to, quantity, index)?);
        // Registers that do not count also get here, but nobody asks for their difference.
        if to >= from {
            return Some(to - from);
        }
        // A 64-bit counter does not wrap in a machine's life: it was written or restarted.
        (1..64).contains(&bits).then(|| ((1u64 << bits) + to).saturating_sub(from))
    }

    /// Returns the positions of a quantity's first `count` values. Empty if it is not read.
    pub(crate) fn range(&self, quantity: Quantity, count: usize) -> Range<usize> {
        self.0.get(&quantity).map_or(0..0, |place| place.start..place.start + count)
    }
}

/// Hashes the one or two small numbers of a quantity. The standard hash, which withstands keys that
/// an attacker chooses, takes several times as long.
#[derive(Debug, Default)]
struct Small(u64);

impl Small {
    fn add(&mut self, number: u64) {
        // An odd constant with bits everywhere (the golden ratio), since the table uses the lowest
        // and the highest bits.
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

    /// Hashes the number of an enum's variant.
    fn write_isize(&mut self, number: isize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
