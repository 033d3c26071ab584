//! The status of held knobs: the wanted and the present value, the hold that decides, and the holds
//! that it overrides.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use flyball_control::{
    Content, Id, Location, Snapshot,
    plan::{PlanError, targets},
    verify::verify,
    write::journal::Contents,
};
use flyball_host::{CpuList, Host};
use serde::Serialize;

use crate::{
    Cause, Condition, Drift, Effective, Facts, Hold, HoldName, LeftBecause, Refused, ServiceState, Store,
    apply::{not_in_force, possible},
    overlay::refused_preferences,
};

/// A hold that sets a place which a stronger hold decides.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct OverruledHold {
    pub hold: HoldName,
    pub wanted: String,
}

/// A knob that is held on some CPUs.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct HeldKnob {
    /// The knob, as `flyball explain` names it.
    pub knob: Id,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    pub cpus: CpuList,
    pub wanted: String,
    /// The present value; `None` if it cannot be read.
    pub found: Option<String>,
    pub holds: bool,
    /// True if all of its CPUs are offline. The hold sets it when one of them comes online.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
    /// The hold that decides.
    pub hold: HoldName,
    /// Weaker holds that set this knob too, the weakest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<OverruledHold>,
    /// Why it is not set, if it is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftBecause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The flyball command that set the present value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    /// The location on the first of its CPUs.
    #[serde(skip)]
    pub location: Location,
}

/// A hold, and whether it is in force.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct HoldStatus {
    #[serde(flatten)]
    pub hold: Hold,
    pub in_force: bool,
    /// Why it is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The part of its condition that is checked periodically, because the kernel does not report
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_reported: Option<String>,
}

/// The complete status.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Status {
    pub service: Option<ServiceState>,
    /// The holds, in the order in which they were added.
    pub holds: Vec<HoldStatus>,
    pub knobs: Vec<HeldKnob>,
    /// Why the holds are not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
    /// The last changes by others, oldest first.
    pub drifts: Vec<Drift>,
}

impl Status {
    /// Finds in the journal the flyball commands that set the present values which holds do not
    /// want.
    pub fn name_commands(&mut self, host: &dyn Host, journal: &Contents) {
        for knob in self.knobs.iter_mut().filter(|knob| !knob.holds && knob.left.is_none()) {
            let Some((entry, wrote)) = journal.last_write(&knob.location) else { continue };
            let found = Content::from_read(&knob.location.read(host));
            let spelling = knob.knob.knob().control().map(|control| control.writing.spelling);
            let is_same = spelling.is_some_and(|spelling| spelling.agrees(wrote.trimmed(), found.trimmed()));
            knob.set_by = (is_same && entry.holds.is_empty()).then(|| entry.command.clone());
        }
    }

    /// Returns whether all holds are in effect.
    pub fn is_held(&self) -> bool {
        self.failure.is_none() && self.config_error.is_none() && self.knobs.iter().all(|knob| knob.holds)
    }
}

/// Reads the status from the machine. If the holds cannot be compared (they contradict each other),
/// `failure` has the reason.
pub fn status(host: &dyn Host, store: &Store, facts: &Facts, now: Duration) -> Status {
    let because = |hold: &Hold| store.why_not_in_force(hold, facts, now);
    // A hold that has ended is not in force, even if no service has released it.
    let mut counting: Vec<Hold> =
        store.holds.iter().filter(|hold| because(hold).is_none()).cloned().collect();
    let mut refused = Vec::new();
    let mut effective = Effective::new(&counting, facts);
    let mut compared = knobs(host, store, &effective);
    if compared.is_err() {
        // The machine has changed since the holds were set, or no service has tried them yet.
        (counting, refused, _) = possible(host, &counting, facts, &store.left);
        effective = Effective::new(&counting, facts);
        compared = knobs(host, store, &effective);
    }
    let holds = store.holds.iter().map(|hold| {
        let is_refused = |refused: &&Refused| refused.hold == hold.name;
        let because =
            because(hold).or_else(|| refused.iter().find(is_refused).map(|refused| refused.why.clone()));
        let not_reported = hold.condition.as_ref().and_then(Condition::not_reported);
        HoldStatus { hold: hold.clone(), in_force: because.is_none(), because, not_reported }
    });
    let mut status = Status {
        service: store.service.clone(),
        holds: holds.collect(),
        knobs: Vec::new(),
        failure: store.failure.clone(),
        config_error: store.config_error.clone(),
        drifts: store.drifts.clone(),
    };
    match compared {
        Ok(knobs) => status.knobs = knobs,
        Err(error) => status.failure = Some(error.to_string()),
    }
    if let Some(why) = not_in_force(&refused) {
        status.failure.get_or_insert(why);
    }
    status
}

fn knobs(host: &dyn Host, store: &Store, effective: &Effective) -> Result<Vec<HeldKnob>, PlanError> {
    if effective.intent.is_empty() {
        return Ok(Vec::new());
    }
    let snapshot = Snapshot::for_intent(host, &effective.intent)?;
    let drifted: BTreeSet<Location> =
        verify(&snapshot, &effective.intent)?.drifted.into_iter().map(|change| change.location).collect();
    // Plan each hold alone to find what it would set: the overlay contains only the combined
    // result.
    let mut asked: BTreeMap<Location, Vec<OverruledHold>> = BTreeMap::new();
    for name in &effective.holds {
        let Some(hold) = store.holds.iter().find(|hold| hold.name == *name) else { continue };
        // A hold that cannot be planned alone may work with the others. Then it is only missing in
        // this list.
        for target in targets(&snapshot, &hold.intent()).unwrap_or_default() {
            let one = OverruledHold { hold: name.clone(), wanted: target.value };
            asked.entry(target.location).or_default().push(one);
        }
    }
    let left = [&store.left[..], &refused_preferences(&store.left, &snapshot)].concat();
    // CPUs with the same result share a line: 512 CPUs would need 512 lines per knob.
    let mut knobs: Vec<HeldKnob> = Vec::new();
    for target in targets(&snapshot, &effective.intent)? {
        let Some(hold) = effective.hold_of(&target.from) else { continue };
        let left = left.iter().find(|left| left.location == target.location);
        let mut over = asked.remove(&target.location).unwrap_or_default();
        // Only the overridden holds remain. The deciding hold is already in the line.
        over.retain(|asked| asked.hold != *hold);
        let holds = !drifted.contains(&target.location);
        let is_offline = target.now.is_none()
            && !target.cpus.is_empty()
            && target.cpus.is_subset(&snapshot.topology().offline);
        let one = HeldKnob {
            knob: target.knob,
            // Each CPU has its own idle states, with the same names.
            instance: target.instance,
            cpus: target.cpus,
            wanted: target.value,
            found: target.now,
            holds,
            offline: is_offline,
            hold: hold.clone(),
            over,
            left: left.map(|left| left.because.clone()),
            cause: left.and_then(|left| left.cause.clone()),
            set_by: None,
            location: target.location,
        };
        let same = |known: &&mut HeldKnob| {
            let (cpus, location) = (known.cpus.clone(), known.location.clone());
            HeldKnob { cpus, location, ..one.clone() } == **known
        };
        match knobs.iter_mut().find(same) {
            Some(known) => known.cpus = known.cpus.union(&one.cpus),
            None => knobs.push(one),
        }
    }
    Ok(knobs)
}
