//! The commands of README.md, of the pages in docs and of every help text. All are parsed by the program itself, so that none
//! has words behind it that are no part of it; those of a simulated machine are run. A comparison is only planned (`-n`), because
//! its rounds take minutes; what it plans is read from the machine all the same.

use std::{path::PathBuf, process::Stdio};

use flyball_testing::{Ran, Tree, flyball};

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The lines of code in a page: those between fences, and those indented by four. What is a list of words and no command does
/// not begin with a program.
fn code(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines: Vec<String> = Vec::new();
    let mut continued = false;
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if !fenced && !line.starts_with("    ") {
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

/// The words of each command of a line, as a shell splits them; a comment ends the line.
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

/// The arguments of flyball, if a command is one of it.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let rest = match words.as_slice() {
        ["sudo", "flyball", rest @ ..] | ["flyball", rest @ ..] => rest,
        ["cargo", "run", rest @ ..] => rest.split(|word| *word == "--").nth(1)?,
        _ => return None,
    };
    Some(rest.iter().map(|word| (*word).to_owned()).collect())
}

/// Every command of flyball in the pages and in help, with where it is.
fn examples() -> Vec<(String, Vec<String>)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut pages = vec![root().join("README.md")];
    pages.extend(std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(page).unwrap();
        lines.extend(code(&text).into_iter().map(|line| (name.clone(), line)));
    }
    let manual = Tree::new();
    Ran::of(flyball!().args(["man", "--dir", manual.path().to_str().unwrap()]).stdin(Stdio::null()));
    for entry in std::fs::read_dir(manual.path()).unwrap() {
        let page = entry.unwrap().file_name().to_string_lossy().into_owned();
        let words =
            page.trim_start_matches("flyball").trim_end_matches(".1").trim_start_matches('-').to_owned();
        // Names of commands may hold dashes; help says which.
        let path: Vec<&str> = match words.as_str() {
            "" => continue,
            "intel-speed-select" => continue,
            _ if words.contains('-') => continue,
            word => vec![word],
        };
        let help = Ran::of(flyball!().args(&path).arg("--help").stdin(Stdio::null())).out;
        let mut in_examples = false;
        let mut block = String::new();
        for line in help.lines() {
            in_examples = line == "Examples:" || (in_examples && !line.is_empty());
            if in_examples {
                block.push_str(&format!("  {line}\n"));
            }
        }
        lines.extend(code(&block).into_iter().map(|line| (format!("{words} --help"), line)));
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

#[test]
fn examples_of_simulated_machines_run() {
    let tree = Tree::new();
    let (mut count, mut wrong) = (0, Vec::new());
    for (place, mut words) in examples() {
        let is_simulated = words.iter().any(|word| word.starts_with("sim:"))
            && !words.iter().any(|word| word.ends_with(".toml") || word.ends_with(".dat"));
        if !is_simulated {
            continue;
        }
        if words.iter().any(|word| word == "compare") {
            words.push("-n".to_owned());
        }
        let ran = Ran::of(flyball!().args(&words).current_dir(tree.path()).stdin(Stdio::null()));
        // A fault that is set up is meant to make the command fail.
        let may_fail = words.iter().any(|word| word == "--sim-fault");
        if !matches!(ran.code, 0 | 8 | 9) && !may_fail {
            wrong.push(format!("{place}: {words:?}: {}", ran.text()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 8, "{count} examples of simulated machines");
}
