//! Settings and other limits on every simulated machine with three kernels, alone and in pairs,
//! under loads on one core, on both threads of a core, on several cores, and under loads that
//! sleep. The model knows the truth: limits are added one by one in the order of [`Limiter::ALL`],
//! and each one costs the frequency that the silicon loses. Each kernel gets a third of the loads,
//! or all of them with FLYBALL_SITUATIONS=all.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod unlimited;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use flyball_control::{
    Intent,
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{CpuList, Host, Launch, Vendor};
use flyball_monitor::{Explanation, Facts, Limiter, Options, Sampler, explain};
use flyball_sim::silicon::{MachineSpec, msr::MPERF};
use flyball_simhost::{SimHost, SimSetup};
use unlimited::{Count, Tolerance, judge};

/// Losses below this share of the highest frequency are rounding.
const LEAST: f64 = 0.01;

/// Switching activity of the model `spin`.
const INTENSITY: f64 = 1.0;

/// Limits that are planted together, and the reasons that are correct for them.
#[derive(Debug, Clone, PartialEq)]
struct Plant {
    kind: &'static str,
    settings: Vec<String>,
    change: Option<Change>,
    limiters: &'static [Limiter],
}

/// A limit that is no setting.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    /// Regulators deliver this share of the dynamic power that the cores use without limits.
    Current { share: f64, mhz: f64 },
    /// Heat that the cooling removes at the temperature limit, W.
    Heat { watts: f64 },
    /// The highest P-state that firmware allows, MHz.
    Bios { mhz: f64 },
}

/// The kind of load, and the CPUs it is pinned to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    OneCore,
    Siblings,
    Cores,
    Sleeping,
    /// On the last CPU, which has the smallest kind of core.
    Last,
    /// On the last CPU, of a kind of core that no description has: turbo adds a third of its usual
    /// share.
    LastOdd,
}

#[derive(Debug, Clone, Copy)]
struct Bed {
    machine: &'static str,
    kernel: &'static str,
    load: Load,
    /// Kernel command line options.
    boot: &'static str,
}

struct Ran {
    /// The silicon's mean frequency while the first CPU ran.
    mhz: f64,
    watts: f64,
    highest: f64,
    lowest: f64,
    /// AMD processors have no turbo limits by number of cores, but a highest frequency per core.
    is_amd: bool,
    /// The model has a register with limit reasons.
    has_reasons: bool,
    found: Explanation,
}

impl Bed {
    /// Returns whether the machine has hundreds of CPUs, which are slow in a debug build.
    fn is_large(self) -> bool {
        matches!(self.machine, "epyc-512" | "tpmi-large")
    }

    /// Returns the machine with only the planted limits.
    fn spec(self, plants: &[&Plant]) -> MachineSpec {
        let mut spec = unlimited::machine(self.machine);
        if let (Load::LastOdd, [.., last]) = (self.load, &mut spec.core[..]) {
            let (level, scale) = (f64::from(last.base_mhz) / f64::from(last.perf.nominal), &mut last.perf);
            scale.highest = scale.nominal + (scale.highest - scale.nominal) / 3;
            last.max_mhz = (level * f64::from(scale.highest)) as u32;
            last.volts.retain(|point| point.0 < last.max_mhz);
            last.volts.push((last.max_mhz, 1000));
        }
        // Just below the most that the limit's register can hold.
        spec.power.pl1_w = 4000.0;
        for change in plants.iter().filter_map(|plant| plant.change) {
            match change {
                Change::Current { share, mhz } => {
                    for core in &mut spec.core {
                        let volts = core.volts.last().map_or(0.0, |point| f64::from(point.1) / 1000.0);
                        let one = core.dynamic_nf * volts * volts * mhz / 1000.0;
                        core.budget_w = one * INTENSITY * 4.0 * share;
                    }
                }
                Change::Heat { watts } => {
                    let limit = match spec.thermal.throttle_c {
                        0 => spec.thermal.tjmax_c,
                        limit => limit,
                    };
                    spec.thermal.ambient_c = 30.0;
                    // The hot spot of a core and half a degree of control error are small in
                    // comparison.
                    spec.thermal.sink_k_per_w = (f64::from(limit) - 30.5) / watts - 0.01;
                }
                Change::Bios { .. } => {}
            }
        }
        spec
    }

    /// Applies the changes that are not part of the machine's description.
    fn change(self, host: &SimHost, plants: &[&Plant]) {
        for change in plants.iter().filter_map(|plant| plant.change) {
            host.with(|machine| match change {
                // Start hot, as after a long time at the cooling's limit.
                Change::Heat { watts } => machine.silicon_mut().preheat(0, watts),
                Change::Bios { mhz } => {
                    for cpu in 0..machine.silicon().cpus() as u32 {
                        machine.limit_by_firmware(cpu, (mhz * 1000.0) as u32);
                    }
                }
                Change::Current { .. } => {}
            });
        }
    }

