//! Records a machine into an archive: everything that flyball reads, and nothing that identifies
//! the owner.

mod redact;

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

pub use self::redact::parameters;
use self::redact::{Redactor, without_addresses};
use crate::{Errno, Host, HostError, archive::Writer, msr, online_cpus};

/// Counts of the recorded items.
#[derive(Debug, Clone, Default, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct Summary {
    /// Files with their content.
    pub files: usize,
    /// Files that could not be read, whose error is recorded.
    pub errors: usize,
    pub registers: usize,
    /// Lines of the kernel's log.
    pub log_lines: usize,
    /// Files that only root could have read.
    pub denied: usize,
}

/// Folders that are recorded with all their contents.
const TREES: &[&str] = &[
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/devices/system/clocksource",
    "/sys/bus/event_source/devices/power",
    "/sys/bus/event_source/devices/msr",
    "/sys/module/intel_pstate/parameters",
    "/sys/module/amd_pstate/parameters",
    "/sys/module/acpi_cpufreq/parameters",
    "/sys/module/cpufreq/parameters",
    "/sys/module/intel_idle/parameters",
    "/sys/module/processor/parameters",
    "/sys/module/pcie_aspm/parameters",
    "/proc/sys/kernel",
];

const FILES: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/cmdline",
    "/proc/version",
    "/proc/modules",
    "/proc/stat",
    "/proc/uptime",
    "/sys/devices/cpu_core/cpus",
    "/sys/devices/cpu_atom/cpus",
    "/sys/devices/cpu_lowpower/cpus",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/board_vendor",
    "/sys/class/dmi/id/board_name",
    "/sys/class/dmi/id/bios_vendor",
    "/sys/class/dmi/id/bios_version",
    "/sys/class/dmi/id/bios_date",
    "/sys/firmware/acpi/pm_profile",
    "/sys/firmware/acpi/platform_profile",
    "/sys/firmware/acpi/platform_profile_choices",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/security/lockdown",
    "/sys/devices/platform/AMDI0101:00/amd_x3d_mode",
    "/sys/kernel/sched_ext/state",
    "/sys/kernel/sched_ext/switch_all",
    "/sys/kernel/sched_ext/enable_seq",
    "/sys/kernel/sched_ext/root/ops",
];

/// Device folders, whose entries are links. Of each device, its own files with these prefixes are
/// recorded.
const CLASSES: &[(&str, &[&str])] = &[
    ("/sys/class/powercap", &["name", "enabled", "energy_uj", "max_energy_range_uj", "constraint_"]),
    ("/sys/class/platform-profile", &["name", "choices", "profile"]),
    ("/sys/devices/platform", &["pwr_current_active_freq_limit", "prochot_status"]),
    ("/sys/class/hwmon", &["name", "temp", "power", "energy"]),
    ("/sys/class/thermal", &["type", "temp", "policy", "mode", "trip_point_", "cur_state", "max_state"]),
];

/// Names that are never recorded: serial numbers of the processor, crash addresses, files that act
/// when read, and everything that identifies the owner.
const NEVER: &[&str] = &[
    "ppin",
    "crash_notes",
    "crash_notes_size",
    "uevent",
    "hostname",
    "domainname",
    "boot_id",
    "uuid",
    "core_pattern",
    "modprobe",
    "hotplug",
    "random",
    "keys",
    "usermodehelper",
    "ns_last_pid",
    "cad_pid",
    "firmware_node",
    "subsystem",
    "driver",
    "physical_node",
];

