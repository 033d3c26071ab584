//! `flyball record`: a machine in one file, for `-M` on another machine.

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
#[command(
    after_help = "Recorded: the kernel's files of CPUs, frequency, idle, power and heat; registers where the msr \
                        driver is loaded and you are root; the kernel's log lines of the frequency drivers. Host names, \
                        serial numbers, UUIDs and hardware addresses are left out or replaced.\n\n\
                        Example:\n  sudo modprobe msr\n  sudo flyball record server7.tar.zst\n  \
                        flyball -M server7.tar.zst show"
)]
pub struct Args {
    /// The file to write; a name that ends in .tar.zst.
    #[arg(value_name = "OUT.tar.zst")]
    pub out: PathBuf,

    /// Overwrite a file that is there.
    #[arg(short, long)]
    pub force: bool,
}

/// Records the machine.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let fail = |what: &str, error: &std::io::Error| {
        Failure::failed(format!("cannot {what} {}: {error}", args.out.display()))
    };
    if args.out.exists() && !args.force {
        let message = format!("{} is there already; give another name, or --force", args.out.display());
        return Err(Failure::usage(message));
    }
    let host = context.open()?;
    // Written beside and renamed, so that the name never stands for half a machine.
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
            "flyball: {} files and registers refused to be read and are missing; root may read more",
            summary.denied
        );
    }
    if summary.registers == 0 {
        eprintln!("flyball: no registers were recorded; as root, after `modprobe msr`, they are");
    }
    Ok(Exit::Done)
}
