//! The observations of a sequence: after each step the answers, the attributes, the writes to
//! registers and mailboxes, and under load the silicon's frequencies.
//!
//! The text comes from a guest and may contain anything: what cannot be parsed is skipped, and
//! sizes are bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{silicon, speed_select};

/// Maximum number of steps of one boot.
const MAX_STEPS: usize = 20_000;
/// Maximum number of attributes and registers of a step.
const MAX_ENTRIES: usize = 20_000;

/// The answer to one write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub path: String,
    /// `ok`, an errno, or `absent` if the file does not exist.
    pub answer: String,
    /// The written value with `@` expanded; for a call, the argument afterwards.
    pub value: String,
    /// The return value of a call, unless it is an errno.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub returned: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        self.answer == "ok"
    }

    /// The file's name without directories.
    pub fn file(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// A write that reached the silicon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub cpu: u32,
    /// `0xc00102b3`, or `mailbox.max`.
    pub register: String,
    pub value: u64,
    /// True if real hardware would have raised #GP.
    pub refused: bool,
}

/// The frequencies of a continuously busy CPU, kHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    pub lowest: u32,
    pub highest: u32,
}

/// The observations after a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    pub answers: Vec<Answer>,
    /// Content by path below /sys/devices/system/cpu; `!ERRNO` for a file that cannot be read.
    pub attributes: BTreeMap<String, String>,
    /// Writes during this step, in order.
    pub writes: Vec<Written>,
    /// Content after the step of each register that was written since the kernel started.
    pub registers: BTreeMap<(u32, String), u64>,
    /// Under load: each busy CPU's frequencies.
    pub load: BTreeMap<u32, Busy>,
    /// The exit code of a command.
    pub code: Option<i32>,
}

impl Observation {
    pub fn get(&self, path: &str) -> Option<&str> {
        self.attributes.get(path).map(String::as_str)
    }

    pub fn number(&self, path: &str) -> Option<i64> {
        self.get(path)?.trim().parse().ok()
    }

    /// An attribute of a policy.
    pub fn policy(&self, policy: u32, name: &str) -> Option<&str> {
        self.get(&format!("cpufreq/policy{policy}/{name}"))
    }

    pub fn policy_number(&self, policy: u32, name: &str) -> Option<i64> {
        self.policy(policy, name)?.trim().parse().ok()
    }

    pub fn register(&self, cpu: u32, name: &str) -> Option<u64> {
        self.registers.get(&(cpu, name.to_owned())).copied()
    }

    /// The policies with an online CPU, in order.
    pub fn policies(&self) -> Vec<u32> {
        let number = |path: &String| {
            let (policy, name) = path.strip_prefix("cpufreq/policy")?.split_once('/')?;
            (name == "scaling_governor").then(|| policy.parse().ok())?
        };
        let mut found: Vec<u32> = self.attributes.keys().filter_map(number).collect();
        found.retain(|policy| self.policy(*policy, "scaling_governor").is_some_and(|v| !v.starts_with('!')));
        found.sort_unstable();
        found
    }

    /// The online CPUs of a policy.
    pub fn cpus(&self, policy: u32) -> Vec<u32> {
        let list = self.policy(policy, "affected_cpus").unwrap_or_default();
        list.split_whitespace().filter_map(|cpu| cpu.parse().ok()).collect()
    }
}

/// A sequence's observations: the base state, then one for each step that was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub name: String,
    pub observations: Vec<Observation>,
}

/// All observations of one boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boot {
    pub runs: Vec<Run>,
    /// True if the agent has run all steps.
    pub complete: bool,
    /// The step that did not return.
    pub hang: Option<u32>,
}

