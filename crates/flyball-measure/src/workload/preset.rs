//! Reading a command's performance from what it printed.
//!
//! Known benchmarks are read by preset; anything else by a regular expression with one group. All
//! functions are pure: the output is kept with each round, so a value can always be read again.

use regex_lite::Regex;

use super::suite::{Suite, geometric_mean};
use crate::metric::{Better, Metric};

/// The output of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output, its last 64 KiB.
    pub stdout: String,
    /// Standard error, its last 64 KiB.
    pub stderr: String,
}

/// A value that was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The value, in the metric's unit.
    pub value: f64,
    /// Seconds of work that a rate refers to, if known and different from the whole run.
    pub work_seconds: Option<f64>,
}

/// How the performance of a command is found.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, schemars::JsonSchema, serde::Serialize, serde::Deserialize,
)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum Reader {
    /// Time from start to end.
    #[default]
    WallTime,
    /// CPU time in user mode, from the kernel's accounting, as the kernel's gitsource test counts.
    UserTime,
    /// CPU time in user mode and in the kernel. Each alone is counted in ticks; their sum is exact.
    CpuTime,
    /// A benchmark whose output is known.
    Preset { preset: Preset },
    /// The last match of a regular expression with one group.
    Expression {
        pattern: String,
        /// Whether its numbers are exact, not rounded.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        exact: bool,
        /// The metric that it yields.
        metric: Metric,
    },
    /// A suite of benchmarks: the mean of its cases.
    Suite {
        suite: Suite,
        /// Whether their numbers are exact, not rounded.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        exact: bool,
        /// The metric of the cases.
        metric: Metric,
    },
    /// The model of a workload on a simulated machine: its rate, or its time.
    Model {
        /// The metric that it yields.
        metric: Metric,
    },
}

/// Why an expression cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExpressionError {
    /// The expression does not parse.
    #[error("bad regular expression: {0}")]
    Syntax(#[from] regex_lite::Error),
    /// There must be exactly one group.
    #[error("the expression needs exactly one group around the number, as in 'score: ([0-9.]+)'; it has {0}")]
    Groups(usize),
}

impl Reader {
    /// A reader for the last match of `pattern`, whose numbers are `exact` if they are not rounded.
    ///
    /// # Errors
    /// A pattern that does not parse or does not have exactly one group.
    pub fn expression(
        pattern: &str,
        unit: &str,
        better: Better,
        exact: bool,
    ) -> Result<Reader, ExpressionError> {
        let groups = Regex::new(pattern)?.captures_len() - 1;
        if groups != 1 {
            return Err(ExpressionError::Groups(groups));
        }
        let name = Reader::name_of(pattern).unwrap_or("metric");
        let metric = Metric::new(name, unit, better);
        Ok(Reader::Expression { pattern: pattern.to_owned(), exact, metric })
    }

    /// The name of what an expression reads: the plain words in front of a colon, as in
    /// `p99: ([0-9.]+) us`.
    pub fn name_of(pattern: &str) -> Option<&str> {
        let (name, _) = pattern.split_once(':')?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let name = name.trim();
        (name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_plain)).then_some(name)
    }

    /// The reader that fits a command line: its preset if it is a known benchmark, else wall time.
    pub fn for_command(argv: &[String]) -> Reader {
        Preset::for_command(argv).map_or(Reader::WallTime, |preset| Reader::Preset { preset })
    }

    /// The metric that it yields.
    pub fn metric(&self) -> Metric {
        match self {
            Reader::WallTime => Metric::wall_time(),
            Reader::UserTime => Metric::new("user time", "s", Better::Lower),
            Reader::CpuTime => Metric::new("CPU time", "s", Better::Lower),
            Reader::Preset { preset } => preset.metric(),
            Reader::Expression { metric, .. } | Reader::Suite { metric, .. } | Reader::Model { metric } => {
                metric.clone()
            }
        }
    }

    /// Returns the CPU time that this reader counts. Commands shorter than a tick may have 0.
    pub(super) fn cpu_time(&self, usage: flyball_host::Usage) -> f64 {
        let system = if *self == Reader::CpuTime { usage.system_seconds } else { 0.0 };
        usage.user_seconds + system
    }

    /// Reads a round's value; `None` if the output does not contain it. The values of CPU time,
    /// suites and models always come from elsewhere.
    pub fn read(&self, output: &Output, seconds: f64, argv: &[String]) -> Option<Reading> {
        let plain = |value: f64| Reading { value, work_seconds: None };
        match self {
            Reader::WallTime => Some(plain(seconds)),
            Reader::UserTime | Reader::CpuTime | Reader::Suite { .. } | Reader::Model { .. } => None,
            Reader::Preset { preset } => preset.read(output, argv),
            Reader::Expression { pattern, .. } => {
                let expression = Regex::new(pattern).ok()?;
                // The last match: programs print intermediate results first and the summary at the
                // end.
                let last = |text: &str| {
                    let found = expression.captures_iter(text).last()?;
                    grouped_number(found.get(1)?.as_str().trim())
                };
                // Standard output first: many programs log to standard error what looks like a
                // result.
                last(&output.stdout).or_else(|| last(&output.stderr)).map(plain)
            }
        }
    }
}

