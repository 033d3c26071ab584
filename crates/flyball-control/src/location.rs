//! A place on a machine that holds a value: an attribute file, a setting of Speed Select, a control
//! group, or some bits of one register of one CPU.
//!
//! Everything that is read, planned, written, journaled and restored is identified by its location.
//! A location has a text form that can be stored ([`Location::to_text`]). Its content is kept byte
//! for byte as the kernel printed it.

use std::str::FromStr;

use flyball_host::{
    CommandKnob, Errno, Host, HostError,
    msr::{MSR_AMD_CPPC_REQ, MSR_HWP_REQUEST, MSR_IA32_ENERGY_PERF_BIAS, MSR_IA32_POWER_CTL},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::partition;

/// The file, register or other object that holds a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema, derive_more::Display)]
#[schemars(with = "String")]
pub enum Location {
    /// An attribute file, by its path.
    #[display("{}", _0)]
    File(String),
    #[display("{_0}")]
    SpeedSelect(flyball_sst::setting::Setting),
    /// A control group that has CPUs to itself, by its path.
    #[display("partition:{_0}")]
    Partition(String),
    /// A setting that the user's own commands read and write.
    #[display("knob {}", _0.name)]
    Command(Box<CommandKnob>),
    /// The bits `mask` of a model-specific register; the other bits are kept when it is written.
    #[display("MSR {register:#x} of CPU {cpu}")]
    Msr {
        cpu: u32,
        /// The register's number.
        register: u32,
        /// The bits that hold the value.
        mask: u64,
    },
}

impl Location {
    /// Names an attribute file.
    pub fn file(path: impl Into<String>) -> Location {
        Location::File(path.into())
    }

    /// Returns the path, if the location is a file.
    pub fn path(&self) -> Option<&str> {
        match self {
            Location::File(path) => Some(path),
            Location::Msr { .. }
            | Location::SpeedSelect(_)
            | Location::Partition(_)
            | Location::Command(_) => None,
        }
    }

    /// Returns the name after the last `/` for a file, or the name of a Speed Select field; empty
    /// for registers.
    pub fn name(&self) -> &str {
        match self {
            Location::File(path) => path.rsplit('/').next().unwrap_or_default(),
            Location::SpeedSelect(setting) => setting.field.name(),
            Location::Msr { .. } | Location::Partition(_) | Location::Command(_) => "",
        }
    }

    /// Reads the content: a file's bytes, or the masked bits as `0x` and hexadecimal digits.
    pub fn read(&self, host: &dyn Host) -> Result<Vec<u8>, HostError> {
        match self {
            Location::File(path) => {
                // Most attributes are one short line.
                let mut bytes = Vec::with_capacity(64);
                host.read_into(path, &mut bytes)?;
                Ok(bytes)
            }
            Location::Partition(path) => partition::read(host, path),
            Location::Command(knob) => knob.read(host),
            Location::SpeedSelect(setting) => setting.read(host).map(String::into_bytes),
            Location::Msr { cpu, register, mask } => {
                Ok(format!("{:#x}", host.msr(*cpu, *register)? & mask).into_bytes())
            }
        }
    }

    /// Writes a content in the form that [`Location::read`] returns. The bits of a register outside
    /// the mask are read first and kept.
    ///
    /// # Errors
    /// The kernel's error; `EINVAL` for a register content that is not a number.
    pub fn write(&self, host: &dyn Host, content: &[u8]) -> Result<(), HostError> {
        match self {
            Location::File(path) => {
                check_sensor(host, path)?;
                host.write(path, content)
            }
            Location::Partition(path) => partition::write(host, path, &String::from_utf8_lossy(content)),
            Location::Command(knob) => knob.write(host, content),
            Location::SpeedSelect(setting) => setting.write(host, &String::from_utf8_lossy(content)),
            Location::Msr { cpu, register, mask } => {
                let bits = std::str::from_utf8(content)
                    .ok()
                    .and_then(|text| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok())
                    .ok_or_else(|| {
                        HostError::new(flyball_host::Op::WriteMsr, self.to_text(), Errno::INVAL)
                    })?;
                // Read just before the write: another program may have changed the neighbouring
                // fields since the plan.
                let now = host.msr(*cpu, *register)?;
                host.write_msr(*cpu, *register, (now & !mask) | (bits & mask))
            }
        }
    }

    /// Writes the content from before a change. A user's knob may have a separate command for that.
    pub fn restore(&self, host: &dyn Host, content: &[u8]) -> Result<(), HostError> {
        match self {
            Location::Command(knob) => knob.restore(host, content),
            _ => self.write(host, content),
        }
    }
}

/// Checks that a hwmon path is the processor's management port. hwmon numbers change when a driver
/// is reloaded, and graphics cards have a file of the same name.
fn check_sensor(host: &dyn Host, path: &str) -> Result<(), HostError> {
    let Some(folder) = path.strip_prefix(HWMON).and_then(|_| path.strip_suffix("/power1_cap")) else {
        return Ok(());
    };
    if host.read(&format!("{folder}/name"))?.trim() == PORT_SENSOR {
        return Ok(());
    }
    Err(HostError::new(flyball_host::Op::Write, path.to_owned(), Errno::NODEV))
}

impl Location {
    /// Returns the text form for journals and JSON, which [`FromStr`] reads back. [`fmt::Display`]
    /// is for people.
    pub fn to_text(&self) -> String {
        match self {
            Location::File(path) => path.clone(),
            Location::SpeedSelect(setting) => setting.to_string(),
            Location::Partition(path) => format!("partition:{path}"),
            // The knob is a few strings, so serialization cannot fail.
            Location::Command(knob) => format!("knob:{}", serde_json::to_string(knob).unwrap_or_default()),
            Location::Msr { cpu, register, mask } => format!("msr:{cpu}:{register:#x}:{mask:#x}"),
        }
    }
}

impl FromStr for Location {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Location, &'static str> {
        if text.starts_with('/') {
            return Ok(Location::File(text.to_owned()));
        }
        if let Some(path) = text.strip_prefix("partition:") {
            return if path.starts_with('/') {
                Ok(Location::Partition(path.to_owned()))
            } else {
                Err("partition: needs a path")
            };
        }
        if let Some(json) = text.strip_prefix("knob:") {
            return serde_json::from_str(json).map(Location::Command).map_err(|_| "knob: needs its commands");
        }
        if text.starts_with("sst:") {
            return text.parse().map(Location::SpeedSelect);
        }
        fn hex(part: Option<&str>) -> Option<&str> {
            part.and_then(|part| part.strip_prefix("0x"))
        }
        let mut parts =
            text.strip_prefix("msr:").ok_or("neither a path nor msr:CPU:REGISTER:MASK")?.split(':');
        let cpu = parts.next().and_then(|part| part.parse().ok());
        let register = hex(parts.next()).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let mask = hex(parts.next()).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match (cpu, register, mask, parts.next()) {
            (Some(cpu), Some(register), Some(mask), None) => Ok(Location::Msr { cpu, register, mask }),
            _ => Err("not of the form msr:CPU:REGISTER:MASK"),
        }
    }
}

