//! Subcommands of `flyball sst` that read: collect data, then print a table or JSON.

use flyball_host::{CpuList, MegaHertz, isst, msr::cores_per_turbo_count};
use flyball_sst::{
    access::{Access, Levels},
    layout::Domain,
    model::{self, Turbo},
    setting::{Field, Via},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::Session;
use crate::{
    exit::{Exit, Failure},
    output::Document,
    paint::{Columns, Paint},
};

fn table(head: &[&str]) -> Columns {
    let mut table = Columns::new();
    table.heading(head.iter().copied());
    table
}

fn name(domain: &Domain) -> String {
    format!("{}:{}", domain.place.package, domain.place.domain)
}

/// Formats the CPUs of a domain. A domain without CPUs is an IO die, unless the domains' CPUs are
/// not known.
fn list(session: &Session<'_>, cpus: &CpuList) -> String {
    if !cpus.is_empty() {
        return cpus.to_string();
    }
    let unplaced = session.layout().is_ok_and(|layout| layout.map.unplaced);
    if unplaced { "not known".to_owned() } else { "none (IO die)".to_owned() }
}

fn mhz(value: MegaHertz) -> String {
    // 0: the firmware reports nothing.
    if value.0 == 0 { "-".to_owned() } else { value.0.to_string() }
}

#[expect(clippy::struct_excessive_bools, reason = "the features of a processor, each there or not")]
#[derive(JsonSchema, Serialize)]
pub(crate) struct Info {
    interface: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<isst::Platform>,
    cpu: String,
    perf_profile: bool,
    base_freq: bool,
    turbo_freq: bool,
    core_power: bool,
    domains: Vec<model::DomainModel>,
}

/// `info`.
pub(super) fn info(session: &Session<'_>) -> Result<Exit, Failure> {
    let (layout, access) = session.open()?;
    let mut domains = Vec::new();
    let (mut base_freq, mut turbo_freq) = (false, false);
    for domain in session.domains()? {
        let found = session.ask(model::domain(access.as_ref(), domain))?;
        for level in 0..=found.levels.highest {
            // The driver returns an error for a level that the processor lacks. Ignore it: the
            // other levels decide.
            if let Ok(features) = access.features(&domain.place, level) {
                base_freq |= features.base_freq;
                turbo_freq |= features.turbo_freq;
            }
        }
        domains.push(found);
    }
    let info = Info {
        interface: match layout.via {
            Via::Tpmi(_) => "TPMI (isst_tpmi)",
            Via::Mailbox => "mailbox and MMIO (isst_if_mbox_pci, isst_if_mmio)",
            Via::MailboxAlone => "mailbox (isst_if_mbox_msr)",
            Via::Dump => "read-only, via debugfs (no driver)",
        },
        // Over debugfs, the interface version is not known.
        platform: (layout.via != Via::Dump).then_some(layout.platform),
        cpu: layout.model.name.clone(),
        perf_profile: domains.iter().any(|domain| domain.levels.enabled),
        base_freq,
        turbo_freq,
        core_power: domains.iter().any(|domain| domain.core_power.supported),
        domains,
    };
    session.output().object(|| &info, || render_info(session, &info))?;
    Ok(Exit::Done)
}

fn render_info(session: &Session<'_>, info: &Info) -> String {
    let mut out = format!("{}\ninterface: {}\n", info.cpu, info.interface);
    if let Some(platform) = info.platform {
        out += &format!("API version {}, driver version {}\n", platform.api_version, platform.driver_version);
    }
    for (feature, has) in [
        ("SST-PP (perf-profile)", info.perf_profile),
        ("SST-BF (base-freq)", info.base_freq),
        ("SST-TF (turbo-freq)", info.turbo_freq),
        ("SST-CP (core-power)", info.core_power),
    ] {
        out += &format!("{feature}: {}\n", if has { "yes" } else { "no" });
    }
    let mut rows =
        table(&["domain", "level", "highest", "lock", "base-freq", "turbo-freq", "core-power", "CPUs"]);
    for domain in &info.domains {
        // A feature that the current level lacks cannot be switched on. This differs from off.
        let on = |has: bool, on: bool| {
            if on {
                "on"
            } else if has {
                "off"
            } else {
                "no"
            }
            .to_owned()
        };
        let power = match (domain.qos.enabled, domain.qos.ordered) {
            (false, _) if !domain.core_power.supported => "no",
            (false, _) => "off",
            (true, true) => "ordered",
            (true, false) => "proportional",
        };
        rows.text_row([
            format!("{}:{}", domain.package, domain.domain),
            domain.levels.current.to_string(),
            domain.levels.highest.to_string(),
            if domain.levels.locked { "locked" } else { "open" }.to_owned(),
            on(domain.features.base_freq, domain.features.base_freq_on),
            on(domain.features.turbo_freq, domain.features.turbo_freq_on),
            power.to_owned(),
            list(session, &domain.cpus),
        ]);
    }
    out + &rows.render(Paint::plain())
}

/// Data about a power domain.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OfDomain<T> {
    package: u8,
    die: u32,
    /// The number of the power domain in the package.
    domain: u8,
    /// The CPUs of the domain, as a list.
    cpus: CpuList,
    #[serde(flatten)]
    data: T,
}