/// Benchmarks whose output is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// `perf bench sched pipe`: ops/s.
    PerfPipe,
    /// `perf bench sched messaging`: seconds.
    PerfMessaging,
    /// `tbench`, `dbench`: MB/s, the sum of the Throughput lines.
    Tbench,
    /// `fio --output-format=json`: operations per second of all jobs.
    Fio,
    /// `fio --output-format=json`: mean latency of all jobs in microseconds.
    FioLatency,
    /// `sysbench`: events (transactions, operations) per second.
    Sysbench,
    /// `stress-ng --metrics`: bogo operations per second of real time, geometric mean of the
    /// stressors.
    StressNg,
    /// `openssl speed` of digests and ciphers: kB/s, geometric mean of the cells.
    Openssl,
    /// `openssl speed` of signatures: signatures per second, geometric mean of the rows.
    OpensslSign,
    /// `pgbench`: transactions per second.
    Pgbench,
    /// The output of flyball's own tasks: `sched-pipe`.
    SchedPipe,
    Spin,
    /// `io-4k`.
    Io4k,
}

impl Preset {
    /// Every preset with the name that `--metric` takes.
    pub const ALL: &'static [(&'static str, Preset)] = &[
        ("perf-pipe", Preset::PerfPipe),
        ("perf-messaging", Preset::PerfMessaging),
        ("tbench", Preset::Tbench),
        ("fio", Preset::Fio),
        ("fio-latency", Preset::FioLatency),
        ("sysbench", Preset::Sysbench),
        ("stress-ng", Preset::StressNg),
        ("openssl", Preset::Openssl),
        ("openssl-sign", Preset::OpensslSign),
        ("pgbench", Preset::Pgbench),
        ("sched-pipe", Preset::SchedPipe),
        ("spin", Preset::Spin),
        ("io-4k", Preset::Io4k),
    ];

    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.iter().find(|(known, _)| *known == name).map(|(_, preset)| *preset)
    }

    /// The preset that fits a command line.
    pub fn for_command(argv: &[String]) -> Option<Preset> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let has = |word: &str| words.contains(&word);
        match program(&words)? {
            "perf" if has("bench") && has("pipe") => Some(Preset::PerfPipe),
            "perf" if has("bench") && has("messaging") => Some(Preset::PerfMessaging),
            "tbench" | "dbench" => Some(Preset::Tbench),
            "fio" if words.iter().any(|word| word.starts_with("--output-format=json")) => Some(Preset::Fio),
            "sysbench" => Some(Preset::Sysbench),
            "pgbench" => Some(Preset::Pgbench),
            // Without this option it prints no rates, so wall time is used. So it is for fio
            // without JSON.
            "stress-ng" if words.iter().any(|word| word.starts_with("--metrics")) => Some(Preset::StressNg),
            "openssl" if has("speed") => Some(
                if words
                    .iter()
                    .any(|w| ["rsa", "dsa", "ecdsa", "ed25519", "ed448"].iter().any(|p| w.starts_with(p)))
                {
                    Preset::OpensslSign
                } else {
                    Preset::Openssl
                },
            ),
            _ => None,
        }
    }

    /// The metric that it yields.
    pub fn metric(self) -> Metric {
        let (name, unit, better) = match self {
            Preset::PerfPipe | Preset::SchedPipe => ("round trips", "ops/s", Better::Higher),
            Preset::PerfMessaging => ("messaging time", "s", Better::Lower),
            Preset::Tbench => ("throughput", "MB/s", Better::Higher),
            Preset::Fio | Preset::Io4k => ("reads and writes", "ops/s", Better::Higher),
            Preset::FioLatency => ("mean latency", "us", Better::Lower),
            Preset::Sysbench => ("events", "events/s", Better::Higher),
            Preset::StressNg => ("bogo operations", "ops/s", Better::Higher),
            Preset::Openssl => ("throughput", "kB/s", Better::Higher),
            Preset::OpensslSign => ("signatures", "sign/s", Better::Higher),
            Preset::Pgbench => ("transactions", "tx/s", Better::Higher),
            Preset::Spin => ("time of the loop", "s", Better::Lower),
        };
        Metric::new(name, unit, better)
    }

    /// Reads a round's value from its output.
    pub fn read(self, output: &Output, argv: &[String]) -> Option<Reading> {
        let text = output.stdout.as_str();
        let value = match self {
            Preset::PerfPipe => before(text, "ops/sec"),
            Preset::PerfMessaging => after(text, "Total time:"),
            Preset::Tbench => {
                return Some(Reading {
                    value: throughput(text)?,
                    // One second less than the time limit, as in the kernel's selftest.
                    work_seconds: time_limit(argv).map(|limit| limit - 1.0).filter(|seconds| *seconds > 0.0),
                });
            }
            Preset::Fio => fio(text, false),
            Preset::FioLatency => fio(text, true),
            Preset::Sysbench => sysbench(text),
            // stress-ng prints on stderr, newer versions on stdout.
            Preset::StressNg => stress_ng(text).or_else(|| stress_ng(&output.stderr)),
            Preset::Openssl => openssl(text),
            Preset::OpensslSign => openssl_sign(text),
            Preset::Pgbench => after(text, "tps = "),
            Preset::SchedPipe => after(text, "sched-pipe:"),
            Preset::Spin => after(text, "spin:"),
            Preset::Io4k => after(text, "io-4k:"),
        }?;
        (value.is_finite() && value > 0.0).then_some(Reading { value, work_seconds: None })
    }
}

