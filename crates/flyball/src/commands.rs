//! One module a command: its arguments, and `run`.

pub mod apply;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod explain;
pub mod get;
pub mod guardian;
pub mod guest;
pub mod intel_speed_select;
pub mod man;
pub mod plan;
pub mod quiet;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
pub mod save;
pub mod set;
pub mod show;
pub mod sim;
pub mod sst;
pub mod task;
pub mod trace;
pub mod verify;

use crate::{
    cli::{Cli, Command},
    exit::{Exit, Failure},
};

/// Runs the command that was typed.
pub fn run(cli: &Cli) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Show(args) => show::run(cli, args),
        Command::Sst(args) => sst::run(cli, args),
        Command::Sim(args) => sim::run(cli, args),
        Command::Get(args) => get::run(cli, args),
        Command::Record(args) => record::run(cli, args),
        Command::Man(args) => man::run(cli, args),
        Command::Completions(args) => completions::run(cli, args),
        Command::Explain(args) => explain::run(cli, args),
        Command::Trace(args) => trace::run(cli, args),
        Command::Doctor(args) => doctor::run(cli, args),
        Command::Quiet(args) => quiet::run(cli, args),
        Command::Set(args) => set::run(cli, args),
        Command::Plan(args) => plan::run(cli, args),
        Command::Apply(args) => apply::run(cli, args),
        Command::Verify(args) => verify::run(cli, args),
        Command::Restore(args) => restore::run(cli, args),
        Command::Save(args) => save::run(cli, args),
        Command::Compare(args) => compare::run(cli, args),
        Command::Run(args) => run::run(cli, args),
        Command::Report(args) => report::run(cli, args),
        Command::Task(args) => task::run(cli, args),
        Command::Guest(args) => guest::run(cli, args),
        Command::Guardian(args) => guardian::run(cli, args),
        Command::IntelSpeedSelect(args) => intel_speed_select::run(cli, args),
    }
}
