//! Tests the shipped profiles: planned on every recorded and built-in simulated machine, applied on
//! the simulated ones, verified and restored. Also tests what the commands print about them.

use std::collections::{BTreeMap, BTreeSet};

use flyball_control::{
    Id, Intent, Place, Request, Setting, Snapshot, Value,
    plan::{Note, Plan, Remark, plan_and_choice},
    profile::Profile,
    verify::verify,
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{Archive, CpuList, Host};
use flyball_sim::silicon::MachineSpec;
use flyball_simhost::{SimHost, SimSetup};
use flyball_testing::{Ran, Tree, flyball, machines};

/// The profiles of dist/profiles, by name.
fn shipped() -> BTreeMap<String, Intent> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/profiles");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let profile = Profile::parse(&std::fs::read(&path).unwrap(), &name).unwrap();
        (name, profile.intent)
    };
    std::fs::read_dir(directory).unwrap().map(read).collect()
}

/// Plans every profile. Takes a single snapshot, which is the slow part.
fn plans(host: &dyn Host, machine: &str) -> BTreeMap<String, (Plan, Intent)> {
    let all = shipped();
    let settings: Vec<Setting> = all.values().flat_map(|intent| intent.settings.iter().cloned()).collect();
    let snapshot = Snapshot::for_intent(host, &Intent { settings }).unwrap();
    let plan_one = |(name, intent): (String, Intent)| {
        let planned = plan_and_choice(&snapshot, &intent);
        let planned = planned.unwrap_or_else(|error| panic!("{name} on {machine}: {error}"));
        // Everything omitted has a note.
        let left_out = intent.settings.len() - planned.1.settings.len();
        let count = |note: &Note| match &note.remark {
            Remark::LeftOut { .. } => 1,
            Remark::OfOtherVendor { settings, .. } => settings.len(),
            _ => 0,
        };
        assert_eq!(
            planned.0.notes.iter().map(count).sum::<usize>(),
            left_out,
            "{name} on {machine}: {:?}",
            planned.0.notes
        );
        assert!(planned.1.setting(Id::Governor).is_some(), "{name} on {machine} sets no governor");
        (name, planned)
    };
    all.into_iter().map(plan_one).collect()
}

