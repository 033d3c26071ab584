//! Tests `compare` with programs as arms, on the live machine as an ordinary user.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::{Command, Stdio},
};

use flyball_testing::{Ran, flyball, skip};
use serde_json::Value;

/// A directory with scripts.
struct Place(tempfile::TempDir);

impl Place {
    fn new(scripts: &[(&str, &str)]) -> Place {
        let place = Place(tempfile::tempdir().expect("a directory"));
        for (name, script) in scripts {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("it can be made");
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be changed");
        }
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn compare(&self, words: &[&str]) -> Ran {
        let mut command: Command = flyball!();
        Ran::of(command.args(["compare", "-o", "run"]).args(words).current_dir(self.path()))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path().join(name)).expect("it is there")).expect("JSON")
    }
}

#[test]
fn two_programs_are_compared_and_exported() {
    let place = Place::new(&[("old", "echo same"), ("new", "sleep 0.1; echo same")]);
    let exports = ["--export-json", "h.json", "--export-markdown", "m.md"];
    let options = ["--rounds", "10", "--same-output", "--aa", "--fail-if", "time > +50%"];
    let ran = place.compare(&[&["./old", "./new"][..], &options, &exports].concat());
    assert_eq!(ran.code, 12, "{}", ran.text());
    assert!(ran.out.contains("./new: over the limit"), "{}", ran.out);
    let results = place.json("h.json");
    let second = &results["results"][1];
    assert_eq!((&second["command"], second["times"].as_array().map(Vec::len)), (&"./new".into(), Some(10)));
    for key in ["mean", "stddev", "median", "user", "system", "min", "max"] {
        assert!(second[key].is_number(), "{key}: {second}");
    }
    assert_eq!(second["exit_codes"][0], 0);
    assert!(second["min"].as_f64() > Some(0.1));
    let manifest = place.json("run/manifest.json");
    assert_eq!(manifest["arms"][1]["program"]["argv"][0], "./new");
    assert_eq!(manifest["arms"][2]["control"], true);
    let report = |options: &[&str]| {
        let ran = Ran::of(flyball!().args(["report", "run"]).args(options).current_dir(place.path()));
        let page = fs::read_to_string(place.path().join("run/report.html")).expect("it is there");
        (ran.code, ran.text(), page.contains("fail if time"))
    };
    let (code, text, in_page) = report(&["--fail-if", "time > +90000%"]);
    assert!(code == 0 && in_page, "{text}");
    // The comparison's own limit.
    let (code, text, in_page) = report(&[]);
    assert!(code == 12 && in_page && text.contains("./new: over the limit"), "{text}");
    let resumed = Ran::of(flyball!().args(["compare", "--resume", "run"]).current_dir(place.path()));
    assert_eq!(resumed.code, 12, "{}", resumed.text());
    assert!(fs::read_to_string(place.path().join("m.md")).expect("it is there").contains("./new"));
}

/// Equal counts only pass a limit if --exact says that they are counts.
#[test]
fn equal_counts_are_the_same_only_if_they_are_exact() {
    let place = Place::new(&[("count", "echo refs: 12345679")]);
    let words = ["./count", "./count", "--rounds", "10", "--metric", "refs: ([0-9]+)", "--better", "lower"];
    let limit = ["--fail-if", "metric > +1%"];
    for (exact, code, said) in [
        (
            &[][..],
            13,
            "cannot tell (all values, or all of a case, are equal, so their step is not known; --exact, if they are counts)",
        ),
        (&["--exact"], 0, "within the limit"),
    ] {
        let _ = fs::remove_dir_all(place.path().join("run"));
        let ran = place.compare(&[&words, &limit[..], exact].concat());
        assert!(ran.code == code && ran.text().contains(said), "{exact:?}: {}", ran.text());
    }
    let ran = place.compare(&["./count", "./count", "--metric", "time", "--exact"]);
    assert!(ran.code == 2 && ran.err.contains("of an expression or a suite"), "{}", ran.text());
}

