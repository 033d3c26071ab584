//! Plans the ordered writes that bring a machine from its present state to the wanted one, each
//! with its reason.
//!
//! [`plan`] reads and never writes; applying a plan never decides. Values are checked here, before
//! the first write: names against the kernel's lists, frequencies against the hardware's limits,
//! settings against each other (`couplings`). A setting that is already in effect produces no
//! change, so a plan made after applying it is empty.
//!
//! Some changes invalidate later settings: a driver switch recreates every policy, turbo moves the
//! limits of the hardware, a governor change resets preferences. After such a change, applying
//! re-reads the machine and plans again. A printed plan predicts what those later plans will
//! contain, and marks such changes as provisional.

mod absences;
mod changes;
mod choice;
mod couplings;
mod driver;
mod frequency_limits;
mod note;
mod preference;
mod refusal;
mod resolve;
mod speed_select;
mod targets;
mod turbo;
mod uncore;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use flyball_host::{CpuList, topology::POLICIES};
use flyball_text::Natural;
use serde::Serialize;

use crate::{
    At, Belongs, Evidence, FirmwareTurbo, Id, Location, Place, ReadError, ResolveError, Scope, Setting,
    Snapshot, Value, Wanted,
    intent::Intent,
    knob::order::{Bound, Step},
    select,
};
pub use absences::{Absence, Remedy};
pub use note::{Note, Obstacle, Remark};
pub use refusal::{Alternative, Hint, Refusal, Side};
pub use targets::{Target, targets};

#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Change {
    /// The knob or fact, as `flyball explain` names it.
    pub knob: Id,
    /// The instance of the knob, if it has instances (`C6` of `idle-state:C6`); else empty.
    pub instance: String,
    /// The place, in words.
    pub place: String,
    /// The CPUs that it governs; an I/O die has none.
    pub cpus: CpuList,
    /// The step in which it is made.
    pub step: Step,
    /// The file or register.
    pub location: Location,
    /// Present content; `None` if it can be known only when the step is reached.
    pub old: Option<String>,
    /// Content to write first if writing `new` alone would change nothing: the driver acts only on
    /// a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// What the file shows in place of `new`, if the driver has one number for both.
    #[serde(skip)]
    pub shown_as: Option<&'static str>,
    /// Content to write; a word (`max`) if its number can be known only when the step is reached.
    pub new: String,
    /// Present value, in the knob's own terms (`no_turbo` 0 is on).
    pub was: Option<String>,
    /// Wanted value, in the knob's own terms.
    pub value: String,
    /// The setting that asks for it, as the user wrote it; or another text if a setting merely
    /// requires this change.
    #[serde(skip)]
    pub from: String,
    /// The reason for the change.
    pub because: String,
    /// True if it may turn out to be unnecessary, or to need another number, once its step is
    /// reached.
    pub provisional: bool,
}

/// The ordered writes that bring a machine to the wanted state.
#[derive(Debug, Clone, PartialEq, Default, schemars::JsonSchema, Serialize)]
pub struct Plan {
    /// The machine, as its host calls it.
    pub machine: String,
    /// The writes in order.
    pub changes: Vec<Change>,
    /// Couplings, places left out and other notes.
    pub notes: Vec<Note>,
}

