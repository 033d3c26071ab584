//! `flyball completions`: prints completions of commands, options and knob names for a shell.

use crate::{
    exit::{Exit, Failure},
    output::checked,
    terminal,
};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball completions bash > /etc/bash_completion.d/flyball
  flyball completions zsh > ~/.zfunc/_flyball
  flyball completions fish > ~/.config/fish/completions/flyball.fish")]
pub struct Args {
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Prints the completions.
pub fn run(mut command: clap::Command, args: &Args) -> Result<Exit, Failure> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, "flyball", &mut out);
    checked(std::io::Write::write_all(&mut terminal::stdout(), &out))?;
    Ok(Exit::Done)
}