impl<T> OfDomain<T> {
    fn new(domain: &Domain, data: T) -> OfDomain<T> {
        let place = &domain.place;
        let cpus = domain.cpus.clone();
        OfDomain { package: place.package, die: domain.die, domain: place.domain, cpus, data }
    }
}

/// A value of `perf-profile get-...`.
#[derive(Clone, JsonSchema, Serialize, derive_more::Display)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Single {
    /// Whether firmware has locked the level: `locked` or `unlocked`.
    LockStatus(&'static str),
    /// The highest level.
    HighestLevel(u8),
    /// The version of the feature.
    Version(u8),
    /// Whether the processor can change its level.
    Enabled(bool),
    /// The current level.
    CurrentLevel(u8),
}

/// Prints one value per domain.
pub(super) fn single(
    session: &Session<'_>,
    what: &str,
    value: impl Fn(&Levels) -> Single,
) -> Result<Exit, Failure> {
    let (_, access) = session.open()?;
    let mut objects = Vec::new();
    let mut rows = table(&["domain", what, "CPUs"]);
    for domain in session.domains()? {
        let levels = session.ask(access.levels(&domain.place))?;
        let found = value(&levels);
        rows.text_row([name(domain), found.to_string(), list(session, &domain.cpus)]);
        objects.push(OfDomain::new(domain, found));
    }
    finish(session, &objects, &[rows])
}

fn finish<T: Document>(session: &Session<'_>, objects: &[T], tables: &[Columns]) -> Result<Exit, Failure> {
    let rendered = || tables.iter().map(|table| table.render(Paint::plain())).collect::<Vec<_>>().join("\n");
    session.output().list(|| objects.iter().collect(), rendered)?;
    Ok(Exit::Done)
}

fn turbo_row(turbo: &Turbo) -> String {
    let pairs = turbo.buckets.iter().map(|bucket| format!("{}@{}", bucket.cores, bucket.mhz.0));
    pairs.collect::<Vec<_>>().join(" ")
}

/// Returns the requested level if the domain has it, or the current one if none is requested.
fn level_of(
    session: &Session<'_>,
    access: &dyn Access,
    domain: &Domain,
    asked: Option<u8>,
) -> Result<u8, Failure> {
    let Some(asked) = asked else { return Ok(session.ask(access.levels(&domain.place))?.current) };
    // There may be gaps below the highest level.
    let numbers = session.ask(model::level_numbers(access, domain))?;
    if numbers.contains(&asked) {
        return Ok(asked);
    }
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let words = format!("power domain {} has no level {asked}; it has {}", name(domain), numbers.join(", "));
    Err(Failure::usage(words))
}

/// A level of a power domain.
#[derive(JsonSchema, Serialize)]
pub(crate) struct DomainLevel {
    package: u8,
    die: u32,
    /// The number of the power domain in the package.
    domain: u8,
    #[serde(flatten)]
    level: model::Level,
}

