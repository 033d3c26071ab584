//! Limits that a machine's settings put on its CPUs. Read once, because they change only when
//! somebody changes a setting.

use flyball_control::{At, CoreType, Id, ReadError, Reading, Request, Snapshot, Value, owners::owners};
use flyball_host::{Host, Vendor, msr::cores_per_turbo_count};
use flyball_sst::{
    access::{Access, Clos, DomainAddress, Levels},
    layout::Layout as SpeedSelect,
    model,
};
use serde::{Deserialize, Serialize};

use crate::{Evidence, Layout, Limiter, layout::Cpu};

/// Limits that follow from settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// In the order of the layout's CPUs.
    pub cpus: Vec<CpuFacts>,
    /// In the order of the layout's packages.
    pub packages: Vec<PackageFacts>,
    /// Running programs that write frequency limits.
    pub programs: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuFacts {
    /// The highest frequency of the hardware, MHz; 0 if it is not known.
    pub highest: f64,
    pub highest_from: String,
    /// cpuinfo_max_freq, the highest value of a limit file, MHz.
    #[serde(default)]
    pub file_highest: Option<f64>,
    /// How limit files convert. `None` if they hold the core's own frequencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<FileScale>,
    /// MHz per performance level in the request register; 0 if it is not known.
    pub level: f64,
    /// The frequency that governor userspace keeps, MHz.
    pub set_speed: Option<f64>,
    pub caps: Vec<Cap>,
    /// The processor chooses its frequency itself because of a setting (auto_select).
    #[serde(default)]
    pub is_autonomous: bool,
    /// Why the idle CPU counts as an active core: it may not use an idle state deeper than C1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_awake: Option<KeptAwake>,
    /// The Speed Select feature that may give this CPU less than its neighbours: base-freq, or the
    /// priority of its class of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lesser: Option<(Limiter, Evidence)>,
    /// Who wrote scaling_max_freq last, if flyball's journal has it.
    pub max_set_by: Option<String>,
}

/// How the frequencies in limit files convert to those of a core. amd-pstate of Linux 6.12 uses one
/// frequency scale for all cores, but a level scale per core.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FileScale {
    /// The core's MHz per MHz in the file.
    pub factor: f64,
    /// The core's lowest frequency, MHz.
    pub lowest: f64,
}

impl CpuFacts {
    /// Returns the highest frequency, MHz, that the core can have under a limit in its file. Only
    /// considers limits that differ between cores.
    pub(crate) fn highest_under(&self, max: Option<f64>) -> f64 {
        let limited = self.scale.zip(max).map(|(scale, max)| scale.mhz(max));
        limited.map_or(self.highest, |mhz| mhz.min(self.highest))
    }
}

impl FileScale {
    /// Converts a frequency in a limit file to the core's frequency, MHz.
    pub(crate) fn mhz(self, file: f64) -> f64 {
        (file * self.factor).max(self.lowest)
    }
}

/// Why a CPU has no idle state deeper than C1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptAwake {
    /// The setting: [`Limiter::LatencyLimit`] or [`Limiter::IdleState`]. `None` if the kernel has
    /// no such state.
    pub setting: Option<(Limiter, Evidence)>,
}

/// The highest frequency that a setting allows.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Cap {
    pub limiter: Limiter,
    pub mhz: f64,
    pub evidence: Evidence,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PackageFacts {
    /// Turbo limits: maximum number of active cores, MHz. With Speed Select, those of the level
    /// with the highest limits. On hybrids, the limits of P-cores by active P-cores.
    pub turbo: Vec<(u32, f64)>,
    /// The registers or the level that the turbo limits were read from.
    #[serde(default)]
    pub turbo_from: String,
    /// The current Speed Select level, if another level has higher turbo limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelFacts>,
}

