//! Counts how often a change opens each attribute: once to plan, once to read back, once to plan
//! again.

use std::{collections::BTreeMap, path::Path, sync::Mutex};

use flyball_control::{
    Intent, Snapshot,
    plan::{Remark, plan},
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{Host, HostError, Plain};

/// A host that counts how often each file and register is opened for reading.
struct Counting {
    host: Plain,
    opens: Mutex<BTreeMap<String, usize>>,
}

impl Counting {
    fn count(&self, what: &str) {
        *self.opens.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }
}

impl Host for Counting {
    flyball_host::forward!(
        host: kind, name, write, list, exists, writable, link, write_msr, isst, now, sleep
    );

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        self.count(path);
        self.host.read_into(path, buffer)
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        self.count(&format!("MSR {register:#x} of CPU {cpu}"));
        self.host.msr(cpu, register)
    }
}

/// Creates four policies of two CPUs each, with a driver in passive mode.
fn tree(root: &Path) {
    let put = |path: String, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    };
    let cpus = "sys/devices/system/cpu";
    for list in ["online", "present", "possible"] {
        put(format!("{cpus}/{list}"), "0-7");
    }
    put(
        "proc/cpuinfo".to_owned(),
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85",
    );
    for cpu in 0..8 {
        for (file, text) in [("physical_package_id", "0".to_owned()), ("core_id", (cpu / 2).to_string())] {
            put(format!("{cpus}/cpu{cpu}/topology/{file}"), &text);
        }
        put(format!("{cpus}/cpu{cpu}/power/energy_perf_bias"), "6");
    }
    for policy in [0, 2, 4, 6] {
        let of_policy = |file: &str, text: &str| put(format!("{cpus}/cpufreq/policy{policy}/{file}"), text);
        of_policy("related_cpus", &format!("{policy} {}", policy + 1));
        of_policy("scaling_driver", "intel_cpufreq");
        of_policy("scaling_available_governors", "performance powersave schedutil");
        of_policy("scaling_governor", "schedutil");
        of_policy("energy_performance_preference", "balance_performance");
        of_policy("scaling_min_freq", "800000");
        of_policy("scaling_max_freq", "3000000");
        of_policy("cpuinfo_min_freq", "800000");
        of_policy("cpuinfo_max_freq", "3000000");
    }
}

/// Applies an intent to the tree. Returns the changes made, and how often each attribute was
/// opened.
fn opens(arguments: &[&str]) -> (usize, BTreeMap<String, usize>) {
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    let host = Counting { host: Plain::open(folder.path()).unwrap(), opens: Mutex::default() };
    let state = StateDir::new(folder.path().join("state"));
    let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
    let applied = transaction.apply(&Intent::from_arguments(arguments, None).unwrap(), &|| false).unwrap();
    transaction.keep().unwrap();
    (applied.made.len(), host.opens.into_inner().unwrap())
}

#[test]
fn a_governor_is_set_with_three_opens_of_each_attribute() {
    let (made, opens) = opens(&["governor=performance"]);
    assert_eq!(made, 4);
    let governor = "/sys/devices/system/cpu/cpufreq/policy6/scaling_governor";
    assert_eq!(opens.get(governor), Some(&3), "look, read back, look again");
    let often: Vec<_> = opens.iter().filter(|(_, count)| **count > 3).collect();
    assert!(often.is_empty(), "{often:#?}");
}

#[test]
fn limits_are_set_with_three_opens_of_each_attribute() {
    let (made, opens) = opens(&["max-freq=2GHz", "epp=power"]);
    assert_eq!(made, 8);
    let often: Vec<_> = opens.iter().filter(|(_, count)| **count > 3).collect();
    assert!(often.is_empty(), "{often:#?}");
}

#[test]
fn cpus_that_have_no_policy_are_named() {
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    std::fs::remove_dir_all(folder.path().join("sys/devices/system/cpu/cpufreq/policy6")).unwrap();
    let host = Plain::open(folder.path()).unwrap();
    let without = |cpus: Option<&str>| {
        let intent = Intent::from_arguments(&["governor=performance"], cpus).unwrap();
        let plan = plan(&Snapshot::for_intent(&host, &intent).unwrap(), &intent).unwrap();
        plan.notes.into_iter().find_map(|note| match note.remark {
            Remark::WithoutPolicy { cpus, .. } => Some(cpus.to_string()),
            _ => None,
        })
    };
    assert_eq!(without(None).as_deref(), Some("6,7"));
    assert_eq!(without(Some("4-6")).as_deref(), Some("6"));
    assert_eq!(without(Some("0-5")), None);
}
