//! Metrics as text: the format of Prometheus 0.0.4 and OpenMetrics 1.0.

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

/// Metrics that are being written. All samples of a family must follow each other.
#[derive(Debug)]
pub struct Exposition {
    text: String,
    format: Format,
    family: &'static str,
    /// Names that were written, to find a family in two pieces, which both formats forbid.
    #[cfg(debug_assertions)]
    seen: std::collections::BTreeSet<&'static str>,
}

impl Exposition {
    /// `room` is how long the last one was.
    pub fn new(format: Format, room: usize) -> Exposition {
        Exposition {
            text: String::with_capacity(room + 1024),
            format,
            family: "",
            #[cfg(debug_assertions)]
            seen: std::collections::BTreeSet::new(),
        }
    }

    /// Adds a sample. A number that is not finite is left out: it would poison every sum that it enters.
    pub fn add(&mut self, family: &'static Family, labels: &[(&str, &str)], value: f64) {
        if !value.is_finite() {
            return;
        }
        // By name: constants may have several addresses.
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

    /// The same for a family with one label that is a number: most series of a machine with 512 CPUs.
    pub fn add_of(&mut self, family: &'static Family, label: &str, number: u32, value: f64) {
        let mut digits = itoa::Buffer::new();
        self.add(family, &[(label, digits.format(number))], value);
    }

    fn begin(&mut self, family: &'static Family) {
        #[cfg(debug_assertions)]
        assert!(self.seen.insert(family.name), "{} is written in two pieces", family.name);
        self.family = family.name;
        // OpenMetrics names the family of a counter without the suffix of its samples.
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

/// A label's value: from the machine, and so with anything in it (names of programs).
fn escape(text: &mut String, label: &str) {
    if !label.contains(['\\', '"', '\n']) {
        return text.push_str(label);
    }
    for character in label.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

fn number(text: &mut String, value: f64) {
    // Whole numbers up to 2^53 are exact; most values are, and this is many times faster than the general way.
    if value.fract() == 0.0 && value.abs() < 9e15 {
        text.push_str(itoa::Buffer::new().format(value as i64));
    } else {
        text.push_str(&value.to_string());
    }
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
