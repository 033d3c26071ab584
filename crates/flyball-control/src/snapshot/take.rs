//! The read pass: from a host to a snapshot.
//!
//! Knobs are read scope by scope and place by place, each by the first mechanism that finds it.
//! Registers hold several knobs and are read once per CPU. On a machine of 512 CPUs a pass opens
//! some thousand files, and opening them takes nearly all of its time. So only requested knobs are
//! read. If a sample of a knob's places lacks it, the other places are skipped.

use std::collections::{BTreeSet, HashMap};

use flyball_host::{CpuList, Errno, Host, HostError, KiloHertz, Op};

use super::{
    Column, Entry, SCOPES, Slot, Snapshot,
    expand::Pattern,
    is_offline,
    speed_select::{LEVEL_KNOBS, SpeedSelectView},
};
use crate::{
    Content, Form, Id, Intent, Location, Mechanism, Place, ReadError, Reading, Scope, SelectError, Topology,
    Value, Vendor, Why, parse, select,
    topology::{self, CPUS},
};

/// The levels of CPPC. On processors not made by Intel or AMD, planning limits and turbo needs
/// them.
const CPPC_LEVELS: [Id; 4] = [Id::CppcHighest, Id::CppcNominal, Id::CppcLowestNonlinear, Id::NominalFreq];

/// A request for a snapshot: the knobs to read, and how.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "options that are named where a request is made")]
pub struct Request<'a> {
    pub knobs: &'a [Id],
    /// Only places that govern one of these CPUs; all if `None`.
    pub cpus: Option<&'a CpuList>,
    /// Assume that a knob is absent everywhere if the first and the last place and one of each core
    /// type lack it. The kernel gives every policy of a driver the same attributes, and every CPU
    /// of a machine. This saves a thousand failed calls on a large machine.
    pub sample_absence: bool,
    /// Take the online CPUs from the kernel's list in the topology instead of a file per CPU.
    pub online_by_list: bool,
    /// Also read what a plan needs: the targets of writes and their contents.
    pub to_plan: bool,
    /// Also read the levels of Speed Select, for settings of [`LEVEL_KNOBS`].
    pub levels: bool,
}

impl Snapshot {
    /// Reads only the topology of the machine behind `host`.
    pub fn begin(host: &dyn Host) -> Result<Snapshot, ReadError> {
        Ok(Snapshot::empty(host.name(), host.kind(), Topology::inspect(host)?))
    }

    /// Reads the level-3 caches into the topology.
    pub fn take_caches(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        self.topology.read_caches(host)
    }

    /// Returns the CPUs that a selector names, after reading the data that it needs.
    ///
    /// # Errors
    /// Same as [`Topology::read_for`]; and the selector's own error.
    pub fn select(
        &mut self,
        host: &dyn Host,
        selector: &str,
    ) -> Result<Result<CpuList, SelectError>, ReadError> {
        self.topology.read_for(host, [selector])?;
        Ok(select(selector, &self.topology))
    }

    /// Takes what planning `intent` needs: its knobs, and the knobs that they are checked against.
    ///
    /// # Errors
    /// Same as [`Snapshot::begin`]. A file that cannot be read is not an error here: the error is
    /// stored as its reading.
    pub fn for_intent(host: &dyn Host, intent: &Intent) -> Result<Snapshot, ReadError> {
        let mut knobs = BTreeSet::new();
        for setting in &intent.settings {
            knobs.insert(setting.knob());
            knobs.extend(setting.knob().knob().control().into_iter().flat_map(|control| control.judged_by));
        }
        let mut snapshot = Snapshot::begin(host)?;
        if snapshot.topology.vendor == Vendor::Other {
            // Levels of CPPC stand for the files that only drivers of Intel and AMD have.
            let limits = [Id::Turbo, Id::MinFreq, Id::MaxFreq].iter().any(|knob| knobs.contains(knob));
            knobs.extend(limits.then_some(CPPC_LEVELS).into_iter().flatten());
            // And a number for the words of a preference.
            knobs.extend(knobs.contains(&Id::Epp).then_some(Id::EppValue));
        }
        let knobs: Vec<Id> = knobs.into_iter().collect();
        let selectors = intent.settings.iter().filter_map(|setting| setting.on.as_deref());
        snapshot.topology.read_for(host, selectors)?;
        let levels = intent.settings.iter().any(|setting| LEVEL_KNOBS.contains(&setting.knob()));
        snapshot.take(host, &Request { knobs: &knobs, to_plan: true, levels, ..Request::default() });
        Ok(snapshot)
    }

