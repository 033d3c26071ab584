//! The content of a chunk: one column per value with its numbers in all samples of the chunk, as
//! second differences in varints.
//!
//! A counter that grows evenly has second differences near zero, and a setting that does not change
//! has zeros, so Zstandard packs them well. All arithmetic wraps, so any numbers are read back as
//! they were written.

use crate::{
    ABSENT,
    sample::{Cost, Sample},
};

/// Columns before the values: both clocks and the four numbers of the cost.
pub(super) const LEADING: usize = 6;
/// Maximum bytes of a number.
pub(super) const MAX_NUMBER: u64 = 10;

/// Appends a number in groups of seven bits, lowest first (LEB128).
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Removes a LEB128 number from the front of `bytes`.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        // The tenth byte holds only the last of the 64 bits.
        if shift == 63 && part > 1 {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Maps small numbers of either sign to small numbers.
fn zigzag(number: u64) -> u64 {
    let signed = number as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Returns the stored form of the value at `index` of a sample, leading columns first.
fn column(sample: &Sample, index: usize) -> u64 {
    let cost = &sample.cost;
    match index {
        0 => sample.at,
        1 => sample.wall,
        2 => cost.cpu,
        3 => cost.touched.into(),
        4 => cost.asked.into(),
        5 => cost.interrupts.into(),
        // An absent value becomes zero: one byte instead of ten.
        _ => sample.values.get(index - LEADING).copied().unwrap_or(ABSENT).wrapping_add(1),
    }
}

/// Packs samples that each have `values` values.
pub(super) fn encode(samples: &[Sample], values: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity((values + LEADING) * samples.len() * 2);
    for index in 0..values + LEADING {
        let (mut last, mut step) = (0u64, 0u64);
        for (at, sample) in samples.iter().enumerate() {
            let value = column(sample, index);
            let new = value.wrapping_sub(last);
            // The first value is stored as it is, the second as a difference, and the others as the
            // change of the difference.
            match at {
                0 => put(&mut out, new),
                1 => put(&mut out, zigzag(new)),
                _ => put(&mut out, zigzag(new.wrapping_sub(step))),
            }
            (last, step) = (value, new);
        }
    }
    out
}

/// Decodes the samples of a chunk. `None` if the bytes are not exactly `count` samples.
pub(super) fn decode(mut bytes: &[u8], count: usize, values: usize) -> Option<Vec<Sample>> {
    // Each number has at least one byte. This keeps the allocation below in proportion to the
    // input.
    if bytes.len() < (values + LEADING).checked_mul(count)? {
        return None;
    }
    let empty = Sample { at: 0, wall: 0, cost: Cost::default(), values: Vec::new() };
    let mut samples = vec![empty; count];
    for sample in &mut samples {
        sample.values.reserve_exact(values);
    }
    for index in 0..values + LEADING {
        let (mut last, mut step) = (0u64, 0u64);
        for (at, sample) in samples.iter_mut().enumerate() {
            let stored = take(&mut bytes)?;
            step = match at {
                0 => stored,
                1 => unzigzag(stored),
                _ => step.wrapping_add(unzigzag(stored)),
            };
            last = last.wrapping_add(step);
            let cost = &mut sample.cost;
            match index {
                0 => sample.at = last,
                1 => sample.wall = last,
                2 => cost.cpu = last,
                3 => cost.touched = last.try_into().ok()?,
                4 => cost.asked = last.try_into().ok()?,
                5 => cost.interrupts = last.try_into().ok()?,
                _ => sample.values.push(last.wrapping_sub(1)),
            }
        }
    }
    bytes.is_empty().then_some(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_and_sign_come_back() {
        for number in [0, 1, 0x7f, 0x80, 1 << 62, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            assert_eq!(take(&mut bytes.as_slice()), Some(number));
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert_eq!(zigzag((-1i64) as u64), 1);
        // Neither eleven bytes nor a tenth byte with more than one bit are a number.
        assert_eq!(take(&mut [0xff; 11].as_slice()), None);
        assert_eq!(take(&mut [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2].as_slice()), None);
    }
}
