//! Records as lines, as the kernel prints them.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flyball_trace::{Clock, Event, Record, live::LiveSink};

use crate::terminal;

/// Prints records while they are recorded; a reader that went away ends the recording.
pub(super) fn live_sink(clock: Clock, stop: Arc<AtomicBool>) -> LiveSink {
    Box::new(move |records: &[(Record, String)]| {
        // For each batch: what is held back would reach the reader only with the next one.
        let mut out = std::io::BufWriter::new(terminal::stdout());
        for (record, other) in records {
            let line = record.line(clock);
            let written = match record.event {
                Event::Other(_) => writeln!(out, "{}{other}", line.start()),
                _ => writeln!(out, "{line}"),
            };
            if written.is_err() {
                // SIGPIPE is caught while recording (record.rs): a reader that went away shows as
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
