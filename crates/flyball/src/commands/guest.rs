//! `flyball guest`: real kernels on virtual silicon.

mod cost;
mod inside;

pub use inside::{compare_inside, inside};

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    time::Duration,
};

use flyball_guest::{
    Interface, apt,
    cache::Cache,
    error::GuestError,
    guest::{self, Request, Root},
    initramfs::JobFile,
    machine::Driver,
    run::{End, Outlets},
    watch::Patience,
};
use flyball_silicon::MachineSpec;
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    machine::{GUEST_KERNEL, workload_class},
    output::Reporter,
};

/// Arguments of `guest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A guest is an unmodified Linux kernel in QEMU's emulator, on one of flyball's simulated processors. Its cpufreq
drivers find that processor's registers and firmware tables. No root and no KVM are needed.

  flyball guest fetch --kernel 6.12                      kernels and QEMU, from the distribution's packages
  flyball guest run ryzen-5750g --kernel 6.12 -- cat /sys/devices/system/cpu/cpufreq/policy0/scaling_driver
  flyball guest run sst-guide --kernel 7.2 --closed --file ./bench -- ./bench
  flyball guest run ryzen-5750g --kernel arch/x86/boot/bzImage --modules-dir lib/modules/6.19.0 -- dmesg
  flyball guest shell ryzen-5750g --driver amd-pstate=passive --root host
  flyball guest cost                                     what it costs on this host, measured

Without --closed, guest time is the host's: quick, for tests of what attributes accept and say. With --closed, guest
time passes by executed instructions at the frequency that the processor gives: a governor's decision changes how
fast the guest's work goes, what energy it takes and how warm the processor gets, the same on every run.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Get kernels (--kernel 6.1,6.12; as much of a version as matters) and the emulator from the distribution's
    /// packages into the cache; installs nothing.
    Fetch,
    /// Machines, and the kernels in the cache.
    List,
    /// Boot a guest, run a command in it as root, exit with its exit code.
    ///
    /// 124: the time was up. 125: the guest did not get as far as running the command; the kernel's last words are
    /// printed.
    Run(RunArgs),
    /// Boot a guest and give a shell in it; the guest ends with the shell.
    ///
    /// Without a terminal, standard input is read to its end and run as a script.
    Shell(GuestArgs),
    /// Run a command and keep the kernel's trace of the driver's decisions and every register write.
    ///
    /// Leaves in --out: trace.txt (for `flyball trace report`), registers.log, silicon.log (the processor's state
    /// once a millisecond), console.log.
    Record(RunArgs),
    /// What guests cost on this host: time until a command runs, speed and memory, in both kinds of time.
    Cost(cost::Args),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    guest: GuestArgs,

    /// The command: one word is a line for the shell; several are a command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct GuestArgs {
    /// The machine: a name from `flyball guest list`, or a machine's TOML file.
    // Not `machine`, which is the id of the global option -M.
    #[arg(id = "guest", value_name = "MACHINE")]
    machine: String,

    /// The kernel's modules (lib/modules/RELEASE), where they are not in its package.
    #[arg(long, value_name = "DIR")]
    modules_dir: Option<PathBuf>,

    /// The driver: default, amd-pstate[=active|passive|guided], intel_pstate[=active|passive|no_hwp], acpi-cpufreq,
    /// none.
    #[arg(long, default_value = "default")]
    driver: String,

    /// CPUs [default: 4, or all that the machine has].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    cpus: u32,

    /// How performance is asked for, in place of the machine's own way: cppc-msr, cppc-mailbox, p-states,
    /// hwp-off (firmware leaves HWP to the driver).
    #[arg(long, value_name = "WAY")]
    interface: Option<String>,

    /// Guest time passes by instructions at the frequency that the processor gives.
    #[arg(long)]
    closed: bool,

    /// The guest may break its firmware by writing to register 0x400000fb: 1 Speed Select's mailboxes are busy for good,
    /// 2 it takes no change, 4 levels are locked, 0 all is well again.
    #[arg(long)]
    faults: bool,

    /// Cycles an instruction takes, with --closed: more make a guest second cheaper to emulate.
    #[arg(long, default_value_t = 16.0, value_name = "N")]
    cycles: f64,

    /// What the guest's instructions are like, with --closed: integer (as fast as the frequency), build, network, memory
    /// (90 % of the time at 3.3 GHz is memory's, which no frequency changes). docs/guest.md has the numbers.
    #[arg(long, default_value = "integer", value_name = "CLASS")]
    workload_class: String,

    /// Seed of the processor and of the guest's random numbers.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Megabytes of memory.
    #[arg(long, default_value_t = 512, value_name = "MB")]
    memory: u32,

    /// The command's root file system: initramfs (busybox), host, or a directory; host and directory are read-only
    /// under a layer in memory.
    #[arg(long, default_value = "initramfs", value_name = "initramfs|host|DIR")]
    root: String,

    /// A file or directory for the directory that the command runs in; programs bring the libraries that they are
    /// linked with.
    #[arg(long = "file", value_name = "FILE[:NAME]")]
    files: Vec<String>,

    /// Modules to load before the command.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    modules: Vec<String>,

    /// More words for the kernel's command line.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Vec<String>,

    /// Keep what the command leaves in ./out, the console and a log of register writes in this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Seconds of host time after which the guest is ended; 0: none.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,

    /// The kernel's console on standard error, and what the run took.
    #[arg(short, long)]
    verbose: bool,
}

