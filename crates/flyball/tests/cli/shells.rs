//! Tests completion in real shells, and the manual with a real formatter. Missing shells are
//! skipped.

use std::process::{Command, Stdio};

use flyball_testing::{Ran, Tree, flyball, skip};

fn is_there(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Creates a folder with the program, and returns a shell's completion script.
fn prepared(shell: &str) -> (Tree, String) {
    let tree = Tree::new();
    std::os::unix::fs::symlink(flyball!().get_program(), tree.path().join("flyball")).unwrap();
    let script = Ran::of(flyball!().args(["completions", shell]).stdin(Stdio::null()));
    tree.put(shell, script.out);
    let path = format!("{}:{}", tree.path().display(), std::env::var("PATH").unwrap_or_default());
    (tree, path)
}

/// Typed lines, and a completion that must be offered.
const TYPED: &[(&str, &str)] = &[
    ("flyball comp", "compare"),
    ("flyball set gov", "governor="),
    ("flyball -M sim:gold-6138 set governor=perf", "performance"),
    ("flyball -M sim:ry", "ryzen-5750g"),
    ("flyball quiet --level st", "steady"),
    ("flyball man com", "compare"),
    ("flyball sim run epyc", "epyc-512"),
];

/// The machine may be another user's file, and bash puts completions on the command line unquoted.
#[test]
fn words_that_a_shell_would_interpret_are_not_offered() {
    let tree = Tree::new();
    let cpu = "sys/devices/system/cpu";
    for (file, text) in [
        ("online", "0"),
        ("possible", "0"),
        ("present", "0"),
        ("cpufreq/policy0/related_cpus", "0"),
        ("cpufreq/policy0/affected_cpus", "0"),
        ("cpufreq/policy0/scaling_driver", "acpi-cpufreq"),
        ("cpufreq/policy0/scaling_governor", "powersave"),
        ("cpufreq/policy0/scaling_available_governors", "p$(touch${IFS}x) p;x p'x performance powersave"),
    ] {
        tree.put(format!("{cpu}/{file}"), text);
    }
    let machine = tree.path().to_str().unwrap();
    let words = ["complete", "--", "-M", machine, "plan", "governor=p"];
    let ran = Ran::of(flyball!().args(words).stdin(Stdio::null()));
    let offered: Vec<&str> = ran.out.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(offered, ["governor=performance", "governor=powersave"], "{}", ran.text());
}

#[test]
fn bash_completes() {
    if !is_there("bash") {
        return skip(1, "test", "bash is not installed");
    }
    let (tree, path) = prepared("bash");
    for (line, wanted) in TYPED {
        let script = format!(
            "source bash; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _flyball flyball; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let ran =
            Ran::of(Command::new("bash").args(["-c", &script]).env("PATH", &path).current_dir(tree.path()));
        assert!(ran.out.lines().any(|word| word == *wanted), "{line}: {}", ran.text());
        assert!(!ran.out.contains("guardian"));
    }
}

#[test]
fn fish_completes() {
    if !is_there("fish") {
        return skip(1, "test", "fish is not installed");
    }
    let (tree, path) = prepared("fish");
    for (line, wanted) in TYPED {
        let script = format!("source fish; complete -C '{line}'");
        let mut command = Command::new("fish");
        command
            .args(["--no-config", "-c", &script])
            .env("PATH", &path)
            .env("HOME", tree.path())
            .current_dir(tree.path());
        let ran = Ran::of(&mut command);
        // fish prints whole words.
        let has = |word: &str| word.split('\t').next().is_some_and(|word| word.ends_with(wanted));
        assert!(ran.out.lines().any(has), "{line}: {}", ran.text());
    }
}

#[test]
fn zsh_completes() {
    if !is_there("zsh") {
        return skip(1, "test", "zsh is not installed");
    }
    let (tree, path) = prepared("zsh");
    for (line, wanted) in TYPED {
        // Replace the completion system's functions with ones that print their arguments.
        let script = format!(
            "compdef() {{ }}; _files() {{ }}; _describe() {{ local name=$4; print -rl -- ${{(P)name}} }}; source ./zsh; \
             words=(${{=:-{line}}}); CURRENT=$#words; _flyball"
        );
        let ran = Ran::of(
            Command::new("zsh").args(["-f", "-c", &script]).env("PATH", &path).current_dir(tree.path()),
        );
        let has = |word: &str| {
            word.replace("\\:", "\0").split(':').next().is_some_and(|word| word.ends_with(wanted))
        };
        assert!(ran.out.lines().any(has), "{line}: {}", ran.text());
    }
}

#[test]
fn the_manual_has_no_warnings() {
    let tree = Tree::new();
    let directory = tree.path().to_str().unwrap();
    assert_eq!(Ran::of(flyball!().args(["man", "--dir", directory]).stdin(Stdio::null())).code, 0);
    assert!(
        tree.path().join("flyball-trace-record.1").exists()
            && !tree.path().join("flyball-guardian.1").exists()
    );
    if !is_there("mandoc") {
        return skip(1, "test", "mandoc is not installed");
    }
    let ran = Ran::of(
        Command::new("sh")
            .args(["-c", "mandoc -T lint -W warning *.1"])
            .current_dir(tree.path())
            .stdin(Stdio::null()),
    );
    assert!(ran.out.is_empty(), "{}", ran.out.lines().take(5).collect::<Vec<_>>().join("\n"));
}
