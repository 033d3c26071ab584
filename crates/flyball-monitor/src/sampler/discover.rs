//! Discovery of the quantities that a machine offers.

use flyball_control::{At, Id, Place, ReadError, Request, Snapshot, Topology, cppc_khz, kernel_release};
use flyball_host::{
    CpuList, Errno, Host, HostError, KiloHertz, Op, Vendor,
    cpuidle::{self, IdleState},
    msr,
    topology::{CPUS, POLICIES},
};

use super::{
    CpuFiles, LIMITED, PolicyFiles, PowerFiles, REQUESTS, SocketFiles,
    counters::{self, Counters, Source},
    file::{KeptAttribute, SHORT},
    meter::{self, Meter},
};
use crate::{
    Cpu, Field, Layout, Machine, Missing, Package, Quantity, Scope, Unit,
    layout::DEEP_US,
    missing::{What, Why},
};

pub(super) struct Discovered {
    pub(super) layout: Layout,
    pub(super) source: Source,
    pub(super) reasons: Vec<(Quantity, u32)>,
    pub(super) cpus: Vec<CpuFiles>,
    pub(super) policies: Vec<PolicyFiles>,
    pub(super) power: Vec<PowerFiles>,
    pub(super) sockets: Vec<SocketFiles>,
}

pub(super) fn discover(host: &dyn Host) -> Result<Discovered, ReadError> {
    let topology = Topology::inspect(host)?;
    let mut layout = layout_of(host, &topology);
    let idle = idle_states(host, &topology);
    layout.machine.idle_states = idle.iter().map(|state| state.name.clone()).collect();
    if !topology.flags.contains("hypervisor") {
        layout.machine.idle_exits_us = idle.iter().map(|state| state.latency_us).collect();
    }
    // Virtual machines without cpuidle and kernels with idle=poll have no idle states. The shares
    // of CPU time then come from /proc/stat only.
    if idle.is_empty() {
        let error = HostError::new(Op::Read, format!("{CPUS}/cpu0/cpuidle"), Errno::NOENT);
        layout.missing.push(Missing::new(What::IdleStates, &error));
    }
    // A CPU that is awake anyway: the one that runs this code.
    let here = match host.kind() {
        flyball_host::Kind::Live => flyball_process::current_cpu(),
        _ => topology.online.iter().next().unwrap_or(0),
    };
    let source = match source(host, &topology, here) {
        Ok(source) => source,
        Err(error) => {
            layout.missing.push(Missing::new(What::Speed, &error));
            Source::None
        }
    };
    let reasons = match reasons(host, &layout.machine, here) {
        Ok(reasons) => reasons,
        Err(error) => {
            layout.missing.push(Missing::new(What::Reasons, &error));
            Vec::new()
        }
    };
    // Intel's thermal margin is relative to this temperature. AMD's sensor reports degrees, and AMD
    // uses this register for something else.
    layout.machine.throttle_temperature = host
        .msr(here, msr::MSR_IA32_TEMPERATURE_TARGET)
        .ok()
        .filter(|_| topology.vendor == Vendor::Intel)
        .map(|value| (value >> 16 & 0xff) as u32);
    let reads_frequency = source.is_none() && answers_at_once(&host.uname());
    let throttle = throttle_files(host, &topology);
    let files = |cpu: &Cpu| cpu_files(cpu.number, idle.len(), &throttle, reads_frequency);
    let cpus = layout.cpus.iter().map(files).collect();
    let requests = requests(&layout);
    let policies = policies(&layout, &topology);
    if policies.is_empty() {
        let error = HostError::new(Op::Read, POLICIES, Errno::NOENT);
        layout.missing.push(Missing::new(What::Requests, &error));
    }
    let (power, missing) = power(host, &layout);
    layout.missing.extend(missing);
    // On a recording or a virtual machine, advice for hardware (load a module, become root) would
    // be wrong.
    let elsewhere = match host.kind() {
        flyball_host::Kind::Recorded => Some(Why::NotRecorded as fn(String) -> Why),
        _ => topology.flags.contains("hypervisor").then_some(Why::Virtual as fn(String) -> Why),
    };
    if let Some(elsewhere) = elsewhere {
        layout.missing = layout.missing.into_iter().map(|missing| missing.on(elsewhere)).collect();
    }
    let quantities: Vec<Quantity> = source.quantities();
    let throttles: Vec<Quantity> = throttle.iter().map(|(_, quantity)| *quantity).collect();
    let reason_quantities: Vec<Quantity> = reasons.iter().map(|reason| reason.0).collect();
    layout.fields = fields(
        idle.len(),
        &quantities,
        &throttles,
        &reason_quantities,
        reads_frequency,
        if policies.is_empty() { &[] } else { requests },
        &power,
    );
    // All Zen generations use this unit.
    let unit = host.msr(here, msr::MSR_AMD_RAPL_POWER_UNIT).map(|unit| unit >> 8 & 0x1f);
    if layout.machine.vendor == Vendor::Amd
        && quantities.contains(&Quantity::Tsc)
        && unit == Ok(16)
        && host.msr(here, msr::MSR_AMD_CORE_ENERGY_STATUS).is_ok()
    {
        let (quantity, scope) = (Quantity::CoreEnergy, Scope::Cpu);
        layout.fields.push(Field { quantity, scope, unit: Unit::Count, wraps_after: 32 });
    }
    layout.fields.extend(guesses(&layout.machine.idle_exits_us));
    let sockets = sockets(host, &mut layout, &topology);
    Ok(Discovered { layout, source, reasons, cpus, policies, power, sockets })
}

