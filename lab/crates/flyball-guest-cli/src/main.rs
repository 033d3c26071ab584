//! The program `flyball-guest`: real kernels on simulated processors. It is run by `flyball guest`
//! and `flyball -M guest:NAME`.

#![deny(clippy::print_stdout, reason = "data on stdout goes through `output`")]

/// Like the standard library's `eprintln`, but does not panic if writing to stderr fails, and
/// escapes control characters.
macro_rules! eprintln {
    ($($text:tt)*) => {{
        // Ignored: without stderr there is nowhere to report the error.
        let _ = flyball_process::terminal::complain(format_args!("{}\n", format_args!($($text)*)));
    }};
}

mod failure;
mod fuzz;
mod guest_arg;
mod inside;
mod output;
mod test;

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Command, CommandFactory as _, FromArgMatches as _};
use flyball_guest::{
    Interface, apt,
    cache::Cache,
    error::GuestError,
    guest::{self, Request, Root},
    initramfs::JobFile,
    machine::Driver,
    run::{End, OutputSinks},
    watch::ProgressLimits,
};
use flyball_silicon::{MachineSpec, spec::Vendor};
use flyball_text::help;
use serde::Serialize;

use crate::{
    failure::{CANNOT_TELL, Exit, Failure},
    guest_arg::{KERNEL, workload_class},
    output::schema,
};

/// Boot real kernels on emulated processors, run commands in them, and test their drivers.
#[derive(Debug, clap::Parser)]
#[command(
    name = "flyball-guest",
    bin_name = "flyball guest",
    version,
    after_help = "\
A guest is an unmodified Linux kernel in QEMU, on one of flyball's simulated processors: its cpufreq drivers find that \
processor's registers and firmware tables. It needs neither root nor KVM.

Examples:
  flyball guest fetch --kernel 6.12                      get kernels and QEMU from the distribution's packages
  flyball guest run ryzen-5750g --kernel 6.12 -- cat /sys/devices/system/cpu/cpufreq/policy0/scaling_driver
  flyball guest run sst-guide --kernel 7.2 --closed --file ./bench -- ./bench
  flyball guest run ryzen-5750g --kernel arch/x86/boot/bzImage --modules-dir lib/modules/6.19.0 -- dmesg
  flyball guest shell ryzen-5750g --driver amd-pstate=passive --root host
  flyball guest test ryzen-5750g --kernel 6.12           test the kernel's cpufreq drivers

Without --closed, guest time is host time: fast, for tests of attributes. With --closed, guest time advances with \
executed instructions at the simulated frequency: a governor's decisions change the speed, energy and temperature of the \
guest's work, and every run is the same."
)]
struct Cli {
    /// The kernel that guests boot: a version in the cache, a bzImage, a vmlinux, a Debian package
    /// or a build tree.
    #[arg(long, global = true, value_name = "VERSION|FILE")]
    kernel: Option<String>,

    /// Print data as JSON on stdout.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Download kernels (--kernel 6.1,6.12) and the emulator from the distribution's packages to
    /// the cache. Installs nothing.
    Fetch,
    /// List machines, and the kernels in the cache.
    List,
    /// Boot a guest, run a command in it as root, and exit with its exit code.
    ///
    /// 124: timeout. 125: the guest did not run the command; the kernel's last messages are
    /// printed.
    Run(RunArgs),
    /// Boot a guest and open a shell in it. The guest ends with the shell.
    ///
    /// Without a terminal, standard input is run as a script.
    Shell(GuestArgs),
    /// Run a command and record the driver's decisions and every register write.
    ///
    /// Writes to --out: trace.txt (for `flyball trace report`), registers.log, silicon.log (the
    /// processor's state every millisecond), console.log.
    Record(RunArgs),
    /// Test a kernel's cpufreq drivers on emulated processors: sequences of settings, judged by
    /// rules and by another kernel (KTAP).
    Test(test::Args),
    /// Look for faults of a kernel's cpufreq drivers with sequences that are drawn by what the
    /// driver does.
    Fuzz(fuzz::Args),
    /// Run a command line of flyball in a guest: for `flyball -M guest:NAME`.
    #[command(hide = true)]
    Inside(inside::Args),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    guest: GuestArgs,

    /// The command: one word is a line for the shell, several are a command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
struct GuestArgs {
    /// The machine: a name from `flyball guest list`, or a machine's TOML file.
    #[arg(value_name = "MACHINE")]
    machine: String,

    /// The kernel's modules (lib/modules/RELEASE), if they are not in its package.
    #[arg(long, value_name = "DIR")]
    modules_dir: Option<PathBuf>,

    /// The driver: default, amd-pstate[=active|passive|guided],
    /// intel_pstate[=active|passive|no_hwp], acpi-cpufreq, none.
    #[arg(long, default_value = "default")]
    driver: String,

