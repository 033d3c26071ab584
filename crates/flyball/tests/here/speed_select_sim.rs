//! Compares the unmodified intel-speed-select with its replacement on the same simulated machines:
//! a few hundred command lines, valid and invalid, must give the same text on both streams, the
//! same exit code, and the same state of the machine.
//!
//! Needs FUSE and the tool, v1.26, with the C library that it was built for, in the folder
//! `$FLYBALL_SST_TOOL` (as guests/speed_select.rs). `$FLYBALL_SST_LINES` sets the number of cases
//! per machine (40 by default, 240 for a full run), `$FLYBALL_SST_SEED` chooses other cases, and
//! `$FLYBALL_SST_MACHINES` chooses machines.

use flyball_testing::{flyball, skip};
use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

/// Machine and kernel.
const MACHINES: [(&str, &str); 3] = [("sst-guide", "6.12"), ("tpmi-small", "7.2"), ("msr-mailbox", "6.12")];

/// Returns a folder with the tool, patched to load the C library next to it. `None` if there is
/// none.
fn tool(folder: &Path) -> Option<PathBuf> {
    let from = std::env::var_os("FLYBALL_SST_TOOL").map(PathBuf::from)?;
    let mut program = fs::read(from.join("intel-speed-select")).ok()?;
    const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
    let at = program.windows(LOADER.len()).position(|part| part == LOADER)?;
    // Replace the loader's name in the file with a shorter one. The program then runs under its own
    // name, by which the supervisor recognises a program that uses CPUID.
    let lib = folder.join("l");
    let own = lib.join("ld.so").into_os_string().into_encoded_bytes();
    assert!(own.len() < LOADER.len(), "{} is too long a path", folder.display());
    program[at..at + LOADER.len()].fill(0);
    program[at..at + own.len()].copy_from_slice(&own);
    symlink(&from, &lib).unwrap();
    if !lib.join("ld.so").exists() {
        // If the folder is not writable, link its parts.
        fs::remove_file(&lib).unwrap();
        fs::create_dir(&lib).unwrap();
        for entry in fs::read_dir(&from).unwrap().flatten() {
            symlink(entry.path(), lib.join(entry.file_name())).unwrap();
        }
        symlink(from.join("ld-linux-x86-64.so.2"), lib.join("ld.so")).unwrap();
    }
    let home = folder.join("tool");
    fs::create_dir(&home).unwrap();
    let path = home.join("intel-speed-select");
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Some(home)
}

/// Pseudorandom numbers, the same in each run (an LCG of Knuth's).
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const GLOBALS: &[&str] = &[
    "",
    "",
    "",
    "",
    "",
    "",
    "-c 0",
    "-c 0",
    "-c 1",
    "-c 0,1",
    "-c 5-7",
    "-c 13..15",
    "--cpu 2",
    "-cpu 3",
    "-c 999",
    "-c 3-1",
    "-c x",
    "-c 0,",
    "-c 4,4",
    "-f json",
    "-f json",
    "-f text",
    "-f jsonx",
    "--format=json",
    "-f json -c 0,14",
    "--retry 5",
    "--pause 0",
    "-c 30",
    "-c 31,0",
    "-a",
];

const COMMANDS: &[&str] = &[
    "perf-profile info",
    "perf-profile get-lock-status",
    "perf-profile get-config-levels",
    "perf-profile get-config-version",
    "perf-profile get-config-enabled",
    "perf-profile get-config-current-level",
    "perf-profile set-config-level",
    "base-freq info",
    "base-freq enable",
    "base-freq disable",
    "turbo-freq info",
    "turbo-freq enable",
    "turbo-freq disable",
    "core-power info",
    "core-power enable",
    "core-power disable",
    "core-power config",
    "core-power get-config",
    "core-power assoc",
    "core-power get-assoc",
    "turbo-mode enable",
    "turbo-mode disable",
    "turbo-mode get-trl",
    "turbo-mode set-trl",
];