    /// Takes every place of `knobs`.
    pub fn take_knobs(host: &dyn Host, knobs: &[Id]) -> Result<Snapshot, ReadError> {
        let mut snapshot = Snapshot::begin(host)?;
        snapshot.take(host, &Request { knobs, to_plan: true, ..Request::default() });
        Ok(snapshot)
    }

    /// Reads the knobs of `request` that the snapshot does not have yet.
    pub fn take(&mut self, host: &dyn Host, request: &Request<'_>) {
        // After a pass without `to_plan`, the snapshot must not count as complete for planning.
        self.to_plan = request.to_plan;
        let mut pass = Pass {
            host,
            to_plan: request.to_plan,
            buffer: Vec::with_capacity(256),
            registers: HashMap::new(),
            patterns: HashMap::new(),
            no_msr_driver: false,
        };
        // By scope, then place by place: the files of a policy or CPU are in one folder, and
        // reading them one after the other lets the host open them relative to it. The idle states
        // are in the CPU's folder.
        let mut by_folder: [Vec<Id>; SCOPES] = [const { Vec::new() }; SCOPES];
        // Speed Select comes first: uncore domains have the CPUs of its power domains.
        let asks = |knob: &Id| {
            let mechanisms = knob.knob().mechanisms;
            mechanisms.iter().any(|mechanism| matches!(mechanism, Mechanism::SpeedSelect { .. }))
        };
        if request.knobs.iter().any(|knob| !self.has(*knob) && asks(knob)) {
            self.look_for_speed_select(host, request.levels);
        }
        for &knob in request.knobs {
            let folder = match knob.knob().scope {
                Scope::IdleState => Scope::Cpu,
                scope => scope,
            };
            if self.has(knob) || by_folder[folder as usize].contains(&knob) {
                continue;
            }
            self.find_places(host, knob.knob().scope);
            by_folder[folder as usize].push(knob);
        }
        for knobs in by_folder.iter().filter(|knobs| !knobs.is_empty()) {
            for (knob, column) in pass.columns(self, knobs, request) {
                self.columns[knob as usize] = Some(column);
            }
        }
    }

    /// Finds the places of a scope, unless they are known.
    pub(super) fn find_places(&mut self, host: &dyn Host, scope: Scope) {
        // Before the places: their names are part of each place.
        if scope == Scope::IdleState && self.idle_states.is_empty() {
            self.idle_states = super::instances::idle_states(host, &self.topology);
        }
        if scope == Scope::Constraint {
            // A constraint is found in the folder of its zone.
            self.find_scope(host, Scope::Zone);
        }
        self.find_scope(host, scope);
    }

    /// Returns the places of a scope that were found; none if it was not looked for.
    pub(super) fn places_in(&self, scope: Scope) -> &[Place] {
        self.places[scope as usize].as_deref().unwrap_or_default()
    }

    fn find_scope(&mut self, host: &dyn Host, scope: Scope) {
        if self.places[scope as usize].is_none() {
            let places = self.places_of_host(host, scope);
            self.places[scope as usize] = Some(places);
        }
    }

    /// Reads files of every policy verbatim, for questions that no knob answers. Skips files that
    /// cannot be read.
    pub fn take_policy_files(&mut self, host: &dyn Host, names: &[&'static str]) {
        for policy in &self.topology.policies {
            let folder = self.topology.policy_folder(policy.number);
            let files = self.policy_files.entry(policy.number).or_default();
            for name in names {
                if let Ok(text) = host.read(&format!("{folder}/{name}")) {
                    // The files have one line each. Recordings may hold that line twice.
                    files.insert(*name, text.lines().next().unwrap_or_default().to_owned());
                }
            }
        }
    }

    /// Looks at Speed Select's interface and its power domains.
    pub fn take_speed_select(&mut self, host: &dyn Host) {
        self.look_for_speed_select(host, false);
    }

    fn look_for_speed_select(&mut self, host: &dyn Host, levels: bool) {
        if self.speed_select.is_none() {
            self.speed_select = Some(SpeedSelectView::take(host, &self.topology, levels));
        }
    }
}

/// Returns the places of all `knobs`. Several scopes are sorted by CPU; one scope keeps its order.
fn folder_by_folder<'s>(snapshot: &'s Snapshot, knobs: &[Id]) -> Vec<(Scope, &'s Place)> {
    let mut scopes: Vec<Scope> = Vec::new();
    let mut places = Vec::new();
    for &knob in knobs {
        let scope = knob.knob().scope;
        if !scopes.contains(&scope) {
            scopes.push(scope);
            places.extend(snapshot.places_in(scope).iter().map(|place| (scope, place)));
        }
    }
    if scopes.len() > 1 {
        // The sort is stable, and the places of a scope are in the order of CPUs already.
        places.sort_by_key(|(_, place)| place.cpus.first());
    }
    places
}

