//! A format file, what a decoder makes of it, and records of that event.
#![no_main]

use flyball_trace::{Decoder, Detail, EventFormat, Names, PageHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = PageHeader::parse(bytes);
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, record) = bytes.split_at(split);
    let Ok(format) = EventFormat::parse("fuzz", text) else { return };
    for field in &format.fields {
        let _ = (field.integer(record), field.bytes(record), field.text(record));
    }
    let mut record = record.to_vec();
    if record.len() >= 2 {
        record[..2].copy_from_slice(&format.id.to_le_bytes());
    }
    let _ = Detail::Bytes { format: &format, payload: &record }.to_string();
    let decoder = Decoder::new(&[format], &Names::default());
    let _ = decoder.decode(0, 0, &record);
});
