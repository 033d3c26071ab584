//! Which machine a command works on: `-M` and the options that go with it, parsed once, and how
//! that machine is opened.

use std::{ffi::OsString, fmt, path::PathBuf, str::FromStr};

use flyball_host::{Archive, Host, Live, Plain, Recorded};
use flyball_process::{bounds, confine::Confinement};
use flyball_sim::{Kernel, UnknownKernel, silicon::MachineSpec};
use flyball_simhost::{FaultRule, SimHost, SimSetup};

use crate::exit::{Exit, Failure};

/// The machine that `-M` names.
#[derive(Debug, Clone)]
pub(crate) enum MachineArg {
    /// The machine that this process runs on.
    Live,
    /// A machine that exists only in software.
    Simulated(SimSetup),
    /// A directory of plain files that take writes, for tests.
    Tree(PathBuf),
    /// A recorded machine: a directory that holds sys/ and proc/, an archive, or a file of facts.
    Recorded(PathBuf),
    /// A guest in which the whole command line runs, as the program flyball-guest takes it.
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
            // Everything else is a path; whether it exists is judged when it is opened, where the
            // message can list the alternatives.
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
    /// Opens the machine.
    pub(crate) fn open(&self) -> Result<Box<dyn Host>, Failure> {
        match self {
            MachineArg::Live => Ok(Box::new(Live::new())),
            MachineArg::Simulated(setup) => Ok(Box::new(simulated(setup)?)),
            MachineArg::Tree(root) => Ok(Box::new(Plain::open(root)?)),
            // Before anything is read: the bounds hold for the unpacking, too. A system that
            // refuses them has its own limits.
            MachineArg::Recorded(path) if path.is_file() => {
                let _ = bound();
                Ok(Box::new(Archive::open(&self.to_string()).map_err(Failure::usage)?))
            }
            // A frequent mistake, and a path of that name would have been taken.
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
                // The test data of intel/pepc is packed like this.
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

    /// Opens the machine without a word on stderr: for a second process of one command, and for
    /// completion.
    pub(crate) fn open_quietly(&self) -> Result<Box<dyn Host>, Failure> {
        match self {
            // Not simulated(), which announces the machine; the first process of the command has
            // done so.
            MachineArg::Simulated(setup) => Ok(Box::new(SimHost::open(setup)?)),
            other => other.open(),
        }
    }

    /// Adds the files of a machine that another user may have described, recorded or left in a
    /// state; `false` for this machine, a guest and a tree, whose files cannot be listed
    /// beforehand.
    pub(crate) fn files(&self, files: &mut Confinement) -> bool {
        match self {
            MachineArg::Live | MachineArg::Tree(_) | MachineArg::Guest(_) => return false,
            MachineArg::Recorded(path) => files.read(path),
            MachineArg::Simulated(setup) => {
                files.read(&setup.name);
                if let Some(state) = &setup.state {
                    // It is locked, led on, and has the topology's file next to it.
                    files.write(state);
                }
            }
        }
        true
    }

    /// The simulated machine, if it is one.
    pub(crate) fn open_simulated(&self) -> Result<Option<SimHost>, Failure> {
        match self {
            MachineArg::Simulated(setup) => simulated(setup).map(Some),
            _ => Ok(None),
        }
    }

    /// The options that choose this machine, for another flyball.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let MachineArg::Simulated(setup) = self else { return vec!["-M".into(), self.to_string().into()] };
        let mut arguments = Vec::new();
        let mut setup = setup.clone();
        // A path may hold a comma, which would end it in the text after -M.
        if let Some(state) = setup.state.take() {
            arguments.extend(["--sim-state".into(), state.into_os_string()]);
        }
        arguments.extend(["-M".into(), MachineArg::Simulated(setup).to_string().into()]);
        arguments
    }
}

/// Memory of a command that looks at a recorded machine: 64 times what `show` takes for 512 CPUs
/// (32 MiB).
const MAX_MEMORY: u64 = 2 << 30;
/// Seconds of processor time of such a command. `doctor` takes a third of one for 512 CPUs.
const MAX_SECONDS: u64 = 300;

/// Bounds this process before it reads a machine or a series that may come from anybody. What the
/// readers bound each by itself can still add up: a file of 16 MiB that 8192 CPUs have links to.
pub(crate) fn bound() -> Option<bounds::Before> {
    // A process that may not even lower its limits goes on as it is.
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

/// Whether a name is that of a simulated machine, without its `sim:`.
fn is_simulated_name(path: &std::path::Path) -> bool {
    path.to_str().is_some_and(|name| MachineSpec::names().any(|known| known == name))
}

/// Boots a simulated machine and says that it is one.
fn simulated(setup: &SimSetup) -> Result<SimHost, Failure> {
    // A description may come from anybody, as a recorded machine does. What is simulated afterwards
    // takes as long as it takes.
    let before = MachineSpec::builtin_text(&setup.name).is_none().then(bound).flatten();
    let machine = SimHost::open(setup)?;
    before.into_iter().for_each(bounds::Before::set_again);
    eprintln!("flyball: simulated: {}, kernel {}", machine.name(), setup.kernel);
    Ok(machine)
}

/// Help of `--kernel`, with the versions that are modelled.
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

/// The heading of the options that every command takes.
pub(crate) const EVERYWHERE: &str = "Common options";

/// The heading of those that simulated machines and guests have besides.
const SIMULATED: &str = "Simulated machines and guests (flyball sim --help)";

impl MachineOptions {
    /// The machine, with what the other options say about it.
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
            // Refused and not ignored: the user may believe that a state is kept, or a fault
            // injected.
            None => Ok(machine),
        }
    }

    /// The simulated machine that an argument names, with what the options say about it.
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
        // In addition to those in the machine's file or after -M.
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
