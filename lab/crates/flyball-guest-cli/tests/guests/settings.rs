//! Settings, restore and crashes on real kernels with real cpufreq drivers, in an emulator, checked
//! with other tools.
//!
//! One boot per kernel and driver runs `settings.sh`, which changes settings with flyball and reads
//! the result with cat. Kernels and the emulator come from the cache of `flyball guest fetch`. If
//! one is missing, its guests are skipped and counted. By default one guest is booted for each
//! driver; `FLYBALL_GUEST_TESTS=all` boots all.

use libtest_mimic::Failed;

use crate::guest::{self, SuiteCase};

/// One boot.
struct Guest {
    kernel: &'static str,
    name: &'static str,
    /// Options of `flyball guest run`.
    options: &'static [&'static str],
    /// Modes to switch through, and a governor of the driver's other modes.
    modes: &'static str,
    governor: &'static str,
    /// Whether it is booted by default.
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

/// AMD's two request interfaces, registers and the mailbox, in each mode; acpi-cpufreq with
/// registers and with ports; Intel.
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
    let words = [guest.modes, guest.governor];
    guest::run_checks(guest.kernel, guest.options, "settings.sh", &words, 20)
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let suited = |guest: &'static Guest| SuiteCase {
        name: format!("{}-{}", guest.kernel, guest.name),
        kernel: guest.kernel.to_owned(),
        everyday: guest.everyday,
        missing: None,
        test: Box::new(move || boot(guest)),
    };
    GUESTS.iter().map(suited).collect()
}
