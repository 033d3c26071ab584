//! Repeats recorded writes to cpufreq attributes of a real kernel: with this kernel and driver in a
//! guest, each write must give the recorded error or success, and words must read back as recorded.
//!
//! The recordings are not part of this repository (`$FLYBALL_SHARED/lab/results` or
//! `../shared/lab/results`). Without them, and for kernels that are not in the cache, nothing is
//! compared, and skipped recordings are counted. By default one recording is replayed;
//! `FLYBALL_GUEST_TESTS=all` replays all.

use std::{fmt::Write as _, fs, path::Path};

use crate::common::Guest;
use flyball_guest::{Interface, guest::Request, initramfs::JobFile, machine::Driver};
use flyball_silicon::MachineSpec;
use flyball_testing::{shared, skip};

/// Recording, kernel, machine, driver, interface. `FLYBALL_RECORDINGS=intel,acpi-cpufreq-6.12`
/// selects by the beginning of names.
const RECORDINGS: &[(&str, &str, &str, &str, Option<Interface>)] = &[
    ("amd-cppc-7.2", "7.2", "ryzen-5750g", "amd-pstate=active", None),
    ("amd-cppc-6.12", "6.12", "ryzen-5750g", "amd-pstate=active", None),
    ("amd-cppc-6.1", "6.1", "ryzen-5750g", "amd-pstate=passive", None),
    ("amd-pstate-7.2", "7.2", "ryzen-5750g", "amd-pstate=active", Some(Interface::CppcMailbox)),
    ("amd-pstate-6.18", "6.18", "ryzen-5750g", "amd-pstate=active", Some(Interface::CppcMailbox)),
    ("amd-pstate-6.12", "6.12", "ryzen-5750g", "amd-pstate=active", Some(Interface::CppcMailbox)),
    ("amd-pstate-6.1", "6.1", "ryzen-5750g", "amd-pstate=passive", Some(Interface::CppcMailbox)),
    ("amd-pstate-prefcore-7.2", "7.2", "ryzen-5750g", "amd-pstate=active", Some(Interface::CppcMailbox)),
    ("amd-rome-prefcore-6.12", "6.12", "ryzen-5750g", "amd-pstate=active", Some(Interface::CppcMailbox)),
    ("acpi-cpufreq-7.2", "7.2", "ryzen-5750g", "acpi-cpufreq", None),
    ("acpi-cpufreq-amdmsr-6.12", "6.12", "ryzen-5750g", "acpi-cpufreq", None),
    ("acpi-cpufreq-6.12", "6.12", "gold-6138", "acpi-cpufreq", Some(Interface::PStates)),
    ("acpi-cpufreq-6.1", "6.1", "ryzen-5750g", "acpi-cpufreq", None),
    ("intel-hwp-7.2", "7.2", "sst-guide", "intel_pstate", None),
    ("intel-hwp-6.12", "6.12", "sst-guide", "intel_pstate", None),
    ("intel-hwp-6.1", "6.1", "sst-guide", "intel_pstate", None),
    ("intel-nohwp-6.12", "6.12", "sst-guide", "intel_pstate=no_hwp", None),
];

/// A write and its answer.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    path: String,
    value: String,
    answer: String,
    now: String,
}

/// The text in the first pair of quotes, and the text after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('\'')?;
    text.split_once('\'')
}

