//! Selects a simulated machine and its boot:
//! `NAME[,kernel=V][,boot=OPTION][,interface=WORD][,seed=N][,state=FILE][,fault=RULE]`.

use std::{
    fmt,
    fs::File,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use flyball_host::{Archive, Host, Recorded};
use flyball_process::terminal;
use flyball_sim::{
    Boot, Fault, Kernel, Recording, RuleError, SimMachine, UnknownKernel,
    silicon::{
        Interface, MachineSpec,
        spec::{MAX_TEXT, Vendor},
    },
    workload::Workload,
};
use rustix::fs::OFlags;

use crate::SimError;

/// A simulated machine and its boot: the text after `sim:`.
#[derive(Debug, Clone, PartialEq)]
pub struct SimSetup {
    /// A built-in machine's name, or the path of a machine file or of a recorded machine.
    pub name: String,
    /// The modelled kernel version.
    pub kernel: Kernel,
    /// Kernel command line.
    pub boot: Vec<String>,
    pub seed: u64,
    /// The file that keeps the machine's state between processes.
    pub state: Option<PathBuf>,
    /// Faults to inject.
    pub faults: Vec<FaultRule>,
    /// The interface of its firmware, if it differs from the machine file: HWP may be off, for
    /// example.
    pub interface: Option<&'static str>,
}

/// Names of firmware interfaces, as for guests, and their meaning on Intel and on AMD.
const INTERFACES: &[(&str, Option<Interface>, Option<Interface>)] = &[
    ("p-states", Some(Interface::PerfCtl), Some(Interface::AmdPstate)),
    ("hwp", Some(Interface::Hwp), None),
    ("cppc-msr", None, Some(Interface::CppcMsr)),
    ("cppc-mailbox", None, Some(Interface::CppcShared)),
];

/// A rule that injects a fault, with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    text: String,
    fault: Fault,
}

/// Why a text does not describe a simulated machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SetupError {
    #[error("fault '{text}': a rule must not contain ';'")]
    Semicolon { text: String },
    #[error(transparent)]
    Fault(#[from] RuleError),
    #[error(transparent)]
    Kernel(#[from] UnknownKernel),
    #[error("seed '{text}' is not a whole number")]
    Seed { text: String },
    #[error("interface '{text}' is not one of {}", INTERFACES.iter().map(|(word, ..)| *word).collect::<Vec<_>>().join(", "))]
    Interface { text: String },
    #[error(
        "'{part}' in 'sim:{text}' is not understood; after the name come kernel=6.12, boot=amd_pstate=passive, \
         interface=p-states, seed=N, state=FILE or fault=RULE (in it ';' for ','), separated by commas"
    )]
    Option { part: String, text: String },
}

impl FromStr for FaultRule {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<FaultRule, SetupError> {
        // In a machine's text, ';' stands for a rule's ','.
        if text.contains(';') {
            return Err(SetupError::Semicolon { text: text.to_owned() });
        }
        Ok(FaultRule { text: text.to_owned(), fault: text.parse()? })
    }
}

impl fmt::Display for SimSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.kernel != KERNEL {
            write!(f, ",kernel={}", self.kernel)?;
        }
        if !self.boot.is_empty() {
            write!(f, ",boot={}", self.boot.join(" "))?;
        }
        if let Some(word) = self.interface {
            write!(f, ",interface={word}")?;
        }
        // Omit defaults, so that the text is what a user would have typed.
        if self.seed != 0 {
            write!(f, ",seed={}", self.seed)?;
        }
        if let Some(state) = &self.state {
            write!(f, ",state={}", state.display())?;
        }
        self.faults.iter().try_for_each(|rule| write!(f, ",fault={}", rule.text.replace(',', ";")))
    }
}

/// A recorded machine, read through its host.
struct HostRecording<'a> {
    name: String,
    host: &'a dyn Host,
}

impl Recording for HostRecording<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn file(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.host.read_into(&format!("/{path}"), &mut bytes).ok()?;
        Some(bytes)
    }

    fn folder(&self, path: &str) -> Vec<String> {
        self.host.list(&format!("/{path}")).unwrap_or_default()
    }

    fn register(&self, cpu: u32, register: u32) -> Option<u64> {
        self.host.msr(cpu, register).ok()
    }
}

/// Describes a recorded machine.
fn described(path: &Path, host: &dyn Host) -> Result<MachineSpec, SimError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".tar").unwrap_or(&name).to_owned();
    flyball_sim::describe(&HostRecording { name, host }).map_err(|error| SimError::Setup(error.to_string()))
}

/// The default kernel version.
const KERNEL: Kernel = Kernel::V6_12;

