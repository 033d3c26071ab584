//! Tests which CPUs belong to low-power cores, to uncore domains of dies, and to power domains
//! without CPUs.

use flyball_control::{CoreType, Id, Intent, KindEvidence, Snapshot, Topology, plan::plan, verify::verify};
use flyball_host::{Archive, CpuList};
use flyball_testing::machines;

use crate::doctor::machines::{CPU, FileHost, Files, amd, intel, put};

fn recorded(name: &str) -> Archive {
    let path = machines().into_iter().find(|path| path.to_string_lossy().contains(name)).unwrap();
    Archive::open(&path.display().to_string()).unwrap()
}

/// Builds P-cores 0 and 1 and E-core 2 with an L3, and E-core 3 without.
fn hybrid() -> Files {
    let mut files = intel();
    put(&mut files, "sys/devices/cpu_core/cpus", "0-1");
    put(&mut files, "sys/devices/cpu_atom/cpus", "2-3");
    for cpu in 0..4 {
        for index in 0..if cpu == 3 { 3 } else { 4 } {
            put(&mut files, format!("{CPU}/cpu{cpu}/cache/index{index}/shared_cpu_list"), "0-3");
        }
    }
    files
}

#[test]
fn an_e_core_without_an_l3_is_a_low_power_core() {
    let kinds = Topology::inspect(&FileHost(&hybrid())).unwrap().core_kinds();
    let of = |kind| kinds.get(&kind).map(ToString::to_string);
    assert_eq!(of(CoreType::P).as_deref(), Some("0,1"));
    assert_eq!(of(CoreType::E).as_deref(), Some("2"));
    assert_eq!(of(CoreType::LP).as_deref(), Some("3"));
}

#[test]
fn without_cache_folders_e_cores_stay_e_cores() {
    let mut files = hybrid();
    files.retain(|path, _| !path.contains("/cache/"));
    assert!(!Topology::inspect(&FileHost(&files)).unwrap().core_kinds().contains_key(&CoreType::LP));
}

/// Describes CPUs of an AMD processor as the kernel's debugfs does, one word per CPU.
fn described(words: &[&str]) -> Topology {
    let mut files = amd();
    for (cpu, word) in words.iter().enumerate() {
        let text = format!("online:              1\ncpu_type:            {word}\npkg_id:              0\n");
        put(&mut files, format!("sys/kernel/debug/x86/topo/cpus/{cpu}"), text.as_str());
    }
    Topology::inspect(&FileHost(&files)).unwrap()
}

#[test]
fn kinds_of_amd_are_those_that_the_kernel_read() {
    let mixed = described(&["performance", "efficiency", "low_power", "turbo"]);
    let kinds: Vec<_> = mixed.cpus.values().map(|cpu| cpu.core_type).collect();
    // A later kernel's word is a type that flyball does not know.
    assert_eq!(kinds, [Some(CoreType::P), Some(CoreType::E), Some(CoreType::LP), None]);
    assert_eq!(mixed.kind_evidence, Some(KindEvidence::Cpuid));
    for equal in [&["performance"; 4], &["unknown"; 4]] {
        let topology = described(equal);
        assert!(topology.core_kinds().is_empty() && topology.kind_evidence.is_none());
    }
}

/// RK3588 class: /proc/cpuinfo has no `core id`, and `core_id` starts from 0 in each cluster.
#[test]
fn cores_of_clusters_are_told_apart() {
    let of = |threads: [&str; 4]| {
        let mut files = intel();
        files.retain(|path, _| path != "proc/cpuinfo");
        for (cpu, threads) in threads.into_iter().enumerate() {
            let folder = format!("{CPU}/cpu{cpu}/topology");
            put(&mut files, format!("{folder}/physical_package_id"), "0");
            put(&mut files, format!("{folder}/core_id"), (cpu % 2).to_string().as_str());
            put(&mut files, format!("{folder}/thread_siblings_list"), threads);
        }
        Topology::inspect(&FileHost(&files)).unwrap().cores().len()
    };
    assert_eq!(of(["0", "1", "2", "3"]), 4);
    assert_eq!(of(["0,2", "1,3", "0,2", "1,3"]), 2);
}