const OPTIONS: &[&str] = &[
    "",
    "",
    "",
    "",
    "-l 0",
    "-l 0",
    "-l 1",
    "-l 2",
    "-l 3",
    "-l 4",
    "-l 9",
    "-l -1",
    "-l x",
    "-l 4 -o",
    "-l 3 -o",
    "-o",
    "-a",
    "-a",
    "-l 0 -b 0",
    "-l 0 -b 2",
    "-l 0 -b 9",
    "-l 0 -r sse",
    "-l 0 -r avx512",
    "-l 0 -r neon",
    "-t 0x1f1f1f1f1f1f1f1f",
    "-t zz",
    "-c 0",
    "-c 1",
    "-c 2",
    "-c 3",
    "-c 4",
    "-c x",
    "-c 1 -n 800 -m 2400",
    "-c 1 -n 2400 -m 800",
    "-c 2 -w 3 -e 5",
    "-c 2 -w 99",
    "-c 3 -e 16",
    "-c 0 -d 1000",
    "-c 0 -d 0",
    "-c 1 -n x",
    "-c 3 -m 26000",
    "-p 0",
    "-p 1",
    "-p 2",
    "-p x",
    "-z",
    "--level 0",
    "--level",
    "garbage",
    "-l 0 garbage",
    "-h",
    "--help",
    "-a -t 0x2020202020202020",
];

/// Commands that are run on the machine first.
const BEFORE: &[&str] = &[
    "",
    "",
    "",
    "core-power enable",
    "core-power enable -p 1",
    "base-freq enable",
    "base-freq enable -a",
    "-c 1,2 turbo-freq enable -a",
    "turbo-freq enable",
    "perf-profile set-config-level -l 3",
    "perf-profile set-config-level -l 4 -o",
    "core-power config -c 1 -n 1000 -m 2000",
];

/// Lines in every run: help, invalid words, and the guide's procedure.
const ALWAYS: &[&str] = &[
    "--info",
    "--version",
    "--help",
    "-f json --info",
    "bogus info",
    "perf-profile bogus",
    "perf-profile",
    "",
    "-q",
    "perf-profile -h",
    "base-freq -h",
    "turbo-freq --help",
    "core-power -h",
    "turbo-mode -h",
    "perf-profile info; perf-profile set-config-level -l 4 -o; perf-profile info; base-freq enable; \
     perf-profile set-config-level -l 0 -o; perf-profile info",
    "base-freq enable -a; core-power info; -c 0-13 core-power get-assoc; core-power get-config -c 3; base-freq disable -a; \
     core-power info",
    "-c 1,2 turbo-freq enable -a; core-power disable; turbo-mode get-trl; -c 0-7 core-power get-assoc; turbo-freq disable -a; \
     turbo-mode get-trl",
    "core-power enable -p 1; core-power config -c 1 -w 3 -e 5 -n 900 -m 2500; core-power get-config -c 1; \
     -c 3 core-power assoc -c 1; -c 2-4 core-power get-assoc; core-power disable",
    "turbo-mode disable; turbo-mode enable; turbo-mode set-trl -t 0x1e1e1e1e1e1e1e1e; -c 0 turbo-mode get-trl",
];

/// Returns the cases: command lines that are run one after the other on a freshly booted machine.
fn cases() -> Vec<Vec<String>> {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let count = number("FLYBALL_SST_LINES", 40) as usize;
    let mut draw = Draw(number("FLYBALL_SST_SEED", 1));
    let mut all: Vec<Vec<String>> =
        ALWAYS.iter().map(|lines| lines.split(';').map(|line| line.trim().to_owned()).collect()).collect();
    for index in 0..count {
        let command = COMMANDS[index % COMMANDS.len()];
        let line = format!("{} {command} {}", draw.of(GLOBALS), draw.of(OPTIONS));
        let before = draw.of(BEFORE).to_owned();
        all.push([before, line.trim().to_owned()].into_iter().filter(|line| !line.is_empty()).collect());
    }
    all
}

