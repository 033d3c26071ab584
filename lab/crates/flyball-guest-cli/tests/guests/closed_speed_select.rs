//! Speed Select in the closed loop: settings that flyball makes through the kernel's real drivers,
//! for each of the three kinds of registers, change how fast a program with a known number of
//! instructions runs.
//!
//! There is one boot for each kind. Kernels and the emulator come from the cache of `flyball guest
//! fetch`; missing ones are skipped and counted. By default only TPMI is booted;
//! `FLYBALL_GUEST_TESTS=all` boots all.

use std::{fs, os::unix::fs::PermissionsExt};

use flyball_guest::fixed_loop;
use flyball_silicon::MachineSpec;
use libtest_mimic::Failed;

use crate::{
    guest::{self, SuiteCase},
    program,
};

struct Machine {
    name: &'static str,
    kernel: &'static str,
    /// The machine, and the text to replace in its file.
    builtin: &'static str,
    replaced: &'static [(&'static str, &'static str)],
    /// The name of the interface that the drivers must report.
    interface: &'static str,
    /// A CPU that base-freq favours, and another CPU of its power domain.
    favoured: u32,
    other: u32,
    /// A level other than level 0.
    level: u32,
    /// Frequencies at which the loop must run, MHz.
    expected: &'static [(&'static str, f64)],
    everyday: bool,
}

const TPMI: &[(&str, f64)] = &[
    ("base.favoured", 2000.0),
    ("base.other", 2000.0),
    ("bf.favoured", 2400.0),
    ("bf.other", 1800.0),
    ("level.favoured", 2300.0),
    ("back.other", 2000.0),
    ("turbo.favoured", 3900.0),
    ("clos.favoured", 3900.0),
    ("clos.other", 1500.0),
    ("tf.favoured", 3900.0),
    ("tf.other", 2600.0),
    ("end.other", 3900.0),
];

/// The Speed Select guide's machine: levels 0 and 4, base-freq 3000 and 2400.
const GUIDE: &[(&str, f64)] = &[
    ("base.favoured", 2600.0),
    ("base.other", 2600.0),
    ("bf.favoured", 3000.0),
    ("bf.other", 2400.0),
    ("level.favoured", 2800.0),
    ("back.other", 2600.0),
    ("clos.other", 1500.0),
    ("tf.other", 2600.0),
];

const MACHINES: &[Machine] = &[
    Machine {
        name: "tpmi, 7.2",
        kernel: "7.2",
        builtin: "tpmi-small",
        replaced: &[],
        interface: "TPMI",
        favoured: 0,
        other: 1,
        level: 1,
        expected: TPMI,
        everyday: true,
    },
    Machine {
        name: "tpmi, 6.12",
        kernel: "6.12",
        builtin: "tpmi-small",
        replaced: &[],
        interface: "TPMI",
        favoured: 0,
        other: 1,
        level: 1,
        expected: TPMI,
        everyday: false,
    },
    Machine {
        name: "mailbox in PCI, 7.2",
        kernel: "7.2",
        builtin: "sst-guide",
        replaced: &[],
        interface: "mailbox and MMIO",
        favoured: 3,
        other: 0,
        level: 4,
        expected: GUIDE,
        everyday: false,
    },
    Machine {
        name: "mailbox in MSRs, 6.12",
        kernel: "6.12",
        builtin: "sst-guide",
        // The same levels on a Cascade Lake.
        replaced: &[
            ("class = \"mailbox-pci\"", "class = \"mailbox-msr\""),
            ("model = 106", "model = 85"),
            ("stepping = 6", "stepping = 7"),
        ],
        interface: "mailbox",
        favoured: 3,
        other: 0,
        level: 4,
        expected: GUIDE,
        everyday: false,
    },
];

/// Iterations of the loop, each of ten instructions. Starting the program takes a few per cent of
/// their time, but always the same number of cycles. So times are compared with the first run's.
const TURNS: u32 = 5_000_000;

fn boot(machine: &Machine) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let mut toml = MachineSpec::builtin_text(machine.builtin).ok_or("no such machine")?.to_owned();
    for (from, to) in machine.replaced {
        if !toml.contains(from) {
            return Err(format!("no '{from}' in {}", machine.builtin).into());
        }
        toml = toml.replace(from, to);
    }
    let file = dir.path().join("machine.toml");
    fs::write(&file, toml)?;
    let program = dir.path().join("loop");
    fs::write(&program, fixed_loop::program(TURNS))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let (file, program) = (file.display().to_string(), program.display().to_string());
    let flyball = format!("{}:flyball", program::flyball());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/speed-select.sh");
    let options =
        [&file, "--closed", "--cpus", "4", "--file", &flyball, "--file", &program, "--file", script];
    let (favoured, other, level) =
        (machine.favoured.to_string(), machine.other.to_string(), machine.level.to_string());
    let command = ["sh", "./speed-select.sh", &favoured, &other, &level];
    let output = guest::run(machine.kernel, &options, &command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let all = || format!("{text}\n--- stderr\n{}", String::from_utf8_lossy(&output.stderr));
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| format!("no {name} in {}", all()))
    };
    if !output.status.success() || !value("interface")?.starts_with(machine.interface) {
        return Err(format!("{}\n{}", output.status, all()).into());
    }
    let ns = |name: &str| Ok::<f64, Failed>(value(name)?.parse()?);
    let (first, base) = machine.expected[0];
    let cycles = ns(first)? * base;
    for (name, mhz) in machine.expected {
        let ran = cycles / ns(name)?;
        // (The shell starts the program on the CPU that it is running on.)
        if !(0.96..1.04).contains(&(ran / mhz)) {
            return Err(format!("{name}: ran at {ran:.0} MHz, wanted {mhz}\n{}", all()).into());
        }
    }
    Ok(())
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let suited = |machine: &'static Machine| SuiteCase {
        name: machine.name.to_owned(),
        kernel: machine.kernel.to_owned(),
        everyday: machine.everyday,
        missing: None,
        test: Box::new(move || boot(machine)),
    };
    MACHINES.iter().map(suited).collect()
}