impl GuestArgs {
    fn request(&self, kernel: Option<&str>, command: Vec<String>) -> Result<Request, GuestError> {
        let interface = self.interface.as_deref().map(|word| {
            Interface::parse(word).ok_or_else(|| {
                GuestError::Request(format!(
                    "unknown interface '{word}' (expected cppc-msr, cppc-mailbox, p-states or hwp-off)"
                ))
            })
        });
        if !(0.25..=1000.0).contains(&self.cycles) {
            return Err(GuestError::Request("--cycles takes 0.25 to 1000".into()));
        }
        Ok(Request {
            machine: self.machine.clone(),
            kernel: kernel.unwrap_or(GUEST_KERNEL).to_owned(),
            modules_dir: self.modules_dir.clone(),
            driver: Driver::parse(&self.driver)?,
            cpus: self.cpus,
            interface: interface.transpose()?,
            faults: self.faults,
            closed: self.closed,
            cycles: (self.cycles * 256.0) as u32,
            class: workload_class(&self.workload_class).map_err(GuestError::Request)?,
            seed: self.seed,
            memory_mb: self.memory,
            root: match self.root.as_str() {
                "initramfs" => Root::Initramfs,
                "host" => Root::Directory("/".into()),
                dir => Root::Directory(dir.into()),
            },
            files: self.files.iter().map(|text| JobFile::parse(text)).collect(),
            modules: self.modules.clone(),
            append: self.append.clone(),
            out: self.out.clone(),
            copy_back: None,
            patience: Patience::default(),
            timeout: (self.timeout > 0).then(|| Duration::from_secs(self.timeout)),
            command,
        })
    }
}

impl From<GuestError> for Failure {
    fn from(error: GuestError) -> Failure {
        let exit = match error {
            GuestError::Request(_) => Exit::Usage,
            GuestError::NotFetched { .. } => Exit::NotHere,
            _ => Exit::Failed,
        };
        Failure::new(exit, error)
    }
}

/// Does what was asked.
pub fn run(kernel: Option<&str>, output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    let cache = Cache::of_user();
    match &args.action {
        Action::Fetch => {
            let wanted = kernel.unwrap_or(GUEST_KERNEL);
            let kernels: Vec<String> = wanted.split(',').map(|version| version.trim().to_owned()).collect();
            apt::fetch(&cache, &kernels, &mut |step| eprintln!("flyball: {step}"))?;
            Ok(Exit::Done)
        }
        Action::List => list(output, &cache),
        Action::Cost(args) => cost::run(kernel, output, args),
        Action::Run(args) => {
            let request = args.guest.request(kernel, args.command.clone())?;
            let end = guest::run(&cache, &request, outlets(args.guest.verbose)).map_err(before)?;
            Ok(finish(&end, args.guest.verbose))
        }
        Action::Shell(args) => {
            let mut request = args.request(kernel, Vec::new())?;
            if io::stdin().is_terminal() {
                request.timeout = None;
            } else {
                // Nobody is there to type: what comes is a script, run as `guest run` runs a line.
                let script = io::read_to_string(io::stdin())
                    .map_err(|e| Failure::usage(format!("the script on standard input: {e}")))?;
                request.command = vec![script];
            }
            let end = guest::run(&cache, &request, outlets(args.verbose)).map_err(before)?;
            Ok(finish(&end, args.verbose))
        }
        Action::Record(args) => {
            let mut events: Vec<String> = flyball_trace::events::decisions().collect();
            // A guest has few CPUs and runs for seconds: its idle states fit into the buffer too.
            events.push("power/cpu_idle".to_owned());
            let mut request = args.guest.request(kernel, vec![guest::recording(&args.command, &events)])?;
            if request.out.is_none() {
                return Err(Failure::usage("record needs --out DIR, where the recording goes"));
            }
            request.modules.push("?msr_trace".into());
            let end = guest::run(&cache, &request, outlets(args.guest.verbose)).map_err(before)?;
            Ok(finish(&end, args.guest.verbose))
        }
    }
}