    fn pin(self, sampler: &Sampler) -> CpuList {
        let cpus = &sampler.layout().cpus;
        let first = &cpus[0];
        let of_first =
            |cpu: &&flyball_monitor::layout::Cpu| cpu.core == first.core && cpu.package == first.package;
        match self.load {
            Load::OneCore => [first.number].into_iter().collect(),
            Load::Siblings => cpus.iter().filter(of_first).map(|cpu| cpu.number).collect(),
            Load::Cores | Load::Sleeping => cpus.iter().take(4).map(|cpu| cpu.number).collect(),
            Load::Last | Load::LastOdd => cpus.last().map(|cpu| cpu.number).into_iter().collect(),
        }
    }

    /// Runs the plants. `None` if the machine rejects the settings.
    fn run(self, plants: &[&Plant]) -> Option<Ran> {
        let spec = self.spec(plants);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("machine.toml");
        std::fs::write(&path, spec.to_toml().unwrap()).unwrap();
        let setup = format!("{},kernel={}{}", path.display(), self.kernel, self.boot);
        let host = SimHost::open(&SimSetup::parse(&setup).unwrap()).ok()?;
        let mut settings: Vec<String> = plants.iter().flat_map(|plant| plant.settings.clone()).collect();
        if !settings.iter().any(|setting| setting.starts_with("governor=")) {
            settings.push("governor=performance".into());
        }
        // altra boots with boost off.
        if self.machine == "altra" && !settings.iter().any(|setting| setting.contains("turbo")) {
            settings.push("turbo=on".into());
        }
        let state = StateDir::new(directory.path().join("state"));
        let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
        transaction.apply(&Intent::from_arguments(&settings, None).ok()?, &|| false).ok()?;
        transaction.keep().unwrap();
        self.change(&host, plants);
        let mut sampler =
            Sampler::open(&host, Options { slow: Duration::ZERO, ..Options::default() }).unwrap();
        let pin = self.pin(&sampler);
        let first = pin.iter().next()?;
        let words: Vec<String> = ["--endless".to_owned(), "--pin".to_owned(), pin.to_string()].into();
        let load = if self.load == Load::Sleeping { "bursts" } else { "spin" };
        let _load = host.spawn(Launch::new(load, &words)).unwrap();
        // Heat builds up slowly if something else limits first.
        let is_warm = plants.iter().any(|plant| matches!(plant.change, Some(Change::Heat { .. })));
        host.sleep(Duration::from_secs(if is_warm { 30 } else { 3 }));
        let now = |host: &SimHost| {
            host.with(|machine| {
                let silicon = machine.silicon();
                let ran = silicon.read_msr(first as usize, MPERF).unwrap();
                (silicon.cycles(first as usize) as f64, ran as f64, silicon.energy_joules(0))
            })
        };
        let mut samples = vec![sampler.sample()];
        let (before, begun) = (now(&host), host.now());
        for _ in 0..3 {
            host.sleep(Duration::from_millis(400));
            samples.push(sampler.sample());
        }
        let (after, seconds) = (now(&host), (host.now() - begun).as_secs_f64());
        let layout = sampler.layout();
        let facts = Facts::take(&host, layout, |_| None).unwrap();
        let only = [first].into_iter().collect();
        let found = explain(layout, &facts, &samples, Some(&only)).remove(0);
        let class = if matches!(self.load, Load::Last | Load::LastOdd) {
            spec.core.last()
        } else {
            spec.core.first()
        }
        .unwrap();
        let ran = (after.1 - before.1) / f64::from(spec.clock.tsc_khz) / 1000.0;
        Some(Ran {
            mhz: (after.0 - before.0) / ran / 1e6,
            watts: (after.2 - before.2) / seconds,
            highest: f64::from(class.max_mhz),
            lowest: f64::from(class.min_mhz),
            is_amd: layout.machine.vendor == Vendor::Amd,
            has_reasons: layout.machine.limit_reasons().is_some(),
            found,
        })
    }
}

