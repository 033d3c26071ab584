//! Chooses and opens the machine of a command: `-M` and its related options.

use std::{ffi::OsString, fmt, path::PathBuf, str::FromStr};

use flyball_host::{Archive, Host, Live, Plain, Recorded};
use flyball_process::{bounds, confine::Confinement};
use flyball_sim::{Kernel, UnknownKernel, silicon::MachineSpec};
use flyball_simhost::{FaultRule, SimHost, SimSetup};

use crate::exit::{Exit, Failure};

#[derive(Debug, Clone)]
pub(crate) enum MachineArg {
    /// The machine that this process runs on.
    Live,
    /// A machine that exists only in software.
    Simulated(SimSetup),
    /// A directory of plain files that can be written, for tests.
    Tree(PathBuf),
    /// A recorded machine: a directory with sys/ and proc/, an archive, or a file of facts.
    Recorded(PathBuf),
    /// A guest, by the name that flyball-guest takes. The whole command line runs inside it.
    Guest(String),
}

impl FromStr for MachineArg {
    type Err = String;

    fn from_str(text: &str) -> Result<MachineArg, String> {
        if text == "live" {
            return Ok(MachineArg::Live);
        }
        Ok(match text.split_once(':') {
            Some(("sim", rest)) => {
                MachineArg::Simulated(SimSetup::parse(rest).map_err(|error| error.to_string())?)
            }
            Some(("tree", root)) => MachineArg::Tree(root.into()),
            Some(("guest", rest)) => MachineArg::Guest(rest.to_owned()),
            // Everything else is a path. Opening it checks whether it exists, with a message that
            // lists the alternatives.
            _ => MachineArg::Recorded(text.into()),
        })
    }
}

impl fmt::Display for MachineArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineArg::Live => f.write_str("live"),
            MachineArg::Simulated(setup) => write!(f, "sim:{setup}"),
            MachineArg::Tree(root) => write!(f, "tree:{}", root.display()),
            MachineArg::Recorded(path) => path.display().fmt(f),
            MachineArg::Guest(guest) => write!(f, "guest:{guest}"),
        }
    }
}

impl MachineArg {
    pub(crate) fn open(&self) -> Result<Box<dyn Host>, Failure> {
        match self {
            MachineArg::Live => Ok(Box::new(Live::new())),
            MachineArg::Simulated(setup) => Ok(Box::new(simulated(setup)?)),
            MachineArg::Tree(root) => Ok(Box::new(Plain::open(root)?)),
            // Set the bounds before reading, so that they apply to unpacking too. If the system
            // refuses them, it has its own limits.
            MachineArg::Recorded(path) if path.is_file() => {
                let _ = bound();
                Ok(Box::new(Archive::open(&self.to_string()).map_err(Failure::usage)?))
            }
            // A common mistake. If the path existed, it would have been used.
            MachineArg::Recorded(path) if !path.exists() && is_simulated_name(path) => Err(Failure::usage(
                format!("no machine at '{self}'; did you mean -M sim:{self}, a simulated one?"),
            )),
            MachineArg::Recorded(path) if !path.exists() => {
                let is_number = self.to_string().parse::<u32>().is_ok();
                let hint = if is_number { "\nhint: -M of hyperfine is --max-rounds here" } else { "" };
                Err(Failure::usage(format!(
                    "no file or directory '{self}'; give live, sim:NAME (see 'flyball sim list'), guest:NAME, or the path of a \
                     recorded machine{hint}"
                )))
            }
            MachineArg::Recorded(path) => match Recorded::open(path) {
                // For example, the test data of intel/pepc is packed.
                Ok(host) if !host.exists(flyball_host::topology::CPUS) => Err(Failure::usage(format!(
                    "no machine at '{self}': it has no sys/devices/system/cpu; unpack it first if its files are packed"
                ))),
                Ok(host) => {
                    let _ = bound();
                    Ok(Box::new(host))
                }
                Err(error) => Err(Failure::usage(format!(
                    "no machine at '{self}': {error}; give live, sim:NAME (see 'flyball sim list'), guest:NAME, a recording of \
                     'flyball record', or a directory that holds sys/ and proc/"
                ))),
            },
            MachineArg::Guest(_) => {
                Err(Failure::usage(format!("'{self}' is a guest: it runs the whole command, with -M")))
            }
        }
    }