/// With --rebuild, each arm is built again for each round, alternating between two blocks.
#[test]
fn arms_are_built_again_in_each_block() {
    let bench = "echo run $(cat seed) >> ../log";
    let place = Place::new(&[("a/bench", bench), ("b/bench", bench)]);
    let build = "echo $FLYBALL_SEED > seed; echo build >> ../log";
    let rebuild = ["--rebuild", build, "--setup", "echo setup >> ../log"];
    let ran = place.compare(&[&["--in", "a,b", "--rounds", "2"][..], &rebuild, &["--", "./bench"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.text());
    let log = fs::read_to_string(place.path().join("log")).expect("it ran");
    let kinds: String = log.lines().map(|line| &line[..1]).collect();
    // Both are set up before the first block. Then each is rebuilt for its next block as soon as it
    // has run.
    assert!(kinds == "sbsbrrbbrbrrbr" || kinds == "sbsbrrbbrbrbrr", "{log}");
    let seeds: std::collections::BTreeSet<&str> =
        log.lines().filter_map(|line| line.strip_prefix("run ")).collect();
    assert_eq!(seeds.len(), 6, "{log}");
    let rounds = fs::read_to_string(place.path().join("run/rounds.jsonl")).expect("it ran");
    let blocks: String =
        rounds.lines().map(|line| if line.contains("\"block\":1,") { '1' } else { '0' }).collect();
    assert_eq!(blocks, "000101");
}

/// Processes that left their session are killed and named. Those of --setup are kept.
#[test]
fn daemons_of_programs_are_killed_and_named() {
    let place = Place::new(&[("plain", "exit 0"), ("daemon", "setsid sleep 3117 & sleep 0.1")]);
    let setup = "[ -e pid ] || { setsid sleep 3118 & echo $! > pid; sleep 1; }";
    let ran = place.compare(&["./plain", "./daemon", "--rounds", "2", "--setup", setup]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    // A round that others disturb is repeated.
    let left = ran.out.lines().find(|line| line.contains("./daemon: left processes behind in")).unwrap_or("");
    assert!(left.ends_with(" rounds, which were killed: sleep."), "{}", ran.out);
    let runs = |seconds: &str| {
        let entries = fs::read_dir("/proc").expect("it is there").flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| line == format!("sleep\0{seconds}\0").as_bytes()).count()
    };
    assert_eq!(runs("3117"), 0);
    let pid = fs::read_to_string(place.path().join("pid")).expect("setup ran");
    let stays = runs("3118");
    let _ = Command::new("kill").arg(pid.trim()).status();
    assert_eq!(stays, 1, "a daemon of --setup");
}

/// An invalid command line is rejected before the first round.
#[test]
fn programs_that_cannot_run_are_refused() {
    let place = Place::new(&[("a", "exit 0"), ("folder/b", "exit 0"), ("fails", "exit 3")]);
    for (words, code, said) in [
        (&["./a", "./folder"][..], 2, "./folder is a directory"),
        (&["./a", "./a", "--shell", "nosuchshell"], 2, "no such program"),
        (&["./a", "./a", "--amount", "5"], 2, "give --workload too"),
        (&["./a", "--fail-if", "time > 2%"], 2, "needs a second program"),
        (&["./a", "./a", "--fail-if", "time < +2%"], 2, "write 'time > +2%'"),
        (&["--in", "nodir,folder", "./b"], 2, "--in nodir: "),
        (&["./a", "./a", "--input", "."], 2, "--input .: is a directory"),
        (&["./a", "./a", "--export-json", "."], 2, "cannot write .: Is a directory"),
        (&["./a", "./a", "--export-json", "/proc/x"], 2, "cannot write /proc/x"),
        (
            &["sleep 9", "sleep 8", "--load", "true", "--ready", "line:x", "--timeout", "0.3"],
            1,
            "after 0.3 s",
        ),
        (&["sleep 9", "sleep 8", "--load", "./a", "--ready", "99999"], 2, "from 1 to 65535"),
        (&["./a", "./a", "--rounds", "2", "--min-rounds", "5"], 2, "--min-rounds"),
        (&["./a {n}", "--parameter", "n=3..1"], 2, "from low to high"),
        (&["./a", "./a", "--export-json", "none/x.json"], 2, "there is no directory none"),
        (&["sleep 9", "./a", "--rounds", "1", "--timeout", "0.2"], 1, "--timeout sets this limit"),
    ] {
        let _ = fs::remove_dir_all(place.path().join("run"));
        let ran = place.compare(words);
        assert!(ran.code == code && ran.text().contains(said), "{words:?}: {}", ran.text());
    }
    let _ = fs::remove_dir_all(place.path().join("run"));
    let ran = place.compare(&["./a", "./fails", "--rounds", "2", "--ignore-failure"]);
    assert!(ran.code == 1 && ran.out.starts_with("./fails: no round is left"), "{}", ran.text());
    let here =
        |command: &mut Command| Ran::of(command.args(["compare", "./a", "./a"]).current_dir(place.path()));
    let ran = here(flyball!().env("TMPDIR", "/no/such"));
    assert!(ran.code == 1 && ran.err.contains("in /no/such (TMPDIR)"), "{}", ran.text());
}

#[test]
fn directories_parameters_and_hooks_make_arms() {
    let place = Place::new(&[("a/bench", "echo $1 >> log"), ("b/bench", "echo $1 >> log")]);
    let hooks = ["--setup", "echo setup >> log", "--prepare", "echo {n} >> log", "--cleanup", "touch clean"];
    let design = ["--in", "a,b", "--parameter", "n=1,2", "--rounds", "1", "--warm-up", "0"];
    let ran = place.compare(&[&design[..], &hooks, &["--", "./bench", "{n}"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.text());
    let log = fs::read_to_string(place.path().join("a/log")).expect("it ran here");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "1", "2", "2", "setup", "setup"]);
    assert!(place.path().join("b/clean").exists());
    assert_eq!(place.json("run/manifest.json")["arms"][3]["name"], "b n=2");
}

/// flyball keeps the terminal, so a program that asks there, like sudo for a password, would wait
/// forever.
#[test]
fn what_needs_the_terminal_is_told() {
    let place = Place::new(&[("asks", "read word < /dev/tty"), ("old", "exit 0")]);
    let flyball = env!("CARGO_BIN_EXE_flyball");
    for words in ["./asks ./old", "./old ./old --prepare 'read word < /dev/tty'"] {
        let _ = fs::remove_dir_all(place.path().join("run"));
        let words = format!("{flyball} compare {words} -o run");
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &words, "/dev/null"]).current_dir(place.path()).stdin(Stdio::null());
        let ran = Ran::of(&mut terminal);
        assert!(ran.code == 1 && ran.text().contains("because it needs the terminal"), "{}", ran.text());
    }
}

