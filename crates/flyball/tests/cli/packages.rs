//! Tests the content of packages without building one: the files from dist/stage against the table
//! dist/files, the bill of materials against the licences, versions against each other, and the
//! units with systemd's tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use flyball_testing::{Ran, Tree, flyball, skip};

/// Maximum exposure of a unit in `systemd-analyze security`, times ten.
const MAX_EXPOSURE: &str = "--threshold=20";

/// A file of the checkout.
fn top(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(top(path)).unwrap()
}

/// Returns the output of dist/stage for the binary under test.
fn staged() -> Tree {
    let tree = Tree::new();
    let results = Path::new(flyball!().get_program()).parent().unwrap().to_owned();
    let ran = Ran::of(Command::new(top("dist/stage")).arg(results).arg(tree.path()));
    assert_eq!(ran.code, 0, "{}", ran.text());
    tree
}

/// Paths of files, links and empty directories below a directory.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        let entries: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap()).collect();
        if entries.is_empty() {
            found.insert(directory.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
        for entry in entries {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn every_file_is_in_one_package() {
    let tree = staged();
    let files = files(tree.path());
    let table = read("dist/files");
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            line.split_once(char::is_whitespace).map(|(package, path)| (package, path.trim())).unwrap()
        })
        .collect();
    let within = |file: &str, row: &str| Path::new(file).starts_with(row);
    for file in &files {
        let packages: Vec<_> = rows.iter().filter(|(_, path)| within(file, path)).collect();
        assert_eq!(packages.len(), 1, "dist/files has {file} in {packages:?}");
    }
    for (package, path) in &rows {
        // A debug build only has flyball-guest and its plug-in if the lab workspace was built too.
        let optional = *package == "flyball-guest";
        assert!(optional || files.iter().any(|file| within(file, path)), "dist/stage makes no {path}");
    }
    let control = read("dist/debian/control");
    let spec = read("dist/flyball.spec");
    for package in rows.iter().map(|(package, _)| package).collect::<BTreeSet<_>>() {
        assert!(control.contains(&format!("\nPackage: {package}\n")), "{package} in dist/debian/control");
        assert!(spec.contains(&format!("/{package}.files\n")), "{package} in dist/flyball.spec");
    }
    for file in ["usr/share/man/man1/flyball-compare.1.gz", "usr/share/zsh/site-functions/_flyball"] {
        assert!(files.contains(file), "{file}");
    }
    bill_of_materials(tree.path());
    units(tree.path());
}

/// Every crate has a licence with its text, with few exceptions.
fn bill_of_materials(root: &Path) {
    let doc = root.join("usr/share/doc/flyball");
    let bill: serde_json::Value =
        serde_json::from_slice(&fs::read(doc.join("sbom.cdx.json")).unwrap()).unwrap();
    let notices = fs::read_to_string(doc.join("notices.txt")).unwrap();
    let components = bill["components"].as_array().unwrap();
    assert!(components.len() > 50, "{} components", components.len());
    for component in components.iter().filter(|component| component["purl"].is_string()) {
        let name = component["name"].as_str().unwrap();
        let licence = component["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.is_empty(), "{name} has no licence");
        let title = format!("{name} {} (", component["version"].as_str().unwrap());
        assert!(notices.contains(&title), "{name} is not in notices.txt");
    }
    let bare = notices.lines().find_map(|line| line.strip_prefix("Without a licence file in its package: "));
    let bare: Vec<_> = bare.into_iter().flat_map(|line| line.split(", ")).collect();
    assert!(bare.len() <= 3, "add their licences: {bare:?}");
}

/// The packages have the manual of each unit, and systemd accepts the unit as correct and
/// restricted enough.
fn units(root: &Path) {
    let directory = root.join("usr/lib/systemd/system");
    let scratch = Tree::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = fs::read_to_string(directory.join(&name)).unwrap();
        let page = text.lines().find_map(|line| line.strip_prefix("Documentation=man:")).unwrap();
        let page = page.strip_suffix("(1)").unwrap();
        assert!(
            root.join(format!("usr/share/man/man1/{page}.1.gz")).exists(),
            "{name}: no manual page {page}"
        );
        // `verify` needs the program to exist, and a template needs an instance name.
        let program = flyball!().get_program().to_str().unwrap().to_owned();
        scratch.put(name.replace("@.", "@storage."), text.replace("/usr/bin/flyball", &program));
    }
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip(1, "check of units", "systemd-analyze is not installed");
    }
    for unit in files(scratch.path()) {
        let file = scratch.path().join(&unit);
        let verify = &["verify", "--man=no"][..];
        let security = &["security", "--offline=yes", "--no-pager", MAX_EXPOSURE][..];
        // A socket unit starts no program itself.
        let checks = if unit.ends_with(".socket") { &[verify][..] } else { &[verify, security] };
        for options in checks {
            let ran = Ran::of(Command::new("systemd-analyze").args(*options).arg(&file));
            assert_eq!(ran.code, 0, "systemd-analyze {options:?} {unit}: {}", ran.text());
        }
    }
}

