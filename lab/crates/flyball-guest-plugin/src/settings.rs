//! The plug-in's arguments, each as `key=value`: the launcher writes them and the plug-in reads
//! them.

use std::path::PathBuf;

use crate::{class::WorkloadClass, error::PluginError, machine::Interface};

/// How time passes in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Like host time, at full speed: for tests that do not depend on time.
    Open,
    /// With executed instructions, at the frequency from the silicon.
    Closed,
}

/// The plug-in's settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// File with the machine's TOML.
    pub machine: PathBuf,
    /// Number of the guest's CPUs.
    pub cpus: u32,
    /// Used instead of the machine's interface.
    pub interface: Option<Interface>,
    pub time: Time,
    /// The silicon's random seed.
    pub seed: u64,
    /// The file of the guest's memory, if the mailbox is in it.
    pub memory: Option<PathBuf>,
    /// A file to log every register write to.
    pub log: Option<PathBuf>,
    /// A file for the silicon's state, one line per millisecond of guest time.
    pub trace: Option<PathBuf>,
    /// The directory for the sockets of PCI functions, if the machine has such functions.
    pub sockets: Option<PathBuf>,
    /// Cycles per instruction, in 1/256 (closed loop).
    pub cycles: u32,
    /// Memory's part of an instruction's time (closed loop).
    pub class: WorkloadClass,
    /// True if the guest may inject firmware faults with [`FAULTS`].
    pub faults: bool,
    /// Length of a CPU's turn, nanoseconds of guest time (closed loop).
    pub slice_ns: u64,
}

/// Default cycles per instruction: with 16, a guest second takes about a host second.
pub const CYCLES: u32 = 16 * 256;

/// A register that no processor has, in the range that is reserved for emulators (Intel's manual,
/// volume 4, 2.1: from 40000000h to 400000FFh). Writing to it injects firmware faults; 0 ends them.
/// Bit 0: mailboxes stay busy. Bit 1: Speed Select rejects changes without announcing it. Bit 2:
/// performance levels are locked.
pub const FAULTS: u32 = 0x4000_00fb;

/// Default length of a turn.
pub const SLICE_NS: u64 = 50_000;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            machine: PathBuf::new(),
            cpus: 0,
            interface: None,
            time: Time::Open,
            seed: 0,
            memory: None,
            log: None,
            trace: None,
            sockets: None,
            cycles: CYCLES,
            class: WorkloadClass::INTEGER,
            faults: false,
            slice_ns: SLICE_NS,
        }
    }
}

impl Settings {
    /// Returns the settings as arguments for QEMU's `-plugin FILE,ARG,ARG`, with commas in paths
    /// doubled.
    pub fn arguments(&self) -> Vec<String> {
        let mut out = vec![
            format!("machine={}", self.machine.display()),
            format!("cpus={}", self.cpus),
            format!("time={}", if self.time == Time::Open { "open" } else { "closed" }),
            format!("seed={}", self.seed),
            format!("cycles={}", self.cycles),
            format!("class={}", self.class.name),
            format!("slice={}", self.slice_ns),
        ];
        out.extend(self.faults.then(|| "faults=yes".to_owned()));
        out.extend(self.interface.map(|i| format!("interface={}", i.word())));
        let paths = [
            ("memory", &self.memory),
            ("log", &self.log),
            ("trace", &self.trace),
            ("sockets", &self.sockets),
        ];
        for (key, path) in paths {
            out.extend(path.as_ref().map(|path| format!("{key}={}", path.display())));
        }
        // QEMU's option parser ends an argument at a single comma.
        out.into_iter().map(|arg| arg.replace(',', ",,")).collect()
    }

    /// Parses the arguments as QEMU passes them (single commas).
    pub(crate) fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Settings, PluginError> {
        let mut settings = Settings::default();
        for argument in arguments {
            let bad = || PluginError::Argument(argument.to_owned());
            let (key, value) = argument.split_once('=').ok_or_else(bad)?;
            match key {
                "machine" => settings.machine = value.into(),
                "cpus" => settings.cpus = value.parse().map_err(|_| bad())?,
                "interface" => settings.interface = Some(Interface::parse(value).ok_or_else(bad)?),
                "time" if value == "open" => settings.time = Time::Open,
                "time" if value == "closed" => settings.time = Time::Closed,
                "seed" => settings.seed = value.parse().map_err(|_| bad())?,
                "memory" => settings.memory = Some(value.into()),
                "log" => settings.log = Some(value.into()),
                "trace" => settings.trace = Some(value.into()),
                "sockets" => settings.sockets = Some(value.into()),
                "cycles" => settings.cycles = value.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?,
                "faults" if value == "yes" => settings.faults = true,
                "class" => settings.class = WorkloadClass::named(value).ok_or_else(bad)?,
                "slice" => {
                    settings.slice_ns =
                        // If a slice were longer than the lag of the clock on QEMU's main thread
                        // (`LAG`), that thread would run the guest's timers.
                        value.parse().ok().filter(|n| (1_000..=1_000_000).contains(n)).ok_or_else(bad)?;
                }
                _ => return Err(bad()),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_back() {
        let settings = Settings {
            machine: "/a,b.toml".into(),
            cpus: 4,
            interface: Some(Interface::CppcMailbox),
            time: Time::Closed,
            class: WorkloadClass::named("memory").unwrap(),
            seed: 7,
            faults: true,
            memory: Some("/proc/self/fd/3".into()),
            log: Some("/l".into()),
            sockets: Some("/s".into()),
            ..Settings::default()
        };
        let arguments: Vec<String> = settings.arguments().iter().map(|a| a.replace(",,", ",")).collect();
        assert_eq!(Settings::parse(arguments.iter().map(String::as_str)).unwrap(), settings);
        for bad in ["cycles=0", "slice=1", "time=maybe", "x", "cpus=-1", "class=fast", "faults=1", "what=1"] {
            assert!(Settings::parse([bad]).is_err(), "{bad}");
        }
    }
}
