//! A pass over a machine: each file, folder and register is read once, and the answer is cached for
//! all checks.
//!
//! If two checks read different values from one file, they could contradict each other about a
//! machine that changed in between. Counters that must be seen to change (throttle counters) are
//! read again with [`Pass::read_again`].

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use flyball_host::{Errno, Host, HostError, Kind};

/// Why something could not be read.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Unseen {
    /// The recording lacks it, but the machine may have had it.
    #[display("{_0} was not recorded")]
    NotRecorded(String),
    /// The machine does not have it.
    #[display("{what} is not there{}{remedy}", if remedy.is_empty() { "" } else { ": " })]
    NotThere {
        /// A path, or a description.
        what: String,
        /// A way to make it available; may be empty.
        remedy: &'static str,
    },
    /// The msr driver is not loaded.
    #[display("MSR {_0:#x} cannot be read without the msr driver: modprobe msr")]
    NoMsrDriver(u32),
    /// Only root may read the register.
    #[display("MSR {_0:#x} needs root, and a kernel that is not locked down")]
    RegisterNeedsRoot(u32),
    /// The processor does not have the register.
    #[display("this processor has no MSR {_0:#x}")]
    NoRegister(u32),
    /// Any other error from the kernel.
    #[display("{_0}")]
    Failed(HostError),
    /// A value that makes no sense, or too few readable values.
    #[display("{_0}")]
    Other(String),
}

impl From<String> for Unseen {
    fn from(words: String) -> Unseen {
        Unseen::Other(words)
    }
}

impl From<&str> for Unseen {
    fn from(words: &str) -> Unseen {
        Unseen::Other(words.to_owned())
    }
}

/// A machine and its cached answers.
pub(super) struct Pass<'h> {
    host: &'h dyn Host,
    files: RefCell<BTreeMap<String, Result<String, Unseen>>>,
    folders: RefCell<BTreeMap<String, Vec<String>>>,
    registers: RefCell<BTreeMap<(u32, u32), Result<u64, Unseen>>>,
}

impl<'h> Pass<'h> {
    pub(super) fn over(host: &'h dyn Host) -> Pass<'h> {
        Pass { host, files: RefCell::default(), folders: RefCell::default(), registers: RefCell::default() }
    }

    /// Returns the machine itself, for Speed Select and the kernel's log, which are not cached
    /// here.
    pub(super) fn host(&self) -> &'h dyn Host {
        self.host
    }

    /// Reads an attribute; later calls return the first answer.
    pub(super) fn read(&self, path: &str) -> Result<String, Unseen> {
        if let Some(known) = self.files.borrow().get(path) {
            return known.clone();
        }
        self.read_again(path)
    }

    /// Reads an attribute again, not from the cache.
    pub(super) fn read_again(&self, path: &str) -> Result<String, Unseen> {
        let read = self.host.read(path).map_err(|error| match (error.is_absent(), self.host.kind()) {
            // A file that the recording lacks may exist on the machine.
            (true, Kind::Recorded) => Unseen::NotRecorded(path.to_owned()),
            (true, _) => Unseen::NotThere { what: path.to_owned(), remedy: "" },
            (false, _) => Unseen::Failed(error),
        });
        self.files.borrow_mut().insert(path.to_owned(), read.clone());
        read
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        // A file exists if it was read, or refused to be read.
        match self.files.borrow().get(path) {
            Some(Ok(_) | Err(Unseen::Failed(_))) => true,
            _ => self.host.exists(path),
        }
    }

    /// Lists the names in a directory; empty if it does not exist.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let mut folders = self.folders.borrow_mut();
        let names = folders
            .entry(path.to_owned())
            .or_insert_with_key(|path| self.host.list(path).unwrap_or_default());
        names.clone()
    }

    pub(super) fn msr(&self, cpu: u32, register: u32) -> Result<u64, Unseen> {
        let mut registers = self.registers.borrow_mut();
        let read = registers.entry((cpu, register)).or_insert_with(|| {
            self.host.msr(cpu, register).map_err(|error| match (self.host.kind(), error.errno) {
                (Kind::Recorded, _) => Unseen::NotRecorded(format!("MSR {register:#x}")),
                // There is no device node, or no driver behind it (msr_open returns ENXIO for an
                // offline CPU).
                (_, Errno::NOENT | Errno::NODEV | Errno::NXIO) => Unseen::NoMsrDriver(register),
                (_, Errno::PERM | Errno::ACCES) => Unseen::RegisterNeedsRoot(register),
                // rdmsr_safe_on_cpu() fails with EIO if the instruction faults (msr_read in
                // arch/x86/kernel/msr.c).
                (_, Errno::IO) => Unseen::NoRegister(register),
                _ => Unseen::Failed(error),
            })
        });
        read.clone()
    }

    /// Waits in the machine's time.
    pub(super) fn wait(&self, time: Duration) {
        self.host.sleep(time);
    }
}
