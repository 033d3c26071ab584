//! Why a machine cannot be reduced to a guest's CPUs, and why an emulator cannot be used.

use std::{io, path::PathBuf};

use flyball_silicon::SpecError;
use thiserror::Error;

/// Why a machine cannot be used for a guest with this number of CPUs.
#[derive(Debug, Error)]
pub enum MachineError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("with {cpus} CPUs: {source}")]
    Reduced { cpus: u32, source: SpecError },
    #[error("{machine} has {all} CPUs, a guest of it at most {most}; {requested} are too many")]
    TooManyCpus { machine: String, all: u32, most: u32, requested: u32 },
    #[error("{0} is an Intel machine: it does not have AMD's CPPC registers")]
    NotAmd(String),
    #[error("{0} is an Arm machine: guests have x86 processors (use -M sim:{0})")]
    Arm(String),
    #[error("{0} does not have HWP")]
    NoHwp(String),
    #[error("{0}: cores with different numbers of threads; give --cpus")]
    MixedThreads(String),
    #[error("{cpus} CPUs are not a whole number of packages with {per_package} each")]
    PartOfPackage { cpus: u32, per_package: u32 },
    #[error("{cpus} CPUs are not a whole number of cores with {threads} threads")]
    PartOfCore { cpus: u32, threads: u32 },
    #[error("a guest of {machine} has {least} to {most} CPUs, one per core")]
    Hybrid { machine: String, least: u32, most: u32 },
}

/// Why the plug-in cannot be used in this emulator.
#[derive(Debug, Error)]
pub(crate) enum PluginError {
    #[error("argument '{0}' is not understood")]
    Argument(String),
    #[error("it is not a system emulator")]
    NotSystem,
    #[error("it does not have {0} (QEMU 11.1 or newer is needed)")]
    NoFunction(&'static str),
    #[error("it does not export {0}")]
    NotExported(&'static str),
    #[error("cannot {what} {path}: {source}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("the machine has {machine} CPUs and the emulator {emulator}")]
    Cpus { machine: usize, emulator: i32 },
    #[error("the guest has too little memory for its firmware tables")]
    Memory,
    #[error("it does not hand over its clock")]
    TimeControl,
    #[error("its clock functions are not those of QEMU 11")]
    ClockCode,
    #[error("its clock hooks are not at the expected offsets ({get:#x}, {set:#x})")]
    ClockHooks { get: usize, set: usize },
    #[error("its clock cannot be replaced (the trial failed)")]
    ClockTrial,
    #[error("it starts more CPUs than announced")]
    ExtraCpu,
    #[error("its CPU does not have the registers rax, rbx, rcx, rdx and rip")]
    Registers,
    #[error("it does not know its CPU {0}")]
    UnknownCpu(usize),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
