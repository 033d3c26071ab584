//! The host interface, through which all access to a machine goes.
//!
//! Everything that flyball reads from a computer or changes on it passes through the [`Host`]
//! trait: attribute files by the path that the kernel gives them, model-specific registers by
//! number, Speed Select calls by ioctl number, tracefs, and programs. A host is the running kernel
//! ([`Live`]), a directory or an archive that holds a recorded machine ([`Recorded`], [`Archive`]),
//! or a simulated machine (flyball-simhost). The crates above do not distinguish them; [`Software`]
//! has the functions of simulated machines. No path under `/sys`, `/proc` or `/dev` is opened
//! anywhere else.
//!
//! A host is a value: one process can have several, with different roots.

mod archive;
pub mod cgroup;
mod child;
mod command_knob;
pub mod cpuidle;
mod cpuinfo;
mod cpulist;
mod emulated;
mod error;
mod forward;
pub mod isolation;
pub mod isst;
mod kept;
mod live;
pub mod msr;
mod msrfile;
mod perf_event;
mod plain;
mod recorded;
pub mod recorder;
pub mod thermal;
pub mod topology;
pub mod tracefs;
mod units;
pub mod watch;

pub use archive::{Archive, ArchiveError};
pub use child::{Ended, Launch, Process, Running, Usage};
pub use command_knob::CommandKnob;
pub use cpuinfo::{CpuIds, CpuInfo, Vendor};
pub use cpulist::{CpuList, CpuListError};
pub use emulated::{emulated, simulated};
pub use error::{Errno, HostError, Op, words_of};
pub use kept::KeptFile;
pub use live::Live;
pub use perf_event::{EventCounter, EventGroup, ProgramCounters};
pub use plain::Plain;
pub use recorded::Recorded;
pub use recorder::{Summary, record};
pub use topology::{CpuTopology, online_cpus};
pub use units::{
    Celsius, Epb, Epp, Joules, KiloHertz, MegaHertz, MicroJoules, MicroWatts, Micros, ParseUnitError,
    Percent, Perf, Watts,
};

use std::time::Duration;

/// The kind of machine of a [`Host`], for messages and reports.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The kernel that this process runs on.
    Live,
    /// Files that were copied from a machine earlier; cannot be written.
    Recorded,
    /// A machine in software; every report about it says so.
    Simulated,
}

/// One machine, as seen through its kernel's interfaces.
///
/// Paths are absolute and spelled as the machine's own kernel spells them
/// (`/sys/devices/system/cpu/online`), whatever root the implementation keeps them under. All calls
/// are synchronous and may be made from several threads.
pub trait Host: Send + Sync {
    fn kind(&self) -> Kind;

    /// Returns the machine's name for messages: `live`, `guest of NAME, ...`, a directory,
    /// `sim:NAME`.
    fn name(&self) -> String;

    /// Reads a whole attribute into `buffer`, which is cleared first.
    ///
    /// # Errors
    /// The kernel's errno for open(2) or read(2), with the path.
    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError>;

    /// Writes `bytes` to an attribute in one write(2), as sysfs requires.
    ///
    /// # Errors
    /// The kernel's errno; [`Errno::ROFS`] from a recorded machine.
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError>;

