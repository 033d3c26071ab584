//! Values that read back differently from what was written. The kernel may have clamped them, or a
//! driver may be changing its mode and recreating its policies, whose end is not reported. So each
//! value is retried a few times before it counts as clamped.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use flyball_control::Location;
use flyball_host::CpuList;

use super::{Moment, Notice, Service};
use crate::{Action, ApplyOutcome, Drift, Exemption, LeftBecause};

/// Pauses before retries, in milliseconds: a driver takes some milliseconds to register each
/// policy.
const PAUSES: [u64; 4] = [100, 300, 1000, 3000];

/// The locations, each with its number of tries and the drift that caused the first.
#[derive(Debug, Default)]
pub(super) struct Unsettled(HashMap<Location, (usize, Option<Drift>)>);

impl Unsettled {
    pub(super) fn contains(&self, location: &Location) -> bool {
        self.0.contains_key(location)
    }

    pub(super) fn forget(&mut self, is_forgotten: impl Fn(&Location) -> bool) {
        self.0.retain(|location, _| !is_forgotten(location));
    }

    /// Removes all, because they are in effect now, and returns their drifts.
    pub(super) fn take_drifts(&mut self) -> Vec<Drift> {
        self.0.drain().filter_map(|(_, (_, drift))| drift).collect()
    }
}

impl Service<'_> {
    /// Checks what a correction did not achieve. Retries it, and leaves it after the last pause.
    /// Removes the drifts of retried places from `drifts` until then.
    pub(super) fn settle(
        &mut self,
        brought: &ApplyOutcome,
        drifts: &mut Vec<(Location, Drift)>,
        moment: Moment,
    ) {
        let mut before = std::mem::take(&mut self.unsettled).0;
        let mut next = None;
        let mut failed: BTreeMap<_, CpuList> = BTreeMap::new();
        for left in brought.not_taken(&self.effective) {
            let (tries, known) = before.remove(&left.location).unwrap_or_default();
            let own = drifts.iter().position(|(location, _)| *location == left.location);
            let drift = own.map(|index| drifts.remove(index).1).or(known);
            let Some(pause) = PAUSES.get(tries) else {
                // A refusal may be temporary: a removed policy may come back.
                let is_refused = matches!(left.because, LeftBecause::Refused(_));
                match drift {
                    Some(drift) => {
                        let action = Action::Failed(left.because.to_string());
                        drifts.push((left.location.clone(), Drift { action, ..drift }));
                    }
                    // There was no drift before, so the hold was never in effect here.
                    None if is_refused => {
                        let same = (left.hold.to_string(), left.knob.to_string(), left.because.to_string());
                        failed.entry(same).or_default().add(&left.cpus);
                    }
                    None => {}
                }
                let until = is_refused.then(|| self.corrections.pause(&left.location, moment.now));
                self.store.left.push(Exemption { until, ..left });
                continue;
            };
            let at = moment.now + Duration::from_millis(*pause);
            next = Some(next.map_or((tries, at), |next: (usize, Duration)| next.min((tries, at))));
            self.unsettled.0.insert(left.location, (tries + 1, drift));
        }
        // These are in effect now.
        drifts.extend(before.into_iter().filter_map(|(location, (_, drift))| Some((location, drift?))));
        self.retry = self.retry.or(next);
        self.notices.extend(failed.into_iter().map(|((hold, knob, because), cpus)| {
            Notice::Failed(format!("{knob} of CPUs {cpus} is {because} (hold {hold})"))
        }));
    }
}
