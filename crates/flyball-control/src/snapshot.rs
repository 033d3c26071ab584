//! A machine at one moment, as data, for `plan`, `verify`, `show`, `save` and the doctor.
//!
//! A [`Snapshot`] holds the topology, the places where knobs exist, and the reading of each
//! requested knob at each place. It cannot read from the machine later: asking for a knob that it
//! does not hold is an error ([`ReadError::NotTaken`]), never an absence. `take` fills it in one
//! pass that reads each file, register and Speed Select setting once.

mod expand;
mod files;
mod instances;
mod speed_select;
mod take;

use std::collections::{BTreeMap, HashMap};

use flyball_host::{CpuList, Kind, topology::POLICIES};

use self::speed_select::SpeedSelectView;
pub(crate) use self::speed_select::{LEVEL_KNOBS, Level};
pub use self::{files::KnobFile, take::Request};
use crate::{
    At, Content, Evidence, Id, Location, Mechanism, Place, ReadError, Reading, Scope, TABLE, TargetError,
    Topology, Value, Vendor, Why, knob::Form, parse, topology::CPUS,
};

/// Number of scopes.
const SCOPES: usize = Scope::Clos as usize + 1;

/// One knob at one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The reading, or the error if the knob exists and could not be read.
    pub reading: Result<Reading, ReadError>,
    /// The target of a write; `None` if no write is possible, or if the snapshot was not taken for
    /// planning.
    pub slot: Option<Box<Slot>>,
}

/// The file, register or setting that a write of a knob at a place goes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// The file, register or setting.
    pub location: Location,
    /// Content, byte for byte.
    pub content: Content,
    /// How the value is spelled.
    form: Form,
    /// The lowest bit, if it is a field of a register.
    shift: u8,
}

impl Slot {
    pub fn file(path: impl Into<String>, form: Form, content: Content) -> Slot {
        Slot { location: Location::File(path.into()), content, form, shift: 0 }
    }

    /// Returns the content that writes `value`; `None` for a value of another type.
    fn spell(&self, value: &Value) -> Option<String> {
        let text = parse::text(self.form, value)?;
        match self.location {
            Location::Msr { mask, .. } => {
                let raw = text.parse::<u64>().ok()?;
                // Masked, so that a value wider than the field does not change its neighbours.
                Some(format!("{:#x}", (raw << self.shift) & mask))
            }
            _ => Some(text),
        }
    }
}

/// The readings of one knob.
#[derive(Debug, Clone, PartialEq)]
enum Column {
    /// A sample of the places lacks it, so all of them do (see [`Request::sample_absence`]).
    AbsentEverywhere(Why),
    /// The readings, in the order of the places; `None` for a place outside the requested CPUs.
    Each(Vec<Option<Entry>>),
}

/// A machine at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    name: String,
    kind: Kind,
    topology: Topology,
    /// Places by scope; `None` if no knob of the scope was taken.
    places: [Option<Vec<Place>>; SCOPES],
    /// Readings by knob; `None` if the knob was not taken.
    columns: Vec<Option<Column>>,
    idle_states: Vec<String>,
    /// Files of policies that are not knobs, by policy and name; see
    /// [`Snapshot::take_policy_files`].
    policy_files: BTreeMap<u32, BTreeMap<&'static str, String>>,
    speed_select: Option<SpeedSelectView>,
    /// True if it holds what a plan needs beyond the readings: slots, and the levels of Speed
    /// Select.
    to_plan: bool,
}

impl Snapshot {
    /// Creates a snapshot of this topology that holds no readings yet.
    pub fn empty(name: impl Into<String>, kind: Kind, topology: Topology) -> Snapshot {
        Snapshot {
            name: name.into(),
            kind,
            topology,
            places: [const { None }; SCOPES],
            columns: vec![None; TABLE.len()],
            idle_states: Vec::new(),
            policy_files: BTreeMap::new(),
            speed_select: None,
            to_plan: false,
        }
    }

    /// Sets the entries of `knob`, for snapshots built without a machine. Its places come from the
    /// topology. A place for which `at` returns `None` lacks the knob. Such a snapshot has no Speed
    /// Select unless it was taken from a machine with it.
    #[must_use]
    pub fn with(mut self, knob: Id, entry: impl Fn(&Place) -> Option<Entry>) -> Snapshot {
        let scope = knob.knob().scope;
        let places = match &self.places[scope as usize] {
            Some(places) => places.clone(),
            None => instances::from_topology(&self.topology, scope).unwrap_or_default(),
        };
        // `None` means absent, not unknown: a constructed snapshot counts as completely read.
        let nothing = || Entry { reading: Ok(Reading::Absent(self.why_nowhere(knob))), slot: None };
        let entries = places.iter().map(|place| Some(entry(place).unwrap_or_else(nothing))).collect();
        self.columns[knob as usize] = Some(Column::Each(entries));
        self.places[scope as usize] = Some(places);
        self.to_plan = true;
        self
    }

