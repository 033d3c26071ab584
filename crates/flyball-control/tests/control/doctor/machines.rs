//! Small artificial machines, each well set up, and a host that holds one in memory.

use std::{collections::BTreeMap, time::Duration};

use flyball_host::{Errno, Host, HostError, Kind, Op};

pub(crate) type Files = BTreeMap<String, Option<String>>;

pub(crate) const CPU: &str = "sys/devices/system/cpu";

pub(crate) const CLOCK: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
pub(crate) const PROFILE: &str = "sys/firmware/acpi/platform_profile";
pub(crate) const PROFILE_DEVICES: &str = "sys/class/platform-profile";

pub(crate) fn put(files: &mut Files, path: impl Into<String>, text: impl Into<String>) {
    files.insert(path.into(), Some(text.into()));
}

pub(crate) fn common(files: &mut Files, flags: &str, vendor: &str, family: u32, model: u32) {
    let mut cpuinfo = String::new();
    for cpu in 0..4 {
        cpuinfo += &format!(
            "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: Test\nstepping\t: 4\nflags\t\t: {flags}\n\n"
        );
        put(files, format!("{CPU}/cpu{cpu}/topology/physical_package_id"), "0");
        put(files, format!("{CPU}/cpu{cpu}/topology/core_id"), cpu.to_string());
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state0/name"), "POLL");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state0/disable"), "0");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state0/latency"), "0");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state1/name"), "C1");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state1/disable"), "0");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state1/latency"), "2");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state2/name"), "C6");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state2/disable"), "0");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state2/latency"), "133");
        put(files, format!("{CPU}/cpu{cpu}/cpuidle/state2/usage"), "70000");
        put(files, format!("{CPU}/cpu{cpu}/power/pm_qos_resume_latency_us"), "0");
        let policy = format!("{CPU}/cpufreq/policy{cpu}");
        put(files, format!("{policy}/related_cpus"), cpu.to_string());
        put(files, format!("{policy}/affected_cpus"), cpu.to_string());
        put(files, format!("{policy}/cpuinfo_min_freq"), "1000000");
        put(files, format!("{policy}/cpuinfo_max_freq"), "3700000");
        put(files, format!("{policy}/scaling_min_freq"), "1000000");
        put(files, format!("{policy}/scaling_max_freq"), "3700000");
        put(files, format!("{policy}/scaling_governor"), "powersave");
        put(files, format!("{policy}/energy_performance_preference"), "balance_performance");
    }
    put(files, "proc/cpuinfo", cpuinfo);
    put(files, "proc/cmdline", "root=/dev/sda1 ro");
    put(files, "proc/version", "Linux version 6.12.1 (someone@somewhere)");
    put(files, "proc/1/comm", "systemd");
    put(files, "proc/uptime", "1000.00 3500.00");
    for name in ["online", "present", "possible"] {
        put(files, format!("{CPU}/{name}"), "0-3");
    }
    put(files, format!("{CPU}/smt/control"), "notsupported");
    put(files, format!("{CPU}/cpuidle/current_driver"), "some_idle");
    put(files, format!("{CPU}/cpuidle/current_governor"), "menu");
    put(files, CLOCK, "tsc");
    put(files, "sys/class/hwmon/hwmon0/temp1_input", "45000");
    put(files, "sys/class/hwmon/hwmon0/temp1_crit", "100000");
}

