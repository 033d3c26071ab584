//! Tests README.md and the pages of docs: every page is in the book, every link and anchor exists,
//! and every block of code is run or says why not.
//!
//! For each page, blocks without a language or of `sh` are run by a shell in their own directory.
//! There, `flyball` acts on a simulated machine (`<!-- machine: sim:NAME -->` chooses another for
//! the rest of the page), `sudo` does nothing, `./bench` and `make` end at once, and `cargo run` is
//! `flyball`. Commands that would take minutes or cannot be simulated are only parsed by the
//! program: comparisons and searches without a model, guests, `sim run`, `quiet` with a command.
//! Profiles (`toml`) and `json` are parsed, and `scripts/sessions` runs blocks of `console`. `<!--
//! not run: REASON -->` before a block excludes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use flyball_control::profile::Profile;
use flyball_testing::{Ran, Tree};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Markdown files below a folder, by their paths from the root.
fn pages(folder: &str) -> BTreeMap<String, String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let markdown = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    markdown.map(read).collect()
}

/// Returns a page without code, whose brackets are not links.
fn prose(page: &str) -> String {
    let mut fenced = false;
    let keep = |line: &&str| {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence && !line.starts_with("    ")
    };
    let lines: Vec<&str> = page.lines().filter(keep).collect();
    // Code within a sentence is between single backticks.
    let parts = lines.join("\n");
    parts.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The targets of links and pictures.
fn links(page: &str) -> Vec<String> {
    let text = prose(page);
    let after = text.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// Returns the anchors of a page's headings, as made by GitHub and mdBook.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        let Some(title) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
        found.insert(kept.map(|char| if char == ' ' { '-' } else { char }).collect());
    }
    found
}

#[test]
fn every_page_is_in_the_book() {
    let all: BTreeMap<String, String> = pages("docs").into_iter().chain(pages("docs/dev")).collect();
    let listed = links(&all["docs/SUMMARY.md"]);
    let unique: BTreeSet<String> = listed.iter().map(|name| format!("docs/{name}")).collect();
    assert_eq!(unique.len(), listed.len(), "a page is in the book twice");
    let there: BTreeSet<String> = all.into_keys().filter(|name| name != "docs/SUMMARY.md").collect();
    assert_eq!(unique, there, "docs/SUMMARY.md and the pages of docs differ");
}

#[test]
fn every_link_leads_somewhere() {
    let all = ["", "docs", "docs/dev", "lab", "lab/docs", "machines"].map(pages).into_iter().flatten();
    let mut wrong = Vec::new();
    for (name, text) in all {
        for link in links(&text) {
            if link.starts_with("https://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => root().join(&name),
                file => root().join(&name).parent().unwrap().join(file),
            };
            let is_anchor = || anchors(&fs::read_to_string(&target).unwrap_or_default()).contains(anchor);
            if !target.exists() || (!anchor.is_empty() && !is_anchor()) {
                wrong.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A block of code in a page.
pub(crate) struct Block {
    line: usize,
    language: String,
    text: String,
    /// Why the block is not run.
    not_run: Option<String>,
    machine: String,
}

impl Block {
    /// Creates a block of commands for a machine.
    pub(crate) fn of(text: &str, machine: &str) -> Block {
        Block {
            line: 1,
            language: String::new(),
            text: text.to_owned(),
            not_run: None,
            machine: machine.to_owned(),
        }
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let mut open = false;
    // hybrid-laptop has most knobs, and two kinds of cores.
    let (mut machine, mut not_run) = ("sim:hybrid-laptop".to_owned(), None);
    for (number, line) in page.lines().enumerate() {
        let comment = |kind: &str| {
            line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.strip_prefix(kind)?.strip_prefix(": ")
        };
        if let Some(language) = line.strip_prefix("```") {
            if !open {
                let (language, machine) = (language.to_owned(), machine.clone());
                let not_run = not_run.take();
                all.push(Block { line: number + 1, language, text: String::new(), not_run, machine });
            }
            open = !open;
        } else if let Some(block) = all.last_mut().filter(|_| open) {
            block.text += &format!("{line}\n");
        } else if let Some(name) = comment("machine") {
            name.clone_into(&mut machine);
        } else if let Some(reason) = comment("not run") {
            not_run = Some(reason.to_owned());
        } else {
            assert!(!line.starts_with("    "), "line {}: a block of code needs a fence: {line}", number + 1);
        }
    }
    assert!(!open && not_run.is_none(), "a fence or a block is missing at the end");
    all
}

/// The `flyball` of the blocks. Only parses what it cannot run here. Failures go to the file
/// `failures`.
const SHIM: &str = r#"#!/bin/sh
dir=$PAGE_DIR
machine="-M $PAGE_MACHINE,state=$dir/machine.state"
export FLYBALL_STATE="$dir/state"
case " $* " in
*" -M "*) machine= FLYBALL_STATE=$(mktemp -d "$dir/state.XXXX") ;;
esac
case $1 in
man) exec "$FLYBALL_BIN" "$@" ;;
completions | explain | report | sim | guest | --version) machine= ;;
esac
parse=
case " $* " in
*" guest "* | *" guest:"* | *" sim run "* | *" sim check "* | *" watch "* | *" --live "*) parse=1 ;;
*" quiet "*"-- "* | *" quiet on "* | *" quiet off "* | *" quiet status "*) parse=1 ;;
*" compare "*"-- "* | *" compare "*"./"* | *" compare --resume "* | *" tune "*"-- "* | *" tune --resume "* | *" run "*" --pin "*) parse=1 ;;
*" compare "* | *" tune "*)
    # It boots the machine for each round and keeps no state.
    machine=${machine%,state=*}
    for word; do
        shift
        [ "$word" = -n ] || set -- "$@" "$word"
        case $word in compare | tune) set -- "$@" -n ;; esac
    done ;;
