//! Settings that drivers last passed to the board's firmware.

use crate::board::Board;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Firmware {
    /// Profile of each device, by its number in the kernel's list.
    pub(crate) profiles: Vec<usize>,
    /// True if the die with the large cache is preferred, false for the one with the higher
    /// frequency.
    pub(crate) cache_preferred: bool,
    /// Power limit of each socket with a management port, mW.
    pub(crate) socket_power_mw: Vec<u32>,
}

impl Firmware {
    /// The state at boot: each profile driver's initial profile, `frequency` (the default of the
    /// x3d driver's parameter), and the highest power limits.
    pub(crate) fn new(board: &Board) -> Firmware {
        Firmware {
            profiles: board.profile_devices.iter().map(|device| device.start).collect(),
            cache_preferred: false,
            socket_power_mw: board
                .socket_power_mw
                .map_or(Vec::new(), |most| vec![most; board.packages() as usize]),
        }
    }
}
