//! Translates a machine of flyball-silicon for QEMU and the guest's kernel: a CPU model, the
//! firmware's tables, and words on the kernel's command line.

use std::{cmp::Ordering, fs, path::Path};

use flyball_guest_plugin::{
    layout,
    machine::{Interface, Layout, Reduction},
};
use flyball_silicon::{
    MachineSpec, Silicon,
    spec::{InterfaceSpec, SstClass, Vendor},
};

use crate::{
    acpi::{
        Control, Coordination, Cppc, CppcRegisters, Firmware, HALT, IdleState, Mailbox, PerformanceState,
        PerformanceStates, Processor,
    },
    cache::compare_versions,
    error::GuestError,
};

/// A machine that a guest can be booted on.
#[derive(Debug)]
pub struct GuestMachine {
    /// The text of its file.
    pub toml: String,
    /// Its description, reduced to the guest's CPUs.
    pub spec: MachineSpec,
    pub layout: Layout,
}

/// The driver for the guest's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Driver {
    /// The kernel's choice.
    #[default]
    Default,
    /// amd-pstate in a mode.
    AmdPstate(&'static str),
    /// intel_pstate in a mode.
    IntelPstate(&'static str),
    AcpiCpufreq,
    None,
}

impl Driver {
    /// The values of `--driver`.
    pub const WORDS: &[(&str, Driver)] = &[
        ("default", Driver::Default),
        ("amd-pstate", Driver::AmdPstate("active")),
        ("amd-pstate=active", Driver::AmdPstate("active")),
        ("amd-pstate=passive", Driver::AmdPstate("passive")),
        ("amd-pstate=guided", Driver::AmdPstate("guided")),
        ("intel_pstate", Driver::IntelPstate("active")),
        ("intel_pstate=active", Driver::IntelPstate("active")),
        ("intel_pstate=passive", Driver::IntelPstate("passive")),
        ("intel_pstate=no_hwp", Driver::IntelPstate("no_hwp")),
        ("acpi-cpufreq", Driver::AcpiCpufreq),
        ("none", Driver::None),
    ];

    pub fn parse(word: &str) -> Result<Driver, GuestError> {
        let found = Driver::WORDS.iter().find(|(name, _)| *name == word);
        found.map(|(_, driver)| *driver).ok_or_else(|| {
            let names: Vec<&str> = Driver::WORDS.iter().map(|(name, _)| *name).collect();
            GuestError::Request(format!("unknown driver '{word}' (expected {})", names.join(", ")))
        })
    }

    /// Words for the kernel's command line.
    fn words(self, spec: &MachineSpec, release: &str) -> Vec<String> {
        let mut words = Vec::new();
        match self {
            Driver::Default => {
                // By default amd-pstate does not bind if firmware names no preferred profile, and
                // QEMU's names none (drivers/cpufreq/amd-pstate.c,
                // amd_pstate_acpi_pm_profile_undefined). So request by name what a machine with a
                // profile gets: active from 6.5 on; on servers from 6.13 on, if they are of family
                // 1Ah or later.
                let cppc =
                    matches!(spec.firmware.interface, InterfaceSpec::CppcMsr | InterfaceSpec::CppcShared);
                let wanted = !spec.identity.server
                    || spec.identity.family >= 0x1a && compare_versions(release, "6.13") != Ordering::Less;
                if cppc && wanted && compare_versions(release, "6.5") == Ordering::Greater {
                    words.push("amd_pstate=active".into());
                }
            }
            Driver::AmdPstate(mode) => {
                words.push(format!("amd_pstate={mode}"));
                // Up to 6.2 the driver needs this parameter on machines without the registers.
                if spec.firmware.interface == InterfaceSpec::CppcShared && release.starts_with("6.1.") {
                    words.push("amd_pstate.shared_mem=1".into());
                }
            }
            // Active too: without HWP the kernel's own choice is passive
            // (drivers/cpufreq/intel_pstate.c, intel_pstate_init).
            Driver::IntelPstate(mode) => words.push(format!("intel_pstate={mode}")),
            Driver::AcpiCpufreq | Driver::None => {
                words.extend(["amd_pstate=disable".into(), "intel_pstate=disable".into()]);
            }
        }
        words
    }

    /// Modules to load before the command.
    fn modules(self) -> &'static [&'static str] {
        match self {
            // On a PC udev loads it when it sees the processors; the guest has no udev.
            Driver::Default => &["?acpi-cpufreq"],
            Driver::AcpiCpufreq => &["acpi-cpufreq"],
            _ => &[],
        }
    }
}

