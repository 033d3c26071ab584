//! A machine's Speed Select, and the calls that read everything that can be set. They are made
//! after each step.

use flyball_silicon::{
    MachineSpec, Silicon, msr,
    spec::{SstClass, SstLevelSpec},
};

use super::{by_nr, hex, nr};

/// Bit that turns a mailbox command for a class or an association into a write (MBOX_CMD_WRITE_BIT
/// in isst_if_common.h).
pub const WRITE: u32 = 1 << 8;

/// A power domain with registers; with a mailbox, a package.
#[derive(Debug, Clone)]
pub struct Domain {
    pub package: u32,
    pub number: u32,
    pub levels: Vec<SstLevelSpec>,
    /// Number of cores, as the power unit numbers them.
    pub cores: u32,
    /// The CPUs of each core.
    pub cpus: Vec<Vec<u32>>,
}

impl Domain {
    pub fn level(&self, number: u32) -> Option<&SstLevelSpec> {
        self.levels.iter().find(|level| level.number == number)
    }

    pub fn highest(&self) -> u32 {
        self.levels.iter().map(|level| level.number).max().unwrap_or(0)
    }

    /// A CPU of the package, through which the mailbox is reached.
    pub fn cpu(&self) -> u32 {
        self.cpus.iter().flatten().copied().min().unwrap_or(0)
    }
}

/// A machine's Speed Select.
#[derive(Debug, Clone)]
pub struct Shape {
    pub class: SstClass,
    pub packages: u32,
    /// Number of a package's power domains, with and without registers.
    pub per_package: u32,
    pub domains: Vec<Domain>,
    pub cpus: u32,
    /// True if core-power exists.
    pub core_power: bool,
    /// The feature's version.
    pub version: u32,
    /// MSR 1ADh when the machine starts.
    pub limits: u64,
}

impl Shape {
    /// `None` for a machine without Speed Select.
    pub fn new(spec: &MachineSpec) -> Option<Shape> {
        let sst = spec.sst.as_ref()?;
        let silicon = Silicon::new(spec.clone(), 0).ok()?;
        let topology = silicon.topology();
        let tpmi = sst.class == SstClass::Tpmi;
        let per_package = if tpmi { silicon.tpmi_domains() as u32 } else { 1 };
        // The machine's file counts domains that can have registers.
        let counted = if tpmi && !sst.io_registers { topology.dies() } else { per_package };
        let mut domains = Vec::new();
        for package in 0..topology.packages() as u32 {
            for number in 0..per_package {
                if tpmi
                    && silicon
                        .tpmi_read(package as usize, number as usize, 0)
                        .is_none_or(|header| header & 0xff == 0xff)
                {
                    continue;
                }
                let own = sst.domain.get((package * counted + number) as usize);
                let mut cpus: Vec<Vec<u32>> = Vec::new();
                for core in topology.package_cores(package as usize) {
                    let place = topology.core(core);
                    if tpmi && place.die != number {
                        continue;
                    }
                    let at = (place.unit / sst.cores_per_module.max(1)) as usize;
                    cpus.resize(cpus.len().max(at + 1), Vec::new());
                    cpus[at].extend(place.cpus[..place.threads as usize].iter().map(|cpu| *cpu as u32));
                }
                domains.push(Domain {
                    package,
                    number,
                    levels: own.map_or(&sst.level, |own| &own.level).clone(),
                    cores: cpus.len() as u32,
                    cpus,
                });
            }
        }
        Some(Shape {
            class: sst.class,
            packages: topology.packages() as u32,
            per_package,
            domains,
            cpus: topology.cpus() as u32,
            core_power: sst.core_power,
            version: sst.version,
            limits: silicon.read_msr(0, msr::TURBO_RATIO_LIMIT).unwrap_or(0),
        })
    }

    pub fn is_tpmi(&self) -> bool {
        self.class == SstClass::Tpmi
    }

    /// The domain with these numbers, if it has registers.
    pub fn domain(&self, package: u64, number: u64) -> Option<usize> {
        self.domains.iter().position(|d| (u64::from(d.package), u64::from(d.number)) == (package, number))
    }

