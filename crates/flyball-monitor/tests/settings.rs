//! Settings on every simulated machine with kernel 6.12, alone and in pairs, under loads on one
//! core, on both threads of a core, on several cores and on loads that sleep. The truth is the
//! model's: each setting is added to those before it, in the order of [`Limiter::ALL`], and what
//! the silicon's frequency falls by is what it took.

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

/// Losses below this share of the highest frequency are rounding.
const LEAST: f64 = 0.01;

/// Settings that are planted together, and the reasons that are true of them.
#[derive(Debug, Clone, PartialEq)]
struct Plant {
    kind: &'static str,
    settings: Vec<String>,
    limiters: &'static [Limiter],
}

/// The kind of load, and the CPUs it is pinned to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    OneCore,
    Siblings,
    Cores,
    Sleeping,
    /// On the last CPU, which is an E-core of a hybrid.
    Last,
}

#[derive(Debug, Clone, Copy)]
struct Bed {
    machine: &'static str,
    kernel: &'static str,
    load: Load,
}

struct Ran {
    /// The silicon's mean frequency while the first CPU ran.
    mhz: f64,
    watts: f64,
    highest: f64,
    lowest: f64,
    /// AMD's processors have no turbo limit for a number of cores, and each core has a highest
    /// frequency of its own.
    is_amd: bool,
    found: Explanation,
}

impl Bed {
    /// It has hundreds of CPUs, with which a debug build takes long.
    fn is_large(self) -> bool {
        matches!(self.machine, "epyc-512" | "tpmi-large")
    }

    /// The machine without limits of its own, so that what is planted is what limits.
    fn spec(self) -> MachineSpec {
        let mut spec = unlimited::machine(self.machine);
        // The most that the register of the limit can hold is little above.
        spec.power.pl1_w = 4000.0;
        spec
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
            Load::Last => cpus.last().map(|cpu| cpu.number).into_iter().collect(),
        }
    }

    /// `None` if the machine refuses the settings.
    fn run(self, plants: &[&Plant]) -> Option<Ran> {
        let spec = self.spec();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("machine.toml");
        std::fs::write(&path, spec.to_toml().unwrap()).unwrap();
        let setup = format!("{},kernel={}", path.display(), self.kernel);
        let host = SimHost::open(&SimSetup::parse(&setup).unwrap()).ok()?;
        let mut settings: Vec<String> = plants.iter().flat_map(|plant| plant.settings.clone()).collect();
        if !settings.iter().any(|setting| setting.starts_with("governor=")) {
            settings.push("governor=performance".into());
        }
        let state = StateDir::new(directory.path().join("state"));
        let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
        transaction.apply(&Intent::from_arguments(&settings, None).ok()?, &|| false).ok()?;
        transaction.keep().unwrap();
        let mut sampler =
            Sampler::open(&host, Options { slow: Duration::ZERO, ..Options::default() }).unwrap();
        let pin = self.pin(&sampler);
        let first = pin.iter().next()?;
        let words: Vec<String> = ["--endless".to_owned(), "--pin".to_owned(), pin.to_string()].into();
        let load = if self.load == Load::Sleeping { "bursts" } else { "spin" };
        let _load = host.spawn(Launch::new(load, &words)).unwrap();
        host.sleep(Duration::from_secs(3));
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
        let class = if self.load == Load::Last { spec.core.last() } else { spec.core.first() }.unwrap();
        let ran = (after.1 - before.1) / f64::from(spec.clock.tsc_khz) / 1000.0;
        Some(Ran {
            mhz: (after.0 - before.0) / ran / 1e6,
            watts: (after.2 - before.2) / seconds,
            highest: f64::from(class.max_mhz),
            lowest: f64::from(class.min_mhz),
            is_amd: layout.machine.vendor == Vendor::Amd,
            found,
        })
    }
}

/// Returns the settings that are planted one at a time. A machine refuses those it does not have.
fn plants(free: &Ran, load: Load) -> Vec<Plant> {
    use Limiter as L;
    let mut plants = Vec::new();
    let mut plant = |kind, settings: &[&str], limiters| {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        plants.push(Plant { kind, settings, limiters });
    };
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
    plant("level", &["sst-level=4"], &[L::SpeedSelect]);
    plant("min-freq", &[&format!("min-freq={}MHz", free.lowest)], &[]);
    if load == Load::Cores {
        let watts = free.watts;
        for share in [0.9, 0.7] {
            plant("power", &[&format!("power-limit={:.0}W", watts * share)], &[L::Power]);
        }
    }
    plants
}

#[derive(Default)]
struct Count {
    situations: usize,
    first: usize,
    second: usize,
    mhz: usize,
}

impl Count {
    fn add(&mut self, other: &Count) {
        self.situations += other.situations;
        self.first += other.first;
        self.second += other.second;
        self.mhz += other.mhz;
    }

    fn print(&self, kind: &str) {
        println!("{kind:32} {:7} {:6} {:13} {:4}", self.situations, self.first, self.second, self.mhz);
    }
}

#[derive(Default)]
struct Tally {
    kinds: BTreeMap<String, Count>,
    wrong: String,
}

