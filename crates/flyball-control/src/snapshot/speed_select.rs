//! Speed Select in a snapshot: power domains and classes as places, settings as values, and the
//! properties of the levels.

use flyball_host::{CpuList, Host, HostError, isst};
use flyball_sst::{
    access::Features,
    cost,
    layout::{Domain, Layout},
    setting::{Field, Setting},
};

use super::Snapshot;
use crate::{
    At, Belongs, Content, Form, Id, Location, Place, ReadError, Reading, Scope, Topology, Value, Why, parse,
};

/// Number of classes of service.
const CLASSES: u32 = 4;

/// The knobs whose settings are checked against the properties of the levels.
pub(crate) const LEVEL_KNOBS: &[Id] = &[Id::SstLevel, Id::SstBf, Id::SstTf];

/// Speed Select as it was when the snapshot was taken.
#[derive(Debug, Clone)]
pub(super) struct SpeedSelectView {
    /// The layout, or the error of looking for it.
    pub layout: Result<Layout, HostError>,
    /// The reason why there is no Speed Select.
    pub why: Why,
    /// The levels of each domain, in the order of the layout's domains; `None` unless taken for a
    /// plan that sets one of [`LEVEL_KNOBS`], since they take some ten firmware calls per level.
    levels: Option<Vec<Vec<Option<Level>>>>,
}

/// A level of a power domain and its costs.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    /// The features that it has, and those that are on.
    pub features: Features,
    /// Gains and costs of base-freq; `None` if they cannot be determined.
    pub base_freq_cost: Option<String>,
    /// Gains and costs of turbo-freq.
    pub turbo_freq_cost: Option<String>,
    /// Gains and costs of the level itself.
    pub own_cost: Option<String>,
    /// The CPUs that it lets run.
    pub cpus: Option<CpuList>,
}

impl SpeedSelectView {
    pub(super) fn take(host: &dyn Host, topology: &Topology, with_levels: bool) -> SpeedSelectView {
        let layout = Layout::read(host);
        let why = match &layout {
            Ok(_) => Why::NotNow("no power domain has Speed Select registers".to_owned()),
            Err(error) => why_none(host, topology, error),
        };
        let domains = layout.iter().flat_map(|layout| &layout.domains);
        let of_domain = |domain| layout.as_ref().map_or_else(|_| Vec::new(), |it| levels(host, it, domain));
        // Reading a level takes some ten round trips to firmware. Only a plan about levels needs
        // them.
        let levels = with_levels.then(|| domains.map(of_domain).collect());
        SpeedSelectView { layout, why, levels }
    }
}

/// Reads the levels of a domain. Reads a feature only at levels that have it: at others, firmware
/// returns errors at best.
fn levels(host: &dyn Host, layout: &Layout, domain: &Domain) -> Vec<Option<Level>> {
    let access = layout.access(host);
    let access = access.as_ref();
    // If a domain does not answer, its levels are unknown. The plan continues with the others.
    let Ok(levels) = access.levels(&domain.place) else { return Vec::new() };
    let level = |level: u8| {
        let features = access.features(&domain.place, level).ok()?;
        let base_freq_cost =
            features.base_freq.then(|| cost::base_freq(layout, access, domain, level)).flatten();
        let turbo_freq_cost = features.turbo_freq.then(|| cost::turbo_freq(access, domain, level)).flatten();
        Some(Level {
            features,
            base_freq_cost,
            turbo_freq_cost,
            own_cost: cost::level(layout, access, domain, level),
            cpus: cost::cpus_of_level(layout, access, domain, level),
        })
    };
    (0..=levels.highest).map(level).collect()
}

/// Returns why there is no Speed Select, briefly if the processor never has it.
fn why_none(host: &dyn Host, topology: &Topology, error: &HostError) -> Why {
    // Explain it if the model should have the interface, or the interface returns an error.
    let known = topology.model.and_then(isst::module_for).is_some();
    if known || (error.path == isst::NODE && !error.is_absent()) {
        let processor = isst::Processor {
            vendor: topology.vendor,
            family: topology.family,
            model: topology.model,
            stepping: topology.stepping,
            name: topology.model_name.as_deref(),
        };
        Why::NotNow(isst::explain_on(&host.kind(), processor, error))
    } else {
        Why::NoFile(isst::NODE.to_owned())
    }
}

impl Snapshot {
    /// Returns the layout of Speed Select here; `None` if it was not requested.
    pub fn speed_select(&self) -> Option<Result<&Layout, &HostError>> {
        self.speed_select.as_ref().map(|view| view.layout.as_ref())
    }

    pub(super) fn layout(&self) -> Option<&Layout> {
        self.speed_select.as_ref()?.layout.as_ref().ok()
    }

    pub(super) fn power_domains(&self) -> Vec<Place> {
        let Some(layout) = self.layout() else { return Vec::new() };
        layout.domains.iter().map(|domain| self.place_of(domain)).collect()
    }

