//! The state of Speed Select's firmware: level, features and classes of service of each power
//! domain, and the resulting limits of a core. sst.rs has the registers through which drivers reach
//! it.

use crate::spec::{MachineSpec, SstClass, SstLevelSpec, SstSpec};
use crate::topology::Topology;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassOfService {
    /// Energy preference, 0 to 15; stored without effect.
    pub epp: u8,
    /// Proportional weight, from 0 (most) to 15 (least).
    pub weight: u8,
    pub min: u8,
    /// Highest ratio; 0xff for none.
    pub max: u8,
    /// Desired ratio; stored without effect.
    pub desired: u8,
}

impl Default for ClassOfService {
    fn default() -> Self {
        ClassOfService { epp: 0, weight: 0, min: 0, max: 0xff, desired: 0 }
    }
}

impl ClassOfService {
    /// The word of the mailbox and of the memory-mapped register: 3:0 preference, 7:4 weight, 15:8
    /// min, 23:16 max, 31:24 desired.
    pub fn word(self) -> u32 {
        u32::from(self.epp & 15)
            | u32::from(self.weight & 15) << 4
            | u32::from(self.min) << 8
            | u32::from(self.max) << 16
            | u32::from(self.desired) << 24
    }

    /// See [`word`](Self::word).
    pub fn from_word(w: u32) -> ClassOfService {
        ClassOfService {
            epp: w as u8 & 15,
            weight: (w >> 4) as u8 & 15,
            min: (w >> 8) as u8,
            max: (w >> 16) as u8,
            desired: (w >> 24) as u8,
        }
    }
}

/// The settings of one power domain.
#[expect(clippy::struct_excessive_bools, reason = "independent switches and log bits of the hardware")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SstDomain {
    /// Index into the levels in the machine's file.
    pub(crate) at: usize,
    pub base_freq: bool,
    pub turbo_freq: bool,
    /// True if classes of service are on.
    pub core_power: bool,
    /// True for ordered throttling, false for proportional.
    pub ordered: bool,
    /// The power-management configuration's core-power switch (mailbox 95/03).
    pub pm_core_power: bool,
    /// The four classes.
    pub classes: [ClassOfService; 4],
    /// The class of each core of the domain.
    pub class_of: Vec<u8>,
    /// Error field of the TPMI status register: set after a rejected change of level.
    pub(crate) error: u8,
    /// Error bits of the TPMI status register, three per feature: set after a rejected change.
    pub(crate) feature_error: u8,
}

/// Why the firmware refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The level does not exist, it lacks the feature, or a number is out of range.
    Absent,
    /// Levels are locked, or another feature's state forbids it.
    NotAllowed,
}

/// All power domains of a machine. Numbers within a package are in TPMI's order: dies first.
#[derive(Clone, Debug)]
pub(crate) struct SstState {
    pub spec: SstSpec,
    pub domains: Vec<SstDomain>,
    /// Domain of each core, and the core's number in its domain.
    pub of_core: Vec<(usize, usize)>,
    per_package: usize,
    /// True if levels cannot be changed.
    pub locked: bool,
    /// True if the firmware is faulty and rejects all changes.
    pub refuses: bool,
    pub bus_khz: u32,
    max_khz: u32,
    min_khz: u32,
}

