//! `flyball guest` and `-M guest:NAME` run the program flyball-guest. Here, a script replaces it.
//! Tests what it gets, what it returns, and what happens without it or with another version.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use flyball_testing::{Ran, Tree, flyball};

/// Installs flyball in a directory without flyball-guest.
fn alone() -> Tree {
    let tree = Tree::new();
    let built = flyball!().get_program().to_owned();
    let own = tree.path().join("flyball");
    if fs::hard_link(&built, &own).is_err() {
        fs::copy(&built, &own).unwrap();
    }
    tree
}

fn run(flyball: &Path, path: &Path, words: &str) -> Ran {
    let mut command = Command::new(flyball.join("flyball"));
    let path = format!("relative:{}:/usr/bin:/bin", path.display());
    Ran::of(command.args(words.split(' ')).env("PATH", path).current_dir(flyball))
}

/// Writes a flyball-guest that reports `version`, prints its arguments, and exits with 7.
fn program(folder: &Tree, version: &str) {
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo flyball-guest {version} && exit\necho \"$@\"\nexit 7\n"
    );
    folder.put("flyball-guest", script);
    fs::set_permissions(folder.path().join("flyball-guest"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn without_the_program_it_names_the_package() {
    let (alone, none) = (alone(), Tree::new());
    for words in ["guest list", "guest --help", "-M guest:ryzen-5750g show"] {
        let ran = run(alone.path(), none.path(), words);
        assert!(ran.code == 4 && ran.err.contains("hint: install the package flyball-guest"), "{ran:?}");
    }
}

#[test]
fn another_version_is_refused() {
    let (alone, folder) = (alone(), Tree::new());
    program(&folder, "0.0.1");
    let ran = run(alone.path(), folder.path(), "guest list");
    assert!(ran.code == 4 && ran.out.is_empty() && ran.err.contains("has version 0.0.1"), "{ran:?}");
}

#[test]
fn arguments_and_exit_code_are_passed_through() {
    let (alone, folder) = (alone(), Tree::new());
    program(&folder, env!("CARGO_PKG_VERSION"));
    let flyball = alone.path().join("flyball").canonicalize().unwrap();
    let inside = |guest: &str| format!("inside --guest {guest} --flyball {}", flyball.display());
    for (words, given) in [
        ("guest run x --cpus 2 -- cmd -M y --json", "run x --cpus 2 -- cmd -M y --json".to_owned()),
        ("--kernel 7.2 --json guest list", "--kernel 7.2 --json list".to_owned()),
        ("guest test -h", "test -h".to_owned()),
        ("-M guest:x,cpus=2 show --kernel 6.1", format!("--kernel 6.1 {} -- show", inside("x,cpus=2"))),
        (
            "-M guest:x compare --arm now -o d -- true",
            format!("{} --run-directory d -- compare --arm now -o d -- true", inside("x")),
        ),
        (
            "compare -M guest:x --resume d",
            format!("{} --run-directory d --resumes -- compare --resume d", inside("x")),
        ),
    ] {
        let ran = run(alone.path(), folder.path(), words);
        assert_eq!((ran.code, ran.out.trim_end()), (7, given.as_str()), "{words}: {}", ran.err);
    }
    // The comparison's directory is named before the guest starts, so that a second boot can resume
    // it.
    let ran = run(alone.path(), folder.path(), "-M guest:x compare --arm now -- true");
    assert!(ran.out.contains(" -o flyball-compare-") && ran.out.ends_with(" -- true\n"), "{ran:?}");
    let ran = run(alone.path(), folder.path(), "-M guest:x guest list");
    assert_eq!(ran.code, 2, "{ran:?}");
}
