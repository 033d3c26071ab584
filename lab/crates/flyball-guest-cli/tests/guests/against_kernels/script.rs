//! Scripts of writes as text that a guest can read: what to compare, what to write, and the answer
//! and state of a simulated machine after each write.

use std::{collections::BTreeMap, fmt::Write as _};

/// A machine's visible state: for each path or register field, its mode and text, or the name of
/// the error.
pub(super) type Look = BTreeMap<String, String>;

/// The directory to which the paths below are relative.
pub(super) const CPU: &str = "/sys/devices/system/cpu";

/// Matches any number: a value that depends on the machine's history.
pub(super) const ANY: &str = "~";

/// One write(2), and its result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// Relative to [`CPU`].
    pub path: String,
    pub text: Vec<u8>,
    /// `ok`, or the errno.
    pub answer: String,
    /// Values that changed; `None` if a file is gone.
    pub changed: Vec<(String, Option<String>)>,
}

/// What to compare after each step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Watch {
    /// Directories whose files are listed and read, relative to [`CPU`].
    pub dirs: Vec<String>,
    pub files: Vec<String>,
    /// Register fields of these CPUs: register, name, lowest bit, number of bits.
    pub registers: Vec<(u32, &'static str, u32, u32)>,
    pub cpus: u32,
}

/// Values that differ between any two machines, because they follow load and time.
pub(super) const VOLATILE: &[&str] = &["scaling_cur_freq", "cpuinfo_avg_freq", "cpuinfo_cur_freq", "uevent"];

pub(super) fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'!'..=b'~' if byte != b'%' => text.push(byte as char),
            _ => drop(write!(text, "%{byte:02x}")),
        }
    }
    if text.is_empty() { "%".to_owned() } else { text }
}

pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        match (first, more) {
            (b'%', [_, _, after @ ..]) => {
                let digits = std::str::from_utf8(&more[..2]).unwrap_or("3f");
                bytes.push(u8::from_str_radix(digits, 16).unwrap_or(b'?'));
                rest = after;
            }
            (b'%', _) => {}
            _ => bytes.push(*first),
        }
    }
    bytes
}

/// Returns the script's text.
pub(super) fn write(watch: &Watch, steps: &[Step]) -> String {
    let mut text = format!("cpus {}\n", watch.cpus);
    for dir in &watch.dirs {
        let _ = writeln!(text, "dir {dir}");
    }
    for file in &watch.files {
        let _ = writeln!(text, "file {file}");
    }
    for (register, name, at, bits) in &watch.registers {
        let _ = writeln!(text, "register {register} {name} {at} {bits}");
    }
    for step in steps {
        let _ = writeln!(text, "write {} {} {}", step.path, escape(&step.text), step.answer);
        for (path, value) in &step.changed {
            let value = value.as_ref().map_or("-".to_owned(), |value| escape(value.as_bytes()));
            let _ = writeln!(text, "now {path} {value}");
        }
    }
    text
}

/// Parses the text that [`write`] returned.
pub(super) fn read(text: &str) -> (Watch, Vec<Step>) {
    let (mut watch, mut steps) = (Watch::default(), Vec::<Step>::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["cpus", count] => watch.cpus = count.parse().unwrap_or(0),
            ["dir", dir] => watch.dirs.push(dir.to_owned()),
            ["file", file] => watch.files.push(file.to_owned()),
            ["register", register, name, at, bits] => {
                let number = |text: &str| text.parse().unwrap_or(0);
                let name = Box::leak(name.to_owned().into_boxed_str());
                watch.registers.push((number(register), name, number(at), number(bits)));
            }
            ["write", path, text, answer] => steps.push(Step {
                path: path.to_owned(),
                text: unescape(text),
                answer: answer.to_owned(),
                changed: Vec::new(),
            }),
            ["now", path, value] => {
                let value = (value != "-").then(|| String::from_utf8_lossy(&unescape(value)).into_owned());
                if let Some(step) = steps.last_mut() {
                    step.changed.push((path.to_owned(), value));
                }
            }
            _ => panic!("no line of a script: {line}"),
        }
    }
    (watch, steps)
}

/// A machine to read from and write to: a simulated one, or the one that this program runs on.
pub(super) trait Machine {
    /// The files of a directory with their modes; empty if there is no such directory.
    fn list(&mut self, dir: &str) -> Vec<(String, u32)>;
    /// A file's mode.
    fn mode(&mut self, path: &str) -> Option<u32>;
    fn read(&mut self, path: &str) -> Result<Vec<u8>, i32>;
    fn write(&mut self, path: &str, text: &[u8]) -> Result<(), i32>;
    fn register(&mut self, cpu: u32, register: u32) -> Result<u64, i32>;
}

/// Reads everything that `watch` lists.
pub(super) fn look(machine: &mut dyn Machine, watch: &Watch) -> Look {
    let mut look = Look::new();
    let mut see = |machine: &mut dyn Machine, path: String, mode: u32| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let text = match machine.read(&format!("{CPU}/{path}")) {
            Ok(_) if VOLATILE.contains(&name) => "some".to_owned(),
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned(),
            Err(errno) => format!("<errno {errno}>"),
        };
        look.insert(path, format!("{mode:03o} {text}"));
    };
    for dir in &watch.dirs {
        for (name, mode) in machine.list(&format!("{CPU}/{dir}")) {
            if name != "uevent" {
                see(machine, format!("{dir}/{name}"), mode);
            }
        }
    }
    for file in &watch.files {
        if let Some(mode) = machine.mode(&format!("{CPU}/{file}")) {
            see(machine, file.clone(), mode);
        }
    }
    for cpu in 0..watch.cpus {
        let mut last = None;
        for &(register, name, at, bits) in &watch.registers {
            let value = match last {
                Some((same, value)) if same == register => value,
                _ => machine.register(cpu, register),
            };
            last = Some((register, value));
            let text = match value {
                Ok(value) => (value >> at & ((1 << bits) - 1)).to_string(),
                Err(errno) => format!("<errno {errno}>"),
            };
            look.insert(format!("register:{cpu}:{name}"), text);
        }
    }
    look
}

/// Whether the actual value matches the expected one.
pub(super) fn agrees(expected: Option<&String>, actual: Option<&String>) -> bool {
    match (expected, actual) {
        (Some(expected), Some(actual)) if expected.ends_with(ANY) => {
            let number = actual.rsplit(' ').next().unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }
        (expected, actual) => expected == actual,
    }
}
