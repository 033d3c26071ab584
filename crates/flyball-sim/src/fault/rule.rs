//! Rules as a person writes them: one sentence of words.

use std::str::FromStr;

use super::{BLOCKED, Effect, Fault, Op, When};
use crate::errno::Errno;

/// The forms of a rule, for help and for messages.
pub const FORMS: &str = "\
write PATH fails ERRNO [nth N]              the access fails (reads too: read PATH fails ...)
ioctl PATH fails ERRNO [nth N]              a call of a device fails (/dev/isst_interface)
write PATH is lost [nth N]                  the write succeeds and changes nothing
write PATH meets PATH=TEXT [nth N]          just before it another program writes (reads too)
PATH=TEXT every TIME|after TIME             another program writes by the clock
offline CPUS [after TIME] [for TIME]        CPUs go, and come back
fan blocked|FACTOR [after TIME] [for TIME]  resistance to air times 7.7, or FACTOR
air CELSIUS [after TIME] [for TIME]         the air's temperature
glitch CPUS MHZ [after TIME] [for TIME]     firmware runs CPUs at no more than MHZ";

/// Where paths without a leading slash begin.
const CPU: &str = "/sys/devices/system/cpu/";

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let mut words = Words { rule: text, words: text.split_whitespace().collect(), at: 0 };
        let fault = words.rule()?;
        match words.next() {
            None => Ok(fault),
            Some(word) => Err(words.wrong(&format!("'{word}' is not understood"))),
        }
    }
}

struct Words<'t> {
    rule: &'t str,
    words: Vec<&'t str>,
    at: usize,
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn wrong(&self, why: &str) -> String {
        format!("fault '{}': {why}; a rule is one of\n  {}", self.rule.trim(), FORMS.replace('\n', "\n  "))
    }

    fn need(&mut self, what: &str) -> Result<&'t str, String> {
        self.next().ok_or_else(|| self.wrong(&format!("{what} is missing at its end")))
    }

    fn rule(&mut self) -> Result<Fault, String> {
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
                    word => self.number(word, 0.01, 1000.0, "a factor of 0.01 to 1000, or 'blocked'")?,
                };
                self.clock(Effect::Fan(factor))
            }
            "air" => {
                let word = self.need("a temperature")?;
                let celsius = word.trim_end_matches('C');
                let celsius = self.number(celsius, -40.0, 80.0, "a temperature of -40 to 80 C")?;
                self.clock(Effect::Air(Some(celsius)))
            }
            "glitch" => {
                let cpus = self.cpus()?;
                let word = self.need("a frequency in MHz")?;
                let mhz = self.number(
                    word.trim_end_matches("MHz"),
                    1.0,
                    100_000.0,
                    "a frequency of 1 to 100000 MHz",
                )?;
                self.clock(Effect::Hold(cpus, Some((mhz * 1000.0) as u32)))
            }
            word if word.contains('=') => {
                let effect = self.meddle(word)?;
                if self.words.len() < 2 {
                    return Err(self.wrong("it does not say when: give 'every 10s' or 'after 10s'"));
                }
                self.clock(effect)
            }
            word => Err(self.wrong(&format!("'{word}' is not understood"))),
        }
    }

    fn access(&mut self, op: Op) -> Result<Fault, String> {
        let pattern = path(self.need("a path")?);
        let effect = match self.need("what becomes of it")? {
            "fails" => {
                let name = self.need("an errno")?;
                let errno = Errno::from_name(&name.to_ascii_uppercase());
                Effect::Fail(errno.ok_or_else(|| {
                    self.wrong(&format!("'{name}' is no errno that a file answers (as EIO or EBUSY)"))
                })?)
            }
            "is" if op == Op::Write => match self.need("'lost'")? {
                "lost" => Effect::Ignore,
                word => return Err(self.wrong(&format!("'{word}' is not understood after 'is'"))),
            },
            "meets" => {
                let word = self.need("PATH=TEXT")?;
                self.meddle(word)?
            }
            word => return Err(self.wrong(&format!("'{word}' is not understood after the path"))),
        };
        let mut fault = Fault::access(pattern, op, effect);
        if self.words.get(self.at) == Some(&"nth") {
            self.at += 1;
            let word = self.need("a number")?;
            let nth = word.parse().ok().filter(|&nth: &u32| nth > 0);
            fault =
                fault.at(nth.ok_or_else(|| {
                    self.wrong(&format!("'{word}' is no count: the first access is nth 1"))
                })?);
        }
        Ok(fault)
    }

    fn meddle(&self, word: &str) -> Result<Effect, String> {
        // Paths hold no equals sign where the machine has files.
        let (target, text) =
            word.split_once('=').ok_or_else(|| self.wrong(&format!("'{word}' is not PATH=TEXT")))?;
        if target.contains('*') {
            return Err(self.wrong("another program writes to one path, without '*'"));
        }
        Ok(Effect::Meddle(path(target), text.as_bytes().to_vec()))
    }

    fn clock(&mut self, effect: Effect) -> Result<Fault, String> {
        let (mut due, mut every, mut lasts) = (0, 0, 0);
        while let Some(word) = self.next() {
            let time = self.need("a time")?;
            let time = duration(time)
                .ok_or_else(|| self.wrong(&format!("'{time}' is no time: give 500ms, 10s, 2min or 1h")))?;
            match word {
                "after" => due = time,
                "every" if matches!(effect, Effect::Meddle(..)) && time > 0 => (due, every) = (time, time),
                "for" if !matches!(effect, Effect::Meddle(..)) && time > 0 => lasts = time,
                _ => return Err(self.wrong(&format!("'{word}' is not understood here"))),
            }
        }
        Ok(Fault { when: When::Clock { due, every, lasts }, effect })
    }

    fn cpus(&mut self) -> Result<Vec<u32>, String> {
        let word = self.need("CPU numbers")?;
        let cpus = crate::text::read_cpu_list(word).filter(|cpus| !cpus.is_empty());
        cpus.ok_or_else(|| self.wrong(&format!("'{word}' is no list of CPUs as 0-3,7")))
    }

    fn number(&self, word: &str, low: f64, high: f64, what: &str) -> Result<f64, String> {
        let number = word.parse::<f64>().ok().filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| self.wrong(&format!("'{word}' is not {what}")))
    }
}

/// The whole path: without a leading slash it begins at the CPUs' directory.
fn path(text: &str) -> String {
    if text.starts_with('/') { text.to_owned() } else { format!("{CPU}{text}") }
}

/// A time in nanoseconds.
fn duration(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let ns = number * unit;
    (ns.is_finite() && ns < 1e18).then_some(ns as u64)
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
            Fault::meddler(file, Op::Read, "/sys/devices/system/cpu/cpu3/online", "0").at(1)
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
            let error = text.parse::<Fault>().unwrap_err();
            let first = error.lines().next().unwrap_or_default();
            assert!(first.contains(named), "{text}: {first}");
        }
    }
}