/// `perf-profile info`.
pub(super) fn levels(session: &Session<'_>, only: Option<u8>) -> Result<Exit, Failure> {
    let (layout, access) = session.open()?;
    let (mut objects, mut tables) = (Vec::new(), Vec::new());
    let mut domains = session.domains()?;
    // A level does not concern the IO dies, which have no cores.
    if domains.iter().any(|domain| !domain.cpus.is_empty()) {
        domains.retain(|domain| !domain.cpus.is_empty());
    }
    let unit = if cores_per_turbo_count(layout.model.model) > 1 { "modules" } else { "cores" };
    for domain in domains {
        let numbers = match only {
            Some(_) => vec![level_of(session, access.as_ref(), domain, only)?],
            None => session.ask(model::level_numbers(access.as_ref(), domain))?,
        };
        for number in numbers {
            let level = session.ask(model::level(layout, access.as_ref(), domain, number))?;
            let current = if level.current { " (current)" } else { "" };
            let mut rows = table(&[&format!("domain {}", name(domain)), &format!("level {number}{current}")]);
            let mut add = |what: &str, value: String| {
                rows.text_row([what.to_owned(), value]);
            };
            add(
                "CPUs",
                format!("{} ({} of {})", list(session, &level.cpus), level.cpus.len(), domain.cpus.len()),
            );
            let base: Vec<String> = level.base_mhz.into_iter().map(mhz).collect();
            add("base MHz (SSE, AVX2, AVX-512, AMX)", base.join(", "));
            add("power, temperature", format!("{} W, {} C", level.tdp_w, level.tjunction_c));
            let uncore: Vec<String> = level.uncore_mhz.into_iter().map(mhz).collect();
            add("uncore MHz (highest, base, lowest)", uncore.join(", "));
            add("memory MHz", mhz(level.memory_mhz));
            for turbo in &level.turbo {
                add(&format!("turbo {} ({unit}@MHz)", turbo.instructions), turbo_row(turbo));
            }
            match &level.base_freq {
                Some(offer) => add(
                    "base-freq",
                    format!(
                        "{} at {}, the rest at {}",
                        list(session, &offer.high_cpus),
                        offer.high_mhz,
                        offer.low_mhz
                    ),
                ),
                None => add("base-freq", "no".to_owned()),
            }
            match &level.turbo_freq {
                Some(offer) => {
                    for turbo in &offer.high {
                        add(&format!("turbo-freq {} ({unit}@MHz)", turbo.instructions), turbo_row(turbo));
                    }
                    let clip: Vec<String> =
                        offer.clip.iter().map(|(kind, mhz)| format!("{kind} {}", mhz.0)).collect();
                    add("turbo-freq, the rest, MHz", clip.join(", "));
                }
                None => add("turbo-freq", "no".to_owned()),
            }
            tables.push(rows);
            let place = &domain.place;
            objects.push(DomainLevel {
                package: place.package,
                die: domain.die,
                domain: place.domain,
                level,
            });
        }
    }
    finish(session, &objects, &tables)
}

/// What a level offers for base-freq.
#[derive(JsonSchema, Serialize)]
pub(crate) struct LevelBaseFreq {
    level: u8,
    /// `null` if the level does not have it.
    base_freq: Option<model::BaseFreqOffer>,
}