/// Judges the result of a plan on a recorded machine by the rules for simulated ones. Also returns
/// the frequency ranges that the plan leaves, kHz.
fn complaints(host: &dyn Host, name: &str, plan: &Plan) -> (Vec<String>, BTreeSet<(u64, u64)>) {
    const LOOKED_AT: &[Id] = &[
        Id::MinFreq,
        Id::MaxFreq,
        Id::HwMaxFreq,
        Id::BaseFreq,
        Id::NominalFreq,
        Id::LowestNonlinearFreq,
        Id::Turbo,
        Id::MaxPerfPct,
        Id::IdleLatency,
    ];
    let mut snapshot = Snapshot::begin(host).unwrap();
    snapshot.take(host, &Request { knobs: LOOKED_AT, sample_absence: true, ..Request::default() });
    let planned = |knob: Id, cpus: &CpuList| {
        let change = plan.changes.iter().find(|change| change.knob == knob && change.cpus == *cpus);
        change.map(|change| change.new.as_str())
    };
    let khz = |knob: Id, cpu: u32| {
        let only = std::iter::once(cpu).collect();
        let places = snapshot.places_on(knob, &only).ok()?;
        let value = places.iter().find_map(|place| snapshot.value_if_readable(knob, place).ok().flatten());
        value?.frequency().map(|khz| khz.0)
    };
    let switch = plan.changes.iter().find(|change| matches!(change.knob, Id::Turbo | Id::Boost));
    let has_turbo = match switch {
        Some(change) => {
            change.new != if change.location.to_string().ends_with("no_turbo") { "1" } else { "0" }
        }
        None => snapshot.machine_value(Id::Turbo).ok().flatten() != Some(Value::Switch(false)),
    };
    let (mut wrong, mut ranges) = (Vec::new(), BTreeSet::new());
    for place in snapshot.places(Id::MaxFreq).unwrap_or_default() {
        let Some(cpu) = place.cpus.first() else { continue };
        let top = khz(Id::HwMaxFreq, cpu);
        let limit = |knob: Id| {
            let new = planned(knob, &place.cpus).and_then(|new| new.parse().ok().or(top));
            (khz(knob, cpu), new.or(khz(knob, cpu)))
        };
        let ((was_min, min), (was_max, max)) = (limit(Id::MinFreq), limit(Id::MaxFreq));
        let (Some(min), Some(max)) = (min, max) else { continue };
        let base = khz(Id::BaseFreq, cpu).or_else(|| khz(Id::NominalFreq, cpu)).filter(|khz| *khz > 0);
        let max = if has_turbo { max } else { base.map_or(max, |base| max.min(base)) };
        ranges.insert((min.min(max), max));
        // Bits 23:16 most efficient, 15:8 guaranteed (Intel SDM 3B, IA32_HWP_CAPABILITIES).
        let efficient = khz(Id::LowestNonlinearFreq, cpu).or_else(|| {
            let levels = host.msr(cpu, 0x771).ok().filter(|levels| levels >> 8 & 0xff > 0)?;
            Some(base? * (levels >> 16 & 0xff) / (levels >> 8 & 0xff))
        });
        let complaint = match name {
            "battery" | "powersave" => efficient
                .filter(|efficient| max * 100 < efficient * 99)
                .map(|efficient| format!("at most {max} kHz, efficient are {efficient}")),
            "balanced" if Some(min) < was_min || Some(max) < was_max => {
                Some(format!("{min} to {max} kHz is lower than before"))
            }
            // Within a step of the clock.
            "realtime" | "benchmark" if min.abs_diff(max) > 100_000 => Some(format!("{min} to {max} kHz")),
            _ => None,
        };
        wrong.extend(complaint.map(|words| format!("{name} on {} CPU {cpu}: {words}", host.name())));
    }
    if matches!(name, "throughput" | "hpc") {
        let percent = snapshot.machine_value(Id::MaxPerfPct).ok().flatten();
        let lifts = plan.changes.iter().any(|change| change.knob == Id::MaxPerfPct && change.new == "100");
        let is_capped = matches!(percent, Some(Value::Percent(percent)) if percent.0 < 100) && !lifts;
        if !has_turbo || is_capped {
            wrong.push(format!("{name} on {}: turbo {has_turbo}, capped {is_capped}", host.name()));
        }
    }
    wrong.extend(
        sleeps_too_deep(&snapshot, name, plan).map(|sleeps| format!("{name} on {}: {sleeps}", host.name())),
    );
    (wrong, ranges)
}

/// Returns the idle states deeper than C1 or C1E that a plan's latency limit allows.
fn sleeps_too_deep(snapshot: &Snapshot, name: &str, plan: &Plan) -> Option<String> {
    if !matches!(name, "latency" | "hpc" | "benchmark" | "realtime") {
        return None;
    }
    let limit = plan.changes.iter().find(|change| change.knob == Id::LatencyLimit);
    let limit = limit.and_then(|change| change.new.parse().ok()).unwrap_or(0);
    let places = snapshot.places(Id::IdleLatency).unwrap_or_default();
    let is_admitted = |place: &&Place| {
        let latency = snapshot.value_if_readable(Id::IdleLatency, place).ok().flatten();
        matches!(latency, Some(Value::Time(latency)) if latency.0 <= limit)
    };
    let mut admitted: BTreeSet<_> = places.iter().filter(is_admitted).map(|place| &*place.name).collect();
    let has_c1 = places.iter().any(|place| matches!(&*place.name, "C1" | "C1_ACPI"));
    let shallow = ["POLL", "C1", "C1_ACPI", if name == "realtime" && has_c1 { "" } else { "C1E" }];
    admitted.retain(|state| !shallow.contains(state));
    (!admitted.is_empty()).then(|| format!("{limit} us admit {admitted:?}"))
}

