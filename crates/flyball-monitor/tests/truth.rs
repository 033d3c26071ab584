//! Compares reasons with the truth. Simulated machines are built with known limits, which are added
//! one by one. Each limit costs the difference to the run without it, in the order that docs/why.md
//! defines:
//!
//! 1. limits that are a frequency, in the order of [`Limiter::ALL`];
//! 2. limits that show only in their effect and that a package's CPUs share: first the one that
//!    would leave the lowest frequency alone. The others only cost what they take below it, which is
//!    the controllers' ripple;
//! 3. what slows one CPU down more than the others.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod unlimited;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use flyball_control::{
    Intent,
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{Host, Launch};
use flyball_monitor::{
    ABSENT, Explanation, Facts, Layout, Limiter, Options, Quantity, Sample, Sampler, explain,
};
use flyball_sim::silicon::{KiloHertz, MachineSpec, msr::MPERF};
use flyball_simhost::{SimHost, SimSetup};
use unlimited::{Count, Tolerance, judge};

/// A limit that is planted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plant {
    /// Share of the highest frequency that all active cores may have.
    ActiveCores(f64),
    TurboOff,
    /// The other Speed Select level, whose turbo limits are this share of the first level's.
    Level(f64),
    /// Speed Select's turbo-freq, with all CPUs of low priority.
    TurboFreq,
    /// A limit set by another part of the kernel, such as a cooling device: freq_qos_add_request().
    KernelRequest(f64),
    ClassOfService(f64),
    Percentage(u32),
    MaxFreq(f64),
    Setspeed(f64),
    Preference(u32),
    /// Share of the package's power without limits.
    Power(f64),
    /// Share of the cores' dynamic power without limits.
    Current(f64),
    /// The cooling removes this share of the power without limits at its limit.
    Heat(f64),
    /// Share of the frequency without limits.
    Hold(f64),
    /// Like `Hold`, but the registers show that a device outside the processor requested it. The
    /// silicon has no such device, so the test sets the bits in the samples.
    Prochot(f64),
}

/// How a limit shows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// As a known frequency.
    Frequency,
    /// By its effect, on all busy CPUs of a package.
    Shared,
    /// By its effect, on one CPU.
    Own,
}

impl Plant {
    fn kind(self) -> Kind {
        match self {
            Plant::Preference(_)
            | Plant::Power(_)
            | Plant::Current(_)
            | Plant::Heat(_)
            | Plant::Prochot(_) => Kind::Shared,
            Plant::Hold(_) => Kind::Own,
            _ => Kind::Frequency,
        }
    }

    fn limiter(self) -> Limiter {
        match self {
            Plant::ActiveCores(_) => Limiter::ActiveCores,
            Plant::TurboOff => Limiter::TurboOff,
            Plant::Level(_) | Plant::TurboFreq => Limiter::SpeedSelect,
            Plant::KernelRequest(_) => Limiter::MaxFreq,
            Plant::ClassOfService(_) => Limiter::ClassOfService,
            Plant::Percentage(_) => Limiter::Percentage,
            Plant::MaxFreq(_) => Limiter::MaxFreq,
            Plant::Setspeed(_) => Limiter::Governor,
            Plant::Preference(_) => Limiter::Preference,
            Plant::Power(_) => Limiter::Power,
            Plant::Current(_) => Limiter::Current,
            Plant::Heat(_) => Limiter::Heat,
            Plant::Hold(_) => Limiter::Firmware,
            Plant::Prochot(_) => Limiter::Prochot,
        }
    }

    /// Returns the limiter that `why` must name. AMD has no register for power or current. Intel
    /// does not document Granite Rapids' register for current, so `firmware` lists current as
    /// possible.
    fn named(self, base: &Base) -> Limiter {
        match self {
            Plant::Current(_) if base.machine == "tpmi-small" => Limiter::Firmware,
            Plant::Power(_) | Plant::Current(_) if base.machine.starts_with("ryzen") => Limiter::Package,
            _ => self.limiter(),
        }
    }

