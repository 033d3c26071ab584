//! Speed Select in guests with the real drivers of all three kinds: the drop-in against the unmodified tool, command by
//! command, and what `flyball sst` does and undoes, judged by that tool and by the drivers' own answers.
//!
//! Every day three guests run the list `speed-select/few`, one boot each. `$FLYBALL_SST_GUESTS` names others
//! (`icx-7.2,gnr-6.12`, `all`, or `none`), and these run the whole list, `speed-select/commands`: some four minutes
//! each. Needs the laboratory (`$FLYBALL_SHARED/lab` or `../shared/lab`) with its kernels; the register blocks
//! are those of two recorded machines. The unmodified intel-speed-select v1.26 with its C library is
//! looked for in `$FLYBALL_SST_TOOL`, then in the laboratory's cache (`sst-tool`, where scripts/test fetches it); without it
//! the side-by-side is left out and the rest is judged by the drivers alone. What is not run is counted.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
};

use libtest_mimic::{Arguments, Failed, Trial};

/// A guest: a class of registers on a kernel.
struct Guest {
    name: &'static str,
    /// The laboratory's name of the class.
    class: &'static str,
    kernel: &'static str,
    /// The recorded machine whose registers it has, and whether the first levels are made changeable.
    registers: Option<(&'static str, bool)>,
    /// Two packages.
    two: bool,
    /// Hardware feedback: the kernel tells of changes (kernels from 6.15 can be told to believe in the feature bits).
    feedback: bool,
}

const fn mailbox(name: &'static str, class: &'static str, kernel: &'static str) -> Guest {
    Guest { name, class, kernel, registers: None, two: false, feedback: false }
}

const fn tpmi(
    name: &'static str,
    class: &'static str,
    kernel: &'static str,
    machine: &'static str,
    levels: bool,
) -> Guest {
    Guest { registers: Some((machine, levels)), ..mailbox(name, class, kernel) }
}

const GUESTS: &[Guest] = &[
    mailbox("clx-6.12", "clx", "6.12"),
    Guest { feedback: true, ..mailbox("clx-7.2", "clx", "7.2") },
    mailbox("icx-6.12", "icx", "6.12"),
    mailbox("icx-7.2", "icx", "7.2"),
    mailbox("spr-6.12", "spr", "6.12"),
    mailbox("spr-7.2", "spr", "7.2"),
    mailbox("emr-6.12", "emr", "6.12"),
    mailbox("emr-7.2", "emr", "7.2"),
    tpmi("gnr-6.12", "gnr", "6.12", "gnr0", true),
    tpmi("gnr-7.2", "gnr", "7.2", "gnr0", true),
    // As recorded: one level, locked.
    tpmi("gnr-locked-6.12", "gnr", "6.12", "gnr0", false),
    tpmi("gnr-locked-7.2", "gnr", "7.2", "gnr0", false),
    Guest { two: true, ..tpmi("gnr-two-7.2", "gnr", "7.2", "gnr0", true) },
    // Domains 1 and 2 have no registers: the one that kernel 7.2 faults at.
    tpmi("srf-6.12", "srf", "6.12", "srf8", false),
    tpmi("srf-7.2", "srf", "7.2", "srf8", false),
];

/// What runs where nobody says otherwise: each kind of registers, both kernels.
const EVERY_DAY: &[&str] = &["clx-7.2", "icx-6.12", "gnr-7.2"];

/// What the guests need.
struct Laboratory {
    script: PathBuf,
    cache: PathBuf,
    machines: PathBuf,
    tool: Option<PathBuf>,
    /// Whether the whole list runs.
    whole: bool,
    folder: tempfile::TempDir,
}

fn laboratory(whole: bool) -> Result<Laboratory, String> {
    let shared = std::env::var_os("FLYBALL_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let script = shared.join("lab/sst/run-sst-guest.sh");
    if !script.is_file() {
        return Err(format!("no laboratory at {}", script.display()));
    }
    let cache = std::env::var_os("LAB_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/cpufreq-lab")));
    let cache =
        cache.filter(|cache| cache.join("kernels").is_dir()).ok_or("the laboratory has no kernels yet")?;
    if !cache.join("qemu/qemu").exists() {
        return Err("the emulator with registers is not fetched".to_owned());
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    // Linked statically, so that any guest runs it. Whoever builds flyball has a linker, but perhaps no static libc.
    let raw = Command::new("cc")
        .args(["-static", "-O1", "-o"])
        .arg(folder.path().join("raw"))
        .arg(own("raw.c"))
        .output();
    match raw {
        Ok(done) if done.status.success() => {}
        Ok(done) => return Err(format!("cannot build raw.c: {}", String::from_utf8_lossy(&done.stderr))),
        Err(error) => return Err(format!("no C compiler: {error}")),
    }
    let tool = std::env::var_os("FLYBALL_SST_TOOL").map_or_else(|| cache.join("sst-tool"), PathBuf::from);
    let tool = Some(tool).filter(|tool| tool.join("intel-speed-select").is_file());
    Ok(Laboratory { script, cache, machines: shared.join("machines"), tool, whole, folder })
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/speed-select").join(name)
}

impl Laboratory {
    /// The register blocks of a recorded machine, as debugfs showed them: plain files, which need no unpacking.
    fn registers(&self, machine: &str) -> Result<PathBuf, String> {
        let folder = self.machines.join(machine);
        let entries = std::fs::read_dir(folder.join("sys/kernel/debug")).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.join("tpmi-id-05").is_dir()).collect();
        found.sort();
        found.into_iter().next().ok_or_else(|| format!("{machine} has no register blocks of Speed Select"))
    }

