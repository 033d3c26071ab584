//! Replays recordings of real kernels: makes the recorded reads and writes on the simulator, and
//! compares attribute lists, values and errnos.
//!
//! The recordings are text files that a probe wrote in a guest with a real kernel: `[directory]`
//! and its attributes with mode and value, and lines `path <- 'text' RESULT now 'value'
//! other=value`. They are in `$FLYBALL_SHARED/lab/results` (else `../shared` next to the
//! workspace); without them the tests skip and say so.

use std::{collections::BTreeSet, fmt::Write as _, path::Path, time::Duration};

use flyball_sim::{Boot, Errno, Kernel, SimMachine, silicon::MachineSpec};
use flyball_testing::{shared, skip};

const CPU: &str = "/sys/devices/system/cpu";

/// Known differences: (file, text in the difference, reason). Each must occur.
const KNOWN: &[(&str, &str, &str)] = &[
    ("acpi-cpufreq-7.2.txt", "cpuinfo_cur_freq", PORTS),
    ("acpi-cpufreq-6.12.txt", "cpuinfo_cur_freq", PORTS),
    ("acpi-cpufreq-6.1.txt", "cpuinfo_cur_freq", PORTS),
    ("acpi-cpufreq-6.1.txt", "scaling_setspeed: recorded '3301000'", BEFORE),
    ("amd-rome-prefcore-6.12.txt", "357: /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", LATE),
];

const BEFORE: &str = "userspace starts at the frequency that the load before it had led to";
const LATE: &str = "in the recording the work item ran only after the next write";

const PORTS: &str =
    "the guest's P-states are requested through I/O ports, which the simulator's processors do not have";

/// Values that depend on earlier events: only their existence is compared.
const VOLATILE: &[&str] = &["scaling_cur_freq", "cpuinfo_avg_freq", "cpuinfo_cur_freq", "feedback_ctrs"];

fn amd(interface: &str, turbo: bool, ranking: &str) -> MachineSpec {
    let text = include_str!("../machines/amd.toml")
        .replace("INTERFACE", interface)
        .replace("TURBO", if turbo { "true" } else { "false" })
        .replace("RANKING", ranking);
    MachineSpec::from_toml(&text).unwrap()
}

fn boot(spec: MachineSpec, kernel: Kernel, options: &[&str]) -> SimMachine {
    let boot = Boot {
        options: options.iter().map(|&option| option.to_owned()).collect(),
        modular_governors: options.contains(&"modular"),
    };
    let mut machine = SimMachine::boot(spec, kernel, boot, 0).unwrap();
    machine.advance(Duration::from_millis(10));
    machine
}

fn errno_name(errno: Errno) -> String {
    errno.name().map_or_else(|| format!("{errno:?}"), str::to_owned)
}

/// A file's text in the probe's format.
fn read(machine: &mut SimMachine, path: &str) -> String {
    match machine.read(path) {
        Ok(bytes) => String::from_utf8(bytes).unwrap().trim_end_matches('\n').to_owned(),
        Err(errno) => format!("<{}>", errno_name(errno)),
    }
}

/// Undoes Python's repr of a string. Returns the string and the text after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"')?;
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.push(other),
            },
            c if c == quote => return Some((value, &text[at + 1..])),
            c => value.push(c),
        }
    }
    None
}

/// Splits ` a=1 b=x y` into pairs: a value extends to the next ` word=`.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let mut starts = Vec::new();
    for (at, _) in text.match_indices('=') {
        let start = text[..at].rfind(' ').map_or(0, |space| space + 1);
        let word = &text[start..at];
        if !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            starts.push((start, at));
        }
    }
    (0..starts.len())
        .map(|n| {
            let (start, at) = starts[n];
            let end = starts.get(n + 1).map_or(text.len(), |next| next.0 - 1);
            (&text[start..at], &text[at + 1..end])
        })
        .collect()
}

/// Path of a value that the probe shows by its last name.
fn place(name: &str, seen_boost: &mut bool) -> String {
    match name {
        "boost" if !std::mem::replace(seen_boost, true) => format!("{CPU}/cpufreq/boost"),
        "online" | "present" => format!("{CPU}/{name}"),
        "min_perf_pct" | "max_perf_pct" => format!("{CPU}/intel_pstate/{name}"),
        _ => format!("{CPU}/cpufreq/policy0/{name}"),
    }
}

