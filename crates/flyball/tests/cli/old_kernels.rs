//! Tests simulated kernels before 6.1: showing, setting, restoring and diagnosing with their files.

use flyball_testing::{Ran, flyball};

/// Runs commands on one machine whose state and journal are stored in a directory.
struct Machine {
    folder: tempfile::TempDir,
    machine: String,
}

impl Machine {
    fn boot(name: &str, kernel: &str) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("machine");
        let machine = format!("sim:{name},kernel={kernel},state={}", state.display());
        Machine { folder, machine }
    }

    fn run(&self, words: &[&str]) -> Ran {
        let journal = self.folder.path().join("journal");
        let journal = journal.to_str().unwrap();
        Ran::of(flyball!().args(["-M", &self.machine, "--state-dir", journal]).args(words))
    }

    fn get(&self, knobs: &[&str]) -> String {
        let ran = self.run(&[&["get"], knobs].concat());
        assert_eq!(ran.code, 0, "{}: {}", self.machine, ran.err);
        ran.out
    }
}

#[test]
fn settings_are_made_and_restored_on_every_kernel_with_policies() {
    let shown = ["governor", "min-freq", "max-freq", "turbo"];
    for kernel in ["4.19", "5.10", "5.15"] {
        for (name, driver) in
            [("gold-6138", "intel_pstate"), ("i7-2600", "intel_"), ("ryzen-5750g", "acpi-cpufreq")]
        {
            let machine = Machine::boot(name, kernel);
            let show = machine.run(&["show"]);
            assert!(show.code == 0 && show.out.contains(driver), "{name} {kernel}: {}", show.out);
            let before = machine.get(&shown);
            // Kernel 4.19 rejects a minimum above the maximum, so the order of writes matters, both
            // ways.
            let set = machine.run(&["set", "governor=performance", "max-freq=min", "turbo=off"]);
            assert_eq!(set.code, 0, "{name} {kernel}: {}", set.err);
            let set = machine.run(&["set", "max-freq=max", "min-freq=max"]);
            assert_eq!(set.code, 0, "{name} {kernel}: {}", set.err);
            assert_ne!(machine.get(&shown), before, "{name} {kernel}");
            let undone = machine.run(&["restore"]);
            assert_eq!(undone.code, 0, "{name} {kernel}: {}", undone.err);
            assert_eq!(machine.get(&shown), before, "{name} {kernel}");
            let doctor = machine.run(&["doctor"]);
            assert!(doctor.code == 0, "{name} {kernel}: {}{}", doctor.out, doctor.err);
            assert!(!doctor.out.contains("modprobe intel_uncore") || kernel != "4.19", "{}", doctor.out);
        }
    }
}

/// On kernels before 4.3, a policy's files are below its CPU.
#[test]
fn a_kernel_without_directories_of_policies_is_read_and_set() {
    let machine = Machine::boot("gold-6138", "3.10");
    let show = machine.run(&["show"]);
    assert!(show.code == 0 && show.out.contains("intel_pstate"), "{}{}", show.out, show.err);
    let shown = ["governor", "min-freq", "max-freq", "epb"];
    let before = machine.get(&shown);
    let set = machine.run(&["set", "governor=performance", "max-freq=2GHz", "epb=15"]);
    assert_eq!(set.code, 0, "{}", set.err);
    let after = machine.get(&shown);
    assert!(after.contains("performance") && after.contains("2 GHz") && after.contains("15"), "{after}");
    let plan = machine.run(&["plan", "governor=powersave", "--json"]).json();
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    assert!(plan.to_string().contains(path), "{plan}");
    let finding = |id: &str| {
        let doctor = machine.run(&["doctor", "--storpool", "--json"]).json();
        let found = doctor["findings"].as_array().unwrap().clone();
        found.into_iter().find(|finding| finding["id"] == id).unwrap()
    };
    assert_eq!(finding("driver.present")["verdict"], "ok");
    assert_eq!(finding("storpool.energy-bias")["verdict"], "ok");
    let undone = machine.run(&["restore"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!(machine.get(&shown), before);
}