    /// flyball, without what only a debugger wants, beside the libraries that it needs.
    fn programs(&self) -> Result<PathBuf, Failed> {
        let folder = self.folder.path().join("fb");
        if folder.exists() {
            return Ok(folder);
        }
        std::fs::create_dir(&folder)?;
        let program = folder.join("flyball");
        let built = env!("CARGO_BIN_EXE_flyball");
        if !Command::new("strip")
            .arg("-o")
            .arg(&program)
            .arg(built)
            .status()
            .is_ok_and(|status| status.success())
        {
            std::fs::copy(built, &program)?;
        }
        // The guest has a loader, and not every library.
        let needed = Command::new("ldd").arg(built).output()?;
        for line in String::from_utf8_lossy(&needed.stdout).lines() {
            if let Some((name, path)) = line.split_once(" => ") {
                let path = path.split_whitespace().next().unwrap_or_default();
                if path.starts_with('/') {
                    std::fs::copy(path, folder.join(name.trim()))?;
                }
            }
        }
        Ok(folder)
    }

    /// The registers of the class `clx`, with hardware feedback (CPUID leaf 6, MSRs 0x1b1, 0x17d0 and 0x17d1).
    fn with_feedback(&self) -> Result<PathBuf, Failed> {
        let folder = self.script.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let text = std::fs::read_to_string(folder.join("msr/intel-sst.conf"))?;
        let mut found = 0;
        let mut lines = String::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["cpuid", "6", "*", _, ebx, ecx, _] => {
                    // EAX bit 19; EDX: performance and efficiency, one page, row 0.
                    lines.push_str(&format!("cpuid 6 * 0x00080ec7 {ebx} {ecx} 3\n"));
                    found += 1;
                }
                ["ro", "0x1b1", "*", _] => {
                    // Bit 26: the table is new. It stays set; the time stamp tells.
                    lines.push_str(
                        "ro 0x1b1 * 0x8c370000\npkg 0x17d0 * 0\npkg 0x17d1 * 0\nrw 0x1b2 * 0\nrw 0x19b * 0\n",
                    );
                    found += 1;
                }
                _ => lines.push_str(&format!("{line}\n")),
            }
        }
        if found != 2 {
            return Err("the laboratory's registers of class clx are not as they were".into());
        }
        let path = self.folder.path().join("feedback.conf");
        std::fs::write(&path, lines)?;
        Ok(path)
    }

    fn boot(&self, guest: &Guest) -> Result<(String, String), Failed> {
        let mut command = Command::new("nice");
        command.args(["-n", "5"]).arg(&self.script).env("LAB_CACHE", &self.cache).env_remove("SST_DUMP2");
        if let Some((machine, levels)) = guest.registers {
            let registers = self.registers(machine)?;
            if guest.two {
                command.env("SST_DUMP2", &registers);
            }
            command.env("SST_DUMP", registers).env("SST_TPMI", if levels { "levels=3" } else { "" });
        }
        // For a guest that hangs; on a busy host one takes ten times as long as on an idle one.
        let limit = if self.whole { "3600" } else { "1200" };
        command.args([guest.class, "--kernel", guest.kernel, "--timeout", limit]);
        if let Some(tool) = &self.tool {
            command.arg("--file").arg(format!("{}:t26", tool.display()));
        }
        command.arg("--file").arg(format!("{}:fb", self.programs()?.display()));
        command.arg("--file").arg(self.folder.path().join("raw"));
        for file in ["common.sh", "side-by-side.sh", "flyball-sst.sh", "commands", "few"] {
            command.arg("--file").arg(own(file));
        }
        if guest.feedback {
            let asks = self.folder.path().join("ask");
            std::fs::create_dir_all(&asks)?;
            command.arg("--file").arg(asks).arg("--file").arg(own("events.sh"));
            command.arg("--msrs").arg(self.with_feedback()?).args(["--setcpuid", "acpi,tm"]);
            command.args(["--append", "iomem=relaxed", "--host"]);
            command.arg(format!("exec bash '{}'", own("feedback.sh").display()));
        }
        command.arg("--").arg(own("guest.sh"));
        command.args(if self.whole { ["commands", ""] } else { ["few", "few"] });
        let output = command.output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&output.stdout), text(&output.stderr)))
    }
}

