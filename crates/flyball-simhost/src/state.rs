//! State files: what was done to a simulated machine, so that the next process can do it again and go on from there.
//!
//! The first line names the format and the machine; each further line is one call, with the machine's time in nanoseconds.
//! The machine is deterministic, so replaying the calls leads to the same state.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    time::Duration,
};

use flyball_host::process;
use flyball_sim::{Caller, SimMachine};

use crate::{SimError, SimSetup};

/// What the first line of every state file begins with; the number is its version.
const FORMAT: &str = "flyball-sim ";
const VERSION: &str = "flyball-sim 1 ";

/// Reads a state file and leads the machine through it; opens it for what follows. A file that is not this machine's is
/// left as it is.
pub(crate) fn resume(setup: &SimSetup, path: &Path, machine: &mut SimMachine) -> Result<File, SimError> {
    let fail = |error: std::io::Error| SimError::State { path: path.to_owned(), error };
    let not_its = |what: String| SimError::NotItsState { path: path.to_owned(), what };
    // Append: each line goes to the end even if another process opened the file before.
    let mut file = File::options().read(true).append(true).create(true).open(path).map_err(fail)?;
    // Before reading: what is read must be what the machine continues from.
    hold(&file, path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(fail)?;
    let heading = format!("{}\n", setup.heading());
    if bytes.is_empty() || heading.as_bytes().starts_with(&bytes) && heading.len() > bytes.len() {
        // New, or a crash cut its first line short.
        let begun = file.set_len(0).and_then(|()| file.write_all(heading.as_bytes()));
        return begun.map(|()| file).map_err(fail);
    }
    if !bytes.starts_with(FORMAT.as_bytes()) {
        return Err(not_its("not a simulated-machine state file; refusing to overwrite it".to_owned()));
    }
    let first: String =
        bytes.split(|byte| *byte == b'\n').next().map(String::from_utf8_lossy).unwrap_or_default().into();
    if !first.starts_with(VERSION) {
        return Err(not_its(format!(
            "another version of flyball wrote it ('{first}'); give another file or remove it"
        )));
    }
    if !bytes.starts_with(heading.as_bytes()) {
        return Err(not_its(format!(
            "it is of another machine ('{first}', not '{}'); give another file or remove it",
            heading.trim_end()
        )));
    }
    // A crash may have cut the last line short; the truncated record is ignored.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        // Otherwise the next call would be appended to the torn line.
        file.set_len(whole as u64).map_err(fail)?;
    }
    for (number, line) in bytes[heading.len()..whole].split(|byte| *byte == b'\n').enumerate() {
        let done = std::str::from_utf8(line).ok().and_then(|line| replay(machine, line));
        if done.is_none() && !line.is_empty() {
            let line = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            return Err(not_its(format!("line {} ('{line}') cannot be read; remove the file", number + 2)));
        }
    }
    Ok(file)
}

/// Set for a process that acts for the one that holds the state file.
pub const STATE_HELD: &str = "FLYBALL_SIM_STATE_HELD";