    /// Number of CPUs [default: 4, or all that the machine has].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    cpus: u32,

    /// Interface for performance requests, instead of the machine's own: cppc-msr, cppc-mailbox,
    /// p-states, hwp-off (the firmware leaves HWP to the driver).
    #[arg(long, value_name = "WAY")]
    interface: Option<String>,

    /// Advance guest time with executed instructions at the simulated frequency.
    #[arg(long)]
    closed: bool,

    /// Let the guest inject firmware faults by writing to register 0x400000fb: 1 Speed Select's
    /// mailboxes stay busy, 2 changes are refused, 4 levels are locked, 0 none.
    #[arg(long)]
    faults: bool,

    /// Cycles per instruction with --closed. More cycles make a guest second cheaper to emulate.
    #[arg(long, default_value_t = 16.0, value_name = "N")]
    cycles: f64,

    /// Kind of instructions with --closed: integer (scales with frequency), build, network or
    /// memory (90 % of the time at 3.3 GHz is memory latency). lab/docs/guest.md has the numbers.
    #[arg(long, default_value = "integer", value_name = "CLASS")]
    workload_class: String,

    /// Random seed of the processor and of the guest.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Memory in megabytes.
    #[arg(long, default_value_t = 512, value_name = "MB")]
    memory: u32,

    /// The command's root file system: initramfs (busybox), host, a directory, or the image of an
    /// ext4 file system. All but the first are read-only, with an overlay in memory. A directory is
    /// gone after the guest was suspended, an image is not.
    #[arg(long, default_value = "initramfs", value_name = "initramfs|host|DIR|FILE")]
    root: String,

    /// Boot the root's own systemd as process 1; the command is a unit of it, started after
    /// multi-user.target. Needs --root.
    #[arg(long)]
    init: bool,

    /// A file or directory to copy to the command's working directory. Programs are copied with
    /// their shared libraries.
    #[arg(long = "file", value_name = "FILE[:NAME]")]
    files: Vec<String>,

    /// Modules to load before the command.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    modules: Vec<String>,

    /// Additional kernel command line parameters.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Vec<String>,

    /// Save what the command leaves in ./out, the console and a log of register writes to this
    /// directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Stop the guest after this many seconds of host time; 0: never.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,

    /// Print the kernel's console and resource usage on standard error.
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
            kernel: kernel.unwrap_or(KERNEL).to_owned(),
            modules_dir: self.modules_dir.clone(),
            driver: Driver::parse(&self.driver)?,
            cpus: self.cpus,
            interface: interface.transpose()?,
            faults: self.faults,
            closed: self.closed,
            // The plug-in uses fixed point, 1/256 of a cycle. The range was checked above.
            cycles: (self.cycles * 256.0) as u32,
            class: workload_class(&self.workload_class).map_err(GuestError::Request)?,
            seed: self.seed,
            memory_mb: self.memory,
            root: match self.root.as_str() {
                // For a directory with one of these names, the user writes `./` in front.
                "initramfs" => Root::Initramfs,
                "host" => Root::Directory("/".into()),
                file if Path::new(file).is_file() => Root::Image(file.into()),
                dir => Root::Directory(dir.into()),
            },
            init: self.init,
            files: self.files.iter().map(|text| JobFile::parse(text)).collect(),
            modules: self.modules.clone(),
            append: self.append.clone(),
            out: self.out.clone(),
            copy_back: None,
            replaced: Vec::new(),
            progress_limits: ProgressLimits::default(),
            timeout: (self.timeout > 0).then(|| Duration::from_secs(self.timeout)),
            command,
        })
    }
}

fn main() -> ExitCode {
    // End the process if the reader of its output exits, as other tools do.
    flyball_process::set_signal_actions();
    // At most 120 columns, like flyball's own help; 100 without a terminal.
    let width =
        terminal_size::terminal_size_of(io::stdout()).map_or(100, |(width, _)| width.0.min(120).into());
    let matches = with_help(Cli::command().term_width(width), width).get_matches();
    match run(&Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("flyball: {failure}");
            failure.exit.into()
        }
    }
}

/// Adds examples to the help of a command and its subcommands, wrapped where a shell accepts a line
/// break.
fn with_help(mut command: Command, width: usize) -> Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(help::after(&help::blocks(&text), true, width));
    }
    let below: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    for name in below {
        command = command.mut_subcommand(name, |one| with_help(one, width));
    }
    command
}

