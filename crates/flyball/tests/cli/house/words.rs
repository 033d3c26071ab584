//! The word list of CONTRIBUTING.md against comments, messages, help and pages.

use std::fs;

use super::sources::{root, sources};

/// What is not written, and what instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("put back", "restored"),
    ("puts back", "restores"),
    ("putting back", "restoring"),
    ("put everything back", "restore everything"),
    ("puts everything back", "restores everything"),
    ("put it back", "restore it"),
    ("putting it back", "restoring it"),
    ("put them back", "restore them"),
    ("bring back", "restore"),
    ("anew", "again"),
    ("alike", "equal, the same"),
    ("beside", "next to, in addition to"),
    ("whoever", "the user, a process that"),
    ("nobody", "no user, no process"),
    ("somebody", "another user or program"),
    ("as far as", "if; where; the part that"),
    ("already so", "already in effect"),
    ("tells", "says, shows, reports"),
    ("told", "says, shows, reports"),
];

/// Files in which such a word is not prose, with the word.
const ALLOWED: &[(&str, &str)] = &[
    // The name of a user in a guest's /etc/passwd.
    ("crates/flyball-guest/src/initramfs.rs", "nobody"),
    // The id of an option.
    ("crates/flyball/src/commands/compare/args.rs", "beside"),
];

/// `is no` and `are no` before a noun are `is not a` and `are not`; these words may follow.
const AFTER_NO: &[&str] = &["longer", "more", "less", "such"];

/// The words of a text in lower case, each with its line.
fn words(text: &str) -> Vec<(usize, String)> {
    // In a string literal `\n` is two characters, and would be part of the word after it.
    // `--beside` is an option of `compare`, not prose.
    let text = text.replace("\\n", "  ").replace("--beside", "--");
    let of_line = |(number, line): (usize, &str)| -> Vec<(usize, String)> {
        let parts = line.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '\''));
        parts.filter(|part| !part.is_empty()).map(|part| (number + 1, part.to_lowercase())).collect()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// Each forbidden word in a text: its line, the word, and what to write.
fn found(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let words = words(text);
    let mut found = Vec::new();
    for at in 0..words.len() {
        let here = |phrase: &str| {
            let mut wanted = phrase.split(' ').zip(&words[at..]);
            words.len() - at >= phrase.split(' ').count() && wanted.all(|(a, (_, b))| a == b)
        };
        let line = words[at].0;
        found.extend(FORBIDDEN.iter().filter(|(no, _)| here(no)).map(|(no, yes)| (line, *no, *yes)));
        let there = at > 0 && words[at - 1].1 == "there";
        let noun = words.get(at + 2).is_some_and(|(_, word)| !AFTER_NO.contains(&word.as_str()));
        if (here("is no") || here("are no")) && noun && !there {
            found.push((line, "is no", "is not a"));
        }
    }
    found
}

/// Pages for users and developers. The changelog is a record, and stays as it was written.
fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/dev", "machines"] {
        for entry in fs::read_dir(root().join(folder)).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with(".md") && name != "CHANGELOG.md" {
                let text = fs::read_to_string(entry.path()).unwrap();
                // The word list itself is a table.
                let kept =
                    |line| if name == "CONTRIBUTING.md" && str::starts_with(line, "| ") { "" } else { line };
                pages.push((
                    format!("{folder}/{name}"),
                    text.lines().map(kept).collect::<Vec<_>>().join("\n"),
                ));
            }
        }
    }
    pages
}

#[test]
fn words_are_those_of_the_list() {
    let code = sources().into_iter().map(|source| (source.path.clone(), source.prose()));
    let mut wrong = Vec::new();
    for (path, text) in code.chain(pages()) {
        for (line, no, yes) in found(&text) {
            if !ALLOWED.contains(&(path.as_str(), no)) {
                wrong.push(format!("{path}:{line}: '{no}': write '{yes}'"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} words, see the list in CONTRIBUTING.md:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn phrases_are_found_across_lines() {
    assert_eq!(found("/// It is put\n    /// back.").len(), 1);
    assert_eq!(found("\"\\nput back\"").len(), 1);
    assert_eq!(found("This is no setting.").len(), 1);
    assert!(found("There is no setting, is_put_back is no longer one.").is_empty());
}