/// Splits the guest's output and the emulator's logs into observations.
pub fn read(output: &str, registers: &str, silicon: &str) -> Boot {
    let mut boot = Boot::default();
    let log = Log::read(registers);
    let mut open: Option<Observation> = None;
    let mut state: BTreeMap<(u32, String), u64> = BTreeMap::new();
    let mut attributes: BTreeMap<String, String> = BTreeMap::new();
    let silicon: Vec<silicon::Line> = silicon::lines(silicon).collect();
    let (mut number, mut reads, mut steps) = (0usize, false, 0usize);
    // The driver's writes before the first step belong to the state.
    apply(&mut state, log.before());
    for line in output.lines() {
        let line = line.trim_end_matches('\r');
        if reads {
            if line == "." {
                reads = false;
                if let (Some(mut done), Some(run)) = (open.take(), boot.runs.last_mut()) {
                    done.attributes.clone_from(&attributes);
                    done.writes = log.of_step(number).to_vec();
                    apply(&mut state, &done.writes);
                    done.registers.clone_from(&state);
                    if let Some((from, to)) = log.times(number).filter(|_| done.code == Some(LOADED)) {
                        done.load = busy(&silicon, from, to);
                        done.code = None;
                    }
                    run.observations.push(done);
                }
            } else if let Some((path, value)) = line.strip_prefix('-').and_then(attribute) {
                // The old value was printed before.
                if attributes.get(&path) == Some(&value) {
                    attributes.remove(&path);
                }
            } else if let Some((path, value)) = attribute(line)
                && attributes.len() < MAX_ENTRIES
            {
                attributes.insert(path, value);
            }
            continue;
        }
        let (op, rest) = line.split_once(' ').unwrap_or((line, ""));
        match op {
            "seq" => boot.runs.push(Run { name: rest.to_owned(), observations: Vec::new() }),
            "s" if steps < MAX_STEPS => {
                steps += 1;
                number = rest.parse().unwrap_or(0);
                open = Some(Observation::default());
            }
            "w" => {
                let mut words = rest.splitn(3, ' ');
                if let (Some(open), Some(path), Some(answer)) = (&mut open, words.next(), words.next())
                    && open.answers.len() < MAX_ENTRIES
                {
                    let value = words.next().unwrap_or_default().to_owned();
                    open.answers.push(Answer {
                        path: path.into(),
                        answer: answer.into(),
                        value,
                        returned: 0,
                    });
                }
            }
            "l" => {
                if let Some(open) = &mut open {
                    open.code = Some(LOADED);
                }
            }
            "x" => {
                if let Some(open) = &mut open {
                    open.code = rest.parse().ok();
                }
            }
            "i" => {
                if let Some(open) = open.as_mut().filter(|open| open.answers.len() < MAX_ENTRIES) {
                    open.answers.push(of_call(rest));
                }
            }
            "o" => reads = true,
            "hang" => boot.hang = rest.parse().ok(),
            "end" => boot.complete = true,
            _ => {}
        }
    }
    boot
}

/// The answer to a call of Speed Select's device: its return value, and the argument afterwards.
fn of_call(line: &str) -> Answer {
    let (returned, argument) = line.split_once(' ').unwrap_or((line, ""));
    Answer {
        path: speed_select::DEVICE.to_owned(),
        answer: speed_select::answer(returned),
        value: argument.to_owned(),
        returned: i64::from_str_radix(returned, 16).unwrap_or(0),
    }
}

/// Marks an observation under load until its frequencies are filled in.
const LOADED: i32 = -2;

fn apply(state: &mut BTreeMap<(u32, String), u64>, writes: &[Written]) {
    for write in writes.iter().filter(|write| !write.refused) {
        if state.len() < MAX_ENTRIES {
            state.insert((write.cpu, write.register.clone()), write.value);
        }
    }
}

/// Parses `path:value`, or grep's message about an unreadable file.
fn attribute(line: &str) -> Option<(String, String)> {
    if let Some(message) = line.strip_prefix("grep: ") {
        let (path, why) = message.split_once(": ")?;
        let errno = match why {
            why if why.contains("busy") => "EBUSY",
            why if why.contains("Invalid") => "EINVAL",
            why if why.contains("No such") => return None,
            why if why.contains("temporarily") => "EAGAIN",
            why if why.contains("not supported") => "EOPNOTSUPP",
            why if why.contains("put/output") => "EIO",
            _ => "?",
        };
        return Some((path.to_owned(), format!("!{errno}")));
    }
    let (path, value) = line.split_once(':')?;
    path.contains('/').then(|| (path.to_owned(), value.trim_end().to_owned()))
}

