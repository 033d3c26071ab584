//! `flyball record`: records a machine in one file, for `-M` on another machine.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use flyball_host::record;

use crate::{
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Recorded are the kernel's files about CPUs, frequency, idle states, power and temperature; registers, if the msr driver \
is loaded and you are root; and the kernel's log lines about frequency drivers. Host names, serial numbers, UUIDs and \
hardware addresses are left out or replaced.

Example:
  sudo modprobe msr
  sudo flyball record server7.tar.zst
  flyball -M server7.tar.zst show")]
pub struct Args {
    /// The file to write (.tar.zst).
    #[arg(value_name = "OUT.tar.zst")]
    pub out: PathBuf,

    /// Overwrite an existing file.
    #[arg(short, long)]
    pub force: bool,
}

/// Records the machine.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let fail = |what: &str, error: &std::io::Error| {
        Failure::failed(format!("cannot {what} {}: {error}", args.out.display()))
    };
    if args.out.exists() && !args.force {
        let message = format!("{} exists; give another name, or --force", args.out.display());
        return Err(Failure::usage(message));
    }
    let host = context.open()?;
    // Written under another name and renamed: a reader never sees half an archive.
    let folder = args.out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = args.out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let file = std::fs::File::create(&beside).map_err(|error| fail("create", &error))?;
    let recorded = record(host.as_ref(), std::io::BufWriter::new(file)).and_then(|(summary, mut out)| {
        out.flush()?;
        out.get_ref().sync_all()?;
        std::fs::rename(&beside, &args.out)?;
        Ok(summary)
    });
    let summary = match recorded {
        Ok(summary) => summary,
        Err(error) => {
            let _ = std::fs::remove_file(&beside);
            return Err(fail("write", &error));
        }
    };
    let text = || {
        format!(
            "{}: {} files, {} registers, {} lines of the kernel's log\n",
            args.out.display(),
            summary.files,
            summary.registers,
            summary.log_lines
        )
    };
    context.output.about(&*host).object(|| &summary, text)?;
    if summary.denied > 0 {
        eprintln!(
            "flyball: {} files and registers could not be read and are missing; root can read more",
            summary.denied
        );
    }
    if summary.registers == 0 {
        eprintln!("flyball: no registers were recorded; run `modprobe msr` first, and record as root");
    }
    Ok(Exit::Done)
}
