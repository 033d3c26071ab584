//! `flyball plan`: prints every write that settings need, in order and with its reason, without
//! writing.

use flyball_control::{Intent, Snapshot, plan};
use flyball_host::Host;

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line is one write: location, current value, new value and reason. Eight or more equal writes to CPUs or policies are \
folded into one line, as in policy{0-127}; --each prints them all. Works on recorded machines too.

Examples:
  flyball plan governor=powersave epp=power
  flyball plan storage
  flyball plan quiet.toml
  flyball plan quiet.toml turbo=on -M DIR --json

Exit codes: 0 printed (also if there is nothing to change), 2 a value is not accepted, 4 the machine does not have this \
knob.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) wanted: change::SettingArgs,

    /// Print a line for every write; do not fold equal ones.
    #[arg(long)]
    each: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let intent = args.wanted.intent()?;
    let host = context.open()?;
    print(context, &*host, &intent, args.each)
}

/// Plans `intent` on the machine and prints the plan.
pub(crate) fn print(
    context: &Context,
    host: &dyn Host,
    intent: &Intent,
    each: bool,
) -> Result<Exit, Failure> {
    let snapshot = Snapshot::for_intent(host, intent)?;
    change::print_plan(&context.output.about(host), &plan::plan(&snapshot, intent)?, each)?;
    Ok(Exit::Done)
}
