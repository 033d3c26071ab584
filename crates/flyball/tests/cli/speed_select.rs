//! Tests `flyball sst` for a user who mistypes, requests too much, or has another machine: each
//! error has an exit code and says what to do. Uses simulated machines and small trees of files.
//! Tests with real drivers in guests are in
//! lab/crates/flyball-guest-cli/tests/guests/speed_select.rs.

use flyball_testing::{Ran, flyball};
use std::{fs, path::Path};

fn flyball(machine: &str, words: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = flyball!();
    command.args(["-M", machine, "--state-dir"]).arg(folder.path()).args(words).env("NO_COLOR", "1");
    Ran::of(&mut command)
}

fn sst(machine: &str, line: &str) -> Ran {
    let words: Vec<&str> = std::iter::once("sst").chain(line.split_whitespace()).collect();
    flyball(machine, &words)
}

const MACHINES: [&str; 2] = ["sim:sst-guide", "sim:tpmi-small"];

#[test]
fn what_is_mistyped_or_too_much_ends_with_2_and_says_what_would_do() {
    for (line, says) in [
        ("bogus", "unrecognized subcommand"),
        ("perf-profile info -l 99", "no level 99"),
        ("perf-profile info -l 300", "300"),
        ("perf-profile set-config-level", "--level"),
        ("perf-profile set-config-level -l x", "invalid"),
        ("perf-profile set-config-level -l 99", "its levels are 0"),
        ("perf-profile set-config-level -l 1 -o --cgroup", "cannot be used with"),
        ("base-freq info -l 99", "no level 99"),
        ("turbo-freq info -l 99", "no level 99"),
        ("turbo-freq info -l 0 -b 99", "bucket"),
        ("turbo-freq info -l 0 -r mmx", "mmx"),
        ("turbo-freq enable --auto", "--cpu LIST"),
        ("turbo-freq enable -t 0xzz", "hexadecimal"),
        ("core-power config -c 1", "nothing to change"),
        ("core-power config --min 1GHz", "--clos"),
        ("core-power config -c 4 --min 1GHz", "classes of service are 0 to 3"),
        ("core-power config -c 1 --min fast", "frequency"),
        ("core-power config -c 1 --min 26GHz", "25.5 GHz"),
        ("core-power config -c 1 --min 3GHz --max 2GHz", "above its maximum"),
        ("core-power config -c 1 --weight 16", "0 to 15"),
        ("core-power config -c 1 --weight 300", "300"),
        ("core-power get-config -c 4", "classes of service are 0 to 3"),
        ("core-power enable -p odd", "ordered or proportional"),
        ("core-power assoc --clos 1", "--cpu LIST"),
        ("-c 1 core-power assoc --clos 4", "0 to 3"),
        ("-c 999 core-power get-assoc", "no CPU 999"),
        ("-c 3-1 core-power get-assoc", "3-1"),
        ("turbo-mode set-trl", "--trl"),
        ("turbo-mode set-trl -t 12x", "hexadecimal"),
        ("recommend", "--cpus LIST"),
        ("recommend --cpus 999", "no CPU 999"),
        ("watch -w 0", "1s to 24h"),
    ] {
        for machine in MACHINES {
            let ran = sst(machine, line);
            assert_eq!(ran.code, 2, "{machine}: sst {line}: {}{}", ran.out, ran.err);
            assert!(ran.err.contains(says), "{machine}: sst {line} does not say '{says}': {}", ran.err);
            assert!(ran.out.is_empty(), "{machine}: sst {line} printed {}", ran.out);
        }
    }
}

#[test]
fn every_level_of_the_words_has_help() {
    for line in [
        "--help",
        "info --help",
        "perf-profile --help",
        "perf-profile set-config-level --help",
        "base-freq enable --help",
        "turbo-freq info --help",
        "core-power config --help",
        "turbo-mode set-trl --help",
        "recommend --help",
        "watch --help",
    ] {
        let ran = sst("sim:sst-guide", line);
        assert_eq!(ran.code, 0, "sst {line}");
        assert_ne!(ran.out, "", "sst {line}");
    }
}

