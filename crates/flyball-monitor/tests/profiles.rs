//! Tests the effect of each shipped profile on simulated machines with three kernels: what the
//! processor does afterwards, not what was written.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    time::Duration,
};

use flyball_control::{
    Id, Intent, Request, Snapshot, Value,
    doctor::{self, Report, Verdict},
    plan::{Plan, plan, plan_and_choice},
    profile::Profile,
    verify::verify,
    write::{
        journal::{Journal, Purpose},
        outcome::{Applied, AppliedChange},
        state::StateDir,
        transaction::Transaction,
    },
};
use flyball_host::{Host, Launch};
use flyball_monitor::{Facts, Options, Sampler, explain};
use flyball_sim::silicon::MachineSpec;
use flyball_simhost::{SimHost, SimSetup};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];
/// Machines, CPUs of one kind of core, and settings that are made before the profile.
const MACHINES: &[(&str, &str, &[&str])] = &[
    ("gold-6138", "0-7", &[]),
    ("gold-6138", "0-7", &["turbo=off"]),
    ("gold-6138", "0-7", &["max-perf-pct=60"]),
    ("sst-guide", "0-13", &[]),
    ("hybrid-laptop", "0-7", &[]),
    ("hybrid-laptop", "8-15", &[]),
    ("lunar-laptop", "0-3", &[]),
    ("lunar-laptop", "4-7", &[]),
    ("zen6-client", "0-7", &[]),
    ("zen6-client", "8-15", &[]),
    ("zen6-client", "16-19", &[]),
    ("i7-3520m", "0-1", &[]),
    ("i7-2600", "0-3", &[]),
    ("i7-2600,boot=intel_pstate=disable", "0-3", &[]),
    ("ryzen-5750g", "0-7", &[]),
    ("ryzen-5750g,boot=amd_pstate=passive", "0-7", &[]),
    ("ryzen-5750g,boot=amd_pstate=disable", "0-7", &[]),
    ("ryzen-preferred", "0-5", &[]),
    ("tpmi-small", "0-7", &[]),
];

fn profile(name: &str) -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../dist/profiles/{name}.toml"));
    Profile::parse(&std::fs::read(path).unwrap(), name).unwrap()
}

const PROFILES: [&str; 9] =
    ["latency", "throughput", "balanced", "powersave", "storage", "realtime", "hpc", "benchmark", "battery"];

/// Returns the MHz of the first busy CPU, the highest MHz of its core, and whether a limit of the
/// package explains the difference.
fn speed(host: &SimHost, pin: &str) -> (f64, f64, String) {
    let words: Vec<String> = ["--endless", "--pin", pin].map(str::to_owned).into();
    let _load = host.spawn(Launch::new("spin", &words)).unwrap();
    host.sleep(Duration::from_secs(3));
    let mut sampler = Sampler::open(host, Options { slow: Duration::ZERO, ..Options::default() }).unwrap();
    let mut samples = vec![sampler.sample()];
    for _ in 0..2 {
        host.sleep(Duration::from_millis(400));
        samples.push(sampler.sample());
    }
    let facts = Facts::take(host, sampler.layout(), |_| None).unwrap();
    let cpu = pin.split(['-', ',']).next().unwrap().parse().unwrap();
    let found = explain(sampler.layout(), &facts, &samples, Some(&std::iter::once(cpu).collect())).remove(0);
    (found.mhz.unwrap(), found.highest.unwrap(), found.to_string())
}

/// Returns a frequency knob of a CPU's policy, kHz.
fn khz(snapshot: &Snapshot, knob: Id, cpu: u32) -> Option<u64> {
    let only = std::iter::once(cpu).collect();
    let places = snapshot.places_on(knob, &only).ok()?;
    let value = places.iter().find_map(|place| snapshot.value_if_readable(knob, place).ok().flatten());
    value?.frequency().map(|khz| khz.0)
}

