//! The service on real kernels: a hold through hotplug, changes of the driver's mode, sleep by
//! `pm_test`, other writers and `kill -9`.
//!
//! One boot per kernel and driver runs `hold.sh`, which reads the files itself. By default one
//! guest is booted; `FLYBALL_GUEST_TESTS=all` boots all.

use libtest_mimic::Failed;

use crate::guest::{self, SuiteCase};

/// One boot.
struct Guest {
    kernel: &'static str,
    name: &'static str,
    options: &'static [&'static str],
    /// Modes to switch to and back from, and the file to write them to.
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
    let words = [guest.modes, guest.status];
    guest::run_checks(guest.kernel, guest.options, "hold.sh", &words, 10)
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