/// Returns whether a line is known to differ, as listed in docs/dev/speed-select.md.
fn differs_on_purpose(machine: &str, line: &str) -> bool {
    // The tool writes the level's mesh limits a hundred times too large.
    machine.starts_with("tpmi") && line.contains("set-config-level") && line.contains("-o")
}

/// Removes the text of help, which has its own wording. Only checks that there is some, and on
/// which stream.
fn without_help(line: &str, outcome: &Outcome) -> Outcome {
    let mut plain = outcome.clone();
    let asked = line.split(' ').any(|word| matches!(word, "-h" | "--help"));
    for text in [&mut plain.out, &mut plain.err] {
        if let Some(at) = text.find("Usage:\n") {
            text.replace_range(at.., "help");
        } else if asked && text.lines().count() > 2 {
            // Keep the two lines about the processor before it.
            let kept: Vec<&str> =
                text.lines().take_while(|line| line.contains("(R)") || line.contains("CPU model")).collect();
            *text = format!("{}help", kept.join("\n"));
        } else if asked && !text.is_empty() && !text.contains("(R)") {
            "help".clone_into(text);
        }
    }
    plain
}

/// Removes lower limits: with `--auto` of base-freq, the tool writes uninitialised memory after a
/// limit, which the kernel accepts or rejects by chance.
fn without_lower_limits(settings: &str) -> String {
    settings.lines().filter(|line| !line.contains("/scaling_min_freq ")).collect::<Vec<_>>().join("\n")
}

/// The result of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    out: String,
    err: String,
    code: String,
    settings: String,
}

