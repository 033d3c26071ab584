//! The whole command line in a guest: `-M guest:MACHINE[,driver=D][,cpus=N][,interface=W][,cycles=N][,class=C][,seed=N][,memory=MB]
//! [,root=host][,file=FILE][,open]`.
//!
//! This program is its own guest tool: it is put into the guest with the libraries it runs with, and works there as on
//! any machine. Guest time is the closed loop's unless `open` is said. What the command leaves in its directory comes
//! back into this one.
//!
//! A comparison whose arms need different boots (`driver=acpi-cpufreq` beside amd-pstate) is what it is on a machine,
//! without somebody who boots it: the guest says in the run directory's manifest what it has to be booted with for the
//! arms that wait, and is booted with that and `compare --resume`.

use std::{io, path::PathBuf};

use flyball_guest::{
    Interface,
    cache::Cache,
    guest::{self, Request, Root},
    initramfs::{self, JobFile},
    machine::Driver,
    run::{End, Kept, Outlets},
};
use flyball_measure::RunDirectory;

use super::{KERNEL, before, finish};
use crate::{
    cli::{Cli, Command},
    commands::compare,
    exit::{Exit, Failure},
};

/// What `-M guest:` takes, without the command.
fn request(cli: &Cli, choice: &str) -> Result<Request, Failure> {
    let mut parts = choice.split(',');
    let machine = parts.next().unwrap_or_default();
    let kernel = cli.kernel.as_deref().unwrap_or(KERNEL);
    let mut request = Request::new(machine, kernel, &[]);
    request.closed = true;
    request.timeout = None;
    request.memory_mb = 768;
    for part in parts {
        let bad = || {
            Failure::new(
                Exit::Usage,
                format!(
                    "'{part}' in 'guest:{choice}' is not understood; after the name come driver=amd-pstate=passive, \
                     cpus=N, interface=cppc-mailbox, cycles=N, class=network, seed=N, memory=MB, file=FILE (for the command's \
                     directory), root=host or open, separated by commas"
                ),
            )
        };
        match part.split_once('=') {
            Some(("driver", word)) => request.driver = Driver::parse(word)?,
            Some(("cpus", number)) => request.cpus = number.parse().map_err(|_| bad())?,
            Some(("seed", number)) => request.seed = number.parse().map_err(|_| bad())?,
            Some(("cycles", number)) => {
                let cycles: Option<f64> = number.parse().ok().filter(|n| (0.25..=1000.0).contains(n));
                let cycles = cycles.ok_or_else(bad)?;
                request.cycles = (cycles * 256.0) as u32;
            }
            Some(("class", word)) => request.class = super::class(word)?,
            Some(("memory", number)) => request.memory_mb = number.parse().map_err(|_| bad())?,
            Some(("interface", word)) => request.interface = Some(Interface::parse(word).ok_or_else(bad)?),
            Some(("file", file)) if !file.is_empty() => request.files.push(JobFile::parse(file)),
            Some(("root", "host")) => request.root = Root::Directory("/".into()),
            Some(("root", dir)) => request.root = Root::Directory(dir.into()),
            None if part == "open" => request.closed = false,
            _ => return Err(bad()),
        }
    }
    request.modules =
        ["?acpi-cpufreq", "?msr", "?intel_rapl_msr", "?coretemp", "?cpufreq_ondemand", "?cpufreq_powersave"]
            .map(str::to_owned)
            .into();
    request.copy_back = Some(PathBuf::from("."));
    Ok(request)
}

