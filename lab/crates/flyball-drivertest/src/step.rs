//! A step, a sequence of steps, and their text form for `agent.sh`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::speed_select;

/// The script that runs steps in the guest.
pub const AGENT: &str = include_str!("agent.sh");

/// An action on the driver. Paths are below /sys/devices/system/cpu and may be shell patterns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Write a value to every file that matches the path.
    Write { path: String, value: String },
    /// Keep all CPUs busy, milliseconds.
    Load(u32),
    /// Wait, milliseconds.
    Wait(u32),
    /// Run a shell command.
    Run(String),
    /// Call Speed Select's device: the number for ioctl(2), and the argument.
    Ioctl { number: u32, argument: Vec<u8> },
    /// Break the firmware in these ways, or repair it (0): lab/docs/guest.md, firmware faults.
    Firmware(u8),
}

impl Step {
    pub fn write(path: impl Into<String>, value: impl Into<String>) -> Step {
        Step::Write { path: path.into(), value: value.into() }
    }

    /// Parses the output of `Display`.
    pub fn parse(line: &str) -> Option<Step> {
        let (op, rest) = line.split_once(' ')?;
        let seconds =
            || Some((rest.parse::<f64>().ok().filter(|s| (0.0..=600.0).contains(s))? * 1000.0) as u32);
        match op {
            "w" => {
                let (path, value) = rest.split_once(' ').unwrap_or((rest, ""));
                Some(Step::write(path, value))
            }
            "l" => seconds().map(Step::Load),
            "p" => seconds().map(Step::Wait),
            "x" => Some(Step::Run(rest.to_owned())),
            "i" => {
                // The remaining text is for people.
                let mut words = rest.split(' ');
                let number = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
                Some(Step::Ioctl { number, argument: speed_select::bytes(words.next()?)? })
            }
            "f" => rest.parse().ok().map(Step::Firmware),
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Write { path, value } => write!(f, "w {path} {value}"),
            Step::Load(ms) => write!(f, "l {}", f64::from(*ms) / 1000.0),
            Step::Wait(ms) => write!(f, "p {}", f64::from(*ms) / 1000.0),
            Step::Run(command) => write!(f, "x {command}"),
            Step::Ioctl { number, argument } => write!(
                f,
                "i {number:#x} {} {}",
                speed_select::hex(argument),
                speed_select::describe(*number, argument)
            ),
            Step::Firmware(faults) => write!(f, "f {faults}"),
        }
    }
}

impl Serialize for Step {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Step, D::Error> {
        let text = String::deserialize(from)?;
        Step::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("not a step: {text}")))
    }
}

/// Steps that begin in the mode's base state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// One word.
    pub name: String,
    pub steps: Vec<Step>,
}

/// The file of steps for the agent: each sequence follows a return to the base state. Step 1 is the
/// first return; numbers continue over all sequences.
pub fn script(reset: &[Step], sequences: &[Sequence]) -> String {
    let mut text = String::new();
    let mut number = 0;
    let mut begin = |text: &mut String| {
        number += 1;
        text.push_str(&format!("s {number}\n"));
    };
    for sequence in sequences {
        text.push_str(&format!("seq {}\n", sequence.name));
        begin(&mut text);
        for step in reset {
            text.push_str(&format!("{step}\n"));
        }
        text.push_str("o\n");
        for step in &sequence.steps {
            begin(&mut text);
            text.push_str(&format!("{step}\no\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_written() {
        for step in [
            Step::write("cpufreq/policy0/boost", "0"),
            Step::write("cpufreq/policy0/scaling_governor", ""),
            Step::Load(20),
            Step::Wait(1500),
            Step::Run("echo mem > /sys/power/state".into()),
            Step::Ioctl { number: 0x8008_fe0d, argument: vec![0, 0, 7, 1] },
            Step::Ioctl { number: 0x5401, argument: Vec::new() },
            Step::Firmware(6),
        ] {
            assert_eq!(Step::parse(&step.to_string()), Some(step));
        }
        for bad in ["", "w", "l x", "l 1e9", "z 1", "i 5 00", "i 0x5 0", "i 0x5", "f x"] {
            assert_eq!(Step::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_step_has_a_number_and_an_observation() {
        let one = Sequence { name: "a".into(), steps: vec![Step::Load(5), Step::Wait(1)] };
        let text = script(&[Step::write("x", "1")], &[one.clone(), one]);
        let numbers: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("s ")).collect();
        assert_eq!(numbers, ["1", "2", "3", "4", "5", "6"]);
        assert_eq!(text.lines().filter(|line| *line == "o").count(), 6);
    }
}
