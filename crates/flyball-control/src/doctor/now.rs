//! Checks of the current state: throttling, heat, offline CPUs, other programs that write the same
//! settings, and whether the processors are visible at all.

use std::{collections::BTreeMap, time::Duration};

use flyball_host::{
    CpuList, Host, Kind,
    msr::MSR_IA32_THERM_STATUS,
    topology::{CPUS, POLICIES},
};

use super::{
    Answer, Check, Evidence, Facts, NotVisible, Unseen, Vendor, facts::cpu_words, fault,
    limits::package_status, note, ok, unknown, warning,
};
use crate::{Id, ThermStatus};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "now.throttled",
        "A throttled processor runs slower than its settings allow.",
        "thermal_throttle counters of every CPU, twice within a quarter of a second",
        throttled,
    )
    .covers(&["cpuN/thermal_throttle/core_throttle_count", "cpuN/thermal_throttle/package_throttle_count"]),
    Check::new(
        "now.prochot",
        "A power supply, voltage regulator or management controller can assert PROCHOT and slow a cold processor.",
        "MSR 0x19c bits 0 to 3 of every CPU and 0x1b1 of its package, and how far a CPU is below its limit",
        prochot,
    ),
    Check::new(
        "now.temperature",
        "Within a few degrees of its limit a processor lowers turbo first and then the base frequency.",
        "the sensors of coretemp, k10temp and zenpower, with their limits",
        temperature,
    ),
    Check::new(
        "now.clock-source",
        "Without the TSC each reading of the time takes a microsecond instead of 20 ns, which slows work and blurs measurements.",
        "clocksource0/current_clocksource and available_clocksource; tsc=, notsc and clocksource= on the command line",
        clock_source,
    ),
    Check::new(
        "now.offline",
        "CPUs that are offline do no work, and return with the settings that they had.",
        "cpu/online, cpu/present and smt/control",
        offline,
    ),
    Check::new(
        "now.owners",
        "A service that manages the same settings overwrites yours, immediately or at the next event.",
        "the names of running processes, and files that services leave",
        owners,
    ),
];

/// Returns a report if the machine is a virtual machine or a container without cpufreq, which hides
/// its processors.
pub(super) fn not_visible(facts: &Facts) -> Option<NotVisible> {
    if facts.driver().is_some() {
        return None;
    }
    // CPUID leaf 1, ECX bit 31. Hypervisors set it for their guests, processors never do.
    if facts.flag("hypervisor") {
        return Some(NotVisible {
            what: "this is a virtual machine, and its hypervisor offers no frequency control".to_owned(),
            remedy: "driver, firmware, limits and throttling are the host's: run flyball doctor there, \
                     or examine another machine with -M"
                .to_owned(),
            evidence: vec![
                Evidence { place: "/proc/cpuinfo flags".to_owned(), value: "hypervisor".to_owned() },
                Evidence { place: POLICIES.to_owned(), value: "no policies".to_owned() },
            ],
        });
    }
    let container = container(|path| facts.exists(path))?;
    let evidence = vec![
        Evidence { place: container.to_owned(), value: "present".to_owned() },
        Evidence { place: POLICIES.to_owned(), value: "no policies".to_owned() },
    ];
    Some(NotVisible {
        what: "this is a container without access to frequency control".to_owned(),
        remedy: "run flyball doctor on the host, or give the container the host's /sys".to_owned(),
        evidence,
    })
}

/// Returns the file that a container engine has left in the root directory: Docker's, Podman's, or
/// the file for systemd.
fn container(exists: impl Fn(&str) -> bool) -> Option<&'static str> {
    ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"].into_iter().find(|path| exists(path))
}