/// Builds a first-generation Xeon Scalable, well set up.
pub(crate) fn intel() -> Files {
    let mut files = Files::new();
    common(&mut files, "ida epb pts hwp hwp_epp aperfmperf", "GenuineIntel", 6, 0x55);
    for cpu in 0..4 {
        put(&mut files, format!("{CPU}/cpufreq/policy{cpu}/scaling_driver"), "intel_pstate");
        put(&mut files, format!("{CPU}/cpufreq/policy{cpu}/base_frequency"), "2000000");
        put(&mut files, format!("{CPU}/cpu{cpu}/power/energy_perf_bias"), "6");
        put(&mut files, format!("{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count"), "0");
        put(&mut files, format!("{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count"), "0");
    }
    put(&mut files, format!("{CPU}/intel_pstate/status"), "active");
    put(&mut files, format!("{CPU}/intel_pstate/no_turbo"), "0");
    put(&mut files, format!("{CPU}/intel_pstate/min_perf_pct"), "27");
    put(&mut files, format!("{CPU}/intel_pstate/max_perf_pct"), "100");
    uncore(&mut files, "package_00_die_00");
    put(&mut files, "sys/class/hwmon/hwmon0/name", "coretemp");
    let mut msrs = String::new();
    for (register, value) in [
        (0xce, "200001400"),
        (0x648, "14"),
        (0xe2, "18402"),
        (0x19c, "882a0000"),
        (0x1a0, "850089"),
        (0x1aa, "401cc0"),
        (0x1b1, "882a0000"),
        (0x1fc, "2904005b"),
        (0x606, "a0e03"),
        (0x610, "8000000000008400"),
        (0x614, "400"),
        (0x64b, "0"),
        (0x64f, "0"),
        (0x690, "0"),
        (0x770, "1"),
        (0x771, "5081425"),
        (0x774, "8000250a"),
    ] {
        msrs += &format!("{register:x}:0|{value} 1|{value} 2|{value} 3|{value}\n");
    }
    put(&mut files, "msr.txt", msrs);
    files
}

/// Builds an EPYC with amd-pstate in active mode, well set up.
pub(crate) fn amd() -> Files {
    let mut files = Files::new();
    common(&mut files, "cpb cppc hw_pstate aperfmperf", "AuthenticAMD", 0x1a, 2);
    for cpu in 0..4 {
        let policy = format!("{CPU}/cpufreq/policy{cpu}");
        put(&mut files, format!("{policy}/scaling_driver"), "amd-pstate-epp");
        put(&mut files, format!("{policy}/boost"), "1");
        put(&mut files, format!("{policy}/amd_pstate_lowest_nonlinear_freq"), "1500000");
        put(&mut files, format!("{policy}/amd_pstate_max_freq"), "3700000");
        for (name, value) in [
            ("highest_perf", "200"),
            ("nominal_perf", "140"),
            ("lowest_nonlinear_perf", "80"),
            ("lowest_perf", "40"),
            ("nominal_freq", "2600"),
        ] {
            put(&mut files, format!("{CPU}/cpu{cpu}/acpi_cppc/{name}"), value);
        }
    }
    put(&mut files, format!("{CPU}/amd_pstate/status"), "active");
    put(&mut files, format!("{CPU}/amd_pstate/prefcore"), "disabled");
    put(&mut files, format!("{CPU}/amd_pstate/dynamic_epp"), "disabled");
    put(&mut files, format!("{CPU}/cpufreq/boost"), "1");
    put(&mut files, "sys/class/hwmon/hwmon0/name", "k10temp");
    let all = |register: u32, value: &str| format!("{register:x}:0|{value} 1|{value} 2|{value} 3|{value}\n");
    put(
        &mut files,
        "msr.txt",
        all(0xc001_02b0, "c88c5028")
            + &all(0xc001_02b1, "1")
            + &all(0xc001_02b3, "800028c8")
            + &all(0xc001_0061, "20"),
    );
    files
}

/// Builds a server of two sockets with the management port's files, both loaded.
pub(crate) fn epyc() -> Files {
    let mut files = amd();
    flags(&mut files, "model name\t: Test", "model name\t: AMD EPYC 9755 128-Core Processor");
    for socket in 0..2 {
        for cpu in [2 * socket, 2 * socket + 1] {
            put(&mut files, format!("{CPU}/cpu{cpu}/topology/physical_package_id"), socket.to_string());
        }
        let hsmp = format!("sys/devices/platform/AMDI0097:0{socket}");
        put(&mut files, format!("{hsmp}/pwr_current_active_freq_limit_source"), "OPN Max");
        put(&mut files, format!("{hsmp}/pwr_current_active_freq_limit"), "4100");
        put(&mut files, format!("{hsmp}/prochot_status"), "0");
        let sensor = format!("sys/class/hwmon/hwmon{}", socket + 1);
        put(&mut files, format!("{sensor}/name"), "amd_hsmp_hwmon");
        put(&mut files, format!("{sensor}/power1_input"), "410000000");
        put(&mut files, format!("{sensor}/power1_cap"), "500000000");
        put(&mut files, format!("{sensor}/power1_cap_max"), "500000000");
    }
    files
}

