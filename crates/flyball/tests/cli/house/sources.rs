//! The workspace's own sources, and which parts of them are code of the product.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) fn page() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// Returns the names of the product's crates, sorted.
pub(super) fn crates() -> Vec<String> {
    crates_in("crates")
}

/// The names of the crates in a folder of the workspace, sorted.
pub(super) fn crates_in(folder: &str) -> Vec<String> {
    let folders = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = folders
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(super) struct Source {
    pub krate: String,
    /// From the root of the workspace.
    pub path: String,
    pub text: String,
}

impl Source {
    /// Returns the text with blanks instead of comments and of the tests at its end, so that lines
    /// keep their numbers.
    pub(super) fn product(&self) -> String {
        without_comments(self.before_tests())
    }

    fn before_tests(&self) -> &str {
        let module = |(at, _): &(usize, &str)| {
            let line = self.text[*at..].lines().nth(1).unwrap_or_default();
            line.ends_with('{') && (line.starts_with("mod ") || line.starts_with("pub(crate) mod "))
        };
        let end =
            self.text.match_indices("#[cfg(test)]\n").find(module).map_or(self.text.len(), |(at, _)| at);
        &self.text[..end]
    }

    /// Returns the line number of a byte offset.
    pub(super) fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

/// Returns every file in every crate's `src`, except those with only tests.
pub(super) fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for krate in crates() {
        let mut folders = vec![root().join("crates").join(&krate).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = entry.file_name().into_string().unwrap();
                if path.is_dir() {
                    folders.push(path);
                } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    let path = path.display().to_string();
                    let at = path.rfind("crates/").unwrap();
                    found.push(Source { krate: krate.clone(), path: path[at..].to_owned(), text });
                }
            }
        }
    }
    found
}

/// Replaces comments with blanks. Supports only plain raw strings, which is enough here.
fn without_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (length, is_comment) = if rest.starts_with(b"//") {
            (rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()), true)
        } else if rest.starts_with(b"/*") {
            (rest.windows(2).position(|pair| pair == b"*/").map_or(rest.len(), |end| end + 2), true)
        } else if rest.starts_with(b"'\"'") || rest.starts_with(b"b'\"'") {
            (rest.iter().position(|byte| *byte == b'"').unwrap_or(0) + 2, false)
        } else if rest[0] == b'"' {
            let mut end = 1;
            while end < rest.len() && rest[end] != b'"' {
                end += if rest[end] == b'\\' { 2 } else { 1 };
            }
            ((end + 1).min(rest.len()), false)
        } else {
            (1, false)
        };
        let bytes = &rest[..length];
        if is_comment {
            out.extend(bytes.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        } else {
            out.extend_from_slice(bytes);
        }
        at += length;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn comments_are_left_out() {
    let text = "a // b\n\"// c\" '\"' /* d\n*/ e";
    assert_eq!(without_comments(text), "a     \n\"// c\" '\"'     \n   e");
}