impl Plan {
    /// Returns whether the machine already matches the intent.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Why there is no plan. Nothing was written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Settings that are refused.
    #[error("{}", list(.0, "\n"))]
    Refused(Vec<Refusal>),
    /// Settings for things that this machine lacks.
    #[error("{}", list(.0, "\n"))]
    NotHere(Vec<Absence>),
    /// The machine cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn list<T: fmt::Display>(items: &[T], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// A setting at one place.
#[derive(Debug, Clone)]
struct Want {
    knob: Id,
    place: Place,
    wanted: Wanted,
    from: String,
    /// The resolved value; `None` if it is not known yet.
    value: Option<Value>,
    /// Present value.
    now: Option<Value>,
}

/// The state that earlier steps will have produced when later steps run.
#[derive(Debug, Clone, Default)]
struct ExpectedState {
    /// The driver mode to switch to.
    mode: Option<String>,
    /// Whether turbo, boost, SMT or the online CPUs will change, which can move hardware limits.
    capacity: bool,
    /// Whether the Speed Select level will change.
    level: bool,
    /// CPUs that will be brought online.
    online: CpuList,
    /// The governor that each policy will have.
    governors: BTreeMap<u32, String>,
    /// Policies whose governor will change.
    governor_changes: BTreeSet<u32>,
}

/// cpufreq's own governors, which every driver accepts unless it chooses frequencies by itself.
const KERNEL_GOVERNORS: [&str; 6] =
    ["performance", "powersave", "userspace", "ondemand", "conservative", "schedutil"];

struct Planner<'s> {
    snapshot: &'s Snapshot,
    rules: Rules,
    wants: BTreeMap<(Id, At), Want>,
    ahead: ExpectedState,
    changes: Vec<Change>,
    notes: Vec<Note>,
    refused: Vec<Refusal>,
    /// Settings that a coupling rule refused; their values need no further judgement.
    contradicted: BTreeSet<(Id, At)>,
    absent: Vec<Absence>,
}

/// Plans the writes that `intent` needs on a machine as `snapshot` shows it (see
/// [`Snapshot::for_intent`]).
///
/// # Errors
/// Refused settings, with the values that the machine accepts; settings for knobs that it lacks;
/// files that should be readable but are not; a snapshot taken for another intent
/// ([`ReadError::NotTaken`]).
pub fn plan(snapshot: &Snapshot, intent: &Intent) -> Result<Plan, PlanError> {
    plan_and_choice(snapshot, intent).map(|(plan, _)| plan)
}

/// Returns a plan and the intent that it carries out: without the optional settings that the
/// machine rejects, and with the first accepted value of each list.
pub fn plan_and_choice(snapshot: &Snapshot, intent: &Intent) -> Result<(Plan, Intent), PlanError> {
    choice::choose(intent, snapshot, |intent| with_rules(snapshot, intent, Rules::All))
}

/// Plans the differences from `intent`. A setting that is refused only because of the present state
/// (a preference under the present governor, a limit beyond the present one) is a difference, not a
/// mistake in the intent.
pub(crate) fn differences(snapshot: &Snapshot, intent: &Intent) -> Result<Plan, PlanError> {
    choice::choose(intent, snapshot, |intent| with_rules(snapshot, intent, Rules::IntentOnly))
        .map(|(plan, _)| plan)
}

/// The state that a setting is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    All,
    /// The other settings and the hardware, but not the present values of other knobs.
    IntentOnly,
}

fn with_rules(snapshot: &Snapshot, intent: &Intent, rules: Rules) -> Result<Plan, PlanError> {
    let mut planner = Planner::new(snapshot, rules);
    planner.place_all(intent)?;
    planner.read_and_resolve()?;
    // Before the rules, which check against the future governor, mode and online CPUs, not the
    // present ones.
    planner.look_ahead()?;
    planner.couple()?;
    // Copy the keys: rules of Speed Select have added wants, and making a change may add a note or
    // a refusal.
    let keys: Vec<_> = planner.wants.keys().cloned().collect();
    for key in keys {
        if planner.contradicted.contains(&key) {
            continue;
        }
        if let Some(want) = planner.wants.get(&key).cloned() {
            planner.change(&want)?;
        }
    }
    planner.turbo_again()?;
    planner.finish()
}

impl<'s> Planner<'s> {
    fn new(snapshot: &'s Snapshot, rules: Rules) -> Planner<'s> {
        Planner {
            snapshot,
            rules,
            wants: BTreeMap::new(),
            ahead: ExpectedState::default(),
            changes: Vec::new(),
            notes: Vec::new(),
            refused: Vec::new(),
            contradicted: BTreeSet::new(),
            absent: Vec::new(),
        }
    }
}

impl Planner<'_> {
    /// Finds the places of all settings. The rules need every wanted value, including those of
    /// later settings.
    fn place_all(&mut self, intent: &Intent) -> Result<(), ReadError> {
        for setting in &intent.settings {
            self.place(setting)?;
        }
        self.boost_everywhere()
    }

