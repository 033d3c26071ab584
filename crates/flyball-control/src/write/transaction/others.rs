//! Detects changes by other programs or the kernel during a transaction.

use std::collections::BTreeMap;

use super::Transaction;
use crate::{Content, Location, knob::spelling::Spelling};

/// The contents of a transaction's locations at one moment.
#[derive(Debug, Clone, Default)]
pub struct HeldContents(BTreeMap<Location, (Content, Spelling)>);

impl Transaction<'_> {
    /// Reads the present content of every location that this transaction has written or may have
    /// disturbed.
    pub fn held(&self) -> HeldContents {
        let goals = self.goals().0.into_iter();
        HeldContents(
            goals
                // Interrupts move with hotplug and by their devices, without another writer.
                .filter(|(_, goal)| goal.handling.spelling != Spelling::Interrupt)
                .map(|(location, goal)| {
                    let content = Content::from_read(&location.read(self.host));
                    (location, (content, goal.handling.spelling))
                })
                .collect(),
        )
    }

    /// Returns the first location whose content differs from an earlier moment, as a sentence.
    pub fn changed_since(&self, earlier: &HeldContents) -> Option<String> {
        let now = self.held();
        earlier.0.iter().find_map(|(location, (was, spelling))| {
            let (found, _) = now.0.get(location)?;
            // The kernel lowers a limit that is too high for the temperature or the firmware
            // (freq_qos requests of drivers/thermal/cpufreq_cooling.c and
            // drivers/acpi/processor_perflib.c). That is throttling, not another writer.
            let lowered = *spelling == Spelling::FrequencyLimit
                && matches!((found.trimmed().parse::<u64>(), was.trimmed().parse::<u64>()), (Ok(f), Ok(w)) if f < w);
            (found != was && !lowered).then(|| format!("another program changed {location} from '{was}' to '{found}'"))
        })
    }
}
