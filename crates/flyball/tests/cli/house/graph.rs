//! The crates and their dependencies, as listed in a block of the page: `crate -> crate, crate` per
//! line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::sources::{crates, page, root};

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the workspace crates that each crate's product uses, from the manifests.
pub(super) fn manifests() -> Graph {
    let names = crates();
    let uses = |name: &String| {
        let text = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let mut section = "";
        let mut found = BTreeSet::new();
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let key = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let product = section.ends_with("dependencies]") && !section.contains("dev-dependencies");
            if product && names.iter().any(|name| name == key) {
                found.insert(key.to_owned());
            }
        }
        found
    };
    names.iter().map(|name| (name.clone(), uses(name))).collect()
}

fn drawn(page: &str) -> Graph {
    let (_, block) =
        page.split_once("```crates\n").expect("ARCHITECTURE.md has a block that begins with ```crates");
    let (block, _) = block.split_once("\n```").unwrap();
    let line = |line: &str| {
        let (name, uses) = line.split_once("->").unwrap_or_else(|| panic!("no -> in '{line}'"));
        let uses = uses.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
        (name.trim().to_owned(), uses.collect())
    };
    block.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
}

#[test]
fn the_crates_use_each_other_as_drawn() {
    let (drawn, real) = (drawn(&page()), manifests());
    let text = |graph: &Graph| -> String {
        let line = |(name, uses): (&String, &BTreeSet<String>)| {
            let uses = uses.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("{name} -> {uses}").trim_end().to_owned() + "\n"
        };
        graph.iter().map(line).collect()
    };
    assert_eq!(text(&drawn), text(&real), "left: drawn in ARCHITECTURE.md; right: the manifests");
}

/// The simulator must not share a misreading with the code that it tests. flyball-files and
/// flyball-text know nothing about machines, so they cannot misread any.
#[test]
fn the_simulator_uses_no_other_crates() {
    const THEIRS: [&str; 2] = ["flyball-sim", "flyball-silicon"];
    const PURE: [&str; 2] = ["flyball-files", "flyball-text"];
    let real = manifests();
    assert!(PURE.iter().all(|name| real[*name].is_empty()));
    for name in THEIRS {
        let allowed = |used: &str| THEIRS.contains(&used) || PURE.contains(&used);
        let foreign: Vec<_> = real[name].iter().filter(|used| !allowed(used)).collect();
        assert!(foreign.is_empty(), "{name} uses {foreign:?}");
    }
}

#[test]
fn no_crate_uses_itself_through_others() {
    let mut left = manifests();
    while !left.is_empty() {
        let leaf = left.iter().find(|(_, uses)| uses.iter().all(|used| !left.contains_key(used)));
        let leaf = leaf.unwrap_or_else(|| panic!("a cycle among {:?}", left.keys())).0.clone();
        left.remove(&leaf);
    }
}
