//! Expands a path pattern of the table to the path of one place.

use crate::{At, Topology};

/// A pattern of the table, split once: a large machine makes thousands of paths from it.
#[derive(Debug)]
pub(crate) struct Pattern<'p> {
    /// Text, and the name of the placeholder that follows it.
    pieces: Vec<(&'p str, &'p str)>,
    /// Text after the last placeholder.
    rest: &'p str,
}

impl<'p> Pattern<'p> {
    pub(crate) fn new(pattern: &'p str) -> Pattern<'p> {
        let mut pieces = Vec::new();
        let mut rest = pattern;
        while let Some((text, (name, after))) =
            rest.split_once('{').and_then(|(text, after)| Some((text, after.split_once('}')?)))
        {
            pieces.push((text, name));
            rest = after;
        }
        Pattern { pieces, rest }
    }

    /// Returns the path at `at`; `None` if the machine has no value for a placeholder.
    pub(crate) fn path(&self, topology: &Topology, at: &At) -> Option<String> {
        // 96 bytes hold every path of the table, so each of thousands of paths needs only one
        // allocation.
        let mut path = String::with_capacity(96);
        for (text, name) in &self.pieces {
            // `cpu/cpufreq/policyN` is `cpu/cpuN/cpufreq` in kernels before 4.3.
            let below = text.strip_suffix("freq/policy").filter(|_| topology.has_policies_below_cpus);
            path.push_str(below.unwrap_or(text));
            placeholder(topology, name, at, &mut path)?;
            path.push_str(if below.is_some() { "/cpufreq" } else { "" });
        }
        path.push_str(self.rest);
        Some(path)
    }
}

/// Returns the path of `pattern` at `at`; `None` if the machine has no value for a placeholder.
pub(crate) fn expand(topology: &Topology, pattern: &str, at: &At) -> Option<String> {
    Pattern::new(pattern).path(topology, at)
}

/// Appends the value of a placeholder at a place.
fn placeholder(topology: &Topology, name: &str, at: &At, path: &mut String) -> Option<()> {
    let number = match (name, at) {
        ("cpu", At::Cpu(number) | At::IdleState { cpu: number, .. })
        | ("policy", At::Policy(number))
        | ("state", At::IdleState { state: number, .. })
        | ("constraint", At::Constraint { constraint: number, .. })
        | ("sensor", At::Sensor { sensor: number, .. }) => *number,
        // One cpufreq driver serves the whole machine, so any online policy will do.
        ("any-policy", _) => topology.any_policy()?.number,
        ("zone", At::Zone(name) | At::Constraint { zone: name, .. })
        | ("uncore", At::Uncore(name))
        | ("profile-device", At::ProfileDevice(name))
        | ("hwmon", At::Sensor { hwmon: name, .. } | At::Socket { hwmon: name, .. })
        | ("port", At::Socket { port: name, .. }) => {
            path.push_str(name);
            return (!name.is_empty()).then_some(());
        }
        _ => return None,
    };
    // `write!` takes several times as long.
    path.push_str(itoa::Buffer::new().format(number));
    Some(())
}