/// Why a guest is no success.
enum Stopped {
    /// It did not come to the end, and nothing was wrong until then: emulators do that now and then.
    Emulator(String),
    /// A check failed.
    Check(String),
}

/// What each command came to. Help texts are our own words, and only that there is one counts.
fn records(part: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for block in part.split("\n### ").skip(1) {
        let (words, text) = block.split_once('\n').unwrap_or((block, ""));
        let last = words.split_whitespace().last().unwrap_or_default();
        let mut text = text.to_owned();
        if matches!(last, "-h" | "--help") {
            let lines = text.lines().filter(|line| line.starts_with('[') || line.starts_with("Executing"));
            text = lines.map(|line| format!("{line}\n")).collect();
        }
        if let Some(at) = text.find("\nUsage:\n") {
            let after = text[at..].find("\n[stderr]").map_or(text.len(), |end| at + end);
            text.replace_range(at..after, "\n(usage)");
        }
        found.push((words.to_owned(), text));
    }
    found
}

/// Documented differences that show in these commands: numbers that do not fit, which the tool lets wrap round.
const ON_PURPOSE: &[&str] = &["-c 65537 core-power get-assoc", "perf-profile info -l 4294967296"];

/// The differences between the two programs, in words.
fn side_by_side(text: &str) -> Result<usize, String> {
    let part = |name: &str| {
        let at = text.find(&format!("##### {name}\n")).map(|at| at + name.len() + 6)?;
        Some(&text[at..at + text[at..].find("\n##### ")?])
    };
    let (Some(tool), Some(ours)) = (part("tool"), part("dropin")) else {
        return Err("the guest did not come to the end of the list".to_owned());
    };
    let (tool, ours) = (records(tool), records(ours));
    if !tool.iter().any(|(_, text)| text.contains("Version v1.26")) {
        // Another version has other bytes: a side-by-side with it says nothing.
        eprintln!("skipped 1 side-by-side: the tool is not v1.26");
        return Ok(0);
    }
    if tool.len() < 20 || tool.len() != ours.len() {
        return Err(format!("{} commands by the tool, {} by the drop-in", tool.len(), ours.len()));
    }
    let mut wrong = String::new();
    for ((words, tool), (_, ours)) in tool.iter().zip(&ours) {
        if tool != ours && !ON_PURPOSE.contains(&words.as_str()) {
            wrong.push_str(&format!("=== {words}\n--- tool\n{tool}--- drop-in\n{ours}"));
        }
    }
    if wrong.is_empty() { Ok(tool.len()) } else { Err(wrong) }
}