/// `base-freq info`.
pub(super) fn base_freq(session: &Session<'_>, level: Option<u8>) -> Result<Exit, Failure> {
    let (layout, access) = session.open()?;
    let mut objects = Vec::new();
    let mut rows =
        table(&["domain", "level", "high MHz", "high-priority CPUs", "low MHz", "instead of", "W", "C"]);
    for domain in session.domains()? {
        let number = level_of(session, access.as_ref(), domain, level)?;
        let level = session.ask(model::level(layout, access.as_ref(), domain, number))?;
        match &level.base_freq {
            Some(offer) => {
                rows.text_row([
                    name(domain),
                    number.to_string(),
                    offer.high_mhz.0.to_string(),
                    list(session, &offer.high_cpus),
                    offer.low_mhz.0.to_string(),
                    mhz(level.base_mhz[0]),
                    offer.tdp_w.to_string(),
                    offer.tjunction_c.to_string(),
                ]);
            }
            None => {
                rows.text_row([name(domain), number.to_string(), "not at this level".to_owned()]);
            }
        }
        objects.push(OfDomain::new(domain, LevelBaseFreq { level: number, base_freq: level.base_freq }));
    }
    // Only a failure if no domain has it, because IO dies never do.
    let none = objects.iter().all(|object| object.data.base_freq.is_none());
    finish(session, &objects, &[rows])?;
    Ok(if none { Exit::NotHere } else { Exit::Done })
}

/// What a level offers for turbo-freq.
#[derive(JsonSchema, Serialize)]
pub(crate) struct LevelTurboFreq {
    level: u8,
    /// `null` if the level does not have it.
    turbo_freq: Option<model::TurboFreqOffer>,
}

/// `turbo-freq info`.
pub(super) fn turbo_freq(
    session: &Session<'_>,
    level: Option<u8>,
    bucket: Option<u32>,
    kind: Option<&str>,
) -> Result<Exit, Failure> {
    let (layout, access) = session.open()?;
    if let Some(kind) = kind.filter(|kind| !access.turbo_kinds().contains(kind)) {
        let kinds = access.turbo_kinds().join(", ");
        return Err(Failure::usage(format!("no turbo limits for '{kind}' (expected {kinds})")));
    }
    let mut objects = Vec::new();
    let mut rows = table(&["domain", "level", "instructions", "high-priority cores@MHz", "the rest MHz"]);
    for domain in session.domains()? {
        let number = level_of(session, access.as_ref(), domain, level)?;
        let found = session.ask(model::level(layout, access.as_ref(), domain, number))?;
        let mut offer = found.turbo_freq;
        if let Some(offer) = &mut offer {
            offer.high.retain(|turbo| kind.is_none_or(|kind| kind == turbo.instructions));
            offer.clip.retain(|(of, _)| kind.is_none_or(|kind| kind == *of));
            if let Some(bucket) = bucket {
                for turbo in &mut offer.high {
                    let Some(one) = turbo.buckets.get(bucket as usize).copied() else {
                        let count = turbo.buckets.len();
                        return Err(Failure::usage(format!(
                            "no bucket {bucket}; level {number} of {} has {count}, from 0",
                            name(domain)
                        )));
                    };
                    turbo.buckets = vec![one];
                }
            }
            for turbo in &offer.high {
                let clip = offer.clip.iter().find(|(of, _)| *of == turbo.instructions);
                rows.text_row([
                    name(domain),
                    number.to_string(),
                    turbo.instructions.to_owned(),
                    turbo_row(turbo),
                    clip.map_or("-".to_owned(), |(_, mhz)| mhz.0.to_string()),
                ]);
            }
        } else {
            rows.text_row([name(domain), number.to_string(), "not at this level".to_owned()]);
        }
        objects.push(OfDomain::new(domain, LevelTurboFreq { level: number, turbo_freq: offer }));
    }
    let none = objects.iter().all(|object| object.data.turbo_freq.is_none());
    finish(session, &objects, &[rows])?;
    Ok(if none { Exit::NotHere } else { Exit::Done })
}

/// core-power of a domain.
#[derive(JsonSchema, Serialize)]
pub(crate) struct CorePower {
    supported: bool,
    enabled: bool,
    /// Whether classes of service have an effect.
    clos_enabled: bool,
    /// How classes share power: `ordered` or `proportional`.
    priority: &'static str,
}