    /// For turbo=on on a machine whose turbo is already on, adds boost of every policy that has it
    /// off. The kernel ignores that write (`cpufreq_boost_trigger_state` in cpufreq.c returns at
    /// once), so these policies would stay without turbo.
    fn boost_everywhere(&mut self) -> Result<(), ReadError> {
        let Some(turbo) = self.wants.get(&(Id::Turbo, At::Machine)).cloned() else { return Ok(()) };
        let on = Value::Switch(true);
        let is_on = self.snapshot.machine_value(Id::Turbo)?.as_ref() == Some(&on);
        if !is_on || turbo.wanted != Wanted::Exactly(on) {
            return Ok(());
        }
        if self.snapshot.firmware_turbo()?.0 == FirmwareTurbo::Absent {
            return Ok(());
        }
        for place in self.snapshot.places_on(Id::Boost, &self.snapshot.topology().online)? {
            if self.snapshot.value_if_readable(Id::Boost, &place)? == Some(Value::Switch(false)) {
                let want = Want { knob: Id::Boost, place: place.clone(), ..turbo.clone() };
                self.wants.entry((Id::Boost, place.at)).or_insert(want);
            }
        }
        Ok(())
    }

    /// Finds the places of a setting. For each place, a later setting replaces an earlier one.
    fn place(&mut self, setting: &Setting) -> Result<(), ReadError> {
        let topology = self.snapshot.topology();
        let knob = setting.knob().knob();
        let from = setting.from.clone();
        let cpus = match &setting.on {
            // `present`, not `online`: an offline place gets a note in the plan instead of being
            // skipped.
            None => topology.present.clone(),
            Some(selector) => match select(selector, topology) {
                Ok(cpus) => cpus,
                Err(error) => {
                    self.refuse(Refusal::Selector { from, error });
                    return Ok(());
                }
            },
        };
        // One file for the whole machine cannot be set for some of its CPUs. `present`, not
        // `online`: 0-3 on a machine whose CPU 4 is offline still leaves CPU 4 out.
        if knob.scope == Scope::Machine && !topology.present.is_subset(&cpus) {
            let instead = match knob.narrower() {
                Some(id) if self.is_somewhere(id, &cpus)? => Some(Alternative::Knob(id)),
                _ if knob.id == Id::Turbo => Some(Alternative::MaxFreqBase),
                _ => None,
            };
            self.refuse(Refusal::WholeMachine { from, knob: knob.id, cpus, instead });
            return Ok(());
        }
        let mut places = self.snapshot.places_on(knob.id, &cpus)?;
        if places.is_empty() {
            let why = self.snapshot.why_nowhere(knob.id);
            self.absent.push(Absence::Nowhere { from, knob: knob.id, why });
            return Ok(());
        }
        if setting.name.instance.is_some() {
            // Collect the names before dropping places: the refusal lists them.
            let names: BTreeSet<String> = places.iter().map(instance).collect();
            places.retain(|place| setting.name.matches(place));
            if places.is_empty() {
                let mut instances: Vec<String> = names.into_iter().collect();
                if let Some(more) = shorten(&mut instances) {
                    instances.push(format!("and {more} more"));
                }
                self.refuse(Refusal::NoInstance { from, name: setting.name.clone(), instances });
                return Ok(());
            }
        }
        let places = self.places_with_knob(setting, places)?;
        if knob.scope == Scope::Policy {
            self.note_without_policy(knob.id, &cpus, &places);
        }
        for place in places {
            let own = place.belongs != Belongs::ToPackage;
            if !own && knob.id == Id::SstApart {
                // It has no CPUs that could be set apart, and another domain's CPUs are not its
                // own.
                continue;
            }
            if own
                && !place.cpus.is_subset(&cpus)
                && matches!(
                    knob.scope,
                    Scope::Policy
                        | Scope::Package
                        | Scope::Die
                        | Scope::Core
                        | Scope::PowerDomain
                        | Scope::Clos
                        | Scope::Uncore
                )
            {
                let seen = self.snapshot.cpus_evidence(&place);
                self.note_seen(Remark::SpansMore { from: from.clone(), place: place.clone() }, vec![seen]);
            }
            let want = Want {
                knob: knob.id,
                wanted: setting.wanted.clone(),
                from: setting.from.clone(),
                value: None,
                now: None,
                place,
            };
            self.wants.insert((knob.id, want.place.at.clone()), want);
        }
        Ok(())
    }