/// Returns the settings to plant one at a time. A machine rejects those that it does not support.
fn plants(free: &Ran, bed: Bed) -> Vec<Plant> {
    use Limiter as L;
    let mut plants = Vec::new();
    let mut changed = |kind, settings: &[&str], change, limiters| {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        plants.push(Plant { kind, settings, change, limiters });
    };
    if bed.load == Load::Cores && bed.boot.is_empty() {
        let current = match (free.is_amd, free.has_reasons) {
            (true, _) => &[L::Package][..],
            (false, true) => &[L::Current],
            // No register shows it, so the reason is the firmware, which lists current as possible.
            (false, false) => &[L::Firmware],
        };
        for share in [0.9, 0.7] {
            changed("current", &[], Some(Change::Current { share, mhz: free.mhz }), current);
            changed("heat", &[], Some(Change::Heat { watts: free.watts * share }), &[L::Heat]);
        }
        for (power, heat, limiters) in [(0.7, 0.9, &[L::Power]), (0.9, 0.7, &[L::Heat])] {
            let power = format!("power-limit={:.0}W", free.watts * power);
            changed("power with heat", &[&power], Some(Change::Heat { watts: free.watts * heat }), limiters);
        }
    }
    if !bed.boot.is_empty() {
        for share in [0.8, 0.5] {
            let mhz = free.highest * share;
            changed("bios limit", &[], Some(Change::Bios { mhz }), &[L::BiosLimit]);
        }
    }
    let mut plant = |kind, settings: &[&str], limiters| changed(kind, settings, None, limiters);
    for share in [0.95, 0.6] {
        let mhz = (free.highest * share).round();
        plant("max-freq", &[&format!("max-freq={mhz}MHz")], &[L::MaxFreq]);
    }
    plant("max-freq, lowest", &[&format!("max-freq={}MHz", free.lowest.max(400.0))], &[L::MaxFreq]);
    for percent in [95, 50] {
        plant("max-perf-pct", &[&format!("max-perf-pct={percent}")], &[L::Percentage]);
    }
    plant("turbo", &["turbo=off"], &[L::TurboOff]);
    plant("latency limit", &["latency-limit=2us"], &[L::LatencyLimit]);
    plant("idle state", &["idle-state:C6=off"], &[L::IdleState]);
    plant("preference", &["governor=powersave", "epp=power"], &[L::Preference]);
    plant("governor", &["governor=powersave"], &[L::Governor, L::Preference]);
    plant("epb", &["epb=15"], &[L::Preference]);
    plant("base-freq", &["sst-bf=on"], &[L::SpeedSelect]);
    plant("turbo-freq", &["sst-cp=on", "clos=3", "sst-tf=on"], &[L::SpeedSelect]);
    plant("level", &["sst-level=4"], &[L::SpeedSelect]);
    plant("min-freq", &[&format!("min-freq={}MHz", free.lowest)], &[]);
    plant("userspace", &["governor=userspace", "setspeed=min"], &[L::Governor]);
    plant("preference, less", &["governor=powersave", "epp=balance_power"], &[L::Preference]);
    if bed.load == Load::Cores {
        let watts = free.watts;
        for share in [0.9, 0.7] {
            plant("power", &[&format!("power-limit={:.0}W", watts * share)], &[L::Power]);
        }
        // The first CPU's class gets the power that the others leave.
        let power = format!("power-limit={:.0}W", watts * 0.7);
        let settings = ["sst-cp=on", "sst-cp-priority=ordered", "clos@0=3", &power];
        plant("priority", &settings, &[L::ClassOfService, L::Power]);
    }
    plants
}

#[derive(Default)]
struct Tally {
    kinds: BTreeMap<String, Count>,
    wrong: String,
}

impl Tally {
    /// `chain` has the frequencies without a plant, with the first plant, with two, and so on.
    fn judge(&mut self, bed: Bed, kind: &str, plants: &[&Plant], chain: &[f64], ran: &Ran) {
        // The table's limit for the load's own cores applies without any plant. AMD has no table,
        // but sleeping cores start slowly.
        let own = if ran.is_amd { &[Limiter::WakeUp][..] } else { &[Limiter::ActiveCores] };
        let is_own = !ran.is_amd || bed.load == Load::Sleeping;
        let own_mhz = if is_own { ran.highest - chain[0] } else { 0.0 };
        let mut truth: Vec<(&[Limiter], f64)> = vec![(own, own_mhz)];
        for (plant, pair) in plants.iter().zip(chain.windows(2)) {
            truth.push((plant.limiters, pair[0] - pair[1]));
        }
        // The firmware limit comes before the table's, which then costs nothing.
        if let Some(place) =
            truth.iter().position(|(of, mhz)| of.first() == Some(&Limiter::BiosLimit) && *mhz > 0.0)
        {
            truth[place].1 += std::mem::take(&mut truth[0].1);
        }
        let tolerance =
            Tolerance { least: LEAST * ran.highest, tie: 50.0, share: 0.0, near: 0.03 * ran.highest };
        let judged = judge(&truth, &ran.found, tolerance);
        self.kinds.entry(kind.to_owned()).or_default().add(&judged);
        if let Some(marks) = judged.marks() {
            let truth: Vec<String> = truth.iter().map(|(of, mhz)| format!("{of:?} {mhz:.0}")).collect();
            let settings: Vec<&String> = plants.iter().flat_map(|plant| &plant.settings).collect();
            let _ = writeln!(
                self.wrong,
                "{marks} {bed:?} {settings:?}: truth {}; {}",
                truth.join(", "),
                ran.found
            );
        }
    }

