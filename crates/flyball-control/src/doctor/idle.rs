//! CPUs whose idle states or missing ticks work against the frequency driver.

use std::collections::{BTreeMap, BTreeSet};

use flyball_host::{
    CpuList,
    cpuidle::{ExitRate, WORTH_MS, costliest, lost_ms},
    isolation::{self, Isolation},
    msr::MSR_PM_ENABLE,
};

use super::{
    Answer, Check, Facts, Unseen, Vendor, facts::cpu_words, fault, firmware::firmware_turbo, models, note,
    ok, unknown, warning,
};
use crate::{CoreType, FirmwareTurbo, Id};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "conflict.nohz-full",
        "On isolated tickless CPUs intel_pstate's update may never run, so a busy CPU stays at its lowest speed.",
        "nohz_full= and isolcpus= on the command line, cpu/nohz_full, cpu/isolated, driver, governor and HWP; with --trace the \
            driver's decisions",
        nohz_full,
    ),
    Check::new(
        "conflict.observer",
        "Reading a register of a tickless CPU interrupts it, so that a benchmark there can measure its observer.",
        "nohz_full= and isolcpus= on the command line, cpu/nohz_full, cpu/isolated, the packages, the kernel's release",
        observer,
    ),
    Check::new(
        "conflict.interrupts",
        "A CPU that is kept free of other work still serves the interrupts that irqaffinity= sends to it.",
        "irqaffinity=, nohz_full= and isolcpus= on the command line, cpu/nohz_full, cpu/isolated",
        interrupts,
    ),
    Check::new(
        "conflict.cpuidle",
        "Without idle states idle CPUs waste power and reduce the turbo headroom of busy ones.",
        "cpuidle/current_driver, the states' names, disable and default_status files; idle=, max_cstate= and cpuidle.off= on the command line",
        cpuidle,
    ),
    Check::new(
        "conflict.idle-governor",
        "An idle governor for another kind of machine enters deep states late, which costs power and turbo headroom.",
        "cpuidle/current_governor and current_governor_ro",
        idle_governor,
    ),
    Check::new(
        "conflict.exit-latency",
        "Work that sleeps and wakes often waits for a deep idle state's exit each time.",
        "latency of the first CPU's idle states, usage of the deep ones of every CPU, /proc/uptime",
        exit_latency,
    ),
];

/// The exit latency from which services notice it. Recent Xeons need 150 to 230 us to leave C6.
const MIN_NOTED_EXIT_US: u64 = 100;

const NO_LAST_CPU: &str =
    "cpu/possible and cpu/present cannot be read, which bound the lists of nohz_full= and isolcpus=";

const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";

/// CPUs that the kernel keeps free of other work.
struct CpusApart {
    /// The command line, shortened for evidence.
    cmdline: String,
    isolated: CpuList,
    tickless: CpuList,
    /// The tickless CPUs that the kernel reports; `None` if it has no such file.
    reported: Option<CpuList>,
}

impl CpusApart {
    /// Parses the command line. Its lists cannot be read if the last CPU is not known.
    fn new(facts: &Facts) -> Result<CpusApart, &'static str> {
        let cmdline = facts.cmdline.as_deref().ok_or("/proc/cmdline does not exist")?;
        let list = |name: &str| facts.read(&format!("/sys/devices/system/cpu/{name}")).ok();
        let asked = match facts.last_cpu() {
            Some(last) => Isolation::parse(cmdline, last),
            None if facts.parameter("nohz_full").or(facts.parameter("isolcpus")).is_some() => {
                return Err(NO_LAST_CPU);
            }
            None => Isolation::default(),
        };
        let reported = list("nohz_full").and_then(|text| isolation::reported(&text));
        // Read the kernel's result, not the parameter: the kernel refuses some lists.
        let isolated = list("isolated").and_then(|text| isolation::reported(&text));
        Ok(CpusApart {
            cmdline: shorten(cmdline),
            isolated: isolated.unwrap_or(asked.isolated),
            tickless: reported.clone().unwrap_or(asked.tickless),
            reported,
        })
    }
}

