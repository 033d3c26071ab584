//! Real kernels on virtual silicon: the launcher of guests.
//!
//! A guest is an unmodified kernel in QEMU's emulator, on processors that flyball-silicon
//! simulates. Its drivers find their registers, tables and mailboxes there, and their requests take
//! effect. In the closed loop guest time follows the simulated frequency, so a driver's decisions
//! change the speed of the guest's work, its energy, and the temperature of the processor.
//!
//! - `apt`, `deb`, `cache`: kernels and the emulator, from the distribution's own packages, without
//!   root;
//! - `kernel`, `elf`, `modules`: a bootable kernel from a package or image, and the modules that a
//!   guest needs;
//! - `cpio`, `initramfs`, `dynamic`, `init.sh`: the guest's initramfs;
//! - `aml`, `acpi`, `machine`: the firmware's tables, from the machine's file;
//! - `fixed_loop`: a workload with a known number of instructions, to measure guest time;
//! - `qemu`, `run`, `guest`: the emulator's command line, a run, and everything from one request;
//! - `copy_back`: which of the guest's files are copied to the host.
//!
//! Everything that the guest prints about itself comes from a real kernel. lab/docs/guest.md lists
//! what our firmware provides, with its source or marked as assumed.

mod acpi;
mod aml;
pub mod apt;
pub mod cache;
mod copy_back;
mod cpio;
mod deb;
mod decompress;
mod dynamic;
mod elf;
pub mod error;
pub mod fixed_loop;
pub mod guest;
pub mod initramfs;
pub mod kernel;
pub mod machine;
mod modules;
pub mod qemu;
pub mod run;
pub mod untrusted;
pub mod watch;

pub use flyball_guest_plugin::{WorkloadClass, machine::Interface};
