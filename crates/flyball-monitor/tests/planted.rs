//! Situations of machines and kernels in which the evidence allows one conclusion: what `why` must
//! name first, what it must not name, and how much the reason took. They are planted alone and with
//! a frequency limit on top.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{fmt::Write as _, time::Duration};

use flyball_control::{
    Intent,
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{Host, Launch};
use flyball_monitor::{Certainty, Explanation, Facts, Limiter, Options, Sampler, explain};
use flyball_simhost::{SimHost, SimSetup};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

struct Situation {
    machine: &'static str,
    /// Options of the simulation: `fault=RULE`, `boot=OPTION`.
    options: &'static str,
    settings: &'static [&'static str],
    /// Busy CPUs; the first is explained.
    pin: &'static str,
    /// Any of these is right; none if nothing limits the CPU.
    first: &'static [Limiter],
    /// What the first reason took, MHz, if it is known.
    mhz: Option<f64>,
    /// The only reasons that may follow.
    others: &'static [Limiter],
}

const OF_TABLE: &[Limiter] = &[Limiter::ActiveCores];
const OF_PACKAGE: &[Limiter] = &[Limiter::Package, Limiter::Firmware];

const SITUATIONS: &[Situation] = &[
    // Turbo that is off on hybrids, whose cpuinfo_max_freq falls with it since Linux 6.12.
    Situation {
        machine: "hybrid-laptop",
        options: "",
        settings: &["turbo=off"],
        pin: "0",
        first: &[Limiter::TurboOff],
        mhz: Some(2600.0),
        others: &[],
    },
    Situation {
        machine: "hybrid-laptop",
        options: "",
        settings: &["turbo=off"],
        pin: "8",
        first: &[Limiter::TurboOff],
        mhz: Some(1900.0),
        others: &[],
    },
    Situation {
        machine: "hybrid-laptop",
        options: "",
        settings: &["turbo=off", "governor=powersave", "epp=power"],
        pin: "0-15",
        first: &[Limiter::TurboOff],
        mhz: Some(2600.0),
        others: &[Limiter::Preference],
    },
    Situation {
        machine: "hybrid-laptop",
        options: "",
        settings: &["max-perf-pct=50"],
        pin: "0",
        first: &[Limiter::Percentage],
        mhz: None,
        others: &[],
    },
    // Cores that idle and may not sleep deeply.
    Situation {
        machine: "gold-6138",
        options: "",
        settings: &["governor=performance", "latency-limit=2us"],
        pin: "0",
        first: &[Limiter::LatencyLimit],
        mhz: Some(1000.0),
        others: OF_TABLE,
    },
    Situation {
        machine: "gold-6138",
        options: "",
        settings: &["governor=performance", "idle-state:C6=off"],
        pin: "0",
        first: &[Limiter::IdleState],
        mhz: Some(1000.0),
        others: OF_TABLE,
    },
    Situation {
        machine: "gold-6138",
        options: "",
        settings: &["governor=performance", "idle-state:C6=off"],
        pin: "0-3",
        first: &[Limiter::IdleState],
        mhz: None,
        others: OF_TABLE,
    },
    Situation {
        machine: "gold-6138",
        options: "",
        settings: &["governor=performance"],
        pin: "0",
        first: &[],
        mhz: None,
        others: OF_TABLE,
    },
    // Cold processors of AMD that firmware holds at a low frequency.
    Situation {
        machine: "ryzen-5750g",
        options: ",fault=glitch 0-15 400",
        settings: &["governor=performance"],
        pin: "0-15",
        first: OF_PACKAGE,
        mhz: None,
        others: &[],
    },
    Situation {
        machine: "ryzen-5750g",
        options: ",fault=glitch 0-15 400",
        settings: &["governor=performance"],
        pin: "0,8",
        first: OF_PACKAGE,
        mhz: None,
        others: &[],
    },
    Situation {
        machine: "ryzen-5750g",
        options: ",fault=glitch 0-15 400",
        settings: &["governor=performance"],
        pin: "0",
        first: OF_PACKAGE,
        mhz: None,
        others: &[],
    },
    Situation {
        machine: "ryzen-preferred",
        options: ",fault=glitch 0-15 544",
        settings: &["governor=performance"],
        pin: "0-15",
        first: OF_PACKAGE,
        mhz: None,
        others: &[],
    },
    // Steps of CPPC are rounding.
    Situation {
        machine: "ryzen-5750g",
        options: "",
        settings: &["governor=performance", "max-freq=2GHz"],
        pin: "0-3",
        first: &[Limiter::MaxFreq],
        mhz: None,
        others: &[],
    },
    Situation {
        machine: "ryzen-5750g",
        options: "",
        settings: &["governor=performance", "max-freq=2GHz"],
        pin: "0",
        first: &[Limiter::MaxFreq],
        mhz: None,
        others: &[],
    },
    // Under acpi-cpufreq the highest P-state is no limit.
    Situation {
        machine: "i7-2600",
        options: ",boot=intel_pstate=disable",
        settings: &["governor=powersave"],
        pin: "0",
        first: &[Limiter::Governor],
        mhz: None,
        others: OF_TABLE,
    },
    Situation {
        machine: "i7-2600",
        options: ",boot=intel_pstate=disable",
        settings: &["governor=performance"],
        pin: "0",
        first: &[],
        mhz: None,
        others: OF_TABLE,
    },
    Situation {
        machine: "ryzen-5750g",
        options: ",boot=amd_pstate=disable",
        settings: &["governor=powersave"],
        pin: "0",
        first: &[Limiter::Governor],
        mhz: None,
        others: &[],
    },
    // Speed Select's base-freq costs the other cores.
    Situation {
        machine: "tpmi-small",
        options: "",
        settings: &["governor=performance", "sst-bf=on"],
        pin: "0-15",
        first: &[Limiter::SpeedSelect, Limiter::Power, Limiter::ActiveCores],
        mhz: None,
        others: &[Limiter::ActiveCores, Limiter::Power, Limiter::SpeedSelect],
    },
];