/// `core-power info`.
pub(super) fn core_power(session: &Session<'_>) -> Result<Exit, Failure> {
    let (_, access) = session.open()?;
    let mut objects = Vec::new();
    let mut rows = table(&["domain", "supported", "enabled", "classes count", "priority", "CPUs"]);
    for domain in session.domains()? {
        let power = session.ask(access.pm_config(&domain.place))?;
        let qos = session.ask(access.qos(&domain.place))?;
        let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let priority = if qos.ordered { "ordered" } else { "proportional" };
        rows.text_row([
            name(domain),
            word(power.supported),
            word(power.enabled),
            word(qos.enabled),
            priority.to_owned(),
            list(session, &domain.cpus),
        ]);
        let data = CorePower {
            supported: power.supported,
            enabled: power.enabled,
            clos_enabled: qos.enabled,
            priority,
        };
        objects.push(OfDomain::new(domain, data));
    }
    finish(session, &objects, &[rows])
}

/// `core-power get-config`.
pub(super) fn classes(session: &Session<'_>, only: Option<u8>) -> Result<Exit, Failure> {
    // The hardware of all generations has four classes.
    if only.is_some_and(|only| only > 3) {
        return Err(Failure::usage("classes of service are 0 to 3"));
    }
    let (_, access) = session.open()?;
    let mut objects = Vec::new();
    let mut rows = table(&["domain", "class", "min MHz", "max MHz", "weight", "EPP"]);
    for domain in session.domains()? {
        for class in (0..4).filter(|class| only.is_none_or(|only| only == *class)) {
            let found = session.ask(model::class(access.as_ref(), domain, class))?;
            rows.text_row([
                name(domain),
                class.to_string(),
                found.min_mhz.0.to_string(),
                found.max_mhz.map_or("no limit".to_owned(), |max| max.0.to_string()),
                found.weight.to_string(),
                found.epp.map_or("-".to_owned(), |epp| epp.to_string()),
            ]);
            objects.push(OfDomain::new(domain, found));
        }
    }
    finish(session, &objects, &[rows])
}

/// The class of service of a CPU.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ClassOfCpu {
    cpu: u32,
    clos: u8,
}

/// `core-power get-assoc`.
pub(super) fn assoc(session: &Session<'_>) -> Result<Exit, Failure> {
    let layout = session.layout()?;
    // Include offline CPUs: a core keeps its class.
    let cpus = session.cpus.clone().unwrap_or_else(|| session.machine.topology().present.clone());
    let found = session.ask(model::classes_of(layout, session.host, &cpus))?;
    let mut rows = table(&["class", "CPUs"]);
    for class in 0..4 {
        let of: CpuList = found.iter().filter(|(_, of)| *of == class).map(|(cpu, _)| *cpu).collect();
        if !of.is_empty() {
            rows.text_row([class.to_string(), of.to_string()]);
        }
    }
    let objects: Vec<_> = found.iter().map(|&(cpu, clos)| ClassOfCpu { cpu, clos }).collect();
    finish(session, &objects, &[rows])
}

/// The turbo ratio limits of a domain.
#[derive(JsonSchema, Serialize)]
pub(crate) struct TurboLimits {
    /// The register, as hexadecimal text.
    trl: String,
    /// The limits by bucket, MHz.
    mhz: [u32; 8],
}

/// `turbo-mode get-trl`.
pub(super) fn turbo_limits(session: &Session<'_>) -> Result<Exit, Failure> {
    let layout = session.layout()?;
    let mut objects = Vec::new();
    let mut rows = table(&["domain", "turbo ratio limits", "MHz by bucket"]);
    // The limits are in a CPU register, which cannot be read for an IO die.
    for domain in session.domains()?.into_iter().filter(|domain| domain.place.cpu.is_some()) {
        let setting = layout.setting(domain.place, Field::TurboLimits);
        let text = session.ask(setting.read(session.host))?;
        let raw = u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0);
        // One byte per bucket in steps of 100 MHz, bucket 0 in the lowest (MSR_TURBO_RATIO_LIMIT,
        // 0x1AD).
        let mhz = raw.to_le_bytes().map(|ratio| u32::from(ratio) * 100);
        let words: Vec<String> = mhz.iter().map(ToString::to_string).collect();
        rows.text_row([name(domain), text.clone(), words.join(" ")]);
        objects.push(OfDomain::new(domain, TurboLimits { trl: text, mhz }));
    }
    finish(session, &objects, &[rows])
}
