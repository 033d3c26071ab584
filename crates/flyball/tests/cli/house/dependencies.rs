//! What the binary is built from: sources, licences, and known advisories of the locked versions.

use std::{collections::BTreeSet, path::Path, process::Command};

use semver::{Version, VersionReq};
use serde_json::Value;

/// Advisories that apply and are accepted, with reasons.
const ACCEPTED: &[(&str, &str)] = &[(
    "RUSTSEC-2026-0192",
    "ttf-parser is unmaintained; it reads one font, which is part of the binary, for the labels of PNG pictures",
)];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The licences of deny.toml, which `cargo deny` reads too.
fn licences() -> BTreeSet<String> {
    let deny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    let deny: toml::Table = std::fs::read_to_string(deny).unwrap().parse().unwrap();
    let allow = deny["licenses"]["allow"].as_array().unwrap();
    allow.iter().map(|licence| licence.as_str().unwrap().to_owned()).collect()
}

/// Returns whether an SPDX expression is allowed: for OR, one licence must be allowed, and for AND,
/// all. `/` is the old spelling of OR.
fn allowed(licences: &BTreeSet<String>, expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    expression.split(" OR ").any(|choice| {
        choice
            .split(" AND ")
            .map(|licence| licence.trim_matches(['(', ')', ' ']))
            .all(|licence| licences.contains(licence))
    })
}

#[test]
fn packages_come_from_the_registry_under_a_known_licence() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "{} packages", packages.len());
    let licences = licences();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let Some(source) = package["source"].as_str() else { continue };
        if source != "registry+https://github.com/rust-lang/crates.io-index" {
            wrong.push(format!("{name} comes from {source}"));
        }
        match package["license"].as_str() {
            Some(licence) if allowed(&licences, licence) => {}
            licence => wrong.push(format!("{name} has the licence {licence:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Clippy's lint `incompatible_msrv` rejects newer items of std in flyball itself.
#[test]
fn no_package_needs_a_newer_compiler_than_the_pages_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ours = env!("CARGO_PKG_RUST_VERSION");
    let number = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap()).collect() };
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let Some(theirs) = package["rust_version"].as_str() else { continue };
        let theirs: Vec<u32> = number(theirs).into_iter().take(number(ours).len()).collect();
        assert!(theirs <= number(ours), "{} needs Rust {theirs:?}", package["name"]);
    }
    for page in ["README.md", "docs/install.md", "docs/dev/packagers.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        assert!(text.contains(&format!("{ours} or newer")), "{page} names another Rust version");
    }
    let lab = std::fs::read_to_string(root.join("lab/Cargo.toml")).unwrap();
    assert!(lab.contains(&format!("rust-version = \"{ours}\"")));
}

#[test]
fn an_expression_needs_one_choice_and_all_of_a_conjunction() {
    let licences = licences();
    for (expression, expected) in [
        ("MIT OR GPL-3.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("Unlicense/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-2.0-only", false),
    ] {
        assert_eq!(allowed(&licences, expression), expected, "{expression}");
    }
}

fn is_safe(version: &Version, requirements: &str) -> bool {
    requirements.split(';').map(str::trim).filter(|requirement| !requirement.is_empty()).any(|requirement| {
        VersionReq::parse(requirement)
            .unwrap_or_else(|error| panic!("{requirement}: {error}"))
            .matches(version)
    })
}

#[test]
fn no_locked_version_has_an_advisory() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock: toml::Table = std::fs::read_to_string(lock).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap();
    let mut found = BTreeSet::new();
    let mut compared = 0;
    for line in include_str!("advisories.txt").lines().filter(|line| !line.starts_with('#')) {
        let [name, id, kind, safe] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        for package in packages.iter().filter(|package| package["name"].as_str() == Some(name)) {
            compared += 1;
            let version = package["version"].as_str().unwrap().parse().unwrap();
            if !is_safe(&version, safe) && !ACCEPTED.iter().any(|(accepted, _)| *accepted == id) {
                found.insert(format!("{name} {version}: {id} ({kind})"));
            }
        }
    }
    assert!(compared > 20, "{compared} versions compared");
    assert!(found.is_empty(), "{}", found.into_iter().collect::<Vec<_>>().join("\n"));
    // The comparison must be able to find something.
    assert!(!is_safe(&"0.4.10".parse().unwrap(), ">= 0.4.11; < 0.4.10"));
}
