//! Other programs that write the same knobs.
//!
//! flyball finds them by the names of running processes. Programs that act and exit (TLP) are found
//! by the files that they leave in /run. The rows of the table list the knobs that a program writes
//! (`written_by`).

use std::collections::BTreeSet;

use flyball_host::Host;
use serde::Serialize;

use crate::{
    Id, TABLE,
    programs::{KNOWN, KnownProgram, Program},
};

/// A program that writes knobs and is active on a machine.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Owner {
    /// Name of the program.
    pub name: &'static str,
    /// Process ID, if a process is running.
    pub pid: Option<u32>,
    /// The knobs that it writes.
    pub writes: Vec<Id>,
    /// The command that stops it permanently, if there is one.
    #[serde(skip)]
    pub stop: Option<&'static str>,
    /// How to make it ignore the knobs.
    pub remedy: &'static str,
}

impl Program {
    /// Returns the knobs that it writes, in the table's order.
    pub fn writes(self) -> Vec<Id> {
        let rows = TABLE
            .iter()
            .filter(|knob| knob.control().is_some_and(|control| control.written_by.contains(&self)));
        rows.map(|knob| knob.id).collect()
    }
}

/// Returns whether /proc lists the machine's processes. A recording may have a /proc without
/// processes, where a missing service proves nothing.
pub fn sees_processes(host: &dyn Host) -> bool {
    let is_number = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    host.list("/proc").is_ok_and(|names| names.iter().any(is_number))
}

/// Returns the known programs that are active on the machine.
pub fn owners(host: &dyn Host) -> Vec<Owner> {
    let mut found: Vec<Owner> = Vec::new();
    let mut take = |known: &KnownProgram, pid: Option<u32>| {
        // Several workers of a daemon are one owner. A process takes precedence over files in /run.
        if !found.iter().any(|owner| owner.name == known.name) {
            let (writes, stop, remedy) = (known.program.writes(), known.stop, known.remedy);
            found.push(Owner { name: known.name, pid, writes, stop, remedy });
        }
    };
    for entry in host.list("/proc").unwrap_or_default() {
        let Ok(pid) = entry.parse::<u32>() else { continue };
        // A process may end between the listing and this read.
        let Ok(name) = host.read(&format!("/proc/{pid}/comm")) else { continue };
        // The kernel names a script's process after its interpreter, unless the program renames
        // itself.
        let script = if name.starts_with("python") { script_of(host, pid) } else { None };
        for known in KNOWN {
            // The kernel truncates longer names, so compare truncated names.
            let is = |process: &str| truncate_name(process) == name || script.as_deref() == Some(process);
            if known.processes.iter().any(|process| is(process)) && may_write(host, pid, known) {
                take(known, Some(pid));
            }
        }
    }
    for known in KNOWN {
        if known.trace.is_some_and(|trace| host.exists(trace)) && !is_off(host, known) {
            take(known, None);
        }
    }
    found
}

/// Returns whether a process can be the program, and not a user's process of that name. The
/// programs run as root, except gamemoded, which uses a helper of root's. If a recording lacks the
/// process's user, trust the name.
fn may_write(host: &dyn Host, pid: u32, known: &KnownProgram) -> bool {
    let status = host.read(&format!("/proc/{pid}/status")).unwrap_or_default();
    // The real user, then the effective one (proc_pid_status(5)).
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = users.and_then(|users| users.split_whitespace().nth(1));
    known.program == Program::GameMode || effective.is_none_or(|user| user == "0")
}

/// Returns whether the program's configuration disables it.
fn is_off(host: &dyn Host, known: &KnownProgram) -> bool {
    let Some((file, off)) = known.off else { return false };
    // If there are several assignments, the last one wins.
    let (key, text) = (off.split('=').next().unwrap_or(off), host.read(file).unwrap_or_default());
    let is_of_key = |line: &&str| line.split('=').next() == Some(key);
    text.lines().map(str::trim).rfind(is_of_key).is_some_and(|line| line == off)
}

/// Returns the process of irqbalance, which moves interrupts and writes no knob.
pub fn irqbalance(host: &dyn Host) -> Option<u32> {
    let processes = host.list("/proc").unwrap_or_default();
    let mut numbers = processes.iter().filter_map(|entry| entry.parse::<u32>().ok());
    numbers.find(|pid| host.read(&format!("/proc/{pid}/comm")).is_ok_and(|name| name == "irqbalance"))
}

/// Returns the active programs that write one of these knobs, each with the knobs that it writes.
pub fn neighbours(host: &dyn Host, knobs: &BTreeSet<Id>) -> Vec<Owner> {
    let mut found = owners(host);
    for owner in &mut found {
        owner.writes.retain(|id| knobs.contains(id));
    }
    found.retain(|owner| !owner.writes.is_empty());
    found
}

/// Returns the process names of all programs, as the kernel stores them.
#[cfg(test)]
pub(crate) fn processes() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().flat_map(|known| known.processes).map(|process| truncate_name(process))
}

/// Truncates a process name to the 15 characters that the kernel stores (TASK_COMM_LEN).
fn truncate_name(name: &str) -> &str {
    name.get(..15).unwrap_or(name)
}

/// Returns the file name of the script that an interpreter runs.
fn script_of(host: &dyn Host, pid: u32) -> Option<String> {
    let line = host.read(&format!("/proc/{pid}/cmdline")).ok()?;
    // The first argument that is not an option of the interpreter.
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
        put("proc/11/comm", "thermald\n");
        put("proc/11/status", "Name:\tthermald\nUid:\t0\t1000\t0\t0\n");
        put("proc/13/status", "Name:\tpython3\nUid:\t1000\t0\t0\t0\n");
        put("proc/16/comm", "gamemoded\n");
        put("proc/16/status", "Uid:\t1000\t1000\t1000\t1000\n");
        put("proc/self/comm", "thermald\n");
        put("proc/15/comm", "irqbalance\n");
        put("run/tlp/last_pwr", "0\n");
        let host = Recorded::open(folder.path()).unwrap();
        let found: Vec<_> = owners(&host).into_iter().map(|owner| (owner.name, owner.pid)).collect();
        let expected =
            [("power-profiles-daemon", Some(12)), ("tuned", Some(13)), ("gamemode", Some(16)), ("TLP", None)];
        assert_eq!(found, expected);
        assert_eq!(irqbalance(&host), Some(15));
        let names = || owners(&Recorded::open(folder.path()).unwrap()).len();
        put("etc/tlp.conf", "TLP_ENABLE=0\n#TLP_ENABLE=1\nTLP_ENABLE=1\n");
        assert_eq!(names(), 4, "the last assignment counts");
        put("etc/tlp.conf", "TLP_ENABLE=1\nTLP_ENABLE=0\n");
        assert_eq!(names(), 3);
    }
}