/// Parses lines `  PATH <- 'VALUE'   ANSWER   now 'VALUE' ...`
fn recorded(text: &str) -> Vec<Write> {
    let line = |line: &str| {
        let (path, rest) = line.split_once(" <- ")?;
        let (value, rest) = quoted(rest)?;
        let (answer, rest) = rest.trim_start().split_once(' ')?;
        let (now, _) = quoted(rest.trim_start().strip_prefix("now ")?)?;
        Some(Write {
            path: path.trim().to_owned(),
            value: value.to_owned(),
            answer: answer.to_owned(),
            now: now.to_owned(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Returns whether the value read back is a word or a small number; frequencies depend on the
/// machine.
fn comparable(write: &Write) -> bool {
    write
        .now
        .parse::<u64>()
        .map_or(!write.now.contains(' ') && write.now != "<unsupported>", |number| number < 256)
        && !write.path.contains("freq")
        && !write.path.contains("setspeed")
        && !write.path.ends_with("_pct")
}

/// Explained differences: recording, end of the path, the answer here, and the reason.
const EXPLAINED: &[(&str, &str, &str, &str)] = &[(
    "amd-pstate-6.12",
    "boost",
    "ok",
    "recorded on a processor without the flag cpb, which 6.12 cannot be told to set; this machine boosts, \
     as the one of the recording amd-rome-prefcore-6.12 does",
)];

fn replay(
    guest: &Guest,
    name: &str,
    kernel: &str,
    request: &mut Request,
    dir: &Path,
    writes: &[Write],
) -> Vec<String> {
    let mut script = String::from(
        "cd /sys/devices/system/cpu
w() {
    { echo \"$2\" > \"$1\"; } 2> /tmp/e && r=ok || case $(cat /tmp/e) in
        *'Invalid arg'*) r=EINVAL ;; *'Permission'*) r=EACCES ;; *busy*) r=EBUSY ;; *'No such file'*|*nonexist*) r=ENOENT ;;
        *'not supported'*) r=EOPNOTSUPP ;; *'No such device'*) r=ENODEV ;; *range*) r=ERANGE ;; *) r=\"$(cat /tmp/e)\" ;;
    esac
    n='<ENOENT>'; [ -e \"$1\" ] && { n=$(cat \"$1\" 2> /dev/null) || n='<error>'; }
    echo \"$r|$n\"
}
",
    );
    for write in writes {
        let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let _ = writeln!(script, "w {} {}", quote(&write.path), quote(&write.value));
    }
    let file = dir.join("writes");
    fs::write(&file, script).unwrap();
    kernel.clone_into(&mut request.kernel);
    request.files = vec![JobFile { source: file, name: "writes".into() }];
    request.modules =
        vec!["?cpufreq_ondemand".into(), "?cpufreq_powersave".into(), "?cpufreq_userspace".into()];
    let ended = guest.run(request);
    let lines: Vec<&str> = ended.out.lines().collect();
    let mut wrong = Vec::new();
    if lines.len() != writes.len() {
        return vec![format!("{name}: {} answers to {} writes: {}", lines.len(), writes.len(), ended.err)];
    }
    for (write, line) in writes.iter().zip(lines) {
        let (answer, now) = line.split_once('|').unwrap_or((line, ""));
        let refused = now == "<error>" && write.now.starts_with("<E");
        let same =
            answer == write.answer && (refused || !comparable(write) || now.trim() == write.now.trim());
        let explained = EXPLAINED.iter().any(|(file, path, here, _)| {
            name == *file && write.path.ends_with(path) && answer == *here && write.answer == "EINVAL"
        });
        if !same && !explained {
            wrong.push(format!(
                "{name}: {} <- '{}': recorded {} '{}', here {answer} '{now}'",
                write.path, write.value, write.answer, write.now
            ));
        }
    }
    wrong
}

#[test]
fn real_drivers_answer_as_recorded() {
    let recordings = shared("lab/results");
    let Some((guest, _)) = Guest::new("real_drivers_answer_as_recorded") else { return };
    let all = std::env::var_os("FLYBALL_GUEST_TESTS").is_some_and(|value| value == "all");
    let chosen = std::env::var("FLYBALL_RECORDINGS").ok();
    let dir = tempfile::tempdir().unwrap();
    let (mut skipped, mut compared, mut wrong) = (0, 0, Vec::new());
    for (index, (name, kernel, machine, driver, interface)) in RECORDINGS.iter().enumerate() {
        let text = recordings
            .as_ref()
            .and_then(|folder| fs::read_to_string(folder.join(format!("{name}.txt"))).ok());
        let wanted = chosen.as_ref().map_or(all || index == 0, |names| {
            names.split(',').any(|begin| !begin.is_empty() && name.starts_with(begin))
        });
        let (Some(text), true, Some(_)) = (text, wanted, guest.cache.kernel_version(kernel)) else {
            skipped += 1;
            continue;
        };
        let writes = recorded(&text);
        assert!(writes.len() > 30, "{name}: {} writes", writes.len());
        let mut request = Request::new(machine, kernel, &["sh ./writes"]);
        if name.contains("prefcore") {
            // Cores that differ, like the recorded ones: if all are equal, the kernel has no
            // preferred cores.
            let toml = MachineSpec::builtin_text(machine).unwrap();
            let ranked =
                toml.replace("\nperf = {", "\nranking = [166, 161, 156, 151, 146, 141, 136, 131]\nperf = {");
            assert_ne!(toml, ranked);
            let file = dir.path().join(format!("{name}.toml"));
            fs::write(&file, ranked).unwrap();
            request.machine = file.display().to_string();
        }
        request.driver = Driver::parse(driver).unwrap();
        request.interface = *interface;
        wrong.extend(replay(&guest, name, kernel, &mut request, dir.path(), &writes));
        compared += writes.len();
    }
    if skipped > 0 {
        skip(
            skipped,
            "recordings of writes",
            "without recording or kernel, or FLYBALL_GUEST_TESTS is not all",
        );
    }
    eprintln!("{compared} writes compared, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