    fn settings(self, highest: f64) -> Vec<String> {
        let khz = |share: f64| format!("{:.0}MHz", highest * share);
        match self {
            Plant::TurboOff => vec!["turbo=off".into()],
            Plant::Level(_) => vec!["sst-level=4".into()],
            Plant::TurboFreq => vec!["sst-tf=on".into(), "clos=3".into()],
            Plant::Percentage(percent) => vec![format!("max-perf-pct={percent}")],
            Plant::MaxFreq(share) => vec![format!("max-freq={}", khz(share))],
            Plant::Setspeed(share) => vec!["governor=userspace".into(), format!("setspeed={}", khz(share))],
            // amd-pstate of this kernel accepts words only.
            Plant::Preference(192) => vec!["governor=powersave".into(), "epp=balance_power".into()],
            Plant::Preference(255) => vec!["governor=powersave".into(), "epp=power".into()],
            Plant::Preference(epp) => vec!["governor=powersave".into(), format!("epp={epp}")],
            Plant::ClassOfService(share) => {
                vec![
                    "sst-cp=on".into(),
                    "clos=1".into(),
                    format!("clos-1-max={:.0}MHz", (highest * share / 100.0).round() * 100.0),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// Switching activity of the model `spin`.
const INTENSITY: f64 = 1.0;

#[derive(Debug, Clone, Copy)]
struct Base {
    machine: &'static str,
    kernel: &'static str,
    /// Busy CPUs. The first one is explained.
    pin: &'static str,
    passive: &'static str,
    load: &'static str,
}

impl Base {
    /// Returns the frequency step, MHz.
    fn step(&self) -> f64 {
        if self.machine.starts_with("ryzen") { 25.0 } else { 100.0 }
    }
}

/// Measurements of the machine without limits.
struct Free {
    watts: f64,
    mhz: f64,
    highest: f64,
}

/// What all runs of a situation share, including runs with only some of its limits.
#[derive(Debug, Clone, Copy)]
struct Setting {
    /// The governor chooses frequencies.
    is_passive: bool,
    /// How long the load runs before the first sample, seconds.
    warm_up: u64,
}

impl Setting {
    fn of(plants: &[Plant]) -> Setting {
        let is_warm = plants.iter().any(|plant| matches!(plant, Plant::Heat(_)));
        Setting {
            is_passive: plants.iter().any(|plant| matches!(plant, Plant::Setspeed(_))),
            // Heat builds up slowly if something else limits first.
            warm_up: if is_warm { 30 } else { 4 },
        }
    }
}

struct Ran {
    mhz: f64,
    /// Frequency of the fastest busy CPU of another core. 0 without one.
    others: f64,
    watts: f64,
    found: Explanation,
}

/// Returns the machine with only the planted limits, and its boot options.
fn machine(base: Base, plants: &[Plant], setting: Setting, free: Option<&Free>) -> (MachineSpec, String) {
    let mut spec = unlimited::machine(base.machine);
    let passive = if setting.is_passive { format!(",boot={}", base.passive) } else { String::new() };
    let boot = format!(",kernel={}{passive}", base.kernel);
    let busy = base.pin.parse::<flyball_host::CpuList>().unwrap().len();
    for plant in plants {
        match *plant {
            Plant::Power(share) => spec.power.pl1_w = free.unwrap().watts * share,
            Plant::Heat(share) => {
                let limit = match spec.thermal.throttle_c {
                    0 => spec.thermal.tjmax_c,
                    limit => limit,
                };
                spec.thermal.ambient_c = 30.0;
                // The hot spot of a core and half a degree of control error are small in
                // comparison.
                spec.thermal.sink_k_per_w = (f64::from(limit) - 30.5) / (free.unwrap().watts * share) - 0.01;
            }
            Plant::Current(share) => {
                // The budget at which all busy cores would use this share of their dynamic power.
                for core in &mut spec.core {
                    let free = free.unwrap();
                    let top = core.volts.last().unwrap().1;
                    let volts = f64::from(top) / 1000.0;
                    let one = core.dynamic_nf * volts * volts * free.mhz / 1000.0;
                    core.budget_w = one * INTENSITY * busy as f64 * share;
                }
            }
            Plant::ActiveCores(share) => {
                let most = (f64::from(spec.core[0].max_mhz) * share / 100.0).round() as u32 * 100;
                for mhz in spec.turbo.sse_mhz.iter_mut().skip(1) {
                    *mhz = most.min(*mhz);
                }
            }
            _ => {}
        }
    }
    levels(&mut spec, plants);
    (spec, boot)
}

/// Adds Speed Select levels: one with the machine's limits, and one with lower turbo limits.
fn levels(spec: &mut MachineSpec, plants: &[Plant]) {
    let sse = spec.turbo.sse_mhz.clone();
    let watts = spec.power.pl1_w.min(4095.0) as u32;
    let Some([first, other]) = spec.sst.as_mut().map(|sst| sst.level.as_mut_slice()) else { return };
    for plant in plants {
        if let Plant::Level(share) = *plant {
            first.trl_mhz[0].clone_from(&sse);
            let lower = |mhz: &u32| (f64::from(*mhz) * share / 100.0).round() as u32 * 100;
            other.trl_mhz[0] = sse.iter().map(lower).collect();
            other.cores.clear();
            (other.base_mhz, other.tjmax_c) = (first.base_mhz, first.tjmax_c);
            // A level's design power is also its power limit.
            other.tdp_w = watts;
        }
    }
}

/// Runs the plants. `None` if the settings contradict each other.
fn run(base: Base, plants: &[Plant], setting: Setting, free: Option<&Free>) -> Option<Ran> {
    let (spec, boot) = machine(base, plants, setting, free);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("machine.toml");
    std::fs::write(&path, spec.to_toml().unwrap()).unwrap();
    let host = SimHost::open(&SimSetup::parse(&format!("{}{boot}", path.display())).unwrap()).unwrap();
    let highest = f64::from(spec.core[0].max_mhz);
    let mut settings: Vec<String> = plants.iter().flat_map(|plant| plant.settings(highest)).collect();
    if !settings.iter().any(|setting| setting.starts_with("governor=")) {
        settings.push("governor=performance".into());
    }
    let state = StateDir::new(directory.path().join("state"));
    let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
    let intent = Intent::from_arguments(&settings, None).unwrap();
    if transaction.apply(&intent, &|| false).is_err() {
        assert!(plants.len() > 1, "{base:?} {plants:?}");
        return None;
    }
    transaction.keep().unwrap();
    let cpu: u32 = base.pin.split(['-', ',']).next().unwrap().parse().unwrap();
    for plant in plants {
        if let Plant::Hold(share) | Plant::Prochot(share) = plant {
            let held = KiloHertz((free.unwrap().mhz * share * 1000.0) as u32);
            // PROCHOT is a pin of the processor: it slows all cores.
            let cpus = if matches!(plant, Plant::Prochot(_)) { pinned(base) } else { vec![cpu] };
            for cpu in cpus {
                host.with(|machine| machine.silicon_mut().hold(cpu as usize, Some(held)));
            }
        }
        if let Plant::KernelRequest(share) = plant {
            let most = (highest * share) as u32 * 1000;
            // On all CPUs: a core runs at the higher request of its threads.
            for cpu in 0..host.with(|machine| machine.silicon().cpus()) as u32 {
                host.with(|machine| machine.request_frequency(cpu, Some(most)));
            }
        }
        if let Plant::Heat(share) = plant {
            // Start hot, as after a long time at the cooling's limit.
            let watts = free.unwrap().watts * share;
            host.with(|machine| machine.silicon_mut().preheat(0, watts));
        }
    }
    Some(measure(&host, base, plants, setting))
}

fn pinned(base: Base) -> Vec<u32> {
    let list: flyball_host::CpuList = base.pin.parse().unwrap();
    list.iter().collect()
}

/// Runs the model, and explains the CPU. Also returns what the silicon did.
fn measure(host: &SimHost, base: Base, plants: &[Plant], setting: Setting) -> Ran {
    let cpu: u32 = base.pin.split(['-', ',']).next().unwrap().parse().unwrap();
    let words: Vec<String> = ["--endless", "--pin", base.pin].map(str::to_owned).into();
    let _load = host.spawn(Launch::new(base.load, &words)).unwrap();
    host.sleep(Duration::from_secs(setting.warm_up));
    let mut sampler = Sampler::open(host, Options::default()).unwrap();
    let mut samples = vec![sampler.sample()];
    let cpus = pinned(base);
    let now = |host: &SimHost| {
        host.with(|machine| {
            let silicon = machine.silicon();
            let cycles: Vec<u64> = cpus.iter().map(|cpu| silicon.cycles(*cpu as usize)).collect();
            // MPERF counts the cycles of the time stamp counter while the CPU runs.
            let ran: Vec<u64> =
                cpus.iter().map(|cpu| silicon.read_msr(*cpu as usize, MPERF).unwrap()).collect();
            (cycles, ran, silicon.energy_joules(0))
        })
    };
    let (before, began) = (now(host), host.now());
    for _ in 0..4 {
        host.sleep(Duration::from_millis(500));
        samples.push(sampler.sample());
    }
    let (after, seconds) = (now(host), (host.now() - began).as_secs_f64());
    if plants.iter().any(|plant| matches!(plant, Plant::Prochot(_))) {
        for sample in &mut samples {
            assert_prochot(sampler.layout(), sample);
        }
    }
    let facts = Facts::take(host, sampler.layout(), |_| None).unwrap();
    let only = [cpu].into_iter().collect();
    let found = explain(sampler.layout(), &facts, &samples, Some(&only)).remove(0);
    let sum: f64 = found.steps.iter().map(|step| step.mhz).sum::<f64>() + found.rest;
    assert!((sum - (found.highest.unwrap() - found.mhz.unwrap())).abs() < 1e-6, "{found:?}");
    let layout = sampler.layout();
    let core = |cpu: u32| layout.index_of(cpu).and_then(|index| layout.cpus[index].core);
    let tsc = host.with(|machine| machine.silicon().spec().clock.tsc_khz);
    let mhz = |index: usize| {
        let ran = (after.1[index] - before.1[index]) as f64 / f64::from(tsc) / 1000.0;
        (after.0[index] - before.0[index]) as f64 / ran / 1e6
    };
    Ran {
        mhz: mhz(0),
        others: (1..cpus.len()).filter(|index| core(cpus[*index]) != core(cpu)).map(mhz).fold(0.0, f64::max),
        watts: (after.2 - before.2) / seconds,
        found,
    }
}

/// Sets PROCHOT in every register that was read: bit 0 of MSR 0x64f and bit 2 of IA32_THERM_STATUS
/// (Intel SDM volume 4).
fn assert_prochot(layout: &Layout, sample: &mut Sample) {
    for (quantity, bit) in [(Quantity::LimitReasons, 1), (Quantity::ThermStatus, 1 << 2)] {
        let Some(start) = layout.start(quantity) else { continue };
        for value in &mut sample.values[start..start + layout.cpus.len()] {
            *value |= if *value == ABSENT { 0 } else { bit };
        }
    }
}

const BASES: &[Base] = &[
    Base { machine: "sst-guide", kernel: "6.1", pin: "0-13", passive: "intel_pstate=passive", load: "spin" },
    Base { machine: "sst-guide", kernel: "7.2", pin: "2", passive: "intel_pstate=passive", load: "spin" },
    Base { machine: "gold-6138", kernel: "7.2", pin: "0-7", passive: "intel_pstate=passive", load: "spin" },
    Base { machine: "i7-3520m", kernel: "6.1", pin: "0-1", passive: "intel_pstate=passive", load: "spin" },
    Base { machine: "ryzen-5750g", kernel: "6.12", pin: "0-7", passive: "amd_pstate=passive", load: "spin" },
    Base { machine: "ryzen-5750g", kernel: "7.2", pin: "3", passive: "amd_pstate=passive", load: "spin" },
    Base {
        machine: "ryzen-preferred",
        kernel: "7.2",
        pin: "0-5",
        passive: "amd_pstate=passive",
        load: "spin",
    },
    Base { machine: "tpmi-small", kernel: "6.12", pin: "0-7", passive: "intel_pstate=passive", load: "spin" },
];

/// Loads that sleep half of the time.
const SLEEPING: &[Base] = &[
    Base {
        machine: "sst-guide",
        kernel: "7.2",
        pin: "0-13",
        passive: "intel_pstate=passive",
        load: "bursts",
    },
    Base { machine: "gold-6138", kernel: "6.1", pin: "0-7", passive: "intel_pstate=passive", load: "bursts" },
    Base { machine: "i7-3520m", kernel: "6.12", pin: "0-1", passive: "intel_pstate=passive", load: "bursts" },
    Base { machine: "ryzen-5750g", kernel: "7.2", pin: "0-7", passive: "amd_pstate=passive", load: "bursts" },
    Base {
        machine: "tpmi-small",
        kernel: "6.12",
        pin: "0-7",
        passive: "intel_pstate=passive",
        load: "bursts",
    },
];

/// Strengths of each kind, from marginal to clear.
fn singles(base: &Base) -> Vec<Plant> {
    let is_intel = !base.machine.starts_with("ryzen");
    let has_classes = matches!(base.machine, "sst-guide" | "tpmi-small");
    let has_preference = base.machine != "i7-3520m";
    let is_one = !base.pin.contains('-');
    let mut plants = vec![Plant::TurboOff];
    plants.extend([0.97, 0.9, 0.8, 0.7, 0.55, 0.4].map(Plant::MaxFreq));
    plants.extend([0.95, 0.8, 0.6].map(Plant::KernelRequest));
    plants.extend([0.9, 0.7, 0.5].map(Plant::Setspeed));
    plants.extend([0.95, 0.85, 0.7, 0.5].map(Plant::Hold));
    if is_intel {
        plants.extend([95, 85, 70, 50].map(Plant::Percentage));
        plants.extend([0.95, 0.85, 0.7, 0.5].map(Plant::Prochot));
    }
    if has_classes {
        plants.extend([0.9, 0.7, 0.5].map(Plant::ClassOfService));
        plants.push(Plant::TurboFreq);
    }
    if base.machine == "sst-guide" {
        // The other machines have levels with several domains per package, or none.
        plants.extend([0.95, 0.85, 0.7].map(Plant::Level));
    }
    if has_preference {
        plants.extend([192, 255].map(Plant::Preference));
        if is_intel {
            plants.extend([150, 170, 220].map(Plant::Preference));
        }
    }
    if !is_one {
        if is_intel {
            // AMD processors have no turbo table.
            plants.extend([0.9, 0.75].map(Plant::ActiveCores));
        }
        // One busy CPU draws so little that no limit of a real machine is below it.
        plants.extend([0.97, 0.9, 0.8, 0.65, 0.5].map(Plant::Power));
        plants.extend([0.95, 0.85, 0.7, 0.55].map(Plant::Heat));
        plants.extend([0.95, 0.9, 0.8, 0.7, 0.6].map(Plant::Current));
    }
    plants
}

/// Pairs of kinds, each in a weak and a strong form.
fn pairs(base: &Base) -> Vec<[Plant; 2]> {
    // Two ways to the same reason count as two kinds.
    let mut kinds: BTreeMap<(Limiter, bool), Vec<Plant>> = BTreeMap::new();
    for plant in singles(base) {
        let is_second = matches!(plant, Plant::KernelRequest(_) | Plant::TurboFreq);
        kinds.entry((plant.named(base), is_second)).or_default().push(plant);
    }
    // Use the middle strength: extremes would make most pairs trivial.
    let of = |plants: &[Plant]| plants[plants.len() / 2];
    let kinds: Vec<Plant> = kinds.values().map(|plants| of(plants)).collect();
    let mut pairs = Vec::new();
    for (index, one) in kinds.iter().enumerate() {
        for other in &kinds[index + 1..] {
            let limiters = [one.named(base), other.named(base)];
            // These settings exclude each other: governor userspace leaves no choice to a
            // preference.
            if limiters == [Limiter::Governor, Limiter::Preference]
                || limiters.contains(&Limiter::Governor) && limiters.contains(&Limiter::Percentage)
                // A frequency is held for one of the two reasons only.
                || limiters == [Limiter::Prochot, Limiter::Firmware]
                // A class has either high or low priority.
                || *other == Plant::TurboFreq && limiters.contains(&Limiter::ClassOfService)
                || *one == Plant::TurboFreq && limiters.contains(&Limiter::ClassOfService)
            {
                continue;
            }
            pairs.push([*one, *other]);
        }
    }
    pairs
}

/// Returns what each limit cost in the model: the frequency lost when it is added to those before
/// it.
fn truth(base: Base, plants: &[Plant], free: &Free, ran: &Ran) -> Option<Vec<(Limiter, f64)>> {
    let mut steps = vec![(Limiter::ActiveCores, free.highest - free.mhz)];
    let mut last = free.mhz;
    let setting = Setting::of(plants);
    let plants = ordered(base, plants, free, ran)?;
    for count in 1..=plants.len() {
        let mhz = match plants.get(count) {
            None => ran.mhz,
            Some(next) => {
                let without = run(base, &plants[..count], setting, Some(free))?;
                // Holding one CPU leaves the others more of the shared budget, so scale the shared
                // limit's cost to what it costs the others.
                let is_shared = next.kind() == Kind::Own && plants[count - 1].kind() == Kind::Shared;
                if is_shared && ran.others > 0.0 {
                    (without.mhz * ran.others / without.others).max(ran.mhz)
                } else {
                    without.mhz
                }
            }
        };
        let limiter = plants[count - 1].named(&base);
        match steps.iter_mut().find(|step| step.0 == limiter) {
            Some(step) => step.1 += last - mhz,
            None => steps.push((limiter, last - mhz)),
        }
        last = mhz;
    }
    Some(steps)
}

/// The order in which limits are added.
fn ordered(base: Base, plants: &[Plant], free: &Free, ran: &Ran) -> Option<Vec<Plant>> {
    // A limit on the only busy core cannot be told from a shared one.
    let kind = |plant: &Plant| match plant.kind() {
        Kind::Own if ran.others == 0.0 => Kind::Shared,
        kind => kind,
    };
    let pick = |wanted| plants.iter().copied().filter(move |plant: &Plant| kind(plant) == wanted);
    let mut order: Vec<Plant> = pick(Kind::Frequency).collect();
    order.sort_by_key(|plant| plant.limiter());
    let mut shared = Vec::new();
    for plant in pick(Kind::Shared) {
        // Together with the known frequencies, as an energy preference is a share of them.
        let mhz = run(base, &[&order[..], &[plant]].concat(), Setting::of(plants), Some(free))?.mhz;
        shared.push((plant, mhz));
    }
    shared.sort_by(|one, other| one.1.total_cmp(&other.1));
    // If two are within one clock step, either may come first.
    let is_found = |plant: Plant| ran.found.steps.iter().any(|step| step.limiter == plant.named(&base));
    if let [one, other] = shared[..]
        && other.1 - one.1 < base.step()
        && !is_found(one.0)
        && is_found(other.0)
    {
        shared.swap(0, 1);
    }
    order.extend(shared.into_iter().map(|(plant, _)| plant));
    order.extend(pick(Kind::Own));
    Some(order)
}

#[derive(Default)]
struct Tally {
    count: Count,
    wrong: String,
}

impl Tally {
    fn judge(&mut self, base: Base, plants: &[Plant], free: &Free) {
        let Some(ran) = run(base, plants, Setting::of(plants), Some(free)) else { return };
        let Some(mut truth) = truth(base, plants, free, &ran) else { return };
        let least = 0.01 * free.highest;
        truth.retain(|step| step.1 >= least);
        let found = &ran.found;
        assert!(found.rest.abs() < 0.02 * free.highest, "{base:?} {plants:?}: {found}");
        // MHz may differ by 3 % of the cost, or by 1 % of the frequency for small costs. How often
        // sleeping cores overlap is not known, so bursts may differ by 3 % of the frequency.
        let near = if base.load == "bursts" { 3.0 * least } else { least };
        let tolerance = Tolerance { least, tie: 0.5 * base.step(), share: 0.03, near };
        let entries: Vec<(&[Limiter], f64)> =
            truth.iter().map(|(limiter, mhz)| (std::slice::from_ref(limiter), *mhz)).collect();
        let judged = judge(&entries, found, tolerance);
        self.count.add(&judged);
        if let Some(marks) = judged.marks() {
            let truth: Vec<String> =
                truth.iter().map(|(limiter, mhz)| format!("{limiter} {mhz:.0}")).collect();
            let _ = writeln!(
                self.wrong,
                "{marks}: {} {} {plants:?}: truth [{}]; {found}",
                base.machine,
                base.pin,
                truth.join(", "),
            );
        }
    }
}

/// Returns the bases, or only those whose machine's name contains FLYBALL_TRUTH.
fn wanted(bases: &[Base]) -> (Vec<Base>, bool) {
    let only = std::env::var("FLYBALL_TRUTH").ok();
    let is_wanted = |base: &&Base| only.as_ref().is_none_or(|only| base.machine.contains(only));
    (bases.iter().filter(is_wanted).copied().collect(), only.is_none())
}

/// Judges the situations of each base, with one thread per base: bases share nothing.
fn judge_all(bases: &[Base], plants: impl Fn(&Base) -> Vec<Vec<Plant>> + Sync) -> Vec<Tally> {
    std::thread::scope(|scope| {
        let plants = &plants;
        let judge = |base: &Base| {
            let mut tally = Tally::default();
            let free = run(*base, &[], Setting::of(&[]), None).expect("no settings");
            let highest = free.found.highest.unwrap_or(0.0);
            let free = Free { watts: free.watts, mhz: free.mhz, highest };
            for plants in plants(base) {
                tally.judge(*base, &plants, &free);
            }
            tally
        };
        let threads: Vec<_> = bases.iter().map(|base| scope.spawn(move || judge(base))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no assertion failed")).collect()
    })
}

/// Prints the errors, and returns the counts.
fn report(name: &str, tallies: &[Tally]) -> Count {
    let mut sum = Count::default();
    for tally in tallies {
        sum.add(&tally.count);
        print!("{}", tally.wrong);
    }
    sum.check(name);
    sum
}

#[test]
fn the_first_reason_is_the_true_one() {
    let (bases, is_all) = wanted(BASES);
    let single = |base: &Base| singles(base).into_iter().map(|plant| vec![plant]).collect();
    let mut all = report("alone", &judge_all(&bases, single));
    let paired = |base: &Base| pairs(base).iter().map(|pair| pair.to_vec()).collect();
    all.add(&report("in pairs", &judge_all(&bases, paired)));
    all.check("all");
    assert!(all.situations >= 700 || !is_all, "{all:?}");
}

#[test]
fn the_first_reason_is_the_true_one_of_loads_that_sleep() {
    let (bases, _) = wanted(SLEEPING);
    let single = |base: &Base| singles(base).into_iter().map(|plant| vec![plant]).collect();
    report("of loads that sleep", &judge_all(&bases, single));
}
