//! `flyball completions`: what a shell needs to complete commands, options and the names of knobs.

use crate::{
    exit::{Exit, Failure},
    output::checked,
};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  flyball completions bash > /etc/bash_completion.d/flyball\n  \
                        flyball completions zsh > ~/.zfunc/_flyball\n  \
                        flyball completions fish > ~/.config/fish/completions/flyball.fish")]
pub struct Args {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Prints the completions.
pub fn run(mut command: clap::Command, args: &Args) -> Result<Exit, Failure> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, "flyball", &mut out);
    checked(std::io::Write::write_all(&mut std::io::stdout(), &out))?;
    Ok(Exit::Done)
}
