//! Numbers of mailbox commands, their sub-commands and the class registers in MMIO space.
//!
//! The names are those in tools/power/x86/intel-speed-select/isst.h; the drivers pass exactly these
//! (`isst_if_mbox_cmd_invalid` in drivers/platform/x86/intel/speed_select_if/isst_if_common.c).

pub const CONFIG_TDP: u16 = 0x7f;
pub const CONFIG_TDP_GET_LEVELS_INFO: u16 = 0x00;
pub const CONFIG_TDP_GET_TDP_CONTROL: u16 = 0x01;
pub const CONFIG_TDP_SET_TDP_CONTROL: u16 = 0x02;
pub const CONFIG_TDP_GET_TDP_INFO: u16 = 0x03;
pub const CONFIG_TDP_GET_TJMAX_INFO: u16 = 0x05;
pub const CONFIG_TDP_GET_CORE_MASK: u16 = 0x06;
pub const CONFIG_TDP_GET_TURBO_LIMIT_RATIOS: u16 = 0x07;
pub const CONFIG_TDP_SET_LEVEL: u16 = 0x08;
pub const CONFIG_TDP_GET_UNCORE_P0_P1_INFO: u16 = 0x09;
pub const CONFIG_TDP_GET_P1_INFO: u16 = 0x0a;
pub const CONFIG_TDP_GET_MEM_FREQ: u16 = 0x0b;
pub const CONFIG_TDP_GET_RATIO_INFO: u16 = 0x0c;
pub const CONFIG_TDP_GET_FACT_HP_TURBO_LIMIT_NUMCORES: u16 = 0x10;
pub const CONFIG_TDP_GET_FACT_HP_TURBO_LIMIT_RATIOS: u16 = 0x11;
pub const CONFIG_TDP_GET_FACT_LP_CLIPPING_RATIO: u16 = 0x12;
pub const CONFIG_TDP_PBF_GET_CORE_MASK_INFO: u16 = 0x20;
pub const CONFIG_TDP_PBF_GET_P1HI_P1LO_INFO: u16 = 0x21;
pub const CONFIG_TDP_PBF_GET_TJ_MAX_INFO: u16 = 0x22;
pub const CONFIG_TDP_PBF_GET_TDP_INFO: u16 = 0x23;

pub const CONFIG_CLOS: u16 = 0xd0;
pub const CLOS_PQR_ASSOC: u16 = 0x00;
pub const CLOS_PM_CLOS: u16 = 0x01;
pub const CLOS_PM_QOS_CONFIG: u16 = 0x02;
/// Bit of a class command's parameter that selects write instead of read. isst.h has the bit's
/// number, 8.
pub const MBOX_CMD_WRITE_BIT: u32 = 1 << 8;

pub const READ_PM_CONFIG: u16 = 0x94;
pub const WRITE_PM_CONFIG: u16 = 0x95;
pub const PM_FEATURE: u16 = 0x03;

/// MMIO: four class definitions, four bytes each.
pub const PM_CLOS_OFFSET: u32 = 0x08;
/// MMIO: the class of each core, four bytes each.
pub const PQR_ASSOC_OFFSET: u32 = 0x20;
