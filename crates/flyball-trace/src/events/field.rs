//! Kinds of event fields: how a value is read from a binary record, parsed from text and printed.
//!
//! The field lists in the neighbouring files give a kind for each field. A kind is a type without
//! values. All of its functions are compiled into the event that uses it, so that reading an event
//! costs no calls.

#![expect(clippy::inline_always, reason = "measured: calls here cost a fifth of the time that text takes")]

use std::fmt;

use crate::{
    comm::Comm,
    format::{EventFormat, Field, Shape},
    scan::{decimal, long_decimal, short_decimal, signed, truth, value_of},
};

/// Location of an integer: `(eight bytes at load) >> shift & mask`, sign-extended from `sign` if
/// that is not 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) load: usize,
    pub(crate) shift: u32,
    pub(crate) mask: u64,
    pub(crate) sign: u64,
}

impl Slot {
    /// `size` is the minimum length of the event's records. Records of fewer than eight bytes have
    /// no slots, because the load would exceed their end.
    pub(crate) fn new(field: &Field, size: usize) -> Option<Slot> {
        if field.shape != Shape::Integer || field.offset.saturating_add(field.size) > size || size < 8 {
            return None;
        }
        // One load of eight bytes for all field sizes. Near the record's end it starts earlier,
        // which the shift compensates.
        let load = field.offset.min(size - 8);
        let bits = 8 * field.size as u32;
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let sign = if field.signed && bits < 64 { 1 << (bits - 1) } else { 0 };
        Some(Slot { load, shift: 8 * (field.offset - load) as u32, mask, sign })
    }

    /// Returns 0 if the record is too short, which the decoder has excluded.
    #[inline(always)]
    pub(crate) fn get(self, record: &[u8]) -> u64 {
        let word =
            record.get(self.load..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word));
        let value = (word >> self.shift) & self.mask;
        // Sign extension without a branch; a no-op if `sign` is 0.
        (value ^ self.sign).wrapping_sub(self.sign)
    }
}

/// An event's layout in its format file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout<'a> {
    format: &'a EventFormat,
    size: usize,
}

impl<'a> Layout<'a> {
    pub(crate) fn new(format: &'a EventFormat) -> Layout<'a> {
        Layout { format, size: format.size() }
    }

    fn integer(self, names: &[&str]) -> Option<Slot> {
        names.iter().find_map(|name| Slot::new(self.format.field(name)?, self.size))
    }

    fn text(self, names: &[&str]) -> Option<Field> {
        // The first name is that of the newest kernels. Fields have been renamed, and each layout
        // has one of the names.
        let field = names.iter().find_map(|name| self.format.field(name))?;
        let text = matches!(field.shape, Shape::Text | Shape::Located { .. } | Shape::Relative { .. });
        text.then(|| field.clone())
    }
}

/// Skips `key` at `at`.
#[inline(always)]
pub(crate) fn after(bytes: &[u8], at: usize, key: &[u8]) -> Option<usize> {
    bytes.get(at..)?.starts_with(key).then_some(at + key.len())
}

/// A kind of field.
pub(crate) trait Kind {
    /// The field's type in the event.
    type Value: Copy;
    /// Location of the field in a binary record.
    type Place: Clone + fmt::Debug;
    /// True if some kernels lack this field.
    const OPTIONAL: bool = false;