const HWMON: &str = "/sys/class/hwmon/";
/// The sensors of an EPYC's management port (drivers/platform/x86/amd/hsmp/hwmon.c).
pub(crate) const PORT_SENSOR: &str = "amd_hsmp_hwmon";

/// Directories in which flyball writes files. It never follows a journal's path elsewhere, whatever
/// wrote the journal. A test compares this list with the table.
const ROOTS: &[&str] = &[
    "/sys/devices/system/cpu/",
    "/sys/class/powercap/",
    "/sys/class/platform-profile/",
    "/sys/firmware/acpi/platform_profile",
    "/sys/devices/platform/AMDI0101:00/amd_x3d_mode",
    "/proc/irq/",
    "/proc/sys/kernel/perf_event_max_sample_rate",
    "/sys/fs/cgroup/cgroup.subtree_control",
];

/// Registers that flyball writes, or may write in another version: energy bias, power control, HWP
/// and CPPC requests.
const REGISTERS: &[u32] = &[MSR_IA32_ENERGY_PERF_BIAS, MSR_IA32_POWER_CTL, MSR_HWP_REQUEST, MSR_AMD_CPPC_REQ];

impl Location {
    /// Returns whether flyball ever writes this location. A journal that names another location is
    /// damaged or comes from another program: root must not write a file just because a journal
    /// says so.
    pub fn is_flyballs(&self) -> bool {
        let is_plain = |path: &str| {
            path.starts_with('/')
                && path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."))
                // A name with a line end could forge a line when the path is printed.
                && !path.contains(char::is_control)
        };
        match self {
            Location::File(path) => {
                // Under hwmon flyball writes only the power cap. Fan speeds are there as well.
                let is_cap = path.starts_with(HWMON) && path.ends_with("/power1_cap");
                is_plain(path) && (is_cap || ROOTS.iter().any(|root| path.starts_with(root)))
            }
            // Removing a group moves its tasks to the root group, so only groups that flyball
            // itself names qualify.
            Location::Partition(path) => path
                .strip_prefix(partition::ROOT)
                .and_then(|rest| rest.strip_prefix("/flyball"))
                .is_some_and(|rest| !rest.contains('/')),
            Location::Msr { register, .. } => REGISTERS.contains(register),
            // Only the owner of a state directory can write to its journal (`StateDir::create`), so
            // the commands in it are the owner's.
            Location::Command(knob) => knob.fault().is_none(),
            // Speed Select has a fixed set of fields.
            Location::SpeedSelect(_) => true,
        }
    }
}