/// Parses a number in which commas may group digits by three (`1,234.5`), or one comma may be the
/// decimal point (`12,5`), as in some locales. A number that can be read both ways (`1,234`) is
/// grouped.
fn grouped_number(text: &str) -> Option<f64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let mut groups = whole.trim_start_matches(['-', '+']).split(',');
    let first = groups.next().unwrap_or("");
    // `0,125` is a decimal comma: no grouped number begins with a group of 0.
    let by_three =
        !first.is_empty() && first.len() <= 3 && first != "0" && groups.all(|group| group.len() == 3);
    let plain = if !text.contains(',') || (by_three && !part.contains(',')) {
        text.replace(',', "")
    } else if text.matches(',').count() == 1 && !text.contains('.') {
        text.replace(',', ".")
    } else {
        return None;
    };
    plain.parse::<f64>().ok().filter(|value| value.is_finite())
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn number(word: &str) -> Option<f64> {
    word.trim_matches(|c: char| "(),;:[]%".contains(c)).parse::<f64>().ok().filter(|value| value.is_finite())
}

/// The number in front of the first `label` that has one.
fn before(text: &str, label: &str) -> Option<f64> {
    text.lines().find_map(|line| number(line.split_once(label)?.0.split_whitespace().last()?))
}

/// The program of a command line, without wrappers that only change how it is run.
fn program<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_wrapper =
        |name: &&str| matches!(*name, "taskset" | "nice" | "chrt" | "numactl" | "env" | "stdbuf");
    let mut names = words.iter().map(|word| base_name(word));
    names.find(|name| !is_wrapper(name)).or_else(|| words.first().map(|word| base_name(word)))
}

/// Returns a note that wall time cannot compare commands if one of them runs for a fixed time.
pub fn note_fixed_time<'a>(
    reader: &Reader,
    commands: impl IntoIterator<Item = &'a [String]>,
) -> Option<String> {
    let option = commands.into_iter().find_map(fixed_time).filter(|_| *reader == Reader::WallTime)?;
    Some(format!(
        "'{option}' fixes the run time, so time and energy do not compare the work. Give its rate (--metric, --unit), or \
         let it print one that flyball reads (stress-ng --metrics-brief, fio --output-format=json)"
    ))
}

/// Returns the program and its option for a fixed run time, if flyball knows them.
fn fixed_time(argv: &[String]) -> Option<String> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let name = program(&words)?;
    let options: &[&str] = match name {
        "stress-ng" => &["-t", "--timeout"],
        "fio" => &["--time_based"],
        "iperf3" => &["-t", "--time"],
        "wrk" => &["-d", "--duration"],
        _ => &[],
    };
    let is_given = |option: &&&str| words.iter().any(|word| word.split('=').next() == Some(**option));
    options.iter().find(is_given).map(|option| format!("{name} {option}"))
}

/// The number behind the first `label` that has one.
fn after(text: &str, label: &str) -> Option<f64> {
    text.lines().find_map(|line| number(line.split_once(label)?.1.split_whitespace().next()?))
}

/// The sum of the second words of lines with "Throughput", as the kernel's selftest counts.
fn throughput(text: &str) -> Option<f64> {
    let values: Vec<f64> = text
        .lines()
        .filter(|line| line.contains("Throughput"))
        .filter_map(|line| number(line.split_whitespace().nth(1)?))
        .collect();
    let sum: f64 = values.iter().sum();
    (sum > 0.0).then_some(sum)
}

