//! Machines made of the recorded ones of this repository: each boots, and shows what was recorded.

use flyball_sim::{Boot, Kernel, Recording, SimMachine, describe, silicon::MachineSpec};
use flyball_testing::{Fact, Facts};

/// A recorded machine of the repository. Its facts are used as they are: as files they are tens of thousands.
struct FromFacts<'a> {
    name: &'a str,
    facts: &'a Facts,
}

impl Recording for FromFacts<'_> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn file(&self, path: &str) -> Option<Vec<u8>> {
        file(self.facts, path)
    }

    fn folder(&self, path: &str) -> Vec<String> {
        let inside = self.facts.facts.keys().filter_map(|fact| fact.strip_prefix(path)?.strip_prefix('/'));
        let mut names: Vec<String> =
            inside.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.dedup();
        names
    }

    fn register(&self, cpu: u32, register: u32) -> Option<u64> {
        self.facts.registers.get(&(register, cpu)).copied()
    }
}

/// A file, also behind links to folders and files.
fn file(facts: &Facts, path: &str) -> Option<Vec<u8>> {
    let parts: Vec<&str> = path.split('/').collect();
    for end in 1..=parts.len() {
        match facts.facts.get(&parts[..end].join("/")) {
            Some(Fact::Link(target)) => {
                let mut walked = parts[..end - 1].to_vec();
                for part in target.split('/') {
                    match part {
                        ".." => drop(walked.pop()),
                        part => walked.push(part),
                    }
                }
                walked.extend(&parts[end..]);
                return file(facts, &walked.join("/"));
            }
            Some(Fact::File { bytes, .. }) if end == parts.len() => return Some(bytes.clone()),
            _ => {}
        }
    }
    None
}

/// A recorded machine of the repository, described.
pub fn described(name: &str) -> MachineSpec {
    let facts = flyball_testing::facts(name);
    describe(&FromFacts { name, facts: &facts }).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn recorded_machines_become_simulated_ones() {
    let machines = flyball_testing::machines();
    assert!(machines.len() >= 12);
    for path in machines {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let facts = flyball_testing::facts(name);
        let spec = describe(&FromFacts { name, facts: &facts }).unwrap_or_else(|error| panic!("{error}"));
        let mut machine = SimMachine::boot(spec, Kernel::V6_12, Boot::default(), 0).unwrap();
        let recorded = |path: &str| {
            let bytes = file(&facts, path.trim_start_matches('/'))?;
            Some(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        let mut shown = |path: &str| {
            machine.read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        let mut paths = vec!["/sys/devices/system/cpu/present"];
        // Intel's levels are taken from HWP's register, which need not agree with ACPI's table.
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