impl GuestMachine {
    /// The machine `name`: a built-in one, or a TOML file. `cpus` 0 means four, or all if the
    /// machine has fewer.
    pub fn find(name: &str, cpus: u32, interface: Option<Interface>) -> Result<GuestMachine, GuestError> {
        let toml = match MachineSpec::builtin_text(name) {
            Some(text) => text.to_owned(),
            None if Path::new(name).is_file() => {
                fs::read_to_string(name).map_err(|e| GuestError::file("read", name, e))?
            }
            None => {
                let names: Vec<&str> = MachineSpec::names().collect();
                return Err(GuestError::Request(format!(
                    "unknown machine '{name}' (expected {}, or a machine's TOML file)",
                    names.join(", ")
                )));
            }
        };
        let cpus = match cpus {
            0 => MachineSpec::from_toml(&toml).map_or(4, |spec| spec.cpus().min(4) as u32),
            cpus => cpus,
        };
        let reduction = Reduction { toml, cpus, interface };
        let (spec, layout) = reduction.make().map_err(|e| GuestError::Request(e.to_string()))?;
        Ok(GuestMachine { toml: reduction.toml, spec, layout })
    }

    /// QEMU's CPU model: one of its own with this machine's name and numbers. The choice only
    /// determines TCG's other features; the silicon provides everything about power and
    /// performance.
    pub fn cpu_model(&self) -> String {
        let identity = &self.spec.identity;
        let base = match (identity.vendor, identity.family) {
            (Vendor::Amd, ..=0x17) => "EPYC-Rome",
            (Vendor::Amd, _) => "EPYC-Milan",
            // Arm guests are rejected: see `Reduction::make`.
            (Vendor::Intel | Vendor::Arm, _) => "Icelake-Server",
        };
        format!(
            "{base},family={},model={},stepping={},model-id={}",
            identity.family,
            identity.model,
            identity.stepping,
            // -cpu has no escape for a comma.
            identity.brand.replace(',', "")
        )
    }

    /// The firmware's tables for the kernel.
    pub fn firmware(&self) -> Firmware {
        let spec = &self.spec;
        let intel = spec.identity.vendor == Vendor::Intel;
        let shared = spec.firmware.interface == InterfaceSpec::CppcShared;
        let has_cppc = !intel && (shared || spec.firmware.interface == InterfaceSpec::CppcMsr);
        let topology = Silicon::new(spec.clone(), 0).map(|silicon| silicon.topology().clone()).ok();
        let processors = (0..self.layout.cpus())
            .map(|cpu| {
                let place = topology.as_ref().map(|topology| topology.core_of(cpu as usize));
                let kind = place.map_or(0, |place| place.kind);
                let core = &spec.core[kind];
                // If the machine file ranks cores, they differ in their highest level; the kernel's
                // scheduler derives their order from it.
                let ranking = place.and_then(|place| core.ranking.get(place.in_package as usize)).copied();
                let registers = if shared { CppcRegisters::Mailbox(cpu) } else { CppcRegisters::AmdMsr };
                let (lowest_mhz, nominal_mhz) = (spec.firmware.cpc_lowest_mhz, spec.firmware.cpc_nominal_mhz);
                Processor {
                    cppc: has_cppc.then_some(Cppc {
                        highest: u32::from(ranking.unwrap_or(core.perf.highest)),
                        nominal: u32::from(core.perf.nominal),
                        lowest_nonlinear: u32::from(core.perf.efficient),
                        lowest: u32::from(core.perf.lowest),
                        reference: u32::from(core.perf.nominal),
                        lowest_mhz: if lowest_mhz == 0 { core.min_mhz } else { lowest_mhz },
                        nominal_mhz: if nominal_mhz == 0 { core.base_mhz } else { nominal_mhz },
                        registers,
                    }),
                    states: self.states(cpu, intel),
                    idle: vec![IdleState { kind: 1, entry: HALT, latency_us: 1, milliwatts: 0 }],
                }
            })
            .collect();
        let mailbox = shared.then_some(Mailbox { base: layout::MAILBOX, blocks: self.layout.cpus() });
        Firmware { processors, mailbox, acts: false }
    }

    /// `_PSS` of a CPU. AMD's states are requested through the P-state registers, as on real
    /// machines; Intel's through a port, because TCG's processors do not report SpeedStep.
    fn states(&self, cpu: u32, intel: bool) -> Option<PerformanceStates> {
        let firmware = &self.spec.firmware;
        if firmware.pstates_mhz.is_empty() {
            return None;
        }
        let top = *firmware.pstates_mhz.first()?;
        let budget = self.spec.power.tdp_w * 1000.0 / f64::from(self.spec.cpus().max(1) as u32);
        let states = firmware.pstates_mhz.iter().enumerate().map(|(number, mhz)| PerformanceState {
            mhz: *mhz,
            // Assumed: an equal share of the design power, scaled by frequency.
            milliwatts: (budget * f64::from(*mhz) / f64::from(top.max(1))) as u32,
            latency_us: firmware.transition_us,
            control: number as u32,
            status: number as u32,
        });
        let control = if intel { Control::Port(layout::PORTS + cpu as u16) } else { Control::FixedHardware };
        Some(PerformanceStates {
            states: states.collect(),
            control,
            domain: (cpu, Coordination::Hardware, 1),
        })
    }

