//! `flyball amd_pstate_trace.py` and `flyball intel_pstate_tracer.py`, or links of these names:
//! replacements for the kernel's tracers (tools/power/x86/amd_pstate_tracer, intel_pstate_tracer),
//! built on `trace record` and `trace report`.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use flyball_host::CpuList;
use flyball_process::User;

use crate::{
    context::Context,
    exit::{Exit, Failure},
};

const NAMES: [&str; 2] = ["amd_pstate_trace.py", "intel_pstate_tracer.py"];

/// Arguments of the kernel's tracers, spelled as in their getopt calls.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("source").required(true).args(["trace_file", "interval"])),
    after_help = "\
As the script does, this makes results/NAME with cpu.csv, a cpuNNN.csv per CPU, byte for byte, and pictures of each value. The \
pictures are flyball's, with names of their own, and neither gnuplot nor Python is needed. Unlike the script, FILE is relative to \
the current directory, a recording stays as results/NAME/trace.dat, other traces of the machine are left alone, and an existing \
results/NAME is an error (2).

Examples:
  sudo flyball amd_pstate_trace.py -i 10 -n test
  sudo flyball intel_pstate_tracer.py -i 10 -n test
  flyball amd_pstate_trace.py -c 0,3 -t trace.txt -n test2
  ln -s /usr/bin/flyball intel_pstate_tracer.py && ./intel_pstate_tracer.py -t trace.txt -n test3

Exit codes: those of trace record and trace report."
)]
pub(crate) struct Args {
    /// Read this trace.
    #[arg(short = 't', long = "trace_file", value_name = "FILE")]
    trace_file: Option<PathBuf>,

    /// Record for so many seconds.
    #[arg(short, long, value_name = "SECONDS")]
    interval: Option<u32>,

    /// Only these CPUs.
    #[arg(short, long, value_name = "CPUS")]
    cpu: Option<CpuList>,

    /// The name of the test and of its directory.
    #[arg(short, long, value_name = "NAME")]
    name: String,

    /// Buffer per CPU, KiB.
    #[arg(short, long, value_name = "KIB", default_value_t = 10240)]
    memory: u64,
}

/// Returns the command if the program was called through a link with a tracer's name.
pub(crate) fn command_of_link(program: &OsStr) -> Option<&'static str> {
    let called = Path::new(program).file_name()?;
    NAMES.into_iter().find(|name| called == OsStr::new(name))
}

impl Args {
    /// Creates the directory, and returns the flyball commands that do what the script does.
    pub(crate) fn commands(&self, context: &Context) -> Result<Vec<Vec<OsString>>, Failure> {
        let directory = self.make_directory()?;
        let mut commands = Vec::new();
        let words = |words: &[&str]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
        let trace = match (self.interval, &self.trace_file) {
            (Some(seconds), _) => {
                let trace = directory.join("trace.dat");
                let mut record = words(&["flyball"]);
                record.extend(context.machine.arguments());
                let (time, memory) = (format!("{seconds}s"), self.memory.to_string());
                record.extend(words(&["trace", "record", "-t", &time, "-b", &memory]));
                record.extend(["-o".into(), trace.clone().into_os_string()]);
                commands.push(record);
                trace
            }
            (None, file) => file.clone().unwrap_or_default(),
        };
        let mut report = words(&["flyball", "trace", "report"]);
        for option in ["--csv", "--plots"] {
            report.extend([option.into(), directory.clone().into_os_string()]);
        }
        if let Some(cpus) = &self.cpu {
            report.extend(["--cpus".into(), cpus.to_string().into()]);
        }
        report.extend(["--".into(), trace.into_os_string()]);
        commands.push(report);
        Ok(commands)
    }

    /// Creates results/NAME in the current directory, owned by the user who called sudo
    /// (fix_ownership in the scripts).
    fn make_directory(&self) -> Result<PathBuf, Failure> {
        if self.name.is_empty() || self.name.contains('/') || self.name.starts_with('.') {
            return Err(Failure::usage("the name is that of a directory below results/"));
        }
        let user = User::from_sudo().map_err(Failure::failed)?;
        let _as_user = user.as_ref().map(User::for_files);
        let directory = Path::new("results").join(&self.name);
        let failed = |error| Failure::failed(format!("cannot make {}: {error}", directory.display()));
        flyball_files::make_dirs(Path::new("results")).map_err(failed)?;
        flyball_files::make_dir(&directory).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Failure::usage(format!("{} exists; give a unique test name", directory.display()))
            }
            _ => failed(error),
        })?;
        Ok(directory)
    }
}

/// Runs the commands one after the other. Stops at the first failure.
pub(crate) fn run(
    context: &Context,
    args: &Args,
    mut run: impl FnMut(Vec<OsString>) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    for words in args.commands(context)? {
        let exit = run(words)?;
        if !matches!(exit, Exit::Done) {
            return Ok(exit);
        }
    }
    Ok(Exit::Done)
}
