//! Speed Select in guests with the real drivers of all three kinds: the drop-in against the
//! unmodified tool, command by command, and what `flyball sst` does and undoes, judged by that tool
//! and by the drivers' own answers.
//!
//! Every day three guests run the list `speed-select/few`, one boot each. `$FLYBALL_SST_GUESTS`
//! names others (`icx-7.2,gnr-6.12`, `all`, or `none`), and these run the whole list,
//! `speed-select/commands`: some four minutes each. Kernels and the emulator are what
//! `flyball guest fetch` has put into the cache. The machines are flyball's own with the levels of
//! `speed-select/*.toml`. The unmodified intel-speed-select v1.26 with its C library is looked for
//! in `$FLYBALL_SST_TOOL`, then in the cache, where lab/scripts/fetch-sst-tool puts it; without it
//! the side-by-side is left out and the rest is judged by the drivers alone. What is not run is
//! counted.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
};

use flyball_guest::cache::Cache;
use flyball_silicon::MachineSpec;
use libtest_mimic::Failed;

use crate::{
    guest::{self, SuiteCase},
    program,
};
use flyball_testing::skip;

/// A guest: a class of registers on a kernel.
struct Guest {
    name: &'static str,
    kernel: &'static str,
    class: Class,
    /// What is replaced in the machine's file.
    replaced: &'static [(&'static str, &'static str)],
    cpus: u32,
    /// Hardware feedback: the kernel tells of changes (kernels from 6.15 can be told to believe in
    /// the feature bits).
    feedback: bool,
}

/// Where the registers of Speed Select are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// In MSRs or PCI functions, behind a mailbox.
    Mailbox,
    /// In a PCI function's memory.
    Tpmi,
}

const fn mailbox(
    name: &'static str,
    kernel: &'static str,
    replaced: &'static [(&'static str, &'static str)],
) -> Guest {
    Guest { name, kernel, class: Class::Mailbox, replaced, cpus: 8, feedback: false }
}

const fn tpmi(
    name: &'static str,
    kernel: &'static str,
    replaced: &'static [(&'static str, &'static str)],
) -> Guest {
    Guest { name, kernel, class: Class::Tpmi, replaced, cpus: 6, feedback: false }
}

const PCI: (&str, &str) = ("class = \"mailbox-msr\"", "class = \"mailbox-pci\"");
const ICE_LAKE: &[(&str, &str)] = &[PCI, ("model = 85", "model = 106")];
const SAPPHIRE_RAPIDS: &[(&str, &str)] = &[PCI, ("model = 85", "model = 143")];
const EMERALD_RAPIDS: &[(&str, &str)] = &[PCI, ("model = 85", "model = 207")];
/// As most machines are: nobody may change the level.
const LOCKED: &[(&str, &str)] = &[("version = 2", "version = 2\nlocked = true")];
/// Firmware that takes no writes, and says so.
const BLOCKED: &[(&str, &str)] = &[("version = 2", "version = 2\nwrite_blocked = true")];
const TWO: &[(&str, &str)] = &[("packages = 1", "packages = 2")];
/// Levels and nothing else, and domains without registers: what kernel 7.2 faults at.
const SIERRA_FOREST: &[(&str, &str)] = &[
    ("model = 173", "model = 175"),
    ("version = 2", "version = 2\nabsent = [1, 2]"),
    ("\nbf = ", "\n# "),
    ("\ntf = ", "\n# "),
];

const GUESTS: &[Guest] = &[
    mailbox("clx-6.12", "6.12", &[]),
    Guest { feedback: true, ..mailbox("clx-7.2", "7.2", &[]) },
    mailbox("icx-6.12", "6.12", ICE_LAKE),
    mailbox("icx-7.2", "7.2", ICE_LAKE),
    mailbox("spr-6.12", "6.12", SAPPHIRE_RAPIDS),
    mailbox("spr-7.2", "7.2", SAPPHIRE_RAPIDS),
    mailbox("emr-6.12", "6.12", EMERALD_RAPIDS),
    mailbox("emr-7.2", "7.2", EMERALD_RAPIDS),
    tpmi("gnr-6.12", "6.12", &[]),
    tpmi("gnr-6.18", "6.18", &[]),
    tpmi("gnr-7.2", "7.2", &[]),
    tpmi("gnr-locked-6.12", "6.12", LOCKED),
    tpmi("gnr-locked-7.2", "7.2", LOCKED),
    tpmi("gnr-blocked-7.2", "7.2", BLOCKED),
    Guest { cpus: 12, ..tpmi("gnr-two-7.2", "7.2", TWO) },
    tpmi("srf-6.12", "6.12", SIERRA_FOREST),
    tpmi("srf-7.2", "7.2", SIERRA_FOREST),
];