impl Serialize for Location {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

impl<'de> Deserialize<'de> for Location {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Location, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The content of a location at one moment.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize, derive_more::Display)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// The bytes, as the kernel printed them.
    #[display("{}", _0.trim_end())]
    Text(String),
    /// The bytes in hexadecimal, if they are not UTF-8.
    #[display("bytes {_0}")]
    Hex(String),
    /// The errno of a failed read (EBUSY: the CPU is offline).
    #[display("unreadable ({})", Errno(*_0))]
    Unreadable(i32),
}

impl Content {
    /// Converts the result of a read to a content.
    pub fn from_read(read: &Result<Vec<u8>, HostError>) -> Content {
        match read {
            Ok(bytes) => Content::bytes(bytes),
            Err(error) => Content::Unreadable(error.errno.0),
        }
    }

    /// Converts bytes to a content.
    pub fn bytes(bytes: &[u8]) -> Content {
        match std::str::from_utf8(bytes) {
            Ok(text) => Content::Text(text.to_owned()),
            Err(_) => Content::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// Returns the bytes to write to restore it; `None` if it could not be read or the hexadecimal
    /// form is damaged.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        match self {
            Content::Text(text) => Some(text.clone().into_bytes()),
            // Only ASCII, so that slicing by two cannot split a character: the journal may be
            // damaged.
            Content::Hex(digits) if digits.len() % 2 == 0 && digits.is_ascii() => (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
                .collect(),
            Content::Hex(_) | Content::Unreadable(_) => None,
        }
    }

    /// Returns whether the location cannot be read at present: its CPU is offline, its driver is
    /// off, or its directory does not exist yet. This does not include a location that exists but
    /// has no readable form (`EINVAL`).
    pub fn is_out_of_reach(&self) -> bool {
        matches!(self, Content::Unreadable(errno)
            if [Errno::BUSY, Errno::NOENT, Errno::NODEV, Errno::AGAIN].contains(&Errno(*errno)))
    }

    /// Returns whether the read failed because every CPU of its policy was offline
    /// (`policy_is_inactive` in cpufreq.c).
    pub fn is_busy(&self) -> bool {
        *self == Content::Unreadable(Errno::BUSY.0)
    }

    /// Returns the text without white space around it; empty if there is no text.
    pub fn trimmed(&self) -> &str {
        match self {
            Content::Text(text) => text.trim(),
            Content::Hex(_) | Content::Unreadable(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn locations_survive_their_text() {
        for location in [
            Location::file("/sys/devices/system/cpu/cpufreq/boost"),
            Location::Partition("/sys/fs/cgroup/flyball".to_owned()),
            Location::Msr { cpu: 511, register: 0xc001_02b3, mask: 0xff00_0000 },
            Location::Command(Box::new(CommandKnob {
                name: "pool".to_owned(),
                read: Some("cat \"x\"\n".to_owned()),
                write: "echo {value}".to_owned(),
                restore: None,
            })),
        ] {
            assert_eq!(location.to_text().parse::<Location>().unwrap(), location);
        }
        for bad in [
            "",
            "sys/x",
            "knob:",
            "knob:{}",
            "msr:",
            "msr:1:0x774",
            "msr:1:774:0xff",
            "msr:1:0x774:0xff:1",
            "msr:-1:0x1:0x1",
        ] {
            assert!(bad.parse::<Location>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn contents_survive_json(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let content = Content::bytes(&bytes);
            let json = serde_json::to_string(&content).unwrap();
            let back: Content = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(back.to_bytes().unwrap(), bytes);
        }

        #[test]
        fn no_hex_panics(text in ".{0,12}") {
            let _ = Content::Hex(text).to_bytes();
        }
    }
}