/// The frequency below which energy per work rises again: amd-pstate's file, or the most efficient
/// level of HWP.
fn efficient(host: &dyn Host, snapshot: &Snapshot, cpu: u32) -> Option<u64> {
    khz(snapshot, Id::LowestNonlinearFreq, cpu).or_else(|| {
        let Ok(levels) = host.msr(cpu, 0x771) else {
            let level = |name| -> Option<u64> {
                host.read(&format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/{name}")).ok()?.parse().ok()
            };
            return Some(
                level("nominal_freq")? * 1000 * level("lowest_nonlinear_perf")? / level("nominal_perf")?,
            );
        };
        // Bits 23:16 most efficient, 7:0 highest (Intel SDM 3B, IA32_HWP_CAPABILITIES).
        Some(khz(snapshot, Id::HwMaxFreq, cpu)? * (levels >> 16 & 0xff) / (levels & 0xff))
    })
}

const LOOKED_AT: &[Id] =
    &[Id::MinFreq, Id::MaxFreq, Id::HwMaxFreq, Id::LowestNonlinearFreq, Id::Turbo, Id::MaxPerfPct];

fn take(host: &dyn Host) -> Snapshot {
    let mut snapshot = Snapshot::begin(host).unwrap();
    let request = Request { knobs: LOOKED_AT, sample_absence: true, ..Request::default() };
    snapshot.take(host, &request);
    snapshot
}

fn apply(host: &SimHost, intent: &Intent, state: &StateDir) -> Result<Applied, String> {
    let mut transaction = Transaction::begin(host, state, Purpose::Set, "test", None).unwrap();
    let applied = transaction.apply(intent, &|| false).map_err(|error| error.to_string())?;
    transaction.keep().unwrap();
    Ok(applied)
}

fn set(host: &SimHost, intent: &Intent, state: &StateDir) -> Result<(), String> {
    apply(host, intent, state).map(|_| ())
}

#[test]
fn profiles_do_what_they_say() {
    let (mut judged, mut wrong) = (0, String::new());
    for (machine, pin, before) in MACHINES {
        for kernel in KERNELS {
            for name in PROFILES {
                let setup = SimSetup::parse(&format!("{machine},kernel={kernel}")).unwrap();
                // Not every kernel supports every driver.
                let Ok(host) = SimHost::open(&setup) else { continue };
                let folder = tempfile::tempdir().unwrap();
                let state = StateDir::new(folder.path());
                let cpu: u32 = pin.split('-').next().unwrap().parse().unwrap();
                let alone = cpu.to_string();
                let earlier: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
                if !earlier.is_empty()
                    && set(&host, &Intent::from_arguments(&earlier, None).unwrap(), &state).is_err()
                {
                    continue;
                }
                let was = take(&host);
                let efficient = efficient(&host, &was, cpu);
                let top = khz(&was, Id::HwMaxFreq, cpu).unwrap();
                let profile = profile(name);
                let mut complain = |words: String| {
                    let _ =
                        writeln!(wrong, "{name} on {machine} {before:?} CPU {cpu} kernel {kernel}: {words}");
                };
                judged += 1;
                if let Err(error) = set(&host, &profile.intent, &state) {
                    complain(error);
                    continue;
                }
                let now = take(&host);
                let limit = |snapshot, knob| khz(snapshot, knob, cpu).unwrap();
                let (min, max) = (limit(&now, Id::MinFreq), limit(&now, Id::MaxFreq));
                match name {
                    "realtime" | "benchmark" => {
                        let ((lone, ..), (all, _, why)) = (speed(&host, &alone), speed(&host, pin));
                        if (lone - all).abs() > 0.015 * lone {
                            complain(format!("{lone:.0} MHz alone, {all:.0} with {pin}: {why}"));
                        }
                    }
                    "battery" | "powersave" => {
                        if let Some(efficient) = efficient.filter(|khz| max * 100 < khz * 99) {
                            complain(format!("at most {max} kHz, efficient are {efficient}"));
                        }
                        // On hybrids, files of 6.12 use another scale.
                        let (lone, highest, why) = speed(&host, &alone);
                        let may_be_slower = efficient.is_none_or(|khz| khz * 4 < top * 3);
                        // amd_pstate_adjust_perf of 6.1 requests up to the highest level, whatever
                        // scaling_max_freq is. No setting changes that.
                        let is_ignored = machine.ends_with("amd_pstate=passive") && kernel == "6.1";
                        let is_costly = lone > 0.8 * highest;
                        if is_costly && before.is_empty() && may_be_slower && !is_ignored {
                            complain(format!("a lone core runs at {lone:.0} of {highest:.0} MHz: {why}"));
                        }
                    }
                    "balanced" if min < limit(&was, Id::MinFreq) || max < limit(&was, Id::MaxFreq) => {
                        complain(format!("{min} to {max} kHz is lower than before"));
                    }
                    "throughput" | "hpc" => {
                        let machine_wide = |knob| now.machine_value(knob).ok().flatten();
                        let is_off = machine_wide(Id::Turbo) == Some(Value::Switch(false));
                        let percent = machine_wide(Id::MaxPerfPct);
                        if is_off || matches!(percent, Some(Value::Percent(percent)) if percent.0 < 100) {
                            complain(format!("turbo off: {is_off}, max-perf-pct {percent:?}"));
                        }
                    }
                    _ => {}
                }
                if matches!(name, "latency" | "hpc") {
                    let (lone, _, why) = speed(&host, &alone);
                    let is_stated =
                        profile.description.as_deref().unwrap_or_default().contains("lone-core turbo");
                    if lone * 1000.0 < top as f64 * 0.97 && before.is_empty() && !is_stated {
                        complain(format!("a lone core loses speed, and the profile does not say so: {why}"));
                    }
                }
            }
        }
    }
    println!("{judged} profiles judged");
    assert!(wrong.is_empty(), "of {judged}:\n{wrong}");
    assert!(judged >= 250, "{judged}");
}

/// Machines with few enough CPUs for many changes in a debug build.
fn small_machines() -> impl Iterator<Item = &'static str> {
    let boots = [
        "ryzen-5750g,boot=amd_pstate=passive",
        "ryzen-5750g,boot=amd_pstate=disable",
        "i7-2600,boot=intel_pstate=disable",
    ];
    MachineSpec::names().chain(boots).filter(|name| {
        let host = SimHost::open(&SimSetup::parse(name).unwrap()).unwrap();
        Snapshot::begin(&host).unwrap().topology().present.len() <= 40
    })
}

