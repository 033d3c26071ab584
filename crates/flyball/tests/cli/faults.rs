//! Runs commands on simulated machines whose accesses fail or are lost. What a restore reports is
//! compared with every setting of the machine, read without faults before and after.
//!
//! FLYBALL_FAULT_RUNS sets the number of runs, and FLYBALL_FAULT_SEED chooses them. The report is
//! one line.

use std::collections::BTreeMap;

use flyball_control::{
    Intent, Snapshot,
    save::{save, saved},
    write::{
        journal::Purpose,
        restore::Restoration,
        state::StateDir,
        transaction::{self, Scope, Transaction},
    },
};
use flyball_host::Host;
use flyball_simhost::{SimHost, SimSetup};

const MACHINES: [&str; 14] = [
    "ryzen-5750g",
    "ryzen-5750g,kernel=7.2",
    "ryzen-5750g,kernel=6.1",
    "ryzen-5750g,boot=amd_pstate=passive",
    "ryzen-5750g,interface=p-states",
    "i7-3520m",
    "i7-2600,boot=intel_pstate=passive",
    "i7-2600,boot=intel_pstate=disable",
    "hybrid-laptop",
    "hybrid-laptop,kernel=7.2",
    "msr-mailbox",
    "tpmi-small",
    "tpmi-small,kernel=7.2",
    "gold-6138",
];

const COMMANDS: [&[&str]; 20] = [
    &["governor=performance"],
    &["governor=powersave", "max-freq=2GHz"],
    &["governor=performance", "min-freq=1.5GHz", "max-freq=2GHz"],
    &["governor=schedutil"],
    &["governor=ondemand"],
    &["turbo=off"],
    &["epp=power"],
    &["epp=performance", "epb=15"],
    &["epb=0"],
    &["driver-mode=passive"],
    &["driver-mode=passive", "governor=schedutil", "max-freq=2GHz"],
    &["driver-mode=active", "epp=power"],
    &["min-freq=min", "max-freq=min"],
    &["idle-state:C2=off"],
    &["latency-limit=10us"],
    &["boost=off", "governor=powersave"],
    &["sst-level=1"],
    &["sst-bf=on"],
    &["sst-cp=on"],
    &["online=off"],
];

/// Where accesses fail: files below /sys/devices/system/cpu, registers, the Speed Select device.
const PATHS: [&str; 13] = [
    "cpufreq/policy*/scaling_governor",
    "cpufreq/policy*/scaling_max_freq",
    "cpufreq/policy*/scaling_min_freq",
    "cpufreq/policy*/energy_performance_preference",
    "cpufreq/policy*/scaling_setspeed",
    "cpufreq/policy1/*",
    "cpufreq/boost",
    "cpu*/power/energy_perf_bias",
    "cpu*/cpuidle/state2/disable",
    "cpu1/online",
    "intel_pstate/*",
    "amd_pstate/status",
    "*",
];
const ERRNOS: [&str; 6] = ["EIO", "EBUSY", "EAGAIN", "ENOENT", "EINVAL", "EPERM"];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // Knuth's MMIX generator, whose upper bits are the most random.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn rule(&mut self) -> String {
        let errno = self.of(&ERRNOS);
        let nth = match self.below(4) {
            0 => String::new(),
            1 => format!(" nth {}", 1 + self.below(4)),
            _ => format!(" nth {}", 1 + self.below(80)),
        };
        let path = self.of(&PATHS);
        // For a preference that the firmware chose and that has no word, amd-pstate returns EINVAL,
        // which flyball believes. So use another errno.
        let has_preference = path.contains("preference") || path.ends_with("/*") || path == "*";
        let of_a_read = if errno == "EINVAL" && has_preference { "EIO" } else { errno };
        match self.below(10) {
            0..=3 => format!("read {path} fails {of_a_read}{nth}"),
            4..=6 => format!("write {path} fails {errno}{nth}"),
            7 => format!("write {path} is lost{nth}"),
            8 => format!("ioctl /dev/isst_interface fails {errno}{nth}"),
            _ => format!("write /dev/cpu/{}/msr fails EIO{nth}", self.below(4)),
        }
    }
}

/// Returns every setting: those of a profile, and the raw files of cpufreq and cpuidle.
fn settings(host: &SimHost) -> BTreeMap<String, String> {
    const CPUS: &str = "/sys/devices/system/cpu";
    let mut found = BTreeMap::new();
    let snapshot = Snapshot::take_knobs(host, &saved()).expect("a machine without faults can be read");
    found.insert("profile".to_owned(), save(&snapshot).expect("a machine without faults can be read"));
    let mut read = |path: String| {
        if let Ok(text) = host.read(&path) {
            found.insert(path, text);
        }
    };
    let policies = host.list(&format!("{CPUS}/cpufreq")).unwrap_or_default();
    for name in
        ["scaling_driver", "scaling_governor", "scaling_min_freq", "scaling_max_freq", "scaling_setspeed"]
    {
        for policy in &policies {
            read(format!("{CPUS}/cpufreq/{policy}/{name}"));
        }
    }
    for policy in &policies {
        read(format!("{CPUS}/cpufreq/{policy}/energy_performance_preference"));
        read(format!("{CPUS}/cpufreq/{policy}/boost"));
    }
    for name in
        ["cpufreq/boost", "online", "intel_pstate/status", "intel_pstate/no_turbo", "amd_pstate/status"]
    {
        read(format!("{CPUS}/{name}"));
    }
    for name in ["intel_pstate/max_perf_pct", "intel_pstate/min_perf_pct", "intel_pstate/hwp_dynamic_boost"] {
        read(format!("{CPUS}/{name}"));
    }
    found
}

