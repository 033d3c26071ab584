//! Other programs that write the same knobs.
//!
//! Found by the names of running processes; for those that act and exit (TLP), by what they leave in /run. Which knobs a
//! program writes is in the rows of the table (`written_by`).

use flyball_host::Host;
use serde::Serialize;

use crate::{Id, knob::TABLE};

/// A program that writes knobs, at work on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// What it is called.
    pub name: &'static str,
    /// Its process, where one runs.
    pub pid: Option<u32>,
    /// The knobs that it writes.
    pub writes: Vec<Id>,
    /// How to make it leave them alone.
    pub remedy: &'static str,
}

/// What flyball knows of a program.
struct Known {
    program: Program,
    name: &'static str,
    /// Names of its process as the kernel keeps them (15 characters), or of the script that an interpreter runs.
    processes: &'static [&'static str],
    /// A file that shows that it was active in this boot.
    trace: Option<&'static str>,
    remedy: &'static str,
}

macro_rules! programs {
    ($($program:ident { $($field:ident: $value:expr),* $(,)? })*) => {
        /// A program that writes knobs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "their names are below")]
        pub enum Program { $($program,)* }

        const KNOWN: &[Known] = &[$(Known { program: Program::$program, $($field: $value),* }),*];
    };
}

programs! {
    Tuned {
        name: "tuned",
        processes: &["tuned"],
        trace: None,
        remedy: "tuned-adm off, or a tuned profile without the [cpu] section",
    }
    PowerProfilesDaemon {
        name: "power-profiles-daemon",
        processes: &["power-profiles-daemon"],
        trace: None,
        remedy: "systemctl stop power-profiles-daemon (mask it to keep it away)",
    }
    Tlp {
        name: "TLP",
        processes: &["tlp", "tlp-pd"],
        trace: Some("/run/tlp/last_pwr"),
        remedy: "comment out the CPU_* lines of /etc/tlp.conf; it writes again at every change between AC and battery",
    }
    AutoCpufreq {
        name: "auto-cpufreq",
        processes: &["auto-cpufreq"],
        trace: None,
        remedy: "auto-cpufreq --remove, or systemctl stop auto-cpufreq",
    }
    Thermald {
        name: "thermald",
        processes: &["thermald"],
        trace: None,
        remedy: "it lowers limits when the machine is hot: look at temperatures first; systemctl stop thermald",
    }
    System76 {
        name: "system76-power",
        processes: &["system76-power"],
        trace: None,
        remedy: "systemctl stop com.system76.PowerDaemon",
    }
    IntelLpmd {
        name: "intel-lpmd",
        processes: &["intel_lpmd"],
        trace: None,
        remedy: "systemctl stop intel_lpmd",
    }
    Throttled {
        name: "throttled",
        processes: &["throttled", "throttled.py", "lenovo_fix.py"],
        trace: None,
        remedy: "systemctl stop throttled",
    }
    GameMode {
        name: "gamemode",
        processes: &["gamemoded"],
        trace: None,
        remedy: "it changes the governor while a game runs: end the game",
    }
    Cpufreqd {
        name: "cpufreqd",
        processes: &["cpufreqd"],
        trace: None,
        remedy: "systemctl stop cpufreqd",
    }
    CpufreqApplet {
        name: "xfce/GNOME cpufreq helper",
        processes: &["cpupower-gui-helper", "cpufreqctl"],
        trace: None,
        remedy: "close the applet that uses it",
    }
}

impl Program {
    /// The knobs that it writes, in the table's order.
    pub fn writes(self) -> Vec<Id> {
        let rows = TABLE
            .iter()
            .filter(|knob| knob.control().is_some_and(|control| control.written_by.contains(&self)));
        rows.map(|knob| knob.id).collect()
    }
}

/// The known programs that are at work on the machine.
pub fn owners(host: &dyn Host) -> Vec<Owner> {
    let mut found: Vec<Owner> = Vec::new();
    let mut take = |known: &Known, pid: Option<u32>| {
        if !found.iter().any(|owner| owner.name == known.name) {
            found.push(Owner { name: known.name, pid, writes: known.program.writes(), remedy: known.remedy });
        }
    };
    for entry in host.list("/proc").unwrap_or_default() {
        let Ok(pid) = entry.parse::<u32>() else { continue };
        let Ok(name) = host.read(&format!("/proc/{pid}/comm")) else { continue };
        let script = if name.starts_with("python") { script_of(host, pid) } else { None };
        for known in KNOWN {
            let is = |process: &str| cut(process) == name || script.as_deref() == Some(process);
            if known.processes.iter().any(|process| is(process)) {
                take(known, Some(pid));
            }
        }
    }
    for known in KNOWN {
        if known.trace.is_some_and(|trace| host.exists(trace)) {
            take(known, None);
        }
    }
    found
}

/// The process names of all programs, as the kernel keeps them.
#[cfg(test)]
pub(crate) fn processes() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().flat_map(|known| known.processes).map(|process| cut(process))
}

/// The kernel keeps 15 characters of a process name (TASK_COMM_LEN).
fn cut(name: &str) -> &str {
    name.get(..15).unwrap_or(name)
}

/// The file name of the script that an interpreter runs.
fn script_of(host: &dyn Host, pid: u32) -> Option<String> {
    let line = host.read(&format!("/proc/{pid}/cmdline")).ok()?;
    let script = line.split('\0').skip(1).find(|word| !word.starts_with('-'))?;
    Some(script.rsplit('/').next().unwrap_or(script).to_owned())
}

#[cfg(test)]
mod tests {
    use flyball_host::Recorded;

    use super::*;

    #[test]
    fn daemons_are_found_by_process_script_and_trace() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("sys/x", "");
        put("proc/12/comm", "power-profiles-\n");
        put("proc/13/comm", "python3\n");
        put("proc/13/cmdline", "/usr/bin/python3\0-Es\0/usr/sbin/tuned\0-l\0");
        put("proc/14/comm", "tunedish\n");
        put("proc/self/comm", "thermald\n");
        put("run/tlp/last_pwr", "0\n");
        let host = Recorded::open(folder.path()).unwrap();
        let found: Vec<_> = owners(&host).into_iter().map(|owner| (owner.name, owner.pid)).collect();
        assert_eq!(found, [("power-profiles-daemon", Some(12)), ("tuned", Some(13)), ("TLP", None)]);
    }
}
