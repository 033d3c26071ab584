//! Checks that the modules of every crate form layers: no two siblings use each other, directly or
//! through others.
//!
//! A module counts together with the modules inside it. A module may use what its parent defines,
//! and a parent what its children define. The check applies to the graph between siblings, at every
//! level. Names that a parent re-exports count as uses of the module that defines them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

type Module = Vec<String>;

#[test]
fn no_modules_use_each_other() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> =
        fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()).collect();
    directories.sort();
    for directory in directories.iter().filter(|directory| directory.join("src").is_dir()) {
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let cycles = cycles(&modules(&directory.join("src")));
        found.extend(cycles.iter().map(|cycle| format!("{name}: {}", cycle.join(", "))));
    }
    assert!(found.is_empty(), "modules that use each other:\n{}", found.join("\n"));
}

/// Returns the source of every module of a crate, without comments, strings and tests.
fn modules(source: &Path) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::new();
    let mut tests = BTreeSet::new();
    let mut directories = vec![source.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let mut module: Module = path
                .strip_prefix(source)
                .unwrap()
                .with_extension("")
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            let text = bare(&fs::read_to_string(&path).unwrap());
            let (text, inside) = without_tests(&text);
            tests.extend(inside.into_iter().map(|name| [module.clone(), vec![name]].concat()));
            modules.insert(module, text);
        }
    }
    modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    modules
}

/// Removes comments and the contents of strings from Rust source.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("'\"'") {
            rest = &rest[3..];
        } else if rest.starts_with("r#\"") {
            rest = rest.find("\"#").filter(|end| *end > 2).map_or("", |end| &rest[end + 2..]);
        } else if next == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            rest = end.map_or("", |end| &rest[end + 2..]);
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// Returns the text before its test module, and the names of modules that are test files.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let mut files = Vec::new();
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("#[cfg(test)]") {
        kept.push_str(before);
        let item = after.trim_start();
        let words: Vec<&str> = item.split_whitespace().take(3).collect();
        match words.iter().position(|word| *word == "mod") {
            Some(at) if words[at + 1].ends_with(';') => {
                files.push(words[at + 1].trim_end_matches(';').to_owned());
                rest = &item[item.find(';').unwrap() + 1..];
            }
            // Tests are the last item of a file.
            Some(_) => return (kept, files),
            None => rest = after,
        }
    }
    kept.push_str(rest);
    (kept, files)
}

/// Returns every path in `text` that starts with `crate`, `self` or `super`, and any path in a
/// `use`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let starts = is_word(c) && !is_word(before) && before != ':' && before != '$';
        before = c;
        if !starts {
            continue;
        }
        let rest = &text[at..];
        let word: String = rest.chars().take_while(|c| is_word(*c)).collect();
        if word == "use" && rest[3..].starts_with(char::is_whitespace) {
            tree(&rest[3..], &[], &mut found);
        } else if matches!(word.as_str(), "crate" | "self" | "super") && rest[word.len()..].starts_with("::")
        {
            tree(rest, &[], &mut found);
        }
    }
    found
}

/// Parses a path, or a tree of paths in braces, after `prefix`. Returns the rest of the text.
fn tree<'t>(text: &'t str, prefix: &[String], found: &mut Vec<Vec<String>>) -> &'t str {
    let mut path = prefix.to_vec();
    let mut rest = text.trim_start();
    loop {
        if let Some(mut inside) = rest.strip_prefix('{') {
            loop {
                inside = inside.trim_start().trim_start_matches(',').trim_start();
                match inside.strip_prefix('}') {
                    Some(after) => return after,
                    None if inside.is_empty() => return inside,
                    None => {}
                }
                let after = tree(inside, &path, found);
                // Skip what follows a name, such as `as other`.
                inside = &after[after.find([',', '}']).unwrap_or(after.len())..];
            }
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 {
            path.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(after) => rest = after,
            None => {
                found.push(path);
                return rest;
            }
        }
    }
}

/// Returns the module that a path in `module` refers to, if it is in this crate. Follows
/// re-exported names.
fn target(
    path: &[String],
    module: &Module,
    modules: &BTreeMap<Module, String>,
    names: &Names,
) -> Option<Module> {
    let mut at = module.clone();
    match path.first()?.as_str() {
        "crate" => at = Module::new(),
        "self" => {}
        "super" => {
            at.pop()?;
        }
        first => {
            modules.get(&[at.clone(), vec![first.to_owned()]].concat())?;
            return Some(walk(at, path, modules, names));
        }
    }
    let mut rest = &path[1..];
    while rest.first().is_some_and(|part| part == "super") {
        at.pop()?;
        rest = &rest[1..];
    }
    Some(walk(at, rest, modules, names))
}

type Names = BTreeMap<(Module, String), Module>;

fn walk(mut at: Module, path: &[String], modules: &BTreeMap<Module, String>, names: &Names) -> Module {
    for part in path {
        let inner = [at.clone(), vec![part.clone()]].concat();
        if modules.contains_key(&inner) {
            at = inner;
        } else if let Some(home) = names.get(&(at.clone(), part.clone())) {
            return home.clone();
        } else {
            break;
        }
    }
    at
}

/// Groups of siblings that use each other.
fn cycles(modules: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    // Names that a module takes from its children are re-exports, or could be.
    let mut names = Names::new();
    for (module, text) in modules {
        for path in paths(text) {
            if let (Some(name), Some(home)) = (path.last(), target(&path, module, modules, &Names::new()))
                && home.len() > module.len()
                && home.starts_with(module)
            {
                names.insert((module.clone(), name.clone()), home);
            }
        }
    }
    let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, text) in modules {
        for path in paths(text) {
            let Some(other) = target(&path, module, modules, &names) else { continue };
            let shared = module.iter().zip(&other).take_while(|(a, b)| a == b).count();
            if shared < module.len() && shared < other.len() {
                arrows.entry(module[..=shared].to_vec()).or_default().insert(other[..=shared].to_vec());
            }
        }
    }
    let reach = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Module> = vec![from];
        while let Some(module) = next.pop() {
            for other in arrows.get(module).into_iter().flatten() {
                if reached.insert(other.clone()) {
                    next.push(other);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        arrows.keys().map(|module| (module, reach(module))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (module, others) in &reached {
        if others.contains(*module) {
            let group: Vec<String> = others
                .iter()
                .filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)))
                .map(|module| module.join("::"))
                .collect();
            if !found.contains(&group) {
                found.push(group);
            }
        }
    }
    found
}

#[test]
fn cycles_are_found() {
    let modules: BTreeMap<Module, String> = [
        ("", "mod a; mod b; mod c; pub use b::Thing;"),
        ("a", "use crate::{Thing, c::{self, d}};"),
        ("b", "fn f() -> crate::c::Other { todo!() }"),
        ("c", "mod d; use self::d::X;"),
        ("c::d", "use super::Other; use super::super::a;"),
    ]
    .into_iter()
    .map(|(module, text)| {
        let module = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        (module, text.to_owned())
    })
    .collect();
    assert_eq!(cycles(&modules), [["a", "b", "c"]]);
    let text = "fn f() { \"crate::x\"; } // crate::y\n#[cfg(test)]\nmod tests {\nuse crate::z;\n}";
    assert!(paths(&without_tests(&bare(text)).0).is_empty());
}
