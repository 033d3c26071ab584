//! Plans for the recorded machines of this repository: applying a machine's saved profile changes
//! nothing, and no setting makes the planner panic.

use std::path::Path;

use flyball_control::{
    Evidence, Intent, Snapshot,
    plan::{Note, PlanError, Remark, plan},
    profile::Profile,
    save::{save, saved},
    verify::verify,
};
use flyball_host::{Archive, Host as _};
use flyball_testing::machines;

use crate::doctor::situations::{Change, Changed, write};

fn open(machine: &Path) -> Archive {
    Archive::open(&machine.display().to_string()).unwrap()
}

#[test]
fn what_is_saved_is_already_so() {
    for folder in machines() {
        let host = open(&folder);
        let text = save(&Snapshot::take_knobs(&host, &saved()).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let profile =
            Profile::parse(text.as_bytes(), "saved").unwrap_or_else(|error| panic!("{error}\n{text}"));
        let snapshot = Snapshot::for_intent(&host, &profile.intent).unwrap();
        match plan(&snapshot, &profile.intent) {
            Ok(plan) => assert!(plan.is_empty(), "{}: {:#?}", folder.display(), plan.changes),
            Err(error) => panic!("{}: {error}\n{text}", folder.display()),
        }
        assert!(verify(&snapshot, &profile.intent).unwrap().holds());
    }
}

const PROFILES: [&str; 9] =
    ["latency", "throughput", "balanced", "powersave", "storage", "realtime", "hpc", "benchmark", "battery"];

/// The shipped profiles on the recorded machines: checks the files' contents after the writes.
#[test]
fn profiles_do_what_they_say_on_recorded_machines() {
    let cpus = "/sys/devices/system/cpu";
    let mut wrong = Vec::new();
    for folder in machines() {
        let archive = open(&folder);
        for name in PROFILES {
            let path = format!("{}/../../dist/profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let intent = Profile::parse(&std::fs::read(path).unwrap(), name).unwrap().intent;
            let host = Changed::new(&archive, None);
            let mut complain = |words: String| wrong.push(format!("{name} on {}: {words}", host.name()));
            if let Err(error) = write(&host, &intent) {
                complain(error);
                continue;
            }
            let snapshot = Snapshot::for_intent(&host, &intent).unwrap();
            if !plan(&snapshot, &intent).unwrap().is_empty() || !verify(&snapshot, &intent).unwrap().holds() {
                complain("does not hold after its writes".to_owned());
            }
            let number = |path: &str| host.read(path).ok()?.trim().parse::<u64>().ok();
            let was = |path: &str| archive.read(path).ok()?.trim().parse::<u64>().ok();
            let pins = matches!(name, "realtime" | "benchmark");
            let is_off = number(&format!("{cpus}/intel_pstate/no_turbo")).map(|word| word == 1);
            let is_off = is_off.or_else(|| number(&format!("{cpus}/cpufreq/boost")).map(|word| word == 0));
            if is_off.is_some_and(|is_off| is_off != pins) {
                complain(format!("turbo off: {is_off:?}"));
            }
            let percent = |file| number(&format!("{cpus}/intel_pstate/{file}"));
            if percent("max_perf_pct").is_some_and(|percent| percent < 100)
                || !pins && percent("min_perf_pct").is_some_and(|percent| percent > 50)
            {
                complain("percentages limit it".to_owned());
            }
            for policy in host.list(&format!("{cpus}/cpufreq")).unwrap_or_default() {
                let file = |file| format!("{cpus}/cpufreq/{policy}/{file}");
                let (Some(min), Some(max)) =
                    (number(&file("scaling_min_freq")), number(&file("scaling_max_freq")))
                else {
                    continue;
                };
                let efficient = number(&file("amd_pstate_lowest_nonlinear_freq"));
                let is_wrong = match name {
                    _ if pins => min != max,
                    "battery" | "powersave" => {
                        efficient.is_some_and(|efficient| max < efficient) || min > max
                    }
                    _ => was(&file("scaling_max_freq")).is_some_and(|was| max < was),
                };
                if is_wrong {
                    complain(format!("{policy}: {min} to {max} kHz"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_wish_is_planned_or_refused_in_words() {
    let wishes: [&[&str]; 14] = [
        &["governor=performance"],
        &["governor=powersave", "epp=power"],
        &["epp=128"],
        &["turbo=off", "max-freq=max"],
        &["turbo=on", "max-freq=max", "min-freq=min"],
        &["max-freq=base"],
        &["max-freq=nominal"],
        &["driver-mode=passive", "governor=schedutil", "max-freq=max"],
        &["driver-mode=off"],
        &["idle-state=C1"],
        &["latency-limit=20us"],
        &["uncore-max-freq=min"],
        &["power-limit:long=100W"],
        &["smt=off", "epb=power", "online=off"],
    ];
    for folder in machines() {
        let host = open(&folder);
        for wish in wishes {
            let intent = Intent::from_arguments(wish, None).unwrap();
            match plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent) {
                Ok(plan) => {
                    // A note has evidence, like reasons and findings.
                    for note in plan.notes.iter().filter(|note| !matches!(note.remark, Remark::More(_))) {
                        let is_read = |seen: &Evidence| !seen.value.contains("before it was needed");
                        assert!(!note.evidence.is_empty() && note.evidence.iter().all(is_read), "{note}");
                        let alike = plan.notes.iter().filter(|other| other.remark == note.remark).count();
                        assert_eq!(alike, 1, "{wish:?} on {}: {note}", folder.display());
                        if note.remark == Remark::PerformanceForcesPreference {
                            let file =
                                "/sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";
                            assert!(host.read(file).is_ok(), "{}: {note}", folder.display());
                        }
                    }
                    for change in &plan.changes {
                        assert!(!change.new.is_empty() && !change.because.is_empty(), "{change:?}");
                        assert!(
                            change.provisional || change.old.as_deref() != Some(&change.new),
                            "{change:?}"
                        );
                    }
                    let steps: Vec<_> = plan.changes.iter().map(|change| change.step).collect();
                    assert!(steps.is_sorted(), "{wish:?} on {}", folder.display());
                }
                Err(error) => assert!(error.to_string().len() > 20, "{wish:?}: {error}"),
            }
        }
    }
}

/// There is one list of governors for the machine: at a policy it would be absent.
#[test]
fn a_governor_that_is_loaded_is_missing_from_the_list() {
    let host = flyball_testing::machine("milan0");
    let root = "/sys/devices/system/cpu/cpufreq";
    let list = |policy: String| {
        (format!("{root}/{policy}/scaling_available_governors"), "performance schedutil".to_owned())
    };
    let policies = host.list(root).unwrap().into_iter().filter(|name| name.starts_with("policy"));
    let files = policies.map(list).collect();
    let host = Changed::with(&host, files, &[]);
    let intent = Intent::from_arguments(&["governor=conservative"], None).unwrap();
    let plan = plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent).unwrap();
    let loads = |note: &&Note| matches!(note.remark, Remark::LoadsGovernor { .. });
    let [note] = plan.notes.iter().filter(loads).collect::<Vec<_>>()[..] else { panic!("{:?}", plan.notes) };
    let [seen] = &note.evidence[..] else { panic!("{note}") };
    assert!(seen.place.ends_with("scaling_available_governors"), "{note}");
    assert_eq!(seen.value, "available-governors=performance schedutil");
}

/// Each policy has its own evidence, but one note covers all.
#[test]
fn what_is_so_on_every_policy_is_noted_once() {
    let host = flyball_testing::machine("milan0");
    let intent = Intent::from_arguments(&["turbo=on", "max-freq=2.8GHz"], None).unwrap();
    let plan = plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent).unwrap();
    let of_boost = |note: &&Note| matches!(note.remark, Remark::BoostGoesAbove { .. });
    assert_eq!(plan.notes.iter().filter(of_boost).count(), 1, "{:?}", plan.notes);
}

/// Settings that these machines refuse, or interpret differently, with the reason in one line.
#[test]
fn a_setting_of_every_policy_is_answered_in_one_line() {
    let answers = |host: &dyn flyball_host::Host, words: &str| {
        let intent = Intent::from_arguments(&[words], None).unwrap();
        match plan(&Snapshot::for_intent(host, &intent).unwrap(), &intent) {
            Ok(plan) => plan.notes.iter().map(|note| note.remark.to_string()).collect::<Vec<_>>().join("\n"),
            Err(error) => error.to_string(),
        }
    };
    for (machine, words, answer) in [
        ("milan0", "min-freq=efficient", "policy*/amd_pstate_lowest_nonlinear_freq"),
        ("milan0", "max-freq=75%", "a limit of 2.8 GHz, the driver's next, would not keep it from boosting"),
        ("milan0", "epp=power", "acpi-cpufreq does not have it"),
        ("snr0", "turbo=off", "the processor reports none (no ida in /proc/cpuinfo)"),
    ] {
        let host = flyball_testing::machine(machine);
        let said = answers(&host, words);
        assert!(said.contains(answer) && said.lines().count() == 1, "{machine} {words}: {said}");
    }
    // amd-pstate's register can be read although the driver in use has no file for it.
    let host = flyball_testing::machine("milan0");
    let said = answers(&Changed::new(&host, Some(Change::Register(0xc001_02b3, 0))), "epp=power");
    assert!(said.contains("acpi-cpufreq does not have it") && said.lines().count() == 1, "{said}");
}

/// The kernel shows the lower of the file's limit and the firmware's, so a higher file limit cannot
/// take effect.
#[test]
fn a_limit_of_the_firmware_is_noted_and_not_written_over() {
    let root = "/sys/devices/system/cpu/cpufreq";
    let mut machines_with_it = 0;
    for folder in machines() {
        let host = open(&folder);
        if !host.exists(&format!("{root}/policy0/bios_limit")) {
            continue;
        }
        machines_with_it += 1;
        let lowest = host.read(&format!("{root}/policy0/cpuinfo_min_freq")).unwrap();
        let policies = host.list(root).unwrap().into_iter().filter(|name| name.starts_with("policy"));
        let limited = |policy: String| {
            ["bios_limit", "scaling_max_freq"].map(|file| (format!("{root}/{policy}/{file}"), lowest.clone()))
        };
        let changed = Changed::with(&host, policies.flat_map(limited).collect(), &[]);
        for wish in ["max-freq=max", "max-freq=base", "max-freq=75%"] {
            let intent = Intent::from_arguments(&[wish], None).unwrap();
            let Ok(plan) = plan(&Snapshot::for_intent(&changed, &intent).unwrap(), &intent) else { continue };
            assert!(plan.is_empty(), "{wish} on {}: {:?}", folder.display(), plan.changes);
            let note = plan.notes.last().unwrap();
            assert!(matches!(note.remark, Remark::FirmwareLimits { .. }), "{note}");
            assert!(note.evidence[0].place.ends_with("bios_limit"), "{note}");
        }
    }
    assert!(machines_with_it >= 2, "{machines_with_it}");
}

/// The firmware has turbo off on one socket: the write succeeds but changes nothing there.
#[test]
fn turbo_that_the_firmware_has_off_on_one_package_is_noted() {
    let host = flyball_testing::machine("clx2s0");
    let first = host.read("/sys/devices/system/node/node1/cpulist").unwrap();
    let first: u32 = first.split(['-', ',']).next().unwrap().parse().unwrap();
    let changed = Changed::new(&host, Some(Change::RegisterOf(first, 0x1a0, 0x40_0085_0089)));
    let intent = Intent::from_arguments(&["turbo=on"], None).unwrap();
    let plan = plan(&Snapshot::for_intent(&changed, &intent).unwrap(), &intent).unwrap();
    let [note] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
    assert!(
        matches!(&note.remark, Remark::TurboOffInFirmware { packages, .. } if packages[..] == [1]),
        "{note}"
    );
    assert!(note.evidence[0].place.contains("0x1a0"), "{note}");
}

/// `normal` is the kernel's default for the model, so a profile that sets it changes nothing.
#[test]
fn the_normal_bias_is_the_models() {
    for (machine, normal) in [("adl0", "7"), ("dell-latitude-5420-tgl", "6"), ("icx2s0", "6")] {
        let host = flyball_testing::machine(machine);
        let intent = Intent::from_arguments(&["epb=normal"], None).unwrap();
        let snapshot = Snapshot::for_intent(&host, &intent).unwrap();
        for change in plan(&snapshot, &intent).unwrap().changes {
            assert_eq!(change.new, normal, "{machine}");
            assert_ne!(change.old.as_deref(), Some(normal), "{machine}");
        }
        assert_eq!(
            verify(&snapshot, &intent).unwrap().holds(),
            host.msr(0, 0x1b0).unwrap() & 15 == normal.parse::<u64>().unwrap()
        );
    }
}

#[test]
fn the_snapshot_for_an_intent_has_all_that_its_plan_looks_at() {
    for folder in machines() {
        let host = open(&folder);
        // A debug build takes a second per plan for 512 CPUs.
        let most = 120 / Snapshot::begin(&host).unwrap().topology().present.len();
        let planned = crate::settings::plan_every_knob(&host, most.max(1));
        assert!(planned > 10, "{}: only {planned} settings", folder.display());
    }
}

#[test]
fn no_governor_brings_a_preference() {
    for folder in machines() {
        let host = open(&folder);
        let planned = |words: &[&str]| {
            let intent = Intent::from_arguments(words, None).unwrap();
            plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent)
        };
        let alone = planned(&["epp=balance_performance"]);
        for governor in ["powersave", "performance", "schedutil"] {
            let both = planned(&[&format!("governor={governor}"), "epp=balance_performance"]);
            if let (Err(PlanError::NotHere(lines)), false) = (&alone, both.is_err()) {
                panic!("{}: {governor} opens what is refused alone: {lines:?}", folder.display());
            }
        }
        if let Err(PlanError::NotHere(lines)) = alone {
            assert_eq!(lines.len(), 1, "{}: {lines:?}", folder.display());
        }
    }
}

/// A recording of amd-pstate's active mode lacks the mode file, but the driver still has modes.
#[test]
fn a_driver_with_modes_is_not_said_to_have_none() {
    let host = flyball_testing::machine("turin0");
    let intent = Intent::from_arguments(&["driver-mode=passive"], None).unwrap();
    let refused = plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent).unwrap_err();
    assert!(refused.to_string().contains("amd-pstate-epp is a mode of its driver"), "{refused}");
}
