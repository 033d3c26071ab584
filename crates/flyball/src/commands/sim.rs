//! `flyball sim`: simulated machines.

pub(crate) mod check;
#[cfg(feature = "serve")]
mod serve;
mod work;

use flyball_host::topology::scaling_driver;
use flyball_process::confine::Confinement;
use flyball_sim::{Kernel, silicon::MachineSpec};
use flyball_simhost::SimHost;
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    machine::MachineOptions,
    output::{self, Reporter},
};

/// Arguments of `sim`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub(crate) struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the built-in machines.
    List,
    /// Describe a machine.
    Show {
        /// A machine's name, or the path of a machine file.
        name: String,
        /// Print the machine file, as a template for your own.
        #[arg(long)]
        toml: bool,
    },
    /// Run any program on a machine: the program sees the machine's files instead of the real ones.
    #[command(after_help = "\
The program sees the machine's /sys/devices/system/cpu, cpufreq, cpuidle, powercap, hwmon, /proc/cpuinfo, /proc/stat \
and /dev/cpu/N/msr; everything else is real. Simulated time is real time. Works as root, and for ordinary users if user \
namespaces are allowed. The program itself runs on the real processors.

Examples:
  flyball sim run ryzen-5750g -- cpupower frequency-info
  flyball sim run gold-6138 -- sh -c 'cpupower frequency-set -g performance; cpupower frequency-info -p'
  flyball sim run epyc-512 -- lscpu

Exit codes: that of the program; 127 if it does not exist, 126 if it cannot be run, 4 if this system lacks FUSE or (for \
ordinary users) user namespaces.")]
    Run {
        /// A machine's name, or the path of a machine file.
        name: String,
        /// The program and its arguments.
        #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
        program: Vec<std::ffi::OsString>,
    },
    /// Inside `run`: run a workload model on the machine; prints what the real tool prints.
    Work {
        /// sched-pipe, tbench, gitsource, speedometer, io-4k, rpc, short-sleeps, audio, spin,
        /// memory, bursts, call-simple or idle.
        name: String,
        /// Length of the workload, as for 'compare --amount'.
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
        amount: Option<u64>,
        /// CPUs that the workload may use.
        #[arg(long, value_name = "CPUS")]
        pin: Option<flyball_host::CpuList>,
    },
    /// Compare the models with published measurements: every value of five documents, the simulated
    /// value, which values were used to set constants, and which targets are missed.
    #[command(after_help = "\
Each experiment runs on the simulated machine of its document with the document's settings. At most half of the values \
of a table were used to set constants of the models; the others are predictions. All documents take about a minute.

Examples:
  flyball sim check
  flyball sim check stinner
  flyball --json sim check amd-slides")]
    Check {
        /// One document: sst-guide, storpool, amd-slides, stinner or amd-document [default: all].
        document: Option<String>,
    },
    /// The child of `run`, which becomes the program.
    #[cfg(feature = "serve")]
    #[command(hide = true)]
    Inside {
        stage: std::path::PathBuf,
        socket: i32,
        #[arg(last = true, required = true, num_args = 1..)]
        program: Vec<std::ffi::OsString>,
    },
}

/// Adds the machine file for `sim show`. Returns `false` for subcommands that run something.
pub(crate) fn files(args: &Args, files: &mut Confinement) -> bool {
    match &args.command {
        What::Show { name, .. } => {
            // Like -M, accept `sim:` too. Permission to read a nonexistent file does no harm.
            files.read(name.strip_prefix("sim:").unwrap_or(name));
            true
        }
        What::List | What::Run { .. } | What::Work { .. } | What::Check { .. } => false,
        #[cfg(feature = "serve")]
        What::Inside { .. } => false,
    }
}

pub(crate) fn run(options: &MachineOptions, output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        What::List => list(output),
        What::Show { name, toml } => show(options, output, name, *toml),
        #[cfg(feature = "serve")]
        What::Run { name, program } => serve::run(options, name, program),
        #[cfg(not(feature = "serve"))]
        What::Run { .. } => Err(Failure::not_here(
            "this build cannot serve a machine to other programs: build with cargo build --release --features full",
        )),
        What::Work { name, amount, pin } => work::run(name, *amount, pin.as_ref()),
        What::Check { document } => {
            check::refuse(options)?;
            check::run(output, document.as_deref())
        }
        #[cfg(feature = "serve")]
        What::Inside { stage, socket, program } => serve::inside(stage, *socket, program),
    }
}