    /// The domain of a CPU's package, which its mailbox controls.
    pub fn domain_of_cpu(&self, cpu: u64) -> Option<usize> {
        self.domains.iter().position(|d| d.cpus.iter().flatten().any(|own| u64::from(*own) == cpu))
    }

    /// The calls that read everything that can be set: (name, number, argument).
    pub fn queries(&self) -> Vec<(String, u32, Vec<u8>)> {
        let mut all = Vec::new();
        let mut ask = |name: String, nr: u32, argument: Vec<u8>| all.push((name, by_nr(nr).number, argument));
        for d in &self.domains {
            let place = [("socket_id", u64::from(d.package)), ("power_domain_id", u64::from(d.number))];
            let name = |what: &str| format!("{}.{}/{what}", d.package, d.number);
            if self.is_tpmi() {
                ask(name("PERF_LEVELS"), nr::PERF_LEVELS, by_nr(nr::PERF_LEVELS).argument(&place));
                ask(
                    name("CORE_POWER_STATE"),
                    nr::CORE_POWER_STATE,
                    by_nr(nr::CORE_POWER_STATE).argument(&place),
                );
                for class in 0..4 {
                    let values = [place[0], place[1], ("clos", class)];
                    let argument = by_nr(nr::CLOS_PARAM).argument(&values);
                    ask(name(&format!("CLOS_PARAM.{class}")), nr::CLOS_PARAM, argument);
                }
                if d.cores > 0 {
                    let cores: Vec<Vec<(&str, u64)>> = (0..u64::from(d.cores.min(64)))
                        .map(|core| vec![place[0], place[1], ("logical_cpu", core)])
                        .collect();
                    let cores: Vec<&[(&str, u64)]> = cores.iter().map(Vec::as_slice).collect();
                    let argument = by_nr(nr::CLOS_ASSOC).with_commands(&[("punit_cpu_map", 1)], &cores);
                    ask(name("CLOS_ASSOC"), nr::CLOS_ASSOC, argument);
                }
            } else {
                let cpu = d.cpu();
                let mut mailbox = |what: String, command: u32, parameter: u32, data: u32| {
                    ask(
                        name(&format!("MBOX_COMMAND.{what}")),
                        nr::MBOX_COMMAND,
                        mailbox(cpu, command, parameter, data),
                    );
                };
                mailbox("levels".into(), 0x7f00, 0, 0);
                for level in &d.levels {
                    mailbox(format!("features.{}", level.number), 0x7f01, 0, level.number);
                }
                mailbox("core-power".into(), 0xd002, 0, 0);
                mailbox("configuration".into(), 0x9403, 0, 0);
                for class in 0..4 {
                    mailbox(format!("class.{class}"), 0xd001, class, 0);
                }
                for core in 0..d.cores.min(64) {
                    mailbox(format!("core.{core}"), 0xd000, core, 0);
                }
            }
        }
        let limit = [("msr", u64::from(msr::TURBO_RATIO_LIMIT))];
        ask(
            "MSR_COMMAND.0x1ad".to_owned(),
            nr::MSR_COMMAND,
            by_nr(nr::MSR_COMMAND).with_commands(&[], &[&limit]),
        );
        all
    }

    /// The file of [`queries`](Self::queries) for the agent.
    pub fn queries_text(&self) -> String {
        let line = |(name, number, argument): (String, u32, Vec<u8>)| {
            format!("{name} {number:#x} {}\n", hex(&argument))
        };
        self.queries().into_iter().map(line).collect()
    }

    /// [`queries`](Self::queries) as one shell command.
    pub fn queries_command(&self) -> String {
        let calls = self.queries().into_iter().map(|(_, number, argument)| (number, argument));
        super::command(&calls.collect::<Vec<_>>())
    }

