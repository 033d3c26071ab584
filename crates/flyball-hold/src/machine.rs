//! The machines to which an entry of hold.toml applies, so that one file serves a mixed fleet.

use flyball_control::kernel_release;
use flyball_host::{CpuInfo, Host, topology::scaling_driver};

/// The facts that entries are matched against. They do not change while the machine runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineFacts {
    /// `intel`, `amd` or `other`.
    pub vendor: String,
    /// The processor's name, as in /proc/cpuinfo.
    pub model: String,
    /// The kernel's release.
    pub kernel: String,
    /// The driver of the first cpufreq policy; empty without one.
    pub driver: String,
    /// True if a hypervisor runs below.
    pub is_virtual: bool,
}

impl MachineFacts {
    /// Reads the facts. A fact that cannot be read is empty and matches nothing.
    pub fn look(host: &dyn Host) -> MachineFacts {
        let info = CpuInfo::read(host).unwrap_or_default();
        MachineFacts {
            vendor: info.vendor().to_string().to_lowercase(),
            model: info.model_name.clone().unwrap_or_default(),
            kernel: kernel_release(host).unwrap_or_default(),
            driver: scaling_driver(host).unwrap_or_default(),
            is_virtual: info.is_virtual(),
        }
    }
}

/// A bound on the kernel's release, such as `>=6.9` or `<6.9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KernelBound {
    is_minimum: bool,
    version: (u32, u32),
}

impl KernelBound {
    fn parse(text: &str) -> Option<KernelBound> {
        let (is_minimum, version) = match text.strip_prefix(">=") {
            Some(version) => (true, version),
            None => (false, text.strip_prefix('<')?),
        };
        Some(KernelBound { is_minimum, version: version_of(version.trim(), true)? })
    }

    fn is_met(self, release: &str) -> bool {
        version_of(release, false).is_some_and(|version| (version >= self.version) == self.is_minimum)
    }
}

/// Parses the first two numbers of a release such as `6.9.3-arch1`. With `is_whole`, for a bound
/// that a person wrote, nothing may follow them.
fn version_of(text: &str, is_whole: bool) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if is_whole && digits != rest.len() {
        return None;
    }
    Some((major.parse().ok()?, rest[..digits].parse().ok()?))
}

/// An entry's requirements on the machine. All that are given must be met.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirement {
    vendor: Option<String>,
    model: Option<String>,
    kernel: Option<(String, KernelBound)>,
    driver: Option<String>,
    is_virtual: Option<bool>,
}

impl Requirement {
    /// Adds a requirement; `None` if the key is of another kind.
    pub fn add(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        let text = Some(value.to_lowercase()).filter(|text| !text.is_empty());
        let is_good = match key {
            "vendor" => {
                self.vendor = text.filter(|text| ["intel", "amd", "other"].contains(&text.as_str()));
                self.vendor.is_some()
            }
            "model" => {
                self.model = text;
                self.model.is_some()
            }
            "driver" => {
                self.driver = text;
                self.driver.is_some()
            }
            "kernel" => {
                self.kernel = KernelBound::parse(value).map(|bound| (value.to_owned(), bound));
                self.kernel.is_some()
            }
            "virtual" => {
                self.is_virtual = match value {
                    "yes" => Some(true),
                    "no" => Some(false),
                    _ => None,
                };
                self.is_virtual.is_some()
            }
            _ => return None,
        };
        let accepted = match key {
            "vendor" => "vendor is intel, amd or other",
            "kernel" => "kernel is a version with >= or < in front, as in \">=6.9\"",
            "virtual" => "virtual is yes or no",
            _ => "it must not be empty",
        };
        Some(if is_good { Ok(()) } else { Err(accepted.to_owned()) })
    }

    /// Returns the first requirement that the machine does not meet, with the machine's value.
    pub fn unmet(&self, machine: &MachineFacts) -> Option<String> {
        let contains = |has: &str, wanted: &String| has.to_lowercase().contains(wanted.as_str());
        if let Some(vendor) = self.vendor.as_ref().filter(|vendor| **vendor != machine.vendor) {
            return Some(format!("vendor is {vendor}, this machine has {}", machine.vendor));
        }
        if let Some(model) = self.model.as_ref().filter(|model| !contains(&machine.model, model)) {
            return Some(format!("model is {model}, this machine has '{}'", machine.model));
        }
        if let Some((text, _)) = self.kernel.as_ref().filter(|(_, bound)| !bound.is_met(&machine.kernel)) {
            return Some(format!("kernel is {text}, this machine runs {}", machine.kernel));
        }
        if let Some(driver) = self.driver.as_ref().filter(|driver| **driver != machine.driver) {
            let has = if machine.driver.is_empty() { "none" } else { machine.driver.as_str() };
            return Some(format!("driver is {driver}, this machine has {has}"));
        }
        let is_virtual = self.is_virtual.filter(|is_virtual| *is_virtual != machine.is_virtual)?;
        let (wanted, has) = if is_virtual { ("yes", "is not virtual") } else { ("no", "is virtual") };
        Some(format!("virtual is {wanted}, this machine {has}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_requirement_is_judged_and_wrong_ones_are_refused() {
        let machine = MachineFacts {
            vendor: "amd".to_owned(),
            model: "AMD EPYC 9654 96-Core Processor".to_owned(),
            kernel: "6.10.3-arch1".to_owned(),
            driver: "amd-pstate-epp".to_owned(),
            is_virtual: false,
        };
        for (key, met, unmet) in [
            ("vendor", "AMD", "intel"),
            ("model", "epyc 9", "Xeon"),
            ("kernel", ">=6.9", "<6.10"),
            ("kernel", "<6.11", ">=7.0"),
            ("driver", "amd-pstate-epp", "amd-pstate"),
            ("virtual", "no", "yes"),
        ] {
            let of = |value: &str| {
                let mut requirement = Requirement::default();
                requirement.add(key, value).unwrap().unwrap();
                requirement.unmet(&machine)
            };
            assert_eq!(of(met), None, "{key}");
            assert!(of(unmet).unwrap().starts_with(&format!("{key} is ")), "{key}");
        }
        for (key, wrong) in
            [("vendor", "arm"), ("kernel", "6.9"), ("kernel", ">=6"), ("virtual", "true"), ("model", "")]
        {
            assert!(Requirement::default().add(key, wrong).unwrap().is_err(), "{key}={wrong}");
        }
        assert!(Requirement::default().add("power", "ac").is_none());
        // Nothing is known about the machine, so only an entry without requirements matches.
        assert_eq!(Requirement::default().unmet(&MachineFacts::default()), None);
    }
}