/// Runs all cases in one served machine, which is rebooted before each.
fn outcomes(
    machine: &str,
    kernel: &str,
    home: &Path,
    libraries: Option<&Path>,
    cases: &[Vec<String>],
) -> Vec<Vec<Outcome>> {
    let results = tempfile::tempdir().unwrap();
    let mut script = format!("cd {}\ns=$FLYBALL_SIM/flyball/settings\n", home.display());
    for (index, lines) in cases.iter().enumerate() {
        script.push_str("echo reset > $s; rm -f /run/isst_cpu_topology.dat\n");
        for (step, line) in lines.iter().enumerate() {
            let at = results.path().join(format!("{index}.{step}"));
            let at = at.display();
            let library =
                libraries.map(|path| format!("LD_LIBRARY_PATH={} ", path.display())).unwrap_or_default();
            let _ = writeln!(
                script,
                "{library}./intel-speed-select {line} >{at}.out 2>{at}.err </dev/null; echo $? >{at}.code; cat $s >{at}.settings"
            );
        }
    }
    let path = results.path().join("script");
    fs::write(&path, script).unwrap();
    let output =
        flyball!().args(["--kernel", kernel, "sim", "run", machine, "--", "sh"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: String| {
        let bytes = fs::read(results.path().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let each = cases.iter().enumerate();
    each.map(|(index, lines)| {
        (0..lines.len())
            .map(|step| Outcome {
                out: read(format!("{index}.{step}.out")),
                err: read(format!("{index}.{step}.err")),
                code: read(format!("{index}.{step}.code")),
                settings: read(format!("{index}.{step}.settings")),
            })
            .collect()
    })
    .collect()
}

/// The lines in which two texts differ.
fn difference(what: &str, tool: &str, ours: &str) -> String {
    if tool == ours {
        return String::new();
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (tool.lines().collect(), ours.lines().collect());
    let first = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let show = |lines: &[&str]| {
        lines.iter().skip(first).take(4).map(|line| format!("      {line}\n")).collect::<String>()
    };
    format!("   {what} from line {}:\n    tool\n{}    drop-in\n{}", first + 1, show(&a), show(&b))
}

#[test]
fn the_tool_and_the_drop_in_agree_on_simulated_machines() {
    if !crate::has_fuse() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("s").rand_bytes(4).tempdir_in("/tmp").unwrap();
    let all = cases();
    let Some(home) = tool(folder.path()) else {
        let lines: usize = all.iter().map(Vec::len).sum();
        skip(lines, "command lines", "FLYBALL_SST_TOOL names no folder that holds intel-speed-select v1.26");
        return;
    };
    let ours = folder.path().join("ours");
    fs::create_dir(&ours).unwrap();
    symlink(env!("CARGO_BIN_EXE_flyball"), ours.join("intel-speed-select")).unwrap();
    let mut wrong = String::new();
    let mut count = 0;
    let wanted = std::env::var("FLYBALL_SST_MACHINES").unwrap_or_default();
    for (machine, kernel) in MACHINES {
        if !wanted.is_empty() && !wanted.split(',').any(|name| name == machine) {
            continue;
        }
        let theirs = outcomes(machine, kernel, &home, Some(&folder.path().join("l")), &all);
        let mine = outcomes(machine, kernel, &ours, None, &all);
        for ((lines, theirs), mine) in all.iter().zip(&theirs).zip(&mine) {
            let mut story = String::new();
            let mut garbled = false;
            for ((line, tool), ours) in lines.iter().zip(theirs).zip(mine) {
                story.push_str(&format!(" {line};"));
                count += 1;
                if differs_on_purpose(machine, line) {
                    break;
                }
                let (mut tool, mut ours) = (without_help(line, tool), without_help(line, ours));
                garbled |= line.contains("base-freq") && line.contains(" -a");
                if garbled {
                    for outcome in [&mut tool, &mut ours] {
                        outcome.settings = without_lower_limits(&outcome.settings);
                    }
                }
                let (tool, ours) = (&tool, &ours);
                if tool != ours {
                    let _ = writeln!(
                        wrong,
                        "{machine}:{story}\n{}{}{}{}",
                        difference("stdout", &tool.out, &ours.out),
                        difference("stderr", &tool.err, &ours.err),
                        difference("exit code", &tool.code, &ours.code),
                        difference("settings", &tool.settings, &ours.settings)
                    );
                    break;
                }
            }
        }
    }
    eprintln!("{count} command lines compared");
    if let Some(path) = std::env::var_os("FLYBALL_SST_REPORT") {
        fs::write(path, &wrong).unwrap();
    }
    let stories = wrong.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()).count();
    assert!(wrong.is_empty(), "{stories} of {count} differ:\n{wrong}");
}

/// Runs the same program on a served machine, whose calls the supervisor answers through the
/// caller's memory, and on a machine in its own process.
#[test]
fn served_and_in_process_machines_say_the_same() {
    if !crate::has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ours = folder.path().join("ours");
    fs::create_dir(&ours).unwrap();
    symlink(env!("CARGO_BIN_EXE_flyball"), ours.join("intel-speed-select")).unwrap();
    let lines = [
        "--info",
        "perf-profile info -l 0",
        "core-power enable -p 1",
        "core-power get-config -c 1",
        "base-freq enable",
    ];
    let cases: Vec<Vec<String>> = lines.iter().map(|line| vec![(*line).to_owned()]).collect();
    for (machine, kernel) in MACHINES {
        let served = outcomes(machine, kernel, &ours, None, &cases);
        for (line, served) in lines.iter().zip(&served) {
            let output = flyball!()
                .arg("-M")
                .arg(format!("sim:{machine},kernel={kernel}"))
                .arg("intel-speed-select")
                .args(line.split(' '))
                .output()
                .unwrap();
            // flyball announces that the machine is simulated, and a served one keeps its topology.
            let plain = |text: &str| -> Vec<String> {
                let noise =
                    |line: &&str| !line.starts_with("flyball:") && *line != "Caching topology information";
                text.lines().filter(noise).map(str::to_owned).collect()
            };
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(plain(&served[0].out), plain(&out), "{machine}: {line}");
            assert_eq!(plain(&served[0].err), plain(&err), "{machine}: {line}");
            assert!(!err.is_empty() && served[0].code.trim() == "0");
        }
    }
}
