//! State files: the history of a simulated machine, so that the next process can repeat it and
//! continue.
//!
//! The first line names the format and the machine. Each further line is a call, with the machine's
//! time in nanoseconds. The machine is deterministic, so replaying the calls restores its state.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    time::{Duration, Instant},
};

use flyball_process::terminal;
use flyball_sim::{Caller, SimMachine};

use crate::{SimError, SimSetup};

/// Start of the first line of every state file, before the version.
const FORMAT: &str = "flyball-sim ";
const VERSION: &str = "flyball-sim 1 ";

/// Limits of state files: bytes, lines, simulated time, and duration of the replay.
const MAX_BYTES: u64 = 64 << 20;
const MAX_LINES: usize = 1_000_000;
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
const MAX_REPLAY: Duration = Duration::from_secs(300);

/// Why a state file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateFault {
    #[error("not a regular file")]
    NotAFile,
    #[error("longer than {} MiB; give another file", MAX_BYTES >> 20)]
    TooLong,
    #[error("not a simulated-machine state file; refusing to overwrite it")]
    Other,
    #[error("another version of flyball wrote it ('{first}'); give another file or remove it")]
    Version { first: String },
    #[error("it belongs to another machine ('{first}', not '{wanted}'); give another file or remove it")]
    Machine { first: String, wanted: String },
    #[error("more than {MAX_LINES} lines; give another file")]
    TooManyLines,
    #[error("line {line} ('{text}') cannot be read; remove the file")]
    Line { line: usize, text: String },
    #[error("line {line} is later than {} h after boot; give another file", MAX_TIME.as_secs() / 3600)]
    Late { line: usize },
    #[error("replaying it takes more than {} s; give another file", limit.as_secs())]
    Slow { limit: Duration },
}

/// Replays a state file on the machine, and opens the file for new calls. A file of another machine
/// is not changed.
pub(crate) fn resume(setup: &SimSetup, path: &Path, machine: &mut SimMachine) -> Result<File, SimError> {
    let fail = |error: std::io::Error| SimError::State { path: path.to_owned(), error };
    let not_its = |fault| SimError::NotItsState { path: path.to_owned(), fault };
    let mut file = match flyball_files::open_output(path, flyball_files::Opening::Append, 0o666) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Err(not_its(StateFault::NotAFile));
        }
        opened => opened.map_err(fail)?,
    };
    // Lock before reading: no other process may change the file in between.
    hold(&file, path)?;
    let mut bytes = Vec::new();
    (&file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(not_its(StateFault::TooLong));
    }
    let heading = format!("{}\n", setup.heading());
    if bytes.is_empty() || heading.as_bytes().starts_with(&bytes) && heading.len() > bytes.len() {
        // The file is new, or a crash cut its first line short.
        let begun = file.set_len(0).and_then(|()| file.write_all(heading.as_bytes()));
        return begun.map(|()| file).map_err(fail);
    }
    let (calls, whole) = read_calls(&heading, &bytes).map_err(not_its)?;
    if whole < bytes.len() {
        // Otherwise the next call would be appended to the incomplete line.
        file.set_len(whole as u64).map_err(fail)?;
    }
    // Hold the lock during the replay, so that no other command continues from the old state.
    replay(machine, &calls, MAX_REPLAY).map_err(not_its)?;
    Ok(file)
}

/// Parses the calls of a state file. Also returns the number of bytes in whole lines. Every line is
/// parsed before the first is replayed, so that a damaged file fails at once and not after hours of
/// simulated time.
fn read_calls<'b>(heading: &str, bytes: &'b [u8]) -> Result<(Vec<Call<'b>>, usize), StateFault> {
    if !bytes.starts_with(FORMAT.as_bytes()) {
        return Err(StateFault::Other);
    }
    let first: String =
        bytes.split(|byte| *byte == b'\n').next().map(String::from_utf8_lossy).unwrap_or_default().into();
    if !first.starts_with(VERSION) {
        return Err(StateFault::Version { first });
    }
    if !bytes.starts_with(heading.as_bytes()) {
        return Err(StateFault::Machine { first, wanted: heading.trim_end().to_owned() });
    }
    // A crash may have cut the last line short; ignore the incomplete line.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut calls = Vec::new();
    for (number, line) in bytes[heading.len()..whole].split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        if number >= MAX_LINES {
            return Err(StateFault::TooManyLines);
        }
        let Some(call) = std::str::from_utf8(line).ok().and_then(Call::parse) else {
            let text = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            return Err(StateFault::Line { line: number + 2, text });
        };
        if Duration::from_nanos(call.at) > MAX_TIME {
            return Err(StateFault::Late { line: number + 2 });
        }
        calls.push(call);
    }
    Ok((calls, whole))
}