/// Returns a report if the processors' folder is missing, which every real machine has.
pub(super) fn nothing_visible(host: &dyn Host) -> Option<NotVisible> {
    if host.exists(CPUS) || host.kind() == Kind::Recorded {
        return None;
    }
    let mut evidence = vec![Evidence { place: CPUS.to_owned(), value: "missing".to_owned() }];
    let what = match container(|path| host.exists(path)) {
        Some(container) => {
            evidence.push(Evidence { place: container.to_owned(), value: "present".to_owned() });
            "this is a container without the machine's /sys"
        }
        None => "the kernel's view of the processors is not mounted: a container or a sandbox",
    };
    Some(NotVisible {
        what: what.to_owned(),
        remedy: "run flyball on the host, or mount sysfs on /sys".to_owned(),
        evidence,
    })
}

/// The throttle counters: core events by CPU, package events by package. Every CPU of a package
/// counts the package events (therm_throt.c).
#[derive(Debug, Clone, PartialEq, Default)]
struct Throttled {
    cores: BTreeMap<u32, u64>,
    packages: BTreeMap<u32, u64>,
}

impl Throttled {
    fn sum(&self) -> u64 {
        self.cores.values().chain(self.packages.values()).sum()
    }
}

/// Reads the throttle counters; `None` if there are none, as on AMD.
fn throttle_counts(facts: &Facts) -> Option<Throttled> {
    let mut counts = None;
    for cpu in facts.online.iter() {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/{name}");
            // Bypass the cache: the counters are read twice, to see whether they increase.
            facts.read_again(&path).ok().and_then(|text| text.parse::<u64>().ok())
        };
        if let Some(core) = read("core_throttle_count") {
            let counts: &mut Throttled = counts.get_or_insert_default();
            counts.cores.insert(cpu, core);
            // Processors without a package sensor have no such counter.
            match read("package_throttle_count") {
                Some(events) => {
                    let package = facts.topology().cpus.get(&cpu).and_then(|cpu| cpu.package).unwrap_or(0);
                    let known = counts.packages.entry(package).or_default();
                    *known = (*known).max(events);
                }
                // A CPU with a package sensor has the counter (therm_throt.c). Without its events,
                // the sum would be too small.
                None if facts.flag("pts") => return None,
                None => {}
            }
        }
    }
    counts
}

/// Reports CPUs that cppc_cpufreq says the platform limited.
fn reports(facts: &Facts) -> Answer {
    let mut limited = CpuList::new();
    let mut seen = None;
    for policy in &facts.policies {
        let path = policy.path("perf_limited");
        match facts.read(&path) {
            Ok(bits) if bits.parse::<u8>().is_ok() => {
                if bits != "0" {
                    limited.extend(policy.cpus.iter());
                }
                if bits != "0" || seen.is_none() {
                    seen = Some((path, bits));
                }
            }
            _ => {
                return unknown(format!(
                    "{path}: the firmware reports no limits, or Linux is older than 7.2"
                ));
            }
        }
    }
    let Some((path, bits)) = seen else { return unknown("no policy can be read") };
    if limited.is_empty() {
        ok("the platform has reported no limit since the report was last cleared").seen(path, bits)
    } else {
        note(format!(
            "the platform limited {}, some time since the report was last cleared",
            cpu_words(&limited)
        ))
        .seen(path, bits)
        .person("look under load: flyball why says whether the limit acts now")
    }
}