    /// Makes a directory, mode 0755: a control group, or a tracing instance.
    ///
    /// # Errors
    /// The errno of mkdir(2); [`Errno::ROFS`] if the machine cannot be changed.
    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        Err(HostError::new(Op::Write, path, Errno::ROFS))
    }

    /// Removes a directory: a control group that holds no task.
    ///
    /// # Errors
    /// The errno of rmdir(2); [`Errno::ROFS`] if the machine cannot be changed.
    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        Err(HostError::new(Op::Write, path, Errno::ROFS))
    }

    /// Lists the names in a directory, sorted so that `cpu2` comes before `cpu10`.
    fn list(&self, path: &str) -> Result<Vec<String>, HostError>;

    /// Returns whether `path` exists (following links).
    fn exists(&self, path: &str) -> bool;

    /// Returns whether the attribute at `path` has a write permission bit; `false` if it does not
    /// exist.
    fn writable(&self, path: &str) -> bool;

    /// Returns the target text of a symbolic link.
    fn link(&self, path: &str) -> Result<String, HostError>;

    /// Reads model-specific register `register` of CPU `cpu`.
    ///
    /// # Errors
    /// `ENOENT`/`ENODEV` without the msr driver or CPU, `EIO` for a register that the CPU does not
    /// have.
    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError>;

    /// Executes CPUID on the CPU on which this thread runs, so that no other CPU wakes; `None` if
    /// the machine's processor cannot be queried.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        let _ = (leaf, subleaf);
        None
    }

    /// Writes model-specific register `register` of CPU `cpu`.
    ///
    /// # Errors
    /// Same as [`Host::msr`]; `EPERM` under lockdown.
    fn write_msr(&self, cpu: u32, register: u32, value: u64) -> Result<(), HostError>;

    /// Makes one ioctl on `/dev/isst_interface`; `argument` is the call's structure, changed in
    /// place.
    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError>;

    /// Returns the file in which Speed Select programs cache the positions of CPUs, since sysfs has
    /// none for offline CPUs; `None` for a machine whose state is not kept between commands.
    fn topology_cache(&self) -> Option<std::path::PathBuf> {
        None
    }

    /// Returns the kernel's log, oldest line first. A recorded machine has it in `kernel.log` next
    /// to `sys/`.
    ///
    /// # Errors
    /// `EPERM` if ordinary users may not read the log (kernel.dmesg_restrict); `ENOENT` if none was
    /// recorded.
    fn kernel_log(&self) -> Result<String, HostError> {
        Err(HostError::new(Op::Read, "the kernel log", Errno::NOENT))
    }

    /// Opens a counter of event `config` of the PMU with type number `kind`
    /// (`/sys/bus/event_source/devices/NAME/type`) on `cpu`, for all tasks. Only a live machine has
    /// these.
    ///
    /// # Errors
    /// The errno of perf_event_open(2); `ENOSYS` if there are no counters.
    fn event_counter(&self, kind: u32, config: u64, cpu: u32) -> Result<Box<dyn EventCounter>, HostError> {
        let name = format!("event {config:#x} of PMU type {kind} on CPU {cpu}");
        Err(HostError::new(Op::Read, name, Errno::NOSYS))
    }

    /// Opens counters of one CPU that are read together, with one interrupt of that CPU. Each event
    /// is given as the PMU's type number and the event's config. Only a live machine has these.
    fn event_group(&self, events: &[(u32, u64)], cpu: u32) -> Result<Box<dyn EventGroup>, HostError> {
        let name = format!("{} events of CPU {cpu}", events.len());
        Err(HostError::new(Op::Read, name, Errno::NOSYS))
    }

    /// Opens counters of the programs that this thread starts from now on, and of their
    /// descendants. Each event is given as the PMU's type number and the event's config. All of
    /// them count or none. Only a live machine has these.
    fn program_counters(&self, events: &[(u32, u64)]) -> Result<Box<dyn ProgramCounters>, HostError> {
        let name = format!("{} events of programs", events.len());
        Err(HostError::new(Op::Read, name, Errno::NOSYS))
    }

    /// Keeps a file open that will be read many times. Returns `None` if that is impossible or
    /// saves nothing; then read it with [`Host::read_into`] or [`Host::msr`].
    ///
    /// # Errors
    /// The errno of open(2).
    fn keep_open(&self, path: &str) -> Result<Option<Box<dyn KeptFile>>, HostError> {
        let _ = path;
        Ok(None)
    }

    /// Returns the readings that this machine's hold service shares with users who may not read
    /// them directly.
    ///
    /// # Errors
    /// The errno of connect(2); `EACCES` for a user whom the service refuses, `ENOSYS` for a
    /// machine without the service.
    fn shared_readings(&self) -> Result<flyball_process::readings::Readings, HostError> {
        Err(HostError::new(Op::Read, "shared readings", Errno::NOSYS))
    }

    /// Returns the machine's tracefs.
    ///
    /// # Errors
    /// `EACCES`/`EPERM` without the right to access it, `ENODEV` in a kernel without tracing,
    /// `ENOSYS` for a recorded machine.
    fn tracefs(&self) -> Result<tracefs::Tracefs, HostError> {
        Err(HostError::new(Op::Read, "tracefs", Errno::NOSYS))
    }

    /// Starts a program on the machine. A simulated machine runs the workload model that the words
    /// name.
    ///
    /// # Errors
    /// `NotFound` for a program that does not exist; `Unsupported` on a recorded machine;
    /// `InvalidInput` for words that name no model, with what is expected.
    fn spawn(&self, launch: Launch) -> std::io::Result<Box<dyn Process>> {
        let _ = launch;
        Err(std::io::Error::new(
            std::io::ErrorKind::Unsupported,
            format!("{} is a recording: nothing can run on it", self.name()),
        ))
    }

    /// Returns the functions that only a simulated machine has; `None` for other machines.
    fn software(&self) -> Option<&dyn Software> {
        None
    }

    /// Returns the kernel's name, the machine's name, release and architecture, as in uname(2).
    fn uname(&self) -> String {
        let said = |name: &str| self.read(&format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        format!("Linux {} {} x86_64", said("hostname"), said("osrelease"))
    }

    /// Returns the machine's own monotonic clock. A simulated machine's clock runs at the speed of
    /// the simulation.
    fn now(&self) -> Duration;

    /// Waits, in the machine's own time.
    fn sleep(&self, time: Duration);

    /// Reads an attribute as text without its trailing white space.
    ///
    /// # Errors
    /// Same as [`Host::read_into`]; [`Errno::ILSEQ`] if the content is not UTF-8.
    fn read(&self, path: &str) -> Result<String, HostError> {
        let mut buffer = Vec::with_capacity(128);
        self.read_into(path, &mut buffer)?;
        let mut text = String::from_utf8(buffer).map_err(|_| HostError::new(Op::Read, path, Errno::ILSEQ))?;
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// Reads an attribute; `None` if it does not exist (`ENOENT`, `ENODEV`, `ENOTDIR`).
    ///
    /// # Errors
    /// Any other failure: the attribute should exist but cannot be read.
    fn read_optional(&self, path: &str) -> Result<Option<String>, HostError> {
        match self.read(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether the processor reports cores of different types: CPUID leaf 0x80000026, EAX bit
/// 30 (AMD APM volume 3). `None` if it cannot be queried.
pub fn has_core_kinds(host: &dyn Host) -> Option<bool> {
    const LEAF: u32 = 0x8000_0026;
    let last = host.cpuid(0x8000_0000, 0)?[0];
    Some(last >= LEAF && host.cpuid(LEAF, 0)?[0] >> 30 & 1 == 1)
}

/// A simulated machine. It boots on request, and runs models of workloads ([`Host::spawn`]) in its
/// own time, which passes only in [`Host::sleep`] and [`Process::wait`].
pub trait Software {
    /// Returns the model that the words name, as in [`Host::spawn`].
    ///
    /// # Errors
    /// `InvalidInput` for words that name no model.
    fn model(&self, words: &[String]) -> std::io::Result<Model>;

    /// Reboots the machine with these words added to the kernel command line that it was opened
    /// with. Its clock continues.
    ///
    /// # Errors
    /// The words with which the machine cannot boot.
    fn reboot(&self, words: &[String]) -> std::io::Result<()>;

    /// Seeds the random differences between runs of a workload, and between boots. Two machines
    /// with the same numbers behave the same.
    fn vary(&self, run: u64);

    /// Returns the wake-up time from an idle state of a CPU (state numbers as in cpuidle) that a
    /// share `below` of the wake-ups does not exceed.
    fn wake_latency(&self, cpu: u32, state: u32, below: f64) -> Duration;

    /// Returns whether its state is kept in a file between commands, so that it must not boot again
    /// between them.
    fn is_kept(&self) -> bool;
}

/// The model of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub name: String,
    /// The unit of its work per second, if its result is a rate. Otherwise the result is the time
    /// that it takes.
    pub rate_unit: Option<String>,
}
