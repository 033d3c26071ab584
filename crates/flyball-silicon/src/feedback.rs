//! Hardware feedback of Intel's processors: a table in memory in which firmware states the current
//! performance and efficiency of each CPU, rewritten when they change. The owner of the memory
//! writes it.
//!
//! Source: Intel SDM volume 3, "Hardware feedback interface"; the reader is
//! drivers/thermal/intel/intel_hfi.c. On hardware a thermal interrupt announces a new table to the
//! kernel. This crate raises none.

use crate::silicon::Silicon;

impl Silicon {
    /// A CPU's row in its package's table.
    pub(crate) fn row(&self, cpu: usize) -> u32 {
        let package = self.topology.package_of(cpu);
        // CPUID leaf 6, EDX 31:16 (intel_hfi.c, init_hfi_cpu_index()).
        (0..cpu).filter(|other| self.topology.package_of(*other) == package).count() as u32
    }

    /// Records that the table was written to memory. The thermal status shows this until the kernel
    /// clears it.
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
    fn the_status_tells_of_a_new_table() {
        let toml = MachineSpec::builtin_text("msr-mailbox").unwrap();
        let without = Silicon::new(MachineSpec::from_toml(toml).unwrap(), 0).unwrap();
        assert!(without.read_msr(0, msr::HW_FEEDBACK_PTR).is_err());
        let toml = toml.replace("has_epp = true", "has_epp = true\nfeedback = true");
        let mut silicon = Silicon::new(MachineSpec::from_toml(&toml).unwrap(), 0).unwrap();
        assert_eq!(silicon.cpuid(6, 0, 3).map(|[a, _, _, d]| (a >> 19 & 1, d)), Some((1, 3 | 3 << 16)));
        silicon.write_msr(0, msr::HW_FEEDBACK_PTR, 0x1234_5001).unwrap();
        silicon.write_msr(0, msr::HW_FEEDBACK_CONFIG, 1).unwrap();
        let new = |silicon: &Silicon| silicon.read_msr(0, msr::PACKAGE_THERM_STATUS).unwrap() >> 26 & 1;
        assert_eq!(new(&silicon), 0);
        silicon.feedback_written(0);
        assert_eq!(new(&silicon), 1);
        silicon.write_msr(0, msr::PACKAGE_THERM_STATUS, 0).unwrap();
        assert_eq!(new(&silicon), 0);
    }
}
