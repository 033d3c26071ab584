//! Firmware settings that limit the processor: power, frequency, uncore, performance level, PROCHOT
//! and SMT.
//!
//! Register layouts: Intel's Software Developer's Manual, volume 4, as the kernel's turbostat
//! decodes them (tools/power/x86/turbostat/turbostat.c).

use flyball_host::{
    CpuList, Kind,
    msr::{
        MSR_CONFIG_TDP_CONTROL, MSR_CONFIG_TDP_NOMINAL, MSR_HWP_CAPABILITIES, MSR_IA32_POWER_CTL,
        MSR_PKG_POWER_INFO, MSR_PKG_POWER_LIMIT, MSR_PLATFORM_INFO, MSR_PM_ENABLE, MSR_RAPL_POWER_UNIT,
    },
};

use super::{
    Answer, Check, Facts, Fix, KnobValue, Unseen, Vendor, Verdict,
    facts::{cpu_words, packages},
    firmware::first_cpu,
    models, note, ok, unknown, warning,
};
use crate::{Id, KnobName, place::is_uncore_cluster};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "firmware.power-limit",
        "A sustained power limit below the processor's rating slows every long load.",
        "MSR 0x610 against 0x614, and the constraints of powercap's package zones",
        power_limit,
    ),
    Check::new(
        "firmware.bios-limit",
        "A limit from the firmware (_PPC) caps the frequency regardless of all settings.",
        "bios_limit against scaling_available_frequencies (acpi-cpufreq)",
        bios_limit,
    )
    .covers(&["bios_limit", "cpuinfo_max_freq"]),
    Check::new(
        "firmware.uncore",
        "The uncore clock drives caches, mesh and memory: a fixed or lowered range changes latency and power.",
        "min_freq_khz and max_freq_khz of intel_uncore_frequency against their initial values",
        uncore,
    ),
    Check::new(
        "firmware.guaranteed",
        "The guaranteed performance is what the processor holds with all cores busy; power limits can take it below base.",
        "MSR 0x771 bits 7:0 of every CPU against cpuinfo_max_freq; bits 15:8 against the base of Speed Select's level, MSR 0x648 or 0xce bits 15:8; not on hybrid \
                processors, whose levels are not ratios",
        guaranteed,
    ),
    Check::new(
        "firmware.speed-select",
        "A locked performance level cannot be changed from the running system.",
        "Speed Select's own lock; without its driver MSR 0x64b bit 31, where MSR 0xce has several levels",
        speed_select,
    ),
    Check::new(
        "firmware.bd-prochot",
        "With bi-directional PROCHOT a power supply or controller can slow the processor; without it, they cannot.",
        "MSR 0x1fc bit 0 of every CPU",
        bd_prochot,
    ),
    Check::new(
        "firmware.smt",
        "SMT doubles the CPUs; siblings share a core's speed and disturb each other's latency.",
        "smt/control",
        smt,
    ),
];

fn power_limit(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let first = seen!(facts.first_of_packages());
    let mut limits = Vec::new();
    for (package, cpu) in first {
        let read = |register| facts.msr(cpu, register);
        let (Ok(limit), Ok(info), Ok(units)) =
            (read(MSR_PKG_POWER_LIMIT), read(MSR_PKG_POWER_INFO), read(MSR_RAPL_POWER_UNIT))
        else {
            // Not permitted, or there is no such register.
            limits.clear();
            break;
        };
        limits.push(PowerLimit { package, limit, info, units });
    }
    // The registers, the MMIO copy and TPMI have separate limits, of which the lowest applies.
    let of_powercap = power_limit_of_powercap(facts, &limits);
    Some(match power_limit_of_registers(&limits) {
        Some(answer) if answer.verdict == Verdict::Warning || of_powercap.verdict != Verdict::Warning => {
            answer
        }
        _ => of_powercap,
    })
}

/// A package's power registers: 0x610, 0x614 and 0x606.
struct PowerLimit {
    package: u32,
    limit: u64,
    info: u64,
    units: u64,
}

impl PowerLimit {
    /// Returns bits 14:0 in the unit of 0x606 bits 3:0, in watts.
    fn watts(&self, field: u64) -> f64 {
        (field & 0x7fff) as f64 / f64::from(1u32 << (self.units & 0xf))
    }

    /// Returns PKG_POWER_LIMIT bits 14:0, in watts.
    fn long(&self) -> f64 {
        self.watts(self.limit)
    }

