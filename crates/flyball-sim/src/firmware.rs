//! What drivers last told the firmware of the board.

use crate::board::Board;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Firmware {
    /// The profile of each device, by its number in the kernel's list of words.
    pub(crate) profiles: Vec<usize>,
    /// The die with the large cache is preferred, not the one with the higher frequency.
    pub(crate) cache_preferred: bool,
    /// The power limit of each socket with a management port, mW.
    pub(crate) socket_power_mw: Vec<u32>,
}

impl Firmware {
    /// Each profile driver's start, `frequency`, the default of the x3d driver's parameter, and the
    /// highest power limits.
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
