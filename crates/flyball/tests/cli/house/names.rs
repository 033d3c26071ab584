//! Checks every type, function, crate and file that the page names.

use std::{collections::BTreeSet, path::Path};

use super::sources::{crates, crates_in, page, root, sources};

struct Known {
    /// Types, traits, constants, statics, functions, macros, variants and modules, by name.
    items: BTreeSet<String>,
    crates: Vec<String>,
    /// Paths from the root of the workspace.
    files: Vec<String>,
}

impl Known {
    fn new() -> Known {
        let mut known = Known {
            items: BTreeSet::new(),
            crates: [crates(), crates_in("testing")].concat(),
            files: Vec::new(),
        };
        for source in sources() {
            let code = source.product();
            for word in
                ["struct ", "enum ", "trait ", "type ", "const ", "static ", "fn ", "mod ", "macro_rules! "]
            {
                for (place, _) in code.match_indices(word) {
                    known.items.insert(identifier(&code[place + word.len()..]).to_owned());
                }
            }
            // A variant is at the beginning of a line.
            for line in code.lines().map(str::trim_start) {
                let name = identifier(line);
                let after = line[name.len()..].chars().next();
                if name.starts_with(|c: char| c.is_ascii_uppercase())
                    && matches!(after, Some(',' | '(' | '{' | ' ') | None)
                {
                    known.items.insert(name.to_owned());
                }
            }
            known.files.push(source.path);
        }
        known
    }

    fn has_file(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        root().join(path).exists()
            || self.files.iter().any(|file| file.split_once("/src/").is_some_and(|(_, below)| below == path))
            || self.files.iter().any(|file| {
                file.split_once("/src/").is_some_and(|(_, below)| below.starts_with(&format!("{path}/")))
            })
    }
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Why a name in backticks does not exist; `None` if it exists, or is not a name.
fn missing(name: &str, known: &Known) -> Option<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || "_:<>'()/.-,&*{}$ ".contains(c);
    if name.starts_with('-') || name.starts_with('$') || name.contains(' ') || !name.chars().all(word) {
        return None;
    }
    let extension = ["rs", "md", "toml", "sh"].iter().any(|end| name.ends_with(&format!(".{end}")));
    if extension || name.starts_with("crates/") || name.starts_with("docs/") || name.starts_with("scripts/") {
        let whole = name.contains('*') || known.has_file(name);
        return (!whole).then(|| format!("no file {name}"));
    }
    if name.starts_with("flyball-") {
        return (!known.crates.iter().any(|other| other == name)).then(|| format!("no crate {name}"));
    }
    let plain =
        name.trim_end_matches("()").split('<').next().unwrap_or_default().trim_start_matches(['&', '*']);
    // Words in capitals are environment variables and placeholders.
    if !plain.contains("::") && !plain.contains(|c: char| c.is_ascii_lowercase()) {
        return None;
    }
    let is_name =
        name.ends_with("()") || plain.contains("::") || plain.starts_with(|c: char| c.is_ascii_uppercase());
    if !is_name
        || plain.contains(['/', '.', '{', '$', '-'])
        || plain.starts_with("std::")
        || plain.starts_with("FLYBALL_")
    {
        return None;
    }
    plain
        .split("::")
        .filter(|part| !part.is_empty())
        .find(|part| !known.items.contains(*part) && *part != "crate")
        .map(|part| format!("no type, function, constant or module {part} (in `{name}`)"))
}

/// Returns what a diagram names: files, crates, and capitalised words if these are types.
fn in_diagram(block: &str, known: &Known, types: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for word in block.split(|c: char| !c.is_ascii_alphanumeric() && !"_:./-".contains(c)) {
        let word = word.trim_matches(['.', ':', '/', '-']);
        let camel = word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().any(|c| c.is_ascii_lowercase());
        if camel && types || word.ends_with(".rs") || word.starts_with("flyball-") {
            wrong.extend(missing(word, known));
        }
    }
    wrong
}

#[test]
fn what_the_page_names_exists() {
    let (page, known) = (page(), Known::new());
    let mut wrong = Vec::new();
    for (index, block) in page.split("```").enumerate() {
        if index % 2 == 1 {
            let (kind, text) = block.split_once('\n').unwrap_or_default();
            match kind {
                "" => wrong.extend(in_diagram(text, &known, true)),
                "tree" => wrong.extend(in_diagram(text, &known, false)),
                _ => {}
            }
            continue;
        }
        let names = block.split('`').skip(1).step_by(2);
        wrong.extend(names.filter_map(|name| missing(name, &known)));
    }
    wrong.extend(
        known
            .crates
            .iter()
            .filter(|name| !page.contains(&format!("\n  {name}/ ")))
            .map(|name| format!("says nothing of {name}")),
    );
    assert!(wrong.is_empty(), "ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

/// The tables of attacks and of surfaces name tests, which must exist.
#[test]
fn the_tests_of_the_pages_on_safety_exist() {
    fn text(folder: &Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                text(&path, all);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "py") {
                *all += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    let mut all = String::new();
    for folder in ["crates", "lab/crates", "python/tests", "ansible"] {
        text(&root().join(folder), &mut all);
    }
    let page = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (attacks, surfaces) = (page("docs/dev/security.md"), page("SECURITY.md"));
    let is_attack = |line: &&str| {
        let row = line.strip_prefix("| ").and_then(|row| row.strip_prefix(['D', 'H', 'L', 'M', 'N']));
        row.is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()))
    };
    let attacks: Vec<&str> = attacks.lines().filter(is_attack).collect();
    let surfaces = surfaces.split_once("## By surface").unwrap().1.split_once("\n## ").unwrap().0;
    let surfaces: Vec<&str> = surfaces.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert!(attacks.len() == 42 && surfaces.len() > 10);
    // Tests of guests are named by a string, not by a function.
    let is_missing = |test: &&str| {
        let is_script = test.starts_with("scripts/") && root().join(test).exists();
        let is_function = ["fn ", "def ", "\""].iter().zip(["(", "(", "\""]);
        !is_script
            && !is_function.into_iter().any(|(before, after)| all.contains(&format!("{before}{test}{after}")))
    };
    for row in attacks.into_iter().chain(surfaces) {
        let cell = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap();
        let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        let wrong: Vec<&&str> = tests.iter().filter(|test| is_missing(test)).collect();
        assert!(!tests.is_empty() && wrong.is_empty(), "{wrong:?} in {row}");
    }
}

/// The check itself must be able to fail.
#[test]
fn what_does_not_exist_is_missed() {
    let known = Known::new();
    for name in [
        "Snapshotted",
        "doctor::CHECKED",
        "no_such_function()",
        "write/nothing.rs",
        "flyball-nothing",
        "docs/nothing.md",
    ] {
        assert!(missing(name, &known).is_some(), "{name}");
    }
    for name in [
        "Host",
        "doctor::CHECKS",
        "main()",
        "crates/flyball/src/main.rs",
        "flyball-host",
        "set",
        "--json",
        "Vec<u8>x y",
    ] {
        assert_eq!(missing(name, &known), None, "{name}");
    }
    assert_eq!(in_diagram("Host ──▶ Nonesuch", &known, true).len(), 1);
}