/// A guest that did not start because of this side is one that did not get that far, too; but a wrong request stays one.
fn before(error: GuestError) -> Failure {
    let failure = Failure::from(error);
    match failure.exit {
        Exit::Failed => failure.exiting(Exit::Command(125)),
        _ => failure,
    }
}

fn outlets(verbose: bool) -> Outlets {
    Outlets {
        out: Box::new(io::stdout()),
        err: Box::new(io::stderr()),
        console: verbose.then(|| Box::new(io::stderr()) as Box<dyn io::Write + Send>),
    }
}

/// Says what there is to say, and gives the exit code.
fn finish(end: &End, verbose: bool) -> Exit {
    for note in &end.notes {
        let remedy = if note.contains("could not be loaded") {
            " (--modules-dir names the kernel's modules; a driver that is built in needs none)"
        } else {
            ""
        };
        eprintln!("flyball: guest: {note}{remedy}");
    }
    let code = end.exit_code();
    if end.code.is_none() {
        let why = match &end.stuck {
            Some(why) => why.to_string(),
            None if end.timed_out => "the time limit was reached".to_owned(),
            None => "the guest ended before the command did".to_owned(),
        };
        let last = end.last_words(30);
        if last.is_empty() {
            eprintln!("flyball: {why}; the kernel said nothing");
        } else {
            eprintln!("flyball: {why}; the kernel's last words:");
        }
        if !verbose && !last.is_empty() {
            eprintln!("{last}");
        }
        eprint!("{}", end.emulator);
    }
    if verbose {
        for (what, host, guest) in [
            ("init", end.host[0], end.uptimes[0]),
            ("command", end.host[1], end.uptimes[1]),
            ("end", end.host[2], end.uptimes[2]),
        ] {
            if let (Some(host), Some(guest)) = (host, guest) {
                eprintln!("flyball: {what} at {:.2} s, guest {guest:.2} s", host.as_secs_f64());
            }
        }
        if let Some(memory) = end.memory {
            eprintln!("flyball: {} MB of memory at most", memory >> 20);
        }
        for (name, value) in &end.counted {
            eprintln!("flyball: {name} {value}");
        }
    }
    Exit::Command(code)
}

#[derive(Debug, Serialize)]
struct Listing {
    machines: Vec<MachineRow>,
    kernels: Vec<String>,
    cache: PathBuf,
}

#[derive(Debug, Serialize)]
struct MachineRow {
    name: &'static str,
    cpus: usize,
    title: String,
}

fn list(output: &Reporter, cache: &Cache) -> Result<Exit, Failure> {
    let machines = MachineSpec::names()
        .filter_map(|name| {
            let spec = MachineSpec::builtin(name).ok()?;
            Some(MachineRow { name, cpus: spec.cpus(), title: spec.title.clone() })
        })
        .collect();
    let listing = Listing { machines, kernels: cache.kernel_versions(), cache: cache.root().to_owned() };
    let text = || {
        let mut out = String::from("machines\n");
        for row in &listing.machines {
            out += &format!("  {:<16}{:>4} CPUs  {}\n", row.name, row.cpus, row.title);
        }
        out += &format!("kernels in {}\n", listing.cache.display());
        if listing.kernels.is_empty() {
            out += "  none; flyball guest fetch --kernel 6.12\n";
        }
        for version in &listing.kernels {
            out += &format!("  {version}\n");
        }
        out
    };
    output.object(|| &listing, text)?;
    Ok(Exit::Done)
}
