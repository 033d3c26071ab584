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

use std::io;

use flyball_guest::{
    cache::Cache,
    guest::{self, Request, Root},
    initramfs::{self, JobFile},
    run::{End, Kept, Outlets},
};
use flyball_measure::RunDirectory;

use super::{before, finish};
use crate::{
    commands::compare,
    exit::{Exit, Failure},
    machine::GuestArg,
};

/// Runs the command line in a guest.
pub fn inside(choice: GuestArg) -> Result<Exit, Failure> {
    let (mut request, words) = prepare(choice)?;
    request.command = in_its_directory(&words, &request.files);
    let end = guest::run(&Cache::of_user(), &request, super::outlets(false)).map_err(before)?;
    Ok(finish(&end, false))
}

/// Puts this program into the guest; the request, and the command line that runs there.
fn prepare(choice: GuestArg) -> Result<(Request, Vec<String>), Failure> {
    let mut request = choice.request;
    let this = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
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
    let words = std::iter::once(program).chain(without_machine(std::env::args().skip(1))).collect();
    Ok((request, words))
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
pub fn compare_inside(choice: GuestArg, args: &compare::Args, json: bool) -> Result<Exit, Failure> {
    let (mut request, mut words) = prepare(choice)?;
    let directory = args.directory();
    if directory.is_absolute() || directory.components().any(|part| part.as_os_str() == "..") {
        return Err(Failure::usage(format!(
            "in a guest the run directory is below this one: {} is not",
            directory.display()
        )));
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
        let end: End = guest::run(&Cache::of_user(), &request, outlets).map_err(before)?;
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
        if json {
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