esac
if [ -n "$parse" ]; then
    "$FLYBALL_BIN" parse -- "$@" 2>"$dir/err" || { echo "flyball $*: $(cat "$dir/err")" >>"$dir/failures"; exit 2; }
    exit 0
fi
"$FLYBALL_BIN" $machine "$@" 2>"$dir/err"
code=$?
cat "$dir/err" >&2
case "$code $*" in
0\ * | *--sim-fault* | 8\ *doctor* | 9\ *doctor* | 5\ *verify*) ;;
*) echo "flyball $* ($code): $(tail -n 3 "$dir/err")" >>"$dir/failures" ;;
esac
exit $code
"#;

/// Runs the commands of a page's blocks. Returns the failures.
pub(crate) fn run(name: &str, blocks: &[Block]) -> Vec<String> {
    let tree = Tree::new();
    let bin = tree.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let programs = [
        ("bin/flyball", SHIM),
        ("bin/sudo", "#!/bin/sh\nexec \"$@\"\n"),
        ("bin/make", "#!/bin/sh\n"),
        ("bench", "#!/bin/sh\n"),
        ("bin/cargo", "#!/bin/sh\nuntil [ \"$1\" = -- ]; do shift; done\nshift\nexec flyball \"$@\"\n"),
    ];
    for (file, text) in programs {
        tree.put(file, text);
        fs::set_permissions(tree.path().join(file), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Input files of the pages' commands.
    tree.put("quiet.toml", "turbo = \"off\"\n");
    tree.put("turbo.toml", "name = \"turbo\"\nrounds = 2\nworkload = \"sched-pipe\"\n[[arm]]\nname = \"now\"\n[[arm]]\nname = \"off\"\nturbo = false\n");
    tree.put("results.json", "[1.01, 1.00, 1.02, 1.01, 1.00, 1.02, 1.01, 1.00, 1.02, 1.01]");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut wrong = Vec::new();
    for block in blocks {
        let at = format!("{name} line {}", block.line);
        let ran = Ran::of(
            Command::new("sh")
                .args(["-uc", &block.text])
                .current_dir(tree.path())
                .env("PATH", &path)
                .env("HOME", tree.path())
                .env("PAGE_DIR", tree.path())
                .env("PAGE_MACHINE", &block.machine)
                .env("FLYBALL_BIN", env!("CARGO_BIN_EXE_flyball"))
                .stdin(Stdio::null()),
        );
        let failures = tree.path().join("failures");
        wrong.extend(
            fs::read_to_string(&failures).unwrap_or_default().lines().map(|line| format!("{at}: {line}")),
        );
        let _ = fs::remove_file(failures);
        let missing =
            ran.err.lines().find(|line| line.contains("not found") || line.contains("Syntax error"));
        wrong.extend(missing.map(|line| format!("{at}: {line}")));
    }
    wrong
}

#[test]
fn every_block_of_code_runs_or_says_why_not() {
    let mut all = pages("docs");
    all.insert("README.md".to_owned(), fs::read_to_string(root().join("README.md")).unwrap());
    let mut wrong = Vec::new();
    let (mut ran, mut left_out) = (0, 0);
    for (name, text) in all {
        let (out, kept): (Vec<Block>, Vec<Block>) =
            blocks(&text).into_iter().partition(|block| block.not_run.is_some());
        for block in &out {
            left_out += 1;
            if block.not_run.as_ref().is_some_and(|reason| reason.len() < 8) {
                wrong.push(format!("{name} line {}: no reason", block.line));
            }
        }
        let mut commands = Vec::new();
        for block in kept {
            let at = format!("{name} line {}", block.line);
            match block.language.as_str() {
                "" | "sh" => commands.push(block),
                // Output and pictures.
                "text" => {}
                // screens.rs compares these with the program.
                "console" => {}
                // Run by the tests of python/ and ansible/, which need their own packages.
                "python" | "sql" | "yaml" => {}
                "toml" => {
                    wrong.extend(
                        Profile::parse(block.text.as_bytes(), &at).err().map(|error| error.to_string()),
                    );
                }
                "json" => {
                    let read = serde_json::from_str::<serde_json::Value>(&block.text);
                    wrong.extend(read.err().map(|error| format!("{at}: {error}")));
                }
                other => wrong.push(format!("{at}: no test for '{other}'")),
            }
        }
        ran += commands.len();
        wrong.extend(run(&name, &commands));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(2 * ran > 3 * left_out, "{ran} blocks run, {left_out} do not");
}