    /// The mailbox's content before the plug-in fills it, if there is one.
    pub fn mailbox_contents(&self) -> Option<(u64, Vec<u8>)> {
        let mailbox = self.firmware().mailbox?;
        Some((mailbox.base, mailbox.initial(|_| u32::from(self.spec.core[0].perf.nominal))))
    }

    /// The kernel's command line.
    pub fn command_line(&self, driver: Driver, release: &str, more: &[String]) -> String {
        // Use the console, and disable everything that costs emulated seconds: self-tests and key
        // rings that nothing here uses.
        const WORDS: &str = "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off tsc=reliable \
            clocksource=tsc no_timer_check random.trust_cpu=on audit=0 cryptomgr.notests=1 \
            initcall_blacklist=load_system_certificate_list,jent_mod_init,crypto_kdf108_init,init_encrypted,init_ima";
        let mut words: Vec<String> = WORDS.split_whitespace().map(str::to_owned).collect();
        if self.spec.firmware.interface == InterfaceSpec::CppcShared {
            // The kernel must not use the pages, because the plug-in writes to them like firmware.
            words.push(format!("memmap={:#x}${:#x}", layout::MAILBOX_RESERVED, layout::MAILBOX));
        }
        words.extend(driver.words(&self.spec, release));
        words.extend(more.iter().cloned());
        words.join(" ")
    }

    /// Modules that init loads before the command: those that a machine's udev would load, and
    /// `more`.
    pub fn modules(&self, driver: Driver, more: &[String]) -> Vec<String> {
        let speed_select: &[&str] = match self.spec.sst.as_ref().map(|sst| sst.class) {
            Some(SstClass::MailboxMsr) => &["?isst_if_mbox_msr"],
            Some(SstClass::MailboxPci) => &["?isst_if_mbox_pci", "?isst_if_mmio"],
            // In this order: each creates the devices of the next.
            Some(SstClass::Tpmi) => &["?intel_vsec", "?intel_vsec_tpmi", "?isst_tpmi"],
            None => &[],
        };
        let own = driver.modules().iter().chain(speed_select).map(|name| (*name).to_owned());
        own.chain(more.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_tables() {
        for name in MachineSpec::names().filter(|name| !matches!(*name, "altra" | "grace")) {
            let machine = GuestMachine::find(name, 4, None).unwrap();
            let tables = machine.firmware().tables();
            assert!(tables[0].starts_with(b"SSDT"), "{name}");
            assert_eq!(machine.layout.cpus(), 4);
            let model = machine.cpu_model();
            assert!(
                model.contains("model=")
                    && model.split(',').all(|part| part.contains('=') || part.starts_with(['E', 'I']))
            );
        }
    }

    #[test]
    fn the_mailbox_comes_with_its_interface() {
        let machine = GuestMachine::find("ryzen-5750g", 4, Some(Interface::CppcMailbox)).unwrap();
        assert_eq!(machine.firmware().tables().len(), 2);
        let words = machine.command_line(Driver::AmdPstate("passive"), "6.1.0-50-amd64", &[]);
        assert!(words.contains("memmap=0x100000$0xf000000") && words.contains("amd_pstate.shared_mem=1"));
        let words = machine.command_line(Driver::AcpiCpufreq, "6.12.1", &["x=y".into()]);
        assert!(words.ends_with("amd_pstate=disable intel_pstate=disable x=y"), "{words}");
        assert!(GuestMachine::find("ryzen-5750g", 0, None).unwrap().mailbox_contents().is_none());
    }

    #[test]
    fn drivers_have_names() {
        let ryzen = GuestMachine::find("ryzen-5750g", 4, None).unwrap();
        assert!(
            ryzen.command_line(Driver::Default, "6.12.107+deb13-amd64", &[]).ends_with("amd_pstate=active")
        );
        assert!(!ryzen.command_line(Driver::Default, "6.1.0-50-amd64", &[]).contains("amd_pstate"));
        // Without HWP the kernel would choose passive.
        let sandy = GuestMachine::find("i7-2600", 4, None).unwrap();
        let active = Driver::parse("intel_pstate").unwrap();
        assert!(sandy.command_line(active, "6.12.1", &[]).ends_with("intel_pstate=active"));
        assert_eq!(Driver::parse("amd-pstate=guided").unwrap(), Driver::AmdPstate("guided"));
        assert!(Driver::parse("cppc").unwrap_err().to_string().contains("acpi-cpufreq"));
    }
}