/// A pass over a machine, with the data that it caches.
struct Pass<'h> {
    host: &'h dyn Host,
    to_plan: bool,
    buffer: Vec<u8>,
    /// Registers by CPU and number. Several knobs can be fields of one register.
    registers: HashMap<(u32, u32), Result<u64, HostError>>,
    /// Patterns of the table by their address in memory.
    patterns: HashMap<*const u8, Pattern<'static>>,
    no_msr_driver: bool,
}

/// Returns whether the missing file belongs to another vendor's driver.
fn is_of_other_vendor(why: &Why, vendor: Vendor) -> bool {
    let Why::NoFile(path) = why else { return false };
    path.contains("/intel_") && vendor != Vendor::Intel || path.contains("/amd_") && vendor != Vendor::Amd
}

/// The result of one mechanism.
struct Attempt {
    reading: Result<Reading, ReadError>,
    slot: Option<Box<Slot>>,
}

impl Attempt {
    fn absent(why: Why) -> Attempt {
        Attempt { reading: Ok(Reading::Absent(why)), slot: None }
    }
}

impl Pass<'_> {
    /// Reads knobs whose files are in the same folders.
    fn columns(&mut self, snapshot: &Snapshot, knobs: &[Id], request: &Request<'_>) -> Vec<(Id, Column)> {
        let is_meant = |place: &Place| request.cpus.is_none_or(|cpus| place.cpus.intersects(cpus));
        let mut columns = Vec::with_capacity(knobs.len());
        // The knobs to read at each place, and their readings so far.
        let mut each: Vec<(Id, Vec<Option<Entry>>)> = Vec::with_capacity(knobs.len());
        for &knob in knobs {
            let places = snapshot.places_in(knob.knob().scope);
            if request.sample_absence && !request.to_plan {
                let meant: Vec<&Place> = places.iter().filter(|place| is_meant(place)).collect();
                // The sample costs a few reads. Up to eight places cost no more.
                if meant.len() > 8
                    && let Some(why) = self.absent_everywhere(snapshot, knob, &meant)
                {
                    columns.push((knob, Column::AbsentEverywhere(why)));
                    continue;
                }
            }
            each.push((knob, Vec::with_capacity(places.len())));
        }
        let by_list = request.online_by_list && snapshot.topology.online_is_listed;
        for (scope, place) in folder_by_folder(snapshot, knobs) {
            let is_meant = is_meant(place);
            for (knob, entries) in each.iter_mut().filter(|(knob, _)| knob.knob().scope == scope) {
                entries.push(is_meant.then(|| {
                    if *knob == Id::Online && by_list {
                        Entry { reading: Ok(member(&snapshot.topology, place)), slot: None }
                    } else {
                        self.entry(snapshot, *knob, place)
                    }
                }));
            }
        }
        columns.extend(each.into_iter().map(|(knob, entries)| (knob, Column::Each(entries))));
        columns
    }

    /// Returns why a knob is absent, if a sample of its places lacks the file or the register.
    fn absent_everywhere(&mut self, snapshot: &Snapshot, knob: Id, places: &[&Place]) -> Option<Why> {
        let mut sample = vec![*places.first()?, *places.last()?];
        // On a hybrid processor, core types may have different files.
        for cpus in snapshot.topology.core_kinds().values() {
            sample
                .extend(places.iter().find(|place| place.cpus.first().is_some_and(|cpu| cpus.contains(cpu))));
        }
        let mut first = None;
        for place in sample {
            match self.entry(snapshot, knob, place).reading {
                Ok(Reading::Absent(
                    why @ (Why::NoFile(_)
                    | Why::NoRegister { .. }
                    | Why::OtherVendor(_)
                    | Why::OtherModel { .. }
                    | Why::NoCpufreq),
                )) => {
                    first.get_or_insert(why);
                }
                // The knob is present, or absent for a temporary reason (offline, driver off),
                // which proves nothing about the other places.
                _ => return None,
            }
        }
        first
    }

    /// Reads `knob` at `place`. The value comes from the first mechanism that has one, the slot
    /// from the first that takes writes.
    fn entry(&mut self, snapshot: &Snapshot, knob: Id, place: &Place) -> Entry {
        let row = knob.knob();
        let mut absent = None;
        let mut reading = None;
        let mut slot = None;
        for mechanism in row.mechanisms {
            // Continue for the slot: the value may come from a register and the slot from a file.
            let wants_slot = self.to_plan && row.control().is_some() && slot.is_none() && mechanism.writes();
            if reading.is_some() && !wants_slot {
                continue;
            }
            let attempt = self.attempt(snapshot, mechanism, place);
            if wants_slot {
                slot = attempt.slot;
            }
            match attempt.reading {
                // Prefer the missing file of this processor's own driver to another vendor's.
                Ok(Reading::Absent(why))
                    if absent
                        .as_ref()
                        .is_none_or(|known| is_of_other_vendor(known, snapshot.topology.vendor)) =>
                {
                    absent = Some(why);
                }
                Ok(Reading::Absent(_)) => {}
                found if reading.is_none() => reading = Some(found),
                _ => {}
            }
        }
        let reading = reading.unwrap_or_else(|| {
            Ok(Reading::Absent(match (snapshot.other_vendor(knob), absent) {
                (Some(vendor), _) => Why::OtherVendor(vendor),
                (None, Some(why)) => why,
                (None, None) => snapshot.why_nowhere(knob),
            }))
        });
        Entry { reading, slot }
    }

    fn attempt(&mut self, snapshot: &Snapshot, mechanism: &Mechanism, place: &Place) -> Attempt {
        let topology = &snapshot.topology;
        match *mechanism {
            Mechanism::File { path, form, write } => {
                // Key by address: the patterns are constants of the table, and comparing texts
                // would cost as much as parsing.
                let pattern = self.patterns.entry(path.as_ptr()).or_insert_with(|| Pattern::new(path));
                let Some(path) = pattern.path(topology, &place.at) else {
                    return Attempt::absent(Why::NoCpufreq);
                };
                self.file(topology, path, form, write, place)
            }
            Mechanism::Msr { vendor, on, register, bits, form, write } => {
                if topology.vendor != vendor {
                    return Attempt::absent(Why::OtherVendor(vendor));
                }
                if !topology.is(on) {
                    return Attempt::absent(Why::OtherModel { register });
                }
                self.register(topology, register, bits, form, write, place)
            }
            Mechanism::SpeedSelect { field, form, write } => {
                let (reading, content) = snapshot.read_speed_select(self.host, field, form, place);
                let slot = content.filter(|_| write).map(|(setting, content)| {
                    Box::new(Slot { location: Location::SpeedSelect(setting), content, form, shift: 0 })
                });
                Attempt { reading, slot }
            }
            Mechanism::Member { .. } if topology.online_is_listed => {
                Attempt { reading: Ok(member(topology, place)), slot: None }
            }
            Mechanism::Member { path } => Attempt::absent(Why::NoFile(path.to_owned())),
        }
    }

    fn file(&mut self, topology: &Topology, path: String, form: Form, write: bool, place: &Place) -> Attempt {
        let read = self.host.read_into(&path, &mut self.buffer);
        let with_slot = self.to_plan && write;
        // A file that refuses to be read exists. ENODEV may come from the file or from its path.
        let exists = match &read {
            Err(error) if error.errno == Errno::NOENT => false,
            Err(error) if error.is_absent() => with_slot && self.host.exists(&path),
            _ => true,
        };
        let slot = (with_slot && exists).then(|| {
            let content = match &read {
                Ok(()) => Content::bytes(&self.buffer),
                Err(error) => Content::Unreadable(error.errno.0),
            };
            Box::new(Slot::file(path.clone(), form, content))
        });
        let reading = match (read, std::str::from_utf8(&self.buffer)) {
            (Err(error), _) => refused(topology, path, place, error),
            (Ok(()), Err(_)) => refused(topology, path.clone(), place, not_text(&path)),
            (Ok(()), Ok(text)) => decode_file(topology, path, form, text.trim_ascii_end(), place),
        };
        Attempt { reading, slot }
    }

    fn register(
        &mut self,
        topology: &Topology,
        register: u32,
        bits: (u8, u8),
        form: Form,
        write: bool,
        place: &Place,
    ) -> Attempt {
        let absent = |no_driver| Attempt::absent(Why::NoRegister { register, no_driver });
        let Some(cpu) = place.cpus.iter().find(|&cpu| topology.online.contains(cpu)) else {
            return Attempt::absent(Why::Offline);
        };
        if self.no_msr_driver {
            return absent(true);
        }
        let host = self.host;
        let raw = match self.registers.entry((cpu, register)).or_insert_with(|| host.msr(cpu, register)) {
            Ok(raw) => *raw,
            // /dev/cpu/N/msr is missing for an online CPU, so the driver is not loaded for any CPU.
            Err(error) if error.errno == Errno::NOENT => {
                self.no_msr_driver = true;
                return absent(true);
            }
            // EIO: the instruction faulted, so this processor has no such register (msr_read in
            // arch/x86/kernel/msr.c).
            Err(error) if error.is_absent() || error.errno == Errno::IO => return absent(false),
            Err(error) => return Attempt { reading: Err(error.clone().into()), slot: None },
        };
        let mask = crate::knob::mask(bits);
        let source = Location::Msr { cpu, register, mask };
        let reading = match parse::field(form, raw, bits) {
            // The form assumes 100 MHz per ratio. Nehalem and Westmere have 133.33 MHz, which only
            // the topology knows.
            Ok(Value::Frequency(KiloHertz(khz))) if form == Form::Ratio => {
                Ok(match topology.bus_third_khz() {
                    Some(third) => Reading::Value {
                        value: Value::Frequency(KiloHertz(khz / 100_000 * third / 3)),
                        source,
                    },
                    None => Reading::Absent(Why::NotNow(
                        "the bus clock of this processor is not known".to_owned(),
                    )),
                })
            }
            Ok(value) => Ok(Reading::Value { value, source }),
            Err(expected) => Err(ReadError::Content { source, found: format!("{raw:#x}"), expected }),
        };
        let slot = (self.to_plan && write && matches!(reading, Ok(Reading::Value { .. }))).then(|| {
            Box::new(Slot {
                location: Location::Msr { cpu, register, mask },
                // Store only the field: restoring must not write back its neighbours' old bits.
                content: Content::Text(format!("{:#x}", raw & mask)),
                form,
                shift: bits.1,
            })
        });
        Attempt { reading, slot }
    }
}

