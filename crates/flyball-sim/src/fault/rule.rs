//! Parses fault rules, one line of words each.

use std::str::FromStr;

use super::{BLOCKED, Effect, Fault, Op, When};
use crate::errno::Errno;

/// Times in rules stay below this, 31 years, so that sums cannot overflow.
const MAX_TIME_NS: u64 = 1_000_000_000_000_000_000;

/// The forms of a rule, for help and for messages.
pub const FORMS: &str = "\
write PATH fails ERRNO [nth N]              the access fails (reads too: read PATH fails ...)
ioctl PATH fails ERRNO [nth N]              a call of a device fails (/dev/isst_interface)
write PATH is lost [nth N]                  the write succeeds and changes nothing
write PATH meets PATH=TEXT [nth N]          another program writes PATH=TEXT first (reads too)
PATH=TEXT every TIME|after TIME             another program writes at these times
offline CPUS [after TIME] [for TIME]        CPUs go offline, and come back
fan blocked|FACTOR [after TIME] [for TIME]  the cooler's thermal resistance times 7.7, or FACTOR
air CELSIUS [after TIME] [for TIME]         the air's temperature
glitch CPUS MHZ [after TIME] [for TIME]     firmware runs CPUs at no more than MHZ";

/// Directory of paths without a leading slash.
const CPU: &str = "/sys/devices/system/cpu/";

/// A rule that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault '{rule}': {flaw}; a rule is one of\n  {}", FORMS.replace('\n', "\n  "))]
pub struct RuleError {
    /// The rule as it was written.
    pub rule: String,
    /// The mistake in the rule.
    pub flaw: RuleFlaw,
}