fn attempt(laboratory: &Laboratory, guest: &Guest) -> Result<(), Stopped> {
    let (text, errors) = laboratory.boot(guest).map_err(|failed| {
        Stopped::Check(failed.message().unwrap_or("the guest cannot be started").to_owned())
    })?;
    let mut wrong = String::new();
    let ended = text.lines().any(|line| line == "##### end of the checks");
    if laboratory.tool.is_some() && text.contains("##### end of the list") {
        match side_by_side(&text) {
            Ok(commands) => eprintln!("{}: {commands} commands of the tool compared", guest.name),
            Err(words) => wrong.push_str(&words),
        }
    }
    let checks = text.split("##### end of the list").last().unwrap_or_default();
    let mut bad = false;
    for line in checks.lines() {
        // What a failed check printed follows it.
        bad = !line.starts_with("ok ") && (bad || line.starts_with("not ok "));
        if bad {
            wrong.push_str(line);
            wrong.push('\n');
        }
    }
    let good = checks.lines().filter(|line| line.starts_with("ok ")).count();
    if !wrong.is_empty() {
        return Err(Stopped::Check(wrong));
    }
    if !ended || good < 5 {
        let tail: Vec<&str> = errors.lines().rev().take(30).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        let last = text.lines().last().unwrap_or_default();
        return Err(Stopped::Emulator(format!("{good} checks held; last line '{last}'\n--- stderr\n{tail}")));
    }
    eprintln!("{}: {good} checks of flyball sst held", guest.name);
    Ok(())
}

/// Boots a guest, once more where the emulator stopped in the middle with nothing wrong.
fn run(laboratory: &Laboratory, guest: &Guest) -> Result<(), Failed> {
    match attempt(laboratory, guest) {
        Err(Stopped::Emulator(first)) => {
            eprintln!("{}: the guest stopped in the middle, booted again: {first}", guest.name);
            attempt(laboratory, guest).map_err(|stopped| match stopped {
                Stopped::Emulator(words) | Stopped::Check(words) => words.into(),
            })
        }
        Err(Stopped::Check(words)) => Err(words.into()),
        Ok(()) => Ok(()),
    }
}

fn has_kernel(cache: &Path, version: &str) -> bool {
    let kernels = std::fs::read_dir(cache.join("kernels")).into_iter().flatten().flatten();
    kernels.map(|entry| entry.file_name().to_string_lossy().into_owned()).any(|name| {
        name.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', '-']))
    })
}

fn main() -> ExitCode {
    // One emulator at a time: each wants a core of its own.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let asked = std::env::var("FLYBALL_SST_GUESTS").ok().filter(|names| !names.trim().is_empty());
    let names: Vec<String> = match &asked {
        Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
        None => EVERY_DAY.iter().map(|&name| name.to_owned()).collect(),
    };
    for name in names.iter().filter(|name| !matches!(name.as_str(), "all" | "none")) {
        assert!(GUESTS.iter().any(|guest| guest.name == name), "FLYBALL_SST_GUESTS: no guest '{name}'");
    }
    let chosen = |guest: &Guest| names.iter().any(|name| name == "all" || name == guest.name);
    let laboratory = laboratory(asked.is_some()).map(Arc::new);
    let mut skipped = Vec::new();
    if laboratory.as_ref().is_ok_and(|laboratory| laboratory.tool.is_none()) {
        eprintln!(
            "skipped: the side-by-side with the unmodified tool, which is not in the laboratory's cache"
        );
    }
    let trials = GUESTS
        .iter()
        .filter(|guest| chosen(guest))
        .map(|guest| {
            let missing = match &laboratory {
                Err(why) => Some(why.clone()),
                Ok(laboratory) if !has_kernel(&laboratory.cache, guest.kernel) => {
                    Some(format!("no kernel {}", guest.kernel))
                }
                Ok(_) => None,
            };
            let ignored = missing.is_some();
            if let Some(why) = missing {
                skipped.push(format!("{} ({why})", guest.name));
            }
            let laboratory = laboratory.as_ref().ok().cloned();
            Trial::test(guest.name, move || match &laboratory {
                Some(laboratory) => run(laboratory, guest),
                None => Err("no laboratory".into()),
            })
            .with_ignored_flag(ignored)
        })
        .collect::<Vec<_>>();
    if !skipped.is_empty() {
        eprintln!("skipped: {} of {} guests: {}", skipped.len(), trials.len(), skipped.join(", "));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
