//! Quantities that cannot be seen on a machine, and remedies.

use std::fmt;

use flyball_host::{Errno, HostError};
use serde::{Deserialize, Serialize};

/// A group of quantities that cannot be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub what: What,
    pub why: Why,
}

/// A group of quantities that a sample lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// How fast a CPU ran.
    Speed,
    /// The registers that show why a CPU ran no faster.
    Reasons,
    /// Power of the packages.
    Power,
    /// Time in idle states.
    IdleStates,
    /// Requests of cpufreq.
    Requests,
}

/// Why a quantity is missing. The reason decides what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// This user may not read it. Has the path and the errno.
    Forbidden(String, String),
    /// The kernel does not have it here: in a container, or without a driver.
    NotThere(String),
    /// The hypervisor hides it from this virtual machine.
    Virtual(String),
    /// It is not part of the recording.
    NotRecorded(String),
}

impl Missing {
    /// Explains a failed access.
    pub(crate) fn new(what: What, error: &HostError) -> Missing {
        let errno = error.errno;
        let why = if matches!(errno, Errno::PERM | Errno::ACCES) {
            Why::Forbidden(error.path.clone(), errno.to_string())
        } else {
            Why::NotThere(error.path.clone())
        };
        Missing { what, why }
    }

    /// Returns whether another user may see it.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.why, Why::Forbidden(..))
    }

    /// Replaces the reason on virtual machines and recordings, where no kernel setting helps.
    pub(crate) fn on(self, other: impl Fn(String) -> Why) -> Missing {
        match self.why {
            Why::NotThere(place) => Missing { why: other(place), ..self },
            _ => self,
        }
    }

    /// Returns the remedy; `None` if nothing helps on this machine.
    pub fn remedy(&self) -> Option<&'static str> {
        match (&self.why, self.what) {
            (Why::Forbidden(..), What::Speed) => {
                Some("run as root, or setcap cap_perfmon=ep flyball, or sysctl kernel.perf_event_paranoid=0")
            }
            (Why::Forbidden(..), What::Power) => Some("run as root, or setcap cap_perfmon=ep flyball"),
            // Only root may read registers. The hold service shares some of them
            // (flyball_process::readings).
            (Why::Forbidden(..), What::Reasons) => {
                Some("run as root, or while flyball-hold runs: usermod -aG flyball USER")
            }
            (Why::Forbidden(..), _) => Some("run as root"),
            (Why::NotThere(path), _) if path.contains("MSR") || path.contains("/dev/cpu") => {
                Some("load the msr module: modprobe msr")
            }
            (Why::NotThere(_) | Why::Virtual(_) | Why::NotRecorded(_), _) => None,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Speed => "speed while busy",
            What::Reasons => "registers with the reasons",
            What::Power => "power",
            What::IdleStates => "idle states",
            What::Requests => "frequency requests",
        };
        match &self.why {
            Why::Forbidden(place, errno) => write!(f, "{what}: {place}: {errno}")?,
            Why::NotThere(place) => write!(f, "{what}: there is no {place}")?,
            Why::NotRecorded(place) => write!(f, "{what}: {place} was not recorded")?,
            Why::Virtual(place) => write!(f, "{what}: this virtual machine has no {place}")?,
        }
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}
