//! Simulated machines as hosts:
//! `-M sim:NAME[,kernel=V][,boot=OPTION][,interface=WORD][,seed=N][,state=FILE][,fault=RULE]`.
//!
//! A simulated machine starts afresh at each command. With a state file it goes on where the last command left it: the
//! file holds every write and the time between them, and the machine, which has nothing random, is led through them
//! again.

use std::{
    fmt,
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flyball_host::{Errno, Host, HostError, Kind, Op};
use flyball_sim::{
    Boot, Caller, Fault, Kernel, SimMachine,
    silicon::{Interface, MachineSpec, spec::Vendor},
    workload::Workload,
};

use crate::exit::{Exit, Failure};

/// What follows `sim:`.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// A built-in machine's name, or the path of a machine file or of a recorded machine.
    pub name: String,
    /// Whose answers the machine gives.
    pub kernel: Kernel,
    /// Kernel command line.
    pub boot: Vec<String>,
    /// What differs between two machines of one type.
    pub seed: u64,
    /// Where the machine is kept between commands.
    pub state: Option<PathBuf>,
    /// Faults that are injected.
    pub faults: Vec<FaultRule>,
    /// Which registers its firmware offers the system, if not those of its file: HWP may be switched off there.
    pub interface: Option<&'static str>,
}

/// The words for what firmware may offer, as guests take them, for Intel and for AMD.
const INTERFACES: &[(&str, Option<Interface>, Option<Interface>)] = &[
    ("p-states", Some(Interface::PerfCtl), Some(Interface::AmdPstate)),
    ("hwp", Some(Interface::Hwp), None),
    ("cppc-msr", None, Some(Interface::CppcMsr)),
    ("cppc-mailbox", None, Some(Interface::CppcShared)),
];

/// A rule that injects a fault, with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    text: String,
    fault: Fault,
}

impl FromStr for FaultRule {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultRule, String> {
        // In the text of a machine ';' stands for the ',' of a rule.
        if text.contains(';') {
            return Err(format!("fault '{text}': a rule must not contain ';'"));
        }
        Ok(FaultRule { text: text.to_owned(), fault: text.parse()? })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.kernel != KERNEL {
            write!(f, ",kernel={}", self.kernel)?;
        }
        if !self.boot.is_empty() {
            write!(f, ",boot={}", self.boot.join(" "))?;
        }
        if let Some(word) = self.interface {
            write!(f, ",interface={word}")?;
        }
        if self.seed != 0 {
            write!(f, ",seed={}", self.seed)?;
        }
        if let Some(state) = &self.state {
            write!(f, ",state={}", state.display())?;
        }
        self.faults.iter().try_for_each(|rule| write!(f, ",fault={}", rule.text.replace(',', ";")))
    }
}

/// Whose answers a machine gives if the user does not say.
const KERNEL: Kernel = Kernel::V6_12;

