//! Tests the user that commands run as when sudo starts flyball, and the owner of results. sudo
//! itself is not needed, only its variables.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use flyball_process::is_root;
use flyball_testing::{Ran, Tree, flyball, skip};

/// A user number that no system uses.
const CALLER: u32 = 61_234;

/// Writes a machine with one policy, and in its directory one in which every user may write, like
/// users in /home/USER.
fn machine() -> Option<Tree> {
    if !is_root() {
        skip(1, "test of commands under sudo", "needs root");
        return None;
    }
    let tree = Tree::new();
    fs::create_dir(home(&tree)).unwrap();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(home(&tree), fs::Permissions::from_mode(0o777)).unwrap();
    for (file, text) in [
        ("online", "0"),
        ("present", "0"),
        ("possible", "0"),
        ("cpufreq/policy0/related_cpus", "0"),
        ("cpufreq/policy0/affected_cpus", "0"),
        ("cpufreq/policy0/scaling_driver", "acpi-cpufreq"),
        ("cpufreq/policy0/scaling_governor", "schedutil"),
        ("cpufreq/policy0/scaling_available_governors", "performance schedutil"),
    ] {
        tree.put(Path::new("sys/devices/system/cpu").join(file), format!("{text}\n"));
    }
    Some(tree)
}

fn home(tree: &Tree) -> PathBuf {
    tree.path().join("home")
}

/// Runs flyball on the machine like sudo.
fn under_sudo(tree: &Tree, words: &[&str]) -> Ran {
    under_sudo_on(&format!("tree:{}", tree.path().display()), tree, words)
}

fn under_sudo_on(machine: &str, tree: &Tree, words: &[&str]) -> Ran {
    let mut command = flyball!();
    command.args(["-M", machine]).args(words);
    command
        .env("SUDO_UID", CALLER.to_string())
        .env("SUDO_GID", CALLER.to_string())
        .env("SUDO_USER", "somebody");
    command.current_dir(home(tree)).stdin(std::process::Stdio::null());
    Ran::of(&mut command)
}

const WHO: &[&str] = &["--", "sh", "-c", "id -u; id -g; id -G; echo $HOME ${SUDO_UID:-none}"];

#[test]
fn a_command_runs_as_the_caller() {
    let Some(tree) = machine() else { return };
    let who = |options: &[&str]| {
        let ran = under_sudo(&tree, &[&["run", "governor=performance"], options, WHO].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    assert_eq!(who(&[]), format!("{CALLER}\n{CALLER}\n{CALLER}\n/ none\n"));
    assert_eq!(who(&["--as-root"]).lines().next(), Some("0"));
    assert_eq!(who(&["--user", "root"]).lines().next(), Some("0"));
    let nobody = who(&["--user", "nobody"]);
    assert_ne!(nobody.lines().next(), Some("0"));
    let ran = under_sudo(&tree, &[&["run", "governor=performance", "--user", "no-such-user"], WHO].concat());
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    // The exit code is the command's, even if the command may not run here.
    let ran = under_sudo(&tree, &["run", "governor=performance", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ran.code, 7);
}

#[test]
fn the_program_and_the_files_of_a_simulated_machine_are_the_callers_too() {
    let Some(tree) = machine() else { return };
    let ran = |words: &[&str]| {
        let ran = under_sudo_on("sim:i7-3520m", &tree, words);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    assert_eq!(
        ran(&[&["run", "turbo=off"], WHO].concat()),
        format!("{CALLER}\n{CALLER}\n{CALLER}\n/ none\n")
    );
    let words = ["compare", "--arm", "now", "--arm", "b: turbo=off", "--rounds", "2", "-o", "simulated"];
    ran(&[&words[..], &["--workload", "call-simple", "--amount", "70"]].concat());
    assert_eq!(owners(&home(&tree).join("simulated")), [CALLER]);
}

fn compare(tree: &Tree, options: &[&str]) -> (Ran, PathBuf) {
    let directory = home(tree).join("run-directory");
    let name = directory.to_str().unwrap();
    let words = ["compare", "--arm", "now", "--arm", "b:", "--rounds", "2", "--warm-up", "0", "-o", name];
    let ran = under_sudo(tree, &[&words, options, &["--", "sh", "-c", "id -u >> who"]].concat());
    (ran, directory)
}

fn owners(directory: &Path) -> Vec<u32> {
    let mut owners: Vec<u32> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().uid()).collect();
    owners.push(fs::metadata(directory).unwrap().uid());
    owners.sort_unstable();
    owners.dedup();
    owners
}

#[test]
fn a_comparison_belongs_to_the_caller() {
    let Some(tree) = machine() else { return };
    let (ran, directory) = compare(&tree, &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let who = fs::read_to_string(home(&tree).join("who")).unwrap();
    assert!(who.lines().all(|line| line == CALLER.to_string()), "{who}");
    assert_eq!(owners(&directory), [CALLER]);
}

#[test]
fn a_directory_of_another_user_is_not_resumed_without_a_word() {
    let Some(tree) = machine() else { return };
    let (ran, directory) = compare(&tree, &["--as-root"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(owners(&directory), [0]);
    let name = directory.to_str().unwrap();
    let before = fs::read(home(&tree).join("who")).unwrap();
    let rounds = directory.join("rounds.jsonl");
    fs::write(&rounds, "").unwrap();
    assert_eq!(under_sudo(&tree, &["compare", "--resume", name]).code, 2);
    assert_eq!(fs::read(home(&tree).join("who")).unwrap(), before, "nothing ran");
    // The directory belongs to root, but every user may replace the manifest.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = flyball!();
    command.arg("-M").arg(format!("tree:{}", tree.path().display())).args(["compare", "--resume", name]);
    let ran = Ran::of(command.current_dir(home(&tree)).stdin(std::process::Stdio::null()));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("can be written by every user"), "{}", ran.err);
    let ran = under_sudo(&tree, &["compare", "--resume", name, "--yes", "--as-root"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_ne!(fs::read(home(&tree).join("who")).unwrap(), before);
}

#[test]
fn results_do_not_go_through_links() {
    let Some(tree) = machine() else { return };
    let (ran, directory) = compare(&tree, &["--as-root"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    tree.put("home/victim", "as it was");
    let victim = home(&tree).join("victim");
    for name in ["report.html", "report.json", ".report.html.new", "performance.svg"] {
        let _ = fs::remove_file(directory.join(name));
        symlink(&victim, directory.join(name)).unwrap();
    }
    let mut command = flyball!();
    assert_eq!(Ran::of(command.arg("report").arg(&directory)).code, 0);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
    assert!(fs::symlink_metadata(directory.join("report.html")).unwrap().is_file());
}
