//! Compares the real Speed Select drivers in guests on flyball's silicon with recordings of the
//! same drivers elsewhere: call by call, and line by line of intel-speed-select's output.
//!
//! The recordings are not part of this repository (`$FLYBALL_SHARED/lab/results/sst` or
//! `../shared`). Some guests have the registers of the recorded Granite Rapids in this repository.
//! If there is no recording of a guest's kernel, its calls are compared with flyball-sim's driver,
//! which needs no recording. By default one guest is booted; `FLYBALL_GUEST_TESTS=all` boots all.
//! Guests and comparisons that are skipped are counted.

#[path = "../../../../../crates/flyball-sim/tests/simulator/isst/calls.rs"]
mod calls;
#[path = "../../../../../crates/flyball-sim/tests/simulator/isst/machines.rs"]
mod machines;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use flyball_guest::cache::Cache;
use flyball_sim::{Boot, Caller, SimMachine};
use libtest_mimic::Failed;

use crate::{
    guest::{self, SuiteCase},
    program,
};
use flyball_testing::shared;

/// Machine and kernel of the guests: those with recorded calls, and others. The second name is the
/// recording to compare with.
const CALLS: &[(&str, &str)] = &[
    ("icx-7.2", "icx-7.2"),
    ("icx-6.18", "icx-7.2"),
    ("icx-6.12", "icx-6.12"),
    ("clx-7.2", "clx-7.2"),
    ("clx-6.18", "clx-7.2"),
    ("clx-6.12", "clx-6.12"),
    ("spr-7.2", "spr-7.2"),
    ("gnr-7.2", "gnr-7.2"),
    // The TPMI driver of 6.18 checks as little as that of 6.12.
    ("gnr-6.18", "gnr-6.12"),
    ("gnr-6.12", "gnr-6.12"),
    ("gnr-blocked-7.2", "gnr-blocked-7.2"),
    ("gnr-levels3-7.2", "gnr-levels3-7.2"),
    ("gnr-levels3-6.18", "gnr-levels3-6.12"),
    ("gnr-levels3-6.12", "gnr-levels3-6.12"),
];

/// Recordings of the tool's output.
const TOOL: &[&str] = &[
    "icx-7.2",
    "icx-6.12",
    "clx-7.2",
    "clx-6.12",
    "spr-7.2",
    "spr-6.12",
    "emr-7.2",
    "gnr-7.2",
    "gnr-6.12",
    "gnr-blocked-7.2",
    "gnr-levels3-7.2",
    "gnr-levels3-6.12",
    "gnr-2pkg-7.2",
    "srf-7.2",
];

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/speed-select").join(name)
}

/// Returns a recording's text.
fn recording(kind: &str, name: &str) -> Option<String> {
    std::fs::read_to_string(machines::folder()?.join(format!("{kind}-{name}.txt"))).ok()
}

fn kernel(name: &str) -> &'static str {
    let wanted = name.rsplit('-').next().unwrap_or_default();
    ["6.12", "6.18", "7.2"].into_iter().find(|kernel| *kernel == wanted).unwrap()
}

/// The unmodified tool in the version of the kernel's distribution.
fn tool(kernel: &str) -> PathBuf {
    let folder = if kernel == "6.12" { "sst-tool-trixie" } else { "sst-tool" };
    Cache::of_user().expect("the cache is this user's own").root().join(folder)
}