/// Builds an Intel desktop.
pub(crate) fn client() -> Files {
    let mut files = intel();
    flags(&mut files, "model\t\t: 85", "model\t\t: 158");
    put(&mut files, PROFILE, "balanced");
    for (device, name) in [(0, "thinkpad-acpi-profile"), (1, "SoC Power Slider")] {
        put(&mut files, format!("{PROFILE_DEVICES}/platform-profile-{device}/name"), name);
        put(&mut files, format!("{PROFILE_DEVICES}/platform-profile-{device}/profile"), "balanced");
    }
    put(&mut files, "sys/kernel/sched_ext/root/ops", "lavd");
    put(&mut files, "sys/kernel/sched_ext/switch_all", "1");
    files
}

/// Builds a Xeon whose power domains report their limits through TPMI.
pub(crate) fn tpmi() -> Files {
    let mut files = intel();
    flags(&mut files, "model\t\t: 85", "model\t\t: 173");
    for domain in 0..2 {
        put(
            &mut files,
            format!("sys/kernel/debug/tpmi-0000:00:03.1/plr/domain{domain}/status"),
            "cpus none\ncpu0 none\ncpu1 none",
        );
    }
    files
}

/// Adds an uncore domain with its full range.
fn uncore(files: &mut Files, domain: &str) {
    for (name, value) in
        [("min", "1200000"), ("initial_min", "1200000"), ("max", "2400000"), ("initial_max", "2400000")]
    {
        put(files, format!("{CPU}/intel_uncore_frequency/{domain}/{name}_freq_khz"), value);
    }
}

/// Builds a Xeon whose firmware and command line are set up for low latency, without
/// contradictions.
pub(crate) fn for_latency() -> Files {
    let mut files = tpmi();
    uncore(&mut files, "uncore00");
    let domain = format!("{CPU}/intel_uncore_frequency/uncore00");
    put(&mut files, format!("{domain}/elc_high_threshold_percent"), "0");
    put(&mut files, format!("{domain}/elc_high_threshold_enable"), "1");
    (0..4).for_each(|cpu| put(&mut files, format!("{CPU}/cpu{cpu}/power/energy_perf_bias"), "0"));
    each_policy(&mut files, "scaling_available_governors", "performance powersave");
    let words = "isolcpus=2,3 irqaffinity=0,1 cpufreq.default_governor=Performance";
    put(&mut files, "proc/cmdline", words);
    files
}

/// Builds a Haswell without hardware P-states, whose driver decides in the scheduler's callback.
pub(crate) fn haswell() -> Files {
    let mut files = intel();
    flags(&mut files, "model\t\t: 85", "model\t\t: 63");
    flags(&mut files, " hwp hwp_epp", "");
    for cpu in 0..4 {
        files.remove(&format!("{CPU}/cpufreq/policy{cpu}/energy_performance_preference"));
    }
    let text = files["msr.txt"].clone().unwrap();
    let kept: String =
        text.lines().filter(|line| !line.starts_with("770:")).map(|l| format!("{l}\n")).collect();
    put(&mut files, "msr.txt", kept);
    files
}

/// Builds a first-generation Xeon Scalable as StorPool's page recommends.
pub(crate) fn storpool() -> Files {
    let mut files = intel();
    (0..4).for_each(|cpu| put(&mut files, format!("{CPU}/cpu{cpu}/power/energy_perf_bias"), "15"));
    files
}

/// Builds an EPYC with acpi-cpufreq whose firmware limits nothing.
pub(crate) fn acpi() -> Files {
    let mut files = amd();
    files.remove(&format!("{CPU}/amd_pstate/status"));
    for cpu in 0..4 {
        let policy = format!("{CPU}/cpufreq/policy{cpu}");
        put(&mut files, format!("{policy}/scaling_driver"), "acpi-cpufreq");
        put(&mut files, format!("{policy}/bios_limit"), "2600000");
        put(&mut files, format!("{policy}/scaling_available_frequencies"), "2600000 1500000");
        files.remove(&format!("{policy}/energy_performance_preference"));
        put(&mut files, format!("{policy}/scaling_governor"), "schedutil");
    }
    files
}

