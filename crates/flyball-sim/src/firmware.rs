//! What drivers last told the firmware of the board.

use crate::board::ProfileDevice;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Firmware {
    /// The profile of each device, by its number in the kernel's list of words.
    pub(crate) profiles: Vec<usize>,
    /// The die with the large cache is preferred, not the one with the higher frequency.
    pub(crate) cache_preferred: bool,
}

impl Firmware {
    /// Each profile driver's start, and `frequency`: the default of the x3d driver's parameter.
    pub(crate) fn new(devices: &[ProfileDevice]) -> Firmware {
        Firmware { profiles: devices.iter().map(|device| device.start).collect(), cache_preferred: false }
    }
}
