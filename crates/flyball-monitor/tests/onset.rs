//! Throttling that begins while samples are taken. `why` must name the right reason within two
//! samples, and none in an hour without throttling.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::time::Duration;

use flyball_host::{Host, Launch, topology::POLICIES};
use flyball_monitor::{Account, Explanation, Facts, Limiter, Options, Sample, Sampler, Step};
use flyball_sim::silicon::KiloHertz;
use flyball_simhost::{SimHost, SimSetup};

/// Machines, and CPUs that can run at their highest frequency without reaching a limit.
const MACHINES: &[(&str, &str)] = &[
    ("gold-6138", "0-5"),
    ("i7-2600", "0-1"),
    ("i7-3520m", "0-1"),
    ("ryzen-5750g", "0-5"),
    ("sst-guide", "0-5"),
];

/// The kind of throttling that begins.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plant {
    FanBlocked,
    PowerLimit,
    Glitch,
    MaxFreq,
}

/// Limiters that a plant may be reported as.
const PLANTED: &[Limiter] =
    &[Limiter::Power, Limiter::Current, Limiter::Heat, Limiter::Prochot, Limiter::Firmware, Limiter::MaxFreq];

struct Watch<'h> {
    host: &'h SimHost,
    sampler: Sampler<'h>,
    facts: Facts,
    last: Sample,
    cycles: Vec<u64>,
    cpus: Vec<u32>,
}

impl<'h> Watch<'h> {
    fn new(host: &'h SimHost, cpus: &str) -> Watch<'h> {
        let list: flyball_host::CpuList = cpus.parse().unwrap();
        let mut sampler = Sampler::open(host, Options::default()).unwrap();
        let facts = Facts::take(host, sampler.layout(), |_| None).unwrap();
        let last = sampler.sample();
        let mut watch = Watch { host, sampler, facts, last, cycles: Vec::new(), cpus: list.iter().collect() };
        watch.cycles = watch.count();
        watch
    }

    fn count(&self) -> Vec<u64> {
        self.host
            .with(|machine| self.cpus.iter().map(|cpu| machine.silicon().cycles(*cpu as usize)).collect())
    }

    /// Advances by a second. Returns the first CPU's cycles, the planted reasons that come first
    /// for any CPU, and all reasons of the busy CPUs.
    fn next(&mut self) -> (u64, Vec<Limiter>, Vec<Limiter>) {
        self.host.sleep(Duration::from_secs(1));
        let sample = self.sampler.sample();
        let layout = self.sampler.layout();
        let mut account = Account::new(layout);
        account.add(layout, &self.facts, &self.last, &sample);
        let found = account.explain(layout, &self.facts, None);
        self.last = sample;
        let before = std::mem::take(&mut self.cycles);
        self.cycles = self.count();
        let is_busy = |one: &&Explanation| self.cpus.iter().any(|cpu| one.cpus.contains(*cpu));
        let all = found.iter().filter(is_busy).flat_map(|one| &one.steps);
        let planted = |step: &Step| PLANTED.contains(&step.limiter).then_some(step.limiter);
        let first = found.iter().filter_map(Explanation::first).filter_map(planted).collect();
        (self.cycles[0] - before[0], first, all.filter_map(planted).collect())
    }
}

fn policies(host: &SimHost) -> Vec<String> {
    let mut names = host.list(POLICIES).unwrap();
    // Without the governors' folders, which are in the same place.
    names.retain(|name| name.starts_with("policy"));
    names
}

fn open(machine: &str, cpus: &str, faults: &[&str]) -> SimHost {
    let mut setup = SimSetup::parse(machine).unwrap();
    setup.faults = faults.iter().map(|rule| rule.parse().unwrap()).collect();
    let host = SimHost::open(&setup).unwrap();
    for policy in policies(&host) {
        host.write(&format!("{POLICIES}/{policy}/scaling_governor"), b"performance").unwrap();
    }
    let words: Vec<String> = ["--endless", "--pin", cpus].map(str::to_owned).into();
    std::mem::forget(host.spawn(Launch::new("spin", &words)).unwrap());
    host
}

/// Plants throttling after some seconds of a run. Returns after how many samples the reason was
/// shown, or `None` if the machine does not support it.
fn delay(machine: &str, cpus: &str, plant: Plant) -> Option<usize> {
    let faults: &[&str] = if plant == Plant::FanBlocked { &["fan 60 after 11s"] } else { &[] };
    let host = open(machine, cpus, faults);
    host.sleep(Duration::from_secs(5));
    let mut watch = Watch::new(&host, cpus);
    let mut usual = 0;
    for _ in 0..5 {
        let (cycles, reasons, _) = watch.next();
        assert!(reasons.is_empty(), "{machine}: {reasons:?} before anything was planted");
        usual = cycles;
    }
    let held = usual as f64 / 1e6 * 0.7;
    let expected = match plant {
        Plant::FanBlocked => Limiter::Heat,
        Plant::PowerLimit => {
            let limit = "/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw";
            host.write(limit, b"12000000").ok()?;
            Limiter::Power
        }
        Plant::Glitch => {
            host.with(|machine| {
                let held = KiloHertz((held * 1000.0) as u32);
                machine.silicon_mut().hold(watch.cpus[0] as usize, Some(held));
            });
            Limiter::Firmware
        }
        Plant::MaxFreq => {
            // On all policies: a core runs at the higher request of its threads, and a processor
            // without HWP at the highest request of its cores.
            for policy in policies(&host) {
                let path = format!("{POLICIES}/{policy}/scaling_max_freq");
                host.write(&path, format!("{:.0}", held * 1000.0).as_bytes()).unwrap();
            }
            Limiter::MaxFreq
        }
    };
    let mut since = None;
    // Heat builds up slowly.
    for number in 0..300 {
        let (cycles, _, reasons) = watch.next();
        if since.is_none() && (cycles as f64) < 0.98 * usual as f64 {
            since = Some(number);
        }
        if reasons.contains(&expected) {
            return Some(number - since.unwrap_or(number) + 1);
        }
        assert!(since.is_none_or(|since| number < since + 10), "{machine} {plant:?}: {reasons:?}");
    }
    assert!(since.is_none(), "{machine} {plant:?} is never shown");
    None
}

#[test]
fn a_reason_is_shown_within_two_samples() {
    let (mut seen, mut late) = (0, Vec::new());
    for (machine, cpus) in MACHINES {
        for plant in [Plant::FanBlocked, Plant::PowerLimit, Plant::Glitch, Plant::MaxFreq] {
            match delay(machine, cpus, plant) {
                Some(samples) => {
                    println!("{machine} {plant:?}: after {samples}");
                    seen += 1;
                    if samples > 2 {
                        late.push((*machine, plant, samples));
                    }
                }
                None => println!("{machine} {plant:?}: does not slow it"),
            }
        }
    }
    assert!(seen >= 12, "{seen}");
    assert!(late.is_empty(), "{late:?}");
}

/// Runs one machine for an hour, and three others for a quarter of an hour.
#[test]
fn an_hour_without_throttles_shows_none() {
    for (number, (machine, cpus)) in MACHINES[..4].iter().rev().enumerate() {
        let host = open(machine, cpus, &[]);
        host.sleep(Duration::from_secs(5));
        let mut watch = Watch::new(&host, cpus);
        for second in 0..if number == 1 { 3600 } else { 900 } {
            let (_, reasons, _) = watch.next();
            assert!(reasons.is_empty(), "{machine}: {reasons:?} after {second} s");
        }
    }
}
