//! The command line: parse, call, render.
//!
//! `arms` brings a comparison's arms to the machine, `workloads` makes what it runs of what was typed.
//! `cli` holds what the user may type, `change` what commands that write share, `commands` one module a command, `machine` how `-M` becomes a
//! [`flyball_host::Host`], `simulated` the adapter of simulated machines, `exit` what a command's end means. No knowledge of kernels lives here.

mod arms;
mod change;
mod cli;
mod commands;
mod exit;
mod knobs;
mod machine;
mod output;
mod paint;
mod simulated;
#[cfg(test)]
mod simulated_faults;
mod time;
mod workloads;

use std::process::ExitCode;

use clap::FromArgMatches;

fn main() -> ExitCode {
    exit::die_quietly_on_a_closed_pipe();
    if let Some(code) = commands::intel_speed_select::of_process() {
        return code;
    }
    let mut cli = match cli::Cli::from_arg_matches(&cli::command_here().get_matches()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let result = exit::with_printing(|| match cli.machine.strip_prefix("guest:") {
        Some(choice) => commands::guest::inside(&cli, choice),
        None => {
            cli.machine = machine::complete(&cli)?;
            commands::run(&cli)
        }
    });
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("flyball: {failure}");
            // The wish was in order: there is a machine on which it can be tried.
            if cli.machine == "live" && failure.message.contains("no cpufreq driver") {
                eprintln!(
                    "  on a simulated machine it can be tried: -M sim:ryzen-5750g ('flyball sim list' has more)"
                );
            }
            failure.exit.into()
        }
    }
}
