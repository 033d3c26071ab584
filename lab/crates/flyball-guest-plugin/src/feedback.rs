//! The table of hardware feedback of Intel's processors, in which firmware reports the current
//! capabilities of each CPU.

use flyball_silicon::{Silicon, msr};

/// The table's address and rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feedback {
    /// Physical address.
    pub(crate) address: u64,
    /// Performance and efficiency of each of the package's CPUs, 0 to 255.
    pub(crate) rows: Vec<[u8; 2]>,
}

impl Feedback {
    /// Returns the table as it is stored in memory: time stamp, change flags of each capability
    /// (all set), and a row of eight bytes per CPU.
    pub(crate) fn table(&self, stamp: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + 8 * self.rows.len());
        bytes.extend(stamp.to_le_bytes());
        bytes.extend(0x0101u64.to_le_bytes());
        for [performance, efficiency] in &self.rows {
            bytes.extend([*performance, *efficiency, 0, 0, 0, 0, 0, 0]);
        }
        bytes
    }

    /// Returns a package's table if the processor has one and the kernel has enabled it.
    pub(crate) fn new(silicon: &Silicon, package: usize) -> Option<Feedback> {
        let topology = silicon.topology();
        let cpus: Vec<usize> =
            (0..silicon.cpus()).filter(|cpu| topology.package_of(*cpu) == package).collect();
        let read = |register| silicon.read_msr(*cpus.first()?, register).ok();
        let pointer = read(msr::HW_FEEDBACK_PTR)?;
        if read(msr::HW_FEEDBACK_CONFIG)? & 1 == 0 || pointer & 1 == 0 {
            return None;
        }
        let rows = cpus.iter().map(|cpu| {
            // How firmware computes these values is not published. This uses the guaranteed
            // frequency for performance and its complement for efficiency.
            let max = u64::from(silicon.spec().core[topology.core_of(*cpu).kind].max_mhz) * 1000;
            let share = (u64::from(silicon.guaranteed(*cpu).0) * 255 / max.max(1)).min(255) as u8;
            [share, 255 - share]
        });
        Some(Feedback { address: pointer & !0xfff, rows: rows.collect() })
    }
}

#[cfg(test)]
mod tests {
    use flyball_silicon::MachineSpec;

    use super::*;

    #[test]
    fn the_table_is_there_when_asked_for() {
        let toml = MachineSpec::builtin_text("msr-mailbox").unwrap();
        let without = Silicon::new(MachineSpec::from_toml(toml).unwrap(), 0).unwrap();
        assert_eq!(Feedback::new(&without, 0), None);
        let toml = toml.replace("has_epp = true", "has_epp = true\nfeedback = true");
        let mut silicon = Silicon::new(MachineSpec::from_toml(&toml).unwrap(), 0).unwrap();
        assert_eq!(Feedback::new(&silicon, 0), None);
        silicon.write_msr(0, msr::HW_FEEDBACK_PTR, 0x1234_5001).unwrap();
        silicon.write_msr(0, msr::HW_FEEDBACK_CONFIG, 1).unwrap();
        let feedback = Feedback::new(&silicon, 0).unwrap();
        assert_eq!((feedback.address, feedback.rows.len()), (0x1234_5000, 16));
        assert_eq!(feedback.rows[0], [137, 118], "2.0 of 3.7 GHz");
        let table = feedback.table(7);
        assert_eq!((table.len(), table[0], table[16], table[17]), (16 + 16 * 8, 7, 137, 118));
    }
}