/// A mistake in a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFlaw {
    /// The rule ends too early.
    #[error("{0} is missing at its end")]
    Missing(&'static str),
    /// A word that no form has, or not in this position.
    #[error("'{0}' is not understood{1}")]
    Unknown(String, &'static str),
    /// A value that is out of range or of the wrong kind.
    #[error("'{0}' is not {1}")]
    Invalid(String, &'static str),
    /// A write by another program without a time.
    #[error("it does not say when: give 'every 10s' or 'after 10s'")]
    NoTime,
    /// A write by another program to a pattern.
    #[error("another program writes to one path, without '*'")]
    Pattern,
}

impl FromStr for Fault {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Fault, RuleError> {
        let mut words = Words { words: text.split_whitespace().collect(), at: 0 };
        let fault = words.rule().and_then(|fault| match words.next() {
            None => Ok(fault),
            Some(word) => Err(RuleFlaw::Unknown(word.to_owned(), "")),
        });
        fault.map_err(|flaw| RuleError { rule: text.trim().to_owned(), flaw })
    }
}

struct Words<'t> {
    words: Vec<&'t str>,
    at: usize,
}

/// The error for a word that is not `expected`.
fn invalid(word: &str, expected: &'static str) -> RuleFlaw {
    RuleFlaw::Invalid(word.to_owned(), expected)
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn need(&mut self, what: &'static str) -> Result<&'t str, RuleFlaw> {
        self.next().ok_or(RuleFlaw::Missing(what))
    }

    fn rule(&mut self) -> Result<Fault, RuleFlaw> {
        let first = self.need("what happens")?;
        match first {
            "read" => self.access(Op::Read),
            "write" => self.access(Op::Write),
            "ioctl" => self.access(Op::Ioctl),
            "offline" => {
                let cpus = self.cpus()?;
                self.clock(Effect::Online(cpus, false))
            }
            "fan" => {
                let factor = match self.need("blocked, or a factor,")? {
                    "blocked" => BLOCKED,
                    word => number(word, 0.01, 1000.0, "a factor of 0.01 to 1000, or 'blocked'")?,
                };
                self.clock(Effect::Fan(factor))
            }
            "air" => {
                let word = self.need("a temperature")?;
                let celsius =
                    number(word.trim_end_matches('C'), -40.0, 80.0, "a temperature of -40 to 80 C")?;
                self.clock(Effect::Air(Some(celsius)))
            }
            "glitch" => {
                let cpus = self.cpus()?;
                let word = self.need("a frequency in MHz")?;
                let mhz =
                    number(word.trim_end_matches("MHz"), 1.0, 100_000.0, "a frequency of 1 to 100000 MHz")?;
                self.clock(Effect::Hold(cpus, Some((mhz * 1000.0) as u32)))
            }
            word if word.contains('=') => {
                let effect = foreign_write(word)?;
                if self.words.len() < 2 {
                    return Err(RuleFlaw::NoTime);
                }
                self.clock(effect)
            }
            word => Err(RuleFlaw::Unknown(word.to_owned(), "")),
        }
    }

    fn access(&mut self, op: Op) -> Result<Fault, RuleFlaw> {
        let pattern = path(self.need("a path")?);
        let effect = match self.need("what becomes of it")? {
            "fails" => {
                let name = self.need("an errno")?;
                let errno = Errno::from_name(&name.to_ascii_uppercase());
                Effect::Fail(
                    errno.ok_or_else(|| invalid(name, "an errno that a file answers (as EIO or EBUSY)"))?,
                )
            }
            "is" if op == Op::Write => match self.need("'lost'")? {
                "lost" => Effect::Ignore,
                word => return Err(RuleFlaw::Unknown(word.to_owned(), " after 'is'")),
            },
            "meets" => foreign_write(self.need("PATH=TEXT")?)?,
            word => return Err(RuleFlaw::Unknown(word.to_owned(), " after the path")),
        };
        let mut fault = Fault::access(pattern, op, effect);
        if self.words.get(self.at) == Some(&"nth") {
            self.at += 1;
            let word = self.need("a number")?;
            let nth = word.parse().ok().filter(|&nth: &u32| nth > 0);
            fault = fault.at(nth.ok_or_else(|| invalid(word, "a count (the first access is nth 1)"))?);
        }
        Ok(fault)
    }

    fn clock(&mut self, effect: Effect) -> Result<Fault, RuleFlaw> {
        let (mut due, mut every, mut lasts) = (0, 0, 0);
        while let Some(word) = self.next() {
            let time = self.need("a time")?;
            let time = flyball_text::span::parse(time)
                .ok()
                .and_then(|span| u64::try_from(span.as_nanos()).ok())
                .filter(|ns| *ns < MAX_TIME_NS)
                .ok_or_else(|| invalid(time, "a time (expected 500ms, 10s, 2min or 1h)"))?;
            let is_write = matches!(effect, Effect::ForeignWrite(..));
            match word {
                "after" => due = time,
                // Starts after one period: a write at boot would look like the machine's own
                // setting.
                "every" if is_write && time > 0 => (due, every) = (time, time),
                // A write cannot be undone: the old value belongs to the program that wrote it.
                "for" if !is_write && time > 0 => lasts = time,
                _ => return Err(RuleFlaw::Unknown(word.to_owned(), " here")),
            }
        }
        Ok(Fault { when: When::Clock { due, every, lasts }, effect })
    }

    fn cpus(&mut self) -> Result<Vec<u32>, RuleFlaw> {
        let word = self.need("CPU numbers")?;
        let cpus = crate::text::read_cpu_list(word).filter(|cpus| !cpus.is_empty());
        cpus.ok_or_else(|| invalid(word, "a list of CPUs as 0-3,7"))
    }
}

/// Parses a write by another program, PATH=TEXT.
fn foreign_write(word: &str) -> Result<Effect, RuleFlaw> {
    // No path of a simulated machine contains an equals sign.
    let (target, text) = word.split_once('=').ok_or_else(|| invalid(word, "PATH=TEXT"))?;
    if target.contains('*') {
        return Err(RuleFlaw::Pattern);
    }
    Ok(Effect::ForeignWrite(path(target), text.as_bytes().to_vec()))
}

fn number(word: &str, low: f64, high: f64, expected: &'static str) -> Result<f64, RuleFlaw> {
    let number = word.parse::<f64>().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| invalid(word, expected))
}

/// The whole path: without a leading slash it is relative to the CPUs' directory.
fn path(text: &str) -> String {
    if text.starts_with('/') { text.to_owned() } else { format!("{CPU}{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Fault {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_form() {
        let file = "/sys/devices/system/cpu/cpufreq/boost";
        assert_eq!(read("write cpufreq/boost fails EIO"), Fault::errno(file, Op::Write, Errno::IO));
        assert_eq!(read("read cpufreq/boost fails eio nth 2"), Fault::errno(file, Op::Read, Errno::IO).at(2));
        assert_eq!(read("write cpufreq/boost is lost"), Fault::ignored(file));
        assert_eq!(
            read("read cpufreq/boost meets cpu3/online=0 nth 1"),
            Fault::foreign_write(file, Op::Read, "/sys/devices/system/cpu/cpu3/online", "0").at(1)
        );
        for text in [
            "offline 2-3 after 1.5s",
            "offline 2-3 after 1.5s for 1min",
            "fan blocked",
            "fan 3.5 after 500ms",
            "air 45C for 1h",
            "glitch 0,4 1600MHz after 10s for 5s",
            "cpufreq/boost=1 every 10s",
            "cpufreq/boost=1 after 10s",
        ] {
            read(text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("", "what happens"),
            ("wrote x fails EIO", "'wrote'"),
            ("write x fails", "an errno"),
            ("write x fails EWHAT", "'EWHAT'"),
            ("read x is lost", "'is'"),
            ("write x is gone", "'gone'"),
            ("write x fails EIO nth 0", "nth 1"),
            ("write x fails EIO soon", "'soon'"),
            ("write x meets y", "PATH=TEXT"),
            ("x=1", "when"),
            ("x*=1 every 1s", "'*'"),
            ("offline x", "'x'"),
            ("offline 9-1 after 1s", "'9-1'"),
            ("fan off", "'off'"),
            ("fan 0", "'0'"),
            ("air 900", "'900'"),
            ("glitch 1 fast", "'fast'"),
            ("fan blocked after noon", "'noon'"),
            ("fan blocked after", "a time"),
            ("fan blocked every 3s", "'every'"),
            ("x=1 after 99999999999999999h", "'99999999999999999h'"),
        ] {
            let flaw = text.parse::<Fault>().unwrap_err().flaw.to_string();
            assert!(flaw.contains(named), "{text}: {flaw}");
        }
    }
}
