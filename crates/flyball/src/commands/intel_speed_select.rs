//! `flyball intel-speed-select`, or a link named `intel-speed-select`: a replacement for that tool.
//!
//! Reads its arguments before clap does, because that tool has its own syntax.

use std::{
    io::Write as _,
    path::Path,
    process::{ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_host::{Host, Kind, thermal::CapabilityEvents};
use flyball_process::confine::Confinement;
use flyball_sst_dropin::{Daemon, Ended, Environment};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
    process::{flag_on, own_program},
    terminal,
};

/// The tool's name, which is also the name of the link.
const NAME: &str = "intel-speed-select";

/// Set in the background process that `--oob` starts.
const BACKGROUND: &str = "FLYBALL_OOB_BACKGROUND";

/// The pid file of the background process. The original uses /tmp, where any user can create a link
/// of that name.
const PID_FILE: &str = "/run/hfi-events.pid";

/// Arguments of `intel-speed-select`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The tool's options and commands; --strict first for results on stdout and reliable exit
    /// codes.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<String>,
}

impl Args {
    /// Adds the output files. Returns `false` for the daemon, which starts a program.
    pub(super) fn files(&self, files: &mut Confinement) -> bool {
        files_of(&words_of_tool(&self.words), files)
    }
}

fn files_of(words: &[String], files: &mut Confinement) -> bool {
    let outputs = flyball_sst_dropin::outputs(words);
    outputs.iter().flatten().for_each(|file| files.write(file.as_ref()));
    outputs.is_some()
}

/// Returns the command line as the tool itself would get it.
fn words_of_tool(words: &[String]) -> Vec<String> {
    std::iter::once(NAME.to_owned()).chain(words.iter().cloned()).collect()
}

/// Runs the tool if this process was started under its name, or with its name as the command.
/// Otherwise returns `None`.
pub(crate) fn run_if_called() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let called = Path::new(args.first()?).file_name()?.to_str()?;
    if called == NAME {
        return Some(on(&MachineArg::Live, &args));
    }
    let (before, at) = command_word(&args)?;
    // The kernel's tool has its own exit code for unknown words. But a missing machine is flyball's
    // own error.
    let (after, words) = match machine_of_words(&args[at..]) {
        Ok(found) => found,
        Err(failure) => return Some(report(&failure)),
    };
    Some(match after.unwrap_or(before).parse::<MachineArg>() {
        Ok(machine) => on(&machine, &words),
        Err(message) => report(&Failure::usage(message)),
    })
}

/// Finds the command word. Returns the machine named before it, and its position.
fn command_word(args: &[String]) -> Option<(String, usize)> {
    let mut machine = "live".to_owned();
    let mut at = 1;
    loop {
        let word = args.get(at)?;
        if word == NAME {
            return Some((machine, at));
        }
        match word.as_str() {
            "-M" | "--machine" => {
                machine.clone_from(args.get(at + 1)?);
                at += 1;
            }
            // Do not mistake its value for the command word.
            "--state-dir" => at += 1,
            _ if word.starts_with("--machine=") => word["--machine=".len()..].clone_into(&mut machine),
            _ if word.starts_with("-M") => word[2..].clone_into(&mut machine),
            // flyball's other options have no effect here. The value of such an option ends the
            // search, and clap reports it.
            _ if word.starts_with('-') => {}
            _ => return None,
        }
        at += 1;
    }
}

/// Separates the machine from the tool's own words. The original has no option -M; passing it on
/// would act on the live machine instead of the named one.
fn machine_of_words(args: &[String]) -> Result<(Option<String>, Vec<String>), Failure> {
    let (mut machine, mut words) = (None, Vec::new());
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        machine = match word.as_str() {
            "-M" | "--machine" => match rest.next() {
                // The last one counts, as for other options of the kernel's tool.
                Some(name) => Some(name.clone()),
                None => return Err(Failure::usage(format!("{word} needs a machine"))),
            },
            _ => match word.strip_prefix("--machine=").or_else(|| word.strip_prefix("-M")) {
                Some(name) => Some(name.to_owned()),
                None => {
                    words.push(word.clone());
                    continue;
                }
            },
        };
    }
    Ok((machine, words))
}

fn on(machine: &MachineArg, args: &[String]) -> ExitCode {
    let mut files = Confinement::default();
    if matches!(machine, MachineArg::Recorded(_)) && files_of(args, &mut files) && machine.files(&mut files) {
        // As in `main`, ignore a kernel that cannot confine.
        let _ = files.enter();
    }
    match machine.open().and_then(|host| run_on(host.as_ref(), args)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => report(&failure),
    }
}

fn report(failure: &Failure) -> ExitCode {
    eprintln!("flyball: {failure}");
    failure.exit.into()
}

fn run_on(host: &dyn Host, args: &[String]) -> Result<u8, Failure> {
    let live = host.kind() == Kind::Live;
    let stopped = Arc::new(AtomicBool::new(false));
    let mut daemon = Process { stopped, events: None, live };
    // Flush below, where a full disk can still be reported: a dropped BufWriter ignores errors.
    let mut out = standard_output();
    let environment = Environment {
        host,
        // Without root, the original fails before it does anything.
        root: !live || flyball_process::is_root(),
        out: &mut out,
        err: &mut terminal::stderr(),
        daemon: &mut daemon,
    };
    let code = flyball_sst_dropin::run(args, environment);
    out.flush().map_err(|error| Failure::failed(format!("cannot write: {error}")))?;
    Ok(code)
}

