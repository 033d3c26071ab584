//! Real kernels on virtual silicon: the launcher of guests.
//!
//! A guest is an unmodified kernel in QEMU's emulator, on processors that flyball-silicon plays: its drivers find
//! their registers, tables and mailboxes there, and what they ask for is what they get. With the closed loop guest
//! time passes as the silicon's frequency has it, so that a driver's decisions change how fast the guest's work goes,
//! what it costs and how warm it gets.
//!
//! - `apt`, `archive`, `cache`: kernels and the emulator, from the distribution's own packages, without root;
//! - `kernel`, `elf`, `modules`: a bootable kernel out of a package or image, and the modules a guest needs;
//! - `cpio`, `initramfs`, `init.sh`: what it boots into;
//! - `aml`, `acpi`, `machine`: the firmware's tables, from the machine's file;
//! - `fixed_loop`: a workload of a known number of instructions, to measure guest time with;
//! - `qemu`, `run`, `guest`: the emulator's command line, a run, and all of it from one request.
//!
//! All that the guest prints about itself comes from a real kernel. All that is our firmware is listed in
//! docs/guest.md with its source, or the word assumed.
pub mod acpi;
pub mod aml;
pub mod apt;
pub mod archive;
pub mod cache;
pub mod cpio;
mod decompress;
pub mod elf;
pub mod error;
pub mod fixed_loop;
pub mod guest;
pub mod initramfs;
pub mod kernel;
pub mod machine;
pub mod modules;
pub mod qemu;
pub mod run;
pub mod watch;

pub use flyball_guest_plugin::machine::Interface;
