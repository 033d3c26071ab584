//! `flyball record`: records a machine into a file, for use with `-M` on another machine.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
};

use flyball_files::Replacement;
use flyball_host::{Archive, CpuInfo, Host, Summary, Vendor, record};
use flyball_process::confine::Confinement;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    output, terminal,
};

/// Arguments of `record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It records the kernel's files about CPUs, frequency, idle states, power and temperature; registers, if the msr driver \
is loaded and you are root; and the kernel's log lines about frequency drivers. It leaves out or replaces names of hosts and \
users, serial numbers, UUIDs, addresses of hardware, networks and kernel modules, and the values of kernel parameters that \
have nothing to do with CPUs (docs/record.md). --print-what shows all of it first.

Examples:
  sudo modprobe msr
  sudo flyball record server7.tar.zst
  flyball -M server7.tar.zst show")]
pub(crate) struct Args {
    /// The file to write (.tar.zst).
    #[arg(value_name = "OUT.tar.zst", required_unless_present = "print_what")]
    pub out: Option<PathBuf>,

    /// Print what would be recorded, as text; write nothing.
    #[arg(long, conflicts_with = "out")]
    pub print_what: bool,

    /// Overwrite an existing file.
    #[arg(short, long)]
    pub force: bool,
}

impl Args {
    pub(crate) fn files(&self, files: &mut Confinement) {
        if let Some(file) = &self.out {
            files.write(file);
        }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    if args.print_what {
        let host = context.open()?;
        let text = text(&*host).map_err(|error| Failure::failed(format!("cannot record: {error}")))?;
        output::print(text)?;
        return Ok(Exit::Done);
    }
    let path = args.out.as_deref().ok_or_else(|| Failure::usage("give a file to write"))?;
    // -M accepts any name, but tools and people go by the extension. A .zip would mislead both.
    let end = path.extension().unwrap_or_default();
    if ![std::ffi::OsStr::new(""), "zst".as_ref(), "tzst".as_ref()].contains(&end) {
        let message = format!("{}: a recording is a .tar.zst; give a name that ends so", path.display());
        return Err(Failure::usage(message));
    }
    let fail =
        |what: &str, error: &io::Error| Failure::failed(format!("cannot {what} {}: {error}", path.display()));
    // Check before reading the machine, which takes seconds. finish_new() below rejects a file that
    // appears in the meantime.
    if path.exists() && !args.force {
        return Err(Failure::usage(format!("{} exists; give another name, or --force", path.display())));
    }
    // Check now: later, the path may be another file.
    let is_stdout = terminal::is_stdout(path);
    let host = context.open()?;
    let (file, replacement) = Replacement::create(path).map_err(|error| fail("create", &error))?;
    // Takes some seconds with hundreds of CPUs.
    terminal::redraw(&format!("recording {}", host.name()));
    let written = archive(&*host, &file);
    terminal::redraw("");
    let summary = written.and_then(|summary| {
        // Sync before the rename: after a crash, the name must not refer to an empty file.
        replacement.sync(&file)?;
        if args.force { replacement.finish() } else { replacement.finish_new() }?;
        Ok(summary)
    });
    let summary = summary.map_err(|error| fail("write", &error))?;
    let text = || {
        format!(
            "{}: {} files, {} registers, {} lines of the kernel's log\n",
            path.display(),
            summary.files,
            summary.registers,
            summary.log_lines
        )
    };
    if is_stdout {
        // If the recording goes to stdout, nothing may follow it.
        eprintln!("{}", text().trim_end());
    } else {
        context.output.about(&*host).object(|| &summary, text)?;
    }
    // After the result: the file is complete with respect to what this user may read.
    if summary.denied > 0 {
        eprintln!(
            "flyball: {} files and registers could not be read and are missing{}",
            summary.denied,
            if flyball_process::is_root() { "" } else { "; root can read more" }
        );
    }
    if summary.registers == 0 && may_have_registers(&*host) {
        eprintln!(
            "flyball: no registers were recorded; run `modprobe msr` first{}",
            if flyball_process::is_root() { "" } else { ", and record as root" }
        );
    }
    Ok(Exit::Done)
}

/// Returns whether the processor may have registers of x86.
fn may_have_registers(host: &dyn Host) -> bool {
    !CpuInfo::read(host).is_ok_and(|info| info.vendor() == Vendor::Other && !info.cpus.is_empty())
}

fn archive(host: &dyn Host, file: &File) -> io::Result<Summary> {
    let (summary, mut out) = record(host, io::BufWriter::new(file))?;
    out.flush()?;
    Ok(summary)
}

/// Returns the content of a recording as text, by writing and reading an archive.
fn text(host: &dyn Host) -> io::Result<String> {
    let (_, bytes) = record(host, Vec::new())?;
    let machine = Archive::read("the recording", bytes.as_slice()).map_err(io::Error::other)?;
    Ok(machine.to_text())
}