    /// Returns the host's name for the machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the machine is live, recorded or simulated.
    pub fn kind(&self) -> Kind {
        self.kind.clone()
    }

    /// Returns the machine's topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns whether `knob` was taken.
    pub fn has(&self, knob: Id) -> bool {
        self.columns[knob as usize].is_some()
    }

    /// Returns every place where `knob` could exist here, in order. Empty if the machine has no
    /// place of that kind; [`Snapshot::why_nowhere`] gives the reason.
    ///
    /// # Errors
    /// The knob was not taken.
    pub fn places(&self, knob: Id) -> Result<&[Place], ReadError> {
        if !self.has(knob) {
            return Err(ReadError::NotTaken(knob));
        }
        Ok(self.places_in(knob.knob().scope))
    }

    /// Returns the places of `knob` that govern at least one of `cpus`.
    ///
    /// # Errors
    /// The knob was not taken.
    pub fn places_on(&self, knob: Id, cpus: &CpuList) -> Result<Vec<Place>, ReadError> {
        Ok(self.places(knob)?.iter().filter(|place| place.is_on(cpus)).cloned().collect())
    }

    /// Returns why [`Snapshot::places`] of this knob is empty.
    pub fn why_nowhere(&self, knob: Id) -> Why {
        if let Some(vendor) = self.other_vendor(knob) {
            return Why::OtherVendor(vendor);
        }
        // Paths in the reasons below name one CPU that should have the file.
        let first = self.topology.online.first().unwrap_or(0);
        match knob.knob().scope {
            Scope::PowerDomain | Scope::Clos => match &self.speed_select {
                Some(SpeedSelectView { layout: Err(_), why, .. }) => why.clone(),
                _ => Why::NotNow("no power domain has Speed Select registers".to_owned()),
            },
            Scope::Policy => Why::NoCpufreq,
            Scope::IdleState => Why::NoFile(format!("{CPUS}/cpu{first}/cpuidle/state0")),
            Scope::Uncore => Why::NoFile(format!("{CPUS}/intel_uncore_frequency")),
            Scope::Zone | Scope::Constraint => Why::NoFile("/sys/class/powercap/intel-rapl:0".to_owned()),
            Scope::ProfileDevice => Why::NoFile("/sys/class/platform-profile/platform-profile-0".to_owned()),
            Scope::Socket => Why::NoFile("/sys/devices/platform/AMDI0097:00".to_owned()),
            Scope::Sensor => Why::NoFile("/sys/class/hwmon/hwmon0/temp1_input".to_owned()),
            Scope::Package | Scope::Die | Scope::Core => Why::NoFile(format!("{CPUS}/cpu{first}/topology")),
            Scope::Machine | Scope::Cpu => Why::NoFile(format!("{CPUS}/online")),
        }
    }

    /// Returns the vendor whose processors have the knob, if this processor is from another.
    fn other_vendor(&self, knob: Id) -> Option<Vendor> {
        let vendor = self.topology.vendor;
        // A recording may lack /proc/cpuinfo. Without a model name no vendor is ruled out.
        let is_known = vendor != Vendor::Other || self.topology.model_name.is_some();
        knob.knob().vendor.filter(|of| is_known && vendor != *of)
    }

    /// Returns the places of `knob` with their readings, in order; `None` for a place that was not
    /// requested.
    ///
    /// # Errors
    /// The knob was not taken.
    pub fn entries(&self, knob: Id) -> Result<impl Iterator<Item = (&Place, Option<&Entry>)>, ReadError> {
        let entries = match &self.columns[knob as usize] {
            Some(Column::Each(entries)) => entries.as_slice(),
            Some(Column::AbsentEverywhere(_)) => &[],
            None => return Err(ReadError::NotTaken(knob)),
        };
        Ok(self.places(knob)?.iter().zip(entries.iter().map(Option::as_ref)))
    }

    /// Returns why a sample of the places of `knob` lacks it, if it does (see
    /// [`Request::sample_absence`]).
    pub fn absent_everywhere(&self, knob: Id) -> Option<&Why> {
        match &self.columns[knob as usize] {
            Some(Column::AbsentEverywhere(why)) => Some(why),
            _ => None,
        }
    }

