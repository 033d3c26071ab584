//! Machines made from this repository's recordings: each boots and shows the recorded values.

use flyball_sim::{Boot, Kernel, SimMachine, describe};

use flyball_testing::Host as _;

use crate::isst::machines::archives::Recorded;

#[test]
fn recorded_machines_become_simulated_ones() {
    let machines = flyball_testing::machines();
    assert!(machines.len() >= 12);
    for path in machines {
        let name = path.file_name().unwrap().to_str().unwrap().trim_end_matches(".tar.zst");
        let archive = flyball_testing::machine(name);
        let spec = describe(&Recorded { name, machine: &archive }).unwrap_or_else(|error| panic!("{error}"));
        let mut machine = SimMachine::boot(spec, Kernel::V6_12, Boot::default(), 0).unwrap();
        let recorded = |path: &str| archive.read(path).ok().map(|text| text.trim().to_owned());
        let mut shown = |path: &str| {
            machine.read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        let mut paths = vec!["/sys/devices/system/cpu/present"];
        // Intel's levels come from HWP's register, which may differ from ACPI's table.
        if recorded("/proc/cpuinfo").unwrap().contains("AuthenticAMD") {
            paths.push("/sys/devices/system/cpu/cpu0/acpi_cppc/nominal_perf");
        }
        for path in paths {
            if let Some(text) = recorded(path) {
                assert_eq!(shown(path), Some(text), "{name}: {path}");
            }
        }
        let cpuinfo = shown("/proc/cpuinfo").unwrap();
        let model = |text: &str| text.lines().find(|line| line.starts_with("model name")).map(str::to_owned);
        assert_eq!(model(&cpuinfo), model(&recorded("/proc/cpuinfo").unwrap()), "{name}");
        for limit in ["cpuinfo_min_freq", "cpuinfo_max_freq"] {
            let path = format!("/sys/devices/system/cpu/cpu0/cpufreq/{limit}");
            let (Some(theirs), Some(ours)) = (recorded(&path), shown(&path)) else { continue };
            let (theirs, ours): (f64, f64) = (theirs.parse().unwrap(), ours.parse().unwrap());
            assert!(
                (ours / theirs - 1.0).abs() < 0.05,
                "{name}: {limit} {theirs} recorded, {ours} simulated"
            );
        }
    }
}