/// Formats ranges in GHz: `0.8-3.7`, or `2.1` if it is fixed, at most two kinds of CPUs.
fn words(ranges: &BTreeSet<(u64, u64)>) -> String {
    let ghz = |khz: u64| format!("{:.1}", khz as f64 / 1e6);
    let word = |(min, max): &(u64, u64)| {
        if ghz(*min) == ghz(*max) { ghz(*max) } else { format!("{}-{}", ghz(*min), ghz(*max)) }
    };
    let words: BTreeSet<String> = ranges.iter().map(word).collect();
    words.into_iter().collect::<Vec<_>>().join(", ")
}

#[test]
fn every_profile_is_planned_on_recorded_machines() {
    let (mut judged, mut wrong) = (0, Vec::new());
    let names = shipped().into_keys().collect::<Vec<_>>();
    let mut table = format!("| machine | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for machine in machines() {
        let host = Archive::open(&machine.display().to_string()).unwrap();
        let file = machine.file_name().unwrap().to_string_lossy().into_owned();
        let mut row = format!("| {} |", file.trim_end_matches(".tar.zst"));
        for (name, (plan, _)) in plans(&host, &host.name()) {
            judged += 1;
            let (more, ranges) = complaints(&host, &name, &plan);
            wrong.extend(more);
            row.push_str(&format!(" {} |", words(&ranges)));
        }
        table.push_str(&row);
        table.push('\n');
    }
    println!("{judged} plans judged");
    assert!(judged >= 108, "{judged}");
    assert!(wrong.is_empty(), "of {judged}:\n{}", wrong.join("\n"));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dev/profiles.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (head, old) = text.split_at(text.find("| machine |").unwrap_or(text.len()));
    if std::env::var_os("FLYBALL_BLESS").is_some() {
        std::fs::write(page, format!("{head}{table}")).unwrap();
    } else {
        assert_eq!(old, table, "FLYBALL_BLESS=1 writes it");
    }
}

#[test]
fn every_profile_is_applied_verified_and_restored_on_simulated_machines() {
    let boots = ["ryzen-5750g,boot=amd_pstate=passive", "ryzen-5750g,boot=amd_pstate=disable"];
    for name in MachineSpec::names().chain(boots) {
        let host = SimHost::open(&SimSetup::parse(name).unwrap()).unwrap();
        // A debug build takes seconds with hundreds of CPUs, so there only apply two profiles, and
        // plan the others.
        let is_large = Snapshot::begin(&host).unwrap().topology().present.len() > 100;
        for (profile, (plan, chosen)) in plans(&host, name) {
            if is_large && !matches!(profile.as_str(), "latency" | "powersave") {
                continue;
            }
            let intent = &shipped()[&profile];
            let what = format!("{profile} on {name}");
            let folder = Tree::new();
            let state = StateDir::new(folder.path());
            let before = host.with(|machine| machine.settings());
            let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
            let applied =
                transaction.apply(intent, &|| false).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(applied.clamped().count(), 0, "{what}: {applied:?}");
            assert_eq!(applied.made.is_empty(), plan.is_empty(), "{what}");
            // A preference may appear with a governor, but not in every mode.
            assert!(applied.intent.settings.len() <= chosen.settings.len(), "{what}");
            // Both the profile and the settings chosen from it must be in effect.
            for intent in [intent, &applied.intent] {
                let snapshot = Snapshot::for_intent(&host, intent).unwrap();
                let verdict = verify(&snapshot, intent).unwrap();
                assert!(verdict.holds(), "{what}: {:?}", verdict.drifted);
            }
            assert!(transaction.end().is_exact(), "{what}");
            let after = host.with(|machine| machine.settings());
            let differs = before.lines().zip(after.lines()).find(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}");
        }
    }
}

fn run(words: &[&str]) -> Ran {
    let folder = Tree::new();
    Ran::of(flyball!().args(words).current_dir(folder.path()))
}