/// Registers that flyball and its checks read. Reading is safe: a register that a processor lacks
/// returns EIO.
const REGISTERS: &[u32] = &[
    msr::MSR_PM_LOGICAL_ID,
    msr::MSR_FSB_FREQ,
    msr::MSR_PLATFORM_INFO,
    msr::MSR_PKG_CST_CONFIG_CONTROL,
    msr::MSR_IA32_PERF_STATUS,
    msr::MSR_IA32_PERF_CTL,
    msr::MSR_IA32_THERM_STATUS,
    msr::MSR_IA32_MISC_ENABLE,
    msr::MSR_IA32_TEMPERATURE_TARGET,
    msr::MSR_MISC_FEATURE_CONTROL,
    msr::MSR_MISC_PWR_MGMT,
    msr::MSR_TURBO_RATIO_LIMIT,
    msr::MSR_TURBO_RATIO_LIMIT1,
    msr::MSR_TURBO_RATIO_LIMIT2,
    msr::MSR_IA32_ENERGY_PERF_BIAS,
    msr::MSR_IA32_PACKAGE_THERM_STATUS,
    msr::MSR_IA32_POWER_CTL,
    msr::MSR_RAPL_POWER_UNIT,
    msr::MSR_PKG_POWER_LIMIT,
    msr::MSR_PKG_POWER_INFO,
    msr::MSR_DRAM_POWER_LIMIT,
    msr::MSR_DRAM_POWER_INFO,
    msr::MSR_UNCORE_RATIO_LIMIT,
    msr::MSR_UNCORE_PERF_STATUS,
    msr::MSR_PP0_POWER_LIMIT,
    msr::MSR_PP1_POWER_LIMIT,
    msr::MSR_CONFIG_TDP_NOMINAL,
    msr::MSR_CONFIG_TDP_LEVEL_1,
    msr::MSR_CONFIG_TDP_LEVEL_2,
    msr::MSR_CONFIG_TDP_CONTROL,
    msr::MSR_TURBO_ACTIVATION_RATIO,
    msr::MSR_CORE_PERF_LIMIT_REASONS_SKYLAKE,
    msr::MSR_CORE_PERF_LIMIT_REASONS,
    msr::MSR_GFX_PERF_LIMIT_REASONS,
    msr::MSR_RING_PERF_LIMIT_REASONS,
    msr::MSR_PM_ENABLE,
    msr::MSR_HWP_CAPABILITIES,
    msr::MSR_HWP_REQUEST_PKG,
    msr::MSR_HWP_INTERRUPT,
    msr::MSR_HWP_REQUEST,
    msr::MSR_HWP_STATUS,
    msr::MSR_K7_HWCR,
    msr::MSR_PSTATE_CUR_LIMIT,
    msr::MSR_AMD_PERF_CTL,
    msr::MSR_AMD_PERF_STATUS,
    msr::MSR_AMD_PSTATE_DEF_BASE,
    msr::MSR_AMD_PSTATE_DEF_BASE + 1,
    msr::MSR_AMD_PSTATE_DEF_BASE + 2,
    msr::MSR_AMD_RAPL_POWER_UNIT,
    msr::MSR_AMD_CPPC_CAP1,
    msr::MSR_AMD_CPPC_ENABLE,
    msr::MSR_AMD_CPPC_CAP2,
    msr::MSR_AMD_CPPC_REQ,
    msr::MSR_AMD_CPPC_STATUS,
    msr::MSR_AMD_CPPC_REQ2,
];

// The kernel keeps 15 bytes of a name (TASK_COMM_LEN, include/linux/sched.h), so some end early.
/// Programs that change CPU settings. Of those that run, only the name and the owner are recorded.
const DAEMONS: &[&str] = &[
    "tuned",
    "power-profiles-",
    "tlp",
    "auto-cpufreq",
    "thermald",
    "irqbalance",
    "system76-power",
    "cpupower-gui",
    "laptop_mode",
    "gamemoded",
    "cpufreqd",
    "cpufreqctl",
    "intel_lpmd",
    "lenovo_fix",
    "throttled",
    "powertop",
    "asusd",
    "steamos-manager",
    "hhd",
    "scx_",
];

/// Words that select a line of the kernel's log: it is recorded if it contains one of them.
const LOG_WORDS: &[&str] = &[
    "pstate",
    "cpufreq",
    "cppc",
    "intel_idle",
    "cpuidle",
    "energy_perf_bias",
    "hwp",
    "isst",
    "speed select",
    "rapl",
    "powercap",
    "nohz",
    "no_hz",
    "rcu_nocb",
    "offload rcu",
    "throttled",
    "temperature",
    "mwait",
    "turbo",
    "tsc:",
    "smpboot: cpu",
    "hypervisor",
    "lockdown",
    "tpmi",
    "uncore",
    "amd_energy",
    "k10temp",
    "coretemp",
    "command line",
];

