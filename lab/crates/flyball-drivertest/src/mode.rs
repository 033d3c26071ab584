//! The driver modes of a machine: what a kernel needs for a mode, how it is booted into the mode,
//! and the base state in which each sequence begins.

use flyball_guest::{
    Interface,
    error::GuestError,
    machine::{Driver, GuestMachine},
};
use flyball_silicon::{
    MachineSpec,
    spec::{InterfaceSpec, SstClass, Vendor},
};

use crate::{
    speed_select::{self, Shape},
    step::Step,
};

/// The driver of the frequency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    AmdActive,
    AmdPassive,
    AmdGuided,
    /// intel_pstate with HWP.
    IntelActive,
    IntelPassive,
    /// intel_pstate without HWP.
    IntelActiveNoHwp,
    IntelPassiveNoHwp,
    AcpiCpufreq,
    /// The drivers of Speed Select, next to intel_pstate with HWP.
    SpeedSelect,
}

/// A row of the table of modes.
struct Row {
    kind: Kind,
    name: &'static str,
    driver: &'static str,
    /// The content of `scaling_driver`.
    scaling_driver: &'static str,
    /// The first kernel with the mode.
    since: &'static str,
    /// Kernel configuration options that the mode requires.
    options: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        kind: Kind::AmdActive,
        name: "amd-pstate=active",
        driver: "amd-pstate=active",
        scaling_driver: "amd-pstate-epp",
        since: "6.3",
        options: &["X86_AMD_PSTATE"],
    },
    Row {
        kind: Kind::AmdPassive,
        name: "amd-pstate=passive",
        driver: "amd-pstate=passive",
        scaling_driver: "amd-pstate",
        since: "5.17",
        options: &["X86_AMD_PSTATE"],
    },
    Row {
        kind: Kind::AmdGuided,
        name: "amd-pstate=guided",
        driver: "amd-pstate=guided",
        scaling_driver: "amd-pstate",
        since: "6.4",
        options: &["X86_AMD_PSTATE"],
    },
    Row {
        kind: Kind::IntelActive,
        name: "intel_pstate=active",
        driver: "intel_pstate=active",
        scaling_driver: "intel_pstate",
        since: "4.6",
        options: &["X86_INTEL_PSTATE"],
    },
    Row {
        kind: Kind::IntelPassive,
        name: "intel_pstate=passive",
        driver: "intel_pstate=passive",
        scaling_driver: "intel_cpufreq",
        since: "5.9",
        options: &["X86_INTEL_PSTATE"],
    },
    Row {
        kind: Kind::IntelActiveNoHwp,
        name: "intel_pstate=active,hwp-off",
        driver: "intel_pstate=no_hwp",
        scaling_driver: "intel_pstate",
        since: "4.6",
        options: &["X86_INTEL_PSTATE"],
    },
    Row {
        kind: Kind::IntelPassiveNoHwp,
        name: "intel_pstate=passive,hwp-off",
        driver: "intel_pstate=passive",
        scaling_driver: "intel_cpufreq",
        since: "4.12",
        options: &["X86_INTEL_PSTATE"],
    },
    Row {
        kind: Kind::AcpiCpufreq,
        name: "acpi-cpufreq",
        driver: "acpi-cpufreq",
        scaling_driver: "acpi-cpufreq",
        since: "3.0",
        options: &["X86_ACPI_CPUFREQ"],
    },
    Row {
        kind: Kind::SpeedSelect,
        name: "speed-select=mailbox-msr",
        driver: "intel_pstate=active",
        scaling_driver: "intel_pstate",
        since: "5.3",
        options: &["X86_INTEL_PSTATE", "INTEL_SPEED_SELECT_INTERFACE"],
    },
    Row {
        kind: Kind::SpeedSelect,
        name: "speed-select=mailbox-pci",
        driver: "intel_pstate=active",
        scaling_driver: "intel_pstate",
        since: "5.3",
        options: &["X86_INTEL_PSTATE", "INTEL_SPEED_SELECT_INTERFACE"],
    },
    Row {
        kind: Kind::SpeedSelect,
        name: "speed-select=tpmi",
        driver: "intel_pstate=active",
        scaling_driver: "intel_pstate",
        since: "6.4",
        options: &["X86_INTEL_PSTATE", "INTEL_SPEED_SELECT_TPMI", "INTEL_VSEC", "INTEL_TPMI"],
    },
];