#[test]
fn cases_that_an_arm_lacks_are_told() {
    const CASES: [&str; 8] =
        ["--suite", "csv", "--unit", "s", "--better", "lower", "--fail-if", "case > +50%"];
    let place = Place::new(&[("cases", "echo a,1.234$$; [ $1 = old ] && echo b,1.234$$ || echo b,0")]);
    let lost = "left out (1): b (none or 0 in ./cases new)";
    for (arms, more, code, want) in [
        (["./cases old", "./cases new"], &[][..], 13, lost),
        (["./cases new", "./cases old"], &[], 13, lost),
        (["./cases new", "./cases old"], &[], 13, "cannot tell (a case has no value, or 0, in an arm)"),
        (["./cases old", "./cases old"], &[], 0, "within the limit"),
        (["./cases old", "./cases old"], &["--exact", "--until", "1%"], 2, "needs no --until"),
    ] {
        let _ = fs::remove_dir_all(place.path().join("run"));
        let ran = place.compare(&[&arms[..], &CASES, more].concat());
        assert!(ran.code == code && ran.text().contains(want), "{arms:?} {more:?}: {}", ran.text());
    }
}

#[test]
fn what_goes_wrong_with_programs_is_told() {
    let place = Place::new(&[
        ("old", "echo a"),
        ("odd", "echo b"),
        ("bad", "echo boo; exit 3"),
        ("ever", "sleep 300"),
        // Passes the warm-up and the first counted round.
        ("second", "[ -e 2 ] && exit 5; [ -e 1 ] && touch 2; touch 1"),
        ("forks", "sleep 300 & exit 0"),
        ("tty", "[ -t 0 ] || exit 4"),
        ("much", "head -c 200000000 /dev/zero"),
        ("noise", "head -c 99999 /dev/zero; exit 1"),
        ("third", "n=$(cat n || echo 0); echo $((n + 1)) > n; [ $((n % 3)) != 2 ]"),
        ("empty", ""),
        ("plain", ""),
        ("foreign", ""),
        ("badint", ""),
    ]);
    // Overwrite the files, so that they stay executable.
    for (name, text) in [
        ("empty", &b""[..]),
        ("plain", b"exit 0\n"),
        ("foreign", b"\x7fELF\x02\x01\x01"),
        ("badint", b"#!/no/such\n"),
    ] {
        fs::write(place.path().join(name), text).expect("it can be written");
    }
    for (words, code, want) in [
        (&["./old", "./nosuch"][..], 2, "neither a program nor a setting"),
        (&["./old", "NOSUCH=1"], 2, "no knob 'NOSUCH'"),
        (&["./old", "governor=performance"], 2, "--matrix"),
        (&["./old", "--rounds", "3"], 0, "./old: wall time 0."),
        (&["./old", "./old", "--shell=none", "--rounds", "1"], 0, "1 round"),
        (&["./old", "./old", "--prepare", "exit 3"], 1, "--prepare failed (exit 3)"),
        (&["./old", "./old", "--setup", "exit 3"], 1, "to continue: flyball compare --resume run"),
        (&["./old", "./bad"], 1, "exit 3"),
        (&["./old", "./empty"], 1, "it is empty"),
        (&["./old", "./plain"], 1, "--shell sh runs it"),
        (&["./old", "./plain", "--shell", "sh", "--rounds", "1"], 0, "1 round"),
        (&["./old", "./foreign"], 1, "another processor"),
        (&["./old", "./badint"], 1, "not the interpreter"),
        (&["./old", "./second"], 1, "to continue: flyball compare --resume run"),
        (&["./old", "./ever", "--timeout", "300ms"], 1, "did not end within 0.3 s"),
        (&["-w", "3", "./old", "./odd"], 2, "-w of hyperfine is --warmup here"),
        (&["--show-output", "./old", "./odd"], 2, "--show-output of hyperfine is not needed here"),
        (&["-n", "a", "./old", "-n", "b", "./odd"], 2, "--command-name"),
        (&["-M", "3", "./old", "./odd"], 2, "-M of hyperfine is --max-rounds here"),
        (&["./old", "./odd", "--suite", "go"], 1, "found no case (lines 'BenchmarkCASE COUNT N ns/op')"),
        (&["./old", "./noise"], 1, "it printed binary data"),
        (&["./old", "./tty"], 1, "exit 4"),
        (&["./much", "./much", "--rounds", "1", "--warm-up", "0"], 0, "into a file: ./much (200.0 MB)"),
        (&["./old", "--aa", "--fail-if", "time > 5%"], 2, "needs a second program"),
        (&["./old", "./odd", "--suite", "csv"], 2, "--better"),
        (&["--bisect", "a..b", "--suite", "go", "--", "./old"], 2, "cannot be used with"),
        (&["./old", "./odd", "--suite", "go", "--metric", "time"], 2, "cannot be used with"),
        (&["./old", "./odd", "--suite", "nosuch"], 2, "google-benchmark"),
        (&["./old", "./odd", "--same-output"], 1, "hint: diff shows where"),
        (&["--parameter", "n=1..200", "./old {n}"], 2, "200 arms"),
        (&["--parameter", "n=1..3", "./old"], 2, "no command has {n}"),
        (&["--in", "nosuch,old", "--", "./old"], 2, "--in nosuch"),
        (&["./old | cat", "./old"], 2, "only a shell"),
        (&["./old", "./old", "--rounds", "0"], 2, "rounds"),
        (&["./old", "./bad", "--rounds", "2", "--ignore-failure=3"], 0, "Exit codes differ"),
        (&["./third", "./old", "--rounds", "9", "--ignore-failure"], 0, "did not; run again with --rounds 1"),
        (&["./old", "./forks", "--rounds", "2"], 0, "left processes behind in 2 of 2 rounds"),
    ] {
        let _ = fs::remove_dir_all(place.path().join("run"));
        let ran = place.compare(words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.text());
        assert!(ran.text().contains(want), "{words:?}: {}", ran.text());
    }
    let words = ["compare", "--output", "null", "./old", "./odd"];
    let ran = Ran::of(flyball!().args(words).current_dir(place.path()));
    assert!(ran.code == 2 && ran.err.contains("write ./null"), "{}", ran.text());
}