    /// Notes the CPUs that run without a policy, as when the driver failed on some of them.
    fn note_without_policy(&mut self, knob: Id, cpus: &CpuList, places: &[Place]) {
        let online = &self.snapshot.topology().online;
        let governed: CpuList = places.iter().flat_map(|place| place.cpus.iter()).collect();
        let without: CpuList =
            cpus.iter().filter(|cpu| online.contains(*cpu) && !governed.contains(*cpu)).collect();
        if !without.is_empty() {
            let value = format!("policies of CPUs {}", governed.short());
            let seen = Evidence { place: POLICIES.to_owned(), value };
            self.note_seen(Remark::WithoutPolicy { knob, cpus: without }, vec![seen]);
        }
    }

    /// For a setting of all domains, keeps only the places that have the knob. The entry above the
    /// dies of a package lacks knobs that only dies have (uncore-frequency-tpmi.c has no ELC for
    /// the root domain).
    fn places_with_knob(&self, setting: &Setting, places: Vec<Place>) -> Result<Vec<Place>, ReadError> {
        let knob = setting.knob();
        if setting.name.instance.is_some() || knob.knob().scope != Scope::Uncore {
            return Ok(places);
        }
        let mut having = Vec::new();
        for place in &places {
            if place.belongs != Belongs::ToAll || self.snapshot.slot(knob, place)?.is_some() {
                having.push(place.clone());
            }
        }
        Ok(if having.is_empty() { places } else { having })
    }

    /// Returns whether a rule would check against a knob's present value although the intent does
    /// not set that knob and present values do not count.
    fn is_only_present(&self, knob: Id, at: &At) -> bool {
        self.rules == Rules::IntentOnly && !self.wants.contains_key(&(knob, at.clone()))
    }

    /// Returns whether the first of these CPUs has a knob.
    fn is_somewhere(&self, knob: Id, cpus: &CpuList) -> Result<bool, ReadError> {
        match self.snapshot.places_on(knob, cpus)?.first() {
            Some(place) => Ok(self.snapshot.value_if_readable(knob, place)?.is_some()),
            None => Ok(false),
        }
    }

    /// Adds a note that is based on the present values of knobs at these places.
    fn note(&mut self, remark: Remark, rests_on: &[(Id, &Place)]) {
        let read = rests_on.iter().map(|(knob, place)| self.snapshot.evidence(*knob, place));
        self.note_seen(remark, read.collect());
    }

