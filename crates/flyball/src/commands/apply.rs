//! `flyball apply`: applies a profile until reboot or restore.

pub(crate) mod at_boot;

use flyball_process::confine::Confinement;

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A profile has a name ('flyball profiles' lists them) or is a TOML file: settings for all CPUs, then sections for some of them.

  description = \"steady, for benchmarks\"
  turbo = \"off\"
  governor = \"performance\"
  [cpus.\"0-3\"]
  max-freq = \"base\"
  [type.E]
  max-freq = \"min\"
  [optional]
  epp = [\"balance_power\", \"power\"]

Sections: cpus, package, die, node, core, policy, type. If the machine lacks a setting of [optional] or [optional.type.E], \
flyball leaves it out and says so. From a list, it takes the first value that the machine accepts. 'flyball save' writes the \
current settings as a profile.

Settings last until reboot, 'flyball restore' or another program's write. --at-boot enables flyball-apply@NAME.service, which \
applies the profile NAME at each boot; 'flyball restore' leaves it enabled. --at-boot also prints the kernel parameters, modprobe and tmpfiles lines that set the same at boot; it does not write them.

Examples:
  flyball apply storage
  flyball apply quiet.toml
  flyball apply quiet.toml turbo=on      a setting in addition to the profile; later ones win
  flyball apply quiet.toml -n            print the writes and their reasons
  flyball apply storage --at-boot -n     show the unit that would be enabled

Exit codes: 0 done, 1 failed (settings are restored), 2 a value is not accepted, 3 restoring failed too, 4 the machine lacks \
the knobs, 6 another flyball command is changing the machine, 7 done, but the kernel clamped a value.")]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: change::SettingArgs,

    /// Print every write with its reason; write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Enable a unit that applies the profile at each boot, instead of applying it now.
    #[arg(long, conflicts_with = "cpus")]
    at_boot: bool,
}

impl Args {
    /// Adds the profiles. Returns `false` if the command changes something.
    pub(crate) fn files(&self, files: &mut Confinement) -> bool {
        self.wanted.files(files);
        self.dry_run && !self.at_boot
    }
}

/// Applies the profile.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let intent = args.wanted.intent()?;
    if args.at_boot {
        return at_boot::run(context, &args.wanted.wanted, &intent, args.dry_run);
    }
    let host = context.open()?;
    if args.dry_run {
        super::plan::print(context, &*host, &intent, false)
    } else {
        change::apply(context, &*host, &intent)
    }
}
