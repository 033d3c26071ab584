//! Recognises the instructions of the guest's code that the plug-in handles, by their bytes, when
//! QEMU translates them, and adds the callbacks and counters that they need.

#![allow(unsafe_code, reason = "QEMU's C interface")]

use std::ffi::c_void;

use super::{Plugin, callbacks};
use crate::{
    api::{ADD, ALL_REGISTERS, ANY_ACCESS, AT_LEAST, Field, NO_REGISTERS},
    scheduler::LIMIT,
    settings::Time,
};

impl Plugin {
    /// Adds callbacks to a block that is being translated.
    pub(super) fn translate(&self, block: *mut c_void) {
        let closed = self.settings.time == Time::Closed;
        let field = Field { score: self.score as *mut c_void, offset: 0 };
        // SAFETY: the block and its instructions are valid during this callback, and the functions
        // are called with what they document.
        unsafe {
            let count = (self.api.qemu_plugin_tb_n_insns)(block);
            let mut strings = 0;
            let mut begins_with_string = false;
            for index in 0..count {
                let instruction = (self.api.qemu_plugin_tb_get_insn)(block, index);
                let length = (self.api.qemu_plugin_insn_size)(instruction);
                // The maximum length of an x86 instruction.
                let mut bytes = [0u8; 15];
                let length = length.min(15);
                (self.api.qemu_plugin_insn_data)(instruction, bytes.as_mut_ptr().cast(), length);
                let at = (self.api.qemu_plugin_insn_vaddr)(instruction) as *mut c_void;
                let on = |callback, registers| {
                    (self.api.qemu_plugin_register_vcpu_insn_exec_cb)(instruction, callback, registers, at);
                };
                match kind(&bytes[..length]) {
                    Kind::ReadTsc => on(callbacks::on_rdtsc, ALL_REGISTERS),
                    Kind::ReadTscAndAux => on(callbacks::on_rdtscp, ALL_REGISTERS),
                    Kind::ReadMsr => on(callbacks::on_rdmsr, ALL_REGISTERS),
                    Kind::WriteMsr => on(callbacks::on_wrmsr, ALL_REGISTERS),
                    Kind::Cpuid => on(callbacks::on_cpuid, ALL_REGISTERS),
                    Kind::In => on(callbacks::on_in, ALL_REGISTERS),
                    Kind::Out => on(callbacks::on_out, ALL_REGISTERS),
                    Kind::OutWord => on(callbacks::on_out_word, ALL_REGISTERS),
                    Kind::Halt if closed => on(callbacks::on_halt, NO_REGISTERS),
                    Kind::Apic if closed => on(callbacks::on_apic, NO_REGISTERS),
                    // PAUSE takes about as long as a hundred other instructions.
                    Kind::Pause if closed => {
                        (self.api.qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu)(
                            instruction,
                            ADD,
                            field,
                            100,
                        );
                        on(callbacks::on_pause, NO_REGISTERS);
                    }
                    // A repeated string instruction is restarted each time the CPU leaves its loop,
                    // which depends on the host. So it is counted by its memory accesses.
                    Kind::RepeatedString if closed => {
                        strings += 1;
                        begins_with_string |= index == 0;
                        (self.api.qemu_plugin_register_vcpu_mem_inline_per_vcpu)(
                            instruction,
                            ANY_ACCESS,
                            ADD,
                            field,
                            1,
                        );
                    }
                    _ => {}
                }
            }
            if closed {
                (self.api.qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu)(
                    block,
                    ADD,
                    field,
                    // Counted once per block, before it runs: an inline addition is far cheaper
                    // than a callback per instruction.
                    (count - strings) as u64,
                );
                (self.api.qemu_plugin_register_vcpu_tb_exec_cond_cb)(
                    block,
                    if begins_with_string { callbacks::on_limit_in_string } else { callbacks::on_limit },
                    ALL_REGISTERS,
                    AT_LEAST,
                    field,
                    LIMIT,
                    (self.api.qemu_plugin_insn_vaddr)((self.api.qemu_plugin_tb_get_insn)(block, 0))
                        as *mut c_void,
                );
            }
        }
    }
}

/// The kinds of instructions that the plug-in handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ReadTsc,
    ReadTscAndAux,
    OutWord,
    ReadMsr,
    WriteMsr,
    Cpuid,
    In,
    Out,
    Halt,
    Apic,
    Pause,
    RepeatedString,
    Other,
}

/// Classifies an instruction by its bytes.
fn kind(bytes: &[u8]) -> Kind {
    match bytes {
        [0x0f, 0x31] => Kind::ReadTsc,
        [0x0f, 0x32] => Kind::ReadMsr,
        [0x0f, 0x30] => Kind::WriteMsr,
        [0x0f, 0xa2] => Kind::Cpuid,
        [0x0f, 0x01, 0xf9] => Kind::ReadTscAndAux,
        [0xf4] => Kind::Halt,
        [0xec] => Kind::In,
        [0xee] => Kind::Out,
        [0x66, 0xef] => Kind::OutWord,
        [0xf3, 0x90] => Kind::Pause,
        // mov %reg,disp32(%reg) with the kernel's fixed mapping of the APIC as displacement
        // (FIX_APIC_BASE, 0xffffffffff5fXXXX). If another kernel maps it elsewhere, wake-ups across
        // CPUs come a slice late.
        [0x89, modrm, _, _, 0x5f, 0xff] | [0x40..=0x4f, 0x89, modrm, _, _, 0x5f, 0xff] if modrm >> 6 == 2 => {
            Kind::Apic
        }
        _ => {
            let prefix = |byte: &u8| matches!(byte, 0xf2 | 0xf3 | 0x66 | 0x67 | 0x40..=0x4f);
            let at = bytes.iter().take_while(|byte| prefix(byte)).count();
            let repeated = bytes[..at].iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
            match &bytes[at..] {
                [0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf] if repeated => Kind::RepeatedString,
                _ => Kind::Other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_bytes() {
        assert_eq!(kind(&[0x0f, 0x30]), Kind::WriteMsr);
        assert_eq!(kind(&[0x0f, 0x01, 0xf9]), Kind::ReadTscAndAux);
        assert_eq!(kind(&[0x89, 0xb7, 0x00, 0xd3, 0x5f, 0xff]), Kind::Apic);
        assert_eq!(kind(&[0x41, 0x89, 0xb4, 0x00, 0xd3, 0x5f, 0xff]), Kind::Apic);
        assert_eq!(kind(&[0xf3, 0xa4]), Kind::RepeatedString);
        assert_eq!(kind(&[0xf3, 0x48, 0xab]), Kind::RepeatedString);
        assert_eq!(kind(&[0xa4]), Kind::Other);
        assert_eq!(kind(&[0xf3, 0x90]), Kind::Pause);
        assert_eq!(kind(&[0xf3, 0xa8]), Kind::Other);
        assert_eq!(kind(&[]), Kind::Other);
    }
}
