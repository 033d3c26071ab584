//! What is held: each knob with what is wanted, what is there, the hold that decides, and those
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

/// A hold that wants something of a place that another hold decides.
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
    /// What is there; `None` if it cannot be read.
    pub found: Option<String>,
    pub holds: bool,
    /// True if all of its CPUs are offline. The hold sets it when one of them comes online.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
    /// The hold that decides.
    pub hold: HoldName,
    /// Weaker holds that want something here, the weakest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<OverruledHold>,
    /// Why it is not set, if it is left alone, and what changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftBecause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The command of flyball that set what is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    /// The location of the first of its CPUs.
    #[serde(skip)]
    pub location: Location,
}

/// A hold, and whether it counts.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct HoldStatus {
    #[serde(flatten)]
    pub hold: Hold,
    pub in_force: bool,
    /// Why it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// What of its condition is looked at now and then, because the kernel does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_reported: Option<String>,
}

/// All of it.
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
    /// Names the commands of flyball that set what is there instead of what a hold wants, by the
    /// journal.
    pub fn name_commands(&mut self, host: &dyn Host, journal: &Contents) {
        for knob in self.knobs.iter_mut().filter(|knob| !knob.holds && knob.left.is_none()) {
            let Some((entry, wrote)) = journal.last_write(&knob.location) else { continue };
            let found = Content::from_read(&knob.location.read(host));
            let spelling = knob.knob.knob().control().map(|control| control.writing.spelling);
            let is_same = spelling.is_some_and(|spelling| spelling.agrees(wrote.trimmed(), found.trimmed()));
            knob.set_by = (is_same && entry.holds.is_empty()).then(|| entry.command.clone());
        }
    }

    /// Whether everything that holds want is there.
    pub fn is_held(&self) -> bool {
        self.failure.is_none() && self.config_error.is_none() && self.knobs.iter().all(|knob| knob.holds)
    }
}

/// Looks at the machine. What keeps the holds from being compared (they contradict each other) is
/// the status's failure.
pub fn status(host: &dyn Host, store: &Store, facts: &Facts, now: Duration) -> Status {
    let because = |hold: &Hold| store.why_not_in_force(hold, facts, now);
    // One that has ended does not count, although nothing has released it where no service runs.
    let mut counting: Vec<Hold> =
        store.holds.iter().filter(|hold| because(hold).is_none()).cloned().collect();
    let mut refused = Vec::new();
    let mut effective = Effective::new(&counting, facts);
    let mut compared = knobs(host, store, &effective);
    if compared.is_err() {
        // Where the machine has changed since the holds were set, or no service has tried them yet.
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
    // Each hold alone, to show what it would set: the overlay only has what came out of all.
    let mut asked: BTreeMap<Location, Vec<OverruledHold>> = BTreeMap::new();
    for name in &effective.holds {
        let Some(hold) = store.holds.iter().find(|hold| hold.name == *name) else { continue };
        // A hold that could not be held alone may be held with the others: then it is missing in
        // this list only.
        for target in targets(&snapshot, &hold.intent()).unwrap_or_default() {
            let one = OverruledHold { hold: name.clone(), wanted: target.value };
            asked.entry(target.location).or_default().push(one);
        }
    }
    let left = [&store.left[..], &refused_preferences(&store.left, &snapshot)].concat();
    // CPUs with the same answer share a line: 512 of them would be 512 lines per knob.
    let mut knobs: Vec<HeldKnob> = Vec::new();
    for target in targets(&snapshot, &effective.intent)? {
        let Some(hold) = effective.hold_of(&target.from) else { continue };
        let left = left.iter().find(|left| left.location == target.location);
        let mut over = asked.remove(&target.location).unwrap_or_default();
        // What is left are the holds that it overrides; hold and setting of the place itself are in
        // the line already.
        over.retain(|asked| asked.hold != *hold);
        let holds = !drifted.contains(&target.location);
        let is_offline = target.now.is_none()
            && !target.cpus.is_empty()
            && target.cpus.is_subset(&snapshot.topology().offline);
        let one = HeldKnob {
            knob: target.knob,
            // Each CPU has its idle states: the name is the same on all.
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