/// How long a command waits for another one that has the machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// One command at a time leads the machine on: two that start from the same state would write two histories into one
/// file. The second waits, names the holder, and is refused after a while. The kernel releases the lock with the process.
fn hold(file: &File, path: &Path) -> Result<(), SimError> {
    // The guardian of a `set` restores while its parent holds the lock; waiting for it would be a deadlock.
    if std::env::var_os(STATE_HELD).is_some() {
        return Ok(());
    }
    let started = std::time::Instant::now();
    let mut told = false;
    loop {
        let taken =
            process::try_lock(file).map_err(|error| SimError::State { path: path.to_owned(), error })?;
        if taken {
            return Ok(());
        }
        let holder = holder(file);
        if started.elapsed() > PATIENCE {
            return Err(SimError::Busy { path: path.to_owned(), holder, seconds: PATIENCE.as_secs() });
        }
        // Most commands end within this time: a message for each would be noise.
        if !told && started.elapsed() > Duration::from_millis(300) {
            let _ = writeln!(
                std::io::stderr(),
                "flyball: waiting for {holder}, which has the machine in {}",
                path.display()
            );
            told = true;
        }
        // flock has no time limit of its own, and a signal as alarm would change the process.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who has the file locked, in words.
fn holder(file: &File) -> String {
    match process::lock_holder(file) {
        None => "another process".to_owned(),
        Some((pid, command)) if command.is_empty() => format!("process {pid}"),
        Some((pid, command)) => format!("process {pid} ({command})"),
    }
}

/// Longest time between two lines: no command sleeps longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Does again what a line of a state file says.
fn replay(machine: &mut SimMachine, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let at: u64 = words.next()?.parse().ok()?;
    let gap = Duration::from_nanos(at).saturating_sub(machine.now());
    // A damaged number must not let the machine run for years.
    if gap > LONGEST {
        return None;
    }
    machine.advance(gap);
    match kind {
        "until" => {}
        "write" => {
            let path = words.next()?;
            let text = unhex(words.next()?)?;
            // The result was the caller's at the time. Refused writes are in the file too, and are refused again.
            let _ = machine.write(path, &text);
        }
        "read" => {
            let _ = machine.read(words.next()?);
        }
        "msr" => {
            let (cpu, register) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let _ = machine.write_msr(cpu, register, words.next()?.parse().ok()?);
        }
        "isst" => {
            let number = words.next()?.parse().ok()?;
            let mut argument = unhex(words.next()?)?;
            // Callers of a simulated machine are its root, as in SimHost::isst.
            let _ = machine.isst(number, &mut argument, Caller::Root);
        }
        _ => return None,
    }
    Some(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2).map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use flyball_host::Host as _;

    use super::*;
    use crate::SimHost;

    const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

    #[test]
    fn a_state_file_that_is_none_is_left_alone_and_a_line_cut_short_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let setup = SimSetup::parse(&format!("i7-2600,state={}", state.display())).unwrap();
        for (text, named) in [
            (&b"my diary\n"[..], "not a simulated-machine state file"),
            (b"\xff\xfe\x00", "not a simulated-machine state file"),
            (b"flyball-sim 2 i7-2600\n", "another version"),
            (b"flyball-sim 1 ryzen-5750g kernel=6.12 seed=0 boot=\n", "another machine"),
            (b"flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\nwrite soon\n", "line 2"),
            (b"flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\nuntil 18446744073709551615\n", "line 2"),
            (b"flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\n\xff 1\n", "line 2"),
        ] {
            std::fs::write(&state, text).unwrap();
            let error = SimHost::open(&setup).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
            assert_eq!(std::fs::read(&state).unwrap(), text, "it must be left as it is");
        }
        let whole = "flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\nuntil 5000000\n";
        for cut in [&whole[..3], &whole[..30], whole, &format!("{whole}write 60"), ""] {
            std::fs::write(&state, cut).unwrap();
            let machine = SimHost::open(&setup).unwrap();
            machine.write(GOVERNOR, b"performance").unwrap();
            drop(machine);
            let again = SimHost::open(&setup).unwrap();
            assert_eq!(again.read(GOVERNOR).unwrap(), "performance", "{cut:?}");
        }
    }

    #[test]
    fn a_state_file_keeps_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let setup = SimSetup::parse(&format!("ryzen-5750g,state={}", state.display())).unwrap();
        let first = SimHost::open(&setup).unwrap();
        let before = first.read(GOVERNOR).unwrap();
        let other = if before == "powersave" { "performance" } else { "powersave" };
        first.write(GOVERNOR, other.as_bytes()).unwrap();
        first.sleep(Duration::from_millis(20));
        let (now, energy) = (first.now(), first.with(|machine| machine.silicon().energy_femtojoules(0)));
        drop(first);
        let again = SimHost::open(&setup).unwrap();
        assert_eq!(again.with(|machine| machine.silicon().energy_femtojoules(0)), energy);
        assert_eq!(again.now(), now);
        assert_eq!(again.read(GOVERNOR).unwrap(), other);
        let wrong = SimSetup { seed: 1, ..setup };
        assert!(SimHost::open(&wrong).is_err());
    }
}