fn throttled(facts: &Facts) -> Option<Answer> {
    let place = "/sys/devices/system/cpu/cpuN/thermal_throttle";
    let Some(before) = throttle_counts(facts) else {
        return Some(match facts.vendor {
            _ if facts.driver() == Some("cppc_cpufreq") => reports(facts),
            Vendor::Amd => unknown("AMD processors have no throttle counters in sysfs"),
            _ => unknown(facts.missing(place, "")),
        });
    };
    // A recording does not change, so waiting is useless.
    if facts.kind() != Kind::Recorded {
        facts.wait(Duration::from_millis(250));
    }
    // A CPU that went offline in between has no second count.
    let after = throttle_counts(facts).unwrap_or_else(|| before.clone());
    let seen = |answer: Answer| {
        let cores: CpuList =
            after.cores.iter().filter(|(_, count)| **count > 0).map(|(cpu, _)| *cpu).collect();
        let events: u64 = after.cores.values().sum();
        let of = if cores.is_empty() { String::new() } else { format!(", on {}", cpu_words(&cores)) };
        let answer = answer.seen(format!("{place}/core_throttle_count"), format!("{events} in all{of}"));
        after.packages.iter().take(4).fold(answer, |answer, (package, events)| {
            answer.seen(format!("{place}/package_throttle_count of package {package}"), events.to_string())
        })
    };
    Some(seen(if after.sum() > before.sum() {
        fault("the processor is being throttled because of heat").person(
            "check fans, air flow and the heat sink; until then lower the power with max-freq or turbo=off",
        )
    } else if after.sum() > 0 {
        note("the processor was throttled because of heat since boot, but is not now")
            .person("look again under load; if it throttles, check fans, air flow and the heat sink")
    } else {
        ok("not throttled because of heat since boot")
    }))
}