#[test]
fn versions_agree() {
    let cargo: toml::Table = read("Cargo.toml").parse().unwrap();
    let version = cargo["workspace"]["package"]["version"].as_str().unwrap();
    let mut found = BTreeMap::new();
    // flyball only runs a flyball-guest of its own version.
    let lab: toml::Table = read("lab/Cargo.toml").parse().unwrap();
    found.insert("lab/Cargo.toml", lab["workspace"]["package"]["version"].as_str().unwrap().to_owned());
    let debian = read("dist/debian/changelog");
    found.insert("dist/debian/changelog", debian.split(['(', ')']).nth(1).unwrap().to_owned());
    let spec = read("dist/flyball.spec");
    let newest = spec.lines().find(|line| line.starts_with("* ")).unwrap();
    let newest = newest.rsplit(' ').next().unwrap();
    found.insert("dist/flyball.spec", newest.strip_suffix("-1").unwrap().to_owned());
    let python: toml::Table = read("python/pyproject.toml").parse().unwrap();
    found.insert("python/pyproject.toml", python["project"]["version"].as_str().unwrap().to_owned());
    for (file, key) in [
        ("ansible/ansible_collections/flyball/core/galaxy.yml", "version: "),
        ("CITATION.cff", "version: "),
        ("dist/arch/PKGBUILD", "pkgver="),
    ] {
        let text = read(file);
        found.insert(file, text.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned());
    }
    for (file, of_file) in found {
        assert_eq!(of_file, version, "{file}");
    }
    let changes = read("CHANGELOG.md");
    assert!(changes.contains(&format!("\n## {version}")), "CHANGELOG.md has no section {version}");
}

/// All pages name the same minimum Rust version as the manifests.
#[test]
fn rust_versions_agree() {
    let oldest = |file: &str| {
        let manifest: toml::Table = read(file).parse().unwrap();
        manifest["workspace"]["package"]["rust-version"].as_str().unwrap().to_owned()
    };
    let version = oldest("Cargo.toml");
    assert_eq!(oldest("lab/Cargo.toml"), version);
    for page in ["README.md", "docs/install.md", "docs/dev/packagers.md"] {
        let text = read(page);
        assert!(text.contains(&format!("{version} or newer")), "{page} should say Rust {version} or newer");
    }
}

#[test]
fn packages_take_addresses_from_one_file() {
    let addresses = read("dist/addresses");
    for file in ["dist/debian/control", "dist/debian/changelog", "dist/flyball.spec", "dist/arch/PKGBUILD"] {
        let text = read(file);
        assert!(text.contains("@MAINTAINER@") && !text.contains(".example"), "{file}");
    }
    for name in ["MAINTAINER", "HOMEPAGE"] {
        assert!(addresses.contains(&format!("\n{name}=")), "{name}");
    }
}
