//! The memory-mapped registers of the mailbox generation (Ice Lake to Emerald Rapids), as offsets
//! into the PUNIT's BAR: class n at 0x08 + 4n, the class of core c in bits 17:16 at 0x20 + 4c. On
//! Skylake-X only the mailbox reaches them.

use crate::silicon::Silicon;
use crate::spec::SstClass;
use crate::sst_state::ClassOfService;

impl Silicon {
    /// Reads a register of a package. Registers without a function read 0; `None` if this machine
    /// has no such window.
    pub fn mmio_read(&self, package: usize, offset: u32) -> Option<u32> {
        let sst = self.sst.as_ref().filter(|s| s.spec.class == SstClass::MailboxPci)?;
        let d = sst.domains.get(package)?;
        Some(match offset {
            0x08..=0x14 => d.classes[(offset as usize - 8) / 4].word(),
            0x20.. => d.class_of.get((offset as usize - 0x20) / 4).map_or(0, |&c| u32::from(c) << 16),
            _ => 0,
        })
    }

    /// Writes a register of a package. Returns false if this machine has no such window.
    pub fn mmio_write(&mut self, package: usize, offset: u32, value: u32) -> bool {
        let Some(sst) = self.sst.as_mut().filter(|s| s.spec.class == SstClass::MailboxPci) else {
            return false;
        };
        // Drop the write without an error: memory cannot report one.
        if sst.refuses {
            return true;
        }
        let Some(d) = sst.domains.get_mut(package) else { return false };
        match offset {
            0x08..=0x14 => d.classes[(offset as usize - 8) / 4] = ClassOfService::from_word(value),
            0x20.. => {
                if let Some(c) = d.class_of.get_mut((offset as usize - 0x20) / 4) {
                    *c = (value >> 16 & 3) as u8;
                }
            }
            _ => {}
        }
        self.sst_changed(package);
        true
    }
}