/// Returns whether a recording contains the file at `path`, if the machine has it.
pub fn covers(path: &str) -> bool {
    let in_tree = |tree: &&str| path.strip_prefix(*tree).is_some_and(|rest| rest.starts_with('/'));
    let in_class = |(class, beginnings): &(&str, &[&str])| {
        let device = path.strip_prefix(class).and_then(|rest| rest.strip_prefix('/'));
        let name = device.and_then(|rest| rest.split_once('/')).map(|(_, name)| name);
        name.is_some_and(|name| {
            !name.contains('/') && beginnings.iter().any(|beginning| name.starts_with(beginning))
        })
    };
    let never = path.rsplit('/').next().is_some_and(|name| NEVER.contains(&name));
    !never && (TREES.iter().any(in_tree) || FILES.contains(&path) || CLASSES.iter().any(in_class))
}

/// Returns whether a recording contains the register.
pub fn covers_register(register: u32) -> bool {
    REGISTERS.contains(&register)
}

/// Returns whether a recording shows if a process of this name runs.
pub fn covers_process(name: &str) -> bool {
    DAEMONS.iter().any(|daemon| name.starts_with(daemon))
}

struct Recorder<'a, W: Write> {
    host: &'a dyn Host,
    writer: Writer<W>,
    redactor: Redactor,
    errors: String,
    summary: Summary,
    seen: BTreeSet<String>,
}

/// Records the machine behind `host` into `out`. Host names, serial numbers, UUIDs and hardware
/// addresses are not recorded.
///
/// # Errors
/// `out` cannot be written. Files that the machine refuses to show are only counted.
pub fn record<W: Write>(host: &dyn Host, out: W) -> io::Result<(Summary, W)> {
    let kernel = host.read("/proc/sys/kernel/osrelease").ok().or_else(|| {
        host.read("/proc/version").ok().and_then(|text| text.split_whitespace().nth(2).map(str::to_owned))
    });
    let mut recorder = Recorder {
        host,
        writer: Writer::new(out, &kernel.unwrap_or_default())?,
        redactor: Redactor::new(host),
        errors: String::new(),
        summary: Summary::default(),
        seen: BTreeSet::new(),
    };
    for tree in TREES {
        recorder.tree(tree, 0)?;
    }
    for file in FILES {
        recorder.file(file)?;
    }
    for (class, beginnings) in CLASSES {
        recorder.class(class, beginnings)?;
    }
    // Speed Select's registers, if debugfs is mounted and accessible.
    for name in host.list("/sys/kernel/debug").unwrap_or_default() {
        if name.starts_with("tpmi-") {
            recorder.tree(&format!("/sys/kernel/debug/{name}"), 0)?;
        }
    }
    if crate::has_core_kinds(host) == Some(true) {
        recorder.tree("/sys/kernel/debug/x86/topo/cpus", 0)?;
    }
    recorder.daemons()?;
    recorder.registers()?;
    recorder.log()?;
    let Recorder { mut writer, errors, summary, .. } = recorder;
    // Write this last, when all errors are known.
    if !errors.is_empty() {
        writer.file("errors.txt", errors.as_bytes(), false)?;
    }
    Ok((summary, writer.finish()?))
}

