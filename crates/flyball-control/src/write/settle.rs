//! Reads back whether and when a write took effect, and with which value.
//!
//! Frequency limits are requests that a kernel worker combines later (drivers/cpufreq/cpufreq.c,
//! `handle_update`). Immediately after a write the old value may still be there, so reading back
//! waits before it reports a clamped value.

use std::time::Duration;

use flyball_host::Host;

use crate::{Content, Location, knob::spelling::Spelling};

/// Pauses between two reads, in milliseconds; about a second in all. A worker needs far less than a
/// millisecond on hardware, and up to some tens in an emulator on a busy host.
const PAUSES: [u64; 11] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Number of equal reads after which a value that is neither the old nor the wanted one is final:
/// the kernel has clamped it.
const STEADY: u32 = 4;

/// The content found at a location after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The wanted value.
    Held,
    /// Another value, which no longer changes.
    Other(Content),
}

/// A location with its present and expected content.
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    pub location: &'a Location,
    /// How its contents are spelled.
    pub spelling: Spelling,
    /// Content before the write.
    pub old: &'a Content,
    /// Content that was written.
    pub new: &'a str,
}

/// Waits until every location holds its expected content or has settled on other content. Returns
/// the results in order.
pub fn settle(host: &dyn Host, expected: &[Expected<'_>]) -> Vec<Settled> {
    let mut found: Vec<Option<Settled>> = vec![None; expected.len()];
    let mut seen: Vec<(Content, u32)> = vec![(Content::Text(String::new()), 0); expected.len()];
    for pause in PAUSES {
        // Most files show the value at once, so there is no pause before the first read.
        if pause > 0 {
            host.sleep(Duration::from_millis(pause));
        }
        let open: Vec<usize> = (0..expected.len()).filter(|index| found[*index].is_none()).collect();
        for index in open {
            let one = &expected[index];
            let now = Content::from_read(&one.location.read(host));
            // A policy that is being recreated answers EBUSY for a moment. An errno never counts as
            // a settled value.
            let unreadable = matches!(now, Content::Unreadable(_));
            if !unreadable && one.spelling.agrees(one.new, now.trimmed()) {
                found[index] = Some(Settled::Held);
                continue;
            }
            let (last, times) = &mut seen[index];
            *times = if *last == now { *times + 1 } else { 1 };
            *last = now;
            // The old value may only mean that the worker has not run yet, so wait until the end.
            if *times >= STEADY && last != one.old && !unreadable {
                found[index] = Some(Settled::Other(last.clone()));
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.into_iter().zip(seen).map(|(found, (last, _))| found.unwrap_or(Settled::Other(last))).collect()
}