/// Runs the subcommand.
fn run(cli: &Cli) -> Result<Exit, Failure> {
    let kernel = cli.kernel.as_deref();
    match &cli.action {
        Action::Fetch => {
            let wanted = kernel.unwrap_or(KERNEL);
            let kernels: Vec<String> = wanted.split(',').map(|version| version.trim().to_owned()).collect();
            apt::fetch(&Cache::of_user()?, &kernels, &mut |step| eprintln!("flyball: {step}"))?;
            Ok(Exit::Done)
        }
        Action::List => list(cli.json, &Cache::of_user()?),
        Action::Test(args) => test::run(kernel, cli.json, args),
        Action::Fuzz(args) => fuzz::run(kernel, cli.json, args),
        Action::Inside(args) => inside::run(kernel, cli.json, args),
        Action::Run(args) => {
            let request = args.guest.request(kernel, args.command.clone())?;
            let end = boot(&request, args.guest.verbose)?;
            Ok(finish(&end, args.guest.verbose))
        }
        Action::Shell(args) => {
            let mut request = args.request(kernel, Vec::new())?;
            if io::stdin().is_terminal() {
                // At a terminal the user ends the guest.
                request.timeout = None;
            } else {
                // Without a terminal, the input is a script. It runs like a command line of `guest
                // run`.
                let script = io::read_to_string(io::stdin())
                    .map_err(|e| Failure::usage(format!("the script on standard input: {e}")))?;
                // A single word is a command line for the shell, and may be a script of many lines.
                request.command = vec![script];
            }
            let end = boot(&request, args.verbose)?;
            Ok(finish(&end, args.verbose))
        }
        Action::Record(args) => {
            // By name and not by what this host's tracefs has: the guest's kernel is another one.
            let mut events: Vec<String> = flyball_trace::events::decisions().collect();
            // A guest has few CPUs and runs for seconds: its idle states fit into the buffer too.
            events.push("power/cpu_idle".to_owned());
            let mut request = args.guest.request(kernel, vec![guest::recording(&args.command, &events)])?;
            if request.out.is_none() {
                return Err(Failure::usage("record needs --out DIR for the recording"));
            }
            // `?`: a kernel may not have it as a module.
            request.modules.push("?msr_trace".into());
            let end = boot(&request, args.guest.verbose)?;
            Ok(finish(&end, args.guest.verbose))
        }
    }
}

/// Runs a guest from the user's cache, with its output on this process's.
fn boot(request: &Request, verbose: bool) -> Result<End, Failure> {
    let cache = Cache::of_user().map_err(before)?;
    if io::stderr().is_terminal() && !verbose {
        eprintln!("flyball: booting Linux {} on {}, about 15 s", request.kernel, request.machine);
    }
    guest::run(&cache, request, sinks(verbose)).map_err(before)
}

/// If the emulator does not start, the command did not run either: exit code 125. An invalid
/// request stays a usage error.
fn before(error: GuestError) -> Failure {
    let failure = Failure::from(error);
    match failure.exit {
        Exit::Failed => failure.exiting(CANNOT_TELL),
        _ => failure,
    }
}

/// Passes the output of the command in the guest, which may be any bytes, to this process's output.
fn sinks(verbose: bool) -> OutputSinks {
    OutputSinks {
        out: Box::new(io::stdout()),
        err: Box::new(io::stderr()),
        console: verbose.then(|| Box::new(io::stderr()) as Box<dyn io::Write + Send>),
    }
}

/// Prints notes and errors, and returns the exit code.
fn finish(end: &End, verbose: bool) -> Exit {
    // Print the notes before the exit code is explained: a command often fails because a module
    // could not be loaded.
    for note in &end.notes {
        let remedy = if note.contains("could not be loaded") {
            " (give the kernel's modules with --modules-dir; built-in drivers do not need them)"
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
            eprintln!("flyball: {why}; the kernel printed nothing");
        } else {
            eprintln!("flyball: {why}; the kernel's last messages:");
        }
        // With --verbose the console has already been printed on stderr.
        if !verbose && !last.is_empty() {
            eprintln!("{last}");
        }
        flyball_process::terminal::complain(&end.emulator);
    }
    // The exit code of a shell that does not find a command.
    if code == 127 {
        eprintln!(
            "flyball: not found in the guest, which without --root host has only busybox and what --file brings"
        );
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
            eprintln!("flyball: at most {} MB of memory", memory >> 20);
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

fn list(json: bool, cache: &Cache) -> Result<Exit, Failure> {
    let machines = MachineSpec::names()
        .filter_map(|name| {
            // Skipped here if a built-in machine does not parse: the tests report that.
            let spec = MachineSpec::builtin(name).ok().filter(|spec| spec.identity.vendor != Vendor::Arm)?;
            Some(MachineRow { name, cpus: spec.cpus(), title: spec.title.clone() })
        })
        .collect();
    let listing = Listing { machines, kernels: cache.kernel_versions(), cache: cache.root().to_owned() };
    if json {
        output::json(schema::LIST, &listing)?;
        return Ok(Exit::Done);
    }
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
    output::text(&out)?;
    Ok(Exit::Done)
}
