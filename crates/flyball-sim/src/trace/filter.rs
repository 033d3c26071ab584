//! Event filters (kernel/trace/trace_events_filter.c): `cpu_id == 0 && freq > 2000000`, over an
//! event's own fields, the common fields, `cpu`, and `comm`.

use super::{Kind, format, ring::Record};
use crate::kernel::Kernel;

/// A filter as written, with its parsed condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filter {
    pub(crate) text: String,
    condition: Condition,
}

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Number(Operand, Op, i128),
    /// The task's name: equal to a text, or matching a pattern.
    Comm(bool, String),
}

/// Source of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Operand {
    /// A field of the record: offset, size, signed.
    Field(u32, u32, bool),
    Pid,
    Cpu,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Op {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Bits,
}

const OPS: [(&str, Op); 7] = [
    ("==", Op::Equal),
    ("!=", Op::Unequal),
    // Before their one-character prefixes: the first matching token wins.
    ("<=", Op::AtMost),
    (">=", Op::AtLeast),
    ("<", Op::Less),
    (">", Op::More),
    ("&", Op::Bits),
];

/// Maximum depth of brackets. No program's filter comes near it, and a hostile one fails here.
const DEEPEST: usize = 32;

impl Filter {
    /// Parses a filter for an event; `None` if the kernel would reject it.
    pub(crate) fn parse(text: &str, kind: Kind, kernel: Kernel) -> Option<Filter> {
        let mut parser = Parser { rest: text, kind, kernel, depth: 0 };
        let condition = parser.any()?;
        parser.blank();
        parser.rest.is_empty().then(|| Filter { text: text.trim().to_owned(), condition })
    }

    /// Returns whether a record of this task on this CPU matches.
    pub(crate) fn passes(&self, record: &Record, cpu: u32, comm: &str, kernel: Kernel) -> bool {
        // Start with the eight common bytes, so that offsets are those of the format file.
        let mut bytes = vec![0; 8];
        record.event.encode(kernel, &mut bytes);
        bytes[..2].copy_from_slice(&record.event.kind().id(kernel).to_le_bytes());
        bytes[2] = record.flags;
        bytes[3] = record.preempt;
        bytes[4..8].copy_from_slice(&record.pid.to_le_bytes());
        self.condition.holds(&RecordView { bytes: &bytes, pid: record.pid, cpu, comm })
    }
}

struct RecordView<'a> {
    bytes: &'a [u8],
    pid: i32,
    cpu: u32,
    comm: &'a str,
}

impl Condition {
    fn holds(&self, seen: &RecordView<'_>) -> bool {
        match self {
            Condition::All(parts) => parts.iter().all(|part| part.holds(seen)),
            Condition::Any(parts) => parts.iter().any(|part| part.holds(seen)),
            Condition::Not(part) => !part.holds(seen),
            Condition::Number(place, op, wanted) => {
                let value = match place {
                    Operand::Pid => i128::from(seen.pid),
                    Operand::Cpu => i128::from(seen.cpu),
                    Operand::Field(offset, size, signed) => number(seen.bytes, *offset, *size, *signed),
                };
                match op {
                    Op::Equal => value == *wanted,
                    Op::Unequal => value != *wanted,
                    Op::Less => value < *wanted,
                    Op::AtMost => value <= *wanted,
                    Op::More => value > *wanted,
                    Op::AtLeast => value >= *wanted,
                    Op::Bits => value & *wanted != 0,
                }
            }
            Condition::Comm(equal, pattern) => is_like(pattern, seen.comm) == *equal,
        }
    }
}

/// Returns whether a text matches a pattern, in which `*` matches any text.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    let mut starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    starts.any(|at| is_like(tail, &rest[at..]))
}

fn number(bytes: &[u8], offset: u32, size: u32, signed: bool) -> i128 {
    let field = bytes.iter().skip(offset as usize).take((size as usize).min(8));
    let value = field.enumerate().fold(0u64, |value, (at, byte)| value | u64::from(*byte) << (8 * at));
    // Shift up and down again to extend the sign.
    let spare = 64 - 8 * size.clamp(1, 8);
    if signed { i128::from((value << spare) as i64 >> spare) } else { i128::from(value) }
}

struct Parser<'a> {
    rest: &'a str,
    kind: Kind,
    kernel: Kernel,
    depth: usize,
}

