//! The common part of all commands: the streams, the machine, iteration over CPUs and domains, and
//! requests to the firmware with the tool's reaction to each kind of error.

use std::{io::Write, time::Duration};

use flyball_host::{CpuInfo, CpuList, CpuTopology, Errno, Host, HostError, isst};

use flyball_sst::{
    access::{Access, CpuModel, DomainAddress, Features, Levels, Mailbox, PmConfig, Tpmi},
    cpus::{Cpu, CpuMap, is_online},
};

use crate::{
    debug::DebugHost,
    display::{Display, Id},
};

/// The version of the imitated tool.
pub(super) const VERSION: &str = "v1.26";

/// The run is over, with this exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended(pub u8);

/// Sizes of the tool's arrays; packages, dies and domains beyond them are ignored.
const PACKAGES: u32 = 32;
const DIES: u32 = 16;
const DOMAINS: u32 = 8;

/// Destination of results.
pub(super) enum Results {
    /// stderr, like in the tool.
    Err,
    /// stdout (`--strict`).
    Out,
    /// The file of `--out`; the tool closes stderr for it.
    File(Box<dyn Write>),
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "the options and states of the original, which has each as a global variable"
)]
pub(super) struct Session<'a> {
    pub host: &'a dyn Host,
    pub debug_host: &'a DebugHost<'a>,
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    pub results: Results,
    pub display: Display,
    /// Path of the program; messages show its last part.
    pub program: String,
    pub access: Box<dyn Access + 'a>,
    pub platform: isst::Platform,
    pub model: CpuModel,
    pub info: CpuInfo,
    pub map: CpuMap,
    /// CPUs of `--cpu`, or `None` for one run per power domain.
    pub targets: Option<CpuList>,
    pub read_only: bool,
    pub strict: bool,
    pub debug: bool,
    pub cgroup: bool,
    pub cgroup_cpu0: bool,
    /// True if anything failed, for `--strict`.
    pub failed: bool,
}

/// An error code of the tool's functions, as in `failed(error N)`.
pub(super) type Code = i32;

/// An error for which the tool has no number.
pub(super) const FAILED: Code = -1;