/// What runs where nobody says otherwise: each kind of registers, both kernels.
const EVERY_DAY: &[&str] = &["clx-7.2", "icx-6.12", "gnr-7.2"];

/// What the guests need.
struct Laboratory {
    tool: Option<PathBuf>,
    /// Whether the whole list runs.
    whole: bool,
    folder: tempfile::TempDir,
}

fn laboratory(whole: bool) -> Result<Laboratory, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let raw =
        Command::new("cc").args(["-O1", "-o"]).arg(folder.path().join("raw")).arg(own("raw.c")).output();
    match raw {
        Ok(done) if done.status.success() => {}
        Ok(done) => return Err(format!("cannot build raw.c: {}", String::from_utf8_lossy(&done.stderr))),
        Err(error) => return Err(format!("no C compiler: {error}")),
    }
    let tool = std::env::var_os("FLYBALL_SST_TOOL").map_or_else(
        || Cache::of_user().expect("the cache is this user's own").root().join("sst-tool"),
        PathBuf::from,
    );
    let tool = Some(tool).filter(|tool| tool.join("intel-speed-select").is_file());
    if tool.is_none() {
        skip(
            1,
            "side-by-side with the unmodified tool",
            "it is not in the cache (lab/scripts/fetch-sst-tool)",
        );
    }
    Ok(Laboratory { tool, whole, folder })
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/speed-select").join(name)
}

impl Laboratory {
    /// flyball, without what only a debugger wants.
    fn program(&self) -> Result<PathBuf, Failed> {
        let folder = self.folder.path().join("fb");
        let program = folder.join("flyball");
        if !program.exists() {
            std::fs::create_dir_all(&folder)?;
            let built = &program::flyball();
            let stripped = Command::new("strip").arg("-o").arg(&program).arg(built).status();
            if !stripped.is_ok_and(|status| status.success()) {
                std::fs::copy(built, &program)?;
            }
        }
        Ok(folder)
    }

    /// The machine's file: one of flyball's own, with the levels of this folder.
    fn machine(&self, guest: &Guest) -> Result<PathBuf, Failed> {
        let (builtin, levels) = match guest.class {
            Class::Mailbox => ("msr-mailbox", "mailbox.toml"),
            Class::Tpmi => ("tpmi-small", "tpmi.toml"),
        };
        let text = MachineSpec::builtin_text(builtin).ok_or("no such machine")?;
        let (head, _) = text.split_once("[sst]").ok_or("the machine has no Speed Select")?;
        let mut toml = format!("{head}{}", std::fs::read_to_string(own(levels))?);
        // Two cores for each of three dies, one thread each, so that a guest has few CPUs and all
        // kinds of domains.
        let smaller: &[(&str, &str)] = match guest.class {
            // Of a frequency of seven digits the unmodified tool makes one that the kernel refuses
            // (docs/speed-select.md).
            Class::Mailbox => &[
                ("min_mhz = 1000", "min_mhz = 800"),
                ("efficient_mhz = 1000", "efficient_mhz = 800"),
                ("lowest = 10, efficient = 10", "lowest = 8, efficient = 8"),
                ("volts = [[1000, 690]", "volts = [[800, 690]"),
            ],
            Class::Tpmi => &[
                ("dies = 2", "dies = 3"),
                ("count = 8", "count = 2"),
                ("threads = 2", "threads = 1"),
                ("better = [[0, 0.97], [4, 0.97]]", "better = [[1, 0.97]]"),
            ],
        };
        for (from, to) in smaller.iter().chain(guest.replaced) {
            if !toml.contains(from) {
                return Err(format!("no '{from}' in {builtin}").into());
            }
            toml = toml.replace(from, to);
        }
        if guest.feedback {
            // Firmware that tells what CPUs can do.
            toml = toml.replace("has_epp = true", "has_epp = true\nfeedback = true");
        }
        let path = self.folder.path().join(format!("{}.toml", guest.name));
        std::fs::write(&path, toml)?;
        Ok(path)
    }