    /// Returns the place of a domain. A domain without CPUs belongs to an I/O die.
    fn place_of(&self, domain: &Domain) -> Place {
        if !domain.cpus.is_empty() {
            return Place::new(at(domain), domain.cpus.clone());
        }
        let package = self.topology.packages().remove(&domain.place.package.into()).unwrap_or_default();
        // If the power unit's numbers cannot be read, no domain's CPUs are known, so each domain
        // covers its whole package.
        let unknown = self.layout().is_some_and(|layout| layout.map.unplaced);
        let belongs = if unknown { Belongs::ToAll } else { Belongs::ToPackage };
        Place::new(at(domain), package).belonging(belongs)
    }

    pub(super) fn classes(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for place in self.power_domains() {
            let At::PowerDomain { package, die, domain } = place.at else { continue };
            for class in 0..CLASSES {
                let at = At::Clos { package, die, domain, class };
                let class = Place::named(at, class.to_string(), place.cpus.clone());
                places.push(class.belonging(place.belongs));
            }
        }
        places
    }

    pub(crate) fn domain_at(&self, place: &At) -> Option<&Domain> {
        let layout = self.layout()?;
        layout.domains.get(self.domain_index(place)?)
    }

    fn domain_index(&self, place: &At) -> Option<usize> {
        let wanted = match place {
            At::PowerDomain { package, die, domain } | At::Clos { package, die, domain, .. } => {
                (*package, *die, *domain)
            }
            _ => return None,
        };
        self.layout()?.domains.iter().position(|domain| {
            (u32::from(domain.place.package), domain.die, u32::from(domain.place.domain)) == wanted
        })
    }

    /// Returns the levels of a power domain, by number; `None` for a number that is not a level.
    ///
    /// # Errors
    /// The snapshot was taken without the levels.
    pub(crate) fn levels_at(&self, place: &At) -> Result<&[Option<Level>], ReadError> {
        let levels = self.speed_select.as_ref().and_then(|view| view.levels.as_ref());
        let levels = levels.ok_or(ReadError::NotTaken(Id::SstLevel))?;
        Ok(self
            .domain_index(place)
            .and_then(|index| levels.get(index))
            .map(Vec::as_slice)
            .unwrap_or_default())
    }

    pub(crate) fn power_domain_places(&self) -> &[Place] {
        self.places_in(Scope::PowerDomain)
    }

    /// Returns the setting behind a row at a place.
    pub(crate) fn speed_select_setting(&self, field: Field, place: &Place) -> Option<Setting> {
        let layout = self.layout()?;
        let class = match place.at {
            At::Clos { class, .. } => u8::try_from(class).ok()?,
            _ => 0,
        };
        let field = match field {
            Field::ClosMin(_) => Field::ClosMin(class),
            Field::ClosMax(_) => Field::ClosMax(class),
            Field::ClosWeight(_) => Field::ClosWeight(class),
            // Only the mailbox's class word has this field.
            Field::ClosEpp(_) if layout.platform.is_tpmi() => return None,
            Field::ClosEpp(_) => Field::ClosEpp(class),
            Field::Class(_) => return layout.class_setting(place.cpus.first()?),
            Field::TurboLimits => {
                // The ratios are MSR 0x1AD, which is read and written on a CPU.
                let cpu = place.cpus.intersection(&self.topology.online).first()?;
                let mut domain = layout.domain_of(cpu)?.place;
                domain.cpu = Some(cpu);
                return Some(layout.setting(domain, Field::TurboLimits));
            }
            of_domain => of_domain,
        };
        Some(layout.setting(self.domain_at(&place.at)?.place, field))
    }

    /// Reads a setting: its value, its location and its content.
    pub(super) fn read_speed_select(
        &self,
        host: &dyn Host,
        field: Field,
        form: Form,
        place: &Place,
    ) -> (Result<Reading, ReadError>, Option<(Setting, Content)>) {
        let absent = |why| Ok(Reading::Absent(why));
        if let Some(SpeedSelectView { layout: Err(_), why, .. }) = &self.speed_select {
            return (absent(why.clone()), None);
        }
        let Some(setting) = self.speed_select_setting(field, place) else {
            let why = if self.is_offline(place) {
                Why::Offline
            } else {
                Why::NotNow("this processor has no such field".to_owned())
            };
            return (absent(why), None);
        };
        let read = match self.layout() {
            Some(layout) => layout.read_setting(host, &setting),
            None => setting.read(host),
        };
        let content = match &read {
            Ok(text) => Content::Text(text.clone()),
            Err(error) => Content::Unreadable(error.errno.0),
        };
        let reading = match &read {
            Ok(text) => {
                // A mailbox processor has two switches. Only the classes' own switch counts.
                let text = match text.as_str() {
                    "qos-only" => "1",
                    "pm-only" => "0",
                    // In both cases no CPU is set apart. Only restoring needs the difference.
                    "ready" => "none",
                    text => text,
                };
                let source = Location::SpeedSelect(setting);
                match parse::value(form, text) {
                    Ok(value) => Ok(Reading::Value { value, source }),
                    Err(expected) => Err(ReadError::Content { source, found: text.to_owned(), expected }),
                }
            }
            Err(_) if self.is_offline(place) => absent(Why::Offline),
            // Firmware may refuse one request and answer others.
            Err(error) => absent(Why::NotNow(error.to_string())),
        };
        (reading, Some((setting, content)))
    }

    /// Returns the frequency that a class register holds for `value`, if it differs: whole hundreds
    /// of MHz.
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