/// Every ordered pair of profiles, as one tour: 0 1 0 2 0 3 ... 1 2 1 3 ... 0.
fn tour() -> Vec<&'static str> {
    let pairs =
        (0..PROFILES.len()).flat_map(|first| (first + 1..PROFILES.len()).map(move |second| (first, second)));
    pairs.flat_map(|(first, second)| [PROFILES[first], PROFILES[second]]).chain([PROFILES[0]]).collect()
}

/// Settings that may be made before a profile and that must not survive it.
const BEFORE: [&str; 17] = [
    "turbo=off",
    "boost=off",
    "boost@0=off",
    "max-perf-pct=50",
    "min-perf-pct=100",
    "max-freq=min",
    "max-freq@0=75%",
    "min-freq=base",
    "governor=userspace",
    "governor@0=powersave",
    "epp=power",
    "epp@0=performance",
    "epb=15",
    "latency-limit=n/a",
    "idle-state=off",
    "idle-state:C6=off",
    "uncore-max-freq=min",
];

/// A profile has the same result whatever was set before it.
#[test]
fn no_setting_keeps_a_profile_from_its_promise() {
    let (mut judged, mut wrong) = (0, BTreeSet::new());
    for machine in small_machines() {
        let settings_after = |words: Option<&str>, name: &str| {
            let host = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let state = StateDir::new(folder.path());
            // Not every machine has every knob.
            if let Some(words) = words {
                set(&host, &Intent::from_arguments(&[words], None).unwrap(), &state).ok()?;
            }
            let applied = set(&host, &profile(name).intent, &state);
            applied.unwrap_or_else(|error| panic!("{name} after {words:?} on {machine}: {error}"));
            Some(host.with(|machine| machine.settings()))
        };
        for name in PROFILES {
            let alone = settings_after(None, name).unwrap();
            for words in BEFORE {
                // These two profiles pin a frequency that is above such a minimum.
                if words == "min-perf-pct=100" && matches!(name, "realtime" | "benchmark") {
                    continue;
                }
                let Some(after) = settings_after(Some(words), name) else { continue };
                judged += 1;
                let differs = alone.lines().zip(after.lines()).find(|(alone, after)| alone != after);
                wrong.extend(differs.map(|lines| format!("{name} after {words} on {machine}: {lines:?}")));
            }
        }
    }
    println!("{judged} judged");
    assert!(wrong.is_empty(), "{} of {judged}:\n{wrong:#?}", wrong.len());
    assert!(judged >= 1000, "{judged}");
}