#[test]
fn a_plan_of_base_freq_says_why_and_what_it_costs() {
    for machine in MACHINES {
        let ran = flyball(machine, &["plan", "sst-bf=on", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let plan = ran.json();
        // base-freq works through classes of service, so the plan has changes of other knobs with a
        // reason.
        let changes = plan["changes"].as_array().unwrap();
        let implied = changes.iter().filter(|change| change["knob"] != "sst-bf");
        assert!(
            implied.clone().count() > 0 && implied.clone().all(|change| change["because"].is_string()),
            "{plan}"
        );
        assert!(plan["notes"].as_array().is_some_and(|notes| !notes.is_empty()), "{plan}");
    }
}

/// Writes a tree of files that looks like a live machine with some processor, but without any
/// driver.
fn tree(folder: &Path, cpuinfo: &str) -> String {
    let cpus = folder.join("sys/devices/system/cpu");
    fs::create_dir_all(cpus.join("cpu0/topology")).unwrap();
    fs::create_dir_all(folder.join("proc")).unwrap();
    for name in ["online", "present", "possible"] {
        fs::write(cpus.join(name), "0\n").unwrap();
    }
    for name in ["physical_package_id", "core_id", "die_id"] {
        fs::write(cpus.join("cpu0/topology").join(name), "0\n").unwrap();
    }
    fs::write(cpus.join("cpu0/topology/thread_siblings"), "1\n").unwrap();
    fs::write(folder.join("proc/cpuinfo"), cpuinfo).unwrap();
    format!("tree:{}", folder.display())
}

fn cpuinfo(vendor: &str, family: u32, model: u32, name: &str) -> String {
    format!(
        "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\n\
         stepping\t: 7\nflags\t\t: fpu hwp\n\n"
    )
}

#[test]
fn another_machine_ends_with_4_and_the_remedy() {
    for (vendor, family, model, name, says) in [
        ("GenuineIntel", 6, 85, "Cascade Lake", "modprobe (isst_if_mbox_msr)"),
        ("GenuineIntel", 6, 106, "Ice Lake", "modprobe (isst_if_mbox_pci and isst_if_mmio)"),
        ("GenuineIntel", 6, 143, "Sapphire Rapids", "CONFIG_INTEL_SPEED_SELECT_INTERFACE"),
        ("GenuineIntel", 6, 173, "Granite Rapids", "intel_vsec, intel_vsec_tpmi and isst_tpmi"),
        ("GenuineIntel", 6, 151, "Alder Lake", "Alder Lake does not support it"),
        ("AuthenticAMD", 25, 33, "Ryzen", "Ryzen does not support it"),
        ("", 0, 0, "", "does not support it"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let machine = tree(folder.path(), &cpuinfo(vendor, family, model, name));
        for line in ["info", "perf-profile info", "core-power enable", "recommend --cpus 0", "watch --once"] {
            let ran = sst(&machine, line);
            assert_eq!(ran.code, 4, "{name}: sst {line}: {}", ran.err);
            assert!(ran.err.contains(says), "{name}: sst {line} does not say '{says}': {}", ran.err);
        }
    }
    // Truncated or missing files.
    let folder = tempfile::tempdir().unwrap();
    let machine = tree(folder.path(), "processor\t: 0\nvendor_id");
    assert_eq!(sst(&machine, "info").code, 4);
}

#[test]
fn data_has_numbers_as_numbers_and_one_spelling_of_names() {
    for (line, key) in [
        ("perf-profile get-config-levels", "highest_level"),
        ("perf-profile get-config-current-level", "current_level"),
        ("perf-profile get-config-version", "version"),
        ("core-power get-config -c 1", "min_mhz"),
        ("core-power get-assoc", "clos"),
        ("recommend --cpus 1", "guaranteed_mhz"),
    ] {
        for machine in MACHINES {
            let ran = sst(machine, &format!("{line} --json"));
            assert_eq!(ran.code, 0, "{}", ran.err);
            let data: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
            assert!(data[0][key].is_u64(), "{machine}: sst {line}: {}", data[0]);
            let names = data[0].as_object().unwrap().keys().all(|name| !name.contains('-'));
            assert!(names, "{machine}: sst {line}: {}", data[0]);
        }
    }
}