/// A Speed Select level that is not the one with the highest turbo limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelFacts {
    pub number: u8,
    /// The level with the highest turbo limits.
    pub best: u8,
    /// Turbo limits of the current level, by number of active cores.
    pub turbo: Vec<(u32, f64)>,
}

/// Evidence location for turbo-freq.
pub(crate) const TURBO_FREQ: &str = "Speed Select turbo-freq";
/// Evidence location for turbo limits that somebody lowered below the level's own.
pub(crate) const LOWERED_TURBO: &str = "MSR 0x1ad, below the turbo limits of the Speed Select level";
/// Evidence location for base-freq.
pub(crate) const BASE_FREQ: &str = "Speed Select base-freq";
/// Evidence location for a class's priority.
pub(crate) const PRIORITY: &str = "Speed Select core-power";
/// Evidence location for what an EPYC's management port (HSMP) reports.
pub(crate) const PORT: &str = "pwr_current_active_freq_limit, ..._source";

const KNOBS: &[Id] = &[
    Id::HwMaxFreq,
    Id::AmdMaxFreq,
    Id::BaseFreq,
    Id::NominalFreq,
    Id::CppcNominal,
    Id::CppcHighest,
    Id::Turbo,
    Id::Boost,
    Id::FirmwareTurbo,
    Id::MaxPerfPct,
    Id::Setspeed,
    Id::TurboRatios,
    Id::TurboRatioCores,
    Id::HwpCapabilities,
    Id::BiosLimit,
    Id::AvailableFreqs,
    Id::AutoSelect,
];
/// Knobs that decide whether an idle CPU may sleep deeply.
const IDLE_KNOBS: &[Id] = &[Id::IdleState, Id::IdleLatency, Id::LatencyLimit];
/// Sources of the highest frequency disagree if they differ by more than this share.
const DIFFERS: f64 = 0.03;

/// Returns whether a core in this idle state counts as active for the turbo limits. States up to
/// C1E do (Intel SDM 3B, 15.5).
pub(crate) fn is_shallow(name: &str) -> bool {
    (name == "POLL" || name.starts_with("C1")) && !name.starts_with("C10")
}

impl Facts {
    /// Reads the facts. `max_set_by` returns who wrote a file last, if known.
    ///
    /// # Errors
    /// The machine's CPUs cannot be listed.
    pub fn take(
        host: &dyn Host,
        layout: &Layout,
        max_set_by: impl Fn(&str) -> Option<String>,
    ) -> Result<Facts, ReadError> {
        let mut snapshot = Snapshot::begin(host)?;
        let request =
            Request { knobs: KNOBS, sample_absence: true, online_by_list: true, ..Request::default() };
        snapshot.take(host, &request);
        if layout.machine.vendor == Vendor::Intel {
            snapshot.take(host, &Request { knobs: IDLE_KNOBS, sample_absence: true, ..Request::default() });
        }
        let look = Look::new(&snapshot);
        let mut packages: Vec<PackageFacts> = layout
            .packages
            .iter()
            .map(|package| {
                let first = package.cpus.iter().next().unwrap_or(0);
                PackageFacts { turbo: look.turbo(first), turbo_from: look.turbo_from(first), level: None }
            })
            .collect();
        let mut cpus: Vec<CpuFacts> = Vec::with_capacity(layout.cpus.len());
        for cpu in &layout.cpus {
            let turbo = layout.package_of(cpu).map_or(&[][..], |index| &packages[index].turbo);
            let mut facts = look.cpu(cpu, layout.machine.vendor, turbo);
            let path = |policy| Id::MaxFreq.knob().path(snapshot.topology(), &At::Policy(policy));
            if cpu.core_type.is_some() || !turbo.is_empty() {
                facts.kept_awake = look.kept_awake(cpu.number);
            }
            facts.scale = look.scale(host, cpu, &facts);
            facts.max_set_by = cpu.policy.and_then(path).and_then(|path| max_set_by(&path));
            cpus.push(facts);
        }
        speed_select(host, layout, &mut cpus, &mut packages);
        let programs = owners(host)
            .into_iter()
            .filter(|owner| owner.writes.contains(&Id::MaxFreq))
            .map(|owner| owner.name.to_owned())
            .collect();
        Ok(Facts { cpus, packages, programs })
    }
}

