//! Reads a journal's bytes, with any damage.

use super::{Contents, record::Record};

/// Parses a journal's bytes into its header and its contents. Never panics.
pub(super) fn parse(bytes: &[u8]) -> (Option<Record>, Contents) {
    let mut header = None;
    let mut contents = Contents::default();
    let mut at = 0;
    let mut number = 0;
    while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        number += 1;
        let line = &bytes[at..at + length];
        at += length + 1;
        // A line with a line end was flushed before the writes that it announces. If it cannot be
        // read, that is damage, even in the last line.
        contents.whole = at as u64;
        match parse_line(line) {
            Some(Record::Header { format, boot, machine }) if number == 1 => {
                contents.boot.clone_from(&boot);
                contents.machine.clone_from(&machine);
                header = Some(Record::Header { format, boot, machine });
            }
            Some(record) => contents.take(number, record),
            None => contents.damaged.push(number),
        }
    }
    // Bytes after the last line end: a write was cut short, or a line end was damaged.
    let rest = &bytes[at..];
    if let Some(record) = parse_line(rest).filter(|_| header.is_some()) {
        // Only the record's line end is missing.
        contents.take(number + 1, record);
        (contents.whole, contents.open_end) = (bytes.len() as u64, true);
    } else if !is_torn(rest) {
        contents.damaged.push(number + 1);
        (contents.whole, contents.open_end) = (bytes.len() as u64, true);
    }
    if header.is_none() {
        header = contents.header_of_begin();
    }
    (header, contents)
}

/// Returns whether bytes without a line end are left from an interrupted write, so that they are
/// the beginning of a line. If they continue after a whole record, or cannot begin a record, a line
/// end was damaged.
fn is_torn(bytes: &[u8]) -> bool {
    let Some((sum, json)) = bytes.split_at_checked(9) else {
        return bytes.iter().take(8).all(u8::is_ascii_hexdigit);
    };
    let is_sum = sum[..8].iter().all(u8::is_ascii_hexdigit) && sum[8] == b' ';
    let json = match std::str::from_utf8(json) {
        Ok(json) => json,
        // A multi-byte character may have been cut.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&json[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    is_sum && serde_json::from_str::<serde::de::IgnoredAny>(json).is_err_and(|error| error.is_eof())
}

fn parse_line(line: &[u8]) -> Option<Record> {
    // Eight digits and a blank.
    let (sum, json) = line.split_at_checked(9)?;
    let sum = std::str::from_utf8(sum).ok()?.strip_suffix(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    if crc32fast::hash(json) == sum { serde_json::from_slice(json).ok() } else { None }
}
