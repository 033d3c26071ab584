//! The machine's initial files.

use std::collections::BTreeMap;

use flyball_host::topology::CPUS;

/// CPUs are numbered like on Linux: package by package the first threads of all cores, then the
/// second threads.
pub(crate) fn initial(packages: u8, cores: u32, threads: u32) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let total = cores * u32::from(packages) * threads;
    let stride = cores * u32::from(packages);
    files.insert(
        "/proc/cpuinfo".to_owned(),
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Played\nstepping\t: \
         8\nflags\t\t: fpu hwp ida\n\n"
            .to_owned(),
    );
    files.insert(format!("{CPUS}/online"), format!("0-{}", total - 1));
    files.insert(format!("{CPUS}/present"), format!("0-{}", total - 1));
    files.insert(format!("{CPUS}/possible"), format!("0-{}", total - 1));
    files.insert(format!("{CPUS}/intel_pstate/no_turbo"), "0".to_owned());
    files.insert("/sys/fs/cgroup/cgroup.controllers".to_owned(), "cpuset cpu io memory".to_owned());
    files.insert("/sys/fs/cgroup/cgroup.subtree_control".to_owned(), String::new());
    for package in 0..packages {
        let folder = format!("{CPUS}/intel_uncore_frequency/package_{package:02}_die_00");
        for (name, value) in [("min_freq_khz", "800000"), ("max_freq_khz", "2500000")] {
            files.insert(format!("{folder}/{name}"), value.to_owned());
        }
    }
    // A sysfs mask has 32-bit words. The tests read the list instead, so the bits of the mask stay
    // 0.
    let groups = total.div_ceil(32) as usize;
    for cpu in 0..total {
        let folder = format!("{CPUS}/cpu{cpu}");
        let first = cpu % stride;
        let siblings = (0..threads).map(|thread| (first + thread * stride).to_string()).collect::<Vec<_>>();
        for (name, value) in [
            ("topology/physical_package_id", (first / cores).to_string()),
            ("topology/die_id", "0".to_owned()),
            ("topology/core_id", (first % cores).to_string()),
            ("topology/thread_siblings", vec!["00000000"; groups].join(",")),
            ("topology/thread_siblings_list", siblings.join(",")),
            ("cpufreq/scaling_min_freq", "800000".to_owned()),
            ("cpufreq/scaling_max_freq", "3200000".to_owned()),
            ("cpufreq/cpuinfo_min_freq", "800000".to_owned()),
            ("cpufreq/cpuinfo_max_freq", "3200000".to_owned()),
            ("cpufreq/base_frequency", "2600000".to_owned()),
        ] {
            files.insert(format!("{folder}/{name}"), value);
        }
        // CPU 0 has no such file on x86.
        if cpu != 0 {
            files.insert(format!("{folder}/online"), "1".to_owned());
        }
    }
    files
}