#[test]
fn lengths_and_names_of_programs_are_told() {
    let place = Place::new(&[("old", "echo a")]);
    for (words, code, want) in [
        (&["--rounds", "3", "--", "./old"][..], 0, "./old: wall time 0."),
        (&["./old", "./old", "./old", "--rounds", "1"], 0, "./old #3"),
        (&["-N", "-S", "none", "./old", "--rounds", "1"], 0, "in 1 round."),
        (&["-N", "-S", "sh", "./old"], 2, "exclude each other"),
        (&["sleep 0.2", "--max-time", "300ms"], 0, "beyond --max-time; 2 count"),
        (&["sleep 0.2", "--max-time", "300ms"], 0, "2 blocks, ended by --max-time, 1 arm"),
        (&["./old", "-n"], 0, "at most 201 rounds: 16 s if"),
        (&["./old", "-n", "--rounds", "1000", "--max-time", "5s"], 0, "at most 1001 rounds: 5 s if"),
    ] {
        let _ = fs::remove_dir_all(place.path().join("run"));
        let ran = place.compare(words);
        assert!(ran.code == code && ran.text().contains(want), "{words:?}: {}", ran.text());
        let is_plural = |noun: &&str| ran.text().contains(&format!(" 1 {noun}s"));
        assert_eq!(["round", "block", "arm"].into_iter().find(is_plural), None, "{words:?}: {}", ran.text());
    }
    let ran = Ran::of(flyball!().args(["compare", "./old", "-o", "/proc/x"]).current_dir(place.path()));
    assert!(ran.code == 2 && ran.err.contains("cannot make /proc/x"), "{}", ran.text());
}