pub(crate) fn each_policy(files: &mut Files, name: &str, value: &str) {
    for cpu in 0..4 {
        put(files, format!("{CPU}/cpufreq/policy{cpu}/{name}"), value);
    }
}

/// Replaces a register's line.
pub(crate) fn msr(files: &mut Files, register: u32, value: &str) {
    let text = files["msr.txt"].clone().unwrap();
    let prefix = format!("{register:x}:");
    let kept: String =
        text.lines().filter(|line| !line.starts_with(&prefix)).map(|line| format!("{line}\n")).collect();
    put(files, "msr.txt", format!("{kept}{prefix}0|{value} 1|{value} 2|{value} 3|{value}"));
}

/// Replaces a register's line by one value for the first two CPUs and another for the others.
pub(crate) fn msr_by_cpu(files: &mut Files, register: u32, first: &str, others: &str) {
    msr(files, register, others);
    let text = files["msr.txt"].clone().unwrap();
    let of = |value: &str| format!("{register:x}:0|{value} 1|{value}");
    put(files, "msr.txt", text.replace(&of(others), &of(first)));
}

pub(crate) fn no_policies(files: &mut Files) {
    files.retain(|path, _| !path.contains("/cpufreq/"));
}

pub(crate) fn flags(files: &mut Files, from: &str, to: &str) {
    let text = files["proc/cpuinfo"].clone().unwrap().replace(from, to);
    put(files, "proc/cpuinfo", text);
}

/// A machine with these files. Missing files count as not recorded.
pub(crate) struct FileHost<'f>(pub &'f Files);

impl FileHost<'_> {
    fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path.trim_start_matches('/'))?.as_deref()
    }

    fn below<'s>(&'s self, path: &str) -> impl Iterator<Item = &'s str> {
        let folder = format!("{}/", path.trim_matches('/'));
        let start = folder.clone();
        self.0.range(start..).map_while(move |(path, _)| path.strip_prefix(&folder))
    }
}

impl Host for FileHost<'_> {
    fn kind(&self) -> Kind {
        Kind::Recorded
    }

    fn name(&self) -> String {
        "shelf".to_owned()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let text = self.text(path).ok_or_else(|| HostError::new(Op::Read, path, Errno::NOENT))?;
        buffer.clear();
        buffer.extend(format!("{text}\n").into_bytes());
        Ok(())
    }

    fn write(&self, path: &str, _bytes: &[u8]) -> Result<(), HostError> {
        Err(HostError::new(Op::Write, path, Errno::ROFS))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let mut names: Vec<String> =
            self.below(path).filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.dedup();
        if names.is_empty() { Err(HostError::new(Op::List, path, Errno::NOENT)) } else { Ok(names) }
    }

    fn exists(&self, path: &str) -> bool {
        self.text(path).is_some() || self.below(path).next().is_some()
    }

    fn writable(&self, _path: &str) -> bool {
        false
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        Err(HostError::new(Op::Read, path, Errno::NOENT))
    }

    /// Parses lines as in msr.txt: `770:0|1 1|1`, in hexadecimal.
    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        let of_line = |line: &str| {
            let (number, values) = line.split_once(':')?;
            (u32::from_str_radix(number, 16) == Ok(register)).then_some(())?;
            let value = values.split_whitespace().find_map(|one| one.strip_prefix(&format!("{cpu}|")))?;
            u64::from_str_radix(value, 16).ok()
        };
        let found = self.text("msr.txt").and_then(|text| text.lines().find_map(of_line));
        found.ok_or_else(|| HostError::new(Op::ReadMsr, format!("{register:#x}"), Errno::NODEV))
    }

    fn write_msr(&self, _cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("{register:#x}"), Errno::ROFS))
    }

    fn isst(&self, _number: u32, _argument: &mut [u8]) -> Result<i32, HostError> {
        Err(HostError::new(Op::Isst, "/dev/isst_interface", Errno::NOENT))
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}
}
