//! EPP values of amd-pstate's words.

use crate::{cpufreq::Platform, kernel::Kernel};

/// EPP values of the words `performance` to `power` on a CPU. Up to 7.3 each word has one value;
/// since 7.4 values depend on model and core type (epp_values and amd_pstate_epp_soc_ids).
pub(super) fn epp_values(platform: &Platform, cpu: u32) -> [u8; 4] {
    let board = &platform.board;
    let is_zen6 = board.family == 0x1a && matches!(board.model, 0x80 | 0x81 | 0x84 | 0x85 | 0xe0);
    match (is_zen6 && platform.since(Kernel::V7_4), board.places[cpu as usize].efficient) {
        (false, _) => [0, 128, 191, 255],
        (true, false) => [25, 51, 64, 64],
        (true, true) => [25, 51, 64, 115],
    }
}