    /// Prints the counts by kind and the errors, and returns the sum.
    fn report(&self, kernel: &str, loads: &str) -> Count {
        let print = |kind: &str, count: &Count| {
            println!(
                "{kind:32} {:7} {:6} {:13} {:4}",
                count.situations, count.first, count.second, count.mhz
            );
        };
        let mut sum = Count::default();
        let title = format!("{kernel}, {loads}");
        println!("{title:32} planted  first  false second  MHz");
        for (kind, count) in &self.kinds {
            sum.add(count);
            print(kind, count);
        }
        print("all", &sum);
        print!("{}", self.wrong);
        sum
    }

    fn join(&mut self, other: Tally) {
        for (kind, count) in other.kinds {
            self.kinds.entry(kind).or_default().add(&count);
        }
        self.wrong += &other.wrong;
    }
}

fn judge_bed(bed: Bed) -> Tally {
    let mut tally = Tally::default();
    let Some(free) = bed.run(&[]) else { return tally };
    tally.judge(bed, "nothing", &[], &[free.mhz], &free);
    let plants = plants(&free, bed);
    let alone: Vec<(&Plant, Ran)> =
        plants.iter().filter_map(|plant| Some((plant, bed.run(&[plant])?))).collect();
    for (plant, ran) in &alone {
        tally.judge(bed, plant.kind, &[plant], &[free.mhz, ran.mhz], ran);
    }
    if bed.is_large() {
        return tally;
    }
    // Pair each of the others with the lower max-freq, in the order in which the engine checks
    // them.
    let Some((limit, limited)) = alone.iter().rfind(|(plant, _)| plant.kind == "max-freq") else {
        return tally;
    };
    for (plant, ran) in alone.iter().filter(|(plant, _)| !plant.kind.starts_with("max-freq")) {
        let Some(both) = bed.run(&[limit, plant]) else { continue };
        let is_before = plant.limiters.iter().all(|limiter| *limiter < Limiter::MaxFreq);
        let (order, between) =
            if is_before { ([*plant, *limit], ran.mhz) } else { ([*limit, *plant], limited.mhz) };
        let kind = format!("{} and max-freq", plant.kind);
        tally.judge(bed, &kind, &order, &[free.mhz, between, both.mhz], &both);
    }
    tally
}

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

/// The loads of one kernel on every machine: a third of them, or all.
fn beds(kernel: &'static str, is_all: bool) -> Vec<Bed> {
    let mut beds = Vec::new();
    for machine in MachineSpec::names() {
        for load in [Load::OneCore, Load::Siblings, Load::Cores, Load::Sleeping, Load::Last, Load::LastOdd] {
            let bed = Bed { machine, kernel, load, boot: "" };
            let has_kinds = MachineSpec::builtin(machine).unwrap().core.len() > 1;
            let is_wanted = match load {
                Load::OneCore => true,
                Load::Last | Load::LastOdd => has_kinds,
                Load::Siblings | Load::Cores | Load::Sleeping => !bed.is_large(),
            };
            beds.extend(is_wanted.then_some(bed));
        }
    }
    for (machine, boot) in [
        ("gold-6138", ",boot=intel_pstate=disable"),
        ("i7-2600", ",boot=intel_pstate=disable"),
        ("ryzen-5750g", ",boot=amd_pstate=disable"),
    ] {
        beds.extend([Load::OneCore, Load::Cores].map(|load| Bed { machine, kernel, load, boot }));
    }
    let own = KERNELS.iter().position(|other| *other == kernel);
    let turn = beds.into_iter().enumerate().filter(|(index, _)| is_all || Some(index % KERNELS.len()) == own);
    turn.map(|(_, bed)| bed).collect()
}

#[test]
fn reasons_are_true() {
    let is_all = std::env::var("FLYBALL_SITUATIONS").is_ok_and(|which| which == "all");
    let (mut busy, mut asleep) = (Count::default(), Count::default());
    for kernel in KERNELS {
        let (mut tally, mut sleeping) = (Tally::default(), Tally::default());
        // One thread per bed: beds share nothing.
        std::thread::scope(|scope| {
            let judge = |bed: Bed| (bed.load, scope.spawn(move || judge_bed(bed)));
            let threads: Vec<_> = beds(kernel, is_all).into_iter().map(judge).collect();
            for (load, thread) in threads {
                let tally = if load == Load::Sleeping { &mut sleeping } else { &mut tally };
                tally.join(thread.join().unwrap());
            }
        });
        busy.add(&tally.report(kernel, "busy"));
        asleep.add(&sleeping.report(kernel, "sleeping"));
    }
    busy.check("busy");
    asleep.check("sleeping");
    assert!(busy.situations + asleep.situations >= 600, "{} and {}", busy.situations, asleep.situations);
}
