//! The service under real kernels: a hold through hotplug, changes of the driver's mode, sleep by `pm_test`, other writers and
//! `kill -9`.
//!
//! One boot per kernel and driver runs `hold.sh`, which looks at the files itself. By default one guest is booted;
//! `FLYBALL_GUEST_TESTS=all` boots all.

use libtest_mimic::Failed;

use crate::guest::{self, SuiteCase};

/// One boot.
struct Guest {
    kernel: &'static str,
    name: &'static str,
    options: &'static [&'static str],
    /// Modes to switch through and back, and the file to write them to.
    modes: &'static str,
    status: &'static str,
    everyday: bool,
}

const AMD: &str = "/sys/devices/system/cpu/amd_pstate/status";
const INTEL: &str = "/sys/devices/system/cpu/intel_pstate/status";

const GUESTS: &[Guest] = &[
    Guest {
        kernel: "6.12",
        name: "amd-pstate",
        options: &["ryzen-5750g", "--driver", "amd-pstate=active", "--interface", "cppc-mailbox"],
        modes: "passive guided",
        status: AMD,
        everyday: false,
    },
    Guest {
        kernel: "7.2",
        name: "amd-pstate",
        options: &["ryzen-5750g", "--driver", "amd-pstate=active"],
        modes: "passive guided",
        status: AMD,
        everyday: true,
    },
    Guest {
        kernel: "6.1",
        name: "acpi-cpufreq",
        options: &["ryzen-5750g", "--driver", "acpi-cpufreq", "--modules", "cpufreq_ondemand"],
        modes: "",
        status: "",
        everyday: false,
    },
    Guest {
        kernel: "6.1",
        name: "intel-pstate",
        options: &["sst-guide"],
        modes: "passive",
        status: INTEL,
        everyday: false,
    },
    Guest {
        kernel: "7.2",
        name: "intel-pstate",
        options: &["sst-guide"],
        modes: "passive",
        status: INTEL,
        everyday: false,
    },
];

fn boot(guest: &Guest) -> Result<(), Failed> {
    let flyball = format!("{}:flyball", env!("CARGO_BIN_EXE_flyball"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/hold.sh");
    let look = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kills.d/look.sh");
    let options = [guest.options, &["--file", &flyball, "--file", script, "--file", look]].concat();
    let command = ["sh", "./hold.sh", "./flyball", guest.modes, guest.status];
    let output = guest::run(guest.kernel, &options, &command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("not ok")).collect();
    let right = text.lines().filter(|line| line.starts_with("ok ")).count();
    if wrong.is_empty() && right > 10 && text.lines().any(|line| line == "done") && output.status.success() {
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
