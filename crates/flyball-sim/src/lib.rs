//! Simulated machines: kernel-like drivers, governors and files on processors in software.
//!
//! A [`SimMachine`] answers to paths as a Linux machine's sysfs, procfs and MSR devices do,
//! attribute by attribute and errno by errno, by kernel version ([`Kernel`]). Behind the files,
//! models of the cpufreq drivers and governors write the registers of [`flyball_silicon`]'s
//! processors, so that a setting changes frequency, power and heat. The machine has its own clock
//! and nothing random: the same calls give the same bytes.
//!
//! The reference is the answers of real kernels, not flyball's own tables. This crate therefore
//! uses no other crate of flyball than flyball-silicon.
//!
//! ```
//! use flyball_sim::{Boot, Kernel, SimMachine};
//! use flyball_silicon::MachineSpec;
//!
//! let spec = MachineSpec::builtin("ryzen-5750g").unwrap();
//! let mut machine = SimMachine::boot(spec, Kernel::V6_12, Boot::default(), 0).unwrap();
//! let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
//! assert!(machine.write(path, b"powersave\n").is_ok());
//! assert_eq!(machine.read(path).unwrap(), b"powersave\n");
//! ```

mod board;
pub mod check;
mod chip;
mod cpu_state;
mod cpufreq;
mod cpuid;
mod errno;
mod fault;
mod firmware;
pub mod governor;
mod idle;
mod isst;
mod isst_drivers;
mod kernel;
mod load;
mod machine;
mod recorded;
#[cfg(feature = "serve")]
pub mod serve;
mod settings;
mod text;
mod trace;
mod tree;
pub mod workload;
mod world;

pub use errno::{Answer, Errno};
pub use fault::{FORMS as FAULT_FORMS, Fault, Op, RuleError, RuleFlaw};
pub use flyball_silicon as silicon;
pub use isst::{Caller, argument_size};
pub use kernel::{Kernel, UnknownKernel};
pub use load::{CpuWork, Load, Steady, Step};
pub use machine::{Kind, SimMachine, try_machine_file};
pub use recorded::{DescribeError, Recording, describe};
pub use world::Boot;
