//! From a path pattern of the table to the path of one place.

use crate::{At, Machine, topology::CPUS};

impl Machine<'_> {
    /// The path that `pattern` means at `at`; `None` where the machine has nothing to put for a placeholder.
    pub(crate) fn expand(&self, pattern: &str, at: &At) -> Option<String> {
        let mut path = String::with_capacity(pattern.len() + CPUS.len());
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once('{') {
            path.push_str(before);
            let (name, after) = after.split_once('}')?;
            self.placeholder(name, at, &mut path)?;
            rest = after;
        }
        path.push_str(rest);
        Some(path)
    }

    fn placeholder(&self, name: &str, at: &At, path: &mut String) -> Option<()> {
        use std::fmt::Write;
        match (name, at) {
            ("cpu", At::Cpu(number) | At::IdleState { cpu: number, .. }) | ("policy", At::Policy(number)) => {
                write!(path, "{number}").ok()
            }
            ("state", At::IdleState { state, .. }) => write!(path, "{state}").ok(),
            ("zone", At::Zone(zone) | At::Constraint { zone, .. }) | ("uncore", At::Uncore(zone)) => {
                path.push_str(zone);
                Some(())
            }
            ("constraint", At::Constraint { constraint, .. }) => write!(path, "{constraint}").ok(),
            ("hwmon", At::Sensor { hwmon, .. }) => {
                path.push_str(hwmon);
                Some(())
            }
            ("sensor", At::Sensor { sensor, .. }) => write!(path, "{sensor}").ok(),
            // One cpufreq driver serves the whole machine: any policy that is online can tell.
            ("any-policy", _) => {
                let policy = self.topology().policies.iter().find(|policy| !policy.online.is_empty())?;
                write!(path, "{}", policy.number).ok()
            }
            _ => None,
        }
    }
}
