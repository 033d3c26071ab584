//! Writes the facts of a machine that was recorded as a tree of files: `facts DIRECTORY [KEY=VALUE ...]`, where the
//! keys and values become the head.

use std::{io::Write, path::Path, process::ExitCode};

use flyball_host::facts::Facts;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((root, head)) = words.split_first() else {
        eprintln!("usage: facts DIRECTORY [KEY=VALUE ...]");
        return ExitCode::from(2);
    };
    let mut facts = match Facts::from_tree(Path::new(root)) {
        Ok(facts) => facts,
        Err(error) => {
            eprintln!("facts: {root}: {error}");
            return ExitCode::FAILURE;
        }
    };
    facts.head =
        head.iter().filter_map(|word| word.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
    let text = facts.to_text();
    if Facts::parse(&text).as_ref() != Ok(&facts) {
        eprintln!("facts: {root}: the text does not read back as what was written");
        return ExitCode::FAILURE;
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