/// Reads whether the CPU of a place is in the kernel's list of online CPUs.
fn member(topology: &Topology, place: &Place) -> Reading {
    Reading::Value {
        value: Value::Switch(place.cpus.intersects(&topology.online)),
        source: Location::File(format!("{CPUS}/online")),
    }
}

fn not_text(path: &str) -> HostError {
    HostError::new(Op::Read, path, Errno::ILSEQ)
}

fn decode_file(
    topology: &Topology,
    path: String,
    form: Form,
    text: &str,
    place: &Place,
) -> Result<Reading, ReadError> {
    // Files of an offline CPU may be empty (thermal_throttle), while others answer EBUSY.
    if text.is_empty() && is_offline(topology, place) {
        return Ok(Reading::Absent(Why::Offline));
    }
    if let Some(words) = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')) {
        // cpufreq prints `<unsupported>` or `<unknown>`.
        return Ok(Reading::Absent(Why::NotNow(format!("the kernel says {words}"))));
    }
    match parse::value(form, text) {
        // Firmware that does not fill in the nominal frequency leaves 0 there.
        Ok(Value::Frequency(KiloHertz(0))) if form == Form::MHz => Ok(Reading::Absent(Why::Unset(path))),
        Ok(value) => Ok(Reading::Value { value, source: Location::File(path) }),
        Err(expected) => Err(topology::bad(&path, text, expected)),
    }
}

/// Turns the kernel's refusal to read a file into an absence or an error.
fn refused(topology: &Topology, path: String, place: &Place, error: HostError) -> Result<Reading, ReadError> {
    let why = match error.errno {
        // Any errno: cpufreq returns EBUSY, and a missing folder ENOENT. Content that is not text
        // or not allowed would stay so with CPUs online.
        _ if is_offline(topology, place) && !matches!(error.errno, Errno::ILSEQ | Errno::ACCES) => {
            Why::Offline
        }
        _ if error.is_absent() => Why::NoFile(path),
        // intel_pstate's files return this while the driver is switched off.
        Errno::AGAIN => Why::DriverOff(path),
        // The file exists, but the processor lacks the feature (uncore's ELC files, powercap's
        // constraints).
        Errno::OPNOTSUPP | Errno::NODATA => Why::Unsupported(path),
        // amd-pstate before 7.x returns this if no word names the firmware's preference.
        Errno::INVAL if path.ends_with("energy_performance_preference") => {
            Why::NotNow("the preference in force has no word (EINVAL)".to_owned())
        }
        _ => return Err(error.into()),
    };
    Ok(Reading::Absent(why))
}