impl SstState {
    pub(crate) fn new(machine: &MachineSpec, spec: &SstSpec, topology: &Topology) -> SstState {
        let by_die = spec.class == SstClass::Tpmi;
        let dies = if by_die { topology.dies() as usize } else { 1 };
        // IO dies come after the compute dies in a package, and some parts give them no Speed
        // Select registers.
        let io = if by_die && spec.io_registers { spec.io_domains as usize } else { 0 };
        let per_package = dies + io;
        let module = spec.cores_per_module.max(1);
        let of_core: Vec<(usize, usize)> = (0..topology.cores())
            // Classes belong to the units that the power unit counts: cores, or modules of small
            // cores.
            .map(|c| {
                let p = topology.core(c);
                if by_die {
                    (p.package * per_package + p.die as usize, (p.unit / module) as usize)
                } else {
                    (p.package, (p.unit / module) as usize)
                }
            })
            .collect();
        let cores = |number: usize| {
            of_core.iter().filter(|place| place.0 == number).map(|place| place.1 + 1).max().unwrap_or(0)
        };
        let domain = |number: usize| SstDomain {
            at: 0,
            base_freq: false,
            turbo_freq: false,
            core_power: false,
            ordered: false,
            pm_core_power: false,
            classes: [ClassOfService::default(); 4],
            class_of: vec![0; cores(number)],
            error: 0,
            feature_error: 0,
        };
        SstState {
            spec: spec.clone(),
            domains: (0..topology.packages() * per_package).map(domain).collect(),
            of_core,
            per_package,
            locked: spec.locked,
            refuses: false,
            bus_khz: machine.clock.bus_khz,
            max_khz: machine.core[0].max_mhz * 1000,
            min_khz: machine.core[0].min_mhz * 1000,
        }
    }

    pub(crate) fn levels(&self, domain: usize) -> &[SstLevelSpec] {
        self.spec.domain.get(domain).map_or(&self.spec.level, |own| &own.level)
    }

    pub(crate) fn level(&self, domain: usize) -> &SstLevelSpec {
        let levels = self.levels(domain);
        &levels[self.domains[domain].at.min(levels.len() - 1)]
    }

    pub(crate) fn level_numbered(&self, domain: usize, number: u32) -> Option<&SstLevelSpec> {
        self.levels(domain).iter().find(|l| l.number == number)
    }

    /// The guaranteed frequency of a core in kHz.
    pub(crate) fn guaranteed(&self, core: usize) -> u32 {
        let (d, i) = self.of_core[core];
        let level = self.level(d);
        let mhz = match &level.bf {
            Some(b) if self.domains[d].base_freq => {
                if b.cores.contains(&(i as u32)) {
                    b.high_mhz
                } else {
                    b.low_mhz
                }
            }
            _ => level.base_mhz,
        };
        mhz * 1000
    }

    /// The highest frequency that a core's class allows.
    pub(crate) fn class_max(&self, core: usize) -> u32 {
        let (d, i) = self.of_core[core];
        let dom = &self.domains[d];
        if !dom.core_power {
            return u32::MAX;
        }
        match dom.classes[dom.class_of[i] as usize & 3].max {
            0xff => u32::MAX,
            ratio => u32::from(ratio) * self.bus_khz,
        }
    }

    /// The turbo limit of a core under turbo-freq, which replaces `plain`. Classes 0 and 1 have
    /// high priority.
    pub(crate) fn turbo_limit(&self, core: usize, license: usize, plain: u32) -> u32 {
        let (d, i) = self.of_core[core];
        let dom = &self.domains[d];
        if !dom.turbo_freq || !dom.core_power {
            return plain;
        }
        let Some(tf) = &self.level(d).tf else { return plain };
        let high = |c: u8| c & 3 <= 1;
        if high(dom.class_of[i]) {
            let count = dom.class_of.iter().filter(|&&c| high(c)).count() as u32;
            let list = tf.high_mhz.get(license).or(tf.high_mhz.last());
            let bucket =
                tf.bucket_cores.iter().position(|&n| count <= n).and_then(|b| list.and_then(|l| l.get(b)));
            // The buckets have no room for this many high-priority cores: they get the plain limit.
            bucket.map_or(plain, |&mhz| mhz * 1000)
        } else {
            let clip = tf.clip_mhz.get(license).or(tf.clip_mhz.last());
            clip.map_or(plain, |&mhz| plain.min(mhz * 1000))
        }
    }

