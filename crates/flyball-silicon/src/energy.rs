//! Energy counters: convert joules to the 32-bit register, which wraps.

/// The unit of one count of an energy status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyUnit {
    /// 1 / 2^n J, the energy status unit (ESU) of the unit register.
    Shift(u8),
    /// A fixed number of nanojoules: 15,300 nJ for the DRAM domain of Haswell-X to Ice Lake-X, 1 J
    /// for the platform domain of Sapphire and Emerald Rapids (the kernel's intel_rapl_common.c,
    /// rapl_defaults).
    Nanojoules(u32),
}

impl EnergyUnit {
    /// Returns the counter's value after this many femtojoules: counts since the start, modulo
    /// 2^32.
    pub fn counter(self, femtojoules: u128) -> u32 {
        match self {
            // Truncated to 32 bits: readers have to handle the wrap, which a server reaches within
            // minutes.
            EnergyUnit::Shift(n) => ((femtojoules << n) / 1_000_000_000_000_000) as u32,
            EnergyUnit::Nanojoules(n) => (femtojoules / (u128::from(n.max(1)) * 1_000_000)) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOULE: u128 = 1_000_000_000_000_000;

    #[test]
    fn counts_in_its_unit() {
        assert_eq!(EnergyUnit::Shift(14).counter(JOULE), 1 << 14);
        assert_eq!(EnergyUnit::Shift(16).counter(20 * JOULE), 1_310_720);
        assert_eq!(EnergyUnit::Nanojoules(15_300).counter(153 * JOULE), 10_000_000);
        assert_eq!(EnergyUnit::Nanojoules(1_000_000_000).counter(7 * JOULE), 7);
    }

    #[test]
    fn wraps_at_32_bits() {
        // 2^32 counts of 2^-14 J are 262,144 J, so one joule later the counter reads one joule.
        assert_eq!(EnergyUnit::Shift(14).counter(262_144 * JOULE), 0);
        assert_eq!(EnergyUnit::Shift(14).counter(262_145 * JOULE), 1 << 14);
        assert_eq!(EnergyUnit::Shift(14).counter(262_144 * JOULE - 1), u32::MAX);
    }
}