struct Replay {
    file: &'static str,
    machine: SimMachine,
    compared: usize,
    differences: Vec<String>,
}

impl Replay {
    fn differ(&mut self, line: usize, what: String) {
        self.differences.push(format!("{}:{line}: {what}", self.file));
    }

    /// Compares one value. Right after a write the recording may show the old or the new value.
    fn value(&mut self, line: usize, path: &str, recorded: &str, early: Option<&str>) {
        let name = path.rsplit('/').next().unwrap_or_default();
        self.compared += 1;
        let now = read(&mut self.machine, path);
        let volatile = VOLATILE.contains(&name) && !now.starts_with('<') && !recorded.starts_with('<');
        if now != recorded && early != Some(recorded) && !volatile {
            self.differ(line, format!("{path}: recorded '{recorded}', simulated '{now}'"));
        }
    }

    fn directory(&mut self, line: usize, path: &str, recorded: &BTreeSet<String>) {
        let simulated: BTreeSet<String> = self
            .machine
            .list(path)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|name| match self.machine.kind(&format!("{path}/{name}")) {
                Ok(flyball_sim::Kind::File(mode)) if name != "uevent" => Some(format!("{mode:03o} {name}")),
                _ => None,
            })
            .collect();
        self.compared += recorded.len();
        for missing in recorded.difference(&simulated) {
            self.differ(line, format!("{path}: '{missing}' is missing"));
        }
        for extra in simulated.difference(recorded) {
            self.differ(line, format!("{path}: '{extra}' is not in the recording"));
        }
    }

    fn write(&mut self, number: usize, line: &str, newline: bool) {
        let Some((path, rest)) = line.trim_start().split_once(" <- ") else { return };
        let Some((text, rest)) = unquote(rest) else { return };
        let Some((result, rest)) = rest.trim_start().split_once(' ') else { return };
        let Some((after, rest)) = rest.trim_start().strip_prefix("now ").and_then(unquote) else { return };
        let path = format!("{CPU}/{path}");
        let bytes = if newline { format!("{text}\n") } else { text.clone() };
        let simulated = match self.machine.kind(&path) {
            // The probe opens files for writing, which fails here without write permission.
            Ok(flyball_sim::Kind::File(mode)) if mode & 0o200 == 0 => "EACCES".to_owned(),
            _ => match self.machine.write(&path, bytes.as_bytes()) {
                Ok(()) => "ok".to_owned(),
                Err(errno) => errno_name(errno),
            },
        };
        self.compared += 1;
        if simulated != result {
            self.differ(number, format!("{path} <- '{text}': recorded {result}, simulated {simulated}"));
        }
        let mut seen_boost = false;
        let shown: Vec<(String, &str)> =
            pairs(rest).into_iter().map(|(name, value)| (place(name, &mut seen_boost), value)).collect();
        let early: Vec<String> = shown.iter().map(|(path, _)| read(&mut self.machine, path)).collect();
        let early_after = read(&mut self.machine, &path);
        self.machine.advance(Duration::from_millis(1));
        self.value(number, &path, &after, Some(&early_after));
        for ((path, value), early) in shown.iter().zip(&early) {
            self.value(number, path, value, Some(early));
        }
    }

    fn run(&mut self, text: &str) {
        let mut directory: Option<(usize, String, BTreeSet<String>)> = None;
        let mut newline = true;
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            let entry = line.strip_prefix("  ").filter(|_| directory.is_some() && !line.contains(" <- "));
            if let Some(entry) = entry {
                let (_, path, names) = directory.as_mut().unwrap();
                let path = path.clone();
                if let Some(tunables) = entry.strip_prefix("dir ") {
                    let Some((folder, values)) = tunables.split_once("/: ") else { continue };
                    if folder != "stats" {
                        for value in values.split(", ") {
                            let Some((name, value)) = value.split_once('=') else { continue };
                            let Some((value, _)) = unquote(value) else { continue };
                            self.value(number, &format!("{path}/{folder}/{name}"), &value, None);
                        }
                    }
                } else if let Some((head, value)) = entry.split_once(" = ") {
                    names.insert(head.to_owned());
                    let name = head.split_once(' ').map_or("", |(_, name)| name);
                    self.value(number, &format!("{path}/{name}"), value, None);
                }
                continue;
            }
            if let Some((line, path, names)) = directory.take() {
                self.directory(line, &path, &names);
            }
            if let Some(path) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                directory = Some((number, format!("{CPU}/{path}"), BTreeSet::new()));
            } else if line.contains(" <- ") {
                self.write(number, line, newline);
            } else if line.starts_with("---") || line.starts_with("=====") {
                newline = !line.contains("without a newline");
            }
        }
    }
}

