//! Intel Speed Select in the silicon: which level, base-freq, turbo-freq and classes of service are
//! set in each power domain, and what that does to frequencies. The ways in are registers, one set
//! a generation:
//!
//! - Skylake-X family: MSRs 0xB0 (interface) and 0xB1 (data).
//! - Ice Lake to Emerald Rapids: the configuration space of PCI device 30 function 1 on bus 1 (data
//!   at 0xA0, interface at 0xA4) for the mailbox, and the PUNIT's memory, 32 bits a register
//!   (device 0 function 1 on bus 0), for the classes.
//! - Granite Rapids and later: the TPMI device's memory, 64 bits a register.
//!
//! The functions of [`Silicon`](crate::Silicon) for them are `read_msr`, `mailbox_config_read`,
//! `mmio_read`, `tpmi_read` (one domain's block) and the same with `write`.
//!
//! A write acts at once; its effect on frequencies begins with the next
//! [`settle`](crate::Silicon::settle) or step. All of them lead to the same switches, and firmware
//! refuses the same changes: a level that does not exist or is locked, turbo-freq without classes
//! of service, classes off under turbo-freq, a feature that the level does not have.

mod mailbox;
mod mmio;
mod tpmi;
mod uncore;

pub use mailbox::MailboxError;

pub use crate::sst_state::{ClassOfService, Refusal, SstDomain};

use crate::silicon::Silicon;

impl Silicon {
    /// Makes the firmware of all packages reject every change to Speed Select, or work again. It
    /// does not announce this: the mailbox returns errors, and registers in memory keep their
    /// values.
    pub fn refuse_changes(&mut self, refuses: bool) {
        if let Some(sst) = &mut self.sst {
            sst.refuses = refuses;
        }
    }

    /// The power domains of Speed Select, package by package, each with its current level's number.
    pub fn sst_domains(&self) -> impl Iterator<Item = (u32, &SstDomain)> {
        let all = self.sst.iter().flat_map(|s| s.domains.iter().enumerate().map(move |(n, d)| (s, n, d)));
        all.map(|(s, n, d)| (s.level(n).number, d))
    }
}
