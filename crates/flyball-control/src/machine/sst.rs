//! Speed Select as a machine's knobs: its power domains and classes as places, its settings as values.

use flyball_host::{CpuList, HostError, isst};
use flyball_sst::{
    layout::{Domain, Layout},
    setting::{Field, Setting},
};

use crate::{At, Form, Location, Machine, Place, ReadError, Reading, Value, Why, knob::SpeedSelect, parse};

/// How many classes of service there are.
const CLASSES: u32 = 4;

impl Machine<'_> {
    /// Where Speed Select is here.
    ///
    /// # Errors
    /// What the driver answered, or that there is none.
    pub fn speed_select(&self) -> Result<&Layout, &HostError> {
        self.speed_select.get_or_init(|| Layout::read(self.host())).as_ref()
    }

    pub(super) fn power_domains(&self) -> Vec<Place> {
        let Ok(layout) = self.speed_select() else { return Vec::new() };
        layout.domains.iter().map(|domain| Place::new(at(domain), self.cpus_of(domain))).collect()
    }

    /// A domain without CPUs serves its package.
    fn cpus_of(&self, domain: &Domain) -> CpuList {
        if !domain.cpus.is_empty() {
            return domain.cpus.clone();
        }
        self.topology().packages().remove(&domain.place.package.into()).unwrap_or_default()
    }

    pub(super) fn classes(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for place in self.places_of(crate::Scope::PowerDomain) {
            let At::PowerDomain { package, die, domain } = place.at else { continue };
            for class in 0..CLASSES {
                let at = At::Clos { package, die, domain, class };
                places.push(Place::named(at, class.to_string(), place.cpus.clone()));
            }
        }
        places
    }

    /// The domain of a place.
    pub(crate) fn domain_at(&self, place: &At) -> Option<&Domain> {
        let (wanted_package, wanted_die, wanted_domain) = match place {
            At::PowerDomain { package, die, domain } | At::Clos { package, die, domain, .. } => {
                (*package, *die, *domain)
            }
            _ => return None,
        };
        self.speed_select().ok()?.domains.iter().find(|domain| {
            (u32::from(domain.place.package), domain.die, u32::from(domain.place.domain))
                == (wanted_package, wanted_die, wanted_domain)
        })
    }

    /// The setting behind a row at a place.
    pub(crate) fn speed_select_setting(&self, field: SpeedSelect, place: &Place) -> Option<Setting> {
        let layout = self.speed_select().ok()?;
        let class = match place.at {
            At::Clos { class, .. } => u8::try_from(class).ok()?,
            _ => 0,
        };
        let field = match field {
            SpeedSelect::Level => Field::Level,
            SpeedSelect::BaseFreq => Field::BaseFreq,
            SpeedSelect::TurboFreq => Field::TurboFreq,
            SpeedSelect::CorePower => Field::CorePower,
            SpeedSelect::Priority => Field::Priority,
            SpeedSelect::ClosMin => Field::ClosMin(class),
            SpeedSelect::ClosMax => Field::ClosMax(class),
            SpeedSelect::ClosWeight => Field::ClosWeight(class),
            // A field of the mailbox's class word alone.
            SpeedSelect::ClosEpp if layout.platform.is_tpmi() => return None,
            SpeedSelect::ClosEpp => Field::ClosEpp(class),
            SpeedSelect::Apart => Field::Apart,
            SpeedSelect::Highest => Field::Highest,
            SpeedSelect::Locked => Field::Locked,
            SpeedSelect::Class => return layout.class_setting(place.cpus.first()?),
            SpeedSelect::TurboLimits => {
                let cpu = place.cpus.intersection(&self.topology().online).first()?;
                let mut domain = layout.domain_of(cpu)?.place;
                domain.cpu = Some(cpu);
                return Some(layout.setting(domain, Field::TurboLimits));
            }
        };
        Some(layout.setting(self.domain_at(&place.at)?.place, field))
    }

    pub(super) fn read_speed_select(
        &self,
        field: SpeedSelect,
        form: Form,
        place: &Place,
    ) -> Result<Reading, ReadError> {
        if let Err(error) = self.speed_select() {
            return Ok(Reading::Absent(self.why_no_speed_select(error)));
        }
        let Some(setting) = self.speed_select_setting(field, place) else {
            let why = if self.is_offline(place) {
                Why::Offline
            } else {
                Why::NotNow("this processor has no such field".to_owned())
            };
            return Ok(Reading::Absent(why));
        };
        match setting.read(self.host()) {
            Ok(text) => {
                // A mailbox part has two switches; the classes' own is the one that counts.
                let text = match text.as_str() {
                    "qos-only" => "1",
                    "pm-only" => "0",
                    // None apart either way; only restoring needs to tell them from each other.
                    "ready" => "none",
                    text => text,
                };
                let source = Location::SpeedSelect(setting);
                match parse::value(form, text) {
                    Ok(value) => Ok(Reading::Value { value, source }),
                    Err(expected) => Err(ReadError::Content { source, found: text.to_owned(), expected }),
                }
            }
            Err(_) if self.is_offline(place) => Ok(Reading::Absent(Why::Offline)),
            Err(error) => Ok(Reading::Absent(Why::NotNow(error.to_string()))),
        }
    }

    /// Why there is no Speed Select, in as few words as will do where the processor is not of the kind. Found out once:
    /// the explanation reads /proc/cpuinfo, a megabyte on a large machine, and every row and place asks for it.
    pub(super) fn why_no_speed_select(&self, error: &HostError) -> Why {
        let find_out = || {
            if error.path == isst::NODE && !error.is_absent() {
                return Why::NotNow(isst::explain(self.host(), error));
            }
            let known = self.topology().model.and_then(isst::module_for).is_some();
            if known {
                Why::NotNow(isst::explain(self.host(), error))
            } else {
                Why::NoFile(isst::NODE.to_owned())
            }
        };
        self.why_no_speed_select.get_or_init(find_out).clone()
    }

    /// The value that a frequency becomes in a class register, where it is another: cut to whole hundreds of MHz.
    pub(crate) fn cut_to_ratio(value: &Value) -> Option<Value> {
        let frequency = value.frequency()?;
        let cut = frequency.0 / 100_000 * 100_000;
        (cut != frequency.0).then_some(Value::Frequency(flyball_host::KiloHertz(cut)))
    }
}

fn at(domain: &Domain) -> At {
    At::PowerDomain {
        package: domain.place.package.into(),
        die: domain.die,
        domain: domain.place.domain.into(),
    }
}
