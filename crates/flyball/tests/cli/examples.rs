//! Tests the commands in README.md, in docs and in every help text. The program parses all of them,
//! so none has invalid words. Those in help are also run like those in pages (`book.rs`).

use std::{path::PathBuf, process::Stdio};

use flyball_testing::{Ran, Tree, flyball};

use crate::book;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the lines of code in a page: those between fences, and those indented by four. A line
/// that is no command does not begin with a program's name.
fn code(page: &str) -> Vec<String> {
    let mut fence = None;
    let mut lines: Vec<String> = Vec::new();
    let mut continued = false;
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            fence = fence.is_none().then_some(language);
            continue;
        }
        // Output, data and pictures have a language.
        let is_code = fence.map_or(line.starts_with("    "), |language| matches!(language, "" | "sh"));
        if !is_code {
            continue;
        }
        let (text, more) = line.trim().strip_suffix('\\').map_or((line.trim(), false), |text| (text, true));
        match lines.last_mut().filter(|_| continued) {
            Some(last) => last.push_str(&format!(" {text}")),
            None => lines.push(text.to_owned()),
        }
        continued = more;
    }
    lines
}

/// Splits a line into commands and words, like a shell. A comment ends the line.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for char in line.chars().chain([' ']) {
        match (quote, char) {
            (Some(open), char) if char == open => quote = None,
            (Some(_), char) => word.get_or_insert_default().push(char),
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | ';' | '|' | '&' | '>') => {
                if let (Some(word), Some(last)) = (word.take(), all.last_mut()) {
                    last.push(word);
                }
                if char != ' ' {
                    all.push(Vec::new());
                }
            }
            (None, char) => word.get_or_insert_default().push(char),
        }
    }
    all.retain(|words| !words.is_empty());
    all
}

/// Returns the arguments of flyball if the command runs it.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let rest = match words.as_slice() {
        ["sudo", "flyball", rest @ ..] | ["flyball", rest @ ..] => rest,
        ["cargo", "run", rest @ ..] => rest.split(|word| *word == "--").nth(1)?,
        _ => return None,
    };
    Some(rest.iter().map(|word| (*word).to_owned()).collect())
}

/// Returns the examples in each command's help.
fn help() -> Vec<(String, Vec<String>)> {
    let manual = Tree::new();
    Ran::of(flyball!().args(["man", "--dir", manual.path().to_str().unwrap()]).stdin(Stdio::null()));
    let mut all = Vec::new();
    for entry in std::fs::read_dir(manual.path()).unwrap() {
        let page = entry.unwrap().file_name().to_string_lossy().into_owned();
        let word =
            page.trim_start_matches("flyball").trim_end_matches(".1").trim_start_matches('-').to_owned();
        // Skip subcommands, and commands with a dash in their names.
        if word.is_empty() || word.contains('-') {
            continue;
        }
        let help = Ran::of(flyball!().args([&word, "--help"]).stdin(Stdio::null())).out;
        let mut in_examples = false;
        let mut block = String::new();
        for line in help.lines() {
            in_examples = line == "Examples:" || (in_examples && !line.is_empty());
            if in_examples {
                block.push_str(&format!("  {line}\n"));
            }
        }
        all.push((word, code(&block)));
    }
    all
}

/// Returns every flyball command in the pages and in help, with its location.
fn examples() -> Vec<(String, Vec<String>)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut pages = vec![root().join("README.md")];
    pages.extend(std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(page).unwrap();
        lines.extend(code(&text).into_iter().map(|line| (name.clone(), line)));
    }
    for (command, examples) in help() {
        lines.extend(examples.into_iter().map(|line| (format!("{command} --help"), line)));
    }
    lines
        .into_iter()
        .flat_map(|(place, line)| commands(&line).into_iter().map(move |words| (place.clone(), words)))
        .filter_map(|(place, words)| Some((place, arguments(&words)?)))
        .collect()
}

#[test]
fn every_example_is_a_command_line() {
    let all = examples();
    assert!(all.len() > 120, "{} examples", all.len());
    let mut wrong = Vec::new();
    for (place, words) in all {
        let ran =
            Ran::of(flyball!().args(["parse", "--"]).args(&words).current_dir(root()).stdin(Stdio::null()));
        if ran.code != 0 {
            wrong.push(format!("{place}: {words:?}: {}", ran.err.lines().next().unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words of examples that cannot run here, with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("DIR", "a directory of the reader"),
    ("t.dat", "a trace of the reader"),
    ("top.fbt", "records until a signal, or is a recording of the reader"),
    ("trace.txt", "a trace of the reader"),
    ("-i 10 -n test", "an idle simulated machine makes no decisions: the tests of the drop-in run it"),
    ("selftest.", "a sheet of the reader"),
    ("flyball-compare-", "a run directory of the reader"),
    ("flyball guest", "starts an emulator: the tests of the laboratory run them"),
    ("flyball results", "needs a dataset, and a build with Parquet: the tests of `results` run them"),
    ("flyball exporter", "serves until it is ended"),
    ("wake -p", "watches a process of the reader"),
    ("wake --cgroup", "watches a group of the reader"),
    ("wake -- ./bench", "watches a command of the reader"),
    ("run --why", "is about the processors of this computer"),
    ("modprobe", "loads a module"),
    ("server7", "a recording of the reader"),
    ("man -l", "needs the program man"),
    ("/usr/", "writes outside of the test's directory"),
    ("/etc/", "writes outside of the test's directory"),
    ("~/", "writes outside of the test's directory"),
];

/// Words in examples that need another machine.
const MACHINES: &[(&str, &str)] = &[("flyball sst", "sim:sst-guide"), ("idle-state=C1", "sim:gold-6138")];

#[test]
fn examples_of_help_run() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (command, lines) in help() {
        // Run each separately: examples on a help page are independent.
        for line in lines.iter().filter(|line| NOT_RUN.iter().all(|(word, _)| !line.contains(word))) {
            let machine = MACHINES.iter().find(|(word, _)| line.contains(word)).map(|(_, machine)| *machine);
            let block = book::Block::of(line, machine.unwrap_or("sim:hybrid-laptop"));
            wrong.extend(book::run(&format!("{command} --help"), &[block]));
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 60, "{count} examples of help");
}