    fn boot(&self, guest: &Guest) -> Result<(String, String), Failed> {
        let mut options: Vec<String> = vec![self.machine(guest)?.display().to_string()];
        let mut option = |name: &str, value: String| options.extend([name.to_owned(), value]);
        option("--cpus", guest.cpus.to_string());
        // For a guest that hangs; on a busy host one takes ten times as long as on an idle one.
        option("--timeout", if self.whole { "3600" } else { "1800" }.to_owned());
        if let Some(tool) = &self.tool {
            option("--file", format!("{}:t26", tool.display()));
        }
        option("--file", format!("{}:fb", self.program()?.display()));
        option("--file", self.folder.path().join("raw").display().to_string());
        for file in ["common.sh", "guest.sh", "side-by-side.sh", "flyball-sst.sh", "commands", "few"] {
            option("--file", own(file).display().to_string());
        }
        option("--modules", "?msr".to_owned());
        if guest.feedback {
            option("--file", own("events.sh").display().to_string());
            // The emulator does not say that its processor has thermal interrupts; the kernel is
            // told to believe it.
            option("--append", "setcpuid=acpi,tm".to_owned());
        }
        options.push("--faults".to_owned());
        let words = if self.whole { ["commands", ""] } else { ["few", "few"] };
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let output = guest::run(guest.kernel, &options, &["sh", "./guest.sh", words[0], words[1]])?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&output.stdout), text(&output.stderr)))
    }
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

/// Documented differences that show in these commands: numbers that do not fit, which the tool lets
/// wrap round or spill.
const ON_PURPOSE: &[&str] = &[
    "-c 65537 core-power get-assoc",
    "perf-profile info -l 4294967296",
    "perf-profile set-config-level -l 256",
];

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
        skip(1, "side-by-side with the unmodified tool", "it is not v1.26");
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

fn run(laboratory: &Laboratory, guest: &Guest) -> Result<(), Failed> {
    let (text, errors) = laboratory.boot(guest)?;
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
        return Err(wrong.into());
    }
    if !ended || good < 5 {
        let tail: Vec<&str> = errors.lines().rev().take(30).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        let last = text.lines().last().unwrap_or_default();
        return Err(format!("{good} checks held; last line '{last}'\n--- stderr\n{tail}").into());
    }
    eprintln!("{}: {good} checks of flyball sst held", guest.name);
    Ok(())
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let asked = std::env::var("FLYBALL_SST_GUESTS").ok().filter(|names| !names.trim().is_empty());
    let names: Vec<String> = match &asked {
        Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
        None => EVERY_DAY.iter().map(|&name| name.to_owned()).collect(),
    };
    for name in names.iter().filter(|name| !matches!(name.as_str(), "all" | "none")) {
        assert!(GUESTS.iter().any(|guest| guest.name == name), "FLYBALL_SST_GUESTS: no guest '{name}'");
    }
    let chosen = |guest: &&Guest| names.iter().any(|name| name == "all" || name == guest.name);
    let whole = asked.is_some();
    // Built by the first boot that needs it, removed after the last.
    let shared = Arc::new(OnceLock::new());
    let compiler = Command::new("cc").arg("--version").output().is_ok_and(|done| done.status.success());
    let guests = GUESTS.iter().filter(chosen).map(|guest| {
        let shared = Arc::clone(&shared);
        SuiteCase {
            name: guest.name.to_owned(),
            kernel: guest.kernel.to_owned(),
            everyday: true,
            missing: (!compiler).then(|| "no C compiler".to_owned()),
            test: Box::new(move || {
                let laboratory: &Result<Laboratory, String> = shared.get_or_init(|| laboratory(whole));
                run(laboratory.as_ref()?, guest)
            }),
        }
    });
    guests.collect()
}
