//! `-M guest:`: runs the whole command line in a guest.
//!
//! The flyball that was called is copied into the guest with its libraries, and works there as on
//! any machine. Files that the command leaves in its directory are copied back to the current
//! directory.
//!
//! If the arms of a comparison need different boots, the run directory's manifest lists the kernel
//! parameters that the waiting arms need. The guest is then booted again with these, and runs
//! `compare --resume`.

use std::{
    io::{self, Write as _},
    path::{Component, Path, PathBuf},
};

use flyball_guest::{
    cache::Cache,
    guest::{self, Request, Root},
    initramfs::{self, JobFile},
    run::{End, OutputSinks, SharedBuffer},
};
use flyball_measure::RunDirectory;

use crate::{
    before,
    failure::{Exit, Failure},
    finish,
    guest_arg::GuestArg,
};

/// Arguments of `inside`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What followed `guest:`.
    #[arg(long, value_name = "GUEST", value_parser = GuestArg::parse)]
    guest: GuestArg,

    /// The flyball that runs in the guest: the one that was called.
    #[arg(long, value_name = "FILE")]
    flyball: PathBuf,

    /// The directory of a comparison: the guest is booted as often as its arms need.
    #[arg(long, value_name = "DIR")]
    run_directory: Option<PathBuf>,

    /// The comparison was begun earlier.
    #[arg(long, requires = "run_directory")]
    resumes: bool,

    /// The command line, without the program and the options that choose the machine.
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

/// Runs the command line in a guest.
pub(crate) fn run(kernel: Option<&str>, json: bool, args: &Args) -> Result<Exit, Failure> {
    let (mut request, words) = prepare(kernel, args);
    if let Some(directory) = &args.run_directory {
        return compare(request, words, directory, args.resumes, json);
    }
    request.command = in_its_directory(&words, &request.files);
    let end = crate::boot(&request, false)?;
    Ok(finish(&end, false))
}

/// Returns the request with flyball among its files, and the command line to run in the guest.
fn prepare(kernel: Option<&str>, args: &Args) -> (Request, Vec<String>) {
    let mut request = args.guest.request.clone();
    if let Some(kernel) = kernel {
        kernel.clone_into(&mut request.kernel);
    }
    let flyball = args.flyball.clone();
    // If the guest's root is a file system of the host, the program is already there.
    let program = if request.root == Root::Initramfs {
        // Its shared libraries are copied too, as for every program among the files.
        request.files.push(JobFile { source: flyball, name: "flyball".into() });
        "/job/flyball".to_owned()
    } else {
        flyball.display().to_string()
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
    let words: Vec<String> = std::iter::once(program).chain(args.words.iter().cloned()).collect();
    request.replaced = named(&args.words);
    (request, words)
}

/// The files and directories below the current directory that a command line may name: its words,
/// and in each word the text after `=` or after an option's letter. Only these may be replaced by a
/// guest: the user has not passed any other file.
fn named(words: &[String]) -> Vec<PathBuf> {
    let parts = words.iter().flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        let letter = word.strip_prefix('-').and_then(|rest| rest.get(1..));
        [Some(word.as_str()), value, letter]
    });
    let inside = parts.flatten().filter_map(|part| {
        let mut path = PathBuf::new();
        for part in Path::new(part).components() {
            match part {
                Component::Normal(name) => path.push(name),
                Component::CurDir => {}
                _ => return None,
            }
        }
        Some(path)
    });
    inside.filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Returns a line for the guest's shell that runs the command in the directory that is copied back.
/// During the run it has links to the user's files.
fn in_its_directory(words: &[String], files: &[JobFile]) -> Vec<String> {
    let here = files.iter().map(|file| file.name.as_str()).filter(|name| !name.contains('/'));
    let names: Vec<String> = here.filter(|name| *name != "flyball").map(initramfs::quoted).collect();
    let command = initramfs::command_line(words);
    let names = names.join(" ");
    if names.is_empty() {
        return vec![format!("cd /job/out; {command}")];
    }
    vec![format!(
        // Links instead of copies: files that the command leaves in the directory are copied back,
        // and the user's own files should not be.
        "cd /job/out; for f in {names}; do ln -s ../\"$f\" .; done
{command}
code=$?
for f in {names}; do [ -L \"$f\" ] && rm \"$f\"; done
exit $code"
    )]
}

/// Runs a comparison in a guest, with as many boots as its arms need.
fn compare(
    mut request: Request,
    mut words: Vec<String>,
    directory: &Path,
    resumes: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let cache = Cache::of_user().map_err(before)?;
    if directory.is_absolute() || directory.components().any(|part| part.as_os_str() == "..") {
        return Err(Failure::usage(format!(
            "in a guest the run directory must be below the current one, and {} is not",
            directory.display()
        )));
    }
    let place = directory.display().to_string();
    let directory = directory.to_owned();
    if resumes {
        request.files.push(JobFile { source: directory.clone(), name: format!("out/{place}") });
    }
    // The default name of the directory is not on the command line.
    request.replaced.push(directory.clone());
    let (files, append) = (request.files.clone(), request.append.clone());
    loop {
        request.command = in_its_directory(&words, &request.files);
        let said = SharedBuffer::default();
        let sinks = OutputSinks { out: Box::new(said.clone()), err: Box::new(io::stderr()), console: None };
        let end: End = guest::run(&cache, &request, sinks).map_err(before)?;
        let waiting = if end.exit_code() == 0 { waiting(&directory) } else { None };
        // If an arm still waits after a boot with its parameters, another boot would not help.
        let Some((arm, needed)) = waiting.filter(|(_, needed)| !request.append.contains(needed)) else {
            let _ = io::stdout().write_all(&said.bytes());
            return Ok(finish(&end, false));
        };
        eprintln!("flyball: booting again for arm '{arm}', with {needed}");
        // Start from the user's own parameters: those of the previous boot may contradict the next
        // arm's.
        request.append = append.iter().cloned().chain([needed]).collect();
        // Use other random numbers for each boot, as on a real machine.
        request.seed += 1;
        request.files.clone_from(&files);
        request.files.push(JobFile { source: directory.clone(), name: format!("out/{place}") });
        // Drop the other words: --resume takes them from the manifest, and rejects arms and
        // workloads.
        words = vec![words[0].clone(), "compare".to_owned(), "--resume".to_owned(), place.clone()];
        if json {
            words.push("--json".to_owned());
        }
    }
}

/// Returns the first arm that waits for another boot, and the kernel parameters that it needs.
fn waiting(directory: &Path) -> Option<(String, String)> {
    let found = RunDirectory::open(directory).ok()?;
    let manifest = &found.manifest;
    manifest.arms.iter().enumerate().find_map(|(index, arm)| {
        let ran = found.rounds.iter().any(|round| round.arm == index && !round.warm_up);
        let needed = manifest.boot_needs.get(index)?.as_ref()?;
        (!ran).then(|| (arm.name.clone(), needed.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_may_replace_what_the_command_line_names() {
        let words =
            ["record", "-o", "./a.zst", "--csv=b/c.csv", "-od.txt", "--", "make", "..", "/etc/x", "."];
        let named = named(&words.map(str::to_owned));
        for path in ["a.zst", "b/c.csv", "d.txt", "make"] {
            assert!(named.contains(&PathBuf::from(path)), "{path} is not in {named:?}");
        }
        assert!(named.iter().all(|path| path.is_relative() && !path.as_os_str().is_empty()));
        assert!(!named.contains(&PathBuf::from("Makefile")));
    }
}
