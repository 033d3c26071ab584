//! Finds the side effects of a write on other locations.
//!
//! A write changes more than its own file: a governor change resets the energy preference and
//! discards the old governor's tunables, a driver switch recreates every policy, a CPU that goes
//! offline takes its policy along. To restore *exactly*, flyball saves everything that a write may
//! disturb, not only the written location. The written knob's row lists the disturbed settings
//! (`disturbs`); this module finds their files on this machine.

use std::collections::{BTreeMap, BTreeSet};

use flyball_host::{
    CpuList, Errno, Host,
    topology::{CPUS, POLICIES},
};
use flyball_sst::setting::{Field, Setting};

use crate::{
    Id, Location, Mechanism,
    knob::Disturbs,
    knob::subject::{AuxiliaryId, Subject},
    table::pattern::{Captures, Listing, captures, patiently},
};

/// Locations and the settings that they hold.
pub type Footprint = BTreeMap<Location, Subject>;

/// Finds the locations that a write disturbs, and caches directory listings.
pub struct Footprints<'h> {
    host: &'h dyn Host,
    listing: Listing<'h>,
    policies_of: Option<BTreeMap<u32, u32>>,
    /// The profiles of devices that amd-pstate registered for a policy's dynamic preference.
    profiles_of: Option<BTreeMap<String, String>>,
    /// Interrupts that are restricted to some CPUs, with those CPUs.
    pinned: Option<Vec<(String, CpuList)>>,
    /// Settings that were already searched for everywhere. One search is enough, however many CPUs
    /// are written.
    everywhere: BTreeSet<Subject>,
    found: Footprint,
}

/// The placeholder values in the path of the written location, if its pattern has any.
struct WrittenPlace {
    captures: Captures,
    setting: Option<Setting>,
}

impl WrittenPlace {
    fn number(&self, name: &str) -> Option<u32> {
        self.captures.iter().find(|(known, _)| *known == name)?.1.parse().ok()
    }
}