#[test]
fn a_name_is_listed_explained_planned_and_applied() {
    let list = run(&["-M", "sim:hybrid-laptop", "profiles", "--json"]);
    let list: Vec<serde_json::Value> = serde_json::from_str(&list.out).unwrap();
    let names: Vec<&str> = list.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(shipped().keys().all(|name| names.contains(&name.as_str())), "{names:?}");
    let battery = list.iter().find(|one| one["name"] == "battery").unwrap();
    assert!(battery["possible"].as_u64() > Some(3) && battery["in_effect"] == false, "{battery}");
    let text = run(&["explain", "storage"]);
    assert!(text.out.contains("StorPool") && text.out.contains("[optional]"), "{}", text.out);
    // 'latency' is a profile's name, and part of knobs' names.
    assert!(run(&["explain", "latency-limit"]).out.contains("lives in"));
    let plan = run(&["-M", "sim:gold-6138", "plan", "storage"]);
    assert!(plan.out.contains("energy_perf_bias") && plan.out.contains("storage line"), "{}", plan.text());
    let applied = run(&["-M", "sim:ryzen-5750g", "apply", "storage"]);
    assert_eq!(applied.code, 0, "{}", applied.text());
    assert!(
        applied.err.contains("left out, on Intel processors only: epb (storage line"),
        "{}",
        applied.text()
    );
    assert!(!applied.out.contains("epb"), "what was left out is not in effect: {}", applied.out);
}

#[test]
fn a_file_needs_a_slash_or_its_ending() {
    let folder = Tree::new();
    for name in ["mine", "storage", "mine.toml"] {
        std::fs::write(folder.path().join(name), "turbo = \"off\"\n").unwrap();
    }
    let plan = |name: &str| {
        Ran::of(flyball!().args(["-M", "sim:ryzen-5750g", "plan", name]).current_dir(folder.path()))
    };
    assert_eq!(plan("mine").code, 2);
    assert!(plan("mine").err.contains("./mine"), "{}", plan("mine").err);
    for file in ["./mine", "mine.toml", "./storage"] {
        assert!(plan(file).out.contains("boost"), "{file}: {}", plan(file).text());
    }
    assert!(!plan("storage").out.contains("boost"), "the name is not the file");
    assert!(plan("nothing").err.contains("flyball profiles"), "{}", plan("nothing").err);
}

#[test]
fn a_profile_of_which_nothing_is_possible_is_an_error() {
    let folder = Tree::new();
    std::fs::write(folder.path().join("p.toml"), "[optional]\nepb = 15\n").unwrap();
    let ran =
        Ran::of(flyball!().args(["-M", "sim:ryzen-5750g", "apply", "p.toml"]).current_dir(folder.path()));
    assert_eq!(ran.code, 4, "{}", ran.text());
    std::fs::write(folder.path().join("p.toml"), "epp = [\"power\", \"performance\"]\nepb = 15\n").unwrap();
    let ran =
        Ran::of(flyball!().args(["-M", "sim:ryzen-5750g", "plan", "p.toml"]).current_dir(folder.path()));
    assert_eq!(ran.code, 4, "a setting that is not optional: {}", ran.text());
}

/// If -c were ignored, the profile would write to other CPUs than requested.
#[test]
fn cpus_of_the_command_line_are_not_passed_over() {
    for words in ["plan latency -c 0-1", "hold add latency -c 0-1", "apply latency -n -c 0-1"] {
        let ran = Ran::of(flyball!().args(["-M", "sim:ryzen-5750g"]).args(words.split(' ')));
        assert_eq!(ran.code, 2, "{words}: {}", ran.text());
        assert!(ran.err.contains("a profile names its CPUs itself"), "{}", ran.err);
    }
    let ran =
        Ran::of(flyball!().args("-M sim:ryzen-5750g plan latency governor=powersave -c 0-1".split(' ')));
    assert_eq!(ran.code, 0, "{}", ran.text());
}