fn difference(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Option<String> {
    let names = before.keys().chain(now.keys()).find(|name| before.get(*name) != now.get(*name))?;
    Some(format!("{names}: {:?} became {:?}", before.get(names), now.get(names)))
}

#[derive(Debug, Default)]
struct Counts {
    commands: usize,
    failed: usize,
    exact: usize,
    not_claimed: usize,
    wrong: Vec<String>,
}

impl Counts {
    fn claim(&mut self, exact: bool, what: &str, before: &BTreeMap<String, String>, host: &SimHost) {
        if !exact {
            self.not_claimed += 1;
            return;
        }
        // Read without faults, and keep the faults' counts.
        let faults = host.with(flyball_sim::SimMachine::take_faults);
        let difference = difference(before, &settings(host));
        host.with(|machine| faults.into_iter().for_each(|fault| machine.inject(fault)));
        match difference {
            None => self.exact += 1,
            Some(difference) => self.wrong.push(format!("{what}: {difference}")),
        }
    }
}

fn run(machine: &str, random: &mut Random, counts: &mut Counts) {
    let setup = SimSetup::parse(machine).expect("a machine that is built in");
    let host = SimHost::open(&setup).expect("a machine that boots");
    let folder = tempfile::tempdir().expect("a directory for the journal");
    let state = StateDir::new(folder.path().join("state"));
    let first = settings(&host);
    let mut what = machine.to_owned();
    for _ in 0..=random.below(3) {
        let rule = random.rule();
        let fault = rule.parse().unwrap_or_else(|error| panic!("{rule}: {error}"));
        what += &format!("; {rule}");
        host.with(|machine| machine.inject(fault));
    }
    for _ in 0..=random.below(3) {
        let words = random.of(&COMMANDS);
        let cpus = random.of(&[None, None, Some("1"), Some("0-1")]);
        let Ok(intent) = Intent::from_arguments(words, cpus) else { continue };
        what += &format!("; {} {cpus:?}", words.join(" "));
        let Ok(mut transaction) = Transaction::begin(&host, &state, Purpose::Set, "set", None) else {
            continue;
        };
        counts.commands += 1;
        let faults = host.with(flyball_sim::SimMachine::take_faults);
        let before = settings(&host);
        host.with(|machine| faults.into_iter().for_each(|fault| machine.inject(fault)));
        match transaction.apply(&intent, &|| false) {
            Ok(_) => drop(transaction.keep()),
            Err(error) => {
                counts.failed += 1;
                let exact = error.restoration().is_none_or(Restoration::is_exact);
                let _ = transaction.end();
                counts.claim(exact, &format!("{what}: {error}"), &before, &host);
            }
        }
    }
    for faulty in [true, false] {
        if !faulty {
            what += "; without faults";
            host.with(flyball_sim::SimMachine::take_faults);
        }
        if state.journal().exists()
            && let Ok(restored) = transaction::restore(&host, &state, "restore", Scope::All)
        {
            let exact = restored.restoration.is_exact();
            counts.claim(exact, &format!("{what}: {}", restored.restoration), &first, &host);
        }
    }
}

/// Getting the same errno before and after does not show whether the value changed in between.
#[test]
fn a_preference_that_is_never_readable_is_restored() {
    for machine in ["tpmi-small", "tpmi-small,kernel=7.2"] {
        let host = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path().join("state"));
        let first = settings(&host);
        let rule = "read cpufreq/policy*/energy_performance_preference fails EINVAL";
        host.with(|machine| machine.inject(rule.parse().unwrap()));
        let intent = Intent::from_arguments(&["epp=power"], None).unwrap();
        let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "set", None).unwrap();
        let _ = transaction.apply(&intent, &|| false);
        drop(transaction.keep());
        let restored = transaction::restore(&host, &state, "restore", Scope::All).unwrap().restoration;
        let mut counts = Counts::default();
        counts.claim(restored.is_exact(), machine, &first, &host);
        assert!(counts.wrong.is_empty(), "{:?}", counts.wrong);
    }
}

#[test]
fn what_a_restore_claims_is_so() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(default)
    };
    let (runs, seed) = (number("FLYBALL_FAULT_RUNS", 40), number("FLYBALL_FAULT_SEED", 1));
    let mut counts = Counts::default();
    for index in 0..runs {
        let mut random = Random((seed << 32 | index) ^ 0x9e37_79b9_7f4a_7c15);
        random.below(2);
        run(MACHINES[index as usize % MACHINES.len()], &mut random, &mut counts);
    }
    println!(
        "{runs} runs: {} commands, {} of them failed; {} claims of exactness were true, {} were not made, {} were false",
        counts.commands,
        counts.failed,
        counts.exact,
        counts.not_claimed,
        counts.wrong.len()
    );
    assert!(counts.wrong.is_empty(), "{}", counts.wrong.join("\n"));
}