/// A driver mode on a machine.
#[derive(Debug, Clone)]
pub struct Mode {
    pub kind: Kind,
    /// The driver's mode and the interface: `amd-pstate=active,mailbox`.
    pub name: String,
    /// A built-in machine or a machine's file.
    pub machine: String,
    pub interface: Option<Interface>,
    pub cpus: u32,
    /// The machine, reduced to the guest's CPUs.
    pub spec: MachineSpec,
    /// The machine's file, if it differs from the machine's own.
    pub toml: Option<String>,
    /// Description of Speed Select, in a Speed Select mode.
    pub shape: Option<Shape>,
    row: usize,
}

/// Removes the registers of the last power domain if there are domains without cores, because the
/// kernel's driver has to cope with both (isst_tpmi_core.c, `sst_base` in `get_instance`). Returns
/// the changed machine file, if this applies.
fn without_last_registers(spec: &mut MachineSpec, toml: &str) -> Option<String> {
    let dies = spec.topology.dies;
    let sst =
        spec.sst.as_mut().filter(|sst| sst.io_registers && sst.io_domains > 1 && sst.absent.is_empty())?;
    let last = dies + sst.io_domains - 1;
    let (before, after) = toml.split_once("\n[sst]\n")?;
    sst.absent = vec![last];
    Some(format!("{before}\n[sst]\nabsent = [{last}]\n{after}"))
}

impl Mode {
    /// Every testable mode of the machine.
    pub fn all(machine: &str) -> Result<Vec<Mode>, GuestError> {
        let found = GuestMachine::find(machine, 0, None)?;
        let spec = found.spec;
        let own = spec.firmware.interface;
        let class = spec.sst.as_ref().map(|sst| match sst.class {
            SstClass::MailboxMsr => "mailbox-msr",
            SstClass::MailboxPci => "mailbox-pci",
            SstClass::Tpmi => "tpmi",
        });
        let has_states = !spec.firmware.pstates_mhz.is_empty();
        let mut modes = Vec::new();
        for (row, Row { kind, name, .. }) in ROWS.iter().enumerate() {
            let interfaces: &[(Option<Interface>, &str)] = match kind {
                Kind::AmdActive | Kind::AmdPassive | Kind::AmdGuided
                    if spec.identity.vendor == Vendor::Amd
                        && matches!(own, InterfaceSpec::CppcMsr | InterfaceSpec::CppcShared) =>
                {
                    &[(Some(Interface::CppcMsr), ""), (Some(Interface::CppcMailbox), ",mailbox")]
                }
                Kind::IntelActive | Kind::IntelPassive if own == InterfaceSpec::Hwp => &[(None, "")],
                Kind::IntelActiveNoHwp | Kind::IntelPassiveNoHwp if own == InterfaceSpec::Hwp => {
                    &[(Some(Interface::HwpOff), "")]
                }
                Kind::IntelActiveNoHwp | Kind::IntelPassiveNoHwp if own == InterfaceSpec::PerfCtl => {
                    &[(None, "")]
                }
                Kind::AcpiCpufreq if has_states => &[(Some(Interface::PStates), "")],
                Kind::SpeedSelect if class.is_some_and(|class| name.ends_with(class)) => &[(None, "")],
                _ => &[],
            };
            for (interface, suffix) in interfaces {
                modes.push(Mode {
                    kind: *kind,
                    name: format!("{name}{suffix}"),
                    machine: machine.to_owned(),
                    interface: *interface,
                    cpus: 0,
                    spec: GuestMachine::find(machine, 0, *interface)?.spec,
                    toml: None,
                    shape: None,
                    row,
                });
            }
            if let Some(mode) =
                modes.last_mut().filter(|mode| mode.kind == Kind::SpeedSelect && mode.row == row)
            {
                mode.toml = without_last_registers(&mut mode.spec, &found.toml);
                mode.shape = Shape::new(&mode.spec);
            }
        }
        Ok(modes)
    }