impl<'h> Footprints<'h> {
    /// Creates a search on the machine behind `host`, as it is now.
    pub fn new(host: &'h dyn Host) -> Footprints<'h> {
        Footprints {
            host,
            listing: Listing::new(host),
            policies_of: None,
            profiles_of: None,
            pinned: None,
            everywhere: BTreeSet::new(),
            found: Footprint::new(),
        }
    }

    /// Returns everything that was found.
    pub fn found(self) -> Footprint {
        self.found
    }

    /// Adds the existing locations that may change when `location` is written, including
    /// `location`.
    pub fn add(&mut self, location: &Location, subject: Subject) {
        self.found.insert(location.clone(), subject);
        if let (Location::File(path), Subject::Knob(Id::Epp)) = (location, subject) {
            self.profile_of(path);
        }
        let here = match location {
            Location::File(path) => {
                // A path from another flyball's journal may fit no pattern. Then its neighbours are
                // unknown.
                let captures = subject.files().find_map(|file| captures(file, path)).unwrap_or_default();
                WrittenPlace { captures, setting: None }
            }
            Location::SpeedSelect(setting) => {
                WrittenPlace { captures: Captures::new(), setting: Some(*setting) }
            }
            Location::Msr { cpu, .. } => {
                WrittenPlace { captures: vec![("cpu", cpu.to_string())], setting: None }
            }
            // Creating or removing the group moves tasks, which cannot be restored one by one, but
            // disturbs no setting. The effects of a user's command are unknown.
            Location::Partition(_) | Location::Command(_) => return,
        };
        for disturbs in subject.writing().map_or(&[][..], |writing| writing.disturbs) {
            match disturbs {
                Disturbs::Here(subjects) => {
                    for subject in *subjects {
                        self.here(*subject, &here);
                    }
                }
                Disturbs::Everywhere(subjects) => {
                    for subject in *subjects {
                        self.everywhere(*subject);
                    }
                }
                Disturbs::PinnedInterrupts => self.interrupts(here.number("cpu")),
            }
        }
    }

    fn take(&mut self, path: String, subject: Subject) {
        // A file that cannot be written cannot be restored either: saving it would only fail later.
        if self.host.writable(&path) {
            if subject == Subject::Knob(Id::Epp) {
                self.profile_of(&path);
            }
            self.found.insert(Location::File(path), subject);
        }
    }

    /// Adds the profile that a dynamic preference follows. Its device disappears with the
    /// preference, and starts balanced when it returns (store_energy_performance_preference in
    /// amd-pstate.c).
    fn profile_of(&mut self, preference: &str) {
        let subject = Subject::Knob(Id::DeviceProfile);
        if self.profiles_of.is_none() {
            let paths = subject.files().flat_map(|file| self.listing.paths(file, &[])).collect::<Vec<_>>();
            let named = paths.into_iter().filter_map(|path| {
                let name = self.host.read(&format!("{}/name", path.strip_suffix("/profile")?)).ok()?;
                Some((name.trim().strip_prefix("amd-pstate-epp-cpu")?.to_owned(), path))
            });
            self.profiles_of = Some(named.collect());
        }
        let captures = Subject::Knob(Id::Epp).files().find_map(|file| captures(file, preference));
        let policy = captures.and_then(|found| found.into_iter().find(|(name, _)| *name == "policy"));
        let known = self.profiles_of.as_ref().zip(policy).and_then(|(known, (_, policy))| known.get(&policy));
        if let Some(path) = known.cloned() {
            self.take(path, subject);
        }
    }

    /// Adds the locations of `subject` that share a CPU, or a power domain, with the written
    /// location.
    fn here(&mut self, subject: Subject, here: &WrittenPlace) {
        if let Some(setting) = here.setting {
            for field in fields(subject) {
                // The turbo ratio limits are a register, which only a domain with CPUs can reach.
                if field != Field::TurboLimits || setting.place.cpu.is_some() {
                    self.found.insert(Location::SpeedSelect(Setting { field, ..setting }), subject);
                }
            }
            return;
        }
        for file in subject.files() {
            let fixed: Vec<Vec<(&str, String)>> = if file.contains("{policy}") {
                // A write below cpuN/ may disturb its policy, and vice versa, so find each from the
                // other.
                let policy = here.number("policy").or_else(|| self.policy_of(here.number("cpu")?));
                policy.into_iter().map(|policy| vec![("policy", policy.to_string())]).collect()
            } else {
                let cpus = match (here.number("cpu"), here.number("policy")) {
                    (Some(cpu), _) => CpuList::from_iter([cpu]),
                    (None, Some(policy)) => self.cpus_of(policy),
                    (None, None) => CpuList::new(),
                };
                cpus.iter().map(|cpu| vec![("cpu", cpu.to_string())]).collect()
            };
            for fixed in fixed {
                for path in self.listing.paths(file, &fixed) {
                    self.take(path, subject);
                }
            }
        }
    }

    /// Adds every location of `subject`.
    fn everywhere(&mut self, subject: Subject) {
        if !self.everywhere.insert(subject) {
            return;
        }
        for file in subject.files() {
            for path in self.listing.paths(file, &[]) {
                self.take(path, subject);
            }
        }
    }

    /// Returns the CPUs of a policy, including offline ones.
    fn cpus_of(&self, policy: u32) -> CpuList {
        let path = format!("{POLICIES}/policy{policy}/related_cpus");
        let cpus = match self.host.read(&path) {
            // A policy without CPUs answers so. Retrying with pauses would cost time for each of
            // them.
            Err(error) if error.errno == Errno::BUSY => self.host.read(&path).unwrap_or_default(),
            Err(_) => patiently(self.host, || self.host.read(&path)).unwrap_or_default(),
            Ok(cpus) => cpus,
        };
        CpuList::from_words(&cpus).unwrap_or_default()
    }

    /// Returns the number of a CPU's policy. It does not go through cpuN/cpufreq, because one file
    /// must have only one location. The first call reads all policies, since there may be hundreds
    /// of policies and CPUs.
    fn policy_of(&mut self, cpu: u32) -> Option<u32> {
        if self.policies_of.is_none() {
            let names = self.listing.names(POLICIES).to_vec();
            let mut found = BTreeMap::new();
            for policy in names.iter().filter_map(|name| name.strip_prefix("policy")?.parse().ok()) {
                found.extend(self.cpus_of(policy).iter().map(|cpu| (cpu, policy)));
                // The kernel refuses to read an offline policy's files. The policy has the number
                // of one of its CPUs.
                found.entry(policy).or_insert(policy);
            }
            self.policies_of = Some(found);
        }
        self.policies_of.as_ref()?.get(&cpu).copied()
    }

    /// Adds interrupts that are restricted to some CPUs: those that may use `cpu`, or all if it is
    /// `None`. An offline CPU serves none.
    fn interrupts(&mut self, cpu: Option<u32>) {
        let online = patiently(self.host, || self.host.read(&format!("{CPUS}/online")));
        // If the list cannot be read, every interrupt may be affected, so treat all as restricted.
        let online: CpuList =
            online.ok().and_then(|list| list.parse().ok()).unwrap_or_else(|| cpu.into_iter().collect());
        if cpu.is_some_and(|cpu| !online.contains(cpu)) {
            return;
        }
        let subject = Subject::Auxiliary(AuxiliaryId::Interrupt);
        if self.pinned.is_none() {
            let mut pinned = Vec::new();
            for path in subject.files().flat_map(|file| self.listing.paths(file, &[])).collect::<Vec<_>>() {
                let allowed = patiently(self.host, || self.host.read(&path)).ok();
                let allowed = allowed.and_then(|text| text.parse::<CpuList>().ok());
                if let Some(allowed) = allowed.filter(|allowed| !online.is_subset(allowed)) {
                    pinned.push((path, allowed));
                }
            }
            self.pinned = Some(pinned);
        }
        let pinned = self.pinned.iter().flatten();
        let concerned = pinned.filter(|(_, allowed)| cpu.is_none_or(|cpu| allowed.contains(cpu)));
        for path in concerned.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            self.take(path, subject);
        }
    }
}

/// Returns the fields of a power domain that hold a knob.
fn fields(subject: Subject) -> impl Iterator<Item = Field> {
    let mechanisms: &[Mechanism] = match subject {
        Subject::Knob(id) => id.knob().mechanisms,
        Subject::Auxiliary(_) => &[],
    };
    mechanisms.iter().filter_map(|mechanism| match mechanism {
        Mechanism::SpeedSelect { field, .. } if field.is_of_domain() => Some(*field),
        _ => None,
    })
}
