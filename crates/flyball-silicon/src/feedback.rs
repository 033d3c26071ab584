//! Hardware feedback of Intel's processors: a table in memory in which firmware says what each CPU
//! can do now, rewritten when that changes. The silicon gives the table's address and content; the
//! owner of the memory writes it.
//!
//! Source: Intel SDM volume 3, "Hardware feedback interface"; the reader is
//! drivers/thermal/intel/intel_hfi.c. A thermal interrupt announces a new table to the kernel. This
//! crate raises none.

use crate::silicon::Silicon;

/// The address of the table, and its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Physical address.
    pub address: u64,
    /// Performance and efficiency of each of the package's CPUs, 0 to 255.
    pub rows: Vec<[u8; 2]>,
}

impl Feedback {
    /// Returns the table as it stands in memory: time stamp, change flags of each capability (all
    /// set), and a row of eight bytes per CPU.
    pub fn table(&self, stamp: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + 8 * self.rows.len());
        bytes.extend(stamp.to_le_bytes());
        bytes.extend(0x0101u64.to_le_bytes());
        for [performance, efficiency] in &self.rows {
            bytes.extend([*performance, *efficiency, 0, 0, 0, 0, 0, 0]);
        }
        bytes
    }
}

impl Silicon {
    /// A CPU's row in its package's table.
    pub(crate) fn row(&self, cpu: usize) -> u32 {
        let package = self.topology.package_of(cpu);
        // CPUID leaf 6, EDX 31:16 (intel_hfi.c, init_hfi_cpu_index()).
        (0..cpu).filter(|other| self.topology.package_of(*other) == package).count() as u32
    }

    /// The table of a package, if the processor has one and the kernel has asked for it.
    pub fn feedback(&self, package: usize) -> Option<Feedback> {
        let registers = self.registers.package.get(package)?;
        let asked = registers.feedback_config & 1 != 0 && registers.feedback_pointer & 1 != 0;
        if !(self.spec.firmware.feedback && asked) {
            return None;
        }
        let rows = (0..self.cpus()).filter(|cpu| self.topology.package_of(*cpu) == package).map(|cpu| {
            let kind = &self.kinds[self.topology.core_of(cpu).kind];
            // What firmware makes of it is not published: the guaranteed frequency, and its
            // opposite.
            let share = (u64::from(self.guaranteed(cpu).0) * 255 / u64::from(kind.max.max(1))).min(255) as u8;
            [share, 255 - share]
        });
        Some(Feedback { address: registers.feedback_pointer & !0xfff, rows: rows.collect() })
    }

    /// The table has been written to memory: the thermal status says so until the kernel clears it.
    pub fn feedback_written(&mut self, package: usize) {
        if let Some(registers) = self.registers.package.get_mut(package) {
            registers.feedback_new = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{MachineSpec, Silicon, msr};

    #[test]
    fn the_table_is_there_when_asked_for() {
        let toml = MachineSpec::builtin_text("msr-mailbox").unwrap();
        let without = Silicon::new(MachineSpec::from_toml(toml).unwrap(), 0).unwrap();
        assert!(without.read_msr(0, msr::HW_FEEDBACK_PTR).is_err());
        let toml = toml.replace("has_epp = true", "has_epp = true\nfeedback = true");
        let mut silicon = Silicon::new(MachineSpec::from_toml(&toml).unwrap(), 0).unwrap();
        assert_eq!(silicon.cpuid(6, 0, 3).map(|[a, _, _, d]| (a >> 19 & 1, d)), Some((1, 3 | 3 << 16)));
        assert_eq!(silicon.feedback(0), None);
        silicon.write_msr(0, msr::HW_FEEDBACK_PTR, 0x1234_5001).unwrap();
        silicon.write_msr(0, msr::HW_FEEDBACK_CONFIG, 1).unwrap();
        let feedback = silicon.feedback(0).unwrap();
        assert_eq!((feedback.address, feedback.rows.len()), (0x1234_5000, 16));
        assert_eq!(feedback.rows[0], [137, 118], "2.0 of 3.7 GHz");
        let table = feedback.table(7);
        assert_eq!((table.len(), table[0], table[16], table[17]), (16 + 16 * 8, 7, 137, 118));
        let new = |silicon: &Silicon| silicon.read_msr(0, msr::PACKAGE_THERM_STATUS).unwrap() >> 26 & 1;
        assert_eq!(new(&silicon), 0);
        silicon.feedback_written(0);
        assert_eq!(new(&silicon), 1);
        silicon.write_msr(0, msr::PACKAGE_THERM_STATUS, 0).unwrap();
        assert_eq!(new(&silicon), 0);
    }
}
