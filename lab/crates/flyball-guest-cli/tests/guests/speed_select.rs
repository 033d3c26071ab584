//! Speed Select in guests with the real drivers of all three kinds: the drop-in is compared with
//! the unmodified tool command by command, and the changes of `flyball sst` and their restoration
//! are checked with that tool and with the drivers' own answers.
//!
//! By default three guests run the list `speed-select/few`, one boot each. `$FLYBALL_SST_GUESTS`
//! names others (`icx-7.2,gnr-6.12`, `all`, or `none`), and these run the whole list,
//! `speed-select/commands`, in about four minutes each. Kernels and the emulator come from the
//! cache of `flyball guest fetch`. The machines are flyball's own with the levels of
//! `speed-select/*.toml`. The unmodified intel-speed-select v1.26 with its C library is searched
//! for in `$FLYBALL_SST_TOOL`, then in the cache, where lab/scripts/fetch-sst-tool puts it. Without
//! the tool, the comparison with it is skipped and only the drivers' answers are checked. Skipped
//! guests and checks are counted.

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
    /// Text to replace in the machine's file.
    replaced: &'static [(&'static str, &'static str)],
    cpus: u32,
    /// Hardware feedback: the kernel reports changes (kernels from 6.15 on can be told to trust the
    /// feature bits).
    feedback: bool,
}

/// Location of Speed Select's registers.
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
/// Nobody may change the level, as on most machines.
const LOCKED: &[(&str, &str)] = &[("version = 2", "version = 2\nlocked = true")];
/// Firmware that rejects writes, and reports this.
const BLOCKED: &[(&str, &str)] = &[("version = 2", "version = 2\nwrite_blocked = true")];
const TWO: &[(&str, &str)] = &[("packages = 1", "packages = 2")];
/// Only levels, and domains without registers: kernel 7.2 faults on these.
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

/// The default guests: each kind of registers, both kernels.
const EVERY_DAY: &[&str] = &["clx-7.2", "icx-6.12", "gnr-7.2"];

/// The files and settings that the guests need.
struct Laboratory {
    tool: Option<PathBuf>,
    /// Whether to run the whole list.
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
    /// flyball, without debug information.
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
        // Two cores for each of three dies, with one thread each, so that a guest has few CPUs but
        // all kinds of domains.
        let smaller: &[(&str, &str)] = match guest.class {
            // From a frequency of seven digits, the unmodified tool makes one that the kernel
            // rejects (docs/speed-select.md).
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
            // Firmware that reports what each CPU can do.
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
        // Stops a guest that hangs. On a busy host a guest takes ten times as long as on an idle
        // one.
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
            // The emulator does not report that its processor has thermal interrupts, so the kernel
            // is told to assume it.
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

/// The results of each command. Help texts are flyball's own, so the comparison only checks that
/// there is one.
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

/// Documented differences in these commands: numbers that do not fit, which the tool lets wrap
/// around or spill into other fields.
const ON_PURPOSE: &[&str] = &[
    "-c 65537 core-power get-assoc",
    "perf-profile info -l 4294967296",
    "perf-profile set-config-level -l 256",
];

/// Describes the differences between the two programs.
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
        // Another version has other bytes, so a comparison with it is meaningless.
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
        // The output of a failed check follows it.
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
    // Built by the first boot that needs it, and removed after the last.
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
