//! The silicon inside the emulator: a QEMU TCG plug-in, and what it shares with its launcher.
//!
//! What registers mean, what the firmware decides and what that costs is flyball-silicon's. The
//! plug-in passes on what the guest asks of its processors, and keeps time:
//!
//! - `machine`: a machine reduced to as many CPUs as the guest gets (shared with the launcher);
//! - `layout`: where the CPPC mailbox and the P-state ports are (shared with the launcher);
//! - `settings`: the plug-in's arguments (shared with the launcher);
//! - `error`: why a machine or an emulator cannot be used;
//! - `chip`: the silicon as instructions see it: RDMSR, WRMSR, CPUID, ports, the mailbox;
//! - `scheduler`: whose turn it is, for how many instructions, and what time it is: pure, fed with
//!   events;
//! - `class`: classes of workload, which say how busy instructions keep a core;
//! - `feedback`: the table of hardware feedback;
//! - `punit`, `tpmi`, `vfio_user`, `serve`: the PCI functions of Speed Select, the memory of one of
//!   them, the protocol in which QEMU accesses them, and the threads that answer;
//! - `api`: the functions of QEMU that are called, found by name when the plug-in is loaded;
//! - `clock`: replaces QEMU's virtual clock, with a self-test;
//! - `plugin`: the callbacks. No value with a destructor lives across a call that moves the program
//!   counter, which leaves the callback by `longjmp`.

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