/// Lists flyball's own readings that interrupt CPUs which should be left alone. The counters in
/// /proc and of thermal_throttle do not interrupt them.
fn observer(facts: &Facts) -> Option<Answer> {
    let CpusApart { isolated, tickless, cmdline, .. } = seen!(CpusApart::new(facts));
    let apart = tickless.union(&isolated).intersection(&facts.present);
    if apart.is_empty() {
        let what = "no CPU is isolated or tickless, so that reading meters interrupts none that must not be";
        return Some(ok(what).seen("/proc/cmdline", cmdline));
    }
    // arch/x86/lib/msr-smp.c: rdmsr_safe_on_cpu() sends an interrupt to the CPU for each register.
    let mut readings = vec![format!("registers (APERF, MPERF) of CPUs {apart}")];
    // One CPU answers for its package: rapl_msr_read_raw(), and coretemp's rdmsr_on_cpu().
    let leads: CpuList = facts
        .first_of_packages()
        .unwrap_or_default()
        .into_iter()
        .map(|(_, cpu)| cpu)
        .filter(|cpu| apart.contains(*cpu))
        .collect();
    if !leads.is_empty() {
        readings.push(format!("energy and temperature of a package by CPU {leads}"));
    }
    // arch_freq_get_on_cpu() interrupted the CPU until the tick took over the counting.
    if facts.kernel_version().is_some_and(|version| ((4, 13)..(5, 18)).contains(&version)) {
        readings.push(format!("scaling_cur_freq of CPUs {apart}"));
    }
    Some(
        note(format!("isolated or tickless CPUs are interrupted by reading {}", readings.join("; ")))
            .seen("isolated or tickless", apart.to_string())
            .person(
                "measure with --observer none (compare, quiet bench), which reads nothing during a round",
            ),
    )
}

/// Compares `irqaffinity=` with the CPUs that are kept apart. The kernel applies it to new
/// interrupts only (init_irq_default_affinity() in kernel/irq/irqdesc.c), and adds the CPU that
/// boots.
fn interrupts(facts: &Facts) -> Option<Answer> {
    let list = facts.parameter("irqaffinity")?;
    let CpusApart { isolated, tickless, .. } = seen!(CpusApart::new(facts));
    let apart = tickless.union(&isolated).intersection(&facts.present);
    if apart.is_empty() {
        return None;
    }
    let asked = facts.last_cpu().and_then(|last| isolation::kernel_list(list, last));
    let Some(asked) = asked else {
        return Some(unknown(format!("irqaffinity={list} is not a list of CPUs of this machine")));
    };
    let both = asked.intersection(&apart);
    let answer = if both.is_empty() {
        ok("irqaffinity= names no CPU that is isolated or tickless")
    } else {
        warning(format!("irqaffinity= sends interrupts to isolated or tickless {}", cpu_words(&both)))
            .parameter(format!("leave {} out of irqaffinity=", cpu_words(&both)))
    };
    Some(
        answer
            .seen("/proc/cmdline", format!("irqaffinity={list}"))
            .seen("isolated or tickless", apart.to_string()),
    )
}