    /// Location of the field with the first of `names` in the layout. `None` if the event cannot be
    /// read.
    fn place(layout: Layout<'_>, names: &[&str]) -> Option<Self::Place>;

    fn decode(place: &Self::Place, record: &[u8]) -> Self::Value;

    /// Parses the value that starts at `at`. Also returns its end.
    fn read(bytes: &[u8], at: usize) -> Option<(Self::Value, usize)>;

    /// Parses the value after `key`, like [`Kind::read`].
    #[inline(always)]
    fn read_behind(bytes: &[u8], at: usize, key: &str) -> Option<(Self::Value, usize)> {
        Self::read(bytes, after(bytes, at, key.as_bytes())?)
    }

    /// Parses the value after `key`, anywhere in the text.
    fn find(text: &[u8], key: &str) -> Option<Self::Value> {
        let at = value_of(text, key.trim_start().as_bytes())?;
        Self::read(text, at).map(|(value, _)| value)
    }

    fn print(value: Self::Value, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    fn print_behind(value: Self::Value, key: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(key)?;
        Self::print(value, f)
    }
}

/// Declares a kind of integer field. The expressions become function bodies, because without
/// link-time optimisation closures are not inlined where the event is read.
macro_rules! integers {
    ($(
        $(#[$doc:meta])* $kind:ident: $value:ty,
        from($bits:ident) $of_bits:expr,
        from($bytes:ident, $at:ident) $read:expr,
        printed $print:expr;
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) enum $kind {}

            impl Kind for $kind {
                type Value = $value;
                type Place = Slot;

                fn place(layout: Layout<'_>, names: &[&str]) -> Option<Slot> {
                    layout.integer(names)
                }

                #[inline(always)]
                fn decode(place: &Slot, record: &[u8]) -> $value {
                    let $bits = place.get(record);
                    $of_bits
                }

                #[inline(always)]
                fn read($bytes: &[u8], $at: usize) -> Option<($value, usize)> {
                    $read
                }

                fn print(value: $value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    let print: fn($value, &mut fmt::Formatter<'_>) -> fmt::Result = $print;
                    print(value, f)
                }
            }
        )+
    };
}

integers! {
    /// An exact number below 2^32: CPUs, states, levels of a driver with 32 bits for them.
    Small: u32,
        from(bits) bits as u32,
        from(bytes, at) {
            let (value, at) = short_decimal(bytes, at)?;
            Some((u32::try_from(value).ok()?, at))
        },
        printed |value, f| fmt::Display::fmt(&value, f);
    /// A performance level: `unsigned long` up to kernel 6.12, though no level needs more than
    /// eight bits.
    Level: u32,
        from(bits) bits as u32,
        from(bytes, at) {
            let (value, at) = short_decimal(bytes, at)?;
            // Printed with %lu up to 6.12. Larger values are damage, which the largest level shows.
            Some((u32::try_from(value).unwrap_or(u32::MAX), at))
        },
        printed |value, f| fmt::Display::fmt(&value, f);
    /// A frequency, kHz.
    Khz: u64,
        from(bits) bits,
        from(bytes, at) short_decimal(bytes, at),
        printed |value, f| fmt::Display::fmt(&value, f);
    /// A counter, which usually has more digits than other numbers.
    Counter: u64,
        from(bits) bits,
        from(bytes, at) long_decimal(bytes, at),
        printed |value, f| fmt::Display::fmt(&value, f);
    Signed: i32,
        from(bits) bits as i32,
        from(bytes, at) {
            let (value, at) = signed(bytes, at)?;
            // Truncated like the kernel's conversion to int: %d never prints more.
            Some((value as i32, at))
        },
        printed |value, f| fmt::Display::fmt(&value, f);
    /// `true` or `false`; some printers write `1` and `0`.
    Truth: bool,
        from(bits) bits != 0,
        from(bytes, at) match truth(bytes, at) {
            Some(read) => Some(read),
            None => decimal(bytes, at).map(|(value, end)| (value != 0, end)),
        },
        printed |value, f| fmt::Display::fmt(&value, f);
    /// A flag that the kernel prints as a number.
    Digit: bool,
        from(bits) bits != 0,
        from(bytes, at) decimal(bytes, at).map(|(value, end)| (value != 0, end)),
        printed |value, f| fmt::Display::fmt(&u8::from(value), f);
    /// `below` or `above`.
    Below: bool,
        from(bits) bits != 0,
        from(bytes, at) match after(bytes, at, b"below") {
            Some(end) => Some((true, end)),
            None => after(bytes, at, b"above").map(|end| (false, end)),
        },
        printed |value, f| f.write_str(if value { "below" } else { "above" });
}

/// A field that some kernels lack and do not print.
#[derive(Debug)]
pub(crate) struct Maybe<K>(std::marker::PhantomData<K>);

impl<K: Kind> Kind for Maybe<K> {
    type Value = Option<K::Value>;
    type Place = Option<K::Place>;
    const OPTIONAL: bool = true;

    fn place(layout: Layout<'_>, names: &[&str]) -> Option<Self::Place> {
        // The outer `Some`: the event can be read without the field.
        Some(K::place(layout, names))
    }

    #[inline(always)]
    fn decode(place: &Self::Place, record: &[u8]) -> Self::Value {
        place.as_ref().map(|place| K::decode(place, record))
    }

    #[inline(always)]
    fn read(bytes: &[u8], at: usize) -> Option<(Self::Value, usize)> {
        K::read(bytes, at).map(|(value, end)| (Some(value), end))
    }

    #[inline(always)]
    fn read_behind(bytes: &[u8], at: usize, key: &str) -> Option<(Self::Value, usize)> {
        match after(bytes, at, key.as_bytes()) {
            Some(at) => Self::read(bytes, at),
            None => Some((None, at)),
        }
    }

    fn find(text: &[u8], key: &str) -> Option<Self::Value> {
        // The outer `Some`: the event is complete without it.
        Some(K::find(text, key))
    }

    fn print(value: Self::Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value.map_or(Ok(()), |value| K::print(value, f))
    }

    fn print_behind(value: Self::Value, key: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value.map_or(Ok(()), |value| K::print_behind(value, key, f))
    }
}

/// A [`Small`] that is 0 on kernels without the field.
#[derive(Debug)]
pub(crate) enum OrZero {}

impl Kind for OrZero {
    type Value = u32;
    type Place = Option<Slot>;
    const OPTIONAL: bool = true;

    fn place(layout: Layout<'_>, names: &[&str]) -> Option<Self::Place> {
        Maybe::<Small>::place(layout, names)
    }

    #[inline(always)]
    fn decode(place: &Self::Place, record: &[u8]) -> u32 {
        Maybe::<Small>::decode(place, record).unwrap_or(0)
    }

    #[inline(always)]
    fn read(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
        Small::read(bytes, at)
    }

    #[inline(always)]
    fn read_behind(bytes: &[u8], at: usize, key: &str) -> Option<(u32, usize)> {
        Maybe::<Small>::read_behind(bytes, at, key).map(|(value, end)| (value.unwrap_or(0), end))
    }

    fn find(text: &[u8], key: &str) -> Option<u32> {
        Some(Small::find(text, key).unwrap_or(0))
    }

    fn print(value: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Small::print(value, f)
    }
}

/// A name without blanks.
#[derive(Debug)]
pub(crate) enum Name {}

/// A name up to the end of the line.
#[derive(Debug)]
pub(crate) enum Rest {}

impl Kind for Name {
    type Value = Comm;
    type Place = Field;

    fn place(layout: Layout<'_>, names: &[&str]) -> Option<Field> {
        layout.text(names)
    }

    fn decode(place: &Field, record: &[u8]) -> Comm {
        Comm::new(place.text(record).unwrap_or_default())
    }

    fn read(bytes: &[u8], at: usize) -> Option<(Comm, usize)> {
        let rest = bytes.get(at..)?;
        let length = rest.iter().position(|byte| matches!(byte, b' ' | b'\n')).unwrap_or(rest.len());
        Some((Comm::new(&rest[..length]), at + length))
    }

    fn print(value: Comm, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&value, f)
    }
}

impl Kind for Rest {
    type Value = Comm;
    type Place = Field;

    fn place(layout: Layout<'_>, names: &[&str]) -> Option<Field> {
        layout.text(names)
    }

    fn decode(place: &Field, record: &[u8]) -> Comm {
        Name::decode(place, record)
    }

    fn read(bytes: &[u8], at: usize) -> Option<(Comm, usize)> {
        let rest = bytes.get(at..)?;
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        Some((Comm::new(&rest[..length]), at + length))
    }

    fn print(value: Comm, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&value, f)
    }
}