/// Short programs run as many rounds as fit into 3 s, judging by the warm-up. Also tests other
/// output forms.
#[test]
fn short_programs_have_many_rounds() {
    let place = Place::new(&[("old", "exit 0")]);
    let ran = place.compare(&["./old", "--export-json", "-"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    let results: Value = serde_json::from_str(&ran.out).expect("JSON");
    let schedule = &place.json("run/manifest.json")["schedule"];
    let rounds = schedule["length"]["rounds"].as_u64().expect("a fixed number");
    assert!(rounds > 15 && schedule["least_seconds"].is_null(), "{schedule}");
    assert!(results["results"][0]["times"].as_array().is_some_and(|times| times.len() > 15), "{results}");
}

#[test]
fn a_model_refuses_options_that_act_on_processes() {
    let place = Place::new(&[]);
    for option in ["--setup", "--prepare", "--conclude", "--cleanup", "--input", "--shell", "--metric"] {
        let model = ["-M", "sim:hybrid-laptop", "now", "governor=performance", "--workload", "spin"];
        let ran = place.compare(&[&model[..], &[option, "true"]].concat());
        assert_eq!(ran.code, 2, "{option}: {}", ran.text());
        let refused =
            ran.err.contains(&format!("{option} has no effect")) || ran.err.contains("--input true:");
        assert!(refused && !place.path().join("run").exists(), "{option}: {}", ran.err);
    }
}

#[test]
fn a_report_that_cannot_be_saved_is_printed() {
    let place = Place::new(&[("old", "true")]);
    let ran = place.compare(&["./old", "./old", "--rounds", "4"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    let is_root = fs::metadata("/proc/self").expect("it is there").uid() == 0;
    assert_eq!(ran.err.contains("note: as root, flyball can also"), !is_root, "{}", ran.err);
    let json = place.path().join("run/report.json");
    fs::remove_file(&json).and_then(|()| fs::create_dir(&json)).expect("it can be replaced");
    let ran = Ran::of(flyball!().args(["report", "run"]).current_dir(place.path()));
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.out.contains("./old #2") && ran.err.contains("report.json"), "{}", ran.text());
    fs::remove_dir(&json).expect("it is empty");
    let words = ["report", "run", "--export-markdown", "nosuch/x.md"];
    let ran = Ran::of(flyball!().args(words).current_dir(place.path()));
    assert!(ran.code == 1 && ran.err.contains("writes it again"), "{}", ran.text());
}

/// Breaks a hook or a program during a comparison with every hook and two programs under two values
/// of a knob, so that there is something to restore. Then removes the cause and resumes. A shell
/// script, because it can have its own file system.
const GRIEF: &str = r#"
phase=$1 call=$2 flyball=$3
if [ "$5" = full ]; then mkdir disk; mount -t tmpfs -o size=512k none disk || exit 77; run=disk/run; fi
echo 4 > mode
printf "[mode]\nvalues = [4, 8]\nread = 'cat $PWD/mode'\nwrite = 'echo {value} > $PWD/mode.new; mv $PWD/mode.new $PWD/mode'\n" > knobs.toml
printf '%s\n' "[ \$1 = $phase ] && [ ! -e mended ] || return 0" \
    'n=$(cat n || echo 0); echo $((n + 1)) > n' "[ \$n = $call ] || return 0" "$4" > grief
for one in old new; do printf '#!/bin/sh\nset -- program; . ./grief 2> /dev/null\n' > $one; chmod +x $one; done
hook() { echo "set -- $1; . ./grief 2> /dev/null"; }
ends() {
    code=$1 waited=0
    while [ "$(cat mode)" != 4 ] && [ $waited -lt 300 ]; do sleep 0.1; waited=$((waited + 1)); done
    echo "code $code, mode $(cat mode), $(grep '"warm_up":false' ${run:-run}/rounds.jsonl | grep -c '}$') rounds"
}
$flyball --state-dir $PWD/state compare ./old ./new --knob knobs.toml --matrix mode=4,8 --rounds 3 --seed 3 \
    --timeout 10s --setup "$(hook setup)" --rebuild "$(hook rebuild)" --prepare "$(hook prepare)" --conclude "$(hook conclude)" \
    --cleanup "$(hook cleanup)" -o ${run:-run} > said 2>&1
ends $?
touch mended; rm -f disk/fill; [ ! -e gone ] || mv gone new
# The guardian of a killed comparison may still hold the machine, for which the code is 6.
for try in 1 2 3 4 5 6 7 8 9; do
    $flyball --state-dir $PWD/state compare --resume ${run:-run} > resumed 2>&1
    code=$?; [ $code = 6 ] || break; sleep 1
done
ends $code
"#;

/// Whatever fails in whatever phase, settings are restored, rounds are kept, the reason is
/// reported, and `--resume` runs the remaining rounds.
#[test]
fn whatever_comes_to_grief_is_restored_and_goes_on() {
    const PHASES: [&str; 6] = ["setup", "rebuild", "prepare", "program", "conclude", "cleanup"];
    // Counted rounds that are kept if the seventh call fails, or the second call for setup and
    // cleanup. All arms of a block are built before its first round.
    const KEPT: [&str; 6] = ["0", "0", "2", "2", "2", "12"];
    let (all, program) = (&PHASES[..], &PHASES[3..4]);
    let causes = [
        ("exits", "exit 7", 1, all, "exit 7"),
        ("is interrupted", "kill -INT $PPID; sleep 3217", 130, all, "settings are restored"),
        ("is ended", "kill -TERM $PPID; sleep 3217", 130, program, "settings are restored"),
        // With flyball killed, nobody ends what the hook started.
        ("is killed", "kill -KILL $PPID; sleep 5", 137, all, ""),
        ("full", "cat /dev/zero > disk/fill", 1, program, "No space left on device"),
        ("loses its program", "mv new gone", 1, &PHASES[2..3], "cannot start ./new: No such file"),
        ("never ends", "sleep 3217", 1, program, "did not end within 10 s"),
        ("needs a terminal", "[ -t 0 ] || exit 4", 1, program, "exit 4"),
    ];
    for (cause, act, code, phases, said) in causes {
        for (index, phase) in PHASES.into_iter().enumerate().filter(|(_, phase)| phases.contains(phase)) {
            let place = Place::new(&[]);
            let call = if matches!(phase, "setup" | "cleanup") { "1" } else { "6" };
            let mut command = Command::new(if cause == "full" { "unshare" } else { "sh" });
            command.args(if cause == "full" { &["-rm", "sh"][..] } else { &[] }).args(["-c", GRIEF, "sh"]);
            command.args([phase, call, env!("CARGO_BIN_EXE_flyball"), act, cause]).current_dir(place.path());
            let ran = Ran::of(&mut command);
            if ran.code == 77 || ran.err.contains("unshare") {
                skip(1, "a full disk", "no mount namespace can be made");
                continue;
            }
            let text = fs::read_to_string(place.path().join("said")).expect("it is there");
            let case = format!("{phase} {cause}: {}{text}", ran.text());
            assert!(text.contains(said), "{case}");
            // On the full file system, a file can still grow to the end of its last page.
            let kept = if cause == "full" { ran.out.get(16..17).unwrap_or_default() } else { KEPT[index] };
            assert!(ran.out.starts_with(&format!("code {code}, mode 4, {kept} rounds\n")), "{case}");
            let resumed = fs::read_to_string(place.path().join("resumed")).expect("it is there");
            assert!(ran.out.ends_with("code 0, mode 4, 12 rounds\n"), "{case}{resumed}");
            assert!(resumed.contains("this comparison runs: ./new"), "{resumed}");
        }
    }
    let is_left = |path: std::path::PathBuf| fs::read(path).is_ok_and(|line| line == b"sleep\x003217\0");
    let left = fs::read_dir("/proc").expect("it is there").flatten();
    assert!(!left.map(|entry| entry.path().join("cmdline")).any(is_left), "what was started has ended");
}

/// Prints 30 cases like `go test -bench`. The eighth takes $1 times as long.
const GO_SUITE: &str = "awk -v seed=$$ -v times=$1 'BEGIN { srand(seed); for (i = 0; i < 30; i++)
    printf \"BenchmarkC%d-8 100 %.3f ns/op\\n\", i, 100 * (1 + rand() / 50) * (i == 7 ? times : 1) }'";

#[test]
fn suites_are_compared_case_by_case() {
    let place = Place::new(&[("bench", GO_SUITE)]);
    let ran = place.compare(&["./bench 1", "./bench 1.5", "--suite", "go", "--fail-if", "case > +20%"]);
    assert_eq!(ran.code, 12, "{}", ran.text());
    assert!(
        ran.out.contains("cases: 1 worse") && ran.out.contains("./bench 1.5, BenchmarkC7-8: over the limit"),
        "{}",
        ran.out
    );
    let row = ran.out.lines().find(|line| line.starts_with("BenchmarkC7-8")).unwrap_or_default();
    assert!(row.contains(" ns ") && row.contains("worse"), "{}", ran.out);
    let report = place.json("run/report.json");
    assert_eq!(report["schedule"]["length"]["rounds"], 20);
    let cases = report["cases"].as_array().expect("a list");
    assert_eq!((cases.len(), &cases[0]["comparison"]["verdict"]), (30, &"worse".into()));
    let page = fs::read_to_string(place.path().join("run/report.html")).expect("it is there");
    assert!(page.contains("type=\"search\"") && page.matches("BenchmarkC").count() >= 30);
}

#[test]
fn a_suite_may_write_a_file() {
    // pyperf does not overwrite a file. Only the second program has the case `more`.
    let suite = "[ -e $2 ] && exit 9; n=$(($$ % 90 + 10))
        more=$([ $1 = new ] && echo ',{\"metadata\":{\"name\":\"more\"},\"runs\":[{\"values\":[9]}]}')
        echo \"{\\\"benchmarks\\\":[{\\\"metadata\\\":{\\\"name\\\":\\\"sort\\\"},\\\"runs\\\":[{\\\"values\\\":[0.1$n]}]}$more]}\" \
        | tee ${2%/*}/../last-${2##*/}-$1 > $2";
    let place = Place::new(&[("bench", suite)]);
    let temporary = tempfile::tempdir().expect("a directory");
    let mut command: Command = flyball!();
    let words = ["compare", "-o", "run", "./bench old", "./bench new", "--suite", "pyperf", "--rounds", "4"];
    let command = command.args(words).args(["--", "{suite}"]).env("TMPDIR", temporary.path());
    let ran = Ran::of(command.current_dir(place.path()));
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.out.contains("left out (1): more (none or 0 in ./bench old)."), "{}", ran.out);
    assert_eq!(place.json("run/report.json")["cases"][0]["name"], "sort");
    // The suite wrote these two. Its own file was removed with its directory.
    let left = fs::read_dir(temporary.path()).expect("it is there").count();
    assert_eq!(left, 2, "{left} files");
}

#[test]
fn a_pipeline_compares_two_commits() {
    let place = Place::new(&[("bench", "echo same")]);
    let git = |words: &[&str]| {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"];
        let ran = Command::new("git").args(who).args(words).current_dir(place.path()).output();
        ran.is_ok_and(|output| output.status.success())
    };
    if !git(&["init", "--quiet"]) {
        flyball_testing::skip(1, "pipeline", "git is missing");
        return;
    }
    assert!(git(&["add", "bench"]) && git(&["commit", "--quiet", "-m", "one"]));
    fs::write(place.path().join("bench"), "#!/bin/sh\nsleep 0.1\necho same\n").expect("it can be written");
    assert!(git(&["commit", "--quiet", "-a", "-m", "two"]));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/compare");
    let run = |head: &str, out: &str| {
        let mut command = Command::new("sh");
        let variables = [
            ("BASE", "HEAD~1"),
            ("HEAD", head),
            ("COMMAND", "./bench"),
            ("BUILD", "test -x bench"),
            ("LIMIT", "time > +50%"),
            ("OPTIONS", "--rounds 10 --same-output"),
            ("OUT", out),
            ("FLYBALL", env!("CARGO_BIN_EXE_flyball")),
        ];
        Ran::of(command.arg(&script).envs(variables).current_dir(place.path()))
    };
    let slower = run("HEAD", "slower");
    assert_eq!(slower.code, 12, "{}", slower.text());
    let table = fs::read_to_string(place.path().join("slower/result.md")).expect("it is there");
    let first = table.lines().find(|line| line.starts_with("- ")).unwrap_or_default();
    assert!(first.contains("head: over the limit"), "{table}");
    let nosuch = run("nosuch", "nosuch");
    assert!(nosuch.code == 2 && nosuch.err.contains("no commit 'nosuch'"), "{}", nosuch.text());
    assert!(place.json("slower/result.json")["results"].is_array());
    // Comparing a commit with itself is never over the limit.
    let equal = run("HEAD~1", "equal");
    assert_eq!(equal.code, 0, "{}", equal.text());
    let trees = Command::new("git").args(["worktree", "list"]).current_dir(place.path()).output();
    assert_eq!(String::from_utf8_lossy(&trees.expect("git runs").stdout).lines().count(), 1);
}

/// A server in Python. Prints when it listens, and answers each connection with its delay in ms.
const SERVER: &str = "exec python3 -c '
import socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((\"127.0.0.1\", int(sys.argv[1])))
listener.listen()
print(\"listening\", flush=True)
while True:
    one, _ = listener.accept()
    one.sendall(sys.argv[2].encode())
    one.close()
' \"$@\"";

/// A load that prints the server's answer.
const LOAD: &str = "exec python3 -c '
import socket, sys
one = socket.create_connection((\"127.0.0.1\", int(sys.argv[1])))
print(\"p99\", one.recv(100).decode())
' \"$@\"";

fn free_port() -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("it is bound").port().to_string()
}

#[test]
fn servers_run_while_the_load_is_measured_and_end_with_the_round() {
    if Command::new("python3").arg("--version").output().is_err() {
        skip(1, "servers under load", "there is no python3");
        return;
    }
    let place = Place::new(&[("server", SERVER), ("load", LOAD), ("broken", "echo no such table; exit 7")]);
    let port = free_port();
    let (old, new) = (format!("./server {port} 100"), format!("./server {port} 125"));
    let load = format!("./load {port}");
    let metric =
        ["--metric", "p99 ([0-9.]+)", "--unit", "ms", "--better", "lower", "--rounds", "2", "--warm-up", "0"];
    for ready in [port.as_str(), "line:listening"] {
        _ = fs::remove_dir_all(place.path().join("run"));
        let words =
            [&old, &new, "--load", &load, "--ready", ready, "--command-name", "old", "--command-name", "new"];
        let ran = place.compare(&[&words[..], &metric].concat());
        assert_eq!(ran.code, 0, "{ready}: {}", ran.text());
        assert!(ran.out.contains("new"), "{}", ran.out);
    }
    let value = |round: &str| serde_json::from_str::<Value>(round).expect("JSON")["outcome"]["value"].clone();
    let rounds = fs::read_to_string(place.path().join("run/rounds.jsonl")).expect("they are there");
    let values: Vec<Value> = rounds.lines().map(value).collect();
    assert!(values.contains(&100.0.into()) && values.contains(&125.0.into()), "{values:?}");
    // The last server ended with its round.
    assert!(std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
    let serve = format!("./server {port} {{n}}");
    let design = ["--serve", &serve, "--parameter", "n=100,125", "--ready", &port, "-n"];
    let ran = place.compare(&[&design[..], &metric, &["--", "./load", &port]].concat());
    assert_eq!(ran.code, 0, "{}", ran.text());

    let other = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let used = other.local_addr().expect("it is bound").port().to_string();
    for (words, code, why) in [
        (&["./broken", &old, "--load", "true"][..], 1, "no such table"),
        (&[&old, &new, "--load", "true", "--ready", &used], 1, "is in use"),
        (&["--load", "true"], 2, "--load needs a server"),
        (&["true", "true", "--ready", "1"], 2, "--ready needs a server"),
    ] {
        _ = fs::remove_dir_all(place.path().join("run"));
        let ran = place.compare(words);
        assert_eq!((ran.code, ran.err.contains(why)), (code, true), "{words:?}: {}", ran.text());
    }
}

/// Creates a repository with `count` commits after the first. `speed` returns the speed file of
/// each commit.
fn history(count: usize, speed: impl Fn(usize) -> String) -> Place {
    let place = Place::new(&[]);
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
        let ran = Command::new("git").args(identity).args(words).current_dir(place.path()).output();
        assert!(ran.expect("git runs").status.success(), "{words:?}");
    };
    git(&["init", "-q"]);
    for number in 0..=count {
        fs::write(place.path().join("speed"), speed(number)).expect("it can be written");
        git(&["add", "speed"]);
        git(&["commit", "-q", "--allow-empty", "-m", &format!("commit {number}")]);
        git(&["tag", &format!("c{number}")]);
    }
    place
}

/// A build that copies the speed file, and a command that prints the speed with one percent of
/// noise.
const BISECT: [&str; 8] = [
    "--build",
    "test -s speed && cp speed built",
    "--metric",
    "t=([0-9.]+)",
    "--better",
    "lower",
    "--warm-up",
    "0",
];
const NOISY: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "awk -v s=$$ 'BEGIN { srand(s); getline v < \"built\"; print \"t=\" v * (0.99 + 0.02 * rand()) }'",
];

#[test]
fn a_bisection_finds_the_commit_and_leaves_the_checkout_alone() {
    // Two commits do not build, and one is 20 % slower.
    let speed = |number: usize| match number {
        6 | 8 => String::new(),
        _ => format!("{}\n", if number >= 11 { 120 } else { 100 }),
    };
    let place = history(16, speed);
    fs::write(place.path().join("speed"), "dirty").expect("it can be written");
    let words = [&["--bisect", "c0..", "--json"], &BISECT[..], &NOISY].concat();
    let temporary = tempfile::tempdir().expect("a directory");
    let mut command: Command = flyball!();
    let ran = Ran::of(
        command
            .args(["compare", "-o", "run"])
            .args(words)
            .current_dir(place.path())
            .env("TMPDIR", temporary.path()),
    );
    assert_eq!(ran.code, 0, "{}", ran.text());
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(report["answer"], "found");
    assert_eq!(report["commits"][0]["subject"], "commit 11", "{report}");
    assert_eq!(report["is_worse"], true);
    let end = |name: &str| report["interval"][name].as_f64().expect("a number");
    assert!(end("low") > 0.05 && end("low") < 0.2 && end("high") > 0.2, "{report}");
    assert_eq!(report["skipped"].as_object().map(serde_json::Map::len), Some(1), "{report}");
    assert!(report["runs"].as_u64() < Some(80) && report["built"].as_u64() < Some(10), "{report}");
    assert_eq!(fs::read_to_string(place.path().join("speed")).expect("it is there"), "dirty");
    assert_eq!(fs::read_dir(temporary.path()).expect("it is there").count(), 0);
    let trees = Command::new("git").args(["worktree", "list"]).current_dir(place.path()).output();
    assert_eq!(trees.expect("git runs").stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
}

#[test]
fn a_stopped_bisection_goes_on() {
    let place = history(16, |number| format!("{}\n", if number >= 11 { 120 } else { 100 }));
    let path = place.path().display().to_string();
    // The twelfth round stops flyball.
    let stops = format!(
        "echo >> {path}/count; [ $(wc -l < {path}/count) -ne 12 ] || {{ kill -INT $PPID; sleep 9; }}; {}",
        NOISY[3]
    );
    let words = [&["--bisect", "c0..", "--seed", "7"][..], &BISECT, &["--", "sh", "-c", &stops]].concat();
    let planned = place.compare(&[&["-n"][..], &words].concat());
    assert_eq!(planned.code, 0, "{}", planned.text());
    assert!(planned.out.contains("searches the 16 commits after"), "{}", planned.out);
    let ran = place.compare(&words);
    assert_eq!(ran.code, 130, "{}", ran.text());
    assert!(ran.err.contains("11 rounds are kept; to continue: flyball compare --resume run"), "{}", ran.err);
    let resume = ["--json", "compare", "--resume", "run"];
    let ran = Ran::of(flyball!().args(resume).current_dir(place.path()));
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.err.contains("--build: sh -c"), "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(report["commits"][0]["subject"], "commit 11", "{report}");
    let rounds = fs::read_to_string(place.path().join("run/rounds.jsonl")).expect("they are there");
    assert_eq!(report["runs"].as_u64(), Some(rounds.lines().count() as u64));
}

#[test]
fn a_bisection_says_why_it_names_no_commit() {
    let place = history(3, |number| if number == 3 { String::new() } else { "100\n".to_owned() });
    let bisect = |range: &str| {
        _ = fs::remove_dir_all(place.path().join("run"));
        place.compare(&[&["--bisect", range], &BISECT[..], &NOISY].concat())
    };
    let alike = bisect("c0..c2");
    assert_eq!(alike.code, 13, "{}", alike.text());
    _ = fs::remove_dir_all(place.path().join("run"));
    // The state that a killed bisection leaves.
    let tree = place.path().join("flyball-bisect-x/c0").display().to_string();
    let words = ["worktree", "add", "-q", "--detach", &tree, "c0"];
    let added = Command::new("git").args(words).current_dir(place.path()).status();
    assert!(added.is_ok_and(|status| status.success()));
    let few = place.compare(&[&["--bisect", "c0..c2", "--max-rounds", "2"], &BISECT[..], &NOISY].concat());
    assert!(few.out.contains("4 runs were not enough; raise --max-rounds"), "{}", few.text());
    assert!(few.err.contains("/flyball-bisect-x holds work trees of another bisection"), "{}", few.err);
    for (range, code, words) in [
        ("c0", 2, "GOOD..BAD"),
        ("c0...c2", 2, "GOOD..BAD"),
        ("c0..nothing", 2, "no commit 'nothing'"),
        ("c2..c0", 2, "not an ancestor"),
        ("c1..c1", 2, "no commit between"),
        ("c0..c3", 1, "cannot be measured"),
    ] {
        let ran = bisect(range);
        assert_eq!((ran.code, ran.err.contains(words)), (code, true), "{range}: {}", ran.text());
    }
    let nowhere = Place::new(&[]);
    let ran = nowhere.compare(&[&["--bisect", "a..b"], &BISECT[..], &NOISY].concat());
    assert_eq!((ran.code, ran.err.contains("not the work tree")), (2, true), "{}", ran.text());
}

#[test]
fn a_program_that_was_built_again_is_not_pooled_with_the_earlier_one() {
    let place = Place::new(&[("old", "exit 0"), ("new", "exit 0")]);
    let ran = place.compare(&["./old", "./new", "--metric", "cpu-time", "--rounds", "3"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.out.contains("CPU time"), "{}", ran.out);
    let rounds = || fs::read_to_string(place.path().join("run/rounds.jsonl")).expect("they are there");
    let kept = rounds().lines().count();
    let shortened = rounds().lines().take(kept - 1).map(|line| format!("{line}\n")).collect::<String>();
    fs::write(place.path().join("run/rounds.jsonl"), &shortened).expect("it can be written");
    fs::write(place.path().join("new"), "#!/bin/sh\nexit 0 # built again\n").expect("it can be written");
    let ran = Ran::of(flyball!().args(["compare", "--resume", "run"]).current_dir(place.path()));
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.err.contains("new was replaced since the first round"), "{}", ran.err);
    // A round of the warm-up may have run before.
    let counted = |text: &str| text.lines().filter(|line| line.contains("\"warm_up\":false")).count();
    assert_eq!(counted(&rounds()), counted(&shortened), "rounds are kept");
}

#[test]
fn outputs_are_compared_with_those_of_the_first_arm() {
    let place = Place::new(&[("old", "echo same"), ("new", "echo same"), ("bad", "echo other")]);
    for seed in ["1", "2", "3"] {
        _ = fs::remove_dir_all(place.path().join("run"));
        let words = ["./old", "./new", "./bad", "--same-output", "--rounds", "4", "--seed", seed];
        let ran = place.compare(&words);
        assert_eq!(ran.code, 1, "{}", ran.text());
        assert!(
            ran.err.contains("arm './bad': its standard output differs from that of './old'"),
            "{}",
            ran.err
        );
    }
}

/// If the kernel counts user time in ticks, such short programs have none in most rounds.
#[test]
fn rounds_without_a_value_above_zero_end_nothing() {
    let place = history(4, |number| ["1\n", "1\n", "0\n", "1.5\n", "1.5\n"][number].to_owned());
    let ran = place.compare(&["true", "true", "--metric", "user-time", "--rounds", "20"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    if !ran.out.starts_with("true") || !ran.out.contains("--metric cpu-time counts the kernel's time too") {
        skip(1, "short programs without user time", "this kernel does not count in ticks");
    }
    let _ = fs::remove_dir_all(place.path().join("run"));
    // Every third round, and every round of the second commit, has the value 0.
    let script =
        "echo >> ../count; awk -v s=$$ -v n=$(wc -l < ../count) 'BEGIN { srand(s); getline v < \"speed\"
        print \"x=\" (n % 3 ? v * (0.99 + 0.02 * rand()) : 0) }'";
    let metric = ["--metric", "x=([0-9.]+)", "--better", "lower", "--warm-up", "0"];
    let ran = place.compare(&[&["--bisect", "c0..c4"][..], &metric, &["--", "sh", "-c", script]].concat());
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.out.contains("One of 2 commits") && ran.out.contains("commit 3"), "{}", ran.text());
    assert!(ran.out.contains("its metric was not above 0 in any of 6 rounds"), "{}", ran.text());
}

#[test]
fn a_bound_without_its_option_is_refused() {
    let place = Place::new(&[("old", "exit 0"), ("new", "exit 0")]);
    let ran = place.compare(&["./old", "./new", "--max-rounds", "3"]);
    assert_eq!(
        (ran.code, ran.err.contains("--rounds says how many blocks run")),
        (2, true),
        "{}",
        ran.text()
    );
}