impl Choice {
    /// Reads what follows `sim:`.
    pub fn parse(text: &str) -> Result<Choice, String> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default().to_owned();
        let mut choice = Choice {
            name,
            kernel: KERNEL,
            boot: Vec::new(),
            seed: 0,
            state: None,
            faults: Vec::new(),
            interface: None,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("kernel", value)) => choice.kernel = value.parse()?,
                Some(("boot", value)) => choice.boot.extend(value.split_whitespace().map(str::to_owned)),
                Some(("seed", value)) => {
                    choice.seed =
                        value.parse().map_err(|_| format!("seed '{value}' is not a whole number"))?;
                }
                Some(("state", value)) => choice.state = Some(PathBuf::from(value)),
                Some(("interface", value)) => {
                    let words: Vec<&str> = INTERFACES.iter().map(|(word, ..)| *word).collect();
                    let known = words.iter().find(|word| **word == value).copied();
                    choice.interface =
                        Some(known.ok_or_else(|| {
                            format!("interface '{value}' is not one of {}", words.join(", "))
                        })?);
                }
                Some(("fault", value)) => choice.faults.push(value.replace(';', ",").parse()?),
                _ => {
                    return Err(format!(
                        "'{part}' in 'sim:{text}' is not understood; after the name come kernel=6.12, \
                         boot=amd_pstate=passive, interface=p-states, seed=N, state=FILE or fault=RULE (in it ';' for ','), separated by commas"
                    ));
                }
            }
        }
        Ok(choice)
    }

    /// Where the journal of changes to the machine is: beside its state file, or for this process alone.
    pub fn journal(&self) -> PathBuf {
        match &self.state {
            Some(file) => {
                let mut path = file.clone().into_os_string();
                path.push(".journal");
                path.into()
            }
            None => journal_of_process(),
        }
    }

    /// The description of the machine.
    pub fn spec(&self) -> Result<MachineSpec, Failure> {
        let usage = |message: String| Failure::usage(message);
        if MachineSpec::builtin_text(&self.name).is_some() {
            return MachineSpec::builtin(&self.name).map_err(|error| usage(error.to_string()));
        }
        let path = Path::new(&self.name);
        if path.is_file() {
            let text = std::fs::read_to_string(path)
                .map_err(|error| usage(format!("cannot read machine file {}: {error}", path.display())))?;
            return MachineSpec::from_toml(&text)
                .map_err(|error| usage(format!("{}: {error}", path.display())));
        }
        if path.is_dir() {
            return flyball_sim::describe(path).map_err(usage);
        }
        let names: Vec<&str> = MachineSpec::names().collect();
        let meant =
            nearest(&self.name, &names).map_or_else(String::new, |name| format!(" did you mean '{name}'?"));
        Err(usage(format!(
            "there is no simulated machine '{}';{meant} there are {}, or give the path of a machine file or of a recorded machine",
            self.name,
            names.join(", ")
        )))
    }

    /// Boots the machine, without its state.
    pub fn boot(&self) -> Result<SimMachine, Failure> {
        let usage = |message: String| Failure::usage(message);
        let boot = Boot { options: self.boot.clone(), ..Boot::default() };
        let mut spec = self.spec()?;
        if let Some(word) = self.interface {
            let intel = spec.identity.vendor == Vendor::Intel;
            let meant = INTERFACES.iter().find(|(known, ..)| *known == word);
            let meant = meant.and_then(|(_, of_intel, of_amd)| if intel { *of_intel } else { *of_amd });
            spec.firmware.interface =
                meant.ok_or_else(|| usage(format!("interface={word} is not of this machine's vendor")))?;
        }
        let mut machine = SimMachine::boot(spec, self.kernel, boot, self.seed).map_err(usage)?;
        for rule in &self.faults {
            machine.inject(rule.fault.clone());
        }
        Ok(machine)
    }

    /// Whether a rule watches reads.
    fn watches_reads(&self) -> bool {
        self.faults.iter().any(|rule| rule.fault.watches_reads())
    }

    /// Says which rules name what the machine does not have now.
    pub fn warn_of_idle_faults(&self, machine: &mut SimMachine) {
        for rule in &self.faults {
            if let Some(what) = machine.lacks(&rule.fault) {
                eprintln!("flyball: warning: fault '{}': sim:{} has no {what}", rule.text, machine.name());
            }
        }
    }

    /// What a state file must agree with.
    fn heading(&self) -> String {
        format!(
            "flyball-sim 1 {} kernel={} seed={} boot={}",
            self.name,
            self.kernel,
            self.seed,
            self.boot.join(" ")
        ) + &self.interface.map_or_else(String::new, |word| format!(" interface={word}"))
            + &self.faults.iter().map(|rule| format!(" fault={}", rule.text)).collect::<String>()
    }
}

/// The journal of a machine that ends with this process.
fn journal_of_process() -> PathBuf {
    std::env::temp_dir().join(format!("flyball-sim-journal.{}", std::process::id()))
}