impl Parser<'_> {
    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn takes(&mut self, token: &str) -> bool {
        self.blank();
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest;
        true
    }

    fn any(&mut self) -> Option<Condition> {
        let mut parts = vec![self.all()?];
        while self.takes("||") {
            parts.push(self.all()?);
        }
        Some(Condition::Any(parts))
    }

    fn all(&mut self) -> Option<Condition> {
        let mut parts = vec![self.one()?];
        while self.takes("&&") {
            parts.push(self.one()?);
        }
        Some(Condition::All(parts))
    }

    fn one(&mut self) -> Option<Condition> {
        self.depth += 1;
        let condition = if self.depth > DEEPEST {
            None
        } else if self.takes("!") {
            self.one().map(|condition| Condition::Not(Box::new(condition)))
        } else if self.takes("(") {
            self.any().filter(|_| self.takes(")"))
        } else {
            self.comparison()
        };
        self.depth -= 1;
        condition
    }

    fn word(&mut self) -> String {
        self.blank();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn comparison(&mut self) -> Option<Condition> {
        let name = self.word();
        if matches!(name.as_str(), "comm" | "COMM") {
            let (equal, like) = match () {
                () if self.takes("==") => (true, false),
                () if self.takes("!=") => (false, false),
                () if self.takes("~") => (true, true),
                () => return None,
            };
            let text = self.string()?;
            // In an exact name a star has no meaning, and no task name has one.
            return (like || !text.contains('*')).then_some(Condition::Comm(equal, text));
        }
        let place = match name.as_str() {
            "common_pid" => Operand::Pid,
            "cpu" | "CPU" => Operand::Cpu,
            name => {
                let (offset, size, signed) = format::field(self.kind, self.kernel, name)?;
                Operand::Field(offset, size, signed)
            }
        };
        let op = OPS.iter().find(|(token, _)| self.takes(token)).map(|(_, op)| *op)?;
        let negative = self.takes("-");
        let digits = self.word();
        let value = match digits.strip_prefix("0x") {
            // 128 bits hold unsigned and negative 64-bit numbers.
            Some(hex) => i128::from(u64::from_str_radix(hex, 16).ok()?),
            None => i128::from(digits.parse::<u64>().ok()?),
        };
        Some(Condition::Number(place, op, if negative { -value } else { value }))
    }

    fn string(&mut self) -> Option<String> {
        self.blank();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let Some(quote) = quote else { return Some(self.word()).filter(|word| !word.is_empty()) };
        let (text, rest) = self.rest[1..].split_once(quote)?;
        let mut text = text.to_owned();
        // Two stars match the same as one, and each more would multiply the possible matches.
        while text.contains("**") {
            text = text.replace("**", "*");
        }
        self.rest = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    fn passes(filter: &str, khz: u32, cpu: u32) -> Option<bool> {
        let event = Event::CpuFrequency { khz, cpu };
        let record = Record { stamp: 0, pid: 17, flags: 0, preempt: 0, event };
        let filter = Filter::parse(filter, Kind::CpuFrequency, Kernel::V6_12)?;
        Some(filter.passes(&record, 3, "kworker/3:1", Kernel::V6_12))
    }

    #[test]
    fn filters_hold_or_not() {
        for (filter, holds) in [
            ("cpu_id == 2", true),
            ("cpu_id!=2", false),
            ("state > 1000000 && state <= 2000000", true),
            ("state < 1000000 || cpu_id & 0x2", true),
            ("!(state >= 2000000) && cpu_id == 2", false),
            ("cpu_id == 1 || cpu_id == 2 && state == 2000000", true),
            ("common_pid == 17 && CPU == 3", true),
            ("comm ~ \"kworker*\"", true),
            ("comm == 'sh'", false),
            ("comm != sh", true),
        ] {
            assert_eq!(passes(filter, 2_000_000, 2), Some(holds), "{filter}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let deep = format!("{}cpu_id == 1", "(".repeat(100_000));
        for filter in [
            "",
            "cpu_id",
            "cpu_id ==",
            "nothing == 1",
            "cpu_id == x",
            "(cpu_id == 1",
            "cpu_id == 1)",
            "&&",
            "comm ~",
            &deep,
        ] {
            assert_eq!(passes(filter, 1, 1), None, "{filter:.40}");
        }
    }
}