/// The log of register writes, split at the marks of steps.
struct Log {
    writes: Vec<Written>,
    /// Index in `writes` and time of each mark, ns. Mark n belongs to step n.
    marks: Vec<(usize, u64)>,
    /// The end of each step, if it was logged.
    ends: Vec<Option<(usize, u64)>>,
}

impl Log {
    fn read(text: &str) -> Log {
        let mut log = Log { writes: Vec::new(), marks: Vec::new(), ends: Vec::new() };
        let mut mailboxes: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(time), Some(who)) = (words.next(), words.next()) else { continue };
            if who == "mark" {
                let mark = (log.writes.len(), nanoseconds(time));
                if words.next() != Some("0") {
                    log.marks.push(mark);
                    log.ends.push(None);
                } else if let Some(end) = log.ends.last_mut() {
                    end.get_or_insert(mark);
                }
                continue;
            }
            if let Some(written) = of_function(who, &mut words) {
                log.writes.push(written);
                continue;
            }
            let (Some(cpu), Some(what)) =
                (who.strip_prefix("cpu").and_then(|n| n.parse().ok()), words.next())
            else {
                continue;
            };
            match what {
                "wrmsr" => {
                    let (Some(register), Some(value)) = (words.next(), words.next().and_then(hex)) else {
                        continue;
                    };
                    let refused = words.next() == Some("refused");
                    log.writes.push(Written { cpu, register: register.to_owned(), value, refused });
                }
                "mailbox" => {
                    while let (Some(field), Some(value)) = (words.next(), words.next()) {
                        let Ok(value) = value.parse() else { continue };
                        let register = format!("mailbox.{field}");
                        // A line has all fields; the changed ones were written.
                        if mailboxes.insert((cpu, register.clone()), value) != Some(value) {
                            log.writes.push(Written { cpu, register, value, refused: false });
                        }
                    }
                }
                _ => {}
            }
        }
        log
    }

    fn before(&self) -> &[Written] {
        &self.writes[..self.marks.first().map_or(self.writes.len(), |mark| mark.0)]
    }

    /// The writes between the mark of a step and the next mark.
    fn of_step(&self, number: usize) -> &[Written] {
        let Some(from) = number.checked_sub(1).and_then(|at| self.marks.get(at)) else { return &[] };
        let next = self.marks.get(number).map_or(self.writes.len(), |mark| mark.0);
        let to = self.ends[number - 1].map_or(next, |end| end.0);
        &self.writes[from.0..to]
    }

    fn times(&self, number: usize) -> Option<(u64, u64)> {
        let at = number.checked_sub(1)?;
        let next = self.marks.get(number).map_or(u64::MAX, |mark| mark.1);
        Some((self.marks.get(at)?.1, self.ends[at].map_or(next, |end| end.1)))
    }
}

/// Parses a write to a register of Speed Select's PCI functions: `tpmi0 memory 0x1028 0x190a50`.
/// Other writes to configuration space concern the bus.
fn of_function<'a>(who: &str, words: &mut impl Iterator<Item = &'a str>) -> Option<Written> {
    let is_register = |region: &str, offset: u64| match region {
        "memory" => who.starts_with("tpmi") || who.starts_with("registers"),
        _ => who.starts_with("mailbox") && matches!(offset, 0xa0 | 0xa4),
    };
    let package = who.trim_start_matches(|c: char| c.is_ascii_lowercase()).parse().ok()?;
    if who.starts_with("cpu") {
        return None;
    }
    let (region, offset, value) = (words.next()?, words.next()?, hex(words.next()?)?);
    let register = format!("{}.{offset}", who.trim_end_matches(|c: char| c.is_ascii_digit()));
    is_register(region, hex(offset)?).then_some(Written { cpu: package, register, value, refused: false })
}