/// The model of a workload: one that comes with flyball, or a file's. An amount is its turns, or its seconds where it is
/// given in time.
pub fn workload_model(name: &str, amount: Option<u64>) -> Result<Workload, Failure> {
    let usage = |message: String| Failure::usage(message);
    let mut model = if Workload::builtin_text(name).is_some() {
        Workload::builtin(name).map_err(|error| usage(error.to_string()))?
    } else {
        let text = std::fs::read_to_string(name).map_err(|error| {
            let names: Vec<&str> = Workload::names().collect();
            usage(format!(
                "no workload '{name}' is modelled ({}), and there is no such file: {error}",
                names.join(", ")
            ))
        })?;
        Workload::from_toml(&text).map_err(|error| usage(format!("{name}: {error}")))?
    };
    if let Some(amount) = amount {
        if model.seconds > 0.0 {
            model.seconds = amount as f64;
        } else {
            for group in model.task.iter_mut().filter(|group| group.turns > 0) {
                group.turns = amount;
            }
        }
    }
    Ok(model)
}

/// A simulated machine behind the door. Clones are the same machine.
#[derive(Debug, Clone)]
pub struct Simulated {
    label: String,
    choice: Choice,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    machine: SimMachine,
    /// Time on the clock before the machine was last booted.
    before: Duration,
    journal: Option<File>,
    /// Faults watch reads: the state file holds them too.
    notes_reads: bool,
    /// The state file that could not be written, told once.
    failed: bool,
}

impl Simulated {
    /// Boots the machine that was chosen and leads it to its state.
    pub fn open(choice: &Choice) -> Result<Simulated, Failure> {
        let mut machine = choice.boot()?;
        choice.warn_of_idle_faults(&mut machine);
        let journal = match &choice.state {
            Some(path) => Some(resume(choice, path, &mut machine)?),
            None => None,
        };
        let label = format!("sim:{}", machine.name());
        let notes_reads = choice.state.is_some() && choice.watches_reads();
        let inner = Inner { machine, before: Duration::ZERO, journal, notes_reads, failed: false };
        Ok(Simulated { label, choice: choice.clone(), inner: Arc::new(Mutex::new(inner)) })
    }

    /// Boots the machine again, with these words on the kernel's command line beside those that it was chosen with, for a
    /// run of this number. The clock that the host shows goes on.
    pub fn reboot(&self, options: &[String], run: u64) -> Result<(), Failure> {
        let mut choice = self.choice.clone();
        choice.boot.extend(options.iter().cloned());
        choice.seed ^= run;
        let mut machine = choice.boot()?;
        machine.vary(choice.seed);
        let mut inner = self.lock();
        let ran = inner.machine.now();
        inner.before += ran;
        inner.machine = machine;
        Ok(())
    }

    /// The seed that the machine was chosen with.
    pub fn seed(&self) -> u64 {
        self.choice.seed
    }

    /// Whether the machine is kept in a file.
    pub fn is_kept(&self) -> bool {
        self.choice.state.is_some()
    }

