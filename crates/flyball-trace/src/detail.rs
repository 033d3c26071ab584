//! The fields of events that this library does not know by name, displayed by the layout in the
//! trace's own format file.

use std::fmt;

use crate::{
    clock::Clock,
    error::TraceError,
    format::{EventFormat, Field, Shape},
    record::Record,
};

/// Details of a record that its [`Event`](crate::Event) lacks: all fields of a passed-through
/// event.
#[derive(Debug, Clone, Copy)]
pub enum Detail<'a> {
    /// None: the record has no more, or details were not requested.
    None,
    /// The record's bytes and their layout.
    Bytes {
        format: &'a EventFormat,
        /// The record, from `common_type` on.
        payload: &'a [u8],
    },
    /// The text after the event's name.
    Text(&'a [u8]),
}

/// Receives records in chronological order, with the clock of their buffer and the details that
/// their event lacks.
pub type DetailSink<'a> = dyn FnMut(Clock, &Record, Detail<'_>) -> Result<(), TraceError> + Send + 'a;

impl fmt::Display for Detail<'_> {
    /// Prints `name=value` pairs separated by blanks; text is unchanged. Bytes that are neither
    /// number nor text are printed in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (format, payload) = match self {
            Detail::None => return Ok(()),
            Detail::Text(text) => return f.write_str(&String::from_utf8_lossy(text)),
            Detail::Bytes { format, payload } => (format, payload),
        };
        for (number, field) in format.fields.iter().skip(format.common).enumerate() {
            if number > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{}=", field.name)?;
            if let Some(text) = field.text(payload) {
                f.write_str(&String::from_utf8_lossy(text))?;
            } else if let Some(value) = field.integer(payload) {
                // An unsigned value may exceed an i64.
                if field.signed { write!(f, "{value}") } else { write!(f, "{}", value.cast_unsigned()) }?;
            } else if let Some(values) = elements(field, payload) {
                for (number, value) in values.enumerate() {
                    f.write_str(if number == 0 { "[" } else { ", " })?;
                    if field.signed { write!(f, "{value}") } else { write!(f, "{}", value.cast_unsigned()) }?;
                }
                f.write_str("]")?;
            // Structures, addresses of network devices, masks of CPUs.
            } else if let Some(bytes) = field.bytes(payload) {
                for byte in bytes.iter().take(MAX_BYTES) {
                    write!(f, "{byte:02x}")?;
                }
                if bytes.len() > MAX_BYTES {
                    f.write_str("...")?;
                }
            } else {
                f.write_str("(beyond the record)")?;
            }
        }
        Ok(())
    }
}

/// The elements of an array of numbers wider than a byte.
fn elements<'a>(field: &'a Field, payload: &'a [u8]) -> Option<impl Iterator<Item = i64> + 'a> {
    let Shape::Array(size @ (2 | 4 | 8)) = field.shape else { return None };
    let size = size as usize;
    let length = field.size / size;
    if length == 0 || length > MAX_BYTES || length * size != field.size {
        return None;
    }
    let element = move |at: usize| Field {
        shape: Shape::Integer,
        offset: field.offset + at * size,
        size,
        ..field.clone()
    };
    // All elements or none: if the record ends inside the array, show its bytes.
    element(length - 1).integer(payload)?;
    Some((0..length).filter_map(move |at| element(at).integer(payload)))
}

/// Number of bytes of an array that are shown.
const MAX_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::format_text;

    #[test]
    fn fields_are_shown_as_their_format_has_them() {
        let fields = [
            ("u8 small", 8, 1),
            ("unsigned long long large", 16, 8),
            ("char name[4]", 24, 4),
            ("__data_loc char[] path", 28, 4),
            ("u16 pair[2]", 32, 4),
            ("u32 gone", 60, 4),
        ];
        let text = format_text("nonsense", 7, &fields, "\"\"");
        let format = EventFormat::parse("x", text.as_bytes()).unwrap();
        let mut payload = vec![0u8; 40];
        payload[8] = 200;
        payload[16..24].fill(0xff);
        payload[24..27].copy_from_slice(b"abc");
        payload[28..32].copy_from_slice(&(36u32 | (4 << 16)).to_le_bytes());
        payload[32..36].copy_from_slice(&[1, 0, 2, 0]);
        payload[36..39].copy_from_slice(b"/x\xff");
        let shown = Detail::Bytes { format: &format, payload: &payload }.to_string();
        assert_eq!(
            shown,
            "small=200 large=18446744073709551615 name=abc path=/x\u{fffd} pair=[1, 2] gone=(beyond the record)"
        );
        assert_eq!(Detail::Text(b"a=1 b").to_string(), "a=1 b");
        assert_eq!(Detail::None.to_string(), "");
    }
}
