//! TPMI: the Speed Select register block of a power domain.

use crate::silicon::Silicon;

impl Silicon {
    /// Power domains with Speed Select registers of their own in a package: 0 without TPMI.
    pub fn tpmi_domains(&self) -> usize {
        self.sst
            .as_ref()
            .filter(|s| s.spec.class == crate::spec::SstClass::Tpmi)
            .map_or(0, |s| s.per_package())
    }
}