impl Session<'_> {
    /// Opens the interface. Mailbox commands are tried `tries` times, each after a `pause`.
    pub(super) fn set_access(&mut self, tries: u32, pause: Duration) {
        // The driver retries TPMI requests itself; --retry and --pause affect only the mailbox.
        self.access = if self.platform.is_tpmi() {
            Box::new(Tpmi::new(self.host, self.platform.api_version))
        } else {
            let mut mailbox = Mailbox::new(self.host, &self.model);
            mailbox.tries = tries;
            mailbox.pause = pause;
            Box::new(mailbox)
        };
    }

    /// Reads the positions of CPUs, with the tool's messages about CPUs that the driver does not
    /// know.
    pub(super) fn read_cpus(&mut self) {
        // Without topology there are no CPUs; every command reports that itself.
        let topology = CpuTopology::read(self.host, &self.info).unwrap_or_default();
        self.map = CpuMap::read(self.host, topology, self.platform.is_tpmi());
        for cpu in self.map.unmapped.clone() {
            self.warn("ISST_IF_GET_PHY_ID: Invalid argument\n");
            self.line(&format!("Error: map logical_cpu:{cpu}\n"));
        }
    }

    /// Writes finished output to its stream, so that warnings come after it.
    pub(super) fn flush(&mut self) {
        // Traces of calls come before the results of those calls, like in the original, which
        // prints them during the calls.
        let traced = self.debug_host.take();
        if !traced.is_empty() {
            self.note(&traced);
        }
        let text = std::mem::take(&mut self.display.text);
        if text.is_empty() {
            return;
        }
        // A closed pipe or a full disk is ignored, as in the tool.
        let _ = match &mut self.results {
            Results::Err => self.err.write_all(text.as_bytes()),
            Results::Out => self.out.write_all(text.as_bytes()),
            Results::File(file) => file.write_all(text.as_bytes()),
        };
    }

    /// A warning on stderr.
    pub(super) fn warn(&mut self, text: &str) {
        self.flush();
        // With --out, the original redirects stderr itself to nothing, so warnings are lost.
        if !matches!(self.results, Results::File(_)) || self.strict {
            let _ = self.err.write_all(text.as_bytes());
        }
    }

    /// Prints a note on stdout or, with `--strict`, on stderr, because stdout is then for results
    /// only.
    pub(super) fn note(&mut self, text: &str) {
        if self.strict {
            let _ = self.err.write_all(text.as_bytes());
        } else {
            let _ = self.out.write_all(text.as_bytes());
        }
    }

    /// Prints a line among the results.
    pub(super) fn line(&mut self, text: &str) {
        self.display.text.push_str(text);
    }

    /// Prints name, message and errno on stderr like err(3), and returns the end of the run.
    pub(super) fn fatal(&mut self, code: u8, message: &str, errno: Option<Errno>) -> Ended {
        let name = self.program.rsplit('/').next().unwrap_or_default().to_owned();
        // err(3) prints strerror(0) if no call failed.
        let why = errno.map_or_else(|| "Success".to_owned(), Errno::describe);
        self.warn(&format!("{name}: {message}: {why}\n"));
        self.failed = true;
        Ended(code)
    }

    /// Prints an error among the results.
    pub(super) fn error(&mut self, text: &str) {
        self.failed = true;
        self.display.message(true, text);
    }

    /// Ends the run if it would write and the user is not root.
    pub(super) fn check_privilege(&mut self) -> Result<(), Ended> {
        if !self.read_only {
            return Ok(());
        }
        self.error("Insufficient privileges");
        self.display.finish();
        Err(Ended(1))
    }

    pub(super) fn result(&mut self, id: &Id, feature: &str, command: &str, result: Result<(), Code>) {
        self.failed |= result.is_err();
        self.display.record(id, |lines| {
            lines.section(feature, |lines| match result {
                Ok(()) => lines.value(command, "success"),
                Err(code) => lines.value(command, format_args!("failed(error {code})")),
            });
        });
    }

    pub(super) fn access(&self) -> &dyn Access {
        self.access.as_ref()
    }

    /// Returns whether this is a Cascade Lake N part, which the BIOS configures and only cpufreq
    /// shows.
    pub(super) fn is_bios_set(&self) -> bool {
        self.model.is_cascade_lake()
    }

    /// Package, die and domain of a CPU, within the tool's bounds.
    pub(super) fn id(&self, cpu: u32) -> Id {
        let Some(known) = self.map.get(cpu) else {
            return Id { cpu: cpu as i32, package: -1, die: 0, domain: -1 };
        };
        // The original indexes arrays of these sizes, and prints -1 for larger numbers.
        let within = |value: u32, end: u32| if value < end { value as i32 } else { -1 };
        Id {
            cpu: cpu as i32,
            package: within(known.package, PACKAGES),
            die: within(known.die, DIES),
            domain: within(known.domain.into(), DOMAINS),
        }
    }

    /// Present CPUs of the same package, die and power domain.
    pub(super) fn domain_cpus(&self, id: &Id) -> Vec<Cpu> {
        let same = |cpu: &&Cpu| {
            let other = self.id(cpu.number);
            (other.package, other.die, other.domain) == (id.package, id.die, id.domain)
        };
        self.map.iter().filter(same).copied().collect()
    }

    /// CPUs of a domain's core mask.
    pub(super) fn of_cores(&self, id: &Id, cores: u64) -> CpuList {
        // A domain without CPUs has no cores in a mask.
        if id.cpu < 0 {
            return CpuList::new();
        }
        // Masks have 64 bits, so larger core numbers would overflow the shift.
        let has = |cpu: &Cpu| cpu.core < 64 && cores >> cpu.core & 1 != 0;
        self.domain_cpus(id).iter().filter(|cpu| has(cpu)).map(|cpu| cpu.number).collect()
    }

    /// Runs once for each target CPU, or for each power domain; with `needs_targets`, never for
    /// domains.
    pub(super) fn each(
        &mut self,
        mut run: impl FnMut(&mut Self, &Id) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        // Cloned, because each run borrows the whole session.
        let ids = match self.targets.clone() {
            Some(targets) => {
                let online: Vec<u32> =
                    targets.iter().filter(|&cpu| self.map.present().contains(cpu)).collect();
                let mut ids = Vec::new();
                for cpu in online {
                    // On most kernels CPU 0 has no such file, and is online.
                    if cpu == 0
                        || self.number(true, &format!("/sys/devices/system/cpu/cpu{cpu}/online"))? != 0
                    {
                        ids.push(self.id(cpu));
                    }
                }
                if ids.is_empty() {
                    self.warn("No valid CPU in the list\n");
                    self.failed = true;
                }
                ids
            }
            None => self.power_domains()?,
        };
        for id in ids {
            run(self, &id)?;
        }
        Ok(())
    }

    /// Runs [`Session::each`] between the start and the end of the output.
    pub(super) fn report(
        &mut self,
        run: impl FnMut(&mut Self, &Id) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        self.display.start();
        self.each(run)?;
        self.display.finish();
        Ok(())
    }

    /// One [`Id`] per power domain, with its lowest online CPU. Domains without CPUs are included
    /// if they have registers and a CPU of the package is online.
    pub(super) fn power_domains(&mut self) -> Result<Vec<Id>, Ended> {
        // Two maps in one pass: the lowest online CPU of each domain, and the dies that have one.
        let mut lowest = std::collections::BTreeMap::new();
        let mut dies = std::collections::BTreeSet::new();
        let highest = |values: &mut dyn Iterator<Item = u32>| values.max().unwrap_or(0);
        let highest_package = highest(&mut self.map.iter().map(|cpu| cpu.package));
        let highest_die = highest(&mut self.map.iter().map(|cpu| cpu.die));
        let dies_of_first =
            1 + highest(&mut self.map.iter().filter(|cpu| cpu.package == 0).map(|cpu| cpu.die));
        for cpu in self.map.present().iter().collect::<Vec<_>>() {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
            // On most kernels CPU 0 lacks the file; the result is then -1, which counts as online.
            if self.number(cpu != 0, &path)? == 0 {
                continue;
            }
            let id = self.id(cpu);
            // Outside the original's arrays; it skips them too.
            if id.package < 0 || id.die < 0 || id.domain < 0 {
                continue;
            }
            // Die numbers continue from package to package.
            let die = id.die as u32 % dies_of_first;
            dies.insert((id.package as u32, die));
            lowest.entry((id.package as u32, die, id.domain as u32)).or_insert(cpu);
        }
        let mut ids = Vec::new();
        for package in 0..PACKAGES {
            if highest_die > highest_package {
                // If there are more dies than packages, each die is a power domain, and the
                // domain's number is the die's.
                for domain in 0..DOMAINS {
                    let cpu = lowest.get(&(package, domain, domain)).copied();
                    let die = cpu.map_or(-1, |cpu| self.id(cpu).die);
                    ids.push(Id { cpu: or_none(cpu), package: package as i32, die, domain: domain as i32 });
                }
                continue;
            }
            for die in (0..DIES).filter(|&die| dies.contains(&(package, die))) {
                for domain in 0..DOMAINS {
                    let cpu = lowest.get(&(package, die, domain)).copied();
                    let die = cpu.map_or(package as i32, |cpu| self.id(cpu).die);
                    ids.push(Id { cpu: or_none(cpu), package: package as i32, die, domain: domain as i32 });
                }
            }
        }
        // Some drivers fault when asked about a domain without registers (see flyball_host::isst).
        ids.retain(|id| place(id).is_some_and(|place| self.access().has(&place)));
        Ok(ids)
    }

    /// Reads a number from a file. A missing file gives -1, or ends the run if `must`; a file
    /// without a number ends the run.
    pub(super) fn number(&mut self, must: bool, path: &str) -> Result<i64, Ended> {
        let text = match self.host.read(path) {
            Ok(text) => text,
            Err(error) if !self.host.exists(path) || error.errno == Errno::ACCES => {
                return if must {
                    Err(self.fatal(1, &format!("{path}: open failed"), Some(error.errno)))
                } else {
                    Ok(-1)
                };
            }
            Err(error) => {
                let message = format!("{path}: failed to parse number from file");
                return Err(self.fatal(1, &message, Some(error.errno)));
            }
        };
        // fscanf(3) with %d: leading white space, one sign and digits; anything after them is
        // ignored.
        let digits: String = text
            .trim_start()
            .char_indices()
            .take_while(|(at, c)| c.is_ascii_digit() || *at == 0 && matches!(c, '-' | '+'))
            .map(|(_, c)| c)
            .collect();
        match digits.trim_start_matches('+').parse() {
            Ok(number) => Ok(number),
            Err(_) => Err(self.fatal(1, &format!("{path}: failed to parse number from file"), None)),
        }
    }

    /// Passes the firmware's answer through; an error becomes [`FAILED`]. Without a driver or node
    /// the run ends.
    pub(super) fn ask<T>(&mut self, answer: Result<T, HostError>) -> Result<Result<T, Code>, Ended> {
        let error = match answer {
            Ok(value) => return Ok(Ok(value)),
            Err(error) => error,
        };
        // The original shows only the errno; the explanation is for people, who use --strict.
        if self.strict {
            let why = isst::explain(self.host, &error);
            self.warn(&format!("{why}\n"));
        }
        // The messages below are those of the tool's mailbox code; its TPMI code prints none.
        if self.platform.is_tpmi() {
            return Ok(Err(FAILED));
        }
        if error.path == isst::NODE {
            // err(-1, ...), whose exit status is the low byte: 255.
            return Err(self.fatal(255, &format!("{} open failed", isst::NODE), Some(error.errno)));
        }
        if error.errno == Errno::NOTTY {
            let (call, modules) = if error.path.starts_with("MMIO") {
                ("ISST_IF_IO_COMMAND", "isst_if_mmio")
            } else {
                ("ISST_IF_MBOX_COMMAND", "isst_if_mbox_pci or isst_if_mbox_msr")
            };
            self.warn(&format!("{call}\n: {}\n", error.errno.describe()));
            self.warn(&format!("Check presence of kernel modules: {modules}\n"));
            self.failed = true;
            // exit(0) after this message, as if it had succeeded.
            return Err(Ended(0));
        }
        if error.path.starts_with("MSR") {
            self.warn(&format!("ISST_IF_MSR_COMMAND: {}\n", error.errno.describe()));
        }
        Ok(Err(FAILED))
    }

    /// [`Session::ask`] for a class register, which most mailbox parts have in MMIO space. Errors
    /// there have a separate message.
    pub(super) fn ask_class<T>(
        &mut self,
        id: &Id,
        register: u32,
        write: bool,
        answer: Result<T, HostError>,
    ) -> Result<Result<T, Code>, Ended> {
        let refused = answer.as_ref().is_err_and(|error| error.path.starts_with("MMIO"));
        let answer = self.ask(answer)?;
        if refused {
            let write = u8::from(write);
            self.line(&format!("Error: mmio_cmd cpu:{} reg:{register:x} read_write:{write:x}\n", id.cpu));
        }
        Ok(answer)
    }

    /// [`Session::ask`] for a turbo MSR.
    pub(super) fn ask_msr<T>(
        &mut self,
        id: &Id,
        register: u32,
        write: bool,
        answer: Result<T, HostError>,
    ) -> Result<Result<T, Code>, Ended> {
        match answer {
            Err(error) if error.path != isst::NODE => {
                self.warn(&format!("ISST_IF_MSR_COMMAND: {}\n", error.errno.describe()));
                let write = u8::from(write);
                self.line(&format!("Error: msr_cmd cpu:{} msr:{register:x} read_write:{write}\n", id.cpu));
                Ok(Err(FAILED))
            }
            Err(error) => Err(self.fatal(255, &format!("{} open failed", isst::NODE), Some(error.errno))),
            Ok(value) => Ok(Ok(value)),
        }
    }

    /// Reads the levels. If the mailbox fails, returns a part with only level 0, locked.
    pub(super) fn levels(&mut self, id: &Id) -> Result<Result<Levels, Code>, Ended> {
        let answer = self.at(id, |access, place| access.levels(place));
        let answer = self.ask(answer)?;
        // Some platforms have other features but no levels, so their firmware rejects the request.
        if answer.is_err() && !self.platform.is_tpmi() {
            return Ok(Ok(Levels { version: 0, highest: 0, current: 0, locked: true, enabled: false }));
        }
        Ok(answer)
    }

    /// Reads which features a level has, and which are on, including SST-CP.
    pub(super) fn control(&mut self, id: &Id, level: u8) -> Result<Result<Control, Code>, Ended> {
        let features = self.at(id, |access, place| access.features(place, level));
        let features = answered!(self.ask(features)?);
        let power = self.at(id, |access, place| access.pm_config(place));
        let power = match self.ask(power)? {
            Ok(power) => power,
            Err(code) if self.platform.is_tpmi() => return Ok(Err(code)),
            // Mailbox firmware without SST-CP rejects the request; SST-CP then counts as missing.
            Err(_) => PmConfig::default(),
        };
        Ok(Ok(Control { features, core_power: power.supported, core_power_on: power.enabled }))
    }

    /// Makes a request to a domain's firmware. A domain outside the tool's bounds is rejected.
    pub(super) fn at<T>(
        &self,
        id: &Id,
        question: impl FnOnce(&dyn Access, &DomainAddress) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let nowhere =
            || HostError::new(flyball_host::Op::Isst, "a CPU of no known power domain", Errno::NODEV);
        question(self.access(), &place(id).ok_or_else(nowhere)?)
    }

    /// Returns whether the tool regards a CPU as online: without the attribute (CPU 0) it counts as
    /// offline.
    pub(super) fn seems_online(&self, cpu: u32) -> bool {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        (self.strict && is_online(self.host, cpu))
            || self.host.read(&path).is_ok_and(|text| text.starts_with('1'))
    }
}

/// The features that a level has, and which of them are on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Control {
    pub features: Features,
    pub core_power: bool,
    pub core_power_on: bool,
}

fn or_none(cpu: Option<u32>) -> i32 {
    cpu.map_or(-1, |cpu| cpu as i32)
}

/// The address of an [`Id`]; `None` if package or domain are outside the tool's bounds.
pub(super) fn place(id: &Id) -> Option<DomainAddress> {
    Some(DomainAddress {
        cpu: u32::try_from(id.cpu).ok(),
        package: u8::try_from(id.package).ok()?,
        domain: u8::try_from(id.domain).ok()?,
    })
}
