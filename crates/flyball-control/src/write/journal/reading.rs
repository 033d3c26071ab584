//! Reading a journal's bytes, of any format and with any damage.

use super::{Contents, record::Record, v1};

/// Reads a journal's bytes: its header, and what it holds. Never panics, whatever they are.
pub(super) fn parse(bytes: &[u8]) -> (Option<Record>, Contents) {
    let mut header = None;
    let mut contents = Contents::default();
    let mut at = 0;
    let mut number = 0;
    let mut bad: Vec<usize> = Vec::new();
    while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        number += 1;
        let line = &bytes[at..at + length];
        at += length + 1;
        let Some(record) = parse_line(line, contents.format) else {
            bad.push(number);
            continue;
        };
        // Bad lines that precede a good one are damage, not a torn end.
        contents.damaged.append(&mut bad);
        // Bytes up to here are kept when the journal is opened for writing; what follows is a torn end.
        contents.whole = at as u64;
        if number == 1 {
            if let Record::Header { format, boot, machine } = &record {
                contents.format = *format;
                contents.boot.clone_from(boot);
                contents.machine.clone_from(machine);
            }
            header = Some(record);
            continue;
        }
        contents.take(record);
    }
    (header, contents)
}

fn parse_line(line: &[u8], format: u32) -> Option<Record> {
    // Eight digits and a blank.
    let (sum, json) = line.split_at_checked(9)?;
    let sum = std::str::from_utf8(sum).ok()?.strip_suffix(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    if crc32fast::hash(json) != sum {
        return None;
    }
    let of_format_1 = || if format == 1 { v1::record(json) } else { None };
    let mut record = serde_json::from_slice(json).ok().or_else(of_format_1)?;
    if let (1, Record::Begin { command, purpose, .. }) = (format, &mut record) {
        *purpose = v1::purpose(command);
    }
    Some(record)
}
