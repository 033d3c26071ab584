//! Dispatches calls to the drivers. Also has what all drivers share.

use flyball_host::{Errno, isst::number};

use crate::{
    FakeMachine,
    wire::{half, put, word},
};

impl FakeMachine {
    pub(crate) fn call(&self, call: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        match call {
            number::GET_PLATFORM_INFO => {
                let tpmi = self.api > 1;
                put(bytes, 0, self.api, 2);
                put(bytes, 2, 1u16, 2);
                // ISST_IF_CMD_LIMIT of isst_if_common.h.
                put(bytes, 4, 64u16, 2);
                // With TPMI, neither of the older drivers is registered. These two bytes report
                // just that (isst_if_get_platform_info).
                bytes[6] = u8::from(!tpmi);
                bytes[7] = u8::from(!tpmi);
                Ok(0)
            }
            number::GET_PHY_ID => self.punit_numbers(bytes),
            number::MSR_COMMAND => self.msr_command(bytes),
            // isst_if_def_ioctl returns this errno if no driver has registered the call.
            number::IO_CMD | number::MBOX_COMMAND if self.api > 1 => Err(Errno::NOTTY),
            number::IO_CMD if self.classes_in_mailbox => Err(Errno::NOTTY),
            number::IO_CMD => self.io_command(bytes),
            number::MBOX_COMMAND => self.mailbox(bytes),
            _ if self.api == 1 => Err(Errno::NOTTY),
            // isst_if_common.c returns this errno for every failure of the TPMI driver.
            _ => self.tpmi(call, bytes).map_err(|_| Errno::NOTTY),
        }
    }

    fn punit_numbers(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let count = word(bytes, 0) as usize;
        for index in 0..count {
            let cpu = word(bytes, 4 + 8 * index);
            let Some((_, core)) = self.place(cpu) else {
                // A list of commands ends at the first failure. Its errno is only returned if no
                // command succeeded (isst_if_exec_multi_cmd).
                return if index == 0 { Err(Errno::INVAL) } else { Ok(index as i32) };
            };
            let thread = cpu / (self.cores * u32::from(self.packages));
            let raw = if self.api > 1 {
                // Domain 5 exists for the driver, but has no registers.
                (if core < self.dead_from { 0 } else { 5 << 11 }) | core << 3 | thread
            } else {
                core << 1 | thread
            };
            put(bytes, 8 + 8 * index, raw, 4);
        }
        Ok(count as i32)
    }

    /// Records a call that must never be made. Two of them fault in kernels: a core mask above the
    /// highest level in 6.12.107, and an association in a domain without registers in 7.2. The
    /// others spill bits into other fields, and 6.12.107 accepts them.
    pub(crate) fn note_hazard(&self, call: u32, bytes: &[u8]) {
        // Only checks the structures of API 2 and later.
        if self.api == 1 {
            return;
        }
        // Record before the call: even if this machine rejects it, another kernel may not.
        let mut inner = self.lock();
        let bad = match call {
            number::GET_PERF_LEVEL_CPU_MASK | number::GET_BASE_FREQ_CPU_MASK => {
                usize::from(bytes[2]) >= self.levels.len()
            }
            number::CLOS_ASSOC => {
                // Offsets in isst_if_clos_assoc_cmds: count, set, map, then the first entry's
                // package, domain, core and class.
                half(bytes, 0) != 1
                    || half(bytes, 8) > 63
                    || half(bytes, 10) > 3
                    || !inner.states.contains_key(&(bytes[6], bytes[7]))
            }
            number::CORE_POWER_STATE => bytes[0] > 1 || bytes[3] > 1 || bytes[5] > 1,
            number::CLOS_PARAM => {
                bytes[3] > 3 || bytes[8] > 15 || half(bytes, 4) / 100 > 255 || half(bytes, 6) / 100 > 255
            }
            number::PERF_SET_LEVEL => usize::from(bytes[2]) >= self.levels.len(),
            number::PERF_SET_FEATURE => bytes[2] > 3,
            _ => false,
        };
        if bad {
            inner.hazards.push(format!("call {:#x}: {bytes:02x?}", call & 0xff));
        }
    }
}
