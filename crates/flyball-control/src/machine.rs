//! A machine as the knob table sees it: where each knob exists on it, and what it holds there.

use std::sync::OnceLock;

use flyball_host::{CpuList, Errno, Host, HostError, KiloHertz};

use crate::{
    At, Form, Id, Location, Mechanism, Place, ReadError, Reading, Scope, TargetError, Topology, Value, Why,
    parse,
    topology::{self, CPUS, Vendor},
};

pub(crate) mod expand;
mod instances;
mod resolve;
mod sst;

/// A machine that was looked at: its topology, and the door to read its knobs through.
///
/// [`Machine::read`] goes to the host every time; what is kept is what does not change while CPUs and drivers stay:
/// the topology, and the names of idle states, powercap zones, uncore domains and sensors. Inspect anew after a
/// change of driver mode, of SMT or of online CPUs.
pub struct Machine<'h> {
    host: &'h dyn Host,
    topology: Topology,
    instances: instances::Instances,
    no_msr_driver: OnceLock<()>,
    speed_select: OnceLock<Result<flyball_sst::layout::Layout, HostError>>,
    why_no_speed_select: OnceLock<Why>,
}

impl std::fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("host", &self.host.name()).field("topology", &self.topology).finish()
    }
}

impl<'h> Machine<'h> {
    /// Looks at the machine behind `host`.
    ///
    /// # Errors
    /// Where the topology cannot be read; see [`Topology::inspect`].
    pub fn inspect(host: &'h dyn Host) -> Result<Machine<'h>, ReadError> {
        let topology = Topology::inspect(host)?;
        Ok(Machine {
            host,
            topology,
            instances: instances::Instances::default(),
            no_msr_driver: OnceLock::new(),
            speed_select: OnceLock::new(),
            why_no_speed_select: OnceLock::new(),
        })
    }

    /// The door.
    pub fn host(&self) -> &'h dyn Host {
        self.host
    }

    /// What the machine is made of.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Every place where `knob` could exist here, in order. Empty where the machine has no such thing at all;
    /// [`Machine::why_nowhere`] says why.
    pub fn places(&self, knob: Id) -> Vec<Place> {
        self.places_of(knob.knob().scope).to_vec()
    }

    /// Every instance of `scope` here, in order.
    pub fn places_of(&self, scope: Scope) -> &[Place] {
        self.instances.places_of(scope, || self.find_places(scope))
    }

    fn find_places(&self, scope: Scope) -> Vec<Place> {
        let topology = &self.topology;
        match scope {
            Scope::Machine => vec![Place::new(At::Machine, topology.present.clone())],
            Scope::Package => topology
                .packages()
                .into_iter()
                .map(|(package, cpus)| Place::new(At::Package(package), cpus))
                .collect(),
            Scope::Die => topology
                .dies()
                .into_iter()
                .map(|((package, die), cpus)| Place::new(At::Die { package, die }, cpus))
                .collect(),
            Scope::Core => topology
                .cores()
                .into_iter()
                .map(|((package, die, core), cpus)| Place::new(At::Core { package, die, core }, cpus))
                .collect(),
            Scope::Policy => topology
                .policies
                .iter()
                .map(|policy| Place::new(At::Policy(policy.number), policy.cpus.clone()))
                .collect(),
            Scope::Cpu => topology
                .present
                .iter()
                .map(|cpu| Place::new(At::Cpu(cpu), CpuList::from_iter([cpu])))
                .collect(),
            Scope::PowerDomain => self.power_domains(),
            Scope::Clos => self.classes(),
            Scope::IdleState => self.idle_places(),
            Scope::Uncore => self.find_uncore(),
            Scope::Zone => self.find_zones(),
            Scope::Constraint => self.find_constraints(),
            Scope::Sensor => self.find_sensors(),
        }
    }

    /// The places of `knob` that govern at least one of `cpus`.
    pub fn places_on(&self, knob: Id, cpus: &CpuList) -> Vec<Place> {
        let mut places = self.places(knob);
        places.retain(|place| place.cpus.intersects(cpus));
        places
    }