    /// Returns the share of the frequency range that a core of its class keeps under a power limit
    /// that leaves the share `room`. Ordered: class 3 is cut first, down to its minimum, then 2, 1
    /// and 0. Proportional: each class keeps its minimum, and the part above it shrinks, faster
    /// with a higher weight number.
    pub(crate) fn room(&self, core: usize, room: f64) -> f64 {
        let (d, i) = self.of_core[core];
        let dom = &self.domains[d];
        if !dom.core_power {
            return room;
        }
        let class = dom.class_of[i] as usize & 3;
        let range = f64::from(self.max_khz - self.min_khz).max(1.0);
        let floor =
            f64::from((u32::from(dom.classes[class].min) * self.bus_khz).saturating_sub(self.min_khz))
                / range;
        let share = if dom.ordered {
            // The four classes are cut in turn, each by a quarter of the savings.
            let depth = (1.0 - room) * 4.0;
            1.0 - (depth - (3 - class) as f64).clamp(0.0, 1.0)
        } else {
            let weight = 1.0 + f64::from(dom.classes[class].weight & 15) / 5.0;
            (1.0 - (1.0 - room) * weight).clamp(0.0, 1.0)
        };
        // A class's minimum is cut only if nothing else is left to cut.
        let floor = floor.min(1.0) * if room < 0.1 { room * 10.0 } else { 1.0 };
        if share > floor { share } else { floor }
    }

    /// Design power of the package's level; `None` at the first level or with several domains.
    pub(crate) fn package_tdp(&self, package: usize) -> Option<f64> {
        let d = package * self.per_package;
        // With several domains, a single level does not determine the package's power.
        (self.domains[d].at != 0 && self.per_package == 1).then(|| f64::from(self.level(d).tdp_w))
    }

    /// The level's turbo limits (active cores, kHz) for a kind of code other than plain.
    pub(crate) fn level_turbo(&self, package: usize, license: usize) -> Option<Vec<(u32, u32)>> {
        let level = self.level(package * self.per_package);
        let list = level.trl_mhz.get(license)?;
        Some(level.bucket_cores.iter().zip(list).map(|(&n, &mhz)| (n, mhz * 1000)).collect())
    }

    /// Number of domains per package.
    pub(crate) fn per_package(&self) -> usize {
        self.per_package
    }

    /// Changes a domain's level, which disables base-freq and turbo-freq. Setting the current level
    /// again has that effect too.
    ///
    /// # Errors
    /// The level does not exist, or levels are locked.
    pub(crate) fn set_level(&mut self, domain: usize, number: u32) -> Result<(), Refusal> {
        let at = self.levels(domain).iter().position(|l| l.number == number).ok_or(Refusal::Absent)?;
        if self.locked {
            return Err(Refusal::NotAllowed);
        }
        let d = &mut self.domains[domain];
        d.at = at;
        // Base-freq and turbo-freq belong to a level, so firmware disables them with it.
        d.base_freq = false;
        d.turbo_freq = false;
        Ok(())
    }

    /// Turns base-freq on or off.
    ///
    /// # Errors
    /// The level does not have it.
    pub(crate) fn set_base_freq(&mut self, domain: usize, on: bool) -> Result<(), Refusal> {
        if on && self.level(domain).bf.is_none() {
            return Err(Refusal::Absent);
        }
        self.domains[domain].base_freq = on;
        Ok(())
    }

    /// Turns turbo-freq on or off.
    ///
    /// # Errors
    /// The level does not have it, or classes of service, which it requires, are off.
    pub(crate) fn set_turbo_freq(&mut self, domain: usize, on: bool) -> Result<(), Refusal> {
        if on && self.level(domain).tf.is_none() {
            return Err(Refusal::Absent);
        }
        let d = &mut self.domains[domain];
        if on && !d.core_power {
            return Err(Refusal::NotAllowed);
        }
        d.turbo_freq = on;
        Ok(())
    }

    /// Turns classes of service on or off, with ordered or proportional priority.
    ///
    /// # Errors
    /// There are none, or turbo-freq is on, which requires them.
    pub(crate) fn set_core_power(&mut self, domain: usize, on: bool, ordered: bool) -> Result<(), Refusal> {
        if on && !self.spec.core_power {
            return Err(Refusal::Absent);
        }
        let d = &mut self.domains[domain];
        // Turbo-freq identifies high-priority cores by their class, so it needs classes.
        if !on && d.turbo_freq {
            return Err(Refusal::NotAllowed);
        }
        d.core_power = on;
        d.ordered = ordered;
        Ok(())
    }
}
