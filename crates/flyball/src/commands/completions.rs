//! `flyball completions`: prints the script that connects a shell with `flyball complete`.

use clap_complete::Shell;

use crate::{
    exit::{Exit, Failure},
    output,
};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Knobs, their values on the machine of -M, machines and CPUs are looked up when they are completed.

Examples:
  flyball completions bash > /etc/bash_completion.d/flyball
  flyball completions zsh > ~/.zfunc/_flyball
  flyball completions fish > ~/.config/fish/completions/flyball.fish")]
pub(crate) struct Args {
    /// The shell whose script to print.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

pub(crate) fn run(mut command: clap::Command, args: &Args) -> Result<Exit, Failure> {
    let own = match args.shell {
        Shell::Bash => include_str!("completions/flyball.bash"),
        Shell::Zsh => include_str!("completions/flyball.zsh"),
        Shell::Fish => include_str!("completions/flyball.fish"),
        // Other shells get commands and options only.
        other => {
            let mut out = Vec::new();
            clap_complete::generate(other, &mut command, "flyball", &mut out);
            output::raw(&String::from_utf8_lossy(&out))?;
            return Ok(Exit::Done);
        }
    };
    output::raw(own)?;
    Ok(Exit::Done)
}