    /// Why [`Machine::places`] of this knob is empty.
    pub fn why_nowhere(&self, knob: Id) -> Why {
        if let Some(vendor) = knob
            .knob()
            .vendor
            .filter(|vendor| self.topology.vendor != Vendor::Other && self.topology.vendor != *vendor)
        {
            return Why::OtherVendor(vendor);
        }
        match knob.knob().scope {
            Scope::PowerDomain | Scope::Clos => match self.speed_select() {
                Err(error) => self.why_no_speed_select(error),
                Ok(_) => Why::NotNow("no power domain has Speed Select registers".to_owned()),
            },
            Scope::Policy => Why::NoCpufreq,
            Scope::IdleState => Why::NoFile(format!("{CPUS}/cpu{}/cpuidle/state0", self.first_online())),
            Scope::Uncore => Why::NoFile(format!("{CPUS}/intel_uncore_frequency")),
            Scope::Zone | Scope::Constraint => Why::NoFile("/sys/class/powercap/intel-rapl:0".to_owned()),
            Scope::Sensor => Why::NoFile("/sys/class/hwmon/hwmon0/temp1_input".to_owned()),
            Scope::Package | Scope::Die | Scope::Core => {
                Why::NoFile(format!("{CPUS}/cpu{}/topology", self.first_online()))
            }
            Scope::Machine | Scope::Cpu => Why::NoFile(format!("{CPUS}/online")),
        }
    }

    fn first_online(&self) -> u32 {
        self.topology.online.first().unwrap_or(0)
    }

    /// Reads `knob` at `place`, by the first of its mechanisms that has it.
    ///
    /// # Errors
    /// Where something is there and cannot be read, or holds what the kernel cannot have printed.
    pub fn read(&self, knob: Id, place: &Place) -> Result<Reading, ReadError> {
        let mut absent = None;
        for mechanism in knob.knob().mechanisms {
            match self.attempt(mechanism, place)? {
                Reading::Absent(why) => {
                    absent.get_or_insert(why);
                }
                value @ Reading::Value { .. } => return Ok(value),
            }
        }
        let why = match (knob.knob().vendor, absent) {
            (Some(vendor), _) if self.topology.vendor != Vendor::Other && self.topology.vendor != vendor => {
                Why::OtherVendor(vendor)
            }
            (_, Some(why)) => why,
            (_, None) => self.why_nowhere(knob),
        };
        Ok(Reading::Absent(why))
    }

