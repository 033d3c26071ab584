//! `flyball man`: the manual, made from the same tables as `--help` and `explain`.

use std::{io::Write, path::PathBuf};

use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use flyball_control::{Access, TABLE};

use crate::{
    exit::{Exit, Failure},
    terminal,
};

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball man | man -l -
  flyball man compare | man -l -
  flyball man --dir /usr/local/share/man/man1")]
pub struct Args {
    /// The command whose page to print [default: flyball's own page].
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,

    /// Write the pages of all commands to this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

/// Prints or writes pages.
pub fn run(mut top: clap::Command, args: &Args) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot write the manual: {error}"));
    // clap propagates global options to subcommands only when built.
    top.build();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(failed)?;
        let write =
            |name: &str, page: &[u8]| std::fs::write(dir.join(format!("{name}.1")), page).map_err(failed);
        write("flyball", &main_page(&top).map_err(failed)?)?;
        for command in top.get_subcommands().filter(|command| !command.is_hide_set()) {
            write(&format!("flyball-{}", command.get_name()), &page(command).map_err(failed)?)?;
        }
        return Ok(Exit::Done);
    }
    let bytes = match &args.command {
        None => main_page(&top).map_err(failed)?,
        Some(name) => {
            let command = top.find_subcommand(name).ok_or_else(|| {
                let names: Vec<&str> = top
                    .get_subcommands()
                    .filter(|command| !command.is_hide_set())
                    .map(clap::Command::get_name)
                    .collect();
                Failure::usage(format!("unknown command '{name}' (expected {})", names.join(", ")))
            })?;
            page(command).map_err(failed)?
        }
    };
    terminal::stdout().write_all(&bytes).map_err(failed)?;
    Ok(Exit::Done)
}

/// The page of one command.
fn page(command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let name = format!("flyball-{}", command.get_name());
    let mut out = Vec::new();
    Man::new(command.clone().display_name(name.clone())).title(name).render(&mut out)?;
    Ok(out)
}

/// The main page: commands, then every knob and fact, then the exit codes.
fn main_page(top: &clap::Command) -> std::io::Result<Vec<u8>> {
    let man = Man::new(top.clone());
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    man.render_subcommands_section(&mut out)?;
    let mut roff = Roff::new();
    for (access, heading) in [(Access::ReadWrite, "KNOBS"), (Access::ReadOnly, "FACTS")] {
        roff.control("SH", [heading]);
        for knob in TABLE.iter().filter(|knob| knob.access() == access) {
            roff.control("TP", []);
            roff.text([bold(knob.name), roman(format!(" ({}, one per {})", knob.title, knob.scope))]);
            roff.text([roman(knob.about)]);
            if !knob.accepts().is_empty() {
                roff.control("br", []);
                roff.text([roman("Takes "), roman(knob.accepts()), roman(".")]);
            }
            for mechanism in knob.mechanisms {
                roff.control("br", []);
                roff.text([roman(mechanism.to_string())]);
            }
        }
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in Exit::TABLE {
        roff.control("TP", []);
        roff.text([bold(code.to_string())]);
        roff.text([roman(meaning.trim())]);
    }
    roff.to_writer(&mut out)?;
    man.render_version_section(&mut out)?;
    Ok(out)
}