impl Tally {
    /// `chain` has the frequencies without a plant, with the first, and so on.
    fn judge(&mut self, bed: Bed, kind: &str, plants: &[&Plant], chain: &[f64], ran: &Ran) {
        let top = if ran.is_amd { chain[0] } else { ran.highest };
        // The table's limit for the load's own cores is there without any plant.
        let mut truth: Vec<(&[Limiter], f64)> = vec![(&[Limiter::ActiveCores], top - chain[0])];
        for (plant, pair) in plants.iter().zip(chain.windows(2)) {
            truth.push((plant.limiters, pair[0] - pair[1]));
        }
        let least = LEAST * ran.highest;
        let most = truth.iter().map(|step| step.1).fold(0.0, f64::max);
        let steps = || ran.found.steps.iter().filter(|step| step.mhz >= least);
        let named = ran.found.first().filter(|step| step.mhz >= least);
        // Reasons that took equally much, within a step of the clock, are both the first.
        let is_first = match named {
            Some(step) => truth.iter().any(|(of, mhz)| of.contains(&step.limiter) && *mhz >= most - 50.0),
            None => most < 1.5 * least,
        };
        let is_second = steps()
            .any(|step| !truth.iter().any(|(of, mhz)| of.contains(&step.limiter) && *mhz >= 0.2 * least));
        let is_near = truth.iter().all(|(of, mhz)| {
            let found: f64 =
                ran.found.steps.iter().filter(|step| of.contains(&step.limiter)).map(|step| step.mhz).sum();
            (found - mhz.max(0.0)).abs() <= 0.03 * ran.highest
        });
        let count = self.kinds.entry(kind.to_owned()).or_default();
        count.situations += 1;
        count.first += usize::from(is_first);
        count.second += usize::from(is_second);
        count.mhz += usize::from(is_near);
        if !is_first || is_second || !is_near {
            let marks = [(!is_first, "FIRST"), (is_second, "SECOND"), (!is_near, "MHZ")];
            let marks: Vec<&str> = marks.iter().filter(|mark| mark.0).map(|mark| mark.1).collect();
            let truth: Vec<String> = truth.iter().map(|(of, mhz)| format!("{of:?} {mhz:.0}")).collect();
            let settings: Vec<&String> = plants.iter().flat_map(|plant| &plant.settings).collect();
            let _ = writeln!(
                self.wrong,
                "{} {bed:?} {settings:?}: truth {}; {}",
                marks.join(" "),
                truth.join(", "),
                ran.found
            );
        }
    }

    /// Prints the counts by kind and what was wrong, and returns the sum.
    fn report(&self, kernel: &str, loads: &str) -> Count {
        let mut sum = Count::default();
        let title = format!("{kernel}, {loads}");
        println!("{title:32} planted  first  false second  MHz");
        for (kind, count) in &self.kinds {
            sum.add(count);
            count.print(kind);
        }
        sum.print("all");
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
    let plants = plants(&free, bed.load);
    let alone: Vec<(&Plant, Ran)> =
        plants.iter().filter_map(|plant| Some((plant, bed.run(&[plant])?))).collect();
    for (plant, ran) in &alone {
        tally.judge(bed, plant.kind, &[plant], &[free.mhz, ran.mhz], ran);
    }
    if bed.is_large() {
        return tally;
    }
    // Each of the others together with max-freq, in the order in which the engine looks at them.
    let Some(limit) = alone.iter().position(|(plant, _)| plant.settings[0].contains("max-freq")) else {
        return tally;
    };
    let (limit, limited) = &alone[limit + 1];
    for (plant, ran) in alone.iter().filter(|(plant, _)| !plant.settings[0].starts_with("max-freq")) {
        let Some(both) = bed.run(&[limit, plant]) else { continue };
        let is_before = plant.limiters.iter().all(|limiter| *limiter < Limiter::MaxFreq);
        let (order, between) =
            if is_before { ([*plant, *limit], ran.mhz) } else { ([*limit, *plant], limited.mhz) };
        let kind = format!("{} and max-freq", plant.kind);
        tally.judge(bed, &kind, &order, &[free.mhz, between, both.mhz], &both);
    }
    tally
}

fn judge_kernel(kernel: &'static str) {
    let (mut tally, mut sleeping) = (Tally::default(), Tally::default());
    for machine in MachineSpec::names() {
        let loads = [Load::OneCore, Load::Siblings, Load::Cores, Load::Sleeping, Load::Last];
        for bed in loads.map(|load| Bed { machine, kernel, load }) {
            let is_wanted = match bed.load {
                Load::OneCore => true,
                Load::Last => machine == "hybrid-laptop",
                Load::Siblings | Load::Cores | Load::Sleeping => !bed.is_large(),
            };
            if is_wanted {
                let tally = if bed.load == Load::Sleeping { &mut sleeping } else { &mut tally };
                tally.join(judge_bed(bed));
            }
        }
    }
    let busy = tally.report(kernel, "busy");
    let asleep = sleeping.report(kernel, "sleeping");
    assert!(busy.situations + asleep.situations >= 600, "{} and {}", busy.situations, asleep.situations);
    assert!(busy.first * 100 >= busy.situations * 99, "{} of {}", busy.first, busy.situations);
    assert!(busy.second * 100 <= busy.situations, "{} of {}", busy.second, busy.situations);
    assert!(busy.mhz * 100 >= busy.situations * 99, "{} of {}", busy.mhz, busy.situations);
    // Shares of time do not show whether cores run together, and the turbo limit depends on that.
    assert!(asleep.first * 100 >= asleep.situations * 93, "{} of {}", asleep.first, asleep.situations);
    assert!(asleep.second * 100 <= asleep.situations, "{} of {}", asleep.second, asleep.situations);
    assert!(asleep.mhz * 100 >= asleep.situations * 97, "{} of {}", asleep.mhz, asleep.situations);
}

#[test]
fn reasons_are_true_with_kernel_6_12() {
    judge_kernel("6.12");
}