/// Boots the machine of a recording and returns the command's output.
fn boot(name: &str, dir: &Path, files: &[String], command: &[&str]) -> Result<String, Failed> {
    let (spec, _) = machines::machine(&format!("isst-{name}")).ok_or("its machine is not here")?;
    let file = dir.join(format!("{name}.toml"));
    std::fs::write(&file, spec.to_toml()?)?;
    let (file, cpus) = (file.display().to_string(), spec.cpus().to_string());
    let mut options = vec![file.as_str(), "--cpus", &cpus, "--timeout", "1800"];
    for file in files {
        options.extend(["--file", file]);
    }
    let output = guest::run(kernel(name), &options, command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(0) {
        return Ok(text);
    }
    Err(format!("{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Known differences: guests, part of the answer's line, the reason. Each must occur in each of
/// these guests.
type Known = (&'static [&'static str], &'static str, &'static str);

/// Known differences from the recorded answers.
const CALLS_KNOWN: &[Known] = &[
    (&["gnr-6.12", "gnr-6.18", "gnr-levels3-6.12", "gnr-levels3-6.18"], "perf levels 0/0", CLASSES),
    (LEVELS, "bf info 2", REST),
    (LEVELS, "bf mask 2", REST),
    (LEVELS, "tf info 2", REST),
    (LEVELS, "msr read   ", LIMITS),
];
const LEVELS: &[&str] = &["gnr-levels3-7.2", "gnr-levels3-6.12", "gnr-levels3-6.18"];
const CLASSES: &str = "these kernels let classes of service be switched off before; turbo-freq, which stands on them, is \
    then refused by flyball's firmware, and was not by the one recorded";
const REST: &str = "the firmware recorded leaves the numbers of features that its third level has not";
const LIMITS: &str = "a level brings its turbo limits along, which the firmware recorded does not";

/// Known differences between the simulator's driver and the real one.
const SIMULATED_KNOWN: &[Known] = &[
    (MAILBOX, "msr read 0x54", EMULATOR),
    (MAILBOX, "msr read 0x1af", EMULATOR),
    (TPMI, "msr read 0x1af", EMULATOR),
];
const MAILBOX: &[&str] = &["icx-7.2", "icx-6.18", "icx-6.12", "clx-7.2", "clx-6.18", "clx-6.12", "spr-7.2"];
const TPMI: &[&str] = &[
    "gnr-7.2",
    "gnr-6.18",
    "gnr-6.12",
    "gnr-blocked-7.2",
    "gnr-levels3-7.2",
    "gnr-levels3-6.18",
    "gnr-levels3-6.12",
];
const EMULATOR: &str = "the emulator reads registers that the processor has not as 0; the simulator's fault";

/// The answers of the simulator's driver, in the format of the recordings.
fn simulated(name: &str) -> Vec<String> {
    let (spec, kernel) = machines::machine(&format!("isst-{name}")).unwrap();
    let mut machine = SimMachine::boot(spec, kernel, Boot::default(), 0).unwrap();
    let mut lines = Vec::new();
    for mut call in list(name) {
        let answer = machine.isst(call.number, &mut call.argument, call.caller);
        if machine.kernel_fault().is_some() {
            lines.push(format!("{}: killed by signal 9", call.name));
            break;
        }
        let answer = match answer {
            Ok(value) => {
                let bytes: String =
                    call.argument.iter().take(160).map(|byte| format!("{byte:02x}")).collect();
                format!("{value}  {bytes}")
            }
            Err(errno) => format!("{errno:?}"),
        };
        lines.push(format!("{:<58} {answer}", call.name));
    }
    lines
}

fn list(name: &str) -> Vec<calls::Call> {
    let (cpus, highest) = match name {
        name if name.contains("levels3") => (6, 2),
        name if name.contains("gnr") => (6, 0),
        _ => (4, 0),
    };
    calls::script(cpus, highest)
}

/// Describes the lines that differ, except for known differences, and counts these.
fn differences(name: &str, theirs: &[String], ours: &[String], known: &[Known]) -> (String, usize) {
    // Kernels before 7.2 read beyond their table of levels. What they find there, or whether they
    // fault, is chance.
    let chance = |line: &&String| kernel(name) != "7.2" && line.contains("(levels end at");
    let of =
        |lines: &[String]| -> Vec<String> { lines.iter().filter(|line| !chance(line)).cloned().collect() };
    let (theirs, ours) = (of(theirs), of(ours));
    let (mut wrong, mut met) = (String::new(), vec![0; known.len()]);
    for at in 0..theirs.len().max(ours.len()) {
        let (theirs, ours) = (theirs.get(at).map(String::as_str), ours.get(at).map(String::as_str));
        if theirs == ours {
            continue;
        }
        let call = theirs.or(ours).unwrap_or_default();
        match known.iter().position(|(names, what, _)| names.contains(&name) && call.contains(what)) {
            Some(at) => met[at] += 1,
            None => {
                let [theirs, ours] = [theirs, ours].map(|line| line.unwrap_or("(nothing)"));
                let _ = writeln!(wrong, "  theirs {theirs}\n  here   {ours}");
            }
        }
    }
    for ((names, what, _), met) in known.iter().zip(&met) {
        if names.contains(&name) && *met == 0 {
            let _ = writeln!(wrong, "  no difference in '{what}', which is known to differ");
        }
    }
    (wrong, met.iter().sum())
}

fn replay_calls(name: &str, recorded: &str) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let mut lines = String::new();
    let mut ordinary = false;
    for call in list(name) {
        let user = if call.caller == Caller::Root { 0 } else { 65534 };
        if ordinary && user == 0 {
            lines.push_str("65534 0 00 open:\n");
        }
        ordinary = user != 0;
        let bytes: String = call.argument.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(lines, "{user} {} {bytes} {}", call.number, call.name);
    }
    std::fs::write(dir.path().join("list"), lines)?;
    let player = player(dir.path())?;
    let files = [dir.path().join("list"), own("calls.sh"), player].map(|file| file.display().to_string());
    let text = boot(name, dir.path(), &files, &["sh", "./calls.sh"])?;
    let here: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut wrong = String::new();
    let mut said = String::new();
    if let Some(text) = recording("isst", recorded) {
        // Drop the headings, the kernel's messages when it faulted, and everything after the calls.
        let theirs: Vec<String> = text
            .lines()
            .filter(|line| !["--", "    ", "rmmod"].iter().any(|begin| line.starts_with(begin)))
            .map(str::to_owned)
            .collect();
        let (lines, met) = differences(name, &theirs, &here, CALLS_KNOWN);
        said = format!("{} answers as recorded, {met} known to differ; ", theirs.len() - met);
        if !lines.is_empty() {
            wrong = format!("recorded and here:\n{lines}");
        }
    }
    let only_calls = |lines: &[String]| -> Vec<String> {
        let other =
            |line: &&String| !["modprobe", "node", "open:"].iter().any(|begin| line.starts_with(begin));
        lines.iter().filter(other).cloned().collect()
    };
    let ours = simulated(name);
    let (lines, met) = differences(name, &ours, &only_calls(&here), SIMULATED_KNOWN);
    if !lines.is_empty() {
        let _ = write!(wrong, "simulated and here:\n{lines}");
    }
    println!("{name}: {said}{} as the simulator's driver, {met} known to differ", ours.len() - met);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}

/// Builds the program that makes the calls.
fn player(dir: &Path) -> Result<PathBuf, String> {
    let program = dir.join("calls");
    match Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(own("calls.c")).output() {
        Ok(done) if done.status.success() => Ok(program),
        Ok(done) => Err(format!("cannot build calls.c: {}", String::from_utf8_lossy(&done.stderr))),
        Err(error) => Err(format!("no C compiler: {error}")),
    }
}

/// The program whose lines are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    /// The unmodified tool, in the version that was recorded.
    Tool,
    /// flyball's drop-in.
    DropIn,
}

/// Known differences from a recorded line: recordings, the command's words, part of the line, the
/// reason. Each must occur in each of these recordings.
type KnownLine = (&'static [&'static str], &'static str, &'static str, &'static str);

const LINES_KNOWN: &[KnownLine] = &[
    (WITH_BASE_FREQ, "core-power get-config -c 3", "scaling_min_freq:", GUARANTEED),
    (WITH_CHECKS, "core-power disable", "isst_pm_qos_config failed", UNDER),
    (WITH_CHECKS, "core-power disable", "disable:", UNDER),
    (&["gnr-2pkg-7.2"], "perf-profile info -l 0", "speed-select-core-power:", UNDER),
    (&["srf-7.2"], "turbo-mode disable", "scaling_max_freq:", OF_LEVEL),
];
/// Known differences of the drop-in only.
const DROP_IN_KNOWN: &[KnownLine] = &[(&["gnr-blocked-7.2"], "core-power assoc", "", SAID)];
const WITH_BASE_FREQ: &[&str] = &[
    "icx-7.2",
    "icx-6.12",
    "clx-7.2",
    "clx-6.12",
    "spr-7.2",
    "spr-6.12",
    "emr-7.2",
    "gnr-7.2",
    "gnr-6.12",
    "gnr-levels3-7.2",
    "gnr-levels3-6.12",
    "gnr-2pkg-7.2",
];
const WITH_CHECKS: &[&str] = &["gnr-7.2", "gnr-levels3-7.2", "gnr-2pkg-7.2"];
const GUARANTEED: &str = "base-freq moves the guaranteed frequency of each core here, which the tool's lower limits then \
    follow; the firmware recorded leaves it at the base frequency";
const OF_LEVEL: &str = "a level brings its guaranteed frequency along, 2400 MHz; the firmware recorded had registers of \
    another machine beside it, with 2000";
const SAID: &str = "a refused association is said; the tool is silent (docs/speed-select.md)";
const UNDER: &str = "turbo-freq is on: flyball's firmware then keeps classes of service, on which it stands; the one \
    recorded lets them go";

/// Splits the output by command: its words, and its lines.
fn blocks(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found = vec![(String::new(), Vec::new())];
    // The kernel's messages about the emulator's timers and the command line are not part of the
    // answer.
    let message = |line: &&str| !line.starts_with("calibrate_delay") && !line.contains("ommand line: ");
    for line in text.lines().filter(message) {
        match (line.strip_prefix("### "), found.last_mut()) {
            (Some(words), _) => found.push((words.to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line.trim_end().to_owned()),
            (None, None) => {}
        }
    }
    found
}

/// Lines that only one side has, in order: those that are not in the longest common subsequence.
fn unlike<'a>(theirs: &'a [String], here: &'a [String]) -> Vec<(bool, &'a str)> {
    let mut common = vec![vec![0u32; here.len() + 1]; theirs.len() + 1];
    for (i, a) in theirs.iter().enumerate().rev() {
        for (j, b) in here.iter().enumerate().rev() {
            common[i][j] =
                if a == b { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < theirs.len() || j < here.len() {
        if i < theirs.len() && j < here.len() && theirs[i] == here[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == here.len() || i < theirs.len() && common[i + 1][j] >= common[i][j + 1] {
            found.push((true, theirs[i].as_str()));
            i += 1;
        } else {
            found.push((false, here[j].as_str()));
            j += 1;
        }
    }
    found
}

fn replay_lines(name: &str, program: Program) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let recorded = recording("sst", name).ok_or("no recording")?;
    let mut files = vec![
        own("probe.sh").display().to_string(),
        shared("lab/probes/probe-sst-all.sh").ok_or("no probe-sst-all.sh")?.display().to_string(),
    ];
    match program {
        Program::Tool => files.push(format!("{}:t26", tool(kernel(name)).display())),
        Program::DropIn => {
            let folder = dir.path().join("fb");
            std::fs::create_dir(&folder)?;
            let built = &program::flyball();
            let stripped = Command::new("strip").arg("-o").arg(folder.join("flyball")).arg(built).status();
            if !stripped.is_ok_and(|status| status.success()) {
                std::fs::copy(built, folder.join("flyball"))?;
            }
            files.push(format!("{}:fb", folder.display()));
        }
    }
    let text = boot(name, dir.path(), &files, &["sh", "./probe.sh"])?;
    if let Some(folder) = std::env::var_os("FLYBALL_KEEP") {
        let kind = if program == Program::Tool { "tool" } else { "dropin" };
        std::fs::write(Path::new(&folder).join(format!("{kind}-{name}.txt")), &text)?;
    }
    let (mut theirs, mut here) = (blocks(&recorded), blocks(&text));
    // Some recordings were made with an earlier script that ran fewer commands as an ordinary user.
    if theirs.iter().any(|(words, _)| words.starts_with("nobody:")) {
        theirs.retain(|(words, _)| !words.starts_with("nobody:"));
        here.retain(|(words, _)| !words.starts_with("as nobody"));
    }
    let more = if program == Program::DropIn { DROP_IN_KNOWN } else { &[] };
    let all = [LINES_KNOWN, more].concat();
    let (mut wrong, mut lines, mut met) = (String::new(), 0, vec![0; all.len()]);
    for at in 0..theirs.len().max(here.len()) {
        let (Some((words, theirs)), Some((ours, here))) = (theirs.get_mut(at), here.get_mut(at)) else {
            wrong.push_str(&format!("{} commands recorded, {} here\n", theirs.len(), here.len()));
            break;
        };
        if words != ours {
            wrong.push_str(&format!("recorded '{words}', here '{ours}'\n"));
            break;
        }
        lines += theirs.len();
        if words.starts_with("as nobody") {
            // Both streams are in one, and the recorded guest's terminal mixed them in another
            // order than a pipe.
            theirs.sort();
            here.sort();
        }
        let mut said = String::new();
        for (recorded, line) in unlike(theirs, here) {
            let known = all.iter().position(|(names, command, part, _)| {
                names.contains(&name) && words.contains(command) && line.contains(part)
            });
            match known {
                Some(at) => met[at] += 1,
                None => {
                    let _ = writeln!(said, "  {} {line}", if recorded { "theirs" } else { "here  " });
                }
            }
        }
        if !said.is_empty() {
            wrong.push_str(&format!("{words}\n{said}"));
        }
    }
    for ((names, command, part, _), met) in all.iter().zip(&met) {
        if names.contains(&name) && *met == 0 {
            let _ = writeln!(wrong, "{command}: no difference in '{part}', which is known to differ");
        }
    }
    let known: usize = met.iter().sum();
    println!("{name}: {lines} lines of {} commands recorded, {known} lines known to differ", theirs.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let mut guests = Vec::new();
    let compiler = Command::new("cc").arg("--version").output().is_ok_and(|done| done.status.success());
    for (name, recorded) in CALLS {
        let missing = if !compiler {
            Some("no C compiler".to_owned())
        } else if machines::machine(&format!("isst-{name}")).is_none() {
            Some("the recorded machine is not here".to_owned())
        } else {
            None
        };
        guests.push(SuiteCase {
            name: format!("calls {name}"),
            kernel: kernel(name).to_owned(),
            everyday: *name == "icx-7.2",
            missing,
            test: Box::new(move || replay_calls(name, recorded)),
        });
    }
    let programs = [(Program::Tool, "tool"), (Program::DropIn, "drop-in")];
    for (name, (program, word)) in TOOL.iter().flat_map(|name| programs.map(|program| (name, program))) {
        // The output on 6.12 is that of an older version, which the drop-in does not imitate.
        if program == Program::DropIn && name.ends_with("6.12") {
            continue;
        }
        let missing = if recording("sst", name).is_none() {
            Some("no recording".to_owned())
        } else if machines::machine(&format!("isst-{name}")).is_none() {
            Some("the recorded machine is not here".to_owned())
        } else if program == Program::Tool && !tool(kernel(name)).join("intel-speed-select").is_file() {
            Some("the tool is not in the cache: lab/scripts/fetch-sst-tool".to_owned())
        } else {
            None
        };
        guests.push(SuiteCase {
            name: format!("{word} {name}"),
            kernel: kernel(name).to_owned(),
            everyday: false,
            missing,
            test: Box::new(move || replay_lines(name, program)),
        });
    }
    guests
}
