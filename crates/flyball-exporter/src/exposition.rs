//! Metrics as text, in the formats Prometheus 0.0.4 and OpenMetrics 1.0.

use std::fmt::Write as _;

use crate::catalogue::{Family, Kind};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// https://prometheus.io/docs/instrumenting/exposition_formats
    Text,
    /// https://github.com/prometheus/OpenMetrics
    OpenMetrics,
}

impl Format {
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Metrics in the making. All samples of a family must be added one after the other.
#[derive(Debug)]
pub struct Exposition {
    text: String,
    format: Format,
    family: &'static str,
    /// Names written so far, to detect a family in two pieces, which both formats forbid.
    #[cfg(debug_assertions)]
    seen: std::collections::BTreeSet<&'static str>,
}

impl Exposition {
    /// `room` is the length of the last text.
    pub fn new(format: Format, room: usize) -> Exposition {
        Exposition {
            text: String::with_capacity(room + 1024),
            format,
            family: "",
            #[cfg(debug_assertions)]
            seen: std::collections::BTreeSet::new(),
        }
    }

    /// Adds a sample. Skips a number that is not finite, as it would spoil every sum that includes
    /// it.
    pub fn add(&mut self, family: &'static Family, labels: &[(&str, &str)], value: f64) {
        if !value.is_finite() {
            return;
        }
        // Compare by name: constants may have several addresses.
        if self.family != family.name {
            self.begin(family);
        }
        self.text.push_str(family.name);
        let mut before = '{';
        for (name, label) in labels {
            self.text.push(before);
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(&mut self.text, label);
            self.text.push('"');
            before = ',';
        }
        self.text.push_str(if labels.is_empty() { " " } else { "} " });
        number(&mut self.text, value);
        self.text.push('\n');
    }

    /// Adds a value of a family with a single, numeric label. Most series of a large machine are
    /// like that.
    pub fn add_of(&mut self, family: &'static Family, label: &str, number: u32, value: f64) {
        self.add(family, &[(label, itoa::Buffer::new().format(number))], value);
    }

    fn begin(&mut self, family: &'static Family) {
        #[cfg(debug_assertions)]
        assert!(self.seen.insert(family.name), "{} is written in two pieces", family.name);
        self.family = family.name;
        // In OpenMetrics, the family name of a counter lacks the suffix of its samples.
        let name = match (self.format, family.kind) {
            (Format::OpenMetrics, Kind::Counter) => family.name.trim_end_matches("_total"),
            _ => family.name,
        };
        self.text.push_str(&format!("# HELP {name} {}\n# TYPE {name} {}\n", family.help, family.kind.word()));
        if self.format == Format::OpenMetrics && !family.unit.is_empty() {
            self.text.push_str(&format!("# UNIT {name} {}\n", family.unit));
        }
    }

    /// The text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Escapes a label's value. Values come from the machine and may contain anything, as program names
/// do.
fn escape(text: &mut String, label: &str) {
    // Searching bytes is safe: in UTF-8, these are never part of a longer character.
    if !label.bytes().any(|byte| matches!(byte, b'\\' | b'"') || byte.is_ascii_control()) {
        return text.push_str(label);
    }
    for character in label.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            // The format has no escape for control characters, and a terminal would obey them.
            other if other.is_control() => text.push(char::REPLACEMENT_CHARACTER),
            other => text.push(other),
        }
    }
}

fn number(text: &mut String, value: f64) {
    // Whole numbers up to 2^53 are exact. Most values are whole, and this path is many times
    // faster.
    if value.fract() == 0.0 && value.abs() < 9e15 {
        text.push_str(itoa::Buffer::new().format(value as i64));
        return;
    }
    // CPU times are hundredths of a second, thousands of them in a scrape. If both numbers have
    // fewer than 15 digits, dividing by 100 restores the value, and no shorter decimal number does.
    let hundredths = (value * 100.0).round();
    if (0.0..1e14).contains(&hundredths) && hundredths / 100.0 == value {
        let hundredths = hundredths as u64;
        text.push_str(itoa::Buffer::new().format(hundredths / 100));
        let rest = hundredths % 100;
        let digits = [b'.', b'0' + (rest / 10) as u8, b'0' + (rest % 10) as u8];
        let length = if rest.is_multiple_of(10) { 2 } else { 3 };
        text.extend(digits[..length].iter().map(|digit| char::from(*digit)));
        return;
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "{value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn sample(format: Format) -> String {
        let mut out = Exposition::new(format, 0);
        out.add(catalogue::DRIFT, &[("knob", "epp"), ("by", "a\"b\\c\nd")], 3.0);
        out.add(catalogue::ENERGY, &[("zone", "package"), ("package", "0")], 1.5);
        out.add(catalogue::BUSY, &[("package", "0")], f64::NAN);
        out.add_of(catalogue::THREAD_BUSY, "cpu", 511, 0.25);
        out.finish()
    }

    #[test]
    fn numbers_are_the_shortest_that_mean_the_value() {
        let spelled = |value: f64| {
            let mut text = String::new();
            number(&mut text, value);
            text
        };
        for hundredths in (0..200_000u64).chain((0..1000).map(|step| 99_999_999_999_000 + step)) {
            let value = hundredths as f64 / 100.0;
            assert_eq!(spelled(value), value.to_string());
        }
        for value in [-0.25, 0.001, 1.005, 1e-9, 2.5e15, 123_456_789.123_4, -3.0, 1e300] {
            assert_eq!(spelled(value), value.to_string());
        }
    }

    #[test]
    fn labels_have_no_control_characters() {
        let mut text = String::new();
        escape(&mut text, "dr\riv\u{1b}[31m\"er\0\n");
        assert_eq!(text, "dr\u{fffd}iv\u{fffd}[31m\\\"er\u{fffd}\\n");
    }

    #[test]
    fn both_formats() {
        let text = sample(Format::Text);
        assert!(text.contains(
            "# TYPE flyball_drift_total counter\nflyball_drift_total{knob=\"epp\",by=\"a\\\"b\\\\c\\nd\"} 3\n"
        ));
        assert!(text.contains("flyball_cpu_thread_busy_ratio{cpu=\"511\"} 0.25\n"));
        assert!(!text.contains("flyball_cpu_busy_ratio") && !text.contains("EOF"));
        let open = sample(Format::OpenMetrics);
        assert!(open.contains("# TYPE flyball_energy_joules counter\n# UNIT flyball_energy_joules joules\n"));
        assert!(open.contains("flyball_energy_joules_total{zone=\"package\",package=\"0\"} 1.5\n"));
        assert!(open.ends_with("\n# EOF\n"));
    }
}