/// A snapshot with queries by CPU.
struct Look<'a>(&'a Snapshot);

impl<'a> Look<'a> {
    fn new(snapshot: &'a Snapshot) -> Look<'a> {
        Look(snapshot)
    }

    fn value(&self, knob: Id, cpu: u32) -> Option<Value> {
        let only = [cpu].into_iter().collect();
        let places = self.0.places_on(knob, &only).ok()?;
        places.iter().find_map(|place| self.0.value_if_readable(knob, place).ok().flatten())
    }

    fn mhz(&self, knob: Id, cpu: u32) -> Option<f64> {
        Some(self.value(knob, cpu)?.frequency()?.0 as f64 / 1000.0)
    }

    /// Returns the file or register that has a switch off.
    fn where_off(&self, knob: Id, cpu: u32) -> Option<String> {
        let only = [cpu].into_iter().collect();
        let places = self.0.places_on(knob, &only).ok()?;
        places.iter().find_map(|place| match self.0.read(knob, place) {
            Ok(Reading::Value { value, source }) if value.switch() == Some(false) => Some(source.to_string()),
            _ => None,
        })
    }

    fn fields(&self, knob: Id, cpu: u32) -> Vec<(String, u64)> {
        match self.value(knob, cpu) {
            Some(Value::Fields(fields)) => fields,
            _ => Vec::new(),
        }
    }

    /// Returns why a CPU has no usable idle state deeper than C1. `None` if it has one, or if its
    /// states cannot be read.
    fn kept_awake(&self, cpu: u32) -> Option<KeptAwake> {
        let only = [cpu].into_iter().collect();
        let states = self.0.places_on(Id::IdleState, &only).ok()?;
        if states.is_empty() {
            return None;
        }
        let limit = match self.value(Id::LatencyLimit, cpu) {
            Some(Value::Time(limit)) => Some(limit),
            _ => None,
        };
        let (mut off, mut late) = (Vec::new(), Vec::new());
        for state in states.iter().filter(|state| !is_shallow(&state.name)) {
            let latency =
                self.0.places_on(Id::IdleLatency, &only).ok()?.into_iter().find(|at| at.at == state.at);
            let latency = latency.and_then(|at| self.0.value_if_readable(Id::IdleLatency, &at).ok()?);
            match (self.0.value_if_readable(Id::IdleState, state).ok()??.switch()?, limit, latency) {
                (false, ..) => off.push(state.name.as_str()),
                (true, Some(limit), Some(Value::Time(latency))) if latency.0 > limit.0 => {
                    late.push(state.name.as_str());
                }
                (true, ..) => return None,
            }
        }
        // Blame the latency limit if it forbids any state that is not switched off: without the
        // limit, the CPU would have a deep state.
        let setting = if let (false, Some(limit)) = (late.is_empty(), limit) {
            let value = format!("{} us, which forbids {}", limit.0, late.join(", "));
            Some((Limiter::LatencyLimit, Evidence::new("pm_qos_resume_latency_us", value)))
        } else if off.is_empty() {
            None
        } else {
            Some((Limiter::IdleState, Evidence::new("cpuidle disable", format!("{} is off", off.join(", ")))))
        };
        Some(KeptAwake { setting })
    }

    /// Computes the highest frequency from the processor's performance levels, which do not change
    /// while turbo is off. Levels are linear, and the guaranteed level is the base frequency. Both
    /// are rounded, so the turbo limit of one core decides within the rounding error.
    fn highest_of_levels(&self, cpu: u32, base: Option<f64>, turbo: &[(u32, f64)]) -> Option<f64> {
        let capabilities = self.fields(Id::HwpCapabilities, cpu);
        let level =
            |name: &str| capabilities.iter().find(|field| field.0 == name).map(|field| field.1 as f64);
        let (top, guaranteed) = (level("highest")?, level("guaranteed").filter(|level| *level > 0.0)?);
        // The file is rounded down to ratios of the bus clock, like the driver's highest frequency.
        let of = |base: f64| (base * top / guaranteed / 100.0).round() * 100.0;
        let (least, most) = (of(base?), of(base? + 100.0));
        Some(turbo.first().map_or(least, |bucket| if bucket.1 <= most { bucket.1.max(least) } else { least }))
    }

    /// The turbo limits of a CPU's package by the number of active cores.
    fn turbo(&self, cpu: u32) -> Vec<(u32, f64)> {
        let counts = self.fields(Id::TurboRatioCores, cpu);
        let ratios = self.fields(Id::TurboRatios, cpu);
        // On some processors, the table counts modules of several cores.
        let each = cores_per_turbo_count(self.0.topology().model.unwrap_or(0));
        let mut table: Vec<(u32, f64)> = ratios
            .iter()
            .enumerate()
            .map(|(index, (_, ratio))| {
                let cores = counts.get(index).map_or(index as u32 + 1, |count| count.1 as u32 * each);
                (cores, *ratio as f64 * 100.0)
            })
            // Processors with fewer buckets leave the others at 0. A filler of 0xff counts no core.
            // While turbo-freq is on, all ratios are 0xff and the register limits nothing.
            .filter(|(cores, mhz)| *cores > 0 && *mhz > 0.0 && *mhz < f64::from(Clos::NO_LIMIT.0))
            .collect();
        table.sort_by_key(|bucket| bucket.0);
        table
    }

    /// The registers that [`Look::turbo`] reads on this model.
    fn turbo_from(&self, cpu: u32) -> String {
        let counts = if self.fields(Id::TurboRatioCores, cpu).is_empty() { "" } else { ", 0x1ae" };
        format!("turbo ratios (MSR 0x1ad{counts})")
    }

    fn level_of(&self, knob: Id, cpu: u32) -> Option<f64> {
        match self.value(knob, cpu) {
            Some(Value::Perf(level)) if level.0 > 0 => Some(f64::from(level.0)),
            Some(Value::Count(level)) if level > 0 => Some(level as f64),
            _ => None,
        }
    }

    /// Computes the highest frequency of an AMD core from its own level, if that differs from the
    /// files. The files hold the processor's highest frequency, which lower-ranked preferred cores
    /// cannot reach. On hybrids, a P-core's highest level is 196 whatever its rank
    /// (amd_get_boost_ratio_numerator), which the files of kernels before 6.13 ignore.
    fn highest_of_rank(&self, cpu: u32, kind: Option<CoreType>, base: f64, files: f64) -> Option<f64> {
        let (own, nominal) = (self.level_of(Id::CppcHighest, cpu)?, self.level_of(Id::CppcNominal, cpu)?);
        let top = if kind == Some(CoreType::P) { own.min(196.0) } else { own };
        let mhz = base * top / nominal;
        let is_other = mhz < files || kind.is_some() && mhz > files * (1.0 + DIFFERS);
        (own > nominal && is_other).then_some(mhz)
    }

    /// Computes the highest frequency from CPPC's levels. Not for Intel and AMD.
    fn highest_of_cppc(&self, cpu: u32, vendor: Vendor, base: Option<f64>) -> Option<f64> {
        let (highest, nominal) = (self.level_of(Id::CppcHighest, cpu)?, self.level_of(Id::CppcNominal, cpu)?);
        base.filter(|_| vendor == Vendor::Other).map(|base| base * highest / nominal)
    }

    /// Returns how a CPU's limit files convert. While boost is off they hold its own frequencies.
    fn scale(&self, host: &dyn Host, cpu: &Cpu, facts: &CpuFacts) -> Option<FileScale> {
        let files = self.mhz(Id::AmdMaxFreq, cpu.number)?;
        if facts.caps.iter().any(|cap| cap.limiter == Limiter::TurboOff) {
            return None;
        }
        let folder = self.0.topology().policy_folder(cpu.policy?);
        let number = |file: &str| host.read(&format!("{folder}/{file}")).ok()?.parse::<f64>().ok();
        let factor = number("amd_pstate_highest_perf")? * facts.level / files;
        if factor == 0.0 || (factor - 1.0).abs() <= 0.01 {
            return None;
        }
        Some(FileScale { factor, lowest: number("cpuinfo_min_freq")? / 1000.0 })
    }

    fn cpu(&self, cpu: &Cpu, vendor: Vendor, turbo: &[(u32, f64)]) -> CpuFacts {
        let (cpu, core_type) = (cpu.number, cpu.core_type);
        let turbo = if core_type.is_none_or(|kind| kind == CoreType::P) { turbo } else { &[] };
        let base = match vendor {
            Vendor::Intel => self.mhz(Id::BaseFreq, cpu),
            _ => self.mhz(Id::NominalFreq, cpu).or_else(|| self.mhz(Id::BaseFreq, cpu)),
        };
        let nominal = self.level_of(Id::CppcNominal, cpu);
        // cpuinfo_max_freq falls while turbo is off. The registers still tell what the hardware can
        // do.
        let sources = [
            // On hybrids, a P-core's own highest frequency may be below that of a favored P-core.
            (turbo.first().filter(|_| core_type.is_none()).map(|bucket| bucket.1), "MSR 0x1ad"),
            (self.mhz(Id::AmdMaxFreq, cpu), "amd_pstate_max_freq"),
            (self.mhz(Id::HwMaxFreq, cpu), "cpuinfo_max_freq"),
            // cpuinfo_max_freq of cppc_cpufreq falls to nominal while boost is off.
            (self.highest_of_cppc(cpu, vendor, base), "acpi_cppc/highest_perf"),
        ];
        let highest = sources
            .into_iter()
            .filter_map(|(mhz, from)| Some((mhz?, from)))
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        let (mut highest, mut from) = highest.unwrap_or((0.0, ""));
        let switch = [Id::Turbo, Id::Boost].into_iter().find_map(|knob| self.where_off(knob, cpu));
        // acpi-cpufreq's switch writes the firmware's bit (boost_set_msr).
        let off = match switch {
            Some(switch) if switch.ends_with("boost") => Some(switch),
            switch => self.where_off(Id::FirmwareTurbo, cpu).or(switch),
        };
        // Since Linux 6.12 cpuinfo_max_freq falls with no_turbo (intel_pstate.c), and hybrids have
        // no register of turbo ratios for all cores.
        if off.is_some()
            && let Some(top) =
                self.highest_of_levels(cpu, base, turbo).filter(|top| *top > highest * (1.0 + DIFFERS))
        {
            (highest, from) = (top, "MSR 0x771, base_frequency");
        }
        if let (Vendor::Amd, Some(base)) = (vendor, base)
            && let Some(mhz) = self.highest_of_rank(cpu, core_type, base, highest)
        {
            (highest, from) = (mhz, "acpi_cppc/highest_perf");
        }
        let mut caps = Vec::new();
        // Without a limit, the highest P-state. Boost is above it.
        let top_state = match self.value(Id::AvailableFreqs, cpu) {
            Some(Value::Frequencies(states)) => {
                states.iter().map(|khz| khz.0 as f64 / 1000.0).reduce(f64::max)
            }
            _ => None,
        };
        if let Some(mhz) = self.mhz(Id::BiosLimit, cpu).filter(|mhz| *mhz > 0.0)
            && top_state.is_some_and(|top| mhz < top)
        {
            let evidence = Evidence::new("bios_limit", format!("{mhz:.0} MHz"));
            caps.push(Cap { limiter: Limiter::BiosLimit, mhz, evidence });
        }
        // Only one cap: if a machine has both switches, they control the same thing.
        if let Some((place, mhz)) = off.zip(base) {
            let evidence = Evidence::new(place, format!("off (base frequency {mhz:.0} MHz)"));
            caps.push(Cap { limiter: Limiter::TurboOff, mhz, evidence });
        }
        if let Some(Value::Percent(percent)) = self.value(Id::MaxPerfPct, cpu)
            && percent.0 < 100
            && highest > 0.0
        {
            // The driver rounds up to whole ratios (intel_pstate.c,
            // intel_pstate_update_perf_limits).
            let mhz = (highest * f64::from(percent.0) / 1e4).ceil() * 100.0;
            let evidence = Evidence::new("intel_pstate/max_perf_pct", percent.0.to_string());
            caps.push(Cap { limiter: Limiter::Percentage, mhz, evidence });
        }
        // MHz per level of the request register, to compare requests with frequencies. Both
        // vendors' scales are linear.
        let level = match vendor {
            Vendor::Amd | Vendor::Other => base.zip(nominal).map(|(base, nominal)| base / nominal),
            Vendor::Intel => {
                let capabilities = self.fields(Id::HwpCapabilities, cpu);
                let top = capabilities.iter().find(|field| field.0 == "highest").map(|field| field.1);
                top.filter(|top| *top > 0).map(|top| highest / top as f64)
            }
        };
        CpuFacts {
            highest,
            highest_from: from.to_owned(),
            scale: None,
            file_highest: self.mhz(Id::HwMaxFreq, cpu),
            level: level.unwrap_or(0.0),
            set_speed: self.mhz(Id::Setspeed, cpu),
            caps,
            is_autonomous: self.value(Id::AutoSelect, cpu).and_then(|value| value.switch()) == Some(true),
            kept_awake: None,
            lesser: None,
            max_set_by: None,
        }
    }
}

/// Adds the limits of Speed Select features. Adds none on machines without them or for users
/// without access.
fn speed_select(host: &dyn Host, layout: &Layout, cpus: &mut [CpuFacts], packages: &mut [PackageFacts]) {
    let Ok(found) = SpeedSelect::read(host) else { return };
    let access = found.access(host);
    // The domains of a package share its power.
    let mut ranked = Vec::new();
    for domain in &found.domains {
        let Ok(state) = model::domain(access.as_ref(), domain) else { continue };
        let numbers = || domain.cpus.iter().filter_map(|cpu| layout.index_of(cpu));
        let package = numbers().next().and_then(|index| layout.package_of(&layout.cpus[index]));
        if let Some(facts) = package.and_then(|package| packages.get_mut(package))
            && let Some(top) = compare_levels(access.as_ref(), &domain.place, &state.levels, facts)
        {
            for index in numbers() {
                if cpus[index].highest < top {
                    cpus[index].highest = top;
                    cpus[index].highest_from = "turbo limits of the Speed Select levels".into();
                }
            }
        }
        if state.features.base_freq_on
            && let Ok(level) = model::level(&found, access.as_ref(), domain, state.levels.current)
            && let Some(offer) = level.base_freq
        {
            for index in numbers() {
                if !offer.high_cpus.contains(layout.cpus[index].number) {
                    let value = format!("on; it guarantees {} MHz to this core", offer.low_mhz.0);
                    cpus[index].lesser = Some((Limiter::SpeedSelect, Evidence::new(BASE_FREQ, value)));
                }
            }
        }
        // Classes and turbo-freq act through core-power. While that is off, their configuration has
        // no effect.
        if !state.qos.enabled {
            continue;
        }
        let classes = model::classes_of(&found, host, &domain.cpus).unwrap_or_default();
        let settings: Vec<_> =
            (0..4).map(|number| model::class(access.as_ref(), domain, number).ok()).collect();
        let setting = |class: u8| settings.get(usize::from(class))?.as_ref();
        // Ordered: lower classes are served first. Otherwise, lower weights are served first.
        let rank = |class: u8| {
            if state.qos.ordered {
                return Some((class, format!("classes have an order, and this is class {class}")));
            }
            let weight = setting(class)?.weight;
            Some((weight, format!("class {class} has weight {weight}")))
        };
        let clip = state
            .features
            .turbo_freq_on
            .then(|| model::level(&found, access.as_ref(), domain, state.levels.current).ok()?.turbo_freq)
            .flatten()
            .and_then(|offer| offer.clip.first().map(|clip| f64::from(clip.1.0)));
        for (cpu, class) in classes {
            let Some(index) = layout.index_of(cpu) else { continue };
            if let (Some(mhz), true) = (clip, class >= 2) {
                let value = format!("on; class {class} is of low priority, {mhz:.0} MHz at most");
                let evidence = Evidence::new(TURBO_FREQ, value);
                cpus[index].caps.push(Cap { limiter: Limiter::SpeedSelect, mhz, evidence });
            }
            if let Some(mhz) = setting(class).and_then(|own| own.max_mhz) {
                let evidence =
                    Evidence::new(format!("class of service {class}"), format!("{} MHz at most", mhz.0));
                let cap = Cap { limiter: Limiter::ClassOfService, mhz: f64::from(mhz.0), evidence };
                cpus[index].caps.push(cap);
            }
            ranked.extend(rank(class).map(|(own, value)| (layout.cpus[index].package, own, index, value)));
        }
    }
    let is_first = |package, own| !ranked.iter().any(|(other, rank, ..)| *other == package && *rank < own);
    for (package, own, index, value) in &ranked {
        if !is_first(*package, *own) {
            let evidence = Evidence::new(PRIORITY, value.as_str());
            cpus[*index].lesser = Some((Limiter::ClassOfService, evidence));
        }
    }
}

/// Compares the turbo limits in effect with those of all levels. Returns the highest frequency of
/// the best level, MHz, if it is higher.
fn compare_levels(
    access: &dyn Access,
    place: &DomainAddress,
    levels: &Levels,
    facts: &mut PackageFacts,
) -> Option<f64> {
    let top = |turbo: &[(u32, f64)]| turbo.first().map_or(0.0, |bucket| bucket.1);
    let table = |number| {
        // Firmware may omit levels below the highest.
        let limits = access.turbo_limits(place, number).ok()?;
        let cores = access.bucket_cores(place, number).unwrap_or_default();
        // The first row is for non-vector code. The kernel and the registers know only that row.
        let row = limits.first()?.iter().zip(cores).map(|(mhz, cores)| (cores, f64::from(mhz.0)));
        Some(row.filter(|(cores, mhz)| *cores > 0 && *mhz > 0.0).collect::<Vec<_>>())
    };
    let in_effect = top(&facts.turbo);
    let own = table(levels.current).map_or(0.0, |own| top(&own));
    // While turbo-freq is on, the register limits nothing and the table is empty.
    if in_effect > 0.0 && in_effect < own {
        LOWERED_TURBO.clone_into(&mut facts.turbo_from);
        return Some(own);
    }
    let others = (0..=levels.highest).filter(|number| *number != levels.current);
    let tables = others.filter_map(|number| Some((number, table(number)?)));
    let better = tables.filter(|(_, turbo)| top(turbo) > in_effect).rev();
    let (best, turbo) = better.max_by(|one, other| top(&one.1).total_cmp(&top(&other.1)))?;
    if in_effect == 0.0 {
        return None;
    }
    facts.turbo_from = format!("turbo limits of Speed Select level {best}");
    let turbo = std::mem::replace(&mut facts.turbo, turbo);
    facts.level = Some(LevelFacts { number: levels.current, best, turbo });
    Some(top(&facts.turbo))
}
