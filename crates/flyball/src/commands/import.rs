//! `flyball import`: prints another program's configuration as a profile.

use std::path::PathBuf;

use flyball_control::import::{Import, Program, Supply};
use flyball_files::read_input;
use flyball_process::confine::Confinement;

use crate::{
    exit::{Exit, Failure},
    output::print,
    profiles::MAX_PROFILE,
};

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the profile on stdout. Lists on stderr, line by line, what has no equivalent. All settings of the profile are optional, \
because these programs skip what a machine lacks.

Examples:
  flyball import /etc/tlp.conf --on battery > battery.toml
  flyball import /usr/lib/tuned/profiles/throughput-performance/tuned.conf

Exit codes: 0 printed, 1 nothing in the file has an equivalent, 2 the file cannot be read or is of another format.")]
pub(crate) struct Args {
    /// The file: tlp.conf, tuned.conf or auto-cpufreq.conf.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The program whose format the file has [default: by the file's name].
    #[arg(long, value_name = "PROGRAM")]
    from: Option<From>,

    /// The power supply whose settings are wanted, of programs that have two sets.
    #[arg(long, value_name = "SUPPLY", default_value = "ac")]
    on: On,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum From {
    Tlp,
    Tuned,
    AutoCpufreq,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum On {
    Ac,
    Battery,
}

impl Args {
    pub(crate) fn files(&self, files: &mut Confinement) {
        files.read(&self.file);
    }

    fn program(&self) -> Result<Program, Failure> {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        match (self.from, &*name) {
            (Some(From::Tlp), _) | (None, "tlp.conf") => Ok(Program::Tlp),
            (Some(From::Tuned), _) | (None, "tuned.conf") => Ok(Program::Tuned),
            (Some(From::AutoCpufreq), _) | (None, "auto-cpufreq.conf") => Ok(Program::AutoCpufreq),
            _ => Err(Failure::usage(format!(
                "cannot tell the format of {} by its name\nhint: --from tlp, tuned or auto-cpufreq",
                self.file.display()
            ))),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let program = args.program()?;
    let supply = match args.on {
        On::Ac => Supply::Ac,
        On::Battery => Supply::Battery,
    };
    let file = args.file.display();
    let text = read_input(&args.file, MAX_PROFILE)
        .map_err(|error| Failure::usage(format!("cannot read {file}: {error}")))?;
    let text =
        String::from_utf8(text).map_err(|_| Failure::usage(format!("cannot read {file}: not UTF-8")))?;
    let import = Import::parse(program, supply, &text)
        .map_err(|error| Failure::usage(format!("cannot read {file}: {error}")))?;
    for one in &import.unsupported {
        eprintln!("line {}: {}: {}", one.line, one.name, one.why);
    }
    if import.is_empty() {
        return Err(Failure::failed(format!("nothing in {file} has an equivalent")));
    }
    print(import.profile())?;
    Ok(Exit::Done)
}