/// Repeats the calls, each at its time.
fn replay(machine: &mut SimMachine, calls: &[Call<'_>], limit: Duration) -> Result<(), StateFault> {
    const SLICE: Duration = Duration::from_secs(1);
    let began = Instant::now();
    for call in calls {
        let until = Duration::from_nanos(call.at);
        // In slices of machine time, to notice the limit during a long gap.
        while let Some(gap) = until.checked_sub(machine.now()).filter(|gap| !gap.is_zero()) {
            if began.elapsed() > limit {
                return Err(StateFault::Slow { limit });
            }
            machine.advance(gap.min(SLICE));
        }
        call.make(machine);
    }
    Ok(())
}

/// Parses a machine's state file and replays it for at most `limit`. For fuzzing: no bytes may make
/// it panic, or take much longer.
pub fn try_state_file(machine: &mut SimMachine, bytes: &[u8], limit: Duration) -> Result<(), StateFault> {
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
    let heading = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (calls, _) = read_calls(&heading, bytes)?;
    replay(machine, &calls, limit)
}

/// Set for a process that acts on behalf of the holder of the state file.
pub const STATE_HELD: &str = "FLYBALL_SIM_STATE_HELD";

/// How long a command waits for another one that uses the machine.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Locks the state file, because two commands that continue from one state would write two
/// histories into one file. The second command waits, names the holder, and fails after a timeout.
/// The kernel releases the lock with the process.
fn hold(file: &File, path: &Path) -> Result<(), SimError> {
    // The guardian of a `set` restores settings while its parent holds the lock; waiting for it
    // would deadlock.
    if std::env::var_os(STATE_HELD).is_some() {
        return Ok(());
    }
    let started = Instant::now();
    let mut reported = false;
    loop {
        let taken = flyball_process::try_lock(file)
            .map_err(|error| SimError::State { path: path.to_owned(), error })?;
        if taken {
            return Ok(());
        }
        let holder = holder(file);
        if started.elapsed() > LOCK_TIMEOUT {
            return Err(SimError::Busy { path: path.to_owned(), holder, seconds: LOCK_TIMEOUT.as_secs() });
        }
        // Most commands end within this time, so do not report each of them.
        if !reported && started.elapsed() > Duration::from_millis(300) {
            terminal::complain(format_args!(
                "flyball: waiting for {holder}, which has the machine in {}\n",
                path.display()
            ));
            reported = true;
        }
        // flock has no timeout, and using a signal for one would affect the whole process.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Describes the process that has locked the file.
fn holder(file: &File) -> String {
    match flyball_process::lock_holder(file) {
        None => "another process".to_owned(),
        Some((pid, command)) if command.is_empty() => format!("process {pid}"),
        Some((pid, command)) => format!("process {pid} ({command})"),
    }
}

/// A line of a state file.
#[derive(Debug)]
struct Call<'b> {
    /// The machine's time, ns.
    at: u64,
    kind: CallKind<'b>,
}

#[derive(Debug)]
enum CallKind<'b> {
    Until,
    Write(&'b str, Vec<u8>),
    Read(&'b str),
    Msr(u32, u32, u64),
    Isst(u32, Vec<u8>),
}

impl<'b> Call<'b> {
    fn parse(line: &'b str) -> Option<Call<'b>> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let at = words.next()?.parse().ok()?;
        let kind = match kind {
            "until" => CallKind::Until,
            "write" => CallKind::Write(words.next()?, unhex(words.next()?)?),
            "read" => CallKind::Read(words.next()?),
            "msr" => {
                let (cpu, register) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                CallKind::Msr(cpu, register, words.next()?.parse().ok()?)
            }
            "isst" => CallKind::Isst(words.next()?.parse().ok()?, unhex(words.next()?)?),
            _ => return None,
        };
        Some(Call { at, kind })
    }

    /// Repeats the call. Its result does not matter: the machine is deterministic, so the result is
    /// always equal.
    fn make(&self, machine: &mut SimMachine) {
        match &self.kind {
            CallKind::Until => {}
            CallKind::Write(path, text) => {
                let _ = machine.write(path, text);
            }
            CallKind::Read(path) => {
                let _ = machine.read(path);
            }
            CallKind::Msr(cpu, register, value) => {
                let _ = machine.write_msr(*cpu, *register, *value);
            }
            CallKind::Isst(number, argument) => {
                let _ = machine.isst(*number, &mut argument.clone(), Caller::Root);
            }
        }
    }
}

/// Formats bytes as a hexadecimal word, or as a dash if there are none.
pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    flyball_text::hex(bytes)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    flyball_text::unhex(text)
}

#[cfg(test)]
mod tests {
    use flyball_host::Host as _;
    use proptest::prelude::*;

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
    fn a_damaged_file_is_refused_before_anything_is_simulated() {
        let mut machine = SimSetup::parse("epyc-512").unwrap().boot().unwrap();
        let heading = "flyball-sim 1 epyc-512 kernel=6.12 seed=0 boot=\n";
        let late = format!("{heading}until 80000000000000\nwrite 80000000000001 /x zz\n");
        let began = Instant::now();
        let error = try_state_file(&mut machine, late.as_bytes(), MAX_REPLAY).unwrap_err();
        assert!(matches!(error, StateFault::Line { line: 3, .. }), "{error}");
        let later = format!("{heading}until 99000000000000\n");
        let error = try_state_file(&mut machine, later.as_bytes(), MAX_REPLAY).unwrap_err();
        assert!(matches!(error, StateFault::Late { .. }), "{error}");
        assert!(machine.now() < Duration::from_secs(1) && began.elapsed() < Duration::from_secs(10));
        // A valid file that takes too long.
        let long = format!("{heading}until 80000000000000\n");
        let error = try_state_file(&mut machine, long.as_bytes(), Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, StateFault::Slow { .. }), "{error}");
    }

    #[test]
    fn only_a_regular_file_is_opened() {
        let setup = |path: &str| SimSetup::parse(&format!("i7-2600,state={path}")).unwrap();
        for path in ["/dev/null", "/dev/zero"] {
            let error = SimHost::open(&setup(path)).unwrap_err().to_string();
            assert!(error.contains("regular file"), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Valid lines, damaged at random.
        #[test]
        fn no_bytes_make_a_state_file_panic(
            lines in prop::collection::vec((0..6usize, 0..2_000_000_000u64, any::<u32>(), any::<u64>()), 0..20),
            damages in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        ) {
            let mut text = "flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\n".to_owned();
            let mut at = 0;
            for (kind, gap, word, value) in lines {
                at += gap;
                text += &match kind {
                    0 => format!("until {at}\n"),
                    1 => format!("write {at} {GOVERNOR} {}\n", hex(b"performance")),
                    2 => format!("write {at} /sys/devices/system/cpu/cpu{}/online {}\n", word % 9, hex(b"0")),
                    3 => format!("msr {at} {} {} {value}\n", word % 9, word % 0x800),
                    4 => format!("isst {at} {word} {}\n", hex(&value.to_le_bytes())),
                    _ => format!("read {at} {GOVERNOR}\n"),
                };
            }
            let mut bytes = text.into_bytes();
            for (place, byte) in damages {
                let place = place % bytes.len();
                bytes[place] = byte;
            }
            let mut machine = SimSetup::parse("i7-2600").unwrap().boot().unwrap();
            let _ = try_state_file(&mut machine, &bytes, Duration::from_millis(500));
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