/// Reports tickless CPUs under a driver that changes the speed only when the scheduler calls it on
/// that CPU. Without a tick nothing calls it while one task runs, so the speed stays as it was.
/// `rcu_nocbs=` does not help: the kernel offloads the callbacks of tickless CPUs in any case
/// (rcu_init_nohz() in kernel/rcu/tree_nocb.h, since 3.10).
fn nohz_full(facts: &Facts) -> Option<Answer> {
    let CpusApart { isolated, tickless, reported, cmdline } = seen!(CpusApart::new(facts));
    let place = |answer: Answer| match &reported {
        Some(cpus) if cpus.is_empty() => answer.seen(NOHZ_FULL, "none"),
        Some(cpus) => answer.seen(NOHZ_FULL, cpus.to_string()),
        None => answer.seen("/proc/cmdline", cmdline.as_str()),
    };
    if tickless.is_empty() {
        let asked = facts.parameter("nohz_full").is_some_and(|list| !list.is_empty());
        let refused = reported.is_some();
        return Some(if asked {
            not_tickless(place, refused).seen("/proc/cmdline", cmdline.as_str())
        } else {
            place(ok("no CPU is tickless (nohz_full)"))
        });
    }
    let Some(driver) = facts.driver() else {
        return Some(unknown(format!("CPUs {tickless} are tickless; the cpufreq driver is unknown")));
    };
    // Only intel_pstate's own algorithm needs the scheduler's callback on the CPU itself
    // (intel_pstate_update_util). With hardware P-states the processor chooses, and governors of
    // other drivers also run on callbacks from other CPUs.
    if driver != "intel_pstate" || hardware_chooses(facts) {
        return Some(place(ok(format!("CPUs {tickless} are tickless, and {driver} needs no tick"))));
    }
    // Since 4.9, intel_pstate_set_policy() sets the P-state of such CPUs at once under
    // `performance`.
    let Some(version) = facts.kernel_version() else {
        return Some(unknown(
            "the kernel's release is unknown, which decides whether performance needs the tick",
        ));
    };
    let sets_at_once = version >= (4, 9);
    let performance = facts.cpus_with("scaling_governor", "performance");
    let depending = if sets_at_once { tickless.difference(&performance) } else { tickless.clone() };
    let risky = depending.intersection(&isolated);
    let seen = |answer: Answer| {
        place(answer)
            .seen("isolated", if isolated.is_empty() { "none".to_owned() } else { isolated.to_string() })
            .seen(
                "scaling_governor",
                if performance.is_empty() {
                    "none with performance".to_owned()
                } else {
                    format!("performance on CPUs {performance}")
                },
            )
    };
    // On a CPU that is not isolated, the scheduler's wake-ups of other tasks run the driver's
    // callback.
    Some(if !risky.is_empty() {
        let answer = seen(fault(format!(
            "CPUs {risky} are isolated and tickless, and {driver} changes their speed only when the scheduler calls it there"
        )));
        if sets_at_once {
            answer.set(Id::Governor, "performance")
        } else {
            answer.parameter(
                "add intel_pstate=passive, and set a fixed frequency; from kernel 4.9 on \
                           governor=performance is enough",
            )
        }
    } else if !depending.is_empty() {
        seen(note(format!(
            "CPUs {depending} are tickless, and {driver} changes their speed only when the scheduler calls it there; a trace shows \
             whether it does (--trace)"
        )))
    } else {
        seen(ok(format!(
            "CPUs {tickless} are tickless; under performance {driver} sets their speed without the tick"
        )))
    })
}

/// Reports `nohz_full=` without an effect: the file exists only in kernels with CONFIG_NO_HZ_FULL
/// (drivers/base/cpu.c).
fn not_tickless(place: impl Fn(Answer) -> Answer, has_file: bool) -> Answer {
    place(if has_file {
        note("nohz_full is on the command line, but the kernel refused its list")
            .parameter("name only possible CPUs in nohz_full=, and the same as in isolcpus=nohz,")
    } else {
        note(
            "nohz_full is on the command line, but no CPU is tickless: the kernel lacks CONFIG_NO_HZ_FULL, or it refused \
             the list",
        )
    })
}

