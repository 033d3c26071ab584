//! The drivers of /dev/isst_interface that bind to a machine, and their state.

use flyball_silicon::{msr, spec::SstClass};

use crate::{cpufreq::Platform, kernel::Kernel};

/// Loaded back-end drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// isst_if_mbox_msr.
    MailboxMsr,
    /// isst_if_mbox_pci and isst_if_mmio, with the last register that isst_if_mmio maps.
    MailboxPci(u32),
    /// isst_tpmi.
    Tpmi,
}

/// State of the Speed Select drivers.
#[derive(Debug, Clone, Default)]
pub(crate) struct IsstDrivers {
    pub(crate) backend: Option<Backend>,
    /// Oops message of a call that accessed an unmapped address: later calls would hang.
    pub(crate) fault: Option<String>,
}

impl IsstDrivers {
    /// The drivers that bind to these processors at boot, by their tables of CPU ids
    /// (drivers/platform/x86/intel/ speed_select_if).
    pub(crate) fn for_platform(platform: &Platform) -> IsstDrivers {
        let board = &platform.board;
        let class = platform.chip.silicon().spec().sst.as_ref().map(|sst| sst.class);
        let backend = match (class, board.model) {
            // Skylake's driver checks that the two registers can be read.
            (Some(SstClass::MailboxMsr), 0x55) => {
                platform.chip.read(0, msr::OS_MAILBOX_INTERFACE).is_ok().then_some(Backend::MailboxMsr)
            }
            // End of the second register range by generation (isst_if_mmio.c, mmio_range_devid_0
            // and _1).
            (Some(SstClass::MailboxPci), 0x6a | 0x6c) => Some(Backend::MailboxPci(0xd0)),
            (Some(SstClass::MailboxPci), 0x8f | 0xcf) => Some(Backend::MailboxPci(0x11c)),
            (Some(SstClass::Tpmi), 0xad | 0xae | 0xaf | 0xb6 | 0xdd) if platform.since(Kernel::V6_12) => {
                Some(Backend::Tpmi)
            }
            _ => None,
        };
        // The interface came with 5.3.
        let there = board.family == 6 && platform.since(Kernel::V5_10);
        IsstDrivers { backend: backend.filter(|_| there), fault: None }
    }
}
