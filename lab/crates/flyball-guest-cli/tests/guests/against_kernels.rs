//! Compares the simulator with real kernels: both run the same scripts of writes, and every answer
//! and the state after each write must be equal.
//!
//! A script is generated on a simulated machine from a fixed seed ([`generate`]) and copied into a
//! guest whose real kernel and drivers run on the same silicon. There, this program repeats the
//! script and compares every answer, every attribute's presence, mode and value, and the fields of
//! the performance request registers. Differences with a reason are listed in [`KNOWN`]; any other
//! difference fails the test.
//!
//! Kernels and the emulator come from the cache of `flyball guest fetch`; missing ones are skipped
//! and counted. By default one guest is booted; `FLYBALL_GUEST_TESTS=all` boots all.
//! `FLYBALL_SCRIPT_SEED` and `FLYBALL_SCRIPT_LENGTH` select other scripts.

mod generate;
mod inside;
mod script;

use libtest_mimic::Failed;

use crate::{
    guest::{self, SuiteCase},
    twin,
};

/// One boot.
struct Case {
    kernel: &'static str,
    machine: &'static str,
    driver: &'static str,
    /// The words of the command line that set it up.
    words: &'static [&'static str],
    interface: Option<&'static str>,
    everyday: bool,
}

const fn case(
    kernel: &'static str,
    machine: &'static str,
    driver: &'static str,
    words: &'static [&'static str],
    interface: Option<&'static str>,
    everyday: bool,
) -> Case {
    Case { kernel, machine, driver, words, interface, everyday }
}

const ACTIVE: &[&str] = &["amd_pstate=active"];
const PASSIVE: &[&str] = &["amd_pstate=passive"];
const GUIDED: &[&str] = &["amd_pstate=guided"];
const NONE: &[&str] = &["amd_pstate=disable", "intel_pstate=disable"];
const MAILBOX: Option<&str> = Some("cppc-mailbox");

const CASES: &[Case] = &[
    case("7.3", "ryzen-5750g", "amd-pstate=active", ACTIVE, None, false),
    case("7.3", "ryzen-5750g", "amd-pstate=passive", PASSIVE, None, false),
    case("7.3", "sst-guide", "intel_pstate", &[], None, false),
    case("7.2", "ryzen-5750g", "amd-pstate=active", ACTIVE, None, true),
    case("7.2", "ryzen-5750g", "amd-pstate=passive", PASSIVE, None, false),
    case("7.2", "ryzen-5750g", "amd-pstate=guided", GUIDED, None, false),
    case("7.2", "ryzen-5750g", "amd-pstate=passive", PASSIVE, MAILBOX, false),
    case("7.2", "ryzen-5750g", "acpi-cpufreq", NONE, None, false),
    case("7.2", "sst-guide", "intel_pstate", &[], None, false),
    case("7.2", "sst-guide", "intel_pstate=passive", &["intel_pstate=passive"], None, false),
    case("7.2", "sst-guide", "intel_pstate=no_hwp", &["intel_pstate=no_hwp"], None, false),
    case("6.12", "ryzen-5750g", "amd-pstate=active", ACTIVE, None, false),
    case("6.12", "ryzen-5750g", "amd-pstate=passive", PASSIVE, None, false),
    case("6.12", "ryzen-5750g", "amd-pstate=guided", GUIDED, MAILBOX, false),
    case("6.12", "ryzen-5750g", "acpi-cpufreq", NONE, None, false),
    case("6.12", "sst-guide", "intel_pstate", &[], None, false),
    case("6.12", "sst-guide", "intel_pstate=passive", &["intel_pstate=passive"], None, false),
    case("6.12", "sst-guide", "intel_pstate=no_hwp", &["intel_pstate=no_hwp"], None, false),
    case("6.1", "ryzen-5750g", "amd-pstate=passive", PASSIVE, None, false),
    case("6.1", "ryzen-5750g", "acpi-cpufreq", NONE, None, false),
    case("6.1", "sst-guide", "intel_pstate", &[], None, false),
    case("6.1", "sst-guide", "intel_pstate=passive", &["intel_pstate=passive"], None, false),
];