/// Returns whether hardware P-states are on, so that the processor changes its speed without the
/// kernel. Reads the register, or else checks for preferences, which intel_pstate offers only with
/// hardware P-states.
fn hardware_chooses(facts: &Facts) -> bool {
    match facts.online.first().map(|cpu| facts.msr(cpu, MSR_PM_ENABLE)) {
        Some(Ok(value)) => value & 1 == 1,
        _ => facts.policies.iter().any(|policy| policy.get("energy_performance_preference").is_some()),
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 80 { text.to_owned() } else { text.chars().take(79).chain(['…']).collect() }
}

fn cpuidle(facts: &Facts) -> Option<Answer> {
    let path = "/sys/devices/system/cpu/cpuidle/current_driver";
    // If cpuidle.off=1 is set, the kernel does not create the directory (cpuidle_init).
    if facts.parameter("cpuidle.off") == Some("1") {
        let what = "the command line asks for no idle driver: idle CPUs then only halt";
        return Some(without(facts, warning(what), "cpuidle.off"));
    }
    let driver = seen!(facts.read(path));
    if facts.parameter("idle") == Some("poll") {
        // cpu_idle_poll() spins and never asks the idle driver.
        let what = "idle CPUs never halt: they poll at full power";
        return Some(without(facts, warning(what), "idle").seen(path, driver));
    }
    if driver == "none" {
        let names = ["idle", "processor.max_cstate", "intel_idle.max_cstate"];
        let parameter = names.into_iter().find(|name| limits_idle(facts, name, &driver));
        let answer = warning("no idle driver: idle CPUs only halt");
        let answer = match parameter {
            Some(name) => without(facts, answer, name),
            None => answer.firmware(
                "enable idle states (C-states); the kernel log says why no idle driver runs: dmesg | grep -i idle",
            ),
        };
        return Some(answer.seen(path, driver));
    }
    let seen = IdleStates::new(facts);
    if !seen.polling.is_empty() {
        let what = format!(
            "{} poll at full power while idle: every other idle state is disabled",
            super::facts::cpu_words(&seen.polling)
        );
        let place = "/sys/devices/system/cpu/cpuN/cpuidle/stateN/disable";
        let value = format!("set for all states but POLL on CPUs {}", seen.polling);
        return Some(warning(what).seen(place, value).set(Id::IdleState, "default"));
    }
    // A disabled state is a finding, even if other CPUs could not be read.
    if let Some(((state, name), cpus)) = seen.disabled.first_key_value() {
        let name = name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        let answer = note(format!(
            "{} of {} idle states are disabled, {state}{name} on CPUs {cpus}",
            seen.disabled.len(),
            seen.most
        ));
        let answer = seen.disabled.iter().take(4).fold(answer, |answer, ((state, _), cpus)| {
            answer.seen(
                format!("/sys/devices/system/cpu/cpuN/cpuidle/{state}/disable"),
                format!("set on CPUs {cpus}"),
            )
        });
        return Some(answer.set(Id::IdleState, "default"));
    }
    if let Some(why) = seen.unread {
        return Some(unknown(why));
    }
    // Only the command line shows that there are more states than the driver lists.
    if facts.cmdline.is_none() {
        return Some(unknown("/proc/cmdline does not exist"));
    }
    // The vendor decides which driver and states are usual.
    if let Err(why) = facts.read("/proc/cpuinfo") {
        return Some(unknown(why));
    }
    if let Some(answer) = cut_off(facts, &driver) {
        return Some(answer.seen(path, driver));
    }
    if let Some(answer) = unusual_states(facts, &driver, &seen) {
        return Some(answer.seen(path, driver));
    }
    let off = seen.off_by_default.len();
    let words = match off {
        0 => String::new(),
        _ => format!("; {off} more that the kernel leaves off"),
    };
    Some(
        ok(format!("idle driver {driver}, {} states, none disabled{words}", seen.most - off))
            .seen(path, driver),
    )
}

/// Returns whether a kernel parameter is given that limits this idle driver, or disables it if none
/// runs. intel_idle and its parameter do not exist for other vendors' processors.
fn limits_idle(facts: &Facts, name: &str, driver: &str) -> bool {
    facts.parameter(name).is_some()
        && match name {
            "intel_idle.max_cstate" => facts.vendor == Vendor::Intel,
            "processor.max_cstate" => driver != "intel_idle",
            _ => true,
        }
}

/// Advises removing a kernel parameter, by its name.
fn without(facts: &Facts, answer: Answer, name: &str) -> Answer {
    without_parameter(answer, &format!("{name}={}", facts.parameter(name).unwrap_or_default()))
}

/// Advises removing a kernel parameter with its value.
fn without_parameter(answer: Answer, parameter: &str) -> Answer {
    let advice = format!("remove {parameter} unless latency matters more than power");
    answer.seen("/proc/cmdline", parameter).parameter(advice)
}

/// The contents of the idle state folders.
#[derive(Default)]
struct IdleStates {
    most: usize,
    /// States switched off: the folder and the name of each, with the CPUs.
    disabled: BTreeMap<(String, Option<String>), CpuList>,
    /// States off since boot: the driver lists them but leaves them off (CPUIDLE_FLAG_OFF; the file
    /// default_status).
    off_by_default: BTreeSet<String>,
    /// CPUs on which every state but POLL is off.
    polling: CpuList,
    unread: Option<Unseen>,
    /// CPUs by core type and the names of their states.
    names: BTreeMap<(Option<CoreType>, String), CpuList>,
}

impl IdleStates {
    fn new(facts: &Facts) -> IdleStates {
        let mut seen = IdleStates::default();
        for cpu in facts.online.iter() {
            let root = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
            let states: Vec<String> =
                facts.list(&root).into_iter().filter(|name| name.starts_with("state")).collect();
            if states.is_empty() {
                // A container may hide its idle states, so this is not an ok.
                seen.unread.get_or_insert(format!("CPU {cpu} shows no idle states").into());
            }
            seen.most = seen.most.max(states.len());
            let name = |state: &String| facts.read(&format!("{root}/{state}/name")).ok();
            match states.iter().map(name).collect::<Option<Vec<String>>>() {
                Some(names) => {
                    let kind = facts.topology().cpus.get(&cpu).and_then(|cpu| cpu.core_type);
                    seen.names.entry((kind, names.join(" "))).or_default().insert(cpu);
                }
                None => {
                    seen.unread
                        .get_or_insert(format!("names of idle states of CPU {cpu} cannot be read").into());
                }
            }
            let is_poll = |state: &String| name(state).is_some_and(|name| name == "POLL");
            let mut polls = states.iter().any(is_poll) && states.len() > 1;
            for state in states {
                let disable = facts.read(&format!("{root}/{state}/disable"));
                polls &= is_poll(&state) || disable.as_ref().is_ok_and(|text| text != "0");
                match disable {
                    Ok(text) if text == "0" => {}
                    Ok(_) if facts.read(&format!("{root}/{state}/default_status")).is_ok_and(is_off) => {
                        seen.off_by_default.insert(state);
                    }
                    Ok(_) => {
                        let name = name(&state);
                        seen.disabled.entry((state, name)).or_default().insert(cpu);
                    }
                    Err(why) => {
                        seen.unread.get_or_insert(why);
                    }
                }
            }
            if polls {
                seen.polling.insert(cpu);
            }
        }
        seen
    }
}

/// Reports CPUs of one type with different states, CPUs without a deep state, or states that are
/// not the processor's own.
fn unusual_states(facts: &Facts, driver: &str, seen: &IdleStates) -> Option<Answer> {
    let mut kinds: BTreeMap<Option<CoreType>, Vec<(&str, &CpuList)>> = BTreeMap::new();
    for ((kind, names), cpus) in &seen.names {
        kinds.entry(*kind).or_default().push((names, cpus));
    }
    if let Some(different) = kinds.values().find(|states| states.len() > 1) {
        let answer = warning("CPUs of the same kind have different idle states");
        let answer = different.iter().take(4).fold(answer, |answer, (names, cpus)| {
            answer.seen(format!("cpuidle/stateN/name of {}", cpu_words(cpus)), *names)
        });
        return Some(answer.firmware(
            "make C-states the same for all sockets, and look in the kernel log for why the \
                      driver left some out",
        ));
    }
    let ((_, names), cpus) = seen.names.first_key_value()?;
    let place = format!("cpuidle/stateN/name of {}", cpu_words(cpus));
    let is_shallow = |name: &str| matches!(name, "POLL" | "C1" | "C1E" | "C1_ACPI");
    if seen.names.keys().all(|(_, names)| names.split(' ').all(is_shallow)) {
        let deepest = names.split(' ').next_back().unwrap_or_default();
        let cost = match firmware_turbo(facts) {
            FirmwareTurbo::Allowed => "stay powered and count for the turbo of busy ones",
            _ => "stay powered",
        };
        let what = format!("no idle state is deeper than {deepest}: idle cores {cost}");
        return Some(
            note(what)
                .seen(place, names.clone())
                .firmware("enable C6 (Intel: CPU C6 report) or C2 (AMD: Global C-state Control)"),
        );
    }
    // intel_idle has a table for each of these models.
    if driver == "acpi_idle" && models::family_6(facts) && models::package_limit(facts.model, 0).is_some() {
        return Some(
            note("acpi_idle runs instead of intel_idle: it has only the idle states that the firmware lists")
                .seen(place, names.clone())
                // If a parameter keeps intel_idle away, cut_off reports it.
                .person("look in the kernel log for intel_idle's reason: dmesg | grep intel_idle"),
        );
    }
    None
}

/// Reports an idle governor for another kind of machine: haltpoll, which polls before it halts, is
/// for guests; ladder, which goes down one state at a time, is for CPUs with a periodic tick.
fn idle_governor(facts: &Facts) -> Option<Answer> {
    let path = "/sys/devices/system/cpu/cpuidle/current_governor";
    // Before 5.8 the writable file exists only with a parameter.
    let governor = seen!(facts.read(path).or_else(|_| facts.read(&format!("{path}_ro"))));
    let is_unfit = governor == "ladder" || governor == "haltpoll" && !facts.flag("hypervisor");
    Some(if is_unfit {
        note(format!(
            "the idle governor {governor} does not suit this machine: idle CPUs reach deep states late"
        ))
        .seen(path, governor)
        .set(Id::IdleGovernor, "menu")
    } else {
        ok(format!("the idle governor {governor} suits this machine")).seen(path, governor)
    })
}

/// Reports CPUs that have spent a noticeable share of the time since boot in exits from a deep idle
/// state. The share is an estimate from the mean rate since boot and the advertised latency.
fn exit_latency(facts: &Facts) -> Option<Answer> {
    let folder = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let number = |path: String| facts.read(&path).ok().and_then(|text| text.parse::<u64>().ok()).ok_or(path);
    let root = folder(facts.online.first()?);
    let (mut deep, mut unseen) = (Vec::new(), None);
    for state in facts.list(&root).into_iter().filter(|name| name.starts_with("state")) {
        match number(format!("{root}/{state}/latency")) {
            Ok(latency) if latency < MIN_NOTED_EXIT_US => {}
            Ok(latency) => deep.push((latency, state)),
            Err(path) => unseen = Some(path),
        }
    }
    if deep.is_empty() && unseen.is_none() {
        return None;
    }
    let uptime = facts.read("/proc/uptime").ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let Some(uptime) = uptime else {
        return Some(unknown("/proc/uptime cannot be read"));
    };
    // During boot a mean since boot says nothing.
    if uptime < 60.0 {
        return None;
    }
    // For each CPU, the upper limit on the ms per second spent in exits, and the state with the
    // largest share.
    let mut noted: BTreeMap<u32, (f64, ExitRate)> = BTreeMap::new();
    for cpu in facts.online.iter() {
        let mut exits = Vec::new();
        for (latency, state) in &deep {
            match number(format!("{}/{state}/usage", folder(cpu))) {
                Ok(count) => exits.push(ExitRate {
                    name: state,
                    cost_us: *latency as f64,
                    rate: count as f64 / uptime,
                }),
                Err(path) => unseen = Some(path),
            }
        }
        let lost = lost_ms(f64::INFINITY, &exits);
        if let Some(most) = costliest(&exits).filter(|_| lost >= WORTH_MS) {
            noted.insert(cpu, (lost, most));
        }
    }
    let Some((worst, (lost, most))) = noted.iter().max_by(|one, other| one.1.0.total_cmp(&other.1.0)) else {
        return Some(match unseen {
            Some(path) => unknown(format!("{path} cannot be read")),
            None => ok("exits from deep idle states took less than 1 % of each CPU's time since boot")
                .seen("/proc/uptime", format!("{uptime}")),
        });
    };
    let ExitRate { name: state, cost_us, rate } = most;
    let path = format!("{}/{state}", folder(*worst));
    let name = facts.read(&format!("{path}/name")).unwrap_or_else(|_| (*state).to_owned());
    let cpus: CpuList = noted.keys().copied().collect();
    Some(
        note(format!(
            "CPU {worst} has left {name} {rate:.0} times a second since boot; at the advertised {cost_us:.0} us each, waking \
             took up to {:.1} % of its time (inferred), and 1 % or more on {}",
            lost.min(1e3) * 0.1,
            cpu_words(&cpus)
        ))
        .seen(format!("{path}/usage"), format!("{:.0}", rate * uptime))
        .seen(format!("{path}/latency"), format!("{cost_us:.0}"))
        .seen("/proc/uptime", format!("{uptime}"))
        .person(format!("run flyball wake -c {cpus} to see which latency limit would pay")),
    )
}

fn is_off(default_status: String) -> bool {
    default_status == "disabled"
}

/// Reports a parameter that keeps the idle driver from deeper states: intel_idle and acpi_idle then
/// list only the first ones (intel_idle_max_cstate_reached; acpi_processor_get_power_info), and
/// nothing in sysfs shows that there are more.
fn cut_off(facts: &Facts, driver: &str) -> Option<Answer> {
    let cpu = facts.online.first()?;
    let root = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let names: Vec<String> = facts
        .list(&root)
        .iter()
        .filter(|name| name.starts_with("state"))
        .filter_map(|state| facts.read(&format!("{root}/{state}/name")).ok())
        .filter(|name| name != "POLL")
        .collect();
    let parameters = ["processor.max_cstate", "intel_idle.max_cstate"].into_iter().filter_map(|name| {
        let value = facts.parameter(name).filter(|_| limits_idle(facts, name, driver))?;
        let limit = value.parse::<usize>().ok()?;
        let is_own = name.starts_with("intel_idle") == (driver == "intel_idle");
        let reached = match (name, limit) {
            // 0 disables intel_idle altogether: acpi_idle with its own limit runs instead.
            ("intel_idle.max_cstate", 0) => driver != "intel_idle",
            // Both drivers stop after that many states; acpi_idle stops after one state if the
            // limit is 0. With fewer states the limit was not reached. A driver has at most 10
            // states with polling (CPUIDLE_STATE_MAX in cpuidle.h), so 9 limits nothing.
            _ => is_own && limit < 9 && names.len() == limit.max(1),
        };
        reached.then(|| format!("{name}={value}"))
    });
    let parameter = parameters.collect::<Vec<String>>().join(" ");
    if parameter.is_empty() {
        // intel_idle does not start with idle= (intel_idle_init). acpi_idle then has C1 alone, or
        // the states that firmware lists with an I/O port, as AMD processors use.
        let (parameter, words) = match facts.parameter("idle")? {
            "halt" => ("idle=halt", "idle CPUs only halt (C1)"),
            "nomwait" if facts.vendor == Vendor::Intel => {
                ("idle=nomwait", "intel_idle does not start, and states that need MWAIT are missing")
            }
            _ => return None,
        };
        let what = format!("with {parameter} on the command line {words}");
        return Some(without_parameter(warning(what), parameter));
    }
    // Without a state deeper than C1 idle cores keep their voltage, which costs the busy ones
    // turbo.
    let shallow = names.last().is_none_or(|name| matches!(name.as_str(), "C1" | "C1E" | "C1_ACPI"));
    let what = match names.last() {
        Some(deepest) if shallow => {
            format!("{parameter} on the command line limits idle states: the deepest is {deepest}")
        }
        Some(_) if driver != "intel_idle" && parameter == "intel_idle.max_cstate=0" => {
            format!(
                "{parameter} on the command line keeps intel_idle away: {driver} has only the states that the firmware lists"
            )
        }
        // The driver's table may end there by itself: Skylake servers have C1, C1E and C6.
        Some(deepest) => {
            format!("{parameter} on the command line would hide idle states deeper than {deepest}")
        }
        None => format!("{parameter} on the command line limits idle states: there is none but polling"),
    };
    let answer = if shallow { warning(what) } else { note(what) };
    Some(without_parameter(answer, &parameter))
}
