//! A whole trace.dat file, of either version, as a report reads it.
#![no_main]

use std::sync::Arc;

use flyball_trace::{Names, dat::{Source, TraceFile}, read_file, report::Analyser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = TraceFile::read(Source::memory(bytes)) else { return };
    let names = Arc::new(Names::default());
    let mut analyser = Analyser::new();
    let read = read_file(&file, &names, &mut |records| {
        records.iter().for_each(|record| analyser.add(record));
        Ok(())
    });
    if let Ok(summary) = read {
        let _ = analyser.report(summary.clock, &names);
    }
});
