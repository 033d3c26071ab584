//! Trace text: lines to records, records to a report, to rows, and back to lines.
#![no_main]

use std::{num::NonZeroUsize, path::Path, sync::Arc};

use flyball_trace::{Clock, Names, TextOptions, csv::Rows, read_text, report::Analyser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let names = Arc::new(Names::default());
    let mut analyser = Analyser::new();
    let mut rows = Rows::default();
    let mut out = Vec::new();
    let options = TextOptions { threads: NonZeroUsize::MIN, chunk: 4096, details: true };
    let mut clock = Clock::Local;
    let read = read_text(bytes, Path::new("fuzz"), &names, &options, &mut |batch| {
        clock = batch.clock();
        for record in &batch.records {
            analyser.add(record);
            if let Some(made) = rows.row(record) {
                out.extend_from_slice(made.row);
            }
            let _ = record.line(clock).to_string();
        }
        Ok(())
    });
    assert_eq!(read.expect("reading memory cannot fail").bytes, bytes.len() as u64);
    let _ = analyser.report(clock, &names);
});