/// Replays a recording. Returns the number of compared values, and the unknown differences.
fn replay(folder: &Path, file: &'static str, machine: SimMachine) -> (usize, Vec<String>) {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let mut replay = Replay { file, machine, compared: 0, differences: Vec::new() };
    replay.run(&text);
    let known: Vec<_> = KNOWN.iter().filter(|known| known.0 == file).collect();
    for known in &known {
        assert!(
            replay.differences.iter().any(|difference| difference.contains(known.1)),
            "{file}: '{}' no longer differs; take it off the list",
            known.1
        );
    }
    replay.differences.retain(|difference| !known.iter().any(|known| difference.contains(known.1)));
    (replay.compared, replay.differences)
}

#[test]
fn recorded_kernels_and_the_simulator_agree() {
    let Some(folder) = shared("lab/results") else {
        skip(17, "recordings of answers", "no lab/results");
        return;
    };
    let ranked = "[166, 161, 156, 151]";
    let intel = || MachineSpec::from_toml(include_str!("../machines/intel.toml")).unwrap();
    let no_hwp = ["intel_pstate=no_hwp"];
    let (active, passive, off) = (["amd_pstate=active"], ["amd_pstate=passive"], ["amd_pstate=disable"]);
    let cases: Vec<(&'static str, SimMachine)> = vec![
        ("acpi-cpufreq-6.1.txt", boot(amd("cppc-shared", false, "[]"), Kernel::V6_1, &off)),
        ("acpi-cpufreq-6.12.txt", boot(amd("cppc-shared", false, "[]"), Kernel::V6_12, &off)),
        ("acpi-cpufreq-7.2.txt", boot(amd("cppc-shared", true, "[]"), Kernel::V7_2, &off)),
        ("acpi-cpufreq-amdmsr-6.12.txt", boot(amd("cppc-shared", true, "[]"), Kernel::V6_12, &off)),
        ("amd-cppc-6.1.txt", boot(amd("cppc-msr", true, "[]"), Kernel::V6_1, &passive)),
        ("amd-cppc-6.12.txt", boot(amd("cppc-msr", true, "[]"), Kernel::V6_12, &active)),
        ("amd-cppc-7.2.txt", boot(amd("cppc-msr", true, "[]"), Kernel::V7_2, &active)),
        ("amd-pstate-6.1.txt", boot(amd("cppc-shared", true, "[]"), Kernel::V6_1, &passive)),
        ("amd-pstate-6.12.txt", boot(amd("cppc-shared", false, "[]"), Kernel::V6_12, &active)),
        ("amd-pstate-6.18.txt", boot(amd("cppc-shared", true, "[]"), Kernel::V6_18, &active)),
        ("amd-pstate-7.2.txt", boot(amd("cppc-shared", true, "[]"), Kernel::V7_2, &active)),
        (
            "amd-pstate-prefcore-7.2.txt",
            boot(amd("cppc-shared", true, ranked), Kernel::V7_2, &["amd_pstate=active", "modular"]),
        ),
        ("amd-rome-prefcore-6.12.txt", boot(amd("cppc-shared", true, ranked), Kernel::V6_12, &active)),
        ("intel-hwp-6.1.txt", boot(intel(), Kernel::V6_1, &[])),
        ("intel-hwp-6.12.txt", boot(intel(), Kernel::V6_12, &[])),
        ("intel-hwp-7.2.txt", boot(intel(), Kernel::V7_2, &[])),
        ("intel-nohwp-6.12.txt", boot(intel(), Kernel::V6_12, &no_hwp)),
    ];
    let mut report = String::new();
    let mut total = 0;
    let mut count = 0;
    for (file, machine) in cases {
        let (compared, differences) = replay(&folder, file, machine);
        eprintln!("{file}: {compared} answers compared, {} unknown differences", differences.len());
        assert!(compared > 100, "{file}: only {compared} answers were compared");
        total += compared;
        count += differences.len();
        for difference in differences {
            let _ = writeln!(report, "{difference}");
        }
    }
    eprintln!("{total} answers compared, {count} unknown differences, {} known", KNOWN.len());
    assert!(report.is_empty(), "{count} differences:\n{report}");
}
