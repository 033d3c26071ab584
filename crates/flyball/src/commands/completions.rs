//! `flyball completions`: what a shell needs to complete commands, options and the names of knobs.

use crate::{
    cli::Cli,
    exit::{Exit, Failure},
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
pub fn run(_cli: &Cli, args: &Args) -> Result<Exit, Failure> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::command(), "flyball", &mut out);
    std::io::Write::write_all(&mut std::io::stdout(), &out)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write to stdout: {error}")))?;
    Ok(Exit::Done)
}