    /// Opens the machine without printing on stderr, for the second process of a command and for
    /// completion.
    pub(crate) fn open_quietly(&self) -> Result<Box<dyn Host>, Failure> {
        match self {
            // Not simulated(), which announces the machine. The command's first process has done
            // that.
            MachineArg::Simulated(setup) => Ok(Box::new(SimHost::open(setup)?)),
            other => other.open(),
        }
    }

    /// Adds the files of a machine that another user may have described, recorded or left in a
    /// state. Returns `false` for the live machine, a guest and a tree, whose files cannot be
    /// listed in advance.
    pub(crate) fn files(&self, files: &mut Confinement) -> bool {
        match self {
            MachineArg::Live | MachineArg::Tree(_) | MachineArg::Guest(_) => return false,
            MachineArg::Recorded(path) => files.read(path),
            MachineArg::Simulated(setup) => {
                files.read(&setup.name);
                if let Some(state) = &setup.state {
                    // The state file is locked and updated, and the topology file is next to it.
                    files.write(state);
                }
            }
        }
        true
    }

    pub(crate) fn open_simulated(&self) -> Result<Option<SimHost>, Failure> {
        match self {
            MachineArg::Simulated(setup) => simulated(setup).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the options that choose this machine, for another flyball process.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let MachineArg::Simulated(setup) = self else { return vec!["-M".into(), self.to_string().into()] };
        let mut arguments = Vec::new();
        let mut setup = setup.clone();
        // In the text after -M, a comma would end the path.
        if let Some(state) = setup.state.take() {
            arguments.extend(["--sim-state".into(), state.into_os_string()]);
        }
        arguments.extend(["-M".into(), MachineArg::Simulated(setup).to_string().into()]);
        arguments
    }
}

/// Memory limit for a command on a recorded machine: 64 times what `show` uses with 512 CPUs (32
/// MiB).
const MAX_MEMORY: u64 = 2 << 30;
/// CPU time limit of such a command, seconds. With 512 CPUs, `doctor` takes a third of a second.
const MAX_SECONDS: u64 = 300;

/// Limits this process before it reads a machine or a series that may come from anybody. Each
/// reader has its own bounds, but these can add up, as with a file of 16 MiB that 8192 CPUs link
/// to.
pub(crate) fn bound() -> Option<bounds::Before> {
    // Continue if this process may not even lower its limits.
    bounds::bound(bounds::Bounds {
        memory: MAX_MEMORY,
        seconds: MAX_SECONDS,
        out_of_memory: "flyball: the files take more than 2 GiB of memory, which no real machine or series does; \
                        docs/limits.md has the bounds\n",
        out_of_time: "flyball: the files take more than 300 s of processor time, which no real machine or series does; \
                      docs/limits.md has the bounds\n",
        code: Exit::Limited.code(),
    })
    .ok()
}

/// Returns whether a path is the name of a simulated machine without `sim:`.
fn is_simulated_name(path: &std::path::Path) -> bool {
    path.to_str().is_some_and(|name| MachineSpec::names().any(|known| known == name))
}

/// Boots a simulated machine and announces it.
fn simulated(setup: &SimSetup) -> Result<SimHost, Failure> {
    // Anybody may have written the description, as with a recorded machine. The simulation itself
    // may take any time.
    let before = MachineSpec::builtin_text(&setup.name).is_none().then(bound).flatten();
    let machine = SimHost::open(setup)?;
    before.into_iter().for_each(bounds::Before::set_again);
    eprintln!("flyball: simulated: {}, kernel {}", machine.name(), setup.kernel);
    Ok(machine)
}

/// Returns the help of `--kernel`, with the simulated versions.
fn kernel_help() -> String {
    let (first, last) = (Kernel::ALL[0], Kernel::ALL[Kernel::ALL.len() - 1]);
    format!(
        "Kernel that a simulated machine models ({first} to {last}) or that a guest boots: a version that \
         `flyball guest fetch` has stored, a bzImage, a vmlinux or a Debian package"
    )
}

/// The options that choose a machine.
#[derive(Debug, clap::Args)]
pub(crate) struct MachineOptions {
    /// Machine: live, sim:NAME (simulated), guest:NAME (run in a guest kernel), or a recording. A
    /// recording is a file of `flyball record`, or a directory with sys/ and proc/.
    #[arg(short = 'M', long, global = true, help_heading = EVERYWHERE, default_value = "live", value_name = "MACHINE")]
    pub machine: MachineArg,