impl SimSetup {
    /// Parses the text after `sim:`.
    ///
    /// # Errors
    /// An unknown option, or an invalid value.
    pub fn parse(text: &str) -> Result<SimSetup, SetupError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default().to_owned();
        let mut choice = SimSetup {
            name,
            kernel: KERNEL,
            boot: Vec::new(),
            seed: 0,
            state: None,
            faults: Vec::new(),
            interface: None,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("kernel", value)) => {
                    choice.kernel = value.parse()?;
                }
                Some(("boot", value)) => choice.boot.extend(value.split_whitespace().map(str::to_owned)),
                Some(("seed", value)) => {
                    choice.seed = value.parse().map_err(|_| SetupError::Seed { text: value.to_owned() })?;
                }
                Some(("state", value)) => choice.state = Some(PathBuf::from(value)),
                Some(("interface", value)) => {
                    let known = INTERFACES.iter().map(|(word, ..)| *word).find(|word| *word == value);
                    choice.interface =
                        Some(known.ok_or_else(|| SetupError::Interface { text: value.to_owned() })?);
                }
                Some(("fault", value)) => choice.faults.push(value.replace(';', ",").parse()?),
                // Part of a list on the kernel's command line: boot=nohz_full=3,7.
                _ if part.starts_with(|c: char| c.is_ascii_digit()) && !choice.boot.is_empty() => {
                    let mut words = part.split_whitespace();
                    if let (Some(last), Some(more)) = (choice.boot.last_mut(), words.next()) {
                        *last += &format!(",{more}");
                    }
                    choice.boot.extend(words.map(str::to_owned));
                }
                _ => {
                    return Err(SetupError::Option { part: part.to_owned(), text: text.to_owned() });
                }
            }
        }
        Ok(choice)
    }

    /// Path of the journal of changes to the machine, next to its state file. `None` if the machine
    /// ends with the process.
    pub fn journal(&self) -> Option<PathBuf> {
        let mut path = self.state.clone()?.into_os_string();
        path.push(".journal");
        Some(path.into())
    }

    /// Returns the description of the machine.
    ///
    /// # Errors
    /// No machine has this name, or its file cannot be used.
    pub fn spec(&self) -> Result<MachineSpec, SimError> {
        // Built-in names first: a file in the current directory must not change what a command
        // means.
        if MachineSpec::builtin_text(&self.name).is_some() {
            return MachineSpec::builtin(&self.name).map_err(|error| SimError::Setup(error.to_string()));
        }
        let path = Path::new(&self.name);
        // Files from `record` have only these extensions; machine files are text.
        if path.is_file() && path.extension().is_none_or(|end| end == "zst" || end == "tzst") {
            let recorded = Archive::open(&self.name).map_err(|error| SimError::Setup(error.to_string()))?;
            return described(path, &recorded);
        }
        if path.is_file() {
            let text = read_file(path).map_err(|error| {
                SimError::Setup(format!("cannot read machine file {}: {error}", path.display()))
            })?;
            return MachineSpec::from_toml(&text)
                .map_err(|error| SimError::Setup(format!("{}: {error}", path.display())));
        }
        if path.is_dir() {
            let recorded = Recorded::open(path).map_err(|error| SimError::Setup(error.to_string()))?;
            return described(path, &recorded);
        }
        let names: Vec<&str> = MachineSpec::names().collect();
        let meant =
            nearest(&self.name, &names).map_or_else(String::new, |name| format!(" did you mean '{name}'?"));
        Err(SimError::Setup(format!(
            "unknown simulated machine '{}';{meant} expected {}, or the path of a machine file or of a recorded machine",
            self.name,
            names.join(", ")
        )))
    }

    /// Boots the machine without its saved state.
    ///
    /// # Errors
    /// Fails like [`SimSetup::spec`], and if the machine does not have the interface or cannot boot
    /// like this.
    pub fn boot(&self) -> Result<SimMachine, SimError> {
        let boot = Boot { options: self.boot.clone(), ..Boot::default() };
        if let Some(option) = boot.ignored() {
            return Err(SimError::Setup(format!(
                "boot={option}: simulated machines follow only {}",
                Boot::FOLLOWED.join(", ")
            )));
        }
        let mut spec = self.spec()?;
        if let Some(word) = self.interface {
            // A word can name different interfaces on Intel and AMD (`p-states`).
            let intel = spec.identity.vendor == Vendor::Intel;
            let meant = INTERFACES.iter().find(|(known, ..)| *known == word);
            let meant = meant.and_then(|(_, of_intel, of_amd)| if intel { *of_intel } else { *of_amd });
            spec.firmware.interface = meant.ok_or_else(|| {
                SimError::Setup(format!("interface={word} does not exist on processors of this vendor"))
            })?;
        }
        let mut machine = SimMachine::boot(spec, self.kernel, boot, self.seed)
            .map_err(|error| SimError::Setup(error.to_string()))?;
        for rule in &self.faults {
            machine.inject(rule.fault.clone());
        }
        Ok(machine)
    }

    /// Returns whether a fault depends on reads.
    pub(crate) fn watches_reads(&self) -> bool {
        self.faults.iter().any(|rule| rule.fault.watches_reads())
    }

    /// Prints a warning for faults on files or devices that the machine does not have.
    pub fn warn_of_idle_faults(&self, machine: &mut SimMachine) {
        for rule in &self.faults {
            if let Some(what) = machine.lacks(&rule.fault) {
                terminal::complain(format_args!(
                    "flyball: warning: fault '{}': sim:{} has no {what}\n",
                    rule.text,
                    machine.name()
                ));
            }
        }
    }

    /// The first line of a state file, which must match.
    pub(crate) fn heading(&self) -> String {
        format!(
            "flyball-sim 1 {} kernel={} seed={} boot={}",
            self.name,
            self.kernel,
            self.seed,
            self.boot.join(" ")
        ) + &self.interface.map_or_else(String::new, |word| format!(" interface={word}"))
            + &self.faults.iter().map(|rule| format!(" fault={}", rule.text)).collect::<String>()
    }
}

