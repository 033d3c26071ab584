//! From a path pattern of the table to the path of one place.

use crate::{At, Topology};

/// The path that `pattern` means at `at`; `None` where the machine has nothing to put for a placeholder.
pub(crate) fn expand(topology: &Topology, pattern: &str, at: &At) -> Option<String> {
    let mut path = String::with_capacity(pattern.len() + 16);
    // Where the next piece of text begins, and where the name of a placeholder.
    let (mut text, mut name) = (0, None);
    for (index, byte) in pattern.bytes().enumerate() {
        match byte {
            b'{' => {
                path.push_str(&pattern[text..index]);
                name = Some(index + 1);
            }
            b'}' => {
                placeholder(topology, &pattern[name.take()?..index], at, &mut path)?;
                text = index + 1;
            }
            _ => {}
        }
    }
    path.push_str(&pattern[text..]);
    Some(path)
}

fn placeholder(topology: &Topology, name: &str, at: &At, path: &mut String) -> Option<()> {
    match (name, at) {
        ("cpu", At::Cpu(number) | At::IdleState { cpu: number, .. }) | ("policy", At::Policy(number)) => {
            digits(*number, path)
        }
        ("state", At::IdleState { state, .. }) => digits(*state, path),
        ("zone", At::Zone(zone) | At::Constraint { zone, .. }) | ("uncore", At::Uncore(zone)) => {
            path.push_str(zone);
            Some(())
        }
        ("constraint", At::Constraint { constraint, .. }) => digits(*constraint, path),
        ("hwmon", At::Sensor { hwmon, .. }) => {
            path.push_str(hwmon);
            Some(())
        }
        ("sensor", At::Sensor { sensor, .. }) => digits(*sensor, path),
        // One cpufreq driver serves the whole machine, so any policy that is online will do.
        ("any-policy", _) => digits(topology.any_policy()?.number, path),
        _ => None,
    }
}

/// Appends a number. Tens of thousands of paths are made on a large machine; `write!` takes twice the time.
fn digits(number: u32, path: &mut String) -> Option<()> {
    if number >= 10 {
        digits(number / 10, path)?;
    }
    path.push(char::from_digit(number % 10, 10)?);
    Some(())
}