    /// Kernel of a simulated machine, or that a guest boots.
    #[arg(long, help = kernel_help(), global = true, help_heading = SIMULATED, value_name = "VERSION|FILE", hide_short_help = true)]
    pub kernel: Option<String>,

    /// Keep a simulated machine's state in this file between commands.
    #[arg(long, global = true, help_heading = SIMULATED, value_name = "FILE", hide_short_help = true)]
    pub sim_state: Option<PathBuf>,

    /// Inject a fault into a simulated machine, by rule ("write cpufreq/policy*/scaling_max_freq
    /// fails EIO nth 3", "offline 3 after 2s", "fan blocked"); `flyball sim --help` lists the
    /// forms. May be repeated.
    #[arg(long, global = true, help_heading = SIMULATED, value_name = "RULE", hide_short_help = true)]
    pub sim_fault: Vec<FaultRule>,
}

/// The heading of the options that every command has.
pub(crate) const EVERYWHERE: &str = "Common options";

/// The heading of the additional options of simulated machines and guests.
const SIMULATED: &str = "Simulated machines and guests (flyball sim --help)";

impl MachineOptions {
    /// Returns the machine, with the other options applied.
    pub(crate) fn machine(&self) -> Result<MachineArg, Failure> {
        let given = [
            ("--kernel", self.kernel.is_some()),
            ("--sim-state", self.sim_state.is_some()),
            ("--sim-fault", !self.sim_fault.is_empty()),
        ];
        let mut machine = self.machine.clone();
        let takes: &[&str] = match &mut machine {
            MachineArg::Simulated(setup) => {
                self.adjust(setup)?;
                &["--kernel", "--sim-state", "--sim-fault"]
            }
            MachineArg::Guest(_) => &["--kernel"],
            _ => &[],
        };
        match given.into_iter().find(|(option, given)| *given && !takes.contains(option)) {
            Some((option, _)) => {
                Err(Failure::usage(format!("{option} is for simulated machines: give -M sim:NAME too")))
            }
            // Fail instead of ignoring the option: the user may believe that a state is kept or a
            // fault injected.
            None => Ok(machine),
        }
    }

    /// Returns the simulated machine of an argument, with the other options applied.
    pub(crate) fn simulated(&self, name: &str) -> Result<SimSetup, Failure> {
        let name = name.strip_prefix("sim:").unwrap_or(name);
        let mut setup = SimSetup::parse(name).map_err(Failure::usage)?;
        self.adjust(&mut setup)?;
        Ok(setup)
    }

    fn adjust(&self, setup: &mut SimSetup) -> Result<(), Failure> {
        if let Some(kernel) = &self.kernel {
            setup.kernel = kernel.parse().map_err(|error: UnknownKernel| Failure::usage(error))?;
        }
        if let Some(state) = &self.sim_state {
            setup.state = Some(state.clone());
        }
        // Added to the faults in the machine's file or after -M.
        setup.faults.extend(self.sim_fault.iter().cloned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_printed_as_it_is_typed() {
        for text in [
            "live",
            "tree:/tmp/x",
            "some/directory",
            "sim:ryzen-5750g",
            "sim:epyc-512,kernel=7.2,boot=amd_pstate=passive quiet,interface=cppc-msr,seed=3,state=/tmp/box",
            "sim:i7-2600,fault=write cpu1/cpufreq/scaling_max_freq fails EIO nth 3",
            "guest:ryzen-5750g,cpus=2",
        ] {
            assert_eq!(text.parse::<MachineArg>().unwrap().to_string(), text);
        }
        assert!("sim:x,kernel=5.4".parse::<MachineArg>().is_err());
    }
}