/// Runs the command line in a guest.
pub fn inside(cli: &Cli, choice: &str) -> Result<Exit, Failure> {
    if matches!(cli.command, Command::Guest(_)) {
        return Err(Failure::new(Exit::Usage, "flyball guest takes its machine as an argument, not by -M"));
    }
    let mut request = request(cli, choice)?;
    let this = std::env::current_exe()
        .map_err(|e| Failure::new(Exit::Failed, format!("cannot find this program: {e}")))?;
    let program = if request.root == Root::Initramfs {
        request.files.push(JobFile { source: this, name: "flyball".into() });
        "/job/flyball".to_owned()
    } else {
        this.display().to_string()
    };
    eprintln!(
        "flyball: in a guest of {}, kernel {}: {}",
        request.machine,
        request.kernel,
        if request.closed {
            "time, speed, energy and heat are emulated"
        } else {
            "nothing here is a measurement"
        }
    );
    let words: Vec<String> =
        std::iter::once(program).chain(without_machine(std::env::args().skip(1))).collect();
    match &cli.command {
        Command::Compare(args) if !args.dry_run() => boots(&mut request, words, args),
        _ => {
            request.command = in_its_directory(&words, &request.files);
            let outlets = super::outlets(false);
            let end = guest::run(&Cache::of_user(), &request, outlets).map_err(before)?;
            Ok(finish(&end, false))
        }
    }
}

/// A line for the guest's shell: the command in the directory that comes back, where the files that were given stand
/// too, as links that do not come back.
fn in_its_directory(words: &[String], files: &[JobFile]) -> Vec<String> {
    let here = files.iter().map(|file| file.name.as_str()).filter(|name| !name.contains('/'));
    let names: Vec<String> = here.filter(|name| *name != "flyball").map(initramfs::quoted).collect();
    let command = initramfs::command_line(words);
    let names = names.join(" ");
    if names.is_empty() {
        return vec![format!("cd /job/out; {command}")];
    }
    vec![format!(
        "cd /job/out; for f in {names}; do ln -s ../\"$f\" .; done
{command}
code=$?
for f in {names}; do [ -L \"$f\" ] && rm \"$f\"; done
exit $code"
    )]
}

/// A comparison, in as many boots as its arms need.
fn boots(request: &mut Request, mut words: Vec<String>, args: &compare::Args) -> Result<Exit, Failure> {
    let directory = args.directory();
    if directory.is_absolute() || directory.components().any(|part| part.as_os_str() == "..") {
        return Err(Failure::new(
            Exit::Usage,
            format!("in a guest the run directory is below this one: {} is not", directory.display()),
        ));
    }
    let place = directory.display().to_string();
    if args.resumes() {
        request.files.push(JobFile { source: directory.clone(), name: format!("out/{place}") });
    } else if !args.names_directory() {
        let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(at..at, ["-o".to_owned(), place.clone()]);
    }
    let (files, append) = (request.files.clone(), request.append.clone());
    loop {
        request.command = in_its_directory(&words, &request.files);
        let said = Kept::default();
        let outlets = Outlets { out: Box::new(said.clone()), err: Box::new(io::stderr()), console: None };
        let end: End = guest::run(&Cache::of_user(), request, outlets).map_err(before)?;
        let waiting = if end.exit_code() == 0 { waiting(&directory) } else { None };
        let Some((arm, needed)) = waiting.filter(|(_, needed)| !request.append.contains(needed)) else {
            let _ = io::Write::write_all(&mut io::stdout(), &said.bytes());
            return Ok(finish(&end, false));
        };
        eprintln!("flyball: boots again for arm '{arm}', with {needed}");
        request.append = append.iter().cloned().chain([needed]).collect();
        // A boot of its own has an identity of its own.
        request.seed += 1;
        request.files.clone_from(&files);
        request.files.push(JobFile { source: directory.clone(), name: format!("out/{place}") });
        words = vec![words[0].clone(), "compare".to_owned(), "--resume".to_owned(), place.clone()];
        if std::env::args().any(|word| word == "--json") {
            words.push("--json".to_owned());
        }
    }
}

/// The first arm that waits for a boot, and what to boot with.
fn waiting(directory: &std::path::Path) -> Option<(String, String)> {
    let found = RunDirectory::open(directory).ok()?;
    let manifest = &found.manifest;
    manifest.arms.iter().enumerate().find_map(|(index, arm)| {
        let ran = found.rounds.iter().any(|round| round.arm == index && !round.warm_up);
        let needed = manifest.boot_needs.get(index)?.as_ref()?;
        (!ran).then(|| (arm.name.clone(), needed.clone()))
    })
}

/// The command line without the options that say where it runs.
fn without_machine(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" => {
                kept.push(word);
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
