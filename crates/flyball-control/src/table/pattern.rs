//! Path patterns of the table: matching them and filling them in
//! (`cpu{cpu}/cpuidle/state{state}/disable`).

use std::{collections::BTreeMap, time::Duration};

use flyball_host::{Errno, Host, HostError};

/// Governors that have tunables in a directory of their name.
pub(crate) const GOVERNORS: [&str; 4] = ["ondemand", "conservative", "schedutil", "interactive"];

/// Placeholder names and their values in a path.
pub(crate) type Captures = Vec<(&'static str, String)>;

/// Returns the values of the placeholders of `pattern` in `path`; `None` if the path does not
/// match.
pub(crate) fn captures(pattern: &'static str, path: &str) -> Option<Captures> {
    let mut found = Captures::new();
    let mut segments = path.split('/');
    for part in pattern.split('/') {
        let segment = segments.next()?;
        match Part::parse(part) {
            Part::Fixed(text) if text == segment => {}
            Part::Fixed(_) => return None,
            Part::Variable { before, name, after } => {
                found.push((name, value_of(before, name, after, segment)?.to_owned()));
            }
        }
    }
    // The pattern must match the whole path: a longer path is another file.
    segments.next().is_none().then_some(found)
}

/// A segment of a pattern. No segment has more than one placeholder.
enum Part<'p> {
    Fixed(&'p str),
    Variable { before: &'p str, name: &'p str, after: &'p str },
}

impl<'p> Part<'p> {
    fn parse(part: &'p str) -> Part<'p> {
        let split = part
            .split_once('{')
            .and_then(|(before, rest)| rest.split_once('}').map(|(name, after)| (before, name, after)));
        match split {
            Some((before, name, after)) => Part::Variable { before, name, after },
            None => Part::Fixed(part),
        }
    }
}

/// Returns the value of the placeholder `name` in a segment, if the segment matches.
fn value_of<'s>(before: &str, name: &str, after: &str, segment: &'s str) -> Option<&'s str> {
    let value = segment.strip_prefix(before)?.strip_suffix(after)?;
    let number = || !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let fits = match name {
        "cpu" | "policy" | "state" | "constraint" | "irq" | "sensor" => number(),
        "uncore" => value.starts_with("uncore") || value.starts_with("package_"),
        "governor" => GOVERNORS.contains(&value),
        // A zone or a tunable may have any name that the kernel gives it.
        _ => !value.is_empty(),
    };
    fits.then_some(value)
}

/// Retries after an error: a write's footprint must not miss a setting because of a temporary one.
/// ENOENT is a common answer, so its retry comes without a pause.
pub(crate) fn patiently<T>(
    host: &dyn Host,
    mut ask: impl FnMut() -> Result<T, HostError>,
) -> Result<T, HostError> {
    for pause in [1, 3, 9] {
        match ask() {
            Err(error) if error.errno == Errno::NOENT => {}
            Err(_) => host.sleep(Duration::from_millis(pause)),
            answer => return answer,
        }
    }
    ask()
}

/// The folders of a machine, each listed at most once.
pub(crate) struct Listing<'h> {
    host: &'h dyn Host,
    listed: BTreeMap<String, Vec<String>>,
}

impl<'h> Listing<'h> {
    /// Creates a listing for the machine behind `host`.
    pub(crate) fn new(host: &'h dyn Host) -> Listing<'h> {
        Listing { host, listed: BTreeMap::new() }
    }

    /// Returns the names in a folder; empty if it cannot be listed.
    pub(crate) fn names(&mut self, folder: &str) -> &[String] {
        let host = self.host;
        self.listed
            .entry(folder.to_owned())
            .or_insert_with_key(|folder| patiently(host, || host.list(folder)).unwrap_or_default())
    }

    /// Returns the paths of `pattern`. `fixed` gives values for some placeholders; the others match
    /// every name in the folders. If the last segment is fixed, the file need not exist.
    pub(crate) fn paths(&mut self, pattern: &str, fixed: &[(&str, String)]) -> Vec<String> {
        let mut paths = vec![String::new()];
        for part in pattern.split('/').skip(1) {
            let mut longer = Vec::with_capacity(paths.len());
            for path in paths {
                match Part::parse(part) {
                    Part::Fixed(text) => longer.push(format!("{path}/{text}")),
                    Part::Variable { before, name, after } => {
                        if let Some((_, value)) = fixed.iter().find(|(known, _)| *known == name) {
                            longer.push(format!("{path}/{before}{value}{after}"));
                            continue;
                        }
                        let names = self.names(&path);
                        let fitting =
                            names.iter().filter(|segment| value_of(before, name, after, segment).is_some());
                        longer.extend(fitting.map(|segment| format!("{path}/{segment}")));
                    }
                }
            }
            paths = longer;
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_take_what_they_can_stand_for() {
        let state = "/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable";
        let found = captures(state, "/sys/devices/system/cpu/cpu12/cpuidle/state3/disable").unwrap();
        assert_eq!(found, [("cpu", "12".to_owned()), ("state", "3".to_owned())]);
        for other in [
            "/sys/devices/system/cpu/cpufreq/cpuidle/state3/disable",
            "/sys/devices/system/cpu/cpu12/cpuidle/state3/usage",
            "/sys/devices/system/cpu/cpu12/cpuidle/state3",
            "/sys/devices/system/cpu/cpu12/cpuidle/state3/disable/x",
        ] {
            assert_eq!(captures(state, other), None, "{other}");
        }
        let limit = "/sys/class/powercap/{zone}/constraint_{constraint}_power_limit_uw";
        assert!(captures(limit, "/sys/class/powercap/intel-rapl:0:1/constraint_1_power_limit_uw").is_some());
        assert_eq!(captures(limit, "/sys/class/powercap/intel-rapl:0:1/constraint_1_max_power_uw"), None);
    }
}
