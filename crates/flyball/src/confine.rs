//! Which commands are confined to their files: those that only read and print what another user may
//! have written. The command line says which files these are, so the process gives up everything
//! else before it opens the first one.
//!
//! Not confined: what runs a program (`run`, `compare`, `tune`, `quiet -- COMMAND`), serves a
//! machine (`sim run`), starts an emulator (`guest`, `-M guest:`), or works on this machine, whose
//! files cannot be listed beforehand. docs/privileges.md has the table.

use flyball_process::confine::Confinement;

use crate::{
    cli::{Cli, Command},
    commands::{self, sim},
    exit::Failure,
    machine::MachineArg,
};

/// Confines this process to the files of `cli`, if its command is one of those above.
pub(crate) fn enter(cli: &Cli) -> Result<(), Failure> {
    if let Some(files) = files(cli)? {
        // What a kernel does not offer is left out: the readers are safe by themselves, this is the
        // second wall.
        let _ = files.enter();
    }
    Ok(())
}

fn files(cli: &Cli) -> Result<Option<Confinement>, Failure> {
    let mut files = Confinement::default();
    // -M with --sim-state and the like; what is wrong with them is said by the command.
    let machine = match &cli.command {
        // Their machine is an argument; -M has no meaning for them.
        Command::Sim(_) | Command::Guest(_) => None,
        _ => Some(cli.machine.machine()?),
    };
    let of_machine = |files: &mut Confinement| machine.as_ref().is_some_and(|machine| machine.files(files));
    // No default arm: a new command has to say here which files it reads, or why it cannot.
    #[deny(clippy::wildcard_enum_match_arm)]
    let confined = match &cli.command {
        Command::Show(args) => {
            if let Some(file) = &args.nfd {
                files.write(file);
            }
            of_machine(&mut files)
        }
        Command::Get(_) => of_machine(&mut files),
        // On any other machine it may change something, with a journal.
        // A running machine is asked through perf events too.
        Command::Sst(_) => matches!(machine, Some(MachineArg::Recorded(_))) && of_machine(&mut files),
        Command::Why(args) => {
            args.files(&mut files)
                || matches!(machine, Some(MachineArg::Recorded(_))) && of_machine(&mut files)
        }
        Command::Plan(args) => {
            args.files(&mut files);
            of_machine(&mut files)
        }
        Command::Profiles(_) => {
            commands::profiles::files(&mut files);
            of_machine(&mut files)
        }
        Command::Verify(args) => {
            args.files(&mut files);
            of_machine(&mut files)
        }
        // --fix and --write change the machine; the trace is added in any case.
        Command::Doctor(args) => args.files(&mut files) && of_machine(&mut files),
        Command::Save(args) => {
            args.files(&mut files);
            of_machine(&mut files)
        }
        Command::Record(args) => {
            args.files(&mut files);
            of_machine(&mut files)
        }
        // `trace report` reads a file and needs no machine; what records does, and it is not
        // confined.
        Command::Trace(args) => args.files(machine.as_ref().unwrap_or(&MachineArg::Live), &mut files),
        // Of a machine it is not confined, whose files cannot be listed; --replay needs none.
        Command::Top(args) => args.files(&mut files),
        Command::Report(args) => {
            args.files(&mut files);
            true
        }
        Command::Results(args) => {
            args.files(&mut files);
            true
        }
        Command::Quiet(args) => {
            let recorded = matches!(machine, Some(MachineArg::Recorded(_)));
            args.files(&mut files) || (args.looks() && recorded && of_machine(&mut files))
        }
        Command::Sim(args) => sim::files(args, &mut files),
        // They change the machine, run programs or keep working on a machine whose files cannot be
        // listed.
        Command::Set(_)
        | Command::Apply(_)
        | Command::Restore(_)
        | Command::Hold(_)
        | Command::Compare(_)
        | Command::Tune(_)
        | Command::Run(_)
        | Command::Exporter(_)
        | Command::Guest(_)
        | Command::Task(_)
        | Command::Guardian(_)
        | Command::IntelSpeedSelect(_)
        | Command::AmdPstateTrace(_)
        | Command::IntelPstateTracer(_) => false,
        // They print text of flyball's own; `complete` looks for names in any directory.
        Command::Explain(_)
        | Command::Man(_)
        | Command::Completions(_)
        | Command::Schema(_)
        | Command::Complete(_)
        | Command::Parse(_) => false,
        // Confines itself, more tightly, once it has its sockets.
        #[cfg(feature = "bus")]
        Command::HoldBus(_) => false,
    };
    Ok(confined.then_some(files))
}