    /// Does something with the machine itself.
    pub fn with<T>(&self, work: impl FnOnce(&mut SimMachine) -> T) -> T {
        work(&mut self.lock().machine)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in another thread leaves a machine that still answers.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn note(&mut self, line: &str) {
        if let Some(file) = &mut self.journal
            // In one write, so that lines of commands at the same time stay whole.
            && let Err(error) = file.write_all(format!("{line}\n").as_bytes())
            && !std::mem::replace(&mut self.failed, true)
        {
            eprintln!("flyball: warning: cannot keep the simulated machine's state: {error}");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What was journaled of a machine that is gone is of no use to anybody.
        let _ = std::fs::remove_dir_all(journal_of_process());
        let now = self.machine.now().as_nanos();
        self.note(&format!("until {now}"));
    }
}

/// What the first line of every state file begins with; the number is its version.
const FORMAT: &str = "flyball-sim ";
const VERSION: &str = "flyball-sim 1 ";

/// Reads a state file and leads the machine through it; opens it for what follows. A file that is not this machine's is
/// left as it is.
fn resume(choice: &Choice, path: &Path, machine: &mut SimMachine) -> Result<File, Failure> {
    let fail = |what: String| Failure::failed(format!("state file {}: {what}", path.display()));
    let usage = |what: String| Failure::usage(format!("state file {}: {what}", path.display()));
    let mut file = File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| fail(error.to_string()))?;
    hold(&file, path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| fail(error.to_string()))?;
    let heading = format!("{}\n", choice.heading());
    if bytes.is_empty() || heading.as_bytes().starts_with(&bytes) && heading.len() > bytes.len() {
        // New, or a crash cut its first line short.
        let begun = file.set_len(0).and_then(|()| file.write_all(heading.as_bytes()));
        return begun.map(|()| file).map_err(|error| fail(error.to_string()));
    }
    if !bytes.starts_with(FORMAT.as_bytes()) {
        return Err(usage("it is no state file of a simulated machine, and is left alone".to_owned()));
    }
    let first: String =
        bytes.split(|byte| *byte == b'\n').next().map(String::from_utf8_lossy).unwrap_or_default().into();
    if !first.starts_with(VERSION) {
        return Err(usage(format!(
            "another version of flyball wrote it ('{first}'); give another file or remove it"
        )));
    }
    if !bytes.starts_with(heading.as_bytes()) {
        return Err(usage(format!(
            "it is of another machine ('{first}', not '{}'); give another file or remove it",
            heading.trim_end()
        )));
    }
    // A line that a crash cut short is the last; what it said did not happen.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        file.set_len(whole as u64).map_err(|error| fail(error.to_string()))?;
    }
    for (number, line) in bytes[heading.len()..whole].split(|byte| *byte == b'\n').enumerate() {
        let done = std::str::from_utf8(line).ok().and_then(|line| replay(machine, line));
        if done.is_none() && !line.is_empty() {
            let line = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            return Err(usage(format!("line {} ('{line}') cannot be read; remove the file", number + 2)));
        }
    }
    Ok(file)
}

/// Set for a process that acts for the one that holds the state file.
pub const STATE_HELD: &str = "FLYBALL_SIM_STATE_HELD";

