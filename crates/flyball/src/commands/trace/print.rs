//! Prints records as lines, in the kernel's format.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flyball_trace::{Clock, Event, Record, live::LiveSink};

use crate::terminal;

/// Prints records during the recording. If the reader goes away, the recording ends.
pub(super) fn live_sink(clock: Clock, stop: Arc<AtomicBool>) -> LiveSink {
    Box::new(move |records: &[(Record, String)]| {
        // A writer per batch: buffered lines would only reach the reader with the next batch.
        let mut out = std::io::BufWriter::new(terminal::stdout());
        for (record, other) in records {
            let line = record.line(clock);
            let written = match record.event {
                Event::Other(_) => writeln!(out, "{}{other}", line.start()),
                _ => writeln!(out, "{line}"),
            };
            if written.is_err() {
                // SIGPIPE is caught while recording (record.rs), so a reader that went away causes
                // an error.
                stop.store(true, Ordering::Release);
                return;
            }
        }
        if out.flush().is_err() {
            stop.store(true, Ordering::Release);
        }
    })
}