    fn note_seen(&mut self, remark: Remark, evidence: Vec<Evidence>) {
        // Compare only the remark: the evidence names a policy, so there would be one note per
        // policy.
        if !self.notes.iter().any(|note| note.remark == remark) {
            self.notes.push(Note { remark, evidence });
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        if !self.refused.contains(&refusal) && !self.refused.iter_mut().any(|known| known.join(&refusal)) {
            self.refused.push(refusal);
        }
    }

    /// Reads the present values and resolves the wanted ones.
    fn read_and_resolve(&mut self) -> Result<(), PlanError> {
        for want in self.wants.values_mut() {
            want.now = self.snapshot.value(want.knob, &want.place)?;
        }
        for key in self.wants.keys().cloned().collect::<Vec<_>>() {
            let value = match self.resolve(&self.wants[&key]) {
                // Any other refusal is judged in `change`, once it is known what changes before
                // this setting's step. If the snapshot lacks a knob, `judged_by` is wrong: the knob
                // must not pass for an absent one.
                Err(ResolveError::Read(error @ ReadError::NotTaken(_))) => return Err(error.into()),
                resolved => resolved.ok().flatten(),
            };
            if let Some(want) = self.wants.get_mut(&key) {
                want.value = value;
            }
        }
        Ok(self.widen_uncore_entries()?)
    }

    /// Predicts what the steps before governor, preference and limits will have changed.
    fn look_ahead(&mut self) -> Result<(), ReadError> {
        // Skip a knob that is absent now: a want must not make itself possible.
        let differs = |want: &&Want| want.now.is_some() && want.value.is_some() && want.value != want.now;
        let machine_wide = |id: Id| self.wants.get(&(id, At::Machine));
        if let Some(Value::Word(mode)) =
            machine_wide(Id::DriverMode).filter(differs).and_then(|want| want.value.clone())
        {
            self.ahead.mode = Some(mode);
        }
        for want in self.wants.values().filter(differs) {
            match want.knob {
                // Base frequencies change with it.
                Id::SstBf => self.ahead.capacity = true,
                Id::SstLevel => {
                    self.ahead.level = true;
                    self.ahead.capacity = true;
                }
                Id::Online | Id::Smt | Id::Turbo | Id::Boost => self.ahead.capacity = true,
                _ => {}
            }
            // `online` is a switch, `smt` a word (on, off, forceoff).
            let on = match &want.value {
                Some(Value::Switch(on)) => *on,
                Some(Value::Word(word)) => word == "on",
                _ => false,
            };
            if on && matches!(want.knob, Id::Online | Id::Smt) {
                // smt's place has all CPUs: only the write shows which siblings come online.
                self.ahead.online.extend(want.place.cpus.iter());
            }
        }
        // Limits are checked against the frequencies that exist once turbo has been switched again.
        if self.outdated_turbo_off()?.is_some() {
            self.ahead.capacity = true;
        }
        // A large machine has hundreds of policies. Read governors only if these knobs need them.
        let looks_at_governors = |(knob, _): &(Id, At)| matches!(knob, Id::Governor | Id::Epp | Id::Setspeed);
        if !self.wants.keys().any(looks_at_governors) {
            return Ok(());
        }
        for policy in &self.snapshot.topology().policies {
            let place = Place::new(At::Policy(policy.number), policy.cpus.clone());
            let now = self.snapshot.value_if_readable(Id::Governor, &place)?;
            let wanted =
                self.wants.get(&(Id::Governor, place.at.clone())).and_then(|want| want.value.clone());
            // `now` is `None` if the policy cannot be read. The governor then counts as changing.
            if wanted.is_some() && wanted != now {
                self.ahead.governor_changes.insert(policy.number);
            }
            if let Some(Value::Word(word)) = wanted.or(now) {
                self.ahead.governors.insert(policy.number, word);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Plan, PlanError> {
        if !self.refused.is_empty() {
            return Err(PlanError::Refused(self.refused));
        }
        if !self.absent.is_empty() {
            // One absence per place would fill the screen of a machine with hundreds of CPUs.
            self.absent.dedup();
            if let Some(more) = shorten(&mut self.absent) {
                self.absent.push(Absence::More(more));
            }
            return Err(PlanError::NotHere(self.absent));
        }
        if let Some(more) = shorten(&mut self.notes) {
            self.notes.push(Note { remark: Remark::More(more), evidence: Vec::new() });
        }
        sort(&mut self.changes);
        Ok(Plan { machine: self.snapshot.name().to_owned(), changes: self.changes, notes: self.notes })
    }
}

/// Sorts changes into the order in which they are made.
pub(crate) fn sort(changes: &mut [Change]) {
    changes.sort_by_cached_key(|change| {
        let path = Natural(change.location.path().unwrap_or_default().to_owned());
        let control = change.knob.knob().control();
        let bound = control.map_or(Bound::None, |control| control.writing.bound);
        // In a pair of limits, write the one that makes room for the other first (`Bound::rank`).
        let order = bound.rank(change.old.as_deref().unwrap_or_default(), &change.new);
        (change.step, order, path, change.location.clone())
    });
}

/// Returns a place's name as settings use it, shared by all CPUs with an idle state of that name.
fn instance(place: &Place) -> String {
    match place.at {
        At::IdleState { .. } => place.name.clone(),
        _ => place.to_string(),
    }
}

/// Shortens a list that hundreds of CPUs would make long. Returns the number of items removed.
fn shorten<T>(items: &mut Vec<T>) -> Option<usize> {
    const SHOWN: usize = 12;
    let more = items.len().checked_sub(SHOWN).filter(|more| *more > 0)?;
    items.truncate(SHOWN);
    Some(more)
}