fn prochot(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let cores = seen!(facts.msr_everywhere(MSR_IA32_THERM_STATUS));
    let of_core = |(cpu, value): (u32, u64)| {
        (format!("CPU {cpu}"), format!("MSR 0x19c of CPU {cpu}"), ThermStatus(value))
    };
    let of_package = |(package, value): (u32, u64)| {
        let place = format!("MSR 0x1b1 of package {package}");
        (format!("package {package}"), place, ThermStatus(value))
    };
    let (packages, unread) = match package_status(facts) {
        Ok(packages) => (packages, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let all: Vec<_> = cores.into_iter().map(of_core).chain(packages.into_iter().map(of_package)).collect();
    for (name, place, status) in &all {
        let (hot, asserted) = (status.shows(ThermStatus::HOT), status.shows(ThermStatus::PROCHOT));
        let below = status.below();
        // More than ten degrees exceed a sensor's error, so the processor's heat is not the cause.
        let is_cold = below.is_some_and(|below| below > 10);
        let answer = if asserted && !hot || hot && is_cold {
            let margin =
                below.map_or_else(String::new, |below| format!(", which is {below} degrees below its limit"));
            fault(format!("PROCHOT is asserted on {name}{margin}")).person(
                "something outside the processor asserts it: check the power supply or charger, \
                 the voltage regulators' temperature and the management controller's log",
            )
        } else if hot {
            fault(format!("{name} is at its temperature limit"))
                .person("check fans, air flow and the heat sink")
        } else {
            continue;
        };
        return Some(answer.seen(place.as_str(), format!("{:#x}", status.0)));
    }
    // A reported limit is enough. Reporting none requires the package registers too.
    if let Some(why) = unread {
        return Some(unknown(why));
    }
    let logged = [
        (ThermStatus::PROCHOT, "PROCHOT was asserted"),
        (ThermStatus::HOT, "the processor was at its temperature limit"),
    ]
    .into_iter()
    .find_map(|(bit, what)| {
        let mut logged = all.iter().filter(|(.., status)| status.has_logged(bit));
        let (name, place, status) = logged.next()?;
        let more = match logged.count() {
            0 => String::new(),
            more => format!(" and {more} more places"),
        };
        let what = format!("{what} on {name}{more} since the log was cleared, but is not now");
        Some(note(what).seen(place.as_str(), format!("{:#x}", status.0)))
    });
    Some(logged.unwrap_or_else(|| {
        ok("PROCHOT is not asserted on any CPU").seen("MSR 0x19c, 0x1b1", "bits 0 to 3 clear")
    }))
}

/// Degrees below the limit that count as at the limit: sensors step by one degree and are accurate
/// to a few.
const NEAR: f64 = 3.0;

/// AMD's processors throttle at 89 to 100 C, and k10temp has no limit.
const HOT_AMD: f64 = 93.0;

/// Reads the temperature from Intel's registers, if no sensor driver is loaded.
fn digital_readout(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    let Ok(values) = facts.msr_everywhere(MSR_IA32_THERM_STATUS) else { return None };
    let (below, cpu, value) = values
        .into_iter()
        .filter_map(|(cpu, value)| Some((ThermStatus(value).below()?, cpu, value)))
        .min()?;
    // One reading can prove heat. Only the sensors can prove that nothing is hot.
    (below as f64 <= NEAR).then(|| {
        warning(format!("CPU {cpu} is {below} degrees below its limit"))
            .seen(format!("MSR 0x19c of CPU {cpu}"), format!("{value:#x}"))
            .person("check fans, air flow and the heat sink")
    })
}

/// Checks the kernel's clock. The kernel stops using the TSC if it differs between CPUs
/// (clocksource watchdog), and logs that.
fn clock_source(facts: &Facts) -> Option<Answer> {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let path = format!("{folder}/current_clocksource");
    let word =
        |word: &&str| matches!(*word, "tsc=unstable" | "notsc" | "clocksource=hpet" | "clocksource=acpi_pm");
    let current = facts.read(&path);
    let is_slow =
        |clock: &String| matches!(clock.as_str(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies");
    // The command line alone proves nothing: a guest has kvm-clock despite notsc, and the clock can
    // be changed at run time.
    if current.as_ref().map_or(true, is_slow)
        && let Some(word) = facts.cmdline.as_deref().and_then(|line| line.split_whitespace().find(word))
    {
        let what = format!("{word} on the command line keeps the kernel from telling time by the TSC");
        let mut answer = warning(what).seen("/proc/cmdline", word);
        if let Ok(clock) = current {
            answer = answer.seen(path, clock);
        }
        return Some(answer.parameter(format!("remove {word}, unless the TSC of this machine is broken")));
    }
    // Only artificial machines and recordings lack it.
    let clock = current.ok()?;
    if !is_slow(&clock) {
        return Some(ok(format!("the kernel tells time by {clock}")).seen(path, clock));
    }
    let answer = warning(format!(
        "the kernel tells time by {clock}: reading it takes a microsecond, and a busy machine reads it often"
    ))
    .seen(path, clock);
    let available = facts.read(&format!("{folder}/available_clocksource")).unwrap_or_default();
    // The kernel removes a TSC that it does not trust from the list.
    let is_offered = available.split_whitespace().any(|clock| clock == "tsc");
    let advice = if is_offered {
        format!(
            "write tsc to {folder}/current_clocksource: the kernel offers it, and a program chose otherwise"
        )
    } else {
        "see why in the kernel log ('TSC' or 'clocksource'), and update the firmware".to_owned()
    };
    Some(answer.seen(format!("{folder}/available_clocksource"), available).person(advice))
}

fn temperature(facts: &Facts) -> Option<Answer> {
    let root = "/sys/class/hwmon";
    let mut hottest: Option<(f64, Option<f64>, String)> = None;
    let mut unread = None;
    for device in facts.list(root) {
        let folder = format!("{root}/{device}");
        match facts.read(&format!("{folder}/name")) {
            Ok(name) if matches!(name.as_str(), "coretemp" | "k10temp" | "zenpower") => {}
            Ok(_) => continue,
            Err(why) => {
                unread.get_or_insert(why);
                continue;
            }
        }
        for file in facts.list(&folder) {
            let Some((sensor, kind)) = file.split_once('_').filter(|(name, _)| name.starts_with("temp"))
            else {
                continue;
            };
            if kind != "input" {
                // The sensor has limits but no reading.
                if !facts.exists(&format!("{folder}/{sensor}_input")) {
                    unread.get_or_insert(format!("{folder}/{sensor}_input does not exist").into());
                }
                continue;
            }
            let number = |suffix: &str| {
                let text = facts.read(&format!("{folder}/{sensor}_{suffix}")).ok()?;
                text.parse::<f64>().ok().map(|millidegrees| millidegrees / 1000.0)
            };
            if let Some(now) = number("input")
                && hottest.as_ref().is_none_or(|(most, ..)| now > *most)
            {
                // `crit` is Tjmax on coretemp.
                hottest = Some((now, number("crit").or_else(|| number("max")), format!("{folder}/{file}")));
            }
        }
    }
    if let Some(why) = unread
        && !hottest.as_ref().is_some_and(|(now, limit, _)| limit.is_some_and(|limit| *now >= limit - NEAR))
    {
        return Some(unknown(why));
    }
    let Some((now, limit, place)) = hottest else {
        if let Some(answer) = digital_readout(facts) {
            return Some(answer);
        }
        let sensor = match facts.vendor {
            Vendor::Other => "a temperature sensor of the processor under /sys/class/hwmon",
            _ => "a coretemp or k10temp sensor under /sys/class/hwmon",
        };
        return Some(unknown(facts.missing(sensor, "")));
    };
    Some(
        match limit {
            Some(limit) if now >= limit - NEAR => {
                warning(format!("the hottest sensor is at {now:.0} C, its limit is {limit:.0} C"))
                    .person("check fans, air flow and the heat sink")
            }
            Some(limit) => {
                ok(format!("the hottest sensor is at {now:.0} C, {:.0} below its limit", limit - now))
            }
            None if facts.vendor == Vendor::Amd && now >= HOT_AMD => {
                warning(format!("the hottest sensor is at {now:.0} C, near the limit of AMD's processors"))
                    .person("check fans, air flow and the heat sink")
            }
            None => unknown(format!("the hottest sensor is at {now:.0} C, and has no limit to compare with")),
        }
        .seen(place, format!("{now:.1} C")),
    )
}

fn offline(facts: &Facts) -> Option<Answer> {
    let off = facts.present.difference(&facts.online);
    let path = "/sys/devices/system/cpu/online";
    if let Some(why) =
        [path, "/sys/devices/system/cpu/present"].into_iter().find_map(|path| facts.read(path).err())
    {
        return Some(unknown(why));
    }
    if facts.online.is_empty() {
        return Some(unknown(format!("{path} cannot be read")));
    }
    // With SMT off, the siblings are offline on purpose.
    let smt_off = facts.read("/sys/devices/system/cpu/smt/control").is_ok_and(|word| word.contains("off"));
    Some(
        if off.is_empty() {
            ok("every CPU is online")
        } else if smt_off {
            note(format!("{} are offline; SMT is switched off", cpu_words(&off)))
        } else if let Some(count) = facts.parameter("maxcpus") {
            let parameter = format!("maxcpus={count}");
            note(format!("{} are offline: {parameter} is on the command line", cpu_words(&off)))
                .seen("/proc/cmdline", parameter.as_str())
                .parameter(format!("remove {parameter}; until the next boot: flyball set online=on"))
        } else {
            note(format!("{} are offline", cpu_words(&off))).set(Id::Online, "on")
        }
        .seen(path, facts.online.to_string()),
    )
}

fn owners(facts: &Facts) -> Option<Answer> {
    if !facts.sees_processes {
        return Some(unknown(match facts.kind() {
            Kind::Recorded => Unseen::NotRecorded("the list of processes".to_owned()),
            _ => "the machine's processes are not visible".into(),
        }));
    }
    let Some(first) = facts.owners.first() else {
        return Some(ok("no service is known to manage these settings").seen("/proc", "none of them runs"));
    };
    let names: Vec<&str> = facts.owners.iter().map(|owner| owner.name).collect();
    let answer = note(format!("{} may overwrite settings", names.join(" and ")));
    let answer = facts.owners.iter().fold(answer, |answer, owner| {
        let pid = owner.pid.map_or_else(|| "has left its files".to_owned(), |pid| format!("process {pid}"));
        answer.seen(owner.name, pid)
    });
    Some(answer.person(first.remedy))
}