#[derive(Debug, schemars::JsonSchema, Serialize)]
pub(crate) struct Row {
    name: String,
    title: String,
    /// The CPUs, as a list (0-3,7).
    cpus: usize,
    packages: u32,
    simulated: bool,
}

impl Row {
    fn new(spec: &MachineSpec) -> Row {
        Row {
            name: spec.name.clone(),
            title: spec.title.clone(),
            cpus: spec.cpus(),
            packages: spec.topology.packages,
            simulated: true,
        }
    }
}

fn list(output: &Reporter) -> Result<Exit, Failure> {
    let rows: Result<Vec<Row>, Failure> = MachineSpec::names()
        .map(|name| {
            let spec = MachineSpec::builtin(name).map_err(Failure::failed)?;
            Ok(Row::new(&spec))
        })
        .collect();
    let rows = rows?;
    let text = || {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let lines =
            rows.iter().map(|row| format!("{:width$}  {:4} CPUs  {}\n", row.name, row.cpus, row.title));
        lines.collect()
    };
    output.list(|| rows.iter().collect(), text)?;
    Ok(Exit::Done)
}

#[derive(Debug, schemars::JsonSchema, Serialize)]
pub(crate) struct Sheet {
    #[serde(flatten)]
    row: Row,
    about: String,
    processor: String,
    driver: String,
    frequency_mhz: [u32; 3],
    tdp_w: f64,
}

fn show(options: &MachineOptions, output: &Reporter, name: &str, toml: bool) -> Result<Exit, Failure> {
    let choice = options.simulated(name)?;
    if toml {
        let text = match MachineSpec::builtin_text(&choice.name) {
            Some(text) => text.to_owned(),
            // The original text with its comments, not what the parser makes of it.
            None => flyball_simhost::read_file(std::path::Path::new(&choice.name))
                .map_err(|error| Failure::usage(format!("cannot read {}: {error}", choice.name)))?,
        };
        output::print(text)?;
        return Ok(Exit::Done);
    }
    let spec = choice.spec()?;
    // Boot the machine, because the driver depends on the kernel and on the machine's parameters.
    let machine = SimHost::open(&choice)?;
    // There may be no driver: a kernel may be older than the processor.
    let driver = scaling_driver(&machine).unwrap_or_else(|| "none".to_owned());
    let first = spec.core.first();
    let sheet = Sheet {
        row: Row::new(&spec),
        about: spec.about.trim().to_owned(),
        processor: spec.identity.brand.clone(),
        driver,
        frequency_mhz: first.map_or([0; 3], |core| [core.min_mhz, core.base_mhz, core.max_mhz]),
        tdp_w: spec.power.tdp_w,
    };
    output.object(|| &sheet, || render(&sheet, choice.kernel))?;
    Ok(Exit::Done)
}

fn render(sheet: &Sheet, kernel: Kernel) -> String {
    let [min, base, max] = sheet.frequency_mhz;
    let Sheet { row, about, processor, driver, tdp_w, .. } = sheet;
    format!(
        "sim:{name} (simulated): {title}\n\
         {processor}\n\
         {packages} {package}, {cpus} CPUs; {min} MHz, base {base} MHz, up to {max} MHz; {tdp_w} W per package\n\
         driver under kernel {kernel}: {driver}\n\
         \n{about}\n\
         \nIts file: flyball sim show {name} --toml\n",
        name = row.name,
        title = row.title,
        packages = row.packages,
        package = if row.packages == 1 { "package" } else { "packages" },
        cpus = row.cpus,
    )
}

/// Returns the help. The simulator provides the forms of fault rules.
fn help() -> String {
    format!(
        "\
A simulated machine behaves as the kernel's drivers do, on a model of processors with frequency, power and temperature. \
Commands that read or change a machine work on one:

  flyball -M sim:ryzen-5750g show
  flyball -M sim:epyc-512 --kernel 7.2 plan governor=powersave
  flyball -M sim:ryzen-5750g --sim-state /tmp/box set turbo=off   # keep the state for the next command
  flyball -M sim:my-machine.toml show                             # your own machine file

Faults (--sim-fault RULE, may be repeated; PATH may contain '*' and is relative to /sys/devices/system/cpu/ unless it \
starts with a slash; times such as 500ms, 10s, 2min count from the machine's boot, and a comparison boots for each round):

  {}

  flyball -M sim:i7-2600 --sim-fault 'fan blocked' compare --matrix turbo=on,off --workload spin
  flyball -M sim:epyc-512 --sim-fault 'write cpufreq/policy7/scaling_max_freq fails EIO' set max-freq=2GHz",
        flyball_sim::FAULT_FORMS.replace('\n', "\n  ")
    )
}