    /// The value of `knob` at `place`, where there is one.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn value(&self, knob: Id, place: &Place) -> Result<Option<Value>, ReadError> {
        Ok(match self.read(knob, place)? {
            Reading::Value { value, .. } => Some(value),
            Reading::Absent(_) => None,
        })
    }

    fn attempt(&self, mechanism: &Mechanism, place: &Place) -> Result<Reading, ReadError> {
        match *mechanism {
            Mechanism::File { path, form, .. } => {
                let Some(path) = self.expand(path, &place.at) else {
                    return Ok(Reading::Absent(Why::NoCpufreq));
                };
                self.read_file(path, form, place)
            }
            Mechanism::Msr { vendor, register, bits, form, .. } => {
                if self.topology.vendor != vendor {
                    return Ok(Reading::Absent(Why::OtherVendor(vendor)));
                }
                self.read_msr(register, bits, form, place)
            }
            Mechanism::SpeedSelect { field, form, .. } => self.read_speed_select(field, form, place),
            Mechanism::Member { path } => {
                let Some(list) = topology::read_list(self.host, path)? else {
                    return Ok(Reading::Absent(Why::NoFile(path.to_owned())));
                };
                let value = Value::Switch(place.cpus.first().is_some_and(|cpu| list.contains(cpu)));
                Ok(Reading::Value { value, source: Location::File(path.to_owned()) })
            }
        }
    }

    fn read_file(&self, path: String, form: Form, place: &Place) -> Result<Reading, ReadError> {
        let text = match self.host.read(&path) {
            Ok(text) => text,
            Err(error) => return self.refused(path, place, error),
        };
        // Files of an offline CPU answer with nothing (thermal_throttle) where others answer EBUSY.
        if text.is_empty() && self.is_offline(place) {
            return Ok(Reading::Absent(Why::Offline));
        }
        if let Some(words) = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')) {
            // cpufreq's way to say it: `<unsupported>`, `<unknown>`.
            return Ok(Reading::Absent(Why::NotNow(format!("the kernel says {words}"))));
        }
        match parse::value(form, &text) {
            // Firmware that does not fill in the nominal frequency leaves 0 there.
            Ok(Value::Frequency(KiloHertz(0))) if form == Form::MHz => Ok(Reading::Absent(Why::Unset(path))),
            Ok(value) => Ok(Reading::Value { value, source: Location::File(path) }),
            Err(expected) => Err(topology::bad(&path, &text, expected)),
        }
    }

    /// What it means that the kernel refused to read a file.
    fn refused(&self, path: String, place: &Place, error: HostError) -> Result<Reading, ReadError> {
        let why = match error.errno {
            _ if self.is_offline(place) && !matches!(error.errno, Errno::ILSEQ | Errno::ACCES) => {
                Why::Offline
            }
            _ if error.is_absent() => Why::NoFile(path),
            // intel_pstate's files while the driver is switched off.
            Errno::AGAIN => Why::DriverOff(path),
            Errno::OPNOTSUPP | Errno::NODATA => Why::Unsupported(path),
            // amd-pstate before 7.x: the firmware's preference is none that has a word.
            Errno::INVAL if path.ends_with("energy_performance_preference") => {
                Why::NotNow("the preference in force has no word (EINVAL)".to_owned())
            }
            _ => return Err(error.into()),
        };
        Ok(Reading::Absent(why))
    }

    fn is_offline(&self, place: &Place) -> bool {
        !place.cpus.is_empty() && !place.cpus.intersects(&self.topology.online)
    }

    fn read_msr(
        &self,
        register: u32,
        bits: (u8, u8),
        form: Form,
        place: &Place,
    ) -> Result<Reading, ReadError> {
        let absent = |no_driver| Ok(Reading::Absent(Why::NoRegister { register, no_driver }));
        let Some(cpu) = place.cpus.iter().find(|&cpu| self.topology.online.contains(cpu)) else {
            return Ok(Reading::Absent(Why::Offline));
        };
        if self.no_msr_driver.get().is_some() {
            return absent(true);
        }
        match self.host.msr(cpu, register) {
            Ok(raw) => {
                let source = Location::Msr { cpu, register, mask: parse::mask(bits) };
                match parse::field(form, raw, bits) {
                    Ok(Value::Frequency(KiloHertz(khz))) if form == Form::Ratio => {
                        Ok(match self.topology.bus_third_khz() {
                            Some(third) => {
                                let value = Value::Frequency(KiloHertz(khz / 100_000 * third / 3));
                                Reading::Value { value, source }
                            }
                            None => Reading::Absent(Why::NotNow(
                                "the bus clock of this processor is not known".to_owned(),
                            )),
                        })
                    }
                    Ok(value) => Ok(Reading::Value { value, source }),
                    Err(expected) => Err(ReadError::Content { source, found: format!("{raw:#x}"), expected }),
                }
            }
            Err(error) if error.errno == Errno::NOENT => {
                // /dev/cpu/N/msr is missing for an online CPU: the driver is not loaded, for any CPU.
                let _ = self.no_msr_driver.set(());
                absent(true)
            }
            Err(error) if error.is_absent() || error.errno == Errno::IO => absent(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The write that would give `knob` the value `value` at `place`, by the mechanism that a read would use: the location
    /// and its new content.
    ///
    /// # Errors
    /// Where the row is a fact, where nothing here takes the write, or where the value is of another type.
    pub fn target(&self, knob: Id, place: &Place, value: &Value) -> Result<(Location, String), TargetError> {
        let row = knob.knob();
        if row.phase.is_none() {
            return Err(TargetError::ReadOnly(row.name));
        }
        let mut why = None;
        for mechanism in row.mechanisms.iter().filter(|mechanism| mechanism.writes()) {
            let wrong = || TargetError::WrongType { knob: row.name, value: value.to_string() };
            match *mechanism {
                Mechanism::File { path, form, .. } => {
                    let Some(path) = self.expand(path, &place.at) else { continue };
                    if self.host.exists(&path) {
                        let content = parse::text(form, value).ok_or_else(wrong)?;
                        return Ok((Location::File(path), content));
                    }
                    why.get_or_insert(format!("no {path}"));
                }
                Mechanism::Msr { vendor, register, bits, form, .. } if vendor == self.topology.vendor => {
                    match self.read_msr(register, bits, form, place) {
                        Ok(Reading::Value { source: location @ Location::Msr { mask, .. }, .. }) => {
                            let text = parse::text(form, value).ok_or_else(wrong)?;
                            let raw = text.parse::<u64>().map_err(|_| wrong())?;
                            return Ok((location, format!("{:#x}", (raw << bits.1) & mask)));
                        }
                        Ok(Reading::Absent(reason)) => {
                            why.get_or_insert(reason.to_string());
                        }
                        Ok(Reading::Value { .. }) => {}
                        Err(error) => {
                            why.get_or_insert(error.to_string());
                        }
                    }
                }
                Mechanism::SpeedSelect { field, form, .. } => match self.speed_select_setting(field, place) {
                    Some(setting) => {
                        let content = parse::text(form, value).ok_or_else(wrong)?;
                        return Ok((Location::SpeedSelect(setting), content));
                    }
                    None => {
                        why.get_or_insert("this processor has no such field".to_owned());
                    }
                },
                _ => {}
            }
        }
        let why = why.unwrap_or_else(|| self.why_nowhere(knob).to_string());
        Err(TargetError::Nowhere { knob: row.name, place: place.to_string(), why })
    }
}