impl<W: Write> Recorder<'_, W> {
    /// Records a folder and its contents. Links within the recorded tree stay links; others are
    /// skipped.
    fn tree(&mut self, folder: &str, depth: usize) -> io::Result<()> {
        let Ok(names) = self.host.list(folder) else { return Ok(()) };
        self.writer.folder(folder.trim_start_matches('/'))?;
        for name in names {
            if NEVER.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{folder}/{name}");
            // Check for a link before reading, which would follow it.
            if let Ok(target) = self.host.link(&path) {
                // cpuN/cpufreq, nodeN/cpuM: short and relative. A device's link into another tree
                // would dangle.
                if inside(folder, &target) {
                    self.writer.link(path.trim_start_matches('/'), &target)?;
                }
                continue;
            }
            // No recorded folder is deeper. A file system that is mounted into itself would never
            // end.
            if !self.file(&path)? && depth < 12 {
                self.tree(&path, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Records one file; `false` if it is a folder.
    fn file(&mut self, path: &str) -> io::Result<bool> {
        let mut bytes = Vec::new();
        match self.host.read_into(path, &mut bytes) {
            // No attribute is that large, and the archive's reader refuses files of twice that
            // size.
            Ok(()) if bytes.len() > 8 << 20 => {}
            // A file of a tree may also be in a list, so record it only once.
            Ok(()) if self.seen.insert(path.to_owned()) => {
                let bytes = match (path, std::str::from_utf8(&bytes)) {
                    ("/proc/cmdline", Ok(text)) => redact::parameters(text).into_bytes(),
                    ("/proc/modules", Ok(text)) => without_addresses(text).into_bytes(),
                    (_, Ok(text)) if wants_cleaning(path) => self.redactor.clean(text).into_bytes(),
                    _ => bytes,
                };
                self.writer.file(path.trim_start_matches('/'), &bytes, self.host.writable(path))?;
                self.summary.files += 1;
            }
            Ok(()) => {}
            // read(2) reports that it is a folder, which saves a call per entry.
            Err(error) if error.errno == Errno::ISDIR => return Ok(false),
            Err(error) => self.failed(path, &error),
        }
        Ok(true)
    }

    fn failed(&mut self, path: &str, error: &HostError) {
        if matches!(error.errno, Errno::PERM | Errno::ACCES) {
            self.summary.denied += 1;
        }
        // A write-only file fails in various ways when read. Only its existence matters.
        if !error.is_absent() {
            self.errors.push_str(&format!("{}|{path}\n", error.errno.0));
            self.summary.errors += 1;
        }
    }

    fn class(&mut self, class: &str, beginnings: &[&str]) -> io::Result<()> {
        for device in self.host.list(class).unwrap_or_default() {
            let folder = format!("{class}/{device}");
            let Ok(names) = self.host.list(&folder) else { continue };
            for name in names {
                if beginnings.iter().any(|beginning| name.starts_with(beginning)) {
                    self.file(&format!("{folder}/{name}"))?;
                }
            }
        }
        Ok(())
    }

    /// Records the names of running programs that change CPU settings.
    fn daemons(&mut self) -> io::Result<()> {
        for process in self.host.list("/proc").unwrap_or_default() {
            if !process.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            // Record only the name: a command line may contain a password.
            let path = format!("/proc/{process}/comm");
            let name = self.host.read(&path).unwrap_or_default();
            if DAEMONS.iter().any(|daemon| name.starts_with(daemon)) {
                self.writer.file(path.trim_start_matches('/'), format!("{name}\n").as_bytes(), false)?;
                self.summary.files += 1;
                // Record the owner: a user's process may have the name of a daemon.
                let path = format!("/proc/{process}/status");
                let status = self.host.read(&path).unwrap_or_default();
                if let Some(users) = status.lines().find(|line| line.starts_with("Uid:")) {
                    self.writer.file(path.trim_start_matches('/'), format!("{users}\n").as_bytes(), false)?;
                    self.summary.files += 1;
                }
            }
        }
        Ok(())
    }

    fn registers(&mut self) -> io::Result<()> {
        let online = online_cpus(self.host).unwrap_or_default();
        let mut text = String::new();
        // Go register by register, so that a missing register adds no line.
        for &register in REGISTERS {
            let mut line = String::new();
            for cpu in online.iter() {
                match self.host.msr(cpu, register) {
                    Ok(value) => {
                        line.push_str(&format!(" {cpu}|{value:x}"));
                        self.summary.registers += 1;
                    }
                    // The msr driver is missing for all CPUs.
                    Err(error) if error.errno == Errno::NOENT => break,
                    Err(error) if matches!(error.errno, Errno::PERM | Errno::ACCES) => {
                        self.summary.denied += 1;
                        break;
                    }
                    // EIO: this processor has no such register (arch/x86/kernel/msr.c).
                    Err(_) => {}
                }
            }
            if !line.is_empty() {
                text.push_str(&format!("{register:x}:{}\n", line.trim_start()));
            }
        }
        if text.is_empty() { Ok(()) } else { self.writer.file("msr.txt", text.as_bytes(), false) }
    }

    fn log(&mut self) -> io::Result<()> {
        let Ok(log) = self.host.kernel_log() else { return Ok(()) };
        let mut text = String::new();
        for line in log.lines() {
            let lower = line.to_ascii_lowercase();
            if LOG_WORDS.iter().any(|word| lower.contains(word)) {
                // `Command line:` and `Kernel command line:`: the kernel prints it twice
                // (setup_arch and start_kernel).
                let line = match line.split_once("ommand line: ") {
                    Some((head, words)) => format!("{head}ommand line: {}", redact::parameters(words)),
                    None => line.to_owned(),
                };
                text.push_str(&self.redactor.clean(&line));
                text.push('\n');
                self.summary.log_lines += 1;
            }
        }
        if text.is_empty() { Ok(()) } else { self.writer.file("kernel.log", text.as_bytes(), false) }
    }
}

/// Returns whether a relative link from `folder` leads below the folder of the CPUs or of the NUMA
/// nodes.
fn inside(folder: &str, target: &str) -> bool {
    if target.starts_with('/') {
        return false;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        // Resolve the text of the path: the target need not exist on a recorded machine.
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.starts_with(&["sys", "devices", "system", "cpu"])
        || parts.starts_with(&["sys", "devices", "system", "node"])
}

/// Returns whether a file may contain a host name or a serial number.
fn wants_cleaning(path: &str) -> bool {
    path.starts_with("/proc/") || path.starts_with("/sys/class/") || path.starts_with("/sys/module/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_recorded_tree_are_left() {
        assert!(inside("/sys/devices/system/cpu/cpu0", "../cpufreq/policy0"));
        assert!(inside("/sys/devices/system/node/node0", "../../cpu/cpu0"));
        assert!(!inside("/sys/devices/system/cpu/cpu0", "../../../../bus/cpu"));
        assert!(!inside("/sys/devices/system/cpu/cpu0", "/etc"));
    }

    #[test]
    fn a_recording_answers_as_the_machine_did() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("sys/devices/system/cpu/online", "0-1\n");
        put("sys/devices/system/cpu/cpu0/topology/ppin", "0x123456789\n");
        put("sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
        put("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n");
        put("proc/sys/kernel/hostname", "build7.example.org\n");
        put("proc/version", "Linux version 6.12.1 (x@y) build7\n");
        put("kernel.log", "intel_pstate: HWP enabled on build7\nusb 1-1: SerialNumber: 123\n");
        put("msr.txt", "1b0:0|6 1|6\n");
        std::os::unix::fs::symlink(
            "../cpufreq/policy0",
            folder.path().join("sys/devices/system/cpu/cpu0/cpufreq"),
        )
        .unwrap();
        let host = crate::Recorded::open(folder.path()).unwrap();
        let (summary, bytes) = record(&host, Vec::new()).unwrap();
        assert_eq!((summary.registers, summary.log_lines, summary.errors), (2, 1, 0));
        let copy = crate::Archive::read("x", bytes.as_slice()).unwrap();
        assert_eq!(copy.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap(), "powersave");
        assert_eq!(copy.read("/sys/devices/system/cpu/cpu0/topology/core_id").unwrap(), "0");
        assert!(!copy.exists("/sys/devices/system/cpu/cpu0/topology/ppin"));
        assert!(!copy.exists("/proc/sys/kernel/hostname"));
        assert_eq!(copy.read("/proc/version").unwrap(), "Linux version 6.12.1 (USER@HOST) HOST");
        assert_eq!(copy.kernel_log().unwrap(), "intel_pstate: HWP enabled on HOST\n");
        assert_eq!(copy.msr(1, 0x1b0).unwrap(), 6);
        // Recording the same state always gives the same bytes.
        assert_eq!(record(&copy, Vec::new()).unwrap(), (summary, bytes));
    }
}