/// How long a command waits for another one that has the machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// One command at a time leads the machine on: two that start from the same state would write two histories into one
/// file. The second waits, says for whom, and in the end is refused. The kernel gives the file free with the process.
fn hold(file: &File, path: &Path) -> Result<(), Failure> {
    if std::env::var_os(STATE_HELD).is_some() {
        return Ok(());
    }
    let started = std::time::Instant::now();
    let mut told = false;
    loop {
        let taken = flyball_host::process::try_lock(file).map_err(|error| {
            Failure::failed(format!("cannot lock state file {}: {error}", path.display()))
        })?;
        if taken {
            return Ok(());
        }
        let holder = holder(file).unwrap_or_else(|| "another process".to_owned());
        if started.elapsed() > PATIENCE {
            return Err(Failure::new(
                Exit::Locked,
                format!(
                    "state file {}: {holder} has had the machine for {} s; wait for it to end, or use another file",
                    path.display(),
                    PATIENCE.as_secs()
                ),
            ));
        }
        if !told && started.elapsed() > Duration::from_millis(300) {
            eprintln!("flyball: waiting for {holder}, which has the machine in {}", path.display());
            told = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who has a file locked, as /proc/locks tells: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`.
fn holder(file: &File) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() > 5 && words[1] == "FLOCK" && words[5].ends_with(&inode)).then(|| words[4].to_owned())
    })?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command: Vec<String> = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    Some(if command.is_empty() {
        format!("process {pid}")
    } else {
        format!("process {pid} ({})", command.join(" "))
    })
}

/// Longest time between two lines: whoever sleeps longer has not written this file.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The name that is meant, if one is near: at most a third of its letters differ.
fn nearest<'n>(wanted: &str, names: &[&'n str]) -> Option<&'n str> {
    let distance = |name: &str| {
        let (a, b): (Vec<char>, Vec<char>) = (wanted.chars().collect(), name.chars().collect());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut corner = std::mem::replace(&mut row[0], i + 1);
            for (j, y) in b.iter().enumerate() {
                let here = (corner + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
                corner = std::mem::replace(&mut row[j + 1], here);
            }
        }
        row[b.len()]
    };
    let near = names.iter().map(|name| (distance(name), *name)).min()?;
    (near.0 * 3 <= near.1.chars().count().max(3)).then_some(near.1)
}

/// Does again what a line of a state file says.
fn replay(machine: &mut SimMachine, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let at: u64 = words.next()?.parse().ok()?;
    let gap = Duration::from_nanos(at).saturating_sub(machine.now());
    if gap > LONGEST {
        return None;
    }
    machine.advance(gap);
    match kind {
        "until" => {}
        "write" => {
            let path = words.next()?;
            let text = unhex(words.next()?)?;
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
            let _ = machine.isst(number, &mut argument, Caller::Root);
        }
        _ => return None,
    }
    Some(())
}

fn hex(bytes: &[u8]) -> String {
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

fn error(op: Op, path: &str, errno: flyball_sim::Errno) -> HostError {
    HostError::new(op, path, Errno(errno.0))
}

fn msr_name(cpu: u32, register: u32) -> String {
    format!("MSR {register:#x} of CPU {cpu}")
}

impl Host for Simulated {
    fn kind(&self) -> Kind {
        Kind::Simulated
    }

    /// Beside the state file.
    fn topology_cache(&self) -> Option<PathBuf> {
        self.choice.state.as_ref().map(|state| PathBuf::from(format!("{}.topology", state.display())))
    }

    fn name(&self) -> String {
        self.label.clone()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let mut inner = self.lock();
        if inner.notes_reads {
            let at = inner.machine.now().as_nanos();
            inner.note(&format!("read {at} {path}"));
        }
        inner.machine.read_into(path, buffer).map_err(|errno| error(Op::Read, path, errno))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let mut inner = self.lock();
        let at = inner.machine.now().as_nanos();
        let result = inner.machine.write(path, bytes).map_err(|errno| error(Op::Write, path, errno));
        inner.note(&format!("write {at} {path} {}", hex(bytes)));
        result
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        self.lock().machine.list(path).map_err(|errno| error(Op::List, path, errno))
    }

    fn exists(&self, path: &str) -> bool {
        self.lock().machine.exists(path)
    }

    fn writable(&self, path: &str) -> bool {
        self.lock().machine.writable(path)
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        self.lock().machine.readlink(path).map_err(|errno| error(Op::Link, path, errno))
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        let result = self.lock().machine.read_msr(cpu, register);
        result.map_err(|errno| error(Op::ReadMsr, &msr_name(cpu, register), errno))
    }

    fn write_msr(&self, cpu: u32, register: u32, value: u64) -> Result<(), HostError> {
        let mut inner = self.lock();
        let at = inner.machine.now().as_nanos();
        let result = inner.machine.write_msr(cpu, register, value);
        inner.note(&format!("msr {at} {cpu} {register} {value}"));
        result.map_err(|errno| error(Op::WriteMsr, &msr_name(cpu, register), errno))
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        let mut inner = self.lock();
        let at = inner.machine.now().as_nanos();
        let asked = hex(argument);
        // Whoever runs flyball is this machine's root.
        let result = inner.machine.isst(number, argument, Caller::Root);
        inner.note(&format!("isst {at} {number} {asked}"));
        result.map_err(|errno| match errno {
            flyball_sim::Errno::NOENT => error(Op::Isst, flyball_host::isst::NODE, errno),
            _ => error(Op::Isst, &format!("call {} of {}", number & 0xff, flyball_host::isst::NODE), errno),
        })
    }

    fn now(&self) -> Duration {
        let inner = self.lock();
        inner.before + inner.machine.now()
    }

    fn sleep(&self, time: Duration) {
        self.lock().machine.advance(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

    #[test]
    fn choices() {
        let choice = Choice::parse("ryzen-5750g,kernel=7.2,boot=amd_pstate=passive,seed=3").unwrap();
        assert_eq!((choice.kernel, choice.seed), (Kernel::V7_2, 3));
        assert_eq!(choice.boot, ["amd_pstate=passive"]);
        assert!(Choice::parse("x,kernel=5.4").is_err());
        assert!(Choice::parse("x,colour=red").is_err());
        assert!(Choice::parse("no-such-machine").unwrap().spec().is_err());
    }

    #[test]
    fn a_name_that_is_meant() {
        let names: Vec<&str> = MachineSpec::names().collect();
        assert_eq!(nearest("ryzen-5750", &names), Some("ryzen-5750g"));
        assert_eq!(nearest("epic-512", &names), Some("epyc-512"));
        assert_eq!(nearest("laptop", &names), None);
        assert_eq!(nearest("", &names), None);
    }

    #[test]
    fn a_state_file_that_is_none_is_left_alone_and_a_line_cut_short_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let choice = Choice::parse(&format!("i7-2600,state={}", state.display())).unwrap();
        for (text, named) in [
            (&b"my diary\n"[..], "no state file"),
            (b"\xff\xfe\x00", "no state file"),
            (b"flyball-sim 2 i7-2600\n", "another version"),
            (b"flyball-sim 1 ryzen-5750g kernel=6.12 seed=0 boot=\n", "another machine"),
            (b"flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\nwrite soon\n", "line 2"),
            (b"flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\nuntil 18446744073709551615\n", "line 2"),
            (b"flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\n\xff 1\n", "line 2"),
        ] {
            std::fs::write(&state, text).unwrap();
            let error = Simulated::open(&choice).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
            assert_eq!(std::fs::read(&state).unwrap(), text, "it must be left as it is");
        }
        let whole = "flyball-sim 1 i7-2600 kernel=6.12 seed=0 boot=\nuntil 5000000\n";
        for cut in [&whole[..3], &whole[..30], whole, &format!("{whole}write 60"), ""] {
            std::fs::write(&state, cut).unwrap();
            let machine = Simulated::open(&choice).unwrap();
            machine.write(GOVERNOR, b"performance").unwrap();
            drop(machine);
            let again = Simulated::open(&choice).unwrap();
            assert_eq!(again.read(GOVERNOR).unwrap(), "performance", "{cut:?}");
        }
    }

    #[test]
    fn a_state_file_keeps_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let choice = Choice::parse(&format!("ryzen-5750g,state={}", state.display())).unwrap();
        let first = Simulated::open(&choice).unwrap();
        let before = first.read(GOVERNOR).unwrap();
        let other = if before == "powersave" { "performance" } else { "powersave" };
        first.write(GOVERNOR, other.as_bytes()).unwrap();
        first.sleep(Duration::from_millis(20));
        let (now, energy) = (first.now(), first.with(|machine| machine.silicon().energy_femtojoules(0)));
        drop(first);
        let again = Simulated::open(&choice).unwrap();
        assert_eq!(again.with(|machine| machine.silicon().energy_femtojoules(0)), energy);
        assert_eq!(again.now(), now);
        assert_eq!(again.read(GOVERNOR).unwrap(), other);
        let wrong = Choice { seed: 1, ..choice };
        assert!(Simulated::open(&wrong).is_err());
    }
}