/// A profile has the same result whatever profile was applied before it.
#[test]
fn no_profile_keeps_another_from_its_promise() {
    let tour = tour();
    let pairs: BTreeSet<&[&str]> = tour.windows(2).collect();
    assert_eq!(pairs.len(), PROFILES.len() * (PROFILES.len() - 1));
    let mut wrong = BTreeSet::new();
    for machine in small_machines() {
        let open = || SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
        let settings_after = |host: &SimHost, name: &str| {
            let folder = tempfile::tempdir().unwrap();
            let applied = set(host, &profile(name).intent, &StateDir::new(folder.path()));
            applied.unwrap_or_else(|error| panic!("{name} on {machine}: {error}"));
            host.with(|machine| machine.settings())
        };
        let alone: BTreeMap<&str, String> =
            PROFILES.into_iter().map(|name| (name, settings_after(&open(), name))).collect();
        let host = open();
        let mut before = "";
        for name in &tour {
            let after = settings_after(&host, name);
            let differs = alone[name].lines().zip(after.lines()).find(|(alone, after)| alone != after);
            wrong.extend(differs.map(|lines| format!("{name} after {before} on {machine}: {lines:?}")));
            before = name;
        }
    }
    assert!(wrong.is_empty(), "{} of the pairs:\n{wrong:#?}", wrong.len());
}

/// A CPU that goes offline or comes back does not change what a profile requests of the others.
#[test]
fn an_offline_cpu_changes_no_choice() {
    for machine in small_machines() {
        let host = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
        let choices = || -> Vec<Vec<String>> {
            let chosen = |name| {
                let intent = profile(name).intent;
                let snapshot = Snapshot::for_intent(&host, &intent).unwrap();
                let settings = plan_and_choice(&snapshot, &intent).unwrap().1.settings;
                settings.iter().map(|setting| format!("{} {}", setting.from, setting.wanted)).collect()
            };
            PROFILES.map(chosen).to_vec()
        };
        let before = choices();
        host.write("/sys/devices/system/cpu/cpu3/online", b"0").unwrap();
        assert_eq!(choices(), before, "{machine}");
    }
}

/// Settings that switch turbo off or limit it, and settings that bring it back.
const WITHOUT_TURBO: [&str; 5] =
    ["benchmark", "realtime", "turbo=off", "turbo=off min-freq=max max-freq=max", "turbo=on boost=off"];
const WITH_TURBO: [&str; 11] = [
    "powersave",
    "latency",
    "balanced",
    "battery",
    "throughput",
    "turbo=on max-freq=max min-freq=max",
    "turbo=on max-freq=base min-freq=base",
    "turbo=on max-freq=60% min-freq=min",
    "turbo=on boost=off max-freq=max",
    "max-freq=max",
    "max-freq=60%",
];

