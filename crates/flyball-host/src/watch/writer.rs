//! Identifies the program of a process: its name, and the service that it belongs to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process that wrote something, with its known properties.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Writer {
    /// 0 for a process of another PID namespace, and in a rehearsal.
    pub pid: u32,
    /// Name of the process, unless it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The systemd unit that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Writer {
    /// Looks up a process. It may have ended: the kernel reports a write after it was made.
    pub fn from_pid(pid: u32) -> Writer {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let name = read("comm").map(|name| name.trim_end().to_owned()).filter(|_| pid > 0);
        let unit = read("cgroup").filter(|_| pid > 0).as_deref().and_then(unit_of);
        Writer { pid, name, unit }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.pid) {
            // A rehearsal has programs, but no processes.
            (Some(name), 0) => return f.write_str(name),
            (None, 0) => return f.write_str("a process of another PID namespace"),
            (Some(name), pid) => write!(f, "{name} (pid {pid}")?,
            (None, pid) => return write!(f, "process {pid}, which has ended"),
        }
        match &self.unit {
            Some(unit) => write!(f, ", {unit})"),
            None => f.write_str(")"),
        }
    }
}

/// Returns the unit in a text of /proc/PID/cgroup: the innermost service or scope of the unified
/// hierarchy (`0::PATH`), or of systemd's own hierarchy.
fn unit_of(text: &str) -> Option<String> {
    let line = |start: &str| text.lines().find_map(|line| line.split_once(start).map(|(_, path)| path));
    let path = line("0::").filter(|path| *path != "/").or_else(|| line(":name=systemd:"))?;
    let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    path.rsplit('/').find(is_unit).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_innermost_service() {
        let of = |text: &str| unit_of(text);
        assert_eq!(of("0::/system.slice/tuned.service\n").as_deref(), Some("tuned.service"));
        let session = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope\n";
        assert_eq!(of(session).as_deref(), Some("app-x.scope"));
        assert_eq!(of("1:name=systemd:/system.slice/cron.service\n0::/\n").as_deref(), Some("cron.service"));
        assert_eq!(of("0::/\n"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_process_that_has_ended_has_a_number_only() {
        let this = Writer::from_pid(std::process::id());
        assert!(this.name.is_some());
        assert_eq!(
            Writer { name: None, ..this }.to_string(),
            format!("process {}, which has ended", std::process::id())
        );
        assert_eq!(Writer::from_pid(0).to_string(), "a process of another PID namespace");
    }
}