    /// The calls that restore the base state: the lowest level, all features and core-power off,
    /// classes without limits, all cores in class 0, the initial turbo limits.
    pub fn reset(&self) -> Vec<(u32, Vec<u8>)> {
        let mut all: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut make = |nr: u32, argument: Vec<u8>| all.push((by_nr(nr).number, argument));
        for d in &self.domains {
            let place = [("socket_id", u64::from(d.package)), ("power_domain_id", u64::from(d.number))];
            let lowest = d.levels.first().map_or(0, |level| level.number);
            if self.is_tpmi() {
                let with = |more: &[(&'static str, u64)]| [&place[..], more].concat();
                make(nr::PERF_SET_FEATURE, by_nr(nr::PERF_SET_FEATURE).argument(&place));
                let level = with(&[("level", u64::from(lowest))]);
                make(nr::PERF_SET_LEVEL, by_nr(nr::PERF_SET_LEVEL).argument(&level));
                make(nr::CORE_POWER_STATE, by_nr(nr::CORE_POWER_STATE).argument(&with(&[("get_set", 1)])));
                for class in 0..4 {
                    let values = with(&[("get_set", 1), ("clos", class), ("max_freq_mhz", 25_500)]);
                    make(nr::CLOS_PARAM, by_nr(nr::CLOS_PARAM).argument(&values));
                }
                if d.cores > 0 {
                    let cores: Vec<Vec<(&str, u64)>> =
                        (0..u64::from(d.cores.min(64))).map(|core| with(&[("logical_cpu", core)])).collect();
                    let cores: Vec<&[(&str, u64)]> = cores.iter().map(Vec::as_slice).collect();
                    let values = [("punit_cpu_map", 1), ("get_set", 1)];
                    make(nr::CLOS_ASSOC, by_nr(nr::CLOS_ASSOC).with_commands(&values, &cores));
                }
            } else {
                let mut send = |command, parameter, data| {
                    make(nr::MBOX_COMMAND, mailbox(d.cpu(), command, parameter, data));
                };
                send(0x7f02, 0, 0);
                send(0x7f08, 0, lowest);
                send(0xd002, WRITE, 0);
                send(0x9503, 0, 0);
                for class in 0..4 {
                    send(0xd001, WRITE | class, 0xff << 16);
                }
                for core in 0..d.cores.min(64) {
                    send(0xd000, WRITE | core, 0);
                }
            }
            // A change of level also writes the turbo limits.
            if d.number == 0 {
                let values = [
                    ("read_write", 1),
                    ("logical_cpu", u64::from(d.cpu())),
                    ("msr", u64::from(msr::TURBO_RATIO_LIMIT)),
                    ("data", self.limits),
                ];
                make(nr::MSR_COMMAND, by_nr(nr::MSR_COMMAND).with_commands(&[], &[&values]));
            }
        }
        all
    }
}

/// The argument of one mailbox command; `command` has the command in bits 15:8 and its sub-command
/// in bits 7:0.
pub fn mailbox(cpu: u32, command: u32, parameter: u32, data: u32) -> Vec<u8> {
    by_nr(nr::MBOX_COMMAND).with_commands(
        &[],
        &[&[
            ("logical_cpu", u64::from(cpu)),
            ("parameter", u64::from(parameter)),
            ("req_data", u64::from(data)),
            ("command", u64::from(command >> 8)),
            ("sub_command", u64::from(command & 0xff)),
        ]],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Mode;

    fn shape(machine: &str) -> Shape {
        let modes = Mode::all(machine).unwrap();
        modes.iter().find_map(|mode| mode.shape.clone()).unwrap()
    }

    #[test]
    fn machines_have_domains() {
        let small = shape("tpmi-small");
        // Two dies and two IO dies, the last of which has no registers.
        let places: Vec<(u32, u32, u32)> =
            small.domains.iter().map(|d| (d.package, d.number, d.cores)).collect();
        assert_eq!((small.per_package, places), (4, vec![(0, 0, 2), (0, 1, 2), (0, 2, 0)]));
        assert_eq!((small.domains[0].highest(), small.domains[1].cpu()), (3, 2));
        assert_eq!((small.domain(0, 3), small.domain(1, 0), small.domain_of_cpu(3)), (None, None, Some(1)));
        let guide = shape("sst-guide");
        assert_eq!((guide.domains.len(), guide.domains[0].cores), (1, 4));
        // No query accesses a domain without registers.
        assert!(small.queries().iter().all(|(name, ..)| !name.starts_with("0.3")));
        assert!(guide.queries_text().lines().all(|line| line.split(' ').count() == 3));
    }
}
