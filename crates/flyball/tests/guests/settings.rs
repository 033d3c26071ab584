//! Real kernels with real cpufreq drivers, in an emulator: settings, restore, crashes, judged from outside.
//!
//! One boot per kernel and driver runs `settings.sh`, which changes settings with flyball and looks at the
//! result with cat. Kernels and the emulator are what `flyball guest fetch` has put into the cache. Where one is
//! missing its guests are skipped, and how many were is said. By default one guest a driver is booted;
//! `FLYBALL_GUEST_TESTS=all` boots all.

use libtest_mimic::Failed;

use crate::guest::{self, SuiteCase};

/// One boot.
struct Guest {
    kernel: &'static str,
    name: &'static str,
    /// What `flyball guest run` is told.
    options: &'static [&'static str],
    /// Modes to switch through, and a governor that the driver's other modes have.
    modes: &'static str,
    governor: &'static str,
    /// Whether it is booted every day.
    everyday: bool,
}

const fn guest(
    kernel: &'static str,
    name: &'static str,
    options: &'static [&'static str],
    modes: &'static str,
    governor: &'static str,
    everyday: bool,
) -> Guest {
    Guest { kernel, name, options, modes, governor, everyday }
}

/// AMD's two ways to ask, by registers and by the mailbox, in each mode; acpi-cpufreq by registers and by ports; Intel.
const GUESTS: &[Guest] = &[
    guest(
        "6.1",
        "amd-pstate-passive",
        &["ryzen-5750g", "--driver", "amd-pstate=passive", "--interface", "cppc-mailbox"],
        "",
        "schedutil",
        false,
    ),
    guest(
        "6.12",
        "amd-pstate-active",
        &["ryzen-5750g", "--driver", "amd-pstate=active", "--interface", "cppc-mailbox"],
        "passive guided",
        "schedutil",
        false,
    ),
    guest(
        "7.2",
        "amd-pstate-active",
        &["ryzen-5750g", "--driver", "amd-pstate=active"],
        "passive guided",
        "ondemand",
        true,
    ),
    guest(
        "7.2",
        "amd-pstate-guided",
        &["ryzen-5750g", "--driver", "amd-pstate=guided", "--interface", "cppc-mailbox"],
        "passive active",
        "conservative",
        false,
    ),
    guest("6.1", "acpi-cpufreq", ACPI, "", "ondemand", false),
    guest("6.12", "acpi-cpufreq", ACPI, "", "ondemand", true),
    guest("7.2", "acpi-cpufreq", ACPI, "", "ondemand", false),
    guest("7.2", "acpi-cpufreq-intel", ACPI_INTEL, "", "ondemand", false),
    guest("6.1", "intel-pstate", &["sst-guide"], "passive", "schedutil", false),
    guest("6.12", "intel-pstate", &["sst-guide"], "passive", "schedutil", false),
    guest("7.2", "intel-pstate", &["sst-guide"], "passive", "schedutil", true),
];

const ACPI: &[&str] = &["ryzen-5750g", "--driver", "acpi-cpufreq", "--modules", "cpufreq_ondemand"];
const ACPI_INTEL: &[&str] = &["sst-guide", "--driver", "acpi-cpufreq", "--modules", "cpufreq_ondemand"];

fn boot(guest: &Guest) -> Result<(), Failed> {
    let flyball = format!("{}:flyball", env!("CARGO_BIN_EXE_flyball"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/settings.sh");
    let look = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kills.d/look.sh");
    let options = [guest.options, &["--file", &flyball, "--file", script, "--file", look]].concat();
    let command = ["sh", "./settings.sh", "./flyball", guest.modes, guest.governor];
    let output = guest::run(guest.kernel, &options, &command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("not ok")).collect();
    let right = text.lines().filter(|line| line.starts_with("ok ")).count();
    if wrong.is_empty() && right > 20 && text.lines().any(|line| line == "done") && output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = errors.lines().rev().take(40).collect();
    Err(format!(
        "{right} checks held, {} did not; {}; last line '{}'\n{}\n--- stderr\n{}",
        wrong.len(),
        output.status,
        text.lines().last().unwrap_or_default(),
        wrong.join("\n"),
        tail.into_iter().rev().collect::<Vec<_>>().join("\n")
    )
    .into())
}

/// The boots of this suite.
pub fn suite() -> Vec<SuiteCase> {
    let suited = |guest: &'static Guest| SuiteCase {
        name: format!("{}-{}", guest.kernel, guest.name),
        kernel: guest.kernel.to_owned(),
        everyday: guest.everyday,
        missing: None,
        test: Box::new(move || boot(guest)),
    };
    GUESTS.iter().map(suited).collect()
}