    /// Returns the entry of `knob` at `at`; `None` if the machine has no such place.
    ///
    /// # Errors
    /// The knob was not taken there.
    fn entry(&self, knob: Id, at: &At) -> Result<Option<&Entry>, ReadError> {
        let Some(Column::Each(entries)) = &self.columns[knob as usize] else {
            return if self.has(knob) { Ok(None) } else { Err(ReadError::NotTaken(knob)) };
        };
        let places = self.places_in(knob.knob().scope);
        // Numbered places are sorted. Named places (zones, sensors) are in the order of the
        // directory, and few.
        let index = places
            .binary_search_by(|place| place.at.cmp(at))
            .ok()
            .or_else(|| places.iter().position(|place| place.at == *at));
        match index.and_then(|index| entries.get(index)) {
            Some(None) => Err(ReadError::NotTaken(knob)),
            Some(Some(entry)) => Ok(Some(entry)),
            None => Ok(None),
        }
    }

    /// Returns the reading of `knob` at `place`.
    ///
    /// # Errors
    /// The knob exists but could not be read, or held text that the kernel cannot have printed; or
    /// the knob was not taken there.
    pub fn read(&self, knob: Id, place: &Place) -> Result<Reading, ReadError> {
        match (self.entry(knob, &place.at)?, &self.columns[knob as usize]) {
            (Some(entry), _) => entry.reading.clone(),
            (None, Some(Column::AbsentEverywhere(why))) => Ok(Reading::Absent(why.clone())),
            (None, _) => Ok(Reading::Absent(self.why_nowhere(knob))),
        }
    }

    /// Returns the reading of `knob` at `place` as evidence, for people.
    pub fn evidence(&self, knob: Id, place: &Place) -> Evidence {
        let (place, value) = match self.read(knob, place) {
            Ok(Reading::Value { value, source }) => (source.to_string(), format!("{knob}={value}")),
            Ok(Reading::Absent(why)) => return self.absence_evidence(knob, &why),
            Err(error) => (knob.to_string(), error.to_string()),
        };
        Evidence { place, value }
    }

    /// Returns evidence that a knob is absent.
    pub(crate) fn absence_evidence(&self, knob: Id, why: &Why) -> Evidence {
        let (place, value) = match why {
            Why::NoFile(path) => (path.clone(), "absent".to_owned()),
            Why::OtherVendor(_) => match (self.topology.vendor, &self.topology.model_name) {
                (Vendor::Other, Some(name)) => ("/proc/cpuinfo".to_owned(), name.clone()),
                (vendor, _) => ("/proc/cpuinfo vendor_id".to_owned(), vendor.to_string()),
            },
            Why::NoCpufreq => (POLICIES.to_owned(), "no policies".to_owned()),
            Why::Offline => (format!("{CPUS}/offline"), self.topology.offline.to_string()),
            why => (knob.to_string(), why.to_string()),
        };
        Evidence { place, value }
    }

    /// Returns evidence for the CPUs of a place.
    pub(crate) fn cpus_evidence(&self, place: &Place) -> Evidence {
        let path = match (&place.at, place.cpus.first()) {
            (At::Policy(number), _) => format!("{}/related_cpus", self.topology.policy_folder(*number)),
            (_, cpu) => format!("{CPUS}/cpu{}/topology", cpu.unwrap_or(0)),
        };
        Evidence { place: path, value: format!("CPUs {}", place.cpus) }
    }

    /// Returns the value of `knob` at `place`, if there is one.
    pub fn value(&self, knob: Id, place: &Place) -> Result<Option<Value>, ReadError> {
        Ok(match self.read(knob, place)? {
            Reading::Value { value, .. } => Some(value),
            Reading::Absent(_) => None,
        })
    }

    /// Like [`Snapshot::value`], but returns `None` also for a value that could not be read. Use it
    /// if a missing value changes nothing.
    ///
    /// # Errors
    /// The knob was not taken there.
    pub fn value_if_readable(&self, knob: Id, place: &Place) -> Result<Option<Value>, ReadError> {
        match self.value(knob, place) {
            Err(error @ ReadError::NotTaken(_)) => Err(error),
            other => Ok(other.unwrap_or(None)),
        }
    }

