//! Real kernels on virtual silicon: the launcher of guests.
//!
//! A guest is an unmodified kernel in QEMU's emulator, on processors that flyball-silicon
//! simulates: its drivers find their registers, tables and mailboxes there, and get what they ask
//! for. In the closed loop guest time follows the simulated frequency, so a driver's decisions
//! change how fast the guest's work goes, what energy it takes and how warm the processor gets.
//!
//! - `apt`, `deb`, `cache`: kernels and the emulator, from the distribution's own packages, without
//!   root;
//! - `kernel`, `elf`, `modules`: a bootable kernel from a package or image, and the modules a guest
//!   needs;
//! - `cpio`, `initramfs`, `dynamic`, `init.sh`: what it boots into;
//! - `aml`, `acpi`, `machine`: the firmware's tables, from the machine's file;
//! - `fixed_loop`: a workload of a known number of instructions, to measure guest time with;
//! - `qemu`, `run`, `guest`: the emulator's command line, a run, and all of it from one request;
//! - `copy_back`: what of the guest's files comes to the host.
//!
//! All that the guest prints about itself comes from a real kernel. What our firmware provides is
//! listed in lab/docs/guest.md, with its source or marked as assumed.

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
