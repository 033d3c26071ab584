//! Records as lines, as the kernel prints them.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flyball_trace::{Clock, Record, live::LiveSink};

/// Prints records while they are recorded; a reader that went away ends the recording.
pub fn live_sink(stop: Arc<AtomicBool>) -> LiveSink {
    Box::new(move |records: &[Record]| {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for record in records {
            if writeln!(out, "{}", record.line(Clock::Local)).is_err() {
                stop.store(true, Ordering::Release);
                return;
            }
        }
        if out.flush().is_err() {
            stop.store(true, Ordering::Release);
        }
    })
}