/// Returns the writes that were not planned, or not with that value. Provisional writes may turn
/// out unnecessary, and a word may stand for a number that is not known yet.
fn unplanned(plan: &Plan, applied: &Applied) -> Vec<String> {
    let made = applied.made.iter().map(|made| (&made.change.location, made.change.new.as_str()));
    let mut made: BTreeMap<_, _> = made.collect();
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    let mut all = Vec::new();
    for change in &plan.changes {
        match made.remove(&change.location) {
            None if change.provisional => {}
            Some(new) if new == change.new => {}
            Some(new) if change.provisional && is_number(new) && !is_number(&change.new) => {}
            made => all.push(format!("{}: planned {}, made {made:?}", change.location, change.new)),
        }
    }
    all.extend(made.into_iter().map(|(location, new)| format!("{location}: made {new}, not planned")));
    all
}

#[test]
fn a_plan_lists_the_writes_that_apply_makes() {
    let intent = |words: &str| {
        let arguments: Vec<&str> = words.split(' ').collect();
        let is_profile = PROFILES.contains(&words);
        if is_profile { profile(words).intent } else { Intent::from_arguments(&arguments, None).unwrap() }
    };
    let (mut turn, mut wrong) = (0, String::new());
    for machine in small_machines() {
        for kernel in KERNELS {
            // Not every kernel supports every driver.
            let setup = SimSetup::parse(&format!("{machine},kernel={kernel}")).unwrap();
            let Ok(host) = SimHost::open(&setup) else { continue };
            let folder = tempfile::tempdir().unwrap();
            let state = StateDir::new(folder.path());
            let mut before = "";
            for _ in 0..6 {
                turn += 1;
                for words in [WITHOUT_TURBO[turn % 5], WITH_TURBO[turn % 11]] {
                    let intent = intent(words);
                    let planned = plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent);
                    let differs = match (planned, apply(&host, &intent, &state)) {
                        (Ok(plan), Ok(applied)) => unplanned(&plan, &applied),
                        (Err(planned), Err(applied)) if planned.to_string() == applied => vec![],
                        (planned, applied) => vec![format!("{:?}, {:?}", planned.err(), applied.err())],
                    };
                    if let Some(first) = differs.first() {
                        let count = differs.len();
                        let _ =
                            writeln!(wrong, "{machine} {kernel}: {words} after {before}: {first} ({count})");
                    }
                    before = words;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(turn >= 150, "{turn}");
}

/// The plan notes settings that do nothing by themselves, and rounds a limit like the kernel.
#[test]
fn settings_without_an_effect_of_their_own_are_noted() {
    for (machine, words, note) in [
        ("ryzen-5750g", "epp@0-1=power", "share cores with these CPUs"),
        ("ryzen-5750g,kernel=7.2", "boost@0-3=off", "share cores with these CPUs"),
        ("gold-6138", "governor@0=powersave", ""),
        ("gold-6138", "epp@0,20=power", ""),
        ("tpmi-small", "clos-max:3=1.5GHz", "no effect while core-power is off"),
        ("tpmi-small", "clos@4-7=3", "no effect while core-power is off"),
        ("gold-6138", "power-limit:long_term=77.7W", ""),
    ] {
        let host = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path());
        let applied = apply(&host, &Intent::from_arguments(&[words], None).unwrap(), &state).unwrap();
        let found: Vec<String> = applied.notes.iter().map(ToString::to_string).collect();
        let is_noted =
            if note.is_empty() { found.is_empty() } else { found.iter().any(|n| n.contains(note)) };
        assert!(is_noted, "{machine} {words}: {found:?}");
        assert_eq!(applied.clamped().count(), 0, "{machine} {words}: {applied:?}");
    }
}

/// intel_pstate in passive mode combines its percentages with the files' limits. On every machine
/// with this mode, the plan must match what the files then hold.
#[test]
fn limits_beside_the_percentages_of_passive_mode_hold() {
    // Somebody else set a percentage that the wish does not name. The plan then notes that the wish
    // does not hold.
    let wishes = [
        ("min-freq=min", true),
        ("min-perf-pct=50 min-freq=min", true),
        ("min-freq=min max-freq=max", false),
        ("max-perf-pct=60 max-freq=max", true),
        ("max-freq=max", false),
        ("max-freq=75% max-perf-pct=60", true),
        ("min-perf-pct=min max-perf-pct=100 min-freq=min max-freq=max", true),
        ("balanced", true),
        ("powersave", true),
    ];
    let (mut narrowed, mut hybrids) = (0, 0);
    for machine in small_machines() {
        for kernel in KERNELS {
            let setup = SimSetup::parse(&format!("{machine},kernel={kernel},boot=intel_pstate=passive"));
            let Ok(host) = SimHost::open(&setup.unwrap()) else { continue };
            let driver = host.read("/sys/devices/system/cpu/cpufreq/policy0/scaling_driver");
            if driver.as_deref() != Ok("intel_cpufreq") {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            for (words, holds) in wishes {
                let arguments: Vec<&str> = words.split(' ').collect();
                let is_profile = PROFILES.contains(&words);
                let intent = if is_profile {
                    profile(words).intent
                } else {
                    Intent::from_arguments(&arguments, None).unwrap()
                };
                let applied = apply(&host, &intent, &StateDir::new(folder.path()));
                let applied = applied.unwrap_or_else(|error| panic!("{machine} {kernel} {words}: {error}"));
                let clamped: Vec<_> = applied.clamped().take(1).collect();
                assert!(clamped.is_empty(), "{machine} {kernel} {words}: {clamped:?}");
                let snapshot = Snapshot::for_intent(&host, &intent).unwrap();
                assert_eq!(verify(&snapshot, &intent).unwrap().holds(), holds, "{machine} {kernel} {words}");
                let is_noted =
                    applied.notes.iter().any(|note| note.to_string().contains("perf-pct counts as well"));
                assert!(is_noted || holds, "{machine} {kernel} {words}");
                narrowed += u32::from(is_noted);
                hybrids += u32::from(is_noted && words == "min-freq=min" && machine.contains("hybrid"));
            }
        }
    }
    assert!(narrowed > 20 && hybrids > 0, "{narrowed} {hybrids}");
}

/// The plan says that turbo off lowers max-freq exactly if it does, on every machine and kernel.
#[test]
fn turbo_off_is_said_to_lower_max_freq_where_it_does() {
    let (mut lowered, mut kept) = (0, 0);
    for machine in small_machines() {
        for kernel in KERNELS {
            let setup = SimSetup::parse(&format!("{machine},kernel={kernel}")).unwrap();
            let Ok(host) = SimHost::open(&setup) else { continue };
            let folder = tempfile::tempdir().unwrap();
            let max = || khz(&take(&host), Id::MaxFreq, 0);
            let before = max();
            let intent = Intent::from_arguments(&["turbo=off"], None).unwrap();
            let Ok(applied) = apply(&host, &intent, &StateDir::new(folder.path())) else { continue };
            let is_said = applied.notes.iter().any(|note| note.to_string().contains("max-freq falls"));
            assert_eq!(is_said, max() < before, "{machine} {kernel}: {applied:?}");
            *if is_said { &mut lowered } else { &mut kept } += 1;
        }
    }
    assert!(lowered > 20 && kept > 3, "{lowered} {kept}");
}

/// A share is relative to the highest frequency without turbo, whether turbo is off before or
/// switched off together with the limit, and it holds afterwards. It may be the efficient frequency
/// if the share is below that.
#[test]
fn a_share_without_turbo_is_one_of_what_turbo_leaves() {
    let mut judged = 0;
    for machine in small_machines() {
        for kernel in KERNELS {
            let setup = SimSetup::parse(&format!("{machine},kernel={kernel}")).unwrap();
            let limit_after = |steps: &[&str]| {
                let host = SimHost::open(&setup).ok()?;
                let folder = tempfile::tempdir().unwrap();
                for step in steps {
                    let words: Vec<&str> = step.split(' ').collect();
                    let intent = Intent::from_arguments(&words, None).unwrap();
                    let applied = apply(&host, &intent, &StateDir::new(folder.path())).ok()?;
                    // In passive mode, amd-pstate of 6.1 forgets a limit when boost is switched
                    // off.
                    if applied.made.iter().any(|made| made.outcome.other().is_some()) {
                        return None;
                    }
                    let snapshot = Snapshot::for_intent(&host, &intent).unwrap();
                    assert!(verify(&snapshot, &intent).unwrap().holds(), "{machine} {kernel} {steps:?}");
                }
                let snapshot = take(&host);
                Some((khz(&snapshot, Id::MaxFreq, 0)?, efficient(&host, &snapshot, 0).unwrap_or(0)))
            };
            // acpi-cpufreq keeps the turbo entry in its table, which stands for the base frequency.
            let Some((base, efficient)) = limit_after(&["turbo=off max-freq=base"]) else { continue };
            for share in [40, 60, 80] {
                let limit = format!("max-freq={share}%");
                let together = limit_after(&[&format!("turbo=off {limit}")]);
                let Some((found, _)) = together else { continue };
                assert_eq!(limit_after(&["turbo=off", &limit]), together, "{machine} {kernel} {share} %");
                let highest = base * share / 100;
                let lowest = highest.saturating_sub(base / 5);
                assert!(
                    (lowest..=highest.max(efficient)).contains(&found),
                    "{machine} {kernel}: {found} of {base} kHz is no {share} %"
                );
                judged += 1;
            }
        }
    }
    assert!(judged > 50, "{judged}");
}

/// On every machine and kernel, a limit above the base frequency with turbo off is either kept, or
/// lowered with a note in the plan, or rejected with the valid range.
#[test]
fn a_limit_above_turbo_off_has_an_answer() {
    let (mut kept, mut cut, mut refused, mut silent) = (0, 0, 0, String::new());
    for machine in small_machines() {
        for kernel in KERNELS {
            // Not every kernel supports every driver.
            let setup = SimSetup::parse(&format!("{machine},kernel={kernel}")).unwrap();
            let Ok(host) = SimHost::open(&setup) else { continue };
            let top = khz(&take(&host), Id::HwMaxFreq, 0).unwrap();
            for share in [50, 60, 70, 80, 90, 97, 100] {
                for knob in ["min-freq", "max-freq"] {
                    let asked = top * share / 100 / 1000 * 1000;
                    let words = ["turbo=off".to_owned(), format!("{knob}={}MHz", asked / 1000)];
                    let host = SimHost::open(&setup).unwrap();
                    let folder = tempfile::tempdir().unwrap();
                    let intent = Intent::from_arguments(&words, None).unwrap();
                    let applied = match apply(&host, &intent, &StateDir::new(folder.path())) {
                        Ok(applied) => applied,
                        Err(error) => {
                            assert!(error.contains("it takes"), "{machine} {kernel} {words:?}: {error}");
                            refused += 1;
                            continue;
                        }
                    };
                    let id = if knob == "min-freq" { Id::MinFreq } else { Id::MaxFreq };
                    let has = khz(&take(&host), id, 0).unwrap();
                    let says = |made: &AppliedChange| {
                        let is_explained = !made.change.because.is_empty() || made.outcome.other().is_some();
                        made.change.knob == id && is_explained
                    };
                    let is_noted = applied.notes.iter().any(|note| note.to_string().contains(&words[1]));
                    if has == asked {
                        kept += 1;
                    } else if is_noted || applied.made.iter().any(says) {
                        cut += 1;
                    } else {
                        let _ = writeln!(silent, "{machine} {kernel} {words:?}: {has} kHz; {applied:?}");
                    }
                }
            }
        }
    }
    println!("{kept} kept, {cut} cut with a reason, {refused} refused");
    assert!(silent.is_empty(), "{silent}");
    assert!(kept + cut + refused >= 300 && cut > 0 && refused > 0);
}

/// Settings that a check of the doctor judges, for all CPUs and for one CPU.
const JUDGED: [&str; 36] = [
    "turbo=off",
    "boost=off",
    "boost@0=off",
    "max-perf-pct=50",
    "min-perf-pct=60",
    "max-freq=min",
    "max-freq@0=min",
    "max-freq=75%",
    "max-freq@0=75%",
    "min-freq=base",
    "min-freq@0=base",
    "governor=performance",
    "governor@0=performance",
    "governor=powersave",
    "governor@0=powersave",
    "governor=userspace",
    "governor@0=userspace",
    "epp=power",
    "epp@0=power",
    "epp@0=performance",
    "epb=0",
    "epb=15",
    "epb@0=15",
    "latency-limit=2us",
    "latency-limit@0=n/a",
    "latency-limit=n/a",
    "idle-state=off",
    "idle-state:C6=off",
    "idle-governor=ladder",
    "uncore-min-freq=max",
    "uncore-max-freq=min",
    "online@1=off",
    "smt=off",
    "platform-profile=low-power",
    "power-limit:long_term=10W",
    "driver-mode=passive",
];

fn examine(host: &SimHost, state: &StateDir) -> Report {
    let mut report = doctor::examine(host, doctor::Options::default()).unwrap();
    if let Some(journal) = Journal::load(state).unwrap() {
        report.note_choices(host, &journal);
    }
    report
}

/// If another program changes a setting after flyball, the doctor warns and suggests a setting.
#[test]
fn what_another_program_changed_is_an_alarm() {
    let host = SimHost::open(&SimSetup::parse("gold-6138").unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path());
    set(&host, &Intent::from_arguments(&["governor=performance"], None).unwrap(), &state).unwrap();
    for policy in 0..4 {
        let file = format!("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor");
        host.write(&file, b"powersave").unwrap();
    }
    let report = examine(&host, &state);
    let found = report.findings.iter().find(|finding| finding.id == "conflict.governor").unwrap();
    assert_eq!(found.verdict, Verdict::Warning, "{found:?}");
    assert!(!found.what.contains("set by"), "{found:?}");
}

/// The doctor neither warns about settings that the user made with flyball nor offers to undo them.
#[test]
fn what_flyball_set_is_no_alarm() {
    let (mut judged, mut wrong) = (0, BTreeSet::new());
    for machine in small_machines() {
        for words in JUDGED.into_iter().chain(PROFILES) {
            let host = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let state = StateDir::new(folder.path());
            let before = examine(&host, &state);
            let is_setting = words.contains('=');
            let setting = || Intent::from_arguments(&[words], None).unwrap();
            let intent = if is_setting { setting() } else { profile(words).intent };
            // Not every machine has every knob.
            if set(&host, &intent, &state).is_err() {
                continue;
            }
            judged += 1;
            let report = examine(&host, &state);
            let was = |id: &str| before.findings.iter().any(|f| f.id == id && f.verdict >= Verdict::Warning);
            let alarms = report.from(Verdict::Warning).into_iter().filter(|finding| !was(finding.id));
            wrong.extend(alarms.map(|alarm| format!("{words} on {machine}: {} ({})", alarm.what, alarm.id)));
            let (offered, known) = (report.settings(), before.settings());
            let more = offered.iter().filter(|setting| !known.contains(setting));
            wrong.extend(more.map(|setting| format!("{words} on {machine}: --fix would set {setting}")));
        }
    }
    println!("{judged} settings judged");
    assert!(wrong.is_empty(), "{} of {judged}:\n{wrong:#?}", wrong.len());
    assert!(judged >= 300, "{judged}");
}