/// Known differences: a part of the line that identifies them, and the reason. Lines read `value
/// STEP PATH EXPECTED SEEN` or `answer STEP PATH TEXT EXPECTED SEEN`, with modes before values and
/// blanks as %20.
const KNOWN: &[(&str, &str)] = &[
    ("cpuinfo_transition_latency 444%20131000 444%201000", MAILBOX_LATENCY),
    ("cpufreq/schedutil/rate_limit_us 644%20131 644%201", MAILBOX_LATENCY),
];

const MAILBOX_LATENCY: &str = "the guest's mailbox answers at once, and its firmware says so";

const CPUS: u32 = 4;
const SEED: u64 = 7;
const LENGTH: usize = 150;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(case: &Case) -> Result<(), Failed> {
    let &Case { kernel, machine, driver, words, interface, .. } = case;
    let (mut machine, amd) = twin::Twin { kernel, machine, driver, words, interface, cpus: CPUS }.boot()?;
    machine.advance(std::time::Duration::from_millis(100));
    let registers = case.interface.is_none() && !case.driver.ends_with("no_hwp");
    let watch = generate::watch(CPUS, amd, registers);
    let length = number("FLYBALL_SCRIPT_LENGTH", LENGTH as u64) as usize;
    let steps = generate::script(machine, &watch, amd, number("FLYBALL_SCRIPT_SEED", SEED), length);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("script");
    std::fs::write(&file, script::write(&watch, &steps)).unwrap();
    let program = std::env::current_exe().unwrap();
    let (program, file) = (format!("{}:against", program.display()), format!("{}:script", file.display()));
    let cpus = CPUS.to_string();
    let mut options =
        vec![case.machine, "--driver", case.driver, "--cpus", &cpus, "--file", &program, "--file", &file];
    if let Some(interface) = case.interface {
        options.extend(["--interface", interface]);
    }
    // In the order in which the governors are finally listed.
    let modules = "?msr,?cpufreq_powersave,?cpufreq_userspace,?cpufreq_ondemand,?cpufreq_conservative";
    options.extend(["--modules", modules]);
    let output = guest::run(case.kernel, &options, &["./against", "--inside", "against_kernels", "script"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let compared = text.lines().find_map(|line| line.strip_prefix("compared ")?.parse::<u64>().ok());
    let differences: Vec<&str> = text.lines().filter(|line| !line.starts_with("compared ")).collect();
    let unknown: Vec<String> = differences
        .iter()
        .filter(|line| !KNOWN.iter().any(|known| line.contains(known.0)))
        .map(|line| format!("{line}   after {}", history(line, &steps)))
        .collect();
    eprintln!(
        "{} {} {}: {length} writes, {} values compared, {} differ, {} of them known",
        case.kernel,
        case.driver,
        case.interface.unwrap_or(""),
        compared.unwrap_or(0),
        differences.len(),
        differences.len() - unknown.len()
    );
    if compared.is_some_and(|compared| compared > 20 * length as u64) && unknown.is_empty() {
        return Ok(());
    }
    eprintln!("{}", unknown.join("\n"));
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{}\n{errors}", output.status, unknown.join("\n")).into())
}

/// Describes the write to which a line of differences belongs.
fn history(line: &str, steps: &[script::Step]) -> String {
    let number = line.split(' ').nth(1).and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
    let mode = steps.iter().take(number + 1).rev().flat_map(|step| &step.changed);
    let mode = mode.filter(|(path, _)| path.ends_with("/status")).find_map(|(_, value)| value.as_deref());
    steps.get(number).map_or(String::new(), |step| {
        format!("{} <- {} ({})", step.path, script::escape(&step.text), mode.unwrap_or("no mode"))
    })
}

/// Runs in the copy of this program in the guest.
pub(crate) fn inside(words: &[String]) {
    inside::run(&words[0]);
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let suited = |case: &'static Case| SuiteCase {
        name: format!("{}-{}{}", case.kernel, case.driver, case.interface.map_or("", |_| "-mailbox")),
        kernel: case.kernel.to_owned(),
        everyday: case.everyday,
        missing: None,
        test: Box::new(move || run(case)),
    };
    CASES.iter().map(suited).collect()
}