    /// Returns the value of a machine-wide knob, if there is one and it could be read.
    ///
    /// # Errors
    /// The knob was not taken.
    pub fn machine_value(&self, knob: Id) -> Result<Option<Value>, ReadError> {
        self.value_if_readable(knob, &Place::machine())
    }

    /// Returns the target of a write of `knob` at `place`; `None` if no write is possible.
    ///
    /// # Errors
    /// The knob was not taken there, or not for planning.
    pub fn slot(&self, knob: Id, place: &Place) -> Result<Option<&Slot>, ReadError> {
        if !self.to_plan {
            return Err(ReadError::NotTaken(knob));
        }
        Ok(self.entry(knob, &place.at)?.and_then(|entry| entry.slot.as_deref()))
    }

    /// Returns the write that would set `knob` to `value` at `place`: the location and its new
    /// content.
    ///
    /// # Errors
    /// The row is a fact, no write is possible there, or the value is of another type.
    pub fn target(&self, knob: Id, place: &Place, value: &Value) -> Result<(Location, String), TargetError> {
        let row = knob.knob();
        if row.control().is_none() {
            return Err(TargetError::ReadOnly(row.name));
        }
        let Some(slot) = self.slot(knob, place)? else {
            let why = self.why_not_writable(knob, place);
            return Err(TargetError::Nowhere { knob: row.name, place: place.to_string(), why });
        };
        match slot.spell(value) {
            Some(content) => Ok((slot.location.clone(), content)),
            None => Err(TargetError::WrongType { knob: row.name, value: value.to_string() }),
        }
    }

    /// Returns why there is no slot: what the first writable mechanism lacks.
    fn why_not_writable(&self, knob: Id, place: &Place) -> Why {
        let first =
            knob.knob().mechanisms.iter().filter(|mechanism| mechanism.writes()).find_map(|mechanism| {
                match *mechanism {
                    Mechanism::File { path, .. } => {
                        expand::expand(&self.topology, path, &place.at).map(Why::NoFile)
                    }
                    // Another vendor's register does not exist here.
                    Mechanism::Msr { vendor, .. } if vendor == self.topology.vendor => {
                        match self.read(knob, place) {
                            Ok(Reading::Absent(why)) => Some(why),
                            Ok(Reading::Value { .. }) => None,
                            Err(error) => Some(Why::NotNow(error.to_string())),
                        }
                    }
                    Mechanism::SpeedSelect { .. } => {
                        Some(Why::NotNow("this processor has no such field".to_owned()))
                    }
                    _ => None,
                }
            });
        first.unwrap_or_else(|| self.why_nowhere(knob))
    }

    /// Returns the location that `knob` has at `place`, or will have once a driver creates it: the
    /// first writable one.
    ///
    /// # Errors
    /// The knob was not taken there.
    pub(crate) fn future_location(&self, knob: Id, place: &Place) -> Result<Option<Location>, ReadError> {
        if let Some(slot) = self.slot(knob, place)? {
            return Ok(Some(slot.location.clone()));
        }
        Ok(knob.knob().mechanisms.iter().find_map(|mechanism| match mechanism {
            Mechanism::File { path, write: true, .. } => {
                expand::expand(&self.topology, path, &place.at).map(Location::File)
            }
            Mechanism::SpeedSelect { field, write: true, .. } => {
                self.speed_select_setting(*field, place).map(Location::SpeedSelect)
            }
            _ => None,
        }))
    }

    /// Returns the content of each location that a write could go to.
    pub fn into_contents(self) -> HashMap<Location, Content> {
        let columns = self.columns.into_iter().flatten().filter_map(|column| match column {
            Column::Each(entries) => Some(entries),
            Column::AbsentEverywhere(_) => None,
        });
        let slots = columns.flatten().flatten().filter_map(|entry| entry.slot);
        slots.map(|slot| (slot.location, slot.content)).collect()
    }

    /// Returns the names of the idle states, lightest first; empty if none of their knobs was
    /// taken.
    pub fn idle_states(&self) -> &[String] {
        &self.idle_states
    }

    /// Returns the first lines of a policy's files that [`Snapshot::take_policy_files`] could read.
    pub fn policy_files(&self, policy: u32) -> Option<&BTreeMap<&'static str, String>> {
        self.policy_files.get(&policy)
    }

    /// Returns whether all CPUs of the place are offline.
    pub(crate) fn is_offline(&self, place: &Place) -> bool {
        is_offline(&self.topology, place)
    }
}

fn is_offline(topology: &Topology, place: &Place) -> bool {
    !place.cpus.is_empty() && !place.cpus.intersects(&topology.online)
}