    /// Returns the lower of the enabled limits, with its name: the processor obeys both. The
    /// short-term limit is in bits 46:32, enabled by bit 47.
    fn lowest(&self) -> Option<(&'static str, f64)> {
        let short = self.watts(self.limit >> 32);
        let long = self.is_enabled().then(|| (LONG, self.long()));
        let short = (self.limit >> 47 & 1 == 1 && short > 0.0).then_some((SHORT, short));
        long.into_iter().chain(short).min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Returns PKG_POWER_INFO's thermal design power.
    fn rating(&self) -> f64 {
        self.watts(self.info)
    }

    fn is_enabled(&self) -> bool {
        // Without the enable bit the limit has no effect (PL1_ENABLE in intel_rapl_common.c).
        self.limit >> 15 & 1 == 1
    }

    fn is_below_rating(&self) -> bool {
        self.rating() > 0.0 && self.lowest().is_some_and(|(_, watts)| watts < self.rating())
    }
}

fn power_limit_of_registers(limits: &[PowerLimit]) -> Option<Answer> {
    let of = |choose: fn(&PowerLimit) -> bool| -> Vec<&PowerLimit> {
        limits.iter().filter(|limit| choose(limit)).collect()
    };
    let which = |limits: &[&PowerLimit]| -> String {
        packages(&limits.iter().map(|limit| limit.package).collect::<Vec<_>>())
    };
    let seen = |answer: Answer| {
        limits.iter().fold(answer, |answer, one| {
            let of = format!("of package {}", one.package);
            answer
                .seen(format!("MSR 0x610 {of}"), format!("{:#x}", one.limit))
                .seen(format!("MSR 0x614 {of}"), format!("{:#x}", one.info))
        })
    };
    let (below, off) = (of(PowerLimit::is_below_rating), of(|limit| !limit.is_enabled()));
    Some(seen(if let Some(first) = below.first() {
        // Bit 63 locks the register until the next reset, so only firmware can raise the limit
        // (Intel SDM 3, package RAPL domain).
        let locked = below.iter().any(|limit| limit.limit >> 63 == 1);
        let ((name, watts), rating) = (first.lowest()?, first.rating());
        warning(format!(
            "the {} power limit of {} is {watts:.0} W, below the rating of {rating:.0} W",
            name.replace('_', "-"),
            which(&below)
        ))
        .fix(if locked {
            let number = if name == LONG { 1 } else { 2 };
            let advice =
                format!("the limit is locked: raise PL{number} (package power limit {number}) in firmware");
            Fix::Firmware(advice)
        } else {
            raise(name, rating)
        })
    } else if !off.is_empty() {
        note(format!("the long-term power limit of {} is not enabled", which(&off)))
    } else {
        let first = limits.first()?;
        ok(format!("long-term power limit {:.0} W, rating {:.0} W", first.long(), first.rating()))
    }))
}

/// The constraints of powercap that the processor obeys at the same time.
const LONG: &str = "long_term";
const SHORT: &str = "short_term";

fn raise(constraint: &str, watts: f64) -> Fix {
    let name = KnobName { knob: Id::PowerLimit, instance: Some(constraint.to_owned()) };
    Fix::Settings(vec![KnobValue::new(name, format!("{watts:.0}W"))])
}

/// Compares the limits of powercap's package zones with the zone's rating, or with the package's
/// rating from its register: the zones of the MMIO copy have no rating.
fn power_limit_of_powercap(facts: &Facts, registers: &[PowerLimit]) -> Answer {
    let root = "/sys/class/powercap";
    let mut shown = None;
    let mut lowest: Option<(u64, Answer)> = None;
    for zone in facts.list(root) {
        let folder = format!("{root}/{zone}");
        // psys and the zones below a package have separate limits, which do not apply to the whole
        // processor.
        let Some(package) = facts
            .read(&format!("{folder}/name"))
            .ok()
            .and_then(|name| name.strip_prefix("package-").map(str::to_owned))
        else {
            continue;
        };
        let number =
            |name: &str| facts.read(&format!("{folder}/{name}")).ok().and_then(|t| t.parse::<u64>().ok());
        let is_short = facts.read(&format!("{folder}/constraint_1_name")).is_ok_and(|name| name == SHORT);
        let short = number("constraint_1_power_limit_uw").filter(|uw| is_short && *uw > 0);
        let long = number("constraint_0_power_limit_uw");
        let (name, place_of_limit, limit) = match (long, short) {
            (Some(long), Some(short)) if short < long => (SHORT, 1, Some(short)),
            _ => (LONG, 0, long),
        };
        let path = format!("{folder}/constraint_{place_of_limit}_power_limit_uw");
        let of_register = || {
            let register = registers.iter().find(|one| Some(one.package) == package.parse().ok())?;
            let place = format!("MSR 0x614 of package {package}");
            Some((place, (register.rating() * 1e6) as u64))
        };
        let of_zone = number("constraint_0_max_power_uw").filter(|&uw| uw > 0);
        let of_zone = of_zone.map(|uw| (format!("{folder}/constraint_0_max_power_uw"), uw));
        let (Some(limit), Some((place, rating))) = (limit, of_zone.or_else(of_register)) else {
            continue;
        };
        let is_off = facts.read(&format!("{folder}/enabled")).is_ok_and(|word| word == "0");
        if limit < rating && !is_off && lowest.as_ref().is_none_or(|(least, _)| limit < *least) {
            let answer = warning(format!(
                "{zone}: the {} power limit is {} W, below the rating of {} W",
                name.replace('_', "-"),
                limit / 1_000_000,
                rating / 1_000_000
            ));
            let answer = answer.seen(path.clone(), limit.to_string()).seen(place, rating.to_string());
            lowest = Some((limit, answer.fix(raise(name, rating as f64 / 1e6))));
        } else if is_off {
            let off = note(format!("{zone}: the power limits are not enabled"))
                .seen(format!("{folder}/enabled"), "0")
                .person(format!("write 1 to {folder}/enabled"));
            lowest.get_or_insert((u64::MAX, off));
        }
        shown.get_or_insert((path, limit));
    }
    if let Some((_, answer)) = lowest {
        return answer;
    }
    match shown {
        Some((path, limit)) => {
            ok("no long-term power limit is below the rating").seen(path, limit.to_string())
        }
        None => unknown(match facts.kind() {
            Kind::Recorded => Unseen::NotRecorded("a power limit".to_owned()),
            _ => "neither the powercap zones nor the power limit registers can be read".into(),
        }),
    }
}

/// Returns the highest frequency that a policy's limit can select: the top of acpi-cpufreq's table,
/// because its boost ignores limits, or else the hardware's highest frequency.
pub(super) fn top_of_table(policy: &super::Policy) -> Option<u64> {
    let highest = policy.number("cpuinfo_max_freq")?;
    let table = policy.get("scaling_available_frequencies");
    let top = table.and_then(|list| list.split_whitespace().filter_map(|khz| khz.parse().ok()).max());
    Some(top.map_or(highest, |top: u64| top.min(highest)))
}

fn bios_limit(facts: &Facts) -> Option<Answer> {
    let (mut shown, mut lowest) = (None, None);
    let mut limited = CpuList::new();
    for policy in &facts.policies {
        let (Some(limit), Some(top)) = (policy.number("bios_limit"), top_of_table(policy)) else { continue };
        if limit > 0 && limit < top {
            limited.extend(policy.cpus.iter());
            if lowest.as_ref().is_none_or(|(_, least, _)| limit < *least) {
                lowest = Some((policy.path("bios_limit"), limit, top));
            }
        }
        shown.get_or_insert((policy.path("bios_limit"), limit));
    }
    if let Some((path, limit, top)) = lowest {
        let what =
            format!("the firmware limits {} to {} MHz of {}", cpu_words(&limited), limit / 1000, top / 1000);
        return Some(
            warning(what)
                .seen(path, limit.to_string())
                .firmware("look for a power or thermal cap, or a management controller's limit"),
        );
    }
    let (path, limit) = shown?;
    Some(ok("the firmware sets no frequency limit").seen(path, limit.to_string()))
}

/// The first kernel with drivers for Speed Select and the uncore in TPMI.
const WITH_TPMI: (u32, u32) = (6, 5);
const REMEDY_TPMI: &str = "Linux 6.5 or newer";

fn uncore(facts: &Facts) -> Option<Answer> {
    let root = "/sys/devices/system/cpu/intel_uncore_frequency";
    let mut domains = facts.list(root);
    if domains.is_empty() {
        // drivers/platform/x86/intel-uncore-frequency.c was added in 5.6.
        if models::before_uncore_control(facts) {
            return None;
        }
        let is_tpmi = models::has_tpmi(facts.model);
        let remedy = match facts.kernel_version() {
            Some(version) if is_tpmi && version < WITH_TPMI => REMEDY_TPMI,
            Some(version) if version < (5, 6) => "Linux 5.6 or newer",
            _ if is_tpmi => "modprobe intel_uncore_frequency_tpmi",
            _ => "modprobe intel_uncore_frequency",
        };
        return (facts.vendor == Vendor::Intel).then(|| unknown(facts.missing(root, remedy)));
    }
    // The entry of a package with clusters shows the range over all of them
    // (uncore-frequency-tpmi.c).
    if domains.iter().any(|name| is_uncore_cluster(name)) {
        domains.retain(|name| is_uncore_cluster(name));
    }
    let mut shown = None;
    let mut unread = None;
    // Initial values are those that the driver found when it was loaded, usually firmware's choice.
    let mut found: [Vec<Uncore>; 4] = Default::default();
    for domain in &domains {
        let number = |name: &str| {
            facts.read(&format!("{root}/{domain}/{name}")).ok().and_then(|text| text.parse::<u64>().ok())
        };
        let read = || {
            let (min, max) = (number("min_freq_khz")?, number("max_freq_khz")?);
            let (low, high) = (number("initial_min_freq_khz")?, number("initial_max_freq_khz")?);
            Some(Uncore { name: domain.clone(), min, max, low, high })
        };
        let Some(domain) = read() else {
            unread.get_or_insert(domain.clone());
            continue;
        };
        shown.get_or_insert((format!("{root}/{}/max_freq_khz", domain.name), domain.text()));
        match &domain {
            // The driver checks each end only against the hardware, so min and max can be swapped.
            Uncore { min, max, .. } if min > max => found[0].push(domain),
            Uncore { max, high, .. } if max < high => found[1].push(domain),
            // If firmware fixes the frequency, there is no range in which to raise the minimum.
            Uncore { min, low, high, .. } if min > low && low < high => found[2].push(domain),
            Uncore { min, max, .. } if min == max => found[3].push(domain),
            _ => {}
        }
    }
    let [crossed, lowered, raised, fixed] = &found;
    let seen = |answer: Answer, domains: &[Uncore]| {
        domains
            .iter()
            .take(4)
            .fold(answer, |answer, domain| answer.seen(format!("{root}/{}", domain.name), domain.text()))
    };
    let which = |domains: &[Uncore]| match domains {
        [one] => format!("{} ({})", one.name, one.text()),
        [one, ..] => format!("{} and {} more ({})", one.name, domains.len() - 1, one.text()),
        [] => String::new(),
    };
    if !crossed.is_empty() {
        let answer = super::fault(format!("the uncore's minimum is above its maximum: {}", which(crossed)));
        return Some(seen(answer, crossed).set(Id::UncoreMinFreq, "min"));
    }
    if !lowered.is_empty() {
        let answer = warning(format!("the uncore's maximum is lowered: {}", which(lowered)));
        return Some(seen(answer, lowered).set(Id::UncoreMaxFreq, "max"));
    }
    if !raised.is_empty() {
        let answer = note(format!(
            "the uncore's minimum is raised, which takes power from the cores: {}",
            which(raised)
        ));
        return Some(seen(answer, raised).set(Id::UncoreMinFreq, "min"));
    }
    if !fixed.is_empty() {
        return Some(seen(note(format!("the uncore is fixed by firmware: {}", which(fixed))), fixed));
    }
    if let Some(domain) = unread {
        return Some(unknown(format!("the frequencies of {root}/{domain} cannot all be read")));
    }
    let (place, text) = shown?;
    Some(ok(format!("the uncore may use its whole range ({text})")).seen(place, text))
}

/// The limits of an uncore domain, now and as firmware set them, in kHz.
struct Uncore {
    name: String,
    min: u64,
    max: u64,
    low: u64,
    high: u64,
}

impl Uncore {
    fn text(&self) -> String {
        format!("{} to {} MHz", self.min / 1000, self.max / 1000)
    }
}

/// CPUs by the level that each guarantees.
type ByLevel = std::collections::BTreeMap<u64, CpuList>;

fn with_levels(answer: Answer, groups: &ByLevel) -> Answer {
    groups.iter().take(4).fold(answer, |answer, (level, cpus)| {
        answer.seen(format!("MSR 0x771 bits 15:8 of {}", cpu_words(cpus)), level.to_string())
    })
}

/// Reports a processor that grants less than the highest frequency that the driver found when it
/// started: bits 7:0 of the capabilities (Intel SDM 3, IA32_HWP_CAPABILITIES).
fn highest_below_range(facts: &Facts, values: &[(u32, u64)]) -> Option<Answer> {
    let mut low = CpuList::new();
    let mut evidence = None;
    for policy in &facts.policies {
        let Some(highest) = policy.number("cpuinfo_max_freq") else { continue };
        let of_policy = values.iter().find(|(cpu, _)| policy.cpus.contains(*cpu));
        let Some((cpu, level)) = of_policy.map(|(cpu, value)| (*cpu, value & 0xff)) else { continue };
        if level * 100_000 * 100 < highest * 99 {
            low.extend(policy.cpus.iter());
            evidence.get_or_insert((policy.path("cpuinfo_max_freq"), highest, cpu, level));
        }
    }
    let (path, highest, cpu, level) = evidence?;
    let what = format!(
        "the processor grants {} at most {} MHz, less than the driver's highest of {} MHz",
        cpu_words(&low),
        level * 100,
        highest / 1000
    );
    Some(
        warning(what)
            .seen(format!("MSR 0x771 bits 7:0 of CPU {cpu}"), level.to_string())
            .seen(path, highest.to_string())
            .firmware("look for a turbo ratio limit, a power cap or a management controller's limit"),
    )
}

fn guaranteed(facts: &Facts) -> Option<Answer> {
    // Levels of hybrid processors are not ratios of 100 MHz (intel_pstate's hybrid scaling).
    if !models::family_6(facts) || !facts.flag("hwp") || facts.policies.iter().any(|p| p.core_type.is_some())
    {
        return None;
    }
    // If HWP is off, the capabilities do not apply, and some processors fault on the register.
    if facts.msr(first_cpu(facts), MSR_PM_ENABLE).is_ok_and(|value| value & 1 == 0) {
        return None;
    }
    let values = seen!(facts.msr_everywhere(MSR_HWP_CAPABILITIES));
    if let Some(answer) = highest_below_range(facts, &values) {
        return Some(answer);
    }
    let info = seen!(facts.msr(first_cpu(facts), MSR_PLATFORM_INFO));
    // Speed Select's levels and configurable power levels (MSR 0xce bits 34:33). On laptops that
    // can be configured upwards, bits 15:8 of that register are the highest such level. The
    // processor's nominal level is in MSR 0x648.
    let has_levels = (info >> 33) % 4 != 0;
    let nominal = has_levels.then(|| facts.msr(first_cpu(facts), MSR_CONFIG_TDP_NOMINAL));
    let (base, place) = match nominal {
        Some(Ok(value)) => (value & 0xff, "MSR 0x648 bits 7:0"),
        _ => (info >> 8 & 0xff, "MSR 0xce bits 15:8"),
    };
    if base == 0 {
        return Some(unknown(format!("{place}: no base ratio")));
    }
    // Speed Select knows the base of the current level, which need not be the first level.
    let levels = match facts.levels() {
        Some(Ok(levels)) => levels.as_slice(),
        _ => &[],
    };
    let level_of = |cpu: u32| levels.iter().find(|level| level.base > 0 && level.cpus.contains(cpu));
    let (mut below, mut above) = (ByLevel::new(), ByLevel::new());
    for (cpu, value) in values {
        let (level, base) = (value >> 8 & 0xff, level_of(cpu).map_or(base, |level| level.base));
        let groups = if level > base { &mut above } else { &mut below };
        if level != base {
            groups.entry(level).or_default().insert(cpu);
        }
    }
    let (base, place) = match levels.first().filter(|level| level.base > 0) {
        Some(level) => (level.base, format!("Speed Select level of {}", level.place)),
        None => (base, place.to_owned()),
    };
    let seen = |answer: Answer| answer.seen(place.as_str(), base.to_string());
    if below.is_empty() {
        return Some(seen(ok("no CPU guarantees less than the base frequency")));
    }
    // Only base-freq gives some CPUs more than the base and others less. Speed Select's driver
    // knows whether it is on. Without the driver, infer it.
    let has_base_freq = if levels.is_empty() {
        !above.is_empty() && models::server(facts.model)
    } else {
        levels.iter().any(|level| level.base_freq)
    };
    if has_base_freq {
        let count = |groups: &ByLevel| groups.values().map(CpuList::len).sum::<usize>();
        let what = format!(
            "Speed Select's base-freq (SST-BF) is on: {} CPUs guarantee more than the base frequency of {} MHz, {} less",
            count(&above),
            base * 100,
            count(&below)
        );
        return Some(seen(with_levels(with_levels(note(what), &above), &below)));
    }
    // Servers cannot be configured upwards. On other machines the highest level does not matter.
    if let Some(Err(why)) = nominal
        && !models::server(facts.model)
    {
        return Some(unknown(why));
    }
    let cpus: CpuList = below.values().flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
    let what = format!("{} guarantee less than the base frequency of {} MHz", cpu_words(&cpus), base * 100);
    // Speed Select's levels, base-freq and configurable power levels lower the guarantee on
    // purpose.
    let answer = if has_levels {
        note(format!("{what}, as a Speed Select level, base-freq or a configurable power level makes them"))
    } else {
        warning(what).firmware(
            "raise the package power limit (PL1, cTDP), and look for a management controller's power cap",
        )
    };
    Some(seen(with_levels(answer, &below)))
}

fn speed_select(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let advice =
        || Fix::Firmware("look for Speed Select, dynamic SST-PP or Configurable TDP lock".to_owned());
    let locked = || note("the performance level is locked by firmware").fix(advice());
    // Prefer the lock that Speed Select obeys, if its driver is loaded.
    match facts.levels() {
        Some(Ok(levels)) => {
            let first = levels.iter().find(|level| level.levels.locked).or(levels.first())?;
            let (answer, word) = if first.levels.locked {
                (locked(), "locked")
            } else {
                (ok("the performance level is not locked"), "not locked")
            };
            return Some(answer.seen(format!("Speed Select level of {}", first.place), word));
        }
        Some(Err(error)) => return Some(unknown(format!("Speed Select's level cannot be read: {error}"))),
        None => {}
    }
    // Only processors with several configurable TDP levels have a lock (MSR 0xCE bits 34:33).
    let info = facts.msr(first_cpu(facts), MSR_PLATFORM_INFO).ok()?;
    if (info >> 33) % 4 == 0 || models::is_skylake_server(facts) {
        return None;
    }
    if models::has_tpmi(facts.model) {
        let is_old = facts.kernel_version().is_some_and(|version| version < WITH_TPMI);
        let remedy = if is_old { REMEDY_TPMI } else { "modprobe isst_tpmi" };
        return Some(unknown(facts.missing("Speed Select's driver", remedy)));
    }
    Some(match facts.msr(first_cpu(facts), MSR_CONFIG_TDP_CONTROL) {
        Ok(value) if value >> 31 & 1 == 1 => locked().seen("MSR 0x64b bit 31", "1"),
        Ok(value) => ok("the performance level is not locked").seen("MSR 0x64b", format!("{value:#x}")),
        Err(why) => unknown(why),
    })
}

fn bd_prochot(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel || facts.family != 6 {
        return None;
    }
    Some(match facts.msr_everywhere(MSR_IA32_POWER_CTL) {
        Err(why) => unknown(why),
        Ok(values) => {
            let ignoring: CpuList =
                // Bit 0 enables the pin as an input (Intel SDM 4, MSR_POWER_CTL). If it is 0, the
                // pin is ignored.
                values.iter().filter(|(_, value)| value & 1 == 0).map(|(cpu, _)| *cpu).collect();
            let place = format!("MSR {MSR_IA32_POWER_CTL:#x} bit 0");
            if ignoring.is_empty() {
                ok("external PROCHOT is enabled, as it should be; now.prochot shows whether it is asserted")
                    .seen(place, "1")
            } else {
                note(format!(
                    "external PROCHOT is disabled on CPUs {ignoring}: power supply and regulators cannot slow them"
                ))
                .seen(place, "0")
                .firmware("set BD PROCHOT (bi-directional PROCHOT) to Enabled")
            }
        }
    })
}

fn smt(facts: &Facts) -> Option<Answer> {
    let path = "/sys/devices/system/cpu/smt/control";
    match facts.read(path) {
        Ok(word) => Some(match word.as_str() {
            "on" => ok("SMT is on").seen(path, word),
            "off" | "forceoff" if facts.parameter("nosmt").is_some() => {
                note("SMT is switched off by nosmt on the command line")
                    .seen(path, word)
                    .seen("/proc/cmdline", "nosmt")
            }
            "off" | "forceoff" => note("SMT is switched off at run time").seen(path, word),
            // The kernel found no sibling, for whatever reason (cpu_smt_check_topology).
            "notsupported" => {
                ok("SMT is off in firmware, or the processor does not have it").seen(path, word)
            }
            // CONFIG_HOTPLUG_SMT is not set, as on Arm servers (kernel/cpu.c).
            "notimplemented" => ok("this kernel has no switch for SMT").seen(path, word),
            _ => note(format!("SMT control reads {word}")).seen(path, word),
        }),
        Err(why) => Some(unknown(why)),
    }
}
