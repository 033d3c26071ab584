//! The registers of uncore clusters, one cluster per power domain.

use crate::silicon::Silicon;

impl Silicon {
    /// Reads a register of a domain's uncore cluster (uncore-frequency-tpmi.c). Ratios are in units
    /// of 100 MHz: the current one in bits 6:0 of the status (0x10), the highest in 14:8 and the
    /// lowest in 21:15 of the control (0x18).
    pub fn uncore_cluster_read(&self, package: usize, domain: usize, register: u32) -> u64 {
        let Some(&control) =
            self.uncore_cluster(package, domain).and_then(|at| self.registers.uncore.get(at))
        else {
            return 0;
        };
        match register {
            // Version 0.2, one cluster.
            0 => 2 | 1 << 8,
            // The cluster's registers come two registers after the header.
            8 => 2,
            0x10 => {
                let (max, min) = (control >> 8 & 0x7f, control >> 15 & 0x7f);
                let asleep = self.package[package].awake < 0.5;
                let limits = self.spec.uncore.as_ref().map_or((0, 0), |u| {
                    (u.min_mhz / 100, u.max_of(domain >= self.topology.dies() as usize) / 100)
                });
                if asleep { min.max(u64::from(limits.0)) } else { max.min(u64::from(limits.1)).max(min) }
            }
            0x18 => control,
            _ => 0,
        }
    }

    /// Writes a register of a domain's uncore cluster.
    pub fn uncore_cluster_write(&mut self, package: usize, domain: usize, register: u32, value: u64) {
        let Some(at) = self.uncore_cluster(package, domain) else { return };
        if register == 0x18
            && let Some(control) = self.registers.uncore.get_mut(at)
        {
            *control = value;
            self.package[package].stale = true;
            self.touch();
        }
    }

    /// Returns the index of a domain's cluster.
    fn uncore_cluster(&self, package: usize, domain: usize) -> Option<usize> {
        let domains = self.tpmi_domains();
        (package < self.topology.packages() && domain < domains).then_some(package * domains + domain)
    }
}
