//! `flyball apply`: sets what a profile contains, until reboot or restore.

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A profile is a TOML file: settings for all CPUs, then sections for some of them.

  description = \"steady, for benchmarks\"
  turbo = \"off\"
  governor = \"performance\"
  [cpus.\"0-3\"]
  max-freq = \"base\"
  [type.E]
  max-freq = \"min\"

Sections: cpus, package, die, node, core, policy, type. 'flyball save' writes the current settings as a profile.

Examples:
  flyball apply quiet.toml
  flyball apply quiet.toml turbo=on      a setting in addition to the profile; later ones win
  flyball apply quiet.toml -n            print the writes and their reasons

Exit codes are those of 'flyball set'.")]
pub struct Args {
    #[command(flatten)]
    wanted: change::SettingArgs,

    /// Print every write with its reason; write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Applies the profile.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let intent = args.wanted.intent()?;
    let host = context.open()?;
    if args.dry_run {
        super::plan::print(context, &*host, &intent, false)
    } else {
        change::apply(context, &*host, &intent)
    }
}