#[test]
fn nodes_of_a_package_are_counted() {
    let count = |lists: &[&str]| {
        let mut files = intel();
        files.retain(|path, _| !path.starts_with("sys/devices/system/node/"));
        for (node, list) in lists.iter().enumerate() {
            put(&mut files, format!("sys/devices/system/node/node{node}/cpulist"), *list);
        }
        Topology::inspect(&FileHost(&files)).unwrap().nodes_per_package()
    };
    assert_eq!(count(&["0-1", "2-3"]), Some(2));
    assert_eq!(count(&["0-3"]), None);
    // Memory without CPUs belongs to no package.
    assert_eq!(count(&["0-3", ""]), None);
}

/// Granite Rapids: power domains 0 to 2 of a package have CPUs, 3 and 4 are I/O dies.
#[test]
fn uncore_domains_belong_to_their_die() {
    let host = recorded("gnr0");
    let snapshot = Snapshot::take_knobs(&host, &[Id::UncoreMaxFreq]).unwrap();
    let own = |name: &str| {
        let places = snapshot.places(Id::UncoreMaxFreq).unwrap();
        places.iter().find(|place| place.name == name).unwrap().own_cpus().clone()
    };
    let package = snapshot.topology().packages()[&0].clone();
    let dies = [own("uncore00"), own("uncore01"), own("uncore02")];
    assert!(dies.iter().all(|die| !die.is_empty() && die.is_subset(&package)));
    assert!(!dies[0].intersects(&dies[1]) && !dies[1].intersects(&dies[2]));
    assert_eq!(dies[0].union(&dies[1]).union(&dies[2]), package);
    assert!(own("uncore03").is_empty() && own("uncore04").is_empty());
    assert_eq!(own("package_00_die_00"), package);
}

/// Returns the names of the uncore domains that a setting writes.
fn written(host: &Archive, on: Option<&str>) -> Vec<String> {
    let intent = Intent::from_arguments(&["uncore-max-freq=1.2GHz"], on).unwrap();
    let snapshot = Snapshot::for_intent(host, &intent).unwrap();
    let plan = plan(&snapshot, &intent).unwrap();
    let name = |path: String| {
        let folder = path.split_once("intel_uncore_frequency/").unwrap().1;
        folder.split_once('/').unwrap().0.to_owned()
    };
    let mut names: Vec<String> = plan.changes.iter().map(|change| name(change.location.to_text())).collect();
    names.sort();
    names
}

#[test]
fn a_selection_of_cpus_writes_the_domains_of_their_dies_only() {
    let host = recorded("gnr0");
    assert_eq!(written(&host, Some("0")), ["uncore00"]);
    let all = written(&host, None);
    assert_eq!(all.len(), 10, "{all:?}");
    // All of package 0: its dies and its I/O dies. The entry above them already allows 1.2 GHz.
    let package: CpuList = Topology::inspect(&host).unwrap().packages()[&0].clone();
    assert_eq!(
        written(&host, Some(&package.to_string())),
        ["uncore00", "uncore01", "uncore02", "uncore03", "uncore04"]
    );
}

/// The entries of packages have no low-load floor, so a setting for all domains applies to those of
/// dies.
#[test]
fn what_only_dies_have_is_set_on_dies() {
    let host = recorded("gnr0");
    let intent = Intent::from_arguments(&["elc-floor-freq=900MHz"], None).unwrap();
    let plan = plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent).unwrap();
    assert_eq!(plan.changes.len(), 10, "{:?}", plan.changes);
}

/// If the present governor refuses the preference, the preference has drifted. If a governor in the
/// same request refuses it, the request is a mistake.
#[test]
fn what_the_present_state_refuses_has_drifted() {
    let mut files = intel();
    put(&mut files, format!("{CPU}/cpufreq/policy1/scaling_governor"), "performance");
    put(&mut files, format!("{CPU}/cpufreq/policy1/energy_performance_preference"), "performance");
    let judge = |settings: &[&str]| {
        let intent = Intent::from_arguments(settings, None).unwrap();
        let snapshot = Snapshot::for_intent(&FileHost(&files), &intent).unwrap();
        verify(&snapshot, &intent)
    };
    let verdict = judge(&["epp=balance_performance"]).unwrap();
    let drifted: Vec<String> = verdict.drifted.iter().map(|change| change.cpus.to_string()).collect();
    assert_eq!(drifted, ["1"], "{verdict:?}");
    assert!(judge(&["epp=power", "governor=performance"]).is_err());
}
