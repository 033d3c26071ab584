//! `flyball save`: writes the current settings as a profile.

use std::{io::Write, path::PathBuf};

use flyball_control::{
    Snapshot,
    save::{save, saved},
};
use flyball_files::{Replacement, replace};
use flyball_process::confine::Confinement;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    output::print,
};

/// Arguments of `save`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Settings that most CPUs share are at the top of the profile, others in sections by CPU list. Applying a saved profile to \
the same machine in the same state writes nothing.

Examples:
  flyball save before.toml      then: flyball apply before.toml
  flyball save -                to stdout")]
pub(crate) struct Args {
    /// The file to write; - for stdout. An existing file is overwritten only with --force.
    #[arg(value_name = "OUT.toml")]
    out: PathBuf,

    /// Overwrite an existing file.
    #[arg(short, long)]
    force: bool,
}

impl Args {
    pub(crate) fn files(&self, files: &mut Confinement) {
        if self.out.as_os_str() != "-" {
            files.write(&self.out);
        }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let snapshot = Snapshot::take_knobs(&*host, &saved())?;
    let text = save(&snapshot)?;
    if args.out.as_os_str() == "-" {
        print(text)?;
        return Ok(Exit::Done);
    }
    let written = if args.force {
        replace(&args.out, text.as_bytes())
    } else {
        Replacement::create(&args.out).and_then(|(mut file, replacement)| {
            file.write_all(text.as_bytes())?;
            // Fails at the rename if the file exists. A check in advance would miss a file that
            // another process creates in the meantime.
            replacement.finish_new()
        })
    };
    written.map_err(|error| {
        let out = args.out.display();
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Failure::usage(format!("{out} exists; give another name, or --force"))
            }
            _ => Failure::failed(format!("cannot write {out}: {error}")),
        }
    })?;
    Ok(Exit::Done)
}
