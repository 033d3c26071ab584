//! The silicon inside the emulator: a QEMU TCG plug-in, and the code that it shares with its
//! launcher.
//!
//! flyball-silicon defines the meaning of registers, the decisions of firmware, and their effects.
//! The plug-in passes the guest's accesses to its processors on to it, and keeps time:
//!
//! - `machine`: a machine reduced to the guest's number of CPUs (shared with the launcher);
//! - `layout`: addresses of the CPPC mailbox and the P-state ports (shared with the launcher);
//! - `settings`: the plug-in's arguments (shared with the launcher);
//! - `error`: why a machine or an emulator cannot be used;
//! - `chip`: the silicon's interface for instructions: RDMSR, WRMSR, CPUID, ports, the mailbox;
//! - `scheduler`: decides which CPU runs, for how many instructions, and what time it is, purely
//!   from events;
//! - `class`: classes of workload, which define how instructions load a core;
//! - `feedback`: the table of hardware feedback;
//! - `punit`, `tpmi`, `vfio_user`, `serve`: the PCI functions of Speed Select, the memory of one of
//!   them, the protocol with which QEMU accesses them, and the threads that answer;
//! - `api`: the functions of QEMU that the plug-in calls, looked up by name when it is loaded;
//! - `clock`: replaces QEMU's virtual clock, with a self-test;
//! - `plugin`: the callbacks. No value with a destructor may be live across a call that moves the
//!   program counter, because that call leaves the callback by `longjmp`.

mod api;
pub mod chip;
mod class;
mod clock;
pub mod error;
mod feedback;
pub mod layout;
pub mod machine;
mod plugin;
pub mod punit;
pub mod scheduler;
mod serve;
pub mod settings;
mod tpmi;
pub mod vfio_user;

pub use class::WorkloadClass;
