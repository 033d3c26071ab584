//! `flyball guest` and `-M guest:NAME`: run the program `flyball-guest`, which is a separate
//! package, like git and cargo run their subcommands. This process becomes that program, so the
//! terminal, signals and exit codes are those of the program.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{
    commands::compare,
    exit::{Exit, Failure},
    process::own_program,
};

/// Arguments of `guest`, which the program reads.
#[derive(Debug, clap::Args)]
#[command(
    // The program's help has the options.
    disable_help_flag = true,
    override_usage = "flyball guest COMMAND ...",
    after_help = "\
The commands are those of the program flyball-guest, which the package of that name installs: fetch, list, run, shell, record, test \
and fuzz. `flyball guest --help` describes them, and `flyball guest COMMAND --help` their options.

Examples:
  flyball guest fetch --kernel 6.12                      get kernels and QEMU from the distribution's packages
  flyball guest run ryzen-5750g --kernel 6.12 -- cat /sys/devices/system/cpu/cpufreq/policy0/scaling_driver
  flyball guest test ryzen-5750g --kernel 6.12           test the kernel's cpufreq drivers

Exit codes: those of the program; 4 if it is not installed or is of another version than flyball."
)]
pub(crate) struct Args {
    /// A command of the program, and its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// The program's file name.
const PROGRAM: &str = "flyball-guest";

pub(crate) fn run(kernel: Option<&str>, json: bool, args: &Args) -> Result<Exit, Failure> {
    start(kernel, json, |program| program.args(&args.words))
}

/// Runs the given command line in a guest. A comparison is passed as arguments, because its arms
/// may need several boots.
pub(crate) fn inside(
    choice: &str,
    kernel: Option<&str>,
    json: bool,
    comparison: Option<&compare::Args>,
) -> Result<Exit, Failure> {
    let flyball = own_program()?;
    let typed = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let mut words = without_machine(typed);
    let directory = comparison.map(compare::Args::directory);
    if let (Some(args), Some(directory)) = (comparison, &directory)
        && !args.names_directory()
    {
        // Insert before `--`: after it, the option would belong to the workload.
        let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(at..at, ["-o".to_owned(), directory.display().to_string()]);
    }
    start(kernel, json, |program| {
        program.arg("inside").arg("--guest").arg(choice).arg("--flyball").arg(flyball);
        if let (Some(args), Some(directory)) = (comparison, directory) {
            program.arg("--run-directory").arg(directory);
            program.args(args.resumes().then_some("--resumes"));
        }
        program.arg("--").args(words)
    })
}

/// Replaces this process by the program.
fn start(
    kernel: Option<&str>,
    json: bool,
    with: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Exit, Failure> {
    let path = program()?;
    let mut program = Command::new(&path);
    if let Some(kernel) = kernel {
        program.arg("--kernel").arg(kernel);
    }
    program.args(json.then_some("--json"));
    // exec() only returns if the program cannot be executed.
    let error = with(&mut program).exec();
    Err(Failure::not_here(format!("cannot run {}: {error}", path.display())))
}

/// Finds the program of this version, next to flyball or in PATH.
fn program() -> Result<PathBuf, Failure> {
    let beside = own_program()?.with_file_name(PROGRAM);
    let path = env::var_os("PATH").unwrap_or_default();
    // Skip relative directories: these would run whatever is in the current directory.
    let in_path = env::split_paths(&path).filter(|directory| directory.is_absolute());
    let found = std::iter::once(beside)
        .chain(in_path.map(|directory| directory.join(PROGRAM)))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            Failure::not_here(
                "guests need the program flyball-guest, which is not installed\n\
                 hint: install the package flyball-guest, or build lab/ of flyball's source (lab/README.md)",
            )
        })?;
    let answer = Command::new(&found).arg("--version").stdin(Stdio::null()).output();
    let answer =
        answer.map_err(|error| Failure::not_here(format!("cannot run {}: {error}", found.display())))?;
    let version = String::from_utf8_lossy(&answer.stdout);
    let version = version.trim().strip_prefix(PROGRAM).unwrap_or_default().trim();
    if version == env!("CARGO_PKG_VERSION") {
        return Ok(found);
    }
    let version = if version.is_empty() { "unknown" } else { version };
    Err(Failure::not_here(format!(
        "{} has version {version}, and flyball has {}\nhint: install both of the same version",
        found.display(),
        env!("CARGO_PKG_VERSION")
    )))
}

/// The command line without the options that choose the machine.
fn without_machine(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" => {
                kept.push(word);
                // A later -M belongs to the command that is run.
                kept.extend(words);
                break;
            }
            "-M" | "--machine" | "--kernel" => {
                words.next();
            }
            _ if word.starts_with("--machine=") || word.starts_with("--kernel=") => {}
            _ if word.starts_with("-M") => {}
            _ => kept.push(word),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_command_line_does_not_name_the_guest() {
        let kept = |text: &str| without_machine(text.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(kept("-M guest:x compare --kernel 7.2 -- cmd -M y"), "compare -- cmd -M y");
        assert_eq!(kept("--machine=guest:x show --json"), "show --json");
        assert_eq!(kept("show -Mguest:x"), "show");
    }
}
