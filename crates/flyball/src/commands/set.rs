//! `flyball set`: settings from the command line, until reboot or restore.

use flyball_control::Intent;

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
'flyball explain' lists what can be set, and to which values. All values are checked before the first write. If a write \
fails, all settings are restored. 'flyball restore' restores what was there before flyball's first change.

Examples:
  flyball set governor=performance turbo=off
  flyball set max-freq=2.6GHz -c 0-7             only the policies of these CPUs
  flyball set epp@type:E=balance_power           the efficiency cores
  flyball set idle-state=C1                      no state deeper than C1
  flyball set driver-mode=passive governor=schedutil -n    print the writes and their reasons

Exit codes: 0 done, 1 a write failed and all settings were restored, 2 a value is not accepted, 3 restoring failed too, \
4 the machine does not have this knob, 6 another flyball command is changing the machine, 7 done, but the kernel clamped a value.")]
pub(crate) struct Args {
    /// Settings: KNOB=VALUE, or KNOB@CPUS=VALUE for some CPUs.
    #[arg(required = true, value_name = "KNOB[@CPUS]=VALUE")]
    settings: Vec<String>,

    /// CPUs of settings that do not name their own: 0-3,7, 0-7:2, package:0, die:0, core:3, node:0,
    /// policy:0, type:P, type:E, ccd:0, cache:big [default: all].
    #[arg(short, long, value_name = "CPUS")]
    cpus: Option<String>,

    /// Print every write with its reason; write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

impl Args {
    pub(crate) fn dry_run(&self) -> bool {
        self.dry_run
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    // Before opening the machine: a misspelled knob is wrong on any machine.
    let intent = Intent::from_arguments(&args.settings, args.cpus.as_deref()).map_err(Failure::usage)?;
    let host = context.open()?;
    if args.dry_run {
        super::plan::print(context, &*host, &intent, false)
    } else {
        change::apply(context, &*host, &intent)
    }
}