/// The time limit on tbench's command line; its default is 600 s.
fn time_limit(argv: &[String]) -> Option<f64> {
    let mut words = argv.iter();
    while let Some(word) = words.next() {
        if word == "-t" || word == "--timelimit" {
            return words.next()?.parse().ok();
        }
        if let Some(value) = word.strip_prefix("--timelimit=").or_else(|| word.strip_prefix("-t")) {
            return value.parse().ok();
        }
    }
    Some(600.0)
}

/// Sums over fio's jobs. Warnings may stand in front of the JSON text.
fn fio(text: &str, latency: bool) -> Option<f64> {
    let json: serde_json::Value = serde_json::from_str(text.get(text.find('{')?..=text.rfind('}')?)?).ok()?;
    let (mut rate, mut ios, mut nanoseconds) = (0.0, 0.0, 0.0);
    for job in json.get("jobs")?.as_array()? {
        for direction in ["read", "write", "trim"] {
            let Some(part) = job.get(direction) else { continue };
            let count = part.get("total_ios").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
            rate += part.get("iops").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
            // lat_ns from fio 3; fio 2 had microseconds in lat.
            // Weighted by the number of operations: jobs of different lengths are in one file.
            let mean = part
                .pointer("/lat_ns/mean")
                .and_then(serde_json::Value::as_f64)
                .or_else(|| Some(part.pointer("/lat/mean")?.as_f64()? * 1000.0));
            if let Some(mean) = mean {
                ios += count;
                nanoseconds += mean * count;
            }
        }
    }
    if latency { (ios > 0.0).then(|| nanoseconds / ios / 1000.0) } else { Some(rate) }
}

/// cpu prints events per second; memory and databases rates in brackets; threads and mutex only a
/// count and a time.
fn sysbench(text: &str) -> Option<f64> {
    let rate = |line: &&str, label: &str| number(line.split_once(label)?.0.rsplit('(').next()?.trim());
    after(text, "events per second:")
        .or_else(|| text.lines().filter(|l| l.contains("transactions:")).find_map(|l| rate(&l, "per sec")))
        .or_else(|| {
            text.lines().filter(|l| l.contains("Total operations:")).find_map(|l| rate(&l, "per second"))
        })
        .or_else(|| {
            let seconds = text.lines().find_map(|line| {
                line.split_once("total time:")?.1.trim().strip_suffix('s')?.parse::<f64>().ok()
            })?;
            Some(after(text, "total number of events:")? / seconds)
        })
}

/// Rows are `stress-ng: metrc: [pid] NAME BOGO-OPS REAL USR SYS OPS/S-REAL ...`; older versions say
/// `info:`.
fn stress_ng(text: &str) -> Option<f64> {
    geometric_mean(text.lines().filter_map(|line| {
        let row = line.split_once("] ")?.1;
        let mut words = row.split_whitespace();
        words.next()?;
        words.next()?.parse::<u64>().ok()?;
        let numbers: Vec<f64> = words.map_while(number).collect();
        // Real, user and system time, then two rates at least.
        // The fourth is the rate per second of real time.
        if numbers.len() >= 5 { Some(numbers[3]) } else { None }
    }))
}

/// The table has cells like `1743289.78k`; with -mr rows are `+F:NUMBER:NAME:BYTES:BYTES...`.
fn openssl(text: &str) -> Option<f64> {
    let table = text.lines().flat_map(|line| {
        line.split_whitespace().skip(1).filter_map(|cell| cell.strip_suffix('k')?.parse::<f64>().ok())
    });
    let machine_readable = text.lines().filter(|line| line.starts_with("+F:")).flat_map(|line| {
        line.split(':').skip(3).filter_map(|cell| cell.trim().parse::<f64>().ok()).map(|bytes| bytes / 1000.0)
    });
    // Cells are of very different size (16 bytes to 16 KiB): the arithmetic mean would be that of
    // the largest blocks.
    geometric_mean(table.chain(machine_readable))
}

/// Under a head such as `sign verify sign/s verify/s` each row has a name and as many numbers.
/// Since OpenSSL 3.2, the RSA table has encryption columns after the signature columns.
fn openssl_sign(text: &str) -> Option<f64> {
    let mut from_end = None;
    geometric_mean(text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(place) = words.iter().position(|word| *word == "sign/s") {
            from_end = Some(words.len() - place);
            return None;
        }
        // Another head, such as that of key exchanges, ends the table.
        if words.iter().any(|word| word.ends_with("/s")) {
            from_end = None;
        }
        words.len().checked_sub(from_end?).and_then(|place| words[place].parse::<f64>().ok())
    }))
}

#[cfg(test)]
mod tests;
