//! Units of the crate's results.

/// A frequency in kHz, the unit of the kernel's cpufreq files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{} kHz", _0)]
pub struct KiloHertz(pub u32);

impl KiloHertz {
    /// The frequency in MHz, rounded down.
    pub const fn mhz(self) -> u32 {
        self.0 / 1000
    }
}

/// Power in watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, derive_more::Display)]
#[display("{:.1} W", _0)]
pub struct Watts(pub f64);

/// A temperature in degrees Celsius.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, derive_more::Display)]
#[display("{:.1} C", _0)]
pub struct Celsius(pub f64);
