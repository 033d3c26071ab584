//! Tests the doctor's findings on recorded machines with one changed file or register, and checks
//! that the remedy clears the finding.
//!
//! Remedies that flyball can make are planned on the changed machine and written to it. After that
//! the finding must be gone.

use std::{collections::BTreeMap, path::Path, sync::RwLock, time::Duration};

use flyball_control::{
    Intent, Location, Snapshot,
    doctor::{Finding, Fix, Options, Verdict, examine},
    plan::plan,
};
use flyball_host::{Archive, Errno, Host, HostError, Kind, Op};
use flyball_testing::machines;

/// One change to a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// The text of a file.
    File(&'static str, &'static str),
    /// A word, replaced everywhere in a file.
    Word(&'static str, &'static str, &'static str),
    /// Text that is added to a file.
    Added(&'static str, &'static str),
    /// A register on every CPU.
    Register(u32, u64),
    /// A register on one CPU.
    RegisterOf(u32, u32, u64),
}

pub(super) struct Situation {
    pub machine: &'static str,
    pub change: Change,
    pub id: &'static str,
    pub verdict: Verdict,
    /// Text that the remedy's words or settings contain; empty for none.
    pub remedy: &'static str,
}

/// A recorded machine with changes, whose files can be written.
pub(crate) struct Changed<'a> {
    host: &'a Archive,
    files: RwLock<BTreeMap<String, String>>,
    registers: BTreeMap<(Option<u32>, u32), u64>,
}

impl<'a> Changed<'a> {
    /// Creates the machine with changed files and changed registers of all CPUs.
    pub(crate) fn with(
        host: &'a Archive,
        files: BTreeMap<String, String>,
        registers: &[(u32, u64)],
    ) -> Changed<'a> {
        let registers = registers.iter().map(|(register, value)| ((None, *register), *value)).collect();
        Changed { host, files: RwLock::new(files), registers }
    }

    pub(crate) fn new(host: &'a Archive, change: Option<Change>) -> Changed<'a> {
        let mut changed = Changed { host, files: RwLock::default(), registers: BTreeMap::new() };
        let text = |path: &str| host.read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut put =
            |path: &str, text: String| changed.files.get_mut().unwrap().insert(path.to_owned(), text);
        match change {
            None => {}
            Some(Change::File(path, to)) => {
                put(path, to.to_owned());
            }
            Some(Change::Word(path, from, to)) => {
                assert!(text(path).contains(from), "{path} does not hold {from}");
                put(path, text(path).replace(from, to));
            }
            Some(Change::Added(path, more)) => {
                put(path, format!("{} {more}", text(path)));
            }
            Some(Change::Register(register, value)) => {
                changed.registers.insert((None, register), value);
            }
            Some(Change::RegisterOf(cpu, register, value)) => {
                changed.registers.insert((Some(cpu), register), value);
            }
        }
        changed
    }
}

impl Host for Changed<'_> {
    flyball_host::forward!(host: name, link, isst, kernel_log);

    fn kind(&self) -> Kind {
        Kind::Recorded
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        match self.files.read().unwrap().get(path) {
            Some(text) => {
                buffer.clear();
                buffer.extend(format!("{text}\n").bytes());
                Ok(())
            }
            None => self.host.read_into(path, buffer),
        }
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        self.files.write().unwrap().insert(path.to_owned(), String::from_utf8_lossy(bytes).into_owned());
        Ok(())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let mut names = self.host.list(path).unwrap_or_default();
        let folder = format!("{path}/");
        for added in self.files.read().unwrap().keys().filter_map(|file| file.strip_prefix(&folder)) {
            let name = added.split('/').next().unwrap_or_default().to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { Err(HostError::new(Op::List, path, Errno::NOENT)) } else { Ok(names) }
    }

    fn exists(&self, path: &str) -> bool {
        self.files.read().unwrap().contains_key(path) || self.host.exists(path)
    }

    fn writable(&self, path: &str) -> bool {
        self.exists(path)
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        match self.registers.get(&(Some(cpu), register)).or_else(|| self.registers.get(&(None, register))) {
            Some(value) => Ok(*value),
            None => self.host.msr(cpu, register),
        }
    }

    fn write_msr(&self, _cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("{register:#x}"), Errno::ROFS))
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}
}

fn finding(host: &dyn Host, id: &str) -> Option<Finding> {
    examine(host, Options::default()).unwrap().findings.into_iter().find(|finding| finding.id == id)
}

fn words(fix: Option<&Fix>) -> String {
    match fix {
        None => String::new(),
        Some(Fix::Settings(settings)) => {
            settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        }
        Some(Fix::KernelParameter(words) | Fix::Firmware(words) | Fix::Person(words)) => words.clone(),
    }
}

/// Applies the settings of a remedy, as `flyball set` would. Fails if they cannot be planned.
fn apply(host: &Changed, settings: &[String]) -> Result<(), String> {
    write(host, &Intent::from_arguments(settings, None).unwrap())
}

/// Writes the changes of a plan.
pub(crate) fn write(host: &Changed, intent: &Intent) -> Result<(), String> {
    // Some changes move the limits of others, so the next round's plan has more.
    for _ in 0..3 {
        let snapshot = Snapshot::for_intent(host, intent).map_err(|error| error.to_string())?;
        let plan = plan(&snapshot, intent).map_err(|error| error.to_string())?;
        if plan.is_empty() {
            return Ok(());
        }
        for change in &plan.changes {
            let Location::File(path) = &change.location else { continue };
            host.write(path, change.new.as_bytes()).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn judge(host: &Archive, situation: &Situation) -> Result<(), String> {
    let Situation { change, id, verdict, remedy, .. } = situation;
    let before = finding(&Changed::new(host, None), id);
    let changed = Changed::new(host, Some(*change));
    let Some(after) = finding(&changed, id) else { return Err("no finding".to_owned()) };
    let words = words(after.fix.as_ref());
    if after.verdict != *verdict || !words.contains(remedy) || (remedy.is_empty() && !words.is_empty()) {
        return Err(format!("{:?}: {}; remedy: {words}; {:?}", after.verdict, after.what, after.evidence));
    }
    if before.as_ref() == Some(&after) {
        return Err("the unchanged machine says the same".to_owned());
    }
    let Some(Fix::Settings(settings)) = &after.fix else { return Ok(()) };
    let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
    apply(&changed, &settings).map_err(|error| format!("{settings:?}: {error}"))?;
    match finding(&changed, id) {
        Some(cleared) if cleared.verdict >= after.verdict => {
            Err(format!("{settings:?} leaves it: {} {:?}", cleared.what, cleared.evidence))
        }
        _ => Ok(()),
    }
}

#[test]
fn recorded_machines_with_one_change_each() {
    let folder = |name: &str| {
        machines().into_iter().find(|path: &std::path::PathBuf| {
            Path::file_name(path).is_some_and(|file| file.to_string_lossy().starts_with(name))
        })
    };
    let mut wrong = Vec::new();
    let mut opened: BTreeMap<&str, Archive> = BTreeMap::new();
    let all = super::situation_rows::situations();
    for situation in &all {
        let host = opened.entry(situation.machine).or_insert_with(|| {
            Archive::open(&folder(situation.machine).unwrap().display().to_string()).unwrap()
        });
        if let Err(words) = judge(host, situation) {
            wrong.push(format!("{} {} {:?}: {words}", situation.machine, situation.id, situation.change));
        }
    }
    println!("{} situations", all.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    assert!(all.len() >= 60);
}