/// Reads a machine or workload file, which must be a regular file of at most [`MAX_TEXT`] bytes.
///
/// # Errors
/// The file cannot be read, is not a regular file, or is longer.
pub fn read_file(path: &Path) -> std::io::Result<String> {
    let refuse = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, what);
    // Not blocking: opening a FIFO would wait for its writer.
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(refuse("not a regular file"));
    }
    let mut text = String::new();
    // Read one byte more than allowed, to detect a longer file; the reported length may be 0
    // (/proc).
    file.take(MAX_TEXT as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_TEXT {
        return Err(refuse("longer than 1 MiB"));
    }
    Ok(text)
}

/// Returns the model of a workload, built-in or from a file.
///
/// # Errors
/// No such model exists, or its file cannot be used.
pub fn workload_model(name: &str, amount: Option<u64>) -> Result<Workload, SimError> {
    let mut model = if Workload::builtin_text(name).is_some() {
        Workload::builtin(name).map_err(|error| SimError::Setup(error.to_string()))?
    } else {
        let text = read_file(Path::new(name)).map_err(|error| {
            let names: Vec<&str> = Workload::names().collect();
            SimError::Setup(format!(
                "unknown workload model '{name}' (expected {}, or a file): {error}",
                names.join(", ")
            ))
        })?;
        Workload::from_toml(&text).map_err(|error| SimError::Setup(format!("{name}: {error}")))?
    };
    if let Some(amount) = amount {
        model.set_length(amount);
    }
    Ok(model)
}

/// Returns the name that was probably meant: at most a third of its letters differ.
fn nearest<'n>(wanted: &str, names: &[&'n str]) -> Option<&'n str> {
    let near = names.iter().map(|name| (strsim::levenshtein(wanted, name), *name)).min()?;
    // More distant names are guesses that mislead.
    (near.0 * 3 <= near.1.chars().count().max(3)).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_is_read_and_printed() {
        let text = "ryzen-5750g,kernel=7.2,boot=amd_pstate=passive,seed=3";
        let setup = SimSetup::parse(text).unwrap();
        assert_eq!((setup.kernel, setup.seed), (Kernel::V7_2, 3));
        assert_eq!(setup.boot, ["amd_pstate=passive"]);
        assert_eq!(setup.to_string(), text);
        assert!(SimSetup::parse("x,kernel=5.4").is_err());
        assert!(SimSetup::parse("x,colour=red").is_err());
        assert!(SimSetup::parse("no-such-machine").unwrap().spec().is_err());
    }

    #[test]
    fn a_near_name_is_suggested() {
        let names: Vec<&str> = MachineSpec::names().collect();
        assert_eq!(nearest("ryzen-5750", &names), Some("ryzen-5750g"));
        assert_eq!(nearest("epic-512", &names), Some("epyc-512"));
        assert_eq!(nearest("laptop", &names), None);
        assert_eq!(nearest("", &names), None);
    }

    #[test]
    fn boot_options_are_followed_or_rejected() {
        let boot = |text: &str| SimSetup::parse(text).expect("it is understood").boot();
        let machine = boot("gold-6138,boot=nosmt").expect("it boots");
        assert!(machine.is_online(19) && !machine.is_online(20));
        let error = boot("gold-6138,boot=idle=halt").expect_err("no model follows it").to_string();
        assert!(error.starts_with("boot=idle=halt: simulated machines follow only"), "{error}");
    }
}