/// Times of the marks of steps, and of the end of the last step, ns.
pub fn marks(registers: &str) -> Vec<u64> {
    let log = Log::read(registers);
    log.marks.iter().chain(log.ends.last().and_then(Option::as_ref)).map(|(_, ns)| *ns).collect()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// `SECONDS.NNNNNNNNN`
fn nanoseconds(text: &str) -> u64 {
    let (seconds, rest) = text.split_once('.').unwrap_or((text, "0"));
    let (seconds, rest): (u64, u64) = (seconds.parse().unwrap_or(0), rest.parse().unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Milliseconds until a CPU that has become busy reaches its frequency: the silicon's ramp and the
/// firmware's reaction to load.
const SETTLES: usize = 4;

/// The frequencies of CPUs that were busy in every nanosecond of some consecutive lines of the
/// silicon's log.
fn busy(lines: &[silicon::Line], from_ns: u64, to_ns: u64) -> BTreeMap<u32, Busy> {
    let (from, to) = (from_ns as f64 / 1e6, to_ns as f64 / 1e6);
    let mut found: BTreeMap<u32, Busy> = BTreeMap::new();
    let mut streak: Vec<usize> = Vec::new();
    for line in silicon::between(lines, from, to) {
        streak.resize(line.cpus.len(), 0);
        for (cpu, (khz, ns)) in line.cpus.iter().copied().enumerate() {
            streak[cpu] = if ns >= silicon::BUSY_NS { streak[cpu] + 1 } else { 0 };
            if streak[cpu] > SETTLES {
                let seen = found.entry(cpu as u32).or_insert(Busy { lowest: khz, highest: khz });
                *seen = Busy { lowest: seen.lowest.min(khz), highest: seen.highest.max(khz) };
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "seq a\ns 1\nw cpufreq/policy0/boost ok 1\no\ncpufreq/policy0/scaling_max_freq:4680000\n\
        cpufreq/policy0/scaling_governor:powersave\ncpufreq/policy0/affected_cpus:0\n\
        grep: cpufreq/policy1/scaling_governor: Device or resource busy\n.\n\
        s 2\nw cpufreq/policy0/scaling_max_freq EINVAL x y\no\ncpufreq/policy0/scaling_max_freq:1\n.\ns 3\nl\no\n.\nend\n";
    const REGISTERS: &str = "0.5 cpu0 wrmsr 0xc00102b3 0xa6\n1.000000000 mark 1\n1.1 cpu1 mailbox desired 0 min 5 max 9\n\
        2.000000000 mark 2\n2.1 cpu0 wrmsr 0xc00102b3 0x55\n2.2 cpu0 wrmsr 0x10 0x1 refused\n\
        2.3 cpu1 mailbox desired 0 min 5 max 8\n3.000000000 mark 3\n3.050000000 mark 0\n";

    #[test]
    fn writes_belong_to_their_step() {
        let silicon: String = (3000..3050)
            .map(|ms| format!("{ms}.000 9.1 35.0 {} 1000000 400000 0\n", 1_000_000 + ms))
            .collect();
        let boot = read(OUTPUT, REGISTERS, &silicon);
        assert!(boot.complete && boot.hang.is_none());
        let [base, one, two] = &boot.runs[0].observations[..] else { panic!("{boot:?}") };
        assert_eq!(base.register(0, "0xc00102b3"), Some(0xa6));
        assert_eq!(base.get("cpufreq/policy1/scaling_governor"), Some("!EBUSY"));
        assert_eq!((base.policies(), base.cpus(0)), (vec![0], vec![0]));
        assert_eq!(one.register(0, "0xc00102b3"), Some(0x55));
        assert_eq!(one.register(0, "0x10"), None);
        // For the mailbox, only changed fields.
        assert_eq!(one.writes.last().map(|w| (&*w.register, w.value)), Some(("mailbox.max", 8)));
        assert_eq!((&*one.answers[0].answer, &*one.answers[0].value), ("EINVAL", "x y"));
        assert_eq!(two.load.len(), 1);
        assert_eq!(two.load[&0].highest, 1_003_049);
    }

    #[test]
    fn any_text_is_read() {
        for cut in 0..OUTPUT.len() {
            let _ = read(&OUTPUT[..cut], &REGISTERS[..cut.min(REGISTERS.len())], &OUTPUT[cut..]);
        }
        let _ = read(
            "s 99999999999999999999\no\n.\ns 7\no\nx:\n:\n.\n",
            "a b\n1 cpu wrmsr\n1 cpux y\nmark\n",
            "1 2\n",
        );
    }
}
