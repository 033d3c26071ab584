//! `flyball plan`: every write that settings would take, in order, each with its reason. Writes nothing.

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
Each line is one write: path, what is there now, what would be written, and why. Alike writes to eight or more CPUs or
policies are one line with their numbers, policy{0-127}; --each gives each its own. Works on recorded machines too.

  flyball plan governor=powersave epp=power
  flyball plan quiet.toml
  flyball plan quiet.toml turbo=on -M DIR --json

Exit: 0 printed (also when there is nothing to do), 2 a value is not accepted, 4 this machine has no such knob.")]
pub struct Args {
    #[command(flatten)]
    wanted: change::Wanted,

    /// A line for every single write, also where many are alike.
    #[arg(long)]
    each: bool,
}

/// Prints the plan.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let intent = args.wanted.intent()?;
    let host = context.open()?;
    print(context, &*host, &intent, args.each)
}

/// Plans `intent` on the machine and prints the plan.
pub fn print(context: &Context, host: &dyn Host, intent: &Intent, each: bool) -> Result<Exit, Failure> {
    let snapshot = Snapshot::for_intent(host, intent).map_err(plan::PlanError::Read)?;
    change::print_plan(&context.output.about(host), &plan::plan(&snapshot, intent)?, each)?;
    Ok(Exit::Done)
}