fn cpu_files(
    number: u32,
    idle_states: usize,
    throttle: &[(&'static str, Quantity)],
    reads_frequency: bool,
) -> CpuFiles {
    let file = |name: &str| KeptAttribute::new(format!("{CPUS}/cpu{number}/{name}"));
    let of_states =
        |name: &str| (0..idle_states).map(|state| file(&format!("cpuidle/state{state}/{name}"))).collect();
    CpuFiles {
        number,
        idle: of_states("time"),
        usage: of_states("usage"),
        wakes: false,
        wrong: Vec::new(),
        throttle: throttle
            .iter()
            .map(|(name, quantity)| (*quantity, file(&format!("thermal_throttle/{name}"))))
            .collect(),
        frequency: reads_frequency.then(|| file("cpufreq/scaling_cur_freq")),
        counters: Counters::Closed,
    }
}

fn layout_of(host: &dyn Host, topology: &Topology) -> Layout {
    let list = |name: &str| -> CpuList {
        // Kernels without nohz_full print "(null)".
        host.read(&format!("{CPUS}/{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    let isolated = list("isolated").union(&list("nohz_full"));
    let mut governors: Vec<String> =
        ["performance", "powersave", "ondemand", "conservative", "schedutil", "userspace"]
            .map(str::to_owned)
            .into();
    if let Some(policy) = topology.any_policy() {
        let path = format!("{}/scaling_available_governors", topology.policy_folder(policy.number));
        for name in host.read(&path).unwrap_or_default().split_whitespace() {
            if !governors.iter().any(|known| known == name) {
                governors.push(name.to_owned());
            }
        }
    }
    let khz = |policy: Option<u32>, name: &str| {
        let text = host.read(&format!("{}/{name}", topology.policy_folder(policy?))).ok()?;
        text.parse().ok().map(KiloHertz)
    };
    // The highest P-state without boost. cpuinfo_max_freq may include boost.
    let top_state = |policy: Option<u32>| {
        let path = format!("{}/scaling_available_frequencies", topology.policy_folder(policy?));
        let states = host.read(&path).ok()?;
        states.split_whitespace().filter_map(|khz| khz.parse().ok()).max().map(KiloHertz)
    };
    let driver = flyball_host::topology::scaling_driver(host);
    // acpi-cpufreq requests its highest P-state, and the hardware boosts above it. The request is
    // then lower than the intended frequency.
    let is_boosted = driver.as_deref() == Some("acpi-cpufreq") && turbo(host, topology) == Some(true);
    let boosted = |cpu: &flyball_control::Cpu| {
        // The files' highest may have boost in it or not (acpi_cpufreq_cpu_init); CPPC has both in
        // one unit.
        cppc(host, cpu.number, "highest_perf")
    };
    let boosts: Vec<Option<KiloHertz>> =
        topology.cpus.values().map(|cpu| is_boosted.then(|| boosted(cpu)).flatten()).collect();
    Layout {
        machine: Machine {
            name: host.name(),
            kind: host.kind(),
            vendor: topology.vendor,
            family: topology.family,
            model: topology.model,
            model_name: topology.model_name.clone(),
            kernel: kernel_release(host).unwrap_or_default(),
            driver,
            throttle_temperature: None,
            idle_states: Vec::new(),
            idle_exits_us: Vec::new(),
            governors,
        },
        cpus: topology
            .cpus
            .values()
            .zip(boosts)
            .map(|(cpu, boost)| Cpu {
                number: cpu.number,
                package: cpu.package,
                die: cpu.die,
                core: cpu.core,
                core_type: cpu.core_type,
                policy: cpu.policy,
                // Only acpi-cpufreq's limits differ from what the hardware does. With other
                // drivers, reading these two files per CPU is useless.
                highest: boost.or_else(|| is_boosted.then(|| khz(cpu.policy, "cpuinfo_max_freq"))?),
                base: is_boosted.then(|| top_state(cpu.policy)).flatten(),
                reference: (topology.vendor == Vendor::Other)
                    .then(|| cppc(host, cpu.number, "reference_perf"))
                    .flatten(),
                is_isolated: isolated.contains(cpu.number),
            })
            .collect(),
        packages: topology.packages().into_iter().map(|(number, cpus)| Package { number, cpus }).collect(),
        fields: Vec::new(),
        missing: Vec::new(),
    }
}

/// The frequency that a level of CPPC stands for.
fn cppc(host: &dyn Host, cpu: u32, level: &str) -> Option<KiloHertz> {
    cppc_khz(|path| host.read(path).ok(), cpu, level).map(|khz| KiloHertz(khz as u64))
}

/// Finds the management ports that report a frequency limit, and adds their fields to the layout.
/// Each reading is a message to the firmware.
fn sockets(host: &dyn Host, layout: &mut Layout, topology: &Topology) -> Vec<SocketFiles> {
    if topology.vendor != Vendor::Amd {
        return Vec::new();
    }
    let mut snapshot = Snapshot::empty(host.name(), host.kind(), topology.clone());
    snapshot.take(host, &Request { knobs: &[Id::SocketFreqLimit], ..Request::default() });
    let file = |knob: Id, place: &Place| Some(KeptAttribute::new(knob.knob().path(topology, &place.at)?));
    let socket = |place: &Place| {
        let cpu = place.own_cpus().iter().next().and_then(|cpu| layout.index_of(cpu))?;
        Some(SocketFiles {
            index: layout.package_of(&layout.cpus[cpu])?,
            limit: file(Id::SocketFreqLimit, place)?,
            sources: file(Id::SocketLimitSource, place)?,
        })
    };
    let places = snapshot.places(Id::SocketFreqLimit).unwrap_or_default().iter();
    let places = places.filter(|place| snapshot.value(Id::SocketFreqLimit, place).is_ok());
    let sockets: Vec<SocketFiles> = places.filter_map(socket).collect();
    if !sockets.is_empty() {
        let field = |quantity, unit| Field { quantity, scope: Scope::Package, unit, wraps_after: 0 };
        layout.fields.push(field(Quantity::SocketLimit, Unit::KiloHertz));
        layout.fields.push(field(Quantity::SocketSources, Unit::Count));
    }
    sockets
}

/// Reads whether turbo is allowed on the whole machine.
fn turbo(host: &dyn Host, topology: &Topology) -> Option<bool> {
    let mut snapshot = Snapshot::empty(host.name(), host.kind(), topology.clone());
    snapshot.take(host, &Request { knobs: &[Id::Turbo], ..Request::default() });
    snapshot.machine_value(Id::Turbo).ok()??.switch()
}

/// The idle states of one CPU of each core type, whichever list is longest.
fn idle_states(host: &dyn Host, topology: &Topology) -> Vec<IdleState> {
    let mut most = Vec::new();
    let mut seen = Vec::new();
    for cpu in topology.cpus.values().filter(|cpu| cpu.online) {
        // P and E cores may have different states. The longest list has names for all of them,
        // since deeper states come last.
        if seen.contains(&cpu.core_type) {
            continue;
        }
        seen.push(cpu.core_type);
        let states = cpuidle::table(host, cpu.number);
        if states.len() > most.len() {
            most = states;
        }
    }
    most
}

/// Events of the msr PMU if they may be opened, otherwise registers.
fn source(host: &dyn Host, topology: &Topology, here: u32) -> Result<Source, HostError> {
    const PMU: &str = "/sys/bus/event_source/devices/msr";
    let mut refused = None;
    if let Ok(Ok(kind)) = host.read(&format!("{PMU}/type")).map(|text| text.parse::<u32>()) {
        let events: Vec<(Quantity, u32, u64)> = counters::EVENTS
            .iter()
            .filter_map(|(name, quantity)| {
                let text = host.read(&format!("{PMU}/events/{name}")).ok()?;
                // The msr PMU has only the field `event`, so its files have this form
                // (PMU_EVENT_ATTR_STRING in arch/x86/events/msr.c).
                let event = u64::from_str_radix(text.strip_prefix("event=0x")?, 16).ok()?;
                Some((*quantity, kind, event))
            })
            .collect();
        if events.iter().any(|event| event.0 == Quantity::Aperf) {
            let pairs: Vec<(u32, u64)> = events.iter().map(|event| (event.1, event.2)).collect();
            match host.event_group(&pairs, here) {
                Ok(_) => return Ok(Source::Group(events)),
                Err(error) => refused = Some(error),
            }
        }
    }
    // Try each register: a CPU or an emulator may lack any of them.
    let all = counters::registers(topology.vendor);
    let found: Vec<(Quantity, u32)> =
        all.iter().copied().filter(|(_, register)| host.msr(here, *register).is_ok()).collect();
    if found.iter().any(|(quantity, _)| *quantity == Quantity::Aperf) {
        return Ok(Source::Registers(found));
    }
    // Outside x86, scaling_cur_freq may be the requested frequency, not the delivered one. CPPC's
    // counters measure the delivered one.
    if topology.vendor == Vendor::Other
        && counters::feedback(here).line(host, &mut [0; SHORT]).is_some_and(|line| line.starts_with("ref:"))
    {
        return Ok(Source::Feedback);
    }
    // perf's error says what would help. Without a PMU, the registers' error does.
    let registers = all.iter().find_map(|(_, register)| host.msr(here, *register).err());
    let nothing = || HostError::new(Op::ReadMsr, "APERF and MPERF", Errno::NODEV);
    Err(refused.or(registers).unwrap_or_else(nothing))
}

fn reasons(host: &dyn Host, machine: &Machine, here: u32) -> Result<Vec<(Quantity, u32)>, HostError> {
    let mut all: Vec<(Quantity, u32)> = match machine.vendor {
        Vendor::Intel => vec![
            (Quantity::ThermStatus, msr::MSR_IA32_THERM_STATUS),
            (Quantity::PackageThermStatus, msr::MSR_IA32_PACKAGE_THERM_STATUS),
            (Quantity::HwpStatus, msr::MSR_HWP_STATUS),
            (Quantity::Capabilities, msr::MSR_HWP_CAPABILITIES),
            (Quantity::Request, msr::MSR_HWP_REQUEST),
        ],
        // AMD has no register with reasons, only the request and the P-state limit.
        Vendor::Amd => {
            vec![
                (Quantity::Request, msr::MSR_AMD_CPPC_REQ),
                (Quantity::PstateLimit, msr::MSR_PSTATE_CUR_LIMIT),
            ]
        }
        Vendor::Other => Vec::new(),
    };
    if let Some(reasons) = machine.limit_reasons() {
        let ring = (Quantity::RingLimitReasons, msr::MSR_RING_PERF_LIMIT_REASONS);
        all.extend([(Quantity::LimitReasons, reasons.register), ring]);
    }
    let found: Vec<(Quantity, u32)> =
        all.iter().copied().filter(|(_, register)| host.msr(here, *register).is_ok()).collect();
    match (found.is_empty(), all.first()) {
        (true, Some((_, register))) => match host.msr(here, *register) {
            Err(error) => Err(error),
            Ok(_) => Ok(found),
        },
        _ => Ok(found),
    }
}

/// Returns whether scaling_cur_freq answers at once. Kernels 4.13 to 5.18 wake the CPU and take two
/// readings 10 ms apart (arch/x86/kernel/cpu/aperfmperf.c).
pub fn answers_at_once(uname: &str) -> bool {
    let release = uname.split(' ').nth(2).unwrap_or_default();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 19)
}

/// The files with throttle counts that this kernel has. Intel only; the times exist since 5.6.
fn throttle_files(host: &dyn Host, topology: &Topology) -> Vec<(&'static str, Quantity)> {
    let cpu = topology.online.iter().next().unwrap_or(0);
    [
        ("core_throttle_count", Quantity::CoreThrottles),
        ("core_throttle_total_time_ms", Quantity::CoreThrottleTime),
        ("package_throttle_count", Quantity::PackageThrottles),
        ("package_throttle_total_time_ms", Quantity::PackageThrottleTime),
    ]
    .into_iter()
    .filter(|(name, _)| host.exists(&format!("{CPUS}/cpu{cpu}/thermal_throttle/{name}")))
    .collect()
}

/// The files of a policy that are read on this machine.
fn requests(layout: &Layout) -> &'static [(Id, Quantity)] {
    let has_reports = layout.machine.driver.as_deref() == Some("cppc_cpufreq");
    if has_reports { REQUESTS } else { &REQUESTS[..LIMITED] }
}

fn policies(layout: &Layout, topology: &Topology) -> Vec<PolicyFiles> {
    topology
        .policies
        .iter()
        .map(|policy| PolicyFiles {
            cpus: policy.cpus.iter().filter_map(|cpu| layout.index_of(cpu)).collect(),
            files: requests(layout)
                .iter()
                .filter_map(|(knob, _)| knob.knob().path(topology, &At::Policy(policy.number)))
                .map(KeptAttribute::new)
                .collect(),
        })
        .collect()
}

const POWERCAP: &str = "/sys/class/powercap";

/// A powercap zone of the energy of a package, its memory, or the platform.
#[derive(Debug)]
pub struct RaplZone {
    pub folder: String,
    pub quantity: Quantity,
    /// Index of the package in the layout.
    pub index: usize,
}

/// Lists the powercap zones of RAPL. intel-rapl-mmio shows the same package counters again, so only
/// the register interface counts.
pub fn rapl_zones(host: &dyn Host, layout: &Layout) -> Vec<RaplZone> {
    let name_of = |zone: &str| host.read(&format!("{POWERCAP}/{zone}/name")).unwrap_or_default();
    let package = |name: &str| {
        // package-0, or package-0-die-1 if each die has its own counter.
        let number: u32 = name.strip_prefix("package-")?.split('-').next()?.parse().ok()?;
        layout.packages.iter().position(|package| package.number == number)
    };
    let of_zone = |zone: String| {
        zone.strip_prefix("intel-rapl:")?;
        let name = name_of(&zone);
        let (quantity, index) = match name.as_str() {
            // Shown, but not used for reasons: each board decides what this counter covers.
            "psys" => (Quantity::PlatformEnergy, 0),
            // For example, the package of intel-rapl:0:2 is intel-rapl:0.
            "dram" => (Quantity::DramEnergy, package(&name_of(zone.rsplit_once(':')?.0))?),
            name => (Quantity::PackageEnergy, package(name)?),
        };
        Some(RaplZone { folder: format!("{POWERCAP}/{zone}"), quantity, index })
    };
    host.list(POWERCAP).unwrap_or_default().into_iter().filter_map(of_zone).collect()
}

/// Energy and limits in powercap, and AMD's temperature.
fn power(host: &dyn Host, layout: &Layout) -> (Vec<PowerFiles>, Option<Missing>) {
    let mut found = Vec::new();
    let mut missing = None;
    let mut add = |folder: &str, quantity: Quantity, index: usize| {
        let path = format!("{folder}/energy_uj");
        // Only root may read it since the PLATYPUS attack (CVE-2020-8694).
        match host.read(&path) {
            Ok(_) => {
                let range = host.read(&format!("{folder}/max_energy_range_uj")).ok();
                // The counter's highest value, so it wraps after one more.
                let range = range
                    .and_then(|text| text.parse::<u64>().ok())
                    .map_or(1 << 32, |range| range.saturating_add(1));
                found.push(PowerFiles {
                    quantity,
                    index,
                    meter: Meter::File(KeptAttribute::new(path)),
                    range,
                    last: None,
                    sum: 0,
                    is_slow: false,
                });
            }
            Err(error) => missing = missing.take().or_else(|| Some(Missing::new(What::Power, &error))),
        }
        if quantity == Quantity::PackageEnergy {
            for number in 0..2 {
                let name = host.read(&format!("{folder}/constraint_{number}_name")).unwrap_or_default();
                // Only the names tell the constraints apart
                // (Documentation/power/powercap/powercap.rst).
                let quantity = match name.as_str() {
                    "long_term" => Quantity::PowerLimit,
                    "short_term" => Quantity::ShortPowerLimit,
                    _ => continue,
                };
                let path = format!("{folder}/constraint_{number}_power_limit_uw");
                let meter = Meter::File(KeptAttribute::new(path));
                found.push(PowerFiles {
                    quantity,
                    index,
                    meter,
                    range: 0,
                    last: None,
                    sum: 0,
                    is_slow: true,
                });
            }
        }
    };
    for zone in rapl_zones(host, layout) {
        add(&zone.folder, zone.quantity, zone.index);
    }
    if found.is_empty() && missing.is_none() {
        missing = Some(Missing::new(
            What::Power,
            &HostError::new(Op::Read, format!("{POWERCAP}/intel-rapl:0"), Errno::NOENT),
        ));
    }
    let has_energy = found.iter().any(|file| file.quantity == Quantity::PackageEnergy && file.range > 0);
    if !has_energy && let Some(counters) = meter::counters(host, layout) {
        found.extend(counters);
        missing = None;
    }
    found.extend(temperatures(host, layout));
    (found, missing)
}

/// AMD's sensor of each package. It is read over PCI, so no CPU is interrupted
/// (drivers/hwmon/k10temp.c).
fn temperatures(host: &dyn Host, layout: &Layout) -> Vec<PowerFiles> {
    const HWMON: &str = "/sys/class/hwmon";
    let sensors = host
        .list(HWMON)
        .unwrap_or_default()
        .into_iter()
        .filter(|name| host.read(&format!("{HWMON}/{name}/name")).is_ok_and(|name| name == "k10temp"));
    // Sensors are in the order of the nodes, and so of the packages (with one node per package).
    sensors
        .zip(0..layout.packages.len())
        .map(|(name, index)| PowerFiles {
            quantity: Quantity::PackageTemperature,
            index,
            meter: Meter::File(KeptAttribute::new(format!("{HWMON}/{name}/temp1_input"))),
            range: 0,
            last: None,
            sum: 0,
            is_slow: false,
        })
        .collect()
}

/// The fields for wrong idle state choices, if any state is costly to leave.
fn guesses(exits_us: &[u64]) -> impl Iterator<Item = Field> + use<> {
    let is_deep = exits_us.iter().any(|us| *us >= DEEP_US);
    let counts = [Quantity::IdleAbove, Quantity::IdleBelow];
    let field = |quantity| Field { quantity, scope: Scope::Cpu, unit: Unit::Count, wraps_after: 64 };
    counts.into_iter().filter(move |_| is_deep).map(field)
}

fn fields(
    idle_states: usize,
    counters: &[Quantity],
    throttles: &[Quantity],
    reasons: &[Quantity],
    reads_frequency: bool,
    requests: &[(Id, Quantity)],
    power: &[PowerFiles],
) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut add =
        |quantity, scope, unit, wraps_after| fields.push(Field { quantity, scope, unit, wraps_after });
    add(Quantity::Online, Scope::Cpu, Unit::Count, 0);
    for quantity in [Quantity::Busy, Quantity::Idle, Quantity::Steal] {
        add(quantity, Scope::Cpu, Unit::Ticks, 64);
    }
    if idle_states > 0 {
        add(Quantity::IdleAt, Scope::Cpu, Unit::Nanoseconds, 64);
    }
    for state in 0..idle_states {
        add(Quantity::IdleTime(state as u8), Scope::Cpu, Unit::Microseconds, 64);
        add(Quantity::IdleUsage(state as u8), Scope::Cpu, Unit::Count, 64);
    }
    for &quantity in throttles {
        let is_time = matches!(quantity, Quantity::CoreThrottleTime | Quantity::PackageThrottleTime);
        add(quantity, Scope::Cpu, if is_time { Unit::Milliseconds } else { Unit::Count }, 64);
    }
    if reads_frequency {
        add(Quantity::ReportedFrequency, Scope::Cpu, Unit::KiloHertz, 0);
    }
    if !counters.is_empty() {
        add(Quantity::CountersAt, Scope::Cpu, Unit::Nanoseconds, 64);
    }
    for &quantity in counters {
        match quantity {
            Quantity::ThermalMargin => add(quantity, Scope::Cpu, Unit::Degrees, 0),
            // MSR_SMI_COUNT is 32 bits wide (Intel SDM volume 4).
            Quantity::Smi => add(quantity, Scope::Cpu, Unit::Count, 32),
            _ => add(quantity, Scope::Cpu, Unit::Cycles, 64),
        }
    }
    if !reasons.is_empty() {
        add(Quantity::ReasonsAt, Scope::Cpu, Unit::Nanoseconds, 64);
    }
    for &quantity in reasons {
        add(quantity, Scope::Cpu, Unit::Count, 0);
    }
    for (_, quantity) in requests {
        let unit = match quantity {
            Quantity::RequestMin | Quantity::RequestMax => Unit::KiloHertz,
            _ => Unit::Count,
        };
        add(*quantity, Scope::Cpu, unit, 0);
    }
    for quantity in [
        Quantity::PackageEnergy,
        Quantity::DramEnergy,
        Quantity::PowerLimit,
        Quantity::ShortPowerLimit,
        Quantity::PackageTemperature,
        Quantity::PlatformEnergy,
    ] {
        if !power.iter().any(|file| file.quantity == quantity) {
            continue;
        }
        // There is one meter for all packages.
        let scope = if quantity == Quantity::PlatformEnergy { Scope::Machine } else { Scope::Package };
        match quantity {
            Quantity::PowerLimit | Quantity::ShortPowerLimit => add(quantity, scope, Unit::MicroWatts, 0),
            Quantity::PackageTemperature => add(quantity, scope, Unit::MilliDegrees, 0),
            _ => add(quantity, scope, Unit::MicroJoules, 64),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_not_asked_for_frequencies() {
        for (release, expected) in
            [("4.13.0", false), ("5.18.19-1", false), ("5.19.0-rc1", true), ("6.12.117", true), ("", false)]
        {
            assert_eq!(answers_at_once(&format!("Linux host {release} x86_64")), expected, "{release}");
        }
    }
}
