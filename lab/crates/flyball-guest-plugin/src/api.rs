//! The functions of QEMU and glib that the plug-in calls, looked up by name when it is loaded.
//!
//! They are looked up instead of linked, so that the crate links into any program, and so that the
//! plug-in's error message can name a function that an emulator lacks. The types are those in
//! QEMU's documentation of the plug-in interface, version 7 (QEMU 11.1).

#![allow(unsafe_code, reason = "QEMU's C interface")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::error::PluginError;

/// glib's GByteArray.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ByteArray {
    pub data: *mut u8,
    pub len: c_uint,
}

/// glib's GArray.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Array {
    pub data: *mut u8,
    pub len: c_uint,
}

/// The first fields of a register's description.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RegisterDescription {
    pub handle: *mut c_void,
    pub name: *const c_char,
}

/// A 64-bit field of a table with one entry per CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub score: *mut c_void,
    /// The field's offset in an entry.
    pub offset: usize,
}

/// The emulator's description of itself (`qemu_info_t`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Info {
    /// `x86_64`.
    pub target_name: *const c_char,
    /// Lowest and current version of the plug-in interface.
    pub version: [c_int; 2],
    /// True if the emulator runs a whole machine, false for a single program.
    pub system_emulation: bool,
    /// CPUs at the start, and the maximum.
    pub cpus: [c_int; 2],
}

/// The callback does not access registers.
pub(crate) const NO_REGISTERS: c_int = 0;
/// The callback reads and writes registers, including the program counter.
pub(crate) const ALL_REGISTERS: c_int = 3;
/// Inline operation: add.
pub(crate) const ADD: c_int = 0;
/// Condition: greater or equal.
pub(crate) const AT_LEAST: c_int = 7;
/// Both reads and writes of memory.
pub(crate) const ANY_ACCESS: c_int = 3;

/// A callback for an instruction or block, with the CPU and user data.
pub(crate) type OnExecution = extern "C" fn(c_uint, *mut c_void);
/// A callback for a CPU.
pub(crate) type OnCpu = extern "C" fn(c_uint, *mut c_void);
/// A callback for a block's translation.
pub(crate) type OnTranslation = extern "C" fn(*mut c_void, *mut c_void);
/// A callback for the emulator's exit.
pub(crate) type OnExit = extern "C" fn(*mut c_void);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, each under its own name.
        #[derive(Debug)]
        pub(crate) struct Api {
            $(pub $name: unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// Looks up all of them.
            pub(crate) fn load() -> Result<Api, PluginError> {
                $(
                    let name = concat!(stringify!($name), "\0");
                    let address = symbol(name).ok_or(PluginError::NoFunction(stringify!($name)))?;
                    // SAFETY: a function pointer is as large as a pointer, and QEMU and glib
                    // document this function with this signature.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?>(address)
                    };
                )*
                Ok(Api { $($name,)* })
            }
        }
    };
}

functions! {
    g_byte_array_new: fn() -> *mut ByteArray;
    g_byte_array_set_size: fn(*mut ByteArray, c_uint) -> *mut ByteArray;
    g_array_get_element_size: fn(*mut Array) -> c_uint;
    qemu_plugin_tb_n_insns: fn(*mut c_void) -> usize;
    qemu_plugin_tb_get_insn: fn(*mut c_void, usize) -> *mut c_void;
    qemu_plugin_insn_data: fn(*mut c_void, *mut c_void, usize) -> usize;
    qemu_plugin_insn_size: fn(*mut c_void) -> usize;
    qemu_plugin_insn_vaddr: fn(*mut c_void) -> u64;
    qemu_plugin_register_vcpu_insn_exec_cb: fn(*mut c_void, OnExecution, c_int, *mut c_void);
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu: fn(*mut c_void, c_int, Field, u64);
    qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu: fn(*mut c_void, c_int, Field, u64);
    qemu_plugin_register_vcpu_mem_inline_per_vcpu: fn(*mut c_void, c_int, c_int, Field, u64);
    qemu_plugin_register_vcpu_tb_exec_cond_cb: fn(*mut c_void, OnExecution, c_int, c_int, Field, u64, *mut c_void);
    qemu_plugin_register_vcpu_tb_trans_cb: fn(u64, OnTranslation, *mut c_void);
    qemu_plugin_register_vcpu_init_cb: fn(u64, OnCpu, *mut c_void);
    qemu_plugin_register_vcpu_idle_cb: fn(u64, OnCpu, *mut c_void);
    qemu_plugin_register_vcpu_resume_cb: fn(u64, OnCpu, *mut c_void);
    qemu_plugin_register_atexit_cb: fn(u64, OnExit, *mut c_void);
    qemu_plugin_scoreboard_new: fn(usize) -> *mut c_void;
    qemu_plugin_scoreboard_find: fn(*mut c_void, c_uint) -> *mut c_void;
    qemu_plugin_request_time_control: fn() -> *const c_void;
    qemu_plugin_update_ns: fn(*const c_void, i64);
    qemu_plugin_get_registers: fn() -> *mut Array;
    qemu_plugin_read_register: fn(*mut c_void, *mut ByteArray) -> c_int;
    qemu_plugin_write_register: fn(*mut c_void, *mut ByteArray) -> c_int;
    qemu_plugin_set_pc: fn(u64);
}

/// Returns the address of a symbol of this process. `name` ends with a zero byte.
pub(crate) fn symbol(name: &str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: the name is a C string; dlsym only looks it up.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}
