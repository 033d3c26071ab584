//! Situations of machines and kernels in which the evidence allows only one conclusion: what `why`
//! must name first, what it must not name, and how much the reason cost. They are planted alone and
//! together with a frequency limit.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{fmt::Write as _, time::Duration};

use flyball_control::{
    Intent,
    profile::Profile,
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{Host, Launch};
use flyball_monitor::{Certainty, Explanation, Facts, Limiter, Options, Sampler, Step, explain};
use flyball_sim::silicon::MachineSpec;
use flyball_simhost::{SimHost, SimSetup};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

/// The situations. The program's tests also run them through all commands that give reasons.
const SITUATIONS: &str = include_str!("situations.txt");

/// A line of [`SITUATIONS`].
#[derive(Clone)]
struct Situation {
    machine: &'static str,
    kernels: Vec<&'static str>,
    settings: Vec<&'static str>,
    pin: &'static str,
    first: Vec<Limiter>,
    mhz: Option<f64>,
    others: Vec<Limiter>,
}

impl Situation {
    fn parse(line: &'static str) -> Situation {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [machine, kernel, settings, pin, first, others, ..] = cells[..] else { panic!("{line}") };
        let (first, mhz) =
            first.split_once(' ').map_or((first, None), |(first, mhz)| (first, mhz.parse().ok()));
        let limiters = |names: &str| {
            let named = |name| Limiter::ALL.iter().find(|limiter| limiter.id() == name).copied();
            let names = names.split(',').filter(|name| !matches!(*name, "" | "-"));
            names.map(|name| named(name).unwrap()).collect()
        };
        Situation {
            machine,
            kernels: if kernel == "*" { KERNELS.to_vec() } else { vec![kernel] },
            settings: settings.split_whitespace().collect(),
            pin,
            first: limiters(first),
            mhz,
            others: limiters(others),
        }
    }
}

/// Applies settings to a machine and explains its busy CPUs: all of them, or only the first of
/// `pin`. `None` if the machine or the kernel does not support the settings.
fn explained(machine: &str, kernel: &str, intent: &Intent, pin: &str) -> Option<Vec<Explanation>> {
    let host = SimHost::open(&SimSetup::parse(&format!("{machine},kernel={kernel}")).unwrap()).ok()?;
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::new(directory.path().join("state"));
    let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
    transaction.apply(intent, &|| false).ok()?;
    transaction.keep().unwrap();
    let words: Vec<String> = ["--endless", "--pin", pin].map(str::to_owned).into();
    let _load = host.spawn(Launch::new("spin", &words)).unwrap();
    host.sleep(Duration::from_secs(3));
    let mut sampler = Sampler::open(&host, Options { slow: Duration::ZERO, ..Options::default() }).unwrap();
    let mut samples = vec![sampler.sample()];
    for _ in 0..3 {
        host.sleep(Duration::from_millis(400));
        samples.push(sampler.sample());
    }
    let facts = Facts::take(&host, sampler.layout(), |_| None).unwrap();
    Some(explain(sampler.layout(), &facts, &samples, Some(&pin.parse().unwrap())))
}

/// Returns the explanation of a situation's first CPU.
fn first_explained(situation: &Situation, kernel: &str, more: &[&str]) -> Option<Explanation> {
    let settings: Vec<String> =
        situation.settings.iter().chain(more).map(|setting| (*setting).to_owned()).collect();
    let intent = Intent::from_arguments(&settings, None).unwrap();
    let first = situation.pin.split(['-', ',']).next().unwrap().parse().unwrap();
    let found = explained(situation.machine, kernel, &intent, situation.pin)?;
    found.into_iter().find(|found| found.cpus.contains(first))
}

#[derive(Default)]
struct Tally {
    planted: usize,
    first: usize,
    second: usize,
    mhz: usize,
    wrong: String,
}

impl Tally {
    fn judge(
        &mut self,
        situation: &Situation,
        kernel: &str,
        found: &Explanation,
        first: &[Limiter],
        others: &[Limiter],
    ) {
        self.planted += 1;
        let most = found.first().map(|step| step.limiter);
        // The turbo table's limit for the load's own cores applies in every situation.
        let is_first = match most {
            Some(limiter) => first.contains(&limiter) || first.is_empty() && others.contains(&limiter),
            None => first.is_empty(),
        };
        let seconds = found.steps.iter().filter(|step| Some(step.limiter) != most);
        let is_second =
            seconds.clone().all(|step| others.contains(&step.limiter) || first.contains(&step.limiter));
        let is_near = situation.mhz.is_none_or(|mhz| {
            found.first().is_some_and(|step| (step.mhz - mhz).abs() <= 0.03 * found.highest.unwrap())
        });
        self.first += usize::from(is_first);
        self.second += usize::from(!is_second);
        self.mhz += usize::from(is_near);
        if !is_first || !is_second || !is_near {
            let _ = writeln!(
                self.wrong,
                "{} {:?} pin {} kernel {kernel}: {found}",
                situation.machine, situation.settings, situation.pin
            );
        }
        // By exclusion only: AMD has no register with limits.
        let is_clamp = situation.machine.contains("glitch");
        let is_unseen = |step: &&Step| matches!(step.limiter, Limiter::Package | Limiter::Firmware);
        for step in found.steps.iter().filter(|step| is_clamp && is_unseen(step)) {
            assert!(
                matches!(&step.certainty, Certainty::Inferred { fits } if fits.contains(&Limiter::Firmware)),
                "{found}"
            );
        }
    }
}

#[test]
fn what_is_planted_is_what_is_named() {
    let mut alone = Tally::default();
    let mut paired = Tally::default();
    for line in SITUATIONS.lines().filter(|line| !line.starts_with('#')) {
        let situation = Situation::parse(line);
        // A frequency limit below what the situation leaves is a reason too.
        let is_limited = situation.settings.iter().any(|setting| setting.starts_with("max-"));
        let is_paired = situation.kernels.len() > 1 && !is_limited && !situation.machine.contains("boot");
        for kernel in &situation.kernels {
            let found = first_explained(&situation, kernel, &[]);
            assert!(found.is_some() || situation.kernels.len() > 1, "{line}: refused");
            if let Some(found) = found {
                alone.judge(&situation, kernel, &found, &situation.first, &situation.others);
            }
            if is_paired && let Some(found) = first_explained(&situation, kernel, &["max-freq=1.2GHz"]) {
                let with = |limiters: &[Limiter]| [limiters, &[Limiter::MaxFreq]].concat();
                let limited = Situation { mhz: None, ..situation.clone() };
                paired.judge(&limited, kernel, &found, &with(&situation.first), &with(&situation.others));
            }
        }
    }
    for (name, tally) in [("alone", &alone), ("with a limit", &paired)] {
        println!(
            "{name}: first reason right in {} of {}, a false second reason in {}, MHz right in {}",
            tally.first, tally.planted, tally.second, tally.mhz
        );
        print!("{}", tally.wrong);
    }
    let planted = alone.planted + paired.planted;
    assert!(
        alone.first + paired.first == planted
            && alone.second + paired.second == 0
            && alone.mhz + paired.mhz == planted
    );
}

/// Settings with which each core of a processor with ranked cores gets its own frequency.
const UNDER: [&str; 12] = [
    "epp=performance",
    "epp=balance_performance",
    "epp=balance_power",
    "epp=power",
    "epp=power max-freq=75%",
    "epp=balance_power max-freq=75%",
    "max-freq=75%",
    "max-freq=2.5GHz",
    "turbo=off",
    "turbo=off epp=power",
    "min-freq=2GHz",
    "governor=performance",
];
const PROFILES: [&str; 9] =
    ["latency", "throughput", "balanced", "powersave", "storage", "realtime", "hpc", "benchmark", "battery"];

/// A core of lower rank is slower because of its rank, not because of a firmware limit.
#[test]
fn the_rank_of_a_core_is_no_limit_of_the_firmware() {
    let is_ranked =
        |name: &&str| MachineSpec::builtin(name).unwrap().core.iter().any(|core| !core.ranking.is_empty());
    let settings = UNDER.map(|words| {
        let words: Vec<&str> = words.split(' ').collect();
        (words.join(" "), Intent::from_arguments(&words, None).unwrap())
    });
    let profiles = PROFILES.map(|name| {
        let path = format!("{}/../../dist/profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        (name.to_owned(), Profile::parse(&std::fs::read(path).unwrap(), name).unwrap().intent)
    });
    let (mut judged, mut wrong) = (0, String::new());
    for machine in MachineSpec::names().filter(is_ranked) {
        for (driver, kernel) in [("", "6.12"), ("", "7.2"), (",boot=amd_pstate=passive", "6.12")] {
            for (words, intent) in settings.iter().chain(&profiles) {
                for pin in ["0-15", "0-7", "3,7"] {
                    let Some(found) = explained(&format!("{machine}{driver}"), kernel, intent, pin) else {
                        continue;
                    };
                    judged += 1;
                    let is_firmware = |step: &Step| step.limiter == Limiter::Firmware;
                    for found in found.iter().filter(|found| found.steps.iter().any(is_firmware)) {
                        let _ = writeln!(wrong, "{machine}{driver} {kernel} {words}, {pin} busy: {found}");
                    }
                }
            }
        }
    }
    println!("{judged} judged");
    assert!(wrong.is_empty(), "of {judged}:\n{wrong}");
    assert!(judged >= 200, "{judged}");
}