/// Returns stdout, buffered in blocks unless it is a terminal. This is like the C library, so
/// scripts that send both streams to one file get the same order of lines.
fn standard_output() -> Box<dyn std::io::Write> {
    let out = terminal::stdout();
    if terminal::is_terminal() {
        Box::new(out)
    } else {
        Box::new(std::io::BufWriter::with_capacity(4096, out))
    }
}

/// Runs the tool if clap parsed the command line.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    run_on(host.as_ref(), &words_of_tool(&args.words)).map(Exit::Command)
}

/// This process, which may become a daemon.
struct Process {
    stopped: Arc<AtomicBool>,
    events: Option<CapabilityEvents>,
    live: bool,
}

impl Daemon for Process {
    fn begin(&mut self) {
        // If they cannot be caught, signals end the process immediately, which is acceptable.
        if let Ok(flag) = flag_on(&[SIGINT, SIGTERM]) {
            self.stopped = flag;
        }
    }

    fn detach(&mut self) -> Result<(), Ended> {
        if std::env::var_os(BACKGROUND).is_some() {
            return keep_pid_file(PID_FILE.as_ref());
        }
        let program = own_program().map_err(|_| Ended(1))?;
        let mut command = std::process::Command::new(program);
        // Use a separate process group, so that Ctrl-C in the terminal does not reach it. Start the
        // program again instead of forking: fork without exec is not safe if there are threads.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
            .args(std::env::args_os().skip(1))
            .env(BACKGROUND, "1")
            // A daemon must not keep its start directory busy.
            .current_dir("/tmp")
            // Like the original's daemonize(), close these: a shell that waits for the end of a
            // pipe would wait for the daemon.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if std::env::args_os().next().is_some_and(|name| name.to_string_lossy().ends_with(NAME)) {
            std::os::unix::process::CommandExt::arg0(&mut command, NAME);
        }
        match command.spawn() {
            // Do not wait: this process ends, and init adopts the daemon.
            Ok(_) => Err(Ended(0)),
            Err(_) => Err(Ended(1)),
        }
    }

    fn can_listen(&mut self) -> bool {
        // Events of this machine's kernel say nothing about a simulated or recorded one.
        if self.live && self.events.is_none() {
            self.events = CapabilityEvents::subscribe().ok();
        }
        self.events.is_some()
    }

    fn changes(&mut self, time: Duration) -> Option<Vec<u32>> {
        if !self.can_listen() {
            return None;
        }
        match self.events.as_ref()?.wait(time) {
            Ok(changes) => Some(changes.into_iter().map(|change| change.cpu).collect()),
            // A signal, or more events than fit into the socket. The next poll reads the current
            // state anyway.
            Err(error) if matches!(error.errno.name(), Some("EINTR" | "ENOBUFS")) => Some(Vec::new()),
            Err(_) => None,
        }
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// Locks the pid file, so that there is only one daemon.
fn keep_pid_file(path: &Path) -> Result<(), Ended> {
    // Do not truncate before it is locked: the content may belong to a running daemon.
    let Ok(mut file) = flyball_files::open_output(path, flyball_files::Opening::Keep, 0o600) else {
        return Err(Ended(1));
    };
    if !flyball_process::try_lock(&file).unwrap_or(false) {
        return Err(Ended(1));
    }
    // The number is only for people; the lock counts.
    let _ = file.set_len(0);
    let _ = writeln!(file, "{}", std::process::id());
    // Keep the file open, and so the lock, until this process ends.
    std::mem::forget(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{command_word, keep_pid_file, machine_of_words};

    #[test]
    fn a_pid_file_is_neither_a_link_nor_cut_before_it_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(keep_pid_file(&link).is_err());
        let held = std::fs::File::open(&victim).unwrap();
        assert!(flyball_process::try_lock(&held).unwrap());
        assert!(keep_pid_file(&victim).is_err());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        drop(held);
        assert!(keep_pid_file(&victim).is_ok());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), format!("{}\n", std::process::id()));
    }

    fn found(words: &[&str]) -> Option<(String, usize)> {
        let args: Vec<String> =
            std::iter::once("flyball").chain(words.iter().copied()).map(str::to_owned).collect();
        command_word(&args)
    }

    #[test]
    fn a_machine_after_the_name_is_the_machine() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for after in [&["-M", "sim:x"][..], &["--machine=sim:x"], &["-Msim:x"]] {
            let all = [&["intel-speed-select"], after, &["--info"]].concat();
            let (machine, rest) = machine_of_words(&words(&all)).unwrap();
            assert_eq!(machine.as_deref(), Some("sim:x"));
            assert_eq!(rest, words(&["intel-speed-select", "--info"]));
        }
        assert!(machine_of_words(&words(&["intel-speed-select", "-M"])).is_err());
    }

    #[test]
    fn the_command_word_is_found_behind_global_options_alone() {
        assert_eq!(found(&["intel-speed-select", "-h"]), Some(("live".to_owned(), 1)));
        assert_eq!(found(&["-M", "sim:guide", "intel-speed-select"]), Some(("sim:guide".to_owned(), 3)));
        assert_eq!(found(&["--machine=x", "--json", "intel-speed-select"]), Some(("x".to_owned(), 3)));
        assert_eq!(found(&["show", "intel-speed-select"]), None);
        assert_eq!(found(&["-M"]), None);
    }
}