/// What is explained of a situation's first CPU; `None` if this kernel cannot have it.
fn explained(situation: &Situation, kernel: &str, more: &[&str]) -> Option<Explanation> {
    let text = format!("{},kernel={kernel}{}", situation.machine, situation.options);
    let host = SimHost::open(&SimSetup::parse(&text).unwrap()).ok()?;
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::new(directory.path().join("state"));
    let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
    let settings: Vec<String> =
        situation.settings.iter().chain(more).map(|setting| (*setting).to_owned()).collect();
    transaction.apply(&Intent::from_arguments(&settings, None).unwrap(), &|| false).ok()?;
    transaction.keep().unwrap();
    let words: Vec<String> = ["--endless", "--pin", situation.pin].map(str::to_owned).into();
    let _load = host.spawn(Launch::new("spin", &words)).unwrap();
    host.sleep(Duration::from_secs(3));
    let mut sampler = Sampler::open(&host, Options { slow: Duration::ZERO, ..Options::default() }).unwrap();
    let mut samples = vec![sampler.sample()];
    for _ in 0..3 {
        host.sleep(Duration::from_millis(400));
        samples.push(sampler.sample());
    }
    let facts = Facts::take(&host, sampler.layout(), |_| None).unwrap();
    let cpu = situation.pin.split(['-', ',']).next().unwrap().parse().unwrap();
    let only = [cpu].into_iter().collect();
    Some(explain(sampler.layout(), &facts, &samples, Some(&only)).remove(0))
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
        // What the table takes of the load's own cores is there in every situation.
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
                "{} {:?} {:?} pin {} kernel {kernel}: {found}",
                situation.machine, situation.options, situation.settings, situation.pin
            );
        }
        // By exclusion only: no register of AMD names a limit.
        let is_cold_clamp = situation.options.contains("glitch");
        for step in found.steps.iter().filter(|step| is_cold_clamp && OF_PACKAGE.contains(&step.limiter)) {
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
    for situation in SITUATIONS {
        for kernel in KERNELS {
            if let Some(found) = explained(situation, kernel, &[]) {
                alone.judge(situation, kernel, &found, situation.first, situation.others);
            }
            // With a limit below what the situation leaves, the limit is a reason too.
            let is_limited = situation.settings.iter().any(|setting| setting.starts_with("max-"));
            if is_limited || situation.options.contains("boot") {
                continue;
            }
            if let Some(found) = explained(situation, kernel, &["max-freq=1.2GHz"]) {
                let mut others = situation.others.to_vec();
                others.push(Limiter::MaxFreq);
                let first: Vec<Limiter> = situation.first.iter().copied().chain([Limiter::MaxFreq]).collect();
                let paired_situation = Situation { mhz: None, ..*situation };
                paired.judge(&paired_situation, kernel, &found, &first, &others);
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