    fn row(&self) -> &'static Row {
        &ROWS[self.row]
    }

    pub fn driver(&self) -> Result<Driver, GuestError> {
        // Without HWP, `no_hwp` means active in `Driver`; the word itself is for machines with HWP.
        if self.kind == Kind::IntelActiveNoHwp && self.interface.is_none() {
            return Driver::parse("intel_pstate=active");
        }
        Driver::parse(self.row().driver)
    }

    /// Additional words for the kernel's command line: `intel_pstate=` may be given twice
    /// (drivers/cpufreq/intel_pstate.c, intel_pstate_setup), and passive mode alone would enable
    /// HWP.
    pub fn append(&self) -> &'static [&'static str] {
        let is_off = self.kind == Kind::IntelPassiveNoHwp && self.interface.is_some();
        if is_off { &["intel_pstate=no_hwp"] } else { &[] }
    }

    /// The content of `scaling_driver` in this mode.
    pub fn scaling_driver(&self) -> &'static str {
        self.row().scaling_driver
    }

    /// Kernel configuration options that the mode requires.
    pub fn options(&self) -> &'static [&'static str] {
        self.row().options
    }

    /// Returns whether a kernel of this release has the mode.
    pub fn exists_in(&self, release: &str) -> bool {
        // Try an unknown release.
        !release.starts_with(|c: char| c.is_ascii_digit())
            || flyball_guest::cache::compare_versions(release, self.row().since) != std::cmp::Ordering::Less
    }

    /// Returns whether `--driver` selects this mode: a driver's name selects all of its modes, a
    /// mode's name only that mode.
    pub fn is_named(&self, wanted: &str) -> bool {
        self.name == wanted || self.name.split('=').next() == Some(wanted)
    }

    pub fn is_amd_pstate(&self) -> bool {
        matches!(self.kind, Kind::AmdActive | Kind::AmdPassive | Kind::AmdGuided)
    }

    pub fn is_intel_pstate(&self) -> bool {
        !self.is_amd_pstate() && !matches!(self.kind, Kind::AcpiCpufreq | Kind::SpeedSelect)
    }

    /// Returns whether the driver chooses frequencies itself, with two policies instead of
    /// governors.
    pub fn is_setpolicy(&self) -> bool {
        matches!(self.kind, Kind::AmdActive | Kind::IntelActive | Kind::IntelActiveNoHwp)
    }

    /// Returns whether CPPC registers are in memory.
    pub fn is_mailbox(&self) -> bool {
        self.interface == Some(Interface::CppcMailbox)
    }

    /// Returns whether the driver uses Intel's HWP registers.
    pub fn is_hwp(&self) -> bool {
        matches!(self.kind, Kind::IntelActive | Kind::IntelPassive)
    }

    /// Returns whether policies have energy_performance_preference.
    pub fn has_preference(&self) -> bool {
        matches!(self.kind, Kind::AmdActive | Kind::IntelActive | Kind::IntelPassive)
    }

    /// Returns whether cpufreq/boost exists.
    pub fn has_boost(&self) -> bool {
        self.is_amd_pstate() || self.kind == Kind::AcpiCpufreq
    }

    /// Path and content of the driver's `status` file.
    pub fn status(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            Kind::AmdActive => Some(("amd_pstate/status", "active")),
            Kind::AmdPassive => Some(("amd_pstate/status", "passive")),
            Kind::AmdGuided => Some(("amd_pstate/status", "guided")),
            Kind::IntelActive | Kind::IntelActiveNoHwp => Some(("intel_pstate/status", "active")),
            Kind::IntelPassive | Kind::IntelPassiveNoHwp => Some(("intel_pstate/status", "passive")),
            Kind::AcpiCpufreq | Kind::SpeedSelect => None,
        }
    }

    /// Number of the guest's CPUs.
    pub fn cpu_count(&self) -> u32 {
        self.spec.cpus() as u32
    }

    /// Returns whether all cores are of one kind. A guest of a hybrid machine cannot tell a CPU's
    /// kind (CPUID leaf 1Ah), so the kernel scales some frequencies wrongly
    /// (drivers/cpufreq/intel_pstate.c, hwp_get_cpu_scaling).
    pub fn is_uniform(&self) -> bool {
        self.spec.core.len() == 1
    }

    /// The governor of the base state, with which the registers depend only on settings.
    pub fn governor(&self) -> &'static str {
        if self.is_setpolicy() { "powersave" } else { "performance" }
    }

    /// The steps that restore the base state. Files that a kernel lacks are skipped.
    pub fn reset(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        if let Some(shape) = &self.shape {
            steps.extend([Step::write("cpu[1-9]*/online", "1"), Step::Firmware(0)]);
            steps.push(Step::Run(format!("{} > /dev/null", speed_select::command(&shape.reset()))));
            return steps;
        }
        let mut write = |path: &str, value: &str| steps.push(Step::write(path, value));
        write("cpu[1-9]*/online", "1");
        if let Some((path, word)) = self.status() {
            write(path, word);
        }
        write("intel_pstate/no_turbo", "0");
        write("intel_pstate/max_perf_pct", "100");
        write("intel_pstate/min_perf_pct", "0");
        write("intel_pstate/hwp_dynamic_boost", "@initial");
        write("amd_pstate/dynamic_epp", "disabled");
        write("cpufreq/boost", "1");
        write("cpufreq/policy*/boost", "1");
        write("cpufreq/policy*/scaling_governor", self.governor());
        // The other limit may clamp the first write.
        write("cpufreq/policy*/scaling_min_freq", "@cpuinfo_min_freq");
        write("cpufreq/policy*/scaling_max_freq", "@cpuinfo_max_freq");
        write("cpufreq/policy*/scaling_min_freq", "@cpuinfo_min_freq");
        write("cpufreq/policy*/energy_performance_preference", "balance_performance");
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(machine: &str) -> Vec<String> {
        Mode::all(machine).unwrap().into_iter().map(|mode| mode.name).collect()
    }

    #[test]
    fn machines_have_modes() {
        assert_eq!(names("ryzen-5750g").len(), 7);
        assert_eq!(names("i7-2600").len(), 3);
        assert!(names("sst-guide").contains(&"intel_pstate=active,hwp-off".to_owned()));
        assert!(Mode::all("no-such").is_err());
    }

    #[test]
    fn passive_mode_without_hwp_switches_it_off() {
        let with_words = |machine: &str| {
            let modes = Mode::all(machine).unwrap().into_iter();
            modes.filter(|mode| !mode.append().is_empty()).map(|mode| mode.name).collect::<Vec<_>>()
        };
        assert_eq!(with_words("sst-guide"), ["intel_pstate=passive,hwp-off"]);
        assert!(with_words("i7-2600").is_empty());
    }

    #[test]
    fn drivers_name_modes() {
        let modes = Mode::all("ryzen-5750g").unwrap();
        let count = |wanted: &str| modes.iter().filter(|mode| mode.is_named(wanted)).count();
        assert_eq!(
            (count("amd-pstate"), count("amd-pstate=active"), count("amd-pstate=active,mailbox")),
            (6, 1, 1)
        );
        assert_eq!((count("amd"), count("acpi-cpufreq"), count("amd-pstate=")), (0, 1, 0));
        let active = &modes[0];
        assert!(
            active.exists_in("6.12.1") && !active.exists_in("6.1.0-50-amd64") && active.exists_in("unknown")
        );
    }
}
